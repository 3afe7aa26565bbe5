//! CTA Consolidated Quotation System (CQS) 1.91: each participant's best bid and offer for tapes A and B, and the national best.
//!
//! Source: the public definitions of *CQS Multicast Output Binary* 1.91. Big-endian; prices have six implied decimals (two in the short
//! forms), times are seconds since the epoch in UTC, then nanoseconds. A message starts with length (including itself), category and type.
//!
//! A quote ends in appendages, which its indicator announces: `national` reads them. Sizes count round lots in the captured packet, from 2018.
//!
//! Verified on a real packet: the long quote with both long appendages. Carried by [blocks](super::block) with the data feed indicator `Q`.

use crate::DecodeError;
use crate::national::{NationalBest, NationalSide, of_cents};

tapeworks_wire_macros::protocol! {
    /// Best bids and offers of tapes A and B by participant, and the national ones.
    protocol "cta-cqs-1.91" {
        title: "CTA CQS 1.91",
        version: "1.91",
        endian: big,
        tag: ascii<2> @ 2,
        length: exact,
    }

    enum Participant: ascii<1> {
        NyseAmerican = 'A',
        NasdaqBx = 'B',
        NyseNational = 'C',
        FinraAdf = 'D',
        Ise = 'I',
        CboeEdga = 'J',
        CboeEdgx = 'K',
        Ltse = 'L',
        NyseChicago = 'M',
        Nyse = 'N',
        NyseArca = 'P',
        Cqs = 'S',
        Nasdaq = 'T',
        Iex = 'V',
        Cbsx = 'W',
        NasdaqPsx = 'X',
        CboeByx = 'Y',
        CboeBzx = 'Z',
    }

    enum InstrumentType: ascii<1> {
        CtaEligibleEquity = '0',
        LocalIssue = '1',
        CorporateBond = '2',
        GovernmentBond = '3',
    }

    enum QuoteCondition: ascii<1> {
        NotApplicable = ' ',
        SlowQuoteOnOfferSide = 'A',
        SlowQuoteOnBidSide = 'B',
        Closing = 'C',
        SlowQuoteDueToLrpOrGapQuoteOnTheBidSide = 'E',
        SlowQuoteDueToLrpOrGapQuoteOnTheOfferSide = 'F',
        SlowQuoteOnTheBidAndOfferSides = 'H',
        ClosedMarketMaker = 'L',
        NonFirmQuote = 'N',
        OpeningQuote = 'O',
        RegularFinraOpen = 'R',
        SlowQuoteDueToLrpOrGapQuoteOnBothSides = 'U',
        SlowQuoteDueToSetSlowListOnBothSides = 'W',
        OnDemandIntraDayAuction = '4',
    }

    enum SecurityStatusIndicator: ascii<1> {
        NotApplicable = ' ',
        NewsDissemination = 'D',
        TradingRangeIndication = 'G',
        OrderImbalance = 'I',
        LuldTradingPause = 'M',
        NewsPending = 'P',
        Resume = 'T',
        Operational = 'X',
        SupPennyTrading = 'Y',
        NoOpenNoResume = 'Z',
        LuldPriceBand = '0',
        MarketWideCircuitBreakerLevel1Breached = '1',
        MarketWideCircuitBreakerLevel2Breached = '2',
        MarketWideCircuitBreakerLevel3Breached = '3',
        RepublishedLuldPriceBand = '9',
    }

    enum RetailInterestIndicator: ascii<1> {
        NotApplicable = ' ',
        RetailInterestOnBidQuote = 'A',
        RetailInterestOnOfferQuote = 'B',
        RetailInterestOnBothTheBidAndOfferQuotes = 'C',
    }

    enum SettlementCondition: ascii<1> {
        RegularWaySettlement = ' ',
        CashOnlySettlement = 'A',
        NextDayOnlySettlement = 'B',
    }

    enum MarketCondition: ascii<1> {
        NormalAuctionMarket = ' ',
        CrossedMarket = 'A',
        LockedMarket = 'B',
    }

    enum ShortSaleRestrictionIndicator: ascii<1> {
        NotInEffect = ' ',
        ShortSaleRestrictionActivated = 'A',
        ShortSaleRestrictionContinued = 'C',
        ShortSaleRestrictionDeactivated = 'D',
        ShortSaleRestrictionInEffect = 'E',
    }

    enum PrimaryListingMarketParticipantId: ascii<1> {
        NotApplicable = ' ',
        NyseAmerican = 'A',
        NasdaqOmxBx = 'B',
        NyseNational = 'C',
        FinraAdf = 'D',
        Ise = 'I',
        CboeEdga = 'J',
        CboeEdgx = 'K',
        NyseChicago = 'M',
        Nyse = 'N',
        NyseArca = 'P',
        Nasdaq = 'T',
        Iex = 'V',
        Cbsx = 'W',
        NasdaqOmxPsx = 'X',
        CboeByx = 'Y',
        CboeBzx = 'Z',
    }

    enum FinancialStatusIndicator: ascii<1> {
        NotApplicable = '0',
        Bankrupt = '1',
        BelowContinuingListingStandards = '2',
        BankruptAndBelowContinuingListingStandards = '3',
        LateFiling = '4',
        BankruptAndLateFiling = '5',
        BelowContinuingListingStandardsAndLateFiling = '6',
        BankruptBelowContinuingListingStandardsAndLateFiling = '7',
        CreationsSuspended = '8',
        RedemptionsSuspended = '9',
        Liquidation = 'A',
    }

    enum SipGeneratedMessageIdentifier: ascii<1> {
        NotApplicable = ' ',
        ConsolidatedQuotationSystem = 'S',
    }

    enum FinraBboLuldIndicator: ascii<1> {
        NotApplicable = ' ',
        Executable = 'A',
        BidBelowLowerBand = 'B',
        OfferAboveUpperBand = 'C',
        BidBelowLowerBandAndOfferAboveUpperBand = 'D',
    }

    enum NationalBboLuldIndicator: ascii<1> {
        NotApplicable = ' ',
        Executable = 'A',
        BidBelowLowerBand = 'B',
        OfferAboveUpperBand = 'C',
        BidBelowLowerBandAndOfferAboveUpperBand = 'D',
        BidEqualsUpperBand = 'E',
        OfferEqualsLowerBand = 'F',
        BidEqualsUpperBandAndOfferAboveUpperBand = 'G',
        BidBelowLowerBandAndOfferEqualsLowerBand = 'H',
        BidEqualsUpperBandAndOfferEqualsLowerBand = 'I',
    }

    enum NationalBboIndicator: ascii<1> {
        NotIncluded = ' ',
        NoBestBidChangeOrBestOfferChange = 'A',
        NoBestBidChangeQuoteContainsBestOffer = 'B',
        NoBestBidChangeBestOfferShortAppendage = 'C',
        NoBestBidChangeBestOfferLongAppendage = 'D',
        NoBestBidChangeNoBestOffer = 'E',
        QuoteContainsBestBidNoBestOfferChange = 'F',
        QuoteContainsBestBidQuoteContainsBestOffer = 'G',
        QuoteContainsBestBidBestOfferShortAppendage = 'H',
        QuoteContainsBestBidBestOfferLongAppendage = 'I',
        QuoteContainsBestBidNoBestOffer = 'J',
        NoBestBidNoBestOfferChange = 'K',
        NoBestBidQuoteContainsBestOffer = 'L',
        NoBestBidBestOfferShortAppendage = 'M',
        NoBestBidBestOfferLongAppendage = 'N',
        NoBestBidNoBestOffer = 'O',
        BestBidShortAppendageNoBestOfferChange = 'P',
        BestBidLongAppendageNoBestOfferChange = 'Q',
        BestBidShortAppendageQuoteContainsBestOffer = 'R',
        BestBidLongAppendageQuoteContainsBestOffer = 'S',
        BestBidShortAppendageBestOfferShortAppendage = 'T',
        BestBidLongAppendageBestOfferLongAppendage = 'U',
        BestBidShortAppendageNoBestOffer = 'V',
        BestBidLongAppendageNoBestOffer = 'W',
    }

    enum FinraBboIndicator: ascii<1> {
        NotApplicable = ' ',
        NoFinraBboChange = 'A',
        NoFinraBboExists = 'B',
    }

    enum MarketWideCircuitBreakerLevelIndicator: ascii<1> {
        NotApplicable = ' ',
        Level1Breached = '1',
        Level2Breached = '2',
        Level3Breached = '3',
    }

    /// Special long quote: a market maker of FINRA's, FINRA's best bid and offer, then the appendages.
    message SpecialLongQuote = "QS", 120.. bytes {
        length                                @ 0  : u16,
        participant_id                        @ 4  : Participant,
        participant_timestamp_seconds         @ 5  : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds     @ 9  : nanoseconds<u32>,
        message_id                            @ 13 : u8,
        transaction_id                        @ 14 : u32,
        participant_reference_number          @ 18 : i64,
        security_symbol                       @ 26 : ascii<11>,
        instrument_type                       @ 37 : InstrumentType,
        quote_condition                       @ 38 : QuoteCondition,
        security_status_indicator             @ 39 : SecurityStatusIndicator,
        bid_price_long                        @ 40 : price<u64, 6>,
        bid_size_long                         @ 48 : u32,
        offer_price_long                      @ 52 : price<u64, 6>,
        offer_size_long                       @ 60 : u32,
        retail_interest_indicator             @ 64 : RetailInterestIndicator,
        settlement_condition                  @ 65 : SettlementCondition,
        market_condition                      @ 66 : MarketCondition,
        finra_market_maker_id                 @ 67 : ascii<4>,
        finra_best_bid_quote_condition        @ 71 : QuoteCondition,
        finra_best_bid_price                  @ 72 : price<u64, 6>,
        finra_best_bid_size                   @ 80 : u32,
        finra_best_bid_market_maker_id        @ 84 : ascii<4>,
        finra_best_offer_quote_condition      @ 88 : QuoteCondition,
        finra_best_offer_price                @ 89 : price<u64, 6>,
        finra_best_offer_size                 @ 97 : u32,
        finra_best_offer_market_maker_id      @ 101: ascii<4>,
        adf_timestamp_seconds                 @ 105: seconds_since_epoch<u32>,
        adf_timestamp_nanoseconds             @ 109: nanoseconds<u32>,
        short_sale_restriction_indicator      @ 113: ShortSaleRestrictionIndicator,
        primary_listing_market_participant_id @ 114: PrimaryListingMarketParticipantId,
        financial_status_indicator            @ 115: FinancialStatusIndicator,
        sip_generated_message_identifier      @ 116: SipGeneratedMessageIdentifier,
        finra_bbo_luld_indicator              @ 117: FinraBboLuldIndicator,
        national_bbo_luld_indicator           @ 118: NationalBboLuldIndicator,
        national_bbo_indicator                @ 119: NationalBboIndicator,
        appendages                            @ 120: rest,
    }

    /// Short quote: prices and sizes of 16 bits, then the appendages that the indicator announces.
    message ShortQuote = "QQ", 41.. bytes {
        length                                @ 0 : u16,
        participant_id                        @ 4 : Participant,
        participant_timestamp_seconds         @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds     @ 9 : nanoseconds<u32>,
        message_id                            @ 13: u8,
        transaction_id                        @ 14: u32,
        participant_reference_number          @ 18: i64,
        security_symbol                       @ 26: ascii<5>,
        bid_price_short                       @ 31: price<u16, 2>,
        bid_size_short                        @ 33: u16,
        offer_price_short                     @ 35: price<u16, 2>,
        offer_size_short                      @ 37: u16,
        primary_listing_market_participant_id @ 39: PrimaryListingMarketParticipantId,
        national_bbo_indicator                @ 40: NationalBboIndicator,
        appendages                            @ 41: rest,
    }

    /// Long quote: the best bid and offer of a participant, then the appendages that the indicator announces. Where the security
    /// status is that of price bands, the prices are the bands.
    message LongQuote = "QL", 87.. bytes {
        length                                @ 0 : u16,
        participant_id                        @ 4 : Participant,
        participant_timestamp_seconds         @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds     @ 9 : nanoseconds<u32>,
        message_id                            @ 13: u8,
        transaction_id                        @ 14: u32,
        participant_reference_number          @ 18: i64,
        security_symbol                       @ 26: ascii<11>,
        instrument_type                       @ 37: InstrumentType,
        quote_condition                       @ 38: QuoteCondition,
        security_status_indicator             @ 39: SecurityStatusIndicator,
        bid_price_lower_limit_price_band      @ 40: price<u64, 6>,
        bid_size_long                         @ 48: u32,
        offer_price_upper_limit_price_band    @ 52: price<u64, 6>,
        offer_size_long                       @ 60: u32,
        retail_interest_indicator             @ 64: RetailInterestIndicator,
        settlement_condition                  @ 65: SettlementCondition,
        market_condition                      @ 66: MarketCondition,
        finra_market_maker_id                 @ 67: ascii<4>,
        finra_bbo_indicator                   @ 71: FinraBboIndicator,
        adf_timestamp_seconds                 @ 72: seconds_since_epoch<u32>,
        adf_timestamp_nanoseconds             @ 76: nanoseconds<u32>,
        short_sale_restriction_indicator      @ 80: ShortSaleRestrictionIndicator,
        primary_listing_market_participant_id @ 81: PrimaryListingMarketParticipantId,
        financial_status_indicator            @ 82: FinancialStatusIndicator,
        sip_generated_message_identifier      @ 83: SipGeneratedMessageIdentifier,
        luld_indicator                        @ 84: ascii<1>,
        national_bbo_luld_indicator           @ 85: NationalBboLuldIndicator,
        national_bbo_indicator                @ 86: NationalBboIndicator,
        appendages                            @ 87: rest,
    }

    /// Auction status: the collar of a reopening.
    message AuctionStatus = "QA", 67 bytes {
        length                                @ 0 : u16,
        participant_id                        @ 4 : Participant,
        participant_timestamp_seconds         @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds     @ 9 : nanoseconds<u32>,
        message_id                            @ 13: u8,
        transaction_id                        @ 14: u32,
        participant_reference_number          @ 18: i64,
        security_symbol                       @ 26: ascii<11>,
        instrument_type                       @ 37: InstrumentType,
        auction_collar_reference_price        @ 38: price<u64, 6>,
        auction_collar_upper_threshold_price  @ 46: price<u64, 6>,
        auction_collar_lower_threshold_price  @ 54: price<u64, 6>,
        number_of_extensions                  @ 62: u8,
        short_sale_restriction_indicator      @ 63: ShortSaleRestrictionIndicator,
        primary_listing_market_participant_id @ 64: PrimaryListingMarketParticipantId,
        financial_status_indicator            @ 65: FinancialStatusIndicator,
        future                                @ 66: ascii<1>,
    }

    /// Market-wide circuit breaker: a level is breached.
    message MarketWideCircuitBreakerStatus = "ML", 28 bytes {
        length                                      @ 0 : u16,
        participant_id                              @ 4 : Participant,
        participant_timestamp_seconds               @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds           @ 9 : nanoseconds<u32>,
        message_id                                  @ 13: u8,
        transaction_id                              @ 14: u32,
        participant_reference_number                @ 18: i64,
        market_wide_circuit_breaker_level_indicator @ 26: MarketWideCircuitBreakerLevelIndicator,
        reserved                                    @ 27: u8,
    }

    /// Market-wide circuit breaker: the day's levels.
    message MarketWideCircuitBreakerDeclineLevelStatus = "MM", 51 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
        mwcb_level_1                      @ 26: i64,
        mwcb_level_2                      @ 34: i64,
        mwcb_level_3                      @ 42: i64,
        reserved                          @ 50: u8,
    }

    /// End of day.
    message EndOfDay = "CZ", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// Line integrity: the line is there.
    message LineIntegrity = "CT", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// The disaster recovery data centre is active.
    message DisasterRecoveryDataCenterActivation = "CP", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// FINRA opens.
    message FinraOpen = "CO", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// End of a test cycle.
    message EndOfTestCycle = "CN", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// Start of a test cycle.
    message StartOfTestCycle = "CM", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// The block sequence number begins anew.
    message ResetBlockSequenceNumber = "CL", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// FINRA closes.
    message FinraClose = "CC", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// Start of day.
    message StartOfDay = "CA", 26 bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
    }

    /// Administrative message: text for people.
    message AdministrativeUnformatted = "AH", 26.. bytes {
        length                            @ 0 : u16,
        participant_id                    @ 4 : Participant,
        participant_timestamp_seconds     @ 5 : seconds_since_epoch<u32>,
        participant_timestamp_nanoseconds @ 9 : nanoseconds<u32>,
        message_id                        @ 13: u8,
        transaction_id                    @ 14: u32,
        participant_reference_number      @ 18: i64,
        text                              @ 26: rest,
    }

    /// The national best bid behind a quote, long form.
    header NationalBestBidLongAppendage = 18 bytes {
        best_bid_participant_id        @ 0 : Participant,
        best_bid_quote_condition       @ 1 : QuoteCondition,
        best_bid_price_long            @ 2 : price<u64, 6>,
        best_bid_size_long             @ 10: u32,
        finra_best_bid_market_maker_id @ 14: ascii<4>,
    }

    /// The national best offer behind a quote, long form.
    header NationalBestOfferLongAppendage = 18 bytes {
        best_offer_participant_id        @ 0 : Participant,
        best_offer_quote_condition       @ 1 : QuoteCondition,
        best_offer_price_long            @ 2 : price<u64, 6>,
        best_offer_size_long             @ 10: u32,
        finra_best_offer_market_maker_id @ 14: ascii<4>,
    }

    /// The national best bid behind a quote, short form.
    header NationalBestBidShortAppendage = 5 bytes {
        best_bid_participant_id @ 0: Participant,
        best_bid_price_short    @ 1: price<u16, 2>,
        best_bid_size_short     @ 3: u16,
    }

    /// The national best offer behind a quote, short form.
    header NationalBestOfferShortAppendage = 5 bytes {
        best_offer_participant_id @ 0: Participant,
        best_offer_price_short    @ 1: price<u16, 2>,
        best_offer_size_short     @ 3: u16,
    }
}

