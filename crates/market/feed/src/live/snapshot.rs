//! Snapshots of a live channel: requesting one, and rebuilding the books from it.
//!
//! Cost: none for in-order packets; while a snapshot is outstanding, a copy of each packet.

use std::collections::VecDeque;

use tapeworks_market::{Event, EventKind, Flags, Line};
use tapeworks_planted::planted;
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::framing::{BigEndian, Blocks};

use super::catch_up::{AsSnapshot, Awaited, Since};
use super::check::{self, Candidate};
use super::delivery::{Target, place_of};
use super::fault::SnapshotFault;
use super::{LiveChannel, LiveFeed, Request};
use tapeworks_follow::arbitration::Delivery;

/// Maximum size of a snapshot, including two bytes of length per message: six million Nasdaq orders, several times its busiest
/// day.
pub const MOST_SNAPSHOT_BYTES: usize = 256 << 20;

/// Maximum number of messages in a snapshot. It bounds the memory for checking and applying short messages.
pub const MOST_SNAPSHOT_MESSAGES: u64 = 8 << 20;

/// How long the lines may take to reach the end number of a complete snapshot, in ns. A venue without messages sends a heartbeat
/// about once a second, so a number that is still ahead after three of them is not the venue's.
const CONFIRM_NS: u64 = 3 * Nanos::SECOND;

/// The pause after the first failed request, in ns. It doubles with every further failure, up to [`LONGEST_PAUSE_NS`].
const FIRST_PAUSE_NS: u64 = Nanos::SECOND / 10;

/// The longest pause between two requests of a stale channel, in ns: a server that returns after an outage of any length is used
/// within this time, and one that never answers costs six connections a minute.
const LONGEST_PAUSE_NS: u64 = 10 * Nanos::SECOND;

/// Returns the pause after `failures` consecutive failed requests, in ns.
pub(crate) const fn pause_ns(failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1);
    let pause_ns = FIRST_PAUSE_NS << if doublings < 10 { doublings } else { 10 };
    if pause_ns < LONGEST_PAUSE_NS { pause_ns } else { LONGEST_PAUSE_NS }
}

/// How snapshots are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotOptions {
    /// Failed requests after which a joining channel continues with stale books. It keeps requesting a snapshot, with growing
    /// pauses, for as long as books are stale.
    pub attempts: u32,
    /// How long to wait for a snapshot, in ns.
    pub timeout_ns: u64,
    /// Shortest time between two requests caused by contradictions of the books, in ns.
    pub contradicted_every_ns: u64,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self { attempts: 3, timeout_ns: 10_000_000_000, contradicted_every_ns: 30_000_000_000 }
    }
}

/// Counters of a channel's snapshots.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SnapshotCounters {
    /// Snapshots requested.
    pub requests: u64,
    /// Snapshots applied.
    pub applied: u64,
    /// Snapshots not applied: see [`SnapshotFault`].
    pub failed: u64,
    /// Messages in the snapshots that were applied.
    pub messages: u64,
    /// Times that a channel needed a snapshot and continued without one.
    pub given_up: u64,
    /// Snapshots requested because the venue's messages contradicted the books.
    pub contradicted: u64,
    /// Snapshots not applied, by [`SnapshotFault`]: see [`SnapshotCounters::failed_by`].
    pub failed_by: [u64; SnapshotFault::ALL.len()],
    /// Why the last snapshot failed; `None` after a snapshot was applied.
    pub last_fault: Option<SnapshotFault>,
}

impl SnapshotCounters {
    /// Returns how many snapshots were not applied because of `fault`. Over all faults they add up to
    /// [`SnapshotCounters::failed`].
    #[must_use]
    pub fn failed_by(&self, fault: SnapshotFault) -> u64 {
        self.failed_by.get(fault as usize).copied().unwrap_or_default()
    }

    /// Counts a snapshot that was not applied.
    pub(super) fn count_fault(&mut self, fault: SnapshotFault) {
        self.failed += 1;
        self.last_fault = Some(fault);
        if let Some(count) = self.failed_by.get_mut(fault as usize) {
            *count += 1;
        }
    }
}

/// When a channel requests its next snapshot.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    /// Consecutive failed requests.
    pub(super) failures: u32,
    /// When the next request is due; `None` if none is scheduled.
    pub(super) retry_at: Option<Nanos>,
    /// Earliest time of the next request.
    pub(super) not_before: Nanos,
}

