//! How to wait for another core: by type.
//!
//! | strategy | reacts within | costs while it waits | for |
//! | --- | --- | --- | --- |
//! | [`BusySpin`] | a cache miss | the whole core | a pinned core of its own |
//! | [`Yielding`] | a cache miss, or a turn of the scheduler | the core, unless another thread can run | more threads than cores |
//! | [`Backoff`] | 0 to 100 us, see below | little | many quiet queues |
//! | [`Park`] | a wake-up by the kernel, some 5 to 50 us | nothing | what is rare |
//!
//! A queue takes its strategy as a type parameter: the loop is compiled for it, and code that a strategy does not need (waking
//! the sleeper) is compiled away. Strategies that poll need no notification from the other end; only [`Park`] does, which costs
//! every publication a fence.
//!
//! # The steps of a back-off
//! A back-off that doubles its sleep at each look reaches 200 ms within 18 looks, and the first message after a quiet second
//! waits for as long. [`Backoff`] spins, then yields, then sleeps from 1 us on and grows by an eighth a look up to a bound of
//! 100 us: an event is noticed late by about an eighth of the waiting time, and never by more than the bound and the kernel's
//! extra sleep (50 us by default: `PR_SET_TIMERSLACK`). `tapeworks lab run waiting` prints the curve for several growths.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence, pause};

/// The name of a strategy, where it is chosen at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Wait {
    /// Looks again at once: the whole core.
    BusySpin,
    /// Lets other threads have the core between looks.
    Yielding,
    /// Spins, yields, then sleeps a little longer each time, up to 100 us.
    #[default]
    Backoff,
    /// Sleeps until it is woken. A thread that reads files or sockets cannot be woken by them and backs off instead; so
    /// does one that waits for room.
    Park,
}

impl Wait {
    /// Every strategy, from the most eager.
    pub const ALL: [Self; 4] = [Self::BusySpin, Self::Yielding, Self::Backoff, Self::Park];

    /// Its name in the configuration.
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
    /// Returns when `is_ready` says so. It is called at least once.
    fn wait_until(&self, is_ready: impl FnMut() -> bool);

    /// Notifies waiting threads after a change has been published. Nothing for strategies that
    /// poll.
    #[inline(always)]
    fn notify(&self) {}

    /// As [`notify`](Self::notify), with what has changed: a strategy that records what each thread waits for need not
    /// wake the others.
    #[inline(always)]
    fn notify_of(&self, _news: News) {
        self.notify();
    }
}

/// What has changed at a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Events were published.
    Published,
    /// The consumer that was declared as the `0`th, `1`st, ... is done with events: those that follow it may read them.
    Done(usize),
    /// A consumer is done with events: producers may have room.
    Room,
}

/// A look that found fewer items found no stream of them.
const LEAST_OF_STREAM: usize = 4;

/// A rest before a consumer looks at its producer again: a pause for every item that the last look found, and 64 pauses at most. A
/// look that found several found the producer at work, and each look takes the counter's line away from it, which costs more the
/// further the cores are apart.
///
/// A look that found fewer than four is followed by no rest: the next item may be one that somebody waits for. Nor is one that found a
/// quarter of the ring: looks are rare enough then, and the producer is about to stop for want of room.
#[inline(always)]
pub(crate) fn rest_after(found: usize, capacity: usize) {
    if !(LEAST_OF_STREAM..capacity / 4).contains(&found) {
        return;
    }
    for _ in 0..found.min(64) {
        pause();
    }
}

/// Looks up to `looks` times, and calls `between` after each failed look. Returns whether one succeeded.
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

/// Looks again at once.
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

/// Looks again at once for a while, then yields the core to other threads between looks.
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

/// Spins, yields, then sleeps, each time a little longer.
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
    /// A sleep is longer than the one before by this part of it: 8 for an eighth, 1 for twice.
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
    /// The sleeps in their order, without end: the last is repeated.
    pub fn sleeps(&self) -> impl Iterator<Item = Duration> + use<> {
        let Self { least, most, growth, .. } = *self;
        std::iter::successors(Some(least.min(most)), move |sleep| {
            let longer = *sleep + (*sleep / growth.max(1)).max(Duration::from_nanos(1));
            Some(longer.min(most))
        })
    }

    /// The most that an event is noticed late after a wait of `waited`, without the kernel's extra sleep: the current sleep.
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

/// Sleeps in the kernel until it is notified (a futex on Linux).
///
/// [`notify`](WaitStrategy::notify) costs a fence, and a call of the kernel only while a thread sleeps.
#[derive(Debug)]
pub struct Park {
    /// Looks before the first sleep.
    pub spins: u32,
    /// Changes with every notification that found a sleeper.
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
    /// Looks `spins` times before it sleeps.
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
            // The order matters: read the turn, become a sleeper, look once more, sleep unless the turn has changed. A
            // change published before the notifier counts the sleepers is seen by the look; one published after finds
            // this sleeper counted and ends the turn.
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
        // Between the publication and the count: without it both sides could read the value from before the other's write.
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
            // SAFETY: the word outlives the call, and a futex call without a time limit reads nothing else. Every outcome
            // (woken, interrupted, changed meanwhile) is a return, after which the caller looks again.
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

        /// Wakes all who sleep on `word`.
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

    /// The same by a mutex and a condition variable, where there is no futex.
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
