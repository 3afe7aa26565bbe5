//! New files: every command creates its output files with this module.
//!
//! A file is `NAME.partial` while it is being written and gets its name when all of it is on disk. A lock on the partial file
//! keeps out other runs, so that a file contains the bytes of a single run.
//!
//! | existing at the path | what happens |
//! | --- | --- |
//! | a file | [`NewFileError::Exists`] unless overwriting is requested; the old file stays until the new one is complete |
//! | a folder | [`NewFileError::IsFolder`] |
//! | a link | its target is created or replaced; [`NewFileError::Link`] if the target's folder does not exist |
//! | a device or a pipe | written in place, without a partial file; opening a pipe waits for its reader |
//! | `NAME.partial` that another run is writing | [`NewFileError::Busy`] |
//! | `NAME.partial` of a dead run | it is renamed to `NAME.partial.1` (2, 3, ...), and [`on_leftover`] reports it |
//!
//! `-` is standard output.
//!
//! Cost: two `open`, one `flock`, one `rename`, and one `fsync` each of the file and its folder at the end.

mod compressed;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
#[cfg(unix)]
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[cfg(unix)]
use crate::stop;

pub use compressed::CompressedFile;

/// Bytes that a ready pipe accepts without blocking (POSIX: at least 512; Linux: 4,096).
#[cfg(unix)]
const PIPE_BYTES: usize = 4_096;

/// Maximum number of symbolic links to follow for one name.
const MAX_LINKS: usize = 40;

/// Why a file cannot be made.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum NewFileError {
    /// The file exists and must not be replaced.
    #[error("{}: the file exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A folder has the name.
    #[error("{}: is a directory", path.display())]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A symbolic link leads to a name in a folder that does not exist.
    #[error("{}: is a link to {}, whose folder does not exist", path.display(), to.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// The target of the link.
        to: PathBuf,
    },
    /// Another run is writing this file.
    #[error("{}: another run writes it, into {}", path.display(), partial.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// Its partial file, which is locked.
        partial: PathBuf,
    },
    /// The partial file cannot be created, locked or renamed, or the pipe or device cannot be opened.
    #[error("{}: cannot be created: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Writing failed: the disk is full or was removed.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is complete but cannot get its name; its content is in the partial file.
    #[error("{}: {why}; the written data are in {}", path.display(), partial.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The file with the content.
        partial: PathBuf,
        /// The reason.
        why: String,
    },
}

/// A file that is being written. Dropping it before [`NewFile::finish`] removes the partial file, unless it is kept.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// The file that `path` leads to.
    target: PathBuf,
    /// `None`: the path is a device, a pipe or standard output, which is written in place.
    partial: Option<PathBuf>,
    /// Open, and therefore locked, until the file has its name.
    file: File,
    overwrite: bool,
    set_aside: Option<PathBuf>,
    is_pipe: bool,
    is_kept: bool,
    /// Waits until a file or folder is on disk.
    sync: fn(&File) -> io::Result<()>,
}

/// The writer of a new file.
#[derive(Debug)]
pub struct Handle {
    file: File,
    is_pipe: bool,
}

impl Write for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(unix)]
        if self.is_pipe {
            stop::wait(self.file.as_fd(), stop::For::Writing)?;
            return self.file.write(&bytes[..bytes.len().min(PIPE_BYTES)]);
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Handle {
    /// Returns standard output. A [stop of the process](crate::stop) ends the wait for a pipe whose reader does not read.
    ///
    /// # Errors
    /// The system's error if standard output is closed.
    pub fn stdout() -> io::Result<Self> {
        #[cfg(unix)]
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        #[cfg(windows)]
        let file = File::from(std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned()?);
        let is_pipe = is_pipe(&file);
        Ok(Self { file, is_pipe })
    }

    /// Truncates the file to `bytes`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn cut(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
}

#[cfg(unix)]
fn is_pipe(file: &File) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(not(unix))]
const fn is_pipe(_file: &File) -> bool {
    false
}

/// Reports the partial file of a dead run, and the name under which it is kept; `None` if it is removed.
type ReportLeftover = fn(partial: &Path, kept: Option<&Path>);

static REPORT_LEFTOVER: OnceLock<ReportLeftover> = OnceLock::new();

