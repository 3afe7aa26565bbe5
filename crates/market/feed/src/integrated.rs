//! NYSE Integrated (Pillar) to normalised events.
//!
//! A message names its instrument by a symbol index of the day, which only the symbol index mapping defines. The mapping also
//! states how many decimal places the symbol's prices have, and which matching engine it trades on. Times are split: a message
//! carries nanoseconds, and the last time reference of its matching engine the second. A modified order keeps its number, and
//! perhaps its place in the queue.
//!
//! NYSE writes suffixes in the CMS convention, after a space. They are normalised to the spelling of the other venues: `BRK A`
//! becomes `BRK.A`, `XYZ PRA` becomes `XYZ-A` ([`symbology`](tapeworks_market::symbology)).
//!
//! A snapshot of refreshes has a separate number for each symbol: a header with that number, then the symbol's mapping, state and
//! orders. The symbol's book already includes messages up to that number. When they arrive they change nothing, except that an
//! execution is still a trade. See [`live`](crate::live) for where such a snapshot ends.
//!
//! The header does not identify the venue: the channel's publisher is the user's choice, or NYSE.
//!
//! Cost: the message's own cache line, a load from the table of indices (16 bytes each), a compare for refreshes, and the event.

use std::collections::BTreeMap;
use std::hint::select_unpredictable;

use tapeworks_market::event::{Definition, Imbalance, Status, StatusAction};
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Line, Price, Publisher, Side};
use tapeworks_session::Pillar;
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::nyse::integrated::{
    self as wire, ExtendedHours, HaltCondition, ImbalanceSide, MarketState, Message, PrintableFlag,
    SaleCondition, SecurityStatusCode, SecurityType, Settlement, ShortSaleRestriction, Side as WireSide,
    SymbolIndexMapping, TradeThroughExemption,
};
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderFields, OrderMessages};
use tapeworks_wire::{DecodeError, Nanoseconds, SecondsSinceEpoch};

use crate::continuity::Continuity;
use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{
    Context, Normaliser, OPERATIONAL, REGULATORY, Renumbered, Start, Target, kind_of, sides, with_order,
};
use crate::probe::packet_fits;
use crate::symbols::UNWANTED;
use tapeworks_time::clock;

/// A message has a symbol index, and the mapping its symbol.
pub(crate) const NAMING: Naming = Naming {
    symbol: "symbol",
    suffix: None,
    suffixes: Suffixes::CmsBehindSpace,
    number: Some("symbol_index"),
    zero_is_none: true,
    directory: Some("SymbolIndexMapping"),
    issue_name: None,
};

/// Maximum number of indices; NYSE has about 12,000 symbols. A mapping of a greater index is a problem, and its messages have no
/// instrument.
const MOST_INDICES: usize = 1 << 20;

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message resets the sequence number.
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::SequenceNumberReset(_)))
}

/// Returns whether a UDP payload is a Pillar packet with messages of the Integrated feed. The bytes do not identify the venue.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    packet_fits::<Pillar>(payload, check)
}

/// Returns the sale conditions of a message that has them.
macro_rules! conditions_of {
    ($m:ident) => {
        ($m.trade_condition_1(), $m.trade_condition_2(), $m.trade_condition_3(), $m.trade_condition_4())
    };
}

const SIDES: [Side; 256] = sides(WireSide::Buy.raw(), WireSide::Sell.raw());

/// The messages about orders.
const ORDERS: OrderMessages = {
    const NAMES: OrderFieldNames = OrderFieldNames {
        instrument: "symbol_index",
        time: "source_time_ns",
        order_id: "order_id",
        ..OrderFieldNames::NONE
    };
    const TERMS: OrderFieldNames = OrderFieldNames { shares: "volume", price: "price", ..NAMES };
    let added = OrderFieldNames { side: "side", ..TERMS };
    let modified = OrderFieldNames { other_number: "order_id", flags: "position_change", ..TERMS };
    let executed = OrderFieldNames { other_number: "trade_id", flags: "printable_flag", ..TERMS };
    let replaced = OrderFieldNames { other_number: "new_order_id", ..TERMS };
    OrderMessages::of(&wire::SCHEMA)
        .with(&wire::AddOrder::SCHEMA, OrderAction::Add, added)
        .with(&wire::ModifyOrder::SCHEMA, OrderAction::Modify, modified)
        .with(&wire::DeleteOrder::SCHEMA, OrderAction::Delete, NAMES)
        .with(&wire::OrderExecution::SCHEMA, OrderAction::Execute, executed)
        .with(&wire::ReplaceOrder::SCHEMA, OrderAction::Replace, replaced)
};

/// The definition of a symbol index.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Debug)]
struct Listing {
    instrument: InstrumentId,
    /// One unit of its prices in 1e-9; 0 if it is unknown or finer than that.
    unit: u32,
    /// Its matching engine.
    system: u8,
    /// Whether orders came before the mapping, so that the book lacks them.
    is_missed: bool,
    /// The number of the last message that a refresh of the symbol includes; 0 if there was none.
    refreshed: u32,
}

impl Listing {
    const UNKNOWN: Self =
        Self { instrument: InstrumentId::UNKNOWN, unit: 0, system: 0, is_missed: false, refreshed: 0 };

    /// Returns a price of the symbol.
    #[inline]
    fn price(&self, raw: impl Into<i64>) -> Option<Price> {
        let e9 = raw.into().checked_mul(i64::from(self.unit)).filter(|_| self.unit != 0)?;
        Price::from_e9(e9)
    }

    /// Returns a price; NYSE represents "no price" as zero.
    fn some_price(&self, raw: impl Into<i64>) -> Option<Price> {
        let raw = raw.into();
        if raw == 0 { None } else { self.price(raw) }
    }
}

/// Returns the unit of prices with this many decimal places, in 1e-9.
fn unit_of(places: u8) -> u32 {
    9u32.checked_sub(u32::from(places)).map_or(0, |more| 10u32.pow(more))
}

/// The time in a message.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// Nanoseconds within a second that an earlier message gave.
    Offset(Nanoseconds),
    /// The complete time.
    Whole(Nanos),
}

impl From<Nanoseconds> for Time {
    #[inline]
    fn from(offset: Nanoseconds) -> Self {
        Self::Offset(offset)
    }
}

impl From<(SecondsSinceEpoch, Nanoseconds)> for Time {
    fn from((second, offset): (SecondsSinceEpoch, Nanoseconds)) -> Self {
        Self::Whole(Nanos(start_of(second).0.saturating_add(offset.0)))
    }
}

impl Time {
    /// Returns the time of a message that has none.
    fn received(context: &Context) -> Self {
        Self::Whole(context.received.unwrap_or_default())
    }
}

fn start_of(second: SecondsSinceEpoch) -> Nanos {
    Nanos(u64::from(second.0) * Nanos::SECOND)
}

/// Translates the messages of one channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct IntegratedNormaliser {
    publisher: Publisher,
    /// By symbol index. Grows with the greatest index.
    listings: Vec<Listing>,
    /// By symbol index: the number and price of the last cross.
    crosses: BTreeMap<u32, (u32, i32)>,
    /// By matching engine: the second of its messages, in ns since the epoch; `None` before its first time reference.
    seconds: Vec<Option<Nanos>>,
    continuity: Continuity,
    /// The last midnight in New York that was computed.
    midnight: Nanos,
    /// The current refresh header of a snapshot: its number, and the number of the snapshot's messages.
    refresh: Option<(u32, u64)>,
    /// The highest number of a refresh: no book includes later messages yet. 0 without refreshes.
    refreshed: u64,
}

