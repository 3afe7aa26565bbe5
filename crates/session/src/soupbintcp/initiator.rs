//! A client's end of SoupBinTCP: it logs in from the next message on, sends unsequenced messages, and counts the sequenced ones.
//!
//! The caller opens a connection where [`SoupInitiator::wants`] says so, moves the bytes, and closes what is
//! [`SoupInitiator::over`]. Each sequenced message comes once and in order: after a break the login names the session and the
//! next number. Both are saved ([`SoupInitiator::place`]) and restored, so that a restart goes on there.
//!
//! Cost: a message is handed on where it lies in the received bytes, unless it was cut.

use tapeworks_wire::nasdaq::soupbintcp::{
    ClientHeartbeat, LoginRequest, LoginRequestFields, LogoutRequest, Message, RejectReasonCode,
    UnsequencedData,
};
use tapeworks_wire::{Ascii, AsciiNumber};
use thiserror::Error;

use crate::login::{
    Credentials, HEARTBEAT_NS, LOGIN_TIMEOUT_NS, LONGEST_PACKET_BYTES, PacketReader, STALL_TIMEOUT_NS,
};
use crate::outgoing::Outgoing;

/// The longest packet that a server may send, in bytes with its length.
const LONGEST_SERVER_PACKET_BYTES: usize = 4_096;

/// Where a client is in a server's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoupPlace {
    /// The session; blank: whichever runs.
    pub session: [u8; 10],
    /// The number of the next message; the first has 1.
    pub next: u64,
}

impl Default for SoupPlace {
    /// The start of whichever session runs.
    fn default() -> Self {
        Self { session: [b' '; 10], next: 1 }
    }
}

/// What a client needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoupInitiatorSettings {
    /// The user, up to 6 characters, and the password, up to 10.
    pub credentials: Credentials,
    /// The wait before a connection is opened again, in nanoseconds. It doubles with each that fails. 1 s.
    pub first_reconnect_ns: u64,
    /// The longest such wait, in nanoseconds. 30 s.
    pub longest_reconnect_ns: u64,
    /// How many bytes may wait to be sent before [`SoupInitiator::send`] refuses. 1 MiB.
    pub output_bytes: usize,
    /// It logs in for the next message first (number 0), and so learns how many there are; if some are missing, it logs in once more, from
    /// its own place. Then [`SoupInitiator::is_caught_up`] is exact. No.
    pub finds_end: bool,
}

impl SoupInitiatorSettings {
    /// The defaults with these credentials.
    #[must_use]
    pub const fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            first_reconnect_ns: 1_000_000_000,
            longest_reconnect_ns: 30_000_000_000,
            output_bytes: 1 << 20,
            finds_end: false,
        }
    }
}

/// The user or the password does not fit into its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the user has more than 6 characters, or the password more than 10, or other than printable ASCII")]
pub struct CredentialsTooLong;

/// Why a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SoupSendError {
    /// The client is not logged in.
    #[error("the session is not logged in")]
    NotLoggedIn,
    /// The server reads too slowly.
    #[error("{unsent} bytes wait to be sent")]
    Backlog {
        /// Bytes that wait.
        unsent: usize,
    },
    /// A packet of a client cannot hold the message.
    #[error("a message of {length} bytes cannot be sent")]
    Length {
        /// Its bytes.
        length: usize,
    },
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoupInitiatorEnd {
    /// The server ended the session.
    EndOfSession,
    /// The login was rejected.
    Rejected(RejectReasonCode),
    /// The server sent an invalid packet.
    Malformed,
    /// The server did not answer the login in time.
    NoAnswer,
    /// The server sent nothing, or read nothing, for too long.
    TimedOut,
    /// The server closed the connection.
    Closed,
    /// The caller logged out.
    LoggedOut,
    /// It knows how many messages there are, and logs in once more.
    FoundEnd,
}

/// What happened on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoupEvent<'a> {
    /// The login is accepted.
    LoggedIn {
        /// The session and the number of its next message.
        place: SoupPlace,
        /// It is another session than before: its numbers begin anew, and what the one before had left is not known.
        is_new_session: bool,
    },
    /// A sequenced message: once, and in order.
    Message {
        /// Its number.
        number: u64,
        /// The message.
        message: &'a [u8],
    },
    /// The server does not have these messages any more.
    Missing {
        /// The first missing number.
        first: u64,
        /// How many.
        count: u64,
    },
    /// The connection ended.
    Ended(SoupInitiatorEnd),
}

