//! Scripted steps in addition to order flow: phases, the directory, auctions, halts and so on, each at its time.

use tapeworks_wire::nasdaq::itch50::{ReasonCode, TradingState};

use crate::bands::LIMIT_STATE_NS;
use crate::consolidated::Lots;
use crate::dialect::Dialect as _;
use crate::dialects::for_dialect;
use crate::nasdaq;
use crate::scenario::{CLOSE_NS, OPEN_NS};
use crate::scenario::{HOUR_NS, MINUTE_NS, Run, SECOND_NS, Scenario, VenueKind, is_listed_at_iex};

/// The ITCH letter of the phase that announces that the numbers start.
pub(crate) const START_OF_MESSAGES: u8 = b'O';

/// A scripted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A phase, given by its ITCH letter.
    System(u8),
    /// All messages about a symbol before the day. Symbols from this number on are new issues, halted until their auction.
    Directory {
        first_new_issue: u32,
    },
    CircuitBreakerLevels,
    CircuitBreakerBreach,
    IpoQuotingPeriod {
        release_ns: u64,
    },
    DirectListing {
        release_ns: u64,
    },
    Trading {
        state: TradingState,
        reason: ReasonCode,
    },
    Collar,
    OperationalHalt {
        halted: bool,
    },
    ShortSaleTest,
    RetailInterest,
    BreakTrade,
    /// By the letter of the cross.
    Imbalance(u8),
    Cross(u8),
    IexAuction {
        code: u8,
        scheduled_ns: u64,
    },
    IexAuctionEnd(u8),
    /// A participant corrects venues that together are locked or crossed.
    Correction,
    /// A venue's quote reaches the SIP that is the script's venue.
    Consolidate {
        source: u8,
        quote: Lots,
    },
    /// A SIP evaluates the price bands of all its symbols.
    Bands(Look),
    /// The price of an opening auction reaches a SIP.
    OpeningPrice(u32),
    /// A symbol runs into a price band.
    RunIntoBand,
}

/// What a SIP does with the price bands of all its symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It starts counting trades.
    Begin,
    /// It checks whether the trades change the bands.
    Again,
    /// The hours of the bands are over.
    End,
}

impl Step {
    /// Returns whether units that do not trade the symbol skip this step.
    pub(crate) fn is_of_symbol(&self) -> bool {
        match self {
            Self::Directory { .. }
            | Self::IpoQuotingPeriod { .. }
            | Self::DirectListing { .. }
            | Self::Trading { .. }
            | Self::Collar
            | Self::OperationalHalt { .. }
            | Self::ShortSaleTest
            | Self::RetailInterest
            | Self::Imbalance(_)
            | Self::Cross(_)
            | Self::IexAuction { .. }
            | Self::IexAuctionEnd(_) => true,
            Self::System(_)
            | Self::CircuitBreakerLevels
            | Self::CircuitBreakerBreach
            | Self::BreakTrade
            | Self::Correction
            | Self::Consolidate { .. }
            | Self::Bands(_)
            | Self::OpeningPrice(_)
            | Self::RunIntoBand => false,
        }
    }
}

/// A step at a time, for one symbol or for each of a range of symbols in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) time_ns: u64,
    /// Orders steps with equal times.
    number: u32,
    pub(crate) step: Step,
    pub(crate) venue: u8,
    pub(crate) symbol: u32,
    /// The last symbol of the range, and the range's stride and gap.
    last_symbol: u32,
    stride: u32,
    gap_ns: u64,
}

impl Ord for Script {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number, self.venue, self.symbol).cmp(&(
            other.time_ns,
            other.number,
            other.venue,
            other.symbol,
        ))
    }
}

impl PartialOrd for Script {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Script {
    /// Creates a step for one symbol.
    pub(crate) fn once(time_ns: u64, step: Step, venue: u8, symbol: u32) -> Self {
        Self { time_ns, number: u32::MAX, step, venue, symbol, last_symbol: symbol, stride: 1, gap_ns: 0 }
    }

    /// Creates a step for one symbol, after steps of the same time with lower numbers.
    pub(crate) fn numbered(time_ns: u64, number: u32, step: Step, venue: u8, symbol: u32) -> Self {
        Self { number: number | 1 << 31, ..Self::once(time_ns, step, venue, symbol) }
    }

    /// Returns the same step for the next symbol of the range.
    pub(crate) fn next(mut self) -> Option<Self> {
        self.symbol = self.symbol.checked_add(self.stride).filter(|symbol| *symbol <= self.last_symbol)?;
        self.time_ns += self.gap_ns;
        Some(self)
    }
}

/// Returns the number of messages after the end of order flow.
pub(crate) fn messages_at_end(scenario: &Scenario) -> u64 {
    2 * scenario.venues.len() as u64
}

/// Gap between the messages of two symbols in a round over all symbols, in nanoseconds.
const ROUND_GAP_NS: u64 = 10_000;

struct Writer<'a> {
    scenario: &'a Scenario,
    scripts: Vec<Script>,
    venue: u8,
}

