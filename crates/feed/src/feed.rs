//! The feed stage: datagrams or file messages in, events out.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, EventKind, InstrumentId, Instruments, Line, Nanos, Publisher, Symbol};
use tapeworks_packet::net::{Datagram, Transport};
use tapeworks_packet::tcp::{Flow, Limits, Reassembler, StreamEvent};
use tapeworks_stage::{Sink, Stage};
use tapeworks_wire::framing::FramingError;
use tapeworks_wire::iex::{deep10, tops16, tp};
use tapeworks_wire::nasdaq::{itch50, moldudp64, soupbintcp};
use tapeworks_wire::{Ascii, DecodeError};

use crate::clock;
use crate::iex::{IexNormaliser, Target};
use crate::itch::{Context, ItchNormaliser};
use crate::problem::{Problem, ProblemKind, Problems};
use crate::recognise::{self, Application};
use crate::sequence::{Arrival, SequenceCounters, SequenceTracker};
use crate::state::{Reader, StateError, Writer, ensure};
use crate::symbols::SymbolTable;

pub use crate::recognise::Framing as FileFormat;

/// A captured datagram.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The file, by its place among the inputs.
    pub file: u16,
    /// The packet in the file, from 1.
    pub number: u64,
    /// Where its payload starts in the file, in bytes.
    pub offset: u64,
    /// When it was received.
    pub received: Nanos,
    /// Its addresses and payload.
    pub datagram: Datagram<'a>,
}

/// A message of a file without packets.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The file, by its place among the inputs.
    pub file: u16,
    /// Where the message starts in the file, in bytes.
    pub offset: u64,
    /// The message, without its length.
    pub bytes: &'a [u8],
}

/// What the user knows better than the bytes say.
#[derive(Clone, Debug, Default)]
pub struct FeedOptions {
    /// What is spoken on every channel, instead of recognising it.
    pub application: Option<Application>,
    /// The feed of ITCH channels, instead of telling it by the multicast group.
    pub publisher: Option<Publisher>,
    /// Midnight of the day in New York, instead of taking it from the receive times.
    pub midnight: Option<Nanos>,
    /// The only symbols that are wanted.
    pub symbols: Option<HashSet<Symbol>>,
}

/// What tells one channel from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ChannelIdentity {
    /// A session of MoldUDP64 at a port: both lines of a channel have the same.
    MoldUdp64 {
        /// The session.
        session: [u8; 10],
        /// The UDP port.
        port: u16,
    },
    /// A channel and session of IEX-TP at a port.
    IexTp {
        /// The message protocol.
        protocol: u16,
        /// The channel.
        channel: u32,
        /// The session.
        session: u32,
    },
    /// One direction of a TCP connection.
    SoupBinTcp {
        /// Who sends.
        source: SocketAddr,
        /// Who receives.
        destination: SocketAddr,
    },
    /// A file without packets.
    File {
        /// The file, by its place among the inputs.
        file: u16,
    },
}

impl std::fmt::Display for ChannelIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MoldUdp64 { session, port } => {
                write!(f, "MoldUDP64 session {} port {port}", Ascii(*session))
            }
            Self::IexTp { channel, session, .. } => write!(f, "IEX-TP channel {channel} session {session}"),
            Self::SoupBinTcp { source, destination } => write!(f, "SoupBinTCP {source} to {destination}"),
            Self::File { file } => write!(f, "file {}", file + 1),
        }
    }
}

/// What a channel carried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ChannelCounters {
    /// Packets, duplicates included.
    pub packets: u64,
    /// Of those, the ones that brought nothing new, by line A and B.
    pub duplicate_packets: [u64; 2],
    /// Messages handed on.
    pub messages: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Ends of session.
    pub ends_of_session: u64,
}

/// A channel of a venue.
#[derive(Debug, Serialize, Deserialize)]
pub struct Channel {
    identity: ChannelIdentity,
    application: Application,
    publisher: Publisher,
    number: u8,
    tracker: SequenceTracker,
    /// Of a stream or file, whose messages carry no numbers: the next one's.
    next_number: u64,
    normaliser: Normaliser,
    /// Destinations that carry it: line A first.
    lines: Vec<SocketAddr>,
    counters: ChannelCounters,
}

#[derive(Debug, Serialize, Deserialize)]
enum Normaliser {
    Itch(ItchNormaliser),
    Iex(IexNormaliser),
}

impl Channel {
    /// What tells it from others.
    pub const fn identity(&self) -> &ChannelIdentity {
        &self.identity
    }

    /// What is spoken on it.
    pub const fn application(&self) -> Application {
        self.application
    }

    /// The feed.
    pub const fn publisher(&self) -> Publisher {
        self.publisher
    }

    /// What it carried.
    pub const fn counters(&self) -> &ChannelCounters {
        &self.counters
    }

    /// What came twice, late or not at all.
    pub const fn sequence(&self) -> &SequenceCounters {
        self.tracker.counters()
    }

