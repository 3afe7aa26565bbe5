//! Turns events into messages; starts and stops the output.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_engine::replica::{Mode, Replica, Special, place_of};
use tapeworks_market::{BookOptions, Event, InstrumentId, Symbol};
use tapeworks_ring::disruptor::{Consumer, Failed, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::transport::{NoTls, TlsFiles};
use tapeworks_runtime::worker::Worker;
use tapeworks_runtime::world::{System, World as _};
use tapeworks_store::Schema;
use tapeworks_store::live;
use tapeworks_time::Nanos;

use super::message::{Draft, EVENT_ITEM_BYTES, Key, Kind, record_item_bytes, shard_of};
use super::replay::{self, Listening, Replays};
use super::sender::{Place, Queue, Sender, Waiting};
use super::{AeronHandle, AeronSetting, AeronStatus};
use crate::begin::Begin;
use crate::output::Output;
use crate::reader::Reader;

/// Why the output does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum AeronStartError {
    /// The address for replays cannot be used.
    #[error("cannot listen on {address} for replays of Aeron's streams: {source}")]
    Bind {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] NoTls),
    /// A thread cannot be started.
    #[error("no thread for Aeron: {0}")]
    Thread(io::Error),
}

/// Why the output ended before it was stopped. A missing driver does not end it.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum AeronFailure {
    /// Another part of the ring has failed.
    #[error("the output to Aeron gets no more events: {0}")]
    Ring(#[from] Failed),
    /// The events of the day so far cannot be read.
    #[error("the output to Aeron cannot begin: {0}")]
    History(#[from] HistoryError),
    /// A thread panicked.
    #[error("a thread of the output to Aeron panicked")]
    Panicked,
}

/// The Aeron output. Dropping it stops it.
#[derive(Debug)]
pub struct Aeron {
    queue: Arc<Queue>,
    linger: Duration,
    worker: Option<Worker<AeronFailure>>,
    sender: Option<thread::JoinHandle<()>>,
    replays: Option<Replays>,
}

/// Binds the address for replay requests, so that an unusable one is reported before anything starts.
///
/// # Errors
/// [`AeronStartError::Bind`], [`AeronStartError::Tls`].
pub fn bind(setting: &AeronSetting) -> Result<Option<Listening>, AeronStartError> {
    let Some(address) = setting.replay else { return Ok(None) };
    let acceptor = setting.tls.as_ref().map(TlsFiles::acceptor).transpose()?.unwrap_or_default();
    let bound = Listening::bind(address, acceptor);
    bound.map(Some).map_err(|source| AeronStartError::Bind { address, source })
}

/// Starts publishing the events from `consumer`. It also starts without a driver: see [`Aeron::status`]. `listening` is the result
/// of [`bind`].
///
/// # Errors
/// [`AeronStartError`].
pub fn start<S: WaitStrategy + 'static>(
    setting: AeronSetting,
    listening: Option<Listening>,
    books: &BookOptions,
    consumer: Consumer<Event, S, Single>,
    begin: Begin,
    on_refusal: Option<OnRefusal>,
) -> Result<Aeron, AeronStartError> {
    let queue = Arc::new(Queue::default());
    let epoch = System::time_of_day().0;
    let replays = listening.map(|listening| {
        let server = replay::Server {
            setting: setting.clone(),
            epoch,
            books: books.clone(),
            history: begin.history.clone(),
            queue: Arc::clone(&queue),
            on_refusal,
        };
        listening.serve(server).map_err(AeronStartError::Thread)
    });
    let replays = replays.transpose()?;
    let feeds = books.feeds.iter().map(|(publisher, _)| publisher.0).collect();
    let sender = Sender { setting: setting.clone(), queue: Arc::clone(&queue), epoch, feeds };
    let sender = thread::Builder::new().name("aeron".to_owned()).spawn(move || sender.run());
    let sender = sender.map_err(AeronStartError::Thread)?;
    let linger = setting.linger;
    let mut replica = (setting.nbbo_streams > 0).then(|| Replica::new(books));
    if let Some(replica) = &mut replica {
        replica.set_mode(Schema::Cmbp1, Mode::On);
    }
    let making = Making {
        streams: Streams::new(setting.clone(), epoch),
        replica,
        symbols: Vec::new(),
        is_live: false,
        next: 0,
        shown: 0,
        round: Instant::now(),
        queue: Arc::clone(&queue),
    };
    let reader = Reader::new(making, consumer, begin, Duration::from_micros(50));
    let worker = reader.start("aeron-ring", |_, _| {}).map_err(AeronStartError::Thread)?;
    Ok(Aeron { queue, linger, worker: Some(worker), sender: Some(sender), replays })
}

impl Aeron {
    /// Returns the current status.
    pub fn status(&self) -> AeronStatus {
        self.queue.status()
    }

