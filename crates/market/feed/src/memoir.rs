//! MEMX MEMOIR Depth 1.3 to normalised events.
//!
//! A message names its instrument by a security identifier of the day, which only the instrument directory defines. A symbol is a
//! root and a suffix. An execution states its price. A correction of a trade becomes two events, a break and the corrected trade.
//! The quantity of a reduction is treated as the shares that the order lost.
//!
//! Suffixes follow the CMS convention, and are normalised to the spelling of the other venues: `BRK` with `B` becomes `BRK.B`,
//! `XYZ` with `PRA` becomes `XYZ-A` ([`symbology`](tapeworks_market::symbology)).
//!
//! Cost: the message's own cache line, a load from the table of identifiers (4 bytes each) and the event.

use std::collections::BTreeSet;

use tapeworks_market::event::{Definition, Session, Status, StatusAction};
use tapeworks_market::{Event, EventKind, InstrumentId, Price, Publisher, Side};
use tapeworks_session::{Memoir, Transport as _};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::memx::depth13::{
    self as wire, Boolean, Message, SCHEMA_ID, Side as WireSide, TradingSession, TradingStatus,
    TradingStatusReason,
};
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderMessages};
use tapeworks_wire::{Decimal, DecodeError, NanosecondsSinceEpoch};

use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{
    Context, Normaliser, OPERATIONAL, REGULATORY, Renumbered, Start, Target, kind_of, sides, with_order,
};
use crate::probe::blocks_fit;
use crate::symbols::UNWANTED;

/// A message has a security identifier, and the directory its symbol.
pub(crate) const NAMING: Naming = Naming {
    symbol: "symbol",
    suffix: Some("symbol_sfx"),
    suffixes: Suffixes::Cms,
    number: Some("security_id"),
    zero_is_none: false,
    directory: Some("InstrumentDirectory"),
    issue_name: None,
};

/// The deletion of a nonexistent order.
pub(crate) static HARMLESS: [u8; 24] = {
    let mut message = [0; 24];
    (message[1], message[2], message[3]) = (18, 11, SCHEMA_ID);
    (message[4], message[5]) = (1, 3);
    message
};

/// Checks that a message can be read. MEMX's other feeds have the same header and another schema: their messages are of unknown
/// types.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns the time of a message, in nanoseconds since 1970.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*message.get(6..)?.first_chunk::<8>()?))
}

/// Returns whether a UDP payload is a MEMOIR UDP packet with Depth messages, or a complete one without messages. The latter may
/// also belong to another MEMX feed, whose messages are of unknown types.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    let Ok(packet) = Memoir::packet(payload) else { return false };
    let is_whole = packet.header.count > 0 || payload.len() == packet.header_bytes;
    payload.get(1) == Some(&tapeworks_wire::memx::udp::HEADER_LENGTH)
        && is_whole
        && blocks_fit(packet.blocks, check)
}

/// Translates the messages of one Depth channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct MemoirNormaliser {
    publisher: Publisher,
    /// By security identifier. Grows with the greatest identifier defined.
    instruments: Vec<InstrumentId>,
    /// Identifiers of orders that came before the directory. Their books will lack those orders.
    unnamed: BTreeSet<u16>,
}

impl Normaliser for MemoirNormaliser {
    fn new(start: &Start) -> Self {
        Self { publisher: start.publisher, instruments: Vec::new(), unnamed: BTreeSet::new() }
    }

    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        let Some(order) = ORDERS.decode(message) else { return false };
        let known = self.instruments.get(order.instrument as usize).copied();
        let Some(instrument) = known.filter(|instrument| *instrument < UNWANTED) else { return false };
        let event = to.context.event(kind_of(order.action), self.publisher, instrument, Nanos(order.time));
        let Some(event) = with_order(event, &order, &SIDES) else { return false };
        to.sink.put(event);
        true
    }

    #[inline]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        self.translate(Message::decode(message)?, to);
        Ok(None)
    }

    fn time_of(&self, message: &[u8]) -> Nanos {
        Nanos(time(message).unwrap_or_default())
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.instruments.iter().all(|instrument| symbols.is_known(*instrument))
    }

    fn forget_unnamed(&mut self) {
        self.unnamed.clear();
    }
}

