//! Notices that someone sets the clock of the day.
//!
//! Packets have the kernel's time of day, and what is due is reckoned by it. The other clock cannot be set: where the two drift
//! apart, the first was set, stands still or runs wrong.

use std::marker::PhantomData;
use std::time::Instant;

use tapeworks_runtime::world::World;
use tapeworks_time::Nanos;

/// The clocks may differ by so much, in ns. A clock that is slewed gains or loses little more than this in minutes.
pub(super) const MOST_APART: u64 = 100_000_000;

/// The receive times of one source. They come in order while nobody sets the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveTimes {
    last: Nanos,
}

impl ReceiveTimes {
    pub(super) const NONE: Self = Self { last: Nanos(0) };

    /// The time of the next datagram. One that says a time long before the last one's was stamped while the clock was set back, or the clock
    /// still is: the last one's time is nearer to the truth, and `has_gone_back` becomes true.
    #[inline]
    pub(super) fn next(&mut self, received: Nanos, has_gone_back: &mut bool) -> Nanos {
        if received.0.saturating_add(MOST_APART) < self.last.0 {
            *has_gone_back = true;
            return self.last;
        }
        self.last = self.last.max(received);
        received
    }

    /// It is `now`, and the clock was set ahead by so many ns.
    pub(super) fn set(&mut self, now: Nanos, ahead_ns: i64) {
        self.last = Nanos(self.last.0.saturating_add_signed(ahead_ns)).min(now);
    }
}

/// The time of day beside a clock that cannot be set.
#[derive(Debug)]
pub(super) struct TimeOfDay<W> {
    time: Nanos,
    at: Instant,
    world: PhantomData<W>,
}

impl<W: World> TimeOfDay<W> {
    pub(super) fn new() -> Self {
        Self { time: W::time_of_day(), at: W::instant(), world: PhantomData }
    }

    /// How far ahead the clock was set since the last such report, in ns, and its time now.
    pub(super) fn was_set(&mut self) -> Option<(Nanos, i64)> {
        let (time, at) = (W::time_of_day(), W::instant());
        let passed = at.saturating_duration_since(self.at);
        let should = self.time.0.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
        if time.0.abs_diff(should) < MOST_APART {
            return None;
        }
        (self.time, self.at) = (time, at);
        Some((time, time.0.wrapping_sub(should).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_was_stamped_by_a_clock_set_back_has_the_time_of_the_one_before() {
        const SECOND: u64 = 1_000_000_000;
        let (mut times, seconds) = (ReceiveTimes::NONE, |count: u64| Nanos(count * SECOND));
        let next = |times: &mut ReceiveTimes, received| {
            let mut has_gone_back = false;
            (times.next(received, &mut has_gone_back), has_gone_back)
        };
        assert_eq!(next(&mut times, seconds(100)), (seconds(100), false));
        // Two queues of a card are a little out of order.
        let before = Nanos(100 * SECOND - MOST_APART);
        assert_eq!(next(&mut times, before), (before, false));
        assert_eq!(next(&mut times, seconds(10)), (seconds(100), true));
        assert_eq!(next(&mut times, seconds(101)), (seconds(101), false));
        // Set ahead for a while: the next true times are not too old.
        assert_eq!(next(&mut times, seconds(5_000)), (seconds(5_000), false));
        times.set(seconds(102), 0);
        assert_eq!(next(&mut times, seconds(102)), (seconds(102), false));
        // Stamped before the clock was set ahead, and read after.
        times.set(seconds(203), 100 * SECOND as i64);
        assert_eq!(next(&mut times, seconds(103)), (seconds(202), true));
    }
}
