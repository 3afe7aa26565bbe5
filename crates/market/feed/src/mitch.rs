//! LSE MITCH to normalised events.
//!
//! A message names its instrument by a number, which only the symbol directory defines, or names an order, whose book completes
//! the event. Times are split: a message carries nanoseconds, and the preceding time message the second of London's day. A
//! modified order keeps its number, and perhaps its place in the queue.
//!
//! The directory has no ticker. The symbol is the ISIN and the currency after a point, `GB00BH4HKS39.GBX`: 16 letters, more than
//! any US feed has room for. So London's books are never combined with those of another market, and London does not contribute to
//! the NBBO of a US symbol. An invalid ISIN or a missing currency makes no symbol: messages with that number change no book.
//!
//! Market orders have no price, and answers to requests for quotes and market makers' firm quotes are not in the order book. Such
//! an order is set aside: its messages change no book, and its executions are trades.
//!
//! An execution at another price states how many shares are displayed afterwards. It becomes a change of the order to the
//! displayed plus the executed shares, followed by the execution.
//!
//! Cost: the message's own cache line, a load from the table of numbers (4 bytes each), and the event; for a number beyond the
//! table a hash lookup.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::hint::select_unpredictable;

use tapeworks_market::event::{Definition, Imbalance, Status, StatusAction};
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Line, Price, Publisher, Side, Symbol};
use tapeworks_session::MitchUnit;
use tapeworks_stage::Sink;
use tapeworks_wire::millennium::mitch::{
    self as wire, AddOrderFlags, BookType, DirectoryStatus, EventCode, Message, OrderDeletedFlags,
    OrderModifiedFlags, Printable, PtModFlags, Side as WireSide, SymbolDirectory, SymbolStatus,
    TradingStatus,
};
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderMessages};
use tapeworks_wire::{Decimal, DecodeError, Nanoseconds};

use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{
    Context, Normaliser, OPERATIONAL, Renumbered, Start, Target, kind_of, sides, with_order,
};
use crate::probe::packet_fits;
use crate::symbols::{NOT_FOUND, SymbolHasher, UNWANTED};
use crate::units::{Aside, SplitTimes};
use tapeworks_time::clock::Zone;

/// A message has an instrument's number, and the directory its ISIN and currency.
pub(crate) const NAMING: Naming = Naming {
    symbol: "isin",
    suffix: Some("currency"),
    suffixes: Suffixes::AsTheyStand,
    number: Some("instrument_id"),
    zero_is_none: false,
    directory: Some("SymbolDirectory"),
    issue_name: None,
};

/// Maximum number of instruments; London has about 20,000. A directory message beyond that is a problem, and its messages have no
/// instrument.
const MOST_INSTRUMENTS: usize = 1 << 20;

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message is the System Event that begins the day (event code `O`).
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::SystemEvent(event)) if event.event_code() == EventCode::StartOfDay)
}

/// Returns the time of a Time message, in nanoseconds since midnight. Other messages have only the nanoseconds within its second.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    let message = message.get(..usize::from(*message.first()?))?;
    match Message::decode(message) {
        Ok(Message::Time(time)) => Some(u64::from(time.seconds().0) * tapeworks_time::Nanos::SECOND),
        _ => None,
    }
}

/// Returns whether a UDP payload is a packet with MITCH messages. The bytes do not identify the venue.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    packet_fits::<MitchUnit>(payload, check)
}

/// Numbers below this are also in a table, so that a load finds their instrument. MITCH does not bound its numbers.
const IN_TABLE: u32 = 1 << 20;

/// The definition of a number.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Debug)]
struct Listing {
    instrument: InstrumentId,
    /// Whether orders came before the directory message, so that the book lacks them.
    is_missed: bool,
    /// Whether the directory gives the number no symbol of its own. Its orders are in no book.
    is_refused: bool,
}

impl Listing {
    const UNKNOWN: Self = Self { instrument: InstrumentId::UNKNOWN, is_missed: false, is_refused: false };

    /// Returns whether its orders are in a book.
    const fn is_in_book(&self) -> bool {
        self.instrument.0 < UNWANTED.0 && !self.is_refused
    }
}

/// Instruments by the venue's numbers.
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Vec<(u32, Listing)>", into = "Vec<(u32, Listing)>")
)]
#[derive(Clone, Default, Debug)]
struct Numbers {
    listings: HashMap<u32, Listing, BuildHasherDefault<SymbolHasher>>,
    /// Slot 0 is for messages without a number. Slot n + 1 has the instrument of number n, if that is below [`IN_TABLE`] and its
    /// orders are in a book. Grows with the greatest number.
    table: Vec<InstrumentId>,
    /// The number of each instrument.
    by_instrument: BTreeMap<InstrumentId, u32>,
}

impl Numbers {
    #[inline]
    fn get(&self, number: u32) -> Listing {
        self.listings.get(&number).copied().unwrap_or(Listing::UNKNOWN)
    }

    /// Returns the instrument of a number, or [`NOT_FOUND`]. For a message without a number: [`InstrumentId::UNKNOWN`], or
    /// [`NOT_FOUND`] while the table is empty.
    #[inline(always)]
    fn in_table(&self, is_number: bool, number: u32) -> InstrumentId {
        let place = select_unpredictable(is_number, number as usize + 1, 0);
        self.table.get(place).copied().unwrap_or(NOT_FOUND)
    }

    /// Returns the instrument of a message whose number, if it has one, is not in the table; `None` if its orders are in no book.
    /// Never inlined: otherwise the compiler checks for each message whether it has a number.
    #[cold]
    #[inline(never)]
    fn beyond_table(&self, is_number: bool, number: u32) -> Option<InstrumentId> {
        if !is_number {
            return Some(InstrumentId::UNKNOWN);
        }
        let listing = self.get(number);
        listing.is_in_book().then_some(listing.instrument)
    }

    /// Updates the table to match a listing.
    fn enter(&mut self, number: u32, listing: Listing) {
        if number >= IN_TABLE {
            return;
        }
        let place = number as usize + 1;
        if place >= self.table.len() && listing.is_in_book() {
            self.table.resize(place + 1, NOT_FOUND);
            self.table[0] = InstrumentId::UNKNOWN;
        }
        if let Some(instrument) = self.table.get_mut(place) {
            *instrument = if listing.is_in_book() { listing.instrument } else { NOT_FOUND };
        }
    }

    /// Returns whether there is room for a number.
    fn takes(&self, number: u32) -> bool {
        self.listings.len() < MOST_INSTRUMENTS || self.listings.contains_key(&number)
    }

    /// Records that an order message came before the directory message.
    #[cold]
    #[inline(never)]
    fn note_unnamed(&mut self, number: u32) {
        if self.takes(number) {
            self.listings.entry(number).or_insert(Listing::UNKNOWN).is_missed = true;
        }
    }

    /// Defines a number. Returns its previous definition.
    fn put(&mut self, number: u32, listing: Listing) -> Listing {
        let before = self.listings.insert(number, listing).unwrap_or(Listing::UNKNOWN);
        if self.by_instrument.get(&before.instrument) == Some(&number) {
            self.by_instrument.remove(&before.instrument);
        }
        if listing.instrument < UNWANTED {
            self.by_instrument.insert(listing.instrument, number);
        }
        self.enter(number, listing);
        before
    }

    fn clear(&mut self) {
        self.listings.clear();
        self.table.clear();
        self.by_instrument.clear();
    }
}

