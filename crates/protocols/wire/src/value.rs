//! Field values: text, implied-decimal prices, times. All are `Copy`, as wide as on the wire (or the next wider integer), and
//! lossless, so that encoding a decoded message produces the same bytes.

use core::fmt;

/// Left-justified text padded with spaces (or NULs), kept unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ascii<const N: usize>(
    /// All `N` bytes, including the padding.
    pub [u8; N],
);

impl<const N: usize> Ascii<N> {
    /// Pads `text` with spaces; `None` if it is longer than `N` bytes or not printable ASCII.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        if is_printable(text.as_bytes()) { Self::padded(text.as_bytes()) } else { None }
    }

    /// Pads `text` with spaces, whatever its bytes; `None` if it is longer than `N` bytes.
    #[inline]
    #[must_use]
    pub fn padded(text: &[u8]) -> Option<Self> {
        let mut bytes = [b' '; N];
        copy_short(bytes.get_mut(..text.len())?, text);
        Some(Self(bytes))
    }

    /// Returns the bytes without trailing spaces and NULs.
    #[inline]
    #[must_use]
    pub fn trimmed(&self) -> &[u8] {
        trim(&self.0)
    }

    /// Returns the text without padding; `None` unless all of it is printable ASCII. [`Display`](fmt::Display) shows other bytes as
    /// `\xNN`.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        core::str::from_utf8(self.trimmed()).ok().filter(|text| is_printable(text.as_bytes()))
    }

    /// Returns whether the field is all padding.
    #[inline]
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.trimmed().is_empty()
    }
}

impl<const N: usize> Default for Ascii<N> {
    /// Returns a blank text: all spaces.
    fn default() -> Self {
        Self([b' '; N])
    }
}

impl Ascii<8> {
    /// Returns the eight bytes as one number, the cheapest key of a symbol table.
    #[inline]
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        u64::from_be_bytes(self.0)
    }
}

fn is_printable(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// Copies a text of the same length as two overlapping pieces. For short texts a call to `memcpy` costs more.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    #[inline(always)]
    fn in_two<const N: usize>(to: &mut [u8], from: &[u8]) -> bool {
        if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>())
            && let Some(place) = to.first_chunk_mut::<N>()
        {
            *place = *first;
            if let Some(place) = to.last_chunk_mut::<N>() {
                *place = *last;
            }
            return true;
        }
        false
    }
    if from.len() > 32 {
        to.copy_from_slice(from);
    } else if !in_two::<16>(to, from) && !in_two::<8>(to, from) && !in_two::<4>(to, from) {
        for (place, byte) in to.iter_mut().zip(from).take(3) {
            *place = *byte;
        }
    }
}

/// Returns the bytes without trailing spaces and NULs.
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    // Only spaces and NULs have no bit set except the space's bit, so eight bytes are checked at a time.
    while let Some((rest, last)) = bytes.split_last_chunk::<8>() {
        let others = u64::from_le_bytes(*last) & 0xDFDF_DFDF_DFDF_DFDF;
        if others != 0 {
            let padding = others.leading_zeros() as usize / 8;
            return bytes.get(..bytes.len() - padding).unwrap_or_default();
        }
        bytes = rest;
    }
    let end = bytes.iter().rposition(|byte| byte & 0xDF != 0).map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}

/// Writes bytes as text; bytes that are not printable ASCII become `\xNN`.
pub fn write_text(out: &mut dyn fmt::Write, bytes: &[u8]) -> fmt::Result {
    for byte in bytes {
        match byte {
            b'\\' => out.write_str("\\\\")?,
            b' '..=b'~' => out.write_char(char::from(*byte))?,
            other => write!(out, "\\x{other:02x}")?,
        }
    }
    Ok(())
}

impl<const N: usize> fmt::Display for Ascii<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(text) => formatter.pad(text),
            None => write_text(formatter, self.trimmed()),
        }
    }
}

impl<const N: usize> fmt::Debug for Ascii<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("\"")?;
        write_text(formatter, self.trimmed())?;
        formatter.write_str("\"")
    }
}

/// A number in ASCII digits, right-justified after spaces. Zero-padded and left-justified numbers are also accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsciiNumber<const N: usize>(
    /// All `N` bytes, unchanged.
    pub [u8; N],
);

impl<const N: usize> AsciiNumber<N> {
    /// Right-justifies `number` after spaces; `None` if it has more than `N` digits.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        let mut bytes = [b' '; N];
        let mut rest = number;
        let mut places = bytes.iter_mut().rev();
        loop {
            *places.next()? = b'0' + u8::try_from(rest % 10).ok()?;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Some(Self(bytes))
    }

    /// Returns the number; `None` if the field is blank, has non-digits, or exceeds 64 bits.
    #[must_use]
    pub fn value(&self) -> Option<u64> {
        number_in(&self.0)
    }
}

/// Parses a number in padded digits.
pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
    let text = trim(bytes);
    let start = text.iter().position(|byte| *byte != b' ')?;
    text.get(start..)?.iter().try_fold(0u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

impl<const N: usize> fmt::Display for AsciiNumber<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Some(number) => fmt::Display::fmt(&number, formatter),
            None => write_text(formatter, trim(&self.0)),
        }
    }
}

