//! The server's end of one connection: accepts a login and requests, and answers them as the caller decides.

use std::collections::VecDeque;

use subtle::ConstantTimeEq;
use tapeworks_wire::Ascii;
use tapeworks_wire::cboe::grp::{
    self, GapResponse, GapResponseFields, LoginResponse, LoginResponseFields, LoginStatus,
};
use tapeworks_wire::memx::tcp::{
    self, HEADER_BYTES, LoginAccepted, LoginAcceptedFields, LoginRejectCode, LoginRejected,
    LoginRejectedFields, ReplayBegin, ReplayBeginFields, ReplayComplete, ReplayCompleteFields,
    ReplayRejected, ReplayRejectedFields, RequestMode, SequencedMessageFields, StartOfSession,
    StartOfSessionFields,
};
use tapeworks_wire::millennium::recovery;
use tapeworks_wire::nyse::integrated::{
    HeartbeatResponse, RequestResponse, RequestResponseFields, RetransmissionRequest,
};
use tapeworks_wire::nyse::packet::PillarPacket;

use super::{
    DayTime, PacketReader, RequestLogin, RequestProtocol, RequestStatus, SECOND_NS, pillar_of, unit_of,
};
use crate::outgoing::Outgoing;
use crate::transport::{Request, SessionId};

/// How long a client may take to log in, in ns.
const LOGIN_NS: u64 = 10 * SECOND_NS;

/// Silence after which a client with a login is disconnected, and the time an NYSE client has to answer a heartbeat, in ns.
const PATIENCE_NS: u64 = 5 * SECOND_NS;

/// The most requests of a client waiting for the caller.
const MOST_WAITING: usize = 64;

/// The most unsent bytes for a client that does not read.
const MOST_OUTPUT_BYTES: usize = 64 << 10;

/// Limits on a client's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The most messages per request.
    pub messages: u16,
    /// Requests per second.
    pub per_second: u32,
    /// Requests per minute.
    pub per_minute: u32,
    /// Requests per day.
    pub per_day: u32,
}

impl ServerLimits {
    /// Returns the default limits of a protocol: the venue's as documented, or ours where none are documented.
    #[must_use]
    pub const fn of(protocol: RequestProtocol) -> Self {
        let (messages, per_second) = (protocol.most_messages(), protocol.per_second());
        match protocol {
            RequestProtocol::Grp => Self { messages, per_second, per_minute: 1_500, per_day: 100_000 },
            RequestProtocol::Pillar => Self { messages, per_second, per_minute: u32::MAX, per_day: 5_000 },
            RequestProtocol::Mitch | RequestProtocol::Memx => {
                Self { messages, per_second, per_minute: u32::MAX, per_day: u32::MAX }
            }
        }
    }
}

/// Requests in a time window.
#[derive(Debug, Clone, Copy)]
struct Quota {
    length_ns: u64,
    /// The index of the window.
    stretch: u64,
    taken: u32,
}

impl Quota {
    const fn new(seconds: u64) -> Self {
        Self { length_ns: seconds * SECOND_NS, stretch: 0, taken: 0 }
    }

