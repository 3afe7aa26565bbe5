//! The server's end of one connection: takes a login and requests, and answers them as the caller decides.

use std::collections::VecDeque;

use subtle::ConstantTimeEq;
use tapeworks_wire::Ascii;
use tapeworks_wire::cboe::grp::{
    self, GapResponse, GapResponseFields, LoginResponse, LoginResponseFields, LoginStatus,
};
use tapeworks_wire::nyse::integrated::{
    HeartbeatResponse, RequestResponse, RequestResponseFields, RetransmissionRequest,
};
use tapeworks_wire::nyse::packet::PillarPacket;

use super::{
    DayTime, PacketReader, RequestLogin, RequestProtocol, RequestStatus, SECOND_NS, UNIT_HEARTBEAT,
    pillar_of, unit_of,
};
use crate::outgoing::Outgoing;
use crate::transport::{Request, SessionId};

/// How long a client may take to log in, in ns.
const LOGIN_NS: u64 = 10 * SECOND_NS;

/// A client of Cboe's that sends nothing for so long is gone; one of NYSE's has so long to answer a heartbeat, in ns.
const PATIENCE_NS: u64 = 5 * SECOND_NS;

/// Requests of a client that wait for the caller.
const MOST_WAITING: usize = 64;

/// Output of so many bytes waits for a client that does not read, at most.
const MOST_OUTPUT_BYTES: usize = 64 << 10;

/// What a client may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The most messages of one request.
    pub messages: u16,
    /// Requests in a second.
    pub per_second: u32,
    /// Requests in a minute.
    pub per_minute: u32,
    /// Requests in a day.
    pub per_day: u32,
}

impl ServerLimits {
    /// Those of the venue, as documents have them.
    #[must_use]
    pub const fn of(protocol: RequestProtocol) -> Self {
        let (messages, per_second) = (protocol.most_messages(), protocol.per_second());
        match protocol {
            RequestProtocol::Grp => Self { messages, per_second, per_minute: 1_500, per_day: 100_000 },
            RequestProtocol::Pillar => Self { messages, per_second, per_minute: u32::MAX, per_day: 5_000 },
        }
    }
}

/// Requests in a stretch of time.
#[derive(Debug, Clone, Copy)]
struct Quota {
    length_ns: u64,
    /// The number of the stretch.
    stretch: u64,
    taken: u32,
}

impl Quota {
    const fn new(seconds: u64) -> Self {
        Self { length_ns: seconds * SECOND_NS, stretch: 0, taken: 0 }
    }

    /// Counts a request. Whether it is within the limit.
    const fn take(&mut self, limit: u32, now_ns: u64) -> bool {
        let stretch = now_ns / self.length_ns;
        if stretch != self.stretch {
            (self.stretch, self.taken) = (stretch, 0);
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= limit
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestServerEnd {
    /// The login was refused.
    Refused,
    /// The client went.
    Left,
    /// The client sent what is no packet, or no message of a client.
    Malformed,
    /// The client did not log in, answer a heartbeat, or read, for too long.
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No login yet.
    Fresh,
    Ready,
    /// The refusal of the login goes out.
    Refusing,
    Over(RequestServerEnd),
}

/// What a response repeats of its request.
#[derive(Debug, Clone, Copy)]
enum Repeated {
    Grp,
    Pillar {
        source: Ascii<10>,
        product: u8,
        channel: u8,
        /// The last number that is requested.
        end: u32,
        /// The number of the request's packet.
        number: u32,
    },
}

/// The server's end of one connection. The caller moves the bytes, takes requests by [`RequestServer::next_request`], and answers each by
/// [`RequestServer::answer`].
#[derive(Debug, Clone)]
pub struct RequestServer {
    protocol: RequestProtocol,
    /// Who may request; `None`: any client.
    admitted: Option<RequestLogin>,
    limits: ServerLimits,
    state: State,
    packets: PacketReader,
    output: Outgoing,
    requests: VecDeque<(Request, Repeated)>,
    quotas: [Quota; 3],
    next_number: u32,
    day_time: DayTime,
    /// The number of the packet that is read, of NYSE's client.
    request_number: u32,
    since_ns: u64,
    /// When bytes were last received.
    heard_ns: u64,
    /// When bytes last went out, or there were none to send.
    moved_ns: u64,
    /// When the last packet was put.
    put_ns: u64,
    /// When a heartbeat went out that NYSE's client has not answered.
    unanswered_ns: Option<u64>,
}

impl RequestServer {
    /// A connection that begins at `now_ns`. Without `admitted` any client may request.
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
                RequestProtocol::Grp => State::Fresh,
                RequestProtocol::Pillar => State::Ready,
            },
            packets: PacketReader::default(),
            output: Outgoing::default(),
            requests: VecDeque::new(),
            quotas: [Quota::new(1), Quota::new(60), Quota::new(86_400)],
            next_number: 1,
            day_time: DayTime::default(),
            request_number: 0,
            since_ns: now_ns,
            heard_ns: now_ns,
            moved_ns: now_ns,
            put_ns: now_ns,
            unanswered_ns: None,
        }
    }

