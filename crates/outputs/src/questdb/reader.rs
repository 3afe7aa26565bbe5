//! The threads that make records: of the ring's events as they come, and of the journal's where some are to be sent again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tapeworks_market::{Event, Nanos};
use tapeworks_ring::disruptor::{Consumer, PollError, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_store::Schema;

use super::QuestDbSetting;
use super::output::{QuestDbFailure, TELL_EVERY};
use super::queue::{Again, Queue, bytes_of};
use crate::begin::{Begin, Past, catch_up};
use tapeworks_engine::history::{History, HistoryError, Read};
use tapeworks_engine::replica::{Mode, Replica, Special, place_of};
use tapeworks_market::BookOptions;
use tapeworks_runtime::waiting::{QUIET, Rest, may_sleep_unwatched};

/// Bytes of records after which they go to the sender.
const CHUNK_BYTES: usize = 1 << 20;

/// Events after which it is looked whether records are due.
const MOST_EVENTS: usize = 4_096;

/// How long the thread sleeps where nothing wakes it.
const IDLE_SLEEP: Duration = Duration::from_micros(100);

/// How long the end of a group of events is waited for before what is held of it is sent.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the journal may lag behind what is wanted of it.
const HISTORY_PATIENCE: Duration = Duration::from_secs(10);

/// Takes the ring's events.
pub(super) struct Reading<W: WaitStrategy> {
    queue: Arc<Queue>,
    consumer: Consumer<Event, W, Single>,
    making: Making,
    events: Vec<Event>,
    told: Instant,
}

/// Makes records of events as they come.
struct Making {
    queue: Arc<Queue>,
    setting: QuestDbSetting,
    replica: Replica,
    begin: Begin,
    /// The number of the first event whose records are sent, once it has been reached.
    first: Option<u64>,
    /// The number of the next event.
    next: u64,
    /// When records were handed on last.
    flushed: Instant,
}

impl<W: WaitStrategy> Reading<W> {
    pub(super) fn new(
        queue: Arc<Queue>,
        setting: QuestDbSetting,
        books: &BookOptions,
        consumer: Consumer<Event, W, Single>,
        begin: Begin,
    ) -> Self {
        let mut replica = Replica::new(books);
        // From the first event on, so that those wanted are as they would be had the plant never ended: the records of an interval
        // or of a group of events in which it did among them.
        setting.schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::On));
        let now = Instant::now();
        let making =
            Making { queue: Arc::clone(&queue), setting, replica, begin, first: None, next: 0, flushed: now };
        Self { queue, consumer, making, events: Vec::new(), told: now }
    }

    pub(super) fn run(mut self) -> Result<(), QuestDbFailure> {
        let result = self.read();
        match result {
            Ok(()) => self.queue.end(self.making.setting.linger),
            Err(_) => self.queue.stop(),
        }
        result
    }

    fn read(&mut self) -> Result<(), QuestDbFailure> {
        self.catch_up()?;
        let mut rest = Rest::new(self.making.begin.wake_up.clone(), IDLE_SLEEP);
        // What was made is handed on in time.
        let longest = QUIET.min(self.making.setting.flush_every);
        while !self.queue.is_stopped() {
            let turned = self.turn().and_then(|()| {
                if self.events.is_empty() {
                    rest.rest(longest, || self.turn().map(|()| !self.events.is_empty()))?;
                } else if may_sleep_unwatched(self.consumer.lag(), self.consumer.capacity()) {
                    // Rows go in batches: there is time to let events gather.
                    rest.worked();
                    rest.rest_unwatched();
                }
                Ok(())
            });
            match turned {
                Ok(()) => {}
                Err(PollError::Closed) => {
                    self.making.replica.release();
                    self.making.flush();
                    return Ok(());
                }
                Err(PollError::Failed(failed)) => return Err(QuestDbFailure::Ring(failed)),
            }
        }
        Ok(())
    }

    /// Takes what the ring has.
    fn turn(&mut self) -> Result<(), PollError> {
        self.events.clear();
        let Self { consumer, events, .. } = self;
        consumer.poll(|event, _, _| events.push(*event))?;
        self.making.take(&self.events);
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            let lag = self.consumer.lag();
            self.queue.progress(|status| status.ring_lag = lag);
        }
        Ok(())
    }

    /// Takes the events of the day so far, and those that come meanwhile.
    fn catch_up(&mut self) -> Result<(), QuestDbFailure> {
        let Self { consumer, queue, making, .. } = self;
        let (begin, stop) = (making.begin.clone(), AtomicBool::new(false));
        catch_up(&begin, consumer, &stop, |past| {
            match past {
                Past::Start(start) => {
                    start.symbols().for_each(|(instrument, symbol)| queue.name(instrument, symbol));
                    making.next = start.first_event();
                    making.replica.restore(*start);
                }
                Past::Events(_, events) => making.take(events),
            }
            stop.store(queue.is_stopped(), Ordering::Release);
            Ok(())
        })
    }
}

