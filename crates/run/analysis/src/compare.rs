//! Compares the synthetic NBBO with the SIP's: how long they agree, which of them is first, and how they differ.
//!
//! Both are used as received. A symbol is compared from the SIP's first national quote on. Two quotes are equal if the price and
//! size of both sides are equal. The synthetic quote's size is the largest venue's, because the SIP
//! shows a single participant's size.
//!
//! A price that both reach forms a pair: its lag is the SIP's time minus ours, negative if the SIP was first. Prices that only one
//! has reached wait for their pair, at most [`MOST_WAITING`] per side and for at most [`LONGEST_WAIT_NS`]; after that they count as
//! unpaired.
//!
//! Cost: a few comparisons per change of either quote. Memory: about a kilobyte per symbol, plus at most 32 KiB for its lags.

use std::collections::VecDeque;

use tapeworks_market::{EventKind, Flags, InstrumentId, Nbbo, NbboUpdate, Price, Publisher, Side};
use tapeworks_time::Nanos;

/// Maximum number of prices per side that wait for their pair.
pub const MOST_WAITING: usize = 16;

/// How long a price waits for its pair, in nanoseconds.
pub const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// Maximum number of lags kept per symbol. Beyond it only every second lag is kept, then every fourth, and so on.
const MOST_LAGS: usize = 4_096;

/// Maximum number of symbols compared: higher instrument numbers are left out.
const MOST_SYMBOLS: usize = 1 << 20;

/// Price and shares of one side.
pub type Quoted = (Option<Price>, u32);

/// A way to differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference {
    /// Our bid or offer has the better price.
    BetterHere(Side),
    /// The SIP's bid or offer has the better price.
    BetterAtSip(Side),
    /// The prices are equal, the sizes are not.
    Size(Side),
    /// The SIP has no bid or offer.
    OnlyHere(Side),
    /// We have no bid or offer.
    OnlyAtSip(Side),
    /// Our market is locked, the SIP's is not.
    LockedHere,
    /// Our market is crossed, the SIP's is not.
    CrossedHere,
    /// The SIP's market is locked, ours is not.
    LockedAtSip,
    /// The SIP's market is crossed, ours is not.
    CrossedAtSip,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::BetterHere(Side::Bid),
        Self::BetterAtSip(Side::Bid),
        Self::Size(Side::Bid),
        Self::OnlyHere(Side::Bid),
        Self::OnlyAtSip(Side::Bid),
        Self::BetterHere(Side::Ask),
        Self::BetterAtSip(Side::Ask),
        Self::Size(Side::Ask),
        Self::OnlyHere(Side::Ask),
        Self::OnlyAtSip(Side::Ask),
        Self::LockedHere,
        Self::CrossedHere,
        Self::LockedAtSip,
        Self::CrossedAtSip,
    ];

    /// Returns a description in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::BetterHere(Side::Ask) => "offer: better price here",
            Self::BetterHere(_) => "bid: better price here",
            Self::BetterAtSip(Side::Ask) => "offer: better price at the SIP",
            Self::BetterAtSip(_) => "bid: better price at the SIP",
            Self::Size(Side::Ask) => "offer: other size",
            Self::Size(_) => "bid: other size",
            Self::OnlyHere(Side::Ask) => "offer: only here",
            Self::OnlyHere(_) => "bid: only here",
            Self::OnlyAtSip(Side::Ask) => "offer: only at the SIP",
            Self::OnlyAtSip(_) => "bid: only at the SIP",
            Self::LockedHere => "locked here alone",
            Self::CrossedHere => "crossed here alone",
            Self::LockedAtSip => "locked at the SIP alone",
            Self::CrossedAtSip => "crossed at the SIP alone",
        }
    }

    /// Whether it concerns prices, rather than a size or the state of a market.
    const fn is_of_price(self) -> bool {
        matches!(self, Self::BetterHere(_) | Self::BetterAtSip(_) | Self::OnlyHere(_) | Self::OnlyAtSip(_))
    }

    /// Whether two quotes, each a bid and an offer, differ in this way.
    fn is_between(self, ours: &[Quoted; 2], sip: &[Quoted; 2]) -> bool {
        let place = |side| usize::from(side == Side::Ask);
        let prices = |side| (ours[place(side)].0.map(Price::e9), sip[place(side)].0.map(Price::e9));
        let better = |side, one: i64, other: i64| if side == Side::Ask { one < other } else { one > other };
        match self {
            Self::BetterHere(side) => {
                matches!(prices(side), (Some(ours), Some(sip)) if better(side, ours, sip))
            }
            Self::BetterAtSip(side) => {
                matches!(prices(side), (Some(ours), Some(sip)) if better(side, sip, ours))
            }
            Self::Size(side) => {
                let (ours, sip) = (ours[place(side)], sip[place(side)]);
                ours.0.is_some() && ours.0 == sip.0 && ours.1 != sip.1
            }
            Self::OnlyHere(side) => matches!(prices(side), (Some(_), None)),
            Self::OnlyAtSip(side) => matches!(prices(side), (None, Some(_))),
            Self::LockedHere => is_locked(ours) && !is_locked(sip),
            Self::CrossedHere => is_crossed(ours) && !is_crossed(sip),
            Self::LockedAtSip => is_locked(sip) && !is_locked(ours),
            Self::CrossedAtSip => is_crossed(sip) && !is_crossed(ours),
        }
    }
}

