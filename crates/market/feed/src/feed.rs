//! The feed stage: turns datagrams or file messages into events.

mod files;
mod reading;

use std::collections::HashSet;
use std::net::SocketAddr;

use tapeworks_market::event::Gap;
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, Instruments, Line, Publisher, Symbol};
use tapeworks_planted::planted;
use tapeworks_session::{Header, Transport, for_transport};
use tapeworks_stage::{Sink, Stage};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;

use crate::captured::{ChannelIdentity, Origin, Packet, Place};
use crate::channel::Channel;
use crate::channels::Channels;
use crate::normaliser::{Context, Start};
use crate::problem::{Problem, ProblemKind, Problems};
#[cfg(feature = "serde")]
use crate::state::{Reader, StateError, Writer, ensure};
use crate::symbols::SymbolTable;
use crate::table::{Application, VenueConflict};
use crate::walk::Walk;
use crate::walk::streams::ReadStreams;
use reading::{Arrived, Connection, Reading};
use tapeworks_time::clock;

pub use files::FileFeed;

/// Settings that override recognition.
#[derive(Clone, Debug, Default)]
pub struct FeedOptions {
    /// The feed of every channel, instead of recognising it.
    pub application: Option<Application>,
    /// The publisher of channels whose feed has it; otherwise the multicast group decides.
    pub publisher: Option<Publisher>,
    /// Midnight of the day in New York, instead of deriving it from the receive times.
    pub midnight: Option<Nanos>,
    /// The wanted symbols; others are dropped. `None` keeps all.
    pub symbols: Option<HashSet<Symbol>>,
    /// When venues are under self-help. A [`LiveFeed`](crate::live::LiveFeed) emits the events; around a [`Feed`] a
    /// [`SelfHelpSink`](tapeworks_market::nbbo::SelfHelpSink) does.
    pub self_help: Vec<SelfHelp>,
    /// How to interpret the sizes of the SIPs' quotes.
    pub sip_sizes: SipSizes,
}

impl FeedOptions {
    /// Returns the start of a channel.
    const fn start(&self, publisher: Publisher, midnight: Nanos) -> Start {
        Start { publisher, midnight, is_midnight_fixed: self.midnight.is_some(), sip_sizes: self.sip_sizes }
    }

    /// Returns midnight of the day of a receive time.
    fn midnight_at(&self, received: Option<Nanos>) -> Nanos {
        self.midnight.or_else(|| received.and_then(clock::midnight_before)).unwrap_or_default()
    }
}

/// Counters of input.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounters {
    /// Datagrams processed.
    pub packets: u64,
    /// Datagrams and stream segments in an unknown protocol.
    pub unrecognised_packets: u64,
    /// Sound packets that are neither UDP nor TCP over IP (ARP, IGMP, later fragments).
    pub foreign_packets: u64,
    /// Skipped bytes of streams that are known and carry no market data: order entry, retransmission and snapshot requests.
    pub session_bytes: u64,
    /// Skipped bytes of streams: after a gap, or in an unknown protocol.
    pub skipped_stream_bytes: u64,
}

/// Translates datagrams, or the messages of files, into events.
#[derive(Debug)]
pub struct Feed {
    walk: Walk<Channel, Connection>,
    shared: Shared,
}

/// State shared by the channels of a feed.
#[derive(Debug)]
struct Shared {
    options: FeedOptions,
    symbols: SymbolTable,
    problems: Problems,
    counters: FeedCounters,
}

impl Shared {
    /// Returns the channel with this identity, creating it for `application` and `publisher` if needed.
    fn admit(
        &self,
        channels: &mut Channels<Channel>,
        identity: ChannelIdentity,
        application: Application,
        publisher: Publisher,
        midnight: Nanos,
    ) -> usize {
        let number = channels.len() as u16;
        let start = self.options.start(publisher, midnight);
        let current = channels.current(&identity);
        current.unwrap_or_else(|| channels.add(Channel::new(identity, application, number, &start)))
    }

    /// Returns the channel of a stream or file, creating it if needed.
    fn admit_stream(
        &self,
        channels: &mut Channels<Channel>,
        identity: ChannelIdentity,
        midnight: Nanos,
    ) -> usize {
        let application = Application::OF_STREAMS;
        let publisher = application.spec().publisher(self.options.publisher, None);
        self.admit(channels, identity, application, publisher, midnight)
    }

    #[cold]
    fn note(&mut self, place: impl Into<Place>, kind: ProblemKind) {
        self.problems.note(Problem::at(place, kind));
    }
}

