//! Passes what the packet walk delivers to a visitor, item by item.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use tapeworks_capture::CapturedDatagram;
use tapeworks_capture::net::{self, Datagram, HeaderError};
use tapeworks_feed::channels::Sequenced;
use tapeworks_feed::recognise;
use tapeworks_feed::router::RoutedChannel;
use tapeworks_feed::sessions::{Form, Numbers, Session};
use tapeworks_feed::walk::streams::{Part, Protocol, ReadStreams, Stream};
use tapeworks_feed::walk::{Delivery, Opening, Walk, WalkSink};
use tapeworks_feed::{Application, ChannelIdentity, FileFormat, Packet, Place};
use tapeworks_follow::sequence::{Arrival, unread};
use tapeworks_market::{Line, Publisher};
use tapeworks_session::{Transport, for_transport};
use tapeworks_time::Nanos;
use tapeworks_wire::framing::{Blocks, FramingError, LengthPrefix};
use tapeworks_wire::nasdaq::{glimpse50, soupbintcp};
use tapeworks_wire::schema::Schema;
use tapeworks_wire::{DecodeError, Role};

use super::{Header, Item, Message, Noticing, Trouble};
use crate::fix::{FixFault, FixMessage, without_secrets};
use crate::sessions::ReadAs;

/// An analyser's state of a channel.
#[derive(Debug)]
pub(crate) struct Channel {
    sequenced: Sequenced,
    publisher: Publisher,
    has_messages: bool,
}

impl Channel {
    pub(crate) fn new(opening: &Opening) -> Self {
        let sequenced = Sequenced::new(opening.identity, opening.application);
        Self { sequenced, publisher: opening.publisher, has_messages: false }
    }

    pub(crate) fn rename(&mut self, application: Application, publisher: Publisher) {
        self.sequenced.rename(application);
        self.publisher = publisher;
    }

    /// Records a packet with `count` messages.
    pub(crate) const fn takes(&mut self, count: u64) {
        self.has_messages |= count > 0;
    }
}

impl AsRef<Sequenced> for Channel {
    fn as_ref(&self) -> &Sequenced {
        &self.sequenced
    }
}

impl AsMut<Sequenced> for Channel {
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

    /// Always line A: each packet is shown with its destination.
    fn line_of(&mut self, _destination: SocketAddr) -> Line {
        Line::A
    }
}

/// Sequence numbers of one direction of a TCP connection.
#[derive(Debug, Default)]
pub(super) struct Direction {
    session: Numbers,
    soup: Option<u64>,
}

/// Position in a file without packets.
#[derive(Debug, Default)]
struct FramedFile {
    frames: u64,
    next_sequence: Option<u64>,
}

/// Finds the protocols and messages in packets and frames.
pub(super) struct Analyser {
    /// The feed set by the user.
    forced: Option<Application>,
    walk: Walk<Channel, Direction>,
    framed: HashMap<u16, FramedFile>,
    /// A SoupBinTCP packet, prefixed with its length.
    scratch: Vec<u8>,
}

impl Analyser {
    pub(super) fn new(read_as: Option<ReadAs>) -> Self {
        let streams = match (read_as, read_as.and_then(ReadAs::session)) {
            (Some(ReadAs::Session(session)), _) => ReadStreams::Session(session),
            (Some(ReadAs::Feed(application)), None) => ReadStreams::Soup(application),
            (Some(ReadAs::Feed(_)) | None, expected) => ReadStreams::Recognised(expected),
        };
        let forced = read_as.and_then(ReadAs::feed);
        Self { forced, walk: Walk::new(forced, None, streams), framed: HashMap::new(), scratch: Vec::new() }
    }

