//! The general path: handles every link layer, tag, tunnel, option, extension and fragment, one header after another.

mod tunnel;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Datagram, HeaderError, Layer, TcpFlags, TcpHeader, Transport};
use crate::link_type::LinkType;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q.
pub(super) const ETHERTYPE_VLAN: u16 = 0x8100;
/// IEEE 802.1ad, for the outer of two tags, and its predecessor.
const ETHERTYPES_OUTER_VLAN: [u16; 2] = [0x88a8, 0x9100];
/// Identifier bits of a tag's first 16 bits; the others are priority.
pub(super) const VLAN_IDENTIFIER_BITS: u16 = 0x0fff;

/// An IPv4 packet in an IP packet (RFC 2003).
const PROTOCOL_IPV4: u8 = 4;
pub(super) const PROTOCOL_TCP: u8 = 6;
pub(super) const PROTOCOL_UDP: u8 = 17;
pub(super) const PROTOCOL_DCCP: u8 = 33;
/// An IPv6 packet in an IP packet (RFC 4213).
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_GRE: u8 = 47;
pub(super) const PROTOCOL_ICMP_V6: u8 = 58;
pub(super) const PROTOCOL_UDP_LITE: u8 = 136;

/// The destination port of VXLAN (RFC 7348, section 5).
pub(super) const VXLAN_PORT: u16 = 4789;

/// Extension headers of IPv6 (RFC 8200, section 4) that need special handling.
pub(super) const EXTENSION_ROUTING: u8 = 43;
pub(super) const EXTENSION_FRAGMENT: u8 = 44;
pub(super) const EXTENSION_AUTHENTICATION: u8 = 51;
pub(super) const EXTENSION_DESTINATION: u8 = 60;

/// "More fragments" and the fragment offset; "do not fragment" does not matter.
pub(super) const IPV4_FRAGMENT_BITS: u16 = 0x3fff;

/// Maximum number of headers in a packet. A mirrored packet in a tunnel has about ten.
const MAX_LAYERS: u32 = 24;

/// A packet's bytes and the current position.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the header of `N` bytes at the current position, without advancing.
    fn header<const N: usize>(&self, layer: Layer) -> Result<&'a [u8; N], HeaderError> {
        self.rest().first_chunk().ok_or_else(|| self.too_short(layer, N))
    }

    fn too_short(&self, layer: Layer, need: usize) -> HeaderError {
        HeaderError::TooShort { layer, offset: self.at, need, got: self.rest().len() }
    }

    fn bad_length(&self, layer: Layer, length: usize, minimum: usize) -> HeaderError {
        HeaderError::BadLength { layer, offset: self.at, length, minimum }
    }
}

/// The fields of an IP header, and the bytes after it.
#[derive(Clone, Copy)]
pub(super) struct Network<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// Starts at the transport header and ends where the IP packet or the capture ends.
    pub(super) payload: Cursor<'a>,
    /// The capture ends before the IP packet.
    pub(super) truncated: bool,
    /// Set if the packet is a fragment.
    pub(super) part: Option<Part>,
}

/// Which part of an IP packet a fragment is.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) identification: u32,
    /// Offset of its bytes in the whole packet's payload.
    pub(super) offset: u32,
    /// Whether more fragments follow.
    pub(super) more: bool,
}

impl Part {
    /// Returns the error for a fragment that cannot be parsed alone.
    pub(super) const fn error(self) -> HeaderError {
        let Self { identification, offset, more } = self;
        HeaderError::Fragment { identification, fragment_offset: offset, more }
    }
}

/// The result of walking a packet's headers.
pub(super) enum Found<'a> {
    Datagram(Datagram<'a>),
    /// A fragment, possibly of a tunnel's outer packet, and its VLAN.
    Fragment(Network<'a>, Option<u16>),
}

pub(super) fn parse(link_type: LinkType, bytes: &[u8]) -> Result<Datagram<'_>, HeaderError> {
    let mut found = walk(link_type, bytes)?;
    // If a fragmented tunnel carries a fragmented packet, only the innermost transport header matters.
    for _ in 0..MAX_LAYERS {
        match found {
            Found::Datagram(datagram) => return Ok(datagram),
            Found::Fragment(network, vlan) => {
                if let Some(part) = network.part.filter(|part| part.offset > 0) {
                    return Err(part.error());
                }
                found = walk_payload(Network { part: None, truncated: true, ..network }, vlan)?;
            }
        }
    }
    Err(HeaderError::TooDeep)
}