impl Making {
    /// Takes the next events.
    fn take(&mut self, events: &[Event]) {
        let mut rest = events;
        if self.first.is_none() {
            let begin = self.begin.clone();
            let (old, new) = begin.split(self.next, rest);
            self.make(old);
            rest = new;
            if begin.is_over_at(self.next) {
                self.go_live(begin.live_from.load(Ordering::Acquire));
            }
        }
        for part in rest.chunks(MOST_EVENTS) {
            self.make(part);
        }
        if self.flushed.elapsed() >= self.setting.flush_every {
            self.flush();
        }
    }

    /// From here on records are sent.
    fn go_live(&mut self, first: u64) {
        self.first = Some(first);
        if self.setting.send_again {
            // What the plant before this one sent is there, and what it did not send is not: which, nobody knows.
            self.queue.send_again(0..first);
        }
    }

    fn make(&mut self, events: &[Event]) {
        advance(&mut self.replica, &self.queue, events);
        self.next += events.len() as u64;
        self.hand_on(if self.first.is_some() { CHUNK_BYTES } else { 0 });
    }

    /// Hands on all records that were made.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        self.hand_on(0);
    }

    /// Hands on the records of the schemas that have so many bytes of them, but for those that are from before.
    fn hand_on(&mut self, bytes: usize) {
        for schema in &self.setting.schemas {
            if let Some(of_schema) = self.replica.by_schema.get_mut(place_of(*schema))
                && !of_schema.batch.is_empty()
                && bytes_of(&of_schema.batch) >= bytes
            {
                match self.first {
                    Some(first) => self.queue.put(*schema, std::mem::take(&mut of_schema.batch), first),
                    None => of_schema.batch.clear(),
                }
            }
        }
    }
}

/// Makes the records of events, and names of their symbols.
fn advance(replica: &mut Replica, queue: &Queue, events: &[Event]) {
    replica.take(events, |_, special| {
        if let Some(Special::Mapping(instrument, symbol)) = special {
            queue.name(instrument, symbol);
        }
    });
}

/// Takes the journal's events, where some of the day's records are to be sent again.
pub(super) struct Repeating {
    pub(super) queue: Arc<Queue>,
    pub(super) schemas: Vec<Schema>,
    pub(super) books: BookOptions,
    pub(super) history: Arc<dyn History>,
}

impl Repeating {
    pub(super) fn run(&self) {
        while let Some(events) = self.queue.take_missing() {
            let outcome = match self.repeat(&events) {
                Ok(true) => Again::Done,
                Ok(false) => Again::Interrupted,
                Err(error) => Again::Failed(error.to_string()),
            };
            self.queue.sent_again(events, outcome);
        }
    }