    /// Visits the items of a captured packet.
    pub(super) fn packet(
        &mut self,
        file: u16,
        CapturedDatagram { packet, datagram }: CapturedDatagram<'_>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        if !datagram.as_ref().is_err_and(HeaderError::is_of_earlier) {
            visitor.visitor.packet(file, &packet)?;
        }
        let received = Nanos(packet.timestamp_ns);
        let place = Place { file, number: packet.number, offset: packet.offset, time: Some(received) };
        let datagram = match datagram {
            Ok(datagram) => datagram,
            // Kept for reassembly.
            Err(HeaderError::Fragment { .. }) => return ControlFlow::Continue(()),
            Err(error) if error.is_malformed() => {
                return visitor.visit(&place, Item::Trouble(&Trouble::Headers(error), packet.bytes));
            }
            Err(error) => {
                return visitor.visit(&place, Item::Trouble(&Trouble::NotOurs(error), packet.bytes));
            }
        };
        let cut = packet.is_cut().then_some((packet.bytes.len(), packet.original_length));
        let offset = packet.offset + datagram.payload_offset as u64;
        // In a truncated TCP segment, only padding may be missing.
        let is_cut = cut.is_some() && matches!(datagram.transport, net::Transport::Udp);
        let datagram = Datagram { truncated: datagram.truncated || is_cut, ..datagram };
        self.datagram(&Packet { file, number: packet.number, offset, received, datagram }, cut, visitor)
    }

    /// Visits the items of a datagram or segment. `cut`: bytes kept and original length, if the packet is truncated.
    pub(super) fn datagram(
        &mut self,
        packet: &Packet<'_>,
        cut: Option<(usize, u32)>,
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        if let (Some((kept, original)), net::Transport::Tcp(_)) = (cut, packet.datagram.transport) {
            let trouble = Trouble::CutPacket { kept, original, error: None };
            visitor.visit(&packet.into(), Item::Trouble(&trouble, packet.datagram.payload))?;
        }
        let mut showing = Showing { visitor, cut, flow: ControlFlow::Continue(()) };
        self.walk.packet(packet, &mut showing);
        showing.flow
    }

    /// Returns the destinations whose protocol was inferred.
    pub(super) fn inferred(&self) -> impl Iterator<Item = (SocketAddr, &'static str)> {
        self.walk.inferred().map(|(destination, application)| (destination, application.spec().name))
    }

    /// Handles the end of a file, or of all captures: visits the packets and bytes that were still waiting.
    pub(super) fn end(&mut self, visitor: &mut Noticing<'_>) -> ControlFlow<()> {
        let mut showing = Showing { visitor, cut: None, flow: ControlFlow::Continue(()) };
        self.walk.finish(&mut showing);
        showing.flow
    }

    /// Visits a message of a file without packets, or a SoupBinTCP packet without its length.
    pub(super) fn frame(
        &mut self,
        file: u16,
        format: FileFormat,
        offset: u64,
        bytes: &[u8],
        visitor: &mut Noticing<'_>,
    ) -> ControlFlow<()> {
        let framed = self.framed.entry(file).or_default();
        framed.frames += 1;
        let place = Place { file, number: framed.frames, offset, time: None };
        let channel = ChannelIdentity::File { file };
        let application = self.forced.unwrap_or(Application::OF_STREAMS);
        let mut showing = Showing { visitor, cut: None, flow: ControlFlow::Continue(()) };
        match format {
            FileFormat::LengthPrefixed => {
                showing.message(&place, application.spec().schema, bytes, channel, None);
            }
            FileFormat::SoupBinTcp => {
                self.scratch.clear();
                // A frame's length prefix has two bytes, so this fits.
                let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                self.scratch.extend_from_slice(&length.to_be_bytes());
                self.scratch.extend_from_slice(bytes);
                let place = Place { offset: offset.saturating_sub(2), ..place };
                let of = Carrier { channel, addresses: None, vlan: None };
                showing.soup_packet(&place, &of, Some(application), &self.scratch, &mut framed.next_sequence);
            }
        }
        showing.flow
    }
}

/// Returns a channel's publisher, if its bytes or its destination determine it.
pub(crate) fn publisher_of(application: Application, destination: SocketAddr) -> Option<Publisher> {
    let spec = application.spec();
    let destination = Some(destination);
    (!spec.is_presumed(None, destination)).then(|| spec.publisher(None, destination))
}

/// Returns the schema of a message in a SoupBinTCP stream whose own messages have this name, if the feeds have not recognized the
/// stream: the first schema that can decode the message.
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

/// What carries the packets of a stream or file.
#[derive(Clone, Copy)]
struct Carrier {
    channel: ChannelIdentity,
    addresses: Option<(SocketAddr, SocketAddr)>,
    vlan: Option<u16>,
}

