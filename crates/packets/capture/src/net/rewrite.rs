//! Rewrites headers in place, with the checksums that cover them.
//!
//! A [`Rewrite`] has the new fields; [`Rewrite::apply`] writes them into a packet whose [`Layout`] is known. Checksums are
//! updated incrementally (RFC 1624, equation 3) from the old checksum and the changed 16-bit words. So the payload is not read,
//! a packet that the capture truncated keeps a correct checksum, and a wrong checksum stays wrong by the same amount.
//!
//! | checksum | covers | rule |
//! | --- | --- | --- |
//! | IPv4 | the IPv4 header | always updated |
//! | TCP, UDP, UDP-Lite, DCCP, ICMPv6 | addresses, ports | updated if the packet has it: whole packets and first fragments |
//! | UDP, zero | nothing (RFC 768) | stays zero; an update that yields zero is written as `0xffff` |
//!
//! A later fragment has no ports and no transport checksum: its addresses are rewritten, but its ports cannot be, and [`Unfit`]
//! reports that. With an unfinished source route or routing header, the transport checksum covers the final destination and not
//! the one in the IP header (RFC 8200, section 8.1); a home address has the same effect on the source. Only the IP header is
//! rewritten then.
//!
//! [`complete_checksum`] is for packets that were never on a wire: it reads the payload.
//!
//! Cost: an address subtracts and adds two words (IPv6: eight), a port one; one or two cache lines are written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksums::{fold, sum};
use super::headers;
use super::layout::{Fragment, Layout, Network};

/// Size of a VLAN tag, including the EtherType after it.
pub const TAG_BYTES: usize = 4;

/// The new fields of a packet; `None` leaves a field unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewrite {
    /// Source Ethernet address.
    pub source_mac: Option<[u8; 6]>,
    /// Destination Ethernet address.
    pub destination_mac: Option<[u8; 6]>,
    /// Identifier of the outermost VLAN tag, 12 bits; its priority is kept.
    pub vlan: Option<u16>,
    /// Source address of IPv4 packets.
    pub source_v4: Option<Ipv4Addr>,
    /// Destination address of IPv4 packets.
    pub destination_v4: Option<Ipv4Addr>,
    /// Source address of IPv6 packets.
    pub source_v6: Option<Ipv6Addr>,
    /// Destination address of IPv6 packets.
    pub destination_v6: Option<Ipv6Addr>,
    /// Source port of TCP and UDP packets.
    pub source_port: Option<u16>,
    /// Destination port of TCP and UDP packets.
    pub destination_port: Option<u16>,
}

/// The fields of a [`Rewrite`] that a packet does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unfit {
    /// Ethernet addresses: the packet has another link layer.
    pub mac: bool,
    /// The VLAN identifier: the packet has no tag.
    pub vlan: bool,
    /// The addresses: the packet is not IP, or has the other IP version.
    pub address: bool,
    /// The ports: the packet is neither TCP nor UDP, or its header is truncated.
    pub port: bool,
    /// The ports: the packet is a later fragment, which is otherwise rewritten like its first fragment.
    pub fragment: bool,
}