impl<const N: usize> fmt::Debug for AsciiNumber<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("\"")?;
        write_text(formatter, &self.0)?;
        formatter.write_str("\"")
    }
}

/// An integer type for the raw value of a price.
pub trait RawPrice: Copy + Into<i128> {
    /// Converts to `i64`; `None` above `i64::MAX`.
    fn to_i64(self) -> Option<i64>;
}

macro_rules! raw_price {
    ($($small:ty),*) => { $(impl RawPrice for $small {
        #[inline]
        fn to_i64(self) -> Option<i64> { Some(i64::from(self)) }
    })* };
}

raw_price!(u8, u16, u32, i8, i16, i32, i64);

impl RawPrice for u64 {
    #[inline]
    fn to_i64(self) -> Option<i64> {
        i64::try_from(self).ok()
    }
}

/// A number with `PLACES` implied decimals: the value is `raw / 10^PLACES`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Decimal<T, const PLACES: u8>(
    /// The integer on the wire.
    pub T,
);

impl<T: RawPrice, const PLACES: u8> Decimal<T, PLACES> {
    /// Implied decimals.
    pub const PLACES: u8 = PLACES;

    const FACTOR: i64 = 10i64.pow(if PLACES <= 9 { 9 - PLACES as u32 } else { PLACES as u32 - 9 });

    /// Returns the price in units of 1e-9 (DBN's unit); `None` if it exceeds 64 bits or has digits below 1e-9.
    /// For a 32-bit price with up to 9 places this is one multiplication.
    #[inline]
    #[must_use]
    pub fn to_e9(self) -> Option<i64> {
        let raw = self.0.to_i64()?;
        if PLACES <= 9 {
            raw.checked_mul(Self::FACTOR)
        } else if raw % Self::FACTOR == 0 {
            Some(raw / Self::FACTOR)
        } else {
            None
        }
    }

    /// Returns the value as a float, for plots and statistics.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        let raw: i128 = self.0.into();
        raw as f64 / 10f64.powi(i32::from(PLACES))
    }
}

impl<const PLACES: u8> Decimal<u32, PLACES> {
    /// Returns the price in units of 1e-9, which always fits for a 32-bit raw value with at most 9 places.
    ///
    /// Does not compile for more than 9 places.
    #[inline]
    #[must_use]
    pub const fn e9(self) -> i64 {
        const { assert!(PLACES <= 9, "more than 9 decimal places cannot be given in 1e-9") };
        self.0 as i64 * 10i64.pow(9 - PLACES as u32)
    }

    /// Converts a price in units of 1e-9; `None` if it is negative, too large, or has more digits than the field.
    #[inline]
    #[must_use]
    pub fn from_e9(price_e9: i64) -> Option<Self> {
        let factor = 10i64.pow(9u32.checked_sub(u32::from(PLACES))?);
        if price_e9 % factor != 0 {
            return None;
        }
        u32::try_from(price_e9 / factor).ok().map(Self)
    }
}

impl<const PLACES: u8> Decimal<i64, PLACES> {
    /// Converts a price in units of 1e-9; `None` if it has more digits than the field.
    #[inline]
    #[must_use]
    pub fn from_e9(price_e9: i64) -> Option<Self> {
        let factor = 10i64.pow(9u32.checked_sub(u32::from(PLACES))?);
        if price_e9 % factor == 0 { Some(Self(price_e9 / factor)) } else { None }
    }
}

/// Writes `raw / 10^places` exactly: `123.4500`.
pub(crate) fn write_decimal(out: &mut dyn fmt::Write, raw: i128, places: u8) -> fmt::Result {
    let unit = 10u128.pow(u32::from(places).min(38));
    let magnitude = raw.unsigned_abs();
    if raw < 0 {
        out.write_char('-')?;
    }
    write!(out, "{}", magnitude / unit)?;
    if places > 0 {
        write!(out, ".{:0width$}", magnitude % unit, width = usize::from(places))?;
    }
    Ok(())
}

impl<T: RawPrice, const PLACES: u8> fmt::Display for Decimal<T, PLACES> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(formatter, self.0.into(), PLACES)
    }
}

impl<T: RawPrice, const PLACES: u8> fmt::Debug for Decimal<T, PLACES> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

macro_rules! time {
    ($(#[$doc:meta])* $name:ident($raw:ty) $method:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(
            /// The count.
            pub $raw,
        );

        impl $name {
            /// Returns the count as a number.
            #[inline]
            #[must_use]
            pub const fn $method(self) -> u64 {
                self.0 as u64
            }
        }
    };
}

