//! Memory for low-latency pipelines: huge pages and prefetching, behind safe functions.
//!
//! [`memory::HugeVec`] is a fixed-capacity vector of zeroed memory that is advised to lie in huge pages and
//! touched at start-up; [`prefetch`] asks for a cache line before it is needed; [`counting`] proves in a test that a
//! path allocates nothing.

pub mod counting;
pub mod memory;
pub mod prefetch;
