//! Requests for missed messages over TCP: Cboe's Gap Request Proxy, NYSE's request server, MITCH's replay channel and MEMX's gap fill.
//!
//! A client requests messages over a connection and receives a response with a status. Cboe and NYSE send the messages
//! themselves as datagrams to a separate address, which neither end here sees. MITCH and MEMX send them over the connection.
//!
//! | | Cboe GRP | NYSE request server | MITCH replay channel | MEMX gap fill |
//! | --- | --- | --- | --- | --- |
//! | packets | sequenced units, unit 0, number 0 | Pillar packets | units without a group, number 0 | messages after type and length |
//! | login | user and password | none; each request names its source | user and password | a token of user and password |
//! | heartbeats | both sides, after 1 s without a packet | server each minute; client answers within 5 s | as Cboe | as Cboe |
//! | silence | 5 s | 125 s: two server heartbeats and the time for one answer | 5 s | 5 s |
//! | messages per request | 100 | 1,000 | 1,000 | 1,000 |
//! | requests | 320/s, 1,500/min, 100,000/day | 5,000/day | 100/s | 100/s |
//! | delivery | to a group | to a group | units with their own numbers | between the begin and the end of the replay |
//!
//! The layouts and statuses of Cboe's and MITCH's messages agree with two other implementations, MEMX's with the public
//! definitions of its order entry. Times and limits are those of public documents as others quote them; none has been
//! verified on real packets. Some are ours: NYSE's limit of 100 requests a second and its silence limit, and all limits
//! and times of MITCH and MEMX.
//!
//! [`Requester`] is the client's end of one channel, [`RequestServer`] the server's end of one connection. Bytes and
//! times go in, bytes come out.
//!
//! Cost: a request is 17 bytes (Cboe) or 40 bytes (NYSE), a response 18 or 45. Both ends keep bounded queues and one incomplete packet.

mod client;
mod server;

use tapeworks_wire::Ascii;
use tapeworks_wire::cboe::grp::GapStatus;
use tapeworks_wire::cboe::unit::SequencedUnit;
use tapeworks_wire::framing::{Blocks, LengthPrefix};
use tapeworks_wire::memx::tcp::{HEADER_BYTES, ReplayRejectCode};
use tapeworks_wire::millennium::recovery::ReplayStatus;
use tapeworks_wire::nyse::integrated;
use tapeworks_wire::nyse::packet::{HEADER_BYTES as PILLAR_HEADER_BYTES, PillarPacket};

pub(crate) use crate::nyse::pillar_of;
pub use crate::protocols::RequestProtocol;

