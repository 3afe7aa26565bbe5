//! The dialects of IEX: quotes in TOPS 1.6, price levels in DEEP 1.0, orders in DEEP+ 1.0. Most other messages are the same in
//! all three.

use tapeworks_session::SessionId;
use tapeworks_wire::iex::{deep_plus10, deep10, tops16};
use tapeworks_wire::nasdaq::itch50::TradingState;
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch, SecondsSinceEpoch};

use crate::book::{Book, Order, Side};
use crate::dialect::{Dialect, SessionName};
use crate::instrument::{Instrument, is_tier_1};
use crate::kinds::Shows;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing, in_market_hours};
use crate::scenario::{SECOND_NS, VenueKind};

fn time(stamp: &Stamp) -> NanosecondsSinceEpoch {
    NanosecondsSinceEpoch(stamp.utc_ns)
}

fn price(raw: u32) -> Decimal<i64, 4> {
    Decimal(i64::from(raw))
}

/// Encodes a message of one protocol.
macro_rules! say_in {
    ($protocol:ident, $outbox:expr, $stamp:expr, $fields:ident |$feed:ident| { $($own:tt)* }) => {{
        use $protocol as $feed;
        $outbox.push($stamp, &$feed::$fields { timestamp: time($stamp), $($own)* }.encode());
    }};
}

/// Encodes a message that TOPS and DEEP share, in the venue's protocol.
macro_rules! say {
    ($outbox:expr, $kind:expr, $stamp:expr, $($message:tt)*) => {
        match $kind.row().shows {
            Shows::Quotes => say_in!(tops16, $outbox, $stamp, $($message)*),
            Shows::Levels | Shows::Orders => say_in!(deep10, $outbox, $stamp, $($message)*),
        }
    };
}

/// Encodes a message that TOPS, DEEP and DEEP+ share, in the venue's protocol.
macro_rules! say_in_all {
    ($outbox:expr, $kind:expr, $stamp:expr, $($message:tt)*) => {
        match $kind.row().shows {
            Shows::Orders => say_in!(deep_plus10, $outbox, $stamp, $($message)*),
            Shows::Levels | Shows::Quotes => say!($outbox, $kind, $stamp, $($message)*),
        }
    };
}

/// Writes a phase of the day, given by its ITCH letter. IEX uses `R` for the start of market hours.
fn system_event(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, code: u8) {
    let code = if code == b'Q' { b'R' } else { code };
    say_in_all!(outbox, kind, stamp, SystemEventFields |feed| { system_event: feed::SystemEventCode::from_raw(code) });
}

/// Writes the messages about a symbol before the day starts.
fn directory(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    index: u32,
    instrument: &Instrument,
    standing: &Standing,
) {
    let symbol = instrument.symbol;
    say_in_all!(outbox, kind, stamp, SecurityDirectoryFields |feed| {
        security_directory_flags: feed::SecurityDirectoryFlags(if instrument.etp { 1 << 5 } else { 0 }),
        symbol,
        round_lot_size: instrument.round_lot,
        adjusted_poc_price: price(instrument.reference_price()),
        luld_tier: if is_tier_1(index) { feed::LuldTier::Tier1NmsStock } else { feed::LuldTier::Tier2NmsStock },
    });
    trading_status(outbox, kind, stamp, symbol, standing);
    operational_halt(outbox, kind, stamp, symbol, standing.operational_halt);
    if standing.short_sale_test {
        return short_sale_test(outbox, kind, stamp, symbol);
    }
    say_in_all!(outbox, kind, stamp, ShortSalePriceTestStatusFields |feed| {
        short_sale_price_test_status: feed::ShortSalePriceTest::from_raw(u8::from(standing.was_restricted)),
        symbol,
        detail: feed::ShortSalePriceTestDetail::from_raw(if standing.was_restricted { b'C' } else { b' ' }),
    });
}

