//! The market: participants' actions and the resulting messages.
//!
//! Every symbol has one hidden reference price that walks on its tick grid. Orders at all venues are placed around it, so quotes
//! track each other. When it moves, quotes that are now on the wrong side are hit or withdrawn within microseconds, at every
//! venue.
//!
//! The venues follow Regulation NMS. A marketable order trades at the venue with the best price (Rule 611), and an order that
//! would lock or cross another venue is priced a tick away (Rule 610). Both rules have exceptions: intermarket sweeps, and quotes
//! that cross each other in flight. The venues together are therefore locked now and then and rarely crossed; a single venue
//! never is.
//!
//! Cost per message: one cache miss for the instrument, one to three for the book, and 40 bytes written. Memory: 16 bytes per
//! live order, 56 per book, and 24 per second of the session.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tapeworks_wire::nasdaq::itch50::{CrossType, ReasonCode, TradingState};

use crate::bands::LOOK_NS;
use crate::book::{Book, Order, Side};
use crate::consolidated::{self, Lots, Report, Sip};
use crate::dialect::Dialect as _;
use crate::dialects::for_dialect;
use crate::iex::{self, Quote};
use crate::instrument::{Instrument, symbol};
use crate::kinds::Shows;
use crate::nasdaq;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing, in_market_hours};
use crate::popularity::Chooser;
use crate::scenario::{CLOSE_NS, FEWEST_ORDERS, Scenario, ScenarioError, Unit, VenueKind, is_listed_at_iex};
use crate::schedule::Arrivals;
use crate::script::{Look, START_OF_MESSAGES, Script, Step, scripts};
use tapeworks_random::Random;

/// Attempts to find a symbol whose change is visible in the venue's feed.
const TRIALS: u32 = 8;
/// One in this many orders trades at its own venue, whatever the other venues display.
const SWEEPS: u32 = 64;
/// One in this many orders is priced without the other venues' latest quotes.
const UNAWARE: u32 = 4;
/// Mean duration of a locked market, in nanoseconds.
///
/// Stocks of the S&P 500 are locked for 2.5 seconds a day, 5.5 ms each time, and crossed for 4.2 ms a day (Nasdaq, "Locked,
/// Crossed and Barrel").
const LOCK_NS: u64 = 5_500_000;
/// Mean time until a participant corrects a market that is crossed across venues, or a quote on the wrong side, in nanoseconds.
const CORRECTION_NS: u64 = 15_000;

/// No bid and no offer.
const NO_TOP: [u32; 2] = [0, u32::MAX];

/// Length of the longest message that [`Generator::next_message`] writes, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 128;

/// A message written by [`Generator::next_message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated {
    /// Index of the venue in the scenario.
    pub venue: usize,
    /// When the venue made the message, in nanoseconds since 1970-01-01 00:00 UTC; it never decreases.
    pub timestamp_ns: u64,
    /// Number of bytes written.
    pub length: usize,
    /// The message's type.
    pub message_type: u8,
    /// How many times the feeds have restarted, on a later day or after a failure.
    pub run: u32,
}

/// A market's messages in time order.
pub trait Messages {
    /// Writes the next message to the start of `out`, which must have room for [`MAX_MESSAGE_BYTES`]. Returns `None` after the last.
    fn next_message(&mut self, out: &mut [u8]) -> Option<Generated>;
}

impl Messages for Generator {
    #[inline]
    fn next_message(&mut self, out: &mut [u8]) -> Option<Generated> {
        Self::next_message(self, out)
    }
}

impl<M: Messages> Messages for &mut M {
    #[inline]
    fn next_message(&mut self, out: &mut [u8]) -> Option<Generated> {
        (**self).next_message(out)
    }
}

/// The state of a venue.
#[derive(Debug, Clone)]
struct Venue {
    kind: VenueKind,
    unit: Unit,
    reference: u64,
    match_number: u64,
    last_print: Option<Print>,
    /// TOPS: the last quote sent for each symbol.
    quotes: Vec<Quote>,
    /// Phases sent so far, as ITCH letters.
    phases: Vec<u8>,
    /// ITCH: whether the circuit breaker's levels were published, and whether the breach of a level was.
    breaker: (bool, bool),
}

/// A market as a stream of messages in time order. The same scenario produces the same bytes.
///
/// ```
/// use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario};
///
/// # fn main() -> Result<(), tapeworks_generator::ScenarioError> {
/// let mut generator = Generator::new(&Scenario::full_session(10_000, 20))?;
/// let mut message = [0; MAX_MESSAGE_BYTES];
/// let mut adds = 0;
/// while let Some(generated) = generator.next_message(&mut message) {
///     adds += u64::from(generated.message_type == b'A');
/// }
/// assert!(adds > 3_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Generator {
    midnight_ns: u64,
    symbols: u32,
    instruments: Vec<Instrument>,
    /// By venue, then by symbol.
    books: Vec<Book>,
    /// By symbol, then by venue: the best bid and offer of an open book, with 0 and `u32::MAX` if there is none. A symbol's
    /// venues are adjacent, because every change of a book checks all of them.
    tops: Vec<[u32; 2]>,
    /// The venues that trade each symbol; a single entry applies to all symbols.
    carriers: Vec<Vec<u8>>,
    /// Indexed like `books`.
    standings: Vec<Standing>,
    venues: Vec<Venue>,
    venue_choice: Chooser,
    symbol_choice: Option<Chooser>,
    scripts: BinaryHeap<Reverse<Script>>,
    arrivals: Option<Arrivals>,
    /// For the arrivals, which are scheduled when the start of the day is published.
    scenario: Scenario,
    /// The scenario with all its runs, and the index of the current run.
    whole: Scenario,
    run: u64,
    /// When the feeds fail, in nanoseconds since midnight.
    fails_ns: u64,
    /// The direction of the market, which correlated symbols follow.
    market_rises: bool,
    /// Messages made in excess of one per arrival; negative if there are fewer.
    owed: i64,
    now_ns: u64,
    last: (usize, u32),
    random: Random,
    outbox: Outbox,
    /// IEX: levels changed by the current event.
    touched: Vec<(Side, u32)>,
    /// The published state of the SIPs among the venues.
    sips: Vec<Sip>,
    /// The quotes that the venues have reported to the SIPs, indexed like `books`; empty without a SIP.
    reported: Vec<Lots>,
    /// Number of quotes reported, and of those in flight to their SIP.
    reports: u32,
    on_their_way: u64,
}

/// Returns the indexes of the venues that trade each symbol, as one entry for all symbols if no market has units.
fn carriers(scenario: &Scenario) -> Vec<Vec<u8>> {
    let has_units = scenario.venues.iter().any(|venue| venue.unit.of > 1);
    let symbols = if has_units { scenario.symbols } else { 1 };
    // The scenario was checked to have at most MAX_MARKETS venues.
    let places = || scenario.venues.iter().zip(0_u8..);
    let of = |symbol| places().filter(|(venue, _)| venue.unit.has(symbol)).map(|(_, place)| place).collect();
    (0..symbols).map(of).collect()
}

