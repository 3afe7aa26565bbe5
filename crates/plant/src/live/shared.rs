//! The books and the NBBO of the plant, and the shared memory that tells of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_flow::graph::Wait;
use tapeworks_flow::{Inline, Sink, Through};
use tapeworks_market::book::BATCH;
use tapeworks_market::conflate::QuoteConflation;
use tapeworks_market::nbbo::Nbbo;
use tapeworks_market::{BookStage, Event, EventKind, Instruments, NbboStage, NbboUpdate};
use tapeworks_ring::broadcast::Writer;
use tapeworks_ring::cpu;
use tapeworks_ring::disruptor::{PollError, PublishError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::checkpoint::MarketImage;
use super::status::Status;
use super::view::Watch;
use super::waiting::{Bell, Idle};
use super::warm::Warmer;
use super::{EventConsumer, PlantError, PlantFailure, PlantOptions, now};

/// What the words of the shared memory mean: version 1 of [`Published`].
pub const SHARED_MEANING: u64 = 0x5441_5045_0000_0001;

/// Items that the shared memory holds: who is further behind has lost some.
const SHARED_ITEMS: usize = 1 << 18;

/// What the shared memory holds of an event: the event, completed by its book, and the NBBO of its instrument after it.
/// 128 bytes. Prices are in 1e-9 of the currency, [`i64::MAX`] where there is none; times are ns since the epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Published {
    /// When the venue says it happened.
    pub ts_event: u64,
    /// When its packet was received.
    pub ts_recv: u64,
    /// The order.
    pub order_id: u64,
    /// The price.
    pub price: i64,
    /// The sequence number of the message on its channel.
    pub channel_sequence: u64,
    /// By kind: see [`Event::aux`].
    pub aux: u64,
    /// The instrument.
    pub instrument: u32,
    /// Shares.
    pub size: u32,
    /// The feed.
    pub publisher: u16,
    /// [`EventKind`] as a number.
    pub kind: u8,
    /// DBN's letter of the side.
    pub side: u8,
    /// DBN's flags.
    pub flags: u8,
    /// The channel.
    pub channel: u8,
    /// The line that brought it.
    pub line: u8,
    /// By kind: see [`Event::detail`].
    pub detail: u8,
    /// The best bid of all venues.
    pub bid: i64,
    /// The best offer of all venues.
    pub ask: i64,
    /// Shares at the best bid.
    pub bid_size: u32,
    /// Shares at the best offer.
    pub ask_size: u32,
    /// The first venue's feed at the best bid.
    pub bid_publisher: u16,
    /// The first venue's feed at the best offer.
    pub ask_publisher: u16,
    /// Whether this event changed the NBBO: 0 or 1.
    pub nbbo_changed: u8,
    /// DBN's flags of the NBBO: `MAYBE_BAD_BOOK` while a venue among the best is in doubt.
    pub nbbo_flags: u8,
    /// Zeros.
    pub reserved: [u8; 34],
}

impl Published {
    /// An update as the shared memory has it.
    #[inline]
    pub fn new(event: &Event, nbbo: &Nbbo, changed: bool) -> Self {
        let price = tapeworks_market::price::price_e9;
        Self {
            ts_event: event.ts_event.0,
            ts_recv: event.ts_recv.0,
            order_id: event.order_id,
            price: price(event.price),
            channel_sequence: event.channel_sequence,
            aux: event.aux,
            instrument: event.instrument.0,
            size: event.size,
            publisher: event.publisher.0,
            kind: event.kind as u8,
            side: event.side as u8,
            flags: event.flags.0,
            channel: event.channel,
            line: event.line as u8,
            detail: event.detail,
            bid: price(nbbo.bid.price),
            ask: price(nbbo.ask.price),
            bid_size: nbbo.bid.size,
            ask_size: nbbo.ask.size,
            bid_publisher: nbbo.bid.publisher.0,
            ask_publisher: nbbo.ask.publisher.0,
            nbbo_changed: u8::from(changed),
            nbbo_flags: nbbo.flags.0,
            reserved: [0; 34],
        }
    }
}

/// Makes the shared memory at `path`.
pub(super) fn create(path: &Path) -> Result<Writer<Published>, PlantError> {
    Writer::create(path, SHARED_ITEMS, SHARED_MEANING)
        .map_err(|source| PlantError::SharedMemory { path: path.to_owned(), source })
}

struct Outlet {
    shared: Option<Writer<Published>>,
    count: u64,
}

impl Sink<NbboUpdate<'_>> for Outlet {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        if let Some(shared) = &mut self.shared {
            shared.publish(&Published::new(update.book.event, update.nbbo, update.changed));
            self.count += 1;
        }
    }
}

/// Books, NBBO, shared memory.
pub(super) struct MarketStage {
    market: Through<BookStage, NbboStage>,
    buffer: Vec<Event>,
    outlet: Outlet,
    instruments: Instruments,
    watch: Watch,
    /// Quotes that gave way to later ones while the stage lagged.
    conflated: u64,
    warm: Option<Warmer>,
}

