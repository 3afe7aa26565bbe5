//! The listener, and the thread between the engine's ring and the sockets.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_market::{Event, Nanos};
use tapeworks_ring::disruptor::{Consumer, PollError, Single};
use tapeworks_ring::wait::WaitStrategy;

use tapeworks_runtime::now;
use tapeworks_runtime::rhythm::Rhythm;
use tapeworks_runtime::waiting::{QUIET, UNWATCHED, WakeUp, may_sleep_unwatched};
use tapeworks_runtime::worker::Worker;

use super::distributor::{
    ClientView, Counters, Distributor, DistributorError, Evicted, MissingEvents, Options,
};
use super::warm::ClientWarmer;
use crate::begin::{Begin, Past, catch_up};
use tapeworks_engine::history::HistoryError;

/// Where and what to serve.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// What is served, and to whom.
    pub distributor: Options,
    /// Where the ring begins. Events before it, of a day that had begun before the plant was started, are read from the history
    /// before anybody is served, and so are those of the past that the ring brings: whoever resumes would be told of them as
    /// if they happened now.
    pub begin: Begin,
    /// How long the thread sleeps when there is nothing to do: what a message may wait for at most, by and large.
    pub idle_sleep: Duration,
    /// How long clients may take to read what waits for them when the engine has ended.
    pub linger: Duration,
    /// Keeps the way to a client in the caches while there is nothing to do: the thread then sleeps half a millisecond at most.
    pub warm: bool,
}

impl ServerOptions {
    /// From the first event of the day on; sleeps of 50 us, 5 s for farewells.
    pub fn new(address: SocketAddr, distributor: Options) -> Self {
        let (idle_sleep, linger) = (Duration::from_micros(50), Duration::from_secs(5));
        Self { address, distributor, begin: Begin::default(), idle_sleep, linger, warm: false }
    }
}

/// Why there is no server.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be had: another program has the port, or it is not ours.
    #[error("cannot listen on {address} for clients: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The distributor cannot be made.
    #[error(transparent)]
    Distributor(#[from] DistributorError),
    /// There are no connections to keep the way to a client warm.
    #[error("the way to a client cannot be kept warm: {0}")]
    Warm(std::io::Error),
    /// There is no thread for it.
    #[error("no thread for the clients' server: {0}")]
    Thread(std::io::Error),
}

/// Why a server ended before it was told to.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The system cannot wait for sockets any more.
    #[error("the clients' server cannot wait for sockets: {0}")]
    Poll(std::io::Error),
    /// The ring stands still.
    #[error("the clients' server gets no more events: {0}")]
    Ring(tapeworks_ring::disruptor::Failed),
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

/// What a server is doing, some times a second.
#[derive(Clone, Default, Debug)]
pub struct Stats {
    /// What was done so far.
    pub counters: Counters,
    /// Every connection.
    pub clients: Vec<ClientView>,
    /// The last sessions that ended because their clients were too slow.
    pub evicted: Vec<Evicted>,
    /// The number of the next event.
    pub next_event: u64,
    /// Events in the ring that are not taken yet.
    pub ring_lag: usize,
    /// Bytes that wait for clients.
    pub queued_bytes: usize,
}

/// A server that runs in a thread of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stats: Arc<Mutex<Stats>>,
    worker: Worker<ServeError>,
}

impl Server {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it is doing, as of some tenths of a second ago.
    pub fn stats(&self) -> Stats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A handle on [`Server::stats`] for another thread.
    pub fn stats_handle(&self) -> Arc<Mutex<Stats>> {
        Arc::clone(&self.stats)
    }

    /// Whether the thread has ended: as it was told to, as the engine has ended, or with an error.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Waits until the engine has ended and clients have read what was left for them, or took too long.
    ///
    /// # Errors
    /// [`ServeError`] when it ended otherwise.
    pub fn join(self) -> Result<(), ServeError> {
        self.worker.join(ServeError::Panicked)
    }

    /// Stops it now.
    ///
    /// # Errors
    /// [`ServeError`] when it had ended before, and why.
    pub fn stop(self) -> Result<(), ServeError> {
        self.worker.stop(ServeError::Panicked)
    }
}