fn trading_status(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    symbol: Ascii<8>,
    standing: &Standing,
) {
    let status = match standing.state {
        TradingState::QuotationOnlyPeriod => b'O',
        other => other.raw(),
    };
    let reason = standing.reason.raw();
    say_in_all!(outbox, kind, stamp, TradingStatusFields |feed| {
        trading_status: feed::TradingStatusCode::from_raw(status),
        symbol,
        reason: Ascii(reason),
    });
}

fn operational_halt(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, symbol: Ascii<8>, halted: bool) {
    say_in_all!(outbox, kind, stamp, OperationalHaltStatusFields |feed| {
        operational_halt_status: feed::OperationalHaltCode::from_raw(if halted { b'O' } else { b'N' }),
        symbol,
    });
}

/// Writes the start of a short sale price test during the day.
fn short_sale_test(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, symbol: Ascii<8>) {
    say_in_all!(outbox, kind, stamp, ShortSalePriceTestStatusFields |feed| {
        short_sale_price_test_status: feed::ShortSalePriceTest::InEffect,
        symbol,
        detail: feed::ShortSalePriceTestDetail::from_raw(b'A'),
    });
}

/// Writes a retail liquidity indicator.
fn retail_interest(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, symbol: Ascii<8>, choice: u32) {
    say_in_all!(outbox, kind, stamp, RetailLiquidityIndicatorFields |feed| {
        retail_liquidity_indicator: match choice % 4 {
            0 => feed::RetailLiquidity::BuyInterest,
            1 => feed::RetailLiquidity::SellInterest,
            2 => feed::RetailLiquidity::BuyAndSellInterest,
            _ => feed::RetailLiquidity::NotApplicable,
        },
        symbol,
    });
}

/// Writes that the opening (`O`) or closing (`C`) process is complete, which TOPS does not report.
pub(crate) fn security_event(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    symbol: Ascii<8>,
    code: u8,
) {
    macro_rules! event {
        ($protocol:ident) => {
            say_in!($protocol, outbox, stamp, SecurityEventFields |feed| {
                security_event: feed::SecurityEventCode::from_raw(code),
                symbol,
            })
        };
    }
    match kind.row().shows {
        Shows::Levels => event!(deep10),
        Shows::Orders => event!(deep_plus10),
        Shows::Quotes => {}
    }
}

/// Writes the official opening (`Q`) or closing (`M`) price.
pub(crate) fn official_price(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    instrument: &Instrument,
    code: u8,
) {
    say!(outbox, kind, stamp, OfficialPriceFields |feed| {
        price_type: feed::PriceType::from_raw(code),
        symbol: instrument.symbol,
        official_price: price(instrument.reference_price()),
    });
}

/// Writes the state of an opening (`O`) or closing (`C`) auction, or of one that ends a halt (`H`) or a volatility pause (`V`).
///
/// DEEP+ has no such message.
pub(crate) fn auction(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    instrument: &Instrument,
    (code, scheduled_ns): (u8, u64),
    paired_shares: u32,
) {
    if kind.row().shows == Shows::Orders {
        return;
    }
    let reference = instrument.reference_price();
    let scheduled_utc_ns = stamp.utc_ns - stamp.time_ns + scheduled_ns;
    say!(outbox, kind, stamp, AuctionInformationFields |feed| {
        auction_type: feed::AuctionType::from_raw(code),
        symbol: instrument.symbol,
        paired_shares,
        reference_price: price(reference),
        indicative_clearing_price: price(reference + instrument.tick),
        imbalance_shares: paired_shares / 10,
        imbalance_side: feed::ImbalanceSide::Buy,
        extension_number: 0,
        scheduled_auction_time: SecondsSinceEpoch((scheduled_utc_ns / SECOND_NS) as u32),
        auction_book_clearing_price: price(reference),
        collar_reference_price: price(reference),
        lower_auction_collar: price(reference - reference / 10),
        upper_auction_collar: price(reference + reference / 10),
    });
}

/// Writes an auction's trade.
fn cross(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, instrument: &Instrument, trade: (u32, u64)) {
    const SINGLE_PRICE_CROSS: u8 = 1 << 3;
    let (shares, match_number) = trade;
    let mut print = Print::new(stamp, instrument, shares, instrument.reference_price(), match_number);
    print.conditions |= SINGLE_PRICE_CROSS;
    if kind.row().shows == Shows::Orders {
        return deep_plus_trade(outbox, stamp, &print);
    }
    self::trade(outbox, kind, stamp, &print);
}

