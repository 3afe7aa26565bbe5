//! Decodes messages by schema: the fields of a message with names, offsets and values, for any protocol.
//!
//! It loops over the schema, so it is slower than the constant loads of the generated views. It is meant for dumps and tests.
//! It does not allocate.

use core::fmt;

use super::{
    Endian, EnumSchema, EnumValue, Field, FlagsSchema, Kind, LengthRule, Schema, Structure, write_flags,
};
use crate::DecodeError;
use crate::value::{number_in, trim, write_date_time, write_decimal, write_text, write_time_of_day};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// No value: the sentinel of an optional field.
    Absent,
    /// Unsigned integer.
    Unsigned(u64),
    /// Signed integer.
    Signed(i64),
    /// Text without its padding.
    Text(&'a [u8]),
    /// Digits without their padding.
    Number {
        /// The characters.
        text: &'a [u8],
        /// The number, if all characters are digits.
        value: Option<u64>,
    },
    /// Raw bytes.
    Bytes(&'a [u8]),
    /// `raw / 10^places`.
    Decimal {
        /// The integer on the wire.
        raw: i128,
        /// Implied decimals.
        places: u8,
    },
    /// Nanoseconds since midnight at the venue.
    NanosecondsSinceMidnight(u64),
    /// Nanoseconds since 1970 UTC.
    NanosecondsSinceEpoch(u64),
    /// A duration in nanoseconds, relative to another time.
    Nanoseconds(u64),
    /// Seconds since midnight at the venue.
    SecondsSinceMidnight(u64),
    /// Seconds since 1970 UTC.
    SecondsSinceEpoch(u64),
    /// A value of an enumeration.
    Enum {
        /// The enumeration.
        schema: &'static EnumSchema,
        /// The raw value; for text, a number with the first character in the highest byte.
        raw: u64,
        /// The bytes on the wire.
        bytes: &'a [u8],
    },
    /// A set of bits.
    Flags {
        /// The named bits.
        schema: &'static FlagsSchema,
        /// All bits.
        raw: u64,
    },
}

impl Value<'_> {
    /// Returns the listed value of an enum; `None` for an unlisted value or another type.
    #[must_use]
    pub fn enum_value(&self) -> Option<&'static EnumValue> {
        match self {
            Self::Enum { schema, raw, .. } => schema.values.iter().find(|value| value.raw == *raw),
            _ => None,
        }
    }

    /// Appends the value as JSON. Integers and times are numbers (the raw count), decimals are strings with all their places,
    /// enums are names (or the raw value, if it is unlisted), flag sets are arrays of names, bytes are hexadecimal, and an absent
    /// value is `null`.
    pub fn write_json(&self, out: &mut String) {
        use fmt::Write as _;
        // Writing to a `String` cannot fail.
        let _infallible = match *self {
            Self::Absent => out.write_str("null"),
            Self::Unsigned(number)
            | Self::NanosecondsSinceMidnight(number)
            | Self::NanosecondsSinceEpoch(number)
            | Self::Nanoseconds(number)
            | Self::SecondsSinceMidnight(number)
            | Self::SecondsSinceEpoch(number) => write!(out, "{number}"),
            Self::Signed(number) => write!(out, "{number}"),
            Self::Number { value: Some(number), .. } => write!(out, "{number}"),
            Self::Text(text) | Self::Number { text, .. } => {
                super::json::string_of_bytes(out, text);
                Ok(())
            }
            Self::Bytes(bytes) => {
                out.push('"');
                let written = write_hex(out, bytes);
                out.push('"');
                written
            }
            Self::Decimal { raw, places } => {
                out.push('"');
                let written = write_decimal(out, raw, places);
                out.push('"');
                written
            }
            Self::Enum { schema, raw, bytes } => {
                match self.enum_value() {
                    Some(value) => super::json::string(out, value.name),
                    None if schema.text => super::json::string_of_bytes(out, trim(bytes)),
                    None => out.push_str(&raw.to_string()),
                }
                Ok(())
            }
            Self::Flags { schema, raw } => {
                out.push('[');
                let mut rest = raw;
                let mut separator = "";
                for flag in schema.flags {
                    let bit = 1u64 << flag.bit;
                    if raw & bit != 0 {
                        out.push_str(separator);
                        super::json::string(out, flag.name);
                        separator = ",";
                        rest &= !bit;
                    }
                }
                let written = if rest == 0 { Ok(()) } else { write!(out, "{separator}\"{rest:#x}\"") };
                out.push(']');
                written
            }
        };
    }
}

