//! Values that start on their own cache line.
//!
//! When two cores write different values in one cache line, each write takes the line from the other core, at 50 ns or more.
//! [`CacheAligned`] gives a value its own line. Lines are 64 bytes, but the alignment is 128 because some processors fetch and
//! share lines in pairs.
//!
//! Cost: up to 127 bytes of padding per value, nothing at run time.

use std::ops::{Deref, DerefMut};

/// A value with its own cache lines.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[repr(align(128))]
pub struct CacheAligned<T>(
    /// The value.
    pub T,
);

impl<T> CacheAligned<T> {
    /// Aligns `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value without its padding.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CacheAligned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CacheAligned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<T> for CacheAligned<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_no_line() {
        let array = [CacheAligned::new(1u8), CacheAligned::new(2)];
        let places = array.each_ref().map(|value| std::ptr::from_ref(&value.0) as usize);
        assert_eq!(places[0] % 128, 0);
        assert_eq!(places[1] - places[0], 128);
        assert_eq!(size_of::<CacheAligned<[u8; 129]>>(), 256);
        assert_eq!(*array[1] + array[0].into_inner(), 3);
    }
}