pub(crate) use client::token_login;
pub use client::{Requester, RequesterCounters, RequesterEnd};
pub use server::{RequestServer, RequestServerEnd, ServerLimits};
pub(crate) use server::{
    accepted_by_memx, append_sequenced, begin_by_memx, complete_by_memx, rejected_by_memx,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Length of Cboe's header in bytes.
pub(crate) const UNIT_HEADER_BYTES: usize = 8;

/// A Cboe heartbeat: a header without messages.
pub(crate) const UNIT_HEARTBEAT: [u8; UNIT_HEADER_BYTES] = [8, 0, 0, 0, 0, 0, 0, 0];

impl RequestProtocol {
    /// Returns whether the messages are sent to a group. Otherwise they are sent over the connection.
    #[must_use]
    pub const fn answers_to_group(self) -> bool {
        matches!(self, Self::Grp | Self::Pillar)
    }

    /// Returns whether the client logs in and sends heartbeats.
    const fn has_login(self) -> bool {
        !matches!(self, Self::Pillar)
    }

    /// Returns the heartbeat that both sides send after a second without another packet; empty if only the server sends them.
    pub(crate) const fn heartbeat(self) -> &'static [u8] {
        match self {
            Self::Grp | Self::Mitch => &UNIT_HEARTBEAT,
            Self::Memx => &[0; HEADER_BYTES],
            Self::Pillar => &[],
        }
    }

    /// Returns the most messages per request.
    #[must_use]
    pub const fn most_messages(self) -> u16 {
        match self {
            Self::Grp => 100,
            Self::Pillar | Self::Mitch | Self::Memx => 1_000,
        }
    }

    /// Returns the most requests in any second.
    #[must_use]
    pub const fn per_second(self) -> u32 {
        match self {
            Self::Grp => 320,
            Self::Pillar | Self::Mitch | Self::Memx => 100,
        }
    }

    /// Returns the time without another packet after which a server sends a heartbeat, in ns.
    const fn server_heartbeat_ns(self) -> u64 {
        match self {
            Self::Grp | Self::Mitch | Self::Memx => SECOND_NS,
            Self::Pillar => 60 * SECOND_NS,
        }
    }

    /// Returns the silence after which a server is considered dead, in ns.
    const fn silence_ns(self) -> u64 {
        match self {
            Self::Grp | Self::Mitch | Self::Memx => 5 * SECOND_NS,
            Self::Pillar => 125 * SECOND_NS,
        }
    }

    /// Returns the length of a packet's header in bytes.
    const fn header_bytes(self) -> usize {
        match self {
            Self::Grp | Self::Mitch => UNIT_HEADER_BYTES,
            Self::Pillar => PILLAR_HEADER_BYTES,
            Self::Memx => HEADER_BYTES,
        }
    }

    /// Returns the longest packet that either side may send, in bytes including the header.
    const fn longest_bytes(self) -> usize {
        match self {
            // A client's packets have 40 bytes, a server's 45.
            Self::Grp | Self::Pillar => 512,
            // Includes the requested messages.
            Self::Mitch | Self::Memx => 2_048,
        }
    }

    /// Returns the length of the packet that starts here; `None` if its length has not arrived yet.
    fn packet_bytes(self, bytes: &[u8]) -> Option<usize> {
        match (self, bytes) {
            (Self::Memx, [_, high, low, ..]) => {
                Some(HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])))
            }
            (Self::Memx, _) => None,
            (_, [low, high, ..]) => Some(usize::from(u16::from_le_bytes([*low, *high]))),
            _ => None,
        }
    }

    /// Passes each message of a complete packet to `each`. Returns `false`, and passes none, if the messages do not match the header.
    pub(crate) fn each_message(self, packet: &[u8], mut each: impl FnMut(&[u8])) -> bool {
        if self == Self::Memx {
            each(packet);
            return true;
        }
        let Some(count) = self.count(packet) else { return false };
        let behind_header = packet.len().saturating_sub(self.header_bytes());
        match self {
            // MITCH's units have the layout of Cboe's.
            Self::Grp | Self::Mitch | Self::Memx => SequencedUnit::decode(packet)
                .is_ok_and(|unit| each_of(unit.blocks(), count, behind_header, each)),
            Self::Pillar => PillarPacket::decode(packet)
                .is_ok_and(|pillar| each_of(pillar.blocks(), count, behind_header, each)),
        }
    }

    /// Returns the number of messages according to the packet's header.
    pub(crate) fn count(self, packet: &[u8]) -> Option<usize> {
        let at = match self {
            Self::Grp | Self::Mitch => 2,
            Self::Pillar => 3,
            Self::Memx => return Some(1),
        };
        packet.get(at).map(|count| usize::from(*count))
    }
}

/// Passes on `count` messages. Returns `false`, and passes none, if they do not fill `bytes` exactly.
fn each_of<Prefix: LengthPrefix>(
    mut blocks: Blocks<'_, Prefix>,
    count: usize,
    bytes: usize,
    each: impl FnMut(&[u8]),
) -> bool {
    let messages: Vec<&[u8]> = blocks.by_ref().map_while(Result::ok).collect();
    let is_sound = messages.len() == count && blocks.offset() == bytes;
    messages.into_iter().filter(|_| is_sound).for_each(each);
    is_sound
}

/// The identity of a client, which also selects the request protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestLogin {
    /// A user of Cboe's Gap Request Proxy.
    Grp {
        /// The session's sub-id.
        sub_id: Ascii<4>,
        /// The user's name.
        user: Ascii<4>,
        /// The password.
        password: Ascii<10>,
    },
    /// A client of NYSE's request server, and its channel.
    Pillar {
        /// The source id, filled with NUL.
        source: Ascii<10>,
        /// The product number.
        product: u8,
        /// The channel number.
        channel: u8,
    },
    /// A user of MITCH's replay channel.
    Mitch {
        /// The user's name.
        user: Ascii<6>,
        /// The password.
        password: Ascii<10>,
    },
    /// A user of MEMX's gap fill.
    Memx {
        /// The user's name.
        user: Ascii<16>,
        /// The password.
        password: Ascii<32>,
    },
}

impl std::fmt::Debug for RequestLogin {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grp { sub_id, user, .. } => {
                f.debug_struct("Grp").field("sub_id", sub_id).field("user", user).finish_non_exhaustive()
            }
            Self::Pillar { source, product, channel } => f
                .debug_struct("Pillar")
                .field("source", source)
                .field("product", product)
                .field("channel", channel)
                .finish(),
            Self::Mitch { user, .. } => f.debug_struct("Mitch").field("user", user).finish_non_exhaustive(),
            Self::Memx { user, .. } => f.debug_struct("Memx").field("user", user).finish_non_exhaustive(),
        }
    }
}

