//! Bars: open, high, low, close, volume, number of trades and average price, per symbol and interval.
//!
//! Which trades update which values is a separate rule: [`sale_conditions`]. A round lot is the NBBO's, even for a venue that
//! states none: [`NbboUpdate::round_lot`]. So a bar may have a volume and no price. Its average price covers all trades in its
//! volume. An interval without trades has no bar. The clock is the receive time, as for the `ohlcv` schemas: a late trade goes into
//! the current bar. Regular hours come from the trade's condition, its venue's session messages, or the calendar of the US equity
//! markets, in this order; London's venues have no other hours.
//!
//! Trades of all venues share one bar, or each venue has its own. If a venue has several feeds, only the feed that delivers the
//! first trade counts.
//!
//! A broken trade is in no bar, and a corrected one counts, as corrected, in the bar of the original, however late the break comes:
//! all trades are kept to the end of the input, and bars that lost a trade are rebuilt from the others. A break identifies its trade
//! by number, and by instrument if the venue states it (Cboe does not). It belongs to the same day in New York. A break of a trade
//! that no bar has changes nothing and is counted.
//!
//! Cost: one search in a small tree per trade, and, if there are breaks, two passes over the trades. Memory: 120 bytes per bar and
//! 32 per trade, for at most [`MOST_BARS`] and [`MOST_TRADES`] of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tapeworks_market::sale_conditions::{self, SaleRules, Updates};
use tapeworks_market::{Event, EventKind, InstrumentId, NbboUpdate, Price, Publisher};
use tapeworks_store::trade_of;
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::hours::VenueHours;

/// Maximum number of bars kept. Further bars are only counted.
pub const MOST_BARS: usize = 1 << 22;

/// Maximum number of trades kept for breaks (half a gigabyte). Breaks of further trades change nothing.
pub const MOST_TRADES: usize = 1 << 24;

/// Maximum number of breaks kept. Further breaks change nothing.
pub const MOST_BREAKS: usize = 1 << 20;

/// Options for building bars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The width of an interval. At least 1.
    pub interval_ns: u64,
    /// Whether each venue has separate bars.
    pub by_venue: bool,
    /// The trades that count in addition to the table of sale conditions.
    pub rules: SaleRules,
}

/// A bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Start of its interval.
    pub start: Nanos,
    /// The instrument.
    pub instrument: InstrumentId,
    /// The venue's feed; `None` for a bar of all venues.
    pub publisher: Option<Publisher>,
    /// The first price eligible as a last price.
    pub open: Option<Price>,
    /// The highest price.
    pub high: Option<Price>,
    /// The lowest price.
    pub low: Option<Price>,
    /// The last price eligible as one.
    pub close: Option<Price>,
    /// Volume in shares.
    pub volume: u64,
    /// Number of trades in the volume.
    pub trades: u64,
    /// Sum over the trades in the volume of price (in 1e-9) times shares.
    pub notional: i128,
}

impl Bar {
    const fn new(start: Nanos, instrument: InstrumentId, publisher: Option<Publisher>) -> Self {
        let (open, high, low, close) = (None, None, None, None);
        Self { start, instrument, publisher, open, high, low, close, volume: 0, trades: 0, notional: 0 }
    }

    /// Adds a trade.
    fn add(&mut self, price: Price, size: u64, high_low: bool, last: bool) {
        self.volume = self.volume.saturating_add(size);
        self.trades += 1;
        self.notional += i128::from(price.e9()) * i128::from(size);
        if high_low {
            self.high = Some(self.high.map_or(price, |high| high.max(price)));
            self.low = Some(self.low.map_or(price, |low| low.min(price)));
        }
        if last {
            self.open = self.open.or(Some(price));
            self.close = Some(price);
        }
    }

    /// Returns the volume-weighted average price, rounded to the nearest 1e-9.
    #[must_use]
    pub fn vwap(&self) -> Option<Price> {
        let volume = i128::from(self.volume);
        let twice = (2 * self.notional + volume).checked_div_euclid(2 * volume)?;
        i64::try_from(twice).ok().and_then(Price::from_e9)
    }
}

/// A trade of a bar.
#[derive(Clone, Copy, Debug)]
struct Counted {
    number: u64,
    price: Price,
    size: u64,
    /// Its bar, by index.
    bar: u32,
    publisher: Publisher,
    channel: u16,
    /// Flags: whether it may be the high or low, may be the last price, and was within regular hours.
    bits: u8,
}

