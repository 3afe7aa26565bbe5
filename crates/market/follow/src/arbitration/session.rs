//! Sessions of a channel: joining one, and changing to the next.
//!
//! A packet of another session is copied and waits. It may be the first packet of the next session, a damaged one, or one from a
//! day long past. The current session stays while it brings current packets, and the other session's packets are eventually
//! dropped. The other session takes over as soon as the current one has announced its end and is complete, or has been quiet for
//! a time ([`ArbiterOptions::silence_ns`]), provided the other one still sends packets. If the silence was longer, a single
//! packet waits for that time too, unless it is the first of its session. So a channel that joined or changed because of a stray
//! packet recovers, even to the previous session. Of two sessions that both bring messages, the channel keeps the current one. A
//! session that sends only heartbeats gives way, after `silence_ns`, to one that brings messages from its first one on, and to
//! the previous session. Late copies of earlier sessions are discarded.
//!
//! Cost: none for a packet of the current session.

use std::cmp::Reverse;
use std::collections::VecDeque;

use tapeworks_planted::planted;
use tapeworks_session::{Header, SessionId};
use tapeworks_time::Nanos;

use super::{Arbiter, ArbiterOptions, Delivery, Held, Incoming, Join, place};
use crate::recovery::GapReason;
use crate::run::{CONFIRMING, Evidence, Run};

/// When a session is joined within this many messages of its beginning, they are requested; no snapshot is needed.
const NEAR_THE_BEGINNING: u64 = 500;

/// Maximum number of sessions that wait. Each damaged packet may name another.
const MOST_SUCCESSORS: usize = 4;

/// Maximum number of earlier sessions remembered: late copies of several may arrive.
const MOST_PAST: usize = 4;

/// A session followed earlier.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(super) struct Past {
    session: SessionId,
    /// The content of its packets.
    pub(super) run: Run,
}

/// A session that may follow the current one.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(super) struct Successor {
    /// Its packets in order of arrival: at least one, and none that the current session has outlived.
    pub(super) packets: VecDeque<Held>,
}

impl Successor {
    fn is_of(&self, session: SessionId) -> bool {
        self.packets.front().is_some_and(|first| first.header.session == session)
    }

    fn since(&self) -> Nanos {
        self.packets.front().map(|first| first.received).unwrap_or_default()
    }

    fn last(&self) -> Nanos {
        self.packets.back().map(|last| last.received).unwrap_or_default()
    }

    /// Returns whether the first waiting packet has, or announces, the session's first message.
    fn has_beginning(&self) -> bool {
        self.packets.front().is_some_and(|first| first.header.first == 1)
    }

    /// Returns whether the session has brought a message.
    fn has_messages(&self) -> bool {
        self.packets.back().is_some_and(|last| last.header.end() > 1)
    }

    /// Returns whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub(super) fn is_sound(&self) -> bool {
        self.packets
            .front()
            .is_some_and(|first| self.packets.iter().all(|held| held.header.session == first.header.session))
    }
}

