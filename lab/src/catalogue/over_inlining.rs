//! Excessive inlining: many copies of a large function exceed the instruction caches, but one called copy fits.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Mixes eight numbers side by side: about two hundred bytes of short instructions, with no branches or long waits. The bottleneck is
/// the supply of instructions.
// ANCHOR: body
#[inline(always)]
const fn mix(state: &mut State) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    a = (a ^ 0x6a09_e667).wrapping_add(b);
    c = c.wrapping_add(0x3b67_ae85) ^ d;
    e = (e ^ 0x3c6e_f372).wrapping_add(f);
    g = g.wrapping_add(0x254f_f53a) ^ h;
    b = (b ^ 0x510e_527f).wrapping_add(c);
    d = d.wrapping_add(0x1b05_688c) ^ e;
    f = (f ^ 0x1f83_d9ab).wrapping_add(g);
    h = h.wrapping_add(0x5be0_cd19) ^ a;
    a = (a ^ 0x428a_2f98).wrapping_add(e);
    c = c.wrapping_add(0x7137_4491) ^ g;
    e = (e ^ 0x35c0_fbcf).wrapping_add(b);
    g = g.wrapping_add(0x69b5_dba5) ^ d;
    b = (b ^ 0x3956_c25b).wrapping_add(f);
    d = d.wrapping_add(0x59f1_11f1) ^ h;
    f = (f ^ 0x123f_82a4).wrapping_add(a);
    h = h.wrapping_add(0x2b1c_5ed5) ^ c;
    a = (a ^ 0x5807_aa98).wrapping_add(d);
    c = c.wrapping_add(0x1283_5b01) ^ f;
    e = (e ^ 0x2431_85be).wrapping_add(h);
    g = g.wrapping_add(0x550c_7dc3) ^ b;
    *state = [a, b, c, d, e, f, g, h];
}

/// The same, once in the program.
#[inline(never)]
const fn mix_called(state: &mut State) {
    mix(state);
}
// ANCHOR_END: body

/// Repeats an expression at sixteen places.
macro_rules! sixteen_times {
    ($($code:tt)*) => {
        $($code)* $($code)* $($code)* $($code)*
        $($code)* $($code)* $($code)* $($code)*
        $($code)* $($code)* $($code)* $($code)*
        $($code)* $($code)* $($code)* $($code)*
    };
}

/// Sixteen copies of the code.
#[inline(never)]
pub const fn inlined_at_16(state: &mut State) {
    sixteen_times!(mix(state););
}

/// Sixteen calls.
#[inline(never)]
pub const fn called_at_16(state: &mut State) {
    sixteen_times!(mix_called(state););
}

/// Sixty-four copies of the code.
#[inline(never)]
pub const fn inlined_at_64(state: &mut State) {
    sixteen_times!({
        mix(state);
        mix(state);
        mix(state);
        mix(state);
    });
}

/// Sixty-four calls.
#[inline(never)]
pub const fn called_at_64(state: &mut State) {
    sixteen_times!({
        mix_called(state);
        mix_called(state);
        mix_called(state);
        mix_called(state);
    });
}

/// 256 copies of the code.
#[inline(never)]
pub const fn inlined_at_256(state: &mut State) {
    sixteen_times!({
        sixteen_times!(mix(state););
    });
}

/// 256 calls.
// ANCHOR: variants
#[inline(never)]
pub const fn called_at_256(state: &mut State) {
    sixteen_times!({
        sixteen_times!(mix_called(state););
    });
}
// ANCHOR_END: variants

/// 1,024 copies of the code: about two hundred kilobytes. It consists of called quarters, because the compiler's time grows with the
/// square of a function's size. Four calls are negligible.
#[inline(never)]
pub const fn inlined_at_1024(state: &mut State) {
    quarter::<0>(state);
    quarter::<1>(state);
    quarter::<2>(state);
    quarter::<3>(state);
}

