//! FIX field values as text: integers, decimals, times. Each is read and written exactly and without allocation.
//!
//! Source: *FIX 5.0 SP2*, volume 1, field data types. A decimal is an integer with implied places; no floats are used.
//! Times are nanoseconds UTC. Readers take the text of one field, writers the start of a buffer.
//!
//! Cost: numbers of up to eight digits are read as one 64-bit word, in about twenty instructions, longer numbers digit by digit. A
//! timestamp on the same day as the last one takes about sixty.

use core::fmt;
use core::num::NonZeroU64;

use super::scan::{SOH, end_of, far_end_of};

/// Nanoseconds per day.
pub(crate) const DAY_NS: u64 = 86_400_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// The most digits of an `i64`.
const MAX_DIGITS: usize = 19;

/// Why a text is not a valid value of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueError {
    /// The field has no value.
    Empty,
    /// The text does not have the form of the type.
    Format,
    /// The value does not fit: more than 64 bits, or a time outside 1970 to 2553.
    OutOfRange,
    /// The decimal has more places than the field keeps, and they are not all zero.
    TooManyPlaces,
    /// The value is not one of the declared values.
    NotListed,
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "the field has no value",
            Self::Format => "the text does not have the form of the field's type",
            Self::OutOfRange => "the value does not fit",
            Self::TooManyPlaces => "the decimal has too many places",
            Self::NotListed => "the value is not one of those declared",
        })
    }
}

impl core::error::Error for ValueError {}

/// The number of fractional digits of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TimePrecision {
    /// None.
    Seconds,
    /// Three.
    #[default]
    Milliseconds,
    /// Six.
    Microseconds,
    /// Nine.
    Nanoseconds,
}

impl TimePrecision {
    /// Returns the nanoseconds per unit of the last digit.
    #[must_use]
    pub const fn unit_ns(self) -> u64 {
        match self {
            Self::Seconds => SECOND_NS,
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1_000,
            Self::Nanoseconds => 1,
        }
    }
}

// ---- eight digits at a time ------------------------------------------------------------------------------

const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns whether each byte is the value of a digit, 0 to 9.
#[inline(always)]
const fn are_digits(digits: u64) -> bool {
    (digits.wrapping_add(0x0606_0606_0606_0606) | digits) & 0xf0f0_f0f0_f0f0_f0f0 == 0
}

/// Combines eight digit values into a number; the first digit is in the lowest byte.
#[inline(always)]
const fn number_of(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let high = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let low = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    high.wrapping_add(low) >> 32
}

/// Returns the last `count` characters of a word, 1 to 8, as digit values, padded in front with zeros.
#[inline(always)]
const fn last_values(word: u64, count: usize) -> u64 {
    let unused = (64u32.wrapping_sub(8 * count as u32)) & 63;
    (word ^ ZEROS) >> unused << unused
}

/// Returns the eight bytes before `end`, the first in the lowest byte. Bytes before the start of `bytes` are zero.
#[inline(always)]
pub(crate) fn word_before(bytes: &[u8], end: usize) -> u64 {
    match end.checked_sub(8).and_then(|start| bytes.get(start..)).and_then(|rest| rest.first_chunk::<8>()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => short_word_before(bytes, end),
    }
}

#[cold]
#[inline(never)]
fn short_word_before(bytes: &[u8], end: usize) -> u64 {
    let text = bytes.get(..end).unwrap_or_default();
    text.iter()
        .rev()
        .take(8)
        .fold((0u64, 56u32), |(word, shift), byte| {
            (word | u64::from(*byte) << shift, shift.saturating_sub(8))
        })
        .0
}

/// Returns the eight bytes from `start`. Bytes past the end of `bytes` are zero.
#[inline(always)]
pub(crate) fn word_at(bytes: &[u8], start: usize) -> u64 {
    match bytes.get(start..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => short_word_at(bytes, start),
    }
}

#[cold]
#[inline(never)]
fn short_word_at(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    rest.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

// ---- reading inside of a message -------------------------------------------------------------------------

/// Parses the unsigned number in `bytes[start..end]`.
#[inline(always)]
pub(crate) fn unsigned_in(bytes: &[u8], start: usize, end: usize) -> Result<u64, ValueError> {
    let count = end.wrapping_sub(start);
    if count.wrapping_sub(1) < 8 {
        let digits = last_values(word_before(bytes, end), count);
        return if are_digits(digits) { Ok(number_of(digits)) } else { Err(ValueError::Format) };
    }
    long_unsigned(bytes.get(start..end).unwrap_or_default())
}

#[cold]
#[inline(never)]
fn long_unsigned(text: &[u8]) -> Result<u64, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(ValueError::Format);
        }
        let number = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit)));
        number.ok_or(ValueError::OutOfRange)
    })
}

/// Reads the digits at `start` up to `=`, at most seven, and returns the number and where the value starts.
///
/// Returns `None` for any other form, and if `start` is not within `bytes`.
#[inline(always)]
pub(crate) fn number_before_equals(bytes: &[u8], start: u32) -> Option<(u32, u32)> {
    let word = match eight(bytes, start) {
        Some(word) => word,
        // The last field is shorter than a word: shift out the bytes before it.
        None => {
            let missing = (start as usize + 8).checked_sub(bytes.len()).filter(|missing| *missing < 8)?;
            word_before(bytes, bytes.len()) >> (8 * missing)
        }
    };
    // Most tags have one to three digits, for which this loop is shorter than arithmetic on all eight bytes.
    let (mut number, mut rest) = (0, word);
    for value in start + 1..start + 9 {
        let byte = rest as u8;
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (byte == b'=' && rest != word).then_some((number, value));
        }
        number = number * 10 + u32::from(digit);
        rest >>= 8;
    }
    None
}

/// Parses the signed number in `bytes[start..end]`.
#[inline(always)]
pub(crate) fn signed_in(bytes: &[u8], start: usize, end: usize) -> Result<i64, ValueError> {
    let count = end.wrapping_sub(start);
    if count.wrapping_sub(1) < 8 {
        let digits = last_values(word_before(bytes, end), count);
        if are_digits(digits) {
            return Ok(number_of(digits) as i64);
        }
    }
    long_signed(bytes.get(start..end).unwrap_or_default())
}

#[cold]
#[inline(never)]
fn long_signed(text: &[u8]) -> Result<i64, ValueError> {
    match text {
        [] => Err(ValueError::Empty),
        [b'-', rest @ ..] if !rest.is_empty() => {
            0i64.checked_sub_unsigned(long_unsigned(rest)?).ok_or(ValueError::OutOfRange)
        }
        [b'-'] => Err(ValueError::Format),
        _ => i64::try_from(long_unsigned(text)?).map_err(|_| ValueError::OutOfRange),
    }
}

