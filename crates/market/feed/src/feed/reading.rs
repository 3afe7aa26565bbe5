//! Turns a walk's packets and stream parts into events.

use tapeworks_market::event::Gap;
use tapeworks_market::orders::MAX_INSTRUMENTS;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Publisher};
use tapeworks_session::Transport;
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::{FramingError, LengthPrefix};
use tapeworks_wire::nasdaq::soupbintcp;

use crate::captured::{ChannelIdentity, Origin, Packet, Place};
use crate::channel::{Channel, broken};
use crate::channels::Channels;
use crate::normaliser::Context;
use crate::problem::ProblemKind;
use crate::recognise;
use crate::router::RoutedChannel as _;
use crate::table::Application;
use crate::walk::streams::{Part, Protocol, Stream};
use crate::walk::{Delivery, Opening, WalkSink};
use tapeworks_follow::sequence::Arrival;

use super::{AnySink, Shared};

/// Creates events from a walk's packets and streams.
pub(super) struct Reading<'f, S> {
    pub(super) shared: &'f mut Shared,
    pub(super) sink: &'f mut S,
}

/// How a packet arrived.
pub(super) struct Arrived {
    pub(super) origin: Origin,
    pub(super) line: Line,
    /// Number of its messages.
    pub(super) count: u64,
    /// See [`Delivery::arrival`].
    pub(super) arrival: Option<Arrival>,
}

impl Shared {
    /// Reads the messages of a packet. Returns how many messages at its end could not be read.
    #[inline]
    pub(super) fn read<S: Sink<Event>, Prefix: LengthPrefix>(
        &mut self,
        channel: &mut Channel,
        arrived: Arrived,
        read: &tapeworks_session::Packet<'_, Prefix>,
        sink: &mut S,
    ) -> u64 {
        let Arrived { origin, line, count, arrival } = arrived;
        let Self { problems, symbols, .. } = self;
        let (received, sequence) = (origin.place.time, read.header.first);
        let context = Context { received, sequence, channel: channel.number, line };
        channel.counters.packets += 1;
        let skip = match arrival {
            None => 0,
            Some(arrival) => {
                let is_end = read.header.is_end_of_session;
                match channel.arrived(arrival, count, is_end, &context, &origin, problems, sink) {
                    Some(skip) => skip,
                    None => return 0,
                }
            }
        };
        let (blocks, header) = (read.blocks.clone(), read.header_bytes);
        channel.messages(blocks, header, count, skip, context, &origin, problems, symbols, sink)
    }
}

/// The feed's state for one direction of a TCP connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// The channel of its messages.
    channel: Option<usize>,
    /// Whether the direction is recognised and carries no market data.
    is_session: bool,
    /// Whether its unreadable bytes have been reported.
    is_noted: bool,
}

