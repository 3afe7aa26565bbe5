//! The thread that receives the lines.
//!
//! In each turn it reads the lines that may have datagrams (one `recvmmsg` each), in the order of the kernel's receive times. Each
//! datagram goes into the journal's queue and through the engine, and its events into the ring; books on this thread apply the
//! events of several datagrams together. Then the thread handles due timers, requests to servers, and answers of the snapshot
//! threads.
//!
//! Cost: the system calls, shared by the datagrams they return; per datagram the engine, a slot in the journal's queue and one
//! publication to the ring. The clock is read once per batch of events for the books on this thread, or else once per datagram with
//! events.

mod recovery;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tapeworks_feed::live::relayed::{Relayed, is_message};
use tapeworks_feed::live::{Input, LiveChannel, Request, SnapshotFault};
use tapeworks_journal::{Decoded, LOST, Opened, Record};
use tapeworks_market::{Event, Line};
use tapeworks_ring::disruptor::Producer;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::Wait;
use tapeworks_time::Nanos;

use recovery::Recovery;

use crate::books::BooksStage;
use crate::checkpoint::{Coordinator, Taken, nanos};
use crate::clock::{MOST_APART, TimeOfDay};
use crate::error::{PlantError, PlantFailure};
use crate::options::{PlantOptions, Topology};
use crate::pair::{Hold, PairSetting, Piece, Shared};
use crate::queued::{Bytes, JournalQueue, Queued};
use crate::receive::{Arrived, Receivers};
use crate::relay::{self, PIECES_IN_TURN, Relay, RelayOptions, RelaySender};
use crate::requests::Outbox;
use crate::snapshots::Requests;
use crate::status::{DelayBuckets, DelayPoint, EngineStatus, REPORT_INTERVAL, Status};
use crate::traces::Tracer;
use crate::warm::Warmer;
use tapeworks_engine::Contradicted;
use tapeworks_engine::Engine;
use tapeworks_engine::JournalReplayed;
use tapeworks_engine::records::input_of;
use tapeworks_planted::planted;
use tapeworks_runtime::waiting::{QUIET, Waiting, WakeUp};
use tapeworks_runtime::world::{Receive as _, World};

/// Number of pending events at which the books apply them: twice their look-ahead.
const TOGETHER: usize = 32;

/// How long the thread polls for packets before it sleeps.
const LOOK: Duration = Duration::from_micros(50);

/// How long after a checkpoint began the next one may begin if the journal has lost inputs that no checkpoint covers yet.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Points on the delay curve: ten minutes.
const DELAY_POINTS: usize = 600;

/// Longer delays count as this, in ns.
const LONGEST_DELAY: u64 = 60_000_000_000;

/// Delays from the receive time to publication.
struct Delays {
    all: Histogram<u64>,
    second: Histogram<u64>,
    since: Instant,
    points: Vec<DelayPoint>,
    buckets: DelayBuckets,
}

impl Delays {
    #[expect(clippy::expect_used, reason = "the bounds are constants within the histogram's own")]
    fn new(now: Instant) -> Self {
        let empty =
            || Histogram::new_with_bounds(1, LONGEST_DELAY, 3).expect("1 < bound and 3 digits are valid");
        Self {
            all: empty(),
            second: empty(),
            since: now,
            points: Vec::new(),
            buckets: DelayBuckets::default(),
        }
    }

    #[inline]
    fn record(&mut self, delay_ns: u64, messages: u64) {
        self.second.saturating_record_n(delay_ns, messages);
    }

    fn end_of_second(&mut self, now: Nanos, instant: Instant) {
        self.since = instant;
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
        for bin in self.second.iter_recorded() {
            self.buckets.add(bin.value_iterated_to(), bin.count_at_value());
        }
        // Both histograms have the same bounds, so adding them cannot fail.
        let _same_shape = self.all.add(&self.second);
        self.second.reset();
    }

    fn of_all(&self) -> [u64; 5] {
        let at = |quantile| self.all.value_at_quantile(quantile);
        [at(0.5), at(0.9), at(0.99), at(0.999), self.all.max()]
    }
}

