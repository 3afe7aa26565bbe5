//! IEX TOPS, DEEP and DEEP+ to normalised events.
//!
//! Every message names its instrument by symbol. TOPS sends both sides of a quote together, which become two events, the second
//! with [`Flags::LAST`]. DEEP sends price levels, and its event flag marks when the book is consistent. DEEP+ sends orders, and a
//! changed order keeps its number. A quote's flag can mark the symbol as halted without a status message.
//!
//! Cost: the message's own cache line, one lookup of the symbol and the event or events.

use tapeworks_market::event::{Definition, Imbalance, Session, Status, StatusAction};
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Price, Publisher, Side};
use tapeworks_session::SessionId;
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::iex::tp::{MessageProtocolId, Segment};
use tapeworks_wire::iex::{deep_plus10, deep10, tops16};
use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderMessages};
use tapeworks_wire::{Ascii, Decimal, DecodeError, NanosecondsSinceEpoch};

use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{
    Context, Normaliser, OPERATIONAL, Start, Target, kind_of, reason, sides, with_order,
};
use crate::symbols::UNWANTED;

/// Translates the messages of one IEX channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
struct IexNormaliser {
    publisher: Publisher,
    /// By instrument: whether the last quote marked the symbol as halted.
    halted: Vec<bool>,
}

/// The messages that TOPS, DEEP and DEEP+ share, field for field; `$more` has those that only some of them share.
macro_rules! shared_messages {
    ($normaliser:ident, $message:ident, $protocol:ident, $to:ident, $more:ident) => {
        match $message {
            $protocol::Message::SystemEvent(system) => {
                use $protocol::SystemEventCode as Code;
                let session = match system.system_event() {
                    Code::StartOfMessages => Some(Session::StartOfMessages),
                    Code::StartOfSystemHours => Some(Session::StartOfSystemHours),
                    Code::StartOfRegularMarketHours => Some(Session::StartOfMarketHours),
                    Code::EndOfRegularMarketHours => Some(Session::EndOfMarketHours),
                    Code::EndOfSystemHours => Some(Session::EndOfSystemHours),
                    Code::EndOfMessages => Some(Session::EndOfMessages),
                    Code::Unknown(_) => None,
                };
                $normaliser.session(session, system.timestamp(), $to)
            }
            $protocol::Message::SecurityDirectory(directory) => {
                let flags = directory.security_directory_flags();
                // The lookup counts an unreadable symbol; it defines nothing.
                let definition = Definition {
                    round_lot: directory.round_lot_size(),
                    reference_price: price(directory.adjusted_poc_price()),
                    tick: None,
                    class: b' ',
                    listing: b' ',
                    is_test: flags.test_security(),
                    is_etp: flags.etp(),
                };
                $normaliser.put(directory.symbol(), directory.timestamp(), $to, |event| {
                    match event.instrument {
                        InstrumentId::UNKNOWN => Event { kind: EventKind::Other, ..event },
                        _ => event.with_definition(definition),
                    }
                })
            }
            $protocol::Message::TradingStatus(status) => {
                use $protocol::TradingStatusCode as Code;
                let (action, is_trading) = match status.trading_status() {
                    Code::TradingHaltedAcrossAllUsEquityMarkets => (StatusAction::Halt, Some(false)),
                    Code::TradingHaltReleasedIntoAnOrderAcceptancePeriodOnIex => {
                        (StatusAction::PreOpen, Some(false))
                    }
                    Code::TradingPausedAndOrderAcceptancePeriodOnIex => (StatusAction::Pause, Some(false)),
                    Code::TradingOnIex => (StatusAction::Trading, Some(true)),
                    Code::Unknown(_) => (StatusAction::None, None),
                };
                let why = status.reason();
                let reason = reason(why.trimmed());
                $normaliser.put(status.symbol(), status.timestamp(), $to, |event| {
                    event.with_status(Status {
                        action,
                        reason,
                        is_trading,
                        is_quoting: is_trading,
                        is_short_sell_restricted: None,
                    })
                })
            }
            $protocol::Message::OperationalHaltStatus(halt) => {
                use $protocol::OperationalHaltCode as Code;
                let is_trading = match halt.operational_halt_status() {
                    Code::IexSpecificOperationalTradingHalt => Some(false),
                    Code::NotOperationallyHaltedOnIex => Some(true),
                    Code::Unknown(_) => None,
                };
                $normaliser.put(halt.symbol(), halt.timestamp(), $to, |event| {
                    event.with_status(operational(is_trading))
                })
            }
            $protocol::Message::ShortSalePriceTestStatus(test) => {
                use $protocol::ShortSalePriceTest as Code;
                let restricted = match test.short_sale_price_test_status() {
                    Code::NotInEffect => Some(false),
                    Code::InEffect => Some(true),
                    Code::Unknown(_) => None,
                };
                $normaliser.put(test.symbol(), test.timestamp(), $to, |event| {
                    event.with_status(Status {
                        action: StatusAction::ShortSaleRestrictionChange,
                        reason: 0,
                        is_trading: None,
                        is_quoting: None,
                        is_short_sell_restricted: restricted,
                    })
                })
            }
            $protocol::Message::TradeBreak(broken) => {
                $normaliser.put(broken.symbol(), broken.timestamp(), $to, |mut event| {
                    event.kind = EventKind::TradeBreak;
                    event.size = broken.size();
                    event.price = price(broken.price());
                    event.aux = broken.trade_id();
                    event
                })
            }
            $protocol::Message::RetailLiquidityIndicator(interest) => {
                $normaliser.put(interest.symbol(), interest.timestamp(), $to, |event| event)
            }
            own => $more!($normaliser, own, $protocol, $to),
        }
    };
}

