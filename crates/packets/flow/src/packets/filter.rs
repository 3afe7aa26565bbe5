//! The filter, which sends packets to one of two ports by a predicate over their headers.
//!
//! Packets for which the [`Predicate`] holds go to [`PASS`], all others to [`REJECT`]. A predicate about a header that the packet
//! lacks (the port of a later fragment, the VLAN of an untagged frame) does not hold, so its `Not` holds.
//!
//! Cost: the reader has already located the headers, so each part of a predicate is a load and a compare, a few ns. Nothing is
//! copied.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use tapeworks_capture::net::layout::Network;
use tapeworks_capture::pool::Packet;

use super::{PacketStage, Passing, Routed, To};
use tapeworks_stage::{Sink, Stage};

/// The port for packets that match.
pub const PASS: u8 = 0;

/// The port for all other packets.
pub const REJECT: u8 = 1;

/// Which end of a packet a predicate refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
    /// Either of them.
    Either,
}

impl Side {
    fn holds<T>(self, ends: (T, T), is_so: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Source => is_so(ends.0),
            Self::Destination => is_so(ends.1),
            Self::Either => is_so(ends.0) || is_so(ends.1),
        }
    }
}

/// A range of IP addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Creates the range of addresses that share the first `prefix` bits of `address`. Returns `None` if the address is shorter,
    /// or if later bits are set, which is probably a mistake.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let width = width(address);
        let is_sound = prefix <= width && (prefix == width || bits(address) << prefix == 0);
        is_sound.then_some(Self { address, prefix })
    }

    /// Returns whether the range contains `address`. An address of the other IP version is never in it.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        width(address) == width(self.address)
            && (self.prefix == 0
                || (bits(address) ^ bits(self.address)) >> (128 - u32::from(self.prefix)) == 0)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the address's bits, starting at the most significant bit.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = String;

    /// Parses `10.0.0.0/8`, `fd00::/8`, or a single address.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no address range; use 10.0.0.0/8, fd00::/8 or an address");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix = prefix.unwrap_or(width(address));
        Self::new(address, prefix).ok_or_else(|| {
            if prefix > width(address) {
                format!("'{text}': a prefix is at most {} bits long", width(address))
            } else {
                format!("'{text}' has bits behind its first {prefix}; set them to zero")
            }
        })
    }
}

/// Parses an Ethernet address, such as `02:00:00:00:00:01`, with `:` or `-`.
///
/// # Errors
/// The expected form.
pub fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("'{text}' is no Ethernet address; use 02:00:00:00:00:01");
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() { Err(wrong()) } else { Ok(mac) }
}

/// A condition on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predicate {
    /// All of these hold. True if empty.
    All(Vec<Self>),
    /// At least one of these holds. False if empty.
    Any(Vec<Self>),
    /// This does not hold.
    Not(Box<Self>),
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// The EtherType after any VLAN tags.
    EtherType(u16),
    /// The IP protocol, after IPv6 extension headers; 6 is TCP, 17 is UDP. Fragments match too.
    Protocol(u8),
    /// Has a VLAN tag.
    Tagged,
    /// The outermost VLAN tag's identifier is in one of these ranges.
    Vlan(Vec<RangeInclusive<u16>>),
    /// An IP address is in one of these ranges.
    Address(Side, Vec<Cidr>),
    /// An Ethernet address is one of these.
    Mac(Side, Vec<[u8; 6]>),
    /// A TCP or UDP port is in one of these ranges.
    Port(Side, Vec<RangeInclusive<u16>>),
    /// The packet's original length on the wire, in bytes.
    Length(RangeInclusive<u32>),
    /// The destination is an IPv4 or IPv6 multicast group.
    Multicast,
}

impl Predicate {
    /// Returns whether the predicate holds for the packet.
    #[inline]
    pub fn holds(&self, packet: &Packet) -> bool {
        let layout = packet.layout();
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(packet)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(packet)),
            Self::Not(part) => !part.holds(packet),
            Self::Ipv4 => layout.network == Network::V4,
            Self::Ipv6 => layout.network == Network::V6,
            Self::EtherType(ethertype) => layout.ethertype == *ethertype,
            Self::Protocol(protocol) => layout.network != Network::Other && layout.protocol == *protocol,
            Self::Tagged => layout.tags > 0,
            Self::Vlan(ranges) => layout.vlan(packet.bytes()).is_some_and(|vlan| is_in(ranges, vlan)),
            Self::Address(side, ranges) => layout.addresses(packet.bytes()).is_some_and(|ends| {
                side.holds(ends, |address| ranges.iter().any(|range| range.contains(address)))
            }),
            Self::Mac(side, macs) => {
                layout.macs(packet.bytes()).is_some_and(|ends| side.holds(ends, |mac| macs.contains(&mac)))
            }
            Self::Port(side, ranges) => {
                layout.ports(packet.bytes()).is_some_and(|ends| side.holds(ends, |port| is_in(ranges, port)))
            }
            Self::Length(range) => range.contains(&packet.description().original_length),
            Self::Multicast => {
                layout.addresses(packet.bytes()).is_some_and(|(_, destination)| destination.is_multicast())
            }
        }
    }
}

fn is_in(ranges: &[RangeInclusive<u16>], number: u16) -> bool {
    ranges.iter().any(|range| range.contains(&number))
}

