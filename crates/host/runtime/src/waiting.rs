//! Wait strategies chosen by the configuration, and wake-ups.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tapeworks_ring::wait::Wait;
use tapeworks_ring::wait::{Backoff, BusySpin, News, Park, WaitStrategy, Yielding};

use crate::world::{System, Unpark as _, Wake as _, World};

/// A wait strategy chosen at run time.
#[derive(Debug)]
pub enum Waiting<W: World = System> {
    /// Polls continuously.
    BusySpin(BusySpin),
    /// Yields the core to other threads between polls.
    Yielding(Yielding),
    /// Spins, yields, then sleeps.
    Backoff(Backoff),
    /// Sleeps until it is woken.
    Park(Park),
    /// Like `Park`, for threads that wait for several things: see [`WakeUp`]. Each has the kind of news that wakes it.
    WakeUps(Arc<[(News, Arc<WakeUp<W>>)]>),
}

impl<W: World> Waiting<W> {
    /// Returns the strategy `wait`. If it parks, each wake-up wakes its thread for the news beside it, and `notify` without news
    /// wakes all.
    pub fn with_wake_ups(wait: Wait, wake_ups: &[(News, Arc<WakeUp<W>>)]) -> Self {
        if wait == Wait::Park { Self::WakeUps(wake_ups.into()) } else { Self::new(wait) }
    }

    /// Returns the strategy `wait`.
    pub fn new(wait: Wait) -> Self {
        match wait {
            Wait::BusySpin => Self::BusySpin(BusySpin),
            Wait::Yielding => Self::Yielding(Yielding::default()),
            Wait::Backoff => Self::Backoff(Backoff::default()),
            Wait::Park => Self::Park(Park::default()),
        }
    }
}

impl<W: World> WaitStrategy for Waiting<W> {
    #[inline]
    fn wait_until(&self, is_ready: impl FnMut() -> bool) {
        match self {
            Self::BusySpin(strategy) => W::wait_until(strategy, is_ready),
            Self::Yielding(strategy) => W::wait_until(strategy, is_ready),
            Self::Backoff(strategy) => W::wait_until(strategy, is_ready),
            Self::Park(strategy) => W::wait_until(strategy, is_ready),
            // A thread that waits here without a wake-up waits for room, which is rare.
            Self::WakeUps(_) => W::wait_until(&Backoff::default(), is_ready),
        }
    }

    #[inline]
    fn notify(&self) {
        match self {
            Self::Park(strategy) => strategy.notify(),
            Self::WakeUps(wake_ups) => {
                // Either the sleeper sees the write, or this thread sees `is_asleep`: both sides fence between write and read.
                fence(Ordering::SeqCst);
                wake_ups.iter().for_each(|(_, wake_up)| wake_up.wake_if_asleep());
            }
            _ => {}
        }
    }

    #[inline]
    fn notify_of(&self, news: News) {
        let Self::WakeUps(wake_ups) = self else { return self.notify() };
        // No thread waits for room by a wake-up.
        if news == News::Room {
            return;
        }
        fence(Ordering::SeqCst);
        wake_ups
            .iter()
            .filter(|(wanted, _)| *wanted == news)
            .for_each(|(_, wake_up)| wake_up.wake_if_asleep());
    }
}

/// Wakes a thread that waits for several things: events, sockets, time.
///
/// The thread announces that it will sleep ([`WakeUp::arm`]), looks once more, and sleeps in its own system call for a bounded
/// time. A publisher wakes it. A publication costs a fence, and a system call only while the thread sleeps.
#[derive(Debug)]
pub struct WakeUp<W: World = System> {
    is_asleep: AtomicBool,
    sleeper: OnceLock<Sleeper<W>>,
}

#[derive(Debug)]
enum Sleeper<W: World> {
    Thread(W::Thread),
    Poll(W::Waker),
}

impl<W: World> Default for WakeUp<W> {
    fn default() -> Self {
        Self { is_asleep: AtomicBool::new(false), sleeper: OnceLock::new() }
    }
}

