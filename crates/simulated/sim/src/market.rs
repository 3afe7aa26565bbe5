//! A run of a market: its machines, processes and faults, and the checks during the run and at its end.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapeworks_engine::history::{History, Read as HistoryRead};
use tapeworks_journal::JournalError;
use tapeworks_market::{BookOptions, Event, EventKind, InstrumentId};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::clients::distributor::{Dataset, Options};
use tapeworks_outputs::clients::server::{self, Server, ServerOptions};
use tapeworks_outputs::multicast::server::Multicast;
use tapeworks_plant::roll::Roll;
use tapeworks_plant::view::Watch;
use tapeworks_plant::{EventConsumer, Plant, PlantError, PlantFailure, SyncPolicy};
use tapeworks_ring::disruptor::PollError;
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_runtime::world::{ThreadHandle as _, World};
use tapeworks_time::Nanos;
use tapeworks_venues::Venues;

use crate::clients::{DATASET, KEY, client, read_all_again};
use crate::counters;
use crate::coverage::{Reached, notes};
use crate::day::{self, GRACE_NS};
use crate::group;
use crate::kernel::disk::{DiskFaults, files_of, flip_bits, lose_end, set_disk_faults};
use crate::kernel::network::{LinkFaults, Step, TcpFaults, set_link, set_refusing, set_tap, set_tcp};
use crate::kernel::{
    Ended, HostId, ProcessId, RunOptions, Simulated, add_host, below, hang, has_ended, kill, note, now_ns,
    panic_of, power_off, power_on, run, set_clock, set_sampler, start,
};
use crate::multicast::{self, receive};
use crate::oracle::{Oracle, Shown};
use crate::plan::{
    CLIENT_HOST, CLIENTS_PORT, DayPlan, Fault, MIDNIGHT_NS, MILLISECOND, PLANT_HOST, Plan, SECOND,
    VENUES_HOST, VenuePlan, What,
};
use crate::readiness::{self, Readiness};
use crate::recorder::{EVERY_NS, Recorded, Recorder};
use crate::sessions;
use crate::shared::{Shared, locked};
use crate::status::{Silence, wrong_counts};

/// Interval between checks of the plant's status, in ns.
const LOOK_NS: u64 = 100 * MILLISECOND;

/// How often the oracle tries to read the plant's published events from a disk whose reads sometimes fail.
const READ_TRIES: u32 = 20;

/// A page of a disk, in bytes.
const PAGE_BYTES: usize = 4_096;

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Time, steps, hash, and trace.
    pub ended: Ended,
    /// Violations found; empty if all is well.
    pub violations: Vec<String>,
    /// Counts of what happened and was checked.
    pub counts: Counts,
    /// The facts that the run has reached.
    pub reached: Reached,
}

/// Counts of what happened and was checked in a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Messages sent by the venues.
    pub messages: u64,
    /// Sessions begun by the venues.
    pub begun: u64,
    /// Sessions entered by the plant, again after each restart.
    pub entered: u64,
    /// Events published by the plant, including replays.
    pub events: u64,
    /// Good books compared.
    pub compared: u64,
    /// Books that were stale when checked.
    pub stale: u64,
    /// Starts of the plant.
    pub starts: u64,
    /// Starts of the plant that failed.
    pub refused: u64,
    /// Messages that the plant reported missing.
    pub missing: u64,
    /// Events published again with the same number after a restart.
    pub again: u64,
    /// Sessions of clients.
    pub sessions: u64,
    /// Records read by clients.
    pub records: u64,
}

/// Runs the plan.
pub fn simulate(plan: &Plan, keeps_trace: bool) -> Outcome {
    run_market(plan, keeps_trace, None).0
}

/// Runs the plan. Also returns the recording of the recorder, if there is one.
pub(crate) fn run_market(
    plan: &Plan,
    keeps_trace: bool,
    recorder: Option<Recorder>,
) -> (Outcome, Option<Recorded>) {
    let options =
        RunOptions { seed: plan.seed, epoch_ns: plan.epoch_ns(), schedule: plan.schedule, keeps_trace };
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        oracle: Mutex::new(Oracle::new(plan.plant().engine(), plan.has_true_clock())),
        status: Mutex::default(),
        stop_venues: AtomicBool::new(false),
        stop_plant: AtomicBool::new(false),
        stop_clients: AtomicBool::new(false),
        is_running: AtomicBool::new(false),
        has_replayed: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        starts: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        events: AtomicU64::new(0),
        of_orders: AtomicU64::new(0),
        venues: Mutex::default(),
        sessions: Mutex::default(),
        sent: Mutex::default(),
        receptions: Mutex::default(),
        reached: Mutex::default(),
        recorder,
    });
    let (its, of_run) = (Arc::clone(&shared), plan.clone());
    let ended = run(&options, move || Conductor::new(of_run, its).conduct());
    let (oracle, sessions) = (locked(&shared.oracle), locked(&shared.sessions));
    let mut violations = oracle.violations().to_vec();
    if ended.is_stuck {
        violations.push("nothing happens any more: a wake-up was lost".to_owned());
    }
    let counts = Counts {
        messages: (0..plan.venues.len()).map(|channel| oracle.sent(channel)).sum(),
        begun: (0..plan.venues.len()).map(|channel| oracle.begun(channel)).sum(),
        entered: oracle.entered,
        events: shared.events.load(Ordering::Relaxed),
        compared: oracle.compared,
        stale: oracle.stale,
        starts: shared.starts.load(Ordering::Relaxed),
        refused: shared.refused.load(Ordering::Relaxed),
        missing: oracle.missing,
        again: oracle.again,
        sessions: sessions.len() as u64,
        records: sessions.iter().map(|session| session.records.len() as u64).sum(),
    };
    let mut reached = std::mem::take(&mut *locked(&shared.reached));
    reached.faults(plan);
    let outcome = Outcome { ended, violations, counts, reached };
    (outcome, shared.recorder.as_ref().map(Recorder::so_far))
}

