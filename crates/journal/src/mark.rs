//! How far the disk has a journal, kept outside its segments.
//!
//! A segment that was cut, or emptied, ends like one whose writer was killed: with a torn record or with nothing. Only something outside it
//! shows that it once had more. The mark is written after each sync, and is not synced itself: after a power loss it may be an older one, which
//! promises less.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_disk::{Access, Disk, DiskFile as _};

use crate::error::{JournalError, failed};

/// The name of the file.
pub(crate) const NAME: &str = "synced";

/// The number of the next record, a word that identifies the file, and a checksum of both. All little-endian.
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
    // A mark that is torn or damaged promises nothing.
    Ok(if read == BYTES && bytes == encode(next) { next } else { 0 })
}

/// The mark of a journal that is written.
#[derive(Debug)]
pub(crate) struct Mark<D: Disk> {
    path: PathBuf,
    file: D::File,
    /// What the file says. Syncs of several threads may end in another order than they began.
    next: AtomicU64,
}

impl<D: Disk> Mark<D> {
    pub(crate) fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(NAME);
        let file = D::open(&path, Access::Create).map_err(failed(&path, "cannot be opened"))?;
        let next = AtomicU64::new(read::<D>(&file, &path)?);
        Ok(Self { path, file, next })
    }

    /// The disk has had the records before this number.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The disk has the records before `next`. No lock is held meanwhile: the appending thread would wait for the disk.
    pub(crate) fn raise(&self, next: u64) -> Result<(), JournalError> {
        if self.next.fetch_max(next, Ordering::Relaxed) >= next {
            return Ok(());
        }
        // If another thread raised it meanwhile, this write may have overwritten a higher number: write again until the file has the highest.
        let mut written = next;
        loop {
            self.write(written)?;
            match self.next() {
                highest if highest > written => written = highest,
                _ => return Ok(()),
            }
        }
    }

    /// No promise is made of records from `next` on any more. No sync is under way.
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

/// The mark of the journal in `folder`; 0: there is none.
pub(crate) fn of<D: Disk>(folder: &Path) -> Result<u64, JournalError> {
    let path = folder.join(NAME);
    match D::open(&path, Access::Read) {
        Ok(file) => read::<D>(&file, &path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(failed(&path, "cannot be opened")(error)),
    }
}
