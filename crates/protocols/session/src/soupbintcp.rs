//! SoupBinTCP, which carries messages over TCP: one client's connection, without sockets or clocks.
//!
//! A client logs in with the session (blank: the running one) and the number of its first message (0: the next new
//! one), and receives every message from there on. A few packets are copied for each client; the other messages stay in
//! the [`Sequence`], which also keeps them for retransmission. A client whose next message is no longer kept is too
//! slow and is disconnected.
//!
//! `tapeworks-order-session` has the order sessions over SoupBinTCP, at both ends.

use std::fmt;

use tapeworks_wire::nasdaq::soupbintcp::{
    EndOfSession, LoginRequest, Message, RejectReasonCode, SequencedData, ServerHeartbeat,
};

use crate::login::{
    Credentials, HEARTBEAT_NS, LOGIN_TIMEOUT_NS, PacketReader, STALL_TIMEOUT_NS, accepted, is_known,
    is_session, rejected,
};
use crate::retransmission::Refusal;
use crate::sequence::Sequence;

/// Bytes copied for one client at a time; the last packet may exceed this.
const OUTPUT_BYTES: usize = 32 << 10;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoupEnd {
    /// The session ended, and all of it was sent.
    Served,
    /// The login was rejected.
    Rejected,
    /// The client logged out or closed the connection.
    Left,
    /// The client sent an invalid packet.
    Malformed,
    /// The client did not log in in time.
    NoLogin,
    /// The client sent nothing, or read nothing, for too long.
    TimedOut,
    /// The client's next message is no longer kept.
    TooSlow,
    /// The user logged in on another connection.
    Displaced,
}

impl fmt::Display for SoupEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Served => "the session ended",
            Self::Rejected => "the login was rejected: not this user, password or session",
            Self::Left => "the client logged out or closed the connection",
            Self::Malformed => "it sent an invalid packet",
            Self::NoLogin => "no login in time",
            Self::TimedOut => "it was silent, or read nothing, for too long",
            Self::TooSlow => "it reads too slowly",
            Self::Displaced => "the user logged in again",
        })
    }
}

impl SoupEnd {
    /// Returns why the client was refused, if it was.
    pub const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Rejected => Some("the login was rejected: not this user, password or session"),
            Self::Malformed => Some("it sent an invalid packet"),
            Self::NoLogin => Some("no login in time"),
            Self::Served | Self::Left | Self::TimedOut | Self::TooSlow | Self::Displaced => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No login has arrived.
    Fresh,
    /// Logged in, with the number of the next message to send.
    Sending(u64),
    /// The remaining output is sent; then the connection ends.
    Closing(SoupEnd),
    Over(SoupEnd),
}

/// The server's end of one client's connection.
///
/// The caller moves the bytes: it passes received bytes to [`SoupClient::receive`], sends the bytes of
/// [`SoupClient::output`], and reports the number sent to [`SoupClient::sent`].
#[derive(Debug)]
pub struct SoupClient {
    state: State,
    credentials: Option<Credentials>,
    packets: PacketReader,
    output: Vec<u8>,
    sent: usize,
    scratch: Vec<u8>,
    messages: u64,
    /// When the client connected.
    since_ns: u64,
    /// When bytes were last received.
    heard_ns: u64,
    /// When bytes were last sent, or last queued while nothing was waiting.
    moved_ns: u64,
    /// When a packet was last queued.
    sent_ns: u64,
}

impl SoupClient {
    /// Creates a connection. Without credentials, any client may log in.
    pub const fn new(credentials: Option<Credentials>, now_ns: u64) -> Self {
        Self {
            state: State::Fresh,
            credentials,
            packets: PacketReader::new(),
            output: Vec::new(),
            sent: 0,
            scratch: Vec::new(),
            messages: 0,
            since_ns: now_ns,
            heard_ns: now_ns,
            moved_ns: now_ns,
            sent_ns: now_ns,
        }
    }

    /// Processes bytes from the client. Ignores its unsequenced messages.
    pub fn receive(&mut self, bytes: &[u8], sequence: &Sequence, now_ns: u64) {
        self.receive_with(bytes, sequence, now_ns, &mut |_| {});
    }

