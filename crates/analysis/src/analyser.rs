//! Walks captures and message files as a protocol analyser does: every packet, every transport header, every message,
//! held against the schema of its protocol, with the place where it lies.
//!
//! This is the slow, complete path that `dump`, `stats` and `study` share: it shows what the engine only counts. Unreadable
//! parts are an [`Item`] too, and the walk continues behind them.
//!
//! Cost of a message: a loop over the schema's messages for the tag, and a call of the visitor.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::ControlFlow;

use tapeworks_feed::channels::{HeldPacket, Sequenced};
use tapeworks_feed::recognise;
use tapeworks_feed::router::{Attributed, Route, RoutedChannel, Router};
use tapeworks_feed::sequence::{Arrival, unread};
use tapeworks_feed::sessions::{self, Form, Numbers, Session, Start};
use tapeworks_feed::{Application, ChannelIdentity, FileFormat};
use tapeworks_market::{Line, Publisher};
use tapeworks_packet::CaptureError;
use tapeworks_packet::capture::{CapturedDatagram, CapturedPacket};
use tapeworks_packet::net::{self, Datagram, HeaderError, Transport};
use tapeworks_packet::tcp::{Flow, Limits, Reassembler, StreamEvent};
use tapeworks_session::{Transport as UdpTransport, for_transport};
use tapeworks_time::Nanos;
use tapeworks_wire::Role;
use tapeworks_wire::framing::{Blocks, FramingError, LengthPrefix};
use tapeworks_wire::nasdaq::{glimpse50, soupbintcp};
use tapeworks_wire::schema::{Decoded, Schema};

use crate::fix::{self, FixFault, FixMessage, LogReader};
use crate::input::{Input, Recognition, Source, Unrecognised};
use crate::sessions::ReadAs;

/// How many packets or messages go by between two reports of progress.
const PROGRESS_STEP: u64 = 1 << 12;

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, by its place among the inputs.
    pub file: usize,
    /// The packet in the file, from 1; in a file without packets, the message.
    pub number: u64,
    /// Bytes from the start of the file (of a compressed file, of its contents). Of a message in a TCP stream, the
    /// payload of the segment that completed it.
    pub offset: u64,
    /// When the packet was captured; `None` in a file without packets.
    pub time: Option<Nanos>,
}

/// A transport's header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The transport.
    pub schema: &'static Schema,
    /// The header's fields.
    pub decoded: Decoded<'a>,
    /// The channel that it belongs to.
    pub channel: ChannelIdentity,
    /// The feed, where the destination or the application determines it.
    pub publisher: Option<Publisher>,
    /// Its sender and its destination.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The VLAN that it came on.
    pub vlan: Option<u16>,
    /// Number of the first message in the channel's sequence, where the transport or the login gives it.
    pub first_sequence: Option<u64>,
    /// Messages that it announces.
    pub messages: u64,
    /// Whether it ends the session.
    pub is_end_of_session: bool,
    /// Its place in the channel's sequence: what is missing before it, what came before, and whether it is plausible.
    pub arrival: Arrival,
}

/// A message of an application.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The application.
    pub schema: &'static Schema,
    /// The message's fields, or why they cannot be read.
    pub decoded: Decoded<'a>,
    /// The channel that carried it.
    pub channel: ChannelIdentity,
    /// Its number in the channel's sequence.
    pub sequence: Option<u64>,
    /// Whether the channel had brought it (or reported it missing) before.
    pub is_repeated: bool,
    /// Whether its packet is [refused](Arrival::is_refused), so that it does not count.
    pub is_refused: bool,
    /// Whether the packet ends inside it.
    pub is_cut: bool,
}

/// A part that could not be read, or need not be.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Network headers that do not hold together.
    Headers(net::HeaderError),
    /// A sound packet that is neither UDP nor TCP over IP.
    NotOurs(net::HeaderError),
    /// Payload in none of our protocols.
    UnknownProtocol {
        /// Its sender.
        source: SocketAddr,
        /// Where to.
        destination: SocketAddr,
        /// TCP or UDP.
        is_stream: bool,
        /// Bytes of payload.
        bytes: usize,
    },
    /// Payload in one of several of our protocols, and the bytes do not say which.
    InDoubt {
        /// Its sender.
        source: SocketAddr,
        /// Where to.
        destination: SocketAddr,
        /// TCP or UDP.
        is_stream: bool,
        /// Bytes of payload.
        bytes: usize,
        /// The names of the protocols.
        protocols: Vec<&'static str>,
        /// It carries no messages, so that nothing is lost.
        is_heartbeat: bool,
    },
    /// The capture kept only the beginning of the packet.
    CutPacket {
        /// Bytes kept.
        kept: usize,
        /// Bytes that the packet had.
        original: u32,
        /// The resulting error, if there is one.
        error: Option<FramingError>,
    },
    /// The transport's framing does not hold together.
    Framing {
        /// How.
        error: FramingError,
        /// Messages of the packet that are lost by it.
        lost: u64,
    },
    /// A transport header or packet that cannot be read.
    Transport(tapeworks_wire::DecodeError),
    /// A message in an application that we do not know, carried by a transport that we do.
    UnknownApplication {
        /// Bytes of the message.
        bytes: usize,
    },
    /// Bytes of a stream that the capture does not have.
    StreamHole {
        /// How many.
        lost: u64,
    },
    /// A part of a FIX stream or log that is no message.
    Fix(FixFault),
    /// A stream that ends inside a packet.
    StreamCut {
        /// Bytes of that packet.
        bytes: usize,
    },
}

impl Trouble {
    /// Whether market data were lost by it.
    #[must_use]
    pub const fn is_problem(&self) -> bool {
        !matches!(self, Self::NotOurs(_) | Self::InDoubt { is_heartbeat: true, .. })
    }
}

