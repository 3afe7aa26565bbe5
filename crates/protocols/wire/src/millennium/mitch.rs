//! Millennium's Level 2 MITCH 11.9: every displayed order of the London Stock Exchange, its trades and auctions.
//!
//! Source: the public definitions of the London Stock Exchange's *MIT303 Level 2 MITCH* 11.9, in reverse order. Little-endian. Offsets
//! count from the length at 0, so the definitions' offsets are two less. Times are split: the time message carries the second since
//! midnight, every other message the nanoseconds within it.
//!
//! Additions, deletions, trades and states identify an instrument by a number, which only the symbol directory explains. The other order
//! messages identify the order.
//!
//! Where the definitions are silent, this crate assumes:
//!
//! - The length of a message includes itself, like the length of a packet.
//! - Prices have eight implied decimals, in the directory's currency, as in the [native gateway](super::native).
//! - A price of zero means "no price" where no order has it: for an auction or the previous day.
//! - Midnight is local time in London.
//! - The first bit that the definitions list is the lowest bit.
//! - A set priority flag in an order modification means that the order keeps its priority.
//!
//! The definitions of 11.9 have no trade break and no off-book trade. A trade flagged `canc` is void; `amnd` replaces the trade of that number.
//!
//! Not verified on real packets. Carried by the [unit header](super::unit).

