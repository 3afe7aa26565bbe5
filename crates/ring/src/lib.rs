//! Queues, waiting and memory for low-latency pipelines.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`spsc`] | a wait-free bounded queue from one thread to one other |
//! | [`disruptor`] | a ring that several consumers read in place: multicast, pipelines, diamonds, one producer or many |
//! | [`wait`] | how to wait for another core: spin, yield, back off, park |
//! | [`align`] | cache lines of their own for values that two cores write |
//! | [`memory`] | large zeroed tables in huge pages |
//! | [`prefetch`] | asking for a cache line before it is needed |
//! | [`counting`] | an allocator that proves in a test that a path allocates nothing |

pub mod align;
pub mod counting;
pub mod disruptor;
pub mod memory;
pub mod prefetch;
pub mod spsc;
mod sync;
pub mod wait;
