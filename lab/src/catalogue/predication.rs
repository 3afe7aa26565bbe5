//! Trimming a vector by selecting values instead of branching.
//!
//! There are two trims. One limits each number to a range. The other keeps only the numbers in a range: its branch-free version writes
//! every number and advances only past kept ones. The last write may be one past the end: it must not be lost or go out of bounds.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// The range that numbers are trimmed to.
pub const RANGE: core::ops::RangeInclusive<u32> = 1_000_000..=2_000_000;

/// Writes the numbers in [`RANGE`] to `target`, as far as there is room, and returns their count, using a branch.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn keep_by_branch(numbers: &[u32], target: &mut [u32]) -> usize {
    let mut kept = 0;
    for number in numbers {
        if RANGE.contains(number) {
            if let Some(place) = target.get_mut(kept) {
                *place = *number;
            }
            black_box(());
            kept += 1;
        }
    }
    kept
}
// ANCHOR_END: baseline

/// Does the same without a branch: every number is written, and overwritten by the next unless it is kept. After the last kept number, a
/// rejected one is written only if there is room, so `target` may have exactly the kept length. It overwrites old content of `target`.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn keep_by_predicate(numbers: &[u32], target: &mut [u32]) -> usize {
    let mut kept = 0;
    for number in numbers {
        // In bounds until all room is taken: this branch is predicted.
        if let Some(place) = target.get_mut(kept) {
            *place = *number;
        }
        let is_above = *number >= *RANGE.start();
        let is_below = *number <= *RANGE.end();
        // `&` and not `&&`, which is a branch.
        kept += usize::from(is_above & is_below);
    }
    kept
}
// ANCHOR_END: variant

/// Limits each number to [`RANGE`], using branches.
// ANCHOR: limit_baseline
#[inline(never)]
pub fn limit_by_branch(numbers: &[u32], target: &mut [u32]) {
    for (place, number) in target.iter_mut().zip(numbers) {
        if *number < *RANGE.start() {
            black_box(());
            *place = *RANGE.start();
        } else if *number > *RANGE.end() {
            black_box(());
            *place = *RANGE.end();
        } else {
            *place = *number;
        }
    }
}
// ANCHOR_END: limit_baseline

/// Limits each number with conditional moves, one number per iteration.
// ANCHOR: limit_variant
#[inline(never)]
pub fn limit_by_move(numbers: &[u32], target: &mut [u32]) {
    for (place, number) in target.iter_mut().zip(numbers) {
        black_box(());
        *place = (*number).clamp(*RANGE.start(), *RANGE.end());
    }
}
// ANCHOR_END: limit_variant

/// Limits each number as the compiler prefers: minimum and maximum of several numbers at a time.
#[inline(never)]
pub fn limit(numbers: &[u32], target: &mut [u32]) {
    for (place, number) in target.iter_mut().zip(numbers) {
        *place = (*number).clamp(*RANGE.start(), *RANGE.end());
    }
}

/// Returns random numbers, about `percent` in a hundred of which are in [`RANGE`].
fn numbers_in_range(random: &mut Random, count: usize, percent: u64) -> Vec<u32> {
    let number = || {
        let within = random.below(1_000_000) as u32;
        if random.below(100) < percent {
            RANGE.start() + within
        } else if random.below(2) == 0 {
            within
        } else {
            RANGE.end() + 1 + within
        }
    };
    std::iter::repeat_with(number).take(count).collect()
}