    /// Processes bytes from the client and passes each unsequenced message to `each` once the client is logged in.
    pub fn receive_with(
        &mut self,
        bytes: &[u8],
        sequence: &Sequence,
        now_ns: u64,
        each: &mut impl FnMut(&[u8]),
    ) {
        if matches!(self.state, State::Closing(_) | State::Over(_)) {
            return;
        }
        self.heard_ns = now_ns;
        let mut packets = std::mem::take(&mut self.packets);
        let read = packets.read(bytes, |packet| self.packet(packet, sequence, now_ns, each));
        self.packets = packets;
        if read.is_err() {
            self.end(SoupEnd::Malformed);
        }
    }

    fn packet(&mut self, packet: &[u8], sequence: &Sequence, now_ns: u64, each: &mut impl FnMut(&[u8])) {
        match (Message::decode(packet), self.state) {
            (_, State::Closing(_) | State::Over(_)) => {}
            (Ok(Message::LoginRequest(login)), State::Fresh) => self.login(&login, sequence, now_ns),
            (Ok(Message::UnsequencedData(data)), State::Sending(_)) => each(data.message()),
            (Ok(Message::ClientHeartbeat(_) | Message::Debug(_) | Message::UnsequencedData(_)), _) => {}
            (Ok(Message::LogoutRequest(_)), _) => self.end(SoupEnd::Left),
            _ => self.end(SoupEnd::Malformed),
        }
    }

    fn login(&mut self, login: &LoginRequest<'_>, sequence: &Sequence, now_ns: u64) {
        let is_here = is_session(&login.requested_session().0, &sequence.session());
        let reason =
            match (is_known(self.credentials.as_ref(), &login.username().0, &login.password().0), is_here) {
                (false, _) => RejectReasonCode::NotAuthorised,
                (true, false) => RejectReasonCode::SessionNotAvailable,
                (true, true) => {
                    let Some(wanted) = login.requested_sequence_number().value() else {
                        return self.end(SoupEnd::Malformed);
                    };
                    let kept = sequence.kept();
                    // Clamps the first number to the kept range or the next new message. The answer reports it.
                    let first = if wanted == 0 { kept.end } else { wanted.clamp(kept.start, kept.end) };
                    self.put(&accepted(sequence.session(), first), now_ns);
                    self.state = State::Sending(first);
                    return;
                }
            };
        self.put(&rejected(reason), now_ns);
        self.state = State::Closing(SoupEnd::Rejected);
    }

    fn put(&mut self, bytes: &[u8], now_ns: u64) {
        if self.output().is_empty() {
            self.moved_ns = now_ns;
        }
        self.output.extend_from_slice(bytes);
        self.sent_ns = now_ns;
    }

    fn end(&mut self, end: SoupEnd) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// Copies the client's next messages once it has read the previous ones. Returns whether it copied any.
    pub fn fill(&mut self, sequence: &Sequence, now_ns: u64) -> bool {
        let before = self.output.len();
        while let State::Sending(next) = self.state {
            if self.output.len() - self.sent >= OUTPUT_BYTES {
                break;
            }
            let mut scratch = std::mem::take(&mut self.scratch);
            let output = &mut self.output;
            if output.len() == self.sent {
                self.moved_ns = now_ns;
            }
            let sent = sequence.messages(next, &mut scratch, |message| {
                // No message is longer than a packet.
                output.extend_from_slice(&(1 + message.len() as u16).to_be_bytes());
                output.push(SequencedData::TAG);
                output.extend_from_slice(message);
            });
            self.scratch = scratch;
            match sent {
                Ok(0) if sequence.is_over() => {
                    self.put(&[0, 1, EndOfSession::TAG], now_ns);
                    self.state = State::Closing(SoupEnd::Served);
                }
                Ok(0) => break,
                Ok(count) => {
                    self.messages += u64::from(count);
                    self.sent_ns = now_ns;
                    self.state = State::Sending(next + u64::from(count));
                }
                Err(Refusal::NotKept) => self.end(SoupEnd::TooSlow),
                Err(_) => self.end(SoupEnd::Malformed),
            }
        }
        self.output.len() > before
    }

