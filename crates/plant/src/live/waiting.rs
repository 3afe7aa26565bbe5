//! The way to wait that the configuration chose.

use std::time::Duration;

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

/// Rests of a thread that waits for several things at once, none of which wakes it.
#[derive(Debug)]
pub(super) struct Idle {
    wait: Wait,
    looks: u32,
}

/// Looks in vain before the first sleep.
const LOOKS: u32 = 1_000;

/// The longest sleep.
const NAP: Duration = Duration::from_micros(50);

impl Idle {
    pub(super) const fn new(wait: Wait) -> Self {
        Self { wait, looks: 0 }
    }

    /// There was something.
    pub(super) const fn worked(&mut self) {
        self.looks = 0;
    }

    /// There was nothing.
    pub(super) fn rest(&mut self) {
        match self.wait {
            Wait::BusySpin => std::hint::spin_loop(),
            Wait::Yielding => std::thread::yield_now(),
            Wait::Backoff | Wait::Park => {
                self.looks = self.looks.saturating_add(1);
                if self.looks < LOOKS {
                    std::hint::spin_loop();
                } else {
                    // Longer and longer, as it is waited for longer.
                    std::thread::sleep(
                        NAP.min(Duration::from_nanos(u64::from(self.looks - LOOKS) * 500 + 1_000)),
                    );
                }
            }
        }
    }
}
