//! The books of every venue: order by order, by price level, or quotes.
//!
//! One [`Books`] per feed holds the books of all its instruments. The events of an instrument (orders, levels or
//! quotes) determine the kind of its book. [`BookStage`] routes events to the feeds' books and passes on one
//! [`BookUpdate`] per event, completed from the book: the side, price and size of the order that a deletion or
//! execution names, and the depth of the change.
//!
//! # Cost
//! An order event touches these cache lines besides its own: one slot of the order index, the book's half line, and one
//! or two lines of price levels. A replacement touches one more slot and perhaps one more line of levels. In a large
//! market each of them is a cache miss, so [`BookStage`] looks ahead within its batch: while it applies one event, it
//! prefetches the order and the book of the event 16 positions later, and the levels of the event 8 positions later,
//! whose order has arrived by then and supplies the side. The misses overlap with the work and with each other.
//!
//! # Gaps
//! A gap makes every book that it may have touched stale. Updates of a stale book carry [`Flags::MAYBE_BAD_BOOK`] until
//! the book is cleared (by a snapshot or a new session) or, for quotes, until both sides have been quoted again.
//!
//! # Without price levels
//! Some consumers need only orders, such as a file of `mbo`: [`BookStage::without_levels`]. Orders then create no price
//! levels. Completed events and outcomes are the same, with two exceptions: an order is not rejected when its level
//! would exceed 2^32 - 1 shares, and an event that names an order of a book being cleared, between two clears of one
//! run, is applied.
//!
//! # Contradictions
//! An event that does not fit its book proves that the book differs from the venue's: the book is contradicted, and
//! stale. A feed can report a contradiction too ([`Event::with_contradiction`]). The end of a gap
//! ([`EventKind::Recovered`]) does not resolve it; a clear does, or a quote of both sides. An order whose reference is
//! taken also contradicts the book that holds the reference.

mod image;

use std::hint::select_unpredictable;

use tapeworks_planted::planted;
use tapeworks_stage::{Sink, Stage};

use crate::event::{Event, EventKind, Flags, Session, Side};
use crate::image::{UnsoundImage, ensure};
use crate::instrument::InstrumentId;
use crate::levels::{Ladder, Level, LevelError, LevelStore};
use crate::orders::{MAX_INSTRUMENTS, Order, OrderIndex, Refused};
use crate::price::Price;
use crate::state::InstrumentState;
use crate::venue::Publisher;

pub use image::BooksImage;
use image::{BookImage, OrderImage};

/// The longest batch worth passing to [`BookStage`].
///
/// Its look-ahead restarts with every batch. The events of a batch this long take a third of a 48 KiB L1 cache.
pub const BATCH: usize = 256;

/// How far beyond the tables a new instrument number may lie; the tables grow to it. Instruments are numbered densely.
pub const INSTRUMENTS_AHEAD: usize = 1 << 16;

/// How many events ahead the order and the book are prefetched.
const ORDERS_AHEAD: usize = 16;
/// How many events ahead the levels are prefetched.
const LEVELS_AHEAD: usize = 8;

/// Initial sizes of a feed's tables. Growth beyond them is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Instruments.
    pub instruments: usize,
    /// Orders resting simultaneously.
    pub orders: usize,
    /// Price levels that exist simultaneously, over all books.
    pub levels: u32,
}

impl Default for Capacity {
    /// Room for a small market or an excerpt: 9 MiB.
    fn default() -> Self {
        Self { instruments: 4096, orders: 1 << 16, levels: 1 << 18 }
    }
}

impl Capacity {
    /// Sizes the tables for the orders that `messages` order-by-order messages can leave.
    ///
    /// At most a full day of the busiest venue: some 8 million resting orders.
    pub fn for_messages(messages: u64) -> Self {
        Self { instruments: 16_384, ..Self::for_orders((messages / 8).clamp(1 << 12, 1 << 23) as usize) }
    }

    /// Sizes the tables for quotes of this many instruments: one level per side, no orders. A SIP has some twenty
    /// feeds.
    fn of_quotes(self) -> Self {
        let levels = u32::try_from(self.instruments.saturating_mul(2)).unwrap_or(u32::MAX);
        Self { orders: self.orders.min(1), levels: self.levels.min(levels), ..self }
    }

    /// Sizes the tables for `orders` simultaneous orders and the levels that they usually create.
    pub fn for_orders(orders: usize) -> Self {
        let levels = orders.max((64 * orders.min(1 << 12)).max(1 << 14)).min(1 << 22);
        Self { orders, levels: levels as u32, ..Self::default() }
    }
}

/// Shares in a round lot if nothing else is known: see [`round_lots`](crate::round_lots).
pub const DEFAULT_ROUND_LOT: u32 = 100;

/// The outcome of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The book changed, or the event has no effect on books.
    Applied,
    /// The event refers to an order that is not in the book: its addition was lost or precedes the capture.
    UnknownOrder,
    /// The book already contains an order with this reference.
    DuplicateOrder,
    /// More shares were executed or cancelled than the order had; the order was removed.
    Overfill,
    /// An order, level or quote without a required price, size or side, or with an instrument out of bounds.
    Incomplete,
    /// Removal of a level that does not exist.
    UnknownLevel,
    /// The level and its orders disagree, or a table is full.
    LevelMismatch,
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Taken => Self::DuplicateOrder,
            Refused::Full => Self::LevelMismatch,
        }
    }
}

/// Counters of a feed's books. Every dropped event is counted here.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BookCounters {
    /// Events processed.
    pub events: u64,
    /// See [`Outcome::UnknownOrder`].
    pub unknown_orders: u64,
    /// See [`Outcome::DuplicateOrder`].
    pub duplicate_orders: u64,
    /// See [`Outcome::Overfill`].
    pub overfills: u64,
    /// See [`Outcome::Incomplete`].
    pub incomplete: u64,
    /// See [`Outcome::UnknownLevel`].
    pub unknown_levels: u64,
    /// See [`Outcome::LevelMismatch`].
    pub level_mismatches: u64,
    /// Gaps seen.
    pub gaps: u64,
    /// How often an event that did not fit made a book contradicted, and so stale.
    pub contradictions: u64,
    /// Events whose instrument lies more than [`INSTRUMENTS_AHEAD`] beyond the table. The books reject them and pass
    /// them on without an instrument.
    pub instruments_beyond: u64,
}

