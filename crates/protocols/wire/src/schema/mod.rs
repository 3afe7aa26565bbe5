//! The declaration as a constant, and the functions that every protocol derives from it at run time:
//!
//! - [`Schema::decode`]: the fields of a message with names, offsets and values, as text and JSON;
//! - [`markdown`](fn@markdown), [`json`](fn@json): the reference page, the schema for programs;
//! - [`wireshark`](fn@crate::wireshark): a dissector;
//! - [`arbitrary`](fn@arbitrary): random valid messages for tests.
//!
//! The generated views do not use the schema: the hot path reads at constant offsets.

mod arbitrary;
mod json;
mod markdown;
mod value;

use core::fmt;

#[doc(hidden)]
pub use crate::value::write_text;
pub use arbitrary::{SplitMix64, arbitrary};
#[doc(hidden)] // For the FIX schemas of `tapeworks-fix-wire`.
pub use json::Writer;
pub use json::json;
#[doc(hidden)]
pub use markdown::cell;
pub use markdown::markdown;
pub use value::{Decoded, FieldValue, Value};

/// Byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
}

/// Whether a known message may be longer than declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthRule {
    /// Messages have exactly the declared length; any other length is an error.
    Exact,
    /// Later versions append fields; bytes after the declared ones are ignored and reported.
    Extensible,
}

/// The location of the message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Whether the type is text; otherwise it is an integer.
    pub text: bool,
    /// Length in bytes.
    pub length: usize,
    /// Bytes from the start of the message.
    pub offset: usize,
}

/// A byte that all messages of a protocol share. It distinguishes them from other protocols with the same framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Bytes from the start of the message.
    pub offset: usize,
    /// The byte.
    pub value: u8,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Stable name: `nasdaq-totalview-itch-5.0`.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Version of the protocol.
    pub version: &'static str,
    /// Doc comment of the declaration.
    pub doc: &'static str,
    /// Default byte order of the fields.
    pub endian: Endian,
    /// Location of the message type; `None` if the protocol has only headers.
    pub tag: Option<Tag>,
    /// A constant byte of every message. The type of a message with another byte there is unknown.
    pub constant: Option<Constant>,
    /// Whether messages may be longer than declared.
    pub length_rule: LengthRule,
    /// Structures without a tag: packet headers.
    pub headers: &'static [Structure],
    /// Messages.
    pub messages: &'static [Structure],
    /// Entries of repeating groups.
    pub groups: &'static [Structure],
    /// Enumerations.
    pub enums: &'static [EnumSchema],
    /// Flag sets.
    pub flags: &'static [FlagsSchema],
}

