//! The folder of a day: created by one run at a time, and renamed to its final name once it is durable.

use std::fs::TryLockError;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapeworks_capture::new_file::{NewFileError, report_leftover};
use tapeworks_disk::{Access, Disk, DiskFile as _};
use tapeworks_store::{Destination, Scratch, StoreError};

use super::{ExportError, failed};

/// Creates the empty folder `partial` and locks it for this run until the returned file is closed.
///
/// Removes what a dead run left in it.
///
/// # Errors
/// [`NewFileError::Busy`] if another run holds it, [`NewFileError::Create`].
pub(super) fn lock<D: Disk>(path: &Path, partial: &Path) -> Result<D::File, NewFileError> {
    let create = |source| NewFileError::Create { path: partial.to_owned(), source };
    loop {
        D::create_dir_all(partial).map_err(create)?;
        let folder = match D::open(partial, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(create)?,
        };
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(NewFileError::Busy { path: path.to_owned(), partial: partial.to_owned() });
            }
            Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(create(error));
            }
            _ => {}
        }
        if !D::is_named(&folder, partial) {
            continue;
        }
        if D::entries(partial).map_err(create)?.is_empty() {
            return Ok(folder);
        }
        report_leftover(partial, None);
        // Another run may have created a new folder meanwhile; this run locks that one or is rejected.
        D::remove_dir_all(partial).map_err(create)?;
    }
}

/// Gives a day's durable folder its final name. An existing folder of that name is replaced only then.
pub(super) fn give_name<D: Disk>(partial: &Path, folder: &Path) -> Result<(), ExportError> {
    let named = |source| failed(folder, "cannot get its name")(source);
    let parent = folder.parent().unwrap_or(folder);
    // An existing folder briefly gets the name of the partial one, and no other run may take it meanwhile.
    let _locked_until_the_end = D::open(folder, Access::Read).and_then(|old| {
        old.try_lock()?;
        Ok(old)
    });
    let old = match D::exchange(partial, folder) {
        Ok(()) => Some(partial.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            D::rename(partial, folder).map_err(named)?;
            None
        }
        // The file system cannot exchange names.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let old = partial.with_extension("replaced");
            remove::<D>(&old)?;
            let old = match D::rename(folder, &old) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                renamed => Some(renamed.map(|()| old).map_err(named)?),
            };
            D::rename(partial, folder).map_err(named)?;
            old
        }
        Err(error) => return Err(named(error)),
    };
    sync::<D>(parent)?;
    old.map_or(Ok(()), |old| remove::<D>(&old))
}

/// Syncs the names in a folder to disk.
pub(super) fn sync<D: Disk>(folder: &Path) -> Result<(), ExportError> {
    D::sync_folder(folder).map_err(failed(folder, "cannot be synced"))
}

fn remove<D: Disk>(folder: &Path) -> Result<(), ExportError> {
    match D::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(folder, "cannot be removed")(error))
        }
        _ => Ok(()),
    }
}

/// Removes a folder if it is empty.
pub(super) fn remove_if_empty<D: Disk>(folder: &Path) {
    if D::entries(folder).is_ok_and(|entries| entries.is_empty()) {
        let _empty_at_worst = D::remove_dir_all(folder);
    }
}

/// A file in a day's folder that this run has locked.
#[derive(Debug)]
pub(super) struct DayFile<D: Disk> {
    path: PathBuf,
    file: Arc<D::File>,
}

impl<D: Disk> DayFile<D> {
    /// Creates the file at `path`.
    pub(super) fn create(path: &Path) -> Result<Self, StoreError> {
        let file = D::open(path, Access::CreateNew).map_err(refused(path))?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }
}

fn refused(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| NewFileError::Create { path: path.to_owned(), source }.into()
}

impl<D: Disk> Destination for DayFile<D> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&mut self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(At::<D> { file: Arc::clone(&self.file), offset: 0 }))
    }

    fn scratch(&mut self) -> io::Result<Scratch> {
        let mut name = self.path.clone().into_os_string();
        name.push(".scratch");
        let path = PathBuf::from(name);
        let file = Arc::new(D::open(&path, Access::CreateNew)?);
        // The file lives as long as it is open.
        D::remove_file(&path)?;
        let reader = At::<D> { file: Arc::clone(&file), offset: 0 };
        Ok((Box::new(At::<D> { file, offset: 0 }), Box::new(reader)))
    }

    fn complete(self: Box<Self>) -> Result<u64, StoreError> {
        self.file.sync_all().and_then(|()| self.file.length()).map_err(refused(&self.path))
    }
}

/// A position in a file.
struct At<D: Disk> {
    file: Arc<D::File>,
    offset: u64,
}

impl<D: Disk> Write for At<D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<D: Disk> Read for At<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tapeworks_disk::System;

    use super::*;

    #[test]
    fn a_folder_belongs_to_one_run_and_begins_empty() {
        let folder = tempfile::tempdir().unwrap();
        let (path, partial) = (folder.path().join("day"), folder.path().join("day.partial"));
        let first = lock::<System>(&path, &partial).unwrap();
        fs::write(partial.join("half.csv"), "1,").unwrap();
        let refused = lock::<System>(&path, &partial).unwrap_err();
        assert!(matches!(refused, NewFileError::Busy { .. }), "{refused}");
        assert!(partial.join("half.csv").exists());
        // The run dies.
        drop(first);
        let _second = lock::<System>(&path, &partial).unwrap();
        assert!(!partial.join("half.csv").exists());
    }

    /// A system disk that cannot exchange names.
    #[derive(Clone, Copy, Default, Debug)]
    struct Simple;

    tapeworks_disk::system_disk!(Simple, no_exchange);

    fn no_exchange(_one: &Path, other: &Path) -> io::Result<()> {
        if let Ok(old) = fs::File::open(other) {
            assert!(matches!(old.try_lock(), Err(TryLockError::WouldBlock)), "another run may take it");
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    fn replace<D: Disk>() {
        let folder = tempfile::tempdir().unwrap();
        let (path, partial) = (folder.path().join("day"), folder.path().join("day.partial"));
        for text in ["old", "new"] {
            let _run = lock::<D>(&path, &partial).unwrap();
            fs::write(partial.join("a.csv"), text).unwrap();
            give_name::<D>(&partial, &path).unwrap();
            assert_eq!(fs::read_to_string(path.join("a.csv")).unwrap(), text);
            let names = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(names, 1, "the old one is gone");
        }
    }

    #[test]
    fn a_folder_that_is_replaced_is_locked_and_gone_whether_the_disk_exchanges_names_or_not() {
        replace::<System>();
        replace::<Simple>();
    }
}
