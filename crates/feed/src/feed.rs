//! The feed stage: datagrams or file messages in, events out.

mod streams;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use tapeworks_market::event::Gap;
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_market::orders::MAX_INSTRUMENTS;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, EventKind, InstrumentId, Instruments, Line, Publisher, Symbol};
use tapeworks_packet::net::Transport;
use tapeworks_packet::tcp::{Flow, Limits, Reassembler};
use tapeworks_planted::planted;
use tapeworks_session::{Header, Transport as UdpTransport, for_transport};
use tapeworks_stage::{Sink, Stage};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::LengthPrefix;

use crate::captured::{ChannelIdentity, Packet};
use crate::channel::{Channel, broken};
use crate::clock;
use crate::normaliser::{Context, Start};
use crate::problem::{Problem, ProblemKind, Problems};
use crate::recognise;
use crate::router::{Attributed, Route, RoutedChannel as _, Router, overcounted};
use crate::sequence::Arrival;
#[cfg(feature = "serde")]
use crate::state::{Reader, StateError, Writer, ensure};
use crate::symbols::SymbolTable;
use crate::table::{Application, VenueConflict};
use streams::{Connection, StreamPlace};

pub use streams::FileFeed;

/// Settings that override recognition.
#[derive(Clone, Debug, Default)]
pub struct FeedOptions {
    /// The protocol of every channel, instead of recognising it.
    pub application: Option<Application>,
    /// The feed of ITCH channels; without it the multicast group names the feed.
    pub publisher: Option<Publisher>,
    /// Midnight of the day in New York, instead of taking it from the receive times.
    pub midnight: Option<Nanos>,
    /// The wanted symbols; others are dropped.
    pub symbols: Option<HashSet<Symbol>>,
    /// When venues are under self-help. A [`LiveFeed`](crate::live::LiveFeed) puts out the events of it; around a [`Feed`] a
    /// [`SelfHelpSink`](tapeworks_market::nbbo::SelfHelpSink) does.
    pub self_help: Vec<SelfHelp>,
    /// What the sizes of the SIPs' quotes count.
    pub sip_sizes: SipSizes,
}

impl FeedOptions {
    /// The start of a channel.
    const fn start(&self, publisher: Publisher, midnight: Nanos) -> Start {
        Start { publisher, midnight, is_midnight_fixed: self.midnight.is_some(), sip_sizes: self.sip_sizes }
    }

    /// Midnight of the day of a receive time.
    fn midnight_at(&self, received: Option<Nanos>) -> Nanos {
        self.midnight.or_else(|| received.and_then(clock::midnight_before)).unwrap_or_default()
    }
}

/// Counters of input.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounters {
    /// Datagrams taken.
    pub packets: u64,
    /// Datagrams and stream segments in an unknown protocol.
    pub unrecognised_packets: u64,
    /// Packets that are sound and neither UDP nor TCP over IP (ARP, IGMP, later fragments).
    pub foreign_packets: u64,
    /// Skipped bytes of streams that are known and have no market data: order entry, requests for missed messages and snapshots.
    pub session_bytes: u64,
    /// Skipped bytes of streams: behind a gap, or in an unknown protocol.
    pub skipped_stream_bytes: u64,
}

/// Translates datagrams, or the messages of files, into events.
#[derive(Debug)]
pub struct Feed {
    options: FeedOptions,
    symbols: SymbolTable,
    router: Router<Channel>,
    reassembler: Reassembler,
    connections: HashMap<Flow, Connection>,
    stream_place: StreamPlace,
    problems: Problems,
    counters: FeedCounters,
}

impl Feed {
    /// A feed that has seen nothing.
    pub fn new(options: FeedOptions) -> Self {
        Self {
            symbols: SymbolTable::new(options.symbols.clone()),
            router: Router::new(options.application, options.publisher),
            options,
            reassembler: Reassembler::new(Limits::default()),
            connections: HashMap::new(),
            stream_place: StreamPlace::default(),
            problems: Problems::default(),
            counters: FeedCounters::default(),
        }
    }

    /// Its options.
    pub(crate) const fn options(&self) -> &FeedOptions {
        &self.options
    }

    /// Appends the state of channels and symbols, without streams and files: live lines have neither.
    #[cfg(feature = "serde")]
    pub(crate) fn save(&self, writer: &mut Writer) -> Result<(), StateError> {
        self.symbols.save(writer)?;
        writer.put(&&*self.router.channels)?;
        writer.put(&self.problems.counts())?;
        writer.put(&self.counters)
    }

