//! Requests for missed messages over TCP: Cboe's Gap Request Proxy, NYSE's request server, MITCH's replay channel and MEMX's gap fill.
//!
//! A client requests messages over a connection and gets a response with a status over it. Of Cboe and NYSE the messages themselves come as datagrams, at
//! an address of the server's own, which neither end here sees. Of MITCH and MEMX they come over the connection.
//!
//! | | Cboe GRP | NYSE request server | MITCH replay channel | MEMX gap fill |
//! | --- | --- | --- | --- | --- |
//! | packets | sequenced units of unit 0 and number 0 | Pillar packets | units without a group and of number 0 | messages behind type and length |
//! | login | user and password | none; each request names its source | user and password | a token of user and password |
//! | heartbeats | both sides, after a second without another packet | of the server, each minute; the client answers within five seconds | as Cboe | as Cboe |
//! | silence | five seconds | two heartbeats of the server and the time for one answer | five seconds | five seconds |
//! | messages of a request | 100 | 1,000 | 1,000 | 1,000 |
//! | requests | 320 a second, 1,500 a minute, 100,000 a day | 5,000 a day | 100 a second | 100 a second |
//! | the messages | to a group | to a group | units with their own numbers | between the begin and the end of the replay |
//!
//! Layouts and statuses of Cboe's and MITCH's messages agree with two other implementations, those of MEMX's with the public definitions of its order entry.
//! Times and limits are those of public documents as others quote them; none of this is verified on real packets. Of NYSE 100 requests a second and the silence
//! after which a server is gone are bounds of ours; of MITCH and MEMX all limits and times are.
//!
//! [`Requester`] is the client's end of one channel, [`RequestServer`] the server's end of one connection. Bytes and times go in, bytes come out.
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
use tapeworks_wire::nyse::packet::{
    DeliveryFlag, HEADER_BYTES as PILLAR_HEADER_BYTES, PillarPacket, PillarPacketFields,
};
use tapeworks_wire::{Nanoseconds, SecondsSinceEpoch};

pub use crate::protocols::RequestProtocol;

