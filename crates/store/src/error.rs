//! Why a file could not be written.

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_capture::new_file::NewFileError;

/// Why a file could not be written. What was written so far is removed when the writer is dropped, unless it is a whole
/// file that cannot have its name ([`NewFileError::Name`]).
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// No schema has this name.
    #[error("unknown schema '{name}': expected one of {expected}")]
    UnknownSchema {
        /// The name given.
        name: String,
        /// The names that there are.
        expected: String,
    },
    /// The ending of the file's name stands for no format.
    #[error(
        "{}: cannot choose the format by the file's name: expected one ending in {expected}",
        path.display()
    )]
    UnknownEnding {
        /// The file.
        path: PathBuf,
        /// The endings that there are.
        expected: String,
    },
    /// The file cannot be begun, or cannot have its name.
    #[error(transparent)]
    File(#[from] NewFileError),
    /// Standard output is a terminal, and the format is not text.
    #[error("{format} is not text: standard output is a terminal, so redirect it or name a file")]
    Terminal {
        /// The format.
        format: &'static str,
    },
    /// Standard output has no ending to choose the format by.
    #[error("standard output has no ending to choose the format by: name it, one of {expected}")]
    NoFormat {
        /// The formats that there are.
        expected: String,
    },
    /// The format holds records of one schema, and none is named.
    #[error("{}: {format} holds records of one schema: name one, or put {{schema}} into the name", path.display())]
    NeedsSchema {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
    },
    /// No format has this name.
    #[error("unknown format '{name}': expected one of {expected}")]
    UnknownFormat {
        /// The name given.
        name: String,
        /// The names that there are.
        expected: String,
    },
    /// Writing failed, as when the disk is full or gone.
    #[error("{}: writing failed after {records} records: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Records written before the batch that failed.
        records: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A record cannot be written in this format.
    #[error("{}: cannot encode the records after the first {records}: {reason}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Records written before the batch that failed.
        records: u64,
        /// What the encoder said.
        reason: String,
    },
    /// An earlier write failed; the file cannot be completed.
    #[error("{}: not completed, as an earlier write failed", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
    },
}

/// The names of what there is, for an error.
pub(crate) fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// What an encoder says; the writer adds file and record.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    Encode(String),
}

impl Failure {
    /// The error of a file that has so many records.
    pub(crate) fn at(self, path: &Path, records: u64) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Io(source) => StoreError::Write { path, records, source },
            Self::Encode(reason) => StoreError::Encode { path, records, reason },
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<dbn::Error> for Failure {
    fn from(error: dbn::Error) -> Self {
        match error {
            dbn::Error::Io { source, .. } => Self::Io(source),
            other => Self::Encode(other.to_string()),
        }
    }
}

impl From<parquet::errors::ParquetError> for Failure {
    fn from(error: parquet::errors::ParquetError) -> Self {
        match error {
            parquet::errors::ParquetError::External(source) => match source.downcast::<io::Error>() {
                Ok(source) => Self::Io(*source),
                Err(source) => Self::Encode(source.to_string()),
            },
            other => Self::Encode(other.to_string()),
        }
    }
}
