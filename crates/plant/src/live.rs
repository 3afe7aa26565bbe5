//! The live plant: lines in, events to whoever serves them, nothing lost.
//!
//! ```text
//! lines, answers ─▶ ingest ──events──▶ ring ─▶ journal ─▶ clients' servers
//!                     │ └──inputs──▶ queue ─▶ ┘
//!                     └─ books, NBBO ─▶ shared memory            (topology "inline": on ingest's core;
//!                                                                 "pipeline": behind the ring, on one of their own)
//! ```
//!
//! One thread, *ingest*, receives, arbitrates, translates ([`tapeworks_feed::live::LiveFeed`]) and publishes events. Every
//! input goes to the journal first, and the clients' servers stand behind the journal in the ring: what a client has seen is
//! in the journal, whenever the process dies. Start-up replays the journal through the same stages, so the plant is where it
//! was, and the venues' servers bring what passed meanwhile.
//!
//! Events are numbered from 0 in the order in which they are published. A replay of the journal gives the same events with
//! the same numbers ([`JournalHistory`]).

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tapeworks_engine::checkpoint::folder;
use tapeworks_engine::{Engine, EngineOptions, JournalHistory, JournalReplayed, days};
use tapeworks_feed::Application;
use tapeworks_feed::arbitration::ArbiterOptions;
use tapeworks_feed::live::{LiveChannelOptions, SnapshotOptions};
use tapeworks_journal::JournalError;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookOptions, Capacity, Event, Nanos, Publisher, Symbol};
use tapeworks_ring::disruptor::{Builder, Consumer, PollError, Single};
use tapeworks_ring::wait::News;
use tapeworks_ring::wait::Wait;
use tapeworks_ring::{cpu, spsc};
use tapeworks_runtime::now;
use tapeworks_runtime::waiting::{Bell, Waiting};

use self::books::BooksStage;
use self::shared::SharedMemory;

mod books;
mod checkpoint;
pub mod config;
pub mod describe;
mod ingest;
mod journal;
pub mod monitor;
mod queued;
mod receive;
pub mod roll;
pub mod service;
mod shared;
mod snapshots;
mod status;
#[cfg(test)]
mod tests;
pub mod view;
mod warm;

pub use checkpoint::CheckpointStatus;
pub use journal::{JournalSetting, JournalStatus, SyncPolicy, WhenFailing};
pub use shared::{Published, SHARED_MEANING};
pub use status::{
    ChannelStatus, DELAY_BOUNDS, DelayBuckets, DelayPoint, InterfaceStatus, LineStatus, QuestDbStatus, Status,
};
pub(crate) use warm::Rhythm;
pub use warm::Warmer;

/// Orders of a feed that there is always room for.
pub(crate) const ORDERS: usize = 1 << 16;

/// A channel of a venue: its lines and servers.
#[derive(Clone, Debug)]
pub struct VenueOptions {
    /// What people call it.
    pub name: String,
    /// What is spoken.
    pub application: Application,
    /// The feed.
    pub publisher: Publisher,
    /// Line A, and line B where there is one: multicast groups or addresses of this machine.
    pub lines: Vec<SocketAddr>,
    /// The retransmission server (UDP).
    pub retransmission: Option<SocketAddr>,
    /// The snapshot server (SoupBinTCP).
    pub snapshot: Option<SocketAddr>,
    /// The login for the snapshot server: user name (at most 6 letters) and password (at most 10).
    pub login: (String, String),
    /// How the lines are followed. Whether messages are asked for again follows from `retransmission`.
    pub arbiter: ArbiterOptions,
    /// How snapshots are asked for, if there is a server.
    pub snapshots: SnapshotOptions,
    /// Resting orders that the books have room for from the start on.
    pub orders: usize,
}

/// Which thread does what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Topology {
    /// Ingest has books and NBBO too: one core from the datagram to the shared memory.
    #[default]
    Inline,
    /// Books and NBBO on a thread of their own, behind the ring.
    Pipeline,
}

/// Where datagrams come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Source {
    /// A UDP socket for each line: `recvmmsg`, kernel receive times.
    #[default]
    Sockets,
    /// The frames of a network interface, by AF_PACKET (TPACKET_V3); needs `CAP_NET_RAW`.
    Packet {
        /// The interface's name.
        device: String,
    },
    /// The frames of a queue of a network interface, by AF_XDP: none of them reaches the kernel's stack.
    #[cfg(feature = "af-xdp")]
    Xdp(tapeworks_packet::live::XdpOptions),
}

