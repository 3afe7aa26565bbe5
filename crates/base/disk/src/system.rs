//! The disk of the operating system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;

use crate::{Access, Disk, DiskFile};

/// The operating system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct System;

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    fn sync_all(&self) -> io::Result<()> {
        Self::sync_all(self)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            // `fallocate` rejects a length of zero.
            return Ok(());
        }
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // Without support for reservations, only the length can be extended.
            Err(Errno::OPNOTSUPP) if self.metadata()?.len() < bytes => self.set_len(bytes),
            Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn data_from(&self, offset: u64) -> Option<u64> {
        match rustix::fs::seek(self, SeekFrom::Data(offset)) {
            Ok(begin) => Some(begin),
            Err(Errno::NXIO) => None,
            // The file system does not report holes: treat everything as data.
            Err(_) => Some(offset),
        }
    }

    fn try_lock(&self) -> Result<(), TryLockError> {
        Self::try_lock(self)
    }

    fn unlock(&self) -> io::Result<()> {
        Self::unlock(self)
    }
}

impl Disk for System {
    type File = File;

    fn open(path: &Path, access: Access) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => &mut options,
            Access::Write => options.write(true),
            Access::Create => options.write(true).create(true),
            Access::Replace => options.write(true).create(true).truncate(true),
            Access::CreateNew => options.write(true).create_new(true),
        }
        .open(path)
    }

    fn read(path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn length(path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn exists(path: &Path) -> bool {
        path.exists()
    }

    fn is_dir(path: &Path) -> bool {
        path.is_dir()
    }

    fn is_named(file: &File, path: &Path) -> bool {
        let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
        (open.dev(), open.ino()) == (named.dev(), named.ino())
    }

    fn create_dir_all(path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn rename(from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(one: &Path, other: &Path) -> io::Result<()> {
        match rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            exchanged => Ok(exchanged?),
        }
    }

    fn remove_file(path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_folder(path: &Path) -> io::Result<()> {
        match File::open(path)?.sync_all() {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
            {
                Ok(())
            }
            synced => synced,
        }
    }
}
