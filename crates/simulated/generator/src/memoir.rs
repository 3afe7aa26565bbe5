//! The dialect of MEMX: MEMOIR Depth 1.3.

use tapeworks_market::symbology;
use tapeworks_session::SessionId;
use tapeworks_wire::memx::depth13::{self, *};
use tapeworks_wire::nasdaq::itch50::{ReasonCode, TradingState};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch};

use crate::book;
use crate::dialect::{Dialect, SessionName};
use crate::instrument::Instrument;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::VenueKind;

/// Length of the SBE header, in bytes.
const HEADER_BYTES: usize = 6;

/// Encodes a message: the common fields (header and time) and its own.
macro_rules! say {
    ($outbox:expr, $stamp:expr, $message:ident, $fields:ident { $($own:tt)* }) => {
        $outbox.push($stamp, &depth13::$fields {
            block_length: ($message::LENGTH - HEADER_BYTES) as u16,
            schema_id: SCHEMA_ID,
            version: VERSION,
            timestamp: NanosecondsSinceEpoch($stamp.utc_ns),
            $($own)*
        }.encode())
    };
}

/// Converts a price from 1e-4 dollars to 1e-6.
fn price(raw: u32) -> Decimal<i64, 6> {
    Decimal(i64::from(raw) * 100)
}

/// Returns a symbol as a field of six letters, padded with zeros.
fn field(text: &[u8]) -> Ascii<6> {
    let mut bytes = [0; 6];
    bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    Ascii(bytes)
}

fn status(outbox: &mut Outbox, stamp: &Stamp, status: TradingStatus, reason: TradingStatusReason) {
    say!(
        outbox,
        stamp,
        SecurityTradingStatus,
        SecurityTradingStatusFields {
            security_id: stamp.locate,
            security_trading_status: status,
            security_trading_status_reason: reason,
        }
    );
}

fn short_sale(outbox: &mut Outbox, stamp: &Stamp, is_restricted: bool) {
    say!(
        outbox,
        stamp,
        RegShoRestriction,
        RegShoRestrictionFields {
            security_id: stamp.locate,
            short_sale_restriction: if is_restricted { Boolean::True } else { Boolean::False },
        }
    );
}

fn add(outbox: &mut Outbox, stamp: &Stamp, side: book::Side, order: book::Order) {
    say!(
        outbox,
        stamp,
        OrderAdded,
        OrderAddedFields {
            security_id: stamp.locate,
            order_id: order.reference,
            side: match side {
                book::Side::Buy => Side::Buy,
                book::Side::Sell => Side::Sell,
            },
            quantity: order.shares,
            price: price(order.price),
        }
    );
}

fn delete(outbox: &mut Outbox, stamp: &Stamp, order: book::Order) {
    say!(
        outbox,
        stamp,
        OrderDeleted,
        OrderDeletedFields { security_id: stamp.locate, order_id: order.reference }
    );
}

/// MEMOIR Depth.
pub(crate) struct Memoir;

impl Dialect for Memoir {
    const HAS_ORDERS: bool = true;
    const TYPE_OFFSET: usize = 2;

    /// The upper half of a session number is four letters, the last of which counts the units.
    fn session(name: &SessionName) -> SessionId {
        let unit = u64::from(u32::from_be_bytes(*b"TWX1")) - 1 + u64::from(name.unit);
        SessionId::Memoir(unit << 32 | u64::from(name.number))
    }

    /// Maps the start and end of messages, which MEMX does not send, to those of the system hours.
    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        let trading_session = match code {
            b'Q' => TradingSession::Trading,
            b'M' => TradingSession::PostTrading,
            b'E' | b'C' => TradingSession::Closed,
            _ => TradingSession::Opening,
        };
        say!(outbox, stamp, TradingSessionStatus, TradingSessionStatusFields { trading_session });
    }

    /// Clears the book first, for receivers that have another book from before a restart.
    fn directory(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        _: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        let (root, suffix) = symbology::to_cms(&instrument.symbol.to_string());
        say!(
            outbox,
            stamp,
            InstrumentDirectory,
            InstrumentDirectoryFields {
                security_id: stamp.locate,
                symbol: field(root.as_bytes()),
                symbol_sfx: field(suffix.as_bytes()),
                round_lot: instrument.round_lot,
                reserved: [0],
                is_test_symbol: Boolean::False,
                mpv: price(instrument.tick),
            }
        );
        say!(outbox, stamp, ClearBook, ClearBookFields { security_id: stamp.locate });
        Self::trading_state(outbox, kind, stamp, instrument.symbol, standing);
        if standing.operational_halt {
            status(outbox, stamp, TradingStatus::Halted, TradingStatusReason::Administrative);
        }
        short_sale(outbox, stamp, standing.is_restricted());
    }

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, _: &Instrument, change: &Change) {
        let security_id = stamp.locate;
        let execute = |outbox: &mut Outbox, order_id, shares, trade_id, at| {
            say!(
                outbox,
                stamp,
                OrderExecuted,
                OrderExecutedFields { security_id, order_id, trade_id, quantity: shares, price: price(at) }
            );
        };
        match *change {
            Change::Add { side, order, .. } => add(outbox, stamp, side, order),
            Change::Execute { order, shares, match_number, .. } => {
                execute(outbox, order.reference, shares, match_number, order.price);
            }
            Change::ExecuteAt { order, shares, match_number, price, .. } => {
                execute(outbox, order.reference, shares, match_number, price);
            }
            Change::Cancel { order, shares, .. } => say!(
                outbox,
                stamp,
                OrderReduced,
                OrderReducedFields { security_id, order_id: order.reference, quantity: shares }
            ),
            Change::Delete { order, .. } => delete(outbox, stamp, order),
            // MEMX has no replace message.
            Change::Replace { side, old, new } => {
                delete(outbox, stamp, old);
                add(outbox, stamp, side, new);
            }
            Change::Hidden { price: at, shares, match_number } => say!(
                outbox,
                stamp,
                Trade,
                TradeFields { security_id, trade_id: match_number, quantity: shares, price: price(at) }
            ),
        }
    }

    fn trading_state(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        let status_now = match standing.state {
            TradingState::Halted => TradingStatus::Halted,
            TradingState::Paused => TradingStatus::Paused,
            TradingState::QuotationOnlyPeriod => TradingStatus::Quoting,
            TradingState::Trading | TradingState::Unknown(_) => TradingStatus::Trading,
        };
        let reason = match standing.reason {
            ReasonCode::ReasonNotAvailable => TradingStatusReason::None,
            _ => TradingStatusReason::Regulatory,
        };
        status(outbox, stamp, status_now, reason);
    }

    fn operational_halt(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        let status_now =
            if standing.operational_halt { TradingStatus::Halted } else { TradingStatus::Trading };
        status(outbox, stamp, status_now, TradingStatusReason::Administrative);
    }

    fn short_sale_test(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, _: &Standing) {
        short_sale(outbox, stamp, true);
    }

    fn trade_break(outbox: &mut Outbox, _: VenueKind, _: &Stamp, stamp: &Stamp, print: &Print) {
        say!(
            outbox,
            stamp,
            BrokenTrade,
            BrokenTradeFields {
                security_id: print.locate,
                trade_id: print.trade_id,
                original_quantity: print.shares,
                original_price: price(print.price),
            }
        );
    }

    /// Writes the time after the SBE header, in nanoseconds since 1970.
    fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
        if let Some(place) = message.get_mut(HEADER_BYTES..HEADER_BYTES + 8) {
            place.copy_from_slice(&utc_ns.to_be_bytes());
        }
    }
}
