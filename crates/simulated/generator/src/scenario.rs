//! Scenarios: venues, symbols, volume, the shape of the day, and line faults.

use std::net::SocketAddrV4;

use tapeworks_market::Publisher;
use tapeworks_wire::orders::is_same;

use crate::kinds::{KINDS, KindRow, Shows, Speaks};

pub use crate::kinds::VenueKind;

/// One second in nanoseconds.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// One minute in nanoseconds.
pub(crate) const MINUTE_NS: u64 = 60 * SECOND_NS;
/// One hour in nanoseconds.
pub(crate) const HOUR_NS: u64 = 60 * MINUTE_NS;

/// The market open, in nanoseconds since midnight in New York.
pub(crate) const OPEN_NS: u64 = 9 * HOUR_NS + 30 * MINUTE_NS;
/// The market close, in nanoseconds since midnight in New York.
pub(crate) const CLOSE_NS: u64 = 16 * HOUR_NS;

/// Friday, 2025-11-14, 00:00 in New York: 05:00 UTC, in nanoseconds since 1970-01-01 00:00 UTC.
pub const DEFAULT_MIDNIGHT_NS: u64 = 1_763_096_400 * SECOND_NS;

impl VenueKind {
    pub(crate) fn row(self) -> &'static KindRow {
        KINDS.get(self as usize).unwrap_or(&KINDS[0])
    }

    /// Iterates over all kinds.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        KINDS.iter().map(|row| row.kind)
    }

    /// Returns its name in configuration files and on the command line.
    #[must_use]
    pub fn key(self) -> &'static str {
        self.row().keys.first().copied().unwrap_or_default()
    }

    /// Returns the kind with this name in configuration files and on the command line.
    #[must_use]
    pub const fn by_key(key: &str) -> Option<Self> {
        let mut row = 0;
        while row < KINDS.len() {
            let mut place = 0;
            while place < KINDS[row].keys.len() {
                if is_same(KINDS[row].keys[place].as_bytes(), key.as_bytes()) {
                    return Some(KINDS[row].kind);
                }
                place += 1;
            }
            row += 1;
        }
        None
    }

    /// Returns the kinds with these names.
    ///
    /// # Panics
    /// A name is unknown.
    #[must_use]
    pub const fn each<const N: usize>(keys: [&str; N]) -> [Self; N] {
        let mut kinds = [KINDS[0].kind; N];
        let mut place = 0;
        while place < N {
            match Self::by_key(keys[place]) {
                Some(kind) => kinds[place] = kind,
                None => panic!("no venue has this name"),
            }
            place += 1;
        }
        kinds
    }

    /// Returns whether raw message files can hold its protocol, which must be ITCH.
    #[must_use]
    pub fn is_in_files(self) -> bool {
        self.row().speaks == Speaks::Itch
    }

    /// Returns whether it is a securities information processor, which publishes the other venues' quotes.
    #[must_use]
    pub fn is_sip(self) -> bool {
        matches!(self.row().speaks, Speaks::Uqdf | Speaks::Cqs)
    }

    /// Returns whether it uses IEX's auctions and halts.
    pub(crate) fn is_iex(self) -> bool {
        matches!(self.row().speaks, Speaks::Iex | Speaks::DeepPlus)
    }

    /// Returns whether it publishes the quotes of its own book, as TOPS does.
    pub(crate) fn is_tops(self) -> bool {
        self.is_iex() && self.row().shows == Shows::Quotes
    }

    /// Returns whether it publishes IEX's auctions.
    pub(crate) fn has_iex_auctions(self) -> bool {
        self.row().speaks == Speaks::Iex
    }

    /// Returns its feed.
    #[must_use]
    pub fn publisher(self) -> Publisher {
        self.row().publisher
    }

    /// Returns its display name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the multicast groups of lines A and B.
    #[must_use]
    pub fn groups(self) -> [SocketAddrV4; 2] {
        let (groups, port) = self.row().groups;
        groups.map(|group| SocketAddrV4::new(group.into(), port))
    }

    /// Returns the source addresses of lines A and B.
    #[must_use]
    pub fn sources(self) -> [SocketAddrV4; 2] {
        self.row().sources.map(|source| SocketAddrV4::new(source.into(), 10_378))
    }
}

