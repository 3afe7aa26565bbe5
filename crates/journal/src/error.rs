//! Why a journal cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a journal cannot be used.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// A file of the journal was removed or replaced while its writer has it.
    #[error("{} was removed or replaced: new records are lost when the writer ends", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process writes to it.
    #[error("{}: another process writes this journal", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// A payload that is too long.
    #[error("a payload of {bytes} bytes is longer than {limit}")]
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The most bytes.
        limit: usize,
    },
    /// The last number is taken, as by a file that is none of the journal's.
    #[error("{}: no number is left for another record: its last segment has a number in its name that no journal comes to", folder.display())]
    NoNumber {
        /// The journal.
        folder: PathBuf,
    },
    /// A journal is not cut where it has a record, nor before its last segment.
    #[error("{}: is not cut before record {number}: that is not damaged, or not of the last segment", folder.display())]
    NoHole {
        /// The journal.
        folder: PathBuf,
        /// The record.
        number: u64,
    },
    /// The caller stopped a long task.
    #[error("stopped")]
    Stopped,
}

impl JournalError {
    /// Whether the disk is full.
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