fn write_hex(out: &mut dyn fmt::Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

/// Formats the value for people: decimals with all places, times of day, enum names (with the raw value if it is unlisted).
impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Absent => out.write_str("none"),
            Self::Unsigned(number) => write!(out, "{number}"),
            Self::Signed(number) => write!(out, "{number}"),
            Self::Text(text) => {
                out.write_str("\"")?;
                write_text(out, text)?;
                out.write_str("\"")
            }
            Self::Number { value: Some(number), .. } => write!(out, "{number}"),
            Self::Number { text, .. } => {
                out.write_str("\"")?;
                write_text(out, text)?;
                out.write_str("\"")
            }
            Self::Bytes(bytes) => write_hex(out, bytes),
            Self::Decimal { raw, places } => write_decimal(out, raw, places),
            Self::NanosecondsSinceMidnight(number) => write_time_of_day(out, number),
            Self::NanosecondsSinceEpoch(number) => write_date_time(out, number),
            Self::Nanoseconds(number) => write!(out, "{number} ns"),
            Self::SecondsSinceMidnight(number) => {
                write!(out, "{:02}:{:02}:{:02}", number / 3600, number / 60 % 60, number % 60)
            }
            Self::SecondsSinceEpoch(number) => match number.checked_mul(1_000_000_000) {
                Some(nanoseconds) => write_date_time(out, nanoseconds),
                None => write!(out, "{number} s"),
            },
            Self::Enum { schema, raw, bytes } => match self.enum_value() {
                Some(value) => out.write_str(value.name),
                None if schema.text => {
                    out.write_str("unknown \"")?;
                    write_text(out, bytes)?;
                    out.write_str("\"")
                }
                None => write!(out, "unknown {raw}"),
            },
            Self::Flags { schema, raw } => write_flags(out, schema, raw),
        }
    }
}

/// A field of a message with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldValue<'a> {
    /// The field.
    pub field: &'static Field,
    /// For a field of a group entry: the group's field and the entry's index from 0.
    pub entry: Option<(&'static Field, usize)>,
    /// Bytes from the start of the message.
    pub offset: usize,
    /// The bytes of the field.
    pub bytes: &'a [u8],
    /// The decoded value.
    pub value: Value<'a>,
}

/// A message decoded by its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The message's layout; `None` if the tag is unknown.
    pub structure: Option<&'static Structure>,
    /// The error; `None` if the message is valid.
    pub error: Option<DecodeError>,
    /// All bytes of the message.
    pub bytes: &'a [u8],
    /// Undeclared bytes at the end: the extension of a later version, or an error.
    pub trailing: usize,
}

