//! Slow disk work of a journal, for the appending thread or another one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{JournalError, failed};
use crate::folder::{segments, set_aside_of, sync_folder};

/// Work of a journal that waits for the disk: see [`JournalWriter::begin_sync`](crate::JournalWriter::begin_sync),
/// [`JournalWriter::begin_removal`](crate::JournalWriter::begin_removal) and
/// [`JournalWriter::begin_next_segment`](crate::JournalWriter::begin_next_segment).
#[derive(Debug)]
#[must_use = "the writer waits for the result"]
pub struct IoTask(pub(crate) Work);

#[derive(Debug)]
pub(crate) enum Work {
    Sync(Unsynced),
    Remove { folder: PathBuf, keep_bytes: u64, needed_from: u64 },
    Prepare { path: PathBuf, bytes: u64 },
}

/// Records of a segment that the disk may not have.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) records: Range<u64>,
    /// The folder, if the disk may not have the segment's name yet.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) sync_file: fn(&File) -> io::Result<()>,
}

impl Unsynced {
    fn sync(&self) -> Result<(), JournalError> {
        (self.sync_file)(&self.file).map_err(failed(&self.path, "cannot be synced"))?;
        self.folder
            .as_ref()
            .map_or(Ok(()), |folder| sync_folder(folder).map_err(failed(folder, "cannot be synced")))
    }
}

/// A file for a later segment, with reserved room.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

impl Prepared {
    /// Makes the file anew.
    pub(crate) fn make(path: PathBuf, bytes: u64) -> Result<Self, JournalError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed(&path, "cannot be created"))?;
        match reserve(&file, &path, bytes) {
            Ok(()) => Ok(Self { path, file, bytes }),
            Err(error) => {
                let _gone_anyway = fs::remove_file(&path);
                Err(error)
            }
        }
    }
}

/// Reserves the file's blocks, so that writing into it later does not meet a full disk.
pub(crate) fn reserve(file: &File, path: &Path, bytes: u64) -> Result<(), JournalError> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // A file system that cannot reserve: the length is all there is.
        Err(rustix::io::Errno::OPNOTSUPP) => {
            file.set_len(bytes).map_err(failed(path, "cannot be lengthened"))
        }
        Err(error) => Err(failed(path, "cannot reserve its room")(error.into())),
    }
}

/// The result of an [`IoTask`], for [`JournalWriter::finish`](crate::JournalWriter::finish).
#[derive(Debug)]
#[must_use = "the writer counts it"]
pub struct Finished(pub(crate) Outcome);

#[derive(Debug)]
pub(crate) enum Outcome {
    Synced { unsynced: Unsynced, result: Result<(), JournalError> },
    Removed { segments: u64, result: Result<(), JournalError> },
    Prepared(Result<Prepared, JournalError>),
}

impl IoTask {
    /// Runs the task, and waits for the disk.
    pub fn run(self) -> Finished {
        Finished(match self.0 {
            Work::Sync(unsynced) => {
                let result = unsynced.sync();
                Outcome::Synced { unsynced, result }
            }
            Work::Remove { folder, keep_bytes, needed_from } => {
                let mut segments = 0;
                let result = remove_oldest(&folder, keep_bytes, needed_from, &mut segments);
                Outcome::Removed { segments, result }
            }
            Work::Prepare { path, bytes } => Outcome::Prepared(Prepared::make(path, bytes)),
        })
    }
}

impl Finished {
    /// Why it was not done.
    pub fn error(&self) -> Option<&JournalError> {
        match &self.0 {
            Outcome::Synced { result, .. } | Outcome::Removed { result, .. } => result.as_ref().err(),
            Outcome::Prepared(result) => result.as_ref().err(),
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
        // The bytes set aside from it go first: without the segment they would never be found.
        for path in set_aside_of(folder, segment.first)? {
            fs::remove_file(&path).map_err(failed(&path, "cannot be removed"))?;
        }
        fs::remove_file(&segment.path).map_err(failed(&segment.path, "cannot be removed"))?;
        total -= size;
        *removed += 1;
    }
    Ok(())
}
