//! The gateway's thread: sockets, clocks, and the journal.
//!
//! ```text
//! wait ─▶ read from the venue, then from clients ─▶ write the turn to the journal ─▶ send ─▶ wait
//! ```
//!
//! Reports are read before requests. After a pause the gateway finds orders from all clients, and each order produces reports. It
//! therefore reads everything that the venue has sent, then a bounded number of bytes from clients, and nothing from clients while
//! it is ahead of the venue. Otherwise the venue would see a client that reads too slowly, and would end the session. Unread client
//! messages wait in their sockets.
//!
//! One thread does all of this. A turn that the disk refuses is retried, and nothing is read or sent in the meantime; after
//! [`HostSettings::disk_patience`] the gateway ends. Another thread creates the journal's next segment and syncs the journal by
//! interval.

mod sockets;
mod store;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Interest, Token};
use tapeworks_fix_wire::{Framing, next_message};
use tapeworks_journal::JournalError;
use tapeworks_order_session::fix::End;
use tapeworks_planted::planted;
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::refusals::{OnRefusal, Refusals};
use tapeworks_runtime::secrets::Secret;
use tapeworks_runtime::traces::{Fact, Sample, Text, Traces};
use tapeworks_runtime::transport::Acceptor;
use tapeworks_runtime::world::{
    Listener as _, Poll as _, Ready, Receive as _, SendTo as _, Source as _, Stream as _, System,
    ThreadHandle as _, Wake as _, World,
};
use thiserror::Error;

use sockets::{Accepting, Connection, LISTENER, Peer, READ_BYTES, Sockets, WAKER};
use store::{DiskThread, Store};

use crate::attempts::Attempts;
use crate::clock::{Clock, Now};
use crate::core::{Core, Notice, histogram, percentiles};
use crate::ledger::Ledger;
use crate::restore::RestoreError;
use crate::status::{Orders, Percentiles, Status};
use crate::traces::Tracer;
use crate::venue::VenueSession;

/// Bytes of entries after which a turn is written: it should fit into one record.
const TURN_BYTES: usize = 256 << 10;

/// Bytes read from all clients together per turn, plus at most one read: about 700 orders, a few milliseconds.
const CLIENT_BYTES: usize = 128 << 10;

/// Bytes read from a channel of the venue per turn. An order usually produces less than twice its own bytes, and this is eight
/// times `CLIENT_BYTES`.
const VENUE_BYTES: usize = 1 << 20;

/// Longest time without reading clients while the gateway is ahead of the venue. After that they are read, and requests for which
/// the venue's session has no room are rejected.
const LONGEST_HOLD: Duration = Duration::from_millis(500);

/// Interval between ticks of the sessions.
const TICK: Duration = Duration::from_millis(100);

/// Interval between updates of the percentiles.
const SECOND: Duration = Duration::from_secs(1);

/// Interval at which an idle thread warms the order path, if warming is enabled.
const WARM: Duration = Duration::from_millis(1);

/// Pause before a turn that the disk refused is retried.
const DISK_AGAIN: Duration = Duration::from_millis(100);

/// Maximum number of bytes in a connection's first message.
const FIRST_MESSAGE_BYTES: usize = 8 << 10;

/// Maximum number of connections accepted per turn.
const MOST_ACCEPTED: usize = 64;

/// Longest time that the sessions may take to log out when the gateway stops.
const LOG_OUT: Duration = Duration::from_secs(2);

/// How the thread waits for bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Sleeps until a socket has bytes: uses no processor time while there is nothing to do.
    #[default]
    Sleep,
    /// Polls continuously: saves a wake-up, and occupies a core.
    Spin,
}

/// Settings of the gateway's thread.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The address on which to listen for FIX clients. With port 0 the kernel chooses.
    pub listen: SocketAddr,
    /// The venue's addresses, one for each of its channels.
    pub venue: Vec<SocketAddr>,
    /// How the thread waits for bytes.
    pub wait: Wait,
    /// Whether to keep the order path in the caches by running it once a millisecond while idle.
    pub warms: bool,
    /// The core to which the thread is pinned.
    pub core: Option<usize>,
    /// Maximum number of connections, including those not yet logged on. Above it, the oldest connection that is not logged on is
    /// closed for a newer one.
    pub most_connections: usize,
    /// Longest time that a connection may take to send its first message.
    pub first_message: Duration,
    /// Longest time that the venue may take to accept a connection.
    pub venue_connect: Duration,
    /// How long the disk may refuse writes before the gateway ends.
    pub disk_patience: Duration,
    /// How FIX clients connect: in plain text or with TLS.
    pub acceptor: Acceptor,
    /// The password at the venue, if it may change while the gateway runs: each connection logs on with the current value. `None`:
    /// the session's.
    pub venue_password: Option<Secret>,
    /// Where samples of orders and of rare operations are recorded, for traces.
    pub traces: Option<Traces>,
}

