//! `bbo-1s`, `bbo-1m`, `ohlcv-1s`, `ohlcv-1m`, `ohlcv-1h` and `ohlcv-1d`: one record per interval, venue and instrument.
//! `cbbo-1s` and `cbbo-1m`: one per interval and instrument, from the synthetic NBBO.
//!
//! The clock is the receive time of the updates, so a file shows what was known at each boundary. When the clock passes a
//! boundary, the records of the interval are written in order of publisher, then instrument. As in DBN, an interval without a
//! trade or a change of the best bid or offer produces no record; the last trade and the best bid and offer are carried
//! forward. A late update counts in the current interval. The end of the input ends the last interval. With a time window, an
//! interval of quotes has a record if it ends in the window, even if the change came earlier; bars ignore the window.

use std::ops::Range;

use dbn::{BboMsg, BidAskPair, CbboMsg, ConsolidatedBidAskPair, FlagSet, OhlcvMsg, RecordHeader};
use tapeworks_market::event::{Event, EventKind, Flags};
use tapeworks_market::price::UNDEFINED_PRICE;
use tapeworks_market::{BookUpdate, InstrumentId, Instruments, NbboUpdate, Publisher, Side};
use tapeworks_time::Nanos;

use super::carried::ALL_VENUES;
use super::{
    Carried, Shape, Trade, clears, consolidated_pair, levels, levels_of, no_level, not_applied, trade_of,
};
use crate::records::{instrument_number, letter, sequence};
use crate::rows::Rows;
use crate::state::{Part, State};
use crate::summary::Skip;

/// Finds the end of each interval.
#[derive(Debug)]
struct Clock {
    width_ns: u64,
    /// End of the current interval.
    end: Option<u64>,
    /// If set, only quote intervals that end in the window have records.
    window: Option<Range<Nanos>>,
}

impl Clock {
    const fn new(width_ns: u64) -> Self {
        Self { width_ns, end: None, window: None }
    }

    /// Returns whether the interval that ended at `end` has records.
    fn is_shown(&self, end: u64) -> bool {
        self.window.as_ref().is_none_or(|window| window.contains(&Nanos(end)))
    }

    /// Returns the end of the interval that `event` completes, if any.
    #[inline]
    fn tick(&mut self, event: &Event) -> Option<u64> {
        let now = event.ts_recv.0;
        if self.end.is_some_and(|end| now < end) {
            return None;
        }
        let next = (now / self.width_ns).saturating_add(1).saturating_mul(self.width_ns);
        self.end.replace(next)
    }
}

/// State of the current interval, by venue and instrument.
#[derive(Debug)]
struct Running<T> {
    /// In publisher order.
    venues: Vec<VenueState<T>>,
}

#[derive(Debug)]
struct VenueState<T> {
    publisher: Publisher,
    instruments: Vec<T>,
    /// Instruments with a record at the end of the interval.
    touched: Vec<InstrumentId>,
}

impl<T: Clone> Running<T> {
    fn venue(&mut self, publisher: Publisher) -> &mut VenueState<T> {
        let place = self.venues.partition_point(|venue| venue.publisher < publisher);
        if self.venues.get(place).is_none_or(|venue| venue.publisher != publisher) {
            let state = VenueState { publisher, instruments: Vec::new(), touched: Vec::new() };
            self.venues.insert(place, state);
        }
        &mut self.venues[place]
    }

    /// Passes the touched instruments to `each`, in order, and starts a new interval.
    fn take_touched(&mut self, mut each: impl FnMut(Publisher, InstrumentId, &mut T)) {
        for venue in &mut self.venues {
            venue.touched.sort_unstable();
            for instrument in venue.touched.drain(..) {
                each(venue.publisher, instrument, &mut venue.instruments[instrument.index()]);
            }
        }
    }
}

impl<T: Clone> VenueState<T> {
    fn instrument(&mut self, instrument: InstrumentId, blank: &T) -> &mut T {
        if instrument.index() >= self.instruments.len() {
            self.instruments.resize((instrument.index() + 1).next_power_of_two(), blank.clone());
        }
        &mut self.instruments[instrument.index()]
    }
}

