//! `a * x + y` over many numbers: one, four, eight and sixteen at a time, from memory and from registers.
//!
//! Results must be equal in every bit, so product and sum are rounded separately. A fused multiply-add rounds once. It is a separate
//! variant, whose results are equal only because the experiments' inputs are small integers with exact products.

use std::hint::black_box;

use pulp::{Simd, WithSimd};

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Processes one number per iteration. `black_box(())` prevents vectorisation.
// ANCHOR: baseline
#[inline(never)]
pub fn scalar(factor: f32, x: &[f32], y: &[f32], target: &mut [f32]) {
    for ((target, x), y) in target.iter_mut().zip(x).zip(y) {
        black_box(());
        *target = factor * x + y;
    }
}
// ANCHOR_END: baseline

/// The same loop, vectorised by the compiler with the target's baseline vectors: four numbers at a time on x86-64.
// ANCHOR: auto
#[inline(never)]
pub fn vectorised_by_the_compiler(factor: f32, x: &[f32], y: &[f32], target: &mut [f32]) {
    for ((target, x), y) in target.iter_mut().zip(x).zip(y) {
        *target = factor * x + y;
    }
}
// ANCHOR_END: auto

/// The work for vectors of any width.
// ANCHOR: variant
struct MultiplyAdd<'v, const FUSED: bool> {
    factor: f32,
    x: &'v [f32],
    y: &'v [f32],
    target: &'v mut [f32],
}

impl<const FUSED: bool> WithSimd for MultiplyAdd<'_, FUSED> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let length = self.target.len().min(self.x.len()).min(self.y.len());
        let (Some(x), Some(y), Some(target)) =
            (self.x.get(..length), self.y.get(..length), self.target.get_mut(..length))
        else {
            return;
        };
        // Whole vectors, and the numbers behind the last of them.
        let (x, x_tail) = S::as_simd_f32s(x);
        let (y, y_tail) = S::as_simd_f32s(y);
        let (target, target_tail) = S::as_mut_simd_f32s(target);
        let factor = simd.splat_f32s(self.factor);
        for ((target, x), y) in target.iter_mut().zip(x).zip(y) {
            *target = if FUSED {
                simd.mul_add_f32s(factor, *x, *y)
            } else {
                simd.add_f32s(simd.mul_f32s(factor, *x), *y)
            };
        }
        for ((target, x), y) in target_tail.iter_mut().zip(x_tail).zip(y_tail) {
            *target = if FUSED { self.factor.mul_add(*x, *y) } else { self.factor * x + y };
        }
    }
}
// ANCHOR_END: variant

/// Numbers that stay in registers: eight of the widest registers.
const IN_REGISTERS: usize = 128;

/// Computes every number times `factor` plus `term`, `steps` times, one number after another: each step waits for the last.
// ANCHOR: registers
#[inline(never)]
pub fn registers_scalar(numbers: &mut [f32; IN_REGISTERS], factor: f32, term: f32, steps: usize) {
    for number in numbers {
        let mut value = *number;
        for _ in 0..steps {
            value = value * factor + term;
        }
        *number = value;
    }
}

struct Steps<'v> {
    numbers: &'v mut [f32; IN_REGISTERS],
    factor: f32,
    term: f32,
    steps: usize,
}

impl WithSimd for Steps<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (factor, term) = (simd.splat_f32s(self.factor), simd.splat_f32s(self.term));
        let (vectors, _) = S::as_mut_simd_f32s(self.numbers);
        // Eight vectors in eight registers: eight chains that do not wait for each other.
        for eight in vectors.as_chunks_mut::<8>().0 {
            let mut values = *eight;
            for _ in 0..self.steps {
                for value in &mut values {
                    *value = simd.add_f32s(simd.mul_f32s(*value, factor), term);
                }
            }
            *eight = values;
        }
    }
}
// ANCHOR_END: registers

/// Uses eight registers of four numbers.
#[inline(never)]
pub fn registers_sse(numbers: &mut [f32; IN_REGISTERS], factor: f32, term: f32, steps: usize) {
    for group in numbers.as_chunks_mut::<32>().0 {
        let mut values = *group;
        for _ in 0..steps {
            for value in &mut values {
                *value = *value * factor + term;
            }
        }
        *group = values;
    }
}

/// The vector widths that this machine supports.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    #[cfg(target_arch = "x86_64")]
    avx2: Option<pulp::x86::V3>,
    #[cfg(target_arch = "x86_64")]
    avx512: Option<pulp::x86::V4>,
}

