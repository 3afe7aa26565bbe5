//! The live feed: turns the lines, retransmissions and snapshots of any number of channels into events.
//!
//! Each channel has an [`Arbiter`], which merges its lines into one sequence, and a place in a [`Feed`], which translates that
//! sequence. [`LiveFeed`] combines them and decides how a sequence gap affects the books:
//!
//! - Messages of a packet that cannot be read are missing: another copy brings them, or the next packet shows the gap.
//! - While the lines or a retransmission can still fill the gap, the channel's messages wait; other channels continue.
//! - When the gap is given up, a [`EventKind::Gap`] makes the channel's books stale (DBN's `MAYBE_BAD_BOOK`) and the waiting
//!   messages continue.
//! - If the missing messages arrive later, only the instruments that they name stay stale.
//! - A snapshot, if the channel can get one, rebuilds the books: [`EventKind::Clear`], the snapshot's messages, and the messages
//!   that have arrived since, all with [`Flags::SNAPSHOT`](tapeworks_market::Flags::SNAPSHOT). No trade is emitted twice.
//! - The books' stage reports when the venue's messages contradict a book ([`Input::Contradicted`]): the channel requests a
//!   snapshot, at most once per interval.
//! - Silence makes the books stale until packets arrive again and no message is missing. When no packet arrives at all, an event
//!   of the kind [`EventKind::Other`] marks each second.
//!
//! Every input is an [`Input`], including the passing of time. The same inputs produce the same events.

mod catch_up;
mod check;
mod delivery;
mod fault;
mod part;
pub mod relayed;
mod snapshot;

use std::collections::VecDeque;

use tapeworks_market::event::Gap;
use tapeworks_market::nbbo::SelfHelpSchedule;
use tapeworks_market::{Event, EventKind, InstrumentId, Instruments, Line, Publisher};
use tapeworks_planted::planted;
use tapeworks_session::{SessionId, Transport as _, for_transport};
use tapeworks_stage::Sink;
use tapeworks_time::{ClockChange, Nanos};

use crate::feed::{Feed, FeedOptions};
#[cfg(feature = "serde")]
use crate::state::{Reader, StateError, Writer, ensure};
use crate::table::Application;
use delivery::{Followed, Target};
use part::{OfPart, Part};
use relayed::Relayed;
use snapshot::Pace;
use tapeworks_follow::arbitration::{Arbiter, ArbiterOptions, Delivery, Join, Usefulness};

pub use fault::SnapshotFault;
pub use snapshot::{MOST_SNAPSHOT_BYTES, MOST_SNAPSHOT_MESSAGES, SnapshotCounters, SnapshotOptions};

/// The options of one channel of a venue.
#[derive(Clone, Debug)]
pub struct LiveChannelOptions {
    /// A name for display.
    pub name: String,
    /// The channel's feed.
    pub application: Application,
    /// The publisher of its events.
    pub publisher: Publisher,
    /// How the arbiter follows it.
    pub arbiter: ArbiterOptions,
    /// Snapshot requests; `None` if there is no snapshot server.
    pub snapshot: Option<SnapshotOptions>,
}

impl LiveChannelOptions {
    /// Returns the publishers whose messages the channel carries.
    pub fn publishers(&self) -> impl Iterator<Item = Publisher> + 'static {
        self.application.spec().publishers_on(self.publisher)
    }
}

