//! One connection of a session: logon, sequence numbers, gaps, heartbeats, logout.
//!
//! The caller passes received bytes to [`Session::receive`], calls [`Session::tick`] at least once a second, sends
//! [`Session::output`] and reports the bytes sent. When [`Session::over`] returns an end, the caller closes the
//! connection.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use tapeworks_planted::planted;
use tapeworks_wire::fix::{Framing, Garbled, Parsed, Parts, RejectReason, Writer, next_message};

use super::dictionary::Dictionary;
use super::link::{Link, ROUTING, SendError, Unsent};
use super::received::{HIGHEST_SEQUENCE, Received};
use super::settings::{Role, Settings};
use super::store::{Store, StoreError};
use super::validate::{Rejection, Room, validate, without_empty_fields};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// A gap still open this long after its ResendRequest is requested again, in nanoseconds.
const ASK_AGAIN_NS: u64 = 30 * SECOND_NS;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides logged out.
    LoggedOut,
    /// The peer closed the connection.
    Closed,
    /// The first message is not an acceptable Logon. The text has the reason and the offending values.
    Refused(String),
    /// The first message is a Logon with the wrong user or password.
    WrongPassword,
    /// No Logon arrived in time.
    NoLogon,
    /// The peer did not answer our Logout in time.
    NoLogout,
    /// The peer sent nothing and did not answer a TestRequest.
    TimedOut,
    /// The peer sent more messages than allowed.
    Throttled,
    /// More messages followed a gap than the queue holds.
    QueueFull,
    /// The store failed.
    Store(StoreError),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedOut => f.write_str("logged out"),
            Self::Closed => f.write_str("the peer closed the connection"),
            Self::Refused(why) => write!(f, "the Logon is refused: {why}"),
            Self::WrongPassword => f.write_str("the Logon is refused: not this user or password"),
            Self::NoLogon => f.write_str("no Logon in time"),
            Self::NoLogout => f.write_str("the Logout was not answered in time"),
            Self::TimedOut => f.write_str("the peer was silent for too long"),
            Self::Throttled => f.write_str("the peer sends more messages than it may"),
            Self::QueueFull => f.write_str("too many messages behind a gap"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// What the application did with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The application accepted it.
    Taken,
    /// The application does not handle this message type: BusinessMessageReject, reason 3.
    UnsupportedType,
    /// The application refused it: a BusinessMessageReject with this reason (380) and text (58).
    Refused(u32, &'static str),
    /// The message is invalid: a session reject.
    Rejected(Rejection),
}

/// The caller's side of a session.
pub trait Application {
    /// Handles an application message. Each arrives once and in order. `link` sends replies.
    fn message(
        &mut self,
        received: &Received<'_>,
        link: &mut Link,
        store: &mut dyn Store,
        now_ns: u64,
    ) -> Verdict;

    /// Observes a session message before the session acts on it.
    fn admin(&mut self, _received: &Received<'_>) {}

    /// Called when the session is logged on.
    fn logged_on(&mut self, _link: &mut Link, _store: &mut dyn Store, _now_ns: u64) {}

    /// Returns whether to resend a message. Refuse stale orders: they are gap-filled.
    fn may_resend(&mut self, _message: &[u8]) -> bool {
        true
    }
}

/// Event counters. They only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Complete messages received.
    pub received: u64,
    /// Runs of garbled bytes skipped.
    pub garbled: u64,
    /// Garbled bytes skipped.
    pub garbled_bytes: u64,
    /// Session rejects sent.
    pub rejects: u64,
    /// BusinessMessageRejects sent.
    pub business_rejects: u64,
    /// Duplicates ignored.
    pub duplicates: u64,
    /// ResendRequests sent.
    pub resend_requests: u64,
    /// SequenceResets to the number already expected.
    pub needless_resets: u64,
    /// Messages that could not be written because they are too long, for example, and unnumbered Logouts dropped after the store failed.
    pub unsent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No Logon has arrived, or ours has not been answered.
    Fresh,
    LoggedOn,
    /// We sent a Logout first, at this time.
    LoggingOut(u64),
    /// The remaining output is sent; then we close the connection, or the peer does.
    Closing {
        /// The connection ends at this time in any case.
        until_ns: u64,
        end: End,
        /// Wait for the peer to close.
        waits: bool,
    },
    Over(End),
}

/// A range of missing messages.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The highest sequence number seen.
    highest: u64,
    /// The last sequence number requested.
    asked: u64,
    asked_ns: u64,
}

/// One connection of a session.
#[derive(Debug)]
pub struct Session {
    link: Link,
    dictionary: Arc<Dictionary>,
    state: State,
    input: Vec<u8>,
    /// `input` starts with a message of the wrong length whose trailer has not arrived.
    awaits_trailer: bool,
    parts: Parts,
    room: Room,
    /// Messages after a gap.
    queue: BTreeMap<u64, Box<[u8]>>,
    queued_bytes: usize,
    gap: Option<Gap>,
    heartbeat_ns: u64,
    started_ns: u64,
    received_ns: u64,
    /// TestRequests sent since a message was last received.
    tests: u64,
    /// The throttle's current second, and the messages received in it.
    throttle: (u64, u32),
    counters: Counters,
}