/// DEEP+: writes a trade without a displayed order.
fn deep_plus_trade(outbox: &mut Outbox, stamp: &Stamp, print: &Print) {
    say_in!(deep_plus10, outbox, stamp, TradeFields |feed| {
        sale_condition_flags: feed::SaleConditionFlags(print.conditions),
        symbol: print.symbol,
        size: print.shares,
        price: price(print.price),
        trade_id: print.trade_id,
    });
}

fn trade(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, print: &Print) {
    say!(outbox, kind, stamp, TradeReportFields |feed| {
        sale_condition_flags: feed::SaleConditionFlags(print.conditions),
        symbol: print.symbol,
        size: print.shares,
        price: price(print.price),
        trade_id: print.trade_id,
    });
}

fn trade_break(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, print: &Print) {
    say_in_all!(outbox, kind, stamp, TradeBreakFields |feed| {
        sale_condition_flags: feed::SaleConditionFlags(print.conditions),
        symbol: print.symbol,
        size: print.shares,
        price: price(print.price),
        trade_id: print.trade_id,
    });
}

/// A TOPS quote: price and shares of the best bid and offer.
pub(crate) type Quote = [(u32, u32); 2];

pub(crate) fn quote(outbox: &mut Outbox, stamp: &Stamp, symbol: Ascii<8>, quote: Quote, halted: bool) {
    let [(bid_price, bid_size), (ask_price, ask_size)] = quote;
    let flags = u8::from(halted) << 7 | u8::from(!in_market_hours(stamp)) << 6;
    let fields = tops16::QuoteUpdateFields {
        quote_update_flags: tops16::QuoteUpdateFlags(flags),
        timestamp: time(stamp),
        symbol,
        bid_size,
        bid_price: price(bid_price),
        ask_price: price(ask_price),
        ask_size,
    };
    outbox.push(stamp, &fields.encode());
}

/// DEEP: writes the new size of a level. `last` marks the last update of its event.
pub(crate) fn level(
    outbox: &mut Outbox,
    stamp: &Stamp,
    symbol: Ascii<8>,
    book: &Book,
    (side, at): (Side, u32),
    last: bool,
) {
    let event_flags = deep10::EventFlags(u8::from(last));
    let (timestamp, size, price) = (time(stamp), book.level(side, at), price(at));
    match side {
        Side::Buy => outbox.push(
            stamp,
            &deep10::PriceLevelBuyUpdateFields { event_flags, timestamp, symbol, size, price }.encode(),
        ),
        Side::Sell => outbox.push(
            stamp,
            &deep10::PriceLevelSellUpdateFields { event_flags, timestamp, symbol, size, price }.encode(),
        ),
    }
}

