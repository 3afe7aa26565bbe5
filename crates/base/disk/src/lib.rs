#![doc = include_str!("../README.md")]

mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::fmt::Debug;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

pub use system::System;

/// The purpose for which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads an existing file.
    Read,
    /// Reads and writes an existing file.
    Write,
    /// Reads and writes a file, and creates it if it does not exist.
    Create,
    /// Reads and writes a file, and creates it or truncates the existing one.
    Replace,
    /// Reads and writes a new file, which must not exist.
    CreateNew,
}

/// An open file. Closing it releases its lock.
pub trait DiskFile: Debug + Send + Sync + Sized + 'static {
    /// Reads at `offset`. Returns the number of bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads at `offset` until the buffer is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// The system's error.
    fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Writes all bytes at `offset`. After an error, some of them may be written.
    ///
    /// # Errors
    /// The system's error.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until the file's contents and length are on disk.
    ///
    /// # Errors
    /// The system's error. Data written since the last sync may or may not be on disk.
    fn sync_all(&self) -> io::Result<()>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn length(&self) -> io::Result<u64>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// The system's error.
    fn set_length(&self, bytes: u64) -> io::Result<()>;

    /// Reserves space for the file's first `bytes`, so that later writes there cannot fail because the disk is full, and extends a shorter
    /// file with zeros. If the file system cannot reserve space, the file is only extended.
    ///
    /// # Errors
    /// The system's error, above all for a full disk.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Returns where data begins at or after `offset`, skipping holes, which read as zeros; `None` if there is no more data.
    fn data_from(&self, offset: u64) -> Option<u64>;

    /// Locks the file against other handles, unless one of them holds the lock. The lock does not prevent reads or writes.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another handle holds the lock.
    fn try_lock(&self) -> Result<(), TryLockError>;

    /// Releases the lock. Closing the file alone may not: a child process that has not yet executed its program still has the descriptor,
    /// and with it the lock.
    ///
    /// # Errors
    /// The system's error.
    fn unlock(&self) -> io::Result<()>;
}

/// Files and folders.
pub trait Disk: Debug + Clone + Copy + Default + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// Opens a file. A folder can be opened for reading, to lock it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the file or its folder does not exist, [`io::ErrorKind::AlreadyExists`] if the file exists but must
    /// not; otherwise the system's error.
    fn open(path: &Path, access: Access) -> io::Result<Self::File>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or the system's error.
    fn read(path: &Path) -> io::Result<Vec<u8>>;

    /// Returns the length of a file in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or the system's error.
    fn length(path: &Path) -> io::Result<u64>;

    /// Returns whether a file or a folder has this name.
    fn exists(path: &Path) -> bool;

    /// Returns whether a folder has this name.
    fn is_dir(path: &Path) -> bool;

    /// Returns whether `path` names the open file or folder, which may have been renamed or removed.
    fn is_named(file: &Self::File, path: &Path) -> bool;

    /// Creates a folder and its parents. An existing folder is not an error.
    ///
    /// # Errors
    /// The system's error.
    fn create_dir_all(path: &Path) -> io::Result<()>;

    /// Returns the paths of a folder's entries, in any order.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or the system's error.
    fn entries(path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Renames a file or a folder. A file replaces an existing file, and a folder replaces an empty folder.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it or the folder of the new name does not exist; otherwise the system's error.
    fn rename(from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges the names of two files or folders in one step.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if one does not exist, [`io::ErrorKind::Unsupported`] if the disk cannot; otherwise the system's error.
    fn exchange(one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file. Open handles remain usable.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or the system's error.
    fn remove_file(path: &Path) -> io::Result<()>;

    /// Removes a folder with all of its contents.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or the system's error.
    fn remove_dir_all(path: &Path) -> io::Result<()>;

    /// Waits until the names in a folder are on disk. A file system that cannot sync folders is not an error.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or the system's error.
    fn sync_folder(path: &Path) -> io::Result<()>;
}