/// Looks for work in vain before the thread sleeps.
const LOOKS: u32 = 100;

/// The longest sleep of a thread that is woken.
const SLEEP: Duration = Duration::from_millis(20);

/// How often the statistics are told.
const STATS_EVERY: Duration = Duration::from_millis(200);

/// Starts a server of the events that `consumer` gives: the first has the number that [`ServerOptions::begin`] tells.
///
/// # Errors
/// [`ServerError`].
pub fn start<W: WaitStrategy + 'static>(
    options: ServerOptions,
    consumer: Consumer<Event, W, Single>,
) -> Result<Server, ServerError> {
    start_on(bind(options.address)?, options, consumer)
}

/// Takes an address for a server that is started later.
///
/// # Errors
/// [`ServerError::Bind`].
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).map_err(|source| ServerError::Bind { address, source })
}

/// As [`start`], on a listener that is there already.
///
/// # Errors
/// [`ServerError`].
pub fn start_on<W: WaitStrategy + 'static>(
    listener: TcpListener,
    options: ServerOptions,
    consumer: Consumer<Event, W, Single>,
) -> Result<Server, ServerError> {
    let ServerOptions { address, distributor, begin, idle_sleep, linger, warm } = options;
    let wake_up = begin.wake_up.clone();
    let bind = |source| ServerError::Bind { address, source };
    let bound = listener.local_addr().map_err(bind)?;
    let mut distributor = Distributor::new(distributor)?;
    distributor.listen(listener).map_err(bind)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stats = Arc::new(Mutex::new(Stats::default()));
    let mut work = Work {
        distributor,
        consumer,
        buffer: Vec::new(),
        stop: Arc::clone(&stop),
        stats: Arc::clone(&stats),
        told: Instant::now(),
        began: Instant::now(),
        begin,
        idle_sleep,
        linger,
        wake_up: wake_up.clone(),
        warm: warm.then(ClientWarmer::new).transpose().map_err(ServerError::Warm)?,
    };
    if let Some(wake_up) = wake_up {
        wake_up
            .is_for_poll(work.distributor.waker().map_err(|source| ServerError::Bind { address, source })?);
    }
    let worker = Worker::start("clients", stop, move || work.run()).map_err(ServerError::Thread)?;
    Ok(Server { address: bound, stats, worker })
}

struct Work<W: WaitStrategy> {
    distributor: Distributor,
    consumer: Consumer<Event, W, Single>,
    buffer: Vec<Event>,
    stop: Arc<AtomicBool>,
    stats: Arc<Mutex<Stats>>,
    told: Instant,
    began: Instant,
    begin: Begin,
    idle_sleep: Duration,
    linger: Duration,
    wake_up: Option<Arc<WakeUp>>,
    warm: Option<ClientWarmer>,
}

impl<W: WaitStrategy> Work<W> {
    fn run(&mut self) -> Result<(), ServeError> {
        self.catch_up()?;
        self.reach_the_present()?;
        let mut looks = 0;
        let result = loop {
            if self.stop.load(Ordering::Acquire) {
                break Ok(());
            }
            let turned = self.turn();
            let has_events = matches!(turned, Ok(Some(1..)));
            match turned {
                Ok(Some(0)) => self.warm_up(),
                Ok(Some(_)) => looks = 0,
                Ok(None) => break self.say_farewell(),
                Err(error) => break Err(error),
            }
            if self.told.elapsed() >= STATS_EVERY {
                self.tell();
            }
            if let Some(wake_up) = self.wake_up.clone() {
                match self.sleep(&wake_up, has_events) {
                    Ok(true) => continue,
                    Ok(false) => break self.say_farewell(),
                    Err(error) => break Err(error),
                }
            }
            if let Err(error) = self.distributor.serve(now(), self.steady(), Duration::ZERO) {
                break Err(ServeError::Poll(error));
            }
            looks += 1;
            if looks > LOOKS {
                std::thread::sleep(self.idle_sleep);
            } else {
                std::thread::yield_now();
            }
        };
        self.tell();
        result
    }

