//! The client's end: logs in, sends the requests of one channel, and reconnects after a disconnect.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use tapeworks_wire::Ascii;
use tapeworks_wire::cboe::grp::{self, GapRequest, GapRequestFields, Login, LoginFields, LoginStatus};
use tapeworks_wire::memx::tcp::{
    self, HEADER_BYTES, LoginRequestFields as TokenFields, ReplayRequest, ReplayRequestFields, TokenType,
};
use tapeworks_wire::memx::udp::SequencedPacketFields;
use tapeworks_wire::memx::udp::{HEADER_LENGTH, MessageType};
use tapeworks_wire::millennium::recovery;
use tapeworks_wire::nyse::integrated::{
    HeartbeatResponse, HeartbeatResponseFields, RequestResponse, RetransmissionRequest,
    RetransmissionRequestFields,
};

use super::{
    DayTime, PacketReader, RequestLogin, RequestProtocol, RequestStatus, SECOND_NS, pillar_of, unit_of,
};
use crate::outgoing::Outgoing;
use crate::throttle::Throttle;
use crate::transport::{Request, SessionId};

/// The most ranges waiting to be requested. A plant has at most 1,024 requests in flight.
const MOST_WAITING: usize = 1_024;

/// A range that has waited this long is dropped, in ns: its channel has requested it again or given it up.
const WAITS_NS: u64 = 2 * SECOND_NS;

/// How long the server may take to answer a login, in ns.
const LOGIN_NS: u64 = 5 * SECOND_NS;

/// How long a response may take, and the time between messages of a replay over the connection, in ns.
const RESPONSE_NS: u64 = SECOND_NS;

/// The connection is closed after this many requests in a row without a response.
const MOST_UNANSWERED: u32 = 5;

/// The wait before the first reconnect, in ns. It doubles with each failure.
const FIRST_WAIT_NS: u64 = SECOND_NS / 10;

/// The longest wait before a reconnect, and the wait after a refused login, in ns.
const LONGEST_WAIT_NS: u64 = 10 * SECOND_NS;

/// The most unsent bytes for a server that does not read, at which no more requests are sent.
const MOST_OUTPUT_BYTES: usize = 4_096;

/// The most packets of requested messages that wait for the caller. Further ones are dropped.
const MOST_ANSWERS: usize = 4_096;

/// The most bytes in a packet of requested messages for the caller, unless one message is longer.
const ANSWER_BYTES: usize = 1_400;

/// Returns how long to pause requests after a refused quota, in ns.
const fn pause_ns(status: RequestStatus) -> u64 {
    match status {
        RequestStatus::SecondQuota => SECOND_NS,
        RequestStatus::MinuteQuota => 60 * SECOND_NS,
        RequestStatus::DayQuota => 3_600 * SECOND_NS,
        _ => 0,
    }
}

/// Builds a MEMX login: the token is user name and password.
pub(crate) fn token_login(user: &[u8], password: &[u8]) -> Vec<u8> {
    let token = [user, b":", password].concat();
    // Name and password together have at most 48 characters.
    let message_length = (1 + token.len()) as u16;
    let fields = TokenFields { message_length, token_type: TokenType::Plain, token: &token };
    let mut login = vec![0; HEADER_BYTES + 1 + token.len()];
    let written = fields.encode_into(&mut login);
    debug_assert!(written.is_ok(), "the login has its room: {written:?}");
    login
}

/// Why a connection ended or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequesterEnd {
    /// The server refused the login.
    Refused,
    /// The server did not answer the login, or several requests in a row, in time.
    NoAnswer,
    /// The server sent nothing for too long.
    Silent,
    /// The server reads nothing.
    Stalled,
    /// The server sent an invalid packet.
    Malformed,
    /// The server closed the connection.
    Closed,
    /// The server could not be reached.
    Unreachable,
}

impl fmt::Display for RequesterEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the server refused the login",
            Self::NoAnswer => "the server did not answer in time",
            Self::Silent => "the server is silent",
            Self::Stalled => "the server does not read",
            Self::Malformed => "the server sent an invalid packet",
            Self::Closed => "the server closed the connection",
            Self::Unreachable => "the server cannot be reached",
        })
    }
}

