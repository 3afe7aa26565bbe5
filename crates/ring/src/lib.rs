//! Memory for low-latency pipelines: huge pages and prefetching, behind safe functions.
//!
//! [`memory::HugeVec`] is a fixed-capacity vector whose memory is zeroed, prefaulted on request and advised to lie in
//! huge pages; [`prefetch`] asks for a cache line before it is needed.

pub mod memory;
pub mod prefetch;
