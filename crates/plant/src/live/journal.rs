//! The plant's journal: every input, before anybody has seen what came of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::civil::Date;
use tapeworks_feed::clock;
use tapeworks_journal::{
    Chore, Finished, JournalError, JournalOptions, JournalReader, JournalWriter, LOST, NUMBERED, Opened,
    is_journal_file, last_time, segment_starts, sync_folder,
};
use tapeworks_market::{Event, Nanos};
use tapeworks_ring::disruptor::PollError;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::Wait;

use super::checkpoint::{self, Agreement, Restored};
use super::engine::Engine;
use super::records::{Queued, input_of, record_of};
use super::status::Status;
use super::{EventConsumer, PlantFailure, PlantOptions};
use crate::clients::history::{History, HistoryError, HistoryReader, Read, Start};
use tapeworks_runtime::now;
use tapeworks_runtime::waiting::{Bell, Idle, Waiting};

/// When what was written is safe from the machine's death. From the process's death it always is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncPolicy {
    /// When the system thinks fit.
    Never,
    /// Once in so long.
    Every(Duration),
    /// Before anybody sees what came of it.
    Always,
}

/// What a disk that fails or is full means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFailing {
    /// The plant goes on and counts what was not journaled.
    #[default]
    GoOn,
    /// The plant ends with the error.
    Stop,
}

/// How the journal is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSetting {
    /// The folder. Journals of earlier days are moved into folders in it, named by the dates (in New York) of their last records.
    pub folder: PathBuf,
    /// The segments.
    pub options: JournalOptions,
    /// When it is synced.
    pub sync: SyncPolicy,
    /// What a failing disk means.
    pub when_failing: WhenFailing,
    /// Inputs that may wait to be written.
    pub queue: usize,
    /// How often the state is written, so that a start need not replay the whole day; never unless given.
    pub snapshot_every: Option<Duration>,
}

impl JournalSetting {
    /// A journal in `folder`, synced once a second.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            options: JournalOptions::default(),
            sync: SyncPolicy::Every(Duration::from_secs(1)),
            when_failing: WhenFailing::default(),
            queue: 16_384,
            snapshot_every: None,
        }
    }
}

/// What the journal is doing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct JournalStatus {
    /// The number of the next record.
    pub next: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Inputs that could not be written.
    pub lost: u64,
    /// Records that were written and that the disk failed to sync: if the machine dies, they may be missing.
    pub in_doubt: u64,
    /// Segments that are too many and could not be removed.
    pub failed_removals: u64,
    /// Segments removed because there were too many.
    pub removed_segments: u64,
    /// Records that were found damaged or missing at the start.
    pub damaged: u64,
    /// Bytes of a torn record that were cut off at the start, and kept in a file.
    pub torn_bytes: u64,
    /// What was to be written last could not be.
    pub is_failing: bool,
    /// What went wrong last.
    pub error: Option<String>,
}

/// What the journal held at the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalReplayed {
    /// Inputs.
    pub inputs: u64,
    /// Events that they gave.
    pub events: u64,
    /// Bytes of a torn record at the end, which were cut off. A copy lies beside the segment.
    pub torn_bytes: u64,
    /// Inputs that could not be written at their time, as the journal says.
    pub lost: u64,
    /// Records that were found damaged or missing. What they changed is not known.
    pub damaged: u64,
    /// How long it took, in ns.
    pub took_ns: u64,
}

/// An opened journal.
#[derive(Debug)]
pub(super) struct OpenJournal {
    writer: JournalWriter,
    pub(super) opened: Opened,
}

impl OpenJournal {
    /// Goes on from a state that stands for more records than the journal has: those that are not there are lost, and the
    /// journal says so.
    pub(super) fn go_on_from(&mut self, restored: &Restored) -> Result<(), JournalError> {
        let missing = restored.record.saturating_sub(self.opened.next);
        self.writer.lose_until(restored.record, restored.market.time().0)?;
        self.opened.damaged += missing;
        self.opened.next += missing;
        Ok(())
    }
}

