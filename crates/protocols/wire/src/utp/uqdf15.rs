//! UTP Quotation Data Feed (UQDF) 1.5: the best bid and offer of each market centre for the securities of tape C, and the national best.
//!
//! Source: the public definitions of *UQDF Binary*, version 1.5. Big-endian; prices have six implied decimals (two in the short form),
//! times are nanoseconds since the epoch in UTC. A message starts with version `1`, category and type. Offsets count from the version at 0.
//!
//! A quote ends in appendages, which its indicators announce: [`QuoteShortForm::national`] and [`QuoteLongForm::national`] read them. Sizes
//! count round lots in the captured packets, which date from 2016.
//!
//! The definitions name the national price band indicators `G` and `H` like `E` and `F`. This crate uses CTA's names for `G` and `H`.
//!
//! Verified on real packets: the short quote without appendage, and the price bands. Carried by [MoldUDP64](crate::nasdaq::moldudp64).

use crate::DecodeError;
use crate::national::{NationalBest, NationalSide, of_cents};

tapeworks_wire_macros::protocol! {
    /// Best bids and offers of tape C by market centre, and the national ones.
    protocol "utp-uqdf-1.5" {
        title: "UTP UQDF 1.5",
        version: "1.5",
        endian: big,
        tag: ascii<2> @ 1,
        constant: u8 @ 0 = 49,
        length: exact,
    }

    enum MarketCenter: ascii<1> {
        Byx = 'Y',
        Bzx = 'Z',
        Edga = 'J',
        Edgx = 'K',
        Cboe = 'W',
        Bx = 'B',
        Phlx = 'X',
        Nasdaq = 'Q',
        Ise = 'I',
        Nyse = 'N',
        Arca = 'P',
        American = 'A',
        National = 'C',
        Chicago = 'M',
        Finra = 'D',
        Iex = 'V',
        Ltse = 'L',
        Pearl = 'H',
        Memx = 'U',
        MarketIndependent = 'E',
    }

    enum SubMarketCenter: ascii<1> {
        NyseTrf = 'N',
        NasdaqTrfCarteret = 'Q',
        NasdaqTrfChicago = 'B',
        FinraAlternativeDisplayFacility = ' ',
    }

    enum SpecialCondition: ascii<1> {
        OneSidedNationalBboAtMarketClose = 'O',
        TradingHaltInEffectAtMarketClose = 'H',
        NoEligibleMarketParticipantQuotesInIssueAtMarketClose = 'M',
        NoSpecialConditionExists = ' ',
    }

    enum MwcbStatusLevelIndicator: ascii<1> {
        Level1Breached = '1',
        Level2Breached = '2',
        Level3Breached = '3',
    }

    enum LuldPriceBandIndicator: ascii<1> {
        OpeningUpdate = 'A',
        IntraDayUpdate = 'B',
        RestatedValue = 'C',
        SuspendedDuringTradingHaltOrTradingPause = 'D',
        ReOpeningUpdate = 'E',
        OutsidePriceBandRuleHours = 'F',
        NoneProvided = ' ',
    }

    enum RegShoAction: ascii<1> {
        NoPriceTestInEffect = '0',
        RegShoInEffectDueToAnIntraDayPriceDrop = '1',
        RegShoRestrictionRemainsInEffect = '2',
    }

    enum IssueType: ascii<1> {
        AmericanDepositoryReceipt = 'A',
        Bond = 'B',
        CommonStock = 'C',
        DepositoryReceipt = 'F',
        Rule144a = 'I',
        LimitedPartnership = 'L',
        Note = 'N',
        OrdinaryShares = 'O',
        PreferredStock = 'P',
        OtherSecurities = 'Q',
        Rights = 'R',
        SharesOfBeneficialInterest = 'S',
        ConvertibleDebenture = 'T',
        Unit = 'U',
        UnitsOfBeneficialInterest = 'V',
        Warrant = 'W',
    }

    enum MarketTier: ascii<1> {
        NasdaqGlobalSelectMarket = 'Q',
        NasdaqGlobalMarket = 'G',
        NasdaqCapitalMarket = 'S',
    }

    enum Authenticity: ascii<1> {
        Production = 'P',
        Test = 'T',
        Demo = 'D',
        Deleted = 'X',
    }

    enum ShortSaleThresholdIndicator: ascii<1> {
        IssueIsRestricted = 'Y',
        IssueIsNotRestricted = 'N',
        NotAvailable = ' ',
    }

    enum FinancialStatusIndicator: ascii<1> {
        CreationsAndOrRedemptionsSuspended = 'C',
        Deficient = 'D',
        Delinquent = 'E',
        Bankrupt = 'Q',
        Normal = 'N',
        DeficientAndBankrupt = 'G',
        DeficientAndDelinquent = 'H',
        DelinquentAndBankrupt = 'J',
        DeficientDelinquentAndBankrupt = 'K',
    }

    enum TradingActionCode: ascii<1> {
        TradingHalt = 'H',
        QuotationResumptionIncludingAfterEma = 'Q',
        TradingResumption = 'T',
        VolatilityTradingPause = 'P',
    }

    enum QuoteCondition: ascii<1> {
        ManualAskAutomatedBid = 'A',
        ManualBidAutomatedAsk = 'B',
        FastTrading = 'F',
        ManualBidAndAsk = 'H',
        OrderImbalance = 'I',
        ClosedQuote = 'L',
        NonFirmQuote = 'N',
        OpeningQuoteAutomated = 'O',
        RegularTwoSidedOpenQuoteAutomated = 'R',
        ManualBidAndAskNonFirm = 'U',
        OrderInflux = 'X',
        AutomatedBidNoOfferOrAutomatedOfferNoBid = 'Y',
        NoOpenNoResume = 'Z',
        IntradayAuction = '4',
    }

    enum SipGeneratedUpdate: ascii<1> {
        OriginatedFromTheMarketParticipant = ' ',
        SipGeneratedTransaction = 'E',
    }

    enum LuldBboIndicator: ascii<1> {
        NotApplicable = ' ',
        BidPriceAboveUpperLimitPriceBand = 'A',
        AskPriceBelowLowerLimitPriceBand = 'B',
        BidAndAskOutsidePriceBand = 'C',
    }

    enum RetailInterestIndicator: ascii<1> {
        NotApplicable = ' ',
        OnBidQuote = 'A',
        OnAskQuote = 'B',
        OnBothBidAndAskQuote = 'C',
    }

    enum NbboAppendageIndicator: ascii<1> {
        NoNationalBboChange = '0',
        NoNationalBboCanBeCalculated = '1',
        ShortFormNationalBboAppendage = '2',
        LongFormNationalBboAppendage = '3',
        QuoteContainsAllNationalBboInformation = '4',
    }

    enum LuldNationalBboIndicator: ascii<1> {
        NotApplicable = ' ',
        Executable = 'A',
        BidBelowLowerBand = 'B',
        AskAboveUpperBand = 'C',
        BidBelowLowerBandAndAskAboveUpperBand = 'D',
        BidEqualsUpperBand = 'E',
        AskEqualsLowerBand = 'F',
        BidEqualsUpperBandAndAskAboveUpperBand = 'G',
        BidBelowLowerBandAndAskEqualsLowerBand = 'H',
        BidEqualsUpperBandAndAskEqualsLowerBand = 'I',
    }

    enum FinraAdfMpidAppendageIndicator: ascii<1> {
        NotApplicable = ' ',
        NoAdfMpidChanges = '0',
        NoAdfMpidExists = '1',
        AdfMpidsAttached = '2',
    }

    /// Quote wipe-out: the quotes of a market centre, or of all, are void.
    message QuoteWipeOut = "CP", 29 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
    }

    /// End of transmissions: the last message of the day.
    message EndOfTransmissions = "CZ", 29 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
    }

    /// Market session close.
    message MarketSessionClose = "CC", 29 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
    }

    /// Market session open.
    message MarketSessionOpen = "CO", 29 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
    }

    /// End of day.
    message EndOfDay = "CJ", 29 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
    }

    /// Start of day.
    message StartOfDay = "CI", 29 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
    }

    /// Session close recap: the last national best bid and offer, and each market centre's last quote.
    message SessionCloseRecap = "AR", 77.. bytes {
        version                             @ 0 : u8,
        market_center_originator_id         @ 3 : MarketCenter,
        sub_market_center_id                @ 4 : SubMarketCenter,
        sip_timestamp                       @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp               @ 13: nanoseconds_since_epoch<u64>,
        participant_token                   @ 21: u64,
        symbol                              @ 29: ascii<11>,
        national_best_bid_market_center     @ 40: MarketCenter,
        national_best_bid_price             @ 41: price<u64, 6>,
        national_best_bid_size              @ 49: u64,
        national_best_ask_market_center     @ 57: MarketCenter,
        national_best_ask_price             @ 58: price<u64, 6>,
        national_best_ask_size              @ 66: u64,
        special_condition                   @ 74: SpecialCondition,
        number_of_market_center_attachments @ 75: u16,
        market_center_close_recaps          @ 77: group<MarketCenterCloseRecap, number_of_market_center_attachments>,
    }

    /// Auction collar: the bounds of the price at which trading resumes.
    message AuctionCollar = "AE", 69 bytes {
        version                        @ 0 : u8,
        market_center_originator_id    @ 3 : MarketCenter,
        sub_market_center_id           @ 4 : SubMarketCenter,
        sip_timestamp                  @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp          @ 13: nanoseconds_since_epoch<u64>,
        participant_token              @ 21: u64,
        symbol                         @ 29: ascii<11>,
        trading_action_sequence_number @ 40: u32,
        collar_reference_price         @ 44: price<u64, 6>,
        collar_up_price                @ 52: price<u64, 6>,
        collar_down_price              @ 60: price<u64, 6>,
        collar_extension_indicator     @ 68: ascii<1>,
    }

    /// Market-wide circuit breaker: a level is breached.
    message MarketWideCircuitBreakerStatus = "AD", 30 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        mwcb_status_level_indicator @ 29: MwcbStatusLevelIndicator,
    }

    /// Market-wide circuit breaker: the day's levels.
    message MarketWideCircuitBreakerDeclineLevel = "AC", 53 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        mwcb_level_1                @ 29: u64,
        mwcb_level_2                @ 37: u64,
        mwcb_level_3                @ 45: u64,
    }

    /// Limit up, limit down: the price bands of a symbol.
    message LimitUpLimitDownPriceBand = "AP", 65 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        symbol                      @ 29: ascii<11>,
        luld_price_band_indicator   @ 40: LuldPriceBandIndicator,
        luld_timestamp              @ 41: nanoseconds_since_epoch<u64>,
        limit_down_price            @ 49: price<u64, 6>,
        limit_up_price              @ 57: price<u64, 6>,
    }

    /// Regulation SHO: whether a short sale price test restricts a symbol.
    message RegShoShortSalePriceTestRestriction = "AV", 41 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        symbol                      @ 29: ascii<11>,
        reg_sho_action              @ 40: RegShoAction,
    }

    /// Issue symbol directory: one for each symbol before the day starts.
    message IssueSymbolDirectory = "AB", 90 bytes {
        version                        @ 0 : u8,
        market_center_originator_id    @ 3 : MarketCenter,
        sub_market_center_id           @ 4 : SubMarketCenter,
        sip_timestamp                  @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp          @ 13: nanoseconds_since_epoch<u64>,
        participant_token              @ 21: u64,
        symbol                         @ 29: ascii<11>,
        old_symbol                     @ 40: ascii<11>,
        issue_name                     @ 51: ascii<30>,
        issue_type                     @ 81: IssueType,
        issue_subtype                  @ 82: ascii<2>,
        market_tier                    @ 84: MarketTier,
        authenticity                   @ 85: Authenticity,
        short_sale_threshold_indicator @ 86: ShortSaleThresholdIndicator,
        round_lot_size                 @ 87: u16,
        financial_status_indicator     @ 89: FinancialStatusIndicator,
    }

    /// Trading action of one market centre.
    message MarketCenterTradingAction = "AK", 50 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        symbol                      @ 29: ascii<11>,
        trading_action_code         @ 40: TradingActionCode,
        action_timestamp            @ 41: nanoseconds_since_epoch<u64>,
        market_center_identifier    @ 49: MarketCenter,
    }

    /// Trading action of the listing market, for all market centres.
    message CrossSroTradingAction = "AH", 59 bytes {
        version                        @ 0 : u8,
        market_center_originator_id    @ 3 : MarketCenter,
        sub_market_center_id           @ 4 : SubMarketCenter,
        sip_timestamp                  @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp          @ 13: nanoseconds_since_epoch<u64>,
        participant_token              @ 21: u64,
        symbol                         @ 29: ascii<11>,
        trading_action_code            @ 40: TradingActionCode,
        trading_action_sequence_number @ 41: u32,
        action_timestamp               @ 45: nanoseconds_since_epoch<u64>,
        trading_action_reason          @ 53: ascii<6>,
    }

    /// General administrative message: text for people.
    message GeneralAdministrative = "AA", 31.. bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        text_length                 @ 29: u16,
        text                        @ 31: rest,
    }

    /// Quotation of one market participant of FINRA's Alternative Display Facility.
    message FinraAdfMarketParticipantQuotation = "QM", 77 bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        finra_timestamp             @ 29: nanoseconds_since_epoch<u64>,
        symbol                      @ 37: ascii<11>,
        bid_price                   @ 48: price<u64, 6>,
        bid_size                    @ 56: u32,
        ask_price                   @ 60: price<u64, 6>,
        ask_size                    @ 68: u32,
        quote_condition             @ 72: QuoteCondition,
        finra_market_participant    @ 73: ascii<4>,
    }

    /// Quote, long form: the best bid and offer of a market centre, then the appendages that the indicators announce.
    message QuoteLongForm = "QF", 79.. bytes {
        version                            @ 0 : u8,
        market_center_originator_id        @ 3 : MarketCenter,
        sub_market_center_id               @ 4 : SubMarketCenter,
        sip_timestamp                      @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp              @ 13: nanoseconds_since_epoch<u64>,
        participant_token                  @ 21: u64,
        finra_timestamp                    @ 29: nanoseconds_since_epoch<u64>,
        symbol                             @ 37: ascii<11>,
        bid_price                          @ 48: price<u64, 6>,
        bid_size                           @ 56: u32,
        ask_price                          @ 60: price<u64, 6>,
        ask_size                           @ 68: u32,
        quote_condition                    @ 72: QuoteCondition,
        sip_generated_update               @ 73: SipGeneratedUpdate,
        luld_bbo_indicator                 @ 74: LuldBboIndicator,
        retail_interest_indicator          @ 75: RetailInterestIndicator,
        nbbo_appendage_indicator           @ 76: NbboAppendageIndicator,
        luld_national_bbo_indicator        @ 77: LuldNationalBboIndicator,
        finra_adf_mpid_appendage_indicator @ 78: FinraAdfMpidAppendageIndicator,
        appendages                         @ 79: rest,
    }

    /// Quote, short form: prices and sizes of 16 bits, then the appendage that the indicator announces.
    message QuoteShortForm = "QE", 48.. bytes {
        version                     @ 0 : u8,
        market_center_originator_id @ 3 : MarketCenter,
        sub_market_center_id        @ 4 : SubMarketCenter,
        sip_timestamp               @ 5 : nanoseconds_since_epoch<u64>,
        participant_timestamp       @ 13: nanoseconds_since_epoch<u64>,
        participant_token           @ 21: u64,
        symbol                      @ 29: ascii<5>,
        bid_price_short             @ 34: price<u16, 2>,
        bid_size_short              @ 36: u16,
        ask_price_short             @ 38: price<u16, 2>,
        ask_size_short              @ 40: u16,
        quote_condition             @ 42: QuoteCondition,
        sip_generated_update        @ 43: SipGeneratedUpdate,
        luld_bbo_indicator          @ 44: LuldBboIndicator,
        retail_interest_indicator   @ 45: RetailInterestIndicator,
        nbbo_appendage_indicator    @ 46: NbboAppendageIndicator,
        luld_national_bbo_indicator @ 47: LuldNationalBboIndicator,
        appendages                  @ 48: rest,
    }

    /// The national best bid and offer behind a quote, short form.
    header ShortFormNationalBboAppendage = 11 bytes {
        nbbo_quote_condition            @ 0: QuoteCondition,
        national_best_bid_market_center @ 1: MarketCenter,
        national_best_bid_price_short   @ 2: price<u16, 2>,
        national_best_bid_size_short    @ 4: u16,
        national_best_ask_market_center @ 6: MarketCenter,
        national_best_ask_price_short   @ 7: price<u16, 2>,
        national_best_ask_size_short    @ 9: u16,
    }

    /// The national best bid and offer behind a quote, long form.
    header LongFormNationalBboAppendage = 27 bytes {
        nbbo_quote_condition   @ 0 : QuoteCondition,
        best_bid_market_center @ 1 : MarketCenter,
        best_bid_price         @ 2 : price<u64, 6>,
        best_bid_size          @ 10: u32,
        best_ask_market_center @ 14: MarketCenter,
        best_ask_price         @ 15: price<u64, 6>,
        best_ask_size          @ 23: u32,
    }

    /// FINRA's market participants at the best bid and offer, behind a quote of the long form.
    header FinraAdfMpidAppendage = 8 bytes {
        bid_adf_mpid @ 0: ascii<4>,
        ask_adf_mpid @ 4: ascii<4>,
    }

    /// The last quote of a market centre.
    group MarketCenterCloseRecap = 33 bytes {
        market_center_identifier @ 0 : MarketCenter,
        market_center_bid_price  @ 1 : price<u64, 6>,
        market_center_bid_size   @ 9 : u64,
        market_center_ask_price  @ 17: price<u64, 6>,
        market_center_ask_size   @ 25: u64,
    }
}

