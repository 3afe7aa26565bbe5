//! The events of the current day, from the first one or from a checkpoint. Replays and readers of the ring start with
//! them.

use std::sync::{Arc, Mutex, PoisonError};

use tapeworks_market::Event;
use tapeworks_time::Nanos;
use tapeworks_time::clock::iso;

use crate::Start;

/// Why the events of the day cannot be read.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HistoryError {
    /// The events cannot be read.
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
    /// Creates an error with this reason.
    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self::Unreadable { reason: reason.into() }
    }
}

/// The result of reading a history.
#[derive(Debug)]
pub enum Read<'r> {
    /// The state before the next event.
    ///
    /// It comes first if the reader starts from a checkpoint. It comes in the middle where the journal lost inputs, and
    /// then includes all events before its number, including the missing ones.
    Start {
        /// Events before the state: sequence gaps where inputs were lost, which take the first numbers of the missing
        /// events.
        missed: &'r [Event],
        /// The state. It is needed because the gaps in `missed` do not describe everything that was missed.
        start: Box<Start>,
    },
    /// The next events. More may follow immediately, and a piece may be empty.
    Events(&'r [Event]),
    /// All events so far have been read. More follow as they happen.
    CaughtUp,
}

/// The events of the current day, which grow while they are read.
pub trait History: Send + Sync {
    /// Opens a reader at the first event, or at a checkpoint without events at or after `from` (receive time).
    ///
    /// A time of 0 means the first event. Events have consecutive numbers, starting at 0 or at [`Start::first_event`].
    ///
    /// # Errors
    /// [`HistoryError`], also if the events before `from` were not kept.
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError>;
}

/// Reads the events of a day in order.
pub trait HistoryReader: Send {
    /// Returns the next piece: a state, or at most a few thousand events.
    ///
    /// # Errors
    /// [`HistoryError`] if the events cannot be read. The reader is unusable after that.
    fn read(&mut self) -> Result<Read<'_>, HistoryError>;
}

/// A history in memory, for tests and for plants whose day is short. 64 bytes per event.
#[derive(Clone, Default, Debug)]
pub struct MemoryHistory {
    events: Arc<Mutex<Vec<Event>>>,
}

/// Maximum number of events per read.
const READ_EVENTS: usize = 4096;

impl MemoryHistory {
    /// Appends events.
    pub fn append(&self, events: &[Event]) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(events);
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether there are no events.
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
