//! The client's end: logs in, sends the requests of one channel, and reconnects after a disconnect.

use std::collections::VecDeque;
use std::ops::Range;

use super::link::Link;
use super::replay::Replay;
use super::{DayTime, RequestLogin, RequestStatus};
use crate::dialect::connection::SECOND_NS;
use crate::dialect::requests::{Heard, RequestRules};
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

/// How long the server may read nothing, in ns.
const STALL_NS: u64 = 5 * SECOND_NS;

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

/// Returns how long to pause requests after a refused quota, in ns.
const fn pause_ns(status: RequestStatus) -> u64 {
    match status {
        RequestStatus::SecondQuota => SECOND_NS,
        RequestStatus::MinuteQuota => 60 * SECOND_NS,
        RequestStatus::DayQuota => 3_600 * SECOND_NS,
        _ => 0,
    }
}

/// Why a connection ended or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequesterEnd {
    /// The server refused the login.
    #[error("the server refused the login")]
    Refused,
    /// The server did not answer the login, or several requests in a row, in time.
    #[error("the server did not answer in time")]
    NoAnswer,
    /// The server sent nothing for too long.
    #[error("the server is silent")]
    Silent,
    /// The server reads nothing.
    #[error("the server does not read")]
    Stalled,
    /// The server sent an invalid packet.
    #[error("the server sent an invalid packet")]
    Malformed,
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server could not be reached.
    #[error("the server cannot be reached")]
    Unreachable,
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

