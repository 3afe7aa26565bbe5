//! Snapshots in the style of GLIMPSE: a client that joins in mid-day gets a venue's state over SoupBinTCP.
//!
//! A client logs in; the answer names the running session. Sequenced data follow: the messages of an [`Image`] in the venue's
//! own protocol and [End of Snapshot](tapeworks_wire::nasdaq::glimpse50), with the number of the first live message that the
//! image does not include. Then the SoupBinTCP session ends. IEX's venues do the same with their messages.
//!
//! [`SnapshotServer`] is one client's connection without a socket: bytes in, bytes out, the time passed in.
//!
//! Cost: an image is built once, 3 bytes more than its messages each; a connection shares it and copies nothing.

use std::sync::Arc;

use tapeworks_wire::nasdaq::glimpse50::EndOfSnapshotFields;
use tapeworks_wire::nasdaq::soupbintcp::{LoginRequestFields, Message, RejectReasonCode, ServerHeartbeat};
use tapeworks_wire::{Ascii, AsciiNumber};

use crate::login::{
    Credentials, HEARTBEAT_NS, LOGIN_TIMEOUT_NS, PacketReader, STALL_TIMEOUT_NS, accepted, is_known,
    is_session, rejected,
};
use crate::transport::SessionId;

/// The most bytes that a client may send in all. A client that sends more is closed.
const MOST_RECEIVED_BYTES: usize = 64 << 10;

/// A snapshot of a venue as SoupBinTCP packets, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The session that the number belongs to.
    pub session: SessionId,
    /// Number of the first live message that the image does not include.
    pub next: u64,
    /// Messages in it, without the end of the snapshot.
    pub messages: u64,
    packets: Vec<u8>,
}

impl Image {
    /// A snapshot without messages.
    #[must_use]
    pub fn new(session: SessionId, next: u64) -> Self {
        Self { session, next, messages: 0, packets: Vec::new() }
    }

    /// Appends a message, changed by `change`.
    pub fn put(&mut self, message: &[u8], change: impl FnOnce(&mut [u8])) {
        self.packet(message);
        let start = self.packets.len() - message.len();
        change(&mut self.packets[start..]);
        self.messages += 1;
    }

    fn packet(&mut self, message: &[u8]) {
        // Type and message; no message is longer than MAX_MESSAGE_BYTES.
        let length = 1 + message.len() as u16;
        self.packets.extend_from_slice(&length.to_be_bytes());
        self.packets.push(tapeworks_wire::nasdaq::soupbintcp::SequencedData::TAG);
        self.packets.extend_from_slice(message);
    }

    /// Appends the end of the snapshot, and of the SoupBinTCP session.
    pub fn finish(&mut self) {
        // Every 64-bit number has at most 20 digits.
        let sequence_number = AsciiNumber::new(self.next).unwrap_or(AsciiNumber([b' '; 20]));
        self.packet(&EndOfSnapshotFields { sequence_number }.encode());
        self.packets.extend_from_slice(&[0, 1, tapeworks_wire::nasdaq::soupbintcp::EndOfSession::TAG]);
    }

    /// The SoupBinTCP packets, the end of the session included.
    #[must_use]
    pub fn packets(&self) -> &[u8] {
        &self.packets
    }
}

/// The login of a client that wants a snapshot of this session. Names that are too long are cut.
#[must_use]
pub fn login(user: &str, password: &str, session: &SessionId) -> Vec<u8> {
    let fields = LoginRequestFields {
        packet_length: 47,
        username: padded(user),
        password: padded(password),
        requested_session: session.login_name(),
        // A number has 20 digits or fewer.
        requested_sequence_number: AsciiNumber::new(1).unwrap_or(AsciiNumber([b' '; 20])),
    };
    fields.encode().to_vec()
}

/// A text as a field of fixed length, filled with spaces.
fn padded<const LENGTH: usize>(text: &str) -> Ascii<LENGTH> {
    let mut bytes = [b' '; LENGTH];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    Ascii(bytes)
}

