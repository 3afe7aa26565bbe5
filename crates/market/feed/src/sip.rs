//! Shared parts of the normalisers of both securities information processors (SIPs): publishers, and the events of a quote.
//!
//! A participant's quote has the publisher of that participant at a SIP; the national best bid and offer have the SIP's own. None
//! of these contributes to a synthetic NBBO. A message of a participant without a publisher becomes an event without meaning.
//!
//! Sizes count round lots, events shares. A lot has 100 shares unless the SIP states otherwise. From November 2025 on sizes count
//! shares ([`SipSizes`]).
//!
//! A side of a participant's quote that is not eligible for the national best is marked ([`Event::NOT_ELIGIBLE`]). If the
//! national best is such a side, or has such a condition, there is none: at the close the SIP shows the last best. Price bands,
//! and changes in how the national best stands to them, are events of the SIP.

use tapeworks_market::luld::{PriceBands, Standing};
use tapeworks_market::quote_conditions::{self, Sip};
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Price, Publisher, Side};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::Decimal;
use tapeworks_wire::national::NationalSide;

use crate::normaliser::{Context, Target};
use crate::publisher::PublisherSpec;
use crate::symbols::UNWANTED;

/// Shares in a lot if the SIP does not state the number.
pub(crate) const USUAL_LOT: u32 = 100;

/// Creates a publisher of a SIP's channels.
const fn one(publisher: Publisher, names: &'static [&'static str]) -> PublisherSpec {
    PublisherSpec { publisher, names, groups: &[] }
}

/// Returns the publishers of a SIP's channels, starting with the SIP itself.
const fn publishers(sip: PublisherSpec) -> [PublisherSpec; 22] {
    [
        sip,
        one(Publisher::SIP_XASE, &["sip-xase"]),
        one(Publisher::SIP_XBOS, &["sip-xbos"]),
        one(Publisher::SIP_XCIS, &["sip-xcis"]),
        one(Publisher::SIP_EPRL, &["sip-eprl"]),
        one(Publisher::SIP_XISX, &["sip-xisx"]),
        one(Publisher::SIP_EDGA, &["sip-edga"]),
        one(Publisher::SIP_EDGX, &["sip-edgx"]),
        one(Publisher::SIP_LTSE, &["sip-ltse"]),
        one(Publisher::SIP_XCHI, &["sip-xchi"]),
        one(Publisher::SIP_XNYS, &["sip-xnys"]),
        one(Publisher::SIP_ARCX, &["sip-arcx"]),
        one(Publisher::SIP_XNAS, &["sip-xnas"]),
        one(Publisher::SIP_MEMX, &["sip-memx"]),
        one(Publisher::SIP_IEXG, &["sip-iexg"]),
        one(Publisher::SIP_XPSX, &["sip-xpsx"]),
        one(Publisher::SIP_BATY, &["sip-baty"]),
        one(Publisher::SIP_BATS, &["sip-bats"]),
        one(Publisher::SIP_FINN, &["sip-finn"]),
        one(Publisher::SIP_FINY, &["sip-finy"]),
        one(Publisher::SIP_FINC, &["sip-finc"]),
        one(Publisher::SIP_XADF, &["sip-xadf"]),
    ]
}

/// The publishers of UTP's channels.
pub(crate) static OF_UTP: [PublisherSpec; 22] = publishers(one(Publisher::SIP_UTP, &["sip-utp"]));

/// The publishers of CTA's channels.
pub(crate) static OF_CTA: [PublisherSpec; 22] = publishers(one(Publisher::SIP_CTA, &["sip-cta"]));

/// Returns the number of shares that a size of one stands for.
#[inline]
pub(crate) const fn shares_each(sizes: SipSizes, at: Nanos, lot: u32) -> u32 {
    if sizes.are_shares(at) { 1 } else { lot }
}

/// Returns whether bid and offer of a quote are eligible for the national best, by the quote's condition and the letter for the
/// sides beyond the price bands.
#[inline]
pub(crate) const fn eligible(sip: Sip, condition: u8, beyond_bands: u8) -> [bool; 2] {
    let counts = quote_conditions::counts(sip, condition);
    [counts && !matches!(beyond_bands, b'A' | b'C'), counts && !matches!(beyond_bands, b'B' | b'C')]
}

/// Returns the publisher of a participant's letter; `None` for a participant without one. Nasdaq is `Q` at UTP and `T` at CTA.
#[inline]
pub(crate) const fn participant(letter: u8) -> Option<Publisher> {
    Some(match letter {
        b'A' => Publisher::SIP_XASE,
        b'B' => Publisher::SIP_XBOS,
        b'C' => Publisher::SIP_XCIS,
        b'D' => Publisher::SIP_XADF,
        b'H' => Publisher::SIP_EPRL,
        b'I' => Publisher::SIP_XISX,
        b'J' => Publisher::SIP_EDGA,
        b'K' => Publisher::SIP_EDGX,
        b'L' => Publisher::SIP_LTSE,
        b'M' => Publisher::SIP_XCHI,
        b'N' => Publisher::SIP_XNYS,
        b'P' => Publisher::SIP_ARCX,
        b'Q' | b'T' => Publisher::SIP_XNAS,
        b'U' => Publisher::SIP_MEMX,
        b'V' => Publisher::SIP_IEXG,
        b'X' => Publisher::SIP_XPSX,
        b'Y' => Publisher::SIP_BATY,
        b'Z' => Publisher::SIP_BATS,
        _ => return None,
    })
}

