//! The output from the ring to the multicast group, with its thread and its sockets.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_market::{Event, InstrumentId, Symbol};
use tapeworks_nic::Sent;
use tapeworks_planted::planted;
use tapeworks_ring::disruptor::{Consumer, Failed, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_session::soupbintcp::{SoupClient, SoupEnd};
use tapeworks_session::{Credentials, Refusal, Sequence};
use tapeworks_store::Schema;
use tapeworks_store::live;
use tapeworks_time::Nanos;

use crate::begin::Begin;
use crate::output::Output;
use crate::reader::Reader;
use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_engine::replica::{Mode, Replica, Special};
use tapeworks_market::BookOptions;
use tapeworks_runtime::followed::FollowedFiles;
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::refusals::{OnRefusal, Refusals};
use tapeworks_runtime::transport::{Acceptor, NoTls, TlsFiles};
use tapeworks_runtime::worker::Worker;
use tapeworks_runtime::world::{
    DatagramSender as _, Listener as _, Poll as _, Ready, Source as _, Stream as _, System, UdpServer as _,
    World,
};

/// Returns the name of a session that starts at `started`: the microseconds since 1970 as ten base-36 digits. A later start has a
/// greater name, even if a killed plant is restarted immediately.
fn session_name(started: Nanos) -> [u8; 10] {
    let mut microseconds = started.0 / 1_000;
    let mut name = [b'0'; 10];
    for place in name.iter_mut().rev() {
        let digit = (microseconds % 36) as u8;
        *place = if digit < 10 { b'0' + digit } else { b'A' + digit - 10 };
        microseconds /= 36;
    }
    name
}

/// The options of a multicast output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MulticastSetting {
    /// The group and its port; a unicast address works too.
    pub group: SocketAddrV4,
    /// The address of the interface to send from.
    pub interface: Ipv4Addr,
    /// The maximum number of router hops; 0 keeps the packets on this machine.
    pub hops: u32,
    /// The UDP address that serves retransmission requests.
    pub retransmission: Option<SocketAddr>,
    /// The TCP address that serves SoupBinTCP.
    pub soupbintcp: Option<SocketAddr>,
    /// The SoupBinTCP login: user (at most 6 characters) and password (at most 10). Without it, every login is accepted.
    pub login: Option<Credentials>,
    /// The TLS files; if set, SoupBinTCP is served over TLS.
    pub tls: Option<TlsFiles>,
    /// The schemas to send.
    pub schemas: Vec<Schema>,
    /// The interval in which every symbol mapping is sent again.
    pub mappings_every: Duration,
    /// Bytes of messages, including their lengths, kept for retransmission.
    pub store_bytes: usize,
    /// Maximum number of TCP connections.
    pub max_connections: usize,
    /// How long the thread sleeps when there is nothing to do.
    pub idle_sleep: Duration,
    /// How long after the end of the session the server repeats the end, answers requests and serves TCP clients; up to ten times
    /// as long while requests arrive.
    pub linger: Duration,
}

impl MulticastSetting {
    /// Creates options that send orders and the NBBO to `group` on the loopback interface, without other servers.
    pub fn new(group: SocketAddrV4) -> Self {
        Self {
            group,
            interface: Ipv4Addr::LOCALHOST,
            hops: 1,
            retransmission: None,
            soupbintcp: None,
            tls: None,
            login: None,
            schemas: vec![Schema::Mbo, Schema::Cmbp1],
            mappings_every: Duration::from_secs(10),
            store_bytes: 256 << 20,
            max_connections: 64,
            idle_sleep: Duration::from_micros(50),
            linger: Duration::from_secs(1),
        }
    }
}

