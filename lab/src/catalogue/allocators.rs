//! Where values get memory: the system's allocator, a pool, an arena; separate cache lines; huge pages.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_ring::align::CacheAligned;
use tapeworks_ring::memory::{Backing, HUGE_PAGE_BYTES, Region, RegionOptions};
use tapeworks_ring::pool::{Handle, Pool};

use crate::catalogue::contention::single_writer;
use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};
use crate::threads::together;

/// The title of the experiment with lists. A point's position on the axis is its number of nodes.
pub const LISTS: &str = "a list: built, walked, taken down";

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// A list node, allocated individually by the system.
#[derive(Debug)]
pub struct Boxed {
    value: u64,
    weight: u64,
    next: Option<Box<Boxed>>,
}

/// A list node in a pool or an arena.
#[derive(Debug)]
pub struct Numbered<H> {
    value: u64,
    weight: u64,
    next: Option<H>,
}

/// Builds a list of `nodes` nodes by pushing to the front, walks it, and removes the nodes from the front. Each node is allocated by and
/// returned to the system.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn boxed(nodes: u64) -> u64 {
    let mut list: Option<Box<Boxed>> = None;
    for value in 0..nodes {
        list = Some(Box::new(Boxed { value, weight: value & 7, next: list }));
    }
    let (mut sum, mut at) = (0u64, &list);
    while let Some(node) = at {
        sum = sum.wrapping_add(node.value ^ node.weight);
        at = &node.next;
    }
    while let Some(node) = list {
        list = node.next;
    }
    sum
}
// ANCHOR_END: baseline

/// Does the same with nodes in the product's pool, which keeps its slots.
// ANCHOR: pool
#[inline(never)]
#[must_use]
pub fn pooled(pool: &mut Pool<Numbered<Handle>>, nodes: u64) -> u64 {
    let mut list = None;
    for value in 0..nodes {
        list = pool.insert(Numbered { value, weight: value & 7, next: list }).ok();
    }
    let (mut sum, mut at) = (0u64, list);
    while let Some(node) = at.and_then(|handle| pool.get(handle)) {
        sum = sum.wrapping_add(node.value ^ node.weight);
        at = node.next;
    }
    while let Some(handle) = list {
        list = pool.remove(handle).and_then(|node| node.next);
    }
    sum
}
// ANCHOR_END: pool

/// Does the same with nodes in an arena: contiguous values, all freed together.
// ANCHOR: arena
#[inline(never)]
#[must_use]
pub fn in_arena(arena: &mut Vec<Numbered<u32>>, nodes: u64) -> u64 {
    let mut list = None;
    for value in 0..nodes {
        arena.push(Numbered { value, weight: value & 7, next: list });
        list = Some(arena.len() as u32 - 1);
    }
    let (mut sum, mut at) = (0u64, list);
    while let Some(node) = at.and_then(|place| arena.get(place as usize)) {
        sum = sum.wrapping_add(node.value ^ node.weight);
        at = node.next;
    }
    arena.clear();
    sum
}
// ANCHOR_END: arena

/// Creates a region in which each line holds the number of the next: one walk through all lines, in random order.
fn walk_of(mut region: Region, random: &mut Random) -> Region {
    let lines = region.len() / LINE_BYTES;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    random.shuffle(&mut order);
    let next = order.iter().cycle().skip(1);
    for (line, next) in order.iter().zip(next) {
        let place = *line as usize * LINE_BYTES;
        if let Some(bytes) = region.get_mut(place..place + 4) {
            bytes.copy_from_slice(&next.to_ne_bytes());
        }
    }
    region
}

/// Reads `reads` lines, each named by the one before. Returns the last position.
#[inline(never)]
#[must_use]
pub fn walk(bytes: &[u8], reads: u64) -> u64 {
    let mut line = 0u32;
    for _ in 0..reads {
        let found = bytes.get(line as usize * LINE_BYTES..).and_then(<[u8]>::first_chunk);
        line = found.map_or(0, |next| u32::from_ne_bytes(*next));
    }
    u64::from(line)
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lists(lab)?;
    pages(lab)?;
    lines(lab)
}

fn lists(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lab.experiment(LISTS, "node");
    lab.along("nodes", Scale::Logarithmic);
    for nodes in lab.either(vec![100, 10_000, 1_000_000], vec![100, 10_000]) {
        let mut pool = Pool::with_capacity(nodes as usize);
        let mut arena = Vec::with_capacity(nodes as usize);
        lab.point(
            nodes as f64,
            &format!("{nodes} nodes"),
            Variants::of(nodes)
                .add("the system's allocator", || boxed(black_box(nodes)))
                .add("a new pool", || pooled(&mut Pool::new(), black_box(nodes)))
                .add("a reserved pool", || pooled(&mut pool, black_box(nodes)))
                .add("an arena", || in_arena(&mut arena, black_box(nodes))),
        )?;
    }
    Ok(())
}

