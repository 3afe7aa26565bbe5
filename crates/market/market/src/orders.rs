//! Maps order references to orders, in one flat table.
//!
//! Orders are stored in the table itself, in huge pages: 32 bytes each, two per bucket, which is a cache line. Venues
//! count their references up, and most resting orders are young. Consecutive references therefore map to neighboring
//! slots, so that young orders are close together, where the caches and page tables still hold them. References wrap
//! around at the number of slots, and each lap is shifted by a different amount, so that references in steps of a power
//! of two also end up using all slots.
//!
//! An order whose bucket is full goes into another one, chosen by a hash of its reference, and each bucket that it
//! passed counts it. A search therefore ends at the order's home bucket unless that count is nonzero. A removal only
//! frees the slot: no order moves. The table is at most half full, and no order passes more than [`FARTHEST`] buckets.
//! Only references chosen to collide come near that limit: a hostile feed can cause orders to be rejected, but cannot
//! make the table spin or grow without bound.
//!
//! Cost: insertion, search and removal touch one cache line, plus another for a displaced order. With random
//! references, 1.4 in 100 buckets are affected at a quarter full, 8 in 100 at half full. [`OrderIndex::prefetch`]
//! fetches the first line as soon as the reference is known.
//!
//! An order's position in its price's queue is its [`Order::priority`]: its arrival number. A list per level would cost
//! two more lines per change; instead, the caller of [`crate::BookRef::queue`] pays for the queue.

use std::hint::select_unpredictable;

use tapeworks_ring::memory::HugeVec;
use tapeworks_ring::prefetch;
use zerocopy::FromZeros;

use crate::event::Side;
use crate::instrument::InstrumentId;
use crate::price::Price;

/// A resting order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The venue's order reference.
    pub id: u64,
    /// Limit price.
    pub price: Price,
    /// Remaining shares.
    pub size: u32,
    /// Side.
    pub side: Side,
    /// Instrument.
    pub instrument: InstrumentId,
    /// Arrival number: orders at one price execute in this order.
    pub priority: u64,
}

/// A slot. `size` 0 means free, so zeroed memory is free.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Slot {
    id: u64,
    price_e9: i64,
    priority: u64,
    size: u32,
    /// Bits 0 to 23: the instrument. Bit 24: an ask. Bits 25 to 31, in the first slot of a bucket whether it is free or
    /// not: how many orders passed the bucket because it was full.
    tag: u32,
}

/// The most buckets that an order can pass.
pub const FARTHEST: usize = 64;

/// 2^64 divided by the golden ratio: multiplying by it spreads consecutive numbers evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A table with fewer than one used slot in `SPARSE` does not grow for an order without room: its references were
/// chosen to collide, and would collide in a larger table too.
const SPARSE: usize = 8;

/// Instrument numbers are below this: 2^24.
pub const MAX_INSTRUMENTS: u32 = 1 << 24;

const INSTRUMENT: u32 = MAX_INSTRUMENTS - 1;
const ASK_BIT: u32 = 1 << 24;
const PASSED_ONE: u32 = 1 << 25;
const PASSED: u32 = !(PASSED_ONE - 1);

impl Slot {
    #[inline]
    const fn holds(&self, id: u64) -> bool {
        (self.id == id) & (self.size != 0)
    }
}

/// Why an order was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The table already has an order with this reference.
    Taken,
    /// There is no room near its home bucket: its reference was chosen to collide with others.
    Full,
}

/// The position of an order. Valid until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    slot: usize,
    id: u64,
}

/// The orders of a venue.
pub struct OrderIndex {
    slots: HugeVec<Slot>,
    /// The table has `1 << bits` slots.
    bits: u32,
    length: usize,
    growths: u64,
}

impl std::fmt::Debug for OrderIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OrderIndex({} orders in {} slots)", self.length, self.slots.len())
    }
}

impl OrderIndex {
    /// Creates a table for `capacity` simultaneous orders. Beyond that it grows, which is counted.
    pub fn with_capacity(capacity: usize) -> Self {
        let slots = (capacity.max(8) * 2).next_power_of_two();
        Self::with_slots(slots)
    }

    fn with_slots(slots: usize) -> Self {
        Self { slots: HugeVec::zeroed(slots), bits: slots.trailing_zeros(), length: 0, growths: 0 }
    }

