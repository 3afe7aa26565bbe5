//! Repeating groups: contiguous entries of fixed size, read in place from the receive buffer.

use core::fmt;
use core::marker::PhantomData;

/// One entry of a repeating group: a view of a fixed number of bytes. `protocol!` implements it.
pub trait GroupEntry<'a>: Sized {
    /// Bytes per entry.
    const LENGTH: usize;
    /// Returns the entry at the start of `bytes`; `None` if there are too few bytes.
    fn view(bytes: &'a [u8]) -> Option<Self>;
}

/// The entries of a repeating group. It is two words; iterating touches only the entries.
pub struct Group<'a, Entry> {
    bytes: &'a [u8],
    entry: PhantomData<Entry>,
}

impl<'a, Entry: GroupEntry<'a>> Group<'a, Entry> {
    /// Creates a group of the entries in `bytes`; `None` if the last one is truncated.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes.len().is_multiple_of(Entry::LENGTH.max(1)).then_some(Self { bytes, entry: PhantomData })
    }

    /// Creates a group of entries that a decoder has already checked.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn of_decoded(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len().is_multiple_of(Entry::LENGTH.max(1)));
        Self { bytes, entry: PhantomData }
    }

    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / Entry::LENGTH.max(1)
    }

    /// Returns whether there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the entry at `index`, from 0.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Entry> {
        Entry::view(self.bytes.get(index.checked_mul(Entry::LENGTH)?..)?)
    }

    /// Iterates over the entries in order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> GroupEntries<'a, Entry> {
        GroupEntries { rest: self.bytes, entry: PhantomData }
    }

    /// Returns the entries' bytes.
    #[inline]
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<Entry> Clone for Group<'_, Entry> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Entry> Copy for Group<'_, Entry> {}

/// No entries.
impl<Entry> Default for Group<'_, Entry> {
    fn default() -> Self {
        Self { bytes: &[], entry: PhantomData }
    }
}

impl<Entry> PartialEq for Group<'_, Entry> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<Entry> Eq for Group<'_, Entry> {}

impl<'a, Entry: GroupEntry<'a> + fmt::Debug> fmt::Debug for Group<'a, Entry> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, Entry: GroupEntry<'a>> IntoIterator for Group<'a, Entry> {
    type Item = Entry;
    type IntoIter = GroupEntries<'a, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterates over the entries of a [`Group`].
#[derive(Clone, Debug)]
pub struct GroupEntries<'a, Entry> {
    rest: &'a [u8],
    entry: PhantomData<Entry>,
}

impl<'a, Entry: GroupEntry<'a>> Iterator for GroupEntries<'a, Entry> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        let (entry, rest) = self.rest.split_at_checked(Entry::LENGTH)?;
        self.rest = rest;
        Entry::view(entry)
    }
}
