//! Books and NBBO as plain values, so that they can be written down and made again exactly as they were.
//!
//! Books that are made again take every later event as those would that the image was taken of: orders keep their places in the
//! queues, levels their shares, instruments their states, and a stale book stays stale. With the feature `serde` an image
//! can be encoded; an image that contradicts itself is refused.
//!
//! Cost: the order table is read once, some 30 ns an order in new memory, which [`Books::image_into`](crate::Books::image_into) does
//! not take where there is enough of it already; sorting can be left to another thread. Making books again inserts each order and
//! level once.

use std::fmt;

/// An image contradicts itself, so nothing can be made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsoundImage {
    pub(crate) what: &'static str,
}

impl fmt::Display for UnsoundImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the image contradicts itself: {}", self.what)
    }
}

impl std::error::Error for UnsoundImage {}

/// Refuses what contradicts itself.
pub(crate) const fn ensure(is_so: bool, what: &'static str) -> Result<(), UnsoundImage> {
    if is_so { Ok(()) } else { Err(UnsoundImage { what }) }
}
