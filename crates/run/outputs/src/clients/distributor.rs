//! Distributes records to clients, each at its own speed.
//!
//! One thread owns a [`Distributor`]. It calls [`Distributor::events`] with the engine's events and [`Distributor::serve`] as often
//! as it can; neither blocks. A record is made once per schema. Clients that subscribe to all of a schema share its bytes; for the
//! others, a table lists the subscribers by schema and instrument, so that a client costs only the records it gets.
//!
//! # Cost
//! Per event: the books and the NBBO once more (the distributor has its own replica, for snapshots), and the records of the
//! subscribed schemas. Per client and record: a copy of 56 to 520 bytes, or none for a client that takes all of a single schema.
//! Per client and turn: one system call.

mod agenda;
mod client;
mod interest;
mod lag;
mod requests;
mod subscribed;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mio::{Interest as Readiness, Token};
use tapeworks_market::event::Gap;
use tapeworks_market::{Event, InstrumentId, Symbol};
use tapeworks_store::Schema;
use tapeworks_store::live::{self, ErrorCode};
use tapeworks_time::Nanos;

use super::control::{Admitted, Authenticator, Limits, Reason, Refusal, Request, Session};
use super::replay::{Begin, Message, Replay, Selection};
use client::{Client, Clocks};
pub use client::{ClientState, ClientView};
use interest::Interest;
use tapeworks_engine::Start;
use tapeworks_engine::history::{History, HistoryError};
use tapeworks_engine::replica::{Mode, Replica, SCHEMAS, Special, place_of};
pub use tapeworks_market::BookOptions;
use tapeworks_runtime::keys::Keys;
use tapeworks_runtime::refusals::{OnRefusal, Refusals};
use tapeworks_runtime::transport::Acceptor;
use tapeworks_runtime::world::{Listener as _, Poll as _, Ready, Source as _, Stream as _, System, World};

/// A dataset that clients can subscribe to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dataset {
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// DBN's numbers of the feeds in it; empty for all feeds and the NBBO across them.
    pub publishers: Vec<u16>,
}

/// The datasets, keys and limits of a distributor.
pub struct Options {
    /// The keys.
    pub keys: Keys,
    /// The datasets.
    pub datasets: Vec<Dataset>,
    /// The limits of a session.
    pub limits: Limits,
    /// The options of the replica's books.
    pub books: BookOptions,
    /// Maximum bytes queued for one client.
    pub queue_bytes: usize,
    /// Maximum bytes of snapshots queued for all clients together. Above it, only clients that have read most of theirs get more.
    pub snapshot_bytes: usize,
    /// Work per turn for requests and snapshots, in units of about one order of a snapshot. A request, or a part of a snapshot, is
    /// finished once it has begun.
    pub turn_work: usize,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of unauthenticated connections; above it, the oldest one is closed.
    pub max_unauthenticated: usize,
    /// Maximum number of concurrent replays.
    pub max_replays: usize,
    /// A client that takes no byte of its replay or snapshot for this long is disconnected, to make room for others.
    pub replay_stall: Duration,
    /// The source of replays; without one, `start=` is refused.
    pub history: Option<Arc<dyn History>>,
    /// Receives the clients that are refused.
    pub on_refusal: Option<OnRefusal>,
    /// How clients connect: in plain text, or with TLS.
    pub acceptor: Acceptor,
}

/// The answer to a client that does not speak TLS although it must, in the form of an authentication response.
const PLAIN_CLIENT: &[u8] = b"success=0|error=this port speaks TLS, and the client does not\n";

impl Default for Options {
    /// No keys and no datasets; 16 MiB per client and 256 MiB of snapshots for all clients, 16,384 units of work per turn, 1,024
    /// connections of which 256 unauthenticated, 4 replays, each of which may stall for a minute.
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            datasets: Vec::new(),
            limits: Limits::default(),
            books: BookOptions::default(),
            queue_bytes: 16 << 20,
            snapshot_bytes: 256 << 20,
            turn_work: 1 << 14,
            max_connections: 1024,
            max_unauthenticated: 256,
            max_replays: 4,
            replay_stall: Duration::from_secs(60),
            history: None,
            on_refusal: None,
            acceptor: Acceptor::Plain,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("keys", &self.keys)
            .field("datasets", &self.datasets)
            .finish_non_exhaustive()
    }
}

