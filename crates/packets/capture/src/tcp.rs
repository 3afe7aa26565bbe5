//! Puts the payload of TCP segments back in order: each direction of each connection becomes a stream of bytes without
//! duplicates. Bytes that the capture missed are reported.
//!
//! A [`Reassembler`] takes every TCP [`Datagram`] of a capture and calls back with [`StreamEvent`]s. It keeps early segments,
//! up to [`Limits`]; beyond that it gives up the missing bytes and reports a gap. It is an observer: it trusts neither end,
//! acknowledges nothing, and verifies no checksum.
//!
//! Cost: an in-order segment takes one hash lookup and is passed on without a copy. An out-of-order segment is copied (one
//! allocation), and a new connection is one allocation.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::net::SocketAddr;

use crate::net::{Datagram, TcpFlags, TcpHeader, Transport};

/// A segment that starts this many bytes before the delivered position belongs to a new connection whose start was missed: no
/// sender leaves so much unacknowledged.
const MAX_REWIND_BYTES: u32 = 64 << 20;

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The sender of the bytes.
    pub source: SocketAddr,
    /// The receiver of the bytes.
    pub destination: SocketAddr,
}

/// An event of a [`Reassembler`]. Offsets count a flow's bytes from its opening, gaps included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// A flow starts at offset 0.
    Opened {
        /// The flow.
        flow: Flow,
        /// Its beginning was not captured, so the first bytes may be in the middle of a message.
        midway: bool,
    },
    /// The next bytes of a flow, in order.
    Bytes {
        /// The flow.
        flow: Flow,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes; never empty.
        bytes: &'a [u8],
    },
    /// Bytes of a flow that are missing from the capture; the next event continues after them.
    Hole {
        /// The flow.
        flow: Flow,
        /// Offset of the first lost byte.
        offset: u64,
        /// Number of lost bytes.
        lost: u64,
    },
    /// A flow has ended: by FIN, by RST, by a new connection between the same ports, or because it was evicted for another flow.
    Closed {
        /// The flow.
        flow: Flow,
        /// Length of the flow in bytes, including holes.
        length: u64,
    },
}

/// Maximum memory of a [`Reassembler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of early segments kept per flow.
    pub early_bytes: usize,
    /// Early segments kept per flow.
    pub early_segments: usize,
    /// Flows kept; one more evicts the flow that has been silent longest.
    pub flows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { early_bytes: 4 << 20, early_segments: 1_024, flows: 4_096 }
    }
}

/// Counters of a [`Reassembler`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// TCP segments seen.
    pub segments: u64,
    /// Bytes delivered in order.
    pub delivered_bytes: u64,
    /// Bytes dropped because they had already been delivered or kept.
    pub repeated_bytes: u64,
    /// Early segments kept.
    pub early_segments: u64,
    /// Holes reported.
    pub holes: u64,
    /// Bytes in those holes.
    pub lost_bytes: u64,
    /// Bytes after a flow's end, dropped.
    pub late_bytes: u64,
    /// Flows opened.
    pub flows_opened: u64,
    /// Flows evicted because there were too many.
    pub flows_forgotten: u64,
}

/// Puts TCP segments back in order, flow by flow.
#[derive(Debug, Default)]
pub struct Reassembler {
    flows: HashMap<Flow, Stream>,
    limits: Limits,
    counters: Counters,
}

/// The state of a flow.
#[derive(Debug)]
struct Stream {
    /// Sequence number of the byte at `delivered`.
    next_sequence: u32,
    /// Sequence number of the SYN, if it was captured: a SYN with the same number is a retransmission, any other is a new connection.
    syn_sequence: Option<u32>,
    /// Bytes delivered or given up.
    delivered: u64,
    /// Early segments, by offset.
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
    /// Offset of the end, if the sender has announced it.
    end: Option<u64>,
    closed: bool,
    /// Number of the last segment; finds the flow that has been silent longest.
    last_segment: u64,
}

