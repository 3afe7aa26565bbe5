//! TCP streams: recognises the protocol of each direction by its bytes, and cuts the direction into the packets of that protocol.
//!
//! A stream is FIX, SoupBinTCP, or one of the [sessions]. Behind a hole the start of the next packet is unknown, so that only FIX, whose
//! messages have a start to look for, continues.
//!
//! Cost: a hash lookup for each segment. A packet that lies within its segment is not copied; of one in several segments each byte is
//! copied once.

use std::collections::HashMap;

use tapeworks_packet::net::Datagram;
use tapeworks_packet::tcp::{Flow, Limits, Reassembler, StreamEvent};
use tapeworks_wire::fix::{Framing, Garbled, next_message};
use tapeworks_wire::nasdaq::soupbintcp;

use crate::captured::{Packet, Place};
use crate::recognise;
use crate::sessions::{self, Session, Start};
use crate::table::Application;

/// How every FIX message starts.
const FIX_START: &[u8] = b"8=FIX";

/// The longest FIX message, in bytes.
pub const LONGEST_FIX_BYTES: usize = 1 << 20;

/// How streams are read.
#[derive(Debug, Clone, Copy)]
pub enum ReadStreams {
    /// By their bytes; where these leave a doubt, as this session.
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
    /// SoupBinTCP. If its data are messages of a feed, that feed.
    Soup(Option<Application>),
    /// A session.
    Session(Session),
}

/// A part of a stream.
#[derive(Debug)]
pub enum Part<'a> {
    /// A whole packet or message of a protocol, of SoupBinTCP with its length.
    Packet(Protocol, &'a [u8]),
    /// Bytes between the messages of FIX.
    Garbled(&'a [u8], Garbled),
    /// Bytes of no known protocol, behind a hole, or behind bytes that start no packet.
    Unread(&'a [u8]),
    /// Bytes of one of these sessions, which the bytes do not tell apart.
    Doubt(Vec<&'static str>, &'a [u8]),
    /// The stream ends inside a packet: its start.
    Cut(&'a [u8]),
    /// The capture lacks so many bytes.
    Hole(u64),
}

/// The direction that a [`Part`] is of.
#[derive(Debug)]
pub struct Stream<'a, D> {
    /// Its addresses.
    pub flow: Flow,
    /// Where the part lies.
    pub place: Place,
    /// The VLAN of the segment.
    pub vlan: Option<u16>,
    /// What the sink keeps of the direction.
    pub own: &'a mut D,
}

/// What is known of a direction's protocol.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Not enough bytes yet.
    #[default]
    Begins,
    Known(Protocol),
    /// No packet of it can be found any more.
    Lost,
}

/// One direction of a TCP connection.
#[derive(Debug, Default)]
struct Direction<D> {
    state: State,
    /// The start of an incomplete packet.
    rest: Vec<u8>,
    /// The session of the other direction.
    peer: Option<Session>,
    /// The segment that the last bytes came in.
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
}

/// The receiver of parts.
type Sink<'s, D> = dyn FnMut(&mut Stream<'_, D>, Part<'_>) + 's;

impl<D: Default> Streams<D> {
    pub(super) fn new(read: ReadStreams) -> Self {
        Self { read, reassembler: Reassembler::new(Limits::default()), directions: HashMap::new() }
    }

    /// Takes a segment.
    pub(super) fn push(&mut self, packet: &Packet<'_>, sink: &mut Sink<'_, D>) {
        let Datagram { vlan, .. } = packet.datagram;
        let segment = Segment { place: packet.into(), vlan };
        let (directions, read) = (&mut self.directions, self.read);
        self.reassembler.push(&packet.datagram, |event| take(directions, read, event, Some(segment), sink));
    }

    /// Ends all streams: hands over what waited.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_, D>) {
        let (directions, read) = (&mut self.directions, self.read);
        self.reassembler.finish(|event| take(directions, read, event, None, sink));
        self.directions.clear();
    }
}