/// Why the gateway did not start, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration was built in code and is invalid.
    #[error("{0}")]
    Configuration(String),
    /// The store cannot be used.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The gateway cannot listen on the address.
    #[error("cannot listen on {address} for FIX clients: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The thread could not be started, or sockets cannot be polled.
    #[error("no thread for the gateway: {0}")]
    Thread(io::Error),
    /// The disk refused writes for too long.
    #[error("the store takes nothing, so the gateway has ended; nothing was sent that it does not have: {0}")]
    Store(JournalError),
    /// The thread panicked.
    #[error("the gateway's thread has panicked")]
    Panicked,
}

/// Why a command was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum NotObeyed {
    /// There is no such client.
    #[error("there is no client '{}'", .0.escape_debug())]
    NoClient(String),
    /// The store was removed, so orders are refused until the gateway is restarted.
    #[error("{0}")]
    StoreIsGone(String),
}

/// A command to a running gateway.
pub enum Command<W: World> {
    /// Sets the kill switch for all clients, or for one. The answer is sent after the change is in the store.
    Halt {
        /// The client; `None`: all.
        client: Option<String>,
        /// Whether the switch is on.
        is_halted: bool,
        /// Whether open orders are cancelled as well.
        cancels: bool,
        /// Receives the answer.
        done: W::Sender<Result<(), NotObeyed>>,
    },
    /// Lists the orders. The gateway's thread composes the answer, so an unbounded list would delay trading.
    Orders {
        /// Whether to include ended orders.
        all: bool,
        /// Maximum number of orders in the answer.
        most: usize,
        /// Receives the orders.
        done: W::Sender<Orders>,
    },
}

/// Receives notices for people, on the gateway's thread. It must not block, nor write to a log itself.
pub type OnNotice = Box<dyn FnMut(Notice) + Send>;

/// Shows the state of a running gateway to other threads, and sends it commands. Does not keep the gateway running.
pub struct Handle<W: World = System> {
    waker: Arc<W::Waker>,
    commands: W::Sender<Command<W>>,
    status: Arc<Mutex<Status>>,
}

impl<W: World> Clone for Handle<W> {
    fn clone(&self) -> Self {
        let Self { waker, commands, status } = self;
        Self { waker: Arc::clone(waker), commands: commands.clone(), status: Arc::clone(status) }
    }
}

impl<W: World> std::fmt::Debug for Handle<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl<W: World> Handle<W> {
    /// Returns the state, at most a tenth of a second old.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a command.
    pub fn command(&self, command: Command<W>) {
        // If the thread has ended, the command is dropped and no answer is sent.
        let _given = self.commands.send(command);
        let _woken = self.waker.wake();
    }
}

/// A running gateway. Dropping it stops the gateway.
pub struct Gateway<W: World = System> {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    handle: Handle<W>,
    thread: Option<W::Handle<Result<(), StartError>>>,
}

impl<W: World> std::fmt::Debug for Gateway<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway({})", self.address)
    }
}

impl<W: World> Gateway<W> {
    /// Starts a gateway with a core and its journal ([`open`](crate::open)).
    ///
    /// # Errors
    /// The gateway cannot listen on the address, or the thread cannot be started.
    pub fn start<S: VenueSession + Send + 'static>(
        settings: HostSettings,
        mut core: Core<S, W>,
        ledger: Ledger<W>,
        on_notice: OnNotice,
        on_refusal: Option<OnRefusal>,
    ) -> Result<Self, StartError> {
        let bind = |source| StartError::Bind { address: settings.listen, source };
        let mut listener = W::Listener::bind(settings.listen).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let poll = W::Poll::new(256).map_err(StartError::Thread)?;
        let waker = Arc::new(poll.waker(WAKER).map_err(StartError::Thread)?);
        listener.register(&poll, LISTENER, Interest::READABLE).map_err(StartError::Thread)?;
        let (commands, received) = W::channel();
        let clock = Clock::<W>::new();
        let status = Arc::new(Mutex::new(core.status(clock.now())));
        let stop = Arc::new(AtomicBool::new(false));
        let disk = DiskThread::start(Arc::clone(&waker)).map_err(StartError::Thread)?;
        if settings.warms {
            core.prepare_to_warm();
        }
        if let Some(traces) = &settings.traces {
            let names = core.clients.iter().map(|client| client.settings.name.as_str());
            if let Some(tracer) = Tracer::new(traces, names, W::since, clock.began()) {
                core.set_tracer(tracer);
            }
        }
        let host = Host {
            sockets: Sockets::new(poll, listener, core.clients.len(), S::CHANNELS),
            core,
            store: Store { ledger, disk, gone: None },
            clock,
            ahead: Ahead::default(),
            next_client: 0,
            writing: Vec::new(),
            control: Control { commands: received, halted: Vec::new() },
            status: Arc::clone(&status),
            refused: Refused {
                count: 0,
                reports: Refusals::new("FIX client", on_refusal),
                attempts: Attempts::default(),
            },
            on_notice,
            turns: Turns {
                durations_ns: histogram(),
                percentiles: Percentiles::default(),
                updated: W::instant(),
            },
            ticked: W::instant(),
            warmed: W::instant(),
            settings,
        };
        let stopping = Arc::clone(&stop);
        let thread = W::spawn("gateway", move || host.run(&stopping)).map_err(StartError::Thread)?;
        Ok(Self { address, stop, handle: Handle { waker, commands, status }, thread: Some(thread) })
    }

    /// Returns the address on which it listens for FIX clients.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle<W> {
        self.handle.clone()
    }

    /// Returns the state, at most a tenth of a second old.
    #[must_use]
    pub fn status(&self) -> Status {
        self.handle.status()
    }

    /// Sends a command.
    pub fn command(&self, command: Command<W>) {
        self.handle.command(command);
    }

    /// Returns whether the gateway has ended by itself.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.is_finished())
    }

    /// Logs out of all sessions, and stops.
    ///
    /// # Errors
    /// The gateway had ended before.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StartError> {
        self.stop.store(true, Ordering::Release);
        let _woken = self.handle.waker.wake();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Err(StartError::Panicked)))
    }
}

