//! Why a plant does not start, or ends.

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
    /// A line cannot be listened to.
    #[error("venue '{venue}': cannot listen to {address}: {source}")]
    Listen {
        /// The venue.
        venue: String,
        /// The line.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The frames of an interface cannot be had.
    #[error(transparent)]
    Interface {
        /// Why.
        source: tapeworks_packet::live::InterfaceError,
    },
    /// The system cannot wait for sockets.
    #[error("cannot wait for the lines: {source}")]
    Wait {
        /// What the system said.
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
    /// The journal has other symbols than the configuration wants.
    #[error(
        "the journal has {journal}, and the configuration wants {wanted}: move the journal away, or set the shard back"
    )]
    OtherShard {
        /// What the journal has.
        journal: Shard,
        /// What is wanted.
        wanted: Shard,
    },
    /// The plant cannot be one of a pair.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The shared memory cannot be made.
    #[error("shared memory {}: {source}", path.display())]
    SharedMemory {
        /// The file.
        path: PathBuf,
        /// Why.
        source: tapeworks_ring::broadcast::CreateError,
    },
    /// There is no thread.
    #[error("no thread for '{thread}': {source}")]
    Thread {
        /// What for.
        thread: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl PlantError {
    /// Whether the disk is full: there may be room later.
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
    /// A line cannot be received from.
    #[error("venue '{venue}', {address}: receiving failed: {source}")]
    Receive {
        /// The venue.
        venue: String,
        /// The line.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The frames of the interface cannot be received any more.
    #[error(transparent)]
    Interface {
        /// Why.
        source: tapeworks_packet::live::InterfaceError,
    },
    /// A consumer of the ring is gone.
    #[error("the ring stands still: {0}")]
    Ring(tapeworks_ring::disruptor::PublishError),
    /// The journal failed, and the plant is set to stop then.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A plant of a pair begins again: see [`PlantOptions::agree`](crate::PlantOptions::agree).
    #[error("{0}")]
    Pair(BeginAgain),
    /// A thread panicked.
    #[error("the thread '{0}' panicked")]
    Panicked(&'static str),
}
