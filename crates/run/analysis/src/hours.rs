//! Determines whether a trade is within regular hours.
//!
//! The most specific source decides: the trade's own condition (IEX, NYSE), then its feed's session messages (ITCH, IEX, MEMX), then
//! the [calendar](tapeworks_feed::calendar) of the US equity markets. London's venues have no other hours.
//!
//! Cost: for a trade without a condition, a search among the feeds and two comparisons; a date computation once per day.

use std::collections::BTreeMap;
use std::ops::Range;

use tapeworks_feed::calendar;
use tapeworks_market::event::Session;
use tapeworks_market::{Event, EventKind, Publisher};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

/// The session messages of a feed on one day.
#[derive(Clone, Copy, Default, Debug)]
struct Announced {
    /// Midnight in New York before the first of them.
    midnight: Nanos,
    /// Whether the feed announced its day and nothing has been missing since.
    is_begun: bool,
    /// The start of market hours.
    opened: Option<Nanos>,
    /// The end of market hours.
    closed: Option<Nanos>,
}

impl Announced {
    fn note(&mut self, session: Session, time: Nanos) {
        match session {
            Session::StartOfMessages | Session::StartOfSystemHours => self.is_begun = true,
            // Several channels of a feed open one after the other; a session that opens after its end is a new one.
            Session::StartOfMarketHours
                if self.opened.is_none() || self.closed.is_some_and(|closed| time > closed) =>
            {
                (self.opened, self.closed) = (Some(time), None);
            }
            Session::EndOfMarketHours => self.closed = self.closed.max(Some(time)),
            _ => {}
        }
    }

    /// Whether `time` is within market hours; the calendar decides what the messages leave open.
    fn is_regular(&self, time: Nanos, usual: Option<&Range<Nanos>>) -> bool {
        let has_opened = match self.opened {
            Some(opened) => time >= opened,
            None => !self.is_begun && usual.is_some_and(|usual| time >= usual.start),
        };
        let has_closed = match (self.closed, usual) {
            (Some(closed), _) => time >= closed,
            // A lost message does not extend the day, but a session that began after the usual close continues.
            (None, Some(usual)) => time >= usual.end && self.opened.is_none_or(|opened| opened < usual.end),
            (None, None) => self.opened.is_none(),
        };
        has_opened && !has_closed
    }
}

/// The hours of all feeds of an input.
#[derive(Clone, Default, Debug)]
pub(crate) struct VenueHours {
    feeds: BTreeMap<Publisher, Announced>,
    /// The New York day of the last time queried.
    day: Range<Nanos>,
    /// Its regular hours by the calendar.
    usual: Option<Range<Nanos>>,
}

impl VenueHours {
    /// Takes an event other than a trade: session messages and gaps.
    #[inline]
    pub(crate) fn note(&mut self, event: &Event) {
        if matches!(event.kind, EventKind::Session | EventKind::Gap) {
            self.note_session(event);
        }
    }

    #[cold]
    fn note_session(&mut self, event: &Event) {
        let Some(session) = event.session() else {
            if !event.is_contradiction()
                && let Some(announced) = self.feeds.get_mut(&event.publisher)
            {
                // The start of market hours may be among the missing messages.
                announced.is_begun = false;
            }
            return;
        };
        self.turn_to(event.ts_event);
        let midnight = self.day.start;
        let announced = self.feeds.entry(event.publisher).or_default();
        if announced.midnight != midnight {
            *announced = Announced { midnight, ..Announced::default() };
        }
        announced.note(session, event.ts_event);
    }

    /// Whether a trade is within regular hours.
    pub(crate) fn is_regular(&mut self, trade: &Event) -> bool {
        if let Some(is_regular) = trade.stated_hours() {
            return is_regular;
        }
        if trade.publisher == Publisher::XLON_MITCH {
            return true;
        }
        self.turn_to(trade.ts_event);
        let announced =
            self.feeds.get(&trade.publisher).filter(|announced| announced.midnight == self.day.start);
        announced.copied().unwrap_or_default().is_regular(trade.ts_event, self.usual.as_ref())
    }