/// The counters of a distributor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Events taken.
    pub events: u64,
    /// Connections accepted, or refused because there were too many.
    pub accepted: u64,
    /// Connections that could not be accepted.
    pub accept_errors: u64,
    /// Clients that authenticated.
    pub admitted: u64,
    /// Connections closed.
    pub closed: u64,
    /// Unauthenticated connections closed to make room for newer ones.
    pub evicted: u64,
    /// Sessions ended because the client was too slow.
    pub ended_slow: u64,
    /// Records queued.
    pub records: u64,
    /// Bytes written to sockets.
    pub bytes: u64,
    /// Records skipped for slow clients that chose to skip.
    pub skipped: u64,
    /// Records replaced by a later one of the same instrument.
    pub conflated: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Replays started.
    pub replays: u64,
    /// Replays that failed.
    pub replays_failed: u64,
    /// Replays that have caught up with the live stream.
    pub replays_joined: u64,
    /// Gaps sent to clients.
    pub gaps: u64,
    /// Snapshots sent completely.
    pub snapshots: u64,
    /// Work for requests and snapshots, in units of about one order of a snapshot.
    pub request_work: u64,
    /// Sessions refused, by [`Reason`].
    refused: [u64; Reason::ALL.len()],
}

impl Counters {
    /// Returns how many sessions were refused for this reason.
    pub const fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize]
    }
}

/// Why a distributor does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum DistributorError {
    /// The system cannot wait for sockets.
    #[error("cannot wait for sockets: {0}")]
    Poll(#[from] io::Error),
    /// A dataset's name is too long for the head of a stream.
    #[error(transparent)]
    Head(#[from] live::HeadError),
}

/// Events are missing, so books and records would be wrong from here on.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the events from {expected} to {first} are missing")]
pub struct MissingEvents {
    /// The number of the expected event.
    pub expected: u64,
    /// The number of the first event that came instead.
    pub first: u64,
}

/// The listener's token; a client's token is its index.
const LISTENER: Token = Token(usize::MAX);

/// The token that wakes the serving thread.
const WAKER: Token = Token(usize::MAX - 1);

/// Maximum number of sockets that one wait reports.
const MOST_READY: usize = 1_024;

/// Time for a client to read why its session ends, in ns.
const FAREWELL_NS: u64 = 5 * Nanos::SECOND;

/// The same for a client that was too slow, and may not read for a long time.
const SLOW_FAREWELL_NS: u64 = 30 * Nanos::SECOND;

/// Maximum number of evicted slow clients whose reason is kept.
const MOST_EVICTED: usize = 64;

/// How often heartbeats and timeouts are checked, in ns.
const CHECK_NS: u64 = 50_000_000;

/// How often the messages of replays are taken: at most two megabytes of one replay wait.
const REPLAY_LOOK: Duration = Duration::from_millis(1);

/// Maximum bytes per read.
const READ_BYTES: usize = 1 << 16;

/// Maximum reads per client and turn.
const READS: usize = 4;

/// Maximum bytes read from all clients per turn. The next turn continues with the next client.
const TURN_BYTES: usize = 1 << 20;

/// Maximum connections accepted per turn.
const TURN_CONNECTIONS: usize = 256;

/// Formats a channel's gap as the text of a system message.
fn gap_text(event: &Event, gap: Gap) -> String {
    let feed = event
        .publisher
        .feed()
        .map_or_else(|| format!("publisher {}", event.publisher.0), |feed| feed.dataset.to_owned());
    let (channel, last) = (event.channel, gap.first.saturating_add(gap.count.saturating_sub(1)));
    match gap.count {
        0 => format!("gap: {feed} channel {channel} is silent, whatever comes from message {} on", gap.first),
        _ => format!("gap: {feed} channel {channel}, messages {} to {last} missing", gap.first),
    }
}

/// The subscribers of a schema.
#[derive(Debug, Default)]
struct Watchers {
    /// Clients that take all of this schema and no other: they share its bytes.
    whole: Vec<usize>,
    /// Other clients that take all of this schema.
    all: Vec<usize>,
    /// By instrument.
    some: Vec<Vec<usize>>,
    /// Entries in `some`.
    entries: usize,
}

impl Watchers {
    const fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.all.is_empty() && self.entries == 0
    }

    fn enter(&mut self, instrument: usize, place: usize) {
        if self.some.len() <= instrument {
            self.some.resize_with(instrument + 1, Vec::new);
        }
        if let Some(some) = self.some.get_mut(instrument) {
            some.push(place);
            self.entries += 1;
        }
    }

    fn leave(&mut self, instrument: usize, place: usize) {
        let Some(some) = self.some.get_mut(instrument) else { return };
        let before = some.len();
        some.retain(|other| *other != place);
        self.entries -= before - some.len();
    }
}

/// A session that ended because its client was too slow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// The session.
    pub session: u64,
    /// The client's address.
    pub address: SocketAddr,
    /// The reason that it was given.
    pub reason: String,
}

