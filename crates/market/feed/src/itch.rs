//! Nasdaq TotalView-ITCH 5.0 to normalised events.
//!
//! Times count from midnight in New York. A message names its instrument by a stock locate of the day, which the stock directory
//! defines, or otherwise the first message with a symbol (`locates.rs`). An order message other than an addition does not repeat
//! the side, price or shares of the order it refers to (the book completes them).
//!
//! Cost: the message's own cache line, a load from the table of locates (4 bytes each) and the event. Order messages need no jump
//! by message type.

use tapeworks_market::event::{Definition, Gap, Imbalance, Session, Status, StatusAction};
use tapeworks_market::{Event, EventKind, InstrumentId, Price, Publisher, Side};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::nasdaq::itch50::{
    AddOrder, AddOrderWithMpid, Authenticity, EtpFlag, EventCode, ImbalanceDirection, MarketCategory,
    Message, NetOrderImbalanceIndicator, OperationalHalt, OperationalHaltAction, OrderMessage, ReasonCode,
    RegShoAction, RegShoRestriction, StockDirectory, StockTradingAction, SystemEvent, TradingState,
    timestamp,
};
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacket;
use tapeworks_wire::{Ascii, DecodeError, NanosecondsSinceMidnight};

use crate::locates::{Contradiction, Defined, Locates, Refused};
use crate::normaliser::{Context, Normaliser, OPERATIONAL, Start, Target, kind_of, sides};
use crate::probe::blocks_fit;
#[cfg(feature = "serde")]
use crate::symbols::SymbolTable;
use crate::symbols::UNWANTED;
use tapeworks_time::clock::{HALF_A_DAY_NS, Zone};

/// The deletion of a nonexistent order.
pub(crate) static HARMLESS: [u8; 19] = {
    let mut message = [0; 19];
    message[0] = b'D';
    message
};

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message is the System Event that begins a session (event code `O`, ITCH 5.0, section 4.1).
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::SystemEvent(event)) if event.event_code() == EventCode::StartOfMessages)
}

const fn is_addition(message: &[u8]) -> bool {
    matches!(message, [AddOrder::TAG | AddOrderWithMpid::TAG, ..])
}

/// Returns the time of a message, in nanoseconds since midnight.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    timestamp(message).map(|time| time.nanoseconds())
}

/// Returns whether a UDP payload is a MoldUDP64 packet with ITCH messages, or without messages.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    let Ok(packet) = DownstreamPacket::decode(payload) else { return false };
    let session = packet.session().0;
    let is_text = session.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ' || *byte == 0);
    // Ethernet pads a frame to 60 bytes; the network headers take 42 of them, so a padded payload has at most 18 bytes,
    // fewer than this header. IP lengths are trusted before, so nothing may trail.
    is_text && session.iter().any(u8::is_ascii_graphic) && blocks_fit(packet.blocks(), check)
}

/// Translates the messages of one ITCH channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct ItchNormaliser {
    publisher: Publisher,
    /// Midnight of the session's day in New York.
    midnight: Nanos,
    /// Whether the user set the midnight, so that a new session does not change it.
    is_midnight_fixed: bool,
    /// The instruments by stock locate of the day.
    locates: Locates,
}

impl Normaliser for ItchNormaliser {
    fn new(start: &Start) -> Self {
        let Start { publisher, midnight, is_midnight_fixed, .. } = *start;
        Self { publisher, midnight, is_midnight_fixed, locates: Locates::default() }
    }

    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        self.follow_day(message, to.context);
        self.order(message, to.context, to.sink)
    }

    #[inline]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        self.follow_day(message, to.context);
        // `frequent` has already translated the other messages about orders.
        let addition = if is_addition(message) { OrderMessage::decode(message) } else { None };
        let (timestamp, translated) = if let Some(order) = addition {
            let stock = OrderMessage::stock(message);
            (order.timestamp, self.added(&order, stock, to).map(|()| None))
        } else {
            let decoded = Message::decode(message)?;
            (timestamp(message).unwrap_or_default(), self.not_an_order(decoded, to))
        };
        self.doubt_named_late(timestamp, to);
        // A message that contradicts its stock locate makes the instrument stale and changes nothing else.
        Ok(translated.unwrap_or_else(|refused| {
            self.doubt_both(refused, timestamp, to);
            Some(refused.contradiction)
        }))
    }

    /// Returns the time of a message, or midnight if it is too short to have one.
    fn time_of(&self, message: &[u8]) -> Nanos {
        let time = timestamp(message).unwrap_or_default();
        Nanos(self.midnight.0.wrapping_add(time.nanoseconds()))
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &SymbolTable) -> bool {
        self.locates.is_sound(symbols)
    }

    fn forget_unnamed(&mut self) {
        self.locates.forget_unnamed();
    }
}