    /// Counts a request and returns whether it is within the limit.
    const fn take(&mut self, limit: u32, now_ns: u64) -> bool {
        let stretch = now_ns / self.length_ns;
        if stretch != self.stretch {
            (self.stretch, self.taken) = (stretch, 0);
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= limit
    }
}

/// Returns whether user and password match. Compares in constant time.
fn is_same(one: (&[u8], &[u8]), other: (&[u8], &[u8])) -> bool {
    bool::from(one.0.ct_eq(other.0) & one.1.ct_eq(other.1))
}

/// MEMX: builds the acceptance of a login by a server in this mode, and the start of the session if one is running.
pub(crate) fn accepted_by_memx(supported_request_mode: RequestMode, session: Option<SessionId>) -> Vec<u8> {
    let message_length = (LoginAccepted::LENGTH - HEADER_BYTES) as u16;
    let mut bytes = LoginAcceptedFields { message_length, supported_request_mode }.encode().to_vec();
    if let Some(SessionId::Memoir(session_id)) = session {
        let message_length = (StartOfSession::LENGTH - HEADER_BYTES) as u16;
        bytes.extend_from_slice(&StartOfSessionFields { message_length, session_id }.encode());
    }
    bytes
}

/// MEMX: builds the rejection of a login.
pub(crate) fn rejected_by_memx() -> [u8; LoginRejected::LENGTH] {
    let message_length = (LoginRejected::LENGTH - HEADER_BYTES) as u16;
    let login_reject_code = LoginRejectCode::AuthorizationFailed;
    LoginRejectedFields { message_length, login_reject_code }.encode()
}

/// MEMX: announces this many messages, starting at this number.
pub(crate) fn begin_by_memx(
    next_sequence_number: u64,
    pending_message_count: u32,
) -> [u8; ReplayBegin::LENGTH] {
    let message_length = (ReplayBegin::LENGTH - HEADER_BYTES) as u16;
    ReplayBeginFields { message_length, next_sequence_number, pending_message_count }.encode()
}

/// MEMX: reports that this many messages were sent.
pub(crate) fn complete_by_memx(message_count: u64) -> [u8; ReplayComplete::LENGTH] {
    let message_length = (ReplayComplete::LENGTH - HEADER_BYTES) as u16;
    ReplayCompleteFields { message_length, message_count }.encode()
}

/// Appends a message in the form that MEMX sends over a connection.
pub(crate) fn append_sequenced(message: &[u8], bytes: &mut Vec<u8>) {
    // No message is longer than a packet.
    let fields = SequencedMessageFields { message_length: message.len() as u16, message };
    let start = bytes.len();
    bytes.resize(start + HEADER_BYTES + message.len(), 0);
    let written = bytes.get_mut(start..).map(|room| fields.encode_into(room));
    debug_assert!(written.is_some_and(|written| written.is_ok()), "the message has its room");
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestServerEnd {
    /// The login was refused.
    Refused,
    /// The client left.
    Left,
    /// The client sent an invalid packet, or a message that clients may not send.
    Malformed,
    /// The client took too long to log in, send a packet, answer a heartbeat, or read.
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No login has arrived.
    Fresh,
    Ready,
    /// The refusal of the login is being sent.
    Refusing,
    Over(RequestServerEnd),
}

/// Fields of a request that its response repeats.
#[derive(Debug, Clone, Copy)]
enum Repeated {
    /// Cboe, MITCH and MEMX: nothing beyond the request itself.
    Nothing,
    Pillar {
        source: Ascii<10>,
        product: u8,
        channel: u8,
        /// The last number requested.
        end: u32,
        /// The number of the packet with the request.
        number: u32,
    },
}

/// The server's end of one connection.
///
/// The caller moves the bytes, takes requests with [`RequestServer::next_request`], and answers each with
/// [`RequestServer::answer`].
#[derive(Debug, Clone)]
pub struct RequestServer {
    protocol: RequestProtocol,
    /// Who may request; `None` admits any client.
    admitted: Option<RequestLogin>,
    limits: ServerLimits,
    state: State,
    packets: PacketReader,
    output: Outgoing,
    requests: VecDeque<(Request, Repeated)>,
    quotas: [Quota; 3],
    next_number: u32,
    day_time: DayTime,
    session: Option<SessionId>,
    /// The number of the NYSE client's packet being read.
    request_number: u32,
    since_ns: u64,
    /// When bytes were last received.
    heard_ns: u64,
    /// When bytes were last sent, or last queued while nothing was waiting.
    moved_ns: u64,
    /// When a packet was last queued.
    put_ns: u64,
    /// When a heartbeat was sent that NYSE's client has not answered.
    unanswered_ns: Option<u64>,
}

impl RequestServer {
    /// Creates a connection established at `now_ns`. Without `admitted`, any client may request.
    #[must_use]
    pub fn new(
        protocol: RequestProtocol,
        admitted: Option<RequestLogin>,
        limits: ServerLimits,
        now_ns: u64,
    ) -> Self {
        Self {
            protocol,
            admitted,
            limits,
            state: match protocol {
                RequestProtocol::Grp | RequestProtocol::Mitch | RequestProtocol::Memx => State::Fresh,
                RequestProtocol::Pillar => State::Ready,
            },
            packets: PacketReader::default(),
            output: Outgoing::default(),
            requests: VecDeque::new(),
            quotas: [Quota::new(1), Quota::new(60), Quota::new(86_400)],
            next_number: 1,
            day_time: DayTime::default(),
            session: None,
            request_number: 0,
            since_ns: now_ns,
            heard_ns: now_ns,
            moved_ns: now_ns,
            put_ns: now_ns,
            unanswered_ns: None,
        }
    }

    /// Sets the UTC time for packets of NYSE's server. Without it they contain the time of the monotonic clock.
    pub const fn set_day_time(&mut self, day_time: DayTime) {
        self.day_time = day_time;
    }

    /// Processes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if self.over().is_some() {
            return;
        }
        self.heard_ns = now_ns;
        let mut packets = std::mem::take(&mut self.packets);
        let read = packets.read(self.protocol, bytes, |packet| {
            let protocol = self.protocol;
            if let (RequestProtocol::Pillar, Ok(pillar)) = (protocol, PillarPacket::decode(packet)) {
                self.request_number = pillar.sequence();
            }
            if !protocol.each_message(packet, |message| self.message(message, now_ns)) {
                self.end(RequestServerEnd::Malformed);
            }
            !matches!(self.state, State::Over(_))
        });
        self.packets = packets;
        if read.is_err() {
            self.end(RequestServerEnd::Malformed);
        }
    }