/// The folder in which an earlier day's journal is collected before it gets the name of its day.
const MOVING: &str = "moving";

/// Opens the journal. One whose last record is of an earlier day is moved away first.
pub(super) fn open(setting: &JournalSetting) -> Result<OpenJournal, JournalError> {
    open_at(setting, now())
}

pub(super) fn open_at(setting: &JournalSetting, now: Nanos) -> Result<OpenJournal, JournalError> {
    let moving = setting.folder.join(MOVING);
    let (writer, opened) = JournalWriter::open(&setting.folder, setting.options)?;
    // Begun, and not ended: the process was killed.
    let mut is_old = moving.exists();
    if opened.next > opened.first
        && let Some(last) = last_time(&setting.folder)?
        && let (Some(day), Some(today)) = (clock::date_at(Nanos(last)), clock::date_at(now))
    {
        is_old |= day < today;
    }
    if !is_old {
        return Ok(OpenJournal { writer, opened });
    }
    drop(writer);
    move_away(&setting.folder, &moving)?;
    let (writer, opened) = JournalWriter::open(&setting.folder, setting.options)?;
    Ok(OpenJournal { writer, opened })
}

/// Moves the journal in `folder` into a folder in it, named by the day of its last record. It is collected in `moving`, so that
/// a move that was interrupted is ended at the next start.
fn move_away(folder: &Path, moving: &Path) -> Result<(), JournalError> {
    let failed = |path: &Path, what| {
        let path = path.to_owned();
        move |source| JournalError::Io { path, what, source }
    };
    let sync = |folder: &Path| sync_folder(folder).map_err(failed(folder, "cannot be synced"));
    fs::create_dir_all(moving).map_err(failed(moving, "cannot be created"))?;
    let entries = fs::read_dir(folder).map_err(failed(folder, "cannot list the journal"))?;
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if is_journal_file(&path)
            && let Some(name) = path.file_name()
        {
            fs::rename(&path, moving.join(name)).map_err(failed(&path, "cannot be moved away"))?;
        }
    }
    let first = segment_starts(moving)?.first().copied().unwrap_or_default();
    checkpoint::move_away(folder, first, moving)
        .map_err(failed(folder, "old snapshots cannot be moved away"))?;
    let Some(day) = last_time(moving)?.and_then(|last| clock::date_at(Nanos(last))) else {
        // Nothing was in it.
        return fs::remove_dir_all(moving).map_err(failed(moving, "cannot be removed"));
    };
    let mut names = (1..).map(|part| folder.join(name_of_day(day, part)));
    // What is there of the same day already, as when the clock was wrong, stays.
    let to = names.find(|to| !to.exists()).unwrap_or_else(|| folder.join(day.to_string()));
    sync(moving)?;
    fs::rename(moving, &to).map_err(failed(&to, "cannot get its name"))?;
    sync(folder)
}

/// The name of the folder of a day, or of one more of the same day.
pub(super) fn name_of_day(day: Date, part: u32) -> String {
    if part > 1 { format!("{day}.{part}") } else { day.to_string() }
}

/// The day that a folder is named by, and which of that day it is.
pub(super) fn day_of_name(name: &str) -> Option<(Date, u32)> {
    let (day, part) = match name.split_once('.') {
        Some((day, part)) => (day, part.parse().ok().filter(|part| *part > 1)?),
        None => (name, 1),
    };
    Some((day.parse().ok()?, part))
}

/// The thread that keeps the journal. It stands in the ring before the clients' servers, and lets an event pass when the input
/// that it came of is written.
pub(super) struct Keeper {
    writer: JournalWriter,
    sync: SyncPolicy,
    when_failing: WhenFailing,
    inputs: spsc::Consumer<Queued, Waiting>,
    events: EventConsumer,
    disk: Disk,
    snapshots: Arc<Agreement>,
    status: Arc<Mutex<Status>>,
    told: Instant,
    synced: Instant,
    opened: Opened,
    is_failing: bool,
    error: Option<String>,
    idle: Wait,
    bell: Arc<Bell>,
}

