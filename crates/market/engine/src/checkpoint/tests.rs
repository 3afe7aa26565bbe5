//! Tests of checkpoints: writing, restoring, selection, damage; and exports of a journal that has lost its beginning.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dbn::Record as _;
use dbn::decode::dbn::RecordDecoder;
use proptest::prelude::*;
use tapeworks_disk::System;
use tapeworks_feed::live::Input;
use tapeworks_journal::{JournalOptions, Opened, segment_starts};
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_market::{Line, Publisher};
use tapeworks_store::Schema;
use tapeworks_time::Nanos;
use tempfile::tempdir;

use super::folder::{list, move_away, newest, oldest, prune, write};
use super::*;
use crate::days::{self, earlier_journals};
use crate::export::{ExportOptions, export};
use crate::history::{History, Read};
use crate::tests::{SCHEMAS, encoded, keep, options, records, run, session, stage, without_heartbeats};
use crate::{JournalHistory, JournalReplayed, replay};

fn opened(next: u64) -> Opened {
    Opened { first: 0, next, ..Opened::default() }
}

const SMALL: JournalOptions = JournalOptions { segment_bytes: 8_192, keep_bytes: Some(30_000) };
const LARGE: JournalOptions = JournalOptions { segment_bytes: 1 << 20, keep_bytes: None };

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn a_restored_engine_continues_like_one_that_never_stopped(
        at in any::<prop::sample::Index>(),
        // Lost packets, so that some packets wait and books are stale.
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        // A venue is under self-help between the times of two packets.
        times in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut packets = session();
        let mut times = times.map(|time| packets[time.index(packets.len())].1);
        times.sort_unstable();
        let self_help = vec![SelfHelp { venue: Publisher::XNAS_ITCH, from: times[0], until: Some(times[1]) }];
        let options = EngineOptions { self_help, ..options() };
        lost.iter().for_each(|lost| drop(packets.remove(lost.index(packets.len()))));
        let (before, after) = packets.split_at(at.index(packets.len()));
        let (mut engine, mut market) = (Engine::new(&options), stage());
        let events = run(&mut engine, &mut market, before);
        let bytes = encoded(&engine, &market);
        let folder = tempdir().unwrap();
        fs::create_dir_all(folder.path()).unwrap();
        let record = before.len() as u64;
        write(folder.path(), record, &mut { bytes }).unwrap();
        let (restored, refused) = newest(folder.path(), &opened(record + 5), &options);
        prop_assert!(refused.is_empty(), "{refused:?}");
        let restored = restored.unwrap();
        prop_assert_eq!(restored.record, record);
        let (mut other, mut twin) = (restored.engine, stage());
        twin.restore(restored.market);
        prop_assert_eq!(other.counters(), engine.counters());
        let rest = run(&mut engine, &mut market, after);
        prop_assert_eq!(&run(&mut other, &mut twin, after), &rest);
        let declared: Vec<_> = events.iter().chain(&rest).filter_map(Event::self_help).collect();
        prop_assert_eq!(&declared[..], if times[0] < times[1] { &[true, false][..] } else { &[] });
        prop_assert_eq!(other.counters(), engine.counters());
        prop_assert_eq!(other.feed().save(), engine.feed().save());
        let (one, same) = (market.image().sorted(), twin.image().sorted());
        prop_assert_eq!(one.books, same.books);
        prop_assert_eq!(one.nbbo, same.nbbo);
        prop_assert_eq!(one.symbols, same.symbols);
    }
}

#[test]
fn a_checkpoint_is_read_and_made_without_a_plant() {
    let packets = without_heartbeats();
    let (mut state, mut events) = (Checkpoint::new(&options()), Vec::new());
    let input = |(channel, received, payload): &(u16, Nanos, Vec<u8>), state: &mut Checkpoint, to: &mut _| {
        state.input(&Input::Packet { channel: *channel, line: Line::A, received: *received, payload }, to);
    };
    packets[..900].iter().for_each(|packet| input(packet, &mut state, &mut events));
    // A plant writes the same file.
    let (mut engine, mut market) = (Engine::new(&options()), stage());
    assert_eq!(run(&mut engine, &mut market, &packets[..900]), events);
    let mut file = encoded(&engine, &market);
    seal(&mut file, 900);
    assert!(state.write().unwrap() == file);
    let mut twin = Checkpoint::read(&file, &options()).unwrap();
    assert_eq!((twin.record(), twin.next_event()), (900, events.len() as u64));
    let (mut one, mut same) = (Vec::new(), Vec::new());
    packets[900..].iter().for_each(|packet| input(packet, &mut state, &mut one));
    packets[900..].iter().for_each(|packet| input(packet, &mut twin, &mut same));
    assert!(!one.is_empty() && one == same && state.write() == twin.write());
    let (venue, from) = (Publisher::XNAS_ITCH, Nanos(0));
    let others = EngineOptions { self_help: vec![SelfHelp { venue, from, until: None }], ..options() };
    assert!(Checkpoint::read(&file, &others).is_err(), "other times of self-help give other events");
    file[100] ^= 1;
    let refused = Checkpoint::read(&file, &options()).unwrap_err();
    assert_eq!(refused.to_string(), "checkpoint: it is damaged");
}

