//! Slow disk work of a journal, which the appending thread or another one can run.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapeworks_disk::{Access, Disk, DiskFile, System};
use tapeworks_planted::planted;

use crate::error::{JournalError, failed};
use crate::folder::{segments, set_aside_of};
use crate::mark::Mark;

/// Work that waits for the disk.
///
/// See [`JournalWriter::begin_sync`](crate::JournalWriter::begin_sync),
/// [`JournalWriter::begin_removal`](crate::JournalWriter::begin_removal) and
/// [`JournalWriter::begin_next_segment`](crate::JournalWriter::begin_next_segment).
#[derive(Debug)]
#[must_use = "the writer waits for the result"]
pub struct IoTask<D: Disk = System>(pub(crate) Work<D>);

#[derive(Debug)]
pub(crate) enum Work<D: Disk> {
    Sync(Unsynced<D>),
    Remove { folder: PathBuf, keep_bytes: u64, needed_from: u64 },
    Prepare { path: PathBuf, bytes: u64 },
}

/// Records of a segment that may not be on disk.
#[derive(Debug)]
pub(crate) struct Unsynced<D: Disk> {
    pub(crate) file: Arc<D::File>,
    pub(crate) path: PathBuf,
    pub(crate) records: Range<u64>,
    /// The folder, if the segment's name may not be on disk.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) sync_file: fn(&D::File) -> io::Result<()>,
    pub(crate) mark: Arc<Mark<D>>,
}

impl<D: Disk> Unsynced<D> {
    fn sync(&self) -> Result<(), JournalError> {
        (self.sync_file)(&self.file).map_err(failed(&self.path, "cannot be synced"))?;
        self.folder
            .as_ref()
            .filter(|_| !planted!("name-not-synced"))
            .map_or(Ok(()), |folder| D::sync_folder(folder).map_err(failed(folder, "cannot be synced")))
    }
}

/// A file with reserved space for a later segment.
#[derive(Debug)]
pub(crate) struct Prepared<D: Disk> {
    pub(crate) path: PathBuf,
    pub(crate) file: D::File,
    pub(crate) bytes: u64,
}

impl<D: Disk> Prepared<D> {
    /// Creates the file, replacing an existing one.
    pub(crate) fn make(path: PathBuf, bytes: u64) -> Result<Self, JournalError> {
        let file = D::open(&path, Access::Replace).map_err(failed(&path, "cannot be created"))?;
        match reserve(&file, &path, bytes) {
            Ok(()) => Ok(Self { path, file, bytes }),
            Err(error) => {
                let _gone_anyway = D::remove_file(&path);
                Err(error)
            }
        }
    }
}

pub(crate) fn reserve(file: &impl DiskFile, path: &Path, bytes: u64) -> Result<(), JournalError> {
    file.reserve(bytes).map_err(failed(path, "cannot reserve its room"))
}

/// The result of an [`IoTask`], for [`JournalWriter::finish`](crate::JournalWriter::finish).
#[derive(Debug)]
#[must_use = "the writer counts it"]
pub struct Finished<D: Disk = System>(pub(crate) Outcome<D>);

#[derive(Debug)]
pub(crate) enum Outcome<D: Disk> {
    /// `unmarked` is the reason if the mark could not be written.
    Synced {
        unsynced: Unsynced<D>,
        result: Result<(), JournalError>,
        unmarked: Option<JournalError>,
    },
    Removed {
        segments: u64,
        result: Result<(), JournalError>,
    },
    Prepared(Result<Prepared<D>, JournalError>),
}

impl<D: Disk> IoTask<D> {
    /// Runs the task and waits for the disk.
    pub fn run(self) -> Finished<D> {
        Finished(match self.0 {
            Work::Sync(unsynced) => {
                let result = unsynced.sync();
                let unmarked =
                    result.as_ref().ok().and_then(|()| unsynced.mark.raise(unsynced.records.end).err());
                Outcome::Synced { unsynced, result, unmarked }
            }
            Work::Remove { folder, keep_bytes, needed_from } => {
                let mut segments = 0;
                let result = remove_oldest::<D>(&folder, keep_bytes, needed_from, &mut segments);
                Outcome::Removed { segments, result }
            }
            Work::Prepare { path, bytes } => Outcome::Prepared(Prepared::make(path, bytes)),
        })
    }
}

impl<D: Disk> Finished<D> {
    /// Returns why the task failed, if it did.
    pub fn error(&self) -> Option<&JournalError> {
        match &self.0 {
            Outcome::Synced { result, .. } | Outcome::Removed { result, .. } => result.as_ref().err(),
            Outcome::Prepared(result) => result.as_ref().err(),
        }
    }
}

/// Removes the oldest segments while the journal exceeds `keep_bytes`, and counts them.
///
/// Never removes the last segment, nor one with a record from `needed_from` on.
fn remove_oldest<D: Disk>(
    folder: &Path,
    keep_bytes: u64,
    needed_from: u64,
    removed: &mut u64,
) -> Result<(), JournalError> {
    let all = segments::<D>(folder)?;
    let mut sizes = Vec::with_capacity(all.len());
    for segment in &all {
        sizes.push(D::length(&segment.path).map_err(failed(&segment.path, "cannot be read"))?);
    }
    let mut total: u64 = sizes.iter().sum();
    let successors = all.iter().skip(1);
    for ((segment, successor), size) in all.iter().zip(successors).zip(sizes) {
        if total <= keep_bytes || successor.first > needed_from {
            break;
        }
        // Remove the bytes set aside from it first: without the segment they would never be found.
        for path in set_aside_of::<D>(folder, segment.first)? {
            D::remove_file(&path).map_err(failed(&path, "cannot be removed"))?;
        }
        D::remove_file(&segment.path).map_err(failed(&segment.path, "cannot be removed"))?;
        total -= size;
        *removed += 1;
    }
    Ok(())
}
