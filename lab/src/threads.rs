//! Runs two threads simultaneously, each on its own core, and times them from their common start to the later end.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tapeworks_ring::cpu;

/// Polls before a waiting thread yields its core.
const LOOKS: u32 = 20_000;

/// The results of two threads.
#[derive(Clone, Copy, Debug)]
pub struct Together<A, B> {
    /// The time from their common start to the later end.
    pub took: Duration,
    /// The result of the first thread.
    pub one: A,
    /// The result of the second thread.
    pub two: B,
}

impl<A, B> Together<A, B> {
    /// Returns the nanoseconds per item.
    #[must_use]
    pub fn ns_for_each(&self, items: u64) -> f64 {
        self.took.as_nanos() as f64 / items.max(1) as f64
    }
}

/// Waits for another thread: polls immediately, and after many polls yields the core, because the other thread may need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    looks: u32,
}

impl Patience {
    /// Creates a patience that has not polled yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { looks: 0 }
    }

    /// Pauses before the next poll.
    #[inline]
    pub fn pause(&mut self) {
        if self.looks < LOOKS {
            self.looks += 1;
            spin_loop();
        } else {
            self.looks = 0;
            thread::yield_now();
        }
    }
}

/// Pins the calling thread to `core`. If the core has become unavailable, the thread stays where it is: slower, not wrong.
pub fn keep_on(core: usize) {
    let _slower_at_worst = cpu::pin(core);
}

/// Runs `one` on the first core and `two` on the second. Both begin when both are ready; the time to start the threads does not count.
///
/// # Panics
/// One of them panics.
pub fn together<A: Send, B: Send>(
    cores: [usize; 2],
    one: impl FnOnce() -> A + Send,
    two: impl FnOnce() -> B + Send,
) -> Together<A, B> {
    let (mut first, mut second) = (None, None);
    let took = at_once(cores, [Box::new(|| first = Some(one())), Box::new(|| second = Some(two()))]);
    let (Some(one), Some(two)) = (first, second) else {
        unreachable!("a thread that ends has set its result")
    };
    Together { took, one, two }
}

/// Runs two closures simultaneously. Not generic, so that starting threads is compiled once and not per variant.
fn at_once(cores: [usize; 2], works: [Box<dyn FnOnce() + Send + '_>; 2]) -> Duration {
    let arrived = AtomicU32::new(0);
    let run = |core, work: Box<dyn FnOnce() + Send + '_>| {
        keep_on(core);
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut patience = Patience::new();
        while arrived.load(Ordering::Acquire) < 2 {
            patience.pause();
        }
        let began = Instant::now();
        work();
        (began, Instant::now())
    };
    let (run, [one, two]) = (&run, works);
    let ((began_one, ended_one), (began_two, ended_two)) = thread::scope(|scope| {
        let second = scope.spawn(move || run(cores[1], two));
        let first = scope.spawn(move || run(cores[0], one));
        let (first, second) = (first.join(), second.join());
        (
            first.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            second.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    ended_one.max(ended_two).saturating_duration_since(began_one.min(began_two))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_run_at_once_and_return_their_results() {
        let (there, back) = (AtomicU32::new(0), AtomicU32::new(0));
        let wait = |flag: &AtomicU32| {
            let mut patience = Patience::new();
            while flag.load(Ordering::Acquire) == 0 {
                patience.pause();
            }
        };
        let cores = cpu::allowed_cores().unwrap();
        let found = together(
            [cores[0], *cores.last().unwrap()],
            || {
                there.store(1, Ordering::Release);
                wait(&back);
                "one"
            },
            || {
                wait(&there);
                back.store(1, Ordering::Release);
                2
            },
        );
        assert_eq!((found.one, found.two), ("one", 2));
        assert!(found.ns_for_each(1) > 0.0);
    }
}
