//! Strategies for waiting on another core, chosen by type.
//!
//! | strategy | reacts within | costs while it waits | for |
//! | --- | --- | --- | --- |
//! | [`BusySpin`] | a cache miss | a whole core | a thread pinned to its own core |
//! | [`Yielding`] | a cache miss, or a scheduler turn | a core, unless another thread can run | more threads than cores |
//! | [`Backoff`] | 0 to 100 us, see below | little | many quiet queues |
//! | [`Park`] | a kernel wake-up, about 5 to 50 us | nothing | rare events |
//!
//! A queue takes its strategy as a type parameter, so the compiler removes code the strategy does not need, such as waking a
//! sleeper. Polling strategies need no notification from the other end. Only [`Park`] does, which costs every publication a
//! fence.
//!
//! # Growth of the back-off
//! A back-off that doubles its sleep on each look reaches 200 ms within 18 looks, and the first message after a quiet second
//! waits that long. [`Backoff`] spins, then yields, then sleeps, starting at 1 us and growing by an eighth per look up to 100 us.
//! An event is therefore noticed late by about an eighth of the waiting time, and never by more than that bound plus the kernel's
//! timer slack (50 us by default: `PR_SET_TIMERSLACK`). `tapeworks lab run waiting` prints the curve for several growth rates.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence, pause};

/// The name of a strategy, for choosing one at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Wait {
    /// Polls continuously and occupies a whole core.
    BusySpin,
    /// Yields the core to other threads between polls.
    Yielding,
    /// Spins, yields, then sleeps a little longer each time, up to 100 us.
    #[default]
    Backoff,
    /// Sleeps until it is woken. A thread that reads files or sockets cannot be woken by them, so it backs off instead, as does a
    /// thread that waits for room.
    Park,
}

impl Wait {
    /// All strategies, the most eager first.
    pub const ALL: [Self; 4] = [Self::BusySpin, Self::Yielding, Self::Backoff, Self::Park];

    /// Returns the strategy's name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BusySpin => "busy_spin",
            Self::Yielding => "yielding",
            Self::Backoff => "backoff",
            Self::Park => "park",
        }
    }
}

/// Waits until a condition holds, and is notified when it may hold.
pub trait WaitStrategy: Send + Sync {
    /// Returns when `is_ready` returns true. Calls it at least once.
    fn wait_until(&self, is_ready: impl FnMut() -> bool);

    /// Notifies waiting threads after a change was published. Polling strategies do nothing.
    #[inline(always)]
    fn notify(&self) {}

    /// Like [`notify`](Self::notify), with the kind of change. A strategy that records what each thread waits for can leave the
    /// others asleep.
    #[inline(always)]
    fn notify_of(&self, _news: News) {
        self.notify();
    }
}

/// A change in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Events were published.
    Published,
    /// The `n`th declared consumer, counting from 0, is done with events, so its followers may read them.
    Done(usize),
    /// A consumer is done with events, so producers may have room.
    Room,
}

/// A look that finds fewer items than this did not find a steady stream.
const LEAST_OF_STREAM: usize = 4;

/// Rests before a consumer looks at its producer again: one pause per item the last look found, at most 64. A look that found
/// several items found the producer at work. Each look takes the counter's cache line away from the producer, which costs more
/// the further apart the cores are.
///
/// There is no rest after fewer than four items, because the next one may be urgent. Nor is there one after a quarter of the
/// ring: looks are then rare enough, and the producer is about to run out of room.
#[inline(always)]
pub(crate) fn rest_after(found: usize, capacity: usize) {
    if !(LEAST_OF_STREAM..capacity / 4).contains(&found) {
        return;
    }
    for _ in 0..found.min(64) {
        pause();
    }
}

/// Looks up to `looks` times, calling `between` after each failed look. Returns whether a look succeeded.
#[inline(always)]
fn became_ready(looks: u32, is_ready: &mut impl FnMut() -> bool, between: impl Fn()) -> bool {
    for _ in 0..looks {
        if is_ready() {
            return true;
        }
        between();
    }
    false
}

/// Polls continuously.
#[derive(Clone, Copy, Default, Debug)]
pub struct BusySpin;

