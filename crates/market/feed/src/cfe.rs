//! Cboe Futures Exchange's PITCH to normalised events.
//!
//! Order messages are as in [equities](crate::pitch), without the flags. A changed order keeps its number and loses its priority.
//! Times count from midnight in Chicago. A symbol is a six-letter code; its definition names the product and the expiration.
//!
//! Block trades, spread trades and exchanges for related positions set neither the last price nor the high or low, because Cboe
//! reports them separately from trades in the book. Settlements, summaries and transaction boundaries change no book.
//!
//! Cost: the message's own cache line and the event; for an addition the lookup of the symbol.

use tapeworks_market::event::{Definition, Status, StatusAction};
use tapeworks_market::{Event, EventKind, InstrumentId, Price};
use tapeworks_session::CboeUnit;
use tapeworks_stage::Sink;
use tapeworks_wire::cboe::futures::{self as wire, ListingState, Message, TradeCondition, TradingStatusCode};
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderMessages};
use tapeworks_wire::{Decimal, DecodeError, Nanoseconds};

use crate::cboe::{ADDED, NAMED, REDUCED, Unit, price, wide};
use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{Normaliser, OPERATIONAL, Start, Target};
use crate::probe::packet_fits;

/// A message names its symbol or an order. The product is the closest thing to an issue name.
pub(crate) const NAMING: Naming = Naming {
    symbol: "symbol",
    suffix: None,
    suffixes: Suffixes::AsTheyStand,
    number: None,
    zero_is_none: false,
    directory: Some("FuturesInstrumentDefinition"),
    issue_name: Some("report_symbol"),
};

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message clears the unit, as the first message of a day does. Within a run its number is not an old one.
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::UnitClear(_)))
}

/// Returns the time of a message that carries the second, in nanoseconds since midnight. Others have only the nanoseconds within it.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    let message = message.get(..usize::from(*message.first()?))?;
    let (second, offset) = match Message::decode(message) {
        Ok(Message::Time(time)) => (time.time(), 0),
        Ok(Message::TimeReference(reference)) => (reference.time(), reference.time_offset().0),
        _ => return None,
    };
    Some(u64::from(second.0) * tapeworks_time::Nanos::SECOND + offset)
}

/// Returns whether a UDP payload is a unit's packet with CFE messages. A heartbeat may belong to another Cboe market.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    packet_fits::<CboeUnit>(payload, check)
}

/// Translates the messages of one unit.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct CfeNormaliser {
    unit: Unit,
}

impl Normaliser for CfeNormaliser {
    fn new(start: &Start) -> Self {
        Self { unit: Unit::new(start) }
    }

    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        self.unit.frequent(&ORDERS, message, to, |order| match order.action {
            OrderAction::Execute => detail_of(TradeCondition::from_raw(order.flags)),
            _ => 0,
        })
    }

    #[inline]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        let message = Message::decode(message)?;
        self.unit.follow(to);
        translate(&mut self.unit, message, to);
        Ok(None)
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.unit.is_sound(symbols)
    }
}

/// The order messages.
const ORDERS: OrderMessages = {
    let executed = OrderFieldNames {
        other_number: "execution_id",
        shares: "executed_quantity",
        flags: "trade_condition",
        ..NAMED
    };
    let modified = OrderFieldNames { other_number: "order_id", shares: "quantity", price: "price", ..NAMED };
    OrderMessages::of(&wire::SCHEMA)
        .with(&wire::AddOrderLong::SCHEMA, OrderAction::Add, ADDED)
        .with(&wire::AddOrderShort::SCHEMA, OrderAction::Add, ADDED)
        .with(&wire::OrderExecuted::SCHEMA, OrderAction::Execute, executed)
        .with(&wire::ReduceSizeLong::SCHEMA, OrderAction::Cancel, REDUCED)
        .with(&wire::ReduceSizeShort::SCHEMA, OrderAction::Cancel, REDUCED)
        .with(&wire::ModifyOrderLong::SCHEMA, OrderAction::Modify, modified)
        .with(&wire::ModifyOrderShort::SCHEMA, OrderAction::Modify, modified)
        .with(&wire::DeleteOrder::SCHEMA, OrderAction::Delete, NAMED)
};