/// The other direction.
const fn reverse(flow: Flow) -> Flow {
    Flow { source: flow.destination, destination: flow.source }
}

/// Takes what the reassembler reports, because of this segment or at the end.
fn take<D: Default>(
    directions: &mut HashMap<Flow, Direction<D>>,
    read: ReadStreams,
    event: StreamEvent<'_>,
    segment: Option<Segment>,
    sink: &mut Sink<'_, D>,
) {
    let nowhere = Segment { place: Place { file: 0, number: 0, offset: 0, time: None }, vlan: None };
    match event {
        StreamEvent::Opened { flow, .. } => {
            let peer = directions.get(&reverse(flow)).and_then(Direction::session);
            directions.insert(flow, Direction { peer, ..Direction::default() });
        }
        StreamEvent::Bytes { flow, bytes, .. } => {
            let direction = directions.entry(flow).or_default();
            let known = direction.session();
            let segment = segment.or(direction.segment).unwrap_or(nowhere);
            direction.segment = Some(segment);
            direction.bytes(bytes, read, flow, segment, sink);
            let session = direction.session();
            if known.is_none()
                && session.is_some()
                && let Some(other) = directions.get_mut(&reverse(flow))
            {
                other.peer = session;
            }
        }
        StreamEvent::Hole { flow, lost, .. } => {
            let direction = directions.entry(flow).or_default();
            let before = direction.segment.or(segment).unwrap_or(nowhere);
            direction.end_start(read, flow, before, sink);
            direction.rest.clear();
            if !matches!(direction.state, State::Known(Protocol::Fix)) {
                direction.state = State::Lost;
            }
            direction.put(flow, segment.unwrap_or(before), 0, Part::Hole(lost), sink);
        }
        StreamEvent::Closed { flow, .. } => {
            let mut direction = directions.remove(&flow).unwrap_or_default();
            // Not that of the segment that closes the connection, which may have no bytes.
            let segment = direction.segment.or(segment).unwrap_or(nowhere);
            direction.end_start(read, flow, segment, sink);
            let rest = std::mem::take(&mut direction.rest);
            if !rest.is_empty() {
                direction.put(flow, segment, 0, Part::Cut(&rest), sink);
            }
        }
    }
}

impl<D: Default> Direction<D> {
    const fn session(&self) -> Option<Session> {
        match self.state {
            State::Known(Protocol::Session(session)) => Some(session),
            _ => None,
        }
    }

    /// Hands over a part that lies so many bytes behind the start of the segment's payload.
    fn put(&mut self, flow: Flow, segment: Segment, offset: usize, part: Part<'_>, sink: &mut Sink<'_, D>) {
        let Segment { place, vlan } = segment;
        let place = place.behind(offset as u64);
        sink(&mut Stream { flow, place, vlan, own: &mut self.own }, part);
    }

    /// Takes the next bytes.
    fn bytes(
        &mut self,
        bytes: &[u8],
        read: ReadStreams,
        flow: Flow,
        segment: Segment,
        sink: &mut Sink<'_, D>,
    ) {
        if self.rest.is_empty() {
            let used = self.read(bytes, 0, read, flow, segment, sink);
            self.rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return;
        }
        let waiting = self.rest.len();
        self.rest.extend_from_slice(bytes);
        if self.needed().is_some_and(|needed| self.rest.len() < needed) {
            return;
        }
        let mut stream = std::mem::take(&mut self.rest);
        let used = self.read(&stream, waiting, read, flow, segment, sink);
        stream.drain(..used);
        self.rest = stream;
    }

    /// How many bytes the packet that has begun needs, if that is known.
    fn needed(&self) -> Option<usize> {
        match self.state {
            State::Known(Protocol::Soup(_)) => Some(recognise::first_packet_bytes(&self.rest)),
            State::Known(Protocol::Session(session)) => session.framing.message_bytes(&self.rest),
            State::Known(Protocol::Fix) | State::Begins | State::Lost => None,
        }
    }

