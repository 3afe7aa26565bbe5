//! The thread: reads the journal, makes records, and sends them with the position.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dbn::decode::dbn::RecordDecoder;
use tapeworks_engine::history::{History, HistoryError, HistoryReader, Read};
use tapeworks_engine::replica::{Mode, Replica, place_of};
use tapeworks_market::{BookOptions, Event, Publisher};
use tapeworks_time::Nanos;

use super::KafkaSetting;
use super::broker::{Broker, position_now};
use super::messages::Layout;
use super::position::{Beginning, Mark, Ownership, Position};
use super::shared::{KafkaFailure, Shared};
use super::trouble::{Stop, Trouble};
use crate::begin::LONGEST_REACH;

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How often a position without records is committed, which makes the next start quick.
const POSITION_EVERY: Duration = Duration::from_secs(10);

/// How long the journal may take to provide the events before the position.
const HISTORY_PATIENCE: Duration = Duration::from_secs(10);

/// The longest pause between two reads of the journal.
const LONGEST_LOOK: Duration = Duration::from_millis(50);

/// Why a session ends.
enum Ending {
    Stop(Stop),
    Failed(KafkaFailure),
}

impl<T: Into<Stop>> From<T> for Ending {
    fn from(stop: T) -> Self {
        Self::Stop(stop.into())
    }
}

impl From<HistoryError> for Ending {
    fn from(error: HistoryError) -> Self {
        Trouble::History(error).into()
    }
}

pub(super) struct Sink {
    setting: KafkaSetting,
    layouts: Vec<Layout>,
    topics: Vec<String>,
    symbols: HashSet<String>,
    books: BookOptions,
    history: Arc<dyn History>,
    shared: Arc<Shared>,
    /// Who writes the position.
    ownership: Ownership,
    /// The position that this output knows to be in Kafka.
    known: Option<Position>,
    pause: Duration,
    /// Whether the last error may recur although there is a connection.
    may_be_refused: bool,
}

impl Sink {
    pub(super) fn new(
        setting: KafkaSetting,
        layouts: Vec<Layout>,
        books: BookOptions,
        history: Arc<dyn History>,
        shared: Arc<Shared>,
    ) -> Self {
        let topics = setting.schemas.iter().map(|schema| setting.topic_of(*schema)).collect();
        let symbols = setting.symbols.iter().cloned().collect();
        Self {
            setting,
            layouts,
            topics,
            symbols,
            books,
            history,
            shared,
            // Random, because the state of a hasher is.
            ownership: Ownership::new(RandomState::new().hash_one(std::process::id())),
            known: None,
            pause: FIRST_PAUSE,
            may_be_refused: false,
        }
    }

    pub(super) fn run(mut self) -> Result<(), KafkaFailure> {
        let mut fenced: Option<String> = None;
        while !self.shared.is_over() {
            let ended = match &fenced {
                Some(reason) => self.judge(reason),
                None => self.session(),
            };
            match ended {
                Ok(()) => fenced = None,
                Err(Ending::Stop(Stop::Ended)) => return Ok(()),
                Err(Ending::Failed(failure)) => return Err(failure),
                Err(Ending::Stop(Stop::Trouble(trouble))) => self.rest(&trouble),
                Err(Ending::Stop(Stop::Fenced(reason))) => {
                    let doing = "the id".to_owned();
                    self.rest(&Trouble::Kafka { doing, error: reason.clone() });
                    fenced = Some(reason);
                }
            }
        }
        Ok(())
    }

    /// Reports the error, and waits before the next attempt, longer each time.
    fn rest(&mut self, trouble: &Trouble) {
        self.shared.waits(trouble);
        self.may_be_refused = trouble.outlasts_a_connection();
        self.shared.progress(|status| {
            status.failures += 1;
            status.aborted += u64::from(status.waiting > 0);
            status.waiting = 0;
        });
        self.shared.pause(self.pause);
        self.pause = (self.pause * 2).min(self.setting.longest_pause);
    }

    /// Finds out why the brokers fenced the last producer. If its transaction was open for too long, the output continues. If
    /// another plant with the same id has written the position since, it fails.
    fn judge(&self, reason: &str) -> Result<(), Ending> {
        let found = match position_now(&self.setting) {
            // The next session creates the topic, or reports that it is missing.
            Err(Stop::Trouble(Trouble::NoTopic(_))) => None,
            found => found?,
        };
        self.check_owner(found, reason)
    }