const POWERS_OF_TEN: [i64; MAX_DIGITS] = {
    let mut powers = [1; MAX_DIGITS];
    let mut index = 1;
    while index < MAX_DIGITS {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// Returns `10^exponent` for 0 to 18.
#[inline(always)]
const fn power_of_ten(exponent: usize) -> i64 {
    if exponent < MAX_DIGITS { POWERS_OF_TEN[exponent] } else { 0 }
}

/// Parses the decimal in `bytes[start..end]`, in units of `10^-PLACES`.
#[inline]
pub(crate) fn decimal_in<const PLACES: u8>(
    bytes: &[u8],
    start: usize,
    end: usize,
) -> Result<i64, ValueError> {
    const { assert!(PLACES <= 10, "a decimal keeps at most 10 places") };
    /// `.` minus `0`. No digit has its highest bit.
    const POINT: u64 = 0x1e;
    let count = end.wrapping_sub(start);
    let places = PLACES as usize;
    if count.wrapping_sub(1) < 8 {
        let values = last_values(word_before(bytes, end), count);
        let points = values & 0x1010_1010_1010_1010;
        if points == 0 {
            if are_digits(values) {
                return Ok(number_of(values) as i64 * power_of_ten(places));
            }
        } else {
            // Move the digits before the point up over it.
            let lowest = (points & points.wrapping_neg()) >> 4;
            let before = values & lowest.wrapping_sub(1);
            let after = values & (lowest << 8).wrapping_neg();
            let digits = after | before << 8;
            let fraction = 7 - (lowest.trailing_zeros() / 8) as usize;
            let is_point = values ^ before ^ after == lowest.wrapping_mul(POINT);
            if is_point && are_digits(digits) && count > 1 && (places >= 7 || fraction <= places) {
                return Ok(number_of(digits) as i64 * power_of_ten(places.wrapping_sub(fraction)));
            }
        }
    }
    long_decimal(bytes, start, end, places)
}

#[cold]
#[inline(never)]
fn long_decimal(bytes: &[u8], start: usize, end: usize, places: usize) -> Result<i64, ValueError> {
    let text = bytes.get(start..end).unwrap_or_default();
    let (is_negative, digits) = match text {
        [] => return Err(ValueError::Empty),
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => digits.split_at(point),
        None => (digits, &digits[..0]),
    };
    let fraction = fraction.get(1..).unwrap_or_default();
    if whole.is_empty() && fraction.is_empty() {
        return Err(ValueError::Format);
    }
    if !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(ValueError::Format);
    }
    let kept = fraction.get(..places.min(fraction.len())).unwrap_or_default();
    if fraction.iter().skip(kept.len()).any(|byte| *byte != b'0') {
        return Err(ValueError::TooManyPlaces);
    }
    let zeros = places - kept.len();
    let digits = whole.iter().chain(kept).map(|byte| byte - b'0').chain(core::iter::repeat_n(0, zeros));
    let mut number = 0i64;
    for digit in digits {
        let digit = i64::from(digit);
        let next = number.checked_mul(10);
        let next =
            next.and_then(|next| if is_negative { next.checked_sub(digit) } else { next.checked_add(digit) });
        number = next.ok_or(ValueError::OutOfRange)?;
    }
    Ok(number)
}

/// Days before each month of a non-leap year; the first and the last two entries are months that do not exist.
const DAYS_BEFORE_MONTH: [u16; 16] = [0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365, 0, 0];

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const FIRST_YEAR: usize = 1970;
const YEARS: usize = 584;

/// Days since 1970 before each year up to 2554.
const DAYS_BEFORE_YEAR: [u32; YEARS + 1] = {
    let mut days = [0; YEARS + 1];
    let mut index = 0;
    while index < YEARS {
        days[index + 1] = days[index] + 365 + is_leap((FIRST_YEAR + index) as u64) as u32;
        index += 1;
    }
    days
};

/// Parses a date into days since 1970. `text` is `YYYYMMDD` with the first character in the lowest byte; years 1970 to 2553. Uses tables
/// instead of divisions.
#[inline(always)]
fn days_of(text: u64) -> Result<u64, ValueError> {
    let digits = text ^ ZEROS;
    if !are_digits(digits) {
        return Err(ValueError::Format);
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let year = (pairs & 0xff) as usize * 100 + (pairs >> 16 & 0xff) as usize;
    let (month, day) = ((pairs >> 32 & 0xff) as usize, (pairs >> 48 & 0xff) as u32);
    if month.wrapping_sub(1) >= 12 || day == 0 {
        return Err(ValueError::Format);
    }
    let index = year.wrapping_sub(FIRST_YEAR);
    let (Some(first), Some(next)) =
        (DAYS_BEFORE_YEAR.get(index), DAYS_BEFORE_YEAR.get(index.wrapping_add(1)))
    else {
        return Err(outside(year as u64, month, day));
    };
    let leap = next - first - 365;
    let before = u32::from(DAYS_BEFORE_MONTH[month & 15]);
    let length = u32::from(DAYS_BEFORE_MONTH[(month + 1) & 15]) - before;
    if day > length + (leap & u32::from(month == 2)) {
        return Err(ValueError::Format);
    }
    Ok(u64::from(first + before + (leap & u32::from(month > 2)) + day - 1))
}

/// Returns the error for a date in an unsupported year.
#[cold]
fn outside(year: u64, month: usize, day: u32) -> ValueError {
    let before = DAYS_BEFORE_MONTH[month & 15];
    let length =
        DAYS_BEFORE_MONTH[(month + 1) & 15].saturating_sub(before) + u16::from(is_leap(year) && month == 2);
    if day > u32::from(length) { ValueError::Format } else { ValueError::OutOfRange }
}

/// The last timestamp read: most timestamps in a message share their second, and most in a session share their day.
#[derive(Clone, Copy, Debug)]
pub struct LastTimestamp {
    /// `YYYYMMDD`.
    date: u64,
    /// `-HH:MM:S`.
    time: u64,
    /// `:SS.000` and SOH.
    end: u64,
    /// The day, in days since 1970.
    days: u64,
    /// The second, in nanoseconds since 1970.
    second_ns: u64,
}

impl LastTimestamp {
    /// No timestamp yet. No text matches: `time` and `end` share two characters, which differ here.
    pub const NONE: Self = Self { date: 0, time: 0, end: u64::MAX, days: 0, second_ns: 0 };

    #[inline(always)]
    fn days_of(&mut self, text: u64) -> Result<u64, ValueError> {
        if text == self.date { Ok(self.days) } else { self.set_date(text) }
    }

    #[inline(never)]
    fn set_date(&mut self, text: u64) -> Result<u64, ValueError> {
        let days = days_of(text)?;
        // The time part is reset, because no time of this date has been read yet.
        *self = Self { date: text, days, ..Self::NONE };
        Ok(days)
    }
}

impl Default for LastTimestamp {
    fn default() -> Self {
        Self::NONE
    }
}

/// Returns the seconds since midnight of `HH:MM:SS`; the first character is in the lowest byte.
#[inline(always)]
const fn second_of(text: u64) -> Option<u64> {
    const ZEROS_AND_COLONS: u64 = u64::from_le_bytes(*b"00:00:00");
    const COLONS: u64 = 0x0000_ff00_00ff_0000;
    const PAIRS: u64 = 0x00ff_0000_ff00_00ff;
    // Sets the highest bit of every value that is too large. A leap second, 60, counts as the first second of the next minute.
    const HEADROOM: u64 = (0x80 - 24) | (0x80 - 60) << 24 | (0x80 - 61) << 48;
    const HIGH: u64 = 0x0080_0000_8000_0080;
    let values = text ^ ZEROS_AND_COLONS;
    let wrong =
        (values.wrapping_add(0x0606_0606_0606_0606) | values) & 0xf0f0_f0f0_f0f0_f0f0 | values & COLONS;
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8) & PAIRS;
    if wrong | pairs.wrapping_add(HEADROOM) & HIGH != 0 {
        return None;
    }
    // Hours are in the lowest byte, minutes in the fourth, seconds in the seventh.
    let minutes = pairs.wrapping_mul(60 << 24 | 1) >> 24 & 0xfff;
    Some(minutes * 60 + (pairs >> 48))
}

/// Returns the milliseconds of `.mmm`; the first character is in the lowest byte.
#[inline(always)]
const fn milliseconds_of(text: u32) -> Option<u64> {
    let values = text ^ u32::from_le_bytes(*b".000");
    if (values.wrapping_add(0x0606_0600) | values) & 0xf0f0_f0ff != 0 {
        return None;
    }
    let digits = values as u64 >> 8;
    let (hundreds, tens, ones) = (digits & 0xf, digits >> 8 & 0xf, digits >> 16);
    Some(hundreds * 100 + tens * 10 + ones)
}

/// Parses the fraction in `bytes[start..end]`, a point and 3, 6 or 9 digits, into nanoseconds.
#[inline(always)]
fn fraction_in(bytes: &[u8], start: usize, end: usize) -> Result<u64, ValueError> {
    // At least `:SS` precedes the point, so there are eight bytes before the end.
    let last = word_before(bytes, end);
    let number = match end.wrapping_sub(start) {
        4 => milliseconds_of((last >> 32) as u32).map(|milliseconds| milliseconds * 1_000_000),
        7 => {
            let digits = last_values(last, 6);
            are_digits(digits).then(|| number_of(digits) * 1_000)
        }
        10 => {
            let digits = last ^ ZEROS;
            let first = bytes.get(start + 1).map_or(u64::MAX, |byte| u64::from(byte.wrapping_sub(b'0')));
            (first < 10 && are_digits(digits)).then(|| number_of(digits) + first * 100_000_000)
        }
        _ => None,
    };
    match number {
        Some(fraction_ns) if bytes.get(start) == Some(&b'.') => Ok(fraction_ns),
        _ => Err(ValueError::Format),
    }
}

/// Parses the time in `bytes[start..end]`, `HH:MM:SS` with 0, 3, 6 or 9 fractional digits, into nanoseconds since midnight.
#[inline(always)]
fn time_of_day_in(bytes: &[u8], start: usize, end: usize) -> Result<u64, ValueError> {
    let Some(seconds) = second_of(word_at(bytes, start)) else { return Err(ValueError::Format) };
    let fraction_ns = if end.wrapping_sub(start) == 8 { 0 } else { fraction_in(bytes, start + 8, end)? };
    Ok(seconds * SECOND_NS + fraction_ns)
}

/// Parses the UTC timestamp in `bytes[start..end]`: `YYYYMMDD-HH:MM:SS` with 0, 3, 6 or 9 fractional digits.
#[inline]
pub(crate) fn timestamp_in(
    bytes: &[u8],
    start: usize,
    end: usize,
    last: &mut LastTimestamp,
) -> Result<u64, ValueError> {
    let text = bytes.get(start..end).unwrap_or_default();
    let Some((head, rest)) = text.split_first_chunk::<17>() else {
        return Err(if text.is_empty() { ValueError::Empty } else { ValueError::Format });
    };
    let [y1, y2, y3, y4, m1, m2, d1, d2, dash, time @ ..] = *head;
    if dash != b'-' {
        return Err(ValueError::Format);
    }
    let days = last.days_of(u64::from_le_bytes([y1, y2, y3, y4, m1, m2, d1, d2]))?;
    let Some(seconds) = second_of(u64::from_le_bytes(time)) else { return Err(ValueError::Format) };
    let fraction_ns = if rest.is_empty() { 0 } else { fraction_in(bytes, start + 17, end)? };
    Ok(days * DAY_NS + seconds * SECOND_NS + fraction_ns)
}

/// Parses the date in `bytes[start..end]`, `YYYYMMDD`, into days since 1970.
#[inline]
pub(crate) fn date_in(bytes: &[u8], start: usize, end: usize) -> Result<u32, ValueError> {
    match end.wrapping_sub(start) {
        8 => days_of(word_at(bytes, start)).map(|days| days as u32),
        0 => Err(ValueError::Empty),
        _ => Err(ValueError::Format),
    }
}

/// Parses the time in `bytes[start..end]` into nanoseconds since midnight.
#[inline]
pub(crate) fn time_in(bytes: &[u8], start: usize, end: usize) -> Result<u64, ValueError> {
    match end.wrapping_sub(start) {
        8.. => time_of_day_in(bytes, start, end),
        0 => Err(ValueError::Empty),
        _ => Err(ValueError::Format),
    }
}

// ---- reading the value that starts here --------------------------------------------------------------------

// Each returns the value and the position of its SOH. Numbers and times show where they end, so nothing is searched. `bytes` is shorter
// than 2^32. Rare forms are parsed by functions whose results fit into registers; a result in memory would force all of them there.

/// SOH minus `0`.
const END: u8 = SOH ^ b'0';

/// Sets the highest bit of each byte that is not a digit value. Exact up to and including the first such byte; after a byte of 0x8a or
/// more, which a point is not, a digit may be marked too.
#[inline(always)]
const fn no_digits(values: u64) -> u64 {
    (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080
}

/// Returns the eight bytes from `start`, if that many exist.
#[inline(always)]
pub(crate) fn eight(bytes: &[u8], start: u32) -> Option<u64> {
    let start = start as usize;
    let eight = bytes.get(start..start + 8)?;
    eight.first_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk))
}

