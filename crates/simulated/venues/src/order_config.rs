//! The configuration of exchanges that accept orders: the `[[orders]]` tables of a venue file.

use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use tapeworks_generator::VenueKind;
use tapeworks_generator::itch_line::HIGHEST_PRICE_E8;
use tapeworks_generator::live::LiveVenue;
use tapeworks_matching::SelfTrade;
use tapeworks_matching::orders::{Instrument, OrderFaults, OrderOptions, OuchUser, PartitionHalt};
use tapeworks_order_session::native::{ServerSettings, User};
use tapeworks_runtime::config::{Reading, Section};
use tapeworks_session::Credentials;
use tapeworks_session::snapshot::SnapshotProtocol;
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::{LSE, VARIANTS, Variant};

use crate::reading::{HOUR, MILLION, MILLISECOND, Taken, nanoseconds, read_faults, refuse_long_login};

/// One dollar in engine prices.
const E8: i64 = 100_000_000;
/// The smallest price step of OUCH and ITCH, which have four decimals, in 1e-8.
const E4_IN_E8: i64 = 10_000;
/// Default for the maximum distance of a price from the reference price, in percent.
const USUAL_PRICE_BAND: i64 = 50;
/// Maximum number of users of one gateway.
const MOST_USERS: usize = 10_000;

/// An exchange that accepts orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderVenue {
    /// Its name in reports, unique among the venues.
    pub name: String,
    /// Instruments, users, rules, and faults. The host sets the day's midnight and the name of the OUCH sessions.
    pub options: OrderOptions,
    /// Shares of a round lot for each instrument, as published in the line's directory.
    pub round_lots: Vec<u32>,
    /// The address of the native gateway's real-time channel. With port 0 the kernel chooses the port.
    pub real_time: SocketAddr,
    /// The address of the native gateway's recovery channel.
    pub recovery: SocketAddr,
    /// The address of each OUCH user's session.
    pub ouch: Vec<SocketAddr>,
    /// Maximum number of simultaneous connections.
    pub most_connections: usize,
    /// The store of the day; with `None`, each start begins without orders.
    pub store: Option<StoreSetting>,
    /// When the day ends, in local time; `None` means only through [`OrderVenues::end_day`](crate::orders::OrderVenues::end_day).
    pub day_ends: Option<(Time, TimeZone)>,
    /// From the end of a day to the start of the next, in nanoseconds. In between, users can recover the day's reports.
    pub day_pause_ns: u64,
    /// The market-data line.
    pub publication: Option<PublicationSetting>,
}

/// The settings of the store that keeps an exchange's day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSetting {
    /// The folder.
    pub folder: PathBuf,
    /// Maximum bytes of a day's inputs. The exchange ends when they are exceeded.
    pub most_bytes: u64,
    /// Whether each write waits for the disk, so that it also survives a machine crash.
    pub syncs: bool,
}

/// The market-data line of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationSetting {
    /// The market of the Nasdaq family that it resembles, and its line B, faults, and skew.
    pub live: LiveVenue,
    /// The destinations of line A and, if it exists, line B.
    pub lines: Vec<SocketAddrV4>,
    /// The address for retransmission requests, by UDP.
    pub retransmission: Option<SocketAddr>,
    /// The address for snapshots, by TCP.
    pub snapshot: Option<SocketAddr>,
}

impl OrderVenue {
    /// Creates an exchange without instruments and users, on loopback ports that the kernel chooses.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            name: name.to_owned(),
            options: OrderOptions::default(),
            round_lots: Vec::new(),
            real_time: any,
            recovery: any,
            ouch: Vec::new(),
            most_connections: 256,
            store: None,
            day_ends: None,
            day_pause_ns: 5_000_000_000,
            publication: None,
        }
    }
}

const SELF_TRADES: [(SelfTrade, &str); 5] = [
    (SelfTrade::Allow, "allow"),
    (SelfTrade::CancelResting, "cancel-resting"),
    (SelfTrade::CancelIncoming, "cancel-incoming"),
    (SelfTrade::CancelBoth, "cancel-both"),
    (SelfTrade::DecrementBoth, "decrement-both"),
];

/// Parses a decimal number such as `190.25`, in 1e-8.
fn price_e8(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 8 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<8}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(E8)?.checked_add(fraction)
}

