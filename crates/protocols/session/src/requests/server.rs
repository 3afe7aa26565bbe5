//! The server's end of one connection: accepts a login and requests, and answers them as the caller decides.

use std::collections::VecDeque;

use super::link::Link;
use super::{DayTime, RequestLogin, RequestProtocol, RequestStatus, ServerLimits};
use crate::dialect::connection::{Asked, SECOND_NS};
use crate::dialect::requests::{RequestRules, Taken};
use crate::transport::{Request, SessionId};

/// How long a client may take to log in, in ns.
const LOGIN_NS: u64 = 10 * SECOND_NS;

/// Silence after which a client with a login is disconnected, and the time one without has to answer a heartbeat, in ns.
const PATIENCE_NS: u64 = 5 * SECOND_NS;

/// The most requests of a client waiting for the caller.
const MOST_WAITING: usize = 64;

/// The most unsent bytes for a client that does not read.
const MOST_OUTPUT_BYTES: usize = 64 << 10;

impl ServerLimits {
    /// Returns the default limits of a protocol: the venue's as documented, or ours where none are documented.
    #[must_use]
    pub const fn of(protocol: RequestProtocol) -> Self {
        protocol.rules().limits
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
    link: Link,
    requests: VecDeque<Taken>,
    quotas: [Quota; 3],
    session: Option<SessionId>,
    /// The number of the client's packet being read, where packets have one.
    packet_number: u32,
    /// When a heartbeat was sent that a client without a login has not answered.
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
            state: if protocol.rules().has_login { State::Fresh } else { State::Ready },
            link: Link::new(protocol.rules().connection, DayTime::default(), now_ns),
            requests: VecDeque::new(),
            quotas: [Quota::new(1), Quota::new(60), Quota::new(86_400)],
            session: None,
            packet_number: 0,
            unanswered_ns: None,
        }
    }

    /// Sets the UTC time for packets that have a send time. Without it they contain the time of the monotonic clock.
    pub const fn set_day_time(&mut self, day_time: DayTime) {
        self.link.day_time = day_time;
    }

    /// Processes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if self.over().is_some() {
            return;
        }
        self.link.heard_ns = now_ns;
        let mut packets = std::mem::take(&mut self.link.packets);
        let &RequestRules { connection, dialect, .. } = self.protocol.rules();
        let read = packets.read(connection, bytes, |packet| {
            self.packet_number = dialect.packet_number(packet);
            if !(connection.each_message)(packet, &mut |message| self.message(message, now_ns)) {
                self.end(RequestServerEnd::Malformed);
            }
            !matches!(self.state, State::Over(_))
        });
        self.link.packets = packets;
        if read.is_err() {
            self.end(RequestServerEnd::Malformed);
        }
    }

    fn message(&mut self, message: &[u8], now_ns: u64) {
        match (self.protocol.rules().dialect.asked(message, self.admitted.as_ref()), self.state) {
            (Asked::Nothing, _) => self.unanswered_ns = None,
            (Asked::Login(is_known), State::Fresh) => {
                self.link.send(&self.protocol.rules().dialect.login_answer(is_known, self.session), now_ns);
                self.state = if is_known { State::Ready } else { State::Refusing };
            }
            // Without a login, the requests behind a message that ended the connection are taken too.
            (Asked::Request((request, refused)), state)
                if state == State::Ready || !self.protocol.rules().has_login =>
            {
                let taken = Taken { request, message: message.to_vec(), packet_number: self.packet_number };
                self.take(taken, refused, now_ns);
            }
            (Asked::Logout, _) => self.end(RequestServerEnd::Left),
            (_, State::Refusing) => {}
            _ => self.end(RequestServerEnd::Malformed),
        }
    }

    /// Queues a request for the caller, or refuses it immediately.
    fn take(&mut self, taken: Taken, refused: Option<RequestStatus>, now_ns: u64) {
        let ServerLimits { messages, per_second, per_minute, per_day } = self.limits;
        let [second, minute, day] = &mut self.quotas;
        let is_in_day = day.take(per_day, now_ns);
        let is_in_minute = minute.take(per_minute, now_ns);
        let is_in_second = second.take(per_second, now_ns);
        let status = match refused {
            Some(status) => Some(status),
            None if taken.request.count > messages => Some(RequestStatus::TooLong),
            None if !is_in_day => Some(RequestStatus::DayQuota),
            None if !is_in_minute => Some(RequestStatus::MinuteQuota),
            None if !is_in_second || self.requests.len() >= MOST_WAITING => Some(RequestStatus::SecondQuota),
            None => None,
        };
        match status {
            Some(status) => self.respond(&taken, status, now_ns),
            None => self.requests.push_back(taken),
        }
    }

    /// Returns the next request for the caller to answer.
    #[must_use]
    pub fn next_request(&self) -> Option<Request> {
        self.requests.front().map(|taken| taken.request)
    }

    /// Answers the request returned by [`RequestServer::next_request`].
    pub fn answer(&mut self, status: RequestStatus, now_ns: u64) {
        self.answer_with(status, &[], now_ns);
    }

    /// Answers like [`RequestServer::answer`], with packets of the requested messages in the feed's format.
    ///
    /// They are sent over the connection, if the venue does not send them to a group.
    pub fn answer_with(&mut self, status: RequestStatus, packets: &[Vec<u8>], now_ns: u64) {
        let Some(taken) = self.requests.pop_front() else { return };
        self.respond(&taken, status, now_ns);
        if status == RequestStatus::Accepted {
            let replay = self.protocol.rules().dialect.replay(&taken.request, packets);
            if !replay.is_empty() {
                self.link.put(&replay, now_ns);
            }
        }
    }

    /// Sets the running session, for venues whose servers announce it.
    pub const fn set_session(&mut self, session: SessionId) {
        self.session = Some(session);
    }

    fn respond(&mut self, taken: &Taken, status: RequestStatus, now_ns: u64) {
        if self.link.output.unsent_bytes() > MOST_OUTPUT_BYTES {
            return self.end(RequestServerEnd::TimedOut);
        }
        if let Some(response) = self.protocol.rules().dialect.response(taken, status) {
            self.link.send(&response, now_ns);
        }
    }

    /// Returns the bytes to send next; empty if there are none.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if self.over().is_some() { &[] } else { self.link.output.unsent() }
    }

    /// Records that this many bytes of [`RequestServer::output`] were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes == 0 {
            return;
        }
        self.link.sent(bytes, now_ns);
        if self.state == State::Refusing && self.link.output.unsent_bytes() == 0 {
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
        if self.link.output.unsent_bytes() > 0 && since(self.link.moved_ns) >= 3 * PATIENCE_NS {
            return self.end(RequestServerEnd::TimedOut);
        }
        let rules = self.protocol.rules();
        let is_due = since(self.link.put_ns) >= rules.heartbeat_ns;
        match self.state {
            State::Fresh if since(self.link.since_ns) >= LOGIN_NS => self.end(RequestServerEnd::TimedOut),
            State::Ready => {
                let silent_since_ns =
                    if rules.has_login { Some(self.link.heard_ns) } else { self.unanswered_ns };
                if silent_since_ns.is_some_and(|time_ns| since(time_ns) >= PATIENCE_NS) {
                    self.end(RequestServerEnd::TimedOut);
                } else if is_due && self.unanswered_ns.is_none() {
                    self.unanswered_ns = Some(now_ns).filter(|_| !rules.has_login);
                    self.link.send(&[], now_ns);
                }
            }
            _ => {}
        }
    }
}