    /// Returns a handle on the status, for another thread.
    pub fn handle(&self) -> AeronHandle {
        let queue = Arc::clone(&self.queue);
        AeronHandle::new(move || queue.status())
    }

    /// Returns the address that serves replays.
    pub fn replay_address(&self) -> Option<std::net::SocketAddr> {
        self.replays.as_ref().map(Replays::address)
    }

    /// Returns whether the output has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.as_ref().is_none_or(Worker::is_finished)
            || self.sender.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Waits until the engine has ended and its last events were published, or until the linger time is over.
    ///
    /// # Errors
    /// [`AeronFailure`] if the output failed.
    pub fn join(mut self) -> Result<(), AeronFailure> {
        // The sender publishes until the ring has ended.
        let ended = self.worker.take().map_or(Ok(()), |worker| worker.join(AeronFailure::Panicked));
        self.queue.end(Instant::now() + self.linger);
        let sent = self.sender.take().map_or(Ok(()), |sender| join_soon(sender, self.linger));
        ended.and(sent.map_err(|_| AeronFailure::Panicked))
    }
}

/// Waits for the sender, but not for long: it may be waiting for a missing driver, which must not delay the end of the plant.
fn join_soon(sender: thread::JoinHandle<()>, linger: Duration) -> thread::Result<()> {
    let began = Instant::now();
    while !sender.is_finished() {
        if began.elapsed() >= linger + PATIENCE {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    sender.join()
}

impl Drop for Aeron {
    fn drop(&mut self) {
        self.queue.end(Instant::now());
        if let Some(sender) = self.sender.take() {
            // Callers that need the result call `join`.
            let _ended = join_soon(sender, Duration::ZERO);
        }
    }
}

/// The unfinished messages of several streams.
pub(super) struct Streams {
    pub(super) setting: AeronSetting,
    epoch: u64,
    drafts: BTreeMap<i32, Draft>,
    places: BTreeMap<i32, Place>,
    messages: Vec<Waiting>,
    free: Vec<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Streams {
    pub(super) fn new(setting: AeronSetting, epoch: u64) -> Self {
        Self {
            setting,
            epoch,
            drafts: BTreeMap::new(),
            places: BTreeMap::new(),
            messages: Vec::new(),
            free: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Returns a stream's draft with room for `bytes` more bytes.
    fn draft(&mut self, stream: i32, kind: Kind, bytes: usize) -> &mut Draft {
        if self.drafts.get(&stream).is_some_and(|draft| draft.is_full_for(bytes)) {
            self.finish(stream);
        }
        let Self { drafts, places, free, epoch, .. } = self;
        drafts.entry(stream).or_insert_with(|| {
            let place = places.entry(stream).or_default();
            let sequence = place.sequence;
            place.sequence += 1;
            Draft::begin(free.pop().unwrap_or_default(), kind, *epoch, sequence)
        })
    }

    /// Finishes the message of a stream.
    fn finish(&mut self, stream: i32) {
        if let Some(draft) = self.drafts.remove(&stream) {
            let items = draft.items();
            self.messages.push(Waiting { stream, bytes: draft.finish(), items });
        }
    }

    /// Finishes all messages.
    fn finish_all(&mut self) {
        while let Some((stream, draft)) = self.drafts.pop_first() {
            let items = draft.items();
            self.messages.push(Waiting { stream, bytes: draft.finish(), items });
        }
    }

    /// Adds an event.
    fn event(&mut self, number: u64, event: &Event) {
        let stream = self.setting.event_stream(event.channel);
        self.draft(stream, Kind::Events, EVENT_ITEM_BYTES).put_event(number, event);
        if let Some(place) = self.places.get_mut(&stream) {
            place.last = Some(Key { number, place: 0 });
        }
    }

    /// Adds the NBBO records that a replica has made.
    fn records(&mut self, replica: &mut Replica) {
        let Some(made) = replica.by_schema.get(place_of(Schema::Cmbp1)) else { return };
        for item in made.batch.items() {
            let Some(symbol) = replica.market.instruments().symbol(item.instrument) else { continue };
            let stream = self.setting.nbbo_stream(shard_of(symbol, self.setting.nbbo_streams));
            let key = self.key_of(stream, item.event);
            let record = made.batch.record(item);
            self.draft(stream, Kind::Records, record_item_bytes(record.len())).put_record(key, record);
            if let Some(place) = self.places.get_mut(&stream) {
                place.last = Some(key);
            }
        }
        replica.clear();
    }

    /// Returns the key of a stream's next record, of this event.
    fn key_of(&self, stream: i32, number: u64) -> Key {
        let last = self.places.get(&stream).and_then(|place| place.last);
        let before = last.filter(|last| last.number == number);
        Key { number, place: before.map_or(0, |last| last.place + 1) }
    }

    /// Adds the symbol of an NBBO instrument.
    fn symbol(&mut self, time: Nanos, instrument: InstrumentId, symbol: Symbol) {
        let stream = self.setting.nbbo_stream(shard_of(symbol, self.setting.nbbo_streams));
        self.finish(stream);
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        live::symbol_mapping(time, instrument, symbol, false, &mut bytes);
        self.draft(stream, Kind::Symbols, bytes.len()).put_symbol(&bytes);
        self.finish(stream);
        self.bytes = bytes;
    }
}

/// Makes messages of the ring's events.
struct Making {
    streams: Streams,
    replica: Option<Replica>,
    /// The instruments of the NBBO, with their symbols.
    symbols: Vec<(InstrumentId, Symbol)>,
    is_live: bool,
    /// The number of the next event.
    next: u64,
    /// How many symbols were repeated in this round.
    shown: usize,
    round: Instant,
    queue: Arc<Queue>,
}

/// Maximum number of symbols repeated per turn.
const MOST_SYMBOLS: usize = 256;

/// Maximum sleep of the thread.
const PATIENCE: Duration = Duration::from_millis(500);

impl Making {
    /// Repeats the symbols that are due.
    fn repeat_symbols(&mut self) {
        if self.symbols.is_empty() || !self.is_live {
            return;
        }
        let every = self.streams.setting.symbols_every;
        let share = self.round.elapsed().as_secs_f64() / every.as_secs_f64().max(1e-3);
        let due = ((self.symbols.len() as f64 * share) as usize).min(self.symbols.len());
        let Some(replica) = &self.replica else { return };
        let until = due.min(self.shown + MOST_SYMBOLS);
        for (instrument, symbol) in self.symbols.get(self.shown..until).unwrap_or_default() {
            self.streams.symbol(replica.market.now, *instrument, *symbol);
        }
        self.shown = self.shown.max(until);
        if self.shown == self.symbols.len() && share >= 1.0 {
            (self.shown, self.round) = (0, Instant::now());
        }
    }

    fn flush(&mut self) {
        self.streams.finish_all();
        let Streams { messages, free, places, setting, .. } = &mut self.streams;
        self.queue.put(messages, free, places, self.next, setting.queue_bytes);
    }
}

impl Output for Making {
    type Failure = AeronFailure;

    fn restore(&mut self, start: Start) {
        self.next = start.first_event();
        let known = self.symbols.len();
        self.symbols.extend(start.symbols().skip(known));
        if let Some(replica) = &mut self.replica {
            replica.restore(start);
        }
    }

    fn events(&mut self, first: u64, events: &[Event]) -> Result<(), AeronFailure> {
        let Self { streams, replica, symbols, is_live, next, .. } = self;
        if *is_live && streams.setting.events {
            for (number, event) in (first..).zip(events) {
                streams.event(number, event);
            }
        }
        if let Some(replica) = replica {
            replica.take(events, |replica, special| {
                if let Some(Special::Mapping(instrument, symbol)) = special {
                    symbols.push((instrument, symbol));
                    if *is_live {
                        streams.symbol(replica.market.now, instrument, symbol);
                    }
                }
                if *is_live { streams.records(replica) } else { replica.clear() }
            });
        }
        *next = first + events.len() as u64;
        if streams.messages.len() >= 64 {
            self.flush();
        }
        Ok(())
    }

    fn go_live(&mut self, first: u64) {
        (self.is_live, self.next, self.round) = (true, first, Instant::now());
        self.flush();
    }

    fn serve(&mut self, wait: Duration) -> Result<(), AeronFailure> {
        self.repeat_symbols();
        self.flush();
        if !wait.is_zero() {
            thread::park_timeout(wait);
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn is_urgent(&self) -> bool {
        true
    }

    fn end(&mut self) {
        if let Some(replica) = &mut self.replica {
            replica.release();
            self.streams.records(replica);
        }
        self.flush();
    }

    fn report(&mut self, ring_lag: usize) {
        self.queue.update(|status| status.ring_lag = ring_lag as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plant_ends_while_its_sender_waits_for_a_driver_for_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        let setting = AeronSetting {
            directory: Some(folder.path().join("none").display().to_string()),
            driver_timeout: Duration::from_secs(3_600),
            ..AeronSetting::new("aeron:ipc".to_owned())
        };
        let queue = Arc::new(Queue::default());
        let mut messages = vec![Waiting { stream: 1, bytes: vec![0; 9], items: 1 }];
        queue.put(&mut messages, &mut Vec::new(), &BTreeMap::new(), 1, 100);
        let sender = Sender { setting, queue: Arc::clone(&queue), epoch: 1, feeds: Vec::new() };
        let sender = Some(thread::spawn(move || sender.run()));
        // Enough time for the sender to look for its driver.
        let linger = Duration::from_millis(200);
        Aeron { queue, linger, worker: None, sender, replays: None }.join().unwrap();
    }
}