const fn transport_name(is_stream: bool) -> &'static str {
    if is_stream { "TCP" } else { "UDP" }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Headers(error) => write!(f, "{error}"),
            Self::NotOurs(error) => write!(f, "skipped: {error}"),
            Self::UnknownProtocol { source, destination, is_stream, bytes } => {
                let transport = transport_name(*is_stream);
                write!(f, "no known protocol: {bytes} bytes of {transport} from {source} to {destination}")
            }
            Self::InDoubt { source, destination, protocols, is_heartbeat: true, .. } => {
                let protocols = protocols.join(" or ");
                write!(f, "a heartbeat from {source} to {destination} of {protocols}")
            }
            Self::InDoubt { source, destination, is_stream, bytes, protocols, .. } => write!(
                f,
                "{bytes} bytes of {} from {source} to {destination} may be {}: name the protocol",
                transport_name(*is_stream),
                protocols.join(" or ")
            ),
            Self::CutPacket { kept, original, error } => {
                write!(f, "the capture kept {kept} of the packet's {original} bytes")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            Self::Framing { error, lost: 0 | 1 } => write!(f, "{error}"),
            Self::Framing { error, lost } => write!(f, "{error}; {lost} messages are lost"),
            Self::Transport(error) => write!(f, "{error}"),
            Self::UnknownApplication { bytes } => {
                write!(f, "no known protocol in the transport's {bytes} bytes")
            }
            Self::StreamHole { lost } => write!(f, "{lost} bytes of the stream are missing"),
            Self::Fix(fault) => write!(f, "{fault}"),
            Self::StreamCut { bytes } => write!(f, "the stream ends inside a packet, {bytes} bytes are left"),
        }
    }
}

/// An item of the walk.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A transport's header; its messages follow.
    Header(Header<'a>),
    /// A message.
    Message(Message<'a>),
    /// A FIX message.
    Fix(FixMessage<'a>),
    /// Something that could not be read; of a message in an unknown application, with its bytes.
    Trouble(&'a Trouble, &'a [u8]),
}

/// How far the walk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read of all files, as they lie on disk.
    pub bytes_read: u64,
    /// Bytes of all files; `None` if one is a pipe.
    pub total_bytes: Option<u64>,
}

/// The receiver of the items of the walk.
pub trait Visitor {
    /// One item. To break ends the whole walk.
    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()>;

    /// A packet of a capture, before its items. To break ends the whole walk.
    fn packet(&mut self, _file: usize, _packet: &CapturedPacket<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Called now and then. To break ends the whole walk.
    fn progress(&mut self, _progress: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Passes each item to a visitor, and counts the recognised items of its capture.
///
/// The visitor is a trait object because the walk is large and already compiled once per transport: compiled once per visitor too, it was a
/// third of this crate's code. The cost is a virtual call per item.
pub(crate) struct Noticing<'v> {
    visitor: &'v mut dyn Visitor,
    /// Counts for the item's capture. `None` for files whose format fixes the protocol.
    recognition: Option<&'v mut Recognition>,
}

impl<'v> Noticing<'v> {
    fn in_capture(visitor: &'v mut dyn Visitor, recognition: &'v mut Recognition) -> Self {
        Self { visitor, recognition: Some(recognition) }
    }

    pub(crate) fn known(visitor: &'v mut dyn Visitor) -> Self {
        Self { visitor, recognition: None }
    }

    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()> {
        if let Some(recognition) = &mut self.recognition {
            match &item {
                Item::Header(_) | Item::Message(_) | Item::Fix(_) => recognition.recognised += 1,
                Item::Trouble(Trouble::InDoubt { is_heartbeat: true, .. }, _) => recognition.recognised += 1,
                Item::Trouble(trouble, _) => recognition.reject(|| trouble.to_string()),
            }
        }
        self.visitor.visit(place, item)
    }
}

/// How a walk ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The files that could not be read to their end; the items before the error were shown.
    pub damaged: Vec<CaptureError>,
    /// The captures of which no packet was recognised.
    pub unrecognised: Vec<Unrecognised>,
    /// Destinations whose protocol was inferred because no other fits their packets, with that protocol.
    pub inferred: BTreeMap<SocketAddr, &'static str>,
    /// The visitor ended it.
    pub is_stopped: bool,
}

impl Ended {
    /// Whether every file was read to its end, and something of each was recognised.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.unrecognised.is_empty()
    }

    /// What is wrong with whole files, a line each.
    pub fn complaints(&self) -> impl Iterator<Item = String> {
        let damaged = self.damaged.iter().map(ToString::to_string);
        damaged.chain(self.unrecognised.iter().map(ToString::to_string))
    }

    /// Takes note of a file that ended early.
    fn take(&mut self, error: CaptureError) {
        match error {
            CaptureError::Stopped { .. } => self.is_stopped = true,
            error => self.damaged.push(error),
        }
    }
}

/// Whether `bytes` start with SoupBinTCP packets, whatever they carry.
fn is_soup(bytes: &[u8]) -> bool {
    let mut packets = soupbintcp::Packets::new(bytes).filter_map(Result::ok).take(8).peekable();
    packets.peek().is_some() && packets.all(|packet| soupbintcp::Message::decode(packet).is_ok())
}

/// In which order several files are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, each for itself.
    ByFile,
    /// Captures merged by time, as one: lines A and B of a channel may lie in two files. Files without packets follow,
    /// merged by their messages' own times of day.
    ByTime,
}

fn report_progress(inputs: &[Input], total_bytes: Option<u64>, visitor: &mut dyn Visitor) -> ControlFlow<()> {
    let bytes_read = inputs.iter().map(|input| input.bytes().bytes_read()).sum();
    visitor.progress(Progress { bytes_read, total_bytes })
}

/// Walks the files as one, by time: the captures, then the files without packets, whose messages' own times count from
/// midnight, whatever the day.
fn merge(
    inputs: &mut [Input],
    analyser: &mut Analyser,
    ended: &mut Ended,
    total_bytes: Option<u64>,
    visitor: &mut dyn Visitor,
) -> ControlFlow<()> {
    let mut steps = 0u64;
    loop {
        // The first of several with the same time, so that the walk is the same each time.
        let mut next: Option<((bool, Nanos), usize)> = None;
        for (index, input) in inputs.iter_mut().enumerate() {
            let is_framed = !matches!(input.source, Source::Capture(_));
            match input.next_time(Some(Nanos(0))) {
                Ok(Some(time)) if next.is_none_or(|(first, _)| (is_framed, time) < first) => {
                    next = Some(((is_framed, time), index));
                }
                Ok(_) => {}
                Err(error) => ended.take(error),
            }
        }
        let Some((_, index)) = next else { return ControlFlow::Continue(()) };
        // Found by the look at its time, so there is neither an end nor an error here.
        let Some(Input { source, recognition, .. }) = inputs.get_mut(index) else { continue };
        match source {
            Source::Capture(reader) => {
                if let Ok(Some(packet)) = reader.next_datagram() {
                    analyser.packet(index, packet, &mut Noticing::in_capture(visitor, recognition))?;
                }
            }
            Source::Framed { reader, format, .. } => {
                if let Ok(Some(frame)) =
                    reader.next_batch().map(|batch| batch.and_then(|mut batch| batch.next()))
                {
                    analyser.frame(
                        index,
                        *format,
                        frame.offset,
                        frame.bytes,
                        &mut Noticing::known(visitor),
                    )?;
                }
            }
            Source::FixLog(reader) => {
                log_line(index, reader, &mut Noticing::known(visitor))?;
            }
        }
        steps += 1;
        if steps.is_multiple_of(PROGRESS_STEP) {
            report_progress(inputs, total_bytes, visitor)?;
        }
    }
}

