//! A running plant: its threads, and what joins them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tapeworks_engine::checkpoint::folder;
use tapeworks_engine::{Engine, JournalReplayed, days};
use tapeworks_market::Nanos;
use tapeworks_ring::disruptor::{Builder, PollError};
use tapeworks_ring::wait::News;
use tapeworks_ring::{cpu, spsc};
use tapeworks_runtime::now;
use tapeworks_runtime::waiting::{Bell, Waiting};

use crate::books::{self, BooksStage};
use crate::checkpoint;
use crate::error::{PlantError, PlantFailure};
use crate::events::{EventConsumer, empty_event};
use crate::ingest;
use crate::journal;
use crate::options::{PlantOptions, Topology};
use crate::shared::SharedMemory;
use crate::snapshots;
use crate::status::Status;
use crate::view;

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