impl Source {
    /// The interface whose frames are received.
    fn device(&self) -> Option<&str> {
        match self {
            Self::Sockets => None,
            Self::Packet { device } => Some(device),
            #[cfg(feature = "af-xdp")]
            Self::Xdp(options) => Some(&options.interface),
        }
    }

    /// Whether what it receives reaches no socket.
    const fn is_ahead_of_the_kernel(&self) -> bool {
        !matches!(self, Self::Sockets | Self::Packet { .. })
    }
}

/// How datagrams are received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveOptions {
    /// Where they come from.
    pub source: Source,
    /// The address of the interface that multicast groups are joined on; the kernel's choice unless given.
    pub interface: Option<Ipv4Addr>,
    /// Bytes of each socket's buffer that are asked of the kernel; its default unless given.
    pub buffer_bytes: Option<usize>,
    /// `SO_BUSY_POLL`, in us.
    pub busy_poll_us: u32,
    /// The longest datagram, in bytes.
    pub datagram_bytes: usize,
    /// Packet buffers: what waits for the journal has one each.
    pub buffers: usize,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self {
            source: Source::default(),
            interface: None,
            buffer_bytes: Some(16 << 20),
            busy_poll_us: 0,
            datagram_bytes: 2_048,
            buffers: 32_768,
        }
    }
}

/// What a plant is to do.
#[derive(Clone, Debug)]
pub struct PlantOptions {
    /// The channels.
    pub venues: Vec<VenueOptions>,
    /// How they are received.
    pub receive: ReceiveOptions,
    /// Which thread does what.
    pub topology: Topology,
    /// How ingest waits for packets, and whoever stands behind the ring for events.
    pub wait: Wait,
    /// The cores of ingest and of the market stages; not pinned unless given.
    pub cores: [Option<usize>; 2],
    /// Events in the ring.
    pub ring_events: usize,
    /// The rules of the NBBO.
    pub rules: NbboRules,
    /// The only symbols wanted.
    pub symbols: Option<HashSet<Symbol>>,
    /// The journal.
    pub journal: Option<JournalSetting>,
    /// The file of the shared memory for local clients.
    pub shared_memory: Option<PathBuf>,
    /// Whether rarely used paths are kept warm.
    pub warm: bool,
}

impl Default for PlantOptions {
    fn default() -> Self {
        Self {
            venues: Vec::new(),
            receive: ReceiveOptions::default(),
            topology: Topology::default(),
            wait: Wait::Park,
            cores: [None; 2],
            ring_events: 1 << 20,
            rules: NbboRules::default(),
            symbols: None,
            journal: None,
            shared_memory: None,
            warm: false,
        }
    }
}

impl PlantOptions {
    /// How the books of whoever makes records of the events are to be: as the plant's own.
    pub fn books(&self) -> BookOptions {
        let mut feeds: Vec<(Publisher, Capacity)> = Vec::new();
        for VenueOptions { publisher, .. } in &self.venues {
            if !feeds.iter().any(|(known, _)| known == publisher) {
                feeds.push((*publisher, self.capacity_of(*publisher)));
            }
        }
        BookOptions { feeds, capacity: Capacity::for_orders(ORDERS), rules: self.rules }
    }

    /// The tables of a feed at the start.
    pub(crate) fn capacity_of(&self, publisher: Publisher) -> Capacity {
        let of_feed = self.venues.iter().filter(|venue| venue.publisher == publisher);
        let orders: usize = of_feed.map(|venue| venue.orders).sum();
        Capacity::for_orders(orders.max(ORDERS))
    }

    /// What the plant's engine is made of. An engine with these options makes the same of the plant's journal.
    pub fn engine(&self) -> EngineOptions {
        let channels = self
            .venues
            .iter()
            .map(|venue| LiveChannelOptions {
                name: venue.name.clone(),
                application: venue.application,
                publisher: venue.publisher,
                arbiter: ArbiterOptions {
                    retransmission: venue
                        .retransmission
                        .map(|_| venue.arbiter.retransmission.unwrap_or_default()),
                    ..venue.arbiter
                },
                snapshot: venue.snapshot.map(|_| venue.snapshots),
            })
            .collect();
        EngineOptions {
            channels,
            symbols: self.symbols.clone(),
            books: self.books(),
            keeps_last_trades: self.journal.is_some(),
        }
    }

    /// The events that the plant's journal holds; `None` if it keeps none.
    pub fn history(&self) -> Option<JournalHistory> {
        Some(JournalHistory::new(self.engine(), &self.journal.as_ref()?.folder))
    }
}