/// Returns whether a trade with this condition sets the last price and the high and low.
const fn detail_of(condition: TradeCondition) -> u8 {
    match condition {
        TradeCondition::SpreadTrade | TradeCondition::BlockTrade | TradeCondition::EcrpTrade => {
            Event::NOT_LAST | Event::NOT_HIGH_LOW
        }
        TradeCondition::NormalTrade | TradeCondition::OpeningTrade | TradeCondition::Unknown(_) => 0,
    }
}

/// Returns the price increment, `None` for 0.
fn tick_of(increment: Decimal<u64, 4>) -> Option<Price> {
    if increment.0 == 0 { None } else { price!(increment) }
}

#[inline]
fn translate<S: Sink<Event>>(unit: &mut Unit, message: Message<'_>, to: &mut Target<'_, S>) {
    match message {
        Message::AddOrderLong(m) => {
            let terms = (m.side().raw(), m.quantity(), price!(m.price()));
            unit.add(wide(m.symbol()), m.time_offset(), m.order_id(), terms, to);
        }
        Message::AddOrderShort(m) => {
            let terms = (m.side().raw(), u32::from(m.quantity()), price!(m.price()));
            unit.add(wide(m.symbol()), m.time_offset(), m.order_id(), terms, to);
        }
        Message::DeleteOrder(m) => {
            unit.delete(m.order_id(), m.time_offset(), to);
        }
        Message::OrderExecuted(m) => {
            unit.of_order(EventKind::Execute, m.order_id(), m.time_offset(), to, |event| Event {
                size: m.executed_quantity(),
                aux: m.execution_id(),
                detail: detail_of(m.trade_condition()),
                ..event
            });
        }
        Message::ReduceSizeLong(m) => {
            unit.reduce(m.order_id(), m.time_offset(), m.canceled_quantity(), to);
        }
        Message::ReduceSizeShort(m) => {
            unit.reduce(m.order_id(), m.time_offset(), u32::from(m.canceled_quantity()), to);
        }
        Message::ModifyOrderLong(m) => {
            let terms = (m.quantity(), price!(m.price()));
            unit.change(m.order_id(), m.time_offset(), terms, false, to);
        }
        Message::ModifyOrderShort(m) => {
            let terms = (u32::from(m.quantity()), price!(m.price()));
            unit.change(m.order_id(), m.time_offset(), terms, false, to);
        }
        Message::Time(m) => unit.begin_second(m.time().0, Nanoseconds(0), to),
        other => not_an_order(unit, other, to),
    }
}

/// Translates a message of a rarer kind.
#[cold]
#[inline(never)]
fn not_an_order<S: Sink<Event>>(unit: &mut Unit, message: Message<'_>, to: &mut Target<'_, S>) {
    match message {
        Message::TimeReference(m) => unit.begin_second(m.time().0, m.time_offset(), to),
        Message::TradeLong(m) => {
            let (terms, detail) = ((m.quantity(), price!(m.price())), detail_of(m.trade_condition()));
            unit.trade(wide(m.symbol()), m.time_offset(), terms, (m.execution_id(), detail), to);
        }
        Message::TradeShort(m) => {
            let terms = (u32::from(m.quantity()), price!(m.price()));
            let detail = detail_of(m.trade_condition());
            unit.trade(wide(m.symbol()), m.time_offset(), terms, (m.execution_id(), detail), to);
        }
        Message::TradeBreak(m) => {
            let event = unit.event(InstrumentId::UNKNOWN, m.time_offset(), to.context);
            to.sink.put(Event { kind: EventKind::TradeBreak, aux: m.execution_id(), ..event });
        }
        Message::TradingStatus(m) => {
            let (action, reason, is_trading, is_quoting) = match m.trading_status() {
                TradingStatusCode::Halted => (StatusAction::Halt, 0, Some(false), Some(false)),
                TradingStatusCode::QuoteOnly => (StatusAction::Quoting, 0, Some(false), Some(true)),
                TradingStatusCode::ExchangeSpecificSuspension => {
                    (StatusAction::Halt, OPERATIONAL, Some(false), Some(false))
                }
                TradingStatusCode::Trading => (StatusAction::Trading, 0, Some(true), Some(true)),
                TradingStatusCode::Unknown(_) => (StatusAction::None, 0, None, None),
            };
            let status = Status { action, reason, is_trading, is_quoting, is_short_sell_restricted: None };
            unit.put(wide(m.symbol()), m.time_offset(), to, |event| event.with_status(status));
        }
        Message::FuturesInstrumentDefinition(m) => {
            let definition = Definition {
                // Every contract is quoted.
                round_lot: 1,
                reference_price: None,
                tick: tick_of(m.price_increment()),
                class: b' ',
                listing: b' ',
                is_test: m.listing_state() == ListingState::Test,
                is_etp: false,
            };
            unit.put(wide(m.symbol()), m.time_offset(), to, |event| event.with_definition(definition));
        }
        Message::UnitClear(m) => unit.clear(m.time_offset(), to),
        Message::Settlement(m) => {
            unit.put(wide(m.symbol()), m.time_offset(), to, |event| event);
        }
        Message::EndOfDaySummary(m) => {
            unit.put(wide(m.symbol()), m.time_offset(), to, |event| event);
        }
        Message::TransactionBegin(m) => other_of_unit(unit, m.time_offset(), to),
        Message::TransactionEnd(m) => other_of_unit(unit, m.time_offset(), to),
        Message::EndOfSession(m) => other_of_unit(unit, m.time_offset(), to),
        // These have already been translated.
        Message::Time(_)
        | Message::AddOrderLong(_)
        | Message::AddOrderShort(_)
        | Message::OrderExecuted(_)
        | Message::ReduceSizeLong(_)
        | Message::ReduceSizeShort(_)
        | Message::ModifyOrderLong(_)
        | Message::ModifyOrderShort(_)
        | Message::DeleteOrder(_) => {}
    }
}