impl WaitStrategy for BusySpin {
    #[inline(always)]
    fn wait_until(&self, mut is_ready: impl FnMut() -> bool) {
        while !is_ready() {
            pause();
        }
    }
}

/// Polls continuously at first, then yields the core between looks.
#[derive(Clone, Copy, Debug)]
pub struct Yielding {
    /// Looks before the first yield.
    pub spins: u32,
}

impl Default for Yielding {
    fn default() -> Self {
        Self { spins: 100 }
    }
}

impl WaitStrategy for Yielding {
    #[inline]
    fn wait_until(&self, mut is_ready: impl FnMut() -> bool) {
        if became_ready(self.spins, &mut is_ready, pause) {
            return;
        }
        while !is_ready() {
            std::thread::yield_now();
        }
    }
}

/// Spins, yields, then sleeps a little longer each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// Looks before the first yield.
    pub spins: u32,
    /// Yields before the first sleep.
    pub yields: u32,
    /// The first sleep.
    pub least: Duration,
    /// The longest sleep.
    pub most: Duration,
    /// The fraction by which each sleep exceeds the previous one: 8 adds an eighth, 1 doubles it.
    pub growth: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            spins: 200,
            yields: 20,
            least: Duration::from_micros(1),
            most: Duration::from_micros(100),
            growth: 8,
        }
    }
}

impl Backoff {
    /// Returns the sleeps in order, repeating the last one forever.
    pub fn sleeps(&self) -> impl Iterator<Item = Duration> + use<> {
        let Self { least, most, growth, .. } = *self;
        std::iter::successors(Some(least.min(most)), move |sleep| {
            let longer = *sleep + (*sleep / growth.max(1)).max(Duration::from_nanos(1));
            Some(longer.min(most))
        })
    }

    /// Returns the worst delay in noticing an event after a wait of `waited`: the current sleep, without timer slack.
    pub fn lateness(&self, waited: Duration) -> Duration {
        let mut slept = Duration::ZERO;
        for sleep in self.sleeps() {
            slept += sleep;
            if slept >= waited || sleep >= self.most {
                return sleep;
            }
        }
        self.most
    }
}

impl WaitStrategy for Backoff {
    #[inline]
    fn wait_until(&self, mut is_ready: impl FnMut() -> bool) {
        if became_ready(self.spins, &mut is_ready, pause) {
            return;
        }
        if became_ready(self.yields, &mut is_ready, std::thread::yield_now) {
            return;
        }
        for sleep in self.sleeps() {
            if is_ready() {
                return;
            }
            std::thread::sleep(sleep);
        }
    }
}

/// Sleeps in the kernel until notified (a futex on Linux).
///
/// [`notify`](WaitStrategy::notify) costs a fence, and a system call only while a thread sleeps.
#[derive(Debug)]
pub struct Park {
    /// Looks before the first sleep.
    pub spins: u32,
    /// Changes with every notification that finds a sleeper.
    turns: AtomicU32,
    sleepers: AtomicU32,
    futex: futex::Futex,
}

impl Default for Park {
    fn default() -> Self {
        Self::new(200)
    }
}

impl Park {
    /// Creates a strategy that looks `spins` times before it sleeps.
    pub fn new(spins: u32) -> Self {
        Self { spins, turns: AtomicU32::new(0), sleepers: AtomicU32::new(0), futex: futex::Futex::new() }
    }
}