impl<W: World> Drop for Gateway<W> {
    fn drop(&mut self) {
        let _ended = self.end();
    }
}

/// A kill switch was set, but the change is not in the store yet.
struct Halted<W: World> {
    done: W::Sender<Result<(), NotObeyed>>,
    obeyed: Result<(), NotObeyed>,
    sample: Option<Box<Sample>>,
}

/// Commands from other threads.
struct Control<W: World> {
    commands: W::Receiver<Command<W>>,
    /// Halts to answer after the store has them.
    halted: Vec<Halted<W>>,
}

/// Clients that are not read because the gateway is ahead of the venue.
#[derive(Default)]
struct Ahead {
    /// Since when the gateway has been ahead of the venue.
    since: Option<Instant>,
    /// Clients to read after the venue has caught up.
    held: Vec<usize>,
}

impl Ahead {
    /// Returns whether clients are not read at present.
    fn holds_clients<W: World>(&mut self, is_ahead: bool) -> bool {
        if !is_ahead {
            self.since = None;
            return false;
        }
        W::since(*self.since.get_or_insert_with(W::instant)) < LONGEST_HOLD
    }
}

/// Connections that were refused, and who may not try again yet.
struct Refused {
    count: u64,
    reports: Refusals,
    attempts: Attempts,
}

impl Refused {
    /// Counts a refused connection and reports it, at a bounded rate.
    fn count(&mut self, address: SocketAddr, why: &dyn std::fmt::Display, now_ns: u64) {
        self.count += 1;
        self.reports.refused(address, why, now_ns);
    }
}

/// How long turns take.
struct Turns {
    durations_ns: Histogram<u64>,
    /// Percentiles of `durations_ns`, as of the last full second.
    percentiles: Percentiles,
    updated: Instant,
}

impl Turns {
    /// Updates the percentiles once a second.
    fn update<W: World>(&mut self) {
        if W::since(self.updated) >= SECOND {
            (self.percentiles, self.updated) = (percentiles(&self.durations_ns), W::instant());
        }
    }
}

struct Host<S: VenueSession, W: World> {
    settings: HostSettings,
    core: Core<S, W>,
    store: Store<W>,
    clock: Clock<W>,
    sockets: Sockets<W>,
    ahead: Ahead,
    /// Connections from this number on are read first.
    next_client: usize,
    /// Connections that may have output in this turn.
    writing: Vec<usize>,
    control: Control<W>,
    status: Arc<Mutex<Status>>,
    refused: Refused,
    on_notice: OnNotice,
    turns: Turns,
    ticked: Instant,
    /// When the order path was last used, by a turn or by warming.
    warmed: Instant,
}

/// A connection whose client is not yet known.
struct OfUnknown<'a> {
    bytes: &'a mut Vec<u8>,
    is_closed: bool,
}

impl ByteSession for OfUnknown<'_> {
    fn receive(&mut self, bytes: &[u8], _now_ns: u64) {
        self.bytes.extend_from_slice(bytes);
    }

    fn output(&self) -> &[u8] {
        &[]
    }

    fn sent(&mut self, _bytes: usize, _now_ns: u64) {}

    fn closed(&mut self) {
        self.is_closed = true;
    }

    fn is_over(&self) -> bool {
        self.is_closed
    }
}

struct OfClient<'a, S: VenueSession, W: World> {
    core: &'a mut Core<S, W>,
    index: usize,
    now: Now,
}

impl<S: VenueSession, W: World> ByteSession for OfClient<'_, S, W> {
    fn receive(&mut self, bytes: &[u8], _now_ns: u64) {
        self.core.client_bytes(self.index, bytes, self.now);
    }

    fn fill(&mut self, _now_ns: u64) {
        // Resent messages are in the store already.
        self.core.client_resend(self.index, self.now);
    }

    fn output(&self) -> &[u8] {
        self.core.client_output(self.index)
    }

    fn sent(&mut self, bytes: usize, _now_ns: u64) {
        self.core.client_sent(self.index, bytes);
    }

    fn closed(&mut self) {
        self.core.client_closed(self.index, self.now);
    }

    fn is_over(&self) -> bool {
        self.core.client_over(self.index).is_some()
    }
}

struct OfVenue<'a, S: VenueSession, W: World> {
    core: &'a mut Core<S, W>,
    channel: usize,
    now: Now,
    is_closed: bool,
}