impl Feed {
    /// Creates an empty feed.
    pub fn new(options: FeedOptions) -> Self {
        Self {
            walk: Walk::new(options.application, options.publisher, ReadStreams::Recognised(None)),
            shared: Shared {
                symbols: SymbolTable::new(options.symbols.clone()),
                options,
                problems: Problems::default(),
                counters: FeedCounters::default(),
            },
        }
    }

    /// Returns the options.
    pub(crate) const fn options(&self) -> &FeedOptions {
        &self.shared.options
    }

    /// Appends the state of channels and symbols, without streams and files: live lines have neither.
    #[cfg(feature = "serde")]
    pub(crate) fn save(&self, writer: &mut Writer) -> Result<(), StateError> {
        self.shared.symbols.save(writer)?;
        writer.put(&&**self.walk.channels())?;
        writer.put(&self.shared.problems.counts())?;
        writer.put(&self.shared.counters)
    }

    /// Restores a saved feed.
    #[cfg(feature = "serde")]
    pub(crate) fn restore(options: FeedOptions, reader: &mut Reader<'_>) -> Result<Self, StateError> {
        let mut feed = Self::new(options);
        feed.shared.symbols = SymbolTable::restore(feed.shared.options.symbols.clone(), reader)?;
        let channels: Vec<Channel> = reader.take()?;
        feed.shared.problems = Problems::from_counts(reader.take()?);
        feed.shared.counters = reader.take()?;
        let mut identities = HashSet::new();
        for channel in channels {
            channel.check(&feed.shared.symbols)?;
            ensure(identities.insert(*channel.identity()), "a channel is there twice")?;
            feed.walk.channels_mut().add(channel);
        }
        Ok(feed)
    }

    /// Numbers a symbol of another plant's events.
    pub(crate) fn learn(&mut self, symbol: Symbol) {
        self.shared.symbols.learn(symbol);
    }

    /// Returns the instruments seen so far.
    pub const fn instruments(&self) -> &Instruments {
        self.shared.symbols.instruments()
    }

    /// Returns the channels seen so far.
    pub fn channels(&self) -> &[Channel] {
        self.walk.channels()
    }

    /// Returns the problems found.
    pub const fn problems(&self) -> &Problems {
        &self.shared.problems
    }

    /// Returns the input counters.
    pub const fn counters(&self) -> &FeedCounters {
        &self.shared.counters
    }

    /// Returns the first group that contradicts [`FeedOptions::publisher`]. Its packets are not read.
    pub const fn venue_conflict(&self) -> Option<VenueConflict> {
        self.walk.venue_conflict()
    }