impl WaitStrategy for Park {
    #[inline]
    fn wait_until(&self, mut is_ready: impl FnMut() -> bool) {
        if became_ready(self.spins, &mut is_ready, pause) {
            return;
        }
        loop {
            // The order matters: read the turn, register as a sleeper, look again, and sleep unless the turn has changed. The
            // look sees any change published before the notifier reads the sleeper count. After a later change, the notifier
            // finds this sleeper counted and changes the turn.
            let turn = self.turns.load(Ordering::Acquire);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let ready = is_ready();
            if !ready {
                self.futex.wait(&self.turns, turn);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if ready || is_ready() {
                return;
            }
        }
    }

    #[inline]
    fn notify(&self) {
        // Orders the publication before the count. Without it, each side could miss the other's write.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.turns.fetch_add(1, Ordering::SeqCst);
            self.futex.wake(&self.turns);
        }
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod futex {
    use super::AtomicU32;

    #[derive(Debug)]
    pub(super) struct Futex;

    impl Futex {
        pub(super) const fn new() -> Self {
            Self
        }

        /// Sleeps while `word` is `expected`. May return early.
        #[cold]
        pub(super) fn wait(&self, word: &AtomicU32, expected: u32) {
            // SAFETY: the word outlives the call, and a futex call without a timeout reads nothing else. On every outcome (woken,
            // interrupted, value changed) the call returns and the caller looks again.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    expected,
                    std::ptr::null::<libc::timespec>(),
                );
            }
        }

        /// Wakes all threads that sleep on `word`.
        #[cold]
        pub(super) fn wake(&self, word: &AtomicU32) {
            // SAFETY: the word outlives the call; waking touches no memory.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    i32::MAX,
                );
            }
        }
    }
}

#[cfg(any(not(target_os = "linux"), loom))]
mod futex {
    #[cfg(loom)]
    use loom::sync::{Condvar, Mutex};
    #[cfg(not(loom))]
    use std::sync::{Condvar, Mutex};

    use super::{AtomicU32, Ordering};

    /// A substitute built on a mutex and a condition variable, for systems without a futex.
    #[derive(Debug)]
    pub(super) struct Futex {
        lock: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        pub(super) fn new() -> Self {
            Self { lock: Mutex::new(()), woken: Condvar::new() }
        }

        pub(super) fn wait(&self, word: &AtomicU32, expected: u32) {
            let Ok(mut held) = self.lock.lock() else { return };
            while word.load(Ordering::SeqCst) == expected {
                let Ok(again) = self.woken.wait(held) else { return };
                held = again;
            }
        }

        pub(super) fn wake(&self, _word: &AtomicU32) {
            drop(self.lock.lock());
            self.woken.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn hears_of_a_change(strategy: &impl WaitStrategy) {
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| strategy.wait_until(|| changed.load(Ordering::Acquire)));
            std::thread::sleep(Duration::from_millis(2));
            changed.store(true, Ordering::Release);
            strategy.notify();
        });
    }

    #[test]
    fn every_strategy_hears_of_a_change() {
        hears_of_a_change(&BusySpin);
        hears_of_a_change(&Yielding::default());
        hears_of_a_change(&Backoff::default());
        hears_of_a_change(&Park::default());
        hears_of_a_change(&Park::new(0));
    }

    #[test]
    fn the_sleeps_of_a_back_off_grow_to_their_bound_and_stay_there() {
        let backoff = Backoff::default();
        let sleeps: Vec<_> = backoff.sleeps().take(200).collect();
        assert_eq!(sleeps[0], backoff.least);
        assert!(
            sleeps
                .windows(2)
                .all(|pair| pair[0] <= pair[1] && pair[1] <= pair[0] * 9 / 8 + Duration::from_nanos(1))
        );
        assert_eq!(sleeps[199], backoff.most);
    }

    #[test]
    fn a_back_off_is_late_by_an_eighth_of_the_wait_and_a_doubling_one_by_half() {
        let gentle = Backoff { most: Duration::from_secs(1), ..Backoff::default() };
        let doubling = Backoff { growth: 1, ..gentle };
        let waited = Duration::from_millis(100);
        assert!(gentle.lateness(waited) <= waited / 8, "{:?}", gentle.lateness(waited));
        assert!(doubling.lateness(waited) >= waited / 2, "{:?}", doubling.lateness(waited));
        assert_eq!(Backoff::default().lateness(Duration::from_secs(5)), Duration::from_micros(100));
    }

    #[test]
    fn growths_and_bounds_of_nothing_do_not_hang() {
        let none = Backoff { least: Duration::ZERO, most: Duration::ZERO, growth: 0, ..Backoff::default() };
        assert_eq!(none.lateness(Duration::from_secs(1)), Duration::ZERO);
        hears_of_a_change(&none);
    }
}
