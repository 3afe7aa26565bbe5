//! The synthetic NBBO: the best bid and offer across venues, computed from direct feeds.
//!
//! Only the securities information processors (SIPs) publish *the* NBBO; this one is computed from the venues' own
//! feeds. A venue contributes its best price for at least a round lot: odd lots at better prices are added up until
//! they make a round lot, and count at the worst of those prices (17 CFR 242.600(b), round lot; the venues' rules for
//! odd-lot aggregation). A venue whose feed states no round lot uses the lot of another venue:
//! [`round_lots`](crate::round_lots). A venue does not count while it is closed or the instrument is halted there.
//!
//! A venue with several feeds (depth and quotes) counts once, through its most detailed feed whose book is not stale:
//! `nbbo/feeds.rs`. A venue against which the user declares self-help does not count: [`SelfHelp`].
//!
//! While a SIP's price bands are in effect, a bid above the limit up price and an offer below the limit down price do
//! not count: [`luld`](crate::luld).
//!
//! Ties are broken by price, then size, then the feed's position in the table, so the result is deterministic. Direct
//! feeds show locked (bid equals ask) and crossed (bid above ask) markets for microseconds, because venues are seen at
//! different times. Such markets are counted, not hidden.
//!
//! # Cost
//! A venue's contribution is 32 bytes. The contributions to one instrument are contiguous, two per cache line. An event
//! that changes no level on which the contribution depends costs one compare, made by the book. Otherwise the
//! contribution is recomputed (usually from one level per side) and, if it changed, compared with the others. The stage
//! prefetches the lines of a batch while the books look ahead.

mod feeds;
mod image;
mod self_help;

use tapeworks_stage::{Sink, Stage};
use tapeworks_time::Nanos;

use crate::book::{BestMoved, BookRef, BookUpdate, round_lot_best};
use crate::event::{Event, EventKind, Flags, Session, Side};
use crate::image::{UnsoundImage, ensure};
use crate::instrument::{InstrumentId, Symbol};
use crate::luld::{Luld, PriceBands, Standing};
use crate::orders::MAX_INSTRUMENTS;
use crate::price::Price;
use crate::round_lots::{RoundLotPrices, TakenLot};
use crate::venue::Publisher;

use feeds::SharedVenues;
pub use image::NbboImage;
pub use self_help::{SelfHelp, SelfHelpSchedule, SelfHelpSink};

/// The most feeds that one NBBO can have: the number of bits in a mask.
pub const MAX_VENUES: usize = 32;

/// How to treat a venue whose book may be wrong after a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StaleBooks {
    /// It counts, and the NBBO carries [`Flags::MAYBE_BAD_BOOK`] while the venue is among the best.
    #[default]
    Flag,
    /// It does not count until its book is recovered or cleared.
    Exclude,
}

/// The rules of an NBBO.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NbboRules {
    /// How stale books are treated.
    pub stale_books: StaleBooks,
    /// Whether odd lots count at their own prices.
    pub odd_lots_count: bool,
    /// Prices that determine the round lot where no venue states one.
    pub round_lot_prices: RoundLotPrices,
    /// Whether quotes beyond the SIPs' price bands count.
    pub ignores_price_bands: bool,
}

/// The relation of bid and ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarketState {
    /// The bid, the ask, or both are missing.
    #[default]
    OneSided,
    /// The bid is below the ask.
    Normal,
    /// The bid equals the ask.
    Locked,
    /// The bid is above the ask.
    Crossed,
}

impl MarketState {
    /// Returns its name: `one-sided`, `normal`, `locked`, `crossed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneSided => "one-sided",
            Self::Normal => "normal",
            Self::Locked => "locked",
            Self::Crossed => "crossed",
        }
    }
}

/// One side of an NBBO.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BestSide {
    /// The best price, if a venue has one.
    pub price: Option<Price>,
    /// Shares at that price over all venues, capped at `u32::MAX`.
    pub size: u32,
    /// Shares at that price at the first venue.
    pub venue_size: u32,
    /// Feed of the first venue: among the venues at the price, the one with the most shares.
    pub publisher: Publisher,
    /// Venues at that price: bit `n` is the n-th of [`NbboStage::venues`].
    pub venues: u32,
}

/// The best bid and offer of an instrument across venues, in one cache line.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(64))]
pub struct Nbbo {
    /// The bid.
    pub bid: BestSide,
    /// The offer.
    pub ask: BestSide,
    /// [`Flags::MAYBE_BAD_BOOK`] while a venue among the best has a stale book.
    pub flags: Flags,
}

