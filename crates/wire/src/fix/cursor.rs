//! Walks the fields of one message for the code that `fix!` writes.
//!
//! A cursor is a small value that is passed by value, so that it stays in registers. The key of a field is its tag's digits and
//! `=` as one word: declared tags are compared as constants, and only undeclared ones become numbers.
//!
//! Cost: some ten instructions a field, and one conditional jump each 64 bytes.

use core::fmt;

use super::fields::{data_of_length, reason_of, tag_number};
use super::framing::{Garbled, TRAILER_BYTES, head, trailer_of};
use super::scan::{BLOCK, SOH, checksum, soh_mask};
use super::value::{ValueError, date_in, decimal_in, signed_in, time_in, timestamp_in, unsigned_in, word_at};

/// Blocks of a message whose SOHs are found at once: 512 bytes.
const WORDS: usize = 8;

/// The reasons of a session reject, tag 373.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RejectReason {
    /// 0: the tag is no number.
    InvalidTag = 0,
    /// 1: a required tag is missing.
    RequiredTagMissing = 1,
    /// 2: the tag is not defined for this message type.
    TagNotDefinedForType = 2,
    /// 3: the tag is not defined at all.
    UndefinedTag = 3,
    /// 4: the tag has no value.
    TagWithoutValue = 4,
    /// 5: the value is out of range, or not one of those listed.
    ValueIncorrect = 5,
    /// 6: the value does not have the form of its type.
    IncorrectFormat = 6,
    /// 9: SenderCompID or TargetCompID is wrong.
    CompIdProblem = 9,
    /// 10: SendingTime is too far from now, or OrigSendingTime is later.
    SendingTimeAccuracy = 10,
    /// 11: no message has this type.
    InvalidMessageType = 11,
    /// 13: the tag comes twice.
    TagTwice = 13,
    /// 14: header, body and trailer are mixed.
    TagOutOfOrder = 14,
    /// 15: the fields of a repeating group are out of order.
    GroupOutOfOrder = 15,
    /// 16: the count of a repeating group is not that of its entries.
    WrongGroupCount = 16,
    /// 17: a field that is no data field has SOH.
    SohInValue = 17,
}

impl RejectReason {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The reason in words, for the text of a reject.
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

/// Why a message is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The bytes are not one message: they are ignored, and the sequence number does not count.
    Garbled(Garbled),
    /// The message is of another type.
    OtherType,
    /// The message breaks a rule of its declaration: it is rejected, and its sequence number counts.
    Rejected {
        /// For SessionRejectReason (373).
        reason: RejectReason,
        /// For RefTagID (371); 0 if the tag is no number.
        tag: u32,
        /// Where the field starts, in bytes from the start of the message; for a missing field, the message's length.
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

/// A part of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The bytes of this part.
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
    /// A cursor at the first entry, and the number of entries.
    #[must_use]
    pub fn entries(self, message: &[u8]) -> (Cursor<'_>, u32) {
        (Cursor::over(message, self.span.start as usize, self.span.end as usize), self.count)
    }
}

/// A place in a message: the current field.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Cursor<'a> {
    message: &'a [u8],
    /// Where the fields end: a SOH is before it.
    limit: usize,
    /// The current field, and the SOH that ends it.
    start: usize,
    end: usize,
    /// Its first eight bytes, the first lowest; 0 at the end.
    text: u64,
    /// The SOHs of the block behind the current field.
    word: u64,
    block: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the message type of a message whose length and checksum are right.
    ///
    /// # Errors
    /// The bytes are not exactly one message, or its checksum is wrong.
    #[inline(always)]
    pub fn open(message: &'a [u8]) -> Result<Self, ReadError> {
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
        Ok(Self::over(message, head.body, limit))
    }

