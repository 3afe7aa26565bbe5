//! Lists of nodes, lines that two cores share, and large vectors.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_ring::align::CacheAligned;
use tapeworks_ring::memory::{Region, RegionOptions};
use tapeworks_ring::pool::{Handle, Pool};

use super::{Shape, on_two_cores};
use crate::rounds::Rounds;

/// Nodes of a list.
const NODES: u64 = 1_000_000;
/// Increments of each core.
const INCREMENTS: u64 = 20_000_000;
/// Bytes of the vector.
const VECTOR: usize = 8 << 20;
/// Random reads of it.
const READS: u64 = 20_000_000;

pub fn run(Shape { rounds, cores, .. }: Shape) {
    lists(rounds);
    sharing(rounds, cores);
    pages(rounds);
}

/// A list is built by pushing in front, walked, and taken down from the front.
fn lists(rounds: usize) {
    println!("a list of {NODES} nodes of 24 bytes: built, walked once, taken down");
    // Kept from round to round, as the allocators keep what they have.
    let kept = RefCell::new(Pool::with_capacity(NODES as usize));
    let reserved = &kept;
    let mut table = Rounds::new(NODES);
    table.add("Box, the system's allocator", || boxed(&std::alloc::System));
    table.add("Box, mimalloc", || boxed(&mimalloc::MiMalloc));
    table.add("tapeworks-ring pool, not reserved", || pooled(&mut Pool::new()));
    table.add("tapeworks-ring pool, reserved", || pooled(&mut reserved.borrow_mut()));
    table.run(rounds);
    let answers = table.answers();
    assert!(answers.iter().all(|answer| answer.1 == answers[0].1), "{answers:?}");
    table.print("list", "tapeworks-ring pool, reserved");
}

struct Boxed {
    value: u64,
    weight: u64,
    next: *mut Boxed,
}

fn boxed(allocator: &impl std::alloc::GlobalAlloc) -> u64 {
    let layout = std::alloc::Layout::new::<Boxed>();
    let mut first: *mut Boxed = std::ptr::null_mut();
    for value in 0..NODES {
        // SAFETY: the layout has a size; the node is written before it is read, and released below with its layout.
        first = unsafe {
            let node = allocator.alloc(layout).cast::<Boxed>();
            node.write(Boxed { value, weight: value & 7, next: first });
            node
        };
    }
    let mut sum = 0u64;
    let mut at = first;
    while !at.is_null() {
        // SAFETY: nodes of the list are alive.
        let node = unsafe { &*at };
        sum += node.value + node.weight;
        at = node.next;
    }
    while !first.is_null() {
        // SAFETY: as above; each is released once.
        unsafe {
            let next = (*first).next;
            allocator.dealloc(first.cast(), layout);
            first = next;
        }
    }
    sum
}

struct Pooled {
    value: u64,
    weight: u64,
    next: Option<Handle>,
}

fn pooled(pool: &mut Pool<Pooled>) -> u64 {
    let mut first = None;
    for value in 0..NODES {
        let node = Pooled { value, weight: value & 7, next: first };
        first = Some(pool.insert(node).ok().expect("a million fit"));
    }
    let mut sum = 0u64;
    let mut at = first;
    while let Some(node) = at.and_then(|handle| pool.get(handle)) {
        sum += node.value + node.weight;
        at = node.next;
    }
    while let Some(handle) = first {
        first = pool.remove(handle).and_then(|node| node.next);
    }
    sum
}

/// Two cores, each with a counter of its own.
fn sharing(rounds: usize, cores: [usize; 2]) {
    fn count(counter: &AtomicU64) {
        for _ in 0..INCREMENTS {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
    println!("two cores add to a counter of their own, {INCREMENTS} times each");
    let mut table = Rounds::new(INCREMENTS);
    table.add("two counters in one cache line", || {
        let counters = CacheAligned::new([AtomicU64::new(0), AtomicU64::new(0)]);
        on_two_cores(cores, || count(&counters[0]), || count(&counters[1]));
        counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    });
    table.add("a cache line for each", || {
        let counters = [(); 2].map(|()| CacheAligned::new(AtomicU64::new(0)));
        on_two_cores(cores, || count(&counters[0]), || count(&counters[1]));
        counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    });
    table.run(rounds);
    table.print("false sharing", "a cache line for each");
}

/// Random reads, each depending on the one before.
fn pages(rounds: usize) {
    println!("{READS} dependent reads at random places of {} MiB", VECTOR >> 20);
    let build = |options| {
        let mut region = Region::map(VECTOR, options).expect("there is memory");
        // A walk through all lines in an order without a pattern: each line holds the number of the next.
        let lines = VECTOR / 64;
        let mut order: Vec<usize> = (0..lines).collect();
        let mut seed = 1u64;
        for at in (1..lines).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, (seed >> 33) as usize % (at + 1));
        }
        for (place, line) in order.iter().enumerate() {
            let next = order[(place + 1) % lines] as u32;
            region[line * 64..][..4].copy_from_slice(&next.to_ne_bytes());
        }
        region
    };
    let read = |region: &Region| {
        let mut line = 0usize;
        for _ in 0..READS {
            let next = region[line * 64..].first_chunk().expect("inside");
            line = u32::from_ne_bytes(*next) as usize;
        }
        black_box(line) as u64
    };
    let ordinary = build(RegionOptions { ordinary_pages: true, ..RegionOptions::default() });
    let huge = build(RegionOptions::default());
    let (small_name, huge_name) =
        (format!("pages: {:?}", ordinary.backing()), format!("pages: {:?}", huge.backing()));
    let mut table = Rounds::new(READS);
    table.add(&small_name, || read(&ordinary));
    table.add(&huge_name, || read(&huge));
    table.run(rounds);
    table.print("random reads", &huge_name);
}
