//! The dialect of Cboe Futures Exchange: its Multicast PITCH 1.1.
//!
//! Times are split: a time message ([`Dialect::full_second`]), counted from midnight in Chicago, precedes the first message of each
//! second. Executions at another price do not exist: the order is reduced and the trade reported, as one transaction.

use tapeworks_session::SessionId;
use tapeworks_wire::cboe::futures::{self, *};
use tapeworks_wire::nasdaq::itch50::TradingState;
use tapeworks_wire::{Ascii, Decimal, EncodeError, Nanoseconds, SecondsSinceEpoch, SecondsSinceMidnight};

use crate::book;
use crate::dialect::{Dialect, SessionName, since_midnight_in, stamp_unit_message};
use crate::instrument::Instrument;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::{SECOND_NS, VenueKind};

/// Length of the longest message in bytes.
const LONGEST: usize = 72;

/// The types of the messages that carry a second.
const TIME_TYPES: [u8; 2] = [0x20, 0xB1];

/// Encodes one message: the length and time common to all, and its own fields.
macro_rules! say {
    ($outbox:expr, $stamp:expr, $fields:ident { $($own:tt)* }) => {{
        begin_second($outbox, $stamp);
        put($outbox, $stamp, |bytes| {
            let time_offset = Nanoseconds($stamp.utc_ns % SECOND_NS);
            futures::$fields { length: 0, time_offset, $($own)* }.encode_into(bytes)
        });
    }};
}

/// Sends what `encode` writes, after setting its length.
fn put(outbox: &mut Outbox, stamp: &Stamp, encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>) {
    let mut bytes = [0; LONGEST];
    // No message is longer.
    let length = encode(&mut bytes).unwrap_or_default();
    bytes[0] = length as u8;
    outbox.push(stamp, bytes.get(..length).unwrap_or_default());
}

/// Sends the time message before the first message of a second.
fn begin_second(outbox: &mut Outbox, stamp: &Stamp) {
    let second = stamp.utc_ns / SECOND_NS;
    if outbox.begins_second(stamp.venue, second) {
        outbox.push(stamp, &time_message(second));
    }
}

/// Returns the time message for a second since 1970.
fn time_message(second: u64) -> [u8; 10] {
    let time = SecondsSinceMidnight(since_midnight_in_chicago(second));
    TimeFields { length: 10, time, epoch: SecondsSinceEpoch(second as u32) }.encode()
}