/// Where ingest puts events and inputs: the ring, and the journal's queue.
struct Output<W: World> {
    ring: Producer<Event, Waiting<W>>,
    /// The highest fill of the ring seen.
    ring_highest: usize,
    journal: Option<spsc::Producer<Queued, Waiting<W>>>,
    /// Wakes the journal's thread.
    journal_wake_up: Option<Arc<WakeUp<W>>>,
    /// How many times the ring or the queue had no room.
    stalls: u64,
}

impl<W: World> Output<W> {
    /// Publishes events that the ring can hold together.
    #[inline]
    fn publish(&mut self, events: &[Event]) -> Result<(), PlantFailure> {
        if self.ring.capacity() - self.ring.fill() < events.len() {
            self.stalls += 1;
        }
        self.ring.publish_batch(events.len(), |at, slot| *slot = events[at]).map_err(PlantFailure::Ring)?;
        Ok(())
    }

    /// Queues an item for the journal, if there is one. Waits while the queue is full.
    #[inline]
    fn queue(&mut self, item: Queued) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(full) = journal.try_push(item) {
            self.stalls += 1;
            // The journal's thread may be asleep: it is otherwise woken by events, or at the end of the turn.
            self.journal_wake_up.iter().for_each(|wake_up| wake_up.wake());
            // The queue is closed only if the journal's thread has failed, and that thread reports why.
            if journal.push(full.into_inner()).is_err() {
                self.journal = None;
            }
        }
    }

    fn wake_journal(&self) {
        self.journal_wake_up.iter().for_each(|wake_up| wake_up.wake());
    }
}

/// Books on this thread.
struct OwnBooks<W: World> {
    stage: BooksStage<W>,
    /// Events in the ring that the books have not applied yet.
    unapplied: Vec<Event>,
    /// Receive times and message counts of the inputs whose delay is not recorded yet.
    unrecorded: Vec<(Nanos, u64)>,
}

/// The books, on this thread or on another.
enum Books<W: World> {
    Here(Box<OwnBooks<W>>),
    Elsewhere {
        /// Keeps the recovery path warm on this core.
        warmer: Option<Box<Warmer<W>>>,
    },
}

impl<W: World> Books<W> {
    fn new(stage: Option<BooksStage<W>>, warms: bool) -> Self {
        match stage {
            Some(stage) => Self::Here(Box::new(OwnBooks {
                stage,
                unapplied: Vec::with_capacity(4_096),
                unrecorded: Vec::with_capacity(1_024),
            })),
            None => Self::Elsewhere { warmer: warms.then(Box::default) },
        }
    }

    const fn are_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    /// Returns the number of events in the ring that books on this thread have not applied yet.
    const fn unapplied(&self) -> usize {
        match self {
            Self::Here(own) => own.unapplied.len(),
            Self::Elsewhere { .. } => 0,
        }
    }

    /// Keeps this core's caches warm in a turn without inputs.
    fn warm_up(&mut self) {
        match self {
            Self::Here(own) => own.stage.warm_up(),
            Self::Elsewhere { warmer } => warmer.iter_mut().for_each(|warmer| warmer.turn()),
        }
    }
}

/// When to take checkpoints.
struct Checkpoints {
    every: Option<Duration>,
    taken: Instant,
    /// The journal's loss count when the last checkpoint began.
    losses_seen: u64,
    coordinator: Arc<Coordinator>,
}

impl Checkpoints {
    /// Returns whether a checkpoint is due, and the journal's loss count. After the journal has lost inputs a checkpoint is also
    /// needed, because the journal's readers continue from the state after the loss.
    fn is_due<W: World>(&self) -> (bool, u64) {
        let since = W::since(self.taken);
        let (losses, unbridged) = self.coordinator.losses();
        let is_needed = unbridged > 0 && (losses > self.losses_seen || since >= AGAIN_AFTER);
        (is_needed || self.every.is_some_and(|every| since >= every), losses)
    }
}