    /// Makes the day that contains `time` current.
    fn turn_to(&mut self, time: Nanos) {
        if self.day.contains(&time) {
            return;
        }
        let date = clock::date_at(time);
        let end = date.and_then(clock::day_after).and_then(clock::midnight_of);
        let day = date.and_then(clock::midnight_of).zip(end);
        self.day = day.map_or(Nanos(0)..Nanos(0), |(start, end)| start..end);
        self.usual = date.and_then(calendar::regular_hours);
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::InstrumentId;
    use tapeworks_market::event::Gap;

    use super::*;

    const ITCH: Publisher = Publisher::XNAS_ITCH;

    fn at(text: &str) -> Nanos {
        clock::instant(text).unwrap()
    }

    fn trade(time: &str) -> Event {
        Event { ts_event: at(time), ..Event::new(EventKind::Trade, ITCH, InstrumentId(0)) }
    }

    fn session(session: Session, time: &str) -> Event {
        let event = Event::new(EventKind::Session, ITCH, InstrumentId::ALL);
        Event { ts_event: at(time), ..event.with_session(session) }
    }

    fn after(events: &[Event]) -> VenueHours {
        let mut hours = VenueHours::default();
        events.iter().for_each(|event| hours.note(event));
        hours
    }

    #[test]
    fn a_silent_venue_follows_the_calendar() {
        let mut hours = VenueHours::default();
        for (time, is_regular) in [
            ("2025-11-14T14:29:59.999999999Z", false),
            ("2025-11-14T14:30:00Z", true),
            ("2025-11-14T20:59:59.999999999Z", true),
            ("2025-11-14T21:00:00Z", false),
            // The Friday after Thanksgiving closes at 13:00, and Thanksgiving has no hours.
            ("2025-11-28T17:59:59Z", true),
            ("2025-11-28T18:00:00Z", false),
            ("2025-11-27T16:00:00Z", false),
            ("2025-11-15T16:00:00Z", false),
        ] {
            assert_eq!(hours.is_regular(&trade(time)), is_regular, "{time}");
        }
        assert!(!hours.is_regular(&Event::new(EventKind::Trade, ITCH, InstrumentId(0))), "1970");
    }

    #[test]
    fn a_trades_own_condition_decides_before_anything_else() {
        let mut hours = after(&[session(Session::StartOfMarketHours, "2025-11-14T14:30:00Z")]);
        let with = |time, detail| Event { detail, ..trade(time) };
        assert!(!hours.is_regular(&with("2025-11-14T15:00:00Z", Event::EXTENDED_HOURS)));
        assert!(hours.is_regular(&with("2025-11-14T12:00:00Z", Event::REGULAR_HOURS)));
    }

    #[test]
    fn session_messages_decide_before_the_calendar() {
        let of_test = [
            session(Session::StartOfSystemHours, "2025-11-14T15:00:00Z"),
            session(Session::StartOfMarketHours, "2025-11-14T15:10:00Z"),
            session(Session::EndOfMarketHours, "2025-11-14T15:20:00Z"),
        ];
        let (before, within, beyond) =
            (trade("2025-11-14T15:05:00Z"), trade("2025-11-14T15:15:00Z"), trade("2025-11-14T15:25:00Z"));
        let mut hours = VenueHours::default();
        hours.note(&of_test[0]);
        assert!(!hours.is_regular(&before), "system hours began, market hours did not");
        hours.note(&of_test[1]);
        assert!(hours.is_regular(&within) && hours.is_regular(&beyond));
        hours.note(&of_test[2]);
        assert_eq!([before, within, beyond].map(|trade| hours.is_regular(&trade)), [false, true, false]);
        // Another feed and another day are unaffected.
        let other = Event { publisher: Publisher::BATS_PITCH, ..before };
        assert!(hours.is_regular(&other) && hours.is_regular(&trade("2025-11-13T15:25:00Z")));
        // A session on a Saturday, and one after the usual close.
        let mut hours = after(&[session(Session::StartOfMarketHours, "2025-11-15T15:00:00Z")]);
        assert!(hours.is_regular(&trade("2025-11-15T23:00:00Z")));
        let mut hours = after(&[session(Session::StartOfMarketHours, "2025-11-14T22:00:00Z")]);
        assert!(hours.is_regular(&trade("2025-11-14T23:00:00Z")));
    }

    #[test]
    fn a_lost_session_message_leaves_the_calendar_to_decide() {
        let begun = session(Session::StartOfSystemHours, "2025-11-14T09:00:00Z");
        let gap = Event::new(EventKind::Gap, ITCH, InstrumentId::ALL).with_gap(Gap { first: 1, count: 1 });
        assert!(!after(&[begun]).is_regular(&trade("2025-11-14T15:00:00Z")));
        assert!(!after(&[begun, gap.with_contradiction()]).is_regular(&trade("2025-11-14T15:00:00Z")));
        assert!(after(&[begun, gap]).is_regular(&trade("2025-11-14T15:00:00Z")));
        let mut open = after(&[session(Session::StartOfMarketHours, "2025-11-14T14:30:00Z")]);
        assert!(!open.is_regular(&trade("2025-11-14T21:30:00Z")), "the end of market hours was lost");
        let mut closed = after(&[session(Session::EndOfMarketHours, "2025-11-14T18:00:00Z")]);
        let of = ["2025-11-14T14:00:00Z", "2025-11-14T17:00:00Z", "2025-11-14T19:00:00Z"];
        assert_eq!(of.map(|time| closed.is_regular(&trade(time))), [false, true, false]);
    }

    #[test]
    fn channels_that_open_one_after_the_other_are_one_session_and_a_second_run_is_another() {
        let mut hours = after(&[
            session(Session::StartOfMarketHours, "2025-11-14T14:30:00Z"),
            session(Session::StartOfMarketHours, "2025-11-14T14:30:01Z"),
            session(Session::EndOfMarketHours, "2025-11-14T18:00:00Z"),
            session(Session::EndOfMarketHours, "2025-11-14T18:00:01Z"),
        ]);
        let of = ["2025-11-14T14:30:00Z", "2025-11-14T18:00:00.5Z", "2025-11-14T19:30:00Z"].map(trade);
        assert_eq!(of.map(|trade| hours.is_regular(&trade)), [true, true, false]);
        hours.note(&session(Session::StartOfMarketHours, "2025-11-14T19:00:00Z"));
        assert!(hours.is_regular(&of[2]));
    }
}