impl Counted {
    const HIGH_LOW: u8 = 1;
    const LAST: u8 = 2;
    const REGULAR: u8 = 4;

    const fn bits(updates: Updates, is_regular: bool) -> u8 {
        (updates.high_low as u8 * Self::HIGH_LOW)
            | (updates.last as u8 * Self::LAST)
            | (is_regular as u8 * Self::REGULAR)
    }
}

/// The terms of a corrected trade. What it updates depends on whether the original trade was within regular hours.
#[derive(Clone, Copy, Debug)]
struct Corrected {
    price: Price,
    size: u64,
    outside: Updates,
    regular: Updates,
}

/// A break or correction of a trade.
#[derive(Clone, Copy, Debug)]
struct Break {
    /// Number of trades counted before it.
    at: usize,
    number: u64,
    publisher: Publisher,
    instrument: InstrumentId,
    channel: u16,
    sequence: u64,
    /// Midnight of the trade's day.
    midnight: Nanos,
    /// The corrected terms, if the trade was corrected rather than broken.
    corrected: Option<Corrected>,
}

/// Builds bars from the updates of a replay.
#[derive(Clone, Debug)]
pub struct Bars {
    options: Options,
    /// End of the current interval.
    end: Option<u64>,
    /// Indexes of the bars of the current interval. Bars beyond the maximum have none.
    running: BTreeMap<(InstrumentId, Publisher), u32>,
    bars: Vec<Bar>,
    /// Number of bars in completed intervals.
    ended: usize,
    /// The first `whole` bars have all of their trades in `trades`.
    whole: usize,
    trades: Vec<Counted>,
    pending: Vec<Break>,
    /// By venue, the feed whose trades count.
    counting: BTreeMap<u16, Publisher>,
    hours: VenueHours,
    /// Trades that updated nothing.
    pub uncounted: u64,
    /// Trades and breaks from a venue's second feed.
    pub repeated: u64,
    /// Broken trades, which are in no bar.
    pub broken: u64,
    /// Corrected trades; bars contain their corrected terms.
    pub corrected: u64,
    /// Breaks and corrections of trades that are in no bar.
    pub unmatched: u64,
    /// Bars beyond [`MOST_BARS`].
    pub left_out: u64,
}

