//! Shared by Cboe's equities, options and futures feeds: split times, symbols named by only some messages, and orders that later
//! messages identify by number alone. The message layouts differ and are declared separately.

use std::hint::select_unpredictable;

use tapeworks_market::{Event, EventKind, InstrumentId, Price, Publisher, Side};
use tapeworks_stage::Sink;
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderFields, OrderMessages};
use tapeworks_wire::{Ascii, Nanoseconds};

use crate::normaliser::{Context, Start, Target, kind_of, sides, with_order};
use crate::symbols::{NOT_FOUND, QuickSymbols, UNWANTED};
use crate::units::{Aside, SplitTimes};
use tapeworks_time::clock::Zone;

/// Returns the zone in which a market's times count from midnight. In the available captures, options and futures use Chicago.
fn zone_of(publisher: Publisher) -> Zone {
    match publisher {
        Publisher::XCBO_PITCH | Publisher::XCBF_PITCH => Zone::Chicago,
        _ => Zone::NewYork,
    }
}

/// The instruments and orders of one unit.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct Unit {
    publisher: Publisher,
    times: SplitTimes,
    /// Whether an instrument belongs to the unit, by instrument.
    has: Vec<bool>,
    /// A quick lookup for some of their symbols.
    #[cfg_attr(feature = "serde", serde(skip))]
    quick: QuickSymbols,
    /// Orders of unwanted symbols.
    pub(crate) unwanted: Aside,
}

/// The deletion of a nonexistent order.
pub(crate) static HARMLESS: [u8; 14] = {
    let mut message = [0; 14];
    (message[0], message[1]) = (14, 0x29);
    message
};

/// The fields of every order message, and of an addition and a reduction, in the declarations of both protocols.
pub(crate) const NAMED: OrderFieldNames =
    OrderFieldNames { time: "time_offset", order_id: "order_id", ..OrderFieldNames::NONE };
pub(crate) const ADDED: OrderFieldNames =
    OrderFieldNames { instrument: "symbol", shares: "quantity", price: "price", side: "side", ..NAMED };
pub(crate) const REDUCED: OrderFieldNames = OrderFieldNames { shares: "canceled_quantity", ..NAMED };

const SIDES: [Side; 256] = sides(b'B', b'S');

/// The padding from a six-letter symbol to an eight-letter one.
const SPACES: u64 = u64::from_le_bytes([0, 0, 0, 0, 0, 0, b' ', b' ']);

/// Converts a price with four or two decimals. `None` if an event cannot hold it.
macro_rules! price {
    ($price:expr) => {
        $price.to_e9().and_then(Price::from_e9)
    };
}

pub(crate) use price;

/// Returns an order's side, `Side::None` for an unknown letter.
const fn side_of(letter: u8) -> Side {
    SIDES[letter as usize]
}

/// Pads a six-letter symbol to eight letters.
#[inline]
pub(crate) const fn wide(symbol: Ascii<6>) -> Ascii<8> {
    let [a, b, c, d, e, f] = symbol.0;
    Ascii([a, b, c, d, e, f, b' ', b' '])
}

impl Unit {
    pub(crate) fn new(start: &Start) -> Self {
        Self {
            publisher: start.publisher,
            times: SplitTimes::new(start, zone_of(start.publisher)),
            has: Vec::new(),
            quick: QuickSymbols::default(),
            unwanted: Aside::default(),
        }
    }

    /// Translates a message listed in `orders`; `detail` computes the event's detail byte. Returns `false`, without effect, for any
    /// other message or one that needs the general path.
    #[inline(always)]
    pub(crate) fn frequent<S: Sink<Event>>(
        &mut self,
        orders: &OrderMessages,
        message: &[u8],
        to: &mut Target<'_, S>,
        detail: impl FnOnce(&OrderFields) -> u8,
    ) -> bool {
        let Some(order) = orders.decode(message) else { return false };
        // The price is unsigned.
        if !self.unwanted.is_empty() || i64::try_from(order.price).is_err() {
            return false;
        }
        let Some(time) = self.times.next(order.time, to.context) else { return false };
        // No predictor can predict which messages are additions, so the others look up no symbol.
        let is_added = order.action == OrderAction::Add;
        let symbol = order.instrument | SPACES;
        let mut instrument = self.quick.get(select_unpredictable(is_added, symbol, 0));
        if instrument == NOT_FOUND {
            instrument = self.not_quick(is_added, symbol, to);
            if instrument == UNWANTED {
                return false;
            }
        }
        let event = to.context.event(kind_of(order.action), self.publisher, instrument, time);
        let Some(mut event) = with_order(event, &order, &SIDES) else { return false };
        self.times.go_on(to.context);
        event.detail = detail(&order);
        to.sink.put(event);
        true
    }

    /// Notes that a message of the unit has arrived.
    #[inline]
    pub(crate) fn follow<S: Sink<Event>>(&mut self, to: &mut Target<'_, S>) {
        self.times.follow(self.publisher, to);
    }

    /// Starts this second of the day for the messages that follow.
    pub(crate) fn begin_second<S: Sink<Event>>(
        &mut self,
        second: u32,
        offset: Nanoseconds,
        to: &mut Target<'_, S>,
    ) {
        self.times.begin_second(second, zone_of(self.publisher), to.context);
        to.sink.put(self.event(InstrumentId::UNKNOWN, offset, to.context));
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.has.len() <= symbols.instruments().len()
    }

    #[inline]
    pub(crate) fn event(&self, instrument: InstrumentId, offset: Nanoseconds, context: &Context) -> Event {
        context.event(EventKind::Other, self.publisher, instrument, self.times.at(offset.0, context))
    }

