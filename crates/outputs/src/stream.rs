//! Market data for programs over WebSockets: the synthetic NBBO, trades and gaps, as JSON or Protobuf.
//!
//! ```text
//! ring ─▶ thread "stream": books, NBBO ─▶ records, encoded once per encoding ─┬▶ queue ─▶ /stream of a client
//!                                                                             └▶ queue ─▶ ...
//! ```
//!
//! The thread never waits for a client. Who leaves a queue full gets of each instrument the last NBBO when there is room
//! again; trades and gaps meanwhile are dropped, and a record tells the client how much it missed. Where the thread itself
//! falls behind the ring, all clients are treated so, and the plant is not held up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::ws::Message;
use prost::Message as _;
use tapeworks_market::{Event, Flags, InstrumentId, Instruments, NbboUpdate, nbbo};
use tapeworks_ring::disruptor::{Consumer, Failed, PollError, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_store::trade_of;
use tokio::sync::mpsc;

use crate::begin::{Begin, Past, catch_up};
use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_engine::replica::{Market, Special};
use tapeworks_market::BookOptions;
use tapeworks_runtime::waiting::{QUIET, Rest, may_sleep_unwatched};
use tapeworks_runtime::worker::Worker;

mod counters;
pub mod messages;
mod request;
mod subscriber;

pub use counters::StreamCounters;
pub use request::{Encoding, Request, RequestError};

use messages::{Gap, Kind, Nbbo, Record, Trade};
use subscriber::Subscriber;

/// Records that may wait for one client.
pub const QUEUE_RECORDS: usize = 8_192;

/// Clients at once.
pub const MOST_CLIENTS: usize = 256;

/// How long the thread sleeps where nothing wakes it.
const IDLE_SLEEP: Duration = Duration::from_micros(100);

/// How long it sleeps at most until it is woken.
const SLEEP: Duration = Duration::from_millis(20);

/// How often it looks whether a client that was given too much has room again.
const ROOM: Duration = Duration::from_millis(1);

/// Where the thread of the stream and the web's server meet.
#[derive(Debug, Default)]
pub struct Hub {
    newcomers: Mutex<Vec<Newcomer>>,
    has_newcomers: AtomicBool,
    has_ended: AtomicBool,
    /// What was done and dropped.
    pub counters: StreamCounters,
}

#[derive(Debug)]
struct Newcomer {
    request: Request,
    queue: mpsc::Sender<Message>,
}

impl Hub {
    /// What `request` asks for comes out of the receiver from now on, the present state first.
    /// Nothing comes once the stream has ended.
    pub fn join(&self, request: Request) -> mpsc::Receiver<Message> {
        let (queue, messages) = mpsc::channel(QUEUE_RECORDS);
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_ended.load(Ordering::Acquire) {
            newcomers.push(Newcomer { request, queue });
            self.has_newcomers.store(true, Ordering::Release);
        }
        messages
    }

    fn take(&self) -> Vec<Newcomer> {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_newcomers.store(false, Ordering::Release);
        std::mem::take(&mut newcomers)
    }

    /// Nobody joins any more, and who waits goes.
    fn end(&self) {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_ended.store(true, Ordering::Release);
        newcomers.clear();
    }
}

/// The thread of the stream. Dropping it stops it.
#[derive(Debug)]
pub struct Streaming {
    hub: Arc<Hub>,
    worker: Worker<StreamFailure>,
}

/// There is no stream.
#[derive(thiserror::Error, Debug)]
#[error("no thread for the stream: {0}")]
pub struct StreamError(pub std::io::Error);

/// Why the stream ended before it was told to.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StreamFailure {
    /// The ring stands still.
    #[error("the stream gets no more events: {0}")]
    Ring(Failed),
    /// The events of the day so far cannot be read.
    #[error("the stream cannot begin: {0}")]
    History(#[from] HistoryError),
    /// The thread panicked.
    #[error("the stream's thread panicked")]
    Panicked,
}

impl Streaming {
    /// Where clients join it.
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Waits until the engine has ended and its last events are in the queues of clients.
    ///
    /// # Errors
    /// [`StreamFailure`] when it ended otherwise.
    pub fn join(self) -> Result<(), StreamFailure> {
        self.worker.join(StreamFailure::Panicked)
    }
}

/// Starts the stream of the events that `consumer` gives, with books as `books` says. Clients are told nothing before the
/// events that `begin` names: what passes then is of the past.
///
/// # Errors
/// [`StreamError`]: there is no thread.
pub fn start<W: WaitStrategy + 'static>(
    consumer: Consumer<Event, W, Single>,
    books: &BookOptions,
    begin: Begin,
) -> Result<Streaming, StreamError> {
    let hub = Arc::new(Hub::default());
    let stop = Arc::new(AtomicBool::new(false));
    let mut work = Work {
        behind: consumer.capacity() / 2,
        consumer,
        builder: RecordBuilder::new(books),
        hub: Arc::clone(&hub),
        stop: Arc::clone(&stop),
        begin,
        is_live: false,
        buffer: Vec::new(),
    };
    let worker = Worker::start("stream", stop, move || work.run()).map_err(StreamError)?;
    Ok(Streaming { hub, worker })
}

