//! The transports of market data over UDP: a header that names session and sequence number, then length-prefixed messages.
//!
//! Each [`Transport`] is implemented in its venue's folder. [`TransportKind`] names a transport chosen at run time,
//! and [`for_transport!`](crate::for_transport) maps the name to the type: one `match`, after which everything is static.
//!
//! The trait supports length prefixes of one or two bytes in either byte order, which may be part of the message
//! (Cboe's PITCH, NYSE's Pillar: [`LengthPrefix`]). It supports transports without sessions: the variant of
//! [`SessionId`] then holds only the unit (Cboe, MITCH) or nothing (NYSE). Headers may vary in length (MEMX):
//! [`Packet`] has the actual length.
//!
//! A request is bytes, which the caller sends: by UDP for the transports here.
//!
//! Cost: a header is one cache line, read once.

use std::fmt;
use std::ops::Range;

use tapeworks_wire::framing::{Blocks, FramingError, LengthPrefix};
use tapeworks_wire::schema::{Decoded, Schema, Structure};
use tapeworks_wire::{Ascii, DecodeError};

use crate::protocols::{RequestProtocol, SnapshotProtocol};

/// The longest UDP payload sent, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1_400;

/// The purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Content {
    /// It carries messages.
    #[default]
    Messages,
    /// It has the number of the next message, but no messages.
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

/// A channel's session, as identified by its transport.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionId {
    /// MoldUDP64's ten-character name.
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
    /// MEMOIR UDP's session number.
    Memoir(u64),
    /// Cboe's unit. Its header names no session: there is one per day.
    CboeUnit(u8),
    /// NYSE's only session: its header names neither session nor channel.
    Pillar,
    /// MITCH's market data group, a letter or digit. Its header names no session: there is one per day.
    MitchUnit(u8),
    /// CTA's data feed indicator, a letter. Its header names neither session nor channel.
    CtaBlock(u8),
}

impl SessionId {
    /// Returns its transport.
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

    /// Returns its name in a SoupBinTCP login: MoldUDP64's name, or a number as ten digits.
    ///
    /// MEMX's number is the low 32 bits of its session, which are the start time.
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

    /// Returns whether `other` is a session of the same channel, as far as the header identifies the channel.
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

    /// Writes a description of the channel that carries it.
    ///
    /// `port` identifies the channel if the header does not ([`Transport::NAMES_CHANNEL`]).
    ///
    /// # Errors
    /// The formatter failed.
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

/// Formats a number as ten digits.
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
    /// Sequence number of the first message; in a heartbeat, of the next message.
    pub first: u64,
    /// Number of messages.
    pub count: u64,
    /// The session ends here.
    pub is_end_of_session: bool,
}

impl Header {
    /// Returns the number after the last message; in a heartbeat, the number of the next message.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Returns the numbers of the messages.
    #[inline]
    #[must_use]
    pub const fn numbers(&self) -> Range<u64> {
        self.first..self.end()
    }
}

/// A datagram with a decoded header. Its messages have not been read yet.
#[derive(Clone, Debug)]
pub struct Packet<'a, Prefix> {
    /// The fields of the header.
    pub header: Header,
    /// Length of the header in bytes.
    pub header_bytes: usize,
    /// The messages.
    pub blocks: Blocks<'a, Prefix>,
}

/// A request for missing messages.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The session of the messages.
    pub session: SessionId,
    /// Sequence number of the first message.
    pub first: u64,
    /// Number of messages, at most 65,534.
    pub count: u16,
}

/// A header to write.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The session.
    pub session: SessionId,
    /// Sequence number of the first message; without messages, of the next one.
    pub sequence: u64,
    /// Number of messages in the packet.
    pub messages: u16,
    /// The purpose of the packet.
    pub content: Content,
    /// Bytes of messages, including their lengths, sent in this session before this packet.
    pub stream_offset: u64,
    /// Bytes after the header.
    pub payload_bytes: usize,
    /// Send time, in nanoseconds since 1970-01-01 00:00 UTC.
    pub send_time_ns: u64,
}

impl Outgoing {
    /// Returns the header of a packet of messages without a send time.
    pub(crate) const fn of(session: SessionId, sequence: u64, messages: u16, payload_bytes: usize) -> Self {
        let (content, stream_offset, send_time_ns) = (Content::Messages, 0, 0);
        Self { session, sequence, messages, content, stream_offset, payload_bytes, send_time_ns }
    }
}

/// A datagram transport. See the [module](self).
pub trait Transport {
    /// The length prefix of a message.
    type Prefix: LengthPrefix;

