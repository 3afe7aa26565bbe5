//! Doubles in network byte order: bytes reversed by a loop, by shifts, by a swap, or by the load itself.
//!
//! The first three conversions are from a developer's diary. Two of them are measured both as written and opaque to the compiler. Compilers
//! recognize some forms of these patterns; only an opaque variant shows what the code says.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Bytes of a double.
const BYTES: usize = 8;

/// Reverses the bytes one by one.
// ANCHOR: loop
#[inline(always)]
fn by_loop<const KEPT: bool>(bytes: &[u8; BYTES]) -> f64 {
    let mut reversed = [0u8; BYTES];
    for (target, byte) in reversed.iter_mut().zip(bytes.iter().rev()) {
        *target = if KEPT { black_box(*byte) } else { *byte };
    }
    f64::from_bits(u64::from_ne_bytes(reversed))
}
// ANCHOR_END: loop

/// Assembles the bits with shifts and reinterprets them as a double, like a union.
// ANCHOR: shifts
#[inline(always)]
fn by_shifts<const KEPT: bool>(bytes: &[u8; BYTES]) -> f64 {
    let mut bits = 0u64;
    for byte in bytes {
        bits = bits << 8 | u64::from(*byte);
        if KEPT {
            bits = black_box(bits);
        }
    }
    f64::from_bits(bits)
}
// ANCHOR_END: shifts

/// Uses the same shifts in one expression, without a loop.
// ANCHOR: expression
#[inline(always)]
fn by_expression(bytes: &[u8; BYTES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = bytes.map(u64::from);
    f64::from_bits(a << 56 | b << 48 | c << 40 | d << 32 | e << 24 | f << 16 | g << 8 | h)
}
// ANCHOR_END: expression

/// Loads all bytes and swaps them with one instruction.
// ANCHOR: swap
#[inline(always)]
fn by_swap<const KEPT: bool>(bytes: &[u8; BYTES]) -> f64 {
    let loaded = u64::from_ne_bytes(*bytes);
    let loaded = if KEPT { black_box(loaded) } else { loaded };
    // What `to_be` does on a little-endian machine is `swap_bytes`.
    f64::from_bits(u64::from_be(loaded))
}
// ANCHOR_END: swap

/// States the intent and leaves the rest to the compiler: one `movbe` if the target has it.
// ANCHOR: one
#[inline(always)]
const fn by_meaning(bytes: &[u8; BYTES]) -> f64 {
    f64::from_be_bytes(*bytes)
}
// ANCHOR_END: one

#[inline(always)]
fn convert(wire: &[u8], target: &mut [f64], one: impl Fn(&[u8; BYTES]) -> f64) {
    for (target, bytes) in target.iter_mut().zip(wire.as_chunks::<BYTES>().0) {
        *target = one(bytes);
    }
}

/// Converts with a loop over the bytes.
#[inline(never)]
pub fn loop_as_written(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_loop::<false>);
}

/// Converts with a loop over the bytes that is opaque to the compiler.
#[inline(never)]
pub fn loop_kept(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_loop::<true>);
}

/// Converts with shifts.
#[inline(never)]
pub fn shifts_as_written(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_shifts::<false>);
}

/// Converts with shifts that are opaque to the compiler.
#[inline(never)]
pub fn shifts_kept(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_shifts::<true>);
}

/// Converts with shifts in one expression.
#[inline(never)]
pub fn shifts_in_one_expression(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_expression);
}

/// Converts with a swap, one double at a time.
#[inline(never)]
pub fn swap_kept(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_swap::<true>);
}

/// Converts with `from_be_bytes`.
#[inline(never)]
pub fn from_big_endian(wire: &[u8], target: &mut [f64]) {
    convert(wire, target, by_meaning);
}

/// Converts two doubles at a time, with a shuffle of sixteen bytes.
// ANCHOR: shuffle
#[inline(never)]
pub fn shuffled(wire: &[u8], target: &mut [f64]) {
    let count = target.len().min(wire.len() / BYTES);
    let (Some(wire), Some(target)) = (wire.get(..count * BYTES), target.get_mut(..count)) else { return };
    let (pairs, tail) = target.as_chunks_mut::<2>();
    let (sixteens, wire_tail) = wire.as_chunks::<16>();
    for (pair, bytes) in pairs.iter_mut().zip(sixteens) {
        *pair = lanes::reversed(*bytes);
    }
    convert(wire_tail, tail, by_meaning);
}
// ANCHOR_END: shuffle

#[cfg(all(target_arch = "x86_64", target_feature = "ssse3"))]
mod lanes {
    use safe_arch::{m128i, shuffle_av_i8z_all_m128i};

