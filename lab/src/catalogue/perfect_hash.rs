//! From a message's type to its code: a perfect hash and a table, `match`, or sequential comparisons.
//!
//! The dispatchers are the product's: one declaration, three forms. The machines have two states, and a type's action depends on the
//! state, so no compiler can merge all actions into one function.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::technique::{Assembly, Technique, Use};

/// The data that the actions modify.
#[derive(Clone, Debug)]
pub struct Work {
    counts: [u64; 32],
}

impl Work {
    const fn new() -> Self {
        Self { counts: [0; 32] }
    }

    fn answer(&self) -> u64 {
        self.counts.iter().fold(0, |answer, count| answer.rotate_left(7) ^ count)
    }

    /// Performs one of six kinds of action. If they were alike, a compiler would replace their code with tables of numbers.
    #[inline(always)]
    fn at(&mut self, place: usize, message: u64) {
        let last = self.counts.get((place + 7) & 31).copied().unwrap_or_default();
        let Some(count) = self.counts.get_mut(place & 31) else { return };
        *count = match place % 6 {
            0 => count.wrapping_mul(2 * place as u64 + 3).wrapping_add(message),
            1 => count.rotate_left(place as u32) ^ message,
            2 => count.wrapping_sub(message | place as u64),
            3 => (*count >> 1).max(message),
            4 => count.wrapping_add(last & message),
            _ => message.count_ones() as u64 + (*count ^ place as u64),
        };
    }
}

/// Declares two actions per type, each on a different count, so that no two have the same code.
macro_rules! actions {
    ($($odd:ident $even:ident $place:literal;)*) => {
        impl Work {
            $(
                #[inline]
                fn $odd(&mut self, message: u64) { self.at($place, message); }
                #[inline]
                fn $even(&mut self, message: u64) { self.at(31 - $place, message ^ $place); }
            )*
        }
    };
}

actions! {
    odd_0 even_0 0; odd_1 even_1 1; odd_2 even_2 2; odd_3 even_3 3; odd_4 even_4 4; odd_5 even_5 5; odd_6 even_6 6;
    odd_7 even_7 7; odd_8 even_8 8; odd_9 even_9 9; odd_10 even_10 10; odd_11 even_11 11; odd_12 even_12 12;
    odd_13 even_13 13; odd_14 even_14 14; odd_15 even_15 15;
}

/// The letters of sixteen types of TotalView-ITCH 5.0: small numbers close together.
const LETTERS: [u64; 16] = [
    b'S' as u64,
    b'R' as u64,
    b'H' as u64,
    b'Y' as u64,
    b'L' as u64,
    b'V' as u64,
    b'W' as u64,
    b'K' as u64,
    b'A' as u64,
    b'F' as u64,
    b'E' as u64,
    b'C' as u64,
    b'X' as u64,
    b'D' as u64,
    b'U' as u64,
    b'P' as u64,
];

/// Sixteen 16-bit codes without a pattern.
const SPREAD: [u64; 16] = [
    0x1f3a, 0xc05d, 0x7e21, 0x03b7, 0x9a4c, 0x58f0, 0xe612, 0x2b9d, 0xb148, 0x6cc3, 0x4471, 0xd8ee, 0x0a95,
    0x835b, 0xf727, 0x3d06,
];

/// Declares a machine: sixteen types with their codes, and one form of dispatch. The first type changes the state.
// ANCHOR: machine
macro_rules! bench_machine {
    ($module:ident, $dispatch:ident, $first:tt $($event:ident $code:tt $odd:ident $even:ident)*) => {
        mod $module {
            use super::Work;

            tapeworks_dispatch::machine! {
                /// A machine.
                pub(super) machine Bench { context: Work, message: u64, dispatch: $dispatch }

                states { Odd, Even }

                events {
                    First = $first (message: u64),
                    $($event = $code (message: u64),)*
                }

                rows {
                    Odd + First => odd_0 -> Even;
                    Even + First => even_0 -> Odd;
                    $(
                        Odd + $event => $odd;
                        Even + $event => $even;
                    )*
                }
            }
        }
    };
}
// ANCHOR_END: machine

bench_machine!(table_of_letters, table, 'S'
    M1 'R' odd_1 even_1    M2 'H' odd_2 even_2    M3 'Y' odd_3 even_3    M4 'L' odd_4 even_4
    M5 'V' odd_5 even_5    M6 'W' odd_6 even_6    M7 'K' odd_7 even_7    M8 'A' odd_8 even_8
    M9 'F' odd_9 even_9    M10 'E' odd_10 even_10    M11 'C' odd_11 even_11    M12 'X' odd_12 even_12
    M13 'D' odd_13 even_13    M14 'U' odd_14 even_14    M15 'P' odd_15 even_15);
