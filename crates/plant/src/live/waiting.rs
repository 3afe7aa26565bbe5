//! The way to wait that the configuration chose.

use tapeworks_flow::graph::Wait;
use tapeworks_ring::wait::{Backoff, BusySpin, Park, WaitStrategy, Yielding};

/// A wait strategy chosen at run time.
#[derive(Debug)]
pub enum Waiting {
    /// Looks again at once.
    BusySpin(BusySpin),
    /// Lets others have the core between looks.
    Yielding(Yielding),
    /// Spins, yields, sleeps.
    Backoff(Backoff),
    /// Sleeps until it is woken.
    Park(Park),
}

impl Waiting {
    /// The strategy of this name.
    pub fn new(wait: Wait) -> Self {
        match wait {
            Wait::BusySpin => Self::BusySpin(BusySpin),
            Wait::Yielding => Self::Yielding(Yielding::default()),
            Wait::Backoff => Self::Backoff(Backoff::default()),
            Wait::Park => Self::Park(Park::default()),
        }
    }
}

impl WaitStrategy for Waiting {
    #[inline]
    fn wait_until(&self, is_ready: impl FnMut() -> bool) {
        match self {
            Self::BusySpin(strategy) => strategy.wait_until(is_ready),
            Self::Yielding(strategy) => strategy.wait_until(is_ready),
            Self::Backoff(strategy) => strategy.wait_until(is_ready),
            Self::Park(strategy) => strategy.wait_until(is_ready),
        }
    }

    #[inline]
    fn notify(&self) {
        if let Self::Park(strategy) = self {
            strategy.notify();
        }
    }
}