impl From<Vec<(u32, Listing)>> for Numbers {
    fn from(listings: Vec<(u32, Listing)>) -> Self {
        let mut numbers = Self::default();
        for (number, listing) in listings {
            numbers.put(number, listing);
        }
        numbers
    }
}

impl From<Numbers> for Vec<(u32, Listing)> {
    fn from(numbers: Numbers) -> Self {
        let mut listings: Self = numbers.listings.into_iter().collect();
        listings.sort_unstable_by_key(|(number, _)| *number);
        listings
    }
}

/// Translates the messages of one market data group.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct MitchNormaliser {
    publisher: Publisher,
    times: SplitTimes,
    numbers: Numbers,
    /// Orders of unwanted symbols.
    unwanted: Aside,
    /// Orders without a price, or outside the order book.
    elsewhere: Aside,
}

impl Normaliser for MitchNormaliser {
    fn new(start: &Start) -> Self {
        Self {
            publisher: start.publisher,
            times: SplitTimes::new(start, Zone::London),
            numbers: Numbers::default(),
            unwanted: Aside::default(),
            elsewhere: Aside::default(),
        }
    }

    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        let Some(order) = ORDERS.decode(message) else { return false };
        let has_others = !self.unwanted.is_empty() || !self.elsewhere.is_empty();
        if has_others || order.flags & ELSEWHERE[order.action as usize] != 0 {
            return false;
        }
        let Some(time) = self.times.next(order.time, to.context) else { return false };
        // No predictor can predict which messages name their instrument, so the others look up the slot for no number.
        let is_named = matches!(order.action, OrderAction::Add | OrderAction::Delete);
        let number = order.instrument as u32;
        let mut instrument = self.numbers.in_table(is_named, number);
        if instrument == NOT_FOUND {
            match self.numbers.beyond_table(is_named, number) {
                Some(found) => instrument = found,
                None => return false,
            }
        }
        let event = to.context.event(kind_of(order.action), self.publisher, instrument, time);
        let Some(mut event) = with_order(event, &order, &SIDES) else { return false };
        self.times.go_on(to.context);
        let keeps = (order.action == OrderAction::Modify) & OrderModifiedFlags(order.flags).priority_flag();
        event.detail = u8::from(keeps) * Event::KEEPS_PRIORITY;
        to.sink.put(event);
        true
    }

    #[inline]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        let message = Message::decode(message)?;
        self.times.follow(self.publisher, to);
        if let Message::SymbolDirectory(m) = &message {
            return Ok(self.define(m, to));
        }
        self.translate(message, to);
        Ok(None)
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        let listings = &self.numbers.listings;
        listings.len() <= MOST_INSTRUMENTS
            && listings.values().all(|listing| symbols.is_known(listing.instrument))
    }

    fn forget_unnamed(&mut self) {
        self.numbers.listings.values_mut().for_each(|listing| listing.is_missed = false);
    }
}

const SIDES: [Side; 256] = sides(WireSide::BuyOrder.raw(), WireSide::SellOrder.raw());

/// The most frequent messages about orders.
const ORDERS: OrderMessages = {
    const NAMES: OrderFieldNames =
        OrderFieldNames { time: "nanosecond", order_id: "order_id", ..OrderFieldNames::NONE };
    let added = OrderFieldNames {
        instrument: "instrument_id",
        shares: "quantity",
        price: "price",
        side: "side",
        flags: "add_order_flags",
        ..NAMES
    };
    let deleted = OrderFieldNames { instrument: "instrument_id", flags: "order_deleted_flags", ..NAMES };
    let modified = OrderFieldNames {
        other_number: "order_id",
        shares: "new_quantity",
        price: "new_price",
        flags: "order_modified_flags",
        ..NAMES
    };
    let executed = OrderFieldNames { other_number: "trade_match_id", shares: "executed_quantity", ..NAMES };
    OrderMessages::of(&wire::SCHEMA)
        .with(&wire::AddOrder::SCHEMA, OrderAction::Add, added)
        .with(&wire::OrderDeleted::SCHEMA, OrderAction::Delete, deleted)
        .with(&wire::OrderModified::SCHEMA, OrderAction::Modify, modified)
        .with(&wire::OrderExecuted::SCHEMA, OrderAction::Execute, executed)
};

/// By [`OrderAction`]: the flags of a message about an order that is in no book.
static ELSEWHERE: [u8; 6] = {
    let mut flags = [0; 6];
    flags[OrderAction::Add as usize] = AddOrderFlags::MARKET_ORDER.0 | AddOrderFlags::PRIVATE_RFQ.0;
    flags[OrderAction::Delete as usize] = OrderDeletedFlags::FIRM_QUOTE.0;
    flags[OrderAction::Modify as usize] = OrderModifiedFlags::FIRM_QUOTE.0;
    flags
};

/// Returns a price, or `None` if an event cannot hold it.
#[inline]
fn price(price: Decimal<i64, 8>) -> Option<Price> {
    price.to_e9().and_then(Price::from_e9)
}

/// Returns a price of an auction or of a previous day; zero means none.
fn some_price(raw: Decimal<i64, 8>) -> Option<Price> {
    if raw.0 == 0 { None } else { price(raw) }
}

fn side_of(side: WireSide) -> Side {
    match side {
        WireSide::BuyOrder => Side::Bid,
        WireSide::SellOrder => Side::Ask,
        WireSide::Unknown(_) => Side::None,
    }
}

/// Returns the symbol of an ISIN and a currency.
fn symbol_of(isin: &[u8], currency: &[u8]) -> Option<Symbol> {
    let [country @ .., _, _, _, _, _, _, _, _, _, check] = isin else { return None };
    let is_isin = isin.len() == 12
        && isin.iter().all(u8::is_ascii_alphanumeric)
        && country.iter().all(u8::is_ascii_uppercase)
        && check.is_ascii_digit();
    let is_currency = currency.len() == 3 && currency.iter().all(u8::is_ascii_alphabetic);
    if is_isin && is_currency { NAMING.symbol_of(isin, Some(currency)) } else { None }
}

/// Side, size and price of an order.
type Terms = (WireSide, u32, Decimal<i64, 8>);

impl MitchNormaliser {
    #[inline]
    fn event(&self, kind: EventKind, instrument: InstrumentId, at: Nanoseconds, context: &Context) -> Event {
        context.event(kind, self.publisher, instrument, self.times.at(at.0, context))
    }

    /// Emits the event of a message about an instrument, completed by `complete`, unless the instrument is unwanted.
    #[inline]
    fn put<S: Sink<Event>>(
        &mut self,
        kind: EventKind,
        about: (u32, Nanoseconds),
        to: &mut Target<'_, S>,
        complete: impl FnOnce(Event) -> Event,
    ) {
        let instrument = self.numbers.get(about.0).instrument;
        self.put_of(instrument, kind, about, to, complete);
    }

    /// Like [`MitchNormaliser::put`], for a known instrument.
    #[inline]
    fn put_of<S: Sink<Event>>(
        &mut self,
        instrument: InstrumentId,
        kind: EventKind,
        (number, at): (u32, Nanoseconds),
        to: &mut Target<'_, S>,
        complete: impl FnOnce(Event) -> Event,
    ) {
        if instrument >= UNWANTED {
            if instrument == UNWANTED {
                return;
            }
            if kind.is_of_order() {
                self.numbers.note_unnamed(number);
            }
        }
        let event = self.event(kind, instrument, at, to.context);
        to.sink.put(complete(event));
    }

