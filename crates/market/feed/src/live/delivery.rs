//! Handles the arbiter's deliveries: passes packets to the feed, and emits which books are stale or cleared.

use std::collections::BTreeSet;

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Publisher};
use tapeworks_session::{Header, SessionId, Transport};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;

use super::LiveChannelOptions;
use super::catch_up::{Awaited, CatchUp, Since};
use crate::captured::ChannelIdentity;
use crate::feed::Feed;
use tapeworks_follow::arbitration::Delivery;

/// The session that a channel follows, and the state of its books.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Its index in the feed.
    pub(super) place: Option<usize>,
    /// The outstanding snapshot.
    pub(super) awaited: Option<Awaited>,
    /// The instruments of late messages, over the whole session. While messages are missing, any other instrument may be stale
    /// too.
    pub(super) affected: BTreeSet<(Publisher, InstrumentId)>,
    /// Whether books of the channel may be wrong.
    pub(super) is_stale: bool,
    /// Messages before this number may already be in books of the last snapshot, and count as part of it.
    pub(super) caught_up: u64,
    /// Gaps of the session that this channel emitted. The feed also counts unreadable messages.
    pub(super) known_gaps: u64,
}

impl Followed {
    /// Returns whether a message of the session could not be read since the books were last rebuilt.
    #[inline]
    pub(super) fn has_unreadable(&self, feed: &Feed) -> bool {
        self.place
            .and_then(|place| feed.channels().get(place))
            .is_some_and(|channel| channel.sequence().gaps != self.known_gaps)
    }
}

/// Returns the index in the feed of a session of a channel.
pub(super) fn place_of(
    feed: &mut Feed,
    number: u16,
    options: &LiveChannelOptions,
    session: SessionId,
    now: Nanos,
) -> usize {
    // A live channel's number stands in for the port.
    let identity = ChannelIdentity::Datagrams { session, port: number, run: 0 };
    let midnight = feed.midnight(Some(now));
    let place = feed.admit(identity, options.application, options.publisher, midnight);
    feed.channel_mut(place).number = number;
    place
}

/// The receiver of an arbiter's deliveries.
pub(super) struct Target<'t, S> {
    pub(super) feed: &'t mut Feed,
    pub(super) number: u16,
    pub(super) options: &'t LiveChannelOptions,
    pub(super) followed: &'t mut Followed,
    pub(super) sink: &'t mut S,
    /// Messages at the end of the last packet that could not be read.
    pub(super) unread: u64,
}

impl<S: Sink<Event>> Target<'_, S> {
    /// Processes a packet that the arbiter found to be next in sequence.
    #[inline]
    pub(super) fn next_packet<T: Transport>(
        &mut self,
        line: Line,
        received: Nanos,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        payload: &[u8],
    ) {
        match self.followed.place {
            Some(place)
                if self.followed.awaited.is_none() && read.header.first >= self.followed.caught_up =>
            {
                self.unread = self.feed.live::<T, S>(place, line, received, read, self.sink);
            }
            _ => self.deliver(Delivery::Packet { line, received, payload, header: read.header }),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn deliver(&mut self, delivery: Delivery<'_>) {
        match (delivery, self.followed.place) {
            (Delivery::Packet { line, received, payload, header }, Some(place)) => {
                if self.followed.awaited.is_some() {
                    self.remember(&header, received, payload);
                }
                if header.first < self.followed.caught_up {
                    return self.catch_up(place, line, received, payload);
                }
                self.unread = self.feed.held(place, line, received, payload, self.sink);
            }
            (other, place) => self.other(other, place),
        }
    }

    /// Processes a packet with messages that some books of the snapshot already include.
    #[cold]
    fn catch_up(&mut self, place: usize, line: Line, received: Nanos, payload: &[u8]) {
        let mut sink = CatchUp { before: self.followed.caught_up, sink: self.sink };
        self.unread = self.feed.held(place, line, received, payload, &mut sink);
    }

    /// Keeps a copy to apply after the requested snapshot.
    #[cold]
    fn remember(&mut self, header: &Header, received: Nanos, payload: &[u8]) {
        let Some(awaited) = &mut self.followed.awaited else { return };
        awaited.since_bytes += payload.len();
        if awaited.since_bytes > self.options.arbiter.held_bytes {
            // The snapshot is overdue now: the next tick gives it up.
            awaited.due = Nanos(0);
            awaited.since.clear();
            return;
        }
        awaited.since.push_back(Since { header: *header, received, payload: payload.to_vec() });
    }

    /// Emits an event of the whole channel for each of its publishers.
    fn put_all(&mut self, place: usize, kind: EventKind, now: Nanos) {
        self.feed.channel(place).events(kind, now).for_each(|event| self.sink.put(event));
    }

    #[cold]
    #[inline(never)]
    fn other(&mut self, delivery: Delivery<'_>, place: Option<usize>) {
        match (delivery, place) {
            (Delivery::Session { session, first, now }, old) => {
                let mut place = place_of(self.feed, self.number, self.options, session, now);
                if old == Some(place) {
                    // The session restarts under its old name.
                    place = self.feed.next_run(place, now);
                }
                self.followed.place = Some(place);
                self.followed.known_gaps =
                    self.feed.channels().get(place).map_or(0, |channel| channel.sequence().gaps);
                self.followed.affected.clear();
                (self.followed.awaited, self.followed.caught_up) = (None, 0);
                if self.followed.is_stale {
                    self.followed.is_stale = false;
                    self.put_all(place, EventKind::Recovered, now);
                }
                if old.is_some() {
                    // The earlier state belongs to another session.
                    self.put_all(place, EventKind::Clear, now);
                }
                self.feed.channel_mut(place).sequenced.tracker.restart(first);
            }
            (Delivery::Joining { now }, Some(old)) => {
                // The earlier state belongs to another session, and nothing is known of this one yet.
                self.put_all(old, EventKind::Clear, now);
                self.followed.affected.clear();
                self.followed.is_stale = false;
                (self.followed.awaited, self.followed.caught_up) = (None, 0);
                self.followed.place = None;
            }
            (Delivery::Gap { missing: (first, count), now }, Some(place)) => {
                self.followed.is_stale = true;
                self.followed.known_gaps += 1;
                self.feed.pass_over(place, Gap { first, count }, now, self.sink);
            }
            (Delivery::Late { payload, numbers, .. }, Some(place)) => {
                let affected = &mut self.followed.affected;
                let feed = &mut *self.feed;
                let sink = &mut *self.sink;
                let mut collect = |event: Event| {
                    if event.kind == EventKind::SymbolMapping {
                        sink.put(event);
                    }
                    if event.instrument != InstrumentId::ALL {
                        affected.insert((event.publisher, event.instrument));
                    }
                };
                self.options.application.transport().each_message(payload, |sequence, message| {
                    if numbers.iter().any(|late| late.contains(&sequence)) {
                        feed.aside(place, message, Nanos(0), sequence, &mut collect);
                    }
                });
            }
            (Delivery::Silent { now }, Some(place)) => {
                self.followed.is_stale = true;
                for next in self.feed.channel(place).events(EventKind::Gap, now) {
                    self.sink.put(next.with_gap(Gap { first: next.channel_sequence, count: 0 }));
                }
            }
            // `narrow` clears staleness if nothing is missing.
            (Delivery::Heard { .. }, _) => {}
            // No message comes before its session; before the first session there is nothing to clear.
            (_, None) | (Delivery::Packet { .. }, _) => {}
        }
    }
}
