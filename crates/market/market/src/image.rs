//! Books and NBBO as plain values, for checkpoints.
//!
//! Restored books process every later event like the original ones: orders keep their queue positions, levels their
//! sizes, instruments their states, and a stale book stays stale. The feature `serde` encodes images. An inconsistent
//! image is rejected.
//!
//! Cost: one read of the order table, some 30 ns per order in new memory;
//! [`Books::image_into`](crate::Books::image_into) reuses memory. Sorting can run on another thread. Restoring inserts
//! each order and each level once.

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

/// Rejects an image for which `is_so` is false.
pub(crate) const fn ensure(is_so: bool, what: &'static str) -> Result<(), UnsoundImage> {
    if is_so { Ok(()) } else { Err(UnsoundImage { what }) }
}
