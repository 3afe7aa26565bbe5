//! What can go wrong with a query.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use tapeworks_capture::new_file::NewFileError;

/// Why a query has no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The place of the files is not one that can be read.
    #[error("{place}: {}", joined(why))]
    Place {
        /// As it was given.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// No folder `schema=...` with Parquet files is there.
    #[error(
        "{place}: no Parquet files of `tapeworks batch` are there (schema=NAME/date=DATE/bucket=NUMBER/*.parquet)"
    )]
    NoTables {
        /// As it was given.
        place: String,
    },
    /// The engine refuses the statement, or cannot read what it needs.
    #[error("{}", one_line(.0))]
    Engine(#[from] DataFusionError),
    /// The file of a result cannot be made.
    #[error(transparent)]
    NewFile(#[from] NewFileError),
    /// A result cannot be written.
    #[error("{}: {why}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Stdout(std::io::Error),
    /// The result has a type that the format has no form for.
    #[error("{format}: {why}")]
    Format {
        /// The format's name.
        format: &'static str,
        /// What its writer says.
        why: String,
    },
}

/// The engine's message without its history of calls.
fn one_line(error: &DataFusionError) -> String {
    joined(&error.strip_backtrace())
}

/// A text of several lines as one.
fn joined(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}