/// Exports a journal. Returns each file's records by name and feed, and the time from which the files are complete.
fn files(journal: &Path, schemas: &[Schema]) -> (Option<Nanos>, Files) {
    let out = tempdir().unwrap();
    let wanted = ExportOptions {
        folder: out.path().to_path_buf(),
        schemas: schemas.to_vec(),
        ending: "dbn".to_owned(),
        overwrite: false,
        date: None,
    };
    let exported = export(&options(), journal, &wanted, |_| true).unwrap();
    let name = |path: &Path| path.strip_prefix(&exported.folder).unwrap().to_owned();
    let files = exported.files.iter().map(|file| (name(&file.path), records(&file.path))).collect();
    (exported.from, files)
}

type Files = BTreeMap<PathBuf, BTreeMap<u16, Vec<Vec<u8>>>>;

#[test]
fn the_files_of_a_journal_without_its_beginning_are_the_end_of_the_days() {
    let (folder, all) = (tempdir().unwrap(), tempdir().unwrap());
    keep(folder.path(), SMALL, 12);
    keep(all.path(), LARGE, 0);
    let first = segment_starts(folder.path()).unwrap()[0];
    let oldest = oldest::<System>(folder.path(), first, &options()).unwrap().market.time();
    let widths = [60 * Nanos::SECOND, Nanos::SECOND, 1];
    let exact = [Schema::Mbo, Schema::Mbp10, Schema::Trades, Schema::Cmbp1, Schema::Imbalance];
    for (schemas, width) in SCHEMAS.into_iter().chain([&exact[..]]).zip(widths) {
        let (from, part) = files(folder.path(), schemas);
        let (whole_from, whole) = files(all.path(), schemas);
        let from = from.unwrap();
        assert_eq!((whole_from, from.0), (None, (oldest.0 / width + 1) * width));
        let mut expected = Files::new();
        for (path, by_feed) in whole {
            // The record of an interval is stamped with the end of the interval.
            let is_quote = path.file_stem().unwrap().to_str().unwrap().contains("bbo-");
            let is_due = |bytes: &Vec<u8>| {
                let mut decoder = RecordDecoder::new(&bytes[..]);
                let time = decoder.decode_ref().unwrap().unwrap().raw_index_ts();
                if is_quote { time > from.0 } else { time >= from.0 }
            };
            for (feed, mut all) in by_feed {
                all.retain(is_due);
                if !all.is_empty() {
                    expected.entry(path.clone()).or_default().insert(feed, all);
                }
            }
        }
        let counts = |files: &Files| -> Vec<(PathBuf, usize)> {
            files.iter().map(|(path, all)| (path.clone(), all.values().map(Vec::len).sum())).collect()
        };
        let (found, wanted) = (counts(&part), counts(&expected));
        assert!(part == expected, "from {from:?}: {found:?}, not {wanted:?}");
        assert!(found.iter().map(|(_, records)| records).sum::<usize>() > 40, "{found:?}");
    }
    // A new day begins: the checkpoints move with the journal, and the exported files are the same.
    let before = files(folder.path(), &exact);
    drop(
        days::open(folder.path(), SMALL, Nanos(without_heartbeats()[0].1.0 + 3 * 86_400 * Nanos::SECOND))
            .unwrap(),
    );
    let days = earlier_journals(folder.path()).unwrap();
    assert!(list::<System>(folder.path()).unwrap().is_empty());
    assert!(files(&days[0].folder, &exact) == before);
    // Without them there is no state to start from.
    move_away::<System>(&days[0].folder, 0, folder.path()).unwrap();
    let to = tempdir().unwrap();
    let out = ExportOptions {
        folder: to.path().to_path_buf(),
        schemas: exact.to_vec(),
        ending: "dbn".to_owned(),
        overwrite: false,
        date: None,
    };
    let refused = export(&options(), &days[0].folder, &out, |_| true).unwrap_err().to_string();
    assert!(refused.contains("records were removed to make room, and no checkpoint"), "{refused}");
}

