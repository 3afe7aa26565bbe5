//! Finds the messages in a stream of bytes.
//!
//! Source: *FIX session layer*, message framing. A message starts with `8=FIX`, then `9=` with the number of bytes between that
//! field and `10=`, then `35=`; it ends with `10=` and three digits. Anything else is garbled: it is skipped up to the next `8=FIX`,
//! and its sequence number does not count.
//!
//! Cost: the first three fields are read once, and the checksum is summed once. A length above the limit is rejected before the
//! message arrives, so a peer cannot make the caller buffer more than the limit.

use core::fmt;

use super::scan::{SOH, checksum};

/// The start of every message.
const START: &[u8] = b"8=FIX";

/// Limit for the first field: `8=FIXT.1.1` and SOH have 11 bytes.
const LONGEST_BEGIN: usize = 16;

/// Limit for the digits of BodyLength.
const LENGTH_DIGITS: usize = 9;

/// Length of the last field with its SOH: `10=123` and SOH.
pub const TRAILER_BYTES: usize = 7;

/// Why bytes are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbled {
    /// They do not start with `8=FIX`.
    Junk,
    /// The first three fields are not 8, 9 and 35, in this order.
    FirstFields,
    /// BodyLength is not a number.
    LengthFormat,
    /// The message would be longer than the limit.
    TooLong,
    /// `10=` is not where BodyLength says.
    WrongLength,
    /// The checksum is not the sum of the bytes.
    WrongChecksum {
        /// The sum.
        computed: u8,
    },
}

impl fmt::Display for Garbled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Junk => formatter.write_str("bytes that do not start a message"),
            Self::FirstFields => formatter.write_str("the first three fields are not 8, 9 and 35"),
            Self::LengthFormat => formatter.write_str("BodyLength is not a number"),
            Self::TooLong => formatter.write_str("the message is longer than the limit"),
            Self::WrongLength => formatter.write_str("the message does not end where BodyLength says"),
            Self::WrongChecksum { computed } => write!(formatter, "the checksum is not {computed:03}"),
        }
    }
}

/// The next item in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The first `length` bytes are a message with correct length and checksum.
    Message {
        /// Its bytes.
        length: usize,
    },
    /// The bytes are the start of a message, and fewer than the limit. Keep them and continue reading.
    Incomplete,
    /// The bytes start a message with a wrong BodyLength, whose trailer has not arrived. They are fewer than the limit: keep them and read on.
    WrongLength,
    /// The first `length` bytes are not a message: skip them. `length` is at least 1.
    Garbled {
        /// Bytes to skip.
        length: usize,
        /// Why.
        why: Garbled,
    },
}

/// Finds the next message of at most `limit` bytes in `bytes`. Call it again with the bytes after the result.
///
/// The caller skips and counts garbled bytes. Returns [`Framing::Incomplete`] if there are no bytes.
#[must_use]
pub fn next_message(bytes: &[u8], limit: usize) -> Framing {
    match message_length(bytes, limit) {
        Ok(Some(length)) => {
            let message = bytes.get(..length).unwrap_or_default();
            let Some((body, trailer)) = message.split_last_chunk::<TRAILER_BYTES>() else {
                return garbled(bytes, Garbled::WrongLength);
            };
            let computed = checksum(body);
            if trailer_of(computed) == *trailer {
                Framing::Message { length }
            } else {
                garbled(bytes, Garbled::WrongChecksum { computed })
            }
        }
        // A message with a wrong length ends with its trailer, regardless of where the stream is split.
        Err(Garbled::WrongLength) if bytes.len() < limit && end_of_trailer(bytes).is_none() => {
            Framing::WrongLength
        }
        Ok(None) if bytes.len() < limit => Framing::Incomplete,
        Ok(None) => garbled(bytes, Garbled::TooLong),
        Err(why) => garbled(bytes, why),
    }
}

/// Returns the last field of a message: its checksum in three digits.
#[inline(always)]
pub(crate) const fn trailer_of(checksum: u8) -> [u8; TRAILER_BYTES] {
    let (hundreds, tens, ones) = (checksum / 100, checksum / 10 % 10, checksum % 10);
    [b'1', b'0', b'=', b'0' + hundreds, b'0' + tens, b'0' + ones, SOH]
}

