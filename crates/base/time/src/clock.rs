//! The trading day, from midnight in New York, Chicago or London; times as text.
//!
//! ITCH sends times as nanoseconds since midnight of the exchange's day. The receive time of the packets determines the day; for
//! a file without receive times, its name or an option does. Time zone and daylight-saving rules are those of the IANA zone
//! `America/New_York`, never a fixed offset.

use std::fmt::Write as _;

use crate::Nanos;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// The zone of the US equity markets.
pub const ZONE: &str = "America/New_York";

/// Half a day in ns. On the right day, a time of day is at most this far from its receive time.
pub const HALF_A_DAY_NS: u64 = 12 * 3_600 * Nanos::SECOND;

/// The time zone in which a venue counts its day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// America/New_York.
    NewYork,
    /// America/Chicago.
    Chicago,
    /// Europe/London.
    London,
}

impl Zone {
    /// Returns the time zone; UTC if the zone data is missing, which the bundled database rules out.
    fn rules(self) -> TimeZone {
        let name = match self {
            Self::NewYork => ZONE,
            Self::Chicago => "America/Chicago",
            Self::London => "Europe/London",
        };
        TimeZone::get(name).unwrap_or(TimeZone::UTC)
    }

    fn midnight_of(self, date: Date) -> Option<Nanos> {
        let start = date.to_zoned(self.rules()).ok()?.timestamp();
        u64::try_from(start.as_nanosecond()).ok().map(Nanos)
    }

    fn date_at(self, time: Nanos) -> Option<Date> {
        let timestamp = Timestamp::from_nanosecond(i128::from(time.0)).ok()?;
        Some(timestamp.to_zoned(self.rules()).date())
    }

    /// Returns the midnight that started the day of a time of day: the day that places the time nearest to its receive time. A message is
    /// received some time after it was sent, or before if clocks differ.
    #[cold]
    #[inline(never)]
    pub fn nearest_midnight(self, since_midnight_ns: u64, received: Nanos) -> Option<Nanos> {
        let noon = received.0.saturating_sub(since_midnight_ns).saturating_add(HALF_A_DAY_NS);
        self.midnight_before(Nanos(noon))
    }

    /// Returns the midnight that started the day of `time` in this zone.
    pub fn midnight_before(self, time: Nanos) -> Option<Nanos> {
        self.midnight_of(self.date_at(time)?)
    }
}

/// Parses an instant: nanoseconds since 1970, or ISO 8601 with `Z`, an offset, or the name of a zone. A time without a zone is
/// rejected, because some readers would assume New York and some UTC.
pub fn instant(text: &str) -> Option<Nanos> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Nanos);
    }
    let timestamp =
        text.parse::<Timestamp>().or_else(|_| text.parse::<Zoned>().map(|zoned| zoned.timestamp()));
    u64::try_from(timestamp.ok()?.as_nanosecond()).ok().map(Nanos)
}

/// The forms that [`instant`] accepts.
pub const INSTANT_FORM: &str = "nanoseconds since 1970, or ISO 8601 with a zone: 2025-11-14T14:30:00Z, 2025-11-14T09:30-05:00 or \
                                2025-11-14T09:30[America/New_York]";

/// Returns the instant of midnight in New York at the start of `date`; `None` for dates before 1970 or beyond 2500.
pub fn midnight_of(date: Date) -> Option<Nanos> {
    Zone::NewYork.midnight_of(date)
}

/// Returns the date in New York at `time`.
pub fn date_at(time: Nanos) -> Option<Date> {
    Zone::NewYork.date_at(time)
}

/// Returns the midnight that started the New York day of `time`.
pub fn midnight_before(time: Nanos) -> Option<Nanos> {
    Zone::NewYork.midnight_before(time)
}

/// Returns the time of a message that has only nanoseconds within a second: the time nearest to its receive time.
#[cold]
#[inline(never)]
pub fn nearest(offset_ns: u64, received: Option<Nanos>) -> Nanos {
    let Some(received) = received else { return Nanos(offset_ns) };
    let half = Nanos::SECOND / 2;
    let second = (received.0.saturating_add(half).saturating_sub(offset_ns)) / Nanos::SECOND;
    Nanos(second.saturating_mul(Nanos::SECOND).saturating_add(offset_ns))
}

/// Returns the day after `date`, for ranges that exclude their end.
pub fn day_after(date: Date) -> Option<Date> {
    date.checked_add(1.day()).ok()
}

