//! Market data for programs over WebSockets: the synthetic NBBO, trades and gaps, as JSON or Protobuf.
//!
//! ```text
//! ring ─▶ thread "stream": books, NBBO ─▶ records, encoded once per encoding ─┬▶ queue ─▶ /stream of a client
//!                                                                             └▶ queue ─▶ ...
//! ```
//!
//! The thread never waits for a client. A client whose queue is full gets the last NBBO of each instrument once there is room
//! again. Trades and gaps in between are dropped, and a record reports how many. If the thread itself falls behind the ring, it
//! treats all clients this way instead of delaying the plant.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::ws::Message;
use prost::Message as _;
use tapeworks_market::{Event, Flags, InstrumentId, Instruments, NbboUpdate, nbbo};
use tapeworks_ring::disruptor::{Consumer, Failed, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_store::trade_of;
use tokio::sync::mpsc;

use crate::begin::Begin;
use crate::output::Output;
use crate::reader::Reader;
use tapeworks_engine::Start;
use tapeworks_engine::history::HistoryError;
use tapeworks_engine::replica::{NumberedMarket, Special};
use tapeworks_market::BookOptions;
use tapeworks_runtime::waiting::QUIET;
use tapeworks_runtime::worker::Worker;
use tapeworks_runtime::world::{System, World};

mod counters;
pub mod messages;
mod request;
mod subscriber;

pub use counters::StreamCounters;
pub use request::{Encoding, Request, RequestError};

use messages::{Gap, Kind, Nbbo, Record, Trade};
use subscriber::Subscriber;

/// Maximum number of records queued for one client.
pub const QUEUE_RECORDS: usize = 8_192;

/// Maximum number of clients.
pub const MOST_CLIENTS: usize = 256;

/// How long the thread sleeps without a wake-up.
const IDLE_SLEEP: Duration = Duration::from_micros(100);

/// Maximum sleep while there are clients.
const SLEEP: Duration = Duration::from_millis(20);

/// Maximum sleep while a client's queue is full.
const ROOM: Duration = Duration::from_millis(1);

/// Connects the stream's thread and the web server.
#[derive(Debug, Default)]
pub struct Hub {
    newcomers: Mutex<Vec<Newcomer>>,
    has_newcomers: AtomicBool,
    has_requests: AtomicBool,
    has_ended: AtomicBool,
    /// The stream's counters.
    pub counters: Arc<StreamCounters>,
}

#[derive(Debug)]
struct Newcomer {
    request: Request,
    queue: mpsc::Sender<Message>,
    counters: Arc<StreamCounters>,
    /// Set when the subscription requests the full current state. A client without it gets that state once, when it is admitted.
    wants_current: Option<Arc<AtomicBool>>,
}

/// A subscription of an output in this process.
#[derive(Debug)]
pub struct Subscription {
    /// The requested records. The channel closes when the stream has ended.
    pub records: mpsc::Receiver<Message>,
    /// This subscription's counters, which the stream's counters do not include.
    pub counters: Arc<StreamCounters>,
    wants_current: Arc<AtomicBool>,
    hub: Arc<Hub>,
}

impl Subscription {
    /// Requests the current NBBO of every instrument, including instruments without quotes; these follow the queued records. Before
    /// the first request only changes are sent.
    pub fn request_current(&self) {
        self.wants_current.store(true, Ordering::Release);
        self.hub.has_requests.store(true, Ordering::Release);
    }
}

impl Hub {
    /// Subscribes to the requested records from now on, beginning with the current state. The receiver is closed if the stream has
    /// ended.
    pub fn join(&self, request: Request) -> mpsc::Receiver<Message> {
        let (queue, messages) = mpsc::channel(QUEUE_RECORDS);
        self.add(Newcomer { request, queue, counters: Arc::clone(&self.counters), wants_current: None });
        messages
    }

    /// Subscribes to the requested records from now on, of which `room` may be queued.
    ///
    /// # Panics
    /// `room` is 0.
    pub fn subscribe(self: &Arc<Self>, request: Request, room: usize) -> Subscription {
        let (queue, records) = mpsc::channel(room);
        let (counters, wants_current) = (Arc::default(), Arc::default());
        self.add(Newcomer {
            request,
            queue,
            counters: Arc::clone(&counters),
            wants_current: Some(Arc::clone(&wants_current)),
        });
        Subscription { records, counters, wants_current, hub: Arc::clone(self) }
    }

    fn add(&self, newcomer: Newcomer) {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_ended.load(Ordering::Acquire) {
            newcomers.push(newcomer);
            self.has_newcomers.store(true, Ordering::Release);
        }
    }

    fn take(&self) -> Vec<Newcomer> {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_newcomers.store(false, Ordering::Release);
        std::mem::take(&mut newcomers)
    }

    /// Closes the queues of clients that are not admitted yet; no client can join after this.
    fn end(&self) {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_ended.store(true, Ordering::Release);
        newcomers.clear();
    }
}

/// The stream's thread. Dropping it stops it.
#[derive(Debug)]
pub struct Streaming<W: World = System> {
    hub: Arc<Hub>,
    worker: Worker<StreamFailure, W>,
}

/// Why the stream does not start.
#[derive(thiserror::Error, Debug)]
#[error("no thread for the stream: {0}")]
pub struct StreamError(pub std::io::Error);

/// Why the stream ended before it was stopped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StreamFailure {
    /// Another part of the ring has failed.
    #[error("the stream gets no more events: {0}")]
    Ring(#[from] Failed),
    /// The events of the day so far cannot be read.
    #[error("the stream cannot begin: {0}")]
    History(#[from] HistoryError),
    /// The thread panicked.
    #[error("the stream's thread panicked")]
    Panicked,
}

impl<W: World> Streaming<W> {
    /// Returns the hub through which clients join.
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Waits until the engine has ended and its last events are in the clients' queues.
    ///
    /// # Errors
    /// [`StreamFailure`] if the stream failed.
    pub fn join(self) -> Result<(), StreamFailure> {
        self.worker.join(StreamFailure::Panicked)
    }
}

/// Starts the stream for the events of `consumer`, with the books that `books` describes. Clients get no records of events before
/// the first live one in `begin`.
///
/// # Errors
/// [`StreamError`] if the thread cannot be started.
pub fn start<W: World, S: WaitStrategy + 'static>(
    consumer: Consumer<Event, S, Single>,
    books: &BookOptions,
    begin: Begin<W>,
) -> Result<Streaming<W>, StreamError> {
    let hub = Arc::new(Hub::default());
    let builder = RecordBuilder::new(books);
    let feeding = Feeding { builder, hub: Arc::clone(&hub), is_live: false, _world: PhantomData::<W> };
    let reader = Reader::new(feeding, consumer, begin, IDLE_SLEEP);
    let worker = reader.start("stream", |feeding, _| feeding.hub.end()).map_err(StreamError)?;
    Ok(Streaming { hub, worker })
}

/// The stream as an output.
struct Feeding<W> {
    builder: RecordBuilder,
    hub: Arc<Hub>,
    /// Whether clients are admitted.
    is_live: bool,
    _world: PhantomData<W>,
}

impl<W: World> Output for Feeding<W> {
    type Failure = StreamFailure;

    const MAY_FALL_BEHIND: bool = true;

    fn restore(&mut self, start: Start) {
        self.builder.restore(start);
    }

    fn events(&mut self, _first: u64, events: &[Event]) -> Result<(), StreamFailure> {
        self.builder.events(events);
        Ok(())
    }

    fn go_live(&mut self, _first: u64) {
        self.is_live = true;
    }

    fn fall_behind(&mut self) {
        self.builder.fall_behind();
    }

    /// Admits new clients, and sends waiting records to clients that have room again.
    fn serve(&mut self, wait: Duration) -> Result<(), StreamFailure> {
        if !wait.is_zero() {
            W::park(wait);
        }
        if self.is_live {
            // Checked before newcomers, because a subscription joins before it requests something.
            let mut has_requests = self.hub.has_requests.swap(false, Ordering::AcqRel);
            if self.hub.has_newcomers.load(Ordering::Acquire) {
                self.hub.take().into_iter().for_each(|newcomer| self.builder.admit(newcomer));
                has_requests = true;
            }
            if has_requests {
                self.builder.show_current();
            }
        }
        self.builder.catch_up();
        Ok(())
    }

    fn patience(&self) -> Duration {
        match (self.is_urgent(), self.builder.owes()) {
            (false, _) => QUIET,
            (true, true) => ROOM,
            (true, false) => SLEEP,
        }
    }

    fn is_urgent(&self) -> bool {
        !self.builder.subscribers.is_empty()
    }
}

/// The last change of an instrument's NBBO.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Change {
    event: u64,
    ts_event: u64,
    ts_recv: u64,
}

