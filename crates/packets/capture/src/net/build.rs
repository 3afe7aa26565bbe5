//! Builds headers: turns a payload into an Ethernet frame of IPv4 with UDP or TCP, or of IPv6 with UDP, including checksums.
//!
//! Per frame a [`FrameBuilder`] writes 42 bytes of headers (46 with a tag; 54 and 58 for TCP) and sums the payload once,
//! eight bytes at a time. It allocates nothing: frames go into the caller's buffer.

use std::net::{SocketAddrV4, SocketAddrV6};

use super::checksums::{UDP_HEADER_BYTES, fold, sum};
use super::{TcpHeader, headers};

/// Room for the longest headers that a [`FrameBuilder`] writes: Ethernet, VLAN tag, IPv4, TCP.
pub const MAX_HEADERS_BYTES: usize = 58;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;

/// Why a frame cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The caller's buffer cannot hold the headers and the payload.
    #[error("the frame needs {need} bytes, the buffer has {got}")]
    BufferTooSmall {
        /// Bytes that the frame needs.
        need: usize,
        /// Bytes that the buffer has.
        got: usize,
    },
    /// The payload does not fit IPv4's 16-bit length.
    #[error("a payload of {length} bytes is over the limit of {limit}")]
    PayloadTooLong {
        /// The payload's length in bytes.
        length: usize,
        /// The maximum, in bytes.
        limit: usize,
    },
}

/// Builds frames from one sender to one receiver.
///
/// ```
/// use tapeworks_capture::LinkType;
/// use tapeworks_capture::net::{self, build::FrameBuilder};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (source, group) = ("10.0.0.1:5000".parse()?, "233.54.12.111:26477".parse()?);
/// let mut builder = FrameBuilder::to_group([2, 0, 0, 0, 0, 1], source, group);
/// let mut buffer = [0; 2048];
/// let length = builder.udp(b"a message", &mut buffer)?;
/// let datagram = net::parse(LinkType::ETHERNET, &buffer[..length])?;
/// assert_eq!(datagram.payload, b"a message");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FrameBuilder {
    /// The Ethernet header and an optional tag.
    link: [u8; 18],
    link_length: usize,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    time_to_live: u8,
    identification: u16,
}

impl FrameBuilder {
    /// Builds frames from `source` to `destination` between these two Ethernet addresses.
    pub fn new(
        source_mac: [u8; 6],
        destination_mac: [u8; 6],
        source: SocketAddrV4,
        destination: SocketAddrV4,
    ) -> Self {
        let mut link = [0; 18];
        link[..6].copy_from_slice(&destination_mac);
        link[6..12].copy_from_slice(&source_mac);
        link[12..14].copy_from_slice(&headers::ETHERTYPE_IPV4.to_be_bytes());
        Self { link, link_length: 14, source, destination, time_to_live: 32, identification: 0 }
    }

    /// Builds frames to a multicast group, whose Ethernet address follows from the group.
    pub fn to_group(source_mac: [u8; 6], source: SocketAddrV4, group: SocketAddrV4) -> Self {
        Self::new(source_mac, super::multicast_mac(*group.ip()), source, group)
    }

    /// Adds an IEEE 802.1Q tag with this VLAN identifier (its low 12 bits) to each frame.
    #[must_use]
    pub fn with_vlan(mut self, vlan: u16) -> Self {
        self.link[12..14].copy_from_slice(&headers::ETHERTYPE_VLAN.to_be_bytes());
        self.link[14..16].copy_from_slice(&(vlan & headers::VLAN_IDENTIFIER_BITS).to_be_bytes());
        self.link[16..18].copy_from_slice(&headers::ETHERTYPE_IPV4.to_be_bytes());
        self.link_length = 18;
        self
    }

    /// Sets the time to live in hops; the default is 32.
    #[must_use]
    pub fn with_time_to_live(mut self, hops: u8) -> Self {
        self.time_to_live = hops;
        self
    }