/// Something that waits for the disk, so that the journal's thread need not.
enum Errand {
    Chore(Chore),
    /// A state, and what is to be done before it is written: the disk has the records that it stands for.
    State(Option<Chore>, checkpoint::Job),
}

/// The thread that waits for the disk. It ends when the journal's thread has.
pub(super) struct DiskWaiter {
    errands: Receiver<Errand>,
    finished: Sender<Finished>,
    states: Sender<checkpoint::Job>,
    status: Arc<Mutex<Status>>,
}

/// The journal's end of the ways to that thread and back.
pub(super) struct Disk {
    errands: Sender<Errand>,
    finished: Receiver<Finished>,
    /// Errands of which it is not known yet what came of them.
    under_way: usize,
}

impl Disk {
    fn send(&mut self, errand: Errand) {
        let has_chore = matches!(&errand, Errand::Chore(_) | Errand::State(Some(_), _));
        // The thread ends behind the journal's.
        if self.errands.send(errand).is_ok() {
            self.under_way += usize::from(has_chore);
        }
    }

    /// What has come of one, if it is known.
    fn finished(&mut self) -> Option<Finished> {
        let finished = self.finished.try_recv().ok()?;
        self.under_way -= 1;
        Some(finished)
    }

    /// What comes of one that is under way, however long it takes.
    fn wait(&mut self) -> Option<Finished> {
        if self.under_way == 0 {
            return None;
        }
        let finished = self.finished.recv().ok()?;
        self.under_way -= 1;
        Some(finished)
    }
}

impl DiskWaiter {
    /// The thread's work, and the way to it. States go on to `states` when the disk has the records that they stand for.
    pub(super) fn new(states: Sender<checkpoint::Job>, status: Arc<Mutex<Status>>) -> (Self, Disk) {
        let ((errands, errands_out), (finished_in, finished)) = (channel(), channel());
        let waiter = Self { errands: errands_out, finished: finished_in, states, status };
        (waiter, Disk { errands, finished, under_way: 0 })
    }

    pub(super) fn run(self) {
        for errand in self.errands {
            let (chore, state) = match errand {
                Errand::Chore(chore) => (Some(chore), None),
                Errand::State(chore, state) => (chore, Some(state)),
            };
            let finished = chore.map(Chore::run);
            let error = finished.as_ref().and_then(Finished::error).map(ToString::to_string);
            match (state, error) {
                (Some(_), Some(error)) => checkpoint::tell(&self.status, Err(error)),
                // Who writes them lives as long as this end of the way to it.
                (Some(state), None) => drop(self.states.send(state)),
                (None, _) => {}
            }
            // When it is gone it needs to know nothing.
            finished.into_iter().for_each(|finished| drop(self.finished.send(finished)));
        }
    }
}

/// How often the status is told.
const TELL: Duration = Duration::from_millis(200);

/// Inputs written before the ring is looked at again.
const MOST_AT_ONCE: usize = 4_096;

impl Keeper {
    pub(super) fn new(
        setting: &JournalSetting,
        journal: OpenJournal,
        inputs: spsc::Consumer<Queued, Waiting>,
        events: EventConsumer,
        (disk, snapshots): (Disk, Arc<Agreement>),
        (idle, bell): (Wait, Arc<Bell>),
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let mut writer = journal.writer;
        writer.leave_removals();
        Self {
            writer,
            sync: setting.sync,
            when_failing: setting.when_failing,
            inputs,
            events,
            disk,
            snapshots,
            status,
            told: Instant::now(),
            synced: Instant::now(),
            opened: journal.opened,
            is_failing: false,
            error: None,
            idle,
            bell,
        }
    }