/// The best bid and offer of an instrument, and its last trade.
#[derive(Clone, Debug)]
struct Quote {
    best: BidAskPair,
    trade: Trade,
    /// Time of the last trade.
    traded_at: u64,
    sequence: u32,
    flags: u8,
    is_touched: bool,
}

const NO_QUOTE: Quote = Quote {
    best: no_level(),
    trade: Trade { price: UNDEFINED_PRICE, size: 0, side: Side::None },
    traded_at: dbn::UNDEF_TIMESTAMP,
    sequence: 0,
    flags: 0,
    is_touched: false,
};

/// Makes `bbo-1s` and `bbo-1m` records.
#[derive(Debug)]
pub(crate) struct Quotes {
    rtype: u8,
    clock: Clock,
    running: Running<Quote>,
}

/// Returns a record of `quote` at `time`.
fn bbo(
    rtype: u8,
    publisher: Publisher,
    instrument: InstrumentId,
    quote: &Quote,
    time: u64,
    flags: u8,
) -> BboMsg {
    BboMsg {
        hd: RecordHeader::new::<BboMsg>(rtype, publisher.0, instrument_number(instrument), quote.traded_at),
        price: quote.trade.price,
        size: quote.trade.size,
        side: letter(quote.trade.side),
        flags: FlagSet::from(flags),
        ts_recv: time,
        sequence: quote.sequence,
        levels: [quote.best.clone()],
        ..BboMsg::default_for_schema(dbn::Schema::Bbo1S)
    }
}

impl Quotes {
    pub(crate) const fn new(rtype: u8, width_ns: u64) -> Self {
        Self { rtype, clock: Clock::new(width_ns), running: Running { venues: Vec::new() } }
    }

    fn end_interval(&mut self, end: u64, mut each: impl FnMut(BboMsg)) {
        let (rtype, is_shown) = (self.rtype, self.clock.is_shown(end));
        self.running.take_touched(|publisher, instrument, quote| {
            quote.is_touched = false;
            if is_shown {
                each(bbo(rtype, publisher, instrument, quote, end, quote.flags | Flags::LAST.0));
            }
        });
    }

    /// Takes an update, and makes the records of an interval that it completes.
    ///
    /// # Errors
    /// Why the update is skipped, if it is a trade.
    #[inline]
    fn take(&mut self, book: &BookUpdate<'_>, each: impl FnMut(BboMsg)) -> Result<(), Skip> {
        if let Some(end) = self.clock.tick(book.event) {
            self.end_interval(end, each);
        }
        if clears(book.event) {
            self.clear(book);
            return Ok(());
        }
        let trade = trade_of(book);
        let best = book.top_changed().then(|| {
            let [best] = levels::<1>(book);
            best
        });
        if let (None, Err(reason)) = (&best, &trade) {
            return Err(*reason);
        }
        self.change(book.event, best, trade.ok());
        Ok(())
    }

    /// Applies the changes of `event` to its instrument.
    fn change(&mut self, event: &Event, best: Option<BidAskPair>, trade: Option<Trade>) {
        let venue = self.running.venue(event.publisher);
        let quote = venue.instrument(event.instrument, &NO_QUOTE);
        if let Some(best) = best {
            quote.best = best;
        }
        if let Some(trade) = trade {
            (quote.trade, quote.traded_at) = (trade, event.ts_event.0);
        }
        quote.sequence = sequence(event);
        quote.flags = event.flags().0;
        if !std::mem::replace(&mut quote.is_touched, true) {
            venue.touched.push(event.instrument);
        }
    }

