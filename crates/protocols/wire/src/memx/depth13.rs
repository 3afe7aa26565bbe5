//! MEMX MEMOIR Depth 1.3: every displayed order and every trade on MEMX.
//!
//! Source: the public definitions of MEMX's *MEMOIR Depth* 1.3 (SBE schema 2), in template order. Big-endian SBE: block length,
//! template, schema, version, then the block. Offsets here count from the block length, so the document's offsets are six less.
//! Later versions may append fields to a block; they are ignored. Prices are signed with six implied decimals; times are
//! nanoseconds since the epoch in UTC.
//!
//! Messages identify an instrument by a security identifier, valid for one day, which the instrument directory explains.
//!
//! Verified on real packets: templates 2, 3, 5, 10, 11, 12 and 13. Carried by [MEMOIR UDP](super::udp).

tapeworks_wire_macros::protocol! {
    /// Every displayed order of MEMX, and every trade.
    protocol "memx-memoir-depth-1.3" {
        title: "MEMX MEMOIR Depth 1.3",
        version: "1.3",
        endian: big,
        tag: u8 @ 2,
        constant: u8 @ 3 = 2,
        length: extensible,
    }

    enum Boolean: u8 {
        False = 0,
        True = 1,
    }

    /// Instrument directory: the symbol of a security identifier.
    message InstrumentDirectory = 1, 42 bytes {
        block_length   @ 0 : u16,
        schema_id      @ 3 : u8,
        version        @ 4 : u16,
        timestamp      @ 6 : nanoseconds_since_epoch<u64>,
        security_id    @ 14: u16,
        symbol         @ 16: ascii<6>,
        symbol_sfx     @ 22: ascii<6>,
        round_lot      @ 28: u32,
        reserved       @ 32: bytes<1>,
        is_test_symbol @ 33: Boolean,
        mpv            @ 34: price<i64, 6>,
    }

    /// Reg SHO restriction: whether a short sale price test is in effect.
    message RegShoRestriction = 2, 17 bytes {
        block_length           @ 0 : u16,
        schema_id              @ 3 : u8,
        version                @ 4 : u16,
        timestamp              @ 6 : nanoseconds_since_epoch<u64>,
        security_id            @ 14: u16,
        short_sale_restriction @ 16: Boolean,
    }

    enum TradingStatus: ascii<1> {
        Halted = 'H',
        Paused = 'P',
        Quoting = 'Q',
        Trading = 'T',
    }

    enum TradingStatusReason: ascii<1> {
        None = 'X',
        Regulatory = 'R',
        Administrative = 'A',
    }

    /// Security trading status.
    message SecurityTradingStatus = 3, 18 bytes {
        block_length                   @ 0 : u16,
        schema_id                      @ 3 : u8,
        version                        @ 4 : u16,
        timestamp                      @ 6 : nanoseconds_since_epoch<u64>,
        security_id                    @ 14: u16,
        security_trading_status        @ 16: TradingStatus,
        security_trading_status_reason @ 17: TradingStatusReason,
    }

    enum TradingSession: ascii<1> {
        Opening = '1',
        Trading = '2',
        PostTrading = '3',
        Closed = '4',
    }

    /// Trading session status: the phases of the day.
    message TradingSessionStatus = 5, 15 bytes {
        block_length    @ 0 : u16,
        schema_id       @ 3 : u8,
        version         @ 4 : u16,
        timestamp       @ 6 : nanoseconds_since_epoch<u64>,
        trading_session @ 14: TradingSession,
    }

    enum Side: ascii<1> {
        Buy = 'B',
        Sell = 'S',
    }

    /// Order added: an order joined the book.
    message OrderAdded = 10, 37 bytes {
        block_length @ 0 : u16,
        schema_id    @ 3 : u8,
        version      @ 4 : u16,
        timestamp    @ 6 : nanoseconds_since_epoch<u64>,
        security_id  @ 14: u16,
        order_id     @ 16: u64,
        side         @ 24: Side,
        quantity     @ 25: u32,
        price        @ 29: price<i64, 6>,
    }

    /// Order deleted: an order left the book.
    message OrderDeleted = 11, 24 bytes {
        block_length @ 0 : u16,
        schema_id    @ 3 : u8,
        version      @ 4 : u16,
        timestamp    @ 6 : nanoseconds_since_epoch<u64>,
        security_id  @ 14: u16,
        order_id     @ 16: u64,
    }

    /// Order reduced: an order lost some of its shares without a trade.
    message OrderReduced = 12, 28 bytes {
        block_length @ 0 : u16,
        schema_id    @ 3 : u8,
        version      @ 4 : u16,
        timestamp    @ 6 : nanoseconds_since_epoch<u64>,
        security_id  @ 14: u16,
        order_id     @ 16: u64,
        quantity     @ 24: u32,
    }

    /// Order executed: a resting order traded.
    message OrderExecuted = 13, 44 bytes {
        block_length @ 0 : u16,
        schema_id    @ 3 : u8,
        version      @ 4 : u16,
        timestamp    @ 6 : nanoseconds_since_epoch<u64>,
        security_id  @ 14: u16,
        order_id     @ 16: u64,
        trade_id     @ 24: u64,
        quantity     @ 32: u32,
        price        @ 36: price<i64, 6>,
    }

    /// Trade that changes no displayed order.
    message Trade = 14, 36 bytes {
        block_length @ 0 : u16,
        schema_id    @ 3 : u8,
        version      @ 4 : u16,
        timestamp    @ 6 : nanoseconds_since_epoch<u64>,
        security_id  @ 14: u16,
        trade_id     @ 16: u64,
        quantity     @ 24: u32,
        price        @ 28: price<i64, 6>,
    }

    /// Broken trade: the trade of this identifier is void.
    message BrokenTrade = 15, 36 bytes {
        block_length      @ 0 : u16,
        schema_id         @ 3 : u8,
        version           @ 4 : u16,
        timestamp         @ 6 : nanoseconds_since_epoch<u64>,
        security_id       @ 14: u16,
        trade_id          @ 16: u64,
        original_quantity @ 24: u32,
        original_price    @ 28: price<i64, 6>,
    }

    /// Corrected trade: the trade of this identifier has another size or price.
    message CorrectedTrade = 16, 48 bytes {
        block_length       @ 0 : u16,
        schema_id          @ 3 : u8,
        version            @ 4 : u16,
        timestamp          @ 6 : nanoseconds_since_epoch<u64>,
        security_id        @ 14: u16,
        trade_id           @ 16: u64,
        original_quantity  @ 24: u32,
        original_price     @ 28: price<i64, 6>,
        corrected_quantity @ 36: u32,
        corrected_price    @ 40: price<i64, 6>,
    }

    /// Clear book: the book of an instrument is empty.
    message ClearBook = 18, 16 bytes {
        block_length @ 0 : u16,
        schema_id    @ 3 : u8,
        version      @ 4 : u16,
        timestamp    @ 6 : nanoseconds_since_epoch<u64>,
        security_id  @ 14: u16,
    }

    /// Snapshot complete: the messages before it are the book as of a sequence number.
    message SnapshotComplete = 100, 22 bytes {
        block_length          @ 0 : u16,
        schema_id             @ 3 : u8,
        version               @ 4 : u16,
        timestamp             @ 6 : nanoseconds_since_epoch<u64>,
        as_of_sequence_number @ 14: u64,
    }
}

/// The SBE schema of these messages: the constant of the declaration.
pub const SCHEMA_ID: u8 = 2;
/// Version 1.3: major, minor.
pub const VERSION: u16 = 0x0103;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DecodeError;

    #[test]
    fn a_message_of_another_schema_is_of_no_known_type_for_the_views_and_for_the_schema() {
        let mut message = [0; 24];
        (message[1], message[2], message[3]) = (18, 11, SCHEMA_ID);
        assert_eq!(SCHEMA.constant.map(|constant| constant.value), Some(SCHEMA_ID));
        assert!(Message::decode(&message).is_ok() && SCHEMA.decode(&message).error.is_none());
        message[3] += 1;
        let of_another = DecodeError::UnknownMessage { tag: 11 };
        assert_eq!(Message::decode(&message).err(), Some(of_another));
        let decoded = SCHEMA.decode(&message);
        assert_eq!((decoded.structure, decoded.error), (None, Some(of_another)));
        // Truncated before the schema, and before the tag.
        for cut in 0..=3 {
            assert_eq!(Message::decode(&message[..cut]).err(), SCHEMA.decode(&message[..cut]).error);
            assert!(Message::decode(&message[..cut]).is_err());
        }
    }
}
