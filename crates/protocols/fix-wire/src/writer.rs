//! Writes a message into a caller's buffer, with BodyLength and CheckSum.
//!
//! BodyLength is known last but precedes the body. The first fields are therefore written at the end, backwards from the start of the
//! body. The message starts some bytes into the buffer, and nothing is moved.
//!
//! Cost: measured by `benches/fix.rs`. Tags are constants after inlining, and short values are stored with their SOH as one word. No
//! called function takes the writer's address, so its position in the buffer stays in a register.

use core::fmt;
use core::ops::Range;

use super::framing::TRAILER_BYTES;
use super::scan::{BLOCK, SOH, has_soh, sum_of_blocks};
use super::value::{
    DAY_NS, LastSecond, ROOM, TimePrecision, put_date, put_decimal, put_time, put_timestamp, put_unsigned,
    short_decimal_text, short_number_text, text_of_eight, three_digits, timestamp_words,
};

/// Bytes reserved before the body: `8=FIXT.1.1`, `9=` and nine digits, each with SOH.
const HEAD_ROOM: usize = 24;

/// Bytes of the buffer that the message cannot use, because writers store whole words.
pub const SPARE_BYTES: usize = 72;

/// Bytes that a field may touch from its start: the tag, a number or a time, and SOH. Longer texts check for room separately.
const FIELD_ROOM: usize = 64;

/// Length of the longest tag with its `=`.
const TAG_ROOM: usize = 8;

const _: () = assert!(TAG_ROOM + ROOM < FIELD_ROOM && FIELD_ROOM < SPARE_BYTES);
const _: () = assert!(TAG_ROOM + LONG_TEXT < FIELD_ROOM);

/// The bytes that a field is written to.
type Room = [u8; FIELD_ROOM];

/// Why a message was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The buffer is too small: it must be at least [`SPARE_BYTES`] larger than the message.
    BufferTooSmall {
        /// Length of the buffer in bytes.
        got: usize,
    },
    /// BeginString is longer than 8 bytes, or a value is empty or contains SOH.
    InvalidValue {
        /// The field's tag.
        tag: u32,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooSmall { got } => {
                write!(formatter, "the message does not fit into a buffer of {got} bytes")
            }
            Self::InvalidValue { tag } => write!(formatter, "the value of tag {tag} cannot be written"),
        }
    }
}

impl core::error::Error for WriteError {}

/// The fault for a buffer that is too small; not a tag.
const FULL: u32 = u32::MAX;

/// Returns the digits of a tag and `=`, the first in the lowest byte, and their count. Tags have at most seven digits.
#[inline(always)]
const fn tag_text(tag: u32) -> (u64, usize) {
    const fn digit(tag: u32, unit: u32) -> u64 {
        (b'0' as u32 + tag / unit % 10) as u64
    }
    let equals = b'=' as u64;
    match tag {
        0..10 => (digit(tag, 1) | equals << 8, 2),
        10..100 => (digit(tag, 10) | digit(tag, 1) << 8 | equals << 16, 3),
        100..1_000 => (digit(tag, 100) | digit(tag, 10) << 8 | digit(tag, 1) << 16 | equals << 24, 4),
        1_000..10_000 => (
            digit(tag, 1_000)
                | digit(tag, 100) << 8
                | digit(tag, 10) << 16
                | digit(tag, 1) << 24
                | equals << 32,
            5,
        ),
        _ => long_tag_text(tag),
    }
}

const fn long_tag_text(tag: u32) -> (u64, usize) {
    let (mut text, mut count, mut rest) = (b'=' as u64, 1, tag);
    while rest != 0 && count < 8 {
        text = text << 8 | (b'0' as u32 + rest % 10) as u64;
        rest /= 10;
        count += 1;
    }
    (text, count)
}

/// A message that is being written. Errors are stored, and [`finish`](Self::finish) reports them.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    /// Start of the next field, in 32 bits, so that a single comparison bounds the field's room.
    at: u32,
    /// `8=FIX.4.4`, SOH and `9=`, the first in the lowest byte.
    begin: u128,
    begin_length: usize,
    precision: TimePrecision,
    second: LastSecond,
    /// The tag of the first field that could not be written, [`FULL`], or 0.
    fault: u32,
}