/// Receives inputs, and publishes the engine's events.
pub(super) struct Ingest<W: World> {
    receivers: Receivers<W>,
    arrived: Vec<Arrived>,
    events: Vec<Event>,
    output: Output<W>,
    books: Books<W>,
    /// Contradictions reported by the books, on this thread or another.
    contradicted: Arc<Contradicted>,
    recovery: Recovery<W>,
    status: Arc<Mutex<Status>>,
    wait: Wait,
    time_of_day: TimeOfDay<W>,
    delays: Delays,
    checkpoints: Checkpoints,
    pair: Option<Follows<W>>,
    /// Samples packets for traces.
    tracer: Option<Box<Tracer>>,
    /// The source of events, if they come from another plant.
    relay: Option<Relay<W>>,
}

/// Ingest's part of a pair.
pub(super) struct Follows<W: World> {
    pieces: W::Receiver<Piece>,
    hold: Hold,
    shared: Arc<Shared<W>>,
    takes_over: u64,
}

impl<W: World> Follows<W> {
    pub(super) fn new(setting: &PairSetting, shared: Arc<Shared<W>>, pieces: W::Receiver<Piece>) -> Self {
        Self { pieces, hold: Hold::new(setting.buffer_bytes, setting.buffer), shared, takes_over: 0 }
    }
}

/// Chunks of the primary's journal to take before the lines are read again.
const RECORDS_IN_TURN: usize = 8;

impl<W: World> Ingest<W> {
    /// Opens the lines and creates ingest's state.
    pub(super) fn open(
        options: &PlantOptions,
        producer: Producer<Event, Waiting<W>>,
        journal: Option<JournalQueue<W>>,
        (market, contradicted): (Option<BooksStage<W>>, Arc<Contradicted>),
        coordinator: Arc<Coordinator>,
        requests: Option<Outbox<W>>,
        status: Arc<Mutex<Status>>,
    ) -> Result<(Self, Requests<W>), PlantError> {
        let (receivers, servers) = Receivers::open(options)?;
        let (journal, journal_wake_up) = journal.unzip();
        let now = W::time_of_day();
        {
            let mut first = status.lock().unwrap_or_else(PoisonError::into_inner);
            (first.time, first.started, first.ring.capacity) = (now, now, producer.capacity());
        }
        let (recovery, for_snapshots) = Recovery::new(servers, requests);
        let ingest = Self {
            receivers,
            arrived: Vec::with_capacity(1_024),
            events: Vec::with_capacity(4_096),
            output: Output { ring: producer, ring_highest: 0, journal, journal_wake_up, stalls: 0 },
            books: Books::new(market, options.warm && options.topology == Topology::Pipeline),
            contradicted,
            recovery,
            status,
            wait: options.wait,
            time_of_day: TimeOfDay::new(),
            delays: Delays::new(W::instant()),
            checkpoints: Checkpoints {
                every: options.journal.as_ref().and_then(|journal| journal.checkpoint_every),
                taken: W::instant(),
                losses_seen: 0,
                coordinator,
            },
            pair: None,
            tracer: options.traces.as_ref().and_then(|traces| {
                let names = options.venues.iter().map(|venue| venue.name.as_str());
                Tracer::new(traces, names).map(Box::new)
            }),
            relay: None,
        };
        Ok((ingest, for_snapshots))
    }

    /// Brings the engine to the end of the journal. The replayed events go into the ring and the books like live ones.
    pub(super) fn replay(
        &mut self,
        engine: &mut Engine,
        folder: &Path,
        opened: &Opened,
        from: Option<u64>,
    ) -> Result<JournalReplayed, PlantError> {
        let mut gone = Ok(());
        let started = W::instant();
        let replayed = tapeworks_engine::replay_in::<W>(engine, folder, from, |events| {
            gone = std::mem::replace(&mut gone, Ok(())).and_then(|()| self.publish(events));
            self.apply();
            events.clear();
            Ok(())
        })?;
        if replayed.lost > 0 || replayed.damaged > 0 {
            // Readers of the journal skip lost inputs by jumping to the next checkpoint.
            self.checkpoints.coordinator.add_losses(1);
        }
        // A dead consumer is reported at the first live event.
        let _reported_later = gone;
        self.report_status(engine);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.at_start = status.channels.clone();
        drop(status);
        let took_ns = nanos(W::since(started));
        Ok(JournalReplayed { torn_bytes: opened.torn_bytes, took_ns, ..replayed })
    }