    /// Fails if another plant has written the position since this one did.
    fn check_owner(&self, found: Option<Position>, reason: &str) -> Result<(), Ending> {
        if self.ownership.is_lost(found.map(|position| position.owner)) {
            let (id, reason) = (self.setting.id.clone(), reason.to_owned());
            return Err(Ending::Failed(KafkaFailure::Fenced { id, reason }));
        }
        Ok(())
    }

    /// Runs a session, from the connection to its end.
    fn session(&mut self) -> Result<(), Ending> {
        const OTHER: &str = "the position was written by another plant meanwhile";
        let (setting, shared) = (self.setting.clone(), Arc::clone(&self.shared));
        if self.known.is_some() {
            // Connecting would take the id back from a plant that took it while this one was not connected.
            self.judge(OTHER)?;
        }
        let broker = Broker::connect(&setting, &shared)?;
        let found = broker.position()?;
        self.check_owner(found, OTHER)?;
        self.ownership.has_seen(found.map(|position| position.owner));
        let owner = self.ownership.own();
        let position = Position { owner, ..Position::to_go_on_from(found, self.known) };
        // From here on, the plant that held the id before notices that it was fenced.
        broker.begin()?;
        broker.commit(&position)?;
        self.ownership.has_written();
        self.known = Some(position);
        shared.progress(|status| {
            status.connects += 1;
            if !self.may_be_refused {
                status.is_connected = true;
                status.error = None;
            }
            status.position = Some(position.next);
            status.position_ns = position.time.0;
            status.transactions += 1;
        });
        let history = Arc::clone(&self.history);
        let mut reader = open(history.as_ref(), &position)?;
        let mut session = Session::new(self, &broker, position);
        let ended = session.run(reader.as_mut());
        if session.open.is_some() {
            broker.abort();
        }
        ended
    }
}

/// Opens the history early enough for the records of open intervals to be whole.
fn open(history: &dyn History, position: &Position) -> Result<Box<dyn HistoryReader>, HistoryError> {
    let mut from = Nanos(position.time.0.saturating_sub(LONGEST_REACH));
    loop {
        match history.open(from) {
            Err(HistoryError::NotKept { earliest }) if earliest > from => from = earliest,
            opened => return opened,
        }
    }
}

/// Sends records from a position on, over one connection.
struct Session<'s> {
    sink: &'s mut Sink,
    broker: &'s Broker<'s>,
    /// The position in Kafka.
    position: Position,
    replica: Replica,
    /// The first event whose records are sent; `None` until the first event was read.
    wanted: Option<u64>,
    /// The number of the next event.
    next: u64,
    /// The latest receive time.
    time: Nanos,
    /// Whether the event before the position must be compared.
    is_to_compare: bool,
    /// Events that may precede the next position, and the latest receive time up to each; the last one is the event before `next`.
    recent: VecDeque<(Mark, Nanos)>,
    /// For each schema: the number of records of its batch that are done, the event of the last of them, and its place among the
    /// event's records.
    done: Vec<(usize, u64, u32)>,
    message: Vec<u8>,
    /// When the open transaction began, and its number of records.
    open: Option<Instant>,
    records: u64,
    bytes: u64,
    committed: Instant,
}