impl Writer<'_> {
    fn add(&mut self, time_ns: u64, step: Step, symbol: u32) {
        self.round(time_ns, step, symbol, symbol, 1, 0);
    }

    /// Adds a step only if its time is within order flow.
    fn add_within(&mut self, time_ns: u64, step: Step, symbol: u32) {
        if self.within(time_ns) {
            self.add(time_ns, step, symbol);
        }
    }

    fn within(&self, time_ns: u64) -> bool {
        (self.scenario.start_ns..self.scenario.end_ns).contains(&time_ns)
    }

    fn round(&mut self, time_ns: u64, step: Step, first: u32, last: u32, stride: u32, gap_ns: u64) {
        let number = self.scripts.len() as u32;
        if first <= last {
            let (venue, symbol, last_symbol) = (self.venue, first, last);
            self.scripts.push(Script { time_ns, number, step, venue, symbol, last_symbol, stride, gap_ns });
        }
    }

    fn round_within(&mut self, time_ns: u64, step: Step, first: u32, stride: u32) {
        if self.within(time_ns) {
            let last = self.scenario.symbols - 1;
            self.round(time_ns, step, first, last, stride, ROUND_GAP_NS);
        }
    }
}

/// Returns the scripted steps of one run, for every venue.
pub(crate) fn scripts(run: &Run) -> Vec<Script> {
    let scenario = &run.scenario;
    let mut writer = Writer { scenario, scripts: Vec::new(), venue: 0 };
    // The scenario was checked to have at most MAX_MARKETS venues.
    for (number, venue) in scenario.venues.iter().enumerate() {
        writer.venue = number as u8;
        start_of_day(&mut writer, venue.kind, run);
        phases(&mut writer, run.is_cut);
        let row = venue.kind.row();
        let listed = if row.is_main || scenario.listing_auctions { row.auctions } else { &[] };
        for (first, stride) in listed {
            auctions(&mut writer, *first, *stride);
        }
        if venue.kind.is_iex() {
            iex_auctions(&mut writer, venue.kind);
        }
        if venue.kind.is_sip() {
            bands(&mut writer);
        }
        halts(&mut writer, venue.kind);
        new_issues(&mut writer, venue.kind);
        incidents(&mut writer, venue.kind);
    }
    writer.scripts
}

/// Returns whether a session has an IPO, a direct listing, and an operational halt.
///
/// It does if it includes the open, leaves time for them, and has enough symbols: they use those with the highest numbers.
fn has_new_issues(scenario: &Scenario) -> bool {
    scenario.symbols >= 8 && scenario.start_ns <= OPEN_NS && scenario.end_ns >= 12 * HOUR_NS
}

fn start_of_day(writer: &mut Writer<'_>, kind: VenueKind, run: &Run) {
    let scenario = writer.scenario;
    let start_ns = scenario.start_ns;
    let opens_ns = start_ns.saturating_sub(run.opening_ns);
    let gap_ns = ((start_ns - opens_ns) / (2 * u64::from(scenario.symbols))).min(2 * ROUND_GAP_NS);
    if run.is_announced {
        writer.add(opens_ns, Step::System(START_OF_MESSAGES), 0);
    }
    let first_new_issue = scenario.symbols - if has_new_issues(scenario) { 2 } else { 0 };
    let last = scenario.symbols - 1;
    writer.round(opens_ns + gap_ns, Step::Directory { first_new_issue }, 0, last, 1, gap_ns);
    let before_flow_ns = start_ns.saturating_sub(1);
    if for_dialect!(kind, D => D::HAS_BREAKER) {
        writer.add(before_flow_ns, Step::CircuitBreakerLevels, 0);
    }
    writer.add(before_flow_ns, Step::System(b'S'), 0);
}

/// Adds the start and end of market hours and system hours. Phases before order flow are sent at its start.
fn phases(writer: &mut Writer<'_>, is_cut: bool) {
    let (start_ns, end_ns) = (writer.scenario.start_ns, writer.scenario.end_ns);
    let before_flow_ns = start_ns.saturating_sub(1);
    for (time_ns, code) in [(OPEN_NS, b'Q'), (CLOSE_NS, b'M')] {
        if time_ns <= start_ns {
            writer.add(before_flow_ns, Step::System(code), 0);
        } else {
            writer.add_within(time_ns, Step::System(code), 0);
        }
    }
    if writer.scenario.endless_gap_ns > 0 || is_cut {
        return;
    }
    writer.add(end_ns, Step::System(b'E'), 0);
    writer.add(end_ns + SECOND_NS, Step::System(b'C'), 0);
}

