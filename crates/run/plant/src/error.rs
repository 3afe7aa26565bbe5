//! Why a plant does not start, or why it ends.

use std::net::SocketAddr;
use std::path::PathBuf;

use tapeworks_journal::JournalError;
use tapeworks_ring::cpu;

use crate::pair::{BeginAgain, PairError};
use tapeworks_market::Shard;

/// Why a plant does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PlantError {
    /// A line cannot be opened.
    #[error("venue '{venue}': cannot listen to {address}: {source}")]
    Listen {
        /// The venue.
        venue: String,
        /// The line.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The frames of an interface cannot be received.
    #[error(transparent)]
    Interface {
        /// Why.
        source: tapeworks_nic::InterfaceError,
    },
    /// The system cannot wait for sockets.
    #[error("cannot wait for the lines: {source}")]
    Wait {
        /// The system's error.
        source: std::io::Error,
    },
    /// A thread cannot be pinned to its core.
    #[error("cannot pin the thread '{thread}': {source}")]
    Pin {
        /// The thread.
        thread: &'static str,
        /// Why.
        source: cpu::CpuError,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal holds another shard than the configuration asks for.
    #[error(
        "the journal has {journal}, and the configuration wants {wanted}: move the journal away, or set the shard back"
    )]
    OtherShard {
        /// The journal's shard.
        journal: Shard,
        /// The configured shard.
        wanted: Shard,
    },
    /// The plant cannot run as one of a pair.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The shared memory cannot be created.
    #[error("shared memory {}: {source}", path.display())]
    SharedMemory {
        /// The file.
        path: PathBuf,
        /// Why.
        source: tapeworks_ring::broadcast::CreateError,
    },
    /// A thread cannot be started.
    #[error("no thread for '{thread}': {source}")]
    Thread {
        /// The thread.
        thread: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl PlantError {
    /// Returns whether the disk is full: a later attempt may find room.
    pub fn is_full_disk(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_full_disk(),
            Self::Pair(error) => error.is_full_disk(),
            _ => false,
        }
    }
}

/// Why a plant's thread ended before it was stopped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PlantFailure {
    /// Receiving from a line failed.
    #[error("venue '{venue}', {address}: receiving failed: {source}")]
    Receive {
        /// The venue.
        venue: String,
        /// The line.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The frames of the interface can no longer be received.
    #[error(transparent)]
    Interface {
        /// Why.
        source: tapeworks_nic::InterfaceError,
    },
    /// A consumer of the ring has failed or closed.
    #[error("the ring stands still: {0}")]
    Ring(tapeworks_ring::disruptor::PublishError),
    /// The journal failed, and the plant is configured to stop in that case.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A plant of a pair must restart: see [`PlantOptions::agree`](crate::PlantOptions::agree).
    #[error("{0}")]
    Pair(BeginAgain),
    /// A thread panicked.
    #[error("the thread '{0}' panicked")]
    Panicked(&'static str),
}
