//! New files: every command makes its files with this module.
//!
//! A file is `NAME.partial` while it is written and gets its name when the disk has all of it. A lock on the partial file
//! refuses other runs, so that a file has the bytes of one run.
//!
//! | what is there | what happens |
//! | --- | --- |
//! | a file | [`NewFileError::Exists`] unless overwriting is requested; the old file stays until the new one is complete |
//! | a folder | [`NewFileError::IsFolder`] |
//! | a link | the file that it leads to is made or replaced; [`NewFileError::Link`] if it leads into no folder |
//! | a device or a pipe | written in place, without a partial file; opening a pipe waits for its reader |
//! | `NAME.partial` that another run writes | [`NewFileError::Busy`] |
//! | `NAME.partial` of a run that died | it is renamed to `NAME.partial.1` (2, 3, ...), and [`on_leftover`] reports it |
//!
//! `-` is standard output.
//!
//! Cost: two `open`, one `flock`, one `rename`, and one `fsync` of the file and one of its folder at the end.

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

/// Bytes that a pipe which is ready takes without blocking (POSIX: at least 512; Linux: 4,096).
#[cfg(unix)]
const PIPE_BYTES: usize = 4_096;

/// Links that one name may lead over.
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
        /// Where it leads.
        to: PathBuf,
    },
    /// Another run writes this file.
    #[error("{}: another run writes it, into {}", path.display(), partial.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// Its partial file, which is locked.
        partial: PathBuf,
    },
    /// The partial file cannot be created, locked or renamed, or the pipe or device not opened.
    #[error("{}: cannot be created: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Writing failed: the disk is full, or was taken away.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is written, but cannot have its name; its content is in the partial file.
    #[error("{}: {why}; the written data are in {}", path.display(), partial.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// Where its content is.
        partial: PathBuf,
        /// Why.
        why: String,
    },
}

/// A file that is being written. Dropped before [`NewFile::finish`], it leaves no file.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// The target of `path`.
    target: PathBuf,
    /// `None`: written in place, as the path is a device, a pipe or standard output.
    partial: Option<PathBuf>,
    /// Open, and so locked, until the file has its name.
    file: File,
    overwrite: bool,
    set_aside: Option<PathBuf>,
    is_pipe: bool,
    is_kept: bool,
    /// Waits until the disk has a file or a folder.
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
    /// Standard output. A [stop of the process](crate::stop) ends the wait for a pipe whose reader does not read.
    ///
    /// # Errors
    /// What the system says of a standard output that is closed.
    pub fn stdout() -> io::Result<Self> {
        #[cfg(unix)]
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        #[cfg(windows)]
        let file = File::from(std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned()?);
        let is_pipe = is_pipe(&file);
        Ok(Self { file, is_pipe })
    }

    /// Cuts the file after `bytes`.
    ///
    /// # Errors
    /// What the system says.
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

/// Reports a file that a dead run left: its name, and the name that it is kept under; `None` if it is removed.
type ReportLeftover = fn(partial: &Path, kept: Option<&Path>);

static REPORT_LEFTOVER: OnceLock<ReportLeftover> = OnceLock::new();

/// Sets the function that reports a partial file or folder of a dead run, with the name that it is kept under; `None` if it is
/// removed. A program sets it once, at its start; without it no file is reported.
pub fn on_leftover(report: ReportLeftover) {
    let _the_first_stays = REPORT_LEFTOVER.set(report);
}

/// Reports a partial file or folder of a dead run to the function of [`on_leftover`].
pub fn report_leftover(partial: &Path, kept: Option<&Path>) {
    if let Some(report) = REPORT_LEFTOVER.get() {
        report(partial, kept);
    }
}

/// Whether `path` stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Why a file cannot be made at `path`.
///
/// # Errors
/// [`NewFileError::Exists`], [`NewFileError::IsFolder`], [`NewFileError::Link`].
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

/// The name that `path` leads to over symbolic links, whether it exists or not.
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

/// Gives `from` the name `to`; one that exists is kept unless `overwrite` says otherwise.
fn rename(from: &Path, to: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(from, to);
    }
    // A link fails where the name exists, in one step; a rename would replace it.
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links.
        Err(_) if fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

