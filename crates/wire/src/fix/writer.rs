//! Writes a message into a caller's buffer, with BodyLength and CheckSum.
//!
//! BodyLength is known last and stands before the body. Its fields are therefore written backwards from the body's start at the
//! end: the message starts some bytes into the buffer, and nothing is moved.
//!
//! Cost: `benches/fix.rs` measures it. Tags are constants after inlining; texts are copied in words.

use core::fmt;
use core::ops::Range;

use super::framing::{TRAILER_BYTES, trailer_of};
use super::scan::{SOH, checksum};
use super::value::{
    DAY_NS, ROOM, TimePrecision, put_date, put_decimal, put_time, put_timestamp, put_unsigned,
};

/// Bytes before the body for `8=FIXT.1.1`, `9=` and nine digits, each with SOH.
const HEAD_ROOM: usize = 24;

/// Bytes of the buffer that the message cannot use: writers store whole words.
pub const SPARE_BYTES: usize = 48;

/// Why a message was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The buffer is too small: a message needs [`SPARE_BYTES`] more than its length.
    BufferTooSmall {
        /// Bytes of the buffer.
        got: usize,
    },
    /// BeginString is longer than 8 bytes, or a value is empty or has SOH.
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

/// The fault of a buffer that is too small: no tag.
const FULL: u32 = u32::MAX;

/// The digits of a tag and `=`, the first in the lowest byte, and their count. Tags have at most seven digits.
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

/// A message that is being written. Faults are kept and reported by [`finish`](Self::finish).
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    /// Where the next field starts.
    at: usize,
    /// The last place where a field may start.
    last: usize,
    begin_string: u64,
    begin_length: usize,
    precision: TimePrecision,
    /// The tag of the first field that cannot be written, [`FULL`], or 0.
    fault: u32,
}

impl<'b> Writer<'b> {
    /// Begins a message of the type `message_type` in `buffer`, which is [`SPARE_BYTES`] larger than the message.
    #[inline]
    #[must_use]
    pub fn begin(buffer: &'b mut [u8], begin_string: &[u8], message_type: &[u8]) -> Self {
        let mut writer = Self {
            at: HEAD_ROOM,
            last: buffer.len().saturating_sub(ROOM),
            buffer,
            begin_string: 0,
            begin_length: begin_string.len(),
            precision: TimePrecision::default(),
            fault: 0,
        };
        match *begin_string {
            [a, b, c, d, e, f, g] => writer.begin_string = u64::from_le_bytes([a, b, c, d, e, f, g, 0]),
            [a, b, c, d, e, f, g, h] => writer.begin_string = u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => writer.fault = 8,
        }
        writer.text(35, message_type);
        writer
    }

    /// How many digits of a second times have from here on; three unless set.
    #[inline]
    pub fn set_precision(&mut self, precision: TimePrecision) {
        self.precision = precision;
    }

    #[inline(always)]
    fn set_fault(&mut self, fault: u32) {
        if self.fault == 0 {
            self.fault = fault;
        }
    }

