//! TCP streams: recognises the protocol of each direction from its bytes, and splits the direction into packets of that protocol.
//!
//! A stream is FIX, SoupBinTCP, or one of the [sessions]. After a hole the next packet boundary is unknown. Only FIX resumes,
//! because `8=FIX` marks the start of a message.
//!
//! Cost: two hash lookups per segment (here and in the reassembler). A packet within one segment is not copied, and a packet that
//! spans segments is copied once. An incomplete packet is kept until it is complete: up to 64 KiB, or 1 MiB of FIX
//! ([`LONGEST_FIX_BYTES`]).

use std::collections::HashMap;

use tapeworks_capture::tcp::{Flow, Limits, Reassembler, StreamEvent};
use tapeworks_fix_wire::{Framing, Garbled, next_message};
use tapeworks_time::Nanos;
use tapeworks_wire::nasdaq::soupbintcp;

use crate::captured::{Packet, Place};
use crate::recognise;
use crate::sessions::{self, Session, Start};
use crate::table::Application;

/// How every FIX message starts.
pub const FIX_START: &[u8] = b"8=FIX";

/// The longest FIX message, in bytes.
pub const LONGEST_FIX_BYTES: usize = 1 << 20;

/// How to read streams.
#[derive(Debug, Clone, Copy)]
pub enum ReadStreams {
    /// Detects the protocol; if it is ambiguous, assumes this session.
    Recognised(Option<Session>),
    /// As SoupBinTCP with messages of this feed.
    Soup(Application),
    /// As this session.
    Session(Session),
}

/// The protocol of a stream.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    /// FIX.
    Fix,
    /// SoupBinTCP, with the feed that it carries, if known.
    Soup(Option<Application>),
    /// A session.
    Session(Session),
}