    /// The feed that was saved.
    #[cfg(feature = "serde")]
    pub(crate) fn restore(options: FeedOptions, reader: &mut Reader<'_>) -> Result<Self, StateError> {
        let mut feed = Self::new(options);
        feed.symbols = SymbolTable::restore(feed.options.symbols.clone(), reader)?;
        let channels: Vec<Channel> = reader.take()?;
        feed.problems = Problems::from_counts(reader.take()?);
        feed.counters = reader.take()?;
        let mut identities = HashSet::new();
        for channel in channels {
            channel.check(&feed.symbols)?;
            ensure(identities.insert(*channel.identity()), "a channel is there twice")?;
            feed.router.channels.add(channel);
        }
        Ok(feed)
    }

    /// Gives a symbol of another plant's events its number.
    pub(crate) fn learn(&mut self, symbol: Symbol) {
        self.symbols.learn(symbol);
    }

    /// The symbols seen so far.
    pub const fn instruments(&self) -> &Instruments {
        self.symbols.instruments()
    }

    /// The channels seen so far.
    pub fn channels(&self) -> &[Channel] {
        &self.router.channels
    }

    /// The problems found.
    pub const fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Counters of input.
    pub const fn counters(&self) -> &FeedCounters {
        &self.counters
    }

    /// The first group that contradicts [`FeedOptions::publisher`]; its packets are not read.
    pub const fn venue_conflict(&self) -> Option<VenueConflict> {
        self.router.venue_conflict()
    }

