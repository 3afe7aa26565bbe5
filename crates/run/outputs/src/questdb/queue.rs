//! Records queued for the server, in two bounded queues: the ring's, and the journal's, which are sent again.
//!
//! The ring's reader never waits: records without room are dropped, counted and, if there is a journal, noted to be sent again. The
//! journal's reader waits for room.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_market::{InstrumentId, Symbol};
use tapeworks_store::Schema;
use tapeworks_store::live::{Batch, Item};

use super::QuestDbStatus;
use tapeworks_engine::history::HistoryError;

/// How often the status is published.
pub(super) const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Maximum queued bytes of the journal's records.
const AGAIN_BYTES: usize = 4 << 20;

/// The source of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The ring.
    Ring,
    /// The journal.
    Journal,
}

/// Records of one schema, in the order of their events.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) origin: Origin,
    pub(super) schema: Schema,
    batch: Batch,
    /// The range of the wanted records.
    places: Range<usize>,
}

impl Chunk {
    /// Selects the records of `wanted` events.
    fn new(origin: Origin, schema: Schema, batch: Batch, wanted: &Range<u64>) -> Self {
        let place = |event: u64| batch.items().partition_point(|item| item.event < event);
        Self { origin, schema, places: place(wanted.start)..place(wanted.end), batch }
    }

    /// Returns the position, instrument and event of each record, in the order of their events.
    pub(super) fn items(&self) -> &[Item] {
        self.batch.items().get(self.places.clone()).unwrap_or_default()
    }

    /// Returns the records' bytes, one record after another.
    pub(super) fn records(&self) -> &[u8] {
        let start = self.items().first().map_or(0, |item| item.start);
        self.batch.bytes().get(start..).unwrap_or_default()
    }

    pub(super) fn rows(&self) -> u64 {
        self.items().len() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        bytes_of(&self.batch)
    }

    /// Returns the range of events from the first to the last with records.
    fn events(&self) -> Option<Range<u64>> {
        let items = self.items();
        Some(items.first()?.event..items.last()?.event + 1)
    }
}

/// Returns the memory size of a batch.
pub(super) fn bytes_of(batch: &Batch) -> usize {
    batch.bytes().len() + size_of_val::<[Item]>(batch.items())
}

/// Whether records are still sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// More records follow.
    #[default]
    Running,
    /// The engine has ended: queued records may be sent until this time.
    Over(Instant),
    /// Nothing more is sent.
    Stopped,
}

#[derive(Default, Debug)]
struct State {
    ring: VecDeque<Chunk>,
    ring_bytes: usize,
    again: VecDeque<Chunk>,
    again_bytes: usize,
    names: Vec<Option<Symbol>>,
    /// Events whose records must be sent again.
    missing: Option<Range<u64>>,
    phase: Phase,
    status: QuestDbStatus,
}

/// The queues and the state shared by the threads.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified when the state changes.
    wake_up: Condvar,
    most_bytes: usize,
    /// Whether dropped records can be sent from the journal.
    has_journal: bool,
    /// The status for other threads.
    published: Arc<Mutex<QuestDbStatus>>,
}

/// The outcome of sending from the journal.
#[derive(Debug)]
pub(super) enum Again {
    /// The server has all records.
    Done,
    /// The engine ended first.
    Interrupted,
    /// The journal cannot be read.
    Failed(String),
}

/// The sender's next task.
#[derive(Debug)]
pub(super) enum Next {
    /// Send these records.
    Chunk(Chunk),
    /// Nothing arrived in time.
    Nothing,
    /// No more records will arrive.
    End,
}

