//! Counting even numbers: a predicted branch costs little, a mispredicted one a lot.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};

/// Counts even numbers with a branch. `black_box(())` is free and keeps the branch, which the compiler would replace by arithmetic.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn branch(numbers: &[u32]) -> u64 {
    let mut count = 0;
    for number in numbers {
        if number % 2 == 0 {
            black_box(());
            count += 1;
        }
    }
    count
}
// ANCHOR_END: baseline

/// Adds the inverted lowest bit, one number per iteration.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn arithmetic(numbers: &[u32]) -> u64 {
    let mut count = 0;
    for number in numbers {
        black_box(());
        count += u64::from(!number & 1);
    }
    count
}
// ANCHOR_END: variant

/// Lets the compiler optimise the plain loop.
// ANCHOR: free
#[inline(never)]
#[must_use]
pub fn as_the_compiler_likes(numbers: &[u32]) -> u64 {
    let mut count = 0;
    for number in numbers {
        if number % 2 == 0 {
            count += 1;
        }
    }
    count
}
// ANCHOR_END: free

/// Returns random numbers, about `percent` in a hundred of which are even.
fn random_numbers(random: &mut Random, count: usize, percent: u64) -> Vec<u32> {
    let number = || {
        let is_even = random.below(100) < percent;
        (random.number() as u32 & !1) | u32::from(!is_even)
    };
    std::iter::repeat_with(number).take(count).collect()
}

fn three(numbers: &[u32]) -> Variants<'_> {
    Variants::of(numbers.len() as u64)
        .add("branch", || branch(black_box(numbers)))
        .add("arithmetic", || arithmetic(black_box(numbers)))
        .add("as the compiler likes", || as_the_compiler_likes(black_box(numbers)))
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    // Enough numbers that the predictor cannot memorize them: see the third experiment.
    let count = lab.either(1 << 20, 1 << 17);
    let mut random = lab.random();
    lab.experiment("counting even numbers in random order", "number");
    lab.along("even numbers, %", Scale::Linear);
    for percent in lab.either((0..=100).step_by(10).collect(), vec![0, 50, 100]) {
        let numbers = random_numbers(&mut random, count, percent);
        lab.point(percent as f64, &format!("{percent} %"), three(&numbers))?;
    }
    lab.experiment("the same numbers, half of them even, in other orders", "number");
    lab.along("order", Scale::Names);
    let shuffled = random_numbers(&mut random, count, 50);
    let mut sorted = shuffled.clone();
    sorted.sort_unstable_by_key(|number| number % 2);
    let alternating: Vec<u32> = (0..count as u32).collect();
    // The period is longer than any counter's, but short enough for a branch history.
    let periodic: Vec<u32> = shuffled.iter().take(100).cycle().take(count).copied().collect();
    let orders =
        [("random", shuffled), ("sorted", sorted), ("alternating", alternating), ("period 100", periodic)];
    for (place, (name, numbers)) in orders.iter().enumerate() {
        lab.point(place as f64, name, three(numbers))?;
    }
    lab.experiment("an array that is counted again and again: the predictor learns it by heart", "number");
    lab.along("numbers", Scale::Logarithmic);
    for count in lab.either(
        vec![1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20],
        vec![1 << 8, 1 << 14],
    ) {
        let numbers = random_numbers(&mut random, count, 50);
        lab.point(count as f64, &format!("{count} numbers"), three(&numbers))?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 4,
    name: "branch-prediction",
    title: "Branch prediction",
    question: "What does a branch cost that the processor guesses right, and one that it guesses wrong?",
    published: &[
        Published {
            source: "P. Guzenfeld, C++ Low-Latency Patterns, Benchmarked (Intel i7, GCC 14)",
            figure: "replacing a cascade of branches by a bit mask was 1.6 times slower, since its branches were predicted",
        },
        Published {
            source: "B. Carneal, forum of the D language, 2020 (counting decimal digits, Zen 1)",
            figure: "without branches 2.4 times faster on shuffled lengths, and 8.5 % slower on others",
        },
    ],
    used: &[
        Use {
            path: "crates/market/market/src/book.rs",
            what: "prefetches without a branch on the kind of an event",
        },
        Use {
            path: "crates/market/market/src/orders.rs",
            what: "chooses between two slots without a branch",
        },
    ],
    assembly: &[
        Assembly {
            variant: "branch",
            symbol: "tapeworks_lab::catalogue::branch_prediction::branch",
            marks: &["test", "j"],
        },
        Assembly {
            variant: "arithmetic",
            symbol: "tapeworks_lab::catalogue::branch_prediction::arithmetic",
            marks: &["not", "and", "add", "sub"],
        },
        Assembly {
            variant: "as the compiler likes",
            symbol: "tapeworks_lab::catalogue::branch_prediction::as_the_compiler_likes",
            marks: &["pand", "padd", "psub"],
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
        fn all_counts_are_equal(numbers in prop::collection::vec(any::<u32>(), 0..100)) {
            let expected = numbers.iter().filter(|number| number.is_multiple_of(2)).count() as u64;
            prop_assert_eq!(branch(&numbers), expected);
            prop_assert_eq!(arithmetic(&numbers), expected);
            prop_assert_eq!(as_the_compiler_likes(&numbers), expected);
        }
    }

    #[test]
    fn shares_of_even_numbers_are_as_wanted() {
        let mut random = Random::new(1);
        for percent in [0, 30, 50, 100] {
            let even = branch(&random_numbers(&mut random, 100_000, percent)) / 1_000;
            assert!(even.abs_diff(percent) <= 1, "{even} and not {percent} %");
        }
    }
}
