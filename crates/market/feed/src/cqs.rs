//! CTA's CQS 1.91 to normalised events.
//!
//! Every message names its participant by a letter, and a quote its instrument by symbol. A quote becomes two events of the
//! participant's publisher and, if it affects the national best bid and offer, events of the SIP's: [`Quotes`]. The SIP's own
//! time is in the block, not in the message, so all events have the participant's time.
//!
//! Sizes are in round lots, and no message states how many shares a lot has: a hundred. From November 2025 on they are in shares.
//!
//! Suffixes follow CQS's convention, and are normalised to the spelling of the other venues: `XYZpA` becomes `XYZ-A`
//! ([`symbology`](tapeworks_market::symbology)).
//!
//! A long quote may have price bands in place of prices: it is then not a quote of the participant. A FINRA quote may be a market
//! maker's that leaves FINRA's best unchanged, or may state that FINRA has none.
//!
//! The security status of a quote is a status of the SIP if it is regulatory: news, a pause, a circuit breaker. Any other halt
//! belongs to the participant alone: an imbalance, its systems, sub-penny trading, no opening. A resumption belongs to the
//! participant, and to the SIP too if the listing market sends it. The short-sale restriction is a status of the SIP when it
//! changes.
//!
//! Cost: the message's own cache lines, one lookup of the symbol (two if it has a suffix), and up to four events.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use tapeworks_market::event::{Session, Status, StatusAction};
use tapeworks_market::luld::PriceBands;
use tapeworks_market::quote_conditions::{self, Sip};
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher, symbology};
use tapeworks_session::{CtaBlock, SessionId};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::cta::block::CQS;
use tapeworks_wire::cta::cqs191::{
    FinraBboIndicator, LongQuote, Message, Participant, PrimaryListingMarketParticipantId as Listing,
    SecurityStatusIndicator as Security, ShortQuote, ShortSaleRestrictionIndicator as Restriction,
    SpecialLongQuote,
};
use tapeworks_wire::national::{NationalSide, of_cents};
use tapeworks_wire::{Decimal, DecodeError, Nanoseconds, SecondsSinceEpoch};

use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{Normaliser, OPERATIONAL, Start, Target};
use crate::probe::packet_fits;
use crate::sip::{self, Best, OF_CTA, Quote, Quotes, USUAL_LOT};
use crate::symbols::{SymbolHasher, UNWANTED};

/// A message names its symbol.
pub(crate) const NAMING: Naming = Naming {
    symbol: "security_symbol",
    suffix: None,
    suffixes: Suffixes::Cqs,
    number: None,
    zero_is_none: false,
    directory: None,
    issue_name: None,
};

/// The SIP's own publisher.
const SIP: Publisher = Publisher::SIP_CTA;

/// Maximum number of symbols with a suffix to remember; further ones are translated at each message. The tapes have about 3,000.
const MOST_SUFFIXED: usize = 1 << 16;

const SECOND_NS: u64 = 1_000_000_000;

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message begins the day, or resets the block sequence number.
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::StartOfDay(_) | Message::ResetBlockSequenceNumber(_)))
}

/// Returns the participant's time of a message, in nanoseconds since 1970.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    let number =
        |from: usize| message.get(from..)?.first_chunk().map(|bytes| u64::from(u32::from_be_bytes(*bytes)));
    Some(number(5)? * SECOND_NS + number(9)?)
}

/// DBN's status reason for an order imbalance.
const ORDER_IMBALANCE: u16 = 40;

/// Returns whether a UDP payload is a CQS block.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    // The block states its length.
    let is_whole = payload
        .get(1..3)
        .is_some_and(|size| usize::from(size[0]) << 8 | usize::from(size[1]) == payload.len());
    is_whole
        && payload.get(3) == Some(&CQS)
        && matches!(payload.get(4), Some(b'O' | b'V'))
        && packet_fits::<CtaBlock>(payload, check)
}

/// Returns whether a session of blocks belongs to CQS.
pub(crate) fn has_session(session: &SessionId) -> bool {
    matches!(session, SessionId::CtaBlock(CQS))
}

