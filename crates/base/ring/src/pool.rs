//! Slots of one size, taken and returned without the allocator.
//!
//! [`Pool`] stores values in adjacent slots; a [`Handle`] is a slot number. Structures made of handles (lists, trees, order
//! queues) are small, survive moving the pool, and keep their nodes close together. Values inserted in sequence into a fresh pool
//! are adjacent.
//!
//! The handle of a removed value refers to an empty slot or to the slot's next value. As with any index, the caller must know
//! whether its handle is still valid.
//!
//! Cost: insertion and removal touch the slot and the pool's own cache line, without locks or calls. [`Pool::with_capacity`]
//! touches every page up front, so that no page fault follows. Otherwise the pool grows by doubling, which moves all slots and is
//! counted in [`Pool::growths`].

/// The number of a slot in a [`Pool`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(u32);

impl Handle {
    /// Returns the slot's number, from 0.
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

/// The end of the free list.
const END: u32 = u32::MAX;

/// The most slots a pool can have.
pub const MAX_SLOTS: usize = END as usize;

/// The pool already has [`MAX_SLOTS`] values. Contains the rejected value.
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

/// Slots of one size, for use by one thread.
#[derive(Debug)]
pub struct Pool<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot.
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
    /// Creates a pool without slots, which grows on demand.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: END, length: 0, growths: 0 }
    }

    /// Creates a pool with `capacity` slots and touches their memory now.
    ///
    /// # Panics
    /// If `capacity` exceeds [`MAX_SLOTS`].
    pub fn with_capacity(capacity: usize) -> Self {
        let mut pool = Self::new();
        pool.reserve(capacity);
        pool
    }

    /// Makes room for `additional` more values and touches their memory now.
    ///
    /// # Panics
    /// If the total exceeds [`MAX_SLOTS`].
    pub fn reserve(&mut self, additional: usize) {
        let wanted = self.length.saturating_add(additional);
        assert!(wanted <= MAX_SLOTS, "{wanted} slots cannot be numbered");
        let old = self.slots.len();
        if wanted <= old {
            return;
        }
        self.slots.reserve_exact(wanted - old);
        // Link the new slots in order, so that successive insertions are adjacent. Slots that were already free follow them.
        let behind = self.free;
        self.slots.extend(
            (old..wanted).map(|at| Slot::Free(if at + 1 == wanted { behind } else { at as u32 + 1 })),
        );
        self.free = old as u32;
    }

    /// Stores a value in a free slot.
    ///
    /// # Errors
    /// Returns the value if the pool is full.
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

    /// Removes and returns a value, or `None` if its slot is empty.
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

    /// Returns the value of a handle.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        match self.slots.get(handle.index())? {
            Slot::Taken(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// Returns the value of a handle, mutably.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        match self.slots.get_mut(handle.index())? {
            Slot::Taken(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// Returns the number of values.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the pool has no values.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns how many values fit without growing.
    pub const fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns how often the pool grew during use. Each growth moved every slot: reserve more.
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