/// A record and its instrument; gaps have no instrument.
struct Made {
    instrument: Option<InstrumentId>,
    record: Record,
}

/// Converts a time or price to protobuf's type; larger values would be in the year 2262.
fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// A record in the requested encodings, each encoded at most once.
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

/// Returns the trade of an update, if it is one.
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

/// Makes records of events, and puts them into the subscribers' queues.
struct RecordBuilder {
    market: NumberedMarket,
    /// By instrument.
    changes: Vec<Change>,
    subscribers: Vec<Subscriber>,
    made: Vec<Made>,
}

impl RecordBuilder {
    fn new(books: &BookOptions) -> Self {
        Self {
            market: NumberedMarket::new(books),
            changes: Vec::new(),
            subscribers: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Continues from a state. The state does not contain when each NBBO last changed, so the last event before it is used.
    fn restore(&mut self, start: Start) {
        let (event, now) = (start.first_event().saturating_sub(1), start.time().0);
        self.market.restore(start);
        let change = Change { event, ts_event: now, ts_recv: now };
        self.changes = vec![change; self.market.instruments().len()];
    }

    fn events(&mut self, events: &[Event]) {
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
                    subscriber.offer(instrument, &mut encoded);
                }
            }
            match rest.get(taken.max(1)..) {
                Some(left) => rest = left,
                None => return,
            }
        }
    }

    fn admit(&mut self, newcomer: Newcomer) {
        let shows_quotes = newcomer.wants_current.is_none();
        let mut subscriber = Subscriber::new(newcomer);
        for (index, symbol) in self.market.instruments().symbols().iter().enumerate() {
            // Instrument numbers have 32 bits.
            let Ok(index) = u32::try_from(index) else { break };
            let instrument = InstrumentId(index);
            subscriber.name(instrument, *symbol);
            let best = self.market.nbbo().nbbo(instrument);
            if shows_quotes && (best.bid.price.is_some() || best.ask.price.is_some()) {
                subscriber.show(instrument);
            }
        }
        self.subscribers.push(subscriber);
    }

    /// Shows every instrument to the subscriptions that requested it.
    fn show_current(&mut self) {
        let instruments = self.market.instruments().len();
        for subscriber in self.subscribers.iter_mut().filter(|one| one.takes_request()) {
            (0..).take(instruments).map(InstrumentId).for_each(|instrument| subscriber.show(instrument));
        }
    }

    /// Returns whether records wait for a client whose queue was full.
    fn owes(&self) -> bool {
        self.subscribers.iter().any(Subscriber::is_owed)
    }

    /// Marks all clients as lagging: they miss the next events, and get the last NBBOs later.
    fn fall_behind(&mut self) {
        self.subscribers.iter_mut().for_each(Subscriber::fall_behind);
    }

    /// Sends waiting records to clients that have room again, and removes clients that have left.
    fn catch_up(&mut self) {
        let Self { market, changes, subscribers, .. } = self;
        for subscriber in &mut *subscribers {
            subscriber.catch_up(market.next, |instrument, is_shown| {
                let change = changes.get(instrument.index()).copied().unwrap_or_default();
                let mut best = *market.nbbo().nbbo(instrument);
                if is_shown {
                    best.flags = best.flags.with(Flags::SNAPSHOT);
                }
                nbbo_record(market.instruments(), instrument, &best, change)
            });
        }
        subscribers.retain(|subscriber| !subscriber.is_gone());
    }
}

#[cfg(test)]
mod tests;