/// Walks a packet's headers, through any tunnels.
pub(super) fn walk(link_type: LinkType, bytes: &[u8]) -> Result<Found<'_>, HeaderError> {
    descend(Ahead::Link(link_type), Cursor { bytes, at: 0 }, None, MAX_LAYERS)
}

/// Walks the headers after an IP header, for example those of a reassembled packet.
pub(super) fn walk_payload(mut network: Network<'_>, vlan: Option<u16>) -> Result<Found<'_>, HeaderError> {
    if network.destination.is_ipv6() {
        extensions(&mut network)?;
    }
    let cursor = network.payload;
    descend(Ahead::Payload(network), cursor, vlan, MAX_LAYERS)
}

/// The kind of header that comes next.
enum Ahead<'a> {
    Link(LinkType),
    EtherType(u16),
    Payload(Network<'a>),
}

/// Advances over headers until it reaches a transport header, at most `layers` of them.
fn descend<'a>(
    mut ahead: Ahead<'a>,
    mut cursor: Cursor<'a>,
    mut vlan: Option<u16>,
    layers: u32,
) -> Result<Found<'a>, HeaderError> {
    for left in (0..layers).rev() {
        ahead = match ahead {
            Ahead::Link(link_type) => {
                let link = link(link_type, &mut cursor)?;
                vlan = link.vlan.or(vlan);
                Ahead::EtherType(link.ethertype)
            }
            Ahead::EtherType(ETHERTYPE_IPV4) => Ahead::Payload(ipv4(cursor)?),
            Ahead::EtherType(ETHERTYPE_IPV6) => Ahead::Payload(ipv6(cursor)?),
            Ahead::EtherType(ethertype) if is_tag(ethertype) => {
                let link = tags(ethertype, &mut cursor)?;
                vlan = link.vlan.or(vlan);
                Ahead::EtherType(link.ethertype)
            }
            Ahead::EtherType(ethertype) => tunnel::after_ethertype(ethertype, &mut cursor)?,
            Ahead::Payload(network) if network.part.is_some() => return Ok(Found::Fragment(network, vlan)),
            Ahead::Payload(network) => {
                cursor = network.payload;
                match network.protocol {
                    PROTOCOL_UDP => {
                        let datagram = udp(&network, vlan)?;
                        let Some(inner) = tunnel::vxlan(&datagram, cursor) else {
                            return Ok(Found::Datagram(datagram));
                        };
                        return match descend(Ahead::Link(LinkType::ETHERNET), inner, vlan, left) {
                            // Another protocol uses this port.
                            Err(error) if error.is_malformed() => Ok(Found::Datagram(datagram)),
                            found => found,
                        };
                    }
                    PROTOCOL_TCP => return tcp(&network, vlan).map(Found::Datagram),
                    PROTOCOL_IPV4 => Ahead::EtherType(ETHERTYPE_IPV4),
                    PROTOCOL_IPV6 => Ahead::EtherType(ETHERTYPE_IPV6),
                    PROTOCOL_GRE => tunnel::gre(&mut cursor)?,
                    protocol => return Err(HeaderError::NotTransport { protocol }),
                }
            }
        };
    }
    Err(HeaderError::TooDeep)
}

/// The fields of the link layer.
pub(super) struct Link {
    /// The EtherType after its header and tags.
    pub(super) ethertype: u16,
    /// Identifier of the innermost tag.
    vlan: Option<u16>,
    /// Number of tags, of four bytes each, before the cursor.
    pub(super) tags: u8,
}

