//! The server's end: accepts a login, offers or sends an image, and disconnects a client that is too slow.

use std::sync::Arc;

use tapeworks_wire::cboe::grp::{
    self, LoginResponse, LoginResponseFields, LoginStatus, SpinImageAvailable, SpinImageAvailableFields,
    SpinResponse, SpinResponseFields, SpinStatus,
};
use tapeworks_wire::memx::tcp;
use tapeworks_wire::millennium::recovery::{self, SnapshotStatus, SnapshotType};
use tapeworks_wire::nasdaq::soupbintcp::{Message, RejectReasonCode, ServerHeartbeat};

use super::refresh::RefreshService;
use super::{Image, SECOND_NS, SnapshotProtocol};
use crate::login::{
    Credentials, HEARTBEAT_NS, LOGIN_TIMEOUT_NS, PacketReader, STALL_TIMEOUT_NS, accepted, is_known,
    is_session, rejected,
};
use crate::requests::{
    self, DayTime, RequestProtocol, accepted_by_memx, begin_by_memx, rejected_by_memx, unit_of,
};
use crate::transport::SessionId;

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
    /// MITCH: logged in, but no snapshot is requested.
    LoggedIn,
    /// Logged in for this session (blank: the running one), without an image so far.
    Waiting([u8; 10]),
    /// The image is offered as a spin, but not requested yet.
    Offered(Arc<Image>),
    /// Sending the head, then the image.
    Sending(Arc<Image>),
    /// Sending a rejection.
    Rejecting,
    Over(SnapshotEnd),
}

/// The packets of a protocol.
#[derive(Debug, Clone)]
enum Packets {
    Glimpse(PacketReader),
    /// Cboe, MITCH and MEMX: the packets of their requests.
    Own(SnapshotProtocol, RequestProtocol, requests::PacketReader),
    Refresh(Box<RefreshService>),
}

impl Packets {
    fn own(protocol: SnapshotProtocol, packets: RequestProtocol) -> Self {
        Self::Own(protocol, packets, requests::PacketReader::default())
    }

    /// Takes the packets out and leaves an empty reader of the same protocol.
    fn take(&mut self) -> Self {
        match self {
            Self::Glimpse(reader) => Self::Glimpse(std::mem::replace(reader, PacketReader::new())),
            Self::Own(protocol, packets, reader) => Self::Own(*protocol, *packets, std::mem::take(reader)),
            Self::Refresh(service) => Self::Refresh(std::mem::take(service)),
        }
    }
}