/// Why the multicast does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum MulticastError {
    /// Sending to the group is impossible.
    #[error("cannot send to {group} out of {interface}: {source}")]
    Send {
        /// The group.
        group: SocketAddrV4,
        /// The interface.
        interface: Ipv4Addr,
        /// The system's error.
        source: io::Error,
    },
    /// An address cannot be used.
    #[error("cannot listen on {address} for {what}: {source}")]
    Bind {
        /// The purpose of the address.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// TLS for SoupBinTCP cannot be set up.
    #[error(transparent)]
    Tls(#[from] NoTls),
    /// The thread cannot be started, or cannot wait for sockets.
    #[error("no thread for the multicast: {0}")]
    Thread(io::Error),
}

/// Why the multicast ended before it was stopped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum MulticastFailure {
    /// Waiting for sockets fails.
    #[error("the multicast cannot wait for sockets: {0}")]
    Poll(io::Error),
    /// Another part of the ring has failed.
    #[error("the multicast gets no more events: {0}")]
    Ring(#[from] Failed),
    /// The events of the day so far cannot be read.
    #[error("the multicast cannot begin: {0}")]
    History(#[from] HistoryError),
    /// The thread panicked.
    #[error("the multicast's thread panicked")]
    Panicked,
}

/// The counters so far.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MulticastStats {
    /// The session's name.
    pub session: String,
    /// The number of the next message.
    pub next: u64,
    /// The number of the oldest message kept.
    pub oldest: u64,
    /// Packets sent, including those without messages.
    pub packets: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// Packets that the system did not accept. Their messages can be requested again.
    pub unsent: u64,
    /// The system's error for the last packet that it did not accept.
    pub error: Option<String>,
    /// Messages longer than a packet, which were skipped.
    pub too_long: u64,
    /// Retransmission requests.
    pub requests: u64,
    /// Answers to requests.
    pub answers: u64,
    /// Messages in the answers.
    pub answered_messages: u64,
    /// Refused requests: for messages that are no longer kept (answered with the number of the oldest one) or not sent yet, of
    /// another session, or malformed.
    pub refused_requests: u64,
    /// Answers that the system did not accept.
    pub unsent_answers: u64,
    /// Current TCP connections.
    pub clients: u64,
    /// TCP connections so far.
    pub connections: u64,
    /// How many of them were refused, because there were too many or they could not be set up.
    pub refused_connections: u64,
    /// Logins rejected.
    pub rejected_logins: u64,
    /// Clients disconnected because they did not keep up, or were silent for too long.
    pub slow_clients: u64,
    /// Clients disconnected because they violated the protocol.
    pub malformed_clients: u64,
    /// Messages queued for TCP clients.
    pub tcp_messages: u64,
    /// Events in the ring that are not processed yet.
    pub ring_lag: usize,
}

/// A running multicast. Dropping it stops it.
#[derive(Debug)]
pub struct Multicast<W: World = System> {
    retransmission: Option<SocketAddr>,
    soupbintcp: Option<SocketAddr>,
    stats: Arc<Mutex<MulticastStats>>,
    worker: Worker<MulticastFailure, W>,
}

impl<W: World> Multicast<W> {
    /// Returns the address that serves retransmission requests.
    pub const fn retransmission(&self) -> Option<SocketAddr> {
        self.retransmission
    }

    /// Returns the address that serves SoupBinTCP.
    pub const fn soupbintcp(&self) -> Option<SocketAddr> {
        self.soupbintcp
    }

    /// Returns the statistics, at most some tenths of a second old.
    pub fn stats(&self) -> MulticastStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a handle on [`Multicast::stats`] for another thread.
    pub fn stats_handle(&self) -> Arc<Mutex<MulticastStats>> {
        Arc::clone(&self.stats)
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Waits until the engine has ended and the end of the session was sent.
    ///
    /// # Errors
    /// [`MulticastFailure`] if the multicast failed.
    pub fn join(self) -> Result<(), MulticastFailure> {
        self.worker.join(MulticastFailure::Panicked)
    }

    /// Stops the multicast immediately, without sending the end of the session.
    ///
    /// # Errors
    /// [`MulticastFailure`] if it had failed before.
    pub fn stop(self) -> Result<(), MulticastFailure> {
        self.worker.stop(MulticastFailure::Panicked)
    }
}

/// The sockets of a multicast that is not started yet.
#[derive(Debug)]
pub struct Sockets<W: World = System> {
    sender: W::DatagramSender,
    retransmission: Option<W::UdpServer>,
    soupbintcp: Option<W::Listener>,
    acceptor: Acceptor,
}

impl<W: World> Sockets<W> {
    /// Returns the TLS files.
    pub fn files(&self) -> Option<Arc<dyn FollowedFiles>> {
        self.acceptor.files()
    }
}

/// Binds the addresses, so that an unusable one is reported before anything starts.
///
/// # Errors
/// [`MulticastError`].
pub fn bind(setting: &MulticastSetting) -> Result<Sockets, MulticastError> {
    bind_in(setting)
}

/// Binds the addresses like [`bind`], in any world.
///
/// # Errors
/// [`MulticastError`].
pub fn bind_in<W: World>(setting: &MulticastSetting) -> Result<Sockets<W>, MulticastError> {
    let MulticastSetting { group, interface, hops, .. } = *setting;
    let send = |source| MulticastError::Send { group, interface, source };
    let sender = W::DatagramSender::open(group, hops, interface).map_err(send)?;
    let bound = |what, address: SocketAddr| move |source| MulticastError::Bind { what, address, source };
    let retransmission = setting
        .retransmission
        .map(|address| W::UdpServer::bind(address).map_err(bound("retransmission", address)));
    let soupbintcp =
        setting.soupbintcp.map(|address| W::Listener::bind(address).map_err(bound("SoupBinTCP", address)));
    let acceptor = setting.tls.as_ref().map(TlsFiles::acceptor).transpose()?.unwrap_or_default();
    let (retransmission, soupbintcp) = (retransmission.transpose()?, soupbintcp.transpose()?);
    Ok(Sockets { sender, retransmission, soupbintcp, acceptor })
}

/// Starts sending the records of the events from `consumer`. `on_refusal` receives the clients and requests that are refused.
///
/// # Errors
/// [`MulticastError`].
pub fn start<W: World, S: WaitStrategy + 'static>(
    sockets: Sockets<W>,
    setting: MulticastSetting,
    books: &BookOptions,
    consumer: Consumer<Event, S, Single>,
    begin: Begin<W>,
    on_refusal: Option<OnRefusal>,
) -> Result<Multicast<W>, MulticastError> {
    let Sockets { sender, mut retransmission, mut soupbintcp, acceptor } = sockets;
    let bound = |what, address: Option<SocketAddr>| {
        move |source| MulticastError::Bind { what, address: address.unwrap_or(([0; 4], 0).into()), source }
    };
    let retransmission_at = retransmission.as_ref().map(W::UdpServer::local_addr).transpose();
    let retransmission_at = retransmission_at.map_err(bound("retransmission", setting.retransmission))?;
    let soupbintcp_at = soupbintcp.as_ref().map(W::Listener::local_addr).transpose();
    let soupbintcp_at = soupbintcp_at.map_err(bound("SoupBinTCP", setting.soupbintcp))?;
    let poll = W::Poll::new(MOST_READY).map_err(MulticastError::Thread)?;
    if let Some(socket) = &mut retransmission {
        socket.register(&poll, RETRANSMISSION, Interest::READABLE).map_err(MulticastError::Thread)?;
    }
    if let Some(listener) = &mut soupbintcp {
        listener.register(&poll, SOUPBINTCP, Interest::READABLE).map_err(MulticastError::Thread)?;
    }
    if let Some(wake_up) = &begin.wake_up {
        wake_up.is_for_poll(poll.waker(WAKER).map_err(MulticastError::Thread)?);
    }
    let mut replica = Replica::new(books);
    // Records depend on earlier events, but records from before the session are not sent.
    setting.schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::idle(*schema)));
    let stats = Arc::new(Mutex::new(MulticastStats::default()));
    let (began, idle_sleep) = (W::instant(), setting.idle_sleep);
    let group = Group::<W> {
        sequence: Sequence::new(session_name(W::time_of_day()), setting.store_bytes),
        setting,
        replica,
        is_live: false,
        message: Vec::new(),
        mappings: Vec::new(),
        mapped: 0,
        mapping_round: began,
        sender,
        quiet_since: began,
        poll,
        ready: Vec::with_capacity(MOST_READY),
        has_requests: true,
        has_callers: true,
        offered: 0,
        retransmission,
        listener: soupbintcp,
        acceptor,
        clients: BTreeMap::new(),
        next_client: FIRST_CLIENT,
        bytes: vec![0; 64 << 10],
        counters: MulticastStats::default(),
        refused_clients: Refusals::new("SoupBinTCP client", on_refusal.clone()),
        refused_requests: Refusals::new("retransmission", on_refusal),
        stats: Arc::clone(&stats),
        began,
        ticked: began,
        lingering: None,
    };
    let reader = Reader::new(group, consumer, begin, idle_sleep);
    let worker = reader.start("multicast", |_, _| {}).map_err(MulticastError::Thread)?;
    Ok(Multicast { retransmission: retransmission_at, soupbintcp: soupbintcp_at, stats, worker })
}

