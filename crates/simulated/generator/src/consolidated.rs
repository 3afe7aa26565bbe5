//! The securities information processors (SIPs). They publish the round-lot quotes of all other venues and the national best bid
//! and offer: UTP in UQDF 1.5, CTA in CQS 1.91.
//!
//! A venue's quote reaches a SIP about 200 microseconds after it changed, with a different latency per venue, so the national
//! best bid and offer lags the direct feeds. Each SIP carries its own set of symbols: [`is_on_tape`]. Like every simulated venue
//! it also has a book: it stands for MIAX Pearl, a market without a direct feed, whose quotes only the SIP shows.
//!
//! The national best is the best price; among equal prices, the larger quote; among equal quotes, the first venue's. Bids above
//! the upper [price band](crate::bands) and offers below the lower one do not count. The bands follow from the trades of the
//! direct feeds.

use tapeworks_market::round_lots::SipSizes;
use tapeworks_session::SessionId;
use tapeworks_time::Nanos;
use tapeworks_wire::cta::cqs191 as cqs;
use tapeworks_wire::nasdaq::itch50::TradingState;
use tapeworks_wire::utp::uqdf15 as uqdf;
use tapeworks_wire::{Ascii, Decimal, Nanoseconds, NanosecondsSinceEpoch, SecondsSinceEpoch};

use crate::bands::Bands;
use crate::book::{Book, Side};
use crate::dialect::{Dialect, SessionName};
use crate::instrument::Instrument;
use crate::kinds::Speaks;
use crate::outbox::{Outbox, Print, Stamp, Standing};
use crate::scenario::{SECOND_NS, VenueConfig, VenueKind};

/// Room for the longest message: a CQS long quote with both long appendages has 123 bytes.
const LONGEST: usize = 128;

/// Latency of a quote from the first venue to a SIP.
const LATENCY_NS: u64 = 200_000;

/// Additional latency for each further venue.
const MORE_LATENCY_NS: u64 = 7_000;

/// Returns the latency of a quote from a venue to a SIP.
pub(crate) const fn latency_ns(source: usize) -> u64 {
    LATENCY_NS + MORE_LATENCY_NS * source as u64
}

/// Returns whether a SIP is CTA's.
fn is_cta(kind: VenueKind) -> bool {
    kind.row().speaks == Speaks::Cqs
}

/// Returns whether a symbol is on this SIP's tapes: CTA has every second symbol whose round lot is a hundred shares, as CQS counts.
pub(crate) fn is_on_tape(kind: VenueKind, index: u32, instrument: &Instrument) -> bool {
    let is_ctas = index % 2 == 1 && instrument.round_lot == 100;
    kind.is_sip() && is_ctas == is_cta(kind)
}

/// Price in 1e-4 dollars and round lots of the bid and the offer; zeros if there is none.
pub(crate) type Lots = [(u32, u32); 2];

/// Returns the quote that a venue reports: on each side the best price at which a round lot is available, counting odd lots at
/// better prices.
pub(crate) fn quote_of(book: &Book, lot: u32) -> Lots {
    if book.halted {
        return Lots::default();
    }
    [Side::Buy, Side::Sell].map(|side| {
        let mut shares = 0u32;
        let mut orders = book.side(side).iter().rev().peekable();
        while let Some(order) = orders.next() {
            shares = shares.saturating_add(order.shares);
            let ends_level = orders.peek().is_none_or(|next| next.price != order.price);
            if ends_level && shares >= lot {
                return (order.price, shares / lot.max(1));
            }
        }
        (0, 0)
    })
}

/// One side of the national best: price, lots, and the venue's letter.
type National = (u32, u32, u8);

/// Encodes a UQDF message that the SIP itself originates.
macro_rules! say_uqdf {
    ($outbox:expr, $stamp:expr, $name:ident { $($own:tt)* }) => {{
        let fields = uqdf::$name {
            version: uqdf::VERSION,
            market_center_originator_id: uqdf::MarketCenter::MarketIndependent,
            sub_market_center_id: uqdf::SubMarketCenter::FinraAlternativeDisplayFacility,
            sip_timestamp: NanosecondsSinceEpoch($stamp.utc_ns),
            participant_timestamp: NanosecondsSinceEpoch(0),
            participant_token: u64::MAX,
            $($own)*
        };
        $outbox.push($stamp, &fields.encode());
    }};
}

/// The published state of one SIP.
#[derive(Debug, Clone)]
pub(crate) struct Sip {
    /// The SIP's index among the venues.
    pub(crate) venue: usize,
    kind: VenueKind,
    /// The letter of each venue that reports to this SIP.
    letters: Vec<Option<u8>>,
    /// By symbol, then by venue.
    quotes: Vec<Lots>,
    /// By symbol.
    national: Vec<[National; 2]>,
    /// By symbol.
    bands: Vec<Bands>,
}