/// Walks `inputs` and shows `visitor` the items. `read_as` is their protocol, if the user sets it.
pub fn walk(inputs: &mut [Input], order: Order, read_as: Option<ReadAs>, visitor: &mut dyn Visitor) -> Ended {
    let mut ended = Ended::default();
    let mut steps = 0u64;
    let mut analyser = Analyser::new(read_as);
    let total_bytes = inputs.iter().map(|input| input.bytes().total_len()).sum::<Option<u64>>();
    if order == Order::ByTime
        && inputs.len() > 1
        && merge(inputs, &mut analyser, &mut ended, total_bytes, visitor).is_break()
    {
        ended.is_stopped = true;
        return ended;
    }
    // The merged inputs have ended.
    for index in 0..inputs.len() {
        if order == Order::ByFile {
            ended.inferred.extend(analyser.inferred());
            analyser = Analyser::new(read_as);
        }
        while let Some(Input { source, recognition, .. }) = inputs.get_mut(index) {
            let flow = match source {
                Source::Capture(reader) => match reader.next_datagram() {
                    Ok(Some(packet)) => {
                        steps += 1;
                        analyser.packet(index, packet, &mut Noticing::in_capture(visitor, recognition))
                    }
                    Ok(None) => break,
                    Err(error) => {
                        ended.take(error);
                        break;
                    }
                },
                Source::FixLog(reader) => match log_line(index, reader, &mut Noticing::known(visitor)) {
                    ControlFlow::Continue(true) => {
                        steps += 1;
                        ControlFlow::Continue(())
                    }
                    ControlFlow::Continue(false) => {
                        if let Some(error) = reader.source_mut().take_failure() {
                            ended.take(error);
                        }
                        break;
                    }
                    ControlFlow::Break(()) => ControlFlow::Break(()),
                },
                Source::Framed { reader, format, .. } => match reader.next_batch() {
                    Ok(Some(batch)) => {
                        let before = steps;
                        let mut flow = ControlFlow::Continue(());
                        for frame in batch {
                            steps += 1;
                            flow = analyser.frame(
                                index,
                                *format,
                                frame.offset,
                                frame.bytes,
                                &mut Noticing::known(visitor),
                            );
                            if flow.is_break() {
                                break;
                            }
                        }
                        // A batch is long: report after each.
                        steps = steps.max((before / PROGRESS_STEP + 1) * PROGRESS_STEP);
                        flow
                    }
                    Ok(None) => break,
                    Err(error) => {
                        ended.take(error);
                        break;
                    }
                },
            };
            let is_time = steps.is_multiple_of(PROGRESS_STEP);
            if flow.is_break() || is_time && report_progress(inputs, total_bytes, visitor).is_break() {
                ended.is_stopped = true;
                return ended;
            }
        }
        if analyser.end(&mut Noticing::known(visitor)).is_break() {
            ended.is_stopped = true;
            return ended;
        }
    }
    let _the_last_one = report_progress(inputs, total_bytes, visitor);
    ended.inferred.extend(analyser.inferred());
    ended.unrecognised = inputs.iter().filter_map(Input::unrecognised).collect();
    ended
}

/// One direction of a TCP connection.
#[derive(Debug, Default)]
struct Connection {
    /// The start of an incomplete packet.
    rest: Vec<u8>,
    /// SoupBinTCP, and whether its messages are in ITCH.
    is_recognised: bool,
    application: Option<Application>,
    /// A session that is not SoupBinTCP, and the numbers of the messages that it carries.
    session: Option<(Session, Numbers)>,
    /// The session of the other direction.
    peer: Option<Session>,
    /// FIX: behind a hole the next message is found.
    is_fix: bool,
    /// After a gap in the stream the start of the next packet is unknown.
    is_given_up: bool,
    next_sequence: Option<u64>,
    /// Where the last bytes came from.
    place: Option<Place>,
}

/// The application of a message that a SoupBinTCP stream carries in messages of this name, where the feeds have not recognised it: the
/// first one that can read it.
fn carried_by_soup(within: &str, bytes: &[u8]) -> Option<&'static Schema> {
    let is_carried = |protocol: &&&tapeworks_wire::Protocol| match protocol.role {
        Role::Application(carriers) => carriers.iter().any(|carrier| {
            carrier.transport.name == soupbintcp::SCHEMA.name
                && carrier.within.is_none_or(|name| name == within)
        }),
        _ => false,
    };
    let candidates = tapeworks_wire::protocols().iter().filter(is_carried).map(|protocol| protocol.schema);
    candidates.into_iter().find(|schema| recognise::is_plausible(&schema.decode(bytes)))
}

impl Connection {
    /// It is of this session.
    fn recognise(&mut self, session: Session) {
        self.is_recognised = true;
        self.session = Some((session, Numbers::default()));
    }

    fn session(&self) -> Option<Session> {
        self.session.map(|(session, _)| session)
    }
}

/// How far a file without packets is.
#[derive(Debug, Default)]
struct FramedFile {
    frames: u64,
    next_sequence: Option<u64>,
}

/// A channel's sequence and publisher.
#[derive(Debug)]
struct Channel {
    sequenced: Sequenced,
    publisher: Publisher,
    has_messages: bool,
}

impl Channel {
    /// Renames a channel without messages, which turns out to belong to another feed.
    fn rename(&mut self, application: Application, destination: SocketAddr) {
        self.sequenced.rename(application);
        self.publisher = application.spec().publisher(None, Some(destination));
    }
}

impl AsRef<Sequenced> for Channel {
    #[inline]
    fn as_ref(&self) -> &Sequenced {
        &self.sequenced
    }
}

impl AsMut<Sequenced> for Channel {
    #[inline]
    fn as_mut(&mut self) -> &mut Sequenced {
        &mut self.sequenced
    }
}