    /// Where it was sent: line A first.
    pub fn lines(&self) -> &[SocketAddr] {
        &self.lines
    }

    fn line_of(&mut self, destination: SocketAddr) -> Line {
        match self.lines.iter().position(|line| *line == destination) {
            Some(0) => Line::A,
            Some(_) => Line::B,
            None => {
                self.lines.push(destination);
                if self.lines.len() == 1 { Line::A } else { Line::B }
            }
        }
    }
}

/// Where packets are sent.
#[derive(Debug)]
struct Destination {
    address: SocketAddr,
    application: Option<Application>,
    /// The channel of its last packet, and the line that this destination is of it.
    channel: Option<(usize, Line)>,
    is_told: bool,
}

/// One direction of a TCP connection.
#[derive(Debug)]
struct Connection {
    /// The start of a packet whose end is still to come.
    rest: Vec<u8>,
    /// `None`: not recognised yet, or not ours.
    channel: Option<usize>,
    is_given_up: bool,
}

/// The last packet of any stream, which is where what happens to streams is told.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPlace {
    place: (u16, u64, u64),
    received: Option<Nanos>,
}

/// A message in its place.
const IN_ORDER: Arrival = Arrival { skip: 0, gap: None };

/// What went in, and what was passed over.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FeedCounters {
    /// Datagrams taken.
    pub packets: u64,
    /// Datagrams and stream segments in no protocol of ours.
    pub unrecognised_packets: u64,
    /// Packets that are sound and neither UDP nor TCP over IP (ARP, IGMP, later fragments).
    pub foreign_packets: u64,
    /// Bytes of streams passed over: after a hole, or of no protocol of ours.
    pub skipped_stream_bytes: u64,
}

/// Translates datagrams, or the messages of files, into events.
#[derive(Debug)]
pub struct Feed {
    options: FeedOptions,
    symbols: SymbolTable,
    channels: Vec<Channel>,
    by_identity: HashMap<ChannelIdentity, usize>,
    destinations: Vec<Destination>,
    by_address: HashMap<SocketAddr, usize>,
    last_destination: usize,
    reassembler: Reassembler,
    connections: HashMap<Flow, Connection>,
    stream_place: StreamPlace,
    problems: Problems,
    counters: FeedCounters,
}

/// Where a packet belongs, and where its messages begin.
#[derive(Clone, Copy)]
struct Place {
    /// The channel.
    index: usize,
    line: Line,
    /// The number of its first message.
    first: u64,
    /// Bytes of the transport's header.
    header: usize,
}

/// Bytes of MoldUDP64's header.
const MOLD_HEADER: usize = 20;
/// Bytes of IEX-TP's header.
const SEGMENT_HEADER: usize = 40;

/// The feed of an ITCH multicast group. The groups are those of Nasdaq's multicast configuration (lines A and B); any
/// other group is taken for Nasdaq itself.
pub fn itch_publisher(destination: SocketAddr) -> Publisher {
    match destination.ip() {
        IpAddr::V4(group) => match group.octets() {
            [233, 54, 12, 40] | [233, 49, 196, 40] => Publisher::XBOS_ITCH,
            [233, 54, 12, 45] | [233, 49, 196, 45] => Publisher::XPSX_ITCH,
            _ => Publisher::XNAS_ITCH,
        },
        IpAddr::V6(_) => Publisher::XNAS_ITCH,
    }
}

impl Feed {
    /// A feed that has seen nothing.
    pub fn new(options: FeedOptions) -> Self {
        Self {
            symbols: SymbolTable::new(options.symbols.clone()),
            options,
            channels: Vec::new(),
            by_identity: HashMap::new(),
            destinations: Vec::new(),
            by_address: HashMap::new(),
            last_destination: 0,
            reassembler: Reassembler::new(Limits::default()),
            connections: HashMap::new(),
            stream_place: StreamPlace::default(),
            problems: Problems::default(),
            counters: FeedCounters::default(),
        }
    }

    /// What it was told to do.
    pub(crate) const fn options(&self) -> &FeedOptions {
        &self.options
    }

    /// Appends what channels and symbols are at. Streams and files are not among it: live lines have neither.
    pub(crate) fn save(&self, writer: &mut Writer) -> Result<(), StateError> {
        self.symbols.save(writer)?;
        writer.put(&self.channels)?;
        writer.put(&self.problems.counts())?;
        writer.put(&self.counters)
    }

