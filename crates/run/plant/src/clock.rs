//! Detects that someone has set the system clock.
//!
//! Packets carry the kernel's time of day, and deadlines are computed from it. The monotonic clock cannot be set: if the two drift
//! apart, the time of day was set, has stopped, or runs at the wrong rate.

use std::marker::PhantomData;
use std::time::Instant;

use tapeworks_runtime::world::World;
use tapeworks_time::Nanos;

/// Maximum difference between the clocks, in ns. A slewed clock gains or loses little more than this in minutes.
pub(super) const MOST_APART: u64 = 100_000_000;

/// The receive times of one source. They are in order unless someone sets the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveTimes {
    last: Nanos,
}

impl ReceiveTimes {
    pub(super) const NONE: Self = Self { last: Nanos(0) };

    /// Returns the time of the next datagram. A datagram with a time long before the previous one was stamped while the clock was
    /// set back, or the clock still is: the previous time is then closer to the truth and is returned, and `has_gone_back` becomes
    /// true.
    #[inline]
    pub(super) fn next(&mut self, received: Nanos, has_gone_back: &mut bool) -> Nanos {
        if received.0.saturating_add(MOST_APART) < self.last.0 {
            *has_gone_back = true;
            return self.last;
        }
        self.last = self.last.max(received);
        received
    }

    /// Adopts the set clock: it now reads `now`, and was set ahead by `ahead_ns`.
    pub(super) fn set(&mut self, now: Nanos, ahead_ns: i64) {
        self.last = Nanos(self.last.0.saturating_add_signed(ahead_ns)).min(now);
    }
}

/// The time of day, checked against a clock that cannot be set.
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

    /// Returns the time of day and by how many ns the clock was set ahead since the last such report; `None` if it was not set.
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
        // Two queues of a network card may be slightly out of order.
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