fn is_locked([(bid, _), (ask, _)]: &[Quoted; 2]) -> bool {
    bid.is_some() && bid == ask
}

fn is_crossed([(bid, _), (ask, _)]: &[Quoted; 2]) -> bool {
    bid.zip(*ask).is_some_and(|(bid, ask)| bid.e9() > ask.e9())
}

/// An occurrence of a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Example {
    /// The instrument.
    pub instrument: InstrumentId,
    /// When the difference began.
    pub time: Nanos,
    /// Our bid and offer.
    pub ours: [Quoted; 2],
    /// The SIP's bid and offer.
    pub sip: [Quoted; 2],
}

/// How often and how long two quotes differ in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Number of times that it began.
    pub times: u64,
    /// Total duration in nanoseconds, summed over symbols if there are several.
    pub ns: u128,
}

/// The lags of a symbol.
#[derive(Clone, Debug)]
pub struct Lags {
    kept: Vec<i64>,
    pairs: u64,
    /// Only one lag in `stride` is kept.
    stride: u64,
}

impl Default for Lags {
    fn default() -> Self {
        Self { kept: Vec::new(), pairs: 0, stride: 1 }
    }
}

impl Lags {
    fn put(&mut self, lag_ns: i64) {
        self.pairs += 1;
        if !self.pairs.is_multiple_of(self.stride) {
            return;
        }
        if self.kept.len() == MOST_LAGS {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.stride *= 2;
        }
        self.kept.push(lag_ns);
    }

    /// Returns the number of prices that both reached.
    #[must_use]
    pub const fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Returns these percentiles of the lags, in nanoseconds; `None` without a pair. Each lag of several symbols has equal weight.
    #[must_use]
    pub fn percentiles<const N: usize>(of: &[&Self], percents: [u32; N]) -> Option<[i64; N]> {
        let mut weighted: Vec<(i64, u64)> =
            of.iter().flat_map(|lags| lags.kept.iter().map(|lag| (*lag, lags.stride))).collect();
        weighted.sort_unstable();
        let total: u64 = weighted.iter().map(|(_, weight)| weight).sum();
        let last = weighted.last()?.0;
        Some(percents.map(|percent| {
            let place = total * u64::from(percent) / 100;
            let mut before = 0;
            let found = weighted.iter().find(|(_, weight)| {
                before += weight;
                before > place
            });
            found.map_or(last, |(lag, _)| *lag)
        }))
    }
}