impl Unfit {
    /// Whether all requested changes were written.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl Rewrite {
    /// Sets the source address for packets of this address's IP version.
    #[must_use]
    pub fn with_source(mut self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.source_v4 = Some(address),
            IpAddr::V6(address) => self.source_v6 = Some(address),
        }
        self
    }

    /// Sets the destination address for packets of this address's IP version.
    #[must_use]
    pub fn with_destination(mut self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.destination_v4 = Some(address),
            IpAddr::V6(address) => self.destination_v6 = Some(address),
        }
        self
    }

    /// Writes the fields into `bytes`; `layout` stays valid. It skips and returns the fields that the packet does not have.
    pub fn apply(&self, bytes: &mut [u8], layout: &Layout) -> Unfit {
        let mut unfit = Unfit::default();
        self.apply_link(bytes, layout, &mut unfit);
        match layout.network {
            Network::V4 => self.apply_v4(bytes, layout, &mut unfit),
            Network::V6 => self.apply_v6(bytes, layout, &mut unfit),
            Network::Other => unfit.address = self.has_v4() || self.has_v6(),
        }
        self.apply_ports(bytes, layout, &mut unfit);
        unfit
    }

    fn has_v4(&self) -> bool {
        self.source_v4.is_some() || self.destination_v4.is_some()
    }

    fn has_v6(&self) -> bool {
        self.source_v6.is_some() || self.destination_v6.is_some()
    }

    fn apply_link(&self, bytes: &mut [u8], layout: &Layout, unfit: &mut Unfit) {
        if self.source_mac.is_some() || self.destination_mac.is_some() {
            match bytes.first_chunk_mut::<12>().filter(|_| layout.is_ethernet) {
                Some(macs) => {
                    if let Some(mac) = self.destination_mac {
                        macs[..6].copy_from_slice(&mac);
                    }
                    if let Some(mac) = self.source_mac {
                        macs[6..].copy_from_slice(&mac);
                    }
                }
                None => unfit.mac = true,
            }
        }
        if let Some(vlan) = self.vlan {
            let tag = if layout.tags == 0 { None } else { word_mut(bytes, layout.tag_offset, 0) };
            match tag {
                Some(tag) => {
                    let priority = u16::from_be_bytes(*tag) & !headers::VLAN_IDENTIFIER_BITS;
                    *tag = (priority | vlan & headers::VLAN_IDENTIFIER_BITS).to_be_bytes();
                }
                None => unfit.vlan = true,
            }
        }
    }

    fn apply_v4(&self, bytes: &mut [u8], layout: &Layout, unfit: &mut Unfit) {
        if !self.has_v4() {
            unfit.address = self.has_v6();
            return;
        }
        let source = self.source_v4.map(|address| (12, address.octets()));
        // With a source route, the transport checksum covers another destination.
        let destination = self.destination_v4.map(|address| (16, address.octets()));
        let mut header = Change::default();
        let mut transport = Change::default();
        for (at, new) in [source, destination].into_iter().flatten() {
            let from = usize::from(layout.network_offset) + at;
            let Some(field) = bytes.get_mut(from..).and_then(<[u8]>::first_chunk_mut::<4>) else { continue };
            header.replace(field, &new);
            if !(layout.is_routed && at == 16) {
                transport.replace(field, &new);
            }
            *field = new;
        }
        if let Some(checksum) = word_mut(bytes, layout.network_offset, 10) {
            *checksum = header.update(*checksum);
        }
        update_transport(bytes, layout, transport);
    }

    fn apply_v6(&self, bytes: &mut [u8], layout: &Layout, unfit: &mut Unfit) {
        if !self.has_v6() {
            unfit.address = self.has_v4();
            return;
        }
        let source = self.source_v6.map(|address| (8, address.octets()));
        let destination = self.destination_v6.map(|address| (24, address.octets()));
        let mut transport = Change::default();
        for (at, new) in [source, destination].into_iter().flatten() {
            let from = usize::from(layout.network_offset) + at;
            let Some(field) = bytes.get_mut(from..).and_then(<[u8]>::first_chunk_mut::<16>) else { continue };
            if !layout.is_routed {
                transport.replace(field, &new);
            }
            *field = new;
        }
        update_transport(bytes, layout, transport);
    }

    fn apply_ports(&self, bytes: &mut [u8], layout: &Layout, unfit: &mut Unfit) {
        if self.source_port.is_none() && self.destination_port.is_none() {
            return;
        }
        if layout.transport_offset == 0 {
            unfit.fragment = layout.fragment == Fragment::Later && (layout.is_tcp() || layout.is_udp());
            unfit.port = !unfit.fragment;
            return;
        }
        let mut transport = Change::default();
        for (at, port) in [(0, self.source_port), (2, self.destination_port)] {
            let Some(new) = port.map(u16::to_be_bytes) else { continue };
            let Some(field) = word_mut(bytes, layout.transport_offset, at) else { continue };
            transport.replace(field, &new);
            *field = new;
        }
        update_transport(bytes, layout, transport);
    }
}

/// Returns the 16-bit word at `start + at`.
fn word_mut(bytes: &mut [u8], start: u16, at: usize) -> Option<&mut [u8; 2]> {
    bytes.get_mut(usize::from(start) + at..)?.first_chunk_mut()
}

fn update_transport(bytes: &mut [u8], layout: &Layout, change: Change) {
    if layout.checksum_offset == 0 {
        return;
    }
    let has_zero_rule = matches!(layout.protocol, headers::PROTOCOL_UDP | headers::PROTOCOL_UDP_LITE);
    if let Some(checksum) = word_mut(bytes, layout.checksum_offset, 0) {
        if has_zero_rule && *checksum == [0, 0] {
            return;
        }
        *checksum = match change.update(*checksum) {
            [0, 0] if has_zero_rule => [0xff, 0xff],
            updated => updated,
        };
    }
}

