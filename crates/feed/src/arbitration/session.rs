//! Sessions of a channel: joining one, and changing to the next.

use tapeworks_market::{Line, Nanos};
use tapeworks_session::{Header, SessionId};

use super::counters::GapReason;
use super::gap::OpenGap;
use super::{Arbiter, Delivery, Join, place};

/// So near to the beginning of a session, the messages from the beginning are requested instead of a snapshot.
const NEAR_THE_BEGINNING: u64 = 500;

impl Arbiter {
    /// A packet of another session than the one that is followed. `true`: its session is followed now.
    #[cold]
    #[inline(never)]
    pub(super) fn other_session(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> bool {
        let follower = &mut self.lines[place(line)];
        if self.application.is_some_and(|application| !application.spec().takes(&header.session)) {
            follower.counters.of_other_feeds += 1;
            return false;
        }
        if self.session.is_none() {
            self.join(header, received, deliver);
            return true;
        }
        if self.past == Some(header.session) {
            follower.counters.of_past_sessions += 1;
            return false;
        }
        if self.successor.is_empty() {
            self.successor_since = received;
        } else if self.successor.front().is_some_and(|first| first.header.session != header.session) {
            // Two sessions ahead at once: the older is over before it began.
            self.change_session(received, deliver);
            return self.session == Some(header.session)
                || self.other_session(header, line, received, payload, deliver);
        }
        let held = self.copy_of(header, line, received, payload);
        self.successor.push_back(held);
        if self.held_bytes > self.options.held_bytes {
            self.counters.overflows += 1;
            self.change_session(received, deliver);
        } else {
            self.change_session_if_done(received, deliver);
        }
        false
    }

    /// The session is complete: the next one begins.
    pub(super) fn change_session_if_done(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if !self.successor.is_empty() && self.held.is_empty() && self.end.is_some() && self.end == self.next {
            self.change_session(now, deliver);
        }
    }

    /// The next session begins, even if messages of this one are missing.
    pub(super) fn change_session(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        while !self.held.is_empty() && self.next.is_some() {
            self.give_up_last(GapReason::SessionChange, now, deliver);
        }
        let waiting = std::mem::take(&mut self.successor);
        let Some(first) = waiting.front() else { return };
        self.past = self.session;
        self.counters.session_changes += 1;
        let header = first.header;
        self.lines.iter_mut().for_each(|line| line.restart(None));
        self.join(&header, now, deliver);
        for held in waiting {
            self.held_bytes -= held.payload.len();
            self.of_session(&held.header, held.line, held.received, &held.payload, deliver);
            self.let_go(held.payload);
        }
    }

    /// As [`Arbiter::give_up`], without looking for a session that follows.
    pub(super) fn give_up_last(
        &mut self,
        reason: GapReason,
        now: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let waiting = std::mem::take(&mut self.successor);
        self.give_up(reason, now, deliver);
        self.successor = waiting;
    }

    /// This packet is the first of its session.
    pub(super) fn join(&mut self, header: &Header, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        // One or two requests can bring the beginning: no snapshot is needed.
        let within_reach = self
            .options
            .retransmission
            .map_or(1, |options| u64::from(options.messages_per_request).min(NEAR_THE_BEGINNING));
        match self.options.join {
            Join::Snapshot if header.first > within_reach => {}
            Join::FirstHeard if self.session.is_none() => {
                self.begin(header.session, header.first, now, deliver);
                return;
            }
            _ => {
                self.begin(header.session, 1, now, deliver);
                return;
            }
        }
        self.forget(header.session, now);
        self.is_joining = true;
        self.wants_snapshot = true;
        deliver(Delivery::Joining { now });
    }

    pub(super) fn forget(&mut self, session: SessionId, now: Nanos) {
        self.session = Some(session);
        self.next = None;
        self.is_joining = false;
        self.end = None;
        self.open_gap = None;
        self.given_up.clear();
        self.forgotten = 0;
        self.advanced = now;
        self.is_silent = false;
        while let Some(held) = self.held.pop_front() {
            self.held_bytes -= held.payload.len();
            self.let_go(held.payload);
        }
    }

    /// A session begins, with the message numbered `first`: messages missing from there on are a sequence gap like any other.
    pub(super) fn begin(
        &mut self,
        session: SessionId,
        first: u64,
        now: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        self.forget(session, now);
        self.lines.iter_mut().for_each(|line| line.restart(Some(first)));
        self.next = Some(first);
        deliver(Delivery::Session { session, first, now });
    }

    /// A snapshot holds all messages before `next`: the session is followed from there.
    pub fn joined_by_snapshot(&mut self, next: u64, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if !std::mem::replace(&mut self.is_joining, false) {
            return;
        }
        self.next = Some(next);
        self.advanced = now;
        self.resume(now, deliver);
    }

    /// No snapshot came: the session is followed from the first held packet.
    pub fn join_without_snapshot(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        let (true, Some(session)) = (self.is_joining, self.session) else { return };
        self.is_joining = false;
        let first = self.held.front().map_or(1, |held| held.header.first);
        self.next = Some(1);
        self.advanced = now;
        deliver(Delivery::Session { session, first: 1, now });
        self.pass_over(first, GapReason::NoSnapshot, now, deliver);
        // The request failed.
        self.wants_snapshot = false;
        self.resume(now, deliver);
    }

    /// Hands on the packets held while joining, up to the next gap.
    pub(super) fn resume(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        self.release(deliver);
        let is_hole = !self.held.is_empty();
        self.counters.gaps_opened += u64::from(is_hole);
        self.open_gap = is_hole.then(|| OpenGap::new(now));
    }
}
