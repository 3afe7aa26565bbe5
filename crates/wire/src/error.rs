//! Errors of decoding bytes and of encoding values.
//!
//! Both errors are small, `Copy` and allocate nothing: a feed counts them by the million if it must. They are made
//! out of line so that the path of a good message stays short.

use core::fmt;

/// Why bytes are not a message. Lengths are in bytes and count the whole message with its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No bytes at all.
    Empty,
    /// Too few bytes to hold the message's tag.
    NoTag {
        /// Bytes needed to read the tag.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// The protocol has no message of this tag. Skip it by its length and count it.
    UnknownMessage {
        /// The tag as a number; of text, the first character is the highest byte.
        tag: u64,
    },
    /// The message is cut.
    TooShort {
        /// Name of the message or header.
        message: &'static str,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// More bytes than the protocol allows for this message.
    TooLong {
        /// Name of the message.
        message: &'static str,
        /// Bytes that it is declared to have.
        declared: usize,
        /// Bytes there.
        got: usize,
    },
}

impl DecodeError {
    /// Fewer bytes than `needed`.
    #[cold]
    #[must_use]
    pub const fn too_short(message: &'static str, needed: usize, got: usize) -> Self {
        Self::TooShort { message, needed, got }
    }

    /// More bytes than `declared`.
    #[cold]
    #[must_use]
    pub const fn too_long(message: &'static str, declared: usize, got: usize) -> Self {
        Self::TooLong { message, declared, got }
    }

    /// Not `declared` bytes: fewer or more.
    #[cold]
    #[must_use]
    pub const fn wrong_length(message: &'static str, declared: usize, got: usize) -> Self {
        if got < declared {
            Self::TooShort { message, needed: declared, got }
        } else {
            Self::TooLong { message, declared, got }
        }
    }

    /// Too few bytes for the tag.
    #[cold]
    #[must_use]
    pub const fn no_tag(needed: usize, got: usize) -> Self {
        if got == 0 { Self::Empty } else { Self::NoTag { needed, got } }
    }

    /// A tag that is not declared.
    #[cold]
    #[must_use]
    pub const fn unknown_message(tag: u64) -> Self {
        Self::UnknownMessage { tag }
    }
}

/// `'A' (0x41)` for a printable tag, `0x223` for others.
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

/// Why values did not become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The target cannot hold the message.
    BufferTooSmall {
        /// Bytes that the message needs.
        needed: usize,
        /// Bytes in the target.
        got: usize,
    },
    /// The value is wider than the field on the wire (48 bits, for example), or is the sentinel for "no value".
    OutOfRange {
        /// Name of the field.
        field: &'static str,
    },
    /// A field of a later version is given, but one before it is not.
    FieldBeforeIsAbsent {
        /// Name of the field that is given.
        field: &'static str,
    },
    /// The count field disagrees with the entries.
    CountMismatch {
        /// Name of the count field.
        field: &'static str,
        /// The count of the header.
        declared: u64,
        /// Entries there.
        entries: usize,
    },
    /// The last block has fewer bytes than its length says.
    CutBlock {
        /// Name of the field that holds the blocks.
        field: &'static str,
        /// Where the block's length prefix starts, in bytes from the start of the blocks.
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

/// A tag as a number, whatever its type: integers as they are, text with the first character highest.
pub trait TagNumber {
    /// The number.
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