/// Where a quote reports one side of the national best bid and offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NationalPlace {
    /// Nowhere: the side is unchanged.
    Nowhere,
    /// The side has no national best.
    Absent,
    /// In the quote itself.
    Quote,
    /// In a short appendage.
    Short,
    /// In a long appendage.
    Long,
}

impl NationalBboIndicator {
    /// Returns the indicator for these places of bid and offer; `None` for a mix of short and long appendages, which does not exist.
    #[must_use]
    pub fn of(places: [NationalPlace; 2]) -> Option<Self> {
        (b'A'..=b'W').map(Self::from_raw).find(|indicator| indicator.places() == places)
    }

    /// Returns the places of bid and offer.
    #[must_use]
    pub const fn places(self) -> [NationalPlace; 2] {
        use NationalPlace::{Absent, Long, Nowhere, Quote, Short};
        match self {
            Self::NotIncluded | Self::NoBestBidChangeOrBestOfferChange | Self::Unknown(_) => {
                [Nowhere, Nowhere]
            }
            Self::NoBestBidChangeQuoteContainsBestOffer => [Nowhere, Quote],
            Self::NoBestBidChangeBestOfferShortAppendage => [Nowhere, Short],
            Self::NoBestBidChangeBestOfferLongAppendage => [Nowhere, Long],
            Self::NoBestBidChangeNoBestOffer => [Nowhere, Absent],
            Self::QuoteContainsBestBidNoBestOfferChange => [Quote, Nowhere],
            Self::QuoteContainsBestBidQuoteContainsBestOffer => [Quote, Quote],
            Self::QuoteContainsBestBidBestOfferShortAppendage => [Quote, Short],
            Self::QuoteContainsBestBidBestOfferLongAppendage => [Quote, Long],
            Self::QuoteContainsBestBidNoBestOffer => [Quote, Absent],
            Self::NoBestBidNoBestOfferChange => [Absent, Nowhere],
            Self::NoBestBidQuoteContainsBestOffer => [Absent, Quote],
            Self::NoBestBidBestOfferShortAppendage => [Absent, Short],
            Self::NoBestBidBestOfferLongAppendage => [Absent, Long],
            Self::NoBestBidNoBestOffer => [Absent, Absent],
            Self::BestBidShortAppendageNoBestOfferChange => [Short, Nowhere],
            Self::BestBidLongAppendageNoBestOfferChange => [Long, Nowhere],
            Self::BestBidShortAppendageQuoteContainsBestOffer => [Short, Quote],
            Self::BestBidLongAppendageQuoteContainsBestOffer => [Long, Quote],
            Self::BestBidShortAppendageBestOfferShortAppendage => [Short, Short],
            Self::BestBidLongAppendageBestOfferLongAppendage => [Long, Long],
            Self::BestBidShortAppendageNoBestOffer => [Short, Absent],
            Self::BestBidLongAppendageNoBestOffer => [Long, Absent],
        }
    }
}

