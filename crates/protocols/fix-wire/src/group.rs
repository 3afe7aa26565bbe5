//! Repeating groups: entries after the field that counts them.
//!
//! The groups of a message that has been read are valid: each entry starts with the group's first field, and their number matches
//! the count. Iterating over the entries parses them again.

use core::fmt;

use super::cursor::{Cursor, GroupSpan, ReadError};
use super::value::LastTimestamp;

/// An entry of a group, implemented by `fix!`.
#[doc(hidden)]
pub trait Entry<'a>: Sized {
    /// Reads the entry at the cursor. Returns the cursor after it.
    ///
    /// # Errors
    /// The entry does not exist, or a field breaks a rule.
    fn read_at(
        at: Cursor<'a>,
        last: &mut LastTimestamp,
        count_tag: u32,
    ) -> Result<(Self, Cursor<'a>), ReadError>;
}

/// Reads the group whose count is the current field. Returns the cursor after the last entry. Nothing is reserved based on the
/// count, because each entry must actually be present.
#[doc(hidden)]
#[inline(never)]
pub fn read_group<'a, T: Entry<'a>>(
    at: Cursor<'a>,
    last: &mut LastTimestamp,
    tag_bytes: u32,
    count_tag: u32,
) -> Result<(Cursor<'a>, GroupSpan), ReadError> {
    let (count, end) = at.count(tag_bytes)?;
    let first = at.behind(end);
    let mut behind = first;
    for _ in 0..count {
        behind = T::read_at(behind, last, count_tag)?.1;
    }
    Ok((behind, behind.group_from(&first, count)))
}

/// The entries of a group, in order.
#[derive(Clone, Copy)]
pub struct Entries<'a, T> {
    at: Cursor<'a>,
    left: u32,
    entry: core::marker::PhantomData<T>,
}

impl<'a, T: Entry<'a>> Entries<'a, T> {
    /// Creates an iterator over the entries of a group of `message`.
    #[doc(hidden)]
    #[must_use]
    pub fn new(span: GroupSpan, message: &'a [u8]) -> Self {
        let (at, left) = span.entries(message);
        Self { at, left, entry: core::marker::PhantomData }
    }
}

impl<'a, T: Entry<'a>> Iterator for Entries<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        // The entries were validated when the message was read.
        let (entry, behind) = T::read_at(self.at, &mut LastTimestamp::default(), 0).ok()?;
        self.at = behind;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left as usize))
    }
}

impl<'a, T: Entry<'a> + fmt::Debug + Copy> fmt::Debug for Entries<'a, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(*self).finish()
    }
}