impl Carrier {
    /// Returns the header of one of its packets, with this schema.
    fn header<'a>(&self, schema: &'static Schema, packet: &'a [u8]) -> Header<'a> {
        Header {
            schema,
            decoded: schema.decode(packet),
            channel: self.channel,
            publisher: None,
            addresses: self.addresses,
            vlan: self.vlan,
            first_sequence: None,
            messages: 1,
            is_end_of_session: false,
            arrival: Arrival::IN_ORDER,
        }
    }
}

/// Passes what the walk delivers to a visitor, until the visitor stops.
struct Showing<'a, 'v> {
    visitor: &'a mut Noticing<'v>,
    /// Bytes kept and original length of the current packet, if it is truncated.
    cut: Option<(usize, u32)>,
    flow: ControlFlow<()>,
}

impl WalkSink for Showing<'_, '_> {
    type Channel = Channel;
    type Direction = Direction;

    fn open(&mut self, opening: &Opening, _before: Option<&Channel>) -> Channel {
        Channel::new(opening)
    }

    fn rename(
        &mut self,
        channel: &mut Channel,
        application: Application,
        publisher: Publisher,
        _received: Nanos,
    ) {
        channel.rename(application, publisher);
    }

    fn deliver<T: Transport>(&mut self, channel: &mut Channel, delivery: Delivery<'_, '_, T::Prefix>) -> u64 {
        let Delivery { packet, read, count, arrival, .. } = delivery;
        channel.takes(count);
        let arrival = arrival.unwrap_or(Arrival::IN_ORDER);
        self.packet::<T>(channel, packet, read, arrival).map_or(0, |whole| unread(count, arrival.skip, whole))
    }

    fn skip<T: Transport>(
        &mut self,
        channel: &mut Channel,
        packet: &Packet<'_>,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        arrival: Arrival,
    ) {
        self.packet::<T>(channel, packet, read, arrival);
    }

    fn unrecognised(&mut self, packet: &Packet<'_>, is_heartbeat: bool, _is_first: bool) {
        let Datagram { source, destination, payload, .. } = packet.datagram;
        let (is_stream, bytes, protocols) = (false, payload.len(), recognise::possible(payload));
        let trouble = if protocols.is_empty() {
            Trouble::UnknownProtocol { source, destination, is_stream, bytes }
        } else {
            Trouble::InDoubt { source, destination, is_stream, bytes, protocols, is_heartbeat }
        };
        self.put(&packet.into(), Item::Trouble(&trouble, payload));
    }

    fn bad_header(&mut self, packet: &Packet<'_>, error: DecodeError) {
        self.put(&packet.into(), Item::Trouble(&Trouble::Transport(error), packet.datagram.payload));
    }

    fn stream(
        &mut self,
        _channels: &mut tapeworks_feed::channels::Channels<Channel>,
        stream: &mut Stream<'_, Direction>,
        part: Part<'_>,
    ) {
        let (source, destination) = (stream.flow.source, stream.flow.destination);
        let place = &stream.place;
        let is_stream = true;
        let of = |channel| Carrier { channel, addresses: Some((source, destination)), vlan: stream.vlan };
        let channel = ChannelIdentity::Stream { source, destination };
        match part {
            Part::Packet(Protocol::Fix, bytes) => {
                let Carrier { channel, addresses, vlan } = of(channel);
                self.put(place, Item::Fix(FixMessage { bytes, channel, addresses, vlan }));
            }
            Part::Packet(Protocol::Soup(application), packet) => {
                let of = of(ChannelIdentity::SoupBinTcp { source, destination });
                self.soup_packet(place, &of, application, packet, &mut stream.own.soup);
            }
            Part::Packet(Protocol::Session(session), packet) => {
                self.session_packet(place, &of(channel), session, packet, &mut stream.own.session);
            }
            Part::Garbled(bytes, why) => {
                let trouble = Trouble::Fix(FixFault::Garbled(why));
                self.put(place, Item::Trouble(&trouble, without_secrets(bytes)));
            }
            Part::Unread(bytes) => {
                let trouble = Trouble::UnknownProtocol { source, destination, is_stream, bytes: bytes.len() };
                self.put(place, Item::Trouble(&trouble, without_secrets(bytes)));
            }
            Part::Doubt(protocols, stream) => {
                let (bytes, is_heartbeat) = (stream.len(), false);
                let trouble =
                    Trouble::InDoubt { source, destination, is_stream, bytes, protocols, is_heartbeat };
                self.put(place, Item::Trouble(&trouble, stream));
            }
            Part::Cut(_, rest) => {
                let trouble = Trouble::StreamCut { bytes: rest.len() };
                self.put(place, Item::Trouble(&trouble, without_secrets(rest)));
            }
            Part::Hole { lost, .. } => self.put(place, Item::Trouble(&Trouble::StreamHole { lost }, &[])),
        }
    }
}