    /// The feed that was saved.
    pub(crate) fn restore(options: FeedOptions, reader: &mut Reader<'_>) -> Result<Self, StateError> {
        let mut feed = Self::new(options);
        feed.symbols = SymbolTable::restore(feed.options.symbols.clone(), reader)?;
        feed.channels = reader.take()?;
        feed.problems = Problems::from_counts(reader.take()?);
        feed.counters = reader.take()?;
        for (index, channel) in feed.channels.iter().enumerate() {
            ensure(channel.tracker.is_sound(), "a channel's gaps")?;
            let is_fitting = match (&channel.identity, &channel.normaliser) {
                (ChannelIdentity::MoldUdp64 { .. }, Normaliser::Itch(itch)) => itch.is_sound(&feed.symbols),
                (ChannelIdentity::IexTp { .. }, Normaliser::Iex(_)) => true,
                _ => false,
            };
            ensure(is_fitting, "a channel's instruments")?;
            let earlier = feed.by_identity.insert(channel.identity, index);
            ensure(earlier.is_none(), "a channel is there twice")?;
        }
        Ok(feed)
    }

    /// The symbols seen so far.
    pub const fn instruments(&self) -> &Instruments {
        self.symbols.instruments()
    }

    /// The channels seen so far.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// What did not fit.
    pub const fn problems(&self) -> &Problems {
        &self.problems
    }

    /// What went in.
    pub const fn counters(&self) -> &FeedCounters {
        &self.counters
    }

    /// Symbols of venues that are no symbols: blank, or not ASCII. What is about them is of no instrument.
    pub const fn unreadable_symbols(&self) -> u64 {
        self.symbols.unreadable()
    }

    /// Messages handed on so far, over all channels.
    pub fn messages(&self) -> u64 {
        self.channels.iter().map(|channel| channel.counters.messages).sum()
    }

    /// Counts a sound packet that is neither UDP nor TCP over IP, which the caller kept back.
    pub const fn note_foreign(&mut self) {
        self.counters.foreign_packets += 1;
    }

    /// Notes a problem that the caller found before the packet got here (its network headers).
    pub fn note(&mut self, problem: Problem) {
        self.problems.note(problem);
    }

    /// The channel of this identity; a new one speaks `application` and is of the feed `publisher`.
    pub(crate) fn admit(
        &mut self,
        identity: ChannelIdentity,
        application: Application,
        publisher: Publisher,
        midnight: Nanos,
    ) -> usize {
        if let Some(index) = self.by_identity.get(&identity) {
            return *index;
        }
        let normaliser = match application {
            Application::TotalViewItch50 => {
                Normaliser::Itch(ItchNormaliser::new(publisher, midnight, self.options.midnight.is_some()))
            }
            Application::IexTops16 | Application::IexDeep10 => Normaliser::Iex(IexNormaliser::new(publisher)),
        };
        let index = self.channels.len();
        self.channels.push(Channel {
            identity,
            application,
            publisher,
            // More than 256 channels share the numbers; the sequence numbers stay their own.
            number: index as u8,
            tracker: SequenceTracker::default(),
            next_number: 1,
            normaliser,
            lines: Vec::new(),
            counters: ChannelCounters::default(),
        });
        self.by_identity.insert(identity, index);
        index
    }

    pub(crate) fn midnight(&self, received: Option<Nanos>) -> Nanos {
        let known = self.options.midnight.or_else(|| received.and_then(clock::midnight_before));
        known.unwrap_or_default()
    }

    #[inline]
    fn destination(&mut self, address: SocketAddr) -> usize {
        match self.destinations.get(self.last_destination) {
            Some(last) if last.address == address => self.last_destination,
            _ => self.other_destination(address),
        }
    }

    fn other_destination(&mut self, address: SocketAddr) -> usize {
        let destinations = &mut self.destinations;
        let application = self.options.application;
        self.last_destination = *self.by_address.entry(address).or_insert_with(|| {
            destinations.push(Destination { address, application, channel: None, is_told: false });
            destinations.len() - 1
        });
        self.last_destination
    }

    /// One datagram.
    #[inline]
    fn packet<S: Sink<Event>>(&mut self, packet: &Packet<'_>, sink: &mut S) {
        self.counters.packets += 1;
        if packet.datagram.truncated {
            self.problems.note(Problem {
                file: packet.file,
                packet: packet.number,
                offset: packet.offset,
                kind: ProblemKind::CutPacket,
            });
        }
        if !matches!(packet.datagram.transport, Transport::Udp) {
            self.segment_of_stream(packet, sink);
            return;
        }
        let at = self.destination(packet.datagram.destination);
        let application = match self.destinations[at].application {
            Some(application) => application,
            None => match self.recognise(at, packet) {
                Some(application) => application,
                None => return,
            },
        };
        match application {
            Application::TotalViewItch50 => self.mold(at, packet, sink),
            Application::IexTops16 | Application::IexDeep10 => self.iex_segment(at, packet, sink),
        }
    }

    #[cold]
    #[inline(never)]
    fn recognise(&mut self, at: usize, packet: &Packet<'_>) -> Option<Application> {
        let application = recognise::udp_payload(packet.datagram.payload);
        let destination = &mut self.destinations[at];
        destination.application = application;
        if application.is_none() {
            self.counters.unrecognised_packets += 1;
            if !std::mem::replace(&mut destination.is_told, true) {
                let kind = ProblemKind::UnknownProtocol { destination: destination.address };
                self.problems.note(Problem {
                    file: packet.file,
                    packet: packet.number,
                    offset: packet.offset,
                    kind,
                });
            }
        }
        application
    }