impl Session {
    /// Creates a session for a new connection. The first [`Session::tick`] sends an initiator's Logon.
    #[must_use]
    pub fn new(settings: Settings, dictionary: Arc<Dictionary>, now_ns: u64) -> Self {
        let heartbeat_ns = u64::from(settings.heartbeat_s) * SECOND_NS;
        Self {
            link: Link::new(settings, now_ns),
            dictionary,
            state: State::Fresh,
            input: Vec::new(),
            awaits_trailer: false,
            parts: Parts::new(),
            room: Room::default(),
            queue: BTreeMap::new(),
            queued_bytes: 0,
            gap: None,
            heartbeat_ns,
            started_ns: now_ns,
            received_ns: now_ns,
            tests: 0,
            throttle: (0, 0),
            counters: Counters::default(),
        }
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.link.settings
    }

    /// Returns the event counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the bytes held for an incomplete message, and for messages after a gap.
    #[must_use]
    pub fn held_bytes(&self) -> (usize, usize) {
        debug_assert_eq!(self.queued_bytes, self.queue.values().map(|message| message.len()).sum::<usize>());
        (self.input.len(), self.queued_bytes)
    }

    /// Returns whether both sides have sent a Logon and neither a Logout.
    #[must_use]
    pub fn is_logged_on(&self) -> bool {
        self.state == State::LoggedOn
    }

    /// Returns why the connection must be closed, or `None` while it is open. Nothing is sent after the end.
    #[must_use]
    pub fn over(&self) -> Option<&End> {
        match &self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if matches!(self.state, State::Over(_)) { &[] } else { self.link.output() }
    }

    /// Records that `count` bytes of the output were sent. [`Session::resend`] and [`Session::tick`] continue a resend that had no room.
    pub fn sent(&mut self, count: usize) {
        self.link.take(count);
        self.close_if_sent();
    }

    /// Returns whether [`Session::resend`] has something to do.
    #[must_use]
    pub fn has_to_resend(&self) -> bool {
        self.link.goes_on() && !matches!(self.state, State::Over(_))
    }

    /// Continues a long resend as far as the output has room.
    pub fn resend(&mut self, store: &mut dyn Store, application: &mut dyn Application, now_ns: u64) {
        if self.has_to_resend() {
            self.pump(store, application, now_ns);
        }
    }

    /// Returns the sending half, for the caller's messages.
    pub const fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Shifts all timers after the caller's clock was set ahead by this many nanoseconds (back, if negative), so that
    /// the jump does not count as elapsed time.
    pub fn clock_was_set(&mut self, ahead_ns: i64) {
        let move_by = |time_ns: &mut u64| *time_ns = time_ns.saturating_add_signed(ahead_ns);
        move_by(&mut self.started_ns);
        move_by(&mut self.received_ns);
        move_by(&mut self.link.sent_ns);
        if let Some(gap) = &mut self.gap {
            move_by(&mut gap.asked_ns);
        }
        match &mut self.state {
            State::LoggingOut(time_ns) | State::Closing { until_ns: time_ns, .. } => move_by(time_ns),
            _ => {}
        }
    }

    /// Records that the peer closed the connection.
    pub fn closed(&mut self, store: &mut dyn Store, now_ns: u64) {
        if let State::Over(_) = self.state {
            return;
        }
        let end = match &self.state {
            State::Closing { end, .. } => end.clone(),
            _ => End::Closed,
        };
        self.finish(end);
        self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
    }

