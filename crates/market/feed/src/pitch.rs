//! Cboe PITCH to normalised events.
//!
//! Times are split: a message carries nanoseconds, and the preceding time message the second. Only additions, trades and states
//! name a symbol; later messages name the order, and its book completes the event. An execution at another price states how many
//! shares are left, which may be fewer than the book has: it becomes a change of the order to the shares before the execution,
//! followed by the execution. A changed order keeps its number.
//!
//! The header does not identify the venue: the channel's publisher is the user's choice, or BZX. Options are a separate venue, whose
//! times count from midnight in Chicago.
//!
//! Cost: the message's own cache line and the event; for an addition the lookup of the symbol.

use tapeworks_market::event::{Imbalance, Status, StatusAction};
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Price, Side};
use tapeworks_session::CboeUnit;
use tapeworks_stage::Sink;
use tapeworks_wire::cboe::pitch::{self as wire, Message, ModifyFlags, RegShoAction, TradingStatusCode};
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderMessages};
use tapeworks_wire::{Decimal, DecodeError, Nanoseconds};

use crate::cboe::{ADDED, NAMED, REDUCED, Unit, price, wide};
use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{Normaliser, OPERATIONAL, Start, Target};
use crate::probe::packet_fits;
use crate::symbols::UNWANTED;

/// A message names its symbol or an order.
pub(crate) const NAMING: Naming = Naming {
    symbol: "symbol",
    suffix: None,
    suffixes: Suffixes::AsTheyStand,
    number: None,
    zero_is_none: false,
    directory: None,
    issue_name: None,
};

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message clears the unit, as the first message of a day does. Within a run its number is not an old one.
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::UnitClear(_)))
}

/// Returns the time of a Time message, in nanoseconds since midnight. Other messages have only the nanoseconds within its second.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    let message = message.get(..usize::from(*message.first()?))?;
    match Message::decode(message) {
        Ok(Message::Time(time)) => Some(u64::from(time.time().0) * tapeworks_time::Nanos::SECOND),
        _ => None,
    }
}

/// Returns whether a UDP payload is a unit's packet with PITCH messages. The bytes identify neither the venue nor whether it
/// trades equities.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    packet_fits::<CboeUnit>(payload, check)
}

/// Translates the messages of one unit.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct PitchNormaliser {
    unit: Unit,
}

impl Normaliser for PitchNormaliser {
    fn new(start: &Start) -> Self {
        Self { unit: Unit::new(start) }
    }

    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        self.unit.frequent(&ORDERS, message, to, |order| {
            if ModifyFlags(order.flags).maintain_priority() { Event::KEEPS_PRIORITY } else { 0 }
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
        self.unit.translate(message, to);
        Ok(None)
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.unit.is_sound(symbols)
    }
}

/// The messages about orders, but those that leave two events or name longer symbols.
const ORDERS: OrderMessages = {
    let executed = OrderFieldNames { other_number: "execution_id", shares: "executed_quantity", ..NAMED };
    let modified = OrderFieldNames {
        other_number: "order_id",
        shares: "quantity",
        price: "price",
        flags: "modify_flags",
        ..NAMED
    };
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

/// PITCH says "no price" with zero.
fn some_price(price: Decimal<u64, 4>) -> Option<Price> {
    if price.0 == 0 { None } else { price!(price) }
}

impl Unit {
    #[inline]
    fn translate<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::AddOrderLong(m) => {
                let terms = (m.side().raw(), m.quantity(), price!(m.price()));
                self.add(wide(m.symbol()), m.time_offset(), m.order_id(), terms, to);
            }
            Message::AddOrderShort(m) => {
                let terms = (m.side().raw(), u32::from(m.quantity()), price!(m.price()));
                self.add(wide(m.symbol()), m.time_offset(), m.order_id(), terms, to);
            }
            Message::DeleteOrder(m) => {
                self.delete(m.order_id(), m.time_offset(), to);
            }
            Message::OrderExecuted(m) => {
                self.of_order(EventKind::Execute, m.order_id(), m.time_offset(), to, |event| Event {
                    size: m.executed_quantity(),
                    aux: m.execution_id(),
                    ..event
                });
            }
            Message::ReduceSizeLong(m) => {
                self.reduce(m.order_id(), m.time_offset(), m.canceled_quantity(), to);
            }
            Message::ReduceSizeShort(m) => {
                self.reduce(m.order_id(), m.time_offset(), u32::from(m.canceled_quantity()), to);
            }
            Message::ModifyOrderLong(m) => {
                let terms = (m.quantity(), price!(m.price()));
                self.change(m.order_id(), m.time_offset(), terms, m.modify_flags().maintain_priority(), to);
            }
            Message::ModifyOrderShort(m) => {
                let terms = (u32::from(m.quantity()), price!(m.price()));
                self.change(m.order_id(), m.time_offset(), terms, m.modify_flags().maintain_priority(), to);
            }
            Message::AddOrderExpanded(m) => {
                let terms = (m.side().raw(), m.quantity(), price!(m.price()));
                self.add(m.symbol(), m.time_offset(), m.order_id(), terms, to);
            }
            Message::Time(m) => {
                self.begin_second(m.time().0, Nanoseconds(0), to);
            }
            other => self.not_an_order(other, to),
        }
    }

