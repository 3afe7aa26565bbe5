//! Why traces are not exported.

use std::io;

use tapeworks_outputs::https::NoAuthorities;

/// Why nothing is exported.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The authorities of the collector cannot be used.
    #[error("'authorities' of [otel]: {0}")]
    Authorities(NoAuthorities),
    /// There is no thread.
    #[error("no thread for the export of traces: {0}")]
    Thread(io::Error),
    /// The system has no random bytes for ids.
    #[error("no random bytes for the ids of traces: {0}")]
    Random(getrandom::Error),
}
