//! Turns captures and message files into books, records, text and statistics.
//!
//! [`input`] merges the packets and messages of files by time. [`replay`] runs them through [`tapeworks_feed::Feed`],
//! [`tapeworks_market::BookStage`] and [`tapeworks_market::NbboStage`], the stages of a live plant, and writes the results to files
//! and a summary. [`analyser`] reads the same files by protocol alone: [`dump`] prints each message, [`stats`] counts by channel,
//! [`study`] shows how long a queue would have been; [`sessions`] names the protocols that inputs can be read as. [`generate`] writes
//! files of simulated sessions.

mod ahead;
pub mod analyser;
pub mod bars;
pub mod compare;
pub mod dump;
mod encoders;
pub mod fix;
pub mod generate;
mod hours;
pub mod input;
pub mod paint;
pub mod replay;
pub mod sessions;
pub mod stats;
pub mod study;
pub mod subjects;
pub mod timer;

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