    /// Translates a message of a rarer kind.
    #[cold]
    #[inline(never)]
    fn not_an_order<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::OrderExecutedAtPriceSize(m) => {
                let (order_id, offset, executed) = (m.order_id(), m.time_offset(), m.executed_quantity());
                self.of_order(EventKind::Replace, order_id, offset, to, |mut event| {
                    event.set_flags(Flags(0));
                    let size = executed.saturating_add(m.remaining_quantity());
                    Event { aux: order_id, size, detail: Event::KEEPS_PRIORITY, ..event }
                });
                self.of_order(EventKind::Execute, order_id, offset, to, |event| Event {
                    size: executed,
                    price: price!(m.price()),
                    aux: m.execution_id(),
                    ..event
                });
            }
            Message::TradeLong(m) => {
                let terms = (m.quantity(), price!(m.price()));
                self.trade(wide(m.symbol()), m.time_offset(), terms, (m.execution_id(), 0), to);
            }
            Message::TradeShort(m) => {
                let terms = (u32::from(m.quantity()), price!(m.price()));
                self.trade(wide(m.symbol()), m.time_offset(), terms, (m.execution_id(), 0), to);
            }
            Message::TradeExpanded(m) => {
                let terms = (m.quantity(), price!(m.price()));
                self.trade(m.symbol(), m.time_offset(), terms, (m.execution_id(), 0), to);
            }
            Message::TradeBreak(m) => {
                let event = self.event(InstrumentId::UNKNOWN, m.time_offset(), to.context);
                to.sink.put(Event { kind: EventKind::TradeBreak, aux: m.execution_id(), ..event });
            }
            Message::TradingStatus(m) => {
                let (action, reason, is_trading, is_quoting) = match m.trading_status() {
                    TradingStatusCode::AcceptingOrdersForQueuing => {
                        (StatusAction::PreOpen, 0, Some(false), Some(false))
                    }
                    TradingStatusCode::Halted => (StatusAction::Halt, 0, Some(false), Some(false)),
                    TradingStatusCode::QuoteOnly => (StatusAction::Quoting, 0, Some(false), Some(true)),
                    // Not a separate operational halt: the next state ends it.
                    TradingStatusCode::ExchangeSpecificSuspension => {
                        (StatusAction::Halt, OPERATIONAL, Some(false), Some(false))
                    }
                    TradingStatusCode::Trading => (StatusAction::Trading, 0, Some(true), Some(true)),
                    TradingStatusCode::Unknown(_) => (StatusAction::None, 0, None, None),
                };
                let is_short_sell_restricted = match m.reg_sho_action() {
                    RegShoAction::NoPriceTestInEffect => Some(false),
                    RegShoAction::RegShoPriceTestRestrictionInEffect => Some(true),
                    RegShoAction::Unknown(_) => None,
                };
                let status = Status { action, reason, is_trading, is_quoting, is_short_sell_restricted };
                self.put(m.symbol(), m.time_offset(), to, |event| event.with_status(status));
            }
            Message::AuctionUpdate(m) => {
                let (buy, sell) = (m.buy_shares(), m.sell_shares());
                let imbalance = Imbalance {
                    paired: buy.min(sell),
                    imbalance: buy.abs_diff(sell),
                    side: match buy.cmp(&sell) {
                        std::cmp::Ordering::Less => Side::Ask,
                        std::cmp::Ordering::Equal => Side::None,
                        std::cmp::Ordering::Greater => Side::Bid,
                    },
                    auction_type: m.auction_type().raw(),
                    variation: b'~',
                    extensions: 0,
                    market_imbalance: None,
                    auction_time: None,
                    reference_price: some_price(m.reference_price()),
                    continuous_clearing_price: None,
                    auction_clearing_price: some_price(m.auction_only_price()),
                    indicative_price: some_price(m.indicative_price()),
                    upper_collar: None,
                    lower_collar: None,
                };
                let instrument = self.resolve(m.symbol(), to);
                if instrument != UNWANTED {
                    let event = self.event(instrument, m.time_offset(), to.context);
                    event.with_imbalance(imbalance).into_iter().for_each(|event| to.sink.put(event));
                }
            }
            Message::AuctionSummary(m) => {
                self.put(m.symbol(), m.time_offset(), to, |event| Event {
                    kind: EventKind::Trade,
                    size: m.shares(),
                    price: some_price(m.price()),
                    detail: Event::CROSS,
                    ..event
                });
            }
            Message::UnitClear(m) => self.clear(m.time_offset(), to),
            Message::RetailPriceImprovement(m) => {
                self.put(m.symbol(), m.time_offset(), to, |event| event);
            }
            Message::EndOfSession(m) => {
                let event = self.event(InstrumentId::UNKNOWN, m.time_offset(), to.context);
                to.sink.put(event);
            }
            // These have already been translated.
            Message::Time(_)
            | Message::AddOrderLong(_)
            | Message::AddOrderShort(_)
            | Message::AddOrderExpanded(_)
            | Message::OrderExecuted(_)
            | Message::ReduceSizeLong(_)
            | Message::ReduceSizeShort(_)
            | Message::ModifyOrderLong(_)
            | Message::ModifyOrderShort(_)
            | Message::DeleteOrder(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tapeworks_market::{Line, Publisher, Symbol};
    use tapeworks_time::Nanos;
    use tapeworks_wire::cboe::pitch::{
        AddFlags, AddOrderShortFields, DeleteOrderFields, OrderExecutedAtPriceSizeFields,
        OrderExecutedFields, Side as WireSide, TimeFields, UnitClearFields,
    };
    use tapeworks_wire::{Ascii, Nanoseconds, SecondsSinceMidnight};

    use super::*;
    use crate::normaliser::Context;
    use crate::symbols::SymbolTable;

    /// 2025-11-14, 09:30 in New York.
    const OPEN: u64 = 1_763_130_600 * Nanos::SECOND;
    const OPEN_SECOND: u32 = 34_200;

    struct Feed {
        normaliser: PitchNormaliser,
        symbols: SymbolTable,
        sequence: u64,
    }

    impl Feed {
        fn new(wanted: Option<HashSet<Symbol>>) -> Self {
            let start = Start {
                publisher: Publisher::BATY_PITCH,
                midnight: Nanos(0),
                is_midnight_fixed: false,
                sip_sizes: Default::default(),
            };
            Self { normaliser: PitchNormaliser::new(&start), symbols: SymbolTable::new(wanted), sequence: 0 }
        }

        /// Sends the next message, received `after_ns` after the open.
        fn take(&mut self, after_ns: u64, message: &[u8]) -> Vec<Event> {
            self.sequence += 1;
            self.take_of(Line::A, self.sequence, after_ns, message)
        }

        fn take_of(&mut self, line: Line, sequence: u64, after_ns: u64, message: &[u8]) -> Vec<Event> {
            let context = Context { received: Some(Nanos(OPEN + after_ns)), sequence, channel: 3, line };
            let mut events = Vec::new();
            let mut sink = |event| events.push(event);
            let mut to = Target { context: &context, symbols: &mut self.symbols, sink: &mut sink };
            self.normaliser.message(message, &mut to).unwrap();
            events
        }
    }

    fn time(second: u32) -> [u8; 6] {
        TimeFields { length: 6, time: SecondsSinceMidnight(second) }.encode()
    }

    fn add(order_id: u64, symbol: &[u8; 6], offset: u32) -> Vec<u8> {
        let mut bytes = vec![0; 26];
        let fields = AddOrderShortFields {
            length: 26,
            time_offset: Nanoseconds(u64::from(offset)),
            order_id,
            side: WireSide::Buy,
            quantity: 300,
            symbol: Ascii(*symbol),
            price: Decimal(1_234),
            add_flags: AddFlags(1),
        };
        assert_eq!(fields.encode_into(&mut bytes), Ok(26));
        bytes
    }

    fn delete(order_id: u64, offset: u32) -> [u8; 14] {
        DeleteOrderFields { length: 14, time_offset: Nanoseconds(u64::from(offset)), order_id }.encode()
    }

    fn execution(order_id: u64, executed_quantity: u32) -> [u8; 26] {
        let fields = OrderExecutedFields {
            length: 26,
            time_offset: Nanoseconds(1),
            order_id,
            executed_quantity,
            execution_id: 1,
        };
        fields.encode()
    }

    #[test]
    fn a_time_is_the_second_of_the_message_before_and_the_nanoseconds_of_its_own() {
        let mut feed = Feed::new(None);
        let second = feed.take(10, &time(OPEN_SECOND))[0];
        assert_eq!(
            (second.kind, second.ts_event, second.channel_sequence),
            (EventKind::Other, Nanos(OPEN), 1)
        );
        let events = feed.take(900, &add(7, b"AAPL  ", 500));
        let [mapping, added] = &events[..] else { panic!("{events:?}") };
        assert_eq!(mapping.kind, EventKind::SymbolMapping);
        assert_eq!((added.ts_event, added.ts_recv), (Nanos(OPEN + 500), Nanos(OPEN + 900)));
        assert_eq!((added.order_id, added.size, added.side), (7, 300, Side::Bid));
        assert_eq!((added.price, added.channel_sequence), (Price::from_e9(12_340_000_000), 2));
        // The order's book knows the instrument.
        let deleted = feed.take(1_000, &delete(7, 800))[0];
        assert_eq!((deleted.kind, deleted.instrument), (EventKind::Delete, InstrumentId::UNKNOWN));
        assert_eq!(deleted.publisher, Publisher::BATY_PITCH);
    }

    #[test]
    fn a_day_that_the_user_sets_is_the_same_date_in_chicago() {
        // Midnight in New York.
        let midnight = Nanos(OPEN - u64::from(OPEN_SECOND) * Nanos::SECOND);
        for (publisher, hours) in [(Publisher::BATY_PITCH, 0), (Publisher::XCBO_PITCH, 1)] {
            let mut feed = Feed::new(None);
            let start = Start { publisher, midnight, is_midnight_fixed: true, sip_sizes: Default::default() };
            feed.normaliser = PitchNormaliser::new(&start);
            let second = feed.take(10, &time(OPEN_SECOND))[0];
            assert_eq!(second.ts_event, Nanos(OPEN + hours * 3_600 * Nanos::SECOND), "{publisher:?}");
        }
    }

    #[test]
    fn behind_a_gap_the_second_is_that_of_the_receive_time() {
        let mut feed = Feed::new(None);
        feed.take(10, &time(OPEN_SECOND));
        feed.take(900, &add(7, b"AAPL  ", 500));
        // Its time message is among the missing ones.
        let events = feed.take_of(Line::A, 9, 2_000_000_100, &delete(7, 999_999_900));
        assert_eq!(events[0].ts_event, Nanos(OPEN + 1_999_999_900));
        assert_eq!(
            feed.take_of(Line::A, 10, 2_000_000_200, &delete(7, 50))[0].ts_event,
            Nanos(OPEN + 2_000_000_050)
        );
        // A second that has just begun, received before midnight by a clock that lags.
        feed.take_of(Line::A, 11, 2_999_000_000, &time(OPEN_SECOND + 3));
        assert_eq!(
            feed.take_of(Line::A, 12, 3_000_000_000, &delete(7, 5))[0].ts_event,
            Nanos(OPEN + 3_000_000_005)
        );
    }

    #[test]
    fn a_unit_that_begins_with_a_later_message_lacks_orders() {
        let mut feed = Feed::new(None);
        let events = feed.take_of(Line::A, 500, 0, &add(7, b"AAPL  ", 500));
        assert_eq!((events[0].kind, events[0].instrument), (EventKind::Gap, InstrumentId::ALL));
        // A unit that began with a snapshot lacks no orders.
        let mut feed = Feed::new(None);
        for order in 0..3 {
            let events = feed.take_of(Line::Snapshot, 499, 0, &add(order, b"AAPL  ", 500));
            assert!(events.iter().all(|event| event.kind != EventKind::Gap));
        }
        let events = feed.take_of(Line::A, 500, 0, &delete(2, 500));
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::Delete);
    }