    /// Emits a message that has no meaning here.
    fn put_other<S: Sink<Event>>(&mut self, about: (u32, Nanoseconds), to: &mut Target<'_, S>) {
        self.put(EventKind::Other, about, to, |event| event);
    }

    /// Emits the event of an order that joins a book. `is_elsewhere` means that it is not in the order book.
    #[inline]
    fn add<S: Sink<Event>>(
        &mut self,
        about: (u32, Nanoseconds),
        order_id: u64,
        (side, size, at): Terms,
        is_elsewhere: bool,
        to: &mut Target<'_, S>,
    ) {
        let listing = self.numbers.get(about.0);
        if !self.unwanted.is_empty() {
            self.unwanted.forget(order_id);
        }
        if !self.elsewhere.is_empty() {
            self.elsewhere.forget(order_id);
        }
        if listing.instrument == UNWANTED {
            self.unwanted.put(order_id, size);
        } else if is_elsewhere || listing.is_refused {
            self.elsewhere.put(order_id, size);
            self.put_other(about, to);
        } else {
            self.put_of(listing.instrument, EventKind::Add, about, to, |event| Event {
                order_id,
                side: side_of(side),
                size,
                price: price(at),
                ..event
            });
        }
    }

    /// Emits an event about a resting order, unless the order is of an unwanted symbol. `is_elsewhere` means that the message
    /// marks the order as outside the order book. Such an order yields trades, and events without meaning.
    #[inline]
    fn of_order<S: Sink<Event>>(&mut self, event: Event, is_elsewhere: bool, to: &mut Target<'_, S>) {
        if !self.unwanted.is_empty() && self.unwanted.takes(&event) {
            return;
        }
        let is_aside = !self.elsewhere.is_empty() && self.elsewhere.takes(&event);
        to.sink.put(if is_aside || is_elsewhere { without_book(event) } else { event });
    }

    /// Returns an event about an order, before it is completed.
    #[inline]
    fn order(&self, kind: EventKind, order_id: u64, at: Nanoseconds, context: &Context) -> Event {
        Event { order_id, ..self.event(kind, InstrumentId::UNKNOWN, at, context) }
    }

    #[inline]
    fn translate<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::AddOrder(m) => {
                let flags = m.add_order_flags();
                let is_elsewhere = flags.market_order() || flags.private_rfq();
                let terms = (m.side(), m.quantity(), m.price());
                self.add((m.instrument_id(), m.nanosecond()), m.order_id(), terms, is_elsewhere, to);
            }
            Message::OrderDeleted(m) => {
                let listing = self.numbers.get(m.instrument_id());
                if listing.instrument == InstrumentId::UNKNOWN && !listing.is_refused {
                    self.numbers.note_unnamed(m.instrument_id());
                }
                let event = self.order(EventKind::Delete, m.order_id(), m.nanosecond(), to.context);
                if listing.instrument == UNWANTED {
                    self.unwanted.forget(m.order_id());
                    return;
                }
                let event = Event { instrument: listing.instrument, ..event };
                self.of_order(event, m.order_deleted_flags().firm_quote() || listing.is_refused, to);
            }
            Message::OrderExecuted(m) => {
                let event = self.order(EventKind::Execute, m.order_id(), m.nanosecond(), to.context);
                let (size, aux) = (m.executed_quantity(), m.trade_match_id());
                self.of_order(Event { size, aux, ..event }, false, to);
            }
            Message::OrderModified(m) => {
                let flags = m.order_modified_flags();
                let event = self.order(EventKind::Replace, m.order_id(), m.nanosecond(), to.context);
                let event = Event {
                    aux: m.order_id(),
                    detail: if flags.priority_flag() { Event::KEEPS_PRIORITY } else { 0 },
                    size: m.new_quantity(),
                    price: price(m.new_price()),
                    ..event
                };
                self.of_order(event, flags.firm_quote(), to);
            }
            Message::AddAttributedOrder(m) => {
                let flags = m.add_attributed_order_flags();
                let is_elsewhere = flags.named_market_order() || flags.firm_quote();
                let terms = (m.side(), m.quantity(), m.price());
                self.add((m.instrument_id(), m.nanosecond()), m.order_id(), terms, is_elsewhere, to);
            }
            Message::Time(m) => {
                self.times.begin_second(m.seconds().0, Zone::London, to.context);
                to.sink.put(self.event(EventKind::Other, InstrumentId::UNKNOWN, Nanoseconds(0), to.context));
            }
            other => self.not_an_order(other, to),
        }
    }

    /// Translates a message of a rarer kind.
    #[cold]
    #[inline(never)]
    fn not_an_order<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::OrderExecutedWithPriceSize(m) => {
                let (order_id, executed) = (m.order_id(), m.executed_quantity());
                let mut event = self.order(EventKind::Replace, order_id, m.nanosecond(), to.context);
                event.set_flags(Flags(0));
                let size = executed.saturating_add(m.display_quantity());
                let before = Event { aux: order_id, size, detail: Event::KEEPS_PRIORITY, ..event };
                self.of_order(before, false, to);
                let event = self.order(EventKind::Execute, order_id, m.nanosecond(), to.context);
                let event = Event {
                    size: executed,
                    price: price(m.price()),
                    aux: m.trade_match_id(),
                    detail: match m.printable() {
                        Printable::NonPrintable => Event::NOT_PRINTABLE,
                        Printable::Printable | Printable::Unknown(_) => 0,
                    },
                    ..event
                };
                self.of_order(event, false, to);
            }
            Message::Trade(m) => {
                let terms = (m.executed_quantity(), price(m.price()), m.trade_match_id(), 0);
                self.trade((m.instrument_id(), m.nanosecond()), terms, m.pt_mod_flags(), to);
            }
            Message::AuctionTrade(m) => {
                let terms = (m.quantity(), price(m.price()), m.trade_match_id(), Event::CROSS);
                self.trade((m.instrument_id(), m.nanosecond()), terms, m.pt_mod_flags(), to);
            }
            Message::AuctionInfo(m) => {
                let imbalance = Imbalance {
                    paired: m.paired_quantity(),
                    imbalance: 0,
                    side: Side::None,
                    auction_type: m.auction_type().raw(),
                    variation: b'~',
                    extensions: 0,
                    market_imbalance: None,
                    auction_time: None,
                    reference_price: None,
                    continuous_clearing_price: None,
                    auction_clearing_price: None,
                    indicative_price: some_price(m.price()),
                    upper_collar: None,
                    lower_collar: None,
                };
                let instrument = self.numbers.get(m.instrument_id()).instrument;
                if instrument != UNWANTED {
                    let event = self.event(EventKind::Imbalance, instrument, m.nanosecond(), to.context);
                    event.with_imbalance(imbalance).into_iter().for_each(|event| to.sink.put(event));
                }
            }
            Message::OrderBookClear(m) => {
                let flags = m.order_book_clear_flags();
                let is_elsewhere = flags.firm_quote() || flags.private_rfq();
                let kind = if is_elsewhere { EventKind::Other } else { EventKind::Clear };
                self.put(kind, (m.instrument_id(), m.nanosecond()), to, |event| event);
            }
            Message::SymbolStatus(m) => {
                let about = (m.instrument_id(), m.nanosecond());
                let is_elsewhere = m.symbol_status_flags().firm_quote()
                    || matches!(m.book_type(), BookType::OffBook | BookType::PrivateRfq);
                if is_elsewhere {
                    return self.put_other(about, to);
                }
                let status = status_of(&m);
                self.put(EventKind::Status, about, to, |event| event.with_status(status));
            }
            Message::SystemEvent(m) => self.begin_or_end_day(m.event_code(), m.nanosecond(), to),
            Message::Statistics(m) => self.put_other((m.instrument_id(), m.nanosecond()), to),
            // The book is built from the orders.
            Message::TopOfBook(m) => self.put_other((m.instrument_id(), m.nanosecond()), to),
            // These have already been translated.
            Message::SymbolDirectory(_)
            | Message::Time(_)
            | Message::AddOrder(_)
            | Message::AddAttributedOrder(_)
            | Message::OrderDeleted(_)
            | Message::OrderModified(_)
            | Message::OrderExecuted(_) => {}
        }
    }

    /// Emits the events of a trade that changes no displayed order. A cancelled trade is a break; an amended one is a break and
    /// the corrected trade.
    fn trade<S: Sink<Event>>(
        &mut self,
        about: (u32, Nanoseconds),
        (size, price, aux, detail): (u32, Option<Price>, u64, u8),
        flags: PtModFlags,
        to: &mut Target<'_, S>,
    ) {
        let (is_void, is_amended) = (flags.canc(), flags.amnd());
        if is_void || is_amended {
            self.put(EventKind::TradeBreak, about, to, |mut event| {
                if !is_void {
                    event.set_flags(Flags(0));
                }
                Event { aux, ..event }
            });
        }
        if !is_void {
            self.put(EventKind::Trade, about, to, |event| Event { size, price, aux, detail, ..event });
        }
    }

    /// Begins or ends the day of a group. Its numbers are valid for one day. The venue's other groups continue, so only this
    /// group's books are emptied. The end of a day closes nothing beyond what the symbols' states close.
    fn begin_or_end_day<S: Sink<Event>>(&mut self, code: EventCode, at: Nanoseconds, to: &mut Target<'_, S>) {
        let begins = code == EventCode::StartOfDay && to.context.line != Line::Snapshot;
        let mut instruments = self.numbers.by_instrument.keys().filter(|_| begins).peekable();
        if instruments.peek().is_none() {
            // The message has its sequence number, and there is nothing to clear.
            to.sink.put(self.event(EventKind::Other, InstrumentId::UNKNOWN, at, to.context));
        }
        while let Some(instrument) = instruments.next() {
            let clear = self.event(EventKind::Clear, *instrument, at, to.context);
            let has_more = instruments.peek().is_some();
            to.sink.put(if has_more { clear.with_more_clears() } else { clear });
        }
        if begins {
            self.numbers.clear();
            self.unwanted.clear();
            self.elsewhere.clear();
        }
    }

    /// Defines a number by its directory message.
    #[cold]
    #[inline(never)]
    fn define<S: Sink<Event>>(
        &mut self,
        m: &SymbolDirectory<'_>,
        to: &mut Target<'_, S>,
    ) -> Option<Contradiction> {
        let (number, at) = (m.instrument_id(), m.nanosecond());
        let other = self.event(EventKind::Other, InstrumentId::UNKNOWN, at, to.context);
        if !self.numbers.takes(number) {
            to.sink.put(other);
            return Some(Contradiction::NoRoom { number });
        }
        let sink = &mut *to.sink;
        let symbol = symbol_of(m.isin().trimmed(), m.currency().trimmed());
        let named = to.symbols.resolve_symbol(symbol, self.publisher, |mapping| sink.put(mapping));
        let known = self.numbers.by_instrument.get(&named).copied().filter(|known| *known != number);
        let now = if known.is_some() { InstrumentId::UNKNOWN } else { named };
        let listing = Listing { instrument: now, is_missed: false, is_refused: now == InstrumentId::UNKNOWN };
        let Listing { instrument: before, is_missed, .. } = self.numbers.put(number, listing);
        let numbered = Renumbered { before, now, is_missed };
        if !to.context.renumber(self.publisher, other.ts_event, numbered, sink) {
            if now != UNWANTED {
                sink.put(other);
            }
            let (known, symbol) = (known?, symbol?);
            return Some(Contradiction::OtherNumber { symbol, known, named: number });
        }
        let definition = Definition {
            // London quotes every size.
            round_lot: 1,
            reference_price: some_price(m.previous_close_price()),
            tick: None,
            class: b' ',
            listing: b' ',
            is_test: false,
            is_etp: false,
        };
        let mut event = self.event(EventKind::Definition, now, at, to.context).with_definition(definition);
        let status = match m.symbol_status() {
            DirectoryStatus::Halt => Some(halted(0)),
            // Not a separate operational halt: the next status ends it.
            DirectoryStatus::Suspended | DirectoryStatus::Inactive => Some(halted(OPERATIONAL)),
            DirectoryStatus::Active | DirectoryStatus::Unknown(_) => None,
        };
        if status.is_some() {
            event.set_flags(Flags(0));
        }
        sink.put(event);
        if let Some(status) = status {
            sink.put(self.event(EventKind::Status, now, at, to.context).with_status(status));
        }
        None
    }
}

