//! Queues, waiting and memory for low-latency pipelines.
//!
//! | module | contents |
//! | --- | --- |
//! | [`spsc`] | a wait-free bounded queue from one thread to another |
//! | [`disruptor`] | a ring that several consumers read in place: multicast, pipelines, diamonds, one producer or many |
//! | [`broadcast`] | one writer and readers in other processes, over a file in shared memory |
//! | [`latest`] | the latest value of each key, for readers in other processes |
//! | [`wait`] | strategies for waiting on another core: spin, yield, back off, park |
//! | [`pool`] | slots of one size, addressed by number |
//! | [`cpu`] | pinning, real-time priority, locked memory |
//! | [`clock`] | the processor's time-stamp counter in nanoseconds |
//! | [`align`] | separate cache lines for values that two cores write |
//! | [`memory`] | large zeroed tables in huge pages |
//! | [`prefetch`] | loading a cache line before it is needed |
//! | [`counting`] | an allocator that lets a test prove that a path does not allocate |

pub mod align;
pub mod broadcast;
pub mod clock;
pub mod counting;
pub mod cpu;
pub mod disruptor;
pub mod hash;
pub mod latest;
pub mod memory;
pub mod pool;
pub mod prefetch;
#[cfg(not(loom))]
mod shared_file;
pub mod spsc;
mod sync;
pub mod wait;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
