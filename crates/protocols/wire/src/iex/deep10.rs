//! IEX DEEP 1.0: the total displayed size at every price level, and every trade on IEX.
//!
//! Source: *IEX DEEP Specification*, version 1.0 (revision 1.08), chapter "Message formats", in the same order. As in that document,
//! offsets count from the message type at 0. Little-endian; prices are signed with four implied decimals, times are nanoseconds
//! since the epoch in UTC. Messages may grow: receivers must skip bytes after the declared ones.
//!
//! DEEP publishes levels, not orders: a price level update contains the new total size at a price. The book is consistent only
//! after an update whose event flags mark the event as complete.
//!
//! Carried by [IEX-TP](super::tp) with message protocol id 0x8004.

tapeworks_wire_macros::protocol! {
    /// The total displayed size at every price of IEX, and every trade.
    protocol "iex-deep-1.0" {
        title: "IEX DEEP 1.0",
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

    flags EventFlags: u8 {
        /// The book is consistent: all changes of the event are applied.
        EventProcessingComplete = 0,
    }

    /// Price level update, buy side: the total displayed size at this price; 0 removes the level.
    message PriceLevelBuyUpdate = '8', 30 bytes {
        event_flags @ 1 : EventFlags,
        timestamp   @ 2 : nanoseconds_since_epoch<i64>,
        symbol      @ 10: ascii<8>,
        size        @ 18: u32,
        price       @ 22: price<i64, 4>,
    }

    /// Price level update, sell side: the total displayed size at this price; 0 removes the level.
    message PriceLevelSellUpdate = '5', 30 bytes {
        event_flags @ 1 : EventFlags,
        timestamp   @ 2 : nanoseconds_since_epoch<i64>,
        symbol      @ 10: ascii<8>,
        size        @ 18: u32,
        price       @ 22: price<i64, 4>,
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

    /// Trade report: one per execution, displayed or not.
    message TradeReport = 'T', 38 bytes {
        sale_condition_flags @ 1 : SaleConditionFlags,
        timestamp            @ 2 : nanoseconds_since_epoch<i64>,
        symbol               @ 10: ascii<8>,
        size                 @ 18: u32,
        price                @ 22: price<i64, 4>,
        trade_id             @ 30: u64,
    }

    enum PriceType: ascii<1> {
        IexOfficialOpeningPrice = 'Q',
        IexOfficialClosingPrice = 'M',
    }

    /// Official price: the IEX official opening or closing price.
    message OfficialPrice = 'X', 26 bytes {
        price_type     @ 1 : PriceType,
        timestamp      @ 2 : nanoseconds_since_epoch<i64>,
        symbol         @ 10: ascii<8>,
        official_price @ 18: price<i64, 4>,
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

    enum AuctionType: ascii<1> {
        OpeningAuction = 'O',
        ClosingAuction = 'C',
        IpoAuction = 'I',
        HaltAuction = 'H',
        VolatilityAuction = 'V',
    }

    enum ImbalanceSide: ascii<1> {
        Buy = 'B',
        Sell = 'S',
        None = 'N',
    }

    /// Auction information, every second before an auction in an IEX-listed security.
    message AuctionInformation = 'A', 80 bytes {
        auction_type                @ 1 : AuctionType,
        timestamp                   @ 2 : nanoseconds_since_epoch<i64>,
        symbol                      @ 10: ascii<8>,
        paired_shares               @ 18: u32,
        reference_price             @ 22: price<i64, 4>,
        indicative_clearing_price   @ 30: price<i64, 4>,
        imbalance_shares            @ 38: u32,
        imbalance_side              @ 42: ImbalanceSide,
        extension_number            @ 43: u8,
        scheduled_auction_time      @ 44: seconds_since_epoch<u32>,
        auction_book_clearing_price @ 48: price<i64, 4>,
        collar_reference_price      @ 56: price<i64, 4>,
        lower_auction_collar        @ 64: price<i64, 4>,
        upper_auction_collar        @ 72: price<i64, 4>,
    }
}
