//! A pool of fixed capacity with handles. The handle of a removed entry finds nothing.
//!
//! Cost: one comparison per access. Nothing allocates after [`Pool::new`].

/// Identifies an entry of a pool: its place, and the generation of entries in that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) place: u32,
    generation: u32,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// A pool of entries of one type.
#[derive(Clone, Debug)]
pub(crate) struct Pool<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Pool<T> {
    /// Creates a pool for this many entries.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX - 1);
        Self {
            slots: (0..capacity).map(|_| Slot { generation: 0, entry: None }).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Returns how many more entries fit.
    pub(crate) const fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Inserts an entry. Returns `None` if the pool is full.
    #[inline]
    pub(crate) fn insert(&mut self, entry: T) -> Option<Handle> {
        let place = self.free.pop()?;
        let slot = self.slots.get_mut(place as usize)?;
        slot.entry = Some(entry);
        Some(Handle { place, generation: slot.generation })
    }

    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.place as usize)?;
        slot.entry.as_ref().filter(|_| slot.generation == handle.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.place as usize)?;
        slot.entry.as_mut().filter(|_| slot.generation == handle.generation)
    }

    /// Returns the entry at a place.
    #[inline]
    pub(crate) fn at(&self, place: u32) -> Option<&T> {
        self.slots.get(place as usize)?.entry.as_ref()
    }

    /// Returns the handle of the entry at a place.
    #[inline]
    pub(crate) fn handle(&self, place: u32) -> Option<Handle> {
        let slot = self.slots.get(place as usize)?;
        slot.entry.as_ref().map(|_| Handle { place, generation: slot.generation })
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.place as usize)?;
        if slot.generation != handle.generation {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(handle.place);
        Some(entry)
    }

    /// Iterates over the entries with their handles.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, place)| {
            Some((Handle { place, generation: slot.generation }, slot.entry.as_ref()?))
        })
    }

    /// Iterates over the entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_an_entry_that_is_gone_finds_nothing() {
        let mut pool = Pool::new(1);
        let first = pool.insert('a').unwrap();
        assert_eq!((pool.insert('b'), pool.free(), pool.len()), (None, 0, 1));
        assert_eq!((pool.handle(first.place), pool.at(first.place)), (Some(first), Some(&'a')));
        assert_eq!((pool.remove(first), pool.remove(first), pool.get(first)), (Some('a'), None, None));
        let second = pool.insert('c').unwrap();
        assert_eq!((second.place, pool.get(first), pool.get(second)), (first.place, None, Some(&'c')));
        *pool.get_mut(second).unwrap() = 'd';
        assert_eq!(pool.get_mut(first), None);
        assert_eq!(pool.iter().collect::<Vec<_>>(), [&'d']);
        assert_eq!(pool.handle(7), None);
    }
}
