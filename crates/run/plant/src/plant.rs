//! A running plant: its threads, and the queues between them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapeworks_engine::checkpoint::folder;
use tapeworks_engine::days::{self, OpenJournal};
use tapeworks_engine::{Engine, EngineOptions, JournalReplayed};
use tapeworks_journal::Opened;
use tapeworks_market::Event;
use tapeworks_ring::disruptor::{Builder, ConsumerId, PollError, Producer, PublishError};
use tapeworks_ring::spsc;
use tapeworks_ring::wait::{News, Wait};
use tapeworks_runtime::traces::{Operations, Traces};
use tapeworks_runtime::waiting::{Waiting, WakeUp};
use tapeworks_runtime::world::{Receive as _, System, ThreadHandle as _, TrySend as _, World};
use tapeworks_time::Nanos;

use crate::books::{self, BooksStage, Piped};
use crate::checkpoint::{BooksPart, CheckpointWriter, Coordinator};
use crate::error::{PlantError, PlantFailure};
use crate::events::{EventConsumer, Reader, Readers, empty_event};
use crate::ingest::{Follows, Ingest};
use crate::journal::{IoThread, JournalSetting, JournalThread};
use crate::options::{PlantOptions, Topology, VenueOptions};
use crate::pair::{Link, PairError, PairSetting, Shared, Waiters};
use crate::queued::JournalQueue;
use crate::relay::RelaySender;
use crate::requests;
use crate::shared::SharedMemory;
use crate::snapshots;
use crate::status::Status;
use crate::view;

/// A running plant. Dropping it stops it.
#[derive(Debug)]
pub struct Plant<W: World = System> {
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<Status>>,
    first_event: u64,
    first_time: Nanos,
    live_from: Arc<AtomicU64>,
    threads: Threads<W>,
    ready: W::Receiver<Result<JournalReplayed, PlantError>>,
    replayed: Option<JournalReplayed>,
    relay: Option<RelaySender<W>>,
}

/// Threads, by their names.
#[derive(Debug)]
struct Threads<W: World>(Vec<Thread<W>>);