    fn message(&mut self, message: &[u8], now_ns: u64) {
        match self.protocol {
            RequestProtocol::Grp => self.of_grp(message, now_ns),
            RequestProtocol::Pillar => self.of_pillar(message, now_ns),
            RequestProtocol::Mitch => self.of_mitch(message, now_ns),
            RequestProtocol::Memx => self.of_memx(message, now_ns),
        }
    }

    fn of_mitch(&mut self, message: &[u8], now_ns: u64) {
        match (recovery::Message::decode(message), self.state) {
            (Ok(recovery::Message::LoginRequest(login)), State::Fresh) => {
                let is_known = match self.admitted {
                    None => true,
                    Some(RequestLogin::Mitch { user, password }) => is_same(
                        (login.username().trimmed(), login.password().trimmed()),
                        (user.trimmed(), password.trimmed()),
                    ),
                    Some(_) => false,
                };
                let status = match is_known {
                    true => recovery::LoginStatus::Accepted,
                    false => recovery::LoginStatus::InvalidPassword,
                };
                let length = recovery::LoginResponse::LENGTH as u8;
                let fields = recovery::LoginResponseFields { length, status };
                self.put(&unit_of(&fields.encode()), now_ns);
                self.state = if is_known { State::Ready } else { State::Refusing };
            }
            (Ok(recovery::Message::ReplayRequest(request)), State::Ready) => {
                let [group] = request.market_data_group().0;
                let (first, count) = (u64::from(request.first_message()), request.count());
                let request = Request { session: SessionId::MitchUnit(group), first, count };
                self.take(request, Repeated::Nothing, None, now_ns);
            }
            (Ok(recovery::Message::LogoutRequest(_)), _) => self.end(RequestServerEnd::Left),
            (_, State::Refusing) => {}
            _ => self.end(RequestServerEnd::Malformed),
        }
    }

