//! The dialect of Cboe: Multicast PITCH 2.41.
//!
//! Times are split: a time message precedes the first message of each second ([`Dialect::full_second`]).

use tapeworks_session::SessionId;
use tapeworks_wire::cboe::pitch::{self, *};
use tapeworks_wire::nasdaq::itch50::TradingState;
use tapeworks_wire::{Ascii, Decimal, Nanoseconds, SecondsSinceMidnight};

use crate::book;
use crate::dialect::{Dialect, SessionName, stamp_unit_message};
use crate::instrument::Instrument;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::{SECOND_NS, VenueKind};

/// Encodes a message: the common fields (length and time) and its own.
macro_rules! say {
    ($outbox:expr, $stamp:expr, $fields:ident { $($own:tt)* }) => {{
        begin_second($outbox, $stamp);
        let mut bytes = [0; LONGEST];
        let fields = pitch::$fields {
            length: 0,
            time_offset: Nanoseconds($stamp.time_ns % SECOND_NS),
            $($own)*
        };
        // No message is longer than the buffer.
        let length = fields.encode_into(&mut bytes).unwrap_or_default();
        bytes[0] = length as u8;
        $outbox.push($stamp, bytes.get(..length).unwrap_or_default());
    }};
}

/// Length of the longest message, in bytes.
const LONGEST: usize = 48;

/// The type of the time message.
const TIME_TYPE: u8 = 0x20;

/// Writes the time message before the first message of a second.
fn begin_second(outbox: &mut Outbox, stamp: &Stamp) {
    let second = stamp.time_ns / SECOND_NS;
    if outbox.begins_second(stamp.venue, second) {
        outbox.push(stamp, &time_message(second));
    }
}

/// Returns the time message of a second since midnight. A day has fewer than 2^32 seconds.
fn time_message(second: u64) -> [u8; 6] {
    TimeFields { length: 6, time: SecondsSinceMidnight(second as u32) }.encode()
}

/// Returns a symbol of at most six letters, which is all that the usual message forms have room for.
const fn narrow(symbol: Ascii<8>) -> Option<Ascii<6>> {
    match symbol.0 {
        [a, b, c, d, e, f, b' ', b' '] => Some(Ascii([a, b, c, d, e, f])),
        _ => None,
    }
}

const fn side(side: book::Side) -> Side {
    match side {
        book::Side::Buy => Side::Buy,
        book::Side::Sell => Side::Sell,
    }
}

fn long(raw: u32) -> Decimal<u64, 4> {
    Decimal(u64::from(raw))
}

/// Returns the price in cents and the shares in 16 bits, if both fit the short form of a message.
fn short(raw: u32, shares: u32) -> Option<(Decimal<u16, 2>, u16)> {
    let cents = u16::try_from(raw / 100).ok().filter(|_| raw.is_multiple_of(100))?;
    Some((Decimal(cents), u16::try_from(shares).ok()?))
}

fn add(outbox: &mut Outbox, stamp: &Stamp, symbol: Ascii<8>, at: book::Side, order: book::Order) {
    let (order_id, side, add_flags) = (order.reference, side(at), AddFlags(1));
    match (narrow(symbol), short(order.price, order.shares)) {
        (Some(symbol), Some((price, quantity))) => {
            say!(outbox, stamp, AddOrderShortFields { order_id, side, quantity, symbol, price, add_flags })
        }
        (Some(symbol), None) => say!(
            outbox,
            stamp,
            AddOrderLongFields {
                order_id,
                side,
                quantity: order.shares,
                symbol,
                price: long(order.price),
                add_flags
            }
        ),
        (None, _) => say!(
            outbox,
            stamp,
            AddOrderExpandedFields {
                order_id,
                side,
                quantity: order.shares,
                symbol,
                price: long(order.price),
                add_flags,
                participant_id: Ascii(*b"    "),
                customer_indicator: CustomerIndicator::NonCustomer,
            }
        ),
    }
}

fn modify(outbox: &mut Outbox, stamp: &Stamp, order: book::Order) {
    let (order_id, modify_flags) = (order.reference, ModifyFlags(1));
    match short(order.price, order.shares) {
        Some((price, quantity)) => {
            say!(outbox, stamp, ModifyOrderShortFields { order_id, quantity, price, modify_flags })
        }
        None => say!(
            outbox,
            stamp,
            ModifyOrderLongFields {
                order_id,
                quantity: order.shares,
                price: long(order.price),
                modify_flags
            }
        ),
    }
}

fn trade(outbox: &mut Outbox, stamp: &Stamp, symbol: Ascii<8>, (at, shares): (u32, u32), execution_id: u64) {
    // Cboe hides the order: the number is none of the book's, and the side is always the same.
    let (order_id, side) = (execution_id << 32, Side::Buy);
    match (narrow(symbol), short(at, shares)) {
        (Some(symbol), Some((price, quantity))) => {
            say!(outbox, stamp, TradeShortFields { order_id, side, quantity, symbol, price, execution_id })
        }
        (Some(symbol), None) => say!(
            outbox,
            stamp,
            TradeLongFields { order_id, side, quantity: shares, symbol, price: long(at), execution_id }
        ),
        (None, _) => say!(
            outbox,
            stamp,
            TradeExpandedFields { order_id, side, quantity: shares, symbol, price: long(at), execution_id }
        ),
    }
}