/// A quote to publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub(crate) symbol: u32,
    pub(crate) source: usize,
    pub(crate) quote: Lots,
}

impl Sip {
    /// Creates the SIP at this index among the venues, before its first quote. Returns `None` if that venue is not a SIP.
    pub(crate) fn new(venue: usize, venues: &[VenueConfig], symbols: usize) -> Option<Self> {
        let kind = venues.get(venue).map(|venue| venue.kind).filter(|kind| kind.is_sip())?;
        let mut reporting: Vec<Option<u8>> = Vec::new();
        for (place, of) in venues.iter().enumerate() {
            let letters = of.kind.row().letters;
            let letter = letters
                .map(|[uqdf, cqs]| if is_cta(kind) { *cqs } else { *uqdf })
                .filter(|_| !of.kind.is_sip() || place == venue);
            // If a market has several feeds, only the first one reports, with all of its units.
            let reports = |letter: &u8| {
                let first = reporting
                    .iter()
                    .position(|one| *one == Some(*letter))
                    .and_then(|first| venues.get(first));
                first.is_none_or(|first| {
                    first.kind == of.kind && first.unit.of == of.unit.of && first.unit != of.unit
                })
            };
            let letter = letter.filter(reports);
            reporting.push(letter);
        }
        let quotes = vec![Lots::default(); symbols * venues.len()];
        Some(Self {
            venue,
            kind,
            letters: reporting,
            quotes,
            national: vec![[(0, 0, b' '); 2]; symbols],
            bands: vec![Bands::default(); symbols],
        })
    }

    /// Returns whether a venue reports its quotes of a symbol.
    pub(crate) fn takes(&self, source: usize, index: u32, instrument: &Instrument) -> bool {
        self.letters.get(source).is_some_and(Option::is_some) && is_on_tape(self.kind, index, instrument)
    }

    fn quotes_of(&self, symbol: u32) -> &[Lots] {
        let venues = self.letters.len();
        self.quotes
            .get(symbol as usize * venues..)
            .and_then(|quotes| quotes.get(..venues))
            .unwrap_or_default()
    }

    /// Returns the best bid (side 0) or offer (side 1) of a symbol.
    fn best(&self, symbol: u32, side: usize) -> National {
        let mut best = (0, 0, b' ');
        let bands = self.bands_of(symbol);
        for (quote, letter) in self.quotes_of(symbol).iter().zip(&self.letters) {
            let (price, lots) = quote[side];
            let is_better = match (best.0, price) {
                (_, 0) => false,
                (_, price) if !bands.admit(side, price) => false,
                (0, _) => true,
                (known, price) if known == price => lots > best.1,
                (known, price) => (price > known) == (side == 0),
            };
            if is_better {
                best = (price, lots, letter.unwrap_or(b' '));
            }
        }
        best
    }

    fn bands_of(&self, symbol: u32) -> Bands {
        self.bands.get(symbol as usize).copied().unwrap_or_default()
    }

    /// Publishes a venue's quote and the resulting change of the national best.
    pub(crate) fn publish(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        instrument: &Instrument,
        report: &Report,
    ) {
        let place = report.symbol as usize * self.letters.len() + report.source;
        let (Some(known), Some(Some(letter))) = (self.quotes.get_mut(place), self.letters.get(report.source))
        else {
            return;
        };
        let old = std::mem::replace(known, report.quote);
        let letter = *letter;
        let national = self.national.get(report.symbol as usize).copied().unwrap_or([(0, 0, b' '); 2]);
        let Some(bands) = self.bands.get(report.symbol as usize) else { return };
        let best = [0, 1].map(|side| {
            let (best, (price, _)) = (national[side], report.quote[side]);
            // Another venue's quote stays the best while this one is worse.
            let is_worse = price == 0 || if side == 0 { price < best.0 } else { price > best.0 };
            let is_others = best.0 != 0 && best.2 != letter && (is_worse || !bands.admit(side, price));
            if old[side] == report.quote[side] || is_others { best } else { self.best(report.symbol, side) }
        });
        let Some(before) = self.national.get_mut(report.symbol as usize) else { return };
        let changed = [best[0] != before[0], best[1] != before[1]];
        *before = best;
        let quote = Quote { letter, sides: report.quote, best, changed, is_generated: false };
        let participant_ns = stamp.utc_ns.saturating_sub(latency_ns(report.source));
        self.say(outbox, stamp, participant_ns, (report.symbol, instrument), &quote);
    }

    /// Writes a quote, with the relation of the national best to the price bands.
    fn say(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        participant_ns: u64,
        (symbol, instrument): (u32, &Instrument),
        quote: &Quote,
    ) {
        let Some(bands) = self.bands.get_mut(symbol as usize) else { return };
        let standing = bands.standing_of(quote.best[0].0, quote.best[1].0);
        let luld = Luld {
            beyond: bands.beyond(quote.sides[0].0, quote.sides[1].0),
            national: if bands.hold() { standing } else { b' ' },
            is_news: std::mem::replace(&mut bands.standing, standing) != standing,
        };
        say(self.kind, outbox, stamp, participant_ns, instrument, quote, &luld);
    }

