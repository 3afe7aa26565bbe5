//! Variable-length integers: seven bits per byte; the highest bit says that more bytes follow. Signed numbers use zigzag.
//!
//! There are three decoders: byte by byte; eight bytes at a time, with the length from the highest bits; and several numbers at a time, with
//! a shuffle chosen by the highest bits of eight bytes.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};

/// The longest encoding of 32 bits, in bytes.
const LONGEST: usize = 5;

/// The highest bit of each of eight bytes.
const MORE: u64 = 0x8080_8080_8080_8080;

/// The progress of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The number of decoded numbers.
    pub numbers: usize,
    /// Bytes consumed. The rest is incomplete, longer than five bytes, or exceeds 32 bits; or there was no room.
    pub bytes: usize,
}

/// Encodes with zigzag: small negative numbers become small unsigned ones. 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline(always)]
#[must_use]
pub const fn zigzag(number: i32) -> u32 {
    (number << 1 ^ number >> 31).cast_unsigned()
}

/// Inverts zigzag with a branch.
// ANCHOR: zigzag_branch
#[inline(always)]
fn unzigzag_by_branch(number: u32) -> i32 {
    if number & 1 == 0 {
        (number >> 1).cast_signed()
    } else {
        black_box(());
        !(number >> 1).cast_signed()
    }
}
// ANCHOR_END: zigzag_branch

/// Inverts zigzag: all bits are inverted if the lowest one is set.
// ANCHOR: zigzag
#[inline(always)]
const fn unzigzag(number: u32) -> i32 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
// ANCHOR_END: zigzag

/// Appends the encoding of a number.
pub fn encode(number: i32, target: &mut Vec<u8>) {
    let mut rest = zigzag(number);
    while rest >= 0x80 {
        target.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    target.push(rest as u8);
}

/// Decodes one number byte by byte, and returns its length.
// ANCHOR: baseline
#[inline(always)]
fn one_by_bytes(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut number = 0u32;
    for (place, byte) in bytes.iter().take(LONGEST).enumerate() {
        if place == LONGEST - 1 && *byte > 0x0f {
            return None;
        }
        number |= u32::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some((number, place + 1));
        }
    }
    None
}
// ANCHOR_END: baseline

