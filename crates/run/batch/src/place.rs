//! The location of results: a folder, or, with the feature `cloud`, objects below an address. Names are relative to it.
//!
//! | | in a folder | in a store |
//! | --- | --- | --- |
//! | writing a file | renames it once it is complete | puts it in one request |
//! | bringing in a file | moves it | puts it in one request, or in parts that the last request makes visible |

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tapeworks_capture::new_file::{NewFile, NewFileError};

use super::BatchError;

/// How often a task tries to move a file into a folder that other tasks remove while it is empty.
const MOVES: u32 = 10_000;

/// Whether a name is an address rather than a file name.
#[must_use]
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name.contains("://"))
}

/// Rejects an address in a build without support for addresses.
pub(super) fn refuse_address(path: &Path) -> Result<(), BatchError> {
    match is_address(path) && !cfg!(feature = "cloud") {
        true => Err(BatchError::NoCloud { address: path.display().to_string() }),
        false => Ok(()),
    }
}

/// Makes `**` at the end of a pattern match all files below, not the folders.
pub(super) fn with_files(pattern: &str) -> String {
    match pattern == "**" || pattern.ends_with("/**") {
        true => format!("{pattern}/*"),
        false => pattern.to_owned(),
    }
}

/// Returns the canonical name of a file, if it exists. An address is already canonical.
pub(super) fn absolute(path: &Path) -> PathBuf {
    if is_address(path) {
        return path.to_owned();
    }
    fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The location of results.
#[derive(Clone, Debug)]
pub(super) struct Place {
    root: PathBuf,
}

/// Returns an address without trailing slashes.
///
/// # Errors
/// [`BatchError::NoBucket`] if nothing follows the scheme; it would otherwise become a local folder.
pub(super) fn in_bucket(address: &str) -> Result<&str, BatchError> {
    let trimmed = address.trim_end_matches('/');
    match is_address(Path::new(trimmed)) {
        true => Ok(trimmed),
        false => Err(BatchError::NoBucket { address: address.to_owned() }),
    }
}

impl Place {
    /// Creates the place for the folder or address `root`.
    ///
    /// # Errors
    /// [`BatchError::NoCloud`], [`BatchError::NoBucket`].
    pub(super) fn new(root: &Path) -> Result<Self, BatchError> {
        refuse_address(root)?;
        let root = match root.to_str().filter(|_| is_address(root)) {
            Some(address) => PathBuf::from(in_bucket(address)?),
            None => root.to_owned(),
        };
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it is in a store.
    pub(super) fn is_cloud(&self) -> bool {
        is_address(&self.root)
    }

    /// Returns the path of a name.
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the contents of a file, if it exists.
    pub(super) fn read(&self, name: &Path) -> Result<Option<Vec<u8>>, BatchError> {
        Ok(self.read_all(&[name.to_owned()])?.into_iter().next().flatten())
    }

    /// Returns the contents of files, in order.
    pub(super) fn read_all(&self, names: &[PathBuf]) -> Result<Vec<Option<Vec<u8>>>, BatchError> {
        #[cfg(feature = "cloud")]
        if self.is_cloud() {
            let read = tapeworks_cloud::read_all(&self.addresses(names))?;
            return Ok(read.into_iter().map(|bytes| bytes.map(|bytes| bytes.to_vec())).collect());
        }
        let read = |name: &PathBuf| {
            let path = self.path(name);
            match fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(BatchError::io(&path, "cannot be read")(error)),
            }
        };
        names.iter().map(read).collect()
    }

    /// Returns the sizes of files, in order; `None` for a missing one.
    pub(super) fn sizes(&self, names: &[PathBuf]) -> Result<Vec<Option<u64>>, BatchError> {
        #[cfg(feature = "cloud")]
        if self.is_cloud() {
            return Ok(tapeworks_cloud::sizes(&self.addresses(names))?);
        }
        Ok(names.iter().map(|name| fs::metadata(self.path(name)).ok().map(|there| there.len())).collect())
    }

    /// Writes a whole file, replacing an existing one only with `overwrite`. Returns `false` if it exists, or another process is writing it.
    pub(super) fn write(&self, name: &Path, bytes: &[u8], overwrite: bool) -> Result<bool, BatchError> {
        #[cfg(feature = "cloud")]
        if self.is_cloud() {
            use tapeworks_cloud::{Before, CloudError};
            let before = if overwrite { Before::Any } else { Before::None };
            return match tapeworks_cloud::write(&self.address(name), bytes.to_vec(), before) {
                Err(CloudError::Exists { .. } | CloudError::Changed { .. }) if !overwrite => Ok(false),
                written => Ok(written.map(|_| true)?),
            };
        }
        let path = self.path(name);
        let file = match NewFile::create(&path, overwrite) {
            Err(NewFileError::Exists { .. } | NewFileError::Busy { .. }) if !overwrite => return Ok(false),
            created => created?,
        };
        let written = file.handle().and_then(|mut handle| handle.write_all(bytes));
        written.map_err(BatchError::io(&path, "cannot be written"))?;
        match file.finish() {
            Err(NewFileError::Exists { .. } | NewFileError::Busy { .. }) if !overwrite => Ok(false),
            finished => Ok(finished.map(|_| true)?),
        }
    }

    /// Removes a file, which may already be missing.
    pub(super) fn remove(&self, name: &Path) -> Result<(), BatchError> {
        #[cfg(feature = "cloud")]
        if self.is_cloud() {
            return Ok(tapeworks_cloud::remove(&self.address(name))?);
        }
        let path = self.path(name);
        match fs::remove_file(&path) {
            // `NotADirectory`: a file is where its folder would be.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(())
            }
            removed => removed.map_err(BatchError::io(&path, "cannot be removed")),
        }
    }

    /// Removes empty folders above a file. A store has no folders.
    pub(super) fn remove_empty_above(&self, name: &Path, levels: usize) {
        if self.is_cloud() {
            return;
        }
        for folder in self.path(name).ancestors().skip(1).take(levels) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    /// Returns the names in a folder, sorted.
    pub(super) fn names(&self, folder: &str) -> Result<Vec<String>, BatchError> {
        #[cfg(feature = "cloud")]
        if self.is_cloud() {
            let below = format!("{}/", self.address(Path::new(folder)));
            let all = tapeworks_cloud::list(&below)?;
            let names = all.iter().filter_map(|object| object.address.strip_prefix(&below));
            return Ok(names.filter(|name| !name.contains('/')).map(str::to_owned).collect());
        }
        let path = self.path(folder);
        let unreadable = || BatchError::io(&path, "cannot be read");
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(unreadable())? {
            names.push(entry.map_err(unreadable())?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Brings in files from the folder `work`, where they have the same names, and waits until they are durable.
    pub(super) fn bring<'n>(
        &self,
        work: &Path,
        names: impl Iterator<Item = &'n PathBuf>,
    ) -> Result<(), BatchError> {
        #[cfg(feature = "cloud")]
        if self.is_cloud() {
            for name in names {
                tapeworks_cloud::upload(&work.join(name), &self.address(name))?;
            }
            return Ok(());
        }
        let mut folders = BTreeSet::new();
        for name in names {
            let path = self.path(name);
            move_file(&work.join(name), &path).map_err(BatchError::io(&path, "cannot be moved here"))?;
            // The bucket, the date, the schema, and the root, any of which may be new.
            folders.extend(path.ancestors().skip(1).take(4).map(Path::to_owned));
        }
        for folder in folders {
            sync_folder(&folder).map_err(BatchError::io(&folder, "cannot be synced"))?;
        }
        Ok(())
    }

    /// Renames a file that holds `bytes`. In a store it briefly has both names.
    pub(super) fn rename(&self, from: &Path, to: &Path, bytes: &[u8]) -> Result<(), BatchError> {
        if self.is_cloud() {
            self.write(to, bytes, true)?;
            return self.remove(from);
        }
        let path = self.path(to);
        fs::rename(self.path(from), &path).map_err(BatchError::io(&path, "cannot be moved here"))?;
        let folder = path.parent().unwrap_or(&path);
        sync_folder(folder).map_err(BatchError::io(folder, "cannot be synced"))
    }

    #[cfg(feature = "cloud")]
    pub(super) fn address(&self, name: &Path) -> String {
        self.path(name).display().to_string()
    }

    #[cfg(feature = "cloud")]
    fn addresses(&self, names: &[PathBuf]) -> Vec<String> {
        names.iter().map(|name| self.address(name)).collect()
    }
}

/// Syncs a folder's entries to disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // The file system does not sync folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Moves a file into a folder, which is created if needed. Another task may remove the folder while it is still empty.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    let folder = to.parent().unwrap_or(to);
    let mut moved = Ok(());
    for _ in 0..MOVES {
        moved = fs::create_dir_all(folder).and_then(|()| fs::rename(from, to));
        match &moved {
            // `AlreadyExists`: `create_dir_all` found the folder, which was then removed.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            _ => break,
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[cfg(feature = "cloud")]
    #[test]
    fn an_address_without_a_bucket_is_no_folder_of_this_machine() {
        for address in ["s3://", "s3:///", "az://"] {
            let error = Place::new(Path::new(address)).unwrap_err();
            assert_eq!(error.to_string(), format!("{address}: has no bucket"));
        }
        assert_eq!(Place::new(Path::new("s3://b//")).unwrap().root(), Path::new("s3://b"));
    }

    #[test]
    fn a_task_moves_its_file_into_a_folder_that_another_removes_while_it_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let (from, bucket) =
            (root.path().join("made"), root.path().join("schema=mbo/date=2025-11-14/bucket=00"));
        let to = bucket.join("nasdaq.parquet");
        fs::write(&from, "made").unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _another_file_is_in_it = bucket.ancestors().take(3).try_for_each(fs::remove_dir);
                }
            });
            let moves =
                (0..5_000).try_for_each(|_| move_file(&from, &to).and_then(|()| fs::rename(&to, &from)));
            is_over.store(true, Ordering::Relaxed);
            moves.unwrap();
        });
        // A file that cannot be moved at all is an error.
        assert!(move_file(&root.path().join("nowhere"), &to).is_err());
    }
}