/// Completes the checksum of a TCP or UDP packet whose sender left that to the network card: the field holds the sum of the
/// pseudo header alone, as the kernel leaves it (`CHECKSUM_PARTIAL`). Returns `false` and changes nothing if the field has
/// another value, or the packet is a fragment or truncated.
pub fn complete_checksum(bytes: &mut [u8], layout: &Layout) -> bool {
    if layout.fragment != Fragment::Whole || layout.transport_offset == 0 || layout.checksum_offset == 0 {
        return false;
    }
    let (length_at, fixed, addresses) = match layout.network {
        Network::V4 => (2, 0, 12..20),
        Network::V6 => (4, 40, 8..40),
        Network::Other => return false,
    };
    let network = bytes.get(usize::from(layout.network_offset)..).unwrap_or_default();
    let (Some(length), Some(addresses)) = (
        network.get(length_at..).and_then(<[u8]>::first_chunk::<2>).map(|word| u16::from_be_bytes(*word)),
        network.get(addresses),
    ) else {
        return false;
    };
    let end = usize::from(layout.network_offset) + fixed + usize::from(length);
    let Some(transport) = bytes.get(usize::from(layout.transport_offset)..end) else { return false };
    let pseudo = sum(addresses) + u64::from(layout.protocol) + transport.len() as u64;
    let checksum = match !fold(sum(transport)) {
        0 if layout.protocol == headers::PROTOCOL_UDP => 0xffff,
        checksum => checksum,
    };
    match word_mut(bytes, layout.checksum_offset, 0) {
        Some(field) if u16::from_be_bytes(*field) == fold(pseudo) => {
            *field = checksum.to_be_bytes();
            true
        }
        _ => false,
    }
}

/// The sum of `~m + m'` over the changed words (RFC 1624, equation 3).
#[derive(Debug, Clone, Copy, Default)]
struct Change(u64);

impl Change {
    /// Records that `old` becomes `new`; both have the same, even, length and begin on a word boundary.
    fn replace(&mut self, old: &[u8], new: &[u8]) {
        let (old, _) = old.as_chunks::<2>();
        let (new, _) = new.as_chunks::<2>();
        for (old, new) in old.iter().zip(new) {
            self.0 += u64::from(!u16::from_be_bytes(*old)) + u64::from(u16::from_be_bytes(*new));
        }
    }

    /// Returns the checksum that replaces `old`: `~(~HC + ~m + m')`.
    fn update(self, old: [u8; 2]) -> [u8; 2] {
        if self.0 == 0 {
            return old;
        }
        let mut total = u64::from(!u16::from_be_bytes(old)) + self.0;
        while total > 0xffff {
            total = (total >> 16) + (total & 0xffff);
        }
        (!(total as u16)).to_be_bytes()
    }
}

/// Inserts an IEEE 802.1Q tag with identifier `vlan` (12 bits) and priority 0 as the outermost tag of an Ethernet frame. `frame`
/// begins with [`TAG_BYTES`] free bytes, which the frame fills afterwards. Returns `false` and changes nothing if it is too short
/// for a frame.
pub fn push_tag(frame: &mut [u8], vlan: u16) -> bool {
    if frame.len() < TAG_BYTES + 14 {
        return false;
    }
    frame.copy_within(TAG_BYTES..TAG_BYTES + 12, 0);
    frame[12..14].copy_from_slice(&headers::ETHERTYPE_VLAN.to_be_bytes());
    frame[14..16].copy_from_slice(&(vlan & headers::VLAN_IDENTIFIER_BITS).to_be_bytes());
    true
}

/// Removes the outermost tag from an Ethernet frame that has one; afterwards the frame begins [`TAG_BYTES`] later. Returns `false`
/// and changes nothing if there is no tag.
pub fn pop_tag(frame: &mut [u8], layout: &Layout) -> bool {
    if !layout.is_ethernet || layout.tags == 0 || frame.len() < TAG_BYTES + 14 {
        return false;
    }
    frame.copy_within(0..12, TAG_BYTES);
    true
}

#[cfg(test)]
mod tests;
