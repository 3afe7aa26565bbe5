//! One writer and any number of readers in other processes, over a file in shared memory.
//!
//! The writer never waits and never looks at the readers. A slow reader is overrun, gets the number of lost items, and continues.
//! Readers attach and leave freely; they map the file read-only and cannot damage it.
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
//! # How it works
//! Each slot holds a sequence, then the words of its item. The sequence is odd while the words are being written and even once
//! they are complete. A reader reads the sequence, the words, and the sequence again. If the sequence is unchanged and the
//! expected one, the words belong together. Words are atomic, so reading an overwritten slot is not undefined behavior: it yields
//! a wrong value, which is dropped.
//!
//! Cost: the writer stores the item's words and three more, with no call and no atomic read-modify-write. A reader copies the
//! item's words; their lines come from the writer's core, or from the last-level cache if the reader lags.
//!
//! # The file
//! One page of header, then the slots. The writer holds a write lock on the first byte (`F_OFD_SETLK`), which ends with its
//! process, so that others can distinguish a live file from an abandoned one. Readers only test the lock. Locking requires write
//! access to the file, so a reader cannot prevent a writer from starting. A new writer replaces the file with a new one; readers
//! of the old file see [`Reader::is_writer_alive`] turn false and attach again. As with any mapped file, truncating it kills the
//! readers with a bus error, so only the writer should be able to write to it.

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
    /// The writer overran this reader, and this many items are lost. The next read continues after them.
    Lost(u64),
    /// All items have been read, and the writer has closed the file.
    Closed,
}

/// Writes an item's words into a slot as item `number`.
#[inline(always)]
pub(crate) fn write_slot(
    sequence: &AtomicU64,
    words: &[AtomicU64],
    item: impl Iterator<Item = u64>,
    number: u64,
) {
    sequence.store(number.wrapping_mul(2).wrapping_add(1), Ordering::Relaxed);
    // A reader that sees one of the new words also sees the odd sequence.
    fence(Ordering::Release);
    for (word, value) in words.iter().zip(item) {
        word.store(value, Ordering::Relaxed);
    }
    sequence.store(number.wrapping_mul(2).wrapping_add(2), Ordering::Release);
}

/// The state of a slot for a reader that waits for item `number`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// The item, which was copied.
    Item,
    /// An older item, or the expected one half written.
    NotYet,
    /// A newer item.
    Overrun,
}

/// Copies item `number` from a slot into `into`, if the slot holds it.
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
    // After this fence, a reader that saw a newer word also sees the newer sequence.
    fence(Ordering::Acquire);
    if sequence.load(Ordering::Relaxed) == whole { Found::Item } else { Found::Overrun }
}

#[cfg(not(loom))]
mod file {
    use std::marker::PhantomData;
    use std::path::Path;

    use zerocopy::{FromBytes, Immutable, IntoBytes};

    use super::{Found, Ordering, Read, read_slot, write_slot};
    pub use crate::shared_file::{AttachError, CreateError};
    use crate::shared_file::{Attached, CLOSED, CURSOR, HEADER, Kind, Written, stride};

    const BROADCAST: Kind = Kind { magic: u64::from_le_bytes(*b"TWBCAST1"), name: "broadcast" };

    /// The greatest item number: 146 years at a thousand million items per second.
    const MAX_NUMBER: u64 = u64::MAX >> 2;

    /// The publishing end. There is only one; dropping it closes the file.
    #[derive(Debug)]
    pub struct Writer<T> {
        file: Written,
        next: u64,
        mask: u64,
        items: PhantomData<fn(T)>,
    }

    impl<T: FromBytes + IntoBytes + Immutable + Copy> Writer<T> {
        /// Creates the file for `capacity` items (rounded up to a power of two), replacing an old one. `meaning` is any number
        /// that identifies the layout of an item; readers must pass the same.
        ///
        /// # Errors
        /// If the file cannot be created, or a live writer holds it.
        pub fn create(path: &Path, capacity: usize, meaning: u64) -> Result<Self, CreateError> {
            let (file, capacity) = Written::create(path, &BROADCAST, size_of::<T>(), capacity, meaning)?;
            Ok(Self { file, next: 0, mask: capacity - 1, items: PhantomData })
        }

