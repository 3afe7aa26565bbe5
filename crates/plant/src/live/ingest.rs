//! The thread that lines come in on.
//!
//! A turn: what every line has (one `recvmmsg` each), in the order of the kernel's receive times; each datagram into the
//! journal's queue, through the engine, and its events into the ring. Then what is due: timers, requests to servers, answers of
//! the snapshot threads.
//!
//! Cost: the kernel's calls, shared by what they bring; per datagram the engine, a place in the journal's queue and one
//! publication in the ring; per turn one read of the clock.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapeworks_feed::live::{Ask, LiveChannel};
use tapeworks_flow::graph::Wait;
use tapeworks_market::{Event, EventKind, Line, Nanos};
use tapeworks_packet::capture::LinkType;
use tapeworks_packet::live::{MAX_BATCH, Received, UdpOptions, UdpReceiver};
use tapeworks_packet::pool::{Packet, Pool};
use tapeworks_ring::disruptor::Producer;
use tapeworks_ring::spsc;
use tapeworks_store::journal::Opened;

use super::checkpoint;
use super::engine::Engine;
use super::journal::{self, JournalReplayed};
use super::records::{Owned, Queued};
use super::shared::MarketStage;
use super::snapshots::{Asks, Wanted};
use super::status::{ChannelStatus, DelayPoint, LineStatus, Status};
use super::waiting::Waiting;
use super::{PlantError, PlantFailure, PlantOptions, now};

/// Datagrams without headers have no link type; this is one of those that are nobody's.
const BARE: LinkType = LinkType(147);

/// Above so many sockets the kernel is asked which have something, instead of asking each.
const MOST_ASKED_EACH: usize = 4;

/// How often the status is told.
const TELL: Duration = Duration::from_millis(200);

/// How long a thread that may sleep looks for packets in vain before it does.
const LOOK: Duration = Duration::from_micros(50);

/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(10);

/// Chunks of snapshots that may wait for ingest.
const ANSWERS: usize = 64;

/// Points of the curve of delays: ten minutes.
const DELAY_POINTS: usize = 600;

/// Delays longer than this count as this long, in ns.
const LONGEST_DELAY: u64 = 60_000_000_000;

/// A socket of a channel.
struct LineReceiver {
    receiver: UdpReceiver,
    address: SocketAddr,
    channel: u16,
    line: Line,
    too_long: u64,
    buffer_bytes: usize,
}

/// A datagram that was received in this turn.
struct Arrived {
    received: Nanos,
    channel: u16,
    line: Line,
    packet: Packet,
}

/// Delays from the receive time to the publication.
struct Delays {
    all: Histogram<u64>,
    second: Histogram<u64>,
    since: Instant,
    points: Vec<DelayPoint>,
}

impl Delays {
    #[expect(clippy::expect_used, reason = "the bounds are constants within the histogram's own")]
    fn new() -> Self {
        let empty =
            || Histogram::new_with_bounds(1, LONGEST_DELAY, 3).expect("1 < bound and 3 digits are valid");
        Self { all: empty(), second: empty(), since: Instant::now(), points: Vec::new() }
    }

    #[inline]
    fn record(&mut self, delay_ns: u64, messages: u64) {
        self.second.saturating_record_n(delay_ns, messages);
    }

    fn end_of_second(&mut self, now: Nanos) {
        self.since = Instant::now();
        let at = |quantile| self.second.value_at_quantile(quantile);
        if self.points.len() == DELAY_POINTS {
            self.points.remove(0);
        }
        self.points.push(DelayPoint {
            time: now,
            messages: self.second.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: self.second.max(),
        });
        // Of one shape, so that adding cannot fail.
        let _same_shape = self.all.add(&self.second);
        self.second.reset();
    }

    fn of_all(&self) -> [u64; 5] {
        let at = |quantile| self.all.value_at_quantile(quantile);
        [at(0.5), at(0.9), at(0.99), at(0.999), self.all.max()]
    }
}

/// Receives, and publishes what the engine makes of it.
pub(super) struct Ingest {
    lines: Vec<LineReceiver>,
    /// Where each channel's requests go, and the line whose socket sends them.
    servers: Vec<Option<(usize, SocketAddr)>>,
    names: Vec<String>,
    pool: Pool,
    arrived: Vec<Arrived>,
    events: Vec<Event>,
    producer: Producer<Event, Waiting>,
    journal: Option<spsc::Producer<Queued, Waiting>>,
    market: Option<MarketStage>,
    wanted: Sender<Wanted>,
    answers: Receiver<Owned>,
    status: Arc<Mutex<Status>>,
    wait: Wait,
    delays: Delays,
    stalls: u64,
    ring_highest: usize,
    unsent_requests: u64,
    snapshot_every: Option<Duration>,
    snapshot_taken: Instant,
}

