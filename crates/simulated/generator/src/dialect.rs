//! Dialects: a market's events in a venue's protocol.
//!
//! The [generator](crate::generator) makes the events; a [`Dialect`] is one file that writes them in one protocol. `for_dialect!`
//! maps a venue's kind to the dialect type, so that no other code matches on the protocol.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tapeworks_session::SessionId;
use tapeworks_wire::Ascii;

use crate::instrument::Instrument;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::VenueKind;

/// Writes a time into a unit's message, as the four bytes after its one-byte length and one-byte type.
pub(crate) fn stamp_unit_message(message: &mut [u8], time: u64) {
    if let Some(place) = message.get_mut(2..6) {
        place.copy_from_slice(&(time as u32).to_le_bytes());
    }
}

/// Converts seconds since 1970 UTC to seconds since midnight in a zone.
pub(crate) fn since_midnight_in(zone: &str, second: u64) -> u32 {
    const DAY: i64 = 24 * 3_600;
    let second = i64::try_from(second).unwrap_or(i64::MAX);
    let ahead = Timestamp::from_second(second).ok().zip(TimeZone::get(zone).ok());
    let ahead = ahead.map_or(0, |(at, zone)| i64::from(zone.to_offset(at).seconds()));
    second.saturating_add(ahead).rem_euclid(DAY) as u32
}

/// The parts of a session's name. Each transport uses some of them.
pub(crate) struct SessionName {
    pub(crate) text: [u8; 10],
    pub(crate) number: u32,
    /// The venue's unit number, counted from 1.
    pub(crate) unit: u8,
    /// The venue's number in its own messages.
    pub(crate) code: u16,
}

/// The protocol of a simulated venue. Events that the protocol lacks are omitted.
pub(crate) trait Dialect {
    /// Whether limit up, limit down bands apply.
    const HAS_BANDS: bool = true;
    /// Whether every order is published. Otherwise levels or quotes are published at the end of an event.
    const HAS_ORDERS: bool;
    /// Whether a changed order keeps its number. Otherwise a new order replaces it.
    const KEEPS_REFERENCES: bool = false;
    /// Offset of the type in a message, in bytes.
    const TYPE_OFFSET: usize = 0;
    /// Whether the market-wide circuit breaker is published.
    const HAS_BREAKER: bool = false;

    /// Returns the session with this name.
    fn session(name: &SessionName) -> SessionId;

    /// Writes a phase of the day, given by its ITCH letter.
    fn system_event(outbox: &mut Outbox, kind: VenueKind, stamp: &Stamp, code: u8);

    /// Writes the messages about a symbol before the day starts, or in an image for receivers that join mid-day.
    fn directory(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        index: u32,
        instrument: &Instrument,
        standing: &Standing,
    );

    /// Writes a change of the book, in protocols that publish single orders.
    fn change(_outbox: &mut Outbox, _stamp: &Stamp, _instrument: &Instrument, _change: &Change) {}

    /// Writes a trade, if the change of the book does not report it.
    fn trade(_outbox: &mut Outbox, _kind: VenueKind, _stamp: &Stamp, _print: &Print) {}

    /// Writes the trading state in `standing`.
    fn trading_state(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    );

    /// Writes the start or end of a halt of this venue alone, according to `standing`.
    fn operational_halt(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    );

    /// Writes the start of a short sale price test.
    fn short_sale_test(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    );

    /// Writes retail interest.
    fn retail_interest(_: &mut Outbox, _: VenueKind, _: &Stamp, _stock: Ascii<8>, _choice: u32) {}

    /// Writes the indicative state of an auction, given by the ITCH letter of the cross: paired shares, and the imbalance,
    /// negative for sellers.
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

    /// Writes an auction held at the reference price, with the shares and number of its trade.
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

    /// Writes that a trade is void. `of_market` is a stamp without a symbol.
    fn trade_break(outbox: &mut Outbox, kind: VenueKind, of_market: &Stamp, stamp: &Stamp, print: &Print);

    /// Returns the second of a time, in protocols that send seconds separately and in their own count.
    fn second_of(_utc_ns: u64, _midnight_ns: u64) -> Option<u64> {
        None
    }

    /// Returns the message that announces a second. It precedes the first message of that second.
    fn full_second(_second: u64) -> impl AsRef<[u8]> {
        []
    }

    /// Returns whether a message announces a second.
    fn is_full_second(_message: &[u8]) -> bool {
        false
    }

    /// Overwrites the time of a message.
    fn restamp(message: &mut [u8], utc_ns: u64, midnight_ns: u64);
}
