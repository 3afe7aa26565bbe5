//! The validity period of a certificate.
//!
//! This module reads two fields of X.509 (RFC 5280, section 4.1) in their DER encoding. It does not decide whether a certificate
//! can be trusted; it only warns about our own certificates.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tapeworks_time::Nanos;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which version 1 certificates omit.
const VERSION: u8 = 0xA0;

/// How long before expiry a certificate is reported, in seconds.
const SOON_S: i64 = 7 * 86_400;

/// The first and last second of a certificate's validity, since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// The first second.
    pub begins_s: i64,
    /// The last second.
    pub ends_s: i64,
}

/// Splits off a DER element. Returns its tag, its contents, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, length, rest @ ..] = bytes else { return None };
    let (length, rest) = match *length {
        short if short < 0x80 => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F)).filter(|_| long <= 0x84)?;
            (digits.iter().fold(0usize, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
    };
    let (contents, after) = rest.split_at_checked(length)?;
    Some((*tag, contents, after))
}

fn contents_of(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, contents, after)| (contents, after))
}

/// Reads a time, `YYMMDDhhmmssZ` (from 1950 on) or `YYYYMMDDhhmmssZ`. Returns seconds since 1970 and the bytes after it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, text, after) = element(bytes)?;
    let digits = text.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (if year < 50 { 2_000 + year } else { 1_900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let mut parts = rest.chunks(2).map(|digits| number(digits) as i8);
    let mut next = || parts.next();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    let time = DateTime::new(year as i16, month, day, hour, minute, second, 0).ok()?;
    // 99991231235959Z, which means no expiry (section 4.1.2.5), is beyond the last timestamp.
    Some((TimeZone::UTC.to_timestamp(time).unwrap_or(Timestamp::MAX).as_second(), after))
}

impl Validity {
    /// Reads a certificate in DER. Returns `None` if it is not a certificate.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (certificate, _) = contents_of(SEQUENCE, der)?;
        let (mut rest, _) = contents_of(SEQUENCE, certificate)?;
        if let Some((_, after)) = contents_of(VERSION, rest) {
            rest = after;
        }
        // The serial number, the signature algorithm, and the issuer.
        for _ in 0..3 {
            (_, _, rest) = element(rest)?;
        }
        let (validity, _) = contents_of(SEQUENCE, rest)?;
        let (begins_s, rest) = time(validity)?;
        let (ends_s, _) = time(rest)?;
        Some(Self { begins_s, ends_s })
    }

    /// Returns the problem with the certificate's validity at `now_s`, in seconds since 1970.
    pub fn problem_at(self, now_s: i64) -> Option<Expiry> {
        let Self { begins_s, ends_s } = self;
        if now_s > ends_s {
            Some(Expiry::Expired { ends_s })
        } else if now_s < begins_s {
            Some(Expiry::NotYet { begins_s })
        } else {
            (ends_s - now_s <= SOON_S).then_some(Expiry::Soon { ends_s })
        }
    }

    /// Returns the problem with the certificate's validity now.
    pub fn problem(self) -> Option<Expiry> {
        self.problem_at(i64::try_from(crate::now().0 / Nanos::SECOND).unwrap_or(i64::MAX))
    }
}

/// A problem with a certificate's validity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// Expired.
    Expired {
        /// The last valid second.
        ends_s: i64,
    },
    /// Not valid yet.
    NotYet {
        /// The first valid second.
        begins_s: i64,
    },
    /// Expires within a week.
    Soon {
        /// The last valid second.
        ends_s: i64,
    },
}

impl Expiry {
    /// Returns whether others reject the certificate now.
    pub const fn is_invalid(self) -> bool {
        !matches!(self, Self::Soon { .. })
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Expired { ends_s } => write!(f, "the certificate expired at {}", shown(ends_s)),
            Self::NotYet { begins_s } => write!(f, "the certificate is not valid before {}", shown(begins_s)),
            Self::Soon { ends_s } => write!(f, "the certificate expires at {}", shown(ends_s)),
        }
    }
}

/// Formats a time such as `2026-11-29T03:40:00Z`. Every time that [`time`] reads can be formatted.
fn shown(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map_or_else(|_| format!("{seconds} s since 1970"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes the fields of a certificate that are read, in DER.
    fn certificate(begins: &[u8], ends: &[u8], has_version: bool) -> Vec<u8> {
        let sequence = |contents: &[u8]| [&[SEQUENCE, contents.len() as u8][..], contents].concat();
        let validity = sequence(&[begins, ends].concat());
        let version: &[u8] = if has_version { &[VERSION, 3, 2, 1, 2] } else { &[] };
        let signed = [version, &[2, 1, 7], &sequence(b""), &sequence(b"x"), &validity[..]].concat();
        sequence(&sequence(&signed))
    }

    fn utc(text: &[u8]) -> Vec<u8> {
        [&[UTC_TIME, text.len() as u8][..], text].concat()
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_second_to_its_last() {
        let generalized = [&[GENERALIZED_TIME, 15][..], b"20500301000000Z"].concat();
        for has_version in [true, false] {
            let der = certificate(&utc(b"240229235959Z"), &generalized, has_version);
            let validity = Validity::of_certificate(&der).unwrap();
            assert_eq!(validity, Validity { begins_s: 1_709_251_199, ends_s: 2_529_705_600 });
            for length in 0..der.len() {
                assert_eq!(Validity::of_certificate(&der[..length]), None, "{length} bytes");
            }
            let text = |now_s| validity.problem_at(now_s).map(|expiry| expiry.to_string());
            let not_yet = "the certificate is not valid before 2024-02-29T23:59:59Z";
            assert_eq!(text(validity.begins_s - 1).as_deref(), Some(not_yet));
            assert_eq!(text(validity.begins_s), None);
            let soon = "the certificate expires at 2050-03-01T00:00:00Z";
            assert_eq!(text(validity.ends_s).as_deref(), Some(soon));
            let expired = "the certificate expired at 2050-03-01T00:00:00Z";
            assert_eq!(text(validity.ends_s + 1).as_deref(), Some(expired));
        }
        let endless = [&[GENERALIZED_TIME, 15][..], b"99991231235959Z"].concat();
        let validity =
            Validity::of_certificate(&certificate(&utc(b"240229235959Z"), &endless, true)).unwrap();
        assert_eq!(validity.problem_at(1_709_251_198), Some(Expiry::NotYet { begins_s: 1_709_251_199 }));
        assert_eq!(validity.problem_at(4_000_000_000), None);
        let old = certificate(&utc(b"500101000000Z"), &utc(b"991231235959Z"), true);
        let validity = Validity::of_certificate(&old).unwrap();
        assert_eq!(
            (shown(validity.begins_s), shown(validity.ends_s)),
            ("1950-01-01T00:00:00Z".to_owned(), "1999-12-31T23:59:59Z".to_owned())
        );
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_validity() {
        let times = [
            &b"241301000000Z"[..],
            b"240100000000Z",
            b"240101240000Z",
            b"24010100000Z",
            b"240101000000",
            b"",
        ];
        for wrong in times {
            let der = certificate(&utc(wrong), &utc(b"500101000000Z"), true);
            assert_eq!(Validity::of_certificate(&der), None, "{wrong:?}");
        }
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                assert_eq!(Validity::of_certificate(&[first, second, 0x85, 0xFF, 0xFF]), None);
            }
        }
    }
}