    /// A cursor at the first field of `message[start..limit]`, which ends with SOH.
    #[inline(always)]
    fn over(message: &'a [u8], start: usize, limit: usize) -> Self {
        let block = start / BLOCK * BLOCK;
        let word = soh_mask(message, block) & u64::MAX << (start % BLOCK);
        Self { message, limit, start: 0, end: start.wrapping_sub(1), text: 0, word, block }.next()
    }

    /// The next field.
    #[inline(always)]
    #[must_use]
    pub fn next(mut self) -> Self {
        self.start = self.end.wrapping_add(1);
        if self.start >= self.limit {
            self.text = 0;
            return self;
        }
        if self.word == 0 {
            (self.block, self.word) = refill(self.message, self.block + BLOCK);
            if self.word == 0 {
                self.start = self.limit;
                self.text = 0;
                return self;
            }
        }
        self.end = self.block + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        self.text = word_at(self.message, self.start);
        self
    }

    /// The SOHs of the first blocks of the message, for [`Cursor::next_in`].
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            if index * BLOCK >= self.limit {
                break;
            }
            *word = soh_mask(self.message, index * BLOCK);
        }
        words
    }

    /// As [`Cursor::next`], but without a jump that depends on where the blocks end: which field that is differs from message to
    /// message, and a processor guesses it wrong.
    #[inline(always)]
    #[must_use]
    pub fn next_in(mut self, words: &[u64; WORDS]) -> Self {
        let before = self;
        self.start = self.end.wrapping_add(1);
        if self.start >= self.limit {
            self.text = 0;
            return self;
        }
        let is_empty = usize::from(self.word == 0);
        self.block += is_empty * BLOCK;
        let candidate = words.get(self.block / BLOCK % WORDS).copied().unwrap_or(0);
        self.word |= candidate & 0u64.wrapping_sub(is_empty as u64);
        if self.word == 0 || self.block >= WORDS * BLOCK {
            return before.next();
        }
        self.end = self.block + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        self.text = word_at(self.message, self.start);
        self
    }

    /// The digits of the tag and `=`, the first in the lowest byte; 0 behind the last field, or without `=` in eight bytes.
    #[inline(always)]
    #[must_use]
    pub const fn key(&self) -> u64 {
        let equals = self.text ^ 0x3d3d_3d3d_3d3d_3d3d;
        let found = equals.wrapping_sub(0x0101_0101_0101_0101) & !equals & 0x8080_8080_8080_8080;
        if found == 0 { 0 } else { self.text & (found ^ found.wrapping_sub(1)) }
    }

    /// Whether there is a field.
    #[inline(always)]
    #[must_use]
    pub const fn is_field(&self) -> bool {
        self.start < self.limit
    }

    /// Whether the field starts with a tag and `=`, whose `BYTES` bytes are `key`.
    #[inline(always)]
    #[must_use]
    pub const fn has_key<const BYTES: u32>(&self, key: u64) -> bool {
        match BYTES {
            0..4 => (self.text as u32) << (32 - 8 * BYTES) >> (32 - 8 * BYTES) == key as u32,
            4 => self.text as u32 == key as u32,
            5..8 => self.text << (64 - 8 * BYTES) >> (64 - 8 * BYTES) == key,
            _ => self.text == key,
        }
    }

    /// The whole message.
    #[inline(always)]
    #[must_use]
    pub const fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Whether the value of the current field, whose tag and `=` have `tag_bytes`, is `text`.
    #[inline(always)]
    #[must_use]
    pub fn is_value(&self, tag_bytes: usize, text: &[u8]) -> bool {
        self.message.get(self.start + tag_bytes..self.end) == Some(text)
    }

    #[inline(always)]
    fn checked<T>(&self, value: Result<T, ValueError>) -> Result<T, ReadError> {
        match value {
            Ok(value) => Ok(value),
            Err(error) => Err(self.invalid(error)),
        }
    }

    /// The current field is rejected for its value.
    #[inline(always)]
    #[must_use]
    pub fn invalid(&self, error: ValueError) -> ReadError {
        invalid(self.message, self.start, self.end, error)
    }

    /// The current field is rejected.
    #[inline(always)]
    #[must_use]
    pub fn rejected(&self, reason: RejectReason) -> ReadError {
        rejected(self.message, self.start, self.end, reason)
    }

    /// The field `tag` is missing before the current one.
    #[inline(always)]
    #[must_use]
    pub fn missing(&self, tag: u32) -> ReadError {
        ReadError::Rejected { reason: RejectReason::RequiredTagMissing, tag, offset: self.start as u32 }
    }

    /// The group whose count field is `tag` has another number of entries.
    #[inline(always)]
    #[must_use]
    pub fn wrong_count(&self, tag: u32) -> ReadError {
        ReadError::Rejected { reason: RejectReason::WrongGroupCount, tag, offset: self.start as u32 }
    }

    /// The tag of the current field as a number.
    #[inline(always)]
    #[must_use]
    pub fn tag(&self) -> Option<u32> {
        tag_of(self.message, self.start, self.end)
    }

    /// The value as text: not empty.
    #[inline(always)]
    pub fn text(&self, tag_bytes: usize) -> Result<Span, ReadError> {
        let start = self.start + tag_bytes;
        if start >= self.end {
            return Err(self.invalid(ValueError::Empty));
        }
        Ok(Span { start: start as u32, end: self.end as u32 })
    }

    /// The value as one character.
    #[inline(always)]
    pub fn character(&self, tag_bytes: usize) -> Result<u8, ReadError> {
        let start = self.start + tag_bytes;
        match self.message.get(start) {
            Some(character) if start + 1 == self.end => Ok(*character),
            _ => Err(self.invalid(ValueError::Format)),
        }
    }

    /// The value as `Y` or `N`.
    #[inline(always)]
    pub fn flag(&self, tag_bytes: usize) -> Result<bool, ReadError> {
        match self.character(tag_bytes)? {
            b'Y' => Ok(true),
            b'N' => Ok(false),
            _ => Err(self.invalid(ValueError::Format)),
        }
    }

    /// The value as an unsigned number.
    #[inline(always)]
    pub fn unsigned(&self, tag_bytes: usize) -> Result<u64, ReadError> {
        self.checked(unsigned_in(self.message, self.start + tag_bytes, self.end))
    }

    /// The value as a signed number.
    #[inline(always)]
    pub fn signed(&self, tag_bytes: usize) -> Result<i64, ReadError> {
        self.checked(signed_in(self.message, self.start + tag_bytes, self.end))
    }

    /// The value as a decimal.
    #[inline(always)]
    pub fn decimal<const PLACES: u8>(&self, tag_bytes: usize) -> Result<i64, ReadError> {
        self.checked(decimal_in::<PLACES>(self.message, self.start + tag_bytes, self.end))
    }

    /// The value as nanoseconds since 1970 UTC.
    #[inline(always)]
    pub fn timestamp(&self, tag_bytes: usize) -> Result<u64, ReadError> {
        self.checked(timestamp_in(self.message, self.start + tag_bytes, self.end))
    }

    /// The value as days since 1970.
    #[inline(always)]
    pub fn date(&self, tag_bytes: usize) -> Result<u32, ReadError> {
        self.checked(date_in(self.message, self.start + tag_bytes, self.end))
    }

    /// The value as nanoseconds since midnight.
    #[inline(always)]
    pub fn time(&self, tag_bytes: usize) -> Result<u64, ReadError> {
        self.checked(time_in(self.message, self.start + tag_bytes, self.end))
    }

    /// The current field is a length; the next one must be its data, with the key `data_key`. Returns the cursor at the data, and
    /// the data.
    #[inline(never)]
    pub fn data(self, tag_bytes: usize, data_tag: u32) -> Result<(Self, Span), ReadError> {
        let length = self.unsigned(tag_bytes)?;
        let mut data = self.next();
        if data.tag() != Some(data_tag) {
            return Err(data.missing(data_tag));
        }
        let digits = data_tag.ilog10() as usize + 1;
        let start = data.start + digits + 1;
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        match end {
            Some(end) if end < data.limit && data.message.get(end) == Some(&SOH) => {
                data.end = end;
                data.block = end / BLOCK * BLOCK;
                data.word = soh_mask(data.message, data.block) & (u64::MAX - 1) << (end % BLOCK);
                Ok((data, Span { start: start as u32, end: end as u32 }))
            }
            _ => Err(self.invalid(ValueError::Format)),
        }
    }

    /// Checks a field that is not declared. Returns the cursor at it, or at its data if it is a length.
    #[cold]
    #[inline(never)]
    pub fn undeclared(self) -> Result<Self, ReadError> {
        let Some(tag) = self.tag() else { return Err(self.rejected(RejectReason::InvalidTag)) };
        if value_of(self.message, self.start, self.end).is_empty() {
            return Err(self.invalid(ValueError::Empty));
        }
        match data_of_length(tag) {
            Some(data_tag) if self.next().tag() == Some(data_tag) => {
                let tag_bytes = tag.ilog10() as usize + 2;
                self.data(tag_bytes, data_tag).map(|(data, _)| data)
            }
            _ => Ok(self),
        }
    }

    /// The entries of a group, from the field behind the count to this cursor, which stands behind the last entry.
    #[inline(always)]
    #[must_use]
    pub fn group_from(&self, first: &Self, count: u32) -> GroupSpan {
        GroupSpan { span: Span { start: first.start as u32, end: self.start as u32 }, count }
    }

    /// The count of a group, from the current field; at most as many as there are fields behind it.
    #[inline(always)]
    pub fn count(&self, tag_bytes: usize) -> Result<u32, ReadError> {
        let count = self.unsigned(tag_bytes)?;
        match u32::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => Err(self.invalid(ValueError::OutOfRange)),
        }
    }
}