#[test]
fn an_unusable_checkpoint_is_reported_and_the_previous_one_is_used() {
    let packets = session();
    let (mut engine, mut market) = (Engine::new(&options()), stage());
    let folder = tempdir().unwrap();
    fs::create_dir_all(folder.path()).unwrap();
    // A segment that begins after the first of them.
    fs::write(folder.path().join(format!("{:020}.journal", 150)), b"").unwrap();
    for (round, piece) in packets.chunks(packets.len() / 3).take(3).enumerate() {
        run(&mut engine, &mut market, piece);
        let record = 100 * (round as u64 + 1);
        write(folder.path(), record, &mut encoded(&engine, &market)).unwrap();
    }
    let kept = |start| {
        assert_eq!(prune(folder.path(), start), Ok(200));
        let all = list::<System>(folder.path()).unwrap();
        all.into_iter().map(|(record, _)| record).collect::<Vec<_>>()
    };
    // The run started from 110: the others stay as long as the journal has their segment.
    fs::write(folder.path().join(format!("{:020}.snapshot", 110)), b"").unwrap();
    let segment = folder.path().join(format!("{:020}.journal", 100));
    fs::write(&segment, b"").unwrap();
    assert_eq!(kept(110), [100, 110, 200, 300]);
    assert_eq!(kept(0), [100, 200, 300], "the first in a segment");
    fs::remove_file(segment).unwrap();
    assert_eq!(kept(110), [200, 300]);
    let all = list::<System>(folder.path()).unwrap();
    let [(200, first), (300, last)] = &all[..] else { panic!("the newest two are kept: {all:?}") };
    let used = |next, options: &EngineOptions| {
        let (restored, refused) = newest(folder.path(), &opened(next), options);
        (restored.map(|restored| restored.record), refused.len())
    };
    assert_eq!(used(1_000, &options()), (Some(300), 0));
    // The journal lost all records before it.
    let (restored, refused) = newest(folder.path(), &Opened { first: 400, ..opened(500) }, &options());
    assert!(restored.is_none() && refused.len() == 2);
    // Another configuration.
    let mut others = options();
    others.channels[0].arbiter.reorder_window_ns += 1;
    assert_eq!(used(1_000, &others), (None, 2));
    // Damage at any byte, and truncation at any byte.
    let sound = fs::read(last).unwrap();
    for at in (0..sound.len()).step_by(sound.len() / 15) {
        if (12..16).contains(&at) {
            continue;
        }
        let mut damaged = sound.clone();
        damaged[at] ^= 16;
        fs::write(last, damaged).unwrap();
        assert_eq!(used(1_000, &options()), (Some(200), 1), "byte {at}");
        fs::write(last, &sound[..at]).unwrap();
        assert_eq!(used(1_000, &options()), (Some(200), 1), "up to byte {at}");
    }
    // The journal is damaged and ends before the checkpoint, which alone has those records.
    fs::write(last, sound).unwrap();
    assert_eq!(used(250, &options()), (Some(300), 0));
    // An unusable checkpoint is renamed and kept.
    assert_eq!(used(250, &others), (None, 2));
    assert!(!last.exists() && last.with_extension("snapshot.unused").exists());
    fs::write(last, b"").unwrap();
    fs::write(first, b"TAPESNP1").unwrap();
    assert_eq!(used(1_000, &options()), (None, 2));
    let to = tempdir().unwrap();
    fs::create_dir_all(to.path()).unwrap();
    move_away::<System>(folder.path(), 250, to.path()).unwrap();
    assert!(list::<System>(folder.path()).unwrap().is_empty());
    let moved: Vec<u64> = list::<System>(to.path()).unwrap().into_iter().map(|(record, _)| record).collect();
    assert_eq!(moved, [300], "those of records that are there");
    move_away::<System>(to.path(), 301, folder.path()).unwrap();
    assert!(
        list::<System>(folder.path()).unwrap().is_empty() && list::<System>(to.path()).unwrap().is_empty()
    );
}