struct Work<W: WaitStrategy> {
    consumer: Consumer<Event, W, Single>,
    builder: RecordBuilder,
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    begin: Begin,
    /// What is of the past has passed.
    is_live: bool,
    buffer: Vec<Event>,
    /// Events of the ring behind which the thread is late.
    behind: usize,
}

impl<W: WaitStrategy> Work<W> {
    fn run(&mut self) -> Result<(), StreamFailure> {
        let result = self.follow();
        self.hub.end();
        result
    }

    fn follow(&mut self) -> Result<(), StreamFailure> {
        let Self { begin, consumer, stop, builder, hub, .. } = self;
        catch_up(begin, consumer, stop, |past| {
            match past {
                Past::Start(start) => builder.restore(*start),
                Past::Events(_, events) => builder.events(events, &hub.counters),
            }
            Ok::<(), HistoryError>(())
        })?;
        let mut rest = Rest::new(self.begin.wake_up.clone(), IDLE_SLEEP);
        while !self.stop.load(Ordering::Acquire) {
            let turned = self.turn().and_then(|taken| {
                let is_unwatched = self.builder.subscribers.is_empty();
                if taken > 0
                    && is_unwatched
                    && may_sleep_unwatched(self.consumer.lag(), self.consumer.capacity())
                {
                    rest.rest_unwatched();
                } else if taken > 0 {
                    rest.worked();
                } else {
                    let longest = match (is_unwatched, self.builder.owes()) {
                        (true, _) => QUIET,
                        (false, true) => ROOM,
                        (false, false) => SLEEP,
                    };
                    rest.rest(longest, || self.turn().map(|taken| taken > 0))?;
                }
                Ok(())
            });
            match turned {
                Ok(()) => {}
                Err(PollError::Closed) => break,
                Err(PollError::Failed(failed)) => return Err(StreamFailure::Ring(failed)),
            }
        }
        self.builder.catch_up(&self.hub.counters);
        Ok(())
    }

    /// Takes what the ring has, and gives clients what they are to have. Returns the number of events.
    fn turn(&mut self) -> Result<usize, PollError> {
        let is_late = self.consumer.lag() > self.behind;
        let Self { consumer, buffer, .. } = self;
        buffer.clear();
        let taken = consumer.poll(|event, _, _| buffer.push(*event))?;
        if is_late {
            self.builder.fall_behind(&self.hub.counters);
        }
        self.builder.events(&self.buffer, &self.hub.counters);
        self.admit();
        self.builder.catch_up(&self.hub.counters);
        Ok(taken)
    }