fn pages(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let bytes: usize = lab.either(64 << 20, 8 << 20);
    let map = |options| {
        Region::map(bytes, options)
            .map(|region| walk_of(region, &mut Random::new(bytes as u64)))
            .map_err(|error| Ended::Skipped(format!("no memory of {} MiB: {error}", bytes >> 20)))
    };
    let small = map(RegionOptions { ordinary_pages: true, ..RegionOptions::default() })?;
    let large = map(RegionOptions::default())?;
    let huge_bytes = match large.backing() {
        Backing::HugeTlb => large.len(),
        Backing::TransparentHuge { bytes } => bytes,
        Backing::Ordinary => 0,
    };
    if huge_bytes < HUGE_PAGE_BYTES {
        lab.skip("huge pages: the kernel has none to give (see /sys/kernel/mm/transparent_hugepage/enabled)");
        return Ok(());
    }
    let reads = lab.either(50_000, 5_000);
    lab.experiment(&format!("dependent reads at random places of {} MiB", bytes >> 20), "read");
    lab.point(
        0.0,
        "",
        Variants::of(reads)
            .add("pages of 4 KiB", || walk(black_box(&small), reads))
            .add("huge pages", || walk(black_box(&large), reads)),
    )
}

fn lines(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let cores = lab.two_cores()?;
    let times = lab.either(400_000, 10_000);
    let sum =
        |[one, two]: [&AtomicU64; 2]| one.load(Ordering::Acquire).wrapping_add(two.load(Ordering::Acquire));
    lab.experiment("two cores, each with its own value", "addition");
    lab.point(
        0.0,
        "",
        Variants::of(times)
            .add_reported("both in one cache line", |reporter| {
                let values = CacheAligned::new([AtomicU64::new(0), AtomicU64::new(0)]);
                let [one, two] = &*values;
                let found = together(cores, || single_writer(one, times), || single_writer(two, times));
                reporter.figure(found.ns_for_each(times));
                sum([one, two])
            })
            .add_reported("cache-aligned", |reporter| {
                let [one, two] = [(); 2].map(|()| CacheAligned::new(AtomicU64::new(0)));
                let found = together(cores, || single_writer(&one, times), || single_writer(&two, times));
                reporter.figure(found.ns_for_each(times));
                sum([&one, &two])
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 12,
    name: "allocators",
    title: "Allocators",
    question: "What does it save to take memory from a pool, an arena, huge pages, or in lines of its own?",
    published: &[],
    used: &[
        Use { path: "crates/base/ring/src/pool.rs", what: "is the pool" },
        Use { path: "crates/base/ring/src/memory.rs", what: "is the table in huge pages, where orders lie" },
        Use { path: "crates/base/ring/src/align.rs", what: "gives values lines of their own" },
    ],
    assembly: &[
        Assembly {
            variant: "the system's allocator",
            symbol: "tapeworks_lab::catalogue::allocators::boxed",
            marks: &["call"],
        },
        Assembly {
            variant: "an arena",
            symbol: "tapeworks_lab::catalogue::allocators::in_arena",
            marks: &["call", "lea"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_lists_have_the_same_sum(nodes in 0u64..300) {
            let expected = (0..nodes).map(|value| value ^ (value & 7)).sum::<u64>();
            prop_assert_eq!(boxed(nodes), expected);
            let (mut pool, mut arena) = (Pool::with_capacity(10), Vec::new());
            for _ in 0..2 {
                prop_assert_eq!(pooled(&mut pool, nodes), expected);
                prop_assert_eq!(in_arena(&mut arena, nodes), expected);
                prop_assert!(pool.is_empty() && arena.is_empty());
            }
        }
    }

    #[test]
    fn a_walk_visits_every_line_and_is_the_same_in_all_pages() {
        let mut answers = Vec::new();
        for ordinary_pages in [true, false] {
            let options = RegionOptions { ordinary_pages, ..RegionOptions::default() };
            let region = walk_of(Region::map(1 << 16, options).unwrap(), &mut Random::new(5));
            let lines = region.len() / LINE_BYTES;
            let mut visited = vec![false; lines];
            for reads in 0..lines as u64 {
                visited[walk(&region, reads) as usize] = true;
            }
            assert!(visited.iter().all(|visited| *visited));
            assert_eq!(walk(&region, lines as u64), 0, "it is a circle");
            answers.push(walk(&region, 100));
        }
        assert_eq!(answers[0], answers[1]);
    }
}
