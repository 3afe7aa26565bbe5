//! A client's end of SoupBinTCP: logs in for the next message, sends unsequenced messages, and counts the sequenced ones.
//!
//! The caller opens a connection when [`SoupInitiator::wants`] says so, moves the bytes, and closes a connection that is
//! [`SoupInitiator::over`]. Each sequenced message is delivered once and in order: after a disconnect, the login names the
//! session and the next number. Save both ([`SoupInitiator::place`]) and restore them to resume there after a restart.
//!
//! Cost: received bytes are copied once, into a buffer; messages are passed on from there.

use tapeworks_wire::nasdaq::soupbintcp::{
    ClientHeartbeat, LoginRequest, LoginRequestFields, LogoutRequest, Message, RejectReasonCode,
    UnsequencedData,
};
use tapeworks_wire::{Ascii, AsciiNumber};
use thiserror::Error;

use tapeworks_session::login::{
    Credentials, HEARTBEAT_NS, LOGIN_TIMEOUT_NS, LONGEST_PACKET_BYTES, PacketReader, STALL_TIMEOUT_NS,
};
use tapeworks_session::outgoing::Outgoing;

/// The longest packet that a server may send, in bytes including its length field.
const LONGEST_SERVER_PACKET_BYTES: usize = 4_096;

/// A client's position in a server's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoupPlace {
    /// The session; blank for the running one.
    pub session: [u8; 10],
    /// The number of the next message, starting with 1.
    pub next: u64,
}

impl Default for SoupPlace {
    /// Returns the start of the running session.
    fn default() -> Self {
        Self { session: [b' '; 10], next: 1 }
    }
}

/// The settings of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoupInitiatorSettings {
    /// The user, up to 6 characters, and the password, up to 10.
    pub credentials: Credentials,
    /// The wait before the first reconnect, in nanoseconds. It doubles with each failure. 1 s.
    pub first_reconnect_ns: u64,
    /// The longest wait before a reconnect, in nanoseconds. 30 s.
    pub longest_reconnect_ns: u64,
    /// The most unsent bytes; above this, [`SoupInitiator::send`] refuses messages. 1 MiB.
    pub output_bytes: usize,
    /// Logs in for the next new message first (number 0), to learn how many messages there are. Unless it has them all,
    /// it logs in again from its own place. [`SoupInitiator::is_caught_up`] is then exact. Off by default.
    pub finds_end: bool,
}

impl SoupInitiatorSettings {
    /// Returns the defaults with these credentials.
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

/// The user or the password does not fit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the user has more than 6 characters, or the password more than 10, or other than printable ASCII")]
pub struct CredentialsTooLong;

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SoupSendError {
    /// The client is not logged in.
    #[error("the session is not logged in")]
    NotLoggedIn,
    /// The server reads too slowly.
    #[error("{unsent} bytes wait to be sent")]
    Backlog {
        /// Number of unsent bytes.
        unsent: usize,
    },
    /// The message does not fit in a client's packet.
    #[error("a message of {length} bytes cannot be sent")]
    Length {
        /// Its length in bytes.
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
    /// The client learned how many messages there are, and logs in again.
    FoundEnd,
}

/// An event of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoupEvent<'a> {
    /// The login is accepted.
    LoggedIn {
        /// The session and the number of its next message.
        place: SoupPlace,
        /// The session differs from the previous one: its numbers restart, and the rest of the previous session is unknown.
        is_new_session: bool,
    },
    /// A sequenced message. Each is delivered once and in order.
    Message {
        /// Its number.
        number: u64,
        /// The message.
        message: &'a [u8],
    },
    /// The server no longer has these messages.
    Missing {
        /// The first missing number.
        first: u64,
        /// The number of missing messages.
        count: u64,
    },
    /// The connection ended.
    Ended(SoupInitiatorEnd),
}

/// A client's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoupInitiatorCounters {
    /// Sequenced messages delivered.
    pub messages: u64,
    /// Duplicate messages dropped.
    pub duplicates: u64,
    /// Messages that the server no longer had.
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
    /// The number of the next message from the server.
    LoggedIn(u64),
    /// The logout is being sent; the next login requests the messages.
    FoundEnd,
    LoggingOut,
    Over(SoupInitiatorEnd),
}

/// A client's end of a session.
#[derive(Debug, Clone)]
pub struct SoupInitiator {
    settings: SoupInitiatorSettings,
    state: State,
    place: SoupPlace,
    packets: PacketReader,
    output: Outgoing,
    /// When the connection was established.
    since_ns: u64,
    /// When bytes were last received.
    heard_ns: u64,
    /// When bytes were last sent, or last queued while nothing was waiting.
    moved_ns: u64,
    /// When a packet was last queued.
    put_ns: u64,
    retry_at_ns: u64,
    wait_ns: u64,
    is_stopped: bool,
    /// The previous session no longer exists: the next login requests the running one from its start.
    takes_any_session: bool,
    /// The current login requests the next new message.
    is_for_end: bool,
    /// The next message's number as of the current login, or of the previous one if that was only to learn it.
    end: Option<u64>,
    /// The session has fewer messages than the saved place: that place is of another session.
    begins_anew: bool,
    counters: SoupInitiatorCounters,
}