/// Returns how many bytes to skip. A message with a wrong length extends to the end of the first trailer after that length, as in other
/// engines; everything it covers is garbled too and must be requested again. Other garbled bytes extend to the next `8=FIX`, at least
/// one byte; bytes at the end that may start a message are kept.
#[cold]
fn garbled(bytes: &[u8], why: Garbled) -> Framing {
    if why == Garbled::WrongLength
        && let Some(length) = end_of_trailer(bytes)
    {
        return Framing::Garbled { length, why };
    }
    let rest = bytes.get(1..).unwrap_or_default();
    let whole = rest.windows(START.len()).position(|window| window == START);
    let length = 1 + whole.unwrap_or_else(|| {
        let begun =
            (1..START.len()).rev().find(|count| rest.ends_with(START.get(..*count).unwrap_or_default()));
        rest.len() - begun.unwrap_or(0)
    });
    Framing::Garbled { length, why }
}

/// Returns the end of the first trailer after the declared length of a message.
fn end_of_trailer(bytes: &[u8]) -> Option<usize> {
    let head = head(bytes).ok()??;
    let from = (head.body + head.body_length).saturating_sub(1);
    let rest = bytes.get(from..)?;
    let trailer = rest.windows(4).position(|window| window == [SOH, b'1', b'0', b'='])?;
    let end = rest.get(trailer + 1..)?.iter().position(|byte| *byte == SOH)?;
    Some(from + trailer + 1 + end + 1)
}

/// The head of a message: where it ends, and its BodyLength.
pub(crate) struct Head {
    /// Start of field 35, from which BodyLength counts.
    pub(crate) body: usize,
    /// The value of field 9.
    pub(crate) body_length: usize,
}

/// Reads fields 8 and 9, and checks that 35 follows; `None` if bytes are missing.
#[inline(always)]
pub(crate) fn head(bytes: &[u8]) -> Result<Option<Head>, Garbled> {
    let started = bytes.len().min(START.len());
    if bytes.get(..started) != START.get(..started) {
        return Err(Garbled::Junk);
    }
    let first = bytes.get(..LONGEST_BEGIN.min(bytes.len())).unwrap_or_default();
    let Some(begin_end) = first.iter().skip(START.len()).position(|byte| *byte == SOH) else {
        return if first.len() == LONGEST_BEGIN { Err(Garbled::FirstFields) } else { Ok(None) };
    };
    let begin_end = begin_end + START.len();
    let mut body_length = 0usize;
    let mut at = begin_end + 3;
    let tag = bytes.get(begin_end + 1..).unwrap_or_default();
    if !tag.starts_with(b"9=") {
        return if b"9=".starts_with(tag) { Ok(None) } else { Err(Garbled::FirstFields) };
    }
    loop {
        match bytes.get(at) {
            None => return Ok(None),
            Some(&SOH) if at > begin_end + 3 => break,
            Some(digit @ b'0'..=b'9') if at < begin_end + 3 + LENGTH_DIGITS => {
                body_length = body_length * 10 + usize::from(digit - b'0');
                at += 1;
            }
            Some(_) => return Err(Garbled::LengthFormat),
        }
    }
    let body = at + 1;
    let tag = bytes.get(body..).unwrap_or_default();
    if !tag.starts_with(b"35=") {
        return if b"35=".starts_with(tag) { Ok(None) } else { Err(Garbled::FirstFields) };
    }
    Ok(Some(Head { body, body_length }))
}