impl MarketStage {
    pub(super) fn new(options: &PlantOptions, shared: Option<Writer<Published>>, watch: Watch) -> Self {
        Self {
            market: options.books().market(),
            buffer: Vec::with_capacity(BATCH),
            outlet: Outlet { shared, count: 0 },
            instruments: Instruments::default(),
            watch,
            conflated: 0,
            warm: options.warm.then(Warmer::default),
        }
    }

    /// Goes on from books that were kept.
    pub(super) fn restore(&mut self, market: Through<BookStage, NbboStage>, instruments: Instruments) {
        (self.market, self.instruments) = (market, instruments);
    }

    /// Books, NBBO and symbols as plain values.
    pub(super) fn image(&self) -> MarketImage {
        MarketImage {
            books: self.market.first.image(),
            nbbo: self.market.second.image(),
            symbols: self.instruments.symbols().iter().map(|symbol| *symbol.as_bytes()).collect(),
        }
    }

    /// Applies a batch of events and publishes what comes of it.
    #[inline]
    pub(super) fn apply(&mut self, events: &[Event]) {
        let mut edge = Inline::new(&mut self.market, &mut self.buffer, &mut self.outlet);
        for event in events {
            if event.kind == EventKind::SymbolMapping
                && let Some(symbol) = event.symbol()
            {
                self.instruments.intern(symbol);
            }
            edge.put(*event);
        }
        edge.end_of_batch();
    }

    /// Nothing is to be done: goes the ways that are rarely gone, so that their code is in the caches when it is needed.
    pub(super) fn warm_up(&mut self) {
        if let Some(warmer) = &mut self.warm {
            warmer.turn();
        }
    }

    /// Shows the books to whoever looks.
    pub(super) fn show(&self) {
        self.watch.fill(&self.market.first, &self.market.second, &self.instruments, now());
    }

    pub(super) fn tell(&self, status: &mut Status) {
        status.nbbo = *self.market.second.counts();
        status.rejected = self.market.first.feeds().iter().map(|books| books.counters().rejected()).sum();
        status.shared = self.outlet.count;
        status.conflated = self.conflated;
    }
}

/// Events behind at which the market's own thread lags.
const LAGGING: usize = 8 * BATCH;

/// The market's own thread, in the topology "pipeline".
pub(super) fn run(
    mut stage: MarketStage,
    mut events: EventConsumer,
    core: Option<usize>,
    (wait, bell): (Wait, &Bell),
    status: &Arc<Mutex<Status>>,
) -> Result<(), PlantFailure> {
    if let Some(core) = core {
        // Slower on another core, and no reason to end.
        let _not_pinned = cpu::pin(core);
    }
    bell.is_for_this_thread();
    let mut batch = Vec::with_capacity(BATCH);
    let (mut conflation, mut kept) = (QuoteConflation::default(), Vec::new());
    let mut told = Instant::now();
    let mut idle = Idle::new(wait);
    loop {
        // Behind by more than this the stage lags: old quotes would only make it lag more.
        let is_lagging = events.lag() > LAGGING;
        let polled = events.poll(|event, _, is_last| {
            batch.push(*event);
            if is_last || batch.len() == if is_lagging { LAGGING } else { BATCH } {
                if is_lagging {
                    conflation.batch(&batch, |event| kept.push(event));
                    stage.apply(&kept);
                    kept.clear();
                } else {
                    stage.apply(&batch);
                }
                batch.clear();
            }
        });
        match polled {
            Ok(0) => {
                stage.warm_up();
                if wait == Wait::Park {
                    bell.arm();
                    // With events behind the ring's end there is nothing to wait for.
                    if events.lag() == 0 {
                        std::thread::park_timeout(Duration::from_millis(100));
                    }
                    bell.disarm();
                } else {
                    idle.rest();
                }
            }
            Ok(_) => idle.worked(),
            Err(PollError::Closed) => break,
            Err(PollError::Failed(failed)) => return Err(PlantFailure::Ring(PublishError::Failed(failed))),
        }
        if told.elapsed() > Duration::from_millis(200) {
            told = Instant::now();
            stage.show();
            stage.conflated = conflation.conflated();
            stage.tell(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
    stage.conflated = conflation.conflated();
    stage.tell(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

#[cfg(test)]
mod tests {
    use tapeworks_market::InstrumentId;

    use super::*;

    #[test]
    fn what_is_published_is_two_cache_lines_without_holes() {
        assert_eq!(size_of::<Published>(), 128);
        let event = Event::new(EventKind::Other, tapeworks_market::Publisher(1), InstrumentId(2));
        let item = Published::new(&event, &Nbbo::default(), true);
        assert_eq!(Published::read_from_bytes(item.as_bytes()).unwrap(), item);
        assert_eq!((item.bid, item.instrument, item.nbbo_changed), (i64::MAX, 2, 1));
    }
}
