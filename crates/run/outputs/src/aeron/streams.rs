//! Reads the streams of a plant: items, each once, in order. [`reader`](super::reader) makes records of them,
//! [`events`](super::events) returns events.
//!
//! ```text
//! status stream ─▶ which streams there are, and up to where ─┐
//! streams ─▶ messages ─▶ in order? ─▶ items behind the last one ─▶ reader
//!                          └ no ─▶ replay server ─▶ all items behind the last one
//! ```
//!
//! A late start, a lost message, a restart of the plant or of the driver, and a slow reader are all handled the same way:
//! everything after the last item is fetched up to the present, and items that the streams deliver again are skipped by their
//! numbers. Without a server, or if it refuses, the gap is counted.
//!
//! A fetch is a state, and each turn takes a part of it. Live items that arrive meanwhile wait, up to a limit; above it they are
//! set aside, and fetched afterwards. Memory is therefore bounded, however long the past is.
//!
//! The records of a symbol are in order; records of different streams do not wait for each other. Events of all channels are in the
//! order of the journal.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use rusteron_client::{AeronFragmentClosureAssembler, AeronSubscription};
use tapeworks_market::{Event, Publisher, Symbol};
use tapeworks_runtime::transport::Connector;

use super::client::{AeronTrouble, Client, assembler};
use super::fetch::{AGAIN, Fetch, FetchError, Progress};
use super::message::{self, Header, Key, Kind, NotAMessage, shard_of};
use super::plants::{FOREIGN, Plants};
use super::replay::Wanted;

/// Maximum number of messages taken from a stream per poll.
const AT_ONCE: usize = 256;

/// How long an event may be missing while later ones have arrived, because streams are read one after another.
const HOLE_PATIENCE: Duration = Duration::from_millis(20);

/// Number of polls without a pause when nothing arrives.
const YIELDS: u32 = 50;

/// The first and the longest pause between later polls.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Why nothing can be fetched.
const NO_SERVER: &str = "there is no replay server to ask: see --from";

/// Maximum number of streams to read: more than a plant has.
const MOST_STREAMS: usize = 4_096;

/// How long to wait for new streams until the driver has joined both ends.
const JOIN_PATIENCE: Duration = Duration::from_millis(200);

/// Maximum number of live events that wait while older ones are fetched: about 6 MB.
const MOST_PENDING: usize = 1 << 16;

/// Maximum bytes of a stream's messages that wait while older ones are fetched.
const MOST_HELD: usize = 4 << 20;

/// The options of a reader.
#[derive(Clone)]
pub struct AeronReaderOptions {
    /// The media driver's folder; `None` for the default of Aeron's libraries.
    pub directory: Option<String>,
    /// The channel.
    pub channel: String,
    /// The number of the status stream.
    pub stream: i32,
    /// Whether to read events; otherwise the NBBO.
    pub events: bool,
    /// The symbols whose NBBO is read; empty for all.
    pub symbols: HashSet<Symbol>,
    /// The replay server.
    pub server: Option<SocketAddr>,
    /// How to connect to it.
    pub connector: Connector,
    /// The token for the replay server.
    pub token: String,
    /// Begin with items received from this time on, in ns; `None` begins with the present.
    pub start: Option<u64>,
    /// How long a read may wait; see [`SubscribeError::is_timeout`](crate::subscriber::SubscribeError::is_timeout).
    pub timeout: Duration,
    /// How long the driver may be silent before the connection is given up.
    pub driver_timeout: Duration,
    /// For events: continue after the event before this number, which was received at this time, in ns.
    pub resume: Option<(u64, u64)>,
    /// Whether to never give up: missing items are fetched however long the server is away, and another journal ends the reading.
    /// Otherwise items that do not arrive in time are counted as lost.
    pub is_patient: bool,
    /// Receives progress messages.
    pub say: fn(&str),
}

impl std::fmt::Debug for AeronReaderOptions {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { channel, stream, events, server, start, resume, .. } = self;
        f.debug_struct("AeronReaderOptions")
            .field("channel", channel)
            .field("stream", stream)
            .field("events", events)
            .field("server", server)
            .field("start", start)
            .field("resume", resume)
            .finish_non_exhaustive()
    }
}

/// The counters of a reader.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AeronReaderCounters {
    /// Messages taken from streams.
    pub messages: u64,
    /// Items delivered: records or events.
    pub items: u64,
    /// Items delivered by the replay server.
    pub fetched: u64,
    /// Duplicate items.
    pub repeated: u64,
    /// Live items without room while older ones were fetched. They are fetched too.
    pub set_aside: u64,
    /// How many times items were missing.
    pub gaps: u64,
    /// How many of these gaps the replay server filled.
    pub filled: u64,
    /// Messages lost for good, as far as their number is known.
    pub lost_messages: u64,
    /// Events lost for good.
    pub lost_events: u64,
    /// Gaps that were not filled.
    pub lost_gaps: u64,
    /// How many times the plant's numbers restarted.
    pub restarts: u64,
    /// Connections to a media driver.
    pub connects: u64,
    /// Messages that cannot be read, or that are from another plant than the replay server's.
    pub malformed: u64,
}

/// A reader's position in a stream.
#[derive(Clone, Copy, Default, Debug)]
struct Order {
    /// The plant's start time; 0 before its first message.
    epoch: u64,
    /// The sequence number of the next message.
    next: u64,
    /// Set when the status has announced more messages than have arrived.
    suspected: Option<u64>,
}

/// Whether messages are missing before another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    Nothing,
    /// This many messages.
    Messages(u64),
    /// The plant has restarted: the number is unknown.
    Unknown,
}

impl Order {
    /// Advances to a message of the stream. Returns what is missing before it.
    const fn message(&mut self, epoch: u64, sequence: u64) -> Missing {
        let missing = match (self.epoch, sequence.checked_sub(self.next)) {
            (0, _) => Missing::Nothing,
            (own, _) if own != epoch => Missing::Unknown,
            // Messages from before the status are recognized by their keys.
            (_, None) => return Missing::Nothing,
            (_, Some(0)) => Missing::Nothing,
            (_, Some(messages)) => Missing::Messages(messages),
        };
        *self = Self { epoch, next: sequence.saturating_add(1), suspected: None };
        missing
    }

    /// Advances to the position in the status. Messages in transit will have arrived by the second status.
    fn status(&mut self, epoch: u64, next: u64) -> Missing {
        if self.epoch != epoch {
            let missing = if self.epoch == 0 { Missing::Nothing } else { Missing::Unknown };
            *self = Self { epoch, next, suspected: None };
            return missing;
        }
        if next <= self.next {
            self.suspected = None;
            return Missing::Nothing;
        }
        if self.suspected != Some(self.next) {
            self.suspected = Some(self.next);
            return Missing::Nothing;
        }
        let messages = next - self.next;
        *self = Self { epoch, next, suspected: None };
        Missing::Messages(messages)
    }
}

