//! The client's end: logs in, requests a snapshot where necessary, and passes on each message.

use super::{Fetched, SnapshotFailure, SnapshotLogin, SnapshotProtocol};
use crate::dialect::requests::{DayTime, RequestLogin};
use crate::dialect::snapshots::{Conversation, Input, State, Step};
use crate::table::GroupClient;
use crate::transport::SessionId;

/// Where the messages arrive.
#[derive(Debug, Clone)]
enum Source {
    Connection(Conversation),
    Group(Box<GroupClient>),
}

/// The client's end of a connection for one snapshot.
///
/// The caller sends [`SnapshotClient::take_output`] at the start and after each [`SnapshotClient::receive`], and a
/// [`SnapshotClient::heartbeat`] each second. After a failure nothing more arrives.
#[derive(Debug, Clone)]
pub struct SnapshotClient {
    protocol: SnapshotProtocol,
    source: Source,
}

impl SnapshotClient {
    /// Creates a client that logs in for a snapshot of this session.
    #[must_use]
    pub fn new(login: &SnapshotLogin, session: &SessionId) -> Self {
        let protocol = SnapshotProtocol::of(session.transport());
        let texts = [&login.sub_id, &login.user, &login.password].map(|text| text.as_bytes());
        let output = (protocol.rules().connection.login)(texts, Some(session));
        let (session, state, input) = (*session, State::LoggingIn, Input::default());
        Self { protocol, source: Source::Connection(Conversation { session, state, input, output }) }
    }

    /// Creates a client of a request server whose refresh packets are sent to a group.
    ///
    /// The caller passes them to [`SnapshotClient::receive_datagram`], and calls [`SnapshotClient::tick`] often.
    /// Returns `None` if venues with such logins have no refreshes.
    #[must_use]
    pub fn by_group(login: RequestLogin, day_time: DayTime, now_ns: u64) -> Option<Self> {
        let protocol = SnapshotProtocol::by_group(login.protocol().transport())?;
        let client = GroupClient::new(&login, day_time, now_ns);
        Some(Self { protocol, source: Source::Group(Box::new(client)) })
    }

    /// Returns the protocol for requesting and framing the snapshot.
    #[must_use]
    pub const fn protocol(&self) -> SnapshotProtocol {
        self.protocol
    }

    /// Takes the bytes to send next.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        match &mut self.source {
            Source::Connection(client) => std::mem::take(&mut client.output),
            Source::Group(client) => client.take_output(),
        }
    }

    /// Returns the bytes to send each second.
    #[must_use]
    pub const fn heartbeat(&self) -> &'static [u8] {
        self.protocol.rules().connection.heartbeat
    }

    /// Returns the bytes to send when the snapshot is complete.
    #[must_use]
    pub const fn farewell(&self) -> &'static [u8] {
        self.protocol.rules().farewell
    }

    /// Reads bytes from the server. The caller then takes everything from [`SnapshotClient::fetch`].
    pub fn receive(&mut self, bytes: &[u8]) {
        match &mut self.source {
            Source::Connection(client) => client.input.push(bytes),
            Source::Group(client) => client.receive(bytes),
        }
    }

    /// Processes a packet of the group.
    pub fn receive_datagram(&mut self, payload: &[u8]) {
        if let Source::Group(client) = &mut self.source {
            client.receive_datagram(payload);
        }
    }

    /// Runs the timers: requests missing packets of the group again. Times are those of a monotonic clock.
    pub fn tick(&mut self, now_ns: u64) {
        if let Source::Group(client) = &mut self.source {
            client.tick(now_ns);
        }
    }

    /// Returns the number of the group's packets that were not needed: those for other clients, and duplicates.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        match &self.source {
            Source::Connection(_) => 0,
            Source::Group(client) => client.ignored,
        }
    }

    /// Returns the next part of the snapshot; `None` until more bytes arrive.
    ///
    /// # Errors
    /// The snapshot cannot be fetched.
    pub fn fetch(&mut self) -> Result<Option<Fetched<'_>>, SnapshotFailure> {
        match &mut self.source {
            Source::Connection(client) => {
                Ok(self.protocol.rules().dialect.fetch(client)?.map(|step| match step {
                    Step::Message(range) => Fetched::Message(client.input.get(range)),
                    Step::End(next) => Fetched::End { next },
                }))
            }
            Source::Group(client) => client.fetch(),
        }
    }
}
