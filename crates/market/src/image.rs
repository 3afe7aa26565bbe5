//! Books and NBBO as plain values, for checkpoints.
//!
//! Restored books handle every later event like the original ones: orders keep their places in the queues, levels their shares,
//! instruments their states, and a stale book stays stale. The feature `serde` encodes images. An inconsistent image is
//! refused.
//!
//! Cost: the order table is read once, some 30 ns an order in new memory; [`Books::image_into`](crate::Books::image_into) reuses
//! memory. Another thread can sort. Restoring inserts each order and level once.

use std::fmt;

/// An image is inconsistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsoundImage {
    pub(crate) what: &'static str,
}

impl fmt::Display for UnsoundImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the image is inconsistent: {}", self.what)
    }
}

impl std::error::Error for UnsoundImage {}

/// Refuses an inconsistent image.
pub(crate) const fn ensure(is_so: bool, what: &'static str) -> Result<(), UnsoundImage> {
    if is_so { Ok(()) } else { Err(UnsoundImage { what }) }
}
