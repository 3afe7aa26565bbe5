//! Where replays come from: the events of the day, from the first on or from a state on that was kept.

use std::sync::{Arc, Mutex, PoisonError};

use tapeworks_feed::clock::iso_time;
use tapeworks_market::{Event, Nanos};

use crate::Start;

/// Why the events of the day cannot be read.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HistoryError {
    /// They cannot be read.
    #[error("the events of the day cannot be read: {reason}")]
    Unreadable {
        /// What the reader said.
        reason: String,
    },
    /// What came so early was removed to make room.
    #[error("so early a start is no longer kept; the earliest possible is start={} ({})", earliest.0, iso(*earliest))]
    NotKept {
        /// The earliest time that can be asked for, in ns since the epoch.
        earliest: Nanos,
    },
}

impl HistoryError {
    /// They cannot be read, and this is why.
    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self::Unreadable { reason: reason.into() }
    }
}

fn iso(time: Nanos) -> String {
    let mut text = String::new();
    iso_time(&mut text, time);
    text
}

/// How far a reader is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// There were events, and there may be more at once.
    Events,
    /// Every event that is there was read; more come as they happen.
    CaughtUp,
}

/// The events of the day, which grow while they are read.
pub trait History: Send + Sync {
    /// A reader of the events of the day that runs, from the first on, or from a state on that was kept and in which no event at
    /// or after `from` (receive time) has been; a time of 0 means the first. The first event it gives has the number that the
    /// reader's [`Start`] tells, or 0, and every other follows without a hole.
    ///
    /// # Errors
    /// [`HistoryError`], also when what came before `from` is not kept.
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError>;
}

/// Reads the events of a day in their order.
pub trait HistoryReader: Send {
    /// What was before the first event; `None` when nothing was, and when it was taken. Where inputs were lost there is one in the
    /// middle too: it stands for all events before its own, those that are missing among them. To be asked for after each read,
    /// when the events of that are taken: those of the next follow it.
    fn start(&mut self) -> Option<Start> {
        None
    }

    /// Appends the next events to `into`, some thousands at most.
    ///
    /// # Errors
    /// [`HistoryError`] when they cannot be read; the replay ends.
    fn read(&mut self, into: &mut Vec<Event>) -> Result<Read, HistoryError>;
}

/// A history in memory, for tests and for plants whose day is short. 64 bytes an event.
#[derive(Clone, Default, Debug)]
pub struct MemoryHistory {
    events: Arc<Mutex<Vec<Event>>>,
}

/// Events that one read gives.
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
        Ok(Box::new(MemoryReader { events: Arc::clone(&self.events), next: 0 }))
    }
}

struct MemoryReader {
    events: Arc<Mutex<Vec<Event>>>,
    next: usize,
}

impl HistoryReader for MemoryReader {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<Read, HistoryError> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = events.get(self.next..).unwrap_or_default();
        let taken = rest.get(..READ_EVENTS).unwrap_or(rest);
        into.extend_from_slice(taken);
        self.next += taken.len();
        Ok(if taken.is_empty() { Read::CaughtUp } else { Read::Events })
    }
}
