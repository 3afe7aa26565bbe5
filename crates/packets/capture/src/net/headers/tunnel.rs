//! Encapsulation headers that switches, taps and capture cards put before a packet.

use super::super::{Datagram, HeaderError, Layer};
use super::{Ahead, Cursor, ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_GRE, VXLAN_PORT};
use crate::link_type::LinkType;

/// MPLS, unicast and multicast (RFC 3032, RFC 5332).
const ETHERTYPES_MPLS: [u16; 2] = [0x8847, 0x8848];
/// An Ethernet frame (NVGRE, RFC 7637).
const ETHERTYPE_BRIDGING: u16 = 0x6558;
/// Cisco's FabricPath.
const ETHERTYPE_FABRICPATH: u16 = 0x8903;
/// Arista's own headers.
const ETHERTYPE_ARISTA: u16 = 0xd28b;
/// ERSPAN types I and II.
const ETHERTYPE_ERSPAN: u16 = 0x88be;
/// ERSPAN type III.
const ETHERTYPE_ERSPAN_3: u16 = 0x22eb;

/// Advances over the header that a non-IP EtherType announces.
pub(super) fn after_ethertype<'a>(ethertype: u16, cursor: &mut Cursor<'_>) -> Result<Ahead<'a>, HeaderError> {
    match ethertype {
        _ if ETHERTYPES_MPLS.contains(&ethertype) => mpls(cursor),
        ETHERTYPE_BRIDGING => Ok(Ahead::Link(LinkType::ETHERNET)),
        ETHERTYPE_FABRICPATH => {
            // Forwarding tag and time to live, then the frame.
            cursor.header::<2>(Layer::Tunnel)?;
            cursor.at += 2;
            Ok(Ahead::Link(LinkType::ETHERNET))
        }
        ETHERTYPE_ARISTA => arista(cursor),
        ethertype => Err(HeaderError::NotIp { ethertype }),
    }
}

/// Skips MPLS labels, up to the one with the bottom-of-stack bit (bit 8). They do not name the protocol that follows: the first
/// four bits identify IP, and a pseudowire's control word has zeros there (RFC 4385, section 3).
fn mpls<'a>(cursor: &mut Cursor<'_>) -> Result<Ahead<'a>, HeaderError> {
    loop {
        let label = cursor.header::<4>(Layer::Tunnel)?;
        cursor.at += 4;
        if label[2] & 1 != 0 {
            break;
        }
    }
    Ok(match cursor.header::<1>(Layer::Tunnel)?[0] >> 4 {
        4 => Ahead::EtherType(ETHERTYPE_IPV4),
        6 => Ahead::EtherType(ETHERTYPE_IPV6),
        0 => {
            cursor.header::<4>(Layer::Tunnel)?;
            cursor.at += 4;
            Ahead::Link(LinkType::ETHERNET)
        }
        _ => Ahead::Link(LinkType::ETHERNET),
    })
}

/// Skips a timestamp of 64 or 48 bits, TAI or UTC, between the addresses and the EtherType.
fn arista<'a>(cursor: &mut Cursor<'_>) -> Result<Ahead<'a>, HeaderError> {
    let header = cursor.header::<4>(Layer::Tunnel)?;
    let stamp_bytes = match (u16::from_be_bytes([header[0], header[1]]), header[3]) {
        (1, 0x10) => 8,
        (1, 0x20) => 6,
        _ => return Err(HeaderError::NotIp { ethertype: ETHERTYPE_ARISTA }),
    };
    cursor.at += 4 + stamp_bytes;
    let ethertype = cursor.header::<2>(Layer::Tunnel)?;
    cursor.at += 2;
    Ok(Ahead::EtherType(u16::from_be_bytes(*ethertype)))
}