/// Items missing in a stream, until they are fetched.
#[derive(Clone, Copy, Debug)]
struct Gap {
    missing: Missing,
    /// Set at the beginning: fetch from this receive time on.
    start: Option<u64>,
}

/// A stream being read.
struct Stream {
    number: i32,
    /// The shard of the NBBO; `None` for events of a channel.
    shard: Option<u16>,
    subscription: Option<AeronSubscription>,
    order: Order,
    /// The last record, and its receive time.
    last: Option<(Key, u64)>,
    /// Whether the past with which the reader begins was fetched.
    has_begun: bool,
    gap: Option<Gap>,
    /// Messages after the gap, and their size in bytes.
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// Whether messages after the held ones are missing.
    is_cut: bool,
}

impl Stream {
    fn new(number: i32, shard: Option<u16>) -> Self {
        Self {
            number,
            shard,
            subscription: None,
            order: Order::default(),
            last: None,
            has_begun: false,
            gap: None,
            held: VecDeque::new(),
            held_bytes: 0,
            is_cut: false,
        }
    }

    /// Holds a message until the gap before it is filled. Returns `false` if there is no room.
    fn hold(&mut self, bytes: &[u8]) -> bool {
        self.is_cut |= self.held_bytes + bytes.len() > MOST_HELD;
        if !self.is_cut {
            self.held_bytes += bytes.len();
            self.held.push_back(bytes.to_vec());
        }
        !self.is_cut
    }
}

/// The connection's state besides the streams.
struct Session {
    client: Client,
    status: AeronSubscription,
    assembler: AeronFragmentClosureAssembler,
}

/// An event that waits for earlier ones, and the start time of its plant.
struct Pending {
    event: Event,
    epoch: u64,
}

/// A running fetch of past items.
struct Fetching {
    /// The stream to fetch; `None` for events.
    place: Option<usize>,
    fetch: Fetch,
    /// When it began.
    since: Instant,
    /// The highest number of the events that were waiting then: the plant has published these events, if they are its own.
    waited: Option<u64>,
    /// The start time that was in doubt then.
    doubted: Option<u64>,
}

