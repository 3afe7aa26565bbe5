//! The transports of market data over UDP: a header that names session and sequence number, then messages behind lengths.
//!
//! A [`Transport`] is one file of this crate. [`TransportKind`] names it where the choice is made at run time, and
//! [`for_transport!`](crate::for_transport) turns the name into the type: one `match`, behind which all is static.
//!
//! The trait has room for lengths of one or two bytes in either order, which may be part of the message (Cboe's PITCH, NYSE's
//! Pillar: [`LengthPrefix`]); transports without a session (the unit headers of Cboe and MITCH: the variant of [`SessionId`] holds
//! the unit and nothing else; NYSE's: it holds nothing); headers of several lengths (MEMX: [`Packet`] has the length of this one).
//!
//! A request is bytes. The caller sends them: by UDP for the transports here.
//!
//! Cost: a header is one cache line, read once.

use std::fmt;
use std::ops::Range;

use tapeworks_wire::framing::{Blocks, FramingError, LengthPrefix};
use tapeworks_wire::schema::{Decoded, Schema};
use tapeworks_wire::{Ascii, DecodeError};

use crate::protocols::{RequestProtocol, SnapshotProtocol};

/// The longest UDP payload that is sent, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1_400;

/// The purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Content {
    /// It carries messages.
    #[default]
    Messages,
    /// It carries the number of the next message.
    Heartbeat,
    /// It ends a session.
    EndOfSession,
}

/// The transport of a channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportKind {
    /// MoldUDP64.
    MoldUdp64,
    /// IEX-TP.
    IexTp,
    /// MEMX's MEMOIR UDP.
    Memoir,
    /// Cboe's sequenced unit header.
    CboeUnit,
    /// The packet header of NYSE's Pillar feeds.
    Pillar,
    /// MITCH's unit header.
    MitchUnit,
    /// CTA's block header.
    CtaBlock,
}

/// A session of a channel, as its transport names it.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionId {
    /// MoldUDP64's ten letters.
    MoldUdp64([u8; 10]),
    /// IEX-TP's numbers.
    IexTp {
        /// The message protocol.
        protocol: u16,
        /// The channel.
        channel: u32,
        /// The session.
        session: u32,
    },
    /// MEMOIR UDP's number.
    Memoir(u64),
    /// Cboe's unit. Its header names no session: there is one a day.
    CboeUnit(u8),
    /// NYSE's only one: its header names neither session nor channel.
    Pillar,
    /// MITCH's market data group, a letter or digit. Its header names no session: there is one a day.
    MitchUnit(u8),
    /// CTA's data feed indicator, a letter. Its header names neither session nor channel.
    CtaBlock(u8),
}

impl SessionId {
    /// Its transport.
    #[inline]
    #[must_use]
    pub const fn transport(&self) -> TransportKind {
        match self {
            Self::MoldUdp64(_) => TransportKind::MoldUdp64,
            Self::IexTp { .. } => TransportKind::IexTp,
            Self::Memoir(_) => TransportKind::Memoir,
            Self::CboeUnit(_) => TransportKind::CboeUnit,
            Self::Pillar => TransportKind::Pillar,
            Self::MitchUnit(_) => TransportKind::MitchUnit,
            Self::CtaBlock(_) => TransportKind::CtaBlock,
        }
    }

    /// Its name in a SoupBinTCP login: MoldUDP64's letters; a number as ten digits, of MEMX its low 32 bits, which are the
    /// time of the start.
    #[must_use]
    pub fn login_name(&self) -> Ascii<10> {
        match self {
            Self::MoldUdp64(name) => Ascii(*name),
            Self::IexTp { session, .. } => digits(*session),
            Self::Memoir(session) => digits(*session as u32),
            Self::CboeUnit(unit) | Self::MitchUnit(unit) => digits(u32::from(*unit)),
            Self::Pillar | Self::CtaBlock(_) => digits(0),
        }
    }