/// Parses GRE (RFC 2784, RFC 2890), and ERSPAN in it.
pub(super) fn gre<'a>(cursor: &mut Cursor<'_>) -> Result<Ahead<'a>, HeaderError> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    // Source routing (RFC 1701) and the version.
    const UNSUPPORTED: u16 = 0x4007;
    let header = cursor.header::<4>(Layer::Tunnel)?;
    let flags = u16::from_be_bytes([header[0], header[1]]);
    if flags & UNSUPPORTED != 0 {
        return Err(HeaderError::NotTransport { protocol: PROTOCOL_GRE });
    }
    let options = [CHECKSUM, KEY, SEQUENCE].iter().filter(|flag| flags & **flag != 0).count();
    let ethertype = u16::from_be_bytes([header[2], header[3]]);
    cursor.at += 4 + 4 * options;
    match ethertype {
        ETHERTYPE_ERSPAN => {
            // Type I has neither a sequence number nor an ERSPAN header.
            if flags & SEQUENCE != 0 {
                cursor.header::<8>(Layer::Tunnel)?;
                cursor.at += 8;
            }
            Ok(Ahead::Link(LinkType::ETHERNET))
        }
        ETHERTYPE_ERSPAN_3 => {
            let header = cursor.header::<12>(Layer::Tunnel)?;
            // The last bit announces eight more bytes; five bits give the frame's type.
            let frame_type = header[10] >> 2 & 0x1f;
            cursor.at += if header[11] & 1 == 0 { 12 } else { 20 };
            match frame_type {
                2 => Ok(match cursor.header::<1>(Layer::Tunnel)?[0] >> 4 {
                    6 => Ahead::EtherType(ETHERTYPE_IPV6),
                    _ => Ahead::EtherType(ETHERTYPE_IPV4),
                }),
                _ => Ok(Ahead::Link(LinkType::ETHERNET)),
            }
        }
        ethertype => Ok(Ahead::EtherType(ethertype)),
    }
}

/// Returns the start of the Ethernet frame in a VXLAN packet (RFC 7348, section 5).
pub(super) fn vxlan<'a>(datagram: &Datagram<'_>, udp: Cursor<'a>) -> Option<Cursor<'a>> {
    let is_vxlan = datagram.destination.port() == VXLAN_PORT
        && matches!(datagram.payload, [0x08, 0, 0, 0, _, _, _, 0, ..]);
    is_vxlan.then_some(Cursor { at: udp.at + 16, ..udp })
}

/// Parses PPI's packet header: version, flags, length and link type, then fields up to the length.
pub(super) fn ppi(cursor: &mut Cursor<'_>) -> Result<LinkType, HeaderError> {
    let header = cursor.header::<8>(Layer::Link)?;
    let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
    if length < 8 {
        return Err(cursor.bad_length(Layer::Link, length, 8));
    }
    if cursor.rest().len() < length {
        return Err(cursor.too_short(Layer::Link, length));
    }
    cursor.at += length;
    let number = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    Ok(LinkType(u16::try_from(number).unwrap_or(u16::MAX)))
}

/// Parses ERF's record header: 16 bytes, then extension headers of 8 bytes, then two bytes of padding before Ethernet.
pub(super) fn erf(cursor: &mut Cursor<'_>) -> Result<LinkType, HeaderError> {
    const MORE: u8 = 0x80;
    let header = cursor.header::<16>(Layer::Link)?;
    let record_type = header[8] & !MORE;
    let mut more = header[8] & MORE != 0;
    cursor.at += 16;
    while more {
        more = cursor.header::<8>(Layer::Link)?[0] & MORE != 0;
        cursor.at += 8;
    }
    match record_type {
        // ETH, COLOR_ETH, DSM_COLOR_ETH and COLOR_HASH_ETH.
        2 | 11 | 16 | 20 => {
            cursor.header::<2>(Layer::Link)?;
            cursor.at += 2;
            Ok(LinkType::ETHERNET)
        }
        22 => Ok(LinkType::IPV4),
        23 => Ok(LinkType::IPV6),
        _ => Err(HeaderError::UnsupportedLink(LinkType::ERF)),
    }
}