const RETRANSMISSION: Token = Token(0);
const SOUPBINTCP: Token = Token(1);
const WAKER: Token = Token(2);
const FIRST_CLIENT: usize = 3;

/// Maximum number of sockets that one wait reports.
const MOST_READY: usize = 128;

/// A heartbeat is sent after this much silence.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Maximum factor by which requests prolong the linger time.
const MOST_LINGERS: u32 = 10;

/// How often the end of the session is repeated while the server lingers.
const END_EVERY: Duration = Duration::from_millis(200);

/// How often the time limits of connections are checked.
const TICK: Duration = Duration::from_millis(100);

/// Maximum datagrams or connections taken from a socket per turn.
const MOST_IN_TURN: usize = 64;

/// Number of events after which packets are sent and requests answered, even if more wait.
const MOST_EVENTS: usize = 512;

#[derive(Debug)]
struct Client<W: World> {
    pump: Pump<W>,
    address: SocketAddr,
    soup: SoupClient,
}

/// A client and the messages to send to it.
struct Served<'s>(&'s mut SoupClient, &'s Sequence);

impl ByteSession for Served<'_> {
    fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        self.0.receive(bytes, self.1, now_ns);
    }

    fn fill(&mut self, now_ns: u64) {
        self.0.fill(self.1, now_ns);
    }

    fn output(&self) -> &[u8] {
        self.0.output()
    }

    fn sent(&mut self, bytes: usize, now_ns: u64) {
        self.0.sent(bytes, now_ns);
    }

    fn closed(&mut self) {
        self.0.closed();
    }

    fn is_over(&self) -> bool {
        self.0.over().is_some()
    }
}

