//! Blocks filled by one thread ahead of the thread that consumes them: decompressed bytes, messages of a generated session.
//!
//! The producer has [`BLOCKS`] blocks and waits when none is empty, so memory does not grow with the input. The consumer receives
//! the blocks in order, and an error after the blocks before it. Dropping an [`Ahead`] ends the thread.
//!
//! Cost: two channel operations per block.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Size of a block of bytes: with its copy, a quarter of what the L2 cache holds.
const BLOCK_BYTES: usize = 256 << 10;

/// Number of blocks that are filled, being filled, or being consumed.
const BLOCKS: usize = 4;

/// How the producer continues after a block: `None` for another block, otherwise this was the last one, or an error follows it.
pub(crate) type End = Option<io::Result<()>>;

/// What the thread sends: a block, or, after the last block, an error or `None` for the end.
type Sent<B> = Option<io::Result<B>>;

/// The consumer's end.
pub(crate) struct Ahead<B> {
    /// `None` once the consumer is dropped.
    full: Option<Receiver<Sent<B>>>,
    empty: Option<Sender<B>>,
    has_ended: bool,
    thread: Option<JoinHandle<()>>,
    name: &'static str,
}

impl<B: Default + Send + 'static> Ahead<B> {
    /// Starts a thread of this name that calls `fill` for one block after the other. A reused block keeps its earlier contents.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(
        name: &'static str,
        mut fill: impl FnMut(&mut B) -> End + Send + 'static,
    ) -> io::Result<Self> {
        let (to_taker, full) = mpsc::channel();
        let (empty, to_thread) = mpsc::channel::<B>();
        for _ in 0..BLOCKS {
            // The receiver exists, so this cannot fail.
            let _sent = empty.send(B::default());
        }
        let run = move || {
            while let Ok(mut block) = to_thread.recv() {
                let end = fill(&mut block);
                // The consumer was dropped and needs no more.
                if to_taker.send(Some(Ok(block))).is_err() {
                    return;
                }
                if let Some(end) = end {
                    let _unwanted = to_taker.send(end.err().map(Err));
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { full: Some(full), empty: Some(empty), has_ended: false, thread: Some(thread), name })
    }

    /// Waits for the next block, and returns the block `taken` to the producer. `None` at the end, also after an error.
    ///
    /// # Errors
    /// The thread's error, once; or the thread has panicked.
    pub(crate) fn next(&mut self, taken: Option<B>) -> io::Result<Option<B>> {
        if let (Some(block), Some(empty)) = (taken, &self.empty) {
            // A thread that has reached the end needs no blocks.
            let _unwanted = empty.send(block);
        }
        if self.has_ended {
            return Ok(None);
        }
        let sent = self.full.as_ref().and_then(|full| full.recv().ok());
        let Some(sent) = sent else {
            self.has_ended = true;
            return Err(io::Error::other(format!("the thread `{}` has ended", self.name)));
        };
        self.has_ended = !matches!(sent, Some(Ok(_)));
        sent.transpose()
    }
}

impl<B> Drop for Ahead<B> {
    fn drop(&mut self) {
        // Both channels are closed now, so the thread ends after the block that it is filling.
        (self.full, self.empty) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// A buffer and how much of it is filled.
#[derive(Default)]
struct Bytes {
    bytes: Vec<u8>,
    filled: usize,
}

/// Reads what a thread decompresses. The bytes are the same as without the thread, and errors occur at the same place, so that
/// they have the same packet number and offset. The extra cost is one copy of each byte.
pub(crate) struct Decompressed {
    ahead: Ahead<Bytes>,
    block: Option<Bytes>,
    /// Number of bytes of `block` already read.
    at: usize,
}

impl Decompressed {
    /// Starts a thread that reads `decoder`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(mut decoder: Box<dyn Read + Send>) -> io::Result<Self> {
        let ahead = Ahead::start("decompress", move |block| decompress(&mut decoder, block))?;
        Ok(Self { ahead, block: None, at: 0 })
    }
}

impl Read for Decompressed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.block.as_ref().map_or(&[][..], |block| &block.bytes[self.at..block.filled]);
            if !left.is_empty() || to.is_empty() {
                let count = left.len().min(to.len());
                to[..count].copy_from_slice(&left[..count]);
                self.at += count;
                return Ok(count);
            }
            let read = self.block.take();
            self.at = 0;
            self.block = self.ahead.next(read)?;
            if self.block.is_none() {
                return Ok(0);
            }
        }
    }
}

/// Fills a block; returns how the file ends if it ends in this block.
fn decompress(decoder: &mut dyn Read, block: &mut Bytes) -> End {
    block.bytes.resize(BLOCK_BYTES, 0);
    block.filled = 0;
    while block.filled < BLOCK_BYTES {
        match decoder.read(&mut block.bytes[block.filled..]) {
            Ok(0) => return Some(Ok(())),
            Ok(count) => block.filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(Err(error)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields `left` bytes a few at a time, then fails or ends.
    struct Slow {
        left: usize,
        given: usize,
        fails: bool,
    }

    impl Read for Slow {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 {
                return if self.fails { Err(io::ErrorKind::InvalidData.into()) } else { Ok(0) };
            }
            let count = to.len().min(self.left).min(10_007);
            for byte in &mut to[..count] {
                *byte = (self.given % 251) as u8;
                self.given += 1;
            }
            self.left -= count;
            Ok(count)
        }
    }

    fn slow(left: usize, fails: bool) -> Decompressed {
        Decompressed::start(Box::new(Slow { left, given: 0, fails })).unwrap()
    }

    #[test]
    fn the_reader_gets_every_byte_and_then_the_end_again_and_again() {
        for length in [0, 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 17, 11 * BLOCK_BYTES] {
            let (mut ahead, mut bytes) = (slow(length, false), Vec::new());
            ahead.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), length);
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
            assert_eq!(ahead.read(&mut [0; 8]).unwrap(), 0);
        }
    }

    #[test]
    fn an_error_comes_after_the_bytes_before_it() {
        let (mut ahead, mut bytes) = (slow(2 * BLOCK_BYTES + 5, true), Vec::new());
        let error = ahead.read_to_end(&mut bytes).unwrap_err();
        assert_eq!((error.kind(), bytes.len()), (io::ErrorKind::InvalidData, 2 * BLOCK_BYTES + 5));
        assert_eq!(ahead.read(&mut [0; 8]).unwrap(), 0, "once");
    }

    #[test]
    fn dropping_the_reader_ends_a_thread_that_waits_for_it() {
        // Returns only when the thread has ended.
        drop(slow(usize::MAX, false));
        let mut begun = slow(usize::MAX, false);
        begun.read_exact(&mut vec![0; 2 * BLOCK_BYTES]).unwrap();
        drop(begun);
    }

    #[test]
    fn a_thread_that_panics_is_an_error_of_the_reader() {
        struct Panics;
        impl Read for Panics {
            fn read(&mut self, _to: &mut [u8]) -> io::Result<usize> {
                panic!("on purpose");
            }
        }
        let mut ahead = Decompressed::start(Box::new(Panics)).unwrap();
        let error = ahead.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.to_string(), "the thread `decompress` has ended");
    }
}