    /// Evaluates the trades since the last call, which may change the bands.
    pub(crate) fn look(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        symbol: u32,
        instrument: &mut Instrument,
        is_trading: bool,
    ) {
        if !is_on_tape(self.kind, symbol, instrument) {
            return;
        }
        let traded = std::mem::take(&mut instrument.traded);
        let Some(bands) = self.bands.get_mut(symbol as usize) else { return };
        if let Some((reference, indicator)) =
            bands.look(instrument, traded, (symbol, stamp.time_ns, is_trading))
        {
            self.set_bands(outbox, stamp, (symbol, instrument), reference, indicator);
        }
    }

    /// Opens the market: earlier trades do not count.
    pub(crate) fn open(&mut self, symbol: u32, instrument: &mut Instrument) {
        if let Some(bands) = self.bands.get_mut(symbol as usize)
            && is_on_tape(self.kind, symbol, instrument)
        {
            instrument.traded = (0, 0);
            bands.begin();
        }
    }

    /// Sets a symbol's first reference price, from the opening auction.
    pub(crate) fn open_at(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        symbol: u32,
        instrument: &mut Instrument,
        price: u32,
    ) {
        if self.bands_of(symbol).reference == 0 {
            self.set_bands(outbox, stamp, (symbol, instrument), price, b'A');
        }
    }

    /// Ends the bands because the symbol is halted or the bands' hours are over.
    pub(crate) fn end_bands(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        symbol: u32,
        instrument: &mut Instrument,
        indicator: u8,
    ) {
        let ended = self.bands.get_mut(symbol as usize).is_some_and(|bands| bands.end(instrument));
        instrument.reopened = 0;
        if ended {
            self.say_bands(outbox, stamp, symbol, instrument, indicator);
            self.restate(outbox, stamp, symbol, instrument);
        }
    }

    /// Resumes a symbol. Its reference price is that of the auction that ended the halt, if there was one.
    pub(crate) fn reopen(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        symbol: u32,
        instrument: &mut Instrument,
    ) {
        let Some(bands) = self.bands.get_mut(symbol as usize) else { return };
        instrument.traded = (0, 0);
        bands.begin();
        let known = bands.reference;
        let reference = if instrument.reopened > 0 { instrument.reopened } else { known };
        if reference > 0 {
            let indicator = if known == 0 { b'A' } else { b'E' };
            self.set_bands(outbox, stamp, (symbol, instrument), reference, indicator);
        }
    }

    fn set_bands(
        &mut self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        (symbol, instrument): (u32, &mut Instrument),
        reference: u32,
        indicator: u8,
    ) {
        let Some(bands) = self.bands.get_mut(symbol as usize) else { return };
        bands.set(reference, instrument, symbol, stamp.time_ns);
        self.say_bands(outbox, stamp, symbol, instrument, indicator);
        self.restate(outbox, stamp, symbol, instrument);
    }

    fn say_bands(
        &self,
        outbox: &mut Outbox,
        stamp: &Stamp,
        symbol: u32,
        instrument: &Instrument,
        indicator: u8,
    ) {
        let bands = self.bands_of(symbol);
        let prices = if bands.hold() { bands.prices } else { [0; 2] };
        if is_cta(self.kind) {
            cqs_bands(outbox, stamp, instrument, prices, indicator);
        } else {
            say_uqdf!(
                outbox,
                stamp,
                LimitUpLimitDownPriceBandFields {
                    symbol: long_symbol(instrument.symbol),
                    luld_price_band_indicator: uqdf::LuldPriceBandIndicator::from_raw(indicator),
                    luld_timestamp: NanosecondsSinceEpoch(stamp.utc_ns),
                    limit_down_price: long(prices[0]),
                    limit_up_price: long(prices[1]),
                }
            );
        }
    }

    /// Publishes the effect of new bands: if the national best or its relation to the bands changed, the SIP repeats a
    /// participant's quote to say so.
    fn restate(&mut self, outbox: &mut Outbox, stamp: &Stamp, symbol: u32, instrument: &Instrument) {
        let best = [0, 1].map(|side| self.best(symbol, side));
        let (place, bands) = (symbol as usize, self.bands_of(symbol));
        let before = self.national.get(place).copied().unwrap_or([(0, 0, b' '); 2]);
        let changed = [best[0] != before[0], best[1] != before[1]];
        if changed == [false; 2] && bands.standing_of(best[0].0, best[1].0) == bands.standing {
            return;
        }
        if let Some(national) = self.national.get_mut(place) {
            *national = best;
        }
        let quoted = || {
            self.quotes_of(symbol).iter().zip(&self.letters).filter(|(quote, _)| **quote != Lots::default())
        };
        let of = |letter: u8| quoted().find(|(_, one)| **one == Some(letter));
        let participant = of(best[0].2).or_else(|| of(best[1].2)).or_else(|| quoted().next());
        if let Some((sides, Some(letter))) = participant.map(|(quote, letter)| (*quote, *letter)) {
            let quote = Quote { letter, sides, best, changed, is_generated: true };
            self.say(outbox, stamp, stamp.utc_ns, (symbol, instrument), &quote);
        }
    }