    /// Returns the size of the headers before the payload of a UDP frame.
    pub fn udp_headers_bytes(&self) -> usize {
        self.link_length + IPV4_BYTES + UDP_HEADER_BYTES
    }

    /// Writes a UDP frame around `payload` into `buffer` and returns the frame's length.
    ///
    /// # Errors
    /// [`BuildError`], with `buffer` unchanged.
    pub fn udp(&mut self, payload: &[u8], buffer: &mut [u8]) -> Result<usize, BuildError> {
        let start = self.udp_headers_bytes();
        self.check(start, payload.len(), buffer)?;
        buffer[start..start + payload.len()].copy_from_slice(payload);
        self.udp_in_place(payload.len(), buffer)
    }

    /// Writes UDP headers before a payload of `payload_length` bytes that is already in `buffer`, from
    /// [`FrameBuilder::udp_headers_bytes`] on; returns the frame's length. This saves the copy.
    ///
    /// # Errors
    /// [`BuildError`], with `buffer` unchanged.
    pub fn udp_in_place(&mut self, payload_length: usize, buffer: &mut [u8]) -> Result<usize, BuildError> {
        let start = self.udp_headers_bytes();
        let frame = self.check(start, payload_length, buffer)?;
        let buffer = &mut buffer[..frame];
        let udp = self.write_ipv4(headers::PROTOCOL_UDP, UDP_HEADER_BYTES + payload_length, buffer);
        // A UDP length fits 16 bits because IPv4's, which is larger, was checked to fit.
        udp[..2].copy_from_slice(&self.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&((UDP_HEADER_BYTES + payload_length) as u16).to_be_bytes());
        udp[6..8].fill(0);
        let checksum = match self.transport_checksum(headers::PROTOCOL_UDP, udp) {
            // RFC 768: zero means "no checksum", so a sum of zero is sent in its other form.
            0 => 0xffff,
            checksum => checksum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        Ok(frame)
    }

    /// Writes a TCP segment without options around `payload` into `buffer` and returns the frame's length.
    ///
    /// # Errors
    /// [`BuildError`], with `buffer` unchanged.
    pub fn tcp(&mut self, header: TcpHeader, payload: &[u8], buffer: &mut [u8]) -> Result<usize, BuildError> {
        let start = self.link_length + IPV4_BYTES + TCP_BYTES;
        let frame = self.check(start, payload.len(), buffer)?;
        let buffer = &mut buffer[..frame];
        buffer[start..].copy_from_slice(payload);
        let tcp = self.write_ipv4(headers::PROTOCOL_TCP, TCP_BYTES + payload.len(), buffer);
        tcp[..2].copy_from_slice(&self.source.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        tcp[4..8].copy_from_slice(&header.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&header.acknowledgment.to_be_bytes());
        tcp[12] = ((TCP_BYTES / 4) as u8) << 4;
        tcp[13] = header.flags.0;
        tcp[14..16].fill(0xff); // the widest window
        tcp[16..20].fill(0);
        let checksum = self.transport_checksum(headers::PROTOCOL_TCP, tcp);
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        Ok(frame)
    }

    /// Returns the length of a frame whose payload begins at `start`, if IPv4 and the buffer can hold it.
    fn check(&self, start: usize, payload_length: usize, buffer: &[u8]) -> Result<usize, BuildError> {
        let limit = usize::from(u16::MAX) - (start - self.link_length);
        if payload_length > limit {
            return Err(BuildError::PayloadTooLong { length: payload_length, limit });
        }
        let need = start + payload_length;
        if need > buffer.len() {
            return Err(BuildError::BufferTooSmall { need, got: buffer.len() });
        }
        Ok(need)
    }

    /// Writes the Ethernet and IPv4 headers into `frame`, which must have room for them, and returns the rest.
    fn write_ipv4<'a>(&mut self, protocol: u8, transport_length: usize, frame: &'a mut [u8]) -> &'a mut [u8] {
        let (link, frame) = frame.split_at_mut(self.link_length);
        link.copy_from_slice(&self.link[..self.link_length]);
        let (ipv4, transport) = frame.split_at_mut(IPV4_BYTES);
        ipv4[0] = 0x45;
        ipv4[1] = 0;
        ipv4[2..4].copy_from_slice(&((IPV4_BYTES + transport_length) as u16).to_be_bytes());
        ipv4[4..6].copy_from_slice(&self.identification.to_be_bytes());
        ipv4[6..8].copy_from_slice(&0x4000_u16.to_be_bytes()); // do not fragment
        ipv4[8] = self.time_to_live;
        ipv4[9] = protocol;
        ipv4[10..12].fill(0);
        ipv4[12..16].copy_from_slice(&self.source.ip().octets());
        ipv4[16..20].copy_from_slice(&self.destination.ip().octets());
        let checksum = !fold(sum(ipv4));
        ipv4[10..12].copy_from_slice(&checksum.to_be_bytes());
        self.identification = self.identification.wrapping_add(1);
        transport
    }