    fn of_memx(&mut self, message: &[u8], now_ns: u64) {
        match (tcp::Message::decode(message), self.state) {
            (Ok(tcp::Message::Heartbeat(_)), _) => {}
            (Ok(tcp::Message::LoginRequest(login)), State::Fresh) => {
                let is_known = match self.admitted {
                    None => true,
                    Some(RequestLogin::Memx { user, password }) => {
                        let token = [user.trimmed(), b":", password.trimmed()].concat();
                        bool::from(login.token().ct_eq(&token))
                    }
                    Some(_) => false,
                };
                if is_known {
                    self.put(&accepted_by_memx(RequestMode::Replay, self.session), now_ns);
                } else {
                    self.put(&rejected_by_memx(), now_ns);
                }
                self.state = if is_known { State::Ready } else { State::Refusing };
            }
            (Ok(tcp::Message::ReplayRequest(request)), State::Ready) => {
                let count = u16::try_from(request.count()).ok();
                let status = if count.is_none() { Some(RequestStatus::TooLong) } else { None };
                let request = Request {
                    session: SessionId::Memoir(request.session_id()),
                    first: request.next_sequence_number(),
                    count: count.unwrap_or_default(),
                };
                self.take(request, Repeated::Nothing, status, now_ns);
            }
            (_, State::Refusing) => {}
            _ => self.end(RequestServerEnd::Malformed),
        }
    }

    fn of_grp(&mut self, message: &[u8], now_ns: u64) {
        match (grp::Message::decode(message), self.state) {
            (Ok(grp::Message::Login(login)), State::Fresh) => {
                let (sub_id, user) = (login.session_sub_id(), login.username());
                let is_known = match self.admitted {
                    None => true,
                    Some(RequestLogin::Grp { sub_id: its_sub_id, user: its_user, password }) => {
                        let is_same = |one: &[u8], other: &[u8]| one.ct_eq(other);
                        bool::from(
                            is_same(sub_id.trimmed(), its_sub_id.trimmed())
                                & is_same(user.trimmed(), its_user.trimmed())
                                & is_same(login.password().trimmed(), password.trimmed()),
                        )
                    }
                    Some(_) => false,
                };
                let status = if is_known { LoginStatus::Accepted } else { LoginStatus::NotAuthorised };
                let fields = LoginResponseFields { length: LoginResponse::LENGTH as u8, status };
                self.put(&unit_of(&fields.encode()), now_ns);
                self.state = if is_known { State::Ready } else { State::Refusing };
            }
            (Ok(grp::Message::GapRequest(request)), State::Ready) => {
                let session = SessionId::CboeUnit(request.unit());
                let first = u64::from(request.sequence());
                let request = Request { session, first, count: request.count() };
                self.take(request, Repeated::Nothing, None, now_ns);
            }
            (_, State::Refusing) => {}
            _ => self.end(RequestServerEnd::Malformed),
        }
    }

    fn of_pillar(&mut self, message: &[u8], now_ns: u64) {
        let is = |tag: u16| message.get(2..4) == Some(&tag.to_le_bytes());
        if is(HeartbeatResponse::TAG) && HeartbeatResponse::decode(message).is_ok() {
            self.unanswered_ns = None;
            return;
        }
        let request = RetransmissionRequest::decode(message).ok().filter(|_| is(RetransmissionRequest::TAG));
        let Some(request) = request else {
            self.end(RequestServerEnd::Malformed);
            return;
        };
        let (begin, end) = (request.begin_sequence(), request.end_sequence());
        let (source, product, channel) = (request.source_id(), request.product_id(), request.channel_id());
        let count = end.checked_sub(begin).and_then(|more| u16::try_from(more.checked_add(1)?).ok());
        let status = match (count, self.admitted) {
            (_, Some(RequestLogin::Pillar { source: known, .. })) if known.trimmed() != source.trimmed() => {
                Some(RequestStatus::InvalidSource)
            }
            (_, Some(RequestLogin::Pillar { product: known, .. })) if known != product => {
                Some(RequestStatus::InvalidProduct)
            }
            (_, Some(RequestLogin::Pillar { channel: known, .. })) if known != channel => {
                Some(RequestStatus::InvalidChannel)
            }
            (None, _) if end < begin => Some(RequestStatus::InvalidMessage),
            (None, _) => Some(RequestStatus::TooLong),
            (Some(_), _) => None,
        };
        let request =
            Request { session: SessionId::Pillar, first: u64::from(begin), count: count.unwrap_or_default() };
        let repeated = Repeated::Pillar { source, product, channel, end, number: self.request_number };
        self.take(request, repeated, status, now_ns);
    }

