//! The client's end: logs in, requests a snapshot where necessary, and passes on each message.

use std::ops::Range;

use tapeworks_wire::AsciiNumber;
use tapeworks_wire::cboe::grp::{
    self, Login, LoginFields, LoginStatus, SpinRequest, SpinRequestFields, SpinStatus,
};
use tapeworks_wire::memx::depth13;
use tapeworks_wire::memx::tcp::{self, HEADER_BYTES};
use tapeworks_wire::millennium::recovery;
use tapeworks_wire::nasdaq::soupbintcp::{self, ClientHeartbeat, LoginRequestFields, LogoutRequest};

use super::refresh::RefreshClient;
use super::{SnapshotFailure, SnapshotProtocol, Step, adds_order, padded};
use crate::requests::{DayTime, RequestLogin, UNIT_HEADER_BYTES, UNIT_HEARTBEAT, token_login, unit_of};
use crate::transport::SessionId;

/// Read bytes are removed from the buffer once there are this many.
const COMPACTED_BYTES: usize = 64 << 10;

/// A unit with MITCH's logout request.
const LOGOUT: [u8; UNIT_HEADER_BYTES + 2] = [10, 0, 1, 0, 0, 0, 0, 0, 2, recovery::LogoutRequest::TAG];

/// Who requests a snapshot. Texts that are too long are truncated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SnapshotLogin {
    /// Cboe: the session's sub-id, up to 4 characters.
    pub sub_id: String,
    /// The user name: up to 6 characters; 4 at Cboe, 16 at MEMX.
    pub user: String,
    /// The password: up to 10 characters; 32 at MEMX.
    pub password: String,
}

impl std::fmt::Debug for SnapshotLogin {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sub_id, user, .. } = self;
        f.debug_struct("SnapshotLogin").field("sub_id", sub_id).field("user", user).finish_non_exhaustive()
    }
}

/// The next part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched<'a> {
    /// A message of the venue's own protocol.
    Message(&'a [u8]),
    /// The snapshot is complete.
    End {
        /// The number of the first live message that the snapshot does not include.
        next: u64,
    },
}

/// Parses GLIMPSE's End of Snapshot: `G`, and the number of the first live message that the snapshot does not include.
fn end_of_snapshot(message: &[u8]) -> Option<u64> {
    let (b'G', digits) = message.split_first()? else { return None };
    AsciiNumber(*<&[u8; 20]>::try_from(digits).ok()?).value()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The login has not been answered.
    LoggingIn,
    /// No spin has been offered yet.
    Waiting,
    /// The spin with this number was requested.
    Requested(u32),
    /// The messages are arriving.
    Receiving {
        sequence: u32,
        /// Orders still to come; at MEMX, messages.
        orders: u32,
    },
    /// MEMX: the snapshot is complete and includes messages up to this number; the end of the replay has not arrived.
    Behind(u64),
}

/// The client's end of a connection for one snapshot.
///
/// The caller sends [`SnapshotClient::take_output`] at the start and after each [`SnapshotClient::receive`], and a
/// [`SnapshotClient::heartbeat`] each second. After a failure nothing more arrives.
#[derive(Debug, Clone)]
pub struct SnapshotClient {
    protocol: SnapshotProtocol,
    session: Option<SessionId>,
    state: State,
    input: Vec<u8>,
    /// Input before this offset has been read.
    at: usize,
    /// Where the unit being read ends.
    unit_end: usize,
    /// Messages of the unit still to be read.
    left: u8,
    output: Vec<u8>,
    refresh: Option<Box<RefreshClient>>,
}