/// Returns a price of the wire; zero means none.
#[inline]
pub(crate) fn price(price: Decimal<u64, 6>) -> Option<Price> {
    if price.0 == 0 { None } else { price.to_e9().and_then(Price::from_e9) }
}

/// Price and lots of one side.
pub(crate) type Best = (Decimal<u64, 6>, u32);

/// A participant's quote, with its effect on the national best.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quote {
    /// The participant's publisher; `None` if it has none, or if this is not a quote.
    pub(crate) participant: Option<Publisher>,
    /// The participant's time.
    pub(crate) time: Nanos,
    /// The national best's time.
    pub(crate) national_time: Nanos,
    /// Bid and offer.
    pub(crate) sides: [Best; 2],
    /// Whether bid and offer are eligible for the national best.
    pub(crate) eligible: [bool; 2],
    /// The effect on the national best bid and offer.
    pub(crate) national: [NationalSide; 2],
    /// Number of shares that a size of one stands for.
    pub(crate) lot: u32,
    /// The letter for how the national best stands to the price bands; `None` if the message has none.
    pub(crate) standing: Option<u8>,
    /// Price bands in place of a quote.
    pub(crate) bands: Option<PriceBands>,
}

/// The quotes of one channel: which participants quote which instruments, so that their books can be emptied.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    /// By instrument: the publishers, as bits by index in the table of publishers.
    quoted: Vec<u32>,
    /// By instrument: how the national best stands to the price bands. At least as long as `quoted`.
    standings: Vec<Standing>,
}