impl<'b> Writer<'b> {
    /// Begins a message of type `message_type` in `buffer`, which must be [`SPARE_BYTES`] larger than the message.
    #[inline]
    #[must_use]
    pub fn begin(buffer: &'b mut [u8], begin_string: &[u8], message_type: &[u8]) -> Self {
        let mut writer = Self {
            at: HEAD_ROOM as u32,
            buffer,
            begin: 0,
            begin_length: begin_string.len(),
            precision: TimePrecision::default(),
            second: LastSecond::NONE,
            fault: 0,
        };
        let text = match *begin_string {
            [a, b, c, d, e, f, g] => [b'8', b'=', a, b, c, d, e, f, g, SOH, b'9', b'=', 0, 0, 0, 0],
            [a, b, c, d, e, f, g, h] => [b'8', b'=', a, b, c, d, e, f, g, h, SOH, b'9', b'=', 0, 0, 0],
            _ => {
                writer.fault = 8;
                [0; 16]
            }
        };
        writer.begin = u128::from_le_bytes(text);
        writer.text(35, message_type);
        writer
    }

    /// Sets the number of fractional digits for the following times; the default is three.
    #[inline]
    pub fn set_precision(&mut self, precision: TimePrecision) {
        self.precision = precision;
    }

    /// Reuses the text of the last second ([`Self::second`]) of an earlier message, because both usually have the same date.
    #[inline]
    pub const fn set_second(&mut self, second: LastSecond) {
        self.second = second;
    }

    /// Returns the text of the last second written.
    #[inline]
    #[must_use]
    pub const fn second(&self) -> LastSecond {
        self.second
    }

    /// Inline and without a call, so that the writer's fields stay in registers.
    #[inline(always)]
    const fn set_fault(&mut self, fault: u32) {
        if self.fault == 0 {
            self.fault = fault;
        }
    }

