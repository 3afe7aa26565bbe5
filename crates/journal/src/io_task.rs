//! What a journal wants of the disk that takes its time, to be done by the thread that appends or by another.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{JournalError, failed};
use crate::folder::{segments, set_aside_of};

/// Work of a journal that waits for the disk: see [`JournalWriter::begin_sync`](crate::JournalWriter::begin_sync) and
/// [`JournalWriter::begin_removal`](crate::JournalWriter::begin_removal).
#[derive(Debug)]
#[must_use = "the writer waits for what comes of it"]
pub struct IoTask(pub(crate) Work);

#[derive(Debug)]
pub(crate) enum Work {
    Sync {
        file: Arc<File>,
        path: PathBuf,
        /// What the disk has not been asked for before.
        records: Range<u64>,
        sync_file: fn(&File) -> io::Result<()>,
    },
    Remove {
        folder: PathBuf,
        keep_bytes: u64,
        needed_from: u64,
    },
}

/// What came of a [`IoTask`], for [`JournalWriter::finish`](crate::JournalWriter::finish).
#[derive(Debug)]
#[must_use = "the writer counts it"]
pub struct Finished(pub(crate) Outcome);

#[derive(Debug)]
pub(crate) enum Outcome {
    Synced { path: PathBuf, records: Range<u64>, result: Result<(), JournalError> },
    Removed { segments: u64, result: Result<(), JournalError> },
}

impl IoTask {
    /// Does it, and waits for the disk.
    pub fn run(self) -> Finished {
        Finished(match self.0 {
            Work::Sync { file, path, records, sync_file } => {
                let result = sync_file(&file).map_err(failed(&path, "cannot be synced"));
                Outcome::Synced { path, records, result }
            }
            Work::Remove { folder, keep_bytes, needed_from } => {
                let mut segments = 0;
                let result = remove_oldest(&folder, keep_bytes, needed_from, &mut segments);
                Outcome::Removed { segments, result }
            }
        })
    }
}

impl Finished {
    /// Why it was not done.
    pub const fn error(&self) -> Option<&JournalError> {
        let (Outcome::Synced { result, .. } | Outcome::Removed { result, .. }) = &self.0;
        match result {
            Ok(()) => None,
            Err(error) => Some(error),
        }
    }
}

/// Removes the oldest segments, as many as are too much; never the last, nor any with a record from `needed_from` on. Counts them.
fn remove_oldest(
    folder: &Path,
    keep_bytes: u64,
    needed_from: u64,
    removed: &mut u64,
) -> Result<(), JournalError> {
    let all = segments(folder)?;
    let mut sizes = Vec::with_capacity(all.len());
    for segment in &all {
        let size = fs::metadata(&segment.path).map_err(failed(&segment.path, "cannot be read"))?.len();
        sizes.push(size);
    }
    let mut total: u64 = sizes.iter().sum();
    let successors = all.iter().skip(1);
    for ((segment, successor), size) in all.iter().zip(successors).zip(sizes) {
        if total <= keep_bytes || successor.first > needed_from {
            break;
        }
        // What was set aside of it first: without the segment nobody would know that it is there.
        for path in set_aside_of(folder, segment.first)? {
            fs::remove_file(&path).map_err(failed(&path, "cannot be removed"))?;
        }
        fs::remove_file(&segment.path).map_err(failed(&segment.path, "cannot be removed"))?;
        total -= size;
        *removed += 1;
    }
    Ok(())
}