    /// Joins a pair. Returns the waker for this thread.
    pub(super) fn pairs(&mut self, pair: Follows<W>) -> Result<W::Waker, PlantError> {
        self.pair = Some(pair);
        self.receivers.waker()
    }

    /// Takes another plant's events instead of lines. Returns the sender for them, which wakes this thread.
    pub(super) fn relays(&mut self, options: &RelayOptions) -> Result<RelaySender<W>, PlantError> {
        let (sender, relay) = relay::open(options.clone(), self.receivers.waker()?);
        self.relay = Some(relay);
        Ok(sender)
    }

    /// Lets the source of another plant's events begin, now that the engine is at the end of the journal.
    pub(super) fn begin(&self, engine: &Engine) -> Result<(), PlantError> {
        self.relay.as_ref().map_or(Ok(()), |relay| relay.begin(engine))
    }

    /// Takes events of another plant. Returns the number of pieces taken.
    fn take_pieces(&mut self, engine: &mut Engine) -> Result<usize, PlantFailure> {
        let mut taken = 0;
        while taken < PIECES_IN_TURN
            && let Some((received, payload)) = self.relay.as_ref().and_then(Relay::take)
        {
            self.input(engine, Input::Relayed { received, payload: Bytes::Owned(payload) })?;
            self.apply_many();
            taken += 1;
        }
        Ok(taken)
    }

    /// Follows the primary: takes its records while the packets of the plant's own lines wait. Returns `true` when the plant has
    /// taken over or has no pair, `false` when it is stopped.
    pub(super) fn follow(&mut self, engine: &mut Engine, stop: &AtomicBool) -> Result<bool, PlantFailure> {
        let Some(mut pair) = self.pair.take() else { return Ok(true) };
        let mut reported = W::instant();
        while !stop.load(Ordering::Acquire) {
            self.receivers.receive(&mut self.arrived)?;
            let mut taken = self.arrived.len();
            for Arrived { received, channel, line, packet, payload: (start, end) } in self.arrived.drain(..) {
                let payload = packet.bytes().get(start as usize..end as usize).unwrap_or_default();
                pair.hold.put(channel, line, received, payload);
            }
            for _ in 0..RECORDS_IN_TURN {
                match pair.pieces.try_recv() {
                    Ok(Piece::Records(bytes)) => self.take_records(engine, &bytes)?,
                    Ok(Piece::TakeOver) => {
                        pair.takes_over = self.take_over(engine, &mut pair.hold)?;
                        self.report_pair(&pair);
                        self.pair = Some(pair);
                        return Ok(true);
                    }
                    Err(_) => break,
                }
                taken += 1;
            }
            if let Some(time) = engine.feed().time() {
                pair.hold.is_taken_to(time);
            }
            if W::since(reported) >= REPORT_INTERVAL {
                reported = W::instant();
                // The engine follows the primary's clock; the waiting packets follow this machine's.
                if let Some((now, ahead_ns)) = self.time_of_day.was_set() {
                    self.receivers.set_times(now, ahead_ns);
                }
                self.report_pair(&pair);
                self.report_status(engine);
                self.keep_state(engine);
            }
            if taken == 0 {
                self.receivers.wait(QUIET);
            }
        }
        Ok(false)
    }

    fn report_pair(&self, pair: &Follows<W>) {
        pair.shared.update(|status| {
            (status.buffered_packets, status.buffered_bytes) = (pair.hold.packets, pair.hold.bytes);
            (status.buffer_drops, status.fed_packets) = (pair.hold.drops, pair.takes_over);
        });
        let pair = Some(pair.shared.status());
        self.status.lock().unwrap_or_else(PoisonError::into_inner).pair = pair;
    }