time! {
    /// Nanoseconds since midnight in the venue's time zone.
    NanosecondsSinceMidnight(u64) nanoseconds
}
time! {
    /// Nanoseconds since 1970-01-01 00:00 UTC. Fields that the specification calls signed keep their bits.
    NanosecondsSinceEpoch(u64) nanoseconds
}
time! {
    /// A duration in nanoseconds, relative to a time from another message.
    Nanoseconds(u64) nanoseconds
}
time! {
    /// Seconds since midnight in the venue's time zone.
    SecondsSinceMidnight(u32) seconds
}
time! {
    /// Seconds since 1970-01-01 00:00 UTC.
    SecondsSinceEpoch(u32) seconds
}

/// Writes `09:30:00.000000001`.
pub(crate) fn write_time_of_day(out: &mut dyn fmt::Write, nanoseconds: u64) -> fmt::Result {
    let seconds = nanoseconds / 1_000_000_000;
    write!(
        out,
        "{:02}:{:02}:{:02}.{:09}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        nanoseconds % 1_000_000_000
    )
}

/// Writes `2024-03-01T09:30:00.000000001Z`. The conversion of days to a date follows Howard Hinnant's `civil_from_days`.
pub(crate) fn write_date_time(out: &mut dyn fmt::Write, nanoseconds: u64) -> fmt::Result {
    const DAY_NS: u64 = 86_400_000_000_000;
    let shifted = nanoseconds / DAY_NS + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    write!(out, "{year:04}-{month:02}-{day:02}T")?;
    write_time_of_day(out, nanoseconds % DAY_NS)?;
    out.write_char('Z')
}

impl fmt::Display for NanosecondsSinceMidnight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_time_of_day(formatter, self.0)
    }
}

impl fmt::Display for NanosecondsSinceEpoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date_time(formatter, self.0)
    }
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ns", self.0)
    }
}

impl fmt::Display for SecondsSinceMidnight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        write!(formatter, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

impl fmt::Display for SecondsSinceEpoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date_time(formatter, u64::from(self.0) * 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_and_trimmed() {
        let symbol = Ascii::<8>::new("AAPL").unwrap();
        assert_eq!(&symbol.0, b"AAPL    ");
        assert_eq!(symbol.as_str(), Some("AAPL"));
        assert_eq!(symbol.to_string(), "AAPL");
        assert_eq!(Ascii::<4>::new("AAPLE"), None);
        assert_eq!(Ascii(*b"A\xff\0\0").to_string(), "A\\xff");
        assert!(Ascii(*b" \0").is_blank());
        for text in ["äé", "A\0", "A\n", "\u{7f}"] {
            assert_eq!(Ascii::<4>::new(text), None, "{text:?}");
        }
        let foreign = Ascii(*b"\xc3\xa4  ");
        assert_eq!((foreign.as_str(), &*foreign.to_string()), (None, "\\xc3\\xa4"));
        assert_eq!(format!("{foreign:?}"), "\"\\xc3\\xa4\"");
    }

    #[test]
    fn digits_are_read_and_written_right_justified() {
        assert_eq!(&AsciiNumber::<5>::new(42).unwrap().0, b"   42");
        assert_eq!(AsciiNumber(*b"   42").value(), Some(42));
        assert_eq!(AsciiNumber(*b"42   ").value(), Some(42));
        assert_eq!(AsciiNumber(*b"     ").value(), None);
        assert_eq!(AsciiNumber(*b"  4x ").value(), None);
        assert_eq!(AsciiNumber::<2>::new(100), None);
        assert_eq!(&AsciiNumber::<3>::new(0).unwrap().0, b"  0");
        assert_eq!(AsciiNumber(*b"99999999999999999999").value(), None);
    }

    #[test]
    fn a_price_keeps_its_decimals() {
        assert_eq!(Decimal::<u32, 4>(1_234_500).to_string(), "123.4500");
        assert_eq!(Decimal::<u32, 4>(1_234_500).to_e9(), Some(123_450_000_000));
        assert_eq!(Decimal::<u32, 4>(u32::MAX).e9(), 429_496_729_500_000);
        assert_eq!(Decimal::<u32, 4>::from_e9(123_450_000_000), Some(Decimal(1_234_500)));
        assert_eq!(Decimal::<u32, 4>::from_e9(123_450_000_001), None);
        assert_eq!(Decimal::<i64, 4>(-5).to_string(), "-0.0005");
        assert_eq!(Decimal::<i64, 4>(i64::MAX).to_e9(), None);
        assert_eq!(Decimal::<u64, 8>(u64::MAX).to_e9(), None);
        assert_eq!(Decimal::<u64, 10>(20).to_e9(), Some(2));
        assert_eq!(Decimal::<u64, 10>(21).to_e9(), None);
    }

    #[test]
    fn times_are_shown_as_people_read_them() {
        assert_eq!(NanosecondsSinceMidnight(34_200_000_000_001).to_string(), "09:30:00.000000001");
        assert_eq!(
            NanosecondsSinceEpoch(1_709_285_400_000_000_001).to_string(),
            "2024-03-01T09:30:00.000000001Z"
        );
        assert_eq!(NanosecondsSinceEpoch(0).to_string(), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(SecondsSinceEpoch(951_782_400).to_string(), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(NanosecondsSinceEpoch(u64::MAX).to_string(), "2554-07-21T23:34:33.709551615Z");
    }
}