impl<S: Sink<Event>> WalkSink for Reading<'_, S> {
    type Channel = Channel;
    type Direction = Connection;

    fn open(&mut self, opening: &Opening, before: Option<&Channel>) -> Channel {
        let Opening { identity, application, publisher, received, number } = *opening;
        let options = &self.shared.options;
        let start = options.start(publisher, options.midnight_at(Some(received)));
        let mut channel = Channel::new(identity, application, number as u16, &start);
        if let Some(before) = before {
            channel.takes_lines_of(before);
        }
        channel
    }

    fn rename(
        &mut self,
        channel: &mut Channel,
        application: Application,
        publisher: Publisher,
        received: Nanos,
    ) {
        let options = &self.shared.options;
        channel.rename(application, &options.start(publisher, options.midnight_at(Some(received))));
    }

    #[inline]
    fn deliver<T: Transport>(&mut self, channel: &mut Channel, delivery: Delivery<'_, '_, T::Prefix>) -> u64 {
        let Delivery { packet, line, read, count, arrival } = delivery;
        let arrived = Arrived { origin: packet.into(), line, count, arrival };
        let mut has = channel.has.take();
        let sink = &mut Noting { has: &mut has, sink: &mut *self.sink };
        let unread = self.shared.read(channel, arrived, read, sink);
        channel.has = has;
        unread
    }

    fn skip<T: Transport>(
        &mut self,
        channel: &mut Channel,
        packet: &Packet<'_>,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        arrival: Arrival,
    ) {
        let line = channel.line_of(packet.datagram.destination);
        channel.counters.packets += 1;
        if let Some(refusal) = arrival.refusal {
            self.shared.note(packet, ProblemKind::Refused { first: read.header.first, refusal });
        } else {
            channel.counters.duplicate_packets[usize::from(line == Line::B)] += 1;
        }
    }

    #[cold]
    fn lose(&mut self, channel: &mut Channel, packet: &Packet<'_>, line: Line, first: u64, gap: Gap) {
        // The message before the gap, if it is in this packet.
        let sequence = first.max(gap.first.saturating_sub(1));
        let received = Some(packet.received);
        let context = Context { received, sequence, channel: channel.number, line };
        channel.put_gap(gap, &context, packet.received, self.sink);
    }

    /// Empties the books of the old channel.
    fn restart(&mut self, channels: &mut Channels<Channel>, from: usize, to: usize, now: Nanos) {
        let (old, new) = (&channels[from], &channels[to]);
        let (publisher, application) = (old.publisher(), old.application());
        let is_alone = !channels.iter().enumerate().any(|(index, other)| {
            index != to
                && !other.sequenced.is_replaced()
                && other.application() == application
                && (other.publisher() == publisher || application.spec().channels_are_shared)
        });
        if is_alone {
            return new.events(EventKind::Clear, now).for_each(|event| self.sink.put(event));
        }
        let instruments = old.instruments();
        let last = instruments.last().copied();
        for publisher in new.publishers() {
            for instrument in &instruments {
                let event = new.event(EventKind::Clear, (publisher, *instrument), now);
                self.sink.put(if Some(*instrument) == last { event } else { event.with_more_clears() });
            }
        }
    }

    fn unrecognised(&mut self, packet: &Packet<'_>, is_heartbeat: bool, is_first: bool) {
        self.shared.counters.unrecognised_packets += u64::from(!is_heartbeat);
        if is_first {
            let possible = recognise::possible(packet.datagram.payload);
            let destination = packet.datagram.destination;
            self.shared.note(packet, ProblemKind::UnknownProtocol { destination, possible });
        }
    }

    #[cold]
    #[inline(never)]
    fn bad_header(&mut self, packet: &Packet<'_>, error: DecodeError) {
        self.shared.note(packet, ProblemKind::Message(error));
    }

    #[cold]
    fn miscounted(&mut self, packet: &Packet<'_>, error: FramingError) {
        broken(error, &packet.into(), packet.offset, &mut self.shared.problems);
    }

    fn stream(
        &mut self,
        channels: &mut Channels<Channel>,
        stream: &mut Stream<'_, Connection>,
        part: Part<'_>,
    ) {
        let Self { shared, sink } = self;
        Messages { shared, sink: &mut AnySink(&mut **sink) }.part(channels, stream, part);
    }
}

/// Reads messages without a datagram transport: from SoupBinTCP connections in a capture, and from files.
///
/// Neither carries sequence numbers: the login gives the first, and each message increments it. Neither identifies a feed, so all
/// use [`Application::OF_STREAMS`].
pub(super) struct Messages<'f, S> {
    pub(super) shared: &'f mut Shared,
    pub(super) sink: &'f mut S,
}