    /// A writer at the same place, for many fields: the compiler keeps it in registers. [`Self::resume`] takes it back.
    #[doc(hidden)]
    #[inline(always)]
    pub fn local(&mut self) -> Writer<'_> {
        Writer {
            buffer: self.buffer,
            at: self.at,
            last: self.last,
            begin_string: self.begin_string,
            begin_length: self.begin_length,
            precision: self.precision,
            fault: self.fault,
        }
    }

    /// Where a local writer stands.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn place_and_fault(&self) -> (usize, u32) {
        (self.at, self.fault)
    }

    /// Goes on where a local writer stands.
    #[doc(hidden)]
    #[inline(always)]
    pub fn resume(&mut self, (at, fault): (usize, u32)) {
        (self.at, self.fault) = (at, fault);
    }

    /// Writes the tag and returns the room behind it: at least [`ROOM`] bytes less the tag, or nothing after a fault.
    #[inline(always)]
    fn begin_field(&mut self, tag: u32, length: usize) -> Option<(usize, &mut [u8])> {
        let (text, count) = tag_text(tag);
        if self.at.saturating_add(length) + count + 1 > self.last {
            self.set_fault(FULL);
            return None;
        }
        let at = self.at;
        let place = self.buffer.get_mut(at..)?;
        *place.first_chunk_mut::<8>()? = text.to_le_bytes();
        let room = place.get_mut(count..)?;
        Some((at + count, room))
    }

    /// Ends a field whose value has been put to `value` and is `length` bytes long.
    #[inline(always)]
    fn end_field(&mut self, value: usize, length: usize) {
        let end = value + length;
        if let Some(place) = self.buffer.get_mut(end) {
            *place = SOH;
        }
        self.at = end + 1;
    }

    /// Writes a text. It has no SOH and is not empty.
    #[inline(always)]
    pub fn text(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        if value.is_empty() {
            self.set_fault(tag);
        }
        if let Some((at, room)) = self.begin_field(tag, value.len()) {
            if put_text(room, value) {
                self.set_fault(tag);
            }
            self.end_field(at, value.len());
        }
        self
    }

    /// Writes an unsigned number.
    #[inline(always)]
    pub fn number(&mut self, tag: u32, value: u64) -> &mut Self {
        if let Some((at, room)) = self.begin_field(tag, 20) {
            let length = put_unsigned(room, value);
            self.end_field(at, length);
        }
        self
    }

    /// Writes a signed number.
    #[inline(always)]
    pub fn signed(&mut self, tag: u32, value: i64) -> &mut Self {
        if let Some((at, room)) = self.begin_field(tag, 20) {
            let length = put_decimal(room, value, 0);
            self.end_field(at, length);
        }
        self
    }

    /// Writes a decimal in units of `10^-PLACES`, without zeros at its end.
    #[inline(always)]
    pub fn decimal<const PLACES: u8>(&mut self, tag: u32, value: i64) -> &mut Self {
        const { assert!(PLACES <= 10, "a decimal keeps at most 10 places") };
        if let Some((at, room)) = self.begin_field(tag, 24) {
            let length = put_decimal(room, value, PLACES);
            self.end_field(at, length);
        }
        self
    }

    /// Writes nanoseconds since 1970 UTC as a UTCTimestamp of the precision that is set.
    #[inline(always)]
    pub fn timestamp(&mut self, tag: u32, time_ns: u64) -> &mut Self {
        let precision = self.precision;
        if let Some((at, room)) = self.begin_field(tag, 27) {
            let length = put_timestamp(room, time_ns, precision);
            self.end_field(at, length);
        }
        self
    }

    /// Writes days since 1970 as a UTCDateOnly or LocalMktDate.
    #[inline]
    pub fn date(&mut self, tag: u32, days: u32) -> &mut Self {
        if let Some((at, room)) = self.begin_field(tag, 8) {
            let length = put_date(room, days);
            self.end_field(at, length);
        }
        self
    }

    /// Writes nanoseconds since midnight as a UTCTimeOnly of the precision that is set.
    #[inline]
    pub fn time(&mut self, tag: u32, time_ns: u64) -> &mut Self {
        let precision = self.precision;
        if let Some((at, room)) = self.begin_field(tag, 18) {
            let length = put_time(room, time_ns % DAY_NS, precision);
            self.end_field(at, length);
        }
        self
    }

    /// Writes `Y` or `N`.
    #[inline(always)]
    pub fn flag(&mut self, tag: u32, value: bool) -> &mut Self {
        self.character(tag, if value { b'Y' } else { b'N' })
    }

    /// Writes one character, which is not SOH.
    #[inline(always)]
    pub fn character(&mut self, tag: u32, value: u8) -> &mut Self {
        if value == SOH {
            self.set_fault(tag);
        }
        if let Some((at, room)) = self.begin_field(tag, 1) {
            if let Some(place) = room.first_mut() {
                *place = value;
            }
            self.end_field(at, 1);
        }
        self
    }

    /// Writes a length field and its data field. The data may have SOH.
    #[inline]
    pub fn data(&mut self, length_tag: u32, data_tag: u32, value: &[u8]) -> &mut Self {
        self.number(length_tag, value.len() as u64);
        if let Some((at, room)) = self.begin_field(data_tag, value.len()) {
            put_text(room, value);
            self.end_field(at, value.len());
        }
        self
    }

    /// Writes a value that was read from another message. It may have SOH if it is data.
    #[inline]
    pub fn copied(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        if let Some((at, room)) = self.begin_field(tag, value.len()) {
            put_text(room, value);
            self.end_field(at, value.len());
        }
        self
    }

    /// Ends the message and returns it. It starts some bytes into the buffer.
    ///
    /// # Errors
    /// The buffer is too small, or a value cannot be written.
    #[inline]
    pub fn finish(self) -> Result<&'b mut [u8], WriteError> {
        let (buffer, place) = self.place()?;
        let got = buffer.len();
        buffer.get_mut(place).ok_or(WriteError::BufferTooSmall { got })
    }

    /// Ends the message and returns where in the buffer it is, for those who keep the buffer.
    ///
    /// # Errors
    /// The buffer is too small, or a value cannot be written.
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
        let body_length = (self.at - HEAD_ROOM) as u64;
        // `8=FIX.4.4`, SOH, `9=`, digits, SOH, right before the body.
        let mut digits = [0; ROOM];
        let count = put_unsigned(&mut digits, body_length);
        let start = HEAD_ROOM.checked_sub(2 + self.begin_length + 1 + 2 + count + 1).ok_or(too_small)?;
        let head = self.buffer.first_chunk_mut::<{ HEAD_ROOM + 8 }>().ok_or(too_small)?;
        let body_start = u64::from_le_bytes(*head.last_chunk::<8>().ok_or(too_small)?);
        let mut put = |at: usize, word: u64| {
            if let Some(place) = head.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
                *place = word.to_le_bytes();
            }
        };
        // Each word is written over by what follows it; the body's first bytes come back at the end.
        put(start, u64::from_le_bytes(*b"8=\0\0\0\0\0\0"));
        put(start + 2, self.begin_string);
        let length_field = start + 2 + self.begin_length;
        put(length_field, u64::from_le_bytes([SOH, b'9', b'=', 0, 0, 0, 0, 0]));
        put(length_field + 3, u64::from_le_bytes(*digits.first_chunk::<8>().ok_or(too_small)?));
        put(HEAD_ROOM - 1, u64::from(SOH));
        put(HEAD_ROOM, body_start);
        let sum = checksum(self.buffer.get(start..self.at).ok_or(too_small)?);
        let trailer = self.buffer.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut::<TRAILER_BYTES>());
        *trailer.ok_or(too_small)? = trailer_of(sum);
        Ok((self.buffer, start..self.at + TRAILER_BYTES))
    }
}