    /// Whether `other` is a session of the same channel, as far as the header says.
    #[must_use]
    pub const fn is_of_channel_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MoldUdp64(_), Self::MoldUdp64(_))
            | (Self::Memoir(_), Self::Memoir(_))
            | (Self::Pillar, Self::Pillar) => true,
            (
                Self::IexTp { protocol, channel, .. },
                Self::IexTp { protocol: other_protocol, channel: other_channel, .. },
            ) => *protocol == *other_protocol && *channel == *other_channel,
            (Self::CboeUnit(unit), Self::CboeUnit(other))
            | (Self::MitchUnit(unit), Self::MitchUnit(other))
            | (Self::CtaBlock(unit), Self::CtaBlock(other)) => *unit == *other,
            _ => false,
        }
    }

    /// Describes the channel that carries it. `port` identifies the channel where the header does not
    /// ([`Transport::NAMES_CHANNEL`]).
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn describe(&self, f: &mut fmt::Formatter<'_>, port: u16) -> fmt::Result {
        match self {
            Self::MoldUdp64(_) => write!(f, "MoldUDP64 session {self} port {port}"),
            Self::IexTp { channel, .. } => write!(f, "IEX-TP channel {channel} session {self}"),
            Self::Memoir(_) => write!(f, "MEMOIR session {self} port {port}"),
            Self::CboeUnit(_) => write!(f, "Cboe unit {self} port {port}"),
            Self::Pillar => write!(f, "NYSE channel port {port}"),
            Self::MitchUnit(_) => write!(f, "MITCH group {self} port {port}"),
            Self::CtaBlock(_) => write!(f, "CTA feed {self} port {port}"),
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MoldUdp64(session) => write!(f, "{}", Ascii(*session)),
            Self::IexTp { session, .. } => write!(f, "{session}"),
            Self::Memoir(session) => write!(f, "{session:016x}"),
            Self::CboeUnit(unit) => write!(f, "{unit}"),
            Self::Pillar => f.write_str("day"),
            Self::MitchUnit(letter) | Self::CtaBlock(letter) => write!(f, "{}", letter.escape_ascii()),
        }
    }
}

/// A number as ten digits.
#[must_use]
pub fn digits(mut number: u32) -> Ascii<10> {
    let mut text = [b'0'; 10];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    Ascii(text)
}

/// The fields of a transport's header.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The session.
    pub session: SessionId,
    /// The number of the first message; of a heartbeat, of the next to come.
    pub first: u64,
    /// Messages.
    pub count: u64,
    /// The session ends here.
    pub is_end_of_session: bool,
}

/// A datagram: its header read, its messages still to be walked.
#[derive(Clone, Debug)]
pub struct Packet<'a, Prefix> {
    /// The fields of the header.
    pub header: Header,
    /// Bytes of the header.
    pub header_bytes: usize,
    /// The messages.
    pub blocks: Blocks<'a, Prefix>,
}

/// A request for messages that are missing.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Their session.
    pub session: SessionId,
    /// The first.
    pub first: u64,
    /// How many, at most 65,534.
    pub count: u16,
}

/// A header to write.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The session.
    pub session: SessionId,
    /// Of the first message; without messages, of the next one.
    pub sequence: u64,
    /// Messages in the packet.
    pub messages: u16,
    /// The purpose of the packet.
    pub content: Content,
    /// Bytes of messages sent in this session before this packet, with their lengths.
    pub stream_offset: u64,
    /// Bytes behind the header.
    pub payload_bytes: usize,
    /// When it is sent, in nanoseconds since 1970-01-01 00:00 UTC.
    pub send_time_ns: u64,
}

/// A transport of datagrams. See the [module](self).
pub trait Transport {
    /// The lengths before the messages.
    type Prefix: LengthPrefix;

