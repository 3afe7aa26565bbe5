//! The books and the NBBO of the plant, and the shared memory that tells of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_market::book::BATCH;
use tapeworks_market::conflate::QuoteConflation;
use tapeworks_market::nbbo::Nbbo;
use tapeworks_market::{
    BookStage, Books, Event, EventKind, Instruments, Nanos, NbboStage, NbboUpdate, Publisher, Symbol,
};
use tapeworks_ring::broadcast::Writer;
use tapeworks_ring::cpu;
use tapeworks_ring::disruptor::{PollError, PublishError};
use tapeworks_ring::wait::Wait;
use tapeworks_stage::{Inline, Sink, Through};
use tapeworks_store::live::Carried;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::checkpoint::{BooksPart, MarketImage};
use super::contradicted::Contradicted;
use super::status::Status;
use super::view::Watch;
use super::warm::Warmer;
use super::{EventConsumer, PlantError, PlantFailure, PlantOptions};
use crate::clients::history::Start;
use tapeworks_runtime::now;
use tapeworks_runtime::waiting::{Bell, Idle};

/// What the words of the shared memory mean: version 3 of [`Published`], which has symbols of up to 21 characters.
pub const SHARED_MEANING: u64 = 0x5441_5045_0000_0003;

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
    /// The instrument's symbol, filled with spaces; zeros where there is none.
    pub symbol: [u8; Symbol::MOST],
    /// Zeros.
    pub reserved: [u8; 13],
}

impl Published {
    /// An update as the shared memory has it.
    #[inline]
    pub fn new(event: &Event, symbol: Option<Symbol>, nbbo: &Nbbo, changed: bool) -> Self {
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
            symbol: symbol.map_or([0; Symbol::MOST], |symbol| *symbol.as_bytes()),
            reserved: [0; 13],
        }
    }

    /// The instrument's symbol, if it has one: every item has it, so that a reader who comes late needs no other.
    pub fn symbol(&self) -> Option<Symbol> {
        Symbol::from_bytes(&self.symbol).ok()
    }
}

/// Makes the shared memory at `path`.
pub(super) fn create(path: &Path) -> Result<Writer<Published>, PlantError> {
    Writer::create(path, SHARED_ITEMS, SHARED_MEANING)
        .map_err(|source| PlantError::SharedMemory { path: path.to_owned(), source })
}

/// The file of the shared memory, and whether it is still there.
#[derive(Debug)]
pub(super) struct SharedFile {
    path: PathBuf,
    /// The file system and the number of the file in it.
    identity: Option<(u64, u64)>,
    /// Times that it was made again because somebody had removed it.
    made_again: u64,
    /// Somebody put another file in its place, or it cannot be made again.
    trouble: Option<String>,
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl SharedFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity_of(path), made_again: 0, trouble: None }
    }

    /// Looks whether readers that come now find the file. One that was removed is made again; its readers learn that the writer
    /// of theirs has ended.
    fn look_after(&mut self, writer: &mut Option<Writer<Published>>) {
        match identity_of(&self.path) {
            Some(identity) if Some(identity) == self.identity => {}
            Some(_) => {
                let text = format!("another file is in the place of {}", self.path.display());
                self.trouble = Some(text);
            }
            None => match create(&self.path) {
                Ok(made) => {
                    *writer = Some(made);
                    (self.identity, self.trouble) = (identity_of(&self.path), None);
                    self.made_again += 1;
                }
                Err(error) => self.trouble = Some(error.to_string()),
            },
        }
    }
}

struct Outlet {
    shared: Option<Writer<Published>>,
    file: Option<SharedFile>,
    count: u64,
    /// Noted where state snapshots may be taken: where there is a journal.
    carried: Option<Carried>,
    instruments: Instruments,
    contradicted: Arc<Contradicted>,
}