const SIDES: [Side; 256] = sides(WireSide::Buy.raw(), WireSide::Sell.raw());

/// The messages about orders.
const ORDERS: OrderMessages = {
    const NAMES: OrderFieldNames = OrderFieldNames {
        instrument: "security_id",
        time: "timestamp",
        order_id: "order_id",
        ..OrderFieldNames::NONE
    };
    let added = OrderFieldNames { shares: "quantity", price: "price", side: "side", ..NAMES };
    let reduced = OrderFieldNames { shares: "quantity", ..NAMES };
    let executed = OrderFieldNames { other_number: "trade_id", shares: "quantity", price: "price", ..NAMES };
    OrderMessages::of(&wire::SCHEMA)
        .with(&wire::OrderAdded::SCHEMA, OrderAction::Add, added)
        .with(&wire::OrderDeleted::SCHEMA, OrderAction::Delete, NAMES)
        .with(&wire::OrderReduced::SCHEMA, OrderAction::Cancel, reduced)
        .with(&wire::OrderExecuted::SCHEMA, OrderAction::Execute, executed)
};

/// Returns a price with six decimal places, or `None` if an event cannot hold it.
#[inline]
fn price(price: Decimal<i64, 6>) -> Option<Price> {
    price.to_e9().and_then(Price::from_e9)
}

impl MemoirNormaliser {
    #[inline]
    fn event(
        &self,
        kind: EventKind,
        instrument: InstrumentId,
        timestamp: NanosecondsSinceEpoch,
        context: &Context,
    ) -> Event {
        context.event(kind, self.publisher, instrument, Nanos(timestamp.nanoseconds()))
    }

    /// Emits the event of a message about a security, completed by `change`, unless the instrument is unwanted.
    #[inline]
    fn put<S: Sink<Event>>(
        &mut self,
        kind: EventKind,
        security: u16,
        timestamp: NanosecondsSinceEpoch,
        to: &mut Target<'_, S>,
        change: impl FnOnce(Event) -> Event,
    ) {
        let known = self.instruments.get(usize::from(security)).copied();
        let instrument = known.unwrap_or(InstrumentId::UNKNOWN);
        if instrument >= UNWANTED {
            if instrument == UNWANTED {
                return;
            }
            if kind.is_of_order() {
                self.note_unnamed(security);
            }
        }
        let event = self.event(kind, instrument, timestamp, to.context);
        to.sink.put(change(event));
    }

    #[cold]
    #[inline(never)]
    fn note_unnamed(&mut self, security: u16) {
        self.unnamed.insert(security);
    }