    /// Returns a writer at the same position, for many fields. The compiler keeps it in registers unless its address escapes.
    /// [`Self::resume`] continues from it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn local(&mut self) -> Writer<'_> {
        Writer {
            buffer: self.buffer,
            at: self.at,
            begin: self.begin,
            begin_length: self.begin_length,
            precision: self.precision,
            second: self.second,
            fault: self.fault,
        }
    }

    /// Returns the position of a local writer.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn place_and_fault(&self) -> (u32, u32, LastSecond) {
        (self.at, self.fault, self.second)
    }

    /// Continues at the position of a local writer.
    #[doc(hidden)]
    #[inline(always)]
    pub fn resume(&mut self, (at, fault, second): (u32, u32, LastSecond)) {
        (self.at, self.fault, self.second) = (at, fault, second);
    }

    /// Writes a field. `put` writes the value and SOH at the given position, after the tag, and returns the position after SOH.
    #[inline(always)]
    fn field(&mut self, tag: u32, put: impl FnOnce(&mut Room, usize, &mut LastSecond) -> usize) {
        let (text, count) = tag_text(tag);
        let at = self.at as usize;
        let room =
            self.buffer.get_mut(at..at + FIELD_ROOM).and_then(|room| room.first_chunk_mut::<FIELD_ROOM>());
        let Some(room) = room else { return self.set_fault(FULL) };
        put_word(room, 0, text);
        self.at += put(room, count, &mut self.second) as u32;
    }

    /// Writes a field of any length.
    #[inline(always)]
    fn long_field(&mut self, tag: u32, value: &[u8]) {
        match put_long_field(self.buffer, self.at, tag, value) {
            Some(at) => self.at = at,
            None => self.set_fault(FULL),
        }
    }

    /// Writes a text, which must not be empty or contain SOH.
    #[inline(always)]
    pub fn text(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        if value.len() <= SHORT_TEXT {
            let mut is_wrong = false;
            self.field(tag, |room, at, _| {
                let end;
                (end, is_wrong) = put_short_text(room, at, value);
                end
            });
            if is_wrong {
                self.set_fault(tag);
            }
        } else if value.len() <= LONG_TEXT {
            let mut is_wrong = false;
            self.field(tag, |room, at, _| {
                let end;
                (end, is_wrong) = put_long_text(room, at, value);
                end
            });
            if is_wrong {
                self.set_fault(tag);
            }
        } else {
            if value.contains(&SOH) {
                self.set_fault(tag);
            }
            self.long_field(tag, value);
        }
        self
    }

    /// Writes prepared fields.
    #[inline(always)]
    pub fn prepared(&mut self, fields: &PreparedFields) -> &mut Self {
        let at = self.at as usize;
        let room =
            self.buffer.get_mut(at..at + FIELD_ROOM).and_then(|room| room.first_chunk_mut::<FIELD_ROOM>());
        match room {
            Some(room) => {
                *room = fields.bytes;
                self.at += fields.length;
            }
            None => self.set_fault(FULL),
        }
        self
    }

    /// Writes an unsigned number.
    #[inline(always)]
    pub fn number(&mut self, tag: u32, value: u64) -> &mut Self {
        self.field(tag, |room, at, _| put_number(room, at, value));
        self
    }

    /// Writes a signed number.
    #[inline(always)]
    pub fn signed(&mut self, tag: u32, value: i64) -> &mut Self {
        self.field(tag, |room, at, _| match u64::try_from(value) {
            Ok(value) => put_number(room, at, value),
            Err(_) => put_any_decimal(room, at, value, 0),
        });
        self
    }

    /// Writes a decimal in units of `10^-PLACES`, without trailing zeros.
    #[inline(always)]
    pub fn decimal<const PLACES: u8>(&mut self, tag: u32, value: i64) -> &mut Self {
        const { assert!(PLACES <= 10, "a decimal keeps at most 10 places") };
        self.field(tag, |room, at, _| {
            if PLACES == 8 {
                put_decimal_e8(room, at, value)
            } else {
                put_any_decimal(room, at, value, PLACES)
            }
        });
        self
    }

    /// Writes nanoseconds since 1970 UTC as a UTCTimestamp with the current precision.
    #[inline(always)]
    pub fn timestamp(&mut self, tag: u32, time_ns: u64) -> &mut Self {
        let precision = self.precision;
        self.field(tag, |room, at, second| match precision {
            TimePrecision::Milliseconds => {
                let [date, time, end] = timestamp_words(time_ns, second);
                put_word(room, at, date);
                put_word(room, at + 8, time);
                put_word(room, at + 16, end);
                at + 22
            }
            other => {
                let mut local = *second;
                let end = put_other_timestamp(room, at, time_ns, other, &mut local);
                *second = local;
                end
            }
        });
        self
    }

    /// Writes days since 1970 as a UTCDateOnly or LocalMktDate.
    #[inline]
    pub fn date(&mut self, tag: u32, days: u32) -> &mut Self {
        self.field(tag, |room, at, _| {
            let length = put_date(room.get_mut(at..).unwrap_or_default(), days);
            ended(room, at + length)
        });
        self
    }

    /// Writes nanoseconds since midnight as a UTCTimeOnly with the current precision.
    #[inline]
    pub fn time(&mut self, tag: u32, time_ns: u64) -> &mut Self {
        let precision = self.precision;
        self.field(tag, |room, at, _| {
            let length = put_time(room.get_mut(at..).unwrap_or_default(), time_ns % DAY_NS, precision);
            ended(room, at + length)
        });
        self
    }

    /// Writes `Y` or `N`.
    #[inline(always)]
    pub fn flag(&mut self, tag: u32, value: bool) -> &mut Self {
        self.character(tag, if value { b'Y' } else { b'N' })
    }

    /// Writes one character, which must not be SOH.
    #[inline(always)]
    pub fn character(&mut self, tag: u32, value: u8) -> &mut Self {
        if value == SOH {
            self.set_fault(tag);
        }
        self.field(tag, |room, at, _| {
            put_word(room, at, u64::from(value) | u64::from(SOH) << 8);
            at + 2
        });
        self
    }

    /// Writes a length field and its data field. The data may contain SOH.
    #[inline]
    pub fn data(&mut self, length_tag: u32, data_tag: u32, value: &[u8]) -> &mut Self {
        self.number(length_tag, value.len() as u64);
        self.long_field(data_tag, value);
        self
    }

    /// Writes a value read from another message. It may contain SOH if it is data.
    #[inline]
    pub fn copied(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        self.long_field(tag, value);
        self
    }

    /// Finishes the message and returns it. It starts some bytes into the buffer.
    ///
    /// # Errors
    /// The buffer is too small, or a value is invalid.
    #[inline]
    pub fn finish(self) -> Result<&'b mut [u8], WriteError> {
        let (buffer, place) = self.place()?;
        let got = buffer.len();
        buffer.get_mut(place).ok_or(WriteError::BufferTooSmall { got })
    }

    /// Finishes the message and returns its range in the buffer, for callers that keep the buffer.
    ///
    /// # Errors
    /// The buffer is too small, or a value is invalid.
    #[inline]
    pub fn finish_range(self) -> Result<Range<usize>, WriteError> {
        self.place().map(|(_, place)| place)
    }

    #[inline(always)]
    fn place(self) -> Result<(&'b mut [u8], Range<usize>), WriteError> {
        let too_small = WriteError::BufferTooSmall { got: self.buffer.len() };
        match self.fault {
            0 => {}
            FULL => return Err(too_small),
            tag => return Err(WriteError::InvalidValue { tag }),
        }
        let at = self.at as usize;
        // `8=FIX.4.4`, SOH, `9=`, digits, SOH, directly before the body.
        let (digits, count) = match at - HEAD_ROOM {
            length @ 100..1_000 => (u64::from(three_digits(length as u32)), 3),
            length @ 0..10_000 => {
                let (text, bits) = short_number_text(length as u32);
                (text, bits as usize / 8)
            }
            length @ 10_000..100_000_000 => {
                let text = text_of_eight(length as u32);
                let unused = (text ^ text_of_eight(0)).trailing_zeros() & 0x38;
                (text >> unused, 8 - unused as usize / 8)
            }
            _ => return Err(too_small),
        };
        let prefix = 2 + self.begin_length + 3;
        let start = HEAD_ROOM.checked_sub(prefix + count + 1).ok_or(too_small)?;
        let head = self.buffer.first_chunk_mut::<{ HEAD_ROOM + 8 }>().ok_or(too_small)?;
        let body_start = u64::from_le_bytes(*head.last_chunk::<8>().ok_or(too_small)?);
        if let Some(place) = head.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<16>()) {
            *place = self.begin.to_le_bytes();
        }
        // Each word is overwritten by its successor; the body's first bytes are restored at the end.
        for (place, word) in
            [(start + prefix, digits), (HEAD_ROOM - 1, u64::from(SOH)), (HEAD_ROOM, body_start)]
        {
            if let Some(place) = head.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<8>()) {
                *place = word.to_le_bytes();
            }
        }
        // Zero the bytes after the message to complete its last block.
        self.buffer.get_mut(at..at + BLOCK).ok_or(too_small)?.fill(0);
        let sum = sum_of_blocks(self.buffer.get(start..at + BLOCK - 1).ok_or(too_small)?);
        let trailer = u64::from_le_bytes([b'1', b'0', b'=', 0, 0, 0, SOH, 0])
            | u64::from(three_digits(u32::from(sum as u8))) << 24;
        // One byte more than the trailer: there is room after the message.
        let place = self.buffer.get_mut(at..at + 8).and_then(|rest| rest.first_chunk_mut::<8>());
        *place.ok_or(too_small)? = trailer.to_le_bytes();
        Ok((self.buffer, start..at + TRAILER_BYTES))
    }
}

