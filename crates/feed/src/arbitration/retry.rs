//! Repeats requests for given-up messages until they arrive.
//!
//! A server that is away for seconds answers nothing in the time that a gap may take, and the gap is given up. The channel stays
//! stale, so the messages are requested again, with pauses that double from [`FIRST_PAUSE_NS`] to [`LONGEST_PAUSE_NS`]. An answer
//! that brings one of them starts over with the next messages. They come late: they narrow the staleness to their instruments.

use std::ops::Range;

use tapeworks_time::{ClockChange, Nanos};

use crate::ranges::Ranges;

/// The pause before the first request, in ns.
const FIRST_PAUSE_NS: u64 = 100_000_000;

/// The longest pause between two requests, in ns.
const LONGEST_PAUSE_NS: u64 = 10_000_000_000;

/// Messages that are requested again.
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
    /// Messages are given up that the server may still have.
    pub(super) fn add(&mut self, numbers: Range<u64>, now: Nanos) {
        self.numbers.insert(numbers);
        self.schedule(now, FIRST_PAUSE_NS);
    }

    fn schedule(&mut self, now: Nanos, pause_ns: u64) {
        (self.due, self.pause_ns) = (Some(Nanos(now.0.saturating_add(pause_ns))), pause_ns);
    }

    /// Messages came, or the server does not have them any more.
    pub(super) fn remove(&mut self, numbers: &Range<u64>, now: Nanos) {
        if self.numbers.end_by(numbers.start) || self.numbers.remove_within_limit(numbers.clone()).0 == 0 {
            return;
        }
        if self.numbers.first().is_none() {
            self.clear();
        } else {
            // The server is there: the next messages are requested with the next tick.
            (self.due, self.pause_ns) = (Some(now), FIRST_PAUSE_NS);
        }
    }

    /// Whether some of the numbers are requested again.
    pub(super) fn awaits(&self, numbers: &Range<u64>) -> bool {
        self.numbers.first_in(numbers).is_some()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// When a request is due.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Time has come to `now`.
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

    /// The request to send now.
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
