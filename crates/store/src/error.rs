//! Why a file could not be written.

use std::io;
use std::path::PathBuf;

use crate::format::Format;
use crate::schema::Schema;

/// Why a file could not be written. Whatever it is, what was written so far is removed when the writer is dropped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// No schema has this name.
    #[error("unknown schema '{name}': expected one of {}", list(Schema::ALL.iter().map(|schema| schema.as_str())))]
    UnknownSchema {
        /// The name given.
        name: String,
    },
    /// The ending of the file's name tells no format.
    #[error(
        "{}: cannot tell the format from the file's name: expected one ending in {}",
        path.display(),
        list(Format::ENDINGS.iter().map(|(ending, _)| *ending))
    )]
    UnknownEnding {
        /// The file.
        path: PathBuf,
    },
    /// The file exists, and [`Options::overwrite`](crate::Options::overwrite) is not set.
    #[error("{}: the file exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("{}: is a directory", path.display())]
    IsDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The file could not be created.
    #[error("{}: cannot be created: {source}", path.display())]
    Create {
        /// The file that was to be created: the one named, or a part of it beside it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Writing failed: the disk is full, or was taken away.
    #[error("{}: writing failed after {records} records: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Records written before the batch that failed.
        records: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A record cannot be told in this format.
    #[error("{}: cannot encode what follows {records} records: {reason}", path.display())]
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

fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// What an encoder says; the writer adds file and record.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    Encode(String),
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
