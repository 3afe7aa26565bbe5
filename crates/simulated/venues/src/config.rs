//! The configuration of simulated venues: a TOML file. Errors have file, line, and column, and name the expected value.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tapeworks_generator::live::{LiveBurst, LiveVenue, Night, Silence};
use tapeworks_generator::{
    FEWEST_ORDERS, MAX_MARKETS, MOST_ORDERS, Popularity, USUAL_MOST_ORDERS, Unit, VenueKind,
};
use tapeworks_session::Credentials;
use tapeworks_session::requests::{LoginLimits, RequestProtocol};
use tapeworks_session::snapshot::SnapshotProtocol;
use toml::Spanned;
use toml::de::DeTable;

use crate::answers::AnswerFaults;
use crate::images::SnapshotFaults;
use crate::order_config::{OrderVenue, read_order_venue};
use crate::reading::{HOUR, MILLION, MILLISECOND, Taken, nanoseconds, read_faults, refuse_long_login};
use tapeworks_runtime::config::ConfigError;
use tapeworks_runtime::config::{Reading, Section, read_file, read_text};

const SECOND_NS: u64 = 1_000_000_000;

/// How the pacing thread waits for the next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Spins: at most a microsecond late, but uses a whole core.
    Spin,
    /// Sleeps when the next message is due in more than 200 us, otherwise spins.
    #[default]
    Sleep,
    /// Always sleeps, for at least 200 us: messages are sent together and up to that much late, and the core is free for others.
    Rest,
    /// Always sleeps, for at least 1 ms.
    Park,
}

impl Wait {
    const ALL: [Self; 4] = [Self::Spin, Self::Sleep, Self::Rest, Self::Park];

    const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
            Self::Rest => "rest",
            Self::Park => "park",
        }
    }
}

/// The configuration of a venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Venue {
    /// Its name in reports, unique among the venues.
    pub name: String,
    /// Its market, and the behavior of its lines.
    pub live: LiveVenue,
    /// The destinations of line A and, if it exists, line B.
    pub lines: Vec<SocketAddrV4>,
    /// The address for retransmission requests, by UDP or TCP. With port 0 the kernel chooses the port.
    pub retransmission: Option<SocketAddr>,
    /// Whether requests are sent over TCP, in the format of the real venue.
    pub retransmission_by_tcp: bool,
    /// The destination of answers to TCP requests, for Cboe's Gap Request Proxy and NYSE's request server. Other venues answer
    /// over the connection.
    pub retransmission_group: Option<SocketAddrV4>,
    /// Answers to requests that are lost, per million.
    pub retransmission_lost_per_million: u32,
    /// The faults of its answers.
    pub retransmission_faults: AnswerFaults,
    /// The address for snapshots, by TCP; with `snapshot_group`, it accepts the requests for them. With port 0 the kernel chooses
    /// the port.
    pub snapshot: Option<SocketAddr>,
    /// The destination of requested snapshots: NYSE's refreshes. Other venues have none.
    pub snapshot_group: Option<SocketAddrV4>,
    /// The faults of its snapshots.
    pub snapshot_faults: SnapshotFaults,
}

/// The configuration of simulated venues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The same seed produces the same market.
    pub seed: u64,
    /// Symbols, 1 to 65,535. Each trades at every venue.
    pub symbols: u32,
    /// How activity is distributed over the symbols.
    pub popularity: Popularity,
    /// Number of orders at which a side of a book stops growing.
    pub most_orders: u32,
    /// Total messages of all venues; `None` means until stopped.
    pub messages: Option<u64>,
    /// Messages per second over all venues.
    pub rate: u64,
    /// Bursts on top of `rate`.
    pub bursts: Vec<LiveBurst>,
    /// The nights between two trading days, ascending. A configuration file cannot set them.
    pub nights: Vec<Night>,
    /// The address of the interface for outgoing multicast.
    pub interface: Ipv4Addr,
    /// Multicast hop limit; with 0, multicast stays on the machine.
    pub hops: u32,
    /// How the pacing thread waits for the next message.
    pub wait: Wait,
    /// A venue that is silent for this long sends a heartbeat, in nanoseconds; 0 disables heartbeats.
    pub heartbeat_ns: u64,
    /// How long ends of session are repeated, in nanoseconds.
    pub linger_ns: u64,
    /// Bytes of messages that each venue keeps for retransmission.
    pub store_bytes: usize,
    /// The credentials for snapshots; `None` serves any client.
    pub credentials: Option<Credentials>,
    /// The file for the final report.
    pub injected: Option<PathBuf>,
    /// The venues, at most [`MAX_MARKETS`].
    pub venues: Vec<Venue>,
    /// The exchanges that accept orders: [`OrderVenues`](crate::orders::OrderVenues) runs them.
    pub orders: Vec<OrderVenue>,
}

const POPULARITIES: [(Popularity, &str); 2] = [(Popularity::Zipf, "zipf"), (Popularity::Uniform, "uniform")];

