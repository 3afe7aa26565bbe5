//! Nasdaq TotalView-ITCH 5.0 to normalised events.
//!
//! What is peculiar here: times count from midnight in New York; an instrument is a stock locate of the day, which the
//! stock directory, or an order's own symbol, explains; an order message other than an addition names no side, price or
//! shares of the order it refers to (the book completes that).
//!
//! Cost: the message's own line, a load from the table of locates (256 KiB, second-level cache) and the event.

use tapeworks_flow::Sink;
use tapeworks_market::event::{Definition, Imbalance, Session, Status, StatusAction};
use tapeworks_market::instrument::Symbol;
use tapeworks_market::{Event, EventKind, InstrumentId, Nanos, Price, Publisher, Side};
use tapeworks_wire::nasdaq::itch50::{
    Authenticity, BuySellIndicator, EtpFlag, EventCode, ImbalanceDirection, Message, OperationalHaltAction,
    Printable, ReasonCode, RegShoAction, TradingState,
};
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
    /// By stock locate.
    instruments: Box<[InstrumentId; 1 << 16]>,
}

impl ItchNormaliser {
    pub(crate) fn new(publisher: Publisher, midnight: Nanos, is_midnight_fixed: bool) -> Self {
        Self {
            publisher,
            midnight,
            is_midnight_fixed,
            instruments: Box::new([InstrumentId::UNKNOWN; 1 << 16]),
        }
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
        self.instruments[usize::from(locate)]
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
        self.instruments[usize::from(locate)] = instrument;
        instrument
    }

    /// Translates one message. The four in five that are about orders come first.
    #[inline]
    pub(crate) fn normalise<S: Sink<Event>>(
        &mut self,
        message: Message<'_>,
        context: &Context,
        symbols: &mut SymbolTable,
        sink: &mut S,
    ) {
        match message {
            Message::AddOrder(add) => {
                let instrument = self.named(add.stock_locate(), add.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Add, instrument, add.timestamp(), context);
                event.order_id = add.order_reference_number();
                event.side = side(add.buy_sell_indicator());
                event.size = add.shares();
                event.price = Some(Price::from_e4(add.price().0));
                sink.put(event);
            }
            Message::OrderDelete(delete) => {
                let instrument = self.known(delete.stock_locate());
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Delete, instrument, delete.timestamp(), context);
                event.order_id = delete.order_reference_number();
                sink.put(event);
            }
            Message::OrderReplace(replace) => {
                let instrument = self.known(replace.stock_locate());
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Replace, instrument, replace.timestamp(), context);
                event.order_id = replace.original_order_reference_number();
                event.aux = replace.new_order_reference_number();
                event.size = replace.shares();
                event.price = Some(Price::from_e4(replace.price().0));
                sink.put(event);
            }
            Message::OrderExecuted(executed) => {
                let instrument = self.known(executed.stock_locate());
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Execute, instrument, executed.timestamp(), context);
                event.order_id = executed.order_reference_number();
                event.aux = executed.match_number();
                event.size = executed.executed_shares();
                sink.put(event);
            }
            Message::OrderCancel(cancel) => {
                let instrument = self.known(cancel.stock_locate());
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Cancel, instrument, cancel.timestamp(), context);
                event.order_id = cancel.order_reference_number();
                event.size = cancel.cancelled_shares();
                sink.put(event);
            }
            Message::AddOrderWithMpid(add) => {
                let instrument = self.named(add.stock_locate(), add.stock(), symbols, sink);
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Add, instrument, add.timestamp(), context);
                event.order_id = add.order_reference_number();
                event.side = side(add.buy_sell_indicator());
                event.size = add.shares();
                event.price = Some(Price::from_e4(add.price().0));
                sink.put(event);
            }
            Message::OrderExecutedWithPrice(executed) => {
                let instrument = self.known(executed.stock_locate());
                if instrument == UNWANTED {
                    return;
                }
                let mut event = self.event(EventKind::Execute, instrument, executed.timestamp(), context);
                event.order_id = executed.order_reference_number();
                event.aux = executed.match_number();
                event.size = executed.executed_shares();
                event.price = Some(Price::from_e4(executed.execution_price().0));
                if executed.printable() == Printable::No {
                    event.detail = Event::NOT_PRINTABLE;
                }
                sink.put(event);
            }
            rare => self.rare(rare, context, symbols, sink),
        }
    }

    #[cold]
    #[inline(never)]
    fn rare<S: Sink<Event>>(
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

#[inline]
const fn side(indicator: BuySellIndicator) -> Side {
    match indicator {
        BuySellIndicator::Buy => Side::Bid,
        BuySellIndicator::Sell => Side::Ask,
        BuySellIndicator::Unknown(_) => Side::None,
    }
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