impl Queue {
    pub(super) fn new(most_bytes: usize, has_journal: bool) -> Self {
        Self {
            state: Mutex::default(),
            wake_up: Condvar::new(),
            most_bytes,
            has_journal,
            published: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.wake_up.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes the symbol of an instrument.
    pub(super) fn name(&self, instrument: InstrumentId, symbol: Symbol) {
        let mut state = self.lock();
        let place = instrument.index();
        if state.names.len() <= place {
            state.names.resize(place + 1, None);
        }
        if let Some(name) = state.names.get_mut(place) {
            *name = Some(symbol);
        }
    }

    /// Brings `names` up to date.
    pub(super) fn names(&self, names: &mut Vec<Option<Symbol>>) {
        let state = self.lock();
        // An instrument never changes its symbol.
        if state.names.len() != names.len() || names.contains(&None) {
            names.clone_from(&state.names);
        }
    }

    /// Queues records of the ring, from event `first` on, or drops them. Never waits.
    pub(super) fn put(&self, schema: Schema, batch: Batch, first: u64) {
        let chunk = Chunk::new(Origin::Ring, schema, batch, &(first..u64::MAX));
        let Some(events) = chunk.events() else { return };
        let mut state = self.lock();
        if state.ring_bytes + chunk.bytes() > self.most_bytes {
            state.status.overflowed += chunk.rows();
            self.miss(&mut state, events, chunk.rows());
            return;
        }
        state.ring_bytes += chunk.bytes();
        state.status.waiting += chunk.rows();
        state.ring.push_back(chunk);
        drop(state);
        self.wake_up.notify_all();
    }

    /// Notes that records of these events are not sent now: they are lost, or will be sent again.
    fn miss(&self, state: &mut State, events: Range<u64>, rows: u64) {
        if !self.has_journal {
            state.status.lost += rows;
            return;
        }
        let missing = state.missing.get_or_insert(events.clone());
        *missing = missing.start.min(events.start)..missing.end.max(events.end);
        state.status.to_send_again.clone_from(&state.missing);
    }

    /// Notes the records of these events to be sent from the journal.
    pub(super) fn send_again(&self, events: Range<u64>) {
        if !events.is_empty() {
            self.miss(&mut self.lock(), events, 0);
            self.wake_up.notify_all();
        }
    }

    /// Waits until events are noted to be sent again and the server keeps up, and takes them. Returns `None` when the engine has
    /// ended.
    pub(super) fn take_missing(&self) -> Option<Range<u64>> {
        let mut state = self.lock();
        while state.phase == Phase::Running {
            if state.status.is_connected
                && state.ring_bytes <= self.most_bytes / 4
                && let Some(events) = state.missing.take()
            {
                state.status.to_send_again = None;
                state.status.sending_again = Some((0, events.end));
                return Some(events);
            }
            state = self.wait(state, Duration::from_millis(500));
        }
        None
    }

    /// Queues the journal's records of `wanted` events once there is room. Returns `false` when the engine has ended.
    pub(super) fn put_again(&self, schema: Schema, batch: Batch, wanted: &Range<u64>) -> bool {
        let chunk = Chunk::new(Origin::Journal, schema, batch, wanted);
        if chunk.places.is_empty() {
            return true;
        }
        let mut state = self.lock();
        while state.phase == Phase::Running && state.again_bytes > AGAIN_BYTES {
            state = self.wait(state, Duration::from_millis(500));
        }
        if state.phase != Phase::Running {
            return false;
        }
        state.again_bytes += chunk.bytes();
        state.again.push_back(chunk);
        drop(state);
        self.wake_up.notify_all();
        true
    }

    /// Waits until all queued records of the journal are sent. Returns `false` when the engine has ended.
    pub(super) fn drain_again(&self) -> bool {
        let mut state = self.lock();
        while state.phase == Phase::Running && (!state.again.is_empty() || state.again_bytes > 0) {
            state = self.wait(state, Duration::from_millis(500));
        }
        state.phase == Phase::Running
    }

    /// Counts events that are missing in the journal.
    pub(super) fn unreadable(&self, events: &Range<u64>, reason: String) {
        let mut state = self.lock();
        state.status.unreadable += events.end.saturating_sub(events.start);
        state.status.error = Some(HistoryError::unreadable(reason).to_string());
    }

    /// Notes the outcome of sending the journal's records of `events`.
    pub(super) fn sent_again(&self, events: Range<u64>, outcome: Again) {
        let mut state = self.lock();
        state.status.sending_again = None;
        match outcome {
            Again::Done => state.status.sent_again += 1,
            Again::Interrupted => self.miss(&mut state, events, 0),
            Again::Failed(error) => {
                state.status.unreadable += events.end - events.start;
                state.status.error = Some(error);
            }
        }
    }

    /// Takes the next records, the ring's before the journal's. They count as queued until [`Queue::done`].
    pub(super) fn take(&self, most: Duration) -> Next {
        let until = Instant::now() + most;
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            match state.phase {
                Phase::Stopped => return Next::End,
                Phase::Over(end) if now >= end || state.ring.is_empty() => return Next::End,
                _ => {}
            }
            if let Some(chunk) = state.ring.pop_front() {
                return Next::Chunk(chunk);
            }
            if let Some(chunk) = state.again.pop_front() {
                return Next::Chunk(chunk);
            }
            let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                return Next::Nothing;
            };
            state = self.wait(state, left);
        }
    }