/// The process that runs the plan.
struct Conductor {
    plan: Plan,
    shared: Arc<Shared>,
    venues_host: HostId,
    plant_host: HostId,
    clients_host: HostId,
    venues: Option<ProcessId>,
    plant: Option<ProcessId>,
    /// The plan's faults, by simulation time.
    faults: Vec<Fault>,
    promise: Promise,
}

impl Conductor {
    fn new(plan: Plan, shared: Arc<Shared>) -> Self {
        let venues_host = add_host("venues", VENUES_HOST);
        let plant_host = add_host("plant", PLANT_HOST);
        let clients_host = add_host("clients", CLIENT_HOST);
        Self {
            faults: plan.timed_faults(),
            plan,
            shared,
            venues_host,
            plant_host,
            clients_host,
            venues: None,
            plant: None,
            promise: Promise::Nothing,
        }
    }

    fn conduct(mut self) {
        self.watch_lines();
        self.watch_time();
        let starts_ns = self.plan.with_night(self.plan.plant_starts_ns);
        if starts_ns == 0 {
            self.start_plant();
            // The plant listens before the first packet is sent; otherwise the oracle would have joined before the plant.
            Simulated::sleep(Duration::from_millis(100));
        }
        let venues = self.start_venues();
        self.venues = Some(venues);
        if starts_ns > 0 {
            Simulated::sleep(Duration::from_nanos(starts_ns));
            self.start_plant();
        }
        let mut clients: Vec<_> = self
            .plan
            .clients
            .iter()
            .cloned()
            .enumerate()
            .map(|(number, client_plan)| {
                let shared = Arc::clone(&self.shared);
                let has_history = self.plan.journal.is_some();
                start(self.clients_host, "client", move || client(number, &client_plan, has_history, &shared))
            })
            .collect();
        if let Some(multicast) = &self.plan.multicast {
            for number in 0..multicast.receivers {
                let (multicast, its) = (multicast.clone(), Arc::clone(&self.shared));
                clients.push(start(self.clients_host, "receiver", move || receive(number, &multicast, &its)));
            }
        }
        self.trouble();
        note(|| "no more faults".to_owned());
        if self.plant.is_none_or(has_ended) {
            self.start_plant();
        }
        self.wait_until_good();
        self.check_counts();
        self.shared.stop_venues.store(true, Ordering::Release);
        self.wait_for(venues, "the venues do not end");
        self.wait_until_recovered();
        self.check_counters();
        if self.plan.multicast.is_some() {
            // A receiver follows another session once the previous one has been silent for three seconds.
            Simulated::sleep(Duration::from_secs(5));
        }
        self.shared.stop_clients.store(true, Ordering::Release);
        clients.into_iter().for_each(|client| self.wait_for(client, "a client does not end"));
        self.compare_sessions();
        if let Some(day) = self.plan.day {
            self.end_day(day);
        }
        self.shared.stop_plant.store(true, Ordering::Release);
        if let Some(plant) = self.plant {
            self.wait_for(plant, "the plant does not end");
        }
    }

    /// Shows the oracle what is sent on each line A, what the plant takes from both lines, and answers that may be garbage.
    fn watch_lines(&self) {
        let lines: Vec<[SocketAddr; 2]> = (0..self.plan.venues.len())
            .map(|venue| [0, 1].map(|line| Plan::line(venue, line).into()))
            .collect();
        let shared = Arc::clone(&self.shared);
        let may_differ: Vec<bool> = self.plan.venues.iter().map(VenuePlan::may_answer_otherwise).collect();
        let others = may_differ.iter().enumerate().filter(|(_, differ)| **differ);
        others.for_each(|(channel, _)| locked(&shared.oracle).expect_other_answers(channel));
        let by_tcp = self.plan.venues.iter().enumerate().filter(|(_, venue)| venue.requests_by_tcp);
        by_tcp.for_each(|(channel, _)| locked(&shared.oracle).expect_guessed_seconds(channel));
        let epoch_ns = self.plan.epoch_ns();
        set_tap(Box::new(move |step, now_ns, from, to, payload| {
            if step == Step::Sent {
                shared.record(|recorder| recorder.sends(from, to));
            }
            if to == SocketAddr::V4(Plan::multicast_group()) {
                let began = shared.starts.load(Ordering::Relaxed);
                let wrong =
                    (step == Step::Sent).then(|| locked(&shared.sent).sends(began, payload)).flatten();
                wrong.into_iter().for_each(|wrong| locked(&shared.oracle).violation(wrong));
                return;
            }
            let answering = Plan::answers_of(from).or_else(|| Plan::answered_to(to));
            if let (Step::Sent, Some(channel)) = (step, answering) {
                if may_differ.get(channel) == Some(&true) {
                    locked(&shared.oracle).answers(channel, payload);
                }
                return;
            }
            let Some(channel) = lines.iter().position(|lines| lines.contains(&to)) else { return };
            let is_line_a = lines.get(channel).is_some_and(|lines| lines.first() == Some(&to));
            let mut oracle = locked(&shared.oracle);
            match step {
                Step::Sent if is_line_a => {
                    oracle.sends(channel, Nanos(epoch_ns + now_ns), Nanos(epoch_ns), payload)
                }
                Step::Sent => {}
                Step::Taken => oracle.takes(channel, Nanos(epoch_ns + now_ns), payload),
            }
        }));
    }

