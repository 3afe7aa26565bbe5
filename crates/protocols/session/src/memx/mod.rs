//! MEMX: MEMOIR UDP.

mod memoir;

pub use memoir::Memoir;
