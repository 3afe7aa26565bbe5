//! A journal, and checkpoints, when the machine or the process ends at each call of the disk, and when the disk fails.
//!
//! A loss of power leaves of the writes that were not synced what the disk had taken: each is kept, lost or torn, each length is old or
//! new, and of the names a first part is kept. Each combination is tried.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tapeworks_disk::Disk;
use tapeworks_engine::checkpoint::folder::{newest_in, prune_in, write_in};
use tapeworks_engine::checkpoint::{self, EngineImage};
use tapeworks_engine::{Engine, EngineOptions, MarketStage};
use tapeworks_feed::Application;
use tapeworks_feed::live::LiveChannelOptions;
use tapeworks_journal::{
    JournalError, JournalOptions, JournalReader, JournalWriter, LOST, NUMBERED, Opened, Record, repair_in,
    verify_in,
};
use tapeworks_market::{BookOptions, Capacity, Publisher};
use tapeworks_runtime::world::{ThreadHandle, World};
use tapeworks_sim::{
    Crash, DiskFaults, HostId, PowerLoss, RunOptions, Schedule, Simulated, add_host, below,
    crash_after_calls, disk_calls, disk_failures, has_ended, panic_of, power_off, power_on, run,
    set_disk_faults, set_power_loss, start,
};

type W = Simulated;
type Writer = JournalWriter<Simulated>;

const FOLDER: &str = "/journal";

/// Bytes of a record whose bytes lie in several sectors.
const LARGE: usize = 1_300;
const SMALL: usize = 50;

/// An operation on a journal.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Appends a record with so long a payload.
    Append(usize),
    Flush,
    Sync,
    /// Another thread syncs.
    BeginSync,
    /// Another thread makes the next segment.
    MakeNext,
    /// Another thread removes segments.
    Remove,
    /// Takes what the other threads have done.
    Finish,
    /// So many records get no contents.
    Lose(u64),
    /// The last so many records are needed.
    Need(u64),
}

use Op::{Append, BeginSync, Finish, Flush, Lose, MakeNext, Need, Remove, Sync};

#[derive(Debug)]
struct Script {
    name: &'static str,
    options: JournalOptions,
    leaves_waiting: bool,
    ops: &'static [Op],
}

const fn options(segment_bytes: u64, keep_bytes: Option<u64>) -> JournalOptions {
    JournalOptions { segment_bytes, keep_bytes }
}

#[rustfmt::skip]
static SCRIPTS: [Script; 5] = [
    Script {
        name: "one segment",
        options: options(1 << 14, None),
        leaves_waiting: false,
        ops: &[
            Append(SMALL), Flush, Append(SMALL), Sync, Append(LARGE), Flush, Append(LARGE), Flush, Append(SMALL), Sync,
            Append(0), Flush,
        ],
    },
    Script {
        name: "segments",
        options: options(1_536, None),
        leaves_waiting: false,
        ops: &[
            Append(SMALL), Append(LARGE), Append(SMALL), Flush, Append(LARGE), Append(SMALL), Flush, Append(LARGE),
            Sync, Append(SMALL), Flush,
        ],
    },
    Script {
        name: "segments that are removed",
        options: options(1_536, Some(4_000)),
        leaves_waiting: false,
        ops: &[
            Append(LARGE), Append(LARGE), Need(1), Append(LARGE), Append(LARGE), Flush, Append(SMALL), Need(2),
            Append(LARGE), Sync, Append(SMALL),
        ],
    },
    Script {
        name: "another thread",
        options: options(1_536, Some(3_000)),
        leaves_waiting: true,
        ops: &[
            Append(SMALL), BeginSync, MakeNext, Append(SMALL), Flush, Finish, Append(LARGE), Append(SMALL), BeginSync,
            Append(SMALL), MakeNext, Flush, Finish, Need(2), Append(LARGE), Remove, Append(SMALL), BeginSync, Append(LARGE),
            MakeNext, Finish, Append(LARGE), BeginSync, Finish, Append(SMALL), Flush,
        ],
    },
    Script {
        name: "records without contents",
        options: options(1_536, None),
        leaves_waiting: false,
        ops: &[
            Append(SMALL), Sync, Lose(3), Append(SMALL), Sync, Lose(2), Flush, Append(LARGE), Lose(1), Append(SMALL), Flush,
            Sync,
        ],
    },
];

