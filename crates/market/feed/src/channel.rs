//! One channel: its position in the sequence, its messages, its counters.
//!
//! Cost: one compare of the sequence number per packet; per message, the cost of its [normaliser](crate::normaliser).

use std::net::SocketAddr;

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Publisher};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::{Blocks, FramingError, LengthPrefix};

use crate::captured::{ChannelIdentity, Origin, Place};
use crate::channels::Sequenced;
use crate::normaliser::{Context, Start, Target};
use crate::problem::{Problem, ProblemKind, Problems};
use crate::router::RoutedChannel;
#[cfg(feature = "serde")]
use crate::state::{StateError, ensure};
use crate::symbols::SymbolTable;
use crate::table::{Application, ChannelNormaliser};
use tapeworks_follow::sequence::{Arrival, SequenceCounters, unread};

/// Counters of a channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChannelCounters {
    /// Packets, duplicates included.
    pub packets: u64,
    /// Packets without a new message, by line A and B.
    pub duplicate_packets: [u64; 2],
    /// Messages delivered.
    pub messages: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Announced ends of session.
    pub ends_of_session: u64,
}

/// A channel of a venue.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub struct Channel {
    pub(crate) sequenced: Sequenced,
    publisher: Publisher,
    pub(crate) number: u16,
    /// Number of the next message in a stream or file, whose messages carry no numbers.
    pub(crate) next_number: u64,
    pub(crate) normaliser: ChannelNormaliser,
    /// Destinations that carry the channel: line A first.
    lines: Vec<SocketAddr>,
    /// Whether the channel has carried an instrument, by instrument number. Only kept for captures; `None` for feeds whose venues
    /// have a single channel.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) has: Option<Vec<bool>>,
    pub(crate) counters: ChannelCounters,
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
        self.counters.messages > 0
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

impl Channel {
    /// Creates a channel before its first message. Events have 16 bits for its number: channels beyond 65,536 share the numbers,
    /// but keep separate sequence numbers.
    pub(crate) fn new(
        identity: ChannelIdentity,
        application: Application,
        number: u16,
        start: &Start,
    ) -> Self {
        Self {
            sequenced: Sequenced::new(identity, application),
            publisher: start.publisher,
            number,
            next_number: 1,
            normaliser: ChannelNormaliser::new(application, start),
            lines: Vec::new(),
            has: (!application.spec().has_one_session && !application.transport().names_channel())
                .then(Vec::new),
            counters: ChannelCounters::default(),
        }
    }

    /// Changes the feed to another one with the same transport. The channel must not have had a message yet.
    pub(crate) fn rename(&mut self, application: Application, start: &Start) {
        self.sequenced.rename(application);
        self.publisher = start.publisher;
        self.normaliser = ChannelNormaliser::new(application, start);
    }

    /// Checks that a restored state is valid.
    #[cfg(feature = "serde")]
    pub(crate) fn check(&self, symbols: &SymbolTable) -> Result<(), StateError> {
        ensure(self.sequenced.tracker.is_sound(), "a channel's gaps")?;
        let is_fitting = matches!(self.identity(), ChannelIdentity::Datagrams { session, .. }
            if self.application().spec().takes(session));
        ensure(is_fitting && self.normaliser.application() == self.application(), "a channel's feed")?;
        ensure(self.normaliser.is_sound(symbols), "a channel's instruments")
    }

    /// Returns the channel's identity.
    pub const fn identity(&self) -> &ChannelIdentity {
        self.sequenced.identity()
    }

    /// Returns the channel's feed.
    pub const fn application(&self) -> Application {
        self.sequenced.application()
    }

    /// Returns the publisher that the channel was opened for. If the feed's channels are shared, it is one of several.
    pub const fn publisher(&self) -> Publisher {
        self.publisher
    }

    /// Returns the channel's counters.
    pub const fn counters(&self) -> &ChannelCounters {
        &self.counters
    }

