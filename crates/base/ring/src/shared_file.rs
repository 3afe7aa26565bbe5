//! A file in shared memory with one writer and readers in other processes.
//!
//! The file has one page of header, then slots. The writer holds a write lock on the first byte (`F_OFD_SETLK`), which ends with
//! its process, so that others can distinguish a live file from an abandoned one. Readers only test the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memmap2::{MmapOptions, MmapRaw};

use crate::sync::{AtomicU64, Ordering};

/// The type and version of a file.
pub(crate) struct Kind {
    /// The first word of the file.
    pub(crate) magic: u64,
    /// The name in error messages.
    pub(crate) name: &'static str,
}

/// Indexes of the header's words.
const ITEM_BYTES: usize = 1;
const CAPACITY: usize = 2;
const MEANING: usize = 3;
const FILE_BYTES: usize = 4;
const WRITER: usize = 5;
const SESSION: usize = 6;
/// Items published. It has its own cache line.
pub(crate) const CURSOR: usize = 16;
/// 1 once the writer has closed the file. It has its own cache line.
pub(crate) const CLOSED: usize = 32;
/// A number that the writer changes while it works. It has its own cache line.
pub(crate) const HEARTBEAT: usize = 48;
/// Words in the header: one page.
pub(crate) const HEADER: usize = 512;

/// The most items a file can hold.
const MAX_CAPACITY: usize = 1 << 40;

/// The reason why a file could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The size of an item is not a multiple of eight bytes.
    #[error("an item of {bytes} bytes is not a whole number of 8-byte words")]
    ItemSize {
        /// Bytes of an item.
        bytes: usize,
    },
    /// The file would be too large.
    #[error("{capacity} items of {bytes} bytes do not fit into a file")]
    TooLarge {
        /// Items requested.
        capacity: usize,
        /// Bytes of an item.
        bytes: usize,
    },
    /// A live writer holds the file.
    #[error("{}: another process writes to it", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// The reason why a reader could not attach.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The file cannot be opened or mapped.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file is of another kind or version.
    #[error("{}: not a {expected} file of this version", path.display())]
    AnotherKind {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        expected: &'static str,
    },
    /// The file is shorter than its header states, or its header is invalid.
    #[error("{}: cut or damaged: {bytes} bytes, its header says {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        bytes: u64,
        /// Bytes according to its header.
        expected: u64,
    },
    /// The items have another size.
    #[error("{}: its items have {found} bytes, not {expected}", path.display())]
    ItemSize {
        /// The file.
        path: PathBuf,
        /// Bytes of its items.
        found: u64,
        /// Bytes of the items requested.
        expected: u64,
    },
    /// The items have another meaning.
    #[error("{}: its items are of meaning {found}, not {expected}", path.display())]
    Meaning {
        /// The file.
        path: PathBuf,
        /// The writer's number.
        found: u64,
        /// The number requested.
        expected: u64,
    },
    /// The writer has exited, so nothing new will arrive.
    #[error("{}: left behind by process {writer}, which no longer writes to it", path.display())]
    Stale {
        /// The file.
        path: PathBuf,
        /// The process that wrote it.
        writer: u64,
    },
}

/// A mapped file as atomic words.
#[derive(Debug)]
pub(crate) struct Words {
    map: MmapRaw,
    words: usize,
}

impl Words {
    #[inline(always)]
    pub(crate) fn get(&self, from: usize, count: usize) -> &[AtomicU64] {
        assert!(from + count <= self.words, "inside the file");
        // SAFETY: the range is inside the mapping (asserted), which is page-aligned and lives as long as `self`. All its users,
        // in this process or another, use atomic words too, so there is no data race. A reader's mapping is read-only, and a
        // reader only loads.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().cast::<AtomicU64>().add(from), count) }
    }

    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self.get(at, 1)[0]
    }
}

/// Returns the words of a slot: its sequence and its item.
pub(crate) const fn stride(item_bytes: usize) -> usize {
    1 + item_bytes / 8
}

/// Creates a private new file beside `path`. Writers that start simultaneously never share it, even across containers.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".new.{}.{number}", std::process::id()));
        let new = path.with_file_name(name);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (new, file)),
        }
    }
}

