//! Splits a framed message into its fields, once for all of its readers.
//!
//! [`next_message`](super::next_message) has checked the length and the checksum. The session's checks, typed views and lookups by tag
//! then share the parts, so nothing searches for SOH, parses a tag or sums the bytes again.
//!
//! Cost: one pass, about 70 instructions per field. The buffer grows to fit the message with the most fields.

use super::fields::{data_of_length, is_length};
use super::framing::{Framing, TRAILER_BYTES, next_message};
use super::scan::{BLOCK, SOH, soh_mask};
use super::value::{LastTimestamp, ValueError, number_before_equals, read_signed, timestamp_at};

/// A field of a message: its tag and the position of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The tag; 0 if the number in the message is not a tag, such as -1.
    pub tag: u32,
    start: u32,
    end: u32,
}

impl Part {
    /// Returns the bytes between `=` and SOH.
    #[inline(always)]
    #[must_use]
    pub fn value<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        message.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Returns the number before `=`, which may not be a tag.
    #[must_use]
    pub fn number(&self, message: &[u8]) -> i64 {
        if self.tag != 0 {
            return i64::from(self.tag);
        }
        let before = message.get(..(self.start as usize).saturating_sub(1)).unwrap_or_default();
        let from = before.iter().rposition(|byte| *byte == SOH).map_or(0, |soh| soh + 1);
        before.get(from..).and_then(|digits| read_signed(digits).ok()).unwrap_or_default()
    }

    /// Reads the value as nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// The value has another form, or a year outside of 1970 to 2553.
    #[inline(always)]
    pub fn timestamp(&self, message: &[u8], last: &mut LastTimestamp) -> Result<u64, ValueError> {
        match timestamp_at(message, self.start, last)? {
            (time_ns, end) if end == self.end => Ok(time_ns),
            _ => Err(ValueError::Format),
        }
    }
}

/// A message with a verified length and checksum, and its fields in order.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    bytes: &'a [u8],
    parts: &'a [Part],
}

impl<'a> Parsed<'a> {
    /// Returns the whole message.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the fields in order.
    #[inline]
    #[must_use]
    pub const fn parts(&self) -> &'a [Part] {
        self.parts
    }

    /// Returns BeginString (8), the value of the first field.
    #[inline]
    #[must_use]
    pub fn begin_string(&self) -> &'a [u8] {
        self.parts.first().map_or(&[], |part| part.value(self.bytes))
    }

    /// Returns MsgType (35), the value of the third field.
    #[inline(always)]
    #[must_use]
    pub fn message_type(&self) -> &'a [u8] {
        self.parts.get(2).map_or(&[], |part| part.value(self.bytes))
    }

    /// Returns the value of the first field with this tag, unless it is empty.
    #[must_use]
    pub fn field(&self, tag: u32) -> Option<&'a [u8]> {
        let part = self.parts.iter().find(|part| part.tag == tag)?;
        Some(part.value(self.bytes)).filter(|value| !value.is_empty())
    }

    /// Iterates over the tags and values in order. Numbers that are not tags are skipped.
    pub fn fields(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        let tagged = self.parts.iter().filter(|part| part.tag != 0);
        tagged.map(move |part| (part.tag, part.value(bytes)))
    }

    /// Returns where the fields that follow MsgType start, and where CheckSum starts.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn body(&self) -> (u32, u32) {
        let limit = self.bytes.len().saturating_sub(TRAILER_BYTES) as u32;
        (self.parts.get(2).map_or(limit, |part| part.end + 1), limit)
    }
}

/// More fields than most orders and reports have.
const USUAL_FIELDS: usize = 128;

/// The buffer of a message's parts, reused for each message. The default is empty.
#[derive(Debug, Default)]
pub struct Parts(Vec<Part>);

impl Parts {
    /// Creates a buffer that holds a message of the usual size without growing.
    #[must_use]
    pub fn new() -> Self {
        Self(Vec::with_capacity(USUAL_FIELDS))
    }

    /// Splits bytes that no session has framed; `None` if they are not exactly one message.
    #[must_use]
    pub fn parse<'a>(&'a mut self, bytes: &'a [u8]) -> Option<Parsed<'a>> {
        let framed = next_message(bytes, bytes.len().saturating_add(1));
        if framed == (Framing::Message { length: bytes.len() }) { self.split(bytes) } else { None }
    }

