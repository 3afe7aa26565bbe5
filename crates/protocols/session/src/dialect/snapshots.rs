//! Snapshots: the rules and messages of a venue.

use std::ops::Range;

use super::connection::{Asked, Connection, SECOND_NS};
use crate::login::Credentials;
use crate::transport::SessionId;

/// The order and times of a venue's snapshots.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotRules {
    pub(crate) connection: &'static Connection,
    pub(crate) flow: Flow,
    pub(crate) dialect: &'static dyn SnapshotDialect,
    /// Whether snapshots arrive on a group. Then `dialect` only frames the images.
    pub(crate) is_on_group: bool,
    /// The silence after which a side is considered dead, in ns.
    pub(crate) silence_ns: u64,
    /// The bytes that a client sends when the snapshot is complete.
    pub(crate) farewell: &'static [u8],
    /// The server's heartbeat while the client waits.
    pub(crate) server_heartbeat: &'static [u8],
}

impl SnapshotRules {
    /// Returns the rules of a venue whose connections are those of its requests.
    pub(crate) const fn new(
        connection: &'static Connection,
        flow: Flow,
        dialect: &'static dyn SnapshotDialect,
    ) -> Self {
        let (is_on_group, silence_ns, server_heartbeat) = (false, 5 * SECOND_NS, connection.heartbeat);
        Self { connection, flow, dialect, is_on_group, silence_ns, farewell: &[], server_heartbeat }
    }
}

/// When a server sends the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// After the login.
    AtLogin,
    /// After a request that follows the login.
    OnRequest,
    /// After a request for the snapshot that the server offers once, or each second.
    Offered { is_repeated: bool },
}

/// The answer to a request, or to a login that asks for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The image follows these bytes.
    Accept(Vec<u8>),
    /// The client may request again.
    Decline(Vec<u8>),
    /// The connection ends.
    Reject(Vec<u8>),
}

/// A venue's snapshots over the connection, as messages of both ends.
pub(crate) trait SnapshotDialect: Sync {
    /// Appends a message to an image.
    fn frame(&self, image: &mut Image, message: &[u8]);

    /// Appends the end of the snapshot, and of its session or replay, to an image.
    fn finish(&self, image: &mut Image);

    /// Client: reads until the next part of the snapshot; `None` until more bytes arrive.
    fn fetch(&self, client: &mut Conversation) -> Result<Option<Step>, SnapshotFailure>;

    /// Server: decodes a message from a client. If given, only `admitted` may log in.
    ///
    /// A request that no server here can serve comes as its answer.
    fn asked(&self, message: &[u8], admitted: Option<&Credentials>) -> Asked<Result<(), Vec<u8>>>;

    /// Server: builds the answer to a login; empty if only the image answers it.
    fn login_answer(&self, is_known: bool) -> Vec<u8>;

    /// Server: offers an image, where the venue offers its snapshots.
    fn offer(&self, _image: &Image) -> Vec<u8> {
        Vec::new()
    }

    /// Server: answers a request, or a login that asks for a snapshot, with this image.
    fn answer(&self, image: &Image, message: &[u8]) -> Answer;
}

/// The state of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The login has not been answered.
    LoggingIn,
    /// Logged in; no snapshot has been offered yet.
    Waiting,
    /// A snapshot was requested: the offered one, with this number, or 0 for any.
    Requested(u32),
    /// The messages are arriving.
    Receiving {
        sequence: u32,
        /// Orders still to come; at MEMX, messages.
        orders: u32,
    },
    /// The snapshot is complete and includes messages up to this number; the end of its replay has not arrived.
    Complete(u64),
}

/// A client's end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) session: SessionId,
    pub(crate) state: State,
    pub(crate) input: Input,
    pub(crate) output: Vec<u8>,
}

impl Conversation {
    /// Counts a message of the snapshot against the announced number of orders.
    pub(crate) fn count(&mut self, adds_order: bool) -> Result<(), SnapshotFailure> {
        let State::Receiving { orders, .. } = &mut self.state else { return Err(SnapshotFailure::Malformed) };
        *orders = orders.checked_sub(u32::from(adds_order)).ok_or(SnapshotFailure::Torn)?;
        Ok(())
    }
}