bench_machine!(match_of_letters, match, 'S'
    M1 'R' odd_1 even_1    M2 'H' odd_2 even_2    M3 'Y' odd_3 even_3    M4 'L' odd_4 even_4
    M5 'V' odd_5 even_5    M6 'W' odd_6 even_6    M7 'K' odd_7 even_7    M8 'A' odd_8 even_8
    M9 'F' odd_9 even_9    M10 'E' odd_10 even_10    M11 'C' odd_11 even_11    M12 'X' odd_12 even_12
    M13 'D' odd_13 even_13    M14 'U' odd_14 even_14    M15 'P' odd_15 even_15);
bench_machine!(chain_of_letters, chain, 'S'
    M1 'R' odd_1 even_1    M2 'H' odd_2 even_2    M3 'Y' odd_3 even_3    M4 'L' odd_4 even_4
    M5 'V' odd_5 even_5    M6 'W' odd_6 even_6    M7 'K' odd_7 even_7    M8 'A' odd_8 even_8
    M9 'F' odd_9 even_9    M10 'E' odd_10 even_10    M11 'C' odd_11 even_11    M12 'X' odd_12 even_12
    M13 'D' odd_13 even_13    M14 'U' odd_14 even_14    M15 'P' odd_15 even_15);
bench_machine!(table_of_spread, table, 0x1f3a
    M1 0xc05d odd_1 even_1    M2 0x7e21 odd_2 even_2    M3 0x03b7 odd_3 even_3    M4 0x9a4c odd_4 even_4
    M5 0x58f0 odd_5 even_5    M6 0xe612 odd_6 even_6    M7 0x2b9d odd_7 even_7    M8 0xb148 odd_8 even_8
    M9 0x6cc3 odd_9 even_9    M10 0x4471 odd_10 even_10    M11 0xd8ee odd_11 even_11    M12 0x0a95 odd_12 even_12
    M13 0x835b odd_13 even_13    M14 0xf727 odd_14 even_14    M15 0x3d06 odd_15 even_15);
bench_machine!(match_of_spread, match, 0x1f3a
    M1 0xc05d odd_1 even_1    M2 0x7e21 odd_2 even_2    M3 0x03b7 odd_3 even_3    M4 0x9a4c odd_4 even_4
    M5 0x58f0 odd_5 even_5    M6 0xe612 odd_6 even_6    M7 0x2b9d odd_7 even_7    M8 0xb148 odd_8 even_8
    M9 0x6cc3 odd_9 even_9    M10 0x4471 odd_10 even_10    M11 0xd8ee odd_11 even_11    M12 0x0a95 odd_12 even_12
    M13 0x835b odd_13 even_13    M14 0xf727 odd_14 even_14    M15 0x3d06 odd_15 even_15);
bench_machine!(chain_of_spread, chain, 0x1f3a
    M1 0xc05d odd_1 even_1    M2 0x7e21 odd_2 even_2    M3 0x03b7 odd_3 even_3    M4 0x9a4c odd_4 even_4
    M5 0x58f0 odd_5 even_5    M6 0xe612 odd_6 even_6    M7 0x2b9d odd_7 even_7    M8 0xb148 odd_8 even_8
    M9 0x6cc3 odd_9 even_9    M10 0x4471 odd_10 even_10    M11 0xd8ee odd_11 even_11    M12 0x0a95 odd_12 even_12
    M13 0x835b odd_13 even_13    M14 0xf727 odd_14 even_14    M15 0x3d06 odd_15 even_15);

