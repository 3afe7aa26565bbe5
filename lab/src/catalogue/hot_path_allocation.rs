//! Handling a message with newly allocated or existing memory: the mean and the slowest message.

use std::collections::VecDeque;

use tapeworks_ring::clock::TscClock;
use tapeworks_ring::pool::{Handle, Pool};

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::random::Random;
use crate::technique::{Assembly, Technique, Use};

/// Messages that are kept before the oldest is dropped.
const KEPT: usize = 512;

/// The longest ordinary message.
const LONGEST_BYTES: usize = 256;

/// One message in this many is a snapshot.
const SNAPSHOT_EVERY: u64 = 1_000;

/// Bytes per snapshot, a size that allocators get from the kernel and return to it.
const SNAPSHOT_BYTES: usize = 256 << 10;

/// Returns the lengths of messages.
fn lengths(messages: u64, random: &mut Random) -> Vec<usize> {
    (1..=messages)
        .map(|number| match number % SNAPSHOT_EVERY {
            0 => SNAPSHOT_BYTES,
            _ => 16 + random.below(LONGEST_BYTES as u64 - 15) as usize,
        })
        .collect()
}

/// Writes into a message's memory, and returns its part of the answer.
#[inline(always)]
fn write(bytes: &mut [u8], number: u64) -> u64 {
    // Of a message of 256 KiB, only the first and last bytes and one per page are written: enough to show an allocator's behaviour.
    let mut answer = bytes.len() as u64;
    for page in bytes.chunks_mut(4_096) {
        if let Some(first) = page.first_chunk_mut::<8>() {
            *first = number.to_le_bytes();
            answer = answer.wrapping_add(u64::from_le_bytes(*first));
        }
    }
    answer
}

/// Allocates memory for each message, and frees it when the message is dropped.
// ANCHOR: baseline
#[derive(Debug, Default)]
pub struct Fresh {
    kept: VecDeque<Vec<u8>>,
}

impl Fresh {
    /// Handles a message of `length` bytes.
    #[inline(never)]
    pub fn handle(&mut self, length: usize, number: u64) -> u64 {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        let mut bytes = vec![0; length];
        let answer = write(&mut bytes, number);
        self.kept.push_back(bytes);
        answer
    }
}
// ANCHOR_END: baseline

/// Preallocated buffers; the oldest one is reused.
// ANCHOR: variant
#[derive(Debug)]
pub struct Reused {
    kept: Vec<Vec<u8>>,
    /// One for the snapshot: only the latest is kept.
    snapshot: Vec<u8>,
    next: usize,
}

impl Reused {
    /// Handles a message of `length` bytes.
    #[inline(never)]
    pub fn handle(&mut self, length: usize, number: u64) -> u64 {
        let is_snapshot = length > LONGEST_BYTES;
        let place = self.next % KEPT;
        self.next = self.next.wrapping_add(usize::from(!is_snapshot));
        let buffer = if is_snapshot { Some(&mut self.snapshot) } else { self.kept.get_mut(place) };
        buffer.and_then(|bytes| bytes.get_mut(..length)).map_or(0, |bytes| write(bytes, number))
    }
}
// ANCHOR_END: variant

impl Reused {
    /// Allocates all buffers and touches them.
    #[must_use]
    pub fn new() -> Self {
        Self { kept: vec![vec![1; LONGEST_BYTES]; KEPT], snapshot: vec![1; SNAPSHOT_BYTES], next: 0 }
    }
}

impl Default for Reused {
    fn default() -> Self {
        Self::new()
    }
}

/// The product's pool, whose slots are taken and returned in any order.
#[derive(Debug)]
pub struct Pooled {
    pool: Pool<[u8; LONGEST_BYTES]>,
    kept: VecDeque<Handle>,
    snapshot: Vec<u8>,
}