    /// Applies records of the primary's journal as a replay does, and queues them for the plant's own journal.
    fn take_records(&mut self, engine: &mut Engine, bytes: &Arc<[u8]>) -> Result<(), PlantFailure> {
        let mut start = 0;
        while let Decoded::Record(record, length) = Record::decode(bytes.get(start..).unwrap_or_default()) {
            let mut events = std::mem::take(&mut self.events);
            if record.kind == LOST {
                engine.inputs_lost(Nanos(record.time), &mut events);
                self.checkpoints.coordinator.add_losses(1);
            }
            if let Some(input) = input_of(&record) {
                engine.input(&input, &mut events);
            }
            self.output.queue(Queued::Followed(Arc::clone(bytes), (start as u32, (start + length) as u32)));
            let published = self.publish(&events);
            events.clear();
            self.events = events;
            published?;
            self.apply_many();
            start += length;
        }
        self.apply();
        // The primary sends these requests.
        while engine.take_request().is_some() {}
        self.output.wake_journal();
        Ok(())
    }

    /// Takes over: feeds the held packets of the plant's own lines, starting after the primary's last record. The first copy of
    /// each message counts. Returns how many packets were fed.
    fn take_over(&mut self, engine: &mut Engine, hold: &mut Hold) -> Result<u64, PlantFailure> {
        let now = W::time_of_day();
        let last = engine.feed().time().unwrap_or_default();
        if last.0 > now.0.saturating_add(MOST_APART) {
            // The engine's clock goes back to this machine's.
            let ahead_ns = now.0.wrapping_sub(last.0).cast_signed();
            self.input(engine, Input::ClockSet { now, ahead_ns })?;
        }
        let floor = engine.feed().time().unwrap_or_default();
        let fed = hold.drain(last, |channel, line, received, payload| {
            // Clients resume by these times, so they must not precede events that clients already have.
            let received = received.max(floor).min(now.max(floor));
            if engine.feed().deadline().is_some_and(|due| due <= received) {
                self.input(engine, Input::Tick { now: received })?;
            }
            let payload = Bytes::Owned(payload.to_vec());
            self.input(engine, Input::Packet { channel, line, received, payload })?;
            self.apply_many();
            Ok::<(), PlantFailure>(())
        })?;
        self.apply();
        self.output.wake_journal();
        Ok(fed)
    }

    /// Runs until the plant stops.
    pub(super) fn run(mut self, mut engine: Engine, stop: &AtomicBool) -> Result<(), PlantFailure> {
        let mut reported = W::instant();
        let mut quiet_since = W::instant();
        self.fail_old_attempts(&mut engine)?;
        loop {
            let taken = self.turn(&mut engine)?;
            if taken > 0 {
                quiet_since = W::instant();
                if W::since(reported) < REPORT_INTERVAL {
                    continue;
                }
            }
            if W::since(reported) >= REPORT_INTERVAL {
                reported = W::instant();
                self.report_status(&engine);
                self.look_at_clock(&mut engine)?;
                self.request_contradicted(&mut engine)?;
                self.keep_state(&engine);
                if stop.load(Ordering::Acquire) {
                    return Ok(());
                }
            }
            if taken == 0 {
                self.books.warm_up();
                self.rest(&engine, quiet_since);
                if stop.load(Ordering::Acquire) {
                    self.report_status(&engine);
                    return Ok(());
                }
            }
        }
    }

    /// Sends the state to the journal's thread if a checkpoint is due and none is in progress.
    #[cold]
    fn keep_state(&mut self, engine: &Engine) {
        let (is_due, losses) = self.checkpoints.is_due::<W>();
        let (true, Some(journal)) = (is_due, &mut self.output.journal) else { return };
        let Some(under_way) = self.checkpoints.coordinator.begin() else { return };
        let (began, began_at) = (W::instant(), W::time_of_day());
        (self.checkpoints.losses_seen, self.checkpoints.taken) = (losses, began);
        if journal.free_slots() == 0 {
            // The queue must drain first; the next checkpoint is due soon.
            self.status.lock().unwrap_or_else(PoisonError::into_inner).checkpoints.skipped += 1;
            return;
        }
        let coordinator = &self.checkpoints.coordinator;
        let market = match &self.books {
            Books::Here(own) => Some(own.stage.market.image_in(coordinator.earlier_image())),
            Books::Elsewhere { .. } => None,
        };
        let taken = Taken::new(engine, market, under_way, began_at, W::time_of_day());
        let pause = nanos(W::since(began));
        let pushed = taken.map(|taken| journal.try_push(Queued::State(Box::new(taken))).is_ok());
        self.output.wake_journal();
        if !self.books.are_here() && pushed == Ok(true) {
            // Everything up to this event is published, and nothing after it.
            coordinator.request_books(engine.counters().events);
        }
        let snapshots = &mut self.status.lock().unwrap_or_else(PoisonError::into_inner).checkpoints;
        match pushed {
            Ok(true) => {
                snapshots.taken += 1;
                snapshots.pause_ns = pause;
            }
            // The journal's thread has ended.
            Ok(false) => snapshots.skipped += 1,
            Err(error) => {
                snapshots.failed += 1;
                snapshots.error = Some(error);
            }
        }
    }

