//! Requests for missed messages over TCP: Cboe's Gap Request Proxy and NYSE's request server.
//!
//! A client requests messages over a connection and gets a response with a status over it. The messages themselves come as datagrams, at
//! an address of the server's own, which neither end here sees.
//!
//! | | Cboe GRP | NYSE request server |
//! | --- | --- | --- |
//! | packets | sequenced units of unit 0 and number 0 | Pillar packets |
//! | login | user and password | none; each request names its source |
//! | heartbeats | both sides, after a second without another packet | of the server, each minute; the client answers within five seconds |
//! | silence | five seconds | two heartbeats of the server and the time for one answer |
//! | messages of a request | 100 | 1,000 |
//! | requests | 320 a second, 1,500 a minute, 100,000 a day | 5,000 a day |
//!
//! Layouts and statuses of Cboe's messages agree with two other implementations. Times and limits are those of public documents as others quote
//! them; none of this is verified on real packets. Two bounds of NYSE's are ours: 100 requests a second, and the silence after which a server is gone.
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
use tapeworks_wire::nyse::integrated;
use tapeworks_wire::nyse::packet::{
    DeliveryFlag, HEADER_BYTES as PILLAR_HEADER_BYTES, PillarPacket, PillarPacketFields,
};
use tapeworks_wire::{Nanoseconds, SecondsSinceEpoch};

use crate::transport::TransportKind;

pub use client::{Requester, RequesterCounters, RequesterEnd};
pub use server::{RequestServer, RequestServerEnd, ServerLimits};

const SECOND_NS: u64 = 1_000_000_000;

/// The longest packet that either side may send, in bytes with its header. One of a client has 40, one of a server 45.
const LONGEST_PACKET_BYTES: usize = 512;

/// Bytes of Cboe's header.
pub(crate) const UNIT_HEADER_BYTES: usize = 8;

/// A heartbeat of Cboe: a header without messages.
pub(crate) const UNIT_HEARTBEAT: [u8; UNIT_HEADER_BYTES] = [8, 0, 0, 0, 0, 0, 0, 0];

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestProtocol {
    /// Cboe's Gap Request Proxy.
    Grp,
    /// NYSE's request server.
    Pillar,
}

impl RequestProtocol {
    /// That of a channel's transport; `None`: its venue takes no requests over TCP.
    #[must_use]
    pub const fn of(transport: TransportKind) -> Option<Self> {
        match transport {
            TransportKind::CboeUnit => Some(Self::Grp),
            TransportKind::Pillar => Some(Self::Pillar),
            TransportKind::MoldUdp64
            | TransportKind::IexTp
            | TransportKind::Memoir
            | TransportKind::MitchUnit
            | TransportKind::CtaBlock => None,
        }
    }

    /// The transport of the channels whose messages are requested so.
    #[must_use]
    pub const fn transport(self) -> TransportKind {
        match self {
            Self::Grp => TransportKind::CboeUnit,
            Self::Pillar => TransportKind::Pillar,
        }
    }

    /// The most messages of one request.
    #[must_use]
    pub const fn most_messages(self) -> u16 {
        match self {
            Self::Grp => 100,
            Self::Pillar => 1_000,
        }
    }

    /// The most requests in any second.
    const fn per_second(self) -> u32 {
        match self {
            Self::Grp => 320,
            Self::Pillar => 100,
        }
    }

    /// After so long without another packet the server sends a heartbeat, in ns.
    const fn server_heartbeat_ns(self) -> u64 {
        match self {
            Self::Grp => SECOND_NS,
            Self::Pillar => 60 * SECOND_NS,
        }
    }

    /// A server that sends nothing for so long is gone, in ns.
    const fn silence_ns(self) -> u64 {
        match self {
            Self::Grp => 5 * SECOND_NS,
            Self::Pillar => 125 * SECOND_NS,
        }
    }

    /// Bytes of a packet's header, which begins with the packet's length.
    const fn header_bytes(self) -> usize {
        match self {
            Self::Grp => UNIT_HEADER_BYTES,
            Self::Pillar => PILLAR_HEADER_BYTES,
        }
    }

    /// Hands each message of a whole packet on. `false`: its messages are not what its header says, and none is handed on.
    pub(crate) fn each_message(self, packet: &[u8], each: impl FnMut(&[u8])) -> bool {
        let Some(count) = self.count(packet) else { return false };
        let behind_header = packet.len().saturating_sub(self.header_bytes());
        match self {
            Self::Grp => SequencedUnit::decode(packet)
                .is_ok_and(|unit| each_of(unit.blocks(), count, behind_header, each)),
            Self::Pillar => PillarPacket::decode(packet)
                .is_ok_and(|pillar| each_of(pillar.blocks(), count, behind_header, each)),
        }
    }

    /// Messages that a packet's header says it has.
    pub(crate) fn count(self, packet: &[u8]) -> Option<usize> {
        let at = match self {
            Self::Grp => 2,
            Self::Pillar => 3,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// How it requests.
    #[must_use]
    pub const fn protocol(&self) -> RequestProtocol {
        match self {
            Self::Grp { .. } => RequestProtocol::Grp,
            Self::Pillar { .. } => RequestProtocol::Pillar,
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
            let Some(length) = rest.first_chunk::<2>() else { break Ok(()) };
            let length = usize::from(u16::from_le_bytes(*length));
            if length < protocol.header_bytes() || length > LONGEST_PACKET_BYTES {
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