/// The multicast group and its servers as an output.
struct Group<W: World> {
    sequence: Sequence,
    setting: MulticastSetting,
    replica: Replica,
    /// Whether records are sent.
    is_live: bool,
    message: Vec<u8>,
    mappings: Vec<(InstrumentId, Symbol)>,
    /// How many mappings were sent again in this round, and when it began.
    mapped: usize,
    mapping_round: Instant,
    sender: W::DatagramSender,
    /// When the last packet was sent.
    quiet_since: Instant,
    poll: W::Poll,
    ready: Vec<Ready>,
    /// Whether there may be retransmission requests.
    has_requests: bool,
    /// Whether there may be new connections.
    has_callers: bool,
    /// Messages before this number have been offered to the TCP clients.
    offered: u64,
    retransmission: Option<W::UdpServer>,
    listener: Option<W::Listener>,
    acceptor: Acceptor,
    clients: BTreeMap<usize, Client<W>>,
    next_client: usize,
    bytes: Vec<u8>,
    counters: MulticastStats,
    refused_clients: Refusals,
    refused_requests: Refusals,
    stats: Arc<Mutex<MulticastStats>>,
    began: Instant,
    ticked: Instant,
    /// Set when the ring has ended.
    lingering: Option<Lingering>,
}

/// The time after the end of the session in which messages can still be requested.
struct Lingering {
    began: Instant,
    until: Instant,
    /// The number of requests seen so far.
    requests: u64,
}

impl<W: World> Output for Group<W> {
    type Failure = MulticastFailure;

    fn restore(&mut self, start: Start) {
        self.mappings.extend(start.symbols().skip(self.mappings.len()));
        self.replica.restore(start);
    }

