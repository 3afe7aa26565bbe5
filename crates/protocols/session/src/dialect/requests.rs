//! Requests for missed messages: the rules and messages of a venue.

use std::ops::Range;

use subtle::ConstantTimeEq;
use tapeworks_wire::Ascii;

use super::connection::{Asked, Connection, SECOND_NS};
use crate::protocols::RequestProtocol;
use crate::transport::{Request, SessionId};

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

/// The limits and times of a venue's requests.
#[derive(Clone, Copy)]
pub(crate) struct RequestRules {
    pub(crate) connection: &'static Connection,
    pub(crate) dialect: &'static dyn RequestDialect,
    /// Whether the client logs in, and both sides send heartbeats. Otherwise the client answers the server's heartbeats.
    pub(crate) has_login: bool,
    /// Whether the messages are sent to a group. Otherwise they are sent over the connection.
    pub(crate) answers_to_group: bool,
    /// The highest sequence number that a request can name.
    pub(crate) last_number: u64,
    pub(crate) limits: ServerLimits,
    /// The time without another packet after which a heartbeat is sent, in ns.
    pub(crate) heartbeat_ns: u64,
    /// The silence after which a server is considered dead, in ns.
    pub(crate) silence_ns: u64,
}

impl RequestRules {
    /// Returns the rules of a venue that documents none.
    pub(crate) const fn new(connection: &'static Connection, dialect: &'static dyn RequestDialect) -> Self {
        Self {
            connection,
            dialect,
            has_login: true,
            answers_to_group: false,
            last_number: u32::MAX as u64,
            limits: ServerLimits {
                messages: 1_000,
                per_second: 100,
                per_minute: u32::MAX,
                per_day: u32::MAX,
            },
            heartbeat_ns: SECOND_NS,
            silence_ns: 5 * SECOND_NS,
        }
    }
}

/// A message from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// The answer to the login: whether it was accepted.
    LoggedIn(bool),
    /// The response to a request.
    Response {
        session: SessionId,
        numbers: Range<u64>,
        status: RequestStatus,
    },
    /// Messages from this number on follow.
    ReplayBegin(u64),
    /// The next message of a replay.
    Replayed(&'a [u8]),
    ReplayComplete,
    /// The request being answered is refused.
    ReplayRefused(RequestStatus),
    /// The server ends the session.
    Closed,
    /// Needs no action: a heartbeat or an announcement.
    Nothing,
    /// A message of a later revision, or one that servers do not send.
    Unexpected,
}

/// A client's request, and the reason to refuse it regardless of limits.
pub(crate) type RequestAsked = (Request, Option<RequestStatus>);

/// A request that the server has taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) request: Request,
    /// The client's message, for fields that the response repeats.
    pub(crate) message: Vec<u8>,
    /// The number of the packet with the request.
    pub(crate) packet_number: u32,
}

/// A venue's requests over TCP, as messages of both ends.
pub(crate) trait RequestDialect: Sync {
    /// Client: builds a request; `None` for a session of another transport.
    fn request(&self, login: &RequestLogin, request: &Request) -> Option<Vec<u8>>;

    /// Client: decodes a message from the server.
    fn heard<'a>(&self, message: &'a [u8]) -> Heard<'a>;

    /// Client: returns whether a packet consists of requested messages in the feed's format.
    fn is_answer(&self, _packet: &[u8]) -> bool {
        false
    }

    /// Client: builds the answer to a packet that is a heartbeat, where the venue demands one.
    fn heartbeat_answer(&self, _packet: &[u8], _login: &RequestLogin) -> Option<Vec<u8>> {
        None
    }

    /// Server: returns a packet's number, where the header has one.
    fn packet_number(&self, _packet: &[u8]) -> u32 {
        0
    }

    /// Server: decodes a message from a client. If given, only `admitted` may request.
    fn asked(&self, message: &[u8], admitted: Option<&RequestLogin>) -> Asked<RequestAsked>;

    /// Server: builds the answer to a login, where the venue has one, while `session` is running.
    fn login_answer(&self, _is_known: bool, _session: Option<SessionId>) -> Vec<u8> {
        Vec::new()
    }

    /// Server: builds the response to a request; `None` if the messages alone answer it.
    fn response(&self, taken: &Taken, status: RequestStatus) -> Option<Vec<u8>>;

    /// Server: builds what follows an accepting response on the connection, from packets in the feed's format.
    fn replay(&self, _request: &Request, _packets: &[Vec<u8>]) -> Vec<u8> {
        Vec::new()
    }
}

/// A client's identity. A venue uses the fields that its [`LoginLimits`](crate::requests::LoginLimits) allow and ignores the others.
#[derive(Clone, Copy, Default)]
pub struct LoginFields<'a> {
    /// The id that Cboe assigns to each of a firm's connections.
    pub sub_id: &'a str,
    /// The user's name.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
    /// The source that each request names, at a venue without users.
    pub source: &'a str,
    /// The product that each request names.
    pub product: u8,
    /// The channel that each request names.
    pub channel: u8,
}

/// The identity of a client, and the request protocol of its venue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestLogin {
    pub(crate) protocol: RequestProtocol,
    pub(crate) sub_id: Ascii<4>,
    /// The user's name, or the source of a venue without users.
    pub(crate) user: Ascii<16>,
    pub(crate) password: Ascii<32>,
    /// The product and channel numbers, where requests name them.
    pub(crate) product: u8,
    pub(crate) channel: u8,
}

