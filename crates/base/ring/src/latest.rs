//! The latest value of each of many keys, for readers in other processes.
//!
//! One writer updates a file in shared memory. A late reader sees every value immediately, and an infrequent reader skips
//! intermediate values. Unlike with [`broadcast`](crate::broadcast), there is no stream to keep up with.
//!
//! ```
//! use tapeworks_ring::latest::{Reader, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("latest-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("quotes");
//! const QUOTES: u64 = 1; // a number for the meaning of the words, given by both sides
//! let mut writer = Writer::<u64, [u64; 2]>::create(&path, 1024, QUOTES)?;
//! let place = writer.place(&7).ok_or("full")?;
//! writer.set(place, &[100, 101]);
//! let reader = Reader::<u64, [u64; 2]>::attach(&path, QUOTES)?;
//! let place = reader.find(&7).ok_or("no such key")?;
//! assert_eq!(reader.get(place), Some([100, 101]));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! The file is a hash table with linear probing that only grows. A key keeps its place for the life of the file, so a reader
//! looks it up once. Each slot holds a sequence, then its words. The sequence is odd while they are being written, even once they
//! are complete, and 0 if the slot has no key. A reader reads the sequence, the words, and the sequence again, and retries if it
//! changed.
//!
//! Cost: the writer stores the words of the key and the value and two more; a reader copies them.

#[cfg(not(loom))]
pub use self::file::{Place, Reader, Writer};
#[cfg(not(loom))]
pub use crate::shared_file::{AttachError, CreateError};
use crate::sync::{AtomicU64, Ordering, fence};

/// The state of a slot for a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// No key.
    Empty,
    /// A key and a value, which were copied.
    Whole,
    /// The slot was being written.
    Changing,
}

/// Copies a slot into pieces of eight bytes.
#[inline(always)]
fn read_slot<'a>(
    sequence: &AtomicU64,
    words: &[AtomicU64],
    into: impl Iterator<Item = &'a mut [u8]>,
) -> Slot {
    let before = sequence.load(Ordering::Acquire);
    if before == 0 {
        return Slot::Empty;
    }
    if !before.is_multiple_of(2) {
        return Slot::Changing;
    }
    for (word, bytes) in words.iter().zip(into) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    // After this fence, a reader that saw a newer word also sees the newer sequence.
    fence(Ordering::Acquire);
    if sequence.load(Ordering::Relaxed) == before { Slot::Whole } else { Slot::Changing }
}

#[cfg(not(loom))]
mod file {
    use std::marker::PhantomData;
    use std::path::Path;

    use zerocopy::{FromBytes, Immutable, IntoBytes};

    use super::{AtomicU64, Slot, read_slot};
    use crate::broadcast::write_slot;
    use crate::shared_file::{
        AttachError, Attached, CURSOR, CreateError, HEADER, HEARTBEAT, Kind, Words, Written, stride,
    };
    use crate::sync::Ordering;

    const LATEST: Kind = Kind { magic: u64::from_le_bytes(*b"TWLATST1"), name: "latest-value" };

    /// Attempts to read a slot before a reader gives up, assuming that the writer stopped in the middle of it.
    const LOOKS: u32 = 100_000;

    /// The place of a key in a file, valid as long as its writer has the file.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Place(u64);

    /// FNV-1a of the key's bytes, folded to improve the low bits.
    fn hash(key: &[u8]) -> u64 {
        let sum = crate::hash::fnv1a(key);
        sum ^ (sum >> 32)
    }

    /// Returns the sequence and the words of a slot.
    #[inline(always)]
    fn slot<K, V>(words: &Words, place: u64) -> Option<(&AtomicU64, &[AtomicU64])> {
        let stride = stride(size_of::<K>() + size_of::<V>());
        words.get(HEADER + place as usize * stride, stride).split_first()
    }