impl Generator {
    /// Creates the market of this scenario, before its first message.
    ///
    /// # Errors
    /// The scenario violates a rule ([`Scenario::check_market`]).
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        scenario.check_market()?;
        Ok(Self::of_run(scenario.clone(), 0))
    }

    /// Creates the market of one run of a scenario.
    fn of_run(whole: Scenario, number: u64) -> Self {
        let run = whole.run(number);
        let scenario = &run.scenario;
        let mut random = Random::new(scenario.seed);
        let symbols = scenario.symbols as usize;
        // A symbol has a different locate on another day.
        let shift = run.day % scenario.symbols;
        let instrument = |index: u32| {
            let mut instrument = Instrument::new(index, scenario.listing_market(index), &mut random);
            instrument.symbol = symbol((index + shift) % scenario.symbols);
            instrument
        };
        let instruments = (0..scenario.symbols).map(instrument).collect();
        let places = 0..scenario.venues.len();
        let sips: Vec<Sip> = places.filter_map(|place| Sip::new(place, &scenario.venues, symbols)).collect();
        let venues = scenario
            .venues
            .iter()
            .map(|venue| Venue {
                kind: venue.kind,
                unit: venue.unit,
                reference: 0,
                match_number: 0,
                last_print: None,
                quotes: if venue.kind.is_tops() { vec![Quote::default(); symbols] } else { Vec::new() },
                phases: Vec::new(),
                breaker: (false, false),
            })
            .collect();
        Self {
            midnight_ns: scenario.midnight_ns,
            symbols: scenario.symbols,
            instruments,
            books: vec![Book::default(); symbols * scenario.venues.len()],
            tops: vec![NO_TOP; symbols * scenario.venues.len()],
            carriers: carriers(scenario),
            standings: vec![Standing::UNPUBLISHED; symbols * scenario.venues.len()],
            venues,
            venue_choice: Chooser::weighted(scenario.venues.iter().map(|venue| f64::from(venue.share))),
            symbol_choice: Chooser::of(scenario.popularity, scenario.symbols),
            scripts: scripts(&run).into_iter().map(Reverse).collect(),
            arrivals: None,
            run: number,
            fails_ns: if run.is_cut { scenario.end_ns } else { u64::MAX },
            whole,
            market_rises: true,
            owed: 0,
            now_ns: 0,
            last: (0, 0),
            random,
            outbox: Outbox::default(),
            touched: Vec::new(),
            reported: vec![
                Lots::default();
                if sips.is_empty() { 0 } else { symbols * scenario.venues.len() }
            ],
            reports: 0,
            on_their_way: 0,
            sips,
            scenario: run.scenario,
        }
    }

    /// Starts the next run. Returns false if this was the last.
    #[cold]
    fn begin_next_run(&mut self) -> bool {
        let next = self.run + 1;
        let has_next = next < self.whole.run_count();
        if has_next {
            *self = Self::of_run(self.whole.clone(), next);
        }
        has_next
    }

    /// Writes the next message to the start of `out`, which must have room for [`MAX_MESSAGE_BYTES`]. Returns `None` after the
    /// end of the session, or if `out` is too small for the message.
    #[inline]
    pub fn next_message(&mut self, out: &mut [u8]) -> Option<Generated> {
        while self.outbox.is_empty() {
            self.outbox.clear_if_taken();
            if !self.advance() && !self.begin_next_run() {
                return None;
            }
        }
        let (venue, timestamp_ns, message) = self.outbox.take()?;
        out.get_mut(..message.len())?.copy_from_slice(message);
        let kind = self.venues.get(venue)?.kind;
        let message_type = *message.get(for_dialect!(kind, D => D::TYPE_OFFSET))?;
        Some(Generated { venue, timestamp_ns, length: message.len(), message_type, run: self.run as u32 })
    }

    /// Returns the number of orders resting in all books.
    #[must_use]
    pub fn live_orders(&self) -> usize {
        self.books.iter().map(|book| book.side(Side::Buy).len() + book.side(Side::Sell).len()).sum()
    }

    /// Returns how many messages of a venue are made but not yet returned by [`Generator::next_message`]; [`Generator::image`]
    /// already includes their changes.
    #[must_use]
    pub fn pending(&self, venue: usize) -> u64 {
        self.outbox.pending_of(venue)
    }

    /// Iterates over those messages, in order.
    pub(crate) fn pending_messages(&self, venue: usize) -> impl Iterator<Item = &[u8]> {
        self.outbox.messages_of(venue)
    }

    /// Passes `put` the messages that describe the state of a venue to a receiver without history, in the venue's protocol.
    ///
    /// These are the phases of the day and then, for each symbol whose directory was sent: the directory, the trading state, the
    /// short sale price test, and the orders from the best on, oldest first (IEX DEEP: the levels; IEX TOPS: the quote).
    /// Attributions of orders, running auctions, and past trades are omitted. A venue that does not exist has no messages.
    pub fn image(&self, venue: usize, put: impl FnMut(&[u8])) {
        self.first_messages(venue, true, put);
    }

    /// Does the same; without an announcement it omits the start of messages, which announces that the numbers restart.
    pub(crate) fn first_messages(&self, venue: usize, announces: bool, mut put: impl FnMut(&[u8])) {
        let Some(state) = self.venues.get(venue) else { return };
        let (kind, of_market) = (state.kind, self.stamp(venue, None));
        let outbox = &mut Outbox::default();
        for code in state.phases.iter().filter(|code| announces || **code != START_OF_MESSAGES) {
            for_dialect!(kind, D => D::system_event(outbox, kind, &of_market, *code));
        }
        if state.breaker.0 {
            nasdaq::circuit_breaker_levels(outbox, &of_market);
        }
        if state.breaker.1 {
            nasdaq::circuit_breaker_breach(outbox, &of_market);
        }
        outbox.drain(&mut put);
        for symbol in 0..self.symbols {
            self.image_of(venue, symbol, outbox);
            outbox.drain(&mut put);
        }
    }

    /// Writes the messages of [`Generator::image`] about a symbol.
    fn image_of(&self, venue: usize, symbol: u32, outbox: &mut Outbox) {
        let index = self.book_index(venue, symbol);
        let (Some(book), Some(standing)) = (self.books.get(index), self.standings.get(index)) else { return };
        if !standing.is_published {
            return;
        }
        let (kind, stamp) = (self.venues[venue].kind, self.stamp(venue, Some(symbol)));
        let instrument = &self.instruments[symbol as usize];
        let stock = instrument.symbol;
        for_dialect!(kind, D => {
            D::directory(outbox, kind, &stamp, symbol, instrument, standing);
            if D::HAS_ORDERS {
                for side in [Side::Buy, Side::Sell] {
                    for order in book.side(side).iter().rev() {
                        D::change(outbox, &stamp, instrument, &Change::Add { side, order: *order, mpid: None });
                    }
                }
                return;
            }
        });
        if let Some(sip) = self.sips.iter().find(|sip| sip.venue == venue) {
            return sip.image(outbox, &stamp, symbol, instrument);
        }
        if kind.is_tops() {
            let quote = self.venues[venue].quotes.get(symbol as usize).copied().unwrap_or_default();
            iex::quote(outbox, &stamp, stock, quote, book.halted);
            return;
        }
        let mut levels: Vec<(Side, u32)> = Vec::new();
        for side in [Side::Buy, Side::Sell] {
            levels.extend(book.side(side).iter().rev().map(|order| (side, order.price)));
        }
        // Orders at one price are adjacent.
        levels.dedup();
        let last = levels.len().saturating_sub(1);
        for (number, level) in levels.iter().enumerate() {
            iex::level(outbox, &stamp, stock, book, *level, number == last);
        }
    }

    /// Runs the next due step. Returns false at the end of the session.
    fn advance(&mut self) -> bool {
        let script_ns = self.scripts.peek().map_or(u64::MAX, |Reverse(script)| script.time_ns);
        if self.arrivals.is_none() && script_ns >= self.scenario.start_ns {
            let scripted = self.made() + crate::script::messages_at_end(&self.scenario);
            self.arrivals =
                Some(Arrivals::new(&self.scenario, self.scenario.messages.saturating_sub(scripted)));
        }
        let arrival_ns = self.arrivals.as_ref().map_or(u64::MAX, Arrivals::peek);
        if script_ns.min(arrival_ns) >= self.fails_ns {
            return false;
        }
        let made = self.made();
        if script_ns <= arrival_ns {
            let Some(Reverse(script)) = self.scripts.pop() else { return false };
            self.now_ns = self.now_ns.max(script.time_ns);
            self.run(script);
            if self.arrivals.is_some() && script.time_ns < self.scenario.end_ns {
                self.owed += (self.made() - made) as i64;
            }
        } else {
            self.now_ns = self.now_ns.max(arrival_ns);
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance();
            }
            self.owed -= 1;
            if self.owed < 0 {
                self.act();
                if self.owed + ((self.made() - made) as i64) < 0 {
                    self.act();
                }
                self.owed += (self.made() - made) as i64;
            }
        }
        true
    }

    /// Returns the number of messages made, including those for quotes in flight to a SIP.
    fn made(&self) -> u64 {
        self.outbox.made() + self.on_their_way
    }

    // --- order flow ---

    /// Makes one event happen to a symbol at a venue.
    fn act(&mut self) {
        let made = self.made();
        for _ in 0..TRIALS {
            let choice = self.random.bits();
            let (venue, symbol) = match &self.symbol_choice {
                // One message in four is for the same symbol and venue as the previous one.
                Some(_) if choice & 3 == 0 => self.last,
                Some(popular) => {
                    (self.venue_choice.choose(&mut self.random), popular.choose(&mut self.random) as u32)
                }
                None => (self.venue_choice.choose(&mut self.random), self.random.below(self.symbols)),
            };
            let Some(venue) = self.unit_with(venue, symbol) else { continue };
            self.last = (venue, symbol);
            self.act_on(venue, symbol);
            if self.made() > made {
                return;
            }
        }
    }

    /// Iterates over the venues that trade a symbol.
    #[inline]
    fn carriers_of(&self, symbol: u32) -> impl Iterator<Item = usize> {
        let carriers = self.carriers.get(symbol as usize).or(self.carriers.first());
        carriers.into_iter().flatten().map(|venue| usize::from(*venue))
    }

    /// Returns the unit that trades a symbol, among the units of this venue's market.
    #[inline]
    fn unit_with(&self, venue: usize, symbol: u32) -> Option<usize> {
        let Venue { kind, unit, .. } = &self.venues[venue];
        if unit.has(symbol) {
            return Some(venue);
        }
        self.carriers_of(symbol).find(|other| {
            let other = &self.venues[*other];
            (other.kind, other.unit.of) == (*kind, unit.of)
        })
    }

    fn book_index(&self, venue: usize, symbol: u32) -> usize {
        venue * self.symbols as usize + symbol as usize
    }

    fn stamp(&self, venue: usize, symbol: Option<u32>) -> Stamp {
        // Each venue numbers the symbols differently.
        let locate = symbol.map_or(0, |symbol| ((symbol + 37 * venue as u32) % self.symbols + 1) as u16);
        let tracking = (self.now_ns >> 10) as u16 & 0xE;
        Stamp { venue, time_ns: self.now_ns, utc_ns: self.midnight_ns + self.now_ns, locate, tracking }
    }

    fn act_on(&mut self, venue: usize, symbol: u32) {
        let index = self.book_index(venue, symbol);
        if self.books[index].halted {
            return;
        }
        let choice = self.random.bits();
        let instrument = &mut self.instruments[symbol as usize];
        if choice & 0x7F == 0 {
            let own_way = choice & 0x80 == 0;
            // From bits that are not used otherwise.
            let percent = (((choice >> 12) & 0xFF) * 100 / 256) as u32;
            if (choice >> 20) & 0x3F == 0 {
                self.market_rises ^= self.scenario.correlation_percent > 0;
            }
            let follows = percent < self.scenario.correlation_percent;
            instrument.walk(if follows { self.market_rises } else { own_way });
        }
        let side = if choice & 0x100 == 0 { Side::Buy } else { Side::Sell };
        let orders = self.books[index].side(side).len();
        if self.is_behind(index, symbol, side) {
            self.take_or_withdraw(venue, symbol, side, choice & 0x600 == 0);
        } else if orders < FEWEST_ORDERS as usize {
            self.add(venue, symbol, side);
        } else if orders > self.scenario.most_orders as usize {
            let rank = self.random.below(orders as u32) as usize;
            self.delete(venue, symbol, side, rank);
        } else {
            match ((choice >> 32) * 10_000) >> 32 {
                0..4_480 => self.add(venue, symbol, side),
                4_480..8_450 => {
                    let rank = self.young_rank(index, side);
                    self.delete(venue, symbol, side, rank);
                }
                8_450..9_260 => self.replace(venue, symbol, side),
                9_260..9_690 => self.execute(venue, symbol, side),
                9_690..9_890 => self.cancel(venue, symbol, side),
                9_890..9_912 => self.execute_at_better_price(venue, symbol, side),
                9_912..9_992 => self.hidden_trade(venue, symbol),
                _ => self.retail_interest(venue, symbol),
            }
        }
        self.finish(venue, symbol);
        self.watch_other_venues(symbol);
    }

    /// Returns whether the side's best order is at or through the other side's natural price.
    fn is_behind(&self, index: usize, symbol: u32, side: Side) -> bool {
        let instrument = &self.instruments[symbol as usize];
        let Some(best) = self.books[index].best(side) else { return false };
        let limit = instrument.natural(side.other()) * instrument.tick;
        match side {
            Side::Buy => best.price >= limit,
            Side::Sell => best.price <= limit,
        }
    }

    fn take_or_withdraw(&mut self, venue: usize, symbol: u32, side: Side, take: bool) {
        let best = self.books[self.book_index(venue, symbol)].best(side);
        if take && best.is_some_and(|order| self.instruments[symbol as usize].may_trade_at(order.price)) {
            self.execute(venue, symbol, side);
        } else {
            self.delete(venue, symbol, side, 0);
        }
    }

    /// Returns a rank near the top: of two random orders the younger one's, because young orders die young.
    fn young_rank(&mut self, index: usize, side: Side) -> usize {
        let choice = self.random.bits();
        let (first, second) = (near_top(choice as u32), near_top((choice >> 32) as u32));
        let book = &self.books[index];
        match (book.at_rank(side, first), book.at_rank(side, second)) {
            (Some(one), Some(two)) if one.reference < two.reference => second,
            _ => first,
        }
    }

    fn next_reference(&mut self, venue: usize) -> u64 {
        let gap = 1 + (self.random.bits() & 3);
        let venue = &mut self.venues[venue];
        venue.reference += gap;
        // No two units use the same order number.
        venue.reference * u64::from(venue.unit.of) + u64::from(venue.unit.number) - 1
    }

    fn next_match(&mut self, venue: usize) -> u64 {
        let venue = &mut self.venues[venue];
        venue.match_number += 1;
        venue.match_number
    }

    /// Returns a price, in 1e-4 dollars, that does not cross the venue's own book, or `None` if there is no room.
    fn price_for(&mut self, index: usize, symbol: u32, side: Side) -> Option<u32> {
        let instrument = &self.instruments[symbol as usize];
        let (natural, spread) = (instrument.natural(side), instrument.spread);
        let choice = self.random.below(1_000);
        // Ticks away from the natural price; negative is into the spread.
        let away: i64 = match choice {
            0..120 if spread > 1 => -1,
            0..450 => 0,
            450..930 => 1 + self.random.exponential(u64::from(3 + spread * 2)) as i64,
            930..995 => 1 + self.random.exponential(u64::from(natural / 50 + 2)) as i64,
            // A stub quote.
            _ => i64::from(natural / 2),
        };
        let own = self.books[index].best(side.other()).map(|order| order.price);
        let is_alone = self.venues.len() == 1;
        let other_best =
            self.protected(symbol, side.other()).filter(|_| !is_alone && !self.is_one_of(UNAWARE));
        let other_best = match side {
            Side::Buy => own.into_iter().chain(other_best).min(),
            Side::Sell => own.into_iter().chain(other_best).max(),
        };
        let instrument = &self.instruments[symbol as usize];
        let (tick, other_best) =
            (instrument.tick, other_best.map(|price| i64::from(price / instrument.tick)));
        let natural = i64::from(natural);
        let ticks = match side {
            Side::Buy => (natural - away).min(other_best.map_or(i64::MAX, |best| best - 1)),
            Side::Sell => (natural + away.min(natural)).max(other_best.map_or(0, |best| best + 1)),
        };
        let price = u32::try_from(ticks).ok().filter(|ticks| *ticks > 0)?.checked_mul(tick)?;
        // No venue displays a buy order above the upper price band or a sell order below the lower one.
        let [lower, upper] = self.instruments[symbol as usize].bands;
        Some(if side == Side::Buy { price.min(upper) } else { price.max(lower) })
    }

    /// Draws a size: a third are odd lots, most others one round lot of a hundred, and some are larger.
    fn shares(&mut self) -> u32 {
        let choice = self.random.bits() as u32;
        let more = choice >> 8;
        match choice & 0xFF {
            0..85 => 1 + more % 99,
            85..190 => 100,
            190..230 => 100 * (2 + more % 4),
            230..250 => 100 * (5 + more % 20),
            _ => 1_000 * (1 + more % 10),
        }
    }

    fn add(&mut self, venue: usize, symbol: u32, side: Side) {
        let index = self.book_index(venue, symbol);
        let Some(price) = self.price_for(index, symbol, side) else { return };
        let order = Order { reference: self.next_reference(venue), price, shares: self.shares() };
        let mpid = (self.random.below(23) == 0).then_some(order.reference as usize);
        self.books[index].insert(side, order);
        self.publish(venue, symbol, &Change::Add { side, order, mpid });
    }

    fn delete(&mut self, venue: usize, symbol: u32, side: Side, rank: usize) {
        let index = self.book_index(venue, symbol);
        if let Some(order) = self.books[index].remove_at_rank(side, rank) {
            self.publish(venue, symbol, &Change::Delete { side, order });
        }
    }

    fn cancel(&mut self, venue: usize, symbol: u32, side: Side) {
        let index = self.book_index(venue, symbol);
        let rank = self.young_rank(index, side);
        let Some(order) = self.books[index].at_rank(side, rank) else { return };
        if order.shares < 2 {
            return self.delete(venue, symbol, side, rank);
        }
        let shares = 1 + self.random.below(order.shares - 1);
        self.books[index].reduce_at_rank(side, rank, shares);
        self.publish(venue, symbol, &Change::Cancel { side, order, shares });
    }

    fn replace(&mut self, venue: usize, symbol: u32, side: Side) {
        let index = self.book_index(venue, symbol);
        let Some(price) = self.price_for(index, symbol, side) else { return };
        let rank = self.young_rank(index, side);
        let Some(old) = self.books[index].remove_at_rank(side, rank) else { return };
        let shares = if self.random.bits() & 1 == 0 { old.shares } else { self.shares() };
        let kind = self.venues[venue].kind;
        let keeps_reference = for_dialect!(kind, D => D::KEEPS_REFERENCES);
        let reference = if keeps_reference { old.reference } else { self.next_reference(venue) };
        let new = Order { reference, price, shares };
        self.books[index].insert(side, new);
        self.publish(venue, symbol, &Change::Replace { side, old, new });
    }

    /// Draws an event with probability 1 in `many`.
    fn is_one_of(&mut self, many: u32) -> bool {
        self.random.below(many) == 0
    }

    /// Returns the best price of a side over all venues.
    #[inline]
    fn protected(&self, symbol: u32, side: Side) -> Option<u32> {
        let [bid, ask] = self.best_bid_and_offer(symbol);
        match side {
            Side::Buy => Some(bid).filter(|bid| *bid > NO_TOP[0]),
            Side::Sell => Some(ask).filter(|ask| *ask < NO_TOP[1]),
        }
    }

    /// Returns the venue at which an order sent to `venue` trades: the venue with the best price, unless the order is exempt.
    fn routed(&mut self, venue: usize, symbol: u32, side: Side) -> usize {
        let own = self.books[self.book_index(venue, symbol)].best(side).map(|order| order.price);
        if self.venues.len() == 1 || own == self.protected(symbol, side) || self.is_one_of(SWEEPS) {
            return venue;
        }
        self.best_venue(symbol, side).map_or(venue, |(best, _)| best)
    }

    /// Returns whether another venue has a better price on a side.
    fn is_better_elsewhere(&self, venue: usize, symbol: u32, side: Side, price: u32) -> bool {
        let mut others = self.tops_of(symbol).iter().enumerate().filter(|(place, _)| *place != venue);
        others.any(|(_, [bid, ask])| match side {
            Side::Buy => *bid > price,
            Side::Sell => *ask < price,
        })
    }

    /// Returns the midpoint of the best bid and offer over all venues, if both exist.
    fn midpoint(&self, symbol: u32) -> Option<u32> {
        let (bid, ask) = (self.protected(symbol, Side::Buy)?, self.protected(symbol, Side::Sell)?);
        Some(bid.midpoint(ask))
    }

    /// Executes against the first order in line at the venue with the best price.
    ///
    /// Half of the time the whole order trades. Sometimes the next orders trade too, as long as no other venue is better.
    fn execute(&mut self, of: usize, symbol: u32, side: Side) {
        let venue = self.routed(of, symbol, side);
        self.execute_at(venue, symbol, side);
        if venue != of {
            self.finish(venue, symbol);
        }
    }

    fn execute_at(&mut self, venue: usize, symbol: u32, side: Side) {
        let index = self.book_index(venue, symbol);
        let choice = self.random.bits();
        let orders = match choice & 0xF {
            0 => 3,
            1 => 2,
            _ => 1,
        };
        for number in 0..orders {
            let Some(order) = self.books[index].best(side) else { return };
            if !self.instruments[symbol as usize].may_trade_at(order.price) {
                return;
            }
            if number > 0
                && self.is_better_elsewhere(venue, symbol, side, order.price)
                && !self.is_one_of(SWEEPS)
            {
                return;
            }
            let whole = number + 1 < orders || choice & 0x10 == 0;
            let shares = if whole { order.shares } else { 1 + self.random.below(order.shares) };
            self.books[index].reduce_at_rank(side, 0, shares);
            let match_number = self.next_match(venue);
            self.publish(venue, symbol, &Change::Execute { side, order, shares, match_number });
        }
    }

    /// Trades the first order in line at the midpoint: its limit allows more than it displays.
    fn execute_at_better_price(&mut self, venue: usize, symbol: u32, side: Side) {
        let index = self.book_index(venue, symbol);
        let Some(order) = self.books[index].best(side) else { return };
        let Some(price) = self.midpoint(symbol).filter(|price| *price != order.price) else { return };
        if !self.instruments[symbol as usize].may_trade_at(price) {
            return;
        }
        let shares = 1 + self.random.below(order.shares);
        self.books[index].reduce_at_rank(side, 0, shares);
        let match_number = self.next_match(venue);
        self.publish(
            venue,
            symbol,
            &Change::ExecuteAt { side, order, shares, match_number, price, printable: true },
        );
    }

    fn hidden_trade(&mut self, venue: usize, symbol: u32) {
        let instrument = &self.instruments[symbol as usize];
        let natural =
            instrument.natural(Side::Buy) * instrument.tick + instrument.spread * instrument.tick / 2;
        let price = self.midpoint(symbol).unwrap_or(natural);
        let [lower, upper] = instrument.bands;
        let price = price.clamp(lower, upper);
        let shares = self.shares();
        let match_number = self.next_match(venue);
        self.publish(venue, symbol, &Change::Hidden { price, shares, match_number });
    }

    fn retail_interest(&mut self, venue: usize, symbol: u32) {
        let choice = self.random.below(4);
        let (stamp, stock) = (self.stamp(venue, Some(symbol)), self.instruments[symbol as usize].symbol);
        let kind = self.venues[venue].kind;
        for_dialect!(kind, D => D::retail_interest(&mut self.outbox, kind, &stamp, stock, choice));
    }

    // --- publishing ---

    /// Sends a change in the venue's protocol, or records it for [`Generator::finish`].
    #[inline]
    fn publish(&mut self, venue: usize, symbol: u32, change: &Change) {
        let stamp = self.stamp(venue, Some(symbol));
        let kind = self.venues[venue].kind;
        let instrument = &mut self.instruments[symbol as usize];
        if let Change::Execute { shares, match_number, order: Order { price, .. }, .. }
        | Change::ExecuteAt { shares, match_number, price, .. }
        | Change::Hidden { shares, match_number, price } = *change
        {
            if !kind.is_sip() && !matches!(change, Change::ExecuteAt { printable: false, .. }) {
                instrument.note_trade(price, shares);
            }
            let print = Print::new(&stamp, instrument, shares, price, match_number);
            self.venues[venue].last_print = Some(print);
            for_dialect!(kind, D => D::trade(&mut self.outbox, kind, &stamp, &print));
        }
        for_dialect!(kind, D => {
            if D::HAS_ORDERS {
                return D::change(&mut self.outbox, &stamp, instrument, change);
            }
        });
        match *change {
            Change::Add { side, order, .. }
            | Change::Execute { side, order, .. }
            | Change::ExecuteAt { side, order, .. }
            | Change::Cancel { side, order, .. }
            | Change::Delete { side, order } => self.touch(side, order.price),
            // The level does not change.
            Change::Replace { old, new, .. } if (old.price, old.shares) == (new.price, new.shares) => {}
            Change::Replace { side, old, new } => {
                self.touch(side, old.price);
                self.touch(side, new.price);
            }
            Change::Hidden { .. } => {}
        }
    }

    fn touch(&mut self, side: Side, price: u32) {
        if !self.touched.contains(&(side, price)) {
            self.touched.push((side, price));
        }
    }

    /// Ends an event: IEX sends the levels that it changed, or the quote if it changed.
    #[inline]
    fn finish(&mut self, venue: usize, symbol: u32) {
        if !self.touched.is_empty() {
            self.publish_levels(venue, symbol);
        }
        self.report(venue, symbol);
    }

    /// Reports a venue's changed quote to the SIPs, which receive it a moment later.
    #[inline]
    fn report(&mut self, venue: usize, symbol: u32) {
        self.note_top(venue, symbol);
        let index = self.book_index(venue, symbol);
        let Some(reported) = self.reported.get_mut(index) else { return };
        let instrument = &self.instruments[symbol as usize];
        let quote = consolidated::quote_of(&self.books[index], instrument.round_lot);
        if std::mem::replace(reported, quote) == quote {
            return;
        }
        for sip in self.sips.iter().filter(|sip| sip.takes(venue, symbol, instrument)) {
            let time_ns = self.now_ns + consolidated::latency_ns(venue);
            let step = Step::Consolidate { source: venue as u8, quote };
            self.reports = self.reports.wrapping_add(1);
            let script = Script::numbered(time_ns, self.reports, step, sip.venue as u8, symbol);
            self.scripts.push(Reverse(script));
            self.on_their_way += 1;
        }
    }

    fn publish_levels(&mut self, venue: usize, symbol: u32) {
        let stamp = self.stamp(venue, Some(symbol));
        let stock = self.instruments[symbol as usize].symbol;
        let index = self.book_index(venue, symbol);
        let book = &self.books[index];
        if self.venues[venue].kind.row().shows == Shows::Levels {
            let last = self.touched.len() - 1;
            for (number, touched) in self.touched.iter().enumerate() {
                iex::level(&mut self.outbox, &stamp, stock, book, *touched, number == last);
            }
        } else if let Some(published) = self.venues[venue].quotes.get_mut(symbol as usize) {
            let quote = [book.top(Side::Buy), book.top(Side::Sell)];
            if *published != quote {
                *published = quote;
                iex::quote(&mut self.outbox, &stamp, stock, quote, book.halted);
            }
        }
        self.touched.clear();
    }

    // --- across venues ---

    /// Returns the venue with the best order on a side, and its price.
    fn best_venue(&self, symbol: u32, side: Side) -> Option<(usize, u32)> {
        let open = self.carriers_of(symbol).filter_map(|venue| {
            let book = &self.books[self.book_index(venue, symbol)];
            if book.halted { None } else { Some((venue, book.best(side)?.price)) }
        });
        match side {
            Side::Buy => open.max_by_key(|(_, price)| *price),
            Side::Sell => open.min_by_key(|(_, price)| *price),
        }
    }

    /// Returns the best bid and offer of a symbol at each venue: 0 and `u32::MAX` if there is none, as at a venue that does not
    /// trade it.
    #[inline]
    fn tops_of(&self, symbol: u32) -> &[[u32; 2]] {
        let venues = self.venues.len();
        let tops = self.tops.get(symbol as usize * venues..).and_then(|tops| tops.get(..venues));
        tops.unwrap_or_default()
    }

    /// Returns the best bid and offer over all venues: 0 and `u32::MAX` if there is none.
    #[inline]
    fn best_bid_and_offer(&self, symbol: u32) -> [u32; 2] {
        let best = |[bid, ask]: [u32; 2], top: &[u32; 2]| [bid.max(top[0]), ask.min(top[1])];
        self.tops_of(symbol).iter().fold(NO_TOP, best)
    }

    /// Returns whether the venues together are locked or crossed, or a quote is on the wrong side of the reference price.
    #[inline]
    fn needs_correction(&self, symbol: u32, [bid, ask]: [u32; 2]) -> bool {
        let instrument = &self.instruments[symbol as usize];
        let natural = |side| instrument.natural(side).saturating_mul(instrument.tick);
        bid >= ask || bid >= natural(Side::Sell) || ask <= natural(Side::Buy)
    }

    /// Updates the top of book after a symbol's book changed, opened, or closed.
    #[inline]
    fn note_top(&mut self, venue: usize, symbol: u32) {
        let book = &self.books[self.book_index(venue, symbol)];
        let top = if book.halted {
            NO_TOP
        } else {
            let price = |side| book.best(side).map(|order| order.price);
            [price(Side::Buy).unwrap_or(0), price(Side::Sell).unwrap_or(u32::MAX)]
        };
        let place = symbol as usize * self.venues.len() + venue;
        if let Some(known) = self.tops.get_mut(place) {
            *known = top;
        }
    }

    /// Schedules a correction if the venues' quotes together are wrong: a participant acts a moment later.
    #[inline]
    fn watch_other_venues(&mut self, symbol: u32) {
        if self.venues.len() == 1 || self.instruments[symbol as usize].correction_due {
            return;
        }
        let [bid, ask] = self.best_bid_and_offer(symbol);
        if self.needs_correction(symbol, [bid, ask]) {
            self.instruments[symbol as usize].correction_due = true;
            let mean_ns = if bid == ask { LOCK_NS } else { CORRECTION_NS };
            let time_ns = self.now_ns + 500 + self.random.exponential(mean_ns);
            self.scripts.push(Reverse(Script::once(time_ns, Step::Correction, 0, symbol)));
        }
    }

    /// Hits or withdraws the quote that lags the reference price.
    fn correct(&mut self, symbol: u32) {
        self.instruments[symbol as usize].correction_due = false;
        let (Some((bidding, bid)), Some((offering, ask))) =
            (self.best_venue(symbol, Side::Buy), self.best_venue(symbol, Side::Sell))
        else {
            return;
        };
        let bid_is_behind = self.is_behind(self.book_index(bidding, symbol), symbol, Side::Buy);
        let ask_is_behind = self.is_behind(self.book_index(offering, symbol), symbol, Side::Sell);
        if bid < ask && !bid_is_behind && !ask_is_behind {
            return;
        }
        let (venue, side) = if bid_is_behind { (bidding, Side::Buy) } else { (offering, Side::Sell) };
        let take = self.random.bits() & 1 == 0;
        self.take_or_withdraw(venue, symbol, side, take);
        self.finish(venue, symbol);
        self.watch_other_venues(symbol);
    }

    // --- scripted steps of the day ---

    fn run(&mut self, script: Script) {
        self.publish_step(&script);
        if let Some(next) = script.next() {
            self.scripts.push(Reverse(next));
        }
    }

    fn publish_step(&mut self, script: &Script) {
        let (venue, symbol) = (usize::from(script.venue), script.symbol);
        let kind = self.venues[venue].kind;
        let of_market = self.stamp(venue, None);
        let stamp = self.stamp(venue, Some(symbol));
        let index = self.book_index(venue, symbol);
        if script.step.is_of_symbol() && !self.venues[venue].unit.has(symbol) {
            return;
        }
        match script.step {
            Step::System(code) => {
                self.venues[venue].phases.push(code);
                for_dialect!(kind, D => D::system_event(&mut self.outbox, kind, &of_market, code));
            }
            Step::Directory { first_new_issue } => {
                let new_issue = symbol >= first_new_issue;
                self.books[index].halted = new_issue;
                let (state, reason) = if new_issue {
                    (TradingState::Halted, ReasonCode::IpoIssue)
                } else {
                    (TradingState::Trading, ReasonCode::ReasonNotAvailable)
                };
                let standing = Standing { new_issue, state, reason, ..Standing::at_start(symbol) };
                self.standings[index] = standing;
                self.note_top(venue, symbol);
                let instrument = &self.instruments[symbol as usize];
                let outbox = &mut self.outbox;
                for_dialect!(kind, D => D::directory(outbox, kind, &stamp, symbol, instrument, &standing));
            }
            Step::CircuitBreakerLevels => {
                self.venues[venue].breaker.0 = true;
                nasdaq::circuit_breaker_levels(&mut self.outbox, &of_market);
            }
            Step::CircuitBreakerBreach => {
                self.venues[venue].breaker.1 = true;
                nasdaq::circuit_breaker_breach(&mut self.outbox, &of_market);
            }
            Step::IpoQuotingPeriod { release_ns } => {
                nasdaq::ipo_quoting_period(
                    &mut self.outbox,
                    &stamp,
                    &self.instruments[symbol as usize],
                    release_ns,
                );
            }
            Step::DirectListing { release_ns } => {
                nasdaq::direct_listing(
                    &mut self.outbox,
                    &stamp,
                    &self.instruments[symbol as usize],
                    release_ns,
                );
            }
            Step::Trading { state, reason } => self.trading_state(venue, symbol, state, reason),
            Step::Collar => nasdaq::collar(&mut self.outbox, &stamp, &self.instruments[symbol as usize]),
            Step::OperationalHalt { halted } => {
                self.books[index].halted = halted;
                self.standings[index].operational_halt = halted;
                let stock = self.instruments[symbol as usize].symbol;
                let standing = self.standings[index];
                if self.is_said(venue, symbol) {
                    for_dialect!(kind, D => D::operational_halt(&mut self.outbox, kind, &stamp, stock, &standing));
                }
                self.publish_halt_in_quote(venue, symbol);
            }
            Step::ShortSaleTest => {
                self.standings[index].short_sale_test = true;
                let stock = self.instruments[symbol as usize].symbol;
                let standing = self.standings[index];
                if self.is_said(venue, symbol) {
                    for_dialect!(kind, D => D::short_sale_test(&mut self.outbox, kind, &stamp, stock, &standing));
                }
            }
            Step::RetailInterest => self.retail_interest(venue, symbol),
            Step::BreakTrade => {
                if let Some(print) = self.venues[venue].last_print {
                    let outbox = &mut self.outbox;
                    for_dialect!(kind, D => D::trade_break(outbox, kind, &of_market, &stamp, &print));
                }
            }
            // In a round of auctions, another market may list some of the symbols.
            Step::Imbalance(_) | Step::Cross(_) if !self.holds_auctions(kind, symbol) => {}
            Step::Imbalance(code) => {
                let paired = u64::from(self.random.below(200_000));
                let imbalance = i64::from(self.random.below(20_001)) - 10_000;
                let instrument = &self.instruments[symbol as usize];
                let outbox = &mut self.outbox;
                if kind.row().is_main {
                    let cross_type = CrossType::from_raw(code);
                    nasdaq::imbalance(outbox, &stamp, instrument, paired, imbalance, cross_type);
                } else {
                    let (paired, imbalance) = (paired as u32, imbalance as i32);
                    for_dialect!(kind, D => D::imbalance(outbox, kind, &stamp, instrument, paired, imbalance, code));
                }
            }
            Step::Cross(code) => self.cross(venue, symbol, code),
            Step::IexAuction { code, scheduled_ns } => {
                let paired = self.random.below(50_000);
                let instrument = &self.instruments[symbol as usize];
                iex::auction(&mut self.outbox, kind, &stamp, instrument, (code, scheduled_ns), paired);
            }
            Step::IexAuctionEnd(code) => {
                let instrument = &self.instruments[symbol as usize];
                if kind.has_iex_auctions() && is_listed_at_iex(symbol) {
                    let price_type = if code == b'O' { b'Q' } else { b'M' };
                    iex::official_price(&mut self.outbox, kind, &stamp, instrument, price_type);
                }
                iex::security_event(&mut self.outbox, kind, &stamp, instrument.symbol, code);
            }
            Step::Correction => self.correct(symbol),
            Step::Bands(look) => self.look_at_bands(venue, &of_market, look),
            Step::OpeningPrice(price) => {
                if !self.books[index].halted
                    && let Some(sip) = self.sips.iter_mut().find(|sip| sip.venue == venue)
                {
                    let instrument = &mut self.instruments[symbol as usize];
                    sip.open_at(&mut self.outbox, &stamp, symbol, instrument, price);
                }
            }
            Step::RunIntoBand => self.run_into_band(venue, symbol),
            Step::Consolidate { source, quote } => {
                self.on_their_way -= 1;
                let report = Report { symbol, source: usize::from(source), quote };
                let instrument = &self.instruments[symbol as usize];
                if let Some(sip) = self.sips.iter_mut().find(|sip| sip.venue == venue) {
                    sip.publish(&mut self.outbox, &stamp, instrument, &report);
                }
            }
        }
    }

    /// Returns whether a venue holds the auctions of a symbol, as the market that lists it does. Nasdaq also qualifies, for
    /// symbols whose listing markets have none.
    fn holds_auctions(&self, kind: VenueKind, symbol: u32) -> bool {
        let row = kind.row();
        row.is_main || row.listing == Some(self.instruments[symbol as usize].listing)
    }

    fn trading_state(&mut self, venue: usize, symbol: u32, state: TradingState, reason: ReasonCode) {
        let stamp = self.stamp(venue, Some(symbol));
        let index = self.book_index(venue, symbol);
        let stock = self.instruments[symbol as usize].symbol;
        self.books[index].halted = state != TradingState::Trading;
        let standing = &mut self.standings[index];
        (standing.state, standing.reason) = (state, reason);
        let standing = *standing;
        let kind = self.venues[venue].kind;
        if self.is_said(venue, symbol) {
            for_dialect!(kind, D => D::trading_state(&mut self.outbox, kind, &stamp, stock, &standing));
            if kind.is_sip() {
                self.halt_bands(venue, symbol, &stamp);
            }
        }
        self.publish_halt_in_quote(venue, symbol);
    }

    /// Suspends a symbol's price bands at a SIP while the symbol is halted.
    fn halt_bands(&mut self, venue: usize, symbol: u32, stamp: &Stamp) {
        let is_halted = self.books[self.book_index(venue, symbol)].halted;
        let instrument = &mut self.instruments[symbol as usize];
        let Some(sip) = self.sips.iter_mut().find(|sip| sip.venue == venue) else { return };
        if is_halted {
            sip.end_bands(&mut self.outbox, stamp, symbol, instrument, b'D');
        } else if in_market_hours(stamp) {
            sip.reopen(&mut self.outbox, stamp, symbol, instrument);
        }
    }

    /// Lets a SIP evaluate the trades of all its symbols.
    fn look_at_bands(&mut self, venue: usize, stamp: &Stamp, look: Look) {
        let first = self.book_index(venue, 0);
        let Some(sip) = self.sips.iter_mut().find(|sip| sip.venue == venue) else { return };
        let books = self.books.get(first..).unwrap_or_default();
        for ((instrument, book), symbol) in self.instruments.iter_mut().zip(books).zip(0..) {
            match look {
                Look::Begin => sip.open(symbol, instrument),
                Look::Again => sip.look(&mut self.outbox, stamp, symbol, instrument, !book.halted),
                Look::End => sip.end_bands(&mut self.outbox, stamp, symbol, instrument, b'F'),
            }
        }
        let next_ns = stamp.time_ns + LOOK_NS;
        if look != Look::End && next_ns < CLOSE_NS {
            self.scripts.push(Reverse(Script::once(next_ns, Step::Bands(Look::Again), venue as u8, 0)));
        }
    }

    /// Sweeps all books up or down to a price band and leaves orders there. Nothing happens unless the SIP at `venue` carries the
    /// symbol.
    fn run_into_band(&mut self, venue: usize, symbol: u32) {
        let [lower, upper] = self.instruments[symbol as usize].bands;
        if !self.is_said(venue, symbol) || upper == u32::MAX {
            return;
        }
        let up = lower == 0 || self.random.bits() & 1 == 0;
        let (side, band) = if up { (Side::Sell, upper) } else { (Side::Buy, lower) };
        self.instruments[symbol as usize].jump_beyond(band, up);
        let venues: Vec<usize> = self.carriers_of(symbol).collect();
        for venue in venues {
            let index = self.book_index(venue, symbol);
            if self.books[index].halted || !for_dialect!(self.venues[venue].kind, D => D::HAS_BANDS) {
                continue;
            }
            let is_within = |order: &Order| if up { order.price <= band } else { order.price >= band };
            for number in 0.. {
                let Some(order) = self.books[index].best(side).filter(is_within) else { break };
                if number > 1 {
                    self.delete(venue, symbol, side, 0);
                    continue;
                }
                self.books[index].reduce_at_rank(side, 0, order.shares);
                let match_number = self.next_match(venue);
                let shares = order.shares;
                self.publish(venue, symbol, &Change::Execute { side, order, shares, match_number });
            }
            let shares = 2 * self.instruments[symbol as usize].round_lot;
            let order = Order { reference: self.next_reference(venue), price: band, shares };
            self.books[index].insert(side.other(), order);
            self.publish(venue, symbol, &Change::Add { side: side.other(), order, mpid: None });
            self.finish(venue, symbol);
        }
    }

    /// Records an auction's price: the opening auction sets a symbol's first price bands, a reopening auction the next ones.
    fn note_auction(&mut self, venue: usize, symbol: u32, code: u8, price: u32) {
        let instrument = &mut self.instruments[symbol as usize];
        if matches!(code, b'H' | b'V') {
            instrument.reopened = price;
            return;
        }
        if code != b'O' {
            return;
        }
        for sip in self.sips.iter().filter(|sip| sip.takes(venue, symbol, instrument)) {
            let time_ns = self.now_ns + consolidated::latency_ns(venue);
            let step = Step::OpeningPrice(price);
            self.reports = self.reports.wrapping_add(1);
            let script = Script::numbered(time_ns, self.reports, step, sip.venue as u8, symbol);
            self.scripts.push(Reverse(script));
        }
    }

    /// Returns whether a venue publishes messages about a symbol of its unit: a SIP does so only for symbols on its tapes.
    fn is_said(&self, venue: usize, symbol: u32) -> bool {
        let kind = self.venues[venue].kind;
        !kind.is_sip() || consolidated::is_on_tape(kind, symbol, &self.instruments[symbol as usize])
    }

    /// Publishes a halt in quotes: a TOPS quote has a flag for it, and a SIP shows no quote of a halted venue.
    fn publish_halt_in_quote(&mut self, venue: usize, symbol: u32) {
        self.report(venue, symbol);
        if self.venues[venue].kind.is_tops() {
            let book = &self.books[self.book_index(venue, symbol)];
            let (quote, halted) = ([book.top(Side::Buy), book.top(Side::Sell)], book.halted);
            let (stamp, stock) = (self.stamp(venue, Some(symbol)), self.instruments[symbol as usize].symbol);
            iex::quote(&mut self.outbox, &stamp, stock, quote, halted);
        }
    }

    /// Holds an auction: the bulk print and, sometimes, a displayed order that took part in it, not printed separately.
    fn cross(&mut self, venue: usize, symbol: u32, code: u8) {
        let index = self.book_index(venue, symbol);
        let cross_shares = 100 * u64::from(1 + self.random.below(2_000));
        let match_number = self.next_match(venue);
        let price = self.instruments[symbol as usize].reference_price();
        let kind = self.venues[venue].kind;
        self.note_auction(venue, symbol, code, price);
        if !kind.row().is_main {
            // Book orders do not take part, because Cboe cannot mark their executions as not printed twice.
            let (stamp, instrument) = (self.stamp(venue, Some(symbol)), &self.instruments[symbol as usize]);
            let (outbox, shares) = (&mut self.outbox, cross_shares as u32);
            for_dialect!(kind, D => D::cross(outbox, kind, &stamp, instrument, shares, match_number, code));
            return;
        }
        let side = if self.random.bits() & 1 == 0 { Side::Buy } else { Side::Sell };
        if let Some(order) = self.books[index].best(side)
            && self.random.bits() & 3 == 0
        {
            let shares = 1 + self.random.below(order.shares);
            self.books[index].reduce_at_rank(side, 0, shares);
            self.publish(
                venue,
                symbol,
                &Change::ExecuteAt { side, order, shares, match_number, price, printable: false },
            );
        }
        let stamp = self.stamp(venue, Some(symbol));
        let instrument = &self.instruments[symbol as usize];
        let cross_type = CrossType::from_raw(code);
        nasdaq::cross(&mut self.outbox, &stamp, instrument, cross_shares, match_number, cross_type);
        self.report(venue, symbol);
    }
}

