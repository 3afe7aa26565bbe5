//! Why the output does not start, or why it ended.

use std::io;

use tapeworks_engine::history::HistoryError;
use tapeworks_ring::disruptor::Failed;

/// Why the output does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum QuestDbError {
    /// The client library rejects its options.
    #[error("cannot be a client of QuestDB: {reason}")]
    Client {
        /// Its error.
        reason: String,
    },
    /// A thread cannot be started.
    #[error("no thread for QuestDB: {0}")]
    Thread(io::Error),
}

/// Why the output ended before it was stopped. An unreachable server does not end it.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum QuestDbFailure {
    /// Another part of the ring has failed.
    #[error("QuestDB's reader gets no more events: {0}")]
    Ring(#[from] Failed),
    /// The events of the day so far cannot be read.
    #[error("QuestDB's reader cannot begin: {0}")]
    History(#[from] HistoryError),
    /// A thread panicked.
    #[error("a thread for QuestDB panicked")]
    Panicked,
}