impl Showing<'_, '_> {
    fn put(&mut self, place: &Place, item: Item<'_>) {
        if self.flow.is_continue() {
            self.flow = self.visitor.visit(place, item);
        }
    }

    /// Visits a message that belongs to no numbered packet.
    fn message(
        &mut self,
        place: &Place,
        schema: &'static Schema,
        bytes: &[u8],
        channel: ChannelIdentity,
        sequence: Option<u64>,
    ) {
        let (is_repeated, is_refused, is_cut) = (false, false, false);
        let decoded = schema.decode(bytes);
        let message = Message { schema, decoded, channel, sequence, is_repeated, is_refused, is_cut };
        self.put(place, Item::Message(message));
    }

    /// Visits a channel's packet. Returns the number of complete messages in it, if its header promises more.
    fn packet<T: Transport>(
        &mut self,
        channel: &Channel,
        packet: &Packet<'_>,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        arrival: Arrival,
    ) -> Option<u64> {
        let Datagram { source, destination, vlan, payload, truncated, .. } = packet.datagram;
        let application = channel.sequenced.application();
        let tapeworks_session::Header { first, count, is_end_of_session, .. } = read.header;
        let header = Header {
            schema: T::SCHEMA,
            decoded: T::fields(payload),
            channel: *channel.sequenced.identity(),
            publisher: publisher_of(application, destination),
            addresses: Some((source, destination)),
            vlan,
            first_sequence: Some(first),
            messages: count,
            is_end_of_session,
            arrival,
        };
        let schema_of = |_: &[u8]| application.spec().schema;
        let is_end = |behind: &[u8]| !truncated && T::is_end(behind);
        let cut = self.cut.filter(|_| truncated);
        let place = packet.into();
        self.blocks(&place, schema_of, is_end, &header, read.header_bytes, read.blocks.clone(), payload, cut)
    }

    /// Visits a packet's header and messages. `is_end`: whether a packet may end with the bytes after its messages. Returns the number
    /// of complete messages in it, if its header promises more.
    #[expect(clippy::too_many_arguments, reason = "two calls; each argument is of another kind")]
    fn blocks<Prefix: LengthPrefix>(
        &mut self,
        place: &Place,
        schema_of: impl Fn(&[u8]) -> &'static Schema,
        is_end: impl Fn(&[u8]) -> bool,
        header: &Header<'_>,
        header_bytes: usize,
        mut blocks: Blocks<'_, Prefix>,
        payload: &[u8],
        cut: Option<(usize, u32)>,
    ) -> Option<u64> {
        self.put(place, Item::Header(*header));
        let mut whole = 0;
        let mut broken = None;
        let prefix = if Prefix::IS_PART { 0 } else { Prefix::BYTES };
        loop {
            let start = header_bytes + blocks.offset() + prefix;
            let at = place.plus(start as u64);
            let Some(block) = blocks.next() else { break };
            let (bytes, is_cut) = match block {
                Ok(bytes) => (bytes, false),
                Err(error) => {
                    broken = Some((at, error));
                    let FramingError::Cut { got: 3.., .. } = error else { break };
                    (payload.get(start..).unwrap_or_default(), true)
                }
            };
            let schema = schema_of(bytes);
            let message = Message {
                schema,
                decoded: schema.decode(bytes),
                channel: header.channel,
                sequence: header.first_sequence.map(|first| first.saturating_add(whole)),
                is_repeated: whole < header.arrival.skip && !header.arrival.is_refused(),
                is_refused: header.arrival.is_refused(),
                is_cut,
            };
            self.put(&at, Item::Message(message));
            if is_cut {
                break;
            }
            whole += 1;
        }
        let is_overcounted = broken.is_some() && is_end(blocks.trailing());
        // Messages that an excessive count promises after the end may never have been sent.
        let lost = if is_overcounted { 0 } else { header.messages.saturating_sub(whole) };
        match (cut, broken) {
            (Some((kept, original)), broken) => {
                let at = broken.map_or(*place, |(at, _)| at);
                let trouble = Trouble::CutPacket { kept, original, error: broken.map(|(_, error)| error) };
                self.put(&at, Item::Trouble(&trouble, &[]));
            }
            (None, Some((at, error))) => self.put(&at, Item::Trouble(&Trouble::Framing { error, lost }, &[])),
            (None, None) => {}
        }
        broken.map(|_| whole)
    }

