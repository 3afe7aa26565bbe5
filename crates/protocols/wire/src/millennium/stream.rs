//! Splits the bytes of a native connection into messages.
//!
//! Cost: one comparison of the start byte and one load of the length per message. Nothing is copied.

use core::fmt;

use super::native::{MAX_MESSAGE_BYTES, START_OF_MESSAGE, UNCOUNTED_BYTES};

/// Bytes of the header: start, length and type.
pub const HEADER_BYTES: usize = 4;

/// Bytes that are not a message. The messages before them are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The bytes end inside a message. On a live stream, more may arrive.
    Cut {
        /// Start of the message, in bytes from the start of the piece.
        offset: usize,
        /// Bytes that the message needs, or the header's length if the header is truncated.
        needed: usize,
        /// Bytes left.
        got: usize,
    },
    /// A message does not start with the start byte: the stream cannot be resynchronized.
    WrongStart {
        /// Start of the message, in bytes from the start of the piece.
        offset: usize,
        /// The byte there.
        found: u8,
    },
    /// A message has no type, or is longer than any message: the stream cannot be resynchronized.
    WrongLength {
        /// Start of the message, in bytes from the start of the piece.
        offset: usize,
        /// Its Message Length.
        length: u16,
    },
}

impl StreamError {
    /// Returns whether more bytes may complete the message.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        matches!(self, Self::Cut { .. })
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cut { offset, needed, got } => {
                write!(formatter, "the message at offset {offset} needs {needed} bytes, {got} left")
            }
            Self::WrongStart { offset, found } => {
                write!(formatter, "the message at offset {offset} starts with {found:#04x}, not with 0x02")
            }
            Self::WrongLength { offset, length } => write!(
                formatter,
                "the message at offset {offset} has length {length}: lengths are 1 to {}",
                MAX_MESSAGE_BYTES - UNCOUNTED_BYTES
            ),
        }
    }
}

impl core::error::Error for StreamError {}

/// Iterates over the messages in a piece of a stream. Each item is a whole message with its header, for
/// [`Message::decode`](super::native::Message::decode). It ends after an error: if a message is truncated on a live stream, keep
/// [`rest`](Self::rest) and continue reading; after any other error, close the connection.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    bytes: &'a [u8],
    offset: usize,
    failed: bool,
}

impl<'a> Messages<'a> {
    /// Creates an iterator over `bytes`, which start with a message.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, failed: false }
    }

    /// Returns the number of bytes consumed so far.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bytes not consumed yet: after the iteration, the truncated message at the end.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    #[cold]
    fn fail(&mut self, error: StreamError) -> Option<Result<&'a [u8], StreamError>> {
        self.failed = true;
        Some(Err(error))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<&'a [u8], StreamError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (rest, offset) = (self.rest(), self.offset);
        if self.failed {
            return None;
        }
        let found = *rest.first()?;
        if found != START_OF_MESSAGE {
            return self.fail(StreamError::WrongStart { offset, found });
        }
        let Some(length) = rest.get(1..).and_then(|bytes| bytes.first_chunk::<2>()) else {
            return self.fail(StreamError::Cut { offset, needed: HEADER_BYTES, got: rest.len() });
        };
        let length = u16::from_le_bytes(*length);
        let needed = UNCOUNTED_BYTES + usize::from(length);
        if length == 0 || needed > MAX_MESSAGE_BYTES {
            return self.fail(StreamError::WrongLength { offset, length });
        }
        match rest.get(..needed) {
            Some(message) => {
                self.offset += needed;
                Some(Ok(message))
            }
            None => self.fail(StreamError::Cut { offset, needed, got: rest.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_into_messages() {
        let mut messages = Messages::new(b"\x02\x01\x000\x02\x02\x00N\x00\x02\x06\x00M\x01");
        assert_eq!(messages.next(), Some(Ok(&b"\x02\x01\x000"[..])));
        assert_eq!(messages.next(), Some(Ok(&b"\x02\x02\x00N\x00"[..])));
        assert_eq!(messages.next(), Some(Err(StreamError::Cut { offset: 9, needed: 9, got: 5 })));
        assert_eq!(messages.next(), None);
        assert_eq!(messages.rest(), b"\x02\x06\x00M\x01");
        assert_eq!(messages.offset(), 9);
        let mut header = Messages::new(b"\x02\x01");
        assert_eq!(header.next(), Some(Err(StreamError::Cut { offset: 0, needed: 4, got: 2 })));
        assert_eq!(Messages::new(b"").next(), None);
    }

    #[test]
    fn a_wrong_start_and_an_absurd_length_end_the_stream() {
        let mut messages = Messages::new(b"\x02\x01\x000\x03\x01\x000");
        assert!(messages.next().unwrap().is_ok());
        let error = messages.next().unwrap().unwrap_err();
        assert_eq!(error, StreamError::WrongStart { offset: 4, found: 3 });
        assert!(!error.is_cut() && messages.next().is_none());
        for (bytes, length) in [(b"\x02\0\0", 0), (b"\x02\xFF\xFF", 65_535), (b"\x02\xFE\x03", 1_022)] {
            let wrong = Some(Err(StreamError::WrongLength { offset: 0, length }));
            assert_eq!(Messages::new(bytes).next(), wrong, "{length}");
        }
        let longest = [&b"\x02\xFD\x03"[..], &[0; 1_021]].concat();
        assert_eq!(Messages::new(&longest).next(), Some(Ok(&longest[..])));
    }
}