/// Adds imbalances before the opening and closing crosses of the listed symbols, and the crosses. Every `stride`-th symbol from
/// `first` on is listed.
fn auctions(writer: &mut Writer<'_>, first: u32, stride: u32) {
    for before_ns in [2 * MINUTE_NS, MINUTE_NS, 10 * SECOND_NS] {
        writer.round_within(OPEN_NS - before_ns, Step::Imbalance(b'O'), first, stride);
    }
    writer.round_within(OPEN_NS + 200_000, Step::Cross(b'O'), first, stride);
    for before_ns in [10 * MINUTE_NS, MINUTE_NS, 5 * SECOND_NS] {
        writer.round_within(CLOSE_NS - before_ns, Step::Imbalance(b'C'), first, stride);
    }
    writer.round_within(CLOSE_NS + 200_000, Step::Cross(b'C'), first, stride);
}

/// Adds IEX's auctions, and the end of the opening and closing process of every symbol.
fn iex_auctions(writer: &mut Writer<'_>, kind: VenueKind) {
    for (at_ns, code) in [(OPEN_NS, b'O'), (CLOSE_NS, b'C')] {
        let first = (0..writer.scenario.symbols).find(|index| is_listed_at_iex(*index));
        if let Some(first) = first.filter(|_| kind.has_iex_auctions()) {
            for seconds in (1..=10).rev() {
                let step = Step::IexAuction { code, scheduled_ns: at_ns };
                writer.round_within(at_ns - seconds * SECOND_NS, step, first, 100);
            }
        }
        writer.round_within(at_ns + 500_000, Step::IexAuctionEnd(code), 0, 1);
    }
}

/// Adds a SIP's price bands: it counts trades from the open on, and ends the bands at the close.
fn bands(writer: &mut Writer<'_>) {
    let begins_ns = OPEN_NS.max(writer.scenario.start_ns);
    if begins_ns < CLOSE_NS {
        writer.add_within(begins_ns, Step::Bands(Look::Begin), 0);
        writer.add_within(CLOSE_NS, Step::Bands(Look::End), 0);
    }
}

/// Adds alternating news halts and volatility pauses, spread over market hours. If IEX lists symbols, up to two of those are
/// halted in between.
fn halts(writer: &mut Writer<'_>, kind: VenueKind) {
    let scenario = writer.scenario;
    let from_ns = scenario.start_ns.max(OPEN_NS);
    let to_ns = scenario.end_ns.min(CLOSE_NS);
    if from_ns >= to_ns {
        return;
    }
    let step_ns = (to_ns - from_ns) / (u64::from(scenario.halts) + 2);
    // Excludes the new issues and the symbol of the operational halt.
    let symbols = scenario.symbols.saturating_sub(3).max(1);
    for number in 0..scenario.halts {
        let start_ns = from_ns + step_ns * (u64::from(number) + 1);
        let symbol = (7 + number.wrapping_mul(13)) % symbols;
        halt(writer, kind, Halt { start_ns, to_ns, symbol, is_pause: number % 2 == 1 });
    }
    let at_iex = (0..symbols).filter(|index| is_listed_at_iex(*index));
    let wanted = if scenario.lists_at_iex() { scenario.halts.min(2) } else { 0 };
    for (number, symbol) in (0..wanted).zip(at_iex.cycle()) {
        let start_ns = from_ns + step_ns * u64::from(number) + step_ns / 2;
        halt(writer, kind, Halt { start_ns, to_ns, symbol, is_pause: number % 2 == 1 });
    }
}

/// A market-wide halt of a symbol, skipped unless it ends before `to_ns`.
struct Halt {
    start_ns: u64,
    to_ns: u64,
    symbol: u32,
    is_pause: bool,
}

