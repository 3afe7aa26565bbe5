//! Messages that come without a transport of datagrams: SoupBinTCP connections in a capture, and files of messages.
//!
//! Neither numbers its messages: the login names the first number, and each message has the next. A file or stream names no
//! protocol, so all are of the one feed whose row says so.

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, Line};
use tapeworks_packet::tcp::{Flow, StreamEvent};
use tapeworks_stage::{Sink, Stage};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::FramingError;
use tapeworks_wire::nasdaq::soupbintcp;

use crate::captured::{ChannelIdentity, Frame, Packet};
use crate::normaliser::Context;
use crate::problem::ProblemKind;
use crate::recognise::{self, Framing as FileFormat};
use crate::router::RoutedChannel as _;
use crate::sessions::{self, Start};
use crate::table::Application;

use super::{AnySink, Feed};

/// One direction of a TCP connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The start of an incomplete packet.
    rest: Vec<u8>,
    /// `None`: not recognised yet, or of an unknown protocol.
    channel: Option<usize>,
    skipped: Option<Skipped>,
}

/// Why a direction is skipped.
#[derive(Clone, Copy, Debug)]
enum Skipped {
    /// It is known, and has no market data.
    Session,
    /// It is of an unknown protocol, or behind a gap.
    Unknown,
}

/// The last packet of any stream: the place that problems of streams name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamPlace {
    place: (u16, u64, u64),
    received: Option<Nanos>,
}

impl Feed {
    /// The channel of a stream or file.
    fn admit_stream(&mut self, identity: ChannelIdentity, midnight: Nanos) -> usize {
        let application = Application::OF_STREAMS;
        let publisher = application.spec().publisher(self.options.publisher, None);
        self.admit(identity, application, publisher, midnight)
    }

    /// A segment of a TCP connection: SoupBinTCP or unknown.
    #[cold]
    #[inline(never)]
    pub(super) fn segment_of_stream(&mut self, packet: &Packet<'_>, sink: &mut dyn Sink<Event>) {
        let sink = &mut AnySink(sink);
        self.stream_place = StreamPlace {
            place: (packet.file, packet.number, packet.offset),
            received: Some(packet.received),
        };
        let mut reassembler = std::mem::take(&mut self.reassembler);
        reassembler.push(&packet.datagram, |event| self.stream_event(event, sink));
        self.reassembler = reassembler;
    }

