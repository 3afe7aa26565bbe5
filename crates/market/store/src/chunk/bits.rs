//! Parquet's value encodings: bit-packed differences, dictionary keys, definition levels.
//!
//! From "Parquet encoding definitions" (apache/parquet-format, Encodings.md): `DELTA_BINARY_PACKED`, and the hybrid of run
//! lengths and bit packing. The `parquet` crate implements both privately, behind a general writer that takes one value at a
//! time. The functions here write a page at a time from a slice. The crate's reader is the oracle of the tests.

/// Values per block of differences, and per miniblock (a quarter of a block): the smallest size that the format allows.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Appends `value` as unsigned LEB128, seven bits per byte.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small magnitudes to small numbers, whatever their sign.
const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Appends the low `width` bits of each of 32 values, lowest bits first.
#[inline]
fn pack(values: &[u64; MINIBLOCK], width: u32, out: &mut Vec<u8>) {
    // Each store writes eight bytes. The next store overwrites the incomplete ones.
    let mut packed = [0u8; MINIBLOCK * 8 + 8];
    let (mut at, mut held, mut bits) = (0, 0u64, 0);
    if width <= 56 {
        for value in values {
            held |= value << bits;
            bits += width;
            packed[at..at + 8].copy_from_slice(&held.to_le_bytes());
            let whole = bits / 8;
            at += whole as usize;
            held >>= whole * 8;
            bits %= 8;
        }
    } else {
        let mut held = 0u128;
        for value in values {
            held |= u128::from(*value) << bits;
            bits += width;
            packed[at..at + 8].copy_from_slice(&(held as u64).to_le_bytes());
            let whole = (bits / 8).min(8);
            at += whole as usize;
            held >>= whole * 8;
            bits -= whole * 8;
        }
    }
    out.extend_from_slice(&packed[..MINIBLOCK / 8 * width as usize]);
}

macro_rules! delta {
    ($name:ident, $signed:ty, $unsigned:ty) => {
        /// Appends `values` as `DELTA_BINARY_PACKED`. Differences wrap within the type, as the format requires.
        pub(super) fn $name(values: &[$signed], out: &mut Vec<u8>) {
            varint(BLOCK as u64, out);
            varint((BLOCK / MINIBLOCK) as u64, out);
            varint(values.len() as u64, out);
            let Some((first, rest)) = values.split_first() else { return varint(0, out) };
            varint(zigzag(i64::from(*first)), out);
            let mut before = *first;
            for block in rest.chunks(BLOCK) {
                let mut deltas = [<$signed>::MAX; BLOCK];
                for (delta, value) in deltas.iter_mut().zip(block) {
                    *delta = value.wrapping_sub(before);
                    before = *value;
                }
                let least = deltas.iter().fold(<$signed>::MAX, |least, delta| least.min(*delta));
                varint(zigzag(i64::from(least)), out);
                // Padding after the values of a last block packs as zero and is never read.
                deltas[block.len()..].fill(least);
                let widths_at = out.len();
                out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
                let used = block.len().div_ceil(MINIBLOCK);
                for (index, miniblock) in deltas.chunks_exact(MINIBLOCK).take(used).enumerate() {
                    let mut offsets = [0u64; MINIBLOCK];
                    let mut all: $unsigned = 0;
                    for (offset, delta) in offsets.iter_mut().zip(miniblock) {
                        let above = delta.wrapping_sub(least) as $unsigned;
                        all |= above;
                        *offset = u64::from(above);
                    }
                    let width = <$unsigned>::BITS - all.leading_zeros();
                    out[widths_at + index] = width as u8;
                    if width > 0 {
                        pack(&offsets, width, out);
                    }
                }
            }
        }
    };
}

delta!(delta_i32, i32, u32);
delta!(delta_i64, i64, u64);

/// Appends dictionary keys: their width in bits, then one run if all keys are equal, otherwise bit-packed keys.
pub(super) fn keys(keys: &[u32], out: &mut Vec<u8>) {
    let all = keys.iter().fold(0, |all, key| all | key);
    let width = (u32::BITS - all.leading_zeros()).max(1);
    out.push(width as u8);
    hybrid(keys, width, out);
}

/// Appends the definition levels, preceded by their length, as in a version 1 data page. `None` means that all values are defined.
pub(super) fn definition_levels(count: usize, defined: Option<&[u32]>, out: &mut Vec<u8>) {
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    match defined {
        None => {
            varint((count as u64) << 1, out);
            out.push(1);
        }
        Some(defined) => hybrid(defined, 1, out),
    }
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

fn hybrid(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let Some(first) = values.first() else { return };
    if values.iter().all(|value| value == first) {
        varint((values.len() as u64) << 1, out);
        out.extend_from_slice(&first.to_le_bytes()[..width.div_ceil(8) as usize]);
        return;
    }
    let groups = values.len().div_ceil(8);
    varint((groups as u64) << 1 | 1, out);
    let end = out.len() + groups * width as usize;
    for chunk in values.chunks(MINIBLOCK) {
        let mut padded = [0u64; MINIBLOCK];
        for (to, from) in padded.iter_mut().zip(chunk) {
            *to = u64::from(*from);
        }
        pack(&padded, width, out);
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_every_bit_at_every_width() {
        for width in 1..=64u32 {
            let mask = u64::MAX >> (64 - width);
            let values: [u64; 32] =
                std::array::from_fn(|n| (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask);
            let mut out = Vec::new();
            pack(&values, width, &mut out);
            assert_eq!(out.len(), 4 * width as usize);
            let bit = |at: usize| u64::from(out[at / 8] >> (at % 8) & 1);
            for (n, value) in values.iter().enumerate() {
                let start = n * width as usize;
                let read = (0..width as usize).fold(0, |read, place| read | bit(start + place) << place);
                assert_eq!(read, *value, "width {width}, value {n}");
            }
        }
    }

    #[test]
    fn a_varint_is_seven_bits_to_a_byte() {
        let mut out = Vec::new();
        varint(300, &mut out);
        assert_eq!(out, [0xAC, 0x02]);
        assert_eq!([0, -1, 1, i64::MIN].map(zigzag), [0, 1, 2, u64::MAX]);
    }

    #[test]
    fn the_formats_own_example_of_differences_comes_out() {
        // Encodings.md, DELTA_BINARY_PACKED, example 1: the values 1 to 5, whose differences are all 1.
        let mut out = Vec::new();
        delta_i32(&[1, 2, 3, 4, 5], &mut out);
        assert_eq!(out, [0x80, 0x01, 4, 5, 2, 2, 0, 0, 0, 0]);
        out.clear();
        delta_i64(&[], &mut out);
        assert_eq!(out, [0x80, 0x01, 4, 0, 0]);
    }

    #[test]
    fn equal_keys_are_one_run() {
        let mut out = Vec::new();
        keys(&[5; 1000], &mut out);
        assert_eq!(out, [3, 0xD0, 0x0F, 5]);
        out.clear();
        keys(&[0, 1, 2, 3, 4, 5, 6, 7], &mut out);
        assert_eq!(out, [3, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010], "Encodings.md, bit packing");
    }
}