/// Parses a number of up to seven digits at `start`; `None` for any other form.
#[inline(always)]
fn short_number_at(bytes: &[u8], start: u32) -> Option<(u64, u32)> {
    let values = eight(bytes, start)? ^ ZEROS;
    let bits = NonZeroU64::new(no_digits(values))?.trailing_zeros() & 0x38;
    if (values >> bits) as u8 != END || bits == 0 {
        return None;
    }
    Some((number_of(values << (64 - bits)), start + bits / 8))
}

/// Parses the unsigned number at `start`.
#[inline(always)]
pub(crate) fn unsigned_at(bytes: &[u8], start: u32) -> Result<(u64, u32), ValueError> {
    #[cold]
    #[inline(never)]
    fn other(bytes: &[u8], start: u32, end: u32) -> Result<u64, ValueError> {
        unsigned_in(bytes, start as usize, end as usize)
    }
    match short_number_at(bytes, start) {
        Some(found) => Ok(found),
        None => {
            let end = far_end_of(bytes, start);
            Ok((other(bytes, start, end)?, end))
        }
    }
}

/// Parses the signed number at `start`.
#[inline(always)]
pub(crate) fn signed_at(bytes: &[u8], start: u32) -> Result<(i64, u32), ValueError> {
    #[cold]
    #[inline(never)]
    fn other(bytes: &[u8], start: u32, end: u32) -> Result<i64, ValueError> {
        signed_in(bytes, start as usize, end as usize)
    }
    match short_number_at(bytes, start) {
        Some((number, end)) => Ok((number as i64, end)),
        None => {
            let end = far_end_of(bytes, start);
            Ok((other(bytes, start, end)?, end))
        }
    }
}