/// A venue of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VenueConfig {
    /// The market.
    pub kind: VenueKind,
    /// Its share of all activity, relative to the sum over the venues. The units of a market divide the sum of their shares in
    /// proportion to their symbols.
    pub share: u32,
    /// The symbols that it trades.
    pub unit: Unit,
}

/// A channel of a market that spreads its symbols over several, such as Cboe's units or NYSE's channels. Each symbol is on one
/// channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Its number, counted from 1.
    pub number: u8,
    /// How many units the market has.
    pub of: u8,
}

impl Unit {
    /// The only unit of a market, with all symbols.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Returns whether this unit trades the symbol at this index.
    #[must_use]
    pub const fn has(self, symbol: u32) -> bool {
        self.of <= 1 || symbol % self.of as u32 + 1 == self.number as u32
    }
}

impl Default for Unit {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// How activity is distributed over the symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popularity {
    /// The symbol of rank `r` is active in proportion to `1 / (r + 2)`: a few symbols make up most of the volume, as on a real day.
    Zipf,
    /// All symbols are equally active, and each message's symbol is independent of the previous one: the hardest case for caches.
    Uniform,
}

/// A period of high rate, on top of the day's profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Its start, in nanoseconds since midnight in New York.
    pub start_ns: u64,
    /// Its length in nanoseconds.
    pub length_ns: u64,
    /// Messages per second during the burst, over all venues.
    pub messages_per_second: u64,
}

/// Faults of one line, each per million packets with messages, drawn from the scenario's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineFaults {
    /// Packets that never arrive.
    pub lost_per_million: u32,
    /// Packets that arrive twice.
    pub duplicated_per_million: u32,
    /// Packets that arrive after the next packet of their line.
    pub reordered_per_million: u32,
    /// Packets of which a second copy arrives late.
    pub late_copies_per_million: u32,
    /// Maximum delay of a late copy, in nanoseconds.
    pub late_copy_ns: u64,
}

impl LineFaults {
    /// Default maximum delay of a late copy, in nanoseconds.
    pub const USUAL_LATE_COPY_NS: u64 = 5 * SECOND_NS;
}

