//! The orders of a matching engine: a pool of fixed size, with links between its slots.
//!
//! Cost: an index and a comparison of generations for each access.

use super::Order;

/// A working order of a matching engine. A number is not used again before 2^32 other orders had its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId {
    generation: u32,
    slot: u32,
}

impl OrderId {
    pub(super) const FIRST: Self = Self { generation: 0, slot: 0 };
    pub(super) const LAST: Self = Self { generation: u32::MAX, slot: u32::MAX };

    /// As one number, which is never 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The order of this number; whether it works the engine knows.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self { generation: (number >> 32) as u32, slot: number as u32 }
    }

    /// Index of its slot: below the engine's most orders. A later order may have the same.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Neighbours in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Links {
    pub(super) previous: Option<OrderId>,
    pub(super) next: Option<OrderId>,
}

/// First and last order of a queue; the orders link each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Queue {
    pub(super) first: Option<OrderId>,
    pub(super) last: Option<OrderId>,
}

impl Queue {
    pub(super) const fn first(self) -> Option<OrderId> {
        self.first
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    order: Option<Order>,
}

/// Slots for orders.
#[derive(Debug)]
pub(super) struct Pool {
    slots: Vec<Slot>,
    /// Empty slots, the one that is used next last.
    empty: Vec<u32>,
    most: u32,
}

impl Pool {
    pub(super) fn new(most: u32) -> Self {
        Self { slots: Vec::new(), empty: Vec::new(), most }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.empty.len()
    }

    /// Takes an order; `None` if there is no room.
    pub(super) fn insert(&mut self, order: Order) -> Option<OrderId> {
        let slot = match self.empty.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.most as usize => {
                self.slots.push(Slot { generation: 0, order: None });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let place = self.slots.get_mut(slot as usize)?;
        place.generation = place.generation.wrapping_add(1).max(1);
        place.order = Some(order);
        Some(OrderId { generation: place.generation, slot })
    }

    pub(super) fn remove(&mut self, id: OrderId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.order = None;
            self.empty.push(id.slot);
        }
    }

    fn slot_mut(&mut self, id: OrderId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.generation == id.generation && slot.order.is_some()).then_some(slot)
    }

    #[inline]
    pub(super) fn get(&self, id: OrderId) -> Option<&Order> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.order.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: OrderId) -> Option<&mut Order> {
        self.slot_mut(id)?.order.as_mut()
    }

    /// Writes another value of an order that is there; its links are those of the value.
    pub(super) fn set(&mut self, id: OrderId, order: Order) {
        if let Some(place) = self.get_mut(id) {
            *place = order;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (OrderId, &Order)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = OrderId { generation: slot.generation, slot: index as u32 };
            slot.order.as_ref().map(|order| (id, order))
        })
    }

    /// Puts an order at the end of a queue.
    pub(super) fn push_back(&mut self, queue: &mut Queue, id: OrderId) {
        let previous = queue.last;
        match previous.and_then(|last| self.get_mut(last)) {
            Some(last) => last.level.next = Some(id),
            None => queue.first = Some(id),
        }
        queue.last = Some(id);
        if let Some(order) = self.get_mut(id) {
            order.level = Links { previous, next: None };
        }
    }

    /// Takes an order out of its queue.
    pub(super) fn unlink(&mut self, queue: &mut Queue, id: OrderId) {
        let Some(links) = self.get_mut(id).map(|order| std::mem::take(&mut order.level)) else { return };
        match links.previous.and_then(|previous| self.get_mut(previous)) {
            Some(previous) => previous.level.next = links.next,
            None => queue.first = links.next,
        }
        match links.next.and_then(|next| self.get_mut(next)) {
            Some(next) => next.level.previous = links.previous,
            None => queue.last = links.previous,
        }
    }
}