/// The messages that only TOPS and DEEP share: every trade in one message, and auctions.
macro_rules! trades_and_auctions {
    ($normaliser:ident, $message:ident, $protocol:ident, $to:ident) => {
        match $message {
            $protocol::Message::TradeReport(trade) => {
                $normaliser.put(trade.symbol(), trade.timestamp(), $to, |mut event| {
                    event.kind = EventKind::Trade;
                    event.size = trade.size();
                    event.price = price(trade.price());
                    event.aux = trade.trade_id();
                    event.detail = detail_of(trade.sale_condition_flags().0);
                    event
                })
            }
            $protocol::Message::AuctionInformation(auction) => {
                use $protocol::ImbalanceSide as Code;
                let side = match auction.imbalance_side() {
                    Code::Buy => Side::Bid,
                    Code::Sell => Side::Ask,
                    Code::None | Code::Unknown(_) => Side::None,
                };
                let time = u64::from(auction.scheduled_auction_time().0) * Nanos::SECOND;
                let imbalance = Imbalance {
                    paired: auction.paired_shares(),
                    imbalance: auction.imbalance_shares(),
                    side,
                    auction_type: auction.auction_type().raw(),
                    variation: b'~',
                    extensions: auction.extension_number(),
                    market_imbalance: None,
                    auction_time: (time != 0).then_some(Nanos(time)),
                    reference_price: price(auction.reference_price()),
                    continuous_clearing_price: price(auction.auction_book_clearing_price()),
                    auction_clearing_price: None,
                    indicative_price: price(auction.indicative_clearing_price()),
                    upper_collar: price(auction.upper_auction_collar()),
                    lower_collar: price(auction.lower_auction_collar()),
                };
                $normaliser.imbalance(auction.symbol(), auction.timestamp(), imbalance, $to)
            }
            $protocol::Message::OfficialPrice(official) => {
                $normaliser.put(official.symbol(), official.timestamp(), $to, |event| event)
            }
            own => return Some(own),
        }
    };
}

/// No further shared messages.
macro_rules! no_more {
    ($normaliser:ident, $message:ident, $protocol:ident, $to:ident) => {
        return Some($message)
    };
}