/// An input of the live feed. Its bytes are a `B`: `&[u8]` for the feed, an owned buffer for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<B> {
    /// A datagram of a line, or, with [`Line::Recovery`], the answer to a request.
    Packet {
        /// Index of the channel in the options.
        channel: u16,
        /// The line.
        line: Line,
        /// When it was received.
        received: Nanos,
        /// The UDP payload.
        payload: B,
    },
    /// Messages of a snapshot.
    Snapshot {
        /// The channel.
        channel: u16,
        /// The attempt that they answer.
        attempt: u32,
        /// When they were received.
        received: Nanos,
        /// The messages, each preceded by its length (two bytes, big-endian).
        messages: B,
    },
    /// A snapshot is complete.
    SnapshotEnd {
        /// The channel.
        channel: u16,
        /// The attempt.
        attempt: u32,
        /// When it became complete.
        received: Nanos,
        /// The number of the first message that the snapshot does not include.
        next: u64,
        /// Bytes of all its messages and their lengths: the sum over every [`Input::Snapshot`] of this attempt.
        bytes: u64,
    },
    /// A requested snapshot failed.
    SnapshotFailed {
        /// The channel.
        channel: u16,
        /// The attempt.
        attempt: u32,
        /// Why it failed.
        fault: SnapshotFault,
        /// When it failed.
        received: Nanos,
    },
    /// The books' stage reports that events of the channel contradict its books: the channel needs a snapshot.
    Contradicted {
        /// The channel.
        channel: u16,
        /// When it was reported.
        received: Nanos,
    },
    /// Events that another plant produced from its lines: see [`relayed`].
    Relayed {
        /// When the other plant received the last of them.
        received: Nanos,
        /// The piece.
        payload: B,
    },
    /// The clock ticks. Only ticks time out requests, because packets may have been queued.
    Tick {
        /// The time of the clock.
        now: Nanos,
    },
    /// The clock was set. Whatever was due after some time is due after the same time by the new clock.
    ClockSet {
        /// The new time of the clock.
        now: Nanos,
        /// How far the clock was set forward, in ns; negative if it was set back.
        ahead_ns: i64,
    },
}

impl<B> Input<B> {
    /// Returns the time of the input.
    pub const fn time(&self) -> Nanos {
        match self {
            Self::Packet { received, .. }
            | Self::Snapshot { received, .. }
            | Self::SnapshotEnd { received, .. }
            | Self::SnapshotFailed { received, .. }
            | Self::Contradicted { received, .. }
            | Self::Relayed { received, .. } => *received,
            Self::Tick { now } | Self::ClockSet { now, .. } => *now,
        }
    }
}

impl<B: AsRef<[u8]>> Input<B> {
    /// Returns the same input with its bytes borrowed.
    #[inline]
    pub fn borrowed(&self) -> Input<&[u8]> {
        match *self {
            Self::Packet { channel, line, received, ref payload } => {
                Input::Packet { channel, line, received, payload: payload.as_ref() }
            }
            Self::Snapshot { channel, attempt, received, ref messages } => {
                Input::Snapshot { channel, attempt, received, messages: messages.as_ref() }
            }
            Self::SnapshotEnd { channel, attempt, received, next, bytes } => {
                Input::SnapshotEnd { channel, attempt, received, next, bytes }
            }
            Self::SnapshotFailed { channel, attempt, fault, received } => {
                Input::SnapshotFailed { channel, attempt, fault, received }
            }
            Self::Contradicted { channel, received } => Input::Contradicted { channel, received },
            Self::Relayed { received, ref payload } => Input::Relayed { received, payload: payload.as_ref() },
            Self::Tick { now } => Input::Tick { now },
            Self::ClockSet { now, ahead_ns } => Input::ClockSet { now, ahead_ns },
        }
    }
}

/// A request to one of a venue's servers.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Messages to retransmit: the bytes of [`tapeworks_session::Request::encode`] go to the channel's retransmission server.
    Retransmission {
        /// The channel.
        channel: u16,
        /// The messages to send.
        request: tapeworks_session::Request,
    },
    /// A snapshot, from the channel's snapshot server.
    Snapshot {
        /// The channel.
        channel: u16,
        /// The session that the snapshot must belong to.
        session: SessionId,
        /// The number of the attempt, repeated by the inputs that answer it.
        attempt: u32,
    },
}

/// A channel and its counters.
#[derive(Debug)]
pub struct LiveChannel {
    options: LiveChannelOptions,
    arbiter: Arbiter,
    followed: Followed,
    /// Number of snapshots requested. It distinguishes each request from the next.
    attempts: u32,
    snapshots: SnapshotCounters,
    /// When to request the next snapshot.
    pace: Pace,
    /// Earliest time at which contradictions of the books may request another snapshot.
    contradicted_again: Nanos,
    /// The channel's instruments, if other channels of the feed carry other instruments.
    part: Option<Part>,
}

