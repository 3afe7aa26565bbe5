//! Peers of the lab's techniques of queues and memory: crates of the registry, and programs in other languages.
//!
//! What we have ourselves is measured by the catalogue; here is only what the product must not depend on.

mod disruptor;
mod memory;
mod spsc;

use tapeworks_lab::measure::Peers;

/// The techniques of `bench ring`.
pub const TECHNIQUES: [&str; 4] = ["spsc-queue", "disruptor", "allocators", "waiting"];

/// All peers.
pub const PEERS: &[Peers] = &[
    spsc::THROUGHPUT_PEERS,
    spsc::ROUND_TRIP_PEERS,
    spsc::ROUND_TRIP_PEERS_TOGETHER,
    disruptor::ONE_TO_ONE_PEERS,
    disruptor::PIPELINE_PEERS,
    disruptor::ONE_TO_MANY_PEERS,
    disruptor::DIAMOND_PEERS,
    disruptor::MANY_TO_ONE_PEERS,
    memory::LIST_PEERS,
];
