//! Decompression of an input on a thread of its own.
//!
//! The thread decompresses [`BLOCKS`] blocks ahead of the reader and waits when they are full, so memory does not grow with the
//! file. The reader gets the same bytes as without the thread, and an error after the bytes before it, so errors have the same
//! packet number and offset. Dropping the reader ends the thread.
//!
//! Cost: one copy of each decompressed byte, and two channel operations for each block.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// The size of a block: a quarter of what fits into the second-level cache with its copy.
const BLOCK_BYTES: usize = 256 << 10;

/// Blocks that are filled, being filled, or being read.
const BLOCKS: usize = 4;

/// A block and how much of it is filled.
struct Block {
    bytes: Vec<u8>,
    filled: usize,
}

/// What the thread sends: a block, or, behind the last block, an error or `None` for the end.
type Sent = Option<io::Result<Block>>;

/// Reads what a thread has decompressed.
pub(crate) struct Ahead {
    /// `None` once this is dropped.
    full: Option<Receiver<Sent>>,
    empty: Option<Sender<Block>>,
    block: Option<Block>,
    /// How much of `block` is read.
    at: usize,
    has_ended: bool,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts a thread that reads `decoder`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(decoder: Box<dyn Read + Send>) -> io::Result<Self> {
        let (to_reader, full) = mpsc::channel();
        let (empty, to_thread) = mpsc::channel();
        for _ in 0..BLOCKS {
            // The other end is here, so it takes them.
            let _sent = empty.send(Block { bytes: Vec::new(), filled: 0 });
        }
        let builder = thread::Builder::new().name("decompress".to_owned());
        let thread = builder.spawn(move || decompress(decoder, &to_thread, &to_reader))?;
        Ok(Self {
            full: Some(full),
            empty: Some(empty),
            block: None,
            at: 0,
            has_ended: false,
            thread: Some(thread),
        })
    }

    /// Waits for the next block, and gives back the one that is read. `false` at the end.
    fn advance(&mut self) -> io::Result<bool> {
        if let (Some(block), Some(empty)) = (self.block.take(), &self.empty) {
            // A thread that has reached the end takes none.
            let _unwanted = empty.send(block);
        }
        self.at = 0;
        if self.has_ended {
            return Ok(false);
        }
        let sent = self.full.as_ref().and_then(|full| full.recv().ok());
        let Some(sent) = sent else {
            self.has_ended = true;
            return Err(io::Error::other("the thread that decompresses has ended"));
        };
        self.has_ended = !matches!(sent, Some(Ok(_)));
        self.block = sent.transpose()?;
        Ok(self.block.is_some())
    }
}

impl Read for Ahead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.block.as_ref().map_or(&[][..], |block| &block.bytes[self.at..block.filled]);
            if !left.is_empty() || to.is_empty() {
                let count = left.len().min(to.len());
                to[..count].copy_from_slice(&left[..count]);
                self.at += count;
                return Ok(count);
            }
            if !self.advance()? {
                return Ok(0);
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Both channels are closed, so the thread ends with the block that it is filling.
        (self.full, self.empty) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// The loop of the thread: take an empty block, fill it, send it.
fn decompress(mut decoder: Box<dyn Read + Send>, empty: &Receiver<Block>, full: &Sender<Sent>) {
    while let Ok(mut block) = empty.recv() {
        block.bytes.resize(BLOCK_BYTES, 0);
        block.filled = 0;
        // How the file ends, if it ends in this block.
        let mut end = None;
        while block.filled < BLOCK_BYTES && end.is_none() {
            match decoder.read(&mut block.bytes[block.filled..]) {
                Ok(0) => end = Some(None),
                Ok(count) => block.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => end = Some(Some(Err(error))),
            }
        }
        // A reader that is gone wants nothing more.
        if full.send(Some(Ok(block))).is_err() {
            return;
        }
        if let Some(end) = end {
            let _unwanted = full.send(end);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `left` bytes a few at a time, then fails or ends.
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

    fn slow(left: usize, fails: bool) -> Ahead {
        Ahead::start(Box::new(Slow { left, given: 0, fails })).unwrap()
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
        let mut ahead = Ahead::start(Box::new(Panics)).unwrap();
        let error = ahead.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.to_string(), "the thread that decompresses has ended");
    }
}
