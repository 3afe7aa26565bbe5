//! A history that reads its events from a journal.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use tapeworks_disk::{Disk, System};
use tapeworks_journal::{JournalError, JournalReader, LOST};
use tapeworks_market::Event;
use tapeworks_planted::planted;
use tapeworks_time::Nanos;

use crate::checkpoint::{Restored, folder};
use crate::history::{History, HistoryError, HistoryReader, Read};
use crate::loss::{Behind, Losses};
use crate::records::input_of;
use crate::{Engine, EngineOptions, Start};

/// The events of a journal, recreated from its inputs with the same numbers.
///
/// A reader starts at the newest checkpoint that is early enough, or else at the first record. A plant that finds
/// inputs lost at startup continues without them, and so does a reader. A plant whose journal loses inputs while it
/// runs has processed them, so a reader continues from the next checkpoint. The next checkpoint also shows which of the
/// two happened.
#[derive(Clone, Debug)]
pub struct JournalHistory<D: Disk = System> {
    options: Arc<EngineOptions>,
    folder: PathBuf,
    disk: PhantomData<D>,
}

impl JournalHistory {
    /// Creates the history of the journal at `folder`, written by an engine with these options.
    pub fn new(options: EngineOptions, folder: impl Into<PathBuf>) -> Self {
        Self::new_in(options, folder)
    }
}

impl<D: Disk> JournalHistory<D> {
    /// [`JournalHistory::new`] on the disk `D`.
    pub fn new_in(options: EngineOptions, folder: impl Into<PathBuf>) -> Self {
        Self { options: Arc::new(options), folder: folder.into(), disk: PhantomData }
    }

    fn events(&self, reader: JournalReader<D>, engine: Engine, start: Option<Start>) -> JournalEvents<D> {
        JournalEvents {
            history: self.clone(),
            reader,
            engine,
            buffer: Vec::new(),
            start,
            loss: None,
            losses: Losses::default(),
        }
    }
}

/// How often to reopen a history when the records it would start with are removed meanwhile.
const TRIES: u32 = 10;

impl<D: Disk> JournalHistory<D> {
    /// [`History::open`], but returns `None` if the journal's first records were removed meanwhile.
    fn try_open(&self, from: Nanos) -> Result<Option<JournalEvents<D>>, HistoryError> {
        let failed = |error: JournalError| HistoryError::unreadable(error.to_string());
        let whole = JournalReader::<D>::open_in(&self.folder).map_err(failed)?;
        let first = whole.next_number();
        if let Some(Restored { record, engine, market }) =
            folder::before::<D>(&self.folder, first, from, &self.options)
        {
            let reader = JournalReader::from_number_in(&self.folder, record).map_err(failed)?;
            return match reader.next_number() {
                next if next < record => Err(HistoryError::unreadable(format!(
                    "the journal ends before record {next}, and its checkpoint continues with record {record}"
                ))),
                next if next > record => Ok(None),
                _ => Ok(Some(self.events(reader, engine, Some(market)))),
            };
        }
        if first > 0 {
            return Err(match folder::oldest::<D>(&self.folder, first, &self.options) {
                Some(oldest) => {
                    HistoryError::NotKept { earliest: Nanos(oldest.market.time().0.saturating_add(1)) }
                }
                None => HistoryError::unreadable(format!(
                    "the journal's first {first} records were removed to make room"
                )),
            });
        }
        let engine = Engine::new(&self.options);
        Ok(Some(self.events(whole, engine, None)))
    }
}

impl<D: Disk> History for JournalHistory<D> {
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        for _ in 0..TRIES {
            if let Some(events) = self.try_open(from)? {
                return Ok(Box::new(events));
            }
        }
        Err(HistoryError::unreadable("the journal's first records are removed faster than they can be read"))
    }
}

/// Maximum number of inputs per read.
const INPUTS_AT_ONCE: usize = 512;

struct JournalEvents<D: Disk> {
    history: JournalHistory<D>,
    reader: JournalReader<D>,
    engine: Engine,
    /// Events of the last read.
    buffer: Vec<Event>,
    /// State that the next read returns.
    start: Option<Start>,
    /// The pending loss record and its time, until a later checkpoint exists.
    loss: Option<(u64, Nanos)>,
    losses: Losses,
}

impl<D: Disk> JournalEvents<D> {
    /// Passes a record of lost inputs: without them, or from the next checkpoint, where the events of those inputs are
    /// missing.
    ///
    /// Returns `false` while there is no such checkpoint.
    fn pass(&mut self, (record, time): (u64, Nanos)) -> Result<bool, HistoryError> {
        let JournalHistory { options, folder, .. } = &self.history;
        let behind = match self.losses.behind::<D>(folder, (record, time), &self.engine, options) {
            None => return Ok(false),
            Some(Behind::Without) => {
                self.engine.inputs_lost(time, &mut self.buffer);
                self.loss = None;
                return Ok(true);
            }
            Some(Behind::From(behind)) => *behind,
        };
        let reader = JournalReader::at_number_in(folder, behind.record)
            .map_err(|error| HistoryError::unreadable(error.to_string()))?
            .filter(|_| behind.engine.counters().events >= self.engine.counters().events);
        let Some(reader) = reader else {
            return Err(HistoryError::unreadable(format!(
                "the journal lost inputs at its record {record}, and the checkpoint behind it is of record {}, which does \
                 not follow",
                behind.record
            )));
        };
        self.engine.put_missed(&behind.engine, time, &mut self.buffer);
        (self.reader, self.engine, self.start, self.loss) =
            (reader, behind.engine, Some(behind.market), None);
        Ok(true)
    }
}

impl<D: Disk> HistoryReader for JournalEvents<D> {
    fn read(&mut self) -> Result<Read<'_>, HistoryError> {
        self.buffer.clear();
        if let Some(loss) = self.loss
            && !self.pass(loss)?
        {
            return Ok(Read::CaughtUp);
        }
        if let Some(start) = self.start.take() {
            return Ok(Read::Start { missed: &self.buffer, start: Box::new(start) });
        }
        let mut is_at_end = false;
        for _ in 0..INPUTS_AT_ONCE {
            match self.reader.next() {
                Ok(Some(record)) if record.kind == LOST && !planted!("loss-not-noticed") => {
                    self.loss = Some((record.number, Nanos(record.time)));
                    break;
                }
                Ok(Some(record)) => {
                    if let Some(input) = input_of(&record) {
                        self.engine.input(&input, &mut self.buffer);
                    }
                }
                Ok(None) => {
                    is_at_end = true;
                    break;
                }
                Err(error) => return Err(HistoryError::unreadable(error.to_string())),
            }
        }
        // A replay sends no requests.
        while self.engine.take_request().is_some() {}
        Ok(if is_at_end && self.buffer.is_empty() { Read::CaughtUp } else { Read::Events(&self.buffer) })
    }
}