pub(crate) use client::token_login;
pub use client::{Requester, RequesterCounters, RequesterEnd};
pub use server::{RequestServer, RequestServerEnd, ServerLimits};
pub(crate) use server::{
    accepted_by_memx, append_sequenced, begin_by_memx, complete_by_memx, rejected_by_memx,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Bytes of Cboe's header.
pub(crate) const UNIT_HEADER_BYTES: usize = 8;

/// A heartbeat of Cboe: a header without messages.
pub(crate) const UNIT_HEARTBEAT: [u8; UNIT_HEADER_BYTES] = [8, 0, 0, 0, 0, 0, 0, 0];

impl RequestProtocol {
    /// Whether the messages come to a group. Otherwise they come over the connection.
    #[must_use]
    pub const fn answers_to_group(self) -> bool {
        matches!(self, Self::Grp | Self::Pillar)
    }

    /// Whether the client logs in, and sends heartbeats.
    const fn has_login(self) -> bool {
        !matches!(self, Self::Pillar)
    }

    /// What goes out after a second without another packet, of a protocol in which both sides send heartbeats.
    pub(crate) const fn heartbeat(self) -> &'static [u8] {
        match self {
            Self::Grp | Self::Mitch => &UNIT_HEARTBEAT,
            Self::Memx => &[0; HEADER_BYTES],
            Self::Pillar => &[],
        }
    }

    /// The most messages of one request.
    #[must_use]
    pub const fn most_messages(self) -> u16 {
        match self {
            Self::Grp => 100,
            Self::Pillar | Self::Mitch | Self::Memx => 1_000,
        }
    }

    /// The most requests in any second.
    #[must_use]
    pub const fn per_second(self) -> u32 {
        match self {
            Self::Grp => 320,
            Self::Pillar | Self::Mitch | Self::Memx => 100,
        }
    }

    /// After so long without another packet the server sends a heartbeat, in ns.
    const fn server_heartbeat_ns(self) -> u64 {
        match self {
            Self::Grp | Self::Mitch | Self::Memx => SECOND_NS,
            Self::Pillar => 60 * SECOND_NS,
        }
    }

    /// A server that sends nothing for so long is gone, in ns.
    const fn silence_ns(self) -> u64 {
        match self {
            Self::Grp | Self::Mitch | Self::Memx => 5 * SECOND_NS,
            Self::Pillar => 125 * SECOND_NS,
        }
    }

    /// Bytes of a packet's header.
    const fn header_bytes(self) -> usize {
        match self {
            Self::Grp | Self::Mitch => UNIT_HEADER_BYTES,
            Self::Pillar => PILLAR_HEADER_BYTES,
            Self::Memx => HEADER_BYTES,
        }
    }

    /// The longest packet that either side may send, in bytes with its header.
    const fn longest_bytes(self) -> usize {
        match self {
            // One of a client has 40, one of a server 45.
            Self::Grp | Self::Pillar => 512,
            // With the messages that were requested.
            Self::Mitch | Self::Memx => 2_048,
        }
    }

    /// Bytes of the packet that these begin with; `None`: its length is not there yet.
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

    /// Hands each message of a whole packet on. `false`: its messages are not what its header says, and none is handed on.
    pub(crate) fn each_message(self, packet: &[u8], mut each: impl FnMut(&[u8])) -> bool {
        if self == Self::Memx {
            each(packet);
            return true;
        }
        let Some(count) = self.count(packet) else { return false };
        let behind_header = packet.len().saturating_sub(self.header_bytes());
        match self {
            // A unit of MITCH has the layout of Cboe's.
            Self::Grp | Self::Mitch | Self::Memx => SequencedUnit::decode(packet)
                .is_ok_and(|unit| each_of(unit.blocks(), count, behind_header, each)),
            Self::Pillar => PillarPacket::decode(packet)
                .is_ok_and(|pillar| each_of(pillar.blocks(), count, behind_header, each)),
        }
    }

    /// Messages that a packet's header says it has.
    pub(crate) fn count(self, packet: &[u8]) -> Option<usize> {
        let at = match self {
            Self::Grp | Self::Mitch => 2,
            Self::Pillar => 3,
            Self::Memx => return Some(1),
        };
        packet.get(at).map(|count| usize::from(*count))
    }
}

/// Hands each of `count` messages on that fill `bytes`. `false`: they do not.
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

/// Who requests, and so how.
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
    /// A client of NYSE's request server, and the channel.
    Pillar {
        /// The source id, filled with NUL.
        source: Ascii<10>,
        /// The number of the product.
        product: u8,
        /// The number of the channel.
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
    /// Without the password.
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
    /// A user of Cboe's Gap Request Proxy: `None` if the sub-id or the name has more than 4 characters, or the password more than 10, or
    /// other than printable ASCII.
    #[must_use]
    pub fn grp(sub_id: &str, user: &str, password: &str) -> Option<Self> {
        let (sub_id, user) = (Ascii::new(sub_id)?, Ascii::new(user)?);
        Some(Self::Grp { sub_id, user, password: Ascii::new(password)? })
    }

    /// A client of NYSE's request server: `None` if the source id has more than 10 characters, or other than printable ASCII.
    #[must_use]
    pub fn pillar(source: &str, product: u8, channel: u8) -> Option<Self> {
        Ascii::<10>::new(source)?;
        let mut bytes = [0; 10];
        bytes.iter_mut().zip(source.bytes()).for_each(|(to, from)| *to = from);
        Some(Self::Pillar { source: Ascii(bytes), product, channel })
    }

    /// A user of MITCH's replay channel: `None` if the name has more than 6 characters, or the password more than 10, or other than printable ASCII.
    #[must_use]
    pub fn mitch(user: &str, password: &str) -> Option<Self> {
        Some(Self::Mitch { user: Ascii::new(user)?, password: Ascii::new(password)? })
    }

    /// A user of MEMX's gap fill: `None` if the name has more than 16 characters, or the password more than 32, or other than printable ASCII.
    #[must_use]
    pub fn memx(user: &str, password: &str) -> Option<Self> {
        Some(Self::Memx { user: Ascii::new(user)?, password: Ascii::new(password)? })
    }

    /// How it requests.
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

/// What a server says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RequestStatus {
    /// The messages come.
    Accepted,
    /// They are ahead of what was sent, or too old.
    OutOfRange,
    /// There are more than one request may name.
    TooLong,
    /// The client has used up the requests of this second.
    SecondQuota,
    /// The client has used up the requests of this minute.
    MinuteQuota,
    /// The client has used up the requests of this day.
    DayQuota,
    /// The channel (Cboe: the unit) is not one of this server's.
    InvalidChannel,
    /// The product is not one of this server's.
    InvalidProduct,
    /// The source is unknown.
    InvalidSource,
    /// The channel has no messages now.
    Unavailable,
    /// The request cannot be read.
    InvalidMessage,
    /// A status that the document does not list.
    Unknown,
}

