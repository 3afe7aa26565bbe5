//! The bytes queued for one client.
//!
//! Bytes for several clients are shared: a chunk refers to a common buffer. Bytes for this client alone are collected in one
//! buffer. A turn ends with [`Outbox::seal`], which passes the turn's bytes to the compressor, if there is one.

use tapeworks_planted::planted;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::{Buf, Bytes};

/// Maximum number of chunks per write.
const SLICES: usize = 64;

/// Approximate maximum bytes per write, so that one client does not keep the others waiting.
const WRITE_BYTES: usize = 1 << 18;

/// The compression level: fast rather than small.
const ZSTD_LEVEL: i32 = 1;

type Compressor = zstd::stream::write::Encoder<'static, Vec<u8>>;

/// The maximum size of a Zstandard block (RFC 8878, section 3.1.1.2.3).
const BLOCK_BYTES: usize = 128 << 10;

/// A queue of bytes.
pub(super) struct Outbox {
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Number of chunks after the first that were put ahead of the others.
    put_before: usize,
    /// This turn's bytes for this client alone.
    own: Vec<u8>,
    compressor: Option<Box<Compressor>>,
    /// Whether the compressed stream was cut: the next bytes end it, in a block that does not refer to earlier ones.
    is_cut: bool,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbox({} bytes)", self.len())
    }
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            put_before: 0,
            own: Vec::new(),
            compressor: None,
            is_cut: false,
        }
    }

    /// Compresses all bytes queued from now on.
    pub(super) fn compress(&mut self) -> io::Result<()> {
        self.seal()?;
        self.compressor = Some(Box::new(Compressor::new(Vec::new(), ZSTD_LEVEL)?));
        Ok(())
    }

    /// Returns the queued bytes. This turn's bytes count before compression.
    pub(super) fn len(&self) -> usize {
        self.queued + self.own.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer for bytes of this client alone.
    pub(super) const fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends bytes that are shared with other clients.
    pub(super) fn share(&mut self, bytes: &Bytes) -> io::Result<()> {
        if self.compressor.is_some() {
            self.own.extend_from_slice(bytes);
            return Ok(());
        }
        self.seal()?;
        self.enqueue(bytes.clone());
        Ok(())
    }

    fn enqueue(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    /// Drops the queued bytes, except the chunk in transmission, which ends with a whole record, and the messages right after it.
    /// The next message follows, and ends a compressed stream. Returns the number of bytes dropped.
    pub(super) fn cut(&mut self) -> usize {
        let before = self.len();
        let kept = if planted!("cut-within-a-record") { 0 } else { 1 + self.put_before };
        self.queue.truncate(kept);
        self.queued = self.queue.iter().map(Bytes::len).sum();
        self.own.clear();
        self.is_cut = self.compressor.take().is_some();
        before - self.len()
    }

    /// Puts records ahead of the queued ones, right after the chunk in transmission. A compressed stream cannot be split: its
    /// records are appended.
    pub(super) fn put_next(&mut self, records: &[u8]) {
        if self.compressor.is_some() || self.queue.is_empty() {
            self.own.extend_from_slice(records);
        } else {
            self.queued += records.len();
            self.put_before += 1;
            self.queue.insert(self.put_before, Bytes::copy_from_slice(records));
        }
    }

    /// Makes the bytes queued so far ready to send.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        if self.own.is_empty() {
            return Ok(());
        }
        let bytes = match &mut self.compressor {
            Some(compressor) => {
                compressor.write_all(&self.own)?;
                compressor.flush()?;
                self.own.clear();
                std::mem::take(compressor.get_mut())
            }
            None if self.is_cut => raw_blocks(&std::mem::take(&mut self.own)),
            None => std::mem::take(&mut self.own),
        };
        self.enqueue(bytes.into());
        Ok(())
    }

    /// Writes as much as the peer takes, at most about [`WRITE_BYTES`]. Returns the number of bytes written.
    pub(super) fn write(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (mut count, mut bytes) = (0, 0);
        for (slice, chunk) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(chunk);
            (count, bytes) = (count + 1, bytes + chunk.len());
            if bytes >= WRITE_BYTES {
                break;
            }
        }
        if count == 0 {
            return Ok(0);
        }
        let written = to.write_vectored(slices.get(..count).unwrap_or_default())?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.take(written);
        Ok(written)
    }

    fn take(&mut self, mut written: usize) {
        self.queued -= written;
        while let Some(chunk) = self.queue.front_mut() {
            if written < chunk.len() {
                chunk.advance(written);
                return;
            }
            written -= chunk.len();
            self.queue.pop_front();
            self.put_before = self.put_before.saturating_sub(1);
        }
    }
}