/// Sets the function that reports a dead run's partial file or folder, with the name under which it is kept (`None` if it is
/// removed). A program sets it once, at startup; without it nothing is reported.
pub fn on_leftover(report: ReportLeftover) {
    let _the_first_stays = REPORT_LEFTOVER.set(report);
}

/// Reports a dead run's partial file or folder to the function set by [`on_leftover`].
pub fn report_leftover(partial: &Path, kept: Option<&Path>) {
    if let Some(report) = REPORT_LEFTOVER.get() {
        report(partial, kept);
    }
}

/// Returns whether `path` stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks that a file can be created at `path`.
pub fn check(path: &Path, overwrite: bool) -> Result<(), NewFileError> {
    if is_stdout(path) {
        return Ok(());
    }
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(NewFileError::IsFolder { path: path.to_owned() }),
        Ok(there) if there.is_file() && !overwrite => Err(NewFileError::Exists { path: path.to_owned() }),
        Ok(_) => Ok(()),
        Err(_) => target_of(path).map(|_| ()),
    }
}

/// Follows symbolic links from `path` to their target, whether or not it exists.
fn target_of(path: &Path) -> Result<PathBuf, NewFileError> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else {
            let is_lost = target != path && !folder_of(&target).is_dir();
            return match is_lost {
                true => Err(NewFileError::Link { path: path.to_owned(), to: target }),
                false => Ok(target),
            };
        };
        target = folder_of(&target).join(next);
    }
    let source = io::Error::other("too many links");
    Err(NewFileError::Create { path: path.to_owned(), source })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Renames `from` to `to`. An existing file is replaced only with `overwrite`.
fn rename(from: &Path, to: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(from, to);
    }
    // Creating a link fails atomically if the name exists; a rename would replace the file.
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links.
        Err(_) if fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

/// Returns whether `path` still names `file`.
#[cfg(unix)]
fn is_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

#[cfg(unix)]
fn has_other_names(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    file.metadata().is_ok_and(|metadata| metadata.nlink() > 1)
}

#[cfg(not(unix))]
fn has_other_names(_file: &File) -> bool {
    false
}

/// An open file cannot be renamed on these systems.
#[cfg(not(unix))]
fn is_named(_file: &File, _path: &Path) -> bool {
    true
}

/// Opens a pipe once it has a reader, and a device immediately.
fn open_special(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    if fs::metadata(path).is_ok_and(|there| std::os::unix::fs::FileTypeExt::is_fifo(&there.file_type())) {
        use std::os::unix::fs::OpenOptionsExt as _;

        loop {
            // The open fails until there is a reader. A blocking open would ignore a request to stop.
            match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                    if stop::is_requested() {
                        return Err(stop::stopped());
                    }
                    std::thread::sleep(stop::LOOK / 2);
                }
                opened => return opened,
            }
        }
    }
    OpenOptions::new().write(true).open(path)
}