impl<S: VenueSession, W: World> ByteSession for OfVenue<'_, S, W> {
    fn receive(&mut self, bytes: &[u8], _now_ns: u64) {
        self.core.venue_bytes(self.channel, bytes, self.now);
    }

    fn output(&self) -> &[u8] {
        self.core.venue().output(self.channel)
    }

    fn sent(&mut self, bytes: usize, _now_ns: u64) {
        self.core.venue_sent(self.channel, bytes, self.now);
    }

    fn closed(&mut self) {
        self.is_closed = true;
    }

    fn is_over(&self) -> bool {
        self.is_closed || self.core.venue().is_over(self.channel)
    }
}

impl<S: VenueSession, W: World> Host<S, W> {
    fn run(mut self, stop: &AtomicBool) -> Result<(), StartError> {
        if let Some(core) = self.settings.core
            && let Err(error) = W::pin(core)
        {
            self.notify(Notice {
                is_alert: true,
                text: format!("the thread is not kept on core {core}: {error}"),
            });
        }
        let mut reported = Vec::with_capacity(256);
        self.commit(stop)?;
        self.connect_venue();
        while !stop.load(Ordering::Acquire) {
            self.turn(&mut reported, stop)?;
        }
        // Every session gets a Logout.
        let now = self.clock.now();
        self.core.log_out(now);
        let until = W::instant();
        while W::since(until) < LOG_OUT && self.sockets.has_sessions() {
            self.turn(&mut reported, stop)?;
        }
        self.commit(stop)?;
        let now = self.clock.now();
        if let Some(tracer) = self.core.tracer() {
            tracer.give_up(now, true);
        }
        self.store.ledger.end().map_err(StartError::Store)
    }

    /// Runs one turn: waits, reads, writes the journal, sends.
    fn turn(&mut self, reported: &mut Vec<Ready>, stop: &AtomicBool) -> Result<(), StartError> {
        let is_released = !self.ahead.held.is_empty() && !self.holds_clients();
        let has_work =
            !self.sockets.again.is_empty() || is_released || self.sockets.accepting == Accepting::InNextTurn;
        let longest = match self.settings.wait {
            _ if has_work => Duration::ZERO,
            Wait::Spin => Duration::ZERO,
            Wait::Sleep => TICK.saturating_sub(W::since(self.ticked)),
        };
        let longest = if self.settings.warms { longest.min(WARM) } else { longest };
        self.sockets.poll.wait(reported, Some(longest)).map_err(StartError::Thread)?;
        let now = self.clock.now();
        if let Some(tracer) = self.core.tracer() {
            tracer.turn_begins(now);
        }
        let mut ready = std::mem::take(&mut self.sockets.again);
        if is_released {
            ready.append(&mut self.ahead.held);
        }
        let is_idle = ready.is_empty() && reported.is_empty();
        for one in reported.iter() {
            match one.token {
                WAKER => self.obey(now),
                LISTENER => self.sockets.accepting = Accepting::InNextTurn,
                Token(number) => {
                    if let Some(connection) = self.sockets.connections.get_mut(&number) {
                        connection.pump.note(*one);
                        ready.push(number);
                    }
                }
            }
        }
        ready.sort_unstable();
        ready.dedup();
        if self.sockets.accepting == Accepting::InNextTurn {
            self.accept();
        }
        self.read_all(&ready, now, stop)?;
        if W::since(self.ticked) >= TICK {
            self.tick(stop)?;
        }
        self.send(&ready, now, stop)?;
        if !self.control.halted.is_empty() {
            self.answer_halts(now);
        }
        ready.clear();
        // Reuses the memory.
        if self.sockets.again.is_empty() {
            self.sockets.again = ready;
        }
        if self.settings.warms {
            self.warm(is_idle, now);
        }
        if !is_idle {
            let passed = self.clock.now().steady_ns.saturating_sub(now.steady_ns);
            self.turns.durations_ns.saturating_record(passed);
        }
        Ok(())
    }

    /// Warms the order path if nothing has arrived for a while. A turn with work has warmed it already.
    fn warm(&mut self, is_idle: bool, now: Now) {
        if is_idle {
            if W::since(self.warmed) < WARM {
                return;
            }
            self.core.warm(now);
        }
        self.warmed = W::instant();
    }

    /// Returns whether clients are not read at present, because the gateway is ahead of the venue.
    fn holds_clients(&mut self) -> bool {
        self.ahead.holds_clients::<W>(self.core.is_ahead())
    }