/// Consecutive fields with bytes known in advance, such as the CompIDs of a session. Copying all of them costs less than writing one
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedFields {
    bytes: Room,
    length: u32,
}

impl PreparedFields {
    /// Prepares the fields that `write` writes; `None` if one is invalid, or they are longer than 64 bytes.
    #[must_use]
    pub fn new(write: impl FnOnce(&mut Writer<'_>)) -> Option<Self> {
        let mut buffer = [0; HEAD_ROOM + 4 * FIELD_ROOM];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"0");
        let start = writer.at;
        write(&mut writer);
        let length = writer.at.wrapping_sub(start);
        let is_written = writer.fault == 0 && length as usize <= FIELD_ROOM;
        let mut bytes = *buffer.get(start as usize..)?.first_chunk::<FIELD_ROOM>()?;
        bytes.get_mut(length as usize..)?.fill(0);
        is_written.then_some(Self { bytes, length })
    }
}

// ---- values ----------------------------------------------------------------------------------------------

// Each writes a value and SOH to `room` at the position `at`, after a tag, and returns the position after SOH.

/// Stores the eight bytes of a word. The position is below 32 in all fields.
#[inline(always)]
fn put_word(room: &mut Room, at: usize, word: u64) {
    let at = at % 32;
    if let Some(place) = room.get_mut(at..at + 8).and_then(|place| place.first_chunk_mut::<8>()) {
        *place = word.to_le_bytes();
    }
}

