//! Network headers: from a captured packet to the UDP or TCP payload in it, without copying.
//!
//! [`parse`] reads Ethernet II (with IEEE 802.1Q and 802.1ad tags), Linux cooked captures, BSD loopback, raw IP, PPI and ERF;
//! IPv4 (RFC 791) and IPv6 (RFC 8200) with options and extension headers; UDP (RFC 768) and TCP (RFC 9293). It also
//! removes what switches and taps put around a packet: MPLS, GRE, ERSPAN I to III, VXLAN, IP in IP, FabricPath, and
//! Arista's timestamp header. [`Receiver`] also reassembles IP fragments and verifies UDP checksums.
//!
//! Cost: an exchange multicast packet (Ethernet with or without a VLAN tag, IPv4 without options, UDP) takes a fast path over
//! its 42 or 46 bytes of headers, one or two cache lines. All other packets take the general path. [`parse`] does not verify
//! checksums.

pub mod build;
mod checksums;
mod fragments;
mod headers;
pub mod layout;
mod receiver;
pub mod rewrite;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use crate::link_type::LinkType;

pub use checksums::{Checksums, MAX_EARLY, MAX_SCORE, MISFIT_COST, TRUSTED_SCORE};
pub use fragments::{Defragmenter, MAX_AGE_NS, MAX_PENDING, Origin};
pub use receiver::Receiver;

/// The payload of a UDP datagram or TCP segment, with its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver; for market data usually a multicast group.
    pub destination: SocketAddr,
    /// VLAN identifier (12 bits) of the innermost tag, if any.
    pub vlan: Option<u16>,
    /// UDP, or TCP with its header fields.
    pub transport: Transport,
    /// The payload, without any Ethernet padding or trailer.
    pub payload: &'a [u8],
    /// Offset of the payload in the packet's bytes; for a [reassembled](Defragmenter) datagram, in its first fragment.
    pub payload_offset: usize,
    /// The headers announce more payload than is present: the capture truncated the packet, or it is the first fragment of a larger
    /// datagram. The captured part is usable.
    pub truncated: bool,
}

impl Datagram<'_> {
    /// Returns a packet's bytes from the datagram's UDP header on, as [`Checksums::check`] needs them; for TCP, arbitrary bytes.
    #[inline]
    #[must_use]
    pub fn from_udp_header<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet.get(self.payload_offset.saturating_sub(checksums::UDP_HEADER_BYTES)..).unwrap_or_default()
    }
}

/// The transport header, as far as consumers of the payload need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp(TcpHeader),
}

/// The fields of a segment's TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpHeader {
    /// Sequence number of the first payload byte (of the SYN itself, if that flag is set).
    pub sequence: u32,
    /// The next sequence number that the sender expects, if the ACK flag is set.
    pub acknowledgment: u32,
    /// The flags.
    pub flags: TcpFlags,
}

/// The low eight flag bits of a TCP header (RFC 9293, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more bytes.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers: a connection begins.
    pub const SYN: Self = Self(0x02);
    /// The connection is reset.
    pub const RST: Self = Self(0x04);
    /// Deliver the bytes immediately.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number is valid.
    pub const ACK: Self = Self(0x10);

    /// Whether all flags of `other` are set.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The header at which parsing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet, Linux cooked or loopback.
    Link,
    /// A VLAN tag.
    Vlan,
    /// IPv4.
    Ipv4,
    /// IPv6 or one of its extension headers.
    Ipv6,
    /// A header around another packet: MPLS, GRE, ERSPAN, FabricPath, or a switch's timestamp.
    Tunnel,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Link => "link-layer header",
            Self::Vlan => "VLAN tag",
            Self::Ipv4 => "IPv4 header",
            Self::Ipv6 => "IPv6 header",
            Self::Tunnel => "tunnel header",
            Self::Udp => "UDP header",
            Self::Tcp => "TCP header",
        })
    }
}

/// Why a packet yields no datagram. [`HeaderError::is_malformed`] distinguishes damage from sound packets of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The packet ends inside a header.
    #[error("{layer} at byte {offset} needs {need} bytes, {got} left")]
    TooShort {
        /// Which header.
        layer: Layer,
        /// Its offset in the packet.
        offset: usize,
        /// Bytes it needs.
        need: usize,
        /// Bytes left.
        got: usize,
    },
    /// A header's length field is inconsistent.
    #[error("{layer} at byte {offset} states a length of {length}, at least {minimum} is possible")]
    BadLength {
        /// Which header.
        layer: Layer,
        /// Its offset in the packet.
        offset: usize,
        /// The length it states, in bytes.
        length: usize,
        /// The minimum, in bytes.
        minimum: usize,
    },
    /// The IP version differs from the link layer's.
    #[error("{layer} at byte {offset} states IP version {version}")]
    BadVersion {
        /// Which header was expected.
        layer: Layer,
        /// Its offset in the packet.
        offset: usize,
        /// The version found.
        version: u8,
    },
    /// An unsupported link layer.
    #[error("{0} is not supported")]
    UnsupportedLink(LinkType),
    /// A sound packet that is not IP, such as ARP; values up to 1500 are an IEEE 802.3 length.
    #[error("not IP: EtherType {ethertype:#06x}")]
    NotIp {
        /// The packet's EtherType.
        ethertype: u16,
    },
    /// A sound IP packet that is neither UDP nor TCP, such as IGMP (2) or ICMP (1).
    #[error("neither UDP nor TCP: IP protocol {protocol}")]
    NotTransport {
        /// The IP protocol number.
        protocol: u8,
    },
    /// A fragment of an IP packet. [`parse`] parses a first fragment, which has the ports, and returns this error for the others;
    /// a [`Defragmenter`] returns it for every fragment that it keeps.
    #[error("fragment of IP packet {identification} from byte {fragment_offset}")]
    Fragment {
        /// The identification that all fragments of the packet share.
        identification: u32,
        /// Offset of this fragment in the packet's payload, in bytes.
        fragment_offset: u32,
        /// Whether more fragments follow.
        more: bool,
    },
    /// A [`Defragmenter`] gave up on a packet.
    #[error(
        "IP packet {identification} from {sender} to {receiver} is incomplete: only {present} bytes of its fragments came"
    )]
    Incomplete {
        /// The packet's sender.
        sender: IpAddr,
        /// The packet's destination.
        receiver: IpAddr,
        /// The identification that all fragments of the packet share.
        identification: u32,
        /// Bytes of its payload that arrived.
        present: u32,
    },
    /// The UDP checksum does not match the datagram, although its flow's checksums generally match: a byte is damaged. Only
    /// [`Checksums`] detects this.
    #[error(
        "UDP header at byte {offset} states checksum {stated:#06x}, but the datagram has {computed:#06x}: {}",
        if *is_used { "it was used, since its flow's checksums could not be trusted yet" } else { "it is discarded" }
    )]
    Checksum {
        /// Offset of the UDP header in the packet; for a reassembled datagram, in its first fragment.
        offset: usize,
        /// The checksum in the header.
        stated: u16,
        /// The checksum computed from the captured bytes.
        computed: u16,
        /// Whether the datagram was used because its flow became trusted only later. Otherwise it is discarded.
        is_used: bool,
    },
    /// More nested headers than any network produces.
    #[error("too many headers around each other")]
    TooDeep,
}