    fn events(&mut self, _first: u64, events: &[Event]) -> Result<(), MulticastFailure> {
        if !self.is_live {
            self.take(events);
            return Ok(());
        }
        for part in events.chunks(MOST_EVENTS) {
            self.take(part);
            self.send();
            // A receiver with a sequence gap holds back its records until it has the answer.
            if events.len() > MOST_EVENTS {
                self.answer();
            }
        }
        Ok(())
    }

    /// Begins the session with all known symbols.
    fn go_live(&mut self, _first: u64) {
        self.is_live = true;
        self.setting.schemas.iter().for_each(|schema| self.replica.set_mode(*schema, Mode::On));
        for place in 0..self.mappings.len() {
            self.put_mapping(place);
        }
        self.mapping_round = W::instant();
    }

    fn serve(&mut self, wait: Duration) -> Result<(), MulticastFailure> {
        self.wait(wait)?;
        if self.lingering.is_none() {
            self.pass_time();
        } else if W::since(self.quiet_since) >= END_EVERY {
            self.sequence.heartbeat();
        }
        self.send();
        let is_tick = W::since(self.ticked) >= TICK;
        if is_tick {
            self.ticked = W::instant();
            // Retries a listener that lacked file descriptors.
            self.has_callers = true;
        }
        if self.has_requests {
            self.answer();
        }
        if self.has_callers {
            self.accept();
        }
        self.serve_clients(is_tick);
        self.prolong();
        Ok(())
    }

    fn patience(&self) -> Duration {
        if self.has_work() { Duration::ZERO } else { TICK }
    }

    /// Always true, because the group's receivers are not known.
    fn is_urgent(&self) -> bool {
        true
    }

    /// Sends the waiting packets, and the end of the session.
    fn end(&mut self) {
        if !self.is_live {
            self.go_live(self.replica.market.next);
        }
        self.replica.release();
        self.put_records();
        self.sequence.end();
        self.send();
        let began = W::instant();
        let (until, requests) = (began + self.setting.linger, self.counters.requests);
        self.lingering = Some(Lingering { began, until, requests });
    }

    fn linger(&self) -> Option<Duration> {
        let lingering = self.lingering.as_ref()?;
        let wait = if self.has_work() { Duration::ZERO } else { Duration::from_millis(1) };
        (W::instant() < lingering.until).then_some(wait)
    }

    fn report(&mut self, ring_lag: usize) {
        let kept = self.sequence.kept();
        let open = self.clients.values().filter(|client| !client.pump.is_finished());
        let stats = MulticastStats {
            session: String::from_utf8_lossy(&self.sequence.session()).into_owned(),
            next: kept.end,
            oldest: kept.start,
            too_long: self.sequence.too_long(),
            clients: self.clients.len() as u64,
            tcp_messages: self.counters.tcp_messages + open.map(|client| client.soup.messages()).sum::<u64>(),
            ring_lag,
            ..self.counters.clone()
        };
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}

impl<W: World> Group<W> {
    /// Returns whether there is work that no socket will report.
    fn has_work(&self) -> bool {
        let has_new = !self.clients.is_empty() && self.offered < self.sequence.kept().end;
        has_new
            || self.has_requests
            || self.has_callers
            || self.clients.values().any(|client| client.pump.has_work(client.soup.output()))
    }