impl Reassembler {
    /// Creates a reassembler with these limits; at least one flow is kept.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { flows: limits.flows.max(1), ..limits };
        Self { flows: HashMap::new(), limits, counters: Counters::default() }
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes one datagram, in capture order, and reports the bytes that are complete now. Ignores UDP.
    pub fn push(&mut self, datagram: &Datagram<'_>, mut report: impl FnMut(StreamEvent<'_>)) {
        let Transport::Tcp(header) = datagram.transport else { return };
        self.counters.segments += 1;
        let flow = Flow { source: datagram.source, destination: datagram.destination };
        let mut known = self.flows.contains_key(&flow);
        if !known && self.flows.len() >= self.limits.flows {
            self.forget_one(&mut report);
        }
        let mut session = Session { flow, counters: &mut self.counters, report: &mut report };
        let stream = match self.flows.entry(flow) {
            Entry::Occupied(occupied) => {
                let stream = occupied.into_mut();
                if stream.begins_anew(header) {
                    stream.close(&mut session);
                    *stream = Stream::open(header);
                    known = false;
                }
                stream
            }
            Entry::Vacant(vacant) => vacant.insert(Stream::open(header)),
        };
        if !known {
            session.counters.flows_opened += 1;
            (session.report)(StreamEvent::Opened { flow, midway: stream.syn_sequence.is_none() });
        }
        stream.last_segment = session.counters.segments;
        stream.accept(header, datagram.payload, datagram.truncated, &self.limits, &mut session);
    }

    /// Ends all flows, in the order of their last segment: reports each gap and delivers the segments after it. Call it at
    /// the end of the capture.
    pub fn finish(&mut self, mut report: impl FnMut(StreamEvent<'_>)) {
        let mut flows: Vec<_> = self.flows.drain().collect();
        flows.sort_by_key(|(_, stream)| stream.last_segment);
        for (flow, mut stream) in flows {
            stream.close(&mut Session { flow, counters: &mut self.counters, report: &mut report });
        }
    }

    /// Evicts the flow that has been silent longest, preferring closed flows.
    #[cold]
    fn forget_one(&mut self, report: &mut dyn FnMut(StreamEvent<'_>)) {
        let silent = self.flows.iter().min_by_key(|(_, stream)| (!stream.closed, stream.last_segment));
        let Some(flow) = silent.map(|(flow, _)| *flow) else { return };
        if let Some(mut stream) = self.flows.remove(&flow) {
            self.counters.flows_forgotten += u64::from(!stream.closed);
            stream.close(&mut Session { flow, counters: &mut self.counters, report });
        }
    }
}

/// The receivers of a flow's events and counts.
struct Session<'a> {
    flow: Flow,
    counters: &'a mut Counters,
    report: &'a mut dyn FnMut(StreamEvent<'_>),
}

impl Stream {
    /// Opens a flow whose first captured segment has this header.
    fn open(header: TcpHeader) -> Self {
        let syn = header.flags.contains(TcpFlags::SYN);
        Self {
            next_sequence: header.sequence.wrapping_add(u32::from(syn)),
            syn_sequence: syn.then_some(header.sequence),
            delivered: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            end: None,
            closed: false,
            last_segment: 0,
        }
    }

    /// Returns whether a segment with this header belongs to a new connection between the same ports.
    fn begins_anew(&self, header: TcpHeader) -> bool {
        if header.flags.contains(TcpFlags::SYN) {
            // A SYN may also arrive after the first data (the capture swapped them). It then matches the expected number.
            let fits_midway = self.syn_sequence.is_none()
                && self.next_sequence.wrapping_sub(header.sequence.wrapping_add(1)) <= MAX_REWIND_BYTES;
            return self.syn_sequence != Some(header.sequence) && !fits_midway;
        }
        let behind = self.next_sequence.wrapping_sub(header.sequence);
        !self.closed && behind > MAX_REWIND_BYTES && behind < 1 << 31
    }

