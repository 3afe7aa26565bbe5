//! Faults of lines A and B: loss, duplication, late copies, reordering, and line B's skew.
//!
//! Cost: each packet is copied and pushed onto a heap. Memory: the packets that are delayed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use tapeworks_session::Content;

use crate::report::VenueReport;
use crate::scenario::LineFaults;
use tapeworks_random::Random;

/// Delay of a duplicate after the original, in nanoseconds.
const REPEAT_AFTER_NS: u64 = 1_000;

/// A packet waiting for its send time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Waiting {
    pub(crate) time_ns: u64,
    /// Orders packets with equal times.
    number: u64,
    pub(crate) venue: usize,
    pub(crate) line: usize,
    pub(crate) frame: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) messages: u16,
}

/// The lines of one venue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineOptions {
    /// 1 or 2.
    pub(crate) lines: usize,
    pub(crate) faults: [LineFaults; 2],
    /// Maximum delay of line B after line A.
    pub(crate) skew_ns: u64,
}

#[derive(Debug)]
struct VenueLines {
    options: LineOptions,
    /// When each line last sent a packet.
    sent_ns: [u64; 2],
    /// On each line, a packet that waits to be overtaken by its successor.
    overtaken: [Option<Waiting>; 2],
}

/// A packet before it is copied to its lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) venue: usize,
    pub(crate) now_ns: u64,
    pub(crate) content: Content,
    pub(crate) messages: u16,
}

/// All lines of all venues.
#[derive(Debug)]
pub(crate) struct Lines {
    venues: Vec<VenueLines>,
    /// A separate generator, so that faults do not change the market.
    random: Random,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    made: u64,
}

impl Lines {
    pub(crate) fn new(seed: u64, venues: impl Iterator<Item = LineOptions>) -> Self {
        Self {
            venues: venues
                .map(|options| VenueLines { options, sent_ns: [0; 2], overtaken: [None, None] })
                .collect(),
            random: Random::new(seed ^ 0x6C69_6E65_7300_0000),
            waiting: BinaryHeap::new(),
            spare: Vec::new(),
            made: 0,
        }
    }

    /// Returns when the next packet is due.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.waiting.peek().map(|first| first.0.time_ns)
    }

    /// Takes the next packet, if it is due by `until_ns`. The caller returns its buffer through [`Lines::reuse`].
    pub(crate) fn take(&mut self, until_ns: u64) -> Option<Waiting> {
        let first = self.waiting.peek_mut()?;
        if first.0.time_ns > until_ns {
            return None;
        }
        Some(PeekMut::pop(first).0)
    }

    pub(crate) fn reuse(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }

    /// Releases packets that wait for a successor that will not come.
    pub(crate) fn release(&mut self, venue: usize) {
        let Some(venue) = self.venues.get_mut(venue) else { return };
        for (line, overtaken) in venue.overtaken.iter_mut().enumerate() {
            if let Some(mut packet) = overtaken.take() {
                // A later packet without messages may already have been sent.
                packet.time_ns = packet.time_ns.max(venue.sent_ns[line]);
                self.waiting.push(Reverse(packet));
            }
        }
    }

    /// Sends a packet on its venue's lines. `frame` builds the packet as it appears on a line, and returns whether it succeeded.
    pub(crate) fn send(
        &mut self,
        outgoing: Outgoing,
        report: &mut VenueReport,
        mut frame: impl FnMut(usize, &mut Vec<u8>) -> bool,
    ) {
        let Outgoing { venue, now_ns, content, messages } = outgoing;
        let Some(state) = self.venues.get_mut(venue) else { return };
        let mut dropped = 0;
        for line in 0..state.options.lines {
            let faults =
                if content == Content::Messages { state.options.faults[line] } else { LineFaults::default() };
            let late_ns = if line == 0 {
                0
            } else {
                1 + self.random.below(state.options.skew_ns.min(u64::from(u32::MAX)) as u32)
            };
            let time_ns = state.sent_ns[line].max(now_ns + u64::from(late_ns));
            state.sent_ns[line] = time_ns;
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            if !frame(line, &mut copy) {
                continue;
            }
            let number = self.made;
            let mut packet = Waiting { time_ns, number, venue, line, frame: copy, content, messages };
            self.made += 1;

            let injected = &mut report.injected[line];
            let messages = u64::from(messages);
            if self.random.chance(faults.lost_per_million) {
                injected.dropped_packets += 1;
                injected.dropped_messages += messages;
                dropped += 1;
                self.spare.push(packet.frame);
                continue;
            }
            if self.random.chance(faults.reordered_per_million) && state.overtaken[line].is_none() {
                state.overtaken[line] = Some(packet);
                continue;
            }
            if self.random.chance(faults.duplicated_per_million) {
                injected.duplicated_packets += 1;
                injected.duplicated_messages += messages;
                let mut repeat = packet.clone();
                repeat.time_ns += REPEAT_AFTER_NS;
                self.waiting.push(Reverse(repeat));
            }
            if self.random.chance(faults.late_copies_per_million) {
                injected.late_copies += 1;
                let mut copy = packet.clone();
                copy.time_ns += self.random.bits() % faults.late_copy_ns.max(1);
                self.waiting.push(Reverse(copy));
            }
            if content == Content::Messages
                && let Some(mut overtaken) = state.overtaken[line].take()
            {
                // It takes its successor's time, and the higher of the two numbers.
                overtaken.time_ns = time_ns;
                std::mem::swap(&mut overtaken.number, &mut packet.number);
                injected.reordered_packets += 1;
                self.waiting.push(Reverse(overtaken));
            }
            self.waiting.push(Reverse(packet));
        }
        if content == Content::Messages && dropped == state.options.lines {
            report.lost_messages += u64::from(messages);
        }
    }
}