impl<W: World> WakeUp<W> {
    /// Assigns this wake-up to the calling thread, which parks.
    pub fn is_for_this_thread(&self) {
        // A wake-up can be assigned only once.
        let _twice = self.sleeper.set(Sleeper::Thread(W::current()));
    }

    /// Assigns this wake-up to a thread that polls sockets.
    pub fn is_for_poll(&self, waker: W::Waker) {
        let _twice = self.sleeper.set(Sleeper::Poll(waker));
    }

    /// Marks the thread as about to sleep. The thread must look once more before it sleeps.
    pub fn arm(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the thread as awake.
    pub fn disarm(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the thread if it sleeps, after a write that it must see.
    #[inline]
    pub fn wake(&self) {
        // Either the sleeper sees the write, or this thread sees `is_asleep`: both sides fence between write and read.
        fence(Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// Wakes the thread if it sleeps.
    #[inline]
    fn wake_if_asleep(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake_sleeper();
        }
    }

    #[cold]
    fn wake_sleeper(&self) {
        if self.is_asleep.swap(false, Ordering::AcqRel) {
            match self.sleeper.get() {
                Some(Sleeper::Thread(thread)) => thread.unpark(),
                // A poll that cannot be woken ends by its timeout.
                Some(Sleeper::Poll(waker)) => drop(waker.wake()),
                None => {}
            }
        }
    }
}

/// How long a thread without clients sleeps, which is short enough to keep up with the events.
pub const UNWATCHED: Duration = Duration::from_millis(5);

/// The longest sleep of a thread without clients when there are no events. Its wake-up or its sockets end the sleep.
pub const QUIET: Duration = Duration::from_millis(50);

/// Returns whether a thread without clients may sleep that long: its backlog `lag` is a small part of the ring's `capacity`.
pub const fn may_sleep_unwatched(lag: usize, capacity: usize) -> bool {
    lag < capacity / 16 && lag < 1_024
}

/// Pauses of a thread that waits for several things, none of which wakes it.
#[derive(Debug)]
pub struct Idle<W: World = System> {
    wait: Wait,
    looks: u32,
    _world: PhantomData<W>,
}

/// Unsuccessful looks before the first sleep.
const LOOKS: u32 = 1_000;

/// The longest sleep.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

impl<W: World> Idle<W> {
    /// Creates pauses of strategy `wait`.
    pub const fn new(wait: Wait) -> Self {
        Self { wait, looks: 0, _world: PhantomData }
    }

    /// Resets the pauses after the thread found work.
    pub const fn worked(&mut self) {
        self.looks = 0;
    }

    /// Rests after the thread found no work.
    pub fn rest(&mut self) {
        match self.wait {
            Wait::BusySpin => W::pause(),
            Wait::Yielding => W::yield_now(),
            Wait::Backoff | Wait::Park => {
                self.looks = self.looks.saturating_add(1);
                if self.looks < LOOKS {
                    W::pause();
                } else {
                    // Sleeps grow with the waiting time.
                    W::sleep(
                        IDLE_SLEEP.min(Duration::from_nanos(u64::from(self.looks - LOOKS) * 500 + 1_000)),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_wakes_for_its_news_and_for_a_notice_to_all() {
        let [journal, reader] = [(); 2].map(|()| Arc::new(<WakeUp>::default()));
        let wake_ups = [(News::Published, Arc::clone(&journal)), (News::Done(0), Arc::clone(&reader))];
        let waiting = Waiting::with_wake_ups(Wait::Park, &wake_ups);
        let woken_by = |notify: &dyn Fn(&Waiting)| {
            journal.arm();
            reader.arm();
            notify(&waiting);
            [&journal, &reader].map(|wake_up| !wake_up.is_asleep.load(Ordering::Relaxed))
        };
        assert_eq!(woken_by(&|waiting| waiting.notify_of(News::Published)), [true, false]);
        assert_eq!(woken_by(&|waiting| waiting.notify_of(News::Done(0))), [false, true]);
        assert_eq!(woken_by(&|waiting| waiting.notify_of(News::Done(1))), [false, false]);
        assert_eq!(woken_by(&|waiting| waiting.notify_of(News::Room)), [false, false]);
        assert_eq!(woken_by(&Waiting::notify), [true, true]);
    }
}
