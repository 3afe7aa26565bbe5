//! Where a reader of the ring begins: the history holds the day's events that the ring no longer has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tapeworks_engine::history::{History, HistoryError, Read};
use tapeworks_market::Event;
use tapeworks_ring::disruptor::{Consumer, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::waiting::WakeUp;
use tapeworks_runtime::world::{System, World};
use tapeworks_time::Nanos;

use crate::output::Output;

/// Where a reader of the ring begins, and from which event on its clients get records.
pub struct Begin<W: World = System> {
    /// The number of the first event in the ring. The reader takes earlier events from the history.
    pub first_event: u64,
    /// The latest receive time of the events before `first_event`; 0 if it is unknown.
    pub first_time: Nanos,
    /// The history. Required if the ring does not begin with event 0.
    pub history: Option<Arc<dyn History>>,
    /// The first live event. Earlier events are past: they change books and symbol mappings, but clients get no records of them.
    /// [`u64::MAX`] while the number is unknown; every event then counts as past.
    pub live_from: Arc<AtomicU64>,
    /// Wakes the reader when there are events. Without it, the reader polls, with short sleeps.
    pub wake_up: Option<Arc<WakeUp<W>>>,
}

impl<W: World> Clone for Begin<W> {
    fn clone(&self) -> Self {
        Self {
            first_event: self.first_event,
            first_time: self.first_time,
            history: self.history.clone(),
            live_from: Arc::clone(&self.live_from),
            wake_up: self.wake_up.clone(),
        }
    }
}

impl<W: World> Default for Begin<W> {
    /// Begins with the first event of the day, which is live, and without a wake-up.
    fn default() -> Self {
        Self {
            first_event: 0,
            first_time: Nanos::default(),
            history: None,
            live_from: Arc::default(),
            wake_up: None,
        }
    }
}

impl<W: World> std::fmt::Debug for Begin<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Begin(event {}, live from {:?})", self.first_event, self.live_from)
    }
}

/// Where a reader passes from past to live events, which happens once.
#[derive(Debug)]
pub(crate) struct Present {
    live_from: Arc<AtomicU64>,
    is_reached: bool,
}

impl Present {
    pub(crate) fn new<W: World>(begin: &Begin<W>) -> Self {
        Self { live_from: Arc::clone(&begin.live_from), is_reached: false }
    }

    /// Returns whether the next event is live.
    pub(crate) const fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Passes the next events to `output`, first the past and then the live ones; `first` is the number of the first one. Must be
    /// called after the ring was polled, because the plant announces the first live event before it publishes it.
    pub(crate) fn give<O: Output>(
        &mut self,
        output: &mut O,
        first: u64,
        events: &[Event],
    ) -> Result<(), O::Failure> {
        if self.is_reached {
            return if events.is_empty() { Ok(()) } else { output.events(first, events) };
        }
        let live_from = self.live_from.load(Ordering::Acquire);
        let of_past = usize::try_from(live_from.saturating_sub(first)).unwrap_or(usize::MAX);
        let (past, present) = events.split_at(of_past.min(events.len()));
        let next = first + past.len() as u64;
        if !past.is_empty() {
            output.events(first, past)?;
        }
        if next >= live_from {
            self.is_reached = true;
            output.go_live(live_from);
        }
        if present.is_empty() { Ok(()) } else { output.events(next, present) }
    }
}

/// How long a history may take to provide the next events.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same once the ring has ended: the journal's last inputs are still being written, but no further checkpoint.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);

/// The longest time span that a record depends on, in ns: two intervals of a minute.
pub(crate) const LONGEST_REACH: u64 = 120 * Nanos::SECOND;

/// Passes the day's events that the ring no longer has to `output`: a checkpoint, if there is one, and the events after it. The
/// checkpoint is old enough for every open interval to be whole. Meanwhile the ring is drained, so that it does not fill up; those
/// events come from the history too. Returns the number of the next event, which the ring has. If the ring ends in the meantime,
/// the history may end before that event, for example if it waits for a checkpoint after lost inputs and the plant writes no more;
/// the events in between are then lost.
///
/// # Errors
/// A history that cannot be read, or that does not reach a running ring, and errors of `output`.
pub(crate) fn catch_up<O: Output, S: WaitStrategy, W: World>(
    begin: &Begin<W>,
    present: &mut Present,
    consumer: &mut Consumer<Event, S, Single>,
    stop: &AtomicBool,
    output: &mut O,
) -> Result<u64, O::Failure> {
    if begin.first_event == 0 {
        return Ok(0);
    }
    let none = || HistoryError::unreadable("there is no history");
    let history = begin.history.as_deref().ok_or_else(none)?;
    let mut from = Nanos(begin.first_time.0.saturating_sub(LONGEST_REACH));
    let mut reader = loop {
        match history.open(from) {
            // Intervals that were open at that time lack earlier events. More history may be removed in the meantime.
            Err(HistoryError::NotKept { earliest }) if earliest > from => from = earliest,
            opened => break opened?,
        }
    };
    let (mut next, mut wanted) = (0, begin.first_event);
    let (mut progressed, mut has_ended) = (W::instant(), false);
    while next != wanted && !stop.load(Ordering::Acquire) {
        match consumer.poll(|_, _, _| {}) {
            Ok(polled) => wanted += polled as u64,
            // The ring has ended or failed: the reader's next poll reports it again.
            Err(_) if !has_ended => (progressed, has_ended) = (W::instant(), true),
            Err(_) => {}
        }
        // A recent checkpoint may be ahead of the ring's reader.
        let missing = wanted.saturating_sub(next);
        let read = if missing > 0 { reader.read()? } else { Read::CaughtUp };
        let most = usize::try_from(missing).unwrap_or(usize::MAX);
        match read {
            Read::Start { missed, start } => {
                present.give(output, next, missed.get(..most).unwrap_or(missed))?;
                next = start.first_event();
                output.restore(*start);
                progressed = W::instant();
            }
            Read::Events(events) => {
                let events = events.get(..most).unwrap_or(events);
                present.give(output, next, events)?;
                next += events.len() as u64;
                if !events.is_empty() {
                    progressed = W::instant();
                }
            }
            Read::CaughtUp => {
                let patience = if has_ended { PATIENCE_AT_END } else { PATIENCE };
                if W::since(progressed) >= patience {
                    if has_ended {
                        break;
                    }
                    let reason =
                        format!("the history ends at event {next}, and the ring is at event {wanted}");
                    return Err(HistoryError::unreadable(reason).into());
                }
                W::sleep(Duration::from_millis(1));
            }
        }
    }
    Ok(next)
}