impl Arbiter {
    /// Processes a packet of a session other than the current one. Returns `true` if that session is now the current one.
    #[cold]
    #[inline(never)]
    pub(super) fn other_session(
        &mut self,
        packet: &Incoming<'_>,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> bool {
        let Incoming { header, line, received, payload } = *packet;
        let counters = &mut self.lines[place(line)].counters;
        if !self.dialect.transport.is_sound(payload) {
            counters.malformed += 1;
            return false;
        }
        if !(self.dialect.has_session)(&header.session) {
            counters.of_other_feeds += 1;
            return false;
        }
        if self.session.is_none() {
            self.join(&header, received, deliver);
            return true;
        }
        // A past session that repeats its end does not begin again. One that brings messages may, if the session after it has
        // brought none.
        let is_over = header.is_end_of_session
            || !self.is_quiet(self.options.silence_ns, received)
                && (header.count == 0 || self.advanced > self.began);
        let evidence = Evidence { header, payload, received, dialect: self.dialect };
        let is_late = |past: &Past| is_over || header.count > 0 && past.run.is_late_copy(&evidence);
        if self.past.iter().find(|past| past.session == header.session).is_some_and(is_late) {
            self.lines[place(line)].counters.of_past_sessions += 1;
            return false;
        }
        let known = self.successors.iter().position(|successor| successor.is_of(header.session));
        if known.is_none() && self.successors.len() >= MOST_SUCCESSORS {
            // The session with the fewest packets is most likely a stray.
            let fewest = (0..self.successors.len()).min_by_key(|at| self.successors[*at].packets.len());
            if let Some(at) = fewest {
                let waiting = self.successors.remove(at);
                self.drop_stray(waiting.packets);
            }
        }
        let held = self.copy_of(packet);
        let at = known.unwrap_or(self.successors.len());
        if known.is_none() {
            self.successors.push(Successor::default());
        }
        let successor = &mut self.successors[at];
        successor.packets.push_back(held);
        if self.held_bytes > self.options.held_bytes {
            self.counters.overflows += 1;
            if self.end.is_some() || self.is_quiet(self.options.reorder_window_ns, received) {
                self.change_session(at, received, deliver);
            } else {
                let waiting = self.successors.remove(at);
                self.drop_stray(waiting.packets);
            }
        } else {
            self.change_session_if_done(received, deliver);
            if self.has_successor() {
                self.work_on_successors(received, deliver);
            }
        }
        false
    }

    /// Returns whether the current session has brought nothing for `for_ns`.
    fn is_quiet(&self, for_ns: u64, now: Nanos) -> bool {
        self.last.is_none_or(|last| now.0 >= last.0.saturating_add(for_ns))
    }

    /// Returns when a waiting session takes over if the current one stays quiet until then. `None` means not before the waiting
    /// session sends another packet, because the current one has sent one since. The reorder window leaves time for the other
    /// line.
    pub(super) fn successor_deadline(&self, successor: &Successor) -> Option<Nanos> {
        let ArbiterOptions { silence_ns, .. } = self.options;
        let takes_over =
            self.takes_over(successor).then(|| Nanos(successor.since().0.saturating_add(silence_ns)));
        [takes_over, self.quiet_deadline(successor)].into_iter().flatten().min()
    }

    /// Returns whether a session displaces the current one although that still sends heartbeats. It must bring messages from its
    /// first one on, or be the previous session, and the current session must have brought no message since. A lingering
    /// publisher or a test sends heartbeats alone.
    fn takes_over(&self, successor: &Successor) -> bool {
        let until = Nanos(successor.last().0.saturating_add(self.options.silence_ns / 2));
        (successor.has_beginning() || self.past.last().is_some_and(|past| successor.is_of(past.session)))
            && successor.has_messages()
            && self.advanced < successor.since()
            && self.last.is_none_or(|last| last <= until)
    }

    /// Returns when a waiting session takes over because the current one is quiet until then.
    fn quiet_deadline(&self, successor: &Successor) -> Option<Nanos> {
        if !self.goes_on(successor) {
            return None;
        }
        let ArbiterOptions { reorder_window_ns, silence_ns, .. } = self.options;
        let quiet_ns = match () {
            () if self.end.is_some() || planted!("session-follows-at-once") => reorder_window_ns,
            () if successor.has_beginning() => silence_ns / 2,
            () => silence_ns,
        };
        let is_confirmed = successor.has_beginning() || successor.packets.len() >= CONFIRMING;
        let window_ns = if is_confirmed || self.end.is_some() { reorder_window_ns } else { silence_ns };
        let window = Nanos(successor.since().0.saturating_add(window_ns));
        Some(self.last.map_or(window, |last| window.max(Nanos(last.0.saturating_add(quiet_ns)))))
    }