    /// The destinations whose protocol was [inferred](recognise), in the order of their first packets.
    pub fn inferred(&self) -> impl Iterator<Item = (SocketAddr, Application)> + '_ {
        self.router.inferred()
    }

    /// Unreadable symbols: blank, or not ASCII. Their messages have no instrument.
    pub const fn unreadable_symbols(&self) -> u64 {
        self.symbols.unreadable()
    }

    /// Messages handed on so far, over all channels.
    pub fn messages(&self) -> u64 {
        self.router.channels.iter().map(|channel| channel.counters.messages).sum()
    }

    /// Counts a sound packet that is neither UDP nor TCP over IP; the caller does not pass such packets in.
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
        if let Some(index) = self.router.channels.current(&identity) {
            return index;
        }
        let start = self.options.start(publisher, midnight);
        let number = self.router.channels.len() as u16;
        self.router.channels.add(Channel::new(identity, application, number, &start))
    }

    pub(crate) fn midnight(&self, received: Option<Nanos>) -> Nanos {
        self.options.midnight_at(received)
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
        let at = self.router.destination(packet.datagram.destination);
        let application = match self.router.known(at) {
            Some(application) => application,
            None => match self.recognise(at, packet) {
                Some(application) => application,
                None => return,
            },
        };
        for_transport!(application.transport(), T => self.datagram::<T, S>(at, application, packet, sink));
    }

    #[cold]
    fn recognise(&mut self, at: usize, packet: &Packet<'_>) -> Option<Application> {
        let Some(Attributed { application, renamed }) = self.router.attribute(at, packet.datagram.payload)
        else {
            // A heartbeat carries nothing that could be lost; the first packet with messages decides.
            if !recognise::is_heartbeat(packet.datagram.payload) {
                self.note_unrecognised(at, packet);
            }
            return None;
        };
        if let Some(index) = renamed {
            self.rename_channel(index, application, packet);
        }
        Some(application)
    }

    /// Renames a channel without messages, which turns out to belong to another feed with the same transport.
    fn rename_channel(&mut self, index: usize, application: Application, packet: &Packet<'_>) {
        let publisher =
            application.spec().publisher(self.options.publisher, Some(packet.datagram.destination));
        let midnight = self.midnight(Some(packet.received));
        let start = self.options.start(publisher, midnight);
        self.router.channels[index].rename(application, &start);
    }

    /// Counts a packet of no feed, and notes its destination once.
    fn note_unrecognised(&mut self, at: usize, packet: &Packet<'_>) {
        self.counters.unrecognised_packets += 1;
        if self.router.report_once(at) {
            let possible = recognise::possible(packet.datagram.payload);
            let kind = ProblemKind::UnknownProtocol { destination: packet.datagram.destination, possible };
            let problem = Problem { file: packet.file, packet: packet.number, offset: packet.offset, kind };
            self.problems.note(problem);
        }
    }

    /// Places a packet that is not the next one of its destination's channel: returns its channel and line, unless nothing of it is read
    /// now. Packets that waited for it are read before.
    #[cold]
    #[inline(never)]
    fn place<T: UdpTransport, S: Sink<Event>>(
        &mut self,
        at: usize,
        application: Application,
        packet: &Packet<'_>,
        header: Header,
        sink: &mut S,
    ) -> Option<(usize, Line)> {
        let number = self.router.channels.len() as u16;
        let options = &self.options;
        // The day takes a look into the time zone, so copies do without it.
        let make = |identity, application, publisher, before: Option<&Channel>| {
            let start = options.start(publisher, options.midnight_at(Some(packet.received)));
            let mut channel = Channel::new(identity, application, number, &start);
            if let Some(before) = before {
                channel.takes_lines_of(before);
            }
            channel
        };
        let route = self.router.route(at, packet, header, application, make);
        self.note_refused();
        match route {
            Route::Channel { index, line, renamed } => {
                if let Some(application) = renamed {
                    self.rename_channel(index, application, packet);
                }
                Some((index, line))
            }
            Route::Held => None,
            Route::Unrecognised => {
                self.note_unrecognised(at, packet);
                None
            }
            Route::Skipped(index, arrival) => {
                self.skip_packet(index, &arrival, packet, &header);
                None
            }
            Route::Restarted { from, to, held } => {
                self.clear(from, to, packet.received, sink);
                for held in held {
                    let held = held.packet();
                    let at = self.router.destination(held.datagram.destination);
                    self.datagram::<T, S>(at, self.router.channels[to].application(), &held, sink);
                }
                Some((to, self.router.enter(at, to)))
            }
        }
    }

    /// The input ends: reads the packets that still wait, or reports them.
    fn finish_channels(&mut self, sink: &mut AnySink<'_>) {
        for (application, held) in self.router.channels.finish() {
            let packet = held.packet();
            let at = self.router.destination(packet.datagram.destination);
            for_transport!(application.transport(), T => self.datagram::<T, _>(at, application, &packet, sink));
        }
        self.note_refused();
    }

    /// Counts a packet of which nothing is used.
    fn skip_packet(&mut self, index: usize, arrival: &Arrival, packet: &Packet<'_>, header: &Header) {
        let line = self.router.channels[index].line_of(packet.datagram.destination);
        let counters = &mut self.router.channels[index].counters;
        counters.packets += 1;
        if let Some(refusal) = arrival.refusal {
            let kind = ProblemKind::Refused { first: header.first, refusal };
            self.problems.note(Problem {
                file: packet.file,
                packet: packet.number,
                offset: packet.offset,
                kind,
            });
        } else {
            counters.duplicate_packets[usize::from(line == Line::B)] += 1;
        }
    }

    /// Reports the packets that waited and were refused.
    fn note_refused(&mut self) {
        for (index, held, refusal) in self.router.channels.take_refused() {
            let transport = self.router.channels[index].application().transport();
            let first = transport.header(held.packet().datagram.payload).map_or(0, |header| header.first);
            let kind = ProblemKind::Refused { first, refusal };
            self.problems.note(Problem { file: held.file, packet: held.number, offset: held.offset, kind });
        }
    }

    /// A channel takes the place of another, whose books are emptied.
    fn clear<S: Sink<Event>>(&mut self, from: usize, to: usize, now: Nanos, sink: &mut S) {
        let publisher = self.router.channels[from].publisher();
        let application = self.router.channels[from].application();
        let is_alone = !self.router.channels.iter().enumerate().any(|(index, other)| {
            index != to
                && !other.sequenced.is_replaced()
                && other.application() == application
                && (other.publisher() == publisher || application.spec().channels_are_shared)
        });
        if is_alone {
            let events = self.events_of(to, EventKind::Clear, now);
            events.for_each(|event| sink.put(event));
            return;
        }
        let instruments = self.router.channels[from].instruments();
        let last = instruments.last().copied();
        for publisher in self.router.channels[to].publishers() {
            for instrument in &instruments {
                let event = self.event_of(to, EventKind::Clear, (publisher, *instrument), now);
                sink.put(if Some(*instrument) == last { event } else { event.with_more_clears() });
            }
        }
    }

    #[inline]
    fn datagram<T: UdpTransport, S: Sink<Event>>(
        &mut self,
        at: usize,
        application: Application,
        packet: &Packet<'_>,
        sink: &mut S,
    ) {
        let mut read = match T::packet(packet.datagram.payload) {
            Ok(read) => read,
            Err(error) => return self.bad_header(packet, error),
        };
        let port = packet.datagram.destination.port();
        let (index, line) = match self.router.next(at, &read.header, port) {
            Some(found) => found,
            None => match self.place::<T, S>(at, application, packet, read.header, sink) {
                Some(found) => {
                    self.judge_count::<T>(found.0, packet, &mut read.header);
                    found
                }
                None => return,
            },
        };
        let Header { first, count, .. } = read.header;
        self.router.channels[index].sequenced.note::<T>(&read, packet);
        let mut has = self.router.channels[index].has.take();
        let unread = self.read_packet(index, line, read, packet, &mut Noting { has: &mut has, sink });
        self.router.channels[index].has = has;
        if unread > 0 {
            let channel = &mut self.router.channels[index];
            if overcounted::<T>(packet).is_some() {
                // The count is damaged, or the messages are missing. The next packet shows which.
                return channel.sequenced.tracker.cannot_read(unread);
            }
            let context =
                Context { received: Some(packet.received), sequence: first, channel: channel.number, line };
            channel.lose(first.saturating_add(count), unread, context, packet.received, sink);
        }
    }

    /// A captured packet that is not the next one: a copy with a damaged count has no more messages than it holds.
    #[cold]
    #[inline(never)]
    fn judge_count<T: UdpTransport>(&mut self, index: usize, packet: &Packet<'_>, header: &mut Header) {
        let sequenced = &self.router.channels[index].sequenced;
        let Some((count, error)) = sequenced.count_of_copy::<T>(header, packet) else { return };
        header.count = count;
        // What is new in it is read, and the error noted there.
        if !sequenced.tracker.overlaps(header.first, count) {
            broken(error, packet, packet.offset, &mut self.problems);
        }
    }

    /// The messages of a packet that continue the channel's sequence. Returns how many of them, the last, cannot be read.
    #[inline]
    fn read_packet<S: Sink<Event>, Prefix: LengthPrefix>(
        &mut self,
        index: usize,
        line: Line,
        read: tapeworks_session::Packet<'_, Prefix>,
        packet: &Packet<'_>,
        sink: &mut S,
    ) -> u64 {
        let Header { first, count, is_end_of_session, .. } = read.header;
        let channel = &mut self.router.channels[index];
        let context =
            Context { received: Some(packet.received), sequence: first, channel: channel.number, line };
        let problems = &mut self.problems;
        let begun = channel.begin(count, is_end_of_session, &context, packet, problems, sink);
        let Some(skip) = begun else { return 0 };
        let symbols = &mut self.symbols;
        channel.messages(
            read.blocks,
            read.header_bytes,
            count,
            skip,
            context,
            packet,
            problems,
            symbols,
            sink,
        )
    }

    /// A packet that is known to be of this channel, in its sequence. Returns how many of its messages, the last, cannot be read: they
    /// are expected again.
    #[inline]
    pub(crate) fn packet_of<S: Sink<Event>>(
        &mut self,
        index: usize,
        line: Line,
        packet: &Packet<'_>,
        sink: &mut S,
    ) -> u64 {
        self.counters.packets += 1;
        let payload = packet.datagram.payload;
        let decoded = for_transport!(self.router.channels[index].application().transport(), T => {
            T::packet(payload).map(|read| self.read_packet(index, line, read, packet, sink))
        });
        match decoded {
            Ok(0) => 0,
            Ok(unread) => {
                self.router.channels[index].sequenced.tracker.cannot_read(unread);
                unread
            }
            Err(error) => {
                self.bad_header(packet, error);
                0
            }
        }
    }

    /// Like [`Self::packet_of`], for packets that are rare: one compiled copy serves every sink.
    #[cold]
    pub(crate) fn rare_packet_of(
        &mut self,
        index: usize,
        line: Line,
        packet: &Packet<'_>,
        sink: &mut dyn Sink<Event>,
    ) -> u64 {
        self.packet_of(index, line, packet, &mut AnySink(sink))
    }

    /// Reads a packet to recognise its feed and channel; discards its events.
    pub fn look_at(&mut self, packet: &Packet<'_>) {
        self.packet(packet, &mut AnySink(&mut |_| {}));
    }

    /// Messages of a channel are given up: puts out the gap at `now`.
    #[cold]
    pub(crate) fn pass_over<S: Sink<Event>>(&mut self, index: usize, gap: Gap, now: Nanos, sink: &mut S) {
        let channel = &mut self.router.channels[index];
        channel.sequenced.tracker.give_up(gap);
        if planted!("gap-filled-silently") {
            return;
        }
        let context =
            Context { received: Some(now), sequence: gap.first, channel: channel.number, line: Line::A };
        channel.put_gap(gap, &context, now, sink);
    }

    /// Events about a whole channel, without a message: one for each of its publishers.
    pub(crate) fn events_of(
        &self,
        index: usize,
        kind: EventKind,
        now: Nanos,
    ) -> impl Iterator<Item = Event> + '_ {
        self.router.channels[index]
            .publishers()
            .map(move |publisher| self.event_of(index, kind, (publisher, InstrumentId::ALL), now))
    }

    /// An event about one instrument of a publisher, without a message.
    pub(crate) fn event_of(
        &self,
        index: usize,
        kind: EventKind,
        (publisher, instrument): (Publisher, InstrumentId),
        now: Nanos,
    ) -> Event {
        let channel = &self.router.channels[index];
        let mut event = Event::new(kind, publisher, instrument);
        (event.ts_event, event.ts_recv) = (now, now);
        event.channel = channel.number;
        event.channel_sequence = channel.sequenced.tracker.next().unwrap_or_default();
        event
    }

    /// A message of a channel outside its sequence: of a snapshot, or of a sequence gap that was given up. Not counted.
    pub(crate) fn aside(
        &mut self,
        index: usize,
        message: &[u8],
        received: Nanos,
        sequence: u64,
        sink: &mut dyn Sink<Event>,
    ) {
        let sink = &mut AnySink(sink);
        let channel = &mut self.router.channels[index];
        let context =
            Context { received: Some(received), sequence, channel: channel.number, line: Line::Snapshot };
        channel.translate(message, &context, (0, 0, 0), &mut self.problems, &mut self.symbols, sink);
    }

    /// A channel's books are complete again: no order of an unnamed instrument is missing.
    pub(crate) fn forget_unnamed(&mut self, index: usize) {
        self.router.channels[index].normaliser.forget_unnamed();
    }

    /// The number of the last message that any book of a channel's last snapshot has, where books are of several numbers; else 0.
    pub(crate) fn snapshot_reaches(&self, index: usize) -> u64 {
        self.router.channels[index].normaliser.snapshot_reaches()
    }

    /// The number of the last message that a book has, if a message of a channel's snapshot names it; else 0.
    pub(crate) fn reach_of(&self, index: usize, message: &[u8]) -> u64 {
        self.router.channels[index].normaliser.reach_of(message)
    }

    /// The number that the events of a channel carry.
    pub(crate) fn set_number(&mut self, index: usize, number: u16) {
        self.router.channels[index].number = number;
    }

    /// The venue starts the numbers of a channel's session over. Returns the channel that takes its place.
    pub(crate) fn next_run(&mut self, index: usize, now: Nanos) -> usize {
        let old = &self.router.channels[index];
        let start = self.options.start(old.publisher(), self.midnight(Some(now)));
        let channel = Channel::new(old.identity().next_run(), old.application(), old.number, &start);
        self.router.channels.add(channel)
    }

    /// The channel continues after a snapshot, with the message numbered `next`.
    pub(crate) fn restart(&mut self, index: usize, next: u64) {
        self.router.channels[index].sequenced.tracker.restart(next);
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

    #[cold]
    fn note_at(&mut self, (file, packet, offset): (u16, u64, u64), kind: ProblemKind) {
        self.problems.note(Problem { file, packet, offset, kind });
    }
}

/// A type-erased sink, for streams, snapshots, checks and late messages.
///
/// Every type of sink compiles all normalisers once more. That pays off on the path of a message only.
struct AnySink<'s>(&'s mut dyn Sink<Event>);

impl Sink<Event> for AnySink<'_> {
    fn put(&mut self, event: Event) {
        self.0.put(event);
    }

    fn end_of_batch(&mut self) {
        self.0.end_of_batch();
    }

    fn expect(&mut self, index: usize) {
        self.0.expect(index);
    }
}

/// Notes the instruments of a channel that is one of several of its venue, so that a restart empties their books and no others.
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

impl<'p, S: Sink<Event>> Stage<Packet<'p>, S> for Feed {
    #[inline]
    fn process(&mut self, batch: &[Packet<'p>], sink: &mut S) {
        for packet in batch {
            self.packet(packet, sink);
        }
    }
}