/// A message names its symbol.
pub(crate) const NAMING: Naming = Naming {
    symbol: "symbol",
    suffix: None,
    suffixes: Suffixes::AsTheyStand,
    number: None,
    zero_is_none: false,
    directory: None,
    issue_name: None,
};

/// Returns the time of a message, in nanoseconds since 1970. All these feeds have it after the type and one byte.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*message.get(2..)?.first_chunk::<8>()?))
}

/// Returns the feed of a segment.
fn feed_of(payload: &[u8]) -> Option<MessageProtocolId> {
    let segment = Segment::decode(payload).ok()?;
    let length = usize::from(segment.payload_length());
    // Ethernet pads short frames, so there may be more bytes than the header states; never fewer in a complete packet, but a
    // capture may have truncated it.
    let is_sound = segment.version() == 1
        && segment.reserved() == [0]
        && (segment.message_count() == 0) == (length == 0);
    is_sound.then(|| segment.message_protocol_id())
}

/// Implements one IEX feed: the messages that only it has, and its recognition.
macro_rules! iex_feed {
    ($(#[$doc:meta])* $name:ident, $protocol:ident, $id:ident, $translate:ident $(, $frequent:ident)?) => {
        $(#[$doc])*
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[derive(Debug)]
        pub(crate) struct $name(IexNormaliser);

        impl $name {
            pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
                $protocol::Message::decode(message).map(drop)
            }

            pub(crate) fn recognise(payload: &[u8]) -> bool {
                feed_of(payload) == Some(MessageProtocolId::$id)
            }

            pub(crate) fn has_session(session: &SessionId) -> bool {
                matches!(session, SessionId::IexTp { protocol, .. } if *protocol == MessageProtocolId::$id.raw())
            }
        }

        impl Normaliser for $name {
            fn new(start: &Start) -> Self {
                Self(IexNormaliser { publisher: start.publisher, halted: Vec::new() })
            }

            $(
                #[inline(always)]
                fn frequent<S: Sink<Event>>(&mut self, message: &[u8], to: &mut Target<'_, S>) -> bool {
                    self.0.$frequent(message, to)
                }
            )?

            #[inline]
            fn message<S: Sink<Event>>(
                &mut self,
                message: &[u8],
                to: &mut Target<'_, S>,
            ) -> Result<Option<Contradiction>, DecodeError> {
                self.0.$translate($protocol::Message::decode(message)?, to);
                Ok(None)
            }
        }
    };
}

iex_feed! {
    /// Translates the messages of one TOPS channel.
    Tops, tops16, Tops, tops
}

iex_feed! {
    /// Translates the messages of one DEEP channel.
    Deep, deep10, Deep, deep
}

iex_feed! {
    /// Translates the messages of one DEEP+ channel.
    DeepPlus, deep_plus10, DeepPlus, deep_plus, order
}

const SIDES: [Side; 256] = sides(deep_plus10::Side::Buy.raw(), deep_plus10::Side::Sell.raw());

/// DEEP+'s messages about orders.
const ORDERS: OrderMessages = {
    const NAMES: OrderFieldNames = OrderFieldNames {
        instrument: "symbol",
        time: "timestamp",
        order_id: "order_id_reference",
        ..OrderFieldNames::NONE
    };
    const TERMS: OrderFieldNames = OrderFieldNames { shares: "size", price: "price", ..NAMES };
    let added = OrderFieldNames { order_id: "order_id", side: "side", ..TERMS };
    let modified = OrderFieldNames { other_number: "order_id_reference", flags: "modify_flags", ..TERMS };
    let executed = OrderFieldNames { other_number: "trade_id", flags: "sale_condition_flags", ..TERMS };
    OrderMessages::of(&deep_plus10::SCHEMA)
        .with(&deep_plus10::AddOrder::SCHEMA, OrderAction::Add, added)
        .with(&deep_plus10::OrderModify::SCHEMA, OrderAction::Modify, modified)
        .with(&deep_plus10::OrderDelete::SCHEMA, OrderAction::Delete, NAMES)
        .with(&deep_plus10::OrderExecuted::SCHEMA, OrderAction::Execute, executed)
};

/// The deletion of a nonexistent order.
pub(crate) static HARMLESS: [u8; 26] = {
    let mut message = [0; 26];
    message[0] = b'R';
    message
};

impl IexNormaliser {
    /// Translates one TOPS message.
    #[inline]
    fn tops<S: Sink<Event>>(&mut self, message: tops16::Message<'_>, to: &mut Target<'_, S>) {
        match message {
            tops16::Message::QuoteUpdate(quote) => self.quote(&quote, to),
            other => {
                // Quotes are handled above; TOPS has no other message of its own.
                let _ = self.shared_tops(other, to);
            }
        }
    }

    /// Translates one DEEP message.
    #[inline]
    fn deep<S: Sink<Event>>(&mut self, message: deep10::Message<'_>, to: &mut Target<'_, S>) {
        match message {
            deep10::Message::PriceLevelBuyUpdate(level) => {
                let is_last = level.event_flags().event_processing_complete();
                self.level(
                    level.symbol(),
                    level.timestamp(),
                    Side::Bid,
                    level.price(),
                    level.size(),
                    is_last,
                    to,
                );
            }
            deep10::Message::PriceLevelSellUpdate(level) => {
                let is_last = level.event_flags().event_processing_complete();
                self.level(
                    level.symbol(),
                    level.timestamp(),
                    Side::Ask,
                    level.price(),
                    level.size(),
                    is_last,
                    to,
                );
            }
            other => {
                if let Some(deep10::Message::SecurityEvent(event)) = self.shared_deep(other, to) {
                    self.put(event.symbol(), event.timestamp(), to, |event| event);
                }
            }
        }
    }

    /// Translates one DEEP+ message about an order. Returns `false` to leave it to the general path; at most its symbol has been
    /// announced.
    #[inline(always)]
    fn order<S: Sink<Event>>(&self, message: &[u8], to: &mut Target<'_, S>) -> bool {
        let Some(mut order) = ORDERS.decode(message) else { return false };
        let instrument = self.resolve(Ascii(order.instrument.to_le_bytes()), to);
        if instrument == UNWANTED {
            return false;
        }
        if order.price == 0 {
            order.price_unit = 0;
        }
        let event = to.context.event(kind_of(order.action), self.publisher, instrument, Nanos(order.time));
        let Some(mut event) = with_order(event, &order, &SIDES) else { return false };
        event.detail = match order.action {
            OrderAction::Execute => detail_of(order.flags),
            _ if deep_plus10::ModifyFlags(order.flags).maintain_priority() => Event::KEEPS_PRIORITY,
            _ => 0,
        };
        to.sink.put(event);
        true
    }

    /// Translates one DEEP+ message.
    #[inline]
    fn deep_plus<S: Sink<Event>>(&mut self, message: deep_plus10::Message<'_>, to: &mut Target<'_, S>) {
        match message {
            deep_plus10::Message::AddOrder(m) => self.put(m.symbol(), m.timestamp(), to, |event| Event {
                kind: EventKind::Add,
                side: match m.side() {
                    deep_plus10::Side::Buy => Side::Bid,
                    deep_plus10::Side::Sell => Side::Ask,
                    deep_plus10::Side::Unknown(_) => Side::None,
                },
                order_id: m.order_id(),
                size: m.size(),
                price: price(m.price()),
                ..event
            }),
            deep_plus10::Message::OrderModify(m) => self.put(m.symbol(), m.timestamp(), to, |event| Event {
                kind: EventKind::Replace,
                order_id: m.order_id_reference(),
                aux: m.order_id_reference(),
                size: m.size(),
                price: price(m.price()),
                detail: if m.modify_flags().maintain_priority() { Event::KEEPS_PRIORITY } else { 0 },
                ..event
            }),
            deep_plus10::Message::OrderDelete(m) => self.put(m.symbol(), m.timestamp(), to, |event| Event {
                kind: EventKind::Delete,
                order_id: m.order_id_reference(),
                ..event
            }),
            deep_plus10::Message::OrderExecuted(m) => {
                self.put(m.symbol(), m.timestamp(), to, |event| Event {
                    kind: EventKind::Execute,
                    order_id: m.order_id_reference(),
                    size: m.size(),
                    price: price(m.price()),
                    aux: m.trade_id(),
                    detail: detail_of(m.sale_condition_flags().0),
                    ..event
                })
            }
            other => self.not_an_order(other, to),
        }
    }

    /// Translates a DEEP+ message that changes no order.
    #[cold]
    #[inline(never)]
    fn not_an_order<S: Sink<Event>>(&mut self, message: deep_plus10::Message<'_>, to: &mut Target<'_, S>) {
        use deep_plus10::Message;
        match self.shared_deep_plus(message, to) {
            Some(Message::Trade(m)) => self.put(m.symbol(), m.timestamp(), to, |event| Event {
                kind: EventKind::Trade,
                size: m.size(),
                price: price(m.price()),
                aux: m.trade_id(),
                detail: detail_of(m.sale_condition_flags().0),
                ..event
            }),
            Some(Message::ClearBook(m)) => self.put(m.symbol(), m.timestamp(), to, |event| {
                // An unreadable symbol has no book.
                let kind = match event.instrument {
                    InstrumentId::UNKNOWN => EventKind::Other,
                    _ => EventKind::Clear,
                };
                Event { kind, ..event }
            }),
            Some(Message::SecurityEvent(m)) => self.put(m.symbol(), m.timestamp(), to, |event| event),
            // Orders, which have already been translated.
            _ => {}
        }
    }

    /// Translates a shared message. Returns `Some` if the message is one of DEEP+'s own.
    fn shared_deep_plus<'m, S: Sink<Event>>(
        &mut self,
        message: deep_plus10::Message<'m>,
        to: &mut Target<'_, S>,
    ) -> Option<deep_plus10::Message<'m>> {
        shared_messages!(self, message, deep_plus10, to, no_more);
        None
    }

    /// Translates a shared message. Returns `Some` if the message is one of TOPS's own.
    #[inline(never)]
    fn shared_tops<'m, S: Sink<Event>>(
        &mut self,
        message: tops16::Message<'m>,
        to: &mut Target<'_, S>,
    ) -> Option<tops16::Message<'m>> {
        shared_messages!(self, message, tops16, to, trades_and_auctions);
        None
    }

    /// Translates a shared message. Returns `Some` if the message is one of DEEP's own.
    #[inline(never)]
    fn shared_deep<'m, S: Sink<Event>>(
        &mut self,
        message: deep10::Message<'m>,
        to: &mut Target<'_, S>,
    ) -> Option<deep10::Message<'m>> {
        shared_messages!(self, message, deep10, to, trades_and_auctions);
        None
    }

    #[inline]
    fn event(&self, instrument: InstrumentId, timestamp: NanosecondsSinceEpoch, context: &Context) -> Event {
        context.event(EventKind::Other, self.publisher, instrument, Nanos(timestamp.nanoseconds()))
    }

    #[inline]
    fn resolve<S: Sink<Event>>(&self, symbol: Ascii<8>, to: &mut Target<'_, S>) -> InstrumentId {
        let sink = &mut *to.sink;
        to.symbols.resolve(symbol.0, self.publisher, |mapping| sink.put(mapping))
    }

    /// Emits the event of a message about one instrument, completed by `complete`.
    #[inline]
    fn put<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        timestamp: NanosecondsSinceEpoch,
        to: &mut Target<'_, S>,
        complete: impl FnOnce(Event) -> Event,
    ) {
        let instrument = self.resolve(symbol, to);
        if instrument != UNWANTED {
            to.sink.put(complete(self.event(instrument, timestamp, to.context)));
        }
    }

    fn session<S: Sink<Event>>(
        &mut self,
        session: Option<Session>,
        timestamp: NanosecondsSinceEpoch,
        to: &mut Target<'_, S>,
    ) {
        let event = self.event(InstrumentId::ALL, timestamp, to.context);
        to.sink.put(session.map_or(event, |session| event.with_session(session)));
    }

    fn imbalance<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        timestamp: NanosecondsSinceEpoch,
        imbalance: Imbalance,
        to: &mut Target<'_, S>,
    ) {
        let instrument = self.resolve(symbol, to);
        if instrument != UNWANTED {
            let event = self.event(instrument, timestamp, to.context);
            event.with_imbalance(imbalance).into_iter().for_each(|event| to.sink.put(event));
        }
    }

    #[inline]
    fn quote<S: Sink<Event>>(&mut self, quote: &tops16::QuoteUpdate<'_>, to: &mut Target<'_, S>) {
        let instrument = self.resolve(quote.symbol(), to);
        if instrument == UNWANTED {
            return;
        }
        let mut event = self.event(instrument, quote.timestamp(), to.context);
        let is_halted = quote.quote_update_flags().halted();
        let was_halted = self.halted.get(instrument.index()).copied().unwrap_or(false);
        if was_halted != is_halted && instrument != InstrumentId::UNKNOWN {
            self.note_halt(instrument, is_halted);
            to.sink.put(event.with_status(operational(Some(!is_halted))));
        }
        event.kind = EventKind::Quote;
        event.set_flags(Flags::TOP_OF_BOOK);
        (event.side, event.size, event.price) = (Side::Bid, quote.bid_size(), price(quote.bid_price()));
        to.sink.put(event);
        event.set_flags(Flags::TOP_OF_BOOK.with(Flags::LAST));
        (event.side, event.size, event.price) = (Side::Ask, quote.ask_size(), price(quote.ask_price()));
        to.sink.put(event);
    }

    #[cold]
    #[inline(never)]
    fn note_halt(&mut self, instrument: InstrumentId, is_halted: bool) {
        if self.halted.len() <= instrument.index() {
            self.halted.resize(instrument.index() + 1, false);
        }
        self.halted[instrument.index()] = is_halted;
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message, which two message types share")]
    #[inline]
    fn level<S: Sink<Event>>(
        &mut self,
        symbol: Ascii<8>,
        timestamp: NanosecondsSinceEpoch,
        side: Side,
        level: Decimal<i64, 4>,
        size: u32,
        is_last: bool,
        to: &mut Target<'_, S>,
    ) {
        let instrument = self.resolve(symbol, to);
        if instrument == UNWANTED {
            return;
        }
        let mut event = self.event(instrument, timestamp, to.context);
        event.kind = EventKind::Level;
        event.set_flags(if is_last {
            Flags::MARKET_BY_PRICE.with(Flags::LAST)
        } else {
            Flags::MARKET_BY_PRICE
        });
        (event.side, event.size) = (side, size);
        event.price = level.to_e9().and_then(Price::from_e9);
        to.sink.put(event);
    }
}

/// Returns the status of a venue's operational halt, or of its end.
const fn operational(is_trading: Option<bool>) -> Status {
    let action = match is_trading {
        Some(false) => StatusAction::NotAvailableForTrading,
        Some(true) | None => StatusAction::None,
    };
    Status { action, reason: OPERATIONAL, is_trading, is_quoting: None, is_short_sell_restricted: None }
}

/// Returns the flags of what an execution or trade counts for, from its sale condition flags. The odd-lot flag is ignored because
/// the size already shows it.
#[inline]
const fn detail_of(flags: u8) -> u8 {
    const CROSS: u8 = 1 << 3;
    const EXTENDED: u8 = 1 << 6;
    let hours = if flags & EXTENDED != 0 { Event::EXTENDED_HOURS } else { Event::REGULAR_HOURS };
    if flags & CROSS != 0 { hours | Event::CROSS } else { hours }
}

/// Returns a price; IEX represents "no price" as zero.
#[inline]
fn price(price: Decimal<i64, 4>) -> Option<Price> {
    if price.0 == 0 { None } else { price.to_e9().and_then(Price::from_e9) }
}