    /// Reads from the connections that are ready: first everything that the venue has sent, then from clients up to the limit of
    /// the turn. The next turn begins with the clients left over.
    fn read_all(&mut self, ready: &[usize], now: Now, stop: &AtomicBool) -> Result<(), StartError> {
        let mut has_news = false;
        for channel in 0..S::CHANNELS {
            let Some(number) = self.sockets.of_venue.get(channel).copied().flatten() else { continue };
            let (mut left, mut read) = (VENUE_BYTES, READ_BYTES);
            while ready.binary_search(&number).is_ok() && read == READ_BYTES && left > 0 {
                read = self.read_one(number, now, stop)?;
                left = left.saturating_sub(read);
                has_news |= read > 0;
            }
        }
        if has_news && self.sockets.of_venue.iter().any(Option::is_none) {
            // A session that has logged on may want its next connection, which need not wait for a tick.
            self.connect_venue();
        }
        let (before, from) = ready.split_at(ready.partition_point(|number| *number < self.next_client));
        let mut left = CLIENT_BYTES;
        for number in from.iter().chain(before) {
            if left == 0 {
                self.next_client = *number;
                break;
            }
            let is_read = match self.sockets.connections.get(number).map(|connection| &connection.peer) {
                Some(Peer::Client(_)) => !self.holds_clients(),
                Some(Peer::Unknown { .. }) => true,
                Some(Peer::Venue { .. } | Peer::Nobody) | None => false,
            };
            if is_read {
                left = left.saturating_sub(self.read_one(*number, now, stop)?);
            }
        }
        Ok(())
    }

    /// Reads once from a connection, and writes the turn if it is long. Returns the number of bytes read.
    fn read_one(&mut self, number: usize, now: Now, stop: &AtomicBool) -> Result<usize, StartError> {
        let read = self.read(number, now);
        if self.core.entry_bytes() > TURN_BYTES {
            self.commit(stop)?;
        }
        Ok(read)
    }

    /// Writes the turn, then sends its output. Sending may end a session, which produces another short turn.
    fn send(&mut self, ready: &[usize], now: Now, stop: &AtomicBool) -> Result<(), StartError> {
        let mut numbers = std::mem::take(&mut self.writing);
        for round in 0..4 {
            numbers.clear();
            if round == 0 {
                numbers.extend_from_slice(ready);
            }
            numbers.extend(
                self.core
                    .touched()
                    .iter()
                    .filter_map(|index| self.sockets.of_clients.get(*index).copied()?),
            );
            numbers.extend(self.sockets.of_venue.iter().filter_map(|number| *number));
            numbers.sort_unstable();
            numbers.dedup();
            self.commit(stop)?;
            self.write_all(&numbers, now, stop)?;
            if !self.core.has_changes() {
                break;
            }
        }
        self.writing = numbers;
        Ok(())
    }

    /// Sends to connections. The end of one session may add output to the next, which is written to the journal before it is sent.
    fn write_all(&mut self, numbers: &[usize], now: Now, stop: &AtomicBool) -> Result<(), StartError> {
        for number in numbers {
            if self.core.has_changes() {
                self.commit(stop)?;
            }
            self.write(*number, now);
        }
        Ok(())
    }

    /// Writes the changes of the turn. Nothing else happens while the disk refuses.
    fn commit(&mut self, stop: &AtomicBool) -> Result<(), StartError> {
        let (began, mut is_refused) = (self.clock.now(), false);
        loop {
            let now = self.clock.now();
            match self.core.commit(&mut self.store.ledger, now.utc_ns) {
                Ok(()) => {
                    if let Some(tracer) = self.core.tracer().filter(|tracer| tracer.has_to_stamp()) {
                        tracer.stored(began.steady_ns);
                    }
                    if is_refused {
                        self.set_store_error(None);
                        self.notify(Notice {
                            is_alert: true,
                            text: "the store takes records again".to_owned(),
                        });
                    }
                    return Ok(());
                }
                Err(_) if planted!("sent-though-not-written") => return Ok(()),
                Err(error) => {
                    // Waiting does not help a journal that has run out of record numbers.
                    let is_final = matches!(error, JournalError::NoNumber { .. });
                    if is_final
                        || now.steady_ns - began.steady_ns >= self.settings.disk_patience.as_nanos() as u64
                        || stop.load(Ordering::Acquire)
                    {
                        return Err(StartError::Store(error));
                    }
                    if !std::mem::replace(&mut is_refused, true) {
                        let text = format!("the store takes nothing, so nothing is sent: {error}");
                        self.set_store_error(Some(format!("the store takes nothing: {error}")));
                        self.notify(Notice { is_alert: true, text });
                    }
                    self.finish_tasks();
                    W::sleep(DISK_AGAIN);
                }
            }
        }
    }

