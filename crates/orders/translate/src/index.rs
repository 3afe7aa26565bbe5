//! A hash table of fixed capacity, from the hashes of ids to places in a pool that holds the ids.
//!
//! A bucket is one cache line: eight hashes of 32 bits, with their places beside them. A probe compares all eight simultaneously,
//! without a branch that depends on which one matches. At most half of the slots are occupied, so the next bucket is rarely read.
//! Removing an entry moves a later one into its slot, so that no tombstone remains. The caller compares the ids themselves. A table
//! for 262,144 ids takes 4 MiB. Cost: three multiplications per hash, and one cache line. Nothing allocates after [`Index::new`].

use tapeworks_wire::Ascii;

use crate::ids::ClOrdId;

/// Slots per bucket.
const SLOTS: usize = 8;

/// The hash of an empty slot.
const EMPTY: u32 = 0;

/// The hash of an id within a space: a client's, or the venue's. It never equals the hash of an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u32);

impl Hash {
    /// Hashes a client's id. An id short enough to be a name at the venue has the same hash as that name.
    #[inline]
    pub(crate) fn of_id(space: u16, id: &ClOrdId) -> Self {
        let (short, rest) = id.parts();
        let hash = Self::new(space, &Ascii(*short));
        if id.is_long() { hash.with_rest(rest) } else { hash }
    }

    #[inline(never)]
    fn with_rest(self, rest: &[u8]) -> Self {
        let mut words = [u64::from(self.0); 7];
        for (word, bytes) in words.iter_mut().skip(1).zip(rest.chunks(8)) {
            let mut padded = [0; 8];
            if let Some(place) = padded.get_mut(..bytes.len()) {
                place.copy_from_slice(bytes);
            }
            *word = u64::from_le_bytes(padded);
        }
        Self::of_words(words)
    }

    #[inline]
    pub(crate) fn new(space: u16, text: &Ascii<20>) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = text.0;
        let words = [
            u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            u64::from_le_bytes([i, j, k, l, m, n, o, p]),
            u64::from(u32::from_le_bytes([q, r, s, t])) | u64::from(space) << 32,
        ];
        Self::of_words(words)
    }

    /// Hashes words. Cost: one multiplication per word.
    #[inline]
    pub(crate) fn of_words<const N: usize>(words: [u64; N]) -> Self {
        let mix = |hash: u64, word: &u64| {
            let product = u128::from(hash ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let hash = words.iter().fold(0x2545_F491_4F6C_DD1D, mix);
        let folded = (hash >> 32) as u32 ^ hash as u32;
        Self(if folded == EMPTY { 1 } else { folded })
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket {
    hashes: [u32; SLOTS],
    places: [u32; SLOTS],
}

const NO_ENTRY: Bucket = Bucket { hashes: [EMPTY; SLOTS], places: [0; SLOTS] };

impl Bucket {
    /// Returns a bit for each slot with this hash.
    #[inline(always)]
    fn matches(&self, hash: u32) -> u32 {
        equal_bits(&self.hashes, hash)
    }

    fn set(&mut self, slot: usize, hash: u32, place: u32) {
        if let (Some(to_hash), Some(to_place)) = (self.hashes.get_mut(slot), self.places.get_mut(slot)) {
            (*to_hash, *to_place) = (hash, place);
        }
    }

    fn slot(&self, slot: usize) -> (u32, u32) {
        let of = |slots: &[u32; SLOTS]| slots.get(slot).copied().unwrap_or(0);
        (of(&self.hashes), of(&self.places))
    }
}

/// Returns a bit for each number that equals `wanted`, the first in the lowest bit. SSE2, which every x86-64 has, compares four at
/// a time.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_bits(numbers: &[u32; SLOTS], wanted: u32) -> u32 {
    use safe_arch::{
        cmp_eq_mask_i32_m128i, m128i, move_mask_i8_m128i, pack_i16_to_i8_m128i, pack_i32_to_i16_m128i,
        set_splat_i32_m128i,
    };
    let [a, b, c, d, e, f, g, h] = *numbers;
    let wanted = set_splat_i32_m128i(wanted.cast_signed());
    let low = cmp_eq_mask_i32_m128i(m128i::from([a, b, c, d]), wanted);
    let high = cmp_eq_mask_i32_m128i(m128i::from([e, f, g, h]), wanted);
    // Each comparison yields all ones or all zeros, so halving the width keeps it.
    let halves = pack_i32_to_i16_m128i(low, high);
    move_mask_i8_m128i(pack_i16_to_i8_m128i(halves, halves)).cast_unsigned() & 0xff
}

/// Does the same in a loop.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_bits_of_each(numbers: &[u32; SLOTS], wanted: u32) -> u32 {
    let bit = |(slot, number): (usize, &u32)| u32::from(*number == wanted) << slot;
    numbers.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
}

#[cfg(not(target_arch = "x86_64"))]
use equal_bits_of_each as equal_bits;

/// Iterates over the slots whose bits are set.
fn set_bits(mut bits: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = bits.trailing_zeros() as usize;
        let is_set = bits != 0;
        bits &= bits.wrapping_sub(1);
        is_set.then_some(slot)
    })
}

