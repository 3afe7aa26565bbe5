//! Several elements a turn: fewer jumps and counters, and sums that do not wait for each other.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// The sum of all numbers, one a turn. `black_box` keeps the compiler from unrolling the loop itself, or adding several numbers by one instruction.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn rolled(numbers: &[u64]) -> u64 {
    let mut sum = 0u64;
    for number in numbers {
        sum = black_box(sum.wrapping_add(*number));
    }
    sum
}
// ANCHOR_END: baseline

/// The same, `BY` numbers a turn, each with a sum of its own. The numbers behind the last full turn are added one by one.
// ANCHOR: variant
#[inline(always)]
#[must_use]
pub fn unrolled<const BY: usize>(numbers: &[u64]) -> u64 {
    let mut sums = [0u64; BY];
    let (turns, tail) = numbers.as_chunks::<BY>();
    for turn in turns {
        for (sum, number) in sums.iter_mut().zip(turn) {
            *sum = sum.wrapping_add(*number);
        }
        sums = black_box(sums);
    }
    sums.iter().chain(tail).fold(0, |sum, number| sum.wrapping_add(*number))
}
// ANCHOR_END: variant

/// Two numbers a turn.
#[inline(never)]
#[must_use]
pub fn by_two(numbers: &[u64]) -> u64 {
    unrolled::<2>(numbers)
}

/// Four numbers a turn.
#[inline(never)]
#[must_use]
pub fn by_four(numbers: &[u64]) -> u64 {
    unrolled::<4>(numbers)
}

/// Eight numbers a turn.
#[inline(never)]
#[must_use]
pub fn by_eight(numbers: &[u64]) -> u64 {
    unrolled::<8>(numbers)
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lab.experiment("the sum of an array in the nearest cache", "number");
    lab.along("numbers", Scale::Logarithmic);
    let mut random = lab.random();
    for count in lab.either(vec![7, 63, 1_023, 4_095], vec![7, 1_023]) {
        let numbers: Vec<u64> = std::iter::repeat_with(|| random.number()).take(count).collect();
        let numbers = numbers.as_slice();
        lab.point(
            count as f64,
            &format!("{count} numbers"),
            Variants::of(count as u64)
                .add("one a turn", || rolled(black_box(numbers)))
                .add("two", || by_two(black_box(numbers)))
                .add("four", || by_four(black_box(numbers)))
                .add("eight", || by_eight(black_box(numbers))),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 2,
    name: "loop-unrolling",
    title: "Loop unrolling",
    question: "What do several elements a turn save, and from where on no more?",
    published: &[],
    used: &[Use { path: "crates/wire/src/fix/scan.rs", what: "sums bytes of a FIX message, 32 a turn" }],
    assembly: &[
        Assembly {
            variant: "one a turn",
            symbol: "tapeworks_lab::catalogue::loop_unrolling::rolled",
            marks: &["add", "j"],
        },
        Assembly {
            variant: "four",
            symbol: "tapeworks_lab::catalogue::loop_unrolling::by_four",
            marks: &["add", "padd", "j"],
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
        fn every_variant_sums_all_numbers(numbers in prop::collection::vec(any::<u64>(), 0..100)) {
            let expected = numbers.iter().fold(0u64, |sum, number| sum.wrapping_add(*number));
            prop_assert_eq!(rolled(&numbers), expected);
            prop_assert_eq!(unrolled::<1>(&numbers), expected);
            prop_assert_eq!(unrolled::<2>(&numbers), expected);
            prop_assert_eq!(unrolled::<4>(&numbers), expected);
            prop_assert_eq!(unrolled::<8>(&numbers), expected);
        }
    }
}