    /// Waits as configured, after a turn without inputs.
    fn rest(&mut self, engine: &Engine, quiet_since: Instant) {
        match self.wait {
            Wait::BusySpin => W::pause(),
            Wait::Yielding => W::yield_now(),
            Wait::Backoff | Wait::Park => {
                if self.wait == Wait::Backoff && W::since(quiet_since) < LOOK {
                    W::pause();
                    return;
                }
                let due = engine.feed().deadline().map_or(QUIET, |deadline| {
                    Duration::from_nanos(deadline.since(W::time_of_day())).min(QUIET)
                });
                // Snapshots, and answers to requests over TCP, do not arrive on the sockets polled here.
                let by_tcp = self.recovery.brings_answers();
                let awaits = |channel: &LiveChannel| {
                    channel.is_awaiting_snapshot() || by_tcp && channel.arbiter().is_recovering()
                };
                let longest = if engine.feed().channels().iter().any(awaits) {
                    due.min(Duration::from_millis(1))
                } else {
                    due
                };
                self.receivers.wait(longest);
            }
        }
    }

    /// Fails the snapshot attempts of the plant's previous run: their answers will not come.
    fn fail_old_attempts(&mut self, engine: &mut Engine) -> Result<(), PlantFailure> {
        for channel in 0..engine.feed().channels().len() {
            if let Some(attempt) = engine.feed().channels()[channel].awaited_attempt() {
                let received = W::time_of_day();
                let (channel, fault) = (channel as u16, SnapshotFault::Abandoned);
                self.input(engine, Input::SnapshotFailed { channel, attempt, fault, received })?;
            }
        }
        Ok(())
    }