/// What was asked of a journal, and what it promised.
#[derive(Clone, Default, Debug)]
struct Ledger {
    payloads: BTreeMap<u64, Vec<u8>>,
    /// Numbers without contents.
    lost: BTreeSet<u64>,
    next: u64,
    /// The system has the records before this one.
    flushed: u64,
    /// The disk has the records before this one.
    synced: u64,
    /// The records from this one on are not removed.
    needed: u64,
    /// The process came to its end.
    is_over: bool,
}

/// What the processes of a simulation leave to the test.
#[derive(Debug, Default)]
struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    fn get(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// The payload of a record: no two are equal.
fn payload(generation: u8, number: u64, length: usize) -> Vec<u8> {
    let of_record = generation.wrapping_mul(91) ^ number as u8;
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ of_record | 1).collect()
}

fn append(
    writer: &mut Writer,
    ledger: &Shared<Ledger>,
    generation: u8,
    length: usize,
) -> Result<u64, JournalError> {
    let number = writer.next_number();
    let bytes = payload(generation, number, length);
    {
        // Before the call: a crash in it may leave the record.
        let mut ledger = ledger.get();
        ledger.payloads.insert(number, bytes.clone());
        ledger.next = number + 1;
    }
    writer.append(&Record { kind: 1, time: number * 1_000, payload: &bytes, ..Record::default() })
}

fn play(script: &Script, ledger: &Shared<Ledger>) {
    let (mut writer, _) = Writer::open_in(Path::new(FOLDER), script.options).unwrap();
    if script.leaves_waiting {
        writer.leave_waiting();
    }
    let mut tasks = Vec::new();
    for op in script.ops {
        let next = writer.next_number();
        let begun = match op {
            Append(length) => {
                append(&mut writer, ledger, 1, *length).unwrap();
                None
            }
            Flush => {
                writer.flush().unwrap();
                ledger.get().flushed = next;
                None
            }
            Sync => {
                writer.sync().unwrap();
                let mut ledger = ledger.get();
                (ledger.flushed, ledger.synced) = (next, next);
                None
            }
            Lose(count) => {
                {
                    let mut ledger = ledger.get();
                    ledger.lost.extend(next..next + count);
                    ledger.next = next + count;
                }
                writer.lose_until(next + count, next * 1_000).unwrap();
                ledger.get().flushed = next + count;
                None
            }
            Need(last) => {
                let needed = next.saturating_sub(*last);
                ledger.get().needed = needed;
                writer.need_from(needed);
                None
            }
            BeginSync => {
                let begun = writer.begin_sync().unwrap();
                ledger.get().flushed = next;
                begun
            }
            MakeNext => writer.begin_next_segment(),
            Remove => writer.begin_removal(),
            Finish => {
                for (task, covered) in tasks.drain(..) {
                    let task: <W as World>::Handle<_> = task;
                    writer.finish(task.join().unwrap()).unwrap();
                    let mut ledger = ledger.get();
                    ledger.synced = ledger.synced.max(covered);
                }
                None
            }
        };
        if let Some(io_task) = begun {
            let covered = if matches!(op, BeginSync) { next } else { 0 };
            tasks.push((W::spawn("disk", move || io_task.run()).unwrap(), covered));
        }
    }
    let next = writer.next_number();
    // It flushes.
    drop(writer);
    (ledger.get().flushed, ledger.get().is_over) = (next, true);
}

/// A record, or several that are lost, as a reader finds them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    first: u64,
    last: u64,
    /// `None`: lost.
    payload: Option<Vec<u8>>,
}

fn read_all() -> Result<Vec<Entry>, JournalError> {
    let mut reader = JournalReader::<W>::open_in(Path::new(FOLDER))?;
    let mut entries = Vec::new();
    while let Some(record) = reader.next()? {
        let is_lost = (record.kind, record.line) == (LOST, NUMBERED);
        let first = if is_lost { record.number + 1 - record.extra } else { record.number };
        let payload = (!is_lost).then(|| record.payload.to_vec());
        entries.push(Entry { first, last: record.number, payload });
    }
    Ok(entries)
}

/// All that was promised is there, and nothing else. Returns the number that follows.
fn check(ledger: &Ledger, promised: u64, entries: &[Entry], case: &str) -> u64 {
    let mut next = entries.first().map_or(0, |entry| entry.first);
    assert!(next <= ledger.needed, "{next} is the first record: {case}");
    for entry in entries {
        assert!(entry.first == next && entry.last >= next, "numbers are consecutive: {case}");
        next = entry.last + 1;
        match &entry.payload {
            Some(payload) => {
                assert_eq!(ledger.payloads.get(&entry.first), Some(payload), "{}: {case}", entry.first)
            }
            None => {
                let is_excused = |number| number >= promised || ledger.lost.contains(&number);
                assert!((entry.first..=entry.last).all(is_excused), "{} is lost: {case}", entry.first);
            }
        }
    }
    assert!(next >= promised && next <= ledger.next, "{next}, promised {promised}: {case}");
    next
}