impl LiveFeed {
    /// Requests a snapshot to rebuild books that contradict the venue, if the limits allow it.
    #[cold]
    pub(super) fn contradicted(&mut self, index: usize, now: Nanos) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let (Some(options), true) = (channel.options.snapshot, channel.takes_contradiction(now)) else {
            return;
        };
        channel.contradicted_again = Nanos(now.0.saturating_add(options.contradicted_every_ns));
        channel.snapshots.contradicted += 1;
        self.request_snapshot(index, now);
        self.set_due(index);
    }

    /// Returns the snapshot of `attempt`, if the channel still waits for it.
    pub(super) fn awaited(&mut self, channel: u16, attempt: u32) -> Option<&mut Awaited> {
        let channel = self.channels.get_mut(usize::from(channel))?;
        channel
            .followed
            .awaited
            .as_mut()
            .filter(|awaited| awaited.attempt == attempt && awaited.next.is_none())
    }

    /// Requests a snapshot now, or when the pause after the last request is over.
    pub(super) fn request_snapshot(&mut self, index: usize, now: Nanos) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let (Some(options), Some(session)) = (channel.options.snapshot, channel.arbiter.session()) else {
            return;
        };
        channel.followed.awaited = None;
        if now < channel.pace.not_before {
            channel.pace.retry_at = Some(channel.pace.not_before);
            return;
        }
        channel.pace.retry_at = None;
        channel.pace.not_before = Nanos(now.0.saturating_add(FIRST_PAUSE_NS));
        channel.attempts = channel.attempts.wrapping_add(1);
        channel.snapshots.requests += 1;
        channel.followed.awaited = Some(Awaited {
            attempt: channel.attempts,
            due: Nanos(now.0.saturating_add(options.timeout_ns)),
            messages: Vec::new(),
            next: None,
            ended: Nanos(0),
            reaches: None,
            since: VecDeque::new(),
            since_bytes: 0,
        });
        self.requests.push_back(Request::Snapshot {
            channel: index as u16,
            session,
            attempt: channel.attempts,
        });
    }

    /// Sends a request whose pause is over, and schedules one if books are stale and no request is outstanding.
    #[cold]
    pub(super) fn pace_snapshots(&mut self, index: usize, now: Nanos) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        if channel.options.snapshot.is_none() || channel.followed.awaited.is_some() {
            return;
        }
        let is_needed = channel.needs_snapshot();
        match channel.pace.retry_at {
            Some(_) if !is_needed || planted!("snapshot-not-asked-again") => channel.pace.retry_at = None,
            Some(at) if at <= now => self.request_snapshot(index, now),
            Some(_) => {}
            None if is_needed => channel.pace.retry_at = Some(channel.pace.not_before.max(now)),
            None => {}
        }
    }

    /// Discards the requested snapshot. The next request follows after a pause.
    #[cold]
    pub(super) fn snapshot_failed<S: Sink<Event>>(
        &mut self,
        index: usize,
        fault: SnapshotFault,
        now: Nanos,
        sink: &mut S,
    ) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        if channel.followed.awaited.take().is_none() {
            return;
        }
        channel.snapshots.count_fault(fault);
        channel.pace.failures = channel.pace.failures.saturating_add(1);
        let again = Nanos(now.0.saturating_add(pause_ns(channel.pace.failures)));
        (channel.pace.not_before, channel.pace.retry_at) = (again, Some(again));
        let attempts = channel.options.snapshot.map_or(0, |options| options.attempts);
        if channel.pace.failures < attempts {
            self.set_due(index);
            return;
        }
        channel.snapshots.given_up += u64::from(channel.pace.failures == attempts.max(1));
        let feed = &mut self.feed;
        let LiveChannel { arbiter, options, followed, .. } = channel;
        let mut target = Target { feed, number: index as u16, options, followed, sink, unread: 0 };
        arbiter.join_without_snapshot(now, &mut |delivery| target.deliver(delivery));
        self.set_due(index);
    }

    /// Applies a complete snapshot as soon as the channel has reached its end number.
    pub(super) fn apply_snapshot<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let Some(next) = channel.followed.awaited.as_ref().and_then(|awaited| awaited.next) else { return };
        let is_joining = channel.arbiter.is_joining();
        let Some(session) = channel.arbiter.session() else { return };
        let number = index as u16;
        let place = match channel.followed.place {
            _ if is_joining => place_of(&mut self.feed, number, &channel.options, session, now),
            Some(place) => place,
            None => return,
        };
        let Some(awaited) = &mut channel.followed.awaited else { return };
        let reaches = *awaited.reaches.get_or_insert_with(|| {
            let messages = Blocks::new(&awaited.messages, BigEndian).filter_map(Result::ok);
            messages
                .map(|message| self.feed.channel(place).normaliser.reach_of(message))
                .max()
                .unwrap_or_default()
        });
        // The lines must confirm the number: otherwise it would hide any messages that they deliver below it.
        let needed = next.max(reaches.saturating_add(1));
        if channel.arbiter.heard_to().is_none_or(|heard| heard < needed)
            && !planted!("snapshot-end-unconfirmed")
        {
            let confirmed_by = Nanos(awaited.ended.0.saturating_add(CONFIRM_NS));
            awaited.due = awaited.due.min(confirmed_by);
            return;
        }
        // The lines must first have delivered whatever the snapshot's books include, unless it is held while joining.
        if !is_joining && channel.arbiter.next().is_none_or(|reached| reached < needed) {
            return;
        }
        let Some(awaited) = channel.followed.awaited.take() else { return };
        // A snapshot that ends before the first kept packet leaves a gap.
        let first_since = awaited.since.front().map(|since| since.header.first);
        let has_gap = !is_joining
            && match (first_since, channel.arbiter.next()) {
                (Some(first), _) => first > next,
                (None, reached) => reached != Some(next),
            };
        let candidate = Candidate {
            feed: self.feed.options(),
            channel: &channel.options,
            number,
            session,
            messages: &awaited.messages,
            next,
            now,
        };
        let checked = match is_joining {
            _ if has_gap || channel.arbiter.is_recovering() && is_joining => Err(SnapshotFault::Stale),
            true => check::check(&candidate, &mut channel.arbiter.held_payloads()),
            false => {
                check::check(&candidate, &mut awaited.since.iter().map(|since| since.payload.as_slice()))
            }
        };
        if let Err(fault) = checked
            && !planted!("snapshot-not-compared")
        {
            channel.followed.awaited = Some(awaited);
            self.snapshot_failed(index, fault, now, sink);
            return;
        }
        (channel.pace.failures, channel.pace.retry_at) = (0, None);
        channel.followed.place = Some(place);
        channel.followed.known_gaps =
            self.feed.channels().get(place).map_or(0, |channel| channel.sequence().gaps);
        channel.snapshots.applied += 1;
        channel.snapshots.last_fault = None;
        for mut clear in self.feed.channel(place).events(EventKind::Clear, now) {
            clear.set_flags(Flags::SNAPSHOT);
            clear.set_line(Line::Snapshot);
            sink.put(clear);
        }
        self.feed.channel_mut(place).normaliser.forget_unnamed();
        let mut as_snapshot = AsSnapshot(sink);
        for message in Blocks::new(&awaited.messages, BigEndian).filter_map(Result::ok) {
            channel.snapshots.messages += 1;
            self.feed.aside(place, message, now, next.saturating_sub(1), &mut as_snapshot);
        }
        // If the venue's books have different numbers, the snapshot ends after the highest of them.
        let reaches = self.feed.channel(place).normaliser.snapshot_reaches();
        channel.followed.caught_up = if reaches < next { 0 } else { reaches.saturating_add(1) };
        if !is_joining {
            let transport = channel.options.application.transport();
            // Two packets may have messages in common.
            let mut applied = next;
            for Since { received, payload, .. } in &awaited.since {
                transport.each_message(payload, |sequence, message| {
                    if sequence >= applied && !(sequence == next && planted!("snapshot-joint-off-by-one")) {
                        self.feed.aside(place, message, *received, sequence, &mut as_snapshot);
                        applied = sequence.saturating_add(1);
                    }
                });
            }
        }
        // No book is stale anymore.
        self.feed.channel(place).events(EventKind::Recovered, now).for_each(|event| sink.put(event));
        channel.followed.is_stale = false;
        channel.followed.affected.clear();
        channel.arbiter.forget_missing();
        if is_joining {
            self.feed.channel_mut(place).sequenced.tracker.restart(next);
            let feed = &mut self.feed;
            let LiveChannel { arbiter, options, followed, .. } = channel;
            let mut target = Target { feed, number, options, followed, sink, unread: 0 };
            arbiter.joined_by_snapshot(next, now, &mut |delivery| target.deliver(delivery));
        } else if channel.arbiter.is_silent() {
            // The books match the snapshot, and nothing shows what has changed since.
            let feed = &mut self.feed;
            let LiveChannel { options, followed, .. } = channel;
            let mut target = Target { feed, number, options, followed, sink, unread: 0 };
            target.deliver(Delivery::Silent { now });
        }
    }
}
