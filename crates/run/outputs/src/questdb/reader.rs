//! Makes records: from the ring's events as they arrive, and from the journal's if some must be sent again.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapeworks_engine::Start;
use tapeworks_engine::history::{History, HistoryError, Read};
use tapeworks_engine::replica::{Mode, Replica, Special, place_of};
use tapeworks_market::{BookOptions, Event};
use tapeworks_runtime::waiting::QUIET;
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

use super::QuestDbSetting;
use super::failure::QuestDbFailure;
use super::queue::{Again, Queue, REPORT_EVERY, bytes_of};
use crate::output::Output;

/// Size in bytes at which records are passed to the sender.
const CHUNK_BYTES: usize = 1 << 20;

/// Number of events after which the size of the records is checked.
const MOST_EVENTS: usize = 4_096;

/// The pause between two checks for the checkpoint after lost inputs.
const CHECKPOINT_PAUSE: Duration = Duration::from_micros(100);

/// How long to wait for the end of a group of events before sending its held records.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the journal may lag behind the wanted events.
const HISTORY_PATIENCE: Duration = Duration::from_secs(10);

/// Makes records of the ring's events and puts them into the queue.
pub(super) struct Making {
    queue: Arc<Queue>,
    setting: QuestDbSetting,
    replica: Replica,
    /// The first event whose records are sent, once it was reached.
    first: Option<u64>,
    /// When the last records went into the queue.
    flushed: Instant,
}

impl Making {
    pub(super) fn new(queue: Arc<Queue>, setting: QuestDbSetting, books: &BookOptions) -> Self {
        let mut replica = Replica::new(books);
        // Records are made from the first event on, so that records of an interval or of a group of events in which the plant ended
        // are the same as if it had never ended.
        setting.schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::On));
        Self { queue, setting, replica, first: None, flushed: Instant::now() }
    }

    /// Ends the queue after the last call as an output: queued rows may still be sent, unless the reader failed.
    pub(super) fn ended(self, outcome: &Result<(), QuestDbFailure>) {
        match outcome {
            Ok(()) => self.queue.end(self.setting.linger),
            Err(_) => self.queue.stop(),
        }
    }

    /// Queues all records made so far.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        self.hand_on(0);
    }

    /// Queues the records of schemas that have at least this many bytes; records of past events are dropped.
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

impl Output for Making {
    type Failure = QuestDbFailure;

    const REPORT_EVERY: Duration = REPORT_EVERY;

    fn restore(&mut self, start: Start) {
        restore(&mut self.replica, &self.queue, start);
    }

    fn events(&mut self, _first: u64, events: &[Event]) -> Result<(), QuestDbFailure> {
        for part in events.chunks(MOST_EVENTS) {
            advance(&mut self.replica, &self.queue, part);
            self.hand_on(if self.first.is_some() { CHUNK_BYTES } else { 0 });
        }
        Ok(())
    }

    fn go_live(&mut self, first: u64) {
        self.first = Some(first);
        if self.setting.send_again {
            // It is unknown which past records the server has, so all of them are sent again.
            self.queue.send_again(0..first);
        }
    }

    fn serve(&mut self, wait: Duration) -> Result<(), QuestDbFailure> {
        if !wait.is_zero() {
            std::thread::park_timeout(wait);
        }
        if self.flushed.elapsed() >= self.setting.flush_every {
            self.flush();
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        QUIET.min(self.setting.flush_every)
    }

    /// Rows are sent in batches, so events may gather.
    fn is_urgent(&self) -> bool {
        false
    }

    fn end(&mut self) {
        self.replica.release();
        self.flush();
    }

    fn report(&mut self, ring_lag: usize) {
        self.queue.progress(|status| status.ring_lag = ring_lag);
    }
}

/// Continues from a state, and notes its symbols.
fn restore(replica: &mut Replica, queue: &Queue, start: Start) {
    start.symbols().for_each(|(instrument, symbol)| queue.name(instrument, symbol));
    replica.restore(start);
}

/// Makes the records of events, and notes their symbols.
fn advance(replica: &mut Replica, queue: &Queue, events: &[Event]) {
    replica.take(events, |_, special| {
        if let Some(Special::Mapping(instrument, symbol)) = special {
            queue.name(instrument, symbol);
        }
    });
}

/// Makes records of the journal's events, if some of the day's must be sent again.
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