impl BookCounters {
    /// Returns the number of events that could not be applied.
    pub const fn rejected(&self) -> u64 {
        self.unknown_orders
            + self.duplicate_orders
            + self.overfills
            + self.incomplete
            + self.unknown_levels
            + self.level_mismatches
    }
}

/// The book of one instrument: half a cache line.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(32))]
struct Book {
    /// Bids, then asks. Selected by index, because a branch predictor cannot predict the side.
    sides: [Ladder; 2],
    /// The feed's epoch in which the book was last known to be right.
    epoch: u32,
    state: InstrumentState,
    /// Sides quoted since the last gap: bit 0 the bid, bit 1 the ask. Also holds [`PENDING`], [`CONTRADICTED`] and
    /// [`LISTED`].
    quoted: u8,
    /// For each side, how many of the best levels it takes to hold a round lot. A deeper change does not move the
    /// round-lot best. `u8::MAX`: too many to store, so every change counts.
    reach: [u8; 2],
    /// Shares in a round lot; 0 if the venue has not stated it.
    round_lot: u32,
    /// Resting orders; counted only if orders create no levels.
    orders: u32,
}

impl Book {
    #[inline]
    fn measure_reach(&mut self, levels: &LevelStore, side: Side) {
        // A venue that states no lot may use a smaller one than the default; the reach is then deeper than necessary.
        let lot = if self.round_lot == 0 { DEFAULT_ROUND_LOT } else { self.round_lot };
        let reach = levels.reach(self.sides[place_of(side)], lot);
        self.reach[place_of(side)] = u8::try_from(reach).unwrap_or(u8::MAX);
        self.quoted |= LISTED;
    }

    #[inline(never)]
    fn measure_both(&mut self, levels: &LevelStore) {
        self.measure_reach(levels, Side::Bid);
        self.measure_reach(levels, Side::Ask);
    }
}

/// In `quoted`: both sides were quoted.
const QUOTED: u8 = 3;
/// In `quoted`: the best moved within a group of events that is still incomplete.
const PENDING: u8 = 4;
/// In `quoted`: an event did not fit. Such a book has an older epoch than its feed.
const CONTRADICTED: u8 = 8;

/// In `quoted`: the feed has defined the instrument or sent an order or quote for it. Instruments are numbered across
/// feeds, so a feed also has entries for instruments that only other feeds list.
const LISTED: u8 = 16;

/// The side whose round-lot best may have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BestMoved {
    /// Neither.
    No,
    /// The bid.
    Bid,
    /// The offer.
    Ask,
    /// Both, or either one.
    Both,
}

impl BestMoved {
    /// Returns whether the best of `side` may have moved.
    #[inline]
    pub const fn includes(self, side: Side) -> bool {
        matches!((self, side), (Self::Both, _) | (Self::Bid, Side::Bid) | (Self::Ask, Side::Ask))
    }
}

/// Index of a side in a book.
#[inline]
const fn place_of(side: Side) -> usize {
    (side as u8 == Side::Ask as u8) as usize
}

/// Depth of an update that changed no level.
const NO_DEPTH: u32 = u32::MAX;

/// The books of one feed.
#[derive(Debug)]
pub struct Books {
    publisher: Publisher,
    /// Round lot of a new book: see [`Feed::round_lot`](crate::venue::Feed::round_lot). 0 for none.
    round_lot: u32,
    books: Vec<Book>,
    levels: LevelStore,
    orders: OrderIndex,
    next_priority: u64,
    /// Incremented by each gap that affected all books; a book of an older epoch is stale.
    epoch: u32,
    /// Epoch of new books. It is an older epoch while a gap may have hidden messages of instruments that are not known
    /// yet.
    newborn: u32,
    is_open: bool,
    /// Cleared instruments whose orders are removed together with the next one's.
    cleared: Vec<InstrumentId>,
    counters: BookCounters,
}

impl Books {
    /// Creates empty books for a feed.
    pub fn new(publisher: Publisher, capacity: Capacity) -> Self {
        let capacity = if publisher.is_of_sip() { capacity.of_quotes() } else { capacity };
        let round_lot = publisher.feed().and_then(|feed| feed.round_lot).unwrap_or(0);
        Self {
            publisher,
            round_lot,
            books: vec![Book { round_lot, ..Book::default() }; capacity.instruments],
            levels: LevelStore::with_capacity(capacity.levels),
            orders: OrderIndex::with_capacity(capacity.orders),
            next_priority: 0,
            epoch: 0,
            newborn: 0,
            is_open: true,
            cleared: Vec::new(),
            counters: BookCounters::default(),
        }
    }

    /// Returns the whole state as plain values. Equal books have equal images after [sorting](BooksImage::sort).
    pub fn image(&self) -> BooksImage {
        let mut image = BooksImage::default();
        self.image_into(&mut image);
        image
    }

    /// Like [`Books::image`], but reuses the memory of an earlier image: new memory costs several times as much as the
    /// copy.
    pub fn image_into(&self, image: &mut BooksImage) {
        let blank = BookImage { epoch: self.newborn, round_lot: self.round_lot, ..BookImage::default() };
        let mut count = 0;
        for (index, book) in self.books.iter().enumerate() {
            if count == image.books.len() {
                image.books.push(BookImage::default());
            }
            let kept = &mut image.books[count];
            for (side, levels) in [Side::Bid, Side::Ask].into_iter().zip(&mut kept.levels) {
                levels.clear();
                let all = self.levels.iter(book.sides[place_of(side)], side);
                levels.extend(all.map(|level| (level.price, level.size, level.orders)));
            }
            (kept.epoch, kept.state, kept.quoted) = (book.epoch, book.state.bits(), book.quoted);
            (kept.reach, kept.round_lot) = (book.reach, book.round_lot);
            kept.instrument = blank.instrument;
            if *kept != blank {
                kept.instrument = index as u32;
                count += 1;
            }
        }
        image.books.truncate(count);
        image.orders.clear();
        // Reserve for as many orders as the table can hold, so that a slightly larger image fits later. Untouched
        // memory costs nothing.
        image.orders.reserve_exact(self.orders.capacity());
        image.orders.extend(self.orders().map(|order| OrderImage {
            id: order.id,
            price: order.price,
            size: order.size,
            is_ask: order.side == Side::Ask,
            instrument: order.instrument.0,
            priority: order.priority,
        }));
        (image.publisher, image.places) = (self.publisher, self.books.len() as u32);
        (image.next_priority, image.epoch, image.newborn) = (self.next_priority, self.epoch, self.newborn);
        (image.is_open, image.counters) = (self.is_open, self.counters);
    }