    pub(super) fn run(mut self) -> Result<(), PlantFailure> {
        self.bell.is_for_this_thread();
        loop {
            // An input is queued before its events are published: those that are published now came of inputs that are
            // queued now.
            let published = self.events.lag();
            let mut failure = None;
            let mut left = self.inputs.len();
            let has_written = left > 0;
            let mut state = None;
            let Self { inputs, writer, snapshots, .. } = &mut self;
            writer.need_from(snapshots.needed_from());
            let (holes, in_doubt) = (writer.holes(), writer.in_doubt());
            while left > 0 {
                let taken = inputs.pop_batch(left.min(MOST_AT_ONCE), |queued| {
                    let owned = match queued {
                        Queued::Input(owned) => owned,
                        Queued::State(taken) => {
                            state = Some((writer.next_number(), taken));
                            return;
                        }
                    };
                    let mut scratch = [0; 8];
                    if let Err(error) = writer.append(&record_of(&owned.input(), &mut scratch)) {
                        failure = Some(error);
                    }
                });
                if taken == 0 {
                    break;
                }
                left = left.saturating_sub(taken);
            }
            if self.writer.holes() > holes {
                // The state that is taken from now on lies behind the record that tells of them.
                self.snapshots.add_holes(self.writer.holes() - holes);
            }
            if let Err(error) = self.write() {
                failure = Some(error);
            }
            if failure.is_some() {
                self.is_failing = true;
            } else if has_written {
                self.is_failing = false;
            }
            if let Some(removal) = self.writer.begin_removal() {
                self.disk.send(Errand::Chore(removal));
            }
            while let Some(finished) = self.disk.finished() {
                if let Err(error) = self.writer.finish(finished) {
                    failure = Some(error);
                }
            }
            if let Some(error) = self.writer.take_trouble() {
                if self.writer.in_doubt() > in_doubt {
                    failure.get_or_insert(error);
                } else {
                    // It costs room, and no record.
                    self.error = Some(error.to_string());
                }
            }
            if let Some(error) = failure {
                if self.when_failing == WhenFailing::Stop {
                    self.error = Some(error.to_string());
                    self.tell();
                    // Nobody sees what is not in the journal.
                    self.events.fail();
                    return Err(error.into());
                }
                self.error = Some(error.to_string());
            }
            if let Some(state) = state {
                self.hand_on(state);
            }
            let passed = self.events.pass_over(published);
            if self.told.elapsed() >= TELL {
                self.tell();
            }
            if passed == 0 && self.inputs.is_empty() && self.wait() {
                break;
            }
        }
        let written = self.end();
        self.tell();
        match written {
            Err(error) if self.when_failing == WhenFailing::Stop => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Everything is written: waits until the disk has it.
    fn end(&mut self) -> Result<(), JournalError> {
        let mut written = self.writer.tell_lost(now().0);
        while let Some(finished) = self.disk.wait() {
            written = written.and(self.writer.finish(finished));
        }
        written.and(self.writer.sync())
    }

    /// Hands a state on to who writes it, behind the records that it stands for.
    fn hand_on(&mut self, state: checkpoint::Job) {
        match self.writer.begin_sync() {
            Ok(chore) => self.disk.send(Errand::State(chore, state)),
            Err(error) => checkpoint::tell(&self.status, Err(error.to_string())),
        }
    }

    /// Writes what was appended, and has it synced when that is due: before anybody sees what came of it where that is the policy, else
    /// while it goes on.
    fn write(&mut self) -> Result<(), JournalError> {
        match self.sync {
            SyncPolicy::Always => self.writer.sync(),
            SyncPolicy::Every(interval) if self.synced.elapsed() >= interval && self.disk.under_way == 0 => {
                self.synced = Instant::now();
                if let Some(chore) = self.writer.begin_sync()? {
                    self.disk.send(Errand::Chore(chore));
                }
                Ok(())
            }
            _ => self.writer.flush(),
        }
    }

    /// Waits until there is something to do. `true` when nothing will come any more.
    fn wait(&mut self) -> bool {
        if self.inputs.is_closed() && self.inputs.is_empty() {
            // Ingest is gone; so is its end of the ring, or will be in a moment.
            return matches!(self.events.poll(|_, _, _| {}), Err(PollError::Closed | PollError::Failed(_)));
        }
        // Also there for what is only queued: an input without events.
        let mut idle = Idle::new(self.idle);
        while self.inputs.is_empty() && self.events.lag() == 0 && !self.inputs.is_closed() {
            if self.told.elapsed() >= TELL {
                break;
            }
            if self.idle != Wait::Park {
                idle.rest();
                continue;
            }
            self.bell.arm();
            if self.inputs.is_empty() && self.events.lag() == 0 && !self.inputs.is_closed() {
                std::thread::park_timeout(TELL);
            }
            self.bell.disarm();
        }
        false
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        let status = JournalStatus {
            next: self.writer.next_number(),
            written_bytes: self.writer.written_bytes(),
            lost: self.writer.lost(),
            in_doubt: self.writer.in_doubt(),
            failed_removals: self.writer.failed_removals(),
            removed_segments: self.writer.removed_segments(),
            damaged: self.opened.damaged,
            torn_bytes: self.opened.torn_bytes,
            is_failing: self.is_failing,
            error: self.error.clone(),
        };
        self.status.lock().unwrap_or_else(PoisonError::into_inner).journal = Some(status);
    }
}

/// The events of the journal, made once more: the same, with the same numbers. A reader begins with the newest state snapshot that is
/// early enough, or else with the first record; behind inputs that the journal lost it goes on from the next snapshot.
#[derive(Clone, Debug)]
pub struct JournalHistory {
    options: Arc<PlantOptions>,
    folder: PathBuf,
}

impl JournalHistory {
    /// The history that the journal of a plant with these options holds; `None` if it keeps none.
    pub fn new(options: &PlantOptions) -> Option<Self> {
        let folder = options.journal.as_ref()?.folder.clone();
        Some(Self { options: Arc::new(options.clone()), folder })
    }
}

impl JournalHistory {
    fn events(&self, reader: JournalReader, engine: Engine, start: Option<Start>) -> JournalEvents {
        JournalEvents { history: self.clone(), reader, engine, start, hole: None }
    }
}

impl History for JournalHistory {
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        let failed = |error: JournalError| HistoryError::unreadable(error.to_string());
        let whole = JournalReader::open(&self.folder).map_err(failed)?;
        let first = whole.next_number();
        if let Some(Restored { record, engine, market }) =
            checkpoint::before(&self.folder, first, from, &self.options)
        {
            let reader = JournalReader::at_number(&self.folder, record).map_err(failed)?;
            let removed =
                || HistoryError::unreadable(format!("the journal's record {record} was removed just now"));
            let reader = reader.ok_or_else(removed)?;
            return Ok(Box::new(self.events(reader, engine, Some(market))));
        }
        if first > 0 {
            return Err(match checkpoint::oldest(&self.folder, first, &self.options) {
                Some(oldest) => {
                    HistoryError::NotKept { earliest: Nanos(oldest.market.time().0.saturating_add(1)) }
                }
                None => HistoryError::unreadable(format!(
                    "the journal's first {first} records were removed to make room"
                )),
            });
        }
        let engine = Engine::new(self.options.live_feed());
        Ok(Box::new(self.events(whole, engine, None)))
    }
}

/// Inputs made events at one read.
const INPUTS_AT_ONCE: usize = 512;

struct JournalEvents {
    history: JournalHistory,
    reader: JournalReader,
    engine: Engine,
    start: Option<Start>,
    /// The record that says that inputs were lost, and its time, as long as the state behind them is not there.
    hole: Option<(u64, Nanos)>,
}

impl JournalEvents {
    /// Goes on from the state behind a record that says that inputs were lost. What the engine made of them is not known, so their
    /// events are missing; from the state on everything is as it was. `false` when there is no such state yet.
    fn pass(&mut self, (record, time): (u64, Nanos), into: &mut Vec<Event>) -> Result<bool, HistoryError> {
        let JournalHistory { options, folder } = &self.history;
        let Some(behind) = checkpoint::behind(folder, record, options) else { return Ok(false) };
        let reader = JournalReader::at_number(folder, behind.record)
            .map_err(|error| HistoryError::unreadable(error.to_string()))?
            .filter(|_| behind.engine.counters().events >= self.engine.counters().events);
        let Some(reader) = reader else {
            return Err(HistoryError::unreadable(format!(
                "the journal lost inputs at its record {record}, and the state snapshot behind it is of record {}, which does \
                 not follow",
                behind.record
            )));
        };
        self.engine.tell_missed(&behind.engine, time, into);
        (self.reader, self.engine, self.start, self.hole) =
            (reader, behind.engine, Some(behind.market), None);
        Ok(true)
    }
}

impl HistoryReader for JournalEvents {
    fn start(&mut self) -> Option<Start> {
        self.start.take()
    }