    /// Ends the input: hands on packets and bytes that waited, and reports packets that the end cut. Nothing may come after.
    pub fn finish(&mut self, sink: &mut dyn Sink<Event>) {
        let sink = &mut AnySink(sink);
        self.finish_channels(sink);
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

    fn stream_event(&mut self, event: StreamEvent<'_>, sink: &mut AnySink<'_>) {
        match event {
            StreamEvent::Opened { flow, .. } => {
                self.connections.insert(flow, Connection { rest: Vec::new(), channel: None, skipped: None });
            }
            StreamEvent::Bytes { flow, bytes, .. } => self.stream_bytes(flow, bytes, sink),
            StreamEvent::Hole { flow, lost, .. } => {
                let Some(connection) = self.connections.get_mut(&flow) else { return };
                // Behind a gap the start of the next packet is unknown.
                let skipped = connection.skipped;
                connection.skipped = skipped.or(Some(Skipped::Unknown));
                let rest = std::mem::take(&mut connection.rest);
                let Some(index) = connection.channel else {
                    if skipped.is_none() && !rest.is_empty() {
                        self.end_unrecognised(flow, &rest);
                    }
                    return;
                };
                self.stream_loss(index, ProblemKind::StreamHole { lost }, sink);
            }
            StreamEvent::Closed { flow, .. } => self.close_stream(flow, sink),
        }
    }

    fn close_stream(&mut self, flow: Flow, sink: &mut AnySink<'_>) {
        let Some(connection) = self.connections.remove(&flow) else { return };
        if connection.rest.is_empty() {
            return;
        }
        match connection.channel {
            Some(index) => {
                let needed = recognise::first_packet_bytes(&connection.rest);
                let cut = FramingError::Cut { offset: 0, needed, got: connection.rest.len() };
                self.stream_loss(index, ProblemKind::Framing(cut), sink);
            }
            None => self.end_unrecognised(flow, &connection.rest),
        }
    }

    /// Counts what waited for more bytes, which do not come, to say of which protocol it is.
    fn end_unrecognised(&mut self, flow: Flow, rest: &[u8]) {
        if sessions::start(rest, None, true).is_session() {
            self.skip(Skipped::Session, rest.len());
        } else {
            self.give_up(flow, rest.len());
        }
    }

    /// A stream lost something of unknown content: at least one message.
    fn stream_loss<S: Sink<Event>>(&mut self, index: usize, kind: ProblemKind, sink: &mut S) {
        let StreamPlace { place, received } = self.stream_place;
        self.note_at(place, kind);
        let channel = &mut self.router.channels[index];
        let gap = Gap { first: channel.next_number, count: 1 };
        channel.sequenced.tracker.lose(gap);
        let context =
            Context { received, sequence: channel.next_number, channel: channel.number, line: Line::A };
        channel.put_gap(gap, &context, Nanos(0), sink);
    }

    fn skip(&mut self, why: Skipped, bytes: usize) {
        let count = match why {
            Skipped::Session => &mut self.counters.session_bytes,
            Skipped::Unknown => &mut self.counters.skipped_stream_bytes,
        };
        *count += bytes as u64;
    }

    /// A stream in an unknown protocol.
    fn give_up(&mut self, flow: Flow, bytes: usize) {
        self.counters.unrecognised_packets += 1;
        self.skip(Skipped::Unknown, bytes);
        let (destination, possible) = (flow.destination, Vec::new());
        self.note_at(self.stream_place.place, ProblemKind::UnknownProtocol { destination, possible });
    }

    fn stream_bytes(&mut self, flow: Flow, bytes: &[u8], sink: &mut AnySink<'_>) {
        let Some(mut connection) = self.connections.remove(&flow) else { return };
        if let Some(why) = connection.skipped {
            self.skip(why, bytes.len());
            self.connections.insert(flow, connection);
            return;
        }
        let is_cut = connection.rest.len() + bytes.len() < recognise::first_packet_bytes(&connection.rest);
        if connection.channel.is_some() && is_cut {
            // Of a packet in many segments no byte is copied more than once.
            connection.rest.extend_from_slice(bytes);
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
            let is_soup = recognise::soup_stream(stream);
            let start = if is_soup { Start::No } else { sessions::start(stream, None, false) };
            if !is_soup && recognise::order_entry(stream) || start.is_session() {
                connection.skipped = Some(Skipped::Session);
                self.skip(Skipped::Session, stream.len());
            } else if recognise::is_start_cut(stream) || matches!(start, Start::Wait) {
                connection.rest = stream.to_vec();
            } else if is_soup {
                let identity =
                    ChannelIdentity::SoupBinTcp { source: flow.source, destination: flow.destination };
                let midnight = self.midnight(received);
                let index = self.admit_stream(identity, midnight);
                self.router.channels[index].line_of(flow.destination);
                connection.channel = Some(index);
            } else {
                connection.skipped = Some(Skipped::Unknown);
                self.give_up(flow, stream.len());
            }
        }
        if let Some(index) = connection.channel {
            let mut packets = soupbintcp::Packets::new(stream);
            for soup in packets.by_ref().filter_map(Result::ok) {
                if recognise::is_order_of_stream(soup) {
                    let channel = &mut self.router.channels[index];
                    channel.counters.packets += 1;
                    let is_numbered = soup.get(2) == Some(&soupbintcp::SequencedData::TAG);
                    channel.next_number = channel.next_number.saturating_add(u64::from(is_numbered));
                    self.skip(Skipped::Session, soup.len());
                    continue;
                }
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
        let channel = &mut self.router.channels[index];
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
            // No known feed sends messages like this: it is order entry.
            Some((&soupbintcp::UnsequencedData::TAG, message)) => {
                self.note_at(place, ProblemKind::Unsequenced { bytes: message.len() });
            }
            // Logins and heartbeats of clients, debug packets.
            Some(_) => {}
            None => self.note_at(place, ProblemKind::Message(DecodeError::Empty)),
        }
    }

    /// A message of a file without packets.
    #[inline]
    fn frame<S: Sink<Event>>(&mut self, index: usize, format: FileFormat, frame: &Frame<'_>, sink: &mut S) {
        let channel = &mut self.router.channels[index];
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

    /// The stage that takes the messages of one file without packets. The publisher is that of the options, else the feed's first;
    /// the midnight is that of the options, else `midnight`; without either, times count from the epoch.
    pub fn file(&mut self, file: u16, format: FileFormat, midnight: Option<Nanos>) -> FileFeed<'_> {
        let midnight = self.options.midnight.or(midnight).unwrap_or_default();
        let index = self.admit_stream(ChannelIdentity::File { file }, midnight);
        FileFeed { feed: self, index, format }
    }

    /// Reads a frame of a file without packets to recognise its feed; discards its events.
    pub fn look_at_frame(
        &mut self,
        file: u16,
        format: FileFormat,
        midnight: Option<Nanos>,
        frame: Frame<'_>,
    ) {
        self.file(file, format, midnight).process(&[frame], &mut AnySink(&mut |_| {}));
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