    /// Returns the bytes to send next; empty if there are none.
    pub fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    /// Records that this many bytes of [`SoupClient::output`] were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes == 0 {
            return;
        }
        self.sent += bytes;
        self.moved_ns = now_ns;
        if self.output().is_empty() {
            self.output.clear();
            self.sent = 0;
            if let State::Closing(end) = self.state {
                self.state = State::Over(end);
            }
        }
    }

    /// Returns the number of messages copied for the client.
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns whether the client is logged in.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.state, State::Sending(_))
    }

    /// Ends the connection because the user logged in on another one.
    pub fn displace(&mut self) {
        self.end(SoupEnd::Displaced);
    }

    /// Records that the client closed its side.
    pub fn closed(&mut self) {
        self.end(SoupEnd::Left);
    }

    /// Runs the timers: sends heartbeats, and disconnects a client that is too slow or silent.
    pub fn tick(&mut self, now_ns: u64) {
        let since = |then: u64| now_ns.saturating_sub(then);
        let is_stalled = !self.output().is_empty() && since(self.moved_ns) >= STALL_TIMEOUT_NS;
        match self.state {
            // Applies even if the client sends packets: a client that only sends heartbeats could stay connected forever.
            State::Fresh if since(self.since_ns) >= LOGIN_TIMEOUT_NS => self.end(SoupEnd::NoLogin),
            State::Sending(_) | State::Closing(_) if is_stalled => self.end(SoupEnd::TimedOut),
            State::Sending(_) if since(self.heard_ns) >= STALL_TIMEOUT_NS => self.end(SoupEnd::TimedOut),
            State::Sending(_) if since(self.sent_ns) >= HEARTBEAT_NS => {
                self.put(&[0, 1, ServerHeartbeat::TAG], now_ns);
            }
            _ => {}
        }
    }

    /// Returns how the connection ended, if it has. The caller closes it.
    pub const fn over(&self) -> Option<SoupEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_wire::nasdaq::soupbintcp::{LoginRequestFields, Packets};
    use tapeworks_wire::{Ascii, AsciiNumber};

    use super::*;
    use crate::login::LONGEST_PACKET_BYTES;

    const SECOND: u64 = 1_000_000_000;

    fn sequence(messages: u64) -> Sequence {
        let mut sequence = Sequence::new(*b"2511140000", 1 << 20);
        (1..=messages).for_each(|number| sequence.put(&number.to_be_bytes()));
        sequence.flush();
        sequence
    }

    fn login(user: &[u8; 6], session: &[u8; 10], number: u64) -> Vec<u8> {
        let fields = LoginRequestFields {
            packet_length: 47,
            username: Ascii(*user),
            password: Ascii(*b"secret    "),
            requested_session: Ascii(*session),
            requested_sequence_number: AsciiNumber::new(number).unwrap(),
        };
        fields.encode().to_vec()
    }

    /// Takes all output, at most 777 bytes at a time.
    fn take(client: &mut SoupClient, sequence: &Sequence, now_ns: u64) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            client.fill(sequence, now_ns);
            let some = client.output().len().min(777);
            if some == 0 {
                return all;
            }
            all.extend_from_slice(&client.output()[..some]);
            client.sent(some, now_ns);
        }
    }

    /// Returns the first number in the login answer, the messages after it, and whether the session ended.
    fn read(stream: &[u8]) -> (u64, Vec<u64>, bool) {
        let mut packets = Packets::new(stream).map(Result::unwrap);
        let Message::LoginAccepted(accepted) = Message::decode(packets.next().unwrap()).unwrap() else {
            panic!()
        };
        let (mut messages, mut is_end) = (Vec::new(), false);
        for packet in packets {
            match Message::decode(packet).unwrap() {
                Message::SequencedData(data) => {
                    messages.push(u64::from_be_bytes(data.message().try_into().unwrap()))
                }
                Message::EndOfSession(_) => is_end = true,
                other => panic!("{other:?}"),
            }
        }
        (accepted.sequence_number().value().unwrap(), messages, is_end)
    }

    #[test]
    fn a_client_gets_every_message_from_the_number_it_names_to_the_end() {
        let mut sequence = sequence(5_000);
        for (wanted, first) in [(1, 1), (4_321, 4_321), (0, 5_001), (5_001, 5_001), (99_999, 5_001)] {
            let mut client = SoupClient::new(None, 0);
            for byte in login(b"anyone", b"          ", wanted) {
                client.receive(&[byte], &sequence, 1);
            }
            let stream = take(&mut client, &sequence, 2);
            assert_eq!(read(&stream), (first, (first..=5_000).collect(), false), "{wanted}");
            assert_eq!((client.over(), client.messages()), (None, 5_001 - first));
        }
        let mut client = SoupClient::new(None, 0);
        client.receive(&login(b"anyone", b"2511140000", 4_999), &sequence, 1);
        let mut stream = take(&mut client, &sequence, 2);
        sequence.put(&5_001u64.to_be_bytes());
        sequence.end();
        stream.extend(take(&mut client, &sequence, 3));
        assert_eq!(read(&stream), (4_999, vec![4_999, 5_000, 5_001], true));
        assert_eq!(client.over(), Some(SoupEnd::Served));
    }

    #[test]
    fn wrong_logins_and_other_sessions_are_rejected() {
        let sequence = sequence(1);
        let wanted = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
        let answer = |credentials: Option<Credentials>, login: &[u8]| {
            let mut client = SoupClient::new(credentials, 0);
            client.receive(login, &sequence, 1);
            let stream = take(&mut client, &sequence, 2);
            (stream, client.over())
        };
        let rejected = Some(SoupEnd::Rejected);
        assert_eq!(answer(None, &login(b"anyone", b"2511140001", 1)), (b"\x00\x02JS".to_vec(), rejected));
        let stranger = answer(Some(wanted.clone()), &login(b"you   ", b"          ", 1));
        assert_eq!(stranger, (b"\x00\x02JA".to_vec(), rejected));
        assert_eq!(answer(Some(wanted), &login(b"me    ", b"          ", 1)).1, None);
    }

    #[test]
    fn a_client_behind_the_kept_messages_is_too_slow() {
        let mut sequence = Sequence::new(*b"2511140000", 100_000);
        let mut client = SoupClient::new(None, 0);
        client.receive(&login(b"anyone", b"          ", 0), &sequence, 1);
        for number in 0..30_000u64 {
            sequence.put(&number.to_be_bytes());
            if number % 100 == 0 {
                sequence.flush();
                sequence.clear_ready();
                // The client reads nothing, so output stays bounded.
                client.fill(&sequence, 2);
                assert!(client.output().len() < OUTPUT_BYTES + 3_000);
            }
        }
        sequence.flush();
        let waiting = client.output().len();
        client.sent(waiting, 3);
        client.fill(&sequence, 3);
        assert_eq!(client.over(), Some(SoupEnd::TooSlow));
    }

    #[test]
    fn heartbeats_go_and_are_wanted() {
        let sequence = sequence(0);
        let mut client = SoupClient::new(None, 0);
        client.tick(LOGIN_TIMEOUT_NS - 1);
        assert_eq!(client.over(), None);
        // Packets before the login do not extend the time limit.
        client.receive(b"\x00\x01R", &sequence, LOGIN_TIMEOUT_NS - 1);
        client.tick(LOGIN_TIMEOUT_NS);
        assert_eq!(client.over(), Some(SoupEnd::NoLogin));

        let mut client = SoupClient::new(None, 0);
        client.receive(&login(b"anyone", b"          ", 1), &sequence, 0);
        take(&mut client, &sequence, 0);
        client.tick(SECOND);
        assert_eq!(take(&mut client, &sequence, SECOND), b"\x00\x01H");
        client.receive(b"\x00\x01R", &sequence, 10 * SECOND);
        client.tick(24 * SECOND);
        assert_eq!(take(&mut client, &sequence, 24 * SECOND), b"\x00\x01H");
        client.tick(25 * SECOND);
        assert_eq!(client.over(), Some(SoupEnd::TimedOut), "nothing heard for 15 s");
    }

    proptest! {
        #[test]
        fn hostile_bytes_without_a_login_get_no_message(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            let sequence = sequence(10);
            let mut client = SoupClient::new(None, 0);
            for (number, chunk) in chunks.iter().enumerate() {
                client.receive(chunk, &sequence, number as u64);
                prop_assert!(client.packets.kept() <= LONGEST_PACKET_BYTES);
                client.fill(&sequence, number as u64);
                prop_assert!(client.is_admitted() || client.output().len() <= 4);
                client.tick(number as u64);
            }
            client.closed();
            prop_assert!(client.over().is_some());
        }
    }
}