/// Draws a rank: half are 0 to 2, one in ten is above 15.
fn near_top(choice: u32) -> usize {
    let rank = choice.trailing_zeros();
    ((choice >> 16) % (1 + (3 << rank.min(10)))) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often pairs of symbols moved the same way between samples, less how often they moved in opposite ways, on average.
    fn likeness(correlation_percent: u32) -> f64 {
        const SYMBOLS: usize = 12;
        let scenario = Scenario {
            correlation_percent,
            popularity: crate::scenario::Popularity::Uniform,
            ..Scenario::full_session(300_000, SYMBOLS as u32)
        };
        let mut generator = Generator::new(&scenario).unwrap();
        let mut message = [0; MAX_MESSAGE_BYTES];
        let prices = |generator: &Generator| -> Vec<i64> {
            generator.instruments.iter().map(|one| i64::from(one.reference_price())).collect()
        };
        let (mut before, mut sum, mut pairs) = (prices(&generator), 0, 0);
        for number in 1.. {
            if generator.next_message(&mut message).is_none() {
                break;
            }
            if number % 10_000 == 0 {
                let now = prices(&generator);
                let ways: Vec<i64> =
                    now.iter().zip(&before).map(|(now, before)| (now - before).signum()).collect();
                for (place, one) in ways.iter().enumerate() {
                    for other in &ways[place + 1..] {
                        (sum, pairs) = (sum + one * other, pairs + 1);
                    }
                }
                before = now;
            }
        }
        sum as f64 / f64::from(pairs)
    }

    #[test]
    fn correlated_symbols_go_the_way_of_the_market_and_others_their_own() {
        let (own, together) = (likeness(0), likeness(50));
        assert!(own.abs() < 0.1 && together > 0.2, "{own} {together}");
    }
}