/// The description of a simulated session.
///
/// Start from [`Scenario::demo`], [`Scenario::benchmark`], [`Scenario::full_session`] or [`Scenario::close_burst`] and change its
/// fields; [`Generator::new`](crate::Generator::new) validates it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The same seed produces the same bytes.
    pub seed: u64,
    /// Midnight in New York, the start of the session's day, in nanoseconds since 1970-01-01 00:00 UTC.
    pub midnight_ns: u64,
    /// Midnight in New York of each trading day after the first, ascending, in the same unit. The messages are divided among the
    /// days. Each day starts with empty books and numbers its messages from 1, under the previous day's session except at IEX and
    /// MEMX.
    pub later_midnights_ns: Vec<u64>,
    /// How often per day all feeds fail and restart at number 1 in the same session, with the directory and empty books. The
    /// restarts divide the day evenly, and bursts that would span a restart are left out.
    pub restarts: u32,
    /// Whether a message announces that the numbers restart, on a later day and after a failure. If not, only the numbers show
    /// it. IEX-TP always announces it, through its stream offset.
    pub announces: bool,
    /// The venues. Packets allow at most one venue of each kind, because two would share their multicast groups; a
    /// [`Generator`](crate::Generator) and [`Live`](crate::live::Live) allow up to [`MAX_MARKETS`]. IEX TOPS and IEX DEEP
    /// together are simulated as two venues with separate books.
    pub venues: Vec<VenueConfig>,
    /// Symbols, 1 to 65,535. Each trades at every venue, on one of the venue's units.
    pub symbols: u32,
    /// Total messages of all venues. The generator hits this count to within a few messages, unless it is too small for the start
    /// of the day, which takes about five messages per symbol and venue.
    pub messages: u64,
    /// Mean time between two events of an endless market, in nanoseconds. 0 means that the market ends after the requested number
    /// of messages. An endless market ignores `messages` and `bursts`, has a constant rate, and continues after `end_ns`.
    pub endless_gap_ns: u64,
    /// When order flow starts, in nanoseconds since midnight in New York. Earlier messages (system events, the directory) are
    /// sent during the hour before, or from midnight on.
    pub start_ns: u64,
    /// When order flow ends, in nanoseconds since midnight in New York; at most 24 hours.
    pub end_ns: u64,
    /// How activity is distributed over the symbols.
    pub popularity: Popularity,
    /// Number of orders at which a side of a book stops growing, [`FEWEST_ORDERS`] to [`MOST_ORDERS`]. Orders arrive faster than
    /// they leave, so books grow up to this limit; with a low limit their sizes soon become constant.
    pub most_orders: u32,
    /// Bursts on top of the U-shaped day. Together they use at most half of the messages; if they would use more, all are shortened.
    pub bursts: Vec<Burst>,
    /// Number of short bursts (1 ms to 5 ms, 200,000 to 1 million messages per second) at random times during market hours.
    pub micro_bursts: u32,
    /// Number of symbols that are halted or paused, and resumed, once during market hours.
    pub halts: u32,
    /// Percentage of a symbol's price moves that follow the market, whose direction changes now and then. 0 means that symbols
    /// move independently.
    pub correlation_percent: u32,
    /// Whether NYSE, NYSE Arca, NYSE American and Cboe BZX, and not only Nasdaq and IEX, open and close the symbols that they
    /// list with auctions, and whether a symbol's listing market ends its halts with an auction.
    pub listing_auctions: bool,
    /// Messages of one venue within this time share a packet (up to 1,400 bytes of payload), in nanoseconds.
    pub packet_hold_ns: u64,
    /// A venue that is silent for this long sends a heartbeat, in nanoseconds; 0 disables heartbeats.
    pub heartbeat_ns: u64,
    /// Whether every packet is also sent on line B.
    pub line_b: bool,
    /// Maximum delay of line B after line A, in nanoseconds.
    pub line_b_skew_ns: u64,
    /// Faults of lines A and B.
    pub faults: [LineFaults; 2],
}

/// The named scenarios.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScenarioKind {
    /// [`Scenario::demo`].
    Demo,
    /// [`Scenario::close_burst`].
    Close,
    /// [`Scenario::benchmark`]: 20 million messages of 8,000 symbols by default.
    Benchmark,
    /// [`Scenario::full_session`]: 5 million messages of 3,000 symbols by default.
    Session,
    /// [`Scenario::us_market`]: 20 million messages by default.
    Us,
}

impl ScenarioKind {
    /// All named scenarios with their names.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("demo", Self::Demo),
        ("close", Self::Close),
        ("benchmark", Self::Benchmark),
        ("session", Self::Session),
        ("us", Self::Us),
    ];

    /// Returns the scenario with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Builds the scenario, with the given numbers of messages and symbols if there are any.
    #[must_use]
    pub fn scenario(self, messages: Option<u64>, symbols: Option<u32>) -> Scenario {
        let scenario = match self {
            Self::Demo => Scenario::demo(),
            Self::Close => Scenario::close_burst(),
            Self::Benchmark => Scenario::benchmark(messages.unwrap_or(20_000_000), symbols.unwrap_or(8_000)),
            Self::Session => Scenario::full_session(messages.unwrap_or(5_000_000), symbols.unwrap_or(3_000)),
            Self::Us => Scenario::us_market(messages.unwrap_or(20_000_000)),
        };
        Scenario {
            messages: messages.unwrap_or(scenario.messages),
            symbols: symbols.unwrap_or(scenario.symbols),
            ..scenario
        }
    }
}

/// Why a text is not a venue with its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongVenue {
    /// No venue has this name.
    Name,
    /// The share is not a number.
    Share,
}

impl VenueConfig {
    /// Parses a whole venue and its share: `nasdaq=60`, or `nasdaq` for a share of 1. The name is a [key](VenueKind::key), in any
    /// case.
    ///
    /// # Errors
    /// [`WrongVenue`] if the name or the share is wrong.
    pub fn parse(text: &str) -> Result<Self, WrongVenue> {
        let (name, share) = text.split_once('=').unwrap_or((text, "1"));
        let kind = VenueKind::by_key(&name.trim().to_ascii_lowercase()).ok_or(WrongVenue::Name)?;
        let share = share.trim().parse().map_err(|_| WrongVenue::Share)?;
        Ok(Self { kind, share, unit: Unit::WHOLE })
    }
}