impl SnapshotClient {
    /// Creates a client that logs in for a snapshot of this session.
    #[must_use]
    pub fn new(login: &SnapshotLogin, session: &SessionId) -> Self {
        let protocol = SnapshotProtocol::of(session.transport());
        let output = match protocol {
            SnapshotProtocol::Refresh => Vec::new(),
            SnapshotProtocol::Mitch => {
                let fields = recovery::LoginRequestFields {
                    length: recovery::LoginRequest::LENGTH as u8,
                    username: padded(&login.user),
                    password: padded(&login.password),
                };
                unit_of(&fields.encode())
            }
            SnapshotProtocol::Memx => {
                let cut = |text: &str, most: usize| text.bytes().take(most).collect::<Vec<u8>>();
                let (user, password) = (protocol.user_characters(), protocol.password_characters());
                token_login(&cut(&login.user, user), &cut(&login.password, password))
            }
            SnapshotProtocol::Glimpse => {
                let fields = LoginRequestFields {
                    packet_length: 47,
                    username: padded(&login.user),
                    password: padded(&login.password),
                    requested_session: session.login_name(),
                    // A number has at most 20 digits.
                    requested_sequence_number: AsciiNumber::new(1).unwrap_or(AsciiNumber([b' '; 20])),
                };
                fields.encode().to_vec()
            }
            SnapshotProtocol::Spin => {
                let fields = LoginFields {
                    length: Login::LENGTH as u8,
                    session_sub_id: padded(&login.sub_id),
                    username: padded(&login.user),
                    filler: padded(""),
                    password: padded(&login.password),
                };
                unit_of(&fields.encode())
            }
        };
        Self { session: Some(*session), ..Self::with_output(protocol, output, None) }
    }

    /// Creates a client of a request server whose refresh packets are sent to a group.
    ///
    /// The caller passes them to [`SnapshotClient::receive_datagram`], and calls [`SnapshotClient::tick`] often.
    /// Returns `None` if venues with such logins have no refreshes.
    #[must_use]
    pub fn by_group(login: RequestLogin, day_time: DayTime, now_ns: u64) -> Option<Self> {
        let refresh = RefreshClient::new(login, day_time, now_ns)?;
        Some(Self::with_output(SnapshotProtocol::Refresh, Vec::new(), Some(Box::new(refresh))))
    }

    const fn with_output(
        protocol: SnapshotProtocol,
        output: Vec<u8>,
        refresh: Option<Box<RefreshClient>>,
    ) -> Self {
        let state = State::LoggingIn;
        Self {
            protocol,
            session: None,
            state,
            input: Vec::new(),
            at: 0,
            unit_end: 0,
            left: 0,
            output,
            refresh,
        }
    }

    /// Returns the protocol for requesting and framing the snapshot.
    #[must_use]
    pub const fn protocol(&self) -> SnapshotProtocol {
        self.protocol
    }

