//! The way to wait that the configuration chose.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use tapeworks_ring::wait::Wait;
use tapeworks_ring::wait::{Backoff, BusySpin, News, Park, WaitStrategy, Yielding};

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
    /// As `Park`, for threads that wait for more than one thing: see [`WakeUp`]. Each comes with the news that wakes it.
    WakeUps(Arc<[(News, Arc<WakeUp>)]>),
}

impl Waiting {
    /// The strategy of this name; parked threads are woken by these wake-ups, each for the news beside it. `notify` without
    /// news wakes all of them.
    pub fn with_wake_ups(wait: Wait, wake_ups: &[(News, Arc<WakeUp>)]) -> Self {
        if wait == Wait::Park { Self::WakeUps(wake_ups.into()) } else { Self::new(wait) }
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
            // A thread that waits here without a wake-up waits for room, which is rare.
            Self::WakeUps(_) => Backoff::default().wait_until(is_ready),
        }
    }

    #[inline]
    fn notify(&self) {
        match self {
            Self::Park(strategy) => strategy.notify(),
            Self::WakeUps(wake_ups) => {
                // Either the sleeper sees what was written, or this thread sees `is_asleep`: both fence between write
                // and read.
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

/// Wakes a thread that waits for several things at once: events, sockets, time.
///
/// The thread says that it will sleep ([`WakeUp::arm`]), looks once more, and sleeps in its own system call, for a bounded time;
/// a publisher wakes it. A publication costs a fence, and a call of the kernel only while the thread sleeps.
#[derive(Debug, Default)]
pub struct WakeUp {
    is_asleep: AtomicBool,
    sleeper: OnceLock<Sleeper>,
}

#[derive(Debug)]
enum Sleeper {
    Thread(Thread),
    Poll(mio::Waker),
}

impl WakeUp {
    /// It is for this thread, which parks.
    pub fn is_for_this_thread(&self) {
        // A wake-up is given away once.
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

    /// Wakes the thread if it sleeps, after a write that it must see.
    #[inline]
    pub fn wake(&self) {
        // Either the sleeper sees what was written, or this thread sees `is_asleep`: both fence between write and read.
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
                // A poll that cannot be woken wakes by its time.
                Some(Sleeper::Poll(waker)) => drop(waker.wake()),
                None => {}
            }
        }
    }
}

/// How long a thread without a client sleeps: it keeps up with the events, and takes no more of the processor.
pub const UNWATCHED: Duration = Duration::from_millis(5);

/// The longest sleep of a thread without a client in silence: its wake-up or its sockets wake it.
pub const QUIET: Duration = Duration::from_millis(50);

/// Whether a thread without a client may sleep so long: the ring, which has `lag` of its `capacity` events for it, is nearly empty.
pub const fn may_sleep_unwatched(lag: usize, capacity: usize) -> bool {
    lag < capacity / 16 && lag < 1_024
}

/// Pauses of a thread that waits for several things at once, none of which wakes it.
#[derive(Debug)]
pub struct Idle {
    wait: Wait,
    looks: u32,
}

/// Looks in vain before the first sleep.
const LOOKS: u32 = 1_000;

/// The longest sleep.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

impl Idle {
    /// Rests as `wait` says.
    pub const fn new(wait: Wait) -> Self {
        Self { wait, looks: 0 }
    }

    /// There was something.
    pub const fn worked(&mut self) {
        self.looks = 0;
    }

    /// There was nothing.
    pub fn rest(&mut self) {
        match self.wait {
            Wait::BusySpin => std::hint::spin_loop(),
            Wait::Yielding => std::thread::yield_now(),
            Wait::Backoff | Wait::Park => {
                self.looks = self.looks.saturating_add(1);
                if self.looks < LOOKS {
                    std::hint::spin_loop();
                } else {
                    // Sleeps become longer the longer it waits.
                    std::thread::sleep(
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
        let [journal, reader] = [(); 2].map(|()| Arc::new(WakeUp::default()));
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