/// A message found in the input, by its range, or the end of the snapshot: the number of the next live message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Message(Range<usize>),
    End(u64),
}

/// Read bytes are removed from the input once there are this many.
const COMPACTED_BYTES: usize = 64 << 10;

/// The bytes received by a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Input before this offset has been read.
    pub(crate) at: usize,
    /// Where the packet being read ends, if its messages are read one by one.
    pub(crate) packet_end: usize,
    /// Messages of that packet still to be read.
    pub(crate) left: u8,
}

impl Input {
    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let used = if self.left > 0 { 0 } else { self.at };
        if used >= COMPACTED_BYTES || used == self.bytes.len() {
            self.bytes.drain(..used);
            (self.at, self.packet_end) = (self.at - used, self.packet_end.saturating_sub(used));
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes not read yet.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the bytes in a range.
    pub(crate) fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Reads a packet; `None` until it has arrived.
    pub(crate) fn next_packet(&mut self, connection: &Connection) -> Option<Range<usize>> {
        let length = (connection.packet_bytes)(self.rest())?;
        let range = self.at..self.at + length;
        self.bytes.get(range.clone())?;
        self.at = range.end;
        Some(range)
    }
}

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

/// The most bytes in a block of messages, unless one message is longer.
pub(crate) const BLOCK_BYTES: usize = 1_400;

/// A snapshot of a venue, ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The session of the sequence number.
    pub session: SessionId,
    /// Sequence number of the first live message that the image does not include.
    pub next: u64,
    /// Messages in the image, without the end of the snapshot.
    pub messages: u64,
    /// When the image was made, in nanoseconds since 1970-01-01 00:00 UTC. MEMX's snapshots contain it.
    pub time_ns: u64,
    /// Serves clients that request another session, too: a server that lies, to test clients.
    pub is_for_any_session: bool,
    /// Repeats the messages forever instead of sending the end, to test clients.
    pub is_endless: bool,
    /// Orders in a spin or a MITCH snapshot.
    pub(crate) orders: u32,
    pub(crate) packets: Vec<u8>,
    /// Offset of the last block, where messages are framed in blocks.
    pub(crate) block: usize,
}

impl Image {
    /// Creates a snapshot without messages.
    #[must_use]
    pub fn new(session: SessionId, next: u64) -> Self {
        Self {
            session,
            next,
            messages: 0,
            time_ns: 0,
            is_for_any_session: false,
            is_endless: false,
            orders: 0,
            packets: Vec::new(),
            block: 0,
        }
    }

    /// Returns the number of the last live message that the image includes, as in a spin.
    pub(crate) fn last(&self) -> u32 {
        u32::try_from(self.next.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Returns the packets, including the end.
    #[must_use]
    pub fn packets(&self) -> &[u8] {
        &self.packets
    }
}

/// Why a snapshot could not be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotFailure {
    /// The server rejected the login.
    #[error("the login was rejected")]
    LoginRejected,
    /// The server does not have this spin, or is already sending one.
    #[error("the spin was refused")]
    SpinRefused,
    /// The server refused the request for a snapshot.
    #[error("the snapshot was refused")]
    Refused,
    /// The server's session is not the requested one.
    #[error("the server's session is not the requested one")]
    OtherSession,
    /// The session ended before the snapshot did.
    #[error("the session ended before the snapshot did")]
    Ended,
    /// The end contradicts the beginning: another number, or another count of orders or messages.
    #[error("the end of the snapshot does not fit its beginning")]
    Torn,
    /// The server refused a refresh, or its directory.
    #[error("the refresh was refused")]
    RefreshRefused,
    /// Packets of a refresh did not arrive despite repeated requests, or there were too many.
    #[error("the refresh did not come whole")]
    RefreshIncomplete,
    /// The server violated the protocol.
    #[error("the server does not speak the protocol of its snapshots")]
    Malformed,
}

impl SnapshotFailure {
    /// Fails unless the server did what it must.
    pub(crate) const fn unless(self, holds: bool) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(self) }
    }
}