/// A thread, with its name.
type Thread<W> = (&'static str, <W as World>::Handle<Result<(), PlantFailure>>);

impl<W: World> Threads<W> {
    fn spawn(
        &mut self,
        thread: &'static str,
        run: impl FnOnce() -> Result<(), PlantFailure> + Send + 'static,
    ) -> Result<(), PlantError> {
        let handle = W::spawn(thread, run);
        self.0.push((thread, handle.map_err(|source| PlantError::Thread { thread, source })?));
        Ok(())
    }
}

/// A consumer, and the wake-up of its thread.
type Woken<W> = (EventConsumer<W>, Arc<WakeUp<W>>);

/// The ring: its producer, and its consumers by purpose.
struct Ring<W: World> {
    producer: Producer<Event, Waiting<W>>,
    journal: Option<Woken<W>>,
    market: Option<Woken<W>>,
    /// Consumer for a ring that has no other: it would be closed from the start.
    nobody: Option<EventConsumer<W>>,
    readers: Readers<W>,
}

impl<W: World> Ring<W> {
    /// Builds the ring. The journal is the first consumer, if there is one, and the readers follow it.
    fn new(options: &PlantOptions, names: &[&str]) -> Self {
        let wait = options.wait;
        let has_journal = options.journal.is_some();
        let wake_up = |news| (news, Arc::new(WakeUp::default()));
        let of_reader = if has_journal { News::Done(0) } else { News::Published };
        let of_readers: Vec<_> = names.iter().map(|_| wake_up(of_reader)).collect();
        let [of_journal, of_market] = [wake_up(News::Published), wake_up(News::Published)];
        let wake_ups: Vec<_> = of_readers.iter().chain([&of_journal, &of_market]).cloned().collect();
        let slots = options.ring_events.max(1024).next_power_of_two();
        let mut builder = Builder::new(slots, empty_event, move || Waiting::with_wake_ups(wait, &wake_ups));
        let journal = has_journal.then(|| builder.consumer("journal", &[]));
        let market = (options.topology == Topology::Pipeline).then(|| builder.consumer("market", &[]));
        let readers: Vec<_> = names.iter().map(|name| builder.consumer(name, journal.as_slice())).collect();
        let nobody = (readers.is_empty() && journal.is_none() && market.is_none())
            .then(|| builder.consumer("nobody", &[]));
        let (producer, mut ends) = builder.single_producer();
        let mut take = |id: Option<ConsumerId>| id.and_then(|id| ends.take(id));
        let journal = take(journal).map(|consumer| (consumer, of_journal.1));
        let market = take(market).map(|consumer| (consumer, of_market.1));
        let nobody = take(nobody);
        let readers = names
            .iter()
            .zip(readers)
            .zip(of_readers)
            .filter_map(|((name, id), (_, wake_up))| {
                let wake_up = (wait == Wait::Park).then_some(wake_up);
                Some(((*name).to_owned(), Reader { consumer: ends.take(id)?, wake_up }))
            })
            .collect();
        Self { producer, journal, market, nobody, readers: Readers(readers) }
    }
}

/// The state that a plant starts with.
struct Beginning<W: World> {
    engine: Engine,
    books: BooksStage<W>,
    /// The latest receive time of the events before the first one; 0 if there are none.
    time: Nanos,
    /// The next record of the journal to replay; `None` if no checkpoint is used.
    record: Option<u64>,
}

impl<W: World> Beginning<W> {
    /// Restores the newest usable checkpoint in the journal's folder, if there is one.
    fn restore(
        &mut self,
        setting: &JournalSetting,
        options: &EngineOptions,
        opened: &mut OpenJournal<W>,
        status: &Mutex<Status>,
    ) -> Result<(), PlantError> {
        let (restored, refused) = folder::newest_in::<W>(&setting.folder, &opened.opened, options);
        if let Some(restored) = restored {
            opened.go_on_from(&restored)?;
            self.record = Some(restored.record);
            self.time = restored.market.time();
            self.engine = restored.engine;
            self.books.market.restore(restored.market);
        }
        let snapshots = &mut status.lock().unwrap_or_else(PoisonError::into_inner).checkpoints;
        (snapshots.every, snapshots.refused, snapshots.restored) =
            (setting.checkpoint_every, refused, self.record);
        Ok(())
    }
}

/// The journal as ingest sees it.
struct Journaled<W: World> {
    queue: JournalQueue<W>,
    /// Its folder, its contents, and the record to replay it from.
    replay: (PathBuf, Opened, Option<u64>),
    /// For the books' own thread, if there is one.
    books_part: BooksPart<W>,
}

/// The pair's options, and the state that its threads share.
type OfPair<'p, W> = Option<(&'p PairSetting, &'p Arc<Shared<W>>)>;

/// What the journal's threads share with others.
type Shares<'s, W> = (&'s Arc<Coordinator>, &'s Arc<Mutex<Status>>, Option<&'s Operations>, OfPair<'s, W>);

/// Starts the threads of the journal and of checkpoints; the journal continues after its last record.
fn start_journal<W: World>(
    setting: &JournalSetting,
    opened: OpenJournal<W>,
    from: Option<u64>,
    wait: Wait,
    (consumer, wake_up): Woken<W>,
    (coordinator, status, operations, pair): Shares<'_, W>,
    threads: &mut Threads<W>,
) -> Result<Journaled<W>, PlantError> {
    let is_regular = setting.checkpoint_every.is_some();
    if is_regular {
        coordinator.need_from(from.unwrap_or_default());
    }
    let replay = (setting.folder.clone(), opened.opened, from);
    let (queue, inputs) = spsc::with_strategies(
        setting.queue.max(64).next_power_of_two(),
        // Ingest wakes the journal's thread once per turn: see `Ingest::turn`.
        Waiting::with_wake_ups(wait, &[]),
        Waiting::with_wake_ups(wait, &[]),
    );
    let (states, jobs) = W::channel();
    let (to, books) = W::channel();
    let books_part = BooksPart::new(Arc::clone(coordinator), to, Arc::clone(status));
    let writer = CheckpointWriter::<W> {
        folder: setting.folder.clone(),
        start: from.unwrap_or_default(),
        is_regular,
        jobs,
        books,
        coordinator: Arc::clone(coordinator),
        status: Arc::clone(status),
        operations: operations.cloned(),
    };
    threads.spawn("state", move || {
        writer.run();
        Ok(())
    })?;
    let (io, disk) = IoThread::<W>::new(states, Arc::clone(status));
    threads.spawn("disk", move || {
        io.run();
        Ok(())
    })?;
    let waiters = pair.map(|(setting, shared)| {
        shared.wakes(Arc::clone(&wake_up));
        Waiters::new(Arc::clone(shared), setting.standby_timeout)
    });
    let thread = JournalThread::new(
        setting,
        opened,
        inputs,
        consumer,
        (disk, Arc::clone(coordinator)),
        (wait, Arc::clone(&wake_up)),
        (Arc::clone(status), waiters),
    );
    threads.spawn("journal", move || thread.run())?;
    Ok(Journaled { queue: (queue, wake_up), replay, books_part })
}

/// Drains the ring if it has no other consumer.
fn read_for_nobody<W: World>(mut consumer: EventConsumer<W>) -> Result<(), PlantFailure> {
    // Even 100 million events a second would take this long to fill the ring: ingest never waits for room, and an idle plant uses
    // no CPU.
    let pause = Duration::from_nanos(10 * consumer.capacity() as u64).min(Duration::from_millis(20));
    loop {
        match consumer.poll(|_, _, _| {}) {
            Ok(0) => W::sleep(pause),
            Ok(_) => {}
            Err(PollError::Closed) => return Ok(()),
            Err(PollError::Failed(failed)) => return Err(PlantFailure::Ring(PublishError::Failed(failed))),
        }
    }
}

/// Returns the venues' snapshot servers.
fn snapshot_servers(options: &PlantOptions) -> Vec<snapshots::Server> {
    let server = |venue: &VenueOptions| snapshots::Server {
        server: venue.snapshot,
        interface: options.receive.interface,
        login: venue.login.clone(),
        timeout: Duration::from_nanos(venue.snapshots.timeout_ns),
    };
    options.venues.iter().map(server).collect()
}

impl Plant {
    /// Starts a plant, and returns a consumer of its events for each name in `readers`. When this returns, the plant is listening
    /// to the lines and replaying the journal ([`Plant::replayed`] waits for the end of the replay); consumers see the replayed
    /// events like any others.
    ///
    /// A reader that stops reading stops the plant once the ring is full.
    ///
    /// # Errors
    /// [`PlantError`].
    pub fn start(options: PlantOptions, readers: &[&str]) -> Result<(Self, Readers), PlantError> {
        Self::start_watched(options, readers, view::Watch::default())
    }

    /// Starts a plant like [`Plant::start`], and publishes the books in `watch`.
    ///
    /// # Errors
    /// [`PlantError`].
    pub fn start_watched(
        options: PlantOptions,
        readers: &[&str],
        watch: view::Watch,
    ) -> Result<(Self, Readers), PlantError> {
        Self::start_in(options, readers, watch)
    }
}

impl<W: World> Plant<W> {
    /// Starts a plant like [`Plant::start_watched`], in any world.
    ///
    /// # Errors
    /// [`PlantError`].
    pub fn start_in(
        options: PlantOptions,
        readers: &[&str],
        watch: view::Watch<W>,
    ) -> Result<(Self, Readers<W>), PlantError> {
        let stop = Arc::new(AtomicBool::new(false));
        let status = Arc::new(Mutex::new(Status::default()));
        let mut threads = Threads::<W>(Vec::new());
        let Ring { producer, journal, market, nobody, readers } = Ring::<W>::new(&options, readers);
        let shared = options.shared_memory.as_deref().map(SharedMemory::create).transpose()?;
        let engine_options = options.engine();
        let mut beginning = Beginning {
            engine: Engine::new(&engine_options),
            books: BooksStage::new(&engine_options, shared, watch, options.warm),
            time: Nanos(0),
            record: None,
        };
        let coordinator = Arc::new(Coordinator::default());
        let (mut queue, mut replay, mut books_part) = (None, None, None);
        let mut pair = None;
        if options.pair.is_some() && options.journal.is_none() {
            return Err(PairError::NoJournal.into());
        }
        // The journal is read to its end before anything is appended.
        if let (Some(setting), Some(end)) = (&options.journal, journal) {
            let mut opened = days::open_in::<W>(&setting.folder, setting.options, W::time_of_day())?;
            // A plant of a pair gets the missing records from its peer.
            if options.pair.is_none() {
                opened.count_missing(W::time_of_day())?;
            }
            beginning.restore(setting, &engine_options, &mut opened, &status)?;
            if let Some(of_pair) = &options.pair {
                pair = Some((
                    of_pair,
                    Link::<W>::open(of_pair, &setting.folder, options.alike(), opened.opened.next)?,
                ));
            }
            let of_pair = pair.as_ref().map(|(of_pair, (_, shared, _))| (*of_pair, shared));
            let operations = options.traces.as_ref().and_then(Traces::operations);
            let by = (&coordinator, &status, operations, of_pair);
            let from = beginning.record;
            let started = start_journal(setting, opened, from, options.wait, end, by, &mut threads)?;
            (queue, replay, books_part) =
                (Some(started.queue), Some(started.replay), Some(started.books_part));
        }
        let Beginning { mut engine, books, time: first_time, .. } = beginning;
        let first_event = engine.counters().events;
        let contradicted = books.market.contradicted();
        let mut inline = None;
        match market {
            Some((consumer, wake_up)) => {
                let (core, wait, status) = (options.cores[1], options.wait, Arc::clone(&status));
                let piped = Piped::new(books, first_event, books_part);
                threads
                    .spawn("market", move || books::run(piped, consumer, core, (wait, &wake_up), &status))?;
            }
            None => inline = Some(books),
        }
        if let Some(consumer) = nobody {
            threads.spawn("nobody", move || read_for_nobody(consumer))?;
        }
        let (outbox, requesters) = requests::open::<W>(&options)?.unzip();
        let (mut ingest, snapshots_wanted) = Ingest::open(
            &options,
            producer,
            queue,
            (inline, contradicted),
            coordinator,
            outbox,
            Arc::clone(&status),
        )?;
        let mut follows = false;
        if let Some((of_pair, (mut link, shared, pieces))) = pair {
            follows = link.is_standby();
            link.wakes(ingest.pairs(Follows::new(of_pair, shared, pieces))?);
            let stop = Arc::clone(&stop);
            threads.spawn("pair", move || link.run(&stop).map_err(PlantFailure::Pair))?;
        }
        let relay = options.relay.as_ref().map(|relay| ingest.relays(relay)).transpose()?;
        let (ready_in, ready) = W::sync_channel(1);
        let (stop_of_ingest, core) = (Arc::clone(&stop), options.cores[0]);
        let live_from = Arc::new(AtomicU64::new(u64::MAX));
        let live_from_in = Arc::clone(&live_from);
        threads.spawn("ingest", move || {
            // If this thread dies, `ready` closes and `replayed` returns.
            let pinned = core.map_or(Ok(()), W::pin);
            let replayed =
                pinned.map_err(|source| PlantError::Pin { thread: "ingest", source }).and_then(|()| {
                    match replay {
                        Some((folder, opened, from)) => ingest.replay(&mut engine, &folder, &opened, from),
                        None => Ok(JournalReplayed::default()),
                    }
                });
            let replayed = replayed.and_then(|replayed| ingest.begin(&engine).map(|()| replayed));
            let is_ready = replayed.is_ok();
            if is_ready {
                live_from_in.store(engine.counters().events, Ordering::Release);
            }
            // The channel has room for this one answer.
            let _nobody_waits = ready_in.try_send(replayed);
            if !is_ready {
                return Ok(());
            }
            if follows && !ingest.follow(&mut engine, &stop_of_ingest)? {
                return Ok(());
            }
            ingest.run(engine, &stop_of_ingest)
        })?;
        if let Some(requesters) = requesters {
            let stop = Arc::clone(&stop);
            threads.spawn("requests", move || {
                requesters.run(&stop);
                Ok(())
            })?;
        }
        let (servers, stop_of_snapshots) = (snapshot_servers(&options), Arc::clone(&stop));
        threads.spawn("snapshots", move || {
            snapshots::run::<W>(&servers, &snapshots_wanted, &stop_of_snapshots)
        })?;
        let plant =
            Self { stop, status, first_event, first_time, live_from, threads, ready, replayed: None, relay };
        Ok((plant, readers))
    }

    /// Waits until the journal is replayed; from then on the plant publishes live events. The consumers must be read in the
    /// meantime.
    ///
    /// # Errors
    /// A journal that cannot be read, or a core that ingest cannot be pinned to. The plant then does nothing.
    pub fn replayed(&mut self) -> Result<JournalReplayed, PlantError> {
        match self.replayed {
            Some(replayed) => Ok(replayed),
            None => {
                // A closed channel means that the thread panicked; stopping reports it.
                let replayed = self.ready.recv().unwrap_or(Ok(JournalReplayed::default()))?;
                self.replayed = Some(replayed);
                Ok(replayed)
            }
        }
    }

    /// Takes the sender for another plant's events, if events come from another plant. Returns it only once.
    pub const fn relay(&mut self) -> Option<RelaySender<W>> {
        self.relay.take()
    }

    /// Returns the status, as of some tenths of a second ago.
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a handle on [`Plant::status`] for another thread.
    pub fn status_handle(&self) -> Arc<Mutex<Status>> {
        Arc::clone(&self.status)
    }

    /// Returns the number of the first event that consumers see. Earlier events are in a checkpoint, and in the journal.
    pub const fn first_event(&self) -> u64 {
        self.first_event
    }

    /// Returns the latest receive time of the events before `Plant::first_event`; 0 if there are none.
    pub const fn first_time(&self) -> Nanos {
        self.first_time
    }

    /// Returns the number of the first event after the journal's replay; [`u64::MAX`] until the journal is replayed. The plant
    /// stores the number before it publishes that event.
    pub fn live_from(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.live_from)
    }

    /// Returns whether any thread has ended; before [`Plant::stop`] that happens only if one failed.
    pub fn has_ended(&self) -> bool {
        self.threads.0.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Stops the plant, and waits until all received inputs are published and in the journal.
    ///
    /// # Errors
    /// The failure of a thread.
    pub fn stop(mut self) -> Result<(), PlantFailure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PlantFailure> {
        self.stop.store(true, Ordering::Release);
        let mut first = Ok(());
        // Ingest ends first and closes the ring; the others end once they have read it.
        for (name, thread) in self.threads.0.drain(..).rev() {
            let ended = thread.join().unwrap_or(Err(PlantFailure::Panicked(name)));
            // A ring failure is the consequence of another thread's failure, which is reported instead.
            if first.is_ok() || matches!(first, Err(PlantFailure::Ring(_))) && ended.is_err() {
                first = ended;
            }
        }
        first
    }
}

impl<W: World> Drop for Plant<W> {
    fn drop(&mut self) {
        // `stop` returns the failure; a dropped plant has no one to report it to.
        let _unheard = self.end();
    }
}
