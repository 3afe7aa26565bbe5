//! One counter and several threads: the cost of each way to share it, alone and with contention from another core.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tapeworks_ring::align::CacheAligned;

use crate::measure::{Ended, Lab, Variants};
use crate::statistics::Better;
use crate::technique::{Assembly, Published, Technique, Use};
use crate::threads::{Patience, together};

/// A counter of one thread. `black_box` makes each addition a load, an add and a store; the compiler would otherwise merge all of them.
// ANCHOR: baseline
#[inline(never)]
pub fn plain(counter: &mut u64, times: u64) {
    for _ in 0..times {
        *counter = black_box(counter.wrapping_add(1));
    }
}
// ANCHOR_END: baseline

/// A counter that one thread writes and any thread may read: a load and a store, without a locked instruction.
// ANCHOR: single_writer
#[inline(never)]
pub fn single_writer(counter: &AtomicU64, times: u64) {
    for _ in 0..times {
        let value = counter.load(Ordering::Relaxed);
        counter.store(value.wrapping_add(1), Ordering::Relaxed);
    }
}
// ANCHOR_END: single_writer

/// A counter that any thread may write: the addition holds the cache line until it finishes.
// ANCHOR: atomic
#[inline(never)]
pub fn atomic(counter: &AtomicU64, times: u64) {
    for _ in 0..times {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
// ANCHOR_END: atomic

/// A counter behind the standard library's lock, which sleeps in the kernel if the lock is held for long.
// ANCHOR: mutex
#[inline(never)]
pub fn mutex(counter: &Mutex<u64>, times: u64) {
    for _ in 0..times {
        let mut value = counter.lock().unwrap_or_else(PoisonError::into_inner);
        *value = black_box(value.wrapping_add(1));
    }
}
// ANCHOR_END: mutex

/// A counter behind a lock that spins.
#[derive(Debug, Default)]
pub struct SpinLocked {
    is_held: AtomicBool,
    /// Accessed only by the holder, so relaxed operations, which are plain moves, suffice.
    value: AtomicU64,
}

impl SpinLocked {
    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }
}

/// Polls the lock until it seems free, and only then tries to take it: polling keeps the line shared.
// ANCHOR: spin
#[inline(never)]
pub fn spin(counter: &SpinLocked, times: u64) {
    for _ in 0..times {
        let mut patience = Patience::new();
        while counter.is_held.swap(true, Ordering::Acquire) {
            while counter.is_held.load(Ordering::Relaxed) {
                patience.pause();
            }
        }
        let value = counter.value.load(Ordering::Relaxed);
        counter.value.store(value.wrapping_add(1), Ordering::Relaxed);
        counter.is_held.store(false, Ordering::Release);
    }
}
// ANCHOR_END: spin

/// Increments with a separate load and store, and lets the other thread run in between.
fn apart(counter: &AtomicU64, times: u64) {
    for _ in 0..times {
        let value = counter.load(Ordering::Relaxed);
        spin_loop();
        counter.store(value.wrapping_add(1), Ordering::Relaxed);
    }
}

fn locked_value(counter: Mutex<u64>) -> u64 {
    counter.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    alone(lab)?;
    let cores = lab.two_cores()?;
    two_threads(lab, cores)?;
    lost(lab, cores)
}

fn alone(lab: &mut Lab<'_>) -> Result<(), Ended> {
    const TIMES: u64 = 1_000;
    lab.experiment("one thread adds to a counter", "addition");
    lab.point(
        1.0,
        "",
        Variants::of(TIMES)
            .add("plain", || {
                let mut counter = 0;
                plain(&mut counter, black_box(TIMES));
                counter
            })
            .add("single writer", || {
                let counter = AtomicU64::new(0);
                single_writer(black_box(&counter), black_box(TIMES));
                counter.into_inner()
            })
            .add("atomic addition", || {
                let counter = AtomicU64::new(0);
                atomic(black_box(&counter), black_box(TIMES));
                counter.into_inner()
            })
            .add("spin lock", || {
                let counter = SpinLocked::default();
                spin(black_box(&counter), black_box(TIMES));
                counter.value()
            })
            .add("mutex", || {
                let counter = Mutex::new(0);
                mutex(black_box(&counter), black_box(TIMES));
                locked_value(counter)
            }),
    )
}

fn two_threads(lab: &mut Lab<'_>, cores: [usize; 2]) -> Result<(), Ended> {
    let times = lab.either(200_000, 4_000);
    let additions = 2 * times;
    lab.experiment("two threads add to a counter at once", "addition");
    lab.point(
        2.0,
        "",
        Variants::of(additions)
            .add_reported("atomic addition", |reporter| {
                let counter = CacheAligned::new(AtomicU64::new(0));
                let found = together(cores, || atomic(&counter, times), || atomic(&counter, times));
                reporter.figure(found.ns_for_each(additions));
                counter.load(Ordering::Acquire)
            })
            .add_reported("spin lock", |reporter| {
                let counter = CacheAligned::new(SpinLocked::default());
                let found = together(cores, || spin(&counter, times), || spin(&counter, times));
                reporter.figure(found.ns_for_each(additions));
                counter.value()
            })
            .add_reported("mutex", |reporter| {
                let counter = CacheAligned::new(Mutex::new(0));
                let found = together(cores, || mutex(&counter, times), || mutex(&counter, times));
                reporter.figure(found.ns_for_each(additions));
                locked_value(counter.into_inner())
            })
            .add_reported("a counter for each, in one line", |reporter| {
                let counters = CacheAligned::new([AtomicU64::new(0), AtomicU64::new(0)]);
                let [first, second] = &*counters;
                let found = together(cores, || single_writer(first, times), || single_writer(second, times));
                reporter.figure(found.ns_for_each(additions));
                first.load(Ordering::Acquire).wrapping_add(second.load(Ordering::Acquire))
            })
            .add_reported("a counter and a line for each", |reporter| {
                let [first, second] = [(); 2].map(|()| CacheAligned::new(AtomicU64::new(0)));
                let found =
                    together(cores, || single_writer(&first, times), || single_writer(&second, times));
                reporter.figure(found.ns_for_each(additions));
                first.load(Ordering::Acquire).wrapping_add(second.load(Ordering::Acquire))
            }),
    )
}

fn lost(lab: &mut Lab<'_>, cores: [usize; 2]) -> Result<(), Ended> {
    let times: u64 = lab.either(200_000, 4_000);
    let part_lost = |counter: &AtomicU64| {
        (2 * times).saturating_sub(counter.load(Ordering::Acquire)) as f64 / (2 * times) as f64 * 100.0
    };
    lab.experiment("additions lost by two threads that write one counter", "run");
    lab.in_unit("%", Better::Neither);
    lab.point(
        2.0,
        "",
        Variants::of(1)
            .answers_differ()
            .add_reported("load, add, store", |reporter| {
                let counter = CacheAligned::new(AtomicU64::new(0));
                together(cores, || apart(&counter, times), || apart(&counter, times));
                reporter.figure(part_lost(&counter));
                counter.load(Ordering::Acquire)
            })
            .add_reported("atomic addition", |reporter| {
                let counter = CacheAligned::new(AtomicU64::new(0));
                together(cores, || atomic(&counter, times), || atomic(&counter, times));
                reporter.figure(part_lost(&counter));
                counter.load(Ordering::Acquire)
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 7,
    name: "contention",
    title: "Contention",
    question: "What does it cost to share a counter between threads, and what does it cost not to?",
    published: &[Published {
        source: "Bilokon and Gunduz, arXiv:2309.04259, section 3",
        figure: "an atomic counter takes 63 % less time than a mutex, on one thread without contention",
    }],
    used: &[
        Use {
            path: "crates/base/ring/src/align.rs",
            what: "gives a value that two cores write its own cache lines",
        },
        Use { path: "crates/base/ring/src/spsc.rs", what: "has one writer for each counter" },
    ],
    assembly: &[
        Assembly {
            variant: "single writer",
            symbol: "tapeworks_lab::catalogue::contention::single_writer",
            marks: &["inc", "add", "lock"],
        },
        Assembly {
            variant: "atomic addition",
            symbol: "tapeworks_lab::catalogue::contention::atomic",
            marks: &["inc", "add", "lock"],
        },
        Assembly {
            variant: "spin lock",
            symbol: "tapeworks_lab::catalogue::contention::spin",
            marks: &["xchg", "pause"],
        },
        Assembly {
            variant: "mutex",
            symbol: "tapeworks_lab::catalogue::contention::mutex",
            marks: &["cmpxchg", "xchg", "call"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_ring::cpu;

    use super::*;

    fn cores() -> [usize; 2] {
        let cores = cpu::allowed_cores().unwrap();
        [cores[0], *cores.last().unwrap()]
    }

    proptest! {
        #[test]
        fn every_counter_counts_all_additions_of_one_thread(times in 0u64..500) {
            let mut counter = 0;
            plain(&mut counter, times);
            prop_assert_eq!(counter, times);
            let (single, shared) = (AtomicU64::new(0), AtomicU64::new(0));
            single_writer(&single, times);
            atomic(&shared, times);
            prop_assert_eq!((single.into_inner(), shared.into_inner()), (times, times));
            let (locked, spinning) = (Mutex::new(0), SpinLocked::default());
            mutex(&locked, times);
            spin(&spinning, times);
            prop_assert_eq!((locked_value(locked), spinning.value()), (times, times));
        }
    }

    #[test]
    fn shared_counters_lose_no_addition_of_two_threads() {
        const TIMES: u64 = 20_000;
        let (shared, locked, spinning) = (AtomicU64::new(0), Mutex::new(0), SpinLocked::default());
        together(cores(), || atomic(&shared, TIMES), || atomic(&shared, TIMES));
        together(cores(), || mutex(&locked, TIMES), || mutex(&locked, TIMES));
        together(cores(), || spin(&spinning, TIMES), || spin(&spinning, TIMES));
        assert_eq!([shared.into_inner(), locked_value(locked), spinning.value()], [2 * TIMES; 3]);
    }

    #[test]
    fn a_reader_sees_every_value_of_a_single_writer_grow() {
        let counter = AtomicU64::new(0);
        let found = together(
            cores(),
            || single_writer(&counter, 50_000),
            || {
                let mut last = 0;
                for _ in 0..10_000 {
                    let value = counter.load(Ordering::Relaxed);
                    assert!(value >= last);
                    last = value;
                }
                last
            },
        );
        assert!(found.two <= 50_000);
        assert_eq!(counter.into_inner(), 50_000);
    }
}