impl Sink<NbboUpdate<'_>> for Outlet {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        let event = update.book.event;
        if event.kind == EventKind::SymbolMapping
            && let Some(symbol) = event.symbol()
        {
            self.instruments.intern(symbol);
        }
        if let Some(shared) = &mut self.shared {
            let symbol = self.instruments.symbol(event.instrument);
            shared.publish(&Published::new(event, symbol, update.nbbo, update.changed));
            self.count += 1;
        }
        if let Some(carried) = &mut self.carried {
            carried.note(&update);
        }
        self.contradicted.note(&update.book);
    }
}

/// Books, NBBO, shared memory.
pub(super) struct MarketStage {
    market: Through<BookStage, NbboStage>,
    buffer: Vec<Event>,
    outlet: Outlet,
    /// The latest receive time of the events.
    now: Nanos,
    watch: Watch,
    /// Quotes that gave way to later ones while the stage lagged.
    conflated: u64,
    warm: Option<Warmer>,
    /// The feed of each channel.
    publishers: Vec<Publisher>,
}

impl MarketStage {
    pub(super) fn new(options: &PlantOptions, shared: Option<Writer<Published>>, watch: Watch) -> Self {
        let carried = options.journal.is_some().then(Carried::default);
        Self {
            market: options.books().market(),
            buffer: Vec::with_capacity(BATCH),
            outlet: Outlet {
                file: options.shared_memory.as_deref().filter(|_| shared.is_some()).map(SharedFile::new),
                shared,
                count: 0,
                carried,
                instruments: Instruments::default(),
                contradicted: Arc::default(),
            },
            now: Nanos(0),
            watch,
            conflated: 0,
            warm: options.warm.then(Warmer::default),
            publishers: options.venues.iter().map(|venue| venue.publisher).collect(),
        }
    }

    /// Goes on from a state that was kept.
    pub(super) fn restore(&mut self, start: Start) {
        (self.market, self.outlet.instruments, self.now) = (start.stages, start.instruments, start.now);
        if let Some(carried) = &mut self.outlet.carried {
            *carried = start.carried;
        }
        // Which of a feed's channels is not kept: each may be.
        for (channel, publisher) in (0..=u8::MAX).zip(&self.publishers) {
            if self.market.first.feed(*publisher).is_some_and(|books| books.contradicted_count() > 0) {
                self.outlet.contradicted.set(channel);
            }
        }
    }

    /// What the books say of the channels.
    pub(super) fn contradicted(&self) -> Arc<Contradicted> {
        Arc::clone(&self.outlet.contradicted)
    }

    /// Books, NBBO and symbols as plain values.
    pub(super) fn image(&self) -> MarketImage {
        self.image_in(MarketImage::default())
    }

    /// [`MarketStage::image`] in the memory of an earlier image.
    pub(super) fn image_in(&self, mut image: MarketImage) -> MarketImage {
        let MarketImage { books, nbbo, symbols, carried, now } = &mut image;
        self.market.first.image_into(books);
        self.market.second.image_into(nbbo);
        symbols.clear();
        symbols.extend(self.outlet.instruments.symbols().iter().map(|symbol| *symbol.as_bytes()));
        *carried = self.outlet.carried.as_ref().map(Carried::image).unwrap_or_default();
        *now = self.now.0;
        image
    }