    fn set_store_error(&self, error: Option<String>) {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).store_error = error;
    }

    fn notify(&mut self, notice: Notice) {
        (self.on_notice)(notice);
    }

    fn finish_tasks(&mut self) {
        self.store.finish_tasks(|error| {
            (self.on_notice)(Notice { is_alert: true, text: format!("the store is not synced: {error}") });
        });
    }

    /// Performs the periodic work.
    fn tick(&mut self, stop: &AtomicBool) -> Result<(), StartError> {
        self.ticked = W::instant();
        if let Some(ahead_ns) = self.clock.follow() {
            self.core.clock_was_set(ahead_ns);
            let seconds = ahead_ns as f64 / 1e9;
            self.notify(Notice {
                is_alert: true,
                text: format!("the system's clock was set by {seconds:+.3} s"),
            });
        }
        let now = self.clock.now();
        if let Some(tracer) = self.core.tracer().filter(|tracer| tracer.is_following()) {
            tracer.give_up(now, false);
        }
        self.look_after_store(now);
        self.core.tick(now);
        self.commit(stop)?;
        self.connect_venue();
        // A tick may end sessions that timed out, and send heartbeats.
        let numbers: Vec<usize> = self.sockets.connections.keys().copied().collect();
        self.write_all(&numbers, now, stop)?;
        // The poll does not report again a listener that failed for want of descriptors.
        if self.sockets.accepting == Accepting::AtNextTick {
            self.sockets.accepting = Accepting::InNextTurn;
        }
        for number in self.sockets.silent(self.settings.first_message) {
            self.refuse(number, "no first message in time");
        }
        for (number, channel, address) in self.sockets.unconnected(self.settings.venue_connect) {
            self.sockets.close(number);
            self.venue_refused(channel, address, &ErrorKind::TimedOut.into(), now);
        }
        self.finish_tasks();
        self.store.begin_task(now.steady_ns);
        for notice in self.core.take_notices() {
            self.notify(notice);
        }
        // A tick with much to do delays orders.
        self.turns.update::<W>();
        self.publish_status(now);
        Ok(())
    }

    /// Checks that the store's files are still in place. Writes to a removed store succeed, but the next start would find nothing,
    /// and would not know the working orders. The kill switch therefore stops new orders.
    fn look_after_store(&mut self, now: Now) {
        if self.store.gone.is_some() {
            return;
        }
        let Err(error) = self.store.ledger.look_after_files() else { return };
        let why = format!(
            "the store is gone: {error}. No orders pass until the gateway is started again, and it will not know of those that work"
        );
        if !self.core.is_halted() {
            self.core.set_halted(true, now);
        }
        self.notify(Notice { is_alert: true, text: why.clone() });
        self.store.gone = Some(why);
    }

    fn publish_status(&self, now: Now) {
        let store_error = self.status.lock().unwrap_or_else(PoisonError::into_inner).store_error.take();
        let status = Status {
            store_error: self.store.gone.clone().or(store_error),
            refused_connections: self.refused.count,
            store_bytes: self.store.ledger.written_bytes(),
            turn: self.turns.percentiles,
            ..self.core.status(now)
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Answers the halts, after the store has them and the status shows them.
    #[cold]
    fn answer_halts(&mut self, now: Now) {
        self.publish_status(now);
        for Halted { done, obeyed, sample } in self.control.halted.drain(..) {
            if let (Some(mut sample), Some(operations)) =
                (sample, self.core.tracer().and_then(|one| one.operations()))
            {
                sample.lasts_until(self.clock.now().utc_ns);
                operations.record(&sample);
            }
            // The requester may have given up.
            let _given = done.send(obeyed);
        }
    }

    fn obey(&mut self, now: Now) {
        self.finish_tasks();
        while let Ok(command) = self.control.commands.try_recv() {
            match command {
                Command::Halt { client, is_halted, cancels, done } => {
                    let obeyed = match (&client, &self.store.gone) {
                        (Some(name), _) => match self.core.set_client_halted(name, is_halted, now) {
                            true => Ok(()),
                            false => Err(NotObeyed::NoClient(name.clone())),
                        },
                        (None, Some(why)) if !is_halted => Err(NotObeyed::StoreIsGone(why.clone())),
                        (None, _) => {
                            self.core.set_halted(is_halted, now);
                            Ok(())
                        }
                    };
                    if cancels && is_halted {
                        for index in 0..self.core.clients.len() {
                            let name = self.core.clients.get(index).map(|client| &client.settings.name);
                            if client.is_none() || client.as_ref() == name {
                                self.core.cancel_orders(index, now);
                            }
                        }
                    }
                    let sample = self.core.tracer().map(|_| {
                        let mut sample = Sample::new(if is_halted { "halt" } else { "resume" }, now.utc_ns);
                        let name = client.as_deref().unwrap_or("all");
                        sample.text("session", Text::new(name.as_bytes()));
                        sample.fact("cancels", Fact::Flag(cancels));
                        sample.failed = obeyed.is_err().then_some("it was not obeyed");
                        Box::new(sample)
                    });
                    self.control.halted.push(Halted { done, obeyed, sample });
                }
                Command::Orders { all, most, done } => {
                    let _given = done.send(self.core.orders(all, most));
                }
            }
        }
    }

    // ---- connections ----

    fn accept(&mut self) {
        for _ in 0..MOST_ACCEPTED {
            match self.sockets.listener.accept() {
                Ok((stream, address)) => self.accepted(stream, address),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.sockets.accepting = if error.kind() == ErrorKind::WouldBlock {
                        Accepting::WhenReported
                    } else {
                        // Without descriptors, the next connection to close makes room. The tick tries again.
                        self.refused.count += 1;
                        Accepting::AtNextTick
                    };
                    return;
                }
            }
        }
        self.sockets.accepting = Accepting::InNextTurn;
    }

    fn accepted(&mut self, mut stream: W::Stream, address: SocketAddr) {
        let is_full =
            self.sockets.connections.len() >= self.settings.most_connections && !self.drop_a_stranger();
        if is_full || self.sockets.register(&mut stream).is_err() {
            let now_ns = self.clock.now().steady_ns;
            return self.refused.count(address, &"there are too many connections", now_ns);
        }
        // Small messages are sent without delay. Where that cannot be set, they go out later.
        let _is_set = stream.set_nodelay(true);
        let transport = match self.settings.acceptor.accept(stream, &[]) {
            Ok(transport) => transport,
            Err(error) => {
                return self.refused.count(address, &error, self.clock.now().steady_ns);
            }
        };
        let peer = Peer::Unknown { bytes: Vec::new(), since: W::instant() };
        self.sockets.insert(Connection { pump: Pump::over(transport), peer, address });
    }

    /// Closes the oldest connection that belongs to no client. Returns whether there was one.
    fn drop_a_stranger(&mut self) -> bool {
        let oldest = self.sockets.oldest_stranger();
        if let Some(number) = oldest {
            self.refuse(number, "closed without a first message, for a newer connection");
        }
        oldest.is_some()
    }

    /// Opens the connections that the venue's session wants.
    fn connect_venue(&mut self) {
        let now = self.clock.now();
        for channel in 0..S::CHANNELS {
            let is_free = self.sockets.of_venue.get(channel).is_some_and(Option::is_none);
            if !is_free || !self.core.venue().wants(channel, now.steady_ns) {
                continue;
            }
            let Some(address) = self.settings.venue.get(channel).copied() else { continue };
            let connected = W::Stream::connect(address).and_then(|mut stream| {
                self.sockets.register(&mut stream)?;
                Ok(stream)
            });
            match connected {
                Ok(stream) => {
                    let peer = Peer::Venue { channel, opened: Some(W::instant()) };
                    let number = self.sockets.insert(Connection { pump: Pump::new(stream), peer, address });
                    if let Some(place) = self.sockets.of_venue.get_mut(channel) {
                        *place = Some(number);
                    }
                }
                Err(error) => self.venue_refused(channel, address, &error, now),
            }
        }
    }

    fn venue_refused(&mut self, channel: usize, address: SocketAddr, error: &io::Error, now: Now) {
        self.core.venue_refused(channel, now);
        self.refused.reports.refused(
            address,
            &format_args!("the venue is not there: {error}"),
            now.steady_ns,
        );
    }

    /// Reads once from a connection. Returns the number of bytes read.
    fn read(&mut self, number: usize, now: Now) -> usize {
        let Some(connection) = self.sockets.connections.get_mut(&number) else { return 0 };
        if connection.pump.is_finished() {
            return 0;
        }
        match &mut connection.peer {
            Peer::Unknown { bytes, .. } => {
                let mut unknown = OfUnknown { bytes, is_closed: false };
                let read = connection.pump.read(&mut unknown, &mut self.sockets.buffer, now.steady_ns);
                if unknown.is_closed {
                    self.lose_unknown(number);
                } else {
                    self.identify(number, now);
                }
                read
            }
            Peer::Client(index) => {
                let mut client = OfClient { core: &mut self.core, index: *index, now };
                connection.pump.read(&mut client, &mut self.sockets.buffer, now.steady_ns)
            }
            Peer::Venue { channel, opened } => {
                let channel = *channel;
                if opened.is_some() {
                    match connection.pump.stream().is_connected() {
                        Ok(true) => {
                            *opened = None;
                            let _is_set = connection.pump.stream().set_nodelay(true);
                            if let Some(secret) = &self.settings.venue_password {
                                self.core.set_venue_password(&secret.get());
                            }
                            self.core.venue_connected(channel, now);
                        }
                        Ok(false) => return 0,
                        Err(error) => {
                            let address = connection.address;
                            self.sockets.close(number);
                            self.venue_refused(channel, address, &error, now);
                            return 0;
                        }
                    }
                }
                let mut venue = OfVenue { core: &mut self.core, channel, now, is_closed: false };
                let read = connection.pump.read(&mut venue, &mut self.sockets.buffer, now.steady_ns);
                if venue.is_closed {
                    self.venue_gone(number, channel, now);
                }
                read
            }
            Peer::Nobody => 0,
        }
    }

    /// Closes a connection that ended before its client was identified. If the TLS handshake was incomplete, it counts as refused.
    fn lose_unknown(&mut self, number: usize) {
        let connection = self.sockets.connections.get(&number);
        match connection.filter(|connection| !connection.pump.transport().is_agreed()) {
            Some(Connection { pump, .. }) => {
                let why = pump.failure().map_or_else(
                    || "no TLS: the client closed the connection".to_owned(),
                    |failure| format!("no TLS: {failure}"),
                );
                self.refuse(number, &why);
            }
            None => self.sockets.close(number),
        }
    }

    /// Identifies the client of a connection by its first message.
    fn identify(&mut self, number: usize, now: Now) {
        let Some(connection) = self.sockets.connections.get_mut(&number) else { return };
        let Peer::Unknown { bytes, .. } = &mut connection.peer else { return };
        let length = match next_message(bytes, FIRST_MESSAGE_BYTES) {
            Framing::Incomplete if bytes.len() <= FIRST_MESSAGE_BYTES => return,
            Framing::Message { length } => length,
            _ => return self.refuse(number, "the first message is garbled, or too long"),
        };
        let first = bytes.get(..length).unwrap_or_default();
        let certificate = connection.pump.transport().peer_certificate();
        match self.core.admit(first, connection.address.ip(), certificate) {
            Ok(index) => {
                let wait_ns = self.refused.attempts.wait_ns(connection.address.ip(), index, now.steady_ns);
                if wait_ns > 0 {
                    let seconds = wait_ns.div_ceil(1_000_000_000);
                    let why =
                        format!("after wrong passwords its Logons are not heard for another {seconds} s");
                    return self.refuse(number, &why);
                }
                let bytes = std::mem::take(bytes);
                connection.peer = Peer::Client(index);
                if let Some(place) = self.sockets.of_clients.get_mut(index) {
                    *place = Some(number);
                }
                self.core.client_connected(index, now);
                self.core.client_bytes(index, &bytes, now);
            }
            Err(why) => self.refuse(number, &why.to_string()),
        }
    }

    fn refuse(&mut self, number: usize, why: &str) {
        match self.sockets.connections.get(&number) {
            Some(connection) => {
                let now_ns = self.clock.now().steady_ns;
                self.refused.count(connection.address, &why, now_ns);
            }
            None => self.refused.count += 1,
        }
        self.sockets.close(number);
    }

    /// Sends to a connection, and closes it if it is over.
    fn write(&mut self, number: usize, now: Now) {
        let Some(connection) = self.sockets.connections.get_mut(&number) else { return };
        if connection.pump.is_finished() {
            if !connection.pump.drain(&mut self.sockets.buffer, now.steady_ns) {
                self.sockets.close(number);
            }
            return;
        }
        match &mut connection.peer {
            Peer::Unknown { bytes, .. } => {
                // Sends the TLS handshake.
                let mut unknown = OfUnknown { bytes, is_closed: false };
                connection.pump.write(&mut unknown, now.steady_ns);
                if unknown.is_closed {
                    self.lose_unknown(number);
                } else if connection.pump.has_work(&[]) {
                    self.sockets.again.push(number);
                }
            }
            Peer::Client(index) => {
                let index = *index;
                let mut client = OfClient { core: &mut self.core, index, now };
                connection.pump.write(&mut client, now.steady_ns);
                if self.core.client_output(index).is_empty()
                    && let Some(tracer) = self.core.tracer().filter(|tracer| tracer.has_to_stamp())
                {
                    tracer.sent_to_client(index);
                }
                if self.core.is_too_slow(index) {
                    self.core.client_closed(index, now);
                }
                if self.core.client_over(index).is_some() {
                    return self.client_over(number, index, now);
                }
                let is_held = self.ahead.since.is_some() && self.holds_clients();
                let Some(connection) = self.sockets.connections.get(&number) else { return };
                if connection.pump.has_to_write(self.core.client_output(index)) {
                    self.sockets.again.push(number);
                } else if connection.pump.has_to_read() {
                    if is_held { self.ahead.held.push(number) } else { self.sockets.again.push(number) }
                }
            }
            Peer::Venue { opened: Some(_), .. } | Peer::Nobody => {}
            Peer::Venue { channel, .. } => {
                let channel = *channel;
                let mut venue = OfVenue { core: &mut self.core, channel, now, is_closed: false };
                connection.pump.write(&mut venue, now.steady_ns);
                let is_over = venue.is_over();
                if self.core.has_sent_to_venue()
                    && let Some(tracer) = self.core.tracer().filter(|tracer| tracer.has_to_stamp())
                {
                    tracer.sent_to_venue();
                }
                if is_over {
                    self.venue_gone(number, channel, now);
                } else if let Some(connection) = self.sockets.connections.get(&number)
                    && connection.pump.has_work(self.core.venue().output(channel))
                {
                    self.sockets.again.push(number);
                }
            }
        }
    }

    fn client_over(&mut self, number: usize, index: usize, now: Now) {
        if let Some(client) = self.core.clients.get(index)
            && let Some(end) = client.session.over()
        {
            let is_alert = *end == End::WrongPassword;
            let (text, was_logged_on) =
                (format!("the session of {} ended: {end}", client.settings.name), client.was_logged_on);
            if let Some(address) = self.sockets.connections.get(&number).map(|connection| connection.address)
            {
                match (is_alert, was_logged_on) {
                    (true, _) => self.refused.attempts.failed(address.ip(), index, now.steady_ns),
                    (false, true) => self.refused.attempts.succeeded(address.ip(), index),
                    (false, false) => {}
                }
                self.notify(Notice { is_alert, text: format!("{text} (from {address})") });
            }
        }
        if let Some(place) = self.sockets.of_clients.get_mut(index) {
            *place = None;
        }
        self.core.client_gone(index, now);
        let Some(connection) = self.sockets.connections.get_mut(&number) else { return };
        connection.peer = Peer::Nobody;
        if !connection.pump.finish(now.steady_ns) {
            self.sockets.close(number);
        }
    }

    fn venue_gone(&mut self, number: usize, channel: usize, now: Now) {
        if let Some(place) = self.sockets.of_venue.get_mut(channel) {
            *place = None;
        }
        self.sockets.close(number);
        self.core.venue_closed(channel, now);
    }
}