/// Reads an `[[orders]]` table. `login` is the snapshot login.
pub(crate) fn read_order_venue(
    reading: &mut Reading<'_>,
    mut table: Section<'_>,
    login: Option<&Credentials>,
    taken: &mut Taken,
) -> Option<OrderVenue> {
    let name = table.required_text(reading, "name");
    let mut venue = OrderVenue::new(&taken.take_name(reading, name));
    let name = venue.name.clone();
    let variant = read_variant(reading, &mut table);
    venue.real_time = SocketAddr::from(([127, 0, 0, 1], variant.real_time_port));
    venue.recovery = SocketAddr::from(([127, 0, 0, 1], variant.recovery_port));
    if let Some(address) = taken.server(reading, &mut table, &name, "real_time", "tcp") {
        venue.real_time = address;
    }
    if let Some(address) = taken.server(reading, &mut table, &name, "recovery", "tcp") {
        venue.recovery = address;
    }
    venue.options.native = read_native(reading, &mut table, variant);
    let most_orders = table.integer(reading, "most_orders", 1..=10 * MILLION);
    venue.options.most_orders = most_orders.map_or(venue.options.most_orders, |(orders, _)| orders as u32);
    venue.options.self_trade = table
        .choice(reading, "self_trade", &SELF_TRADES.map(|(rule, _)| rule), |wanted| {
            SELF_TRADES.iter().find(|(rule, _)| *rule == wanted).map_or("", |(_, name)| name)
        })
        .unwrap_or_default();
    let connections = table.integer(reading, "most_connections", 1..=100_000);
    venue.most_connections = connections.map_or(venue.most_connections, |(connections, _)| connections);
    venue.store = read_store(reading, &mut table);
    venue.day_ends = read_day_end(reading, &mut table);
    let pause = nanoseconds(reading, &mut table, "day_pause", MILLISECOND..=24 * HOUR);
    venue.day_pause_ns = pause.unwrap_or(venue.day_pause_ns);
    venue.publication = read_publication(reading, &mut table, &name, (login, taken));
    venue.options.publishes_market = venue.publication.is_some();
    read_users(reading, &mut table, &mut venue, taken);
    let needs_e4 = venue.publication.is_some() || !venue.options.ouch_users.is_empty();
    read_symbols(reading, &mut table, &mut venue, needs_e4);
    venue.options.faults = read_order_faults(reading, &mut table, variant.partitions);
    table.refuse_the_rest(reading);
    Some(venue)
}

fn read_variant(reading: &mut Reading<'_>, table: &mut Section<'_>) -> Variant {
    let chosen = table.choice(reading, "variant", &VARIANTS, |variant| variant.name);
    let mut variant = *chosen.unwrap_or(&LSE);
    if let Some((partitions, _)) = table.integer(reading, "partitions", 1..=100) {
        variant.partitions = partitions as u8;
    }
    if let Some((rate, _)) = table.integer(reading, "throttle_per_second", 0..=MILLION) {
        variant.throttle_per_second = rate as u32;
    }
    let heartbeat_ns = nanoseconds(reading, table, "heartbeat", 10 * MILLISECOND..=HOUR);
    variant.heartbeat_interval_ns = heartbeat_ns.unwrap_or(variant.heartbeat_interval_ns);
    if let Some((missed, _)) = table.integer(reading, "missed_heartbeats", 1..=1_000) {
        variant.missed_heartbeats = missed as u32;
    }
    variant
}

fn read_native(reading: &mut Reading<'_>, table: &mut Section<'_>, variant: Variant) -> ServerSettings {
    let usual = ServerSettings { variant, ..ServerSettings::default() };
    let logon = nanoseconds(reading, table, "logon_timeout", 10 * MILLISECOND..=HOUR);
    let mut number = |key, range| table.integer(reading, key, range).map(|(number, _)| number);
    let reports = number("reports_per_request", 1..=10 * MILLION);
    let requests = number("requests_per_day", 0..=10 * MILLION);
    let kept = number("kept_reports", 1..=10 * MILLION);
    let output_kb = number("output_kb", 4..=MILLION);
    ServerSettings {
        logon_timeout_ns: logon.unwrap_or(usual.logon_timeout_ns),
        rejects_second_logon: table.boolean(reading, "rejects_second_logon").unwrap_or(true),
        disconnects_over_throttle: table.boolean(reading, "disconnects_over_throttle").unwrap_or(true),
        reports_per_request: reports.map_or(usual.reports_per_request, |reports| reports as u32),
        requests_per_day: requests.map_or(usual.requests_per_day, |requests| requests as u32),
        kept_reports: kept.unwrap_or(usual.kept_reports),
        output_bytes: output_kb.map_or(usual.output_bytes, |kilobytes| kilobytes << 10),
        ..usual
    }
}