/// The comparison of one symbol.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The SIP that has quoted it, or `None` if none has and there is nothing to compare.
    pub sip: Option<Publisher>,
    /// Time from the SIP's first quote to the last event, in nanoseconds.
    pub ns: u64,
    /// Part of that time during which the prices of both sides were equal.
    pub equal_price_ns: u64,
    /// Part of that time during which the sizes were equal too.
    pub equal_ns: u64,
    /// Number of changes of our NBBO and of the SIP's.
    pub changes: [u64; 2],
    /// Lags between the two.
    pub lags: Lags,
    /// Number of prices without a pair: ours and the SIP's.
    pub unpaired: [u64; 2],
    /// Counts in the order of [`Difference::ALL`].
    pub differences: [Count; Difference::ALL.len()],
    ours: [Quoted; 2],
    theirs: [Quoted; 2],
    /// The current differences, one bit each.
    now: u16,
    since: Nanos,
    /// Prices waiting for their pair, by side: ours and the SIP's.
    waiting: [[VecDeque<(Price, Nanos)>; 2]; 2],
}

/// Whose quote changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours = 0,
    Sips = 1,
}

impl Compared {
    /// Accounts for the time since the last change.
    fn account(&mut self, now: Nanos) {
        let elapsed = now.0.saturating_sub(self.since.0);
        self.since = self.since.max(now);
        if self.sip.is_none() || elapsed == 0 {
            return;
        }
        self.ns += elapsed;
        let mut has_other_price = false;
        for (bit, (difference, count)) in Difference::ALL.iter().zip(&mut self.differences).enumerate() {
            if self.now & 1 << bit != 0 {
                count.ns += u128::from(elapsed);
                has_other_price |= difference.is_of_price();
            }
        }
        self.equal_price_ns += if has_other_price { 0 } else { elapsed };
        self.equal_ns += if self.now == 0 { elapsed } else { 0 };
    }

    /// Applies a new quote. Returns the differences that begin with it, one bit each.
    fn change(&mut self, whose: Whose, quote: [Quoted; 2], now: Nanos) -> u16 {
        self.account(now);
        let before =
            std::mem::replace(if whose == Whose::Ours { &mut self.ours } else { &mut self.theirs }, quote);
        if self.sip.is_none() {
            return 0;
        }
        self.changes[whose as usize] += u64::from(before != quote);
        for (side, (before, after)) in before.iter().zip(&quote).enumerate() {
            if let Some(price) = after.0.filter(|price| before.0 != Some(*price)) {
                self.reach(whose, side, price, now);
            }
        }
        let mut differences = 0;
        for (bit, difference) in Difference::ALL.iter().enumerate() {
            differences |= u16::from(difference.is_between(&self.ours, &self.theirs)) << bit;
        }
        let begun = differences & !self.now;
        self.now = differences;
        for (bit, count) in self.differences.iter_mut().enumerate() {
            count.times += u64::from(begun >> bit & 1);
        }
        begun
    }

    /// Records that one of them reached a price on a side.
    fn reach(&mut self, whose: Whose, side: usize, price: Price, now: Nanos) {
        let [ours, theirs] = &mut self.waiting[side];
        let (own, other, other_unpaired) = match whose {
            Whose::Ours => (ours, theirs, 1),
            Whose::Sips => (theirs, ours, 0),
        };
        while other.front().is_some_and(|(_, time)| time.0.saturating_add(LONGEST_WAIT_NS) < now.0) {
            other.pop_front();
            self.unpaired[other_unpaired] += 1;
        }
        if let Some(place) = other.iter().position(|(waiting, _)| *waiting == price) {
            // The other has moved past the prices that it reached earlier.
            self.unpaired[other_unpaired] += place as u64;
            let (_, time) = other.drain(..=place).next_back().unwrap_or((price, now));
            let lag = i64::try_from(now.0.saturating_sub(time.0)).unwrap_or(i64::MAX);
            self.lags.put(if whose == Whose::Sips { lag } else { -lag });
            return;
        }
        if own.len() == MOST_WAITING {
            own.pop_front();
            self.unpaired[whose as usize] += 1;
        }
        own.push_back((price, now));
    }
}