impl RoutedChannel for Channel {
    fn publisher(&self) -> Publisher {
        self.publisher
    }

    fn has_messages(&self) -> bool {
        self.has_messages
    }

    /// Always A: each packet is shown with its destination.
    fn line_of(&mut self, _destination: SocketAddr) -> Line {
        Line::A
    }
}

/// Finds protocols and messages in packets.
pub(crate) struct Analyser {
    /// The feed that the user sets.
    forced: Option<Application>,
    /// How TCP streams are read.
    streams: ReadStreams,
    router: Router<Channel>,
    reassembler: Reassembler,
    connections: HashMap<Flow, Connection>,
    /// Of the files without packets, by their place among the inputs.
    framed: HashMap<usize, FramedFile>,
    /// A SoupBinTCP packet with its length before it.
    scratch: Vec<u8>,
}

/// How TCP streams are read.
#[derive(Debug, Clone, Copy)]
enum ReadStreams {
    /// By their bytes; where these leave a doubt, as this session.
    Recognised(Option<Session>),
    /// As SoupBinTCP with messages of this feed.
    Soup(Application),
    /// As this session.
    Session(Session),
}

impl ReadStreams {
    fn of(read_as: Option<ReadAs>) -> Self {
        match (read_as, read_as.and_then(ReadAs::session)) {
            (Some(ReadAs::Session(session)), _) => Self::Session(session),
            (Some(ReadAs::Feed(application)), None) => Self::Soup(application),
            (Some(ReadAs::Feed(_)) | None, expected) => Self::Recognised(expected),
        }
    }
}