    #[cold]
    #[inline(never)]
    fn change_channel(
        &mut self,
        at: usize,
        packet: &Packet<'_>,
        identity: ChannelIdentity,
        application: Application,
    ) -> (usize, Line) {
        let address = self.destinations[at].address;
        let publisher = match application {
            Application::TotalViewItch50 => self.options.publisher.unwrap_or_else(|| itch_publisher(address)),
            Application::IexTops16 => Publisher::IEXG_TOPS,
            Application::IexDeep10 => Publisher::IEXG_DEEP,
        };
        let midnight = self.midnight(Some(packet.received));
        let index = self.admit(identity, application, publisher, midnight);
        let line = self.channels[index].line_of(address);
        self.destinations[at].channel = Some((index, line));
        (index, line)
    }

    #[inline]
    fn mold<S: Sink<Event>>(&mut self, at: usize, packet: &Packet<'_>, sink: &mut S) {
        let payload = packet.datagram.payload;
        let header = match moldudp64::DownstreamPacket::decode(payload) {
            Ok(header) => header,
            Err(error) => return self.bad_header(packet, error),
        };
        let identity = ChannelIdentity::MoldUdp64 {
            session: header.session().0,
            port: packet.datagram.destination.port(),
        };
        let (index, line) = match self.destinations[at].channel {
            Some((index, line)) if self.channels[index].identity == identity => (index, line),
            _ => self.change_channel(at, packet, identity, Application::TotalViewItch50),
        };
        self.mold_of(index, line, header, packet, sink);
    }

    /// A MoldUDP64 packet of a channel.
    #[inline]
    fn mold_of<S: Sink<Event>>(
        &mut self,
        index: usize,
        line: Line,
        header: moldudp64::DownstreamPacket<'_>,
        packet: &Packet<'_>,
        sink: &mut S,
    ) {
        let place = Place { index, line, first: header.sequence_number(), header: MOLD_HEADER };
        let count = u64::from(header.count());
        self.packet_at(place, count, header.is_end_of_session(), header.blocks(), packet, sink);
    }

    /// The messages of a packet of a channel, as far as they are its next.
    #[inline]
    fn packet_at<S: Sink<Event>, Order: tapeworks_wire::framing::LengthPrefix>(
        &mut self,
        Place { index, line, first, header }: Place,
        count: u64,
        is_end: bool,
        blocks: tapeworks_wire::framing::Blocks<'_, Order>,
        packet: &Packet<'_>,
        sink: &mut S,
    ) {
        let channel = &mut self.channels[index];
        let context =
            Context { received: Some(packet.received), sequence: first, channel: channel.number, line };
        let problems = &mut self.problems;
        let Some(skip) = channel.begin(count, is_end, &context, packet, problems, sink) else { return };
        channel.messages(blocks, header, count, skip, context, packet, problems, &mut self.symbols, sink);
    }

    #[inline]
    fn iex_segment<S: Sink<Event>>(&mut self, at: usize, packet: &Packet<'_>, sink: &mut S) {
        let payload = packet.datagram.payload;
        let header = match tp::Segment::decode(payload) {
            Ok(header) => header,
            Err(error) => return self.bad_header(packet, error),
        };
        let identity = ChannelIdentity::IexTp {
            protocol: header.message_protocol_id().raw(),
            channel: header.channel_id(),
            session: header.session_id(),
        };
        let (index, line) = match self.destinations[at].channel {
            Some((index, line)) if self.channels[index].identity == identity => (index, line),
            _ => {
                let application = match header.message_protocol_id() {
                    tp::MessageProtocolId::Tops => Application::IexTops16,
                    tp::MessageProtocolId::Deep => Application::IexDeep10,
                    tp::MessageProtocolId::Unknown(_) => match self.options.application {
                        Some(application) => application,
                        None => {
                            self.counters.unrecognised_packets += 1;
                            return;
                        }
                    },
                };
                self.change_channel(at, packet, identity, application)
            }
        };
        self.iex_of(index, line, header, packet, sink);
    }

    /// An IEX-TP segment of a channel.
    #[inline]
    fn iex_of<S: Sink<Event>>(
        &mut self,
        index: usize,
        line: Line,
        header: tp::Segment<'_>,
        packet: &Packet<'_>,
        sink: &mut S,
    ) {
        let place =
            Place { index, line, first: header.first_message_sequence_number(), header: SEGMENT_HEADER };
        let count = u64::from(header.message_count());
        self.packet_at(place, count, false, header.blocks(), packet, sink);
    }

