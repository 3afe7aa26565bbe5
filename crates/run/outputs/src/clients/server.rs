//! The clients' server: the listener, and the distributor as an output of the ring.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_market::Event;
use tapeworks_ring::disruptor::{Consumer, Failed, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::rhythm::Rhythm;
use tapeworks_runtime::waiting::QUIET;
use tapeworks_runtime::worker::Worker;
use tapeworks_runtime::world::{Listener as _, System, World};
use tapeworks_time::Nanos;

use super::distributor::{
    ClientView, Counters, Distributor, DistributorError, Evicted, MissingEvents, Options,
};
use super::warm::ClientWarmer;
use crate::begin::Begin;
use crate::output::Output;
use crate::reader::Reader;

/// Where and what to serve.
#[derive(Debug)]
pub struct ServerOptions<W: World = System> {
    /// The address to listen on; port 0 lets the system choose a port.
    pub address: SocketAddr,
    /// The datasets, keys and limits.
    pub distributor: Options,
    /// Where the ring begins. Clients are served only once all past events are processed: before that, a client that resumes would
    /// get them as if they happened now.
    pub begin: Begin<W>,
    /// Maximum sleep of the thread when there are no events and it has no wake-up.
    pub idle_sleep: Duration,
    /// How long clients may take to read their queued records after the engine has ended.
    pub linger: Duration,
    /// Whether to keep the code that sends to a client in the caches: the thread then sleeps for at most half a millisecond. The
    /// caches are those of this machine, so this uses its sockets in every world.
    pub warm: bool,
}

impl ServerOptions {
    /// Creates options that start with the first event of the day, sleep for 50 us, and give clients 5 s at the end.
    pub fn new(address: SocketAddr, distributor: Options) -> Self {
        Self::new_in(address, distributor)
    }
}

impl<W: World> ServerOptions<W> {
    /// Creates options like [`ServerOptions::new`], in any world.
    pub fn new_in(address: SocketAddr, distributor: Options) -> Self {
        let (idle_sleep, linger) = (Duration::from_micros(50), Duration::from_secs(5));
        Self { address, distributor, begin: Begin::default(), idle_sleep, linger, warm: false }
    }
}

/// Why the server does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be used: another program uses the port, or it is not an address of this machine.
    #[error("cannot listen on {address} for clients: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The distributor does not start.
    #[error(transparent)]
    Distributor(#[from] DistributorError),
    /// The private connections that keep the sending code in the caches cannot be established.
    #[error("the way to a client cannot be kept warm: {0}")]
    Warm(std::io::Error),
    /// The thread cannot be started.
    #[error("no thread for the clients' server: {0}")]
    Thread(std::io::Error),
}

/// Why a server ended before it was stopped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Waiting for sockets fails.
    #[error("the clients' server cannot wait for sockets: {0}")]
    Poll(std::io::Error),
    /// Another part of the ring has failed.
    #[error("the clients' server gets no more events: {0}")]
    Ring(#[from] Failed),
    /// Events are missing.
    #[error("the clients' server cannot go on: {0}")]
    Missing(#[from] MissingEvents),
    /// The events of the day so far cannot be read.
    #[error("the clients' server cannot begin: {0}")]
    History(#[from] HistoryError),
    /// The thread panicked.
    #[error("the clients' server panicked")]
    Panicked,
}

/// A server's counters and connections, published five times a second.
#[derive(Clone, Default, Debug)]
pub struct Stats {
    /// Its counters.
    pub counters: Counters,
    /// Every connection.
    pub clients: Vec<ClientView>,
    /// The most recent sessions that ended because their clients were too slow.
    pub evicted: Vec<Evicted>,
    /// The number of the next event.
    pub next_event: u64,
    /// Events in the ring that are not processed yet.
    pub ring_lag: usize,
    /// Bytes queued for clients.
    pub queued_bytes: usize,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server<W: World = System> {
    address: SocketAddr,
    stats: Arc<Mutex<Stats>>,
    worker: Worker<ServeError, W>,
}

impl<W: World> Server<W> {
    /// Returns the address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the statistics, at most some tenths of a second old.
    pub fn stats(&self) -> Stats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a handle on [`Server::stats`] for another thread.
    pub fn stats_handle(&self) -> Arc<Mutex<Stats>> {
        Arc::clone(&self.stats)
    }

    /// Returns whether the thread has ended: it was stopped, the engine has ended, or it failed.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Waits until the engine has ended and clients have read their queued records, or their time is over.
    ///
    /// # Errors
    /// [`ServeError`] if the server failed.
    pub fn join(self) -> Result<(), ServeError> {
        self.worker.join(ServeError::Panicked)
    }

    /// Stops the server immediately.
    ///
    /// # Errors
    /// [`ServeError`] if the server had failed before.
    pub fn stop(self) -> Result<(), ServeError> {
        self.worker.stop(ServeError::Panicked)
    }
}

/// Maximum sleep while there are clients: replays and heartbeats do not wake the thread.
const SLEEP: Duration = Duration::from_millis(20);

/// Starts a server for the events of `consumer`; [`ServerOptions::begin`] holds the number of the first one.
///
/// # Errors
/// [`ServerError`].
pub fn start<W: World, S: WaitStrategy + 'static>(
    options: ServerOptions<W>,
    consumer: Consumer<Event, S, Single>,
) -> Result<Server<W>, ServerError> {
    start_on(bind_in::<W>(options.address)?, options, consumer)
}

/// Binds the address of a server to be started later.
///
/// # Errors
/// [`ServerError::Bind`].
pub fn bind(address: SocketAddr) -> Result<<System as World>::Listener, ServerError> {
    bind_in::<System>(address)
}

/// Binds an address like [`bind`], in any world.
///
/// # Errors
/// [`ServerError::Bind`].
pub fn bind_in<W: World>(address: SocketAddr) -> Result<W::Listener, ServerError> {
    W::Listener::bind(address).map_err(|source| ServerError::Bind { address, source })
}

/// Starts a server like [`start`], on a listener that is already bound.
///
/// # Errors
/// [`ServerError`].
pub fn start_on<W: World, S: WaitStrategy + 'static>(
    listener: W::Listener,
    options: ServerOptions<W>,
    consumer: Consumer<Event, S, Single>,
) -> Result<Server<W>, ServerError> {
    let ServerOptions { address, distributor, begin, idle_sleep, linger, warm } = options;
    let bind = |source| ServerError::Bind { address, source };
    let bound = listener.local_addr().map_err(bind)?;
    let mut distributor = Distributor::<W>::new_in(distributor)?;
    distributor.listen(listener).map_err(bind)?;
    if let Some(wake_up) = &begin.wake_up {
        wake_up.is_for_poll(distributor.waker().map_err(bind)?);
    }
    let stats = Arc::new(Mutex::new(Stats::default()));
    let clients = Clients {
        distributor,
        stats: Arc::clone(&stats),
        began: W::instant(),
        linger,
        linger_until: None,
        warmer: warm.then(ClientWarmer::new).transpose().map_err(ServerError::Warm)?,
    };
    let reader = Reader::new(clients, consumer, begin, idle_sleep);
    let worker = reader.start("clients", |clients, _| clients.hang_up()).map_err(ServerError::Thread)?;
    Ok(Server { address: bound, stats, worker })
}

/// The distributor as an output.
struct Clients<W: World> {
    distributor: Distributor<W>,
    stats: Arc<Mutex<Stats>>,
    began: Instant,
    linger: Duration,
    /// Until when clients may read their queued records; set when the ring has ended.
    linger_until: Option<Instant>,
    warmer: Option<ClientWarmer>,
}

impl<W: World> Clients<W> {
    /// Returns the time since the start, by a clock that cannot be set.
    fn steady(&self) -> Nanos {
        Nanos(u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX))
    }

    /// Closes the connections after the end of the ring.
    fn hang_up(mut self) {
        if self.linger_until.is_some() {
            self.distributor.hang_up();
        }
    }
}

impl<W: World> Output for Clients<W> {
    type Failure = ServeError;

    const REPORT_EVERY: Duration = Duration::from_millis(200);

    fn restore(&mut self, start: Start) {
        self.distributor.restore(start);
    }

    fn events(&mut self, first: u64, events: &[Event]) -> Result<(), ServeError> {
        Ok(self.distributor.events(first, events, W::time_of_day())?)
    }

    fn serve(&mut self, wait: Duration) -> Result<(), ServeError> {
        let steady = self.steady();
        self.distributor.serve(W::time_of_day(), steady, wait).map_err(ServeError::Poll)
    }

    fn patience(&self) -> Duration {
        let longest = match (self.is_urgent(), &self.warmer) {
            (false, _) => QUIET,
            (true, Some(_)) => Rhythm::<System>::EVERY,
            (true, None) => SLEEP,
        };
        self.distributor.patience(longest)
    }

    fn is_urgent(&self) -> bool {
        self.distributor.has_clients() || self.warmer.is_some()
    }

    /// Runs the code that sends to a client, so that it is in the caches when events come.
    fn spare_time(&mut self) {
        if self.warmer.as_mut().is_some_and(|warmer| warmer.turn().is_err()) {
            // Without its connections the warmer has no effect. The clients' own connections are not affected.
            self.warmer = None;
        }
    }

    fn end(&mut self) {
        self.distributor.finish();
        self.linger_until = Some(W::instant() + self.linger);
    }

    fn linger(&self) -> Option<Duration> {
        let has_time = self.linger_until.is_some_and(|until| W::instant() < until);
        (has_time && !self.distributor.is_idle()).then(|| self.distributor.patience(Duration::from_millis(1)))
    }

    fn report(&mut self, ring_lag: usize) {
        let stats = Stats {
            counters: *self.distributor.counters(),
            clients: self.distributor.clients(),
            evicted: self.distributor.evicted(),
            next_event: self.distributor.next_event(),
            ring_lag,
            queued_bytes: self.distributor.queued_bytes(),
        };
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}