/// A map from ids to places.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    mask: usize,
    used: usize,
}

impl Index {
    /// Creates a table for `entries` ids.
    pub(crate) fn new(entries: usize) -> Self {
        let buckets = (entries.max(SLOTS).saturating_mul(2) / SLOTS).next_power_of_two();
        Self { buckets: vec![NO_ENTRY; buckets], mask: buckets - 1, used: 0 }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask
    }

    #[inline]
    fn bucket(&self, at: usize) -> &Bucket {
        self.buckets.get(at & self.mask).unwrap_or(&NO_ENTRY)
    }

    /// Returns the bucket and slot of an entry with this hash whose place satisfies `is_it`.
    #[inline]
    fn find(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        let home = self.home(hash.0);
        for at in home..=home + self.mask {
            let bucket = self.bucket(at);
            for slot in set_bits(bucket.matches(hash.0)) {
                if is_it(bucket.slot(slot).1) {
                    return Some((at & self.mask, slot));
                }
            }
            if bucket.matches(EMPTY) != 0 {
                return None;
            }
        }
        None
    }

    /// Prefetches the cache line of an id while other work continues.
    #[inline]
    pub(crate) fn fetch(&self, hash: Hash) {
        let bucket = self.bucket(self.home(hash.0));
        #[cfg(target_arch = "x86_64")]
        safe_arch::prefetch_t0(bucket);
        #[cfg(not(target_arch = "x86_64"))]
        let _not_fetched = bucket;
    }

    /// Returns the place of an id.
    #[inline]
    pub(crate) fn get(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (at, slot) = self.find(hash, is_it)?;
        Some(self.bucket(at).slot(slot).1)
    }

    /// Sets the place of an id. Returns whether there was room: half of the slots stay empty.
    pub(crate) fn insert(&mut self, hash: Hash, place: u32, is_it: impl Fn(u32) -> bool) -> bool {
        if let Some((at, slot)) = self.find(hash, is_it) {
            if let Some(bucket) = self.buckets.get_mut(at) {
                bucket.set(slot, hash.0, place);
            }
            return true;
        }
        self.insert_new(hash, place)
    }

    /// Like `insert`, for an id that is not in the table.
    #[inline]
    pub(crate) fn insert_new(&mut self, hash: Hash, place: u32) -> bool {
        if self.used * 2 >= self.buckets.len() * SLOTS {
            return false;
        }
        let mut at = self.home(hash.0);
        while let Some(bucket) = self.buckets.get_mut(at) {
            if let Some(slot) = set_bits(bucket.matches(EMPTY)).next() {
                bucket.set(slot, hash.0, place);
                self.used += 1;
                return true;
            }
            at = (at + 1) & self.mask;
        }
        false
    }