    /// A packet that is known to be of this channel, in its sequence.
    #[inline]
    pub(crate) fn packet_of<S: Sink<Event>>(
        &mut self,
        index: usize,
        line: Line,
        packet: &Packet<'_>,
        sink: &mut S,
    ) {
        self.counters.packets += 1;
        let payload = packet.datagram.payload;
        let decoded = match self.channels[index].identity {
            ChannelIdentity::IexTp { .. } => {
                tp::Segment::decode(payload).map(|header| self.iex_of(index, line, header, packet, sink))
            }
            _ => moldudp64::DownstreamPacket::decode(payload)
                .map(|header| self.mold_of(index, line, header, packet, sink)),
        };
        if let Err(error) = decoded {
            self.bad_header(packet, error);
        }
    }

    /// Messages of a channel will not come: the gap is told at `now`.
    #[cold]
    pub(crate) fn pass_over<S: Sink<Event>>(&mut self, index: usize, gap: Gap, now: Nanos, sink: &mut S) {
        let channel = &mut self.channels[index];
        channel.tracker.give_up(gap);
        let context =
            Context { received: Some(now), sequence: gap.first, channel: channel.number, line: Line::A };
        sink.put(channel.gap_event(gap, &context, now));
    }

    /// An event of a channel as a whole, or of one of its instruments, that no message told.
    pub(crate) fn event_of(
        &self,
        index: usize,
        kind: EventKind,
        instrument: InstrumentId,
        now: Nanos,
    ) -> Event {
        let channel = &self.channels[index];
        let mut event = Event::new(kind, channel.publisher, instrument);
        (event.ts_event, event.ts_recv) = (now, now);
        event.channel = channel.number;
        event.channel_sequence = channel.tracker.next().unwrap_or_default();
        event
    }

    /// A message of a channel outside its sequence: of a snapshot, or of a hole that was given up. Not counted.
    pub(crate) fn aside<S: Sink<Event>>(
        &mut self,
        index: usize,
        message: &[u8],
        received: Nanos,
        sequence: u64,
        sink: &mut S,
    ) {
        let channel = &mut self.channels[index];
        let context =
            Context { received: Some(received), sequence, channel: channel.number, line: Line::Snapshot };
        channel.translate(message, &context, (0, 0, 0), &mut self.problems, &mut self.symbols, sink);
    }

    /// A channel's books are made anew: they lack no orders of instruments that nothing has named.
    pub(crate) fn forget_unnamed(&mut self, index: usize) {
        if let Normaliser::Itch(itch) = &mut self.channels[index].normaliser {
            itch.forget_unnamed();
        }
    }

    /// The number that the events of a channel carry.
    pub(crate) fn set_number(&mut self, index: usize, number: u8) {
        self.channels[index].number = number;
    }