    /// Queues a request for the caller, or refuses it immediately.
    fn take(&mut self, request: Request, repeated: Repeated, status: Option<RequestStatus>, now_ns: u64) {
        let ServerLimits { messages, per_second, per_minute, per_day } = self.limits;
        let [second, minute, day] = &mut self.quotas;
        let is_in_day = day.take(per_day, now_ns);
        let is_in_minute = minute.take(per_minute, now_ns);
        let is_in_second = second.take(per_second, now_ns);
        let status = match status {
            Some(status) => Some(status),
            None if request.count > messages => Some(RequestStatus::TooLong),
            None if !is_in_day => Some(RequestStatus::DayQuota),
            None if !is_in_minute => Some(RequestStatus::MinuteQuota),
            None if !is_in_second || self.requests.len() >= MOST_WAITING => Some(RequestStatus::SecondQuota),
            None => None,
        };
        match status {
            Some(status) => self.respond(&request, repeated, status, now_ns),
            None => self.requests.push_back((request, repeated)),
        }
    }

    /// Returns the next request for the caller to answer.
    #[must_use]
    pub fn next_request(&self) -> Option<Request> {
        self.requests.front().map(|(request, _)| *request)
    }

    /// Answers the request returned by [`RequestServer::next_request`].
    pub fn answer(&mut self, status: RequestStatus, now_ns: u64) {
        self.answer_with(status, &[], now_ns);
    }

    /// Answers like [`RequestServer::answer`], with packets of the requested messages in the feed's format.
    ///
    /// They are sent over the connection, if the venue does not send them to a group.
    pub fn answer_with(&mut self, status: RequestStatus, packets: &[Vec<u8>], now_ns: u64) {
        let Some((request, repeated)) = self.requests.pop_front() else { return };
        self.respond(&request, repeated, status, now_ns);
        if status != RequestStatus::Accepted {
            return;
        }
        match self.protocol {
            RequestProtocol::Grp | RequestProtocol::Pillar => {}
            RequestProtocol::Mitch => packets.iter().for_each(|packet| self.put(packet, now_ns)),
            RequestProtocol::Memx => {
                let (mut messages, mut count) = (Vec::new(), 0);
                let header = |packet: &Vec<u8>| <crate::Memoir as crate::Transport>::KIND.header(packet).ok();
                let first = packets.first().and_then(header).map_or(request.first, |header| header.first);
                for packet in packets {
                    // Messages have no number here: each is the next one.
                    let is_next = |number| number == first + u64::from(count);
                    if !header(packet).is_some_and(|header| is_next(header.first)) {
                        break;
                    }
                    <crate::Memoir as crate::Transport>::KIND.each_message(packet, |_, message| {
                        count += 1;
                        append_sequenced(message, &mut messages);
                    });
                }
                self.put(&begin_by_memx(first, count), now_ns);
                self.put(&messages, now_ns);
                self.put(&complete_by_memx(u64::from(count)), now_ns);
            }
        }
    }

    /// Sets the running session, which MEMX's server announces.
    pub const fn set_session(&mut self, session: SessionId) {
        self.session = Some(session);
    }