/// Stores sixteen bytes. The position is below 48 in all fields.
#[inline(always)]
fn put_sixteen(room: &mut Room, at: usize, bytes: [u8; 16]) {
    let at = at.min(FIELD_ROOM - 16);
    if let Some(place) = room.get_mut(at..at + 16).and_then(|place| place.first_chunk_mut::<16>()) {
        *place = bytes;
    }
}

/// Writes SOH after a value that ends at `end`.
#[inline(always)]
fn ended(room: &mut Room, end: usize) -> usize {
    room[end % FIELD_ROOM] = SOH;
    end + 1
}

#[inline(always)]
fn put_number(room: &mut Room, at: usize, number: u64) -> usize {
    if number >= 10_000 {
        return put_long_number(room, at, number);
    }
    let (text, bits) = short_number_text(number as u32);
    put_word(room, at, text);
    at + bits as usize / 8 + 1
}

#[inline(never)]
fn put_long_number(room: &mut Room, at: usize, number: u64) -> usize {
    let length = put_unsigned(room.get_mut(at..).unwrap_or_default(), number);
    ended(room, at + length)
}

#[inline(never)]
fn put_decimal_e8(room: &mut Room, at: usize, value: i64) -> usize {
    const UNIT: u64 = 100_000_000;
    // A negative value becomes a very large one.
    let (whole, fraction) = (value as u64 / UNIT, (value as u64 % UNIT) as u32);
    if fraction == 0 && whole < 10_000 {
        return put_number(room, at, whole);
    }
    match short_decimal_text(whole, fraction) {
        Some((digits, bits, fraction, fraction_bits)) => {
            put_word(room, at, digits);
            let behind = at + bits as usize / 8;
            put_word(room, behind, u64::from(fraction));
            ended(room, behind + fraction_bits as usize / 8)
        }
        None => put_any_decimal(room, at, value, 8),
    }
}

#[inline(never)]
fn put_any_decimal(room: &mut Room, at: usize, value: i64, places: u8) -> usize {
    let length = put_decimal(room.get_mut(at..).unwrap_or_default(), value, places);
    ended(room, at + length)
}

#[inline(never)]
fn put_other_timestamp(
    room: &mut Room,
    at: usize,
    time_ns: u64,
    precision: TimePrecision,
    second: &mut LastSecond,
) -> usize {
    let length = put_timestamp(room.get_mut(at..).unwrap_or_default(), time_ns, precision, second);
    ended(room, at + length)
}

/// The longest text that is copied as two words.
const SHORT_TEXT: usize = 16;

/// The longest text that is copied as three pieces of sixteen bytes.
const LONG_TEXT: usize = 48;

