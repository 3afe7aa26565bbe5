//! From order reference to order: one flat table.
//!
//! The orders lie in the slots themselves, 32 bytes each, two to a cache line, in huge pages. The line is found by a
//! multiplicative hash of the reference without its lowest bit; that bit picks the slot in the line, so that two
//! orders entered one after the other share a line. A full slot leads to the next (linear probing); a removal closes
//! the hole, so there are no tombstones and a search ends at the first free slot. The table is at most half full.
//!
//! Cost: insertion, search and removal touch one cache line, rarely the next one too. [`OrderIndex::prefetch`] asks
//! for that line as soon as the reference is known.
//!
//! The place of an order in its price's queue is its [`Order::priority`]: the number of its arrival. A list per level
//! would cost two more lines per change; who wants the queue ([`crate::BookRef::queue`]) pays for it instead.

use tapeworks_ring::memory::HugeVec;
use tapeworks_ring::prefetch;
use zerocopy::FromZeros;

use crate::event::Side;
use crate::instrument::InstrumentId;
use crate::price::Price;

/// A resting order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The venue's reference of the order.
    pub id: u64,
    /// Its limit price.
    pub price: Price,
    /// Shares left.
    pub size: u32,
    /// Its side.
    pub side: Side,
    /// Its instrument.
    pub instrument: InstrumentId,
    /// Orders of one price execute in this order.
    pub priority: u64,
}

/// A slot; `size` 0 means free, which zeroed memory is.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Slot {
    id: u64,
    price_e9: i64,
    priority: u64,
    size: u32,
    /// The instrument; the highest bit is set for an ask.
    instrument_side: u32,
}

const ASK_BIT: u32 = 1 << 31;

/// Where an order is. Valid until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub struct Place(usize);

/// The orders of a venue.
pub struct OrderIndex {
    slots: HugeVec<Slot>,
    shift: u32,
    length: usize,
    growths: u64,
}

impl std::fmt::Debug for OrderIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OrderIndex({} orders in {} slots)", self.length, self.slots.len())
    }
}

impl OrderIndex {
    /// A table for `capacity` orders at once; beyond that it grows, which is counted.
    pub fn with_capacity(capacity: usize) -> Self {
        let slots = (capacity.max(8) * 2).next_power_of_two();
        Self::with_slots(slots)
    }

    fn with_slots(slots: usize) -> Self {
        // Two slots to a line: the hash picks one of slots / 2 lines.
        Self { slots: HugeVec::zeroed(slots), shift: 65 - slots.trailing_zeros(), length: 0, growths: 0 }
    }