/// Decodes one number from eight bytes: the first byte with a clear highest bit gives the length, and three shifts close the gaps.
// ANCHOR: branchless
#[inline(always)]
fn one_by_words(bytes: &[u8]) -> Option<(u32, usize)> {
    let Some(eight) = bytes.first_chunk::<8>() else { return one_by_bytes(bytes) };
    let word = u64::from_le_bytes(*eight);
    // The first byte without its highest bit is the last of the number: that bit, and all below it. Without one the length is 9.
    let ends = !word & MORE;
    let length = (ends.trailing_zeros() / 8 + 1) as usize;
    let upto = ends ^ ends.wrapping_sub(1);
    let word = word & upto & !MORE;
    // Seven bits of each byte move together: pairs, then fours, then all.
    let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
    let word = (word & 0x0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4;
    if length > LONGEST {
        return None;
    }
    Some((u32::try_from(word).ok()?, length))
}
// ANCHOR_END: branchless

#[inline(always)]
fn decode(
    bytes: &[u8],
    target: &mut [i32],
    one: impl Fn(&[u8]) -> Option<(u32, usize)>,
    signed: impl Fn(u32) -> i32,
) -> Decoded {
    let mut decoded = Decoded::default();
    for place in target {
        let Some((number, length)) = bytes.get(decoded.bytes..).and_then(&one) else { break };
        *place = signed(number);
        decoded.numbers += 1;
        decoded.bytes += length;
    }
    decoded
}

/// Decodes byte by byte.
#[inline(never)]
pub fn by_bytes(bytes: &[u8], target: &mut [i32]) -> Decoded {
    decode(bytes, target, one_by_bytes, unzigzag)
}

/// Decodes byte by byte, and branches on the sign.
#[inline(never)]
pub fn by_bytes_and_branch(bytes: &[u8], target: &mut [i32]) -> Decoded {
    decode(bytes, target, one_by_bytes, unzigzag_by_branch)
}

/// Decodes eight bytes at a time, without a branch on the length.
#[inline(never)]
pub fn by_words(bytes: &[u8], target: &mut [i32]) -> Decoded {
    decode(bytes, target, one_by_words, unzigzag)
}

/// How eight bytes with given highest bits split into numbers of one and two bytes, from the start.
// ANCHOR: table
#[derive(Clone, Copy, Debug)]
struct Split {
    /// For each of eight numbers, the places of its bytes; 0x80 gives a zero.
    shuffle: [u8; 16],
    numbers: u8,
    bytes: u8,
}

const fn split(mask: usize) -> Split {
    let mut split = Split { shuffle: [0x80; 16], numbers: 0, bytes: 0 };
    let mut place = 0;
    while place < 8 {
        let has_more = mask >> place & 1 != 0;
        // A number of more bytes, or one whose second byte is not among the eight, ends the split.
        if has_more && (place == 7 || mask >> (place + 1) & 1 != 0) {
            break;
        }
        let at = split.numbers as usize * 2;
        split.shuffle[at] = place as u8;
        if has_more {
            split.shuffle[at + 1] = place as u8 + 1;
        }
        place += if has_more { 2 } else { 1 };
        split.numbers += 1;
    }
    split.bytes = place as u8;
    split
}

static SPLITS: [Split; 256] = {
    let mut splits = [split(0); 256];
    let mut mask = 0;
    while mask < 256 {
        splits[mask] = split(mask);
        mask += 1;
    }
    splits
};
// ANCHOR_END: table

/// Decodes up to eight numbers of one or two bytes at a time with a shuffle, and longer ones individually.
// ANCHOR: simd
#[inline(never)]
pub fn by_shuffles(bytes: &[u8], target: &mut [i32]) -> Decoded {
    let mut decoded = Decoded::default();
    while let Some(room) = target.get_mut(decoded.numbers..).filter(|room| !room.is_empty()) {
        let rest = bytes.get(decoded.bytes..).unwrap_or_default();
        if let (Some(sixteen), Some(room)) = (rest.first_chunk::<16>(), room.first_chunk_mut::<8>()) {
            let mask = lanes::highest_bits(*sixteen);
            if let Some(split) = SPLITS.get(usize::from(mask)).filter(|split| split.numbers > 0) {
                // All eight are written; those beyond the split are overwritten by the next.
                *room = lanes::spread(*sixteen, &split.shuffle);
                decoded.numbers += usize::from(split.numbers);
                decoded.bytes += usize::from(split.bytes);
                continue;
            }
        }
        let Some((number, length)) = one_by_words(rest) else { break };
        if let Some(place) = room.first_mut() {
            *place = unzigzag(number);
        }
        decoded.numbers += 1;
        decoded.bytes += length;
    }
    decoded
}
// ANCHOR_END: simd

#[cfg(all(target_arch = "x86_64", target_feature = "sse4.1"))]
mod lanes {
    use safe_arch::{
        bitand_m128i, bitor_m128i, convert_to_i32_m128i_from_lower4_i16_m128i, m128i, move_mask_i8_m128i,
        set_splat_i16_m128i, shr_imm_u16_m128i, shuffle_av_i8z_all_m128i, sub_i16_m128i,
    };

    /// Returns the highest bits of the first eight bytes.
    #[inline(always)]
    pub(super) fn highest_bits(bytes: [u8; 16]) -> u8 {
        move_mask_i8_m128i(m128i::from(bytes)) as u8
    }

    /// Decodes eight numbers of one or two bytes each, signed.
    #[inline(always)]
    pub(super) fn spread(bytes: [u8; 16], shuffle: &[u8; 16]) -> [i32; 8] {
        let pairs = shuffle_av_i8z_all_m128i(m128i::from(bytes), m128i::from(*shuffle));
        let low = bitand_m128i(pairs, set_splat_i16_m128i(0x007f));
        let high = shr_imm_u16_m128i::<1>(bitand_m128i(pairs, set_splat_i16_m128i(0x7f00)));
        let numbers = bitor_m128i(low, high);
        // Zigzag in lanes of 16 bits, of which fourteen are used.
        let signs = sub_i16_m128i(m128i::default(), bitand_m128i(numbers, set_splat_i16_m128i(1)));
        let signed = shr_imm_u16_m128i::<1>(numbers) ^ signs;
        let [low, high]: [u64; 2] = signed.into();
        let halves = [low, high].map(|half| -> [i32; 4] {
            convert_to_i32_m128i_from_lower4_i16_m128i(m128i::from([half, 0])).into()
        });
        let [[a, b, c, d], [e, f, g, h]] = halves;
        [a, b, c, d, e, f, g, h]
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.1")))]
mod lanes {
    /// Returns the highest bits of the first eight bytes.
    #[inline(always)]
    pub(super) fn highest_bits(bytes: [u8; 16]) -> u8 {
        bytes.iter().take(8).rev().fold(0, |bits, byte| bits << 1 | byte >> 7)
    }

    /// Decodes eight numbers of one or two bytes each, signed.
    #[inline(always)]
    pub(super) fn spread(bytes: [u8; 16], shuffle: &[u8; 16]) -> [i32; 8] {
        let byte = |place: u8| bytes.get(usize::from(place)).copied().unwrap_or_default();
        let mut numbers = [0; 8];
        for (number, [first, second]) in numbers.iter_mut().zip(shuffle.as_chunks::<2>().0) {
            let together = u32::from(byte(*first) & 0x7f) | u32::from(byte(*second) & 0x7f) << 7;
            *number = super::unzigzag(together);
        }
        numbers
    }
}

type Decoder = fn(&[u8], &mut [i32]) -> Decoded;

/// All decoders by name; the first is the baseline.
const ALL: [(&str, Decoder); 4] = [
    ("byte by byte", by_bytes),
    ("byte by byte, sign by a branch", by_bytes_and_branch),
    ("eight bytes at once", by_words),
    ("shuffles", by_shuffles),
];

/// Creates inputs with different distributions of numbers.
fn inputs(random: &mut Random, count: usize) -> [(&'static str, Vec<i32>); 4] {
    let mut take = |bits: &dyn Fn(&mut Random) -> u32| -> Vec<i32> {
        let number = |random: &mut Random| {
            let bits = bits(random);
            let magnitude = random.below(1 << bits) as i64;
            (if random.below(2) == 0 { magnitude } else { -magnitude - 1 }) as i32
        };
        (0..count).map(|_| number(random)).collect()
    };
    [
        ("all of 1 byte", take(&|_| 6)),
        ("1 or 2 bytes", take(&|random| if random.below(2) == 0 { 6 } else { 13 })),
        (
            "mostly 1 or 2 bytes",
            take(&|random| if random.below(20) == 0 { 27 } else { 6 + random.below(8) as u32 }),
        ),
        ("1 to 5 bytes", take(&|random| 6 + random.below(26) as u32)),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    // Enough numbers that the branch predictor cannot memorize their lengths.
    let count = lab.either(1 << 18, 1 << 15);
    let mut random = lab.random();
    lab.experiment("decoding signed numbers", "number");
    lab.along("numbers", Scale::Names);
    for (place, (name, numbers)) in inputs(&mut random, count).iter().enumerate() {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| encode(*number, &mut bytes));
        let bytes = bytes.as_slice();
        let target = std::cell::RefCell::new(vec![0i32; count]);
        let mut variants = Variants::of(count as u64);
        for (name, decoder) in ALL {
            let target = &target;
            variants = variants.add(name, move || {
                let mut target = target.borrow_mut();
                let decoded = decoder(black_box(bytes), &mut target);
                let last = target.last().copied().unwrap_or_default();
                (decoded.bytes as u64) << 32 | u64::from(last.cast_unsigned())
            });
        }
        lab.point(place as f64, name, variants)?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 16,
    name: "varint",
    title: "Varint and zigzag",
    question: "How fast can integers of variable length be decoded, and what does it depend on?",
    published: &[
        Published {
            source: "Plaisance, Kurz and Lemire, Vectorized VByte Decoding, 2015, abstract",
            figure: "decoding suffers when unpredictable lengths cause frequent branch mispredictions",
        },
        Published {
            source: "MaskedVByte, project page (one core, 16 million integers)",
            figure: "the vectorised decoder is about twice as fast as a scalar one",
        },
    ],
    used: &[
        Use {
            path: "crates/market/engine/src/checkpoint.rs",
            what: "the bodies of checkpoints have postcard's varints",
        },
        Use { path: "crates/market/feed/src/state.rs", what: "so have the saved states of feeds" },
    ],
    assembly: &[
        Assembly {
            variant: "byte by byte",
            symbol: "tapeworks_lab::catalogue::varint::by_bytes",
            marks: &["j", "shl"],
        },
        Assembly {
            variant: "eight bytes at once",
            symbol: "tapeworks_lab::catalogue::varint::by_words",
            marks: &["tzcnt", "bsf", "shr", "and"],
        },
        Assembly {
            variant: "shuffles",
            symbol: "tapeworks_lab::catalogue::varint::by_shuffles",
            marks: &["pshufb", "pmovmskb", "pmovsx"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_number() -> impl Strategy<Value = i32> {
        prop_oneof![any::<i32>(), -64i32..64, -8_192i32..8_192, Just(i32::MIN), Just(i32::MAX)]
    }

    fn all(bytes: &[u8], room: usize) -> Vec<(Decoded, Vec<i32>)> {
        ALL.iter()
            .map(|(_, decoder)| {
                let mut target = vec![0; room];
                let decoded = decoder(bytes, &mut target);
                target.truncate(decoded.numbers);
                (decoded, target)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn all_decode_an_encoding(numbers in prop::collection::vec(any_number(), 0..60), less in 0usize..9) {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|number| encode(*number, &mut bytes));
            for found in all(&bytes, numbers.len()) {
                prop_assert_eq!(found, (Decoded { numbers: numbers.len(), bytes: bytes.len() }, numbers.clone()));
            }
            // Not enough room for all of them.
            let room = numbers.len().saturating_sub(less);
            for (decoded, found) in all(&bytes, room) {
                prop_assert_eq!((decoded.numbers, found.as_slice()), (room, &numbers[..room]));
            }
        }

        #[test]
        fn all_end_at_the_same_byte_of_any_input(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..0x80, 0x80u8..=0xff], 0..80),
            room in 0usize..90,
        ) {
            let found = all(&bytes, room);
            for one in &found[1..] {
                prop_assert_eq!(one, &found[0]);
            }
            prop_assert!(found[0].0.bytes <= bytes.len());
        }
    }

    #[test]
    fn zigzag_goes_back_and_forth() {
        for (number, expected) in
            [(0, 0), (-1, 1), (1, 2), (-2, 3), (i32::MAX, u32::MAX - 1), (i32::MIN, u32::MAX)]
        {
            assert_eq!(zigzag(number), expected);
            assert_eq!((unzigzag(expected), unzigzag_by_branch(expected)), (number, number));
        }
    }

    #[test]
    fn too_long_and_too_large_numbers_end_the_decoding() {
        let too_long = [1, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
        let too_large = [1, 0xff, 0xff, 0xff, 0xff, 0x10, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
        let padded = [1, 0x80, 0x80, 0x80, 0x80, 0x00, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
        for (bytes, numbers) in [(too_long, 1), (too_large, 1), (padded, 13)] {
            for (decoded, _) in all(&bytes, 20) {
                assert_eq!(decoded.numbers, numbers, "{bytes:?}");
            }
        }
        assert_eq!(all(&[0x80], 4)[0].0, Decoded::default());
    }
}