    /// Clears the quote of the instrument, or all quotes of the venue.
    #[cold]
    #[inline(never)]
    fn clear(&mut self, book: &BookUpdate<'_>) {
        let event = book.event;
        let venue = self.running.venue(event.publisher);
        let quoted: Vec<InstrumentId> = venue
            .instruments
            .iter()
            .enumerate()
            .filter(|(_, quote)| quote.best != no_level())
            .map(|(index, _)| InstrumentId(index as u32))
            .filter(|instrument| [InstrumentId::ALL, *instrument].contains(&event.instrument))
            .collect();
        for instrument in quoted {
            self.change(&Event { instrument, ..*event }, Some(no_level()), None);
        }
    }
}

impl Shape for Quotes {
    type Row = BboMsg;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<BboMsg>) {
        let book = &update.book;
        if let Err(reason) = self.take(book, |record| rows.push_derived(record)) {
            rows.skip(match book.event.kind {
                EventKind::Execute | EventKind::Trade => reason,
                EventKind::Add
                | EventKind::Cancel
                | EventKind::Delete
                | EventKind::Replace
                | EventKind::Level
                | EventKind::Quote => not_applied(book.outcome),
                _ => Skip::NotInSchema,
            });
        }
    }

    fn set_window(&mut self, window: Range<Nanos>) {
        self.clock.window = Some(window);
    }

    fn watch(&mut self, update: &NbboUpdate<'_>) {
        let book = &update.book;
        let event = book.event;
        if self.clock.window.is_some() {
            let _unchanged = self.take(book, |_| {});
            return;
        }
        let trade = trade_of(book);
        let venue = self.running.venue(event.publisher);
        if clears(event) {
            let cleared = |index| [InstrumentId::ALL, InstrumentId(index as u32)].contains(&event.instrument);
            let quotes = venue.instruments.iter_mut().enumerate().filter(|(index, _)| cleared(*index));
            return quotes.for_each(|(_, quote)| quote.best = no_level());
        }
        if !book.top_changed() && trade.is_err() {
            return;
        }
        let quote = venue.instrument(event.instrument, &NO_QUOTE);
        let [best] = levels::<1>(book);
        quote.best = best;
        if let Ok(trade) = trade {
            (quote.trade, quote.traded_at) = (trade, event.ts_event.0);
        }
    }

    fn restore(&mut self, state: &State<'_>, carried: &Carried) {
        self.running.venues.clear();
        for books in state.books.feeds() {
            let publisher = books.publisher();
            for instrument in state.all_instruments() {
                let last = carried.last(publisher, instrument);
                let [best] = levels_of::<1>(books.book(instrument));
                if best != no_level() || last.traded_at != NO_QUOTE.traded_at {
                    let quote = self.running.venue(publisher).instrument(instrument, &NO_QUOTE);
                    (quote.best, quote.trade, quote.traded_at) = (best, last.trade, last.traded_at);
                }
            }
        }
    }

    fn snapshot(&self, now: Nanos, part: &Part<'_>, rows: &mut Rows<BboMsg>) {
        for venue in &self.running.venues {
            for instrument in part.among(venue.instruments.len()) {
                let Some(quote) = venue.instruments.get(instrument.index()) else { continue };
                if quote.best != no_level() || quote.traded_at != dbn::UNDEF_TIMESTAMP {
                    let flags = Flags(quote.flags).with(Flags::LAST).with(Flags::SNAPSHOT);
                    rows.push_derived(bbo(self.rtype, venue.publisher, instrument, quote, now.0, flags.0));
                }
            }
        }
    }

    fn finish(&mut self, rows: &mut Rows<BboMsg>) {
        if let Some(end) = self.clock.end.take() {
            self.end_interval(end, |record| rows.push_derived(record));
        }
    }
}

/// The NBBO of an instrument and its last trade.
#[derive(Clone, Debug)]
struct ConsolidatedQuote {
    best: ConsolidatedBidAskPair,
    trade: Trade,
    /// Time of the last trade.
    traded_at: u64,
    /// Feed of the last event that changed either.
    publisher: Publisher,
    flags: u8,
    is_touched: bool,
}