    /// Computes the checksum over IPv4's pseudo header (RFC 768, RFC 9293 section 3.1) and `transport`, header and payload.
    fn transport_checksum(&self, protocol: u8, transport: &[u8]) -> u16 {
        let pseudo = sum(&self.source.ip().octets())
            + sum(&self.destination.ip().octets())
            + u64::from(protocol)
            + transport.len() as u64;
        !fold(pseudo + sum(transport))
    }
}

/// Size of the headers that [`udp_v6_in_place`] writes: Ethernet, IPv6, UDP.
pub const UDP_V6_HEADERS_BYTES: usize = 14 + IPV6_BYTES + UDP_HEADER_BYTES;

/// Writes Ethernet, IPv6 and UDP headers before a payload of `payload_length` bytes that is already in `buffer`, from
/// [`UDP_V6_HEADERS_BYTES`] on; returns the frame's length. A multicast group's Ethernet address follows from the group; for any
/// other destination, `mac` is both source and destination.
///
/// # Errors
/// [`BuildError`], with `buffer` unchanged.
pub fn udp_v6_in_place(
    mac: [u8; 6],
    source: SocketAddrV6,
    destination: SocketAddrV6,
    payload_length: usize,
    buffer: &mut [u8],
) -> Result<usize, BuildError> {
    let limit = usize::from(u16::MAX) - UDP_HEADER_BYTES;
    if payload_length > limit {
        return Err(BuildError::PayloadTooLong { length: payload_length, limit });
    }
    let need = UDP_V6_HEADERS_BYTES + payload_length;
    let got = buffer.len();
    let Some(frame) = buffer.get_mut(..need) else { return Err(BuildError::BufferTooSmall { need, got }) };
    let (link, packet) = frame.split_at_mut(14);
    let to = destination.ip();
    link[..6].copy_from_slice(&if to.is_multicast() { super::multicast_mac_v6(*to) } else { mac });
    link[6..12].copy_from_slice(&mac);
    link[12..14].copy_from_slice(&headers::ETHERTYPE_IPV6.to_be_bytes());
    let (ipv6, udp) = packet.split_at_mut(IPV6_BYTES);
    // It fits 16 bits, as checked above.
    let length = ((UDP_HEADER_BYTES + payload_length) as u16).to_be_bytes();
    ipv6[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    ipv6[4..6].copy_from_slice(&length);
    ipv6[6] = headers::PROTOCOL_UDP;
    ipv6[7] = 32; // hops, as for IPv4
    ipv6[8..24].copy_from_slice(&source.ip().octets());
    ipv6[24..40].copy_from_slice(&to.octets());
    udp[..2].copy_from_slice(&source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&length);
    udp[6..8].fill(0);
    let pseudo = sum(&ipv6[8..40]) + u64::from(headers::PROTOCOL_UDP) + udp.len() as u64;
    // RFC 8200, section 8.1: a sum of zero is sent in its other form.
    let checksum = match !fold(pseudo + sum(udp)) {
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    Ok(need)
}
