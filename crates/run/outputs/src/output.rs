//! The trait through which the [reader](crate::reader) of the ring drives an output.
//!
//! An output owns its books, records and sockets. The reader calls it from one thread, in this order: [`Output::restore`] and
//! [`Output::events`] for the past, [`Output::go_live`] once, then events and [`Output::serve`] alternately, [`Output::end`] once
//! when the ring has ended, and `serve` while the output lingers. An output is not served before it is live.

use std::time::Duration;

use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_market::Event;
use tapeworks_ring::disruptor::Failed;

/// A destination of a plant's records: clients, a multicast group, a stream, a database.
pub(crate) trait Output: Send + 'static {
    /// Why the output ends before it is stopped.
    type Failure: From<HistoryError> + From<Failed> + Send + 'static;

    /// How often [`Output::report`] is called.
    const REPORT_EVERY: Duration = Duration::from_millis(100);

    /// Whether [`Output::fall_behind`] is called, which costs one read of the ring's cursor per batch.
    const MAY_FALL_BEHIND: bool = false;

    /// Continues from a state that replaces the events before it.
    fn restore(&mut self, start: Start);

    /// Processes the next events; `first` is the number of the first one.
    fn events(&mut self, first: u64, events: &[Event]) -> Result<(), Self::Failure>;

    /// Marks the end of the past: `first` is the number of the first live event. Called once.
    fn go_live(&mut self, _first: u64) {}

    /// Called before the next events if more than half of the ring waits for this reader.
    fn fall_behind(&mut self) {}

    /// Waits up to `wait` for a socket or the wake-up, serves the sockets and does due tasks.
    fn serve(&mut self, wait: Duration) -> Result<(), Self::Failure>;

    /// Returns how long [`Output::serve`] may wait when there are no events; 0 if work is left.
    fn patience(&self) -> Duration;

    /// Returns whether events must be processed immediately. Otherwise they may gather for some milliseconds, which costs less.
    fn is_urgent(&self) -> bool;

    /// Called when there are no events, before the thread sleeps: for work that can wait.
    fn spare_time(&mut self) {}

    /// Ends the events: makes the records that waited for more of them.
    fn end(&mut self) {}

    /// After the end, returns how long the next [`Output::serve`] may wait, or `None` when the output has finished.
    fn linger(&self) -> Option<Duration> {
        None
    }

    /// Publishes its counters; `ring_lag` is the number of events in the ring that are not processed yet.
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