impl LiveChannel {
    /// Checks that a restored state is valid for a feed of `channels` channels.
    #[cfg(feature = "serde")]
    pub(crate) fn check(&self, channels: usize) -> Result<(), StateError> {
        ensure(self.arbiter.is_sound(), "the waiting packets of a sequence")?;
        ensure(self.followed.place.is_none_or(|place| place < channels), "a channel's place")?;
        let places = self.part.as_ref().map_or(0, |part| part.has.len());
        ensure(places <= tapeworks_market::orders::MAX_INSTRUMENTS as usize, "a channel's instruments")
    }

    /// Returns the channel's options.
    pub const fn options(&self) -> &LiveChannelOptions {
        &self.options
    }

    /// Returns the arbiter of the channel's sequence and lines.
    pub const fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// Returns the counters of the channel's snapshots.
    pub const fn snapshots(&self) -> &SnapshotCounters {
        &self.snapshots
    }

    /// Returns whether a requested snapshot is outstanding.
    pub const fn is_awaiting_snapshot(&self) -> bool {
        self.followed.awaited.is_some()
    }

    /// Returns the number of the outstanding attempt.
    pub fn awaited_attempt(&self) -> Option<u32> {
        self.followed.awaited.as_ref().map(|awaited| awaited.attempt)
    }

    /// Returns whether a contradiction of the books would request a snapshot now.
    pub fn takes_contradiction(&self, now: Nanos) -> bool {
        self.options.snapshot.is_some()
            && self.followed.awaited.is_none()
            && self.pace.retry_at.is_none()
            && !self.arbiter.is_joining()
            && self.followed.place.is_some()
            && now >= self.contradicted_again
    }

    /// Returns whether books of the channel may be wrong.
    pub const fn is_stale(&self) -> bool {
        self.followed.is_stale
    }

    /// Returns whether the channel has nothing to do except at its deadline or on a packet.
    #[inline]
    fn is_quiet(&self) -> bool {
        !self.arbiter.is_recovering()
            && !self.arbiter.has_successor()
            && !self.arbiter.is_joining()
            && self.followed.awaited.is_none()
            && self.pace.retry_at.is_none()
            && !self.followed.is_stale
    }

    /// Returns whether only a snapshot can repair the channel's books.
    fn needs_snapshot(&self) -> bool {
        let is_missing_messages = !self.arbiter.is_complete() || !self.followed.affected.is_empty();
        self.arbiter.is_joining() || is_missing_messages && self.followed.place.is_some()
    }

    /// Returns when the channel next has something to do.
    fn due(&self) -> Nanos {
        let snapshot = self.followed.awaited.as_ref().map(|awaited| awaited.due);
        [self.arbiter.deadline(), snapshot, self.pace.retry_at].into_iter().flatten().min().unwrap_or(NEVER)
    }
}

/// The deadline of something that never happens.
const NEVER: Nanos = Nanos(u64::MAX);

/// Translates the lines of any number of channels: see the [module](self).
#[derive(Debug)]
pub struct LiveFeed {
    feed: Feed,
    channels: Vec<LiveChannel>,
    requests: VecDeque<Request>,
    /// Lower bound of each channel's next deadline. In-order packets can only postpone the deadline, so they do not update it.
    due: Vec<Nanos>,
    /// The earliest time at which any channel has something to do.
    deadline: Option<Nanos>,
    /// The time of the last packet, or of the last event that marks a second.
    last: Option<Nanos>,
    /// The receive time of the last event. Event times never go back, although those of held packets do.
    clock: Nanos,
    /// The self-help changes; those up to `clock` have been emitted.
    self_help: SelfHelpSchedule,
    /// The state of another plant's events, if they replace the lines.
    relayed: Option<Relayed>,
}

/// Interval, in ns, at which an event marks the time during silence. Interval records end with such an event.
pub const TIME_EVENT_EVERY_NS: u64 = Nanos::SECOND;

/// Keeps receive times from going back. A packet held after a sequence gap gets the time at which it was released.
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