impl Nbbo {
    /// Returns the relation of bid and ask.
    pub fn state(&self) -> MarketState {
        match (self.bid.price, self.ask.price) {
            (Some(bid), Some(ask)) if bid < ask => MarketState::Normal,
            (Some(bid), Some(ask)) if bid == ask => MarketState::Locked,
            (Some(_), Some(_)) => MarketState::Crossed,
            _ => MarketState::OneSided,
        }
    }
}

/// A feed's contribution: the round-lot best bid and offer of its venue.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contribution {
    bid: Option<Price>,
    ask: Option<Price>,
    bid_size: u32,
    ask_size: u32,
    /// [`STALE`], [`HEARD`].
    state: u8,
}

/// In a contribution's `state`: the book is stale.
const STALE: u8 = 1;
/// In a contribution's `state`: the feed has changed the book since it was last cleared.
const HEARD: u8 = 2;

impl Contribution {
    #[inline]
    const fn is_stale(&self) -> bool {
        self.state & STALE != 0
    }

    #[inline]
    const fn is_heard(&self) -> bool {
        self.state & HEARD != 0
    }
}

/// The synthetic NBBO of every instrument.
#[derive(Debug)]
pub struct NbboStage {
    rules: NbboRules,
    venues: Vec<Publisher>,
    contributions: Vec<Contribution>,
    best: Vec<Nbbo>,
    /// Slots per instrument in `contributions`; at least the number of venues.
    stride: usize,
    ignored: u64,
    counts: NbboCounts,
    /// Bit mask of the feeds whose books have all been stale since their last gap: another gap changes nothing.
    all_stale: u32,
    shared: SharedVenues,
    /// Per instrument, the lot for venues that state none. As long as `best`.
    lots: Vec<TakenLot>,
    /// Per instrument, the SIPs' price bands. Reaches to the last instrument with any.
    luld: Vec<Luld>,
    /// Receive time of the current event.
    now: Nanos,
}

/// Counts of NBBO changes.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NbboCounts {
    /// Changes of the NBBO of any instrument.
    pub changes: u64,
    /// Changes that left the market locked.
    pub locked: u64,
    /// Changes that left the market crossed.
    pub crossed: u64,
}

/// A book update with the NBBO after it.
#[derive(Clone, Copy, Debug)]
pub struct NbboUpdate<'a> {
    /// The book update. An event that concerns all instruments yields one update per changed NBBO.
    pub book: BookUpdate<'a>,
    /// The NBBO of the update's instrument; empty for events that name no single instrument.
    pub nbbo: &'a Nbbo,
    /// Whether this event changed the NBBO.
    pub changed: bool,
    /// The instrument's lot for a venue that states none. By reference, because few readers of updates need it.
    taken_lot: &'a TakenLot,
}

impl<'a> NbboUpdate<'a> {
    /// Creates an update for an event that names no single instrument, or for a stage without an NBBO.
    const fn without(book: BookUpdate<'a>) -> Self {
        Self { book, nbbo: &NO_NBBO, changed: false, taken_lot: &TakenLot::NONE }
    }

    /// Returns the shares in a round lot of the update's book.
    ///
    /// This is the venue's own lot, or the lot that the NBBO uses for a venue that states none
    /// ([`round_lots`](crate::round_lots)).
    #[must_use]
    pub fn round_lot(&self) -> u32 {
        let BookUpdate { book, event, .. } = self.book;
        book.round_lot().unwrap_or_else(|| self.taken_lot.shares(event.ts_recv))
    }
}

const NO_NBBO: Nbbo = Nbbo {
    bid: BestSide { price: None, size: 0, venue_size: 0, publisher: Publisher(0), venues: 0 },
    ask: BestSide { price: None, size: 0, venue_size: 0, publisher: Publisher(0), venues: 0 },
    flags: Flags(0),
};

impl NbboStage {
    /// Creates an NBBO over the feeds `venues`, listed in tie-breaking order, with room for `instruments`.
    ///
    /// Any other feed joins at its first event that could count. Feeds beyond [`MAX_VENUES`] never join
    /// ([`NbboStage::ignored`]).
    pub fn new(rules: NbboRules, venues: impl IntoIterator<Item = Publisher>, instruments: usize) -> Self {
        let mut venues: Vec<_> = venues.into_iter().collect();
        venues.truncate(MAX_VENUES);
        let stride = venues.len().next_power_of_two();
        let contributions = vec![Contribution::default(); instruments * stride];
        let mut shared = SharedVenues::of(&venues, Vec::new());
        if shared.mask != 0 {
            shared.own.clone_from(&contributions);
        }
        Self {
            rules,
            venues,
            contributions,
            best: vec![Nbbo::default(); instruments],
            stride,
            ignored: 0,
            counts: NbboCounts::default(),
            all_stale: 0,
            shared,
            lots: vec![TakenLot::default(); instruments],
            luld: Vec::new(),
            now: Nanos(0),
        }
    }