/// Writes the state of a symbol and its short sale price test, which share one message.
fn status(outbox: &mut Outbox, stamp: &Stamp, symbol: Ascii<8>, standing: &Standing) {
    let trading_status = match standing.state {
        _ if standing.operational_halt => TradingStatusCode::ExchangeSpecificSuspension,
        TradingState::Halted | TradingState::Paused => TradingStatusCode::Halted,
        TradingState::QuotationOnlyPeriod => TradingStatusCode::QuoteOnly,
        TradingState::Trading | TradingState::Unknown(_) => TradingStatusCode::Trading,
    };
    let reg_sho_action = if standing.is_restricted() {
        RegShoAction::RegShoPriceTestRestrictionInEffect
    } else {
        RegShoAction::NoPriceTestInEffect
    };
    say!(outbox, stamp, TradingStatusFields { symbol, trading_status, reg_sho_action, reserved: [b' '; 2] });
}

/// Multicast PITCH.
pub(crate) struct Pitch;

impl Dialect for Pitch {
    const HAS_ORDERS: bool = true;
    const KEEPS_REFERENCES: bool = true;
    const TYPE_OFFSET: usize = 1;

    fn session(name: &SessionName) -> SessionId {
        SessionId::CboeUnit(name.unit)
    }

    /// Clears the book at the start, for receivers that have another book from before a restart, and ends the session. PITCH has
    /// no other phases.
    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        match code {
            b'O' => say!(outbox, stamp, UnitClearFields {}),
            b'C' => say!(outbox, stamp, EndOfSessionFields {}),
            _ => {}
        }
    }

    /// PITCH has no directory: the trading status names the symbols.
    fn directory(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        _: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        status(outbox, stamp, instrument.symbol, standing);
    }

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, change: &Change) {
        match *change {
            Change::Add { side, order, .. } => add(outbox, stamp, instrument.symbol, side, order),
            Change::Execute { order, shares, match_number, .. } => say!(
                outbox,
                stamp,
                OrderExecutedFields {
                    order_id: order.reference,
                    executed_quantity: shares,
                    execution_id: match_number,
                }
            ),
            Change::ExecuteAt { order, shares, match_number, price, .. } => say!(
                outbox,
                stamp,
                OrderExecutedAtPriceSizeFields {
                    order_id: order.reference,
                    executed_quantity: shares,
                    remaining_quantity: order.shares.saturating_sub(shares),
                    execution_id: match_number,
                    price: long(price),
                }
            ),
            Change::Cancel { order, shares, .. } => {
                let order_id = order.reference;
                match u16::try_from(shares) {
                    Ok(canceled_quantity) => {
                        say!(outbox, stamp, ReduceSizeShortFields { order_id, canceled_quantity })
                    }
                    Err(_) => {
                        say!(outbox, stamp, ReduceSizeLongFields { order_id, canceled_quantity: shares })
                    }
                }
            }
            Change::Delete { order, .. } => {
                say!(outbox, stamp, DeleteOrderFields { order_id: order.reference });
            }
            Change::Replace { new, .. } => modify(outbox, stamp, new),
            Change::Hidden { price, shares, match_number } => {
                trade(outbox, stamp, instrument.symbol, (price, shares), match_number);
            }
        }
    }

    fn trading_state(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, standing: &Standing) {
        status(outbox, stamp, stock, standing);
    }

    fn operational_halt(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    ) {
        status(outbox, stamp, stock, standing);
    }

    fn short_sale_test(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    ) {
        status(outbox, stamp, stock, standing);
    }

    fn retail_interest(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, choice: u32) {
        let retail_price_improvement = match choice % 4 {
            0 => RetailPriceImprovementSide::BuySideRpi,
            1 => RetailPriceImprovementSide::SellSideRpi,
            2 => RetailPriceImprovementSide::BuyAndSellRpi,
            _ => RetailPriceImprovementSide::NoRpi,
        };
        say!(outbox, stamp, RetailPriceImprovementFields { symbol: stock, retail_price_improvement });
    }

    fn imbalance(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        instrument: &Instrument,
        paired: u32,
        imbalance: i32,
        code: u8,
    ) {
        let price = long(instrument.reference_price());
        let more = imbalance.unsigned_abs();
        let [buy_shares, sell_shares] =
            if imbalance > 0 { [paired + more, paired] } else { [paired, paired + more] };
        say!(
            outbox,
            stamp,
            AuctionUpdateFields {
                symbol: instrument.symbol,
                auction_type: AuctionType::from_raw(code),
                reference_price: price,
                buy_shares,
                sell_shares,
                indicative_price: price,
                auction_only_price: price,
            }
        );
    }

    fn cross(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        instrument: &Instrument,
        shares: u32,
        _: u64,
        code: u8,
    ) {
        let price = long(instrument.reference_price());
        let auction_type = AuctionType::from_raw(code);
        say!(outbox, stamp, AuctionSummaryFields { symbol: instrument.symbol, auction_type, price, shares });
    }

    fn trade_break(outbox: &mut Outbox, _: VenueKind, _: &Stamp, stamp: &Stamp, print: &Print) {
        say!(outbox, stamp, TradeBreakFields { execution_id: print.trade_id });
    }

    fn second_of(utc_ns: u64, midnight_ns: u64) -> Option<u64> {
        Some(utc_ns.saturating_sub(midnight_ns) / SECOND_NS)
    }

    fn full_second(second: u64) -> impl AsRef<[u8]> {
        time_message(second)
    }

    fn is_full_second(message: &[u8]) -> bool {
        message.get(Self::TYPE_OFFSET) == Some(&TIME_TYPE)
    }

    /// Writes the time after the type: the nanoseconds within the second or, in the time message, the second.
    fn restamp(message: &mut [u8], utc_ns: u64, midnight_ns: u64) {
        let since_midnight = utc_ns.saturating_sub(midnight_ns);
        let time = if Self::is_full_second(message) {
            since_midnight / SECOND_NS
        } else {
            since_midnight % SECOND_NS
        };
        stamp_unit_message(message, time);
    }
}