/// Reads one side, and returns the appendages after it. Bid and offer appendages have the same layout.
fn side(place: NationalPlace, appendages: &[u8]) -> Result<(NationalSide, &[u8]), DecodeError> {
    Ok(match place {
        NationalPlace::Nowhere => (NationalSide::Unchanged, appendages),
        NationalPlace::Absent => (NationalSide::Absent, appendages),
        NationalPlace::Quote => (NationalSide::OfQuote, appendages),
        NationalPlace::Short => {
            let best = NationalBestBidShortAppendage::decode(appendages)?;
            let best = NationalBest {
                center: best.best_bid_participant_id().raw(),
                price: of_cents(best.best_bid_price_short()),
                size: u32::from(best.best_bid_size_short()),
                condition: b' ',
            };
            (
                NationalSide::Appended(best),
                appendages.get(NationalBestBidShortAppendage::LENGTH..).unwrap_or_default(),
            )
        }
        NationalPlace::Long => {
            let best = NationalBestBidLongAppendage::decode(appendages)?;
            let best = NationalBest {
                center: best.best_bid_participant_id().raw(),
                price: best.best_bid_price_long(),
                size: best.best_bid_size_long(),
                condition: best.best_bid_quote_condition().raw(),
            };
            (
                NationalSide::Appended(best),
                appendages.get(NationalBestBidLongAppendage::LENGTH..).unwrap_or_default(),
            )
        }
    })
}

