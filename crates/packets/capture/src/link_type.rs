//! The link layers of captured packets.

use std::fmt;

/// The link layer that a packet begins with: the capture file's LINKTYPE_ value (<https://www.tcpdump.org/linktypes.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: four bytes of address family in the capturing machine's byte order.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// A bare IPv4 or IPv6 packet.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: four bytes of address family in network byte order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, version 1 (16 bytes), as the `any` device produces it.
    pub const LINUX_SLL: Self = Self(113);
    /// Per-packet information (PPI), which names the link layer after it.
    pub const PPI: Self = Self(192);
    /// Endace's extensible record format, which names the link layer after it.
    pub const ERF: Self = Self(197);
    /// A bare IPv4 packet.
    pub const IPV4: Self = Self(228);
    /// A bare IPv6 packet.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2 (20 bytes).
    pub const LINUX_SLL2: Self = Self(276);
}

impl fmt::Display for LinkType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NULL => "BSD loopback",
            Self::ETHERNET => "Ethernet",
            Self::RAW => "raw IP",
            Self::LOOP => "OpenBSD loopback",
            Self::LINUX_SLL => "Linux cooked v1",
            Self::PPI => "PPI",
            Self::ERF => "ERF",
            Self::IPV4 => "raw IPv4",
            Self::IPV6 => "raw IPv6",
            Self::LINUX_SLL2 => "Linux cooked v2",
            Self(number) => return write!(formatter, "link type {number}"),
        };
        formatter.write_str(name)
    }
}
