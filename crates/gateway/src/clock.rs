//! Both clocks: the time of day as it passes, and what cannot be set.
//!
//! The time of day goes on with the clock that cannot be set, and follows the system's slowly. Where somebody sets the system's clock, the
//! sessions learn by how much: no time has passed by that.

use std::marker::PhantomData;
use std::time::Instant;

use tapeworks_runtime::world::World;

/// The system's clock was set if the two differ by so much, in nanoseconds.
const MOST_APART_NS: u64 = 100_000_000;

/// How far the time of day follows in one step, in nanoseconds.
const STEP_NS: i64 = 50_000;

/// Both times of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The time of day, in UTC nanoseconds.
    pub utc_ns: u64,
    /// The time of a clock that cannot be set, in nanoseconds.
    pub steady_ns: u64,
}

/// The clocks of a gateway.
#[derive(Debug)]
pub(crate) struct Clock<W> {
    began: Instant,
    /// The time of day when it began, as far as is known now.
    began_utc_ns: u64,
    world: PhantomData<W>,
}

impl<W: World> Clock<W> {
    pub(crate) fn new() -> Self {
        Self { began: W::instant(), began_utc_ns: W::time_of_day().0, world: PhantomData }
    }

    /// When it began, by the clock that cannot be set.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// Both times.
    pub(crate) fn now(&self) -> Now {
        let steady_ns = u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX);
        Now { utc_ns: self.began_utc_ns.saturating_add(steady_ns), steady_ns }
    }

    /// Follows the system's clock. Returns how far ahead that was set, in nanoseconds, if it was. A caller does it some times a second.
    pub(crate) fn follow(&mut self) -> Option<i64> {
        let (ours, system) = (self.now().utc_ns, W::time_of_day().0);
        let ahead_ns = system.wrapping_sub(ours).cast_signed();
        let was_set = ahead_ns.unsigned_abs() >= MOST_APART_NS;
        let step = if was_set { ahead_ns } else { ahead_ns.clamp(-STEP_NS, STEP_NS) };
        self.began_utc_ns = self.began_utc_ns.saturating_add_signed(step);
        was_set.then_some(ahead_ns)
    }
}
