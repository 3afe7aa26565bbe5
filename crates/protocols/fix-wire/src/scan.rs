//! Finds SOH and sums bytes, sixteen at a time.
//!
//! On x86-64 this uses SSE2, which every such processor has, elsewhere 64-bit words. Tests compare both with a loop over bytes.
//!
//! Cost: for 64 bytes, about 20 instructions to find SOH and about 12 to sum.

use core::num::NonZeroU32;

/// The byte that ends every field.
pub const SOH: u8 = 1;

/// Bytes per block; masks have one bit for each.
pub(crate) const BLOCK: usize = 64;

/// Returns sixteen bytes at the offset; zeros unless all of them are in bounds.
#[inline(always)]
fn sixteen(bytes: &[u8], offset: usize) -> [u8; 16] {
    match bytes.get(offset..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(found) => *found,
        None => [0; 16],
    }
}

#[cfg(target_arch = "x86_64")]
mod lanes {
    use safe_arch::{
        add_i64_m128i, bitand_m128i, cmp_eq_mask_i8_m128i, m128i, move_mask_i8_m128i, set_splat_i8_m128i,
        sum_of_u8_abs_diff_m128i, zeroed_m128i,
    };

    /// Returns a bit for each byte that is SOH, the first lowest.
    #[inline(always)]
    pub(super) fn soh_bits(bytes: [u8; 16]) -> u64 {
        let found = cmp_eq_mask_i8_m128i(m128i::from(bytes), set_splat_i8_m128i(super::SOH as i8));
        u64::from(move_mask_i8_m128i(found).cast_unsigned())
    }

    /// Returns whether any byte of the words is SOH.
    #[inline(always)]
    pub(crate) fn has_soh(words: [u64; 2]) -> bool {
        let found = cmp_eq_mask_i8_m128i(m128i::from(words), set_splat_i8_m128i(super::SOH as i8));
        move_mask_i8_m128i(found) != 0
    }

    /// A sum of bytes.
    #[derive(Clone, Copy)]
    pub(super) struct Sum(m128i);

    impl Sum {
        #[inline(always)]
        pub(super) fn new() -> Self {
            Self(zeroed_m128i())
        }

        #[inline(always)]
        pub(super) fn add(self, bytes: [u8; 16]) -> Self {
            Self(add_i64_m128i(self.0, sum_of_u8_abs_diff_m128i(m128i::from(bytes), zeroed_m128i())))
        }

        /// Adds the bytes whose bits are set in `keep`.
        #[inline(always)]
        pub(super) fn add_kept(self, bytes: [u8; 16], keep: [u8; 16]) -> Self {
            self.add(bitand_m128i(m128i::from(bytes), m128i::from(keep)).into())
        }

        #[inline(always)]
        pub(super) fn total(self) -> u64 {
            let [low, high]: [u64; 2] = self.0.into();
            low.wrapping_add(high)
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "only the tests use it here"))]
mod words {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;