    /// Samples the state for the timeline at equal intervals.
    fn watch_time(&self) {
        if self.shared.recorder.is_some() {
            let shared = Arc::clone(&self.shared);
            set_sampler(EVERY_NS, Box::new(move |now_ns| shared.sample(now_ns)));
        }
    }

    fn start_venues(&self) -> ProcessId {
        let (config, shared) = (self.plan.venues(), Arc::clone(&self.shared));
        start(self.venues_host, "venues", move || match Venues::<Simulated>::start_in(config) {
            Ok(venues) => {
                while !shared.stop_venues.load(Ordering::Acquire) {
                    Simulated::sleep(Duration::from_millis(50));
                }
                match venues.stop() {
                    Ok(report) => *locked(&shared.venues) = Some(report),
                    Err(error) => shared.violation(format!("the venues failed: {error}")),
                }
            }
            Err(error) => shared.violation(format!("the venues do not start: {error}")),
        })
    }

    fn start_plant(&mut self) {
        self.shared.starts.fetch_add(1, Ordering::Relaxed);
        locked(&self.shared.oracle).plant_starts();
        self.shared.is_running.store(false, Ordering::Release);
        self.shared.has_replayed.store(false, Ordering::Release);
        *locked(&self.shared.status) = None;
        let (plan, shared) = (self.plan.clone(), Arc::clone(&self.shared));
        let has_bad_disk = self.faults.iter().any(|fault| {
            let lasts = fault.at_ns..fault.at_ns + fault.length_ns;
            matches!(fault.what, What::Disk(_)) && lasts.contains(&now_ns())
        });
        let promise = if plan.journal.is_some() { self.promise } else { Promise::Nothing };
        let process = start(self.plant_host, "plant", move || plant(&plan, promise, &shared));
        self.shared.record(|recorder| recorder.plant_starts(process, self.plant_host));
        self.plant = Some(process);
        self.promise = if has_bad_disk { Promise::Synced } else { Promise::All };
    }

    /// Starts and ends the faults at their times.
    fn trouble(&mut self) {
        /// The start or end of a fault.
        #[derive(Clone, Copy)]
        enum Change {
            Begins(Fault),
            Ends(Fault),
        }
        let mut changes: Vec<(u64, Change)> = Vec::new();
        for fault in &self.faults {
            changes.push((fault.at_ns, Change::Begins(*fault)));
            changes.push((fault.at_ns + fault.length_ns, Change::Ends(*fault)));
        }
        changes.sort_by_key(|(at_ns, _)| *at_ns);
        let mut active: Vec<Fault> = Vec::new();
        for (at_ns, change) in changes {
            Simulated::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
            match change {
                Change::Begins(fault) => {
                    active.push(fault);
                    note(|| format!("for {} ms: {:?}", fault.length_ns / MILLISECOND, fault.what));
                    self.begin(fault.what, at_ns + fault.length_ns);
                }
                Change::Ends(fault) => {
                    note(|| format!("over: {:?}", fault.what));
                    active.retain(|one| *one != fault);
                    self.calm();
                    for lasting in active.iter().filter(|lasting| lasting.what.is_condition()) {
                        self.begin(lasting.what, lasting.at_ns + lasting.length_ns);
                    }
                    let stops = |fault: &Fault| fault.what.stops_the_plant();
                    if stops(&fault) && !active.iter().any(stops) {
                        power_on(self.plant_host);
                        self.start_again();
                    } else if self.plan.ends_by_itself() && !active.iter().any(stops) {
                        self.start_again();
                    }
                }
            }
            self.look();
        }
        let end_ns = self.plan.with_night(self.plan.trouble_ns);
        Simulated::sleep(Duration::from_nanos(end_ns.saturating_sub(now_ns())));
    }