/// Serves clients. See the [module](self).
pub struct Distributor<W: World = System> {
    options: Options,
    replica: Replica,
    poll: W::Poll,
    ready: Vec<Ready>,
    listener: Option<W::Listener>,
    clients: Vec<Option<Client<W>>>,
    free: Vec<usize>,
    watchers: Vec<Watchers>,
    /// Number of connections per key.
    connections: Vec<usize>,
    unauthenticated: usize,
    sessions: u64,
    now: Clocks,
    /// When times were last checked, by the steady clock.
    checked: Nanos,
    live: Arc<AtomicU64>,
    counters: Counters,
    evicted: VecDeque<Evicted>,
    refusals: Refusals,
    input: Vec<u8>,
    /// The listener may have more connections.
    has_connections: bool,
    /// The client to read first in the next turn.
    next_read: usize,
    /// The client whose request is answered first in the next turn.
    next_step: usize,
    /// Bytes of snapshots queued for all clients together, as far as this turn knows.
    snapshot_bytes: usize,
}

impl<W: World> std::fmt::Debug for Distributor<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Distributor").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// Authenticates clients: the distributor's keys, and how many connections each has.
struct Entrance<'a> {
    options: &'a Options,
    connections: &'a [usize],
}

impl Authenticator for Entrance<'_> {
    fn admit(&mut self, place: usize, dataset: &str) -> Result<(), Refusal> {
        if !self.options.datasets.iter().any(|one| one.name == dataset) {
            return Err(Refusal::UnknownDataset { dataset: dataset.to_owned() });
        }
        let key = self.options.keys.get(place).ok_or(Refusal::AuthenticationFailed)?;
        if !key.may_see(dataset) {
            return Err(Refusal::NotEntitled { dataset: dataset.to_owned() });
        }
        if self.connections.get(place).is_none_or(|connections| *connections >= key.max_connections) {
            return Err(Refusal::TooManyConnections { limit: key.max_connections, of: "the key" });
        }
        Ok(())
    }

    fn find(&self, challenge: &str, answer: &[u8; 32], bucket: &str) -> Option<usize> {
        self.options.keys.find(challenge, answer, bucket)
    }
}

impl Distributor {
    /// Creates a distributor that has seen no event.
    ///
    /// # Errors
    /// [`DistributorError`].
    pub fn new(options: Options) -> Result<Self, DistributorError> {
        Self::new_in(options)
    }
}

impl<W: World> Distributor<W> {
    /// Creates a distributor like [`Distributor::new`], in any world.
    ///
    /// # Errors
    /// [`DistributorError`].
    pub fn new_in(options: Options) -> Result<Self, DistributorError> {
        for dataset in &options.datasets {
            live::head(&dataset.name, Nanos(0), false, &mut Vec::new())?;
        }
        let mut replica = Replica::new(&options.books);
        for schema in Schema::ALL {
            replica.set_mode(schema, Mode::idle(schema));
        }
        let refusals = Refusals::new("client", options.on_refusal.clone());
        Ok(Self {
            connections: vec![0; options.keys.len()],
            replica,
            options,
            poll: W::Poll::new(MOST_READY)?,
            ready: Vec::with_capacity(MOST_READY),
            listener: None,
            clients: Vec::new(),
            free: Vec::new(),
            watchers: (0..SCHEMAS).map(|_| Watchers::default()).collect(),
            unauthenticated: 0,
            sessions: 0,
            now: Clocks::default(),
            checked: Nanos(0),
            evicted: VecDeque::new(),
            live: Arc::new(AtomicU64::new(0)),
            counters: Counters::default(),
            refusals,
            input: vec![0; READ_BYTES],
            has_connections: false,
            next_read: 0,
            next_step: 0,
            snapshot_bytes: 0,
        })
    }