    /// The number of orders.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no order.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How often the table had to grow after start-up. Each time moved every order: give it more capacity.
    pub const fn growths(&self) -> u64 {
        self.growths
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// The first slot to look at.
    #[inline]
    const fn home(&self, id: u64) -> usize {
        // 2^64 divided by the golden ratio: spreads consecutive numbers evenly.
        let line = (id >> 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift;
        (line as usize) << 1 | (id & 1) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Asks for the cache line where `id` is or will be.
    #[inline]
    pub fn prefetch(&self, id: u64) {
        prefetch::read(&self.slots, self.home(id));
    }

    /// Where `id` is.
    #[inline]
    pub fn find(&self, id: u64) -> Option<Place> {
        let mut index = self.home(id);
        loop {
            let slot = &self.slots[index];
            if slot.size == 0 {
                return None;
            }
            if slot.id == id {
                return Some(Place(index));
            }
            index = self.next(index);
        }
    }

    /// The order at `place`.
    #[inline]
    pub fn get(&self, place: Place) -> Option<Order> {
        Self::order(&self.slots[place.0])
    }

    #[inline]
    fn order(slot: &Slot) -> Option<Order> {
        if slot.size == 0 {
            return None;
        }
        Some(Order {
            id: slot.id,
            price: Price::from_e9(slot.price_e9)?,
            size: slot.size,
            side: if slot.instrument_side & ASK_BIT != 0 { Side::Ask } else { Side::Bid },
            instrument: InstrumentId(slot.instrument_side & !ASK_BIT),
            priority: slot.priority,
        })
    }

    /// Adds an order of at least one share; `false` when its reference is taken (the table stays as it is).
    #[inline]
    pub fn insert(&mut self, order: &Order) -> bool {
        debug_assert!(order.size > 0, "an order without shares would be a free slot");
        if (self.length + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let mut index = self.home(order.id);
        loop {
            let slot = &self.slots[index];
            if slot.size == 0 {
                break;
            }
            if slot.id == order.id {
                return false;
            }
            index = self.next(index);
        }
        self.slots[index] = Slot {
            id: order.id,
            price_e9: order.price.e9(),
            priority: order.priority,
            size: order.size,
            instrument_side: order.instrument.0 & !ASK_BIT
                | if order.side == Side::Ask { ASK_BIT } else { 0 },
        };
        self.length += 1;
        true
    }

    /// Sets the shares left of the order at `place` to `size`, which is not 0.
    #[inline]
    pub fn resize(&mut self, place: Place, size: u32) {
        debug_assert!(size > 0, "an order without shares is removed instead");
        self.slots[place.0].size = size;
    }

    /// Removes the order at `place`.
    #[inline]
    pub fn remove(&mut self, place: Place) {
        let mut hole = place.0;
        let mut index = self.next(hole);
        // Whatever was pushed past the hole by it moves back, so that a search can end at a free slot.
        while self.slots[index].size != 0 {
            let home = self.home(self.slots[index].id);
            let mask = self.slots.len() - 1;
            if (index.wrapping_sub(home) & mask) >= (index.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[index];
                hole = index;
            }
            index = self.next(index);
        }
        self.slots[hole].size = 0;
        self.length -= 1;
    }

    /// Every order, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = Order> + '_ {
        self.slots.iter().filter_map(Self::order)
    }

    /// Removes every order; the memory stays.
    pub fn clear(&mut self) {
        if self.length > 0 {
            self.slots.iter_mut().for_each(|slot| slot.size = 0);
            self.length = 0;
        }
    }

    /// Removes every order of `instrument`.
    pub fn clear_instrument(&mut self, instrument: InstrumentId) {
        let mut index = 0;
        while index < self.slots.len() {
            let slot = &self.slots[index];
            if slot.size != 0 && slot.instrument_side & !ASK_BIT == instrument.0 {
                // What moves into the hole is looked at next.
                self.remove(Place(index));
            } else {
                index += 1;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut larger = Self::with_slots(self.slots.len() * 2);
        for order in self.iter() {
            larger.insert(&order);
        }
        larger.growths = self.growths + 1;
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn order(id: u64, size: u32) -> Order {
        Order {
            id,
            price: Price::from_e9(id as i64).unwrap(),
            size,
            side: if id.is_multiple_of(3) { Side::Ask } else { Side::Bid },
            instrument: InstrumentId(id as u32 % 5),
            priority: id,
        }
    }

    #[test]
    fn a_slot_is_half_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 32);
    }

    #[test]
    fn a_reference_taken_is_refused_and_the_first_order_stays() {
        let mut index = OrderIndex::with_capacity(8);
        assert!(index.insert(&order(1, 5)));
        assert!(!index.insert(&order(1, 6)));
        assert_eq!(index.get(index.find(1).unwrap()).unwrap().size, 5);
    }

    #[test]
    fn consecutive_references_share_a_line_when_it_is_free() {
        let index = OrderIndex::with_capacity(1 << 10);
        assert_eq!(index.home(6) / 2, index.home(7) / 2);
        assert_ne!(index.home(6), index.home(7));
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(operations in prop::collection::vec((0u64..64, 0u8..4, 1u32..9), 0..600)) {
            // A tiny table, so that runs of slots wrap around its end and it grows.
            let mut index = OrderIndex::with_capacity(8);
            let mut model = HashMap::new();
            for (id, operation, size) in operations {
                match operation {
                    0 | 1 => {
                        let free = !model.contains_key(&id);
                        prop_assert_eq!(index.insert(&order(id, size)), free);
                        if free {
                            model.insert(id, order(id, size));
                        }
                    }
                    2 => match (index.find(id), model.remove(&id)) {
                        (Some(place), Some(_)) => index.remove(place),
                        (None, None) => {}
                        (found, expected) => prop_assert!(false, "{:?} {:?}", found, expected),
                    },
                    _ => if id == 0 {
                        index.clear_instrument(InstrumentId(size % 5));
                        model.retain(|_, order| order.instrument.0 != size % 5);
                    } else if let Some(place) = index.find(id) {
                        index.resize(place, size);
                        model.get_mut(&id).unwrap().size = size;
                    },
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for id in 0..64 {
                prop_assert_eq!(index.find(id).and_then(|place| index.get(place)), model.get(&id).copied());
            }
            prop_assert_eq!(index.iter().count(), model.len());
        }
    }
}