/// Returns whether IEX lists a symbol, and therefore holds its auctions.
pub(crate) const fn is_listed_at_iex(index: u32) -> bool {
    index % 100 == 1
}

impl Scenario {
    /// Returns whether IEX lists symbols here, so that directories say so and some of those symbols are halted.
    pub(crate) fn lists_at_iex(&self) -> bool {
        self.listing_auctions && self.venues.iter().any(|venue| venue.kind.is_iex())
    }

    /// Returns the market that lists a symbol, as the letter that the SIPs and the venues' directories use.
    pub(crate) fn listing_market(&self, index: u32) -> u8 {
        if self.lists_at_iex() && is_listed_at_iex(index) {
            return b'V';
        }
        match (index % 8, index % 16) {
            (_, 11) if self.listing_auctions => b'A',
            (1 | 3, _) => b'N',
            (5, _) => b'P',
            (7, _) => b'Z',
            _ => b'Q',
        }
    }

    /// Creates one Nasdaq day from 04:00 to 20:00.
    #[must_use]
    pub fn full_session(messages: u64, symbols: u32) -> Self {
        Self {
            seed: 1,
            midnight_ns: DEFAULT_MIDNIGHT_NS,
            later_midnights_ns: Vec::new(),
            restarts: 0,
            announces: true,
            venues: vec![VenueConfig { kind: VenueKind::Nasdaq, share: 1, unit: Unit::WHOLE }],
            symbols,
            messages,
            endless_gap_ns: 0,
            start_ns: 4 * HOUR_NS,
            end_ns: 20 * HOUR_NS,
            popularity: Popularity::Zipf,
            most_orders: USUAL_MOST_ORDERS,
            bursts: Vec::new(),
            micro_bursts: 50,
            halts: 2,
            correlation_percent: 0,
            listing_auctions: false,
            packet_hold_ns: 5_000,
            heartbeat_ns: SECOND_NS,
            line_b: false,
            line_b_skew_ns: 5_000,
            faults: [LineFaults::default(); 2],
        }
    }

    /// Creates the demo: Nasdaq, BX, PSX and IEX DEEP with bursts at the open and the close, 2 million messages of 300 symbols.
    #[must_use]
    pub fn demo() -> Self {
        Self {
            venues: vec![
                VenueConfig { kind: VenueKind::Nasdaq, share: 60, unit: Unit::WHOLE },
                VenueConfig { kind: VenueKind::Bx, share: 12, unit: Unit::WHOLE },
                VenueConfig { kind: VenueKind::Psx, share: 8, unit: Unit::WHOLE },
                VenueConfig { kind: VenueKind::IexDeep, share: 20, unit: Unit::WHOLE },
            ],
            bursts: vec![
                Burst {
                    start_ns: 9 * HOUR_NS + 30 * MINUTE_NS,
                    length_ns: 100_000_000,
                    messages_per_second: 1_000_000,
                },
                Burst {
                    start_ns: 16 * HOUR_NS - 20_000_000,
                    length_ns: 50_000_000,
                    messages_per_second: 4_000_000,
                },
            ],
            micro_bursts: 100,
            halts: 3,
            ..Self::full_session(2_000_000, 300)
        }
    }

    /// Creates the whole US market: 14 markets and both SIPs.
    ///
    /// It has 2,000 symbols that move together, auctions at each listing market, and bursts at the open and the close.
    #[must_use]
    pub fn us_market(messages: u64) -> Self {
        use VenueKind as Kind;
        let shares = [
            (Kind::Nasdaq, 75),
            (Kind::Bx, 5),
            (Kind::Psx, 2),
            (Kind::IexDeepPlus, 15),
            (Kind::Memx, 15),
            (Kind::Bzx, 60),
            (Kind::Byx, 10),
            (Kind::Edga, 10),
            (Kind::Edgx, 50),
            (Kind::Nyse, 60),
            (Kind::Arca, 50),
            (Kind::American, 5),
            (Kind::National, 5),
            (Kind::Texas, 2),
            (Kind::Uqdf, 3),
            (Kind::Cqs, 3),
        ];
        let venue = |(kind, share)| VenueConfig { kind, share, unit: Unit::WHOLE };
        Self {
            venues: shares.into_iter().map(venue).collect(),
            symbols: 2_000,
            messages,
            halts: 20,
            correlation_percent: 50,
            listing_auctions: true,
            ..Self::demo()
        }
    }