    /// The channel goes on behind a snapshot, with the message numbered `next`.
    pub(crate) fn restart(&mut self, index: usize, next: u64) {
        self.channels[index].tracker.restart(next);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn bad_header(&mut self, packet: &Packet<'_>, error: DecodeError) {
        self.problems.note(Problem {
            file: packet.file,
            packet: packet.number,
            offset: packet.offset,
            kind: ProblemKind::Message(error),
        });
    }

    /// A segment of a TCP connection: SoupBinTCP, or nothing of ours.
    #[cold]
    #[inline(never)]
    fn segment_of_stream<S: Sink<Event>>(&mut self, packet: &Packet<'_>, sink: &mut S) {
        self.stream_place = StreamPlace {
            place: (packet.file, packet.number, packet.offset),
            received: Some(packet.received),
        };
        let mut reassembler = std::mem::take(&mut self.reassembler);
        reassembler.push(&packet.datagram, |event| self.stream_event(event, sink));
        self.reassembler = reassembler;
    }

    /// Tells what streams still hold: bytes that waited behind a hole, packets that the end cut. Nothing may come after.
    pub fn finish<S: Sink<Event>>(&mut self, sink: &mut S) {
        let mut reassembler = std::mem::take(&mut self.reassembler);
        reassembler.finish(|event| self.stream_event(event, sink));
        self.reassembler = reassembler;
        let mut open: Vec<Flow> = self.connections.keys().copied().collect();
        // In an order that does not depend on the map's.
        open.sort_unstable_by_key(|flow| (flow.source, flow.destination));
        for flow in open {
            self.close_stream(flow, sink);
        }
    }

    fn stream_event<S: Sink<Event>>(&mut self, event: StreamEvent<'_>, sink: &mut S) {
        match event {
            StreamEvent::Opened { flow, .. } => {
                self.connections
                    .insert(flow, Connection { rest: Vec::new(), channel: None, is_given_up: false });
            }
            StreamEvent::Bytes { flow, bytes, .. } => self.stream_bytes(flow, bytes, sink),
            StreamEvent::Hole { flow, lost, .. } => {
                let Some(connection) = self.connections.get_mut(&flow) else { return };
                // Behind a hole nobody knows where a packet begins.
                connection.is_given_up = true;
                connection.rest.clear();
                let Some(index) = connection.channel else { return };
                self.stream_loss(index, ProblemKind::StreamHole { lost }, sink);
            }
            StreamEvent::Closed { flow, .. } => self.close_stream(flow, sink),
        }
    }

    fn close_stream<S: Sink<Event>>(&mut self, flow: Flow, sink: &mut S) {
        let Some(connection) = self.connections.remove(&flow) else { return };
        let Some(got) = std::num::NonZeroUsize::new(connection.rest.len()) else { return };
        match connection.channel {
            Some(index) => {
                let needed = recognise::first_packet_bytes(&connection.rest);
                let cut = FramingError::Cut { offset: 0, needed, got: got.get() };
                self.stream_loss(index, ProblemKind::Framing(cut), sink);
            }
            None => self.give_up(flow, got.get()),
        }
    }

    /// A stream lost something of unknown content: at least one message.
    fn stream_loss<S: Sink<Event>>(&mut self, index: usize, kind: ProblemKind, sink: &mut S) {
        let StreamPlace { place, received } = self.stream_place;
        self.note_at(place, kind);
        let channel = &mut self.channels[index];
        let gap = Gap { first: channel.next_number, count: 1 };
        channel.tracker.lose(gap);
        let context =
            Context { received, sequence: channel.next_number, channel: channel.number, line: Line::A };
        sink.put(channel.gap_event(gap, &context, Nanos(0)));
    }

    /// A stream that is in no protocol of ours.
    fn give_up(&mut self, flow: Flow, bytes: usize) {
        self.counters.unrecognised_packets += 1;
        self.counters.skipped_stream_bytes += bytes as u64;
        self.note_at(self.stream_place.place, ProblemKind::UnknownProtocol { destination: flow.destination });
    }

    fn stream_bytes<S: Sink<Event>>(&mut self, flow: Flow, bytes: &[u8], sink: &mut S) {
        let Some(mut connection) = self.connections.remove(&flow) else { return };
        if connection.is_given_up {
            self.counters.skipped_stream_bytes += bytes.len() as u64;
            self.connections.insert(flow, connection);
            return;
        }
        let joined;
        let stream = if connection.rest.is_empty() {
            bytes
        } else {
            connection.rest.extend_from_slice(bytes);
            joined = std::mem::take(&mut connection.rest);
            &joined
        };
        let StreamPlace { place, received } = self.stream_place;
        if connection.channel.is_none() {
            if recognise::is_start_cut(stream) {
                connection.rest = stream.to_vec();
            } else if recognise::soup_stream(stream) {
                let identity =
                    ChannelIdentity::SoupBinTcp { source: flow.source, destination: flow.destination };
                let publisher = self.options.publisher.unwrap_or(Publisher::XNAS_ITCH);
                let midnight = self.midnight(received);
                let index = self.admit(identity, Application::TotalViewItch50, publisher, midnight);
                self.channels[index].line_of(flow.destination);
                connection.channel = Some(index);
            } else {
                connection.is_given_up = true;
                self.give_up(flow, stream.len());
            }
        }
        if let Some(index) = connection.channel {
            let mut packets = soupbintcp::Packets::new(stream);
            for soup in packets.by_ref().filter_map(Result::ok) {
                // Without its length; what follows is the type and the body.
                let body = soup.get(2..).unwrap_or_default();
                self.soup_packet(index, body, received, place, sink);
            }
            connection.rest = packets.rest().to_vec();
        }
        self.connections.insert(flow, connection);
    }

    /// One SoupBinTCP packet without its length.
    fn soup_packet<S: Sink<Event>>(
        &mut self,
        index: usize,
        body: &[u8],
        received: Option<Nanos>,
        place: (u16, u64, u64),
        sink: &mut S,
    ) {
        let channel = &mut self.channels[index];
        channel.counters.packets += 1;
        match body.split_first() {
            Some((&soupbintcp::SequencedData::TAG, message)) => {
                channel.numbered_message(
                    message,
                    received,
                    place,
                    &mut self.problems,
                    &mut self.symbols,
                    sink,
                );
            }
            Some((&soupbintcp::LoginAccepted::TAG, login)) => {
                // Session, then the number of the first message to come.
                let number =
                    login.last_chunk::<20>().and_then(|digits| tapeworks_wire::AsciiNumber(*digits).value());
                if let Some(number) = number {
                    channel.next_number = number;
                }
            }
            Some((&soupbintcp::EndOfSession::TAG, _)) => channel.counters.ends_of_session += 1,
            Some((&soupbintcp::ServerHeartbeat::TAG, _)) => channel.counters.heartbeats += 1,
            // No protocol of ours sends messages so: it is order entry.
            Some((&soupbintcp::UnsequencedData::TAG, message)) => {
                self.note_at(place, ProblemKind::Unsequenced { bytes: message.len() });
            }
            // Logins and heartbeats of clients, debug packets.
            Some(_) => {}
            None => self.note_at(place, ProblemKind::Message(DecodeError::Empty)),
        }
    }

    #[cold]
    fn note_at(&mut self, (file, packet, offset): (u16, u64, u64), kind: ProblemKind) {
        self.problems.note(Problem { file, packet, offset, kind });
    }

    /// A message of a file without packets.
    #[inline]
    fn frame<S: Sink<Event>>(&mut self, index: usize, format: FileFormat, frame: &Frame<'_>, sink: &mut S) {
        let channel = &mut self.channels[index];
        let place = (frame.file, channel.counters.messages + 1, frame.offset);
        match format {
            FileFormat::LengthPrefixed => {
                channel.numbered_message(
                    frame.bytes,
                    None,
                    place,
                    &mut self.problems,
                    &mut self.symbols,
                    sink,
                );
            }
            FileFormat::SoupBinTcp => self.soup_packet(index, frame.bytes, None, place, sink),
        }
    }

    /// The stage that takes the messages of one file without packets. The feed is that of the options, else Nasdaq's;
    /// the midnight is that of the options, else `midnight`; without either, times count from the epoch.
    pub fn file(&mut self, file: u16, format: FileFormat, midnight: Option<Nanos>) -> FileFeed<'_> {
        let publisher = self.options.publisher.unwrap_or(Publisher::XNAS_ITCH);
        let midnight = self.options.midnight.or(midnight).unwrap_or_default();
        let index =
            self.admit(ChannelIdentity::File { file }, Application::TotalViewItch50, publisher, midnight);
        FileFeed { feed: self, index, format }
    }
}