    /// Returns when a waiting session's first packet is dropped: `silence_ns` after it arrived, if the current session was still
    /// active half of that time after it.
    pub(super) fn outlived_at(&self, successor: &Successor) -> Option<Nanos> {
        if self.takes_over(successor) {
            return None;
        }
        let first = successor.packets.front()?.received;
        let silence_ns = self.options.silence_ns;
        self.last
            .filter(|last| last.0 >= first.0.saturating_add(silence_ns / 2))
            .map(|_| Nanos(first.0.saturating_add(silence_ns)))
    }

    /// Returns whether a session's last packet is newer than the current session's, or at most a reorder window older.
    fn goes_on(&self, successor: &Successor) -> bool {
        let until = Nanos(successor.last().0.saturating_add(self.options.reorder_window_ns));
        self.last.is_none_or(|last| last <= until)
    }

    /// Changes to a session that is due, and drops packets that the current session has outlived.
    #[cold]
    #[inline(never)]
    pub(super) fn work_on_successors(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        let mut stray = VecDeque::new();
        for at in 0..self.successors.len() {
            while self.outlived_at(&self.successors[at]).is_some_and(|at| at <= now) {
                stray.extend(self.successors[at].packets.pop_front());
            }
        }
        self.successors.retain(|successor| !successor.packets.is_empty());
        self.drop_stray(stray);
        if !self.gaps.is_empty() {
            return;
        }
        let is_due = |at: &usize| {
            self.successor_deadline(&self.successors[*at]).is_some_and(|deadline| deadline <= now)
        };
        if let Some(at) = (0..self.successors.len()).filter(is_due).max_by_key(|at| self.rank(*at)) {
            self.change_session(self.first_before(at), now, deliver);
        }
    }

    /// Returns the session that takes over when the one at `at` is due. Venues run sessions one after the other, so an earlier
    /// one that is present from its beginning goes first, even while late copies of it still arrive.
    fn first_before(&self, at: usize) -> usize {
        let whole = |before: &usize| {
            let successor = &self.successors[*before];
            successor.has_beginning() && successor.packets.len() >= CONFIRMING
        };
        (0..at).find(whole).unwrap_or(at)
    }

    /// Ranks the waiting sessions: of those due, the highest takes over. A session with its beginning beats one without; then the
    /// number of packets decides, then which came first.
    fn rank(&self, at: usize) -> (bool, usize, Reverse<usize>) {
        let successor = &self.successors[at];
        (successor.has_beginning(), successor.packets.len(), Reverse(at))
    }