/// Finds a date in the forms that people and Nasdaq's files use: `2025-11-14`, `20251114` or `11142025`, anywhere in `text` as a
/// word of digits. The last form occurs in `11142025.NASDAQ_ITCH50.gz`; `S111425` occurs in `S111425-v50.txt.gz`.
pub fn date_in(text: &str) -> Option<Date> {
    let iso = |word: &str| word.parse::<Date>().ok();
    if let Some(date) = (0..text.len()).find_map(|start| text.get(start..start + 10).and_then(iso)) {
        return Some(date);
    }
    let mut rest = text;
    std::iter::from_fn(|| {
        rest = rest.get(rest.find(|c: char| c.is_ascii_digit())?..)?;
        let before = text.get(..text.len() - rest.len())?;
        let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at_checked(length)?;
        rest = after;
        Some((before, digits))
    })
    .find_map(|(before, digits)| {
        let number = |from: usize, to: usize| digits.get(from..to)?.parse::<i16>().ok();
        let date = |year: i16, month: i16, day: i16| {
            let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
            (1990..2100).contains(&year).then_some(date)
        };
        match digits.len() {
            8 => date(number(0, 4)?, number(4, 6)?, number(6, 8)?)
                .or_else(|| date(number(4, 8)?, number(0, 2)?, number(2, 4)?)),
            // Other six-digit numbers may be times of day. ITCH 5.0 dates from 2014, so early years are rejected.
            6 if before.strip_suffix('S').is_some_and(|start| !start.ends_with(char::is_alphanumeric)) => {
                date(2000 + number(4, 6)?, number(0, 2)?, number(2, 4)?).filter(|date| date.year() >= 2010)
            }
            _ => None,
        }
    })
}

/// Appends the time in UTC as ISO 8601, always with nine places: `2025-11-14T14:30:00.000000001Z`.
pub fn iso_time(out: &mut String, time: Nanos) {
    let written = match Timestamp::from_nanosecond(i128::from(time.0)) {
        Ok(timestamp) => write!(out, "{timestamp:.9}"),
        // Beyond the year 9999, which 64 bits of nanoseconds do not reach.
        Err(_) => write!(out, "{} ns", time.0),
    };
    debug_assert!(written.is_ok(), "writing to a string");
}

/// Returns the time as [`iso_time`] writes it.
#[must_use]
pub fn iso(time: Nanos) -> String {
    let mut text = String::new();
    iso_time(&mut text, time);
    text
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    const HOUR: u64 = 3600 * Nanos::SECOND;

    #[test]
    fn midnight_is_new_yorks_in_winter_and_in_summer() {
        // 2025-11-14 00:00 EST is 05:00 UTC; 2025-07-14 00:00 EDT is 04:00 UTC.
        assert_eq!(midnight_of(date(2025, 11, 14)).unwrap().0, 1_763_096_400 * Nanos::SECOND);
        assert_eq!(midnight_of(date(2025, 7, 14)).unwrap().0, 1_752_465_600 * Nanos::SECOND);
    }

    #[test]
    fn midnight_in_london_is_utcs_in_winter_and_an_hour_earlier_in_summer() {
        // 2025-11-14 10:00 and 2025-07-14 10:00 UTC.
        let before = |hours, midnight| {
            let at = Nanos(hours * HOUR);
            assert_eq!(Zone::London.midnight_before(at), Some(Nanos(midnight * HOUR)));
        };
        before(489_754, 489_744);
        before(486_802, 486_791);
        // 23:00 UTC on a summer day is London's next midnight.
        before(486_815, 486_815);
    }

    #[test]
    fn days_on_which_the_clock_changes_have_23_and_25_hours() {
        let length = |day| midnight_of(day_after(day).unwrap()).unwrap().since(midnight_of(day).unwrap());
        assert_eq!(length(date(2025, 3, 9)), 23 * HOUR);
        assert_eq!(length(date(2025, 11, 2)), 25 * HOUR);
        assert_eq!(length(date(2025, 11, 3)), 24 * HOUR);
    }

    #[test]
    fn an_evening_in_new_york_belongs_to_its_own_day() {
        // 2025-11-15 02:00 UTC is 21:00 on the 14th in New York.
        let evening = Nanos(1_763_172_000 * Nanos::SECOND);
        assert_eq!(date_at(evening), Some(date(2025, 11, 14)));
        assert_eq!(midnight_before(evening), midnight_of(date(2025, 11, 14)));
    }

    #[test]
    fn dates_are_found_in_the_names_of_files() {
        for name in
            ["11142025.NASDAQ_ITCH50.gz", "S111425-v50.txt.gz", "itch-2025-11-14.bin", "x_20251114_y.itch"]
        {
            assert_eq!(date_in(name), Some(date(2025, 11, 14)), "{name}");
        }
        assert_eq!(date_in("NASDAQ_ITCH50"), None);
        assert_eq!(date_in("99999999"), None);
        for time_of_day in ["capture_093000.itch", "TRADES093025.itch", "capture_S093000.itch"] {
            assert_eq!(date_in(time_of_day), None, "{time_of_day}");
        }
        assert_eq!(date_in("börse_S010225.itch"), Some(date(2025, 1, 2)));
    }

    #[test]
    fn a_time_has_always_nine_places() {
        let mut text = String::new();
        iso_time(&mut text, Nanos(1_763_130_600_000_000_000));
        assert_eq!(text, "2025-11-14T14:30:00.000000000Z");
    }
}
