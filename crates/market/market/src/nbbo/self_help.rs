//! Self-help: venues that the user excludes from the NBBO for a time.
//!
//! A trading center may bypass the quotes of another one that has a failure, a material delay or a malfunction of its
//! systems (17 CFR 242.611(b)(1)). It decides for itself which venues to bypass, so this is a setting: [`SelfHelp`]. A
//! [`SelfHelpSink`] emits the events that declare and revoke self-help when they are due; a program can also emit such
//! events itself ([`Event::of_self_help`]).
//!
//! Self-help excludes all feeds of the venue. Their books are still maintained, so that they are right afterwards.
//!
//! Cost: one compare of each event's time with the next change. At a change, the NBBO of every instrument is
//! recomputed.

use tapeworks_stage::Sink;
use tapeworks_time::Nanos;

use crate::event::Event;
use crate::venue::Publisher;

/// A period during which a venue is excluded from the NBBO.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SelfHelp {
    /// Any feed of the venue; the period applies to all of them.
    pub venue: Publisher,
    /// Start, as a receive time (inclusive).
    pub from: Nanos,
    /// End, as a receive time (exclusive); `None` for no end.
    pub until: Option<Nanos>,
}

/// Returns whether two feeds belong to the same venue.
pub(crate) fn are_of_one_venue(one: Publisher, other: Publisher) -> bool {
    one == other || one.feed().zip(other.feed()).is_some_and(|(one, other)| one.venue.id == other.venue.id)
}

/// The changes of self-help, in order of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelfHelpSchedule {
    /// Time, feed of the venue, and whether the venue is excluded from then on.
    changes: Vec<(Nanos, Publisher, bool)>,
    /// How many changes were emitted.
    done: usize,
    /// Time of the first change that was not emitted.
    next: Nanos,
}

impl Default for SelfHelpSchedule {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl SelfHelpSchedule {
    /// Creates the schedule of these periods. Periods of one venue that overlap or touch are merged.
    pub fn new(times: &[SelfHelp]) -> Self {
        let mut times: Vec<SelfHelp> =
            times.iter().copied().filter(|one| one.until.is_none_or(|until| one.from < until)).collect();
        times.sort_unstable_by_key(|one| (one.from, one.venue));
        let mut merged: Vec<SelfHelp> = Vec::new();
        for time in times {
            let last = merged.iter_mut().rev().find(|last| are_of_one_venue(last.venue, time.venue));
            match last {
                Some(last) if last.until.is_none_or(|until| time.from <= until) => {
                    last.until = last.until.zip(time.until).map(|(one, other)| one.max(other));
                }
                _ => merged.push(time),
            }
        }
        let begins = merged.iter().map(|one| (one.from, one.venue, true));
        let ends = merged.iter().filter_map(|one| Some((one.until?, one.venue, false)));
        let mut changes: Vec<_> = begins.chain(ends).collect();
        changes.sort_unstable();
        let mut schedule = Self { changes, done: 0, next: Nanos(0) };
        schedule.look_ahead();
        schedule
    }

    fn look_ahead(&mut self) {
        self.next = self.changes.get(self.done).map_or(Nanos(u64::MAX), |(time, ..)| *time);
    }

    /// Returns the time of the next change.
    #[inline]
    pub const fn next(&self) -> Nanos {
        self.next
    }

    /// Skips the changes up to `now`, which the restored state already includes.
    pub fn pass(&mut self, now: Nanos) {
        self.done = self.changes.partition_point(|(time, ..)| *time <= now);
        self.look_ahead();
    }

    /// Emits the changes due at `now`, which is the receive time of their events. The event time is the time of the
    /// change.
    #[cold]
    #[inline(never)]
    pub fn put_due<S: Sink<Event>>(&mut self, now: Nanos, sink: &mut S) {
        while let Some((time, venue, is_declared)) = self.changes.get(self.done).filter(|next| next.0 <= now)
        {
            let mut event = Event::of_self_help(*venue, *is_declared);
            (event.ts_event, event.ts_recv) = (*time, now);
            sink.put(event);
            self.done += 1;
        }
        self.look_ahead();
    }
}

/// Emits the changes of a schedule before the first event that is not earlier.
#[derive(Debug)]
pub struct SelfHelpSink<'s, S> {
    /// The schedule.
    pub schedule: &'s mut SelfHelpSchedule,
    /// The receiver of the events.
    pub sink: &'s mut S,
}

