//! Verifies UDP checksums, and decides which flows' checksums can be trusted.
//!
//! A wrong checksum means damage only if the sender fills checksums in and nobody has rewritten the packet since. Captures made
//! on a sender often hold unfinished checksums that it left to its network card, and anonymized captures hold the checksums of
//! other addresses. [`Checksums`] therefore scores each flow (both addresses and ports): a match adds 1, up to [`MAX_SCORE`], and
//! a mismatch subtracts [`MISFIT_COST`], down to 0.
//!
//! | the flow | a mismatch |
//! | --- | --- |
//! | is trusted: its score has reached [`TRUSTED_SCORE`], and has not been 0 since | is damage: the datagram is discarded, as a network stack does |
//! | is not trusted | is used. Once the flow is trusted, it is reported, unless there were more than [`MAX_EARLY`]: mismatches are then normal |
//!
//! So a flow stays trusted while fewer than one in eight of its datagrams mismatch, and eight mismatches in a row always end the
//! trust. A flow with more than [`MAX_EARLY`] mismatches must reach [`MAX_SCORE`] to be trusted again: a second tap that captures
//! the same flow with unfinished checksums, alternating with the first one or in bursts, keeps the flow from being trusted.
//!
//! A checksum that is off by the same amount in every datagram, as after a change of addresses, is no evidence that checksums are
//! finished: a line's heartbeats can be identical for minutes, and then their unfinished checksums are off equally too.
//!
//! TCP checksums are not verified: receivers merge segments, and the merged ones keep unfinished checksums among correct ones.
//!
//! Cost: about 170 instructions plus a quarter of one per byte. The flow is found in one or two cache lines of a 64 KiB table,
//! which is allocated for the first datagram that has a checksum.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use super::{Datagram, HeaderError, Origin, Transport, headers};

/// The score at which a flow becomes trusted.
pub const TRUSTED_SCORE: u8 = 8;

/// Maximum score of a flow.
pub const MAX_SCORE: u8 = 64;

/// How much a mismatch subtracts from its flow's score.
pub const MISFIT_COST: u8 = 8;

/// Maximum mismatches of an untrusted flow that count as damage if the flow becomes trusted after them.
pub const MAX_EARLY: u32 = 8;

/// Maximum mismatches, over all flows, that wait for their flow to become trusted; another one displaces the oldest.
const MAX_EARLY_OF_ALL: usize = 256;

/// Binary logarithm of the number of sets of flows.
const SET_BITS: u32 = 9;

/// Flows per set. A new flow displaces the one with the lowest score.
const WAYS: usize = 4;

/// Size of a UDP header.
pub(super) const UDP_HEADER_BYTES: usize = 8;

/// The datagrams from one socket to another.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    /// Its addresses and ports: see [`key_of`]. 0 marks a free entry.
    key: u128,
    /// Mismatches since the flow was last trusted.
    early: u32,
    score: u8,
    is_trusted: bool,
}

/// A mismatch in an untrusted flow.
#[derive(Debug)]
struct Early {
    key: u128,
    origin: Origin,
    misfit: Misfit,
}

/// A mismatching checksum.
#[derive(Debug, Clone, Copy)]
struct Misfit {
    offset: usize,
    stated: u16,
    computed: u16,
}

impl Misfit {
    const fn error(self, is_used: bool) -> HeaderError {
        let Self { offset, stated, computed } = self;
        HeaderError::Checksum { offset, stated, computed, is_used }
    }
}

/// Verifies the UDP checksums of packets; see the module.
#[derive(Debug, Default)]
pub struct Checksums {
    flows: Option<Box<Flows>>,
    unverified: u64,
}

impl Checksums {
    /// Allocates the flow table in advance: checking datagrams that match then never allocates.
    pub fn preallocated() -> Self {
        Self { flows: Some(Box::default()), unverified: 0 }
    }