    fn begin(&mut self, what: What, until_ns: u64) {
        match what {
            What::Line { venue, line, faults } => set_link(Plan::line(venue, line).into(), faults),
            What::LinesOut { venue } => {
                let out = LinkFaults { out_until_ns: until_ns, ..LinkFaults::default() };
                (0..2).for_each(|line| set_link(Plan::line(venue, line).into(), out));
            }
            What::Requests { venue, faults } => {
                set_link(Plan::retransmission(venue), faults);
                set_link(Plan::answers_group(venue).into(), faults);
            }
            What::Group { of_requests: false, faults } => set_link(Plan::multicast_group().into(), faults),
            What::Group { of_requests: true, faults } => set_link(Plan::multicast_requests(), faults),
            What::Tcp(faults) => set_tcp(faults),
            What::Disk(faults) => {
                set_disk_faults(self.plant_host, faults);
                // The plant continues without what its disk rejects.
                self.promise = Promise::Synced;
            }
            What::Kill => self.plant.into_iter().for_each(kill),
            What::PowerOff => {
                power_off(self.plant_host);
                let syncs_always =
                    self.plan.journal.is_some_and(|journal| journal.sync == SyncPolicy::Always);
                // Data that a disk failed to sync may be missing from it, even if a plant started since has read the data from memory.
                let may_be_unsynced = self.faults.iter().any(|fault| {
                    let fails = |disk: DiskFaults| disk.failed_syncs_per_million > 0;
                    fault.at_ns <= now_ns() && matches!(fault.what, What::Disk(disk) if fails(disk))
                });
                if !syncs_always || may_be_unsynced {
                    self.promise = Promise::Synced;
                }
            }
            What::Clock(ahead_ns) => set_clock(self.plant_host, ahead_ns, 0),
            What::Drift(gains_ppm) => set_clock(self.plant_host, 0, gains_ppm.into()),
            What::Rot { bits, is_of_checkpoint } => {
                if let Some(path) = self.lose_power_and_more(is_of_checkpoint.then_some("snapshot")) {
                    note(|| format!("{bits} bits of {} turn", path.display()));
                    flip_bits(self.plant_host, &path, bits);
                }
            }
            What::LostPages { pages } => {
                if let Some(path) = self.lose_power_and_more(Some("journal")) {
                    note(|| format!("{pages} pages at the end of {} are lost", path.display()));
                    lose_end(self.plant_host, &path, pages as usize * PAGE_BYTES);
                }
            }
            What::SecondPlant => self.start_second_plant(),
            What::SnapshotsOut { venue } => set_refusing(Plan::snapshots(venue), true),
            What::Hang => self.plant.into_iter().for_each(|plant| hang(plant, until_ns)),
            What::VenuesHang => self.venues.into_iter().for_each(|venues| hang(venues, until_ns)),
        }
    }

    /// Cuts the power of the plant's machine, after which even synced data is not safe. Returns a file of the journal's
    /// folder: the newest with this extension, or a random one.
    fn lose_power_and_more(&mut self, ending: Option<&str>) -> Option<PathBuf> {
        power_off(self.plant_host);
        self.promise = Promise::Synced;
        // Cut the power before the bits are flipped.
        Simulated::sleep(Duration::from_nanos(1));
        let mut files = files_of(self.plant_host);
        files.retain(|(path, length)| {
            let is_it = ending.is_none_or(|ending| path.extension().is_some_and(|its| its == ending));
            is_it && path.starts_with("/journal") && *length > 0
        });
        let (path, _) = match ending {
            None => files.get(below(files.len() as u32) as usize),
            // The names sort by their numbers.
            Some(_) => files.iter().max(),
        }?;
        Some(path.clone())
    }

    /// Starts another plant on the same folder. It is refused while the first one runs.
    fn start_second_plant(&self) {
        if self.plant.is_none_or(has_ended) || !self.shared.is_running.load(Ordering::Acquire) {
            return;
        }
        let (mut options, shared, first) = (self.plan.plant(), Arc::clone(&self.shared), self.plant);
        options.venues.truncate(1);
        start(self.plant_host, "second plant", move || {
            match Plant::<Simulated>::start_in(options, &["check"], Watch::default()) {
                Err(PlantError::Journal(JournalError::Locked { .. })) => {}
                Err(error) => shared.violation(format!("a second plant is refused with: {error}")),
                // The first plant may have been killed meanwhile.
                Ok(_) if first.is_none_or(has_ended) => {}
                Ok(_) => shared.violation("two plants write one journal".to_owned()),
            }
        });
    }

    /// Ends the day: the plant writes the day's files, even if it is killed meanwhile.
    fn end_day(&mut self, day: DayPlan) {
        let due_ns = MIDNIGHT_NS + GRACE_NS - self.plan.epoch_ns();
        Simulated::sleep(Duration::from_nanos((due_ns + day.killed_after_ns).saturating_sub(now_ns())));
        if day.killed_after_ns > 0 {
            if day.loses_power {
                power_off(self.plant_host);
            } else {
                self.plant.into_iter().for_each(kill);
            }
            Simulated::sleep(Duration::from_secs(1));
            power_on(self.plant_host);
            // The day's journal may be moved away: the next one starts with event 0.
            self.shared.is_over.store(true, Ordering::Release);
            self.start_plant();
            let until_ns = now_ns() + 30 * SECOND;
            while !self.shared.is_running.load(Ordering::Acquire) && now_ns() < until_ns {
                Simulated::sleep(Duration::from_millis(50));
            }
        }
        let may_lose =
            day.loses_power && self.plan.journal.is_some_and(|journal| journal.sync != SyncPolicy::Always);
        let journal = (self.plan.may_lose_the_past(), may_lose);
        let (options, shared) = (self.plan.plant(), Arc::clone(&self.shared));
        let files = start(self.plant_host, "files", move || match day::check(&options, journal) {
            Ok(records) => {
                note(|| format!("the day's files have {records} records"));
                shared.reaches(if records > 0 { notes::FILED } else { notes::FILED_IN_PART });
            }
            Err(why) => {
                note(|| format!("{:#?}", shared.status().map(|status| status.roll)));
                shared.violation(why);
            }
        });
        self.wait_for(files, "the day's files cannot be compared");
    }