    /// Its name at run time.
    const KIND: TransportKind;
    /// Its declaration.
    const SCHEMA: &'static Schema;
    /// Bytes of the header of a packet with messages.
    const HEADER_BYTES: usize;
    /// The header names the channel. Otherwise the port does.
    const NAMES_CHANNEL: bool;
    /// How missing messages are requested over TCP. `None` if the venue has no request server.
    const REQUESTS: Option<RequestProtocol> = None;
    /// How snapshots are requested that arrive over the connection.
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Glimpse;
    /// How snapshots are requested that arrive on a group. `None` if the venue has none.
    const GROUP_SNAPSHOTS: Option<SnapshotProtocol> = None;
    /// A packet marks the end of a session.
    const MARKS_END: bool;

    /// The length prefix, as a value.
    fn prefix() -> Self::Prefix;

    /// Reads the header of a datagram.
    ///
    /// # Errors
    /// A payload shorter than the header.
    fn packet(payload: &[u8]) -> Result<Packet<'_, Self::Prefix>, DecodeError>;

    /// Bytes that the header says the datagram has. `None`: it does not say.
    fn length(_payload: &[u8]) -> Option<usize> {
        None
    }

    /// Whether a datagram may have these bytes behind its last message.
    #[must_use]
    fn is_end(behind_messages: &[u8]) -> bool {
        behind_messages.is_empty()
    }

    /// Whether the messages of a datagram are what its header says, to the last byte. A datagram without messages is its header.
    #[must_use]
    fn is_sound(payload: &[u8]) -> bool {
        let Ok(Packet { header, header_bytes, mut blocks }) = Self::packet(payload) else { return false };
        let read = blocks.by_ref().take_while(Result::is_ok).count() as u64;
        read == header.count
            && payload.get(header_bytes + blocks.offset()..).is_some_and(Self::is_end)
            && Self::length(payload).is_none_or(|length| length == payload.len())
    }

    /// The number of messages in a datagram that ends behind a whole one while its count promises more, and the error behind them. If the datagram is not cut, its
    /// count or its length is damaged, or the sender has left messages out.
    #[must_use]
    fn overcounted(payload: &[u8]) -> Option<(u64, FramingError)> {
        let mut blocks = Self::packet(payload).ok()?.blocks;
        let mut read = 0;
        loop {
            match blocks.next()? {
                Ok(_) => read += 1,
                Err(error) => return Self::is_end(blocks.trailing()).then_some((read, error)),
            }
        }
    }

    /// Builds a session ID from a number, truncated to fit.
    #[must_use]
    fn session(number: u32) -> SessionId;

    /// The fields of a datagram's header, for tools that show them.
    fn fields(payload: &[u8]) -> Decoded<'_>;

    /// Writes a header to the start of `target`, which has room for [`Transport::HEADER_BYTES`]. Returns its length. A
    /// session of another transport writes nothing.
    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize;

    /// When the venue sent the datagram, in nanoseconds since 1970-01-01 00:00 UTC. `None` where the header has no such time,
    /// and for an answer to a request, whose time is the answer's.
    #[must_use]
    fn sent_ns(_payload: &[u8]) -> Option<u64> {
        None
    }

    /// Whether the datagram answers a request, as far as its header says.
    #[must_use]
    fn is_answer(_payload: &[u8]) -> bool {
        false
    }

    /// Whether the header says that the sender starts its numbers over with this datagram.
    #[must_use]
    fn restarts(_payload: &[u8]) -> bool {
        false
    }

    /// The numbers of the messages that the server does not have any more, if the datagram is an answer that says so.
    fn unavailable(_payload: &[u8]) -> Option<Range<u64>> {
        None
    }

    /// Marks a packet as an answer to a request, where the header distinguishes one; `is_only`: no other packet answers the same request.
    fn mark_answer(_packet: &mut [u8], _is_only: bool) {}

    /// The answer that a server does not have these messages any more; `None`: the transport has no such answer.
    fn write_unavailable(_numbers: Range<u64>, _now_ns: u64) -> Option<Vec<u8>> {
        None
    }

    /// The bytes of a request to the venue's retransmission server.
    fn request(request: &Request) -> Vec<u8>;

    /// The request that the bytes are.
    fn read_request(bytes: &[u8]) -> Option<Request>;
}