    /// Writes the quotes of a symbol; the last one carries the national best.
    pub(crate) fn image(&self, outbox: &mut Outbox, stamp: &Stamp, symbol: u32, instrument: &Instrument) {
        let bands = self.bands_of(symbol);
        if bands.hold() {
            self.say_bands(outbox, stamp, symbol, instrument, b'C');
        }
        let quotes: Vec<(u8, Lots)> = self
            .quotes_of(symbol)
            .iter()
            .zip(&self.letters)
            .filter(|(quote, _)| **quote != Lots::default())
            .filter_map(|(quote, letter)| Some(((*letter)?, *quote)))
            .collect();
        let best = self.national.get(symbol as usize).copied().unwrap_or([(0, 0, b' '); 2]);
        let last = quotes.len().saturating_sub(1);
        for (place, (letter, sides)) in quotes.into_iter().enumerate() {
            let quote = Quote { letter, sides, best, changed: [place == last; 2], is_generated: false };
            let luld = Luld {
                beyond: bands.beyond(sides[0].0, sides[1].0),
                national: if bands.hold() { bands.standing } else { b' ' },
                is_news: place == last,
            };
            say(self.kind, outbox, stamp, stamp.utc_ns, instrument, &quote, &luld);
        }
    }
}

/// A participant's quote with the changes of the national best. Sizes are in lots.
struct Quote {
    letter: u8,
    sides: Lots,
    best: [National; 2],
    changed: [bool; 2],
    /// Whether the SIP itself generated it rather than a participant.
    is_generated: bool,
}

/// The price-band fields of a quote: the letter of its own sides, the letter of the national best, and whether the latter changed.
struct Luld {
    beyond: u8,
    national: u8,
    is_news: bool,
}

/// Converts a price to six decimals.
fn long(price: u32) -> Decimal<u64, 6> {
    Decimal(u64::from(price) * 100)
}

/// Converts a price to cents and returns it with its lots, if both fit the short form.
fn short((price, lots): (u32, u32)) -> Option<(Decimal<u16, 2>, u16)> {
    let cents = u16::try_from(price / 100).ok().filter(|_| price % 100 == 0)?;
    Some((Decimal(cents), u16::try_from(lots).ok()?))
}

/// Converts both sides to the short form.
fn short_sides([bid, ask]: Lots) -> Option<[(Decimal<u16, 2>, u16); 2]> {
    Some([short(bid)?, short(ask)?])
}

/// Returns price and lots.
const fn lots((price, lots, _): National) -> (u32, u32) {
    (price, lots)
}

/// Writes a quote. Whether sizes count lots or shares depends on the date.
fn say(
    kind: VenueKind,
    outbox: &mut Outbox,
    stamp: &Stamp,
    participant_ns: u64,
    instrument: &Instrument,
    quote: &Quote,
    luld: &Luld,
) {
    let are_shares = SipSizes::ByDate.are_shares(Nanos(stamp.utc_ns));
    let each = if are_shares { instrument.round_lot } else { 1 };
    let quote = &Quote {
        sides: quote.sides.map(|(price, lots)| (price, lots.saturating_mul(each))),
        best: quote.best.map(|(price, lots, letter)| (price, lots.saturating_mul(each), letter)),
        ..*quote
    };
    let mut bytes = [0; LONGEST];
    let written = if is_cta(kind) {
        cqs_quote(&mut bytes, participant_ns, instrument, quote, luld)
    } else {
        uqdf_quote(&mut bytes, stamp, participant_ns, instrument, quote, luld)
    };
    debug_assert!(written.is_some(), "a quote has room");
    outbox.push(stamp, written.and_then(|length| bytes.get(..length)).unwrap_or_default());
}

/// Returns the symbol as the field of a long quote.
fn long_symbol(symbol: Ascii<8>) -> Ascii<11> {
    let mut long = [b' '; 11];
    long.iter_mut().zip(symbol.0).for_each(|(to, from)| *to = from);
    Ascii(long)
}

/// Returns the symbol as the field of a short quote: simulated symbols have four letters.
fn short_symbol(symbol: Ascii<8>) -> Ascii<5> {
    let [a, b, c, d, e, ..] = symbol.0;
    Ascii([a, b, c, d, e])
}

