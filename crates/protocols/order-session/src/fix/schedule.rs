//! The hours of a session: from one time to another in a time zone, daily or once a week.
//!
//! A session that runs past midnight ends on the next day. Both sequence numbers start at 1 with a new session: if the
//! store was last reset before the current session began, the next Logon resets it. Nothing here reads a clock.

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// The hours of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    zone: TimeZone,
    start: Time,
    end: Time,
    /// First and last day of a session that runs for several days of a week.
    days: Option<(Weekday, Weekday)>,
}

/// A schedule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The time zone is unknown.
    #[error("the time zone '{0}' is not known")]
    Zone(String),
    /// The time is not in the form `HH:MM:SS`.
    #[error("'{0}' is not a time of day, as 17:30:00 is")]
    Time(String),
    /// The day is not a day of the week.
    #[error("'{0}' is not a day of the week, as sunday is")]
    Day(String),
}

/// Parses an English day name, ignoring case.
fn weekday(name: &str) -> Result<Weekday, ScheduleError> {
    match name.to_ascii_lowercase().as_str() {
        "monday" => Ok(Weekday::Monday),
        "tuesday" => Ok(Weekday::Tuesday),
        "wednesday" => Ok(Weekday::Wednesday),
        "thursday" => Ok(Weekday::Thursday),
        "friday" => Ok(Weekday::Friday),
        "saturday" => Ok(Weekday::Saturday),
        "sunday" => Ok(Weekday::Sunday),
        _ => Err(ScheduleError::Day(name.to_owned())),
    }
}

impl Schedule {
    /// Creates a session that runs daily from `start` to `end` (`HH:MM:SS`) in `zone` (`Europe/London`).
    ///
    /// If the end is not after the start, it is on the next day.
    ///
    /// # Errors
    /// The zone is unknown, or a time is invalid.
    pub fn daily(zone: &str, start: &str, end: &str) -> Result<Self, ScheduleError> {
        let time = |text: &str| text.parse::<Time>().map_err(|_| ScheduleError::Time(text.to_owned()));
        let zone = TimeZone::get(zone).map_err(|_| ScheduleError::Zone(zone.to_owned()))?;
        Ok(Self { zone, start: time(start)?, end: time(end)?, days: None })
    }

    /// Makes it one session a week, from the start on the first day to the end on the last: `sunday`, `friday`.
    ///
    /// # Errors
    /// A day is invalid.
    pub fn weekly(mut self, first: &str, last: &str) -> Result<Self, ScheduleError> {
        self.days = Some((weekday(first)?, weekday(last)?));
        Ok(self)
    }

    /// Returns when the session running at `now_ns` began, in UTC nanoseconds; `None` if none is running.
    #[must_use]
    pub fn began_ns(&self, now_ns: u64) -> Option<u64> {
        let now = Timestamp::from_nanosecond(i128::from(now_ns)).ok()?.to_zoned(self.zone.clone());
        // The latest start up to now, on this day or one of the seven before.
        let start = (0..8).find_map(|days| {
            let date = now.date().checked_sub(i64::from(days).days()).ok()?;
            let is_day = self.days.is_none_or(|(first, _)| date.weekday() == first);
            let start = is_day.then(|| self.at(date, self.start))??;
            (start <= now).then_some(start)
        })?;
        let days = match self.days {
            None => i64::from(self.end <= self.start),
            Some((first, last)) => {
                let days = i64::from(first.until(last));
                if days == 0 && self.end <= self.start { 7 } else { days }
            }
        };
        let end = self.at(start.date().checked_add(days.days()).ok()?, self.end)?;
        if now >= end {
            return None;
        }
        u64::try_from(start.timestamp().as_nanosecond()).ok()
    }

    fn at(&self, date: jiff::civil::Date, time: Time) -> Option<Zoned> {
        date.to_datetime(time).to_zoned(self.zone.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as u64
    }

    #[test]
    fn a_daily_session_runs_in_its_zone_through_the_change_of_the_clocks() {
        let schedule = Schedule::daily("Europe/London", "08:00:00", "16:30:00").unwrap();
        assert_eq!(schedule.began_ns(ns("2026-03-27T08:30:00Z")), Some(ns("2026-03-27T08:00:00Z")));
        assert_eq!(
            schedule.began_ns(ns("2026-03-30T07:30:00Z")),
            Some(ns("2026-03-30T07:00:00Z")),
            "summer time"
        );
        assert_eq!(schedule.began_ns(ns("2026-03-30T06:59:59Z")), None);
        assert_eq!(schedule.began_ns(ns("2026-03-30T15:30:00Z")), None);
    }

    #[test]
    fn a_session_over_midnight_ends_on_the_next_day() {
        let schedule = Schedule::daily("America/New_York", "17:00:00", "16:00:00").unwrap();
        let began = Some(ns("2026-11-23T22:00:00Z"));
        assert_eq!(schedule.began_ns(ns("2026-11-23T22:00:00Z")), began);
        assert_eq!(schedule.began_ns(ns("2026-11-24T20:59:59Z")), began);
        assert_eq!(schedule.began_ns(ns("2026-11-24T21:30:00Z")), None);
    }

    #[test]
    fn a_weekly_session_runs_from_its_first_day_to_its_last() {
        let schedule =
            Schedule::daily("UTC", "22:00:00", "21:00:00").unwrap().weekly("sunday", "Friday").unwrap();
        let began = Some(ns("2026-11-22T22:00:00Z"));
        assert_eq!(schedule.began_ns(ns("2026-11-22T22:00:00Z")), began);
        assert_eq!(schedule.began_ns(ns("2026-11-27T20:59:59Z")), began);
        assert_eq!(schedule.began_ns(ns("2026-11-27T21:00:00Z")), None);
        assert_eq!(schedule.began_ns(ns("2026-11-29T21:59:59Z")), None);
    }

    #[test]
    fn faulty_schedules_are_refused() {
        assert_eq!(
            Schedule::daily("Mars", "08:00:00", "09:00:00"),
            Err(ScheduleError::Zone("Mars".to_owned()))
        );
        assert_eq!(Schedule::daily("UTC", "8", "09:00:00"), Err(ScheduleError::Time("8".to_owned())));
        let daily = Schedule::daily("UTC", "08:00:00", "09:00:00").unwrap();
        assert_eq!(daily.weekly("sunday", "fryday"), Err(ScheduleError::Day("fryday".to_owned())));
    }
}