    /// Drops the waiting sessions that are silent too, when the current session falls silent.
    pub(super) fn drop_those_gone(&mut self) {
        let all = std::mem::take(&mut self.successors);
        let (waiting, gone): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|successor| self.goes_on(successor));
        self.successors = waiting;
        gone.into_iter().for_each(|successor| self.drop_stray(successor.packets));
    }

    pub(super) fn drop_stray(&mut self, packets: impl IntoIterator<Item = Held>) {
        for held in packets {
            self.lines[place(held.line)].counters.implausible += 1;
            self.drop_held(held);
        }
    }

    /// Changes to the next session if the current one is complete.
    pub(super) fn change_session_if_done(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if self.held.is_empty()
            && self.end.is_some()
            && self.end == self.next
            && let Some(at) = (0..self.successors.len())
                .filter(|at| self.goes_on(&self.successors[*at]))
                .max_by_key(|at| self.rank(*at))
        {
            self.change_session(self.first_before(at), now, deliver);
        }
    }

    /// Changes to another session, even if messages of the current one are missing.
    fn change_session(&mut self, at: usize, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        let waiting = self.successors.remove(at).packets;
        // A session that was over before this one began will not follow.
        let since = waiting.front().map(|first| first.received).unwrap_or_default();
        let over: Vec<_> = self.successors.extract_if(..at, |before| before.last() <= since).collect();
        over.into_iter().for_each(|before| self.drop_stray(before.packets));
        self.deliver_the_rest(now, deliver);
        let Some(first) = waiting.front() else { return };
        self.past.retain(|past| past.session != first.header.session);
        if let Some(session) = self.session {
            self.past.push(Past { session, run: std::mem::take(&mut self.run) });
            let most = self.past.len().saturating_sub(MOST_PAST);
            self.past.drain(..most);
        }
        self.counters.session_changes += 1;
        let (header, before) = (first.header, Nanos(first.received.0.saturating_sub(1)));
        self.lines.iter_mut().for_each(|line| line.restart(None));
        self.join(&header, now, deliver);
        // All its messages are later than this, including those that waited.
        (self.began, self.advanced) = (before, before);
        for held in waiting {
            if self.session != Some(held.header.session) {
                // The session's end was among the packets, and another session has begun.
                self.drop_stray([held]);
                continue;
            }
            self.held_bytes -= held.payload.len();
            self.of_session(&held.incoming(), deliver);
            self.let_go(held.payload);
        }
    }

    /// Ends a session or a run: delivers every held packet, and gives up the gaps before them.
    pub(super) fn deliver_the_rest(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if self.is_joining {
            self.join_without_snapshot(now, deliver);
        }
        while !self.held.is_empty() && self.next.is_some() {
            self.give_up_last(GapReason::SessionChange, now, deliver);
        }
    }

    /// Gives up the first gap like [`Arbiter::give_up`], without looking for a session that follows.
    pub(super) fn give_up_last(
        &mut self,
        reason: GapReason,
        now: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let waiting = std::mem::take(&mut self.successors);
        self.give_up(reason, now, deliver);
        self.successors = waiting;
    }

    /// Joins a session at this packet, its first.
    pub(super) fn join(&mut self, header: &Header, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        // One or two requests can bring the beginning, so no snapshot is needed.
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
        self.gaps.clear();
        self.given_up.clear();
        self.retry.clear();
        self.forgotten = 0;
        (self.began, self.advanced) = (now, now);
        self.is_silent = false;
        self.drop_suspects();
        self.run = Run::default();
        while let Some(held) = self.held.pop_front() {
            self.drop_held(held);
        }
    }

    /// Begins a session at message `first`: messages missing from there on are a sequence gap like any other.
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

    /// Follows the session from `next`, because a snapshot holds all messages before it.
    pub fn joined_by_snapshot(&mut self, next: u64, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if !std::mem::replace(&mut self.is_joining, false) {
            return;
        }
        self.follow_held_from(next, now);
        self.resume(now, deliver);
        self.call_silence(now, deliver);
    }

    /// Ends joining: the packets held meanwhile are delivered in order from `next`.
    fn follow_held_from(&mut self, next: u64, now: Nanos) {
        self.next = Some(next);
        (self.began, self.advanced) = (now, now);
        self.run.forget_packets();
    }

    /// Follows the session from the first held packet, because no snapshot came.
    pub fn join_without_snapshot(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        let (true, Some(session)) = (self.is_joining, self.session) else { return };
        self.is_joining = false;
        let first = self.held.front().map_or(1, |held| held.header.first);
        self.follow_held_from(1, now);
        deliver(Delivery::Session { session, first: 1, now });
        self.pass_over(first, GapReason::NoSnapshot, now, deliver);
        // The snapshot request failed.
        self.wants_snapshot = false;
        self.resume(now, deliver);
        self.call_silence(now, deliver);
    }

    /// Reports a silence that began while the channel was joining, if it still lasts.
    fn call_silence(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if self.last.is_none() && self.end.is_none() {
            self.is_silent = true;
            self.counters.silences += 1;
            deliver(Delivery::Silent { now });
        }
    }

    /// Delivers the packets held while joining up to the first gap, and opens the gaps between the rest.
    pub(super) fn resume(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        self.release(deliver);
        let Some(mut reach) = self.next else { return };
        for held in &self.held {
            if reach < held.header.first {
                self.counters.gaps_opened += 1;
                self.gaps.open(reach..held.header.first, now);
            }
            reach = reach.max(held.header.end());
        }
        self.reach = reach;
    }
}
