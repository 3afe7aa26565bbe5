//! UTP's UQDF 1.5 to normalised events.
//!
//! Every message names its instrument by symbol and its participant by a letter. A quote becomes two events of the participant's
//! publisher and, if it affects the national best bid and offer, events of the SIP's: [`Quotes`]. The participant's quote has the
//! participant's time, everything else the SIP's.
//!
//! Sizes are in round lots, whose number of shares the symbol directory states; from November 2025 on they are in shares.
//!
//! The start of the day empties the books of the channel's instruments. A wipe-out empties those of its market centre, or all
//! books if it names none.
//!
//! Cost: the message's own cache lines, one lookup of the symbol, and up to four events.

use tapeworks_market::event::{Definition, Session, Status, StatusAction};
use tapeworks_market::luld::PriceBands;
use tapeworks_market::quote_conditions::Sip;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher, Symbol};
use tapeworks_session::MoldUdp64;
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::national::of_cents;
use tapeworks_wire::utp::uqdf15::{
    Authenticity, MarketCenter, Message, RegShoAction, SubMarketCenter, TradingActionCode,
};
use tapeworks_wire::{DecodeError, NanosecondsSinceEpoch};

use crate::locates::Contradiction;
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{Normaliser, Start, Target, reason};
use crate::probe::packet_fits;
use crate::sip::{self, OF_UTP, Quote, Quotes, USUAL_LOT};
use crate::symbols::UNWANTED;

/// A message names its symbol in Nasdaq's spelling.
pub(crate) const NAMING: Naming = Naming {
    symbol: "symbol",
    suffix: None,
    suffixes: Suffixes::AsTheyStand,
    number: None,
    zero_is_none: false,
    directory: Some("IssueSymbolDirectory"),
    issue_name: Some("issue_name"),
};

/// The SIP's own publisher.
const SIP: Publisher = Publisher::SIP_UTP;

/// Checks that a message can be read.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    Message::decode(message).map(drop)
}

/// Returns whether a message begins the day.
pub(crate) fn restarts(message: &[u8]) -> bool {
    matches!(Message::decode(message), Ok(Message::StartOfDay(_)))
}

/// Returns the SIP's time of a message, in nanoseconds since 1970.
pub(crate) fn time(message: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*message.get(5..)?.first_chunk::<8>()?))
}

/// Returns whether a UDP payload is a MoldUDP64 packet with UQDF messages, or a complete one without messages, which may also be
/// ITCH's.
pub(crate) fn recognise(payload: &[u8]) -> bool {
    let session = payload.get(..10).unwrap_or_default();
    session.iter().any(u8::is_ascii_graphic) && packet_fits::<MoldUdp64>(payload, check)
}

/// Translates the messages of one UQDF channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct UqdfNormaliser {
    quotes: Quotes,
    /// Shares in a round lot, by instrument; 0 if the directory has not stated them.
    lots: Vec<u16>,
    sizes: SipSizes,
}

impl Normaliser for UqdfNormaliser {
    fn new(start: &Start) -> Self {
        Self { quotes: Quotes::default(), lots: Vec::new(), sizes: start.sip_sizes }
    }

    #[inline]
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        match Message::decode(message)? {
            Message::QuoteShortForm(m) => {
                let instrument = resolve_short(m.symbol().0, to);
                let quote = Quote {
                    participant: participant(m.market_center_originator_id(), m.sub_market_center_id()),
                    time: time_of(m.participant_timestamp(), m.sip_timestamp()),
                    national_time: nanos(m.sip_timestamp()),
                    sides: [
                        (of_cents(m.bid_price_short()), u32::from(m.bid_size_short())),
                        (of_cents(m.ask_price_short()), u32::from(m.ask_size_short())),
                    ],
                    eligible: sip::eligible(
                        Sip::Utp,
                        m.quote_condition().raw(),
                        m.luld_bbo_indicator().raw(),
                    ),
                    national: m.national()?,
                    lot: sip::shares_each(self.sizes, nanos(m.sip_timestamp()), self.lot(instrument)),
                    standing: Some(m.luld_national_bbo_indicator().raw()),
                    bands: None,
                };
                self.put(instrument, &quote, to);
            }
            Message::QuoteLongForm(m) => {
                let instrument = resolve(m.symbol().0, to);
                let quote = Quote {
                    participant: participant(m.market_center_originator_id(), m.sub_market_center_id()),
                    time: time_of(m.participant_timestamp(), m.sip_timestamp()),
                    national_time: nanos(m.sip_timestamp()),
                    sides: [(m.bid_price(), m.bid_size()), (m.ask_price(), m.ask_size())],
                    eligible: sip::eligible(
                        Sip::Utp,
                        m.quote_condition().raw(),
                        m.luld_bbo_indicator().raw(),
                    ),
                    national: m.national()?,
                    lot: sip::shares_each(self.sizes, nanos(m.sip_timestamp()), self.lot(instrument)),
                    standing: Some(m.luld_national_bbo_indicator().raw()),
                    bands: None,
                };
                self.put(instrument, &quote, to);
            }
            other => self.no_quote(other, to),
        }
        Ok(None)
    }

    fn time_of(&self, message: &[u8]) -> Nanos {
        Nanos(time(message).unwrap_or_default())
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.quotes.is_sound(symbols) && self.lots.len() <= symbols.instruments().len()
    }
}

