//! Errors of decoding bytes and of encoding values.
//!
//! Both errors are small, `Copy`, and do not allocate, so a feed can count millions of them. They are built out of line to keep
//! the path of valid messages short.

use core::fmt;

/// Why bytes are not a message. Lengths are in bytes and include the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No bytes.
    Empty,
    /// Too few bytes for the message's tag.
    NoTag {
        /// Bytes needed to read the tag.
        needed: usize,
        /// Bytes available.
        got: usize,
    },
    /// The protocol has no message with this tag. Skip the message by its length and count it.
    UnknownMessage {
        /// The tag as a number; for text, the first character is in the highest byte.
        tag: u64,
    },
    /// The message is truncated.
    TooShort {
        /// Name of the message or header.
        message: &'static str,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes available.
        got: usize,
    },
    /// More bytes than the protocol allows for this message.
    TooLong {
        /// Name of the message.
        message: &'static str,
        /// Declared length in bytes.
        declared: usize,
        /// Bytes available.
        got: usize,
    },
}

impl DecodeError {
    /// Returns the error for fewer bytes than `needed`.
    #[cold]
    #[must_use]
    pub const fn too_short(message: &'static str, needed: usize, got: usize) -> Self {
        Self::TooShort { message, needed, got }
    }

    /// Returns the error for more bytes than `declared`.
    #[cold]
    #[must_use]
    pub const fn too_long(message: &'static str, declared: usize, got: usize) -> Self {
        Self::TooLong { message, declared, got }
    }

    /// Returns the error for fewer or more bytes than `declared`.
    #[cold]
    #[must_use]
    pub const fn wrong_length(message: &'static str, declared: usize, got: usize) -> Self {
        if got < declared {
            Self::TooShort { message, needed: declared, got }
        } else {
            Self::TooLong { message, declared, got }
        }
    }

    /// Returns the error for too few bytes for the tag.
    #[cold]
    #[must_use]
    pub const fn no_tag(needed: usize, got: usize) -> Self {
        if got == 0 { Self::Empty } else { Self::NoTag { needed, got } }
    }

    /// Returns the error for an undeclared tag.
    #[cold]
    #[must_use]
    pub const fn unknown_message(tag: u64) -> Self {
        Self::UnknownMessage { tag }
    }
}

/// Formats a tag as `'A' (0x41)` if it is printable, otherwise as `0x223`.
pub(crate) struct ShownTag(pub(crate) u64);

impl fmt::Display for ShownTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_be_bytes();
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(7);
        let text = bytes.get(first..).unwrap_or_default();
        if text.iter().all(|byte| byte.is_ascii_graphic()) {
            formatter.write_str("'")?;
            for byte in text {
                write!(formatter, "{}", char::from(*byte))?;
            }
            write!(formatter, "' ({:#x})", self.0)
        } else {
            write!(formatter, "{:#04x}", self.0)
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => formatter.write_str("a message of no bytes"),
            Self::NoTag { needed, got } => {
                write!(formatter, "the message type needs {needed} bytes, {got} left")
            }
            Self::UnknownMessage { tag } => write!(formatter, "unknown message type {}", ShownTag(tag)),
            Self::TooShort { message, needed, got } => {
                write!(formatter, "{message} needs {needed} bytes, {got} left")
            }
            Self::TooLong { message, declared, got } => {
                write!(formatter, "{message} has {declared} bytes, but {got} came")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// Why values could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The target cannot hold the message.
    BufferTooSmall {
        /// Bytes that the message needs.
        needed: usize,
        /// Bytes in the target.
        got: usize,
    },
    /// The value is wider than the field on the wire (48 bits, for example), or equals the sentinel for "no value".
    OutOfRange {
        /// Name of the field.
        field: &'static str,
    },
    /// A field of a later version is present, but a field before it is absent.
    FieldBeforeIsAbsent {
        /// Name of the field that is present.
        field: &'static str,
    },
    /// The count field disagrees with the entries.
    CountMismatch {
        /// Name of the count field.
        field: &'static str,
        /// The count in the header.
        declared: u64,
        /// Number of entries.
        entries: usize,
    },
    /// The last block has fewer bytes than its length prefix says.
    CutBlock {
        /// Name of the field that holds the blocks.
        field: &'static str,
        /// Start of the block's length prefix, in bytes from the start of the blocks.
        offset: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BufferTooSmall { needed, got } => {
                write!(formatter, "the message needs {needed} bytes, the buffer has {got}")
            }
            Self::OutOfRange { field } => write!(formatter, "the value of {field} does not fit on the wire"),
            Self::CutBlock { field, offset } => {
                write!(formatter, "the block at offset {offset} of {field} is cut")
            }
            Self::FieldBeforeIsAbsent { field } => {
                write!(formatter, "{field} is given, but a field before it is not")
            }
            Self::CountMismatch { field, declared, entries } => {
                write!(formatter, "{field} says {declared} entries, but there are {entries}")
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// Converts a tag of any type to a number; for text, the first character is in the highest byte.
pub trait TagNumber {
    /// Returns the number.
    fn number(self) -> u64;
}

impl TagNumber for u8 {
    #[inline]
    fn number(self) -> u64 {
        u64::from(self)
    }
}

impl TagNumber for u16 {
    #[inline]
    fn number(self) -> u64 {
        u64::from(self)
    }
}

impl TagNumber for u32 {
    #[inline]
    fn number(self) -> u64 {
        u64::from(self)
    }
}

impl TagNumber for u64 {
    #[inline]
    fn number(self) -> u64 {
        self
    }
}

impl<const N: usize> TagNumber for [u8; N] {
    #[inline]
    fn number(self) -> u64 {
        self.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
