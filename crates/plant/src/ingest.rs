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

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tapeworks_feed::live::relayed::{Relayed, is_message};
use tapeworks_feed::live::{Input, LiveChannel, Request, SnapshotFault};
use tapeworks_follow::arbitration::{LineCounters, Usefulness};
use tapeworks_journal::{Decoded, LOST, Opened, Record};
use tapeworks_market::{Event, Line};
use tapeworks_ring::disruptor::Producer;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::Wait;
use tapeworks_time::Nanos;

use crate::books::BooksStage;
use crate::checkpoint::{Coordinator, Taken, nanos};
use crate::clock::{MOST_APART, TimeOfDay};
use crate::error::{PlantError, PlantFailure};
use crate::options::{PlantOptions, Topology};
use crate::pair::{Hold, PairSetting, Piece, Shared};
use crate::queued::{Bytes, JournalQueue, Queued};
use crate::receive::{Arrived, LineReceiver, Receivers, RecoveryServer};
use crate::relay::{self, PIECES_IN_TURN, Relay, RelayOptions, RelaySender};
use crate::requests::Outbox;
use crate::snapshots::{Requests, Wanted};
use crate::status::{
    ChannelStatus, DelayBuckets, DelayPoint, LineStatus, REPORT_INTERVAL, RequesterStatus, Status,
};
use crate::traces::Tracer;
use crate::warm::Warmer;
use tapeworks_engine::Contradicted;
use tapeworks_engine::Engine;
use tapeworks_engine::JournalReplayed;
use tapeworks_engine::records::input_of;
use tapeworks_planted::planted;
use tapeworks_runtime::waiting::{QUIET, Waiting, WakeUp};
use tapeworks_runtime::world::{DatagramReceiver as _, Receive as _, SendTo as _, World};

/// Number of pending events at which the books apply them: twice their look-ahead.
const TOGETHER: usize = 32;

/// How long the thread polls for packets before it sleeps.
const LOOK: Duration = Duration::from_micros(50);

/// How long after a checkpoint began the next one may begin if the journal has lost inputs that no checkpoint covers yet.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Snapshot chunks that may wait for ingest.
const ANSWERS: usize = 64;

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