impl LiveFeed {
    /// Creates the channels before their first packet. Inputs and events number them with 16 bits.
    pub fn new(options: FeedOptions, channels: Vec<LiveChannelOptions>) -> Self {
        let mut publishers: Vec<Publisher> =
            channels.iter().flat_map(LiveChannelOptions::publishers).collect();
        publishers.sort_unstable();
        let is_shared = |publisher| {
            publishers.partition_point(|one| *one <= publisher)
                - publishers.partition_point(|one| *one < publisher)
                > 1
        };
        let channels: Vec<LiveChannel> = channels
            .into_iter()
            .map(|mut options| {
                if options.snapshot.is_some() {
                    options.arbiter.join = Join::Snapshot;
                }
                LiveChannel {
                    arbiter: Arbiter::new(options.application.dialect(), options.arbiter),
                    followed: Followed::default(),
                    attempts: 0,
                    snapshots: SnapshotCounters::default(),
                    pace: Pace::default(),
                    contradicted_again: Nanos(0),
                    part: options.publishers().any(is_shared).then(|| Part::of(options.publishers())),
                    options,
                }
            })
            .collect();
        let due = vec![NEVER; channels.len()];
        Self {
            self_help: SelfHelpSchedule::new(&options.self_help),
            feed: Feed::new(options),
            channels,
            requests: VecDeque::new(),
            due,
            deadline: None,
            last: None,
            clock: Nanos(0),
            relayed: None,
        }
    }

    /// Appends the state of the channels.
    #[cfg(feature = "serde")]
    pub(crate) fn save_channels(&self, writer: &mut Writer) -> Result<(), StateError> {
        for channel in &self.channels {
            writer.put(&channel.arbiter)?;
            let LiveChannel { followed, attempts, snapshots, pace, contradicted_again, part, .. } = channel;
            writer.put(&(followed, attempts, (snapshots, pace), contradicted_again, part))?;
        }
        writer.put(&self.requests)?;
        writer.put(&(&self.due, self.deadline, self.last, self.clock))?;
        // The state of a plant with lines ends here.
        self.relayed.as_ref().map_or(Ok(()), |relayed| writer.put(relayed))
    }

    /// Restores a saved state.
    #[cfg(feature = "serde")]
    pub(crate) fn restore_channels(&mut self, feed: Feed, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.feed = feed;
        for channel in &mut self.channels {
            let arbiter = reader.take::<Arbiter>()?.with_options_of(&channel.arbiter);
            channel.arbiter = arbiter.ok_or(StateError::Foreign)?;
            let part: Option<Part>;
            let paced;
            (channel.followed, channel.attempts, paced, channel.contradicted_again, part) = reader.take()?;
            (channel.snapshots, channel.pace) = paced;
            if channel.part.as_ref().map(Part::publishers) != part.as_ref().map(Part::publishers) {
                return Err(StateError::Foreign);
            }
            channel.part = part;
            if channel.attempts > 0 && planted!("attempts-not-saved") {
                channel.attempts = 0;
            }
        }
        self.requests = reader.take()?;
        (self.due, self.deadline, self.last, self.clock) = reader.take()?;
        ensure(self.due.len() == self.channels.len(), "the times of the channels")?;
        self.relayed = if reader.bytes.is_empty() { None } else { Some(reader.take()?) };
        self.self_help.pass(self.clock);
        Ok(())
    }

    /// Returns the channels, in the order of the options.
    pub fn channels(&self) -> &[LiveChannel] {
        &self.channels
    }

    /// Returns the feed: symbols, problems, message counters.
    pub const fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Returns the instruments seen so far.
    pub const fn instruments(&self) -> &Instruments {
        self.feed.instruments()
    }

    /// Returns the next request to send. Call this after each batch until it returns `None`.
    pub fn take_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Returns the earliest time at which an [`Input::Tick`] has something to do.
    pub const fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Returns the time of the last packet, or of the last event that marks a second.
    pub const fn time(&self) -> Option<Nanos> {
        self.last
    }

    /// Returns whether a channel needs an answer to a request: see [`Arbiter::usefulness_of_answer`].
    pub fn usefulness_of_answer(&self, channel: u16, payload: &[u8]) -> Usefulness {
        let channel = self.channels.get(usize::from(channel));
        channel.map_or(Usefulness::Unneeded, |channel| channel.arbiter.usefulness_of_answer(payload))
    }