impl Ingest {
    /// Opens the lines.
    pub(super) fn open(
        options: &PlantOptions,
        producer: Producer<Event, Waiting>,
        journal: Option<spsc::Producer<Queued, Waiting>>,
        market: Option<MarketStage>,
        status: Arc<Mutex<Status>>,
    ) -> Result<(Self, Asks), PlantError> {
        let mut lines = Vec::new();
        let mut servers = Vec::new();
        for (channel, venue) in options.venues.iter().enumerate() {
            let channel = channel as u16;
            for (address, line) in venue.lines.iter().zip([Line::A, Line::B]) {
                lines.push(open_line(options, &venue.name, *address, channel, line)?);
            }
            servers.push(match venue.retransmission {
                Some(server) => {
                    let any = SocketAddr::new(
                        if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() },
                        0,
                    );
                    lines.push(open_line(options, &venue.name, any, channel, Line::Recovery)?);
                    Some((lines.len() - 1, server))
                }
                None => None,
            });
        }
        let (wanted, wanted_out) = channel();
        let (answers_in, answers) = sync_channel(ANSWERS);
        let now = now();
        {
            let mut first = status.lock().unwrap_or_else(PoisonError::into_inner);
            (first.time, first.started, first.ring_capacity) = (now, now, producer.capacity());
        }
        let ingest = Self {
            lines,
            servers,
            names: options.venues.iter().map(|venue| venue.name.clone()).collect(),
            pool: Pool::new(options.receive.buffers.max(2 * MAX_BATCH), options.receive.datagram_bytes),
            arrived: Vec::with_capacity(1_024),
            events: Vec::with_capacity(4_096),
            producer,
            journal,
            market,
            wanted,
            answers,
            status,
            wait: options.wait,
            delays: Delays::new(),
            stalls: 0,
            ring_highest: 0,
            unsent_requests: 0,
            snapshot_every: options.journal.as_ref().and_then(|journal| journal.snapshot_every),
            snapshot_taken: Instant::now(),
        };
        Ok((ingest, Asks { wanted: wanted_out, answers: answers_in }))
    }

    /// Brings the engine to where the journal ends. What comes of it goes into the ring and the books as if it came now.
    pub(super) fn replay(
        &mut self,
        engine: &mut Engine,
        folder: &Path,
        opened: &Opened,
        from: Option<u64>,
    ) -> Result<JournalReplayed, PlantError> {
        let mut gone = Ok(());
        let replayed = journal::replay(engine, folder, opened, from, |events| {
            gone = std::mem::replace(&mut gone, Ok(())).and_then(|()| self.publish(events));
            events.clear();
            Ok(())
        })?;
        // Whoever is gone from the ring is met again, and told of, at the first live event.
        let _met_again = gone;
        self.tell(engine);
        Ok(replayed)
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self, mut engine: Engine, stop: &AtomicBool) -> Result<(), PlantFailure> {
        let mut told = Instant::now();
        let mut quiet_since = Instant::now();
        loop {
            let taken = self.turn(&mut engine)?;
            if taken > 0 {
                quiet_since = Instant::now();
                if told.elapsed() < TELL {
                    continue;
                }
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.tell(&engine);
                self.keep_state(&engine);
                if stop.load(Ordering::Acquire) {
                    return Ok(());
                }
            }
            if taken == 0 {
                if let Some(market) = &mut self.market {
                    market.warm_up();
                }
                self.rest(&engine, quiet_since);
                if stop.load(Ordering::Acquire) {
                    self.tell(&engine);
                    return Ok(());
                }
            }
        }
    }

    /// Hands the state to the journal's thread, when it is time for that.
    #[cold]
    fn keep_state(&mut self, engine: &Engine) {
        let is_due = self.snapshot_every.is_some_and(|every| self.snapshot_taken.elapsed() >= every);
        let (true, Some(journal), Some(market)) = (is_due, &mut self.journal, &self.market) else { return };
        let began = Instant::now();
        self.snapshot_taken = began;
        let encoded = checkpoint::encode(engine, market.image());
        let pause = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match encoded {
            Ok(bytes) => {
                // A queue that is full has better to do; the next is due soon enough.
                let queued = Queued::State { bytes, events: engine.counters().events };
                if journal.try_push(queued).is_ok() {
                    status.snapshots.taken += 1;
                    status.snapshots.pause_ns = pause;
                }
            }
            Err(error) => status.snapshots.error = Some(error),
        }
    }

    /// Nothing was there: waits as the configuration says.
    fn rest(&mut self, engine: &Engine, quiet_since: Instant) {
        match self.wait {
            Wait::BusySpin => std::hint::spin_loop(),
            Wait::Yielding => std::thread::yield_now(),
            Wait::Backoff | Wait::Park => {
                if quiet_since.elapsed() < LOOK {
                    std::hint::spin_loop();
                    return;
                }
                let due = engine
                    .feed()
                    .deadline()
                    .map_or(SLEEP, |deadline| Duration::from_nanos(deadline.since(now())).min(SLEEP));
                // A snapshot's answers come by another way than sockets.
                let longest = if engine.feed().channels().iter().any(LiveChannel::is_awaiting_snapshot) {
                    due.min(Duration::from_millis(1))
                } else {
                    due
                };
                self.ready(longest);
            }
        }
    }

    /// The places of the sockets that have something, waiting for it at most so long. All, when the kernel does not say.
    fn ready(&self, longest: Duration) -> Vec<usize> {
        let mut sockets: Vec<PollFd<'_>> =
            self.lines.iter().map(|line| PollFd::new(&line.receiver, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(longest).ok();
        match poll(&mut sockets, timeout.as_ref()) {
            Ok(_) => (0..sockets.len()).filter(|at| !sockets[*at].revents().is_empty()).collect(),
            Err(_) => (0..sockets.len()).collect(),
        }
    }

    /// One turn. Returns how many inputs there were.
    fn turn(&mut self, engine: &mut Engine) -> Result<usize, PlantFailure> {
        self.receive()?;
        let mut taken = self.arrived.len();
        let mut arrived = std::mem::take(&mut self.arrived);
        for Arrived { received, channel, line, packet } in arrived.drain(..) {
            self.input(engine, Owned::Packet { channel, line, received, packet })?;
        }
        self.arrived = arrived;
        if engine.feed().channels().iter().any(LiveChannel::is_awaiting_snapshot) {
            while let Ok(answer) = self.answers.try_recv() {
                self.input(engine, answer)?;
                taken += 1;
            }
        }
        if let Some(deadline) = engine.feed().deadline() {
            let now = now();
            if deadline <= now {
                self.input(engine, Owned::Tick { now })?;
                taken += 1;
            }
        }
        while let Some(ask) = engine.take_ask() {
            self.send(ask);
        }
        Ok(taken)
    }

    /// Takes what the sockets have.
    fn receive(&mut self) -> Result<(), PlantFailure> {
        let ready: Vec<usize> = if self.lines.len() > MOST_ASKED_EACH {
            self.ready(Duration::ZERO)
        } else {
            (0..self.lines.len()).collect()
        };
        let mut sockets = 0;
        for at in ready {
            let Some(from) = self.lines.get_mut(at) else { continue };
            let (arrived, too_long) = (&mut self.arrived, &mut from.too_long);
            let (channel, line) = (from.channel, from.line);
            let received = from.receiver.receive(&mut self.pool, MAX_BATCH, 0, |received| match received {
                Received::Packet(packet) => {
                    let received = Nanos(packet.description().timestamp_ns);
                    arrived.push(Arrived { received, channel, line, packet });
                }
                Received::TooLong => *too_long += 1,
            });
            match received {
                Ok(count) => sockets += usize::from(count > 0),
                // The answer to a request came back as "nobody is there": the request goes unanswered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(source) => {
                    let venue = self.names.get(usize::from(channel)).cloned().unwrap_or_default();
                    return Err(PlantFailure::Receive { venue, address: from.address, source });
                }
            }
        }
        if sockets > 1 {
            self.arrived.sort_by_key(|arrived| arrived.received);
        }
        Ok(())
    }

    /// One input: into the journal's queue, through the engine, into the ring.
    #[inline]
    fn input(&mut self, engine: &mut Engine, owned: Owned) -> Result<(), PlantFailure> {
        let mut events = std::mem::take(&mut self.events);
        engine.input(&owned.input(), &mut events);
        let received = owned.input().time();
        if let Some(journal) = &mut self.journal {
            // Before its events are published: see `Keeper::run`.
            if let Err(full) = journal.try_push(Queued::Input(owned)) {
                self.stalls += 1;
                // Closed means that the keeper has failed, and tells why itself.
                if journal.push(full.into_inner()).is_err() {
                    self.journal = None;
                }
            }
        }
        let published = self.publish(&events);
        if !events.is_empty() {
            let messages = events.iter().filter(|event| is_message(event)).count() as u64;
            self.delays.record(now().since(received), messages);
        }
        events.clear();
        self.events = events;
        published
    }

    /// Publishes events, and applies them where ingest has the books.
    #[inline]
    fn publish(&mut self, events: &[Event]) -> Result<(), PlantFailure> {
        for piece in events.chunks(self.producer.capacity() / 8) {
            if self.producer.capacity() - self.producer.fill() < piece.len() {
                self.stalls += 1;
            }
            self.producer
                .publish_batch(piece.len(), |at, slot| *slot = piece[at])
                .map_err(PlantFailure::Ring)?;
            if let Some(market) = &mut self.market {
                market.apply(piece);
            }
        }
        Ok(())
    }

    /// Asks a server.
    #[cold]
    fn send(&mut self, ask: Ask) {
        match ask {
            Ask::Retransmission { channel, request } => {
                let server = self.servers.get(usize::from(channel)).copied().flatten();
                let sent = server.map(|(line, server)| {
                    self.lines.get(line).map(|line| line.receiver.send_to(&request.encode(), server))
                });
                if !matches!(sent, Some(Some(Ok(())))) {
                    self.unsent_requests += 1;
                }
            }
            Ask::Snapshot { channel, session, attempt } => {
                // Without the thread nobody answers, and the attempt is over after its time.
                let _nobody = self.wanted.send(Wanted { channel, session, attempt });
            }
        }
    }

    /// Tells the status.
    #[cold]
    fn tell(&mut self, engine: &Engine) {
        let now = now();
        if self.delays.since.elapsed() >= Duration::from_secs(1) {
            self.delays.end_of_second(now);
        }
        let fill = self.producer.fill();
        self.ring_highest = self.ring_highest.max(fill);
        let channels = engine
            .feed()
            .channels()
            .iter()
            .enumerate()
            .map(|(at, channel)| {
                let lines = self.lines.iter_mut().filter(|line| usize::from(line.channel) == at);
                channel_status(channel, lines)
            })
            .collect();
        let feed = engine.feed().feed();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.time = now;
        status.channels = channels;
        status.messages = feed.messages();
        status.events = engine.counters().events;
        status.symbols = feed.instruments().len();
        status.problems = feed.problems().total;
        status.ring_fill = fill;
        status.ring_highest = self.ring_highest;
        status.stalls = self.stalls;
        status.delays.clone_from(&self.delays.points);
        status.delay = self.delays.of_all();
        if let Some(market) = &self.market {
            market.tell(&mut status);
            drop(status);
            market.show();
        }
    }
}