/// The server's end of one client's connection.
///
/// The caller moves the bytes: it passes received bytes to [`SnapshotServer::receive`], sends the bytes of
/// [`SnapshotServer::output`], and reports the number sent to [`SnapshotServer::sent`]. If
/// [`SnapshotServer::wants_image`], the caller provides an image as soon as it has one.
#[derive(Debug, Clone)]
pub struct SnapshotServer {
    state: State,
    credentials: Option<Credentials>,
    packets: Packets,
    received_bytes: usize,
    /// The bytes sent before the image.
    head: Vec<u8>,
    /// Bytes of the head and the image sent so far.
    sent: usize,
    image_messages: u64,
    /// The ID of the MITCH request.
    request_id: u32,
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
            state: State::Fresh,
            credentials,
            packets: match protocol {
                SnapshotProtocol::Glimpse => Packets::Glimpse(PacketReader::new()),
                SnapshotProtocol::Spin => Packets::own(protocol, RequestProtocol::Grp),
                SnapshotProtocol::Mitch => Packets::own(protocol, RequestProtocol::Mitch),
                SnapshotProtocol::Memx => Packets::own(protocol, RequestProtocol::Memx),
                SnapshotProtocol::Refresh => Packets::Refresh(Box::default()),
            },
            received_bytes: 0,
            head: Vec::new(),
            sent: 0,
            image_messages: 0,
            request_id: 0,
            moved_ns: now_ns,
            heartbeat_ns: now_ns,
        }
    }

    /// Sets the UTC time for refresh packets. Without it they contain the time of the monotonic clock.
    pub fn set_day_time(&mut self, day_time: DayTime) {
        if let Packets::Refresh(service) = &mut self.packets {
            service.day_time = day_time;
        }
    }

    /// Takes a refresh server's next packet for the group.
    pub fn next_datagram(&mut self) -> Option<Vec<u8>> {
        match &mut self.packets {
            Packets::Refresh(service) => service.next_datagram(),
            Packets::Glimpse(_) | Packets::Own(..) => None,
        }
    }

    /// Returns whether there are packets for the group.
    #[must_use]
    pub fn has_datagrams(&self) -> bool {
        matches!(&self.packets, Packets::Refresh(service) if service.has_datagrams())
    }

    /// Processes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if self.over().is_some() {
            return;
        }
        self.received_bytes += bytes.len();
        let mut packets = self.packets.take();
        let is_sound = match &mut packets {
            Packets::Glimpse(reader) => reader.read(bytes, |packet| self.packet(packet, now_ns)).is_ok(),
            Packets::Own(protocol, packets, reader) => {
                let read = reader.read(*packets, bytes, |unit| {
                    let is_sound = packets.each_message(unit, |message| match protocol {
                        SnapshotProtocol::Mitch => self.of_mitch(message, now_ns),
                        SnapshotProtocol::Memx => self.of_memx(message, now_ns),
                        _ => self.message(message, now_ns),
                    });
                    if !is_sound {
                        self.end(SnapshotEnd::Malformed);
                    }
                    self.over().is_none()
                });
                if let State::Offered(_) | State::LoggedIn = self.state {
                    self.moved_ns = now_ns;
                }
                read.is_ok()
            }
            Packets::Refresh(service) => {
                self.moved_ns = now_ns;
                let source = self.credentials.as_ref().map(|credentials| credentials.user.as_str());
                service.receive(bytes, source, now_ns, &mut self.head).is_ok()
            }
        };
        self.packets = packets;
        if !is_sound || self.received_bytes > MOST_RECEIVED_BYTES {
            self.end(SnapshotEnd::Malformed);
        }
    }

    /// Processes a SoupBinTCP packet.
    fn packet(&mut self, packet: &[u8], now_ns: u64) {
        match (Message::decode(packet), &self.state) {
            (Ok(Message::LoginRequest(login)), State::Fresh) => {
                if is_known(self.credentials.as_ref(), &login.username().0, &login.password().0) {
                    self.moved_ns = now_ns;
                    self.state = State::Waiting(login.requested_session().0);
                } else {
                    self.reject(&rejected(RejectReasonCode::NotAuthorised), now_ns);
                }
            }
            (Ok(Message::ClientHeartbeat(_) | Message::Debug(_) | Message::UnsequencedData(_)), _) => {}
            (Ok(Message::LogoutRequest(_)), _) => self.end(SnapshotEnd::Left),
            (_, State::Over(_)) => {}
            _ => self.end(SnapshotEnd::Malformed),
        }
    }

    /// Processes a message of a Cboe client.
    fn message(&mut self, message: &[u8], now_ns: u64) {
        match (grp::Message::decode(message), &self.state) {
            (Ok(grp::Message::Login(login)), State::Fresh) => {
                let is_known = is_known(self.credentials.as_ref(), &login.username().0, &login.password().0);
                let status = if is_known { LoginStatus::Accepted } else { LoginStatus::NotAuthorised };
                let fields = LoginResponseFields { length: LoginResponse::LENGTH as u8, status };
                let response = unit_of(&fields.encode());
                if is_known {
                    self.head.extend_from_slice(&response);
                    self.moved_ns = now_ns;
                    self.state = State::Waiting([b' '; 10]);
                } else {
                    self.reject(&response, now_ns);
                }
            }
            (Ok(grp::Message::SpinRequest(request)), State::Offered(image)) => {
                let image = Arc::clone(image);
                let is_offered = request.sequence() == image.last();
                let fields = SpinResponseFields {
                    length: SpinResponse::LENGTH as u8,
                    sequence: request.sequence(),
                    order_count: if is_offered { image.orders } else { 0 },
                    status: if is_offered { SpinStatus::Accepted } else { SpinStatus::OutOfRange },
                };
                self.head.extend_from_slice(&unit_of(&fields.encode()));
                if is_offered {
                    self.moved_ns = now_ns;
                    self.image_messages = image.messages;
                    self.state = State::Sending(image);
                }
            }
            // A spin is already being sent.
            (Ok(grp::Message::SpinRequest(_)), State::Sending(_))
            | (_, State::Over(_) | State::Rejecting) => {}
            _ => self.end(SnapshotEnd::Malformed),
        }
    }

    /// Processes a message of a MITCH client.
    fn of_mitch(&mut self, message: &[u8], now_ns: u64) {
        use recovery::{LoginStatus, Message};
        match (Message::decode(message), &self.state) {
            (Ok(Message::LoginRequest(login)), State::Fresh) => {
                let is_known = is_known(self.credentials.as_ref(), &login.username().0, &login.password().0);
                let status = if is_known { LoginStatus::Accepted } else { LoginStatus::InvalidPassword };
                let length = recovery::LoginResponse::LENGTH as u8;
                let response = unit_of(&recovery::LoginResponseFields { length, status }.encode());
                if is_known {
                    self.head.extend_from_slice(&response);
                    self.moved_ns = now_ns;
                    self.state = State::LoggedIn;
                } else {
                    self.reject(&response, now_ns);
                }
            }
            (Ok(Message::SnapshotRequest(request)), State::LoggedIn) => {
                let is_whole = request.instrument_id() == 0 && request.segment().trimmed().is_empty();
                if is_whole && request.snapshot_type() == SnapshotType::OrderBook {
                    self.moved_ns = now_ns;
                    (self.request_id, self.state) = (request.request_id(), State::Waiting([b' '; 10]));
                } else {
                    // Images here cover whole groups.
                    let status = SnapshotStatus::UnsupportedMessage;
                    let response = self.mitch_response(0, 0, status, request.request_id());
                    self.reject(&response, now_ns);
                }
            }
            (Ok(Message::LogoutRequest(_)), _) => self.end(SnapshotEnd::Left),
            (_, State::Over(_) | State::Rejecting) => {}
            _ => self.end(SnapshotEnd::Malformed),
        }
    }

    fn mitch_response(&self, last: u32, orders: u32, status: SnapshotStatus, request_id: u32) -> Vec<u8> {
        let fields = recovery::SnapshotResponseFields {
            length: recovery::SnapshotResponse::LENGTH as u8,
            sequence_number: last,
            order_count: orders,
            status,
            snapshot_type: SnapshotType::OrderBook,
            request_id,
        };
        unit_of(&fields.encode())
    }

    /// Processes a message of a MEMX client.
    fn of_memx(&mut self, message: &[u8], now_ns: u64) {
        match (tcp::Message::decode(message), &self.state) {
            (Ok(tcp::Message::Heartbeat(_)), _) => {}
            (Ok(tcp::Message::LoginRequest(login)), State::Fresh) => {
                let token = login.token();
                let colon = token.iter().position(|byte| *byte == b':').unwrap_or(token.len());
                let (user, password) = token.split_at(colon);
                let password = password.get(1..).unwrap_or_default();
                if is_known(self.credentials.as_ref(), user, password) {
                    self.moved_ns = now_ns;
                    self.state = State::Waiting([b' '; 10]);
                } else {
                    self.reject(&rejected_by_memx(), now_ns);
                }
            }
            (Ok(tcp::Message::ReplayAllRequest(request)), State::Offered(image)) => {
                self.moved_ns = now_ns;
                let image = Arc::clone(image);
                if image.session == SessionId::Memoir(request.session_id()) {
                    // Includes the end of the snapshot.
                    let count = u32::try_from(image.messages + 1).unwrap_or(u32::MAX);
                    self.head.extend_from_slice(&begin_by_memx(1, count));
                    self.image_messages = image.messages;
                    self.state = State::Sending(image);
                } else {
                    let message_length = (tcp::ReplayRejected::LENGTH - tcp::HEADER_BYTES) as u16;
                    let replay_reject_code = tcp::ReplayRejectCode::NotTheActiveSession;
                    let fields = tcp::ReplayRejectedFields { message_length, replay_reject_code };
                    self.reject(&fields.encode(), now_ns);
                }
            }
            (_, State::Over(_) | State::Rejecting) => {}
            _ => self.end(SnapshotEnd::Malformed),
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
        match &self.packets {
            Packets::Refresh(service) => self.over().is_none() && service.wants_image(),
            Packets::Glimpse(_) | Packets::Own(..) => matches!(self.state, State::Waiting(_)),
        }
    }

    /// Provides the image, which must have been made after the login and have the server's protocol.
    ///
    /// A client that requested another session is rejected.
    pub fn give(&mut self, image: Arc<Image>, now_ns: u64) {
        if let Packets::Refresh(service) = &mut self.packets {
            service.give(&image, now_ns);
            self.image_messages = service.messages;
            self.moved_ns = now_ns;
            return;
        }
        let State::Waiting(requested) = &self.state else { return };
        debug_assert_eq!(image.protocol(), self.protocol());
        match self.protocol() {
            SnapshotProtocol::Spin => {
                self.offer(&image, now_ns);
                self.moved_ns = now_ns;
                self.state = State::Offered(image);
                return;
            }
            SnapshotProtocol::Memx => {
                let head = accepted_by_memx(tcp::RequestMode::Snapshot, Some(image.session));
                self.head.extend_from_slice(&head);
                (self.moved_ns, self.heartbeat_ns) = (now_ns, now_ns);
                self.state = State::Offered(image);
                return;
            }
            SnapshotProtocol::Mitch => {
                let (last, orders) = (image.last(), image.orders);
                let response = self.mitch_response(last, orders, SnapshotStatus::Accepted, self.request_id);
                self.head.extend_from_slice(&response);
                self.moved_ns = now_ns;
                self.image_messages = image.messages;
                self.state = State::Sending(image);
                return;
            }
            SnapshotProtocol::Glimpse | SnapshotProtocol::Refresh => {}
        }
        let session = image.session.login_name().0;
        if !image.is_for_any_session && !is_session(requested, &session) {
            return self.reject(&rejected(RejectReasonCode::SessionNotAvailable), now_ns);
        }
        self.head.extend_from_slice(&accepted(session, 1));
        self.moved_ns = now_ns;
        self.image_messages = image.messages;
        self.state = State::Sending(image);
    }

    const fn protocol(&self) -> SnapshotProtocol {
        match self.packets {
            Packets::Glimpse(_) => SnapshotProtocol::Glimpse,
            Packets::Own(protocol, ..) => protocol,
            Packets::Refresh(_) => SnapshotProtocol::Refresh,
        }
    }

    fn offer(&mut self, image: &Image, now_ns: u64) {
        self.heartbeat_ns = now_ns;
        if let Packets::Own(SnapshotProtocol::Memx, packets, _) = &self.packets {
            // The start of the session has already offered it.
            return self.head.extend_from_slice(packets.heartbeat());
        }
        let fields =
            SpinImageAvailableFields { length: SpinImageAvailable::LENGTH as u8, sequence: image.last() };
        self.head.extend_from_slice(&unit_of(&fields.encode()));
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
    pub const fn unanswered(&self) -> u64 {
        match &self.packets {
            Packets::Refresh(service) => service.unanswered,
            Packets::Glimpse(_) | Packets::Own(..) => 0,
        }
    }

    /// Records that the client closed its side.
    pub fn closed(&mut self) {
        // A refresh client leaves once it has everything.
        let has_all = matches!(self.packets, Packets::Refresh(_)) && self.image_messages > 0;
        self.end(if has_all { SnapshotEnd::Served } else { SnapshotEnd::Left });
    }

    /// Runs the timers: sends heartbeats or repeats the offer while the client waits, and disconnects a client that is too slow.
    pub fn tick(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.moved_ns);
        let is_due = now_ns.saturating_sub(self.heartbeat_ns) >= HEARTBEAT_NS;
        if matches!(self.packets, Packets::Refresh(_)) {
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
            State::Offered(_) | State::LoggedIn if idle_ns >= self.protocol().silence_ns() => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Sending(_) | State::Rejecting | State::Waiting(_) if idle_ns >= STALL_TIMEOUT_NS => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Waiting(_) if is_due => {
                self.heartbeat_ns = now_ns;
                match self.packets {
                    Packets::Glimpse(_) => self.head.extend_from_slice(&[0, 1, ServerHeartbeat::TAG]),
                    Packets::Refresh(_) => {}
                    Packets::Own(_, packets, _) => self.head.extend_from_slice(packets.heartbeat()),
                }
            }
            State::Offered(_) if self.head.len().saturating_sub(self.sent) > MOST_OFFERED_BYTES => {
                self.end(SnapshotEnd::TimedOut);
            }
            State::Offered(image) if is_due => {
                let image = Arc::clone(image);
                self.offer(&image, now_ns);
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