fn read_store(reading: &mut Reading<'_>, table: &mut Section<'_>) -> Option<StoreSetting> {
    let folder = table.text(reading, "store").map(|(folder, _)| PathBuf::from(folder));
    let most = table.integer(reading, "store_mb", 1..=MILLION).map_or(4_096, |(megabytes, _)| megabytes);
    let syncs = table.boolean(reading, "store_syncs").unwrap_or(false);
    for key in ["store_mb", "store_syncs"] {
        if folder.is_none() && table.has(key) {
            table.wrong_at(reading, key, &format!("'{key}' needs the key 'store'"));
        }
    }
    Some(StoreSetting { folder: folder?, most_bytes: (most as u64) << 20, syncs })
}

fn read_day_end(reading: &mut Reading<'_>, table: &mut Section<'_>) -> Option<(Time, TimeZone)> {
    let zone = table
        .parsed(reading, "time_zone", "a time zone such as Europe/London", |text| TimeZone::get(text).ok());
    let time = table.parsed(reading, "day_ends", "a time of day such as 17:30", |text| {
        text.parse::<Time>().ok().filter(|time| time.subsec_nanosecond() == 0)
    });
    if table.has("time_zone") && !table.has("day_ends") {
        table.wrong_at(reading, "time_zone", "'time_zone' needs the key 'day_ends'");
    }
    let zone = zone.or_else(|| TimeZone::get("America/New_York").ok())?;
    Some((time?, zone))
}

fn read_publication(
    reading: &mut Reading<'_>,
    table: &mut Section<'_>,
    name: &str,
    (login, taken): (Option<&Credentials>, &mut Taken),
) -> Option<PublicationSetting> {
    let kinds: Vec<VenueKind> = VenueKind::all().filter(|kind| kind.is_in_files()).collect();
    let kind = table.choice(reading, "kind", &kinds, VenueKind::key).unwrap_or(VenueKind::Nasdaq);
    let lines = table.each(reading, "lines", "a multicast group or an IPv4 address with a port", |text| {
        text.parse::<SocketAddrV4>().ok().filter(|line| line.port() != 0)
    });
    let count = lines.as_ref().map_or(0, Vec::len);
    taken.take_lines(reading, table, name, lines.as_deref().unwrap_or_default());
    let retransmission = taken.server(reading, table, name, "retransmission", "udp");
    let snapshot = taken.server(reading, table, name, "snapshot", "tcp");
    if snapshot.is_some() {
        refuse_long_login(reading, table, SnapshotProtocol::of(kind.transport()), login);
    }
    let (faults, skew_ns) = read_faults(reading, table, "line_faults", count);
    let Some(lines) = lines else {
        for key in ["kind", "retransmission", "snapshot", "line_faults"] {
            if table.has(key) {
                table.wrong_at(reading, key, &format!("'{key}' needs the key 'lines'"));
            }
        }
        return None;
    };
    let live = LiveVenue { line_b: lines.len() > 1, faults, skew_ns, ..LiveVenue::new(kind) };
    Some(PublicationSetting { live, lines, retransmission, snapshot })
}

/// Reads a user's name and password, which must fit the protocol's fields.
fn read_credentials(
    reading: &mut Reading<'_>,
    table: &mut Section<'_>,
    longest: (usize, usize),
) -> Option<Credentials> {
    let mut word = |key, longest: usize| {
        let (text, span) = table.required_text(reading, key)?;
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > longest || !is_printable {
            reading.wrong(span, format!("'{key}' must have 1 to {longest} letters, digits or signs"));
        }
        Some(text)
    };
    let (user, password) = (word("name", longest.0), word("password", longest.1));
    Some(Credentials { user: user?, password: password? })
}

