//! What IEX says: quotes in TOPS 1.6, price levels in DEEP 1.0, the rest alike in both.

use tapeworks_wire::iex::{deep10, tops16};
use tapeworks_wire::nasdaq::itch50::TradingState;
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch, SecondsSinceEpoch};

use crate::book::{Book, Side};
use crate::instrument::Instrument;
use crate::outbox::{Outbox, Stamp, Standing};
use crate::scenario::{SECOND_NS, VenueKind};
use crate::schedule::{CLOSE_NS, OPEN_NS};

fn time(stamp: &Stamp) -> NanosecondsSinceEpoch {
    NanosecondsSinceEpoch(stamp.utc_ns)
}

fn price(raw: u32) -> Decimal<i64, 4> {
    Decimal(i64::from(raw))
}

fn in_market_hours(stamp: &Stamp) -> bool {
    (OPEN_NS..CLOSE_NS).contains(&stamp.time_ns)
}

/// Listed at IEX, so that its auctions are held there.
pub(crate) fn is_listed(index: u32) -> bool {
    index % 100 == 1
}

/// Encodes a message that TOPS and DEEP have alike, for the one that the venue speaks.
macro_rules! say {
    ($outbox:expr, $kind:expr, $stamp:expr, $fields:ident |$feed:ident| { $($own:tt)* }) => {
        match $kind {
            VenueKind::IexTops => {
                use tops16 as $feed;
                $outbox.push($stamp, &$feed::$fields { timestamp: time($stamp), $($own)* }.encode());
            }
            _ => {
                use deep10 as $feed;
                $outbox.push($stamp, &$feed::$fields { timestamp: time($stamp), $($own)* }.encode());
            }
        }
    };
}

/// A phase of the day, by its ITCH letter: IEX calls the start of market hours `R`.
pub(crate) fn system_event(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, code: u8) {
    let code = if code == b'Q' { b'R' } else { code };
    say!(outbox, kind, stamp, SystemEventFields |feed| { system_event: feed::SystemEventCode::from_raw(code) });
}

/// What is told of a symbol before the day starts.
pub(crate) fn directory(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    index: u32,
    instrument: &Instrument,
    standing: &Standing,
) {
    let symbol = instrument.symbol;
    say!(outbox, kind, stamp, SecurityDirectoryFields |feed| {
        security_directory_flags: feed::SecurityDirectoryFlags(if instrument.etp { 1 << 5 } else { 0 }),
        symbol,
        round_lot_size: instrument.round_lot,
        adjusted_poc_price: price(instrument.reference_price()),
        luld_tier: if index < 1_000 { feed::LuldTier::Tier1NmsStock } else { feed::LuldTier::Tier2NmsStock },
    });
    trading_status(outbox, kind, stamp, symbol, standing);
    operational_halt(outbox, kind, stamp, symbol, standing.operational_halt);
    if standing.short_sale_test {
        return short_sale_test(outbox, kind, stamp, symbol);
    }
    say!(outbox, kind, stamp, ShortSalePriceTestStatusFields |feed| {
        short_sale_price_test_status: feed::ShortSalePriceTest::from_raw(u8::from(index % 50 == 11)),
        symbol,
        detail: feed::ShortSalePriceTestDetail::from_raw(if index % 50 == 11 { b'C' } else { b' ' }),
    });
}

pub(crate) fn trading_status(
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
    say!(outbox, kind, stamp, TradingStatusFields |feed| {
        trading_status: feed::TradingStatusCode::from_raw(status),
        symbol,
        reason: Ascii(reason),
    });
}

pub(crate) fn operational_halt(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    symbol: Ascii<8>,
    halted: bool,
) {
    say!(outbox, kind, stamp, OperationalHaltStatusFields |feed| {
        operational_halt_status: feed::OperationalHaltCode::from_raw(if halted { b'O' } else { b'N' }),
        symbol,
    });
}

/// A short sale price test begins to hold during the day.
pub(crate) fn short_sale_test(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, symbol: Ascii<8>) {
    say!(outbox, kind, stamp, ShortSalePriceTestStatusFields |feed| {
        short_sale_price_test_status: feed::ShortSalePriceTest::InEffect,
        symbol,
        detail: feed::ShortSalePriceTestDetail::from_raw(b'A'),
    });
}

/// Retail liquidity.
pub(crate) fn retail_interest(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    symbol: Ascii<8>,
    choice: u32,
) {
    say!(outbox, kind, stamp, RetailLiquidityIndicatorFields |feed| {
        retail_liquidity_indicator: match choice % 4 {
            0 => feed::RetailLiquidity::BuyInterest,
            1 => feed::RetailLiquidity::SellInterest,
            2 => feed::RetailLiquidity::BuyAndSellInterest,
            _ => feed::RetailLiquidity::NotApplicable,
        },
        symbol,
    });
}

/// The opening (`O`) or closing (`C`) process is complete, which only DEEP tells.
pub(crate) fn security_event(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    symbol: Ascii<8>,
    code: u8,
) {
    if kind == VenueKind::IexDeep {
        let security_event = deep10::SecurityEventCode::from_raw(code);
        outbox.push(
            stamp,
            &deep10::SecurityEventFields { security_event, timestamp: time(stamp), symbol }.encode(),
        );
    }
}

/// The official opening (`Q`) or closing (`M`) price.
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

/// The state of an opening (`O`) or closing (`C`) auction.
pub(crate) fn auction(
    outbox: &mut Outbox,
    kind: VenueKind,
    stamp: &Stamp,
    instrument: &Instrument,
    code: u8,
    paired_shares: u32,
) {
    let reference = instrument.reference_price();
    let scheduled_ns = if code == b'O' { OPEN_NS } else { CLOSE_NS };
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

/// A trade as the tape needs it again when it is broken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Print {
    pub(crate) symbol: Ascii<8>,
    pub(crate) shares: u32,
    pub(crate) price: u32,
    pub(crate) trade_id: u64,
    conditions: u8,
}

impl Print {
    pub(crate) fn new(
        stamp: &Stamp,
        instrument: &Instrument,
        shares: u32,
        price: u32,
        trade_id: u64,
    ) -> Self {
        let odd_lot = u8::from(shares < instrument.round_lot) << 5;
        let extended_hours = u8::from(!in_market_hours(stamp)) << 6;
        Self { symbol: instrument.symbol, shares, price, trade_id, conditions: odd_lot | extended_hours }
    }
}

pub(crate) fn trade(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, print: &Print) {
    say!(outbox, kind, stamp, TradeReportFields |feed| {
        sale_condition_flags: feed::SaleConditionFlags(print.conditions),
        symbol: print.symbol,
        size: print.shares,
        price: price(print.price),
        trade_id: print.trade_id,
    });
}

pub(crate) fn trade_break(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, print: &Print) {
    say!(outbox, kind, stamp, TradeBreakFields |feed| {
        sale_condition_flags: feed::SaleConditionFlags(print.conditions),
        symbol: print.symbol,
        size: print.shares,
        price: price(print.price),
        trade_id: print.trade_id,
    });
}

/// A quote of TOPS: price and shares of the best bid and offer.
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

/// DEEP: the new size of a level; `last` in the updates of its event.
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
