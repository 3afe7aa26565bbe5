//! The live feed: lines, retransmissions and snapshots of any number of channels in, events out.
//!
//! Each channel has an [`Arbiter`], which makes one sequence of its lines, and its place in a [`Feed`], which translates that
//! sequence. [`LiveFeed`] joins them and decides what a hole means for the books:
//!
//! - While the lines or a retransmission can still fill it, the channel's messages wait; other channels go on.
//! - When it is given up, a [`EventKind::Gap`] makes the channel's books stale (DBN's `MAYBE_BAD_BOOK`) and what waited goes on.
//! - If the missing messages come after that, only the instruments that they name stay stale.
//! - A snapshot, where the channel can have one, makes the books anew: [`EventKind::Clear`], what the snapshot holds, and the
//!   messages that came since, all with [`Flags::SNAPSHOT`]. Trades in them are not told twice.
//! - Whoever keeps the books says when the venue's messages contradict them ([`Input::Contradicted`]): a snapshot is asked for, at most
//!   once in a while.
//! - Silence makes the books stale until the channel is heard again and nothing was missed. When nothing is heard at all, an
//!   event of the kind [`EventKind::Other`] tells once a second that time goes on.
//!
//! Everything that enters is an [`Input`], the passing of time too. Whoever keeps the inputs can have the same events again.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use tapeworks_market::event::{Gap, Session};
use tapeworks_market::orders::MAX_INSTRUMENTS;
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Instruments, Line, Nanos, Publisher};
use tapeworks_packet::net::{Datagram, Transport};
use tapeworks_session::{Header, Request, SessionId};
use tapeworks_stage::{Sink, Stage};
use tapeworks_wire::framing::{BigEndian, Blocks};

use crate::arbitration::{Arbiter, ArbiterOptions, Delivery, Join};
use crate::channel::{ChannelIdentity, Packet};
use crate::feed::{Feed, FeedOptions};
use crate::state::{Reader, StateError, Writer, ensure};
use crate::table::Application;

/// How snapshots are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotOptions {
    /// Snapshots asked for in vain, before the channel goes on without.
    pub attempts: u32,
    /// How long one is waited for, in ns.
    pub timeout_ns: u64,
    /// The least time from one request to the next that is made because the venue's messages contradict the books, in ns.
    pub contradicted_every_ns: u64,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self { attempts: 3, timeout_ns: 10_000_000_000, contradicted_every_ns: 30_000_000_000 }
    }
}

/// A channel of a venue.
#[derive(Clone, Debug)]
pub struct LiveChannelOptions {
    /// What people call it.
    pub name: String,
    /// What is spoken on it.
    pub application: Application,
    /// The feed.
    pub publisher: Publisher,
    /// How it is followed.
    pub arbiter: ArbiterOptions,
    /// Snapshots; `None` where there is no server for them.
    pub snapshot: Option<SnapshotOptions>,
}

/// What enters the live feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// A datagram of a line; [`Line::Recovery`]: the answer to a request.
    Packet {
        /// The channel, by its place in the options.
        channel: u16,
        /// The line.
        line: Line,
        /// When it was received.
        received: Nanos,
        /// The UDP payload.
        payload: &'a [u8],
    },
    /// Messages of a snapshot.
    Snapshot {
        /// The channel.
        channel: u16,
        /// The attempt that they answer.
        attempt: u32,
        /// When they were received.
        received: Nanos,
        /// The messages, each behind its length (two bytes, big-endian).
        messages: &'a [u8],
    },
    /// A snapshot is whole.
    SnapshotEnd {
        /// The channel.
        channel: u16,
        /// The attempt.
        attempt: u32,
        /// When.
        received: Nanos,
        /// The number of the first message that it does not hold.
        next: u64,
    },
    /// A snapshot will not come.
    SnapshotFailed {
        /// The channel.
        channel: u16,
        /// The attempt.
        attempt: u32,
        /// When.
        received: Nanos,
    },
    /// Events of the channel contradict its books, as whoever keeps the books says: a snapshot is wanted.
    Contradicted {
        /// The channel.
        channel: u16,
        /// When.
        received: Nanos,
    },
    /// Time goes on: what the clock says. Requests time out by it alone, since packets may have waited.
    Tick {
        /// To here.
        now: Nanos,
    },
}

impl Input<'_> {
    /// Its time.
    pub const fn time(&self) -> Nanos {
        match self {
            Self::Packet { received, .. }
            | Self::Snapshot { received, .. }
            | Self::SnapshotEnd { received, .. }
            | Self::SnapshotFailed { received, .. }
            | Self::Contradicted { received, .. } => *received,
            Self::Tick { now } => *now,
        }
    }
}