/// A requester's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Connections established, including an accepted login where the protocol has one.
    pub connections: u64,
    /// Connections that ended or failed.
    pub ends: u64,
    /// Logins refused.
    pub logins_refused: u64,
    /// Requests sent. A range longer than one request takes several.
    pub sent: u64,
    /// Responses by status: see [`RequesterCounters::of`].
    pub responses: [u64; RequestStatus::ALL.len()],
    /// Requests not answered in time.
    pub unanswered: u64,
    /// Messages that answer no request of ours.
    pub unexpected: u64,
    /// Ranges that were already waiting or requested.
    pub merged: u64,
    /// Ranges dropped: invalid, waited too long, no room, or paused or cleared after a refusal.
    pub dropped: u64,
    /// Packets of requested messages dropped because the caller did not take the earlier ones.
    pub answers_dropped: u64,
    /// Why the last connection ended or failed.
    pub last_end: Option<RequesterEnd>,
}

impl RequesterCounters {
    /// Returns the number of responses with this status.
    #[must_use]
    pub fn of(&self, status: RequestStatus) -> u64 {
        self.responses.get(status as usize).copied().unwrap_or_default()
    }

    /// Returns the number of responses that refused the request.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.responses.iter().sum::<u64>() - self.of(RequestStatus::Accepted)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not connected.
    Apart,
    LoggingIn,
    /// Requests can be sent.
    Ready,
    /// The caller must close the connection.
    Over(RequesterEnd),
}

/// A range waiting to be requested, or a request waiting for its response.
#[derive(Debug, Clone)]
struct Wanted {
    session: SessionId,
    numbers: Range<u64>,
    /// When it started to wait.
    since_ns: u64,
}

impl Wanted {
    /// Returns whether it includes all of these numbers.
    fn covers(&self, session: SessionId, numbers: &Range<u64>) -> bool {
        self.session == session && is_within(numbers, &self.numbers)
    }
}

const fn is_within(one: &Range<u64>, other: &Range<u64>) -> bool {
    other.start <= one.start && one.end <= other.end
}

/// MEMX: messages that arrive one by one, to be packed into a packet.
#[derive(Debug, Clone)]
struct Replay {
    session_id: u64,
    /// The number of the packet's first message.
    first: u64,
    count: u16,
    blocks: Vec<u8>,
}

impl Replay {
    /// Returns the number of the next message.
    const fn next(&self) -> u64 {
        self.first.saturating_add(self.count as u64)
    }
}

/// The client's end of one channel.
///
/// The caller opens a connection when [`Requester::wants`] says so, reports it with [`Requester::connected`], moves the
/// bytes, and closes a connection that is [`Requester::over`] ([`Requester::disconnected`]). It calls
/// [`Requester::tick`] at [`Requester::deadline_ns`]. Times are those of a monotonic clock.
#[derive(Debug, Clone)]
pub struct Requester {
    login: RequestLogin,
    state: State,
    packets: PacketReader,
    output: Outgoing,
    waiting: VecDeque<Wanted>,
    outstanding: Option<Wanted>,
    /// Requests in a row without a response.
    unanswered: u32,
    throttle: Throttle,
    paused_until_ns: u64,
    /// The number of the next packet to NYSE.
    next_number: u32,
    day_time: DayTime,
    answers: VecDeque<Vec<u8>>,
    replay: Option<Replay>,
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
    counters: RequesterCounters,
}

impl Requester {
    /// Creates a requester before its first connection.
    #[must_use]
    pub fn new(login: RequestLogin) -> Self {
        Self {
            login,
            state: State::Apart,
            packets: PacketReader::default(),
            output: Outgoing::default(),
            waiting: VecDeque::new(),
            outstanding: None,
            unanswered: 0,
            throttle: Throttle::new(login.protocol().per_second()),
            paused_until_ns: 0,
            next_number: 1,
            day_time: DayTime::default(),
            answers: VecDeque::new(),
            replay: None,
            since_ns: 0,
            heard_ns: 0,
            moved_ns: 0,
            put_ns: 0,
            retry_at_ns: 0,
            wait_ns: FIRST_WAIT_NS,
            counters: RequesterCounters::default(),
        }
    }