    /// The transport's name at run time.
    const KIND: TransportKind;
    /// The transport's declaration.
    const SCHEMA: &'static Schema;
    /// The declaration of the header of a packet with messages.
    const HEADER: &'static Structure;
    /// Length of the header of a packet with messages, in bytes.
    const HEADER_BYTES: usize;
    /// Whether the header names the channel. Otherwise the port does.
    const NAMES_CHANNEL: bool = false;
    /// The protocol for requesting missing messages over TCP. `None` if the venue has no request server.
    const REQUESTS: Option<RequestProtocol> = None;
    /// The protocol of snapshots that arrive over the connection.
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Glimpse;
    /// The protocol of snapshots that arrive on a group. `None` if the venue has none.
    const GROUP_SNAPSHOTS: Option<SnapshotProtocol> = None;
    /// Whether a packet marks the end of a session.
    const MARKS_END: bool = false;

    /// Returns the length prefix as a value.
    fn prefix() -> Self::Prefix;

    /// Decodes the header of a datagram.
    ///
    /// # Errors
    /// The payload is shorter than the header, or is not a packet of the channel.
    fn packet(payload: &[u8]) -> Result<Packet<'_, Self::Prefix>, DecodeError>;

    /// Returns the datagram's length according to its header; `None` if the header has no length.
    fn length(_payload: &[u8]) -> Option<usize> {
        None
    }

    /// Returns whether a datagram may have these bytes after its last message.
    #[must_use]
    fn is_end(behind_messages: &[u8]) -> bool {
        behind_messages.is_empty()
    }

    /// Returns whether a datagram's messages match its header, to the last byte. Without messages, it consists of its header.
    #[must_use]
    fn is_sound(payload: &[u8]) -> bool {
        let Ok(Packet { header, header_bytes, mut blocks }) = Self::packet(payload) else { return false };
        let read = blocks.by_ref().take_while(Result::is_ok).count() as u64;
        read == header.count
            && payload.get(header_bytes + blocks.offset()..).is_some_and(Self::is_end)
            && Self::length(payload).is_none_or(|length| length == payload.len())
    }

    /// Detects a datagram that ends after a complete message although its header counts more.
    ///
    /// Returns the number of messages it has, and the error after them. Unless the datagram was truncated, its count or
    /// length is damaged, or the sender left messages out.
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

    /// Decodes the fields of a datagram's header, for tools that display them.
    #[must_use]
    fn fields(payload: &[u8]) -> Decoded<'_> {
        Self::HEADER.decode(payload)
    }

    /// Writes a header to the start of `target`, which has room for [`Transport::HEADER_BYTES`], and returns its length.
    ///
    /// Writes nothing for a session of another transport.
    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize;

    /// Returns when the venue sent the datagram, in nanoseconds since 1970-01-01 00:00 UTC.
    ///
    /// `None` if the header has no send time. Also `None` for an answer to a request, which would have the answer's time.
    #[must_use]
    fn sent_ns(_payload: &[u8]) -> Option<u64> {
        None
    }

    /// Returns whether the datagram's header marks it as an answer to a request.
    #[must_use]
    fn is_answer(_payload: &[u8]) -> bool {
        false
    }

    /// Returns whether the header says that the sender restarts its sequence numbers with this datagram.
    #[must_use]
    fn restarts(_payload: &[u8]) -> bool {
        false
    }

    /// Returns the numbers of messages that the server no longer has, if the datagram is an answer that says so.
    fn unavailable(_payload: &[u8]) -> Option<Range<u64>> {
        None
    }

    /// Marks a packet as an answer to a request, if the header can.
    ///
    /// `is_only` means that no other packet answers the same request.
    fn mark_answer(_packet: &mut [u8], _is_only: bool) {}

    /// Builds the answer that a server no longer has these messages; `None` if the transport has no such answer.
    fn write_unavailable(_numbers: Range<u64>, _now_ns: u64) -> Option<Vec<u8>> {
        None
    }

    /// Encodes a request to the venue's retransmission server: a header that counts the messages but has none.
    ///
    /// Empty for a session of another transport.
    fn request(request: &Request) -> Vec<u8> {
        let header = Outgoing::of(request.session, request.first, request.count, 0);
        let mut bytes = vec![0; Self::HEADER_BYTES];
        let length = Self::write_header(&header, &mut bytes);
        bytes.truncate(length);
        bytes
    }

    /// Decodes a request; `None` if the bytes are not one.
    #[must_use]
    fn read_request(bytes: &[u8]) -> Option<Request> {
        let Header { session, first, count, .. } = Self::packet(bytes).ok()?.header;
        let is_header = bytes.len() == Self::HEADER_BYTES && Self::length(bytes) == Some(bytes.len());
        is_header.then_some(Request { session, first, count: u16::try_from(count).ok()? })
    }
}