/// What the live feed wants of a venue's servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Messages again: [`Request::encode`] to the channel's retransmission server.
    Retransmission {
        /// The channel.
        channel: u16,
        /// Which.
        request: Request,
    },
    /// A snapshot, from the channel's snapshot server.
    Snapshot {
        /// The channel.
        channel: u16,
        /// The session that it must be of.
        session: SessionId,
        /// To be told with what comes.
        attempt: u32,
    },
}

/// What a channel's snapshots went through.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SnapshotCounters {
    /// Asked for.
    pub requests: u64,
    /// Applied.
    pub applied: u64,
    /// Failed, late, of another session, or too long to wait for.
    pub failed: u64,
    /// Messages in those that were applied.
    pub messages: u64,
    /// Times that a channel went on without, though it wanted one.
    pub given_up: u64,
    /// Of those asked for: because the venue's messages contradicted the books.
    pub contradicted: u64,
}

/// A snapshot on its way.
#[derive(Debug, Serialize, Deserialize)]
struct Awaited {
    attempt: u32,
    tries: u32,
    due: Nanos,
    messages: Vec<u8>,
    /// It is whole, and holds what comes before this number.
    next: Option<u64>,
    /// What came since it was asked for.
    since: VecDeque<(Header, Nanos, Vec<u8>)>,
    since_bytes: usize,
}

/// A channel and what it went through.
#[derive(Debug)]
pub struct LiveChannel {
    options: LiveChannelOptions,
    arbiter: Arbiter,
    /// Its place in the feed, of the session that is followed.
    place: Option<usize>,
    attempts: u32,
    awaited: Option<Awaited>,
    snapshots: SnapshotCounters,
    /// When the books' contradictions may ask for a snapshot again.
    contradicted_again: Nanos,
    /// The instruments that the messages named which came too late; what is in doubt besides them is not known while
    /// messages are missing.
    affected: BTreeSet<InstrumentId>,
    is_stale: bool,
    /// Gaps that the feed counts for the session and that are known here: others are of messages that could not be read.
    known_gaps: u64,
    /// Its part of the feed, where other channels carry the rest.
    part: Option<Part>,
}

/// The instruments of a channel that is one of several of a feed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Part {
    /// Whether an instrument is one of them, by its number.
    has: Vec<bool>,
    /// What is heard of for the first time may have been in a gap.
    is_in_doubt: bool,
}

/// Whoever keeps books knows feeds, not their channels: what concerns all instruments of a channel that is one of several is told of
/// each. Of a channel that is all of its feed everything goes on as it is.
struct OfPart<'s, S> {
    part: &'s mut Option<Part>,
    sink: &'s mut S,
}

impl Part {
    /// Tells `event` of each instrument of the channel.
    fn each<S: Sink<Event>>(&self, event: &Event, sink: &mut S) {
        let last = self.has.iter().rposition(|has| *has);
        for (index, _) in self.has.iter().enumerate().filter(|(_, has)| **has) {
            let mut event = Event { instrument: InstrumentId(index as u32), ..*event };
            if event.kind == EventKind::Clear && Some(index) != last {
                event = event.with_more_clears();
            }
            sink.put(event);
        }
    }

    /// In doubt, without messages that are missing: those were told.
    fn doubt(event: &Event) -> Event {
        event.with_gap(Gap { first: event.channel_sequence, count: 0 })
    }

    #[cold]
    #[inline(never)]
    fn of_all<S: Sink<Event>>(&mut self, event: Event, sink: &mut S) {
        let of_nobody = Event { instrument: InstrumentId::UNKNOWN, ..event };
        match event.kind {
            EventKind::Gap => {
                self.is_in_doubt = true;
                sink.put(of_nobody);
                self.each(&Self::doubt(&event), sink);
            }
            EventKind::Recovered | EventKind::Clear => {
                self.is_in_doubt = false;
                self.each(&event, sink);
            }
            EventKind::Session if event.session() == Some(Session::StartOfMessages) => {
                self.is_in_doubt = false;
                let mut clear = Event::new(EventKind::Clear, event.publisher, InstrumentId::ALL);
                (clear.ts_event, clear.ts_recv) = (event.ts_event, event.ts_recv);
                (clear.channel, clear.channel_sequence) = (event.channel, event.channel_sequence);
                (clear.line, clear.flags) = (event.line, event.flags);
                self.each(&clear, sink);
                sink.put(of_nobody);
            }
            _ => sink.put(event),
        }
    }