tapeworks_wire_macros::protocol! {
    /// Every displayed order of the London Stock Exchange, its trades and auctions.
    protocol "lse-mitch-11.9" {
        title: "LSE MITCH Level 2 11.9",
        version: "11.9",
        endian: little,
        tag: u8 @ 1,
        length: extensible,
    }

    /// Time: the second that the messages behind it are of.
    message Time = 0x54, 6 bytes {
        length  @ 0: u8,
        seconds @ 2: seconds_since_midnight<u32>,
    }

    enum EventCode: ascii<1> {
        EndOfDay = 'C',
        StartOfDay = 'O',
    }

    /// System event: the day begins or ends.
    message SystemEvent = 0x53, 7 bytes {
        length     @ 0: u8,
        nanosecond @ 2: nanoseconds<u32>,
        event_code @ 6: EventCode,
    }

    enum DirectoryStatus: ascii<1> {
        Active = ' ',
        Suspended = 'S',
        Inactive = 'a',
        Halt = 'H',
    }

    /// Symbol directory: what an instrument's number stands for.
    message SymbolDirectory = 0x52, 65 bytes {
        length               @ 0 : u8,
        nanosecond           @ 2 : nanoseconds<u32>,
        instrument_id        @ 6 : u32,
        reserved_a           @ 10: bytes<1>,
        reserved_b           @ 11: bytes<1>,
        symbol_status        @ 12: DirectoryStatus,
        isin                 @ 13: ascii<12>,
        sedol                @ 25: ascii<12>,
        segment              @ 37: ascii<6>,
        underlying           @ 43: ascii<6>,
        currency             @ 49: ascii<3>,
        reserved_byte        @ 52: bytes<1>,
        reserved_4           @ 53: bytes<4>,
        previous_close_price @ 57: price<i64, 8>,
    }

    enum TradingStatus: ascii<1> {
        Active = ' ',
        Halt = 'H',
        RegularTradingStartOfTradeReporting = 'T',
        OpeningFirstAuctionCall = 'a',
        PostClose = 'b',
        MarketCloseSystemShutdown = 'c',
        ClosingAuctionCall = 'd',
        AespAuctionCall = 'e',
        ResumeAuctionCall = 'f',
        Pause = 'l',
        PreMandatory = 'm',
        Mandatory = 'n',
        PostMandatory = 'o',
        EdspAuctionCall = 'q',
        PeriodicAuctionCall = 'r',
        EndTradeReporting = 't',
        NoActiveSession = 'w',
        EndOfPostClose = 'x',
        ClosingPriceCrossing = 'u',
        ScheduledLevel1OnlyAuction = 'G',
    }

    flags SymbolStatusFlags: u8 {
        FirmQuote = 5,
    }

    enum SessionChangeReason: u8 {
        ScheduledTransition = 0,
        ExtendedByMarketOps = 1,
        ShortenedByMarketOps = 2,
        MarketOrderImbalance = 3,
        PriceOutsideRange = 4,
        UnavailableRecoveryServiceOnly = 9,
    }

    enum BookType: u8 {
        OnBook = 1,
        OffBook = 2,
        PrivateRfq = 3,
    }

    /// Symbol status: the phase of an instrument's trading.
    message SymbolStatus = 0x48, 28 bytes {
        length                @ 0 : u8,
        nanosecond            @ 2 : nanoseconds<u32>,
        instrument_id         @ 6 : u32,
        reserved_a            @ 10: bytes<1>,
        reserved_b            @ 11: bytes<1>,
        trading_status        @ 12: TradingStatus,
        symbol_status_flags   @ 13: SymbolStatusFlags,
        reason                @ 14: ascii<4>,
        session_change_reason @ 18: SessionChangeReason,
        new_end_time          @ 19: ascii<8>,
        book_type             @ 27: BookType,
    }

    enum Side: ascii<1> {
        BuyOrder = 'B',
        SellOrder = 'S',
    }

    flags AddOrderFlags: u8 {
        /// It has no price.
        MarketOrder = 4,
        /// It is an answer to a private request for quotes, and not in the order book.
        PrivateRfq = 6,
    }

    /// Add order.
    message AddOrder = 0x41, 44 bytes {
        length          @ 0 : u8,
        nanosecond      @ 2 : nanoseconds<u32>,
        order_id        @ 6 : u64,
        side            @ 14: Side,
        quantity        @ 15: u32,
        instrument_id   @ 19: u32,
        reserved_a      @ 23: bytes<1>,
        reserved_b      @ 24: bytes<1>,
        price           @ 25: price<i64, 8>,
        add_order_flags @ 33: AddOrderFlags,
        reserved_10     @ 34: bytes<10>,
    }

    flags AddAttributedOrderFlags: u8 {
        /// It has no price.
        NamedMarketOrder = 4,
        /// It is a market maker's quote, and not in the order book.
        FirmQuote = 5,
    }

    /// Add attributed order: with the firm behind it.
    message AddAttributedOrder = 0x46, 45 bytes {
        length                     @ 0 : u8,
        nanosecond                 @ 2 : nanoseconds<u32>,
        order_id                   @ 6 : u64,
        side                       @ 14: Side,
        quantity                   @ 15: u32,
        instrument_id              @ 19: u32,
        reserved_a                 @ 23: bytes<1>,
        reserved_b                 @ 24: bytes<1>,
        price                      @ 25: price<i64, 8>,
        attribution                @ 33: ascii<11>,
        add_attributed_order_flags @ 44: AddAttributedOrderFlags,
    }

    flags OrderDeletedFlags: u8 {
        FirmQuote = 5,
    }

    /// Order deleted: an order left the book.
    message OrderDeleted = 0x44, 19 bytes {
        length              @ 0 : u8,
        nanosecond          @ 2 : nanoseconds<u32>,
        order_id            @ 6 : u64,
        order_deleted_flags @ 14: OrderDeletedFlags,
        instrument_id       @ 15: u32,
    }

    flags OrderModifiedFlags: u8 {
        /// The order keeps its place among those of its price.
        PriorityFlag = 0,
        FirmQuote = 5,
    }

    /// Order modified: a resting order has another price or size.
    message OrderModified = 0x55, 27 bytes {
        length               @ 0 : u8,
        nanosecond           @ 2 : nanoseconds<u32>,
        order_id             @ 6 : u64,
        new_quantity         @ 14: u32,
        new_price            @ 18: price<i64, 8>,
        order_modified_flags @ 26: OrderModifiedFlags,
    }

    flags OrderBookClearFlags: u8 {
        FirmQuote = 5,
        PrivateRfq = 6,
    }

    /// Order book clear: no order of the instrument is left in the book.
    message OrderBookClear = 0x79, 13 bytes {
        length                 @ 0 : u8,
        nanosecond             @ 2 : nanoseconds<u32>,
        instrument_id          @ 6 : u32,
        reserved_a             @ 10: bytes<1>,
        reserved_b             @ 11: bytes<1>,
        order_book_clear_flags @ 12: OrderBookClearFlags,
    }

    /// Order executed: a resting order traded at its price.
    message OrderExecuted = 0x45, 26 bytes {
        length            @ 0 : u8,
        nanosecond        @ 2 : nanoseconds<u32>,
        order_id          @ 6 : u64,
        executed_quantity @ 14: u32,
        trade_match_id    @ 18: u64,
    }

    enum Printable: ascii<1> {
        NonPrintable = 'N',
        Printable = 'Y',
    }

    /// Order executed with price/size: a resting order traded at another price, and displays so many shares from then on.
    message OrderExecutedWithPriceSize = 0x43, 39 bytes {
        length            @ 0 : u8,
        nanosecond        @ 2 : nanoseconds<u32>,
        order_id          @ 6 : u64,
        executed_quantity @ 14: u32,
        display_quantity  @ 18: u32,
        trade_match_id    @ 22: u64,
        printable         @ 30: Printable,
        price             @ 31: price<i64, 8>,
    }

    enum CrossType: u8 {
        InternalCross = 5,
        InternalBtf = 6,
        CommittedCross = 7,
        CommittedBtf = 8,
    }

    enum SubBook: u8 {
        RegularTrades = 0,
        RfqTrades = 11,
    }

    flags PtModFlags: u8 {
        /// The trade is void.
        Canc = 0,
        /// The trade replaces the earlier one of its number.
        Amnd = 1,
    }

    /// Trade that no order of the book took part in: a cross, or after a request for quotes.
    message Trade = 0x50, 35 bytes {
        length            @ 0 : u8,
        nanosecond        @ 2 : nanoseconds<u32>,
        executed_quantity @ 6 : u32,
        instrument_id     @ 10: u32,
        reserved_a        @ 14: bytes<1>,
        reserved_b        @ 15: bytes<1>,
        price             @ 16: price<i64, 8>,
        trade_match_id    @ 24: u64,
        cross_type        @ 32: CrossType,
        sub_book          @ 33: SubBook,
        pt_mod_flags      @ 34: PtModFlags,
    }

    enum AuctionType: ascii<1> {
        ClosingAuction = 'C',
        OpeningAuction = 'O',
        Aesp = 'A',
        Edsp = 'B',
        ResumeAuction = 'E',
        PeriodicAuction = 'F',
        ScheduledLevel1OnlyAuction = 'G',
    }

    /// Auction trade: price and shares of an auction that was held.
    message AuctionTrade = 0x51, 34 bytes {
        length         @ 0 : u8,
        nanosecond     @ 2 : nanoseconds<u32>,
        quantity       @ 6 : u32,
        instrument_id  @ 10: u32,
        reserved_a     @ 14: bytes<1>,
        reserved_b     @ 15: bytes<1>,
        price          @ 16: price<i64, 8>,
        trade_match_id @ 24: u64,
        auction_type   @ 32: AuctionType,
        pt_mod_flags   @ 33: PtModFlags,
    }

    /// Auction info: price and shares at which an auction would be held now.
    message AuctionInfo = 0x49, 30 bytes {
        length          @ 0 : u8,
        nanosecond      @ 2 : nanoseconds<u32>,
        paired_quantity @ 6 : u32,
        reserved_4      @ 10: bytes<4>,
        reserved_1      @ 14: bytes<1>,
        instrument_id   @ 15: u32,
        reserved_a      @ 19: bytes<1>,
        reserved_b      @ 20: bytes<1>,
        price           @ 21: price<i64, 8>,
        auction_type    @ 29: AuctionType,
    }

    enum StatisticType: ascii<1> {
        OpeningPrice = 'O',
        ClosingPrice = 'C',
    }

    enum OpenClosePriceIndicator: ascii<1> {
        Ut = 'A',
        At = 'B',
        MidOfBbo = 'C',
        LastAt = 'D',
        LastUt = 'E',
        Manual = 'F',
        DerivedFromPreviousClose = 'I',
    }

    /// Statistics: the official opening or closing price.
    message Statistics = 0x77, 23 bytes {
        length                     @ 0 : u8,
        nanosecond                 @ 2 : nanoseconds<u32>,
        instrument_id              @ 6 : u32,
        reserved_a                 @ 10: bytes<1>,
        reserved_b                 @ 11: bytes<1>,
        statistic_type             @ 12: StatisticType,
        price                      @ 13: price<i64, 8>,
        open_close_price_indicator @ 21: OpenClosePriceIndicator,
        statistics_reserved        @ 22: bytes<1>,
    }

    /// Top of book: best bid and offer of an instrument whose orders are not published.
    message TopOfBook = 0x71, 34 bytes {
        length           @ 0 : u8,
        nanosecond       @ 2 : nanoseconds<u32>,
        instrument_id    @ 6 : u32,
        buy_limit_price  @ 10: price<i64, 8>,
        buy_limit_size   @ 18: u32,
        sell_limit_price @ 22: price<i64, 8>,
        sell_limit_size  @ 30: u32,
    }
}