/// A message, a header or a group entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Name in the declaration: `AddOrder`.
    pub name: &'static str,
    /// Name in words: `Add Order`.
    pub title: &'static str,
    /// Doc comment.
    pub doc: &'static str,
    /// The message type; text as a number, first character in the highest byte.
    pub tag: Option<u64>,
    /// Bytes of the shortest version, or of the fixed part.
    pub minimum_length: usize,
    /// Length of the longest known version in bytes; `None` if it ends in a part of variable length.
    pub full_length: Option<usize>,
    /// Fields in order of offset, without the tag.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the declaration.
    pub name: &'static str,
    /// Doc comment.
    pub doc: &'static str,
    /// Bytes from the start of the structure, including the tag.
    pub offset: usize,
    /// Bytes; 0 for parts of variable length.
    pub length: usize,
    /// Byte order.
    pub endian: Endian,
    /// Its type.
    pub kind: Kind,
    /// The version that added the field, if shorter messages lack it.
    pub since: Option<&'static str>,
    /// The raw value that means "absent".
    pub absent: Option<i128>,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned integer.
    Unsigned,
    /// Signed integer.
    Signed,
    /// Left-justified, padded text.
    Ascii,
    /// Digits, padded.
    AsciiNumber,
    /// Raw bytes.
    Bytes,
    /// Integer with implied decimals.
    Decimal {
        /// Implied decimals.
        places: u8,
        /// Whether the integer is signed.
        signed: bool,
    },
    /// Nanoseconds since midnight at the venue.
    NanosecondsSinceMidnight,
    /// Nanoseconds since 1970 UTC.
    NanosecondsSinceEpoch,
    /// A duration in nanoseconds, relative to another time.
    Nanoseconds,
    /// Seconds since midnight at the venue.
    SecondsSinceMidnight,
    /// Seconds since 1970 UTC.
    SecondsSinceEpoch,
    /// One of a list of values.
    Enum(&'static EnumSchema),
    /// A set of bits.
    Flags(&'static FlagsSchema),
    /// Entries of fixed length, up to the end of the message.
    Group {
        /// Layout of an entry.
        entry: &'static Structure,
        /// Name of the field that holds the count.
        count: &'static str,
    },
    /// Length-prefixed blocks, up to the end of the message.
    Blocks {
        /// Bytes of the length prefix.
        length_bytes: usize,
        /// Whether the length includes its own bytes, which are then the start of the block.
        is_inclusive: bool,
        /// Name of the field that holds the count.
        count: &'static str,
    },
    /// All remaining bytes.
    Rest,
}

impl Kind {
    /// Returns the kind's name in the JSON form of a schema.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Signed => "signed",
            Self::Ascii => "ascii",
            Self::AsciiNumber => "ascii_number",
            Self::Bytes => "bytes",
            Self::Decimal { .. } => "decimal",
            Self::NanosecondsSinceMidnight => "nanoseconds_since_midnight",
            Self::NanosecondsSinceEpoch => "nanoseconds_since_epoch",
            Self::Nanoseconds => "nanoseconds",
            Self::SecondsSinceMidnight => "seconds_since_midnight",
            Self::SecondsSinceEpoch => "seconds_since_epoch",
            Self::Enum(_) => "enum",
            Self::Flags(_) => "flags",
            Self::Group { .. } => "group",
            Self::Blocks { .. } => "blocks",
            Self::Rest => "rest",
        }
    }
}

/// An enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumSchema {
    /// Name in the declaration.
    pub name: &'static str,
    /// Doc comment.
    pub doc: &'static str,
    /// Length in bytes.
    pub length: usize,
    /// Whether the values are text; otherwise they are integers.
    pub text: bool,
    /// The listed values.
    pub values: &'static [EnumValue],
}

/// A listed value of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumValue {
    /// Name in the declaration.
    pub name: &'static str,
    /// Name in words.
    pub title: &'static str,
    /// Raw value; text as a number, first character in the highest byte.
    pub raw: u64,
    /// Doc comment.
    pub doc: &'static str,
}

/// A flag set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagsSchema {
    /// Name in the declaration.
    pub name: &'static str,
    /// Doc comment.
    pub doc: &'static str,
    /// Length in bytes.
    pub length: usize,
    /// The listed bits.
    pub flags: &'static [Flag],
}

/// A listed bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Name in the declaration.
    pub name: &'static str,
    /// Name in words.
    pub title: &'static str,
    /// Bit number; 0 is the lowest.
    pub bit: u8,
    /// Doc comment.
    pub doc: &'static str,
}

/// Writes the names of the set flags, joined by ` | `, and any unnamed bits as a number. Writes `0` if no bit is set.
///
/// # Errors
/// The writer's errors.
pub fn write_flags(out: &mut dyn fmt::Write, schema: &FlagsSchema, raw: u64) -> fmt::Result {
    let mut rest = raw;
    let mut first = true;
    for flag in schema.flags {
        let bit = 1u64 << flag.bit;
        if raw & bit != 0 {
            if !first {
                out.write_str(" | ")?;
            }
            out.write_str(flag.name)?;
            first = false;
            rest &= !bit;
        }
    }
    match (first, rest) {
        (true, 0) => out.write_str("0"),
        (_, 0) => Ok(()),
        (true, rest) => write!(out, "{rest:#x}"),
        (false, rest) => write!(out, " | {rest:#x}"),
    }
}