    fn admit(&mut self) {
        if !self.is_live {
            self.is_live = self.begin.is_over_at(self.builder.market.next);
        }
        if self.is_live && self.hub.has_newcomers.load(Ordering::Acquire) {
            for newcomer in self.hub.take() {
                self.builder.admit(newcomer);
            }
        }
    }
}

/// When and by what event an instrument's NBBO changed last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Change {
    event: u64,
    ts_event: u64,
    ts_recv: u64,
}

/// A record that is made, and of which instrument; gaps are of none.
struct Made {
    instrument: Option<InstrumentId>,
    record: Record,
}

/// A time or price as protobuf has it: those beyond it are in the year 2262.
fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// A record in the encodings that somebody wants, each made once.
struct Encoded<'a> {
    record: &'a Record,
    json: Option<Message>,
    protobuf: Option<Message>,
}

impl<'a> Encoded<'a> {
    const fn new(record: &'a Record) -> Self {
        Self { record, json: None, protobuf: None }
    }

    fn get(&mut self, encoding: Encoding) -> Message {
        let record = self.record;
        match encoding {
            Encoding::Json => self.json.get_or_insert_with(|| Message::text(record.to_json())).clone(),
            Encoding::Protobuf => {
                self.protobuf.get_or_insert_with(|| Message::binary(record.encode_to_vec())).clone()
            }
        }
    }
}

fn nbbo_record(instruments: &Instruments, of: InstrumentId, best: &nbbo::Nbbo, change: Change) -> Record {
    let price = |side: &nbbo::BestSide| side.price.map(|price| price.e9());
    Record {
        event: change.event,
        kind: Some(Kind::Nbbo(Nbbo {
            symbol: instruments.symbol(of).map_or_else(String::new, |symbol| symbol.as_str().to_owned()),
            ts_event: signed(change.ts_event),
            ts_recv: signed(change.ts_recv),
            bid_price: price(&best.bid),
            ask_price: price(&best.ask),
            bid_size: best.bid.size,
            ask_size: best.ask.size,
            bid_publisher: best.bid.publisher.0.into(),
            ask_publisher: best.ask.publisher.0.into(),
            flags: best.flags.0.into(),
            state: messages::MarketState::from(best.state()) as i32,
        })),
    }
}

/// The trade of an update, if it is one.
fn trade_record(instruments: &Instruments, event: u64, update: &NbboUpdate<'_>) -> Option<Record> {
    let trade = trade_of(&update.book).ok()?;
    let of = update.book.event;
    let symbol = instruments.symbol(of.instrument)?;
    let kind = Kind::Trade(Trade {
        symbol: symbol.as_str().to_owned(),
        ts_event: signed(of.ts_event.0),
        ts_recv: signed(of.ts_recv.0),
        price: trade.price,
        size: trade.size,
        publisher: of.publisher.0.into(),
        side: messages::Side::from(trade.side) as i32,
        flags: of.flags().0.into(),
    });
    Some(Record { event, kind: Some(kind) })
}

/// Events in, records into the queues of those who want them.
struct RecordBuilder {
    market: Market,
    /// By instrument.
    changes: Vec<Change>,
    subscribers: Vec<Subscriber>,
    made: Vec<Made>,
}

impl RecordBuilder {
    fn new(books: &BookOptions) -> Self {
        Self { market: Market::new(books), changes: Vec::new(), subscribers: Vec::new(), made: Vec::new() }
    }

    /// Goes on from a state. When each NBBO changed before it is not known: the last event before it stands for that.
    fn restore(&mut self, start: Start) {
        let (event, now) = (start.first_event().saturating_sub(1), start.time().0);
        self.market.restore(start);
        let change = Change { event, ts_event: now, ts_recv: now };
        self.changes = vec![change; self.market.instruments.len()];
    }