/// A part of a stream.
#[derive(Debug)]
pub enum Part<'a> {
    /// A complete packet or message. SoupBinTCP packets include their length.
    Packet(Protocol, &'a [u8]),
    /// Bytes between FIX messages.
    Garbled(&'a [u8], Garbled),
    /// Bytes that cannot be read: of an unknown protocol, after a hole, or after an invalid packet.
    Unread(&'a [u8]),
    /// Bytes that fit several sessions.
    Doubt(Vec<&'static str>, &'a [u8]),
    /// The incomplete packet of this protocol at the end of the stream.
    Cut(Protocol, &'a [u8]),
    /// Bytes that are missing from the capture.
    Hole {
        /// Number of missing bytes.
        lost: u64,
        /// The start of the packet in which they are missing, if one had begun, and its protocol.
        begun: Option<(Protocol, &'a [u8])>,
    },
}

/// The direction that a [`Part`] belongs to.
#[derive(Debug)]
pub struct Stream<'a, D> {
    /// Its addresses.
    pub flow: Flow,
    /// Position of the part. For a part that was held back: the last segment of this direction.
    pub place: Place,
    /// When the walk's last segment was captured. A part that was held back is no older.
    pub now: Option<Nanos>,
    /// The VLAN of the segment.
    pub vlan: Option<u16>,
    /// The sink's state for the direction.
    pub own: &'a mut D,
}

/// The state of a direction's protocol.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Not enough bytes yet.
    #[default]
    Begins,
    Known(Protocol),
    /// Packet boundaries are lost.
    Lost,
}

/// One direction of a TCP connection.
#[derive(Debug, Default)]
struct Direction<D> {
    state: State,
    /// The start of an incomplete packet.
    rest: Vec<u8>,
    /// Its session, even after packet boundaries are lost.
    session: Option<Session>,
    /// The session of the other direction.
    peer: Option<Session>,
    /// The segment of the last bytes.
    segment: Option<Segment>,
    own: D,
}

/// A segment's place and VLAN.
#[derive(Debug, Clone, Copy)]
struct Segment {
    place: Place,
    vlan: Option<u16>,
}

/// All streams of a walk.
#[derive(Debug)]
pub(super) struct Streams<D> {
    read: ReadStreams,
    reassembler: Reassembler,
    directions: HashMap<Flow, Direction<D>>,
    /// When the last segment was captured.
    now: Option<Nanos>,
}

/// The receiver of parts.
type Sink<'s, D> = dyn FnMut(&mut Stream<'_, D>, Part<'_>) + 's;

/// The context in which a direction is read.
struct Reading<'a, 's, D> {
    read: ReadStreams,
    flow: Flow,
    segment: Segment,
    now: Option<Nanos>,
    sink: &'a mut Sink<'s, D>,
}

impl<D: Default> Streams<D> {
    pub(super) fn new(read: ReadStreams) -> Self {
        let reassembler = Reassembler::new(Limits::default());
        Self { read, reassembler, directions: HashMap::new(), now: None }
    }

    /// Processes a segment.
    pub(super) fn push(&mut self, packet: &Packet<'_>, sink: &mut Sink<'_, D>) {
        self.now = Some(packet.received);
        let segment = Segment { place: packet.into(), vlan: packet.datagram.vlan };
        let Self { read, reassembler, directions, now } = self;
        reassembler.push(&packet.datagram, |event| take(directions, *read, event, Some(segment), *now, sink));
    }

    /// Ends all streams: passes on whatever was held back.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_, D>) {
        let Self { read, reassembler, directions, now } = self;
        reassembler.finish(|event| take(directions, *read, event, None, *now, sink));
        self.directions.clear();
    }
}

/// Returns the other direction.
const fn reverse(flow: Flow) -> Flow {
    Flow { source: flow.destination, destination: flow.source }
}

/// Processes an event of the reassembler, caused by this segment or by the end.
fn take<D: Default>(
    directions: &mut HashMap<Flow, Direction<D>>,
    read: ReadStreams,
    event: StreamEvent<'_>,
    segment: Option<Segment>,
    now: Option<Nanos>,
    sink: &mut Sink<'_, D>,
) {
    let nowhere = Segment { place: Place { file: 0, number: 0, offset: 0, time: now }, vlan: None };
    match event {
        StreamEvent::Opened { flow, .. } => {
            let peer = directions.get(&reverse(flow)).and_then(|other| other.session);
            directions.insert(flow, Direction { peer, ..Direction::default() });
        }
        StreamEvent::Bytes { flow, bytes, .. } => {
            let direction = directions.entry(flow).or_default();
            let was_known = direction.session.is_some();
            let segment = segment.or(direction.segment).unwrap_or(nowhere);
            direction.segment = Some(segment);
            direction.bytes(bytes, &mut Reading { read, flow, segment, now, sink });
            if let Some(session) = direction.session.filter(|_| !was_known)
                && let Some(other) = directions.get_mut(&reverse(flow))
            {
                other.peer = Some(session);
            }
        }
        StreamEvent::Hole { flow, lost, .. } => {
            let direction = directions.entry(flow).or_default();
            let before = direction.segment.or(segment).unwrap_or(nowhere);
            direction.end_start(&mut Reading { read, flow, segment: before, now, sink });
            let rest = std::mem::take(&mut direction.rest);
            let begun = match direction.state {
                State::Known(protocol) if !rest.is_empty() => Some((protocol, &rest[..])),
                State::Known(_) | State::Begins | State::Lost => None,
            };
            if !matches!(direction.state, State::Known(Protocol::Fix)) {
                direction.state = State::Lost;
            }
            let segment = segment.unwrap_or(before);
            let part = Part::Hole { lost, begun };
            direction.put(0, part, &mut Reading { read, flow, segment, now, sink });
        }
        StreamEvent::Closed { flow, .. } => {
            let mut direction = directions.remove(&flow).unwrap_or_default();
            // The closing segment may be empty, so the position is that of the last one with data.
            let segment = direction.segment.or(segment).unwrap_or(nowhere);
            let to = &mut Reading { read, flow, segment, now, sink };
            direction.end_start(to);
            let rest = std::mem::take(&mut direction.rest);
            if let (State::Known(protocol), false) = (direction.state, rest.is_empty()) {
                direction.put(0, Part::Cut(protocol, &rest), to);
            }
        }
    }
}

impl<D: Default> Direction<D> {
    /// Passes on a part at `offset` from the start of the segment's payload.
    fn put(&mut self, offset: usize, part: Part<'_>, to: &mut Reading<'_, '_, D>) {
        let Segment { place, vlan } = to.segment;
        let place = place.plus(offset as u64);
        (to.sink)(&mut Stream { flow: to.flow, place, now: to.now, vlan, own: &mut self.own }, part);
    }

    /// Processes the next bytes.
    fn bytes(&mut self, bytes: &[u8], to: &mut Reading<'_, '_, D>) {
        if self.rest.is_empty() {
            let used = self.read(bytes, 0, to);
            self.rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return;
        }
        let waiting = self.rest.len();
        self.rest.extend_from_slice(bytes);
        if self.needed().is_some_and(|needed| self.rest.len() < needed) {
            return;
        }
        let mut stream = std::mem::take(&mut self.rest);
        let used = self.read(&stream, waiting, to);
        stream.drain(..used);
        self.rest = stream;
    }

    /// Returns how many bytes the incomplete packet needs, if known.
    fn needed(&self) -> Option<usize> {
        match self.state {
            State::Known(Protocol::Soup(_)) => Some(recognise::first_packet_bytes(&self.rest)),
            State::Known(Protocol::Session(session)) => session.framing.message_bytes(&self.rest),
            State::Known(Protocol::Fix) | State::Begins | State::Lost => None,
        }
    }

    /// Sets the protocol of the stream.
    fn recognise(&mut self, protocol: Protocol) {
        self.state = State::Known(protocol);
        if let Protocol::Session(session) = protocol {
            self.session = Some(session);
        }
    }

    /// Reads a stream from where the last packet ended; its first `waiting` bytes came in earlier segments. Returns how many
    /// bytes were used.
    fn read(&mut self, stream: &[u8], waiting: usize, to: &mut Reading<'_, '_, D>) -> usize {
        if matches!(self.state, State::Begins) {
            match begin(stream, to.read, self.peer) {
                Some(Begin::Is(protocol)) => self.recognise(protocol),
                Some(Begin::Doubt(protocols)) => {
                    self.state = State::Lost;
                    self.put(0, Part::Doubt(protocols, stream), to);
                    return stream.len();
                }
                Some(Begin::Unknown) => self.state = State::Lost,
                None => return 0,
            }
        }
        match self.state {
            State::Begins => 0,
            State::Lost => {
                self.put(0, Part::Unread(stream), to);
                stream.len()
            }
            State::Known(protocol) => self.packets(protocol, stream, waiting, to),
        }
    }

    /// Splits a stream into the packets of its protocol. Returns how many bytes were used.
    fn packets(
        &mut self,
        protocol: Protocol,
        stream: &[u8],
        waiting: usize,
        to: &mut Reading<'_, '_, D>,
    ) -> usize {
        let mut used = 0;
        while let Some(rest) = stream.get(used..).filter(|rest| !rest.is_empty()) {
            let (length, garbled) = match protocol {
                Protocol::Fix => match next_message(rest, LONGEST_FIX_BYTES) {
                    Framing::Message { length } => (length, None),
                    Framing::Garbled { length, why } => (length, Some(why)),
                    Framing::Incomplete | Framing::WrongLength => break,
                },
                Protocol::Soup(_) => (recognise::first_packet_bytes(rest), None),
                Protocol::Session(session) if session.may_start(rest) => {
                    match session.framing.message_bytes(rest) {
                        Some(length) => (length, None),
                        None => break,
                    }
                }
                Protocol::Session(_) => {
                    self.state = State::Lost;
                    self.put(used.saturating_sub(waiting), Part::Unread(rest), to);
                    return stream.len();
                }
            };
            let Some(packet) = rest.get(..length).filter(|packet| !packet.is_empty()) else { break };
            let part = match garbled {
                None => Part::Packet(protocol, packet),
                Some(why) => Part::Garbled(packet, why),
            };
            self.put(used.saturating_sub(waiting), part, to);
            used += length;
        }
        used
    }

    /// Decides the protocol from the buffered bytes, because no more will arrive.
    fn end_start(&mut self, to: &mut Reading<'_, '_, D>) {
        if !matches!(self.state, State::Begins) || self.rest.is_empty() {
            return;
        }
        let stream = std::mem::take(&mut self.rest);
        let start = match to.read {
            ReadStreams::Recognised(expected) => sessions::start(&stream, self.peer.or(expected), true),
            ReadStreams::Soup(_) | ReadStreams::Session(_) => Start::No,
        };
        self.state = State::Lost;
        match start {
            Start::Found(session) => {
                let protocol = Protocol::Session(session);
                self.recognise(protocol);
                let used = self.packets(protocol, &stream, stream.len(), to);
                self.rest = stream.get(used..).unwrap_or_default().to_vec();
            }
            Start::Doubt(protocols) => self.put(0, Part::Doubt(protocols, &stream), to),
            Start::Wait | Start::No => self.put(0, Part::Unread(&stream), to),
        }
    }
}

/// The outcome of recognising the start of a stream.
enum Begin {
    Is(Protocol),
    Doubt(Vec<&'static str>),
    Unknown,
}

/// Recognises the start of a stream. Returns `None` if more bytes are needed.
fn begin(stream: &[u8], read: ReadStreams, peer: Option<Session>) -> Option<Begin> {
    let expected = match read {
        ReadStreams::Session(session) => return Some(Begin::Is(Protocol::Session(session))),
        ReadStreams::Soup(application) => return Some(Begin::Is(Protocol::Soup(Some(application)))),
        ReadStreams::Recognised(expected) => expected,
    };
    let started = stream.len().min(FIX_START.len());
    if stream.get(..started) == FIX_START.get(..started) {
        return (started == FIX_START.len()).then_some(Begin::Is(Protocol::Fix));
    }
    if recognise::soup_stream(stream) {
        return Some(Begin::Is(Protocol::Soup(Some(Application::OF_STREAMS))));
    }
    let is_soup = is_soup(stream);
    match sessions::start(stream, peer.or(expected), false) {
        Start::Found(session) => return Some(Begin::Is(Protocol::Session(session))),
        Start::Doubt(protocols) => return Some(Begin::Doubt(protocols)),
        // No session starts with bytes that form a complete SoupBinTCP packet.
        Start::Wait if !is_soup => return None,
        Start::Wait | Start::No => {}
    }
    if recognise::is_start_cut(stream) {
        return None;
    }
    Some(if is_soup { Begin::Is(Protocol::Soup(None)) } else { Begin::Unknown })
}

/// Returns whether a stream starts with SoupBinTCP packets, whatever they carry.
fn is_soup(stream: &[u8]) -> bool {
    let mut packets = soupbintcp::Packets::new(stream).filter_map(Result::ok).take(8).peekable();
    packets.peek().is_some() && packets.all(|packet| soupbintcp::Message::decode(packet).is_ok())
}
