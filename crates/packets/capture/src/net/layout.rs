//! The offsets of a packet's headers: computed once, then used to read and rewrite fields.
//!
//! [`Layout::of`] never fails: it returns as much as it could find, and flags why it stopped. Filters and rewriters use it;
//! [`parse`](super::parse) returns the payload.
//!
//! Cost: one walk over the headers, one or two cache lines. A layout has 20 bytes, and reading an address through it is one
//! load.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::headers::{self, Cursor};
use crate::link_type::LinkType;

/// The kind of a packet's network header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// None or unknown: ARP, a damaged packet, an unsupported link type.
    #[default]
    Other,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Whether a packet is whole or a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fragment {
    /// A whole packet.
    #[default]
    Whole,
    /// The first fragment, which has the transport header.
    First,
    /// A later fragment, which has no ports.
    Later,
}

/// Offsets of a packet's headers, from its first byte. Only complete headers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Offset of the IP header; valid only if `network` names one.
    pub network_offset: u16,
    /// Offset of the TCP or UDP header, 0 if there is none (another protocol, a later fragment, a truncated packet).
    pub transport_offset: u16,
    /// Offset of the checksum that also covers the IP addresses: that of TCP, UDP, UDP-Lite, DCCP, or ICMP over IPv6. 0 if there
    /// is none.
    pub checksum_offset: u16,
    /// Offset of the outermost VLAN tag (its identifier, after its EtherType), 0 if there is none.
    pub tag_offset: u16,
    /// The EtherType after the tags, 0 if the link layer could not be parsed.
    pub ethertype: u16,
    /// The IP protocol after IPv6's extension headers; meaningful only if `network` names a version.
    pub protocol: u8,
    /// Number of VLAN tags.
    pub tags: u8,
    /// The IP version, if its header is complete and sound.
    pub network: Network,
    /// Whether the IP packet is a fragment.
    pub fragment: Fragment,
    /// Whether the first 12 bytes are the destination and source Ethernet addresses.
    pub is_ethernet: bool,
    /// Whether the packet ends inside a header, or a header is inconsistent.
    pub is_malformed: bool,
    /// Whether there is a source route, a routing header or a home address: the transport checksum then covers addresses other than
    /// those in the IP header (RFC 8200, section 8.1).
    pub is_routed: bool,
}

impl Layout {
    /// Walks a packet's headers.
    #[inline]
    pub fn of(link_type: LinkType, bytes: &[u8]) -> Self {
        let mut layout = Self { is_ethernet: link_type == LinkType::ETHERNET, ..Self::default() };
        let mut cursor = Cursor { bytes, at: 0 };
        let Ok(link) = headers::link(link_type, &mut cursor) else {
            layout.is_ethernet &= bytes.len() >= 14;
            layout.is_malformed = true;
            return layout;
        };
        layout.ethertype = link.ethertype;
        layout.tags = link.tags;
        // At most as many tags as fit in 64 KiB; nothing with more is a packet.
        let Ok(at) = u16::try_from(cursor.at) else {
            layout.is_malformed = true;
            return layout;
        };
        layout.tag_offset = if link.tags == 0 { 0 } else { at - 4 * u16::from(link.tags) };
        layout.network_offset = at;
        match link.ethertype {
            headers::ETHERTYPE_IPV4 => layout.walk_ipv4(cursor),
            headers::ETHERTYPE_IPV6 => layout.walk_ipv6(cursor),
            _ => {}
        }
        layout
    }

