//! Dialects: the events of a market in a venue's protocol.
//!
//! The [generator](crate::generator) makes the events; a [`Dialect`] is one file that writes them in one protocol.
//! `for_dialect!` turns the kind of a venue into the type, so that nothing else here matches on a protocol.

use tapeworks_session::SessionId;
use tapeworks_wire::Ascii;

use crate::instrument::Instrument;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::VenueKind;

/// Writes a time into a message of a unit: behind its length and its type, which have a byte each, in four bytes.
pub(crate) fn stamp_unit_message(message: &mut [u8], time: u64) {
    if let Some(place) = message.get_mut(2..6) {
        place.copy_from_slice(&(time as u32).to_le_bytes());
    }
}

/// Parts of a session's name. Each transport uses some of them.
pub(crate) struct SessionName {
    pub(crate) text: [u8; 10],
    pub(crate) number: u32,
    /// The number of the venue's unit, from 1.
    pub(crate) unit: u8,
    /// The venue's number in its own messages.
    pub(crate) code: u16,
}

/// A protocol of a simulated venue. It omits events that the protocol does not have.
pub(crate) trait Dialect {
    /// Whether limit up, limit down bands apply.
    const HAS_BANDS: bool = true;
    /// Every order is published. Otherwise levels or quotes are, at the end of an event.
    const HAS_ORDERS: bool;
    /// A changed order keeps its number. Otherwise another one replaces it.
    const KEEPS_REFERENCES: bool = false;
    /// Where a message has its type, in bytes.
    const TYPE_OFFSET: usize = 0;
    /// The market-wide circuit breaker is published.
    const HAS_BREAKER: bool = false;

    /// A session of this name.
    fn session(name: &SessionName) -> SessionId;

    /// A phase of the day, by its ITCH letter.
    fn system_event(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, code: u8);

    /// The messages about a symbol before the day starts, and in an image for receivers that join in mid-day.
    fn directory(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        index: u32,
        instrument: &Instrument,
        standing: &Standing,
    );

    /// A change of the book, in protocols with single orders.
    fn change(_outbox: &mut Outbox, _stamp: &Stamp, _instrument: &Instrument, _change: &Change) {}

    /// A trade, where the change of the book does not report it.
    fn trade(_outbox: &mut Outbox, _kind: VenueKind, _stamp: &Stamp, _print: &Print) {}

    /// The trading state that `standing` has.
    fn trading_state(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    );

    /// A halt of this venue alone, or its end, as `standing` has it.
    fn operational_halt(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    );

    /// A short sale price test begins to hold.
    fn short_sale_test(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    );

    /// Retail interest.
    fn retail_interest(_: &mut Outbox, _: VenueKind, _: &Stamp, _stock: Ascii<8>, _choice: u32) {}

    /// The state of an auction that is being prepared, by the ITCH letter of the cross: shares that would trade, and those left over, negative of sellers.
    fn imbalance(
        _: &mut Outbox,
        _: VenueKind,
        _: &Stamp,
        _: &Instrument,
        _paired: u32,
        _imbalance: i32,
        _code: u8,
    ) {
    }

    /// An auction was held at the reference price: shares and number of its trade.
    fn cross(
        _: &mut Outbox,
        _: VenueKind,
        _: &Stamp,
        _: &Instrument,
        _shares: u32,
        _match_number: u64,
        _code: u8,
    ) {
    }

    /// A trade is void. `of_market` is a stamp without a symbol.
    fn trade_break(outbox: &mut Outbox, kind: VenueKind, of_market: &Stamp, stamp: &Stamp, print: &Print);

    /// Protocols that split times: the second of a time, as they count it.
    fn second_of(_utc_ns: u64, _midnight_ns: u64) -> Option<u64> {
        None
    }

    /// Their message that says a second. It comes before the first message of the second.
    fn full_second(_second: u64) -> impl AsRef<[u8]> {
        []
    }

    /// Whether a message is that of a full second.
    fn is_full_second(_message: &[u8]) -> bool {
        false
    }

    /// Writes another time into a message.
    fn restamp(message: &mut [u8], utc_ns: u64, midnight_ns: u64);
}