    /// Returns the counts of duplicate, late and missing messages.
    pub const fn sequence(&self) -> &SequenceCounters {
        self.sequenced.tracker.counters()
    }

    /// Returns the channel's destinations: line A first.
    pub fn lines(&self) -> &[SocketAddr] {
        &self.lines
    }

    /// Inherits the lines of the channel that this one replaces.
    pub(crate) fn takes_lines_of(&mut self, before: &Self) {
        self.lines.clone_from(&before.lines);
    }

    /// Returns the instruments that the channel has carried in a capture.
    pub(crate) fn instruments(&self) -> Vec<InstrumentId> {
        let numbers = self.has.iter().flatten().enumerate().filter(|(_, has)| **has);
        numbers.map(|(number, _)| InstrumentId(number as u32)).collect()
    }
}

/// Reports a packet with an incomplete block.
#[cold]
#[inline(never)]
pub(crate) fn broken(error: FramingError, origin: &Origin, offset: u64, problems: &mut Problems) {
    // A truncated packet has already been reported.
    if !origin.is_cut {
        problems.note(Problem::at(Place { offset, ..origin.place }, ProblemKind::Framing(error)));
    }
}

impl Channel {
    /// Processes a packet that is not next in sequence, or has no messages. Returns how many of its messages to skip, or `None`
    /// to skip all.
    #[expect(clippy::too_many_arguments, reason = "one call")]
    #[cold]
    #[inline(never)]
    pub(crate) fn arrived<S: Sink<Event>>(
        &mut self,
        arrival: Arrival,
        count: u64,
        is_end: bool,
        context: &Context,
        origin: &Origin,
        problems: &mut Problems,
        sink: &mut S,
    ) -> Option<u64> {
        if let Some(gap) = arrival.gap {
            let kind = ProblemKind::Gap(gap);
            problems.note(Problem::at(origin.place, kind));
            self.put_gap(gap, context, Nanos(0), sink);
        }
        if let Some(refusal) = arrival.refusal {
            let kind = ProblemKind::Refused { first: context.sequence, refusal };
            problems.note(Problem::at(origin.place, kind));
            return None;
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

    /// Returns the publishers whose messages the channel carries.
    pub fn publishers(&self) -> impl Iterator<Item = Publisher> + 'static {
        self.application().spec().publishers_on(self.publisher)
    }

    /// Returns events about the whole channel, one for each of its publishers, that no message caused.
    pub(crate) fn events(&self, kind: EventKind, now: Nanos) -> impl Iterator<Item = Event> + '_ {
        self.publishers().map(move |publisher| self.event(kind, (publisher, InstrumentId::ALL), now))
    }

    /// Returns an event about one instrument of a publisher that no message caused.
    pub(crate) fn event(
        &self,
        kind: EventKind,
        (publisher, instrument): (Publisher, InstrumentId),
        now: Nanos,
    ) -> Event {
        let mut event = Event::new(kind, publisher, instrument);
        (event.ts_event, event.ts_recv) = (now, now);
        event.channel = self.number;
        event.channel_sequence = self.sequenced.tracker.next().unwrap_or_default();
        event
    }

    /// Emits a gap for each publisher of the channel, at the receive time or, without one, at `otherwise`.
    #[cold]
    pub(crate) fn put_gap<S: Sink<Event>>(
        &self,
        gap: Gap,
        context: &Context,
        otherwise: Nanos,
        sink: &mut S,
    ) {
        for publisher in self.publishers() {
            let mut event = Event::new(EventKind::Gap, publisher, InstrumentId::ALL).with_gap(gap);
            event.ts_recv = context.received.unwrap_or(otherwise);
            event.ts_event = event.ts_recv;
            event.channel_sequence = context.sequence;
            event.channel = context.channel;
            event.set_line(context.line);
            sink.put(event);
        }
    }