/// Reads a quote's national best bid and offer.
fn national(indicator: NationalBboIndicator, appendages: &[u8]) -> Result<[NationalSide; 2], DecodeError> {
    let [bid, offer] = indicator.places();
    let (bid, rest) = side(bid, appendages)?;
    let (offer, _) = side(offer, rest)?;
    Ok([bid, offer])
}

impl ShortQuote<'_> {
    /// Returns the national best bid and offer.
    ///
    /// # Errors
    /// An announced appendage is truncated.
    pub fn national(&self) -> Result<[NationalSide; 2], DecodeError> {
        national(self.national_bbo_indicator(), self.appendages())
    }
}

impl LongQuote<'_> {
    /// Returns the national best bid and offer.
    ///
    /// # Errors
    /// An announced appendage is truncated.
    pub fn national(&self) -> Result<[NationalSide; 2], DecodeError> {
        national(self.national_bbo_indicator(), self.appendages())
    }
}

impl SpecialLongQuote<'_> {
    /// Returns the national best bid and offer.
    ///
    /// # Errors
    /// An announced appendage is truncated.
    pub fn national(&self) -> Result<[NationalSide; 2], DecodeError> {
        national(self.national_bbo_indicator(), self.appendages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decimal;

    #[test]
    fn each_indicator_says_where_bid_and_offer_are() {
        let long = |center: u8| {
            [&[center, b'R'][..], &100_010_000_u64.to_be_bytes(), &[0, 0, 0, 3], b"    "].concat()
        };
        let short = |center: u8| vec![center, 0x27, 0x11, 0, 3];
        let best = |center, condition| {
            NationalSide::Appended(NationalBest { center, price: Decimal(100_010_000), size: 3, condition })
        };
        for letter in b'A'..=b'W' {
            let indicator = NationalBboIndicator::from_raw(letter);
            assert!(!matches!(indicator, NationalBboIndicator::Unknown(_)));
            let [bid, offer] = indicator.places();
            assert_eq!(NationalBboIndicator::of([bid, offer]), Some(indicator));
            let (mut appendages, mut expected) = (Vec::new(), Vec::new());
            for (place, center) in [(bid, b'Z'), (offer, b'K')] {
                expected.push(match place {
                    NationalPlace::Nowhere => NationalSide::Unchanged,
                    NationalPlace::Absent => NationalSide::Absent,
                    NationalPlace::Quote => NationalSide::OfQuote,
                    NationalPlace::Short => best(center, b' '),
                    NationalPlace::Long => best(center, b'R'),
                });
                match place {
                    NationalPlace::Short => appendages.extend(short(center)),
                    NationalPlace::Long => appendages.extend(long(center)),
                    _ => {}
                }
            }
            assert_eq!(national(indicator, &appendages).map(Vec::from), Ok(expected), "{indicator:?}");
            if !appendages.is_empty() {
                assert!(national(indicator, &appendages[1..]).is_err(), "{indicator:?}");
            }
        }
        assert_eq!(national(NationalBboIndicator::NotIncluded, &[]), Ok([NationalSide::Unchanged; 2]));
    }

    #[test]
    fn the_appendages_of_bid_and_offer_have_one_layout() {
        let places = |structure: &crate::schema::Structure| {
            structure.fields.iter().map(|field| (field.offset, field.length)).collect::<Vec<_>>()
        };
        assert_eq!(
            places(&NationalBestBidShortAppendage::SCHEMA),
            places(&NationalBestOfferShortAppendage::SCHEMA)
        );
        assert_eq!(
            places(&NationalBestBidLongAppendage::SCHEMA),
            places(&NationalBestOfferLongAppendage::SCHEMA)
        );
    }
}
