//! Slots of one size, taken and given back without the allocator.
//!
//! [`Pool`] holds values in slots that lie side by side; a [`Handle`] is the number of a slot. Structures made of handles
//! (lists, trees, order queues) stay small, survive a move of the pool, and their nodes lie close together. Values taken
//! one after the other from a fresh pool lie one after the other.
//!
//! A handle of a removed value names an empty slot, or the slot's next value: as with any index, the caller must know whether
//! its handle is still valid.
//!
//! Cost: an insertion or removal touches the slot and the pool's own line, no lock, no call. [`Pool::with_capacity`] reserves
//! ahead and touches every page, so that no later call of the kernel is needed; without it the pool grows by doubling, which moves
//! all slots and is counted ([`Pool::growths`]).

/// The number of a slot in a [`Pool`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(u32);

impl Handle {
    /// The slot's number, from 0.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
enum Slot<T> {
    Taken(T),
    /// The next free slot; [`END`] after the last.
    Free(u32),
}

/// Ends the list of free slots.
const END: u32 = u32::MAX;

/// The most slots of a pool.
pub const MAX_SLOTS: usize = END as usize;

/// The pool has [`MAX_SLOTS`] values already. The value comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolFull<T>(
    /// The value that was not inserted.
    pub T,
);

impl<T> std::fmt::Display for PoolFull<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the pool has {MAX_SLOTS} values, more cannot be numbered")
    }
}

impl<T: std::fmt::Debug> std::error::Error for PoolFull<T> {}

/// Slots of one size. Not shared between threads: each has its own.
#[derive(Debug)]
pub struct Pool<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot among `slots`.
    free: u32,
    length: usize,
    growths: u64,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Pool<T> {
    /// A pool without a slot, which grows as it is used.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: END, length: 0, growths: 0 }
    }

    /// A pool with `capacity` slots, whose memory is touched now.
    ///
    /// # Panics
    /// When `capacity` exceeds [`MAX_SLOTS`].
    pub fn with_capacity(capacity: usize) -> Self {
        let mut pool = Self::new();
        pool.reserve(capacity);
        pool
    }

    /// Makes room for `additional` values more than there are, and touches their memory now.
    ///
    /// # Panics
    /// When that exceeds [`MAX_SLOTS`].
    pub fn reserve(&mut self, additional: usize) {
        let wanted = self.length.saturating_add(additional);
        assert!(wanted <= MAX_SLOTS, "{wanted} slots cannot be numbered");
        let old = self.slots.len();
        if wanted <= old {
            return;
        }
        self.slots.reserve_exact(wanted - old);
        // Linked in their order, so that values taken one after the other lie so; before them what was free already.
        let behind = self.free;
        self.slots.extend(
            (old..wanted).map(|at| Slot::Free(if at + 1 == wanted { behind } else { at as u32 + 1 })),
        );
        self.free = old as u32;
    }

    /// Puts a value into a free slot.
    ///
    /// # Errors
    /// Gives it back when no more slots can be numbered.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Handle, PoolFull<T>> {
        if let Some(slot) = self.slots.get_mut(self.free as usize)
            && let Slot::Free(next) = *slot
        {
            let handle = Handle(self.free);
            *slot = Slot::Taken(value);
            self.free = next;
            self.length += 1;
            return Ok(handle);
        }
        self.append(value)
    }

    #[cold]
    fn append(&mut self, value: T) -> Result<Handle, PoolFull<T>> {
        if self.slots.len() >= MAX_SLOTS {
            return Err(PoolFull(value));
        }
        self.growths += u64::from(self.slots.len() == self.slots.capacity());
        let handle = Handle(self.slots.len() as u32);
        self.slots.push(Slot::Taken(value));
        self.length += 1;
        Ok(handle)
    }

    /// Takes a value out. `None` when its slot is empty.
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.index())?;
        if matches!(slot, Slot::Free(_)) {
            return None;
        }
        let Slot::Taken(value) = std::mem::replace(slot, Slot::Free(self.free)) else { return None };
        self.free = handle.0;
        self.length -= 1;
        Some(value)
    }

    /// The value of a handle.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        match self.slots.get(handle.index())? {
            Slot::Taken(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// The value of a handle, to change.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        match self.slots.get_mut(handle.index())? {
            Slot::Taken(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// The number of values.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no value.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Values that fit without growing.
    pub const fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// How often the pool grew while it was used. Each time moved every slot: reserve more.
    pub const fn growths(&self) -> u64 {
        self.growths
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_of_a_reserved_pool_lie_in_the_order_they_came_and_nothing_grows() {
        let mut pool = Pool::with_capacity(100);
        let handles: Vec<_> = (0..100).map(|number| pool.insert(number).unwrap().index()).collect();
        assert_eq!(handles, (0..100).collect::<Vec<_>>());
        assert_eq!(pool.growths(), 0);
        pool.insert(100).unwrap();
        assert_eq!(pool.growths(), 1);
    }

    #[test]
    fn a_slot_given_back_is_used_next() {
        let mut pool = Pool::new();
        let [one, two] = ["one", "two"].map(|name| pool.insert(name).unwrap());
        assert_eq!(pool.remove(one), Some("one"));
        assert_eq!(pool.remove(one), None);
        assert_eq!(pool.get(one), None);
        assert_eq!(pool.get_mut(one), None);
        assert_eq!(pool.insert("three"), Ok(one));
        assert_eq!((pool.get(one), pool.get(two), pool.len()), (Some(&"three"), Some(&"two"), 2));
    }

    proptest! {
        #[test]
        fn a_pool_is_a_map(operations in prop::collection::vec((0u8..4, 0usize..20), 0..300)) {
            let mut pool = Pool::new();
            let mut model = HashMap::new();
            let mut handles = Vec::new();
            for (number, (kind, at)) in operations.into_iter().enumerate() {
                let handle: Option<Handle> = handles.get(at % handles.len().max(1)).copied();
                match (kind, handle) {
                    (0 | 1, _) => {
                        let handle = pool.insert(number).unwrap();
                        prop_assert_eq!(model.insert(handle, number), None, "a slot in use is not given out");
                        handles.push(handle);
                    }
                    (2, Some(handle)) => prop_assert_eq!(pool.remove(handle), model.remove(&handle)),
                    (3, _) => pool.reserve(at),
                    _ => {}
                }
                prop_assert_eq!(pool.len(), model.len());
                for (handle, value) in &model {
                    prop_assert_eq!(pool.get(*handle), Some(value));
                }
            }
        }
    }
}