    /// Returns the number of orders.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no orders.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns how many orders the table can hold without growing.
    pub fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    /// Returns how often the table grew after startup. Each growth moved every order: configure more capacity.
    pub const fn growths(&self) -> u64 {
        self.growths
    }

    /// Returns the size of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// Returns the first slot of the home bucket of `id`.
    #[inline]
    fn home(&self, id: u64) -> usize {
        // The highest bits of the product are spread best; the byte swap makes them the lowest.
        let shifted = (id >> self.bits).wrapping_mul(GOLDEN).swap_bytes();
        id.wrapping_add(shifted) as usize & (self.slots.len() - 2)
    }

    /// Returns the buckets that may hold `id`, as first slots: its home bucket, then those chosen by a hash.
    fn buckets(&self, id: u64) -> impl Iterator<Item = usize> + use<> {
        let (mask, shift) = (self.slots.len() - 2, 64 - self.bits);
        let spread = |factor: u64| (id.wrapping_mul(factor) >> shift) as usize & mask;
        // A step of an odd number of buckets reaches all of them.
        let (mut next, step) = (spread(GOLDEN), spread(0xA076_1D64_78BD_642F) | 2);
        let others = std::iter::repeat_with(move || {
            next = (next + step) & mask;
            next
        });
        std::iter::once(self.home(id)).chain(others).take(FARTHEST + 1)
    }

    /// Prefetches the cache line where `id` is or will be stored.
    #[inline]
    pub fn prefetch(&self, id: u64) {
        prefetch::read(&self.slots, self.home(id));
    }

    /// Guesses the side of the order `id` without a branch, well enough to prefetch the right levels.
    ///
    /// Returns `otherwise` if the order is not in its home bucket or does not exist.
    #[inline]
    pub fn guess_is_ask(&self, id: u64, otherwise: bool) -> bool {
        let home = self.home(id);
        let Some([first, second]) = self.slots.get(home..).and_then(<[Slot]>::first_chunk::<2>) else {
            return otherwise;
        };
        let (in_first, in_second) = (first.holds(id), second.holds(id));
        (in_first & (first.tag & ASK_BIT != 0))
            | (in_second & (second.tag & ASK_BIT != 0))
            | (!(in_first | in_second) & otherwise)
    }

    /// Finds the order `id`.
    #[inline]
    pub fn find(&self, id: u64) -> Option<Place> {
        let home = self.home(id);
        let [first, second] = self.slots.get(home..)?.first_chunk::<2>()?;
        // Chosen without a branch: no predictor can predict which of the two slots it is.
        let (in_first, in_second) = (first.holds(id), second.holds(id));
        if select_unpredictable(in_first, true, in_second) {
            return Some(Place { slot: home + usize::from(in_second), id });
        }
        if first.tag & PASSED == 0 { None } else { self.find_farther(id) }
    }

    /// Finds the order `id` where it may have passed its home bucket.
    #[cold]
    #[inline(never)]
    fn find_farther(&self, id: u64) -> Option<Place> {
        for bucket in self.buckets(id) {
            let [first, second] = self.slots.get(bucket..)?.first_chunk::<2>()?;
            if first.holds(id) | second.holds(id) {
                return Some(Place { slot: bucket + usize::from(second.holds(id)), id });
            }
            if first.tag & PASSED == 0 {
                return None;
            }
        }
        None
    }

