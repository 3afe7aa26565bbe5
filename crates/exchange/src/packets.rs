//! The venues' lines: messages in MoldUDP64 packets or IEX-TP segments, in UDP, IPv4 and Ethernet, to the real multicast
//! groups; with heartbeats, a line B, and faults of the lines on request.
//!
//! Cost: a copy of each message and of each packet, and the checksum. Memory: one open packet per venue, and the packets that
//! wait for their time (line B's skew, repeats).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use tapeworks_packet::net::build::{BuildError, FrameBuilder};
use tapeworks_wire::iex::tp::{MessageProtocolId, SegmentFields};
use tapeworks_wire::nasdaq::moldudp64::{DownstreamPacketFields, END_OF_SESSION, HEARTBEAT};
use tapeworks_wire::{Ascii, NanosecondsSinceEpoch};

use crate::generator::{Generated, Generator, MAX_MESSAGE_BYTES};
use crate::random::Random;
use crate::report::{Counter, Report};
use crate::scenario::{HOUR_NS, LineFaults, Scenario, ScenarioError, VenueKind};

/// The longest UDP payload that is sent, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1_400;

/// Bytes of Ethernet, IPv4 and UDP headers without a VLAN tag.
const NETWORK_HEADERS_BYTES: usize = 42;
const MOLD_HEADER_BYTES: usize = 20;
const IEX_TP_HEADER_BYTES: usize = 40;
/// How long after the first a repeated packet comes, in nanoseconds.
const REPEAT_AFTER_NS: u64 = 1_000;
/// How long after the last message a session ends, in nanoseconds.
const END_AFTER_NS: u64 = 1_000_000;
/// The senders' Ethernet address: locally administered, one for each line.
const SENDERS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xA], [2, 0, 0, 0, 0, 0xB]];

/// A packet on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was sent, in nanoseconds since 1970-01-01 00:00 UTC; never less than that of the packet before it.
    pub timestamp_ns: u64,
    /// Index into the scenario's venues.
    pub venue: usize,
    /// 0: line A; 1: line B.
    pub line: usize,
    /// The whole Ethernet frame.
    pub frame: &'a [u8],
    /// The UDP payload within it.
    pub payload: &'a [u8],
}

/// One venue's open packet and its session.
#[derive(Debug, Clone)]
struct Sender {
    kind: VenueKind,
    session: Ascii<10>,
    iex_session: u32,
    builders: [FrameBuilder; 2],
    /// Network headers, transport header, and the messages so far.
    frame: Vec<u8>,
    filled: usize,
    messages: u16,
    /// When the open packet goes at the latest; `u64::MAX` if there is none.
    deadline_ns: u64,
    /// When a heartbeat is due; `u64::MAX` if none.
    heartbeat_ns: u64,
    next_sequence: u64,
    stream_offset: u64,
    /// Of each line, when its last packet was sent.
    sent_ns: [u64; 2],
    /// Of each line, a packet that waits for its successor to go first.
    overtaken: [Option<Waiting>; 2],
}

impl Sender {
    fn new(number: usize, kind: VenueKind, midnight_ns: u64) -> Self {
        let ([group_a, group_b], [source_a, source_b]) = (kind.groups(), kind.sources());
        let mut session = *b"TAPEWORKSA";
        session[9] += number as u8;
        let mut sender = Self {
            kind,
            session: Ascii(session),
            iex_session: (midnight_ns / (24 * HOUR_NS)) as u32,
            builders: [
                FrameBuilder::to_group(SENDERS[0], source_a, group_a),
                FrameBuilder::to_group(SENDERS[1], source_b, group_b),
            ],
            frame: vec![0; NETWORK_HEADERS_BYTES + MAX_PAYLOAD_BYTES],
            filled: 0,
            messages: 0,
            deadline_ns: u64::MAX,
            heartbeat_ns: u64::MAX,
            next_sequence: 1,
            stream_offset: 0,
            sent_ns: [0; 2],
            overtaken: [None, None],
        };
        sender.filled = sender.blocks_start();
        sender
    }

    fn blocks_start(&self) -> usize {
        NETWORK_HEADERS_BYTES + if self.kind.is_itch() { MOLD_HEADER_BYTES } else { IEX_TP_HEADER_BYTES }
    }

    fn due_ns(&self) -> u64 {
        self.deadline_ns.min(self.heartbeat_ns)
    }

    fn has_room(&self, message: &[u8]) -> bool {
        self.filled + 2 + message.len() <= self.frame.len()
    }

    /// Puts a message into the open packet, which has room for it.
    fn put(&mut self, message: &[u8]) {
        // No message is longer than MAX_MESSAGE_BYTES.
        let length = message.len() as u16;
        let prefix = if self.kind.is_itch() { length.to_be_bytes() } else { length.to_le_bytes() };
        let (start, end) = (self.filled, self.filled + 2 + message.len());
        self.frame[start..start + 2].copy_from_slice(&prefix);
        self.frame[start + 2..end].copy_from_slice(message);
        self.filled = end;
        self.messages += 1;
    }