fn name_of<T: Copy + PartialEq>(all: &[(T, &'static str)], wanted: T) -> &'static str {
    all.iter().find(|(value, _)| *value == wanted).map_or("", |(_, name)| name)
}

impl Config {
    /// Creates a configuration with the defaults: seed 1, 300 symbols, 100,000 messages per second, a heartbeat each second,
    /// loopback.
    #[must_use]
    pub fn new(venues: Vec<Venue>) -> Self {
        Self {
            seed: 1,
            symbols: 300,
            popularity: Popularity::Zipf,
            most_orders: USUAL_MOST_ORDERS,
            messages: None,
            rate: 100_000,
            bursts: Vec::new(),
            nights: Vec::new(),
            interface: Ipv4Addr::LOCALHOST,
            hops: 0,
            wait: Wait::default(),
            heartbeat_ns: SECOND_NS,
            linger_ns: SECOND_NS,
            store_bytes: 128 << 20,
            credentials: None,
            injected: None,
            venues,
            orders: Vec::new(),
        }
    }

    /// Parses the configuration in `text`, which was read from a file named `file`.
    ///
    /// # Errors
    /// The problems, in the order of the file; at least one.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<ConfigError>> {
        read_text(Reading::new(file, text, true), read_document)
    }

    /// Reads the configuration file at `path`.
    ///
    /// # Errors
    /// As for [`Config::parse`]; a file that cannot be read is reported without a line.
    pub fn load(path: &Path) -> Result<Self, Vec<ConfigError>> {
        let file = path.display().to_string();
        Self::parse(&file, &read_file(path, &file)?)
    }
}

impl Venue {
    /// Creates a venue without faults or servers that sends to these lines: A and, optionally, B.
    #[must_use]
    pub fn new(name: &str, kind: VenueKind, lines: Vec<SocketAddrV4>) -> Self {
        Self {
            name: name.to_owned(),
            live: LiveVenue { line_b: lines.len() > 1, ..LiveVenue::new(kind) },
            lines,
            retransmission: None,
            retransmission_by_tcp: false,
            retransmission_group: None,
            retransmission_lost_per_million: 0,
            retransmission_faults: AnswerFaults::default(),
            snapshot: None,
            snapshot_group: None,
            snapshot_faults: SnapshotFaults::default(),
        }
    }
}

fn read_document(reading: &mut Reading<'_>, document: &Spanned<DeTable<'_>>) -> Config {
    let mut top = Section::new("the file", document.get_ref(), 0..0);
    let mut config = Config::new(Vec::new());
    let seed = top.integer(reading, "seed", 0..=usize::MAX >> 1);
    config.seed = seed.map_or(config.seed, |(seed, _)| seed as u64);
    let symbols = top.integer(reading, "symbols", 1..=65_535);
    config.symbols = symbols.map_or(config.symbols, |(symbols, _)| symbols as u32);
    let popularity = POPULARITIES.map(|(value, _)| value);
    config.popularity = top
        .choice(reading, "popularity", &popularity, |value| name_of(&POPULARITIES, value))
        .unwrap_or(config.popularity);
    let most_orders = top.integer(reading, "most_orders", FEWEST_ORDERS as usize..=MOST_ORDERS as usize);
    config.most_orders = most_orders.map_or(config.most_orders, |(orders, _)| orders as u32);
    config.messages =
        top.integer(reading, "messages", 1..=usize::MAX >> 2).map(|(messages, _)| messages as u64);
    config.rate =
        top.integer(reading, "rate", 1..=100 * MILLION).map_or(config.rate, |(rate, _)| rate as u64);
    config.interface = top
        .parsed(reading, "interface", "the IPv4 address of an interface", |text| text.parse().ok())
        .unwrap_or(config.interface);
    config.hops = top.integer(reading, "hops", 0..=255).map_or(config.hops, |(hops, _)| hops as u32);
    config.wait = top.choice(reading, "wait", &Wait::ALL, Wait::name).unwrap_or_default();
    config.heartbeat_ns =
        nanoseconds(reading, &mut top, "heartbeat", MILLISECOND..=HOUR).unwrap_or(config.heartbeat_ns);
    config.linger_ns =
        nanoseconds(reading, &mut top, "linger", Duration::ZERO..=HOUR).unwrap_or(config.linger_ns);
    config.store_bytes = top
        .integer(reading, "retransmission_store_mb", 1..=65_536)
        .map_or(config.store_bytes, |(megabytes, _)| megabytes << 20);
    config.injected = top.text(reading, "injected").map(|(path, _)| PathBuf::from(path));
    config.credentials = read_credentials(reading, &mut top);
    config.bursts =
        top.tables(reading, "burst").into_iter().filter_map(|burst| read_burst(reading, burst)).collect();
    let venues = top.tables(reading, "venue");
    let orders = top.tables(reading, "orders");
    if venues.is_empty() && orders.is_empty() {
        let problem = "there are no venues; each is a [[venue]] with name and kind, or [[orders]] with name";
        reading.wrong_at_end(problem.to_owned());
    }
    if let Some(first_too_many) = venues.get(MAX_MARKETS) {
        reading.wrong(first_too_many.span.clone(), format!("at most {MAX_MARKETS} venues are possible"));
    }
    let mut taken = Taken::default();
    let login = config.credentials.as_ref();
    config.venues =
        venues.into_iter().filter_map(|venue| read_venue(reading, venue, login, &mut taken)).collect();
    config.orders =
        orders.into_iter().filter_map(|venue| read_order_venue(reading, venue, login, &mut taken)).collect();
    top.refuse_the_rest(reading);
    config
}

/// Maximum delay of a late answer.
const MOST_LATE: Duration = Duration::from_secs(4);
fn read_credentials(reading: &mut Reading<'_>, top: &mut Section<'_>) -> Option<Credentials> {
    let mut section = top.table(reading, "snapshot_login")?;
    let mut word = |key, longest: usize| {
        let (text, span) = section.required_text(reading, key)?;
        if text.len() > longest || !text.is_ascii() || text.trim() != text {
            reading.wrong(span, format!("'{key}' must have at most {longest} letters or digits"));
        }
        Some(text)
    };
    // The longest login of any venue; each venue has its own limit.
    let most = SnapshotProtocol::ALL.map(SnapshotProtocol::login_limits);
    let most = most.into_iter().fold(LoginLimits::NONE, LoginLimits::max);
    let (user, password) = (word("user", most.user), word("password", most.password));
    section.refuse_the_rest(reading);
    Some(Credentials { user: user?, password: password? })
}

fn read_burst(reading: &mut Reading<'_>, mut burst: Section<'_>) -> Option<LiveBurst> {
    for key in ["at", "length"] {
        if !burst.has_time(key) {
            burst.missing(reading, key);
        }
    }
    if !burst.has("messages_per_second") {
        burst.missing(reading, "messages_per_second");
    }
    let at_ns = nanoseconds(reading, &mut burst, "at", Duration::ZERO..=24 * HOUR);
    let length_ns = nanoseconds(reading, &mut burst, "length", Duration::from_micros(1)..=HOUR);
    let rate = burst.integer(reading, "messages_per_second", 1..=100 * MILLION);
    burst.refuse_the_rest(reading);
    Some(LiveBurst { at_ns: at_ns?, length_ns: length_ns?, messages_per_second: rate?.0 as u64 })
}

/// Reads a venue. `login` is the snapshot login of all venues.
fn read_venue(
    reading: &mut Reading<'_>,
    mut venue: Section<'_>,
    login: Option<&Credentials>,
    taken: &mut Taken,
) -> Option<Venue> {
    let name = venue.required_text(reading, "name");
    let kinds: Vec<VenueKind> = VenueKind::all().collect();
    let kind = venue.choice(reading, "kind", &kinds, VenueKind::key);
    if !venue.has("kind") {
        venue.missing(reading, "kind");
    }
    let name = taken.take_name(reading, name);
    let share = venue.integer(reading, "share", 1..=MILLION).map_or(1, |(share, _)| share as u32);
    let units = venue.integer(reading, "units", 1..=MAX_MARKETS).map_or(1, |(units, _)| units as u8);
    let number = venue.integer(reading, "unit", 1..=MAX_MARKETS).map_or(1, |(number, _)| number as u8);
    if number > units {
        venue.wrong_at(reading, "unit", "'unit' must be one of the 'units'");
    }
    let unit = Unit { number, of: units };
    let given = venue.each(reading, "lines", "a multicast group or an IPv4 address with a port", |text| {
        text.parse::<SocketAddrV4>().ok().filter(|line| line.port() != 0)
    });
    let lines = given.or_else(|| kind.map(|kind| kind.groups().to_vec())).unwrap_or_default();
    taken.take_lines(reading, &venue, &name, &lines);
    let retransmission_by_tcp = venue.is_table("retransmission");
    let protocol = |kind: VenueKind| RequestProtocol::of(kind.transport());
    let to_group = kind.is_none_or(|kind| protocol(kind).is_none_or(RequestProtocol::answers_to_group));
    let (retransmission, retransmission_group) = read_by_tcp(
        reading,
        (&mut venue, "retransmission", "udp"),
        (&name, taken),
        (kind.is_none_or(|kind| protocol(kind).is_some()), to_group),
        "only venues of Cboe, NYSE, London and MEMX take requests over TCP: give an address",
    );
    let by_group = |kind: VenueKind| SnapshotProtocol::by_group(kind.transport());
    let (snapshot, snapshot_group) = read_by_tcp(
        reading,
        (&mut venue, "snapshot", "tcp"),
        (&name, taken),
        (kind.is_none_or(|kind| by_group(kind).is_some()), true),
        "only venues of NYSE send snapshots to a group: give an address",
    );
    let protocol = |kind: VenueKind| match snapshot_group {
        Some(_) => by_group(kind),
        None => Some(SnapshotProtocol::of(kind.transport())),
    };
    if let (Some(_), Some(protocol)) = (snapshot, kind.and_then(protocol)) {
        refuse_long_login(reading, &venue, protocol, login);
    }
    let retransmission_lost_per_million = venue
        .integer(reading, "retransmission_lost_per_million", 0..=MILLION)
        .map_or(0, |(lost, _)| lost as u32);
    let retransmission_faults = read_answer_faults(reading, &mut venue);
    let snapshot_faults = read_snapshot_faults(reading, &mut venue);
    let (faults, skew_ns) = read_faults(reading, &mut venue, "faults", lines.len());
    let restart_after: Vec<u64> = venue
        .each(reading, "restart_after", "a number of messages", |text| {
            text.parse().ok().filter(|after| *after > 0)
        })
        .unwrap_or_default();
    if !restart_after.is_sorted() {
        venue.wrong_at(reading, "restart_after", "'restart_after' must be ascending");
    }
    let silences = read_silence(reading, &mut venue, "silent_after", "silence");
    let resets = read_silence(reading, &mut venue, "reset_after", "reset");
    let announces = venue.boolean(reading, "announce_resets").unwrap_or(true);
    let nonsense_per_million = venue
        .integer(reading, "nonsense_per_million", 0..=MILLION)
        .map_or(0, |(nonsense, _)| nonsense as u32);
    venue.refuse_the_rest(reading);
    let live = LiveVenue {
        unit,
        share,
        line_b: lines.len() > 1,
        faults,
        skew_ns,
        restart_after,
        silences,
        resets,
        announces,
        nonsense_per_million,
        ..LiveVenue::new(kind?)
    };
    Some(Venue {
        name,
        live,
        lines,
        retransmission,
        retransmission_by_tcp,
        retransmission_group,
        retransmission_lost_per_million,
        retransmission_faults,
        snapshot,
        snapshot_group,
        snapshot_faults,
    })
}

/// Reads a server: an address, or a table with an address for TCP requests and, if `to_group`, a group for the answers.
///
/// `problem` says why a venue cannot have a table.
fn read_by_tcp(
    reading: &mut Reading<'_>,
    (venue, key, protocol): (&mut Section<'_>, &'static str, &'static str),
    (name, taken): (&str, &mut Taken),
    (has_table, to_group): (bool, bool),
    problem: &str,
) -> (Option<SocketAddr>, Option<SocketAddrV4>) {
    if !venue.is_table(key) {
        return (taken.server(reading, venue, name, key, protocol), None);
    }
    if !has_table {
        venue.wrong_at(reading, key, problem);
    }
    let Some(mut section) = venue.table(reading, key) else { return (None, None) };
    for key in ["tcp", "group"].into_iter().take(1 + usize::from(to_group)) {
        if !section.has(key) {
            section.missing(reading, key);
        }
    }
    let tcp = taken.server(reading, &mut section, name, "tcp", "tcp");
    let group = if to_group { taken.group(reading, &mut section, name, "group") } else { None };
    section.refuse_the_rest(reading);
    (tcp, group)
}

fn read_silence(
    reading: &mut Reading<'_>,
    venue: &mut Section<'_>,
    after_key: &'static str,
    length_key: &'static str,
) -> Vec<Silence> {
    let after = venue.integer(reading, after_key, 1..=usize::MAX >> 2);
    let length_ns = nanoseconds(reading, venue, length_key, MILLISECOND..=HOUR);
    match (venue.has(after_key), venue.has_time(length_key)) {
        (true, false) => venue.missing(reading, length_key),
        (false, true) => venue.missing(reading, after_key),
        _ => {}
    }
    let silence = after.zip(length_ns);
    silence.map(|((after, _), length_ns)| Silence { after: after as u64, length_ns }).into_iter().collect()
}

fn read_snapshot_faults(reading: &mut Reading<'_>, venue: &mut Section<'_>) -> SnapshotFaults {
    let Some(mut section) = venue.table(reading, "snapshot_faults") else {
        return SnapshotFaults::default();
    };
    let mut part = |key| section.integer(reading, key, 0..=MILLION).map_or(0, |(part, _)| part as u32);
    let faults = SnapshotFaults {
        ahead_per_million: part("ahead_per_million"),
        other_session_per_million: part("other_session_per_million"),
        unreadable_per_million: part("unreadable_per_million"),
        silent_per_million: part("silent_per_million"),
        endless_per_million: part("endless_per_million"),
    };
    if faults.sum() > MILLION as u64 {
        let problem = "a snapshot has one fault: all of them together are at most 1000000 per million";
        venue.wrong_at(reading, "snapshot_faults", problem);
    }
    section.refuse_the_rest(reading);
    faults
}

fn read_answer_faults(reading: &mut Reading<'_>, venue: &mut Section<'_>) -> AnswerFaults {
    let Some(mut section) = venue.table(reading, "retransmission_faults") else {
        return AnswerFaults::default();
    };
    let late_ns = nanoseconds(reading, &mut section, "late", MILLISECOND..=MOST_LATE).unwrap_or_default();
    let mut part = |key| section.integer(reading, key, 0..=MILLION).map_or(0, |(part, _)| part as u32);
    let faults = AnswerFaults {
        late_per_million: part("late_per_million"),
        late_ns,
        partial_per_million: part("partial_per_million"),
        more_per_million: part("more_per_million"),
        other_range_per_million: part("other_range_per_million"),
        other_session_per_million: part("other_session_per_million"),
        garbage_per_million: part("garbage_per_million"),
        unreadable_per_million: part("unreadable_per_million"),
        repeated_per_million: part("repeated_per_million"),
    };
    if faults.late_per_million > 0 && !section.has_time("late") {
        section.missing(reading, "late");
    }
    if faults.sum() > MILLION as u64 {
        let problem = "an answer has one fault: all of them together are at most 1000000 per million";
        venue.wrong_at(reading, "retransmission_faults", problem);
    }
    section.refuse_the_rest(reading);
    faults
}

#[cfg(test)]
mod tests {
    use tapeworks_matching::SelfTrade;

    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let errors = Config::parse("v.toml", text).expect_err("it is wrong");
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_that_a_file_can_say_is_read() {
        let config = Config::parse(
            "v.toml",
            r#"
            seed = 7
            symbols = 12
            popularity = "uniform"
            most_orders = 500
            messages = 2_000_000
            rate = 50_000
            interface = "10.0.0.1"
            hops = 1
            wait = "spin"
            heartbeat = "0.5s"
            linger = "3s"
            retransmission_store_mb = 2
            injected = "injected.json"
            snapshot_login = { user = "me", password = "secret" }
            [[burst]]
            at = "5.0s"
            length = "250ms"
            messages_per_second = 4_000_000
            [[venue]]
            name = "one"
            kind = "iex-tops"
            share = 60
            lines = ["239.192.1.1:30001", "239.192.1.2:30002"]
            retransmission = "127.0.0.1:31001"
            retransmission_lost_per_million = 5
            retransmission_faults = { late_per_million = 1, late = "20ms", partial_per_million = 2, more_per_million = 3, other_range_per_million = 4, other_session_per_million = 5, garbage_per_million = 6, unreadable_per_million = 7, repeated_per_million = 8 }
            snapshot_faults = { ahead_per_million = 1, other_session_per_million = 3, unreadable_per_million = 4, silent_per_million = 5, endless_per_million = 6 }
            snapshot = "127.0.0.1:32001"
            faults = { a = { lost_per_million = 1 }, b = { duplicated_per_million = 2, reordered_per_million = 3, late_copies_per_million = 4, late_copy = "4s" }, skew = "50us" }
            restart_after = [500_000, 600_000]
            silent_after = 9
            silence = "1.5s"
            reset_after = 700_000
            reset = "4s"
            announce_resets = false
            nonsense_per_million = 8
            [[venue]]
            name = "two"
            kind = "bx"
            [[venue]]
            name = "three"
            kind = "edgx"
            retransmission = { tcp = "127.0.0.1:31003", group = "239.192.1.3:30003" }
            "#,
        )
        .unwrap();
        assert_eq!((config.seed, config.symbols, config.messages), (7, 12, Some(2_000_000)));
        assert_eq!((config.rate, config.hops, config.wait), (50_000, 1, Wait::Spin));
        assert_eq!((config.popularity, config.interface), (Popularity::Uniform, Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(config.most_orders, 500);
        assert_eq!((config.heartbeat_ns, config.linger_ns), (500_000_000, 3_000_000_000));
        assert_eq!((config.store_bytes, config.injected), (2 << 20, Some(PathBuf::from("injected.json"))));
        assert_eq!(config.credentials.unwrap().password, "secret");
        let burst =
            LiveBurst { at_ns: 5_000_000_000, length_ns: 250_000_000, messages_per_second: 4_000_000 };
        assert_eq!(config.bursts, [burst]);
        let [one, two, three] = config.venues.as_slice() else { panic!("three venues") };
        assert_eq!(one.lines, ["239.192.1.1:30001".parse().unwrap(), "239.192.1.2:30002".parse().unwrap()]);
        assert_eq!(one.retransmission, Some("127.0.0.1:31001".parse().unwrap()));
        assert_eq!(one.snapshot, Some("127.0.0.1:32001".parse().unwrap()));
        assert_eq!(one.retransmission_lost_per_million, 5);
        let faults = AnswerFaults {
            late_per_million: 1,
            late_ns: 20_000_000,
            partial_per_million: 2,
            more_per_million: 3,
            other_range_per_million: 4,
            other_session_per_million: 5,
            garbage_per_million: 6,
            unreadable_per_million: 7,
            repeated_per_million: 8,
        };
        assert_eq!(one.retransmission_faults, faults);
        let faults = SnapshotFaults {
            ahead_per_million: 1,
            other_session_per_million: 3,
            unreadable_per_million: 4,
            silent_per_million: 5,
            endless_per_million: 6,
        };
        assert_eq!(one.snapshot_faults, faults);
        assert_eq!(one.live.nonsense_per_million, 8);
        let LiveVenue {
            kind,
            share,
            line_b,
            faults,
            skew_ns,
            restart_after,
            silences,
            resets,
            announces,
            ..
        } = one.live.clone();
        assert!(!announces);
        assert_eq!((kind, share, line_b, skew_ns), (VenueKind::IexTops, 60, true, 50_000));
        assert_eq!((faults[0].lost_per_million, faults[1].duplicated_per_million), (1, 2));
        assert_eq!(faults[1].reordered_per_million, 3);
        assert_eq!((faults[1].late_copies_per_million, faults[1].late_copy_ns), (4, 4_000_000_000));
        assert_eq!(restart_after, [500_000, 600_000]);
        assert_eq!(silences, [Silence { after: 9, length_ns: 1_500_000_000 }]);
        assert_eq!(resets, [Silence { after: 700_000, length_ns: 4_000_000_000 }]);
        let groups = VenueKind::Bx.groups();
        let expected = Venue { lines: groups.to_vec(), ..Venue::new("two", VenueKind::Bx, groups.to_vec()) };
        assert_eq!(*two, expected, "what is left out");
        assert_eq!(three.retransmission, Some("127.0.0.1:31003".parse().unwrap()));
        assert_eq!(three.retransmission_group, Some("239.192.1.3:30003".parse().unwrap()));
    }

    #[test]
    fn an_error_names_its_place_in_the_file() {
        assert_eq!(
            problems(""),
            [
                "v.toml:1:1: there are no venues; each is a [[venue]] with name and kind, or [[orders]] with name"
            ]
        );
        let venue = "[[venue]]\nname = \"a\"\nkind = \"psx\"\n";
        for (text, expected) in [
            ("rate = 0\n", "v.toml:1:8: 'rate' must be a whole number from 1 to 100000000"),
            ("sead = 1\n", "v.toml:1:1: the key 'sead' is not known; did you mean 'seed'?"),
            ("interface = \"lo\"\n", "v.toml:1:13: 'interface' must be the IPv4 address of an interface"),
            ("wait = \"slep\"\n", "v.toml:1:8: 'slep' for 'wait' is not known; did you mean 'sleep'?"),
            (
                "snapshot_login = { user = \"SEVENTEENLETTERSX\", password = \"\" }\n",
                "v.toml:1:27: 'user' must have at most 16 letters or digits",
            ),
        ] {
            assert_eq!(problems(&format!("{text}{venue}")), [expected]);
        }
        let spins = "[[venue]]\nname = \"a\"\nkind = \"bzx\"\nsnapshot = \"127.0.0.1:5\"\n";
        assert_eq!(
            problems(&format!("snapshot_login = {{ user = \"fives\", password = \"\" }}\n{spins}")),
            ["v.toml:5:12: the user of 'snapshot_login' must have at most 4 letters or digits here"]
        );
        // Each login format has its own limits.
        let of_memx = "snapshot_login = { user = \"SIXTEENCHARACTER\", password = \"a password of thirty-two letters\" }\n";
        let served = |venue: &str| problems(&format!("{of_memx}{venue}snapshot = \"127.0.0.1:5\"\n"));
        let memx = venue.replace("psx", "memx");
        let config =
            Config::parse("v.toml", &format!("{of_memx}{memx}snapshot = \"127.0.0.1:5\"\n")).unwrap();
        assert_eq!(config.credentials.unwrap().password.len(), 32);
        let too_long = |what: &str, most: u8| {
            format!(
                "v.toml:5:12: the {what} of 'snapshot_login' must have at most {most} letters or digits here"
            )
        };
        for glimpse in ["psx", "iex-deep", "lse"].map(|kind| venue.replace("psx", kind)) {
            assert_eq!(served(&glimpse), [too_long("password", 10), too_long("user", 6)], "{glimpse}");
        }
        for (text, expected) in [
            ("kind = \"psy\"", "v.toml:3:8: 'psy' for 'kind' is not known; did you mean 'psx'?"),
            (
                "kind = \"psx\"\nlines = [\"239.1.1.1:0\"]",
                "v.toml:4:10: 'lines': '239.1.1.1:0' is not a multicast group or an IPv4 address with a port",
            ),
            (
                "kind = \"psx\"\nlines = [\"239.1.1.1:5\"]\nfaults = { skew = \"5us\" }",
                "v.toml:5:19: there is no line B",
            ),
            ("kind = \"psx\"\nsilent_after = 5", "v.toml:1:1: venue lacks the key 'silence'"),
            (
                "kind = \"psx\"\nretransmission_faults = { late_per_million = 5 }",
                "v.toml:4:25: retransmission_faults lacks the key 'late'",
            ),
            (
                "kind = \"psx\"\nretransmission_faults = { more_per_million = 600_000, partial_per_million = 600_000 }",
                "v.toml:4:25: an answer has one fault: all of them together are at most 1000000 per million",
            ),
            ("kind = \"psx\"\nrestart_after = [2, 1]", "v.toml:4:17: 'restart_after' must be ascending"),
            (
                "kind = \"bzx\"\nretransmission = { tcp = \"127.0.0.1:31001\" }",
                "v.toml:4:18: retransmission lacks the key 'group'",
            ),
            (
                "kind = \"psx\"\nretransmission = { tcp = \"127.0.0.1:0\", group = \"239.1.1.1:5\" }",
                "v.toml:4:18: only venues of Cboe, NYSE, London and MEMX take requests over TCP: give an address",
            ),
            (
                "kind = \"bzx\"\nsnapshot = { tcp = \"127.0.0.1:0\", group = \"239.1.1.1:5\" }",
                "v.toml:4:12: only venues of NYSE send snapshots to a group: give an address",
            ),
            (
                "kind = \"arca\"\nsnapshot = { tcp = \"127.0.0.1:0\" }",
                "v.toml:4:12: snapshot lacks the key 'group'",
            ),
            (
                "kind = \"lse\"\nretransmission = { tcp = \"127.0.0.1:0\", group = \"239.1.1.1:5\" }",
                "v.toml:4:41: the key 'group' is not known; there are tcp",
            ),
            (
                "kind = \"bzx\"\nlines = \"239.1.1.1:5\"\nretransmission = { tcp = \"127.0.0.1:0\", group = \"239.1.1.1:5\" }",
                "v.toml:5:49: 239.1.1.1:5 is taken by 'a' already",
            ),
        ] {
            assert_eq!(problems(&format!("[[venue]]\nname = \"a\"\n{text}\n")), [expected]);
        }
        let twice = format!("{venue}[[venue]]\nname = \"b\"\nkind = \"psx\"\n");
        let same = "'a' has the same groups already: give 'lines'";
        assert_eq!(problems(&twice), [format!("v.toml:4:1: {same}")]);
        assert_eq!(
            problems(&format!("{venue}unit = 3\nunits = 2\n")),
            ["v.toml:4:8: 'unit' must be one of the 'units'"]
        );
        let many: String = (0..=MAX_MARKETS)
            .map(|n| format!("[[venue]]\nname = \"{n}\"\nkind = \"bx\"\nlines = \"239.1.1.1:{}\"\n", n + 1))
            .collect();
        assert_eq!(problems(&many), ["v.toml:801:1: at most 200 venues are possible"]);
    }

    #[test]
    fn everything_that_an_exchange_can_say_is_read() {
        let config = Config::parse(
            "v.toml",
            r#"
            [[orders]]
            name = "exchange"
            variant = "turquoise"
            real_time = "127.0.0.1:7001"
            recovery = "127.0.0.1:7002"
            partitions = 3
            throttle_per_second = 500
            heartbeat = "1s"
            missed_heartbeats = 4
            logon_timeout = "2s"
            rejects_second_logon = false
            disconnects_over_throttle = false
            reports_per_request = 7
            requests_per_day = 8
            kept_reports = 9
            output_kb = 16
            self_trade = "cancel-both"
            most_orders = 500
            most_connections = 20
            store = "folder"
            store_mb = 5
            store_syncs = true
            day_ends = "17:30"
            time_zone = "Europe/London"
            day_pause = "2s"
            kind = "bx"
            lines = ["239.192.1.1:30001", "239.192.1.2:30002"]
            line_faults = { a = { lost_per_million = 1 }, skew = "50us" }
            retransmission = "127.0.0.1:31001"
            snapshot = "127.0.0.1:32001"
            [[orders.user]]
            name = "ANN"
            password = "secret"
            cancels_on_disconnect = false
            throttle_per_second = 5
            must_change_password = true
            [[orders.ouch_user]]
            name = "CAT"
            password = "secret"
            listen = "127.0.0.1:7003"
            [[orders.symbol]]
            name = "AAPL"
            id = 11
            partition = 2
            tick = "0.05"
            lot = 40
            most_quantity = 700
            reference_price = "190.00"
            price_band = 10
            [orders.faults]
            seed = 3
            rejects_per_million = 4
            delays_per_million = 5
            longest_delay = "6ms"
            gaps_per_million = 7
            garbage_per_million = 8
            drop_every = 9
            repeats_per_million = 12
            inventions_per_million = 13
            withheld_per_million = 14
            reorders_per_million = 15
            garbled_per_million = 16
            until_message = 17
            halt = { partition = 1, at_message = 10, length = "11s" }
            "#,
        )
        .unwrap();
        let [venue] = config.orders.as_slice() else { panic!("one exchange") };
        assert!(config.venues.is_empty());
        let native = &venue.options.native;
        assert_eq!((native.variant.name, native.variant.partitions), ("turquoise", 3));
        assert_eq!(
            (native.variant.heartbeat_interval_ns, native.variant.missed_heartbeats),
            (1_000_000_000, 4)
        );
        assert_eq!((native.logon_timeout_ns, native.output_bytes), (2_000_000_000, 16 << 10));
        assert!(!native.rejects_second_logon && !native.disconnects_over_throttle);
        let limits = (native.reports_per_request, native.requests_per_day, native.kept_reports);
        assert_eq!(limits, (7, 8, 9));
        assert_eq!(venue.options.self_trade, SelfTrade::CancelBoth);
        assert_eq!((venue.options.most_orders, venue.most_connections), (500, 20));
        let store = venue.store.as_ref().unwrap();
        assert_eq!((store.folder.to_str(), store.most_bytes, store.syncs), (Some("folder"), 5 << 20, true));
        let (time, zone) = venue.day_ends.as_ref().unwrap();
        assert_eq!((time.to_string().as_str(), zone.iana_name()), ("17:30:00", Some("Europe/London")));
        assert_eq!((venue.day_pause_ns, venue.options.publishes_market), (2_000_000_000, true));
        let line = venue.publication.as_ref().unwrap();
        assert_eq!((line.live.kind, line.lines.len(), line.live.skew_ns), (VenueKind::Bx, 2, 50_000));
        assert_eq!(line.live.faults[0].lost_per_million, 1);
        let user = &venue.options.native_users[0];
        assert_eq!((user.cancels_on_disconnect, user.throttle_per_second), (false, 5));
        assert!(user.must_change_password && venue.options.ouch_users[0].cancels_on_disconnect);
        let symbol = &venue.options.instruments[0];
        assert_eq!(
            (symbol.id, symbol.partition, symbol.tick_e8, symbol.most_quantity),
            (11, 2, 5_000_000, 700)
        );
        let limits = (symbol.lowest_price_e8, symbol.highest_price_e8);
        assert_eq!((limits, venue.round_lots[0]), ((17_100_000_000, 20_900_000_000), 40));
        let faults = venue.options.faults;
        assert_eq!((faults.seed, faults.rejects_per_million, faults.delays_per_million), (3, 4, 5));
        assert_eq!((faults.longest_delay_ns, faults.gaps_per_million), (6_000_000, 7));
        assert_eq!((faults.garbage_per_million, faults.drop_every), (8, 9));
        assert_eq!(faults.halt.map(|halt| (halt.partition, halt.at_message)), Some((1, 10)));
        assert_eq!((faults.repeats_per_million, faults.inventions_per_million), (12, 13));
        assert_eq!((faults.withheld_per_million, faults.reorders_per_million), (14, 15));
        assert_eq!((faults.garbled_per_million, faults.until_message), (16, 17));
    }

    #[test]
    fn an_error_of_an_exchange_names_its_place_in_the_file() {
        let exchange = "[[orders]]\nname = \"x\"\n";
        let user = "[[orders.user]]\nname = \"A\"\npassword = \"p\"\n";
        let symbol = "[[orders.symbol]]\nname = \"S\"\nid = 1\n";
        assert_eq!(Config::parse("v.toml", &format!("{exchange}{user}{symbol}")).unwrap().orders.len(), 1);
        assert_eq!(
            problems(exchange),
            ["v.toml:1:1: orders lacks the key 'symbol'", "v.toml:1:1: orders lacks the key 'user'"]
        );
        for (text, expected) in [
            ("varient = \"lse\"", "v.toml:3:1: the key 'varient' is not known; did you mean 'variant'?"),
            ("variant = \"lsd\"", "v.toml:3:11: 'lsd' for 'variant' is not known; did you mean 'lse'?"),
            ("day_ends = \"25:00\"", "v.toml:3:12: 'day_ends' must be a time of day such as 17:30"),
            ("store_mb = 5", "v.toml:3:12: 'store_mb' needs the key 'store'"),
            ("snapshot = \"127.0.0.1:5\"", "v.toml:3:12: 'snapshot' needs the key 'lines'"),
            (
                "recovery = \"127.0.0.1\"",
                "v.toml:3:12: 'recovery' must be an address with a port such as 127.0.0.1:31001",
            ),
        ] {
            assert_eq!(problems(&format!("{exchange}{text}\n{user}{symbol}")), [expected]);
        }
        for (text, expected) in [
            ("id = 2\ntick = 0.01", "v.toml:12:8: 'tick' must be a string, not a float"),
            (
                "id = 2\ntick = \"0,01\"",
                "v.toml:12:8: 'tick' must be a price above 0 as a string, such as \"0.01\"",
            ),
            ("id = 1", "v.toml:11:6: there is a symbol with the id 1 already"),
            ("id = 2\nprice_band = 5", "v.toml:12:14: 'price_band' needs the key 'reference_price'"),
            ("id = 2\npartition = 5", "v.toml:12:13: 'partition' must be a whole number from 1 to 4"),
        ] {
            let more = format!("[[orders.symbol]]\nname = \"T\"\n{text}\n");
            assert_eq!(problems(&format!("{exchange}{user}{symbol}{more}")), [expected]);
        }
        let ouch = "[[orders.ouch_user]]\nname = \"TOOLONG\"\npassword = \"p\"\nlisten = \"127.0.0.1:7\"\n";
        assert_eq!(
            problems(&format!("{exchange}{ouch}{symbol}")),
            ["v.toml:4:8: 'name' must have 1 to 6 letters, digits or signs"]
        );
        let faults = "[orders.faults]\ndelays_per_million = 5\n";
        assert_eq!(
            problems(&format!("{exchange}{user}{symbol}{faults}")),
            ["v.toml:9:1: faults lacks the key 'longest_delay'"]
        );
    }

    #[test]
    fn the_examples_are_sound() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
        for (name, venues) in [
            ("loopback.toml", 4),
            ("twenty_five_feeds.toml", 25),
            ("tcp_recovery.toml", 4),
            ("us_equities.toml", 155),
        ] {
            assert_eq!(Config::load(&folder.join(name)).unwrap().venues.len(), venues);
        }
        assert_eq!(Config::load(&folder.join("orders.toml")).unwrap().orders.len(), 1);
    }
}
