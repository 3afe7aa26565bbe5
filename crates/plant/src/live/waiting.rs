//! The way to wait that the configuration chose.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
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
    /// As `Park`, for those who wait for more than one thing: see [`Bell`].
    Bells(Arc<[Arc<Bell>]>),
}

impl Waiting {
    /// The strategy of this name; who parks is woken by these bells.
    pub fn with_bells(wait: Wait, bells: &[Arc<Bell>]) -> Self {
        if wait == Wait::Park { Self::Bells(bells.into()) } else { Self::new(wait) }
    }

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
            // Whoever waits here and not by its bell waits for room, which is rare.
            Self::Bells(_) => Backoff::default().wait_until(is_ready),
        }
    }

    #[inline]
    fn notify(&self) {
        match self {
            Self::Park(strategy) => strategy.notify(),
            Self::Bells(bells) => {
                // What was published is seen by who looks after it said that it sleeps, or its word is seen here.
                fence(Ordering::SeqCst);
                bells.iter().for_each(|bell| bell.ring());
            }
            _ => {}
        }
    }
}

/// Wakes a thread that waits for several things at once: events, sockets, time.
///
/// The thread says that it will sleep ([`Bell::arm`]), looks once more, and sleeps in whatever it waits by, for a bounded time;
/// whoever publishes rings. Costs who publishes a fence, and a call of the kernel only while somebody sleeps.
#[derive(Debug, Default)]
pub struct Bell {
    is_asleep: AtomicBool,
    sleeper: OnceLock<Sleeper>,
}

#[derive(Debug)]
enum Sleeper {
    Thread(Thread),
    Poll(mio::Waker),
}

impl Bell {
    /// It is for this thread, which parks.
    pub fn is_for_this_thread(&self) {
        // A bell is given away once.
        let _twice = self.sleeper.set(Sleeper::Thread(std::thread::current()));
    }

    /// It is for a thread that polls sockets.
    pub fn is_for_poll(&self, waker: mio::Waker) {
        let _twice = self.sleeper.set(Sleeper::Poll(waker));
    }

    /// The thread is about to sleep, and looks once more before it does.
    pub fn arm(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake.
    pub fn disarm(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the thread if it sleeps.
    #[inline]
    fn ring(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::AcqRel) {
            match self.sleeper.get() {
                Some(Sleeper::Thread(thread)) => thread.unpark(),
                // A poll that cannot be woken wakes by its time.
                Some(Sleeper::Poll(waker)) => drop(waker.wake()),
                None => {}
            }
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