    #[inline]
    fn translate<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::OrderAdded(m) => {
                self.put(EventKind::Add, m.security_id(), m.timestamp(), to, |mut event| {
                    event.side = match m.side() {
                        WireSide::Buy => Side::Bid,
                        WireSide::Sell => Side::Ask,
                        WireSide::Unknown(_) => Side::None,
                    };
                    (event.order_id, event.size, event.price) =
                        (m.order_id(), m.quantity(), price(m.price()));
                    event
                });
            }
            Message::OrderDeleted(m) => {
                self.put(EventKind::Delete, m.security_id(), m.timestamp(), to, |event| Event {
                    order_id: m.order_id(),
                    ..event
                });
            }
            Message::OrderReduced(m) => {
                self.put(EventKind::Cancel, m.security_id(), m.timestamp(), to, |event| Event {
                    order_id: m.order_id(),
                    size: m.quantity(),
                    ..event
                });
            }
            Message::OrderExecuted(m) => {
                self.put(EventKind::Execute, m.security_id(), m.timestamp(), to, |mut event| {
                    (event.order_id, event.aux) = (m.order_id(), m.trade_id());
                    (event.size, event.price) = (m.quantity(), price(m.price()));
                    event
                });
            }
            other => self.not_an_order(other, to),
        }
    }

    /// Translates a message that changes no order.
    #[cold]
    #[inline(never)]
    fn not_an_order<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        match message {
            Message::Trade(m) => {
                self.put(EventKind::Trade, m.security_id(), m.timestamp(), to, |mut event| {
                    (event.size, event.price, event.aux) = (m.quantity(), price(m.price()), m.trade_id());
                    event
                });
            }
            Message::BrokenTrade(m) => {
                self.put(EventKind::TradeBreak, m.security_id(), m.timestamp(), to, |mut event| {
                    (event.size, event.price) = (m.original_quantity(), price(m.original_price()));
                    Event { aux: m.trade_id(), ..event }
                });
            }
            Message::CorrectedTrade(m) => {
                let (security, timestamp) = (m.security_id(), m.timestamp());
                self.put(EventKind::TradeBreak, security, timestamp, to, |mut event| {
                    (event.size, event.price) = (m.original_quantity(), price(m.original_price()));
                    Event { aux: m.trade_id(), ..event }
                });
                self.put(EventKind::Trade, security, timestamp, to, |mut event| {
                    (event.size, event.price) = (m.corrected_quantity(), price(m.corrected_price()));
                    Event { aux: m.trade_id(), ..event }
                });
            }
            Message::ClearBook(m) => {
                self.put(EventKind::Clear, m.security_id(), m.timestamp(), to, |event| event);
            }
            Message::InstrumentDirectory(m) => {
                let definition = Definition {
                    round_lot: m.round_lot(),
                    reference_price: None,
                    tick: price(m.mpv()),
                    class: b' ',
                    listing: b' ',
                    is_test: m.is_test_symbol() == Boolean::True,
                    is_etp: false,
                };
                let (root, suffix) = (m.symbol(), m.symbol_sfx());
                self.define(m.security_id(), root.trimmed(), suffix.trimmed(), m.timestamp(), definition, to);
            }
            Message::SecurityTradingStatus(m) => {
                let (action, is_trading, is_quoting) = match m.security_trading_status() {
                    TradingStatus::Halted => (StatusAction::Halt, Some(false), Some(false)),
                    TradingStatus::Paused => (StatusAction::Pause, Some(false), Some(false)),
                    TradingStatus::Quoting => (StatusAction::Quoting, Some(false), Some(true)),
                    TradingStatus::Trading => (StatusAction::Trading, Some(true), Some(true)),
                    TradingStatus::Unknown(_) => (StatusAction::None, None, None),
                };
                let reason = match m.security_trading_status_reason() {
                    TradingStatusReason::Regulatory => REGULATORY,
                    TradingStatusReason::Administrative => OPERATIONAL,
                    TradingStatusReason::None | TradingStatusReason::Unknown(_) => 0,
                };
                let status =
                    Status { action, reason, is_trading, is_quoting, is_short_sell_restricted: None };
                self.put(EventKind::Status, m.security_id(), m.timestamp(), to, |e| e.with_status(status));
            }
            Message::RegShoRestriction(m) => {
                let status = Status {
                    action: StatusAction::ShortSaleRestrictionChange,
                    reason: 0,
                    is_trading: None,
                    is_quoting: None,
                    is_short_sell_restricted: match m.short_sale_restriction() {
                        Boolean::False => Some(false),
                        Boolean::True => Some(true),
                        Boolean::Unknown(_) => None,
                    },
                };
                self.put(EventKind::Status, m.security_id(), m.timestamp(), to, |e| e.with_status(status));
            }
            Message::TradingSessionStatus(m) => {
                let event = self.event(EventKind::Session, InstrumentId::ALL, m.timestamp(), to.context);
                to.sink.put(match m.trading_session() {
                    TradingSession::Opening => event.with_session(Session::StartOfSystemHours),
                    TradingSession::Trading => event.with_session(Session::StartOfMarketHours),
                    TradingSession::PostTrading => event.with_session(Session::EndOfMarketHours),
                    TradingSession::Closed => event.with_session(Session::EndOfSystemHours),
                    TradingSession::Unknown(_) => Event { kind: EventKind::Other, ..event },
                });
            }
            Message::SnapshotComplete(m) => {
                to.sink.put(self.event(EventKind::Other, InstrumentId::UNKNOWN, m.timestamp(), to.context));
            }
            // The caller has already translated them.
            Message::OrderAdded(_)
            | Message::OrderDeleted(_)
            | Message::OrderReduced(_)
            | Message::OrderExecuted(_) => {}
        }
    }

    /// Defines an identifier by its directory message.
    fn define<S: Sink<Event>>(
        &mut self,
        security: u16,
        root: &[u8],
        suffix: &[u8],
        timestamp: NanosecondsSinceEpoch,
        definition: Definition,
        to: &mut Target<'_, S>,
    ) {
        let Target { context, symbols, sink } = to;
        let symbol = NAMING.symbol_of(root, Some(suffix));
        let instrument = symbols.resolve_symbol(symbol, self.publisher, |mapping| sink.put(mapping));
        let place = usize::from(security);
        if place >= self.instruments.len() {
            self.instruments.resize(place + 1, InstrumentId::UNKNOWN);
        }
        let before = std::mem::replace(&mut self.instruments[place], instrument);
        let was_unnamed = self.unnamed.remove(&security);
        let numbered = Renumbered { before, now: instrument, is_missed: was_unnamed };
        if !context.renumber(self.publisher, Nanos(timestamp.nanoseconds()), numbered, *sink) {
            return;
        }
        let event = self.event(EventKind::Definition, instrument, timestamp, context);
        sink.put(event.with_definition(definition));
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Line;
    use tapeworks_wire::Ascii;
    use tapeworks_wire::memx::depth13::{
        CorrectedTradeFields, InstrumentDirectoryFields, OrderAddedFields, OrderDeletedFields, VERSION,
    };

    use super::*;
    use crate::symbols::SymbolTable;

    const CONTEXT: Context = Context { received: Some(Nanos(77)), sequence: 5, channel: 3, line: Line::B };
    const TIME: NanosecondsSinceEpoch = NanosecondsSinceEpoch(9);

    struct Feed {
        normaliser: MemoirNormaliser,
        symbols: SymbolTable,
    }

    impl Feed {
        fn new() -> Self {
            let start = Start {
                publisher: Publisher::MEMX_MEMOIR,
                midnight: Nanos(0),
                is_midnight_fixed: false,
                sip_sizes: Default::default(),
            };
            Self { normaliser: MemoirNormaliser::new(&start), symbols: SymbolTable::new(None) }
        }

        fn take(&mut self, message: &[u8]) -> Vec<Event> {
            let mut events = Vec::new();
            let mut sink = |event| events.push(event);
            let mut to = Target { context: &CONTEXT, symbols: &mut self.symbols, sink: &mut sink };
            assert_eq!(check(message), Ok(()));
            assert!(self.normaliser.message(message, &mut to).unwrap().is_none());
            events
        }
    }

    fn directory(security_id: u16, symbol: &[u8; 6], symbol_sfx: &[u8; 6]) -> Vec<u8> {
        let fields = InstrumentDirectoryFields {
            block_length: 36,
            schema_id: SCHEMA_ID,
            version: VERSION,
            timestamp: TIME,
            security_id,
            symbol: Ascii(*symbol),
            symbol_sfx: Ascii(*symbol_sfx),
            round_lot: 100,
            reserved: [0],
            is_test_symbol: Boolean::False,
            mpv: Decimal(10_000),
        };
        fields.encode().to_vec()
    }

    fn deletion(security_id: u16) -> Vec<u8> {
        let fields = OrderDeletedFields {
            block_length: 18,
            schema_id: SCHEMA_ID,
            version: VERSION,
            timestamp: TIME,
            security_id,
            order_id: 4,
        };
        fields.encode().to_vec()
    }

    fn kinds(events: &[Event]) -> Vec<(EventKind, InstrumentId)> {
        events.iter().map(|event| (event.kind, event.instrument)).collect()
    }

    #[test]
    fn a_message_of_another_schema_is_of_no_known_type() {
        assert!(check(&HARMLESS).is_ok());
        let mut of_another_feed = HARMLESS;
        of_another_feed[3] = SCHEMA_ID + 1;
        let tag = u64::from(HARMLESS[2]);
        assert_eq!(check(&of_another_feed), Err(DecodeError::UnknownMessage { tag }));
    }

    #[test]
    fn a_symbol_is_a_root_and_a_suffix_of_any_length() {
        let mut feed = Feed::new();
        for (security, root, suffix) in [(1, b"BRK\0\0\0", b"B\0\0\0\0\0"), (2, b"ABCDEF", b"PRAWI\0")] {
            let events = feed.take(&directory(security, root, suffix));
            assert_eq!(events[0].kind, EventKind::SymbolMapping);
        }
        let names: Vec<_> = feed.symbols.instruments().symbols().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["BRK.B", "ABCDEF-A#"]);
        // A repeated definition returns the same instrument.
        let events = feed.take(&directory(2, b"ABCDEF", b"PRAWI\0"));
        assert_eq!(kinds(&events), [(EventKind::Definition, InstrumentId(1))]);
    }

    #[test]
    fn an_instrument_that_is_named_after_its_messages_is_stale() {
        let mut feed = Feed::new();
        assert_eq!(kinds(&feed.take(&deletion(3))), [(EventKind::Delete, InstrumentId::UNKNOWN)]);
        let one = InstrumentId(0);
        let expected = [(EventKind::SymbolMapping, one), (EventKind::Gap, one), (EventKind::Definition, one)];
        assert_eq!(kinds(&feed.take(&directory(3, b"A\0\0\0\0\0", &[0; 6]))), expected);
        assert_eq!(kinds(&feed.take(&deletion(3))), [(EventKind::Delete, one)]);
    }

    #[test]
    fn an_identifier_that_changes_its_symbol_makes_both_books_stale() {
        let mut feed = Feed::new();
        feed.take(&directory(3, b"A\0\0\0\0\0", &[0; 6]));
        let (one, two) = (InstrumentId(0), InstrumentId(1));
        let expected = [
            (EventKind::SymbolMapping, two),
            (EventKind::Clear, one),
            (EventKind::Gap, one),
            (EventKind::Gap, two),
            (EventKind::Definition, two),
        ];
        assert_eq!(kinds(&feed.take(&directory(3, b"B\0\0\0\0\0", &[0; 6]))), expected);
    }

    #[test]
    fn orders_and_corrections_keep_their_numbers() {
        let mut feed = Feed::new();
        feed.take(&directory(3, b"A\0\0\0\0\0", &[0; 6]));
        let added = OrderAddedFields {
            block_length: 31,
            schema_id: SCHEMA_ID,
            version: VERSION,
            timestamp: TIME,
            security_id: 3,
            order_id: 11,
            side: WireSide::Sell,
            quantity: 300,
            price: Decimal(12_340_000),
        };
        let event = feed.take(&added.encode())[0];
        assert_eq!((event.order_id, event.size, event.side), (11, 300, Side::Ask));
        assert_eq!(event.price, Price::from_e9(12_340_000_000));
        assert_eq!((event.ts_event, event.ts_recv, event.line()), (Nanos(9), Nanos(77), Line::B));
        let corrected = CorrectedTradeFields {
            block_length: 42,
            schema_id: SCHEMA_ID,
            version: VERSION,
            timestamp: TIME,
            security_id: 3,
            trade_id: 8,
            original_quantity: 100,
            original_price: Decimal(1_000_000),
            corrected_quantity: 50,
            corrected_price: Decimal(2_000_000),
        };
        let events = feed.take(&corrected.encode());
        let found: Vec<_> = events.iter().map(|event| (event.kind, event.aux, event.size)).collect();
        assert_eq!(found, [(EventKind::TradeBreak, 8, 100), (EventKind::Trade, 8, 50)]);
    }

    #[test]
    fn messages_of_another_schema_are_not_recognised() {
        let mut message = deletion(3);
        message[3] = 4;
        assert_eq!(check(&message), Err(DecodeError::UnknownMessage { tag: 11 }));
    }
}