    fn respond(&mut self, request: &Request, repeated: Repeated, status: RequestStatus, now_ns: u64) {
        if self.output.unsent_bytes() > MOST_OUTPUT_BYTES {
            return self.end(RequestServerEnd::TimedOut);
        }
        // Requests have 32-bit numbers, except at MEMX, whose responses have none.
        let first = request.first as u32;
        match (repeated, request.session) {
            (Repeated::Nothing, SessionId::CboeUnit(unit)) => {
                let fields = GapResponseFields {
                    length: GapResponse::LENGTH as u8,
                    unit,
                    sequence: first,
                    count: request.count,
                    status: status.to_grp(),
                };
                self.put(&unit_of(&fields.encode()), now_ns);
            }
            (Repeated::Pillar { source, product, channel, end, number }, _) => {
                let fields = RequestResponseFields {
                    length: RequestResponse::LENGTH as u16,
                    request_sequence: number,
                    begin_sequence: first,
                    end_sequence: end,
                    source_id: source,
                    product_id: product,
                    channel_id: channel,
                    status: status.to_pillar(),
                };
                self.put_pillar(&fields.encode(), now_ns);
            }
            (Repeated::Nothing, SessionId::MitchUnit(group)) => {
                let fields = recovery::ReplayResponseFields {
                    length: recovery::ReplayResponse::LENGTH as u8,
                    market_data_group: Ascii([group]),
                    first_message: first,
                    count: request.count,
                    status: status.to_mitch(),
                };
                self.put(&unit_of(&fields.encode()), now_ns);
            }
            // An accepted request is answered by the messages alone.
            (Repeated::Nothing, SessionId::Memoir(_)) if status != RequestStatus::Accepted => {
                let message_length = (ReplayRejected::LENGTH - HEADER_BYTES) as u16;
                let fields = ReplayRejectedFields { message_length, replay_reject_code: status.to_memx() };
                self.put(&fields.encode(), now_ns);
            }
            (Repeated::Nothing, _) => {}
        }
    }

    fn put_pillar(&mut self, message: &[u8], now_ns: u64) {
        let packet = pillar_of(message, self.next_number, self.day_time.at(now_ns));
        self.next_number = self.next_number.wrapping_add(u32::from(!message.is_empty()));
        self.put(&packet, now_ns);
    }

    fn put(&mut self, packet: &[u8], now_ns: u64) {
        if self.output.unsent_bytes() == 0 {
            self.moved_ns = now_ns;
        }
        self.output.put(packet);
        self.put_ns = now_ns;
    }

    /// Returns the bytes to send next; empty if there are none.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if self.over().is_some() { &[] } else { self.output.unsent() }
    }

    /// Records that this many bytes of [`RequestServer::output`] were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes == 0 {
            return;
        }
        self.output.sent(bytes);
        self.moved_ns = now_ns;
        if self.state == State::Refusing && self.output.unsent_bytes() == 0 {
            self.end(RequestServerEnd::Refused);
        }
    }

    /// Records that the client closed its side.
    pub fn closed(&mut self) {
        self.end(RequestServerEnd::Left);
    }

    fn end(&mut self, end: RequestServerEnd) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// Returns how the connection ended, if it has. The caller closes it.
    #[must_use]
    pub const fn over(&self) -> Option<RequestServerEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Returns whether requests are accepted: the client has logged in, or need not.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Runs the timers: sends heartbeats, and disconnects a client that is silent or does not read.
    pub fn tick(&mut self, now_ns: u64) {
        let since = |time_ns: u64| now_ns.saturating_sub(time_ns);
        if self.output.unsent_bytes() > 0 && since(self.moved_ns) >= 3 * PATIENCE_NS {
            return self.end(RequestServerEnd::TimedOut);
        }
        match (self.state, self.protocol) {
            (State::Fresh, _) if since(self.since_ns) >= LOGIN_NS => self.end(RequestServerEnd::TimedOut),
            (State::Ready, protocol) if protocol.has_login() && since(self.heard_ns) >= PATIENCE_NS => {
                self.end(RequestServerEnd::TimedOut);
            }
            (State::Ready, protocol)
                if protocol.has_login() && since(self.put_ns) >= protocol.server_heartbeat_ns() =>
            {
                self.put(protocol.heartbeat(), now_ns);
            }
            (State::Ready, RequestProtocol::Pillar) => match self.unanswered_ns {
                Some(sent_ns) if since(sent_ns) >= PATIENCE_NS => self.end(RequestServerEnd::TimedOut),
                Some(_) => {}
                None if since(self.put_ns) >= self.protocol.server_heartbeat_ns() => {
                    self.unanswered_ns = Some(now_ns);
                    self.put_pillar(&[], now_ns);
                }
                None => {}
            },
            _ => {}
        }
    }
}
