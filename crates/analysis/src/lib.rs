//! Files in, answers out: captures and message files become books, records, text and figures.
//!
//! [`input`] merges the packets and messages of files by time. [`replay`] gives them to [`tapeworks_feed::Feed`],
//! [`tapeworks_market::BookStage`] and [`tapeworks_market::NbboStage`], the stages of a live plant, and what comes out to files and a
//! summary. [`analyser`] reads the same files by protocol alone: [`dump`] prints each message, [`stats`] counts by channel, [`study`]
//! draws how long a queue would have been; [`sessions`] names the protocols it found. [`generate`] writes the files of simulated
//! sessions.

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

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
