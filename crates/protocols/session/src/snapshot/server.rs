//! The server's end: accepts a login, offers or sends an image, and disconnects a client that is too slow.

use std::sync::Arc;

use super::{Image, SnapshotProtocol};
use crate::dialect::connection::{Asked, PacketReader, SECOND_NS};
use crate::dialect::requests::DayTime;
use crate::dialect::snapshots::{Answer, Flow, SnapshotRules};
use crate::login::{Credentials, HEARTBEAT_NS, LOGIN_TIMEOUT_NS, STALL_TIMEOUT_NS};
use crate::table::GroupServer;

/// The most bytes that a client may send in total. A client that sends more is disconnected.
const MOST_RECEIVED_BYTES: usize = 64 << 10;

/// The most unsent bytes for a client that does not read its offers.
const MOST_OFFERED_BYTES: usize = 1_024;

/// A refresh client that requests nothing for this long is disconnected, in nanoseconds.
const IDLE_NS: u64 = 60 * SECOND_NS;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotEnd {
    /// The whole snapshot was sent.
    Served,
    /// The login was rejected.
    Rejected,
    /// The client logged out or closed the connection.
    Left,
    /// The client sent an invalid packet, or too many bytes.
    Malformed,
    /// The client did not log in, or did not read, in time.
    TimedOut,
}

#[derive(Debug, Clone)]
enum State {
    /// No login has arrived.
    Fresh,
    /// Logged in, but no snapshot is requested.
    LoggedIn,
    /// This login or request is answered by an image, which is not available yet.
    Waiting(Vec<u8>),
    /// The image is offered, but not requested yet.
    Offered(Arc<Image>),
    /// Sending the head, then the image.
    Sending(Arc<Image>),
    /// Sending a rejection.
    Rejecting,
    Over(SnapshotEnd),
}

/// The server's end of one client's connection.
///
/// The caller moves the bytes: it passes received bytes to [`SnapshotServer::receive`], sends the bytes of
/// [`SnapshotServer::output`], and reports the number sent to [`SnapshotServer::sent`]. If
/// [`SnapshotServer::wants_image`], the caller provides an image as soon as it has one.
#[derive(Debug, Clone)]
pub struct SnapshotServer {
    protocol: SnapshotProtocol,
    state: State,
    credentials: Option<Credentials>,
    packets: PacketReader,
    /// The answers to a group; `None` for snapshots over the connection.
    group: Option<Box<GroupServer>>,
    received_bytes: usize,
    /// The bytes sent before the image.
    head: Vec<u8>,
    day_time: DayTime,
    /// Bytes of the head and the image sent so far.
    sent: usize,
    image_messages: u64,
    /// When bytes were last sent, or expected bytes received.
    moved_ns: u64,
    /// When bytes were last sent, or a heartbeat was last queued.
    heartbeat_ns: u64,
}

impl SnapshotServer {
    /// Creates a connection established at `now_ns`, a time of the caller's clock. Without credentials, any client may log in.
    #[must_use]
    pub fn new(protocol: SnapshotProtocol, credentials: Option<Credentials>, now_ns: u64) -> Self {
        Self {
            protocol,
            state: State::Fresh,
            credentials,
            packets: PacketReader::default(),
            group: protocol.rules().is_on_group.then(Box::default),
            received_bytes: 0,
            head: Vec::new(),
            day_time: DayTime::default(),
            sent: 0,
            image_messages: 0,
            moved_ns: now_ns,
            heartbeat_ns: now_ns,
        }
    }

    /// Sets the UTC time for refresh packets. Without it they contain the time of the monotonic clock.
    pub const fn set_day_time(&mut self, day_time: DayTime) {
        self.day_time = day_time;
    }

    /// Takes a refresh server's next packet for the group.
    pub fn next_datagram(&mut self) -> Option<Vec<u8>> {
        self.group.as_mut()?.next_datagram()
    }

