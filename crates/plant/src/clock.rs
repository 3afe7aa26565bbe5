//! Notices that someone sets the clock of the day.
//!
//! Packets have the kernel's time of day, and what is due is reckoned by it. The other clock cannot be set: where the two drift
//! apart, the first was set, stands still or runs wrong.

use std::marker::PhantomData;
use std::time::Instant;

use tapeworks_market::Nanos;
use tapeworks_runtime::world::World;

/// The clocks may differ by so much, in ns. A clock that is slewed gains or loses little more than this in minutes.
pub(super) const MOST_APART: u64 = 100_000_000;

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