    /// Processes one input.
    #[inline]
    pub fn input<S: Sink<Event>>(&mut self, input: &Input<&[u8]>, sink: &mut S) {
        let mut forward = Forward { clock: self.clock, sink };
        if input.time() >= self.self_help.next() {
            self.self_help.put_due(input.time(), &mut forward);
        }
        self.dispatch(input, &mut forward);
        self.clock = forward.clock;
    }

    /// Runs `act` on a channel. Its events go through the channel's part of its feed.
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
    fn dispatch<S: Sink<Event>>(&mut self, input: &Input<&[u8]>, sink: &mut S) {
        match *input {
            Input::Packet { channel, line, received, payload } => {
                self.packet(channel, line, received, payload, sink);
            }
            Input::Tick { now } => self.tick(now, true, sink),
            Input::ClockSet { now, ahead_ns } => self.clock_was_set(ClockChange { now, ahead_ns }),
            Input::Snapshot { channel, attempt, messages, received } => {
                let Some(awaited) = self.awaited(channel, attempt) else { return };
                if awaited.messages.len() + messages.len() <= MOST_SNAPSHOT_BYTES {
                    awaited.messages.extend_from_slice(messages);
                } else {
                    let index = usize::from(channel);
                    self.of_channel(index, sink, |feed, sink| {
                        feed.snapshot_failed(index, SnapshotFault::TooLarge, received, sink);
                    });
                }
            }
            Input::SnapshotEnd { channel, attempt, received, next, bytes } => {
                if let Some(awaited) = self.awaited(channel, attempt) {
                    // A damaged journal may have lost messages of the snapshot, and the loss itself is recorded under another
                    // number.
                    let is_whole = awaited.messages.len() as u64 == bytes;
                    (awaited.next, awaited.ended) = (Some(next).filter(|_| is_whole), received);
                    let index = usize::from(channel);
                    self.of_channel(index, sink, |feed, sink| match is_whole {
                        true => feed.after(index, received, sink),
                        false => feed.snapshot_failed(index, SnapshotFault::InputsLost, received, sink),
                    });
                }
            }
            Input::SnapshotFailed { channel, attempt, fault, received } => {
                if self.awaited(channel, attempt).is_some() {
                    let index = usize::from(channel);
                    self.of_channel(index, sink, |feed, sink| {
                        feed.snapshot_failed(index, fault, received, sink);
                    });
                }
            }
            Input::Contradicted { channel, received } => self.contradicted(usize::from(channel), received),
            Input::Relayed { received, payload } => self.take_piece(received, payload, sink),
        }
    }

    /// Handles the loss of an unknown number of inputs. Each channel's books are stale until its sequence shows that no message
    /// is missing. A requested snapshot is discarded. If `now` is far before the last packet, the clock was set back by one of
    /// the lost inputs; the remembered times move with it, because deadlines would otherwise wait for as long.
    pub fn inputs_lost<S: Sink<Event>>(&mut self, now: Nanos, sink: &mut S) {
        self.set_back_to(now);
        let mut forward = Forward { clock: self.clock, sink };
        for index in 0..self.channels.len() {
            self.of_channel(index, &mut forward, |feed, sink| feed.inputs_lost_of(index, now, sink));
        }
        self.clock = forward.clock;
        self.set_all_due();
    }

