//! Measures the service time of each message.
//!
//! A server that needs less than the time between two messages never builds a queue; what matters is the time from one message's
//! completion to the next one's. A batch shares the work of decoding and looking ahead, and that share is spread evenly over its
//! messages: `time(i) = own(i) + shared / n`, where `own(i)` is the time between the i-th completion and the one before, and
//! `shared` is the excess of the first completion over the mean of the others.
//!
//! Cost: one read of the time-stamp counter per message of a measured batch (included in the figures), nothing otherwise.

use hdrhistogram::Histogram;
use quanta::Clock;

/// The longest time that the histogram records, in ns.
const LONGEST_NS: u64 = 10_000_000_000;

/// Measures batches and collects the service times of their messages.
#[derive(Debug)]
pub struct ServiceTimer {
    clock: Clock,
    /// Time stamps of the batch being measured: its start, then each completion.
    stamps: Vec<u64>,
    is_running: bool,
    histogram: Histogram<u64>,
}

impl Default for ServiceTimer {
    fn default() -> Self {
        Self::new()
    }
}

impl ServiceTimer {
    /// Creates a timer without measurements.
    #[expect(clippy::missing_panics_doc, reason = "the bounds are constants within the histogram's own")]
    #[expect(clippy::expect_used, reason = "the bounds are constants within the histogram's own")]
    pub fn new() -> Self {
        Self {
            clock: Clock::new(),
            stamps: Vec::with_capacity(1 << 16),
            is_running: false,
            histogram: Histogram::new_with_bounds(1, LONGEST_NS, 3)
                .expect("1 < bound and 3 digits are valid"),
        }
    }

    /// Starts a batch.
    #[inline]
    pub fn begin(&mut self) {
        self.stamps.clear();
        self.stamps.push(self.clock.raw());
        self.is_running = true;
    }

    /// Records the completion of a message.
    #[inline]
    pub fn complete(&mut self) {
        if self.is_running && self.stamps.len() < self.stamps.capacity() {
            self.stamps.push(self.clock.raw());
        }
    }

    /// Ends the batch and records the times of its messages.
    pub fn end(&mut self) {
        self.is_running = false;
        let messages = self.stamps.len() as u64 - 1;
        let (Some(start), Some(first), Some(last)) =
            (self.stamps.first(), self.stamps.get(1), self.stamps.last())
        else {
            return;
        };
        let ns = |from: u64, to: u64| self.clock.delta_as_nanos(from, to);
        let first_ns = ns(*start, *first);
        let mean_own = ns(*first, *last).checked_div(messages - 1).unwrap_or(first_ns);
        let share = first_ns.saturating_sub(mean_own) / messages;
        self.histogram.saturating_record((first_ns.min(mean_own) + share).max(1));
        for pair in self.stamps.get(1..).unwrap_or_default().windows(2) {
            self.histogram.saturating_record((ns(pair[0], pair[1]) + share).max(1));
        }
    }

    /// Returns the service times, in ns.
    pub const fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_times_of_a_batch_add_up_to_its_length() {
        let (clock, mock) = Clock::mock();
        let mut timer = ServiceTimer { clock, ..ServiceTimer::new() };
        timer.begin();
        // 64 shared and 10 own, then 30, then 20.
        for ns in [74, 30, 20] {
            mock.increment(Duration::from_nanos(ns));
            timer.complete();
        }
        timer.end();
        let total: f64 = timer
            .histogram()
            .iter_recorded()
            .map(|bin| (bin.value_iterated_to() * bin.count_at_value()) as f64)
            .sum();
        assert_eq!(timer.histogram().len(), 3);
        assert!((total - 124.0).abs() <= 3.0, "{total}");
    }

    #[test]
    fn a_batch_of_no_or_one_message_is_measured_too() {
        let (clock, mock) = Clock::mock();
        let mut timer = ServiceTimer { clock, ..ServiceTimer::new() };
        timer.begin();
        timer.end();
        assert_eq!(timer.histogram().len(), 0);
        timer.begin();
        mock.increment(Duration::from_nanos(50));
        timer.complete();
        timer.end();
        assert_eq!(timer.histogram().max(), 50);
        timer.complete();
        assert_eq!(timer.histogram().len(), 1, "nothing is measured between batches");
    }
}