fn read_users(reading: &mut Reading<'_>, table: &mut Section<'_>, venue: &mut OrderVenue, taken: &mut Taken) {
    let variant = venue.options.native.variant;
    let (natives, ouches) = (table.tables(reading, "user"), table.tables(reading, "ouch_user"));
    if natives.is_empty() && ouches.is_empty() {
        table.missing(reading, "user");
    }
    for (users, what) in [(&natives, "user"), (&ouches, "ouch_user")] {
        if let Some(first_too_many) = users.get(MOST_USERS) {
            let problem = format!("at most {MOST_USERS} [[orders.{what}]] are possible");
            reading.wrong(first_too_many.span.clone(), problem);
        }
    }
    for mut table in natives {
        let credentials = read_credentials(reading, &mut table, (25, 25));
        let cancels = table.boolean(reading, "cancels_on_disconnect").unwrap_or(true);
        let rate = table.integer(reading, "throttle_per_second", 0..=MILLION);
        let must_change_password = table.boolean(reading, "must_change_password").unwrap_or(false);
        table.refuse_the_rest(reading);
        let Some(credentials) = credentials else { continue };
        let is_there = |user: &User| user.credentials.user == credentials.user;
        if venue.options.native_users.iter().any(is_there) {
            table.wrong_at(reading, "name", &format!("there is a user '{}' already", credentials.user));
        }
        venue.options.native_users.push(User {
            cancels_on_disconnect: cancels,
            must_change_password,
            throttle_per_second: rate.map_or(variant.throttle_per_second, |(rate, _)| rate as u32),
            ..User::new(&credentials.user, &credentials.password, &variant)
        });
    }
    for mut table in ouches {
        let credentials = read_credentials(reading, &mut table, (6, 10));
        let listen = taken.server(reading, &mut table, &venue.name, "listen", "tcp");
        if !table.has("listen") {
            table.missing(reading, "listen");
        }
        let cancels_on_disconnect = table.boolean(reading, "cancels_on_disconnect").unwrap_or(true);
        table.refuse_the_rest(reading);
        let (Some(credentials), Some(listen)) = (credentials, listen) else { continue };
        venue.options.ouch_users.push(OuchUser { credentials, cancels_on_disconnect });
        venue.ouch.push(listen);
    }
}

fn read_symbols(reading: &mut Reading<'_>, table: &mut Section<'_>, venue: &mut OrderVenue, needs_e4: bool) {
    let symbols = table.tables(reading, "symbol");
    if symbols.is_empty() {
        table.missing(reading, "symbol");
    }
    if let Some(first_too_many) = symbols.get(65_535) {
        reading.wrong(first_too_many.span.clone(), "at most 65535 [[orders.symbol]] are possible".to_owned());
    }
    for symbol in symbols {
        read_symbol(reading, symbol, venue, needs_e4);
    }
}