/// Whether `path` is still the name of `file`.
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

/// An open file cannot be renamed here.
#[cfg(not(unix))]
fn is_named(_file: &File, _path: &Path) -> bool {
    true
}

/// Opens a pipe when it has a reader, and a device at once.
fn open_special(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    if fs::metadata(path).is_ok_and(|there| std::os::unix::fs::FileTypeExt::is_fifo(&there.file_type())) {
        use std::os::unix::fs::OpenOptionsExt as _;

        loop {
            // Until there is a reader, the open fails; a blocking one would not end at a request to stop.
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

/// Waits until the disk has a file, or the names of a folder.
fn synced(file: &File) -> io::Result<()> {
    match file.sync_all() {
        // A file system that does not sync folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

impl NewFile {
    /// Begins the file at `path`; an existing file is replaced only with `overwrite`.
    ///
    /// # Errors
    /// [`NewFileError`], but for [`NewFileError::Name`].
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

    /// Makes the partial file for this run alone: the lock lasts as long as the file is open.
    fn partial_of(path: &Path, target: PathBuf, overwrite: bool) -> Result<Self, NewFileError> {
        let partial = with_ending(&target, ".partial");
        let create = |source| NewFileError::Create { path: path.to_owned(), source };
        let busy = || NewFileError::Busy { path: path.to_owned(), partial: partial.clone() };
        let mut aside = None;
        loop {
            // Not truncated: it may be another run's.
            let opened =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial);
            let file = opened.map_err(create)?;
            let is_locked = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => return Err(busy()),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => false,
                Err(TryLockError::Error(error)) => return Err(create(error)),
            };
            // Between the opening and the lock the other run may have finished, and this be its whole file.
            if !is_named(&file, &partial) {
                continue;
            }
            if has_other_names(&file) {
                // A run was killed when the file had its name already: only this one goes.
                fs::remove_file(&partial).map_err(create)?;
                continue;
            }
            if file.metadata().map_err(create)?.len() > 0 {
                // Without locks (some network file systems) it is unknown whether its run is dead.
                if !is_locked {
                    return Err(busy());
                }
                let kept = set_aside(&partial).map_err(create)?;
                report_leftover(&partial, Some(&kept));
                aside = Some(kept);
                continue;
            }
            // Another run may have finished it since the first look.
            if !overwrite && fs::symlink_metadata(&target).is_ok() {
                let _empty_at_worst = fs::remove_file(&partial);
                return Err(NewFileError::Exists { path: path.to_owned() });
            }
            let mut new = Self::in_place(path, file);
            (new.target, new.partial, new.set_aside) = (target, Some(partial), aside);
            return Ok(new);
        }
    }

    /// The file as the caller named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The new path of a dead run's partial file, if there was one that was not empty.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// The partial file; `None` of a device, a pipe and standard output.
    pub fn partial(&self) -> Option<&Path> {
        self.partial.as_deref()
    }

    /// The writer into the file.
    ///
    /// # Errors
    /// What the system says when it has no descriptor left.
    pub fn handle(&self) -> io::Result<Handle> {
        Ok(Handle { file: self.file.try_clone()?, is_pipe: self.is_pipe })
    }

    /// A temporary file without a name. It takes room in the same folder, or in the system's folder for temporary files if this
    /// file has no folder, and is gone when it is closed.
    ///
    /// # Errors
    /// What the system says.
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
        // A file system without unnamed files: the name goes at once.
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

    /// Leaves the partial file where it is when this is dropped, and returns its name.
    pub fn keep(&mut self) -> Option<&Path> {
        self.is_kept = true;
        self.partial.as_deref()
    }

    /// Gives the file its name when the disk has all of it. Returns its length in bytes, 0 if it has none. Flush its writers
    /// first.
    ///
    /// # Errors
    /// [`NewFileError::Create`] when the disk does not take it, [`NewFileError::Name`] when it cannot have its name.
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

/// Renames a dead run's file to the first free name and returns that.
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
            // A caller that drops it unfinished has an error to report already.
            let _left_behind_at_worst = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests;