/// The next block that has a SOH, and its bits; none if there is none. Out of line: it is called once for 64 bytes, and
/// [`Cursor::next`] is written out for each declared field.
#[inline(never)]
fn refill(message: &[u8], from: usize) -> (usize, u64) {
    let mut block = from;
    while block < message.len() {
        let word = soh_mask(message, block);
        if word != 0 {
            return (block, word);
        }
        block += BLOCK;
    }
    (block, 0)
}

// The functions of rejects take no cursor: one whose address is taken does not stay in registers.

#[cold]
#[inline(never)]
fn invalid(message: &[u8], start: usize, end: usize, error: ValueError) -> ReadError {
    // A value that is empty has no other fault.
    let is_empty = value_of(message, start, end).is_empty();
    rejected(message, start, end, if is_empty { RejectReason::TagWithoutValue } else { error.into() })
}

#[cold]
#[inline(never)]
fn rejected(message: &[u8], start: usize, end: usize, reason: RejectReason) -> ReadError {
    ReadError::Rejected { reason, tag: tag_of(message, start, end).unwrap_or(0), offset: start as u32 }
}

fn tag_of(message: &[u8], start: usize, end: usize) -> Option<u32> {
    let field = message.get(start..end)?;
    tag_number(field.split(|byte| *byte == b'=').next()?)
}

fn value_of(message: &[u8], start: usize, end: usize) -> &[u8] {
    let field = message.get(start..end).unwrap_or_default();
    let equals = field.iter().position(|byte| *byte == b'=');
    equals.and_then(|equals| field.get(equals + 1..)).unwrap_or_default()
}

/// Whether the trailer is not where BodyLength says, or is another one.
#[cold]
fn wrong_trailer(trailer: &[u8; TRAILER_BYTES], computed: u8) -> Garbled {
    let is_trailer = trailer.starts_with(b"10=") && trailer.ends_with(&[SOH]);
    if is_trailer { Garbled::WrongChecksum { computed } } else { Garbled::WrongLength }
}