    /// Writes the transport's header before the messages; `special` replaces the count. Answers the payload's length.
    fn close(&mut self, now_ns: u64, special: Option<u16>) -> usize {
        let header = &mut self.frame[NETWORK_HEADERS_BYTES..];
        let blocks = self.filled - NETWORK_HEADERS_BYTES;
        let written = if self.kind.is_itch() {
            let fields = DownstreamPacketFields {
                session: self.session,
                sequence_number: self.next_sequence,
                message_count: special.unwrap_or(self.messages),
                messages: &[],
            };
            fields.encode_into(&mut header[..MOLD_HEADER_BYTES])
        } else {
            let payload_length = (blocks - IEX_TP_HEADER_BYTES) as u16;
            let fields = SegmentFields {
                version: 1,
                reserved: [0],
                message_protocol_id: if self.kind == VenueKind::IexTops {
                    MessageProtocolId::Tops
                } else {
                    MessageProtocolId::Deep
                },
                channel_id: 1,
                session_id: self.iex_session,
                payload_length,
                message_count: self.messages,
                stream_offset: self.stream_offset,
                first_message_sequence_number: self.next_sequence,
                send_time: NanosecondsSinceEpoch(now_ns),
                messages: &[],
            };
            self.stream_offset += u64::from(payload_length);
            fields.encode_into(&mut header[..IEX_TP_HEADER_BYTES])
        };
        debug_assert!(written.is_ok(), "the header has its room: {written:?}");
        blocks
    }
}

/// A packet that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Waiting {
    time_ns: u64,
    /// Orders the packets of one time.
    number: u64,
    venue: usize,
    line: usize,
    frame: Vec<u8>,
}

/// A market as a stream of packets on its lines, in order of time. Same scenario, same bytes.
///
/// ```
/// use tapeworks_exchange::{Packets, Scenario};
///
/// # fn main() -> Result<(), tapeworks_exchange::ScenarioError> {
/// let mut packets = Packets::new(&Scenario::full_session(10_000, 20))?;
/// while let Some(packet) = packets.next_packet() {
///     assert!(packet.payload.len() >= 20, "a MoldUDP64 header at least");
/// }
/// assert_eq!(packets.report().messages, 10_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Packets {
    generator: Generator,
    senders: Vec<Sender>,
    lines: usize,
    skew_ns: u64,
    hold_ns: u64,
    heartbeat_ns: u64,
    faults: [LineFaults; 2],
    /// Of its own, so that faults do not change the market.
    random: Random,
    /// The next message, whose time is not reached yet.
    held: Option<Generated>,
    message: [u8; MAX_MESSAGE_BYTES],
    /// The earliest time at which some sender has to do something.
    due_ns: u64,
    ended: bool,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// No packet will be made for a time before this.
    settled_ns: u64,
    given: Waiting,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    made: u64,
    counter: Counter,
}