#[inline]
const fn nanos(time: NanosecondsSinceEpoch) -> Nanos {
    Nanos(time.nanoseconds())
}

/// Returns the participant's time, or the SIP's if there is none.
#[inline]
const fn time_of(participant: NanosecondsSinceEpoch, sip: NanosecondsSinceEpoch) -> Nanos {
    if participant.nanoseconds() == 0 { nanos(sip) } else { nanos(participant) }
}

/// Returns the publisher of a market centre. FINRA has several facilities.
#[inline]
fn participant(center: MarketCenter, sub: SubMarketCenter) -> Option<Publisher> {
    match (center, sub) {
        (MarketCenter::Finra, SubMarketCenter::NyseTrf) => Some(Publisher::SIP_FINY),
        (MarketCenter::Finra, SubMarketCenter::NasdaqTrfCarteret) => Some(Publisher::SIP_FINN),
        (MarketCenter::Finra, SubMarketCenter::NasdaqTrfChicago) => Some(Publisher::SIP_FINC),
        _ => sip::participant(center.raw()),
    }
}

/// Returns the instrument of a symbol of five letters.
#[inline]
fn resolve_short<S: Sink<Event>>([a, b, c, d, e]: [u8; 5], to: &mut Target<'_, S>) -> InstrumentId {
    let sink = &mut *to.sink;
    to.symbols.resolve([a, b, c, d, e, b' ', b' ', b' '], SIP, |mapping| sink.put(mapping))
}

/// Returns the instrument of a symbol of eleven letters.
#[inline]
fn resolve<S: Sink<Event>>(symbol: [u8; 11], to: &mut Target<'_, S>) -> InstrumentId {
    let sink = &mut *to.sink;
    match symbol {
        [a, b, c, d, e, f, g, h, b' ', b' ', b' '] => {
            to.symbols.resolve([a, b, c, d, e, f, g, h], SIP, |mapping| sink.put(mapping))
        }
        _ => to.symbols.resolve_symbol(Symbol::from_bytes(&symbol).ok(), SIP, |mapping| sink.put(mapping)),
    }
}

impl UqdfNormaliser {
    #[inline]
    fn lot(&self, instrument: InstrumentId) -> u32 {
        match self.lots.get(instrument.index()) {
            None | Some(0) => USUAL_LOT,
            Some(lot) => u32::from(*lot),
        }
    }

    #[inline]
    fn put<S: Sink<Event>>(&mut self, instrument: InstrumentId, quote: &Quote, to: &mut Target<'_, S>) {
        if instrument != UNWANTED {
            self.quotes.put((&OF_UTP, Sip::Utp), instrument, quote, to.context, to.sink);
        }
    }

