//! Graphs of packet stages.
//!
//! A [`graph::Graph`] has nodes (readers, filters, rewriters, writers: [`packets`]) and edges between them: inline, a ring, a
//! Disruptor or a locking [`queue`]. A [`builder`] creates one from the built-in [`stages`]. [`runner`] turns a graph into
//! workers, one per thread. A stage is a [`tapeworks_stage::Stage`], and the same stage runs on every kind of edge.

#[cfg(target_os = "linux")]
pub mod builder;
mod edge;
pub mod graph;
pub mod packets;
pub mod queue;
pub mod runner;
#[cfg(target_os = "linux")]
pub mod stages;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