/// Compares the updates of a replay.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    symbols: Vec<Compared>,
    examples: [Option<Example>; Difference::ALL.len()],
    /// Updates of instruments beyond the maximum.
    left_out: u64,
    last: Nanos,
}

impl Comparison {
    /// Takes an update of a book, with the NBBO after it.
    #[inline]
    pub fn put(&mut self, update: &NbboUpdate<'_>) {
        let event = update.book.event;
        self.last = self.last.max(event.ts_recv);
        let is_sips = matches!(event.publisher, Publisher::SIP_UTP | Publisher::SIP_CTA)
            && matches!(event.kind, EventKind::Quote | EventKind::Clear);
        if is_sips {
            self.of_sip(update);
        } else if update.changed {
            self.of_ours(event.instrument, update.nbbo, event.ts_recv);
        }
    }

    fn of_sip(&mut self, update: &NbboUpdate<'_>) {
        let event = update.book.event;
        if event.kind == EventKind::Quote && !event.flags().contains(Flags::LAST) {
            return;
        }
        let quote = [Side::Bid, Side::Ask].map(|side| match update.book.book.best(side) {
            Some(level) => (Some(level.price), level.size),
            None => (None, 0),
        });
        let Some(symbol) = self.symbol(event.instrument) else { return };
        symbol.account(event.ts_recv);
        symbol.sip = Some(event.publisher);
        let begun = symbol.change(Whose::Sips, quote, event.ts_recv);
        self.note(event.instrument, begun, event.ts_recv);
    }

    fn of_ours(&mut self, instrument: InstrumentId, nbbo: &Nbbo, time: Nanos) {
        let quote = [nbbo.bid, nbbo.ask].map(|side| (side.price, side.venue_size));
        let Some(symbol) = self.symbol(instrument) else { return };
        let begun = symbol.change(Whose::Ours, quote, time);
        self.note(instrument, begun, time);
    }

    fn symbol(&mut self, instrument: InstrumentId) -> Option<&mut Compared> {
        let index = instrument.index();
        if index >= MOST_SYMBOLS {
            self.left_out += 1;
            return None;
        }
        if index >= self.symbols.len() {
            self.symbols.resize_with(index + 1, Compared::default);
        }
        self.symbols.get_mut(index)
    }

    /// Keeps an example of each new kind of difference.
    fn note(&mut self, instrument: InstrumentId, begun: u16, time: Nanos) {
        let Some(symbol) = self.symbols.get(instrument.index()).filter(|_| begun != 0) else { return };
        for (bit, example) in self.examples.iter_mut().enumerate() {
            if begun >> bit & 1 != 0 && example.is_none() {
                *example = Some(Example { instrument, time, ours: symbol.ours, sip: symbol.theirs });
            }
        }
    }

    /// Ends the comparison: it accounts for the time since the last changes, and counts waiting prices as unpaired.
    pub(crate) fn finish(&mut self) {
        for symbol in &mut self.symbols {
            symbol.account(self.last);
            for side in &symbol.waiting {
                for (unpaired, waiting) in symbol.unpaired.iter_mut().zip(side) {
                    *unpaired += waiting.len() as u64;
                }
            }
        }
    }

    /// Returns the symbols that a SIP has quoted, by instrument number.
    pub fn symbols(&self) -> impl Iterator<Item = (InstrumentId, &Compared)> {
        let numbered = self.symbols.iter().enumerate();
        numbered.map(|(index, one)| (InstrumentId(index as u32), one)).filter(|(_, one)| one.sip.is_some())
    }

