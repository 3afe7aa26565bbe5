//! Local folders for files in transit between a store and a task. They are removed with the process that made them, or by the next
//! process if that one was killed.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::BatchError;

/// Prefix of these folders' names.
const PREFIX: &str = "tapeworks-batch-";

/// The file that the process using a folder has locked.
const LOCK: &str = "lock";

/// How many names are tried.
const NAMES: u32 = 1_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that belongs to this process.
#[derive(Debug)]
pub(super) struct Staging {
    folder: PathBuf,
    /// Open, and so locked.
    _lock: File,
}

impl Staging {
    /// Creates a folder below `base`, or below the system's temporary folder. Folders of killed processes are removed.
    ///
    /// # Errors
    /// [`BatchError::Io`].
    pub(super) fn new(base: Option<&Path>) -> Result<Self, BatchError> {
        let base = base.map_or_else(std::env::temp_dir, Path::to_owned);
        fs::create_dir_all(&base).map_err(BatchError::io(&base, "cannot be made"))?;
        sweep(&base);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        for _ in 0..NAMES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match builder.create(&folder) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(BatchError::io(&folder, "cannot be made"))?,
            }
            let path = folder.join(LOCK);
            let lock = File::create(&path).map_err(BatchError::io(&path, "cannot be made"))?;
            match lock.try_lock() {
                // Another process took it for a leftover before it was locked, and removed it.
                Ok(()) if !path.exists() => {}
                Err(TryLockError::WouldBlock) => {}
                Ok(()) => return Ok(Self { folder, _lock: lock }),
                Err(TryLockError::Error(error)) => {
                    return Err(BatchError::io(&path, "cannot be locked")(error));
                }
            }
        }
        Err(BatchError::io(&base, "takes no folder")(std::io::ErrorKind::AlreadyExists.into()))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next process.
        let _left_behind_at_worst = fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders of processes that have ended.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // A folder without a lock file is just being created. Other users' folders stay.
        let Ok(lock) = File::options().write(true).open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _left_behind_at_worst = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_removes_its_own_folder_and_those_of_killed_ones_and_no_other() {
        let base = tempfile::tempdir().unwrap();
        let killed = base.path().join(format!("{PREFIX}1-1"));
        fs::create_dir(&killed).unwrap();
        fs::write(killed.join(LOCK), "").unwrap();
        let others = base.path().join("others");
        fs::create_dir(&others).unwrap();
        let first = Staging::new(Some(base.path())).unwrap();
        assert!(!killed.exists() && others.exists());
        let second = Staging::new(Some(base.path())).unwrap();
        assert!(first.folder().exists() && second.folder().exists());
        assert_ne!(first.folder(), second.folder());
        let folder = first.folder().to_owned();
        drop(first);
        assert!(!folder.exists() && second.folder().exists());
    }
}