/// An item that a reader delivers.
pub(super) enum Item<'i> {
    Symbol(&'i [u8]),
    Record(&'i [u8]),
    Event(u64, &'i Event),
}

/// Reads the streams of a plant.
pub(super) struct Streams {
    pub(super) options: AeronReaderOptions,
    session: Option<Session>,
    streams: Vec<Stream>,
    pub(super) counters: AeronReaderCounters,
    /// Messages received but not processed: the stream, and the bytes.
    inbox: VecDeque<(usize, Vec<u8>)>,
    free: Vec<Vec<u8>>,
    idle: u32,
    fetching: Option<Fetching>,
    /// Set when events must be fetched; the inner value is the number of events known to be missing, `None` at the beginning, which
    /// is not a gap.
    wants_events: Option<Option<u64>>,
    /// For events: the next number, the receive time of the event before it, and the events that wait for it.
    next: Option<u64>,
    time: u64,
    pending: BTreeMap<u64, Pending>,
    hole: Option<Instant>,
    events_begun: bool,
    /// Whether all events up to the present have arrived once.
    has_caught_up: bool,
    shards: u16,
    /// The next event's number in the last status, if events were missing then.
    suspected: Option<u64>,
    /// The same, regardless of missing events.
    plant_next: u64,
    epoch: u64,
    plants: Plants,
    /// The plant's feeds, according to its last status.
    feeds: Option<Vec<Publisher>>,
    /// When the last status arrived.
    heard: Option<Instant>,
    /// Why the reading has ended.
    other_journal: Option<String>,
    /// The driver's error, until it is available again.
    trouble: Option<String>,
    /// The replay server's error, until it answers.
    server_trouble: Option<String>,
    /// Whether the plant has changed its streams: new ones do not begin with the past, which the old ones have delivered.
    is_spread_anew: bool,
}

/// The state of a reader of events.
#[derive(Clone, Copy, Debug)]
pub struct AeronStanding<'r> {
    /// When the last status of the plant arrived.
    pub heard: Option<Instant>,
    /// The plant's feeds, in the order in which it breaks ties of the NBBO.
    pub feeds: Option<&'r [Publisher]>,
    /// Whether all events up to the present have arrived once.
    pub has_caught_up: bool,
    /// Since when events have been fetched.
    pub fetching_since: Option<Instant>,
    /// The number of the next event.
    pub next: u64,
    /// The number of the plant's next event, according to its last status.
    pub plant_next: u64,
    /// The current error of the driver or of the replay server, if there is one.
    pub trouble: Option<&'r str>,
    /// Set when the plant has another journal than before, so that nothing more is delivered: the server's message.
    pub other_journal: Option<&'r str>,
}

impl Streams {
    /// Connects to the driver.
    pub(super) fn open(options: AeronReaderOptions) -> Result<Self, AeronTrouble> {
        let mut streams = Self::new(options);
        streams.connect()?;
        Ok(streams)
    }

    pub(super) fn new(options: AeronReaderOptions) -> Self {
        let (next, time) = options.resume.unzip();
        Self {
            options,
            session: None,
            streams: Vec::new(),
            counters: AeronReaderCounters::default(),
            inbox: VecDeque::new(),
            free: Vec::new(),
            idle: 0,
            fetching: None,
            wants_events: None,
            next,
            time: time.unwrap_or_default(),
            pending: BTreeMap::new(),
            hole: None,
            events_begun: false,
            has_caught_up: false,
            shards: 0,
            suspected: None,
            plant_next: 0,
            epoch: 0,
            plants: Plants::default(),
            feeds: None,
            heard: None,
            other_journal: None,
            trouble: None,
            server_trouble: None,
            is_spread_anew: false,
        }
    }

    /// Returns whether nothing more can arrive.
    pub(super) const fn standing_still(&self) -> bool {
        self.other_journal.is_some()
    }

    /// Returns the reader's state.
    pub(super) fn standing(&self) -> AeronStanding<'_> {
        let of_events = self.fetching.as_ref().filter(|fetching| fetching.place.is_none());
        AeronStanding {
            heard: self.heard,
            feeds: self.feeds.as_deref(),
            has_caught_up: self.has_caught_up,
            fetching_since: of_events.map(|fetching| fetching.since),
            next: self.next.unwrap_or_default(),
            plant_next: self.plant_next,
            trouble: self
                .trouble
                .as_deref()
                .or(self.server_trouble.as_deref())
                .or_else(|| self.plants.trouble()),
            other_journal: self.other_journal.as_deref(),
        }
    }

    fn connect(&mut self) -> Result<(), AeronTrouble> {
        let Self { options, streams, .. } = self;
        let client = Client::connect(options.directory.as_deref(), options.driver_timeout)?;
        let status = client.subscription(&options.channel, options.stream)?;
        for stream in streams.iter_mut() {
            stream.subscription = Some(client.subscription(&options.channel, stream.number)?);
        }
        let Some(assembler) = assembler() else {
            let reason = "the library has no memory for messages";
            return Err(AeronTrouble::stream(&options.channel, options.stream, reason));
        };
        self.session = Some(Session { client, status, assembler });
        self.counters.connects += 1;
        self.trouble = None;
        Ok(())
    }

    /// Reconnects when the driver is gone.
    fn keep_connected(&mut self) {
        let trouble = match &self.session {
            Some(session) => session.client.check().err(),
            None => None,
        };
        if let Some(trouble) = trouble {
            (self.options.say)(&trouble.to_string());
            self.trouble = Some(trouble.to_string());
            self.disconnect();
        }
        if self.session.is_none()
            && let Err(trouble) = self.connect()
        {
            self.trouble = Some(trouble.to_string());
            self.disconnect();
            sleep(PAUSES.1);
        }
    }

    fn disconnect(&mut self) {
        // Subscriptions first: they belong to the client.
        self.streams.iter_mut().for_each(|stream| stream.subscription = None);
        self.session = None;
    }

    /// Reads the available messages, and delivers items. Returns `false` if there were none.
    pub(super) fn turn(&mut self, each: &mut dyn FnMut(Item<'_>)) -> bool {
        self.keep_connected();
        self.read_status();
        let Self { streams, inbox, free, counters, .. } = self;
        for (place, stream) in streams.iter().enumerate() {
            let Some(subscription) = &stream.subscription else { continue };
            let taken = subscription.poll_fn(
                |bytes, _| {
                    let mut buffer = free.pop().unwrap_or_default();
                    buffer.clear();
                    buffer.extend_from_slice(bytes);
                    inbox.push_back((place, buffer));
                },
                AT_ONCE,
            );
            // A subscription that cannot be read belongs to a driver that is gone, which the next turn detects.
            counters.messages += taken.map_or(0, |taken| u64::try_from(taken).unwrap_or_default());
        }
        let mut is_busy = !self.inbox.is_empty();
        while let Some((place, bytes)) = self.inbox.pop_front() {
            if self.message(place, &bytes, each).is_err() {
                self.counters.malformed += 1;
            }
            self.free.push(bytes);
        }
        self.free.truncate(AT_ONCE);
        self.look_for_holes();
        is_busy |= self.fetch(each);
        is_busy
    }

    /// Pauses briefly when nothing arrived.
    pub(super) fn rest(&mut self, is_busy: bool) {
        if is_busy {
            self.idle = 0;
            return;
        }
        self.idle = self.idle.saturating_add(1);
        match self.idle.checked_sub(YIELDS) {
            None => yield_now(),
            Some(idle) => sleep((PAUSES.0 * 2u32.pow((idle / 16).min(8))).min(PAUSES.1)),
        }
    }

    /// Processes the last status, and adds its streams.
    fn read_status(&mut self) {
        let mut last: Option<Vec<u8>> = None;
        if let Some(Session { status, assembler, .. }) = &mut self.session {
            let keep = |last: &mut Option<Vec<u8>>, bytes: &[u8], _| *last = Some(bytes.to_vec());
            // Errors are handled as for the other streams.
            let _polled = assembler.poll(status, &mut last, keep, AT_ONCE);
        }
        let Some(bytes) = last else { return };
        let parsed = Header::parse(&bytes).ok().and_then(|(header, rest)| {
            let text: serde_json::Value = serde_json::from_slice(rest).ok()?;
            (header.kind == Kind::Status).then_some((header.epoch, text))
        });
        let Some((epoch, status)) = parsed else {
            self.counters.malformed += 1;
            return;
        };
        if self.is_foreign(epoch) {
            return;
        }
        if self.plants.is_other(epoch) {
            // The plant has restarted, or this is another one: the replay server knows.
            self.event_epoch(epoch, || None);
            return;
        }
        self.heard = Some(Instant::now());
        let number = |feed: &serde_json::Value| u16::try_from(feed.as_u64()?).ok();
        let feeds = status["feeds"].as_array();
        self.feeds = feeds.map(|feeds| feeds.iter().filter_map(number).map(Publisher).collect());
        let shards = status["nbbo_streams"].as_u64().and_then(|shards| u16::try_from(shards).ok());
        self.spread(shards.unwrap_or_default());
        let places: Vec<(i32, u64)> = status["streams"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|stream| {
                Some((i32::try_from(stream["stream"].as_i64()?).ok()?, stream["next"].as_u64()?))
            })
            .collect();
        self.add_streams(&places);
        for place in 0..self.streams.len() {
            let Some(stream) = self.streams.get_mut(place) else { continue };
            let next =
                places.iter().find(|(number, _)| *number == stream.number).map_or(0, |(_, next)| *next);
            let missing = stream.order.status(epoch, next);
            let must_begin = !stream.has_begun && self.options.start.is_some();
            if stream.shard.is_none() {
                continue;
            }
            if stream.gap.is_some() {
                // Messages missing after the gap being filled are fetched afterwards.
                stream.is_cut |= missing != Missing::Nothing;
            } else if missing != Missing::Nothing || must_begin {
                self.close_gap(place, missing, None);
            }
        }
        if self.options.events {
            self.event_status(epoch, status["next_event"].as_u64().unwrap_or_default());
        }
    }

    /// Handles the number of streams over which the plant spreads symbols. If a restart changes it, the streams have other contents
    /// than before.
    fn spread(&mut self, shards: u16) {
        let before = std::mem::replace(&mut self.shards, shards);
        if before == shards || self.streams.is_empty() {
            return;
        }
        self.streams.clear();
        self.fetching = self.fetching.take().filter(|fetching| fetching.place.is_none());
        // Events continue by their numbers.
        if !self.options.events {
            self.is_spread_anew = true;
            self.counters.restarts += 1;
            self.counters.gaps += 1;
            self.counters.lost_gaps += 1;
            let text = format!(
                "the plant has {shards} streams of the NBBO, not {before}: records between are not known"
            );
            (self.options.say)(&text);
        }
    }

    /// Subscribes to the wanted streams that are not read yet.
    fn add_streams(&mut self, places: &[(i32, u64)]) {
        let Self { options, streams, session: Some(session), shards, is_spread_anew, .. } = self else {
            return;
        };
        let first_of_events = options.stream.saturating_add(1).saturating_add(i32::from(*shards));
        let wanted: Vec<(i32, Option<u16>)> = if options.events {
            let numbers = places.iter().map(|(number, _)| *number);
            numbers.filter(|number| *number >= first_of_events).map(|number| (number, None)).collect()
        } else {
            let of_symbols: HashSet<u16> =
                options.symbols.iter().map(|symbol| shard_of(*symbol, *shards)).collect();
            let is_wanted = |shard: &u16| of_symbols.is_empty() || of_symbols.contains(shard);
            let shard =
                |shard: u16| (options.stream.saturating_add(1).saturating_add(i32::from(shard)), Some(shard));
            (0..*shards).filter(is_wanted).map(shard).collect()
        };
        let first_new = streams.len();
        for (number, shard) in wanted {
            if streams.len() >= MOST_STREAMS || streams.iter().any(|stream| stream.number == number) {
                continue;
            }
            match session.client.subscription(&options.channel, number) {
                Ok(subscription) => streams.push(Stream {
                    subscription: Some(subscription),
                    has_begun: *is_spread_anew,
                    ..Stream::new(number, shard)
                }),
                Err(trouble) => (options.say)(&trouble.to_string()),
            }
        }
        // Messages published before the driver has joined both ends are lost, so wait for that, but not for a plant that is gone.
        let began = Instant::now();
        let new = streams.iter().skip(first_new).filter_map(|stream| stream.subscription.as_ref());
        while new.clone().any(|subscription| !subscription.is_connected()) && began.elapsed() < JOIN_PATIENCE
        {
            sleep(Duration::from_millis(1));
        }
    }

    /// Processes a message of a stream.
    fn message(
        &mut self,
        place: usize,
        bytes: &[u8],
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), NotAMessage> {
        let (header, rest) = Header::parse(bytes)?;
        let Some(stream) = self.streams.get_mut(place) else { return Ok(()) };
        let is_of_stream = match stream.shard {
            None => header.kind == Kind::Events,
            Some(_) => matches!(header.kind, Kind::Records | Kind::Symbols),
        };
        if !is_of_stream {
            return Err(NotAMessage::Kind(header.kind as u8));
        }
        let missing = stream.order.message(header.epoch, header.sequence);
        if stream.shard.is_none() {
            return self.events(&header, rest, each);
        }
        if stream.gap.is_some() {
            stream.is_cut |= missing != Missing::Nothing;
        } else if missing != Missing::Nothing {
            let mut first = None;
            if header.kind == Kind::Records {
                message::records(&header, rest, |key, _| first = first.or(Some(key)))?;
            }
            self.close_gap(place, missing, first);
        }
        let Self { streams, counters, .. } = self;
        let Some(stream) = streams.get_mut(place) else { return Ok(()) };
        if stream.gap.is_some() {
            counters.set_aside += if stream.hold(bytes) { 0 } else { u64::from(header.items) };
            return Ok(());
        }
        records(stream, counters, &header, rest, each).map(|_| ())
    }

    /// Begins to fetch the missing records of an NBBO stream, or counts them. `first` is the first record after the gap.
    fn close_gap(&mut self, place: usize, missing: Missing, first: Option<Key>) {
        let Self { options, streams, counters, .. } = self;
        let Some(stream) = streams.get_mut(place) else { return };
        counters.gaps += u64::from(missing != Missing::Nothing);
        let begins = !stream.has_begun;
        stream.has_begun = true;
        if options.server.is_some() {
            // A reader of the present that has received nothing yet has no gap that could be named.
            let start = options.start.filter(|_| begins);
            if stream.last.is_some() || start.is_some() {
                stream.gap = Some(Gap { missing, start });
            }
            return;
        }
        if missing == Missing::Unknown
            && let (Some(first), Some((last, _))) = (first, stream.last)
            && first <= last
        {
            counters.restarts += 1;
            stream.last = None;
        }
        self.lose_records(place, missing, NO_SERVER);
    }

    /// Counts records as lost for good.
    fn lose_records(&mut self, place: usize, missing: Missing, why: &str) {
        let Self { options, streams, counters, .. } = self;
        let Some(stream) = streams.get(place) else { return };
        // A beginning that cannot be fetched counts as a gap too.
        counters.lost_gaps += 1;
        let text = match missing {
            Missing::Messages(messages) => {
                counters.lost_messages = counters.lost_messages.saturating_add(messages);
                format!("stream {}: {messages} messages are missing: {why}", stream.number)
            }
            _ => format!("stream {}: records may be missing: {why}", stream.number),
        };
        (options.say)(&text);
    }

    /// Takes a part of the running fetch. Returns `false` if there was nothing.
    fn fetch(&mut self, each: &mut dyn FnMut(Item<'_>)) -> bool {
        let Some(server) = self.options.server else { return false };
        if self.fetching.is_none() {
            let of_stream = || self.streams.iter().position(|stream| stream.gap.is_some());
            let place = match self.wants_events {
                Some(_) => None,
                None => match of_stream() {
                    None => return false,
                    place => place,
                },
            };
            let patience = (!self.options.is_patient).then_some(AGAIN);
            let (connector, token) = (self.options.connector.clone(), self.options.token.clone());
            let fetch = Fetch::new(server, connector, token, patience);
            let waited = self.pending.last_key_value().map(|(number, _)| *number);
            let doubted = self.plants.doubted();
            self.fetching = Some(Fetching { place, fetch, since: Instant::now(), waited, doubted });
        }
        let Some(mut fetching) = self.fetching.take() else { return false };
        let place = fetching.place;
        let mut say = |streams: &mut Self, text: &str, is_first: bool| {
            streams.server_trouble = Some(text.to_owned());
            if is_first {
                (streams.options.say)(text);
            }
        };
        let wanted = |streams: &Self| streams.wanted(place);
        let mut result = fetching
            .fetch
            .turn(self, &mut say, wanted, |streams, header, rest| streams.past(place, header, rest, each));
        if let Ok(Progress::More(is_busy)) = result {
            self.fetching = Some(fetching);
            return is_busy;
        }
        if let Err(error) = &mut result
            && self.options.is_patient
            && matches!(error, FetchError::OtherJournal { .. })
        {
            self.other_journal = Some(error.to_string());
            return true;
        }
        let result = result.map(|_| ());
        match place {
            None => {
                if result.is_ok() {
                    if self.plants.doubted() != fetching.doubted {
                        // The answer may be from before the start in doubt; the request for events remains set.
                        return true;
                    }
                    self.leave_out_foreign(fetching.fetch.epoch(), fetching.waited);
                }
                self.events_fetched(result, each);
            }
            Some(place) => self.records_fetched(place, result, each),
        }
        true
    }

    /// Returns what to request.
    fn wanted(&self, place: Option<usize>) -> Wanted {
        let Some(stream) = place.and_then(|place| self.streams.get(place)) else {
            let before = self.next.unwrap_or_default().checked_sub(1);
            let after = before.map(|number| (Key { number, place: 0 }, self.time));
            return Wanted { shard: None, after, start: 0 };
        };
        let start = stream.gap.and_then(|gap| gap.start);
        Wanted { shard: stream.shard, after: stream.last, start: start.unwrap_or_default() }
    }

    /// Processes a message of the past.
    fn past(
        &mut self,
        place: Option<usize>,
        header: &Header,
        rest: &[u8],
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), NotAMessage> {
        if let Some(place) = place {
            let Self { streams, counters, .. } = self;
            let Some(stream) = streams.get_mut(place) else { return Ok(()) };
            counters.fetched += records(stream, counters, header, rest, each)?;
        } else {
            message::events(header, rest, |number, event| {
                // If the journal has lost events, its next number is greater.
                let next = self.next.unwrap_or_default();
                if number > next {
                    self.counters.lost_events = self.counters.lost_events.saturating_add(number - next);
                }
                if number >= next {
                    self.counters.fetched += 1;
                    self.hand_on(number, &event, each);
                }
            })?;
        }
        self.server_trouble = None;
        Ok(())
    }

    /// Ends the fetch of a gap's records, successfully or not.
    fn records_fetched(
        &mut self,
        place: usize,
        result: Result<(), FetchError>,
        each: &mut dyn FnMut(Item<'_>),
    ) {
        let Self { options, streams, counters, .. } = self;
        let Some(stream) = streams.get_mut(place) else { return };
        let Some(gap) = stream.gap.take() else { return };
        let held = std::mem::take(&mut stream.held);
        stream.held_bytes = 0;
        let is_cut = std::mem::take(&mut stream.is_cut);
        let is_gap = u64::from(gap.missing != Missing::Nothing);
        match result {
            Ok(()) => counters.filled += is_gap,
            Err(FetchError::OtherJournal { .. }) => {
                counters.restarts += 1;
                stream.last = None;
                (options.say)("the plant's numbers began anew: the records between are not known");
                // A beginning that cannot be fetched counts as a gap too.
                counters.lost_gaps += 1;
            }
            Err(error) => self.lose_records(place, gap.missing, &error.to_string()),
        }
        let Self { streams, counters, .. } = self;
        let Some(stream) = streams.get_mut(place) else { return };
        for bytes in held {
            // The header was parsed before the message was held.
            let Ok((header, rest)) = Header::parse(&bytes) else { continue };
            counters.malformed += u64::from(records(stream, counters, &header, rest, each).is_err());
        }
        if is_cut {
            self.close_gap(place, Missing::Unknown, None);
        }
    }

    /// Processes a message with events.
    fn events(
        &mut self,
        header: &Header,
        rest: &[u8],
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), NotAMessage> {
        if self.is_foreign(header.epoch) {
            return Ok(());
        }
        self.event_epoch(header.epoch, || {
            let mut first = None;
            // Unreadable items are reported below.
            let _read = message::events(header, rest, |number, _| first = first.or(Some(number)));
            first
        });
        let Self { next, pending, counters, .. } = self;
        let read = message::events(header, rest, |number, event| {
            if number < *next.get_or_insert(number) {
                counters.repeated += 1;
                return;
            }
            pending.insert(number, Pending { event, epoch: header.epoch });
            if pending.len() > MOST_PENDING {
                pending.pop_last();
                counters.set_aside += 1;
            }
        });
        // A restarted plant may assign the same numbers to other events; the fetch will show it.
        if self.wants_events.is_none() {
            self.drain(each);
        }
        read
    }

    /// Returns whether a message is from another plant on the same streams, and counts it if so.
    fn is_foreign(&mut self, epoch: u64) -> bool {
        let is_foreign = self.plants.is_foreign(epoch, self.heard);
        self.counters.malformed += u64::from(is_foreign);
        is_foreign
    }

    /// Checks the plant of a message: a different one than before may have restarted its numbers.
    fn event_epoch(&mut self, epoch: u64, first: impl FnOnce() -> Option<u64>) {
        if self.epoch == epoch {
            return;
        }
        let is_new = self.epoch != 0;
        self.epoch = epoch;
        self.plants.saw(epoch);
        let must_begin = self.options.start.is_some() || self.options.resume.is_some();
        if !self.events_begun && must_begin {
            self.events_begun = true;
            self.next.get_or_insert(0);
            self.want_events(None);
        } else if is_new {
            if self.options.server.is_some() {
                self.want_events(Some(0));
            } else if let (Some(first), Some(next)) = (first(), self.next)
                && first < next
            {
                self.begin_anew();
            }
        }
    }

    fn begin_anew(&mut self) {
        self.counters.restarts += 1;
        (self.next, self.time) = (None, 0);
        self.pending.clear();
        (self.options.say)("the plant's numbers began anew: the events between are not known");
    }

    /// Takes the status' number of the next event.
    fn event_status(&mut self, epoch: u64, plant: u64) {
        self.plant_next = plant;
        self.event_epoch(epoch, || Some(plant));
        let is_waiting = self.wants_events.is_some() || !self.pending.is_empty();
        let Some(next) = self.next.filter(|next| *next < plant && !is_waiting) else {
            self.suspected = None;
            return;
        };
        if self.suspected.replace(next) == Some(next) {
            self.suspected = None;
            self.want_events(Some(plant - next));
        }
    }

    /// Notices events that have been missing for long.
    fn look_for_holes(&mut self) {
        let first = self.pending.first_key_value().map(|(number, _)| *number);
        let (Some(first), Some(next), None) = (first, self.next, self.wants_events) else {
            self.hole = None;
            return;
        };
        let since = *self.hole.get_or_insert_with(Instant::now);
        if since.elapsed() < HOLE_PATIENCE {
            return;
        }
        self.hole = None;
        self.want_events(Some(first.saturating_sub(next)));
    }

    /// Begins to fetch the events after the last one, or counts them. `missing` is the number of events known to be missing; `None`
    /// at the beginning, which is not a gap.
    fn want_events(&mut self, missing: Option<u64>) {
        if self.wants_events.is_some() {
            return;
        }
        self.counters.gaps += u64::from(missing.is_some());
        if self.options.server.is_some() {
            self.wants_events = Some(missing);
        } else {
            self.lose_events(missing.unwrap_or_default(), NO_SERVER);
        }
    }

    /// Discards waiting events of other plants, after all events up to the present were fetched from the plant that began at
    /// `epoch`. Events it published before the request have arrived, so events with another start belong to another plant, or to
    /// one that is gone.
    fn leave_out_foreign(&mut self, epoch: Option<u64>, waited: Option<u64>) {
        if self.plants.answered(epoch) {
            (self.options.say)(FOREIGN);
        }
        self.epoch = epoch.unwrap_or(self.epoch);
        let next = self.next.unwrap_or_default();
        let before = self.pending.len();
        self.pending.retain(|number, pending| {
            let is_of_plant = epoch.is_none_or(|epoch| epoch == pending.epoch);
            *number < next || is_of_plant && waited.is_none_or(|waited| *number > waited)
        });
        self.counters.malformed += (before - self.pending.len()) as u64;
    }

    /// Counts events as lost for good.
    fn lose_events(&mut self, missing: u64, why: &str) {
        self.counters.lost_gaps += 1;
        self.counters.lost_events = self.counters.lost_events.saturating_add(missing);
        if missing > 0 {
            let next = self.next.unwrap_or_default().saturating_add(missing);
            (self.options.say)(&format!("{missing} events before event {next} are missing: {why}"));
            self.next = Some(next);
        } else {
            (self.options.say)(&format!("events may be missing: {why}"));
        }
    }

    /// Ends the fetch of missing events, successfully or not.
    fn events_fetched(&mut self, result: Result<(), FetchError>, each: &mut dyn FnMut(Item<'_>)) {
        let missing = self.wants_events.take().flatten();
        let next = self.next.unwrap_or_default();
        self.pending = self.pending.split_off(&next);
        match result {
            Ok(()) => {
                self.counters.filled += u64::from(missing.is_some());
                self.has_caught_up = true;
            }
            Err(FetchError::OtherJournal { .. }) => {
                self.counters.lost_gaps += 1;
                return self.begin_anew();
            }
            Err(error) => {
                // Fetched events are not missing.
                let first = self.pending.first_key_value().map(|(first, _)| *first);
                let missing = match (missing, first) {
                    (Some(missing), Some(first)) if missing > 0 => first.saturating_sub(next),
                    (missing, _) => missing.unwrap_or_default(),
                };
                self.lose_events(missing, &error.to_string());
            }
        }
        self.drain(each);
    }

    fn drain(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        while let Some(next) = self.next
            && let Some(pending) = self.pending.remove(&next)
        {
            self.hand_on(next, &pending.event, each);
            self.hole = None;
        }
    }

    fn hand_on(&mut self, number: u64, event: &Event, each: &mut dyn FnMut(Item<'_>)) {
        (self.next, self.time) = (Some(number.saturating_add(1)), event.ts_recv.0);
        self.counters.items += 1;
        each(Item::Event(number, event));
    }
}

/// Delivers the records of a message that are after the last one. Returns their number.
fn records(
    stream: &mut Stream,
    counters: &mut AeronReaderCounters,
    header: &Header,
    rest: &[u8],
    each: &mut dyn FnMut(Item<'_>),
) -> Result<u64, NotAMessage> {
    let mut count = 0;
    match header.kind {
        Kind::Symbols => message::symbols(header, rest, |record| each(Item::Symbol(record)))?,
        Kind::Records => message::records(header, rest, |key, record| {
            if stream.last.is_some_and(|(last, _)| key <= last) {
                counters.repeated += 1;
                return;
            }
            stream.last = Some((key, time_of(record)));
            counters.items += 1;
            count += 1;
            each(Item::Record(record));
        })?,
        Kind::Events | Kind::Status => counters.malformed += 1,
    }
    Ok(count)
}

/// Returns the receive time of an NBBO record: `ts_recv`, at byte 32.
fn time_of(record: &[u8]) -> u64 {
    let bytes =
        record.get(std::mem::offset_of!(dbn::Cmbp1Msg, ts_recv)..).and_then(|rest| rest.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::super::plants::FOREIGN_AGAIN;
    use super::*;

    #[test]
    fn a_stream_knows_how_many_messages_are_missing() {
        let mut order = Order::default();
        assert_eq!(order.message(7, 3), Missing::Nothing, "the first message may be any");
        assert_eq!(order.message(7, 4), Missing::Nothing);
        assert_eq!(order.message(7, 8), Missing::Messages(3));
        assert_eq!(order.message(7, 9), Missing::Nothing);
        assert_eq!(order.message(8, 0), Missing::Unknown, "the plant has begun anew");
        assert_eq!(order.message(8, 1), Missing::Nothing);
    }

    #[test]
    fn a_status_shows_lost_messages_that_no_later_one_follows() {
        let mut order = Order::default();
        assert_eq!(order.status(7, 5), Missing::Nothing);
        assert_eq!(order.message(7, 4), Missing::Nothing, "it was under way before the status");
        assert_eq!(order.status(7, 6), Missing::Nothing, "it may be under way");
        assert_eq!(order.message(7, 5), Missing::Nothing);
        assert_eq!(order.status(7, 9), Missing::Nothing);
        assert_eq!(order.status(7, 9), Missing::Messages(3));
        assert_eq!(order.status(7, 9), Missing::Nothing);
        assert_eq!(order.status(8, 2), Missing::Unknown);
    }

    fn streams(events: bool, shard: Option<u16>) -> Streams {
        let mut streams = Streams::new(AeronReaderOptions {
            directory: None,
            channel: "aeron:ipc".to_owned(),
            stream: 1_000,
            events,
            symbols: HashSet::new(),
            server: None,
            connector: Connector::Plain,
            token: String::new(),
            start: None,
            timeout: Duration::ZERO,
            resume: None,
            is_patient: false,
            driver_timeout: Duration::from_secs(1),
            say: |_| {},
        });
        streams.streams.push(Stream::new(1_001, shard));
        streams
    }

    #[test]
    fn a_reader_takes_no_records_for_events() {
        use super::message::Draft;
        let mut draft = Draft::begin(Vec::new(), Kind::Records, 7, 0);
        draft.put_record(Key { number: 5, place: 0 }, &[16; 64]);
        let bytes = draft.finish();
        let mut streams = streams(true, None);
        let mut items = 0;
        let refused = streams.message(0, &bytes, &mut |_| items += 1);
        assert_eq!((refused, items), (Err(NotAMessage::Kind(Kind::Records as u8)), 0));
    }

    #[test]
    fn a_reader_of_the_nbbo_counts_a_gap_when_the_plant_has_other_streams_than_before() {
        let mut streams = streams(false, Some(0));
        streams.shards = 2;
        streams.spread(2);
        assert_eq!((streams.streams.len(), streams.counters.lost_gaps), (1, 0));
        streams.spread(4);
        assert_eq!((streams.streams.len(), streams.counters.lost_gaps, streams.is_spread_anew), (0, 1, true));
    }

    /// Returns a message with these events, from the plant that began at 7.
    fn of_events(numbers: std::ops::Range<u64>) -> Vec<u8> {
        of_plant(7, numbers, super::super::replay::tests::event)
    }

    fn of_plant(epoch: u64, numbers: std::ops::Range<u64>, event: impl Fn(u64) -> Event) -> Vec<u8> {
        let mut draft = message::Draft::begin(Vec::new(), Kind::Events, epoch, 0);
        numbers.for_each(|number| draft.put_event(number, &event(number)));
        draft.finish()
    }

    /// Returns a patient reader of a server that has nothing yet.
    fn patient(replays: &super::super::replay::Replays) -> Streams {
        let mut streams = streams(true, None);
        streams.options.server = Some(replays.address());
        streams.options.token = "right".to_owned();
        streams.options.is_patient = true;
        streams.options.resume = Some((0, 0));
        streams.next = Some(0);
        streams
    }

    /// Returns a history of 100 events, its server, and a patient reader that has fetched them.
    fn caught_up() -> (tapeworks_engine::history::MemoryHistory, super::super::replay::Replays, Streams) {
        use super::super::replay::tests::{event, served_of};
        let history = tapeworks_engine::history::MemoryHistory::default();
        history.append(&(0..100).map(event).collect::<Vec<_>>());
        let (replays, _queue) = served_of(history.clone(), "right");
        let mut streams = patient(&replays);
        streams.event_status(7, 100);
        let mut numbers = Vec::new();
        fetch_all(&mut streams, &mut numbers);
        assert_eq!((numbers.len(), streams.next), (100, Some(100)));
        (history, replays, streams)
    }

    #[test]
    fn another_plant_on_the_same_streams_gives_a_reader_nothing() {
        use super::super::replay::tests::event;
        let (history, _replays, mut streams) = caught_up();
        let theirs = |number| Event { ts_recv: tapeworks_time::Nanos(5), ..event(number) };
        streams.message(0, &of_plant(9, 100..105, theirs), &mut |_| panic!("it is another plant's")).unwrap();
        history.append(&(100..103).map(event).collect::<Vec<_>>());
        let mut numbers = Vec::new();
        fetch_all(&mut streams, &mut numbers);
        assert_eq!((numbers, streams.time), (vec![100, 101, 102], 103));
        assert_eq!((streams.pending.len(), streams.counters.malformed), (0, 2));
        // The other plant is known by now, and nothing is fetched for it.
        streams.message(0, &of_plant(9, 103..105, theirs), &mut |_| panic!("it is another plant's")).unwrap();
        let mut live = 0;
        streams.message(0, &of_events(103..105), &mut |_| live += 1).unwrap();
        assert_eq!((live, streams.wants_events, streams.counters.malformed), (2, None, 3));
        assert_eq!(streams.standing().trouble, Some(FOREIGN));
    }

    #[test]
    fn the_trouble_of_a_server_whose_items_are_none_is_shown_as_long_as_it_lasts() {
        let (_history, _replays, mut streams) = caught_up();
        streams.server_trouble = Some("something else".to_owned());
        let header = Header { kind: Kind::Events, items: 2, epoch: 7, sequence: 0 };
        assert!(streams.past(None, &header, &[0; 30], &mut |_| panic!("it has no event")).is_err());
        assert_eq!(streams.standing().trouble, Some("something else"));
        let header = Header { items: 0, ..header };
        streams.past(None, &header, &[], &mut |_| panic!("it has no event")).unwrap();
        assert_eq!(streams.standing().trouble, None);
    }

    #[test]
    fn an_answer_from_before_a_plant_began_anew_does_not_make_it_another_plant() {
        let (_history, _replays, mut streams) = caught_up();
        streams.want_events(Some(0));
        assert!(streams.fetch(&mut |_| panic!("it only connects")));
        // While the answer is pending.
        let anew = of_plant(9, 100..101, super::super::replay::tests::event);
        streams.message(0, &anew, &mut |_| panic!("who knows of what")).unwrap();
        while streams.fetching.is_some() {
            streams.fetch(&mut |_| panic!("there are no more"));
        }
        assert_eq!((streams.plants.foreign, streams.wants_events), (None, Some(Some(0))));
        fetch_all(&mut streams, &mut Vec::new());
        assert_eq!((streams.plants.foreign, streams.plants.own), (Some(9), Some(7)));
    }

    #[test]
    fn another_plant_is_asked_for_again_when_the_own_one_is_silent() {
        let (_history, _replays, mut streams) = caught_up();
        (streams.plants.foreign, streams.plants.asked) = (Some(9), Some(Instant::now()));
        let theirs = of_plant(9, 100..101, super::super::replay::tests::event);
        streams.message(0, &theirs, &mut |_| panic!("it is another plant's")).unwrap();
        assert_eq!(streams.wants_events, None);
        streams.plants.asked = Instant::now().checked_sub(FOREIGN_AGAIN);
        streams.message(0, &theirs, &mut |_| panic!("who knows of what")).unwrap();
        assert_eq!((streams.plants.foreign, streams.wants_events), (None, Some(Some(0))));
    }

    #[test]
    fn a_plant_that_begins_anew_within_the_numbers_gives_a_reader_nothing_before_the_fetch() {
        use super::super::replay::tests::event;
        let (_history, _replays, mut streams) = caught_up();
        // Its journal has lost its end, and its new events have other times than the lost ones.
        let anew = |number| Event { ts_recv: tapeworks_time::Nanos(number + 1_000), ..event(number) };
        streams.message(0, &of_plant(9, 90..110, anew), &mut |_| panic!("who knows of what")).unwrap();
        assert_eq!((streams.wants_events, streams.next), (Some(Some(0)), Some(100)));
    }

    #[test]
    fn an_event_far_ahead_that_the_plant_does_not_know_is_left_out_after_one_fetch() {
        let (_history, _replays, mut streams) = caught_up();
        streams.message(0, &of_events(1 << 60..(1 << 60) + 1), &mut |_| panic!("it is far ahead")).unwrap();
        while streams.wants_events.is_none() {
            streams.look_for_holes();
        }
        fetch_all(&mut streams, &mut Vec::new());
        assert_eq!((streams.pending.len(), streams.counters.malformed), (0, 1));
        streams.look_for_holes();
        assert!(streams.hole.is_none() && streams.wants_events.is_none());
    }

    /// Runs a fetch to its end. Returns the maximum number of items per turn.
    fn fetch_all(streams: &mut Streams, numbers: &mut Vec<u64>) -> usize {
        let mut most = 0;
        while streams.wants_events.is_some() {
            let before = numbers.len();
            let is_busy = streams.fetch(&mut |item| match item {
                Item::Event(number, _) => numbers.push(number),
                Item::Symbol(_) | Item::Record(_) => panic!("no records are wanted"),
            });
            most = most.max(numbers.len() - before);
            if !is_busy {
                sleep(Duration::from_millis(1));
            }
        }
        most
    }

    #[test]
    fn a_reader_takes_a_long_past_in_turns_and_what_comes_live_meanwhile_behind_it() {
        use super::super::replay::tests::{event, served_of};
        let history = tapeworks_engine::history::MemoryHistory::default();
        history.append(&(0..100_000).map(event).collect::<Vec<_>>());
        let (replays, _queue) = served_of(history.clone(), "right");
        let mut streams = patient(&replays);
        // The status arrives first, and the server is asked.
        streams.event_status(7, 100_000);
        assert!(streams.fetch(&mut |_| panic!("it only connects")));
        // More live events arrive than can wait.
        for first in (100_000..170_000).step_by(10) {
            streams.message(0, &of_events(first..first + 10), &mut |_| panic!("it is not its turn")).unwrap();
        }
        assert_eq!(
            (streams.pending.len(), streams.counters.set_aside),
            (MOST_PENDING, 70_000 - MOST_PENDING as u64)
        );
        let mut numbers = Vec::new();
        let most = fetch_all(&mut streams, &mut numbers);
        assert!(most <= MOST_PENDING + 1_024 * 18, "a turn gave {most} events");
        let live = 100_000 + MOST_PENDING as u64;
        assert_eq!(numbers, (0..live).collect::<Vec<_>>());
        assert!(streams.has_caught_up);
        // The second status shows that there are more.
        history.append(&(100_000..170_000).map(event).collect::<Vec<_>>());
        streams.event_status(7, 170_000);
        assert!(streams.wants_events.is_none(), "they may be under way");
        streams.event_status(7, 170_000);
        assert!(fetch_all(&mut streams, &mut numbers) <= 1_024 * 18);
        assert_eq!(numbers, (0..170_000).collect::<Vec<_>>());
        assert_eq!((streams.counters.gaps, streams.counters.filled, streams.counters.lost_events), (1, 1, 0));
    }

    #[test]
    fn a_patient_reader_ends_when_the_plant_has_another_journal() {
        use super::super::replay::tests::{event, served_of};
        let history = tapeworks_engine::history::MemoryHistory::default();
        history.append(&(0..100).map(event).collect::<Vec<_>>());
        let (replays, _queue) = served_of(history, "right");
        let mut streams = streams(true, None);
        streams.options.server = Some(replays.address());
        streams.options.token = "right".to_owned();
        streams.options.is_patient = true;
        // Event 49 of that journal was received at 50.
        (streams.next, streams.time) = (Some(50), 51);
        streams.wants_events = Some(None);
        while streams.other_journal.is_none() {
            if !streams.fetch(&mut |_| panic!("these are other events")) {
                sleep(Duration::from_millis(1));
            }
        }
        assert_eq!((streams.next, streams.counters.lost_gaps), (Some(50), 0));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_patient_reader_waits_for_the_authority_of_its_server_and_goes_on() {
        use super::super::replay::tests::{event, served_by};
        use super::super::tls_tests::{acceptor, authority};
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (authority(folder.path(), "ours"), authority(folder.path(), "theirs"));
        let history = tapeworks_engine::history::MemoryHistory::default();
        history.append(&(0..100).map(event).collect::<Vec<_>>());
        let (replays, _queue) = served_by(acceptor(&ours, Some(&ours)), history, "right");
        let mut streams = streams(true, None);
        streams.options.server = Some(replays.address());
        streams.options.connector = theirs.connector(Some((&ours, "reader")));
        streams.options.token = "right".to_owned();
        streams.options.is_patient = true;
        (streams.next, streams.wants_events) = (Some(0), Some(None));
        while streams.standing().trouble.is_none() {
            streams.fetch(&mut |_| panic!("it trusts another server"));
            sleep(Duration::from_millis(1));
        }
        let trouble = streams.standing().trouble.unwrap().to_owned();
        assert!(trouble.starts_with("no TLS with the replay server 127.0.0.1:"), "{trouble}");
        std::fs::copy(ours.path("authority.pem"), theirs.path("authority.pem")).unwrap();
        let mut numbers = Vec::new();
        fetch_all(&mut streams, &mut numbers);
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        assert_eq!(streams.standing().trouble, None);
    }

    #[test]
    fn a_stream_of_the_nbbo_keeps_what_comes_behind_a_gap_until_it_is_filled() {
        let of_records = |sequence, numbers: [u64; 2]| {
            let mut draft = message::Draft::begin(Vec::new(), Kind::Records, 7, sequence);
            numbers.into_iter().for_each(|number| draft.put_record(Key { number, place: 0 }, &[16; 64]));
            draft.finish()
        };
        let mut streams = streams(false, Some(0));
        streams.options.server = Some(([127, 0, 0, 1], 9).into());
        let mut items = 0;
        let mut each = |_: Item<'_>| items += 1;
        streams.message(0, &of_records(0, [1, 2]), &mut each).unwrap();
        streams.message(0, &of_records(2, [5, 6]), &mut each).unwrap();
        streams.message(0, &of_records(3, [7, 8]), &mut each).unwrap();
        // Another gap: the messages after it are fetched after the first one.
        streams.message(0, &of_records(9, [20, 21]), &mut each).unwrap();
        assert_eq!((streams.counters.items, streams.streams[0].held.len()), (2, 2));
        assert_eq!(streams.counters.set_aside, 2);
        streams.records_fetched(0, Ok(()), &mut each);
        assert_eq!((streams.counters.items, streams.counters.filled), (6, 1));
        let (gap, last) = (streams.streams[0].gap, streams.streams[0].last);
        assert_eq!(
            (gap.map(|gap| gap.missing), last.map(|(key, _)| key.number)),
            (Some(Missing::Unknown), Some(8))
        );
        assert_eq!(items, 6);
    }
}
