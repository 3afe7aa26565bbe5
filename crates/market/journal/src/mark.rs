//! The sync mark: how much of the journal has reached the disk, stored outside its segments.
//!
//! A segment that was truncated or emptied ends like one whose writer was killed: with a torn record or with nothing.
//! Only a file outside the segment can show that it once contained more. The mark is written after each sync but not
//! synced itself, so after a power loss it may be an older mark, which promises less.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_disk::{Access, Disk, DiskFile as _};

use crate::error::{JournalError, failed};

/// Name of the file.
pub(crate) const NAME: &str = "synced";

/// Number of the next record, a magic word, and a checksum of both. All little-endian.
const BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"TWM1";

fn encode(next: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&next.to_le_bytes());
    bytes[8..12].copy_from_slice(&MAGIC);
    let sum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn read<D: Disk>(file: &D::File, path: &Path) -> Result<u64, JournalError> {
    let mut bytes = [0; BYTES];
    let read = file.read_full_at(&mut bytes, 0).map_err(failed(path, "cannot be read"))?;
    let next = bytes.first_chunk().map_or(0, |next| u64::from_le_bytes(*next));
    // A torn or damaged mark promises nothing.
    Ok(if read == BYTES && bytes == encode(next) { next } else { 0 })
}

/// The mark of a journal open for writing.
#[derive(Debug)]
pub(crate) struct Mark<D: Disk> {
    path: PathBuf,
    file: D::File,
    /// The number in the file. Syncs on several threads may finish in a different order than they began.
    next: AtomicU64,
}

impl<D: Disk> Mark<D> {
    pub(crate) fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(NAME);
        let file = D::open(&path, Access::Create).map_err(failed(&path, "cannot be opened"))?;
        let next = AtomicU64::new(read::<D>(&file, &path)?);
        Ok(Self { path, file, next })
    }

    /// Returns the record number before which all records have reached the disk.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Records that everything before `next` is on disk. Holds no lock, because the appending thread would wait for the
    /// disk.
    pub(crate) fn raise(&self, next: u64) -> Result<(), JournalError> {
        if self.next.fetch_max(next, Ordering::Relaxed) >= next {
            return Ok(());
        }
        // If another thread raised the mark meanwhile, this write may have overwritten a higher number: write until the
        // file has the highest.
        let mut written = next;
        loop {
            self.write(written)?;
            match self.next() {
                highest if highest > written => written = highest,
                _ => return Ok(()),
            }
        }
    }

    /// Withdraws the promise for records from `next` on. No sync may be in progress.
    pub(crate) fn lower(&self, next: u64) -> Result<(), JournalError> {
        if next < self.next() {
            self.write(next)?;
            self.next.store(next, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&self, next: u64) -> Result<(), JournalError> {
        self.file.write_all_at(&encode(next), 0).map_err(failed(&self.path, "cannot be written"))
    }
}

/// Reads the mark of the journal in `folder`; 0 if there is none.
pub(crate) fn of<D: Disk>(folder: &Path) -> Result<u64, JournalError> {
    let path = folder.join(NAME);
    match D::open(&path, Access::Read) {
        Ok(file) => read::<D>(&file, &path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(failed(&path, "cannot be opened")(error)),
    }
}