    /// Ends all lasting conditions.
    fn calm(&self) {
        for venue in 0..self.plan.venues.len() {
            (0..2).for_each(|line| set_link(Plan::line(venue, line).into(), LinkFaults::default()));
            set_link(Plan::retransmission(venue), LinkFaults::default());
            set_link(Plan::answers_group(venue).into(), LinkFaults::default());
            set_refusing(Plan::snapshots(venue), false);
        }
        set_link(Plan::multicast_group().into(), LinkFaults::default());
        set_link(Plan::multicast_requests(), LinkFaults::default());
        set_tcp(TcpFaults::default());
        set_disk_faults(self.plant_host, DiskFaults::default());
        set_clock(self.plant_host, 0, 0);
    }

    /// Restarts a plant that has ended by itself.
    fn start_again(&mut self) {
        if self.plant.is_none_or(has_ended) {
            if !self.plan.faults.iter().any(|fault| fault.what.stops_the_plant()) {
                self.shared.reaches(notes::ENDED);
            }
            self.start_plant();
        }
    }

    /// Checks that no thread of the plant has panicked.
    fn look(&self) {
        if let Some(status) = self.shared.status() {
            locked(&self.shared.reached).status(&status);
        }
        if let Some(panic) = self.plant.and_then(panic_of) {
            self.shared.violation(panic);
        }
    }

    /// Waits until everything has recovered after the faults have stopped, which must happen within a stated time.
    fn wait_until_good(&mut self) {
        // The status is a few tenths of a second old.
        Simulated::sleep(Duration::from_millis(500));
        let until_ns = now_ns() + self.plan.recovery_ns();
        let calm = self.shared.status().map_or(Nanos(0), |status| status.time);
        loop {
            self.look();
            let wrong = self.wrong(calm);
            if wrong.is_none() {
                return;
            }
            if now_ns() >= until_ns {
                let wrong = wrong.unwrap_or_default();
                let seconds = self.plan.recovery_ns() / SECOND;
                note(|| format!("{:#?}", self.shared.status()));
                self.shared.violation(format!("{seconds} s after the last fault: {wrong}"));
                return;
            }
            self.start_again();
            Simulated::sleep(Duration::from_millis(100));
        }
    }

    /// Waits, after the venues have ended, until missing messages have arrived or been reported.
    fn wait_until_recovered(&self) {
        Simulated::sleep(Duration::from_millis(500));
        // The plant switches to a new session after the old one has been silent for this long, counted from its last late copy.
        Simulated::sleep(Duration::from_nanos(self.plan.arbiter.silence_ns + self.plan.latest_copy_ns()));
        // No server answers any more. A plant that has finally changed its session gives up one gap after the other, and each gap has its own
        // deadline, counted from its first request. The plant waits for nothing more once its sequences have not moved for longer than that.
        let patience_ns = self.plan.recovery_ns() + self.plan.limits.gap_ns;
        let (mut reached, mut until_ns) = (Vec::new(), 0);
        while let Some(status) = self.shared.status()
            && status.channels.iter().any(|channel| channel.is_recovering || channel.is_joining)
        {
            let next: Vec<_> = status.channels.iter().map(|channel| channel.next).collect();
            if next != reached {
                (reached, until_ns) = (next, now_ns() + patience_ns);
            } else if now_ns() >= until_ns {
                return;
            }
            Simulated::sleep(Duration::from_millis(100));
        }
    }

    /// Checks the counters of a plant that has run since before the first packet.
    fn check_counters(&self) {
        let is_first = self.shared.starts.load(Ordering::Relaxed) == 1 && self.plan.plant_starts_ns == 0;
        if !is_first || self.plant.is_none_or(has_ended) {
            return;
        }
        // The status is a few tenths of a second old.
        Simulated::sleep(Duration::from_millis(500));
        let Some(status) = self.shared.status() else { return };
        let report = locked(&self.shared.venues);
        let wrong = counters::check(&self.plan, &status, &mut locked(&self.shared.oracle), report.as_ref());
        if !wrong.is_empty() {
            note(|| format!("{status:#?}"));
        }
        wrong.into_iter().for_each(|text| self.shared.violation(text));
    }

    /// Returns what is wrong according to the plant's status. A line that keeps losing packets opens new gaps, so only gaps
    /// from before the time `calm` must be closed.
    fn wrong(&self, calm: Nanos) -> Option<String> {
        if self.plant.is_none_or(has_ended) {
            return Some("the plant has ended".to_owned());
        }
        let Some(status) = self.shared.status() else { return Some("the plant has not started".to_owned()) };
        if status.channels.len() != self.plan.venues.len() {
            return Some("the plant has not reported".to_owned());
        }
        let of_channels = status.channels.iter().enumerate().find_map(|(number, channel)| {
            let name = &channel.name;
            let runs = locked(&self.shared.oracle).running_session(number).map(|session| session.to_string());
            if let Some(runs) = runs.filter(|runs| *runs != channel.session) {
                return Some(format!("{name} follows session {}, and {runs} runs", channel.session));
            }
            // Without a server that can deliver them, missed messages stay missing.
            let can_recover = self.can_recover(name);
            let wrong = match () {
                () if channel.is_joining => "is joining",
                () if channel.is_recovering && channel.recovering_since.is_none_or(|since| since <= calm) => {
                    "is recovering"
                }
                () if channel.is_silent => "is silent",
                () if channel.is_stale && can_recover && channel.snapshots.given_up == 0 => "has stale books",
                () => return None,
            };
            Some(format!("{name} {wrong}"))
        });
        let has_replayed = self.shared.has_replayed.load(Ordering::Acquire);
        let now = Nanos(self.plan.epoch_ns() + now_ns());
        of_channels.or_else(|| readiness::unmet_of_plant(&status.conditions(has_replayed, now)))
    }