    /// Sends the records of `wanted`, and waits until the server has them. `false` when the engine has ended before.
    fn repeat(&self, wanted: &Range<u64>) -> Result<bool, HistoryError> {
        // All records are made, so that those wanted are as they were.
        let mut replica = Replica::new(&self.books);
        self.schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::On));
        let mut reader = match self.history.open(Nanos(0)) {
            // The beginning of the day was removed to make room: what is kept may be enough.
            Err(HistoryError::NotKept { earliest }) => self.history.open(earliest)?,
            opened => opened?,
        };
        let (mut next, mut events, mut waiting, mut behind) = (0u64, Vec::new(), None::<Instant>, None);
        if let Some(start) = reader.start() {
            start.symbols().for_each(|(instrument, symbol)| self.queue.name(instrument, symbol));
            next = start.first_event();
            replica.restore(start);
        }
        // What was removed to make room is not to be had; what is kept is.
        let removed = wanted.start..next.min(wanted.end);
        if !removed.is_empty() {
            self.queue.unreadable(
                &removed,
                format!("events {} to {} are no longer kept", removed.start, removed.end - 1),
            );
        }
        let wanted = &(wanted.start.max(removed.end)..wanted.end);
        loop {
            events.clear();
            let read = reader.read(&mut events)?;
            advance(&mut replica, &self.queue, &events);
            next += events.len() as u64;
            if let Some(start) = reader.start() {
                let missing = next.max(wanted.start)..start.first_event().min(wanted.end);
                if !missing.is_empty() {
                    let reason =
                        format!("events {} to {} were lost by the journal", missing.start, missing.end - 1);
                    self.queue.unreadable(&missing, reason);
                }
                start.symbols().for_each(|(instrument, symbol)| self.queue.name(instrument, symbol));
                replica.release();
                next = start.first_event();
                behind = Some(start);
            }
            let held = self.schemas.iter().filter_map(|schema| replica.held(*schema)).min();
            let mut is_done = next >= wanted.end && held.is_none_or(|held| held >= wanted.end);
            if !is_done && read == Read::CaughtUp {
                let since = *waiting.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    if next < wanted.end {
                        // It may be the state behind inputs that the journal lost, which is being written.
                        if since.elapsed() < HISTORY_PATIENCE {
                            if !self.queue.pause(IDLE_SLEEP) {
                                return Ok(false);
                            }
                            continue;
                        }
                        let reason =
                            format!("they end at {next}, and those before {} are wanted", wanted.end);
                        return Err(HistoryError::unreadable(reason));
                    }
                    replica.release();
                    is_done = true;
                }
                std::thread::sleep(Duration::from_millis(1));
            } else {
                waiting = None;
            }
            for schema in &self.schemas {
                let Some(of_schema) = replica.by_schema.get_mut(place_of(*schema)) else { continue };
                let batch = std::mem::take(&mut of_schema.batch);
                if !self.queue.put_again(*schema, batch, wanted) {
                    return Ok(false);
                }
            }
            if let Some(start) = behind.take() {
                replica.restore(start);
            }
            self.queue.progress(|status| status.sending_again = Some((next.min(wanted.end), wanted.end)));
            if is_done {
                return Ok(self.queue.drain_again());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Symbol;

    use super::super::queue::Next;
    use super::super::queue::tests::halt;
    use super::*;
    use tapeworks_engine::Start;
    use tapeworks_engine::history::HistoryReader;

    /// A history of a hundred events that has lost those before `first`.
    struct Beheaded {
        first: u64,
    }

    struct Rest {
        start: Option<Start>,
        next: u64,
    }

    impl History for Beheaded {
        fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
            if from < Nanos(self.first) {
                return Err(HistoryError::NotKept { earliest: Nanos(self.first) });
            }
            let known = Symbol::parse("AAA");
            let start = Start::new(&BookOptions::default(), self.first, Nanos(self.first), known);
            Ok(Box::new(Rest { start: Some(start), next: self.first }))
        }
    }

    impl HistoryReader for Rest {
        fn start(&mut self) -> Option<Start> {
            self.start.take()
        }

        fn read(&mut self, into: &mut Vec<Event>) -> Result<Read, HistoryError> {
            if self.next == 100 {
                return Ok(Read::CaughtUp);
            }
            into.extend((self.next..100).map(|number| halt(Nanos(number))));
            self.next = 100;
            Ok(Read::Events)
        }
    }

    #[test]
    fn what_is_kept_is_sent_again_and_only_the_rest_is_counted_as_unreadable() {
        for (first, wanted, expected, unreadable) in
            [(40, 0..80, 40..80, 40), (40, 50..80, 50..80, 0), (40, 0..30, 30..30, 30)]
        {
            let queue = Arc::new(Queue::new(1 << 20, true));
            let repeating = Repeating {
                queue: Arc::clone(&queue),
                schemas: vec![Schema::Status],
                books: BookOptions::default(),
                history: Arc::new(Beheaded { first }),
            };
            let of_it = wanted.clone();
            let running = std::thread::spawn(move || repeating.repeat(&of_it));
            let mut sent = Vec::new();
            while !running.is_finished() {
                if let Next::Chunk(chunk) = queue.take(Duration::from_millis(5)) {
                    sent.extend(chunk.items().iter().map(|item| item.event));
                    queue.done(&chunk, 0);
                }
            }
            assert_eq!(running.join().unwrap(), Ok(true), "{wanted:?}");
            assert_eq!((sent, queue.status().unreadable), (expected.collect::<Vec<_>>(), unreadable));
            let mut names = Vec::new();
            queue.names(&mut names);
            assert_eq!(names, [Some(Symbol::from_bytes(b"AAA").unwrap())], "of before, and known");
        }
    }
}