    /// Restores books from an image, in tables of at least size `least`.
    ///
    /// # Errors
    /// [`UnsoundImage`].
    pub fn from_image(image: &BooksImage, least: Capacity) -> Result<Self, UnsoundImage> {
        ensure(image.places <= MAX_INSTRUMENTS, "more instruments than are possible")?;
        let mut books = Self::new(image.publisher, image.capacity(least));
        books.books.iter_mut().for_each(|book| book.epoch = image.newborn);
        for kept in &image.books {
            ensure(kept.instrument < image.places, "a book of no instrument")?;
            let Some(book) = books.books.get_mut(kept.instrument as usize) else { continue };
            let is_lost = kept.epoch != image.epoch && planted!("stale-marks-not-saved");
            *book = Book {
                epoch: if is_lost { image.epoch } else { kept.epoch },
                state: InstrumentState::from_bits(kept.state),
                quoted: kept.quoted,
                reach: kept.reach,
                // Images of an earlier build may lack the lot of a contract.
                round_lot: if kept.round_lot == 0 { books.round_lot } else { kept.round_lot },
                ..Book::default()
            };
            for (side, levels) in [Side::Bid, Side::Ask].into_iter().zip(&kept.levels) {
                for (price, size, orders) in levels.iter().copied() {
                    let level = Level { price, size, orders };
                    let put = books.levels.put_worst(&mut book.sides[place_of(side)], side, level);
                    ensure(put.is_ok(), "levels out of order")?;
                }
            }
        }
        for kept in &image.orders {
            ensure(kept.size > 0 && kept.instrument < image.places, "an order without shares or instrument")?;
            let order = Order {
                id: kept.id,
                price: kept.price,
                size: kept.size,
                side: if kept.is_ask { Side::Ask } else { Side::Bid },
                instrument: InstrumentId(kept.instrument),
                priority: kept.priority,
            };
            ensure(books.orders.insert(&order).is_ok(), "an order is there twice")?;
        }
        let BooksImage { next_priority, epoch, newborn, is_open, counters, .. } = *image;
        Ok(Self { next_priority, epoch, newborn, is_open, counters, ..books })
    }

    /// The feed.
    pub const fn publisher(&self) -> Publisher {
        self.publisher
    }

    /// Returns the feed's counters.
    pub const fn counters(&self) -> &BookCounters {
        &self.counters
    }