    /// Sends a Logout and waits for the peer's.
    pub fn log_out(&mut self, store: &mut dyn Store, text: &str, now_ns: u64) {
        if self.state == State::LoggedOn {
            self.send_logout(store, text, now_ns);
        }
    }

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
                        self.process(message, true, store, application, now_ns);
                        self.drain_queue(store, application, now_ns);
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
        self.pump(store, application, now_ns);
    }

    fn garbled(&mut self, length: usize, why: Garbled) {
        self.counters.garbled += 1;
        self.counters.garbled_bytes += length as u64;
        if self.state == State::Fresh && why != Garbled::Junk {
            self.finish(End::Refused("the first message is garbled".to_owned()));
        }
    }

    /// Runs the timers: heartbeats, TestRequests, timeouts, and resends in progress.
    pub fn tick(&mut self, store: &mut dyn Store, application: &mut dyn Application, now_ns: u64) {
        match self.state.clone() {
            State::Fresh => {
                if self.link.settings.role == Role::Initiator && self.link.messages_sent == 0 {
                    self.send_first_logon(store, now_ns);
                }
                if now_ns.saturating_sub(self.started_ns) >= self.link.settings.logon_timeout_ns {
                    self.finish(End::NoLogon);
                }
            }
            State::LoggedOn => self.tick_logged_on(store, now_ns),
            State::LoggingOut(since_ns) => {
                if now_ns.saturating_sub(since_ns) >= self.link.settings.logout_timeout_ns {
                    self.finish(End::NoLogout);
                    self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
                }
            }
            State::Closing { until_ns, end, .. } => {
                if now_ns >= until_ns {
                    self.finish(end);
                }
            }
            State::Over(_) => return,
        }
        self.pump(store, application, now_ns);
    }

    fn tick_logged_on(&mut self, store: &mut dyn Store, now_ns: u64) {
        if let Some(schedule) = &self.link.settings.schedule
            && schedule.began_ns(now_ns).is_none()
        {
            self.send_logout(store, "the session's hours are over", now_ns);
            return;
        }
        if let Some(gap) = self.gap
            && now_ns.saturating_sub(gap.asked_ns) >= ASK_AGAIN_NS
        {
            self.ask(gap.highest, store, now_ns);
        }
        if self.heartbeat_ns == 0 {
            return;
        }
        let silent_ns = now_ns.saturating_sub(self.received_ns);
        // A fifth of the interval is allowed for the transit time.
        let patience_ns = self.heartbeat_ns + self.heartbeat_ns / 5;
        if silent_ns >= 2 * patience_ns && self.tests > 0 {
            self.finish(End::TimedOut);
            self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
        } else if silent_ns >= patience_ns && self.tests == 0 {
            self.tests = 1;
            self.reply(store, b"1", &[], now_ns, |writer| _ = writer.text(112, b"TEST"));
        } else if self.tests == 0 && now_ns.saturating_sub(self.link.sent_ns) >= self.heartbeat_ns {
            self.reply(store, b"0", &[], now_ns, |_| {});
        }
    }

    fn pump(&mut self, store: &mut dyn Store, application: &mut dyn Application, now_ns: u64) {
        self.link.pump_resend(store, now_ns, &mut |message| application.may_resend(message));
        if let Some(failure) = self.link.failure.clone() {
            self.finish(End::Store(failure));
        }
        self.close_if_sent();
    }

    // ---- sending -----------------------------------------------------------------------------------------

    /// Sends a session message. If the store fails, the session ends.
    fn reply(
        &mut self,
        store: &mut dyn Store,
        message_type: &[u8],
        header: &[(u32, &[u8])],
        now_ns: u64,
        body: impl FnOnce(&mut Writer<'_>),
    ) {
        match self.link.send_any(store, now_ns, message_type, header, body) {
            Ok(_) => {}
            Err(SendError::Store(error)) => self.finish(End::Store(error)),
            Err(_) => self.counters.unsent += 1,
        }
    }

    fn send_first_logon(&mut self, store: &mut dyn Store, now_ns: u64) {
        let resets = self.link.settings.resets_on_logon;
        // Orders of the previous session are not sent in this one.
        let _stale = self.begin_session(store, now_ns);
        self.reset_if(resets, store, now_ns);
        let heartbeat_s = self.link.settings.heartbeat_s;
        self.send_logon(store, u64::from(heartbeat_s), resets, now_ns);
    }

    fn send_logon(&mut self, store: &mut dyn Store, heartbeat_s: u64, resets: bool, now_ns: u64) {
        let version = self.link.settings.default_appl_ver_id.clone().filter(|_| self.link.settings.is_fixt());
        let is_initiator = self.link.settings.role == Role::Initiator;
        let credentials = self.link.settings.credentials.clone().filter(|_| is_initiator);
        self.reply(store, b"A", &[], now_ns, |writer| {
            writer.number(98, 0).number(108, heartbeat_s);
            if resets {
                writer.flag(141, true);
            }
            if let Some((user, password)) = &credentials {
                writer.text(553, user.as_bytes()).text(554, password.as_bytes());
            }
            if let Some(version) = &version {
                writer.text(1137, version.as_bytes());
            }
        });
    }

    fn send_logout(&mut self, store: &mut dyn Store, text: &str, now_ns: u64) {
        self.reply(store, b"5", &[], now_ns, |writer| {
            if !text.is_empty() {
                writer.text(58, text.as_bytes());
            }
        });
        if !matches!(self.state, State::Over(_)) {
            self.state = State::LoggingOut(now_ns);
        }
        self.link.is_open = false;
    }

    /// Sends a Logout with the reason, then closes the connection.
    fn close_with(&mut self, store: &mut dyn Store, text: &str, end: End, now_ns: u64) {
        self.send_logout(store, text, now_ns);
        self.close(end, now_ns);
        self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
    }

    /// Does the same with a Logout that is not stored and leaves the number `next` to the next message.
    fn close_unnumbered(&mut self, next: u64, text: &str, end: End, now_ns: u64) {
        let sent = self.link.send_unkept(next, now_ns, b"5", |writer| _ = writer.text(58, text.as_bytes()));
        self.counters.unsent += u64::from(sent.is_err());
        self.close(end, now_ns);
    }

    /// Closes the connection once the output is sent.
    fn close(&mut self, end: End, now_ns: u64) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Closing { until_ns: now_ns + SECOND_NS, end, waits: false };
        }
        self.link.is_open = false;
        self.link.resend = None;
    }

    fn close_if_sent(&mut self) {
        if let State::Closing { end, waits: false, .. } = &self.state
            && self.link.output().is_empty()
        {
            let end = end.clone();
            self.finish(end);
        }
    }

    fn finish(&mut self, end: End) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
        self.link.is_open = false;
        self.queue.clear();
        self.queued_bytes = 0;
    }

    fn reset_if(&mut self, condition: bool, store: &mut dyn Store, now_ns: u64) {
        if condition {
            let reset = store.reset(now_ns);
            self.check(reset);
            self.queue.clear();
            self.queued_bytes = 0;
            self.gap = None;
            self.link.resend = None;
        }
    }

    /// Ends the session if the store failed.
    fn check(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.finish(End::Store(error));
        }
    }

    /// Returns when the schedule's current session began, if the store still has an earlier session's sequence numbers.
    fn began_ns(&self, store: &dyn Store, now_ns: u64) -> Option<u64> {
        let began_ns = self.link.settings.schedule.as_ref()?.began_ns(now_ns)?;
        Some(began_ns).filter(|began_ns| store.created_ns() < *began_ns)
    }

    /// Starts the schedule's new session with both numbers at 1, if one is due.
    ///
    /// Returns the previous session's unsent messages, newest first.
    fn begin_session(&mut self, store: &mut dyn Store, now_ns: u64) -> Vec<Unsent> {
        let (Some(began_ns), Some(schedule)) =
            (self.began_ns(store, now_ns), self.link.settings.schedule.clone())
        else {
            return Vec::new();
        };
        match self.link.unsent(store, &schedule, began_ns) {
            Ok(unsent) => {
                self.reset_if(true, store, now_ns);
                unsent
            }
            Err(error) => {
                self.finish(End::Store(error));
                Vec::new()
            }
        }
    }

    /// Sends a session reject with the routing fields reversed.
    fn reject(&mut self, received: &Received<'_>, rejection: Rejection, store: &mut dyn Store, now_ns: u64) {
        self.counters.rejects += 1;
        let (header, used) = reversed(received);
        let header = header.get(..used).unwrap_or_default();
        let message_type = received.message_type;
        let has_reason = rejection.reason.number() <= 11 || self.link.settings.begin_string != "FIX.4.2";
        self.reply(store, b"3", header, now_ns, |writer| {
            writer.number(45, received.sequence.unwrap_or(0)).text(58, rejection.reason.text().as_bytes());
            if let Some(tag) = rejection.tag {
                writer.signed(371, tag);
            }
            if !message_type.is_empty() {
                writer.text(372, message_type);
            }
            if has_reason {
                writer.number(373, u64::from(rejection.reason.number()));
            }
        });
    }

    fn business_reject(
        &mut self,
        received: &Received<'_>,
        reason: u32,
        text: &str,
        store: &mut dyn Store,
        now_ns: u64,
    ) {
        self.counters.business_rejects += 1;
        let (header, used) = reversed(received);
        let header = header.get(..used).unwrap_or_default();
        let settings = &self.link.settings;
        let version = settings.default_appl_ver_id.clone().filter(|_| settings.version_in_business_reject);
        self.reply(store, b"j", header, now_ns, |writer| {
            writer.number(45, received.sequence.unwrap_or(0)).text(58, text.as_bytes());
            writer.text(372, received.message_type).number(380, u64::from(reason));
            if let Some(version) = &version {
                writer.text(1137, version.as_bytes());
            }
        });
    }

    // ---- receiving ---------------------------------------------------------------------------------------

    fn process(
        &mut self,
        message: &[u8],
        is_counted: bool,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        let mut parts = core::mem::take(&mut self.parts);
        match parts.split(message) {
            Some(parsed) => self.process_parsed(parsed, is_counted, store, application, now_ns),
            None => self.garbled(message.len(), Garbled::FirstFields),
        }
        self.parts = parts;
    }

    fn process_parsed(
        &mut self,
        parsed: Parsed<'_>,
        is_counted: bool,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        if self.link.settings.ignores_empty_fields
            && let Some(filled) = without_empty_fields(&parsed)
        {
            return self.process(&filled, is_counted, store, application, now_ns);
        }
        let received = Received::new(parsed, &mut self.room.last);
        self.received_ns = now_ns;
        self.tests = 0;
        if !is_counted || self.is_requested(&received, store) || self.is_within_throttle(now_ns) {
            self.process_received(&received, store, application, now_ns);
        } else {
            self.close_with(store, "too many messages in a second", End::Throttled, now_ns);
        }
    }

    /// Returns whether the message is the next one that our ResendRequest asked for.
    ///
    /// The throttle exempts these messages because the peer does not choose how many arrive in a second. Each number is
    /// exempt once, and none above the highest that the peer sent before.
    fn is_requested(&self, received: &Received<'_>, store: &dyn Store) -> bool {
        let Some(gap) = self.gap.filter(|_| received.is_possible_duplicate) else { return false };
        let is_of_gap = |sequence: &u64| *sequence <= gap.highest.min(gap.asked);
        received.sequence.filter(is_of_gap) == Some(store.next_incoming())
    }

    fn is_within_throttle(&mut self, now_ns: u64) -> bool {
        let Some(most) = self.link.settings.throttle_per_second else { return true };
        let second = now_ns / SECOND_NS;
        if self.throttle.0 != second {
            self.throttle = (second, 0);
        }
        self.throttle.1 = self.throttle.1.saturating_add(1);
        self.throttle.1 <= most
    }

    fn process_received(
        &mut self,
        received: &Received<'_>,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        if matches!(self.state, State::Over(_)) {
            return;
        }
        if matches!(self.state, State::Closing { .. }) {
            self.count_second_logout(received, store);
            return;
        }
        let is_logon = received.message_type == b"A";
        if self.state == State::Fresh && !is_logon {
            if received.message_type == b"5" && self.link.settings.role == Role::Initiator {
                // The Logout says why our Logon was refused.
                application.admin(received);
                self.finish(refused("the peer logs out", &[58], received));
            } else {
                self.finish(refused("the first message is no Logon", &[35], received));
            }
            return;
        }
        if received.message.begin_string() != self.link.settings.begin_string.as_bytes() {
            match self.state {
                State::Fresh => self.finish(refused("another BeginString", &[8], received)),
                State::LoggedOn => self.send_logout(store, "Incorrect BeginString", now_ns),
                _ => {}
            }
            return;
        }
        let Some(sequence) = received.sequence else {
            match self.state {
                State::Fresh => self.finish(refused("a Logon without a valid MsgSeqNum", &[34], received)),
                _ => self.close_with(store, "MsgSeqNum is missing or not valid", End::LoggedOut, now_ns),
            }
            return;
        };
        let is_reset = is_logon && received.is_set(141);
        if is_logon && (self.state == State::Fresh || is_reset) {
            application.admin(received);
            self.logon(received, sequence, store, application, now_ns);
            return;
        }
        // A Logout is accepted whatever its number, and so is a reset.
        match received.message_type {
            b"5" => return self.logout(received, sequence, store, application, now_ns),
            b"4" if !received.is_set(123) => {
                return self.reset_sequence(received, store, application, now_ns);
            }
            _ => {}
        }
        let expected = store.next_incoming();
        if sequence > expected {
            self.too_high(received, sequence, store, now_ns);
        } else if sequence < expected
            && !(received.is_possible_duplicate && planted!("duplicate-taken-again"))
        {
            self.too_low(received, sequence, expected, store, now_ns);
        } else {
            self.in_sequence(received, sequence, store, application, now_ns);
        }
    }

    fn too_high(&mut self, received: &Received<'_>, sequence: u64, store: &mut dyn Store, now_ns: u64) {
        // Answered immediately: two sides that wait for each other's messages would wait forever.
        if received.message_type == b"2"
            && !self.queue.contains_key(&sequence)
            && let (Some(begin), Some(end)) = (received.number(7), received.number(16))
        {
            self.link.begin_resend(store, begin, end);
        }
        let message = received.message.bytes();
        if !self.queue.contains_key(&sequence) {
            if self.queued_bytes + message.len() > self.link.settings.queue_limit_bytes {
                self.close_with(store, "too many messages behind a gap", End::QueueFull, now_ns);
                return;
            }
            self.queued_bytes += message.len();
            self.queue.insert(sequence, message.into());
        }
        match &mut self.gap {
            Some(gap) => gap.highest = gap.highest.max(sequence),
            None => self.ask(sequence, store, now_ns),
        }
    }

    /// Requests the messages missing up to `highest`.
    fn ask(&mut self, highest: u64, store: &mut dyn Store, now_ns: u64) {
        let begin = store.next_incoming();
        let bound = self.link.settings.resend_bound;
        let end = if bound == 0 {
            0
        } else {
            begin.saturating_add(bound - 1).min(highest.saturating_sub(1)).max(begin)
        };
        self.counters.resend_requests += 1;
        self.gap = Some(Gap { highest, asked: if end == 0 { u64::MAX } else { end }, asked_ns: now_ns });
        self.reply(store, b"2", &[], now_ns, |writer| _ = writer.number(7, begin).number(16, end));
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
                && let (Some(begin), Some(end)) = (received.number(7), received.number(16))
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
                let reason = if received.field(122).is_some() {
                    RejectReason::IncorrectFormat
                } else {
                    RejectReason::RequiredTagMissing
                };
                self.reject(received, Rejection { reason, tag: Some(122) }, store, now_ns);
            }
            (Some(first_ns), Some(sending_ns)) if first_ns > sending_ns => {
                let rejection = Rejection { reason: RejectReason::SendingTimeAccuracy, tag: None };
                self.reject(received, rejection, store, now_ns);
                self.send_logout(store, "", now_ns);
            }
            _ => self.counters.duplicates += 1,
        }
    }

    fn in_sequence(
        &mut self,
        received: &Received<'_>,
        sequence: u64,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        let is_valid = self.validated(received);
        if let Err(rejection) = is_valid.and_then(|()| self.check_duplicate(received)) {
            self.expect(sequence + 1, store);
            self.reject(received, rejection, store, now_ns);
            return;
        }
        if let Err(reason) = self.check_header(received, now_ns) {
            self.expect(sequence + 1, store);
            self.reject(received, Rejection { reason, tag: None }, store, now_ns);
            self.send_logout(store, "", now_ns);
            return;
        }
        if received.message_type == b"4" {
            application.admin(received);
            self.gap_fill(received, sequence, store, now_ns);
            return;
        }
        self.expect(sequence + 1, store);
        if matches!(self.state, State::Over(_)) {
            return;
        }
        if received.is_admin() {
            application.admin(received);
        }
        match received.message_type {
            b"1" => {
                let id = received.field(112).unwrap_or_default();
                self.reply(store, b"0", &[], now_ns, |writer| {
                    if !id.is_empty() {
                        writer.text(112, id);
                    }
                });
            }
            b"2" => {
                if let (Some(begin), Some(end)) = (received.number(7), received.number(16)) {
                    self.link.begin_resend(store, begin, end);
                    self.link.pump_resend(store, now_ns, &mut |message| application.may_resend(message));
                }
            }
            b"0" | b"3" | b"A" => {}
            _ => match application.message(received, &mut self.link, store, now_ns) {
                Verdict::Taken => {}
                Verdict::UnsupportedType => {
                    self.business_reject(received, 3, "Unsupported Message Type", store, now_ns);
                }
                Verdict::Refused(reason, text) => self.business_reject(received, reason, text, store, now_ns),
                Verdict::Rejected(rejection) => self.reject(received, rejection, store, now_ns),
            },
        }
    }

    fn validated(&mut self, received: &Received<'_>) -> Result<(), Rejection> {
        let Self { dictionary, room, link, .. } = self;
        let ignored = &link.settings.ignored_tags;
        validate(dictionary, ignored, &received.message, room)
    }

    /// Checks that a possible duplicate has OrigSendingTime.
    fn check_duplicate(&self, received: &Received<'_>) -> Result<(), Rejection> {
        if received.is_possible_duplicate && !received.has(122) && received.message_type != b"4" {
            return Err(Rejection { reason: RejectReason::RequiredTagMissing, tag: Some(122) });
        }
        Ok(())
    }

    /// Checks the CompIDs, and that SendingTime is within the tolerance and not before OrigSendingTime.
    fn check_header(&self, received: &Received<'_>, now_ns: u64) -> Result<(), RejectReason> {
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

    /// Sets the number expected next, and closes the gap once it is filled.
    fn expect(&mut self, sequence: u64, store: &mut dyn Store) {
        let result = store.set_next_incoming(sequence);
        self.check(result);
        if let Some(gap) = self.gap
            && sequence > gap.highest
        {
            self.gap = None;
        }
    }

    /// Processes the queued messages that follow a filled gap, and requests the next part of a longer gap.
    fn drain_queue(&mut self, store: &mut dyn Store, application: &mut dyn Application, now_ns: u64) {
        while let Some(entry) = self.queue.first_entry() {
            let expected = store.next_incoming();
            if *entry.key() > expected {
                break;
            }
            let is_next = *entry.key() == expected;
            let message = entry.remove();
            self.queued_bytes -= message.len();
            if !is_next {
                continue;
            }
            // A ResendRequest was answered when it arrived.
            if tapeworks_wire::fix::message_type(&message) == b"2" {
                self.expect(expected + 1, store);
            } else {
                // The throttle counted the message when it arrived.
                self.process(&message, false, store, application, now_ns);
            }
        }
        if let Some(gap) = self.gap
            && self.state == State::LoggedOn
            && store.next_incoming() > gap.asked
            && store.next_incoming() < gap.highest
        {
            self.ask(gap.highest, store, now_ns);
        }
    }

    /// Handles a SequenceReset with GapFillFlag, in sequence.
    fn gap_fill(&mut self, received: &Received<'_>, sequence: u64, store: &mut dyn Store, now_ns: u64) {
        match received.number(36) {
            Some(next) if next > sequence && next <= HIGHEST_SEQUENCE => self.expect(next, store),
            // The expected number never decreases.
            _ => {
                self.expect(sequence + 1, store);
                let rejection = Rejection { reason: RejectReason::ValueIncorrect, tag: Some(36) };
                self.reject(received, rejection, store, now_ns);
            }
        }
    }

    /// Handles a SequenceReset without GapFillFlag. Its own number does not matter.
    fn reset_sequence(
        &mut self,
        received: &Received<'_>,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        let is_valid = self.validated(received);
        if let Err(rejection) = is_valid {
            self.reject(received, rejection, store, now_ns);
            return;
        }
        if let Err(reason) = self.check_header(received, now_ns) {
            self.reject(received, Rejection { reason, tag: None }, store, now_ns);
            self.send_logout(store, "", now_ns);
            return;
        }
        application.admin(received);
        let expected = store.next_incoming();
        match received.number(36) {
            Some(next) if next > expected && next <= HIGHEST_SEQUENCE => self.expect(next, store),
            Some(next) if next == expected => self.counters.needless_resets += 1,
            _ => {
                let rejection = Rejection { reason: RejectReason::ValueIncorrect, tag: None };
                self.reject(received, rejection, store, now_ns);
            }
        }
    }

    fn logout(
        &mut self,
        received: &Received<'_>,
        sequence: u64,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        application.admin(received);
        if sequence == store.next_incoming() {
            self.expect(sequence + 1, store);
        }
        let resets = self.link.settings.resets_on_logout;
        if let State::LoggingOut(_) = self.state {
            self.finish(End::LoggedOut);
        } else {
            self.send_logout(store, "", now_ns);
            let wait_ns = self.link.settings.close_timeout_ns;
            if !matches!(self.state, State::Over(_)) {
                let until_ns = now_ns + wait_ns.max(SECOND_NS);
                self.state = State::Closing { until_ns, end: End::LoggedOut, waits: wait_ns > 0 };
            }
        }
        self.reset_if(resets, store, now_ns);
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

    // ---- logon -------------------------------------------------------------------------------------------

    fn logon(
        &mut self,
        received: &Received<'_>,
        sequence: u64,
        store: &mut dyn Store,
        application: &mut dyn Application,
        now_ns: u64,
    ) {
        if let Err(why) = self.check_logon(received, now_ns) {
            let Refusal::Wrong(answer, text, tags) = why else { return self.finish(End::WrongPassword) };
            let end = refused(text, &tags, received);
            return match answer {
                Answer::Logout => self.close_with(store, text, end, now_ns),
                Answer::Unnumbered => self.close_unnumbered(store.next_outgoing(), text, end, now_ns),
                Answer::None => self.finish(end),
            };
        }
        let is_acceptor = self.link.settings.role == Role::Acceptor;
        let is_first = self.state == State::Fresh;
        let resets = received.is_set(141);
        let begins_anew = resets
            || (is_first && self.link.settings.resets_on_logon)
            || (is_acceptor && self.began_ns(store, now_ns).is_some());
        let next = if begins_anew && is_acceptor { 1 } else { store.next_outgoing() };
        if let Some(wanted) = received.number(789).filter(|wanted| *wanted > next) {
            let text = format!("NextExpectedMsgSeqNum too high, the next is {next} and not {wanted}");
            let end = End::Refused(text.clone());
            // Unnumbered, because consuming a number would bring the peer's next attempt closer to being accepted.
            return self.close_unnumbered(store.next_outgoing(), &text, end, now_ns);
        }
        let mut unsent = Vec::new();
        if is_acceptor || !is_first {
            unsent = self.begin_session(store, now_ns);
            self.reset_if(resets || (self.link.settings.resets_on_logon && is_first), store, now_ns);
        } else if resets {
            // An answer to our Logon with ResetSeqNumFlag, or a reset by the peer. Our own numbers already start with our Logon.
            let result = store.set_next_incoming(1);
            self.check(result);
        }
        if matches!(self.state, State::Over(_)) {
            return;
        }
        let expected = store.next_incoming();
        if sequence < expected && !received.is_possible_duplicate {
            let text = format!("MsgSeqNum too low, expecting {expected} but received {sequence}");
            self.close_with(store, &text, End::Refused(text.clone()), now_ns);
            return;
        }
        let heartbeat_s = received.number(108).unwrap_or(0);
        self.heartbeat_ns = heartbeat_s.saturating_mul(SECOND_NS);
        if sequence == expected {
            self.expect(sequence + 1, store);
        }
        if is_acceptor {
            self.send_logon(store, heartbeat_s, resets, now_ns);
        }
        if matches!(self.state, State::Over(_)) {
            return;
        }
        self.state = State::LoggedOn;
        self.link.is_open = true;
        *store.unsent_from() = None;
        let after_logon = store.next_outgoing();
        match self.link.send_unsent(store, now_ns, &unsent) {
            Ok(failed) => self.counters.unsent += failed,
            Err(error) => return self.finish(End::Store(error)),
        }
        if sequence > expected {
            self.ask(sequence + 1, store, now_ns);
            if let Some(gap) = &mut self.gap {
                // The request covers the Logon itself.
                gap.highest = sequence;
            }
        }
        // NextExpectedMsgSeqNum (789): the peer says which of our messages it has.
        if let Some(next) = received.number(789)
            && next > 0
            && next < after_logon.saturating_sub(u64::from(is_acceptor))
        {
            self.link.begin_resend(store, next, 0);
        }
        if is_first {
            application.logged_on(&mut self.link, store, now_ns);
        }
    }

    /// Checks a Logon: its header, version, credentials, hours, fields and settings.
    fn check_logon(&mut self, received: &Received<'_>, now_ns: u64) -> Result<(), Refusal> {
        self.check_header(received, now_ns).map_err(|reason| match reason {
            RejectReason::CompIdProblem => Refusal::Wrong(Answer::None, "another CompID", vec![49, 56]),
            // A peer that is off by a day or more gets no answer, as the acceptance suite requires.
            _ => {
                let is_near = received.sending_ns.is_some_and(|sent_ns| now_ns.abs_diff(sent_ns) < DAY_NS);
                let answer = if is_near { Answer::Unnumbered } else { Answer::None };
                Refusal::Wrong(answer, "SendingTime is too far from now", vec![52])
            }
        })?;
        let settings = &self.link.settings;
        if settings.is_fixt() {
            let version = received.field(1137);
            let version = version.ok_or(Refusal::Wrong(Answer::None, "no DefaultApplVerID", vec![]))?;
            let wanted = settings.default_appl_ver_id.as_deref();
            if wanted.is_some_and(|wanted| wanted.as_bytes() != version) {
                return Err(Refusal::Wrong(Answer::Logout, "DefaultApplVerID is not supported", vec![1137]));
            }
        }
        if let Some((user, password)) =
            settings.credentials.as_ref().filter(|_| settings.role == Role::Acceptor)
        {
            let is_same =
                |tag, wanted: &str| received.field(tag).unwrap_or_default().ct_eq(wanted.as_bytes());
            if !bool::from(is_same(553, user) & is_same(554, password)) {
                return Err(Refusal::WrongPassword);
            }
        }
        if settings.schedule.as_ref().is_some_and(|schedule| schedule.began_ns(now_ns).is_none()) {
            // No session is running that could number a Logout.
            return Err(Refusal::Wrong(Answer::Unnumbered, "outside of the session's hours", vec![]));
        }
        let is_valid = self.validated(received);
        if let Err(rejection) = is_valid {
            let tags = rejection.tag.and_then(|tag| u32::try_from(tag).ok()).into_iter().collect();
            return Err(Refusal::Wrong(Answer::Logout, rejection.reason.text(), tags));
        }
        let settings = &self.link.settings;
        if received.number(98) != Some(0) {
            return Err(Refusal::Wrong(Answer::Logout, "EncryptMethod is not supported", vec![98]));
        }
        let range = u64::from(settings.needs_heartbeats)..=u64::from(settings.longest_heartbeat_s);
        if received.number(108).is_none_or(|seconds| !range.contains(&seconds)) {
            return Err(Refusal::Wrong(Answer::Logout, "HeartBtInt is out of range", vec![108]));
        }
        Ok(())
    }
}

/// Why a Logon is refused.
enum Refusal {
    /// The answer to the peer, the reason, and the offending tags.
    Wrong(Answer, &'static str, Vec<u32>),
    /// The connection is closed without an answer.
    WrongPassword,
}

/// The answer to a refused Logon before the connection is closed.
enum Answer {
    /// A Logout with the reason: the peer is known and may learn it.
    Logout,
    /// A Logout that consumes no sequence number.
    Unnumbered,
    /// No answer.
    None,
}

/// Tags whose values may be logged. Others may be passwords, which clients also put into RawData (96) and custom tags.
const SHOWN: [u32; 10] = [8, 34, 35, 49, 52, 56, 58, 98, 108, 1137];

/// Builds the end of a connection whose first message is refused, with the values of these tags.
fn refused(why: &str, tags: &[u32], received: &Received<'_>) -> End {
    let mut text = why.to_owned();
    for tag in tags {
        let value = if *tag == 8 { Some(received.message.begin_string()) } else { received.field(*tag) };
        text.push_str(&match value {
            Some(value) if SHOWN.contains(tag) => format!(", tag {tag} is '{}'", shown(value)),
            Some(_) => format!(", tag {tag}"),
            None => format!(", tag {tag} is missing"),
        });
    }
    End::Refused(text)
}

/// The most bytes of a value to show.
const MOST_SHOWN: usize = 64;

/// Renders a value from a peer for the log: its first 64 bytes, with unprintable bytes escaped.
#[must_use]
pub fn shown(value: &[u8]) -> String {
    value.get(..MOST_SHOWN).unwrap_or(value).escape_ascii().to_string()
}

/// Returns the routing fields of an answer, and how many there are.
fn reversed<'a>(received: &Received<'a>) -> ([(u32, &'a [u8]); ROUTING.len()], usize) {
    let mut header = [(0, &b""[..]); ROUTING.len()];
    let found = ROUTING.iter().filter_map(|(from, to)| received.field(*from).map(|value| (*to, value)));
    let mut used = 0;
    for (place, field) in header.iter_mut().zip(found) {
        *place = field;
        used += 1;
    }
    (header, used)
}
