//! A venue's end of its users' native sessions: logons, numbered reports, the recovery channel, throttles.
//!
//! The caller (the exchange) registers each accepted connection ([`Server::open`]), moves the bytes
//! ([`Server::receive`], [`Server::output`], [`Server::sent`]), calls [`Server::tick`], and closes connections that are
//! [`Server::over`] ([`Server::closed`]). Orders arrive as [`Input::Message`]. [`Server::report`] numbers reports per
//! user and App ID, keeps them for the recovery channel, and sends them immediately if the user is logged on.
//!
//! A user that reads too slowly is disconnected. Its reports are kept for it to recover. The number of reports kept is
//! bounded; the oldest are evicted and counted.

use tapeworks_planted::planted;
use tapeworks_wire::millennium::native::{
    AppId, AppStatus, Logon, LogonReply, LogonReplyFields, Logout, LogoutFields, Message,
    MissedMessageAckType, MissedMessageReport, MissedMessageReportFields, MissedMessageReportType,
    MissedMessageRequest, MissedMessageRequestAck, MissedMessageRequestAckFields, NewOrder, NewQuote,
    OrderCancelReplaceRequest, OrderCancelRequest, OrderMassCancelRequest, QuoteRequest, QuoteResponse,
    Reject, RejectFields, RfqQuote, START_OF_MESSAGE, SystemStatus, SystemStatusFields, message_length,
};
use tapeworks_wire::millennium::variant::{LSE, Variant};
use tapeworks_wire::{Ascii, DecodeError};

use super::link::{Link, Timing};
use super::tracker::MAX_REPORT_BYTES;
use super::{Channel, End, reject_code};
use tapeworks_session::BlockQueue;
use tapeworks_session::Throttle;
use tapeworks_session::login::Credentials;

/// Unsent bytes at which a recovery pauses until the client reads.
const RECOVERY_OUTPUT_BYTES: usize = 32 << 10;

/// Reports whose memory is allocated at once.
const KEPT_BLOCK: usize = 256;

/// The settings of a venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Padding, heartbeats, partitions.
    pub variant: Variant,
    /// How long a client may take to log on, in nanoseconds. 10 s.
    pub logon_timeout_ns: u64,
    /// Rejects a user's second logon; otherwise it ends the first. The source leaves this open. True.
    pub rejects_second_logon: bool,
    /// Disconnects a user over its throttle rate after the reject. The source leaves this open. True.
    pub disconnects_over_throttle: bool,
    /// The most reports per request; for more, the client must request again. 1,000.
    pub reports_per_request: u32,
    /// The most requests per user, App ID and day; further requests are refused. 10,000.
    pub requests_per_day: u32,
    /// The number of reports kept per user and App ID. 1,000,000.
    pub kept_reports: usize,
    /// The most unsent live bytes; above this, the client is disconnected. 8 MiB: half a second of reports at 50,000
    /// orders, each accepted and filled.
    pub output_bytes: usize,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            variant: LSE,
            logon_timeout_ns: 10_000_000_000,
            rejects_second_logon: true,
            disconnects_over_throttle: true,
            reports_per_request: 1_000,
            requests_per_day: 10_000,
            kept_reports: 1_000_000,
            output_bytes: 8 << 20,
        }
    }
}

/// A user of the venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User name and password.
    pub credentials: Credentials,
    /// Requires a new password at the next logon: the current one has expired or is the initial one.
    pub must_change_password: bool,
    /// Days until the password expires, as sent in the logon reply.
    pub password_expiry_days: u32,
    /// Cancels the user's orders when its real-time channel ends.
    pub cancels_on_disconnect: bool,
    /// The most messages in any second; 0 is unlimited.
    pub throttle_per_second: u32,
}

impl User {
    /// Creates a user with the variant's throttle whose orders are cancelled on disconnect.
    #[must_use]
    pub fn new(name: &str, password: &str, variant: &Variant) -> Self {
        Self {
            credentials: Credentials { user: name.to_owned(), password: password.to_owned() },
            must_change_password: false,
            password_expiry_days: 90,
            cancels_on_disconnect: true,
            throttle_per_second: variant.throttle_per_second,
        }
    }
}

/// A user, identified by its index in the initial list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(
    /// The index, from 0.
    pub usize,
);

