//! Repeats requests for given-up messages until they arrive.
//!
//! A server that is down for seconds answers nothing within a gap's time limit, and the gap is given up. The channel stays stale,
//! so the messages are requested again, with pauses that double from [`FIRST_PAUSE_NS`] to [`LONGEST_PAUSE_NS`]. After an answer
//! that brings one of them, the next messages are requested and the pause starts over. These messages arrive late: they narrow
//! the staleness to their instruments.

use std::ops::Range;

use tapeworks_time::{ClockChange, Nanos};

use crate::ranges::Ranges;

/// Pause before the first request, in ns.
const FIRST_PAUSE_NS: u64 = 100_000_000;

/// Longest pause between two requests, in ns.
const LONGEST_PAUSE_NS: u64 = 10_000_000_000;

/// Given-up messages that are requested again.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(super) struct Retry {
    numbers: Ranges,
    /// When the next request is due; `None` while nothing is missing.
    due: Option<Nanos>,
    pause_ns: u64,
    /// The request to send now.
    ready: Option<Range<u64>>,
}

impl Retry {
    /// Adds given-up messages that the server may still have.
    pub(super) fn add(&mut self, numbers: Range<u64>, now: Nanos) {
        self.numbers.insert(numbers);
        self.schedule(now, FIRST_PAUSE_NS);
    }

    fn schedule(&mut self, now: Nanos, pause_ns: u64) {
        (self.due, self.pause_ns) = (Some(Nanos(now.0.saturating_add(pause_ns))), pause_ns);
    }

    /// Removes messages that have arrived, or that the server no longer has.
    pub(super) fn remove(&mut self, numbers: &Range<u64>, now: Nanos) {
        if self.numbers.end_by(numbers.start) || self.numbers.remove_within_limit(numbers.clone()).0 == 0 {
            return;
        }
        if self.numbers.first().is_none() {
            self.clear();
        } else {
            // The server is up: request the next messages on the next tick.
            (self.due, self.pause_ns) = (Some(now), FIRST_PAUSE_NS);
        }
    }

    /// Returns whether any of the numbers are being requested again.
    pub(super) fn awaits(&self, numbers: &Range<u64>) -> bool {
        self.numbers.first_in(numbers).is_some()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns when the next request is due.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Prepares the next request if it is due at `now`.
    pub(super) fn advance(&mut self, now: Nanos, messages_per_request: u16) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let Some(first) = self.numbers.first() else { return self.clear() };
        let bounds = first..first.saturating_add(u64::from(messages_per_request));
        self.ready = self.numbers.first_in(&bounds);
        let next_pause_ns = self.pause_ns.saturating_mul(2).clamp(FIRST_PAUSE_NS, LONGEST_PAUSE_NS);
        self.schedule(now, self.pause_ns);
        self.pause_ns = next_pause_ns;
    }

    /// Takes the request to send now.
    pub(super) const fn take(&mut self) -> Option<Range<u64>> {
        self.ready.take()
    }

    pub(super) fn clock_was_set(&mut self, change: ClockChange) {
        self.due.iter_mut().for_each(|due| *due = change.moved(*due));
    }

    #[cfg(feature = "serde")]
    pub(super) fn is_sound(&self) -> bool {
        self.numbers.is_sound()
    }
}