    /// Creates an endless scenario of these venues from the open on, with events `gap_ns` apart on average.
    #[must_use]
    pub fn endless(venues: Vec<VenueConfig>, symbols: u32, gap_ns: u64) -> Self {
        Self {
            venues,
            endless_gap_ns: gap_ns.max(1),
            start_ns: OPEN_NS,
            end_ns: CLOSE_NS,
            micro_bursts: 0,
            halts: 3,
            ..Self::full_session(u64::MAX, symbols)
        }
    }

    /// Creates one Nasdaq venue whose messages are for random symbols: the workload of the published benchmarks.
    ///
    /// It ends with about 30 live orders per thousand messages (600,000 for 20 million).
    #[must_use]
    pub fn benchmark(messages: u64, symbols: u32) -> Self {
        Self { popularity: Popularity::Uniform, ..Self::full_session(messages, symbols) }
    }

    /// Creates the twenty seconds around a Nasdaq close.
    ///
    /// It has bursts of up to 4 million messages per second and 1.5 million messages of 1,000 symbols: the workload of the
    /// queueing study.
    #[must_use]
    pub fn close_burst() -> Self {
        let close = 16 * HOUR_NS;
        let burst =
            |start_ns, length_ns, messages_per_second| Burst { start_ns, length_ns, messages_per_second };
        Self {
            start_ns: close - 10 * SECOND_NS,
            end_ns: close + 10 * SECOND_NS,
            bursts: vec![
                burst(close - 5 * SECOND_NS, 20_000_000, 1_500_000),
                burst(close - SECOND_NS, 40_000_000, 2_500_000),
                burst(close - 50_000_000, 50_000_000, 4_000_000),
                burst(close + 100_000, 60_000_000, 4_000_000),
                burst(close + SECOND_NS, 30_000_000, 2_000_000),
            ],
            micro_bursts: 40,
            halts: 0,
            ..Self::full_session(1_500_000, 1_000)
        }
    }