    fn walk_ipv4(&mut self, cursor: Cursor<'_>) {
        let packet = cursor.rest();
        let Some(header) = packet.first_chunk::<20>() else {
            self.is_malformed = true;
            return;
        };
        let header_length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_length < 20 || packet.len() < header_length {
            self.is_malformed = true;
            return;
        }
        self.network = Network::V4;
        self.protocol = header[9];
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        self.fragment = match (fragment & 0x1fff, fragment & 0x2000) {
            (0, 0) => Fragment::Whole,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        };
        self.is_routed = header_length > 20 && has_source_route(&packet[20..header_length]);
        let end = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
            0 => packet.len(),
            length => length.min(packet.len()),
        };
        self.find_transport(cursor.at + header_length, end.saturating_sub(header_length));
    }

    fn walk_ipv6(&mut self, cursor: Cursor<'_>) {
        let packet = cursor.rest();
        let Some(header) = packet.first_chunk::<40>().filter(|header| header[0] >> 4 == 6) else {
            self.is_malformed = true;
            return;
        };
        self.network = Network::V6;
        self.protocol = header[6];
        let end = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
            0 => packet.len(),
            length => (40 + length).min(packet.len()),
        };
        let mut at = 40;
        // Each extension header is at least 8 bytes long, so this ends with the packet.
        loop {
            let rest = packet.get(at..end).unwrap_or_default();
            let Some(start) = rest.first_chunk::<8>().filter(|_| is_extension(self.protocol)) else {
                if is_extension(self.protocol) {
                    self.is_malformed = true;
                    return;
                }
                break;
            };
            let length = match self.protocol {
                headers::EXTENSION_FRAGMENT => {
                    let bits = u16::from_be_bytes([start[2], start[3]]);
                    self.fragment = match (bits & !7, bits & 1) {
                        (0, 0) => Fragment::Whole,
                        (0, _) => Fragment::First,
                        _ => Fragment::Later,
                    };
                    8
                }
                headers::EXTENSION_AUTHENTICATION => 8 + usize::from(start[1]) * 4,
                _ => 8 + usize::from(start[1]) * 8,
            };
            // Segments are left: the destination in the header is not the last one.
            self.is_routed |= self.protocol == headers::EXTENSION_ROUTING && start[3] > 0;
            self.is_routed |= self.protocol == headers::EXTENSION_DESTINATION
                && has_home_address(rest.get(2..length).unwrap_or_default());
            if rest.len() < length {
                self.is_malformed = true;
                return;
            }
            self.protocol = start[0];
            at += length;
            if self.fragment == Fragment::Later {
                return;
            }
        }
        self.find_transport(cursor.at + at, end.saturating_sub(at));
    }

    /// Finds the transport header at `at`, of which the IP packet has `room` bytes.
    fn find_transport(&mut self, at: usize, room: usize) {
        if self.fragment == Fragment::Later {
            return;
        }
        let (need, checksum) = match self.protocol {
            headers::PROTOCOL_UDP | headers::PROTOCOL_UDP_LITE | headers::PROTOCOL_DCCP => (8, 6),
            headers::PROTOCOL_TCP => (20, 16),
            headers::PROTOCOL_ICMP_V6 if self.network == Network::V6 => (4, 2),
            _ => return,
        };
        match u16::try_from(at) {
            Ok(at) if room >= need && at < u16::MAX - 16 => {
                self.checksum_offset = at + checksum;
                if self.is_tcp() || self.is_udp() {
                    self.transport_offset = at;
                }
            }
            _ => self.is_malformed = true,
        }
    }

    /// Whether the packet is TCP, even if its ports are missing.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.network != Network::Other && self.protocol == headers::PROTOCOL_TCP
    }

    /// Whether the packet is UDP, even if its ports are missing.
    #[inline]
    pub fn is_udp(&self) -> bool {
        self.network != Network::Other && self.protocol == headers::PROTOCOL_UDP
    }

    /// Returns the source and destination ports of a TCP or UDP packet, if its transport header is present.
    #[inline]
    pub fn ports(&self, bytes: &[u8]) -> Option<(u16, u16)> {
        if self.transport_offset == 0 {
            return None;
        }
        let ports = bytes.get(usize::from(self.transport_offset)..)?.first_chunk::<4>()?;
        Some((u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])))
    }

    /// Returns the source and destination addresses of an IP packet.
    #[inline]
    pub fn addresses(&self, bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let header = bytes.get(usize::from(self.network_offset)..)?;
        match self.network {
            Network::Other => None,
            Network::V4 => {
                let [s0, s1, s2, s3, d0, d1, d2, d3] = *header.get(12..)?.first_chunk::<8>()?;
                Some((Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(d0, d1, d2, d3).into()))
            }
            Network::V6 => {
                let source: [u8; 16] = *header.get(8..)?.first_chunk()?;
                let destination: [u8; 16] = *header.get(24..)?.first_chunk()?;
                Some((Ipv6Addr::from(source).into(), Ipv6Addr::from(destination).into()))
            }
        }
    }

    /// Returns the identifier (12 bits) of the outermost VLAN tag.
    #[inline]
    pub fn vlan(&self, bytes: &[u8]) -> Option<u16> {
        if self.tags == 0 {
            return None;
        }
        let tag = bytes.get(usize::from(self.tag_offset)..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*tag) & headers::VLAN_IDENTIFIER_BITS)
    }

    /// Returns the source and destination Ethernet addresses.
    #[inline]
    pub fn macs(&self, bytes: &[u8]) -> Option<([u8; 6], [u8; 6])> {
        if !self.is_ethernet {
            return None;
        }
        let destination = *bytes.first_chunk::<6>()?;
        let source = *bytes.get(6..)?.first_chunk::<6>()?;
        Some((source, destination))
    }

    /// Returns the payload of a UDP packet, limited by its length field and by the captured bytes.
    #[inline]
    pub fn udp_payload<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.transport_offset == 0 || !self.is_udp() {
            return None;
        }
        let datagram = bytes.get(usize::from(self.transport_offset)..)?;
        let stated = usize::from(u16::from_be_bytes([*datagram.get(4)?, *datagram.get(5)?]));
        let end = if stated == 0 { datagram.len() } else { stated.min(datagram.len()) };
        datagram.get(8..end)
    }
}

/// Whether `protocol` is an IPv6 extension header with a length: hop-by-hop options, routing, fragment, authentication,
/// destination options, mobility, host identity, shim6.
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}

/// Whether IPv4 options hold an unfinished source route (RFC 791, section 3.1): the header's destination is then only the next
/// hop.
fn has_source_route(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match (kind, rest) {
            (0, _) => return false,
            (1, _) => options = rest,
            (131 | 137, [length, pointer, ..]) => return pointer <= length,
            (_, [length, ..]) if *length >= 2 => {
                options = options.get(usize::from(*length)..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    false
}

/// Whether IPv6 destination options hold a home address (RFC 6275, section 6.3), which replaces the source.
fn has_home_address(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match (kind, rest) {
            (0, _) => options = rest,
            (201, _) => return true,
            (_, [length, rest @ ..]) => options = rest.get(usize::from(*length)..).unwrap_or_default(),
            _ => return false,
        }
    }
    false
}