    /// Returns the order at `place`.
    #[inline]
    pub fn get(&self, place: Place) -> Option<Order> {
        self.slots.get(place.slot).and_then(Self::order)
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
            side: if slot.tag & ASK_BIT != 0 { Side::Ask } else { Side::Bid },
            instrument: InstrumentId(slot.tag & INSTRUMENT),
            priority: slot.priority,
        })
    }

    /// Inserts an order of at least one share and an instrument below [`MAX_INSTRUMENTS`].
    ///
    /// # Errors
    /// [`Refused`]; the table is then unchanged.
    #[inline]
    pub fn insert(&mut self, order: &Order) -> Result<(), Refused> {
        debug_assert!(order.size > 0, "an order without shares would be a free slot");
        debug_assert!(order.instrument.0 < MAX_INSTRUMENTS, "the number would run into other bits");
        let home = self.home(order.id);
        let Some([first, second]) = self.slots.get(home..).and_then(<[Slot]>::first_chunk::<2>) else {
            return Err(Refused::Full);
        };
        if first.holds(order.id) | second.holds(order.id) {
            return Err(Refused::Taken);
        }
        let is_first_taken = first.size != 0;
        if (first.tag & PASSED != 0) | (is_first_taken & (second.size != 0)) | self.is_half_full() {
            return self.insert_farther(order);
        }
        self.fill(home + usize::from(is_first_taken), order);
        self.length += 1;
        Ok(())
    }

    /// Returns whether one more order would make the table more than half full.
    #[inline]
    fn is_half_full(&self) -> bool {
        (self.length + 1) * 2 > self.slots.len()
    }

    /// Inserts an order whose home bucket is full, whose reference may be held by an order that passed that bucket, or
    /// for which the table must grow.
    #[cold]
    #[inline(never)]
    fn insert_farther(&mut self, order: &Order) -> Result<(), Refused> {
        if self.find(order.id).is_some() {
            return Err(Refused::Taken);
        }
        if self.is_half_full() && !self.grow() {
            return Err(Refused::Full);
        }
        if self.displace(order) {
            return Ok(());
        }
        let is_sparse = self.length * SPARSE < self.slots.len();
        if !is_sparse && self.grow() && self.displace(order) { Ok(()) } else { Err(Refused::Full) }
    }

    #[inline]
    fn fill(&mut self, at: usize, order: &Order) {
        let slot = &mut self.slots[at];
        slot.id = order.id;
        slot.price_e9 = order.price.e9();
        slot.priority = order.priority;
        slot.size = order.size;
        let side = if order.side == Side::Ask { ASK_BIT } else { 0 };
        slot.tag = slot.tag & PASSED | order.instrument.0 & INSTRUMENT | side;
    }

    /// Puts an order into the first of its buckets that has room. Returns `false` if none has.
    fn displace(&mut self, order: &Order) -> bool {
        for (passed, bucket) in self.buckets(order.id).enumerate() {
            let free = bucket + usize::from(self.slots[bucket].size != 0);
            if self.slots[free].size == 0 {
                self.fill(free, order);
                self.length += 1;
                return true;
            }
            if self.slots[bucket].tag & PASSED == PASSED {
                self.uncount(order.id, passed);
                return false;
            }
            self.slots[bucket].tag += PASSED_ONE;
        }
        self.uncount(order.id, FARTHEST + 1);
        false
    }

    /// Removes one order from the counts of the first `passed` of its buckets.
    #[cold]
    #[inline(never)]
    fn uncount(&mut self, id: u64, passed: usize) {
        for bucket in self.buckets(id).take(passed) {
            self.slots[bucket].tag -= PASSED_ONE;
        }
    }

    /// Sets the remaining shares of the order at `place` to `size`, which is not 0.
    #[inline]
    pub fn resize(&mut self, place: Place, size: u32) {
        debug_assert!(size > 0, "an order without shares is removed instead");
        self.slots[place.slot].size = size;
    }

    /// Removes the order at `place`.
    #[inline]
    pub fn remove(&mut self, place: Place) {
        self.slots[place.slot].size = 0;
        self.length -= 1;
        let bucket = place.slot & !1;
        if self.home(place.id) != bucket {
            let passed = self.buckets(place.id).position(|one| one == bucket);
            self.uncount(place.id, passed.unwrap_or_default());
        }
    }

    /// Returns every order, in table order.
    pub fn iter(&self) -> impl Iterator<Item = Order> + '_ {
        self.slots.iter().filter_map(Self::order)
    }

    /// Removes every order and keeps the memory.
    pub fn clear(&mut self) {
        if self.length > 0 {
            self.slots.iter_mut().for_each(|slot| (slot.size, slot.tag) = (0, 0));
            self.length = 0;
        }
    }

    /// Removes every order of the instruments for which `is_one` returns true. Reads the whole table.
    pub fn clear_instruments(&mut self, is_one: impl Fn(InstrumentId) -> bool) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.size != 0 && is_one(InstrumentId(slot.tag & INSTRUMENT)) {
                self.remove(Place { slot: index, id: slot.id });
            }
        }
    }

    /// Doubles the table. Returns `false`, with nothing changed, if an order does not fit into the larger one.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let mut larger = Self::with_slots(self.slots.len() * 2);
        if !self.iter().all(|order| larger.displace(&order)) {
            return false;
        }
        larger.growths = self.growths + 1;
        *self = larger;
        true
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
        assert_eq!(index.insert(&order(1, 5)), Ok(()));
        assert_eq!(index.insert(&order(1, 6)), Err(Refused::Taken));
        assert_eq!(index.get(index.find(1).unwrap()).unwrap().size, 5);
    }

    #[test]
    fn a_reference_taken_does_not_make_a_half_full_table_grow() {
        let mut index = OrderIndex::with_capacity(8);
        for id in 1..=8 {
            index.insert(&order(id, 5)).unwrap();
        }
        assert_eq!(index.insert(&order(8, 6)), Err(Refused::Taken));
        assert_eq!(index.growths(), 0);
        index.insert(&order(9, 5)).unwrap();
        assert_eq!((index.growths(), index.len()), (1, 9));
    }

    #[test]
    fn references_chosen_to_collide_are_refused_and_the_table_does_not_grow() {
        let mut index = OrderIndex::with_capacity(1 << 12);
        let mut added = Vec::new();
        let colliding: Vec<u64> = (1..).filter(|id| index.home(*id) == 0).take(400).collect();
        for id in colliding {
            match index.insert(&order(id, 1)) {
                Ok(()) => added.push(id),
                Err(refused) => assert_eq!(refused, Refused::Full),
            }
        }
        // Two in the home bucket, plus as many as it can count.
        assert_eq!((added.len() as u32, index.growths()), (2 + PASSED / PASSED_ONE, 0));
        for id in added {
            let place = index.find(id).unwrap();
            index.remove(place);
        }
        assert!(index.is_empty() && index.slots.iter().all(|slot| slot.tag & PASSED == 0));
    }

    #[test]
    fn a_search_ends_where_every_bucket_was_passed() {
        let mut index = OrderIndex::with_capacity(8);
        index.slots.iter_mut().step_by(2).for_each(|slot| slot.tag = PASSED_ONE);
        assert!((1_000..2_000).all(|id| index.find(id).is_none()));
    }

    #[test]
    fn references_in_sequence_are_neighbours_and_fill_a_table_to_its_half() {
        for stride in [1, 2, 3, 16, 1 << 7, 1 << 20, 1 << 40] {
            let mut index = OrderIndex::with_capacity(1 << 14);
            let ids = (1..=1u64 << 14).map(|n| n * stride);
            for id in ids.clone() {
                assert_eq!(index.insert(&order(id, 1)), Ok(()), "stride {stride}");
            }
            assert_eq!((index.growths(), index.len()), (0, 1 << 14));
            let at_home = |id: &u64| index.find(*id).is_some_and(|place| place.slot & !1 == index.home(*id));
            let share = ids.clone().filter(at_home).count() as f64 / f64::from(1 << 14);
            // Wide steps are mostly hashed.
            assert!(
                share > if stride > 1 << 15 { 0.25 } else { 0.75 },
                "stride {stride}: {share} in their own buckets"
            );
            for id in ids {
                let place = index.find(id).unwrap();
                index.remove(place);
            }
            assert!(index.slots.iter().all(|slot| slot.size == 0 && slot.tag & PASSED == 0));
        }
        let index = OrderIndex::with_capacity(1 << 14);
        assert!(
            (1 << 30..(1 << 30) + 64)
                .all(|id| index.home(id + 2) == (index.home(id) + 2) % index.slots.len())
        );
    }

    proptest! {
        #[test]
        fn it_holds_the_entries_of_a_map(operations in prop::collection::vec((0u64..64, 0u8..4, 1u32..9), 0..600)) {
            // A tiny table, so that runs of slots wrap around its end and it grows.
            let mut index = OrderIndex::with_capacity(8);
            let mut model = HashMap::new();
            for (id, operation, size) in operations {
                match operation {
                    0 | 1 => {
                        let free = !model.contains_key(&id);
                        prop_assert_eq!(index.insert(&order(id, size)).is_ok(), free);
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
                        index.clear_instruments(|one| one == InstrumentId(size % 5));
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
            let displaced = |id| index.find(id).is_some_and(|place| place.slot & !1 != index.home(id));
            let counted: u32 = index.slots.iter().step_by(2).map(|slot| slot.tag / PASSED_ONE).sum();
            prop_assert_eq!(counted > 0, (0..64).any(displaced));
        }
    }
}
