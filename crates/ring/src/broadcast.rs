//! One writer, any number of readers in other processes, over a file in shared memory.
//!
//! The writer never waits and never looks at the readers: a slow reader is overrun, gets the number of lost items and
//! continues. Readers attach and leave freely; they map the file read-only and cannot harm it.
//!
//! ```
//! use tapeworks_ring::broadcast::{Read, Reader, Start, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("broadcast-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("trades");
//! // On Linux a path below /dev/shm stays in memory.
//! const TRADES: u64 = 1; // a number for the meaning of the words, given by both sides
//! let mut writer = Writer::<[u64; 2]>::create(&path, 1024, TRADES)?;
//! let mut reader = Reader::<[u64; 2]>::attach(&path, TRADES, Start::Newest)?;
//! writer.publish(&[1, 100]);
//! assert_eq!(reader.read(), Read::Item([1, 100]));
//! assert_eq!(reader.read(), Read::Empty);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How
//! Each slot has the sequence of its item before the item's words: odd while they are written, even when they are whole. A
//! reader takes the sequence, the words and the sequence again; if it is the same and the one expected, the words belong
//! together. Words are atomic: reading an overwritten slot gives a wrong value, which is dropped, and is not undefined
//! behaviour.
//!
//! Cost: the writer stores the item's words and three more, no call, no atomic read-modify-write. A reader copies the
//! item's words; the lines come from the writer's core, or from the last level of the cache when the reader is behind.
//!
//! # The file
//! A page of header, then the slots. The writer holds a write lock on its first byte (`F_OFD_SETLK`), which ends with its process: so others
//! distinguish a file in use from one left behind. Readers only test for the lock and take none, and only a process that may write the file
//! can hold one, so a reader cannot prevent a writer from starting. A new writer makes a new file in its place; readers of the old one see
//! [`Reader::is_writer_alive`] turn false and attach anew. Truncating the file while it is mapped kills its readers with a bus error, as
//! with every mapped file: only the writer should write to it.

#[cfg(not(loom))]
pub use self::file::{AttachError, CreateError, Reader, Start, Writer};
use crate::sync::{AtomicU64, Ordering, fence};

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read<T> {
    /// The next item.
    Item(T),
    /// Nothing new.
    Empty,
    /// The writer overran this reader: so many items are lost. The next read goes on behind them.
    Lost(u64),
    /// Everything is read, and the writer has closed the file.
    Closed,
}

/// Writes an item's words into a slot as the item numbered `number`.
#[inline(always)]
fn write_slot(sequence: &AtomicU64, words: &[AtomicU64], item: impl Iterator<Item = u64>, number: u64) {
    sequence.store(number.wrapping_mul(2).wrapping_add(1), Ordering::Relaxed);
    // A reader that sees one of the words also sees that they are being written.
    fence(Ordering::Release);
    for (word, value) in words.iter().zip(item) {
        word.store(value, Ordering::Relaxed);
    }
    sequence.store(number.wrapping_mul(2).wrapping_add(2), Ordering::Release);
}

/// The state of a slot for a reader that waits for the item numbered `number`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// That item; it was copied.
    Item,
    /// An older item, or that one half written.
    NotYet,
    /// A newer item.
    Overrun,
}