    /// Returns the destinations whose feed was [inferred](crate::recognise), in the order of their first packets.
    pub fn inferred(&self) -> impl Iterator<Item = (SocketAddr, Application)> + '_ {
        self.walk.inferred()
    }

    /// Returns the number of unreadable symbols: blank, or not ASCII. Their messages have no instrument.
    pub const fn unreadable_symbols(&self) -> u64 {
        self.shared.symbols.unreadable()
    }

    /// Returns the number of messages delivered so far, over all channels.
    pub fn messages(&self) -> u64 {
        self.walk.channels().iter().map(|channel| channel.counters.messages).sum()
    }

    /// Counts a sound packet that is neither UDP nor TCP over IP; the caller does not pass such packets in.
    pub const fn note_foreign(&mut self) {
        self.shared.counters.foreign_packets += 1;
    }

    /// Records a problem that the caller found before the packet got here (in its network headers).
    pub fn note(&mut self, problem: Problem) {
        self.shared.problems.note(problem);
    }

    /// Returns the channel with this identity, creating it for `application` and `publisher` if needed.
    pub(crate) fn admit(
        &mut self,
        identity: ChannelIdentity,
        application: Application,
        publisher: Publisher,
        midnight: Nanos,
    ) -> usize {
        self.shared.admit(self.walk.channels_mut(), identity, application, publisher, midnight)
    }

    pub(crate) fn midnight(&self, received: Option<Nanos>) -> Nanos {
        self.shared.options.midnight_at(received)
    }

    /// Flushes held packets and buffered bytes, and reports truncated packets. Must be the last call.
    pub fn finish(&mut self, sink: &mut dyn Sink<Event>) {
        self.walk.finish(&mut Reading { shared: &mut self.shared, sink: &mut AnySink(sink) });
    }

    /// Reads a live packet that continues its channel. Returns the number of trailing messages that could not be read; they are
    /// expected again.
    #[inline]
    pub(crate) fn live<T: Transport, S: Sink<Event>>(
        &mut self,
        index: usize,
        line: Line,
        received: Nanos,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        sink: &mut S,
    ) -> u64 {
        let Self { walk, shared } = self;
        shared.counters.packets += 1;
        let channel = &mut walk.channels_mut()[index];
        let Header { first, count, .. } = read.header;
        let arrival = channel.sequenced.tracker.judge(first, count);
        debug_assert!(arrival.is_none_or(|arrival| arrival.gap.is_none()), "the arbiter left out messages");
        let arrived = Arrived { origin: Origin::live(received), line, count, arrival };
        let unread = shared.read(channel, arrived, read, sink);
        if unread > 0 {
            channel.sequenced.tracker.cannot_read(unread);
        }
        unread
    }

    /// Reads a held or retransmitted packet: [`Self::live`] with a type-erased sink.
    #[cold]
    pub(crate) fn held(
        &mut self,
        index: usize,
        line: Line,
        received: Nanos,
        payload: &[u8],
        sink: &mut dyn Sink<Event>,
    ) -> u64 {
        let transport = self.channel(index).application().transport();
        for_transport!(transport, T => match T::packet(payload) {
            Ok(read) => self.live::<T, _>(index, line, received, &read, &mut AnySink(sink)),
            Err(error) => {
                self.bad_header(received, error);
                0
            }
        })
    }

    /// Reports a live packet with an unreadable header.
    #[cold]
    pub(crate) fn bad_header(&mut self, received: Nanos, error: DecodeError) {
        self.shared.note(Origin::live(received).place, ProblemKind::Message(error));
    }

    /// Reads a packet to recognise its feed and channel; discards its events.
    pub fn look_at(&mut self, packet: &Packet<'_>) {
        self.process(&[*packet], &mut AnySink(&mut |_| {}));
    }

    /// Gives up messages of a channel: emits the gap at `now`.
    #[cold]
    pub(crate) fn pass_over<S: Sink<Event>>(&mut self, index: usize, gap: Gap, now: Nanos, sink: &mut S) {
        let channel = self.channel_mut(index);
        channel.sequenced.tracker.give_up(gap);
        if planted!("gap-filled-silently") {
            return;
        }
        let context =
            Context { received: Some(now), sequence: gap.first, channel: channel.number, line: Line::A };
        channel.put_gap(gap, &context, now, sink);
    }

    /// Translates a message outside a channel's sequence: from a snapshot, or from a gap that was given up. It is not counted.
    pub(crate) fn aside(
        &mut self,
        index: usize,
        message: &[u8],
        received: Nanos,
        sequence: u64,
        sink: &mut dyn Sink<Event>,
    ) {
        let Self { walk, shared: Shared { problems, symbols, .. } } = self;
        let channel = &mut walk.channels_mut()[index];
        let context =
            Context { received: Some(received), sequence, channel: channel.number, line: Line::Snapshot };
        let nowhere = Place { file: 0, number: 0, offset: 0, time: None };
        channel.translate(message, &context, nowhere, problems, symbols, &mut AnySink(sink));
    }

    /// Returns a channel.
    pub(crate) fn channel(&self, index: usize) -> &Channel {
        &self.walk.channels()[index]
    }

    /// Returns a channel.
    pub(crate) fn channel_mut(&mut self, index: usize) -> &mut Channel {
        &mut self.walk.channels_mut()[index]
    }

    /// Replaces a channel whose session restarts its numbers. Returns the new channel.
    pub(crate) fn next_run(&mut self, index: usize, now: Nanos) -> usize {
        let old = &self.walk.channels()[index];
        let start = self.shared.options.start(old.publisher(), self.midnight(Some(now)));
        let channel = Channel::new(old.identity().next_run(), old.application(), old.number, &start);
        self.walk.channels_mut().add(channel)
    }
}

/// A type-erased sink, for streams, snapshots, checks and late messages.
///
/// Each type of sink compiles all normalisers again. That pays off only on the message path.
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

impl<'p, S: Sink<Event>> Stage<Packet<'p>, S> for Feed {
    #[inline]
    fn process(&mut self, batch: &[Packet<'p>], sink: &mut S) {
        let Self { walk, shared } = self;
        for packet in batch {
            shared.counters.packets += 1;
            if packet.datagram.truncated {
                shared.note(packet, ProblemKind::CutPacket);
            }
            walk.packet(packet, &mut Reading { shared, sink });
        }
    }
}