    /// Iterates over the midnights of the days.
    fn midnights_ns(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.midnight_ns).chain(self.later_midnights_ns.iter().copied())
    }

    /// Returns how many times the feeds start numbering.
    #[must_use]
    pub fn run_count(&self) -> u64 {
        (1 + self.later_midnights_ns.len() as u64) * (1 + u64::from(self.restarts))
    }

    /// Returns the midnight of the day of a run; `number` is below [`Scenario::run_count`].
    pub(crate) fn midnight_of_run(&self, number: u64) -> u64 {
        let day = number / (1 + u64::from(self.restarts));
        self.midnights_ns().nth(day as usize).unwrap_or(self.midnight_ns)
    }

    /// Returns a run: a day, or its part between two restarts. `number` is below [`Scenario::run_count`], and the scenario must
    /// be valid.
    pub(crate) fn run(&self, number: u64) -> Run {
        let parts = 1 + u64::from(self.restarts);
        let (day, part) = (number / parts, number % parts);
        let width_ns = (self.end_ns - self.start_ns) / parts;
        let opens_ns = self.start_ns + part * width_ns;
        let (is_first_part, is_cut) = (part == 0, part + 1 < parts);
        // After a restart the directory comes first; before a restart there is a period of silence.
        let opening_ns = if is_first_part { HOUR_NS } else { HOUR_NS.min(width_ns / 4) };
        let start_ns = if is_first_part { opens_ns } else { opens_ns + opening_ns };
        let end_ns = if is_cut { opens_ns + width_ns - width_ns / 100 } else { self.end_ns };
        let is_within =
            |burst: &&Burst| burst.start_ns >= start_ns && burst.start_ns + burst.length_ns <= end_ns;
        let scenario = Self {
            seed: self.seed.wrapping_add(number),
            midnight_ns: self.midnight_of_run(number),
            later_midnights_ns: Vec::new(),
            restarts: 0,
            messages: self.messages / self.run_count(),
            start_ns,
            end_ns,
            bursts: self.bursts.iter().filter(is_within).copied().collect(),
            micro_bursts: self.micro_bursts / parts as u32,
            halts: self.halts.div_ceil(parts as u32),
            ..self.clone()
        };
        let is_announced = number == 0 || self.announces;
        Run { scenario, day: day as u32, opening_ns, is_announced, is_cut }
    }

    /// Checks that the scenario can be generated as packets to the venues' own multicast groups.
    ///
    /// # Errors
    /// The first rule that the scenario violates.
    pub fn check(&self) -> Result<(), ScenarioError> {
        if self.venues.is_empty() || self.venues.len() > MAX_VENUES {
            return Err(ScenarioError::Venues { got: self.venues.len(), most: MAX_VENUES });
        }
        for (number, venue) in self.venues.iter().enumerate() {
            if self.venues.iter().skip(number + 1).any(|other| other.kind == venue.kind) {
                return Err(ScenarioError::SameVenue { name: venue.kind.name() });
            }
        }
        self.check_market()
    }

    /// Reduces the number of symbols if the start of the day would use most of the messages.
    ///
    /// The generated messages then come close to the requested number.
    pub fn fit_symbols(&mut self) {
        let a_symbol = START_MESSAGES * self.venues.len().max(1) as u64 * self.run_count();
        let most = (self.messages / a_symbol).clamp(1, u64::from(u32::MAX));
        self.symbols = self.symbols.min(most as u32);
    }

    /// Checks that the scenario can be generated as messages; several venues may have the same kind.
    ///
    /// # Errors
    /// The first rule that the scenario violates.
    pub fn check_market(&self) -> Result<(), ScenarioError> {
        if self.venues.is_empty() || self.venues.len() > MAX_MARKETS {
            return Err(ScenarioError::Venues { got: self.venues.len(), most: MAX_MARKETS });
        }
        if let Some(wrong) =
            self.venues.iter().find(|venue| !(1..=venue.unit.of).contains(&venue.unit.number))
        {
            return Err(ScenarioError::Unit { number: wrong.unit.number, of: wrong.unit.of });
        }
        // A SIP's own book may be empty.
        let is_wrong =
            |venue: &VenueConfig| venue.share > 1_000_000 || venue.share == 0 && !venue.kind.is_sip();
        if self.venues.iter().any(is_wrong) || self.venues.iter().all(|venue| venue.share == 0) {
            return Err(ScenarioError::Share);
        }
        if self.symbols == 0 || self.symbols > u32::from(u16::MAX) {
            return Err(ScenarioError::Symbols { got: self.symbols });
        }
        if !(FEWEST_ORDERS..=MOST_ORDERS).contains(&self.most_orders) {
            return Err(ScenarioError::Orders { got: self.most_orders });
        }
        if self.start_ns >= self.end_ns || self.end_ns > 24 * HOUR_NS {
            return Err(ScenarioError::Window { start_ns: self.start_ns, end_ns: self.end_ns });
        }
        let runs = (self.end_ns - self.start_ns) / SHORTEST_RUN_NS;
        let most = runs.saturating_sub(1).min(u64::from(MOST_RESTARTS));
        if u64::from(self.restarts) > most {
            return Err(ScenarioError::Restarts { got: self.restarts, most });
        }
        if self.later_midnights_ns.len() >= MOST_DAYS {
            return Err(ScenarioError::TooManyDays { got: self.later_midnights_ns.len() + 1 });
        }
        let mut before_ns = None;
        for midnight_ns in self.midnights_ns() {
            // IEX times are signed; the last day must end before they overflow.
            if midnight_ns > i64::MAX as u64 - 48 * HOUR_NS {
                return Err(ScenarioError::Midnight { got: midnight_ns });
            }
            let opens_ns = midnight_ns + self.start_ns.saturating_sub(HOUR_NS);
            if before_ns.is_some_and(|ended_ns| opens_ns <= ended_ns) {
                return Err(ScenarioError::Days { got: midnight_ns });
            }
            before_ns = Some(midnight_ns + self.end_ns + 2 * SECOND_NS);
        }
        for burst in &self.bursts {
            let end = burst.start_ns.saturating_add(burst.length_ns);
            if burst.messages_per_second == 0
                || burst.messages_per_second > SECOND_NS
                || burst.start_ns < self.start_ns
                || end > self.end_ns
            {
                return Err(ScenarioError::Burst { start_ns: burst.start_ns });
            }
        }
        if self.micro_bursts > 1_000_000 {
            return Err(ScenarioError::MicroBursts { got: self.micro_bursts });
        }
        if self.halts > MOST_HALTS {
            return Err(ScenarioError::Halts { got: self.halts });
        }
        if self.heartbeat_ns != 0 && self.heartbeat_ns < SHORTEST_HEARTBEAT_NS {
            return Err(ScenarioError::Heartbeat { got: self.heartbeat_ns });
        }
        for faults in &self.faults {
            let LineFaults {
                lost_per_million,
                duplicated_per_million,
                reordered_per_million,
                late_copies_per_million,
                late_copy_ns,
            } = *faults;
            let most = lost_per_million.max(duplicated_per_million).max(reordered_per_million);
            let most = most.max(late_copies_per_million);
            if late_copy_ns > 24 * HOUR_NS {
                return Err(ScenarioError::Delay);
            }
            if most > MILLION {
                return Err(ScenarioError::Faults { got: most });
            }
        }
        // At most a day, so that no sum of times overflows.
        if self.packet_hold_ns.max(self.line_b_skew_ns).max(self.heartbeat_ns) > 24 * HOUR_NS {
            return Err(ScenarioError::Delay);
        }
        Ok(())
    }
}