    /// Returns each difference that occurred, with its count over all symbols and an example.
    pub fn differences(&self) -> impl Iterator<Item = (Difference, Count, Example)> {
        Difference::ALL.into_iter().enumerate().filter_map(|(place, difference)| {
            let count = self.symbols().fold(Count::default(), |sum, (_, one)| {
                let count = one.differences[place];
                Count { times: sum.times + count.times, ns: sum.ns + count.ns }
            });
            Some((difference, count, self.examples[place]?))
        })
    }

    /// Returns the number of updates of instruments beyond the maximum, which are not compared.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTP: Option<Publisher> = Some(Publisher::SIP_UTP);

    fn quote(bid: i64, ask: i64) -> [Quoted; 2] {
        [bid, ask].map(|cents| (Price::from_e9(cents * 10_000_000), 100))
    }

    #[test]
    fn the_time_of_each_difference_is_counted_from_the_sips_first_quote() {
        let mut one = Compared::default();
        one.change(Whose::Ours, quote(10, 12), Nanos(1_000));
        one.account(Nanos(2_000));
        one.sip = UTP;
        one.change(Whose::Sips, quote(10, 12), Nanos(2_000));
        // Equal for 100, then our bid is better for 50, then theirs for 30, then only the size differs.
        assert_eq!(one.change(Whose::Ours, quote(11, 12), Nanos(2_100)), 1 << 0);
        assert_eq!(one.change(Whose::Sips, quote(11, 12), Nanos(2_150)), 0);
        assert_eq!(one.change(Whose::Sips, quote(12, 12), Nanos(2_200)), 1 << 1 | 1 << 12);
        assert_eq!(
            one.change(Whose::Ours, [(quote(12, 12)[0].0, 300), quote(12, 12)[1]], Nanos(2_230)),
            1 << 2
        );
        one.account(Nanos(2_300));
        assert_eq!((one.ns, one.equal_price_ns, one.equal_ns), (300, 100 + 50 + 70, 150));
        let [better_here, better_there, size, ..] = one.differences;
        let count = |times, ns| Count { times, ns };
        assert_eq!([better_here, better_there, size], [count(1, 50), count(1, 30), count(1, 70)]);
        assert_eq!(one.differences[12], count(1, 30), "locked at the SIP alone");
        assert_eq!(one.changes, [2, 3]);
    }

    #[test]
    fn a_price_that_both_reach_has_a_lag_and_those_passed_by_have_no_pair() {
        let mut one = Compared { sip: UTP, ..Compared::default() };
        for (whose, bid, time) in [
            (Whose::Ours, 10, 1_000),
            (Whose::Ours, 11, 1_100),
            (Whose::Sips, 11, 1_350),
            // The SIP is first.
            (Whose::Sips, 12, 2_000),
            (Whose::Ours, 12, 2_040),
            // Nobody follows within a second.
            (Whose::Ours, 13, 3_000),
            (Whose::Sips, 13, 3_001 + LONGEST_WAIT_NS),
        ] {
            one.change(whose, [quote(bid, 0)[0], (None, 0)], Nanos(time));
        }
        assert_eq!(one.lags.kept, [250, -40]);
        assert_eq!(one.unpaired, [2, 0]);
        assert_eq!(Lags::percentiles(&[&one.lags], [0, 50, 100]), Some([-40, 250, 250]));
        assert_eq!(Lags::percentiles(&[], [50]), None);
    }

    #[test]
    fn the_lags_kept_are_bounded_and_spread_over_all() {
        let mut lags = Lags::default();
        (0..100_000).for_each(|lag| lags.put(lag));
        assert!(lags.kept.len() <= MOST_LAGS && lags.pairs() == 100_000);
        let [low, middle, high] = Lags::percentiles(&[&lags], [1, 50, 99]).unwrap();
        assert!((500..1_500).contains(&low) && (48_000..52_000).contains(&middle) && high > 98_000);
    }
}
