//! Converts updates to records: one shape per schema.

mod carried;
mod consolidated;
mod interval;
mod order;
mod price;
mod reference;

use std::ops::Range;

use dbn::BidAskPair;
use tapeworks_market::book::Outcome;
use tapeworks_market::event::{Event, EventKind, Flags, Session};
use tapeworks_market::price::{UNDEFINED_PRICE, price_e9};
use tapeworks_market::{BookRef, BookUpdate, InstrumentId, Instruments, NbboUpdate, Publisher, Side};
use tapeworks_time::Nanos;

use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::state::{Part, State};
use crate::summary::Skip;

pub use carried::{Carried, CarriedImage, LastImage};
use consolidated::Consolidated;
pub(crate) use consolidated::pair as consolidated_pair;
use interval::{Bars, ConsolidatedQuotes, Quotes};
use order::Orders;
use price::{Prices, TradesAtBest};
use reference::{Definitions, Imbalances, Statistics, Statuses};

/// Makes the records of one schema.
pub(crate) trait Shape: Send {
    /// The record type.
    type Row: Row;

    /// Takes one update: pushes its records, or counts why there are none.
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments, rows: &mut Rows<Self::Row>);

    /// Calls [`Shape::put`], unless the instrument is unknown: an unreadable symbol has no entry in the tables, and a record
    /// without a symbol is useless.
    #[inline]
    fn take(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments, rows: &mut Rows<Self::Row>) {
        if update.book.event.instrument == InstrumentId::UNKNOWN {
            rows.skip(Skip::NoInstrument);
        } else {
            self.put(update, instruments, rows);
        }
    }

    /// Calls [`Shape::watch`], unless the instrument is unknown.
    #[inline]
    fn note(&mut self, update: &NbboUpdate<'_>) {
        if update.book.event.instrument != InstrumentId::UNKNOWN {
            self.watch(update);
        }
    }

    /// Notes an update without making a record, because records of later updates depend on it.
    fn watch(&mut self, _update: &NbboUpdate<'_>) {}

    /// Limits the file to a window of receive time. Schemas of quote intervals omit records whose interval ends outside the
    /// window, and include earlier changes in the first records inside it.
    fn set_window(&mut self, _window: Range<Nanos>) {}

    /// Continues from this state, as if the shape had noted every update before it.
    fn restore(&mut self, _state: &State<'_>, _carried: &Carried) {}

    /// Pushes a record at `now` for each instrument of `part`, in shapes with more state than the books.
    fn snapshot(&self, _now: Nanos, _part: &Part<'_>, _rows: &mut Rows<Self::Row>) {}

    /// Pushes the records that the end of the input completes.
    fn finish(&mut self, _rows: &mut Rows<Self::Row>) {}
}

/// An operation on a shape whose type is known.
pub(crate) trait Use {
    type Output;

    fn with<S: Shape + 'static>(self, shape: S) -> Self::Output;
}

/// Calls `user` with the shape of `schema`.
pub(crate) fn of_schema<U: Use>(schema: Schema, user: U) -> U::Output {
    let rtype = schema.rtype();
    let interval_ns = schema.interval_ns().unwrap_or(1);
    match schema {
        Schema::Mbo => user.with(Orders::default()),
        Schema::Mbp1 => user.with(Prices::<dbn::Mbp1Msg, 1>::default()),
        Schema::Mbp10 => user.with(Prices::<dbn::Mbp10Msg, 10>::default()),
        Schema::Tbbo => user.with(TradesAtBest),
        Schema::Trades => user.with(Prices::<dbn::TradeMsg, 0>::default()),
        Schema::Bbo1S | Schema::Bbo1M => user.with(Quotes::new(rtype, interval_ns)),
        Schema::Cmbp1 => user.with(Consolidated::default()),
        Schema::Cbbo1S | Schema::Cbbo1M => user.with(ConsolidatedQuotes::new(rtype, interval_ns)),
        Schema::Status => user.with(Statuses),
        Schema::Imbalance => user.with(Imbalances::default()),
        Schema::Definition => user.with(Definitions),
        Schema::Statistics => user.with(Statistics),
        Schema::Ohlcv1S | Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D => {
            user.with(Bars::new(rtype, interval_ns))
        }
    }
}

/// Returns the skip reason for an outcome other than [`Outcome::Applied`].
const fn not_applied(outcome: Outcome) -> Skip {
    match outcome {
        Outcome::Applied => Skip::NothingShownChanged,
        Outcome::UnknownOrder => Skip::UnknownOrder,
        Outcome::DuplicateOrder => Skip::DuplicateOrder,
        Outcome::Overfill => Skip::Overfill,
        Outcome::Incomplete => Skip::Incomplete,
        Outcome::UnknownLevel => Skip::UnknownLevel,
        Outcome::LevelMismatch => Skip::LevelMismatch,
    }
}

/// A trade as all schemas except `mbo` write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trade {
    /// Price in 1e-9.
    pub price: i64,
    /// Shares.
    pub size: u32,
    /// Side of the aggressor.
    pub side: Side,
}

/// Returns the trade in `update`.
///
/// # Errors
/// The reason why the update is not a trade to record.
#[inline]
pub fn trade_of(update: &BookUpdate<'_>) -> Result<Trade, Skip> {
    let event = update.event;
    let side = match event.kind {
        EventKind::Execute => event.side.opposite(),
        EventKind::Trade => event.side,
        _ => return Err(Skip::NotInSchema),
    };
    if update.outcome != Outcome::Applied {
        return Err(not_applied(update.outcome));
    }
    if event.detail & Event::NOT_PRINTABLE != 0 {
        return Err(Skip::NotPrintable);
    }
    match event.price {
        Some(price) if event.size > 0 => Ok(Trade { price: price.e9(), size: event.size, side }),
        _ => Err(Skip::EmptyTrade),
    }
}

/// Returns the event's flags without LAST.
#[inline]
const fn without_last(flags: Flags) -> u8 {
    flags.0 & !Flags::LAST.0
}

/// Returns whether the event empties the book of its instrument, or all books.
const fn clears(event: &Event) -> bool {
    match event.kind {
        EventKind::Clear => true,
        EventKind::Session => {
            event.instrument.0 == InstrumentId::ALL.0
                && matches!(event.session(), Some(Session::StartOfMessages))
        }
        _ => false,
    }
}

/// Spreads the clearing of a venue over its instruments. The clearing arrives as one update for all instruments, then one for
/// each instrument whose NBBO changed. Files record it per instrument, so the first update is repeated for each instrument
/// that the venue lists, and the later ones are recognized by their sequence.
#[derive(Debug, Default)]
struct Clearing {
    venue_wide: Option<(Publisher, u64, u64)>,
}

impl Clearing {
    /// Calls `each` with the event for every instrument that it clears. Returns whether there was one.
    #[cold]
    #[inline(never)]
    fn spread(
        &mut self,
        update: &BookUpdate<'_>,
        instruments: &Instruments,
        mut each: impl FnMut(&Event),
    ) -> bool {
        let event = update.event;
        let key = (event.publisher, event.channel_sequence, event.ts_event.0);
        if event.instrument != InstrumentId::ALL {
            if self.venue_wide == Some(key) {
                return true;
            }
            each(event);
            return true;
        }
        self.venue_wide = Some(key);
        let count = update.book.all_instruments().min(instruments.len());
        let mut any = false;
        for index in 0..count {
            let instrument = InstrumentId(index as u32);
            let book = update.book.of(instrument);
            if !instruments.is_ours(instrument) || !book.is_listed() {
                continue;
            }
            // A venue-wide update counts as stale after any gap, but a book that was just emptied is not.
            let stale = if book.is_stale() { Flags::MAYBE_BAD_BOOK.0 } else { 0 };
            let flags = Flags(event.flags().0 & !Flags::MAYBE_BAD_BOOK.0 | stale);
            each(&Event { instrument, ..*event }.with_flags(flags));
            any = true;
        }
        any
    }
}

/// Returns the `N` best levels of a book.
#[inline]
fn levels<const N: usize>(update: &BookUpdate<'_>) -> [BidAskPair; N] {
    levels_of(update.book)
}

#[inline]
pub(crate) fn levels_of<const N: usize>(book: BookRef<'_>) -> [BidAskPair; N] {
    let mut levels = std::array::from_fn(|_| no_level());
    for (pair, level) in levels.iter_mut().zip(book.levels(Side::Bid)) {
        (pair.bid_px, pair.bid_sz, pair.bid_ct) = (level.price.e9(), level.size, level.orders);
    }
    for (pair, level) in levels.iter_mut().zip(book.levels(Side::Ask)) {
        (pair.ask_px, pair.ask_sz, pair.ask_ct) = (level.price.e9(), level.size, level.orders);
    }
    levels
}

#[inline]
const fn no_level() -> BidAskPair {
    BidAskPair {
        bid_px: UNDEFINED_PRICE,
        ask_px: UNDEFINED_PRICE,
        bid_sz: 0,
        ask_sz: 0,
        bid_ct: 0,
        ask_ct: 0,
    }
}

/// Returns the level of an update for a record's `depth`: 255 for anything deeper, 0 for no level.
#[inline]
fn depth(update: &BookUpdate<'_>) -> u8 {
    update.depth().map_or(0, |depth| u8::try_from(depth).unwrap_or(u8::MAX))
}

/// Returns the price of a book change. For a removal this is the order's price, whatever price it was executed at.
#[inline]
fn book_price(update: &BookUpdate<'_>) -> i64 {
    match (update.event.kind, &update.before) {
        (EventKind::Execute, Some(order)) => order.price.e9(),
        _ => price_e9(update.event.price),
    }
}