impl std::fmt::Debug for RequestLogin {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { protocol, sub_id, user, product, channel, .. } = self;
        write!(f, "RequestLogin({protocol:?}, {sub_id:?}, {user:?}, {product}, {channel})")
    }
}

/// Returns a text of a login, blank if the venue's login does not have it; `None` if the text is too long or not printable ASCII.
fn text<const LENGTH: usize>(text: &str, longest: usize) -> Option<Ascii<LENGTH>> {
    let text = if longest > 0 { text } else { "" };
    if text.len() <= longest { Ascii::new(text) } else { None }
}

impl RequestLogin {
    /// Creates the login of a client; `None` if a text is too long for the venue, or contains anything but printable ASCII.
    #[must_use]
    pub fn new(protocol: RequestProtocol, fields: &LoginFields<'_>) -> Option<Self> {
        let LoginFields { sub_id, user, password, source, product, channel } = *fields;
        let limits = protocol.login_limits();
        let name = if limits.source > 0 { source } else { user };
        Some(Self {
            protocol,
            sub_id: text(sub_id, limits.sub_id)?,
            user: text(name, limits.name())?,
            password: text(password, limits.password)?,
            product: if limits.has_channel { product } else { 0 },
            channel: if limits.has_channel { channel } else { 0 },
        })
    }

    /// Returns the request protocol.
    #[must_use]
    pub const fn protocol(&self) -> RequestProtocol {
        self.protocol
    }

    /// Returns whether a client's login has these texts and its protocol. Compares in constant time.
    pub(crate) fn admits(&self, protocol: RequestProtocol, [sub_id, user, password]: [&[u8]; 3]) -> bool {
        let is_same = sub_id.ct_eq(self.sub_id.trimmed())
            & user.ct_eq(self.user.trimmed())
            & password.ct_eq(self.password.trimmed());
        self.protocol == protocol && bool::from(is_same)
    }
}

/// The server's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RequestStatus {
    /// The messages follow.
    Accepted,
    /// The messages are ahead of those sent, or too old.
    OutOfRange,
    /// The request names more messages than allowed.
    TooLong,
    /// The client has used up its requests for this second.
    SecondQuota,
    /// The client has used up its requests for this minute.
    MinuteQuota,
    /// The client has used up its requests for this day.
    DayQuota,
    /// The server does not have this channel (Cboe: unit).
    InvalidChannel,
    /// The server does not have this product.
    InvalidProduct,
    /// The source is unknown.
    InvalidSource,
    /// The channel's messages are unavailable at present.
    Unavailable,
    /// The request cannot be decoded.
    InvalidMessage,
    /// An undocumented status.
    Unknown,
}

impl RequestStatus {
    /// All statuses, in order.
    pub const ALL: [Self; 12] = [
        Self::Accepted,
        Self::OutOfRange,
        Self::TooLong,
        Self::SecondQuota,
        Self::MinuteQuota,
        Self::DayQuota,
        Self::InvalidChannel,
        Self::InvalidProduct,
        Self::InvalidSource,
        Self::Unavailable,
        Self::InvalidMessage,
        Self::Unknown,
    ];

    /// Returns the status as named in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::OutOfRange => "out_of_range",
            Self::TooLong => "too_long",
            Self::SecondQuota => "second_quota",
            Self::MinuteQuota => "minute_quota",
            Self::DayQuota => "day_quota",
            Self::InvalidChannel => "invalid_channel",
            Self::InvalidProduct => "invalid_product",
            Self::InvalidSource => "invalid_source",
            Self::Unavailable => "unavailable",
            Self::InvalidMessage => "invalid_message",
            Self::Unknown => "unknown",
        }
    }
}

/// The statuses of a venue, each beside ours.
///
/// Both ways the first pair counts, so that the closest status comes first.
pub(crate) struct Statuses<T: 'static> {
    pub(crate) pairs: &'static [(RequestStatus, T)],
    /// Stands for all that no pair has.
    pub(crate) other: T,
}

impl<T: Copy + PartialEq> Statuses<T> {
    /// Returns our status for the venue's.
    pub(crate) fn ours(&self, theirs: T) -> RequestStatus {
        let pair = self.pairs.iter().find(|(_, status)| *status == theirs);
        pair.map_or(RequestStatus::Unknown, |(status, _)| *status)
    }

    /// Returns the venue's closest status.
    pub(crate) fn theirs(&self, ours: RequestStatus) -> T {
        self.pairs.iter().find(|(status, _)| *status == ours).map_or(self.other, |(_, status)| *status)
    }
}

/// Converts times of a monotonic clock to UTC: NYSE's packets contain their send time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayTime {
    utc_ns: u64,
    now_ns: u64,
}

impl DayTime {
    /// Creates a conversion: UTC was `utc_ns` since 1970-01-01 00:00 when the monotonic clock showed `now_ns`.
    #[must_use]
    pub const fn new(utc_ns: u64, now_ns: u64) -> Self {
        Self { utc_ns, now_ns }
    }

    /// Returns the UTC time when the clock shows `now_ns`, in nanoseconds since 1970-01-01 00:00 UTC.
    #[must_use]
    pub const fn at(self, now_ns: u64) -> u64 {
        self.utc_ns.saturating_add(now_ns).saturating_sub(self.now_ns)
    }
}