impl RequestLogin {
    /// Creates a user of Cboe's Gap Request Proxy.
    ///
    /// Returns `None` if the sub-id or name has more than 4 characters, the password has more than 10, or one contains
    /// anything but printable ASCII.
    #[must_use]
    pub fn grp(sub_id: &str, user: &str, password: &str) -> Option<Self> {
        let (sub_id, user) = (Ascii::new(sub_id)?, Ascii::new(user)?);
        Some(Self::Grp { sub_id, user, password: Ascii::new(password)? })
    }

    /// Creates a client of NYSE's request server.
    ///
    /// Returns `None` if the source id has more than 10 characters, or contains anything but printable ASCII.
    #[must_use]
    pub fn pillar(source: &str, product: u8, channel: u8) -> Option<Self> {
        Ascii::<10>::new(source)?;
        let mut bytes = [0; 10];
        bytes.iter_mut().zip(source.bytes()).for_each(|(to, from)| *to = from);
        Some(Self::Pillar { source: Ascii(bytes), product, channel })
    }

    /// Creates a user of MITCH's replay channel.
    ///
    /// Returns `None` if the name has more than 6 characters, the password has more than 10, or one contains anything but printable ASCII.
    #[must_use]
    pub fn mitch(user: &str, password: &str) -> Option<Self> {
        Some(Self::Mitch { user: Ascii::new(user)?, password: Ascii::new(password)? })
    }

    /// Creates a user of MEMX's gap fill.
    ///
    /// Returns `None` if the name has more than 16 characters, the password has more than 32, or one contains anything but printable ASCII.
    #[must_use]
    pub fn memx(user: &str, password: &str) -> Option<Self> {
        Some(Self::Memx { user: Ascii::new(user)?, password: Ascii::new(password)? })
    }

