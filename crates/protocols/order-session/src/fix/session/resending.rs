//! Gaps: the queue of messages that follow one, the requests that fill it, and the resends that the peer requests.

use std::collections::BTreeMap;

use tapeworks_fix_wire::{RejectReason, message_type, tag};

use super::{End, Session, State, Turn};
use crate::fix::received::{HIGHEST_SEQUENCE, Received};
use crate::fix::store::Store;
use crate::fix::validate::Rejection;

/// A range of missing messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// The highest sequence number seen.
    pub(super) highest: u64,
    /// The last sequence number requested.
    asked: u64,
    pub(super) asked_ns: u64,
}

/// Messages that follow a gap, by sequence number.
#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: BTreeMap<u64, Box<[u8]>>,
    bytes: usize,
}

impl Queue {
    /// Returns the bytes of all messages.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn has(&self, sequence: u64) -> bool {
        self.messages.contains_key(&sequence)
    }

    /// Adds a message with a number that the queue does not have.
    fn push(&mut self, sequence: u64, message: &[u8]) {
        self.bytes += message.len();
        self.messages.insert(sequence, message.into());
    }

    /// Removes the message with the lowest number, if that is at most `last`.
    fn pop_up_to(&mut self, last: u64) -> Option<(u64, Box<[u8]>)> {
        let entry = self.messages.first_entry().filter(|entry| *entry.key() <= last)?;
        let (sequence, message) = entry.remove_entry();
        self.bytes -= message.len();
        Some((sequence, message))
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }
}

impl Session {
    pub(super) fn too_high(
        &mut self,
        received: &Received<'_>,
        sequence: u64,
        store: &mut dyn Store,
        now_ns: u64,
    ) {
        // Answered immediately: two sides that wait for each other's messages would wait forever.
        if received.message_type == b"2"
            && !self.queue.has(sequence)
            && let (Some(begin), Some(end)) =
                (received.number(tag::BEGIN_SEQ_NO), received.number(tag::END_SEQ_NO))
        {
            self.link.begin_resend(store, begin, end);
        }
        let message = received.message.bytes();
        if !self.queue.has(sequence) {
            if self.queue.bytes() + message.len() > self.link.settings.queue_limit_bytes {
                self.close_with(store, "too many messages behind a gap", End::QueueFull, now_ns);
                return;
            }
            self.queue.push(sequence, message);
        }
        match &mut self.gap {
            Some(gap) => gap.highest = gap.highest.max(sequence),
            None => self.ask(sequence, store, now_ns),
        }
    }

    /// Requests the messages missing up to `highest`.
    pub(super) fn ask(&mut self, highest: u64, store: &mut dyn Store, now_ns: u64) {
        let begin = store.next_incoming();
        let bound = self.link.settings.resend_bound;
        let end = if bound == 0 {
            0
        } else {
            begin.saturating_add(bound - 1).min(highest.saturating_sub(1)).max(begin)
        };
        self.counters.resend_requests += 1;
        self.gap = Some(Gap { highest, asked: if end == 0 { u64::MAX } else { end }, asked_ns: now_ns });
        self.reply(store, b"2", &[], now_ns, |writer| {
            _ = writer.number(tag::BEGIN_SEQ_NO, begin).number(tag::END_SEQ_NO, end)
        });
    }

    /// Returns whether the message is the next one that our ResendRequest asked for.
    ///
    /// The throttle exempts these messages because the peer does not choose how many arrive in a second. Each number is
    /// exempt once, and none above the highest that the peer sent before.
    pub(super) fn is_requested(&self, received: &Received<'_>, store: &dyn Store) -> bool {
        let Some(gap) = self.gap.filter(|_| received.is_possible_duplicate) else { return false };
        let is_of_gap = |sequence: &u64| *sequence <= gap.highest.min(gap.asked);
        received.sequence.filter(is_of_gap) == Some(store.next_incoming())
    }

    /// Sets the number expected next, and closes the gap once it is filled.
    pub(super) fn expect(&mut self, sequence: u64, store: &mut dyn Store) {
        let result = store.set_next_incoming(sequence);
        self.check(result);
        if let Some(gap) = self.gap
            && sequence > gap.highest
        {
            self.gap = None;
        }
    }

    /// Processes the queued messages that follow a filled gap, and requests the next part of a longer gap.
    pub(super) fn drain_queue(&mut self, turn: &mut Turn<'_>) {
        while let Some((sequence, message)) = self.queue.pop_up_to(turn.store.next_incoming()) {
            let expected = turn.store.next_incoming();
            if sequence < expected {
                continue;
            }
            // A ResendRequest was answered when it arrived.
            if message_type(&message) == b"2" {
                self.expect(expected + 1, turn.store);
            } else {
                // The throttle counted the message when it arrived.
                self.process(&message, false, turn);
            }
        }
        if let Some(gap) = self.gap
            && self.state == State::LoggedOn
            && turn.store.next_incoming() > gap.asked
            && turn.store.next_incoming() < gap.highest
        {
            self.ask(gap.highest, turn.store, turn.now_ns);
        }
    }

    /// Handles a SequenceReset with GapFillFlag, in sequence.
    pub(super) fn gap_fill(
        &mut self,
        received: &Received<'_>,
        sequence: u64,
        store: &mut dyn Store,
        now_ns: u64,
    ) {
        match received.number(tag::NEW_SEQ_NO) {
            Some(next) if next > sequence && next <= HIGHEST_SEQUENCE => self.expect(next, store),
            // The expected number never decreases.
            _ => {
                self.expect(sequence + 1, store);
                let rejection = Rejection::of_tag(RejectReason::ValueIncorrect, tag::NEW_SEQ_NO);
                self.reject(received, rejection, store, now_ns);
            }
        }
    }

    pub(super) fn pump(&mut self, turn: &mut Turn<'_>) {
        self.link.pump_resend(turn.store, turn.now_ns, &mut |message| turn.application.may_resend(message));
        if let Some(failure) = self.link.failure.clone() {
            self.finish(End::Store(failure));
        }
        self.close_if_sent();
    }
}