    fn accept(
        &mut self,
        header: TcpHeader,
        payload: &[u8],
        truncated: bool,
        limits: &Limits,
        session: &mut Session<'_>,
    ) {
        if self.closed {
            session.counters.late_bytes += payload.len() as u64;
            return;
        }
        let sequence = header.sequence.wrapping_add(u32::from(header.flags.contains(TcpFlags::SYN)));
        // Sequence numbers wrap; a number less than half the circle ahead is ahead (RFC 9293, section 3.4).
        let ahead = i64::from(sequence.wrapping_sub(self.next_sequence).cast_signed());
        let behind = usize::try_from(-ahead).unwrap_or(0);
        if behind > 0 {
            session.counters.repeated_bytes += behind.min(payload.len()) as u64;
        }
        let fresh = payload.get(behind..).unwrap_or_default();
        let offset = self.delivered + u64::try_from(ahead).unwrap_or(0);
        // The length of a truncated segment is unknown, and so is the position of its FIN.
        if header.flags.contains(TcpFlags::FIN) && !truncated {
            self.end = Some(offset + fresh.len() as u64);
        }
        if !fresh.is_empty() {
            if ahead <= 0 {
                self.deliver(fresh, session);
                self.deliver_early(session);
            } else {
                self.keep(offset, fresh, session);
                while self.early.len() > limits.early_segments || self.early_bytes > limits.early_bytes {
                    self.give_up_hole(session);
                }
            }
        }
        if header.flags.contains(TcpFlags::RST) || self.end.is_some_and(|end| self.delivered >= end) {
            self.close(session);
        }
    }

    /// Delivers the next bytes in order.
    fn deliver(&mut self, bytes: &[u8], session: &mut Session<'_>) {
        let offset = self.delivered;
        self.delivered += bytes.len() as u64;
        // A payload, kept or not, is shorter than 64 KiB, so the cast truncates nothing.
        self.next_sequence = self.next_sequence.wrapping_add(bytes.len() as u32);
        session.counters.delivered_bytes += bytes.len() as u64;
        (session.report)(StreamEvent::Bytes { flow: session.flow, offset, bytes });
    }

    /// Delivers the early segments that are next in order.
    fn deliver_early(&mut self, session: &mut Session<'_>) {
        while let Some(entry) = self.early.first_entry()
            && *entry.key() <= self.delivered
        {
            let (offset, bytes) = entry.remove_entry();
            self.early_bytes -= bytes.len();
            let known = usize::try_from(self.delivered - offset).unwrap_or(usize::MAX).min(bytes.len());
            session.counters.repeated_bytes += known as u64;
            if known < bytes.len() {
                self.deliver(&bytes[known..], session);
            }
        }
    }

    /// Keeps an early segment. Of two that begin at the same byte the longer one stays; other overlaps are resolved at
    /// delivery, where the earlier bytes win.
    fn keep(&mut self, offset: u64, bytes: &[u8], session: &mut Session<'_>) {
        session.counters.early_segments += 1;
        match self.early.entry(offset) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(bytes.to_vec());
                self.early_bytes += bytes.len();
            }
            std::collections::btree_map::Entry::Occupied(mut kept) => {
                let (shorter, longer) =
                    (kept.get().len().min(bytes.len()), kept.get().len().max(bytes.len()));
                session.counters.repeated_bytes += shorter as u64;
                if bytes.len() == longer && shorter < longer {
                    self.early_bytes += longer - shorter;
                    kept.insert(bytes.to_vec());
                }
            }
        }
    }

    /// Gives up the bytes before the first early segment and delivers what follows them.
    fn give_up_hole(&mut self, session: &mut Session<'_>) {
        let Some((&offset, _)) = self.early.first_key_value() else { return };
        let lost = offset.saturating_sub(self.delivered);
        if lost > 0 {
            session.counters.holes += 1;
            session.counters.lost_bytes += lost;
            (session.report)(StreamEvent::Hole { flow: session.flow, offset: self.delivered, lost });
            self.delivered = offset;
            // Offsets advance with sequence numbers, which count modulo 2^32.
            self.next_sequence = self.next_sequence.wrapping_add(lost as u32);
        }
        self.deliver_early(session);
    }

    /// Delivers the remaining segments and their gaps, and reports the end, once.
    fn close(&mut self, session: &mut Session<'_>) {
        if self.closed {
            return;
        }
        while !self.early.is_empty() {
            self.give_up_hole(session);
        }
        if let Some(end) = self.end
            && end > self.delivered
        {
            let lost = end - self.delivered;
            session.counters.holes += 1;
            session.counters.lost_bytes += lost;
            (session.report)(StreamEvent::Hole { flow: session.flow, offset: self.delivered, lost });
            self.delivered = end;
        }
        self.closed = true;
        (session.report)(StreamEvent::Closed { flow: session.flow, length: self.delivered });
    }
}

#[cfg(test)]
mod tests;