/// A stage that sends packets to one of two ports.
#[derive(Debug)]
pub struct Filter {
    predicate: Predicate,
    /// The outcome of packets that do not match.
    otherwise: To,
}

impl Filter {
    /// Creates a filter with two ports, [`PASS`] and [`REJECT`].
    pub const fn new(predicate: Predicate) -> Self {
        Self { predicate, otherwise: To::Port(REJECT) }
    }
}

impl<S: Sink<Routed>> Stage<Passing, S> for Filter {
    #[inline]
    fn process(&mut self, batch: &[Passing], sink: &mut S) {
        for packet in batch.iter().filter_map(Passing::take) {
            let to = if self.predicate.holds(&packet) { To::Port(PASS) } else { self.otherwise };
            sink.put(Routed { packet, to });
        }
    }
}

impl PacketStage for Filter {
    fn ports(&self) -> usize {
        2
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use proptest::prelude::*;
    use tapeworks_capture::LinkType;
    use tapeworks_capture::net::build::FrameBuilder;
    use tapeworks_capture::pool::{Description, Pool};

    use super::*;

    /// Returns a UDP packet from 10.0.0.1:1000 to 233.1.2.3:2000 in VLAN 7.
    fn packet() -> Packet {
        let (from, to): (SocketAddrV4, SocketAddrV4) =
            ("10.0.0.1:1000".parse().unwrap(), "233.1.2.3:2000".parse().unwrap());
        let mut frame = [0; 200];
        let length = FrameBuilder::to_group([2, 0, 0, 0, 0, 1], from, to)
            .with_vlan(7)
            .udp(b"payload", &mut frame)
            .unwrap();
        let description = Description {
            timestamp_ns: 0,
            entered_ns: 0,
            original_length: length as u32,
            link_type: LinkType::ETHERNET,
        };
        Pool::new(1, 200).packet(&frame[..length], description).unwrap()
    }

    fn cidr(text: &str) -> Vec<Cidr> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn each_predicate_matches_its_packets() {
        let packet = packet();
        let source = Side::Source;
        let sender = [2, 0, 0, 0, 0, 1];
        for predicate in [
            Predicate::Ipv4,
            Predicate::EtherType(0x0800),
            Predicate::Protocol(17),
            Predicate::Tagged,
            Predicate::Vlan(vec![7..=7]),
            Predicate::Address(source, cidr("10.0.0.0/8")),
            Predicate::Address(Side::Either, cidr("233.1.2.3")),
            Predicate::Address(source, cidr("0.0.0.0/0")),
            Predicate::Mac(source, vec![sender]),
            Predicate::Port(source, vec![999..=1000]),
            Predicate::Port(Side::Either, vec![2000..=2000]),
            Predicate::Length(0..=100),
            Predicate::Multicast,
            Predicate::All(vec![]),
            Predicate::Any(vec![Predicate::Ipv6, Predicate::Ipv4]),
        ] {
            assert!(predicate.holds(&packet), "{predicate:?}");
            assert!(!Predicate::Not(Box::new(predicate)).holds(&packet));
        }
        for predicate in [
            Predicate::Ipv6,
            Predicate::Protocol(6),
            Predicate::Vlan(vec![8..=9]),
            Predicate::Address(Side::Destination, cidr("10.0.0.0/8")),
            Predicate::Address(source, cidr("::/0")),
            Predicate::Mac(Side::Destination, vec![sender]),
            Predicate::Port(Side::Destination, vec![1000..=1000]),
            Predicate::Any(vec![]),
            Predicate::All(vec![Predicate::Ipv6, Predicate::Ipv4]),
        ] {
            assert!(!predicate.holds(&packet), "{predicate:?}");
        }
    }

    #[test]
    fn wrong_ranges_are_refused_with_the_expected_form() {
        for (text, expected) in [
            ("10.0.0.1/8", "bits behind its first 8"),
            ("10.0.0.0/33", "at most 32 bits"),
            ("fd00::/129", "at most 128 bits"),
            ("ten", "use 10.0.0.0/8"),
            ("10.0.0.0/x", "use 10.0.0.0/8"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(cidr("fd00::/8")[0].to_string(), "fd00::/8");
    }

    #[test]
    fn ethernet_addresses_have_six_parts_of_two_digits() {
        assert_eq!(parse_mac("02:00:00:00:00:Fe"), Ok([2, 0, 0, 0, 0, 0xfe]));
        assert_eq!(parse_mac("02-00-00-00-00-01"), Ok([2, 0, 0, 0, 0, 1]));
        for text in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "02:00:00:00:00:0g"] {
            assert!(parse_mac(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_range_holds_the_addresses_that_agree_bit_by_bit(address: u32, other: u32, prefix in 0..=32u8) {
            let address = if prefix == 0 { 0 } else { address >> (32 - prefix) << (32 - prefix) };
            let range = Cidr::new(IpAddr::V4(address.into()), prefix).unwrap();
            let agrees = (0..prefix).all(|bit| (address ^ other) & (1 << (31 - bit)) == 0);
            prop_assert_eq!(range.contains(IpAddr::V4(other.into())), agrees);
            prop_assert!(range.contains(IpAddr::V4(address.into())));
        }
    }
}