impl Bars {
    /// Starts without trades.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options: Options { interval_ns: options.interval_ns.max(1), ..options },
            end: None,
            running: BTreeMap::new(),
            bars: Vec::new(),
            ended: 0,
            whole: usize::MAX,
            trades: Vec::new(),
            pending: Vec::new(),
            counting: BTreeMap::new(),
            hours: VenueHours::default(),
            uncounted: 0,
            repeated: 0,
            broken: 0,
            corrected: 0,
            unmatched: 0,
            left_out: 0,
        }
    }

    /// Returns the bars, once the input has ended, sorted by interval, instrument and venue.
    #[must_use]
    pub fn bars(&self) -> &[Bar] {
        &self.bars
    }

    /// Takes an update of a book.
    #[inline]
    pub fn put(&mut self, update: &NbboUpdate<'_>) {
        match update.book.event.kind {
            EventKind::Execute | EventKind::Trade => self.trade(update),
            EventKind::TradeBreak => self.note_break(update.book.event),
            _ => {}
        }
    }

    /// Takes an event of any time, because sessions may open before the time span of the bars.
    #[inline]
    pub(crate) fn note_session(&mut self, event: &Event) {
        self.hours.note(event);
    }

    fn trade(&mut self, update: &NbboUpdate<'_>) {
        let event = update.book.event;
        let now = event.ts_recv.0;
        if self.end.is_none_or(|end| now >= end) {
            self.end_interval();
            let width = self.options.interval_ns;
            self.end = Some((now / width).saturating_add(1).saturating_mul(width));
        }
        if self.is_repeated(event.publisher) {
            self.repeated += 1;
            return;
        }
        let is_correction = self.pending.last().is_some_and(|broken| broken.is_corrected_by(event));
        let Ok(trade) = trade_of(&update.book) else {
            self.uncounted += u64::from(!is_correction);
            return;
        };
        let (lot, rules) = (update.round_lot(), self.options.rules);
        let updates_if = |is_regular| sale_conditions::updates(event, lot, is_regular, &rules);
        if is_correction {
            let (outside, regular) = (updates_if(false), updates_if(true));
            if let Some(broken) = self.pending.last_mut()
                && let Some(price) = Price::from_e9(trade.price).filter(|_| regular.volume)
            {
                broken.corrected = Some(Corrected { price, size: event.shares(), outside, regular });
            }
            return;
        }
        let is_regular = self.hours.is_regular(event);
        let updates = updates_if(is_regular);
        let Some(price) = Price::from_e9(trade.price).filter(|_| updates.volume) else {
            self.uncounted += 1;
            return;
        };
        let Some(place) = self.place(event) else { return };
        if let Some(bar) = self.bars.get_mut(place as usize) {
            bar.add(price, event.shares(), updates.high_low, updates.last);
        }
        if self.trades.len() < MOST_TRADES {
            self.trades.push(Counted {
                number: event.aux,
                price,
                size: event.shares(),
                bar: place,
                publisher: event.publisher,
                channel: event.channel,
                bits: Counted::bits(updates, is_regular),
            });
        } else {
            self.whole = self.whole.min(self.ended);
        }
    }

    /// Returns the index of a trade's bar, or `None` if there are too many bars.
    fn place(&mut self, event: &Event) -> Option<u32> {
        let publisher = Some(event.publisher).filter(|_| self.options.by_venue);
        let key = (event.instrument, publisher.unwrap_or_default());
        if let Some(place) = self.running.get(&key) {
            return Some(*place).filter(|place| (*place as usize) < self.bars.len());
        }
        let place = self.bars.len();
        self.running.insert(key, if place < MOST_BARS { place as u32 } else { u32::MAX });
        if place == MOST_BARS {
            self.left_out += 1;
            return None;
        }
        let start = Nanos(self.end.unwrap_or_default().saturating_sub(self.options.interval_ns));
        self.bars.push(Bar::new(start, event.instrument, publisher));
        Some(place as u32)
    }

    /// Whether the trades of a different feed of the venue count.
    fn is_repeated(&mut self, publisher: Publisher) -> bool {
        let venue = publisher.feed().map_or(publisher.0, |feed| feed.venue.id);
        *self.counting.entry(venue).or_insert(publisher) != publisher
    }

    #[cold]
    fn note_break(&mut self, event: &Event) {
        if self.is_repeated(event.publisher) {
            self.repeated += 1;
        } else if self.pending.len() < MOST_BREAKS {
            self.pending.push(Break {
                at: self.trades.len(),
                number: event.aux,
                publisher: event.publisher,
                instrument: event.instrument,
                channel: event.channel,
                sequence: event.channel_sequence,
                midnight: clock::midnight_before(event.ts_recv).unwrap_or_default(),
                corrected: None,
            });
        } else {
            self.unmatched += 1;
        }
    }

    fn end_interval(&mut self) {
        self.running.clear();
        self.ended = self.bars.len();
    }

    /// Ends the current interval at the end of the input, and applies the breaks.
    pub(crate) fn finish(&mut self) {
        self.end_interval();
        if !self.pending.is_empty() {
            self.take_back();
        }
        self.trades = Vec::new();
        self.bars.retain(|bar| bar.trades > 0);
        self.bars.sort_by_key(|bar| (bar.start, bar.instrument, bar.publisher));
    }

    /// Applies breaks and corrections to the trades, and rebuilds the affected bars.
    fn take_back(&mut self) {
        let breaks = std::mem::take(&mut self.pending);
        let numbers: HashSet<(Publisher, u64)> =
            breaks.iter().map(|broken| (broken.publisher, broken.number)).collect();
        let mut known = Known::default();
        let (mut from, mut gone, mut changed) = (0, HashSet::new(), BTreeSet::new());
        for broken in &breaks {
            for place in from..broken.at {
                let Some(trade) = self.trades.get(place) else { break };
                if numbers.contains(&(trade.publisher, trade.number))
                    && let Some(bar) = self.bars.get(trade.bar as usize)
                {
                    known.note(trade, bar.instrument, place);
                }
            }
            from = broken.at;
            let place = known.place_of(broken).filter(|place| !gone.contains(place));
            let found = place.zip(place.and_then(|place| self.trades.get_mut(place)));
            let of_day = found.filter(|(_, trade)| {
                let bar = self.bars.get(trade.bar as usize).filter(|_| (trade.bar as usize) < self.whole);
                bar.is_some_and(|bar| {
                    bar.start.0.saturating_add(self.options.interval_ns) > broken.midnight.0
                })
            });
            let Some((place, trade)) = of_day else {
                self.unmatched += 1;
                continue;
            };
            changed.insert(trade.bar);
            let Some(corrected) = broken.corrected else {
                self.broken += 1;
                gone.insert(place);
                continue;
            };
            self.corrected += 1;
            let is_regular = trade.bits & Counted::REGULAR != 0;
            let updates = if is_regular { corrected.regular } else { corrected.outside };
            (trade.price, trade.size) = (corrected.price, corrected.size);
            trade.bits = Counted::bits(updates, is_regular);
        }
        for place in &changed {
            if let Some(bar) = self.bars.get_mut(*place as usize) {
                *bar = Bar::new(bar.start, bar.instrument, bar.publisher);
            }
        }
        for (place, trade) in self.trades.iter().enumerate() {
            if changed.contains(&trade.bar)
                && !gone.contains(&place)
                && let Some(bar) = self.bars.get_mut(trade.bar as usize)
            {
                let is = |bit| trade.bits & bit != 0;
                bar.add(trade.price, trade.size, is(Counted::HIGH_LOW), is(Counted::LAST));
            }
        }
    }
}