    /// Accepts connections on this listener from now on.
    ///
    /// # Errors
    /// If the system cannot wait for the listener.
    pub fn listen(&mut self, mut listener: W::Listener) -> io::Result<()> {
        listener.register(&self.poll, LISTENER, Readiness::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Continues from a state as if it had processed every event before it. Must be called before the first event.
    pub(super) fn restore(&mut self, start: Start) {
        self.replica.restore(start);
        self.live.store(self.replica.market.next, Ordering::Release);
    }

    /// Returns the number of the next event, which is the number of events processed.
    pub const fn next_event(&self) -> u64 {
        self.replica.market.next
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns a waker that interrupts the wait of [`Distributor::serve`].
    ///
    /// # Errors
    /// The operating system's error. There can be only one waker.
    pub fn waker(&self) -> io::Result<W::Waker> {
        self.poll.waker(WAKER)
    }

    /// Returns every connection.
    pub fn clients(&self) -> Vec<ClientView> {
        self.clients.iter().flatten().map(|client| client.view(self.now, &self.options.keys)).collect()
    }

    /// Returns the bytes queued for all clients together.
    pub fn queued_bytes(&self) -> usize {
        self.clients.iter().flatten().map(Client::waiting).sum()
    }

    /// Processes events; `first` is the number of the first one. Events that were already processed are skipped.
    ///
    /// # Errors
    /// [`MissingEvents`] if events are missing before `first`; nothing is processed then.
    pub fn events(&mut self, first: u64, events: &[Event], now: Nanos) -> Result<(), MissingEvents> {
        self.now.wall = self.now.wall.max(now);
        let expected = self.replica.market.next;
        let Some(known) = expected.checked_sub(first) else { return Err(MissingEvents { expected, first }) };
        let mut rest = usize::try_from(known).ok().and_then(|known| events.get(known..)).unwrap_or_default();
        self.counters.events += rest.len() as u64;
        while !rest.is_empty() {
            let event = self.replica.market.next;
            let (taken, special) = self.replica.advance(rest);
            if taken == 0 {
                break;
            }
            rest = rest.get(taken..).unwrap_or_default();
            if let Some(Special::Mapping(instrument, symbol)) = special {
                self.instrument_appears(event, instrument, symbol);
            }
            self.distribute();
            if let Some(Special::Gap(gap_event, gap)) = special {
                self.send_gap(event, &gap_event, gap);
            }
        }
        self.live.store(self.replica.market.next, Ordering::Release);
        Ok(())
    }

    /// Ends the events: records that waited for the end of their group are sent as they are.
    pub fn finish(&mut self) {
        self.replica.release();
        self.distribute();
    }

    /// Shuts down the sending side of every connection.
    pub fn hang_up(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            // A client that has left needs no message.
            let _ = client.transport.finish();
        }
    }

    /// Returns how long [`Distributor::serve`] may wait, at most `longest`. It must not wait if a turn has left bytes to read or
    /// write, because readiness is reported once, and only briefly while a replay runs, because the replay's thread does not wake
    /// this one.
    pub fn patience(&self, longest: Duration) -> Duration {
        if self.has_connections || self.clients.iter().flatten().any(Client::has_work) || self.has_steps() {
            return Duration::ZERO;
        }
        let room = self.options.queue_bytes / 2;
        let is_fed = |client: &Client<W>| client.replay.is_some() && client.queued() < room;
        if self.clients.iter().flatten().any(is_fed) { longest.min(REPLAY_LOOK) } else { longest }
    }

    /// Returns the most recent sessions that ended because their clients were too slow.
    pub fn evicted(&self) -> Vec<Evicted> {
        self.evicted.iter().cloned().collect()
    }

    /// Returns whether there are connections.
    pub fn has_clients(&self) -> bool {
        self.clients.iter().any(Option::is_some)
    }

    /// Returns whether all clients have received everything.
    pub fn is_idle(&self) -> bool {
        self.clients.iter().flatten().all(Client::has_all)
    }

    fn client(&mut self, place: usize) -> Option<&mut Client<W>> {
        self.clients.get_mut(place)?.as_mut()
    }

    /// Queues the new records for their subscribers.
    fn distribute(&mut self) {
        if !self.replica.has_records() {
            return;
        }
        let (now, limit) = (self.now.wall, self.options.queue_bytes);
        let mut has_picky = false;
        for (of_schema, watchers) in self.watchers.iter().enumerate() {
            let Some(made) = self.replica.by_schema.get(of_schema).filter(|made| !made.batch.is_empty())
            else {
                continue;
            };
            has_picky |= !watchers.all.is_empty() || watchers.entries > 0;
            let mut shared: [Option<Bytes>; 2] = [None, None];
            for place in &watchers.whole {
                let Some(client) = self.clients.get_mut(*place).and_then(Option::as_mut) else { continue };
                if !client.takes_whole(of_schema, &made.batch, limit) {
                    for item in made.batch.items() {
                        client.deliver(
                            of_schema,
                            item,
                            made.batch.record(item),
                            now,
                            limit,
                            &mut self.counters,
                        );
                    }
                    continue;
                }
                let Some(bytes) = shared.get_mut(usize::from(client.has_ts_out())) else { continue };
                let bytes =
                    bytes.get_or_insert_with(|| client::shared(&made.batch, client.has_ts_out(), now));
                client.take_whole(bytes, made.batch.items().len() as u64, &mut self.counters);
            }
        }
        if has_picky {
            let Self { replica, watchers, clients, counters, .. } = self;
            replica.in_order(|of_schema, place| {
                let (Some(watchers), Some(made)) =
                    (watchers.get(of_schema), replica.by_schema.get(of_schema))
                else {
                    return;
                };
                let Some(item) = made.batch.items().get(place) else { return };
                let some = watchers.some.get(item.instrument.index()).map_or(&[][..], Vec::as_slice);
                for place in watchers.all.iter().chain(some) {
                    if let Some(client) = clients.get_mut(*place).and_then(Option::as_mut) {
                        client.deliver(of_schema, item, made.batch.record(item), now, limit, counters);
                    }
                }
            });
        }
        self.replica.clear();
    }

    /// Sends an instrument's mapping to the subscribers of its records.
    fn instrument_appears(&mut self, event: u64, instrument: InstrumentId, symbol: Symbol) {
        let now = self.replica.market.now;
        for place in 0..self.clients.len() {
            let Some(client) = self.client(place).filter(|client| client.is_started()) else { continue };
            let is_replaying = client.replay.is_some();
            let (wanting, by_schema) = client.subscribed.resolve(event, instrument, symbol, is_replaying);
            if let Some(wanting) = wanting {
                client.send_mapping(wanting, now, instrument, symbol);
            }
            let is_changed = !by_schema.is_empty();
            for of_schema in by_schema {
                if let Some(watchers) = self.watchers.get_mut(of_schema) {
                    watchers.enter(instrument.index(), place);
                }
            }
            if is_changed {
                self.set_modes();
            }
        }
    }

    fn send_gap(&mut self, number: u64, event: &Event, gap: Gap) {
        let text = gap_text(event, gap);
        for client in self.clients.iter_mut().flatten() {
            client.report_live_gap(number, event, &text, self.options.queue_bytes, &mut self.counters);
        }
    }

    /// Accepts a connection from `address`.
    ///
    /// # Errors
    /// If the system cannot wait for the connection, or has no random numbers.
    pub fn accept(&mut self, mut stream: W::Stream, address: SocketAddr) -> io::Result<()> {
        self.counters.accepted += 1;
        let open = self.clients.iter().flatten().count();
        if open >= self.options.max_connections {
            let refusal =
                Refusal::TooManyConnections { limit: self.options.max_connections, of: "[clients]" };
            // The buffer of a new socket is empty, so it has room for the refusal.
            let _ = io::Write::write(&mut stream, Session::refusal(&refusal).as_bytes());
            self.counters.closed += 1;
            self.refused(address, &refusal);
            return Ok(());
        }
        if self.unauthenticated >= self.options.max_unauthenticated {
            self.evict_oldest_unauthenticated();
        }
        let mut challenge = [0; 16];
        W::random(&mut challenge)?;
        // Without this option the client is only served a little later.
        let _ = stream.set_nodelay(true);
        let mut transport = self.options.acceptor.accept(stream, PLAIN_CLIENT)?;
        let place = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        let readiness = Readiness::READABLE | Readiness::WRITABLE;
        if let Err(error) = transport.stream().register(&self.poll, Token(place), readiness) {
            self.free.push(place);
            return Err(error);
        }
        let session = Session::new(challenge, self.now.steady, self.options.limits);
        self.sessions += 1;
        self.unauthenticated += 1;
        let client = Client::new(transport, address, self.sessions, session, self.now);
        if let Some(slot) = self.clients.get_mut(place) {
            *slot = Some(client);
        }
        Ok(())
    }

    /// Closes the oldest unauthenticated connection.
    fn evict_oldest_unauthenticated(&mut self) {
        let unauthenticated = self.clients.iter().enumerate().filter_map(|(place, client)| {
            client.as_ref().filter(|client| client.key().is_none()).map(|client| (client.id(), place))
        });
        if let Some((_, place)) = unauthenticated.min() {
            self.counters.evicted += 1;
            self.close(place);
        }
    }

    /// Reads, answers and writes as much as possible without blocking; waits for sockets for at most `wait`. `now` is the
    /// wall-clock time, for records and messages. `steady` is the time of a clock that cannot be set, from any origin, for
    /// heartbeats and timeouts.
    ///
    /// # Errors
    /// If the system cannot wait for sockets at all. Errors of a single client only end its connection.
    pub fn serve(&mut self, now: Nanos, steady: Nanos, wait: Duration) -> io::Result<()> {
        self.now = Clocks { wall: self.now.wall.max(now), steady: self.now.steady.max(steady) };
        self.poll.wait(&mut self.ready, Some(wait))?;
        let ready = std::mem::take(&mut self.ready);
        for ready in &ready {
            if ready.token == LISTENER {
                self.has_connections = true;
                continue;
            }
            if let Some(client) = self.client(ready.token.0) {
                client.is_writable |= ready.is_writable;
                client.is_readable |= ready.is_readable;
            }
        }
        self.ready = ready;
        if self.now.steady.since(self.checked) >= CHECK_NS {
            self.checked = self.now.steady;
            self.check_times();
            self.join_lists();
            // Retries after a lack of file descriptors, because the listener is reported only once.
            self.has_connections = true;
        }
        if self.has_connections {
            self.accept_some();
        }
        self.read_clients();
        self.answer_requests();
        for place in 0..self.clients.len() {
            if self.client(place).is_some_and(|client| client.replay.is_some()) {
                self.replay(place);
            }
            self.write(place);
        }
        Ok(())
    }

    /// Reads round-robin from clients that may have sent something, up to the turn's limit.
    fn read_clients(&mut self) {
        let (clients, mut bytes) = (self.clients.len(), 0);
        for place in (0..clients).map(|at| (self.next_read + at) % clients).collect::<Vec<_>>() {
            if !self.client(place).is_some_and(|client| client.is_readable) {
                continue;
            }
            if bytes >= TURN_BYTES {
                self.next_read = place;
                return;
            }
            bytes += self.read(place);
        }
    }

    fn accept_some(&mut self) {
        for _ in 0..TURN_CONNECTIONS {
            let Some(listener) = &self.listener else { break };
            match listener.accept() {
                Ok((stream, address)) => {
                    if self.accept(stream, address).is_err() {
                        self.counters.accept_errors += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.has_connections = false;
                    return;
                }
                Err(error) => {
                    self.counters.accept_errors += 1;
                    // A connection closed before it was accepted does not affect the next one. After another error, such as a lack
                    // of file descriptors, the listener is tried again at the next check of times.
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        self.has_connections = false;
                        return;
                    }
                }
            }
        }
        self.has_connections &= self.listener.is_some();
    }

    /// Reads from a client. Returns the number of bytes read.
    fn read(&mut self, place: usize) -> usize {
        let mut input = std::mem::take(&mut self.input);
        let mut bytes = 0;
        // The next turn reads the rest, so that a client that sends without end does not delay the others.
        for _ in 0..READS {
            let Some(client) = self.client(place) else { break };
            match client.transport.read(&mut input) {
                Ok(0) => {
                    self.lose(place, "the client closed the connection");
                    break;
                }
                Ok(count) => {
                    bytes += count;
                    self.receive(place, input.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    client.is_readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lose(place, &error);
                    break;
                }
            }
        }
        self.input = input;
        bytes
    }

    fn receive(&mut self, place: usize, bytes: &[u8]) {
        let Self { clients, options, connections, .. } = self;
        let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return };
        if client.is_leaving() {
            return;
        }
        let mut requests = Vec::new();
        let result = client.session.receive(bytes, &mut Entrance { options, connections }, &mut requests);
        for request in requests {
            if let Err(refusal) = self.answer(place, request) {
                return self.refuse(place, refusal);
            }
        }
        if let Err(refusal) = result {
            self.refuse(place, refusal);
        }
    }

    fn answer(&mut self, place: usize, request: Request) -> Result<(), Refusal> {
        match request {
            Request::Admit(admitted) => {
                self.admit(place, admitted);
                Ok(())
            }
            Request::Start => self.start(place),
            Request::Subscribe(subscription) => self.subscribe(place, subscription),
            Request::Unsubscribe(subscription) => self.end_subscription(place, subscription),
        }
    }

    fn admit(&mut self, place: usize, admitted: Admitted) {
        self.unauthenticated = self.unauthenticated.saturating_sub(1);
        self.counters.admitted += 1;
        if let Some(connections) = self.connections.get_mut(admitted.key) {
            *connections += 1;
        }
        let dataset = self.options.datasets.iter().find(|one| one.name == admitted.dataset);
        let publishers = dataset.map(|dataset| dataset.publishers.clone()).unwrap_or_default();
        if let Some(client) = self.client(place) {
            client.admit(admitted, publishers);
        }
    }

    /// Enters a client into the tables of subscribers again, after a change.
    fn watch(&mut self, place: usize) {
        self.unwatch(place);
        let Self { clients, watchers, .. } = self;
        let Some(client) = clients.get(place).and_then(Option::as_ref) else { return };
        let by_schema: Vec<(usize, &Interest)> = client.subscribed.interests().collect();
        let is_alone = by_schema.len() == 1 && client.can_share();
        for (of_schema, interest) in by_schema {
            let Some(watchers) = watchers.get_mut(of_schema) else { continue };
            if interest.is_all() {
                if is_alone {
                    watchers.whole.push(place)
                } else {
                    watchers.all.push(place)
                }
                continue;
            }
            interest.instruments().for_each(|instrument| watchers.enter(instrument, place));
        }
        self.set_modes();
    }

    /// Removes a client from the tables of subscribers. Must be called before its subscriptions change.
    fn unwatch(&mut self, place: usize) {
        let Self { clients, watchers, .. } = self;
        let Some(client) = clients.get(place).and_then(Option::as_ref) else { return };
        for (of_schema, interest) in client.subscribed.interests() {
            let Some(watchers) = watchers.get_mut(of_schema) else { continue };
            watchers.whole.retain(|other| *other != place);
            watchers.all.retain(|other| *other != place);
            interest.instruments().for_each(|instrument| watchers.leave(instrument, place));
        }
        self.set_modes();
    }

    /// Enables the schemas that have subscribers, and idles the others.
    fn set_modes(&mut self) {
        for schema in Schema::ALL {
            let is_wanted = self.watchers.get(place_of(schema)).is_some_and(|watchers| !watchers.is_empty());
            self.replica.set_mode(schema, if is_wanted { Mode::On } else { Mode::idle(schema) });
        }
    }

    fn begin_replay(&mut self, place: usize) -> Result<(), Refusal> {
        let under_way = self.clients.iter().flatten().filter(|client| client.replay.is_some()).count();
        let Self { clients, options, live, counters, .. } = self;
        let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return Ok(()) };
        let selections: Vec<Selection> = client.subscribed.selections();
        let (Some(history), false) = (&options.history, selections.is_empty()) else { return Ok(()) };
        if under_way >= options.max_replays {
            let reason = format!("{under_way} replays are under way, as many as may be: try again later");
            return Err(Refusal::Subscription { reason });
        }
        let begin = Begin {
            history: Arc::clone(history),
            books: options.books.clone(),
            selections,
            publishers: client.publishers().to_vec(),
            named: client.subscribed.known_at_start(),
            live: Arc::clone(live),
        };
        counters.replays += 1;
        match Replay::begin(begin) {
            Ok(replay) => client.replay = Some(replay),
            Err(error) => {
                counters.replays_failed += 1;
                return Err(Refusal::Subscription { reason: format!("no thread for a replay: {error}") });
            }
        }
        // Records entered before the replay began share bytes; records kept for later cannot.
        self.watch(place);
        Ok(())
    }

    /// Takes the messages of a client's replay, as long as its queue has room.
    fn replay(&mut self, place: usize) {
        let (now, limit, next) = (self.now.wall, self.options.queue_bytes, self.replica.market.next);
        loop {
            let Self { clients, counters, .. } = self;
            let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return };
            // A replay runs as fast as its client reads: it waits instead of dropping records.
            if client.queued() >= limit / 2 {
                return;
            }
            let Some(message) = client.replay.as_ref().and_then(Replay::next) else { return };
            match message {
                Message::Records { bytes, count } => client.put_records(&bytes, count, now, counters),
                Message::Symbol(time, instrument, symbol) => client.name(time, instrument, symbol, false),
                Message::Gap(event, gap) => client.report_gap(&event, &gap_text(&event, gap), counters),
                Message::Join(position) => {
                    let join = next.max(position);
                    client.subscribed.join(join);
                    if let Some(replay) = &client.replay {
                        replay.join(join);
                    }
                }
                Message::Done => {
                    counters.replays_joined += 1;
                    client.finish_replay(now, counters);
                    self.watch(place);
                    return;
                }
                Message::Failed(error) => {
                    counters.replays_failed += 1;
                    let reason = error.to_string();
                    client.replay = None;
                    let code = match error {
                        HistoryError::NotKept { .. } => ErrorCode::ReplayDataAgedOut,
                        _ => ErrorCode::InternalError,
                    };
                    return self.dismiss(place, code, &reason);
                }
            }
        }
    }