    /// Applies a batch of events and publishes what comes of it.
    #[inline]
    pub(super) fn apply(&mut self, events: &[Event]) {
        let mut edge = Inline::new(&mut self.market, &mut self.buffer, &mut self.outlet);
        for event in events {
            self.now = self.now.max(event.ts_recv);
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
        self.watch.fill(&self.market.first, &self.market.second, &self.outlet.instruments, now());
    }

    /// Looks after the file of the shared memory.
    pub(super) fn look_after_file(&mut self) {
        let Outlet { shared, file, .. } = &mut self.outlet;
        if let Some(file) = file {
            file.look_after(shared);
        }
    }

    pub(super) fn tell(&self, status: &mut Status) {
        if let Some(file) = &self.outlet.file {
            (status.shared_made_again, status.shared_trouble) = (file.made_again, file.trouble.clone());
        }
        status.nbbo = *self.market.second.counts();
        (status.orders, status.book_bytes, status.rejected) = (0, 0, 0);
        for books in self.market.first.feeds() {
            status.orders += books.order_count();
            status.book_bytes += books.bytes();
            status.rejected += books.counters().rejected();
        }
        status.contradicted_books = 0;
        if !self.outlet.contradicted.is_empty() {
            status.contradicted_books = self.market.first.feeds().iter().map(Books::contradicted_count).sum();
            if status.contradicted_books == 0 {
                self.outlet.contradicted.clear();
            }
        }
        status.shared = self.outlet.count;
        status.conflated = self.conflated;
    }
}

/// Events behind at which the market's own thread lags.
const LAGGING: usize = 8 * BATCH;

/// The stage behind the ring: it applies batches, and hands over its books between two events when they are wanted.
pub(super) struct Piped {
    stage: MarketStage,
    /// The number of the first event in `batch`.
    next: u64,
    batch: Vec<Event>,
    conflation: QuoteConflation,
    kept: Vec<Event>,
    part: Option<BooksPart>,
}

impl Piped {
    /// A stage whose next event has the number `next`.
    pub(super) fn new(stage: MarketStage, next: u64, part: Option<BooksPart>) -> Self {
        let batch = Vec::with_capacity(LAGGING);
        Self { stage, next, batch, conflation: QuoteConflation::default(), kept: Vec::new(), part }
    }

    /// Takes an event, and applies the batch when it is complete.
    #[inline]
    fn put(&mut self, event: &Event, is_last: bool, is_lagging: bool) {
        self.hand_over(is_lagging);
        self.batch.push(*event);
        if is_last || self.batch.len() == if is_lagging { LAGGING } else { BATCH } {
            self.apply(is_lagging);
        }
    }

    fn apply(&mut self, is_lagging: bool) {
        if is_lagging {
            let Self { conflation, kept, .. } = self;
            conflation.batch(&self.batch, |event| kept.push(event));
            self.stage.apply(&self.kept);
            self.kept.clear();
        } else {
            self.stage.apply(&self.batch);
        }
        self.next += self.batch.len() as u64;
        self.batch.clear();
    }

    /// Hands over the books if they are wanted as they are after the events so far.
    #[inline]
    fn hand_over(&mut self, is_lagging: bool) {
        let next = self.next + self.batch.len() as u64;
        if self.part.as_ref().is_some_and(|part| part.is_wanted_at(next)) {
            self.apply(is_lagging);
            let stage = &self.stage;
            self.part.iter().for_each(|part| part.hand_over(next, |image| stage.image_in(image)));
        }
    }