    /// The day's time, which packets of NYSE's server carry. Without it they carry that of the clock that is not set.
    pub const fn set_day_time(&mut self, day_time: DayTime) {
        self.day_time = day_time;
    }

    /// Takes bytes from the client.
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
                    Some(RequestLogin::Pillar { .. }) => false,
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
                self.take(request, Repeated::Grp, None, now_ns);
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

    /// A request: it waits for the caller, or is refused at once.
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

    /// The next request, as the caller is to answer it.
    #[must_use]
    pub fn next_request(&self) -> Option<Request> {
        self.requests.front().map(|(request, _)| *request)
    }

    /// Answers the request that [`RequestServer::next_request`] names.
    pub fn answer(&mut self, status: RequestStatus, now_ns: u64) {
        if let Some((request, repeated)) = self.requests.pop_front() {
            self.respond(&request, repeated, status, now_ns);
        }
    }

    fn respond(&mut self, request: &Request, repeated: Repeated, status: RequestStatus, now_ns: u64) {
        if self.output.unsent_bytes() > MOST_OUTPUT_BYTES {
            return self.end(RequestServerEnd::TimedOut);
        }
        // A request has 32-bit numbers.
        let first = request.first as u32;
        match (repeated, request.session) {
            (Repeated::Grp, SessionId::CboeUnit(unit)) => {
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
            (Repeated::Grp, _) => {}
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

    /// The bytes to send next; empty: none now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if self.over().is_some() { &[] } else { self.output.unsent() }
    }

    /// So many bytes of [`RequestServer::output`] went out.
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

    /// The client closed its side.
    pub fn closed(&mut self) {
        self.end(RequestServerEnd::Left);
    }

    fn end(&mut self, end: RequestServerEnd) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
    }

    /// How it ended, if it did: the caller closes the connection.
    #[must_use]
    pub const fn over(&self) -> Option<RequestServerEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Whether the client has logged in, where it must.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Time passes: sends heartbeats, and closes a client that is gone.
    pub fn tick(&mut self, now_ns: u64) {
        let since = |time_ns: u64| now_ns.saturating_sub(time_ns);
        if self.output.unsent_bytes() > 0 && since(self.moved_ns) >= 3 * PATIENCE_NS {
            return self.end(RequestServerEnd::TimedOut);
        }
        match (self.state, self.protocol) {
            (State::Fresh, _) if since(self.since_ns) >= LOGIN_NS => self.end(RequestServerEnd::TimedOut),
            (State::Ready, RequestProtocol::Grp) if since(self.heard_ns) >= PATIENCE_NS => {
                self.end(RequestServerEnd::TimedOut);
            }
            (State::Ready, RequestProtocol::Grp)
                if since(self.put_ns) >= self.protocol.server_heartbeat_ns() =>
            {
                self.put(&UNIT_HEARTBEAT, now_ns);
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