    /// Returns every resting order, in arbitrary order. Reads the whole order table; meant for checkpoints.
    pub fn orders(&self) -> impl Iterator<Item = Order> + '_ {
        self.orders.iter().filter(|order| !self.cleared.contains(&order.instrument))
    }

    /// Returns the number of resting orders.
    pub const fn order_count(&self) -> usize {
        self.orders.len()
    }

    /// Returns how often a table grew after startup.
    pub const fn growths(&self) -> u64 {
        self.orders.growths() + self.levels.growths()
    }

    /// Returns the size of the tables in bytes.
    pub fn bytes(&self) -> usize {
        self.orders.bytes() + self.levels.bytes() + self.books.len() * size_of::<Book>()
    }

    /// Returns whether the venue is open: its system hours have not ended.
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns how many books are contradicted: see [`BookRef::is_contradicted`]. Reads every book.
    pub fn contradicted_count(&self) -> usize {
        self.books.iter().filter(|book| book.quoted & CONTRADICTED != 0).count()
    }

    /// Returns the book of `instrument`.
    #[inline]
    pub const fn book(&self, instrument: InstrumentId) -> BookRef<'_> {
        BookRef { books: self, instrument }
    }

    /// Returns how many instruments have an entry; books beyond that are empty.
    pub const fn instrument_count(&self) -> usize {
        self.books.len()
    }

    /// Prefetches the book and the order of an event.
    ///
    /// Does not branch on the kind, which no predictor can predict: for events without an order it prefetches an unused
    /// line.
    #[inline]
    fn prefetch_orders(&self, event: &Event) {
        tapeworks_ring::prefetch::read(&self.books, event.instrument.index());
        self.orders.prefetch(event.order_id);
        let is_replace = event.kind == EventKind::Replace;
        self.orders.prefetch(select_unpredictable(is_replace, event.aux, event.order_id));
    }

    /// Prefetches the top levels of the event's side. If only the order knows the side, its line was prefetched some
    /// events ago.
    #[inline]
    fn prefetch_levels(&self, event: &Event) {
        let Some(book) = self.books.get(event.instrument.index()) else { return };
        let is_ask = self.orders.guess_is_ask(event.order_id, event.side == Side::Ask);
        self.levels.prefetch::<8>(book.sides[usize::from(is_ask)]);
    }

    /// Prefetches the top levels of both sides, for the first events of a batch.
    ///
    /// Their orders are being prefetched only now, so waiting for the side would stall on that line.
    #[inline]
    fn prefetch_both_levels(&self, event: &Event) {
        let Some(book) = self.books.get(event.instrument.index()) else { return };
        book.sides.iter().for_each(|side| self.levels.prefetch::<4>(*side));
    }

    /// Applies one event and completes it. The update borrows the books in the state right after the event.
    #[inline(always)]
    pub fn apply<'a>(&'a mut self, event: &'a mut Event) -> BookUpdate<'a> {
        self.apply_to::<true>(event)
    }

    /// [`Books::apply`], where `LEVELS` is whether orders create price levels. It must not change over the life of
    /// these books.
    #[inline(always)]
    fn apply_to<'a, const LEVELS: bool>(&'a mut self, event: &'a mut Event) -> BookUpdate<'a> {
        self.counters.events += 1;
        let mut before = None;
        let mut depth = NO_DEPTH;
        let outcome = match event.kind {
            EventKind::Add => self.add::<LEVELS>(event, &mut depth),
            EventKind::Delete | EventKind::Execute | EventKind::Cancel => {
                self.reduce::<LEVELS>(event, &mut before, &mut depth)
            }
            EventKind::Replace => self.replace::<LEVELS>(event, &mut before, &mut depth),
            EventKind::Level => self.level(event, &mut depth),
            EventKind::Quote => self.quote(event, &mut depth),
            _ => self.other(event, &mut depth),
        };
        if outcome != Outcome::Applied {
            self.refuse(event, outcome);
        }
        if self.is_stale(event.instrument) {
            event.add_flags(Flags::MAYBE_BAD_BOOK);
        }
        let moved = self.best_moved::<LEVELS>(event, depth);
        // The NBBO stops here, so a SIP never gets an entry in it.
        let best_moved = if self.publisher.is_of_sip() { BestMoved::No } else { moved };
        let book = BookRef { books: self, instrument: event.instrument };
        BookUpdate { event, before, outcome, depth, best_moved, book, feeds: None }
    }

    /// Returns which side's round-lot best may have moved, once a group of events is complete.
    #[inline(always)]
    fn best_moved<const LEVELS: bool>(&mut self, event: &mut Event, depth: u32) -> BestMoved {
        let Some(book) = self.books.get_mut(event.instrument.index()) else {
            self.refuse_beyond(event);
            return BestMoved::No;
        };
        if !LEVELS {
            return BestMoved::No;
        }
        let reach = book.reach[place_of(event.side)];
        // A clear empties both sides, whichever side it names.
        let is_pending = (book.quoted & PENDING != 0) | (event.kind == EventKind::Clear);
        // The change is deeper than the levels that make up the best, and no group is open. The first level below those
        // still counts, because they may hold less than a lot.
        if (depth > u32::from(reach)) & !is_pending & ((reach != u8::MAX) | (depth == NO_DEPTH)) {
            return BestMoved::No;
        }
        if !event.flags().contains(Flags::LAST) {
            book.quoted |= PENDING | LISTED;
            return BestMoved::No;
        }
        if is_pending || event.side == Side::None {
            book.quoted &= !PENDING;
            book.measure_both(&self.levels);
            return BestMoved::Both;
        }
        book.measure_reach(&self.levels, event.side);
        if event.side == Side::Ask { BestMoved::Ask } else { BestMoved::Bid }
    }

    #[inline]
    fn is_stale(&self, instrument: InstrumentId) -> bool {
        // Without a gap every book is at epoch 0, so the book's line need not be read.
        self.epoch != 0
            && self.books.get(instrument.index()).map_or(self.newborn, |book| book.epoch) != self.epoch
    }

    #[inline]
    fn book_mut(&mut self, instrument: InstrumentId) -> Option<&mut Book> {
        if instrument.index() >= self.books.len() {
            self.widen(instrument)?;
        }
        self.books.get_mut(instrument.index())
    }

    const fn is_beyond(&self, instrument: InstrumentId) -> bool {
        instrument.index() >= self.books.len() + INSTRUMENTS_AHEAD
    }

    /// Handles an event of an instrument without an entry. Makes sure that no later table grows for a number out of
    /// bounds.
    #[cold]
    #[inline(never)]
    fn refuse_beyond(&mut self, event: &mut Event) {
        let is_beyond = match event.instrument {
            InstrumentId::ALL => event.kind.is_of_one_instrument(),
            InstrumentId::UNKNOWN => false,
            instrument => self.is_beyond(instrument),
        };
        if is_beyond {
            self.counters.instruments_beyond += 1;
            event.instrument = InstrumentId::UNKNOWN;
        }
    }

    /// Grows the table for an instrument beyond the initial capacity.
    #[cold]
    #[inline(never)]
    fn widen(&mut self, instrument: InstrumentId) -> Option<()> {
        if instrument.0 >= MAX_INSTRUMENTS || self.is_beyond(instrument) {
            return None;
        }
        let wanted = (instrument.index() + 1).next_power_of_two();
        self.books.resize(wanted, Book { epoch: self.newborn, round_lot: self.round_lot, ..Book::default() });
        Some(())
    }

    #[inline(always)]
    fn add<const LEVELS: bool>(&mut self, event: &Event, depth: &mut u32) -> Outcome {
        let (Some(price), true) = (event.price, event.size > 0 && event.side != Side::None) else {
            return Outcome::Incomplete;
        };
        if self.book_mut(event.instrument).is_none() {
            return Outcome::Incomplete;
        }
        let order = Order {
            id: event.order_id,
            price,
            size: event.size,
            side: event.side,
            instrument: event.instrument,
            priority: self.next_priority,
        };
        if let Err(refused) = self.orders.insert(&order) {
            return refused.into();
        }
        self.next_priority += 1;
        match self.add_to_level::<LEVELS>(&order) {
            Ok(at) => {
                *depth = at;
                Outcome::Applied
            }
            Err(_) => {
                if let Some(place) = self.orders.find(order.id) {
                    self.orders.remove(place);
                }
                Outcome::LevelMismatch
            }
        }
    }

    #[inline]
    fn add_to_level<const LEVELS: bool>(&mut self, order: &Order) -> Result<u32, LevelError> {
        let book = self.books.get_mut(order.instrument.index()).ok_or(LevelError::Missing)?;
        if !LEVELS {
            book.orders = book.orders.saturating_add(1);
            book.quoted |= LISTED;
            return Ok(NO_DEPTH);
        }
        let ladder = &mut book.sides[place_of(order.side)];
        self.levels.add(ladder, order.side, order.price, order.size)
    }

    #[inline]
    fn take_from_level<const LEVELS: bool>(
        &mut self,
        order: &Order,
        size: u32,
        whole: bool,
    ) -> Result<u32, LevelError> {
        let book = self.books.get_mut(order.instrument.index()).ok_or(LevelError::Missing)?;
        if !LEVELS {
            book.orders = book.orders.saturating_sub(u32::from(whole));
            return Ok(NO_DEPTH);
        }
        let ladder = &mut book.sides[place_of(order.side)];
        self.levels.take(ladder, order.side, order.price, size, whole)
    }

    /// Applies an execution, a partial cancellation, or a deletion, which takes the remaining shares.
    #[inline(always)]
    fn reduce<const LEVELS: bool>(
        &mut self,
        event: &mut Event,
        before: &mut Option<Order>,
        depth: &mut u32,
    ) -> Outcome {
        let Some(place) = self.orders.find(event.order_id) else { return Outcome::UnknownOrder };
        let Some(order) = self.orders.get(place) else { return Outcome::UnknownOrder };
        *before = Some(order);
        let size = select_unpredictable(event.kind == EventKind::Delete, order.size, event.size);
        event.size = size;
        event.side = order.side;
        event.instrument = order.instrument;
        event.price = Some(event.price.unwrap_or(order.price));
        let whole = size >= order.size;
        if whole {
            self.orders.remove(place);
        } else {
            self.orders.resize(place, order.size - size);
        }
        match self.take_from_level::<LEVELS>(&order, size.min(order.size), whole) {
            Ok(at) => *depth = at,
            Err(_) => return Outcome::LevelMismatch,
        }
        let is_too_much = size > order.size && !planted!("over-execution-ignored");
        if is_too_much { Outcome::Overfill } else { Outcome::Applied }
    }

    /// Replaces an order with a new one on the same side, which queues last at its price unless it keeps its priority.
    #[inline(always)]
    fn replace<const LEVELS: bool>(
        &mut self,
        event: &mut Event,
        before: &mut Option<Order>,
        depth: &mut u32,
    ) -> Outcome {
        let Some(place) = self.orders.find(event.order_id) else { return Outcome::UnknownOrder };
        let Some(old) = self.orders.get(place) else { return Outcome::UnknownOrder };
        *before = Some(old);
        event.side = old.side;
        event.instrument = old.instrument;
        self.orders.remove(place);
        let taken = self.take_from_level::<LEVELS>(&old, old.size, true);
        let keeps = event.detail & Event::KEEPS_PRIORITY != 0;
        event.price = event.price.or(keeps.then_some(old.price));
        let (Some(price), true) = (event.price, event.size > 0) else {
            *depth = taken.unwrap_or(NO_DEPTH);
            return Outcome::Incomplete;
        };
        let priority = select_unpredictable(keeps, old.priority, self.next_priority);
        let new = Order { id: event.aux, price, size: event.size, priority, ..old };
        if let Err(refused) = self.orders.insert(&new) {
            *depth = taken.unwrap_or(NO_DEPTH);
            return refused.into();
        }
        self.next_priority += 1;
        match (taken, self.add_to_level::<LEVELS>(&new)) {
            (Ok(left), Ok(joined)) => {
                *depth = left.min(joined);
                Outcome::Applied
            }
            (taken, added) => {
                *depth = taken.unwrap_or(NO_DEPTH).min(added.unwrap_or(NO_DEPTH));
                if added.is_err()
                    && let Some(place) = self.orders.find(new.id)
                {
                    self.orders.remove(place);
                }
                Outcome::LevelMismatch
            }
        }
    }

    #[inline]
    fn level(&mut self, event: &Event, depth: &mut u32) -> Outcome {
        let (Some(price), true) = (event.price, event.side != Side::None) else { return Outcome::Incomplete };
        if self.book_mut(event.instrument).is_none() {
            return Outcome::Incomplete;
        }
        let Some(book) = self.books.get_mut(event.instrument.index()) else { return Outcome::Incomplete };
        book.quoted |= LISTED;
        let ladder = &mut book.sides[place_of(event.side)];
        match self.levels.set(ladder, event.side, price, event.size) {
            Ok(at) => {
                *depth = at;
                Outcome::Applied
            }
            Err(LevelError::Missing) => Outcome::UnknownLevel,
            Err(_) => Outcome::LevelMismatch,
        }
    }

    #[inline]
    fn quote(&mut self, event: &Event, depth: &mut u32) -> Outcome {
        if event.side == Side::None || self.book_mut(event.instrument).is_none() {
            return Outcome::Incomplete;
        }
        let epoch = self.epoch;
        let Some(book) = self.books.get_mut(event.instrument.index()) else { return Outcome::Incomplete };
        // A quote replaces a whole side: once both sides have been quoted, lost quotes no longer matter.
        book.quoted |= LISTED | if event.side == Side::Ask { 2 } else { 1 };
        if book.quoted & QUOTED == QUOTED {
            book.epoch = epoch;
            book.quoted &= PENDING | LISTED;
        }
        let quote = event.price.filter(|_| event.size > 0).map(|price| (price, event.size));
        let ladder = &mut book.sides[place_of(event.side)];
        *depth = 0;
        match self.levels.quote(ladder, event.side, quote) {
            Ok(()) => Outcome::Applied,
            Err(_) => Outcome::LevelMismatch,
        }
    }

    /// Applies rare events: clears, states, sessions, gaps.
    #[cold]
    #[inline(never)]
    fn other(&mut self, event: &mut Event, depth: &mut u32) -> Outcome {
        match event.kind {
            EventKind::Clear => {
                *depth = 0;
                self.clear(event.instrument, event.has_more_clears());
            }
            EventKind::Gap => {
                if event.is_contradiction() {
                    self.contradict(event.instrument);
                } else {
                    self.counters.gaps += 1;
                    self.mark_stale(event.instrument);
                }
            }
            EventKind::Recovered => {
                let epoch = self.epoch;
                if event.instrument == InstrumentId::ALL {
                    self.all_are_right();
                } else if let Some(book) = self.book_mut(event.instrument)
                    && book.quoted & CONTRADICTED == 0
                {
                    book.epoch = epoch;
                }
            }
            EventKind::Status => {
                if let (Some(status), Some(book)) = (event.status(), self.book_mut(event.instrument)) {
                    book.state = book.state.after(status);
                }
            }
            EventKind::Definition => {
                if self.book_mut(event.instrument).is_some()
                    && let Some(book) = self.books.get_mut(event.instrument.index())
                {
                    book.round_lot = event.size;
                    book.measure_both(&self.levels);
                }
            }
            EventKind::Session => match event.session() {
                Some(Session::StartOfMessages) => {
                    // A new day: the venue restarts its order references, and yesterday's halts are over unless the
                    // venue repeats them.
                    self.is_open = true;
                    if event.instrument == InstrumentId::ALL {
                        *depth = 0;
                        self.clear(InstrumentId::ALL, false);
                        self.books.iter_mut().for_each(|book| book.state = InstrumentState::default());
                    }
                }
                Some(Session::StartOfSystemHours | Session::StartOfMarketHours) => self.is_open = true,
                Some(Session::EndOfSystemHours | Session::EndOfMessages) => self.is_open = false,
                Some(Session::EndOfMarketHours | Session::SelfHelpDeclared | Session::SelfHelpRevoked)
                | None => {}
            },
            _ => {}
        }
        Outcome::Applied
    }

    /// Marks all books as right, except contradicted ones.
    fn all_are_right(&mut self) {
        self.newborn = self.epoch;
        let right = |book: &&mut Book| book.quoted & CONTRADICTED == 0;
        self.books.iter_mut().filter(right).for_each(|book| book.epoch = self.epoch);
    }

    /// Empties one book or all of them.
    ///
    /// The order table finds orders only by reference, so removing an instrument's orders reads the whole table. The
    /// orders of many instruments are therefore removed in one pass.
    fn clear(&mut self, instrument: InstrumentId, has_more: bool) {
        if instrument == InstrumentId::ALL {
            self.cleared.clear();
            self.orders.clear();
            for book in &mut self.books {
                book.sides.iter_mut().for_each(|side| self.levels.clear(side));
                book.quoted &= !CONTRADICTED;
                book.orders = 0;
            }
            self.all_are_right();
            return;
        }
        if self.book_mut(instrument).is_some()
            && let Some(book) = self.books.get_mut(instrument.index())
        {
            // A book without levels or counted orders has no orders, unless an event did not fit. When a venue starts
            // up, all books are like that.
            let may_have_orders = book.quoted & CONTRADICTED != 0
                || book.orders > 0
                || book.sides.iter().any(|side| !side.is_empty());
            book.orders = 0;
            book.sides.iter_mut().for_each(|side| self.levels.clear(side));
            book.quoted &= !CONTRADICTED;
            book.epoch = self.epoch;
            if may_have_orders {
                self.cleared.push(instrument);
            }
        }
        if !has_more && !self.cleared.is_empty() {
            let mut is_cleared = vec![false; self.books.len()];
            for instrument in self.cleared.drain(..) {
                is_cleared[instrument.index()] = true;
            }
            self.orders.clear_instruments(|one| is_cleared.get(one.index()).copied().unwrap_or_default());
        }
    }

    fn mark_stale(&mut self, instrument: InstrumentId) {
        if instrument == InstrumentId::ALL {
            if planted!("gap-leaves-books-good") {
                return;
            }
            self.epoch = self.next_epoch();
            self.books.iter_mut().for_each(|book| book.quoted &= !QUOTED);
        } else if let Some(book) = self.stale_book(instrument) {
            book.quoted &= !QUOTED;
        }
    }

    /// Epoch 0 belongs to books without a gap, so the counter wraps to 1 after 2^32 - 1 gaps.
    fn next_epoch(&self) -> u32 {
        self.epoch.checked_add(1).unwrap_or(1)
    }

    /// Returns the book of one instrument, marked as stale.
    fn stale_book(&mut self, instrument: InstrumentId) -> Option<&mut Book> {
        self.book_mut(instrument)?;
        if self.epoch == 0 {
            // The other books stay right.
            self.epoch = self.next_epoch();
            self.all_are_right();
        }
        let older = self.epoch - 1;
        let book = self.books.get_mut(instrument.index())?;
        book.epoch = older;
        Some(book)
    }

    /// Counts a rejected event and marks the books that it contradicts as stale.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, event: &Event, outcome: Outcome) {
        self.count(outcome);
        self.contradict(event.instrument);
        if outcome == Outcome::DuplicateOrder {
            let taken = if event.kind == EventKind::Replace { event.aux } else { event.order_id };
            if let Some(order) = self.orders.find(taken).and_then(|place| self.orders.get(place)) {
                self.contradict(order.instrument);
            }
        }
    }

    fn contradict(&mut self, instrument: InstrumentId) {
        let Some(book) = self.stale_book(instrument) else { return };
        // Each side must be quoted again.
        book.quoted &= !QUOTED;
        if book.quoted & CONTRADICTED == 0 {
            // Report it to the NBBO at the end of the group, as if the best had moved.
            book.quoted |= CONTRADICTED | PENDING | LISTED;
            self.counters.contradictions += 1;
        }
    }

    fn count(&mut self, outcome: Outcome) {
        let counters = &mut self.counters;
        *match outcome {
            Outcome::Applied => return,
            Outcome::UnknownOrder => &mut counters.unknown_orders,
            Outcome::DuplicateOrder => &mut counters.duplicate_orders,
            Outcome::Overfill => &mut counters.overfills,
            Outcome::Incomplete => &mut counters.incomplete,
            Outcome::UnknownLevel => &mut counters.unknown_levels,
            Outcome::LevelMismatch => &mut counters.level_mismatches,
        } += 1;
    }
}