/// Copies a value of up to [`SHORT_TEXT`] bytes. Also returns whether it is an invalid text: empty or containing SOH.
#[inline(always)]
fn put_short_text(room: &mut Room, at: usize, value: &[u8]) -> (usize, bool) {
    let length = value.len();
    if let (Some(first), Some(last)) = (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        // Two overlapping words.
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        put_word(room, at, first);
        put_word(room, at + length - 8, last);
        return (ended(room, at + length), has_soh([first, last]));
    }
    let word = match (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << (8 * (length - 4))
        }
        _ => {
            let byte = |index: usize| u64::from(value.get(index).copied().unwrap_or(SOH));
            // Three bytes, which may coincide. An empty value reads as SOH and is therefore invalid.
            let (middle, last) = (length / 2, length.saturating_sub(1));
            byte(0) | byte(middle) << (8 * middle) | byte(last) << (8 * last)
        }
    };
    put_word(room, at, word | u64::from(SOH) << (8 * length));
    (at + length + 1, has_soh([word, 0]))
}

/// Copies a value of 16 to [`LONG_TEXT`] bytes, like [`put_short_text`].
#[inline(never)]
fn put_long_text(room: &mut Room, at: usize, value: &[u8]) -> (usize, bool) {
    let (Some(first), Some(last)) = (value.first_chunk::<16>(), value.last_chunk::<16>()) else {
        return (at, true);
    };
    let middle = value.get(16..32).and_then(|middle| middle.first_chunk::<16>()).unwrap_or(last);
    put_sixteen(room, at, *first);
    if value.len() >= 32 {
        put_sixteen(room, at + 16, *middle);
    }
    put_sixteen(room, at + value.len() - 16, *last);
    let is_wrong = [first, middle, last].into_iter().any(|piece| has_soh(words_of(*piece)));
    (ended(room, at + value.len()), is_wrong)
}