/// 256 copies of the code. The number keeps the compiler from merging the four quarters.
#[inline(never)]
const fn quarter<const NUMBER: u64>(state: &mut State) {
    black_box(NUMBER);
    sixteen_times!({
        sixteen_times!(mix(state););
    });
}

/// 1,024 calls.
#[inline(never)]
pub const fn called_at_1024(state: &mut State) {
    sixteen_times!({
        sixteen_times!({
            mix_called(state);
            mix_called(state);
            mix_called(state);
            mix_called(state);
        });
    });
}

/// Eight numbers.
pub type State = [u64; 8];

type Sites = fn(&mut State);

/// The numbers of places of use, each with both variants.
const SITES: [(u64, Sites, Sites); 4] = [
    (16, inlined_at_16, called_at_16),
    (64, inlined_at_64, called_at_64),
    (256, inlined_at_256, called_at_256),
    (1_024, inlined_at_1024, called_at_1024),
];

/// Bytes that the work between two passes touches: more than a second-level cache.
const OTHER_WORK_BYTES: usize = 8 << 20;

/// Runs all places once, from the same initial state.
fn answer(sites: Sites) -> u64 {
    let mut state = black_box([1, 2, 3, 4, 5, 6, 7, 8]);
    sites(&mut state);
    state.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lab.experiment("the places run again and again, with nothing between", "place");
    lab.along("places of use", Scale::Logarithmic);
    for (count, inlined, called) in SITES {
        lab.point(
            count as f64,
            &format!("{count} places"),
            Variants::of(count)
                .add("inlined", || answer(black_box(inlined)))
                .add("called", || answer(black_box(called))),
        )?;
    }
    // Between two messages a process does other work, which evicts code and data from shared caches. Only the pass after it is timed.
    lab.experiment("one pass after other work took the first and second cache", "place");
    lab.along("places of use", Scale::Logarithmic);
    let passes = lab.either(20, 4);
    let others = vec![1u8; OTHER_WORK_BYTES];
    let others = others.as_slice();
    for (count, inlined, called) in SITES {
        let cold = |sites: Sites| {
            move |reporter: &mut crate::measure::Reporter| {
                let mut sum = 0u64;
                let mut took = std::time::Duration::ZERO;
                for _ in 0..passes {
                    black_box(black_box(others).iter().step_by(64).fold(0u8, |sum, byte| sum ^ byte));
                    let started = std::time::Instant::now();
                    sum = sum.wrapping_add(answer(black_box(sites)));
                    took += started.elapsed();
                }
                reporter.figure(took.as_nanos() as f64 / (passes * count) as f64);
                sum
            }
        };
        lab.point(
            count as f64,
            &format!("{count} places"),
            Variants::of(count).add_reported("inlined", cold(inlined)).add_reported("called", cold(called)),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 21,
    name: "over-inlining",
    title: "Over-inlining",
    question: "From how much code on does inlining cost more than the calls that it saves?",
    published: &[],
    used: &[
        Use {
            path: "crates/market/market/src/book.rs",
            what: "rare ways of a book are `#[cold]` and never inlined",
        },
        Use {
            path: "crates/market/market/src/orders.rs",
            what: "the search beyond the first bucket is out of line",
        },
    ],
    assembly: &[
        Assembly {
            variant: "called at 16 places",
            symbol: "tapeworks_lab::catalogue::over_inlining::called_at_16",
            marks: &["call"],
        },
        Assembly {
            variant: "inlined at 16 places",
            symbol: "tapeworks_lab::catalogue::over_inlining::inlined_at_16",
            marks: &["xor", "add"],
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
        fn copies_and_calls_give_the_same_state(begin in any::<[u64; 8]>()) {
            for (count, inlined, called) in SITES {
                let (mut expected, mut by_copies, mut by_calls) = (begin, begin, begin);
                (0..count).for_each(|_| mix(&mut expected));
                inlined(&mut by_copies);
                called(&mut by_calls);
                prop_assert_eq!((by_copies, by_calls), (expected, expected));
            }
        }
    }
}
