//! Inlining a small function: no call, and the compiler can optimise across the boundary.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Computes the cube of a number, in a function that is called.
// ANCHOR: cube
#[inline(never)]
#[must_use]
pub fn cube_called(number: u64) -> u64 {
    number.wrapping_mul(number).wrapping_mul(number)
}

/// The same, at its place of use.
#[inline(always)]
const fn cube_inlined(number: u64) -> u64 {
    number.wrapping_mul(number).wrapping_mul(number)
}
// ANCHOR_END: cube

/// Sums the cubes with a call for each.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn called(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(cube_called(*number)))
}
// ANCHOR_END: baseline

/// Sums the cubes without calls. `black_box` keeps the compiler from computing two cubes with one instruction.
// ANCHOR: scalar
#[inline(never)]
#[must_use]
pub fn inlined_one_by_one(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| {
        black_box(());
        sum.wrapping_add(cube_inlined(*number))
    })
}
// ANCHOR_END: scalar

/// Sums the cubes without calls. The compiler may optimise the loop freely.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn inlined(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(cube_inlined(*number)))
}
// ANCHOR_END: variant

/// Computes a chain in which each cube depends on the one before.
#[inline(never)]
#[must_use]
pub fn chain_called(numbers: &[u64]) -> u64 {
    numbers.iter().fold(1, |last, number| cube_called(last ^ *number))
}

/// Computes the same chain without calls.
#[inline(never)]
#[must_use]
pub fn chain_inlined(numbers: &[u64]) -> u64 {
    numbers.iter().fold(1, |last, number| cube_inlined(last ^ *number))
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    let numbers: Vec<u64> = std::iter::repeat_with(|| random.number()).take(2_048).collect();
    lab.experiment("the sum of cubes", "cube");
    lab.along("numbers", Scale::Logarithmic);
    for count in lab.either(vec![8, 64, 512, 2_048], vec![8, 512]) {
        let numbers = numbers.get(..count).unwrap_or_default();
        lab.point(
            count as f64,
            &format!("{count} numbers"),
            Variants::of(count as u64)
                .add("called", || called(black_box(numbers)))
                .add("inlined, one by one", || inlined_one_by_one(black_box(numbers)))
                .add("inlined", || inlined(black_box(numbers))),
        )?;
    }
    lab.experiment("a chain of cubes, each of which needs the last", "cube");
    let numbers = numbers.as_slice();
    lab.point(
        0.0,
        "",
        Variants::of(numbers.len() as u64)
            .add("called", || chain_called(black_box(numbers)))
            .add("inlined", || chain_inlined(black_box(numbers))),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 1,
    name: "inlining",
    title: "Inlining",
    question: "What does a call of a small function cost, and what else does its removal allow?",
    published: &[],
    used: &[
        Use {
            path: "crates/protocols/wire/src/lib.rs",
            what: "the accessors of every message are inlined into their users",
        },
        Use {
            path: "crates/market/market/src/book.rs",
            what: "`Books::apply` is inlined into the stage's loop",
        },
    ],
    assembly: &[
        Assembly {
            variant: "called",
            symbol: "tapeworks_lab::catalogue::inlining::called",
            marks: &["call", "push", "pop"],
        },
        Assembly {
            variant: "inlined",
            symbol: "tapeworks_lab::catalogue::inlining::inlined",
            marks: &["imul", "pmul"],
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
        fn all_sums_are_equal(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let expected =
                numbers.iter().fold(0u64, |sum, number| sum.wrapping_add(number.wrapping_pow(3)));
            prop_assert_eq!(called(&numbers), expected);
            prop_assert_eq!(inlined_one_by_one(&numbers), expected);
            prop_assert_eq!(inlined(&numbers), expected);
        }

        #[test]
        fn both_chains_are_equal(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let expected = numbers.iter().fold(1u64, |last, number| (last ^ number).wrapping_pow(3));
            prop_assert_eq!(chain_called(&numbers), expected);
            prop_assert_eq!(chain_inlined(&numbers), expected);
        }
    }
}
