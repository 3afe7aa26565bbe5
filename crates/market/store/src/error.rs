//! The errors of writing files.

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_capture::new_file::NewFileError;

/// Why a file could not be written. Dropping the writer removes the partial file, unless the file is complete and only its
/// final name failed ([`NewFileError::Name`]).
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// No schema has this name.
    #[error("unknown schema '{name}': expected one of {expected}")]
    UnknownSchema {
        /// The name given.
        name: String,
        /// The known names.
        expected: String,
    },
    /// The extension of the file name does not match any format.
    #[error(
        "{}: cannot choose the format by the file's name: expected one ending in {expected}",
        path.display()
    )]
    UnknownEnding {
        /// The file.
        path: PathBuf,
        /// The known extensions.
        expected: String,
    },
    /// The file cannot be created, or cannot get its final name.
    #[error(transparent)]
    File(#[from] NewFileError),
    /// Standard output is a terminal, and the format is not text.
    #[error("{format} is not text: standard output is a terminal, so redirect it or name a file")]
    Terminal {
        /// The format.
        format: &'static str,
    },
    /// Standard output has no extension to choose a format by.
    #[error("standard output has no ending to choose the format by: name it, one of {expected}")]
    NoFormat {
        /// The known formats.
        expected: String,
    },
    /// The format holds records of one schema, and none was named.
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
        /// The known names.
        expected: String,
    },
    /// Writing failed, for example because the disk is full or was removed.
    #[error("{}: writing failed after {records} records: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Records written before the batch that failed.
        records: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A record cannot be written in this format.
    #[error("{}: cannot encode the records after the first {records}: {reason}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Records written before the batch that failed.
        records: u64,
        /// The encoder's error.
        reason: String,
    },
    /// An earlier write failed; the file cannot be completed.
    #[error("{}: not completed, as an earlier write failed", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
    },
}

/// Joins names for an error message.
pub(crate) fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// An encoder's error; the writer adds the file and the record count.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    Encode(String),
}

impl Failure {
    /// Adds the file and its number of written records.
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
