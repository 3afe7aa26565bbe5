//! A matching engine's orders: a pool of bounded size whose slots link to each other.
//!
//! Cost: each access is an index and a generation check.

use super::Order;

/// Identifies a working order. An identifier repeats only after 2^32 - 1 orders have used its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId {
    generation: u32,
    slot: u32,
}

impl OrderId {
    pub(super) const FIRST: Self = Self { generation: 0, slot: 0 };
    pub(super) const LAST: Self = Self { generation: u32::MAX, slot: u32::MAX };

    /// Returns the identifier as one number, which is never 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// Returns the identifier with this number. Only the engine knows whether such an order is working.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self { generation: (number >> 32) as u32, slot: number as u32 }
    }

    /// Index of the order's slot, below the engine's maximum number of orders. A later order may reuse the slot.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Neighbors in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Links {
    pub(super) previous: Option<OrderId>,
    pub(super) next: Option<OrderId>,
}

/// First and last order of a queue; the orders link to each other.
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
    /// Free slots; the last one is used next.
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

    /// Stores an order; returns `None` if the pool is full.
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

    /// Overwrites an existing order, including its links.
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

    /// Appends an order to a queue.
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

    /// Removes an order from its queue.
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