/// Symbols with a suffix, and their instruments.
type Suffixed = HashMap<[u8; 11], InstrumentId, BuildHasherDefault<SymbolHasher>>;

/// Translates the messages of one channel of CQS.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct CqsNormaliser {
    quotes: Quotes,
    /// Caches the instruments of symbols with a suffix, which the symbol table has in another spelling.
    #[cfg_attr(feature = "serde", serde(skip))]
    suffixed: Suffixed,
    /// By instrument: whether a short-sale price test restricts it.
    restricted: Vec<bool>,
    sizes: SipSizes,
}

impl Normaliser for CqsNormaliser {
    fn new(start: &Start) -> Self {
        Self {
            quotes: Quotes::default(),
            suffixed: Suffixed::default(),
            restricted: Vec::new(),
            sizes: start.sip_sizes,
        }
    }

    #[inline]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        match Message::decode(message)? {
            Message::ShortQuote(m) => self.short(&m, to)?,
            Message::LongQuote(m) => self.long(&m, to)?,
            Message::SpecialLongQuote(m) => self.special(&m, to)?,
            other => self.no_quote(other, message, to),
        }
        Ok(None)
    }

    fn time_of(&self, message: &[u8]) -> Nanos {
        Nanos(time(message).unwrap_or_default())
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.quotes.is_sound(symbols) && self.restricted.len() <= symbols.instruments().len()
    }
}

#[inline]
const fn nanos(seconds: SecondsSinceEpoch, nanoseconds: Nanoseconds) -> Nanos {
    Nanos(seconds.0 as u64 * SECOND_NS + nanoseconds.0)
}

/// Returns an eligible quote. Its national best has the participant's time, and no message states how many shares a lot has.
#[inline]
const fn quote_of(
    participant: Option<Publisher>,
    time: Nanos,
    sides: [Best; 2],
    national: [NationalSide; 2],
    sizes: SipSizes,
) -> Quote {
    Quote {
        participant,
        time,
        national_time: time,
        sides,
        eligible: [true; 2],
        national,
        lot: sip::shares_each(sizes, time, USUAL_LOT),
        standing: None,
        bands: None,
    }
}

impl CqsNormaliser {
    #[inline]
    fn short<S: Sink<Event>>(
        &mut self,
        m: &ShortQuote<'_>,
        to: &mut Target<'_, S>,
    ) -> Result<(), DecodeError> {
        let national = m.national()?;
        let [a, b, c, d, e] = m.security_symbol().0;
        let instrument = self.resolve([a, b, c, d, e, b' ', b' ', b' ', b' ', b' ', b' '], to);
        let time = nanos(m.participant_timestamp_seconds(), m.participant_timestamp_nanoseconds());
        let sides = [
            (of_cents(m.bid_price_short()), u32::from(m.bid_size_short())),
            (of_cents(m.offer_price_short()), u32::from(m.offer_size_short())),
        ];
        let quote = quote_of(sip::participant(m.participant_id().raw()), time, sides, national, self.sizes);
        self.put(instrument, &quote, to);
        Ok(())
    }