impl Widths {
    /// Queries the processor.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            avx2: pulp::x86::V3::try_new(),
            #[cfg(target_arch = "x86_64")]
            avx512: pulp::x86::V4::try_new(),
        }
    }

    /// Runs the work with AVX2 (and FMA). Returns whether the machine supports it.
    #[inline(always)]
    fn with_avx2(self, work: impl WithSimd) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            Simd::vectorize(avx2, work);
            return true;
        }
        let _ = work;
        false
    }

    /// Runs the work with AVX-512. Returns whether the machine supports it.
    #[inline(always)]
    fn with_avx512(self, work: impl WithSimd) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx512) = self.avx512 {
            Simd::vectorize(avx512, work);
            return true;
        }
        let _ = work;
        false
    }

    fn has_avx2(self) -> bool {
        self.with_avx2(MultiplyAdd::<false> { factor: 0.0, x: &[], y: &[], target: &mut [] })
    }

    fn has_avx512(self) -> bool {
        self.with_avx512(MultiplyAdd::<false> { factor: 0.0, x: &[], y: &[], target: &mut [] })
    }
}

/// Processes eight numbers at a time. Returns whether the machine supports AVX2.
#[inline(never)]
pub fn avx2(widths: Widths, factor: f32, x: &[f32], y: &[f32], target: &mut [f32]) -> bool {
    widths.with_avx2(MultiplyAdd::<false> { factor, x, y, target })
}

/// Processes eight numbers at a time with a fused multiply-add, which rounds once. Returns whether the machine supports it.
#[inline(never)]
pub fn avx2_fused(widths: Widths, factor: f32, x: &[f32], y: &[f32], target: &mut [f32]) -> bool {
    widths.with_avx2(MultiplyAdd::<true> { factor, x, y, target })
}

/// Processes sixteen numbers at a time. Returns whether the machine supports AVX-512.
#[inline(never)]
pub fn avx512(widths: Widths, factor: f32, x: &[f32], y: &[f32], target: &mut [f32]) -> bool {
    widths.with_avx512(MultiplyAdd::<false> { factor, x, y, target })
}

/// Combines both ends of the target into one number. The loops cannot be removed, because their functions are not inlined.
fn answer(target: &[f32]) -> u64 {
    let (first, last) = (target.first(), target.last());
    let bits = |number: Option<&f32>| u64::from(number.copied().unwrap_or_default().to_bits());
    bits(first) << 32 | bits(last)
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let widths = Widths::of_this_machine();
    if !widths.has_avx2() {
        lab.skip("AVX2: the processor does not have it");
    }
    if !widths.has_avx512() {
        lab.skip("AVX-512: the processor does not have it");
    }
    in_memory(lab, widths)?;
    in_registers(lab, widths)
}

fn in_memory(lab: &mut Lab<'_>, widths: Widths) -> Result<(), Ended> {
    lab.experiment("two loads and a store for each number", "number");
    lab.along("numbers in each of three arrays", Scale::Logarithmic);
    let mut random = lab.random();
    let counts = lab.either(vec![1_000, 16_000, 500_000, 16_000_000], vec![1_000, 16_000]);
    let largest = counts.iter().copied().max().unwrap_or_default();
    let mut whole =
        || -> Vec<f32> { std::iter::repeat_with(|| random.below(1_000) as f32).take(largest).collect() };
    let (x, y) = (whole(), whole());
    // All variants share one target: they take turns, and each overwrites all of it.
    let target = std::cell::RefCell::new(vec![0f32; largest]);
    let factor = black_box(3.0);
    for count in counts {
        let (x, y) = (x.get(..count).unwrap_or_default(), y.get(..count).unwrap_or_default());
        let timed = |work: fn(f32, &[f32], &[f32], &mut [f32])| {
            let target = &target;
            move || {
                let mut target = target.borrow_mut();
                let target = target.get_mut(..count).unwrap_or_default();
                work(factor, black_box(x), black_box(y), target);
                answer(target)
            }
        };
        let mut variants = Variants::of(count as u64)
            .add("scalar", timed(scalar))
            .add("vectorised by the compiler", timed(vectorised_by_the_compiler));
        type Wide = fn(Widths, f32, &[f32], &[f32], &mut [f32]) -> bool;
        let wide: [(&str, bool, Wide); 3] = [
            ("AVX2", widths.has_avx2(), avx2),
            ("AVX2, fused", widths.has_avx2(), avx2_fused),
            ("AVX-512", widths.has_avx512(), avx512),
        ];
        for (name, _, work) in wide.into_iter().filter(|(_, is_there, _)| *is_there) {
            let target = &target;
            variants = variants.add(name, move || {
                let mut target = target.borrow_mut();
                let target = target.get_mut(..count).unwrap_or_default();
                work(widths, factor, black_box(x), black_box(y), target);
                answer(target)
            });
        }
        lab.point(count as f64, &format!("{count} numbers"), variants)?;
    }
    Ok(())
}