impl RequestStatus {
    /// Each of them, in order.
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

    /// As metrics name it.
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

    /// The nearest that Cboe's proxy has.
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

    /// The nearest that MITCH's replay channel has.
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

    /// The nearest that MEMX has to refuse a request.
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

    /// The nearest that NYSE's server has.
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

/// The day's time at a time of a clock that is not set: packets of NYSE say when they were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayTime {
    utc_ns: u64,
    now_ns: u64,
}

impl DayTime {
    /// It was `utc_ns` since 1970-01-01 00:00 UTC when the clock that is not set showed `now_ns`.
    #[must_use]
    pub const fn new(utc_ns: u64, now_ns: u64) -> Self {
        Self { utc_ns, now_ns }
    }

    /// The day's time when the clock shows `now_ns`, in nanoseconds since 1970-01-01 00:00 UTC.
    #[must_use]
    pub const fn at(self, now_ns: u64) -> u64 {
        self.utc_ns.saturating_add(now_ns).saturating_sub(self.now_ns)
    }
}

/// A block of Cboe's with one message.
pub(crate) fn unit_of(message: &[u8]) -> Vec<u8> {
    let mut block = UNIT_HEARTBEAT.to_vec();
    // A message has 22 bytes at most.
    let length = (UNIT_HEADER_BYTES + message.len()) as u16;
    block.splice(0..2, length.to_le_bytes());
    if let Some(count) = block.get_mut(2) {
        *count = 1;
    }
    block.extend_from_slice(message);
    block
}

/// A packet of NYSE's with one message, or none: a heartbeat. It is sent at `utc_ns`.
pub(crate) fn pillar_of(message: &[u8], number: u32, utc_ns: u64) -> Vec<u8> {
    let fields = PillarPacketFields {
        // A message has 29 bytes at most.
        length: (PILLAR_HEADER_BYTES + message.len()) as u16,
        delivery_flag: if message.is_empty() { DeliveryFlag::Heartbeat } else { DeliveryFlag::Original },
        count: u8::from(!message.is_empty()),
        sequence: number,
        send_time: SecondsSinceEpoch((utc_ns / SECOND_NS) as u32),
        send_time_nanoseconds: Nanoseconds(utc_ns % SECOND_NS),
        messages: message,
    };
    let mut packet = vec![0; PILLAR_HEADER_BYTES + message.len()];
    let written = fields.encode_into(&mut packet);
    debug_assert!(written.is_ok(), "the packet has its room: {written:?}");
    packet
}

/// A side sent what no packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// The packets of one side. Keeps the start of an incomplete packet, at most as long as the longest.
#[derive(Debug, Clone, Default)]
pub(crate) struct PacketReader {
    start: Vec<u8>,
}

impl PacketReader {
    /// Takes bytes that are cut anywhere, and hands each whole packet to `each`, until that answers `false`.
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

    /// Forgets what is incomplete.
    fn clear(&mut self) {
        self.start.clear();
    }
}

#[cfg(test)]
mod tests;