    fn events(&mut self, events: &[Event], counters: &StreamCounters) {
        let mut rest = events;
        while !rest.is_empty() {
            let Self { market, changes, subscribers, made } = self;
            let (wants_nbbo, wants_trades) = (
                subscribers.iter().any(Subscriber::wants_nbbo),
                subscribers.iter().any(Subscriber::wants_trades),
            );
            let number = market.next;
            let (taken, special) = market.advance(rest, |event, update, instruments| {
                let instrument = update.book.event.instrument;
                if update.changed && instrument.0 < InstrumentId::UNKNOWN.0 {
                    let of = update.book.event;
                    let change = Change { event, ts_event: of.ts_event.0, ts_recv: of.ts_recv.0 };
                    if changes.len() <= instrument.index() {
                        changes.resize(instrument.index() + 1, Change::default());
                    }
                    if let Some(known) = changes.get_mut(instrument.index()) {
                        *known = change;
                    }
                    if wants_nbbo {
                        let record = nbbo_record(instruments, instrument, update.nbbo, change);
                        made.push(Made { instrument: Some(instrument), record });
                    }
                }
                if wants_trades && let Some(record) = trade_record(instruments, event, update) {
                    made.push(Made { instrument: Some(instrument), record });
                }
            });
            match special {
                Some(Special::Mapping(instrument, symbol)) => {
                    subscribers.iter_mut().for_each(|subscriber| subscriber.name(instrument, symbol));
                }
                Some(Special::Gap(event, gap)) => {
                    let kind = Kind::Gap(Gap {
                        publisher: event.publisher.0.into(),
                        channel: event.channel.into(),
                        first: gap.first,
                        count: gap.count,
                        ts_event: signed(event.ts_event.0),
                        ts_recv: signed(event.ts_recv.0),
                    });
                    made.push(Made { instrument: None, record: Record { event: number, kind: Some(kind) } });
                }
                None => {}
            }
            for Made { instrument, record } in made.drain(..) {
                let mut encoded = Encoded::new(&record);
                for subscriber in &mut *subscribers {
                    subscriber.offer(instrument, &mut encoded, counters);
                }
            }
            match rest.get(taken.max(1)..) {
                Some(left) => rest = left,
                None => return,
            }
        }
    }

    fn admit(&mut self, newcomer: Newcomer) {
        let mut subscriber = Subscriber::new(newcomer.request, newcomer.queue);
        for (index, symbol) in self.market.instruments.symbols().iter().enumerate() {
            // Instruments are numbered by 32 bits.
            let Ok(index) = u32::try_from(index) else { break };
            let instrument = InstrumentId(index);
            subscriber.name(instrument, *symbol);
            let best = self.market.nbbo().nbbo(instrument);
            if best.bid.price.is_some() || best.ask.price.is_some() {
                subscriber.show(instrument);
            }
        }
        self.subscribers.push(subscriber);
    }

    /// Whether a client is still to be given something.
    fn owes(&self) -> bool {
        self.subscribers.iter().any(Subscriber::is_owed)
    }

    /// All clients have missed what comes now, and get the last of it later.
    fn fall_behind(&mut self, counters: &StreamCounters) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.fall_behind(counters));
    }

    /// Gives those with room again what waits for them; those who are gone are forgotten.
    fn catch_up(&mut self, counters: &StreamCounters) {
        let Self { market, changes, subscribers, .. } = self;
        for subscriber in &mut *subscribers {
            subscriber.catch_up(market.next, counters, |instrument, is_shown| {
                let change = changes.get(instrument.index()).copied().unwrap_or_default();
                let mut best = *market.nbbo().nbbo(instrument);
                if is_shown {
                    best.flags = best.flags.with(Flags::SNAPSHOT);
                }
                nbbo_record(&market.instruments, instrument, &best, change)
            });
        }
        subscribers.retain(|subscriber| !subscriber.is_gone());
    }
}

#[cfg(test)]
mod tests;