/// Returns the best price of `side` at which the levels add up to a round lot, and their total size in whole lots.
#[inline]
pub fn round_lot_best(book: BookRef<'_>, side: Side, lot: u32) -> (Option<Price>, u32) {
    let mut shares = 0u32;
    for level in book.levels(side) {
        shares = shares.saturating_add(level.size);
        if shares >= lot {
            return (Some(level.price), shares - shares % lot.max(1));
        }
    }
    (None, 0)
}

/// Read access to the book of one instrument at one feed.
#[derive(Clone, Copy, Debug)]
pub struct BookRef<'a> {
    books: &'a Books,
    instrument: InstrumentId,
}

impl<'a> BookRef<'a> {
    /// Returns the feed.
    pub const fn publisher(self) -> Publisher {
        self.books.publisher
    }

    /// Returns the instrument.
    pub const fn instrument(self) -> InstrumentId {
        self.instrument
    }

    #[inline]
    fn ladder(self, side: Side) -> Ladder {
        self.books
            .books
            .get(self.instrument.index())
            .map_or_else(Ladder::default, |book| book.sides[place_of(side)])
    }

    /// Returns the book of another instrument at the same feed.
    pub const fn of(self, instrument: InstrumentId) -> Self {
        Self { instrument, ..self }
    }