/// What a process found after a crash.
#[derive(Clone, Default, Debug)]
struct Found {
    /// It has read all.
    has_read: bool,
    entries: Vec<Entry>,
    /// Damage before a repair.
    damage: Vec<String>,
    /// Damage after a repair, and places that it left as they are.
    unmended: Vec<String>,
    left: u64,
    /// What is torn at the end after the journal was opened for writing.
    torn: Vec<String>,
    next: u64,
}

fn damage() -> Result<Vec<String>, JournalError> {
    let verified = verify_in::<W>(Path::new(FOLDER), || true)?;
    Ok(verified.damage.iter().map(ToString::to_string).collect())
}

/// A process that finds a journal, and repairs it first if `repairs`. Then it appends.
fn go_on(
    repairs: bool,
    generation: u8,
    found: &Shared<Found>,
    ledger: &Shared<Ledger>,
) -> Result<(), JournalError> {
    let folder = Path::new(FOLDER);
    // The crash was before the folder was there for good.
    if W::exists(folder) {
        found.get().damage = damage()?;
        if repairs {
            let repaired = repair_in::<W>(folder, || true)?;
            found.get().left = repaired.left;
            found.get().unmended = damage()?;
        }
    }
    let (mut writer, opened) = Writer::open_in(folder, options(1_536, None))?;
    // Opening cuts off what is torn.
    found.get().torn = damage()?.into_iter().filter(|one| one.ends_with("no sound record follows")).collect();
    let entries = read_all()?;
    // From here on the journal is what was found.
    *ledger.get() = Ledger {
        payloads: entries.iter().filter_map(|one| Some((one.first, one.payload.clone()?))).collect(),
        lost: entries
            .iter()
            .filter(|one| one.payload.is_none())
            .flat_map(|one| one.first..=one.last)
            .collect(),
        next: opened.next,
        flushed: opened.next,
        synced: 0,
        needed: entries.first().map_or(opened.next, |one| one.first),
        is_over: false,
    };
    {
        let mut found = found.get();
        (found.has_read, found.entries, found.next) = (true, entries, opened.next);
    }
    for length in [SMALL, LARGE, SMALL] {
        append(&mut writer, ledger, generation, length)?;
    }
    writer.sync()?;
    let next = writer.next_number();
    (ledger.get().flushed, ledger.get().synced) = (next, next);
    append(&mut writer, ledger, generation, SMALL)?;
    writer.flush()?;
    ledger.get().flushed = next + 1;
    drop(writer);
    ledger.get().is_over = true;
    Ok(())
}

fn run_options(seed: u64) -> RunOptions {
    let schedule = Schedule::default();
    RunOptions { seed, epoch_ns: 1_763_130_600_000_000_000, schedule, keeps_trace: false }
}

/// Starts a process on a host and waits for its end.
fn run_on(host: HostId, name: &str, panics: &Shared<Vec<String>>, work: impl FnOnce() + Send + 'static) {
    let process = start(host, name, work);
    while !has_ended(process) {
        W::sleep(Duration::from_millis(1));
    }
    panics.get().extend(panic_of(process));
}

/// The machine loses its power, and gets it again.
fn lose_power(host: HostId) {
    power_off(host);
    W::sleep(Duration::from_millis(1));
    power_on(host);
}

/// What is crashed, and when.
#[derive(Clone, Debug)]
struct Case {
    script: &'static Script,
    seed: u64,
    crash: Crash,
    /// Calls of the disk before the crash.
    calls: u64,
    choices: Option<PowerLoss>,
    /// Calls of the next process before it crashes too.
    second: Option<u64>,
    repairs: bool,
}

/// The result of a case.
struct Outcome {
    /// Whether the script came to its end before the crash.
    is_over: bool,
    /// Whether the next process did.
    is_second_over: bool,
    /// The choices at the first loss of power.
    choices: Option<PowerLoss>,
    /// Whether something was damaged.
    was_damaged: bool,
}