/// Emits a message that changes no book.
fn other_of_unit<S: Sink<Event>>(unit: &Unit, offset: Nanoseconds, to: &mut Target<'_, S>) {
    to.sink.put(unit.event(InstrumentId::UNKNOWN, offset, to.context));
}

#[cfg(test)]
mod tests {
    use tapeworks_market::{Line, Publisher};
    use tapeworks_time::Nanos;
    use tapeworks_wire::cboe::futures::{
        AddOrderShortFields, FuturesFlags, FuturesInstrumentDefinitionFields, OrderExecutedFields, Side,
        TimeFields, TimeReferenceFields, TradeShortFields,
    };
    use tapeworks_wire::{Ascii, SecondsSinceEpoch, SecondsSinceMidnight};

    use super::*;
    use crate::normaliser::Context;
    use crate::symbols::SymbolTable;

    /// 2025-11-14, 09:30 in New York and 08:30 in Chicago.
    const OPEN: u64 = 1_763_130_600 * Nanos::SECOND;
    const OPEN_SECOND: u32 = 30_600;

    struct Feed {
        normaliser: CfeNormaliser,
        symbols: SymbolTable,
        sequence: u64,
    }

    impl Feed {
        fn new() -> Self {
            let start = Start {
                publisher: Publisher::XCBF_PITCH,
                midnight: Nanos(OPEN - 34_200 * Nanos::SECOND),
                is_midnight_fixed: false,
                sip_sizes: Default::default(),
            };
            Self { normaliser: CfeNormaliser::new(&start), symbols: SymbolTable::new(None), sequence: 0 }
        }

        /// Returns a message's events, except those that announce a symbol.
        fn take(&mut self, message: &[u8]) -> Vec<Event> {
            self.sequence += 1;
            let context = Context {
                received: Some(Nanos(OPEN + 5_000_000)),
                sequence: self.sequence,
                channel: 1,
                line: Line::A,
            };
            let mut events = Vec::new();
            let mut sink = |event: Event| events.push(event);
            let to = &mut Target { context: &context, symbols: &mut self.symbols, sink: &mut sink };
            if !self.normaliser.frequent(message, to) {
                assert_eq!(self.normaliser.message(message, to), Ok(None));
            }
            events.retain(|event| event.kind != EventKind::SymbolMapping);
            events
        }
    }

    fn time() -> [u8; 10] {
        let (time, epoch) = (SecondsSinceMidnight(OPEN_SECOND), SecondsSinceEpoch(1_763_130_600));
        TimeFields { length: 10, time, epoch }.encode()
    }

