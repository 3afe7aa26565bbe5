//! A hash table of fixed capacity: ids to places in a pool.
//!
//! Linear probing over 32-byte slots, at most half of them taken; an entry that goes is closed by moving those behind it, so that
//! no mark of it stays. Cost: a multiplication per 8 bytes of the id, and one cache line in most cases. Nothing allocates after
//! [`Index::new`].

use tapeworks_wire::Ascii;

/// The place of an empty slot.
const EMPTY: u32 = u32::MAX;

/// An id within a space: a client's, or the venue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key([u64; 3]);

impl Key {
    #[inline]
    pub(crate) fn new(space: u16, text: &Ascii<20>) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = text.0;
        let [low, high] = space.to_le_bytes();
        Self([
            u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            u64::from_le_bytes([i, j, k, l, m, n, o, p]),
            u64::from_le_bytes([q, r, s, t, low, high, 0, 0]),
        ])
    }

    #[inline]
    fn hash(&self) -> u64 {
        let mix = |hash: u64, word: &u64| {
            let product = u128::from(hash ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
            (product as u64) ^ ((product >> 64) as u64)
        };
        self.0.iter().fold(0x2545_F491_4F6C_DD1D, mix)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    place: u32,
}

/// Ids to places.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    slots: Vec<Slot>,
    mask: usize,
    used: usize,
}

impl Index {
    /// Room for `entries` ids.
    pub(crate) fn new(entries: usize) -> Self {
        let slots = entries.max(2).saturating_mul(2).next_power_of_two();
        Self { slots: vec![Slot { key: Key([0; 3]), place: EMPTY }; slots], mask: slots - 1, used: 0 }
    }

    #[inline]
    fn home(&self, key: &Key) -> usize {
        key.hash() as usize & self.mask
    }

    /// The slot of the key, or the empty one where it would be.
    #[inline]
    fn slot_of(&self, key: &Key) -> usize {
        let mut at = self.home(key);
        while let Some(slot) = self.slots.get(at) {
            if slot.place == EMPTY || slot.key == *key {
                break;
            }
            at = (at + 1) & self.mask;
        }
        at
    }

    /// The place of an id.
    #[inline]
    pub(crate) fn get(&self, key: &Key) -> Option<u32> {
        self.slots.get(self.slot_of(key)).map(|slot| slot.place).filter(|place| *place != EMPTY)
    }

    /// Sets the place of an id. Returns whether there was room: half of the slots stay empty.
    #[inline]
    pub(crate) fn insert(&mut self, key: Key, place: u32) -> bool {
        let at = self.slot_of(&key);
        let has_room = self.used * 2 < self.slots.len();
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if slot.place == EMPTY {
            if !has_room {
                return false;
            }
            self.used += 1;
        }
        *slot = Slot { key, place };
        true
    }

    /// Removes an id. Returns its place.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<u32> {
        let mut hole = self.slot_of(key);
        let removed = self.slots.get(hole).map(|slot| slot.place).filter(|place| *place != EMPTY)?;
        self.used -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let Some(slot) = self.slots.get(at).copied().filter(|slot| slot.place != EMPTY) else { break };
            // An entry moves into the hole unless its home is between the hole and itself.
            let from_home = at.wrapping_sub(self.home(&slot.key)) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                if let Some(empty) = self.slots.get_mut(hole) {
                    *empty = slot;
                }
                hole = at;
            }
        }
        if let Some(slot) = self.slots.get_mut(hole) {
            slot.place = EMPTY;
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use tapeworks_wire::Ascii;

    fn key(number: u8) -> Key {
        Key::new(u16::from(number % 3), &Ascii::padded(&[b'A' + number / 3]).unwrap_or_default())
    }

    proptest! {
        #[test]
        fn an_index_behaves_as_a_hash_map_of_the_standard_library(
            steps in prop::collection::vec((0u8..3, 0u8..60, any::<u16>()), 0..400)
        ) {
            let (mut index, mut map) = (Index::new(16), HashMap::new());
            for (step, number, place) in steps {
                match step {
                    0 => {
                        let fits = map.len() < 16 || map.contains_key(&number);
                        prop_assert_eq!(index.insert(key(number), u32::from(place)), fits);
                        if fits {
                            map.insert(number, u32::from(place));
                        }
                    }
                    1 => prop_assert_eq!(index.remove(&key(number)), map.remove(&number)),
                    _ => prop_assert_eq!(index.get(&key(number)), map.get(&number).copied()),
                }
                for each in 0..60 {
                    prop_assert_eq!(index.get(&key(each)), map.get(&each).copied());
                }
            }
        }
    }
}