    /// Returns the whole state as plain values.
    pub fn image(&self) -> NbboImage {
        let mut image = NbboImage::default();
        self.image_into(&mut image);
        image
    }

    /// Like [`NbboStage::image`], but reuses the memory of an earlier image.
    pub fn image_into(&self, image: &mut NbboImage) {
        image.venues.clone_from(&self.venues);
        image.contributions.clone_from(&self.contributions);
        image.best.clone_from(&self.best);
        (image.stride, image.ignored, image.counts) = (self.stride, self.ignored, self.counts);
        image.all_stale = self.all_stale;
        image.own.clone_from(&self.shared.own);
        image.lots.clone_from(&self.lots);
        image.luld.clone_from(&self.luld);
        image.self_help.clear();
        image.self_help.extend_from_slice(self.shared.self_help());
    }

    /// Restores an NBBO from its image.
    ///
    /// # Errors
    /// [`UnsoundImage`].
    pub fn from_image(rules: NbboRules, image: NbboImage) -> Result<Self, UnsoundImage> {
        let NbboImage {
            venues,
            contributions,
            best,
            stride,
            ignored,
            counts,
            all_stale,
            own,
            lots,
            luld,
            self_help,
        } = image;
        ensure(venues.len() <= MAX_VENUES, "more venues than are possible")?;
        ensure(u64::from(all_stale) < 1 << venues.len(), "a stale feed that is none")?;
        ensure(stride == venues.len().next_power_of_two(), "the places of the venues")?;
        ensure(best.len().checked_mul(stride) == Some(contributions.len()), "the venues' contributions")?;
        ensure(lots.len() == best.len(), "the lots of the instruments")?;
        ensure(luld.len() <= best.len(), "the price bands of the instruments")?;
        ensure(self_help.len() <= MAX_VENUES, "self-help against more venues than are possible")?;
        let mut shared = SharedVenues::of(&venues, self_help);
        shared.own = own;
        let kept = if shared.mask == 0 { 0 } else { contributions.len() };
        ensure(shared.own.len() == kept, "the contributions of feeds that share a venue")?;
        let now = Nanos(0);
        Ok(Self {
            rules,
            venues,
            contributions,
            best,
            stride,
            ignored,
            counts,
            all_stale,
            shared,
            lots,
            luld,
            now,
        })
    }

    /// Returns the feeds, in the order of the bits of [`BestSide::venues`].
    pub fn venues(&self) -> &[Publisher] {
        &self.venues
    }

    /// Returns whether self-help is declared against the venue of a feed.
    pub fn is_under_self_help(&self, publisher: Publisher) -> bool {
        self.shared.is_under_self_help(publisher)
    }

    /// Returns the NBBO of `instrument`.
    pub fn nbbo(&self, instrument: InstrumentId) -> &Nbbo {
        self.best.get(instrument.index()).unwrap_or(&NO_NBBO)
    }

    /// Returns the SIPs' price bands of `instrument`.
    pub fn luld(&self, instrument: InstrumentId) -> Luld {
        self.luld.get(instrument.index()).copied().unwrap_or_default()
    }

    /// Returns how the NBBO of `instrument` relates to the SIPs' price bands.
    pub fn standing(&self, instrument: InstrumentId) -> Standing {
        let (nbbo, luld) = (self.nbbo(instrument), self.luld(instrument));
        luld.bands
            .map_or_else(Standing::default, |bands| Standing::of(&bands, nbbo.bid.price, nbbo.ask.price))
    }

    /// Returns the counts of changes.
    pub const fn counts(&self) -> &NbboCounts {
        &self.counts
    }

    /// Returns the number of changes from feeds beyond [`MAX_VENUES`], which do not count.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Applies the current book of one venue. Returns whether the NBBO of its instrument changed.
    #[inline]
    pub fn update(&mut self, update: &BookUpdate<'_>) -> bool {
        let is_rare = matches!(
            update.event.kind,
            EventKind::Status
                | EventKind::Definition
                | EventKind::SymbolMapping
                | EventKind::Session
                | EventKind::Gap
                | EventKind::Recovered
                | EventKind::Clear
                | EventKind::PriceBands
                | EventKind::LimitState
        );
        if is_rare {
            return self.update_rarely(update);
        }
        let moved = update.best_moved();
        if moved == BestMoved::No {
            return false;
        }
        let Some((feed, at)) = self.place(update.book.publisher(), update.book.instrument()) else {
            return false;
        };
        self.now = update.event.ts_recv;
        self.refresh(feed, at, update.book, moved, Heard::Yes)
    }

