//! The events of the running day, from the first or from a checkpoint on. Replays and readers of the ring begin with them.

use std::sync::{Arc, Mutex, PoisonError};

use tapeworks_feed::clock::iso;
use tapeworks_market::Event;
use tapeworks_time::Nanos;

use crate::Start;

/// Why the events of the day cannot be read.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HistoryError {
    /// They cannot be read.
    #[error("the events of the day cannot be read: {reason}")]
    Unreadable {
        /// The reader's error.
        reason: String,
    },
    /// The journal's records of that time were removed to make room.
    #[error("records from so early are no longer kept; the earliest start is start={} ({})", earliest.0, iso(*earliest))]
    NotKept {
        /// The earliest possible time, in ns since the epoch.
        earliest: Nanos,
    },
}

impl HistoryError {
    /// An error with this reason.
    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self::Unreadable { reason: reason.into() }
    }
}

/// The result of reading a history.
#[derive(Debug)]
pub enum Read<'r> {
    /// The state before the next event. It comes first where the reader begins with a checkpoint, and in the middle where the
    /// journal lost inputs: then it includes all events before its number, also the missing ones.
    Start {
        /// The next events: sequence gaps, where inputs were lost. They take the first numbers of the missing events.
        missed: &'r [Event],
        /// The state. The gaps in `missed` are not all that was missed, so the state comes with them.
        start: Box<Start>,
    },
    /// The next events. There may be more at once, and there may be none in this piece.
    Events(&'r [Event]),
    /// All events so far were read. More come as they happen.
    CaughtUp,
}

/// The events of the running day, which grow while they are read.
pub trait History: Send + Sync {
    /// A reader from the first event on, or from a checkpoint on in which no event at or after `from` (receive time) is. A time
    /// of 0 means the first event. Events have consecutive numbers, from 0 or from [`Start::first_event`] on.
    ///
    /// # Errors
    /// [`HistoryError`], also when the events before `from` are not kept.
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError>;
}

/// Reads the events of a day in their order.
pub trait HistoryReader: Send {
    /// The next piece: a state, or some thousands of events at most.
    ///
    /// # Errors
    /// [`HistoryError`] when they cannot be read. The reader is of no use after that.
    fn read(&mut self) -> Result<Read<'_>, HistoryError>;
}

/// A history in memory, for tests and for plants whose day is short. 64 bytes an event.
#[derive(Clone, Default, Debug)]
pub struct MemoryHistory {
    events: Arc<Mutex<Vec<Event>>>,
}

/// The most events of one read.
const READ_EVENTS: usize = 4096;

impl MemoryHistory {
    /// Appends events.
    pub fn append(&self, events: &[Event]) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(events);
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl History for MemoryHistory {
    fn open(&self, _from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        Ok(Box::new(MemoryReader { events: Arc::clone(&self.events), next: 0, buffer: Vec::new() }))
    }
}

struct MemoryReader {
    events: Arc<Mutex<Vec<Event>>>,
    next: usize,
    buffer: Vec<Event>,
}

impl HistoryReader for MemoryReader {
    fn read(&mut self) -> Result<Read<'_>, HistoryError> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = events.get(self.next..).unwrap_or_default();
        let taken = rest.get(..READ_EVENTS).unwrap_or(rest);
        self.buffer.clear();
        self.buffer.extend_from_slice(taken);
        self.next += taken.len();
        Ok(if self.buffer.is_empty() { Read::CaughtUp } else { Read::Events(&self.buffer) })
    }
}