/// What a client counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoupInitiatorCounters {
    /// Sequenced messages handed on.
    pub messages: u64,
    /// Messages that came again and were dropped.
    pub duplicates: u64,
    /// Messages that the server does not have any more.
    pub missing: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that [`SoupInitiator::send`] refused.
    pub refused: u64,
    /// Unsequenced messages of the server, dropped: order entry has none.
    pub unsequenced: u64,
    /// Connections that ended.
    pub ends: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    LoggingIn,
    /// The number of the message that the server sends next.
    LoggedIn(u64),
    /// The logout goes out, and the next login is for the messages.
    FoundEnd,
    LoggingOut,
    Over(SoupInitiatorEnd),
}

/// A client's end.
#[derive(Debug, Clone)]
pub struct SoupInitiator {
    settings: SoupInitiatorSettings,
    state: State,
    place: SoupPlace,
    packets: PacketReader,
    output: Outgoing,
    /// When the connection began.
    since_ns: u64,
    /// When bytes were last received.
    heard_ns: u64,
    /// When bytes last went out, or there were none to send.
    moved_ns: u64,
    /// When the last packet was put.
    put_ns: u64,
    retry_at_ns: u64,
    wait_ns: u64,
    is_stopped: bool,
    /// The session before is not there any more: the next login takes whichever runs, from its start.
    takes_any_session: bool,
    /// The login at hand is for the next message.
    is_for_end: bool,
    /// The number of the next message when the login before this one was accepted, or this one.
    end: Option<u64>,
    /// The session has fewer messages than there were: the place is of another one.
    begins_anew: bool,
    counters: SoupInitiatorCounters,
}

fn field<const N: usize>(text: &str) -> Option<Ascii<N>> {
    Ascii::new(text)
}

impl SoupInitiator {
    /// A client before its first connection, which goes on from `place`.
    ///
    /// # Errors
    /// The credentials do not fit into their fields.
    pub fn new(settings: SoupInitiatorSettings, place: SoupPlace) -> Result<Self, CredentialsTooLong> {
        field::<6>(&settings.credentials.user).ok_or(CredentialsTooLong)?;
        field::<10>(&settings.credentials.password).ok_or(CredentialsTooLong)?;
        Ok(Self {
            state: State::Closed,
            place: SoupPlace { next: place.next.max(1), ..place },
            packets: PacketReader::with_longest(LONGEST_SERVER_PACKET_BYTES),
            output: Outgoing::with_capacity(64 << 10),
            since_ns: 0,
            heard_ns: 0,
            moved_ns: 0,
            put_ns: 0,
            retry_at_ns: 0,
            wait_ns: settings.first_reconnect_ns,
            is_stopped: false,
            takes_any_session: false,
            is_for_end: false,
            end: None,
            begins_anew: false,
            counters: SoupInitiatorCounters::default(),
            settings,
        })
    }

    /// Whether the caller is to open the connection now.
    #[must_use]
    pub fn wants(&self, now_ns: u64) -> bool {
        !self.is_stopped && self.state == State::Closed && self.retry_at_ns <= now_ns
    }

    /// Whether messages can be sent.
    #[must_use]
    pub const fn is_logged_in(&self) -> bool {
        matches!(self.state, State::LoggedIn(_))
    }