impl Default for ConsolidatedQuote {
    fn default() -> Self {
        Self {
            best: ConsolidatedBidAskPair::default(),
            trade: NO_QUOTE.trade,
            traded_at: dbn::UNDEF_TIMESTAMP,
            publisher: Publisher(0),
            flags: 0,
            is_touched: false,
        }
    }
}

/// Makes `cbbo-1s` and `cbbo-1m` records.
#[derive(Debug)]
pub(crate) struct ConsolidatedQuotes {
    rtype: u8,
    clock: Clock,
    running: Running<ConsolidatedQuote>,
}

impl ConsolidatedQuotes {
    pub(crate) const fn new(rtype: u8, width_ns: u64) -> Self {
        Self { rtype, clock: Clock::new(width_ns), running: Running { venues: Vec::new() } }
    }

    fn end_interval(&mut self, end: u64, mut each: impl FnMut(CbboMsg)) {
        let (rtype, is_shown) = (self.rtype, self.clock.is_shown(end));
        self.running.take_touched(|_, instrument, quote| {
            quote.is_touched = false;
            if is_shown {
                each(cbbo(rtype, instrument, quote, end, quote.flags | Flags::LAST.0));
            }
        });
    }

    /// Takes an update, and makes the records of an interval that it completes.
    ///
    /// # Errors
    /// Why the update is skipped, if it is a trade.
    #[inline]
    fn take(&mut self, update: &NbboUpdate<'_>, each: impl FnMut(CbboMsg)) -> Result<(), Skip> {
        if let Some(end) = self.clock.tick(update.book.event) {
            self.end_interval(end, each);
        }
        let trade = trade_of(&update.book);
        if let (false, Err(reason)) = (update.changed, &trade) {
            return Err(*reason);
        }
        let (quote, is_new) = self.change(update, trade.ok());
        quote.is_touched = true;
        if is_new {
            self.running.venue(ALL_VENUES).touched.push(update.book.event.instrument);
        }
        Ok(())
    }

    /// Applies the changes of `update`. Returns the quote of its instrument, and whether it is the first change in this interval.
    fn change(&mut self, update: &NbboUpdate<'_>, trade: Option<Trade>) -> (&mut ConsolidatedQuote, bool) {
        let event = update.book.event;
        let venue = self.running.venue(ALL_VENUES);
        let quote = venue.instrument(event.instrument, &ConsolidatedQuote::default());
        if update.changed {
            quote.best = consolidated_pair(update.nbbo);
        }
        if let Some(trade) = trade {
            (quote.trade, quote.traded_at) = (trade, event.ts_event.0);
        }
        (quote.publisher, quote.flags) = (event.publisher, event.flags().0 | update.nbbo.flags.0);
        let is_new = !quote.is_touched;
        (quote, is_new)
    }
}

/// Returns a record of `quote` at `time`.
fn cbbo(rtype: u8, instrument: InstrumentId, quote: &ConsolidatedQuote, time: u64, flags: u8) -> CbboMsg {
    let number = instrument_number(instrument);
    CbboMsg {
        hd: RecordHeader::new::<CbboMsg>(rtype, quote.publisher.0, number, quote.traded_at),
        price: quote.trade.price,
        size: quote.trade.size,
        side: letter(quote.trade.side),
        flags: FlagSet::from(flags),
        ts_recv: time,
        levels: [quote.best.clone()],
        ..CbboMsg::default_for_schema(dbn::Schema::Cbbo1S)
    }
}