/// Identifies a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(
    /// A number that is never reused.
    pub u64,
);

/// An event for the exchange to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input<'a> {
    /// A user logged on to the real-time channel.
    LoggedOn {
        /// The user.
        user: UserId,
    },
    /// A complete order, cancel, amendment or quote of a user.
    Message {
        /// The user.
        user: UserId,
        /// The message.
        message: Message<'a>,
    },
    /// A user's real-time channel ended.
    Gone {
        /// The user.
        user: UserId,
        /// Whether to cancel the user's orders.
        cancels_orders: bool,
        /// How it ended.
        end: End,
    },
}

/// A server's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Logons accepted.
    pub logons: u64,
    /// Logons rejected.
    pub logons_rejected: u64,
    /// Messages passed to the exchange.
    pub messages: u64,
    /// Messages rejected by the session.
    pub rejects: u64,
    /// Rejected messages that exceeded the throttle rate.
    pub throttled: u64,
    /// Reports numbered.
    pub reports: u64,
    /// Reports resent on the recovery channel.
    pub recovered: u64,
    /// Requests for missed reports.
    pub requests: u64,
    /// Requests refused.
    pub requests_refused: u64,
    /// Requests left unanswered by an injected fault.
    pub requests_unanswered: u64,
    /// Reports evicted to make room for newer ones.
    pub not_kept: u64,
    /// Reports not numbered: too short, longer than any declared report, or for an unknown user or App ID.
    pub not_numbered: u64,
    /// Clients disconnected because they read too slowly.
    pub too_slow: u64,
}

#[derive(Debug, Clone)]
struct Kept {
    length: usize,
    bytes: [u8; MAX_REPORT_BYTES],
}

/// The reports of a user and App ID.
#[derive(Debug, Clone, Default)]
struct Reports {
    /// The number of the first report kept, minus one.
    before: u32,
    kept: BlockQueue<Kept, KEPT_BLOCK>,
    requests: u32,
    /// The recovery service is unavailable.
    is_unavailable: bool,
    /// Requests to leave unanswered: an injected fault.
    unanswered: u32,
    /// Numbers that an injected fault withheld from the user's real-time connection and that have not been sent since.
    unsent: Vec<u32>,
    /// The newest number sent on the real-time connection.
    newest_sent: u32,
}

impl Reports {
    fn last(&self) -> u32 {
        // A user has fewer than 2^31 reports a day.
        self.before + self.kept.len() as u32
    }

    fn get(&self, number: u32) -> Option<&[u8]> {
        let kept = self.kept(number)?;
        kept.bytes.get(..kept.length)
    }

    fn kept(&self, number: u32) -> Option<&Kept> {
        self.kept.get(number.checked_sub(self.before + 1)? as usize)
    }
}

#[derive(Debug, Clone)]
struct UserState {
    user: User,
    throttle: Throttle,
    /// The connection of each channel.
    connections: [Option<ConnectionId>; 2],
    reports: Vec<Reports>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No logon has arrived.
    Fresh,
    LoggedOn(UserId),
    /// The remaining output is sent; then the connection ends.
    Closing(End),
    Over(End),
}

/// A recovery in progress: the next number to send, and the last.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    user: UserId,
    app_id: u8,
    next: u32,
    last: u32,
    is_limited: bool,
}

#[derive(Debug, Clone)]
struct Connection {
    id: ConnectionId,
    channel: Channel,
    link: Link,
    phase: Phase,
    recovery: Option<Recovery>,
}

/// A venue's end of its users' sessions.
#[derive(Debug, Clone)]
pub struct Server {
    settings: ServerSettings,
    timing: Timing,
    users: Vec<UserState>,
    /// Sorted by ID.
    connections: Vec<Connection>,
    next_connection: u64,
    counters: ServerCounters,
}

impl Server {
    /// Creates a venue with these users at the start of a day.
    #[must_use]
    pub fn new(settings: ServerSettings, users: Vec<User>) -> Self {
        let app_ids = usize::from(settings.variant.partitions) + 1;
        let users = users.into_iter().map(|user| UserState {
            throttle: Throttle::new(user.throttle_per_second),
            connections: [None; 2],
            reports: vec![Reports::default(); app_ids],
            user,
        });
        Self {
            timing: Timing::of(&settings.variant),
            users: users.collect(),
            connections: Vec::new(),
            next_connection: 0,
            counters: ServerCounters::default(),
            settings,
        }
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> ServerCounters {
        self.counters
    }

    /// Returns the user with this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<UserId> {
        self.users.iter().position(|state| state.user.credentials.user == name).map(UserId)
    }

