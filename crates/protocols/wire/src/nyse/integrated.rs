//! NYSE Integrated Feed (Pillar) 2.5: every displayed order of NYSE, Arca, American, National or Texas, every trade, and the auctions.
//!
//! Source: *NYSE Integrated Feed Client Specification* 2.5.g and *Pillar Common Client Specification*, in order of message type.
//! Little-endian. Offsets count from the length at 0, which includes itself. Times are split: the source time reference carries the second,
//! most other messages the nanoseconds within it. Prices are integers; the symbol's mapping defines the number of decimal places.
//!
//! Messages identify a symbol by an index, which only the symbol index mapping defines.
//!
//! Verified on real packets: AddOrder, DeleteOrder, OrderExecution, Imbalance, SecurityStatus, SourceTimeReference and StockSummary. In
//! the captured packet the stock summary's `open` has the scale of its high and low. Carried by the [packet header](super::packet).

tapeworks_wire_macros::protocol! {
    /// Every displayed order of a NYSE exchange, every trade, and the auctions.
    protocol "nyse-integrated-2.5" {
        title: "NYSE Integrated 2.5",
        version: "2.5",
        endian: little,
        tag: u16 @ 2,
        length: extensible,
    }

    /// Sequence number reset: the channel's numbers begin anew.
    message SequenceNumberReset = 1, 14 bytes {
        length         @ 0 : u16,
        source_time    @ 4 : seconds_since_epoch<u32>,
        source_time_ns @ 8 : nanoseconds<u32>,
        product_id     @ 12: u8,
        channel_id     @ 13: u8,
    }

    /// Source time reference: the second that the messages behind it are of, for the symbols of one matching engine. Once a second.
    message SourceTimeReference = 2, 16 bytes {
        length          @ 0 : u16,
        /// The matching engine's: `system_id` of the mapping.
        id              @ 4 : u32,
        symbol_sequence @ 8 : u32,
        source_time     @ 12: seconds_since_epoch<u32>,
    }

    enum Market: u16 {
        NyseEquities = 1,
        ArcaEquities = 3,
        ArcaOptions = 4,
        NyseBonds = 5,
        AmericanOptions = 8,
        AmericanEquities = 9,
        NationalEquities = 10,
        TexasEquities = 11,
    }

    enum ListingMarket: ascii<1> {
        NyseAmerican = 'A',
        Ltse = 'L',
        NyseTexas = 'M',
        Nyse = 'N',
        NyseArca = 'P',
        Nasdaq = 'Q',
        Iex = 'V',
        Cboe = 'Z',
    }

    enum SecurityType: ascii<1> {
        Adr = 'A',
        CommonStock = 'C',
        Debentures = 'D',
        Etf = 'E',
        Foreign = 'F',
        UsDepositaryShares = 'H',
        Units = 'I',
        IndexLinkedNotes = 'L',
        MiscellaneousLiquidTrust = 'M',
        OrdinaryShares = 'O',
        PreferredStock = 'P',
        Rights = 'R',
        SharesOfBeneficialInterest = 'S',
        Test = 'T',
        ClosedEndFund = 'U',
        Warrant = 'W',
    }

    enum RoundLot: ascii<1> {
        Yes = 'Y',
        No = 'N',
    }

    /// Symbol index mapping: what a symbol index stands for, and how its prices are scaled.
    message SymbolIndexMapping = 3, 44 bytes {
        length                  @ 0 : u16,
        symbol_index            @ 4 : u32,
        symbol                  @ 8 : ascii<11>,
        reserved_1              @ 19: u8,
        market_id               @ 20: Market,
        system_id               @ 22: u8,
        exchange_code           @ 23: ListingMarket,
        /// Prices of the symbol have so many decimal places.
        price_scale_code        @ 24: u8,
        security_type           @ 25: SecurityType,
        lot_size                @ 26: u16,
        previous_close_price    @ 28: i32,
        previous_close_volume   @ 32: u32,
        price_resolution        @ 36: u8,
        round_lot               @ 37: RoundLot,
        minimum_price_variation @ 38: u16,
        unit_of_trade           @ 40: u16,
        reserved_2              @ 42: u16,
    }

    /// Retransmission request, to a request server.
    message RetransmissionRequest = 10, 24 bytes {
        length         @ 0 : u16,
        begin_sequence @ 4 : u32,
        end_sequence   @ 8 : u32,
        source_id      @ 12: ascii<10>,
        product_id     @ 22: u8,
        channel_id     @ 23: u8,
    }

    enum RequestStatus: ascii<1> {
        Accepted = '0',
        InvalidSource = '1',
        RangeTooLong = '3',
        TooManyRequests = '4',
        TooManyRefreshRequests = '5',
        TooOld = '6',
        InvalidChannel = '7',
        InvalidProduct = '8',
        InvalidMessage = '9',
    }

    /// Request response, of a request server.
    message RequestResponse = 11, 29 bytes {
        length           @ 0 : u16,
        request_sequence @ 4 : u32,
        begin_sequence   @ 8 : u32,
        end_sequence     @ 12: u32,
        source_id        @ 16: ascii<10>,
        product_id       @ 26: u8,
        channel_id       @ 27: u8,
        status           @ 28: RequestStatus,
    }

    /// Heartbeat response, to a request server.
    message HeartbeatResponse = 12, 14 bytes {
        length    @ 0: u16,
        source_id @ 4: ascii<10>,
    }

    /// Symbol index mapping request, to a request server.
    message SymbolIndexMappingRequest = 13, 21 bytes {
        length            @ 0 : u16,
        symbol_index      @ 4 : u32,
        source_id         @ 8 : ascii<10>,
        product_id        @ 18: u8,
        channel_id        @ 19: u8,
        retransmit_method @ 20: u8,
    }

    /// Refresh request, to a request server.
    message RefreshRequest = 15, 20 bytes {
        length       @ 0 : u16,
        symbol_index @ 4 : u32,
        source_id    @ 8 : ascii<10>,
        product_id   @ 18: u8,
        channel_id   @ 19: u8,
    }

    /// Message unavailable: a request server cannot send these messages again.
    message MessageUnavailable = 31, 14 bytes {
        length         @ 0 : u16,
        begin_sequence @ 4 : u32,
        end_sequence   @ 8 : u32,
        product_id     @ 12: u8,
        channel_id     @ 13: u8,
    }

    /// Symbol clear: the book of the symbol is empty.
    message SymbolClear = 32, 20 bytes {
        length               @ 0 : u16,
        source_time          @ 4 : seconds_since_epoch<u32>,
        source_time_ns       @ 8 : nanoseconds<u32>,
        symbol_index         @ 12: u32,
        next_source_sequence @ 16: u32,
    }

    enum SecurityStatusCode: ascii<1> {
        TradingHalt = '4',
        Resume = '5',
        Suspend = '6',
        ShortSaleRestrictionActivated = 'A',
        ShortSaleRestrictionContinued = 'C',
        ShortSaleRestrictionDeactivated = 'D',
        PreOpening = 'P',
        BeginAcceptingOrders = 'B',
        EarlySession = 'E',
        CoreSession = 'O',
        LateSession = 'L',
        Closed = 'X',
        HaltResumePriceIndication = 'I',
        PreOpeningPriceIndication = 'G',
    }

    /// XDP 2.1 has a space for a security that is not halted.
    enum HaltCondition: ascii<1> {
        NotHalted = '~',
        NotHaltedInXdp = ' ',
        NewsReleased = 'D',
        OrderImbalance = 'I',
        NewsPending = 'P',
        LuldPause = 'M',
        EquipmentChangeover = 'X',
        AdditionalInformationRequested = 'A',
        RegulatoryConcern = 'C',
        MergerEffective = 'E',
        EtfComponentPricesNotAvailable = 'F',
        CorporateAction = 'N',
        NewSecurityOffering = 'O',
        IntradayIndicativeValueNotAvailable = 'V',
        Suspended = '6',
        CircuitBreakerLevel1 = '1',
        CircuitBreakerLevel2 = '2',
        CircuitBreakerLevel3 = '3',
    }

    enum Exchange: ascii<1> {
        NyseAmerican = 'A',
        NasdaqBx = 'B',
        NyseNational = 'C',
        Finra = 'D',
        TwentyFourExchange = 'G',
        MiamiPearl = 'H',
        NasdaqIse = 'I',
        CboeEdga = 'J',
        CboeEdgx = 'K',
        Ltse = 'L',
        NyseTexas = 'M',
        Nyse = 'N',
        NyseArca = 'P',
        Nasdaq = 'Q',
        NasdaqOmx = 'T',
        Memx = 'U',
        Iex = 'V',
        Cbsx = 'W',
        NasdaqPsx = 'X',
        CboeByx = 'Y',
        CboeBzx = 'Z',
    }

    enum ShortSaleRestriction: ascii<1> {
        NotInEffect = '~',
        InEffect = 'E',
    }

    enum MarketState: ascii<1> {
        PreOpening = 'P',
        EarlySession = 'E',
        CoreSession = 'O',
        LateSession = 'L',
        Closed = 'X',
    }

    /// Security status: a state of the symbol changed.
    message SecurityStatus = 34, 46 bytes {
        length                         @ 0 : u16,
        source_time                    @ 4 : seconds_since_epoch<u32>,
        source_time_ns                 @ 8 : nanoseconds<u32>,
        symbol_index                   @ 12: u32,
        symbol_sequence                @ 16: u32,
        security_status                @ 20: SecurityStatusCode,
        halt_condition                 @ 21: HaltCondition,
        reserved_4                     @ 22: u32,
        price_1                        @ 26: i32,
        price_2                        @ 30: i32,
        short_sale_triggering_exchange @ 34: Exchange,
        short_sale_triggering_volume   @ 35: u32,
        time                           @ 39: u32,
        short_sale_restriction         @ 43: ShortSaleRestriction,
        market_state                   @ 44: MarketState,
        session_state                  @ 45: ascii<1>,
    }

    /// Refresh header: the beginning of each packet of a refresh.
    message RefreshHeader = 35, 16 bytes {
        length                 @ 0 : u16,
        current_refresh_packet @ 4 : u16,
        total_refresh_packets  @ 6 : u16,
        last_sequence          @ 8 : u32,
        last_symbol_sequence   @ 12: u32,
    }

    enum Side: ascii<1> {
        Buy = 'B',
        Sell = 'S',
    }

    /// Add order: a displayed order joins the book.
    message AddOrder = 100, 39 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        order_id        @ 16: u64,
        price           @ 24: i32,
        volume          @ 28: u32,
        side            @ 32: Side,
        firm_id         @ 33: ascii<5>,
        reserved_1      @ 38: u8,
    }

    /// Modify order: price or size of an order changed, and perhaps its place in the queue.
    message ModifyOrder = 101, 35 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        order_id        @ 16: u64,
        price           @ 24: i32,
        volume          @ 28: u32,
        /// 0: the order keeps its place among those of its price.
        position_change @ 32: u8,
        side            @ 33: Side,
        reserved_1      @ 34: u8,
    }

    /// Delete order: an order leaves the book.
    message DeleteOrder = 102, 25 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        order_id        @ 16: u64,
        reserved_1      @ 24: u8,
    }

    enum PrintableFlag: u8 {
        NotPrintedToSip = 0,
        PrintedToSip = 1,
    }

    /// Trade condition 1.
    enum Settlement: ascii<1> {
        RegularSale = '@',
        Cash = 'C',
    }

    /// Trade condition 2.
    enum TradeThroughExemption: ascii<1> {
        None = ' ',
        IntermarketSweepOrder = 'F',
        OpeningTrade = 'O',
        ReopeningTrade = '5',
        ClosingTrade = '6',
        QualifiedContingentTrade = '7',
    }

    /// Trade condition 3.
    enum ExtendedHours: ascii<1> {
        None = ' ',
        ExtendedHoursTrade = 'T',
        ExtendedHoursSoldOutOfSequence = 'U',
        Sold = 'Z',
    }

    /// Trade condition 4.
    enum SaleCondition: ascii<1> {
        None = ' ',
        OddLotTrade = 'I',
        ContingentTrade = 'V',
    }

    /// Order execution: a resting order traded. In XDP 2.1 the four bytes of the trade conditions are a number of NYSE's database.
    message OrderExecution = 103, 42 bytes {
        length            @ 0 : u16,
        source_time_ns    @ 4 : nanoseconds<u32>,
        symbol_index      @ 8 : u32,
        symbol_sequence   @ 12: u32,
        order_id          @ 16: u64,
        trade_id          @ 24: u32,
        price             @ 28: i32,
        volume            @ 32: u32,
        printable_flag    @ 36: PrintableFlag,
        reserved_1        @ 37: u8,
        trade_condition_1 @ 38: Settlement,
        trade_condition_2 @ 39: TradeThroughExemption,
        trade_condition_3 @ 40: ExtendedHours,
        trade_condition_4 @ 41: SaleCondition,
    }

    /// Replace order: another order takes the place of an order. In XDP 2.1 without a side.
    message ReplaceOrder = 104, 42 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        order_id        @ 16: u64,
        new_order_id    @ 24: u64,
        price           @ 32: i32,
        volume          @ 36: u32,
        side            @ 40: Side,
        reserved_1      @ 41: u8,
    }

    enum AuctionType: ascii<1> {
        EarlyOpening = 'O',
        CoreOpening = 'M',
        Reopening = 'H',
        Closing = 'C',
        ExtremeClosingImbalance = 'P',
        SignificantClosingImbalance = 'R',
    }

    enum ImbalanceSide: ascii<1> {
        Buy = 'B',
        Sell = 'S',
        None = ' ',
    }

    enum AuctionStatus: u8 {
        WillRunAsAlways = 0,
        WillRun = 1,
        WillNotRunImbalanceThroughCollars = 2,
        WillNotRunTransitionsToClosing = 3,
    }

    enum FreezeStatus: u8 {
        NotInEffect = 0,
        InEffect = 1,
    }

    /// Imbalance: an auction that is being prepared.
    message Imbalance = 105, 67..=73 bytes {
        length                          @ 0 : u16,
        source_time                     @ 4 : seconds_since_epoch<u32>,
        source_time_ns                  @ 8 : nanoseconds<u32>,
        symbol_index                    @ 12: u32,
        symbol_sequence                 @ 16: u32,
        reference_price                 @ 20: i32,
        paired_quantity                 @ 24: u32,
        total_imbalance_quantity        @ 28: u32,
        market_imbalance_quantity       @ 32: u32,
        auction_time                    @ 36: u16,
        auction_type                    @ 38: AuctionType,
        imbalance_side                  @ 39: ImbalanceSide,
        continuous_book_clearing_price  @ 40: i32,
        auction_interest_clearing_price @ 44: i32,
        short_sale_filing_price         @ 48: i32,
        indicative_match_price          @ 52: i32,
        upper_collar                    @ 56: u32,
        lower_collar                    @ 60: u32,
        auction_status                  @ 64: AuctionStatus,
        freeze_status                   @ 65: FreezeStatus,
        extensions                      @ 66: u8,
        /// Not before 2.5, nor the two behind it.
        unpaired_quantity               @ 67 since "2.5": u32,
        unpaired_side                   @ 71 since "2.5": ImbalanceSide,
        reserved_1                      @ 72 since "2.5": u8,
    }

    /// Add order refresh: an order of the book, in a refresh.
    message AddOrderRefresh = 106, 43 bytes {
        length          @ 0 : u16,
        source_time     @ 4 : seconds_since_epoch<u32>,
        source_time_ns  @ 8 : nanoseconds<u32>,
        symbol_index    @ 12: u32,
        symbol_sequence @ 16: u32,
        order_id        @ 20: u64,
        price           @ 28: i32,
        volume          @ 32: u32,
        side            @ 36: Side,
        firm_id         @ 37: ascii<5>,
        reserved_1      @ 42: u8,
    }

    /// Non-displayed trade: no displayed order took part.
    message NonDisplayedTrade = 110, 33 bytes {
        length            @ 0 : u16,
        source_time_ns    @ 4 : nanoseconds<u32>,
        symbol_index      @ 8 : u32,
        symbol_sequence   @ 12: u32,
        trade_id          @ 16: u32,
        price             @ 20: i32,
        volume            @ 24: u32,
        printable_flag    @ 28: PrintableFlag,
        trade_condition_1 @ 29: Settlement,
        trade_condition_2 @ 30: TradeThroughExemption,
        trade_condition_3 @ 31: ExtendedHours,
        trade_condition_4 @ 32: SaleCondition,
    }

    enum CrossType: ascii<1> {
        EarlyOpening = 'E',
        Opening = 'O',
        Reopening = '5',
        Closing = '6',
    }

    /// Cross trade: the trade of an auction.
    message CrossTrade = 111, 29 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        cross_id        @ 16: u32,
        price           @ 20: i32,
        volume          @ 24: u32,
        cross_type      @ 28: CrossType,
    }

    /// Trade cancel: a trade is void.
    message TradeCancel = 112, 20 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        trade_id        @ 16: u32,
    }

    /// Cross correction: the volume of an auction's trade was another.
    message CrossCorrection = 113, 24 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        cross_id        @ 16: u32,
        volume          @ 20: u32,
    }

    enum RetailInterest: ascii<1> {
        None = ' ',
        Bid = 'A',
        Offer = 'B',
        BidAndOffer = 'C',
    }

    /// Retail price improvement: where retail orders would trade at a better price.
    message RetailPriceImprovement = 114, 17 bytes {
        length          @ 0 : u16,
        source_time_ns  @ 4 : nanoseconds<u32>,
        symbol_index    @ 8 : u32,
        symbol_sequence @ 12: u32,
        retail_interest @ 16: RetailInterest,
    }

    /// Stock summary: the day's prices and volume of a symbol.
    message StockSummary = 223, 36 bytes {
        length         @ 0 : u16,
        source_time    @ 4 : seconds_since_epoch<u32>,
        source_time_ns @ 8 : nanoseconds<u32>,
        symbol_index   @ 12: u32,
        high_price     @ 16: i32,
        low_price      @ 20: i32,
        open           @ 24: u32,
        close          @ 28: u32,
        total_volume   @ 32: u32,
    }
}