impl HeaderError {
    /// Whether this reports an earlier packet that has already been returned: see
    /// [`CapturedDatagram`](crate::CapturedDatagram::packet).
    pub const fn is_of_earlier(&self) -> bool {
        matches!(self, Self::Incomplete { .. } | Self::Checksum { is_used: true, .. })
    }

    /// Whether the packet is damaged, truncated or incomplete, rather than a sound packet that carries no UDP or TCP payload.
    pub fn is_malformed(&self) -> bool {
        match self {
            Self::TooShort { .. }
            | Self::BadLength { .. }
            | Self::BadVersion { .. }
            | Self::Incomplete { .. }
            | Self::Checksum { .. }
            | Self::TooDeep => true,
            Self::UnsupportedLink(_)
            | Self::NotIp { .. }
            | Self::NotTransport { .. }
            | Self::Fragment { .. } => false,
        }
    }
}

/// Finds the UDP or TCP payload in a captured packet.
///
/// # Errors
/// A [`HeaderError`] with the location; offsets count from the packet's first byte.
#[inline]
pub fn parse(link_type: LinkType, bytes: &[u8]) -> Result<Datagram<'_>, HeaderError> {
    if link_type == LinkType::ETHERNET
        && let Some(datagram) = parse_usual(bytes)
    {
        return Ok(datagram);
    }
    headers::parse(link_type, bytes)
}

/// The fast path: a complete packet of Ethernet with at most one tag, IPv4 without options or fragments, and UDP. Returns
/// `None` for anything else.
#[inline]
fn parse_usual(bytes: &[u8]) -> Option<Datagram<'_>> {
    let link = bytes.first_chunk::<18>()?;
    match u16::from_be_bytes([link[12], link[13]]) {
        headers::ETHERTYPE_IPV4 => parse_ipv4_udp(bytes, 14, None),
        headers::ETHERTYPE_VLAN if u16::from_be_bytes([link[16], link[17]]) == headers::ETHERTYPE_IPV4 => {
            let vlan = u16::from_be_bytes([link[14], link[15]]) & headers::VLAN_IDENTIFIER_BITS;
            parse_ipv4_udp(bytes, 18, Some(vlan))
        }
        _ => None,
    }
}

/// Parses the 28 bytes of IPv4 and UDP headers at `at`.
#[inline(always)]
fn parse_ipv4_udp(bytes: &[u8], at: usize, vlan: Option<u16>) -> Option<Datagram<'_>> {
    let packet = bytes.get(at..)?;
    let head = packet.first_chunk::<28>()?;
    let be_u16 = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let total_length = usize::from(be_u16(2));
    let usual = head[0] == 0x45
        && head[9] == headers::PROTOCOL_UDP
        && be_u16(6) & headers::IPV4_FRAGMENT_BITS == 0
        && be_u16(22) != headers::VXLAN_PORT
        // Both lengths agree; `get` below checks that the payload is present.
        && total_length == usize::from(be_u16(24)) + 20;
    if !usual {
        return None;
    }
    let payload = packet.get(28..total_length)?;
    let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    Some(Datagram {
        source: SocketAddr::V4(SocketAddrV4::new(address(12), be_u16(20))),
        destination: SocketAddr::V4(SocketAddrV4::new(address(16), be_u16(22))),
        vlan,
        transport: Transport::Udp,
        payload,
        payload_offset: at + 28,
        truncated: false,
    })
}

/// Returns the Ethernet address of an IPv4 multicast group (RFC 1112, section 6.4).
pub fn multicast_mac(group: Ipv4Addr) -> [u8; 6] {
    let [_, second, third, fourth] = group.octets();
    [0x01, 0x00, 0x5e, second & 0x7f, third, fourth]
}

/// Returns the Ethernet address of an IPv6 multicast group (RFC 2464, section 7).
pub fn multicast_mac_v6(group: Ipv6Addr) -> [u8; 6] {
    let [.., third, fourth, fifth, sixth] = group.octets();
    [0x33, 0x33, third, fourth, fifth, sixth]
}

#[cfg(test)]
mod tests;
