//! Reassembles fragmented IP packets (RFC 791, section 3.2; RFC 8200, section 4.5).
//!
//! A [`Defragmenter`] reads packets like [`parse`](super::parse), but keeps fragments until their packet is complete, in whatever
//! order they arrive. It keeps at most [`MAX_PENDING`] packets of 64 KiB for at most [`MAX_AGE_NS`]. A packet that is incomplete
//! by then, or at the end of the capture, is reported at the location of its first fragment. Fragments that overlap with different
//! bytes make their packet incomplete too (RFC 5722).
//!
//! Cost: nothing for an unfragmented packet on the fast path; a fragment is copied once, or twice if it is the last.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::headers::{self, Cursor, Found, Network, Part};
use super::{Datagram, HeaderError, parse_usual};
use crate::link_type::LinkType;

/// Maximum number of packets waiting for fragments; another one displaces the oldest.
pub const MAX_PENDING: usize = 64;

/// Number of completed packets that are remembered.
const MAX_DONE: usize = 16;

/// How long a packet waits for its fragments. A sender sends them back to back, and at market data rates IPv4's 16-bit
/// identification repeats within seconds.
pub const MAX_AGE_NS: u64 = 1_000_000_000;

/// The longest payload of an IP packet.
const MAX_PAYLOAD_BYTES: usize = u16::MAX as usize;

/// The location of a packet, for reports about its fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The packet's number.
    pub number: u64,
    /// Offset of its bytes.
    pub offset: u64,
    /// When it was captured.
    pub timestamp_ns: u64,
}

/// Identifies the packet that a fragment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// `None` for IPv6, where only the first fragment knows it (RFC 8200, section 4.5).
    protocol: Option<u8>,
    vlan: Option<u16>,
}

/// The fragment with the transport header.
#[derive(Debug, Clone, Copy)]
struct Head {
    origin: Origin,
    /// Offset of the IP packet's payload in it.
    payload_offset: usize,
    /// The transport protocol.
    protocol: u8,
}

/// A packet waiting for fragments.
#[derive(Debug)]
struct Pending {
    key: Key,
    /// Location of the fragment that arrived first.
    origin: Origin,
    /// Known from the fragment at offset 0.
    head: Option<Head>,
    bytes: Vec<u8>,
    /// Ranges of bytes present, in order, with gaps between them.
    present: Vec<(usize, usize)>,
    /// The payload's length, known from the last fragment.
    length: Option<usize>,
    is_contradicted: bool,
}

impl Pending {
    /// Adds a fragment's bytes.
    fn take(&mut self, part: Part, head: Head, bytes: &[u8]) {
        let start = part.offset as usize;
        let end = start + bytes.len();
        let is_beyond = end > MAX_PAYLOAD_BYTES || self.length.is_some_and(|length| end > length);
        let is_other_end =
            !part.more && (self.length.is_some_and(|length| length != end) || self.bytes.len() > end);
        if is_beyond || is_other_end {
            self.is_contradicted = true;
            return;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        for &(from, to) in &self.present {
            let (from, to) = (from.max(start), to.min(end));
            if from < to && self.bytes[from..to] != bytes[from - start..to - start] {
                self.is_contradicted = true;
                return;
            }
        }
        self.bytes[start..end].copy_from_slice(bytes);
        if start == 0 {
            self.head.get_or_insert(head);
        }
        if !part.more {
            self.length = Some(end);
        }
        let mut merged = (start, end);
        self.present.retain(|&(from, to)| {
            let touches = from <= merged.1 && merged.0 <= to;
            if touches {
                merged = (merged.0.min(from), merged.1.max(to));
            }
            !touches
        });
        self.present.push(merged);
    }

    fn whole(&self) -> Option<Head> {
        let is_whole = !self.is_contradicted
            && matches!((self.present[..].first(), self.length), (Some(&(0, to)), Some(length)) if to == length)
            && self.present.len() == 1;
        self.head.filter(|_| is_whole)
    }

    fn report(&self) -> (Origin, HeaderError) {
        let Key { source: sender, destination: receiver, identification, .. } = self.key;
        let present = self.present.iter().map(|(from, to)| to - from).sum::<usize>();
        let present = u32::try_from(present).unwrap_or(u32::MAX);
        (self.origin, HeaderError::Incomplete { sender, receiver, identification, present })
    }
}

/// Reads packets and reassembles fragments; see the module.
#[derive(Debug, Default)]
pub struct Defragmenter {
    /// Oldest first.
    pending: Vec<Pending>,
    /// Displaced or contradicted packets, not reported yet.
    lost: Vec<(Origin, HeaderError)>,
    /// The packets completed most recently, newest last. If a tap captures each packet twice, the fragments of the second copy are
    /// not taken for a new packet.
    done: VecDeque<Done>,
}

/// A completed packet.
#[derive(Debug)]
struct Done {
    key: Key,
    timestamp_ns: u64,
    bytes: Vec<u8>,
}

impl Done {
    /// Whether a fragment duplicates a part of this packet.
    fn holds(&self, key: &Key, part: Part, bytes: &[u8], now_ns: u64) -> bool {
        let start = part.offset as usize;
        let end = start + bytes.len();
        self.key == *key
            && now_ns.saturating_sub(self.timestamp_ns) <= MAX_AGE_NS
            && self.bytes.get(start..end) == Some(bytes)
            && (part.more || end == self.bytes.len())
    }
}

impl Defragmenter {
    /// Finds the UDP or TCP payload in a captured packet, or in the packet that it completes. It also returns the packet's location:
    /// `origin`, or that of the fragment with the transport header.
    ///
    /// # Errors
    /// As [`parse`](super::parse); [`HeaderError::Fragment`] for a fragment that was kept.
    #[inline]
    pub fn parse<'a>(
        &'a mut self,
        link_type: LinkType,
        bytes: &'a [u8],
        origin: Origin,
    ) -> Result<(Datagram<'a>, Origin), HeaderError> {
        self.parse_with_transport(link_type, bytes, origin).map(|(datagram, _, origin)| (datagram, origin))
    }