    const fn protocol(&self) -> RequestProtocol {
        self.login.protocol()
    }

    /// Sets the UTC time for packets to NYSE. Without it they contain the time of the monotonic clock.
    pub const fn set_day_time(&mut self, day_time: DayTime) {
        self.day_time = day_time;
    }

    /// Returns whether the caller must open the connection now.
    #[must_use]
    pub fn wants(&self, now_ns: u64) -> bool {
        self.state == State::Apart && self.retry_at_ns <= now_ns
    }

    /// Returns whether requests can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// Returns the number of ranges waiting to be requested.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Records that the connection is established, and sends the login if the protocol has one.
    pub fn connected(&mut self, now_ns: u64) {
        self.packets.clear();
        self.output.clear();
        (self.since_ns, self.heard_ns, self.moved_ns, self.put_ns) = (now_ns, now_ns, now_ns, now_ns);
        self.unanswered = 0;
        match self.login {
            RequestLogin::Grp { sub_id, user, password } => {
                let fields = LoginFields {
                    length: Login::LENGTH as u8,
                    session_sub_id: sub_id,
                    username: user,
                    filler: Ascii::default(),
                    password,
                };
                self.state = State::LoggingIn;
                self.put(&unit_of(&fields.encode()), now_ns);
            }
            RequestLogin::Mitch { user, password } => {
                let length = recovery::LoginRequest::LENGTH as u8;
                let fields = recovery::LoginRequestFields { length, username: user, password };
                self.state = State::LoggingIn;
                self.put(&unit_of(&fields.encode()), now_ns);
            }
            RequestLogin::Memx { user, password } => {
                self.state = State::LoggingIn;
                self.put(&token_login(user.trimmed(), password.trimmed()), now_ns);
            }
            RequestLogin::Pillar { .. } => {
                (self.state, self.next_number) = (State::Ready, 1);
                self.counters.connections += 1;
                self.send_next(now_ns);
            }
        }
    }

    /// Records that the connection is closed or failed. It is retried later.
    pub fn disconnected(&mut self, now_ns: u64) {
        let end = match self.state {
            State::Over(end) => end,
            State::Apart => RequesterEnd::Unreachable,
            State::LoggingIn | State::Ready => RequesterEnd::Closed,
        };
        if end == RequesterEnd::Refused {
            self.wait_ns = LONGEST_WAIT_NS;
        }
        self.counters.last_end = Some(end);
        self.state = State::Apart;
        self.close_packet();
        (self.outstanding, self.replay) = (None, None);
        self.packets.clear();
        self.output.clear();
        self.counters.ends += 1;
        self.retry_at_ns = now_ns.saturating_add(self.wait_ns);
        self.wait_ns = self.wait_ns.saturating_mul(2).min(LONGEST_WAIT_NS);
    }

    /// Requests messages, immediately or once earlier requests are answered.
    pub fn request(&mut self, request: &Request, now_ns: u64) {
        let Request { session, first, count } = *request;
        let numbers = first..first.saturating_add(u64::from(count));
        // Sequence numbers have 32 bits on the wire, except at MEMX.
        let is_ours = session.transport() == self.protocol().transport();
        let has_room = self.protocol() == RequestProtocol::Memx || numbers.end <= u64::from(u32::MAX);
        let is_possible = is_ours && !numbers.is_empty() && has_room;
        if !is_possible || now_ns < self.paused_until_ns {
            self.counters.dropped += 1;
            return;
        }
        if self.outstanding.iter().chain(&self.waiting).any(|wanted| wanted.covers(session, &numbers)) {
            self.counters.merged += 1;
            return;
        }
        self.waiting.retain(|wanted| wanted.session != session || !is_within(&wanted.numbers, &numbers));
        if self.waiting.len() >= MOST_WAITING {
            self.counters.dropped += 1;
            return;
        }
        self.waiting.push_back(Wanted { session, numbers, since_ns: now_ns });
        self.send_next(now_ns);
    }