impl Packets {
    /// The lines of this scenario, before their first packet.
    ///
    /// # Errors
    /// A scenario that breaks a rule ([`Scenario::check`]).
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let generator = Generator::new(scenario)?;
        let venues = scenario.venues.iter().enumerate();
        let mut packets = Self {
            generator,
            senders: venues
                .map(|(number, venue)| Sender::new(number, venue.kind, scenario.midnight_ns))
                .collect(),
            lines: if scenario.line_b { 2 } else { 1 },
            skew_ns: scenario.line_b_skew_ns,
            hold_ns: scenario.packet_hold_ns,
            heartbeat_ns: scenario.heartbeat_ns,
            faults: scenario.faults,
            random: Random::new(scenario.seed ^ 0x6C69_6E65_7300_0000),
            held: None,
            message: [0; MAX_MESSAGE_BYTES],
            due_ns: u64::MAX,
            ended: false,
            waiting: BinaryHeap::new(),
            settled_ns: 0,
            given: Waiting::default(),
            spare: Vec::new(),
            made: 0,
            counter: Counter::new(scenario),
        };
        packets.fetch();
        Ok(packets)
    }

    /// What was made so far: messages as they go into packets, faults as they are injected.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.counter.report
    }

    /// The next packet; `None` when the session is over.
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        loop {
            if let Some(first) = self.waiting.peek_mut()
                && (first.0.time_ns <= self.settled_ns || self.ended)
            {
                let Reverse(packet) = PeekMut::pop(first);
                let used = std::mem::replace(&mut self.given, packet);
                self.spare.push(used.frame);
                break;
            }
            if self.ended {
                return None;
            }
            self.advance();
        }
        let Waiting { time_ns, venue, line, frame, .. } = &self.given;
        self.counter.report.packets += 1;
        let payload = frame.get(NETWORK_HEADERS_BYTES..).unwrap_or_default();
        Some(Packet { timestamp_ns: *time_ns, venue: *venue, line: *line, frame, payload })
    }

    fn fetch(&mut self) {
        self.held = self.generator.next_message(&mut self.message);
    }

    /// Does what is due next: a packet or a heartbeat goes, or a message joins its packet.
    fn advance(&mut self) {
        match self.held {
            Some(generated) if generated.timestamp_ns < self.due_ns => self.accept(generated),
            None if self.senders.iter().all(|sender| sender.deadline_ns == u64::MAX) => self.end(),
            _ => self.do_what_is_due(),
        }
        let no_more = self.held.is_none();
        // After the last message only open packets are waited for.
        let due = |sender: &Sender| if no_more { sender.deadline_ns } else { sender.due_ns() };
        self.due_ns = self.senders.iter().map(due).min().unwrap_or(u64::MAX);
    }

    fn accept(&mut self, generated: Generated) {
        let now_ns = generated.timestamp_ns;
        self.settled_ns = now_ns;
        self.counter.count(&generated);
        let venue = generated.venue;
        if !self.senders[venue].has_room(&self.message[..generated.length]) {
            self.flush(venue, now_ns);
        }
        let sender = &mut self.senders[venue];
        sender.put(&self.message[..generated.length]);
        if sender.messages == 1 {
            sender.deadline_ns = now_ns + self.hold_ns;
        }
        self.fetch();
    }

    fn do_what_is_due(&mut self) {
        let due_ns = self.due_ns;
        self.settled_ns = due_ns;
        for venue in 0..self.senders.len() {
            let sender = &self.senders[venue];
            if sender.due_ns() > due_ns {
                continue;
            }
            if sender.messages > 0 {
                self.flush(venue, due_ns);
            } else {
                self.send(venue, due_ns, Some(HEARTBEAT));
            }
        }
    }

    /// The end of every session: MoldUDP64 says so, IEX-TP falls silent.
    fn end(&mut self) {
        let end_ns = self.settled_ns.saturating_add(END_AFTER_NS);
        for venue in 0..self.senders.len() {
            for line in 0..self.lines {
                if let Some(packet) = self.senders[venue].overtaken[line].take() {
                    self.waiting.push(Reverse(packet));
                }
            }
            if self.senders[venue].kind.is_itch() {
                self.send(venue, end_ns, Some(END_OF_SESSION));
            }
        }
        self.ended = true;
    }

    fn flush(&mut self, venue: usize, now_ns: u64) {
        self.send(venue, now_ns, None);
        let sender = &mut self.senders[venue];
        sender.next_sequence += u64::from(sender.messages);
        sender.messages = 0;
        sender.filled = sender.blocks_start();
        sender.deadline_ns = u64::MAX;
    }

    /// Sends the venue's packet on its lines: the open one, or one without messages.
    fn send(&mut self, venue: usize, now_ns: u64, special: Option<u16>) {
        let payload_length = self.senders[venue].close(now_ns, special);
        let messages = u64::from(self.senders[venue].messages);
        if self.heartbeat_ns > 0 {
            self.senders[venue].heartbeat_ns = now_ns + self.heartbeat_ns;
        }
        let mut dropped = 0;
        for line in 0..self.lines {
            let faults = if special.is_some() { LineFaults::default() } else { self.faults[line] };
            let late_ns = if line == 0 {
                0
            } else {
                1 + self.random.below(self.skew_ns.min(u64::from(u32::MAX)) as u32)
            };
            let sender = &mut self.senders[venue];
            let time_ns = sender.sent_ns[line].max(now_ns + u64::from(late_ns));
            sender.sent_ns[line] = time_ns;
            let frame = &mut sender.frame;
            let built = sender.builders[line].udp_in_place(payload_length, frame);
            let Some(bytes) = frame_of(built, frame) else { continue };
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            let mut packet = Waiting { time_ns, number: self.made, venue, line, frame: copy };
            self.made += 1;
            self.counter.report.heartbeats += u64::from(special == Some(HEARTBEAT));

            let injected = &mut self.counter.report.venues[venue].injected[line];
            if self.random.chance(faults.lost_per_million) {
                injected.dropped_packets += 1;
                injected.dropped_messages += messages;
                dropped += 1;
                self.spare.push(packet.frame);
                continue;
            }
            if self.random.chance(faults.reordered_per_million) && sender.overtaken[line].is_none() {
                sender.overtaken[line] = Some(packet);
                continue;
            }
            if self.random.chance(faults.duplicated_per_million) {
                injected.duplicated_packets += 1;
                injected.duplicated_messages += messages;
                let mut repeat = packet.clone();
                repeat.time_ns += REPEAT_AFTER_NS;
                self.waiting.push(Reverse(repeat));
            }
            if special.is_none()
                && let Some(mut overtaken) = sender.overtaken[line].take()
            {
                // At the time of its successor, with the higher number of the two.
                overtaken.time_ns = time_ns;
                std::mem::swap(&mut overtaken.number, &mut packet.number);
                injected.reordered_packets += 1;
                self.waiting.push(Reverse(overtaken));
            }
            self.waiting.push(Reverse(packet));
        }
        if dropped == self.lines {
            self.counter.report.venues[venue].lost_messages += messages;
        }
    }
}

/// The bytes of a frame that was built; a sender's buffer has room for every frame, so one always is.
fn frame_of(built: Result<usize, BuildError>, frame: &[u8]) -> Option<&[u8]> {
    debug_assert!(built.is_ok(), "{built:?}");
    frame.get(..built.ok()?)
}