    /// Returns how many instruments have an entry at this feed.
    pub const fn all_instruments(self) -> usize {
        self.books.instrument_count()
    }

    /// Returns whether the feed has defined the instrument or sent an order or quote for it.
    pub fn is_listed(self) -> bool {
        self.books.books.get(self.instrument.index()).is_some_and(|book| book.quoted & LISTED != 0)
    }

    /// Returns the best level of `side`.
    #[inline]
    pub fn best(self, side: Side) -> Option<Level> {
        self.level(side, 0)
    }

    /// Returns the level of `side` that has `depth` better levels.
    #[inline]
    pub fn level(self, side: Side, depth: usize) -> Option<Level> {
        self.books.levels.level(self.ladder(side), side, depth)
    }

    /// Returns the levels of `side`, best first.
    #[inline]
    pub fn levels(self, side: Side) -> impl Iterator<Item = Level> + 'a {
        self.books.levels.iter(self.ladder(side), side)
    }

    /// Returns whether `side` has the same levels as in `other`, with equal sizes and order counts.
    pub fn has_levels_of(self, other: BookRef<'_>, side: Side) -> bool {
        self.books.levels.are_equal(self.ladder(side), &other.books.levels, other.ladder(side))
    }

    /// Returns the number of levels of `side`.
    pub fn depth(self, side: Side) -> usize {
        self.ladder(side).len()
    }

    /// Returns the instrument's orders, bids then asks, each from the best price and in order of execution.
    ///
    /// Allocates and reads the whole order table; meant for snapshots and inspection.
    pub fn queue(self) -> Vec<Order> {
        let mut orders: Vec<_> =
            self.books.orders.iter().filter(|order| order.instrument == self.instrument).collect();
        orders.sort_unstable_by_key(|order| match order.side {
            Side::Ask => (1, order.price.e9(), order.priority),
            Side::Bid | Side::None => (0, !order.price.e9(), order.priority),
        });
        orders
    }

    /// Returns the shares in a round lot, if the venue has stated them.
    #[inline]
    pub fn round_lot(self) -> Option<u32> {
        let book = self.books.books.get(self.instrument.index());
        Some(book.map_or(self.books.round_lot, |book| book.round_lot)).filter(|lot| *lot > 0)
    }

    /// Returns the trading state.
    #[inline]
    pub fn state(self) -> InstrumentState {
        self.books.books.get(self.instrument.index()).map_or_else(InstrumentState::default, |book| book.state)
    }

    /// Returns whether the venue is open and may count in the synthetic NBBO. Always false for a SIP's feeds.
    #[inline]
    pub const fn is_open(self) -> bool {
        self.books.is_open && !self.books.publisher.is_of_sip()
    }

    /// Returns whether the venue has closed.
    pub const fn is_closed(self) -> bool {
        !self.books.is_open
    }

    /// Returns whether the book may be wrong, after a gap or a contradiction.
    #[inline]
    pub fn is_stale(self) -> bool {
        self.books.is_stale(self.instrument)
    }

    /// Returns whether an event contradicted the book, which then differs from the venue's until it is cleared.
    pub fn is_contradicted(self) -> bool {
        let book = self.books.books.get(self.instrument.index());
        book.is_some_and(|book| book.quoted & CONTRADICTED != 0)
    }
}

