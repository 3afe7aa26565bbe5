//! Cboe US Equities Multicast Depth of Book (PITCH) 2.41: every displayed order of BZX, BYX, EDGA or EDGX, and every trade.
//!
//! Source: *Cboe US Equities Multicast Depth of Book (PITCH) Specification* 2.41.64, in order of message type. Little-endian. As in
//! that document, offsets count from the length at 0, and the length includes itself. Times are split: the time message carries the
//! second since midnight in New York, every other message the nanoseconds within it. Prices are long (4 implied decimals) or short (2).
//!
//! Only additions, trades and states name a symbol. Messages that change an order identify it by its order id.
//!
//! Cboe's options use the same header and share some of these messages; [futures](super::futures) have a separate declaration.
//!
//! Verified on real packets, from options only: Time, AddOrderLong, ModifyOrderLong and DeleteOrder. Carried by the
//! [sequenced unit header](super::unit).

tapeworks_wire_macros::protocol! {
    /// Every displayed order of a Cboe exchange, and every trade.
    protocol "cboe-pitch-2.41" {
        title: "Cboe PITCH 2.41",
        version: "2.41",
        endian: little,
        tag: u8 @ 1,
        length: extensible,
    }

    /// Time: the second that the messages behind it are of.
    message Time = 0x20, 6 bytes {
        length @ 0: u8,
        time   @ 2: seconds_since_midnight<u32>,
    }

    enum Side: ascii<1> {
        Buy = 'B',
        Sell = 'S',
    }

    flags AddFlags: u8 {
        /// The order is displayed in the SIP's quote.
        Display = 0,
    }

    /// Add order, long form.
    message AddOrderLong = 0x21, 34 bytes {
        length      @ 0 : u8,
        time_offset @ 2 : nanoseconds<u32>,
        order_id    @ 6 : u64,
        side        @ 14: Side,
        quantity    @ 15: u32,
        symbol      @ 19: ascii<6>,
        price       @ 25: price<u64, 4>,
        add_flags   @ 33: AddFlags,
    }

    /// Add order, short form.
    message AddOrderShort = 0x22, 26 bytes {
        length      @ 0 : u8,
        time_offset @ 2 : nanoseconds<u32>,
        order_id    @ 6 : u64,
        side        @ 14: Side,
        quantity    @ 15: u16,
        symbol      @ 17: ascii<6>,
        price       @ 23: price<u16, 2>,
        add_flags   @ 25: AddFlags,
    }

    /// Order executed: a resting order traded at its price.
    message OrderExecuted = 0x23, 26 bytes {
        length            @ 0 : u8,
        time_offset       @ 2 : nanoseconds<u32>,
        order_id          @ 6 : u64,
        executed_quantity @ 14: u32,
        execution_id      @ 18: u64,
    }

    /// Order executed at price/size: a resting order traded at another price, and has so many shares left.
    message OrderExecutedAtPriceSize = 0x24, 38 bytes {
        length             @ 0 : u8,
        time_offset        @ 2 : nanoseconds<u32>,
        order_id           @ 6 : u64,
        executed_quantity  @ 14: u32,
        remaining_quantity @ 18: u32,
        execution_id       @ 22: u64,
        price              @ 30: price<u64, 4>,
    }

    /// Reduce size, long form: a resting order lost shares without a trade.
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

    flags ModifyFlags: u8 {
        /// The order is displayed in the SIP's quote.
        Display = 0,
        /// The order keeps its place among those of its price.
        MaintainPriority = 1,
    }

    /// Modify order, long form: price, size or priority of an order changed.
    message ModifyOrderLong = 0x27, 27 bytes {
        length       @ 0 : u8,
        time_offset  @ 2 : nanoseconds<u32>,
        order_id     @ 6 : u64,
        quantity     @ 14: u32,
        price        @ 18: price<u64, 4>,
        modify_flags @ 26: ModifyFlags,
    }

    /// Modify order, short form.
    message ModifyOrderShort = 0x28, 19 bytes {
        length       @ 0 : u8,
        time_offset  @ 2 : nanoseconds<u32>,
        order_id     @ 6 : u64,
        quantity     @ 14: u16,
        price        @ 16: price<u16, 2>,
        modify_flags @ 18: ModifyFlags,
    }

    /// Delete order: an order left the book.
    message DeleteOrder = 0x29, 14 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
        order_id    @ 6: u64,
    }

    /// Trade of orders that are not displayed, long form.
    message TradeLong = 0x2A, 41 bytes {
        length       @ 0 : u8,
        time_offset  @ 2 : nanoseconds<u32>,
        order_id     @ 6 : u64,
        side         @ 14: Side,
        quantity     @ 15: u32,
        symbol       @ 19: ascii<6>,
        price        @ 25: price<u64, 4>,
        execution_id @ 33: u64,
    }

    /// Trade, short form.
    message TradeShort = 0x2B, 33 bytes {
        length       @ 0 : u8,
        time_offset  @ 2 : nanoseconds<u32>,
        order_id     @ 6 : u64,
        side         @ 14: Side,
        quantity     @ 15: u16,
        symbol       @ 17: ascii<6>,
        price        @ 23: price<u16, 2>,
        execution_id @ 25: u64,
    }

    /// Trade break: the execution of this identifier is void.
    message TradeBreak = 0x2C, 14 bytes {
        length       @ 0: u8,
        time_offset  @ 2: nanoseconds<u32>,
        execution_id @ 6: u64,
    }

    /// End of session: no messages of the unit follow.
    message EndOfSession = 0x2D, 6 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
    }

    enum CustomerIndicator: ascii<1> {
        NonCustomer = 'N',
        Customer = 'C',
        RetailPriorityOrder = 'R',
    }

    /// Add order, expanded form: with a symbol of eight letters, and the participant.
    message AddOrderExpanded = 0x2F, 41 bytes {
        length             @ 0 : u8,
        time_offset        @ 2 : nanoseconds<u32>,
        order_id           @ 6 : u64,
        side               @ 14: Side,
        quantity           @ 15: u32,
        symbol             @ 19: ascii<8>,
        price              @ 27: price<u64, 4>,
        add_flags          @ 35: AddFlags,
        participant_id     @ 36: ascii<4>,
        customer_indicator @ 40: CustomerIndicator,
    }

    /// Trade, expanded form: with a symbol of eight letters.
    message TradeExpanded = 0x30, 43 bytes {
        length       @ 0 : u8,
        time_offset  @ 2 : nanoseconds<u32>,
        order_id     @ 6 : u64,
        side         @ 14: Side,
        quantity     @ 15: u32,
        symbol       @ 19: ascii<8>,
        price        @ 27: price<u64, 4>,
        execution_id @ 35: u64,
    }

    enum TradingStatusCode: ascii<1> {
        AcceptingOrdersForQueuing = 'A',
        Halted = 'H',
        QuoteOnly = 'Q',
        ExchangeSpecificSuspension = 'S',
        Trading = 'T',
    }

    enum RegShoAction: ascii<1> {
        NoPriceTestInEffect = '0',
        RegShoPriceTestRestrictionInEffect = '1',
    }

    /// Trading status of a symbol, and its short sale price test.
    message TradingStatus = 0x31, 18 bytes {
        length         @ 0 : u8,
        time_offset    @ 2 : nanoseconds<u32>,
        symbol         @ 6 : ascii<8>,
        trading_status @ 14: TradingStatusCode,
        reg_sho_action @ 15: RegShoAction,
        reserved       @ 16: bytes<2>,
    }

    enum AuctionType: ascii<1> {
        OpeningAuction = 'O',
        ClosingAuction = 'C',
        HaltAuction = 'H',
        IpoAuction = 'I',
        CboeMarketClose = 'M',
        VolatilityAuction = 'V',
        PeriodicAuction = 'P',
    }

    /// Auction update: the state of an auction before it is held.
    message AuctionUpdate = 0x95, 47 bytes {
        length             @ 0 : u8,
        time_offset        @ 2 : nanoseconds<u32>,
        symbol             @ 6 : ascii<8>,
        auction_type       @ 14: AuctionType,
        reference_price    @ 15: price<u64, 4>,
        buy_shares         @ 23: u32,
        sell_shares        @ 27: u32,
        indicative_price   @ 31: price<u64, 4>,
        auction_only_price @ 39: price<u64, 4>,
    }

    /// Auction summary: price and shares of an auction that was held.
    message AuctionSummary = 0x96, 27 bytes {
        length       @ 0 : u8,
        time_offset  @ 2 : nanoseconds<u32>,
        symbol       @ 6 : ascii<8>,
        auction_type @ 14: AuctionType,
        price        @ 15: price<u64, 4>,
        shares       @ 23: u32,
    }

    /// Unit clear: no order of the unit is left.
    message UnitClear = 0x97, 6 bytes {
        length      @ 0: u8,
        time_offset @ 2: nanoseconds<u32>,
    }

    enum RetailPriceImprovementSide: ascii<1> {
        BuySideRpi = 'B',
        SellSideRpi = 'S',
        BuyAndSellRpi = 'A',
        NoRpi = 'N',
    }

    /// Retail price improvement: where retail orders would trade at a better price.
    message RetailPriceImprovement = 0x98, 15 bytes {
        length                   @ 0 : u8,
        time_offset              @ 2 : nanoseconds<u32>,
        symbol                   @ 6 : ascii<8>,
        retail_price_improvement @ 14: RetailPriceImprovementSide,
    }
}