    /// Reads a slot, retrying if it changes. Returns `None` if it has no key, or if the writer stopped in the middle of it.
    #[inline]
    fn read<K, V>(words: &Words, place: u64) -> Option<(K, V)>
    where
        K: FromBytes + IntoBytes,
        V: FromBytes + IntoBytes,
    {
        let (sequence, words) = slot::<K, V>(words, place)?;
        // Any bytes are a valid key and value, so half overwritten ones are valid too, and are dropped.
        let (mut key, mut value) = (K::new_zeroed(), V::new_zeroed());
        for _ in 0..LOOKS {
            let pieces =
                key.as_mut_bytes().chunks_exact_mut(8).chain(value.as_mut_bytes().chunks_exact_mut(8));
            match read_slot(sequence, words, pieces) {
                Slot::Whole => return Some((key, value)),
                Slot::Empty => return None,
                Slot::Changing => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Returns the bytes of a slot's words, or 0, which no file accepts, if either size is not a multiple of 8.
    const fn item_bytes<K, V>() -> usize {
        if size_of::<K>().is_multiple_of(8) && size_of::<V>().is_multiple_of(8) {
            size_of::<K>() + size_of::<V>()
        } else {
            0
        }
    }

    /// The writing end. There is only one; dropping it closes the file.
    #[derive(Debug)]
    pub struct Writer<K, V> {
        file: Written,
        mask: u64,
        keys: u64,
        items: PhantomData<fn(K, V)>,
    }

    impl<K, V> Writer<K, V>
    where
        K: FromBytes + IntoBytes + Immutable + Copy + PartialEq,
        V: FromBytes + IntoBytes + Immutable + Copy,
    {
        /// Creates the file with room for `keys` keys, replacing an old one. `meaning` is any number that identifies the layout
        /// of a key and a value; readers must pass the same. The sizes of both must be multiples of eight bytes.
        ///
        /// # Errors
        /// If the file cannot be created, or a live writer holds it.
        pub fn create(path: &Path, keys: usize, meaning: u64) -> Result<Self, CreateError> {
            // Use at most half of the slots, so that probing stays short.
            let (file, capacity) =
                Written::create(path, &LATEST, item_bytes::<K, V>(), keys.saturating_mul(2), meaning)?;
            Ok(Self { file, mask: capacity - 1, keys: 0, items: PhantomData })
        }

        /// Returns the place of a key, adding the key if it is new. Returns `None` if the file is full.
        pub fn place(&mut self, key: &K) -> Option<Place> {
            let mut place = hash(key.as_bytes()) & self.mask;
            while let Some(pair) = read::<K, V>(&self.file.words, place) {
                if pair.0 == *key {
                    return Some(Place(place));
                }
                place = (place + 1) & self.mask;
            }
            if self.keys > self.mask / 2 {
                return None;
            }
            self.keys += 1;
            self.write(place, key, &V::new_zeroed());
            self.file.words.word(CURSOR).store(self.keys, Ordering::Release);
            Some(Place(place))
        }

        /// Sets the value of a key. Never waits.
        #[inline]
        pub fn set(&mut self, Place(place): Place, value: &V) {
            if let Some(pair) = read::<K, V>(&self.file.words, place) {
                self.write(place, &pair.0, value);
            }
        }

        #[inline]
        fn write(&mut self, place: u64, key: &K, value: &V) {
            let Some((sequence, words)) = slot::<K, V>(&self.file.words, place) else { return };
            let bytes = key.as_bytes().chunks_exact(8).chain(value.as_bytes().chunks_exact(8));
            let pair = bytes.map(|word| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
            // Only this end writes: the sequence is 2 after the first write, then 4.
            write_slot(sequence, words, pair, sequence.load(Ordering::Relaxed) / 2);
        }

        /// Sets the heartbeat to a number that differs from the last one. The writer of rarely changing values sets it at regular
        /// intervals, so that readers know the latest value still holds.
        #[inline]
        pub fn beat(&mut self, number: u64) {
            self.file.words.word(HEARTBEAT).store(number, Ordering::Release);
        }

        /// Returns the number of keys.
        #[must_use]
        pub const fn keys(&self) -> u64 {
            self.keys
        }
    }

    /// A reading end. There may be any number, in any process.
    #[derive(Debug)]
    pub struct Reader<K, V> {
        file: Attached,
        mask: u64,
        items: PhantomData<fn() -> (K, V)>,
    }

    impl<K, V> Reader<K, V>
    where
        K: FromBytes + IntoBytes + Immutable + Copy + PartialEq,
        V: FromBytes + IntoBytes + Immutable + Copy,
    {
        /// Attaches to a file that a writer holds. `meaning` must be the writer's.
        ///
        /// # Errors
        /// If the file is of another kind, is truncated, holds other keys or values, or has no live writer.
        pub fn attach(path: &Path, meaning: u64) -> Result<Self, AttachError> {
            let (file, capacity) = Attached::open(path, &LATEST, item_bytes::<K, V>(), meaning)?;
            Ok(Self { file, mask: capacity - 1, items: PhantomData })
        }

        /// Returns the place of a key, if the writer has added it.
        #[must_use]
        pub fn find(&self, key: &K) -> Option<Place> {
            let mut place = hash(key.as_bytes()) & self.mask;
            for _ in 0..=self.mask {
                if read::<K, V>(&self.file.words, place)?.0 == *key {
                    return Some(Place(place));
                }
                place = (place + 1) & self.mask;
            }
            None
        }

        /// Returns the latest value of a key, or `None` if the writer stopped in the middle of writing it.
        #[inline]
        #[must_use]
        pub fn get(&self, Place(place): Place) -> Option<V> {
            read::<K, V>(&self.file.words, place & self.mask).map(|(_, value)| value)
        }

        /// Returns the number of keys.
        #[must_use]
        pub fn keys(&self) -> u64 {
            self.file.words.word(CURSOR).load(Ordering::Acquire)
        }

        /// Returns the heartbeat, which stops changing if the writer hangs. It is 0 before the first one.
        #[inline]
        #[must_use]
        pub fn heartbeat(&self) -> u64 {
            self.file.words.word(HEARTBEAT).load(Ordering::Acquire)
        }

        /// Returns whether the writer's process is alive. This is a system call: check periodically, not for each value.
        #[must_use]
        pub fn is_writer_alive(&self) -> bool {
            self.file.is_writer_alive()
        }

        /// Returns when the writer created the file, in nanoseconds since 1970, which identifies the session.
        #[must_use]
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
    use crate::broadcast::write_slot;

    #[test]
    fn words_of_two_values_are_never_mixed() {
        loom::model(|| {
            let slot = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let writing = Arc::clone(&slot);
            let writer = thread::spawn(move || {
                write_slot(&writing.0, &writing.1, [1, 1].into_iter(), 0);
                write_slot(&writing.0, &writing.1, [2, 2].into_iter(), 1);
            });
            let mut newest = 0;
            for _ in 0..2 {
                let mut bytes = [0; 16];
                if read_slot(&slot.0, &slot.1, bytes.chunks_exact_mut(8)) == Slot::Whole {
                    let value = u64::from_ne_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(bytes, [value.to_ne_bytes(), value.to_ne_bytes()].concat()[..]);
                    assert!(value >= newest && value > 0);
                    newest = value;
                }
            }
            writer.join().unwrap();
        });
    }
}