impl<S: Sink<Event>> Sink<Event> for SelfHelpSink<'_, S> {
    #[inline]
    fn put(&mut self, event: Event) {
        if event.ts_recv >= self.schedule.next {
            self.schedule.put_due(event.ts_recv, self.sink);
        }
        self.sink.put(event);
    }

    #[inline]
    fn end_of_batch(&mut self) {
        self.sink.end_of_batch();
    }

    #[inline]
    fn expect(&mut self, index: usize) {
        self.sink.expect(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventKind, InstrumentId};

    const NASDAQ: Publisher = Publisher::XNAS_ITCH;
    const TOPS: Publisher = Publisher::IEXG_TOPS;

    fn time(venue: Publisher, from: u64, until: Option<u64>) -> SelfHelp {
        SelfHelp { venue, from: Nanos(from), until: until.map(Nanos) }
    }

    /// Times, feeds and kinds of the changes emitted when events arrive at `times`.
    fn put(schedule: &mut SelfHelpSchedule, times: &[u64]) -> Vec<(u64, Publisher, Option<bool>)> {
        let mut events = Vec::new();
        for time in times {
            let mut event = Event::new(EventKind::Trade, NASDAQ, InstrumentId(0));
            (event.ts_event, event.ts_recv) = (Nanos(*time), Nanos(*time));
            let mut sink = |event: Event| {
                assert_eq!(event.ts_recv.0, *time);
                events.push((event.ts_event.0, event.publisher, event.self_help()));
            };
            SelfHelpSink { schedule, sink: &mut sink }.put(event);
        }
        events
    }

    #[test]
    fn a_change_comes_before_the_first_event_of_its_time_and_once() {
        let mut schedule = SelfHelpSchedule::new(&[time(TOPS, 5, Some(9)), time(NASDAQ, 7, None)]);
        let trade = |time| (time, NASDAQ, None);
        assert_eq!(
            put(&mut schedule, &[4, 5, 5, 20, 20]),
            [
                trade(4),
                (5, TOPS, Some(true)),
                trade(5),
                trade(5),
                (7, NASDAQ, Some(true)),
                (9, TOPS, Some(false)),
                trade(20),
                trade(20)
            ]
        );
    }

    #[test]
    fn a_schedule_goes_on_from_a_time() {
        let mut schedule = SelfHelpSchedule::new(&[time(TOPS, 5, Some(9))]);
        schedule.pass(Nanos(8));
        assert_eq!(put(&mut schedule, &[8, 9])[1], (9, TOPS, Some(false)));
        schedule.pass(Nanos(4));
        assert_eq!(put(&mut schedule, &[5])[0], (5, TOPS, Some(true)));
    }

    #[test]
    fn times_of_a_venue_that_overlap_are_one_and_empty_ones_none() {
        let deep = Publisher::IEXG_DEEP;
        for times in [
            [time(TOPS, 5, Some(9)), time(deep, 9, Some(12)), time(TOPS, 6, Some(7))],
            [time(TOPS, 5, Some(12)), time(deep, 6, Some(12)), time(deep, 20, Some(20))],
        ] {
            let changes = SelfHelpSchedule::new(&times).changes;
            assert_eq!(
                changes.iter().map(|(time, _, is)| (time.0, *is)).collect::<Vec<_>>(),
                [(5, true), (12, false)]
            );
        }
        let open = SelfHelpSchedule::new(&[time(TOPS, 5, None), time(TOPS, 6, Some(7))]);
        assert_eq!(open.changes, [(Nanos(5), TOPS, true)]);
    }
}