    #[inline]
    fn long<S: Sink<Event>>(&mut self, m: &LongQuote<'_>, to: &mut Target<'_, S>) -> Result<(), DecodeError> {
        let mut national = m.national()?;
        let instrument = self.resolve(m.security_symbol().0, to);
        let time = nanos(m.participant_timestamp_seconds(), m.participant_timestamp_nanoseconds());
        let security = m.security_status_indicator();
        let has_bands = matches!(security, Security::LuldPriceBand | Security::RepublishedLuldPriceBand);
        let finra = m.finra_bbo_indicator();
        let is_own = !has_bands && finra != FinraBboIndicator::NoFinraBboChange;
        let participant = sip::participant(m.participant_id().raw()).filter(|_| is_own);
        let mut sides = [
            (m.bid_price_lower_limit_price_band(), m.bid_size_long()),
            (m.offer_price_upper_limit_price_band(), m.offer_size_long()),
        ];
        if !has_bands && finra == FinraBboIndicator::NoFinraBboExists {
            sides = [(Decimal(0), 0); 2];
        }
        if has_bands {
            // Price bands are not anyone's best.
            national.iter_mut().filter(|side| **side == NationalSide::OfQuote).for_each(|side| {
                *side = NationalSide::Unchanged;
            });
        }
        let bands = has_bands.then(|| PriceBands {
            lower: sip::price(sides[0].0),
            upper: sip::price(sides[1].0),
            indicator: m.luld_indicator().0[0],
            effective: time,
        });
        let quote = Quote {
            eligible: sip::eligible(Sip::Cta, m.quote_condition().raw(), m.luld_indicator().0[0]),
            standing: Some(m.national_bbo_luld_indicator().raw()).filter(|_| !has_bands),
            bands,
            ..quote_of(participant, time, sides, national, self.sizes)
        };
        let said = Said {
            security,
            restriction: m.short_sale_restriction_indicator(),
            participant: m.participant_id(),
            listing: m.primary_listing_market_participant_id(),
        };
        self.hear(said, instrument, time, to);
        self.put(instrument, &quote, to);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn special<S: Sink<Event>>(
        &mut self,
        m: &SpecialLongQuote<'_>,
        to: &mut Target<'_, S>,
    ) -> Result<(), DecodeError> {
        let national = m.national()?;
        let instrument = self.resolve(m.security_symbol().0, to);
        let time = nanos(m.participant_timestamp_seconds(), m.participant_timestamp_nanoseconds());
        // FINRA's best of its market makers; the quote itself is one of theirs.
        let sides = [
            (m.finra_best_bid_price(), m.finra_best_bid_size()),
            (m.finra_best_offer_price(), m.finra_best_offer_size()),
        ];
        let conditions = [m.finra_best_bid_quote_condition(), m.finra_best_offer_quote_condition()];
        let [bid, offer] = conditions.map(|condition| quote_conditions::counts(Sip::Cta, condition.raw()));
        let quote = Quote {
            eligible: [bid, offer],
            standing: Some(m.national_bbo_luld_indicator().raw()),
            ..quote_of(sip::participant(m.participant_id().raw()), time, sides, national, self.sizes)
        };
        let said = Said {
            security: m.security_status_indicator(),
            restriction: m.short_sale_restriction_indicator(),
            participant: m.participant_id(),
            listing: m.primary_listing_market_participant_id(),
        };
        self.hear(said, instrument, time, to);
        self.put(instrument, &quote, to);
        Ok(())
    }

    /// Emits the security's state from a message.
    #[inline]
    fn hear<S: Sink<Event>>(
        &mut self,
        said: Said,
        instrument: InstrumentId,
        time: Nanos,
        to: &mut Target<'_, S>,
    ) {
        let was_restricted = self.restricted.get(instrument.index()).copied().unwrap_or_default();
        let is_usual = said.security == Security::NotApplicable
            && said.is_restricted().is_none_or(|is_restricted| is_restricted == was_restricted);
        if !is_usual && instrument < UNWANTED {
            self.put_said(said, instrument, time, to);
        }
    }

    #[cold]
    #[inline(never)]
    fn put_said<S: Sink<Event>>(
        &mut self,
        said: Said,
        instrument: InstrumentId,
        time: Nanos,
        to: &mut Target<'_, S>,
    ) {
        if self.restricted.len() <= instrument.index() {
            self.restricted.resize(instrument.index() + 1, false);
        }
        let mut put = |publisher, status| {
            let event = to.context.event(EventKind::Status, publisher, instrument, time);
            to.sink.put(event.with_status(status));
        };
        if let Some(is_restricted) = said.is_restricted()
            && std::mem::replace(&mut self.restricted[instrument.index()], is_restricted) != is_restricted
        {
            let status = Status {
                action: StatusAction::ShortSaleRestrictionChange,
                reason: 0,
                is_trading: None,
                is_quoting: None,
                is_short_sell_restricted: Some(is_restricted),
            };
            put(SIP, status);
        }
        if let Some((status, of_sip, of_participant)) = said.status() {
            if of_sip {
                put(SIP, status);
            }
            if let Some(publisher) = sip::participant(said.participant.raw()).filter(|_| of_participant) {
                put(publisher, status);
            }
        }
    }

    #[inline]
    fn put<S: Sink<Event>>(&mut self, instrument: InstrumentId, quote: &Quote, to: &mut Target<'_, S>) {
        if instrument != UNWANTED {
            self.quotes.put((&OF_CTA, Sip::Cta), instrument, quote, to.context, to.sink);
        }
    }

    /// Returns the instrument of a symbol.
    #[inline]
    fn resolve<S: Sink<Event>>(&mut self, symbol: [u8; 11], to: &mut Target<'_, S>) -> InstrumentId {
        if let [a, b, c, d, e, f, g, h, b' ', b' ', b' '] = symbol
            && symbol.iter().all(|letter| matches!(letter, b'A'..=b'Z' | b' '))
        {
            let sink = &mut *to.sink;
            return to.symbols.resolve([a, b, c, d, e, f, g, h], SIP, |mapping| sink.put(mapping));
        }
        match self.suffixed.get(&symbol) {
            Some(instrument) => *instrument,
            None => self.admit(symbol, to),
        }
    }

    #[cold]
    #[inline(never)]
    fn admit<S: Sink<Event>>(&mut self, symbol: [u8; 11], to: &mut Target<'_, S>) -> InstrumentId {
        let sink = &mut *to.sink;
        let spelled = symbology::of_cqs(symbol.trim_ascii_end());
        let instrument = to.symbols.resolve_symbol(spelled, SIP, |mapping| sink.put(mapping));
        if self.suffixed.len() < MOST_SUFFIXED {
            self.suffixed.insert(symbol, instrument);
        }
        instrument
    }

    /// Translates a message that is not a quote.
    #[cold]
    #[inline(never)]
    fn no_quote<S: Sink<Event>>(&mut self, message: Message<'_>, bytes: &[u8], to: &mut Target<'_, S>) {
        let time = Nanos(time(bytes).unwrap_or_default());
        let of_market = to.context.event(EventKind::Other, SIP, InstrumentId::ALL, time);
        match message {
            Message::StartOfDay(_) => {
                self.quotes.begin_day(&OF_CTA, time, to);
                to.sink.put(of_market.with_session(Session::StartOfSystemHours));
            }
            Message::EndOfDay(_) => to.sink.put(of_market.with_session(Session::EndOfMessages)),
            Message::AuctionStatus(m) => {
                let instrument = self.resolve(m.security_symbol().0, to);
                let said = Said {
                    security: Security::NotApplicable,
                    restriction: m.short_sale_restriction_indicator(),
                    participant: m.participant_id(),
                    listing: m.primary_listing_market_participant_id(),
                };
                self.hear(said, instrument, time, to);
                if instrument != UNWANTED {
                    to.sink.put(Event { instrument, ..of_market });
                }
            }
            _ => to.sink.put(of_market),
        }
    }
}

/// The information about the security beside the quote.
#[derive(Clone, Copy, Debug)]
struct Said {
    security: Security,
    restriction: Restriction,
    participant: Participant,
    listing: Listing,
}

impl Said {
    /// Returns whether a short-sale price test restricts it; `None` for an unknown letter.
    #[inline]
    const fn is_restricted(self) -> Option<bool> {
        match self.restriction {
            Restriction::NotInEffect | Restriction::ShortSaleRestrictionDeactivated => Some(false),
            Restriction::ShortSaleRestrictionActivated
            | Restriction::ShortSaleRestrictionContinued
            | Restriction::ShortSaleRestrictionInEffect => Some(true),
            Restriction::Unknown(_) => None,
        }
    }