    #[test]
    fn orders_of_unwanted_symbols_are_left_out_to_their_end() {
        let mut feed = Feed::new(Some(HashSet::from([Symbol::from_bytes(b"MSFT").unwrap()])));
        feed.take(0, &time(OPEN_SECOND));
        assert_eq!(feed.take(1, &add(7, b"AAPL  ", 1)), []);
        assert_eq!(feed.take(2, &add(8, b"MSFT  ", 2)).len(), 2);
        assert_eq!(feed.take(3, &delete(7, 3)), []);
        assert_eq!(feed.take(4, &delete(8, 4)).len(), 1);
        // The order's number is free again, and unknown.
        assert_eq!(feed.take(5, &delete(7, 5)).len(), 1);
        assert!(feed.normaliser.unit.unwanted.is_empty());
        // A fully executed order frees its number too.
        assert_eq!(feed.take(6, &add(9, b"AAPL  ", 6)), []);
        for (shares, is_left) in [(100, true), (200, false)] {
            assert_eq!(feed.take(7, &execution(9, shares)), []);
            assert_eq!(feed.normaliser.unit.unwanted.has(9), is_left);
        }
        assert_eq!(feed.take(8, &execution(9, 100)).len(), 1);
    }

    #[test]
    fn an_execution_at_another_price_sets_the_shares_that_are_left() {
        let mut feed = Feed::new(None);
        let message = OrderExecutedAtPriceSizeFields {
            length: 38,
            time_offset: Nanoseconds(5),
            order_id: 7,
            executed_quantity: 100,
            remaining_quantity: 50,
            execution_id: 9,
            price: Decimal(123_450),
        };
        let events = feed.take(0, &message.encode());
        let [before, execution] = &events[..] else { panic!("{events:?}") };
        assert_eq!((before.kind, before.order_id, before.aux), (EventKind::Replace, 7, 7));
        assert_eq!((before.size, before.price, before.detail), (150, None, Event::KEEPS_PRIORITY));
        assert!(!before.flags().contains(Flags::LAST) && execution.flags().contains(Flags::LAST));
        assert_eq!((execution.kind, execution.size, execution.aux), (EventKind::Execute, 100, 9));
        assert_eq!(execution.price, Price::from_e9(12_345_000_000));
    }