impl Normaliser for IntegratedNormaliser {
    fn new(start: &Start) -> Self {
        Self {
            publisher: start.publisher,
            listings: Vec::new(),
            crosses: BTreeMap::new(),
            seconds: Vec::new(),
            continuity: Continuity::default(),
            midnight: start.midnight,
            refresh: None,
            refreshed: 0,
        }
    }

    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        let Some(order) = ORDERS.decode(message) else { return false };
        let listing = self.listing(order.instrument as u32);
        let Some(second) = self.second(listing.system) else { return false };
        let is_refreshed = to.context.sequence <= self.refreshed;
        if listing.instrument >= UNWANTED
            || listing.unit == 0
            || is_refreshed
            || !is_usual(order.action == OrderAction::Execute, message)
            || !self.continuity.goes_on_at(to.context)
        {
            return false;
        }
        let time = Nanos(second.0.wrapping_add(order.time));
        let event = to.context.event(kind_of(order.action), self.publisher, listing.instrument, time);
        // The price is signed.
        let (price, price_unit) = (i64::from(order.price as i32) as u64, order.price_unit * listing.unit);
        let order = OrderFields { price, price_unit, ..order };
        let Some(mut event) = with_order(event, &order, &SIDES) else { return false };
        self.continuity.go_on(to.context);
        event.detail = match (order.action, order.flags) {
            (OrderAction::Execute, 0) => Event::NOT_PRINTABLE | Event::REGULAR_HOURS,
            (OrderAction::Execute, _) => Event::REGULAR_HOURS,
            (OrderAction::Modify, 0) => Event::KEEPS_PRIORITY,
            _ => 0,
        };
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
        if self.continuity.breaks_at(to.context) {
            // The second may have changed.
            self.seconds.clear();
            self.refresh = None;
        }
        if let Message::SymbolIndexMapping(m) = &message
            && m.symbol_index() as usize >= MOST_INDICES
        {
            self.no_symbol(Time::received(to.context), to);
            return Ok(Some(Contradiction::NoRoom { number: m.symbol_index() }));
        }
        if to.context.sequence <= self.refreshed && self.is_in_book(&message, to.context) {
            self.put_old(message, to);
        } else {
            self.translate(message, to);
        }
        Ok(None)
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        let has_room = self.listings.len() <= MOST_INDICES && self.seconds.len() <= 1 + usize::from(u8::MAX);
        has_room && self.listings.iter().all(|listing| symbols.is_known(listing.instrument))
    }

    fn snapshot_reaches(&self) -> u64 {
        self.refreshed
    }

    fn reach_of(&self, message: &[u8]) -> u64 {
        match Message::decode(message) {
            Ok(Message::RefreshHeader(m)) => u64::from(m.last_sequence()),
            _ => 0,
        }
    }

    fn forget_unnamed(&mut self) {
        // A snapshot begins: the numbers of an earlier one no longer apply.
        self.refreshed = 0;
        for listing in &mut self.listings {
            (listing.is_missed, listing.refreshed) = (false, 0);
        }
    }
}

fn side_of(side: WireSide) -> Side {
    match side {
        WireSide::Buy => Side::Bid,
        WireSide::Sell => Side::Ask,
        WireSide::Unknown(_) => Side::None,
    }
}