    /// Updates the status.
    pub(super) fn progress(&self, change: impl FnOnce(&mut QuestDbStatus)) {
        change(&mut self.lock().status);
    }

    /// Completes a chunk whose last `unsent` rows were not sent.
    pub(super) fn done(&self, chunk: &Chunk, unsent: u64) {
        let mut state = self.lock();
        match chunk.origin {
            Origin::Ring => {
                state.ring_bytes = state.ring_bytes.saturating_sub(chunk.bytes());
                state.status.waiting = state.status.waiting.saturating_sub(chunk.rows());
                state.status.lost += unsent;
            }
            Origin::Journal => state.again_bytes = state.again_bytes.saturating_sub(chunk.bytes()),
        }
        drop(state);
        self.wake_up.notify_all();
    }

    /// Waits between two attempts, for less time at the end. Returns whether to try again.
    pub(super) fn pause(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let end = match state.phase {
                Phase::Stopped => return false,
                Phase::Over(end) if now >= end => return false,
                Phase::Over(end) => until.min(end),
                Phase::Running => until,
            };
            let Some(left) = end.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                return true;
            };
            state = self.wait(state, left);
        }
    }

    /// Ends the queue: queued records may be sent for as long as `linger`.
    pub(super) fn end(&self, linger: Duration) {
        let mut state = self.lock();
        if state.phase == Phase::Running {
            state.phase = Phase::Over(Instant::now() + linger);
        }
        drop(state);
        self.wake_up.notify_all();
    }

    /// Stops all sending.
    pub(super) fn stop(&self) {
        self.lock().phase = Phase::Stopped;
        self.wake_up.notify_all();
    }

    /// Counts the records in the ring's queue as lost.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        let rows: u64 = state.ring.drain(..).map(|chunk| chunk.rows()).sum();
        state.again.clear();
        (state.ring_bytes, state.again_bytes) = (0, 0);
        state.status.lost += rows;
        state.status.waiting = 0;
        state.status.is_connected = false;
    }

    /// Returns the status.
    pub(super) fn status(&self) -> QuestDbStatus {
        let state = self.lock();
        QuestDbStatus { waiting_bytes: state.ring_bytes, ..state.status.clone() }
    }

    /// Returns the status that [`Queue::publish`] updates.
    pub(super) fn published(&self) -> Arc<Mutex<QuestDbStatus>> {
        Arc::clone(&self.published)
    }

    /// Publishes the status to other threads.
    pub(super) fn publish(&self) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = self.status();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tapeworks_market::event::{Status as Trading, StatusAction};
    use tapeworks_market::{Event, EventKind, Instruments, NbboUpdate, Publisher};
    use tapeworks_stage::Stage as _;
    use tapeworks_store::live::RecordBuilder;
    use tapeworks_time::Nanos;

    use super::*;
    use tapeworks_market::BookOptions;

    /// Returns a halt of the first instrument, the last event of its packet.
    pub(in super::super) fn halt(received: Nanos) -> Event {
        let halt = Trading {
            action: StatusAction::Halt,
            reason: 0,
            is_trading: Some(false),
            is_quoting: None,
            is_short_sell_restricted: None,
        };
        let blank = Event::new(EventKind::Status, Publisher::XNAS_ITCH, InstrumentId(0));
        let mut event = blank.with_status(halt);
        event.ts_recv = received;
        event
    }

    /// Returns a batch with one trading status record for each of these events.
    fn batch(events: Range<u64>) -> Batch {
        let (mut batch, mut builder) = (Batch::default(), RecordBuilder::new(Schema::Status));
        let mut market = BookOptions::default().stages();
        for number in events {
            market.process(&[halt(Nanos(0))], &mut |update: NbboUpdate<'_>| {
                builder.put(number, &update, &Instruments::default(), &mut batch);
            });
        }
        assert!(builder.held().is_none());
        batch
    }

    fn take(queue: &Queue) -> Option<Chunk> {
        match queue.take(Duration::ZERO) {
            Next::Chunk(chunk) => Some(chunk),
            _ => None,
        }
    }

    fn numbers(chunk: &Chunk) -> Vec<u64> {
        chunk.items().iter().map(|item| item.event).collect()
    }

    #[test]
    fn rows_without_room_are_lost_unless_a_journal_has_them() {
        let room = bytes_of(&batch(0..3));
        for has_journal in [false, true] {
            let queue = Queue::new(room, has_journal);
            queue.put(Schema::Status, batch(0..3), 0);
            queue.put(Schema::Status, batch(3..5), 0);
            queue.put(Schema::Trades, batch(8..9), 0);
            let status = queue.status();
            assert_eq!((status.waiting, status.waiting_bytes, status.overflowed), (3, room, 3));
            assert_eq!(status.lost, if has_journal { 0 } else { 3 });
            assert_eq!(status.to_send_again, has_journal.then_some(3..9));
            let chunk = take(&queue).unwrap();
            assert_eq!(numbers(&chunk), [0, 1, 2]);
            // A chunk occupies its room until it is sent.
            queue.put(Schema::Status, batch(9..10), 0);
            assert_eq!(queue.status().overflowed, 4);
            queue.done(&chunk, 0);
            queue.put(Schema::Status, batch(10..11), 0);
            assert_eq!((queue.status().waiting, queue.status().overflowed), (1, 4));
            queue.give_up();
            assert_eq!(queue.status().lost, if has_journal { 1 } else { 5 });
        }
    }

    #[test]
    fn resent_rows_come_last_and_only_the_wanted_number_of_them() {
        let queue = Queue::new(1 << 20, true);
        assert!(queue.put_again(Schema::Status, batch(0..9), &(4..7)));
        assert!(queue.put_again(Schema::Status, batch(9..12), &(4..7)));
        queue.put(Schema::Status, batch(20..21), 0);
        let [ring, journal] = [take(&queue).unwrap(), take(&queue).unwrap()];
        assert_eq!((ring.origin, numbers(&ring)), (Origin::Ring, vec![20]));
        assert_eq!((journal.origin, numbers(&journal)), (Origin::Journal, vec![4, 5, 6]));
        let whole = batch(0..9);
        assert_eq!(journal.records(), &whole.bytes()[whole.items()[4].start..]);
        assert!(take(&queue).is_none());
        // The range is taken once the server accepts rows, and noted again if the engine ends first.
        queue.send_again(4..7);
        queue.send_again(2..5);
        queue.progress(|status| status.is_connected = true);
        let wanted = queue.take_missing().unwrap();
        assert_eq!((wanted.clone(), queue.status().to_send_again), (2..7, None));
        queue.end(Duration::ZERO);
        assert!(queue.take_missing().is_none() && !queue.drain_again());
        queue.sent_again(wanted, Again::Interrupted);
        assert_eq!(queue.status().to_send_again, Some(2..7));
        queue.sent_again(2..7, Again::Failed("it is gone".to_owned()));
        assert_eq!((queue.status().unreadable, queue.status().error.unwrap()), (5, "it is gone".to_owned()));
    }

    #[test]
    fn at_the_end_waiting_rows_are_sent_until_the_time_is_over() {
        let queue = Queue::new(1 << 20, false);
        queue.put(Schema::Status, batch(0..1), 0);
        queue.put(Schema::Status, batch(1..2), 0);
        queue.end(Duration::from_secs(600));
        let chunk = take(&queue).unwrap();
        queue.done(&chunk, 0);
        assert!(queue.pause(Duration::from_millis(1)), "there is time to try again");
        queue.stop();
        assert!(matches!(queue.take(Duration::ZERO), Next::End) && !queue.pause(Duration::from_secs(600)));
        queue.give_up();
        assert_eq!((queue.status().lost, queue.status().waiting), (1, 0));
    }
}
