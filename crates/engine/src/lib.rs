#![doc = include_str!("../README.md")]

mod books;
pub mod checkpoint;
mod contradicted;
pub mod days;
mod engine;
pub mod export;
pub mod history;
mod journal_history;
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
pub use replay::{JournalReplayed, replay};
pub use state::{MarketImage, Start};

// The tests of the crates above use it by this name too.
#[cfg(test)]
extern crate self as tapeworks_engine;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod tests;