    /// Visits a SoupBinTCP packet, prefixed with its length.
    fn soup_packet(
        &mut self,
        place: &Place,
        of: &Carrier,
        application: Option<Application>,
        packet: &[u8],
        next_sequence: &mut Option<u64>,
    ) {
        let decoded = soupbintcp::Message::decode(packet);
        let (payload, is_sequenced) = match decoded {
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
            first_sequence: sequence,
            messages: u64::from(payload.is_some()),
            is_end_of_session: matches!(decoded, Ok(soupbintcp::Message::EndOfSession(_))),
            ..of.header(&soupbintcp::SCHEMA, packet)
        };
        self.put(place, Item::Header(header));
        let Some(bytes) = payload else { return };
        if is_sequenced {
            *next_sequence = next_sequence.and_then(|number| number.checked_add(1));
        }
        let place = place.plus(3);
        // Unsequenced messages come from clients and are orders, not market data.
        let market = application.filter(|_| is_sequenced).map(|application| {
            // The end-of-snapshot message belongs to none of the protocols that a snapshot carries.
            let is_end = glimpse50::Message::decode(bytes).is_ok();
            if is_end { &glimpse50::SCHEMA } else { application.spec().schema }
        });
        let within = if is_sequenced { "SequencedData" } else { "UnsequencedData" };
        let is_read = |schema: &&'static Schema| schema.decode(bytes).error.is_none();
        match market.filter(is_read).or_else(|| carried_by_soup(within, bytes)).or(market) {
            Some(schema) => self.message(&place, schema, bytes, of.channel, sequence),
            None => {
                let trouble = Trouble::UnknownApplication { bytes: bytes.len() };
                self.put(&place, Item::Trouble(&trouble, bytes));
            }
        }
    }

    /// Visits a session's packet and the messages in it.
    fn session_packet(
        &mut self,
        place: &Place,
        of: &Carrier,
        session: Session,
        packet: &[u8],
        numbers: &mut Numbers,
    ) {
        let header = of.header(session.schema, packet);
        match session.form {
            Form::Message(structure) => {
                self.put(place, Item::Header(Header { decoded: structure.decode(packet), ..header }));
                self.message(place, session.schema, packet, of.channel, None);
            }
            Form::Carrier { market, .. } => {
                let number = numbers.take(packet);
                let payload = session.payload(packet);
                let messages = u64::from(payload.is_some());
                self.put(place, Item::Header(Header { messages, first_sequence: number, ..header }));
                if let Some(bytes) = payload {
                    let place = place.plus((packet.len() - bytes.len()) as u64);
                    self.message(&place, market, bytes, of.channel, number);
                }
            }
            Form::Packets { transport, .. } => for_transport!(transport, T => match T::packet(packet) {
                Ok(found) => {
                    let tapeworks_session::Header { first, count, .. } = found.header;
                    let header = Header {
                        schema: T::SCHEMA,
                        decoded: T::fields(packet),
                        // Session messages have no numbers.
                        first_sequence: (first > 0).then_some(first),
                        messages: count,
                        ..header
                    };
                    let schema_of = |message: &[u8]| session.schema_of(message);
                    let (is_end, bytes) = (<[u8]>::is_empty, found.header_bytes);
                    self.blocks(place, schema_of, is_end, &header, bytes, found.blocks, packet, None);
                }
                Err(error) => self.put(place, Item::Trouble(&Trouble::Transport(error), packet)),
            }),
        }
    }
}
