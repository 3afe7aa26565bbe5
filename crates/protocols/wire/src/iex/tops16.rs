//! IEX TOPS 1.6: the best displayed quote and every trade on IEX.
//!
//! Source: *IEX TOPS Specification*, version 1.6 (revision 1.66), chapter "Message formats", in the same order. As in that document,
//! offsets count from the message type at 0. Little-endian; prices are signed with four implied decimals, times are nanoseconds
//! since the epoch in UTC. Messages may grow: receivers must skip bytes after the declared ones.
//!
//! TOPS 1.5 has the same transport, message protocol id and layouts, but lacks the messages that 1.6 added. This declaration
//! decodes its captures.
//!
//! Carried by [IEX-TP](super::tp) with message protocol id 0x8003.

tapeworks_wire_macros::protocol! {
    /// The best displayed quote and every trade of IEX.
    protocol "iex-tops-1.6" {
        title: "IEX TOPS 1.6",
        version: "1.6",
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
        Activated = 'A',
        Continued = 'C',
        Deactivated = 'D',
        NotAvailable = 'N',
    }

    /// Short sale price test status (Reg SHO).
    message ShortSalePriceTestStatus = 'P', 19 bytes {
        short_sale_price_test_status @ 1 : ShortSalePriceTest,
        timestamp                    @ 2 : nanoseconds_since_epoch<i64>,
        symbol                       @ 10: ascii<8>,
        detail                       @ 18: ShortSalePriceTestDetail,
    }

    flags QuoteUpdateFlags: u8 {
        /// A: the symbol is halted, paused or otherwise not available for trading on IEX (clear: active).
        Halted = 7,
        /// P: outside the regular market session (clear: inside).
        PreOrPostMarket = 6,
    }

    /// Quote update: the best displayed bid and offer. Size and price 0: no quote on that side.
    message QuoteUpdate = 'Q', 42 bytes {
        quote_update_flags @ 1 : QuoteUpdateFlags,
        timestamp          @ 2 : nanoseconds_since_epoch<i64>,
        symbol             @ 10: ascii<8>,
        bid_size           @ 18: u32,
        bid_price          @ 22: price<i64, 4>,
        ask_price          @ 30: price<i64, 4>,
        ask_size           @ 38: u32,
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
