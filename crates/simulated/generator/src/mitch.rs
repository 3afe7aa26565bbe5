//! The dialect of the London Stock Exchange: Level 2 MITCH 11.9.
//!
//! Times are split: a time message, which counts from midnight in London, precedes the first message of each second
//! ([`Dialect::full_second`]). The simulated symbols are US symbols: in London `ABCD` has the ISIN `GB00000ABCD3`, with a valid
//! check digit, and its price is in pounds.

use tapeworks_market::identifiers::Isin;
use tapeworks_session::SessionId;
use tapeworks_wire::millennium::mitch::{self, *};
use tapeworks_wire::nasdaq::itch50::TradingState;
use tapeworks_wire::{Ascii, Decimal, Nanoseconds, SecondsSinceMidnight};

use crate::book;
use crate::dialect::{Dialect, SessionName, since_midnight_in, stamp_unit_message};
use crate::instrument::Instrument;
use crate::nasdaq::MPIDS;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::{SECOND_NS, VenueKind};

/// Encodes a message: the common fields (length and time) and its own.
macro_rules! say {
    ($outbox:expr, $stamp:expr, $message:ident, $fields:ident { $($own:tt)* }) => {{
        begin_second($outbox, $stamp);
        $outbox.push($stamp, &mitch::$fields {
            length: $message::LENGTH as u8,
            nanosecond: Nanoseconds($stamp.utc_ns % SECOND_NS),
            $($own)*
        }.encode())
    }};
}

/// The type of the time message.
const TIME_TYPE: u8 = Time::TAG;

/// A reserved byte.
const NOTHING: [u8; 1] = [0];

/// Writes the time message before the first message of a second.
fn begin_second(outbox: &mut Outbox, stamp: &Stamp) {
    let second = stamp.utc_ns / SECOND_NS;
    if outbox.begins_second(stamp.venue, second) {
        outbox.push(stamp, &time_message(second));
    }
}

/// Returns the time message of a second since 1970 UTC.
fn time_message(second: u64) -> [u8; Time::LENGTH] {
    let seconds = SecondsSinceMidnight(since_midnight_in_london(second));
    TimeFields { length: Time::LENGTH as u8, seconds }.encode()
}

/// Converts a second since 1970 UTC to a second since midnight in London.
fn since_midnight_in_london(second: u64) -> u32 {
    since_midnight_in("Europe/London", second)
}

/// Converts a price from 1e-4 pounds.
fn price(raw: u32) -> Decimal<i64, 8> {
    Decimal(i64::from(raw) * 10_000)
}

const fn side(side: book::Side) -> Side {
    match side {
        book::Side::Buy => Side::BuyOrder,
        book::Side::Sell => Side::SellOrder,
    }
}

/// Returns a symbol's ISIN: the country, nine letters and digits, and the check digit.
fn isin(symbol: Ascii<8>) -> Ascii<12> {
    let mut number = *b"000000000";
    let letters = symbol.trimmed();
    let start = number.len() - letters.len();
    number.iter_mut().skip(start).zip(letters).for_each(|(place, letter)| {
        // The simulated symbols have no other characters.
        *place = if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { b'0' };
    });
    Ascii(Isin::of_number(*b"GB", number).map_or([b' '; 12], Isin::to_bytes))
}

fn add(outbox: &mut Outbox, stamp: &Stamp, at: book::Side, order: book::Order, firm: Option<usize>) {
    let (order_id, side, quantity, price) = (order.reference, side(at), order.shares, price(order.price));
    let instrument_id = u32::from(stamp.locate);
    let Some(firm) = firm else {
        say!(
            outbox,
            stamp,
            AddOrder,
            AddOrderFields {
                order_id,
                side,
                quantity,
                instrument_id,
                reserved_a: NOTHING,
                reserved_b: NOTHING,
                price,
                add_order_flags: AddOrderFlags(0),
                reserved_10: [0; 10],
            }
        );
        return;
    };
    let name = MPIDS.get(firm % MPIDS.len()).copied().unwrap_or_default();
    say!(
        outbox,
        stamp,
        AddAttributedOrder,
        AddAttributedOrderFields {
            order_id,
            side,
            quantity,
            instrument_id,
            reserved_a: NOTHING,
            reserved_b: NOTHING,
            price,
            attribution: Ascii::padded(&name).unwrap_or(Ascii([b' '; 11])),
            add_attributed_order_flags: AddAttributedOrderFlags(0),
        }
    );
}

