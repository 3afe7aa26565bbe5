//! Iterates over the fields of one message for the code that `fix!` generates.
//!
//! A cursor is a small value that is passed by value, so that it stays in registers. The key of a field is its tag's digits and
//! `=` as one word: declared tags are compared as constants, and only undeclared ones become numbers. Parsing a value finds its
//! end: numbers and times show it, and only texts are searched for SOH. A message is therefore walked once, and its checksum is
//! summed separately.
//!
//! Cost: about ten instructions per field, plus the cost of its value.

use core::fmt;

use super::fields::{data_of_length, reason_of, tag_number};
use super::framing::{Garbled, TRAILER_BYTES, head, trailer_of};
use super::scan::{SOH, checksum, end_of};
use super::value::{
    LastTimestamp, ValueError, date_at, decimal_at, eight, signed_at, three_digits, time_at, timestamp_at,
    unsigned_at,
};

/// The reasons of a session reject, tag 373.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RejectReason {
    /// 0: the tag is not a number.
    InvalidTag = 0,
    /// 1: a required tag is missing.
    RequiredTagMissing = 1,
    /// 2: the tag is not defined for this message type.
    TagNotDefinedForType = 2,
    /// 3: the tag is not defined at all.
    UndefinedTag = 3,
    /// 4: the tag has no value.
    TagWithoutValue = 4,
    /// 5: the value is out of range, or not in the list.
    ValueIncorrect = 5,
    /// 6: the value does not have the form of its type.
    IncorrectFormat = 6,
    /// 9: SenderCompID or TargetCompID is wrong.
    CompIdProblem = 9,
    /// 10: SendingTime is too far from the current time, or OrigSendingTime is later.
    SendingTimeAccuracy = 10,
    /// 11: no message has this type.
    InvalidMessageType = 11,
    /// 13: the tag is repeated.
    TagTwice = 13,
    /// 14: header, body and trailer are mixed.
    TagOutOfOrder = 14,
    /// 15: the fields of a repeating group are out of order.
    GroupOutOfOrder = 15,
    /// 16: the count of a repeating group differs from its number of entries.
    WrongGroupCount = 16,
    /// 17: a field other than data contains SOH.
    SohInValue = 17,
}

impl RejectReason {
    /// Returns the number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Returns the reason in words, for the text of a reject.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::InvalidTag => "Invalid tag number",
            Self::RequiredTagMissing => "Required tag missing",
            Self::TagNotDefinedForType => "Tag not defined for this message type",
            Self::UndefinedTag => "Undefined tag",
            Self::TagWithoutValue => "Tag specified without a value",
            Self::ValueIncorrect => "Value is incorrect (out of range) for this tag",
            Self::IncorrectFormat => "Incorrect data format for value",
            Self::CompIdProblem => "CompID problem",
            Self::SendingTimeAccuracy => "SendingTime accuracy problem",
            Self::InvalidMessageType => "Invalid MsgType",
            Self::TagTwice => "Tag appears more than once",
            Self::TagOutOfOrder => "Tag specified out of required order",
            Self::GroupOutOfOrder => "Repeating group fields out of order",
            Self::WrongGroupCount => "Incorrect NumInGroup count for repeating group",
            Self::SohInValue => "Non data value includes field delimiter",
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl From<ValueError> for RejectReason {
    fn from(error: ValueError) -> Self {
        match reason_of(error) {
            4 => Self::TagWithoutValue,
            5 => Self::ValueIncorrect,
            _ => Self::IncorrectFormat,
        }
    }
}

/// Why a message was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The bytes are not one message. They are ignored, and the sequence number does not count.
    Garbled(Garbled),
    /// The message has another type.
    OtherType,
    /// The message breaks a rule of its declaration. It is rejected, and its sequence number counts.
    Rejected {
        /// For SessionRejectReason (373).
        reason: RejectReason,
        /// For RefTagID (371); 0 if the tag is not a number.
        tag: u32,
        /// Start of the field, in bytes from the start of the message; for a missing field, of the field that
        /// follows instead, such as CheckSum.
        offset: u32,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbled(why) => fmt::Display::fmt(why, formatter),
            Self::OtherType => formatter.write_str("the message is of another type"),
            Self::Rejected { reason, tag, offset } => {
                write!(formatter, "{reason}: tag {tag} at offset {offset}")
            }
        }
    }
}

impl core::error::Error for ReadError {}

/// Declared fields of one message type, created by its `fields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSet {
    #[doc(hidden)]
    pub header: u64,
    #[doc(hidden)]
    pub body: u64,
}