    /// Whether an instrument is heard of for the first time; then it is one of the channel's.
    #[inline]
    fn is_new(&mut self, instrument: InstrumentId) -> bool {
        let index = instrument.index();
        if instrument.0 >= MAX_INSTRUMENTS || self.has.get(index).copied().unwrap_or_default() {
            return false;
        }
        if index >= self.has.len() {
            self.has.resize(index + 1, false);
        }
        self.has[index] = true;
        true
    }

    fn put<S: Sink<Event>>(&mut self, event: Event, sink: &mut S) {
        if event.instrument == InstrumentId::ALL {
            return self.of_all(event, sink);
        }
        let is_new = self.is_new(event.instrument);
        sink.put(event);
        if is_new && self.is_in_doubt {
            sink.put(Self::doubt(&event));
        }
    }
}

impl<S: Sink<Event>> Sink<Event> for OfPart<'_, S> {
    #[inline]
    fn put(&mut self, event: Event) {
        match self.part {
            None => self.sink.put(event),
            Some(part) => part.put(event, self.sink),
        }
    }
}

/// What is kept of a channel beside its sequence.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    place: Option<usize>,
    attempts: u32,
    awaited: Option<Awaited>,
    snapshots: SnapshotCounters,
    contradicted_again: Nanos,
    affected: BTreeSet<InstrumentId>,
    is_stale: bool,
    known_gaps: u64,
    part: Option<Part>,
}

impl LiveChannel {
    /// Whether a state that was kept is one that this can go on from, when the feed has so many channels.
    pub(crate) fn check(&self, channels: usize) -> Result<(), StateError> {
        ensure(self.arbiter.is_sound(), "what waits in a sequence")?;
        ensure(self.place.is_none_or(|place| place < channels), "a channel's place")?;
        let places = self.part.as_ref().map_or(0, |part| part.has.len());
        ensure(places <= MAX_INSTRUMENTS as usize, "a channel's instruments")
    }

    /// Its name and how it is followed.
    pub const fn options(&self) -> &LiveChannelOptions {
        &self.options
    }

    /// Its sequence and lines.
    pub const fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// Its snapshots.
    pub const fn snapshots(&self) -> &SnapshotCounters {
        &self.snapshots
    }

    /// Whether a snapshot is on its way.
    pub const fn is_awaiting_snapshot(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether contradictions of the books would ask for a snapshot now.
    pub fn takes_contradiction(&self, now: Nanos) -> bool {
        self.options.snapshot.is_some()
            && self.awaited.is_none()
            && !self.arbiter.is_joining()
            && self.place.is_some()
            && now >= self.contradicted_again
    }

    /// Whether books of the channel may be wrong.
    pub const fn is_stale(&self) -> bool {
        self.is_stale
    }
}

/// Translates the lines of any number of channels: see the [module](self).
#[derive(Debug)]
pub struct LiveFeed {
    feed: Feed,
    channels: Vec<LiveChannel>,
    asks: VecDeque<Ask>,
    /// The earliest time at which a channel has something to do.
    deadline: Option<Nanos>,
    /// When something was heard last, or time was told.
    last: Option<Nanos>,
    /// The receive time of the last event: none goes back, though packets that waited do.
    clock: Nanos,
}

/// In silence an event tells once in so long, in ns, that time goes on: who makes intervals of time ends them by it.
pub const TIME_TOLD_EVERY_NS: u64 = Nanos::SECOND;

/// Makes the events of a snapshot, and of what is applied once more, what they are: books change, nothing is told twice.
struct AsSnapshot<'s, S>(&'s mut S);

impl<S: Sink<Event>> Sink<Event> for AsSnapshot<'_, S> {
    fn put(&mut self, mut event: Event) {
        event.flags = event.flags.with(Flags::SNAPSHOT);
        event.line = Line::Snapshot;
        match event.kind {
            EventKind::Execute => {
                event.kind = EventKind::Cancel;
                event.price = None;
                event.aux = 0;
                event.detail = 0;
            }
            EventKind::Trade
            | EventKind::TradeBreak
            | EventKind::Imbalance
            | EventKind::ImbalancePrices
            | EventKind::Other => return,
            _ => {}
        }
        self.0.put(event);
    }
}

/// Receive times that never go back: a packet that waited behind a hole is received, for whoever is behind it, when it comes out.
struct Forward<'s, S> {
    clock: Nanos,
    sink: &'s mut S,
}

impl<S: Sink<Event>> Sink<Event> for Forward<'_, S> {
    #[inline]
    fn put(&mut self, mut event: Event) {
        self.clock = self.clock.max(event.ts_recv);
        event.ts_recv = self.clock;
        self.sink.put(event);
    }
}

