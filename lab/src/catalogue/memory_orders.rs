//! The cost of each memory order on this machine, and this machine's behaviour when the order is too weak.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use tapeworks_ring::align::CacheAligned;

use crate::measure::{Ended, Lab, Variants};
use crate::statistics::Better;
use crate::technique::{Assembly, Technique, Use};
use crate::threads::{Patience, together};

macro_rules! stores {
    ($($(#[$attribute:meta])* $name:ident $order:ident;)*) => {
        $(
            $(#[$attribute])*
            #[inline(never)]
            pub fn $name(cell: &AtomicU64, times: u64) {
                for value in 1..=times {
                    cell.store(value, Ordering::$order);
                }
            }
        )*
    };
}

// ANCHOR: stores
stores! {
    /// Stores in no order with other cells.
    store_relaxed Relaxed;
    /// Stores behind all that was written before.
    store_release Release;
    /// Stores, and waits until all cores may see it.
    store_sequential SeqCst;
}

/// Stores in no order, and waits for all stores by a fence.
#[inline(never)]
pub fn store_fenced(cell: &AtomicU64, times: u64) {
    for value in 1..=times {
        cell.store(value, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}
// ANCHOR_END: stores

macro_rules! loads {
    ($($(#[$attribute:meta])* $name:ident $order:ident;)*) => {
        $(
            $(#[$attribute])*
            #[inline(never)]
            #[must_use]
            pub fn $name(cell: &AtomicU64, times: u64) -> u64 {
                (0..times).fold(0u64, |sum, _| sum.wrapping_add(cell.load(Ordering::$order)))
            }
        )*
    };
}

loads! {
    /// Loads with relaxed order.
    load_relaxed Relaxed;
    /// Loads before all later reads.
    load_acquire Acquire;
    /// Loads in the single total order.
    load_sequential SeqCst;
}

macro_rules! additions {
    ($($(#[$attribute:meta])* $name:ident $order:ident;)*) => {
        $(
            $(#[$attribute])*
            #[inline(never)]
            pub fn $name(cell: &AtomicU64, times: u64) {
                for _ in 0..times {
                    cell.fetch_add(1, Ordering::$order);
                }
            }
        )*
    };
}

additions! {
    /// Adds with relaxed order.
    add_relaxed Relaxed;
    /// Adds in the single total order.
    add_sequential SeqCst;
}

/// How the two threads of a litmus test store and load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The order of the store.
    pub store: Ordering,
    /// The order of the load.
    pub load: Ordering,
    /// Whether there is a fence between them.
    pub fence: bool,
}

/// One thread's cells in a litmus test.
#[derive(Debug, Default)]
struct Side {
    cell: CacheAligned<AtomicU64>,
    /// The number of finished trials.
    done: CacheAligned<AtomicU64>,
}

/// Waits until the other thread has finished this many trials.
fn meet(own: &Side, other: &Side, done: u64) {
    own.done.store(done, Ordering::Release);
    let mut patience = Patience::new();
    while other.done.load(Ordering::Acquire) < done {
        patience.pause();
    }
}

/// Runs one thread of the store buffer test: it stores to its own cell and loads the other's. Returns for each trial whether the load missed
/// the other's store. The cells hold the trial's number, so nothing is reset between trials.
// ANCHOR: store_buffer
#[inline(always)]
fn store_then_load(own: &Side, other: &Side, trials: u64, orders: Orders) -> Vec<bool> {
    (1..=trials)
        .map(|trial| {
            own.cell.store(trial, orders.store);
            if orders.fence {
                fence(Ordering::SeqCst);
            }
            let missed = other.cell.load(orders.load) < trial;
            meet(own, other, trial);
            missed
        })
        .collect()
}
// ANCHOR_END: store_buffer

/// Returns in how many of `trials` *both* threads missed the other's store, which no interleaving of the four steps allows.
#[must_use]
pub fn store_buffer(cores: [usize; 2], trials: u64, orders: Orders) -> u64 {
    let (one, two) = (Side::default(), Side::default());
    let found = together(
        cores,
        || store_then_load(&one, &two, trials, orders),
        || store_then_load(&two, &one, trials, orders),
    );
    found.one.iter().zip(&found.two).filter(|(one, two)| **one && **two).count() as u64
}

/// Returns how often a reader saw a message's flag before the message. One side writes data, then flag; the other reads them in reverse.
// ANCHOR: message_passing
#[must_use]
pub fn message_passing(cores: [usize; 2], trials: u64, orders: Orders) -> u64 {
    let (data, flag) = (CacheAligned::new(AtomicU64::new(0)), CacheAligned::new(AtomicU64::new(0)));
    let found = together(
        cores,
        || {
            for trial in 1..=trials {
                data.store(trial, Ordering::Relaxed);
                flag.store(trial, orders.store);
            }
        },
        || {
            let (mut early, mut patience) = (0, Patience::new());
            loop {
                let raised = flag.load(orders.load);
                let there = data.load(Ordering::Relaxed);
                early += u64::from(there < raised);
                if raised == trials {
                    return early;
                }
                patience.pause();
            }
        },
    );
    found.two
}
// ANCHOR_END: message_passing

/// The tested orders, by name.
const TRIED: [(&str, Orders); 4] = [
    ("relaxed", Orders { store: Ordering::Relaxed, load: Ordering::Relaxed, fence: false }),
    ("release, acquire", Orders { store: Ordering::Release, load: Ordering::Acquire, fence: false }),
    ("sequentially consistent", Orders { store: Ordering::SeqCst, load: Ordering::SeqCst, fence: false }),
    (
        "relaxed with a fence between",
        Orders { store: Ordering::Relaxed, load: Ordering::Relaxed, fence: true },
    ),
];

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    costs(lab)?;
    let cores = lab.two_cores()?;
    let trials = lab.either(20_000, 2_000);
    let in_a_million = |count: u64| count as f64 * 1e6 / trials as f64;
    lab.experiment("store buffer: both threads store, and both miss the other's store", "million trials");
    lab.in_unit("times", Better::Neither);
    let mut variants = Variants::of(trials).answers_differ();
    for (name, orders) in TRIED {
        variants = variants.add_reported(name, move |reporter| {
            let both = store_buffer(cores, trials, orders);
            reporter.figure(in_a_million(both));
            both
        });
    }
    lab.point(0.0, "", variants)?;
    lab.experiment("message passing: the flag is seen before the message", "million messages");
    lab.in_unit("times", Better::Neither);
    let mut variants = Variants::of(trials).answers_differ();
    for (name, orders) in TRIED.into_iter().take(3) {
        variants = variants.add_reported(name, move |reporter| {
            let early = message_passing(cores, trials, orders);
            reporter.figure(in_a_million(early));
            early
        });
    }
    lab.point(0.0, "", variants)
}

fn costs(lab: &mut Lab<'_>) -> Result<(), Ended> {
    const TIMES: u64 = 1_000;
    let cell = CacheAligned::new(AtomicU64::new(0));
    type Write = fn(&AtomicU64, u64);
    let write = |work: Write| {
        let cell = &cell;
        move || {
            cell.store(0, Ordering::Relaxed);
            work(black_box(cell), black_box(TIMES));
            cell.load(Ordering::Relaxed)
        }
    };
    lab.experiment("a store to a cell in the nearest cache", "store");
    lab.point(
        0.0,
        "",
        Variants::of(TIMES)
            .add("relaxed", write(store_relaxed))
            .add("release", write(store_release))
            .add("sequentially consistent", write(store_sequential))
            .add("relaxed and a fence", write(store_fenced)),
    )?;
    lab.experiment("a load from a cell in the nearest cache", "load");
    let source = CacheAligned::new(AtomicU64::new(3));
    type Read = fn(&AtomicU64, u64) -> u64;
    let read = |work: Read| {
        let source = &source;
        move || work(black_box(source), black_box(TIMES))
    };
    lab.point(
        0.0,
        "",
        Variants::of(TIMES)
            .add("relaxed", read(load_relaxed))
            .add("acquire", read(load_acquire))
            .add("sequentially consistent", read(load_sequential)),
    )?;
    lab.experiment("an addition to a cell in the nearest cache", "addition");
    lab.point(
        0.0,
        "",
        Variants::of(TIMES)
            .add("relaxed", write(add_relaxed))
            .add("sequentially consistent", write(add_sequential)),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 29,
    name: "memory-orders",
    title: "Memory orders",
    question: "What does each memory order cost on this machine, and what happens here when it is too weak?",
    published: &[],
    used: &[
        Use { path: "crates/base/ring/src/spsc.rs", what: "publishes by release and acquire alone" },
        Use {
            path: "crates/base/ring/src/wait.rs",
            what: "has a fence where a store and a load must not pass each other",
        },
        Use { path: "crates/base/ring/src/sync.rs", what: "lets loom try all orders of the queues" },
    ],
    assembly: &[
        Assembly {
            variant: "relaxed",
            symbol: "tapeworks_lab::catalogue::memory_orders::store_relaxed",
            marks: &["mov"],
        },
        Assembly {
            variant: "release",
            symbol: "tapeworks_lab::catalogue::memory_orders::store_release",
            marks: &["mov"],
        },
        Assembly {
            variant: "sequentially consistent",
            symbol: "tapeworks_lab::catalogue::memory_orders::store_sequential",
            marks: &["xchg"],
        },
        Assembly {
            variant: "relaxed and a fence",
            symbol: "tapeworks_lab::catalogue::memory_orders::store_fenced",
            marks: &["mfence", "lock"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use tapeworks_ring::cpu;

    use super::*;

    fn cores() -> [usize; 2] {
        let cores = cpu::allowed_cores().unwrap();
        [cores[0], *cores.last().unwrap()]
    }

    #[test]
    fn all_orders_store_load_and_add_the_same() {
        for times in [0, 1, 77] {
            for work in
                [store_relaxed, store_release, store_sequential, store_fenced, add_relaxed, add_sequential]
            {
                let cell = AtomicU64::new(0);
                work(&cell, times);
                assert_eq!(cell.into_inner(), times);
            }
            for work in [load_relaxed, load_acquire, load_sequential] {
                assert_eq!(work(&AtomicU64::new(5), times), 5 * times);
            }
        }
    }

    /// Checks that nothing happens that the language forbids. Permitted reorderings may or may not happen.
    #[test]
    fn strong_orders_forbid_what_they_forbid() {
        let [relaxed, release, sequential, fenced] = TRIED.map(|(_, orders)| orders);
        for orders in [sequential, fenced] {
            assert_eq!(store_buffer(cores(), 3_000, orders), 0, "{orders:?}");
        }
        for orders in [release, sequential] {
            assert_eq!(message_passing(cores(), 3_000, orders), 0, "{orders:?}");
        }
        assert!(store_buffer(cores(), 3_000, relaxed) <= 3_000);
        assert_eq!((store_buffer(cores(), 0, relaxed), message_passing(cores(), 0, relaxed)), (0, 0));
    }
}