/// Returns the length of the message at the start; `None` if it is incomplete.
fn message_length(bytes: &[u8], limit: usize) -> Result<Option<usize>, Garbled> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    let length = head.body + head.body_length + TRAILER_BYTES;
    if length > limit {
        return Err(Garbled::TooLong);
    }
    let end = head.body + head.body_length;
    // Check the available part of the trailer before the rest arrives.
    let trailer = bytes.get(end..bytes.len().min(end + 3)).unwrap_or_default();
    let is_field_end = bytes.get(end - 1).is_none_or(|byte| *byte == SOH);
    if !is_field_end || !b"10=".starts_with(trailer) {
        return Err(Garbled::WrongLength);
    }
    Ok((bytes.len() >= length).then_some(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 300;

    /// Builds a message with this body (after 9), and with correct length and checksum.
    fn message(body: &str) -> Vec<u8> {
        let body = body.replace('|', "\x01");
        let mut bytes = format!("8=FIX.4.4\x019={}\x01{body}", body.len()).into_bytes();
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&trailer_of(sum));
        bytes
    }

    fn logon() -> Vec<u8> {
        message("35=A|49=A|56=B|34=1|52=20240301-09:30:00|98=0|108=30|")
    }

    fn why(bytes: &[u8]) -> Garbled {
        match next_message(bytes, LIMIT) {
            Framing::Garbled { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_is_found_and_each_of_its_starts_is_incomplete() {
        let bytes = logon();
        for end in 0..bytes.len() {
            assert_eq!(next_message(&bytes[..end], LIMIT), Framing::Incomplete, "{end}");
        }
        let mut two = bytes.clone();
        two.extend_from_slice(&bytes);
        assert_eq!(next_message(&two, LIMIT), Framing::Message { length: bytes.len() });
    }

    #[test]
    fn data_with_soh_and_a_trailer_inside_does_not_end_a_message() {
        let bytes = message("35=B|95=9|96=|10=123|8=|");
        assert_eq!(next_message(&bytes, LIMIT), Framing::Message { length: bytes.len() });
    }

    #[test]
    fn junk_is_skipped_up_to_the_next_message() {
        let mut bytes = b"\r\n8=FI8".to_vec();
        assert_eq!(
            next_message(&bytes, LIMIT),
            Framing::Garbled { length: 6, why: Garbled::Junk },
            "the last 8 may start one"
        );
        bytes.extend_from_slice(&logon()[1..]);
        assert_eq!(next_message(&bytes, LIMIT), Framing::Garbled { length: 6, why: Garbled::Junk });
        assert_eq!(next_message(&bytes[6..], LIMIT), Framing::Message { length: bytes.len() - 6 });
    }

    #[test]
    fn each_fault_has_its_name() {
        let good = logon();
        let replaced = |from: &str, to: &str| {
            String::from_utf8(good.clone()).unwrap().replacen(from, to, 1).into_bytes()
        };
        assert_eq!(
            why(&replaced("108=30", "108=31")),
            Garbled::WrongChecksum { computed: checksum(&replaced("108=30", "108=31")[..good.len() - 7]) }
        );
        assert_eq!(why(&replaced("\x019=", "\x0195=")), Garbled::FirstFields);
        assert_eq!(why(&replaced("\x0135=A", "\x0149=A")), Garbled::FirstFields);
        assert_eq!(why(&replaced("\x0152=", "\x0152x=")), Garbled::WrongLength);
        assert_eq!(why(b"8=FIX.4.4\x019=x\x01"), Garbled::LengthFormat);
        assert_eq!(why(b"8=FIX.4.4\x019=\x01"), Garbled::LengthFormat);
        assert_eq!(why(b"8=FIX.4.4\x019=-5\x01"), Garbled::LengthFormat);
        assert_eq!(why(b"8=FIX.4.4\x019=300\x0135="), Garbled::TooLong);
        assert_eq!(why(b"8=FIX.4.4\x019=9999999999\x01"), Garbled::LengthFormat);
        assert_eq!(why(b"8=FIX.4.4.4.4.4.4.4"), Garbled::FirstFields);
        assert_eq!(why(b"8=FIX.4.4\x019=0\x0135=A\x0110=000\x01"), Garbled::WrongLength);
        let without_trailer = [&b"8=FIX.4.4\x019=0\x0135=A\x0158="[..], &[b'x'; LIMIT]].concat();
        assert_eq!(next_message(&without_trailer[..LIMIT - 1], LIMIT), Framing::WrongLength);
        assert_eq!(why(&without_trailer), Garbled::WrongLength);
    }

    #[test]
    fn a_cut_message_is_skipped_when_the_next_one_shows_that_it_is_cut() {
        let good = logon();
        let mut bytes = good[..40].to_vec();
        bytes.extend_from_slice(&good);
        // The truncated message's length reaches into the valid one, which must be requested again.
        assert_eq!(
            next_message(&bytes, LIMIT),
            Framing::Garbled { length: bytes.len(), why: Garbled::WrongLength }
        );
        let short = [&b"8=FIX.4.4\x019=5\x0135=0\x0134=1\x0110=000\x01"[..], &good].concat();
        let length = short.len() - good.len();
        assert_eq!(next_message(&short, LIMIT), Framing::Garbled { length, why: Garbled::WrongLength });
    }

    /// Returns the messages in a stream that arrives in pieces, which end at these positions.
    fn found_in(stream: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
        let (mut found, mut at) = (Vec::new(), 0);
        for end in ends.iter().copied().chain([stream.len()]) {
            loop {
                match next_message(&stream[at.min(end)..end], LIMIT) {
                    Framing::Message { length } => {
                        found.push(stream[at..at + length].to_vec());
                        at += length;
                    }
                    Framing::Garbled { length, .. } => at += length,
                    Framing::Incomplete | Framing::WrongLength => break,
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn a_wrong_length_costs_the_same_messages_wherever_the_stream_is_cut(
            lengths in prop::collection::vec(prop_oneof![4 => Just(0_i64), 1 => -20..40_i64], 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut stream = Vec::new();
            for (number, wrong_by) in lengths.iter().enumerate() {
                let body = format!("35=0|49=A|56=B|34={number}|52=20240301-09:30:00|");
                let right = format!("\x019={}\x01", body.len());
                let wrong = format!("\x019={}\x01", body.len() as i64 + wrong_by);
                let text = String::from_utf8(message(&body)).unwrap().replacen(&right, &wrong, 1);
                let sum = checksum(&text.as_bytes()[..text.len() - TRAILER_BYTES]);
                stream.extend_from_slice(&text.as_bytes()[..text.len() - TRAILER_BYTES]);
                stream.extend_from_slice(&trailer_of(sum));
            }
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            ends.sort_unstable();
            prop_assert_eq!(found_in(&stream, &ends), found_in(&stream, &[]));
        }

        #[test]
        fn a_message_is_found_behind_any_junk(junk in prop::collection::vec(any::<u8>(), 0..60)) {
            // A `9=` in the junk could claim the message's bytes, so the junk must not start a message.
            prop_assume!(!junk.windows(5).any(|window| window == START));
            let mut bytes = junk.clone();
            bytes.extend_from_slice(&logon());
            let (mut at, mut found) = (0, 0);
            while at < bytes.len() {
                match next_message(&bytes[at..], LIMIT) {
                    Framing::Message { length } => { found += 1; at += length; }
                    Framing::Garbled { length, .. } => { prop_assert!(length > 0); at += length; }
                    Framing::Incomplete | Framing::WrongLength => break,
                }
            }
            prop_assert_eq!((found, at), (1, bytes.len()));
        }

        #[test]
        fn no_bytes_make_it_panic_or_keep_more_than_the_limit(
            bytes in prop::collection::vec(prop_oneof![Just(1u8), Just(b'8'), Just(b'='), Just(b'9'), b'0'..b':', any::<u8>()], 0..400),
            starts in any::<bool>(),
        ) {
            let mut stream = if starts { b"8=FIX.4.4\x019=".to_vec() } else { Vec::new() };
            stream.extend_from_slice(&bytes);
            let mut at = 0;
            while at < stream.len() {
                match next_message(&stream[at..], 100) {
                    Framing::Message { length } | Framing::Garbled { length, .. } => {
                        prop_assert!(length > 0 && at + length <= stream.len());
                        at += length;
                    }
                    Framing::Incomplete | Framing::WrongLength => {
                        prop_assert!(stream.len() - at < 100);
                        break;
                    }
                }
            }
        }
    }
}