/// Converts an event about an order that is in no book: an execution becomes a trade, any other change has no meaning.
#[cold]
fn without_book(event: Event) -> Event {
    if event.kind == EventKind::Execute {
        return Event { kind: EventKind::Trade, order_id: 0, ..event };
    }
    let flags = event.flags();
    let nothing = Event::new(EventKind::Other, event.publisher, event.instrument).with_flags(flags);
    let mut nothing = Event {
        ts_event: event.ts_event,
        ts_recv: event.ts_recv,
        channel: event.channel,
        channel_sequence: event.channel_sequence,
        ..nothing
    };
    nothing.set_line(event.line());
    nothing
}

const fn halted(reason: u16) -> Status {
    let no = Some(false);
    Status {
        action: StatusAction::Halt,
        reason,
        is_trading: no,
        is_quoting: no,
        is_short_sell_restricted: None,
    }
}

/// Returns the trading status of an order book state.
fn status_of(m: &SymbolStatus<'_>) -> Status {
    use TradingStatus as State;
    let is = |action, is_trading| Status {
        action,
        reason: 0,
        is_trading,
        is_quoting: is_trading,
        is_short_sell_restricted: None,
    };
    let (no, yes) = (Some(false), Some(true));
    match m.trading_status() {
        State::RegularTradingStartOfTradeReporting | State::Mandatory | State::ClosingPriceCrossing => {
            is(StatusAction::Trading, yes)
        }
        State::Halt => halted(0),
        State::Pause => is(StatusAction::Pause, no),
        State::OpeningFirstAuctionCall | State::PreMandatory => is(StatusAction::PreOpen, no),
        State::ClosingAuctionCall
        | State::AespAuctionCall
        | State::ResumeAuctionCall
        | State::EdspAuctionCall
        | State::PeriodicAuctionCall
        | State::ScheduledLevel1OnlyAuction => is(StatusAction::PreCross, no),
        State::PostClose
        | State::MarketCloseSystemShutdown
        | State::PostMandatory
        | State::EndTradeReporting
        | State::NoActiveSession
        | State::EndOfPostClose => is(StatusAction::Close, no),
        State::Active | State::Unknown(_) => is(StatusAction::None, None),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tapeworks_time::Nanos;
    use tapeworks_wire::millennium::mitch::{
        AddAttributedOrderFields, AddAttributedOrderFlags, AddOrder, AddOrderFields, AddOrderFlags,
        AuctionInfoFields, AuctionTradeFields, AuctionType, CrossType, OrderBookClearFields,
        OrderBookClearFlags, OrderDeleted, OrderDeletedFields, OrderDeletedFlags, OrderExecutedFields,
        OrderExecutedWithPriceSizeFields, OrderModifiedFields, OrderModifiedFlags, SessionChangeReason,
        SubBook, SymbolDirectoryFields, SymbolStatusFields, SymbolStatusFlags, SystemEventFields, TimeFields,
        TopOfBookFields, TradeFields,
    };
    use tapeworks_wire::{Ascii, SecondsSinceMidnight};

    use super::*;
    use crate::symbols::SymbolTable;

    /// 2025-07-14, 08:00 in London, whose clocks are an hour ahead of UTC.
    const OPEN: u64 = 1_752_476_400 * Nanos::SECOND;
    const OPEN_SECOND: u32 = 28_800;

    const SHELL: &[u8; 12] = b"GB00BP6MXD84";
    const BP: &[u8; 12] = b"GB0007980591";

    struct Feed {
        normaliser: MitchNormaliser,
        symbols: SymbolTable,
        sequence: u64,
    }

    impl Feed {
        fn new(wanted: Option<&str>) -> Self {
            let start = Start {
                publisher: Publisher::XLON_MITCH,
                midnight: Nanos(OPEN),
                is_midnight_fixed: false,
                sip_sizes: Default::default(),
            };
            let wanted = wanted.map(|symbol| HashSet::from([Symbol::parse(symbol).unwrap()]));
            let normaliser = MitchNormaliser::new(&start);
            let mut feed = Self { normaliser, symbols: SymbolTable::new(wanted), sequence: 0 };
            feed.take(&time(OPEN_SECOND));
            feed
        }

        /// Sends the next message, received at the open.
        fn take(&mut self, message: &[u8]) -> Vec<Event> {
            self.sequence += 1;
            let (events, contradiction) = self.take_of(Line::A, self.sequence, 0, message);
            assert_eq!(contradiction, None);
            events
        }

        fn take_of(
            &mut self,
            line: Line,
            sequence: u64,
            after_ns: u64,
            message: &[u8],
        ) -> (Vec<Event>, Option<Contradiction>) {
            let context = Context { received: Some(Nanos(OPEN + after_ns)), sequence, channel: 3, line };
            let mut events = Vec::new();
            let mut sink = |event| events.push(event);
            let mut to = Target { context: &context, symbols: &mut self.symbols, sink: &mut sink };
            let contradiction = self.normaliser.message(message, &mut to).unwrap();
            (events, contradiction)
        }

        /// Returns the only event of the next message.
        fn one(&mut self, message: &[u8]) -> Event {
            let events = self.take(message);
            let [event] = &events[..] else { panic!("{events:?}") };
            *event
        }
    }

    fn ns(offset: u64) -> Nanoseconds {
        Nanoseconds(offset)
    }

    fn hundredths(price: i64) -> Decimal<i64, 8> {
        Decimal(price * 1_000_000)
    }

    fn time(seconds: u32) -> [u8; 6] {
        TimeFields { length: 6, seconds: SecondsSinceMidnight(seconds) }.encode()
    }

    fn directory(number: u32, isin: &[u8; 12], currency: &[u8; 3], status: DirectoryStatus) -> [u8; 65] {
        let fields = SymbolDirectoryFields {
            length: 65,
            nanosecond: ns(5),
            instrument_id: number,
            reserved_a: [0],
            reserved_b: [0],
            symbol_status: status,
            isin: Ascii(*isin),
            sedol: Ascii(*b"BP6MXD8     "),
            segment: Ascii(*b"SET1  "),
            underlying: Ascii(*b"      "),
            currency: Ascii(*currency),
            reserved_byte: [0],
            reserved_4: [0; 4],
            previous_close_price: hundredths(261_500),
        };
        fields.encode()
    }

    fn shell(number: u32) -> [u8; 65] {
        directory(number, SHELL, b"GBX", DirectoryStatus::Active)
    }

    fn add(number: u32, order_id: u64, flags: u8) -> [u8; AddOrder::LENGTH] {
        let fields = AddOrderFields {
            length: 44,
            nanosecond: ns(500),
            order_id,
            side: WireSide::BuyOrder,
            quantity: 300,
            instrument_id: number,
            reserved_a: [0],
            reserved_b: [0],
            price: hundredths(261_550),
            add_order_flags: AddOrderFlags(flags),
            reserved_10: [0; 10],
        };
        fields.encode()
    }

    fn firm_quote(number: u32, order_id: u64) -> [u8; 45] {
        let fields = AddAttributedOrderFields {
            length: 45,
            nanosecond: ns(500),
            order_id,
            side: WireSide::SellOrder,
            quantity: 300,
            instrument_id: number,
            reserved_a: [0],
            reserved_b: [0],
            price: hundredths(261_550),
            attribution: Ascii(*b"FIRM       "),
            add_attributed_order_flags: AddAttributedOrderFlags(1 << 5),
        };
        fields.encode()
    }

    fn delete(number: u32, order_id: u64, flags: u8) -> [u8; OrderDeleted::LENGTH] {
        let fields = OrderDeletedFields {
            length: 19,
            nanosecond: ns(800),
            order_id,
            order_deleted_flags: OrderDeletedFlags(flags),
            instrument_id: number,
        };
        fields.encode()
    }

    fn modify(order_id: u64, new_quantity: u32, flags: u8) -> [u8; 27] {
        let fields = OrderModifiedFields {
            length: 27,
            nanosecond: ns(600),
            order_id,
            new_quantity,
            new_price: hundredths(261_400),
            order_modified_flags: OrderModifiedFlags(flags),
        };
        fields.encode()
    }

    fn execution(order_id: u64, executed_quantity: u32) -> [u8; 26] {
        let fields = OrderExecutedFields {
            length: 26,
            nanosecond: ns(1),
            order_id,
            executed_quantity,
            trade_match_id: 77,
        };
        fields.encode()
    }

    fn trade(number: u32, flags: u8) -> [u8; 35] {
        let fields = TradeFields {
            length: 35,
            nanosecond: ns(7),
            executed_quantity: 40,
            instrument_id: number,
            reserved_a: [0],
            reserved_b: [0],
            price: hundredths(261_525),
            trade_match_id: 78,
            cross_type: CrossType::InternalCross,
            sub_book: SubBook::RegularTrades,
            pt_mod_flags: PtModFlags(flags),
        };
        fields.encode()
    }

    fn status(number: u32, state: TradingStatus, book: BookType, flags: u8) -> [u8; 28] {
        let fields = SymbolStatusFields {
            length: 28,
            nanosecond: ns(9),
            instrument_id: number,
            reserved_a: [0],
            reserved_b: [0],
            trading_status: state,
            symbol_status_flags: SymbolStatusFlags(flags),
            reason: Ascii(*b"    "),
            session_change_reason: SessionChangeReason::ScheduledTransition,
            new_end_time: Ascii(*b"        "),
            book_type: book,
        };
        fields.encode()
    }

    fn day(code: EventCode) -> [u8; 7] {
        SystemEventFields { length: 7, nanosecond: ns(3), event_code: code }.encode()
    }

    #[test]
    fn a_number_is_an_isin_with_a_currency_and_a_time_is_a_second_of_londons_day() {
        let mut feed = Feed::new(None);
        let events = feed.take(&shell(133_215));
        let [mapping, definition] = &events[..] else { panic!("{events:?}") };
        assert_eq!(mapping.symbol().unwrap().as_str(), "GB00BP6MXD84.GBX");
        let said = definition.definition().unwrap();
        assert_eq!((said.round_lot, said.reference_price), (1, Price::from_e9(2_615_000_000_000)));
        assert_eq!(definition.ts_event, Nanos(OPEN + 5));
        let added = feed.one(&add(133_215, 7, 0));
        assert_eq!(
            (added.kind, added.instrument, added.publisher),
            (EventKind::Add, mapping.instrument, Publisher::XLON_MITCH)
        );
        assert_eq!((added.ts_event, added.order_id, added.size), (Nanos(OPEN + 500), 7, 300));
        assert_eq!((added.side, added.price), (Side::Bid, Price::from_e9(2_615_500_000_000)));
        // The order's book knows the instrument.
        let executed = feed.one(&execution(7, 100));
        assert_eq!((executed.kind, executed.instrument), (EventKind::Execute, InstrumentId::UNKNOWN));
        assert_eq!((executed.order_id, executed.size, executed.aux), (7, 100, 77));
        assert_eq!(feed.one(&time(OPEN_SECOND + 1)).ts_event, Nanos(OPEN + Nanos::SECOND));
        assert_eq!(feed.one(&delete(133_215, 7, 0)).ts_event, Nanos(OPEN + Nanos::SECOND + 800));
    }

    #[test]
    fn an_isin_or_currency_that_is_none_gives_no_symbol() {
        let mut feed = Feed::new(None);
        let wrong: [(&[u8; 12], &[u8; 3]); 5] = [
            (b"AAPL        ", b"GBX"),
            (b"GB00BP6MXD8A", b"GBX"),
            (b"0B00BP6MXD84", b"GBX"),
            (b"GB00BP6MXD84", b"   "),
            (b"GB00BP6 XD84", b"GBX"),
        ];
        for (isin, currency) in wrong {
            let event = feed.one(&directory(5, isin, currency, DirectoryStatus::Active));
            assert_eq!((event.kind, event.instrument), (EventKind::Other, InstrumentId::UNKNOWN));
            assert_eq!(symbol_of(isin, currency), None);
        }
        assert_eq!((feed.symbols.instruments().len(), feed.symbols.unreadable()), (0, 5));
        // Its orders change no book and contradict none.
        assert_eq!(feed.one(&add(5, 7, 0)).kind, EventKind::Other);
        assert_eq!(feed.one(&execution(7, 100)).kind, EventKind::Trade);
        assert_eq!(feed.one(&delete(5, 7, 0)).kind, EventKind::Other);
        assert!(feed.normaliser.elsewhere.is_empty());
    }

    #[test]
    fn a_symbol_has_one_number() {
        let mut feed = Feed::new(None);
        feed.take(&shell(5));
        let (events, contradiction) = feed.take_of(Line::A, 3, 0, &shell(6));
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::Other);
        let symbol = Symbol::parse("GB00BP6MXD84.GBX").unwrap();
        assert_eq!(contradiction, Some(Contradiction::OtherNumber { symbol, known: 5, named: 6 }));
        let text = contradiction.unwrap().to_string();
        assert_eq!(text, "'GB00BP6MXD84.GBX' has instrument number 5, and the message gives it 6");
        feed.sequence = 3;
        assert_eq!(feed.one(&add(6, 7, 0)).kind, EventKind::Other);
        assert_eq!(feed.one(&add(5, 8, 0)).kind, EventKind::Add);
        // The first number becomes another symbol's, so the second may have this one.
        let events = feed.take(&directory(5, BP, b"GBX", DirectoryStatus::Active));
        let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
        use EventKind::{Clear, Definition, Gap, SymbolMapping};
        assert_eq!(kinds, [SymbolMapping, Clear, Gap, Gap, Definition]);
        assert_eq!(feed.one(&shell(6)).kind, EventKind::Definition);
        assert_eq!(feed.one(&add(6, 9, 0)).instrument, InstrumentId(0));
    }

    #[test]
    fn a_number_has_its_instrument_the_quick_way_within_the_table_and_beyond() {
        let quick = |feed: &mut Feed, message: &[u8]| {
            feed.sequence += 1;
            let (sequence, received) = (feed.sequence, Some(Nanos(OPEN)));
            let context = Context { received, sequence, channel: 3, line: Line::A };
            let mut found = Vec::new();
            let mut sink = |event: Event| found.push(event.instrument);
            let mut to = Target { context: &context, symbols: &mut feed.symbols, sink: &mut sink };
            feed.normaliser.frequent(message, &mut to).then_some(found)
        };
        for number in [0, IN_TABLE - 1, IN_TABLE, u32::MAX] {
            let mut feed = Feed::new(None);
            let shell = feed.take(&shell(number))[0].instrument;
            assert_eq!(quick(&mut feed, &add(number, 7, 0)), Some(vec![shell]), "{number}");
            assert_eq!(quick(&mut feed, &modify(7, 200, 0)), Some(vec![InstrumentId::UNKNOWN]));
            assert_eq!(quick(&mut feed, &add(number ^ 1, 8, 0)), None);
            feed.sequence -= 1;
            // The number becomes another symbol's, then no symbol's.
            let bp = feed.take(&directory(number, BP, b"GBX", DirectoryStatus::Active))[0].instrument;
            assert_ne!(bp, shell);
            assert_eq!(quick(&mut feed, &add(number, 9, 0)), Some(vec![bp]));
            feed.take(&directory(number, BP, b"   ", DirectoryStatus::Active));
            assert_eq!(quick(&mut feed, &add(number, 10, 0)), None);
            feed.sequence -= 1;
            // A new day has new numbers.
            feed.take(&directory(number, BP, b"GBX", DirectoryStatus::Active));
            feed.take(&day(EventCode::StartOfDay));
            assert_eq!(quick(&mut feed, &add(number, 11, 0)), None);
        }
    }

    #[test]
    fn a_number_for_which_there_is_no_room_is_a_problem() {
        let mut feed = Feed::new(None);
        (0..=MOST_INSTRUMENTS as u32).for_each(|number| feed.normaliser.numbers.note_unnamed(number));
        assert_eq!(feed.normaliser.numbers.listings.len(), MOST_INSTRUMENTS);
        let (events, contradiction) = feed.take_of(Line::A, 2, 0, &shell(u32::MAX));
        assert_eq!(contradiction, Some(Contradiction::NoRoom { number: u32::MAX }));
        assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Other]);
        // An existing number can be defined again.
        assert_eq!(feed.take_of(Line::A, 3, 0, &shell(5)).1, None);
    }

    #[test]
    fn orders_before_the_directory_put_its_book_in_doubt() {
        let mut feed = Feed::new(None);
        let added = feed.one(&add(5, 7, 0));
        assert_eq!((added.kind, added.instrument), (EventKind::Add, InstrumentId::UNKNOWN));
        let events = feed.take(&shell(5));
        let [_, doubt, definition] = &events[..] else { panic!("{events:?}") };
        assert!(doubt.is_contradiction() && doubt.instrument == definition.instrument);
    }

    #[test]
    fn a_group_that_begins_with_a_later_message_lacks_orders() {
        let mut feed = Feed::new(None);
        feed.normaliser = MitchNormaliser::new(&Start {
            publisher: Publisher::XLON_MITCH,
            midnight: Nanos(OPEN),
            is_midnight_fixed: false,
            sip_sizes: Default::default(),
        });
        let (events, _) = feed.take_of(Line::A, 500, 0, &shell(5));
        assert_eq!((events[0].kind, events[0].instrument), (EventKind::Gap, InstrumentId::ALL));
    }

    #[test]
    fn a_modified_order_keeps_its_number_and_its_place_if_the_flag_says_so() {
        let mut feed = Feed::new(None);
        feed.take(&shell(5));
        feed.take(&add(5, 7, 0));
        for (flags, detail) in [(0, 0), (1, Event::KEEPS_PRIORITY)] {
            let event = feed.one(&modify(7, 200, flags));
            assert_eq!((event.kind, event.order_id, event.aux), (EventKind::Replace, 7, 7));
            assert_eq!((event.size, event.price), (200, Price::from_e9(2_614_000_000_000)));
            assert_eq!(event.detail, detail);
        }
    }

    #[test]
    fn an_execution_at_another_price_sets_the_shares_that_are_displayed() {
        let mut feed = Feed::new(None);
        let message = OrderExecutedWithPriceSizeFields {
            length: 39,
            nanosecond: ns(5),
            order_id: 7,
            executed_quantity: 100,
            display_quantity: 50,
            trade_match_id: 9,
            printable: Printable::NonPrintable,
            price: Decimal(1_234_500_000),
        };
        let events = feed.take(&message.encode());
        let [before, execution] = &events[..] else { panic!("{events:?}") };
        assert_eq!((before.kind, before.order_id, before.aux), (EventKind::Replace, 7, 7));
        assert_eq!((before.size, before.price, before.detail), (150, None, Event::KEEPS_PRIORITY));
        assert!(!before.flags().contains(Flags::LAST) && execution.flags().contains(Flags::LAST));
        assert_eq!((execution.kind, execution.size, execution.aux), (EventKind::Execute, 100, 9));
        assert_eq!(execution.price, Price::from_e9(12_345_000_000));
        assert_eq!(execution.detail, Event::NOT_PRINTABLE);
    }

    #[test]
    fn orders_that_are_not_in_the_order_book_change_no_book() {
        let mut feed = Feed::new(None);
        feed.take(&shell(5));
        // A market order, an answer to a request for quotes, a firm quote.
        for (id, message) in
            [(7, add(5, 7, 1 << 4).to_vec()), (8, add(5, 8, 1 << 6).to_vec()), (9, firm_quote(5, 9).to_vec())]
        {
            let event = feed.one(&message);
            assert_eq!((event.kind, event.order_id, event.price), (EventKind::Other, 0, None));
            assert_eq!((event.instrument, event.ts_event), (InstrumentId(0), Nanos(OPEN + 500)));
            assert_eq!(feed.one(&modify(id, 200, 0)).kind, EventKind::Other);
            let executed = feed.one(&execution(id, 100));
            assert_eq!((executed.kind, executed.order_id, executed.aux), (EventKind::Trade, 0, 77));
            assert!(feed.normaliser.elsewhere.has(id));
            assert_eq!(feed.one(&delete(5, id, 0)).kind, EventKind::Other);
            assert!(!feed.normaliser.elsewhere.has(id));
        }
        // For an order from before the start, the flag marks it.
        assert_eq!(feed.one(&delete(5, 10, 1 << 5)).kind, EventKind::Other);
        assert_eq!(feed.one(&modify(10, 1, 1 << 5)).kind, EventKind::Other);
        // One of their numbers may be reused for an order of the book.
        feed.take(&firm_quote(5, 9));
        assert_eq!(feed.one(&add(5, 9, 0)).kind, EventKind::Add);
        assert_eq!(feed.one(&delete(5, 9, 0)).kind, EventKind::Delete);
        for (flags, kind) in [(0, EventKind::Clear), (1 << 5, EventKind::Other), (1 << 6, EventKind::Other)] {
            let fields = OrderBookClearFields {
                length: 13,
                nanosecond: ns(1),
                instrument_id: 5,
                reserved_a: [0],
                reserved_b: [0],
                order_book_clear_flags: OrderBookClearFlags(flags),
            };
            assert_eq!(feed.one(&fields.encode()).kind, kind);
        }
        let top = TopOfBookFields {
            length: 34,
            nanosecond: ns(1),
            instrument_id: 5,
            buy_limit_price: Decimal(1),
            buy_limit_size: 1,
            sell_limit_price: Decimal(2),
            sell_limit_size: 1,
        };
        assert_eq!(feed.one(&top.encode()).kind, EventKind::Other);
    }

    #[test]
    fn orders_of_unwanted_symbols_are_left_out_to_their_end() {
        let mut feed = Feed::new(Some("GB00BP6MXD84.GBX"));
        assert_eq!(feed.take(&directory(4, BP, b"GBX", DirectoryStatus::Active)), []);
        feed.take(&shell(5));
        assert_eq!(feed.take(&add(4, 7, 0)), []);
        assert_eq!(feed.take(&add(5, 8, 0)).len(), 1);
        for (shares, is_left) in [(100, true), (200, false)] {
            assert_eq!(feed.take(&execution(7, shares)), []);
            assert_eq!(feed.normaliser.unwanted.has(7), is_left);
        }
        assert_eq!(feed.take(&add(4, 9, 0)), []);
        assert_eq!(feed.take(&trade(4, 0)), []);
        assert_eq!(feed.take(&delete(4, 9, 0)), []);
        assert!(feed.normaliser.unwanted.is_empty());
        assert_eq!(feed.take(&execution(8, 100)).len(), 1);
    }

    #[test]
    fn a_trade_that_is_void_is_a_break_and_an_amended_one_a_break_and_a_trade() {
        let mut feed = Feed::new(None);
        feed.take(&shell(5));
        let event = feed.one(&trade(5, 0));
        assert_eq!((event.kind, event.size, event.aux), (EventKind::Trade, 40, 78));
        assert_eq!(event.price, Price::from_e9(2_615_250_000_000));
        let event = feed.one(&trade(5, 1));
        assert_eq!((event.kind, event.aux), (EventKind::TradeBreak, 78));
        let events = feed.take(&trade(5, 2));
        let [broken, again] = &events[..] else { panic!("{events:?}") };
        assert_eq!((broken.kind, again.kind), (EventKind::TradeBreak, EventKind::Trade));
        assert!(!broken.flags().contains(Flags::LAST) && again.flags().contains(Flags::LAST));
        let auction = AuctionTradeFields {
            length: 34,
            nanosecond: ns(7),
            quantity: 4_000,
            instrument_id: 5,
            reserved_a: [0],
            reserved_b: [0],
            price: hundredths(261_500),
            trade_match_id: 79,
            auction_type: AuctionType::ClosingAuction,
            pt_mod_flags: PtModFlags(0),
        };
        let event = feed.one(&auction.encode());
        assert_eq!((event.kind, event.size, event.detail), (EventKind::Trade, 4_000, Event::CROSS));
        let info = AuctionInfoFields {
            length: 30,
            nanosecond: ns(7),
            paired_quantity: 900,
            reserved_4: [0; 4],
            reserved_1: [0],
            instrument_id: 5,
            reserved_a: [0],
            reserved_b: [0],
            price: hundredths(261_600),
            auction_type: AuctionType::OpeningAuction,
        };
        let events = feed.take(&info.encode());
        let [first, second] = &events[..] else { panic!("{events:?}") };
        let imbalance = first.imbalance(second).unwrap();
        assert_eq!((imbalance.paired, imbalance.auction_type), (900, b'O'));
        assert_eq!(imbalance.indicative_price, Price::from_e9(2_616_000_000_000));
    }

    #[test]
    fn a_state_of_the_order_book_is_one_of_trading_and_those_of_other_books_are_not() {
        use TradingStatus as State;
        let mut feed = Feed::new(None);
        feed.take(&shell(5));
        for (state, action, trades) in [
            (State::RegularTradingStartOfTradeReporting, StatusAction::Trading, Some(true)),
            (State::Halt, StatusAction::Halt, Some(false)),
            (State::Pause, StatusAction::Pause, Some(false)),
            (State::OpeningFirstAuctionCall, StatusAction::PreOpen, Some(false)),
            (State::ClosingAuctionCall, StatusAction::PreCross, Some(false)),
            (State::EndOfPostClose, StatusAction::Close, Some(false)),
            (State::Unknown(b'?'), StatusAction::None, None),
        ] {
            let said = feed.one(&status(5, state, BookType::OnBook, 0)).status().unwrap();
            assert_eq!((said.action, said.is_trading), (action, trades), "{state:?}");
        }
        for (book, flags) in [(BookType::OffBook, 0), (BookType::PrivateRfq, 0), (BookType::OnBook, 1 << 5)] {
            assert_eq!(feed.one(&status(5, State::Halt, book, flags)).kind, EventKind::Other);
        }
        let events = feed.take(&directory(5, SHELL, b"GBX", DirectoryStatus::Suspended));
        let [definition, halt] = &events[..] else { panic!("{events:?}") };
        assert!(!definition.flags().contains(Flags::LAST));
        assert_eq!(halt.status().unwrap().is_trading, Some(false));
    }

    #[test]
    fn the_start_of_a_groups_day_clears_the_books_of_its_instruments() {
        let mut feed = Feed::new(None);
        // Another group's instrument.
        feed.symbols.resolve(*b"ZVZZT   ", Publisher::XLON_MITCH, |_| {});
        feed.take(&shell(5));
        feed.take(&directory(4, BP, b"GBX", DirectoryStatus::Active));
        feed.take(&firm_quote(5, 9));
        assert_eq!(feed.one(&day(EventCode::EndOfDay)).kind, EventKind::Other);
        let events = feed.take(&day(EventCode::StartOfDay));
        let [first, second] = &events[..] else { panic!("{events:?}") };
        assert_eq!(
            [first, second].map(|event| (event.kind, event.instrument.0)),
            [(EventKind::Clear, 1), (EventKind::Clear, 2)]
        );
        assert!(first.has_more_clears() && !second.has_more_clears());
        assert!(feed.normaliser.elsewhere.is_empty());
        // The numbers are those of the new day.
        assert_eq!(feed.one(&add(5, 1, 0)).instrument, InstrumentId::UNKNOWN);
        assert_eq!(feed.one(&day(EventCode::StartOfDay)).kind, EventKind::Other);
    }

    #[test]
    fn packets_are_of_mitch_only_where_a_group_says_so() {
        let message = delete(1, 2, 0);
        let mut packet = vec![27, 0, 1, b'1', 5, 0, 0, 0];
        packet.extend_from_slice(&message);
        assert!(recognise(&packet) && !crate::pitch::recognise(&packet));
        let of = |payload: &[u8], destination: &str| {
            crate::recognise::udp_payload(payload, destination.parse().unwrap())
                .map(|found| found.application)
        };
        assert_eq!(of(&packet, "239.192.150.1:30001"), Some(crate::Application::LseMitch119));
        // A London packet in a Cboe group is not recognised as Cboe, nor a Cboe packet in London's group as London.
        assert_eq!(of(&packet, "239.192.130.2:30101"), None);
        assert_eq!(of(&packet, "224.0.62.2:30501"), None);
        let mut cboes = vec![22, 0, 1, 1, 5, 0, 0, 0, 14, 0x29];
        cboes.resize(22, 0);
        assert!(crate::pitch::recognise(&cboes) && !recognise(&cboes));
        assert_eq!(of(&cboes, "239.192.150.1:30001"), None);
        // A heartbeat is recognised only by its group.
        let heartbeat = [8, 0, 0, b'1', 9, 0, 0, 0];
        assert!(recognise(&heartbeat) && crate::pitch::recognise(&heartbeat));
        assert_eq!(of(&heartbeat, "224.0.62.2:30501"), None);
        assert!(!recognise(&[9, 0, 0, b'1', 9, 0, 0, 0]));
    }

    /// A London symbol has 16 letters: an ISIN, a point, a currency.
    #[test]
    fn no_other_feed_has_room_for_a_symbol_of_london() {
        for feed in crate::FEEDS {
            let width = |name| {
                let fields = feed.schema.messages.iter().flat_map(|message| message.fields);
                fields.filter(|field| field.name == name).map(|field| field.length).max().unwrap_or_default()
            };
            let longest =
                width(feed.naming.symbol) + feed.naming.suffix.map_or(0, |suffix| 1 + width(suffix));
            let is_londons = feed.application == crate::Application::LseMitch119;
            assert_eq!(longest >= 16, is_londons, "{}: {longest}", feed.name);
        }
    }

    #[test]
    fn every_message_gives_events_of_which_the_last_is_marked() {
        use tapeworks_wire::millennium::mitch::SCHEMA;
        use tapeworks_wire::schema::{SplitMix64, arbitrary};
        let (mut feed, mut random) = (Feed::new(None), SplitMix64::new(0x10d0));
        for sequence in 2..20_000 {
            let place = random.below(SCHEMA.messages.len() as u64) as usize;
            let mut message = Vec::new();
            arbitrary(&SCHEMA, &SCHEMA.messages[place], &mut random, &mut message);
            let (events, _) = feed.take_of(Line::A, sequence, 0, &message);
            let last = events.last().unwrap_or_else(|| panic!("{message:02x?} gives none"));
            assert!(last.flags().contains(Flags::LAST), "{events:?}");
            // The second half of an imbalance has no number.
            let is_numbered = |event: &&Event| event.kind != EventKind::ImbalancePrices;
            assert!(events.iter().filter(is_numbered).all(|event| event.channel_sequence == sequence));
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn the_numbers_are_restored_from_a_checkpoint() {
        let mut feed = Feed::new(None);
        feed.take(&shell(5));
        feed.take(&add(9, 1, 0));
        let saved: Vec<(u32, Listing)> = feed.normaliser.numbers.clone().into();
        assert_eq!(saved.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [5, 9]);
        let restored = Numbers::from(saved);
        assert_eq!(restored.by_instrument, feed.normaliser.numbers.by_instrument);
        assert_eq!(restored.table, feed.normaliser.numbers.table);
        assert!(restored.get(9).is_missed && restored.get(5).instrument == InstrumentId(0));
        assert!(feed.normaliser.is_sound(&feed.symbols));
        assert!(!feed.normaliser.is_sound(&SymbolTable::new(None)));
        feed.normaliser.forget_unnamed();
        assert!(!feed.normaliser.numbers.get(9).is_missed);
    }
}