/// The byte that a writer locks while it lives.
const ALIVE: libc::off_t = 0;
/// The byte that a new writer locks while it replaces an abandoned file.
const SUCCESSION: libc::off_t = 1;

/// Describes a lock on one byte of a file for the kernel.
fn lock_of(byte: libc::off_t, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

/// Locks a byte of a file opened for writing. Returns `false` if another process holds the lock. The lock ends when the last
/// descriptor closes, including a child process's copies before it executes its program.
fn try_lock(file: &File, byte: libc::off_t) -> io::Result<bool> {
    set_lock(file, lock_of(byte, libc::F_WRLCK))
}

/// Unlocks a byte of a file, including for other processes that share the descriptor.
fn unlock(file: &File, byte: libc::off_t) {
    // If this fails, the lock still ends with the last descriptor.
    let _closed_soon = set_lock(file, lock_of(byte, libc::F_UNLCK));
}

fn set_lock(file: &File, lock: libc::flock) -> io::Result<bool> {
    // SAFETY: the descriptor is open, and the lock is valid and lives through the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Returns whether a write lock is held on a byte of a file. Read locks, which any reader can take, do not count.
fn is_write_locked(file: &File, byte: libc::off_t) -> bool {
    let mut lock = lock_of(byte, libc::F_RDLCK);
    // SAFETY: the descriptor is open, and the lock is valid and lives through the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Opens a regular file. Does not block on a pipe.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Moves `new` to `path`, unless a live writer holds that file. Returns whether it did. Of several simultaneous writers, one
/// succeeds. A link, which fails if the file exists, creates a new file. An abandoned file is replaced by the writer that locks
/// its second byte.
fn take_place(new: &Path, path: &Path) -> io::Result<bool> {
    loop {
        let old = match open_regular(OpenOptions::new().write(true), path) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match std::fs::hard_link(new, path) {
                Ok(()) => {
                    std::fs::remove_file(new)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_symlink() => {
                    continue;
                }
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        if is_write_locked(&old, ALIVE) || !try_lock(&old, SUCCESSION)? {
            return Ok(false);
        }
        // The previous holder of the succession lock may have moved its own file here.
        let (opened, there) = (old.metadata()?, std::fs::metadata(path)?);
        if (opened.dev(), opened.ino()) == (there.dev(), there.ino()) {
            std::fs::rename(new, path)?;
            return Ok(true);
        }
    }
}

/// A file as its writer holds it. Dropping it closes the file.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) words: Words,
    /// Kept open for its lock.
    file: File,
}

impl Written {
    /// Creates the file for `capacity` items (rounded up to a power of two), replacing an old one. Also returns the capacity.
    ///
    /// # Errors
    /// If the file cannot be created, or a live writer holds it.
    pub(crate) fn create(
        path: &Path,
        kind: &Kind,
        item_bytes: usize,
        capacity: usize,
        meaning: u64,
    ) -> Result<(Self, u64), CreateError> {
        if item_bytes == 0 || !item_bytes.is_multiple_of(8) {
            return Err(CreateError::ItemSize { bytes: item_bytes });
        }
        let too_large = || CreateError::TooLarge { capacity, bytes: item_bytes };
        let capacity =
            Some(capacity.max(1)).filter(|capacity| *capacity <= MAX_CAPACITY).ok_or_else(too_large)?;
        let capacity = capacity.next_power_of_two();
        let words = capacity.checked_mul(stride(item_bytes)).and_then(|words| words.checked_add(HEADER));
        let words = words.filter(|words| *words <= isize::MAX as usize / 8).ok_or_else(too_large)?;
        let failed = |error| CreateError::Io { path: path.to_owned(), error };

        // Create it under another name and move it into place once complete, so that no reader sees half a header.
        let (new, file) = beside(path).map_err(failed)?;
        let made = fill(&file, kind, item_bytes, words, capacity, meaning)
            .and_then(|map| Ok(take_place(&new, path)?.then_some(map)));
        if !matches!(made, Ok(Some(_))) {
            drop(std::fs::remove_file(&new));
        }
        let words = made.map_err(failed)?.ok_or_else(|| CreateError::InUse { path: path.to_owned() })?;
        Ok((Self { words, file }, capacity as u64))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.words.word(CLOSED).store(1, Ordering::Release);
        unlock(&self.file, ALIVE);
    }
}

fn fill(
    file: &File,
    kind: &Kind,
    item_bytes: usize,
    words: usize,
    capacity: usize,
    meaning: u64,
) -> io::Result<Words> {
    // The lock marks the writer as alive.
    if !try_lock(file, ALIVE)? {
        return Err(io::Error::other("a new file is locked by another process"));
    }
    // Allocate the space now, so that a full file system is an error here and not a bus error later.
    // SAFETY: the descriptor is open, and the call touches none of the program's memory.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, words as libc::off_t * 8) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let words = Words { map: MmapOptions::new().len(words * 8).map_raw(file)?, words };
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    for (place, value) in [
        (ITEM_BYTES, item_bytes as u64),
        (CAPACITY, capacity as u64),
        (MEANING, meaning),
        (FILE_BYTES, words.words as u64 * 8),
        (WRITER, u64::from(std::process::id())),
        (SESSION, started),
        (0, kind.magic),
    ] {
        words.word(place).store(value, Ordering::Release);
    }
    Ok(words)
}

/// A file as a reader holds it.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) words: Words,
    file: File,
}

impl Attached {
    /// Attaches to a file of such items that a writer holds. `meaning` must be the writer's. Also returns the capacity, a power
    /// of two.
    ///
    /// # Errors
    /// If the file is of another kind, is truncated, holds other items, or has no live writer.
    pub(crate) fn open(
        path: &Path,
        kind: &Kind,
        item_bytes: usize,
        meaning: u64,
    ) -> Result<(Self, u64), AttachError> {
        let at = || path.to_owned();
        let failed = |error| AttachError::Io { path: at(), error };
        let file = open_regular(&mut OpenOptions::new(), path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes < HEADER as u64 * 8 {
            // Too short for a header: damaged if it starts with our magic number, otherwise another kind of file.
            let mut first = [0; 8];
            let is_ours = io::Read::read_exact(&mut &file, &mut first).is_ok()
                && u64::from_le_bytes(first) == kind.magic;
            return Err(match is_ours {
                true => AttachError::Damaged { path: at(), bytes, expected: HEADER as u64 * 8 },
                false => AttachError::AnotherKind { path: at(), expected: kind.name },
            });
        }
        let words = (bytes / 8) as usize;
        let map = MmapOptions::new().len(words * 8).map_raw_read_only(&file).map_err(failed)?;
        let words = Words { map, words };
        let header = |place| words.word(place).load(Ordering::Acquire);
        if header(0) != kind.magic {
            return Err(AttachError::AnotherKind { path: at(), expected: kind.name });
        }
        let (found, expected) = (header(ITEM_BYTES), item_bytes as u64);
        if found != expected || !found.is_multiple_of(8) {
            return Err(AttachError::ItemSize { path: at(), found, expected });
        }
        let found = header(MEANING);
        if found != meaning {
            return Err(AttachError::Meaning { path: at(), found, expected: meaning });
        }
        let (capacity, expected) = (header(CAPACITY), header(FILE_BYTES));
        let needed = usize::try_from(capacity).ok().filter(|capacity| capacity.is_power_of_two());
        let needed = needed.and_then(|capacity| {
            capacity.checked_mul(stride(item_bytes))?.checked_add(HEADER)?.checked_mul(8)
        });
        if bytes < expected || needed.is_none_or(|needed| needed as u64 != expected) {
            return Err(AttachError::Damaged { path: at(), bytes, expected });
        }
        let writer = header(WRITER);
        let attached = Self { words, file };
        if !attached.is_writer_alive() {
            return Err(AttachError::Stale { path: at(), writer });
        }
        Ok((attached, capacity))
    }

    /// Returns whether the writer is alive. This is a system call.
    pub(crate) fn is_writer_alive(&self) -> bool {
        is_write_locked(&self.file, ALIVE)
    }

    /// Returns when the writer created the file, in nanoseconds since 1970.
    pub(crate) fn session(&self) -> u64 {
        self.words.word(SESSION).load(Ordering::Acquire)
    }
}