    /// Reverses both halves with one instruction.
    #[inline(always)]
    pub(super) fn reversed(bytes: [u8; 16]) -> [f64; 2] {
        let order = m128i::from([7u8, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]);
        let bits: [u64; 2] = shuffle_av_i8z_all_m128i(m128i::from(bytes), order).into();
        bits.map(f64::from_bits)
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "ssse3")))]
mod lanes {
    /// Reverses both halves.
    #[inline(always)]
    pub(super) fn reversed(bytes: [u8; 16]) -> [f64; 2] {
        let bits = u128::from_be_bytes(bytes);
        [f64::from_bits((bits >> 64) as u64), f64::from_bits(bits as u64)]
    }
}

type Conversion = fn(&[u8], &mut [f64]);

/// All conversions by name; the first is the baseline.
const ALL: [(&str, Conversion); 8] = [
    ("loop, kept", loop_kept),
    ("shifts, kept", shifts_kept),
    ("swap, one at a time", swap_kept),
    ("loop, as written", loop_as_written),
    ("shifts, as written", shifts_as_written),
    ("shifts in one expression", shifts_in_one_expression),
    ("from_be_bytes", from_big_endian),
    ("shuffle of two", shuffled),
];

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    lab.experiment("doubles in the network's order", "double");
    lab.along("doubles", Scale::Logarithmic);
    for count in lab.either(vec![16, 1_024, 16_384], vec![16, 1_024]) {
        let wire: Vec<u8> = (0..count).flat_map(|_| (random.part() * 1e6).to_be_bytes()).collect();
        let wire = wire.as_slice();
        let target = std::cell::RefCell::new(vec![0f64; count]);
        let mut variants = Variants::of(count as u64);
        for (name, conversion) in ALL {
            let target = &target;
            variants = variants.add(name, move || {
                let mut target = target.borrow_mut();
                conversion(black_box(wire), &mut target);
                let (first, last) = (target.first(), target.last());
                first.copied().unwrap_or_default().to_bits()
                    ^ last.copied().unwrap_or_default().to_bits().rotate_left(1)
            });
        }
        lab.point(count as f64, &format!("{count} doubles"), variants)?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 15,
    name: "byte-order",
    title: "Byte order",
    question: "Which of the ways to turn the network's byte order into the machine's does the compiler see through?",
    published: &[],
    used: &[
        Use {
            path: "crates/protocols/wire/src/lib.rs",
            what: "every accessor of a big-endian protocol is a load and a swap",
        },
        Use { path: "crates/protocols/wire/src/nasdaq/itch50.rs", what: "a big-endian protocol" },
    ],
    assembly: &[
        Assembly {
            variant: "loop, kept",
            symbol: "tapeworks_lab::catalogue::byte_order::loop_kept",
            marks: &["movzx", "mov"],
        },
        Assembly {
            variant: "shifts, as written",
            symbol: "tapeworks_lab::catalogue::byte_order::shifts_as_written",
            marks: &["bswap", "movbe", "pshuf", "shl"],
        },
        Assembly {
            variant: "shifts in one expression",
            symbol: "tapeworks_lab::catalogue::byte_order::shifts_in_one_expression",
            marks: &["bswap", "movbe", "pshuf", "shl"],
        },
        Assembly {
            variant: "from_be_bytes",
            symbol: "tapeworks_lab::catalogue::byte_order::from_big_endian",
            marks: &["bswap", "movbe", "pshuf"],
        },
        Assembly {
            variant: "shuffle of two",
            symbol: "tapeworks_lab::catalogue::byte_order::shuffled",
            marks: &["pshufb", "bswap", "movbe"],
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
        fn all_conversions_give_the_same_bits(bits in prop::collection::vec(any::<u64>(), 0..20), odd in 0usize..8) {
            // Includes bytes after the last double, and NaNs, so values are compared by bits.
            let mut wire: Vec<u8> = bits.iter().flat_map(|bits| bits.to_be_bytes()).collect();
            wire.extend(std::iter::repeat_n(9, odd));
            for (name, conversion) in ALL {
                for room in [bits.len(), bits.len().saturating_sub(1), bits.len() + 1] {
                    let mut target = vec![0.5; room];
                    conversion(&wire, &mut target);
                    let mut expected: Vec<u64> = bits.iter().copied().take(room).collect();
                    expected.resize(room, 0.5f64.to_bits());
                    let got: Vec<u64> = target.iter().map(|number| number.to_bits()).collect();
                    prop_assert_eq!(got, expected, "{}", name);
                }
            }
        }
    }

    #[test]
    fn a_known_double() {
        let wire = [0x40, 0x09, 0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18];
        for (name, conversion) in ALL {
            let mut target = [0.0];
            conversion(&wire, &mut target);
            assert_eq!(target, [std::f64::consts::PI], "{name}");
        }
    }
}