    /// Runs one turn. Returns the number of inputs.
    fn turn(&mut self, engine: &mut Engine) -> Result<usize, PlantFailure> {
        self.receivers.receive(&mut self.arrived)?;
        let mut taken = self.arrived.len();
        let last = engine.feed().time();
        let is_far =
            |arrived: &Arrived| last.is_none_or(|last| last.0.abs_diff(arrived.received.0) > MOST_APART);
        if taken == 0 || self.receivers.take_gone_back() || self.arrived.iter().any(is_far) {
            taken += self.look_at_clock(engine)?;
        }
        // While packets arrive, time advances to the earliest of them: others may have waited in a socket just as long, and a
        // channel with a waiting packet is not silent.
        let time = self.arrived.iter().map(|arrived| arrived.received).min();
        if let Some(time) = time.filter(|time| engine.feed().deadline().is_some_and(|due| due <= *time)) {
            self.input(engine, Input::Tick { now: time })?;
            taken += 1;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        for Arrived { received, channel, line, packet, payload } in arrived.drain(..) {
            if line == Line::Recovery {
                let (start, end) = (payload.0 as usize, payload.1 as usize);
                if self.recovery.discards(engine, channel, packet.bytes().get(start..end).unwrap_or_default())
                {
                    continue;
                }
            }
            let payload = Bytes::Received(packet, payload);
            self.input(engine, Input::Packet { channel, line, received, payload })?;
            if self.books.unapplied() > 0 && planted!("checkpoint-within-a-packet") {
                self.keep_state(engine);
            }
            self.apply_many();
        }
        self.arrived = arrived;
        taken += self.take_pieces(engine)?;
        while let Some((channel, payload)) = self.recovery.take_answer() {
            taken += 1;
            if self.recovery.discards(engine, channel, &payload) {
                continue;
            }
            let (line, received) = (Line::Recovery, W::time_of_day());
            let payload = Bytes::Owned(payload);
            self.input(engine, Input::Packet { channel, line, received, payload })?;
        }
        if engine.feed().channels().iter().any(LiveChannel::is_awaiting_snapshot) {
            while let Some(answer) = self.recovery.take_snapshot() {
                self.input(engine, answer)?;
                taken += 1;
            }
        }
        if let (Some(deadline), None) = (engine.feed().deadline(), time) {
            let now = W::time_of_day();
            if deadline <= now || engine.feed().is_beyond(now) {
                self.input(engine, Input::Tick { now })?;
                taken += 1;
            }
        }
        self.apply();
        while let Some(request) = engine.take_request() {
            self.send(engine, request);
        }
        if let Some(tracer) = self.tracer.as_mut().filter(|tracer| tracer.is_awaiting()) {
            tracer.look(engine, W::time_of_day());
        }
        if taken > 0 {
            // Inputs without events wake no consumer of the ring, so wake the journal here.
            self.output.wake_journal();
        }
        Ok(taken)
    }

    /// Checks whether the clock was set. Returns the number of inputs.
    fn look_at_clock(&mut self, engine: &mut Engine) -> Result<usize, PlantFailure> {
        let set = self.time_of_day.was_set();
        if !self.arrived.is_empty() || set.is_some() {
            let (now, ahead_ns) = set.unwrap_or_else(|| (W::time_of_day(), 0));
            self.receivers.set_times(now, ahead_ns);
            for Arrived { received, .. } in &mut self.arrived {
                // Packets received before the clock was set carry the old clock's time.
                let by_new_clock = Nanos(received.0.saturating_add_signed(ahead_ns));
                if by_new_clock.0.abs_diff(now.0) < received.0.abs_diff(now.0) {
                    *received = by_new_clock;
                }
                *received = (*received).min(now);
            }
        }
        let Some((now, ahead_ns)) = set else { return Ok(0) };
        self.input(engine, Input::ClockSet { now, ahead_ns })?;
        Ok(1)
    }

    /// Requests snapshots for the channels whose messages contradict the books.
    fn request_contradicted(&mut self, engine: &mut Engine) -> Result<(), PlantFailure> {
        if self.contradicted.is_empty() {
            return Ok(());
        }
        let received = W::time_of_day();
        for channel in 0..engine.feed().channels().len() {
            if self.contradicted.has(channel)
                && engine.feed().channels()[channel].takes_contradiction(received)
            {
                self.input(engine, Input::Contradicted { channel: channel as u16, received })?;
            }
        }
        self.apply();
        while let Some(request) = engine.take_request() {
            self.send(engine, request);
        }
        Ok(())
    }

    /// Processes one input: journal queue, engine, ring.
    #[inline]
    fn input(&mut self, engine: &mut Engine, input: Input<Bytes>) -> Result<(), PlantFailure> {
        let mut events = std::mem::take(&mut self.events);
        let mut followed = match (&mut self.tracer, &input) {
            (Some(tracer), Input::Packet { channel, line, received, payload: Bytes::Received(..) }) => {
                tracer.packet(*channel, *line, *received, W::time_of_day)
            }
            _ => None,
        };
        engine.input(&input.borrowed(), &mut events);
        if let Some(way) = &mut followed {
            way.decoded = W::time_of_day();
        }
        let received = input.time();
        // Must precede publishing the input's events: see `JournalThread::run`.
        self.output.queue(Queued::Input(input));
        let published = self.publish(&events);
        let messages = events.iter().filter(|event| is_message(event)).count() as u64;
        if let (Some(way), Some(tracer)) = (followed, &mut self.tracer) {
            tracer.published(way, W::time_of_day(), &events, messages, self.books.are_here());
        }
        if !events.is_empty() {
            match &mut self.books {
                Books::Here(own) => own.unrecorded.push((received, messages)),
                Books::Elsewhere { .. } => {
                    self.delays.record(W::time_of_day().since(received), messages);
                }
            }
        }
        events.clear();
        self.events = events;
        published
    }

    /// Applies published events to the books once there are several.
    #[inline]
    fn apply_many(&mut self) {
        if self.books.unapplied() >= TOGETHER {
            self.apply();
        }
    }

    /// Applies published events to the books, if ingest has them, and records the delays.
    ///
    /// The books look ahead among the events of one call. Datagrams that arrived together are therefore applied together, so that
    /// the memory for later events is being fetched while the books work on earlier ones.
    #[inline]
    fn apply(&mut self) {
        let Books::Here(own) = &mut self.books else { return };
        if !own.unapplied.is_empty() {
            own.stage.market.apply(&own.unapplied);
            own.unapplied.clear();
        }
        if !own.unrecorded.is_empty() {
            let now = W::time_of_day();
            for (received, messages) in own.unrecorded.drain(..) {
                self.delays.record(now.since(received), messages);
            }
            if let Some(tracer) = self.tracer.as_mut().filter(|tracer| tracer.is_following()) {
                tracer.applied(now);
            }
        }
    }

    /// Publishes events to the ring. If ingest has the books, [`Ingest::apply`] must apply the events afterwards.
    #[inline]
    fn publish(&mut self, events: &[Event]) -> Result<(), PlantFailure> {
        for piece in events.chunks(self.output.ring.capacity() / 8) {
            self.output.publish(piece)?;
            if let Books::Here(own) = &mut self.books {
                own.unapplied.extend_from_slice(piece);
            }
        }
        Ok(())
    }

    /// Sends a request to its server.
    #[cold]
    fn send(&mut self, engine: &Engine, request: Request) {
        if let Some(tracer) = &mut self.tracer {
            let (Request::Retransmission { channel, .. } | Request::Snapshot { channel, .. }) = &request;
            if let Some(live) = engine.feed().channels().get(usize::from(*channel)) {
                match &request {
                    Request::Retransmission { .. } => tracer.requested(*channel, live, W::time_of_day()),
                    Request::Snapshot { .. } => tracer.snapshot_requested(*channel, live, W::time_of_day()),
                }
            }
        }
        self.recovery.send(&self.receivers.lines, request);
    }

    /// Publishes the status.
    #[cold]
    fn report_status(&mut self, engine: &Engine) {
        let now = W::time_of_day();
        if W::since(self.delays.since) >= Duration::from_secs(1) {
            self.delays.end_of_second(now, W::instant());
        }
        let fill = self.output.ring.fill();
        self.output.ring_highest = self.output.ring_highest.max(fill);
        let of_relay = self.relay.as_ref().map(|relay| {
            let status = relay.status();
            (relay.channel(engine, &status), status)
        });
        let mut channels: Vec<_> = engine
            .feed()
            .channels()
            .iter()
            .enumerate()
            .map(|(at, channel)| {
                let lines = self.receivers.lines.iter_mut().filter(|line| usize::from(line.channel) == at);
                self.recovery.channel_status(at, channel, lines)
            })
            .collect();
        let (of_relay, relay) = of_relay.unzip();
        channels.extend(of_relay);
        if let Some(pair) = &self.pair {
            self.report_pair(pair);
        }
        let feed = engine.feed().feed();
        let interface = self.receivers.interface().cloned();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.time = now;
        status.channels = channels;
        status.relay = relay;
        status.engine = EngineStatus {
            messages: feed.messages()
                + engine.feed().relayed().map_or(0, |relayed: &Relayed| relayed.messages),
            events: engine.counters().events,
            symbols: feed.instruments().len(),
            problems: feed.problems().total + feed.unreadable_symbols(),
        };
        status.interface = interface;
        status.ring.fill = fill;
        status.ring.highest = self.output.ring_highest;
        status.ring.stalls = self.output.stalls;
        status.delays.points.clone_from(&self.delays.points);
        status.delays.all = self.delays.of_all();
        status.delays.buckets = self.delays.buckets;
        if let Books::Here(own) = &mut self.books {
            own.stage.report(&mut status);
            drop(status);
            own.stage.show();
            own.stage.look_after_shared_memory(false, now);
        }
    }
}