/// Waits until a file, or the names in a folder, are on disk.
fn synced(file: &File) -> io::Result<()> {
    match file.sync_all() {
        // A file system that cannot sync folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

impl NewFile {
    /// Starts a file at `path`; an existing file is replaced only with `overwrite`.
    ///
    /// # Errors
    /// Any [`NewFileError`] except [`NewFileError::Name`].
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, NewFileError> {
        check(path, overwrite)?;
        let create = |source| NewFileError::Create { path: path.to_owned(), source };
        let mut new = if is_stdout(path) {
            Self::in_place(path, Handle::stdout().map_err(create)?.file)
        } else if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            Self::in_place(path, open_special(path).map_err(create)?)
        } else {
            Self::partial_of(path, target_of(path)?, overwrite)?
        };
        new.overwrite = overwrite;
        Ok(new)
    }

    fn in_place(path: &Path, file: File) -> Self {
        Self {
            path: path.to_owned(),
            target: path.to_owned(),
            partial: None,
            is_pipe: is_pipe(&file),
            file,
            overwrite: false,
            set_aside: None,
            is_kept: false,
            sync: synced,
        }
    }

    /// Creates the partial file exclusively for this run. The lock lasts as long as the file is open.
    fn partial_of(path: &Path, target: PathBuf, overwrite: bool) -> Result<Self, NewFileError> {
        let partial = with_ending(&target, ".partial");
        let create = |source| NewFileError::Create { path: path.to_owned(), source };
        let busy = || NewFileError::Busy { path: path.to_owned(), partial: partial.clone() };
        let mut aside = None;
        loop {
            // Not truncated, because the file may belong to another run.
            let opened =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial);
            let file = opened.map_err(create)?;
            let is_locked = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => return Err(busy()),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => false,
                Err(TryLockError::Error(error)) => return Err(create(error)),
            };
            // Between the open and the lock, the other run may have finished and renamed the file that we opened.
            if !is_named(&file, &partial) {
                continue;
            }
            if has_other_names(&file) {
                // A run was killed after its file already had its name: remove only the partial name.
                fs::remove_file(&partial).map_err(create)?;
                continue;
            }
            if file.metadata().map_err(create)?.len() > 0 {
                // Without locks (some network file systems) we cannot know whether the other run is dead.
                if !is_locked {
                    return Err(busy());
                }
                let kept = set_aside(&partial).map_err(create)?;
                report_leftover(&partial, Some(&kept));
                aside = Some(kept);
                continue;
            }
            // Another run may have finished since the first check.
            if !overwrite && fs::symlink_metadata(&target).is_ok() {
                let _empty_at_worst = fs::remove_file(&partial);
                return Err(NewFileError::Exists { path: path.to_owned() });
            }
            let mut new = Self::in_place(path, file);
            (new.target, new.partial, new.set_aside) = (target, Some(partial), aside);
            return Ok(new);
        }
    }

    /// Returns the path as the caller gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the new path of a dead run's partial file, if a non-empty one existed.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Returns the partial file; `None` for a device, a pipe and standard output.
    pub fn partial(&self) -> Option<&Path> {
        self.partial.as_deref()
    }

    /// Returns a writer to the file.
    ///
    /// # Errors
    /// The system's error if no descriptor is left.
    pub fn handle(&self) -> io::Result<Handle> {
        Ok(Handle { file: self.file.try_clone()?, is_pipe: self.is_pipe })
    }

    /// Creates a temporary file without a name, in the same folder, or in the system's temporary folder if this file has no
    /// folder. The file disappears when it is closed.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn scratch(&self) -> io::Result<File> {
        let temporary = std::env::temp_dir();
        let folder = if self.partial.is_some() { folder_of(&self.target) } else { &temporary };
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::OpenOptionsExt as _;

            let unnamed =
                OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(folder);
            if let Ok(file) = unnamed {
                return Ok(file);
            }
        }
        // The file system does not support unnamed files: remove the name immediately.
        let mut number = 0u32;
        loop {
            let path = folder.join(format!(".tapeworks-{}-{number}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let _left_behind_at_worst = fs::remove_file(&path);
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the partial file when this is dropped, and returns its name.
    pub fn keep(&mut self) -> Option<&Path> {
        self.is_kept = true;
        self.partial.as_deref()
    }

    /// Gives the file its name once all of it is on disk. Returns its length in bytes, or 0 if it is written in place. Flush
    /// its writers first.
    ///
    /// # Errors
    /// [`NewFileError::Create`] if the disk does not accept it, [`NewFileError::Name`] if it cannot get its name.
    pub fn finish(mut self) -> Result<u64, NewFileError> {
        let Some(partial) = self.partial.clone() else { return Ok(0) };
        let create = |source| NewFileError::Create { path: self.path.clone(), source };
        (self.sync)(&self.file).map_err(create)?;
        let bytes = self.file.metadata().map_err(create)?.len();
        if let Err(error) = rename(&partial, &self.target, self.overwrite) {
            self.is_kept = true;
            let why = match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "was made by another program meanwhile and is kept".to_owned()
                }
                _ => format!("cannot have its name: {error}"),
            };
            return Err(NewFileError::Name { path: self.path.clone(), partial, why });
        }
        self.is_kept = true;
        File::open(folder_of(&self.target)).and_then(|folder| (self.sync)(&folder)).map_err(create)?;
        Ok(bytes)
    }
}

/// Renames a dead run's file to the first free name and returns the name.
fn set_aside(partial: &Path) -> io::Result<PathBuf> {
    let mut number = 1u64;
    loop {
        let aside = with_ending(partial, &format!(".{number}"));
        match rename(partial, &aside, false) {
            Ok(()) => return Ok(aside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = self.partial.as_deref().filter(|_| !self.is_kept)
            && is_named(&self.file, partial)
        {
            // A caller that drops an unfinished file already has an error to report.
            let _left_behind_at_worst = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests;
