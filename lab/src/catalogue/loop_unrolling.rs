//! Several elements per iteration: fewer jumps and counters, and independent sums.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Sums all numbers, one per iteration. Each addition waits for the one before, because the compiler may not reorder floating-point
/// additions, which would change the rounding.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn rolled(numbers: &[f64]) -> f64 {
    let mut sum = 0.0;
    for number in numbers {
        sum += number;
    }
    sum
}
// ANCHOR_END: baseline

/// Sums `BY` numbers per iteration, each with a separate sum, so that `BY` additions are in flight. The numbers after the last full
/// iteration are added one by one.
// ANCHOR: variant
#[inline(always)]
#[must_use]
pub fn unrolled<const BY: usize>(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; BY];
    let (turns, tail) = numbers.as_chunks::<BY>();
    for turn in turns {
        for (sum, number) in sums.iter_mut().zip(turn) {
            *sum += number;
        }
    }
    sums.iter().chain(tail).sum()
}
// ANCHOR_END: variant

/// Sums two numbers per iteration.
#[inline(never)]
#[must_use]
pub fn by_two(numbers: &[f64]) -> f64 {
    unrolled::<2>(numbers)
}

/// Sums four numbers per iteration.
#[inline(never)]
#[must_use]
pub fn by_four(numbers: &[f64]) -> f64 {
    unrolled::<4>(numbers)
}

/// Sums eight numbers per iteration.
#[inline(never)]
#[must_use]
pub fn by_eight(numbers: &[f64]) -> f64 {
    unrolled::<8>(numbers)
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lab.experiment("the sum of an array in the nearest cache", "number");
    lab.along("numbers", Scale::Logarithmic);
    let mut random = lab.random();
    for count in lab.either(vec![7, 63, 1_023, 4_095], vec![7, 1_023]) {
        // Integers: their sums are exact, and therefore the same in every order.
        let numbers: Vec<f64> = std::iter::repeat_with(|| random.below(1 << 32) as f64).take(count).collect();
        let numbers = numbers.as_slice();
        lab.point(
            count as f64,
            &format!("{count} numbers"),
            Variants::of(count as u64)
                .add("one a turn", || rolled(black_box(numbers)).to_bits())
                .add("two", || by_two(black_box(numbers)).to_bits())
                .add("four", || by_four(black_box(numbers)).to_bits())
                .add("eight", || by_eight(black_box(numbers)).to_bits()),
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
    used: &[Use {
        path: "crates/protocols/fix-wire/src/scan.rs",
        what: "sums bytes of a FIX message, 32 a turn",
    }],
    assembly: &[
        Assembly {
            variant: "one a turn",
            symbol: "tapeworks_lab::catalogue::loop_unrolling::rolled",
            marks: &["add", "j"],
        },
        Assembly {
            variant: "four",
            symbol: "tapeworks_lab::catalogue::loop_unrolling::by_four",
            marks: &["add", "j"],
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
        fn every_variant_sums_all_numbers(numbers in prop::collection::vec(any::<u32>(), 0..100)) {
            let expected: u64 = numbers.iter().map(|number| u64::from(*number)).sum();
            let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
            for sum in [rolled(&numbers), unrolled::<1>(&numbers), by_two(&numbers), by_four(&numbers), by_eight(&numbers)] {
                prop_assert_eq!(sum, expected as f64);
            }
        }
    }
}