fn read_symbol(reading: &mut Reading<'_>, mut table: Section<'_>, venue: &mut OrderVenue, needs_e4: bool) {
    let partitions = usize::from(venue.options.native.variant.partitions);
    let name = table.required_text(reading, "name");
    let symbol = name.and_then(|(text, span)| {
        let symbol = Ascii::<8>::new(&text).filter(|_| !text.is_empty() && !text.contains(' '));
        if symbol.is_none() {
            reading.wrong(span, "'name' must have 1 to 8 letters, digits or signs".to_owned());
        }
        symbol
    });
    let id = table.integer(reading, "id", 1..=i32::MAX as usize).map(|(id, _)| id as i32);
    if !table.has("id") {
        table.missing(reading, "id");
    }
    let partition = table.integer(reading, "partition", 1..=partitions).map_or(1, |(number, _)| number as u8);
    let lot = table.integer(reading, "lot", 1..=MILLION).map_or(100, |(lot, _)| lot as u32);
    let most = table.integer(reading, "most_quantity", 1..=i32::MAX as usize);
    let is_price = |text: &str| price_e8(text).filter(|price| *price > 0);
    let wanted = "a price above 0 as a string, such as \"0.01\"";
    let tick_e8 = table.parsed(reading, "tick", wanted, is_price).unwrap_or(E8 / 100);
    if needs_e4 && tick_e8 % E4_IN_E8 != 0 {
        table.wrong_at(reading, "tick", "'tick' must be a multiple of 0.0001, as OUCH and ITCH have prices");
    }
    let reference_e8 = table.parsed(reading, "reference_price", wanted, is_price);
    let band = table.integer(reading, "price_band", 1..=1_000);
    if table.has("price_band") && !table.has("reference_price") {
        table.wrong_at(reading, "price_band", "'price_band' needs the key 'reference_price'");
    }
    let limits = reference_e8.map_or((tick_e8, HIGHEST_PRICE_E8), |reference_e8| {
        let percent = band.map_or(USUAL_PRICE_BAND, |(band, _)| band as i64);
        let width_e8 = (reference_e8 / 100).saturating_mul(percent);
        (reference_e8.saturating_sub(width_e8).max(tick_e8), reference_e8.saturating_add(width_e8))
    });
    if limits.0 > HIGHEST_PRICE_E8 {
        table.wrong_at(
            reading,
            "reference_price",
            "'reference_price' is too high: ITCH's prices end at 200000",
        );
    }
    table.refuse_the_rest(reading);
    let (Some(symbol), Some(id)) = (symbol, id) else { return };
    let instruments = &mut venue.options.instruments;
    if instruments.iter().any(|other| other.symbol == symbol) {
        table.wrong_at(reading, "name", &format!("there is a symbol '{symbol}' already"));
    }
    if instruments.iter().any(|other| other.id == id) {
        table.wrong_at(reading, "id", &format!("there is a symbol with the id {id} already"));
    }
    instruments.push(Instrument {
        id,
        symbol,
        partition,
        tick_e8,
        lowest_price_e8: limits.0,
        highest_price_e8: limits.1.min(HIGHEST_PRICE_E8),
        most_quantity: most.map_or(MILLION as u32, |(most, _)| most as u32),
    });
    venue.round_lots.push(lot);
}

fn read_order_faults(reading: &mut Reading<'_>, table: &mut Section<'_>, partitions: u8) -> OrderFaults {
    let Some(mut section) = table.table(reading, "faults") else { return OrderFaults::default() };
    let seed = section.integer(reading, "seed", 0..=usize::MAX >> 1).map_or(1, |(seed, _)| seed as u64);
    let longest_delay_ns =
        nanoseconds(reading, &mut section, "longest_delay", Duration::from_micros(1)..=HOUR);
    let mut part = |key| section.integer(reading, key, 0..=MILLION).map_or(0, |(part, _)| part as u32);
    let mut faults = OrderFaults {
        seed,
        rejects_per_million: part("rejects_per_million"),
        delays_per_million: part("delays_per_million"),
        longest_delay_ns: longest_delay_ns.unwrap_or(0),
        gaps_per_million: part("gaps_per_million"),
        garbage_per_million: part("garbage_per_million"),
        drop_every: 0,
        halt: None,
        repeats_per_million: part("repeats_per_million"),
        inventions_per_million: part("inventions_per_million"),
        withheld_per_million: part("withheld_per_million"),
        reorders_per_million: part("reorders_per_million"),
        garbled_per_million: part("garbled_per_million"),
        until_message: 0,
    };
    if faults.delays_per_million > 0 && !section.has_time("longest_delay") {
        section.missing(reading, "longest_delay");
    }
    let every = section.integer(reading, "drop_every", 1..=usize::MAX >> 2);
    faults.drop_every = every.map_or(0, |(every, _)| every as u64);
    let until = section.integer(reading, "until_message", 1..=usize::MAX >> 2);
    faults.until_message = until.map_or(0, |(until, _)| until as u64);
    if let Some(mut halt) = section.table(reading, "halt") {
        let partition = halt.integer(reading, "partition", 1..=usize::from(partitions));
        let at_message = halt.integer(reading, "at_message", 1..=usize::MAX >> 2);
        let duration_ns = nanoseconds(reading, &mut halt, "length", MILLISECOND..=24 * HOUR);
        for key in ["partition", "at_message"] {
            if !halt.has(key) {
                halt.missing(reading, key);
            }
        }
        if !halt.has_time("length") {
            halt.missing(reading, "length");
        }
        halt.refuse_the_rest(reading);
        if let (Some((partition, _)), Some((at_message, _)), Some(duration_ns)) =
            (partition, at_message, duration_ns)
        {
            faults.halt = Some(PartitionHalt {
                partition: partition as u8,
                at_message: at_message as u64,
                duration_ns,
            });
        }
    }
    section.refuse_the_rest(reading);
    faults
}