/// Advances over the link layer's header and VLAN tags.
pub(super) fn link(link_type: LinkType, cursor: &mut Cursor<'_>) -> Result<Link, HeaderError> {
    let ethertype = match link_type {
        LinkType::ETHERNET => {
            let header = cursor.header::<14>(Layer::Link)?;
            cursor.at += 14;
            u16::from_be_bytes([header[12], header[13]])
        }
        LinkType::LINUX_SLL => {
            let header = cursor.header::<16>(Layer::Link)?;
            cursor.at += 16;
            u16::from_be_bytes([header[14], header[15]])
        }
        LinkType::LINUX_SLL2 => {
            let header = cursor.header::<20>(Layer::Link)?;
            cursor.at += 20;
            u16::from_be_bytes([header[0], header[1]])
        }
        LinkType::NULL | LinkType::LOOP => {
            let family = *cursor.header::<4>(Layer::Link)?;
            cursor.at += 4;
            // The byte order of BSD loopback is that of the capturing machine, which the file does not record; families are small
            // numbers, so the larger interpretation is the wrong one.
            let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
            match family {
                2 => ETHERTYPE_IPV4,
                // AF_INET6 of Linux, of NetBSD and OpenBSD, of FreeBSD, of macOS.
                10 | 24 | 28 | 30 => ETHERTYPE_IPV6,
                other => other as u16,
            }
        }
        LinkType::IPV4 => ETHERTYPE_IPV4,
        LinkType::IPV6 => ETHERTYPE_IPV6,
        // Some systems wrote 12 and 14 for raw IP before it had a registered number.
        LinkType::RAW | LinkType(12 | 14) => match cursor.header::<1>(Layer::Ipv4)?[0] >> 4 {
            6 => ETHERTYPE_IPV6,
            _ => ETHERTYPE_IPV4,
        },
        LinkType::PPI | LinkType::ERF => {
            let inner = match link_type {
                LinkType::PPI => tunnel::ppi(cursor)?,
                _ => tunnel::erf(cursor)?,
            };
            return match inner {
                LinkType::PPI | LinkType::ERF => Err(HeaderError::UnsupportedLink(inner)),
                inner => link(inner, cursor),
            };
        }
        other => return Err(HeaderError::UnsupportedLink(other)),
    };
    tags(ethertype, cursor)
}

const fn is_tag(ethertype: u16) -> bool {
    ethertype == ETHERTYPE_VLAN
        || ethertype == ETHERTYPES_OUTER_VLAN[0]
        || ethertype == ETHERTYPES_OUTER_VLAN[1]
}

/// Advances over VLAN tags.
fn tags(mut ethertype: u16, cursor: &mut Cursor<'_>) -> Result<Link, HeaderError> {
    let mut vlan = None;
    let mut tags = 0u8;
    while is_tag(ethertype) {
        let tag = cursor.header::<4>(Layer::Vlan)?;
        cursor.at += 4;
        vlan = Some(u16::from_be_bytes([tag[0], tag[1]]) & VLAN_IDENTIFIER_BITS);
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        tags = tags.saturating_add(1);
    }
    Ok(Link { ethertype, vlan, tags })
}

fn ipv4(cursor: Cursor<'_>) -> Result<Network<'_>, HeaderError> {
    let header = cursor.header::<20>(Layer::Ipv4)?;
    let version = header[0] >> 4;
    if version != 4 {
        return Err(HeaderError::BadVersion { layer: Layer::Ipv4, offset: cursor.at, version });
    }
    let header_length = usize::from(header[0] & 0x0f) * 4;
    if header_length < 20 {
        return Err(cursor.bad_length(Layer::Ipv4, header_length, 20));
    }
    let total_length = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        // A sender that leaves segmentation to its card writes 0: use the captured length.
        0 => cursor.rest().len().max(header_length),
        length => length,
    };
    if total_length < header_length {
        return Err(cursor.bad_length(Layer::Ipv4, total_length, header_length));
    }
    if cursor.rest().len() < header_length {
        return Err(cursor.too_short(Layer::Ipv4, header_length));
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let part = (fragment & IPV4_FRAGMENT_BITS != 0).then(|| Part {
        identification: u32::from(u16::from_be_bytes([header[4], header[5]])),
        offset: u32::from(fragment & 0x1fff) * 8,
        more: fragment & 0x2000 != 0,
    });
    let end = cursor.at + total_length;
    let present = end.min(cursor.bytes.len());
    Ok(Network {
        source: IpAddr::V4(Ipv4Addr::new(header[12], header[13], header[14], header[15])),
        destination: IpAddr::V4(Ipv4Addr::new(header[16], header[17], header[18], header[19])),
        protocol: header[9],
        payload: Cursor { bytes: &cursor.bytes[..present], at: cursor.at + header_length },
        truncated: present < end,
        part,
    })
}

fn ipv6(cursor: Cursor<'_>) -> Result<Network<'_>, HeaderError> {
    let header = cursor.header::<40>(Layer::Ipv6)?;
    let version = header[0] >> 4;
    if version != 6 {
        return Err(HeaderError::BadVersion { layer: Layer::Ipv6, offset: cursor.at, version });
    }
    let end = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        // A jumbogram, or a sender that leaves segmentation to its card: use the captured length.
        0 => cursor.bytes.len(),
        length => cursor.at + 40 + length,
    };
    let present = end.min(cursor.bytes.len());
    let mut source = [0; 16];
    let mut destination = [0; 16];
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..40]);
    let mut network = Network {
        source: IpAddr::V6(Ipv6Addr::from(source)),
        destination: IpAddr::V6(Ipv6Addr::from(destination)),
        protocol: header[6],
        payload: Cursor { bytes: &cursor.bytes[..present], at: cursor.at + 40 },
        truncated: present < end,
        part: None,
    };
    extensions(&mut network)?;
    Ok(network)
}