    /// Takes the bytes to send next.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        match &mut self.refresh {
            Some(refresh) => std::mem::take(&mut refresh.output),
            None => std::mem::take(&mut self.output),
        }
    }

    /// Returns the bytes to send each second.
    #[must_use]
    pub const fn heartbeat(&self) -> &'static [u8] {
        match self.protocol {
            SnapshotProtocol::Glimpse => &[0, 1, ClientHeartbeat::TAG],
            SnapshotProtocol::Spin | SnapshotProtocol::Mitch => &UNIT_HEARTBEAT,
            SnapshotProtocol::Memx => &[0; HEADER_BYTES],
            SnapshotProtocol::Refresh => &[],
        }
    }

    /// Returns the bytes to send when the snapshot is complete.
    #[must_use]
    pub const fn farewell(&self) -> &'static [u8] {
        match self.protocol {
            SnapshotProtocol::Glimpse => &[0, 1, LogoutRequest::TAG],
            SnapshotProtocol::Spin | SnapshotProtocol::Refresh | SnapshotProtocol::Memx => &[],
            SnapshotProtocol::Mitch => &LOGOUT,
        }
    }

    /// Reads bytes from the server. The caller then takes everything from [`SnapshotClient::fetch`].
    pub fn receive(&mut self, bytes: &[u8]) {
        if let Some(refresh) = &mut self.refresh {
            return refresh.receive(bytes);
        }
        let used = if self.left > 0 { 0 } else { self.at };
        if used >= COMPACTED_BYTES || used == self.input.len() {
            self.input.drain(..used);
            (self.at, self.unit_end) = (self.at - used, self.unit_end.saturating_sub(used));
        }
        self.input.extend_from_slice(bytes);
    }

    /// Processes a packet of the group.
    pub fn receive_datagram(&mut self, payload: &[u8]) {
        if let Some(refresh) = &mut self.refresh {
            refresh.receive_datagram(payload);
        }
    }

    /// Runs the timers: requests missing packets of the group again. Times are those of a monotonic clock.
    pub fn tick(&mut self, now_ns: u64) {
        if let Some(refresh) = &mut self.refresh {
            refresh.tick(now_ns);
        }
    }

    /// Returns the number of the group's packets that were not needed: those for other clients, and duplicates.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.refresh.as_ref().map_or(0, |refresh| refresh.ignored())
    }

    /// Returns the next part of the snapshot; `None` until more bytes arrive.
    ///
    /// # Errors
    /// The snapshot cannot be fetched.
    pub fn fetch(&mut self) -> Result<Option<Fetched<'_>>, SnapshotFailure> {
        let step = match (&mut self.refresh, self.protocol) {
            (Some(refresh), _) => refresh.fetch()?,
            (None, SnapshotProtocol::Glimpse) => self.of_glimpse()?,
            (None, SnapshotProtocol::Spin) => self.of_spin()?,
            (None, SnapshotProtocol::Mitch) => self.of_mitch()?,
            (None, SnapshotProtocol::Memx) => self.of_memx()?,
            (None, SnapshotProtocol::Refresh) => None,
        };
        Ok(step.map(|step| match step {
            Step::Message(range) => Fetched::Message(match &self.refresh {
                Some(refresh) => refresh.message(range),
                None => self.input.get(range).unwrap_or_default(),
            }),
            Step::End(next) => Fetched::End { next },
        }))
    }

    fn of_glimpse(&mut self) -> Result<Option<Step>, SnapshotFailure> {
        loop {
            let rest = self.input.get(self.at..).unwrap_or_default();
            let Some(length) = rest.first_chunk::<2>() else { return Ok(None) };
            let length = 2 + usize::from(u16::from_be_bytes(*length));
            let Some(packet) = rest.get(..length) else { return Ok(None) };
            let begin = self.at;
            self.at += length;
            match soupbintcp::Message::decode(packet) {
                Ok(soupbintcp::Message::SequencedData(data)) => {
                    let message = data.message();
                    let step = match end_of_snapshot(message) {
                        Some(next) => Step::End(next),
                        None => Step::Message(begin + length - message.len()..begin + length),
                    };
                    return Ok(Some(step));
                }
                Ok(soupbintcp::Message::LoginRejected(_)) => return Err(SnapshotFailure::LoginRejected),
                Ok(soupbintcp::Message::LoginAccepted(accepted)) => {
                    let wanted = self.session.map(|session| session.login_name()).unwrap_or_default();
                    let (named, wanted) = (accepted.session().0, wanted.0);
                    if !wanted.trim_ascii().is_empty() && named.trim_ascii() != wanted.trim_ascii() {
                        return Err(SnapshotFailure::OtherSession);
                    }
                }
                Ok(soupbintcp::Message::EndOfSession(_)) => return Err(SnapshotFailure::Ended),
                Ok(_) => {}
                Err(_) => return Err(SnapshotFailure::Malformed),
            }
        }
    }

    fn of_spin(&mut self) -> Result<Option<Step>, SnapshotFailure> {
        loop {
            let Some(range) = self.next_of_unit()? else { return Ok(None) };
            let message = self.input.get(range.clone()).unwrap_or_default();
            let is_of_server = matches!(message.get(1), Some(0x01..=0x04 | 0x80..=0x87));
            if !is_of_server {
                let State::Receiving { orders, .. } = &mut self.state else {
                    return Err(SnapshotFailure::Malformed);
                };
                if adds_order(SnapshotProtocol::Spin, message) {
                    *orders = orders.checked_sub(1).ok_or(SnapshotFailure::Torn)?;
                }
                return Ok(Some(Step::Message(range)));
            }
            match (grp::Message::decode(message).map_err(|_| SnapshotFailure::Malformed)?, self.state) {
                (grp::Message::LoginResponse(response), State::LoggingIn) => {
                    if response.status() != LoginStatus::Accepted {
                        return Err(SnapshotFailure::LoginRejected);
                    }
                    self.state = State::Waiting;
                }
                (grp::Message::SpinImageAvailable(offered), State::Waiting) => {
                    let sequence = offered.sequence();
                    let fields = SpinRequestFields { length: SpinRequest::LENGTH as u8, sequence };
                    self.output.extend_from_slice(&unit_of(&fields.encode()));
                    self.state = State::Requested(sequence);
                }
                // Further spins are offered each second.
                (grp::Message::SpinImageAvailable(_), _) => {}
                (grp::Message::SpinResponse(response), State::Requested(sequence)) => {
                    if response.status() != SpinStatus::Accepted || response.sequence() != sequence {
                        return Err(SnapshotFailure::SpinRefused);
                    }
                    self.state = State::Receiving { sequence, orders: response.order_count() };
                }
                (grp::Message::SpinFinished(finished), State::Receiving { sequence, orders }) => {
                    if finished.sequence() != sequence || orders != 0 {
                        return Err(SnapshotFailure::Torn);
                    }
                    return Ok(Some(Step::End(u64::from(sequence) + 1)));
                }
                _ => return Err(SnapshotFailure::Malformed),
            }
        }
    }

    fn of_mitch(&mut self) -> Result<Option<Step>, SnapshotFailure> {
        use recovery::Message;
        loop {
            let Some(range) = self.next_of_unit()? else { return Ok(None) };
            let message = self.input.get(range.clone()).unwrap_or_default();
            let is_of_server = matches!(message.get(1), Some(0x01..=0x05 | 0x81..=0x83));
            if !is_of_server {
                let State::Receiving { orders, .. } = &mut self.state else {
                    return Err(SnapshotFailure::Malformed);
                };
                if adds_order(SnapshotProtocol::Mitch, message) {
                    *orders = orders.checked_sub(1).ok_or(SnapshotFailure::Torn)?;
                }
                return Ok(Some(Step::Message(range)));
            }
            match (Message::decode(message).map_err(|_| SnapshotFailure::Malformed)?, self.state) {
                (Message::LoginResponse(response), State::LoggingIn) => {
                    if response.status() != recovery::LoginStatus::Accepted {
                        return Err(SnapshotFailure::LoginRejected);
                    }
                    let fields = recovery::SnapshotRequestFields {
                        length: recovery::SnapshotRequest::LENGTH as u8,
                        // Requests any number that the server has.
                        sequence_number: 0,
                        segment: padded(""),
                        instrument_id: 0,
                        sub_book: 0,
                        snapshot_type: recovery::SnapshotType::OrderBook,
                        recover_from_time: [0; 8],
                        request_id: 1,
                    };
                    self.output.extend_from_slice(&unit_of(&fields.encode()));
                    self.state = State::Requested(0);
                }
                (Message::SnapshotResponse(response), State::Requested(_)) => {
                    if response.status() != recovery::SnapshotStatus::Accepted {
                        return Err(SnapshotFailure::Refused);
                    }
                    let (sequence, orders) = (response.sequence_number(), response.order_count());
                    self.state = State::Receiving { sequence, orders };
                }
                (Message::SnapshotComplete(complete), State::Receiving { sequence, orders }) => {
                    // The end of one instrument's or segment's snapshot does not cover the rest of the group.
                    let is_whole = complete.instrument_id() == 0 && complete.segment().trimmed().is_empty();
                    if complete.sequence_number() != sequence || orders != 0 || !is_whole {
                        return Err(SnapshotFailure::Torn);
                    }
                    return Ok(Some(Step::End(u64::from(sequence) + 1)));
                }
                _ => return Err(SnapshotFailure::Malformed),
            }
        }
    }

    fn of_memx(&mut self) -> Result<Option<Step>, SnapshotFailure> {
        use tcp::Message;
        loop {
            let rest = self.input.get(self.at..).unwrap_or_default();
            let Some([_, high, low]) = rest.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
            let Some(packet) = rest.get(..length) else { return Ok(None) };
            let begin = self.at;
            self.at += length;
            match (Message::decode(packet).map_err(|_| SnapshotFailure::Malformed)?, self.state) {
                (Message::Heartbeat(_), _) => {}
                (Message::LoginAccepted(accepted), State::LoggingIn) => {
                    if accepted.supported_request_mode() != tcp::RequestMode::Snapshot {
                        return Err(SnapshotFailure::LoginRejected);
                    }
                    self.state = State::Waiting;
                }
                (Message::LoginRejected(_), State::LoggingIn) => return Err(SnapshotFailure::LoginRejected),
                (Message::StartOfSession(start), State::Waiting) => {
                    let session_id = start.session_id();
                    if self.session != Some(SessionId::Memoir(session_id)) {
                        return Err(SnapshotFailure::OtherSession);
                    }
                    let message_length = (tcp::ReplayAllRequest::LENGTH - HEADER_BYTES) as u16;
                    let fields = tcp::ReplayAllRequestFields { message_length, session_id };
                    self.output.extend_from_slice(&fields.encode());
                    self.state = State::Requested(0);
                }
                (Message::EndOfSession(_), _) => return Err(SnapshotFailure::Ended),
                (Message::ReplayRejected(_), State::Requested(_)) => return Err(SnapshotFailure::Refused),
                (Message::ReplayBegin(begin), State::Requested(_)) => {
                    self.state = State::Receiving { sequence: 0, orders: begin.pending_message_count() };
                }
                (Message::SequencedMessage(m), State::Receiving { orders, sequence }) => {
                    let orders = orders.checked_sub(1).ok_or(SnapshotFailure::Torn)?;
                    match depth13::Message::decode(m.message()) {
                        Ok(depth13::Message::SnapshotComplete(complete)) if orders == 0 => {
                            self.state = State::Behind(complete.as_of_sequence_number());
                        }
                        Ok(depth13::Message::SnapshotComplete(_)) => return Err(SnapshotFailure::Torn),
                        _ => {
                            self.state = State::Receiving { orders, sequence };
                            return Ok(Some(Step::Message(begin + HEADER_BYTES..begin + length)));
                        }
                    }
                }
                (Message::ReplayComplete(_), State::Behind(last)) => {
                    return Ok(Some(Step::End(last.saturating_add(1))));
                }
                (Message::ReplayComplete(_), State::Receiving { .. }) => return Err(SnapshotFailure::Torn),
                _ => return Err(SnapshotFailure::Malformed),
            }
        }
    }

    /// Returns the range of a unit's next message; `None` until more bytes arrive.
    fn next_of_unit(&mut self) -> Result<Option<Range<usize>>, SnapshotFailure> {
        while self.left == 0 {
            let rest = self.input.get(self.at..).unwrap_or_default();
            let Some([low, high, count, ..]) = rest.first_chunk::<UNIT_HEADER_BYTES>() else {
                return Ok(None);
            };
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            if length < UNIT_HEADER_BYTES || (*count == 0 && length != UNIT_HEADER_BYTES) {
                return Err(SnapshotFailure::Malformed);
            }
            if rest.len() < length {
                return Ok(None);
            }
            (self.left, self.unit_end) = (*count, self.at + length);
            self.at += UNIT_HEADER_BYTES;
        }
        let length = self.input.get(self.at).map_or(0, |length| usize::from(*length));
        let range = self.at..self.at + length;
        self.left -= 1;
        let is_sound = length >= 2
            && if self.left == 0 { range.end == self.unit_end } else { range.end < self.unit_end };
        if !is_sound {
            return Err(SnapshotFailure::Malformed);
        }
        self.at = range.end;
        Ok(Some(range))
    }
}
