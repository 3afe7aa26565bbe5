//! Cboe Futures Exchange (CFE) Multicast PITCH 1.1: displayed orders, trades, settlements and instrument definitions.
//!
//! Source: *Cboe Futures Exchange Multicast PITCH Specification* 1.1.12, in order of message type. Little-endian. As in that
//! document, offsets count from the length at 0, and the length includes itself. Times are split: the time message carries the
//! second since midnight in Chicago, every other message the nanoseconds within it. Prices are long (four implied decimals) or
//! short (two).
//!
//! Order messages have the types of [equities](super::pitch) without the flags. A symbol is a six-letter code, which the definition
//! maps to a future. A spread's legs follow its definition at `leg_offset`.
//!
//! Verified on real packets: Time, AddOrderShort, ModifyOrderShort, DeleteOrder, TradingStatus and FuturesInstrumentDefinition, the
//! last without its contract date. Carried by the [sequenced unit header](super::unit).

tapeworks_wire_macros::protocol! {
    /// Every displayed order of Cboe's futures, and every trade.
    protocol "cboe-futures-pitch-1.1" {
        title: "Cboe Futures PITCH 1.1",
        version: "1.1",
        endian: little,
        tag: u8 @ 1,
        length: extensible,
    }

    /// Time: the second of the messages that follow.
    message Time = 0x20, 10 bytes {
        length @ 0: u8,
        time   @ 2: seconds_since_midnight<u32>,
        epoch  @ 6: seconds_since_epoch<u32>,
    }

    enum Side: ascii<1> {
        Buy = 'B',
        Sell = 'S',
    }

    /// Add order, long form.
    message AddOrderLong = 0x21, 33 bytes {
        length      @ 0 : u8,
        time_offset @ 2 : nanoseconds<u32>,
        order_id    @ 6 : u64,
        side        @ 14: Side,
        quantity    @ 15: u32,
        symbol      @ 19: ascii<6>,
        price       @ 25: price<u64, 4>,
    }

    /// Add order, short form.
    message AddOrderShort = 0x22, 25 bytes {
        length      @ 0 : u8,
        time_offset @ 2 : nanoseconds<u32>,
        order_id    @ 6 : u64,
        side        @ 14: Side,
        quantity    @ 15: u16,
        symbol      @ 17: ascii<6>,
        price       @ 23: price<u16, 2>,
    }

    enum TradeCondition: ascii<1> {
        NormalTrade = ' ',
        OpeningTrade = 'O',
        SpreadTrade = 'S',
        BlockTrade = 'B',
        /// Exchange of contract for related position.
        EcrpTrade = 'E',
    }

    /// Order executed: a resting order traded at its price.
    message OrderExecuted = 0x23, 27 bytes {
        length            @ 0 : u8,
        time_offset       @ 2 : nanoseconds<u32>,
        order_id          @ 6 : u64,
        executed_quantity @ 14: u32,
        execution_id      @ 18: u64,
        trade_condition   @ 26: TradeCondition,
    }

    /// Reduce size, long form: a resting order lost contracts without a trade.
    message ReduceSizeLong = 0x25, 18 bytes {
        length            @ 0 : u8,
        time_offset       @ 2 : nanoseconds<u32>,
        order_id          @ 6 : u64,
        canceled_quantity @ 14: u32,
    }

    /// Reduce size, short form.
    message ReduceSizeShort = 0x26, 16 bytes {
        length            @ 0 : u8,
        time_offset       @ 2 : nanoseconds<u32>,
        order_id          @ 6 : u64,
        canceled_quantity @ 14: u16,
    }

    /// Modify order, long form: an order's price or size changed.
    message ModifyOrderLong = 0x27, 26 bytes {
        length      @ 0 : u8,
        time_offset @ 2 : nanoseconds<u32>,
        order_id    @ 6 : u64,
        quantity    @ 14: u32,
        price       @ 18: price<u64, 4>,
    }

    /// Modify order, short form.
    message ModifyOrderShort = 0x28, 18 bytes {
        length      @ 0 : u8,
        time_offset @ 2 : nanoseconds<u32>,
        order_id    @ 6 : u64,
        quantity    @ 14: u16,
        price       @ 16: price<u16, 2>,
    }

    /// Delete order: an order left the book.
    message DeleteOrder = 0x29, 14 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
        order_id    @ 6: u64,
    }

    /// Trade of hidden orders, or one made off the book, long form.
    message TradeLong = 0x2A, 42 bytes {
        length          @ 0 : u8,
        time_offset     @ 2 : nanoseconds<u32>,
        order_id        @ 6 : u64,
        side            @ 14: Side,
        quantity        @ 15: u32,
        symbol          @ 19: ascii<6>,
        price           @ 25: price<u64, 4>,
        execution_id    @ 33: u64,
        trade_condition @ 41: TradeCondition,
    }

    /// Trade, short form.
    message TradeShort = 0x2B, 34 bytes {
        length          @ 0 : u8,
        time_offset     @ 2 : nanoseconds<u32>,
        order_id        @ 6 : u64,
        side            @ 14: Side,
        quantity        @ 15: u16,
        symbol          @ 17: ascii<6>,
        price           @ 23: price<u16, 2>,
        execution_id    @ 25: u64,
        trade_condition @ 33: TradeCondition,
    }

    /// Trade break: the execution with this identifier is void.
    message TradeBreak = 0x2C, 14 bytes {
        length       @ 0: u8,
        time_offset  @ 2: nanoseconds<u32>,
        execution_id @ 6: u64,
    }

    /// End of session: the unit sends no further messages.
    message EndOfSession = 0x2D, 6 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
    }

    enum TradingStatusCode: ascii<1> {
        Halted = 'H',
        QuoteOnly = 'Q',
        ExchangeSpecificSuspension = 'S',
        Trading = 'T',
    }

    /// Trading status of a future.
    message TradingStatus = 0x31, 18 bytes {
        length         @ 0 : u8,
        time_offset    @ 2 : nanoseconds<u32>,
        symbol         @ 6 : ascii<6>,
        reserved_2     @ 12: bytes<2>,
        trading_status @ 14: TradingStatusCode,
        reserved_3     @ 15: bytes<3>,
    }

    /// Unit clear: remove every order of the unit.
    message UnitClear = 0x97, 6 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
    }

    /// Time reference: the midnight from which times count, and the second of the messages that follow.
    message TimeReference = 0xB1, 18 bytes {
        length             @ 0 : u8,
        midnight_reference @ 2 : seconds_since_epoch<u32>,
        time               @ 6 : seconds_since_midnight<u32>,
        time_offset        @ 10: nanoseconds<u32>,
        /// The date as YYYYMMDD.
        trade_date         @ 14: u32,
    }

    enum SettlementIssue: ascii<1> {
        InitialSettlement = 'S',
        ReissuedSettlement = 'R',
        IndicativeSettlement = 'I',
    }

    /// Settlement: a future's settlement price.
    message Settlement = 0xB9, 25 bytes {
        length           @ 0 : u8,
        time_offset      @ 2 : nanoseconds<u32>,
        symbol           @ 6 : ascii<6>,
        trade_date       @ 12: u32,
        settlement_price @ 16: price<u64, 4>,
        issue            @ 24: SettlementIssue,
    }

    flags SummaryFlags: u8 {
        HighPriceValid = 0,
        /// The high is a bid.
        HighPriceIsBid = 1,
        LowPriceValid = 2,
        /// The low is an offer.
        LowPriceIsOffer = 3,
        OpenCloseValid = 4,
    }

    /// End of day summary: prices, volumes and open interest of a future.
    message EndOfDaySummary = 0xBA, 65 bytes {
        length        @ 0 : u8,
        time_offset   @ 2 : nanoseconds<u32>,
        symbol        @ 6 : ascii<6>,
        trade_date    @ 12: u32,
        open_interest @ 16: u32,
        high_price    @ 20: price<u64, 4>,
        low_price     @ 28: price<u64, 4>,
        open_price    @ 36: price<u64, 4>,
        close_price   @ 44: price<u64, 4>,
        total_volume  @ 52: u32,
        block_volume  @ 56: u32,
        ecrp_volume   @ 60: u32,
        summary_flags @ 64: SummaryFlags,
    }

    enum FuturesFlags: u8 {
        Standard = 0,
        Variance = 1,
    }

    enum ListingState: ascii<1> {
        Active = 'A',
        Inactive = 'I',
        Test = 'T',
    }

    /// Definition of a future or a spread. Its legs, each a four-byte ratio and a six-letter symbol, start at `leg_offset`.
    message FuturesInstrumentDefinition = 0xBB, 41..=45 bytes {
        length            @ 0 : u8,
        time_offset       @ 2 : nanoseconds<u32>,
        symbol            @ 6 : ascii<6>,
        unit_timestamp    @ 12: seconds_since_epoch<u32>,
        /// The product, such as `VX`.
        report_symbol     @ 16: ascii<6>,
        futures_flags     @ 22: FuturesFlags,
        /// The date as YYYYMMDD.
        expiration_date   @ 23: u32,
        contract_size     @ 27: u16,
        listing_state     @ 29: ListingState,
        price_increment   @ 30: price<u64, 4>,
        leg_count         @ 38: u8,
        leg_offset        @ 39: u8,
        variance_offset   @ 40: u8,
        /// The date as YYYYMMDD.
        contract_date     @ 41 since "1.1.12": u32,
    }

    /// Transaction begin: the messages up to the end form one market event.
    message TransactionBegin = 0xBC, 6 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
    }

    /// Transaction end.
    message TransactionEnd = 0xBD, 6 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
    }
}