    /// Iterates over the users, including the passwords that they have set.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.iter().map(|state| &state.user)
    }

    /// Returns whether a user is logged on to a channel.
    #[must_use]
    pub fn is_logged_on(&self, user: UserId, channel: Channel) -> bool {
        self.users.get(user.0).is_some_and(|state| state.connections[channel.index()].is_some())
    }

    /// Returns whether a user is logged on to this connection.
    #[must_use]
    pub fn is_admitted(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| matches!(connection.phase, Phase::LoggedOn(_)))
    }

    /// Returns the number of the last report of a user and App ID; 0 if there is none.
    #[must_use]
    pub fn last_number(&self, user: UserId, app_id: u8) -> u32 {
        self.reports(user, app_id).map_or(0, Reports::last)
    }

    fn reports(&self, user: UserId, app_id: u8) -> Option<&Reports> {
        self.users.get(user.0)?.reports.get(usize::from(app_id))
    }

    fn reports_mut(&mut self, user: UserId, app_id: u8) -> Option<&mut Reports> {
        self.users.get_mut(user.0)?.reports.get_mut(usize::from(app_id))
    }

    fn place(&self, id: ConnectionId) -> Option<usize> {
        self.connections.binary_search_by_key(&id, |connection| connection.id).ok()
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(self.place(id)?)
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let place = self.place(id)?;
        self.connections.get_mut(place)
    }

    /// Registers a client's connection to the port of a channel.
    pub fn open(&mut self, channel: Channel, now_ns: u64) -> ConnectionId {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.connections.push(Connection {
            id,
            channel,
            link: Link::new(now_ns),
            phase: Phase::Fresh,
            recovery: None,
        });
        id
    }

    /// Processes bytes received on a connection.
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], now_ns: u64, mut each: impl FnMut(Input<'_>)) {
        let Some(connection) = self.connection_mut(id) else { return };
        if matches!(connection.phase, Phase::Closing(_) | Phase::Over(_)) {
            return;
        }
        connection.link.heard(now_ns);
        let mut reader = std::mem::take(&mut connection.link.reader);
        let read = reader.read(bytes, |message| {
            self.message(id, message, now_ns, &mut each);
            self.connection(id)
                .is_some_and(|connection| matches!(connection.phase, Phase::Fresh | Phase::LoggedOn(_)))
        });
        if let Some(connection) = self.connection_mut(id) {
            connection.link.reader = reader;
        }
        if read.is_err() {
            self.reject_and_close(id, reject_code::MALFORMED, "malformed message", 0, now_ns, &mut each);
        }
    }

    fn message(&mut self, id: ConnectionId, message: &[u8], now_ns: u64, each: &mut impl FnMut(Input<'_>)) {
        let Some(connection) = self.connection(id) else { return };
        let (channel, phase) = (connection.channel, connection.phase);
        let decoded = Message::decode(message);
        let tag = message.get(3).copied().unwrap_or(0);
        match (decoded, phase) {
            (Ok(Message::Logon(logon)), Phase::Fresh) => self.logon(id, channel, &logon, now_ns, each),
            (_, Phase::Fresh) => {
                self.reject_and_close(id, reject_code::NOT_LOGGED_ON, "log on first", tag, now_ns, each);
            }
            (Ok(Message::Heartbeat(_)), _) | (_, Phase::Closing(_) | Phase::Over(_)) => {}
            (Ok(Message::Logout(_)), Phase::LoggedOn(_)) => {
                let logout = LogoutFields {
                    start_of_message: START_OF_MESSAGE,
                    message_length: message_length(Logout::LENGTH),
                    reason: self.text(""),
                };
                self.close_with(id, &logout.encode(), End::LoggedOut, now_ns, each);
            }
            (Ok(Message::MissedMessageRequest(request)), Phase::LoggedOn(user)) => {
                if channel == Channel::Recovery {
                    self.missed(id, user, &request, now_ns);
                } else {
                    self.reject(id, reject_code::WRONG_CHANNEL, "recovery channel only", message, now_ns);
                }
            }
            (Ok(message), Phase::LoggedOn(user)) if is_of_client(tag) => {
                self.order(id, channel, user, message, now_ns, each);
            }
            (Err(DecodeError::UnknownMessage { .. }) | Ok(_), Phase::LoggedOn(_)) => {
                self.reject(id, reject_code::MALFORMED, "unknown message type", message, now_ns);
            }
            (Err(_), Phase::LoggedOn(_)) => {
                self.reject_and_close(id, reject_code::MALFORMED, "malformed message", tag, now_ns, each);
            }
        }
    }

    fn order(
        &mut self,
        id: ConnectionId,
        channel: Channel,
        user: UserId,
        message: Message<'_>,
        now_ns: u64,
        each: &mut impl FnMut(Input<'_>),
    ) {
        if channel == Channel::Recovery {
            let bytes = message.as_bytes();
            return self.reject(id, reject_code::WRONG_CHANNEL, "real-time channel only", bytes, now_ns);
        }
        let is_free = self.users.get_mut(user.0).is_some_and(|state| state.throttle.take(now_ns));
        if !is_free {
            self.counters.throttled += 1;
            self.reject(id, reject_code::THROTTLED, "over the throttle rate", message.as_bytes(), now_ns);
            if self.settings.disconnects_over_throttle {
                self.close(id, End::OverThrottle, each);
            }
            return;
        }
        self.counters.messages += 1;
        each(Input::Message { user, message });
    }

    fn logon(
        &mut self,
        id: ConnectionId,
        channel: Channel,
        logon: &Logon<'_>,
        now_ns: u64,
        each: &mut impl FnMut(Input<'_>),
    ) {
        let found = self.users.iter().position(|state| {
            state.user.credentials.admit(logon.user_name().trimmed(), logon.password().trimmed())
        });
        let (code, days) = match found {
            None => (reject_code::NOT_AUTHORISED, 0),
            Some(place) => (self.admits(place, channel, logon), self.expiry_days(place)),
        };
        let reply = LogonReplyFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(LogonReply::LENGTH),
            reject_code: code,
            password_expiry_day_count: self.text(&days.to_string()),
        };
        let user = match found {
            Some(place) if code == reject_code::NONE => UserId(place),
            _ => {
                self.counters.logons_rejected += 1;
                return self.close_with(id, &reply.encode(), End::Rejected(code), now_ns, each);
            }
        };
        self.counters.logons += 1;
        let before = self.users.get_mut(user.0).and_then(|state| {
            if !logon.new_password().is_blank() {
                state.user.credentials.password =
                    String::from_utf8_lossy(logon.new_password().trimmed()).into_owned();
                state.user.must_change_password = false;
            }
            state.connections[channel.index()]
        });
        if let Some(before) = before {
            self.close(before, End::Displaced, each);
        }
        if let Some(state) = self.users.get_mut(user.0) {
            state.connections[channel.index()] = Some(id);
        }
        if let Some(connection) = self.connection_mut(id) {
            connection.phase = Phase::LoggedOn(user);
            connection.link.put(&reply.encode(), now_ns);
        }
        if channel == Channel::RealTime {
            // The client requests all the reports that it missed.
            for reports in self.users.get_mut(user.0).into_iter().flat_map(|state| &mut state.reports) {
                reports.unsent.clear();
                reports.newest_sent = 0;
            }
            each(Input::LoggedOn { user });
        }
    }

    /// Returns the reject code for a logon with the right password; [`reject_code::NONE`] accepts it.
    fn admits(&self, place: usize, channel: Channel, logon: &Logon<'_>) -> i32 {
        let Some(state) = self.users.get(place) else { return reject_code::NOT_AUTHORISED };
        let [real_time, _] = state.connections;
        let is_new_password_right = logon.new_password().as_str().is_some()
            && logon.new_password().trimmed() != logon.password().trimmed();
        if channel == Channel::Recovery && real_time.is_none() {
            reject_code::REAL_TIME_FIRST
        } else if self.settings.rejects_second_logon && state.connections[channel.index()].is_some() {
            reject_code::ALREADY_LOGGED_ON
        } else if !logon.new_password().is_blank() && !is_new_password_right {
            reject_code::WRONG_NEW_PASSWORD
        } else if state.user.must_change_password && logon.new_password().is_blank() {
            reject_code::PASSWORD_EXPIRED
        } else {
            reject_code::NONE
        }
    }

    fn expiry_days(&self, place: usize) -> u32 {
        self.users.get(place).map_or(0, |state| state.user.password_expiry_days)
    }

    fn text<const N: usize>(&self, text: &str) -> Ascii<N> {
        self.settings.variant.text_padding.field(text).unwrap_or_default()
    }

    /// Sends a Reject for a client's message.
    fn reject(&mut self, id: ConnectionId, code: i32, reason: &str, message: &[u8], now_ns: u64) {
        self.counters.rejects += 1;
        let tag = message.get(3).copied().unwrap_or(b' ');
        let client_order_id = match is_of_client(tag) && has_client_order_id(tag) {
            true => message
                .get(4..)
                .and_then(|body| body.first_chunk::<20>())
                .map_or_else(|| self.text(""), |bytes| Ascii(*bytes)),
            false => self.text(""),
        };
        let fields = RejectFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(Reject::LENGTH),
            reject_code: code,
            reject_reason: self.text(reason),
            rejected_message_type: Ascii([tag]),
            client_order_id,
        };
        self.put(id, &fields.encode(), now_ns);
    }

    fn reject_and_close(
        &mut self,
        id: ConnectionId,
        code: i32,
        reason: &str,
        tag: u8,
        now_ns: u64,
        each: &mut impl FnMut(Input<'_>),
    ) {
        self.reject(id, code, reason, &[START_OF_MESSAGE, 0, 0, tag], now_ns);
        self.close(id, End::Malformed, each);
    }

    fn put(&mut self, id: ConnectionId, message: &[u8], now_ns: u64) {
        if let Some(connection) = self.connection_mut(id)
            && matches!(connection.phase, Phase::Fresh | Phase::LoggedOn(_))
        {
            connection.link.put(message, now_ns);
        }
    }

    fn close_with(
        &mut self,
        id: ConnectionId,
        message: &[u8],
        end: End,
        now_ns: u64,
        each: &mut impl FnMut(Input<'_>),
    ) {
        self.put(id, message, now_ns);
        self.close(id, end, each);
    }

    /// Ends a connection after sending its remaining output.
    fn close(&mut self, id: ConnectionId, end: End, each: &mut impl FnMut(Input<'_>)) {
        let Some(connection) = self.connection_mut(id) else { return };
        let phase = connection.phase;
        if matches!(phase, Phase::Closing(_) | Phase::Over(_)) {
            return;
        }
        let is_sent = connection.link.unsent_bytes() == 0;
        connection.phase = if is_sent { Phase::Over(end) } else { Phase::Closing(end) };
        connection.recovery = None;
        self.left(id, phase, end, each);
    }

    /// Handles the end of a user's connection. The end of the real-time channel also ends the recovery channel.
    fn left(&mut self, id: ConnectionId, phase: Phase, end: End, each: &mut impl FnMut(Input<'_>)) {
        let Phase::LoggedOn(user) = phase else { return };
        let Some(state) = self.users.get_mut(user.0) else { return };
        let Some(channel) =
            Channel::ALL.into_iter().find(|channel| state.connections[channel.index()] == Some(id))
        else {
            return;
        };
        state.connections[channel.index()] = None;
        if channel == Channel::RealTime {
            let cancels_orders = state.user.cancels_on_disconnect;
            let recovery = state.connections[Channel::Recovery.index()];
            each(Input::Gone { user, cancels_orders, end });
            if let Some(recovery) = recovery {
                self.close(recovery, End::RealTimeEnded, each);
            }
        }
    }

    // ---- recovery ----

    fn missed(&mut self, id: ConnectionId, user: UserId, request: &MissedMessageRequest<'_>, now_ns: u64) {
        self.counters.requests += 1;
        let app_id = request.app_id().raw();
        if self.connection(id).is_some_and(|connection| connection.recovery.is_some()) {
            self.counters.requests_refused += 1;
            let (code, reason) = (reject_code::RECOVERY_IN_PROGRESS, "a recovery is in progress");
            return self.reject(
                id,
                code,
                reason,
                &[START_OF_MESSAGE, 0, 0, MissedMessageRequest::TAG],
                now_ns,
            );
        }
        let limits = (self.settings.requests_per_day, self.settings.reports_per_request.max(1));
        if let Some(reports) = self.reports_mut(user, app_id).filter(|reports| reports.unanswered > 0) {
            reports.unanswered -= 1;
            self.counters.requests_unanswered += 1;
            return;
        }
        let (ack, recovery) = match self.reports_mut(user, app_id) {
            None => (MissedMessageAckType::InvalidAppId, None),
            Some(reports) if reports.is_unavailable => (MissedMessageAckType::ServiceUnavailable, None),
            Some(reports) if reports.requests >= limits.0 => {
                (MissedMessageAckType::RecoveryRequestLimitReached, None)
            }
            Some(reports) => {
                reports.requests += 1;
                let seen = u32::try_from(request.last_msg_seq_num()).unwrap_or(0);
                let next = seen.max(reports.before).saturating_add(1);
                let last = reports.last().min(next.saturating_add(limits.1 - 1));
                let recovery = Recovery { user, app_id, next, last, is_limited: last < reports.last() };
                (MissedMessageAckType::Successful, Some(recovery))
            }
        };
        self.counters.requests_refused += u64::from(recovery.is_none());
        let fields = MissedMessageRequestAckFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(MissedMessageRequestAck::LENGTH),
            response_type: ack,
        };
        self.put(id, &fields.encode(), now_ns);
        if let Some(connection) = self.connection_mut(id) {
            connection.recovery = recovery;
        }
        self.recover(id, now_ns);
    }

    /// Sends the next missed reports once the client has read the previous ones.
    fn recover(&mut self, id: ConnectionId, now_ns: u64) {
        let Self { connections, users, counters, .. } = self;
        let Ok(place) = connections.binary_search_by_key(&id, |connection| connection.id) else { return };
        let Some(connection) = connections.get_mut(place) else { return };
        let Some(recovery) = &mut connection.recovery else { return };
        let reports = users
            .get_mut(recovery.user.0)
            .and_then(|state| state.reports.get_mut(usize::from(recovery.app_id)));
        let Some(reports) = reports else { return };
        let mut end = MissedMessageReportType::DownloadComplete;
        while recovery.next <= recovery.last {
            if connection.link.unsent_bytes() >= RECOVERY_OUTPUT_BYTES {
                return;
            }
            if reports.is_unavailable {
                end = MissedMessageReportType::ServiceUnavailable;
                break;
            }
            let is_forgotten = recovery.next == recovery.last && planted!("recovery-one-report-short");
            if let Some(report) = reports.get(recovery.next).filter(|_| !is_forgotten) {
                connection.link.put(report, now_ns);
                counters.recovered += 1;
                reports.unsent.retain(|number| *number != recovery.next);
            }
            recovery.next += 1;
        }
        if recovery.is_limited && end == MissedMessageReportType::DownloadComplete {
            end = MissedMessageReportType::MessageLimitReached;
        }
        connection.recovery = None;
        let fields = MissedMessageReportFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(MissedMessageReport::LENGTH),
            response_type: end,
        };
        connection.link.put(&fields.encode(), now_ns);
    }

    // ---- reports and faults ----

    /// Numbers a report of the user and App ID, keeps it, and sends it if the user is logged on.
    ///
    /// Writes the App ID and the number into the report. Returns the number; `None` if the report is too short or too
    /// long, or the user or App ID does not exist.
    pub fn report(
        &mut self,
        user: UserId,
        app_id: u8,
        report: &mut [u8],
        now_ns: u64,
        each: impl FnMut(Input<'_>),
    ) -> Option<u32> {
        let number = self.keep(user, app_id, report)?;
        if self.is_logged_on(user, Channel::RealTime)
            && let Some(reports) = self.reports_mut(user, app_id)
        {
            reports.newest_sent = number;
        }
        self.send_live(user, report, now_ns, each);
        Some(number)
    }

    /// Injects a fault: numbers and keeps a report like [`Server::report`], but does not send it.
    ///
    /// The client notices the gap at the next report and recovers it.
    pub fn report_unsent(&mut self, user: UserId, app_id: u8, report: &mut [u8]) -> Option<u32> {
        let number = self.keep(user, app_id, report)?;
        if self.is_logged_on(user, Channel::RealTime) {
            self.reports_mut(user, app_id)?.unsent.push(number);
        }
        Some(number)
    }

    /// Sends a report withheld by [`Server::report_unsent`], if the user is logged on.
    pub fn send_kept(
        &mut self,
        user: UserId,
        app_id: u8,
        number: u32,
        now_ns: u64,
        each: impl FnMut(Input<'_>),
    ) {
        let Some(reports) = self.reports_mut(user, app_id) else { return };
        reports.unsent.retain(|unsent| *unsent != number);
        let Some(report) = reports.kept(number).cloned() else { return };
        self.send_live(user, report.bytes.get(..report.length).unwrap_or_default(), now_ns, each);
    }

    /// Injects a fault: leaves at least the next `requests` requests for this user and App ID unanswered.
    pub fn leave_unanswered(&mut self, user: UserId, app_id: u8, requests: u32) {
        if let Some(reports) = self.reports_mut(user, app_id) {
            reports.unanswered = reports.unanswered.max(requests);
        }
    }

    /// Returns whether a report withheld by a fault is still unsent although a later one was sent in real time.
    #[must_use]
    pub fn has_gap(&self, user: UserId, app_id: u8) -> bool {
        self.is_logged_on(user, Channel::RealTime)
            && self
                .reports(user, app_id)
                .is_some_and(|reports| reports.unsent.iter().any(|unsent| *unsent < reports.newest_sent))
    }

    fn keep(&mut self, user: UserId, app_id: u8, report: &mut [u8]) -> Option<u32> {
        let limit = self.settings.kept_reports.max(1);
        let reports = self.users.get_mut(user.0).and_then(|state| state.reports.get_mut(usize::from(app_id)));
        let numbers = report.get_mut(4..).and_then(|body| body.first_chunk_mut::<5>());
        let (Some(reports), Some(numbers)) = (reports, numbers) else {
            self.counters.not_numbered += 1;
            return None;
        };
        let number = reports.last() + 1;
        let [first, second, third, fourth] = number.to_le_bytes();
        *numbers = [app_id, first, second, third, fourth];
        let mut kept = Kept { length: report.len(), bytes: [0; MAX_REPORT_BYTES] };
        let Some(room) = kept.bytes.get_mut(..report.len()) else {
            self.counters.not_numbered += 1;
            return None;
        };
        room.copy_from_slice(report);
        if reports.kept.len() >= limit {
            reports.kept.drop_front();
            reports.before += 1;
            self.counters.not_kept += 1;
        }
        reports.kept.push_back(kept);
        self.counters.reports += 1;
        Some(number)
    }

    fn send_live(&mut self, user: UserId, bytes: &[u8], now_ns: u64, mut each: impl FnMut(Input<'_>)) {
        let connection = self.users.get(user.0).and_then(|state| state.connections[0]);
        let Some(id) = connection else { return };
        let limit = self.settings.output_bytes;
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.link.unsent_bytes() + bytes.len() > limit {
            self.counters.too_slow += 1;
            return self.drop_connection(id, End::TooSlow, &mut each);
        }
        connection.link.put(bytes, now_ns);
    }

    /// Injects a fault: sends bytes such as garbage unchanged on a user's real-time channel.
    pub fn send_raw(&mut self, user: UserId, bytes: &[u8], now_ns: u64, each: impl FnMut(Input<'_>)) {
        self.send_live(user, bytes, now_ns, each);
    }

    /// Applies the status of an App ID or its recovery service, and reports it to every user on the channel concerned.
    pub fn set_status(&mut self, app_id: u8, status: AppStatus, now_ns: u64) {
        let channel = match status {
            AppStatus::RecoveryServiceResumed | AppStatus::RecoveryServiceNotAvailable => Channel::Recovery,
            AppStatus::PartitionNotAvailable | AppStatus::Unknown(_) => Channel::RealTime,
        };
        let fields = SystemStatusFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(SystemStatus::LENGTH),
            app_id: AppId::from_raw(app_id),
            app_status: status,
        };
        for place in 0..self.users.len() {
            let Some(state) = self.users.get_mut(place) else { continue };
            if channel == Channel::Recovery
                && let Some(reports) = state.reports.get_mut(usize::from(app_id))
            {
                reports.is_unavailable = status == AppStatus::RecoveryServiceNotAvailable;
            }
            if let Some(id) = state.connections[channel.index()] {
                self.put(id, &fields.encode(), now_ns);
            }
        }
    }

    /// Injects a fault: drops a user's connection immediately, with its unsent output.
    pub fn disconnect(&mut self, user: UserId, channel: Channel, mut each: impl FnMut(Input<'_>)) {
        if let Some(id) = self.users.get(user.0).and_then(|state| state.connections[channel.index()]) {
            self.drop_connection(id, End::Dropped, &mut each);
        }
    }

    fn drop_connection(&mut self, id: ConnectionId, end: End, each: &mut impl FnMut(Input<'_>)) {
        let Some(connection) = self.connection_mut(id) else { return };
        let phase = connection.phase;
        if !matches!(phase, Phase::Over(_)) {
            connection.phase = Phase::Over(end);
            self.left(id, phase, end, each);
        }
    }

    /// Starts a new day: numbers restart at 1 and no reports are kept. Call it while no user is logged on.
    pub fn new_day(&mut self) {
        for state in &mut self.users {
            state.reports.iter_mut().for_each(|reports| *reports = Reports::default());
        }
    }

    // ---- the connection ----

    /// Returns the bytes to send next on a connection; empty if there are none.
    #[must_use]
    pub fn output(&self, id: ConnectionId) -> &[u8] {
        match self.connection(id) {
            Some(connection) if !matches!(connection.phase, Phase::Over(_)) => connection.link.output(),
            _ => &[],
        }
    }

    /// Records that this many bytes of [`Server::output`] were sent.
    pub fn sent(&mut self, id: ConnectionId, bytes: usize, now_ns: u64) {
        let Some(connection) = self.connection_mut(id) else { return };
        connection.link.sent(bytes, now_ns);
        match connection.phase {
            Phase::Closing(end) if connection.link.unsent_bytes() == 0 => connection.phase = Phase::Over(end),
            Phase::LoggedOn(_) => self.recover(id, now_ns),
            _ => {}
        }
    }

    /// Records that a connection is closed, after [`Server::over`] or because the client closed it.
    pub fn closed(&mut self, id: ConnectionId, mut each: impl FnMut(Input<'_>)) {
        self.drop_connection(id, End::Closed, &mut each);
        if let Some(place) = self.place(id) {
            self.connections.remove(place);
        }
    }

    /// Runs the timers: heartbeats, and the ends of connections whose clients are silent or do not log on.
    pub fn tick(&mut self, now_ns: u64, mut each: impl FnMut(Input<'_>)) {
        let (timing, timeout_ns) = (self.timing, self.settings.logon_timeout_ns);
        for place in 0..self.connections.len() {
            let Some(connection) = self.connections.get_mut(place) else { break };
            let end = match connection.phase {
                Phase::Fresh if connection.link.age_ns(now_ns) >= timeout_ns => Some(End::NoLogon),
                Phase::LoggedOn(_) if connection.link.is_dead(&timing, now_ns) => Some(End::TimedOut),
                // The client does not read the remaining output, so the connection ends without it.
                Phase::Closing(end) if connection.link.idle_ns(now_ns) >= timing.dead_ns() => Some(end),
                Phase::LoggedOn(_) => {
                    connection.link.keep_alive(&timing, now_ns);
                    None
                }
                _ => None,
            };
            if let Some(end) = end {
                let id = connection.id;
                self.drop_connection(id, end, &mut each);
            }
        }
    }

    /// Returns how a connection ended, if it has. The caller closes it and calls [`Server::closed`].
    #[must_use]
    pub fn over(&self, id: ConnectionId) -> Option<End> {
        match self.connection(id)?.phase {
            Phase::Over(end) => Some(end),
            _ => None,
        }
    }
}

/// Returns whether clients send messages of this type to the matching engine.
const fn is_of_client(tag: u8) -> bool {
    has_client_order_id(tag) || matches!(tag, QuoteRequest::TAG | QuoteResponse::TAG | RfqQuote::TAG)
}

/// Returns whether messages of this type start with a Client Order ID.
const fn has_client_order_id(tag: u8) -> bool {
    matches!(
        tag,
        NewOrder::TAG
            | NewQuote::TAG
            | OrderCancelReplaceRequest::TAG
            | OrderCancelRequest::TAG
            | OrderMassCancelRequest::TAG
    )
}