    /// Whether every message that there was at the login has come: with [`SoupInitiatorSettings::finds_end`].
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.is_logged_in() && self.end.is_some_and(|end| self.place.next >= end)
    }

    /// The session, and the number of the next message: to be saved.
    #[must_use]
    pub const fn place(&self) -> SoupPlace {
        self.place
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> SoupInitiatorCounters {
        self.counters
    }

    /// The password is this, from the next login on.
    ///
    /// # Errors
    /// It does not fit into its field: nothing changes.
    pub fn set_password(&mut self, password: &str) -> Result<(), CredentialsTooLong> {
        field::<10>(password).ok_or(CredentialsTooLong)?;
        password.clone_into(&mut self.settings.credentials.password);
        Ok(())
    }

    /// The connection was opened: the login goes out.
    pub fn connected(&mut self, now_ns: u64) {
        let credentials = &self.settings.credentials;
        let mut place = if self.takes_any_session { SoupPlace::default() } else { self.place };
        self.is_for_end = self.settings.finds_end && self.end.is_none();
        if self.is_for_end {
            place = SoupPlace { session: SoupPlace::default().session, next: 0 };
        }
        let login = LoginRequestFields {
            packet_length: (LoginRequest::LENGTH - 2) as u16,
            // The constructor has checked that they fit.
            username: field(&credentials.user).unwrap_or_default(),
            password: field(&credentials.password).unwrap_or_default(),
            requested_session: Ascii(place.session),
            // A number has 20 digits or fewer.
            requested_sequence_number: AsciiNumber::new(place.next).unwrap_or(AsciiNumber([b' '; 20])),
        }
        .encode();
        self.packets = PacketReader::with_longest(LONGEST_SERVER_PACKET_BYTES);
        self.output.clear();
        (self.since_ns, self.heard_ns) = (now_ns, now_ns);
        self.put(&login, now_ns);
        self.state = State::LoggingIn;
    }

    /// The connection could not be opened: it is tried again later.
    pub fn refused(&mut self, now_ns: u64) {
        self.retry_at_ns = now_ns.saturating_add(self.wait_ns);
        self.wait_ns = self.wait_ns.saturating_mul(2).min(self.settings.longest_reconnect_ns);
    }

    fn put(&mut self, packet: &[u8], now_ns: u64) {
        if self.output.unsent_bytes() == 0 {
            self.moved_ns = now_ns;
        }
        self.output.put(packet);
        self.put_ns = now_ns;
    }

    /// Takes bytes from the server.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64, mut each: impl FnMut(SoupEvent<'_>)) {
        if matches!(self.state, State::Closed | State::Over(_)) {
            return;
        }
        self.heard_ns = now_ns;
        let mut packets = std::mem::take(&mut self.packets);
        let read = packets.read(bytes, |packet| self.packet(packet, now_ns, &mut each));
        self.packets = packets;
        if read.is_err() {
            self.end(SoupInitiatorEnd::Malformed, now_ns, &mut each);
        }
    }

    fn packet(&mut self, packet: &[u8], now_ns: u64, each: &mut impl FnMut(SoupEvent<'_>)) {
        match (Message::decode(packet), self.state) {
            (_, State::Closed | State::Over(_)) => {}
            (Ok(Message::LoginAccepted(login)), State::LoggingIn) => match login.sequence_number().value() {
                Some(first) => self.accepted(login.session().0, first, now_ns, each),
                None => self.end(SoupInitiatorEnd::Malformed, now_ns, each),
            },
            (Ok(Message::LoginRejected(rejected)), State::LoggingIn) => {
                let reason = rejected.reject_reason_code();
                self.takes_any_session |= reason == RejectReasonCode::SessionNotAvailable;
                self.end(SoupInitiatorEnd::Rejected(reason), now_ns, each);
            }
            (Ok(Message::SequencedData(sequenced)), State::LoggedIn(number)) => {
                self.state = State::LoggedIn(number.saturating_add(1));
                if number < self.place.next {
                    self.counters.duplicates += 1;
                    return;
                }
                self.counters.messages += 1;
                self.place.next = number.saturating_add(1);
                each(SoupEvent::Message { number, message: sequenced.message() });
            }
            // They come again after the next login.
            (Ok(Message::SequencedData(_)), State::LoggingOut | State::FoundEnd) => {}
            (Ok(Message::UnsequencedData(_)), State::LoggedIn(_) | State::LoggingOut | State::FoundEnd) => {
                self.counters.unsequenced += 1;
            }
            (Ok(Message::ServerHeartbeat(_) | Message::Debug(_)), _) => {}
            (Ok(Message::EndOfSession(_)), State::LoggedIn(_) | State::LoggingOut | State::FoundEnd) => {
                self.end(SoupInitiatorEnd::EndOfSession, now_ns, each);
            }
            _ => self.end(SoupInitiatorEnd::Malformed, now_ns, each),
        }
    }

    fn accepted(&mut self, session: [u8; 10], first: u64, now_ns: u64, each: &mut impl FnMut(SoupEvent<'_>)) {
        let before = self.place;
        if self.is_for_end {
            self.end = Some(first);
            let is_same = before.session.trim_ascii() == session.trim_ascii();
            if first < before.next {
                // There never were so many messages in this session.
                self.place.next = 1;
                self.begins_anew = true;
            }
            if !is_same || before.next != first {
                // The other side closes, and the next login goes on from our place.
                self.put(&[0, 1, LogoutRequest::TAG], now_ns);
                self.state = State::FoundEnd;
                return;
            }
        }
        self.takes_any_session = false;
        let is_blank = before.session.iter().all(|byte| matches!(byte, b' ' | 0));
        let is_another = !is_blank && before.session.trim_ascii() != session.trim_ascii();
        let is_new_session = std::mem::take(&mut self.begins_anew) || is_another;
        let expected = if is_new_session { 1 } else { before.next };
        let next = expected.max(first);
        self.place = SoupPlace { session, next };
        self.state = State::LoggedIn(first);
        self.wait_ns = self.settings.first_reconnect_ns;
        each(SoupEvent::LoggedIn { place: self.place, is_new_session });
        if first > expected {
            let count = first - expected;
            self.counters.missing = self.counters.missing.saturating_add(count);
            each(SoupEvent::Missing { first: expected, count });
        }
    }

    /// Sends an unsequenced message: an order, a cancel.
    ///
    /// # Errors
    /// Why it is not sent. The message is then not kept.
    pub fn send(&mut self, message: &[u8], now_ns: u64) -> Result<(), SoupSendError> {
        let sent = self.try_send(message, now_ns);
        match sent {
            Ok(()) => self.counters.sent += 1,
            Err(_) => self.counters.refused += 1,
        }
        sent
    }

    fn try_send(&mut self, message: &[u8], now_ns: u64) -> Result<(), SoupSendError> {
        let (length, unsent) = (message.len(), self.output.unsent_bytes());
        if !self.is_logged_in() {
            return Err(SoupSendError::NotLoggedIn);
        }
        let Some(packet_length) =
            u16::try_from(1 + length).ok().filter(|_| 3 + length <= LONGEST_PACKET_BYTES)
        else {
            return Err(SoupSendError::Length { length });
        };
        if unsent + 3 + length > self.settings.output_bytes {
            return Err(SoupSendError::Backlog { unsent });
        }
        let [high, low] = packet_length.to_be_bytes();
        self.put(&[high, low, UnsequencedData::TAG], now_ns);
        self.put(message, now_ns);
        Ok(())
    }

    /// The bytes to send next; empty: none now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        match self.state {
            State::Closed | State::Over(_) => &[],
            _ => self.output.unsent(),
        }
    }

    /// So many bytes of [`SoupInitiator::output`] went out.
    pub fn sent(&mut self, bytes: usize, now_ns: u64, mut each: impl FnMut(SoupEvent<'_>)) {
        if bytes > 0 {
            self.output.sent(bytes);
            self.moved_ns = now_ns;
        }
        if self.output.unsent_bytes() == 0 {
            match self.state {
                State::LoggingOut => self.end(SoupInitiatorEnd::LoggedOut, now_ns, &mut each),
                State::FoundEnd => self.state = State::Over(SoupInitiatorEnd::FoundEnd),
                _ => {}
            }
        }
    }

    fn end(&mut self, end: SoupInitiatorEnd, now_ns: u64, each: &mut impl FnMut(SoupEvent<'_>)) {
        if matches!(self.state, State::Closed | State::Over(_)) {
            return;
        }
        self.state = State::Over(end);
        self.end = None;
        self.counters.ends += 1;
        self.refused(now_ns);
        each(SoupEvent::Ended(end));
    }

    /// Logs out. Nothing is opened again until [`SoupInitiator::resume`].
    pub fn logout(&mut self, now_ns: u64) {
        self.is_stopped = true;
        if matches!(self.state, State::LoggingIn | State::LoggedIn(_) | State::FoundEnd) {
            self.put(&[0, 1, LogoutRequest::TAG], now_ns);
            self.state = State::LoggingOut;
        }
    }

    /// Opens connections again after [`SoupInitiator::logout`].
    pub fn resume(&mut self) {
        self.is_stopped = false;
    }

    /// The connection is closed. After [`SoupInitiator::over`], or because the server closed it.
    pub fn closed(&mut self, now_ns: u64, mut each: impl FnMut(SoupEvent<'_>)) {
        match self.state {
            State::LoggingOut => self.end(SoupInitiatorEnd::LoggedOut, now_ns, &mut each),
            State::FoundEnd | State::Over(SoupInitiatorEnd::FoundEnd) => self.retry_at_ns = now_ns,
            _ => self.end(SoupInitiatorEnd::Closed, now_ns, &mut each),
        }
        self.state = State::Closed;
    }

    /// Time passes: heartbeats, and the end of a server that is silent.
    pub fn tick(&mut self, now_ns: u64, mut each: impl FnMut(SoupEvent<'_>)) {
        let since = |then_ns: u64| now_ns.saturating_sub(then_ns);
        let is_stalled = self.output.unsent_bytes() > 0 && since(self.moved_ns) >= STALL_TIMEOUT_NS;
        match self.state {
            State::Closed | State::Over(_) => {}
            State::LoggingIn if since(self.since_ns) >= LOGIN_TIMEOUT_NS => {
                self.end(SoupInitiatorEnd::NoAnswer, now_ns, &mut each);
            }
            _ if is_stalled || since(self.heard_ns) >= STALL_TIMEOUT_NS => {
                self.end(SoupInitiatorEnd::TimedOut, now_ns, &mut each);
            }
            State::LoggedIn(_) if since(self.put_ns) >= HEARTBEAT_NS => {
                self.put(&[0, 1, ClientHeartbeat::TAG], now_ns);
            }
            _ => {}
        }
    }

    /// When [`SoupInitiator::tick`] has something to do next; `u64::MAX`: nothing.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        match self.state {
            State::Closed | State::Over(_) => u64::MAX,
            _ => {
                let dead_ns = self.heard_ns.saturating_add(STALL_TIMEOUT_NS);
                dead_ns.min(self.put_ns.saturating_add(HEARTBEAT_NS))
            }
        }
    }

    /// How the connection ended, if it did: the caller closes it and calls [`SoupInitiator::closed`].
    #[must_use]
    pub const fn over(&self) -> Option<SoupInitiatorEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }
}