/// The functions that all IEX dialects share.
macro_rules! alike {
    () => {
        /// Every feed uses channel 1.
        fn session(name: &SessionName) -> SessionId {
            SessionId::IexTp { protocol: name.code, channel: 1, session: name.number }
        }

        fn system_event(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, code: u8) {
            system_event(outbox, kind, stamp, code);
        }

        fn directory(
            outbox: &mut Outbox,
            kind: VenueKind,
            stamp: &Stamp,
            index: u32,
            instrument: &Instrument,
            standing: &Standing,
        ) {
            directory(outbox, kind, stamp, index, instrument, standing);
        }

        fn trading_state(
            outbox: &mut Outbox,
            kind: VenueKind,
            stamp: &Stamp,
            stock: Ascii<8>,
            standing: &Standing,
        ) {
            trading_status(outbox, kind, stamp, stock, standing);
        }

        fn operational_halt(
            outbox: &mut Outbox,
            kind: VenueKind,
            stamp: &Stamp,
            stock: Ascii<8>,
            standing: &Standing,
        ) {
            operational_halt(outbox, kind, stamp, stock, standing.operational_halt);
        }

        fn short_sale_test(
            outbox: &mut Outbox,
            kind: VenueKind,
            stamp: &Stamp,
            stock: Ascii<8>,
            _: &Standing,
        ) {
            short_sale_test(outbox, kind, stamp, stock);
        }

        fn retail_interest(
            outbox: &mut Outbox,
            kind: VenueKind,
            stamp: &Stamp,
            stock: Ascii<8>,
            choice: u32,
        ) {
            retail_interest(outbox, kind, stamp, stock, choice);
        }

        fn cross(
            outbox: &mut Outbox,
            kind: VenueKind,
            stamp: &Stamp,
            instrument: &Instrument,
            shares: u32,
            match_number: u64,
            _: u8,
        ) {
            cross(outbox, kind, stamp, instrument, (shares, match_number));
        }

        fn trade_break(outbox: &mut Outbox, kind: VenueKind, _: &Stamp, stamp: &Stamp, print: &Print) {
            trade_break(outbox, kind, stamp, print);
        }

        /// Writes the time at offset 2, in nanoseconds since 1970.
        fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
            if let Some(place) = message.get_mut(2..10) {
                place.copy_from_slice(&utc_ns.to_le_bytes());
            }
        }
    };
}

/// TOPS sends quotes and DEEP sends levels; both send the same trades.
pub(crate) struct Iex;

impl Dialect for Iex {
    const HAS_ORDERS: bool = false;

    fn trade(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, print: &Print) {
        trade(outbox, kind, stamp, print);
    }

    alike!();
}

/// DEEP+ sends orders. A changed order keeps its number.
pub(crate) struct DeepPlus;

/// Writes that a displayed order has a new price, size, or priority.
fn modify(outbox: &mut Outbox, stamp: &Stamp, symbol: Ascii<8>, order: Order, flags: u8) {
    say_in!(deep_plus10, outbox, stamp, OrderModifyFields |feed| {
        modify_flags: feed::ModifyFlags(flags),
        symbol,
        order_id_reference: order.reference,
        size: order.shares,
        price: price(order.price),
    });
}

impl Dialect for DeepPlus {
    const HAS_ORDERS: bool = true;
    const KEEPS_REFERENCES: bool = true;

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, change: &Change) {
        let symbol = instrument.symbol;
        match *change {
            Change::Add { side, order, .. } => say_in!(deep_plus10, outbox, stamp, AddOrderFields |feed| {
                side: match side {
                    Side::Buy => feed::Side::Buy,
                    Side::Sell => feed::Side::Sell,
                },
                symbol,
                order_id: order.reference,
                size: order.shares,
                price: price(order.price),
            }),
            Change::Execute { order: Order { reference, price: at, .. }, shares, match_number, .. }
            | Change::ExecuteAt { order: Order { reference, .. }, shares, match_number, price: at, .. } => {
                let print = Print::new(stamp, instrument, shares, at, match_number);
                say_in!(deep_plus10, outbox, stamp, OrderExecutedFields |feed| {
                    sale_condition_flags: feed::SaleConditionFlags(print.conditions),
                    symbol,
                    order_id_reference: reference,
                    size: shares,
                    price: price(at),
                    trade_id: match_number,
                });
            }
            // DEEP+ has no message for a reduction.
            Change::Cancel { order, shares, .. } => {
                let left = Order { shares: order.shares.saturating_sub(shares), ..order };
                modify(outbox, stamp, symbol, left, MAINTAIN_PRIORITY);
            }
            Change::Delete { order, .. } => say_in!(deep_plus10, outbox, stamp, OrderDeleteFields |feed| {
                reserved: [0],
                symbol,
                order_id_reference: order.reference,
            }),
            Change::Replace { new, .. } => modify(outbox, stamp, symbol, new, 0),
            Change::Hidden { price: at, shares, match_number } => {
                deep_plus_trade(outbox, stamp, &Print::new(stamp, instrument, shares, at, match_number));
            }
        }
    }

    alike!();
}

/// Modify flag: the order keeps its priority.
const MAINTAIN_PRIORITY: u8 = 1;