    /// Removes the id with this hash and place. Returns whether it was in the table.
    pub(crate) fn remove(&mut self, hash: Hash, place: u32) -> bool {
        let Some((mut hole, mut slot)) = self.find(hash, |other| other == place) else { return false };
        self.used -= 1;
        loop {
            // Only a full bucket makes entries overflow into later buckets.
            let was_full = self.bucket(hole).matches(EMPTY) == 0;
            if let Some(bucket) = self.buckets.get_mut(hole) {
                bucket.set(slot, EMPTY, 0);
            }
            let Some((from, moved)) = was_full.then(|| self.passed(hole)).flatten() else { return true };
            let (hash, place) = self.bucket(from).slot(moved);
            if let Some(bucket) = self.buckets.get_mut(hole) {
                bucket.set(slot, hash, place);
            }
            (hole, slot) = (from, moved);
        }
    }

    /// Returns the bucket and slot of a later entry that would be in this bucket if there had been room.
    fn passed(&self, hole: usize) -> Option<(usize, usize)> {
        for at in hole + 1..=hole + self.mask {
            let bucket = self.bucket(at);
            for slot in 0..SLOTS {
                let (hash, _) = bucket.slot(slot);
                let from_home = at.wrapping_sub(self.home(hash)) & self.mask;
                if hash != EMPTY && from_home >= at - hole {
                    return Some((at & self.mask, slot));
                }
            }
            if bucket.matches(EMPTY) != 0 {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use tapeworks_wire::Ascii;

    const IDS: u32 = 60;

    /// Few distinct hashes, so that buckets fill up and ids collide.
    fn hash(id: u32) -> Hash {
        Hash(1 + id % 13 * 4)
    }

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn the_space_and_each_character_change_the_hash() {
        let id = Ascii::<20>::new("ORDER-1").unwrap();
        let mut hashes = vec![Hash::new(0, &id), Hash::new(1, &id)];
        for place in 0..20 {
            let mut other = id;
            other.0[place] = b'#';
            hashes.push(Hash::new(0, &other));
        }
        hashes.sort_unstable_by_key(|hash| hash.0);
        hashes.dedup();
        assert_eq!(hashes.len(), 22);
    }

    proptest! {
        #[test]
        fn a_comparison_of_all_slots_agrees_with_a_loop(
            numbers in prop::array::uniform8(prop_oneof![Just(0), Just(1), Just(0x8000_0000), Just(u32::MAX), any::<u32>()]), wanted in any::<u32>()
        ) {
            for wanted in [0, 1, 0x8000_0000, u32::MAX, wanted, numbers[7]] {
                prop_assert_eq!(equal_bits(&numbers, wanted), equal_bits_of_each(&numbers, wanted));
            }
        }

        #[test]
        fn an_index_behaves_as_a_hash_map_of_the_standard_library(
            steps in prop::collection::vec((0u8..3, 0..IDS), 0..600)
        ) {
            // The pool: an id gets a new place each time.
            let (mut index, mut map) = (Index::new(32), HashMap::new());
            let mut ids: Vec<u32> = Vec::new();
            for (step, id) in steps {
                match step {
                    0 => {
                        let fits = map.len() < 32 || map.contains_key(&id);
                        let place = ids.len() as u32;
                        ids.push(id);
                        let is_it = |place: u32| ids[place as usize] == id;
                        prop_assert_eq!(index.insert(hash(id), place, is_it), fits);
                        if fits {
                            map.insert(id, place);
                        }
                    }
                    1 => {
                        let place = map.remove(&id);
                        prop_assert_eq!(index.remove(hash(id), place.unwrap_or(u32::MAX)), place.is_some());
                    }
                    _ => {}
                }
                for each in 0..IDS {
                    let found = index.get(hash(each), |place| ids[place as usize] == each);
                    prop_assert_eq!(found, map.get(&each).copied());
                }
            }
        }
    }
}