    /// Returns the instrument of a message whose symbol, if any, the quick lookup lacks. Never inlined, because the compiler would
    /// then test every message for a symbol.
    #[cold]
    #[inline(never)]
    fn not_quick<S: Sink<Event>>(
        &mut self,
        has_symbol: bool,
        symbol: u64,
        to: &mut Target<'_, S>,
    ) -> InstrumentId {
        if !has_symbol {
            return InstrumentId::UNKNOWN;
        }
        let instrument = self.resolve(Ascii(symbol.to_le_bytes()), to);
        self.quick.add(symbol, instrument);
        instrument
    }

    #[inline]
    pub(crate) fn resolve<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        to: &mut Target<'_, S>,
    ) -> InstrumentId {
        let sink = &mut *to.sink;
        let instrument = to.symbols.resolve(symbol.0, self.publisher, |mapping| sink.put(mapping));
        if !self.has.get(instrument.index()).copied().unwrap_or_default() && instrument < UNWANTED {
            self.admit(instrument);
        }
        instrument
    }

    #[cold]
    #[inline(never)]
    fn admit(&mut self, instrument: InstrumentId) {
        if self.has.len() <= instrument.index() {
            self.has.resize(instrument.index() + 1, false);
        }
        self.has[instrument.index()] = true;
    }

    /// Emits the event of a message about a symbol, after `complete`. Returns `false` if the symbol is unwanted.
    #[inline]
    pub(crate) fn put<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        offset: Nanoseconds,
        to: &mut Target<'_, S>,
        complete: impl FnOnce(Event) -> Event,
    ) -> bool {
        let instrument = self.resolve(symbol, to);
        if instrument == UNWANTED {
            return false;
        }
        let event = complete(self.event(instrument, offset, to.context));
        to.sink.put(event);
        true
    }

    /// Emits the event of an order that joins the book.
    #[inline]
    pub(crate) fn add<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        offset: Nanoseconds,
        order_id: u64,
        (side, size, price): (u8, u32, Option<Price>),
        to: &mut Target<'_, S>,
    ) {
        let is_wanted = self.put(symbol, offset, to, |event| Event {
            kind: EventKind::Add,
            order_id,
            side: side_of(side),
            size,
            price,
            ..event
        });
        if !is_wanted {
            self.unwanted.put(order_id, size);
        }
    }

    /// Emits the event of a message about a resting order, after `complete`, unless its symbol is unwanted.
    #[inline]
    pub(crate) fn of_order<S: Sink<Event>>(
        &mut self,
        kind: EventKind,
        order_id: u64,
        offset: Nanoseconds,
        to: &mut Target<'_, S>,
        complete: impl FnOnce(Event) -> Event,
    ) {
        let event = self.event(InstrumentId::UNKNOWN, offset, to.context);
        let event = complete(Event { kind, order_id, ..event });
        if !self.unwanted.is_empty() && self.unwanted.takes(&event) {
            return;
        }
        to.sink.put(event);
    }

    /// Emits the event of an order that leaves the book.
    #[inline]
    pub(crate) fn delete<S: Sink<Event>>(
        &mut self,
        order_id: u64,
        offset: Nanoseconds,
        to: &mut Target<'_, S>,
    ) {
        self.of_order(EventKind::Delete, order_id, offset, to, |event| event);
    }

    /// Emits the event of an order that loses shares without a trade.
    #[inline]
    pub(crate) fn reduce<S: Sink<Event>>(
        &mut self,
        order_id: u64,
        offset: Nanoseconds,
        size: u32,
        to: &mut Target<'_, S>,
    ) {
        self.of_order(EventKind::Cancel, order_id, offset, to, |event| Event { size, ..event });
    }

    /// Emits the event of an order whose price, size or priority changed.
    #[inline]
    pub(crate) fn change<S: Sink<Event>>(
        &mut self,
        order_id: u64,
        offset: Nanoseconds,
        (size, price): (u32, Option<Price>),
        keeps_priority: bool,
        to: &mut Target<'_, S>,
    ) {
        let detail = if keeps_priority { Event::KEEPS_PRIORITY } else { 0 };
        self.of_order(EventKind::Replace, order_id, offset, to, |event| Event {
            aux: order_id,
            detail,
            size,
            price,
            ..event
        });
    }

    /// Emits the event of a trade that changes no displayed order.
    pub(crate) fn trade<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        offset: Nanoseconds,
        (size, price): (u32, Option<Price>),
        (execution_id, detail): (u64, u8),
        to: &mut Target<'_, S>,
    ) {
        self.put(symbol, offset, to, |event| Event {
            kind: EventKind::Trade,
            size,
            price,
            aux: execution_id,
            detail,
            ..event
        });
    }

    /// Clears the unit's books. The venue's other units are unaffected.
    pub(crate) fn clear<S: Sink<Event>>(&mut self, offset: Nanoseconds, to: &mut Target<'_, S>) {
        self.unwanted.clear();
        let last = self.has.iter().rposition(|has| *has);
        if last.is_none() {
            // There is nothing to clear, but the message's number must be seen.
            to.sink.put(self.event(InstrumentId::UNKNOWN, offset, to.context));
        }
        for (index, _) in self.has.iter().enumerate().filter(|(_, has)| **has) {
            let event = self.event(InstrumentId(index as u32), offset, to.context);
            let event = Event { kind: EventKind::Clear, ..event };
            to.sink.put(if Some(index) == last { event } else { event.with_more_clears() });
        }
    }
}