/// Of a packet that is known to be of its channel, the addresses say nothing.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn packet_at(payload: &[u8], received: Nanos) -> Packet<'_> {
    Packet {
        file: 0,
        number: 0,
        offset: 0,
        received,
        datagram: Datagram {
            source: NOWHERE,
            destination: NOWHERE,
            vlan: None,
            transport: Transport::Udp,
            payload,
            payload_offset: 0,
            truncated: false,
        },
    }
}

impl LiveFeed {
    /// Channels of which nothing was heard. At most 256 are told apart in the events.
    pub fn new(options: FeedOptions, channels: Vec<LiveChannelOptions>) -> Self {
        let mut publishers: Vec<Publisher> = channels.iter().map(|options| options.publisher).collect();
        publishers.sort_unstable();
        let is_shared = |publisher| {
            publishers.partition_point(|one| *one <= publisher)
                - publishers.partition_point(|one| *one < publisher)
                > 1
        };
        let channels = channels
            .into_iter()
            .map(|mut options| {
                if options.snapshot.is_some() {
                    options.arbiter.join = Join::Snapshot;
                }
                LiveChannel {
                    arbiter: Arbiter::new(options.application.transport(), options.arbiter),
                    place: None,
                    attempts: 0,
                    awaited: None,
                    snapshots: SnapshotCounters::default(),
                    contradicted_again: Nanos(0),
                    affected: BTreeSet::new(),
                    is_stale: false,
                    known_gaps: 0,
                    part: is_shared(options.publisher).then(Part::default),
                    options,
                }
            })
            .collect();
        Self {
            feed: Feed::new(options),
            channels,
            asks: VecDeque::new(),
            deadline: None,
            last: None,
            clock: Nanos(0),
        }
    }

    /// Appends what the channels are at.
    pub(crate) fn save_channels(&self, writer: &mut Writer) -> Result<(), StateError> {
        for channel in &self.channels {
            writer.put(&channel.arbiter)?;
            let LiveChannel { place, attempts, awaited, snapshots, contradicted_again, .. } = channel;
            let LiveChannel { affected, is_stale, known_gaps, part, .. } = channel;
            // As [`Kept`], which owns what it has.
            writer.put(&(place, attempts, awaited, snapshots, contradicted_again))?;
            writer.put(&(affected, is_stale, known_gaps, part))?;
        }
        writer.put(&self.asks)?;
        writer.put(&(self.deadline, self.last, self.clock))
    }

    /// Takes the place of what was saved.
    pub(crate) fn restore_channels(&mut self, feed: Feed, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.feed = feed;
        for channel in &mut self.channels {
            let arbiter = reader.take::<Arbiter>()?.with_options_of(&channel.arbiter);
            channel.arbiter = arbiter.ok_or(StateError::Foreign)?;
            let kept: Kept = reader.take()?;
            channel.place = kept.place;
            channel.attempts = kept.attempts;
            channel.awaited = kept.awaited;
            channel.snapshots = kept.snapshots;
            channel.contradicted_again = kept.contradicted_again;
            channel.affected = kept.affected;
            channel.is_stale = kept.is_stale;
            channel.known_gaps = kept.known_gaps;
            if channel.part.is_some() != kept.part.is_some() {
                return Err(StateError::Foreign);
            }
            channel.part = kept.part;
        }
        self.asks = reader.take()?;
        (self.deadline, self.last, self.clock) = reader.take()?;
        Ok(())
    }

    /// The channels, in the order of the options.
    pub fn channels(&self) -> &[LiveChannel] {
        &self.channels
    }

    /// The translation: symbols, problems, counters of messages.
    pub const fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The symbols seen so far.
    pub const fn instruments(&self) -> &Instruments {
        self.feed.instruments()
    }

    /// The next thing to ask a server for, if there is one. Look after each batch.
    pub fn take_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// The earliest time at which an [`Input::Tick`] has something to do.
    pub const fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// One input.
    #[inline]
    pub fn input<S: Sink<Event>>(&mut self, input: &Input<'_>, sink: &mut S) {
        let mut forward = Forward { clock: self.clock, sink };
        self.dispatch(input, &mut forward);
        self.clock = forward.clock;
    }