    fn read(&mut self, into: &mut Vec<Event>) -> Result<Read, HistoryError> {
        if let Some(hole) = self.hole {
            let is_passed = self.pass(hole, into)?;
            return Ok(if is_passed { Read::Events } else { Read::CaughtUp });
        }
        for _ in 0..INPUTS_AT_ONCE {
            match self.reader.next() {
                Ok(Some(record)) if record.kind == LOST => {
                    self.hole = Some((record.number, Nanos(record.time)));
                    return Ok(Read::Events);
                }
                Ok(Some(record)) => {
                    if let Some(input) = input_of(&record) {
                        self.engine.input(&input, into);
                    }
                }
                Ok(None) => return Ok(Read::CaughtUp),
                Err(error) => return Err(HistoryError::unreadable(error.to_string())),
            }
        }
        // Nobody sends what a replay would ask for.
        while self.engine.take_ask().is_some() {}
        Ok(Read::Events)
    }
}

/// Reads the journal into the engine, and hands the events on in pieces.
pub(super) fn replay(
    engine: &mut Engine,
    folder: &Path,
    opened: &Opened,
    from: Option<u64>,
    mut publish: impl FnMut(&mut Vec<Event>) -> Result<(), JournalError>,
) -> Result<JournalReplayed, JournalError> {
    let started = Instant::now();
    let before = *engine.counters();
    let mut reader = match from {
        Some(record) => JournalReader::from_number(folder, record)?,
        None => JournalReader::open(folder)?,
    };
    let mut events = Vec::new();
    let mut lost = 0;
    while let Some(record) = reader.next()? {
        if record.kind == LOST {
            lost += if record.line == NUMBERED { 0 } else { record.extra };
            engine.inputs_lost(Nanos(record.time), &mut events);
        }
        if let Some(input) = input_of(&record) {
            engine.input(&input, &mut events);
        }
        if events.len() >= 1_024 {
            publish(&mut events)?;
        }
    }
    publish(&mut events)?;
    while engine.take_ask().is_some() {}
    Ok(JournalReplayed {
        inputs: engine.counters().inputs - before.inputs,
        events: engine.counters().events - before.events,
        torn_bytes: opened.torn_bytes,
        lost,
        damaged: reader.damaged(),
        took_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use tapeworks_journal::Record;

    use super::super::export::tests::Temporary;
    use super::*;

    const DAY: u64 = 86_400 * Nanos::SECOND;

    /// Noon in New York of 2026-01-05, a Monday, and so many days later.
    fn noon(days: u64) -> Nanos {
        Nanos(1_767_632_400 * Nanos::SECOND + days * DAY)
    }

    fn setting(folder: &Temporary) -> JournalSetting {
        let mut setting = JournalSetting::new(&folder.0);
        setting.options.segment_bytes = 1_024;
        setting
    }

    /// Opens the journal at this time, and appends so many records of it. Returns what was there.
    fn keep(setting: &JournalSetting, time: Nanos, records: u64) -> Opened {
        let OpenJournal { mut writer, opened } = open_at(setting, time).unwrap();
        for _ in 0..records {
            writer
                .append(&Record { kind: 5, time: time.0, payload: &[1; 100], ..Record::default() })
                .unwrap();
        }
        writer.sync().unwrap();
        opened
    }

    fn records(folder: &Path) -> u64 {
        tapeworks_journal::verify(folder, || true).unwrap().records
    }

    #[test]
    fn a_journal_goes_on_over_days_until_a_start_finds_its_last_record_of_an_earlier_one() {
        let folder = Temporary::new();
        let setting = setting(&folder);
        keep(&setting, noon(0), 20);
        // The plant runs into the next day.
        let mut running = open_at(&setting, noon(0)).unwrap();
        for days in [0, 1] {
            let record = Record { kind: 5, time: noon(days).0, ..Record::default() };
            running.writer.append(&record).unwrap();
        }
        drop(running);
        // It is started again on that day: nothing is lost, and numbers go on.
        assert_eq!(keep(&setting, noon(1), 1).next, 22);
        assert!(!folder.0.join("2026-01-05").exists());
        // And on the next one.
        assert_eq!(keep(&setting, noon(2), 3).next, 0);
        assert_eq!((records(&folder.0), records(&folder.0.join("2026-01-06"))), (3, 23));
        // A clock that is wrong, before the journal's day: it stays.
        assert_eq!(keep(&setting, noon(1), 0).next, 3);
        assert_eq!(records(&folder.0), 3);
    }

    #[test]
    fn a_second_journal_of_a_day_leaves_the_first_alone() {
        let folder = Temporary::new();
        let setting = setting(&folder);
        for part in 1..4u64 {
            keep(&setting, noon(0), part);
            keep(&setting, noon(1), 0);
        }
        let of = |name: &str| records(&folder.0.join(name));
        assert_eq!((of("2026-01-05"), of("2026-01-05.2"), of("2026-01-05.3")), (1, 2, 3));
        assert_eq!(records(&folder.0), 0);
    }

    #[test]
    fn a_move_that_was_interrupted_is_ended_by_the_next_start() {
        let folder = Temporary::new();
        let setting = setting(&folder);
        keep(&setting, noon(0), 40);
        let starts = segment_starts(&folder.0).unwrap();
        assert!(starts.len() > 3);
        let moving = folder.0.join(MOVING);
        fs::create_dir_all(&moving).unwrap();
        for start in &starts[..2] {
            let name = format!("{start:020}.journal");
            fs::rename(folder.0.join(&name), moving.join(&name)).unwrap();
        }
        assert_eq!(keep(&setting, noon(1), 0), Opened::default());
        assert!(!moving.exists());
        let verified = tapeworks_journal::verify(&folder.0.join("2026-01-05"), || true).unwrap();
        assert_eq!((verified.records, verified.damage.len()), (40, 0));
        // As one that had not begun.
        fs::create_dir_all(&moving).unwrap();
        keep(&setting, noon(1), 1);
        assert!(!moving.exists());
    }

    #[test]
    fn the_names_of_days_are_read_as_they_are_written() {
        let day: Date = "2026-01-05".parse().unwrap();
        for part in [1, 2, 17] {
            assert_eq!(day_of_name(&name_of_day(day, part)), Some((day, part)));
        }
        let none = ["moving", "2026-01-05.1", "2026-01-05.x", "2026-01-05.2.3", "2026-13-05", ""];
        assert!(none.into_iter().all(|name| day_of_name(name).is_none()));
    }
}