/// Combines the result of a trim into one number.
fn answer(kept: &[u32]) -> u64 {
    let last = kept.last().copied().unwrap_or_default();
    (kept.len() as u64) << 32 | u64::from(last)
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    // Enough numbers that the branch predictor cannot memorize them.
    let count = lab.either(1 << 19, 1 << 16);
    let percents = lab.either((0..=100).step_by(10).collect(), vec![0, 50, 100]);
    let mut random = lab.random();
    let [mut first, mut second, mut third] = [(); 3].map(|()| vec![0u32; count]);
    lab.experiment("keeping the numbers of a range", "number");
    lab.along("numbers that stay, %", Scale::Linear);
    for percent in &percents {
        let numbers = numbers_in_range(&mut random, count, *percent);
        let numbers = numbers.as_slice();
        lab.point(
            *percent as f64,
            &format!("{percent} %"),
            Variants::of(count as u64)
                .add("branch", || {
                    let kept = keep_by_branch(black_box(numbers), &mut first);
                    answer(first.get(..kept).unwrap_or_default())
                })
                .add("predicate", || {
                    let kept = keep_by_predicate(black_box(numbers), &mut second);
                    answer(second.get(..kept).unwrap_or_default())
                }),
        )?;
    }
    lab.experiment("limiting numbers to a range", "number");
    lab.along("numbers within, %", Scale::Linear);
    for percent in &percents {
        let numbers = numbers_in_range(&mut random, count, *percent);
        let numbers = numbers.as_slice();
        lab.point(
            *percent as f64,
            &format!("{percent} %"),
            Variants::of(count as u64)
                .add("branch", || {
                    limit_by_branch(black_box(numbers), &mut first);
                    answer(&first)
                })
                .add("conditional moves", || {
                    limit_by_move(black_box(numbers), &mut second);
                    answer(&second)
                })
                .add("as the compiler likes", || {
                    limit(black_box(numbers), &mut third);
                    answer(&third)
                }),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 5,
    name: "predication",
    title: "Predication",
    question: "When is it faster to compute both ways and choose a value than to branch?",
    published: &[],
    used: &[
        Use {
            path: "crates/market/market/src/book.rs",
            what: "selects the order to prefetch by `select_unpredictable`",
        },
        Use { path: "crates/market/market/src/orders.rs", what: "selects the slot of an order" },
    ],
    assembly: &[
        Assembly {
            variant: "branch",
            symbol: "tapeworks_lab::catalogue::predication::keep_by_branch",
            marks: &["cmp", "j"],
        },
        Assembly {
            variant: "predicate",
            symbol: "tapeworks_lab::catalogue::predication::keep_by_predicate",
            marks: &["set", "adc", "sbb", "cmp"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_number() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 999_998u32..1_000_003, 1_999_998u32..2_000_003, 1_000_000u32..2_000_000,]
    }

    fn kept(keep: fn(&[u32], &mut [u32]) -> usize, numbers: &[u32], room: usize) -> (usize, Vec<u32>) {
        let mut target = vec![7; room];
        let kept = keep(numbers, &mut target);
        target.truncate(kept);
        (kept, target)
    }

    proptest! {
        #[test]
        fn both_keep_the_numbers_of_the_range(
            numbers in prop::collection::vec(any_number(), 0..60),
            more in 0usize..3,
        ) {
            let expected: Vec<u32> =
                numbers.iter().copied().filter(|number| RANGE.contains(number)).collect();
            // Room for exactly the kept numbers, for a few more, and for too few.
            for room in [expected.len() + more, expected.len().saturating_sub(more)] {
                let within = expected[..room.min(expected.len())].to_vec();
                for keep in [keep_by_branch, keep_by_predicate] {
                    prop_assert_eq!(kept(keep, &numbers, room), (expected.len(), within.clone()));
                }
            }
        }

        #[test]
        fn all_limit_every_number(numbers in prop::collection::vec(any_number(), 0..60)) {
            let expected: Vec<u32> = numbers.iter().map(|number| *number.clamp(&1_000_000, &2_000_000)).collect();
            for limits in [limit_by_branch, limit_by_move, limit] {
                let mut target = vec![0; numbers.len()];
                limits(&numbers, &mut target);
                prop_assert_eq!(&target, &expected);
            }
        }
    }

    #[test]
    fn the_last_number_stays_or_goes() {
        for keep in [keep_by_branch, keep_by_predicate] {
            assert_eq!(kept(keep, &[1, 1_500_000], 2), (1, vec![1_500_000]), "the last one stays");
            assert_eq!(
                kept(keep, &[1_500_000, 1], 1),
                (1, vec![1_500_000]),
                "the last one goes, without room"
            );
            assert_eq!(kept(keep, &[1_500_000, 1], 2), (1, vec![1_500_000]), "and with room");
            assert_eq!(kept(keep, &[], 0), (0, vec![]));
        }
    }
}