impl ItchNormaliser {
    /// Determines the day. Sessions may cross midnight, where times of day start over, so the day is the one that places a
    /// message nearest to its receive time.
    #[inline(always)]
    fn follow_day(&mut self, message: &[u8], context: &Context) {
        if let (Some(received), Some(time)) = (context.received, timestamp(message)) {
            let ts_event = self.midnight.0.wrapping_add(time.nanoseconds());
            if ts_event.abs_diff(received.0) > HALF_A_DAY_NS {
                self.change_day(time, received);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn change_day(&mut self, time: NanosecondsSinceMidnight, received: Nanos) {
        if !self.is_midnight_fixed {
            let midnight = Zone::NewYork.nearest_midnight(time.nanoseconds(), received);
            self.midnight = midnight.unwrap_or(self.midnight);
        }
    }

    /// Returns the event of a message about `instrument`.
    #[inline]
    fn event(
        &self,
        kind: EventKind,
        instrument: InstrumentId,
        timestamp: NanosecondsSinceMidnight,
        context: &Context,
    ) -> Event {
        let ts_event = Nanos(self.midnight.0.wrapping_add(timestamp.nanoseconds()));
        context.event(kind, self.publisher, instrument, ts_event)
    }

    #[inline]
    fn known(&self, locate: u16) -> InstrumentId {
        self.locates.get(locate)
    }

    /// Returns the instrument of a message that names its symbol. A capture may begin after the directory.
    #[inline]
    fn named<S: Sink<Event>>(
        &mut self,
        locate: u16,
        stock: Ascii<8>,
        to: &mut Target<'_, S>,
    ) -> Result<InstrumentId, Refused> {
        let (publisher, Target { symbols, sink, .. }) = (self.publisher, to);
        self.locates
            .infer(locate, stock.0, || symbols.resolve(stock.0, publisher, |mapping| sink.put(mapping)))
    }

    /// Translates a message about an order. Returns `false`, and changes nothing, if the message is not about an order, has the
    /// wrong length, or adds an order under an unconfirmed locate. No branch depends on the type: see [`OrderMessage`].
    #[inline(always)]
    fn order<S: Sink<Event>>(&mut self, message: &[u8], context: &Context, sink: &mut S) -> bool {
        let Some(order) = OrderMessage::decode(message) else { return false };
        let instrument = self.locates.confirmed(order.stock_locate);
        if instrument >= UNWANTED {
            return instrument == UNWANTED || self.unconfirmed(message, context, sink);
        }
        sink.put(self.order_event(&order, instrument, context));
        true
    }

    #[inline(always)]
    fn order_event(&self, order: &OrderMessage, instrument: InstrumentId, context: &Context) -> Event {
        let kind = kind_of(order.action);
        let mut event = self.event(kind, instrument, order.timestamp, context);
        event.order_id = order.order_reference_number;
        event.size = order.shares;
        event.aux = order.other_number;
        event.side = SIDES[usize::from(order.buy_sell_indicator)];
        let price = Price::from_e4(order.price);
        event.price = if order.has_price { Some(price) } else { None };
        event.detail = u8::from(order.is_not_printable) * Event::NOT_PRINTABLE;
        event
    }

    /// Translates a message about an order with an unconfirmed locate. An addition, which names its symbol, is left to
    /// [`message`](Normaliser::message).
    ///
    /// The message is decoded again, because [`order`](Self::order) keeps the fields in registers and would otherwise have to
    /// write them to memory for every message.
    #[cold]
    #[inline(never)]
    fn unconfirmed<S: Sink<Event>>(&mut self, message: &[u8], context: &Context, sink: &mut S) -> bool {
        if is_addition(message) {
            return false;
        }
        let Some(order) = OrderMessage::decode(message) else { return false };
        let instrument = self.known(order.stock_locate);
        if instrument == InstrumentId::UNKNOWN {
            self.locates.note_unnamed(order.stock_locate);
        }
        if instrument != UNWANTED {
            sink.put(self.order_event(&order, instrument, context));
        }
        true
    }

    /// Translates an addition with an unconfirmed locate.
    fn added<S: Sink<Event>>(
        &mut self,
        order: &OrderMessage,
        stock: Ascii<8>,
        to: &mut Target<'_, S>,
    ) -> Result<(), Refused> {
        let instrument = self.named(order.stock_locate, stock, to)?;
        self.doubt_named_late(order.timestamp, to);
        if instrument != UNWANTED {
            to.sink.put(self.order_event(order, instrument, to.context));
        }
        Ok(())
    }

    /// Marks the book of an instrument that was named late as doubtful: it lacks the orders of earlier messages.
    #[cold]
    #[inline(never)]
    fn doubt_named_late<S: Sink<Event>>(
        &mut self,
        timestamp: NanosecondsSinceMidnight,
        to: &mut Target<'_, S>,
    ) {
        if let Some(instrument) = self.locates.take_named_late() {
            self.doubt(instrument, timestamp, to);
        }
    }

    /// Marks the book of `instrument` as possibly wrong, although no message is missing.
    #[cold]
    fn doubt<S: Sink<Event>>(
        &self,
        instrument: InstrumentId,
        timestamp: NanosecondsSinceMidnight,
        to: &mut Target<'_, S>,
    ) {
        if instrument < UNWANTED {
            let event = self.event(EventKind::Gap, instrument, timestamp, to.context);
            let nothing_missing = Gap { first: to.context.sequence, count: 0 };
            to.sink.put(event.with_gap(nothing_missing).with_contradiction());
        }
    }

    /// Marks the book of a contradiction as doubtful. If the contradiction corrects an inferred symbol, the wrong symbol's book
    /// is emptied, and the right one lacks orders.
    fn doubt_both<S: Sink<Event>>(
        &self,
        refused: Refused,
        timestamp: NanosecondsSinceMidnight,
        to: &mut Target<'_, S>,
    ) {
        // Its orders belong to another instrument: no message would delete them.
        if refused.corrected.is_some() && refused.instrument < UNWANTED {
            to.sink.put(self.event(EventKind::Clear, refused.instrument, timestamp, to.context));
        }
        self.doubt(refused.instrument, timestamp, to);
        if let Some(right) = refused.corrected.filter(|right| *right != refused.instrument) {
            self.doubt(right, timestamp, to);
        }
    }

    /// Translates a message that is not about an order. Returns the correction that a directory message made.
    fn not_an_order<S: Sink<Event>>(
        &mut self,
        message: Message<'_>,
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, Refused> {
        match message {
            Message::StockDirectory(directory) => return self.directory(directory, to),
            Message::SystemEvent(system) => {
                let event = self.session(system, to.context);
                to.sink.put(event);
            }
            Message::StockTradingAction(action) => {
                let (locate, stock, timestamp) = (action.stock_locate(), action.stock(), action.timestamp());
                let status = |event: Event| event.with_status(trading_status(action));
                self.put_named(EventKind::Status, locate, stock, timestamp, to, status)?;
            }
            Message::RegShoRestriction(rule) => {
                let (locate, stock, timestamp) = (rule.stock_locate(), rule.stock(), rule.timestamp());
                let status = |event: Event| event.with_status(short_sale_status(rule));
                self.put_named(EventKind::Status, locate, stock, timestamp, to, status)?;
            }
            Message::OperationalHalt(halt) => {
                let (locate, stock, timestamp) = (halt.stock_locate(), halt.stock(), halt.timestamp());
                let status = |event: Event| event.with_status(operational_status(halt));
                self.put_named(EventKind::Status, locate, stock, timestamp, to, status)?;
            }
            Message::Trade(trade) => {
                let (locate, stock, timestamp) = (trade.stock_locate(), trade.stock(), trade.timestamp());
                self.put_named(EventKind::Trade, locate, stock, timestamp, to, |mut event| {
                    event.size = trade.shares();
                    event.price = Some(Price::from_e4(trade.price().0));
                    event.aux = trade.match_number();
                    // The indicator describes the hidden order and has been `B` for every trade since 2014: the aggressor is unknown.
                    event
                })?;
            }
            Message::CrossTrade(cross) => {
                let (locate, stock, timestamp) = (cross.stock_locate(), cross.stock(), cross.timestamp());
                // A cross without shares reports that there was no cross.
                let kind = if cross.cross_shares() == 0 { EventKind::Other } else { EventKind::Trade };
                self.put_named(kind, locate, stock, timestamp, to, |mut event| {
                    event.price = Some(Price::from_e4(cross.cross_price().0));
                    event.aux = cross.match_number();
                    event.detail = Event::CROSS;
                    event.with_trade_shares(cross.cross_shares())
                })?;
            }
            Message::BrokenTrade(broken) => {
                let instrument = self.known(broken.stock_locate());
                if instrument != UNWANTED {
                    let mut event =
                        self.event(EventKind::TradeBreak, instrument, broken.timestamp(), to.context);
                    event.aux = broken.match_number();
                    to.sink.put(event);
                }
            }
            Message::NetOrderImbalanceIndicator(noii) => {
                let instrument = self.named(noii.stock_locate(), noii.stock(), to)?;
                if instrument != UNWANTED {
                    let event = self.event(EventKind::Imbalance, instrument, noii.timestamp(), to.context);
                    event.with_imbalance(imbalance(noii)).into_iter().for_each(|event| to.sink.put(event));
                }
            }
            Message::MarketParticipantPosition(position) => {
                self.locates.check(position.stock_locate(), position.stock().0)?;
                self.put_other(position.stock_locate(), position.timestamp(), to);
            }
            Message::MwcbDeclineLevel(levels) => {
                self.put_other(levels.stock_locate(), levels.timestamp(), to);
            }
            Message::MwcbStatus(status) => self.put_other(status.stock_locate(), status.timestamp(), to),
            Message::IpoQuotingPeriodUpdate(ipo) => {
                self.locates.check(ipo.stock_locate(), ipo.stock().0)?;
                self.put_other(ipo.stock_locate(), ipo.timestamp(), to);
            }
            Message::LuldAuctionCollar(collar) => {
                self.locates.check(collar.stock_locate(), collar.stock().0)?;
                self.put_other(collar.stock_locate(), collar.timestamp(), to);
            }
            Message::RetailPriceImprovementIndicator(interest) => {
                self.locates.check(interest.stock_locate(), interest.stock().0)?;
                self.put_other(interest.stock_locate(), interest.timestamp(), to);
            }
            Message::DirectListingWithCapitalRaisePriceDiscovery(listing) => {
                self.locates.check(listing.stock_locate(), listing.stock().0)?;
                self.put_other(listing.stock_locate(), listing.timestamp(), to);
            }
            // `order`, `unconfirmed` and `added` translate these: a message that decodes has the length of its type.
            Message::AddOrder(_)
            | Message::AddOrderWithMpid(_)
            | Message::OrderExecuted(_)
            | Message::OrderExecutedWithPrice(_)
            | Message::OrderCancel(_)
            | Message::OrderDelete(_)
            | Message::OrderReplace(_) => {}
        }
        Ok(None)
    }

    /// Emits the event of a message that names its symbol, unless the instrument is unwanted.
    #[inline]
    fn put_named<S: Sink<Event>>(
        &mut self,
        kind: EventKind,
        locate: u16,
        stock: Ascii<8>,
        timestamp: NanosecondsSinceMidnight,
        to: &mut Target<'_, S>,
        finish: impl FnOnce(Event) -> Event,
    ) -> Result<(), Refused> {
        let instrument = self.named(locate, stock, to)?;
        if instrument != UNWANTED {
            to.sink.put(finish(self.event(kind, instrument, timestamp, to.context)));
        }
        Ok(())
    }

    /// Returns the event of a session phase. A new day has new instrument numbers.
    fn session(&mut self, system: SystemEvent<'_>, context: &Context) -> Event {
        let event = self.event(EventKind::Session, InstrumentId::ALL, system.timestamp(), context);
        event.with_session(match system.event_code() {
            EventCode::StartOfMessages => {
                self.locates.clear();
                Session::StartOfMessages
            }
            EventCode::StartOfSystemHours => Session::StartOfSystemHours,
            EventCode::StartOfMarketHours => Session::StartOfMarketHours,
            EventCode::EndOfMarketHours => Session::EndOfMarketHours,
            EventCode::EndOfSystemHours => Session::EndOfSystemHours,
            EventCode::EndOfMessages => Session::EndOfMessages,
            EventCode::Unknown(_) => return Event { kind: EventKind::Other, ..event },
        })
    }

    /// Defines an instrument. Returns the correction of an inferred symbol.
    fn directory<S: Sink<Event>>(
        &mut self,
        directory: StockDirectory<'_>,
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, Refused> {
        let (stock, publisher) = (directory.stock(), self.publisher);
        let Target { symbols, sink, .. } = to;
        let Defined { instrument, corrected } =
            self.locates.define(directory.stock_locate(), stock.0, || {
                symbols.resolve(stock.0, publisher, |mapping| sink.put(mapping))
            })?;
        let contradiction = corrected.map(|corrected| corrected.contradiction);
        if let Some(wrong) = corrected {
            self.doubt_both(wrong, directory.timestamp(), to);
        }
        // The lookup counts an unreadable symbol; it defines nothing.
        if instrument != UNWANTED && instrument != InstrumentId::UNKNOWN {
            let event = self.event(EventKind::Definition, instrument, directory.timestamp(), to.context);
            to.sink.put(event.with_definition(definition(directory)));
        }
        Ok(contradiction)
    }

    fn put_other<S: Sink<Event>>(
        &self,
        locate: u16,
        timestamp: NanosecondsSinceMidnight,
        to: &mut Target<'_, S>,
    ) {
        let instrument = self.known(locate);
        if instrument != UNWANTED {
            to.sink.put(self.event(EventKind::Other, instrument, timestamp, to.context));
        }
    }
}

fn trading_status(action: StockTradingAction<'_>) -> Status {
    let (status, is_trading, is_quoting) = match action.trading_state() {
        TradingState::Halted => (StatusAction::Halt, Some(false), Some(false)),
        TradingState::Paused => (StatusAction::Pause, Some(false), Some(false)),
        TradingState::QuotationOnlyPeriod => (StatusAction::Quoting, Some(false), Some(true)),
        TradingState::Trading => (StatusAction::Trading, Some(true), Some(true)),
        TradingState::Unknown(_) => (StatusAction::None, None, None),
    };
    let reason = reason(action.reason_code());
    Status { action: status, reason, is_trading, is_quoting, is_short_sell_restricted: None }
}

fn short_sale_status(rule: RegShoRestriction<'_>) -> Status {
    let is_short_sell_restricted = match rule.reg_sho_action() {
        RegShoAction::NoPriceTest => Some(false),
        RegShoAction::RegShoShortSalePriceTestRestriction | RegShoAction::TestRestrictionRemains => {
            Some(true)
        }
        RegShoAction::Unknown(_) => None,
    };
    let action = StatusAction::ShortSaleRestrictionChange;
    Status { action, reason: 0, is_trading: None, is_quoting: None, is_short_sell_restricted }
}

fn operational_status(halt: OperationalHalt<'_>) -> Status {
    let (action, is_trading) = match halt.operational_halt_action() {
        OperationalHaltAction::Halted => (StatusAction::NotAvailableForTrading, Some(false)),
        OperationalHaltAction::TradingResumed => (StatusAction::None, Some(true)),
        OperationalHaltAction::Unknown(_) => (StatusAction::None, None),
    };
    Status { action, reason: OPERATIONAL, is_trading, is_quoting: None, is_short_sell_restricted: None }
}

fn definition(directory: StockDirectory<'_>) -> Definition {
    Definition {
        round_lot: directory.round_lot_size(),
        reference_price: None,
        tick: None,
        class: directory.issue_classification().raw(),
        listing: match directory.market_category() {
            // Nasdaq's three tiers.
            MarketCategory::NasdaqGlobalSelectMarket
            | MarketCategory::NasdaqGlobalMarket
            | MarketCategory::NasdaqCapitalMarket => b'Q',
            other => other.raw(),
        },
        is_test: directory.authenticity() == Authenticity::Test,
        is_etp: directory.etp_flag() == EtpFlag::Etp,
    }
}

fn imbalance(noii: NetOrderImbalanceIndicator<'_>) -> Imbalance {
    // A price of zero means that there is none.
    let price = |raw: u32| (raw != 0).then(|| Price::from_e4(raw));
    Imbalance {
        paired: shares(noii.paired_shares()),
        imbalance: shares(noii.imbalance_shares()),
        side: match noii.imbalance_direction() {
            ImbalanceDirection::Buy => Side::Bid,
            ImbalanceDirection::Sell => Side::Ask,
            ImbalanceDirection::None
            | ImbalanceDirection::InsufficientOrders
            | ImbalanceDirection::Paused
            | ImbalanceDirection::Unknown(_) => Side::None,
        },
        auction_type: noii.cross_type().raw(),
        variation: noii.price_variation_indicator().raw(),
        extensions: 0,
        market_imbalance: None,
        auction_time: None,
        reference_price: price(noii.current_reference_price().0),
        continuous_clearing_price: price(noii.near_price().0),
        auction_clearing_price: price(noii.far_price().0),
        indicative_price: None,
        upper_collar: None,
        lower_collar: None,
    }
}

const SIDES: [Side; 256] = sides(b'B', b'S');

/// Returns the shares of an imbalance, which events and DBN hold in 32 bits. A larger value becomes the greatest number, which
/// writers count as a value that does not fit.
fn shares(shares: u64) -> u32 {
    u32::try_from(shares).unwrap_or(u32::MAX)
}

/// Returns DBN's status reason for Nasdaq's reason code.
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
    use tapeworks_wire::nasdaq::itch50::{BuySellIndicator, Printable, SCHEMA};
    use tapeworks_wire::schema::{SplitMix64, arbitrary};

    use super::*;

    const CONTEXT: Context =
        Context { received: Some(Nanos(77)), sequence: 5, channel: 3, line: tapeworks_market::Line::B };

    /// Builds the event of an order message type by type, with the typed views.
    fn expected(message: Message<'_>, instrument: InstrumentId) -> Option<Event> {
        let mut event = Event::new(EventKind::Add, Publisher::XNAS_ITCH, instrument);
        (event.ts_recv, event.channel_sequence, event.channel) = (Nanos(77), 5, 3);
        event.set_line(tapeworks_market::Line::B);
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
        fn the_layouts_equal_the_typed_views(seed: u64) {
            let mut random = SplitMix64::new(seed);
            for structure in SCHEMA.messages {
                let mut bytes = Vec::new();
                arbitrary(&SCHEMA, structure, &mut random, &mut bytes);
                let Ok(message) = Message::decode(&bytes) else { continue };
                let mut normaliser = ItchNormaliser::new(&Start {
                    publisher: Publisher::XNAS_ITCH,
                    midnight: Nanos(1_000),
                    is_midnight_fixed: true,
                    sip_sizes: Default::default(),
                });
                let mut events = Vec::new();
                let locate = u16::from_be_bytes([bytes[1], bytes[2]]);
                prop_assert!(normaliser.locates.define(locate, *b"STOCK   ", || InstrumentId(7)).is_ok());
                let is_order = normaliser.order(&bytes, &CONTEXT, &mut |event| events.push(event));
                let expected = expected(message, normaliser.known(locate));
                prop_assert_eq!(is_order, expected.is_some());
                prop_assert_eq!(events.last(), expected.as_ref());
                // One byte more or less is the wrong length.
                bytes.push(0);
                let longer = normaliser.order(&bytes, &CONTEXT, &mut |_| {});
                bytes.truncate(bytes.len() - 2);
                let shorter = normaliser.order(&bytes, &CONTEXT, &mut |_| {});
                prop_assert!(!longer && !shorter);
            }
        }
    }
}
