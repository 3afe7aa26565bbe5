//! Files of length-prefixed messages: a big-endian 16-bit length, then the message, repeated to the end of the file. Nasdaq
//! publishes raw ITCH in this format ("BinaryFILE").
//!
//! [`FramedReader`] returns [`Batch`]es: windows over many messages, so that a decoder can look ahead (decode all, prefetch all,
//! then apply). Iterating a batch walks the framing once: a message costs the latency of one load from the L1 cache, the
//! operations that depend on it, and its share of the mapping's page faults (`walk` in `cargo xtask bench itch`). Nothing is
//! copied from a mapped file.

use std::io::{self, Write};
use std::path::Path;

use crate::error::CaptureError;
use crate::source::ByteSource;

/// Bytes before each message.
pub const LENGTH_PREFIX_BYTES: usize = 2;

/// The longest frame: prefix and message.
pub const MAX_FRAME_BYTES: usize = LENGTH_PREFIX_BYTES + u16::MAX as usize;

/// Default batch size: half of a typical L2 cache.
pub const BATCH_BYTES: usize = 256 << 10;

/// Reads a framed file, plain, gzip or zstd, batch by batch.
///
/// ```
/// use tapeworks_capture::framed::FramedReader;
/// use tapeworks_capture::source::ByteSource;
///
/// # fn main() -> Result<(), tapeworks_capture::CaptureError> {
/// let file = b"\x00\x03one\x00\x05three".to_vec();
/// let mut reader = FramedReader::new(ByteSource::from_bytes("memory", file));
/// let mut messages = 0;
/// while let Some(batch) = reader.next_batch()? {
///     for frame in batch {
///         messages += 1;
///         println!("{} at {}", frame.bytes.len(), frame.offset);
///     }
/// }
/// assert_eq!(messages, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FramedReader {
    source: ByteSource,
    batch_bytes: usize,
    progress: Progress,
    ended: bool,
}

/// How far the consumer has advanced: written by the batch, read by the next one.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    /// Bytes of the current batch consumed.
    walked: usize,
    messages: u64,
    end_marks: u64,
}

impl FramedReader {
    /// Opens `path`; `-` is standard input.
    ///
    /// # Errors
    /// As [`ByteSource::open`].
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        Ok(Self::new(ByteSource::open(path)?))
    }

    /// Reads the frames in `source`, which must be positioned at a length prefix.
    pub fn new(source: ByteSource) -> Self {
        Self { source, batch_bytes: BATCH_BYTES, progress: Progress::default(), ended: false }
    }

    /// Sets the maximum bytes that a batch spans; at least [`MAX_FRAME_BYTES`], so that a frame always fits.
    #[must_use]
    pub fn with_batch_bytes(mut self, batch_bytes: usize) -> Self {
        self.batch_bytes = batch_bytes.max(MAX_FRAME_BYTES);
        self
    }

    /// Returns the next window of messages, or `None` at the end. It begins at the first message not taken from the previous
    /// batch, and holds at least one whole frame.
    ///
    /// # Errors
    /// [`CaptureError::TruncatedFrame`] if the file ends inside a message, or the source's failure. All earlier messages have been
    /// delivered, and the reader has then ended.
    #[inline]
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, CaptureError> {
        self.source.consume(self.progress.walked);
        self.progress.walked = 0;
        if self.ended {
            return Ok(None);
        }
        let batch_bytes = self.batch_bytes;
        let available = self.source.fill(batch_bytes);
        let got = available.len();
        let need = match available.first_chunk() {
            Some(prefix) => LENGTH_PREFIX_BYTES + usize::from(u16::from_be_bytes(*prefix)),
            None => LENGTH_PREFIX_BYTES,
        };
        if got < need {
            return self.end(need, got);
        }
        let offset = self.source.position();
        let window = self.source.available();
        let window = &window[..batch_bytes.min(window.len())];
        Ok(Some(Batch { window, offset, progress: &mut self.progress }))
    }

    #[cold]
    fn end(&mut self, need: usize, got: usize) -> Result<Option<Batch<'_>>, CaptureError> {
        self.ended = true;
        if let Some(failure) = self.source.take_failure() {
            return Err(failure);
        }
        if got == 0 {
            return Ok(None);
        }
        Err(CaptureError::TruncatedFrame {
            file: self.source.name().into(),
            number: self.progress.messages + 1,
            offset: self.source.position(),
            need: need as u64,
            got: got as u64,
        })
    }

    /// Returns the number of messages delivered so far.
    pub fn messages(&self) -> u64 {
        self.progress.messages
    }

    /// Returns the number of zero-length frames skipped so far; in BinaryFILE they mark the end of a session.
    pub fn end_marks(&self) -> u64 {
        self.progress.end_marks
    }

    /// Returns the byte source: the file's name, its length, and how far it has been read.
    pub fn source(&self) -> &ByteSource {
        &self.source
    }
}

/// One message of a framed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Offset of the message's first byte (after its length) in the file, or in the decompressed content of a compressed file.
    pub offset: u64,
    /// The message without its length; never empty.
    pub bytes: &'a [u8],
}

/// A window over many messages. Iterate over it to take them; they stay readable for as long as the window is borrowed, so
/// several can be held simultaneously. The next batch begins with the messages that were not taken.
///
/// Zero-length frames, which mark the end of a session, are skipped and counted.
#[derive(Debug)]
pub struct Batch<'a> {
    window: &'a [u8],
    offset: u64,
    progress: &'a mut Progress,
}

impl<'a> Batch<'a> {
    /// Returns the bytes from the next frame's length prefix on; the last frame in them may be incomplete.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        &self.window[self.progress.walked..]
    }

    /// Returns the offset of the first of [`Batch::bytes`] in the file, or in the decompressed content of a compressed file.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset + self.progress.walked as u64
    }
}

impl<'a> Batch<'a> {
    /// Returns the message that [`next`](Iterator::next) would return, without consuming it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        let mut rest = self.window.get(self.progress.walked..)?;
        loop {
            let (prefix, after) = rest.split_first_chunk::<LENGTH_PREFIX_BYTES>()?;
            let length = usize::from(u16::from_be_bytes(*prefix));
            let bytes = after.get(..length)?;
            if length > 0 {
                return Some(bytes);
            }
            rest = after;
        }
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        loop {
            let rest = self.window.get(self.progress.walked..)?;
            let (prefix, rest) = rest.split_first_chunk::<LENGTH_PREFIX_BYTES>()?;
            let length = usize::from(u16::from_be_bytes(*prefix));
            let bytes = rest.get(..length)?;
            let offset = self.offset + (self.progress.walked + LENGTH_PREFIX_BYTES) as u64;
            self.progress.walked += LENGTH_PREFIX_BYTES + length;
            if length > 0 {
                self.progress.messages += 1;
                return Some(Frame { offset, bytes });
            }
            self.progress.end_marks += 1;
        }
    }
}

/// Writes `message`, prefixed with its length.
///
/// # Errors
/// Errors of `sink`; [`io::ErrorKind::InvalidInput`] for a message longer than 65,535 bytes.
pub fn write_frame(sink: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let Ok(length) = u16::try_from(message.len()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("message of {} bytes does not fit a 16-bit length", message.len()),
        ));
    };
    sink.write_all(&length.to_be_bytes())?;
    sink.write_all(message)
}