impl Quotes {
    /// Returns whether every instrument is one of `symbols`.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.quoted.len().max(self.standings.len()) <= symbols.instruments().len()
    }

    /// Records that a publisher has a quote.
    #[inline]
    fn note(&mut self, publishers: &[PublisherSpec], publisher: Publisher, instrument: InstrumentId) {
        let place = publishers.iter().position(|one| one.publisher == publisher).unwrap_or_default();
        match self.quoted.get_mut(instrument.index()) {
            Some(quoted) => *quoted |= 1 << place,
            None => self.widen(instrument, place),
        }
    }

    #[cold]
    #[inline(never)]
    fn widen(&mut self, instrument: InstrumentId, place: usize) {
        if instrument < UNWANTED {
            self.quoted.resize(instrument.index() + 1, 0);
            self.quoted[instrument.index()] = 1 << place;
            // Reserves the slot for its standing before the day is busy, so that the first limit state allocates nothing.
            let places = self.quoted.len().max(self.standings.len());
            self.standings.resize(places, Standing::default());
        }
    }

    #[cold]
    #[inline(never)]
    fn stand(&mut self, instrument: InstrumentId, standing: Standing) {
        if self.standings.len() <= instrument.index() {
            self.standings.resize(instrument.index() + 1, Standing::default());
        }
        self.standings[instrument.index()] = standing;
    }

    /// Emits the events of a quote: both sides of the participant's, then the changed sides of the national best.
    #[inline]
    pub(crate) fn put<S: Sink<Event>>(
        &mut self,
        (publishers, of): (&[PublisherSpec], Sip),
        instrument: InstrumentId,
        quote: &Quote,
        context: &Context,
        sink: &mut S,
    ) {
        let sip = publishers.first().map(|one| one.publisher).unwrap_or_default();
        // An unreadable symbol has no book.
        let participant = quote.participant.filter(|_| instrument < UNWANTED);
        let shares = |lots: u32| lots.saturating_mul(quote.lot);
        match participant {
            Some(publisher) => {
                self.note(publishers, publisher, instrument);
                let mut event = context.event(EventKind::Quote, publisher, instrument, quote.time);
                let sides = quote.sides.into_iter().zip(quote.eligible);
                for (side, ((at, lots), is_eligible)) in [Side::Bid, Side::Ask].into_iter().zip(sides) {
                    event.detail = if is_eligible { 0 } else { Event::NOT_ELIGIBLE };
                    event.set_flags(if side == Side::Ask {
                        Flags::TOP_OF_BOOK.with(Flags::LAST)
                    } else {
                        Flags::TOP_OF_BOOK
                    });
                    (event.side, event.price, event.size) = (side, price(at), shares(lots));
                    sink.put(event);
                }
            }
            None => {
                let event = context.event(EventKind::Other, sip, instrument, quote.time);
                let bands = quote.bands.filter(|_| instrument < UNWANTED);
                sink.put(bands.map_or(event, |bands| event.with_price_bands(bands)));
            }
        }
        if let Some(standing) = quote.standing.and_then(Standing::of_letter)
            && self.standings.get(instrument.index()).copied().unwrap_or_default() != standing
            && instrument < UNWANTED
        {
            self.stand(instrument, standing);
            let event = context.event(EventKind::LimitState, sip, instrument, quote.national_time);
            sink.put(event.with_standing(standing));
        }
        let [bid, offer] = quote.national;
        let changed = |side: NationalSide| side != NationalSide::Unchanged;
        if instrument >= UNWANTED || !changed(bid) && !changed(offer) {
            return;
        }
        self.note(publishers, sip, instrument);
        let last = if changed(offer) { Side::Ask } else { Side::Bid };
        let mut event = context.event(EventKind::Quote, sip, instrument, quote.national_time);
        let sides = [(Side::Bid, bid), (Side::Ask, offer)].into_iter().zip(quote.sides).zip(quote.eligible);
        for (((side, national), own), is_eligible) in sides {
            let (at, lots, center) = match national {
                NationalSide::Unchanged => continue,
                NationalSide::OfQuote if is_eligible => (price(own.0), own.1, quote.participant),
                NationalSide::Appended(best) if quote_conditions::counts(of, best.condition) => {
                    (price(best.price), best.size, self::participant(best.center))
                }
                NationalSide::Absent | NationalSide::OfQuote | NationalSide::Appended(_) => (None, 0, None),
            };
            event.set_flags(if side == last {
                Flags::TOP_OF_BOOK.with(Flags::LAST)
            } else {
                Flags::TOP_OF_BOOK
            });
            (event.side, event.price, event.size) = (side, at, shares(lots));
            event.aux = center.map_or(0, |publisher| u64::from(publisher.0));
            sink.put(event);
        }
    }

    /// Begins a day: empties all books of the channel's quotes, and forgets how the national bests stand to the price bands, as
    /// the NBBO also does.
    #[cold]
    pub(crate) fn begin_day<S: Sink<Event>>(
        &mut self,
        publishers: &[PublisherSpec],
        time: Nanos,
        to: &mut Target<'_, S>,
    ) {
        self.standings.fill(Standing::default());
        self.clear(publishers, None, time, to);
    }

    /// Empties the books of the channel's quotes, of one publisher or of all. Returns whether there were any.
    #[cold]
    #[inline(never)]
    pub(crate) fn clear<S: Sink<Event>>(
        &mut self,
        publishers: &[PublisherSpec],
        only: Option<Publisher>,
        time: Nanos,
        to: &mut Target<'_, S>,
    ) -> bool {
        let mut has_any = false;
        for (place, one) in publishers.iter().enumerate() {
            if only.is_some_and(|only| only != one.publisher) {
                continue;
            }
            let bit = 1 << place;
            let last = self.quoted.iter().rposition(|quoted| quoted & bit != 0);
            for (index, quoted) in
                self.quoted.iter_mut().enumerate().filter(|(_, quoted)| **quoted & bit != 0)
            {
                *quoted &= !bit;
                let instrument = InstrumentId(index as u32);
                let event = to.context.event(EventKind::Clear, one.publisher, instrument, time);
                to.sink.put(if Some(index) == last { event } else { event.with_more_clears() });
                has_any = true;
            }
        }
        has_any
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use tapeworks_market::{Event, EventKind, Line, Publisher};
    use tapeworks_time::Nanos;

    use crate::normaliser::{Context, Normaliser, Start, Target};
    use crate::symbols::SymbolTable;

    /// A channel of a SIP.
    pub(crate) struct Channel<N> {
        normaliser: N,
        pub(crate) symbols: SymbolTable,
    }

    impl<N: Normaliser> Channel<N> {
        pub(crate) fn new() -> Self {
            Self::with_sizes(tapeworks_market::round_lots::SipSizes::default())
        }

        /// Creates a channel whose sizes count as `sip_sizes` specifies.
        pub(crate) fn with_sizes(sip_sizes: tapeworks_market::round_lots::SipSizes) -> Self {
            let midnight = Nanos(0);
            let start =
                Start { publisher: Publisher::default(), midnight, is_midnight_fixed: false, sip_sizes };
            Self { normaliser: N::new(&start), symbols: SymbolTable::new(None) }
        }

        /// Returns the events of a message without the announcements of symbols.
        pub(crate) fn take(&mut self, message: &[u8]) -> Vec<Event> {
            let context = Context { received: Some(Nanos(99)), sequence: 7, channel: 3, line: Line::A };
            let mut events = Vec::new();
            let mut sink = |event: Event| events.push(event);
            let mut to = Target { context: &context, symbols: &mut self.symbols, sink: &mut sink };
            assert_eq!(self.normaliser.message(message, &mut to), Ok(None));
            events.retain(|event| event.kind != EventKind::SymbolMapping);
            events
        }
    }
}