impl Shape for ConsolidatedQuotes {
    type Row = CbboMsg;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<CbboMsg>) {
        if let Err(reason) = self.take(update, |record| rows.push_derived(record)) {
            rows.skip(match update.book.event.kind {
                EventKind::Execute | EventKind::Trade => reason,
                EventKind::TradeBreak | EventKind::Other => Skip::NotInSchema,
                _ => Skip::NothingShownChanged,
            });
        }
    }

    fn set_window(&mut self, window: Range<Nanos>) {
        self.clock.window = Some(window);
    }

    fn watch(&mut self, update: &NbboUpdate<'_>) {
        if self.clock.window.is_some() {
            let _unchanged = self.take(update, |_| {});
            return;
        }
        let trade = trade_of(&update.book).ok();
        if update.changed || trade.is_some() {
            self.change(update, trade);
        }
    }

    fn restore(&mut self, state: &State<'_>, carried: &Carried) {
        self.running.venues.clear();
        for instrument in state.all_instruments() {
            let last = carried.last(ALL_VENUES, instrument);
            if last.publisher != ALL_VENUES {
                let blank = ConsolidatedQuote::default();
                let quote = self.running.venue(ALL_VENUES).instrument(instrument, &blank);
                quote.best = consolidated_pair(state.nbbo.nbbo(instrument));
                (quote.trade, quote.traded_at) = (last.trade, last.traded_at);
                (quote.publisher, quote.flags) = (last.publisher, last.flags);
            }
        }
    }

    fn snapshot(&self, now: Nanos, part: &Part<'_>, rows: &mut Rows<CbboMsg>) {
        for all in &self.running.venues {
            for instrument in part.among(all.instruments.len()) {
                let Some(quote) = all.instruments.get(instrument.index()) else { continue };
                if quote.publisher != ALL_VENUES {
                    let flags = Flags(quote.flags).with(Flags::LAST).with(Flags::SNAPSHOT);
                    rows.push_derived(cbbo(self.rtype, instrument, quote, now.0, flags.0));
                }
            }
        }
    }

    fn finish(&mut self, rows: &mut Rows<CbboMsg>) {
        if let Some(end) = self.clock.end.take() {
            self.end_interval(end, |record| rows.push_derived(record));
        }
    }
}

/// The trades of an instrument in an interval.
#[derive(Clone, Debug, Default)]
struct Bar {
    open: i64,
    high: i64,
    low: i64,
    close: i64,
    volume: u64,
}

/// Makes `ohlcv-1s` records and longer bars.
#[derive(Debug)]
pub(crate) struct Bars {
    rtype: u8,
    clock: Clock,
    running: Running<Bar>,
}

impl Bars {
    pub(crate) const fn new(rtype: u8, width_ns: u64) -> Self {
        Self { rtype, clock: Clock::new(width_ns), running: Running { venues: Vec::new() } }
    }

    fn end_interval(&mut self, end: u64, rows: &mut Rows<OhlcvMsg>) {
        let rtype = self.rtype;
        let start = end.saturating_sub(self.clock.width_ns);
        self.running.take_touched(|publisher, instrument, bar| {
            let bar = std::mem::take(bar);
            let number = instrument_number(instrument);
            rows.push_derived(OhlcvMsg {
                hd: RecordHeader::new::<OhlcvMsg>(rtype, publisher.0, number, start),
                open: bar.open,
                high: bar.high,
                low: bar.low,
                close: bar.close,
                volume: bar.volume,
            });
        });
    }
}

impl Shape for Bars {
    type Row = OhlcvMsg;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<OhlcvMsg>) {
        let event = update.book.event;
        if let Some(end) = self.clock.tick(event) {
            self.end_interval(end, rows);
        }
        let trade = match trade_of(&update.book) {
            Ok(trade) => trade,
            Err(reason) => return rows.skip(reason),
        };
        let venue = self.running.venue(event.publisher);
        let bar = venue.instrument(event.instrument, &Bar::default());
        let is_first = bar.volume == 0;
        if is_first {
            (bar.open, bar.high, bar.low) = (trade.price, trade.price, trade.price);
        }
        bar.high = bar.high.max(trade.price);
        bar.low = bar.low.min(trade.price);
        bar.close = trade.price;
        bar.volume = bar.volume.saturating_add(update.book.event.shares());
        if is_first {
            venue.touched.push(event.instrument);
        }
    }

    fn finish(&mut self, rows: &mut Rows<OhlcvMsg>) {
        if let Some(end) = self.clock.end.take() {
            self.end_interval(end, rows);
        }
    }
}