    /// Sends the next request, if allowed.
    fn send_next(&mut self, now_ns: u64) {
        let before = self.waiting.len();
        self.waiting.retain(|wanted| now_ns.saturating_sub(wanted.since_ns) < WAITS_NS);
        self.counters.dropped += (before - self.waiting.len()) as u64;
        let may = self.state == State::Ready
            && self.outstanding.is_none()
            && now_ns >= self.paused_until_ns
            && self.output.unsent_bytes() < MOST_OUTPUT_BYTES;
        let Some(first) = self.waiting.front_mut().filter(|_| may) else { return };
        if !self.throttle.take(now_ns) {
            return;
        }
        let most = u64::from(self.login.protocol().most_messages());
        let Range { start, end } = first.numbers;
        let numbers = start..end.min(start.saturating_add(most));
        let session = first.session;
        first.numbers.start = numbers.end;
        if first.numbers.is_empty() {
            self.waiting.pop_front();
        }
        // The numbers have 32 bits (MEMX uses `start` below), and there are at most 1,000 of them.
        let (begin, count) = (numbers.start as u32, (numbers.end - numbers.start) as u16);
        self.outstanding = Some(Wanted { session, numbers, since_ns: now_ns });
        self.counters.sent += 1;
        match self.login {
            RequestLogin::Grp { .. } => {
                let SessionId::CboeUnit(unit) = session else { return };
                let fields =
                    GapRequestFields { length: GapRequest::LENGTH as u8, unit, sequence: begin, count };
                self.put(&unit_of(&fields.encode()), now_ns);
            }
            RequestLogin::Mitch { .. } => {
                let SessionId::MitchUnit(group) = session else { return };
                let fields = recovery::ReplayRequestFields {
                    length: recovery::ReplayRequest::LENGTH as u8,
                    market_data_group: Ascii([group]),
                    first_message: begin,
                    count,
                };
                self.put(&unit_of(&fields.encode()), now_ns);
            }
            RequestLogin::Memx { .. } => {
                let SessionId::Memoir(session_id) = session else { return };
                let fields = ReplayRequestFields {
                    message_length: (ReplayRequest::LENGTH - HEADER_BYTES) as u16,
                    session_id,
                    next_sequence_number: start,
                    count: u32::from(count),
                };
                self.put(&fields.encode(), now_ns);
            }
            RequestLogin::Pillar { source, product, channel } => {
                let fields = RetransmissionRequestFields {
                    length: RetransmissionRequest::LENGTH as u16,
                    begin_sequence: begin,
                    end_sequence: begin.saturating_add(u32::from(count) - 1),
                    source_id: source,
                    product_id: product,
                    channel_id: channel,
                };
                self.put_pillar(&fields.encode(), now_ns);
            }
        }
    }

    fn put_pillar(&mut self, message: &[u8], now_ns: u64) {
        let packet = pillar_of(message, self.next_number, self.day_time.at(now_ns));
        self.next_number = self.next_number.wrapping_add(1);
        self.put(&packet, now_ns);
    }

    fn put(&mut self, packet: &[u8], now_ns: u64) {
        if self.output.unsent_bytes() == 0 {
            self.moved_ns = now_ns;
        }
        self.output.put(packet);
        self.put_ns = now_ns;
    }