    /// Returns a bit for each byte that is SOH, the first lowest.
    #[inline(always)]
    pub(super) fn soh_bits(bytes: [u8; 16]) -> u64 {
        let word = u128::from_le_bytes(bytes);
        let bits = |word: u64| {
            let zero_where_found = word ^ (LOW * super::SOH as u64);
            // The high bit of each zero byte. This is exact, because no carry crosses a byte boundary.
            let found = !((zero_where_found & !HIGH).wrapping_add(!HIGH) | zero_where_found) & HIGH;
            (found >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
        };
        bits(word as u64) | bits((word >> 64) as u64) << 8
    }

    /// Returns whether any byte of the words is SOH.
    #[inline(always)]
    pub(crate) fn has_soh([first, second]: [u64; 2]) -> bool {
        /// Marks the highest bit of a byte that is SOH; other bytes can be marked only after one.
        const fn found(word: u64) -> u64 {
            let zero_where_found = word ^ (LOW * super::SOH as u64);
            zero_where_found.wrapping_sub(LOW) & !zero_where_found & HIGH
        }
        found(first) | found(second) != 0
    }

    /// A sum of bytes.
    #[derive(Clone, Copy)]
    pub(super) struct Sum(u64);

    impl Sum {
        #[inline(always)]
        pub(super) fn new() -> Self {
            Self(0)
        }

        #[inline(always)]
        pub(super) fn add(self, bytes: [u8; 16]) -> Self {
            const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
            let word = u128::from_le_bytes(bytes);
            let pairs = |word: u64| (word & EVEN) + (word >> 8 & EVEN);
            let both = pairs(word as u64) + pairs((word >> 64) as u64);
            Self(self.0 + (both.wrapping_mul(0x0001_0001_0001_0001) >> 48))
        }

        /// Adds the bytes whose bits are set in `keep`.
        #[inline(always)]
        pub(super) fn add_kept(self, bytes: [u8; 16], keep: [u8; 16]) -> Self {
            self.add((u128::from_le_bytes(bytes) & u128::from_le_bytes(keep)).to_le_bytes())
        }

        #[inline(always)]
        pub(super) fn total(self) -> u64 {
            self.0
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use lanes::has_soh;
#[cfg(target_arch = "x86_64")]
use lanes::{Sum, soh_bits};
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use words::has_soh;
#[cfg(not(target_arch = "x86_64"))]
use words::{Sum, soh_bits};

/// Returns a bit for each SOH in the 64 bytes from `offset`, the first lowest. Bytes past the end have none.
#[inline(always)]
pub(crate) fn soh_mask(bytes: &[u8], offset: usize) -> u64 {
    match bytes.get(offset..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        Some(block) => full_mask(block),
        None => {
            // The last 64 bytes of the message, without the ones before the offset.
            let before = (offset + BLOCK).wrapping_sub(bytes.len());
            match bytes.last_chunk::<BLOCK>() {
                Some(block) if before < BLOCK => full_mask(block) >> before,
                _ => short_mask(bytes, offset),
            }
        }
    }
}

#[inline(always)]
fn full_mask(block: &[u8; BLOCK]) -> u64 {
    let bits = |offset: usize| soh_bits(sixteen(block, offset));
    bits(0) | bits(16) << 16 | bits(32) << 32 | bits(48) << 48
}

#[cold]
#[inline(never)]
fn short_mask(bytes: &[u8], offset: usize) -> u64 {
    let block = bytes.get(offset..).unwrap_or_default().iter().take(BLOCK);
    block.enumerate().fold(0, |mask, (index, byte)| mask | u64::from(*byte == SOH) << index)
}

/// Zeros, then ones: a 64-byte window of it selects the last bytes of a block.
static KEEP_LAST: [u8; 2 * BLOCK] = {
    let mut mask = [0xff; 2 * BLOCK];
    let mut index = 0;
    while index < BLOCK {
        mask[index] = 0;
        index += 1;
    }
    mask
};

/// Sums bytes as numbers; FIX's checksum is the lowest byte of the sum. The last block is read so that it ends at the end of the bytes;
/// its overlap with the preceding block counts once.
#[inline(always)]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let before = bytes.len().wrapping_sub(1) / BLOCK * BLOCK;
    let (whole, rest) = bytes.split_at_checked(before).unwrap_or((&[], bytes));
    let keep = KEEP_LAST.get(rest.len()..).and_then(|keep| keep.first_chunk::<BLOCK>());
    let (Some(last), Some(keep)) = (bytes.last_chunk::<BLOCK>(), keep) else { return sum_other(bytes) };
    let (mut even, mut odd) = sums_of_blocks(whole);
    even = even.add_kept(sixteen(last, 0), sixteen(keep, 0)).add_kept(sixteen(last, 32), sixteen(keep, 32));
    odd = odd.add_kept(sixteen(last, 16), sixteen(keep, 16)).add_kept(sixteen(last, 48), sixteen(keep, 48));
    even.total() + odd.total()
}

/// Sums the whole blocks of some bytes.
#[inline(always)]
pub(crate) fn sum_of_blocks(bytes: &[u8]) -> u64 {
    let (even, odd) = sums_of_blocks(bytes);
    even.total() + odd.total()
}

/// Sums whole blocks in two accumulators, so that neither addition waits for the other.
#[inline(always)]
fn sums_of_blocks(bytes: &[u8]) -> (Sum, Sum) {
    let (mut even, mut odd) = (Sum::new(), Sum::new());
    for block in bytes.chunks_exact(BLOCK) {
        even = even.add(sixteen(block, 0)).add(sixteen(block, 32));
        odd = odd.add(sixteen(block, 16)).add(sixteen(block, 48));
    }
    (even, odd)
}

#[cold]
#[inline(never)]
fn sum_other(bytes: &[u8]) -> u64 {
    let mut sum = Sum::new();
    let mut chunks = bytes.chunks_exact(16);
    for chunk in chunks.by_ref() {
        sum = sum.add(sixteen(chunk, 0));
    }
    sum.total() + chunks.remainder().iter().map(|byte| u64::from(*byte)).sum::<u64>()
}

/// Returns the position of the next SOH from `start`, or the length of the bytes if there is none. Inline if SOH is within 32 bytes.
/// Positions have 32 bits, so that no sum of them overflows and one comparison bounds them.
#[inline(always)]
pub(crate) fn end_of(bytes: &[u8], start: u32) -> u32 {
    let from = start as usize;
    if let Some(chunk) = bytes.get(from..from + 32)
        && let Some(found) =
            NonZeroU32::new((soh_bits(sixteen(chunk, 0)) | soh_bits(sixteen(chunk, 16)) << 16) as u32)
    {
        return start + found.trailing_zeros();
    }
    far_end_of(bytes, start)
}

/// Does the same as [`end_of`], out of line.
#[inline(never)]
pub(crate) fn far_end_of(bytes: &[u8], start: u32) -> u32 {
    let mut at = start as usize;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        let found = soh_bits(*chunk);
        if found != 0 {
            return at as u32 + found.trailing_zeros();
        }
        at += 16;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(|byte| *byte == SOH).map_or(bytes.len() as u32, |place| (at + place) as u32)
}

/// Computes the checksum of bytes: their sum modulo 256.
#[inline]
#[must_use]
pub fn checksum(bytes: &[u8]) -> u8 {
    sum(bytes) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_way_to_find_soh_and_to_sum_agrees_with_a_loop(
            bytes in prop::collection::vec(prop_oneof![Just(1u8), Just(0), Just(2), Just(0x81), any::<u8>()], 0..500),
            offset in 0..320usize,
        ) {
            let expected: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            prop_assert_eq!(sum(&bytes), expected);
            let whole = bytes.len() / BLOCK * BLOCK;
            prop_assert_eq!(sum_of_blocks(&bytes), sum(&bytes[..whole]));
            prop_assert_eq!(soh_mask(&bytes, offset), short_mask(&bytes, offset));
            let found = bytes.get(offset..).and_then(|rest| rest.iter().position(|byte| *byte == SOH));
            prop_assert_eq!(end_of(&bytes, offset as u32) as usize, found.map_or(bytes.len(), |place| offset + place));
            if let Some(chunk) = bytes.first_chunk::<16>() {
                let expected = short_mask(chunk, 0);
                prop_assert_eq!(soh_bits(*chunk), expected);
                prop_assert_eq!(words::soh_bits(*chunk), expected);
                let [first, second] = [0, 8].map(|at| u64::from_le_bytes(chunk[at..at + 8].try_into().unwrap()));
                for pair in [[first, second], [first, 0], [0, second]] {
                    let expected = pair.iter().any(|word| word.to_le_bytes().contains(&SOH));
                    prop_assert_eq!((has_soh(pair), words::has_soh(pair)), (expected, expected));
                }
                prop_assert_eq!(words::Sum::new().add(*chunk).total(), sum(chunk));
                let keep = [0, 0, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff];
                prop_assert_eq!(words::Sum::new().add_kept(*chunk, keep).total(), Sum::new().add_kept(*chunk, keep).total());
            }
        }
    }
}