/// Parses a decimal of up to seven characters at `start`, without a minus; `None` for any other form.
#[inline(always)]
fn short_decimal_at<const PLACES: u8>(bytes: &[u8], start: u32) -> Option<(i64, u32)> {
    /// The point minus `0`.
    const POINT: u8 = b'.' ^ b'0';
    let places = PLACES as usize;
    let values = eight(bytes, start)? ^ ZEROS;
    let others = NonZeroU64::new(no_digits(values))?;
    let whole_bits = others.trailing_zeros() & 0x38;
    let behind_whole = (values >> whole_bits) as u8;
    if behind_whole == END && whole_bits != 0 {
        let number = number_of(values << (64 - whole_bits)) as i64;
        return Some((number * power_of_ten(places), start + whole_bits / 8));
    }
    let bits = NonZeroU64::new(others.get() & (others.get() - 1))?.trailing_zeros() & 0x38;
    // Require at least one digit besides the point.
    if behind_whole != POINT || (values >> bits) as u8 != END || bits == 8 {
        return None;
    }
    // Move the digits after the point down over it.
    let whole = (1u64 << whole_bits) - 1;
    let digits = values & whole | values >> 8 & !whole;
    let fraction = ((bits - whole_bits) / 8) as usize - 1;
    if fraction > places {
        return None;
    }
    let number = number_of(digits << (72 - bits)) as i64;
    Some((number * power_of_ten(places - fraction), start + bits / 8))
}

/// Parses the decimal at `start`, in units of `10^-PLACES`.
#[inline(always)]
pub(crate) fn decimal_at<const PLACES: u8>(bytes: &[u8], start: u32) -> Result<(i64, u32), ValueError> {
    #[inline(never)]
    fn other<const PLACES: u8>(bytes: &[u8], start: u32, end: u32) -> Result<i64, ValueError> {
        decimal_in::<PLACES>(bytes, start as usize, end as usize)
    }
    match short_decimal_at::<PLACES>(bytes, start) {
        Some(found) => Ok(found),
        None => {
            let end = far_end_of(bytes, start);
            Ok((other::<PLACES>(bytes, start, end)?, end))
        }
    }
}