/// A part of a scenario in which the feeds start numbering from 1 once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    /// The scenario of this run alone.
    pub(crate) scenario: Scenario,
    /// The day, from 0.
    pub(crate) day: u32,
    /// How long before order flow the first messages are sent, in nanoseconds.
    pub(crate) opening_ns: u64,
    /// Whether a message announces that the numbers restart.
    pub(crate) is_announced: bool,
    /// Whether the feeds fail at its end, so that nothing announces the end.
    pub(crate) is_cut: bool,
}

/// Maximum number of days: the trading days of a year.
const MOST_DAYS: usize = 252;

/// Maximum number of restarts per day.
const MOST_RESTARTS: u32 = 1_000;

/// Shortest time between two restarts, in nanoseconds.
const SHORTEST_RUN_NS: u64 = SECOND_NS;

/// All packets, in the unit of [`LineFaults`].
const MILLION: u32 = 1_000_000;

/// Messages per symbol and venue that leave room for more than the start of the day, which takes about five.
const START_MESSAGES: u64 = 8;

/// Orders that a side must hold before it receives anything but additions.
pub const FEWEST_ORDERS: u32 = 3;

/// Largest value of [`Scenario::most_orders`].
pub const MOST_ORDERS: u32 = 1_000_000;

/// [`Scenario::most_orders`] of the scenarios created here.
pub const USUAL_MOST_ORDERS: u32 = 4_000;

/// Maximum number of halts per session.
const MOST_HALTS: u32 = 10_000;

/// Shortest heartbeat interval, in nanoseconds.
const SHORTEST_HEARTBEAT_NS: u64 = 1_000_000;

/// Maximum number of venues in a scenario generated as packets: one of each kind.
pub const MAX_VENUES: usize = KINDS.len();

/// Maximum number of venues in a scenario whose lines are configured.
pub const MAX_MARKETS: usize = 200;