    /// [`NbboStage::update`] for events that clear the book or change its state.
    #[cold]
    #[inline(never)]
    fn update_rarely(&mut self, update: &BookUpdate<'_>) -> bool {
        self.now = update.event.ts_recv;
        match update.event.kind {
            EventKind::Definition => return self.define(update),
            EventKind::SymbolMapping => {
                self.name(update.event);
                return false;
            }
            EventKind::PriceBands | EventKind::LimitState => return self.hear_bands(update.event),
            EventKind::Gap if is_of_bands(update.event) => return self.lose_bands(update.event.instrument),
            _ => {}
        }
        let is_clear = update.event.kind == EventKind::Clear;
        let moved = if is_clear { update.best_moved() } else { BestMoved::Both };
        if moved == BestMoved::No {
            return false;
        }
        let Some((feed, at)) = self.place(update.book.publisher(), update.book.instrument()) else {
            return false;
        };
        self.refresh_rarely(feed, at, update.book, moved, Heard::by(update.event))
    }

    /// Applies a definition, whose lot may also serve venues that state none. Returns whether the NBBO changed.
    fn define(&mut self, update: &BookUpdate<'_>) -> bool {
        let (instrument, heard) = (update.book.instrument(), Heard::AsBefore);
        // A SIP states lots too, but gets no slot.
        let (place, mut is_changed) = if update.book.publisher().is_of_sip() {
            if instrument.index() >= self.best.len() && self.widen(instrument).is_none() {
                return false;
            }
            (None, false)
        } else {
            let Some((feed, at)) = self.place(update.book.publisher(), instrument) else { return false };
            (Some(feed), self.take(feed, at, update.book, BestMoved::Both, heard))
        };
        let first = instrument.index() * self.stride;
        let lot = self.lots.get_mut(instrument.index());
        if lot.is_some_and(|lot| lot.hear(update.event, place)) {
            for other in (0..self.venues.len()).filter(|other| Some(*other) != place) {
                let books = update.feeds.zip(self.venues.get(other)).and_then(|(all, one)| all.feed(*one));
                let Some(book) = books.map(|books| books.book(instrument)) else { continue };
                if book.round_lot().is_none() {
                    is_changed |= self.take(other, first + other, book, BestMoved::Both, heard);
                }
            }
        }
        is_changed && self.compare(first, instrument, BestMoved::Both)
    }

    /// Applies a SIP's price bands or limit state. Returns whether the NBBO changed.
    fn hear_bands(&mut self, event: &Event) -> bool {
        let instrument = event.instrument;
        if instrument.index() >= self.best.len() && self.widen(instrument).is_none() {
            return false;
        }
        if instrument.index() >= self.luld.len() {
            self.luld.resize(instrument.index() + 1, Luld::default());
        }
        let Some(luld) = self.luld.get_mut(instrument.index()) else { return false };
        if let Some(standing) = event.standing() {
            luld.national = standing;
            luld.sip = if luld.bands.is_some() { luld.sip } else { event.publisher };
        }
        let Some(bands) = event.price_bands() else { return false };
        (luld.bands, luld.sip) = (Some(bands), event.publisher);
        self.compare(instrument.index() * self.stride, instrument, BestMoved::Both)
    }

    /// Drops the price bands of an instrument. Returns whether the NBBO changed.
    fn lose_bands(&mut self, instrument: InstrumentId) -> bool {
        let had_bands = self.luld.get_mut(instrument.index()).is_some_and(|luld| luld.bands.take().is_some());
        had_bands && self.compare(instrument.index() * self.stride, instrument, BestMoved::Both)
    }

    /// Returns the bands within which quotes must lie to count.
    #[inline]
    fn limits(&self, instrument: InstrumentId) -> Option<PriceBands> {
        // Usually no SIP has sent any bands, and this costs one compare.
        if self.luld.is_empty() || self.rules.ignores_price_bands {
            return None;
        }
        self.luld.get(instrument.index())?.bands
    }

    /// Looks up the price that the user may have supplied for a new symbol.
    fn name(&mut self, event: &Event) {
        let Some(price) = event.symbol().and_then(|symbol| self.rules.round_lot_prices.price_of(symbol))
        else {
            return;
        };
        if event.instrument.index() >= self.best.len() && self.widen(event.instrument).is_none() {
            return;
        }
        if let Some(lot) = self.lots.get_mut(event.instrument.index()) {
            lot.reckon(Some(price));
        }
    }

    /// Applies the rules' prices to the instruments of a restored state, by number: the user may have changed them
    /// meanwhile.
    ///
    /// A lot that changes takes effect at the next change of its venue's best price.
    pub fn price_lots(&mut self, symbols: &[Symbol]) {
        for (lot, symbol) in self.lots.iter_mut().zip(symbols) {
            lot.reckon(self.rules.round_lot_prices.price_of(*symbol));
        }
    }