    fn inputs_lost_of<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        if let Some(place) = channel.followed.place {
            channel.followed.is_stale = true;
            for event in self.feed.channel(place).events(EventKind::Gap, now) {
                let gap = Gap { first: channel.arbiter.next().unwrap_or(event.channel_sequence), count: 0 };
                sink.put(event.with_gap(gap));
            }
        }
        // The received part of the snapshot is incomplete, through no fault of the server.
        if channel.followed.awaited.take().is_some() {
            channel.snapshots.count_fault(SnapshotFault::InputsLost);
            self.request_snapshot(index, now);
        }
    }

    /// Emits the gaps between this state and `later`, the same channels after unknown inputs: one for each channel whose sequence
    /// has moved. Does not change this state.
    pub fn put_missed<S: Sink<Event>>(&self, later: &Self, now: Nanos, sink: &mut S) {
        self.put_missed_pieces(later, sink);
        for (one, other) in self.channels.iter().zip(&later.channels) {
            let (old, new) = (&one.arbiter, &other.arbiter);
            // A channel that has not begun in this state lacks the later session from its first message.
            let has_begun = one.followed.place.is_some();
            let (feed, followed) = if has_begun { (&self.feed, one) } else { (&later.feed, other) };
            let Some(place) = followed.followed.place else { continue };
            if (old.session(), old.next()) == (new.session(), new.next()) {
                continue;
            }
            let first = old.next().unwrap_or(u64::from(!has_begun));
            let is_same = old.session() == new.session() || !has_begun;
            let count = if is_same { new.next().unwrap_or_default().saturating_sub(first) } else { 0 };
            for mut event in feed.channel(place).events(EventKind::Gap, now) {
                event.ts_recv = event.ts_recv.max(self.clock);
                sink.put(event.with_gap(Gap { first, count }));
            }
        }
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
        // First do whatever was due before this packet.
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
        let LiveChannel { arbiter, options, followed, .. } = channel;
        let mut target = Target { feed, number, options, followed, sink, unread: 0 };
        // Most packets are next in sequence and are parsed once. All others go through the arbiter.
        let is_next = for_transport!(options.application.transport(), T => match T::packet(payload) {
            Ok(read) if arbiter.next_packet::<T>(&read, line, received, payload) => {
                target.next_packet::<T>(line, received, &read, payload);
                true
            }
            _ => false,
        });
        if !is_next {
            let arrived = arbiter.packet(line, received, payload, &mut |delivery| target.deliver(delivery));
            if let Err(error) = arrived {
                self.feed.bad_header(received, error);
                return;
            }
        }
        if target.unread > 0 {
            arbiter.cannot_read(line, target.unread);
        }
        // A complete but unreadable message is missing: the feed has emitted its gap.
        followed.is_stale |= followed.has_unreadable(feed);
        if !channel.is_quiet() || self.due.get(index) == Some(&NEVER) {
            self.after(index, received, sink);
        }
    }

    /// Does whatever is due at `now`.
    #[cold]
    #[inline(never)]
    fn tick<S: Sink<Event>>(&mut self, now: Nanos, is_clock: bool, sink: &mut S) {
        if is_clock {
            self.set_back_to(now);
        }
        for index in 0..self.channels.len() {
            let is_due = self.due.get(index).is_some_and(|due| *due <= now);
            if is_due || self.channels.get(index).is_some_and(|channel| !channel.is_quiet()) {
                self.of_channel(index, sink, |feed, sink| feed.tick_of(index, now, is_clock, sink));
            }
        }
        if self.last.is_some_and(|last| now.since(last) >= TIME_EVENT_EVERY_NS) {
            self.last = Some(now);
            let first = self.channels.first().map(|channel| channel.options.publisher);
            let mut event = Event::new(EventKind::Other, first.unwrap_or_default(), InstrumentId::UNKNOWN);
            (event.ts_event, event.ts_recv) = (now, now);
            sink.put(event);
        }
        self.set_deadline();
    }

    /// Returns whether the clock time `now` is so far before the last packet that the clock was set back without an
    /// [`Input::ClockSet`]: before a restart, or while packets were queued. An [`Input::Tick`] then acts as one. Packets alone do
    /// not show it, because some may have been queued in a socket.
    #[inline]
    pub fn is_beyond(&self, now: Nanos) -> bool {
        self.last.is_some_and(|last| last.since(now) > TIME_EVENT_EVERY_NS)
    }

    /// If the clock was set back to `now`, moves every remembered time with it.
    fn set_back_to(&mut self, now: Nanos) {
        if let Some(last) = self.last.filter(|_| self.is_beyond(now)) {
            let ahead_ns = i64::try_from(last.since(now)).map_or(i64::MIN, |back_ns| -back_ns);
            self.clock_was_set(ClockChange { now, ahead_ns });
        }
    }

    /// Converts every remembered time to the new clock.
    #[cold]
    #[inline(never)]
    fn clock_was_set(&mut self, change: ClockChange) {
        let set = |time: &mut Nanos| *time = change.moved(*time);
        for channel in &mut self.channels {
            channel.arbiter.clock_was_set(change);
            if let Some(awaited) = &mut channel.followed.awaited {
                set(&mut awaited.due);
                if awaited.ended.0 > 0 {
                    set(&mut awaited.ended);
                }
            }
            set(&mut channel.contradicted_again);
            set(&mut channel.pace.not_before);
            channel.pace.retry_at.iter_mut().for_each(set);
        }
        self.last.iter_mut().for_each(set);
        self.set_all_due();
    }

    fn tick_of<S: Sink<Event>>(&mut self, index: usize, now: Nanos, is_clock: bool, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        if channel.arbiter.deadline().is_some_and(|deadline| deadline <= now) {
            let feed = &mut self.feed;
            let LiveChannel { arbiter, options, followed, .. } = channel;
            let number = index as u16;
            let mut target = Target { feed, number, options, followed, sink, unread: 0 };
            let mut deliver = |delivery: Delivery<'_>| target.deliver(delivery);
            if is_clock {
                arbiter.advance(now, &mut deliver);
            } else {
                arbiter.advance_to_packet(now, &mut deliver);
            }
        }
        if let Some(awaited) = channel.followed.awaited.as_ref().filter(|awaited| awaited.due <= now) {
            let fault = match awaited.next {
                _ if awaited.is_overrun() => SnapshotFault::TooManyPackets,
                Some(_) => SnapshotFault::Unconfirmed,
                None => SnapshotFault::TimedOut,
            };
            self.snapshot_failed(index, fault, now, sink);
        }
        self.after(index, now, sink);
    }

    /// Updates a channel's deadline.
    fn set_due(&mut self, index: usize) {
        if let (Some(due), Some(channel)) = (self.due.get_mut(index), self.channels.get(index)) {
            *due = channel.due();
        }
        self.set_deadline();
    }

    fn set_all_due(&mut self) {
        self.due = self.channels.iter().map(LiveChannel::due).collect();
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        let next_event = self.last.map_or(NEVER, |last| Nanos(last.0.saturating_add(TIME_EVENT_EVERY_NS)));
        let first = self.due.iter().copied().fold(next_event, Nanos::min);
        self.deadline = Some(first).filter(|first| *first != NEVER);
    }

    /// Queues a channel's requests, applies its snapshot and clears staleness after an input.
    #[cold]
    #[inline(never)]
    fn after<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        while let Some(request) = channel.arbiter.take_request() {
            self.requests.push_back(Request::Retransmission { channel: index as u16, request });
        }
        if channel.arbiter.take_snapshot_request() && channel.options.snapshot.is_some() {
            self.request_snapshot(index, now);
        }
        if self.channels.get(index).is_some_and(|channel| channel.followed.has_unreadable(&self.feed)) {
            self.contradicted(index, now);
        }
        self.apply_snapshot(index, now, sink);
        self.narrow(index, now, sink);
        self.pace_snapshots(index, now);
        self.set_due(index);
    }

    /// Narrows staleness to the instruments of the late messages once all given-up messages have arrived. If one of them is about
    /// an order and does not name its instrument, the whole channel stays stale.
    fn narrow<S: Sink<Event>>(&mut self, index: usize, now: Nanos, sink: &mut S) {
        let Some(channel) = self.channels.get_mut(index) else { return };
        let Some(place) = channel.followed.place else { return };
        if !channel.followed.is_stale
            || channel.arbiter.is_silent()
            || !channel.arbiter.is_complete() && !planted!("stale-cleared-early")
        {
            return;
        }
        let gaps = self.feed.channels().get(place).map(|channel| channel.sequence().gaps);
        if gaps != Some(channel.followed.known_gaps) {
            return;
        }
        if channel.followed.affected.iter().any(|(_, instrument)| *instrument == InstrumentId::UNKNOWN) {
            return;
        }
        channel.followed.is_stale = false;
        self.feed.channel(place).events(EventKind::Recovered, now).for_each(|event| sink.put(event));
        // These instruments stay stale through every later gap, until a snapshot or another session.
        for book in channel.followed.affected.iter().copied() {
            if planted!("late-messages-ignored") {
                break;
            }
            let gap = Gap { first: channel.arbiter.next().unwrap_or_default(), count: 0 };
            sink.put(self.feed.channel(place).event(EventKind::Gap, book, now).with_gap(gap));
        }
    }
}