impl<'a> Decoded<'a> {
    /// Returns the message's name; `None` if the tag is unknown.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        self.structure.map(|structure| structure.name)
    }

    /// Calls `visit` for each field in order, including group entries. If the message is truncated, visits the complete fields.
    pub fn for_each_field(&self, mut visit: impl FnMut(FieldValue<'a>)) {
        let Some(structure) = self.structure else { return };
        for field in structure.fields {
            if let Kind::Group { entry, .. } = field.kind {
                let end = self.bytes.len() - self.trailing;
                let entries = self.bytes.get(field.offset..end).unwrap_or_default();
                for (index, bytes) in entries.chunks_exact(entry.minimum_length.max(1)).enumerate() {
                    let start = field.offset + index * entry.minimum_length;
                    for inner in entry.fields {
                        if let Some(found) = read(inner, bytes) {
                            let offset = start + inner.offset;
                            visit(FieldValue { entry: Some((field, index)), offset, ..found });
                        }
                    }
                }
            } else if let Some(found) = read(field, self.bytes) {
                visit(found);
            }
        }
    }

    /// Appends the fields as one JSON object: field names as keys, groups as arrays of objects.
    pub fn write_json(&self, out: &mut String) {
        out.push('{');
        let mut group: Option<(&'static str, usize)> = None;
        let mut first = true;
        self.for_each_field(|found| {
            let next = found.entry.map(|(field, index)| (field.name, index));
            match (group, next) {
                (Some((before, last)), Some((name, index))) if before == name => {
                    out.push_str(if last == index { "," } else { "},{" });
                }
                (before, after) => {
                    if before.is_some() {
                        out.push_str("}]");
                    }
                    if !first {
                        out.push(',');
                    }
                    if let Some((name, _)) = after {
                        super::json::string(out, name);
                        out.push_str(":[{");
                    }
                }
            }
            group = next;
            first = false;
            super::json::string(out, found.field.name);
            out.push(':');
            found.value.write_json(out);
        });
        let last = self.structure.and_then(|structure| structure.fields.last());
        match (group, last) {
            (Some(_), _) => out.push_str("}]"),
            // An empty group, which is the last field. A message truncated before the group does not contain it.
            (None, Some(Field { kind: Kind::Group { .. }, name, offset, .. }))
                if *offset <= self.bytes.len() =>
            {
                if !first {
                    out.push(',');
                }
                super::json::string(out, name);
                out.push_str(":[]");
            }
            (None, _) => {}
        }
        out.push('}');
    }
}

/// Reads an integer of up to eight bytes.
fn unsigned(bytes: &[u8], endian: Endian) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match endian {
        Endian::Big => bytes.iter().fold(0, add),
        Endian::Little => bytes.iter().rev().fold(0, add),
    }
}

fn signed(bytes: &[u8], endian: Endian) -> i64 {
    let unused = 64 - 8 * u32::try_from(bytes.len().min(8)).unwrap_or(8);
    match unsigned(bytes, endian).checked_shl(unused) {
        Some(shifted) => shifted.cast_signed() >> unused,
        None => 0,
    }
}

/// Reads `field` of a structure that starts at `bytes`; `None` if the bytes end inside the field.
fn read<'a>(field: &'static Field, bytes: &'a [u8]) -> Option<FieldValue<'a>> {
    let tail = matches!(field.kind, Kind::Rest | Kind::Blocks { .. } | Kind::Group { .. });
    let end = if tail { bytes.len() } else { field.offset + field.length };
    let bytes = bytes.get(field.offset..end)?;
    let raw = || unsigned(bytes, field.endian);
    let is_signed = matches!(field.kind, Kind::Signed | Kind::Decimal { signed: true, .. });
    let number = || if is_signed { i128::from(signed(bytes, field.endian)) } else { i128::from(raw()) };
    let value = match field.kind {
        _ if field.absent.is_some_and(|absent| absent == number()) => Value::Absent,
        Kind::Unsigned => Value::Unsigned(raw()),
        Kind::Signed => Value::Signed(signed(bytes, field.endian)),
        Kind::Ascii => Value::Text(trim(bytes)),
        Kind::AsciiNumber => Value::Number { text: trim(bytes), value: number_in(bytes) },
        Kind::Decimal { places, .. } => Value::Decimal { raw: number(), places },
        Kind::NanosecondsSinceMidnight => Value::NanosecondsSinceMidnight(raw()),
        Kind::NanosecondsSinceEpoch => Value::NanosecondsSinceEpoch(raw()),
        Kind::Nanoseconds => Value::Nanoseconds(raw()),
        Kind::SecondsSinceMidnight => Value::SecondsSinceMidnight(raw()),
        Kind::SecondsSinceEpoch => Value::SecondsSinceEpoch(raw()),
        Kind::Enum(schema) => {
            let endian = if schema.text { Endian::Big } else { field.endian };
            Value::Enum { schema, raw: unsigned(bytes, endian), bytes }
        }
        Kind::Flags(schema) => Value::Flags { schema, raw: raw() },
        Kind::Bytes | Kind::Rest | Kind::Blocks { .. } | Kind::Group { .. } => Value::Bytes(bytes),
    };
    Some(FieldValue { field, entry: None, offset: field.offset, bytes, value })
}