/// Reads the item numbered `number` from a slot into its bytes, if it is there.
#[inline(always)]
fn read_slot(sequence: &AtomicU64, words: &[AtomicU64], into: &mut [u8], number: u64) -> Found {
    let whole = number.wrapping_mul(2).wrapping_add(2);
    let before = sequence.load(Ordering::Acquire);
    if before != whole {
        return if before < whole { Found::NotYet } else { Found::Overrun };
    }
    for (word, bytes) in words.iter().zip(into.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    // A reader that saw a newer word sees, behind this, that it was being written.
    fence(Ordering::Acquire);
    if sequence.load(Ordering::Relaxed) == whole { Found::Item } else { Found::Overrun }
}

#[cfg(not(loom))]
mod file {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::marker::PhantomData;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    use std::path::{Path, PathBuf};
    use std::time::{SystemTime, UNIX_EPOCH};

    use memmap2::{MmapOptions, MmapRaw};
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    use super::{AtomicU64, Found, Ordering, Read, read_slot, write_slot};

    /// The first word of the file: says what it is, and in which version.
    const MAGIC: u64 = u64::from_le_bytes(*b"TWBCAST1");
    /// Words of the header, by place.
    const ITEM_BYTES: usize = 1;
    const CAPACITY: usize = 2;
    const MEANING: usize = 3;
    const FILE_BYTES: usize = 4;
    const WRITER: usize = 5;
    const SESSION: usize = 6;
    /// Items published, in a line of its own.
    const CURSOR: usize = 16;
    /// 1 when the writer has closed the file, in a line of its own.
    const CLOSED: usize = 32;
    /// Words of the header: one page.
    const HEADER: usize = 512;

    /// No item has a greater number: 146 years at a thousand million a second.
    const MAX_NUMBER: u64 = u64::MAX >> 2;

    /// The most items of a file.
    const MAX_CAPACITY: usize = 1 << 40;

    /// Why a file could not be made.
    #[derive(Debug, thiserror::Error)]
    pub enum CreateError {
        /// An item must be some whole words of eight bytes.
        #[error("an item of {bytes} bytes is not a whole number of 8-byte words")]
        ItemSize {
            /// Its bytes.
            bytes: usize,
        },
        /// Too many items.
        #[error("{capacity} items of {bytes} bytes do not fit into a file")]
        TooLarge {
            /// Items requested.
            capacity: usize,
            /// Bytes of one.
            bytes: usize,
        },
        /// A writer that lives has this file.
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

    /// Why a reader could not attach.
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
        /// The file is no broadcast, or of another version.
        #[error("{}: not a broadcast file of this version", path.display())]
        NotABroadcast {
            /// The file.
            path: PathBuf,
        },
        /// The file is shorter than its header says, or its header makes no sense.
        #[error("{}: cut or damaged: {bytes} bytes, its header says {expected}", path.display())]
        Damaged {
            /// The file.
            path: PathBuf,
            /// Its bytes.
            bytes: u64,
            /// The bytes that its header says.
            expected: u64,
        },
        /// The items are of another size.
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
            /// The number that the writer gave.
            found: u64,
            /// The number requested.
            expected: u64,
        },
        /// The writer is gone: nothing new will come.
        #[error("{}: left behind by process {writer}, which no longer writes to it", path.display())]
        Stale {
            /// The file.
            path: PathBuf,
            /// The process that wrote it.
            writer: u64,
        },
    }

    /// A mapped file as words.
    #[derive(Debug)]
    struct Words {
        map: MmapRaw,
        words: usize,
    }

    impl Words {
        #[inline(always)]
        fn get(&self, from: usize, count: usize) -> &[AtomicU64] {
            assert!(from + count <= self.words, "inside the file");
            // SAFETY: the range lies inside the mapping (asserted), which is aligned to a page and lives as long as `self`.
            // Every user of it, in this process or another, uses atomic words too, so there is no data race. A reader's
            // mapping is read-only, and a reader only loads.
            unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().cast::<AtomicU64>().add(from), count) }
        }

        #[inline(always)]
        fn word(&self, at: usize) -> &AtomicU64 {
            &self.get(at, 1)[0]
        }
    }

    /// The words of a slot: its sequence and its item.
    const fn stride<T>() -> usize {
        1 + size_of::<T>() / 8
    }

    /// A private new file beside `path`: two writers that begin at once never share it, whatever their
    /// processes or containers.
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

    /// The byte that a writer holds as long as it lives.
    const ALIVE: libc::off_t = 0;
    /// The byte that a new writer holds while it replaces a file left behind.
    const SUCCESSION: libc::off_t = 1;

    /// A lock on one byte of a file, as the kernel takes it.
    fn lock_of(byte: libc::off_t, kind: libc::c_int) -> libc::flock {
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: byte,
            l_len: 1,
            l_pid: 0,
        }
    }

    /// Locks a byte of a file that is open for writing; `false` if another process has it. The lock ends with the last
    /// descriptor, those of child processes included that have not begun their program yet.
    fn try_lock(file: &File, byte: libc::off_t) -> io::Result<bool> {
        set_lock(file, lock_of(byte, libc::F_WRLCK))
    }

    /// Unlocks a byte of a file, also for other processes that have the descriptor.
    fn unlock(file: &File, byte: libc::off_t) {
        // Without it the lock ends with the last descriptor.
        let _closed_soon = set_lock(file, lock_of(byte, libc::F_UNLCK));
    }

    fn set_lock(file: &File, lock: libc::flock) -> io::Result<bool> {
        // SAFETY: the descriptor is open, and the lock is a valid one that lives through the call.
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

    /// Whether a process has a write lock on a byte of a file. Read locks, which any reader can take, do not count.
    fn is_write_locked(file: &File, byte: libc::off_t) -> bool {
        let mut lock = lock_of(byte, libc::F_RDLCK);
        // SAFETY: the descriptor is open, and the lock is a valid one that lives through the call.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Opens a regular file; it does not wait for the other end of a pipe.
    fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }

    /// Moves `new` to `path`, unless a living writer has that file. Returns whether it did. Of several writers at once, one
    /// does: a new file is made by a link, which fails if there is one; a file left behind is replaced by the writer that has
    /// locked its second byte.
    fn take_place(new: &Path, path: &Path) -> io::Result<bool> {
        loop {
            let old = match open_regular(OpenOptions::new().write(true), path) {
                Ok(old) => old,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match std::fs::hard_link(new, path) {
                        Ok(()) => {
                            std::fs::remove_file(new)?;
                            return Ok(true);
                        }
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_symlink() => {
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            if is_write_locked(&old, ALIVE) || !try_lock(&old, SUCCESSION)? {
                return Ok(false);
            }
            // The process that held the succession before has moved its own file here.
            let (opened, there) = (old.metadata()?, std::fs::metadata(path)?);
            if (opened.dev(), opened.ino()) == (there.dev(), there.ino()) {
                std::fs::rename(new, path)?;
                return Ok(true);
            }
        }
    }

    /// The end that publishes. There is one; dropping it closes the file.
    #[derive(Debug)]
    pub struct Writer<T> {
        words: Words,
        next: u64,
        mask: u64,
        /// Open for its lock.
        file: File,
        items: PhantomData<fn(T)>,
    }

    impl<T: FromBytes + IntoBytes + Immutable + Copy> Writer<T> {
        /// Makes the file for `capacity` items (rounded up to a power of two), replacing an old one. `meaning` is any number
        /// that identifies the layout of an item: readers must give the same.
        ///
        /// # Errors
        /// When the file cannot be made, or a living writer has it.
        pub fn create(path: &Path, capacity: usize, meaning: u64) -> Result<Self, CreateError> {
            let item_bytes = size_of::<T>();
            if item_bytes == 0 || !item_bytes.is_multiple_of(8) {
                return Err(CreateError::ItemSize { bytes: item_bytes });
            }
            let too_large = || CreateError::TooLarge { capacity, bytes: item_bytes };
            let capacity =
                Some(capacity.max(1)).filter(|capacity| *capacity <= MAX_CAPACITY).ok_or_else(too_large)?;
            let capacity = capacity.next_power_of_two();
            let words = capacity.checked_mul(stride::<T>()).and_then(|words| words.checked_add(HEADER));
            let words = words.filter(|words| *words <= isize::MAX as usize / 8).ok_or_else(too_large)?;
            let failed = |error| CreateError::Io { path: path.to_owned(), error };

            // Made under another name and moved into its place when it is complete: no reader ever sees half a header.
            let (new, file) = beside(path).map_err(failed)?;
            let made = Self::fill(&file, words, capacity, meaning)
                .and_then(|map| Ok(take_place(&new, path)?.then_some(map)));
            if !matches!(made, Ok(Some(_))) {
                drop(std::fs::remove_file(&new));
            }
            let map = made.map_err(failed)?.ok_or_else(|| CreateError::InUse { path: path.to_owned() })?;
            Ok(Self { words: map, next: 0, mask: capacity as u64 - 1, file, items: PhantomData })
        }

        fn fill(file: &File, words: usize, capacity: usize, meaning: u64) -> io::Result<Words> {
            // The lock says that the writer lives.
            if !try_lock(file, ALIVE)? {
                return Err(io::Error::other("a new file is locked by another process"));
            }
            // The space is taken now: a full file system is an error here and not a bus error later.
            // SAFETY: the descriptor is open; the call touches no memory.
            let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, words as libc::off_t * 8) };
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let words = Words { map: MmapOptions::new().len(words * 8).map_raw(file)?, words };
            let started =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            for (place, value) in [
                (ITEM_BYTES, size_of::<T>() as u64),
                (CAPACITY, capacity as u64),
                (MEANING, meaning),
                (FILE_BYTES, words.words as u64 * 8),
                (WRITER, u64::from(std::process::id())),
                (SESSION, started),
                (0, MAGIC),
            ] {
                words.word(place).store(value, Ordering::Release);
            }
            Ok(words)
        }

        /// Publishes one item. Never waits.
        #[inline]
        pub fn publish(&mut self, item: &T) {
            let slot = HEADER + (self.next & self.mask) as usize * stride::<T>();
            let [sequence, words @ ..] = self.words.get(slot, stride::<T>()) else { return };
            let bytes = item.as_bytes().chunks_exact(8);
            let item = bytes.map(|word| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
            write_slot(sequence, words, item, self.next);
            self.next += 1;
            self.words.word(CURSOR).store(self.next, Ordering::Release);
        }

        /// Items published.
        pub const fn published(&self) -> u64 {
            self.next
        }

        /// Items that a reader may be behind before it is overrun.
        pub const fn capacity(&self) -> u64 {
            self.mask + 1
        }
    }

    impl<T> Drop for Writer<T> {
        fn drop(&mut self) {
            self.words.word(CLOSED).store(1, Ordering::Release);
            unlock(&self.file, ALIVE);
        }
    }

    /// Where a reader begins.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Start {
        /// With what is published from now on.
        Newest,
        /// With the oldest item that is safe from being overwritten for a while.
        Oldest,
    }

    /// An end that reads. Any number of them, in any process.
    #[derive(Debug)]
    pub struct Reader<T> {
        words: Words,
        next: u64,
        mask: u64,
        lost: u64,
        file: File,
        items: PhantomData<fn() -> T>,
    }

    impl<T: FromBytes + IntoBytes + Immutable + Copy> Reader<T> {
        /// Attaches to a file that a writer holds. `meaning` must be the writer's.
        ///
        /// # Errors
        /// When the file is no broadcast, is cut, holds other items, or has no living writer.
        pub fn attach(path: &Path, meaning: u64, start: Start) -> Result<Self, AttachError> {
            let at = || path.to_owned();
            let failed = |error| AttachError::Io { path: at(), error };
            let file = open_regular(&mut OpenOptions::new(), path).map_err(failed)?;
            let bytes = file.metadata().map_err(failed)?.len();
            if bytes < HEADER as u64 * 8 {
                // Too short for a header: of ours, if it begins as ours do.
                let mut first = [0; 8];
                let is_ours = io::Read::read_exact(&mut &file, &mut first).is_ok()
                    && u64::from_le_bytes(first) == MAGIC;
                return Err(match is_ours {
                    true => AttachError::Damaged { path: at(), bytes, expected: HEADER as u64 * 8 },
                    false => AttachError::NotABroadcast { path: at() },
                });
            }
            let words = (bytes / 8) as usize;
            let map = MmapOptions::new().len(words * 8).map_raw_read_only(&file).map_err(failed)?;
            let words = Words { map, words };
            let header = |place| words.word(place).load(Ordering::Acquire);
            if header(0) != MAGIC {
                return Err(AttachError::NotABroadcast { path: at() });
            }
            let (found, expected) = (header(ITEM_BYTES), size_of::<T>() as u64);
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
                capacity.checked_mul(stride::<T>())?.checked_add(HEADER)?.checked_mul(8)
            });
            if bytes < expected || needed.is_none_or(|needed| needed as u64 != expected) {
                return Err(AttachError::Damaged { path: at(), bytes, expected });
            }
            let writer = header(WRITER);
            let mut reader = Self { words, next: 0, mask: capacity - 1, lost: 0, file, items: PhantomData };
            if !reader.is_writer_alive() {
                return Err(AttachError::Stale { path: at(), writer });
            }
            reader.next = match start {
                Start::Newest => reader.cursor(),
                Start::Oldest => reader.oldest_safe(),
            };
            Ok(reader)
        }

        #[inline(always)]
        fn cursor(&self) -> u64 {
            // More than can ever be published is damage; numbers up to here can be counted on without overflow.
            self.words.word(CURSOR).load(Ordering::Acquire).min(MAX_NUMBER)
        }

        /// The oldest item that is still a quarter of the ring away from being overwritten.
        fn oldest_safe(&self) -> u64 {
            let capacity = self.mask + 1;
            self.cursor().saturating_sub(capacity - capacity / 4)
        }

        /// The next item, if it is there.
        #[inline]
        pub fn read(&mut self) -> Read<T> {
            let slot = HEADER + (self.next & self.mask) as usize * stride::<T>();
            let [sequence, words @ ..] = self.words.get(slot, stride::<T>()) else { return Read::Empty };
            let mut item = T::new_zeroed();
            // Any bytes are a `T`: a half overwritten value is valid and dropped.
            match read_slot(sequence, words, item.as_mut_bytes(), self.next) {
                Found::Item => {
                    self.next += 1;
                    Read::Item(item)
                }
                Found::NotYet => self.nothing(),
                Found::Overrun => self.overrun(),
            }
        }

        #[cold]
        fn overrun(&mut self) -> Read<T> {
            // At least one item is lost, even if the writer's cursor does not show it yet.
            let resume = self.oldest_safe().max(self.next + 1);
            let lost = resume - self.next;
            self.next = resume;
            self.lost = self.lost.saturating_add(lost);
            Read::Lost(lost)
        }

        #[cold]
        fn nothing(&self) -> Read<T> {
            if self.words.word(CLOSED).load(Ordering::Acquire) != 0 && self.cursor() == self.next {
                Read::Closed
            } else {
                Read::Empty
            }
        }

        /// Whether the writer lives. It is a system call: use it when nothing has come for a while.
        pub fn is_writer_alive(&self) -> bool {
            is_write_locked(&self.file, ALIVE)
        }

        /// Items lost so far.
        pub const fn lost(&self) -> u64 {
            self.lost
        }

        /// Items published that this reader has not read.
        pub fn lag(&self) -> u64 {
            self.cursor().saturating_sub(self.next)
        }

        /// When the writer made the file, in nanoseconds since 1970: distinguishes one session from the next.
        pub fn session(&self) -> u64 {
            self.words.word(SESSION).load(Ordering::Acquire)
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn words_of_two_items_are_never_mixed() {
        loom::model(|| {
            let slot = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let writing = Arc::clone(&slot);
            let writer = thread::spawn(move || {
                write_slot(&writing.0, &writing.1, [1, 1].into_iter(), 0);
                write_slot(&writing.0, &writing.1, [2, 2].into_iter(), 1);
            });
            for number in 0..2 {
                let mut bytes = [0; 16];
                if read_slot(&slot.0, &slot.1, &mut bytes, number) == Found::Item {
                    let word = (number + 1).to_ne_bytes();
                    assert_eq!(bytes, [word, word].concat()[..]);
                }
            }
            writer.join().unwrap();
        });
    }
}