    /// Returns whether there are packets for the group.
    #[must_use]
    pub fn has_datagrams(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.has_datagrams())
    }

    /// Processes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if self.over().is_some() {
            return;
        }
        self.received_bytes += bytes.len();
        let is_sound = match &mut self.group {
            Some(group) => {
                self.moved_ns = now_ns;
                let source = self.credentials.as_ref().map(|credentials| credentials.user.as_str());
                group.receive(bytes, source, self.day_time.at(now_ns), &mut self.head).is_ok()
            }
            None => self.read(bytes, now_ns),
        };
        if !is_sound || self.received_bytes > MOST_RECEIVED_BYTES {
            self.end(SnapshotEnd::Malformed);
        }
    }

    const fn rules(&self) -> &'static SnapshotRules {
        self.protocol.rules()
    }

    /// Reads packets. Returns `false` if a packet has an impossible length.
    fn read(&mut self, bytes: &[u8], now_ns: u64) -> bool {
        let mut packets = std::mem::take(&mut self.packets);
        let connection = self.rules().connection;
        let read = packets.read(connection, bytes, |packet| {
            if !(connection.each_message)(packet, &mut |message| self.message(message, now_ns)) {
                self.end(SnapshotEnd::Malformed);
            }
            self.over().is_none()
        });
        self.packets = packets;
        if let State::Offered(_) | State::LoggedIn = self.state {
            self.moved_ns = now_ns;
        }
        read.is_ok()
    }

    fn message(&mut self, message: &[u8], now_ns: u64) {
        let &SnapshotRules { dialect, flow, .. } = self.rules();
        match (dialect.asked(message, self.credentials.as_ref()), &self.state) {
            (Asked::Nothing, _) => {}
            (Asked::Logout, _) => self.end(SnapshotEnd::Left),
            (Asked::Login(is_known), State::Fresh) => {
                let answer = dialect.login_answer(is_known);
                if !is_known {
                    return self.reject(&answer, now_ns);
                }
                self.head.extend_from_slice(&answer);
                self.moved_ns = now_ns;
                self.state = match flow {
                    Flow::OnRequest => State::LoggedIn,
                    Flow::AtLogin | Flow::Offered { .. } => State::Waiting(message.to_vec()),
                };
            }
            (Asked::Request(Ok(())), State::LoggedIn) => {
                self.moved_ns = now_ns;
                self.state = State::Waiting(message.to_vec());
            }
            (Asked::Request(Err(answer)), State::LoggedIn) => self.reject(&answer, now_ns),
            (Asked::Request(Ok(())), State::Offered(image)) => {
                let image = Arc::clone(image);
                self.answer(image, message, now_ns);
            }
            // The snapshot is already being sent.
            (Asked::Request(Ok(())), State::Sending(_)) if flow == (Flow::Offered { is_repeated: true }) => {}
            (_, State::Over(_)) => {}
            // A client whose login asked for the snapshot may only wait for its rejection.
            (_, State::Rejecting) if flow != Flow::AtLogin => {}
            _ => self.end(SnapshotEnd::Malformed),
        }
    }

    /// Answers a login or request with this image.
    fn answer(&mut self, image: Arc<Image>, message: &[u8], now_ns: u64) {
        match self.rules().dialect.answer(&image, message) {
            Answer::Accept(head) => {
                self.head.extend_from_slice(&head);
                self.moved_ns = now_ns;
                self.image_messages = image.messages;
                self.state = State::Sending(image);
            }
            Answer::Decline(head) => self.head.extend_from_slice(&head),
            Answer::Reject(head) => self.reject(&head, now_ns),
        }
    }

    fn reject(&mut self, rejection: &[u8], now_ns: u64) {
        self.head.extend_from_slice(rejection);
        self.moved_ns = now_ns;
        self.state = State::Rejecting;
    }

    fn end(&mut self, end: SnapshotEnd) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// Returns whether the client is waiting for an image.
    #[must_use]
    pub fn wants_image(&self) -> bool {
        match &self.group {
            Some(group) => self.over().is_none() && group.wants_image(),
            None => matches!(self.state, State::Waiting(_)),
        }
    }

    /// Provides the image, which must have been made after the login and have the server's protocol.
    ///
    /// A client that requested another session is rejected.
    pub fn give(&mut self, image: Arc<Image>, now_ns: u64) {
        if let Some(group) = &mut self.group {
            group.give(&image, self.day_time.at(now_ns));
            self.image_messages = group.messages;
            self.moved_ns = now_ns;
            return;
        }
        let State::Waiting(message) = &mut self.state else { return };
        debug_assert_eq!(image.protocol(), self.protocol);
        let message = std::mem::take(message);
        if let Flow::Offered { .. } = self.rules().flow {
            self.head.extend_from_slice(&self.rules().dialect.offer(&image));
            (self.moved_ns, self.heartbeat_ns) = (now_ns, now_ns);
            self.state = State::Offered(image);
        } else {
            self.answer(image, &message, now_ns);
        }
    }

    /// Returns the bytes to send next; empty if there are none.
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

    /// Records that this many bytes of [`SnapshotServer::output`] were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes == 0 {
            return;
        }
        self.sent += bytes;
        (self.moved_ns, self.heartbeat_ns) = (now_ns, now_ns);
        if self.output().is_empty() {
            match &self.state {
                State::Sending(image) if image.is_endless => self.sent = self.head.len(),
                State::Sending(_) => self.end(SnapshotEnd::Served),
                State::Rejecting => self.end(SnapshotEnd::Rejected),
                _ => {}
            }
        }
    }

    /// Returns the number of messages in the image provided, without its end; 0 without an image.
    #[must_use]
    pub fn image_messages(&self) -> u64 {
        self.image_messages
    }

    /// Returns the number of refresh answers not sent because they need more packets than a header can count.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.group.as_ref().map_or(0, |group| group.unanswered)
    }

    /// Records that the client closed its side.
    pub fn closed(&mut self) {
        // A refresh client leaves once it has everything.
        let has_all = self.group.is_some() && self.image_messages > 0;
        self.end(if has_all { SnapshotEnd::Served } else { SnapshotEnd::Left });
    }

    /// Runs the timers: sends heartbeats or repeats the offer while the client waits, and disconnects a client that is too slow.
    pub fn tick(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.moved_ns);
        let is_due = now_ns.saturating_sub(self.heartbeat_ns) >= HEARTBEAT_NS;
        if self.group.is_some() {
            let longest_ns = match (self.image_messages, self.output()) {
                (_, [_, ..]) => STALL_TIMEOUT_NS,
                (0, []) => LOGIN_TIMEOUT_NS,
                (_, []) => IDLE_NS,
            };
            if idle_ns >= longest_ns {
                self.end(SnapshotEnd::TimedOut);
            }
            return;
        }
        match &self.state {
            State::Fresh if idle_ns >= LOGIN_TIMEOUT_NS => self.end(SnapshotEnd::TimedOut),
            State::Offered(_) | State::LoggedIn if idle_ns >= self.protocol.silence_ns() => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Sending(_) | State::Rejecting | State::Waiting(_) if idle_ns >= STALL_TIMEOUT_NS => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Waiting(_) if is_due => {
                self.heartbeat_ns = now_ns;
                self.head.extend_from_slice(self.rules().server_heartbeat);
            }
            State::Offered(_) if self.head.len().saturating_sub(self.sent) > MOST_OFFERED_BYTES => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Offered(image) if is_due => {
                self.heartbeat_ns = now_ns;
                match self.rules().flow {
                    Flow::Offered { is_repeated: true } => {
                        self.head.extend_from_slice(&self.rules().dialect.offer(image));
                    }
                    _ => self.head.extend_from_slice(self.rules().server_heartbeat),
                }
            }
            _ => {}
        }
    }

    /// Returns how the connection ended, if it has. The caller closes it.
    #[must_use]
    pub fn over(&self) -> Option<SnapshotEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }
}