/// The client's end of one channel.
///
/// The caller opens a connection when [`Requester::wants`] says so, reports it with [`Requester::connected`], moves the
/// bytes, and closes a connection that is [`Requester::over`] ([`Requester::disconnected`]). It calls
/// [`Requester::tick`] at [`Requester::deadline_ns`]. Times are those of a monotonic clock.
#[derive(Debug, Clone)]
pub struct Requester {
    login: RequestLogin,
    state: State,
    link: Link,
    waiting: VecDeque<Wanted>,
    outstanding: Option<Wanted>,
    /// Requests in a row without a response.
    unanswered: u32,
    throttle: Throttle,
    paused_until_ns: u64,
    answers: VecDeque<Vec<u8>>,
    replay: Option<Replay>,
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
            link: Link::new(login.protocol().rules().connection, DayTime::default(), 0),
            waiting: VecDeque::new(),
            outstanding: None,
            unanswered: 0,
            throttle: Throttle::new(login.protocol().per_second()),
            paused_until_ns: 0,
            answers: VecDeque::new(),
            replay: None,
            retry_at_ns: 0,
            wait_ns: FIRST_WAIT_NS,
            counters: RequesterCounters::default(),
        }
    }

    const fn rules(&self) -> &'static RequestRules {
        self.login.protocol().rules()
    }

    /// Sets the UTC time for packets that have a send time. Without it they contain the time of the monotonic clock.
    pub const fn set_day_time(&mut self, day_time: DayTime) {
        self.link.day_time = day_time;
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
        self.link.reset(now_ns);
        self.unanswered = 0;
        if self.rules().has_login {
            self.state = State::LoggingIn;
            let RequestLogin { sub_id, user, password, .. } = &self.login;
            let texts = [sub_id.trimmed(), user.trimmed(), password.trimmed()];
            self.link.put(&(self.rules().connection.login)(texts, None), now_ns);
        } else {
            self.state = State::Ready;
            self.counters.connections += 1;
            self.send_next(now_ns);
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
        self.link.reset(now_ns);
        self.counters.ends += 1;
        self.retry_at_ns = now_ns.saturating_add(self.wait_ns);
        self.wait_ns = self.wait_ns.saturating_mul(2).min(LONGEST_WAIT_NS);
    }

    /// Requests messages, immediately or once earlier requests are answered.
    pub fn request(&mut self, request: &Request, now_ns: u64) {
        let Request { session, first, count } = *request;
        let numbers = first..first.saturating_add(u64::from(count));
        let is_ours = session.transport() == self.login.protocol().transport();
        let has_room = numbers.end <= self.rules().last_number;
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
            && self.link.output.unsent_bytes() < MOST_OUTPUT_BYTES;
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
        // There are at most 65,535 of them.
        let request = Request { session, first: start, count: (numbers.end - start) as u16 };
        self.outstanding = Some(Wanted { session, numbers, since_ns: now_ns });
        self.counters.sent += 1;
        if let Some(message) = self.rules().dialect.request(&self.login, &request) {
            self.link.send(&message, now_ns);
        }
    }

    /// Processes bytes from the server.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        if matches!(self.state, State::Apart | State::Over(_)) {
            return;
        }
        self.link.heard_ns = now_ns;
        let mut packets = std::mem::take(&mut self.link.packets);
        let read = packets.read(self.rules().connection, bytes, |packet| {
            self.packet(packet, now_ns);
            !matches!(self.state, State::Over(_))
        });
        self.link.packets = packets;
        if read.is_err() {
            self.end(RequesterEnd::Malformed);
        }
        self.send_next(now_ns);
    }

    fn packet(&mut self, packet: &[u8], now_ns: u64) {
        let rules = self.rules();
        if !rules.has_login {
            // A server that sends packets is alive.
            self.wait_ns = FIRST_WAIT_NS;
        }
        if let Some(answer) = rules.dialect.heartbeat_answer(packet, &self.login)
            && self.link.output.unsent_bytes() < MOST_OUTPUT_BYTES
        {
            self.link.send(&answer, now_ns);
        }
        let (is_answer, mut messages) = (rules.dialect.is_answer(packet), 0);
        let is_sound = (rules.connection.each_message)(packet, &mut |message| {
            messages += 1;
            if !is_answer {
                self.message(&rules.dialect.heard(message), now_ns);
            }
        });
        if !is_sound {
            self.end(RequesterEnd::Malformed);
        } else if is_answer && messages > 0 {
            self.put_answer(packet.to_vec());
        }
    }

    fn message(&mut self, heard: &Heard<'_>, now_ns: u64) {
        let sent = self.outstanding.clone().filter(|_| self.state == State::Ready);
        match (heard, self.state, sent) {
            (Heard::Nothing, ..) => {}
            (Heard::Closed, ..) => self.end(RequesterEnd::Closed),
            (Heard::LoggedIn(is_accepted), State::LoggingIn, _) => self.logged_in(*is_accepted, now_ns),
            (Heard::Response { session, numbers, status }, State::Ready, _) => {
                self.response(*session, numbers, *status, now_ns);
            }
            // A server that no longer has the first messages starts later.
            (Heard::ReplayBegin(first), _, Some(sent)) if sent.numbers.contains(first) => {
                self.close_packet();
                self.moves(now_ns);
                self.replay = Some(Replay::new(sent.session, *first));
            }
            (Heard::ReplayBegin(_), ..) => {
                self.close_packet();
                self.replay = None;
                self.counters.unexpected += 1;
            }
            (Heard::Replayed(message), _, Some(sent))
                if self.replay.as_ref().is_some_and(|replay| sent.numbers.contains(&replay.next())) =>
            {
                self.moves(now_ns);
                if let Some(packet) = self.replay.as_mut().and_then(|replay| replay.put(message)) {
                    self.put_answer(packet);
                }
            }
            (Heard::ReplayComplete, _, Some(sent)) if self.replay.is_some() => {
                self.end_replay(&sent, RequestStatus::Accepted, now_ns);
            }
            (Heard::ReplayRefused(status), _, Some(sent)) => self.end_replay(&sent, *status, now_ns),
            _ => self.counters.unexpected += 1,
        }
    }

    fn end_replay(&mut self, sent: &Wanted, status: RequestStatus, now_ns: u64) {
        self.close_packet();
        self.replay = None;
        self.response(sent.session, &sent.numbers, status, now_ns);
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

    /// Restarts the response timeout, because the request is being answered.
    const fn moves(&mut self, now_ns: u64) {
        if let Some(sent) = &mut self.outstanding {
            sent.since_ns = now_ns;
        }
    }

    /// Packs the messages so far into a packet in the feed's format.
    fn close_packet(&mut self) {
        if let Some(packet) = self.replay.as_mut().and_then(Replay::take_packet) {
            self.put_answer(packet);
        }
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

    /// Returns the bytes to send next; empty if there are none.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if matches!(self.state, State::Apart | State::Over(_)) { &[] } else { self.link.output.unsent() }
    }

    /// Records that this many bytes were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        self.link.sent(bytes, now_ns);
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
            State::LoggingIn => self.link.since_ns.saturating_add(LOGIN_NS),
            State::Ready => {
                let rules = self.rules();
                let silent_ns = self.link.heard_ns.saturating_add(rules.silence_ns);
                let has_room = self.link.output.unsent_bytes() < MOST_OUTPUT_BYTES;
                let heartbeat_ns = (rules.has_login && has_room)
                    .then(|| self.link.put_ns.saturating_add(rules.heartbeat_ns));
                let stalled_ns = (self.link.output.unsent_bytes() > 0)
                    .then(|| self.link.moved_ns.saturating_add(STALL_NS));
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
        if self.state == State::LoggingIn && since(self.link.since_ns) >= LOGIN_NS {
            self.end(RequesterEnd::NoAnswer);
        }
        if self.state != State::Ready {
            return;
        }
        let rules = self.rules();
        if since(self.link.heard_ns) >= rules.silence_ns {
            self.end(RequesterEnd::Silent);
            return;
        }
        if self.link.output.unsent_bytes() > 0 && since(self.link.moved_ns) >= STALL_NS {
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
        if rules.has_login
            && since(self.link.put_ns) >= rules.heartbeat_ns
            && self.link.output.unsent_bytes() < MOST_OUTPUT_BYTES
        {
            self.link.send(&[], now_ns);
        }
    }
}