    fn tell(&mut self, status: &Mutex<Status>) {
        self.stage.conflated = self.conflation.conflated();
        self.stage.look_after_file();
        self.stage.tell(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The market's own thread, in the topology "pipeline".
pub(super) fn run(
    mut piped: Piped,
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
    let mut told = Instant::now();
    let mut idle = Idle::new(wait);
    loop {
        // Behind by more than this the stage lags: old quotes would only make it lag more.
        let is_lagging = events.lag() > LAGGING;
        let polled = events.poll(|event, _, is_last| piped.put(event, is_last, is_lagging));
        piped.hand_over(false);
        match polled {
            Ok(0) => {
                piped.stage.warm_up();
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
            piped.stage.show();
            piped.tell(status);
        }
    }
    piped.tell(status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_market::InstrumentId;

    use super::super::checkpoint::Agreement;
    use super::super::engine::Engine;
    use super::super::export::tests::{plant, session};
    use super::*;

    fn events() -> Vec<Event> {
        let (mut engine, mut events) = (Engine::new(plant().live_feed()), Vec::new());
        for (channel, received, payload) in &session() {
            let line = tapeworks_market::Line::A;
            let input =
                tapeworks_feed::live::Input::Packet { channel: *channel, line, received: *received, payload };
            engine.input(&input, &mut events);
        }
        events
    }

    fn stage() -> MarketStage {
        MarketStage::new(&plant(), None, Watch::default())
    }

    #[test]
    fn a_file_that_somebody_removes_is_made_again_and_one_that_is_replaced_is_told() {
        let path = std::env::temp_dir().join(format!("tapeworks-removed-{}", std::process::id()));
        let _not_there = std::fs::remove_file(&path);
        let options = PlantOptions { shared_memory: Some(path.clone()), ..plant() };
        let shared = Some(create(&path).unwrap());
        let mut stage = MarketStage::new(&options, shared, Watch::default());
        let told = |stage: &mut MarketStage| {
            stage.look_after_file();
            let mut status = Status::default();
            stage.tell(&mut status);
            (status.shared_made_again, status.shared_trouble)
        };
        assert_eq!(told(&mut stage), (0, None));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(told(&mut stage), (1, None));
        assert!(path.exists());
        std::fs::rename(&path, path.with_extension("moved")).unwrap();
        std::fs::write(&path, b"another's").unwrap();
        let (made_again, trouble) = told(&mut stage);
        assert!(made_again == 1 && trouble.unwrap().starts_with("another file is in the place of"));
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        for path in [path.with_extension("moved"), path] {
            std::fs::remove_file(path).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

        #[test]
        fn books_are_handed_over_as_they_are_before_the_event_that_was_named(
            at in any::<prop::sample::Index>(),
            // What the ring has at each look, and whether the stage lags.
            polls in prop::collection::vec((1usize..3_000, any::<bool>()), 1..20),
            first in 0u64..1_000,
            // Where the earlier image was taken, into whose memory the copy goes.
            earlier in any::<prop::sample::Index>(),
        ) {
            let events = events();
            let at = at.index(events.len() + 1);
            let agreement = Arc::new(Agreement::default());
            let mut other = stage();
            other.apply(&events[..earlier.index(events.len() + 1)]);
            agreement.give_back(other.image().sorted());
            let (to, books) = std::sync::mpsc::channel();
            let part = BooksPart::new(Arc::clone(&agreement), to, Arc::default());
            let mut piped = Piped::new(stage(), first, Some(part));
            agreement.ask_for_books(first + at as u64);
            let (mut rest, mut looks) = (&events[..], polls.iter().cycle());
            while !rest.is_empty() {
                let (available, is_lagging) = *looks.next().unwrap();
                let (polled, later) = rest.split_at(available.min(rest.len()));
                for (place, event) in polled.iter().enumerate() {
                    piped.put(event, place + 1 == polled.len(), is_lagging);
                }
                piped.hand_over(false);
                rest = later;
            }
            let mut straight = stage();
            straight.apply(&events[..at]);
            let (number, image) = books.try_recv().unwrap();
            prop_assert_eq!(number, first + at as u64);
            let (expected, image) = (straight.image().sorted(), image.sorted());
            prop_assert!(image.books == expected.books && image.nbbo == expected.nbbo);
            prop_assert_eq!(image.symbols, expected.symbols);
            // It goes on as if nothing had been asked of it.
            straight.apply(&events[at..]);
            prop_assert!(piped.stage.image().sorted().books == straight.image().sorted().books);
            prop_assert!(books.try_recv().is_err(), "once");
        }
    }

    #[test]
    fn what_is_published_is_two_cache_lines_without_holes() {
        assert_eq!(size_of::<Published>(), 128);
        let event = Event::new(EventKind::Other, tapeworks_market::Publisher(1), InstrumentId(2));
        let symbol = Symbol::parse("TWAA");
        let item = Published::new(&event, symbol, &Nbbo::default(), true);
        assert_eq!(Published::read_from_bytes(item.as_bytes()).unwrap(), item);
        assert_eq!((item.bid, item.instrument, item.nbbo_changed), (i64::MAX, 2, 1));
        assert_eq!(
            (item.symbol(), Published::new(&event, None, &Nbbo::default(), true).symbol()),
            (symbol, None)
        );
    }
}