    #[inline]
    fn place(&mut self, publisher: Publisher, instrument: InstrumentId) -> Option<(usize, usize)> {
        let venue = match self.venues.iter().position(|venue| *venue == publisher) {
            Some(venue) => venue,
            None => self.join(publisher)?,
        };
        if instrument.index() >= self.best.len() {
            self.widen(instrument)?;
        }
        Some((venue, instrument.index() * self.stride + venue))
    }

    #[cold]
    #[inline(never)]
    fn join(&mut self, publisher: Publisher) -> Option<usize> {
        // Quotes of a SIP never count.
        if publisher.is_of_sip() {
            return None;
        }
        if self.venues.len() == MAX_VENUES {
            self.ignored += 1;
            return None;
        }
        let chosen = self.shared.mask;
        self.shared.add(publisher, &self.venues);
        self.venues.push(publisher);
        let stride = self.venues.len().next_power_of_two();
        if stride != self.stride {
            self.contributions = restride(&self.contributions, self.stride, stride);
            self.shared.own = restride(&self.shared.own, self.stride, stride);
            self.stride = stride;
        }
        // Until now these feeds counted with what they contribute.
        self.shared.hold(chosen, &self.contributions, self.stride);
        Some(self.venues.len() - 1)
    }

    #[cold]
    #[inline(never)]
    fn widen(&mut self, instrument: InstrumentId) -> Option<()> {
        if instrument.0 >= MAX_INSTRUMENTS {
            return None;
        }
        let instruments = (instrument.index() + 1).next_power_of_two();
        self.best.resize(instruments, Nbbo::default());
        self.lots.resize(instruments, TakenLot::default());
        self.contributions.resize(instruments * self.stride, Contribution::default());
        if self.shared.mask != 0 {
            self.shared.own.resize(self.contributions.len(), Contribution::default());
        }
        Some(())
    }

    /// [`NbboStage::refresh`], out of line.
    #[cold]
    #[inline(never)]
    fn refresh_rarely(
        &mut self,
        feed: usize,
        at: usize,
        book: BookRef<'_>,
        moved: BestMoved,
        heard: Heard,
    ) -> bool {
        self.refresh(feed, at, book, moved, heard)
    }

    /// Recomputes a feed's contribution and, if it changed, the NBBO.
    #[inline(always)]
    fn refresh(&mut self, feed: usize, at: usize, book: BookRef<'_>, moved: BestMoved, heard: Heard) -> bool {
        if self.shared.mask != 0 && self.shared.includes(feed) {
            return self.refresh_shared(feed, at, book, moved, heard);
        }
        let before = self.contributions[at];
        let Some((contribution, moved)) = self.changed(feed, book, before, moved, heard) else {
            return false;
        };
        self.contributions[at] = contribution;
        self.compare(at - feed, book.instrument(), moved)
    }

    /// Recomputes a feed's contribution. Returns whether the contributions that count changed.
    fn take(&mut self, feed: usize, at: usize, book: BookRef<'_>, moved: BestMoved, heard: Heard) -> bool {
        if self.shared.includes(feed) {
            return self.take_shared(feed, at, book, moved, heard);
        }
        let before = self.contributions[at];
        let Some((contribution, _)) = self.changed(feed, book, before, moved, heard) else { return false };
        self.contributions[at] = contribution;
        true
    }

    /// Returns a feed's new contribution and the sides that it can move; `None` if the contribution is unchanged.
    #[inline(always)]
    fn changed(
        &mut self,
        feed: usize,
        book: BookRef<'_>,
        before: Contribution,
        moved: BestMoved,
        heard: Heard,
    ) -> Option<(Contribution, BestMoved)> {
        // A book that is no longer stale, and may have been excluded for that, counts again with both sides.
        let moved = if book.is_stale() == before.is_stale() { moved } else { BestMoved::Both };
        let contribution = self.contribution(book, before, moved, heard);
        if contribution == before {
            return None;
        }
        if !contribution.is_stale() {
            self.all_stale &= !(1 << feed);
        }
        Some((contribution, moved))
    }

    /// [`NbboStage::refresh`] for a feed whose contribution is chosen among those of its venue.
    #[inline(never)]
    fn refresh_shared(
        &mut self,
        feed: usize,
        at: usize,
        book: BookRef<'_>,
        moved: BestMoved,
        heard: Heard,
    ) -> bool {
        self.take_shared(feed, at, book, moved, heard)
            && self.compare(at - feed, book.instrument(), BestMoved::Both)
    }