    /// Verifies the checksum of `datagram`, whose UDP header and payload are at the start of `udp`. Datagrams without a checksum,
    /// truncated datagrams and TCP segments pass.
    ///
    /// # Errors
    /// [`HeaderError::Checksum`] if the datagram must be discarded.
    #[inline]
    pub fn check(&mut self, datagram: &Datagram<'_>, udp: &[u8], origin: Origin) -> Result<(), HeaderError> {
        if !matches!(datagram.transport, Transport::Udp) || datagram.truncated {
            return Ok(());
        }
        let length = UDP_HEADER_BYTES + datagram.payload.len();
        let (Some(udp), Some(header)) = (udp.get(..length), udp.first_chunk::<UDP_HEADER_BYTES>()) else {
            return Ok(());
        };
        let stated = u16::from_be_bytes([header[6], header[7]]);
        // RFC 768: zero means "no checksum". IPv6 does not allow that (RFC 8200, section 8.1), so there it is a mismatch.
        let has_none = stated == 0 && datagram.source.is_ipv4();
        // A length of 0 was left to the network card, and so was the checksum.
        if has_none || header[4..6] == [0, 0] {
            self.unverified += 1;
            return Ok(());
        }
        let total = fold(swapped_pseudo_sum(datagram, length) + swapped_sum(udp));
        let flows = self.flows.get_or_insert_default();
        let at = flows.find(key_of(datagram));
        if total == u16::MAX {
            self.unverified = self.unverified.saturating_sub(flows.count_fitting(at));
            return Ok(());
        }
        let offset = datagram.payload_offset.saturating_sub(UDP_HEADER_BYTES);
        let misfit = Misfit { offset, stated, computed: computed(total.swap_bytes(), stated) };
        flows.count_misfit(at, misfit, origin)?;
        self.unverified += 1;
        Ok(())
    }

    /// Whether mismatches wait for [`Checksums::take_report`].
    #[inline]
    pub fn has_reports(&self) -> bool {
        self.flows.as_ref().is_some_and(|flows| !flows.reports.is_empty())
    }

    /// Returns the next mismatch that was used before its flow became trusted: where its packet is, and the error.
    pub fn take_report(&mut self) -> Option<(Origin, HeaderError)> {
        self.flows.as_mut()?.reports.pop_front()
    }

    /// Returns the number of datagrams in which a damaged byte would go unnoticed: they have no checksum, or a wrong one in a flow
    /// whose checksums are wrong in general.
    pub const fn unverified(&self) -> u64 {
        self.unverified
    }
}

/// The position of a flow: its set, and its index in the set.
type Place = (usize, usize);

/// The flow table and the mismatches.
#[derive(Debug)]
struct Flows {
    table: Vec<[Flow; WAYS]>,
    early: VecDeque<Early>,
    /// Mismatches whose flow has become trusted, not reported yet.
    reports: VecDeque<(Origin, HeaderError)>,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            table: vec![[Flow::default(); WAYS]; 1 << SET_BITS],
            early: VecDeque::new(),
            reports: VecDeque::new(),
        }
    }
}

impl Flows {
    /// Returns the position of a flow in the table; a new flow gets one.
    #[inline]
    fn find(&mut self, key: u128) -> Place {
        let mixed = (key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (mixed >> (u64::BITS - SET_BITS)) as usize;
        let way = self.table.get(set).and_then(|flows| flows.iter().position(|flow| flow.key == key));
        (set, way.unwrap_or_else(|| self.admit(set, key)))
    }

    #[cold]
    #[inline(never)]
    fn admit(&mut self, set: usize, key: u128) -> usize {
        let flows = self.table.get_mut(set).map(|flows| flows.iter_mut().enumerate());
        let Some((way, weakest)) = flows.and_then(|flows| flows.min_by_key(|(_, flow)| flow.score)) else {
            return 0;
        };
        let displaced = std::mem::replace(weakest, Flow { key, ..Flow::default() });
        if displaced.early > 0 {
            self.early.retain(|early| early.key != displaced.key);
        }
        way
    }

    #[inline]
    fn at(&mut self, (set, way): Place) -> Option<&mut Flow> {
        self.table.get_mut(set)?.get_mut(way)
    }

    /// Counts a match of the flow at `at`. Returns how many earlier mismatches turn out to be damage.
    #[inline]
    fn count_fitting(&mut self, at: Place) -> u64 {
        let Some(flow) = self.at(at).filter(|flow| flow.score < MAX_SCORE) else { return 0 };
        flow.score += 1;
        let enough = if flow.early > MAX_EARLY { MAX_SCORE } else { TRUSTED_SCORE };
        if flow.is_trusted || flow.score < enough {
            return 0;
        }
        flow.is_trusted = true;
        match (flow.key, std::mem::take(&mut flow.early)) {
            (key, 1..=MAX_EARLY) => self.report_early(key),
            _ => 0,
        }
    }

    /// Counts a mismatch of the flow at `at`.
    ///
    /// # Errors
    /// [`HeaderError::Checksum`] if the flow is trusted.
    #[cold]
    #[inline(never)]
    fn count_misfit(&mut self, at: Place, misfit: Misfit, origin: Origin) -> Result<(), HeaderError> {
        let Some(flow) = self.at(at) else { return Ok(()) };
        flow.score = flow.score.saturating_sub(MISFIT_COST);
        if flow.is_trusted && flow.score > 0 {
            return Err(misfit.error(false));
        }
        flow.is_trusted = false;
        flow.early = flow.early.saturating_add(1);
        let (key, early) = (flow.key, flow.early);
        if early <= MAX_EARLY {
            if self.early.len() == MAX_EARLY_OF_ALL {
                self.early.pop_front();
            }
            self.early.push_back(Early { key, origin, misfit });
        } else if early == MAX_EARLY + 1 {
            self.early.retain(|early| early.key != key);
        }
        Ok(())
    }

    /// Reports the few mismatches of a flow that has become trusted. Returns their number.
    #[cold]
    #[inline(never)]
    fn report_early(&mut self, key: u128) -> u64 {
        let reports = &mut self.reports;
        let before = reports.len();
        self.early.retain(|early| {
            let is_other = early.key != key;
            if !is_other {
                reports.push_back((early.origin, early.misfit.error(true)));
            }
            is_other
        });
        (reports.len() - before) as u64
    }
}

/// Encodes a flow's addresses and ports as a number: exact for IPv4, mixed for IPv6.
#[inline]
fn key_of(datagram: &Datagram<'_>) -> u128 {
    let ports = u128::from(datagram.source.port()) << 16 | u128::from(datagram.destination.port());
    match (datagram.source, datagram.destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            let addresses = u128::from(source.ip().to_bits()) << 32 | u128::from(destination.ip().to_bits());
            1 << 127 | addresses << 32 | ports
        }
        (source, destination) => {
            let bits = |address: SocketAddr| match address {
                SocketAddr::V4(address) => u128::from(address.ip().to_bits()),
                SocketAddr::V6(address) => address.ip().to_bits(),
            };
            let mixed = bits(source).rotate_left(61) ^ bits(destination) ^ ports << 40;
            3 << 126 | mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 2
        }
    }
}