    /// Translates the messages of one packet. Returns how many messages after `skip` could not be read; they are always the last
    /// ones.
    #[expect(clippy::too_many_arguments, reason = "one call; a struct would only rename them")]
    #[inline]
    pub(crate) fn messages<'b, S: Sink<Event>, Prefix: LengthPrefix>(
        &mut self,
        mut blocks: Blocks<'b, Prefix>,
        header: usize,
        count: u64,
        skip: u64,
        mut context: Context,
        origin: &Origin,
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) -> u64 {
        let first = context.sequence;
        let mut number = 0;
        loop {
            let offset = origin.place.offset + (header + blocks.offset()) as u64;
            // A broken block loses the rest of the packet. The numbers of the lost messages are known.
            let Some(block) = blocks.next() else { return 0 };
            match block {
                Ok(message) => {
                    if number >= skip {
                        context.sequence = first.saturating_add(number);
                        let prefix = if Prefix::IS_PART { 0 } else { Prefix::BYTES as u64 };
                        let place = Place { offset: offset + prefix, ..origin.place };
                        self.message(message, &context, place, problems, symbols, sink);
                    }
                    number += 1;
                }
                Err(error) => {
                    broken(error, origin, offset, problems);
                    // Messages before `skip` came in another packet.
                    return unread(count, skip, number);
                }
            }
        }
    }

    /// Translates a message that carries no number, giving it the channel's next one.
    #[inline(always)]
    pub(crate) fn numbered_message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        place: Place,
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        let sequence = self.next_number;
        self.next_number = sequence.saturating_add(1);
        let context = Context { received: place.time, sequence, channel: self.number, line: Line::A };
        if !self.sequenced.tracker.advance(sequence, 1)
            && self.renumbered(message, context, place, problems, sink)
        {
            return;
        }
        self.message(message, &context, place, problems, symbols, sink);
    }

    /// Handles a message that does not follow the last one, because a login began elsewhere. Returns `true` if the message came
    /// before.
    #[cold]
    #[inline(never)]
    fn renumbered<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: Context,
        place: Place,
        problems: &mut Problems,
        sink: &mut S,
    ) -> bool {
        let arrival = self.sequenced.tracker.arrive_counted(context.sequence);
        if let Some(gap) = arrival.gap {
            problems.note(Problem::at(place, ProblemKind::Gap(gap)));
            self.put_gap(gap, &context, self.normaliser.time_of(message), sink);
        }
        arrival.skip > 0
    }

    /// Counts and translates one message.
    #[inline(always)]
    pub(crate) fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: &Context,
        place: Place,
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        self.counters.messages += 1;
        self.translate(message, context, place, problems, symbols, sink);
    }

    /// Translates one message without counting it.
    #[inline(always)]
    pub(crate) fn translate<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: &Context,
        place: Place,
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        let mut to = Target { context, symbols, sink };
        let is_done = if self.application().is_first() {
            self.normaliser.frequent::<_, true>(message, &mut to)
        } else {
            self.normaliser.frequent::<_, false>(message, &mut to)
        };
        if is_done {
            return;
        }
        self.other_message(message, *context, place, problems, symbols, sink);
    }

    /// Translates a message of a less frequent type.
    #[inline(never)]
    fn other_message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: Context,
        place: Place,
        problems: &mut Problems,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        match self.normaliser.message(message, &mut Target { context: &context, symbols, sink }) {
            Ok(None) => {}
            Ok(Some(contradiction)) => {
                problems.note(Problem::at(place, ProblemKind::Contradiction(contradiction)));
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
        place: Place,
        problems: &mut Problems,
        sink: &mut S,
    ) {
        problems.note(Problem::at(place, ProblemKind::Message(error)));
        // A message of an unknown type does not change the books. An unreadable message of a known type may have changed one.
        if !matches!(error, DecodeError::UnknownMessage { .. }) {
            let gap = Gap { first: context.sequence, count: 1 };
            self.sequenced.tracker.lose(gap);
            self.put_gap(gap, &context, self.normaliser.time_of(message), sink);
        }
    }
}