impl Channel {
    /// Takes a packet's place in the sequence. Returns how many of its messages to skip, `None` when all.
    #[inline]
    fn begin<S: Sink<Event>>(
        &mut self,
        count: u64,
        is_end: bool,
        context: &Context,
        packet: &Packet<'_>,
        problems: &mut Problems,
        sink: &mut S,
    ) -> Option<u64> {
        self.counters.packets += 1;
        let arrival = self.tracker.arrive(context.sequence, count);
        if let Some(gap) = arrival.gap {
            let kind = ProblemKind::Gap(gap);
            problems.note(Problem { file: packet.file, packet: packet.number, offset: packet.offset, kind });
            sink.put(self.gap_event(gap, context, packet.received));
        }
        if count == 0 {
            *(if is_end { &mut self.counters.ends_of_session } else { &mut self.counters.heartbeats }) += 1;
            return None;
        }
        if arrival.skip == count {
            self.counters.duplicate_packets[usize::from(context.line == Line::B)] += 1;
            return None;
        }
        Some(arrival.skip)
    }

    /// A gap at the receive time, or, without one, at `otherwise`.
    #[cold]
    fn gap_event(&self, gap: Gap, context: &Context, otherwise: Nanos) -> Event {
        let mut event = Event::new(EventKind::Gap, self.publisher, InstrumentId::ALL).with_gap(gap);
        event.ts_recv = context.received.unwrap_or(otherwise);
        event.ts_event = event.ts_recv;
        event.channel_sequence = context.sequence;
        event.channel = context.channel;
        event.line = context.line;
        event
    }