    /// Splits a message that [`next_message`](super::next_message) has found.
    ///
    /// Fields without a value and numbers such as -1 are parts too, so that a session can reject and count their message. Returns
    /// `None` if the message is garbled: a number before `=` is missing, a field has no end, or data does not end where its length says.
    #[must_use]
    pub fn split<'a>(&'a mut self, message: &'a [u8]) -> Option<Parsed<'a>> {
        self.0.clear();
        let length = u32::try_from(message.len()).ok()?;
        let (mut block, mut ends) = (0, soh_mask(message, 0));
        let mut at = 0;
        let mut data = None;
        while at < length {
            let (tag, start) = match number_before_equals(message, at) {
                Some(found) => found,
                None => unusual_number(message, at)?,
            };
            let end;
            match data.take() {
                Some((data_tag, bytes)) if data_tag == tag => {
                    let soh = (start as usize).checked_add(bytes)?;
                    if message.get(soh) != Some(&SOH) {
                        return None;
                    }
                    end = soh as u32;
                    block = soh / BLOCK * BLOCK;
                    ends = soh_mask(message, block) & (u64::MAX - 1) << (soh % BLOCK);
                }
                _ => {
                    while ends == 0 {
                        block += BLOCK;
                        if block >= message.len() {
                            return None;
                        }
                        ends = soh_mask(message, block);
                    }
                    end = block as u32 + ends.trailing_zeros();
                    ends &= ends - 1;
                }
            }
            self.0.push(Part { tag, start, end });
            if is_length(tag)
                && let Some(data_tag) = data_of_length(tag)
            {
                let value = message.get(start as usize..end as usize).unwrap_or_default();
                let bytes = read_signed(value).ok().and_then(|bytes| usize::try_from(bytes).ok());
                data = bytes.map(|bytes| (data_tag, bytes));
            }
            at = end + 1;
        }
        Some(Parsed { bytes: message, parts: &self.0 })
    }
}

/// Parses a number of any form before `=`. The tag is 0 if the number is not a tag.
#[cold]
#[inline(never)]
fn unusual_number(message: &[u8], at: u32) -> Option<(u32, u32)> {
    let rest = message.get(at as usize..)?;
    let equals =
        rest.iter().position(|byte| matches!(*byte, b'=' | SOH)).filter(|at| rest.get(*at) == Some(&b'='))?;
    let number = read_signed(rest.get(..equals)?).ok()?;
    Some((u32::try_from(number).unwrap_or(0), at + equals as u32 + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Fields;

    fn split(text: &str) -> Option<Vec<(u32, String)>> {
        let bytes = text.replace('|', "\x01").into_bytes();
        let mut parts = Parts::default();
        let parsed = parts.split(&bytes)?;
        let parts = parsed.parts().iter();
        Some(
            parts
                .map(|part| (part.tag, String::from_utf8_lossy(part.value(&bytes)).replace('\x01', "|")))
                .collect(),
        )
    }

    fn parts(of: &[(u32, &str)]) -> Option<Vec<(u32, String)>> {
        Some(of.iter().map(|(tag, value)| (*tag, (*value).to_owned())).collect())
    }

    #[test]
    fn parts_without_a_value_or_with_an_impossible_tag_are_kept() {
        assert_eq!(split("8=FIX.4.4|58=|-1=x|"), parts(&[(8, "FIX.4.4"), (58, ""), (0, "x")]));
        assert_eq!(split("5000000000=x|0=y|007=z|"), parts(&[(0, "x"), (0, "y"), (7, "z")]));
        let bytes = b"58=a\x01-12=b\x015000000000=c\x01";
        let mut buffer = Parts::default();
        let numbers: Vec<i64> =
            buffer.split(bytes).unwrap().parts().iter().map(|part| part.number(bytes)).collect();
        assert_eq!(numbers, [58, -12, 5_000_000_000]);
    }

    #[test]
    fn messages_without_a_number_or_an_end_are_garbled() {
        for text in ["58|1=x|", "=x|", "x=1|", "-=1|", "58=x", "99999999999999999999=x|", "5 8=x|"] {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn data_may_hold_soh_if_its_length_precedes_it() {
        assert_eq!(split("95=5|96=a|b=c|58=x|"), parts(&[(95, "5"), (96, "a|b=c"), (58, "x")]));
        assert_eq!(split("95=4|96=a|b=c|"), None);
        assert_eq!(split("95=99999999999|96=a|"), None);
        assert_eq!(split("95=-1|96=a|"), parts(&[(95, "-1"), (96, "a")]));
        assert_eq!(split("95=3|58=x|96=a|"), parts(&[(95, "3"), (58, "x"), (96, "a")]));
    }

    proptest! {
        #[test]
        fn sound_fields_are_split_as_a_walk_reads_them(
            values in prop::collection::vec((1u32..3_000, "[a-z=]{1,90}"), 0..20),
        ) {
            let values = values.iter().filter(|(tag, _)| data_of_length(*tag).is_none());
            let text: String = values.map(|(tag, value)| format!("{tag}={value}\x01")).collect();
            let mut buffer = Parts::default();
            let parsed = buffer.split(text.as_bytes()).unwrap();
            let walked: Vec<_> = Fields::new(text.as_bytes()).flatten().map(|field| (field.tag, field.value)).collect();
            prop_assert_eq!(parsed.fields().collect::<Vec<_>>(), walked);
        }

        #[test]
        fn no_bytes_make_the_split_panic(bytes in prop::collection::vec(prop_oneof![Just(1u8), Just(b'='), b'0'..b':', any::<u8>()], 0..200)) {
            let mut buffer = Parts::default();
            if let Some(parsed) = buffer.split(&bytes) {
                let _numbers = parsed.parts().iter().map(|part| part.number(&bytes)).max();
                prop_assert!(parsed.fields().map(|(_, value)| value.len()).sum::<usize>() <= bytes.len());
            }
        }
    }
}