/// Receives inputs, and publishes the engine's events.
pub(super) struct Ingest<W: World> {
    receivers: Receivers<W>,
    /// The server for each channel's requests, and the line whose socket sends them.
    servers: Vec<RecoveryServer>,
    arrived: Vec<Arrived>,
    events: Vec<Event>,
    /// Events in the ring that this thread's books have not applied yet.
    unapplied: Vec<Event>,
    /// Receive times and message counts of the inputs whose delay is not recorded yet.
    unrecorded: Vec<(Nanos, u64)>,
    producer: Producer<Event, Waiting<W>>,
    journal: Option<spsc::Producer<Queued, Waiting<W>>>,
    /// Wakes the journal's thread.
    journal_wake_up: Option<Arc<WakeUp<W>>>,
    market: Option<BooksStage<W>>,
    /// Contradictions reported by the books, on this thread or another.
    contradicted: Arc<Contradicted>,
    wanted: W::Sender<Wanted>,
    answers: W::Receiver<Input<Bytes>>,
    /// By channel: packets of a snapshot's multicast group that belonged to no snapshot.
    snapshot_packets_ignored: Arc<[AtomicU64]>,
    /// Requests to the servers over TCP, if there are any.
    requests: Option<Outbox<W>>,
    status: Arc<Mutex<Status>>,
    wait: Wait,
    time_of_day: TimeOfDay<W>,
    delays: Delays,
    stalls: u64,
    ring_highest: usize,
    unsent_requests: u64,
    /// By channel: answers to requests that contained no missing message.
    discarded_answers: Vec<LineCounters>,
    /// Keeps the recovery path warm on this core if the books are on another one.
    warm: Option<Warmer<W>>,
    checkpoint_every: Option<Duration>,
    checkpoint_taken: Instant,
    /// The journal's loss count when the last checkpoint began.
    losses_seen: u64,
    coordinator: Arc<Coordinator>,
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
        let (wanted, wanted_out) = W::channel();
        let (answers_in, answers) = W::sync_channel(ANSWERS);
        let ignored: Arc<[AtomicU64]> = options.venues.iter().map(|_| AtomicU64::new(0)).collect();
        let (journal, journal_wake_up) = journal.unzip();
        let now = W::time_of_day();
        {
            let mut first = status.lock().unwrap_or_else(PoisonError::into_inner);
            (first.time, first.started, first.ring_capacity) = (now, now, producer.capacity());
        }
        let ingest = Self {
            receivers,
            servers,
            arrived: Vec::with_capacity(1_024),
            events: Vec::with_capacity(4_096),
            unapplied: Vec::with_capacity(4_096),
            unrecorded: Vec::with_capacity(1_024),
            producer,
            journal,
            journal_wake_up,
            market,
            contradicted,
            wanted,
            answers,
            snapshot_packets_ignored: Arc::clone(&ignored),
            requests,
            status,
            wait: options.wait,
            time_of_day: TimeOfDay::new(),
            delays: Delays::new(W::instant()),
            stalls: 0,
            ring_highest: 0,
            unsent_requests: 0,
            discarded_answers: vec![LineCounters::default(); options.venues.len()],
            warm: (options.warm && options.topology == Topology::Pipeline).then(Warmer::default),
            checkpoint_every: options.journal.as_ref().and_then(|journal| journal.checkpoint_every),
            checkpoint_taken: W::instant(),
            losses_seen: 0,
            coordinator,
            pair: None,
            tracer: options.traces.as_ref().and_then(|traces| {
                let names = options.venues.iter().map(|venue| venue.name.as_str());
                Tracer::new(traces, names).map(Box::new)
            }),
            relay: None,
        };
        Ok((ingest, Requests { wanted: wanted_out, answers: answers_in, ignored }))
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
            self.coordinator.add_losses(1);
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
            if self.unapplied.len() >= TOGETHER {
                self.apply();
            }
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
                self.coordinator.add_losses(1);
            }
            if let Some(input) = input_of(&record) {
                engine.input(&input, &mut events);
            }
            self.queue(Queued::Followed(Arc::clone(bytes), (start as u32, (start + length) as u32)));
            let published = self.publish(&events);
            events.clear();
            self.events = events;
            published?;
            if self.unapplied.len() >= TOGETHER {
                self.apply();
            }
            start += length;
        }
        self.apply();
        // The primary sends these requests.
        while engine.take_request().is_some() {}
        self.journal_wake_up.iter().for_each(|wake_up| wake_up.wake());
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
            if self.unapplied.len() >= TOGETHER {
                self.apply();
            }
            Ok::<(), PlantFailure>(())
        })?;
        self.apply();
        self.journal_wake_up.iter().for_each(|wake_up| wake_up.wake());
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
                match (&mut self.market, &mut self.warm) {
                    (Some(market), _) => market.warm_up(),
                    (None, Some(warmer)) => warmer.turn(),
                    (None, None) => {}
                }
                self.rest(&engine, quiet_since);
                if stop.load(Ordering::Acquire) {
                    self.report_status(&engine);
                    return Ok(());
                }
            }
        }
    }

    /// Sends the state to the journal's thread if a checkpoint is due and none is in progress. After the journal has lost inputs a
    /// checkpoint is also needed, because the journal's readers continue from the state after the loss.
    #[cold]
    fn keep_state(&mut self, engine: &Engine) {
        let is_due = self.checkpoint_every.is_some_and(|every| W::since(self.checkpoint_taken) >= every);
        let (losses, unbridged) = self.coordinator.losses();
        let is_needed =
            unbridged > 0 && (losses > self.losses_seen || W::since(self.checkpoint_taken) >= AGAIN_AFTER);
        let (true, Some(journal)) = (is_due || is_needed, &mut self.journal) else { return };
        let Some(under_way) = self.coordinator.begin() else { return };
        let (began, began_at) = (W::instant(), W::time_of_day());
        self.losses_seen = losses;
        self.checkpoint_taken = began;
        if journal.free_slots() == 0 {
            // The queue must drain first; the next checkpoint is due soon.
            self.status.lock().unwrap_or_else(PoisonError::into_inner).checkpoints.skipped += 1;
            return;
        }
        let has_books = self.market.is_some();
        let market =
            self.market.as_ref().map(|books| books.market.image_in(self.coordinator.earlier_image()));
        let taken = Taken::new(engine, market, under_way, began_at, W::time_of_day());
        let pause = nanos(W::since(began));
        let pushed = taken.map(|taken| journal.try_push(Queued::State(Box::new(taken))).is_ok());
        self.journal_wake_up.iter().for_each(|wake_up| wake_up.wake());
        if !has_books && pushed == Ok(true) {
            // Everything up to this event is published, and nothing after it.
            self.coordinator.request_books(engine.counters().events);
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
                let by_tcp = self.requests.as_ref().is_some_and(Outbox::brings_answers);
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
                if self.discards(engine, channel, packet.bytes().get(start..end).unwrap_or_default()) {
                    continue;
                }
            }
            let payload = Bytes::Received(packet, payload);
            self.input(engine, Input::Packet { channel, line, received, payload })?;
            if !self.unapplied.is_empty() && planted!("checkpoint-within-a-packet") {
                self.keep_state(engine);
            }
            if self.unapplied.len() >= TOGETHER {
                self.apply();
            }
        }
        self.arrived = arrived;
        taken += self.take_pieces(engine)?;
        while let Some((channel, payload)) = self.requests.as_ref().and_then(Outbox::take_answer) {
            taken += 1;
            if self.discards(engine, channel, &payload) {
                continue;
            }
            let (line, received) = (Line::Recovery, W::time_of_day());
            let payload = Bytes::Owned(payload);
            self.input(engine, Input::Packet { channel, line, received, payload })?;
        }
        if engine.feed().channels().iter().any(LiveChannel::is_awaiting_snapshot) {
            while let Ok(answer) = self.answers.try_recv() {
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
            self.journal_wake_up.iter().for_each(|wake_up| wake_up.wake());
        }
        Ok(taken)
    }

    /// Returns whether an answer to a request contains no missing message and is to be discarded, so that a server that lies or
    /// repeats itself cannot fill the journal.
    #[cold]
    fn discards(&mut self, engine: &Engine, channel: u16, payload: &[u8]) -> bool {
        let usefulness = engine.feed().usefulness_of_answer(channel, payload);
        if let Some(counters) = self.discarded_answers.get_mut(usize::from(channel)) {
            counters.count_discarded(usefulness);
        }
        usefulness != Usefulness::Needed
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
        self.queue(Queued::Input(input));
        let published = self.publish(&events);
        let messages = events.iter().filter(|event| is_message(event)).count() as u64;
        if let (Some(way), Some(tracer)) = (followed, &mut self.tracer) {
            tracer.published(way, W::time_of_day(), &events, messages, self.market.is_some());
        }
        if !events.is_empty() {
            if self.market.is_some() {
                self.unrecorded.push((received, messages));
            } else {
                self.delays.record(W::time_of_day().since(received), messages);
            }
        }
        events.clear();
        self.events = events;
        published
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

    /// Applies published events to the books, if ingest has them, and records the delays.
    ///
    /// The books look ahead among the events of one call. Datagrams that arrived together are therefore applied together, so that
    /// the memory for later events is being fetched while the books work on earlier ones.
    #[inline]
    fn apply(&mut self) {
        if let Some(market) = &mut self.market
            && !self.unapplied.is_empty()
        {
            market.market.apply(&self.unapplied);
            self.unapplied.clear();
        }
        if !self.unrecorded.is_empty() {
            let now = W::time_of_day();
            for (received, messages) in self.unrecorded.drain(..) {
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
        for piece in events.chunks(self.producer.capacity() / 8) {
            if self.producer.capacity() - self.producer.fill() < piece.len() {
                self.stalls += 1;
            }
            self.producer
                .publish_batch(piece.len(), |at, slot| *slot = piece[at])
                .map_err(PlantFailure::Ring)?;
            if self.market.is_some() {
                self.unapplied.extend_from_slice(piece);
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
        match request {
            Request::Retransmission { channel, request } => {
                let by_tcp = self.requests.as_ref().filter(|requests| requests.serves(channel));
                let is_sent = match by_tcp {
                    Some(requests) => requests.send(channel, request),
                    None => {
                        let server = self.servers.get(usize::from(channel)).copied().flatten();
                        let line = server.and_then(|(line, to)| Some((self.receivers.lines.get(line)?, to)));
                        line.is_some_and(|(line, to)| line.receiver.send_to(&request.encode(), to).is_ok())
                    }
                };
                self.unsent_requests += u64::from(!is_sent);
            }
            Request::Snapshot { channel, session, attempt } => {
                // If the snapshot thread has ended, no answer comes and the attempt times out.
                let _nobody = self.wanted.send(Wanted { channel, session, attempt });
            }
        }
    }

    /// Publishes the status.
    #[cold]
    fn report_status(&mut self, engine: &Engine) {
        let now = W::time_of_day();
        if W::since(self.delays.since) >= Duration::from_secs(1) {
            self.delays.end_of_second(now, W::instant());
        }
        let fill = self.producer.fill();
        self.ring_highest = self.ring_highest.max(fill);
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
                let requester = self.requests.as_ref().and_then(|requests| requests.status(at));
                let ignored = self.snapshot_packets_ignored.get(at);
                let ignored = ignored.map_or(0, |ignored| ignored.load(Ordering::Relaxed));
                let mut status = ChannelStatus {
                    snapshot_packets_ignored: ignored,
                    ..channel_status(channel, lines, requester)
                };
                let answering = self.requests.as_ref().and_then(|requests| requests.answering(at));
                status.lines.extend(answering.map(|server| line_status(channel, Line::Recovery, server)));
                let answers = status.lines.iter_mut().find(|line| line.line == Line::Recovery);
                if let (Some(line), Some(discarded)) = (answers, self.discarded_answers.get(at)) {
                    line.counters.add_discarded(discarded);
                }
                status
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
        status.messages =
            feed.messages() + engine.feed().relayed().map_or(0, |relayed: &Relayed| relayed.messages);
        status.relay = relay;
        status.events = engine.counters().events;
        status.symbols = feed.instruments().len();
        status.problems = feed.problems().total + feed.unreadable_symbols();
        status.interface = interface;
        status.ring_fill = fill;
        status.ring_highest = self.ring_highest;
        status.stalls = self.stalls;
        status.delays.clone_from(&self.delays.points);
        status.delay = self.delays.of_all();
        status.delay_buckets = self.delays.buckets;
        if let Some(market) = &mut self.market {
            market.report(&mut status);
            drop(status);
            market.show();
            market.look_after_shared_memory(false, now);
        }
    }
}

/// Returns the status of a line, or of the answers to requests, without the socket's counters, which answers over TCP do not have.
fn line_status(channel: &LiveChannel, line: Line, address: SocketAddr) -> LineStatus {
    let arbiter = channel.arbiter();
    LineStatus {
        line,
        address,
        counters: arbiter.lines()[usize::from(line as u8).min(2)],
        is_silent: arbiter.is_line_silent(line),
        kernel_drops: 0,
        too_long: 0,
        buffer_bytes: 0,
        wanted_bytes: 0,
    }
}

fn channel_status<'l, W: World>(
    channel: &LiveChannel,
    lines: impl Iterator<Item = &'l mut LineReceiver<W>>,
    requester: Option<RequesterStatus>,
) -> ChannelStatus {
    let arbiter = channel.arbiter();
    ChannelStatus {
        name: channel.options().name.clone(),
        publisher: channel.options().publisher,
        session: arbiter.session().map(|session| session.to_string()).unwrap_or_default(),
        next: arbiter.next(),
        counters: *arbiter.counters(),
        last_recovery: arbiter.last_recovery().copied(),
        requester,
        snapshots: *channel.snapshots(),
        snapshot_packets_ignored: 0,
        lines: lines
            .map(|line| LineStatus {
                kernel_drops: line.kernel_drops(),
                too_long: line.too_long,
                buffer_bytes: line.buffer_bytes,
                wanted_bytes: line.wanted_bytes,
                ..line_status(channel, line.line, line.address)
            })
            .collect(),
        is_recovering: arbiter.is_recovering(),
        recovering_since: arbiter.recovering_since(),
        is_joining: arbiter.is_joining(),
        is_silent: arbiter.is_silent(),
        is_stale: channel.is_stale(),
    }
}