/// Whether an event stands for a message of a venue.
const fn is_message(event: &Event) -> bool {
    !matches!(
        event.kind,
        EventKind::SymbolMapping | EventKind::Gap | EventKind::Recovered | EventKind::ImbalancePrices
    )
}

fn open_line(
    options: &PlantOptions,
    venue: &str,
    address: SocketAddr,
    channel: u16,
    line: Line,
) -> Result<LineReceiver, PlantError> {
    let udp = UdpOptions {
        listen: address,
        interface: options.receive.interface,
        receive_buffer_bytes: options.receive.buffer_bytes,
        with_headers: false,
        busy_poll_us: options.receive.busy_poll_us,
    };
    let failed = |source| PlantError::Listen { venue: venue.to_owned(), address, source };
    let receiver = UdpReceiver::open(udp, BARE).map_err(failed)?;
    let buffer_bytes = receiver.receive_buffer_bytes().map_err(failed)?;
    Ok(LineReceiver { address: receiver.local_address(), receiver, channel, line, too_long: 0, buffer_bytes })
}

fn channel_status<'l>(
    channel: &LiveChannel,
    lines: impl Iterator<Item = &'l mut LineReceiver>,
) -> ChannelStatus {
    let arbiter = channel.arbiter();
    let counters = arbiter.lines();
    ChannelStatus {
        name: channel.options().name.clone(),
        publisher: channel.options().publisher,
        session: arbiter.session().map(|session| session.to_string()).unwrap_or_default(),
        next: arbiter.next(),
        counters: *arbiter.counters(),
        snapshots: *channel.snapshots(),
        lines: lines
            .map(|line| LineStatus {
                address: line.address,
                counters: counters[usize::from(line.line as u8).min(2)],
                is_silent: arbiter.is_line_silent(line.line),
                kernel_drops: line.receiver.ask_for_drops(),
                too_long: line.too_long,
                buffer_bytes: line.buffer_bytes,
            })
            .collect(),
        is_recovering: arbiter.is_recovering(),
        is_joining: arbiter.is_joining(),
        is_silent: arbiter.is_silent(),
        is_stale: channel.is_stale(),
    }
}