/// Why a plant does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PlantError {
    /// A line cannot be listened to.
    #[error("venue '{venue}': cannot listen to {address}: {source}")]
    Listen {
        /// The venue.
        venue: String,
        /// The line.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The frames of an interface cannot be had.
    #[error(transparent)]
    Interface {
        /// Why.
        source: tapeworks_packet::live::InterfaceError,
    },
    /// The system cannot wait for sockets.
    #[error("cannot wait for the lines: {source}")]
    Wait {
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread cannot be pinned to its core.
    #[error("cannot pin the thread '{thread}': {source}")]
    Pin {
        /// The thread.
        thread: &'static str,
        /// Why.
        source: cpu::CpuError,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The shared memory cannot be made.
    #[error("shared memory {}: {source}", path.display())]
    SharedMemory {
        /// The file.
        path: PathBuf,
        /// Why.
        source: tapeworks_ring::broadcast::CreateError,
    },
    /// There is no thread.
    #[error("no thread for '{thread}': {source}")]
    Thread {
        /// What for.
        thread: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a plant's thread ended before it was told to.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PlantFailure {
    /// A line cannot be received from.
    #[error("venue '{venue}', {address}: receiving failed: {source}")]
    Receive {
        /// The venue.
        venue: String,
        /// The line.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The frames of the interface cannot be received any more.
    #[error(transparent)]
    Interface {
        /// Why.
        source: tapeworks_packet::live::InterfaceError,
    },
    /// Whoever stands behind the ring is gone.
    #[error("the ring stands still: {0}")]
    Ring(tapeworks_ring::disruptor::PublishError),
    /// The journal failed, and the plant was told not to go on without.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A thread panicked.
    #[error("the thread '{0}' panicked")]
    Panicked(&'static str),
}

/// Who reads the events, by the ring's waiting.
pub type EventConsumer = Consumer<Event, Waiting, Single>;

/// A running plant. Dropping it stops it.
#[derive(Debug)]
pub struct Plant {
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<Status>>,
    first_event: u64,
    first_time: Nanos,
    live_from: Arc<AtomicU64>,
    threads: Vec<(&'static str, JoinHandle<Result<(), PlantFailure>>)>,
    ready: Receiver<Result<JournalReplayed, PlantError>>,
    replayed: Option<JournalReplayed>,
    bells: Vec<Arc<Bell>>,
}

impl Plant {
    /// Starts a plant, and gives as many consumers of its events as there are `readers`. The lines are listened to when this
    /// returns; the journal is being replayed ([`Plant::replayed`] waits for it), and consumers see its events as any other.
    ///
    /// The readers must read: who stands still stops the plant when the ring is full.
    ///
    /// # Errors
    /// [`PlantError`].
    pub fn start(options: PlantOptions, readers: &[&str]) -> Result<(Self, Vec<EventConsumer>), PlantError> {
        Self::start_watched(options, readers, view::Watch::default())
    }

    /// As [`Plant::start`]; the books show themselves in `watch`.
    ///
    /// # Errors
    /// [`PlantError`].
    pub fn start_watched(
        options: PlantOptions,
        readers: &[&str],
        watch: view::Watch,
    ) -> Result<(Self, Vec<EventConsumer>), PlantError> {
        let stop = Arc::new(AtomicBool::new(false));
        let status = Arc::new(Mutex::new(Status::default()));
        let wait = options.wait;
        let bells: Vec<Arc<Bell>> = (0..readers.len() + 2).map(|_| Arc::new(Bell::default())).collect();
        let [journal_bell, market_bell] = [readers.len(), readers.len() + 1].map(|at| Arc::clone(&bells[at]));
        // The journal is the first consumer, if there is one, and readers stand behind it.
        let of_readers = if options.journal.is_some() { News::Done(0) } else { News::Published };
        let of = |at| if at < readers.len() { of_readers } else { News::Published };
        let of_ring: Vec<_> = bells.iter().enumerate().map(|(at, bell)| (of(at), Arc::clone(bell))).collect();
        let mut builder =
            Builder::new(options.ring_events.max(1024).next_power_of_two(), empty_event, move || {
                Waiting::with_bells(wait, &of_ring)
            });
        let keeper = options.journal.as_ref().map(|_| builder.consumer("journal", &[]));
        let follows = keeper.as_slice();
        let market = (options.topology == Topology::Pipeline).then(|| builder.consumer("market", &[]));
        let wanted: Vec<_> = readers.iter().map(|name| builder.consumer(name, follows)).collect();
        // Somebody must read, or the ring would be closed from the start.
        let nobody = (wanted.is_empty() && keeper.is_none() && market.is_none())
            .then(|| builder.consumer("nobody", &[]));
        let (producer, mut ends) = builder.single_producer();

        let shared = options.shared_memory.as_deref().map(SharedMemory::create).transpose()?;
        let mut threads = Vec::new();
        let mut spawn = |thread: &'static str, run: Box<dyn FnOnce() -> Result<(), PlantFailure> + Send>| {
            let handle = std::thread::Builder::new().name(thread.to_owned()).spawn(run);
            handle
                .map(|handle| threads.push((thread, handle)))
                .map_err(|source| PlantError::Thread { thread, source })
        };

        // The journal is read to its end before it is written on.
        let engine_options = options.engine();
        let mut engine = Engine::new(&engine_options);
        let mut stage = BooksStage::new(&engine_options, shared, watch, options.warm);
        let mut to_journal = None;
        let mut replay = None;
        let snapshots = Arc::new(checkpoint::Coordinator::default());
        let mut books_part = None;
        let mut first_time = Nanos(0);
        if let (Some(setting), Some(id)) = (&options.journal, keeper)
            && let Some(consumer) = ends.take(id)
        {
            let mut opened = days::open(&setting.folder, setting.options, now())?;
            let mut from = None;
            {
                let (restored, refused) = folder::newest(&setting.folder, &opened.opened, &engine_options);
                let mut status = status.lock().unwrap_or_else(PoisonError::into_inner);
                status.snapshots.every = setting.snapshot_every;
                status.snapshots.refused = refused;
                if let Some(restored) = restored {
                    opened.go_on_from(&restored)?;
                    from = Some(restored.record);
                    first_time = restored.market.time();
                    engine = restored.engine;
                    stage.market.restore(restored.market);
                }
                status.snapshots.restored = from;
            }
            let is_regular = setting.snapshot_every.is_some();
            if is_regular {
                snapshots.need_from(from.unwrap_or_default());
            }
            replay = Some((setting.folder.clone(), opened.opened, from));
            let (producer, inputs) = spsc::with_strategies(
                setting.queue.max(64).next_power_of_two(),
                // Ingest wakes the journal's thread once in a turn: see `Ingest::turn`.
                Waiting::with_bells(wait, &[]),
                Waiting::with_bells(wait, &[]),
            );
            to_journal = Some((producer, Arc::clone(&journal_bell)));
            let (states, jobs) = channel();
            let (to, books) = channel();
            books_part = Some(checkpoint::BooksPart::new(Arc::clone(&snapshots), to, Arc::clone(&status)));
            let writer = checkpoint::CheckpointWriter {
                folder: setting.folder.clone(),
                is_regular,
                jobs,
                books,
                coordinator: Arc::clone(&snapshots),
                status: Arc::clone(&status),
            };
            spawn(
                "state",
                Box::new(move || {
                    writer.run();
                    Ok(())
                }),
            )?;
            let (waiter, disk) = journal::IoThread::new(states, Arc::clone(&status));
            spawn(
                "disk",
                Box::new(move || {
                    waiter.run();
                    Ok(())
                }),
            )?;
            let thread = journal::JournalThread::new(
                setting,
                opened,
                inputs,
                consumer,
                (disk, Arc::clone(&snapshots)),
                (wait, journal_bell),
                Arc::clone(&status),
            );
            spawn("journal", Box::new(move || thread.run()))?;
        }
        let inline = options.topology == Topology::Inline;
        let contradicted = stage.market.contradicted();
        let first_event = engine.counters().events;
        let (inline_stage, piped_stage) = if inline { (Some(stage), None) } else { (None, Some(stage)) };
        if let (Some(stage), Some(consumer)) = (piped_stage, market.and_then(|id| ends.take(id))) {
            let (core, status) = (options.cores[1], Arc::clone(&status));
            let piped = books::Piped::new(stage, first_event, books_part);
            spawn(
                "market",
                Box::new(move || books::run(piped, consumer, core, (wait, &market_bell), &status)),
            )?;
        }
        if let Some(mut consumer) = nobody.and_then(|id| ends.take(id)) {
            spawn(
                "nobody",
                Box::new(move || {
                    loop {
                        match consumer.poll(|_, _, _| {}) {
                            // Nobody waits for it: it does not take a core to be quick.
                            Ok(0) => std::thread::sleep(std::time::Duration::from_micros(500)),
                            Ok(_) => {}
                            Err(PollError::Closed) => return Ok(()),
                            Err(PollError::Failed(failed)) => {
                                let failed = tapeworks_ring::disruptor::PublishError::Failed(failed);
                                return Err(PlantFailure::Ring(failed));
                            }
                        }
                    }
                }),
            )?;
        }
        let consumers: Vec<EventConsumer> = wanted.into_iter().filter_map(|id| ends.take(id)).collect();

        let (mut ingest, asks) = ingest::Ingest::open(
            &options,
            producer,
            to_journal,
            (inline_stage, contradicted),
            snapshots,
            Arc::clone(&status),
        )?;
        let servers: Vec<snapshots::Server> = options
            .venues
            .iter()
            .map(|venue| snapshots::Server {
                address: venue.snapshot,
                login: venue.login.clone(),
                timeout: std::time::Duration::from_nanos(venue.snapshots.timeout_ns),
            })
            .collect();
        let (ready_in, ready) = std::sync::mpsc::sync_channel(1);
        let (stop_of_ingest, core) = (Arc::clone(&stop), options.cores[0]);
        let live_from = Arc::new(AtomicU64::new(u64::MAX));
        let live_from_in = Arc::clone(&live_from);
        spawn(
            "ingest",
            Box::new(move || {
                // Told by a thread that is gone: nobody waits for it.
                let pinned = core.map_or(Ok(()), cpu::pin);
                let replayed = pinned
                    .map_err(|source| PlantError::Pin { thread: "ingest", source })
                    .and_then(|()| match replay {
                        Some((folder, opened, from)) => ingest.replay(&mut engine, &folder, &opened, from),
                        None => Ok(JournalReplayed::default()),
                    });
                let is_ready = replayed.is_ok();
                if is_ready {
                    live_from_in.store(engine.counters().events, Ordering::Release);
                }
                let _nobody_waits = ready_in.send(replayed);
                if !is_ready {
                    return Ok(());
                }
                ingest.run(engine, &stop_of_ingest)
            }),
        )?;
        let stop_of_snapshots = Arc::clone(&stop);
        spawn(
            "snapshots",
            Box::new(move || {
                snapshots::run(&servers, &asks, &stop_of_snapshots);
                Ok(())
            }),
        )?;
        let plant =
            Self { stop, status, first_event, first_time, live_from, threads, ready, replayed: None, bells };
        Ok((plant, consumers))
    }

    /// The bell of a reader, by its place: who sleeps by it is woken when there are events. Only with the waiting `park`.
    pub fn bell(&self, reader: usize) -> Option<Arc<Bell>> {
        self.bells.get(reader).cloned()
    }

    /// Waits until the journal is replayed: from then on what the lines bring is published. The consumers must be read
    /// meanwhile.
    ///
    /// # Errors
    /// A journal that cannot be read, a core that ingest cannot be pinned to. The plant does nothing then.
    pub fn replayed(&mut self) -> Result<JournalReplayed, PlantError> {
        match self.replayed {
            Some(replayed) => Ok(replayed),
            None => {
                // A thread that is gone has panicked; stopping tells of it.
                let replayed = self.ready.recv().unwrap_or(Ok(JournalReplayed::default()))?;
                self.replayed = Some(replayed);
                Ok(replayed)
            }
        }
    }

    /// What it is doing, as of some tenths of a second ago.
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A handle on [`Plant::status`] for another thread.
    pub fn status_handle(&self) -> Arc<Mutex<Status>> {
        Arc::clone(&self.status)
    }

    /// The number of the first event that consumers see: those before it are in a state snapshot, and in the journal.
    pub const fn first_event(&self) -> u64 {
        self.first_event
    }

    /// The latest receive time of the events before that one; 0 when there are none.
    pub const fn first_time(&self) -> Nanos {
        self.first_time
    }

    /// The number of the first event that is not of the journal's replay; [`u64::MAX`] until the journal is replayed. It is
    /// told before that event is published.
    pub fn live_from(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.live_from)
    }

    /// Whether a thread of it has ended, which none does before it is told to unless it failed.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Tells it to stop, and waits: what was received is published and in the journal then.
    ///
    /// # Errors
    /// A thread that had failed, and why.
    pub fn stop(mut self) -> Result<(), PlantFailure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PlantFailure> {
        self.stop.store(true, Ordering::Release);
        let mut first = Ok(());
        // Ingest ends first: it closes the ring, behind which the others end.
        for (name, thread) in self.threads.drain(..).rev() {
            let ended = thread.join().unwrap_or(Err(PlantFailure::Panicked(name)));
            // A ring that stands still is what another failure has done.
            if first.is_ok() || matches!(first, Err(PlantFailure::Ring(_))) && ended.is_err() {
                first = ended;
            }
        }
        first
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _unheard = self.end();
    }
}

/// What a slot of the ring holds before its first event.
fn empty_event() -> Event {
    Event::new(tapeworks_market::EventKind::Other, Publisher(0), tapeworks_market::InstrumentId::UNKNOWN)
}