/// Returns the eight bytes of a text from `AT`.
#[inline(always)]
const fn word_of<const AT: usize, const BYTES: usize>(text: &[u8; BYTES]) -> u64 {
    const { assert!(AT + 8 <= BYTES, "the text is shorter") };
    match text.split_at(AT).1.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

/// Parses the UTC timestamp at `start`. A timestamp in the same second as the last one is recognized by comparison.
#[inline(always)]
pub(crate) fn timestamp_at(
    bytes: &[u8],
    start: u32,
    last: &mut LastTimestamp,
) -> Result<(u64, u32), ValueError> {
    /// Length of a timestamp with milliseconds.
    const LENGTH: usize = 21;
    let from = start as usize;
    let text = bytes.get(from..from + LENGTH + 1).and_then(|text| text.first_chunk::<{ LENGTH + 1 }>());
    let Some(text) = text else {
        let end = far_end_of(bytes, start);
        return Ok((other_timestamp(bytes, start, end, last)?, end));
    };
    let (date, time) = (word_of::<0, 22>(text), word_of::<8, 22>(text));
    let end = word_of::<14, 22>(text) ^ last.end;
    // Only the digits of the fraction may differ.
    let wrong = (end.wrapping_add(0x0006_0606_0000_0000) | end) & 0xfff0_f0f0_ffff_ffff;
    let time_ns = if (date ^ last.date) | (time ^ last.time) | wrong == 0 {
        let (hundreds, tens, ones) = (end >> 32 & 0xf, end >> 40 & 0xf, end >> 48);
        Some(last.second_ns + (hundreds * 100 + tens * 10 + ones) * 1_000_000)
    } else {
        second_timestamp(text, last)
    };
    match time_ns {
        Some(time_ns) => Ok((time_ns, start + LENGTH as u32)),
        None => {
            let end = far_end_of(bytes, start);
            Ok((other_timestamp(bytes, start, end, last)?, end))
        }
    }
}

/// Parses a timestamp in a different second, with milliseconds; `None` for another form or an invalid date.
#[inline(never)]
fn second_timestamp(text: &[u8; 22], last: &mut LastTimestamp) -> Option<u64> {
    if (text[8], text[21]) != (b'-', SOH) {
        return None;
    }
    let seconds = second_of(word_of::<9, 22>(text))?;
    let milliseconds = milliseconds_of((word_of::<14, 22>(text) >> 24) as u32)?;
    let days = last.days_of(word_of::<0, 22>(text)).ok()?;
    last.time = word_of::<8, 22>(text);
    last.end = word_of::<14, 22>(text) & 0xff00_0000_ffff_ffff | u64::from_le_bytes(*b"\0\0\0\x00000\0");
    last.second_ns = days * DAY_NS + seconds * SECOND_NS;
    Some(last.second_ns + milliseconds * 1_000_000)
}

/// Parses a timestamp of any form.
#[inline(never)]
fn other_timestamp(bytes: &[u8], start: u32, end: u32, last: &mut LastTimestamp) -> Result<u64, ValueError> {
    timestamp_in(bytes, start as usize, end as usize, last)
}

/// Parses the date at `start` into days since 1970.
#[inline]
pub(crate) fn date_at(bytes: &[u8], start: u32) -> Result<(u32, u32), ValueError> {
    let end = end_of(bytes, start);
    Ok((date_in(bytes, start as usize, end as usize)?, end))
}

/// Parses the time at `start` into nanoseconds since midnight.
#[inline]
pub(crate) fn time_at(bytes: &[u8], start: u32) -> Result<(u64, u32), ValueError> {
    let end = end_of(bytes, start);
    Ok((time_in(bytes, start as usize, end as usize)?, end))
}

// ---- reading a text --------------------------------------------------------------------------------------

/// Parses an unsigned number: digits, possibly with leading zeros.
///
/// # Errors
/// No digits, other characters, or more than 64 bits.
#[inline]
pub fn read_unsigned(text: &[u8]) -> Result<u64, ValueError> {
    unsigned_in(text, 0, text.len())
}

/// Parses a signed number: digits after an optional minus.
///
/// # Errors
/// No digits, other characters, or more than 64 bits.
#[inline]
pub fn read_signed(text: &[u8]) -> Result<i64, ValueError> {
    signed_in(text, 0, text.len())
}

/// Parses a decimal in units of `10^-PLACES`. `23`, `23.`, `0023.50` and `.5` are valid; `+5` and `1e5` are not.
///
/// # Errors
/// Another form, more than 64 bits, or places beyond `PLACES` that are not zero.
#[inline]
pub fn read_decimal<const PLACES: u8>(text: &[u8]) -> Result<i64, ValueError> {
    decimal_in::<PLACES>(text, 0, text.len())
}

/// Parses a UTCTimestamp into nanoseconds since 1970 UTC. It has 0, 3, 6 or 9 fractional digits. A leap second counts as the first
/// second of the next minute.
///
/// # Errors
/// Another form, or a year outside 1970 to 2553.
#[inline]
pub fn read_timestamp(text: &[u8]) -> Result<u64, ValueError> {
    timestamp_in(text, 0, text.len(), &mut LastTimestamp::default())
}

/// Parses a UTCDateOnly or LocalMktDate into days since 1970.
///
/// # Errors
/// Another form, or a year outside 1970 to 2553.
#[inline]
pub fn read_date(text: &[u8]) -> Result<u32, ValueError> {
    date_in(text, 0, text.len())
}

/// Parses a UTCTimeOnly into nanoseconds since midnight. It has 0, 3, 6 or 9 fractional digits.
///
/// # Errors
/// Another form.
#[inline]
pub fn read_time(text: &[u8]) -> Result<u64, ValueError> {
    time_in(text, 0, text.len())
}

/// Parses a Boolean: `Y` or `N`.
///
/// # Errors
/// Any other text.
#[inline]
pub fn read_flag(text: &[u8]) -> Result<bool, ValueError> {
    match text {
        b"Y" => Ok(true),
        b"N" => Ok(false),
        [] => Err(ValueError::Empty),
        _ => Err(ValueError::Format),
    }
}

/// Parses one character.
///
/// # Errors
/// No character, or more than one.
#[inline]
pub fn read_character(text: &[u8]) -> Result<u8, ValueError> {
    match text {
        [character] => Ok(*character),
        [] => Err(ValueError::Empty),
        _ => Err(ValueError::Format),
    }
}

// ---- writing ---------------------------------------------------------------------------------------------

/// Returns the digits of a number below 10^8, zero-padded, the first in the lowest byte.
#[inline(always)]
pub(crate) const fn text_of_eight(number: u32) -> u64 {
    let number = number as u64;
    text_of_halves((number / 10_000) | ((number % 10_000) << 32))
}

/// Returns the digits of two numbers below 10^4, one per half, zero-padded, the first in the lowest byte.
#[inline(always)]
const fn text_of_halves(halves: u64) -> u64 {
    let quarters = {
        let hundreds = (halves.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
        hundreds | (halves - hundreds * 100) << 16
    };
    let tens = (quarters.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    (tens | (quarters - tens * 10) << 8) | ZEROS
}

/// Returns the digits of a number below 10^4, zero-padded, the first in the lowest byte.
#[inline(always)]
const fn text_of_four(number: u32) -> u32 {
    let hundreds = (number * 5_243) >> 19;
    let pairs = hundreds | (number - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f;
    (tens | (pairs - tens * 10) << 8) | ZEROS as u32
}

/// Returns the digits of a number below 10^4 and SOH, the first in the lowest byte, and the length of the digits in bits.
#[inline(always)]
pub(crate) const fn short_number_text(number: u32) -> (u64, u32) {
    let text = text_of_four(number);
    // Leading zeros; the last digit is kept.
    let unused = ((text ^ ZEROS as u32) | 1 << 24).trailing_zeros() & 0x18;
    ((text >> unused) as u64 | (SOH as u64) << (32 - unused), 32 - unused)
}

/// Formats a non-negative decimal in units of 10^-8, below 10^4, with at most four places. Returns the whole digits and a point, without
/// leading zeros; their length in bits; the four digits of the fraction; and their length in bits without trailing zeros, at least 8.
/// Returns `None` for any other decimal and for whole numbers.
#[inline(always)]
pub(crate) const fn short_decimal_text(whole: u64, fraction_e8: u32) -> Option<(u64, u32, u32, u32)> {
    let fraction = fraction_e8 / 10_000;
    if whole >= 10_000 || fraction == 0 || fraction * 10_000 != fraction_e8 {
        return None;
    }
    let text = text_of_halves(whole | (fraction as u64) << 32);
    let unused = ((text ^ ZEROS) as u32 | 1 << 24).trailing_zeros() & 0x18;
    let digits = (text & 0xffff_ffff | (b'.' as u64) << 32) >> unused;
    let zeros = ((text ^ ZEROS) >> 32).leading_zeros() - 32;
    Some((digits, 40 - unused, (text >> 32) as u32, 32 - (zeros & 0x18)))
}

/// Stores the eight bytes of a word at the start of `target`; does nothing if there is no room.
#[inline(always)]
fn put_word(target: &mut [u8], word: u64) {
    if let Some(place) = target.first_chunk_mut::<8>() {
        *place = word.to_le_bytes();
    }
}

/// The bytes that a writer in this module may touch: the longest text, rounded up to whole words.
pub(crate) const ROOM: usize = 32;

/// The text of the last second written: most times in a message share their second, and most in a session share their day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSecond {
    second: u64,
    days: u64,
    /// `YYYYMMDD`.
    date: u64,
    /// `-HH:MM:S`.
    time: u64,
    /// The last digit and a point.
    end: u64,
}

impl LastSecond {
    /// No second yet: no time is in this one.
    pub const NONE: Self = Self { second: u64::MAX, days: u64::MAX, date: 0, time: 0, end: 0 };

    /// Returns the text of another second since 1970.
    #[inline(never)]
    fn at(self, second: u64) -> Self {
        let days = second / 86_400;
        let date = if days == self.days { self.date } else { text_of_eight(date_number(days as u32)) };
        let clock = clock_text((second - days * 86_400) as u32);
        let (time, end) = (u64::from(b'-') | clock << 8, clock >> 56 | u64::from(b'.') << 8);
        Self { second, days, date, time, end }
    }
}

impl Default for LastSecond {
    fn default() -> Self {
        Self::NONE
    }
}

/// Formats a second of the day as `HH:MM:SS`, the first character in the lowest byte.
#[inline(always)]
const fn clock_text(second: u32) -> u64 {
    let minutes = second / 60;
    let hours = minutes / 60;
    // Three numbers below 100, each at the position of its first digit, so that all digits are computed simultaneously.
    let numbers =
        hours as u64 | ((minutes - hours * 60) as u64) << 24 | ((second - minutes * 60) as u64) << 48;
    let tens = (numbers.wrapping_mul(103) >> 10) & 0x000f_0000_0f00_000f;
    (tens | (numbers - tens * 10) << 8) | u64::from_le_bytes(*b"00:00:00")
}

/// Writes digits to the start of `target`, which has [`ROOM`], and returns how many.
#[inline(always)]
pub(crate) fn put_unsigned(target: &mut [u8], number: u64) -> usize {
    if number < 100_000_000 {
        let text = text_of_eight(number as u32);
        // Leading zeros; the last digit is kept.
        let unused = ((text ^ ZEROS) | 1 << 56).trailing_zeros() & !7;
        put_word(target, text >> unused);
        return 8 - (unused / 8) as usize;
    }
    put_long(target, number)
}

#[inline(never)]
fn put_long(target: &mut [u8], number: u64) -> usize {
    let (upper, low) = (number / 100_000_000, (number % 100_000_000) as u32);
    let first = put_unsigned(target, upper);
    put_word(target.get_mut(first..).unwrap_or_default(), text_of_eight(low));
    first + 8
}

/// Writes a decimal in units of `10^-places` without trailing zeros; `target` has [`ROOM`].
#[inline(always)]
pub(crate) fn put_decimal(target: &mut [u8], value: i64, places: u8) -> usize {
    let mut at = 0;
    if value < 0 {
        if let Some(first) = target.first_mut() {
            *first = b'-';
        }
        at = 1;
    }
    let unit = power_of_ten(usize::from(places)).max(1) as u64;
    let magnitude = value.unsigned_abs();
    let (whole, fraction) = (magnitude / unit, magnitude % unit);
    at += put_unsigned(target.get_mut(at..).unwrap_or_default(), whole);
    if fraction != 0 {
        if let Some(point) = target.get_mut(at) {
            *point = b'.';
        }
        at += 1;
        if places <= 8 {
            let text = text_of_eight((fraction * power_of_ten(8 - usize::from(places)) as u64) as u32);
            put_word(target.get_mut(at..).unwrap_or_default(), text);
            at += 8 - ((text ^ ZEROS).leading_zeros() / 8) as usize;
        } else {
            at += put_long_fraction(target.get_mut(at..).unwrap_or_default(), fraction, places);
        }
    }
    at
}

#[cold]
fn put_long_fraction(target: &mut [u8], fraction: u64, places: u8) -> usize {
    let mut rest = fraction;
    let mut end = 0;
    for (index, place) in target.iter_mut().take(usize::from(places)).enumerate().rev() {
        let digit = (rest % 10) as u8;
        rest /= 10;
        *place = b'0' + digit;
        if digit != 0 && end == 0 {
            end = index + 1;
        }
    }
    end
}

/// Converts a day since 1970 to a date as a number, `20261123`, capped at the last day of 2553. Uses tables instead of divisions.
#[inline(always)]
fn date_number(days: u32) -> u32 {
    let first_of = |index: usize| DAYS_BEFORE_YEAR.get(index).copied().unwrap_or(u32::MAX);
    let days = days.min(first_of(YEARS) - 1);
    let guess = (days / 366) as usize;
    // Dividing by 366 days per year underestimates: over 584 years the guess is too low by at most two.
    let guess = guess + usize::from(first_of(guess + 1) <= days);
    let index = guess + usize::from(first_of(guess + 1) <= days);
    let day_of_year = days - first_of(index);
    let leap = first_of(index + 1) - first_of(index) - 365;
    let before = |month: usize| u32::from(DAYS_BEFORE_MONTH[month & 15]) + (leap & u32::from(month > 2));
    let guess = (day_of_year / 32) as usize + 1;
    let month = guess + usize::from(guess < 12 && before(guess + 1) <= day_of_year);
    let day = day_of_year - before(month) + 1;
    ((FIRST_YEAR + index) as u32 * 100 + month as u32) * 100 + day
}

/// Writes a day since 1970 as `YYYYMMDD`; `target` has [`ROOM`].
#[inline(always)]
pub(crate) fn put_date(target: &mut [u8], days: u32) -> usize {
    put_word(target, text_of_eight(date_number(days)));
    8
}

/// Writes nanoseconds since midnight, truncated to the precision. `target` has [`ROOM`].
#[inline(always)]
pub(crate) fn put_time(target: &mut [u8], time_ns: u64, precision: TimePrecision) -> usize {
    put_word(target, clock_text((time_ns / SECOND_NS) as u32));
    let Some(rest) = target.get_mut(8..) else { return 8 };
    8 + put_fraction(rest, (time_ns % SECOND_NS) as u32, precision)
}

/// Writes the fraction of a second, if any, after a point; `target` has the rest of [`ROOM`].
#[inline(always)]
fn put_fraction(rest: &mut [u8], fraction: u32, precision: TimePrecision) -> usize {
    let put = |rest: &mut [u8], fraction: u32, digits: u32| {
        // A point before the digits, which are at the end of the word.
        put_word(rest, u64::from(b'.') | (text_of_eight(fraction) >> (64 - 8 * digits)) << 8);
    };
    match precision {
        TimePrecision::Seconds => 0,
        TimePrecision::Milliseconds => {
            put_word(rest, u64::from(b'.') | u64::from(three_digits(fraction / 1_000_000)) << 8);
            4
        }
        TimePrecision::Microseconds => {
            put(rest, fraction / 1_000, 6);
            7
        }
        TimePrecision::Nanoseconds => {
            put(rest, fraction / 1_000, 6);
            put_word(rest.get_mut(7..).unwrap_or_default(), text_of_eight(fraction % 1_000) >> 40);
            10
        }
    }
}

/// Returns the three digits of a number below 1000, the first in the lowest byte.
#[inline(always)]
pub(crate) const fn three_digits(number: u32) -> u32 {
    let hundreds = (number * 41) >> 12;
    let below = number - hundreds * 100;
    let tens = (below * 103) >> 10;
    (hundreds | tens << 8 | (below - tens * 10) << 16) | 0x0030_3030
}

/// Returns the words of a timestamp with milliseconds, followed by SOH: 22 bytes, the first in the lowest byte.
#[inline(always)]
pub(crate) fn timestamp_words(time_ns: u64, last: &mut LastSecond) -> [u64; 3] {
    let second = time_ns / SECOND_NS;
    if second != last.second {
        *last = last.at(second);
    }
    let fraction = (time_ns - second * SECOND_NS) as u32;
    let end = last.end | u64::from(three_digits(fraction / 1_000_000)) << 16 | u64::from(SOH) << 40;
    [last.date, last.time, end]
}

/// Writes nanoseconds since 1970 UTC, truncated to the precision. `target` has [`ROOM`].
#[inline]
pub(crate) fn put_timestamp(
    target: &mut [u8],
    time_ns: u64,
    precision: TimePrecision,
    last: &mut LastSecond,
) -> usize {
    let [date, time, end] = timestamp_words(time_ns, last);
    put_word(target, date);
    put_word(target.get_mut(8..).unwrap_or_default(), time);
    if let Some(digit) = target.get_mut(16) {
        *digit = end as u8;
    }
    let fraction = (time_ns % SECOND_NS) as u32;
    17 + put_fraction(target.get_mut(17..).unwrap_or_default(), fraction, precision)
}

/// Calls a writer of this module on a buffer with room and copies the text to `target`.
fn written(target: &mut [u8], put: impl FnOnce(&mut [u8]) -> usize) -> Option<usize> {
    let mut text = [0; ROOM];
    let length = put(&mut text);
    target.get_mut(..length)?.copy_from_slice(text.get(..length)?);
    Some(length)
}

/// Writes digits and returns how many; `None` without room.
pub fn write_unsigned(target: &mut [u8], number: u64) -> Option<usize> {
    written(target, |text| put_unsigned(text, number))
}

/// Writes a signed number and returns its length; `None` without room.
pub fn write_signed(target: &mut [u8], number: i64) -> Option<usize> {
    written(target, |text| put_decimal(text, number, 0))
}

/// Writes a decimal in units of `10^-PLACES`, without trailing zeros, and returns its length; `None` without room.
pub fn write_decimal<const PLACES: u8>(target: &mut [u8], value: i64) -> Option<usize> {
    const { assert!(PLACES <= 10, "a decimal keeps at most 10 places") };
    written(target, |text| put_decimal(text, value, PLACES))
}

/// Writes nanoseconds since 1970 UTC as a UTCTimestamp, truncated to the precision, and returns its length; `None` without room.
pub fn write_timestamp(target: &mut [u8], time_ns: u64, precision: TimePrecision) -> Option<usize> {
    written(target, |text| put_timestamp(text, time_ns, precision, &mut LastSecond::default()))
}

/// Writes nanoseconds since midnight as a UTCTimeOnly and returns its length; `None` without room, or for a day or more.
pub fn write_time(target: &mut [u8], time_ns: u64, precision: TimePrecision) -> Option<usize> {
    if time_ns >= DAY_NS {
        return None;
    }
    written(target, |text| put_time(text, time_ns, precision))
}

/// Writes days since 1970 as a UTCDateOnly and returns its length; `None` without room, or after 2553.
pub fn write_date(target: &mut [u8], days: u32) -> Option<usize> {
    if days > 213_301 {
        return None;
    }
    written(target, |text| put_date(text, days))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> String {
        let mut buffer = [0; 40];
        let length = write(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn decimals_are_read_exactly() {
        let cases: [(&str, Result<i64, ValueError>); 22] = [
            ("23", Ok(2_300_000_000)),
            ("23.", Ok(2_300_000_000)),
            (".5", Ok(50_000_000)),
            ("0023.2300", Ok(2_323_000_000)),
            ("-101.25", Ok(-10_125_000_000)),
            ("101.25", Ok(10_125_000_000)),
            ("0.00000001", Ok(1)),
            ("0.000000001", Err(ValueError::TooManyPlaces)),
            ("0.000000010", Ok(1)),
            ("92233720368.54775807", Ok(i64::MAX)),
            ("-92233720368.54775808", Ok(i64::MIN)),
            ("92233720368.54775808", Err(ValueError::OutOfRange)),
            ("", Err(ValueError::Empty)),
            (".", Err(ValueError::Format)),
            ("-", Err(ValueError::Format)),
            ("-.", Err(ValueError::Format)),
            ("+5", Err(ValueError::Format)),
            ("1.2.3", Err(ValueError::Format)),
            ("1e5", Err(ValueError::Format)),
            ("12,5", Err(ValueError::Format)),
            ("1234567.", Ok(123_456_700_000_000)),
            (".1234567", Ok(12_345_670)),
        ];
        for (input, expected) in cases {
            assert_eq!(read_decimal::<8>(input.as_bytes()), expected, "{input}");
        }
    }

    #[test]
    fn times_of_every_precision_are_read() {
        let second_ns = 1_709_285_400 * SECOND_NS;
        for (input, expected) in [
            ("20240301-09:30:00", Ok(second_ns)),
            ("20240301-09:30:00.123", Ok(second_ns + 123_000_000)),
            ("20240301-09:30:00.123456", Ok(second_ns + 123_456_000)),
            ("20240301-09:30:00.123456789", Ok(second_ns + 123_456_789)),
            ("20240229-23:59:60", Ok(1_709_251_200 * SECOND_NS)),
            ("20230229-00:00:00", Err(ValueError::Format)),
            ("20240431-00:00:00", Err(ValueError::Format)),
            ("20241301-00:00:00", Err(ValueError::Format)),
            ("20240001-00:00:00", Err(ValueError::Format)),
            ("20240301-24:00:00", Err(ValueError::Format)),
            ("20240301-09:60:00", Err(ValueError::Format)),
            ("20240301 09:30:00", Err(ValueError::Format)),
            ("20240301-09:30:00.1", Err(ValueError::Format)),
            ("20240301-09:30:00,123", Err(ValueError::Format)),
            ("20240301-9:30:00", Err(ValueError::Format)),
            ("19691231-23:59:59", Err(ValueError::OutOfRange)),
            ("25540101-00:00:00", Err(ValueError::OutOfRange)),
            ("", Err(ValueError::Empty)),
        ] {
            assert_eq!(read_timestamp(input.as_bytes()), expected, "{input}");
        }
    }

    #[test]
    fn the_last_day_that_is_written_is_the_last_that_is_read() {
        assert_eq!(text(|target| write_date(target, 213_301)), "25531231");
        assert_eq!(read_date(b"25531231"), Ok(213_301));
        assert_eq!(write_date(&mut [0; 8], 213_302), None);
    }

    #[test]
    fn every_day_is_written_and_read() {
        for days in 0..=213_301 {
            let written = text(|target| write_date(target, days));
            assert_eq!(read_date(written.as_bytes()), Ok(days), "{written}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_no_time() {
        for byte in [0, 1, b'0', 0xff] {
            assert!(timestamp_at(&[byte; 64], 0, &mut LastTimestamp::default()).is_err(), "{byte}");
        }
    }

    #[test]
    fn numbers_and_decimals_of_few_digits_are_written_as_others() {
        for number in 0..10_000 {
            let (text, bits) = short_number_text(number);
            let expected = format!("{number}\x01");
            assert_eq!(text.to_le_bytes()[..expected.len()], *expected.as_bytes());
            assert_eq!(bits as usize / 8 + 1, expected.len());
        }
        for (whole, fraction) in
            [(0, 1), (7, 10), (12, 2_500), (123, 9_999), (9_999, 100), (10, 1_234), (5, 5_000)]
        {
            let (digits, bits, rest, rest_bits) = short_decimal_text(whole, fraction * 10_000).unwrap();
            let text = format!("{whole}.{fraction:04}");
            let text = text.trim_end_matches('0');
            let mut written = digits.to_le_bytes()[..bits as usize / 8].to_vec();
            written.extend_from_slice(&rest.to_le_bytes()[..rest_bits as usize / 8]);
            assert_eq!(written, text.as_bytes());
        }
        for (whole, fraction) in [(10_000, 10_000), (1, 0), (1, 9_999), (1, 12_345)] {
            assert_eq!(short_decimal_text(whole, fraction), None);
        }
    }

    #[test]
    fn flags_and_characters_are_one_byte() {
        assert_eq!(read_flag(b"Y"), Ok(true));
        assert_eq!(read_flag(b"N"), Ok(false));
        assert_eq!(read_flag(b"y"), Err(ValueError::Format));
        assert_eq!(read_character(b"1"), Ok(b'1'));
        assert_eq!(read_character(b"10"), Err(ValueError::Format));
        assert_eq!(read_character(b""), Err(ValueError::Empty));
    }

    #[test]
    fn the_last_eight_digits_are_written_right() {
        for number in [0, 1, 9, 10, 99, 100, 9_999, 10_000, 12_345_678, 99_999_999] {
            assert_eq!(text_of_eight(number).to_le_bytes(), format!("{number:08}").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_written(number in prop_oneof![any::<u64>(), 0..1_000_000_000u64, 0..100u64]) {
            let written = text(|target| write_unsigned(target, number));
            prop_assert_eq!(&written, &number.to_string());
            prop_assert_eq!(read_unsigned(written.as_bytes()), Ok(number));
            let signed = number as i64;
            let written = text(|target| write_signed(target, signed));
            prop_assert_eq!(&written, &signed.to_string());
            prop_assert_eq!(read_signed(written.as_bytes()), Ok(signed));
        }

        #[test]
        fn decimals_are_read_as_written(value in prop_oneof![any::<i64>(), -10_000_000_000..10_000_000_000i64]) {
            let written = text(|target| write_decimal::<8>(target, value));
            prop_assert_eq!(read_decimal::<8>(written.as_bytes()), Ok(value));
            let written = text(|target| write_decimal::<10>(target, value));
            prop_assert_eq!(read_decimal::<10>(written.as_bytes()), Ok(value));
            let written = text(|target| write_decimal::<2>(target, value));
            prop_assert_eq!(read_decimal::<2>(written.as_bytes()), Ok(value));
        }

        #[test]
        fn the_fast_way_of_a_decimal_agrees_with_the_slow_one(input in "[-.0-9a+]{0,9}") {
            prop_assert_eq!(read_decimal::<8>(input.as_bytes()), long_decimal(input.as_bytes(), 0, input.len(), 8));
            prop_assert_eq!(read_decimal::<2>(input.as_bytes()), long_decimal(input.as_bytes(), 0, input.len(), 2));
            prop_assert_eq!(read_signed(input.as_bytes()), long_signed(input.as_bytes()));
            prop_assert_eq!(read_unsigned(input.as_bytes()), long_unsigned(input.as_bytes()));
        }

        #[test]
        fn times_are_read_as_written(time_ns in 0..=u64::MAX / DAY_NS * DAY_NS - 7 * 31 * DAY_NS) {
            for precision in [
                TimePrecision::Seconds, TimePrecision::Milliseconds, TimePrecision::Microseconds, TimePrecision::Nanoseconds,
            ] {
                let written = text(|target| write_timestamp(target, time_ns, precision));
                prop_assert_eq!(read_timestamp(written.as_bytes()), Ok(time_ns - time_ns % precision.unit_ns()));
                let time_ns = time_ns % DAY_NS;
                let written = text(|target| write_time(target, time_ns, precision));
                prop_assert_eq!(read_time(written.as_bytes()), Ok(time_ns - time_ns % precision.unit_ns()));
            }
            let days = (time_ns / DAY_NS) as u32;
            prop_assert_eq!(read_date(text(|target| write_date(target, days)).as_bytes()), Ok(days));
        }

        #[test]
        fn no_text_makes_a_reader_panic(input in prop::collection::vec(any::<u8>(), 0..32)) {
            let _checked = (read_unsigned(&input), read_signed(&input), read_decimal::<8>(&input));
            let _checked = (read_timestamp(&input), read_date(&input), read_time(&input), read_flag(&input));
        }

        #[test]
        fn a_value_is_read_from_its_start_as_from_both_ends(
            input in prop_oneof![
                "[0-9]{0,10}", "-?[0-9]{0,9}[.]?[0-9]{0,9}", "[-.0-9a-z]{0,12}", "[0-9.\u{81}-\u{ff}]{0,9}",
                "20[0-9]{2}[01][0-9][0-3][0-9]-[0-2][0-9]:[0-5][0-9]:[0-6][0-9]([.][0-9]{0,10})?",
                "[0-9:.-]{15,24}",
            ],
            before in "[ -~]{0,9}",
        ) {
            let start = before.len() as u32;
            let message = format!("{before}{input}\x0110=000\x01");
            let (bytes, text) = (message.as_bytes(), input.as_bytes());
            let end = start + input.len() as u32;
            let behind = |read: Result<(i64, u32), ValueError>| read.map(|(value, found)| { assert_eq!(found, end); value });
            prop_assert_eq!(behind(decimal_at::<8>(bytes, start)), long_decimal(text, 0, text.len(), 8));
            prop_assert_eq!(behind(decimal_at::<2>(bytes, start)), long_decimal(text, 0, text.len(), 2));
            prop_assert_eq!(behind(signed_at(bytes, start)), long_signed(text));
            let unsigned = unsigned_at(bytes, start).map(|(value, found)| { assert_eq!(found, end); value });
            prop_assert_eq!(unsigned, long_unsigned(text));
            let mut last = LastTimestamp::default();
            for _ in 0..2 {
                let time = timestamp_at(bytes, start, &mut last).map(|(value, found)| { assert_eq!(found, end); value });
                prop_assert_eq!(time, read_timestamp(text));
            }
        }

        #[test]
        fn times_that_share_a_second_or_a_day_are_read_as_others(
            times in prop::collection::vec((0..3 * DAY_NS, 0usize..4, prop::option::of((0usize..30, any::<u8>()))), 1..20)
        ) {
            use TimePrecision::{Microseconds, Milliseconds, Nanoseconds, Seconds};
            let mut last = LastTimestamp::NONE;
            for (time_ns, precision, changed) in times {
                for time_ns in [time_ns, time_ns ^ 0xfff_ffff] {
                    let mut text = [SOH; 64];
                    let precision = [Seconds, Milliseconds, Microseconds, Nanoseconds][precision];
                    put_timestamp(&mut text, time_ns, precision, &mut LastSecond::default());
                    let length = 17 + [0, 4, 7, 10][precision as usize];
                    text[length..].fill(SOH);
                    if let Some((place, byte)) = changed {
                        text[place] = byte;
                    }
                    let alone = timestamp_at(&text, 0, &mut LastTimestamp::default());
                    prop_assert_eq!(timestamp_at(&text, 0, &mut last), alone);
                    if changed.is_none() {
                        let unit = precision.unit_ns();
                        prop_assert_eq!(alone, Ok((time_ns / unit * unit, length as u32)));
                    }
                }
            }
        }

        #[test]
        fn times_that_share_a_second_or_a_day_are_written_as_others(times in prop::collection::vec(0..3 * DAY_NS, 1..20)) {
            let mut last = LastSecond::NONE;
            for time_ns in times.iter().flat_map(|time_ns| [*time_ns, time_ns + 7_000_000]) {
                let (mut kept, mut alone) = ([0; ROOM], [0; ROOM]);
                put_timestamp(&mut kept, time_ns, TimePrecision::Nanoseconds, &mut last);
                put_timestamp(&mut alone, time_ns, TimePrecision::Nanoseconds, &mut LastSecond::default());
                prop_assert_eq!(kept, alone);
                prop_assert_eq!(read_timestamp(&kept[..27]), Ok(time_ns));
            }
        }
    }
}
