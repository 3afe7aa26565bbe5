#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod books;
pub mod checkpoint;
mod contradicted;
pub mod days;
mod engine;
pub mod export;
pub mod history;
mod journal_history;
mod loss;
mod options;
pub mod records;
mod replay;
pub mod replica;
mod state;

pub use books::{MarketStage, Publish};
pub use contradicted::Contradicted;
pub use engine::{Engine, EngineCounters};
pub use journal_history::JournalHistory;
pub use options::EngineOptions;
pub use replay::{JournalReplayed, replay, replay_in};
pub use state::{MarketImage, Start};

// The tests of dependent crates use it by this name too.
#[cfg(test)]
extern crate self as tapeworks_engine;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod tests;