    /// Translates a message that is not one of the two quotes.
    #[cold]
    #[inline(never)]
    fn no_quote<S: Sink<Event>>(&mut self, message: Message<'_>, to: &mut Target<'_, S>) {
        let context = to.context;
        let other = |instrument, time: NanosecondsSinceEpoch| {
            context.event(EventKind::Other, SIP, instrument, nanos(time))
        };
        let of_market = |time| other(InstrumentId::ALL, time);
        match message {
            Message::StartOfDay(m) => {
                self.quotes.begin_day(&OF_UTP, nanos(m.sip_timestamp()), to);
                to.sink.put(of_market(m.sip_timestamp()).with_session(Session::StartOfSystemHours));
            }
            Message::QuoteWipeOut(m) => {
                let center = m.market_center_originator_id();
                let only = participant(center, m.sub_market_center_id());
                let is_known = only.is_some() || center == MarketCenter::MarketIndependent;
                let time = nanos(m.sip_timestamp());
                if !is_known || !self.quotes.clear(&OF_UTP, only, time, to) {
                    to.sink.put(other(InstrumentId::UNKNOWN, m.sip_timestamp()));
                }
            }
            Message::MarketSessionOpen(m) => {
                to.sink.put(of_market(m.sip_timestamp()).with_session(Session::StartOfMarketHours));
            }
            Message::MarketSessionClose(m) => {
                to.sink.put(of_market(m.sip_timestamp()).with_session(Session::EndOfMarketHours));
            }
            Message::EndOfDay(m) => {
                to.sink.put(of_market(m.sip_timestamp()).with_session(Session::EndOfSystemHours));
            }
            Message::EndOfTransmissions(m) => {
                to.sink.put(of_market(m.sip_timestamp()).with_session(Session::EndOfMessages));
            }
            Message::IssueSymbolDirectory(m) => {
                let instrument = resolve(m.symbol().0, to);
                if instrument < UNWANTED {
                    self.note_lot(instrument, m.round_lot_size());
                }
                let definition = Definition {
                    round_lot: u32::from(m.round_lot_size()),
                    reference_price: None,
                    tick: None,
                    class: m.issue_type().raw(),
                    listing: b'Q',
                    is_test: m.authenticity() == Authenticity::Test,
                    is_etp: false,
                };
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| {
                    event.with_definition(definition)
                });
            }
            Message::CrossSroTradingAction(m) => {
                let instrument = resolve(m.symbol().0, to);
                let why = m.trading_action_reason();
                let status = trading(m.trading_action_code(), reason(why.trimmed()));
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| event.with_status(status));
            }
            Message::MarketCenterTradingAction(m) => {
                let instrument = resolve(m.symbol().0, to);
                let status = trading(m.trading_action_code(), 0);
                let center = sip::participant(m.market_center_identifier().raw());
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| match center {
                    Some(publisher) => Event { publisher, ..event }.with_status(status),
                    None => event,
                });
            }
            Message::RegShoShortSalePriceTestRestriction(m) => {
                let instrument = resolve(m.symbol().0, to);
                let status = Status {
                    action: StatusAction::ShortSaleRestrictionChange,
                    reason: 0,
                    is_trading: None,
                    is_quoting: None,
                    is_short_sell_restricted: match m.reg_sho_action() {
                        RegShoAction::NoPriceTestInEffect => Some(false),
                        RegShoAction::RegShoInEffectDueToAnIntraDayPriceDrop
                        | RegShoAction::RegShoRestrictionRemainsInEffect => Some(true),
                        RegShoAction::Unknown(_) => None,
                    },
                };
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| event.with_status(status));
            }
            Message::SessionCloseRecap(m) => {
                let instrument = resolve(m.symbol().0, to);
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| event);
            }
            Message::AuctionCollar(m) => {
                let instrument = resolve(m.symbol().0, to);
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| event);
            }
            Message::LimitUpLimitDownPriceBand(m) => {
                let instrument = resolve(m.symbol().0, to);
                let bands = PriceBands {
                    lower: sip::price(m.limit_down_price()),
                    upper: sip::price(m.limit_up_price()),
                    indicator: m.luld_price_band_indicator().raw(),
                    effective: nanos(m.luld_timestamp()),
                };
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| {
                    event.with_price_bands(bands)
                });
            }
            // One of several quotes of a facility, which sends its best ones in a quote message.
            Message::FinraAdfMarketParticipantQuotation(m) => {
                let instrument = resolve(m.symbol().0, to);
                put(instrument, other(instrument, m.sip_timestamp()), to, |event| event);
            }
            Message::MarketWideCircuitBreakerStatus(m) => to.sink.put(of_market(m.sip_timestamp())),
            Message::MarketWideCircuitBreakerDeclineLevel(m) => to.sink.put(of_market(m.sip_timestamp())),
            Message::GeneralAdministrative(m) => to.sink.put(of_market(m.sip_timestamp())),
            // The caller has already translated them.
            Message::QuoteShortForm(_) | Message::QuoteLongForm(_) => {}
        }
    }

    fn note_lot(&mut self, instrument: InstrumentId, lot: u16) {
        if self.lots.len() <= instrument.index() {
            self.lots.resize(instrument.index() + 1, 0);
        }
        self.lots[instrument.index()] = lot;
    }
}