    /// Prolongs the linger time while messages are requested, up to a limit.
    fn prolong(&mut self) {
        let Some(lingering) = &mut self.lingering else { return };
        if lingering.requests != self.counters.requests {
            lingering.requests = self.counters.requests;
            let latest = lingering.began + self.setting.linger * MOST_LINGERS;
            lingering.until = (W::instant() + self.setting.linger).min(latest);
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    fn put_mapping(&mut self, place: usize) {
        if let Some((instrument, symbol)) = self.mappings.get(place) {
            self.message.clear();
            live::symbol_mapping(self.replica.market.now, *instrument, *symbol, false, &mut self.message);
            self.sequence.put(&self.message);
        }
    }

    /// Makes the records of events, and puts them into the sequence.
    fn take(&mut self, events: &[Event]) {
        let mut rest = events;
        while !rest.is_empty() {
            let (taken, special) = self.replica.advance(rest);
            if taken == 0 {
                return;
            }
            rest = rest.get(taken..).unwrap_or_default();
            if let Some(Special::Mapping(instrument, symbol)) = special {
                self.mappings.push((instrument, symbol));
                if self.is_live {
                    self.put_mapping(self.mappings.len() - 1);
                }
            }
            if self.is_live {
                self.put_records();
            } else {
                self.replica.clear();
            }
        }
    }

    fn put_records(&mut self) {
        if self.replica.has_records() {
            let Self { replica, sequence, .. } = self;
            replica.in_order(|of_schema, place| {
                let Some(made) = replica.by_schema.get(of_schema) else { return };
                if let Some(item) = made.batch.items().get(place) {
                    sequence.put(made.batch.record(item));
                }
            });
            self.replica.clear();
        }
    }

    /// Queues due messages: mappings for late receivers, and a heartbeat.
    fn pass_time(&mut self) {
        if !self.is_live {
            return;
        }
        let (every, known) = (self.setting.mappings_every, self.mappings.len());
        let elapsed = W::since(self.mapping_round);
        // Spread evenly over the interval, so that many symbols do not cause a burst.
        let part = if every.is_zero() { 1.0 } else { elapsed.as_secs_f64() / every.as_secs_f64() };
        let due = if part >= 1.0 { known } else { (known as f64 * part) as usize };
        while self.mapped < due {
            self.put_mapping(self.mapped);
            self.mapped += 1;
        }
        if part >= 1.0 {
            (self.mapped, self.mapping_round) = (0, W::instant());
        }
        self.sequence.flush();
        if self.sequence.ready().next().is_none() && W::since(self.quiet_since) >= HEARTBEAT {
            self.sequence.heartbeat();
        }
    }

    /// Sends the packets that are ready.
    fn send(&mut self) {
        self.sequence.flush();
        if self.sequence.ready().next().is_none() {
            return;
        }
        let Self { sequence, sender, counters, .. } = self;
        let mut failed = None;
        let mut lengths = sequence.ready().map(<[u8]>::len);
        sender.send(sequence.ready(), |sent| {
            let length = lengths.next().unwrap_or_default() as u64;
            match sent {
                Sent::Taken => {
                    counters.packets += 1;
                    counters.bytes += length;
                }
                other => {
                    counters.unsent += 1;
                    failed = Some(other);
                }
            }
        });
        drop(lengths);
        if let Some(failed) = failed {
            counters.error = Some(match failed {
                Sent::QueueFull => "the queue of the interface is full".to_owned(),
                Sent::TooLong => "a packet is longer than the interface takes".to_owned(),
                Sent::Failed(error) => sender.describe(error),
                _ => "refused by the system".to_owned(),
            });
        }
        sequence.clear_ready();
        self.quiet_since = W::instant();
    }

    /// Waits for sockets for at most `wait`. Readiness is reported once, and remembered until a socket has no more data.
    fn wait(&mut self, wait: Duration) -> Result<(), MulticastFailure> {
        self.poll.wait(&mut self.ready, Some(wait)).map_err(MulticastFailure::Poll)?;
        for ready in &self.ready {
            match ready.token {
                RETRANSMISSION => self.has_requests = true,
                SOUPBINTCP => self.has_callers = true,
                Token(number) => {
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.pump.note(*ready);
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves the bytes of TCP clients, and closes finished connections.
    fn serve_clients(&mut self, is_tick: bool) {
        let now_ns = self.now_ns();
        self.offered = self.sequence.kept().end;
        let Self { clients, sequence, bytes, counters, refused_clients, .. } = self;
        clients.retain(|_, client| {
            let Client { pump, address, soup } = client;
            if pump.is_finished() {
                return pump.drain(bytes, now_ns);
            }
            if is_tick {
                soup.tick(now_ns);
            }
            pump.turn(&mut Served(soup, sequence), bytes, now_ns);
            let Some(end) = soup.over() else { return true };
            counters.tcp_messages += soup.messages();
            match end {
                SoupEnd::Rejected => counters.rejected_logins += 1,
                SoupEnd::TooSlow | SoupEnd::TimedOut | SoupEnd::NoLogin => counters.slow_clients += 1,
                SoupEnd::Malformed => counters.malformed_clients += 1,
                SoupEnd::Served | SoupEnd::Left | SoupEnd::Displaced => {}
            }
            if let Some(refusal) = end.refusal() {
                refused_clients.refused(*address, &refusal, now_ns);
            }
            matches!(end, SoupEnd::Served | SoupEnd::Rejected) && pump.finish(now_ns)
        });
    }

    /// Answers retransmission requests.
    fn answer(&mut self) {
        let now_ns = self.now_ns();
        let Self {
            retransmission: Some(socket),
            has_requests,
            bytes,
            message,
            sequence,
            counters,
            refused_requests,
            ..
        } = self
        else {
            self.has_requests = false;
            return;
        };
        for _ in 0..MOST_IN_TURN {
            let (length, client) = match socket.recv_from(bytes) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    *has_requests = false;
                    return;
                }
                // The error of an earlier answer, such as a closed port.
                Err(_) => continue,
            };
            counters.requests += 1;
            // The number of messages is in the last two bytes of a request.
            if let Some([_, .., low]) = bytes.get_mut(..length)
                && *low > 0
                && planted!("multicast-answer-one-short")
            {
                *low -= 1;
            }
            match sequence.answer(bytes.get(..length).unwrap_or_default(), message) {
                Err(refusal) => {
                    counters.refused_requests += 1;
                    refused_requests.refused(client, &refusal, now_ns);
                }
                Ok(0) => {
                    // The answer states the oldest message kept.
                    counters.refused_requests += 1;
                    refused_requests.refused(client, &Refusal::NotKept, now_ns);
                    counters.unsent_answers += u64::from(socket.send_to(message, client).is_err());
                }
                Ok(count) => match socket.send_to(message, client) {
                    Ok(_) => {
                        counters.answers += 1;
                        counters.answered_messages += u64::from(count);
                    }
                    Err(_) => counters.unsent_answers += 1,
                },
            }
        }
    }

    fn accept(&mut self) {
        let now_ns = self.now_ns();
        let Some(listener) = &self.listener else {
            self.has_callers = false;
            return;
        };
        for _ in 0..MOST_IN_TURN {
            // No connection, or a lack of file descriptors: retried at the next tick.
            let Ok((mut stream, address)) = listener.accept() else {
                self.has_callers = false;
                return;
            };
            self.counters.connections += 1;
            let number = self.next_client;
            let is_full = self.clients.len() >= self.setting.max_connections;
            let both = Interest::READABLE | Interest::WRITABLE;
            if is_full || stream.register(&self.poll, Token(number), both).is_err() {
                self.counters.refused_connections += 1;
                let reason = format!("more than {} connections at once", self.setting.max_connections);
                self.refused_clients.refused(address, &reason, now_ns);
                continue;
            }
            // Without this option the client is slower, which is no reason to refuse it.
            let _ = stream.set_nodelay(true);
            self.next_client += 1;
            let soup = SoupClient::new(self.setting.login.clone(), now_ns);
            match self.acceptor.accept(stream, &[]) {
                Ok(transport) => {
                    let client = Client { pump: Pump::over(transport), address, soup };
                    self.clients.insert(number, client);
                }
                Err(error) => {
                    self.counters.refused_connections += 1;
                    self.refused_clients.refused(address, &error, now_ns);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_after_the_time_of_its_start() {
        // 2025-11-14 00:00 UTC.
        let midnight = 1_763_078_400 * Nanos::SECOND;
        let read = |name: [u8; 10]| u64::from_str_radix(std::str::from_utf8(&name).unwrap(), 36).unwrap();
        assert_eq!(read(session_name(Nanos(midnight + 1_999))), 1_763_078_400_000_001);
        let names: Vec<[u8; 10]> =
            (0..40).map(|step| session_name(Nanos(midnight + (1 << step) * 1_000))).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        // The latest representable time works too.
        session_name(Nanos(u64::MAX));
    }
}
