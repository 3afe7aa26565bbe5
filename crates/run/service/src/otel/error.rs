//! Errors of the export of traces.

use std::io;

use tapeworks_outputs::https::NoAuthorities;

/// Why the export cannot start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The collector's certificate authorities are unusable.
    #[error("'authorities' of [otel]: {0}")]
    Authorities(NoAuthorities),
    /// The thread could not be started.
    #[error("no thread for the export of traces: {0}")]
    Thread(io::Error),
    /// The system has no random bytes for the ids.
    #[error("no random bytes for the ids of traces: {0}")]
    Random(getrandom::Error),
}
