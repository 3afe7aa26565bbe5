//! The errors of starting and ending venues.

use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use tapeworks_capture::new_file::NewFileError;
use tapeworks_generator::ScenarioError;
use tapeworks_journal::JournalError;
use tapeworks_matching::orders::OrderOptionsError;

/// Why venues cannot be started or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VenuesError {
    /// The market cannot be generated.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The socket of a line cannot be opened.
    #[error("venue '{venue}': cannot send to {address}: {cause}")]
    Line {
        /// The venue's name.
        venue: String,
        /// The address of the line.
        address: SocketAddrV4,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// A server cannot listen.
    #[error("venue '{venue}': cannot listen at {address} for {what}: {cause}")]
    Listen {
        /// The venue's name.
        venue: String,
        /// The purpose of the server.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The clock is before 1970 or beyond the protocols' times.
    #[error("the clock's time is outside the range of the protocols")]
    Clock,
    /// The operating system cannot start a thread or wait for sockets.
    #[error("cannot start the venues: {0}")]
    Thread(std::io::Error),
    /// The servers failed.
    #[error("the servers of the venues failed: {0}")]
    Servers(std::io::Error),
    /// A thread panicked, which is a defect.
    #[error("a thread of the venues panicked")]
    Panicked,
    /// The options of an exchange contradict each other.
    #[error("exchange '{exchange}': {cause}")]
    Options {
        /// The exchange's name.
        exchange: String,
        /// The contradiction.
        cause: OrderOptionsError,
    },
    /// The store of an exchange cannot be used.
    #[error("exchange '{exchange}': {cause}")]
    Store {
        /// The exchange's name.
        exchange: String,
        /// The reason.
        cause: StoreError,
    },
    /// The sockets of an exchange failed.
    #[error("exchange '{exchange}': its sockets failed: {cause}")]
    Sockets {
        /// The exchange's name.
        exchange: String,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The report cannot be created, or cannot be given its name.
    #[error(transparent)]
    File(#[from] NewFileError),
    /// The report cannot be written.
    #[error("{}: cannot write: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: std::io::Error,
    },
}

/// Why the store of an exchange cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Records are missing or damaged, so the state of the day cannot be restored.
    #[error("{}: record {record} of the day is damaged or missing; give another folder to begin without it", folder.display())]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// The first such record.
        record: u64,
    },
    /// The day began with another configuration.
    #[error(
        "{}: the day began with another configuration of the exchange; use that one, or give another folder",
        folder.display()
    )]
    OtherConfiguration {
        /// The folder.
        folder: PathBuf,
    },
    /// The inputs of the day have reached the size limit.
    #[error("{}: the inputs of the day need more than the {limit} bytes of 'store_mb'", folder.display())]
    Full {
        /// The folder.
        folder: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The options of the exchange contradict each other.
    #[error(transparent)]
    Options(#[from] OrderOptionsError),
}