    #[test]
    fn a_clear_of_the_unit_is_one_of_each_of_its_symbols() {
        let mut feed = Feed::new(None);
        feed.take(0, &time(OPEN_SECOND));
        // Another unit's symbol.
        feed.symbols.resolve(*b"ZVZZT   ", Publisher::BATY_PITCH, |_| {});
        feed.take(1, &add(7, b"AAPL  ", 1));
        feed.take(1, &add(8, b"MSFT  ", 1));
        let clear = UnitClearFields { length: 6, time_offset: Nanoseconds(3) };
        let events = feed.take(2, &clear.encode());
        let cleared: Vec<_> = events.iter().map(|event| (event.kind, event.instrument.0)).collect();
        assert_eq!(cleared, [(EventKind::Clear, 1), (EventKind::Clear, 2)]);
        assert!(events[0].has_more_clears() && !events[1].has_more_clears());
    }

    #[test]
    fn packets_are_of_pitch_only_where_a_group_says_so() {
        let message = delete(1, 2);
        let mut packet = vec![22, 0, 1, 1, 5, 0, 0, 0];
        packet.extend_from_slice(&message);
        assert!(recognise(&packet));
        let of = |destination: &str| {
            crate::recognise::udp_payload(&packet, destination.parse().unwrap())
                .map(|found| found.application)
        };
        assert_eq!(of("239.192.130.2:30101"), Some(crate::Application::CboePitch241));
        assert_eq!(of("224.0.62.2:30501"), None);
        let spec = crate::Application::CboePitch241.spec();
        assert_eq!(spec.publisher(None, "239.192.131.4:1".parse().ok()), Publisher::EDGX_PITCH);
        // A heartbeat, and one that claims another length.
        assert!(recognise(&[8, 0, 0, 1, 9, 0, 0, 0]) && !recognise(&[9, 0, 0, 1, 9, 0, 0, 0]));
        packet[0] += 1;
        assert!(!recognise(&packet[..21]));
    }
}