    /// [`NbboStage::take`] for a feed whose contribution is chosen among those of its venue.
    #[inline]
    fn take_shared(
        &mut self,
        feed: usize,
        at: usize,
        book: BookRef<'_>,
        moved: BestMoved,
        heard: Heard,
    ) -> bool {
        let Some(before) = self.shared.own.get(at).copied() else { return false };
        let Some((contribution, _)) = self.changed(feed, book, before, moved, heard) else { return false };
        self.shared.own[at] = contribution;
        let first = at - feed;
        let Some(counting) = self.contributions.get_mut(first..first + self.venues.len()) else {
            return false;
        };
        self.shared.choose(feed, first, counting)
    }

    /// Recomputes sides of an instrument's NBBO from its contributions, which begin at `first`. Returns whether it
    /// changed.
    #[inline(always)]
    fn compare(&mut self, first: usize, instrument: InstrumentId, moved: BestMoved) -> bool {
        let limits = self.limits(instrument);
        let Some(contributions) = self.contributions.get(first..first + self.venues.len()) else {
            return false;
        };
        let current = &mut self.best[instrument.index()];
        let mut nbbo = Nbbo { flags: Flags::default(), ..*current };
        let places = || contributions.iter().zip(&self.venues).enumerate();
        if moved.includes(Side::Bid) {
            nbbo.bid = BestSide::default();
            for (index, (one, publisher)) in places() {
                let bid = one.bid.filter(|bid| limits.is_none_or(|bands| bands.admits_bid(*bid)));
                offer(&mut nbbo.bid, bid, one.bid_size, *publisher, index, |new, best| new > best);
            }
        }
        if moved.includes(Side::Ask) {
            nbbo.ask = BestSide::default();
            for (index, (one, publisher)) in places() {
                let ask = one.ask.filter(|ask| limits.is_none_or(|bands| bands.admits_ask(*ask)));
                offer(&mut nbbo.ask, ask, one.ask_size, *publisher, index, |new, best| new < best);
            }
        }
        let best = nbbo.bid.venues | nbbo.ask.venues;
        if contributions.iter().enumerate().any(|(index, one)| one.is_stale() && best & (1 << index) != 0) {
            nbbo.flags = Flags::MAYBE_BAD_BOOK;
        }
        if *current == nbbo {
            return false;
        }
        *current = nbbo;
        self.counts.changes += 1;
        match nbbo.state() {
            MarketState::Locked => self.counts.locked += 1,
            MarketState::Crossed => self.counts.crossed += 1,
            MarketState::Normal | MarketState::OneSided => {}
        }
        true
    }

    /// Combines a book update with the NBBO of its instrument.
    #[inline]
    fn of<'a>(&'a self, book: BookUpdate<'a>, changed: bool) -> NbboUpdate<'a> {
        let instrument = book.event.instrument;
        let taken_lot = self.lots.get(instrument.index()).unwrap_or(&TakenLot::NONE);
        NbboUpdate { book, nbbo: self.nbbo(instrument), changed, taken_lot }
    }

    /// Returns the lot for a venue that states none.
    #[inline(never)]
    fn taken_lot(&self, instrument: InstrumentId) -> u32 {
        self.lots.get(instrument.index()).copied().unwrap_or_default().shares(self.now)
    }

    #[inline(always)]
    fn contribution(
        &self,
        book: BookRef<'_>,
        before: Contribution,
        moved: BestMoved,
        heard: Heard,
    ) -> Contribution {
        let is_stale = book.is_stale();
        let state = (u8::from(is_stale) * STALE) | heard.after(before.state);
        let is_excluded = !book.state().is_trading()
            || !book.is_open()
            || is_stale && self.rules.stale_books == StaleBooks::Exclude;
        if is_excluded {
            return Contribution { state, ..Contribution::default() };
        }
        let lot = if self.rules.odd_lots_count {
            1
        } else {
            book.round_lot().unwrap_or_else(|| self.taken_lot(book.instrument()))
        };
        let mut contribution = Contribution { state, ..before };
        if moved.includes(Side::Bid) {
            (contribution.bid, contribution.bid_size) = round_lot_best(book, Side::Bid, lot);
        }
        if moved.includes(Side::Ask) {
            (contribution.ask, contribution.ask_size) = round_lot_best(book, Side::Ask, lot);
        }
        contribution
    }
}

/// Whether an event makes its feed heard: see [`feeds`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// It changed the book.
    Yes,
    /// It cleared the book.
    No,
    /// It does not affect the book.
    AsBefore,
}

impl Heard {
    /// Classifies an event that clears the book or changes its state.
    fn by(event: &Event) -> Self {
        match event.kind {
            EventKind::Clear => Self::No,
            EventKind::Session if event.session() == Some(Session::StartOfMessages) => Self::No,
            _ => Self::AsBefore,
        }
    }

