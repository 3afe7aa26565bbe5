//! Converts captures of many days, venues and channels into one folder of partitioned files.
//!
//! [`plan`] reads the beginning of each file and groups files into [`Task`]s: one per date and channel, and one per date whose files
//! are merged for the NBBO. A task is plain data, and its result depends only on the task and its inputs, so [`perform`] can run it on
//! any host. [`run`] gives the tasks to an [`Executor`] and writes the manifest of the folder.
//!
//! ```text
//! DIR/schema=mbo/date=2025-11-14/bucket=03/nasdaq-0123456789ab.parquet     records of one task
//! DIR/schema=cmbp-1/date=2025-11-14/bucket=03/nbbo.parquet
//! DIR/manifest.json                                                       all results, written at the end of a run
//! DIR/.tasks/settings.json                                                the settings that the results were made with
//! DIR/.tasks/2025-11-14-nasdaq-0123456789ab.json                          a finished task: see `Record`
//! DIR/.tasks/….work/, DIR/.tasks/….publishing                             a task in progress: see `Folder`
//! ```
//!
//! With the feature `cloud`, inputs and results may live in an object store: a task downloads its inputs into a local folder and
//! uploads its files. The state of a run lives in the store too, so any host can continue it.
//!
//! A task writes into its own folder under `.tasks`, records what it is about to publish, moves its files into the partitions, and
//! then turns that record into the record of a finished task. A killed run therefore leaves whole tasks and recorded remains; the next
//! run removes the remains.
//!
//! Cost of a task: one thread replays its files, and each input and output is hashed with SHA-256.

mod folder;
mod hash;
#[cfg(feature = "cloud")]
mod lease;
mod manifest;
mod objects;
mod perform;
mod place;
mod plan;
mod run;
mod settings;
mod staging;
mod task;

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_market::Symbol;

pub use folder::{Access, Finished, Folder, TaskLock};
pub use manifest::{GapRecord, InputRecord, MANIFEST, OutputRecord, Record, SharedChannel};
pub use perform::{perform, perform_here};
pub use place::is_address;
pub use plan::{FailedInput, Plan, PlanOptions, plan};
pub use run::{Earlier, Elsewhere, Executor, Progress, Report, Step, Threads, run};
pub use settings::{MOST_BUCKETS, Settings};
pub use task::{FailedTask, Kind, ObjectInput, Task, TaskError};

/// Why a batch cannot start or continue. An error of a single file or task is a [`FailedInput`] or a [`TaskError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// No file matches.
    #[error("{pattern}: no file matches")]
    NoMatch {
        /// The pattern, or the name.
        pattern: String,
    },
    /// A malformed pattern.
    #[error("{pattern}: is not a valid file pattern: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why.
        why: String,
    },
    /// Another run works in the folder.
    #[error("{}: another run works in this folder", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process is running the task.
    #[error("{task}: another process is running this task")]
    TaskBusy {
        /// The task.
        task: String,
    },
    /// The folder has results made with other settings.
    #[error("{}: has results made with other settings: {differences}", folder.display())]
    OtherSettings {
        /// The folder.
        folder: PathBuf,
        /// Each setting that differs, with both values.
        differences: String,
    },
    /// The folder has results for a date from files that are not among the inputs.
    #[error("{}: has results of {date} from {file}, which is not among the readable inputs", folder.display())]
    OtherFiles {
        /// The folder.
        folder: PathBuf,
        /// The date.
        date: jiff::civil::Date,
        /// The first of the files.
        file: String,
    },
    /// The folder has results for a date from files that now belong to another date.
    #[error("{}: has results of {date} from {file}, whose date is {now} now", folder.display())]
    OtherDate {
        /// The folder.
        folder: PathBuf,
        /// The date of the results.
        date: jiff::civil::Date,
        /// The first of the files.
        file: String,
        /// Its date in the plan.
        now: jiff::civil::Date,
    },
    /// A folder or file of the batch cannot be made, read or moved.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An address, in a build without the feature `cloud`.
    #[error("{address}: object stores need a build with the feature `cloud`")]
    NoCloud {
        /// The address.
        address: String,
    },
    /// An address for results that names no bucket.
    #[error("{address}: has no bucket")]
    NoBucket {
        /// The address.
        address: String,
    },
    /// A store refuses a request or does not answer.
    #[cfg(feature = "cloud")]
    #[error(transparent)]
    Cloud(#[from] tapeworks_cloud::CloudError),
    /// A file of the batch cannot be written.
    #[error(transparent)]
    NewFile(#[from] tapeworks_capture::new_file::NewFileError),
    /// A file under `.tasks` is not as a run writes it.
    #[error("{}: is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A malformed description of a task.
    #[error("is not a description of a task: {why}")]
    NoTask {
        /// Why.
        why: String,
    },
    /// An executor cannot run tasks, or can no longer run them.
    #[error("{why}")]
    Executor {
        /// Why.
        why: String,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The user stopped it before a task began.
    #[error("stopped")]
    Stopped,
}

impl BatchError {
    pub(crate) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }
}

/// Returns the bucket of a symbol among `buckets`: 64-bit FNV-1a of the symbol's letters (without padding), modulo `buckets`. It is
/// part of the interface: readers compute it to find a symbol's partition.
#[must_use]
pub fn bucket_of(symbol: Symbol, buckets: u16) -> u16 {
    let hash = symbol.as_str().bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    (hash % u64::from(buckets.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbols_bucket_is_that_of_the_published_hash() {
        // FNV-1a of "a" and of "foobar", as its authors publish them.
        let bucket = |symbol: &str, buckets| bucket_of(Symbol::parse(symbol).unwrap(), buckets);
        assert_eq!(u64::from(bucket("a", 1_000)), 0xAF63_DC4C_8601_EC8C % 1_000);
        assert_eq!(u64::from(bucket("foobar", 997)), 0x8594_4171_F739_67E8 % 997);
        assert_eq!(bucket("AAPL", 1), 0);
    }
}

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