#[inline(always)]
fn words_of(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

/// Writes a field of any length to the buffer at the position `at`. Returns the position after it; `None` without room.
#[inline(never)]
fn put_long_field(buffer: &mut [u8], at: u32, tag: u32, value: &[u8]) -> Option<u32> {
    let (text, count) = tag_text(tag);
    let start = at as usize;
    let length = count + value.len() + 1;
    let room = buffer.get_mut(start..).filter(|room| room.len() > length + TAG_ROOM)?;
    *room.first_chunk_mut::<TAG_ROOM>()? = text.to_le_bytes();
    room.get_mut(count..count + value.len())?.copy_from_slice(value);
    *room.get_mut(length - 1)? = SOH;
    u32::try_from(start + length).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::framing::{Framing, next_message};
    use super::*;
    use crate::Fields;

    #[test]
    fn a_message_has_its_length_and_checksum() {
        let mut buffer = [0xaa; 256];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.2", b"A");
        writer.text(49, b"BANZAI").text(56, b"EXEC").number(34, 1);
        writer.timestamp(52, 1_709_285_400_123_456_789).number(98, 0).number(108, 30).flag(141, true);
        let message = writer.finish().unwrap();
        let expected =
            "8=FIX.4.2|9=71|35=A|49=BANZAI|56=EXEC|34=1|52=20240301-09:30:00.123|98=0|108=30|141=Y|10=241|";
        assert_eq!(String::from_utf8_lossy(message).replace('\x01', "|"), expected);
    }

    #[test]
    fn every_kind_of_value_is_written() {
        let mut buffer = [0; 300];
        let mut writer = Writer::begin(&mut buffer, b"FIXT.1.1", b"AE");
        writer.set_precision(TimePrecision::Nanoseconds);
        writer
            .signed(1_000_000, -5)
            .decimal::<8>(44, 10_125_000_000)
            .date(75, 19_783)
            .time(273, 1)
            .data(95, 96, b"a\x01b");
        let message = writer.finish().unwrap();
        let text = String::from_utf8_lossy(message).replace('\x01', "|");
        assert!(text.starts_with("8=FIXT.1.1|9=74|35=AE|1000000=-5|44=101.25|75=20240301|273=00:00:00.000000001|95=3|96=a|b|10="), "{text}");
    }

    #[test]
    fn a_value_that_would_break_the_message_is_refused() {
        let mut buffer = [0; 256];
        for value in [&b""[..], b"\x01", b"ab\x01", b"abcd\x01", b"abcdefgh\x01", b"abcdefghijklmnopq\x01"] {
            let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
            writer.text(58, value);
            assert_eq!(writer.finish().unwrap_err(), WriteError::InvalidValue { tag: 58 }, "{value:?}");
        }
        let writer = Writer::begin(&mut buffer, b"FIX", b"D");
        assert_eq!(writer.finish().unwrap_err(), WriteError::InvalidValue { tag: 8 });
    }

    #[test]
    fn a_buffer_without_room_is_reported_and_never_overrun() {
        let mut needed = 0;
        for size in 0..400 {
            let mut buffer = vec![0; size];
            let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
            writer.text(58, &[b'x'; 100]).decimal::<8>(44, i64::MIN).timestamp(60, 0);
            match writer.finish() {
                Ok(message) => {
                    needed = message.len();
                    assert!(size >= needed);
                    assert_eq!(next_message(message, 1_000), Framing::Message { length: needed });
                }
                Err(error) => assert_eq!(error, WriteError::BufferTooSmall { got: size }),
            }
        }
        assert!(needed > 0);
        let mut buffer = vec![0; needed + SPARE_BYTES];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
        writer.text(58, &[b'x'; 100]).decimal::<8>(44, i64::MIN).timestamp(60, 0);
        assert!(writer.finish().is_ok());
    }

    #[test]
    fn prepared_fields_are_copied_as_they_were_written() {
        let fields = |writer: &mut Writer<'_>| _ = writer.text(49, b"CLIENT01").text(56, b"TAPEWORKS");
        let prepared = PreparedFields::new(fields).unwrap();
        let (mut first, mut second) = ([0; 256], [0; 256]);
        let mut writer = Writer::begin(&mut first, b"FIX.4.4", b"0");
        fields(&mut writer);
        writer.number(34, 7);
        let expected = writer.finish().unwrap();
        let mut writer = Writer::begin(&mut second, b"FIX.4.4", b"0");
        writer.prepared(&prepared).number(34, 7);
        assert_eq!(writer.finish().unwrap(), expected);
        for length in [60, 61, 62, 200] {
            let text = vec![b'x'; length];
            let prepared = PreparedFields::new(|writer| _ = writer.text(1, &text));
            assert_eq!(prepared.is_some(), length + 3 <= FIELD_ROOM, "{length}");
        }
        assert_eq!(PreparedFields::new(|writer| _ = writer.text(1, b"")), None);
    }

    #[test]
    fn tags_of_every_length_are_written() {
        for tag in [1, 9, 10, 99, 100, 999, 1_000, 9_999, 10_000, 999_999, 1_000_000, 9_999_999] {
            let (text, count) = tag_text(tag);
            assert_eq!(&text.to_le_bytes()[..count], format!("{tag}=").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn fields_are_read_as_written(values in prop::collection::vec((1u32..10_000, "[ -~]{1,60}"), 0..30)) {
            let mut buffer = vec![0; 4_096];
            let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
            for (tag, value) in &values {
                writer.text(*tag, value.as_bytes());
            }
            let message = writer.finish().unwrap();
            prop_assert_eq!(next_message(message, 4_096), Framing::Message { length: message.len() });
            prop_assume!(values.iter().all(|(tag, _)| crate::data_of_length(*tag).is_none()));
            let fields: Vec<_> = Fields::new(message).map(Result::unwrap).collect();
            prop_assert_eq!(fields.len(), values.len() + 4);
            for (field, (tag, value)) in fields.iter().skip(3).zip(&values) {
                prop_assert_eq!((field.tag, field.value), (*tag, value.as_bytes()));
            }
        }
    }
}