/// Plays a case, and checks what is found after each crash.
fn play_case(case: &Case) -> Outcome {
    let (ledger, panics) = (Shared::<Ledger>::default(), Shared::<Vec<String>>::default());
    let found = [Shared::<Found>::default(), Shared::default()];
    let (ledgers, choices) = (Shared::<Vec<Ledger>>::default(), Shared::<Option<PowerLoss>>::default());
    let ended = {
        let (case, panics, found) = (case.clone(), panics.clone(), found.clone());
        let (ledgers, choices) = (ledgers.clone(), choices.clone());
        run(&run_options(case.seed), move || {
            let is_machine = case.crash == Crash::Machine;
            let host = add_host("journal", [10, 0, 0, 2].into());
            set_power_loss(host, case.choices);
            crash_after_calls(host, Some((case.calls, case.crash)));
            let its = ledger.clone();
            run_on(host, "writer", &panics, move || play(case.script, &its));
            crash_after_calls(host, None);
            if is_machine && ledger.get().is_over {
                // At rest.
                lose_power(host);
            }
            power_on(host);
            *choices.get() = set_power_loss(host, None);
            for (at, found) in found.into_iter().enumerate() {
                let before = ledger.get().clone();
                ledgers.get().push(before);
                let second = case.second.filter(|_| at == 0);
                crash_after_calls(host, second.map(|calls| (calls, case.crash)));
                let its = ledger.clone();
                run_on(host, "next", &panics, move || {
                    go_on(case.repairs, at as u8 + 2, &found, &its).unwrap()
                });
                crash_after_calls(host, None);
                if is_machine && ledger.get().is_over {
                    lose_power(host);
                }
                power_on(host);
            }
        })
    };
    assert!(!ended.is_stuck && panics.get().is_empty(), "{case:?}: {:?}", panics.get());
    let mut is_second_over = true;
    for ((at, found), before) in found.iter().enumerate().zip(ledgers.get().iter()) {
        let found = found.get().clone();
        let what = || format!("{}, crash {at}: {case:?}: {before:?}: {found:?}", case.script.name);
        assert!(found.unmended.is_empty() && found.left == 0, "not mended: {}", what());
        assert!(found.torn.is_empty(), "not cut off: {}", what());
        if !found.has_read {
            // It crashed before.
            assert!(at == 0 && case.second.is_some(), "{}", what());
            is_second_over = false;
            continue;
        }
        let promised = if case.crash == Crash::Machine { before.synced } else { before.flushed };
        assert_eq!(check(before, promised, &found.entries, &what()), found.next, "{}", what());
    }
    let ledgers = ledgers.get();
    let was_damaged = found.iter().any(|found| !found.get().damage.is_empty());
    let choices = choices.get().take();
    Outcome {
        is_over: ledgers[0].is_over,
        is_second_over: is_second_over && ledgers[1].is_over,
        choices,
        was_damaged,
    }
}

/// The calls of the disk that each script makes with a seed.
fn calls_of(script: &'static Script, seed: u64) -> u64 {
    let calls = Shared::<u64>::default();
    let its = calls.clone();
    run(&run_options(seed), move || {
        let host = add_host("journal", [10, 0, 0, 2].into());
        run_on(host, "writer", &Shared::default(), move || play(script, &Shared::default()));
        *its.get() = disk_calls(host);
    });
    *calls.get()
}

