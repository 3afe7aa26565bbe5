//! Nasdaq TotalView-ITCH 5.0: every displayed order of Nasdaq, BX (Nasdaq Texas) and PSX, one message per event.
//!
//! Source: *Nasdaq TotalView-ITCH 5.0* specification; section numbers refer to its message chapter. As in that document, offsets
//! count from the message type at 0. Prices have four implied decimals (circuit breaker levels eight), times are nanoseconds
//! since midnight in New York, text is left-justified and padded with spaces. A stock locate is valid for one day and one
//! venue.
//!
//! Carried by [MoldUDP64](super::moldudp64), by [SoupBinTCP](super::soupbintcp), or in daily files as messages with two-byte
//! big-endian length prefixes ([`Blocks`](crate::framing::Blocks)).

mod order;

pub use order::OrderMessage;

/// Returns the timestamp of any message, known or not: it is always at offset 5. `None` if the message is too short.
#[inline]
#[must_use]
pub fn timestamp(message: &[u8]) -> Option<crate::NanosecondsSinceMidnight> {
    let bytes = message.get(5..)?.first_chunk::<6>()?;
    Some(crate::NanosecondsSinceMidnight(bytes.iter().fold(0, |time, byte| time << 8 | u64::from(*byte))))
}

tapeworks_wire_macros::protocol! {
    /// Every displayed order of a Nasdaq equity market, one message per event.
    protocol "nasdaq-totalview-itch-5.0" {
        title: "Nasdaq TotalView-ITCH 5.0",
        version: "5.0",
        endian: big,
        tag: ascii<1> @ 0,
        length: exact,
    }

    enum EventCode: ascii<1> {
        StartOfMessages = 'O',
        StartOfSystemHours = 'S',
        StartOfMarketHours = 'Q',
        EndOfMarketHours = 'M',
        EndOfSystemHours = 'E',
        EndOfMessages = 'C',
    }

    /// 1.1 System event.
    message SystemEvent = 'S', 12 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        event_code      @ 11: EventCode,
    }

    enum MarketCategory: ascii<1> {
        NasdaqGlobalSelectMarket = 'Q',
        NasdaqGlobalMarket = 'G',
        NasdaqCapitalMarket = 'S',
        Nyse = 'N',
        NyseAmerican = 'A',
        NyseArca = 'P',
        NyseTexas = 'M',
        BatsZ = 'Z',
        InvestorsExchange = 'V',
        NotAvailable = ' ',
    }

    enum FinancialStatusIndicator: ascii<1> {
        Deficient = 'D',
        Delinquent = 'E',
        Bankrupt = 'Q',
        Suspended = 'S',
        DeficientAndBankrupt = 'G',
        DeficientAndDelinquent = 'H',
        DelinquentAndBankrupt = 'J',
        DeficientDelinquentAndBankrupt = 'K',
        CreationsAndRedemptionsSuspended = 'C',
        Normal = 'N',
        NotAvailable = ' ',
    }

    enum RoundLotsOnly: ascii<1> {
        Yes = 'Y',
        No = 'N',
    }

    enum IssueClassification: ascii<1> {
        AmericanDepositaryShare = 'A',
        Bond = 'B',
        CommonStock = 'C',
        DepositoryReceipt = 'F',
        Sec144A = 'I',
        LimitedPartnership = 'L',
        Notes = 'N',
        OrdinaryShare = 'O',
        PreferredStock = 'P',
        OtherSecurities = 'Q',
        Right = 'R',
        SharesOfBeneficialInterest = 'S',
        ConvertibleDebenture = 'T',
        Unit = 'U',
        UnitsOfBeneficialInterest = 'V',
        Warrant = 'W',
    }

    enum IssueSubType: ascii<2> {
        PreferredTrustSecurities = "A",
        AlphaIndexEtns = "AI",
        IndexBasedDerivative = "B",
        CommonShares = "C",
        CommodityBasedTrustShares = "CB",
        CommodityFuturesTrustShares = "CF",
        CommodityLinkedSecurities = "CL",
        CommodityIndexTrustShares = "CM",
        CollateralizedMortgageObligation = "CO",
        CurrencyTrustShares = "CT",
        CommodityCurrencyLinkedSecurities = "CU",
        CurrencyWarrants = "CW",
        GlobalDepositaryShares = "D",
        EtfPortfolioDepositaryReceipt = "E",
        EquityGoldShares = "EG",
        EtnEquityIndexLinkedSecurities = "EI",
        NextSharesExchangeTradedManagedFund = "EM",
        ExchangeTradedNotes = "EN",
        EquityUnits = "EU",
        Holdrs = "F",
        EtnFixedIncomeLinkedSecurities = "FI",
        EtnFuturesLinkedSecurities = "FL",
        GlobalShares = "G",
        EtfIndexFundShares = "I",
        InterestRate = "IR",
        IndexWarrant = "IW",
        IndexLinkedExchangeableNotes = "IX",
        CorporateBackedTrustSecurity = "J",
        ContingentLitigationRight = "L",
        LimitedLiabilityCompany = "LL",
        EquityBasedDerivative = "M",
        ManagedFundShares = "MF",
        EtnMultiFactorIndexLinkedSecurities = "ML",
        ManagedTrustSecurities = "MT",
        NyRegistryShares = "N",
        OpenEndedMutualFund = "O",
        PrivatelyHeldSecurity = "P",
        PoisonPill = "PP",
        PartnershipUnits = "PU",
        ClosedEndFunds = "Q",
        RegS = "R",
        CommodityRedeemableCommodityLinkedSecurities = "RC",
        EtnRedeemableFuturesLinkedSecurities = "RF",
        Reit = "RT",
        CommodityRedeemableCurrencyLinkedSecurities = "RU",
        Seed = "S",
        SpotRateClosing = "SC",
        SpotRateIntraday = "SI",
        TrackingStock = "T",
        TrustCertificates = "TC",
        TrustUnits = "TU",
        Portal = "U",
        ContingentValueRight = "V",
        TrustIssuedReceipts = "W",
        WorldCurrencyOption = "WC",
        Trust = "X",
        Other = "Y",
        NotApplicable = "Z",
    }

    enum Authenticity: ascii<1> {
        LiveProduction = 'P',
        Test = 'T',
    }

    enum ShortSaleThresholdIndicator: ascii<1> {
        Restricted = 'Y',
        NotRestricted = 'N',
        NotAvailable = ' ',
    }

    enum IpoFlag: ascii<1> {
        SetUpForIpoRelease = 'Y',
        NotSetUpForIpoRelease = 'N',
        NonIpoNewListedSecurity = 'Z',
        NotAvailable = ' ',
    }

    enum LuldReferencePriceTier: ascii<1> {
        Tier1 = '1',
        Tier2 = '2',
        NotAvailable = ' ',
    }

    enum EtpFlag: ascii<1> {
        Etp = 'Y',
        NotEtp = 'N',
        NotAvailable = ' ',
    }

    enum InverseIndicator: ascii<1> {
        InverseEtp = 'Y',
        NotInverseEtp = 'N',
    }

    /// 1.2.1 Stock directory: one per symbol at the start of the day, and again when something changes.
    message StockDirectory = 'R', 39 bytes {
        stock_locate                   @ 1 : u16,
        tracking_number                @ 3 : u16,
        timestamp                      @ 5 : nanoseconds_since_midnight<u48>,
        stock                          @ 11: ascii<8>,
        market_category                @ 19: MarketCategory,
        financial_status_indicator     @ 20: FinancialStatusIndicator,
        round_lot_size                 @ 21: u32,
        round_lots_only                @ 25: RoundLotsOnly,
        issue_classification           @ 26: IssueClassification,
        issue_sub_type                 @ 27: IssueSubType,
        authenticity                   @ 29: Authenticity,
        short_sale_threshold_indicator @ 30: ShortSaleThresholdIndicator,
        ipo_flag                       @ 31: IpoFlag,
        luld_reference_price_tier      @ 32: LuldReferencePriceTier,
        etp_flag                       @ 33: EtpFlag,
        etp_leverage_factor            @ 34: u32,
        inverse_indicator              @ 38: InverseIndicator,
    }

    enum TradingState: ascii<1> {
        Halted = 'H',
        Paused = 'P',
        QuotationOnlyPeriod = 'Q',
        Trading = 'T',
    }

    enum ReasonCode: ascii<4> {
        HaltNewsPending = "T1",
        HaltNewsDisseminated = "T2",
        SingleSecurityTradingPauseInEffect = "T5",
        RegulatoryHaltExtraordinaryMarketActivity = "T6",
        HaltEtf = "T8",
        TradingHalted = "T12",
        HaltNonCompliance = "H4",
        HaltFilingsNotCurrent = "H9",
        HaltSecTradingSuspension = "H10",
        HaltRegulatoryConcern = "H11",
        OperationsHalt = "O1",
        VolatilityTradingPause = "LUDP",
        StraddleConditionTradingPause = "LUDS",
        CircuitBreakerHaltLevel1 = "MWC1",
        CircuitBreakerHaltLevel2 = "MWC2",
        CircuitBreakerHaltLevel3 = "MWC3",
        CarryOverCircuitBreakerHalt = "MWC0",
        IpoIssue = "IPO1",
        CorporateAction = "M1",
        NotAvailable = "M2",
        NewsAndResumptionTimes = "T3",
        TradingPauseQuotationOnlyPeriod = "T7",
        QualificationsIssuesResolved = "R4",
        FilingRequirementsSatisfied = "R9",
        IssuerNewsNotForthcoming = "C3",
        QualificationsHaltEnded = "C4",
        QualificationsHaltConcluded = "C9",
        TradeHaltConcludedByOtherRegulatoryAuthority = "C11",
        MarketWideCircuitBreakerResumption = "MWCQ",
        NewIssueAvailable = "R1",
        IssueAvailable = "R2",
        IpoSecurityReleased = "IPOQ",
        IpoSecurityPositioningWindowExtension = "IPOE",
        ReasonNotAvailable = "",
    }

    /// 1.2.2 Stock trading action: halts, pauses and resumptions.
    message StockTradingAction = 'H', 25 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        stock           @ 11: ascii<8>,
        trading_state   @ 19: TradingState,
        reserved        @ 20: ascii<1>,
        reason_code     @ 21: ReasonCode,
    }

    enum RegShoAction: ascii<1> {
        NoPriceTest = '0',
        RegShoShortSalePriceTestRestriction = '1',
        TestRestrictionRemains = '2',
    }

    /// 1.2.3 Reg SHO short sale price test restricted indicator.
    message RegShoRestriction = 'Y', 20 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        stock           @ 11: ascii<8>,
        reg_sho_action  @ 19: RegShoAction,
    }

    enum PrimaryMarketMaker: ascii<1> {
        Primary = 'Y',
        NonPrimary = 'N',
    }

    enum MarketMakerMode: ascii<1> {
        Normal = 'N',
        Passive = 'P',
        Syndicate = 'S',
        PreSyndicate = 'R',
        Penalty = 'L',
    }

    enum MarketParticipantState: ascii<1> {
        Active = 'A',
        Excused = 'E',
        Withdrawn = 'W',
        Suspended = 'S',
        Deleted = 'D',
    }

    /// 1.2.4 Market participant position.
    message MarketParticipantPosition = 'L', 26 bytes {
        stock_locate             @ 1 : u16,
        tracking_number          @ 3 : u16,
        timestamp                @ 5 : nanoseconds_since_midnight<u48>,
        mpid                     @ 11: ascii<4>,
        stock                    @ 15: ascii<8>,
        primary_market_maker     @ 23: PrimaryMarketMaker,
        market_maker_mode        @ 24: MarketMakerMode,
        market_participant_state @ 25: MarketParticipantState,
    }

    /// 1.2.5.1 Market-wide circuit breaker decline levels of the day.
    message MwcbDeclineLevel = 'V', 35 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        level_1         @ 11: price<u64, 8>,
        level_2         @ 19: price<u64, 8>,
        level_3         @ 27: price<u64, 8>,
    }

    enum BreachedLevel: ascii<1> {
        Level1 = '1',
        Level2 = '2',
        Level3 = '3',
    }

    /// 1.2.5.2 A market-wide circuit breaker level was breached.
    message MwcbStatus = 'W', 12 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        breached_level  @ 11: BreachedLevel,
    }

    enum IpoQuotationReleaseQualifier: ascii<1> {
        AnticipatedQuotationReleaseTime = 'A',
        IpoReleaseCancelledOrPostponed = 'C',
    }

    /// 1.2.6 Quoting period update of an initial public offering.
    message IpoQuotingPeriodUpdate = 'K', 28 bytes {
        stock_locate                    @ 1 : u16,
        tracking_number                 @ 3 : u16,
        timestamp                       @ 5 : nanoseconds_since_midnight<u48>,
        stock                           @ 11: ascii<8>,
        ipo_quotation_release_time      @ 19: seconds_since_midnight<u32>,
        ipo_quotation_release_qualifier @ 23: IpoQuotationReleaseQualifier,
        ipo_price                       @ 24: price<u32, 4>,
    }

    /// 1.2.7 Limit up, limit down auction collar.
    message LuldAuctionCollar = 'J', 35 bytes {
        stock_locate                   @ 1 : u16,
        tracking_number                @ 3 : u16,
        timestamp                      @ 5 : nanoseconds_since_midnight<u48>,
        stock                          @ 11: ascii<8>,
        auction_collar_reference_price @ 19: price<u32, 4>,
        upper_auction_collar_price     @ 23: price<u32, 4>,
        lower_auction_collar_price     @ 27: price<u32, 4>,
        auction_collar_extension       @ 31: u32,
    }

    enum MarketCode: ascii<1> {
        Nasdaq = 'Q',
        NasdaqTexas = 'B',
        Psx = 'X',
    }

    enum OperationalHaltAction: ascii<1> {
        Halted = 'H',
        TradingResumed = 'T',
    }

    /// 1.2.8 Operational halt of one market centre.
    message OperationalHalt = 'h', 21 bytes {
        stock_locate            @ 1 : u16,
        tracking_number         @ 3 : u16,
        timestamp               @ 5 : nanoseconds_since_midnight<u48>,
        stock                   @ 11: ascii<8>,
        market_code             @ 19: MarketCode,
        operational_halt_action @ 20: OperationalHaltAction,
    }

    enum BuySellIndicator: ascii<1> {
        Buy = 'B',
        Sell = 'S',
    }

    /// 1.3.1 Add order, no MPID attribution.
    message AddOrder = 'A', 36 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
        buy_sell_indicator     @ 19: BuySellIndicator,
        shares                 @ 20: u32,
        stock                  @ 24: ascii<8>,
        price                  @ 32: price<u32, 4>,
    }

    /// 1.3.2 Add order with MPID attribution.
    message AddOrderWithMpid = 'F', 40 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
        buy_sell_indicator     @ 19: BuySellIndicator,
        shares                 @ 20: u32,
        stock                  @ 24: ascii<8>,
        price                  @ 32: price<u32, 4>,
        attribution            @ 36: ascii<4>,
    }

    /// 1.4.1 Order executed at its own price.
    message OrderExecuted = 'E', 31 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
        executed_shares        @ 19: u32,
        match_number           @ 23: u64,
    }

    enum Printable: ascii<1> {
        No = 'N',
        Yes = 'Y',
    }

    /// 1.4.2 Order executed at a price that differs from its own.
    message OrderExecutedWithPrice = 'C', 36 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
        executed_shares        @ 19: u32,
        match_number           @ 23: u64,
        printable              @ 31: Printable,
        execution_price        @ 32: price<u32, 4>,
    }

    /// 1.4.3 Order cancel: shares taken off an order, not all of them.
    message OrderCancel = 'X', 23 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
        cancelled_shares       @ 19: u32,
    }

    /// 1.4.4 Order delete: removes the rest of the order.
    message OrderDelete = 'D', 19 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
    }

    /// 1.4.5 Order replace: the order gets a new reference number, shares and price, and loses its time priority.
    /// Side, stock and attribution stay.
    message OrderReplace = 'U', 35 bytes {
        stock_locate                    @ 1 : u16,
        tracking_number                 @ 3 : u16,
        timestamp                       @ 5 : nanoseconds_since_midnight<u48>,
        original_order_reference_number @ 11: u64,
        new_order_reference_number      @ 19: u64,
        shares                          @ 27: u32,
        price                           @ 31: price<u32, 4>,
    }

    /// 1.5.1 Trade against an order that was never displayed. No effect on the book.
    message Trade = 'P', 44 bytes {
        stock_locate           @ 1 : u16,
        tracking_number        @ 3 : u16,
        timestamp              @ 5 : nanoseconds_since_midnight<u48>,
        order_reference_number @ 11: u64,
        buy_sell_indicator     @ 19: BuySellIndicator,
        shares                 @ 20: u32,
        stock                  @ 24: ascii<8>,
        price                  @ 32: price<u32, 4>,
        match_number           @ 36: u64,
    }

    enum CrossType: ascii<1> {
        Opening = 'O',
        Closing = 'C',
        HaltedOrPaused = 'H',
        ExtendedClose = 'A',
    }

    /// 1.5.2 Cross trade: the bulk print of an auction.
    message CrossTrade = 'Q', 40 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        cross_shares    @ 11: u64,
        stock           @ 19: ascii<8>,
        cross_price     @ 27: price<u32, 4>,
        match_number    @ 31: u64,
        cross_type      @ 39: CrossType,
    }

    /// 1.5.3 Broken trade. No effect on the book.
    message BrokenTrade = 'B', 19 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        match_number    @ 11: u64,
    }

    enum ImbalanceDirection: ascii<1> {
        Buy = 'B',
        Sell = 'S',
        None = 'N',
        InsufficientOrders = 'O',
        Paused = 'P',
    }

    enum PriceVariationIndicator: ascii<1> {
        LessThan1Percent = 'L',
        LessThan2Percent = '1',
        LessThan3Percent = '2',
        LessThan4Percent = '3',
        LessThan5Percent = '4',
        LessThan6Percent = '5',
        LessThan7Percent = '6',
        LessThan8Percent = '7',
        LessThan9Percent = '8',
        LessThan10Percent = '9',
        LessThan20Percent = 'A',
        LessThan30Percent = 'B',
        MoreThan30Percent = 'C',
        NotAvailable = ' ',
    }

    /// 1.6 Net order imbalance indicator.
    message NetOrderImbalanceIndicator = 'I', 50 bytes {
        stock_locate              @ 1 : u16,
        tracking_number           @ 3 : u16,
        timestamp                 @ 5 : nanoseconds_since_midnight<u48>,
        paired_shares             @ 11: u64,
        imbalance_shares          @ 19: u64,
        imbalance_direction       @ 27: ImbalanceDirection,
        stock                     @ 28: ascii<8>,
        far_price                 @ 36: price<u32, 4>,
        near_price                @ 40: price<u32, 4>,
        current_reference_price   @ 44: price<u32, 4>,
        cross_type                @ 48: CrossType,
        price_variation_indicator @ 49: PriceVariationIndicator,
    }

    enum InterestFlag: ascii<1> {
        BuySide = 'B',
        SellSide = 'S',
        BothSides = 'A',
        NoRpiOrdersAvailable = 'N',
    }

    /// 1.7 Retail price improvement indicator.
    message RetailPriceImprovementIndicator = 'N', 20 bytes {
        stock_locate    @ 1 : u16,
        tracking_number @ 3 : u16,
        timestamp       @ 5 : nanoseconds_since_midnight<u48>,
        stock           @ 11: ascii<8>,
        interest_flag   @ 19: InterestFlag,
    }

    enum OpenEligibilityStatus: ascii<1> {
        NotEligible = 'N',
        Eligible = 'Y',
    }

    /// 1.8 Direct listing with capital raise: price discovery.
    message DirectListingWithCapitalRaisePriceDiscovery = 'O', 48 bytes {
        stock_locate             @ 1 : u16,
        tracking_number          @ 3 : u16,
        timestamp                @ 5 : nanoseconds_since_midnight<u48>,
        stock                    @ 11: ascii<8>,
        open_eligibility_status  @ 19: OpenEligibilityStatus,
        minimum_allowable_price  @ 20: price<u32, 4>,
        maximum_allowable_price  @ 24: price<u32, 4>,
        near_execution_price     @ 28: price<u32, 4>,
        near_execution_time      @ 32: nanoseconds_since_midnight<u64>,
        lower_price_range_collar @ 40: price<u32, 4>,
        upper_price_range_collar @ 44: price<u32, 4>,
    }
}