/// Returns whether the bytes of the sale conditions are printable. In XDP 2.1, whose messages have the same length, they are an
/// execution's number in NYSE's database, whose upper bytes are not.
#[inline(always)]
fn are_letters(conditions: [u8; 4]) -> bool {
    conditions.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// Returns the flags of what a trade counts for, from its printable flag and its sale conditions. The odd-lot condition is
/// ignored because the size already shows it.
fn detail_of(
    printable: PrintableFlag,
    (settlement, exemption, hours, sale): (Settlement, TradeThroughExemption, ExtendedHours, SaleCondition),
) -> u8 {
    let unprinted = match printable {
        PrintableFlag::NotPrintedToSip => Event::NOT_PRINTABLE,
        PrintableFlag::PrintedToSip | PrintableFlag::Unknown(_) => 0,
    };
    if !are_letters([settlement.raw(), exemption.raw(), hours.raw(), sale.raw()]) {
        return unprinted;
    }
    let is_priced = settlement != Settlement::Cash
        && exemption != TradeThroughExemption::QualifiedContingentTrade
        && sale != SaleCondition::ContingentTrade
        && hours != ExtendedHours::ExtendedHoursSoldOutOfSequence;
    let mut detail = unprinted;
    if !is_priced {
        detail |= Event::NOT_HIGH_LOW | Event::NOT_LAST;
    }
    detail
        | match hours {
            ExtendedHours::None => Event::REGULAR_HOURS,
            ExtendedHours::Sold => Event::REGULAR_HOURS | Event::NOT_LAST,
            ExtendedHours::ExtendedHoursTrade | ExtendedHours::ExtendedHoursSoldOutOfSequence => {
                Event::EXTENDED_HOURS
            }
            ExtendedHours::Unknown(_) => 0,
        }
}

/// Offset of the sale conditions in an execution.
const CONDITIONS: usize = 38;

/// Returns whether an execution has no sale condition that [`detail_of`] heeds: it is in regular hours and sets all prices.
/// Returns `false` for an unknown settlement.
#[inline(always)]
fn is_usual(is_execution: bool, message: &[u8]) -> bool {
    const USUAL: [u8; 4] = *b"@   ";
    // No predictor can predict which messages are executions, so other messages are read too and the bytes ignored.
    let at = select_unpredictable(is_execution, CONDITIONS, 0);
    let Some(bytes) = message.get(at..at + USUAL.len()).and_then(<[u8]>::first_chunk) else { return false };
    let conditions =
        select_unpredictable(is_execution, u32::from_le_bytes(*bytes), u32::from_le_bytes(USUAL));
    let [settlement, exemption, hours, sale] = conditions.to_le_bytes();
    let are_letters = are_letters([settlement, exemption, hours, sale]);
    are_letters && settlement == b'@' && hours == b' ' && exemption != b'7' && sale != b'V'
}

impl IntegratedNormaliser {
    /// Returns the time of a message. If the second is unknown, it is the one that places the message nearest to its receive
    /// time.
    #[inline]
    fn time(&self, system: u8, time: Time, context: &Context) -> Nanos {
        let offset = match time {
            Time::Offset(offset) => offset.0,
            Time::Whole(time) => return time,
        };
        match self.second(system) {
            Some(second) => Nanos(second.0.wrapping_add(offset)),
            None => clock::nearest(offset, context.received),
        }
    }

    /// Returns the second of a matching engine's messages, if it is known.
    #[inline]
    fn second(&self, system: u8) -> Option<Nanos> {
        self.seconds.get(usize::from(system)).copied().flatten()
    }

    /// Begins a new second of a matching engine.
    fn begin_second(&mut self, system: u32, second: Nanos) {
        let Ok(place) = u8::try_from(system).map(usize::from) else { return };
        if place >= self.seconds.len() {
            self.seconds.resize(place + 1, None);
        }
        if let Some(of_system) = self.seconds.get_mut(place) {
            *of_system = Some(second);
        }
    }

    #[inline]
    fn listing(&self, index: u32) -> Listing {
        self.listings.get(index as usize).copied().unwrap_or(Listing::UNKNOWN)
    }

    /// Returns whether a message of the sequence changes a book or state that a later refresh already includes.
    #[cold]
    #[inline(never)]
    fn is_in_book(&self, message: &Message<'_>, context: &Context) -> bool {
        if self.refresh_at(context).is_some() {
            return false;
        }
        let index = match message {
            Message::AddOrder(m) => m.symbol_index(),
            Message::ModifyOrder(m) => m.symbol_index(),
            Message::DeleteOrder(m) => m.symbol_index(),
            Message::OrderExecution(m) => m.symbol_index(),
            Message::ReplaceOrder(m) => m.symbol_index(),
            Message::SymbolClear(m) => m.symbol_index(),
            Message::SecurityStatus(m) => m.symbol_index(),
            _ => return false,
        };
        context.sequence <= u64::from(self.listing(index).refreshed)
    }

    /// Handles a message that the book already includes: an execution is emitted as a trade, any other as an event without
    /// meaning.
    #[cold]
    #[inline(never)]
    fn put_old<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        let (index, time): (u32, Time) = match message {
            Message::OrderExecution(m) => {
                return self.put(
                    EventKind::Trade,
                    m.symbol_index(),
                    m.source_time_ns(),
                    to,
                    |event, listing| Event {
                        aux: u64::from(m.trade_id()),
                        size: m.volume(),
                        price: listing.price(m.price()),
                        detail: detail_of(m.printable_flag(), conditions_of!(m)),
                        ..event
                    },
                );
            }
            Message::AddOrder(m) => (m.symbol_index(), m.source_time_ns().into()),
            Message::ModifyOrder(m) => (m.symbol_index(), m.source_time_ns().into()),
            Message::DeleteOrder(m) => (m.symbol_index(), m.source_time_ns().into()),
            Message::ReplaceOrder(m) => (m.symbol_index(), m.source_time_ns().into()),
            Message::SymbolClear(m) => (m.symbol_index(), (m.source_time(), m.source_time_ns()).into()),
            Message::SecurityStatus(m) => (m.symbol_index(), (m.source_time(), m.source_time_ns()).into()),
            other => return self.translate(other, to),
        };
        self.put(EventKind::Other, index, time, to, |event, _| event);
    }

    /// Returns the number of the refresh that a message belongs to. The messages of a snapshot carry the number before its first
    /// live message; later messages do not.
    fn refresh_at(&self, context: &Context) -> Option<u32> {
        let (last, _) =
            self.refresh.filter(|(_, of)| *of == context.sequence && context.line == Line::Snapshot)?;
        Some(last)
    }

    /// Begins a refresh at its header. The next mapping is the refresh's symbol.
    fn begin_refresh(&mut self, last: u32, context: &Context) {
        if context.line != Line::Snapshot {
            return;
        }
        self.refresh = Some((last, context.sequence));
        self.refreshed = self.refreshed.max(u64::from(last));
    }

    /// Returns the slot of an index, growing the table if needed; `None` if there is no room for it.
    fn place(&mut self, index: u32) -> Option<&mut Listing> {
        let place = index as usize;
        if place >= self.listings.len() && place < MOST_INDICES {
            self.listings.resize(place + 1, Listing::UNKNOWN);
        }
        self.listings.get_mut(place)
    }

    /// Records that an order message came before the mapping of its index.
    #[cold]
    #[inline(never)]
    fn note_unnamed(&mut self, index: u32) {
        if let Some(listing) = self.place(index) {
            listing.is_missed = true;
        }
    }

    /// Emits the event of a message about a symbol, completed by `complete`, unless the instrument is unwanted.
    #[inline]
    fn put<S: Sink<Event>>(
        &mut self,
        kind: EventKind,
        index: u32,
        time: impl Into<Time>,
        to: &mut Target<'_, S>,
        complete: impl FnOnce(Event, Listing) -> Event,
    ) {
        let listing = self.listing(index);
        if listing.instrument >= UNWANTED {
            if listing.instrument == UNWANTED {
                return;
            }
            if kind.is_of_order() {
                self.note_unnamed(index);
            }
        }
        let time = self.time(listing.system, time.into(), to.context);
        let event = to.context.event(kind, self.publisher, listing.instrument, time);
        to.sink.put(complete(event, listing));
    }

    #[inline]
    fn translate<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::AddOrder(m) => {
                self.put(EventKind::Add, m.symbol_index(), m.source_time_ns(), to, |event, listing| Event {
                    order_id: m.order_id(),
                    side: side_of(m.side()),
                    size: m.volume(),
                    price: listing.price(m.price()),
                    ..event
                });
            }
            Message::DeleteOrder(m) => {
                self.put(EventKind::Delete, m.symbol_index(), m.source_time_ns(), to, |event, _| Event {
                    order_id: m.order_id(),
                    ..event
                });
            }
            Message::ModifyOrder(m) => {
                let keeps = m.position_change() == 0;
                self.put(EventKind::Replace, m.symbol_index(), m.source_time_ns(), to, |event, listing| {
                    Event {
                        order_id: m.order_id(),
                        aux: m.order_id(),
                        size: m.volume(),
                        price: listing.price(m.price()),
                        detail: if keeps { Event::KEEPS_PRIORITY } else { 0 },
                        ..event
                    }
                });
            }
            Message::OrderExecution(m) => {
                self.put(EventKind::Execute, m.symbol_index(), m.source_time_ns(), to, |event, listing| {
                    Event {
                        order_id: m.order_id(),
                        aux: u64::from(m.trade_id()),
                        size: m.volume(),
                        price: listing.price(m.price()),
                        detail: detail_of(m.printable_flag(), conditions_of!(m)),
                        ..event
                    }
                });
            }
            Message::ReplaceOrder(m) => {
                self.put(EventKind::Replace, m.symbol_index(), m.source_time_ns(), to, |event, listing| {
                    Event {
                        order_id: m.order_id(),
                        aux: m.new_order_id(),
                        size: m.volume(),
                        price: listing.price(m.price()),
                        ..event
                    }
                });
            }
            other => self.not_an_order(other, to),
        }
    }

    /// Translates a message of a rarer kind.
    #[cold]
    #[inline(never)]
    fn not_an_order<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::AddOrderRefresh(m) => {
                let time = (m.source_time(), m.source_time_ns());
                self.put(EventKind::Add, m.symbol_index(), time, to, |event, listing| Event {
                    order_id: m.order_id(),
                    side: side_of(m.side()),
                    size: m.volume(),
                    price: listing.price(m.price()),
                    ..event
                });
            }
            Message::NonDisplayedTrade(m) => {
                self.put(EventKind::Trade, m.symbol_index(), m.source_time_ns(), to, |event, listing| {
                    Event {
                        aux: u64::from(m.trade_id()),
                        size: m.volume(),
                        price: listing.price(m.price()),
                        detail: detail_of(m.printable_flag(), conditions_of!(m)),
                        ..event
                    }
                });
            }
            Message::CrossTrade(m) => {
                if (m.symbol_index() as usize) < MOST_INDICES {
                    self.crosses.insert(m.symbol_index(), (m.cross_id(), m.price()));
                }
                self.put(EventKind::Trade, m.symbol_index(), m.source_time_ns(), to, |event, listing| {
                    Event {
                        aux: u64::from(m.cross_id()),
                        size: m.volume(),
                        price: listing.some_price(m.price()),
                        detail: Event::CROSS,
                        ..event
                    }
                });
            }
            Message::TradeCancel(m) => {
                self.put(EventKind::TradeBreak, m.symbol_index(), m.source_time_ns(), to, |event, _| Event {
                    aux: u64::from(m.trade_id()),
                    ..event
                });
            }
            Message::CrossCorrection(m) => self.correct_cross(&m, to),
            Message::Imbalance(m) => self.imbalance(&m, to),
            Message::SecurityStatus(m) => {
                let status = status_of(&m);
                let time = (m.source_time(), m.source_time_ns());
                self.put(EventKind::Status, m.symbol_index(), time, to, |event, _| event.with_status(status));
            }
            Message::SymbolClear(m) => {
                let time = (m.source_time(), m.source_time_ns());
                self.put(EventKind::Clear, m.symbol_index(), time, to, |event, _| event);
            }
            Message::SymbolIndexMapping(m) => self.define(&m, to),
            Message::RetailPriceImprovement(m) => {
                self.put(EventKind::Other, m.symbol_index(), m.source_time_ns(), to, |event, _| event);
            }
            Message::StockSummary(m) => {
                let time = (m.source_time(), m.source_time_ns());
                self.put(EventKind::Other, m.symbol_index(), time, to, |event, _| event);
            }
            Message::SourceTimeReference(m) => {
                let second = start_of(m.source_time());
                self.begin_second(m.id(), second);
                self.no_symbol(Time::Whole(second), to);
            }
            Message::SequenceNumberReset(m) => {
                if to.context.line != Line::Snapshot {
                    // Indices are valid for one day, and a new day begins.
                    self.listings.clear();
                    self.crosses.clear();
                    self.refreshed = 0;
                }
                self.no_symbol((m.source_time(), m.source_time_ns()).into(), to);
            }
            Message::RefreshHeader(m) => {
                self.begin_refresh(m.last_sequence(), to.context);
                self.no_symbol(Time::received(to.context), to);
            }
            Message::MessageUnavailable(_)
            | Message::RequestResponse(_)
            | Message::HeartbeatResponse(_)
            | Message::RetransmissionRequest(_)
            | Message::SymbolIndexMappingRequest(_)
            | Message::RefreshRequest(_) => {
                self.no_symbol(Time::received(to.context), to);
            }
            // These have already been translated.
            Message::AddOrder(_)
            | Message::ModifyOrder(_)
            | Message::DeleteOrder(_)
            | Message::OrderExecution(_)
            | Message::ReplaceOrder(_) => {}
        }
    }

    /// Emits the event of a message about no symbol.
    fn no_symbol<S: Sink<Event>>(&mut self, time: Time, to: &mut Target<'_, S>) {
        let time = self.time(0, time, to.context);
        to.sink.put(to.context.event(EventKind::Other, self.publisher, InstrumentId::UNKNOWN, time));
    }

    /// Corrects the volume of an auction's trade: emits a break, and the corrected trade if the price is known.
    fn correct_cross<S: Sink<Event>>(&mut self, m: &wire::CrossCorrection<'_>, to: &mut Target<'_, S>) {
        let (index, time, aux) = (m.symbol_index(), m.source_time_ns(), u64::from(m.cross_id()));
        let cross = self.crosses.get(&index).filter(|(number, _)| *number == m.cross_id());
        let Some((_, price)) = cross.copied() else {
            return self.put(EventKind::TradeBreak, index, time, to, |event, _| Event { aux, ..event });
        };
        self.put(EventKind::TradeBreak, index, time, to, |mut event, _| {
            event.set_flags(Flags(0));
            Event { aux, ..event }
        });
        self.put(EventKind::Trade, index, time, to, |event, listing| Event {
            aux,
            size: m.volume(),
            price: listing.some_price(price),
            detail: Event::CROSS,
            ..event
        });
    }

    /// Returns the time of an auction, given as hours and minutes in New York in four digits (1406), on the day of the message.
    fn auction_time(&mut self, digits: u16, day_of: SecondsSinceEpoch) -> Option<Nanos> {
        if digits == 0 {
            return None;
        }
        let at = start_of(day_of);
        if at < self.midnight || at.since(self.midnight) >= 24 * 3_600 * Nanos::SECOND {
            self.midnight = clock::midnight_before(at)?;
        }
        let minutes = u64::from(digits / 100) * 60 + u64::from(digits % 100);
        Some(Nanos(self.midnight.0.saturating_add(minutes * 60 * Nanos::SECOND)))
    }

    fn imbalance<S: Sink<Event>>(&mut self, m: &wire::Imbalance<'_>, to: &mut Target<'_, S>) {
        let listing = self.listing(m.symbol_index());
        if listing.instrument == UNWANTED {
            return;
        }
        let imbalance = Imbalance {
            paired: m.paired_quantity(),
            imbalance: m.total_imbalance_quantity(),
            market_imbalance: Some(m.market_imbalance_quantity()),
            side: match m.imbalance_side() {
                ImbalanceSide::Buy => Side::Bid,
                ImbalanceSide::Sell => Side::Ask,
                ImbalanceSide::None | ImbalanceSide::Unknown(_) => Side::None,
            },
            auction_type: m.auction_type().raw(),
            variation: b'~',
            extensions: m.extensions(),
            auction_time: self.auction_time(m.auction_time(), m.source_time()),
            reference_price: listing.some_price(m.reference_price()),
            continuous_clearing_price: listing.some_price(m.continuous_book_clearing_price()),
            auction_clearing_price: listing.some_price(m.auction_interest_clearing_price()),
            indicative_price: listing.some_price(m.indicative_match_price()),
            upper_collar: listing.some_price(m.upper_collar()),
            lower_collar: listing.some_price(m.lower_collar()),
        };
        let time = self.time(listing.system, (m.source_time(), m.source_time_ns()).into(), to.context);
        let event = to.context.event(EventKind::Imbalance, self.publisher, listing.instrument, time);
        event.with_imbalance(imbalance).into_iter().for_each(|event| to.sink.put(event));
    }

    /// Defines an index by its mapping.
    fn define<S: Sink<Event>>(&mut self, m: &SymbolIndexMapping<'_>, to: &mut Target<'_, S>) {
        let sink = &mut *to.sink;
        let symbol = NAMING.symbol_of(m.symbol().trimmed(), None);
        let now = to.symbols.resolve_symbol(symbol, self.publisher, |mapping| sink.put(mapping));
        let listing = Listing {
            instrument: now,
            unit: unit_of(m.price_scale_code()),
            system: m.system_id(),
            is_missed: false,
            refreshed: self
                .refresh_at(to.context)
                .unwrap_or_else(|| self.listing(m.symbol_index()).refreshed),
        };
        let Some(place) = self.place(m.symbol_index()) else { return };
        let Listing { instrument: before, is_missed, .. } = std::mem::replace(place, listing);
        // A mapping has no time: it gets the second of its matching engine, or otherwise the second in which it was received.
        let received = to.context.received.unwrap_or_default();
        let floor = Nanos(received.0 / Nanos::SECOND * Nanos::SECOND);
        let time = self.second(m.system_id()).unwrap_or(floor);
        let numbered = Renumbered { before, now, is_missed };
        if !to.context.renumber(self.publisher, time, numbered, sink) {
            return;
        }
        let definition = Definition {
            round_lot: u32::from(m.lot_size()),
            reference_price: None,
            tick: None,
            class: m.security_type().raw(),
            listing: m.exchange_code().raw(),
            is_test: m.security_type() == SecurityType::Test,
            is_etp: m.security_type() == SecurityType::Etf,
        };
        let event = to.context.event(EventKind::Definition, self.publisher, now, time);
        sink.put(event.with_definition(definition));
    }
}