/// Starts up like a plant, until it would listen. Returns the books, the replay summary, and the checkpoint's record.
fn start_of(folder: &Path) -> (MarketStage, JournalReplayed, Option<u64>) {
    let mut opened = days::open(folder, LARGE, without_heartbeats().last().unwrap().1).unwrap();
    let (mut engine, mut market) = (Engine::new(&options()), stage());
    let (restored, _) = newest(folder, &opened.opened, &options());
    let from = restored.as_ref().map(|restored| restored.record);
    if let Some(restored) = restored {
        opened.go_on_from(&restored).unwrap();
        engine = restored.engine;
        market.restore(restored.market);
    }
    let replayed = replay(&mut engine, folder, from, |events| {
        market.apply(events);
        events.clear();
        Ok(())
    });
    (market, replayed.unwrap(), from)
}

#[test]
fn inputs_lost_before_a_segment_without_records_are_found_by_a_start_and_by_a_clients_replay() {
    let folder = tempdir().unwrap();
    let segment = |first: u64| folder.path().join(format!("{first:020}.journal"));
    keep(folder.path(), JournalOptions { segment_bytes: 4_096, keep_bytes: None }, 6);
    let starts = segment_starts(folder.path()).unwrap();
    let (newest, older) = {
        let all = list::<System>(folder.path()).unwrap();
        let at = all.partition_point(|(record, _)| record < starts.last().unwrap());
        (all[at - 1].0, all[at..].to_vec())
    };
    older.into_iter().for_each(|(_, path)| fs::remove_file(path).unwrap());
    // The checkpoint's segment is empty on disk, and of the next one only the name exists.
    let behind = starts.partition_point(|start| *start <= newest);
    fs::write(segment(starts[behind - 1]), vec![0; 4_096]).unwrap();
    starts[behind..].iter().for_each(|start| fs::remove_file(segment(*start)).unwrap());
    let history = JournalHistory::new(options(), folder.path());
    let refused = history.open(Nanos(u64::MAX)).err().unwrap().to_string();
    let of_end = format!("the journal ends before record {}, and its checkpoint", starts[behind - 1]);
    assert!(refused.contains(&of_end), "{refused}");
    fs::write(segment(starts[behind]), b"").unwrap();

    let (_, replayed, from) = start_of(folder.path());
    assert_eq!((replayed.inputs, replayed.damaged, from), (0, starts[behind] - newest, Some(newest)));
    assert!(replayed.events > 0, "the lost inputs may have changed any book");
    let mut reader = history.open(Nanos(u64::MAX)).unwrap();
    assert!(matches!(reader.read().unwrap(), Read::Start { .. }));
    while !matches!(reader.read().unwrap(), Read::CaughtUp) {}
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_plant_starts_from_damaged_files_and_loses_nothing_behind_its_newest_sound_checkpoint(
        segment_bytes in prop::sample::select(vec![4_096u64, 1 << 20]),
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1usize..3_000, any::<u8>()),
            1..4,
        ),
    ) {
        let folder = tempdir().unwrap();
        keep(folder.path(), JournalOptions { segment_bytes, keep_bytes: None }, 6);
        let (straight, _, _) = start_of(folder.path());
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some());
        files.sort();
        for (file, at, length, byte) in damage {
            let path = file.get(&files);
            let mut bytes = fs::read(path).unwrap();
            let from = at.index(bytes.len());
            let until = (from + length).min(bytes.len());
            bytes[from..until].fill(byte);
            fs::write(path, bytes).unwrap();
        }
        let (market, replayed, from) = start_of(folder.path());
        let left = tapeworks_journal::verify(folder.path(), || true).unwrap();
        if replayed.damaged == 0 && left.numbers.is_some_and(|(_, next)| next >= without_heartbeats().len() as u64) {
            // All damage is before the checkpoint.
            prop_assert!(market.image().sorted() == straight.image().sorted());
        }
        prop_assert!(from.is_some() || left.records > 0 || left.segments == 0);
        // A client's replay reaches the end, or waits for a checkpoint after the loss.
        if let Ok(mut reader) = JournalHistory::new(options(), folder.path()).open(Nanos(0)) {
            while !matches!(reader.read().unwrap(), Read::CaughtUp) {}
        }
    }
}
