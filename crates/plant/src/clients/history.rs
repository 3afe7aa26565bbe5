//! Where replays come from: the events of the day, from the first on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tapeworks_ring::disruptor::{Consumer, Single};
use tapeworks_ring::wait::WaitStrategy;

use tapeworks_market::{Event, Nanos};

/// Why the events of the day cannot be read.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("the events of the day cannot be read: {reason}")]
pub struct HistoryError {
    /// What the reader said.
    pub reason: String,
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
    /// A reader of the events of the day of `from`, from the first on: without those before `from` no book would be right.
    /// A time later than every event means the day that runs. The first event it gives has the number 0, and every other follows without a hole.
    ///
    /// # Errors
    /// [`HistoryError`], also when the day of `from` is not kept.
    fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError>;
}

/// Reads the events of a day in their order.
pub trait HistoryReader: Send {
    /// Appends the next events to `into`, some thousands at most.
    ///
    /// # Errors
    /// [`HistoryError`] when they cannot be read; the replay ends.
    fn read(&mut self, into: &mut Vec<Event>) -> Result<Read, HistoryError>;
}

/// Where a reader of the ring begins to tell others what it reads.
#[derive(Clone)]
pub struct Begin {
    /// The number of the first event in the ring; those before it are read from the history.
    pub first_event: u64,
    /// The history; needed when the ring does not begin with event 0.
    pub history: Option<Arc<dyn History>>,
    /// Events before the one with this number are of the past, and make books and mappings only. As long as it is
    /// [`u64::MAX`] that number is not known yet, and every event is taken for one of them.
    pub live_from: Arc<AtomicU64>,
}

/// How long a history may take to bring the next events.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the events of the day so far, from the first on, until the history has brought all that `consumer` has left behind:
/// those before `first_event`, which is its first, and those that come meanwhile, which are passed over in the ring, so that it
/// does not fill up. Returns how many were passed over. `take` is given the number of the first of some events.
pub(crate) fn catch_up<W: WaitStrategy, E: From<HistoryError>>(
    history: Option<&dyn History>,
    consumer: &mut Consumer<Event, W, Single>,
    first_event: u64,
    stop: &AtomicBool,
    mut take: impl FnMut(u64, &[Event]) -> Result<(), E>,
) -> Result<(), E> {
    if first_event == 0 {
        return Ok(());
    }
    let none = || HistoryError { reason: "there is no history".to_owned() };
    let mut reader = history.ok_or_else(none)?.open(Nanos(u64::MAX))?;
    let (mut next, mut wanted, mut buffer) = (0, first_event, Vec::new());
    let mut progressed = Instant::now();
    while next < wanted && !stop.load(Ordering::Acquire) {
        // A ring that has ended or failed says so again when it is read in earnest.
        wanted += consumer.poll(|_, _, _| {}).unwrap_or_default() as u64;
        buffer.clear();
        let read = reader.read(&mut buffer)?;
        buffer.truncate(usize::try_from(wanted - next).unwrap_or(usize::MAX));
        take(next, &buffer)?;
        next += buffer.len() as u64;
        if !buffer.is_empty() {
            progressed = Instant::now();
        } else if read == Read::CaughtUp {
            if progressed.elapsed() >= PATIENCE {
                let reason = format!("they end at {next}, and the ring is at {wanted}");
                return Err(HistoryError { reason }.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
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
