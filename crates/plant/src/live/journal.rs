//! The plant's journal: every input, before anybody has seen what came of it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_feed::clock;
use tapeworks_flow::graph::Wait;
use tapeworks_market::{Event, Nanos};
use tapeworks_ring::disruptor::PollError;
use tapeworks_ring::spsc;
use tapeworks_store::journal::{JournalError, JournalOptions, JournalReader, JournalWriter, LOST, Opened};

use super::checkpoint::{self, Agreement, Restored};
use super::engine::Engine;
use super::records::{Queued, input_of, record_of};
use super::status::Status;
use super::waiting::{Bell, Idle, Waiting};
use super::{EventConsumer, PlantFailure, PlantOptions, now};
use crate::clients::history::{History, HistoryError, HistoryReader, Read, Start};

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
    /// The folder. Journals of earlier days are moved into folders in it, named by their dates.
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
    /// Segments removed because there were too many.
    pub removed_segments: u64,
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
    /// Bytes of a torn record at the end, which were cut off.
    pub torn_bytes: u64,
    /// Inputs that the journal says it lost.
    pub lost: u64,
    /// How long it took, in ns.
    pub took_ns: u64,
}

/// An opened journal.
#[derive(Debug)]
pub(super) struct OpenJournal {
    writer: JournalWriter,
    pub(super) opened: Opened,
}

/// Opens the journal of the day. One of an earlier day is moved away first.
pub(super) fn open(setting: &JournalSetting) -> Result<OpenJournal, JournalError> {
    let failed = |path: &Path, what, source| JournalError::Io { path: path.to_owned(), what, source };
    let (writer, opened) = JournalWriter::open(&setting.folder, setting.options)?;
    if opened.next > opened.first
        && let Some(record) = JournalReader::open(&setting.folder)?.next()?
        && let (Some(day), Some(today)) = (clock::date_at(record.time), clock::date_at(now()))
        && day != today
    {
        drop(writer);
        let folder = setting.folder.join(day.to_string());
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, "cannot be created", error))?;
        let entries = std::fs::read_dir(&setting.folder)
            .map_err(|error| failed(&setting.folder, "cannot list the journal", error))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.extension().is_some_and(|ending| ending == "journal")
                && let Some(name) = path.file_name()
            {
                let to = folder.join(name);
                std::fs::rename(&path, &to).map_err(|error| failed(&path, "cannot be moved away", error))?;
            }
        }
        checkpoint::move_away(&setting.folder, opened.first, &folder)
            .map_err(|error| failed(&setting.folder, "old snapshots cannot be moved away", error))?;
        let (writer, opened) = JournalWriter::open(&setting.folder, setting.options)?;
        return Ok(OpenJournal { writer, opened });
    }
    Ok(OpenJournal { writer, opened })
}

/// The thread that keeps the journal. It stands in the ring before the clients' servers, and lets an event pass when the input
/// that it came of is written.
pub(super) struct Keeper {
    writer: JournalWriter,
    sync: SyncPolicy,
    when_failing: WhenFailing,
    inputs: spsc::Consumer<Queued, Waiting>,
    events: EventConsumer,
    states: Sender<checkpoint::Job>,
    snapshots: Arc<Agreement>,
    status: Arc<Mutex<Status>>,
    told: Instant,
    synced: Instant,
    error: Option<String>,
    idle: Wait,
    bell: Arc<Bell>,
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
        (states, snapshots): (Sender<checkpoint::Job>, Arc<Agreement>),
        (idle, bell): (Wait, Arc<Bell>),
        status: Arc<Mutex<Status>>,
    ) -> Self {
        Self {
            writer: journal.writer,
            sync: setting.sync,
            when_failing: setting.when_failing,
            inputs,
            events,
            states,
            snapshots,
            status,
            told: Instant::now(),
            synced: Instant::now(),
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
            let mut state = None;
            let Self { inputs, writer, snapshots, .. } = &mut self;
            writer.need_from(snapshots.needed_from());
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
            if let Err(error) = self.write() {
                failure = Some(error);
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
        let written = self.writer.sync();
        self.tell();
        match written {
            Err(error) if self.when_failing == WhenFailing::Stop => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Hands a state on to who writes it, behind the records that it stands for.
    fn hand_on(&mut self, state: checkpoint::Job) {
        match self.writer.sync() {
            // Who writes them lives as long as this end of the way to it.
            Ok(()) => drop(self.states.send(state)),
            Err(error) => checkpoint::tell(&self.status, Err(error.to_string())),
        }
    }

    /// Writes what was appended, and syncs it when that is due.
    fn write(&mut self) -> Result<(), JournalError> {
        match self.sync {
            SyncPolicy::Always => self.writer.sync(),
            SyncPolicy::Every(interval) if self.synced.elapsed() >= interval => {
                self.synced = Instant::now();
                self.writer.sync()
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
            removed_segments: self.writer.removed_segments(),
            error: self.error.clone(),
        };
        self.status.lock().unwrap_or_else(PoisonError::into_inner).journal = Some(status);
    }
}

/// The events of the day, made once more from the journal: the same, with the same numbers. A reader begins with the newest state
/// snapshot that is early enough, or else with the day's first record.
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

impl History for JournalHistory {
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        let failed = |error: JournalError| HistoryError::unreadable(error.to_string());
        let whole = JournalReader::open(&self.folder).map_err(failed)?;
        let first = whole.next_number();
        if let Some(Restored { record, engine, market }) =
            checkpoint::before(&self.folder, first, from, &self.options)
        {
            let reader = JournalReader::from_number(&self.folder, record).map_err(failed)?;
            if reader.next_number() != record {
                return Err(HistoryError::unreadable(format!(
                    "the journal's record {record} was removed just now"
                )));
            }
            return Ok(Box::new(JournalEvents { reader, engine, start: Some(market) }));
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
        Ok(Box::new(JournalEvents { reader: whole, engine, start: None }))
    }
}

/// Inputs made events at one read.
const INPUTS_AT_ONCE: usize = 512;

struct JournalEvents {
    reader: JournalReader,
    engine: Engine,
    start: Option<Start>,
}

impl HistoryReader for JournalEvents {
    fn start(&mut self) -> Option<Start> {
        self.start.take()
    }

    fn read(&mut self, into: &mut Vec<Event>) -> Result<Read, HistoryError> {
        for _ in 0..INPUTS_AT_ONCE {
            match self.reader.next() {
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
            lost += record.extra;
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
        took_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
    })
}