/// GLIMPSE's End of Snapshot: `G`, and the number of the first live message that the snapshot does not hold.
#[must_use]
pub fn end_of_snapshot(message: &[u8]) -> Option<u64> {
    let (b'G', digits) = message.split_first()? else { return None };
    AsciiNumber(*<&[u8; 20]>::try_from(digits).ok()?).value()
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotEnd {
    /// The whole snapshot was sent.
    Served,
    /// The login was rejected.
    Rejected,
    /// The client logged out or went.
    Left,
    /// The client sent an invalid packet, or too many bytes.
    Malformed,
    /// The client did not log in, or did not read, for too long.
    TimedOut,
}

#[derive(Debug, Clone)]
enum State {
    /// No login yet.
    Fresh,
    /// Logged in for this session (blank: whichever runs); the image is not there yet.
    Waiting([u8; 10]),
    /// Sending: first the head, then the image.
    Sending(Arc<Image>),
    /// Sending a rejection.
    Rejecting,
    Over(SnapshotEnd),
}

/// One client of a snapshot server. The caller moves the bytes: it passes received bytes to [`SnapshotServer::receive`], sends
/// those of [`SnapshotServer::output`], and reports the number sent by [`SnapshotServer::sent`]. When
/// [`SnapshotServer::wants_image`], the caller gives an image as soon as it has one.
#[derive(Debug, Clone)]
pub struct SnapshotServer {
    state: State,
    credentials: Option<Credentials>,
    packets: PacketReader,
    received_bytes: usize,
    /// The bytes before the image.
    head: Vec<u8>,
    /// Bytes of head and image sent so far.
    sent: usize,
    image_messages: u64,
    /// When bytes were last received or sent.
    moved_ns: u64,
    /// When the last packet went out.
    heartbeat_ns: u64,
}

impl SnapshotServer {
    /// A connection that begins at `now_ns`, a time of the caller's clock. Without credentials any client may log in.
    #[must_use]
    pub fn new(credentials: Option<Credentials>, now_ns: u64) -> Self {
        Self {
            state: State::Fresh,
            credentials,
            packets: PacketReader::new(),
            received_bytes: 0,
            head: Vec::new(),
            sent: 0,
            image_messages: 0,
            moved_ns: now_ns,
            heartbeat_ns: now_ns,
        }
    }

    /// Takes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if self.over().is_some() {
            return;
        }
        self.received_bytes += bytes.len();
        let mut packets = std::mem::take(&mut self.packets);
        let read = packets.read(bytes, |packet| self.packet(packet, now_ns));
        self.packets = packets;
        if read.is_err() || self.received_bytes > MOST_RECEIVED_BYTES {
            self.end(SnapshotEnd::Malformed);
        }
    }

    fn packet(&mut self, packet: &[u8], now_ns: u64) {
        match (Message::decode(packet), &self.state) {
            (Ok(Message::LoginRequest(login)), State::Fresh) => {
                if is_known(self.credentials.as_ref(), &login) {
                    self.moved_ns = now_ns;
                    self.state = State::Waiting(login.requested_session().0);
                } else {
                    self.reject(RejectReasonCode::NotAuthorised, now_ns);
                }
            }
            (Ok(Message::ClientHeartbeat(_) | Message::Debug(_) | Message::UnsequencedData(_)), _) => {}
            (Ok(Message::LogoutRequest(_)), _) => self.end(SnapshotEnd::Left),
            (_, State::Over(_)) => {}
            _ => self.end(SnapshotEnd::Malformed),
        }
    }

    fn reject(&mut self, reason: RejectReasonCode, now_ns: u64) {
        self.head.extend_from_slice(&rejected(reason));
        self.moved_ns = now_ns;
        self.state = State::Rejecting;
    }

    fn end(&mut self, end: SnapshotEnd) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// The client is logged in and waits for an image.
    #[must_use]
    pub fn wants_image(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Gives the image: it must be of a time after the login. A client that requested another session is rejected.
    pub fn give(&mut self, image: Arc<Image>, now_ns: u64) {
        let State::Waiting(requested) = &self.state else { return };
        let session = image.session.login_name().0;
        if !is_session(requested, &session) {
            return self.reject(RejectReasonCode::SessionNotAvailable, now_ns);
        }
        self.head.extend_from_slice(&accepted(session, 1));
        self.moved_ns = now_ns;
        self.image_messages = image.messages;
        self.state = State::Sending(image);
    }

    /// The bytes to send next; empty: none now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if self.over().is_some() {
            return &[];
        }
        if let Some(head) = self.head.get(self.sent..)
            && !head.is_empty()
        {
            return head;
        }
        match &self.state {
            State::Sending(image) => image.packets.get(self.sent - self.head.len()..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// So many bytes of [`SnapshotServer::output`] went out.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes == 0 {
            return;
        }
        self.sent += bytes;
        (self.moved_ns, self.heartbeat_ns) = (now_ns, now_ns);
        if self.output().is_empty() {
            match self.state {
                State::Sending(_) => self.end(SnapshotEnd::Served),
                State::Rejecting => self.end(SnapshotEnd::Rejected),
                _ => {}
            }
        }
    }

    /// Messages of the image that was given, without its end; 0 without one.
    #[must_use]
    pub fn image_messages(&self) -> u64 {
        self.image_messages
    }

    /// The client closed its side.
    pub fn closed(&mut self) {
        self.end(SnapshotEnd::Left);
    }

    /// Time passes: sends heartbeats while the client waits, and closes a client that is too slow.
    pub fn tick(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.moved_ns);
        match self.state {
            State::Fresh if idle_ns >= LOGIN_TIMEOUT_NS => self.end(SnapshotEnd::TimedOut),
            State::Sending(_) | State::Rejecting | State::Waiting(_) if idle_ns >= STALL_TIMEOUT_NS => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Waiting(_) if now_ns.saturating_sub(self.heartbeat_ns) >= HEARTBEAT_NS => {
                self.heartbeat_ns = now_ns;
                self.head.extend_from_slice(&[0, 1, ServerHeartbeat::TAG]);
            }
            _ => {}
        }
    }

    /// How it ended, if it did: the caller closes the connection.
    #[must_use]
    pub fn over(&self) -> Option<SnapshotEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_wire::nasdaq::glimpse50;
    use tapeworks_wire::nasdaq::soupbintcp::Packets;

    use super::*;
    use crate::login::LONGEST_PACKET_BYTES;

    const SECOND_NS: u64 = 1_000_000_000;

    fn image() -> Arc<Image> {
        let session = SessionId::MoldUdp64(*b"AA00000007");
        let mut image = Image::new(session, 1_234);
        image.put(b"first", |_| {});
        image.put(b"second", |bytes| bytes[0] = b'S');
        image.finish();
        Arc::new(image)
    }

    /// A login whose session may be blank.
    fn login(user: &[u8; 6], session: &[u8; 10]) -> Vec<u8> {
        let fields = LoginRequestFields {
            packet_length: 47,
            username: Ascii(*user),
            password: Ascii(*b"secret    "),
            requested_session: Ascii(*session),
            requested_sequence_number: AsciiNumber::new(1).unwrap(),
        };
        fields.encode().to_vec()
    }

    /// Takes everything out, some bytes at a time.
    fn take(server: &mut SnapshotServer, now_ns: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while !server.output().is_empty() {
            let some = server.output().len().min(7);
            all.extend_from_slice(&server.output()[..some]);
            server.sent(some, now_ns);
        }
        all
    }

    #[test]
    fn a_client_gets_the_messages_and_the_number_to_go_on_from() {
        let mut server = SnapshotServer::new(None, 0);
        for byte in login(b"anyone", b"          ") {
            assert!(!server.wants_image());
            server.receive(&[byte], 1);
        }
        assert!(server.wants_image());
        server.give(image(), 2);
        let stream = take(&mut server, 3);
        let packets: Vec<&[u8]> = Packets::new(&stream).map(Result::unwrap).collect();
        let Message::LoginAccepted(accepted) = Message::decode(packets[0]).unwrap() else { panic!() };
        assert_eq!(
            (accepted.session(), accepted.sequence_number().value()),
            (image().session.login_name(), Some(1))
        );
        assert_eq!(packets[1], b"\x00\x06Sfirst");
        assert_eq!(packets[2], b"\x00\x07SSecond");
        let glimpse50::Message::EndOfSnapshot(end) = glimpse50::Message::decode(&packets[3][3..]).unwrap();
        assert_eq!(end.sequence_number().value(), Some(1_234));
        assert_eq!(packets[4..], [b"\x00\x01Z"]);
        assert_eq!(server.over(), Some(SnapshotEnd::Served));
    }

    #[test]
    fn a_wrong_session_and_a_wrong_login_are_rejected() {
        let mut server = SnapshotServer::new(None, 0);
        server.receive(&login(b"anyone", b"AA00000006"), 1);
        server.give(image(), 2);
        assert_eq!(take(&mut server, 3), b"\x00\x02JS");
        assert_eq!(server.over(), Some(SnapshotEnd::Rejected));

        let wanted = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
        let mut server = SnapshotServer::new(Some(wanted.clone()), 0);
        server.receive(&login(b"you   ", b"          "), 1);
        assert_eq!(take(&mut server, 3), b"\x00\x02JA");
        let mut server = SnapshotServer::new(Some(wanted), 0);
        server.receive(&login(b"me    ", b"AA00000007"), 1);
        server.give(image(), 2);
        assert!(take(&mut server, 3).len() > 33);
    }

    #[test]
    fn an_idle_client_is_logged_out() {
        let mut server = SnapshotServer::new(None, 0);
        server.tick(LOGIN_TIMEOUT_NS - 1);
        assert_eq!(server.over(), None);
        server.tick(LOGIN_TIMEOUT_NS);
        assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));

        let mut server = SnapshotServer::new(None, 0);
        server.receive(&login(b"anyone", b"          "), 0);
        server.tick(SECOND_NS);
        assert_eq!(take(&mut server, SECOND_NS), b"\x00\x01H", "a heartbeat while it waits");
        server.give(image(), SECOND_NS);
        server.sent(5, 2 * SECOND_NS);
        server.tick(2 * SECOND_NS + STALL_TIMEOUT_NS);
        assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));
    }

    proptest! {
        #[test]
        fn hostile_bytes_without_a_login_get_no_snapshot(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            let mut server = SnapshotServer::new(None, 0);
            for (number, chunk) in chunks.iter().enumerate() {
                server.receive(chunk, number as u64);
                prop_assert!(server.packets.kept() <= LONGEST_PACKET_BYTES);
                let is_login = server.wants_image();
                server.give(image(), number as u64);
                prop_assert!(is_login || server.output().len() <= 3);
                server.tick(number as u64);
            }
            server.closed();
            prop_assert!(server.over().is_some());
        }
    }
}