fn uqdf_quote(
    bytes: &mut [u8],
    stamp: &Stamp,
    participant_ns: u64,
    instrument: &Instrument,
    said: &Quote,
    luld: &Luld,
) -> Option<usize> {
    let Quote { letter, sides: quote, best: [bid, ask], changed, is_generated } = *said;
    use uqdf::NbboAppendageIndicator as Indicator;
    let condition = |sides: Lots| match sides {
        [(0, _), _] | [_, (0, _)] => uqdf::QuoteCondition::AutomatedBidNoOfferOrAutomatedOfferNoBid,
        _ => uqdf::QuoteCondition::RegularTwoSidedOpenQuoteAutomated,
    };
    let best = [lots(bid), lots(ask)];
    let mut appendage = [0; 27];
    let (indicator, length) = if changed == [false; 2] {
        (Indicator::NoNationalBboChange, 0)
    } else if best == Lots::default() {
        (Indicator::NoNationalBboCanBeCalculated, 0)
    } else if (bid.2, ask.2) == (letter, letter) {
        (Indicator::QuoteContainsAllNationalBboInformation, 0)
    } else if let Some([(bid_price, bid_size), (ask_price, ask_size)]) = short_sides(best) {
        let fields = uqdf::ShortFormNationalBboAppendageFields {
            nbbo_quote_condition: condition(best),
            national_best_bid_market_center: uqdf::MarketCenter::from_raw(bid.2),
            national_best_bid_price_short: bid_price,
            national_best_bid_size_short: bid_size,
            national_best_ask_market_center: uqdf::MarketCenter::from_raw(ask.2),
            national_best_ask_price_short: ask_price,
            national_best_ask_size_short: ask_size,
        };
        *appendage.first_chunk_mut()? = fields.encode();
        (Indicator::ShortFormNationalBboAppendage, 11)
    } else {
        let fields = uqdf::LongFormNationalBboAppendageFields {
            nbbo_quote_condition: condition(best),
            best_bid_market_center: uqdf::MarketCenter::from_raw(bid.2),
            best_bid_price: long(bid.0),
            best_bid_size: bid.1,
            best_ask_market_center: uqdf::MarketCenter::from_raw(ask.2),
            best_ask_price: long(ask.0),
            best_ask_size: ask.1,
        };
        appendage = fields.encode();
        (Indicator::LongFormNationalBboAppendage, 27)
    };
    let appendages = appendage.get(..length)?;
    let sip_timestamp = NanosecondsSinceEpoch(stamp.utc_ns);
    let participant_timestamp = NanosecondsSinceEpoch(participant_ns);
    let market_center_originator_id = uqdf::MarketCenter::from_raw(letter);
    let luld_bbo_indicator = uqdf::LuldBboIndicator::from_raw(luld.beyond);
    let luld_national_bbo_indicator = uqdf::LuldNationalBboIndicator::from_raw(luld.national);
    let sip_generated_update = if is_generated {
        uqdf::SipGeneratedUpdate::SipGeneratedTransaction
    } else {
        uqdf::SipGeneratedUpdate::OriginatedFromTheMarketParticipant
    };
    if let Some([(bid_price_short, bid_size_short), (ask_price_short, ask_size_short)]) = short_sides(quote) {
        let fields = uqdf::QuoteShortFormFields {
            version: uqdf::VERSION,
            market_center_originator_id,
            sub_market_center_id: uqdf::SubMarketCenter::FinraAlternativeDisplayFacility,
            sip_timestamp,
            participant_timestamp,
            participant_token: 0,
            symbol: short_symbol(instrument.symbol),
            bid_price_short,
            bid_size_short,
            ask_price_short,
            ask_size_short,
            quote_condition: condition(quote),
            sip_generated_update,
            luld_bbo_indicator,
            retail_interest_indicator: uqdf::RetailInterestIndicator::NotApplicable,
            nbbo_appendage_indicator: indicator,
            luld_national_bbo_indicator,
            appendages,
        };
        return fields.encode_into(bytes).ok();
    }
    let [(bid_price, bid_size), (ask_price, ask_size)] = quote;
    let fields = uqdf::QuoteLongFormFields {
        version: uqdf::VERSION,
        market_center_originator_id,
        sub_market_center_id: uqdf::SubMarketCenter::FinraAlternativeDisplayFacility,
        sip_timestamp,
        participant_timestamp,
        participant_token: 0,
        finra_timestamp: NanosecondsSinceEpoch(0),
        symbol: long_symbol(instrument.symbol),
        bid_price: long(bid_price),
        bid_size,
        ask_price: long(ask_price),
        ask_size,
        quote_condition: condition(quote),
        sip_generated_update,
        luld_bbo_indicator,
        retail_interest_indicator: uqdf::RetailInterestIndicator::NotApplicable,
        nbbo_appendage_indicator: indicator,
        luld_national_bbo_indicator,
        finra_adf_mpid_appendage_indicator: uqdf::FinraAdfMpidAppendageIndicator::NotApplicable,
        appendages,
    };
    fields.encode_into(bytes).ok()
}