/// Why a scenario cannot be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// There are no venues, or more than [`MAX_VENUES`] or [`MAX_MARKETS`].
    #[error("{got} venues: there must be 1 to {most}")]
    Venues {
        /// Venues in the scenario.
        got: usize,
        /// Maximum number of venues.
        most: usize,
    },
    /// Two venues have the same kind.
    #[error("{name} comes twice: two venues of a kind would share their multicast groups")]
    SameVenue {
        /// The kind's name.
        name: &'static str,
    },
    /// A market does not have this unit.
    #[error("unit {number} of {of}: units are numbered from 1")]
    Unit {
        /// The unit's number.
        number: u8,
        /// Units of the market.
        of: u8,
    },
    /// A venue's share is out of bounds.
    #[error("a venue's share must be 1 to 1,000,000; that of a SIP beside others may be 0")]
    Share,
    /// There are no symbols, or more than ITCH's stock locate can number.
    #[error("{got} symbols: there must be 1 to 65,535")]
    Symbols {
        /// Symbols in the scenario.
        got: u32,
    },
    /// The maximum number of orders per side is out of bounds.
    #[error("{got} orders at most on a side of a book: there must be {FEWEST_ORDERS} to {MOST_ORDERS}")]
    Orders {
        /// The maximum requested.
        got: u32,
    },
    /// The window is empty or extends past the end of the day.
    #[error("order flow from {start_ns} ns to {end_ns} ns after midnight: must be a time of one day")]
    Window {
        /// The start requested.
        start_ns: u64,
        /// The end requested.
        end_ns: u64,
    },
    /// The day is beyond the range of the protocols' times.
    #[error("midnight {got} ns is beyond the year 2262")]
    Midnight {
        /// The midnight requested.
        got: u64,
    },
    /// A burst is outside the window, or its rate is 0 or above one message per nanosecond.
    #[error(
        "the burst at {start_ns} ns after midnight: must lie in the window, at 1 to 1e9 messages a second"
    )]
    Burst {
        /// The burst's start.
        start_ns: u64,
    },
    /// There are too many micro bursts.
    #[error("{got} micro bursts are over the limit of 1,000,000")]
    MicroBursts {
        /// Micro bursts requested.
        got: u32,
    },
    /// There are more faults than packets.
    #[error("{got} packets per million: at most 1,000,000 of a million can be lost, repeated or late")]
    Faults {
        /// The number requested, per million.
        got: u32,
    },
    /// There are too many halts.
    #[error("{got} halts are over the limit of 10,000")]
    Halts {
        /// Halts requested.
        got: u32,
    },
    /// Heartbeats are less than a millisecond apart.
    #[error("a heartbeat every {got} ns: must be 0 or at least 1,000,000")]
    Heartbeat {
        /// The interval requested.
        got: u64,
    },
    /// The packet hold, line B's skew, a late copy's delay, or the heartbeat interval is longer than a day.
    #[error("packet hold, line B's skew, late copies and the heartbeat's interval must not exceed a day")]
    Delay,
    /// A day starts before the previous day has ended.
    #[error("the day that begins at {got} ns: days must be ascending")]
    Days {
        /// The midnight requested.
        got: u64,
    },
    /// There are more days than a year has trading days.
    #[error("{got} days are over the limit of {MOST_DAYS}")]
    TooManyDays {
        /// Days requested.
        got: usize,
    },
    /// There are too many restarts for the duration of order flow.
    #[error("{got} restarts a day: there may be {most}, at least a second apart")]
    Restarts {
        /// Restarts requested.
        got: u32,
        /// Maximum number of restarts.
        most: u64,
    },
    /// A raw ITCH file cannot express days and restarts.
    #[error("a raw ITCH file holds one day without restarts; the scenario has {got} runs: write a capture")]
    NotOneRun {
        /// Runs in the scenario: days, and parts of days between restarts.
        got: u64,
    },
    /// A raw ITCH file needs exactly one venue, which must speak ITCH.
    #[error(
        "a raw ITCH file holds one venue that speaks ITCH; the scenario has {venues} venues, the first is {first}"
    )]
    NotOneItchVenue {
        /// Venues in the scenario.
        venues: usize,
        /// The first venue's name.
        first: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_row_of_its_own_and_is_found_by_its_key() {
        for (place, row) in KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, place);
            assert_eq!(VenueKind::by_key(row.kind.key()), Some(row.kind));
            let others = KINDS.iter().filter(|other| other.groups == row.groups).count();
            assert_eq!(others, 1, "{} shares its groups", row.name);
        }
        assert_eq!(VenueKind::by_key("pitch"), None);
    }
}