/// Returns DBN's status reason for a halt condition.
const fn reason_of(condition: HaltCondition) -> u16 {
    use HaltCondition as Halt;
    match condition {
        Halt::NewsPending => 30,
        Halt::NewsReleased => 31,
        Halt::LuldPause => 50,
        Halt::EquipmentChangeover => OPERATIONAL,
        Halt::RegulatoryConcern => REGULATORY,
        Halt::EtfComponentPricesNotAvailable | Halt::IntradayIndicativeValueNotAvailable => 90,
        Halt::CorporateAction | Halt::MergerEffective => 100,
        Halt::NewSecurityOffering => 110,
        Halt::CircuitBreakerLevel1 => 120,
        Halt::CircuitBreakerLevel2 => 121,
        Halt::CircuitBreakerLevel3 => 122,
        Halt::NotHalted
        | Halt::NotHaltedInXdp
        | Halt::OrderImbalance
        | Halt::AdditionalInformationRequested
        | Halt::Suspended
        | Halt::Unknown(_) => 0,
    }
}

/// Returns the trading status of a security status message. A halt outlives the phases of the day.
fn status_of(m: &wire::SecurityStatus<'_>) -> Status {
    use SecurityStatusCode as Code;
    let (no, yes) = (Some(false), Some(true));
    let nothing = ((StatusAction::None, 0), None, None);
    let condition = match m.halt_condition() {
        HaltCondition::NotHaltedInXdp => HaltCondition::NotHalted,
        condition => condition,
    };
    let pauses = condition == HaltCondition::LuldPause;
    let halt = (if pauses { StatusAction::Pause } else { StatusAction::Halt }, reason_of(condition));
    let ((action, reason), is_trading, is_quoting) = match (m.security_status(), condition) {
        (
            Code::ShortSaleRestrictionActivated
            | Code::ShortSaleRestrictionContinued
            | Code::ShortSaleRestrictionDeactivated,
            _,
        ) => ((StatusAction::ShortSaleRestrictionChange, 0), None, None),
        (Code::HaltResumePriceIndication | Code::PreOpeningPriceIndication | Code::Unknown(_), _) => nothing,
        (Code::Closed, _) => ((StatusAction::Close, 0), no, no),
        // Not a separate operational halt: the next status ends it.
        (Code::Suspend, _) => ((StatusAction::Halt, OPERATIONAL), no, no),
        (Code::TradingHalt, _) => (halt, no, no),
        // An undocumented condition may be a halt.
        (_, HaltCondition::Unknown(_)) => nothing,
        (Code::PreOpening | Code::BeginAcceptingOrders, HaltCondition::NotHalted) => {
            ((StatusAction::PreOpen, 0), no, no)
        }
        (Code::Resume, HaltCondition::NotHalted) => match m.market_state() {
            MarketState::PreOpening | MarketState::Closed => ((StatusAction::PreOpen, 0), no, no),
            MarketState::EarlySession | MarketState::CoreSession | MarketState::LateSession => {
                ((StatusAction::Trading, 0), yes, yes)
            }
            MarketState::Unknown(_) => nothing,
        },
        (Code::EarlySession | Code::CoreSession | Code::LateSession, HaltCondition::NotHalted) => {
            ((StatusAction::Trading, 0), yes, yes)
        }
        _ => (halt, no, no),
    };
    let is_short_sell_restricted = match m.short_sale_restriction() {
        ShortSaleRestriction::NotInEffect => no,
        ShortSaleRestriction::InEffect => yes,
        ShortSaleRestriction::Unknown(_) => None,
    };
    Status { action, reason, is_trading, is_quoting, is_short_sell_restricted }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tapeworks_market::Symbol;
    use tapeworks_wire::Ascii;
    use tapeworks_wire::nyse::integrated::{
        AddOrder, AddOrderFields, AddOrderRefresh, AddOrderRefreshFields, CrossCorrection,
        CrossCorrectionFields, CrossTrade, CrossTradeFields, CrossType, DeleteOrder, DeleteOrderFields,
        Exchange, ListingMarket, Market, ModifyOrder, ModifyOrderFields, NonDisplayedTrade,
        NonDisplayedTradeFields, OrderExecution, OrderExecutionFields, RefreshHeader, RefreshHeaderFields,
        RoundLot, SecurityStatus, SecurityStatusFields, SequenceNumberReset, SequenceNumberResetFields,
        SourceTimeReference, SourceTimeReferenceFields, SymbolIndexMappingFields,
    };

    use super::*;
    use crate::symbols::SymbolTable;

    /// 2025-11-14, 09:30 in New York.
    const OPEN_SECOND: u32 = 1_763_130_600;
    const OPEN: u64 = OPEN_SECOND as u64 * Nanos::SECOND;

    struct Feed {
        normaliser: IntegratedNormaliser,
        symbols: SymbolTable,
        sequence: u64,
    }

    impl Feed {
        fn new(wanted: Option<HashSet<Symbol>>) -> Self {
            let start = Start {
                publisher: Publisher::ARCX_PILLAR,
                midnight: Nanos(0),
                is_midnight_fixed: false,
                sip_sizes: Default::default(),
            };
            Self {
                normaliser: IntegratedNormaliser::new(&start),
                symbols: SymbolTable::new(wanted),
                sequence: 0,
            }
        }

        /// Sends the next message, received `after_ns` after the open.
        fn take(&mut self, after_ns: u64, message: &[u8]) -> Vec<Event> {
            self.sequence += 1;
            self.take_of(Line::A, self.sequence, after_ns, message)
        }

        fn take_of(&mut self, line: Line, sequence: u64, after_ns: u64, message: &[u8]) -> Vec<Event> {
            let (events, problem) = self.take_any(line, sequence, after_ns, message);
            assert_eq!(problem, None);
            events
        }

        fn take_with(&mut self, after_ns: u64, message: &[u8]) -> (Vec<Event>, Option<Contradiction>) {
            self.sequence += 1;
            self.take_any(Line::A, self.sequence, after_ns, message)
        }

        fn take_any(
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
            assert_eq!(check(message), Ok(()));
            let problem = self.normaliser.message(message, &mut to).unwrap();
            (events, problem)
        }

        fn symbol(&self, instrument: InstrumentId) -> &str {
            self.symbols.instruments().symbols()[instrument.index()].as_str()
        }
    }

    fn mapping(symbol_index: u32, symbol: &[u8], price_scale_code: u8, system_id: u8) -> Vec<u8> {
        let mut text = [0; 11];
        text[..symbol.len()].copy_from_slice(symbol);
        let fields = SymbolIndexMappingFields {
            length: SymbolIndexMapping::LENGTH as u16,
            symbol_index,
            symbol: Ascii(text),
            reserved_1: 0,
            market_id: Market::ArcaEquities,
            system_id,
            exchange_code: ListingMarket::NyseArca,
            price_scale_code,
            security_type: SecurityType::Etf,
            lot_size: 100,
            previous_close_price: 0,
            previous_close_volume: 0,
            price_resolution: 0,
            round_lot: RoundLot::Yes,
            minimum_price_variation: 1,
            unit_of_trade: 1,
            reserved_2: 0,
        };
        fields.encode().to_vec()
    }

    fn time(id: u32, second: u32) -> Vec<u8> {
        let fields = SourceTimeReferenceFields {
            length: SourceTimeReference::LENGTH as u16,
            id,
            symbol_sequence: 0,
            source_time: SecondsSinceEpoch(second),
        };
        fields.encode().to_vec()
    }

    fn header(last_sequence: u32) -> Vec<u8> {
        let fields = RefreshHeaderFields {
            length: RefreshHeader::LENGTH as u16,
            current_refresh_packet: 1,
            total_refresh_packets: 1,
            last_sequence,
            last_symbol_sequence: 0,
        };
        fields.encode().to_vec()
    }

    fn refreshed(symbol_index: u32, order_id: u64) -> Vec<u8> {
        let fields = AddOrderRefreshFields {
            length: AddOrderRefresh::LENGTH as u16,
            source_time: SecondsSinceEpoch(OPEN_SECOND),
            source_time_ns: Nanoseconds(0),
            symbol_index,
            symbol_sequence: 0,
            order_id,
            price: 100_000,
            volume: 100,
            side: WireSide::Buy,
            firm_id: Ascii([0; 5]),
            reserved_1: 0,
        };
        fields.encode().to_vec()
    }

    #[test]
    fn a_message_that_a_refresh_of_its_symbol_has_changes_no_book() {
        let mut feed = Feed::new(None);
        let kinds = |events: Vec<Event>| events.iter().map(|event| event.kind).collect::<Vec<_>>();
        // One snapshot: symbol 1 as of 100, symbol 2 as of 104. Its messages have the number 100.
        for (index, last) in [(1, 100), (2, 104)] {
            feed.take_of(Line::Snapshot, 100, 0, &header(last));
            feed.take_of(Line::Snapshot, 100, 0, &mapping(index, b"AAPL", 4, 1));
            let added = feed.take_of(Line::Snapshot, 100, 0, &refreshed(index, 7));
            assert_eq!(kinds(added), [EventKind::Add]);
        }
        // The messages since the snapshot, and then the lines.
        for line in [Line::Snapshot, Line::A] {
            assert_eq!(kinds(feed.take_of(line, 101, 0, &add(1, 8, 100_000, 0))), [EventKind::Add]);
            assert_eq!(kinds(feed.take_of(line, 102, 0, &add(2, 9, 100_000, 0))), [EventKind::Other]);
            assert_eq!(kinds(feed.take_of(line, 104, 0, &add(2, 9, 100_000, 0))), [EventKind::Other]);
            assert_eq!(kinds(feed.take_of(line, 105, 0, &add(2, 10, 100_000, 0))), [EventKind::Add]);
        }
        // A mapping after the snapshot changes none of that.
        feed.take_of(Line::A, 103, 0, &mapping(2, b"AAPL", 4, 1));
        assert_eq!(kinds(feed.take_of(Line::A, 104, 0, &add(2, 9, 100_000, 0))), [EventKind::Other]);
        // The next snapshot starts over.
        feed.normaliser.forget_unnamed();
        assert_eq!(kinds(feed.take_of(Line::A, 104, 0, &add(2, 9, 100_000, 0))), [EventKind::Add]);
    }

    fn add(symbol_index: u32, order_id: u64, price: i32, offset: u32) -> Vec<u8> {
        let fields = AddOrderFields {
            length: AddOrder::LENGTH as u16,
            source_time_ns: Nanoseconds(u64::from(offset)),
            symbol_index,
            symbol_sequence: 0,
            order_id,
            price,
            volume: 300,
            side: WireSide::Buy,
            firm_id: Ascii([b' '; 5]),
            reserved_1: 0,
        };
        fields.encode().to_vec()
    }

    fn delete(symbol_index: u32, order_id: u64, offset: u32) -> Vec<u8> {
        let fields = DeleteOrderFields {
            length: DeleteOrder::LENGTH as u16,
            source_time_ns: Nanoseconds(u64::from(offset)),
            symbol_index,
            symbol_sequence: 0,
            order_id,
            reserved_1: 0,
        };
        fields.encode().to_vec()
    }

    #[test]
    fn a_price_has_the_decimal_places_of_its_symbol() {
        let mut feed = Feed::new(None);
        for (index, places, expected) in [
            (1, 6, Some(10_010_000_000)),
            (2, 4, Some(1_001_000_000_000)),
            (3, 9, Some(10_010_000)),
            (4, 0, Some(10_010_000_000_000_000)),
            (5, 10, None),
        ] {
            let symbol = [b'A' + index as u8];
            feed.take(0, &mapping(index, &symbol, places, 1));
            let added = feed.take(0, &add(index, 7, 10_010_000, 0))[0];
            assert_eq!(added.price, expected.and_then(Price::from_e9), "{places} places");
        }
    }

    #[test]
    fn the_mapping_names_the_symbol_and_its_class() {
        let mut feed = Feed::new(None);
        let events = feed.take(5, &mapping(70_000, b"BRK A", 6, 1));
        let [mapping_of, definition] = &events[..] else { panic!("{events:?}") };
        assert_eq!(mapping_of.kind, EventKind::SymbolMapping);
        assert_eq!(definition.definition().map(|one| (one.round_lot, one.is_etp)), Some((100, true)));
        let added = feed.take(6, &add(70_000, 7, 1, 0))[0];
        assert_eq!((feed.symbol(added.instrument), added.publisher), ("BRK.A", Publisher::ARCX_PILLAR));
        // An index beyond the table is a problem, and its orders have no instrument.
        let (events, problem) = feed.take_with(7, &mapping(1 << 20, b"SPY", 6, 1));
        assert_eq!(problem, Some(Contradiction::NoRoom { number: 1 << 20 }));
        assert_eq!((events.len(), events[0].kind), (1, EventKind::Other));
        assert_eq!(feed.take(8, &add(1 << 20, 8, 1, 0))[0].instrument, InstrumentId::UNKNOWN);
        assert_eq!(feed.normaliser.listings.len(), 70_001);
    }

    #[test]
    fn a_time_is_the_second_of_the_matching_engine_and_the_nanoseconds_of_the_message() {
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(1, b"A", 6, 1));
        feed.take(0, &mapping(2, b"B", 6, 2));
        assert_eq!(feed.take(10, &time(1, OPEN_SECOND))[0].ts_event, Nanos(OPEN));
        feed.take(10, &time(2, OPEN_SECOND + 1));
        let at = |events: Vec<Event>| events[0].ts_event.0 - OPEN;
        assert_eq!(at(feed.take(900, &add(1, 7, 1, 500))), 500);
        assert_eq!(at(feed.take(900, &add(2, 8, 1, 500))), 1_000_000_500);
        // After a gap the second is that of the receive time.
        let missed = feed.sequence + 5;
        assert_eq!(
            at(feed.take_of(Line::A, missed, 2_000_000_100, &delete(1, 7, 999_999_900))),
            1_999_999_900
        );
        // A matching engine whose number does not fit a byte belongs to no symbol.
        assert_eq!(at(feed.take_of(Line::A, missed + 1, 0, &time(256, OPEN_SECOND + 9))), 9_000_000_000);
        assert_eq!(at(feed.take_of(Line::A, missed + 2, 100, &delete(1, 7, 50))), 50);
    }

    #[test]
    fn a_mapping_that_comes_late_or_changes_leaves_doubt() {
        let mut feed = Feed::new(None);
        let early = feed.take(0, &add(1, 7, 10, 0))[0];
        assert_eq!((early.instrument, early.price), (InstrumentId::UNKNOWN, None));
        let kinds = |events: &[Event]| events.iter().map(|event| event.kind).collect::<Vec<_>>();
        let events = feed.take(0, &mapping(1, b"A", 6, 1));
        assert_eq!(kinds(&events), [EventKind::SymbolMapping, EventKind::Gap, EventKind::Definition]);
        assert!(events[1].is_contradiction());
        // Repeating the same mapping changes nothing.
        assert_eq!(kinds(&feed.take(0, &mapping(1, b"A", 6, 1))), [EventKind::Definition]);
        let events = feed.take(0, &mapping(1, b"B", 6, 1));
        let expected = [
            EventKind::SymbolMapping,
            EventKind::Clear,
            EventKind::Gap,
            EventKind::Gap,
            EventKind::Definition,
        ];
        assert_eq!(kinds(&events), expected);
        assert_eq!(events[1].instrument, events[2].instrument);
        assert_eq!(events[3].instrument, events[4].instrument);
        // Messages that are not about orders leave no doubt.
        feed.take(0, &cross(9, 10_000_000));
        assert_eq!(
            kinds(&feed.take(0, &mapping(9, b"C", 6, 1))),
            [EventKind::SymbolMapping, EventKind::Definition]
        );
        // A definition gets the second in which it came, not the next one.
        let events = feed.take(700_000_000, &mapping(9, b"C", 6, 1));
        assert_eq!(events[0].ts_event, Nanos(OPEN));
    }

    #[test]
    fn a_trade_counts_for_what_its_sale_conditions_let_it() {
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(1, b"A", 6, 1));
        let all =
            (Settlement::RegularSale, TradeThroughExemption::None, ExtendedHours::None, SaleCondition::None);
        let (regular, extended) = (Event::REGULAR_HOURS, Event::EXTENDED_HOURS);
        let volume = Event::NOT_LAST | Event::NOT_HIGH_LOW;
        for (conditions, detail) in [
            (all, regular),
            (
                (all.0, TradeThroughExemption::IntermarketSweepOrder, all.2, SaleCondition::OddLotTrade),
                regular,
            ),
            (
                (all.0, TradeThroughExemption::OpeningTrade, ExtendedHours::ExtendedHoursTrade, all.3),
                extended,
            ),
            ((all.0, all.1, ExtendedHours::Unknown(b'?'), all.3), 0),
            // Numbers of XDP 2.1.
            (
                (
                    Settlement::Cash,
                    TradeThroughExemption::Unknown(b'\n'),
                    ExtendedHours::Unknown(0),
                    SaleCondition::Unknown(0),
                ),
                0,
            ),
            ((all.0, all.1, all.2, SaleCondition::Unknown(0)), 0),
            ((all.0, all.1, ExtendedHours::Sold, all.3), regular | Event::NOT_LAST),
            ((all.0, all.1, ExtendedHours::ExtendedHoursSoldOutOfSequence, all.3), extended | volume),
            ((Settlement::Cash, all.1, all.2, all.3), regular | volume),
            ((all.0, TradeThroughExemption::QualifiedContingentTrade, all.2, all.3), regular | volume),
            ((all.0, all.1, all.2, SaleCondition::ContingentTrade), regular | volume),
        ] {
            for (printable_flag, unprinted) in
                [(PrintableFlag::PrintedToSip, 0), (PrintableFlag::NotPrintedToSip, Event::NOT_PRINTABLE)]
            {
                let (trade_condition_1, trade_condition_2, trade_condition_3, trade_condition_4) = conditions;
                let execution = OrderExecutionFields {
                    length: OrderExecution::LENGTH as u16,
                    source_time_ns: Nanoseconds(1),
                    symbol_index: 1,
                    symbol_sequence: 0,
                    order_id: 7,
                    trade_id: 1,
                    price: 20_000_000,
                    volume: 5,
                    printable_flag,
                    reserved_1: 0,
                    trade_condition_1,
                    trade_condition_2,
                    trade_condition_3,
                    trade_condition_4,
                };
                let trade = NonDisplayedTradeFields {
                    length: NonDisplayedTrade::LENGTH as u16,
                    source_time_ns: Nanoseconds(1),
                    symbol_index: 1,
                    symbol_sequence: 0,
                    trade_id: 1,
                    price: 20_000_000,
                    volume: 5,
                    printable_flag,
                    trade_condition_1,
                    trade_condition_2,
                    trade_condition_3,
                    trade_condition_4,
                };
                // Executions without such a condition can take the fast path.
                assert_eq!(is_usual(true, &execution.encode()), detail == regular, "{conditions:?}");
                for message in [&execution.encode()[..], &trade.encode()] {
                    assert_eq!(feed.take(0, message)[0].detail, detail | unprinted, "{conditions:?}");
                }
            }
        }
    }

    #[test]
    fn a_reset_of_the_numbers_ends_the_indices_of_the_day() {
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(1, b"A", 6, 1));
        let fields = SequenceNumberResetFields {
            length: SequenceNumberReset::LENGTH as u16,
            source_time: SecondsSinceEpoch(OPEN_SECOND),
            source_time_ns: Nanoseconds(3),
            product_id: 1,
            channel_id: 1,
        };
        // A reset within a snapshot does not count.
        feed.take_of(Line::Snapshot, 1, 0, &fields.encode());
        assert_ne!(feed.take(0, &add(1, 7, 10, 0))[0].instrument, InstrumentId::UNKNOWN);
        assert_eq!(feed.take(0, &fields.encode())[0].ts_event, Nanos(OPEN + 3));
        assert_eq!(feed.take(0, &add(1, 7, 10, 0))[0].instrument, InstrumentId::UNKNOWN);
    }

    #[test]
    fn unwanted_symbols_are_left_out() {
        let mut feed = Feed::new(Some(HashSet::from([Symbol::from_bytes(b"MSFT").unwrap()])));
        assert_eq!(feed.take(0, &mapping(1, b"AAPL", 6, 1)), []);
        feed.take(0, &mapping(2, b"MSFT", 6, 1));
        assert_eq!(feed.take(1, &add(1, 7, 1, 0)), []);
        assert_eq!(feed.take(2, &delete(1, 7, 0)), []);
        assert_eq!(feed.take(3, &add(2, 8, 1, 0)).len(), 1);
        // An index that now names a wanted symbol: orders were left out.
        let events = feed.take(4, &mapping(1, b"MSFT", 6, 1));
        assert_eq!((events[0].kind, events[0].is_contradiction()), (EventKind::Gap, true));
    }

    #[test]
    fn a_modified_order_keeps_its_number_and_perhaps_its_place() {
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(1, b"A", 6, 1));
        for (position_change, detail) in [(0, Event::KEEPS_PRIORITY), (1, 0)] {
            let fields = ModifyOrderFields {
                length: ModifyOrder::LENGTH as u16,
                source_time_ns: Nanoseconds(1),
                symbol_index: 1,
                symbol_sequence: 0,
                order_id: 7,
                price: 20_000_000,
                volume: 5,
                position_change,
                side: WireSide::Sell,
                reserved_1: 0,
            };
            let changed = feed.take(0, &fields.encode())[0];
            assert_eq!((changed.kind, changed.order_id, changed.aux), (EventKind::Replace, 7, 7));
            assert_eq!((changed.size, changed.detail), (5, detail));
            assert_eq!(changed.price, Price::from_e9(20_000_000_000));
        }
    }

    fn cross(symbol_index: u32, price: i32) -> Vec<u8> {
        let fields = CrossTradeFields {
            length: CrossTrade::LENGTH as u16,
            source_time_ns: Nanoseconds(1),
            symbol_index,
            symbol_sequence: 0,
            cross_id: 9,
            price,
            volume: 400,
            cross_type: CrossType::Opening,
        };
        fields.encode().to_vec()
    }

    #[test]
    fn a_corrected_cross_is_a_break_and_the_trade_as_it_was() {
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(1, b"A", 6, 1));
        let mut fields = CrossCorrectionFields {
            length: CrossCorrection::LENGTH as u16,
            source_time_ns: Nanoseconds(1),
            symbol_index: 1,
            symbol_sequence: 0,
            cross_id: 9,
            volume: 500,
        };
        let crossed = feed.take(0, &cross(1, 10_000_000))[0];
        assert_eq!((crossed.kind, crossed.size, crossed.detail), (EventKind::Trade, 400, Event::CROSS));
        let events = feed.take(0, &fields.encode());
        let [broken, trade] = &events[..] else { panic!("{events:?}") };
        assert_eq!((broken.kind, broken.aux), (EventKind::TradeBreak, 9));
        assert!(!broken.flags().contains(Flags::LAST) && trade.flags().contains(Flags::LAST));
        assert_eq!(
            (trade.kind, trade.size, trade.aux, trade.detail),
            (EventKind::Trade, 500, 9, Event::CROSS)
        );
        assert_eq!(trade.price, Price::from_e9(10_000_000_000));
        // The price of a cross that was not seen is unknown.
        fields.cross_id = 8;
        let events = feed.take(0, &fields.encode());
        assert_eq!((events.len(), events[0].kind, events[0].aux), (1, EventKind::TradeBreak, 8));
    }

    /// The message of the real packet, of a closing auction at 14:06.
    #[test]
    fn a_real_imbalance_has_its_prices_and_its_time() {
        let mut message = vec![0; 73];
        let start = [
            0x49, 0x00, 0x69, 0x00, 0x90, 0x84, 0x16, 0x62, 0x00, 0x06, 0x3c, 0x0c, 0xcb, 0xe6, 0x00, 0x00,
            0x0e, 0x00, 0x00, 0x00, 0x80, 0x96, 0x98, 0x00, 0x84, 0x03, 0x00, 0x00, 0x4c, 0x04, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x7e, 0x05, 0x43, 0x42,
        ];
        message[..start.len()].copy_from_slice(&start);
        // The real one has no market orders and no collar.
        message[32..36].copy_from_slice(&250_u32.to_le_bytes());
        message[56..60].copy_from_slice(&3_000_000_000_u32.to_le_bytes());
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(59_083, b"A", 6, 1));
        let events = feed.take(0, &message);
        let imbalance = events[0].imbalance(&events[1]).unwrap();
        assert_eq!((imbalance.paired, imbalance.imbalance, imbalance.side), (900, 1_100, Side::Bid));
        assert_eq!(
            (imbalance.reference_price, imbalance.indicative_price),
            (Price::from_e9(10_000_000_000), None)
        );
        assert_eq!(imbalance.upper_collar, Price::from_e9(3_000_000_000_000));
        // 2022-02-23, 14:06 in New York.
        assert_eq!(imbalance.auction_time, Some(Nanos(1_645_643_160 * Nanos::SECOND)));
        assert_eq!(events[0].ts_event, Nanos(1_645_642_896_205_260_288));
        assert_eq!(imbalance.market_imbalance, Some(250));
        // XDP 2.1 ends before the unpaired shares.
        message.truncate(67);
        message[0] = 67;
        let earlier = feed.take(0, &message);
        assert_eq!(earlier[0].imbalance(&earlier[1]), Some(imbalance));
    }

    #[test]
    fn a_halt_outlives_the_phases_of_the_day() {
        let mut feed = Feed::new(None);
        feed.take(0, &mapping(1, b"A", 6, 1));
        let mut status = |security_status, halt_condition, market_state| {
            let fields = SecurityStatusFields {
                length: SecurityStatus::LENGTH as u16,
                source_time: SecondsSinceEpoch(OPEN_SECOND),
                source_time_ns: Nanoseconds(7),
                symbol_index: 1,
                symbol_sequence: 0,
                security_status,
                halt_condition,
                reserved_4: 0,
                price_1: 0,
                price_2: 0,
                short_sale_triggering_exchange: Exchange::Unknown(b' '),
                short_sale_triggering_volume: 0,
                time: 0,
                short_sale_restriction: ShortSaleRestriction::InEffect,
                market_state,
                session_state: Ascii([0]),
            };
            let event = feed.take(0, &fields.encode())[0];
            assert_eq!(event.ts_event, Nanos(OPEN + 7));
            let status = event.status().unwrap();
            assert_eq!(status.is_short_sell_restricted, Some(true));
            (status.action, status.is_trading)
        };
        use HaltCondition::{LuldPause, NewsPending, NotHalted};
        use MarketState::{CoreSession, PreOpening};
        use SecurityStatusCode as Code;
        let trading = (StatusAction::Trading, Some(true));
        assert_eq!(status(Code::Resume, NotHalted, PreOpening), (StatusAction::PreOpen, Some(false)));
        assert_eq!(status(Code::CoreSession, NotHalted, CoreSession), trading);
        assert_eq!(status(Code::CoreSession, HaltCondition::NotHaltedInXdp, CoreSession), trading);
        assert_eq!(status(Code::CoreSession, NewsPending, CoreSession), (StatusAction::Halt, Some(false)));
        assert_eq!(status(Code::TradingHalt, LuldPause, CoreSession), (StatusAction::Pause, Some(false)));
        assert_eq!(status(Code::Resume, NotHalted, CoreSession), trading);
        let change = (StatusAction::ShortSaleRestrictionChange, None);
        assert_eq!(status(Code::ShortSaleRestrictionActivated, NotHalted, CoreSession), change);
        assert_eq!(status(Code::Closed, NotHalted, MarketState::Closed), (StatusAction::Close, Some(false)));
        // An undocumented value says nothing about trading.
        let nothing = (StatusAction::None, None);
        assert_eq!(status(Code::CoreSession, HaltCondition::Unknown(b'?'), CoreSession), nothing);
        assert_eq!(status(Code::Resume, NotHalted, MarketState::Unknown(b'?')), nothing);
    }

    #[test]
    fn packets_are_of_the_integrated_feed_only_where_a_group_says_so() {
        let message = delete(1, 2, 3);
        let mut packet = vec![41, 0, 11, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        packet.extend_from_slice(&message);
        assert!(recognise(&packet));
        let of = |destination: &str| {
            crate::recognise::udp_payload(&packet, destination.parse().unwrap())
                .map(|found| found.application)
        };
        assert_eq!(of("239.192.140.2:29253"), Some(crate::Application::NyseIntegrated25));
        assert_eq!(of("239.253.72.27:29267"), None);
        let spec = crate::Application::NyseIntegrated25.spec();
        assert_eq!(spec.publisher(None, "239.192.141.5:1".parse().ok()), Publisher::XCHI_PILLAR);
        // A refresh packet does not belong to the channel.
        packet[2] = 18;
        assert!(!recognise(&packet));
    }
}