/// The version at the start of every message: the constant of the declaration.
pub const VERSION: u8 = b'1';

/// Reads a quote's national best bid and offer.
fn national(indicator: NbboAppendageIndicator, appendages: &[u8]) -> Result<[NationalSide; 2], DecodeError> {
    use NbboAppendageIndicator as Indicator;
    let both = |side| Ok([side; 2]);
    match indicator {
        Indicator::NoNationalBboChange | Indicator::Unknown(_) => both(NationalSide::Unchanged),
        Indicator::NoNationalBboCanBeCalculated => both(NationalSide::Absent),
        Indicator::QuoteContainsAllNationalBboInformation => both(NationalSide::OfQuote),
        Indicator::ShortFormNationalBboAppendage => {
            let best = ShortFormNationalBboAppendage::decode(appendages)?;
            Ok([
                NationalSide::Appended(NationalBest {
                    center: best.national_best_bid_market_center().raw(),
                    price: of_cents(best.national_best_bid_price_short()),
                    size: u32::from(best.national_best_bid_size_short()),
                    condition: best.nbbo_quote_condition().raw(),
                }),
                NationalSide::Appended(NationalBest {
                    center: best.national_best_ask_market_center().raw(),
                    price: of_cents(best.national_best_ask_price_short()),
                    size: u32::from(best.national_best_ask_size_short()),
                    condition: best.nbbo_quote_condition().raw(),
                }),
            ])
        }
        Indicator::LongFormNationalBboAppendage => {
            let best = LongFormNationalBboAppendage::decode(appendages)?;
            Ok([
                NationalSide::Appended(NationalBest {
                    center: best.best_bid_market_center().raw(),
                    price: best.best_bid_price(),
                    size: best.best_bid_size(),
                    condition: best.nbbo_quote_condition().raw(),
                }),
                NationalSide::Appended(NationalBest {
                    center: best.best_ask_market_center().raw(),
                    price: best.best_ask_price(),
                    size: best.best_ask_size(),
                    condition: best.nbbo_quote_condition().raw(),
                }),
            ])
        }
    }
}

