//! The regular trading hours of the US equity markets by date.
//!
//! Source: "Holidays & Trading Hours" of NYSE, which Nasdaq, Cboe, IEX and MEMX follow. Holidays are computed from the rules of
//! NYSE Rule 7.2; days of mourning and storms are listed by date. Every day from 2005 to 2028 agrees with the calendar `XNYS` of
//! exchange_calendars 4.13.2; the tests include the years from 2018 on. Earlier years follow the same rules and are not verified.
//!
//! Cost: a few divisions per date; callers keep the answer for the day.

use std::ops::Range;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use tapeworks_time::Nanos;

use tapeworks_time::clock;

const MINUTE: u64 = 60 * Nanos::SECOND;

/// 9:30, from midnight in New York.
const OPEN: u64 = 570 * MINUTE;

/// 16:00.
const CLOSE: u64 = 960 * MINUTE;

/// 13:00.
const EARLY_CLOSE: u64 = 780 * MINUTE;

/// Days on which the markets were closed for a reason other than a yearly holiday.
const SPECIAL_CLOSINGS: [(i16, i8, i8); 5] = [
    // A day of mourning for president Gerald Ford.
    (2007, 1, 2),
    // Hurricane Sandy.
    (2012, 10, 29),
    (2012, 10, 30),
    // Days of mourning for presidents George H. W. Bush and Jimmy Carter.
    (2018, 12, 5),
    (2025, 1, 9),
];

/// The first year in which Juneteenth is a holiday of the markets.
const JUNETEENTH_FROM: i16 = 2022;

/// Whether, and until when, the markets trade on a day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Day {
    Full,
    /// Until 13:00.
    Short,
    Closed,
}

/// Returns the regular hours of a day in New York, or `None` if the markets are closed on that day.
#[must_use]
pub fn regular_hours(date: Date) -> Option<Range<Nanos>> {
    let close = match day_of(date) {
        Day::Full => CLOSE,
        Day::Short => EARLY_CLOSE,
        Day::Closed => return None,
    };
    // Clocks change on Sundays, so every trading day has 24 hours.
    let midnight = clock::midnight_of(date)?.0;
    Some(Nanos(midnight.checked_add(OPEN)?)..Nanos(midnight.checked_add(close)?))
}

/// Returns midnight in New York of each trading day after the day of this instant.
pub fn trading_days_after(instant: Nanos) -> impl Iterator<Item = Nanos> {
    let next = |date: &Date| clock::day_after(*date);
    let days = std::iter::successors(clock::date_at(instant).as_ref().and_then(next), next);
    days.filter(|date| regular_hours(*date).is_some()).filter_map(clock::midnight_of)
}

fn day_of(date: Date) -> Day {
    if is_weekend(date) || is_holiday(date) {
        return Day::Closed;
    }
    let is_short = match (date.month(), date.day()) {
        // The day before Independence Day, if neither is a weekend or a holiday.
        (7, 3) => date.weekday() != Weekday::Friday,
        // The day before Christmas, likewise: it is closed if Christmas is a Saturday.
        (12, 24) => true,
        // The Friday after Thanksgiving.
        (11, day) => date.weekday() == Weekday::Friday && (23..=29).contains(&day),
        _ => false,
    };
    if is_short { Day::Short } else { Day::Full }
}

fn is_weekend(date: Date) -> bool {
    matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday)
}

/// Returns whether the market is closed on a weekday: for a holiday, or in place of one that falls on a weekend.
fn is_holiday(date: Date) -> bool {
    let (year, month, day, weekday) = (date.year(), date.month(), date.day(), date.weekday());
    // Ordinal of this weekday within the month, from 1.
    let nth = (day + 6) / 7;
    let yearly = match (month, weekday) {
        // Martin Luther King, Jr. Day and Washington's Birthday.
        (1 | 2, Weekday::Monday) if nth == 3 => true,
        // Memorial Day: the last Monday.
        (5, Weekday::Monday) if day > 24 => true,
        // Labor Day.
        (9, Weekday::Monday) if nth == 1 => true,
        // Thanksgiving.
        (11, Weekday::Thursday) if nth == 4 => true,
        _ => false,
    };
    let fixed = match (month, day) {
        // New Year's Day is not observed if it is a Saturday: the year's last Friday is a trading day.
        (1, 1) => true,
        (1, 2) => weekday == Weekday::Monday,
        (6, 18..=20) => year >= JUNETEENTH_FROM && is_observed(date, 19),
        (7, 3..=5) => is_observed(date, 4),
        (12, 24..=26) => is_observed(date, 25),
        _ => false,
    };
    yearly || fixed || Some(date) == good_friday(year) || SPECIAL_CLOSINGS.contains(&(year, month, day))
}

/// Returns whether a holiday on this day of the month is observed on a weekday: on the Friday before a Saturday, or the Monday
/// after a Sunday.
fn is_observed(date: Date, holiday: i8) -> bool {
    match date.day() - holiday {
        0 => true,
        -1 => date.weekday() == Weekday::Friday,
        1 => date.weekday() == Weekday::Monday,
        _ => false,
    }
}