/// Computes the checksum of a datagram whose words, including the stated checksum, add up to `total`.
#[cold]
fn computed(total: u16, stated: u16) -> u16 {
    // Adding the complement subtracts.
    match !fold(u64::from(total) + u64::from(!stated)) {
        0 => u16::MAX,
        computed => computed,
    }
}

/// Sums the pseudo header (RFC 768; RFC 8200, section 8.1) of a datagram of `length` bytes, in byte-swapped words.
#[inline]
fn swapped_pseudo_sum(datagram: &Datagram<'_>, length: usize) -> u64 {
    let addresses = match (datagram.source, datagram.destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            let word = |address: Ipv4Addr| u64::from(u32::from_le_bytes(address.octets()));
            word(*source.ip()) + word(*destination.ip())
        }
        (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
            swapped_sum(&source.ip().octets()) + swapped_sum(&destination.ip().octets())
        }
        // No packet has addresses of two versions.
        _ => 0,
    };
    // For a longer datagram the upper half of the length counts too, but no header states it.
    addresses
        + u64::from(u16::from(headers::PROTOCOL_UDP).swap_bytes())
        + u64::from((length as u16).swap_bytes())
}

/// Sums the big-endian 16-bit words of `bytes`, the last padded with zero (RFC 1071), into the low 16 bits; 0 only if all bytes
/// are 0. Partial sums can be added if all parts but the last have an even length.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    u64::from(fold(swapped_sum(bytes)).swap_bytes())
}

/// Like [`sum`], but over byte-swapped words and not folded: below 2^34. The sum of swapped words is the swapped sum (RFC 1071,
/// section 2).
///
/// It adds eight-byte words with their carries, in two chains at a time.
#[inline]
fn swapped_sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let (mut even, mut odd) = (0u128, 0u128);
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        even += u128::from(u64::from_le_bytes(words[0])) + u128::from(u64::from_le_bytes(words[2]));
        odd += u128::from(u64::from_le_bytes(words[1])) + u128::from(u64::from_le_bytes(words[3]));
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        even += u128::from(u64::from_le_bytes(*word));
    }
    let last = match bytes.last_chunk::<8>() {
        _ if rest.is_empty() => 0,
        // The last eight bytes, without those already in the sum.
        Some(last) => u64::from_le_bytes(*last) >> (u64::BITS as usize - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte)),
    };
    let total = even + odd + u128::from(last);
    let low = total as u64;
    (low & u64::from(u32::MAX)) + (low >> 32) + (total >> 64) as u64
}

/// Folds a sum into 16 bits with end-around carry.
#[inline]
pub(super) const fn fold(total: u64) -> u16 {
    let total = (total >> 32) + (total & 0xffff_ffff);
    // At most 33 bits, then 18, then 17, then 16.
    let total = (total >> 16) + (total & 0xffff);
    let total = (total >> 16) + (total & 0xffff);
    let total = (total >> 16) + (total & 0xffff);
    total as u16
}

#[cfg(test)]
mod tests;