impl Structure {
    /// Returns the raw integer of a field, such as a count or a length, by name.
    #[must_use]
    pub fn unsigned_field(&self, name: &str, bytes: &[u8]) -> Option<u64> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        Some(unsigned(bytes.get(field.offset..field.offset + field.length)?, field.endian))
    }

    /// Returns the length in bytes of the structure that starts at `bytes`, from its counts and its version.
    ///
    /// # Errors
    /// The structure is truncated, possibly inside a field of a later version.
    pub fn measure(&self, bytes: &[u8]) -> Result<usize, DecodeError> {
        let short = |needed| DecodeError::too_short(self.name, needed, bytes.len());
        if bytes.len() < self.minimum_length {
            return Err(short(self.minimum_length));
        }
        if let Some(full) = self.full_length {
            for field in self.fields.iter().filter(|field| field.since.is_some()) {
                let end = field.offset + field.length;
                if bytes.len() > field.offset && bytes.len() < end {
                    return Err(short(end));
                }
            }
            return Ok(bytes.len().min(full));
        }
        for field in self.fields {
            if let Kind::Group { entry, count } = field.kind {
                let entries = self.unsigned_field(count, bytes).unwrap_or(0);
                let entries = usize::try_from(entries).unwrap_or(usize::MAX);
                let needed = entries.saturating_mul(entry.minimum_length).saturating_add(field.offset);
                return if bytes.len() < needed { Err(short(needed)) } else { Ok(needed) };
            }
        }
        Ok(bytes.len())
    }

    /// Decodes bytes as this structure, for example as a header.
    #[must_use]
    pub fn decode<'a>(&'static self, bytes: &'a [u8]) -> Decoded<'a> {
        match self.measure(bytes) {
            Ok(used) => Decoded {
                structure: Some(self),
                error: None,
                bytes,
                trailing: bytes.len().saturating_sub(used),
            },
            Err(error) => Decoded { structure: Some(self), error: Some(error), bytes, trailing: 0 },
        }
    }

    /// Returns the field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Schema {
    /// Returns the message type in these bytes; text as a number, first character in the highest byte.
    #[must_use]
    pub fn tag_of(&self, bytes: &[u8]) -> Option<u64> {
        let tag = self.tag?;
        let bytes = bytes.get(tag.offset..tag.offset + tag.length)?;
        Some(unsigned(bytes, if tag.text { Endian::Big } else { self.endian }))
    }

    /// Returns the message with this tag.
    #[must_use]
    pub fn message(&self, tag: u64) -> Option<&'static Structure> {
        self.messages.iter().find(|message| message.tag == Some(tag))
    }

    /// Returns the message, header or group entry with this name.
    #[must_use]
    pub fn structure(&self, name: &str) -> Option<&'static Structure> {
        let mut all = self.messages.iter().chain(self.headers).chain(self.groups);
        all.find(|structure| structure.name == name)
    }

    /// Decodes one message by the schema. It never fails: the result contains the error along with the readable fields.
    #[must_use]
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Decoded<'a> {
        let unknown = |error| Decoded { structure: None, error: Some(error), bytes, trailing: 0 };
        let Some(tag) = self.tag_of(bytes) else {
            let constant_end = self.constant.map_or(0, |constant| constant.offset + 1);
            let needed = self.tag.map_or(0, |tag| tag.offset + tag.length).max(constant_end);
            return unknown(DecodeError::no_tag(needed, bytes.len()));
        };
        if let Some(constant) = self.constant {
            match bytes.get(constant.offset) {
                Some(byte) if *byte == constant.value => {}
                Some(_) => return unknown(DecodeError::unknown_message(tag)),
                None => return unknown(DecodeError::no_tag(constant.offset + 1, bytes.len())),
            }
        }
        let Some(structure) = self.message(tag) else { return unknown(DecodeError::unknown_message(tag)) };
        let mut decoded = structure.decode(bytes);
        if self.length_rule == LengthRule::Exact && decoded.trailing > 0 {
            let declared = bytes.len() - decoded.trailing;
            decoded.error = Some(DecodeError::too_long(structure.name, declared, bytes.len()));
        }
        decoded
    }
}