/// Converts seconds since 1970 to seconds since midnight in Chicago.
fn since_midnight_in_chicago(second: u64) -> u32 {
    since_midnight_in("America/Chicago", second)
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

/// Returns the price in cents and the contracts as 16 bits, for the short form of a message. `None` if either does not fit.
fn short(raw: u32, contracts: u32) -> Option<(Decimal<u16, 2>, u16)> {
    let cents = u16::try_from(raw / 100).ok().filter(|_| raw.is_multiple_of(100))?;
    Some((Decimal(cents), u16::try_from(contracts).ok()?))
}

/// Returns a symbol's first six letters, the length of a futures code.
const fn code(symbol: Ascii<8>) -> Ascii<6> {
    let [a, b, c, d, e, f, ..] = symbol.0;
    Ascii([a, b, c, d, e, f])
}

fn reduce(outbox: &mut Outbox, stamp: &Stamp, order_id: u64, contracts: u32) {
    match u16::try_from(contracts) {
        Ok(canceled_quantity) => say!(outbox, stamp, ReduceSizeShortFields { order_id, canceled_quantity }),
        Err(_) => say!(outbox, stamp, ReduceSizeLongFields { order_id, canceled_quantity: contracts }),
    }
}

/// Sends a trade outside the displayed book: of hidden orders, of a spread, or negotiated elsewhere.
fn trade(
    outbox: &mut Outbox,
    stamp: &Stamp,
    symbol: Ascii<8>,
    (at, contracts): (u32, u32),
    execution_id: u64,
) {
    let (order_id, side, symbol) = (execution_id << 32, Side::Buy, code(symbol));
    let trade_condition = match execution_id % 16 {
        0 => TradeCondition::BlockTrade,
        1 => TradeCondition::EcrpTrade,
        2 | 3 => TradeCondition::SpreadTrade,
        _ => TradeCondition::NormalTrade,
    };
    match short(at, contracts) {
        Some((price, quantity)) => say!(
            outbox,
            stamp,
            TradeShortFields { order_id, side, quantity, symbol, price, execution_id, trade_condition }
        ),
        None => say!(
            outbox,
            stamp,
            TradeLongFields {
                order_id,
                side,
                quantity: contracts,
                symbol,
                price: long(at),
                execution_id,
                trade_condition
            }
        ),
    }
}

fn status(outbox: &mut Outbox, stamp: &Stamp, symbol: Ascii<8>, standing: &Standing) {
    let trading_status = match standing.state {
        _ if standing.operational_halt => TradingStatusCode::ExchangeSpecificSuspension,
        TradingState::Halted | TradingState::Paused => TradingStatusCode::Halted,
        TradingState::QuotationOnlyPeriod => TradingStatusCode::QuoteOnly,
        TradingState::Trading | TradingState::Unknown(_) => TradingStatusCode::Trading,
    };
    let symbol = code(symbol);
    say!(
        outbox,
        stamp,
        TradingStatusFields { symbol, reserved_2: [b' '; 2], trading_status, reserved_3: *b"0  " }
    );
}

/// CFE's Multicast PITCH.
pub(crate) struct Futures;

impl Dialect for Futures {
    const HAS_ORDERS: bool = true;
    const KEEPS_REFERENCES: bool = true;
    const HAS_BANDS: bool = false;
    const TYPE_OFFSET: usize = 1;

    fn session(name: &SessionName) -> SessionId {
        SessionId::CboeUnit(name.unit)
    }

    /// A day starts with the midnight from which times count, and empty books. It ends with the end of the session.
    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        match code {
            b'O' => {
                let second = stamp.utc_ns / SECOND_NS;
                let since_midnight = since_midnight_in_chicago(second);
                put(outbox, stamp, |bytes| {
                    let fields = TimeReferenceFields {
                        length: 0,
                        midnight_reference: SecondsSinceEpoch((second as u32).saturating_sub(since_midnight)),
                        time: SecondsSinceMidnight(since_midnight),
                        time_offset: Nanoseconds(stamp.utc_ns % SECOND_NS),
                        trade_date: 0,
                    };
                    fields.encode_into(bytes)
                });
                say!(outbox, stamp, UnitClearFields {});
            }
            b'C' => say!(outbox, stamp, EndOfSessionFields {}),
            _ => {}
        }
    }

    fn directory(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        _: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        let symbol = code(instrument.symbol);
        say!(
            outbox,
            stamp,
            FuturesInstrumentDefinitionFields {
                symbol,
                unit_timestamp: SecondsSinceEpoch((stamp.utc_ns / SECOND_NS) as u32),
                report_symbol: symbol,
                futures_flags: FuturesFlags::Standard,
                expiration_date: 0,
                contract_size: 1,
                listing_state: ListingState::Active,
                price_increment: long(instrument.tick),
                leg_count: 0,
                leg_offset: 0,
                variance_offset: 0,
                contract_date: Some(0),
            }
        );
        status(outbox, stamp, instrument.symbol, standing);
    }

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, change: &Change) {
        match *change {
            Change::Add { side: at, order, .. } => {
                let (order_id, side, symbol) = (order.reference, side(at), code(instrument.symbol));
                match short(order.price, order.shares) {
                    Some((price, quantity)) => {
                        say!(outbox, stamp, AddOrderShortFields { order_id, side, quantity, symbol, price });
                    }
                    None => say!(
                        outbox,
                        stamp,
                        AddOrderLongFields {
                            order_id,
                            side,
                            quantity: order.shares,
                            symbol,
                            price: long(order.price)
                        }
                    ),
                }
            }
            Change::Execute { order, shares, match_number, .. } => say!(
                outbox,
                stamp,
                OrderExecutedFields {
                    order_id: order.reference,
                    executed_quantity: shares,
                    execution_id: match_number,
                    trade_condition: TradeCondition::NormalTrade,
                }
            ),
            Change::ExecuteAt { order, shares, match_number, price, .. } => {
                say!(outbox, stamp, TransactionBeginFields {});
                reduce(outbox, stamp, order.reference, shares);
                trade(outbox, stamp, instrument.symbol, (price, shares), match_number);
                say!(outbox, stamp, TransactionEndFields {});
            }
            Change::Cancel { order, shares, .. } => reduce(outbox, stamp, order.reference, shares),
            Change::Delete { order, .. } => {
                say!(outbox, stamp, DeleteOrderFields { order_id: order.reference });
            }
            Change::Replace { new, .. } => {
                let order_id = new.reference;
                match short(new.price, new.shares) {
                    Some((price, quantity)) => {
                        say!(outbox, stamp, ModifyOrderShortFields { order_id, quantity, price });
                    }
                    None => say!(
                        outbox,
                        stamp,
                        ModifyOrderLongFields { order_id, quantity: new.shares, price: long(new.price) }
                    ),
                }
            }
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

    fn short_sale_test(_: &mut Outbox, _: VenueKind, _: &Stamp, _: Ascii<8>, _: &Standing) {}

    fn trade_break(outbox: &mut Outbox, _: VenueKind, _: &Stamp, stamp: &Stamp, print: &Print) {
        say!(outbox, stamp, TradeBreakFields { execution_id: print.trade_id });
    }

    fn second_of(utc_ns: u64, _midnight_ns: u64) -> Option<u64> {
        Some(utc_ns / SECOND_NS)
    }

    fn full_second(second: u64) -> impl AsRef<[u8]> {
        time_message(second)
    }

    fn is_full_second(message: &[u8]) -> bool {
        message.get(Self::TYPE_OFFSET) == Some(&TIME_TYPES[0])
    }

    /// After the type come the nanoseconds within the second, or the second itself.
    fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
        let second = utc_ns / SECOND_NS;
        if message.get(Self::TYPE_OFFSET).is_some_and(|tag| TIME_TYPES.contains(tag)) {
            let time = u64::from(since_midnight_in_chicago(second));
            if Self::is_full_second(message) {
                stamp_unit_message(message, time);
                if let Some(epoch) = message.get_mut(6..10) {
                    epoch.copy_from_slice(&(second as u32).to_le_bytes());
                }
            } else {
                let fields = [second.saturating_sub(time), time, utc_ns % SECOND_NS];
                for (place, field) in
                    message.get_mut(2..14).into_iter().flat_map(|part| part.chunks_mut(4)).zip(fields)
                {
                    place.copy_from_slice(&(field as u32).to_le_bytes());
                }
            }
        } else {
            stamp_unit_message(message, utc_ns % SECOND_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_from_midnight_in_chicago() {
        // 2025-11-14 and 2025-07-14, 09:30 in New York.
        assert_eq!(since_midnight_in_chicago(1_763_130_600), 8 * 3_600 + 1_800);
        assert_eq!(since_midnight_in_chicago(1_752_499_800), 8 * 3_600 + 1_800);
    }
}