    /// Reads a stream from where the last packet ended; its first `waiting` bytes came in earlier segments. Returns how many bytes were used.
    fn read(
        &mut self,
        stream: &[u8],
        waiting: usize,
        read: ReadStreams,
        flow: Flow,
        segment: Segment,
        sink: &mut Sink<'_, D>,
    ) -> usize {
        if matches!(self.state, State::Begins) {
            match begin(stream, read, self.peer) {
                Some(Begin::Is(protocol)) => self.state = State::Known(protocol),
                Some(Begin::Doubt(protocols)) => {
                    self.state = State::Lost;
                    self.put(flow, segment, 0, Part::Doubt(protocols, stream), sink);
                    return stream.len();
                }
                Some(Begin::Unknown) => self.state = State::Lost,
                None => return 0,
            }
        }
        match self.state {
            State::Begins => 0,
            State::Lost => {
                self.put(flow, segment, 0, Part::Unread(stream), sink);
                stream.len()
            }
            State::Known(protocol) => self.packets(protocol, stream, waiting, flow, segment, sink),
        }
    }

    /// Cuts a stream into the packets of its protocol. Returns how many bytes were used.
    fn packets(
        &mut self,
        protocol: Protocol,
        stream: &[u8],
        waiting: usize,
        flow: Flow,
        segment: Segment,
        sink: &mut Sink<'_, D>,
    ) -> usize {
        let mut used = 0;
        while let Some(rest) = stream.get(used..).filter(|rest| !rest.is_empty()) {
            let (length, part) = match protocol {
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
                    self.put(flow, segment, used.saturating_sub(waiting), Part::Unread(rest), sink);
                    return stream.len();
                }
            };
            let Some(packet) = rest.get(..length).filter(|packet| !packet.is_empty()) else { break };
            let part = match part {
                None => Part::Packet(protocol, packet),
                Some(why) => Part::Garbled(packet, why),
            };
            self.put(flow, segment, used.saturating_sub(waiting), part, sink);
            used += length;
        }
        used
    }

    /// No more bytes come to say which protocol the stream is: decides by those that wait.
    fn end_start(&mut self, read: ReadStreams, flow: Flow, segment: Segment, sink: &mut Sink<'_, D>) {
        if !matches!(self.state, State::Begins) || self.rest.is_empty() {
            return;
        }
        let stream = std::mem::take(&mut self.rest);
        let start = match read {
            ReadStreams::Recognised(expected) => sessions::start(&stream, self.peer.or(expected), true),
            ReadStreams::Soup(_) | ReadStreams::Session(_) => Start::No,
        };
        self.state = State::Lost;
        match start {
            Start::Found(session) => {
                let protocol = Protocol::Session(session);
                self.state = State::Known(protocol);
                let used = self.packets(protocol, &stream, stream.len(), flow, segment, sink);
                self.rest = stream.get(used..).unwrap_or_default().to_vec();
            }
            Start::Doubt(protocols) => self.put(flow, segment, 0, Part::Doubt(protocols, &stream), sink),
            Start::Wait | Start::No => self.put(flow, segment, 0, Part::Unread(&stream), sink),
        }
    }
}

/// What the start of a stream says of its protocol.
enum Begin {
    Is(Protocol),
    Doubt(Vec<&'static str>),
    Unknown,
}

/// Looks at the start of a stream. `None`: more bytes must come.
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
        // A whole packet of SoupBinTCP is the start of no session's.
        Start::Wait if !is_soup => return None,
        Start::Wait | Start::No => {}
    }
    if recognise::is_start_cut(stream) {
        return None;
    }
    Some(if is_soup { Begin::Is(Protocol::Soup(None)) } else { Begin::Unknown })
}

/// Whether a stream starts with SoupBinTCP packets, whatever they carry.
fn is_soup(stream: &[u8]) -> bool {
    let mut packets = soupbintcp::Packets::new(stream).filter_map(Result::ok).take(8).peekable();
    packets.peek().is_some() && packets.all(|packet| soupbintcp::Message::decode(packet).is_ok())
}
