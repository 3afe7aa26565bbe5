//! Search in a sorted array: with branches, without them, in another layout, and with early prefetches.
//!
//! An array of a billion numbers is 4 GB, and there are two: the sorted one and its Eytzinger layout. The largest measured size is the
//! largest power of ten whose two arrays fit into a third of the available memory.

use std::hint::{black_box, select_unpredictable};

use tapeworks_ring::memory::HugeVec;
use tapeworks_ring::prefetch;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};

/// Numbers per cache line, which is also the number of adjacent descendants four generations down.
const LINE: usize = 16;

/// Finds the smallest number not less than `wanted`, with comparisons and jumps.
// ANCHOR: baseline
#[inline(always)]
fn search_by_branches(numbers: &[u32], wanted: u32) -> Option<u32> {
    let (mut low, mut high) = (0, numbers.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if *numbers.get(middle)? < wanted {
            low = middle + 1;
            black_box(());
        } else {
            high = middle;
        }
    }
    numbers.get(low).copied()
}
// ANCHOR_END: baseline

/// Does the same without branching on a comparison: the number of iterations depends only on the length.
// ANCHOR: branchless
#[inline(always)]
fn search_without_branches<const PREFETCH: bool>(numbers: &[u32], wanted: u32) -> Option<u32> {
    let (mut low, mut left) = (0, numbers.len());
    while left > 1 {
        let half = left / 2;
        left -= half;
        if PREFETCH {
            // One of the two is the next middle.
            prefetch::read(numbers, low + left / 2);
            prefetch::read(numbers, low + half + left / 2);
        }
        let is_less = *numbers.get(low + half - 1)? < wanted;
        low = select_unpredictable(is_less, low + half, low);
    }
    let is_less = *numbers.get(low)? < wanted;
    numbers.get(low + usize::from(is_less)).copied()
}
// ANCHOR_END: branchless

/// Numbers in Eytzinger layout: the children of position `k` are at `2k` and `2k + 1`, and the root is at 1.
#[derive(Debug)]
pub struct Eytzinger {
    places: HugeVec<u32>,
}

impl Eytzinger {
    /// Arranges sorted numbers.
    #[must_use]
    pub fn of(sorted: &[u32]) -> Self {
        let mut places = HugeVec::zeroed(sorted.len() + 1);
        let mut numbers = sorted.iter();
        // Positions in numeric order: each follows its left descendants and precedes its right ones.
        let mut place = 1;
        let mut above = Vec::new();
        while place < places.len() || !above.is_empty() {
            if place < places.len() {
                above.push(place);
                place *= 2;
            } else if let Some(next) = above.pop() {
                if let (Some(target), Some(number)) = (places.get_mut(next), numbers.next()) {
                    *target = *number;
                }
                place = 2 * next + 1;
            }
        }
        Self { places }
    }

    // ANCHOR: variant
    #[inline(always)]
    fn search<const PREFETCH: bool>(&self, wanted: u32) -> Option<u32> {
        let places: &[u32] = &self.places;
        let mut place = 1;
        while let Some(number) = places.get(place) {
            if PREFETCH {
                // The sixteen descendants four generations on lie in one cache line.
                prefetch::read(places, place * LINE);
            }
            place = 2 * place + usize::from(*number < wanted);
        }
        // Back up to where the search last went left: that number is not less, and none between is.
        let found = place >> (place.trailing_ones() + 1);
        if found == 0 { None } else { places.get(found).copied() }
    }
    // ANCHOR_END: variant
}

/// Sums the results. With `Link::Zero`, each search waits for the last one, because the compiler does not know that the factor is 0.
#[inline(always)]
fn sum(wanted: &[u32], link: Link, search: impl Fn(u32) -> Option<u32>) -> u64 {
    let mut total = 0u64;
    let mut last = 0u32;
    for wanted in wanted {
        last = match link {
            Link::None => search(*wanted),
            Link::Zero(zero) => search(wanted.wrapping_add(last.wrapping_mul(zero))),
        }
        .unwrap_or(u32::MAX);
        total = total.wrapping_add(u64::from(last));
    }
    total
}

/// Whether a search waits for the one before.
#[derive(Clone, Copy, Debug)]
pub enum Link {
    /// The processor may start the next search early.
    None,
    /// The next search waits: it adds the last result times this number, which is 0.
    Zero(u32),
}

/// Searches with branches.
#[inline(never)]
#[must_use]
pub fn branches(numbers: &[u32], wanted: &[u32], link: Link) -> u64 {
    sum(wanted, link, |wanted| search_by_branches(numbers, wanted))
}

/// Searches without branches.
#[inline(never)]
#[must_use]
pub fn branchless(numbers: &[u32], wanted: &[u32], link: Link) -> u64 {
    sum(wanted, link, |wanted| search_without_branches::<false>(numbers, wanted))
}

/// Searches without branches, and prefetches both possible next middles.
#[inline(never)]
#[must_use]
pub fn branchless_prefetching(numbers: &[u32], wanted: &[u32], link: Link) -> u64 {
    sum(wanted, link, |wanted| search_without_branches::<true>(numbers, wanted))
}

/// Searches in Eytzinger layout.
#[inline(never)]
#[must_use]
pub fn eytzinger(numbers: &Eytzinger, wanted: &[u32], link: Link) -> u64 {
    sum(wanted, link, |wanted| numbers.search::<false>(wanted))
}

/// Searches in Eytzinger layout, and prefetches four generations ahead.
#[inline(never)]
#[must_use]
pub fn eytzinger_prefetching(numbers: &Eytzinger, wanted: &[u32], link: Link) -> u64 {
    sum(wanted, link, |wanted| numbers.search::<true>(wanted))
}