    /// Checks that the plant's counters are possible.
    fn check_counts(&self) {
        let Some(status) = self.shared.status() else { return };
        for (venue, channel) in status.channels.iter().enumerate() {
            if let Some(wrong) = wrong_counts(&self.plan, venue, channel) {
                self.shared.violation(wrong);
            }
        }
    }

    fn can_recover(&self, name: &str) -> bool {
        self.plan.venues.iter().any(|venue| {
            // A venue that keeps sending unreadable messages makes books stale again and again.
            let is_sane = venue.nonsense_per_million == 0 && venue.answers.garbage_per_million == 0;
            is_sane && venue.has_snapshots && format!("{:?}", venue.kind) == *name
        })
    }

    /// Compares what clients have read. Where clients do not all read every order, and for the multicast output, a new client reads
    /// everything again for comparison.
    fn compare_sessions(&self) {
        let sessions = locked(&self.shared.sessions).split_off(0);
        let mut schemas: BTreeSet<String> = sessions
            .iter()
            .filter(|session| !session.client.is_plain())
            .flat_map(|session| session.client.schema_names())
            .collect();
        let multicast = self.plan.multicast.as_ref().filter(|_| self.plan.journal.is_some());
        schemas.extend(multicast.into_iter().flat_map(|multicast| multicast.schemas.clone()));
        // Records of these two schemas share a number.
        let (tbbo, others): (Vec<_>, Vec<_>) = schemas.into_iter().partition(|schema| schema == "tbbo");
        let mut again = Vec::new();
        let is_comparable = |schemas: &Vec<String>| !schemas.is_empty() && self.plan.keeps_the_past();
        for schemas in [others, tbbo].into_iter().filter(is_comparable) {
            let host = self.clients_host;
            let (its, read) = (Arc::clone(&self.shared), Arc::new(Mutex::new(None)));
            let into = Arc::clone(&read);
            let process = start(host, "client", move || *locked(&into) = read_all_again(&schemas, &its));
            let until_ns = now_ns() + 120 * SECOND;
            while !has_ended(process) && now_ns() < until_ns {
                Simulated::sleep(Duration::from_millis(50));
            }
            again.extend(locked(&read).take());
        }
        let last = self.shared.starts.load(Ordering::Relaxed);
        let has_orders = self.shared.of_orders.load(Ordering::Relaxed) > 0;
        let wrong = sessions::compare(&self.plan, &sessions, &again, last, has_orders);
        wrong.violations.into_iter().for_each(|text| self.shared.violation(text));
        wrong.reached.into_iter().for_each(|fact| self.shared.reaches(fact));
        locked(&self.shared.sessions).extend(sessions);
        let (sent, receptions) = (locked(&self.shared.sent), locked(&self.shared.receptions));
        let compared = group::compare(&self.plan, &sent, &receptions);
        compared.violations.into_iter().for_each(|text| self.shared.violation(text));
        compared.reached.into_iter().for_each(|fact| self.shared.reaches(fact));
        if self.plan.keeps_the_past()
            && let Some(multicast) = multicast
            && let Err(why) =
                group::compare_with_clients(multicast, self.plan.has_damage(), &sent, &again, last)
        {
            self.shared.violation(why);
        }
    }

    fn wait_for(&self, process: ProcessId, otherwise: &str) {
        let until_ns = now_ns() + 30 * SECOND;
        while !has_ended(process) {
            if now_ns() >= until_ns {
                self.shared.violation(otherwise.to_owned());
                return;
            }
            Simulated::sleep(Duration::from_millis(50));
        }
        self.look();
    }
}