impl<'s> Session<'s> {
    fn new(sink: &'s mut Sink, broker: &'s Broker<'s>, position: Position) -> Self {
        let mut replica = Replica::new(&sink.books);
        sink.setting.schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::On));
        let done = vec![(0, u64::MAX, 0); sink.setting.schemas.len()];
        Self {
            sink,
            broker,
            position,
            replica,
            wanted: None,
            next: 0,
            time: Nanos(0),
            is_to_compare: false,
            recent: VecDeque::new(),
            done,
            message: Vec::new(),
            open: None,
            records: 0,
            bytes: 0,
            committed: Instant::now(),
        }
    }

    fn run(&mut self, reader: &mut dyn HistoryReader) -> Result<(), Ending> {
        let mut waiting: Option<Instant> = None;
        loop {
            let mut is_caught_up = false;
            match reader.read()? {
                Read::Start { missed, start } => {
                    let mut lost = 0;
                    let is_first = self.wanted.is_none();
                    if is_first {
                        lost = self.begin(start.first_event(), start.time());
                    } else {
                        self.take(missed)?;
                        self.replica.release();
                        self.send(self.next)?;
                        if self.next >= self.position.next {
                            lost = start.first_event().saturating_sub(self.next);
                        }
                    }
                    self.next = start.first_event();
                    self.time = self.time.max(start.time());
                    // The event before the state is not known.
                    self.recent.clear();
                    self.is_to_compare &= is_first;
                    self.replica.restore(*start);
                    self.forget();
                    if lost > 0 {
                        // The position skips the lost events immediately, so that they are counted once.
                        self.commit(self.next)?;
                        self.sink.shared.progress(|status| status.lost_events += lost);
                    }
                }
                Read::Events(events) => self.take(events)?,
                Read::CaughtUp => is_caught_up = true,
            }
            let cut = self.cut();
            self.send(cut)?;
            self.trim(cut);
            self.sink.shared.progress(|status| status.read = self.next);
            if self.is_due(cut) {
                self.commit(cut)?;
            }
            if !is_caught_up {
                if self.sink.shared.is_over() {
                    return Err(Stop::Ended.into());
                }
                continue;
            }
            if self.wanted.is_some() && self.next < self.position.next {
                // This also applies while the plant continues with a journal that lost its end.
                if waiting.get_or_insert_with(Instant::now).elapsed() >= HISTORY_PATIENCE {
                    let (journal, position) = (self.next, self.position.next);
                    return Err(Ending::Failed(KafkaFailure::ShortJournal { journal, position }));
                }
            } else if self.sink.shared.is_ending() {
                return self.finish();
            }
            self.broker.idle()?;
            let pause = self.sink.setting.flush_every.min(LONGEST_LOOK).max(Duration::from_millis(1));
            self.sink.shared.pause(pause);
        }
    }

    /// Finishes a journal that is complete and read.
    fn finish(&mut self) -> Result<(), Ending> {
        // A group of events that has not ended by now will not end.
        self.replica.release();
        self.send(self.next)?;
        if self.records > 0 || self.next > self.position.next {
            self.commit(self.next)?;
        }
        Err(Stop::Ended.into())
    }

    /// Handles the first event: determines from which event on records are sent. Returns how many events before it are lost.
    fn begin(&mut self, first: u64, time: Nanos) -> u64 {
        let next = self.position.next;
        let (wanted, lost) = match Beginning::of(&self.position, first, time) {
            Beginning::Same => {
                self.is_to_compare = next > first && self.position.last != Mark::default();
                (next, 0)
            }
            Beginning::Later { first } => {
                self.position.next = first;
                (first, first)
            }
            Beginning::Behind { first } => (first, first - next),
        };
        self.wanted = Some(wanted);
        lost
    }

    /// Makes the records of the next events.
    fn take(&mut self, events: &[Event]) -> Result<(), Ending> {
        let Some(first) = events.first() else { return Ok(()) };
        if self.wanted.is_none() {
            // From a journal's first event on nothing is lost.
            let _none = self.begin(self.next, first.ts_recv);
        }
        if self.is_to_compare
            && let Some(before) = (self.position.next - 1).checked_sub(self.next)
            && let Some(event) = usize::try_from(before).ok().and_then(|place| events.get(place))
        {
            if Mark::from(event) != self.position.last {
                let event = self.position.next - 1;
                return Err(Ending::Failed(KafkaFailure::OtherJournal { event }));
            }
            self.is_to_compare = false;
        }
        for event in events {
            self.time = self.time.max(event.ts_recv);
            self.recent.push_back((Mark::from(event), self.time));
        }
        self.next += events.len() as u64;
        self.replica.take(events, |_, _| {});
        Ok(())
    }

    /// Returns the event before which all records are known.
    fn cut(&self) -> u64 {
        let held = self.sink.setting.schemas.iter().filter_map(|schema| self.replica.held(*schema)).min();
        held.unwrap_or(self.next).min(self.next)
    }

    /// Discards the records from before a state.
    fn forget(&mut self) {
        self.replica.clear();
        self.done.iter_mut().for_each(|done| *done = (0, u64::MAX, 0));
    }

    /// Sends the records of events before `cut`.
    fn send(&mut self, cut: u64) -> Result<(), Ending> {
        let Self { sink, broker, replica, wanted, done, message, open, records, bytes, .. } = self;
        let wanted = wanted.unwrap_or(u64::MAX);
        let instruments = replica.market.instruments();
        let of_each = sink.setting.schemas.iter().zip(&sink.layouts).zip(&sink.topics).zip(done);
        for (((schema, layout), topic), (place, last, part)) in of_each {
            let Some(made) = replica.by_schema.get_mut(place_of(*schema)) else { continue };
            let items = made.batch.items().get(*place..).unwrap_or_default();
            let Some(item) = items.first() else { continue };
            let mut decoder = RecordDecoder::new(made.batch.bytes().get(item.start..).unwrap_or_default());
            let mut taken = 0;
            for item in items.iter().take_while(|item| item.event < cut) {
                taken += 1;
                *part = if *last == item.event { *part + 1 } else { 0 };
                *last = item.event;
                let record = decoder.decode_ref().ok().flatten();
                if item.event < wanted {
                    continue;
                }
                let symbol = instruments.symbol(item.instrument);
                let symbol = symbol.as_ref().map(|symbol| symbol.as_str());
                if !sink.symbols.is_empty() && symbol.is_none_or(|symbol| !sink.symbols.contains(symbol)) {
                    continue;
                }
                let is_written =
                    record.is_some_and(|record| layout.write(message, (item, *part), symbol, record));
                if !is_written {
                    // A schema's builder makes no records of other schemas.
                    let doing = format!("event {} of {schema}", item.event);
                    return Err(Trouble::Kafka { doing, error: "no message of its record".to_owned() }.into());
                }
                if open.is_none() {
                    broker.begin()?;
                    *open = Some(Instant::now());
                }
                // A key keeps the records of a whole venue in order too.
                let key = symbol.or_else(|| Some(Publisher(item.publisher).feed()?.dataset));
                broker.send(topic, key.unwrap_or_default(), message)?;
                *records += 1;
                *bytes += message.len() as u64;
            }
            *place += taken;
            if *place == made.batch.items().len() {
                made.batch.clear();
                *place = 0;
            }
        }
        let waiting = *records;
        sink.shared.progress(|status| status.waiting = waiting);
        Ok(())
    }

    /// Discards the events before the last one before `cut`.
    fn trim(&mut self, cut: u64) {
        let first = self.next - self.recent.len() as u64;
        let older = usize::try_from(cut.saturating_sub(1).saturating_sub(first)).unwrap_or(usize::MAX);
        self.recent.drain(..older.min(self.recent.len()));
    }

    /// Returns whether the transaction is due to be committed.
    fn is_due(&self, cut: u64) -> bool {
        let setting = &self.sink.setting;
        match self.open {
            Some(began) => {
                self.records >= setting.batch_records as u64 || began.elapsed() >= setting.flush_every
            }
            None => {
                // Many events may produce no record.
                let has_moved = self.wanted.is_some_and(|wanted| cut > wanted) && cut > self.position.next;
                has_moved && self.committed.elapsed() >= POSITION_EVERY
            }
        }
    }

    /// Commits the records of events before `cut`, with the position.
    fn commit(&mut self, cut: u64) -> Result<(), Ending> {
        if self.open.is_none() {
            self.broker.begin()?;
        }
        self.trim(cut);
        let is_known = self.next - self.recent.len() as u64 + 1 == cut;
        let (last, time) = match self.recent.front() {
            Some(before) if is_known => *before,
            _ => (Mark::default(), self.time),
        };
        let position = Position { next: cut.max(self.position.next), time, last, owner: self.position.owner };
        self.broker.commit(&position)?;
        self.position = position;
        self.sink.known = Some(position);
        (self.open, self.committed) = (None, Instant::now());
        self.sink.pause = FIRST_PAUSE;
        self.sink.may_be_refused = false;
        let (records, bytes) = (std::mem::take(&mut self.records), std::mem::take(&mut self.bytes));
        self.sink.shared.progress(|status| {
            status.is_connected = true;
            status.error = None;
            status.records += records;
            status.bytes += bytes;
            status.transactions += 1;
            status.waiting = 0;
            status.position = Some(position.next);
            status.position_ns = position.time.0;
        });
        Ok(())
    }
}
