//! Where a reader of the ring begins: the events of the day that the ring no longer has come from the history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tapeworks_engine::Start;
use tapeworks_engine::history::{History, HistoryError, Read};
use tapeworks_market::{Event, Nanos};
use tapeworks_ring::disruptor::{Consumer, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::waiting::WakeUp;

/// Where a reader of the ring begins, and where it begins to tell others what it reads.
#[derive(Clone, Default)]
pub struct Begin {
    /// The number of the first event in the ring; those before it are read from the history.
    pub first_event: u64,
    /// The latest receive time of the events before that one; 0 where it is not known.
    pub first_time: Nanos,
    /// The history; needed when the ring does not begin with event 0.
    pub history: Option<Arc<dyn History>>,
    /// Events before the one with this number are of the past, and make books and mappings only. As long as it is
    /// [`u64::MAX`] that number is not known yet, and every event is taken for one of them.
    pub live_from: Arc<AtomicU64>,
    /// What wakes the reader when there are events; without it the reader looks again and again.
    pub wake_up: Option<Arc<WakeUp>>,
}

impl std::fmt::Debug for Begin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Begin(event {}, live from {:?})", self.first_event, self.live_from)
    }
}

impl Begin {
    /// Those of `events`, the first of which has the number `next`, that are of the past, and the others. To be called after
    /// the events were taken from the ring: as long as the number is not known, they are from before it.
    pub(crate) fn split<'e>(&self, next: u64, events: &'e [Event]) -> (&'e [Event], &'e [Event]) {
        let before = self.live_from.load(Ordering::Acquire).saturating_sub(next);
        events.split_at(usize::try_from(before).unwrap_or(usize::MAX).min(events.len()))
    }

    /// Whether the past is over for who takes the event `next` next.
    pub(crate) fn is_over_at(&self, next: u64) -> bool {
        next >= self.live_from.load(Ordering::Acquire)
    }
}

/// How long a history may take to bring the next events.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long before its time the making of a record may begin at most, in ns: two intervals of a minute.
pub(crate) const LONGEST_REACH: u64 = 120 * Nanos::SECOND;

/// A piece of the day so far.
pub(crate) enum Past<'e> {
    /// Where it begins, if that is not at its first event; and where it goes on after events that are missing.
    Start(Box<Start>),
    /// Events, and the number of the first of them.
    Events(u64, &'e [Event]),
}

/// Takes a state that was kept, old enough for every open interval to be known whole where there is such a one, and the events
/// since, until the history has brought all that `consumer` has left behind: those before its first, and those that come
/// meanwhile, which are passed over in the ring, so that it does not fill up.
///
/// # Errors
/// A history that cannot be read, and what `take` gives.
pub(crate) fn catch_up<W: WaitStrategy, E: From<HistoryError>>(
    begin: &Begin,
    consumer: &mut Consumer<Event, W, Single>,
    stop: &AtomicBool,
    mut take: impl FnMut(Past<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if begin.first_event == 0 {
        return Ok(());
    }
    let none = || HistoryError::unreadable("there is no history");
    let history = begin.history.as_deref().ok_or_else(none)?;
    let mut reader = match history.open(Nanos(begin.first_time.0.saturating_sub(LONGEST_REACH))) {
        // An interval that was open then will lack what came before.
        Err(HistoryError::NotKept { earliest }) => history.open(earliest)?,
        opened => opened?,
    };
    let (mut next, mut wanted, mut buffer) = (0, begin.first_event, Vec::new());
    if let Some(start) = reader.start() {
        next = start.first_event();
        take(Past::Start(Box::new(start)))?;
    }
    let mut progressed = Instant::now();
    while next != wanted && !stop.load(Ordering::Acquire) {
        // A ring that has ended or failed says so again when it is read in earnest.
        wanted += consumer.poll(|_, _, _| {}).unwrap_or_default() as u64;
        buffer.clear();
        // A state of a moment ago may be ahead of the ring's reader.
        let missing = wanted.saturating_sub(next);
        let read = if missing > 0 { reader.read(&mut buffer)? } else { Read::CaughtUp };
        buffer.truncate(usize::try_from(missing).unwrap_or(usize::MAX));
        take(Past::Events(next, &buffer))?;
        next += buffer.len() as u64;
        let behind = if missing > 0 { reader.start() } else { None };
        if let Some(start) = behind {
            // Events are missing; from here on all are as the ring has them.
            next = start.first_event();
            take(Past::Start(Box::new(start)))?;
            progressed = Instant::now();
        } else if !buffer.is_empty() {
            progressed = Instant::now();
        } else if read == Read::CaughtUp {
            if progressed.elapsed() >= PATIENCE {
                let reason = format!("they are at {next}, and the ring is at {wanted}");
                return Err(HistoryError::unreadable(reason).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