/// The start of a text in a message. SOH ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Text(u32);

impl Text {
    /// No text.
    pub const NONE: Self = Self(0);

    /// Returns the bytes of the text.
    #[inline]
    #[must_use]
    pub fn of(self, message: &[u8]) -> &[u8] {
        message.get(self.0 as usize..end_of(message, self.0) as usize).unwrap_or_default()
    }
}

/// A part of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// No part.
    pub const NONE: Self = Self { start: 0, end: 0 };

    /// Returns the bytes of this part.
    #[inline(always)]
    #[must_use]
    pub fn of(self, message: &[u8]) -> &[u8] {
        message.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The entries of a group in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct GroupSpan {
    span: Span,
    count: u32,
}

impl GroupSpan {
    /// No entries.
    pub const NONE: Self = Self { span: Span::NONE, count: 0 };

    /// Returns a cursor at the first entry, and the number of entries.
    #[must_use]
    pub fn entries(self, message: &[u8]) -> (Cursor<'_>, u32) {
        (Cursor::over(message, self.span.start, self.span.end), self.count)
    }
}

/// Returns the end of the first field, if it has the length of `8=FIX.4.4` or `8=FIXT.1.1`.
#[inline(always)]
fn usual_begin(message: &[u8]) -> Option<u32> {
    const START: u64 = u64::from_le_bytes(*b"8=FIX\0\0\0");
    let is_begun = eight(message, 0)? & 0xff_ffff_ffff == START;
    let [_, ninth, tenth, ..] = eight(message, 8)?.to_le_bytes();
    let is_ended = ninth == SOH || tenth == SOH;
    (is_begun && is_ended).then_some(if ninth == SOH { 9 } else { 10 })
}

/// Returns the start (the message type) and end of the fields of a message in the usual form; `None` for another form and for a garbled
/// message. The usual BodyLength has three digits.
#[inline(always)]
fn usual_body(message: &[u8]) -> Option<(u32, u32)> {
    const LENGTH: u64 = u64::from_le_bytes([b'9', b'=', b'0', b'0', b'0', SOH, b'3', b'5']);
    /// SOH, the checksum's tag, three digits and SOH.
    const TRAILER: u64 = u64::from_le_bytes([SOH, b'1', b'0', b'=', 0, 0, 0, SOH]);
    let length = u32::try_from(message.len()).ok()?;
    let begin_end = usual_begin(message)?;
    // Only the digits may differ.
    let head = eight(message, begin_end + 1)? ^ LENGTH;
    let wrong = (head.wrapping_add(0x0000_0006_0606_0000) | head) & 0xffff_fff0_f0f0_ffff;
    let (hundreds, tens, ones) = (head as u32 >> 16 & 0xff, head as u32 >> 24, (head >> 32) as u32 & 0xff);
    let body_length = hundreds * 100 + tens * 10 + ones;
    let start = begin_end + 7;
    let limit = start + body_length;
    if wrong != 0 || limit + TRAILER_BYTES as u32 != length || message.get(start as usize + 2) != Some(&b'=')
    {
        return None;
    }
    let sum = checksum(message.get(..limit as usize)?);
    let trailer = TRAILER | u64::from(three_digits(u32::from(sum))) << 32;
    (eight(message, limit.wrapping_sub(1))? == trailer).then_some((start, limit))
}

/// Does the same as [`usual_body`] for every form.
#[cold]
#[inline(never)]
fn any_body(message: &[u8]) -> Result<(u32, u32), ReadError> {
    let head = match head(message) {
        Ok(Some(head)) => head,
        Ok(None) => return Err(ReadError::Garbled(Garbled::WrongLength)),
        Err(why) => return Err(ReadError::Garbled(why)),
    };
    let limit = head.body + head.body_length;
    let Some((body, trailer)) = message.split_last_chunk::<TRAILER_BYTES>() else {
        return Err(ReadError::Garbled(Garbled::WrongLength));
    };
    if body.len() != limit || body.last() != Some(&SOH) || message.len() > u32::MAX as usize {
        return Err(ReadError::Garbled(Garbled::WrongLength));
    }
    let computed = checksum(body);
    if *trailer != trailer_of(computed) {
        return Err(ReadError::Garbled(wrong_trailer(trailer, computed)));
    }
    Ok((head.body as u32, limit as u32))
}

/// A position in a message: the current field.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Cursor<'a> {
    message: &'a [u8],
    /// End of the fields, directly after a SOH.
    limit: u32,
    /// The current field.
    start: u32,
    /// The SOH before the field and its first seven bytes, the first lowest; 0 or arbitrary after the last field. With SOH, the key of a
    /// two-digit tag is exactly four bytes, which are compared directly.
    text: u64,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the message type, after checking the message's length and checksum.
    ///
    /// # Errors
    /// The bytes are not exactly one message, or its checksum is wrong.
    #[inline(always)]
    pub fn open(message: &'a [u8]) -> Result<Self, ReadError> {
        let (start, limit) = match usual_body(message) {
            Some(body) => body,
            None => any_body(message)?,
        };
        Ok(Self::over(message, start, limit))
    }

    /// Returns a cursor at the first field of `message[start..limit]`, which ends with SOH.
    #[inline(always)]
    #[must_use]
    pub fn over(message: &'a [u8], start: u32, limit: u32) -> Self {
        Self { message, limit, start: 0, text: 0 }.behind(start.wrapping_sub(1))
    }

    /// Moves to the field after the SOH at `end`. The trailer has seven bytes, so eight bytes follow from every SOH before it.
    #[inline(always)]
    #[must_use]
    pub fn behind(mut self, end: u32) -> Self {
        self.start = end.wrapping_add(1);
        self.text = eight(self.message, end).unwrap_or(0);
        self
    }

    /// Moves to the field after the current one, wherever it ends.
    #[inline(always)]
    #[must_use]
    pub fn next(self) -> Self {
        self.behind(end_of(self.message, self.start))
    }

    /// Returns the digits of the tag and `=`, the first in the lowest byte; 0 after the last field, or without `=` in eight bytes.
    #[inline(always)]
    #[must_use]
    pub fn key(&self) -> u64 {
        let text = eight(self.message, self.start).unwrap_or(0);
        let equals = text ^ 0x3d3d_3d3d_3d3d_3d3d;
        let found = equals.wrapping_sub(0x0101_0101_0101_0101) & !equals & 0x8080_8080_8080_8080;
        if found == 0 { 0 } else { text & (found ^ found.wrapping_sub(1)) }
    }

    /// Returns whether there is a field.
    #[inline(always)]
    #[must_use]
    pub const fn is_field(&self) -> bool {
        self.start < self.limit
    }

    /// Returns whether the field starts with this tag and `=`, whose `BYTES` bytes are `key`.
    #[inline(always)]
    #[must_use]
    pub fn has_key<const BYTES: u32>(&self, key: u64) -> bool {
        let with_soh = key << 8 | SOH as u64;
        match BYTES {
            0..3 => (self.text as u32) << (24 - 8 * BYTES) == (with_soh as u32) << (24 - 8 * BYTES),
            3 => self.text as u32 == with_soh as u32,
            4 => (self.text >> 8) as u32 == key as u32,
            5..8 => self.text << (56 - 8 * BYTES) == with_soh << (56 - 8 * BYTES),
            _ => eight(self.message, self.start) == Some(key),
        }
    }

    /// Returns whether the field's first three bytes match the key. Together with the preceding SOH they are a single comparison, and the
    /// rest of the key is compared only if they match.
    #[inline(always)]
    #[must_use]
    pub fn may_have_key<const BYTES: u32>(&self, key: u64) -> bool {
        if BYTES == 4 {
            self.text as u32 == (key << 8) as u32 | SOH as u32
        } else {
            self.has_key::<BYTES>(key)
        }
    }

    /// Returns whether a field that [`may_have_key`](Self::may_have_key) has the whole key.
    #[inline(always)]
    #[must_use]
    pub const fn has_rest_of_key<const BYTES: u32>(&self) -> bool {
        BYTES != 4 || (self.text >> 32) as u8 == b'='
    }

    /// Returns the position of the SOH after the message type: the current field, which has `bytes` bytes including SOH.
    #[inline(always)]
    #[must_use]
    pub const fn end_of_type(&self, bytes: u32) -> u32 {
        self.start + bytes - 1
    }

    /// Returns the end of the fields.
    #[inline(always)]
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the whole message.
    #[inline(always)]
    #[must_use]
    pub const fn message(&self) -> &'a [u8] {
        self.message
    }

    #[inline(always)]
    fn checked<T>(&self, value: Result<T, ValueError>) -> Result<T, ReadError> {
        match value {
            Ok(value) => Ok(value),
            Err(error) => Err(self.invalid(error)),
        }
    }

    /// Rejects the current field because of its value.
    #[inline(always)]
    #[must_use]
    pub fn invalid(&self, error: ValueError) -> ReadError {
        invalid(self.message, self.start, error)
    }

    /// Rejects the current field.
    #[inline(always)]
    #[must_use]
    pub fn rejected(&self, reason: RejectReason) -> ReadError {
        rejected(self.message, self.start, reason)
    }

    /// Rejects the message because the field `tag` is missing.
    #[inline(always)]
    #[must_use]
    pub fn missing(&self, tag: u32) -> ReadError {
        ReadError::Rejected { reason: RejectReason::RequiredTagMissing, tag, offset: self.start }
    }

    /// Rejects the group whose count field is `tag`, because its number of entries differs.
    #[inline(always)]
    #[must_use]
    pub fn wrong_count(&self, tag: u32) -> ReadError {
        ReadError::Rejected { reason: RejectReason::WrongGroupCount, tag, offset: self.start }
    }

    /// Returns the tag of the current field as a number.
    #[inline(always)]
    #[must_use]
    pub fn tag(&self) -> Option<u32> {
        tag_of(self.message, self.start)
    }

    // The values of the current field, whose tag and `=` are `tag_bytes` long, each with the position of the following SOH.

    /// Returns the value as text, which must not be empty.
    #[inline(always)]
    pub fn text(&self, tag_bytes: u32) -> Result<(Text, u32), ReadError> {
        let start = self.start + tag_bytes;
        let end = end_of(self.message, start);
        if start >= end {
            return Err(self.invalid(ValueError::Empty));
        }
        Ok((Text(start), end))
    }

    /// Returns the value as one character, which must not be SOH.
    #[inline(always)]
    pub fn character(&self, tag_bytes: u32) -> Result<(u8, u32), ReadError> {
        match u8::try_from(self.listed(tag_bytes)) {
            Ok(character) if character != SOH => Ok((character, self.end_of_character(tag_bytes))),
            _ => Err(self.invalid(ValueError::Format)),
        }
    }

    /// Returns the value as one character. The upper byte is the next byte minus SOH, so it is 0 if the value is that single character. The
    /// character may be SOH, which no enum lists.
    #[inline(always)]
    #[must_use]
    pub fn listed(&self, tag_bytes: u32) -> u16 {
        let pair = if tag_bytes <= 5 {
            (self.text >> (8 * tag_bytes + 8)) as u16
        } else {
            let byte = |at: u32| self.message.get(at as usize).copied().unwrap_or(0);
            u16::from_le_bytes([byte(self.start + tag_bytes), byte(self.start + tag_bytes + 1)])
        };
        pair ^ u16::from_le_bytes([0, SOH])
    }

    /// Returns the position of the SOH after a value of one character.
    #[inline(always)]
    #[must_use]
    pub const fn end_of_character(&self, tag_bytes: u32) -> u32 {
        self.start + tag_bytes + 1
    }

    /// Rejects the current field, because the value that [`Self::listed`] returned is not listed.
    #[inline(always)]
    #[must_use]
    pub fn not_listed(&self, found: u16) -> ReadError {
        self.invalid(if found < 256 { ValueError::NotListed } else { ValueError::Format })
    }

    /// Returns the value as `Y` or `N`.
    #[inline(always)]
    pub fn flag(&self, tag_bytes: u32) -> Result<(bool, u32), ReadError> {
        match self.character(tag_bytes)? {
            (b'Y', end) => Ok((true, end)),
            (b'N', end) => Ok((false, end)),
            _ => Err(self.invalid(ValueError::Format)),
        }
    }

    /// Returns the value as an unsigned number.
    #[inline(always)]
    pub fn unsigned(&self, tag_bytes: u32) -> Result<(u64, u32), ReadError> {
        self.checked(unsigned_at(self.message, self.start + tag_bytes))
    }

    /// Returns the value as a signed number.
    #[inline(always)]
    pub fn signed(&self, tag_bytes: u32) -> Result<(i64, u32), ReadError> {
        self.checked(signed_at(self.message, self.start + tag_bytes))
    }

    /// Returns the value as a decimal.
    #[inline(always)]
    pub fn decimal<const PLACES: u8>(&self, tag_bytes: u32) -> Result<(i64, u32), ReadError> {
        self.checked(decimal_at::<PLACES>(self.message, self.start + tag_bytes))
    }

    /// Returns the value as nanoseconds since 1970 UTC.
    #[inline(always)]
    pub fn timestamp(&self, tag_bytes: u32, last: &mut LastTimestamp) -> Result<(u64, u32), ReadError> {
        self.checked(timestamp_at(self.message, self.start + tag_bytes, last))
    }

    /// Returns the value as days since 1970.
    #[inline(always)]
    pub fn date(&self, tag_bytes: u32) -> Result<(u32, u32), ReadError> {
        self.checked(date_at(self.message, self.start + tag_bytes))
    }

    /// Returns the value as nanoseconds since midnight.
    #[inline(always)]
    pub fn time(&self, tag_bytes: u32) -> Result<(u64, u32), ReadError> {
        self.checked(time_at(self.message, self.start + tag_bytes))
    }

    /// Reads the current field as a length. The next field must be its data, with the tag `data_tag`. Returns the data.
    #[inline(never)]
    pub fn data(self, tag_bytes: u32, data_tag: u32) -> Result<(Span, u32), ReadError> {
        let (length, length_end) = self.unsigned(tag_bytes)?;
        let data = self.behind(length_end);
        if !data.is_field() || data.tag() != Some(data_tag) {
            return Err(data.missing(data_tag));
        }
        let digits = data_tag.ilog10() + 1;
        let start = data.start + digits + 1;
        let end = u32::try_from(length).ok().and_then(|length| start.checked_add(length));
        match end {
            Some(end) if end < data.limit && data.message.get(end as usize) == Some(&SOH) => {
                Ok((Span { start, end }, end))
            }
            _ => Err(self.invalid(ValueError::Format)),
        }
    }

    /// Checks an undeclared field. Returns the cursor after it, or after its data if it is a length.
    #[inline(never)]
    pub fn undeclared(self) -> Result<Self, ReadError> {
        let Some(tag) = self.tag() else { return Err(self.rejected(RejectReason::InvalidTag)) };
        let tag_bytes = tag.ilog10() + 2;
        // Without `=`, the tag is the whole field, and the following bytes belong to another field.
        let end = end_of(self.message, self.start);
        if end <= self.start + tag_bytes {
            return Err(self.invalid(ValueError::Empty));
        }
        let next = self.behind(end);
        match data_of_length(tag) {
            Some(data_tag) if next.is_field() && next.tag() == Some(data_tag) => {
                self.data(tag_bytes, data_tag).map(|(_, end)| self.behind(end))
            }
            _ => Ok(next),
        }
    }

    /// Returns the entries of a group, from the field after the count to this cursor, which is after the last entry.
    #[inline(always)]
    #[must_use]
    pub fn group_from(&self, first: &Self, count: u32) -> GroupSpan {
        GroupSpan { span: Span { start: first.start, end: self.start }, count }
    }

    /// Returns the count of a group, from the current field.
    #[inline(always)]
    pub fn count(&self, tag_bytes: u32) -> Result<(u32, u32), ReadError> {
        let (count, end) = self.unsigned(tag_bytes)?;
        match u32::try_from(count) {
            Ok(count) => Ok((count, end)),
            Err(_) => Err(self.invalid(ValueError::OutOfRange)),
        }
    }
}