fn modify(outbox: &mut Outbox, stamp: &Stamp, order: book::Order, keeps_place: bool) {
    say!(
        outbox,
        stamp,
        OrderModified,
        OrderModifiedFields {
            order_id: order.reference,
            new_quantity: order.shares,
            new_price: price(order.price),
            order_modified_flags: OrderModifiedFlags(u8::from(keeps_place)),
        }
    );
}

fn trade(outbox: &mut Outbox, stamp: &Stamp, (at, shares): (u32, u32), match_number: u64, flags: u8) {
    say!(
        outbox,
        stamp,
        Trade,
        TradeFields {
            executed_quantity: shares,
            instrument_id: u32::from(stamp.locate),
            reserved_a: NOTHING,
            reserved_b: NOTHING,
            price: price(at),
            trade_match_id: match_number,
            cross_type: CrossType::InternalCross,
            sub_book: SubBook::RegularTrades,
            pt_mod_flags: PtModFlags(flags),
        }
    );
}

/// Writes the state of a symbol.
fn status(outbox: &mut Outbox, stamp: &Stamp, standing: &Standing) {
    let trading_status = match standing.state {
        _ if standing.operational_halt => TradingStatus::Halt,
        TradingState::Halted => TradingStatus::Halt,
        TradingState::Paused => TradingStatus::Pause,
        TradingState::QuotationOnlyPeriod => TradingStatus::ResumeAuctionCall,
        TradingState::Trading | TradingState::Unknown(_) => {
            TradingStatus::RegularTradingStartOfTradeReporting
        }
    };
    say!(
        outbox,
        stamp,
        SymbolStatus,
        SymbolStatusFields {
            instrument_id: u32::from(stamp.locate),
            reserved_a: NOTHING,
            reserved_b: NOTHING,
            trading_status,
            symbol_status_flags: SymbolStatusFlags(0),
            reason: Ascii([b' '; 4]),
            session_change_reason: SessionChangeReason::ScheduledTransition,
            new_end_time: Ascii([b' '; 8]),
            book_type: BookType::OnBook,
        }
    );
}

/// Level 2 MITCH.
pub(crate) struct Mitch;

impl Dialect for Mitch {
    const HAS_ORDERS: bool = true;
    const KEEPS_REFERENCES: bool = true;
    const TYPE_OFFSET: usize = 1;
    const HAS_BANDS: bool = false;

    /// Uses the market data group, because messages carry no session.
    fn session(name: &SessionName) -> SessionId {
        SessionId::MitchUnit((b'1' - 1).wrapping_add(name.unit))
    }