/// Returns Good Friday, two days before Easter (the anonymous Gregorian computus).
fn good_friday(year: i16) -> Option<Date> {
    let of_year = i32::from(year);
    let (golden, century, rest) = (of_year % 19, of_year / 100, of_year % 100);
    let moon_correction = (century - (century + 8) / 25 + 1) / 3;
    let epact = (19 * golden + century - century / 4 - moon_correction + 15) % 30;
    let to_sunday = (32 + 2 * (century % 4) + 2 * (rest / 4) - epact - rest % 4) % 7;
    let late = (golden + 11 * epact + 22 * to_sunday) / 451;
    let days = epact + to_sunday - 7 * late + 114;
    let easter = Date::new(year, i8::try_from(days / 31).ok()?, i8::try_from(days % 31 + 1).ok()?).ok()?;
    easter.checked_sub(2.days()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Days = &'static [(i8, i8)];

    /// By year: closed weekdays, then days that end at 13:00, as month and day. From exchange_calendars 4.13.2, `XNYS`.
    const PUBLISHED: [(i16, Days, Days); 11] = [
        (
            2018,
            &[(1, 1), (1, 15), (2, 19), (3, 30), (5, 28), (7, 4), (9, 3), (11, 22), (12, 5), (12, 25)],
            &[(7, 3), (11, 23), (12, 24)],
        ),
        (
            2019,
            &[(1, 1), (1, 21), (2, 18), (4, 19), (5, 27), (7, 4), (9, 2), (11, 28), (12, 25)],
            &[(7, 3), (11, 29), (12, 24)],
        ),
        (
            2020,
            &[(1, 1), (1, 20), (2, 17), (4, 10), (5, 25), (7, 3), (9, 7), (11, 26), (12, 25)],
            &[(11, 27), (12, 24)],
        ),
        (2021, &[(1, 1), (1, 18), (2, 15), (4, 2), (5, 31), (7, 5), (9, 6), (11, 25), (12, 24)], &[(11, 26)]),
        (
            2022,
            &[(1, 17), (2, 21), (4, 15), (5, 30), (6, 20), (7, 4), (9, 5), (11, 24), (12, 26)],
            &[(11, 25)],
        ),
        (
            2023,
            &[(1, 2), (1, 16), (2, 20), (4, 7), (5, 29), (6, 19), (7, 4), (9, 4), (11, 23), (12, 25)],
            &[(7, 3), (11, 24)],
        ),
        (
            2024,
            &[(1, 1), (1, 15), (2, 19), (3, 29), (5, 27), (6, 19), (7, 4), (9, 2), (11, 28), (12, 25)],
            &[(7, 3), (11, 29), (12, 24)],
        ),
        (
            2025,
            &[
                (1, 1),
                (1, 9),
                (1, 20),
                (2, 17),
                (4, 18),
                (5, 26),
                (6, 19),
                (7, 4),
                (9, 1),
                (11, 27),
                (12, 25),
            ],
            &[(7, 3), (11, 28), (12, 24)],
        ),
        (
            2026,
            &[(1, 1), (1, 19), (2, 16), (4, 3), (5, 25), (6, 19), (7, 3), (9, 7), (11, 26), (12, 25)],
            &[(11, 27), (12, 24)],
        ),
        (
            2027,
            &[(1, 1), (1, 18), (2, 15), (3, 26), (5, 31), (6, 18), (7, 5), (9, 6), (11, 25), (12, 24)],
            &[(11, 26)],
        ),
        (
            2028,
            &[(1, 17), (2, 21), (4, 14), (5, 29), (6, 19), (7, 4), (9, 4), (11, 23), (12, 25)],
            &[(7, 3), (11, 24)],
        ),
    ];

    #[test]
    fn every_day_from_2018_to_2028_is_as_published() {
        for (year, closed, short) in PUBLISHED {
            let mut date = Date::new(year, 1, 1).unwrap();
            while date.year() == year {
                let day = (date.month(), date.day());
                let expected = if is_weekend(date) || closed.contains(&day) {
                    Day::Closed
                } else if short.contains(&day) {
                    Day::Short
                } else {
                    Day::Full
                };
                assert_eq!(day_of(date), expected, "{date}");
                date = date.checked_add(1.day()).unwrap();
            }
        }
    }

    #[test]
    fn hours_are_new_yorks_in_winter_and_summer_and_end_early_before_holidays() {
        let hours = |text: &str| regular_hours(text.parse().unwrap());
        let span = |from: &str, to: &str| Some(clock::instant(from).unwrap()..clock::instant(to).unwrap());
        assert_eq!(hours("2025-11-14"), span("2025-11-14T14:30:00Z", "2025-11-14T21:00:00Z"));
        assert_eq!(hours("2025-07-14"), span("2025-07-14T13:30:00Z", "2025-07-14T20:00:00Z"));
        assert_eq!(hours("2025-07-03"), span("2025-07-03T13:30:00Z", "2025-07-03T17:00:00Z"));
        assert_eq!(hours("2025-11-28"), span("2025-11-28T14:30:00Z", "2025-11-28T18:00:00Z"));
        assert_eq!([hours("2025-07-04"), hours("2025-11-15")], [None, None]);
        assert_eq!(hours("2007-01-02"), None, "a day of mourning");
    }

    #[test]
    fn no_year_panics() {
        for year in -9_999..=9_999 {
            for (month, day) in [(1, 1), (4, 15), (12, 31)] {
                let _ = regular_hours(Date::new(year, month, day).unwrap());
            }
        }
    }
}