fn in_registers(lab: &mut Lab<'_>, widths: Widths) -> Result<(), Ended> {
    const STEPS: usize = 256;
    lab.experiment("numbers that stay in registers", "multiplication and addition");
    let (factor, term) = (black_box(1.0), black_box(1.0));
    let begin = || black_box([1.0f32; IN_REGISTERS]);
    let mut variants = Variants::of((IN_REGISTERS * STEPS) as u64)
        .add("scalar", || {
            let mut numbers = begin();
            registers_scalar(&mut numbers, factor, term, STEPS);
            answer(&numbers)
        })
        .add("vectorised by the compiler", || {
            let mut numbers = begin();
            registers_sse(&mut numbers, factor, term, STEPS);
            answer(&numbers)
        });
    if widths.has_avx2() {
        variants = variants.add("AVX2", || {
            let mut numbers = begin();
            widths.with_avx2(Steps { numbers: &mut numbers, factor, term, steps: STEPS });
            answer(&numbers)
        });
    }
    if widths.has_avx512() {
        variants = variants.add("AVX-512", || {
            let mut numbers = begin();
            widths.with_avx512(Steps { numbers: &mut numbers, factor, term, steps: STEPS });
            answer(&numbers)
        });
    }
    lab.point(0.0, "", variants)
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 6,
    name: "simd",
    title: "SIMD multiply-add",
    question: "How much faster are wider vectors, where they compute and where they wait for memory?",
    published: &[],
    used: &[Use {
        path: "crates/protocols/fix-wire/src/scan.rs",
        what: "finds the ends of FIX fields, sixteen bytes at a time",
    }],
    assembly: &[
        Assembly {
            variant: "scalar",
            symbol: "tapeworks_lab::catalogue::simd::scalar",
            marks: &["mulss", "addss", "movss"],
        },
        Assembly {
            variant: "vectorised by the compiler",
            symbol: "tapeworks_lab::catalogue::simd::vectorised_by_the_compiler",
            marks: &["mulps", "addps", "movups"],
        },
        Assembly {
            variant: "AVX2",
            symbol: "tapeworks_lab::catalogue::simd::avx2 -> vectorize",
            marks: &["vmulps", "vaddps"],
        },
        Assembly {
            variant: "AVX2, fused",
            symbol: "tapeworks_lab::catalogue::simd::avx2_fused -> vectorize",
            marks: &["vfmadd"],
        },
        Assembly {
            variant: "AVX-512",
            symbol: "tapeworks_lab::catalogue::simd::avx512 -> vectorize",
            marks: &["vmulps", "vaddps"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn all_widths_give_the_same_bits(
            numbers in prop::collection::vec((-1e6f32..1e6, -1e6f32..1e6), 0..70),
            factor in -1e6f32..1e6,
        ) {
            let (x, y): (Vec<f32>, Vec<f32>) = numbers.into_iter().unzip();
            let widths = Widths::of_this_machine();
            let empty = vec![0.0; x.len()];
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| factor * x + y).collect();
            let mut target = empty.clone();
            scalar(factor, &x, &y, &mut target);
            prop_assert_eq!(bits(&target), bits(&expected));
            target.clone_from(&empty);
            vectorised_by_the_compiler(factor, &x, &y, &mut target);
            prop_assert_eq!(bits(&target), bits(&expected));
            for wide in [avx2, avx512] {
                target.clone_from(&empty);
                if wide(widths, factor, &x, &y, &mut target) {
                    prop_assert_eq!(bits(&target), bits(&expected));
                }
            }
            target.clone_from(&empty);
            if avx2_fused(widths, factor, &x, &y, &mut target) {
                let fused: Vec<f32> = x.iter().zip(&y).map(|(x, y)| factor.mul_add(*x, *y)).collect();
                prop_assert_eq!(bits(&target), bits(&fused));
            }
        }

        #[test]
        fn steps_in_registers_give_the_same_bits(first in -10f32..10.0, factor in -1f32..1.0, steps in 0usize..20) {
            let mut begin = [0.0; IN_REGISTERS];
            begin.iter_mut().zip(0u8..).for_each(|(number, place)| *number = first + f32::from(place));
            let expected = begin.map(|number| (0..steps).fold(number, |value, _| value * factor + 0.5));
            let mut numbers = begin;
            registers_scalar(&mut numbers, factor, 0.5, steps);
            prop_assert_eq!(bits(&numbers), bits(&expected));
            numbers = begin;
            registers_sse(&mut numbers, factor, 0.5, steps);
            prop_assert_eq!(bits(&numbers), bits(&expected));
            let widths = Widths::of_this_machine();
            numbers = begin;
            if widths.with_avx2(Steps { numbers: &mut numbers, factor, term: 0.5, steps }) {
                prop_assert_eq!(bits(&numbers), bits(&expected));
            }
            numbers = begin;
            if widths.with_avx512(Steps { numbers: &mut numbers, factor, term: 0.5, steps }) {
                prop_assert_eq!(bits(&numbers), bits(&expected));
            }
        }
    }

    #[test]
    fn a_fused_multiply_add_rounds_once() {
        // The product's last bits are lost if it is rounded before the sum.
        let (factor, x, y) = (1.0f32 + 1.0 / 4096.0, 1.0 + 1.0 / 4096.0, -1.0);
        assert_ne!(factor.mul_add(x, y), factor * x + y);
    }
}