    /// Something happens to a channel: what comes of it concerns the channel's part of its feed.
    #[inline]
    fn of_channel<S: Sink<Event>>(
        &mut self,
        index: usize,
        sink: &mut S,
        act: impl FnOnce(&mut Self, &mut OfPart<'_, S>),
    ) {
        let mut part = self.channels.get_mut(index).and_then(|channel| channel.part.take());
        act(self, &mut OfPart { part: &mut part, sink });
        if let Some(channel) = self.channels.get_mut(index) {
            channel.part = part;
        }
    }

    #[inline]
    fn dispatch<S: Sink<Event>>(&mut self, input: &Input<'_>, sink: &mut S) {
        match *input {
            Input::Packet { channel, line, received, payload } => {
                self.packet(channel, line, received, payload, sink);
            }
            Input::Tick { now } => self.tick(now, true, sink),
            Input::Snapshot { channel, attempt, messages, .. } => {
                if let Some(awaited) = self.awaited(channel, attempt) {
                    awaited.messages.extend_from_slice(messages);
                }
            }
            Input::SnapshotEnd { channel, attempt, received, next } => {
                if let Some(awaited) = self.awaited(channel, attempt) {
                    awaited.next = Some(next);
                    let index = usize::from(channel);
                    self.of_channel(index, sink, |feed, sink| feed.after(index, received, sink));
                }
            }
            Input::SnapshotFailed { channel, attempt, received } => {
                if self.awaited(channel, attempt).is_some() {
                    let index = usize::from(channel);
                    self.of_channel(index, sink, |feed, sink| feed.snapshot_failed(index, received, sink));
                }
            }
            Input::Contradicted { channel, received } => self.contradicted(usize::from(channel), received),
        }
    }

    /// The books contradict the venue: a snapshot makes them anew, if one may be asked for.
    #[cold]
    fn contradicted(&mut self, index: usize, now: Nanos) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let (Some(options), true) = (channel.options.snapshot, channel.takes_contradiction(now)) else {
            return;
        };
        channel.contradicted_again = Nanos(now.0.saturating_add(options.contradicted_every_ns));
        channel.snapshots.contradicted += 1;
        self.ask_for_snapshot(index, now, 1);
        self.set_deadline();
    }

    /// Inputs are missing here, nobody knows of which channels: each is in doubt until its sequence shows that nothing of it is
    /// missing, and a snapshot that was on its way is not believed.
    pub fn inputs_lost<S: Sink<Event>>(&mut self, now: Nanos, sink: &mut S) {
        let mut forward = Forward { clock: self.clock, sink };
        for index in 0..self.channels.len() {
            self.of_channel(index, &mut forward, |feed, sink| feed.inputs_lost_of(index, now, sink));
        }
        self.clock = forward.clock;
        self.set_deadline();
    }

