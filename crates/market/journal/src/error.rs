//! Why a journal cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a journal cannot be used.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// A file of the journal was removed or replaced while its writer had it open.
    #[error("{} was removed or replaced: new records are lost when the writer ends", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// An I/O error.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process is writing the journal.
    #[error("{}: another process writes this journal", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// The payload is too long.
    #[error("a payload of {bytes} bytes is longer than {limit}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The highest record number is taken, for example by a file that does not belong to the journal.
    #[error("{}: no number is left for another record: its last segment has a number in its name that no journal comes to", folder.display())]
    NoNumber {
        /// The journal.
        folder: PathBuf,
    },
    /// A journal is cut only at a damaged or missing record of its last segment.
    #[error("{}: is not cut before record {number}: that is not damaged, or not of the last segment", folder.display())]
    NoHole {
        /// The journal.
        folder: PathBuf,
        /// The record number.
        number: u64,
    },
    /// The caller stopped a long task.
    #[error("stopped")]
    Stopped,
}

impl JournalError {
    /// Returns whether the disk is full.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}

pub(crate) fn failed<'p>(
    path: &'p Path,
    what: &'static str,
) -> impl FnOnce(io::Error) -> JournalError + use<'p> {
    move |source| JournalError::Io { path: path.to_owned(), what, source }
}