    /// Returns the status, whether it belongs to the SIP, and whether it belongs to the participant; `None` if the security
    /// status is not a trading status.
    fn status(self) -> Option<(Status, bool, bool)> {
        const REGULATORY: (bool, bool) = (true, false);
        const OWN: (bool, bool) = (false, true);
        let is_of_listing = self.participant == Participant::Cqs
            || self.participant.raw() == self.listing.raw()
            || self.listing == Listing::NotApplicable;
        let (action, reason, (of_sip, of_participant)) = match self.security {
            Security::NewsDissemination => (StatusAction::Halt, 31, REGULATORY),
            Security::NewsPending => (StatusAction::Halt, 30, REGULATORY),
            Security::LuldTradingPause => (StatusAction::Pause, 50, REGULATORY),
            Security::MarketWideCircuitBreakerLevel1Breached => (StatusAction::Halt, 120, REGULATORY),
            Security::MarketWideCircuitBreakerLevel2Breached => (StatusAction::Halt, 121, REGULATORY),
            Security::MarketWideCircuitBreakerLevel3Breached => (StatusAction::Halt, 122, REGULATORY),
            Security::OrderImbalance => (StatusAction::Halt, ORDER_IMBALANCE, OWN),
            Security::Operational => (StatusAction::Halt, OPERATIONAL, OWN),
            Security::SupPennyTrading | Security::NoOpenNoResume => (StatusAction::Halt, 0, OWN),
            Security::Resume => (StatusAction::Trading, 0, (is_of_listing, true)),
            Security::NotApplicable
            | Security::TradingRangeIndication
            | Security::LuldPriceBand
            | Security::RepublishedLuldPriceBand
            | Security::Unknown(_) => return None,
        };
        let is_trading = Some(action == StatusAction::Trading);
        let status =
            Status { action, reason, is_trading, is_quoting: is_trading, is_short_sell_restricted: None };
        Some((status, of_sip, of_participant))
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Side;
    use tapeworks_market::luld::Standing;
    use tapeworks_wire::Ascii;
    use tapeworks_wire::cta::cqs191::{
        NationalBboIndicator, PrimaryListingMarketParticipantId, SCHEMA, ShortQuoteFields,
    };
    use tapeworks_wire::schema::{SplitMix64, arbitrary};

    use super::*;

    type Channel = crate::sip::testing::Channel<CqsNormaliser>;

    fn quote(symbol: &[u8; 5], national_bbo_indicator: NationalBboIndicator, appendages: &[u8]) -> Vec<u8> {
        let fields = ShortQuoteFields {
            length: (41 + appendages.len()) as u16,
            participant_id: Participant::Nasdaq,
            participant_timestamp_seconds: SecondsSinceEpoch(3),
            participant_timestamp_nanoseconds: Nanoseconds(5),
            message_id: 1,
            transaction_id: 0,
            participant_reference_number: 0,
            security_symbol: Ascii(*symbol),
            bid_price_short: Decimal(2_945),
            bid_size_short: 1,
            offer_price_short: Decimal(2_947),
            offer_size_short: 2,
            primary_listing_market_participant_id: PrimaryListingMarketParticipantId::Nyse,
            national_bbo_indicator,
            appendages,
        };
        let mut bytes = vec![0; 41 + appendages.len()];
        fields.encode_into(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn only_the_side_of_the_national_best_that_changed_is_quoted() {
        let mut channel = Channel::new();
        let shown = |events: Vec<Event>| {
            let of = |event: &Event| {
                (event.publisher, event.side, event.price.map_or(0, |price| price.e9()), event.size)
            };
            events.iter().map(of).collect::<Vec<_>>()
        };
        let own = [
            (Publisher::SIP_XNAS, Side::Bid, 29_450_000_000, 100),
            (Publisher::SIP_XNAS, Side::Ask, 29_470_000_000, 200),
        ];
        let unchanged =
            channel.take(&quote(b"STOR ", NationalBboIndicator::NoBestBidChangeOrBestOfferChange, &[]));
        assert_eq!(unchanged[0].ts_event, Nanos(3_000_000_005));
        assert_eq!(shown(unchanged), own);
        let offer = [b'Z', 0x0B, 0x82, 0, 9];
        let indicator = NationalBboIndicator::NoBestBidChangeBestOfferShortAppendage;
        let events = shown(channel.take(&quote(b"STOR ", indicator, &offer)));
        assert_eq!(events[2..], [(SIP, Side::Ask, 29_460_000_000, 900)]);
        let indicator = NationalBboIndicator::QuoteContainsBestBidNoBestOffer;
        let events = shown(channel.take(&quote(b"STOR ", indicator, &[])));
        assert_eq!(events[2..], [(SIP, Side::Bid, 29_450_000_000, 100), (SIP, Side::Ask, 0, 0)]);
    }

    #[test]
    fn a_suffix_is_spelled_as_at_the_other_venues() {
        let mut channel = Channel::new();
        let none = NationalBboIndicator::NotIncluded;
        for (symbol, spelled) in
            [(b"ABCpA", "ABC-A"), (b"BRK.B", "BRK.B"), (b"STOR ", "STOR"), (b"ABCpA", "ABC-A")]
        {
            let events = channel.take(&quote(symbol, none, &[]));
            let known = channel.symbols.instruments().symbol(events[0].instrument).unwrap();
            assert_eq!(known.as_str(), spelled);
        }
        assert_eq!(channel.symbols.instruments().len(), 3);
    }

    #[test]
    fn price_bands_are_no_quote() {
        let mut channel = Channel::new();
        let (mut message, mut random) = (Vec::new(), SplitMix64::new(1));
        let structure = SCHEMA.structure("LongQuote").unwrap();
        arbitrary(&SCHEMA, structure, &mut random, &mut message);
        message[26..37].copy_from_slice(b"STOR       ");
        message[85] = b' ';
        (message[4], message[39], message[71], message[80], message[86]) = (b'S', b'0', b' ', b' ', b'G');
        let events = channel.take(&message);
        assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::PriceBands]);
        assert_eq!(events[0].publisher, SIP);
        (message[4], message[39], message[86]) = (b'N', b'M', b' ');
        let events = channel.take(&message);
        let kinds: Vec<_> = events.iter().map(|event| (event.kind, event.publisher)).collect();
        let own = (EventKind::Quote, Publisher::SIP_XNYS);
        assert_eq!(kinds, [(EventKind::Status, SIP), own, own]);
    }

    /// Returns a long quote of FINRA or of a participant, with these bytes at these places.
    fn long_quote(changes: &[(usize, u8)]) -> Vec<u8> {
        let (mut message, mut random) = (Vec::new(), SplitMix64::new(1));
        let structure = SCHEMA.structure("LongQuote").unwrap();
        arbitrary(&SCHEMA, structure, &mut random, &mut message);
        message[5..13].fill(0);
        message[26..37].copy_from_slice(b"STOR       ");
        message[40..48].copy_from_slice(&29_450_000_u64.to_be_bytes());
        message[48..52].copy_from_slice(&1_u32.to_be_bytes());
        message[52..60].copy_from_slice(&29_470_000_u64.to_be_bytes());
        message[60..64].copy_from_slice(&2_u32.to_be_bytes());
        for place in [38, 39, 71, 80, 84, 85, 86] {
            message[place] = b' ';
        }
        changes.iter().for_each(|(place, letter)| message[*place] = *letter);
        message
    }

    #[test]
    fn bands_standings_and_conditions_are_read() {
        let mut channel = Channel::new();
        let events = channel.take(&long_quote(&[(4, b'N'), (39, b'9'), (84, b'B'), (85, b'E')]));
        let bands = events[0].price_bands().unwrap();
        let cents = [bands.lower, bands.upper].map(|price| price.unwrap().e9() / 10_000_000);
        assert_eq!((events.len(), cents, bands.indicator), (1, [2_945, 2_947], b'B'));
        let of_no_finra = channel.take(&long_quote(&[(4, b'N'), (39, b'9'), (71, b'B'), (84, b'B')]));
        assert_eq!(of_no_finra[0].price_bands(), Some(bands), "FINRA's best is another matter");
        let mut counts = |changes: &[(usize, u8)]| {
            let events = channel.take(&long_quote(&[&[(4, b'N')], changes].concat()));
            let of_quotes = events.iter().filter(|event| event.kind == EventKind::Quote);
            let counts: Vec<_> = of_quotes.map(|event| event.detail & Event::NOT_ELIGIBLE == 0).collect();
            (counts, events.iter().find_map(Event::standing))
        };
        assert_eq!(counts(&[(85, b'C')]), (vec![true, true], Some(Standing::ASK_ABOVE)));
        assert_eq!(counts(&[(85, b'C'), (38, b'N')]), (vec![false, false], None));
        assert_eq!(counts(&[(84, b'A')]), (vec![false, true], Some(Standing::default())));
    }

    #[test]
    fn a_market_maker_of_finra_moves_the_best_of_finra_only_where_the_quote_says_so() {
        let mut channel = Channel::new();
        let sides = |events: Vec<Event>| {
            events.iter().map(|event| (event.kind, event.publisher, event.size)).collect::<Vec<_>>()
        };
        let adf = Publisher::SIP_XADF;
        let own = [(EventKind::Quote, adf, 100), (EventKind::Quote, adf, 200)];
        assert_eq!(sides(channel.take(&long_quote(&[(4, b'D')]))), own);
        let unchanged = sides(channel.take(&long_quote(&[(4, b'D'), (71, b'A')])));
        assert_eq!(unchanged, [(EventKind::Other, SIP, 0)]);
        let none = channel.take(&long_quote(&[(4, b'D'), (71, b'B')]));
        assert!(none.iter().all(|event| event.price.is_none()));
        assert_eq!(sides(none), [(EventKind::Quote, adf, 0), (EventKind::Quote, adf, 0)]);
    }

    #[test]
    fn a_halt_that_is_not_regulatory_is_of_the_participant_alone() {
        let mut channel = Channel::new();
        let statuses = |events: Vec<Event>| {
            let of = |event: &Event| Some((event.publisher, event.status()?.action, event.status()?.reason));
            events.iter().filter_map(of).collect::<Vec<_>>()
        };
        let edgx = Publisher::SIP_EDGX;
        let mut said = |participant, security, listing| {
            statuses(channel.take(&long_quote(&[(4, participant), (39, security), (81, listing)])))
        };
        for (letter, reason) in [(b'I', 40), (b'X', 60), (b'Y', 0), (b'Z', 0)] {
            assert_eq!(said(b'K', letter, b'N'), [(edgx, StatusAction::Halt, reason)]);
        }
        for (letter, reason) in [(b'D', 31), (b'P', 30), (b'1', 120), (b'2', 121), (b'3', 122)] {
            assert_eq!(said(b'K', letter, b'N'), [(SIP, StatusAction::Halt, reason)]);
        }
        assert_eq!(said(b'K', b'M', b'N'), [(SIP, StatusAction::Pause, 50)]);
        assert_eq!(said(b'K', b'T', b'N'), [(edgx, StatusAction::Trading, 0)]);
        let resumed = [(SIP, StatusAction::Trading, 0), (Publisher::SIP_XNYS, StatusAction::Trading, 0)];
        assert_eq!(said(b'N', b'T', b'N'), resumed);
        assert_eq!(said(b'N', b' ', b'N'), []);
    }

    #[test]
    fn a_short_sale_restriction_is_a_status_when_it_changes() {
        let mut channel = Channel::new();
        let mut said = |letter| {
            let events = channel.take(&long_quote(&[(4, b'N'), (80, letter)]));
            let restricted =
                |event: &Event| event.status().and_then(|status| status.is_short_sell_restricted);
            events.iter().filter_map(restricted).collect::<Vec<_>>()
        };
        let said: Vec<_> = b" AEC?D E ".iter().map(|letter| said(*letter)).collect();
        let (no, yes) = (vec![false], vec![true]);
        let nothing = Vec::new;
        assert_eq!(
            said,
            [nothing(), yes.clone(), nothing(), nothing(), nothing(), no.clone(), nothing(), yes, no]
        );
    }

    #[test]
    fn every_message_gives_events() {
        let mut random = SplitMix64::new(2);
        for structure in SCHEMA.messages {
            for _ in 0..20 {
                let (mut channel, mut message) = (Channel::new(), Vec::new());
                arbitrary(&SCHEMA, structure, &mut random, &mut message);
                let indicator = match structure.name {
                    "ShortQuote" => Some(40),
                    "LongQuote" => Some(86),
                    "SpecialLongQuote" => Some(119),
                    _ => None,
                };
                indicator.into_iter().for_each(|place| message[place] = b'G');
                assert!(!channel.take(&message).is_empty(), "{}", structure.name);
            }
        }
    }
}