/// Runs the plant's process.
fn plant(plan: &Plan, promise: Promise, shared: &Arc<Shared>) {
    let options = plan.plant();
    let history = options.history_in::<Simulated>();
    let listener = match server::bind_in::<Simulated>((PLANT_HOST, CLIENTS_PORT).into()) {
        Ok(listener) => listener,
        Err(error) => {
            shared.violation(format!("the plant cannot listen: {error}"));
            return;
        }
    };
    let sockets = match plan.multicast.as_ref().map(multicast::bind).transpose() {
        Ok(sockets) => sockets,
        Err(error) => {
            shared.violation(format!("the plant cannot send: {error}"));
            return;
        }
    };
    let books = options.books();
    let names = ["check", "clients", "multicast"];
    let names = names.get(..if sockets.is_some() { 3 } else { 2 }).unwrap_or_default();
    let started = Plant::<Simulated>::start_in(options, names, Watch::default());
    let (mut plant, mut readers) = match started {
        Ok(started) => started,
        Err(error) => {
            note(|| format!("the plant does not start: {error}"));
            shared.reaches(notes::START_REFUSED);
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    shared.is_running.store(true, Ordering::Release);
    *locked(&shared.status) = Some(plant.status_handle());
    let (first_event, first_time, live_from) = (plant.first_event(), plant.first_time(), plant.live_from());
    let checking = readers.take("check").filter(|_| !shared.is_over.load(Ordering::Acquire)).map(|reader| {
        let its = Arc::clone(shared);
        let begin = ((first_event, first_time), Arc::clone(&live_from), promise);
        let history = history.clone();
        Simulated::spawn("check", move || check(reader.consumer, begin, history.as_ref(), &its))
    });
    let begin = Begin {
        first_event,
        first_time,
        history: history.map(|history| Arc::new(history) as Arc<dyn History>),
        live_from,
        wake_up: None,
    };
    let group = plan.multicast.as_ref().zip(sockets).zip(readers.take("multicast"));
    let group = group.map(|((multicast, sockets), reader)| {
        let begin = Begin { wake_up: reader.wake_up, ..begin.clone() };
        multicast::serve(multicast, sockets, begin, &books, reader.consumer)
    });
    let clients = readers.take("clients").map(|reader| {
        let begin = Begin { wake_up: reader.wake_up, ..begin };
        serve_clients(plan, listener, begin, books, reader.consumer)
    });
    match plant.replayed() {
        Ok(replayed) => {
            note(|| format!("the plant has replayed {} inputs", replayed.inputs));
            shared.has_replayed.store(true, Ordering::Release);
        }
        Err(error) => {
            note(|| format!("the plant cannot replay its journal: {error}"));
            shared.reaches(notes::REPLAY_FAILED);
            shared.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
    let roll =
        plan.day.map(|_| Roll::<Simulated>::start_in(day::setting(), plan.plant(), plant.status_handle()));
    if let Some(Err(error)) = &roll {
        shared.violation(format!("the daily roll does not start: {error}"));
    }
    // Like the real service, the process ends when one of its parts has ended.
    let has_ended = || {
        clients.iter().flatten().any(Server::is_finished)
            || group.iter().flatten().any(Multicast::is_finished)
    };
    while !shared.stop_plant.load(Ordering::Acquire) && !plant.has_ended() && !has_ended() {
        Simulated::sleep(Duration::from_millis(50));
        if let Some(wrong) = clients.iter().flatten().find_map(|server| too_much_waits(plan, server)) {
            shared.violation(wrong);
        }
    }
    drop(roll);
    if let Err(error) = plant.stop()
        && !(shared.plan.ends_by_itself() && matches!(error, PlantFailure::Journal(_)))
    {
        shared.violation(format!("the plant failed: {error}"));
    }
    join("the clients' server", clients, Server::join, shared);
    join("the multicast", group, |group| group.join(), shared);
    if let Some(Ok(checking)) = checking {
        let _panic_is_noted = checking.join();
    }
}

/// Returns an error if more bytes are queued for a client than allowed. Snapshots are counted separately, so with a snapshot
/// any number of bytes may be queued.
fn too_much_waits(plan: &Plan, server: &Server<Simulated>) -> Option<String> {
    /// The records of one event, and a piece of a replay.
    const SLACK: usize = 1 << 20;
    if plan.clients.iter().any(|client| client.has_snapshot) {
        return None;
    }
    // Live records are queued while a replay is sent, and the limit applies to each.
    let most = 2 * plan.queue_bytes + SLACK;
    let clients = server.stats().clients;
    let too_much = clients.iter().find(|client| client.queued_bytes > most)?;
    let (bytes, limit) = (too_much.queued_bytes, plan.queue_bytes);
    Some(format!("{bytes} bytes wait for a client, and {limit} may"))
}

/// Waits for the end of an output, if there is one. An output fails with a plant that must journal and cannot, or if it
/// cannot read the journal.
fn join<O, E: Display>(
    name: &str,
    output: Option<Result<O, String>>,
    join: impl FnOnce(O) -> Result<(), E>,
    shared: &Shared,
) {
    match output.map(|started| started.map(join)) {
        Some(Err(error)) => shared.violation(format!("{name} does not start: {error}")),
        Some(Ok(Err(error))) if !shared.plan.ends_by_itself() => {
            shared.violation(format!("{name} failed: {error}"));
        }
        _ => {}
    }
}

fn serve_clients(
    plan: &Plan,
    listener: <Simulated as World>::Listener,
    begin: Begin<Simulated>,
    books: BookOptions,
    consumer: EventConsumer<Simulated>,
) -> Result<Server<Simulated>, String> {
    let key = Key::new("sim", KEY).map_err(|error| error.to_string())?;
    let options = Options {
        keys: Keys::new(vec![key]),
        datasets: vec![Dataset { name: DATASET.to_owned(), publishers: Vec::new() }],
        books,
        queue_bytes: plan.queue_bytes,
        history: begin.history.clone(),
        ..Options::default()
    };
    let address = (PLANT_HOST, CLIENTS_PORT).into();
    let options = ServerOptions { begin, ..ServerOptions::new_in(address, options) };
    server::start_on(listener, options, consumer).map_err(|error| error.to_string())
}

/// The part of the earlier published events that a plant's journal must still have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    /// Everything: only the process died, or every record was synced.
    All,
    /// What the disk had.
    Synced,
    /// Nothing: there is no journal.
    Nothing,
}

/// Reads the plant's ring beside its other readers, and compares its events.
fn check(
    mut consumer: EventConsumer<Simulated>,
    ((first_event, first_time), live_from, promise): ((u64, Nanos), Arc<AtomicU64>, Promise),
    history: Option<&impl History>,
    shared: &Arc<Shared>,
) {
    if promise == Promise::Nothing {
        locked(&shared.oracle).forget(0);
    }
    let mut shown = match (first_event, history) {
        (1.., Some(history)) => {
            let read = || past(history, (first_event, first_time), promise, shared);
            let tries = if shared.plan.has_unreadable_disk() { READ_TRIES } else { 1 };
            match (1..tries).fold(read(), |tried, _| tried.or_else(|_| read())) {
                Ok(shown) => shown,
                Err(why) => {
                    shared
                        .violation(format!("the plant begins at event {first_event}, and its history {why}"));
                    return;
                }
            }
        }
        _ => locked(&shared.oracle).shown(promise == Promise::Synced),
    };
    let (mut batch, mut is_live): (Vec<Event>, bool) = (Vec::new(), false);
    let mut next = first_event;
    let mut silence = Silence::can_follow(&shared.plan).then(Silence::default);
    let (mut readiness, mut looked_ns) = (Readiness::of(&shared.plan), 0);
    loop {
        batch.clear();
        let polled = consumer.poll(|event, _, _| batch.push(*event));
        // The plant names the first live event before it publishes it. Events of the journal come before it.
        let live = live_from.load(Ordering::Acquire);
        let of_past = if is_live { 0 } else { live.saturating_sub(next) };
        let (past, present) = batch.split_at(usize::try_from(of_past).unwrap_or(usize::MAX).min(batch.len()));
        if !past.is_empty() {
            locked(&shared.oracle).shows(&mut shown, past);
            next += past.len() as u64;
        }
        if !is_live && next >= live {
            is_live = true;
            let mut oracle = locked(&shared.oracle);
            let published = oracle.published();
            // On another day the plant may start another journal, with event 0.
            let is_after_night =
                shared.plan.night.is_some() && shared.plan.epoch_ns() + now_ns() >= MIDNIGHT_NS;
            let is_new_journal = is_after_night && live == 0;
            if next < published && promise == Promise::All && !is_new_journal {
                oracle.violation(format!("{published} events were published, and the journal has {next}"));
            }
            // Lost events may be replaced by others.
            oracle.forget(next);
            oracle.goes_live(&mut shown);
        }
        if !present.is_empty() {
            locked(&shared.oracle).shows(&mut shown, present);
            shared.record(|recorder| recorder.publishes(now_ns(), present));
            next += present.len() as u64;
        }
        match polled {
            Ok(0) => {
                locked(&shared.oracle).compare(&mut shown);
                if now_ns() >= looked_ns + LOOK_NS
                    && let Some(status) = shared.status()
                {
                    looked_ns = now_ns();
                    let silent = silence
                        .as_mut()
                        .and_then(|silence| silence.look(&status, looked_ns, shared.plan.arbiter.silence_ns));
                    let late = readiness.as_mut().and_then(|readiness| {
                        let has_replayed = shared.has_replayed.load(Ordering::Acquire);
                        let conditions = status.conditions(has_replayed, Simulated::time_of_day());
                        let is_current = readiness::is_current(&conditions);
                        readiness.look(now_ns(), is_current, &shown, &locked(&shared.oracle))
                    });
                    [silent, late].into_iter().flatten().for_each(|wrong| shared.violation(wrong));
                }
                Simulated::sleep(Duration::from_millis(1));
            }
            Ok(count) => {
                shared.events.fetch_add(count as u64, Ordering::Relaxed);
                let is_of_order = |event: &&Event| {
                    matches!(event.kind, EventKind::Add | EventKind::Execute | EventKind::Trade)
                        && event.order_id > 0
                        && event.size > 0
                        && event.instrument < InstrumentId::UNKNOWN
                };
                let of_orders = batch.iter().filter(is_of_order).count() as u64;
                shared.of_orders.fetch_add(of_orders, Ordering::Relaxed);
            }
            Err(PollError::Closed) => break,
            Err(PollError::Failed(_)) => return,
        }
    }
    if readiness.is_some_and(|readiness| readiness.has_compared()) {
        shared.reaches(notes::CURRENT);
    }
    let mut oracle = locked(&shared.oracle);
    oracle.compare(&mut shown);
    if shared.stop_plant.load(Ordering::Acquire) {
        oracle.complete(&shown);
    }
}

/// Returns what the plant has shown before its event `first_event`, whose predecessors were received up to `first_time`.
fn past(
    history: &impl History,
    (first_event, first_time): (u64, Nanos),
    promise: Promise,
    shared: &Shared,
) -> Result<Shown, String> {
    let mut reader =
        history.open(Nanos(first_time.0.saturating_add(1))).map_err(|error| error.to_string())?;
    let (mut shown, mut next) = (locked(&shared.oracle).shown(promise != Promise::All), 0);
    while next < first_event {
        match reader.read().map_err(|error| error.to_string())? {
            // The plant may have started with an older checkpoint: one that its disk failed to read then can be read now.
            HistoryRead::Start { start, .. } if next == 0 && start.first_event() > first_event => {
                reader = history.open(start.time()).map_err(|error| error.to_string())?;
            }
            HistoryRead::Start { start, .. } => {
                next = start.first_event();
                shown = locked(&shared.oracle).shown_from(*start, promise != Promise::All);
            }
            HistoryRead::Events(events) => {
                let most = usize::try_from(first_event - next).unwrap_or(usize::MAX);
                let events = events.get(..most).unwrap_or(events);
                next += events.len() as u64;
                locked(&shared.oracle).shows(&mut shown, events);
            }
            HistoryRead::CaughtUp => return Err(format!("ends at event {next}")),
        }
    }
    if next == first_event { Ok(shown) } else { Err(format!("goes on at event {next}")) }
}
