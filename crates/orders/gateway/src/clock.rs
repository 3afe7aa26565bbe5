//! Both clocks of the gateway: the time of day, and a steady clock that cannot be set.
//!
//! The time of day advances with the steady clock and follows the system clock slowly. If somebody sets the system clock, the
//! sessions learn by how much, because no time has passed.

use std::marker::PhantomData;
use std::time::Instant;

use tapeworks_runtime::world::World;

/// Difference from which on the system clock counts as set, in nanoseconds.
const MOST_APART_NS: u64 = 100_000_000;

/// Largest correction of the time of day per step, in nanoseconds.
const STEP_NS: i64 = 50_000;

/// Both times of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The time of day, in UTC nanoseconds.
    pub utc_ns: u64,
    /// The time of the steady clock, in nanoseconds.
    pub steady_ns: u64,
}

/// The clocks of a gateway.
#[derive(Debug)]
pub(crate) struct Clock<W> {
    began: Instant,
    /// The time of day at the start, as now estimated.
    began_utc_ns: u64,
    world: PhantomData<W>,
}

impl<W: World> Clock<W> {
    pub(crate) fn new() -> Self {
        Self { began: W::instant(), began_utc_ns: W::time_of_day().0, world: PhantomData }
    }

    /// Returns when the clock started, by the steady clock.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// Returns both times.
    pub(crate) fn now(&self) -> Now {
        let steady_ns = u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX);
        Now { utc_ns: self.began_utc_ns.saturating_add(steady_ns), steady_ns }
    }

    /// Follows the system clock. Returns how far ahead it was set, in nanoseconds, if it was set. Call it several times a second.
    pub(crate) fn follow(&mut self) -> Option<i64> {
        let (ours, system) = (self.now().utc_ns, W::time_of_day().0);
        let ahead_ns = system.wrapping_sub(ours).cast_signed();
        let was_set = ahead_ns.unsigned_abs() >= MOST_APART_NS;
        let step = if was_set { ahead_ns } else { ahead_ns.clamp(-STEP_NS, STEP_NS) };
        self.began_utc_ns = self.began_utc_ns.saturating_add_signed(step);
        was_set.then_some(ahead_ns)
    }
}