impl Analyser {
    pub(crate) fn new(read_as: Option<ReadAs>) -> Self {
        let forced = read_as.and_then(ReadAs::feed);
        Self {
            forced,
            streams: ReadStreams::of(read_as),
            router: Router::new(forced, None),
            reassembler: Reassembler::new(Limits::default()),
            connections: HashMap::new(),
            framed: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    fn packet(
        &mut self,
        file: usize,
        CapturedDatagram { packet, datagram }: CapturedDatagram<'_>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        if !datagram.as_ref().is_err_and(HeaderError::is_of_earlier) {
            visitor.visitor.packet(file, &packet)?;
        }
        let place = Place {
            file,
            number: packet.number,
            offset: packet.offset,
            time: Some(Nanos(packet.timestamp_ns)),
        };
        let datagram = match datagram {
            Ok(datagram) => datagram,
            // Kept until its packet is whole.
            Err(HeaderError::Fragment { .. }) => return ControlFlow::Continue(()),
            Err(error) if error.is_malformed() => {
                return visitor.visit(&place, Item::Trouble(&Trouble::Headers(error), packet.bytes));
            }
            Err(error) => {
                return visitor.visit(&place, Item::Trouble(&Trouble::NotOurs(error), packet.bytes));
            }
        };
        let place = Place { offset: packet.offset + datagram.payload_offset as u64, ..place };
        let cut = packet.is_cut().then_some((packet.bytes.len(), packet.original_length));
        match datagram.transport {
            Transport::Udp => self.datagram(&place, &datagram, cut, visitor),
            Transport::Tcp(_) => self.segment(&place, &datagram, cut, visitor),
        }
    }

    fn inferred(&self) -> impl Iterator<Item = (SocketAddr, &'static str)> {
        self.router.inferred().map(|(destination, application)| (destination, application.spec().name))
    }

    /// Returns the router's index of a datagram's destination, and the datagram's feed. Renames the destination's channel if needed.
    pub(crate) fn attribute(&mut self, datagram: &Datagram<'_>) -> Option<(usize, Application)> {
        let at = self.router.destination(datagram.destination);
        if let Some(known) = self.router.known(at) {
            return Some((at, known));
        }
        let Attributed { application, renamed } = self.router.attribute(at, datagram.payload)?;
        if let Some(index) = renamed {
            self.router.channels[index].rename(application, datagram.destination);
        }
        Some((at, application))
    }

    /// Shows the messages of a UDP packet.
    fn datagram(
        &mut self,
        place: &Place,
        datagram: &Datagram<'_>,
        cut: Option<(usize, u32)>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        match self.attribute(datagram) {
            Some(attributed) => self.attributed(place, attributed, datagram, cut, visitor),
            None => unknown_datagram(place, datagram, visitor),
        }
    }

    /// Shows the messages of a UDP packet whose destination and feed are known.
    pub(crate) fn attributed(
        &mut self,
        place: &Place,
        (at, application): (usize, Application),
        datagram: &Datagram<'_>,
        cut: Option<(usize, u32)>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        let packet = tapeworks_feed::Packet {
            // Files beyond 65,536 would share a number; no command line holds so many.
            file: u16::try_from(place.file).unwrap_or(u16::MAX),
            number: place.number,
            offset: place.offset,
            received: place.time.unwrap_or_default(),
            datagram: Datagram { truncated: datagram.truncated || cut.is_some(), ..*datagram },
        };
        for_transport!(application.transport(), T => self.packet_of::<T>(at, application, &packet, cut, visitor))
    }

    /// A datagram of a transport.
    fn packet_of<T: UdpTransport>(
        &mut self,
        at: usize,
        application: Application,
        packet: &tapeworks_feed::Packet<'_>,
        cut: Option<(usize, u32)>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        let datagram = &packet.datagram;
        let read = match T::packet(datagram.payload) {
            Ok(read) => read,
            Err(error) => {
                let trouble = Trouble::Transport(error);
                return visitor.visit(&place_of(packet), Item::Trouble(&trouble, datagram.payload));
            }
        };
        if let Some((index, _)) = self.router.next(at, &read.header, datagram.destination.port()) {
            return self.show_packet::<T>(packet, cut, index, None, read, visitor);
        }
        let make = |identity, application, publisher, _: Option<&Channel>| Channel {
            sequenced: Sequenced::new(identity, application),
            publisher,
            has_messages: false,
        };
        let route = self.router.route(at, packet, read.header, application, make);
        self.show_refused(visitor)?;
        let (index, skipped) = match route {
            Route::Channel { index, renamed, .. } => {
                if let Some(application) = renamed {
                    self.router.channels[index].rename(application, datagram.destination);
                }
                (index, None)
            }
            Route::Skipped(index, arrival) => (index, Some(arrival)),
            Route::Held => return ControlFlow::Continue(()),
            Route::Unrecognised => return unknown_datagram(&place_of(packet), datagram, visitor),
            Route::Restarted { to, held, .. } => {
                let application = self.router.channels[to].sequenced.application();
                for held in held {
                    self.held_packet(application, &held, visitor)?;
                }
                self.router.enter(at, to);
                (to, None)
            }
        };
        self.show_packet::<T>(packet, cut, index, skipped, read, visitor)
    }

    /// Reads a packet that was held.
    fn held_packet(
        &mut self,
        application: Application,
        held: &HeldPacket,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        let packet = held.packet();
        let at = self.router.destination(packet.datagram.destination);
        for_transport!(application.transport(), T => {
            self.packet_of::<T>(at, application, &packet, None, visitor)
        })
    }

    /// Shows the packets that waited and were refused.
    fn show_refused(&mut self, visitor: &mut Noticing<'_>) -> ControlFlow<()> {
        for (index, held, refusal) in self.router.channels.take_refused() {
            let packet = held.packet();
            let transport = self.router.channels[index].sequenced.application().transport();
            for_transport!(transport, T => {
                if let Ok(read) = T::packet(packet.datagram.payload) {
                    let refused = Some(Arrival::refused(read.header.count, refusal));
                    self.show_packet::<T>(&packet, None, index, refused, read, visitor)?;
                }
            });
        }
        ControlFlow::Continue(())
    }

    /// Shows a packet of a channel, which is skipped if that is known already.
    fn show_packet<T: UdpTransport>(
        &mut self,
        packet: &tapeworks_feed::Packet<'_>,
        cut: Option<(usize, u32)>,
        index: usize,
        skipped: Option<Arrival>,
        read: tapeworks_session::Packet<'_, T::Prefix>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        let (place, datagram) = (&place_of(packet), &packet.datagram);
        let tapeworks_session::Header { first, mut count, is_end_of_session, .. } = read.header;
        let channel = &mut self.router.channels[index];
        channel.has_messages |= skipped.is_none() && count > 0;
        let channel = &mut channel.sequenced;
        if let Some((held, _)) = channel.count_of_copy::<T>(&read.header, packet) {
            count = held;
        }
        if skipped.is_none() {
            channel.note::<T>(&read, packet);
        }
        let application = channel.application();
        let header = Header {
            schema: T::SCHEMA,
            decoded: T::fields(datagram.payload),
            channel: *channel.identity(),
            publisher: publisher_of(application, datagram.destination),
            addresses: Some((datagram.source, datagram.destination)),
            vlan: datagram.vlan,
            first_sequence: Some(first),
            messages: read.header.count,
            is_end_of_session,
            arrival: skipped.unwrap_or_else(|| channel.tracker.arrive(first, count)),
        };
        let schema_of = |_: &[u8]| application.spec().schema;
        let header_bytes = read.header_bytes as u64;
        let is_end = |behind: &[u8]| !datagram.truncated && T::is_end(behind);
        let payload = datagram.payload;
        let overcounted =
            blocks(place, schema_of, is_end, &header, header_bytes, read.blocks, payload, cut, visitor)?;
        if let (Some(held), None) = (overcounted, skipped) {
            let tracker = &mut self.router.channels[index].as_mut().tracker;
            tracker.cannot_read(unread(count, header.arrival.skip, held));
        }
        ControlFlow::Continue(())
    }

    fn segment(
        &mut self,
        place: &Place,
        datagram: &Datagram<'_>,
        cut: Option<(usize, u32)>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        if let Some((kept, original)) = cut {
            let trouble = Trouble::CutPacket { kept, original, error: None };
            visitor.visit(place, Item::Trouble(&trouble, datagram.payload))?;
        }
        let (connections, streams) = (&mut self.connections, self.streams);
        let mut flow = ControlFlow::Continue(());
        self.reassembler.push(datagram, |event| {
            if flow.is_continue() {
                flow = stream_event(connections, streams, event, place, datagram.vlan, visitor);
            }
        });
        flow
    }

    /// The end of a file, or of all captures: shows the packets and bytes that still waited.
    fn end(&mut self, visitor: &mut Noticing<'_>) -> ControlFlow<()> {
        for (application, held) in self.router.channels.finish() {
            self.held_packet(application, &held, visitor)?;
        }
        self.show_refused(visitor)?;
        let nowhere = Place { file: 0, number: 0, offset: 0, time: None };
        let mut flow = ControlFlow::Continue(());
        let (connections, streams) = (&mut self.connections, self.streams);
        std::mem::take(&mut self.reassembler).finish(|event| {
            if flow.is_continue() {
                let key = match event {
                    StreamEvent::Opened { flow, .. }
                    | StreamEvent::Bytes { flow, .. }
                    | StreamEvent::Hole { flow, .. }
                    | StreamEvent::Closed { flow, .. } => flow,
                };
                let place = connections.get(&key).and_then(|connection| connection.place).unwrap_or(nowhere);
                flow = stream_event(connections, streams, event, &place, None, visitor);
            }
        });
        self.connections.clear();
        flow
    }

    /// A message of a file without packets, or a SoupBinTCP packet without its length.
    fn frame(
        &mut self,
        file: usize,
        framing: FileFormat,
        offset: u64,
        bytes: &[u8],
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        let framed = self.framed.entry(file).or_default();
        framed.frames += 1;
        let place = Place { file, number: framed.frames, offset, time: None };
        // Files beyond 65,536 would share channels; no command line holds so many.
        let channel = ChannelIdentity::File { file: u16::try_from(file).unwrap_or(u16::MAX) };
        let application = self.forced.unwrap_or(Application::OF_STREAMS);
        let schema = application.spec().schema;
        match framing {
            FileFormat::LengthPrefixed => {
                let message = Message {
                    schema,
                    decoded: schema.decode(bytes),
                    channel,
                    sequence: None,
                    is_repeated: false,
                    is_refused: false,
                    is_cut: false,
                };
                visitor.visit(&place, Item::Message(message))
            }
            FileFormat::SoupBinTcp => {
                self.scratch.clear();
                // A frame's length was two bytes, so it fits.
                let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                self.scratch.extend_from_slice(&length.to_be_bytes());
                self.scratch.extend_from_slice(bytes);
                let place = Place { offset: offset.saturating_sub(2), ..place };
                let envelope =
                    Envelope { channel, addresses: None, vlan: None, application: Some(application) };
                soup_packet(&place, &envelope, &self.scratch, &mut framed.next_sequence, visitor)
            }
        }
    }
}

fn place_of(packet: &tapeworks_feed::Packet<'_>) -> Place {
    let tapeworks_feed::Packet { file, number, offset, received, .. } = *packet;
    Place { file: usize::from(file), number, offset, time: Some(received) }
}

/// The publisher of a channel, if its bytes or its destination say it.
fn publisher_of(application: Application, destination: SocketAddr) -> Option<Publisher> {
    let spec = application.spec();
    let destination = Some(destination);
    (!spec.is_presumed(None, destination)).then(|| spec.publisher(None, destination))
}

/// Shows a datagram of no feed.
fn unknown_datagram(place: &Place, datagram: &Datagram<'_>, visitor: &mut Noticing<'_>) -> ControlFlow<()> {
    let Datagram { source, destination, payload, .. } = *datagram;
    let (is_stream, bytes, protocols) = (false, payload.len(), recognise::possible(payload));
    let trouble = if protocols.is_empty() {
        Trouble::UnknownProtocol { source, destination, is_stream, bytes }
    } else {
        let is_heartbeat = recognise::is_heartbeat(payload);
        Trouble::InDoubt { source, destination, is_stream, bytes, protocols, is_heartbeat }
    };
    visitor.visit(place, Item::Trouble(&trouble, datagram.payload))
}

/// Shows a packet's header and the messages in it. Returns their number if the packet is whole and its count promises more; `is_end`: whether a packet may end
/// with these bytes behind its messages.
#[expect(clippy::too_many_arguments, reason = "one call")]
fn blocks<Prefix: LengthPrefix>(
    place: &Place,
    schema_of: impl Fn(&[u8]) -> &'static Schema,
    is_end: impl Fn(&[u8]) -> bool,
    header: &Header<'_>,
    header_length: u64,
    mut blocks: Blocks<'_, Prefix>,
    payload: &[u8],
    cut: Option<(usize, u32)>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<(), Option<u64>> {
    visitor.visit(place, Item::Header(*header))?;
    let mut number = 0;
    let mut broken = None;
    let prefix = if Prefix::IS_PART { 0 } else { Prefix::BYTES as u64 };
    loop {
        let at = Place { offset: place.offset + header_length + blocks.offset() as u64 + prefix, ..*place };
        let Some(block) = blocks.next() else { break };
        let message = |bytes, is_cut| {
            let schema = schema_of(bytes);
            Message {
                schema,
                decoded: schema.decode(bytes),
                channel: header.channel,
                sequence: header.first_sequence.map(|first| first.saturating_add(number)),
                is_repeated: number < header.arrival.skip && !header.arrival.is_refused(),
                is_refused: header.arrival.is_refused(),
                is_cut,
            }
        };
        match block {
            Ok(bytes) => visitor.visit(&at, Item::Message(message(bytes, false)))?,
            Err(error) => {
                if let FramingError::Cut { got: 3.., .. } = error {
                    let start = usize::try_from(at.offset - place.offset).unwrap_or(usize::MAX);
                    let part = message(payload.get(start..).unwrap_or_default(), true);
                    visitor.visit(&at, Item::Message(part))?;
                }
                broken = Some((at, error));
            }
        }
        number += 1;
    }
    let read = number - u64::from(broken.is_some());
    let is_overcounted = broken.is_some() && is_end(blocks.trailing());
    // What a count promises behind the end may never have been sent.
    let lost = if is_overcounted { 0 } else { header.messages.saturating_sub(read) };
    match (cut, broken) {
        (Some((kept, original)), broken) => {
            let at = broken.map_or(*place, |(at, _)| at);
            let trouble = Trouble::CutPacket { kept, original, error: broken.map(|(_, error)| error) };
            visitor.visit(&at, Item::Trouble(&trouble, &[]))?;
        }
        (None, Some((at, error))) => {
            visitor.visit(&at, Item::Trouble(&Trouble::Framing { error, lost }, &[]))?;
        }
        (None, None) => {}
    }
    ControlFlow::Continue(is_overcounted.then_some(read))
}

/// The source of a SoupBinTCP packet.
struct Envelope {
    channel: ChannelIdentity,
    addresses: Option<(SocketAddr, SocketAddr)>,
    vlan: Option<u16>,
    application: Option<Application>,
}

/// Shows one SoupBinTCP packet, with its length before it.
fn soup_packet(
    place: &Place,
    envelope: &Envelope,
    packet: &[u8],
    next_sequence: &mut Option<u64>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    let (payload, is_sequenced) = match soupbintcp::Message::decode(packet) {
        Ok(soupbintcp::Message::SequencedData(data)) => (Some(data.message()), true),
        Ok(soupbintcp::Message::UnsequencedData(data)) => (Some(data.message()), false),
        Ok(soupbintcp::Message::LoginAccepted(login)) => {
            *next_sequence = login.sequence_number().value();
            (None, false)
        }
        _ => (None, false),
    };
    let sequence = if is_sequenced { *next_sequence } else { None };
    let header = Header {
        schema: &soupbintcp::SCHEMA,
        decoded: soupbintcp::SCHEMA.decode(packet),
        channel: envelope.channel,
        publisher: None,
        addresses: envelope.addresses,
        vlan: envelope.vlan,
        first_sequence: sequence,
        messages: u64::from(payload.is_some()),
        is_end_of_session: matches!(
            soupbintcp::Message::decode(packet),
            Ok(soupbintcp::Message::EndOfSession(_))
        ),
        arrival: Arrival::IN_ORDER,
    };
    visitor.visit(place, Item::Header(header))?;
    let Some(bytes) = payload else { return ControlFlow::Continue(()) };
    if is_sequenced {
        *next_sequence = next_sequence.and_then(|number| number.checked_add(1));
    }
    let place = Place { offset: place.offset + 3, ..*place };
    // Unsequenced messages of clients are orders, not market data.
    let market = envelope.application.filter(|_| is_sequenced).map(|application| {
        // The end of a snapshot is in none of the protocols of its messages.
        let is_end = glimpse50::Message::decode(bytes).is_ok();
        if is_end { &glimpse50::SCHEMA } else { application.spec().schema }
    });
    let within = if is_sequenced { "SequencedData" } else { "UnsequencedData" };
    let is_read = |schema: &&'static Schema| schema.decode(bytes).error.is_none();
    match market.filter(is_read).or_else(|| carried_by_soup(within, bytes)).or(market) {
        Some(schema) => {
            let message = Message {
                schema,
                decoded: schema.decode(bytes),
                channel: envelope.channel,
                sequence,
                is_repeated: false,
                is_refused: false,
                is_cut: false,
            };
            visitor.visit(&place, Item::Message(message))
        }
        None => {
            let trouble = Trouble::UnknownApplication { bytes: bytes.len() };
            visitor.visit(&place, Item::Trouble(&trouble, bytes))
        }
    }
}

/// The reassembler's reports of a TCP stream.
fn stream_event(
    connections: &mut HashMap<Flow, Connection>,
    streams: ReadStreams,
    event: StreamEvent<'_>,
    place: &Place,
    vlan: Option<u16>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    match event {
        StreamEvent::Opened { flow, .. } => {
            let peer = connections.get(&reverse(flow)).and_then(Connection::session);
            connections.insert(flow, Connection { peer, ..Connection::default() });
            ControlFlow::Continue(())
        }
        StreamEvent::Bytes { flow, bytes, .. } => {
            let connection = connections.entry(flow).or_default();
            connection.place = Some(*place);
            let was_known = connection.session.is_some();
            let shown = stream_bytes(connection, streams, flow, bytes, place, vlan, visitor);
            if let Some(session) = connection.session().filter(|_| !was_known)
                && let Some(other) = connections.get_mut(&reverse(flow))
            {
                other.peer = Some(session);
            }
            shown
        }
        StreamEvent::Hole { flow, lost, .. } => {
            let connection = connections.entry(flow).or_default();
            let held = connection.place.unwrap_or(*place);
            show_unrecognised(connection, streams, flow, &held, vlan, visitor)?;
            connection.rest.clear();
            connection.is_given_up = !connection.is_fix;
            visitor.visit(place, Item::Trouble(&Trouble::StreamHole { lost }, &[]))
        }
        StreamEvent::Closed { flow, .. } => {
            let mut connection = connections.remove(&flow).unwrap_or_default();
            // Not that of the segment that closes the connection, which may have no bytes.
            let place = &connection.place.unwrap_or(*place);
            show_unrecognised(&mut connection, streams, flow, place, vlan, visitor)?;
            let rest = connection.rest;
            if rest.is_empty() {
                return ControlFlow::Continue(());
            }
            let trouble = Trouble::StreamCut { bytes: rest.len() };
            visitor.visit(place, Item::Trouble(&trouble, fix::without_secrets(&rest)))
        }
    }
}

/// The other direction.
const fn reverse(flow: Flow) -> Flow {
    Flow { source: flow.destination, destination: flow.source }
}

/// Shows what waited for more bytes to say of which protocol it is, and has no more.
fn show_unrecognised(
    connection: &mut Connection,
    streams: ReadStreams,
    flow: Flow,
    place: &Place,
    vlan: Option<u16>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    if connection.is_recognised || connection.is_given_up || connection.rest.is_empty() {
        return ControlFlow::Continue(());
    }
    let stream = std::mem::take(&mut connection.rest);
    let start = match streams {
        ReadStreams::Recognised(expected) => sessions::start(&stream, connection.peer.or(expected), true),
        ReadStreams::Soup(_) | ReadStreams::Session(_) => Start::No,
    };
    match start {
        Start::Found(session) => {
            connection.recognise(session);
            session_packets(connection, session, flow, &stream, place, vlan, visitor)
        }
        Start::Doubt(protocols) => in_doubt(flow, protocols, &stream, place, visitor),
        Start::Wait | Start::No => {
            let trouble = unknown_stream(flow, stream.len());
            visitor.visit(place, Item::Trouble(&trouble, fix::without_secrets(&stream)))
        }
    }
}

/// Reports a stream that may be of several protocols.
fn in_doubt(
    flow: Flow,
    protocols: Vec<&'static str>,
    stream: &[u8],
    place: &Place,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    let Flow { source, destination } = flow;
    let (is_stream, bytes) = (true, stream.len());
    let trouble = Trouble::InDoubt { source, destination, is_stream, bytes, protocols, is_heartbeat: false };
    visitor.visit(place, Item::Trouble(&trouble, stream))
}

const fn unknown_stream(flow: Flow, bytes: usize) -> Trouble {
    Trouble::UnknownProtocol { source: flow.source, destination: flow.destination, is_stream: true, bytes }
}

fn stream_bytes(
    connection: &mut Connection,
    streams: ReadStreams,
    flow: Flow,
    bytes: &[u8],
    place: &Place,
    vlan: Option<u16>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    let waiting = connection.rest.len() as u64;
    let joined;
    let stream = if connection.rest.is_empty() {
        bytes
    } else {
        connection.rest.extend_from_slice(bytes);
        joined = std::mem::take(&mut connection.rest);
        &joined
    };
    // The start may lie in an earlier segment: then the place is that of this one's payload.
    let at = Place { offset: place.offset.saturating_sub(waiting), ..*place };
    if !connection.is_recognised && !connection.is_given_up {
        match streams {
            ReadStreams::Recognised(expected) => {
                let started = stream.len().min(fix::START.len());
                if stream.get(..started) == fix::START.get(..started) {
                    connection.is_fix = started == fix::START.len();
                    connection.is_recognised = connection.is_fix;
                    if !connection.is_fix {
                        connection.rest = stream.to_vec();
                        return ControlFlow::Continue(());
                    }
                } else {
                    match sessions::start(stream, connection.peer.or(expected), false) {
                        Start::Found(session) => connection.recognise(session),
                        // A whole packet of SoupBinTCP is the start of no session's.
                        Start::Wait if !is_soup(stream) => {
                            connection.place = Some(at);
                            connection.rest = stream.to_vec();
                            return ControlFlow::Continue(());
                        }
                        Start::Doubt(protocols) => {
                            connection.is_given_up = true;
                            return in_doubt(flow, protocols, stream, place, visitor);
                        }
                        Start::Wait | Start::No => {}
                    }
                }
            }
            ReadStreams::Session(session) => connection.recognise(session),
            ReadStreams::Soup(application) => {
                connection.is_recognised = true;
                connection.application = Some(application);
            }
        }
    }
    if connection.is_fix {
        return fix_messages(connection, flow, stream, &at, vlan, visitor);
    }
    if let Some((session, _)) = connection.session.filter(|_| !connection.is_given_up) {
        return session_packets(connection, session, flow, stream, &at, vlan, visitor);
    }
    if !connection.is_recognised && !connection.is_given_up {
        if recognise::is_start_cut(stream) {
            connection.rest = stream.to_vec();
            return ControlFlow::Continue(());
        }
        if recognise::soup_stream(stream) {
            connection.is_recognised = true;
            connection.application = Some(Application::OF_STREAMS);
        } else {
            connection.is_recognised = is_soup(stream);
            connection.is_given_up = !connection.is_recognised;
        }
    }
    if connection.is_given_up {
        return visitor.visit(place, Item::Trouble(&unknown_stream(flow, stream.len()), stream));
    }
    let envelope = Envelope {
        channel: ChannelIdentity::SoupBinTcp { source: flow.source, destination: flow.destination },
        addresses: Some((flow.source, flow.destination)),
        vlan,
        application: connection.application,
    };
    let mut packets = soupbintcp::Packets::new(stream);
    loop {
        // The start of the first packet may lie in an earlier segment: then the place is that of this one's payload.
        let offset = place.offset + (packets.offset() as u64).saturating_sub(waiting);
        let Some(Ok(packet)) = packets.next() else { break };
        let at = Place { offset, ..*place };
        soup_packet(&at, &envelope, packet, &mut connection.next_sequence, visitor)?;
    }
    connection.rest = packets.rest().to_vec();
    ControlFlow::Continue(())
}

/// Shows the messages of a FIX stream, and what is garbled between them.
fn fix_messages(
    connection: &mut Connection,
    flow: Flow,
    stream: &[u8],
    place: &Place,
    vlan: Option<u16>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    let channel = ChannelIdentity::Stream { source: flow.source, destination: flow.destination };
    let mut shown = ControlFlow::Continue(());
    let used = fix::messages(stream, |at, bytes, why| {
        let at = Place { offset: place.offset + at as u64, ..*place };
        let addresses = Some((flow.source, flow.destination));
        shown = match why {
            None => visitor.visit(&at, Item::Fix(FixMessage { bytes, channel, addresses, vlan })),
            Some(why) => {
                let trouble = Trouble::Fix(FixFault::Garbled(why));
                visitor.visit(&at, Item::Trouble(&trouble, fix::without_secrets(bytes)))
            }
        };
        shown.is_continue()
    });
    connection.rest = stream.get(used..).unwrap_or_default().to_vec();
    shown
}

/// Shows the messages of a log's next line; `false` at its end.
fn log_line(file: usize, reader: &mut LogReader, visitor: &mut Noticing<'_>) -> ControlFlow<(), bool> {
    let channel = ChannelIdentity::File { file: u16::try_from(file).unwrap_or(u16::MAX) };
    let (mut shown, mut number) = (ControlFlow::Continue(()), reader.number);
    let is_line = reader.next_line(|offset, bytes, fault| {
        if shown.is_break() {
            return;
        }
        number += 1;
        let place = Place { file, number, offset, time: None };
        shown = match fault {
            None => {
                visitor.visit(&place, Item::Fix(FixMessage { bytes, channel, addresses: None, vlan: None }))
            }
            Some(fault) => {
                let bytes = fix::without_secrets(bytes);
                visitor.visit(&place, Item::Trouble(&Trouble::Fix(fault), bytes))
            }
        };
    });
    reader.number = number;
    match shown {
        ControlFlow::Continue(()) => ControlFlow::Continue(is_line),
        ControlFlow::Break(()) => ControlFlow::Break(()),
    }
}

/// Shows the packets of a session, and the messages in them. After bytes that start no packet the stream is given up.
fn session_packets(
    connection: &mut Connection,
    session: Session,
    flow: Flow,
    stream: &[u8],
    place: &Place,
    vlan: Option<u16>,
    visitor: &mut Noticing<'_>,
) -> ControlFlow<()> {
    let mut rest = stream;
    while !rest.is_empty() {
        if !session.may_start(rest) {
            connection.is_given_up = true;
            return visitor.visit(place, Item::Trouble(&unknown_stream(flow, rest.len()), rest));
        }
        let bytes = session.framing.message_bytes(rest);
        let Some((packet, after)) = bytes.and_then(|bytes| rest.split_at_checked(bytes)) else { break };
        let at = Place { offset: place.offset + (stream.len() - rest.len()) as u64, ..*place };
        rest = after;
        let header = Header {
            schema: session.schema,
            decoded: session.schema.decode(packet),
            channel: ChannelIdentity::Stream { source: flow.source, destination: flow.destination },
            publisher: None,
            addresses: Some((flow.source, flow.destination)),
            vlan,
            first_sequence: None,
            messages: 1,
            is_end_of_session: false,
            arrival: Arrival::IN_ORDER,
        };
        let message = |schema: &'static Schema, bytes, sequence| Message {
            schema,
            decoded: schema.decode(bytes),
            channel: header.channel,
            sequence,
            is_repeated: false,
            is_refused: false,
            is_cut: false,
        };
        match session.form {
            Form::Message(structure) => {
                let header = Header { decoded: structure.decode(packet), ..header };
                visitor.visit(&at, Item::Header(header))?;
                visitor.visit(&at, Item::Message(message(session.schema, packet, None)))?;
            }
            Form::Carrier { market, .. } => {
                let number = connection.session.as_mut().and_then(|(_, numbers)| numbers.take(packet));
                let payload = session.payload(packet);
                let messages = u64::from(payload.is_some());
                visitor.visit(&at, Item::Header(Header { messages, first_sequence: number, ..header }))?;
                if let Some(bytes) = payload {
                    let before = (packet.len() - bytes.len()) as u64;
                    let at = Place { offset: at.offset + before, ..at };
                    visitor.visit(&at, Item::Message(message(market, bytes, number)))?;
                }
            }
            Form::Packets { transport, .. } => for_transport!(transport, T => match T::packet(packet) {
                Ok(found) => {
                    let tapeworks_session::Header { first, count, .. } = found.header;
                    let header = Header {
                        schema: T::SCHEMA,
                        decoded: T::fields(packet),
                        // Messages of the session have no numbers.
                        first_sequence: (first > 0).then_some(first),
                        messages: count,
                        ..header
                    };
                    let schema_of = |message: &[u8]| session.schema_of(message);
                    let (is_end, length) = (<[u8]>::is_empty, found.header_bytes as u64);
                    blocks(&at, schema_of, is_end, &header, length, found.blocks, packet, None, visitor)?;
                }
                Err(error) => visitor.visit(&at, Item::Trouble(&Trouble::Transport(error), packet))?,
            }),
        }
    }
    connection.rest = rest.to_vec();
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests;
