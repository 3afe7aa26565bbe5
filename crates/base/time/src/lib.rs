//! Nanoseconds since the UNIX epoch, and corrections of the clock that they come from.
//!
//! No function here reads a clock: times come with packets and requests, so that the same input gives the same result.

pub mod clock;

/// Nanoseconds since the UNIX epoch, UTC.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: u64 = 1_000_000_000;

    /// Converts the time to a clock that was set forward by `ahead_ns` (negative: back), saturating at the limits of 64 bits.
    pub const fn set_by(self, ahead_ns: i64) -> Self {
        Self(self.0.saturating_add_signed(ahead_ns))
    }

    /// Returns the nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A change of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockChange {
    /// The time that the clock now shows.
    pub now: Nanos,
    /// How far the clock was set forward, in ns (negative: back).
    pub ahead_ns: i64,
}

impl ClockChange {
    /// Converts a remembered time to the new clock.
    ///
    /// After the clock was set forward, packets may already carry its new times before the change is noticed. A time closer to the new
    /// clock than to the old one is therefore left alone. After the clock was set back, every time moves: until the change is noticed,
    /// each packet's time is at least that of the packet before it, so all remembered times are by the old clock.
    pub const fn moved(self, time: Nanos) -> Nanos {
        let before = self.now.set_by(self.ahead_ns.saturating_neg());
        if self.ahead_ns > 0 && time.0.abs_diff(self.now.0) < time.0.abs_diff(before.0) {
            time
        } else {
            time.set_by(self.ahead_ns)
        }
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_near_a_clock_set_forward_stay_and_all_others_move() {
        let change = ClockChange { now: Nanos(1_000), ahead_ns: 600 };
        assert_eq!(change.moved(Nanos(390)), Nanos(990), "by the old clock");
        assert_eq!(change.moved(Nanos(990)), Nanos(990), "by the new clock");
        let back = ClockChange { now: Nanos(400), ahead_ns: -600 };
        assert_eq!(back.moved(Nanos(990)), Nanos(390));
        assert_eq!(back.moved(Nanos(100)), Nanos(0), "before the epoch");
    }
}