fn field<const N: usize>(text: &str) -> Option<Ascii<N>> {
    Ascii::new(text)
}

impl SoupInitiator {
    /// Creates a client before its first connection. It resumes from `place`.
    ///
    /// # Errors
    /// The credentials do not fit their fields.
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

    /// Returns whether the caller must open the connection now.
    #[must_use]
    pub fn wants(&self, now_ns: u64) -> bool {
        !self.is_stopped && self.state == State::Closed && self.retry_at_ns <= now_ns
    }

    /// Returns whether messages can be sent.
    #[must_use]
    pub const fn is_logged_in(&self) -> bool {
        matches!(self.state, State::LoggedIn(_))
    }

    /// Returns whether every message that existed at the login has arrived. Needs [`SoupInitiatorSettings::finds_end`].
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.is_logged_in() && self.end.is_some_and(|end| self.place.next >= end)
    }

    /// Returns the session and the number of the next message. Save these.
    #[must_use]
    pub const fn place(&self) -> SoupPlace {
        self.place
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> SoupInitiatorCounters {
        self.counters
    }

    /// Sets the password for the next login.
    ///
    /// # Errors
    /// The password does not fit its field. Nothing changes.
    pub fn set_password(&mut self, password: &str) -> Result<(), CredentialsTooLong> {
        field::<10>(password).ok_or(CredentialsTooLong)?;
        password.clone_into(&mut self.settings.credentials.password);
        Ok(())
    }

    /// Records that the connection was opened, and sends the login.
    pub fn connected(&mut self, now_ns: u64) {
        let credentials = &self.settings.credentials;
        let mut place = if self.takes_any_session { SoupPlace::default() } else { self.place };
        self.is_for_end = self.settings.finds_end && self.end.is_none();
        if self.is_for_end {
            place = SoupPlace { session: SoupPlace::default().session, next: 0 };
        }
        let login = LoginRequestFields {
            packet_length: (LoginRequest::LENGTH - 2) as u16,
            // The constructor has checked that the credentials fit.
            username: field(&credentials.user).unwrap_or_default(),
            password: field(&credentials.password).unwrap_or_default(),
            requested_session: Ascii(place.session),
            // A number has at most 20 digits.
            requested_sequence_number: AsciiNumber::new(place.next).unwrap_or(AsciiNumber([b' '; 20])),
        }
        .encode();
        self.packets = PacketReader::with_longest(LONGEST_SERVER_PACKET_BYTES);
        self.output.clear();
        (self.since_ns, self.heard_ns) = (now_ns, now_ns);
        self.put(&login, now_ns);
        self.state = State::LoggingIn;
    }

    /// Records that the connection could not be opened. It is retried later.
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

    /// Processes bytes from the server.
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
            // The next login requests them again.
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
                // This session never had that many messages.
                self.place.next = 1;
                self.begins_anew = true;
            }
            if !is_same || before.next != first {
                // The other side closes the connection, and the next login resumes from our place.
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

    /// Sends an unsequenced message, such as an order or a cancel.
    ///
    /// # Errors
    /// The reason why it was not sent. The message is not kept.
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

    /// Returns the bytes to send next; empty if there are none.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        match self.state {
            State::Closed | State::Over(_) => &[],
            _ => self.output.unsent(),
        }
    }

    /// Records that this many bytes of [`SoupInitiator::output`] were sent.
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

    /// Logs out. No connection is reopened until [`SoupInitiator::resume`].
    pub fn logout(&mut self, now_ns: u64) {
        self.is_stopped = true;
        if matches!(self.state, State::LoggingIn | State::LoggedIn(_) | State::FoundEnd) {
            self.put(&[0, 1, LogoutRequest::TAG], now_ns);
            self.state = State::LoggingOut;
        }
    }

    /// Allows connections again after [`SoupInitiator::logout`].
    pub fn resume(&mut self) {
        self.is_stopped = false;
    }

    /// Records that the connection is closed, after [`SoupInitiator::over`] or because the server closed it.
    pub fn closed(&mut self, now_ns: u64, mut each: impl FnMut(SoupEvent<'_>)) {
        match self.state {
            State::LoggingOut => self.end(SoupInitiatorEnd::LoggedOut, now_ns, &mut each),
            State::FoundEnd | State::Over(SoupInitiatorEnd::FoundEnd) => self.retry_at_ns = now_ns,
            _ => self.end(SoupInitiatorEnd::Closed, now_ns, &mut each),
        }
        self.state = State::Closed;
    }

    /// Runs the timers: sends heartbeats, and ends a connection whose server is silent or does not read.
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

    /// Returns when [`SoupInitiator::tick`] is due next; `u64::MAX` if never.
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

    /// Returns how the connection ended, if it has. The caller closes it and calls [`SoupInitiator::closed`].
    #[must_use]
    pub const fn over(&self) -> Option<SoupInitiatorEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }
}
