//! The trait by which the [reader](crate::reader) of the ring drives an output.
//!
//! An output has its books, records and sockets. The reader calls it from one thread and in this order: [`Output::restore`] and
//! [`Output::events`] for the past, [`Output::go_live`] once, then events and [`Output::serve`] in turns, [`Output::end`] once when the
//! ring has ended, and `serve` while it lingers. An output is served only from the present on.

use std::time::Duration;

use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_market::Event;
use tapeworks_ring::disruptor::Failed;

/// A way for a plant's records to leave it: clients, a multicast group, a stream, a database.
pub(crate) trait Output: Send + 'static {
    /// Why it ends before it is stopped.
    type Failure: From<HistoryError> + From<Failed> + Send + 'static;

    /// How often [`Output::report`] is called.
    const REPORT_EVERY: Duration = Duration::from_millis(100);

    /// Whether [`Output::fall_behind`] is called. It costs one read of the ring's cursor for each batch.
    const MAY_FALL_BEHIND: bool = false;

    /// Continues from a state, in place of the events before it.
    fn restore(&mut self, start: Start);

    /// Takes the next events; `first` is the number of the first of them.
    fn events(&mut self, first: u64, events: &[Event]) -> Result<(), Self::Failure>;

    /// From here on events are of the present; `first` is the number of the first of those. Called once.
    fn go_live(&mut self, _first: u64) {}

    /// Called before the next events when more than half of the ring waits for this reader.
    fn fall_behind(&mut self) {}

    /// Waits up to `wait` for a socket or the wake-up, serves the sockets and does due tasks.
    fn serve(&mut self, wait: Duration) -> Result<(), Self::Failure>;

    /// How long [`Output::serve`] may wait at most when there are no events; 0 when it has work left.
    fn patience(&self) -> Duration;

    /// Whether events must be taken at once. Otherwise they may gather for some milliseconds, which costs less.
    fn is_urgent(&self) -> bool;

    /// Called when there are no events, before the thread sleeps: for work that can wait.
    fn spare_time(&mut self) {}

    /// The ring has ended: makes the records that waited for more events.
    fn end(&mut self) {}

    /// After the end: how long the next [`Output::serve`] may wait, or `None` when it has finished.
    fn linger(&self) -> Option<Duration> {
        None
    }

    /// Publishes its counters; `ring_lag` events in the ring are not taken yet.
    fn report(&mut self, _ring_lag: usize) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Failed, HistoryError};

    /// Why a test's output ends.
    #[derive(PartialEq, Debug, thiserror::Error)]
    #[error(transparent)]
    pub(crate) enum Ended {
        History(#[from] HistoryError),
        Ring(#[from] Failed),
    }
}