    /// Writes both ends of the day. MITCH has no other market-wide phases.
    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        let event_code = match code {
            b'O' => EventCode::StartOfDay,
            b'C' => EventCode::EndOfDay,
            _ => return,
        };
        say!(outbox, stamp, SystemEvent, SystemEventFields { event_code });
    }

    /// Clears the book first, for receivers that have another book from before a restart.
    fn directory(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        _: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        let instrument_id = u32::from(stamp.locate);
        say!(
            outbox,
            stamp,
            SymbolDirectory,
            SymbolDirectoryFields {
                instrument_id,
                reserved_a: NOTHING,
                reserved_b: NOTHING,
                symbol_status: DirectoryStatus::Active,
                isin: isin(instrument.symbol),
                sedol: Ascii([b' '; 12]),
                segment: Ascii(*b"SET1  "),
                underlying: Ascii([b' '; 6]),
                currency: Ascii(*b"GBP"),
                reserved_byte: NOTHING,
                reserved_4: [0; 4],
                previous_close_price: price(instrument.reference_price()),
            }
        );
        say!(
            outbox,
            stamp,
            OrderBookClear,
            OrderBookClearFields {
                instrument_id,
                reserved_a: NOTHING,
                reserved_b: NOTHING,
                order_book_clear_flags: OrderBookClearFlags(0),
            }
        );
        status(outbox, stamp, standing);
    }

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, _: &Instrument, change: &Change) {
        match *change {
            Change::Add { side, order, mpid } => add(outbox, stamp, side, order, mpid),
            Change::Execute { order, shares, match_number, .. } => say!(
                outbox,
                stamp,
                OrderExecuted,
                OrderExecutedFields {
                    order_id: order.reference,
                    executed_quantity: shares,
                    trade_match_id: match_number,
                }
            ),
            Change::ExecuteAt { order, shares, match_number, price: at, printable, .. } => say!(
                outbox,
                stamp,
                OrderExecutedWithPriceSize,
                OrderExecutedWithPriceSizeFields {
                    order_id: order.reference,
                    executed_quantity: shares,
                    display_quantity: order.shares.saturating_sub(shares),
                    trade_match_id: match_number,
                    printable: if printable { Printable::Printable } else { Printable::NonPrintable },
                    price: price(at),
                }
            ),
            // London sends the remaining shares.
            Change::Cancel { order, shares, .. } => {
                let left = book::Order { shares: order.shares.saturating_sub(shares), ..order };
                modify(outbox, stamp, left, true);
            }
            Change::Delete { order, .. } => say!(
                outbox,
                stamp,
                OrderDeleted,
                OrderDeletedFields {
                    order_id: order.reference,
                    order_deleted_flags: OrderDeletedFlags(0),
                    instrument_id: u32::from(stamp.locate),
                }
            ),
            Change::Replace { new, .. } => modify(outbox, stamp, new, false),
            Change::Hidden { price, shares, match_number } => {
                trade(outbox, stamp, (price, shares), match_number, 0);
            }
        }
    }

    fn trading_state(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        status(outbox, stamp, standing);
    }

    fn operational_halt(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        status(outbox, stamp, standing);
    }

    /// London has no short sale price test.
    fn short_sale_test(_: &mut Outbox, _: VenueKind, _: &Stamp, _: Ascii<8>, _: &Standing) {}

    /// Sends the trade again, marked as void.
    fn trade_break(outbox: &mut Outbox, _: VenueKind, _: &Stamp, stamp: &Stamp, print: &Print) {
        let stamp = &Stamp { locate: print.locate, ..*stamp };
        trade(outbox, stamp, (print.price, print.shares), print.trade_id, 1);
    }

    /// Seconds start in London when they start in UTC.
    fn second_of(utc_ns: u64, _midnight_ns: u64) -> Option<u64> {
        Some(utc_ns / SECOND_NS)
    }

    fn full_second(second: u64) -> impl AsRef<[u8]> {
        time_message(second)
    }

    fn is_full_second(message: &[u8]) -> bool {
        message.get(Self::TYPE_OFFSET) == Some(&TIME_TYPE)
    }

    fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
        let time = if Self::is_full_second(message) {
            u64::from(since_midnight_in_london(utc_ns / SECOND_NS))
        } else {
            utc_ns % SECOND_NS
        };
        stamp_unit_message(message, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isin_ends_with_its_check_digit() {
        assert_eq!(isin(Ascii(*b"ABCD    ")).as_str(), Some("GB00000ABCD3"));
        assert_eq!(isin(Ascii(*b"ABCDEFGH")).as_str().unwrap().len(), 12);
    }

    #[test]
    fn londons_day_begins_an_hour_earlier_in_summer() {
        // 2025-11-14 and 2025-07-14, 10:00 UTC.
        assert_eq!(since_midnight_in_london(1_763_114_400), 10 * 3_600);
        assert_eq!(since_midnight_in_london(1_752_487_200), 11 * 3_600);
    }
}