    fn offset(nanoseconds: u64) -> Nanoseconds {
        Nanoseconds(nanoseconds)
    }

    fn trade(trade_condition: TradeCondition) -> [u8; 34] {
        let (order_id, side, symbol) = (0, Side::Buy, Ascii(*b"0002Tt"));
        let fields = TradeShortFields {
            length: 34,
            time_offset: offset(4),
            order_id,
            side,
            quantity: 5,
            symbol,
            price: Decimal(1_735),
            execution_id: 77,
            trade_condition,
        };
        fields.encode()
    }

    #[test]
    fn times_count_from_midnight_in_chicago_by_either_message() {
        let reference = TimeReferenceFields {
            length: 18,
            midnight_reference: SecondsSinceEpoch(1_763_100_000),
            time: SecondsSinceMidnight(OPEN_SECOND),
            time_offset: offset(0),
            trade_date: 20_251_114,
        };
        for message in [&time()[..], &reference.encode()] {
            let mut feed = Feed::new();
            feed.take(message);
            let trade = feed.take(&trade(TradeCondition::NormalTrade));
            assert_eq!(trade[0].ts_event, Nanos(OPEN + 4));
        }
    }

    #[test]
    fn trades_off_the_book_are_neither_last_nor_high_or_low() {
        let mut feed = Feed::new();
        feed.take(&time());
        let mut detail = |condition| feed.take(&trade(condition))[0].detail;
        assert_eq!(detail(TradeCondition::NormalTrade), 0);
        assert_eq!(detail(TradeCondition::OpeningTrade), 0);
        let apart = Event::NOT_LAST | Event::NOT_HIGH_LOW;
        for condition in [TradeCondition::BlockTrade, TradeCondition::EcrpTrade, TradeCondition::SpreadTrade]
        {
            assert_eq!(detail(condition), apart, "{condition:?}");
        }
    }

    #[test]
    fn an_order_is_added_and_executed_with_its_condition() {
        let mut feed = Feed::new();
        feed.take(&time());
        let (order_id, symbol) = (9, Ascii(*b"0002Tt"));
        let added = AddOrderShortFields {
            length: 25,
            time_offset: offset(1),
            order_id,
            side: Side::Sell,
            quantity: 7,
            symbol,
            price: Decimal(1_735),
        };
        let added = feed.take(&added.encode())[0];
        let price = Price::from_e9(17_350_000_000);
        assert_eq!((added.kind, added.size, added.price), (EventKind::Add, 7, price));
        for (trade_condition, detail) in [
            (TradeCondition::NormalTrade, 0),
            (TradeCondition::SpreadTrade, Event::NOT_LAST | Event::NOT_HIGH_LOW),
        ] {
            let executed = OrderExecutedFields {
                length: 27,
                time_offset: offset(2),
                order_id,
                executed_quantity: 2,
                execution_id: 5,
                trade_condition,
            };
            let executed = feed.take(&executed.encode())[0];
            assert_eq!((executed.kind, executed.size, executed.aux), (EventKind::Execute, 2, 5));
            assert_eq!(executed.detail, detail, "{trade_condition:?}");
        }
    }

    #[test]
    fn a_definition_has_the_step_of_prices_and_says_which_are_tests() {
        let mut feed = Feed::new();
        feed.take(&time());
        for (listing_state, is_test) in [(ListingState::Active, false), (ListingState::Test, true)] {
            let fields = FuturesInstrumentDefinitionFields {
                length: 45,
                time_offset: offset(3),
                symbol: Ascii(*b"0002Tt"),
                unit_timestamp: SecondsSinceEpoch(1_763_130_600),
                report_symbol: Ascii(*b"VX    "),
                futures_flags: FuturesFlags::Standard,
                expiration_date: 20_251_119,
                contract_size: 1_000,
                listing_state,
                price_increment: Decimal(500),
                leg_count: 0,
                leg_offset: 0,
                variance_offset: 0,
                contract_date: Some(20_251_119),
            };
            let mut bytes = [0; 45];
            let length = fields.encode_into(&mut bytes).unwrap();
            let definition = feed.take(&bytes[..length])[0].definition().unwrap();
            assert_eq!((definition.tick, definition.is_test), (Price::from_e9(50_000_000), is_test));
        }
    }
}