    /// Returns the request protocol.
    #[must_use]
    pub const fn protocol(&self) -> RequestProtocol {
        match self {
            Self::Grp { .. } => RequestProtocol::Grp,
            Self::Pillar { .. } => RequestProtocol::Pillar,
            Self::Mitch { .. } => RequestProtocol::Mitch,
            Self::Memx { .. } => RequestProtocol::Memx,
        }
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

    const fn of_grp(status: GapStatus) -> Self {
        match status {
            GapStatus::Accepted => Self::Accepted,
            GapStatus::OutOfRange => Self::OutOfRange,
            GapStatus::DailyQuota => Self::DayQuota,
            GapStatus::MinuteQuota => Self::MinuteQuota,
            GapStatus::SecondQuota => Self::SecondQuota,
            GapStatus::CountLimit => Self::TooLong,
            GapStatus::InvalidUnit => Self::InvalidChannel,
            GapStatus::UnitUnavailable => Self::Unavailable,
            GapStatus::Unknown(_) => Self::Unknown,
        }
    }

    /// Maps to the closest status of Cboe's proxy.
    const fn to_grp(self) -> GapStatus {
        match self {
            Self::Accepted => GapStatus::Accepted,
            Self::OutOfRange => GapStatus::OutOfRange,
            Self::TooLong => GapStatus::CountLimit,
            Self::SecondQuota => GapStatus::SecondQuota,
            Self::MinuteQuota => GapStatus::MinuteQuota,
            Self::DayQuota => GapStatus::DailyQuota,
            Self::InvalidChannel | Self::InvalidProduct | Self::InvalidSource => GapStatus::InvalidUnit,
            Self::Unavailable | Self::InvalidMessage | Self::Unknown => GapStatus::UnitUnavailable,
        }
    }

    const fn of_mitch(status: ReplayStatus) -> Self {
        match status {
            ReplayStatus::Accepted => Self::Accepted,
            ReplayStatus::OutOfRange => Self::OutOfRange,
            ReplayStatus::RequestLimit => Self::DayQuota,
            ReplayStatus::ConcurrentLimit => Self::SecondQuota,
            ReplayStatus::InvalidGroup => Self::InvalidChannel,
            ReplayStatus::Unavailable => Self::Unavailable,
            ReplayStatus::UnsupportedMessage => Self::InvalidMessage,
            ReplayStatus::Failed | ReplayStatus::Unknown(_) => Self::Unknown,
        }
    }

    /// Maps to the closest status of MITCH's replay channel.
    const fn to_mitch(self) -> ReplayStatus {
        match self {
            Self::Accepted => ReplayStatus::Accepted,
            Self::OutOfRange => ReplayStatus::OutOfRange,
            Self::DayQuota => ReplayStatus::RequestLimit,
            Self::SecondQuota | Self::MinuteQuota => ReplayStatus::ConcurrentLimit,
            Self::InvalidChannel | Self::InvalidProduct | Self::InvalidSource => ReplayStatus::InvalidGroup,
            Self::Unavailable => ReplayStatus::Unavailable,
            Self::InvalidMessage => ReplayStatus::UnsupportedMessage,
            Self::TooLong | Self::Unknown => ReplayStatus::Failed,
        }
    }

    const fn of_memx(code: ReplayRejectCode) -> Self {
        match code {
            ReplayRejectCode::ReplayNotAllowed | ReplayRejectCode::ReplayAllNotAllowed => {
                Self::InvalidMessage
            }
            ReplayRejectCode::NotTheActiveSession => Self::InvalidChannel,
            ReplayRejectCode::OutOfRange => Self::OutOfRange,
            ReplayRejectCode::Unknown(_) => Self::Unknown,
        }
    }

    /// Maps to the closest reject code of MEMX.
    const fn to_memx(self) -> ReplayRejectCode {
        match self {
            Self::InvalidChannel | Self::InvalidProduct | Self::InvalidSource => {
                ReplayRejectCode::NotTheActiveSession
            }
            Self::OutOfRange | Self::Unavailable | Self::TooLong => ReplayRejectCode::OutOfRange,
            _ => ReplayRejectCode::ReplayNotAllowed,
        }
    }

    pub(crate) const fn of_pillar(status: integrated::RequestStatus) -> Self {
        use integrated::RequestStatus as Status;
        match status {
            Status::Accepted => Self::Accepted,
            Status::InvalidSource => Self::InvalidSource,
            Status::RangeTooLong => Self::TooLong,
            Status::TooManyRequests | Status::TooManyRefreshRequests => Self::DayQuota,
            Status::TooOld => Self::OutOfRange,
            Status::InvalidChannel => Self::InvalidChannel,
            Status::InvalidProduct => Self::InvalidProduct,
            Status::InvalidMessage => Self::InvalidMessage,
            Status::Unknown(_) => Self::Unknown,
        }
    }

    /// Maps to the closest status of NYSE's server.
    pub(crate) const fn to_pillar(self) -> integrated::RequestStatus {
        use integrated::RequestStatus as Status;
        match self {
            Self::Accepted => Status::Accepted,
            Self::OutOfRange | Self::Unavailable => Status::TooOld,
            Self::TooLong => Status::RangeTooLong,
            Self::SecondQuota | Self::MinuteQuota | Self::DayQuota => Status::TooManyRequests,
            Self::InvalidChannel => Status::InvalidChannel,
            Self::InvalidProduct => Status::InvalidProduct,
            Self::InvalidSource => Status::InvalidSource,
            Self::InvalidMessage | Self::Unknown => Status::InvalidMessage,
        }
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

/// Builds a Cboe block with one message.
pub(crate) fn unit_of(message: &[u8]) -> Vec<u8> {
    let mut block = UNIT_HEARTBEAT.to_vec();
    // A message has at most 22 bytes.
    let length = (UNIT_HEADER_BYTES + message.len()) as u16;
    block.splice(0..2, length.to_le_bytes());
    if let Some(count) = block.get_mut(2) {
        *count = 1;
    }
    block.extend_from_slice(message);
    block
}

/// A side sent an invalid packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Splits one side's bytes into packets. Keeps the start of an incomplete packet, up to the longest allowed length.
#[derive(Debug, Clone, Default)]
pub(crate) struct PacketReader {
    start: Vec<u8>,
}

impl PacketReader {
    /// Reads bytes split at any point and passes each complete packet to `each` until it returns `false`.
    pub(crate) fn read(
        &mut self,
        protocol: RequestProtocol,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Malformed> {
        self.start.extend_from_slice(bytes);
        let mut used = 0;
        let result = loop {
            let rest = self.start.get(used..).unwrap_or_default();
            let Some(length) = protocol.packet_bytes(rest) else { break Ok(()) };
            if length < protocol.header_bytes() || length > protocol.longest_bytes() {
                break Err(Malformed);
            }
            let Some(packet) = rest.get(..length) else { break Ok(()) };
            used += length;
            if !each(packet) {
                break Ok(());
            }
        };
        self.start.drain(..used);
        if result.is_err() {
            self.start.clear();
        }
        result
    }

    /// Discards an incomplete packet.
    fn clear(&mut self) {
        self.start.clear();
    }
}

#[cfg(test)]
mod tests;