impl Break {
    /// Whether `trade` replaces the broken one: the same message reports both.
    fn is_corrected_by(&self, trade: &Event) -> bool {
        (self.publisher, self.channel, self.sequence)
            == (trade.publisher, trade.channel, trade.channel_sequence)
            && (self.number, self.instrument) == (trade.aux, trade.instrument)
            && self.corrected.is_none()
    }
}

/// Index of the last trade for each number that some break refers to.
#[derive(Debug, Default)]
struct Known {
    by_instrument: HashMap<(Publisher, InstrumentId, u64), usize>,
    /// For breaks without an instrument: the instrument and the index; no index if two instruments share the number.
    by_channel: HashMap<(Publisher, u16, u64), (InstrumentId, Option<usize>)>,
}

impl Known {
    fn note(&mut self, trade: &Counted, instrument: InstrumentId, place: usize) {
        self.by_instrument.insert((trade.publisher, instrument, trade.number), place);
        let key = (trade.publisher, trade.channel, trade.number);
        let one = self.by_channel.entry(key).or_insert((instrument, Some(place)));
        one.1 = if one.0 == instrument { one.1.and(Some(place)) } else { None };
    }

    fn place_of(&self, broken: &Break) -> Option<usize> {
        if broken.instrument != InstrumentId::UNKNOWN {
            return self.by_instrument.get(&(broken.publisher, broken.instrument, broken.number)).copied();
        }
        self.by_channel.get(&(broken.publisher, broken.channel, broken.number)).and_then(|(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_market::event::Definition;
    use tapeworks_market::nbbo::NbboRules;
    use tapeworks_market::round_lots::RoundLotPrices;
    use tapeworks_market::{BookStage, NbboStage, Symbol};
    use tapeworks_stage::{Stage as _, Through};

    use super::*;

    /// 2025-11-14, midnight in New York.
    const DAY: u64 = 1_763_096_400 * Nanos::SECOND;

    const MINUTE: u64 = 60 * Nanos::SECOND;

    const FEEDS: [Publisher; 4] =
        [Publisher::XNAS_ITCH, Publisher::BATS_PITCH, Publisher::IEXG_TOPS, Publisher::IEXG_DEEP];

    /// A trade: feed, instrument, seconds since midnight, price in cents, shares, detail.
    type Of = (usize, u32, u64, i64, u32, u8);

    fn event((feed, instrument, seconds, cents, size, detail): &Of) -> Event {
        let mut event = Event::new(EventKind::Trade, FEEDS[*feed], InstrumentId(*instrument));
        event.ts_recv = Nanos(DAY + seconds * Nanos::SECOND);
        event.ts_event = event.ts_recv;
        (event.size, event.detail, event.price) = (*size, *detail, Price::from_e9(cents * 10_000_000));
        event
    }

    /// Numbers each trade by its index.
    fn numbered(trades: &[Of]) -> Vec<Event> {
        trades.iter().zip(0..).map(|(trade, aux)| Event { aux, ..event(trade) }).collect()
    }

    fn bars_of(trades: &[Of], options: Options) -> Bars {
        bars_of_events(&numbered(trades), NbboRules::default(), options)
    }

    /// A break of the trade with this number, `later` seconds later. Cboe names no instrument.
    fn broken(trade: &Of, number: usize, later: u64) -> Event {
        let at = event(&(trade.0, trade.1, trade.2 + later, trade.3, trade.4, 0));
        let instrument = if trade.0 == 1 { InstrumentId::UNKNOWN } else { at.instrument };
        Event { kind: EventKind::TradeBreak, aux: number as u64, instrument, ..at }
    }

    fn bars_of_events(events: &[Event], rules: NbboRules, options: Options) -> Bars {
        let mut bars = Bars::new(options);
        let nbbo = NbboStage::new(rules, [], 1);
        let mut market = Through::new(BookStage::new([]), nbbo);
        for event in events {
            market.process(&[*event], &mut |update: NbboUpdate<'_>| bars.put(&update));
        }
        bars.finish();
        bars
    }

    /// Details of trades: printable or not, of an auction or not, with and without a sale condition.
    fn details() -> impl Strategy<Value = u8> {
        let letters = [0, 0, Event::NOT_LAST, Event::NOT_LAST | Event::NOT_HIGH_LOW];
        (0..4u8, prop::sample::select(letters.to_vec())).prop_map(|(detail, letter)| detail | letter)
    }

    /// Computes every bar separately, from all trades except the removed ones.
    fn slowly(trades: &[Of], gone: &[bool], options: &Options) -> Vec<Bar> {
        let venue = |feed: usize| if feed == 3 { 2 } else { feed };
        let counts = |trade: &&Of| {
            let first = trades.iter().find(|other| venue(other.0) == venue(trade.0)).unwrap();
            first.0 == trade.0 && trade.5 & Event::NOT_PRINTABLE == 0
        };
        let rules = &options.rules;
        let is_priced = |trade: &&&Of| {
            let is_regular = (34_200..57_600).contains(&trade.2) || rules.extended_hours_count;
            trade.5 & Event::CROSS != 0 || (trade.4 >= 100 || rules.odd_lots_count) && is_regular
        };
        let price_of = |trade: &&Of| event(trade).price;
        let of_letter = |letter: u8| move |trade: &&&Of| trade.5 & letter == 0;
        let mut bars = Vec::new();
        let width = options.interval_ns / Nanos::SECOND;
        for begin in (0..86_400).step_by(width as usize) {
            for instrument in 0..3 {
                let of_feeds: Vec<Vec<usize>> = if options.by_venue {
                    vec![vec![0], vec![1], vec![2], vec![3]]
                } else {
                    vec![vec![0, 1, 2, 3]]
                };
                let mut found: Vec<Bar> = Vec::new();
                for feeds in of_feeds {
                    let of_bar: Vec<&Of> = trades
                        .iter()
                        .zip(gone)
                        .filter(|(_, gone)| !**gone)
                        .map(|(trade, _)| trade)
                        .filter(|trade| (begin..begin + width).contains(&trade.2) && trade.1 == instrument)
                        .filter(|trade| feeds.contains(&trade.0))
                        .filter(counts)
                        .collect();
                    let priced: Vec<&Of> = of_bar.iter().filter(is_priced).copied().collect();
                    let of = |letter| priced.iter().filter(of_letter(letter)).map(price_of);
                    let lasts: Vec<Option<Price>> = of(Event::NOT_LAST).collect();
                    if of_bar.is_empty() {
                        continue;
                    }
                    found.push(Bar {
                        start: Nanos(DAY + begin * Nanos::SECOND),
                        instrument: InstrumentId(instrument),
                        publisher: options.by_venue.then(|| FEEDS[feeds[0]]),
                        open: lasts.first().copied().flatten(),
                        high: of(Event::NOT_HIGH_LOW).max().flatten(),
                        low: of(Event::NOT_HIGH_LOW).min().flatten(),
                        close: lasts.last().copied().flatten(),
                        volume: of_bar.iter().map(|trade| u64::from(trade.4)).sum(),
                        trades: of_bar.len() as u64,
                        notional: of_bar
                            .iter()
                            .map(|trade| i128::from(trade.3) * 10_000_000 * i128::from(trade.4))
                            .sum(),
                    });
                }
                found.sort_by_key(|bar| bar.publisher);
                bars.extend(found);
            }
        }
        bars
    }

    proptest! {
        #[test]
        fn bars_are_what_a_slow_sum_gives(
            mut trades in prop::collection::vec(
                (0..4usize, 0..3u32, 33_000..59_000u64, 1..2_000i64, 1..300u32, details()), 0..60),
            interval in prop::sample::select(&[60u64, 900, 3_600][..]),
            by_venue in any::<bool>(),
            odd_lots_count in any::<bool>(),
            extended_hours_count in any::<bool>(),
        ) {
            trades.sort_by_key(|trade| trade.2);
            let rules = SaleRules { odd_lots_count, extended_hours_count };
            let options = Options { interval_ns: interval * Nanos::SECOND, by_venue, rules };
            let bars = bars_of(&trades, options);
            prop_assert_eq!(bars.bars(), &slowly(&trades, &vec![false; trades.len()], &options)[..]);
            let counted: u64 = bars.bars().iter().map(|bar| bar.trades).sum();
            prop_assert_eq!(counted + bars.uncounted + bars.repeated, trades.len() as u64);
        }

        #[test]
        fn broken_trades_are_in_no_bar_and_corrected_ones_as_corrected(
            mut trades in prop::collection::vec(
                (0..4usize, 0..3u32, 33_000..59_000u64, 1..2_000i64, 1..300u32, details()), 1..40),
            breaks in prop::collection::vec(
                (any::<prop::sample::Index>(), 0..20_000u64, prop::option::of((1..2_000i64, 1..300u32))), 0..20),
            interval in prop::sample::select(&[60u64, 900, 3_600][..]),
            by_venue in any::<bool>(),
        ) {
            trades.sort_by_key(|trade| trade.2);
            let options = Options { interval_ns: interval * Nanos::SECOND, by_venue, rules: SaleRules::default() };
            // Breaks in time order, each after the trades of its time.
            let mut breaks: Vec<_> = breaks
                .iter()
                .map(|(of, later, terms)| (of.index(trades.len()), *later, *terms))
                .collect();
            breaks.sort_by_key(|(of, later, _)| trades[*of].2 + later);
            let mut events = numbered(&trades);
            let first_of = |feed: usize| trades.iter().find(|other| other.0.min(2) == feed.min(2)).unwrap().0;
            let mut expected = trades.clone();
            let (mut gone, mut counts) = (vec![false; trades.len()], [0u64; 4]);
            for (sequence, (of, later, terms)) in (1..).zip(breaks) {
                let trade = trades[of];
                // Cboe and Nasdaq send no corrections; London and MEMX do, and any feed can represent them here.
                let terms = terms.filter(|_| trade.0 != 1);
                let stop = Event { channel_sequence: sequence, ..broken(&trade, of, later) };
                let mut new = vec![stop];
                if let Some((cents, size)) = terms {
                    let corrected = event(&(trade.0, trade.1, trade.2 + later, cents, size, trade.5));
                    new.push(Event { aux: of as u64, channel_sequence: sequence, ..corrected });
                }
                let at = events.iter().position(|one| one.ts_recv > stop.ts_recv).unwrap_or(events.len());
                let said = new.len() as u64;
                events.splice(at..at, new);
                if first_of(trade.0) != trade.0 {
                    counts[3] += said;
                } else if gone[of] || trade.5 & Event::NOT_PRINTABLE != 0 {
                    counts[2] += 1;
                } else if let Some((cents, size)) = terms {
                    (expected[of].3, expected[of].4) = (cents, size);
                    counts[1] += 1;
                } else {
                    gone[of] = true;
                    counts[0] += 1;
                }
            }
            let bars = bars_of_events(&events, NbboRules::default(), options);
            prop_assert_eq!(bars.bars(), &slowly(&expected, &gone, &options)[..]);
            let repeated = trades.iter().filter(|trade| first_of(trade.0) != trade.0).count() as u64;
            prop_assert_eq!([bars.broken, bars.corrected, bars.unmatched, bars.repeated - repeated], counts);
        }
    }

    #[test]
    fn an_average_price_is_rounded_to_the_nearest() {
        let options = Options { interval_ns: 1, by_venue: false, rules: SaleRules::default() };
        let mut bar = Bar::new(Nanos(0), InstrumentId(0), None);
        assert_eq!(bar.vwap(), None);
        for (volume, notional, vwap) in [(3, 10, 3), (3, 11, 4), (2, 5, 3), (4, 5, 1), (1, 7, 7)] {
            (bar.volume, bar.notional) = (volume, notional);
            assert_eq!(bar.vwap(), Price::from_e9(vwap), "{notional} / {volume}");
        }
        assert_eq!(Bars::new(Options { interval_ns: 0, ..options }).options, options);
    }

    #[test]
    fn a_venue_that_states_no_lot_has_that_of_the_nbbo() {
        let options = Options { interval_ns: MINUTE, by_venue: false, rules: SaleRules::default() };
        let rules = NbboRules {
            round_lot_prices: RoundLotPrices::parse("BKNG,5400").unwrap(),
            ..NbboRules::default()
        };
        let mapping = |instrument, symbol| {
            let event = Event::new(EventKind::SymbolMapping, FEEDS[1], InstrumentId(instrument));
            event.with_symbol(Symbol::parse(symbol).unwrap())
        };
        let definition = Definition {
            round_lot: 40,
            reference_price: None,
            tick: None,
            class: b' ',
            listing: b'Q',
            is_test: false,
            is_etp: false,
        };
        let stated = Event::new(EventKind::Definition, FEEDS[0], InstrumentId(0)).with_definition(definition);
        // Nasdaq states the first instrument's lot, the rule gives the second's, and the third has neither.
        let known = [mapping(0, "AAPL"), mapping(1, "BKNG"), mapping(2, "A"), stated];
        for (feed, instrument, lot) in [(0, 0, 40), (1, 0, 40), (1, 1, 10), (1, 2, 100)] {
            let is_priced = |shares| {
                let trade = event(&(feed, instrument, 36_000, 1_000, shares, 0));
                let bars = bars_of_events(&[&known[..], &[trade]].concat(), rules.clone(), options);
                assert_eq!((bars.bars().len(), bars.bars()[0].volume), (1, u64::from(shares)));
                bars.bars()[0].open.is_some()
            };
            assert_eq!([lot - 1, lot].map(is_priced), [false, true], "{feed}, {instrument}");
        }
    }

    #[test]
    fn a_break_takes_back_volume_prices_and_the_bar_itself() {
        let options = Options { interval_ns: MINUTE, by_venue: false, rules: SaleRules::default() };
        let trades =
            [(0, 0, 36_000, 1_000, 100, 0), (0, 0, 36_001, 1_200, 300, 0), (0, 0, 36_060, 900, 100, 0)];
        let mut events = numbered(&trades);
        // Hours later, breaks of the high and last of the first bar, and of the second bar's only trade.
        events.extend([broken(&trades[1], 1, 7_200), broken(&trades[2], 2, 7_200)]);
        let bars = bars_of_events(&events, NbboRules::default(), options);
        let [bar] = bars.bars() else { panic!("{:?}", bars.bars()) };
        let price = Price::from_e9(10_000_000_000);
        assert_eq!([bar.open, bar.high, bar.low, bar.close, bar.vwap()], [price; 5]);
        assert_eq!((bar.volume, bar.trades, bars.broken, bars.unmatched), (100, 1, 2, 0));
    }

    #[test]
    fn a_break_of_no_trade_of_its_day_changes_nothing() {
        let options = Options { interval_ns: MINUTE, by_venue: false, rules: SaleRules::default() };
        let (one, other) = ((1, 0, 36_000, 1_000, 100, 0), (1, 1, 36_000, 1_000, 100, 0));
        let trade = event(&one);
        let unmatched = |events: &[Event]| {
            let bars = bars_of_events(events, NbboRules::default(), options);
            assert_eq!(bars.broken, 0);
            assert_eq!(bars.bars().iter().map(|bar| bar.volume).sum::<u64>() % 100, 0);
            bars.unmatched
        };
        assert_eq!(unmatched(&[trade, broken(&one, 0, 86_400)]), 1, "of the next day");
        assert_eq!(unmatched(&[trade, broken(&one, 1, 60)]), 1, "of another number");
        assert_eq!(unmatched(&[broken(&one, 0, 0), trade]), 1, "before the trade");
        assert_eq!(unmatched(&[trade, event(&other), broken(&one, 0, 60)]), 1, "of two instruments");
    }
}