/// The fields after the type that every CQS message begins with.
macro_rules! cqs_fields {
    ($name:ident, $length:expr, $letter:expr, $utc_ns:expr, { $($own:tt)* }) => {
        cqs::$name {
            length: $length,
            participant_id: cqs::Participant::from_raw($letter),
            participant_timestamp_seconds: SecondsSinceEpoch(($utc_ns / SECOND_NS) as u32),
            participant_timestamp_nanoseconds: Nanoseconds($utc_ns % SECOND_NS),
            message_id: 1,
            transaction_id: 0,
            participant_reference_number: 0,
            $($own)*
        }
    };
}

/// Returns where one side of the national best is published, and appends its appendage if it has one.
fn cqs_side(
    national: National,
    is_changed: bool,
    letter: u8,
    is_long: bool,
    appendages: &mut Vec<u8>,
) -> cqs::NationalPlace {
    let (price, size, center) = national;
    if !is_changed {
        return cqs::NationalPlace::Nowhere;
    }
    if price == 0 {
        return cqs::NationalPlace::Absent;
    }
    if center == letter {
        return cqs::NationalPlace::Quote;
    }
    match short((price, size)).filter(|_| !is_long) {
        Some((price, size)) => {
            let fields = cqs::NationalBestBidShortAppendageFields {
                best_bid_participant_id: cqs::Participant::from_raw(center),
                best_bid_price_short: price,
                best_bid_size_short: size,
            };
            appendages.extend(fields.encode());
            cqs::NationalPlace::Short
        }
        None => {
            let fields = cqs::NationalBestBidLongAppendageFields {
                best_bid_participant_id: cqs::Participant::from_raw(center),
                best_bid_quote_condition: cqs::QuoteCondition::RegularFinraOpen,
                best_bid_price_long: long(price),
                best_bid_size_long: size,
                finra_best_bid_market_maker_id: Ascii(*b"    "),
            };
            appendages.extend(fields.encode());
            cqs::NationalPlace::Long
        }
    }
}

fn cqs_quote(
    bytes: &mut [u8],
    participant_ns: u64,
    instrument: &Instrument,
    said: &Quote,
    luld: &Luld,
) -> Option<usize> {
    let Quote {
        letter,
        sides: quote,
        best: [bid, offer],
        changed: [bid_changed, offer_changed],
        is_generated,
    } = *said;
    let mut appendages = Vec::new();
    // No indicator combines a short appendage with a long one.
    let is_long = short(lots(bid)).is_none() || short(lots(offer)).is_none();
    let places = [
        cqs_side(bid, bid_changed, letter, is_long, &mut appendages),
        cqs_side(offer, offer_changed, letter, is_long, &mut appendages),
    ];
    let national_bbo_indicator = cqs::NationalBboIndicator::of(places)?;
    let primary = cqs::PrimaryListingMarketParticipantId::Nyse;
    // The short form has no field for the effect of the bands on a quote or on the national best.
    let is_plain =
        luld.beyond == b' ' && matches!(luld.national, b' ' | b'A') && !luld.is_news && !is_generated;
    if let Some([(bid_price_short, bid_size_short), (offer_price_short, offer_size_short)]) =
        short_sides(quote).filter(|_| is_plain)
    {
        let length = (41 + appendages.len()) as u16;
        let fields = cqs_fields!(ShortQuoteFields, length, letter, participant_ns, {
            security_symbol: short_symbol(instrument.symbol),
            bid_price_short,
            bid_size_short,
            offer_price_short,
            offer_size_short,
            primary_listing_market_participant_id: primary,
            national_bbo_indicator,
            appendages: &appendages,
        });
        return fields.encode_into(bytes).ok();
    }
    let [(bid_price, bid_size), (offer_price, offer_size)] = quote;
    let length = (87 + appendages.len()) as u16;
    let fields = long_quote(length, letter, participant_ns, instrument, &appendages);
    let fields = cqs::LongQuoteFields {
        bid_price_lower_limit_price_band: long(bid_price),
        bid_size_long: bid_size,
        offer_price_upper_limit_price_band: long(offer_price),
        offer_size_long: offer_size,
        sip_generated_message_identifier: if is_generated {
            cqs::SipGeneratedMessageIdentifier::ConsolidatedQuotationSystem
        } else {
            cqs::SipGeneratedMessageIdentifier::NotApplicable
        },
        luld_indicator: Ascii([luld.beyond]),
        national_bbo_luld_indicator: cqs::NationalBboLuldIndicator::from_raw(luld.national),
        national_bbo_indicator,
        ..fields
    };
    fields.encode_into(bytes).ok()
}