    /// Sends the records of the `wanted` events, and waits until the server has them. Returns `false` if the engine has ended
    /// before.
    fn repeat(&self, wanted: &Range<u64>) -> Result<bool, HistoryError> {
        // All records are made from the first event on, so that the wanted ones are the same as before.
        let mut replica = Replica::new(&self.books);
        self.schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::On));
        let mut reader = match self.history.open(Nanos(0)) {
            // The beginning of the day was removed to make room; the rest may be enough.
            Err(HistoryError::NotKept { earliest }) => self.history.open(earliest)?,
            opened => opened?,
        };
        let (mut next, mut waiting, mut is_first) = (0u64, None::<Instant>, true);
        let mut wanted = wanted.clone();
        loop {
            let mut is_caught_up = false;
            match reader.read()? {
                Read::Start { missed, start } => {
                    advance(&mut replica, &self.queue, missed);
                    next += missed.len() as u64;
                    let missing = next.max(wanted.start)..start.first_event().min(wanted.end);
                    if !missing.is_empty() {
                        let why = if is_first { "are no longer kept" } else { "were lost by the journal" };
                        let reason = format!("events {} to {} {why}", missing.start, missing.end - 1);
                        self.queue.unreadable(&missing, reason);
                    }
                    if is_first {
                        wanted.start = wanted.start.max(missing.end);
                    }
                    replica.release();
                    if !self.put(&mut replica, &wanted) {
                        return Ok(false);
                    }
                    next = start.first_event();
                    restore(&mut replica, &self.queue, *start);
                }
                Read::Events(events) => {
                    advance(&mut replica, &self.queue, events);
                    next += events.len() as u64;
                }
                Read::CaughtUp => is_caught_up = true,
            }
            is_first = false;
            let held = self.schemas.iter().filter_map(|schema| replica.held(*schema)).min();
            let mut is_done = next >= wanted.end && held.is_none_or(|held| held >= wanted.end);
            if !is_done && is_caught_up {
                let since = *waiting.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    if next < wanted.end {
                        // The checkpoint after lost inputs may be about to be written.
                        if since.elapsed() < HISTORY_PATIENCE {
                            if !self.queue.pause(CHECKPOINT_PAUSE) {
                                return Ok(false);
                            }
                            continue;
                        }
                        let reason = format!("the history ends at event {next}, before event {}", wanted.end);
                        return Err(HistoryError::unreadable(reason));
                    }
                    replica.release();
                    is_done = true;
                }
                std::thread::sleep(Duration::from_millis(1));
            } else {
                waiting = None;
            }
            if !self.put(&mut replica, &wanted) {
                return Ok(false);
            }
            self.queue.progress(|status| status.sending_again = Some((next.min(wanted.end), wanted.end)));
            if is_done {
                return Ok(self.queue.drain_again());
            }
        }
    }

    /// Queues the records made so far, waiting for room. Returns `false` when the engine has ended.
    fn put(&self, replica: &mut Replica, wanted: &Range<u64>) -> bool {
        self.schemas.iter().all(|schema| {
            let Some(of_schema) = replica.by_schema.get_mut(place_of(*schema)) else { return true };
            self.queue.put_again(*schema, std::mem::take(&mut of_schema.batch), wanted)
        })
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Symbol;

    use super::super::queue::Next;
    use super::super::queue::tests::halt;
    use super::*;
    use tapeworks_engine::history::HistoryReader;

    /// A history of a hundred events that has lost those before `first`.
    struct Beheaded {
        first: u64,
    }

    struct Rest {
        start: Option<Start>,
        next: u64,
        events: Vec<Event>,
    }

    impl History for Beheaded {
        fn open(&self, from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
            if from < Nanos(self.first) {
                return Err(HistoryError::NotKept { earliest: Nanos(self.first) });
            }
            let known = Symbol::parse("AAA");
            let start = Start::new(&BookOptions::default(), self.first, Nanos(self.first), known);
            Ok(Box::new(Rest { start: Some(start), next: self.first, events: Vec::new() }))
        }
    }

    impl HistoryReader for Rest {
        fn read(&mut self) -> Result<Read<'_>, HistoryError> {
            if let Some(start) = self.start.take() {
                return Ok(Read::Start { missed: &[], start: Box::new(start) });
            }
            self.events = (self.next..100).map(|number| halt(Nanos(number))).collect();
            self.next = 100;
            Ok(if self.events.is_empty() { Read::CaughtUp } else { Read::Events(&self.events) })
        }
    }

    #[test]
    fn rows_that_the_history_has_are_sent_again_and_the_rest_counts_as_unreadable() {
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
