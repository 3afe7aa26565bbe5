#![doc = include_str!("../README.md")]

mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::fmt::Debug;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

pub use system::System;

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading a file that exists.
    Read,
    /// Reading and writing a file that exists.
    Write,
    /// Reading and writing a file that is made if it does not exist.
    Create,
    /// Reading and writing a file that is made, or emptied if it exists.
    Replace,
    /// Reading and writing a file that must not exist.
    CreateNew,
}

/// An open file. Closing it gives up its lock.
pub trait DiskFile: Debug + Send + Sync + Sized + 'static {
    /// Reads at `offset`. Returns the number of bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads at `offset` until the buffer is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// What the system says.
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

    /// Writes all bytes at `offset`. After an error some of them may be written.
    ///
    /// # Errors
    /// What the system says.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until the disk has the file's contents and its length.
    ///
    /// # Errors
    /// What the system says. Then the disk may or may not have what was written since the last sync.
    fn sync_all(&self) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file, or lengthens it with zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_length(&self, bytes: u64) -> io::Result<()>;

    /// Reserves the room of the file's first `bytes`, so that writing there later does not meet a full disk, and lengthens it with zeros
    /// if it is shorter. Where the file system cannot reserve, the file is only lengthened.
    ///
    /// # Errors
    /// What the system says: above all that the disk is full.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Where data begins at or behind `offset`: holes, which read as zeros, are skipped. `None` when there is no more.
    fn data_from(&self, offset: u64) -> Option<u64>;

    /// Locks the file against other openings, unless one has locked it. No lock keeps anyone from reading or writing.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when another has it.
    fn try_lock(&self) -> Result<(), TryLockError>;

    /// Gives up the lock. A child process that has not begun its program yet still has the descriptor, and with it the lock, when this
    /// process closes the file.
    ///
    /// # Errors
    /// What the system says.
    fn unlock(&self) -> io::Result<()>;
}

/// Files and folders.
pub trait Disk: Debug + Clone + Copy + Default + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// Opens a file. A folder can be opened for reading, to lock it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when the file or its folder is not there, [`io::ErrorKind::AlreadyExists`] when it must not be and
    /// is; what the system says.
    fn open(path: &Path, access: Access) -> io::Result<Self::File>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and what the system says.
    fn read(path: &Path) -> io::Result<Vec<u8>>;

    /// The length of a file, in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and what the system says.
    fn length(path: &Path) -> io::Result<u64>;

    /// Whether there is a file or a folder of this name.
    fn exists(path: &Path) -> bool;

    /// Whether there is a folder of this name.
    fn is_dir(path: &Path) -> bool;

    /// Whether `path` is the name of an open file or folder: it may have got another, or none.
    fn is_named(file: &Self::File, path: &Path) -> bool;

    /// Makes a folder, and those above it. One that exists is no error.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir_all(path: &Path) -> io::Result<()>;

    /// The paths of a folder's entries, in any order.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and what the system says.
    fn entries(path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Gives a file or a folder another name. A file of that name is replaced by a file, and an empty folder by a folder.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it is not there, or the folder of the new name; what the system says.
    fn rename(from: &Path, to: &Path) -> io::Result<()>;

    /// Gives each of two files or folders the other's name, in one step.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when one is not there, [`io::ErrorKind::Unsupported`] when the disk cannot; what the system says.
    fn exchange(one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file. Those who have it open keep it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and what the system says.
    fn remove_file(path: &Path) -> io::Result<()>;

    /// Removes a folder with all that is in it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and what the system says.
    fn remove_dir_all(path: &Path) -> io::Result<()>;

    /// Waits until the disk has the names in a folder. It is no error if a file system cannot sync folders.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and what the system says.
    fn sync_folder(path: &Path) -> io::Result<()>;
}