// The reject functions take no cursor, because a cursor whose address is taken does not stay in registers.

#[cold]
#[inline(never)]
fn invalid(message: &[u8], start: u32, error: ValueError) -> ReadError {
    // An empty value has no other fault.
    let is_empty = value_of(message, start).is_empty();
    rejected(message, start, if is_empty { RejectReason::TagWithoutValue } else { error.into() })
}

#[cold]
#[inline(never)]
fn rejected(message: &[u8], start: u32, reason: RejectReason) -> ReadError {
    ReadError::Rejected { reason, tag: tag_of(message, start).unwrap_or(0), offset: start }
}

fn tag_of(message: &[u8], start: u32) -> Option<u32> {
    let field = message.get(start as usize..end_of(message, start) as usize)?;
    tag_number(field.split(|byte| *byte == b'=').next()?)
}

fn value_of(message: &[u8], start: u32) -> &[u8] {
    let field = message.get(start as usize..end_of(message, start) as usize).unwrap_or_default();
    let equals = field.iter().position(|byte| *byte == b'=');
    equals.and_then(|equals| field.get(equals + 1..)).unwrap_or_default()
}

/// Returns the fault: the trailer is not where BodyLength says, or its checksum differs.
#[cold]
fn wrong_trailer(trailer: &[u8; TRAILER_BYTES], computed: u8) -> Garbled {
    let is_trailer = trailer.starts_with(b"10=") && trailer.ends_with(&[SOH]);
    if is_trailer { Garbled::WrongChecksum { computed } } else { Garbled::WrongLength }
}
