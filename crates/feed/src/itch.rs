//! Nasdaq TotalView-ITCH 5.0 to normalised events.
//!
//! What is peculiar here: times count from midnight in New York; an instrument is a stock locate of the day, which the
//! stock directory, or an order's own symbol, explains; an order message other than an addition names no side, price or
//! shares of the order it refers to (the book completes that).
//!
//! Cost: the message's own line, a load from the table of locates (256 KiB, second-level cache) and the event. No jump
//! by message type for the messages about orders.

use tapeworks_flow::Sink;
use tapeworks_market::event::{Definition, Imbalance, Session, Status, StatusAction};
use tapeworks_market::instrument::Symbol;
use tapeworks_market::{Event, EventKind, InstrumentId, Nanos, Price, Publisher, Side};
use tapeworks_wire::nasdaq::itch50::{
    AddOrder, AddOrderWithMpid, Authenticity, EtpFlag, EventCode, ImbalanceDirection, Message,
    OperationalHaltAction, OrderCancel, OrderDelete, OrderExecuted, OrderExecutedWithPrice, OrderReplace,
    Printable, ReasonCode, RegShoAction, TradingState,
};
use tapeworks_wire::schema::Structure;
use tapeworks_wire::{Ascii, NanosecondsSinceMidnight};

use crate::clock;
use crate::symbols::{SymbolTable, UNWANTED};

/// What the transport says of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The receive time; `None` when the source has none.
    pub(crate) received: Option<Nanos>,
    /// The sequence number on the channel.
    pub(crate) sequence: u64,
    pub(crate) channel: u8,
    pub(crate) line: tapeworks_market::Line,
}

/// Translates the messages of one ITCH channel.
#[derive(Debug)]
pub(crate) struct ItchNormaliser {
    publisher: Publisher,
    /// Midnight of the session's day in New York.
    midnight: Nanos,
    /// The user said so; a new session does not change it.
    is_midnight_fixed: bool,
    /// By stock locate; as long as the greatest one seen needs, so that a channel without messages costs nothing.
    instruments: Vec<InstrumentId>,
}

impl ItchNormaliser {
    pub(crate) fn new(publisher: Publisher, midnight: Nanos, is_midnight_fixed: bool) -> Self {
        Self { publisher, midnight, is_midnight_fixed, instruments: Vec::new() }
    }

    /// The time in a message of whatever type and length; midnight if it is too short to have one.
    pub(crate) fn time_of(&self, message: &[u8]) -> Nanos {
        let bytes = message.get(5..11).unwrap_or_default();
        let time = bytes.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
        Nanos(self.midnight.0.wrapping_add(time))
    }

    /// The event of a message about the instrument of `locate`.
    #[inline]
    fn event(
        &self,
        kind: EventKind,
        instrument: InstrumentId,
        timestamp: NanosecondsSinceMidnight,
        context: &Context,
    ) -> Event {
        let mut event = Event::new(kind, self.publisher, instrument);
        event.ts_event = Nanos(self.midnight.0.wrapping_add(timestamp.nanoseconds()));
        event.ts_recv = context.received.unwrap_or(event.ts_event);
        event.channel_sequence = context.sequence;
        event.channel = context.channel;
        event.line = context.line;
        event
    }

    #[inline]
    fn known(&self, locate: u16) -> InstrumentId {
        self.instruments.get(usize::from(locate)).copied().unwrap_or(InstrumentId::UNKNOWN)
    }

    /// The instrument of a message that carries its symbol: a capture may begin after the directory.
    #[inline]
    fn named<S: Sink<Event>>(
        &mut self,
        locate: u16,
        stock: Ascii<8>,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) -> InstrumentId {
        match self.known(locate) {
            InstrumentId::UNKNOWN => self.learn(locate, stock, symbols, sink),
            known => known,
        }
    }

    #[cold]
    #[inline(never)]
    fn learn<S: Sink<Event>>(
        &mut self,
        locate: u16,
        stock: Ascii<8>,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) -> InstrumentId {
        let instrument = symbols.resolve(stock.0, self.publisher, |mapping| sink.put(mapping));
        if self.instruments.len() <= usize::from(locate) {
            let length = (usize::from(locate) + 1).next_power_of_two();
            self.instruments.resize(length, InstrumentId::UNKNOWN);
        }
        self.instruments[usize::from(locate)] = instrument;
        instrument
    }