/// Returns a CQS long quote without prices.
fn long_quote<'m>(
    length: u16,
    letter: u8,
    participant_ns: u64,
    instrument: &Instrument,
    appendages: &'m [u8],
) -> cqs::LongQuoteFields<'m> {
    cqs_fields!(LongQuoteFields, length, letter, participant_ns, {
        security_symbol: long_symbol(instrument.symbol),
        instrument_type: cqs::InstrumentType::CtaEligibleEquity,
        quote_condition: cqs::QuoteCondition::RegularFinraOpen,
        security_status_indicator: cqs::SecurityStatusIndicator::NotApplicable,
        bid_price_lower_limit_price_band: long(0),
        bid_size_long: 0,
        offer_price_upper_limit_price_band: long(0),
        offer_size_long: 0,
        retail_interest_indicator: cqs::RetailInterestIndicator::NotApplicable,
        settlement_condition: cqs::SettlementCondition::RegularWaySettlement,
        market_condition: cqs::MarketCondition::NormalAuctionMarket,
        finra_market_maker_id: Ascii(*b"    "),
        finra_bbo_indicator: cqs::FinraBboIndicator::NotApplicable,
        adf_timestamp_seconds: SecondsSinceEpoch(0),
        adf_timestamp_nanoseconds: Nanoseconds(0),
        short_sale_restriction_indicator: cqs::ShortSaleRestrictionIndicator::NotInEffect,
        primary_listing_market_participant_id: cqs::PrimaryListingMarketParticipantId::Nyse,
        financial_status_indicator: cqs::FinancialStatusIndicator::NotApplicable,
        sip_generated_message_identifier: cqs::SipGeneratedMessageIdentifier::NotApplicable,
        luld_indicator: Ascii(*b" "),
        national_bbo_luld_indicator: cqs::NationalBboLuldIndicator::NotApplicable,
        national_bbo_indicator: cqs::NationalBboIndicator::NoBestBidChangeOrBestOfferChange,
        appendages,
    })
}

/// Writes price bands as a quote message.
fn cqs_bands(
    outbox: &mut Outbox,
    stamp: &Stamp,
    instrument: &Instrument,
    [lower, upper]: [u32; 2],
    indicator: u8,
) {
    let fields = cqs::LongQuoteFields {
        security_status_indicator: cqs::SecurityStatusIndicator::LuldPriceBand,
        bid_price_lower_limit_price_band: long(lower),
        offer_price_upper_limit_price_band: long(upper),
        sip_generated_message_identifier: cqs::SipGeneratedMessageIdentifier::ConsolidatedQuotationSystem,
        luld_indicator: Ascii([indicator]),
        ..long_quote(87, b'N', stamp.utc_ns, instrument, &[])
    };
    let mut bytes = [0; LONGEST];
    let written = fields.encode_into(&mut bytes).ok();
    debug_assert!(written.is_some(), "bands have room");
    outbox.push(stamp, written.and_then(|length| bytes.get(..length)).unwrap_or_default());
}

/// Writes the listing market's trading action for the state in `standing`.
fn trading_action(outbox: &mut Outbox, stamp: &Stamp, stock: Ascii<8>, standing: &Standing) {
    let mut trading_action_reason = [b' '; 6];
    trading_action_reason.iter_mut().zip(standing.reason.raw()).for_each(|(to, from)| *to = from);
    say_uqdf!(
        outbox,
        stamp,
        CrossSroTradingActionFields {
            symbol: long_symbol(stock),
            trading_action_code: match standing.state {
                TradingState::Halted => uqdf::TradingActionCode::TradingHalt,
                TradingState::Paused => uqdf::TradingActionCode::VolatilityTradingPause,
                TradingState::QuotationOnlyPeriod =>
                    uqdf::TradingActionCode::QuotationResumptionIncludingAfterEma,
                _ => uqdf::TradingActionCode::TradingResumption,
            },
            trading_action_sequence_number: 1,
            action_timestamp: NanosecondsSinceEpoch(stamp.utc_ns),
            trading_action_reason: Ascii(trading_action_reason),
        }
    );
}

fn reg_sho(outbox: &mut Outbox, stamp: &Stamp, stock: Ascii<8>, reg_sho_action: uqdf::RegShoAction) {
    say_uqdf!(
        outbox,
        stamp,
        RegShoShortSalePriceTestRestrictionFields { symbol: long_symbol(stock), reg_sho_action }
    );
}

/// UTP's UQDF: symbol directory, trading actions, quotes. The generator omits messages about symbols of the other tapes.
pub(crate) struct Uqdf;

impl Dialect for Uqdf {
    const HAS_ORDERS: bool = false;
    /// After the version and the category.
    const TYPE_OFFSET: usize = 2;