    /// Sends heartbeats, and ends sessions that are stalled, unauthenticated or past their farewell time.
    fn check_times(&mut self) {
        let (now, stall) = (self.now, self.options.replay_stall);
        let stall_ns = u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX);
        for place in 0..self.clients.len() {
            let Some(client) = self.client(place) else { continue };
            if let Err(refusal) = client.session.check_time(now.steady) {
                self.refuse(place, refusal);
                continue;
            }
            if client.is_past_farewell(now) {
                self.close(place);
                continue;
            }
            if client.is_stalled(now, stall_ns) {
                self.counters.ended_slow += 1;
                let text = format!(
                    "the client is too slow: it took nothing of its replay or snapshot for {} s",
                    stall.as_secs_f64()
                );
                self.evict(place, &text);
                continue;
            }
            if client.heartbeat(now) {
                self.counters.heartbeats += 1;
            }
        }
    }

    fn write(&mut self, place: usize) {
        let (now, limit) = (self.now, self.options.queue_bytes);
        let Self { clients, counters, .. } = self;
        let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return };
        match client.write(now, limit, counters) {
            Ok(false) => {}
            Ok(true) => {
                counters.ended_slow += 1;
                let text = format!("the client is too slow: {limit} bytes wait for it");
                self.evict(place, &text);
            }
            Err(error) => self.lose(place, &error),
        }
    }

    /// Closes a connection that the client ended. It counts as refused if the TLS handshake was not complete.
    fn lose(&mut self, place: usize, why: impl std::fmt::Display) {
        let client = self.client(place).filter(|client| !client.transport.is_agreed());
        // A client that was refused for another reason has been counted.
        if let Some(address) = client.filter(|client| !client.is_leaving()).map(|client| client.address()) {
            self.refused(address, &Refusal::NoTls { reason: why.to_string() });
        }
        self.close(place);
    }

    /// Counts a refusal and reports it, at a bounded rate.
    fn refused(&mut self, address: SocketAddr, refusal: &Refusal) {
        if let Some(count) = self.counters.refused.get_mut(refusal.reason() as usize) {
            *count += 1;
        }
        self.refusals.refused(address, refusal, self.now.steady.0);
    }

    /// Ends a client's session, and sends the reason.
    fn refuse(&mut self, place: usize, refusal: Refusal) {
        let until = self.steady_plus(FAREWELL_NS);
        let Some(client) = self.client(place) else { return };
        let address = client.address();
        let code = if refusal.reason() == Reason::Subscription {
            ErrorCode::InvalidSubscription
        } else {
            ErrorCode::Other
        };
        let text = refusal.to_string();
        if client.key().is_some() {
            // The reason follows the queued records, which may include many snapshots.
            let has_much = matches!(refusal, Refusal::TooManySnapshots { .. });
            let until = if has_much { self.steady_plus(SLOW_FAREWELL_NS) } else { until };
            self.end(place, code, &text, until);
        } else {
            client.say(&Session::refusal(&refusal));
            client.leave(until);
        }
        self.refused(address, &refusal);
    }

    const fn steady_plus(&self, ns: u64) -> Nanos {
        Nanos(self.now.steady.0.saturating_add(ns))
    }

    /// Ends the session of a client that is too slow: drops its queued records, and sends the reason.
    fn evict(&mut self, place: usize, text: &str) {
        let Some(client) = self.client(place) else { return };
        let dropped = client.drop_waiting();
        let text = format!("{text}; {dropped} bytes are dropped");
        let (session, address) = (client.id(), client.address());
        if self.evicted.len() == MOST_EVICTED {
            self.evicted.pop_front();
        }
        self.evicted.push_back(Evicted { session, address, reason: text.clone() });
        let until = self.steady_plus(SLOW_FAREWELL_NS);
        self.end(place, ErrorCode::Other, &text, until);
    }

    /// Ends the session of an admitted client with an error message.
    fn dismiss(&mut self, place: usize, code: ErrorCode, text: &str) {
        self.end(place, code, text, self.steady_plus(FAREWELL_NS));
    }

    fn end(&mut self, place: usize, code: ErrorCode, text: &str, until: Nanos) {
        let now = self.now;
        let Some(client) = self.client(place) else { return };
        // Without a head the client could not decode the error.
        if client.begin(now).is_err() {
            return self.close(place);
        }
        client.notify(|bytes| live::error(now.wall, code, text, bytes));
        self.unwatch(place);
        if let Some(client) = self.client(place) {
            client.leave(until);
        }
    }

    fn close(&mut self, place: usize) {
        self.unwatch(place);
        let Some(mut client) = self.clients.get_mut(place).and_then(Option::take) else { return };
        match client.key() {
            Some(key) => {
                if let Some(connections) = self.connections.get_mut(key) {
                    *connections = connections.saturating_sub(1);
                }
            }
            None => self.unauthenticated = self.unauthenticated.saturating_sub(1),
        }
        // Closing the socket deregisters it in any case.
        let _ = client.transport.stream().deregister(&self.poll);
        self.counters.closed += 1;
        self.free.push(place);
    }
}