    /// Translates one message that is about an order; `false` when it is not, or has not the length of its type, and
    /// nothing was done.
    ///
    /// Nineteen in twenty messages are about orders, of types as good as random: a jump by type would be mispredicted
    /// for every other one. So there is none: [`LAYOUTS`], made of the declaration, says where each type has what an
    /// event needs, and the event is made the same way for all.
    #[inline]
    pub(crate) fn order<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        context: &Context,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) -> bool {
        let Some(start) = message.first_chunk::<ORDER_START>() else { return false };
        let layout = &LAYOUTS[usize::from(start[0])];
        if usize::from(layout.length) != message.len() {
            return false;
        }
        let locate = u16::from_be_bytes([start[1], start[2]]);
        let mut instrument = self.known(locate);
        if instrument >= UNWANTED {
            if instrument == UNKNOWN && layout.kind == EventKind::Add {
                let stock = message.get(STOCK..).and_then(|rest| rest.first_chunk::<8>()).copied();
                instrument = self.learn(locate, Ascii(stock.unwrap_or([b' '; 8])), symbols, sink);
            }
            if instrument == UNWANTED {
                return true;
            }
        }
        let [_, _, _, t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, r4, r5, r6, r7] = *start;
        let timestamp = u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]) & LOW_48_BITS;
        let mut event = self.event(layout.kind, instrument, NanosecondsSinceMidnight(timestamp), context);
        event.order_id = u64::from_be_bytes([r0, r1, r2, r3, r4, r5, r6, r7]);
        event.size = u32_at(message, layout.shares) & layout.shares_mask;
        event.aux = u64_at(message, layout.aux) & layout.aux_mask;
        event.side = SIDES[usize::from(message.get(usize::from(layout.side)).copied().unwrap_or_default())];
        let price = Price::from_e4(u32_at(message, layout.price));
        event.price = if layout.has_price { Some(price) } else { None };
        if layout.is_printable_told && message.get(PRINTABLE) == Some(&Printable::No.raw()) {
            event.detail = Event::NOT_PRINTABLE;
        }
        sink.put(event);
        true
    }

    /// Translates one message that is not about an order.
    #[cold]
    #[inline(never)]
    pub(crate) fn normalise<S: Sink<Event>>(
        &mut self,
        message: Message<'_>,
        context: &Context,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        // What is not about an order: where it concerns an instrument that nobody wants, it is dropped at the end.
        let mut put = |event: Event| {
            if event.instrument != UNWANTED {
                sink.put(event);
            }
        };
        match message {
            Message::SystemEvent(system) => {
                if let (EventCode::StartOfMessages, false) = (system.event_code(), self.is_midnight_fixed) {
                    let midnight = context.received.and_then(clock::midnight_before);
                    self.midnight = midnight.unwrap_or(self.midnight);
                }
                let event = self.event(EventKind::Session, InstrumentId::ALL, system.timestamp(), context);
                let session = match system.event_code() {
                    EventCode::StartOfMessages => {
                        // A new day numbers its instruments anew.
                        self.instruments.fill(InstrumentId::UNKNOWN);
                        Session::StartOfMessages
                    }
                    EventCode::StartOfSystemHours => Session::StartOfSystemHours,
                    EventCode::StartOfMarketHours => Session::StartOfMarketHours,
                    EventCode::EndOfMarketHours => Session::EndOfMarketHours,
                    EventCode::EndOfSystemHours => Session::EndOfSystemHours,
                    EventCode::EndOfMessages => Session::EndOfMessages,
                    EventCode::Unknown(_) => {
                        put(Event { kind: EventKind::Other, ..event });
                        return;
                    }
                };
                put(event.with_session(session));
            }
            Message::StockDirectory(directory) => {
                // A directory message always decides, even when the locate stood for something else before.
                let instrument = self.learn(directory.stock_locate(), directory.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let event = self.event(EventKind::Definition, instrument, directory.timestamp(), context);
                sink.put(event.with_definition(Definition {
                    symbol: Symbol::from_bytes(&directory.stock().0),
                    round_lot: directory.round_lot_size(),
                    reference_price: None,
                    class: directory.issue_classification().raw(),
                    is_test: directory.authenticity() == Authenticity::Test,
                    is_etp: directory.etp_flag() == EtpFlag::Etp,
                }));
            }
            Message::StockTradingAction(action) => {
                let instrument = self.learn(action.stock_locate(), action.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let event = self.event(EventKind::Status, instrument, action.timestamp(), context);
                let (status, is_trading, is_quoting) = match action.trading_state() {
                    TradingState::Halted => (StatusAction::Halt, Some(false), Some(false)),
                    TradingState::Paused => (StatusAction::Pause, Some(false), Some(false)),
                    TradingState::QuotationOnlyPeriod => (StatusAction::Quoting, Some(false), Some(true)),
                    TradingState::Trading => (StatusAction::Trading, Some(true), Some(true)),
                    TradingState::Unknown(_) => (StatusAction::None, None, None),
                };
                sink.put(event.with_status(Status {
                    action: status,
                    reason: reason(action.reason_code()),
                    is_trading,
                    is_quoting,
                    is_short_sell_restricted: None,
                }));
            }
            Message::RegShoRestriction(restriction) => {
                let instrument = self.learn(restriction.stock_locate(), restriction.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let event = self.event(EventKind::Status, instrument, restriction.timestamp(), context);
                let restricted = match restriction.reg_sho_action() {
                    RegShoAction::NoPriceTest => Some(false),
                    RegShoAction::RegShoShortSalePriceTestRestriction
                    | RegShoAction::TestRestrictionRemains => Some(true),
                    RegShoAction::Unknown(_) => None,
                };
                sink.put(event.with_status(Status {
                    action: StatusAction::ShortSaleRestrictionChange,
                    reason: 0,
                    is_trading: None,
                    is_quoting: None,
                    is_short_sell_restricted: restricted,
                }));
            }
            Message::OperationalHalt(halt) => {
                let instrument = self.learn(halt.stock_locate(), halt.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let event = self.event(EventKind::Status, instrument, halt.timestamp(), context);
                let (action, is_trading) = match halt.operational_halt_action() {
                    OperationalHaltAction::Halted => (StatusAction::NotAvailableForTrading, Some(false)),
                    OperationalHaltAction::TradingResumed => (StatusAction::None, Some(true)),
                    OperationalHaltAction::Unknown(_) => (StatusAction::None, None),
                };
                sink.put(event.with_status(Status {
                    action,
                    reason: OPERATIONAL,
                    is_trading,
                    is_quoting: None,
                    is_short_sell_restricted: None,
                }));
            }
            Message::Trade(trade) => {
                let instrument = self.named(trade.stock_locate(), trade.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                // The indicator is that of the hidden order and has been `B` for all since 2014: no aggressor is known.
                let mut event = self.event(EventKind::Trade, instrument, trade.timestamp(), context);
                event.size = trade.shares();
                event.price = Some(Price::from_e4(trade.price().0));
                event.aux = trade.match_number();
                sink.put(event);
            }
            Message::CrossTrade(cross) => {
                let instrument = self.named(cross.stock_locate(), cross.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                // A cross without shares tells that there was no cross.
                let kind = if cross.cross_shares() == 0 { EventKind::Other } else { EventKind::Trade };
                let mut event = self.event(kind, instrument, cross.timestamp(), context);
                event.size = shares(cross.cross_shares());
                event.price = Some(Price::from_e4(cross.cross_price().0));
                event.aux = cross.match_number();
                event.detail = Event::CROSS;
                sink.put(event);
            }
            Message::BrokenTrade(broken) => {
                let instrument = self.known(broken.stock_locate());
                let mut event = self.event(EventKind::TradeBreak, instrument, broken.timestamp(), context);
                event.aux = broken.match_number();
                put(event);
            }
            Message::NetOrderImbalanceIndicator(noii) => {
                let instrument = self.named(noii.stock_locate(), noii.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let event = self.event(EventKind::Imbalance, instrument, noii.timestamp(), context);
                let side = match noii.imbalance_direction() {
                    ImbalanceDirection::Buy => Side::Bid,
                    ImbalanceDirection::Sell => Side::Ask,
                    ImbalanceDirection::None
                    | ImbalanceDirection::InsufficientOrders
                    | ImbalanceDirection::Paused
                    | ImbalanceDirection::Unknown(_) => Side::None,
                };
                // A price of zero says that there is none.
                let price = |raw: u32| (raw != 0).then(|| Price::from_e4(raw));
                let imbalance = Imbalance {
                    paired: shares(noii.paired_shares()),
                    imbalance: shares(noii.imbalance_shares()),
                    side,
                    auction_type: noii.cross_type().raw(),
                    variation: noii.price_variation_indicator().raw(),
                    extensions: 0,
                    auction_time: None,
                    reference_price: price(noii.current_reference_price().0),
                    continuous_clearing_price: price(noii.near_price().0),
                    auction_clearing_price: price(noii.far_price().0),
                    indicative_price: None,
                    upper_collar: None,
                    lower_collar: None,
                };
                event.with_imbalance(imbalance).into_iter().for_each(|event| sink.put(event));
            }
            Message::MarketParticipantPosition(position) => {
                put(self.other(position.stock_locate(), position.timestamp(), context));
            }
            Message::MwcbDeclineLevel(levels) => {
                put(self.other(levels.stock_locate(), levels.timestamp(), context));
            }
            Message::MwcbStatus(status) => {
                put(self.other(status.stock_locate(), status.timestamp(), context))
            }
            Message::IpoQuotingPeriodUpdate(ipo) => {
                put(self.other(ipo.stock_locate(), ipo.timestamp(), context));
            }
            Message::LuldAuctionCollar(collar) => {
                put(self.other(collar.stock_locate(), collar.timestamp(), context));
            }
            Message::RetailPriceImprovementIndicator(interest) => {
                put(self.other(interest.stock_locate(), interest.timestamp(), context));
            }
            Message::DirectListingWithCapitalRaisePriceDiscovery(listing) => {
                put(self.other(listing.stock_locate(), listing.timestamp(), context));
            }
            // `order` has taken these: what decodes has the length of its type.
            Message::AddOrder(_)
            | Message::AddOrderWithMpid(_)
            | Message::OrderExecuted(_)
            | Message::OrderExecutedWithPrice(_)
            | Message::OrderCancel(_)
            | Message::OrderDelete(_)
            | Message::OrderReplace(_) => {}
        }
    }

    fn other(&self, locate: u16, timestamp: NanosecondsSinceMidnight, context: &Context) -> Event {
        self.event(EventKind::Other, self.known(locate), timestamp, context)
    }
}

/// Bytes at the start that every order message has: type, stock locate, tracking number, timestamp and the first order
/// reference number.
const ORDER_START: usize = 19;
const LOW_48_BITS: u64 = (1 << 48) - 1;
const STOCK: usize = offset(&AddOrder::SCHEMA, "stock");
const PRINTABLE: usize = offset(&OrderExecutedWithPrice::SCHEMA, "printable");
const UNKNOWN: InstrumentId = InstrumentId::UNKNOWN;

/// Where an order message has what an event needs. What it has not is read from its start and masked away.
#[derive(Clone, Copy)]
struct Layout {
    /// 0: not an order message.
    length: u8,
    kind: EventKind,
    shares: u8,
    price: u8,
    aux: u8,
    /// Without an indicator, 0: the type is looked up in its place, which is neither `B` nor `S`.
    side: u8,
    has_price: bool,
    is_printable_told: bool,
    shares_mask: u32,
    aux_mask: u64,
}

impl Layout {
    const NONE: Self = Self {
        length: 0,
        kind: EventKind::Other,
        shares: 0,
        price: 0,
        aux: 0,
        side: 0,
        has_price: false,
        is_printable_told: false,
        shares_mask: 0,
        aux_mask: 0,
    };

    /// The layout of `message`, whose fields of these names (empty: it has none) hold shares, price, second reference or
    /// match number, and side. Does not compile when the declaration has no such field, or when the message does not
    /// begin as all order messages do.
    const fn of(message: &Structure, kind: EventKind, [shares, price, aux, side]: [&str; 4]) -> Self {
        assert!(offset(message, "stock_locate") == 1 && offset(message, "timestamp") == 5);
        let reference = if matches!(kind, EventKind::Replace) {
            "original_order_reference_number"
        } else {
            "order_reference_number"
        };
        assert!(offset(message, reference) + 8 == ORDER_START && message.minimum_length <= u8::MAX as usize);
        Self {
            length: message.minimum_length as u8,
            kind,
            shares: offset(message, shares) as u8,
            price: offset(message, price) as u8,
            aux: offset(message, aux) as u8,
            side: offset(message, side) as u8,
            has_price: !price.is_empty(),
            is_printable_told: false,
            shares_mask: if shares.is_empty() { 0 } else { u32::MAX },
            aux_mask: if aux.is_empty() { 0 } else { u64::MAX },
        }
    }
}

/// The offset of the field `name`; 0 for no name.
const fn offset(message: &Structure, name: &str) -> usize {
    if name.is_empty() {
        return 0;
    }
    let mut at = 0;
    while at < message.fields.len() {
        if is_same(message.fields[at].name.as_bytes(), name.as_bytes()) {
            return message.fields[at].offset;
        }
        at += 1;
    }
    panic!("the declaration has no field of this name")
}

/// `==` of bytes, for constants.
const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// By message type.
static LAYOUTS: [Layout; 256] = {
    let mut table = [Layout::NONE; 256];
    let added = ["shares", "price", "", "buy_sell_indicator"];
    table[AddOrder::TAG as usize] = Layout::of(&AddOrder::SCHEMA, EventKind::Add, added);
    table[AddOrderWithMpid::TAG as usize] = Layout::of(&AddOrderWithMpid::SCHEMA, EventKind::Add, added);
    table[OrderExecuted::TAG as usize] =
        Layout::of(&OrderExecuted::SCHEMA, EventKind::Execute, ["executed_shares", "", "match_number", ""]);
    let executed = ["executed_shares", "execution_price", "match_number", ""];
    table[OrderExecutedWithPrice::TAG as usize] = Layout {
        is_printable_told: true,
        ..Layout::of(&OrderExecutedWithPrice::SCHEMA, EventKind::Execute, executed)
    };
    table[OrderCancel::TAG as usize] =
        Layout::of(&OrderCancel::SCHEMA, EventKind::Cancel, ["cancelled_shares", "", "", ""]);
    table[OrderDelete::TAG as usize] = Layout::of(&OrderDelete::SCHEMA, EventKind::Delete, [""; 4]);
    let replaced = ["shares", "price", "new_order_reference_number", ""];
    table[OrderReplace::TAG as usize] = Layout::of(&OrderReplace::SCHEMA, EventKind::Replace, replaced);
    table
};

/// By buy/sell indicator.
static SIDES: [Side; 256] = {
    let mut table = [Side::None; 256];
    table[b'B' as usize] = Side::Bid;
    table[b'S' as usize] = Side::Ask;
    table
};

#[inline]
fn u32_at(message: &[u8], offset: u8) -> u32 {
    let bytes = message.get(usize::from(offset)..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[inline]
fn u64_at(message: &[u8], offset: u8) -> u64 {
    let bytes = message.get(usize::from(offset)..).and_then(|rest| rest.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// DBN holds 32 bits of shares; an auction of more is told as the most.
fn shares(shares: u64) -> u32 {
    u32::try_from(shares).unwrap_or(u32::MAX)
}

/// DBN's status reason for an operational issue of the venue.
pub(crate) const OPERATIONAL: u16 = 60;

/// DBN's status reason of Nasdaq's reason code.
fn reason(code: ReasonCode) -> u16 {
    use ReasonCode as Code;
    match code {
        Code::HaltNewsPending => 30,
        Code::HaltNewsDisseminated => 31,
        Code::NewsAndResumptionTimes => 32,
        Code::IssuerNewsNotForthcoming => 33,
        Code::SingleSecurityTradingPauseInEffect
        | Code::VolatilityTradingPause
        | Code::StraddleConditionTradingPause
        | Code::TradingPauseQuotationOnlyPeriod => 50,
        Code::RegulatoryHaltExtraordinaryMarketActivity
        | Code::HaltRegulatoryConcern
        | Code::TradeHaltConcludedByOtherRegulatoryAuthority => 10,
        Code::HaltEtf => 90,
        Code::TradingHalted => 70,
        Code::HaltNonCompliance => 12,
        Code::HaltFilingsNotCurrent => 13,
        Code::HaltSecTradingSuspension => 14,
        Code::OperationsHalt => OPERATIONAL,
        Code::CircuitBreakerHaltLevel1 => 120,
        Code::CircuitBreakerHaltLevel2 => 121,
        Code::CircuitBreakerHaltLevel3 => 122,
        Code::CarryOverCircuitBreakerHalt => 123,
        Code::MarketWideCircuitBreakerResumption => 124,
        Code::IpoIssue | Code::IpoSecurityReleased | Code::IpoSecurityPositioningWindowExtension => 110,
        Code::CorporateAction => 100,
        Code::NotAvailable => 130,
        Code::QualificationsIssuesResolved
        | Code::QualificationsHaltEnded
        | Code::QualificationsHaltConcluded => 17,
        Code::FilingRequirementsSatisfied => 18,
        Code::NewIssueAvailable => 15,
        Code::IssueAvailable => 16,
        Code::ReasonNotAvailable | Code::Unknown(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_wire::nasdaq::itch50::{BuySellIndicator, SCHEMA};
    use tapeworks_wire::schema::{SplitMix64, arbitrary};

    use super::*;

    const CONTEXT: Context =
        Context { received: Some(Nanos(77)), sequence: 5, channel: 3, line: tapeworks_market::Line::B };

    /// The event of an order message, told type by type with the typed views.
    fn expected(message: Message<'_>, instrument: InstrumentId) -> Option<Event> {
        let mut event = Event::new(EventKind::Add, Publisher::XNAS_ITCH, instrument);
        (event.ts_recv, event.channel_sequence, event.channel, event.line) =
            (Nanos(77), 5, 3, tapeworks_market::Line::B);
        let side = |indicator| match indicator {
            BuySellIndicator::Buy => Side::Bid,
            BuySellIndicator::Sell => Side::Ask,
            BuySellIndicator::Unknown(_) => Side::None,
        };
        let time = |time: NanosecondsSinceMidnight| Nanos(1_000 + time.0);
        match message {
            Message::AddOrder(m) => {
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.order_reference_number());
                (event.side, event.size) = (side(m.buy_sell_indicator()), m.shares());
                event.price = Some(Price::from_e4(m.price().0));
            }
            Message::AddOrderWithMpid(m) => {
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.order_reference_number());
                (event.side, event.size) = (side(m.buy_sell_indicator()), m.shares());
                event.price = Some(Price::from_e4(m.price().0));
            }
            Message::OrderExecuted(m) => {
                event.kind = EventKind::Execute;
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.order_reference_number());
                (event.size, event.aux) = (m.executed_shares(), m.match_number());
            }
            Message::OrderExecutedWithPrice(m) => {
                event.kind = EventKind::Execute;
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.order_reference_number());
                (event.size, event.aux) = (m.executed_shares(), m.match_number());
                event.price = Some(Price::from_e4(m.execution_price().0));
                event.detail = if m.printable() == Printable::No { Event::NOT_PRINTABLE } else { 0 };
            }
            Message::OrderCancel(m) => {
                event.kind = EventKind::Cancel;
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.order_reference_number());
                event.size = m.cancelled_shares();
            }
            Message::OrderDelete(m) => {
                event.kind = EventKind::Delete;
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.order_reference_number());
            }
            Message::OrderReplace(m) => {
                event.kind = EventKind::Replace;
                (event.ts_event, event.order_id) = (time(m.timestamp()), m.original_order_reference_number());
                (event.size, event.aux) = (m.shares(), m.new_order_reference_number());
                event.price = Some(Price::from_e4(m.price().0));
            }
            _ => return None,
        }
        Some(event)
    }

    proptest! {
        #[test]
        fn the_layouts_give_what_the_typed_views_give(seed: u64) {
            let mut random = SplitMix64::new(seed);
            let mut symbols = SymbolTable::new(None);
            for structure in SCHEMA.messages {
                let mut bytes = Vec::new();
                arbitrary(&SCHEMA, structure, &mut random, &mut bytes);
                let Ok(message) = Message::decode(&bytes) else { continue };
                let mut normaliser = ItchNormaliser::new(Publisher::XNAS_ITCH, Nanos(1_000), true);
                let mut events = Vec::new();
                let is_order = normaliser.order(&bytes, &CONTEXT, &mut symbols, &mut |event| events.push(event));
                let locate = u16::from_be_bytes([bytes[1], bytes[2]]);
                let expected = expected(message, normaliser.known(locate));
                prop_assert_eq!(is_order, expected.is_some());
                prop_assert_eq!(events.last(), expected.as_ref());
                // One byte more or less is not its length.
                bytes.push(0);
                let is_order = normaliser.order(&bytes, &CONTEXT, &mut symbols, &mut |_| {});
                prop_assert!(!is_order);
            }
        }
    }
}
