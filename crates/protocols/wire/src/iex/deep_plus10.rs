//! IEX DEEP+ 1.0: every displayed order and every trade on IEX.
//!
//! Source: *IEX DEEP+ Specification*, version 1.0 (January 2025), chapters "Administrative message formats" and "Trading message formats",
//! in the same order. As in that document, offsets count from the message type at 0. Little-endian; prices are signed with four implied
//! decimals, times are nanoseconds since the epoch in UTC. Messages may grow: receivers must skip bytes after the declared ones.
//!
//! The administrative messages and the trade break are identical to [DEEP](super::deep10), byte for byte. Auctions and official prices
//! are not included.
//!
//! Not verified on real packets. Carried by [IEX-TP](super::tp) with message protocol id 0x8005.

tapeworks_wire_macros::protocol! {
    /// Every displayed order of IEX, and every trade.
    protocol "iex-deep-plus-1.0" {
        title: "IEX DEEP+ 1.0",
        version: "1.0",
        endian: little,
        tag: ascii<1> @ 0,
        length: extensible,
    }

    enum SystemEventCode: ascii<1> {
        StartOfMessages = 'O',
        StartOfSystemHours = 'S',
        StartOfRegularMarketHours = 'R',
        EndOfRegularMarketHours = 'M',
        EndOfSystemHours = 'E',
        EndOfMessages = 'C',
    }

    /// System event: the phases of the day.
    message SystemEvent = 'S', 10 bytes {
        system_event @ 1 : SystemEventCode,
        timestamp    @ 2 : nanoseconds_since_epoch<i64>,
    }

    flags SecurityDirectoryFlags: u8 {
        /// A symbol for testing.
        TestSecurity = 7,
        /// Traded when issued.
        WhenIssued = 6,
        /// An exchange traded product.
        Etp = 5,
    }

    enum LuldTier: u8 {
        NotApplicable = 0x0,
        Tier1NmsStock = 0x1,
        Tier2NmsStock = 0x2,
    }

    /// Security directory: one per symbol before the day starts, and when something changes.
    message SecurityDirectory = 'D', 31 bytes {
        security_directory_flags @ 1 : SecurityDirectoryFlags,
        timestamp                @ 2 : nanoseconds_since_epoch<i64>,
        symbol                   @ 10: ascii<8>,
        round_lot_size           @ 18: u32,
        adjusted_poc_price       @ 22: price<i64, 4>,
        luld_tier                @ 30: LuldTier,
    }

    enum TradingStatusCode: ascii<1> {
        TradingHaltedAcrossAllUsEquityMarkets = 'H',
        TradingHaltReleasedIntoAnOrderAcceptancePeriodOnIex = 'O',
        TradingPausedAndOrderAcceptancePeriodOnIex = 'P',
        TradingOnIex = 'T',
    }

    /// Trading status of a security.
    message TradingStatus = 'H', 22 bytes {
        trading_status @ 1 : TradingStatusCode,
        timestamp      @ 2 : nanoseconds_since_epoch<i64>,
        symbol         @ 10: ascii<8>,
        reason         @ 18: ascii<4>,
    }

    enum RetailLiquidity: ascii<1> {
        NotApplicable = ' ',
        BuyInterest = 'A',
        SellInterest = 'B',
        BuyAndSellInterest = 'C',
    }

    /// Retail liquidity indicator.
    message RetailLiquidityIndicator = 'I', 18 bytes {
        retail_liquidity_indicator @ 1 : RetailLiquidity,
        timestamp                  @ 2 : nanoseconds_since_epoch<i64>,
        symbol                     @ 10: ascii<8>,
    }

    enum OperationalHaltCode: ascii<1> {
        IexSpecificOperationalTradingHalt = 'O',
        NotOperationallyHaltedOnIex = 'N',
    }

    /// Operational halt status of a security on IEX.
    message OperationalHaltStatus = 'O', 18 bytes {
        operational_halt_status @ 1 : OperationalHaltCode,
        timestamp               @ 2 : nanoseconds_since_epoch<i64>,
        symbol                  @ 10: ascii<8>,
    }

    enum ShortSalePriceTest: u8 {
        NotInEffect = 0x0,
        InEffect = 0x1,
    }

    enum ShortSalePriceTestDetail: ascii<1> {
        NoPriceTestInPlace = ' ',
        ShortSalePriceTestRestrictionInEffectDueToAnIntradayPriceDropInTheSecurity = 'A',
        ShortSalePriceTestRestrictionRemainsInEffectFromPriorDay = 'C',
        ShortSalePriceTestRestrictionDeactivated = 'D',
        NotAvailable = 'N',
    }

    /// Short sale price test status (Reg SHO).
    message ShortSalePriceTestStatus = 'P', 19 bytes {
        short_sale_price_test_status @ 1 : ShortSalePriceTest,
        timestamp                    @ 2 : nanoseconds_since_epoch<i64>,
        symbol                       @ 10: ascii<8>,
        detail                       @ 18: ShortSalePriceTestDetail,
    }

    enum SecurityEventCode: ascii<1> {
        OpeningProcessComplete = 'O',
        ClosingProcessComplete = 'C',
    }

    /// Security event: the opening or closing process of a security is complete.
    message SecurityEvent = 'E', 18 bytes {
        security_event @ 1 : SecurityEventCode,
        timestamp      @ 2 : nanoseconds_since_epoch<i64>,
        symbol         @ 10: ascii<8>,
    }

    enum Side: ascii<1> {
        Buy = '8',
        Sell = '5',
    }

    /// Add order: a displayed order joined the book.
    message AddOrder = 'a', 38 bytes {
        side      @ 1 : Side,
        timestamp @ 2 : nanoseconds_since_epoch<i64>,
        symbol    @ 10: ascii<8>,
        order_id  @ 18: u64,
        size      @ 26: u32,
        price     @ 30: price<i64, 4>,
    }

    flags ModifyFlags: u8 {
        /// The order keeps its place among those of its price.
        MaintainPriority = 0,
    }

    /// Order modify: price, size or priority of a displayed order changed.
    message OrderModify = 'M', 38 bytes {
        modify_flags       @ 1 : ModifyFlags,
        timestamp          @ 2 : nanoseconds_since_epoch<i64>,
        symbol             @ 10: ascii<8>,
        order_id_reference @ 18: u64,
        /// The new total.
        size               @ 26: u32,
        price              @ 30: price<i64, 4>,
    }

    /// Order delete: a displayed order left the book.
    message OrderDelete = 'R', 26 bytes {
        reserved           @ 1 : bytes<1>,
        timestamp          @ 2 : nanoseconds_since_epoch<i64>,
        symbol             @ 10: ascii<8>,
        order_id_reference @ 18: u64,
    }

    flags SaleConditionFlags: u8 {
        /// F: the incoming order was an intermarket sweep order.
        IntermarketSweep = 7,
        /// T: outside the regular market session (Form T).
        ExtendedHours = 6,
        /// I: less than a round lot.
        OddLot = 5,
        /// 8: not subject to Rule 611.
        TradeThroughExempt = 4,
        /// X: from a cross at a single price.
        SinglePriceCrossTrade = 3,
    }

    /// Order executed: a displayed order traded. The price may differ from the order's own.
    message OrderExecuted = 'L', 46 bytes {
        sale_condition_flags @ 1 : SaleConditionFlags,
        timestamp            @ 2 : nanoseconds_since_epoch<i64>,
        symbol               @ 10: ascii<8>,
        order_id_reference   @ 18: u64,
        size                 @ 26: u32,
        price                @ 30: price<i64, 4>,
        trade_id             @ 38: u64,
    }

    /// Trade of two orders that are not displayed.
    message Trade = 'T', 38 bytes {
        sale_condition_flags @ 1 : SaleConditionFlags,
        timestamp            @ 2 : nanoseconds_since_epoch<i64>,
        symbol               @ 10: ascii<8>,
        size                 @ 18: u32,
        price                @ 22: price<i64, 4>,
        trade_id             @ 30: u64,
    }

    /// Trade break: the trade of this identifier is cancelled.
    message TradeBreak = 'B', 38 bytes {
        sale_condition_flags @ 1 : SaleConditionFlags,
        timestamp            @ 2 : nanoseconds_since_epoch<i64>,
        symbol               @ 10: ascii<8>,
        size                 @ 18: u32,
        price                @ 22: price<i64, 4>,
        trade_id             @ 30: u64,
    }

    /// Clear book: no order of the symbol is left.
    message ClearBook = 'C', 18 bytes {
        reserved  @ 1 : bytes<1>,
        timestamp @ 2 : nanoseconds_since_epoch<i64>,
        symbol    @ 10: ascii<8>,
    }
}