/// Encodes bytes as the last blocks of a Zstandard frame, uncompressed (RFC 8878, section 3.1.1.2).
fn raw_blocks(bytes: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::with_capacity(bytes.len() + 3);
    let mut parts = bytes.chunks(BLOCK_BYTES).peekable();
    while let Some(part) = parts.next() {
        let is_last = u32::from(parts.peek().is_none());
        // At most 2^17 bytes, so the header fits three bytes.
        let header = is_last | (part.len() as u32) << 3;
        blocks.extend_from_slice(&header.to_le_bytes()[..3]);
        blocks.extend_from_slice(part);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Accepts this many bytes at a time.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns everything that is written, decompressed if it was compressed.
    fn all_of(outbox: &mut Outbox, mut slow: Slow, is_compressed: bool) -> Vec<u8> {
        while outbox.write(&mut slow).unwrap() > 0 {}
        assert!(outbox.is_empty());
        if !is_compressed {
            return slow.0;
        }
        // Decodes to the end of the frame, or fails.
        zstd::decode_all(&slow.0[..]).unwrap()
    }

    #[test]
    fn a_cut_outbox_ends_with_a_whole_chunk_and_the_last_message() {
        for is_compressed in [false, true] {
            let mut outbox = Outbox::new();
            if is_compressed {
                outbox.compress().unwrap();
            }
            for chunk in 0..5u8 {
                outbox.own().extend_from_slice(&[chunk; 300]);
                outbox.own().extend_from_slice(&(0..100).collect::<Vec<_>>());
                outbox.seal().unwrap();
            }
            let mut slow = Slow(Vec::new(), 7);
            outbox.write(&mut slow).unwrap();
            let waiting = outbox.len();
            let dropped = outbox.cut();
            assert!(dropped > 0 && dropped < waiting);
            outbox.own().extend_from_slice(b"too slow");
            outbox.seal().unwrap();
            let received = all_of(&mut outbox, slow, is_compressed);
            let mut expected = vec![0; 300];
            expected.extend(0..100);
            expected.extend_from_slice(b"too slow");
            assert_eq!(received, expected, "compressed: {is_compressed}");
        }
    }

    #[test]
    fn a_message_in_between_comes_behind_the_chunk_in_transmission() {
        let mut outbox = Outbox::new();
        outbox.put_next(b"0");
        for chunk in [b"aaaa", b"bbbb", b"cccc"] {
            outbox.own().extend_from_slice(chunk);
            outbox.seal().unwrap();
        }
        let mut slow = Slow(Vec::new(), 2);
        outbox.write(&mut slow).unwrap();
        outbox.put_next(b"!");
        outbox.put_next(b"?");
        outbox.write(&mut slow).unwrap();
        assert!(outbox.cut() > 0);
        outbox.own().extend_from_slice(b".");
        outbox.seal().unwrap();
        assert_eq!(all_of(&mut outbox, slow, false), b"0aaaa!?.");
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_the_order_they_were_put(
            puts in prop::collection::vec((any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..50)), 0..40),
            step in 1usize..30,
            is_compressed in any::<bool>(),
        ) {
            let mut outbox = Outbox::new();
            if is_compressed {
                outbox.compress().unwrap();
            }
            let (mut expected, mut slow) = (Vec::new(), Slow(Vec::new(), step));
            for (is_shared, is_turn, bytes) in puts {
                expected.extend_from_slice(&bytes);
                if is_shared {
                    outbox.share(&Bytes::from(bytes)).unwrap();
                } else {
                    outbox.own().extend_from_slice(&bytes);
                }
                if is_turn {
                    outbox.seal().unwrap();
                    outbox.write(&mut slow).unwrap();
                }
            }
            outbox.seal().unwrap();
            while outbox.write(&mut slow).unwrap() > 0 {}
            prop_assert!(outbox.is_empty());
            let mut received = slow.0;
            if is_compressed {
                let mut plain = Vec::new();
                let mut decoder = zstd::stream::write::Decoder::new(&mut plain).unwrap();
                decoder.write_all(&received).unwrap();
                decoder.flush().unwrap();
                drop(decoder);
                received = plain;
            }
            prop_assert_eq!(received, expected);
        }
    }
}
