//! Low-latency techniques, each explained and measured.
//!
//! A [technique](technique::Technique) has a baseline and variants that give equal results, and experiments that compare them on the machine at hand.
//! The crate's story is the [measuring](measure): variants in one process that take turns, ratios with confidence intervals, and verdicts
//! that are computed from the intervals. Where the product has a part, the catalogue measures the product's.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`technique`] | what a technique says of itself |
//! | [`catalogue`] | the techniques |
//! | [`measure`] | the harness |
//! | [`statistics`] | medians, intervals, verdicts |
//! | [`counters`] | events of the processor |
//! | [`run`] | runs techniques and collects what they find |
//! | [`results`] | what was found, as JSON |
//! | [`machine`] | the machine of the figures |
//! | [`plot`] | results as SVG |
//! | [`report`] | results as one page of HTML |
//! | [`text`] | results for a terminal |
//! | [`compare`] | two runs beside each other |
//! | [`book`] | results for a page of the book |
//! | [`callgrind`] | instructions where the processor counts none |
//! | [`assembly`] | the code that the compiler made |
//! | [`random`] | the same random inputs everywhere |
//! | [`threads`] | two threads on two cores |

pub mod assembly;
pub mod book;
pub mod callgrind;
pub mod catalogue;
pub mod compare;
pub mod counters;
pub mod machine;
pub mod measure;
pub mod plot;
pub mod random;
pub mod report;
pub mod results;
pub mod run;
pub mod statistics;
pub mod technique;
pub mod text;
pub mod threads;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