    /// Like [`Defragmenter::parse`], but also returns the packet's bytes from the UDP header on; for TCP, arbitrary bytes.
    #[inline]
    pub(super) fn parse_with_transport<'a>(
        &'a mut self,
        link_type: LinkType,
        bytes: &'a [u8],
        origin: Origin,
    ) -> Result<(Datagram<'a>, &'a [u8], Origin), HeaderError> {
        if link_type == LinkType::ETHERNET
            && let Some(datagram) = parse_usual(bytes)
        {
            return Ok((datagram, datagram.from_udp_header(bytes), origin));
        }
        self.parse_general(link_type, bytes, origin)
    }

    #[cold]
    #[inline(never)]
    fn parse_general<'a>(
        &'a mut self,
        link_type: LinkType,
        bytes: &'a [u8],
        origin: Origin,
    ) -> Result<(Datagram<'a>, &'a [u8], Origin), HeaderError> {
        let (network, vlan) = match headers::walk(link_type, bytes)? {
            Found::Datagram(datagram) => return Ok((datagram, datagram.from_udp_header(bytes), origin)),
            Found::Fragment(network, vlan) => (network, vlan),
        };
        let Some(part) = network.part else { return Err(HeaderError::TooDeep) };
        let Some(head) = self.keep(&network, part, vlan, origin) else { return Err(part.error()) };
        let bytes = self.done.back().map_or(&[][..], |done| &done.bytes);
        let whole = Network {
            protocol: head.protocol,
            payload: Cursor { bytes, at: 0 },
            truncated: false,
            part: None,
            ..network
        };
        match headers::walk_payload(whole, vlan)? {
            Found::Datagram(datagram) => {
                let transport = datagram.from_udp_header(bytes);
                let payload_offset = head.payload_offset + datagram.payload_offset;
                Ok((Datagram { payload_offset, ..datagram }, transport, head.origin))
            }
            // A fragmented packet inside a fragmented tunnel.
            Found::Fragment(..) => Err(HeaderError::TooDeep),
        }
    }

    /// Keeps a fragment. If that completes its packet, the packet becomes the last one in `done`, and its head is returned.
    fn keep(&mut self, network: &Network<'_>, part: Part, vlan: Option<u16>, origin: Origin) -> Option<Head> {
        let Network { source, destination, protocol, payload, .. } = *network;
        let key = Key {
            source,
            destination,
            identification: part.identification,
            protocol: destination.is_ipv4().then_some(protocol),
            vlan,
        };
        // The last bytes of a truncated fragment are missing, so more must follow.
        let part = Part { more: part.more || network.truncated, ..part };
        let bytes = payload.rest();
        let bytes = if part.more { &bytes[..bytes.len() / 8 * 8] } else { bytes };
        let at = match self.pending.iter().position(|pending| pending.key == key) {
            Some(at) => at,
            None if self.done.iter().any(|done| done.holds(&key, part, bytes, origin.timestamp_ns)) => {
                return None;
            }
            None => self.begin(key, origin),
        };
        let pending = self.pending.get_mut(at)?;
        pending.take(part, Head { origin, payload_offset: payload.at, protocol }, bytes);
        let head = pending.whole()?;
        let bytes = self.pending.remove(at).bytes;
        if self.done.len() == MAX_DONE {
            self.done.pop_front();
        }
        self.done.push_back(Done { key, timestamp_ns: origin.timestamp_ns, bytes });
        Some(head)
    }

    /// Adds a packet, displacing the oldest if there are too many.
    fn begin(&mut self, key: Key, origin: Origin) -> usize {
        if self.pending.len() == MAX_PENDING {
            self.lost.push(self.pending.remove(0).report());
        }
        self.pending.push(Pending {
            key,
            origin,
            head: None,
            bytes: Vec::new(),
            present: Vec::new(),
            length: None,
            is_contradicted: false,
        });
        self.pending.len() - 1
    }

    /// Whether packets are waiting for fragments, or are lost and not reported yet.
    #[inline]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty() || !self.lost.is_empty()
    }

    /// Returns a packet that is finally incomplete at `now_ns` (`None`: at the end of the input): the location of its first fragment,
    /// and an [error](HeaderError::Incomplete) that says what is missing.
    #[cold]
    pub fn take_lost(&mut self, now_ns: Option<u64>) -> Option<(Origin, HeaderError)> {
        if !self.lost.is_empty() {
            return Some(self.lost.remove(0));
        }
        let is_old = |pending: &Pending| {
            now_ns.is_none_or(|now| now.saturating_sub(pending.origin.timestamp_ns) > MAX_AGE_NS)
        };
        let oldest = self.pending.iter().position(is_old)?;
        Some(self.pending.remove(oldest).report())
    }
}