    fn inputs_lost_of<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        if let Some(place) = channel.place {
            channel.is_stale = true;
            let event = self.feed.event_of(place, EventKind::Gap, InstrumentId::ALL, now);
            let gap = Gap { first: channel.arbiter.next().unwrap_or(event.channel_sequence), count: 0 };
            sink.put(event.with_gap(gap));
        }
        if channel.awaited.is_some() {
            self.snapshot_failed(index, now, sink);
        }
    }

    /// Tells of what is missing between this and `later`, the same channels after inputs that are not known: a gap for each channel
    /// whose sequence has gone on. Nothing changes here.
    pub fn tell_missed<S: Sink<Event>>(&self, later: &Self, now: Nanos, sink: &mut S) {
        for (one, other) in self.channels.iter().zip(&later.channels) {
            let (old, new) = (&one.arbiter, &other.arbiter);
            let Some(place) = one.place else { continue };
            if (old.session(), old.next()) == (new.session(), new.next()) {
                continue;
            }
            let first = old.next().unwrap_or_default();
            let is_same = old.session() == new.session();
            let count = if is_same { new.next().unwrap_or_default().saturating_sub(first) } else { 0 };
            let mut event = self.feed.event_of(place, EventKind::Gap, InstrumentId::ALL, now);
            event.ts_recv = event.ts_recv.max(self.clock);
            sink.put(event.with_gap(Gap { first, count }));
        }
    }

    /// The snapshot of `attempt`, if it is still waited for.
    fn awaited(&mut self, channel: u16, attempt: u32) -> Option<&mut Awaited> {
        let channel = self.channels.get_mut(usize::from(channel))?;
        channel.awaited.as_mut().filter(|awaited| awaited.attempt == attempt && awaited.next.is_none())
    }

    #[inline]
    fn packet<S: Sink<Event>>(
        &mut self,
        number: u16,
        line: Line,
        received: Nanos,
        payload: &[u8],
        sink: &mut S,
    ) {
        // What was due before this packet came comes before it.
        if self.deadline.is_some_and(|deadline| received > deadline) {
            self.tick(received, false, sink);
        }
        self.last = Some(received);
        self.of_channel(usize::from(number), sink, |feed, sink| {
            feed.packet_of(number, line, received, payload, sink);
        });
    }

    #[inline]
    fn packet_of<S: Sink<Event>>(
        &mut self,
        number: u16,
        line: Line,
        received: Nanos,
        payload: &[u8],
        sink: &mut S,
    ) {
        let index = usize::from(number);
        let Some(channel) = self.channels.get_mut(index) else { return };
        let feed = &mut self.feed;
        let LiveChannel { arbiter, options, place, awaited, affected, is_stale, known_gaps, .. } = channel;
        let mut target =
            Target { feed, number, options, place, awaited, affected, is_stale, known_gaps, sink };
        if let Err(error) = arbiter.packet(line, received, payload, &mut |delivery| target.deliver(delivery))
        {
            self.feed.bad_header(&packet_at(payload, received), error);
            return;
        }
        let is_quiet = !arbiter.is_recovering() && channel.awaited.is_none() && !channel.is_stale;
        if !is_quiet || arbiter.is_joining() || self.deadline.is_none() {
            self.after(index, received, sink);
        }
    }

    /// Time has gone on.
    #[cold]
    #[inline(never)]
    fn tick<S: Sink<Event>>(&mut self, now: Nanos, is_clock: bool, sink: &mut S) {
        for index in 0..self.channels.len() {
            self.of_channel(index, sink, |feed, sink| feed.tick_of(index, now, is_clock, sink));
        }
        if self.last.is_some_and(|last| now.since(last) >= TIME_TOLD_EVERY_NS) {
            self.last = Some(now);
            let first = self.channels.first().map(|channel| channel.options.publisher);
            let mut event = Event::new(EventKind::Other, first.unwrap_or_default(), InstrumentId::UNKNOWN);
            (event.ts_event, event.ts_recv) = (now, now);
            sink.put(event);
        }
        self.set_deadline();
    }

    fn tick_of<S: Sink<Event>>(&mut self, index: usize, now: Nanos, is_clock: bool, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        if channel.arbiter.deadline().is_some_and(|deadline| deadline <= now) {
            let feed = &mut self.feed;
            let LiveChannel { arbiter, options, place, awaited, affected, is_stale, known_gaps, .. } =
                channel;
            let number = index as u16;
            let mut target =
                Target { feed, number, options, place, awaited, affected, is_stale, known_gaps, sink };
            let mut deliver = |delivery: Delivery<'_>| target.deliver(delivery);
            if is_clock {
                arbiter.advance(now, &mut deliver);
            } else {
                arbiter.advance_to_packet(now, &mut deliver);
            }
        }
        if channel.awaited.as_ref().is_some_and(|awaited| awaited.due <= now) {
            self.snapshot_failed(index, now, sink);
        }
        self.after(index, now, sink);
    }

    fn set_deadline(&mut self) {
        let of = |channel: &LiveChannel| {
            let due = channel.awaited.as_ref().map(|awaited| awaited.due);
            [channel.arbiter.deadline(), due].into_iter().flatten().min()
        };
        let told = self.last.map(|last| Nanos(last.0.saturating_add(TIME_TOLD_EVERY_NS)));
        self.deadline = self.channels.iter().filter_map(of).chain(told).min();
    }

    /// Looks at what a channel wants after something happened to it.
    #[cold]
    #[inline(never)]
    fn after<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        while let Some(request) = channel.arbiter.take_request() {
            self.asks.push_back(Ask::Retransmission { channel: index as u16, request });
        }
        if channel.arbiter.take_snapshot_wish() && channel.options.snapshot.is_some() {
            self.ask_for_snapshot(index, now, 1);
        }
        self.apply_snapshot(index, now, sink);
        self.narrow(index, now, sink);
        self.set_deadline();
    }

    fn ask_for_snapshot(&mut self, index: usize, now: Nanos, tries: u32) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let (Some(options), Some(session)) = (channel.options.snapshot, channel.arbiter.session()) else {
            return;
        };
        channel.attempts = channel.attempts.wrapping_add(1);
        channel.snapshots.requests += 1;
        channel.awaited = Some(Awaited {
            attempt: channel.attempts,
            tries,
            due: Nanos(now.0.saturating_add(options.timeout_ns)),
            messages: Vec::new(),
            next: None,
            since: VecDeque::new(),
            since_bytes: 0,
        });
        self.asks.push_back(Ask::Snapshot { channel: index as u16, session, attempt: channel.attempts });
    }

    #[cold]
    fn snapshot_failed<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let Some(awaited) = channel.awaited.take() else { return };
        channel.snapshots.failed += 1;
        let attempts = channel.options.snapshot.map_or(0, |options| options.attempts);
        if awaited.tries < attempts {
            self.ask_for_snapshot(index, now, awaited.tries + 1);
            self.set_deadline();
            return;
        }
        channel.snapshots.given_up += 1;
        let feed = &mut self.feed;
        let LiveChannel { arbiter, options, place, awaited, affected, is_stale, known_gaps, .. } = channel;
        let mut target = Target {
            feed,
            number: index as u16,
            options,
            place,
            awaited,
            affected,
            is_stale,
            known_gaps,
            sink,
        };
        arbiter.join_without_snapshot(now, &mut |delivery| target.deliver(delivery));
        self.set_deadline();
    }

    /// Applies a snapshot that is whole, as soon as the channel is as far as it.
    fn apply_snapshot<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let Some(next) = channel.awaited.as_ref().and_then(|awaited| awaited.next) else { return };
        let is_joining = channel.arbiter.is_joining();
        if !is_joining && channel.arbiter.next().is_none_or(|reached| reached < next) {
            return;
        }
        let Some(awaited) = channel.awaited.take() else { return };
        // A snapshot from before what is remembered of the time since leaves a hole.
        let first_since = awaited.since.front().map(|(header, ..)| header.first);
        let has_hole = !is_joining
            && match (first_since, channel.arbiter.next()) {
                (Some(first), _) => first > next,
                (None, reached) => reached != Some(next),
            };
        if has_hole || channel.arbiter.is_recovering() && is_joining {
            channel.awaited = Some(awaited);
            self.snapshot_failed(index, now, sink);
            return;
        }
        let Some(session) = channel.arbiter.session() else { return };
        let number = index as u16;
        let place = place_of(&mut self.feed, number, &channel.options, session, now);
        channel.place = Some(place);
        channel.known_gaps = self.feed.channels().get(place).map_or(0, |channel| channel.sequence().gaps);
        channel.snapshots.applied += 1;
        let mut clear = self.feed.event_of(place, EventKind::Clear, InstrumentId::ALL, now);
        clear.flags = Flags::SNAPSHOT;
        clear.line = Line::Snapshot;
        sink.put(clear);
        self.feed.forget_unnamed(place);
        let mut as_snapshot = AsSnapshot(sink);
        for message in Blocks::new(&awaited.messages, BigEndian).filter_map(Result::ok) {
            channel.snapshots.messages += 1;
            self.feed.aside(place, message, now, next.saturating_sub(1), &mut as_snapshot);
        }
        if !is_joining {
            let transport = channel.options.application.transport();
            for (_, received, payload) in &awaited.since {
                transport.each_message(payload, |sequence, message| {
                    if sequence >= next {
                        self.feed.aside(place, message, *received, sequence, &mut as_snapshot);
                    }
                });
            }
        }
        // The books are right, whatever was in doubt.
        sink.put(self.feed.event_of(place, EventKind::Recovered, InstrumentId::ALL, now));
        channel.is_stale = false;
        channel.affected.clear();
        channel.arbiter.forget_missing();
        if is_joining {
            self.feed.restart(place, next);
            let feed = &mut self.feed;
            let LiveChannel { arbiter, options, place, awaited, affected, is_stale, known_gaps, .. } =
                channel;
            let mut target =
                Target { feed, number, options, place, awaited, affected, is_stale, known_gaps, sink };
            arbiter.joined_by_snapshot(next, now, &mut |delivery| target.deliver(delivery));
        }
    }

    /// When all that was given up has come after all, only the instruments that it named stay in doubt.
    fn narrow<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let Some(place) = channel.place else { return };
        if !channel.is_stale || !channel.arbiter.is_complete() || channel.arbiter.is_silent() {
            return;
        }
        let gaps = self.feed.channels().get(place).map(|channel| channel.sequence().gaps);
        if gaps != Some(channel.known_gaps) {
            return;
        }
        channel.is_stale = false;
        sink.put(self.feed.event_of(place, EventKind::Recovered, InstrumentId::ALL, now));
        let affected = std::mem::take(&mut channel.affected);
        for instrument in affected {
            let gap = Gap { first: channel.arbiter.next().unwrap_or_default(), count: 0 };
            sink.put(self.feed.event_of(place, EventKind::Gap, instrument, now).with_gap(gap));
        }
    }
}