impl<S: Sink<Event>> Messages<'_, S> {
    fn part(
        &mut self,
        channels: &mut Channels<Channel>,
        stream: &mut Stream<'_, Connection>,
        part: Part<'_>,
    ) {
        let place = stream.place;
        match part {
            Part::Packet(Protocol::Soup(Some(_)), packet) => {
                let index = *stream.own.channel.get_or_insert_with(|| {
                    let (source, destination) = (stream.flow.source, stream.flow.destination);
                    let identity = ChannelIdentity::SoupBinTcp { source, destination };
                    let index = self.shared.admit_stream(
                        channels,
                        identity,
                        self.shared.options.midnight_at(place.time),
                    );
                    channels[index].line_of(destination);
                    index
                });
                let channel = &mut channels[index];
                if recognise::is_order_of_stream(packet) {
                    channel.counters.packets += 1;
                    let is_numbered = packet.get(2) == Some(&soupbintcp::SequencedData::TAG);
                    channel.next_number = channel.next_number.saturating_add(u64::from(is_numbered));
                    return self.count(false, packet.len());
                }
                // The packet without its length: the type and the body.
                self.soup_packet(channel, packet.get(2..).unwrap_or_default(), place);
            }
            Part::Packet(Protocol::Soup(None), packet) => {
                let has_data = matches!(
                    packet.get(2),
                    Some(&(soupbintcp::SequencedData::TAG | soupbintcp::UnsequencedData::TAG))
                );
                if has_data && !recognise::is_order_of_stream(packet) {
                    self.unread(stream, packet.len());
                } else {
                    self.count(stream.own.is_noted, packet.len());
                }
            }
            Part::Packet(_, bytes) | Part::Garbled(bytes, _) | Part::Doubt(_, bytes) => {
                stream.own.is_session = true;
                self.count(false, bytes.len());
            }
            Part::Unread(bytes) => self.unread(stream, bytes.len()),
            Part::Cut(protocol, rest) => match stream.own.channel {
                Some(index) => {
                    let needed = recognise::first_packet_bytes(rest);
                    let cut = FramingError::Cut { offset: 0, needed, got: rest.len() };
                    self.lose(&mut channels[index], ProblemKind::Framing(cut), stream);
                }
                None => self.count(matches!(protocol, Protocol::Soup(_)), rest.len()),
            },
            Part::Hole { lost, begun } => {
                // Unreadable bytes after a hole are part of the same problem.
                stream.own.is_noted = true;
                match stream.own.channel {
                    Some(index) => self.lose(&mut channels[index], ProblemKind::StreamHole { lost }, stream),
                    None => {
                        self.shared.note(stream.place, ProblemKind::StreamHole { lost });
                        if let Some((protocol, rest)) = begun {
                            self.count(matches!(protocol, Protocol::Soup(_)), rest.len());
                        }
                    }
                }
            }
        }
    }

    /// Counts bytes that are not read: of a session, or skipped.
    fn count(&mut self, is_skipped: bool, bytes: usize) {
        let counters = &mut self.shared.counters;
        let count = if is_skipped { &mut counters.skipped_stream_bytes } else { &mut counters.session_bytes };
        *count += bytes as u64;
    }

    /// Counts unreadable bytes, and reports the first ones of a stream.
    fn unread(&mut self, stream: &mut Stream<'_, Connection>, bytes: usize) {
        self.count(!stream.own.is_session, bytes);
        if !stream.own.is_session && !std::mem::replace(&mut stream.own.is_noted, true) {
            self.shared.counters.unrecognised_packets += 1;
            let (destination, possible) = (stream.flow.destination, Vec::new());
            self.shared.note(stream.place, ProblemKind::UnknownProtocol { destination, possible });
        }
    }

    /// Reports a loss of unknown size as one missing message.
    fn lose(&mut self, channel: &mut Channel, kind: ProblemKind, stream: &Stream<'_, Connection>) {
        self.shared.note(stream.place, kind);
        let gap = Gap { first: channel.next_number, count: 1 };
        channel.sequenced.tracker.lose(gap);
        let (received, sequence) = (stream.now, channel.next_number);
        let context = Context { received, sequence, channel: channel.number, line: Line::A };
        channel.put_gap(gap, &context, Nanos(0), self.sink);
    }

    /// Reads one SoupBinTCP packet without its length.
    #[inline(never)]
    pub(super) fn soup_packet(&mut self, channel: &mut Channel, body: &[u8], place: Place) {
        channel.counters.packets += 1;
        match body.split_first() {
            Some((&soupbintcp::SequencedData::TAG, message)) => self.message(channel, message, place),
            Some((&soupbintcp::LoginAccepted::TAG, login)) => {
                // The session, then the number of the next message.
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
                self.shared.note(place, ProblemKind::Unsequenced { bytes: message.len() });
            }
            // Client logins and heartbeats, debug packets.
            Some(_) => {}
            None => self.shared.note(place, ProblemKind::Message(DecodeError::Empty)),
        }
    }

    /// Processes the next message.
    #[inline(always)]
    pub(super) fn message(&mut self, channel: &mut Channel, message: &[u8], place: Place) {
        let Shared { problems, symbols, .. } = &mut *self.shared;
        channel.numbered_message(message, place, problems, symbols, self.sink);
    }
}

/// Records the instruments of a channel that is one of several of its venue, so that a restart empties only their books.
///
/// Cost: a load for each event of such a channel, and a branch for each event of any other.
struct Noting<'s, S> {
    has: &'s mut Option<Vec<bool>>,
    sink: &'s mut S,
}

impl<S: Sink<Event>> Sink<Event> for Noting<'_, S> {
    #[inline]
    fn put(&mut self, event: Event) {
        if let Some(has) = self.has {
            match has.get_mut(event.instrument.index()) {
                Some(place) => *place = true,
                None => note_instrument(has, event.instrument),
            }
        }
        self.sink.put(event);
    }
}

#[cold]
fn note_instrument(has: &mut Vec<bool>, instrument: InstrumentId) {
    if instrument.0 < MAX_INSTRUMENTS {
        has.resize(instrument.index() + 1, false);
        has[instrument.index()] = true;
    }
}
