//! Graphs of packet stages.
//!
//! A [`graph::Graph`] has nodes (readers, filters, rewriters, writers: [`packets`]) and edges between them: inline, a ring, a Disruptor or a
//! [`queue`] with a lock. A [`builder`] makes one of the built-in [`stages`]. [`runner`] turns a graph into parts that run on a thread each. A stage is a
//! [`tapeworks_stage::Stage`]; the same stage runs on every kind of edge.

#[cfg(target_os = "linux")]
pub mod builder;
mod edge;
pub mod graph;
pub mod packets;
pub mod queue;
pub mod runner;
#[cfg(target_os = "linux")]
pub mod stages;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