/// Copies a value to the start of `room`, and reports whether it has SOH. Up to 16 bytes are copied as two words that overlap.
#[inline(always)]
fn put_text(room: &mut [u8], value: &[u8]) -> bool {
    #[inline(always)]
    const fn has_soh(word: u64) -> bool {
        let zero_where_found = word ^ 0x0101_0101_0101_0101;
        zero_where_found.wrapping_sub(0x0101_0101_0101_0101) & !zero_where_found & 0x8080_8080_8080_8080 != 0
    }
    let length = value.len();
    if length > 16 {
        return put_long_text(room, value);
    }
    if let (Some(first), Some(last)) = (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        let Some(room) = room.first_chunk_mut::<16>() else { return false };
        if let Some(place) = room.first_chunk_mut::<8>() {
            *place = *first;
        }
        if let Some(place) = room.get_mut(length - 8..).and_then(|rest| rest.first_chunk_mut::<8>()) {
            *place = *last;
        }
        return has_soh(u64::from_le_bytes(*first)) || has_soh(u64::from_le_bytes(*last));
    }
    let word = match (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << (8 * (length - 4))
        }
        _ => match *value {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
            _ => 0,
        },
    };
    if let Some(place) = room.first_chunk_mut::<8>() {
        *place = word.to_le_bytes();
    }
    has_soh(word)
}

#[inline(never)]
fn put_long_text(room: &mut [u8], value: &[u8]) -> bool {
    if let Some(place) = room.get_mut(..value.len()) {
        place.copy_from_slice(value);
    }
    value.contains(&SOH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::framing::{Framing, next_message};
    use super::*;
    use crate::fix::Fields;

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
    fn tags_of_every_length_are_written() {
        for tag in [1, 9, 10, 99, 100, 999, 1_000, 9_999, 10_000, 999_999, 1_000_000, 9_999_999] {
            let (text, count) = tag_text(tag);
            assert_eq!(&text.to_le_bytes()[..count], format!("{tag}=").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn fields_are_read_as_written(values in prop::collection::vec((1u32..10_000, "[ -~]{1,40}"), 0..30)) {
            let mut buffer = vec![0; 4_096];
            let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
            for (tag, value) in &values {
                writer.text(*tag, value.as_bytes());
            }
            let message = writer.finish().unwrap();
            prop_assert_eq!(next_message(message, 4_096), Framing::Message { length: message.len() });
            prop_assume!(values.iter().all(|(tag, _)| crate::fix::data_of_length(*tag).is_none()));
            let fields: Vec<_> = Fields::new(message).map(Result::unwrap).collect();
            prop_assert_eq!(fields.len(), values.len() + 4);
            for (field, (tag, value)) in fields.iter().skip(3).zip(&values) {
                prop_assert_eq!((field.tag, field.value), (*tag, value.as_bytes()));
            }
        }
    }
}