/// An event and the book right after it.
#[derive(Clone, Copy, Debug)]
pub struct BookUpdate<'a> {
    /// The event, completed with the side, price and size of the order it refers to, and flagged if the book is stale.
    pub event: &'a Event,
    /// The order before an execution, cancellation, deletion or replacement.
    pub before: Option<Order>,
    /// The outcome.
    pub outcome: Outcome,
    pub(crate) depth: u32,
    pub(crate) best_moved: BestMoved,
    /// The book.
    pub book: BookRef<'a>,
    /// Set for a definition only: the books of all feeds, because it may affect the books of other venues.
    pub(crate) feeds: Option<&'a BookStage>,
}

impl BookUpdate<'_> {
    /// Returns how many levels are better than the best level that changed; `None` if no level changed.
    #[inline]
    pub const fn depth(&self) -> Option<u32> {
        if self.depth == NO_DEPTH { None } else { Some(self.depth) }
    }

    /// Returns whether the best bid or offer changed in price, size or order count.
    #[inline]
    pub const fn top_changed(&self) -> bool {
        self.depth == 0
    }

    /// Returns the side whose round-lot best may have moved. Known at the last event of a group.
    #[inline]
    pub const fn best_moved(&self) -> BestMoved {
        self.best_moved
    }

    /// Returns whether one of the best `levels` levels of a side changed.
    #[inline]
    pub const fn changed_within(&self, levels: u32) -> bool {
        self.depth < levels
    }
}

/// Applies events to the books of the feed that sent them.
#[derive(Debug)]
pub struct BookStage {
    feeds: Vec<Books>,
    /// Maps a publisher number to an index into `feeds`.
    places: Vec<u8>,
    unnamed: Capacity,
    /// Whether orders create price levels.
    has_levels: bool,
    /// Empty books for self-help events of a venue that has no feed here.
    none: Books,
}

/// Publisher numbers have 16 bits; the table covers all of them.
const PLACES: usize = 1 << 16;
const NO_PLACE: u8 = u8::MAX;

impl BookStage {
    /// Creates books for `feeds`. Any other feed gets books of [`Capacity::default`] at its first event.
    pub fn new(feeds: impl IntoIterator<Item = (Publisher, Capacity)>) -> Self {
        Self::with_unnamed(feeds, Capacity::default())
    }

    /// Creates books for `feeds`, and books of capacity `unnamed` for any other feed at its first event.
    pub fn with_unnamed(feeds: impl IntoIterator<Item = (Publisher, Capacity)>, unnamed: Capacity) -> Self {
        let none = Books::new(Publisher::default(), Capacity { instruments: 0, orders: 0, levels: 0 });
        let places = vec![NO_PLACE; PLACES];
        let mut stage = Self { feeds: Vec::new(), places, unnamed, has_levels: true, none };
        for (publisher, capacity) in feeds {
            stage.admit(publisher, capacity);
        }
        stage
    }

    /// Creates [books in which orders create no price levels](self#without-price-levels), of capacity `unnamed` per
    /// feed.
    ///
    /// Levels and quotes that a venue sends as such are still kept. These books are useless for an NBBO, because no
    /// [best price moves](BookUpdate::best_moved), and their images cannot be restored, because the levels of the
    /// orders would be missing.
    pub fn without_levels(unnamed: Capacity) -> Self {
        Self { has_levels: false, ..Self::with_unnamed([], unnamed) }
    }