/// The place in the feed of a session of a channel.
fn place_of(
    feed: &mut Feed,
    number: u16,
    options: &LiveChannelOptions,
    session: SessionId,
    now: Nanos,
) -> usize {
    // Channels are told apart by their numbers, which stand in for ports.
    let identity = ChannelIdentity::Datagrams { session, port: number };
    let midnight = feed.midnight(Some(now));
    let place = feed.admit(identity, options.application, options.publisher, midnight);
    feed.set_number(place, number as u8);
    place
}

/// Where an arbiter's deliveries go.
struct Target<'t, S> {
    feed: &'t mut Feed,
    number: u16,
    options: &'t LiveChannelOptions,
    place: &'t mut Option<usize>,
    awaited: &'t mut Option<Awaited>,
    affected: &'t mut BTreeSet<InstrumentId>,
    is_stale: &'t mut bool,
    known_gaps: &'t mut u64,
    sink: &'t mut S,
}

impl<S: Sink<Event>> Target<'_, S> {
    #[inline]
    fn deliver(&mut self, delivery: Delivery<'_>) {
        match (delivery, *self.place) {
            (Delivery::Packet { line, received, payload, header }, Some(place)) => {
                if self.awaited.is_some() {
                    self.remember(&header, received, payload);
                }
                self.feed.packet_of(place, line, &packet_at(payload, received), self.sink);
            }
            (other, place) => self.other(other, place),
        }
    }

    /// Keeps a copy for the snapshot that is on its way.
    #[cold]
    fn remember(&mut self, header: &Header, received: Nanos, payload: &[u8]) {
        let Some(awaited) = self.awaited else { return };
        awaited.since_bytes += payload.len();
        if awaited.since_bytes > self.options.arbiter.held_bytes {
            // Its time is over at once: the next tick gives it up.
            awaited.due = Nanos(0);
            awaited.since.clear();
            return;
        }
        awaited.since.push_back((*header, received, payload.to_vec()));
    }

    #[cold]
    #[inline(never)]
    fn other(&mut self, delivery: Delivery<'_>, place: Option<usize>) {
        match (delivery, place) {
            (Delivery::Session { session, first, now }, old) => {
                let place = place_of(self.feed, self.number, self.options, session, now);
                *self.place = Some(place);
                *self.known_gaps =
                    self.feed.channels().get(place).map_or(0, |channel| channel.sequence().gaps);
                self.affected.clear();
                *self.awaited = None;
                if *self.is_stale {
                    *self.is_stale = false;
                    self.sink.put(self.feed.event_of(place, EventKind::Recovered, InstrumentId::ALL, now));
                }
                if old.is_some() {
                    // What was there before is of another session.
                    self.sink.put(self.feed.event_of(place, EventKind::Clear, InstrumentId::ALL, now));
                }
                // A session that begins anew under its old name.
                self.feed.restart(place, first);
            }
            (Delivery::Joining { now }, Some(old)) => {
                // What was there before is of another session, and nothing is known of this one yet.
                self.sink.put(self.feed.event_of(old, EventKind::Clear, InstrumentId::ALL, now));
                self.affected.clear();
                *self.is_stale = false;
                *self.awaited = None;
                *self.place = None;
            }
            (Delivery::Gap { missing: (first, count), now }, Some(place)) => {
                *self.is_stale = true;
                *self.known_gaps += 1;
                self.feed.pass_over(place, Gap { first, count }, now, self.sink);
            }
            (Delivery::Late { payload, .. }, Some(place)) => {
                let affected = &mut *self.affected;
                let feed = &mut *self.feed;
                let sink = &mut *self.sink;
                let mut collect = |event: Event| {
                    if event.kind == EventKind::SymbolMapping {
                        sink.put(event);
                    }
                    if event.instrument < InstrumentId::UNKNOWN {
                        affected.insert(event.instrument);
                    }
                };
                self.options.application.transport().each_message(payload, |sequence, message| {
                    feed.aside(place, message, Nanos(0), sequence, &mut collect);
                });
            }
            (Delivery::Silent { now }, Some(place)) => {
                *self.is_stale = true;
                let next = self.feed.event_of(place, EventKind::Gap, InstrumentId::ALL, now);
                let gap = Gap { first: next.channel_sequence, count: 0 };
                self.sink.put(next.with_gap(gap));
            }
            // Whether all is right again is seen when nothing is missing: `narrow`.
            (Delivery::Heard { .. }, _) => {}
            // Nothing comes before its session; of the first one there is nothing to clear.
            (_, None) | (Delivery::Packet { .. }, _) => {}
        }
    }
}

impl<'i, S: Sink<Event>> Stage<Input<'i>, S> for LiveFeed {
    #[inline]
    fn process(&mut self, batch: &[Input<'i>], sink: &mut S) {
        for input in batch {
            self.input(input, sink);
        }
    }
}