/// Adds a venue's messages about a halt. With a SIP the symbol is in a limit state before a pause.
fn halt(writer: &mut Writer<'_>, kind: VenueKind, halt: Halt) {
    let Halt { symbol, is_pause, .. } = halt;
    // The venues learn of it one after another.
    let delay_ns = u64::from(writer.venue) * 50_000;
    let start_ns = halt.start_ns + delay_ns;
    let resume_ns = start_ns + if is_pause { 5 * MINUTE_NS } else { 10 * MINUTE_NS };
    let quotes_ns = resume_ns - 4 * MINUTE_NS;
    if resume_ns >= halt.to_ns {
        return;
    }
    let trading = |state, reason| Step::Trading { state, reason };
    if is_pause && kind.is_sip() {
        writer.add_within(halt.start_ns - LIMIT_STATE_NS, Step::RunIntoBand, symbol);
    }
    if is_pause {
        writer.add(start_ns, trading(TradingState::Paused, ReasonCode::VolatilityTradingPause), symbol);
    } else {
        writer.add(start_ns, trading(TradingState::Halted, ReasonCode::HaltNewsPending), symbol);
        let reason = ReasonCode::NewsAndResumptionTimes;
        writer.add(quotes_ns, trading(TradingState::QuotationOnlyPeriod, reason), symbol);
    }
    if reopens(writer.scenario, kind, symbol, is_pause) {
        if is_pause && kind.row().is_main {
            writer.add(start_ns + 1_000_000, Step::Collar, symbol);
        }
        // IEX has a separate letter for each.
        let is_iex = kind.is_iex();
        let code = if is_iex && is_pause { b'V' } else { b'H' };
        let prepared =
            if is_iex { Step::IexAuction { code, scheduled_ns: resume_ns } } else { Step::Imbalance(code) };
        for seconds in [60, 30, 1] {
            writer.add(resume_ns - seconds * SECOND_NS, prepared, symbol);
        }
        writer.add(resume_ns - 1_000, Step::Cross(code), symbol);
    }
    writer.add(resume_ns, trading(TradingState::Trading, ReasonCode::ReasonNotAvailable), symbol);
}

/// Returns whether a venue reopens a symbol with an auction: its listing market does.
///
/// In scenarios without auctions at other markets, Nasdaq ends every pause with one.
fn reopens(scenario: &Scenario, kind: VenueKind, symbol: u32, is_pause: bool) -> bool {
    if kind.row().is_main {
        return nasdaq::is_listed(symbol) || is_pause && !scenario.listing_auctions;
    }
    scenario.listing_auctions && kind.row().listing == Some(scenario.listing_market(symbol))
}

/// Adds an IPO at 10:30 and a direct listing with capital raise at 11:00.
fn new_issues(writer: &mut Writer<'_>, kind: VenueKind) {
    let scenario = writer.scenario;
    if !has_new_issues(scenario) {
        return;
    }
    let delay_ns = u64::from(writer.venue) * 50_000;
    let (direct, ipo) = (scenario.symbols - 2, scenario.symbols - 1);
    for (symbol, release_ns) in [(ipo, 10 * HOUR_NS + 30 * MINUTE_NS), (direct, 11 * HOUR_NS)] {
        let trading = |state, reason| Step::Trading { state, reason };
        if kind.row().is_main {
            if symbol == ipo {
                for before_ns in [HOUR_NS, 10 * MINUTE_NS] {
                    writer.add(release_ns - before_ns, Step::IpoQuotingPeriod { release_ns }, symbol);
                }
            } else {
                for seconds in [60, 30, 1] {
                    writer.add(release_ns - seconds * SECOND_NS, Step::DirectListing { release_ns }, symbol);
                }
            }
            for seconds in [120, 60, 10] {
                writer.add(release_ns - seconds * SECOND_NS, Step::Imbalance(b'H'), symbol);
            }
            writer.add(release_ns - 1_000, Step::Cross(b'H'), symbol);
        }
        let quotes_ns = release_ns - 10 * MINUTE_NS + delay_ns;
        let reason = ReasonCode::IpoSecurityReleased;
        writer.add(quotes_ns, trading(TradingState::QuotationOnlyPeriod, reason), symbol);
        let reason = ReasonCode::NewIssueAvailable;
        writer.add(release_ns + delay_ns, trading(TradingState::Trading, reason), symbol);
    }
}

/// Adds an operational halt of one venue, a broken trade, a short sale price test, retail interest, and a late circuit breaker
/// breach.
fn incidents(writer: &mut Writer<'_>, kind: VenueKind) {
    let symbols = writer.scenario.symbols;
    if has_new_issues(writer.scenario) {
        let symbol = symbols - 3;
        let start_ns = 11 * HOUR_NS + 15 * MINUTE_NS + u64::from(writer.venue) * MINUTE_NS;
        writer.add_within(start_ns, Step::OperationalHalt { halted: true }, symbol);
        writer.add_within(start_ns + 2 * MINUTE_NS, Step::OperationalHalt { halted: false }, symbol);
    }
    writer.add_within(10 * HOUR_NS, Step::RetailInterest, 0);
    writer.add_within(12 * HOUR_NS, Step::BreakTrade, 0);
    writer.add_within(13 * HOUR_NS, Step::ShortSaleTest, 5 % symbols);
    if for_dialect!(kind, D => D::HAS_BREAKER) {
        writer.add_within(15 * HOUR_NS + 40 * MINUTE_NS, Step::CircuitBreakerBreach, 0);
    }
}