/// Every script with these seeds, and a crash before each of its calls and behind the last.
fn each_crash(seeds: u64, mut with: impl FnMut(&'static Script, u64, u64) -> bool) -> u64 {
    let mut points = 0;
    for script in &SCRIPTS {
        // Of one thread alone, the seed decides nothing but how long calls take.
        let seeds = if script.leaves_waiting { seeds } else { 1 };
        for seed in 1..=seeds {
            let calls = calls_of(script, seed);
            assert!(calls > 10, "{calls}");
            for before in 0..=calls {
                let is_over = with(script, seed, before);
                assert_eq!(is_over, before == calls, "{} after {before} of {calls}", script.name);
                points += 1;
            }
        }
    }
    points
}

#[test]
fn the_machine_loses_its_power_at_each_call_with_each_outcome() {
    let (mut cases, mut damaged) = (0u64, 0u64);
    let points = each_crash(1, |script, seed, calls| {
        let (mut choices, mut share, mut is_over) = (Some(PowerLoss::default()), 0.0, true);
        while let Some(chosen) = choices {
            let chosen = Some(chosen);
            let case = Case {
                script,
                seed,
                crash: Crash::Machine,
                calls,
                choices: chosen,
                second: None,
                repairs: false,
            };
            let outcome = play_case(&case);
            damaged += u64::from(outcome.was_damaged);
            is_over &= outcome.is_over;
            play_case(&Case { repairs: true, ..case });
            cases += 2;
            let made = outcome.choices.unwrap();
            share += made.share();
            choices = made.following();
        }
        // Each combination was tried, and none twice.
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        is_over
    });
    println!("losses of power: {cases} cases at {points} calls, {damaged} with damage");
    assert!(cases > 2 * points && damaged > 0);
}

#[test]
fn the_process_is_killed_at_each_call() {
    let mut cases = 0;
    let points = each_crash(4, |script, seed, calls| {
        let repairs = seed % 2 == 0;
        let case = Case { script, seed, crash: Crash::Process, calls, choices: None, second: None, repairs };
        cases += 1;
        play_case(&case).is_over
    });
    println!("kills: {cases} cases");
    assert!(cases == points && cases > 0);
}

/// Kills a process after so many calls. The next one reads what is there, syncs and appends; then the machine loses its power. Whether the
/// first process came to its end.
fn play_kill_then_power_loss(script: &'static Script, seed: u64, calls: u64) -> bool {
    let (ledger, panics) = (Shared::<Ledger>::default(), Shared::<Vec<String>>::default());
    let (read, found) = (Shared::<Found>::default(), Shared::<Found>::default());
    let (is_over, before) = (Shared::<bool>::default(), Shared::<Ledger>::default());
    let ended = {
        let (panics, read, found) = (panics.clone(), read.clone(), found.clone());
        let (is_over, before) = (is_over.clone(), before.clone());
        run(&run_options(seed), move || {
            let host = add_host("journal", [10, 0, 0, 2].into());
            crash_after_calls(host, Some((calls, Crash::Process)));
            let its = ledger.clone();
            run_on(host, "writer", &panics, move || play(script, &its));
            crash_after_calls(host, None);
            power_on(host);
            *is_over.get() = ledger.get().is_over;
            for found in [read, found] {
                *before.get() = ledger.get().clone();
                let its = ledger.clone();
                run_on(host, "next", &panics, move || go_on(false, 2, &found, &its).unwrap());
                lose_power(host);
            }
        })
    };
    assert!(!ended.is_stuck && panics.get().is_empty(), "{:?}", panics.get());
    let (before, found) = (before.get().clone(), found.get().clone());
    let what = format!("{}, {calls} calls, seed {seed}: {before:?}: {read:?}: {found:?}", script.name);
    assert_eq!(check(&before, before.synced, &found.entries, &what), found.next, "{what}");
    *is_over.get()
}

#[test]
fn records_of_a_killed_process_survive_a_power_loss_behind_the_next_sync() {
    const LOSSES: u64 = 8;
    let points = each_crash(1, |script, seed, calls| {
        // Another seed for each loss of power: what is lost is drawn.
        let seeds = if script.leaves_waiting { seed..seed + 1 } else { seed..seed + LOSSES };
        // A process that comes to its end does so with each seed.
        seeds.map(|seed| play_kill_then_power_loss(script, seed, calls)).min().unwrap()
    });
    println!("a kill, then a loss of power: {points} points");
}

#[test]
fn the_next_process_crashes_too_at_each_call() {
    let (mut cases, mut expected) = (0u64, 0);
    for crash in [Crash::Machine, Crash::Process] {
        let points = each_crash(1, |script, seed, calls| {
            let mut is_over = true;
            for second in 0.. {
                // Another seed for each: what is lost is drawn.
                let seed_of = if script.leaves_waiting { seed } else { seed + second };
                let repairs = second % 2 == 1;
                let case = Case {
                    script,
                    seed: seed_of,
                    crash,
                    calls,
                    choices: None,
                    second: Some(11 * second + calls % 11),
                    repairs,
                };
                let outcome = play_case(&case);
                cases += 1;
                is_over &= outcome.is_over;
                if outcome.is_second_over {
                    break;
                }
            }
            is_over
        });
        expected += points;
    }
    println!("two crashes: {cases} cases at {expected} calls");
    assert!(cases > expected);
}

/// What a writer counts on a disk that fails, and what is there afterwards.
#[derive(Clone, Default, Debug)]
struct Failing {
    payloads: BTreeMap<u64, Vec<u8>>,
    /// Records that were refused.
    refused: u64,
    /// Records of a sync that failed.
    unsynced: BTreeSet<u64>,
    next: u64,
    counted_lost: u64,
    counted_losses: u64,
    counted_unconfirmed: u64,
    failures: u64,
    found: Vec<Entry>,
    /// The number of the next record, as the writer finds it.
    found_next: u64,
    /// Records that count others as lost, and how many they count.
    found_losses: (u64, u64),
    damage: Vec<String>,
}

/// Appends, flushes and syncs on a disk that fails, then on one that works again.
fn play_failing(host: HostId, faults: DiskFaults, failing: &Shared<Failing>) {
    let (mut writer, _) = Writer::open_in(Path::new(FOLDER), options(1_536, None)).unwrap();
    set_disk_faults(host, faults);
    let (mut time, mut unconfirmed, mut begun) = (0, 0, None);
    for _ in 0..40 {
        // The records before this one are those that a sync in this turn is of.
        let mut next = writer.next_number();
        time += 300_000_000;
        match below(5) {
            0 | 1 => {
                let length = if below(2) == 0 { SMALL } else { LARGE };
                let bytes = payload(1, next, length);
                match writer.append(&Record { kind: 1, time, payload: &bytes, ..Record::default() }) {
                    // A record that counts the lost ones may be before it.
                    Ok(number) => drop(failing.get().payloads.insert(number, payload(1, next, length))),
                    Err(_) => failing.get().refused += 1,
                }
            }
            2 => {
                let _tried_again = writer.flush();
            }
            3 => {
                let _counted = writer.sync();
            }
            // A sync that other calls overtake.
            _ => match begun.take() {
                None => begun = writer.begin_sync().ok().flatten().map(|io_task| (io_task, next)),
                Some((io_task, covered)) => {
                    let _counted = writer.finish(io_task.run());
                    // What was written into its segment meanwhile is counted too.
                    let segment = writer.place().segment;
                    next = if covered > segment { writer.next_number() } else { segment };
                }
            },
        }
        // A sync failed, of this call or inside it: it was of the last records of those.
        let more = writer.unconfirmed() - std::mem::replace(&mut unconfirmed, writer.unconfirmed());
        failing.get().unsynced.extend(next - more..next);
    }
    failing.get().failures = disk_failures(host);
    set_disk_faults(host, DiskFaults::default());
    writer.record_loss(time + 2_000_000_000).unwrap();
    let next = writer.next_number();
    writer.sync().unwrap();
    let mut failing = failing.get();
    let more = writer.unconfirmed() - unconfirmed;
    failing.unsynced.extend(next - more..next);
    (failing.next, failing.counted_lost, failing.counted_losses) = (next, writer.lost(), writer.losses());
    failing.counted_unconfirmed = writer.unconfirmed();
}

fn find_failing(failing: &Shared<Failing>) -> Result<(), JournalError> {
    failing.get().damage = damage()?;
    let (_writer, opened) = Writer::open_in(Path::new(FOLDER), options(1_536, None))?;
    (failing.get().found_next, failing.get().found) = (opened.next, read_all()?);
    let mut reader = JournalReader::<W>::open_in(Path::new(FOLDER))?;
    while let Some(record) = reader.next()? {
        if (record.kind, record.line) == (LOST, 0) {
            failing.get().found_losses.0 += 1;
            failing.get().found_losses.1 += record.extra;
        }
    }
    Ok(())
}

/// Plays a disk that fails; the machine loses its power at the end if `is_dark`.
fn play_faults(seed: u64, faults: DiskFaults, is_dark: bool) -> Failing {
    let (failing, panics) = (Shared::<Failing>::default(), Shared::<Vec<String>>::default());
    let (its, of_run) = (failing.clone(), panics.clone());
    run(&run_options(seed), move || {
        let host = add_host("journal", [10, 0, 0, 2].into());
        let writer = its.clone();
        run_on(host, "writer", &of_run, move || play_failing(host, faults, &writer));
        if is_dark {
            lose_power(host);
        }
        run_on(host, "reader", &of_run, move || find_failing(&its).unwrap());
    });
    assert_eq!(*panics.get(), Vec::<String>::new(), "seed {seed}, {faults:?}");
    let failing = failing.get().clone();
    let case = || format!("seed {seed}, dark {is_dark}, {faults:?}: {failing:?}");
    assert_eq!(failing.refused, failing.counted_lost, "{}", case());
    assert_eq!(failing.unsynced.len() as u64, failing.counted_unconfirmed, "{}", case());
    let mut present = BTreeSet::new();
    let mut next = 0;
    for entry in &failing.found {
        assert_eq!(entry.first, next, "{}", case());
        next = entry.last + 1;
        if let Some(payload) = &entry.payload {
            present.insert(entry.first);
            let is_own = failing.payloads.get(&entry.first).is_none_or(|expected| expected == payload);
            assert!(is_own, "{}: {}", entry.first, case());
        }
    }
    let missing: BTreeSet<u64> = (0..failing.next).filter(|number| !present.contains(number)).collect();
    if is_dark {
        assert!(missing.is_subset(&failing.unsynced), "{missing:?}: {}", case());
    } else {
        assert!(missing.is_empty() && failing.damage.is_empty(), "{missing:?}: {}", case());
        assert_eq!(failing.found_losses, (failing.counted_losses, failing.counted_lost), "{}", case());
    }
    // A reader and the writer find the same end.
    assert_eq!(next, failing.found_next, "{}", case());
    assert!(next <= failing.next, "{}", case());
    failing
}

fn bad_disk(failed_syncs_per_million: u32, failed_writes_per_million: u32, capacity: u64) -> DiskFaults {
    DiskFaults { failed_syncs_per_million, failed_writes_per_million, capacity, ..DiskFaults::default() }
}

#[test]
fn a_disk_that_fails_or_is_full_loses_what_the_writer_counts() {
    const SEEDS: u64 = 60;
    let (mut cases, mut lost, mut unconfirmed, mut failures) = (0, 0, 0, 0);
    for (failed_syncs_per_million, failed_writes_per_million, capacity) in [
        (250_000, 0, u64::MAX),
        (0, 250_000, u64::MAX),
        (0, 0, 4_000),
        (250_000, 100_000, u64::MAX),
        (100_000, 100_000, 8_000),
    ] {
        let faults = bad_disk(failed_syncs_per_million, failed_writes_per_million, capacity);
        for seed in 0..SEEDS {
            for is_dark in [false, true] {
                let failing = play_faults(seed, faults, is_dark);
                cases += 1;
                lost += failing.counted_lost;
                unconfirmed += failing.counted_unconfirmed;
                failures += failing.failures;
            }
        }
    }
    println!(
        "failing disks: {cases} cases, {failures} failures, {lost} records lost, {unconfirmed} unconfirmed"
    );
    assert_eq!(cases, 5 * SEEDS * 2);
    assert!(lost > 100 && unconfirmed > 100 && failures > 100);
}

/// The records of the checkpoints that are written, one after the other: one of them twice.
const CHECKPOINTS: [u64; 5] = [10, 20, 30, 30, 40];

/// An engine of channels whose state lies in several sectors.
fn engine_options() -> EngineOptions {
    let channel = |number: usize| LiveChannelOptions {
        name: format!("channel {number}"),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        arbiter: Default::default(),
        snapshot: None,
    };
    let capacity = Capacity { instruments: 8, orders: 64, levels: 64 };
    let books =
        BookOptions { feeds: vec![(Publisher::XNAS_ITCH, capacity)], capacity, ..BookOptions::default() };
    EngineOptions { channels: (0..3).map(channel).collect(), books, ..EngineOptions::default() }
}

/// A state as a file, but for what [`write_in`] completes.
fn state() -> Vec<u8> {
    let options = engine_options();
    let (engine, market) = (Engine::new(&options), MarketStage::new(&options, ()));
    let image = EngineImage::of(&engine).unwrap();
    let bytes = checkpoint::encode(image, &market.image().sorted(), Vec::new()).unwrap();
    assert!(bytes.len() > 1_024, "{}", bytes.len());
    bytes
}

/// What a writer of checkpoints has done.
#[derive(Clone, Default, Debug)]
struct Written {
    /// The last that is complete.
    complete: Option<u64>,
    /// The last that was begun.
    begun: Option<u64>,
    failed: u64,
    is_over: bool,
}

fn write_checkpoints(bytes: &[u8], written: &Shared<Written>) {
    let folder = Path::new(FOLDER);
    W::create_dir_all(folder).unwrap();
    for record in CHECKPOINTS {
        written.get().begun = Some(record);
        match write_in::<W>(folder, record, &mut bytes.to_vec()) {
            Ok(_) => written.get().complete = Some(record),
            Err(_) => written.get().failed += 1,
        }
        let needed = prune_in::<W>(folder, 0).unwrap();
        // The journal keeps what the older of the newest two continues from.
        assert!(needed <= record, "{needed}");
    }
    written.get().is_over = true;
}

/// The newest checkpoint, and what was refused.
fn newest() -> (Option<u64>, Vec<String>) {
    let opened = Opened { first: 0, next: 100, ..Opened::default() };
    let (restored, refused) = newest_in::<W>(Path::new(FOLDER), &opened, &engine_options());
    (restored.map(|restored| restored.record), refused)
}

/// What a start finds after a crash; then it writes one more.
#[derive(Clone, Default, Debug)]
struct Newest {
    first: (Option<u64>, Vec<String>),
    after: (Option<u64>, Vec<String>),
}

/// Writes checkpoints, with a crash after so many calls if there is to be one, and checks what is found.
fn play_checkpoints(
    bytes: &Arc<Vec<u8>>,
    seed: u64,
    crash: Option<(u64, Crash)>,
    choices: Option<PowerLoss>,
    faults: DiskFaults,
) -> (Written, Option<PowerLoss>, u64) {
    let (written, panics) = (Shared::<Written>::default(), Shared::<Vec<String>>::default());
    let (newest_found, made) = (Shared::<Newest>::default(), Shared::<(Option<PowerLoss>, u64)>::default());
    {
        let (written, panics, newest_found, made) =
            (written.clone(), panics.clone(), newest_found.clone(), made.clone());
        let bytes = Arc::clone(bytes);
        run(&run_options(seed), move || {
            let host = add_host("checkpoints", [10, 0, 0, 2].into());
            set_power_loss(host, choices);
            crash_after_calls(host, crash);
            set_disk_faults(host, faults);
            let (its, of_writer) = (written.clone(), Arc::clone(&bytes));
            run_on(host, "writer", &panics, move || write_checkpoints(&of_writer, &its));
            let calls = disk_calls(host);
            crash_after_calls(host, None);
            set_disk_faults(host, DiskFaults::default());
            if written.get().is_over && crash.is_none_or(|(_, crash)| crash == Crash::Machine) {
                lose_power(host);
            }
            power_on(host);
            *made.get() = (set_power_loss(host, None), calls);
            run_on(host, "next", &panics, move || {
                newest_found.get().first = newest();
                W::create_dir_all(Path::new(FOLDER)).unwrap();
                write_in::<W>(Path::new(FOLDER), 50, &mut bytes.to_vec()).unwrap();
                prune_in::<W>(Path::new(FOLDER), 0).unwrap();
                newest_found.get().after = newest();
            });
        });
    }
    let (written, found) = (written.get().clone(), newest_found.get().clone());
    let case = || format!("seed {seed}, {crash:?}, {faults:?}: {written:?}: {found:?}");
    assert_eq!(*panics.get(), Vec::<String>::new(), "{}", case());
    let (first, refused) = &found.first;
    assert!(*first == written.complete || first.is_some() && *first <= written.begun, "{}", case());
    assert!(*first >= written.complete, "{}", case());
    // A file under the name of a checkpoint is whole. Without any there may be no folder.
    assert!(refused.is_empty() || first.is_none() && written.complete.is_none(), "{}", case());
    assert_eq!(found.after, (Some(50), Vec::new()), "{}", case());
    let (choices, calls) = made.get().clone();
    (written, choices, calls)
}

#[test]
fn a_checkpoint_is_whole_whenever_the_machine_or_the_process_ends() {
    let (bytes, healthy) = (Arc::new(state()), DiskFaults::default());
    let (_, _, calls) = play_checkpoints(&bytes, 1, None, None, healthy);
    assert!(calls > 30, "{calls}");
    let mut cases = 0;
    for before in 0..=calls {
        let (mut choices, mut share) = (Some(PowerLoss::default()), 0.0);
        while let Some(chosen) = choices {
            let crash = Some((before, Crash::Machine));
            let (written, made, _) = play_checkpoints(&bytes, 1, crash, Some(chosen), healthy);
            assert_eq!(written.is_over, before == calls);
            let made = made.unwrap();
            share += made.share();
            choices = made.following();
            cases += 1;
        }
        assert!((share - 1.0_f64).abs() < 1e-9, "{share}");
        play_checkpoints(&bytes, 1, Some((before, Crash::Process)), None, healthy);
        cases += 1;
    }
    println!("checkpoints: {cases} cases at {calls} calls");
    assert!(cases > 2 * calls);
}

#[test]
fn a_checkpoint_that_the_disk_refuses_does_not_replace_one_that_is_whole() {
    const SEEDS: u64 = 40;
    let (bytes, mut cases, mut failed) = (Arc::new(state()), 0, 0);
    let length = bytes.len() as u64;
    for (failed_syncs_per_million, failed_writes_per_million, capacity) in [
        (300_000, 0, u64::MAX),
        (0, 300_000, u64::MAX),
        (200_000, 200_000, 3 * length - 1),
        (0, 0, 2 * length),
    ] {
        let faults = bad_disk(failed_syncs_per_million, failed_writes_per_million, capacity);
        for seed in 0..SEEDS {
            failed += play_checkpoints(&bytes, seed, None, None, faults).0.failed;
            cases += 1;
        }
    }
    println!("refused checkpoints: {cases} cases, {failed} refused");
    assert!(cases == 4 * SEEDS && failed > SEEDS);
}