impl Pooled {
    /// Creates a pool with room for all messages.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pool: Pool::with_capacity(KEPT),
            kept: VecDeque::with_capacity(KEPT),
            snapshot: vec![1; SNAPSHOT_BYTES],
        }
    }

    /// Handles a message of `length` bytes.
    #[inline(never)]
    pub fn handle(&mut self, length: usize, number: u64) -> u64 {
        if length > LONGEST_BYTES {
            return self.snapshot.get_mut(..length).map_or(0, |bytes| write(bytes, number));
        }
        if self.kept.len() == KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.pool.remove(oldest);
        }
        let Ok(handle) = self.pool.insert([0; LONGEST_BYTES]) else { return 0 };
        self.kept.push_back(handle);
        let bytes = self.pool.get_mut(handle).and_then(|bytes| bytes.get_mut(..length));
        bytes.map_or(0, |bytes| write(bytes, number))
    }
}

impl Default for Pooled {
    fn default() -> Self {
        Self::new()
    }
}

/// Handles all messages and times each.
fn timed(
    reporter: &mut Reporter,
    clock: &TscClock,
    lengths: &[usize],
    mut handle: impl FnMut(usize, u64) -> u64,
) -> u64 {
    let (mut answer, mut all_ns) = (0u64, 0);
    for (number, length) in (0u64..).zip(lengths) {
        let began = clock.now();
        let own = handle(*length, number);
        let ns = clock.nanoseconds(began, clock.now());
        reporter.operation_ns(ns);
        all_ns += ns;
        answer = answer.rotate_left(1) ^ own;
    }
    reporter.other("mean, ns", all_ns as f64 / lengths.len().max(1) as f64);
    answer
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let messages = lab.either(100_000, 3_000);
    let lengths = lengths(messages, &mut lab.random());
    let clock = TscClock::new();
    let (mut fresh, mut reused, mut pooled) = (Fresh::default(), Reused::new(), Pooled::new());
    lab.experiment("a message handled, with the memory for it", "message");
    lab.point(
        0.0,
        "",
        Variants::of(messages)
            .add_reported("memory for each", |reporter| {
                timed(reporter, &clock, &lengths, |length, number| fresh.handle(length, number))
            })
            .add_reported("buffers used again", |reporter| {
                timed(reporter, &clock, &lengths, |length, number| reused.handle(length, number))
            })
            .add_reported("a pool", |reporter| {
                timed(reporter, &clock, &lengths, |length, number| pooled.handle(length, number))
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 20,
    name: "hot-path-allocation",
    title: "Allocation on the hot path",
    question: "What does it cost to take memory for each message: on average, and at worst?",
    published: &[],
    used: &[
        Use {
            path: "crates/packets/capture/src/pool.rs",
            what: "has packet buffers that are all there from the start",
        },
        Use { path: "crates/base/ring/src/counting.rs", what: "proves in tests that a path takes no memory" },
        Use { path: "crates/market/engine/tests/no_allocation.rs", what: "is such a test" },
    ],
    assembly: &[
        Assembly {
            variant: "memory for each",
            symbol: "tapeworks_lab::catalogue::hot_path_allocation::Fresh::handle",
            marks: &["call"],
        },
        Assembly {
            variant: "buffers used again",
            symbol: "tapeworks_lab::catalogue::hot_path_allocation::Reused::handle",
            marks: &["call"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_way_handles_every_message(
            lengths in prop::collection::vec(
                prop_oneof![20 => 0usize..=LONGEST_BYTES, 1 => Just(SNAPSHOT_BYTES)],
                0..1_500,
            ),
        ) {
            let (mut fresh, mut reused, mut pooled) = (Fresh::default(), Reused::new(), Pooled::new());
            for (number, length) in (0u64..).zip(lengths) {
                let expected = fresh.handle(length, number);
                prop_assert_eq!(reused.handle(length, number), expected);
                prop_assert_eq!(pooled.handle(length, number), expected);
            }
            prop_assert!(fresh.kept.len() <= KEPT && pooled.pool.len() <= KEPT);
            prop_assert_eq!(pooled.pool.growths(), 0);
        }
    }

    #[test]
    fn one_message_in_a_thousand_is_a_snapshot() {
        let lengths = lengths(5_000, &mut Random::new(3));
        assert_eq!(lengths.iter().filter(|length| **length == SNAPSHOT_BYTES).count(), 5);
        assert!(
            lengths.iter().all(|length| *length == SNAPSHOT_BYTES || (16..=LONGEST_BYTES).contains(length))
        );
    }
}