        /// Publishes one item. Never waits.
        #[inline]
        pub fn publish(&mut self, item: &T) {
            let slot = HEADER + (self.next & self.mask) as usize * stride(size_of::<T>());
            let [sequence, words @ ..] = self.file.words.get(slot, stride(size_of::<T>())) else { return };
            let bytes = item.as_bytes().chunks_exact(8);
            let item = bytes.map(|word| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
            write_slot(sequence, words, item, self.next);
            self.next += 1;
            self.file.words.word(CURSOR).store(self.next, Ordering::Release);
        }

        /// Returns the number of items published.
        pub const fn published(&self) -> u64 {
            self.next
        }

        /// Returns how many items a reader may lag before it is overrun.
        pub const fn capacity(&self) -> u64 {
            self.mask + 1
        }
    }

    /// Where a reader starts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Start {
        /// At the next item published.
        Newest,
        /// At the oldest item that will not be overwritten soon.
        Oldest,
    }

    /// A reading end. There may be any number, in any process.
    #[derive(Debug)]
    pub struct Reader<T> {
        file: Attached,
        next: u64,
        mask: u64,
        lost: u64,
        items: PhantomData<fn() -> T>,
    }

    impl<T: FromBytes + IntoBytes + Immutable + Copy> Reader<T> {
        /// Attaches to a file that a writer holds. `meaning` must be the writer's.
        ///
        /// # Errors
        /// If the file is not a broadcast, is truncated, holds other items, or has no live writer.
        pub fn attach(path: &Path, meaning: u64, start: Start) -> Result<Self, AttachError> {
            let (file, capacity) = Attached::open(path, &BROADCAST, size_of::<T>(), meaning)?;
            let mut reader = Self { file, next: 0, mask: capacity - 1, lost: 0, items: PhantomData };
            reader.next = match start {
                Start::Newest => reader.cursor(),
                Start::Oldest => reader.oldest_safe(),
            };
            Ok(reader)
        }

        #[inline(always)]
        fn cursor(&self) -> u64 {
            // A larger number can only be damage. Numbers up to this one leave room to count without overflow.
            self.file.words.word(CURSOR).load(Ordering::Acquire).min(MAX_NUMBER)
        }

        /// Returns the oldest item that is still a quarter of the ring away from being overwritten.
        fn oldest_safe(&self) -> u64 {
            let capacity = self.mask + 1;
            self.cursor().saturating_sub(capacity - capacity / 4)
        }

        /// Reads the next item, if it was published.
        #[inline]
        pub fn read(&mut self) -> Read<T> {
            let slot = HEADER + (self.next & self.mask) as usize * stride(size_of::<T>());
            let [sequence, words @ ..] = self.file.words.get(slot, stride(size_of::<T>())) else {
                return Read::Empty;
            };
            let mut item = T::new_zeroed();
            // Any bytes are a valid `T`, so a half overwritten value is valid too, and is dropped.
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
            if self.file.words.word(CLOSED).load(Ordering::Acquire) != 0 && self.cursor() == self.next {
                Read::Closed
            } else {
                Read::Empty
            }
        }

        /// Returns whether the writer is alive. This is a system call: use it after a period without items.
        pub fn is_writer_alive(&self) -> bool {
            self.file.is_writer_alive()
        }

        /// Returns the number of items lost so far.
        pub const fn lost(&self) -> u64 {
            self.lost
        }

        /// Returns the number of published items that this reader has not read.
        pub fn lag(&self) -> u64 {
            self.cursor().saturating_sub(self.next)
        }

        /// Returns when the writer created the file, in nanoseconds since 1970, which identifies the session.
        pub fn session(&self) -> u64 {
            self.file.session()
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
