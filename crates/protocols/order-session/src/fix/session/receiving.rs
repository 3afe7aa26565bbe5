//! Receiving: bytes become messages, and each message passes the checks of its sequence number and its fields.

use tapeworks_fix_wire::{Framing, Garbled, Parsed, RejectReason, next_message, tag};
use tapeworks_planted::planted;

use super::logon::refused;
use super::{Application, End, SECOND_NS, Session, State, Turn, Verdict};
use crate::fix::received::{HIGHEST_SEQUENCE, Received};
use crate::fix::settings::Role;
use crate::fix::store::Store;
use crate::fix::validate::{Rejection, validate, without_empty_fields};

/// The messages received in the current second.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    second: u64,
    messages: u32,
}

impl Throttle {
    /// Counts a message. Returns whether there are at most `most` of them in this second; `None` is unlimited.
    fn allows(&mut self, most: Option<u32>, now_ns: u64) -> bool {
        let Some(most) = most else { return true };
        let second = now_ns / SECOND_NS;
        if self.second != second {
            *self = Self { second, messages: 0 };
        }
        self.messages = self.messages.saturating_add(1);
        self.messages <= most
    }
}

impl Session {
    /// Processes bytes from the peer.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        if matches!(self.state, State::Over(_)) {
            return;
        }
        let turn = &mut Turn { store, application, now_ns };
        let mut input = core::mem::take(&mut self.input);
        let limit = self.link.settings.message_limit_bytes;
        let mut rest = bytes;
        // The buffered start of a message grows one piece at a time, so it exceeds the limit by at most one piece.
        loop {
            let piece = rest.len().min(limit);
            let (now, later) = rest.split_at(piece);
            let before = input.len();
            input.extend_from_slice(now);
            rest = later;
            let mut at = 0;
            // A trailer is in the new bytes or starts in the 8 before them, so the rest is not searched again.
            let new = input.get(before.saturating_sub(8)..).unwrap_or_default();
            let is_worth_a_look =
                !self.awaits_trailer || input.len() >= limit || new.windows(3).any(|window| window == b"10=");
            self.awaits_trailer &= !is_worth_a_look;
            while is_worth_a_look && !matches!(self.state, State::Over(_)) {
                match next_message(input.get(at..).unwrap_or_default(), limit) {
                    // Before a Logon the peer is unknown and gets no second chance.
                    Framing::WrongLength if self.state == State::Fresh => {
                        self.garbled(input.len() - at, Garbled::WrongLength);
                    }
                    Framing::Incomplete => break,
                    Framing::WrongLength => {
                        self.awaits_trailer = true;
                        break;
                    }
                    Framing::Garbled { length, why } => {
                        self.garbled(length, why);
                        at += length;
                    }
                    Framing::Message { length } => {
                        let message = input.get(at..at + length).unwrap_or_default();
                        self.counters.received += 1;
                        self.process(message, true, turn);
                        self.drain_queue(turn);
                        at += length;
                    }
                }
            }
            input.drain(..at);
            if rest.is_empty() || matches!(self.state, State::Over(_)) {
                break;
            }
        }
        if matches!(self.state, State::Over(_)) {
            input.clear();
        }
        self.input = input;
        self.pump(turn);
    }

    fn garbled(&mut self, length: usize, why: Garbled) {
        self.counters.garbled += 1;
        self.counters.garbled_bytes += length as u64;
        if self.state == State::Fresh && why != Garbled::Junk {
            self.finish(End::Refused("the first message is garbled".to_owned()));
        }
    }

    pub(super) fn process(&mut self, message: &[u8], is_counted: bool, turn: &mut Turn<'_>) {
        let mut parts = core::mem::take(&mut self.parts);
        match parts.split(message) {
            Some(parsed) => self.process_parsed(parsed, is_counted, turn),
            None => self.garbled(message.len(), Garbled::FirstFields),
        }
        self.parts = parts;
    }

    fn process_parsed(&mut self, parsed: Parsed<'_>, is_counted: bool, turn: &mut Turn<'_>) {
        if self.link.settings.ignores_empty_fields
            && let Some(filled) = without_empty_fields(&parsed)
        {
            return self.process(&filled, is_counted, turn);
        }
        let received = Received::new(parsed, &mut self.room.last);
        self.received_ns = turn.now_ns;
        self.tests = 0;
        if !is_counted
            || self.is_requested(&received, turn.store)
            || self.throttle.allows(self.link.settings.throttle_per_second, turn.now_ns)
        {
            self.process_received(&received, turn);
        } else {
            self.close_with(turn.store, "too many messages in a second", End::Throttled, turn.now_ns);
        }
    }

    fn process_received(&mut self, received: &Received<'_>, turn: &mut Turn<'_>) {
        if matches!(self.state, State::Over(_)) {
            return;
        }
        if matches!(self.state, State::Closing { .. }) {
            self.count_second_logout(received, turn.store);
            return;
        }
        let is_logon = received.message_type == b"A";
        if self.state == State::Fresh && !is_logon {
            if received.message_type == b"5" && self.link.settings.role == Role::Initiator {
                // The Logout says why our Logon was refused.
                turn.application.admin(received);
                self.finish(refused("the peer logs out", &[tag::TEXT], received));
            } else {
                self.finish(refused("the first message is no Logon", &[tag::MSG_TYPE], received));
            }
            return;
        }
        if received.message.begin_string() != self.link.settings.begin_string.as_bytes() {
            match self.state {
                State::Fresh => self.finish(refused("another BeginString", &[tag::BEGIN_STRING], received)),
                State::LoggedOn => self.send_logout(turn.store, "Incorrect BeginString", turn.now_ns),
                _ => {}
            }
            return;
        }
        let Some(sequence) = received.sequence else {
            match self.state {
                State::Fresh => {
                    self.finish(refused("a Logon without a valid MsgSeqNum", &[tag::MSG_SEQ_NUM], received))
                }
                _ => self.close_with(
                    turn.store,
                    "MsgSeqNum is missing or not valid",
                    End::LoggedOut,
                    turn.now_ns,
                ),
            }
            return;
        };
        let is_reset = is_logon && received.is_set(tag::RESET_SEQ_NUM_FLAG);
        if is_logon && (self.state == State::Fresh || is_reset) {
            turn.application.admin(received);
            self.logon(received, sequence, turn);
            return;
        }
        // A Logout is accepted whatever its number, and so is a reset.
        match received.message_type {
            b"5" => return self.logout(received, sequence, turn),
            b"4" if !received.is_set(tag::GAP_FILL_FLAG) => {
                return self.reset_sequence(received, turn);
            }
            _ => {}
        }
        let expected = turn.store.next_incoming();
        if sequence > expected {
            self.too_high(received, sequence, turn.store, turn.now_ns);
        } else if sequence < expected
            && !(received.is_possible_duplicate && planted!("duplicate-taken-again"))
        {
            self.too_low(received, sequence, expected, turn.store, turn.now_ns);
        } else {
            self.in_sequence(received, sequence, turn);
        }
    }

    fn too_low(
        &mut self,
        received: &Received<'_>,
        sequence: u64,
        expected: u64,
        store: &mut dyn Store,
        now_ns: u64,
    ) {
        if !received.is_possible_duplicate {
            if self.link.settings.answers_any_resend_request
                && received.message_type == b"2"
                && let (Some(begin), Some(end)) =
                    (received.number(tag::BEGIN_SEQ_NO), received.number(tag::END_SEQ_NO))
            {
                self.link.begin_resend(store, begin, end);
                return;
            }
            let text = format!("MsgSeqNum too low, expecting {expected} but received {sequence}");
            self.close_with(store, &text, End::LoggedOut, now_ns);
            return;
        }
        match (received.first_sending_ns, received.sending_ns) {
            // A SequenceReset has no original message to be older than.
            (None, _) if received.message_type != b"4" => {
                let reason = if received.field(tag::ORIG_SENDING_TIME).is_some() {
                    RejectReason::IncorrectFormat
                } else {
                    RejectReason::RequiredTagMissing
                };
                self.reject(received, Rejection::of_tag(reason, tag::ORIG_SENDING_TIME), store, now_ns);
            }
            (Some(first_ns), Some(sending_ns)) if first_ns > sending_ns => {
                let rejection = Rejection { reason: RejectReason::SendingTimeAccuracy, tag: None };
                self.reject(received, rejection, store, now_ns);
                self.send_logout(store, "", now_ns);
            }
            _ => self.counters.duplicates += 1,
        }
    }

    fn in_sequence(&mut self, received: &Received<'_>, sequence: u64, turn: &mut Turn<'_>) {
        let is_valid = self.validated(received);
        if let Err(rejection) = is_valid.and_then(|()| self.check_duplicate(received)) {
            self.expect(sequence + 1, turn.store);
            self.reject(received, rejection, turn.store, turn.now_ns);
            return;
        }
        if let Err(reason) = self.check_header(received, turn.now_ns) {
            self.expect(sequence + 1, turn.store);
            self.reject(received, Rejection { reason, tag: None }, turn.store, turn.now_ns);
            self.send_logout(turn.store, "", turn.now_ns);
            return;
        }
        if received.message_type == b"4" {
            turn.application.admin(received);
            self.gap_fill(received, sequence, turn.store, turn.now_ns);
            return;
        }
        self.expect(sequence + 1, turn.store);
        if matches!(self.state, State::Over(_)) {
            return;
        }
        if received.is_admin() {
            turn.application.admin(received);
        }
        match received.message_type {
            b"1" => {
                let id = received.field(tag::TEST_REQ_ID).unwrap_or_default();
                self.reply(turn.store, b"0", &[], turn.now_ns, |writer| {
                    if !id.is_empty() {
                        writer.text(tag::TEST_REQ_ID, id);
                    }
                });
            }
            b"2" => {
                if let (Some(begin), Some(end)) =
                    (received.number(tag::BEGIN_SEQ_NO), received.number(tag::END_SEQ_NO))
                {
                    self.link.begin_resend(turn.store, begin, end);
                    self.link.pump_resend(turn.store, turn.now_ns, &mut |message| {
                        turn.application.may_resend(message)
                    });
                }
            }
            b"0" | b"3" | b"A" => {}
            _ => match turn.application.message(received, &mut self.link, turn.store, turn.now_ns) {
                Verdict::Taken => {}
                Verdict::UnsupportedType => {
                    self.business_reject(received, 3, "Unsupported Message Type", turn.store, turn.now_ns);
                }
                Verdict::Refused(reason, text) => {
                    self.business_reject(received, reason, text, turn.store, turn.now_ns)
                }
                Verdict::Rejected(rejection) => self.reject(received, rejection, turn.store, turn.now_ns),
            },
        }
    }

    pub(super) fn validated(&mut self, received: &Received<'_>) -> Result<(), Rejection> {
        let Self { dictionary, room, link, .. } = self;
        let ignored = &link.settings.ignored_tags;
        validate(dictionary, ignored, &received.message, room)
    }

    /// Checks that a possible duplicate has OrigSendingTime.
    fn check_duplicate(&self, received: &Received<'_>) -> Result<(), Rejection> {
        if received.is_possible_duplicate
            && !received.has(tag::ORIG_SENDING_TIME)
            && received.message_type != b"4"
        {
            return Err(Rejection::of_tag(RejectReason::RequiredTagMissing, tag::ORIG_SENDING_TIME));
        }
        Ok(())
    }

    /// Checks the CompIDs, and that SendingTime is within the tolerance and not before OrigSendingTime.
    pub(super) fn check_header(&self, received: &Received<'_>, now_ns: u64) -> Result<(), RejectReason> {
        let settings = &self.link.settings;
        let is_peer = received.sender_comp_id == Some(settings.target_comp_id.as_bytes())
            && received.target_comp_id == Some(settings.sender_comp_id.as_bytes());
        if !is_peer {
            return Err(RejectReason::CompIdProblem);
        }
        let is_near = |time_ns: u64| {
            settings.tolerance_ns.is_none_or(|tolerance_ns| now_ns.abs_diff(time_ns) <= tolerance_ns)
        };
        let is_later = received.is_possible_duplicate && received.first_sending_ns > received.sending_ns;
        if !received.sending_ns.is_some_and(is_near) || is_later {
            return Err(RejectReason::SendingTimeAccuracy);
        }
        Ok(())
    }

    /// Handles a SequenceReset without GapFillFlag. Its own number does not matter.
    fn reset_sequence(&mut self, received: &Received<'_>, turn: &mut Turn<'_>) {
        let is_valid = self.validated(received);
        if let Err(rejection) = is_valid {
            self.reject(received, rejection, turn.store, turn.now_ns);
            return;
        }
        if let Err(reason) = self.check_header(received, turn.now_ns) {
            self.reject(received, Rejection { reason, tag: None }, turn.store, turn.now_ns);
            self.send_logout(turn.store, "", turn.now_ns);
            return;
        }
        turn.application.admin(received);
        let expected = turn.store.next_incoming();
        match received.number(tag::NEW_SEQ_NO) {
            Some(next) if next > expected && next <= HIGHEST_SEQUENCE => self.expect(next, turn.store),
            Some(next) if next == expected => self.counters.needless_resets += 1,
            _ => {
                let rejection = Rejection { reason: RejectReason::ValueIncorrect, tag: None };
                self.reject(received, rejection, turn.store, turn.now_ns);
            }
        }
    }

    fn logout(&mut self, received: &Received<'_>, sequence: u64, turn: &mut Turn<'_>) {
        turn.application.admin(received);
        if sequence == turn.store.next_incoming() {
            self.expect(sequence + 1, turn.store);
        }
        let resets = self.link.settings.resets_on_logout;
        if let State::LoggingOut(_) = self.state {
            self.finish(End::LoggedOut);
        } else {
            self.send_logout(turn.store, "", turn.now_ns);
            let wait_ns = self.link.settings.close_timeout_ns;
            if !matches!(self.state, State::Over(_)) {
                let until_ns = turn.now_ns + wait_ns.max(SECOND_NS);
                self.state = State::Closing { until_ns, end: End::LoggedOut, waits: wait_ns > 0 };
            }
        }
        self.reset_if(resets, turn.store, turn.now_ns);
    }

    /// Counts a Logout that answers our answer.
    ///
    /// A peer may mistake our answer to its Logout for a Logout of ours and answer it: QuickFIX/J does when we are
    /// faster than the thread that sent its Logout. That second Logout has a sequence number, so the next Logon has the
    /// number after it. Nothing else is accepted while a connection closes.
    fn count_second_logout(&mut self, received: &Received<'_>, store: &mut dyn Store) {
        let is_own = received.message.begin_string() == self.link.settings.begin_string.as_bytes();
        let is_logout = matches!(self.state, State::Closing { end: End::LoggedOut, waits: true, .. })
            && received.message_type == b"5"
            && is_own;
        if is_logout && received.sequence == Some(store.next_incoming()) {
            self.expect(store.next_incoming() + 1, store);
        }
    }
}