    /// Returns whether orders create price levels.
    pub const fn has_levels(&self) -> bool {
        self.has_levels
    }

    /// Returns the whole state as plain values, feed by feed.
    pub fn image(&self) -> Vec<BooksImage> {
        let mut image = Vec::new();
        self.image_into(&mut image);
        image
    }

    /// Like [`BookStage::image`], but reuses the memory of an earlier image.
    pub fn image_into(&self, image: &mut Vec<BooksImage>) {
        image.resize_with(self.feeds.len(), BooksImage::default);
        self.feeds.iter().zip(image).for_each(|(books, image)| books.image_into(image));
    }

    /// Restores books from an image, in tables of at least the size that `least` gives for the feed.
    ///
    /// A feed that is not in the image gets tables of the default feed's size at its first event.
    ///
    /// # Errors
    /// [`UnsoundImage`].
    pub fn from_image(
        image: &[BooksImage],
        least: impl Fn(Publisher) -> Capacity,
    ) -> Result<Self, UnsoundImage> {
        let mut stage = Self::with_unnamed([], least(Publisher::default()));
        ensure(image.len() < usize::from(NO_PLACE), "more feeds than are possible")?;
        for (place, books) in image.iter().enumerate() {
            ensure(
                stage.admit(books.publisher, Capacity { instruments: 0, orders: 0, levels: 0 }) == place,
                "a feed is there twice",
            )?;
            stage.feeds[place] = Books::from_image(books, least(books.publisher))?;
        }
        Ok(stage)
    }

    /// Returns the books of every feed seen or named.
    pub fn feeds(&self) -> &[Books] {
        &self.feeds
    }

    /// Returns the books of `publisher`.
    pub fn feed(&self, publisher: Publisher) -> Option<&Books> {
        self.feeds.iter().find(|books| books.publisher == publisher)
    }

    /// Returns whether a short-sale price test (17 CFR 242.201) restricts an instrument.
    ///
    /// The restriction applies at every venue once the listing market has triggered it, so one venue that reports it
    /// suffices: others report it later or not at all. Reads the book of each feed.
    pub fn is_short_sale_restricted(&self, instrument: InstrumentId) -> bool {
        self.feeds.iter().any(|books| books.book(instrument).state().is_short_sale_restricted())
    }

    /// Creates the books of a feed unless they exist, and returns their index.
    #[cold]
    #[inline(never)]
    pub fn admit(&mut self, publisher: Publisher, capacity: Capacity) -> usize {
        let known = self.places[usize::from(publisher.0)];
        if known != NO_PLACE {
            return usize::from(known);
        }
        // 254 feeds are ten times the largest plant; any further feeds share the last one's books.
        let place = self.feeds.len().min(usize::from(NO_PLACE) - 1);
        if place == self.feeds.len() {
            self.feeds.push(Books::new(publisher, capacity));
        }
        self.places[usize::from(publisher.0)] = place as u8;
        place
    }

    /// Creates books for a feed that has none yet, unless the events only concern self-help against its venue.
    #[cold]
    #[inline(never)]
    fn enter<S>(&mut self, events: &[Event], sink: &mut S) -> Option<usize>
    where
        S: for<'a> Sink<BookUpdate<'a>>,
    {
        let Some(of_feed) = events.iter().find(|event| event.self_help().is_none()) else {
            for event in events {
                let mut event = *event;
                sink.put(self.none.apply(&mut event));
            }
            return None;
        };
        Some(self.admit(of_feed.publisher, self.unnamed))
    }
}

impl<S> Stage<Event, S> for BookStage
where
    S: for<'a> Sink<BookUpdate<'a>>,
{
    #[inline]
    fn process(&mut self, batch: &[Event], sink: &mut S) {
        if self.has_levels {
            self.apply::<true, S>(batch, sink);
        } else {
            self.apply::<false, S>(batch, sink);
        }
    }
}

impl BookStage {
    #[inline]
    fn apply<const LEVELS: bool, S>(&mut self, batch: &[Event], sink: &mut S)
    where
        S: for<'a> Sink<BookUpdate<'a>>,
    {
        // Bursts come from one feed; the look-ahead restarts wherever the feed changes.
        for events in batch.chunk_by(|one, next| one.publisher == next.publisher) {
            let Some(first) = events.first() else { continue };
            let place = match self.places[usize::from(first.publisher.0)] {
                NO_PLACE => match self.enter(events, sink) {
                    Some(place) => place,
                    None => continue,
                },
                place => usize::from(place),
            };
            let Some(mut books) = self.feeds.get_mut(place) else { continue };
            let mut to_order = events.iter();
            let mut to_level = events.iter();
            for event in to_order.by_ref().take(ORDERS_AHEAD) {
                books.prefetch_orders(event);
                sink.expect(event.instrument.index());
            }
            if LEVELS {
                to_level.by_ref().take(LEVELS_AHEAD).for_each(|event| books.prefetch_both_levels(event));
            }
            for event in events {
                if let Some(event) = to_order.next() {
                    books.prefetch_orders(event);
                    sink.expect(event.instrument.index());
                }
                if LEVELS && let Some(event) = to_level.next() {
                    books.prefetch_levels(event);
                }
                let mut event = *event;
                if event.kind == EventKind::Definition {
                    self.define(place, &mut event, sink);
                    let Some(again) = self.feeds.get_mut(place) else { break };
                    books = again;
                    continue;
                }
                sink.put(books.apply_to::<LEVELS>(&mut event));
            }
        }
    }

    /// Applies a definition. Its update exposes the books of all feeds.
    #[cold]
    #[inline(never)]
    fn define<S>(&mut self, place: usize, event: &mut Event, sink: &mut S)
    where
        S: for<'a> Sink<BookUpdate<'a>>,
    {
        let Some(books) = self.feeds.get_mut(place) else { return };
        let BookUpdate { before, outcome, depth, best_moved, .. } = books.apply(event);
        let Some(books) = self.feeds.get(place) else { return };
        let book = books.book(event.instrument);
        sink.put(BookUpdate { event, before, outcome, depth, best_moved, book, feeds: Some(self) });
    }
}
