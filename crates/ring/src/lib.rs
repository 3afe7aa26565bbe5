//! Memory for low-latency pipelines: huge pages and prefetching, behind safe functions.
//!
//! [`memory::HugeVec`] is a fixed-capacity vector of zeroed memory that is advised to lie in huge pages and
//! touched at start-up; [`prefetch`] asks for a cache line before it is needed.

pub mod memory;
pub mod prefetch;