    #[inline]
    fn after(self, before: u8) -> u8 {
        match self {
            Self::Yes => HEARD,
            Self::No => 0,
            Self::AsBefore => before & HEARD,
        }
    }
}

#[inline]
fn offer(
    best: &mut BestSide,
    price: Option<Price>,
    size: u32,
    publisher: Publisher,
    index: usize,
    better: impl Fn(Price, Price) -> bool,
) {
    let Some(price) = price else { return };
    match best.price {
        Some(current) if better(current, price) => {}
        Some(current) if current == price => {
            best.size = best.size.saturating_add(size);
            best.venues |= 1 << index;
            if size > best.venue_size {
                (best.venue_size, best.publisher) = (size, publisher);
            }
        }
        _ => *best = BestSide { price: Some(price), size, venue_size: size, publisher, venues: 1 << index },
    }
}

fn restride<T: Copy + Default>(items: &[T], old: usize, new: usize) -> Vec<T> {
    let mut wider = Vec::with_capacity(items.len() / old.max(1) * new);
    for group in items.chunks(old.max(1)) {
        wider.extend_from_slice(group);
        wider.extend(std::iter::repeat_n(T::default(), new - group.len()));
    }
    wider
}

impl<'b, S> Stage<BookUpdate<'b>, S> for NbboStage
where
    S: for<'a> Sink<NbboUpdate<'a>>,
{
    #[inline]
    fn process(&mut self, batch: &[BookUpdate<'b>], sink: &mut S) {
        for update in batch {
            if update.event.instrument == InstrumentId::ALL {
                self.process_all(update, sink);
                continue;
            }
            let changed = self.update(update);
            sink.put(self.of(*update, changed));
        }
    }

    #[inline]
    fn expect(&mut self, index: usize) {
        tapeworks_ring::prefetch::read(&self.contributions, index.wrapping_mul(self.stride));
        tapeworks_ring::prefetch::read(&self.best, index);
    }
}

/// Without an NBBO stage, updates pass with an empty NBBO that never changes.
impl<'b, S> Stage<BookUpdate<'b>, S> for Option<NbboStage>
where
    S: for<'a> Sink<NbboUpdate<'a>>,
{
    #[inline]
    fn process(&mut self, batch: &[BookUpdate<'b>], sink: &mut S) {
        if let Some(stage) = self {
            return stage.process(batch, sink);
        }
        for update in batch {
            sink.put(NbboUpdate::without(*update));
        }
    }

    #[inline]
    fn expect(&mut self, index: usize) {
        if let Some(stage) = self {
            Stage::<BookUpdate<'b>, S>::expect(stage, index);
        }
    }
}

impl NbboStage {
    /// Applies an event that concerns a whole venue: it opened or closed, lost messages, or was cleared.
    #[cold]
    #[inline(never)]
    fn process_all<S>(&mut self, update: &BookUpdate<'_>, sink: &mut S)
    where
        S: for<'a> Sink<NbboUpdate<'a>>,
    {
        sink.put(NbboUpdate::without(*update));
        if let Some(is_declared) = update.event.self_help() {
            self.self_help(update, is_declared, sink);
            return;
        }
        if update.event.publisher.is_of_sip() {
            // Its quotes are not part of any NBBO.
            if is_of_bands(update.event) {
                self.end_bands(update, sink);
            }
            return;
        }
        let instruments = update.book.all_instruments().min(self.best.len());
        let is_gap = update.event.kind == EventKind::Gap;
        let heard = Heard::by(update.event);
        self.now = update.event.ts_recv;
        let (mut venue_of_all, mut is_one_sound) = (None, false);
        for instrument in (0..instruments).map(|index| InstrumentId(index as u32)) {
            let book = update.book.of(instrument);
            let Some((venue, at)) = self.place(book.publisher(), instrument) else { return };
            if is_gap && venue_of_all.is_none() && self.all_stale & (1 << venue) != 0 {
                return;
            }
            venue_of_all = Some(venue);
            is_one_sound |= !book.is_stale();
            // A feed that contributes nothing and was not heard still contributes nothing after any event.
            if self.shared.mask == 0 && self.contributions[at] == Contribution::default() {
                continue;
            }
            if self.refresh(venue, at, book, BestMoved::Both, heard) {
                let event = Event { instrument, ..*update.event };
                let update = BookUpdate { event: &event, book, ..*update };
                sink.put(self.of(update, true));
            }
        }
        if let Some(venue) = venue_of_all {
            let bit = 1 << venue;
            self.all_stale =
                if is_gap && !is_one_sound { self.all_stale | bit } else { self.all_stale & !bit };
        }
    }
}

/// Returns whether an event invalidates the price bands that a SIP sent.
///
/// Bands end when the SIP's day begins or the hours of the rule are over. After missing messages they may have changed.
fn is_of_bands(event: &Event) -> bool {
    let is_sips = matches!(event.publisher, Publisher::SIP_UTP | Publisher::SIP_CTA);
    is_sips
        && match event.kind {
            EventKind::Gap => !event.is_contradiction(),
            EventKind::Session => !matches!(event.session(), Some(Session::StartOfMarketHours) | None),
            _ => false,
        }
}

impl NbboStage {
    /// Drops the price bands that a SIP sent.
    #[cold]
    fn end_bands<S>(&mut self, update: &BookUpdate<'_>, sink: &mut S)
    where
        S: for<'a> Sink<NbboUpdate<'a>>,
    {
        self.now = update.event.ts_recv;
        let is_session = update.event.kind == EventKind::Session;
        for instrument in (0..self.luld.len()).map(|index| InstrumentId(index as u32)) {
            let Some(luld) = self.luld.get_mut(instrument.index()) else { break };
            if luld.sip != update.event.publisher {
                continue;
            }
            if is_session {
                luld.national = Standing::default();
            }
            if self.lose_bands(instrument) {
                let event = Event { instrument, ..*update.event };
                let book = update.book.of(instrument);
                let update = BookUpdate { event: &event, book, ..*update };
                sink.put(self.of(update, true));
            }
        }
    }

    /// Declares self-help against a venue, or revokes it.
    #[cold]
    fn self_help<S>(&mut self, update: &BookUpdate<'_>, is_declared: bool, sink: &mut S)
    where
        S: for<'a> Sink<NbboUpdate<'a>>,
    {
        let before = self.shared.mask;
        let Some(feeds) = self.shared.declare(update.event.publisher, is_declared, &self.venues) else {
            return;
        };
        self.shared.hold(before, &self.contributions, self.stride);
        // Any feed of the venue represents all of them.
        let feed = feeds.trailing_zeros() as usize;
        for instrument in (0..self.best.len()).map(|index| InstrumentId(index as u32)) {
            let first = instrument.index() * self.stride;
            let Some(counting) = self.contributions.get_mut(first..first + self.venues.len()) else { break };
            if self.shared.choose(feed, first, counting) && self.compare(first, instrument, BestMoved::Both) {
                let event = Event { instrument, ..*update.event };
                let book = update.book.of(instrument);
                let update = BookUpdate { event: &event, book, ..*update };
                sink.put(self.of(update, true));
            }
        }
        self.shared.settle();
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_stage::Stage as _;

    use super::*;
    use crate::{BookStage, Price};

    /// A linear congruential generator with Knuth's constants.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    #[test]
    fn a_gap_upon_a_gap_is_passed_over_and_changes_nothing() {
        let mut draw = Draw(11);
        let publishers = [Publisher::XNAS_ITCH, Publisher::IEXG_TOPS];
        let mut lines = [(); 2].map(|()| (BookStage::new([]), NbboStage::new(NbboRules::default(), [], 4)));
        let (mut gaps, mut passed_over) = (0, 0);
        for _ in 0..10_000 {
            let publisher = publishers[draw.below(2) as usize];
            let instrument = InstrumentId(draw.below(6) as u32);
            let kind = match draw.below(20) {
                0..=4 => EventKind::Gap,
                5 => EventKind::Recovered,
                6 => EventKind::Clear,
                7 => EventKind::Session,
                _ => EventKind::Quote,
            };
            let is_of_all = kind != EventKind::Quote && draw.below(3) > 0;
            let mut event =
                Event::new(kind, publisher, if is_of_all { InstrumentId::ALL } else { instrument });
            event.side = if draw.below(2) == 0 { Side::Bid } else { Side::Ask };
            event.price = Price::from_e9(1_000_000_000 * (10 + draw.below(5)) as i64);
            event.size = 100 * draw.below(3) as u32;
            let updates = lines.each_mut().map(|(books, nbbo)| {
                let mut updates = Vec::new();
                books.process(&[event], &mut |update: BookUpdate<'_>| {
                    nbbo.process(&[update], &mut |update: NbboUpdate<'_>| {
                        updates.push((*update.book.event, *update.nbbo, update.changed));
                    });
                });
                updates
            });
            assert_eq!(updates[0], updates[1]);
            if is_of_all && kind == EventKind::Gap {
                gaps += 1;
                passed_over += u32::from(lines[0].1.all_stale != 0);
            }
            // Makes the second stage examine all books at each gap.
            lines[1].1.all_stale = 0;
        }
        assert_eq!(lines[0].1.best, lines[1].1.best);
        assert!(gaps > 1_000 && passed_over > 200, "{gaps}, {passed_over}");
    }
}