    /// Processes bytes from the server.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if matches!(self.state, State::Apart | State::Over(_)) {
            return;
        }
        self.heard_ns = now_ns;
        let mut packets = std::mem::take(&mut self.packets);
        let read = packets.read(self.protocol(), bytes, |packet| {
            self.packet(packet, now_ns);
            !matches!(self.state, State::Over(_))
        });
        self.packets = packets;
        if read.is_err() {
            self.end(RequesterEnd::Malformed);
        }
        self.send_next(now_ns);
    }

    fn packet(&mut self, packet: &[u8], now_ns: u64) {
        let protocol = self.protocol();
        let is_sound = match protocol {
            RequestProtocol::Grp => protocol.each_message(packet, |message| self.of_grp(message, now_ns)),
            // Number 0 marks the server's own messages; any other is the number of a requested message.
            RequestProtocol::Mitch if packet.get(4..8).is_some_and(|number| number != [0; 4]) => {
                let is_sound = protocol.each_message(packet, |_| {});
                if is_sound && protocol.count(packet) != Some(0) {
                    self.put_answer(packet.to_vec());
                }
                is_sound
            }
            RequestProtocol::Mitch => protocol.each_message(packet, |message| self.of_mitch(message, now_ns)),
            RequestProtocol::Memx => protocol.each_message(packet, |message| self.of_memx(message, now_ns)),
            RequestProtocol::Pillar => {
                // A server that sends packets is alive.
                self.wait_ns = FIRST_WAIT_NS;
                if protocol.count(packet) == Some(0) {
                    self.answer_heartbeat(now_ns);
                }
                protocol.each_message(packet, |message| self.of_pillar(message))
            }
        };
        if !is_sound {
            self.end(RequesterEnd::Malformed);
        }
    }

    fn of_grp(&mut self, message: &[u8], now_ns: u64) {
        match (grp::Message::decode(message), self.state) {
            (Ok(grp::Message::LoginResponse(response)), State::LoggingIn) => {
                self.logged_in(response.status() == LoginStatus::Accepted, now_ns);
            }
            (Ok(grp::Message::GapResponse(response)), State::Ready) => {
                let first = u64::from(response.sequence());
                let numbers = first..first.saturating_add(u64::from(response.count()));
                let status = RequestStatus::of_grp(response.status());
                self.response(SessionId::CboeUnit(response.unit()), &numbers, status, now_ns);
            }
            // Messages of a later revision, and unexpected answers.
            _ => self.counters.unexpected += 1,
        }
    }

    /// Handles the answer to the login.
    fn logged_in(&mut self, is_accepted: bool, now_ns: u64) {
        if is_accepted {
            (self.state, self.wait_ns) = (State::Ready, FIRST_WAIT_NS);
            self.counters.connections += 1;
            self.send_next(now_ns);
        } else {
            self.counters.logins_refused += 1;
            self.end(RequesterEnd::Refused);
        }
    }

    fn of_mitch(&mut self, message: &[u8], now_ns: u64) {
        match (recovery::Message::decode(message), self.state) {
            (Ok(recovery::Message::LoginResponse(response)), State::LoggingIn) => {
                self.logged_in(response.status() == recovery::LoginStatus::Accepted, now_ns);
            }
            (Ok(recovery::Message::ReplayResponse(response)), State::Ready) => {
                let first = u64::from(response.first_message());
                let numbers = first..first.saturating_add(u64::from(response.count()));
                let [group] = response.market_data_group().0;
                let status = RequestStatus::of_mitch(response.status());
                self.response(SessionId::MitchUnit(group), &numbers, status, now_ns);
            }
            _ => self.counters.unexpected += 1,
        }
    }

    fn of_memx(&mut self, message: &[u8], now_ns: u64) {
        use tcp::Message;
        let sent = self.outstanding.clone();
        match (Message::decode(message), self.state, sent) {
            (Ok(Message::Heartbeat(_) | Message::StartOfSession(_)), ..) => {}
            (Ok(Message::LoginAccepted(accepted)), State::LoggingIn, _) => {
                let mode = accepted.supported_request_mode();
                self.logged_in(mode == tcp::RequestMode::Replay, now_ns);
            }
            (Ok(Message::LoginRejected(_)), State::LoggingIn, _) => self.logged_in(false, now_ns),
            (Ok(Message::EndOfSession(_)), ..) => self.end(RequesterEnd::Closed),
            // A server that no longer has the first messages starts later.
            (Ok(Message::ReplayBegin(begin)), State::Ready, Some(sent))
                if sent.numbers.contains(&begin.next_sequence_number()) =>
            {
                self.close_packet();
                self.moves(now_ns);
                let SessionId::Memoir(session_id) = sent.session else { return };
                let first = begin.next_sequence_number();
                self.replay = Some(Replay { session_id, first, count: 0, blocks: Vec::new() });
            }
            (Ok(Message::ReplayBegin(_)), ..) => {
                self.close_packet();
                self.replay = None;
                self.counters.unexpected += 1;
            }
            (Ok(Message::SequencedMessage(m)), State::Ready, Some(sent))
                if self.replay.as_ref().is_some_and(|replay| sent.numbers.contains(&replay.next())) =>
            {
                self.moves(now_ns);
                let (message, longest) = (m.message(), ANSWER_BYTES);
                if self.replay.as_ref().is_some_and(|replay| replay.blocks.len() + message.len() > longest) {
                    self.close_packet();
                }
                if let Some(replay) = &mut self.replay {
                    // A packet of the connection has fewer than 65,536 bytes.
                    replay.blocks.extend_from_slice(&(message.len() as u16).to_be_bytes());
                    replay.blocks.extend_from_slice(message);
                    replay.count += 1;
                }
            }
            (Ok(Message::ReplayComplete(_)), State::Ready, Some(sent)) if self.replay.is_some() => {
                self.close_packet();
                self.replay = None;
                self.response(sent.session, &sent.numbers, RequestStatus::Accepted, now_ns);
            }
            (Ok(Message::ReplayRejected(rejected)), State::Ready, Some(sent)) => {
                self.close_packet();
                self.replay = None;
                let status = RequestStatus::of_memx(rejected.replay_reject_code());
                self.response(sent.session, &sent.numbers, status, now_ns);
            }
            _ => self.counters.unexpected += 1,
        }
    }

    /// Restarts the response timeout, because the request is being answered.
    const fn moves(&mut self, now_ns: u64) {
        if let Some(sent) = &mut self.outstanding {
            sent.since_ns = now_ns;
        }
    }

    /// Packs the messages so far into a packet in the feed's format.
    fn close_packet(&mut self) {
        let Some(replay) = self.replay.as_mut().filter(|replay| replay.count > 0) else { return };
        let fields = SequencedPacketFields {
            message_type: MessageType::SequencedMessages,
            header_length: HEADER_LENGTH,
            session_id: replay.session_id,
            sequence_number: replay.first,
            message_count: replay.count,
            messages: &replay.blocks,
        };
        let mut packet = vec![0; usize::from(HEADER_LENGTH) + 2 + replay.blocks.len()];
        let written = fields.encode_into(&mut packet);
        debug_assert!(written.is_ok(), "the packet has its room: {written:?}");
        replay.first = replay.next();
        replay.count = 0;
        replay.blocks.clear();
        self.put_answer(packet);
    }

    fn put_answer(&mut self, packet: Vec<u8>) {
        if self.answers.len() < MOST_ANSWERS {
            self.answers.push_back(packet);
        } else {
            self.counters.answers_dropped += 1;
        }
    }

    /// Returns the next packet of requested messages, in the feed's format, from a venue that sends them over the connection.
    #[must_use]
    pub fn take_answer(&mut self) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }

    fn of_pillar(&mut self, message: &[u8]) {
        let is_response = message.get(2..4) == Some(&RequestResponse::TAG.to_le_bytes());
        let Some(response) = RequestResponse::decode(message).ok().filter(|_| is_response) else {
            self.counters.unexpected += 1;
            return;
        };
        let numbers =
            u64::from(response.begin_sequence())..u64::from(response.end_sequence()).saturating_add(1);
        let status = RequestStatus::of_pillar(response.status());
        self.response(SessionId::Pillar, &numbers, status, self.heard_ns);
    }

    fn response(&mut self, session: SessionId, numbers: &Range<u64>, status: RequestStatus, now_ns: u64) {
        let is_it = |sent: &mut Wanted| sent.session == session && sent.numbers == *numbers;
        if self.outstanding.take_if(is_it).is_none() {
            self.counters.unexpected += 1;
            return;
        }
        self.unanswered = 0;
        if let Some(count) = self.counters.responses.get_mut(status as usize) {
            *count += 1;
        }
        if !matches!(status, RequestStatus::Accepted | RequestStatus::OutOfRange) {
            // The waiting ranges would be refused for the same reason.
            self.counters.dropped += self.waiting.len() as u64;
            self.waiting.clear();
            self.paused_until_ns = now_ns.saturating_add(pause_ns(status));
        }
    }

    /// Answers a heartbeat. NYSE's server closes the connection of a client that does not.
    fn answer_heartbeat(&mut self, now_ns: u64) {
        let RequestLogin::Pillar { source, .. } = self.login else { return };
        if self.output.unsent_bytes() < MOST_OUTPUT_BYTES {
            let fields =
                HeartbeatResponseFields { length: HeartbeatResponse::LENGTH as u16, source_id: source };
            self.put_pillar(&fields.encode(), now_ns);
        }
    }

    /// Returns the bytes to send next; empty if there are none.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if matches!(self.state, State::Apart | State::Over(_)) { &[] } else { self.output.unsent() }
    }

    /// Records that this many bytes were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes > 0 {
            self.output.sent(bytes);
            self.moved_ns = now_ns;
        }
    }

    /// Records that the server closed its side.
    pub fn closed(&mut self) {
        self.end(RequesterEnd::Closed);
    }

    fn end(&mut self, end: RequesterEnd) {
        if !matches!(self.state, State::Apart | State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// Returns how the connection ended, if it has. The caller closes it.
    #[must_use]
    pub const fn over(&self) -> Option<RequesterEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Returns when [`Requester::tick`] is due next, or a connection may be opened.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        match self.state {
            State::Apart => self.retry_at_ns,
            State::Over(_) => 0,
            State::LoggingIn => self.since_ns.saturating_add(LOGIN_NS),
            State::Ready => {
                let protocol = self.protocol();
                let silent_ns = self.heard_ns.saturating_add(protocol.silence_ns());
                let has_room = self.output.unsent_bytes() < MOST_OUTPUT_BYTES;
                let heartbeat_ns = (protocol.has_login() && has_room)
                    .then(|| self.put_ns.saturating_add(protocol.server_heartbeat_ns()));
                let stalled_ns = (self.output.unsent_bytes() > 0)
                    .then(|| self.moved_ns.saturating_add(RequestProtocol::Grp.silence_ns()));
                let next_ns = match &self.outstanding {
                    Some(sent) => Some(sent.since_ns.saturating_add(RESPONSE_NS)),
                    None if self.waiting.is_empty() || !has_room => None,
                    None => Some(self.throttle.free_at_ns().max(self.paused_until_ns)),
                };
                [heartbeat_ns, stalled_ns, next_ns].into_iter().flatten().fold(silent_ns, u64::min)
            }
        }
    }

    /// Runs the timers: heartbeats, timeouts, and waiting requests.
    pub fn tick(&mut self, now_ns: u64) {
        let since = |time_ns: u64| now_ns.saturating_sub(time_ns);
        if self.state == State::LoggingIn && since(self.since_ns) >= LOGIN_NS {
            self.end(RequesterEnd::NoAnswer);
        }
        if self.state != State::Ready {
            return;
        }
        let protocol = self.protocol();
        if since(self.heard_ns) >= protocol.silence_ns() {
            self.end(RequesterEnd::Silent);
            return;
        }
        if self.output.unsent_bytes() > 0 && since(self.moved_ns) >= RequestProtocol::Grp.silence_ns() {
            self.end(RequesterEnd::Stalled);
            return;
        }
        if self.outstanding.as_ref().is_some_and(|sent| since(sent.since_ns) >= RESPONSE_NS) {
            self.close_packet();
            (self.outstanding, self.replay) = (None, None);
            self.counters.unanswered += 1;
            self.unanswered += 1;
            if self.unanswered >= MOST_UNANSWERED {
                self.end(RequesterEnd::NoAnswer);
                return;
            }
        }
        self.send_next(now_ns);
        if protocol.has_login()
            && since(self.put_ns) >= protocol.server_heartbeat_ns()
            && self.output.unsent_bytes() < MOST_OUTPUT_BYTES
        {
            self.put(protocol.heartbeat(), now_ns);
        }
    }
}