/// Advances over IPv6's extension headers, up to a fragment's bytes.
fn extensions(network: &mut Network<'_>) -> Result<(), HeaderError> {
    let payload = &mut network.payload;
    // Each extension header is at least 8 bytes long, so this ends with the packet.
    while network.part.is_none() {
        let length = match network.protocol {
            // Hop-by-hop options, routing, destination options, mobility, host identity, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => 8 + usize::from(payload.header::<8>(Layer::Ipv6)?[1]) * 8,
            // Authentication counts in units of four bytes (RFC 4302, section 2.2).
            51 => 8 + usize::from(payload.header::<8>(Layer::Ipv6)?[1]) * 4,
            44 => {
                let fragment = payload.header::<8>(Layer::Ipv6)?;
                let bits = u16::from_be_bytes([fragment[2], fragment[3]]);
                let (offset, more) = (u32::from(bits & !7), bits & 1 != 0);
                let identification = u32::from_be_bytes([fragment[4], fragment[5], fragment[6], fragment[7]]);
                network.part = (offset > 0 || more).then_some(Part { identification, offset, more });
                8
            }
            _ => break,
        };
        if payload.rest().len() < length {
            return Err(payload.too_short(Layer::Ipv6, length));
        }
        network.protocol = payload.header::<1>(Layer::Ipv6)?[0];
        payload.at += length;
    }
    Ok(())
}

fn udp<'a>(network: &Network<'a>, vlan: Option<u16>) -> Result<Datagram<'a>, HeaderError> {
    let Cursor { bytes, at } = network.payload;
    let header = network.payload.header::<8>(Layer::Udp)?;
    let room = bytes.len() - at;
    let length = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        // As for IP: the length was left to the card, or does not fit (RFC 2675, section 4).
        0 => room,
        length => length,
    };
    if length < 8 {
        return Err(network.payload.bad_length(Layer::Udp, length, 8));
    }
    Ok(Datagram {
        source: SocketAddr::new(network.source, u16::from_be_bytes([header[0], header[1]])),
        destination: SocketAddr::new(network.destination, u16::from_be_bytes([header[2], header[3]])),
        vlan,
        transport: Transport::Udp,
        payload: &bytes[at + 8..at + length.min(room)],
        payload_offset: at + 8,
        truncated: network.truncated || length > room,
    })
}

fn tcp<'a>(network: &Network<'a>, vlan: Option<u16>) -> Result<Datagram<'a>, HeaderError> {
    let Cursor { bytes, at } = network.payload;
    let header = network.payload.header::<20>(Layer::Tcp)?;
    let header_length = usize::from(header[12] >> 4) * 4;
    if header_length < 20 {
        return Err(network.payload.bad_length(Layer::Tcp, header_length, 20));
    }
    let Some(payload) = bytes.get(at + header_length..) else {
        return Err(network.payload.too_short(Layer::Tcp, header_length));
    };
    Ok(Datagram {
        source: SocketAddr::new(network.source, u16::from_be_bytes([header[0], header[1]])),
        destination: SocketAddr::new(network.destination, u16::from_be_bytes([header[2], header[3]])),
        vlan,
        transport: Transport::Tcp(TcpHeader {
            sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            acknowledgment: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            flags: TcpFlags(header[13]),
        }),
        payload,
        payload_offset: at + header_length,
        truncated: network.truncated,
    })
}