    /// Serves the sockets, and sleeps until there is something: events or what a client sends. `has_events` is whether there were events
    /// just now. `false` when no more will come.
    fn sleep(&mut self, wake_up: &WakeUp, has_events: bool) -> Result<bool, ServeError> {
        let serve = |work: &mut Self, wait| {
            work.distributor.serve(now(), work.steady(), wait).map_err(ServeError::Poll)
        };
        let is_idle = !self.distributor.has_clients() && self.warm.is_none();
        if is_idle && has_events && may_sleep_unwatched(self.consumer.lag(), self.consumer.capacity()) {
            serve(self, UNWATCHED)?;
            return Ok(true);
        }
        wake_up.arm();
        // Once more: what came before the wake-up was armed rings nothing.
        let taken = self.turn()?;
        let longest = match (is_idle, &self.warm) {
            (true, _) => QUIET,
            (false, Some(_)) => Rhythm::EVERY,
            (false, None) => SLEEP,
        };
        let wait = if taken == Some(0) { self.distributor.patience(longest) } else { Duration::ZERO };
        serve(self, wait)?;
        wake_up.disarm();
        Ok(taken.is_some())
    }

    /// Runs the code that sends to a client while there is nothing to do, so that it is in the caches when it is needed.
    fn warm_up(&mut self) {
        if self.warm.as_mut().is_some_and(|warmer| warmer.turn().is_err()) {
            // Without its connections it is of no use, and nobody else's are in danger.
            self.warm = None;
        }
    }

    /// The time since the start, which nobody can set.
    fn steady(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Takes the day so far, of which no client is told: it is there for snapshots and replays.
    fn catch_up(&mut self) -> Result<(), ServeError> {
        let Self { begin, distributor, consumer, stop, .. } = self;
        catch_up(begin, consumer, stop, |past| {
            match past {
                Past::Start(start) => distributor.restore(*start),
                Past::Events(next, events) => distributor.events(next, events, now())?,
            }
            Ok(())
        })
    }

    /// Takes the events of the past that the ring brings.
    fn reach_the_present(&mut self) -> Result<(), ServeError> {
        while !self.stop.load(Ordering::Acquire) && !self.begin.is_over_at(self.distributor.next_event()) {
            match self.turn()? {
                Some(0) => std::thread::sleep(self.idle_sleep),
                Some(_) => {}
                // Said again when the ring is read in earnest.
                None => return Ok(()),
            }
            if self.told.elapsed() >= STATS_EVERY {
                self.tell();
            }
        }
        Ok(())
    }

    /// Takes what the ring has; `None` when there will be nothing more.
    fn turn(&mut self) -> Result<Option<usize>, ServeError> {
        let Self { consumer, buffer, .. } = self;
        buffer.clear();
        let mut first = 0;
        let polled = consumer.poll(|event, sequence, _| {
            if buffer.is_empty() {
                first = sequence;
            }
            buffer.push(*event);
        });
        let taken = match polled {
            Ok(taken) => taken,
            Err(PollError::Closed) => return Ok(None),
            Err(PollError::Failed(failed)) => return Err(ServeError::Ring(failed)),
        };
        if taken > 0 {
            self.distributor.events(self.begin.first_event + first as u64, &self.buffer, now())?;
        }
        Ok(Some(taken))
    }

    /// The engine has ended: what waits is still sent.
    fn say_farewell(&mut self) -> Result<(), ServeError> {
        let until = Instant::now() + self.linger;
        self.distributor.finish();
        while Instant::now() < until && !self.stop.load(Ordering::Acquire) {
            self.distributor
                .serve(now(), self.steady(), self.distributor.patience(Duration::from_millis(1)))
                .map_err(ServeError::Poll)?;
            if self.distributor.is_idle() {
                break;
            }
            if self.told.elapsed() >= STATS_EVERY {
                self.tell();
            }
        }
        self.distributor.hang_up();
        Ok(())
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        let stats = Stats {
            counters: *self.distributor.counters(),
            clients: self.distributor.clients(),
            evicted: self.distributor.evicted(),
            next_event: self.distributor.next_event(),
            ring_lag: self.consumer.lag(),
            queued_bytes: self.distributor.queued_bytes(),
        };
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}