/// Returns the available memory in bytes as reported by the kernel; 1 GiB if it is not reported.
fn available_bytes() -> u64 {
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.unwrap_or(1 << 20) << 10
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let largest = available_bytes() / 3 / (2 * size_of::<u32>() as u64);
    let powers: Vec<u32> = lab.either((0..=9).collect(), vec![0, 3, 5]);
    let is_in_reach = |power: &&u32| 10u64.pow(**power) <= largest;
    if let Some(power) = powers.iter().find(|power| !is_in_reach(power)) {
        lab.skip(format!(
            "10^{power} numbers and more: their two arrays do not fit into a third of the memory available"
        ));
    }
    let powers: Vec<u32> = powers.iter().filter(is_in_reach).copied().collect();
    search_in(lab, &powers, "independent searches", Link::None)?;
    let chained: Vec<u32> = powers.iter().filter(|power| **power % 2 == 1).copied().collect();
    search_in(lab, &chained, "searches each of which waits for the last", Link::Zero(black_box(0)))
}

fn search_in(lab: &mut Lab<'_>, powers: &[u32], title: &str, link: Link) -> Result<(), Ended> {
    lab.experiment(title, "search");
    lab.along("numbers in the array", Scale::Logarithmic);
    for power in powers {
        let count = 10usize.pow(*power);
        let mut sorted = HugeVec::<u32>::zeroed(count);
        for (number, place) in sorted.iter_mut().zip(0u32..) {
            *number = 2 * place + 1;
        }
        let numbers: &[u32] = &sorted;
        let tree = Eytzinger::of(numbers);
        // Enough searches that the branch predictor cannot memorize them, and that in a large array the lines of one call are evicted before the
        // next.
        let searches = lab.either(1 << 16, 1 << 12);
        let mut random = lab.random();
        let wanted = || random.below(2 * count as u64 + 1) as u32;
        let wanted: Vec<u32> = std::iter::repeat_with(wanted).take(searches).collect();
        let wanted = wanted.as_slice();
        lab.point(
            count as f64,
            &format!("10^{power} numbers"),
            Variants::of(searches as u64)
                .add("branches", || branches(black_box(numbers), wanted, link))
                .add("branchless", || branchless(black_box(numbers), wanted, link))
                .add("branchless, prefetching", || branchless_prefetching(black_box(numbers), wanted, link))
                .add("Eytzinger", || eytzinger(black_box(&tree), wanted, link))
                .add("Eytzinger, prefetching", || eytzinger_prefetching(black_box(&tree), wanted, link)),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 3,
    name: "binary-search",
    title: "Prefetch in a binary search",
    question: "How much of a search's time are mispredictions and cache misses, and which layout avoids them?",
    published: &[
        Published {
            source: "Khuong and Morin, Array Layouts for Comparison-Based Searching, 2017, abstract",
            figure: "for small arrays the sorted order with a good binary search is best; for larger ones the Eytzinger layout is usually the fastest",
        },
        Published {
            source: "Algorithmica, Binary Search (Zen 2, DDR4-2666, Clang 10)",
            figure: "branchless and Eytzinger searches are up to 4 times faster than std::lower_bound",
        },
    ],
    used: &[
        Use {
            path: "crates/market/market/src/orders.rs",
            what: "prefetches the slot of an order that comes soon",
        },
        Use {
            path: "crates/market/market/src/levels.rs",
            what: "prefetches the end of a ladder of price levels",
        },
    ],
    assembly: &[
        Assembly {
            variant: "branches",
            symbol: "tapeworks_lab::catalogue::binary_search::branches",
            marks: &["cmp", "j"],
        },
        Assembly {
            variant: "branchless, prefetching",
            symbol: "tapeworks_lab::catalogue::binary_search::branchless_prefetching",
            marks: &["cmov", "prefetch"],
        },
        Assembly {
            variant: "Eytzinger, prefetching",
            symbol: "tapeworks_lab::catalogue::binary_search::eytzinger_prefetching",
            marks: &["adc", "sbb", "set", "prefetch"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(sorted: &[u32], wanted: u32) -> [Option<u32>; 5] {
        let tree = Eytzinger::of(sorted);
        [
            search_by_branches(sorted, wanted),
            search_without_branches::<false>(sorted, wanted),
            search_without_branches::<true>(sorted, wanted),
            tree.search::<false>(wanted),
            tree.search::<true>(wanted),
        ]
    }

    proptest! {
        #[test]
        fn every_search_finds_the_smallest_that_is_not_less(
            numbers in prop::collection::vec(prop_oneof![0u32..60, any::<u32>()], 0..70),
            wanted in prop_oneof![0u32..62, any::<u32>()],
        ) {
            let mut numbers = numbers;
            numbers.sort_unstable();
            let expected = numbers.iter().copied().find(|number| *number >= wanted);
            prop_assert_eq!(all(&numbers, wanted), [expected; 5]);
        }
    }

    #[test]
    fn every_length_has_a_first_a_last_and_nothing_behind() {
        for length in 0..40 {
            let numbers: Vec<u32> = (0..length).map(|place| 2 * place + 1).collect();
            for wanted in 0..2 * length + 3 {
                let expected = (wanted < 2 * length).then_some(wanted | 1);
                assert_eq!(all(&numbers, wanted), [expected; 5], "{wanted} of {length}");
            }
        }
    }

    #[test]
    fn a_link_does_not_change_the_sum() {
        let (numbers, wanted) = ([1, 3, 5, 7], [0, 8, 4]);
        let sums = [Link::None, Link::Zero(0)].map(|link| branches(&numbers, &wanted, link));
        assert_eq!(sums, [1 + u64::from(u32::MAX) + 5; 2]);
    }
}