impl QuoteShortForm<'_> {
    /// Returns the national best bid and offer.
    ///
    /// # Errors
    /// The announced appendage is truncated.
    pub fn national(&self) -> Result<[NationalSide; 2], DecodeError> {
        national(self.nbbo_appendage_indicator(), self.appendages())
    }
}

impl QuoteLongForm<'_> {
    /// Returns the national best bid and offer.
    ///
    /// # Errors
    /// The announced appendage is truncated.
    pub fn national(&self) -> Result<[NationalSide; 2], DecodeError> {
        national(self.nbbo_appendage_indicator(), self.appendages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ascii, Decimal, NanosecondsSinceEpoch};

    fn quote(nbbo_appendage_indicator: NbboAppendageIndicator, appendages: &[u8]) -> Vec<u8> {
        let fields = QuoteShortFormFields {
            version: VERSION,
            market_center_originator_id: MarketCenter::Nasdaq,
            sub_market_center_id: SubMarketCenter::FinraAlternativeDisplayFacility,
            sip_timestamp: NanosecondsSinceEpoch(1),
            participant_timestamp: NanosecondsSinceEpoch(1),
            participant_token: 0,
            symbol: Ascii(*b"AAPL "),
            bid_price_short: Decimal(10_001),
            bid_size_short: 1,
            ask_price_short: Decimal(10_002),
            ask_size_short: 2,
            quote_condition: QuoteCondition::RegularTwoSidedOpenQuoteAutomated,
            sip_generated_update: SipGeneratedUpdate::OriginatedFromTheMarketParticipant,
            luld_bbo_indicator: LuldBboIndicator::NotApplicable,
            retail_interest_indicator: RetailInterestIndicator::NotApplicable,
            nbbo_appendage_indicator,
            luld_national_bbo_indicator: LuldNationalBboIndicator::NotApplicable,
            appendages,
        };
        let mut bytes = vec![0; 48 + appendages.len()];
        assert_eq!(fields.encode_into(&mut bytes), Ok(bytes.len()));
        bytes
    }

    #[test]
    fn the_indicator_says_which_appendage_has_the_national_best() {
        use NbboAppendageIndicator as Indicator;
        let national = |indicator, appendages: &[u8]| {
            QuoteShortForm::decode(&quote(indicator, appendages)).unwrap().national()
        };
        assert_eq!(national(Indicator::NoNationalBboChange, &[]), Ok([NationalSide::Unchanged; 2]));
        assert_eq!(national(Indicator::NoNationalBboCanBeCalculated, &[]), Ok([NationalSide::Absent; 2]));
        assert_eq!(
            national(Indicator::QuoteContainsAllNationalBboInformation, &[]),
            Ok([NationalSide::OfQuote; 2])
        );
        let short = [b'R', b'Z', 0x27, 0x11, 0, 3, b'K', 0x27, 0x12, 0, 4];
        let best = |center, price, size| {
            NationalSide::Appended(NationalBest { center, price: Decimal(price), size, condition: b'R' })
        };
        let expected = [best(b'Z', 100_010_000, 3), best(b'K', 100_020_000, 4)];
        assert_eq!(national(Indicator::ShortFormNationalBboAppendage, &short), Ok(expected));
        assert_eq!(
            national(Indicator::ShortFormNationalBboAppendage, &short[1..]),
            Err(DecodeError::too_short("ShortFormNationalBboAppendage", 11, 10))
        );
        let long = LongFormNationalBboAppendageFields {
            nbbo_quote_condition: QuoteCondition::RegularTwoSidedOpenQuoteAutomated,
            best_bid_market_center: MarketCenter::Bzx,
            best_bid_price: Decimal(100_010_000),
            best_bid_size: 3,
            best_ask_market_center: MarketCenter::Edgx,
            best_ask_price: Decimal(100_020_000),
            best_ask_size: 4,
        };
        assert_eq!(national(Indicator::LongFormNationalBboAppendage, &long.encode()), Ok(expected));
        assert!(national(Indicator::LongFormNationalBboAppendage, &short).is_err());
    }
}