/// Declares a complete run of a machine over codes.
macro_rules! run_of {
    ($($(#[$attribute:meta])* $name:ident $module:ident;)*) => {
        $(
            $(#[$attribute])*
            #[inline(never)]
            #[must_use]
            pub fn $name(codes: &[u64]) -> u64 {
                let (mut bench, mut work) = ($module::Bench::new(), Work::new());
                let mut unknown = 0u64;
                for (message, code) in (1u64..).zip(codes) {
                    unknown += u64::from(bench.dispatch(&mut work, *code, message).is_err());
                }
                work.answer() ^ unknown
            }
        )*
    };
}

// ANCHOR: run
run_of! {
    /// By a perfect hash and a table; letters.
    letters_by_table table_of_letters;
    /// By `match`; letters.
    letters_by_match match_of_letters;
    /// By one comparison after the other; letters.
    letters_by_chain chain_of_letters;
    /// By a perfect hash and a table; codes without a pattern.
    spread_by_table table_of_spread;
    /// By `match`; codes without a pattern.
    spread_by_match match_of_spread;
    /// By one comparison after the other; codes without a pattern.
    spread_by_chain chain_of_spread;
}
// ANCHOR_END: run

/// The order in which the types arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// A single type.
    Same,
    /// All types in turn, repeatedly.
    InTurn,
    /// Independent random types.
    AtRandom,
}

fn codes_of(types: &[u64; 16], count: usize, order: Order, random: &mut Random) -> Vec<u64> {
    (0..count)
        .filter_map(|place| {
            let chosen = match order {
                Order::Same => types.len() - 1,
                Order::InTurn => place % types.len(),
                Order::AtRandom => random.below(types.len() as u64) as usize,
            };
            types.get(chosen).copied()
        })
        .collect()
}

type Run = fn(&[u64]) -> u64;

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    // Enough messages that a predictor cannot memorize a random order.
    let count = lab.either(200_000, 50_000);
    let mut random = lab.random();
    let sets: [(&str, &[u64; 16], [Run; 3]); 2] = [
        ("letters, as most protocols have", &LETTERS, [letters_by_chain, letters_by_match, letters_by_table]),
        ("codes of 16 bits without a pattern", &SPREAD, [spread_by_chain, spread_by_match, spread_by_table]),
    ];
    for (title, types, [chain, matched, table]) in sets {
        lab.experiment(&format!("sixteen types: {title}"), "message");
        for (x, name, order) in [
            (0.0, "the last type alone", Order::Same),
            (1.0, "in turn", Order::InTurn),
            (2.0, "at random", Order::AtRandom),
        ] {
            let codes = codes_of(types, count, order, &mut random);
            lab.point(
                x,
                name,
                Variants::of(count as u64)
                    .add("if, one after the other", || chain(black_box(&codes)))
                    .add("match", || matched(black_box(&codes)))
                    .add("perfect hash and table", || table(black_box(&codes))),
            )?;
        }
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 14,
    name: "perfect-hash",
    title: "A perfect hash and a table against match and if",
    question: "What is the fastest way from a message's type to its code, and does it matter in which order types come?",
    published: &[],
    used: &[
        Use { path: "crates/base/dispatch/src/lib.rs", what: "has the three dispatchers" },
        Use { path: "crates/orders/translate/src/orders.rs", what: "has a machine of an order's states" },
    ],
    assembly: &[
        Assembly {
            variant: "if, one after the other",
            symbol: "tapeworks_lab::catalogue::perfect_hash::letters_by_chain",
            marks: &["cmp", "j"],
        },
        Assembly {
            variant: "match",
            symbol: "tapeworks_lab::catalogue::perfect_hash::letters_by_match",
            marks: &["cmp", "jmp"],
        },
        Assembly {
            variant: "perfect hash and table",
            symbol: "tapeworks_lab::catalogue::perfect_hash::letters_by_table",
            marks: &["and", "call", "cmp"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Models the machines with a list.
    fn model(types: &[u64; 16], codes: &[u64]) -> u64 {
        let (mut work, mut is_odd, mut unknown) = (Work::new(), true, 0);
        for (message, code) in (1u64..).zip(codes) {
            match types.iter().position(|known| known == code) {
                Some(place) if is_odd => work.at(place, message),
                Some(place) => work.at(31 - place, message ^ place as u64),
                None => unknown += 1,
            }
            is_odd ^= *code == types[0];
        }
        work.answer() ^ unknown
    }

    proptest! {
        #[test]
        fn every_dispatcher_does_what_a_list_does(
            chosen in prop::collection::vec((0usize..17, any::<u64>()), 0..200),
        ) {
            let ways: [(&[u64; 16], [Run; 3]); 2] = [
                (&LETTERS, [letters_by_chain, letters_by_match, letters_by_table]),
                (&SPREAD, [spread_by_chain, spread_by_match, spread_by_table]),
            ];
            for (types, runs) in ways {
                let codes: Vec<u64> =
                    chosen.iter().map(|(place, other)| types.get(*place).copied().unwrap_or(*other)).collect();
                let expected = model(types, &codes);
                for run in runs {
                    prop_assert_eq!(run(&codes), expected);
                }
            }
        }
    }
}