    /// Translates the messages of one packet.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call in each of two transports; a struct would only rename them"
    )]
    #[inline]
    fn messages<'b, S: Sink<Event>, Order: tapeworks_wire::framing::LengthPrefix>(
        &mut self,
        mut blocks: tapeworks_wire::framing::Blocks<'b, Order>,
        header: usize,
        count: u64,
        skip: u64,
        mut context: Context,
        packet: &Packet<'_>,
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        let first = context.sequence;
        let mut number = 0;
        loop {
            let offset = packet.offset + (header + blocks.offset()) as u64;
            let Some(block) = blocks.next() else { break };
            match block {
                Ok(message) => {
                    if number >= skip {
                        context.sequence = first.saturating_add(number);
                        let place = (packet.file, packet.number, offset + 2);
                        self.message(message, &context, place, problems, symbols, sink);
                    }
                    number += 1;
                }
                Err(error) => {
                    // The rest of the packet is lost; the numbers of its messages are known, and those before `skip`
                    // came in another packet.
                    let lost_from = number.max(skip);
                    let gap = Gap {
                        first: first.saturating_add(lost_from),
                        count: count.saturating_sub(lost_from),
                    };
                    self.broken(error, gap, &context, packet, offset, problems, sink);
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the same as of its one caller")]
    #[cold]
    #[inline(never)]
    fn broken<S: Sink<Event>>(
        &mut self,
        error: FramingError,
        gap: Gap,
        context: &Context,
        packet: &Packet<'_>,
        offset: u64,
        problems: &mut Problems,
        sink: &mut S,
    ) {
        if !packet.datagram.truncated {
            let kind = ProblemKind::Framing(error);
            problems.note(Problem { file: packet.file, packet: packet.number, offset, kind });
        }
        if gap.count > 0 {
            self.tracker.lose(gap);
            sink.put(self.gap_event(gap, context, packet.received));
        }
    }

    /// A message whose number is the next of its channel.
    #[inline(always)]
    fn numbered_message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        received: Option<Nanos>,
        place: (u16, u64, u64),
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        let sequence = self.next_number;
        self.next_number = sequence.saturating_add(1);
        let context = Context { received, sequence, channel: self.number, line: Line::A };
        let arrival = self.tracker.arrive(sequence, 1);
        if arrival != IN_ORDER && self.renumbered(arrival, message, context, place, problems, sink) {
            return;
        }
        self.message(message, &context, place, problems, symbols, sink);
    }

    /// A message whose number is not the one after the last: a login began elsewhere. `true` when it came before.
    #[cold]
    #[inline(never)]
    fn renumbered<S: Sink<Event>>(
        &mut self,
        arrival: Arrival,
        message: &[u8],
        context: Context,
        (file, packet, offset): (u16, u64, u64),
        problems: &mut Problems,
        sink: &mut S,
    ) -> bool {
        if let Some(gap) = arrival.gap {
            problems.note(Problem { file, packet, offset, kind: ProblemKind::Gap(gap) });
            sink.put(self.gap_event(gap, &context, self.time_of(message)));
        }
        arrival.skip > 0
    }

    /// The venue's time of a message, for a gap that it tells where no packet has a receive time.
    fn time_of(&self, message: &[u8]) -> Nanos {
        match &self.normaliser {
            Normaliser::Itch(normaliser) => normaliser.time_of(message),
            Normaliser::Iex(_) => Nanos(0),
        }
    }

    /// Translates one message.
    #[inline(always)]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: &Context,
        place: (u16, u64, u64),
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        self.counters.messages += 1;
        self.translate(message, context, place, problems, symbols, sink);
    }

    /// Translates one message, whether or not it counts.
    #[inline(always)]
    fn translate<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: &Context,
        place: (u16, u64, u64),
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        if let Normaliser::Itch(normaliser) = &mut self.normaliser
            && normaliser.order(message, context, symbols, sink)
        {
            return;
        }
        self.other_message(message, *context, place, problems, symbols, sink);
    }

    /// Translates a message that is not about an order of ITCH.
    #[inline(never)]
    fn other_message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: Context,
        place: (u16, u64, u64),
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        let result = match &mut self.normaliser {
            Normaliser::Itch(normaliser) => itch50::Message::decode(message)
                .map(|message| normaliser.normalise(message, &context, symbols, sink)),
            Normaliser::Iex(normaliser) => {
                let mut target = Target { context: &context, symbols, sink: &mut *sink };
                let result = if self.application == Application::IexDeep10 {
                    deep10::Message::decode(message).map(|message| normaliser.deep(message, &mut target))
                } else {
                    tops16::Message::decode(message).map(|message| normaliser.tops(message, &mut target))
                };
                result.map(|()| None)
            }
        };
        match result {
            Ok(None) => {}
            Ok(Some(contradiction)) => {
                let (file, packet, offset) = place;
                let kind = ProblemKind::Contradiction(contradiction);
                problems.note(Problem { file, packet, offset, kind });
            }
            Err(error) => self.bad_message(error, message, context, place, problems, sink),
        }
    }

    #[cold]
    #[inline(never)]
    fn bad_message<S: Sink<Event>>(
        &mut self,
        error: DecodeError,
        message: &[u8],
        context: Context,
        (file, packet, offset): (u16, u64, u64),
        problems: &mut Problems,
        sink: &mut S,
    ) {
        problems.note(Problem { file, packet, offset, kind: ProblemKind::Message(error) });
        // A message of an unknown type is new and says nothing about books; one that is known and cannot be read may
        // have changed one.
        if !matches!(error, DecodeError::UnknownMessage { .. }) {
            let gap = Gap { first: context.sequence, count: 1 };
            self.tracker.lose(gap);
            sink.put(self.gap_event(gap, &context, self.time_of(message)));
        }
    }
}

impl<'p, S: Sink<Event>> Stage<Packet<'p>, S> for Feed {
    #[inline]
    fn process(&mut self, batch: &[Packet<'p>], sink: &mut S) {
        for packet in batch {
            self.packet(packet, sink);
        }
    }
}

/// The feed of one file without packets: see [`Feed::file`].
#[derive(Debug)]
pub struct FileFeed<'f> {
    feed: &'f mut Feed,
    index: usize,
    format: FileFormat,
}

impl<'b, S: Sink<Event>> Stage<Frame<'b>, S> for FileFeed<'_> {
    #[inline]
    fn process(&mut self, batch: &[Frame<'b>], sink: &mut S) {
        for frame in batch {
            self.feed.frame(self.index, self.format, frame, sink);
        }
    }
}
