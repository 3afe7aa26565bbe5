//! Low-latency techniques, each explained and measured.
//!
//! A [technique](technique::Technique) has a baseline, variants with equal results, and experiments that compare them on the machine at hand.
//! The core is the [measuring](measure): variants in one process that take turns, ratios with confidence intervals, and verdicts computed
//! from the intervals. If the product implements a technique, the catalogue measures the product's implementation.
//!
//! | module | contents |
//! | --- | --- |
//! | [`technique`] | the description of a technique |
//! | [`catalogue`] | the techniques |
//! | [`measure`] | the harness |
//! | [`statistics`] | medians, intervals, verdicts |
//! | [`counters`] | events of the processor |
//! | [`run`] | runs techniques and collects their results |
//! | [`results`] | results, as JSON |
//! | [`machine`] | the machine that produced the figures |
//! | [`plot`] | results as SVG |
//! | [`report`] | results as one page of HTML |
//! | [`text`] | results for a terminal |
//! | [`compare`] | two runs side by side |
//! | [`book`] | results for a page of the book |
//! | [`callgrind`] | instruction counts without processor counters |
//! | [`assembly`] | the machine code of variants |
//! | [`random`] | reproducible random inputs |
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