/// Emits the event of a message about one instrument, completed by `complete`. An unreadable symbol has no book.
fn put<S: Sink<Event>>(
    instrument: InstrumentId,
    event: Event,
    to: &mut Target<'_, S>,
    complete: impl FnOnce(Event) -> Event,
) {
    if instrument != UNWANTED {
        to.sink.put(if instrument < UNWANTED { complete(event) } else { event });
    }
}

/// Returns the status of a trading action.
const fn trading(code: TradingActionCode, reason: u16) -> Status {
    let (action, is_trading, is_quoting) = match code {
        TradingActionCode::TradingHalt => (StatusAction::Halt, Some(false), Some(false)),
        TradingActionCode::VolatilityTradingPause => (StatusAction::Pause, Some(false), Some(false)),
        TradingActionCode::QuotationResumptionIncludingAfterEma => {
            (StatusAction::Quoting, Some(false), Some(true))
        }
        TradingActionCode::TradingResumption => (StatusAction::Trading, Some(true), Some(true)),
        TradingActionCode::Unknown(_) => (StatusAction::None, None, None),
    };
    Status { action, reason, is_trading, is_quoting, is_short_sell_restricted: None }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::luld::Standing;
    use tapeworks_market::{Flags, Side};
    use tapeworks_wire::schema::{SplitMix64, arbitrary};
    use tapeworks_wire::utp::uqdf15::{
        IssueSymbolDirectory, LuldBboIndicator, LuldNationalBboIndicator, NbboAppendageIndicator,
        QuoteCondition, QuoteShortFormFields, QuoteWipeOutFields, RetailInterestIndicator, SCHEMA,
        SipGeneratedUpdate, StartOfDayFields, VERSION,
    };
    use tapeworks_wire::{Ascii, Decimal};

    use super::*;

    const SUB: SubMarketCenter = SubMarketCenter::FinraAlternativeDisplayFacility;

    type Channel = crate::sip::testing::Channel<UqdfNormaliser>;

    fn quote(
        center: MarketCenter,
        sizes: [u16; 2],
        nbbo: NbboAppendageIndicator,
        appendages: &[u8],
    ) -> Vec<u8> {
        let fields = QuoteShortFormFields {
            version: VERSION,
            market_center_originator_id: center,
            sub_market_center_id: SUB,
            sip_timestamp: NanosecondsSinceEpoch(50),
            participant_timestamp: NanosecondsSinceEpoch(40),
            participant_token: 0,
            symbol: Ascii(*b"AKAM "),
            bid_price_short: Decimal(5_123),
            bid_size_short: sizes[0],
            ask_price_short: Decimal(5_124),
            ask_size_short: sizes[1],
            quote_condition: QuoteCondition::RegularTwoSidedOpenQuoteAutomated,
            sip_generated_update: SipGeneratedUpdate::OriginatedFromTheMarketParticipant,
            luld_bbo_indicator: LuldBboIndicator::NotApplicable,
            retail_interest_indicator: RetailInterestIndicator::NotApplicable,
            nbbo_appendage_indicator: nbbo,
            luld_national_bbo_indicator: LuldNationalBboIndicator::NotApplicable,
            appendages,
        };
        let mut bytes = vec![0; 48 + appendages.len()];
        fields.encode_into(&mut bytes).unwrap();
        bytes
    }

    /// Returns publisher, side, price in cents and shares of a quote.
    fn shown(event: &Event) -> (Publisher, Side, Option<i64>, u32) {
        assert_eq!(event.kind, EventKind::Quote, "{event:?}");
        (event.publisher, event.side, event.price.map(|price| price.e9() / 10_000_000), event.size)
    }

    #[test]
    fn a_quote_is_of_its_participant_and_the_national_best_of_the_sip() {
        use NbboAppendageIndicator as Indicator;
        let mut channel = Channel::new();
        let own = |bid, ask| {
            [
                (Publisher::SIP_EDGX, Side::Bid, Some(5_123), bid),
                (Publisher::SIP_EDGX, Side::Ask, Some(5_124), ask),
            ]
        };
        let events = channel.take(&quote(MarketCenter::Edgx, [1, 2], Indicator::NoNationalBboChange, &[]));
        assert_eq!(events.iter().map(shown).collect::<Vec<_>>(), own(100, 200));
        assert_eq!(events[0].flags(), Flags::TOP_OF_BOOK);
        assert_eq!(events[1].flags(), Flags::TOP_OF_BOOK.with(Flags::LAST));
        assert_eq!(
            (events[0].ts_event, events[0].ts_recv, events[0].channel_sequence),
            (Nanos(40), Nanos(99), 7)
        );
        let appendage = [b'R', b'Z', 0x14, 0x03, 0, 9, b'K', 0, 0, 0, 0];
        let message = quote(MarketCenter::Edgx, [1, 0], Indicator::ShortFormNationalBboAppendage, &appendage);
        let events = channel.take(&message);
        let national = [(SIP, Side::Bid, Some(5_123), 900), (SIP, Side::Ask, None, 0)];
        assert_eq!(events[2..].iter().map(shown).collect::<Vec<_>>(), national);
        assert_eq!(events[2].aux, u64::from(Publisher::SIP_BATS.0));
        assert_eq!(
            (events[2].ts_event, events[3].flags()),
            (Nanos(50), Flags::TOP_OF_BOOK.with(Flags::LAST))
        );
        let all = quote(MarketCenter::Nasdaq, [3, 4], Indicator::QuoteContainsAllNationalBboInformation, &[]);
        let events = channel.take(&all);
        let national = [(SIP, Side::Bid, Some(5_123), 300), (SIP, Side::Ask, Some(5_124), 400)];
        assert_eq!(events[2..].iter().map(shown).collect::<Vec<_>>(), national);
        // A market centre without a publisher.
        let events =
            channel.take(&quote(MarketCenter::Cboe, [3, 4], Indicator::NoNationalBboCanBeCalculated, &[]));
        assert_eq!((events[0].kind, events[0].publisher, events.len()), (EventKind::Other, SIP, 3));
        assert_eq!(shown(&events[1]), (SIP, Side::Bid, None, 0));
    }

    #[test]
    fn the_directory_says_how_many_shares_a_lot_has() {
        let mut channel = Channel::new();
        let (mut message, mut random) = (Vec::new(), SplitMix64::new(1));
        arbitrary(&SCHEMA, &IssueSymbolDirectory::SCHEMA, &mut random, &mut message);
        message[29..40].copy_from_slice(b"AKAM       ");
        message[87..89].copy_from_slice(&40_u16.to_be_bytes());
        let events = channel.take(&message);
        assert_eq!((events[0].kind, events[0].publisher), (EventKind::Definition, SIP));
        let events = channel.take(&quote(
            MarketCenter::Edgx,
            [1, 2],
            NbboAppendageIndicator::NoNationalBboChange,
            &[],
        ));
        assert_eq!((events[0].size, events[1].size), (40, 80));
    }

    /// Returns a quote with these bytes at these places.
    fn changed(changes: &[(usize, u8)], nbbo: NbboAppendageIndicator, appendages: &[u8]) -> Vec<u8> {
        let mut message = quote(MarketCenter::Edgx, [1, 2], nbbo, appendages);
        changes.iter().for_each(|(place, letter)| message[*place] = *letter);
        message
    }

    const CONDITION: usize = 42;
    const BEYOND_BANDS: usize = 44;
    const STANDING: usize = 47;

    fn wipe_out(center: MarketCenter) -> Vec<u8> {
        let fields = QuoteWipeOutFields {
            version: VERSION,
            market_center_originator_id: center,
            sub_market_center_id: SUB,
            sip_timestamp: NanosecondsSinceEpoch(60),
            participant_timestamp: NanosecondsSinceEpoch(0),
            participant_token: 0,
        };
        fields.encode().to_vec()
    }

    fn start_of_day() -> Vec<u8> {
        let fields = StartOfDayFields {
            version: VERSION,
            market_center_originator_id: MarketCenter::MarketIndependent,
            sub_market_center_id: SUB,
            sip_timestamp: NanosecondsSinceEpoch(60),
            participant_timestamp: NanosecondsSinceEpoch(0),
            participant_token: 0,
        };
        fields.encode().to_vec()
    }

    #[test]
    fn a_quote_that_counts_in_no_national_best_is_marked() {
        let mut channel = Channel::new();
        let mut counts = |changes: &[(usize, u8)]| {
            let events = channel.take(&changed(changes, NbboAppendageIndicator::NoNationalBboChange, &[]));
            assert!(events.iter().all(|event| event.price.is_some()), "the book has it all the same");
            events.iter().map(|event| event.detail & Event::NOT_ELIGIBLE == 0).collect::<Vec<_>>()
        };
        assert_eq!(counts(&[]), [true, true]);
        assert_eq!(counts(&[(CONDITION, b'L')]), [false, false]);
        assert_eq!(counts(&[(CONDITION, b'A')]), [true, true]);
        assert_eq!(counts(&[(BEYOND_BANDS, b'A')]), [false, true]);
        assert_eq!(counts(&[(BEYOND_BANDS, b'B')]), [true, false]);
        assert_eq!(counts(&[(BEYOND_BANDS, b'C')]), [false, false]);
    }

    #[test]
    fn a_closed_national_best_is_none() {
        let mut channel = Channel::new();
        let mut national = |condition| {
            let appendage = [condition, b'Z', 0x14, 0x03, 0, 9, b'K', 0x14, 0x04, 0, 9];
            let indicator = NbboAppendageIndicator::ShortFormNationalBboAppendage;
            let events = channel.take(&changed(&[], indicator, &appendage));
            events[2..].iter().map(|event| event.price.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(national(b'R'), [true, true]);
        assert_eq!(national(b'L'), [false, false]);
    }

    #[test]
    fn a_quote_that_does_not_count_is_no_national_best() {
        let mut channel = Channel::new();
        let mut national = |changes: &[(usize, u8)]| {
            let all = NbboAppendageIndicator::QuoteContainsAllNationalBboInformation;
            let events = channel.take(&changed(changes, all, &[]));
            assert!(events[..2].iter().all(|event| event.price.is_some()), "the book has it all the same");
            events[2..].iter().map(|event| (shown(event), event.aux)).collect::<Vec<_>>()
        };
        let edgx = u64::from(Publisher::SIP_EDGX.0);
        let bid = ((SIP, Side::Bid, Some(5_123), 100), edgx);
        let ask = ((SIP, Side::Ask, Some(5_124), 200), edgx);
        let [no_bid, no_ask] = [Side::Bid, Side::Ask].map(|side| ((SIP, side, None, 0), 0));
        assert_eq!(national(&[]), [bid, ask]);
        assert_eq!(national(&[(CONDITION, b'L')]), [no_bid, no_ask]);
        assert_eq!(national(&[(BEYOND_BANDS, b'A')]), [no_bid, ask]);
        assert_eq!(national(&[(BEYOND_BANDS, b'B')]), [bid, no_ask]);
        assert_eq!(national(&[(BEYOND_BANDS, b'C')]), [no_bid, no_ask]);
    }

    #[test]
    fn the_standing_of_the_national_best_is_an_event_when_it_changes() {
        let mut channel = Channel::new();
        let mut standing = |letter| {
            let none = NbboAppendageIndicator::NoNationalBboChange;
            let events = channel.take(&changed(&[(STANDING, letter)], none, &[]));
            assert!(events.iter().all(|event| event.kind == EventKind::Quote || event.publisher == SIP));
            events.iter().find_map(Event::standing)
        };
        assert_eq!(standing(b'A'), None);
        assert_eq!(standing(b'E'), Some(Standing::BID_AT_UPPER));
        assert_eq!([standing(b'E'), standing(b'?')], [None; 2]);
        assert_eq!(standing(b' '), Some(Standing::default()));
    }

    #[test]
    fn a_standing_outlives_a_wipe_out_and_ends_with_the_day() {
        let mut channel = Channel::new();
        let standing = |channel: &mut Channel, letter| {
            let none = NbboAppendageIndicator::NoNationalBboChange;
            channel.take(&changed(&[(STANDING, letter)], none, &[])).iter().find_map(Event::standing)
        };
        assert_eq!(standing(&mut channel, b'E'), Some(Standing::BID_AT_UPPER));
        channel.take(&wipe_out(MarketCenter::MarketIndependent));
        assert_eq!(standing(&mut channel, b'A'), Some(Standing::default()), "the limit state is over");
        assert_eq!(standing(&mut channel, b'E'), Some(Standing::BID_AT_UPPER));
        channel.take(&start_of_day());
        assert_eq!(standing(&mut channel, b'A'), None, "the NBBO has forgotten it");
        assert_eq!(standing(&mut channel, b'E'), Some(Standing::BID_AT_UPPER));
    }

    #[test]
    fn sizes_are_shares_from_the_day_of_the_rule_on_or_as_the_user_says() {
        let sizes_of = |sizes, is_late: bool| {
            let mut channel = Channel::with_sizes(sizes);
            let indicator = NbboAppendageIndicator::QuoteContainsAllNationalBboInformation;
            let mut message = quote(MarketCenter::Edgx, [40, 80], indicator, &[]);
            if is_late {
                message[5..13].copy_from_slice(&1_762_182_000_000_000_000_u64.to_be_bytes());
            }
            channel.take(&message).iter().map(|event| event.size).collect::<Vec<_>>()
        };
        assert_eq!(sizes_of(SipSizes::ByDate, false), [4_000, 8_000, 4_000, 8_000]);
        assert_eq!(sizes_of(SipSizes::ByDate, true), [40, 80, 40, 80]);
        assert_eq!(sizes_of(SipSizes::Lots, true), [4_000, 8_000, 4_000, 8_000]);
        assert_eq!(sizes_of(SipSizes::Shares, false), [40, 80, 40, 80]);
    }

    #[test]
    fn a_wipe_out_empties_the_books_of_its_market_center() {
        let mut channel = Channel::new();
        let all = NbboAppendageIndicator::QuoteContainsAllNationalBboInformation;
        for center in [MarketCenter::Edgx, MarketCenter::Nasdaq] {
            channel.take(&quote(center, [1, 1], all, &[]));
        }
        let kinds =
            |events: Vec<Event>| events.iter().map(|event| (event.kind, event.publisher)).collect::<Vec<_>>();
        let cleared = kinds(channel.take(&wipe_out(MarketCenter::Edgx)));
        assert_eq!(cleared, [(EventKind::Clear, Publisher::SIP_EDGX)]);
        assert_eq!(kinds(channel.take(&wipe_out(MarketCenter::Edgx))), [(EventKind::Other, SIP)]);
        let cleared = kinds(channel.take(&wipe_out(MarketCenter::MarketIndependent)));
        assert_eq!(cleared, [(EventKind::Clear, SIP), (EventKind::Clear, Publisher::SIP_XNAS)]);
    }

    #[test]
    fn a_day_begins_with_empty_books_and_says_so() {
        let mut channel = Channel::new();
        let begun = |events: Vec<Event>| events.iter().map(Event::session).collect::<Vec<_>>();
        assert_eq!(begun(channel.take(&start_of_day())), [Some(Session::StartOfSystemHours)]);
        channel.take(&quote(MarketCenter::Edgx, [1, 1], NbboAppendageIndicator::NoNationalBboChange, &[]));
        assert_eq!(begun(channel.take(&start_of_day())), [None, Some(Session::StartOfSystemHours)]);
    }

    #[test]
    fn every_message_gives_events() {
        let mut random = SplitMix64::new(2);
        for structure in SCHEMA.messages {
            for _ in 0..20 {
                let (mut channel, mut message) = (Channel::new(), Vec::new());
                arbitrary(&SCHEMA, structure, &mut random, &mut message);
                if structure.name == "QuoteShortForm" {
                    message[46] = b'0';
                }
                if structure.name == "QuoteLongForm" {
                    message[76] = b'0';
                }
                assert!(!channel.take(&message).is_empty(), "{}", structure.name);
            }
        }
    }

    #[test]
    fn a_message_of_itch_is_none_of_uqdf_and_the_other_way() {
        let mut random = SplitMix64::new(3);
        for structure in SCHEMA.messages {
            let mut message = Vec::new();
            arbitrary(&SCHEMA, structure, &mut random, &mut message);
            assert!(check(&message).is_ok() && crate::itch::check(&message).is_err(), "{}", structure.name);
        }
        let itch = &tapeworks_wire::nasdaq::itch50::SCHEMA;
        for structure in itch.messages {
            let mut message = Vec::new();
            arbitrary(itch, structure, &mut random, &mut message);
            assert!(check(&message).is_err() && crate::itch::check(&message).is_ok(), "{}", structure.name);
        }
    }
}