    fn session(name: &SessionName) -> SessionId {
        SessionId::MoldUdp64(name.text)
    }

    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        match code {
            b'O' => say_uqdf!(outbox, stamp, StartOfDayFields {}),
            b'Q' => say_uqdf!(outbox, stamp, MarketSessionOpenFields {}),
            b'M' => say_uqdf!(outbox, stamp, MarketSessionCloseFields {}),
            b'E' => say_uqdf!(outbox, stamp, EndOfDayFields {}),
            b'C' => say_uqdf!(outbox, stamp, EndOfTransmissionsFields {}),
            _ => {}
        }
    }

    fn directory(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        index: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        if !is_on_tape(kind, index, instrument) {
            return;
        }
        let symbol = long_symbol(instrument.symbol);
        say_uqdf!(
            outbox,
            stamp,
            IssueSymbolDirectoryFields {
                symbol,
                old_symbol: symbol,
                issue_name: Ascii(*b"SIMULATED                     "),
                issue_type: uqdf::IssueType::CommonStock,
                issue_subtype: Ascii(*b"Z "),
                market_tier: uqdf::MarketTier::NasdaqGlobalSelectMarket,
                authenticity: uqdf::Authenticity::Production,
                short_sale_threshold_indicator: uqdf::ShortSaleThresholdIndicator::IssueIsNotRestricted,
                round_lot_size: instrument.round_lot as u16,
                financial_status_indicator: uqdf::FinancialStatusIndicator::Normal,
            }
        );
        trading_action(outbox, stamp, instrument.symbol, standing);
        if standing.was_restricted {
            reg_sho(outbox, stamp, instrument.symbol, uqdf::RegShoAction::RegShoRestrictionRemainsInEffect);
        }
        if standing.short_sale_test {
            Self::short_sale_test(outbox, kind, stamp, instrument.symbol, standing);
        }
    }

    fn trading_state(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, standing: &Standing) {
        trading_action(outbox, stamp, stock, standing);
    }

    /// Halts the SIP's own book, which stands for a market without a direct feed.
    fn operational_halt(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    ) {
        say_uqdf!(
            outbox,
            stamp,
            MarketCenterTradingActionFields {
                symbol: long_symbol(stock),
                trading_action_code: if standing.operational_halt {
                    uqdf::TradingActionCode::TradingHalt
                } else {
                    uqdf::TradingActionCode::TradingResumption
                },
                action_timestamp: NanosecondsSinceEpoch(stamp.utc_ns),
                market_center_identifier: uqdf::MarketCenter::Pearl,
            }
        );
    }

    fn short_sale_test(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, _: &Standing) {
        reg_sho(outbox, stamp, stock, uqdf::RegShoAction::RegShoInEffectDueToAnIntraDayPriceDrop);
    }

    fn trade_break(_: &mut Outbox, _: VenueKind, _of_market: &Stamp, _: &Stamp, _: &Print) {}

    /// Writes the SIP's time, and shifts the participant's time to keep their distance.
    fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
        let time = |message: &[u8], from: usize| {
            message
                .get(from..)
                .and_then(|bytes| bytes.first_chunk())
                .map_or(0, |bytes| u64::from_be_bytes(*bytes))
        };
        let (sip, participant) = (time(message, 5), time(message, 13));
        if let Some(place) = message.get_mut(5..13) {
            place.copy_from_slice(&utc_ns.to_be_bytes());
        }
        if participant != 0
            && let Some(place) = message.get_mut(13..21)
        {
            place.copy_from_slice(&utc_ns.saturating_sub(sip.saturating_sub(participant)).to_be_bytes());
        }
    }
}

/// CTA's CQS: the phases of the day and quotes.
pub(crate) struct Cqs;

impl Dialect for Cqs {
    const HAS_ORDERS: bool = false;
    /// After the length and the category.
    const TYPE_OFFSET: usize = 3;

    fn session(_: &SessionName) -> SessionId {
        SessionId::CtaBlock(tapeworks_wire::cta::block::CQS)
    }

    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        match code {
            b'O' => {
                outbox.push(stamp, &cqs_fields!(StartOfDayFields, 26, b'S', stamp.utc_ns, {}).encode());
            }
            b'C' => outbox.push(stamp, &cqs_fields!(EndOfDayFields, 26, b'S', stamp.utc_ns, {}).encode()),
            _ => {}
        }
    }

    fn directory(_: &mut Outbox, _: VenueKind, _: &Stamp, _: u32, _: &Instrument, _: &Standing) {}

    fn trading_state(_: &mut Outbox, _: VenueKind, _: &Stamp, _: Ascii<8>, _: &Standing) {}

    fn operational_halt(_: &mut Outbox, _: VenueKind, _: &Stamp, _: Ascii<8>, _: &Standing) {}

    fn short_sale_test(_: &mut Outbox, _: VenueKind, _: &Stamp, _: Ascii<8>, _: &Standing) {}

    fn trade_break(_: &mut Outbox, _: VenueKind, _of_market: &Stamp, _: &Stamp, _: &Print) {}

    /// Writes the seconds and nanoseconds after the participant.
    fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
        let (seconds, nanoseconds) = ((utc_ns / SECOND_NS) as u32, (utc_ns % SECOND_NS) as u32);
        if let Some(place) = message.get_mut(5..9) {
            place.copy_from_slice(&seconds.to_be_bytes());
        }
        if let Some(place) = message.get_mut(9..13) {
            place.copy_from_slice(&nanoseconds.to_be_bytes());
        }
    }
}
