//! The configuration of a gateway: a TOML file. Errors contain the file, line and column, and name the expected value.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tapeworks_fix_wire::order_entry::SCHEMA;
use tapeworks_fix_wire::{IgnoredTags, read_decimal};
use tapeworks_journal::JournalOptions;
use tapeworks_market::shared::{HEARTBEAT_NS, quotes_path};
use tapeworks_order_session::fix::{Dictionary, Role, Schedule, Settings as FixSettings};
use tapeworks_order_session::native::{Client as NativeClient, ClientSettings as NativeSettings};
use tapeworks_order_session::soupbintcp::SoupInitiatorSettings;
use tapeworks_runtime::config::{ConfigError, Reading, Section, read_file, read_text, time};
use tapeworks_runtime::secrets::{Secret, check_secret, check_token};
use tapeworks_runtime::traces::setting::{self as traces, Sampled, TraceSetting};
use tapeworks_runtime::transport::{Acceptor, TlsFiles};
use tapeworks_session::Credentials;
use tapeworks_translate::ids::InstrumentIndex;
use tapeworks_translate::{
    Instrument, Millennium, MillenniumSettings, Naming, Ouch, OuchSettings, Reference, RejectReason,
    RiskLimits,
};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::{Capacity, ClearingAccount, PassiveOnlyOrder};
use tapeworks_wire::millennium::variant::{TextPadding, VARIANTS, Variant, variant_by_name};

use crate::host::{HostSettings, Wait};
use crate::ledger::SyncPolicy;
use crate::prices::SharedPrices;
use crate::settings::{ClientSettings, VERSIONS};
use crate::venue::OuchSession;

/// The shortest and the longest time that a setting accepts.
const AN_INSTANT: Duration = Duration::from_nanos(1);
const A_DAY: Duration = Duration::from_secs(86_400);

/// Maximum number of clients.
const MOST_CLIENTS: usize = 10_000;

/// Maximum length of a reject code's reason.
const MOST_REASON_BYTES: usize = 60;

/// The venue behind the gateway.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub enum VenueConfig {
    /// A Millennium native gateway.
    Millennium {
        /// The session's settings.
        session: NativeSettings,
        /// The settings of the mapping table.
        table: MillenniumSettings,
    },
    /// OUCH 5.0 over SoupBinTCP.
    Ouch {
        /// The session's settings.
        session: SoupInitiatorSettings,
        /// The daily schedule of the time zone from whose midnight OUCH's times count.
        day: Schedule,
        /// Whether an Account Query after each login shows that all reports have arrived.
        asks: bool,
        /// The settings of the mapping table. The midnight is that of the day on which the gateway starts.
        table: OuchSettings,
    },
}

/// The web page of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebConfig {
    /// The address on which to listen. With port 0 the kernel chooses.
    pub address: SocketAddr,
    /// The token that a request must carry; `None`: any user of this machine may view the page and send commands.
    pub token: Option<Secret>,
    /// The TLS files, if the page is served over TLS.
    pub tls: Option<TlsFiles>,
}

/// The control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlConfig {
    /// The path.
    pub path: PathBuf,
    /// Whether the configuration names the path. If it does not, a gateway that cannot create the socket runs without one.
    pub is_named: bool,
}

/// The source of the prices that orders are checked against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PricesConfig {
    /// The file in a plant's shared memory.
    pub path: PathBuf,
    /// How long prices are valid after the plant's last heartbeat.
    pub age: Duration,
}

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of its thread.
    pub host: HostSettings,
    /// The folder of its store. It does not depend on the directory from which the gateway is started.
    pub store: PathBuf,
    /// How the store's journal is written.
    pub journal: JournalOptions,
    /// When the journal is synced.
    pub sync: SyncPolicy,
    /// How many orders, requests and fills are remembered, and whether an in-doubt report halts its instrument.
    pub capacity: tapeworks_translate::Settings,
    /// The venue.
    pub venue: VenueConfig,
    /// The traded instruments.
    pub instruments: Vec<Instrument>,
    /// Parties and their short codes.
    pub parties: Vec<(Ascii<20>, u32)>,
    /// The FIX clients.
    pub clients: Vec<ClientSettings>,
    /// The web page.
    pub web: Option<WebConfig>,
    /// The control socket; `None`: there is none.
    pub control: Option<ControlConfig>,
    /// The prices that orders are checked against.
    pub prices: Option<PricesConfig>,
    /// The export of traces.
    pub traces: Option<TraceSetting>,
}

/// The parts of a gateway for one kind of venue.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub enum AnyParts {
    /// A Millennium native gateway.
    Millennium(crate::Parts<NativeClient>),
    /// OUCH over SoupBinTCP.
    Ouch(crate::Parts<OuchSession>),
}

impl std::fmt::Debug for AnyParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Millennium(_) => "Millennium",
            Self::Ouch(_) => "Ouch",
        })
    }
}

impl Config {
    /// Parses the configuration in `text`, which was read from a file named `file`. Relative paths start at the folder `beside`.
    ///
    /// # Errors
    /// The errors in the order of the file; at least one.
    pub fn parse(file: &str, text: &str, beside: &Path) -> Result<Self, Vec<ConfigError>> {
        let read = read_text(Reading::new(file, text, true), |reading, document| {
            read_document(reading, Section::new("the file", document.get_ref(), document.span()), beside)
        })?;
        // Without an error there is a configuration.
        read.ok_or_else(Vec::new)
    }

    /// Loads the configuration file at `path`.
    ///
    /// # Errors
    /// The same as for [`Config::parse`]; a file that cannot be read is reported without a line.
    pub fn load(path: &Path) -> Result<Self, Vec<ConfigError>> {
        let file = path.display().to_string();
        let beside = path.parent().unwrap_or_else(|| Path::new("."));
        Self::parse(&file, &read_file(path, &file)?, beside)
    }

    /// Returns the control socket of the configuration file at `path`; `None`: there is none. The rest of the file may be invalid,
    /// and its secrets may be elsewhere: an operator needs neither.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or its `control` is not a path.
    pub fn control_of(path: &Path) -> Result<Option<PathBuf>, Vec<ConfigError>> {
        let name = path.display().to_string();
        let beside = path.parent().unwrap_or_else(|| Path::new("."));
        let text = read_file(path, &name)?;
        let control = read_text(Reading::new(&name, &text, true), |reading, document| {
            let mut file = Section::new("the file", document.get_ref(), document.span());
            let store = file.table(reading, "store");
            let folder = store.and_then(|mut store| store.text(reading, "folder"));
            let folder = folder.map(|(folder, _)| beside.join(folder));
            Some(read_control(reading, &mut file, folder.as_deref(), beside))
        })?;
        Ok(control.flatten().map(|control| control.path))
    }

    /// Returns the prices that orders are checked against, if configured.
    #[must_use]
    pub fn shared_prices(&self) -> Option<SharedPrices> {
        let symbols =
            self.instruments.iter().map(|instrument| instrument.symbol.as_str().unwrap_or_default());
        self.prices.clone().map(|PricesConfig { path, age }| SharedPrices::new(path, age, symbols))
    }

    /// Returns the parts from which a gateway is built, for the day of `now_ns` (UTC). Cost: a copy of everything.
    ///
    /// # Errors
    /// In one line: an error that [`Config::parse`] would have found, if the configuration was built in code.
    pub fn parts(&self, now_ns: u64) -> Result<AnyParts, String> {
        let reference =
            Reference::new(&self.instruments, &self.parties).map_err(|error| error.to_string())?;
        let (clients, capacity) = (self.clients.clone(), self.capacity);
        Ok(match &self.venue {
            VenueConfig::Millennium { session, table } => {
                let venue = NativeClient::new(session.clone()).map_err(|error| error.to_string())?;
                let table = Millennium::new(table.clone());
                AnyParts::Millennium(crate::Parts { clients, reference, capacity, table, venue })
            }
            VenueConfig::Ouch { session, day, asks, table } => {
                let venue = OuchSession::new(session.clone()).map_err(|error| error.to_string())?;
                let venue = venue.with_days(day.clone());
                let venue = if *asks { venue } else { venue.without_query() };
                let midnight_ns = day.began_ns(now_ns).unwrap_or(0);
                let table = Ouch::new(OuchSettings { midnight_ns, ..table.clone() });
                AnyParts::Ouch(crate::Parts { clients, reference, capacity, table, venue })
            }
        })
    }
}

fn read_document(reading: &mut Reading<'_>, mut file: Section<'_>, beside: &Path) -> Option<Config> {
    let listen = address(reading, &mut file, "listen");
    let wait = file.choice(reading, "wait", &[Wait::Sleep, Wait::Spin], |wait| match wait {
        Wait::Sleep => "sleep",
        Wait::Spin => "spin",
    });
    let warms = file.boolean(reading, "warm").unwrap_or(false);
    let core = file.integer(reading, "core", 0..=4_095).map(|(core, _)| core);
    let most_connections = file.integer(reading, "most_connections", 1..=100_000).map(|(most, _)| most);
    let first_message =
        file.time(reading, "first_message", Duration::from_millis(1)..=Duration::from_secs(600));
    let store = file.table(reading, "store");
    if !file.has("store") {
        file.missing(reading, "store");
    }
    let store = store.map(|store| read_store(reading, store, beside));
    let control = read_control(reading, &mut file, store.as_ref().map(|store| &*store.folder), beside);
    let capacity = file.table(reading, "capacity").map(|capacity| read_capacity(reading, capacity));
    let mut venue = file.table(reading, "venue");
    let halts_doubtful = venue.as_mut().and_then(|venue| venue.boolean(reading, "halt_on_doubt"));
    if !file.has("venue") {
        file.missing(reading, "venue");
    }
    let venue = venue.and_then(|venue| read_venue(reading, venue, beside));
    let partitions = match &venue {
        Some((_, VenueConfig::Millennium { session, .. }, ..)) => Some(session.variant.partitions),
        _ => None,
    };
    let instruments = read_instruments(reading, &mut file, partitions);
    let parties = read_parties(reading, &mut file);
    let defaults = file.table(reading, "client_defaults");
    let clients = read_clients(reading, &mut file, defaults, &instruments, beside);
    check_room(reading, &file, &clients, capacity.unwrap_or_default().most_orders);
    let web = file.table(reading, "web").and_then(|web| read_web(reading, web, beside));
    let prices = file.table(reading, "market").and_then(|market| read_market(reading, market, beside));
    let acceptor = file.table(reading, "tls").and_then(|tls| read_tls(reading, tls, &clients, beside));
    if acceptor.is_none() && !file.has("tls") {
        check_certificates(reading, &file, &clients, "[tls] with client_authorities");
    }
    if prices.is_none() && !file.has("market") {
        check_without_prices(reading, &file, &clients);
    }
    let traces = traces::read(reading, &mut file, beside, Sampled::Orders);
    file.refuse_the_rest(reading);

    if reading.is_clean()
        && let Err(error) = Reference::new(&instruments, &parties)
    {
        reading.wrong(file.span.clone(), error.to_string());
    }
    let (listen, (venue_addresses, venue, venue_connect, venue_password), store) = (listen?, venue?, store?);
    Some(Config {
        host: HostSettings {
            listen,
            venue: venue_addresses,
            wait: wait.unwrap_or_default(),
            warms,
            core,
            most_connections: most_connections.unwrap_or(clients.len() + 256),
            first_message: first_message.unwrap_or(Duration::from_secs(10)),
            venue_connect,
            disk_patience: store.patience,
            acceptor: acceptor.unwrap_or_default(),
            venue_password,
            traces: None,
        },
        store: store.folder,
        journal: store.journal,
        sync: store.sync,
        capacity: tapeworks_translate::Settings {
            halts_doubtful: halts_doubtful.unwrap_or(false),
            ..capacity.unwrap_or_default()
        },
        venue,
        instruments,
        parties,
        clients,
        web,
        control,
        prices,
        traces,
    })
}

/// Reads `control`. By default, the socket is beside the store's folder, so that it outlives the folder.
fn read_control(
    reading: &mut Reading<'_>,
    file: &mut Section<'_>,
    store: Option<&Path>,
    beside: &Path,
) -> Option<ControlConfig> {
    match file.text(reading, "control") {
        Some((path, _)) => {
            (!path.is_empty()).then(|| ControlConfig { path: beside.join(path), is_named: true })
        }
        None => {
            let path = store?.with_added_extension("control");
            Some(ControlConfig { path, is_named: false })
        }
    }
}

fn address(reading: &mut Reading<'_>, section: &mut Section<'_>, key: &'static str) -> Option<SocketAddr> {
    let address =
        section.parsed(reading, key, "an address with a port, such as \"127.0.0.1:9878\"", |text| {
            text.parse().ok()
        });
    if !section.has(key) {
        section.missing(reading, key);
    }
    address
}

struct StoreConfig {
    folder: PathBuf,
    journal: JournalOptions,
    sync: SyncPolicy,
    patience: Duration,
}

fn read_store(reading: &mut Reading<'_>, mut store: Section<'_>, beside: &Path) -> StoreConfig {
    let folder = store.required_text(reading, "folder").map_or_else(String::new, |(folder, span)| {
        if folder.is_empty() {
            reading.wrong(span, "'folder' must be a path".to_owned());
        }
        folder
    });
    let segment = store.integer(reading, "segment_mb", 1..=65_536).map(|(megabytes, _)| megabytes);
    let wanted = "\"never\", \"always\" or a time such as \"250ms\" or \"2s\"";
    let sync = store.parsed(reading, "sync", wanted, |text| match text {
        "never" => Some(SyncPolicy::Never),
        "always" => Some(SyncPolicy::Always),
        text => time(text).map(SyncPolicy::Every),
    });
    let patience = store.time(reading, "patience", Duration::ZERO..=A_DAY);
    store.refuse_the_rest(reading);
    StoreConfig {
        folder: beside.join(folder),
        journal: JournalOptions { segment_bytes: (segment.unwrap_or(64) as u64) << 20, keep_bytes: None },
        sync: sync.unwrap_or(SyncPolicy::Every(Duration::from_millis(100))),
        patience: patience.unwrap_or(Duration::from_secs(10)),
    }
}

fn read_capacity(reading: &mut Reading<'_>, mut capacity: Section<'_>) -> tapeworks_translate::Settings {
    let usual = tapeworks_translate::Settings::default();
    let mut number = |key, usual| {
        capacity.integer(reading, key, 1..=1 << 24).map_or(usual, |(number, _): (usize, _)| number)
    };
    let settings = tapeworks_translate::Settings {
        most_orders: number("orders", usual.most_orders),
        most_requests: number("requests", usual.most_requests),
        most_fills: number("fills", usual.most_fills),
        halts_doubtful: usual.halts_doubtful,
    };
    capacity.refuse_the_rest(reading);
    settings
}

/// Reads a text that fits a field of the venue.
fn ascii<const N: usize>(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    key: &'static str,
) -> Option<Ascii<N>> {
    let wanted = format!("up to {N} printable characters");
    section.parsed(reading, key, &wanted, |text| {
        let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        Ascii::new(text).filter(|_| is_printable)
    })
}

/// Reads the password from `password`, from the environment variable that `password_env` names, or from the file `password_file`.
fn password(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    beside: &Path,
    longest: usize,
) -> Option<Secret> {
    Secret::read(reading, section, Secret::PASSWORD, beside, move |text| {
        check_secret(text)?;
        let is_text = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        match text.len() {
            length if length > longest => {
                Err(format!("a password has {longest} characters at most, not {length}"))
            }
            _ if !is_text => Err("a password is printable ASCII".to_owned()),
            _ => Ok(()),
        }
    })
}

/// Maximum length of a password in a FIX Logon.
const LONGEST_FIX_PASSWORD: usize = 128;

/// Returns the secret if it may change while the gateway runs.
fn followed(secret: &Secret) -> Option<Secret> {
    secret.files().map(|_| secret.clone())
}

fn read_venue(
    reading: &mut Reading<'_>,
    mut venue: Section<'_>,
    beside: &Path,
) -> Option<(Vec<SocketAddr>, VenueConfig, Duration, Option<Secret>)> {
    #[derive(Clone, Copy)]
    enum Protocol {
        Millennium,
        Ouch,
    }
    let protocol =
        venue.choice(reading, "protocol", &[Protocol::Millennium, Protocol::Ouch], |one| match one {
            Protocol::Millennium => "millennium",
            Protocol::Ouch => "ouch",
        });
    if !venue.has("protocol") {
        venue.missing(reading, "protocol");
    }
    let user = venue.required_text(reading, "user");
    let password_span = venue.span.clone();
    let longest_password = match protocol {
        Some(Protocol::Ouch) => 10,
        Some(Protocol::Millennium) | None => 25,
    };
    let secret = password(reading, &mut venue, beside, longest_password);
    if secret.is_none() && reading.is_clean() {
        let lacks = "venue lacks the key 'password', 'password_env' or 'password_file'";
        reading.wrong(password_span, lacks.to_owned());
    }
    let password = secret.as_ref().map(|secret| secret.get().as_ref().to_owned());
    let changes = secret.as_ref().and_then(followed);
    let first = venue.time(reading, "first_reconnect", AN_INSTANT..=A_DAY);
    let longest = venue.time(reading, "longest_reconnect", AN_INSTANT..=A_DAY);
    let connect =
        venue.time(reading, "connect_timeout", AN_INSTANT..=A_DAY).unwrap_or(Duration::from_secs(5));
    let read = match protocol? {
        Protocol::Millennium => {
            let addresses =
                [address(reading, &mut venue, "real_time"), address(reading, &mut venue, "recovery")];
            let read = read_millennium(reading, &mut venue);
            let ((user, span), password, [Some(real_time), Some(recovery)]) = (user?, password?, addresses)
            else {
                venue.refuse_the_rest(reading);
                return None;
            };
            let (mut session, table) = read;
            (session.user, session.password) = (user, password);
            session.first_reconnect_ns = first.map_or(session.first_reconnect_ns, nanoseconds);
            session.longest_reconnect_ns = longest.map_or(session.longest_reconnect_ns, nanoseconds);
            if let Err(error) = NativeClient::new(session.clone()) {
                reading.wrong(span, error.to_string());
            }
            (vec![real_time, recovery], VenueConfig::Millennium { session, table }, connect, changes)
        }
        Protocol::Ouch => {
            let address = address(reading, &mut venue, "address");
            let asks = venue.boolean(reading, "account_query").unwrap_or(true);
            let mut table = OuchSettings::default();
            let price = venue.integer(reading, "market_price", 1..=i64::MAX as usize);
            table.market_price = price.map_or(table.market_price, |(price, _)| price as u64);
            table.set_reasons(read_rejects(reading, &mut venue));
            let zone = venue.text(reading, "time_zone");
            let zone = zone.unwrap_or_else(|| ("America/New_York".to_owned(), venue.span.clone()));
            let day = match Schedule::daily(&zone.0, "00:00:00", "00:00:00") {
                Ok(day) => Some(day),
                Err(error) => {
                    reading.wrong(zone.1, error.to_string());
                    None
                }
            };
            let ((user, span), password) = (user?, password?);
            let credentials = Credentials { user, password };
            let mut session = SoupInitiatorSettings::new(credentials);
            session.first_reconnect_ns = first.map_or(session.first_reconnect_ns, nanoseconds);
            session.longest_reconnect_ns = longest.map_or(session.longest_reconnect_ns, nanoseconds);
            if let Err(error) = OuchSession::new(session.clone()) {
                reading.wrong(span, error.to_string());
            }
            (vec![address?], VenueConfig::Ouch { session, day: day?, asks, table }, connect, changes)
        }
    };
    venue.refuse_the_rest(reading);
    Some(read)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn read_millennium(
    reading: &mut Reading<'_>,
    venue: &mut Section<'_>,
) -> (NativeSettings, MillenniumSettings) {
    let mut variant: Variant = *VARIANTS[0];
    if let Some((name, span)) = venue.text(reading, "variant") {
        match variant_by_name(&name) {
            Some(found) => variant = *found,
            None => {
                let known: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
                reading.unknown(span, &format!("'{name}' for 'variant'"), &name, &known);
            }
        }
    }
    let partitions = venue.integer(reading, "partitions", 1..=255).map(|(number, _)| number as u8);
    variant.partitions = partitions.unwrap_or(variant.partitions);
    let throttle = venue.integer(reading, "throttle_per_second", 0..=1_000_000);
    variant.throttle_per_second = throttle.map_or(variant.throttle_per_second, |(number, _)| number as u32);
    let heartbeat = venue.time(reading, "heartbeat", Duration::from_millis(10)..=A_DAY);
    variant.heartbeat_interval_ns = heartbeat.map_or(variant.heartbeat_interval_ns, nanoseconds);
    let missed = venue.integer(reading, "missed_heartbeats", 1..=1_000).map(|(number, _)| number as u32);
    variant.missed_heartbeats = missed.unwrap_or(variant.missed_heartbeats);
    let padding =
        venue.choice(reading, "text_padding", &[TextPadding::Nul, TextPadding::Space], |one| match one {
            TextPadding::Space => "space",
            _ => "nul",
        });
    variant.text_padding = padding.unwrap_or(variant.text_padding);
    let queue = venue.integer(reading, "queue", 0..=1 << 20).map(|(number, _)| number);
    let new_password = venue.text(reading, "new_password").map(|(password, _)| password);
    let usual = NativeSettings::default();
    let session = NativeSettings {
        variant,
        new_password,
        queue_messages: queue.unwrap_or(usual.queue_messages),
        ..usual
    };
    let naming = venue.choice(reading, "naming", &[Naming::ClOrdId, Naming::Numbered], |one| match one {
        Naming::ClOrdId => "clordid",
        Naming::Numbered => "numbered",
    });
    let trader_id = ascii(reading, venue, "trader_id");
    let good_till_cancel = venue.integer(reading, "good_till_cancel_s", 0..=u32::MAX as usize);
    let accounts = [ClearingAccount::Client, ClearingAccount::House];
    let clearing_account = venue.choice(reading, "clearing_account", &accounts, |account| match account {
        ClearingAccount::Client => "client",
        _ => "house",
    });
    let trader = venue.integer(reading, "executing_trader", 0..=u32::MAX as usize);
    let passive_only = venue.integer(reading, "passive_only", 1..=255);
    let short_sells = venue.boolean(reading, "short_sells");
    let usual = MillenniumSettings::default();
    let mut table = MillenniumSettings {
        variant,
        naming: naming.unwrap_or(Naming::Numbered),
        trader_id: trader_id.unwrap_or(usual.trader_id),
        good_till_cancel_s: good_till_cancel.map_or(usual.good_till_cancel_s, |(number, _)| number as u32),
        clearing_account: clearing_account.unwrap_or(usual.clearing_account),
        executing_trader: trader.map_or(usual.executing_trader, |(code, _)| code as u32),
        passive_only: passive_only
            .map_or(usual.passive_only, |(code, _)| PassiveOnlyOrder::from_raw(code as u8)),
        sends_short_sells: short_sells.unwrap_or(usual.sends_short_sells),
        reject_codes: read_rejects(reading, venue),
        ..usual
    };
    if let Some(mut capacity) = venue.table(reading, "capacity") {
        let mut read = |key, place: &mut Capacity| {
            if let Some((code, _)) = capacity.integer(reading, key, 1..=255) {
                *place = Capacity::from_raw(code as u8);
            }
        };
        read("agency", &mut table.agency);
        read("principal", &mut table.principal);
        read("riskless_principal", &mut table.riskless_principal);
        read("otherwise", &mut table.other_capacity);
        capacity.refuse_the_rest(reading);
    }
    (session, table)
}

/// Reads the meanings of the venue's reject codes.
fn read_rejects(reading: &mut Reading<'_>, venue: &mut Section<'_>) -> Vec<RejectReason> {
    const OTHER: u16 = 99;
    let mut all = Vec::<RejectReason>::new();
    for mut section in venue.tables(reading, "reject") {
        let code = section.integer(reading, "code", 1..=i32::MAX as usize);
        if !section.has("code") {
            section.missing(reading, "code");
        }
        let text = section.required_text(reading, "text");
        let mut reason = |key| {
            section
                .integer(reading, key, 0..=usize::from(u16::MAX))
                .map_or(OTHER, |(reason, _)| reason as u16)
        };
        let (order_reason, cancel_reason) = (reason("order_reason"), reason("cancel_reason"));
        section.refuse_the_rest(reading);
        let (Some((code, span)), Some((text, text_span))) = (code, text) else { continue };
        let code = code as i32;
        if all.iter().any(|other| other.code == code) {
            reading.wrong(span, format!("there is a reject with the code {code} already"));
        }
        if text.len() > MOST_REASON_BYTES || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            let problem = format!("'text' must be up to {MOST_REASON_BYTES} printable characters");
            reading.wrong(text_span, problem);
        }
        all.push(RejectReason { code, order_reason, cancel_reason, text });
    }
    all
}

/// Parses a price such as `0.01` into units of 1e-8.
fn price(text: &str) -> Option<i64> {
    read_decimal::<8>(text.as_bytes()).ok().filter(|price| *price >= 0)
}

/// Reads the instruments. `partitions` is the venue's number of partitions, if it has any.
fn read_instruments(
    reading: &mut Reading<'_>,
    file: &mut Section<'_>,
    partitions: Option<u8>,
) -> Vec<Instrument> {
    let sections = file.tables(reading, "instrument");
    if sections.is_empty() && !file.has("instrument") {
        file.missing(reading, "instrument");
    }
    let mut all = Vec::new();
    for mut section in sections {
        let symbol = ascii(reading, &mut section, "symbol");
        if !section.has("symbol") {
            section.missing(reading, "symbol");
        }
        let id = section.integer(reading, "id", 0..=i32::MAX as usize);
        let security_id = ascii(reading, &mut section, "security_id");
        let tick = section.parsed(reading, "tick", "a price such as \"0.01\"", price);
        let has_negative_prices = section.boolean(reading, "negative_prices");
        let partition = section.integer(reading, "partition", 1..=255);
        let segment = ascii(reading, &mut section, "segment");
        section.refuse_the_rest(reading);
        if let (Some((partition, span)), Some(most)) = (&partition, partitions)
            && *partition > usize::from(most)
        {
            reading
                .wrong(span.clone(), format!("the venue has the partitions 1 to {most}: see 'partitions'"));
        }
        let Some(symbol) = symbol else { continue };
        let found = Instrument {
            symbol,
            security_id: security_id.unwrap_or_default(),
            venue_id: id.map_or(all.len() as i32 + 1, |(id, _)| id as i32),
            tick_e8: tick.unwrap_or(0),
            has_negative_prices: has_negative_prices.unwrap_or(false),
            partition: partition.map_or(1, |(partition, _)| partition as u8),
            segment: segment.unwrap_or_default(),
        };
        if all.iter().any(|other: &Instrument| other.symbol == found.symbol) {
            section.wrong_at(reading, "symbol", "another instrument has this symbol");
        } else if all.iter().any(|other| known_as(other) == known_as(&found)) {
            let (key, problem) = if section.has("security_id") {
                ("security_id", "another instrument has this SecurityID")
            } else {
                ("id", "another instrument has this number, which is its SecurityID without 'security_id'")
            };
            section.wrong_at(reading, key, problem);
        }
        all.push(found);
    }
    all
}

/// Returns the SecurityID (48) of an instrument: by default, its number at the venue.
fn known_as(instrument: &Instrument) -> String {
    if instrument.security_id.is_blank() {
        return instrument.venue_id.to_string();
    }
    String::from_utf8_lossy(instrument.security_id.trimmed()).into_owned()
}

fn read_parties(reading: &mut Reading<'_>, file: &mut Section<'_>) -> Vec<(Ascii<20>, u32)> {
    let mut all = Vec::<(Ascii<20>, u32)>::new();
    for mut section in file.tables(reading, "party") {
        let id = ascii(reading, &mut section, "id");
        let code = section.integer(reading, "code", 0..=u32::MAX as usize);
        for key in ["id", "code"] {
            if !section.has(key) {
                section.missing(reading, key);
            }
        }
        section.refuse_the_rest(reading);
        if let (Some(id), Some((code, _))) = (id, code) {
            if all.iter().any(|(other, _)| *other == id) {
                section.wrong_at(reading, "id", "another party has this id");
            }
            all.push((id, code as u32));
        }
    }
    all
}

fn read_web(reading: &mut Reading<'_>, mut web: Section<'_>, beside: &Path) -> Option<WebConfig> {
    let place = address(reading, &mut web, "address");
    let is_local = place.is_none_or(|address| address.ip().is_loopback());
    if !is_local && !Secret::is_in(&web, Secret::TOKEN) {
        web.wrong_at(reading, "address", "an address that others can reach needs a 'token'");
    }
    let token =
        Secret::read(reading, &mut web, Secret::TOKEN, beside, move |text| check_token(text, is_local));
    let tls = TlsFiles::read(reading, &mut web, beside);
    acceptor(reading, &web, tls.as_ref());
    web.refuse_the_rest(reading);
    Some(WebConfig { address: place?, token, tls })
}

fn read_market(reading: &mut Reading<'_>, mut market: Section<'_>, beside: &Path) -> Option<PricesConfig> {
    let memory = market.required_text(reading, "shared_memory");
    let age = market.time(reading, "price_age", LEAST_PRICE_AGE..=Duration::from_secs(60));
    market.refuse_the_rest(reading);
    let (memory, _) = memory?;
    let age = age.unwrap_or(Duration::from_secs(1));
    Some(PricesConfig { path: quotes_path(&beside.join(memory)), age })
}

/// Reads the TLS files, including their contents.
fn read_tls(
    reading: &mut Reading<'_>,
    mut tls: Section<'_>,
    clients: &[ClientSettings],
    beside: &Path,
) -> Option<Acceptor> {
    let files = TlsFiles::read(reading, &mut tls, beside);
    if !tls.has("certificate") && !tls.has("private_key") {
        tls.missing(reading, "certificate");
    }
    if !tls.has("client_authorities") {
        check_certificates(reading, &tls, clients, "'client_authorities' in [tls]");
    }
    let acceptor = acceptor(reading, &tls, files.as_ref());
    tls.refuse_the_rest(reading);
    acceptor
}

fn acceptor(reading: &mut Reading<'_>, section: &Section<'_>, files: Option<&TlsFiles>) -> Option<Acceptor> {
    files?.acceptor().map_err(|problem| section.wrong_at(reading, "certificate", &problem.to_string())).ok()
}

/// Reports a client that must show a certificate although none is requested: it could never log on.
fn check_certificates(
    reading: &mut Reading<'_>,
    section: &Section<'_>,
    clients: &[ClientSettings],
    lack: &str,
) {
    if let Some(client) = clients.iter().find(|client| client.certificate.is_some()) {
        let problem = format!("client '{}' has certificate_sha256, and there is no {lack}", client.name);
        reading.wrong(section.span.clone(), problem);
    }
}

/// Minimum `price_age`: two heartbeats of a plant, and one check by the gateway between them.
const LEAST_PRICE_AGE: Duration = Duration::from_nanos(2 * HEARTBEAT_NS + 100_000_000);

/// Reports limits that need prices although none are configured. A collar would refuse every order, and a limit on the notional
/// every sell and market order.
fn check_without_prices(reading: &mut Reading<'_>, file: &Section<'_>, clients: &[ClientSettings]) {
    for ClientSettings { name, translate, .. } in clients {
        let RiskLimits { collar_basis_points, most_notional, .. } = translate.limits;
        let needs_prices =
            [("collar_basis_points", collar_basis_points != 0), ("most_notional", most_notional != 0)];
        if let Some((key, _)) = needs_prices.into_iter().find(|(_, is_set)| *is_set) {
            let problem = format!("client '{name}' has {key}, and there is no [market] with prices");
            reading.wrong(file.span.clone(), problem);
            // A limit set for all clients is reported once.
            return;
        }
    }
}

/// Reports a limit on open orders that exceeds the room for orders, and so would have no effect.
fn check_room(reading: &mut Reading<'_>, file: &Section<'_>, clients: &[ClientSettings], most_orders: usize) {
    let is_beyond =
        |client: &&ClientSettings| client.translate.limits.most_open_orders as usize > most_orders;
    if let Some(ClientSettings { name, translate, .. }) = clients.iter().find(is_beyond) {
        let wanted = translate.limits.most_open_orders;
        let problem = format!(
            "client '{name}' has most_open_orders = {wanted}, and there is room for {most_orders} orders: see `orders` in [capacity]"
        );
        reading.wrong(file.span.clone(), problem);
    }
}

/// Keys that every client may have, or `client_defaults` for all clients.
#[derive(Clone, Debug, Default)]
struct Common {
    heartbeat: Option<Duration>,
    limits: RiskLimits,
    instruments: Option<Vec<InstrumentIndex>>,
    messages_per_second: Option<u32>,
    cancels_on_disconnect: Option<bool>,
    dictionary: Option<Arc<Dictionary>>,
    ignored_tags: IgnoredTags,
    ignores_empty_fields: bool,
    resend_bound: Option<u64>,
    message_limit: Option<usize>,
    output_bytes: Option<usize>,
    schedule: Option<Schedule>,
    tolerance: Option<Duration>,
    resets_on_logon: Option<bool>,
    addresses: Vec<IpAddr>,
    certificate: Option<[u8; 32]>,
}

fn read_common(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    usual: &Common,
    instruments: &[Instrument],
    dictionaries: &mut HashMap<PathBuf, Arc<Dictionary>>,
    beside: &Path,
) -> Common {
    let mut common = usual.clone();
    if let Some(time) = section.time(reading, "heartbeat", Duration::from_secs(1)..=A_DAY) {
        common.heartbeat = Some(time);
    }
    let mut limit =
        |key: &'static str, most: usize| section.integer(reading, key, 0..=most).map(|(number, _)| number);
    let limits = &mut common.limits;
    limits.most_quantity =
        limit("most_quantity", u32::MAX as usize).map_or(limits.most_quantity, |it| it as u32);
    limits.most_notional =
        limit("most_notional", usize::MAX >> 1).map_or(limits.most_notional, |it| it as u64);
    limits.collar_basis_points =
        limit("collar_basis_points", 1_000_000).map_or(limits.collar_basis_points, |it| it as u32);
    limits.most_open_orders =
        limit("most_open_orders", u32::MAX as usize).map_or(limits.most_open_orders, |it| it as u32);
    limits.orders_per_second =
        limit("orders_per_second", 1_000_000).map_or(limits.orders_per_second, |it| it as u32);
    common.messages_per_second = limit("messages_per_second", 10_000_000)
        .map_or(common.messages_per_second, |it| (it > 0).then_some(it as u32));
    common.resend_bound =
        limit("resend_bound", usize::MAX >> 1).map_or(common.resend_bound, |it| Some(it as u64));
    common.message_limit = section
        .integer(reading, "message_limit_bytes", 512..=1 << 19)
        .map_or(common.message_limit, |(number, _)| Some(number));
    common.output_bytes = section
        .integer(reading, "output_bytes", 1 << 12..=1 << 30)
        .map_or(common.output_bytes, |(number, _)| Some(number));
    limits.may_sell_short = section.boolean(reading, "may_sell_short").unwrap_or(limits.may_sell_short);
    common.cancels_on_disconnect =
        section.boolean(reading, "cancels_on_disconnect").or(common.cancels_on_disconnect);
    common.resets_on_logon = section.boolean(reading, "resets_on_logon").or(common.resets_on_logon);
    common.tolerance =
        section.time(reading, "sending_time_tolerance", AN_INSTANT..=A_DAY).or(common.tolerance);
    let place = |text: &str| {
        let found = instruments.iter().position(|one| one.symbol.trimmed() == text.as_bytes());
        found.map(|place| InstrumentIndex(place as u32))
    };
    if let Some(list) = section.each(reading, "symbols", "the symbol of an instrument", place) {
        common.instruments = Some(list);
    }
    let tag = |text: &str| text.parse::<u32>().ok().filter(|tag| *tag > 0);
    if let Some(tags) = section.each(reading, "ignored_tags", "a tag", tag) {
        common.ignored_tags.tags = tags;
    }
    if let Some(validates) = section.boolean(reading, "validate_user_defined_fields") {
        common.ignored_tags.user_defined = !validates;
    }
    if let Some(validates) = section.boolean(reading, "validate_fields_have_values") {
        common.ignores_empty_fields = !validates;
    }
    let allowed = |text: &str| text.parse::<IpAddr>().ok();
    if let Some(addresses) = section.each(reading, "addresses", "an IP address", allowed) {
        common.addresses = addresses;
    }
    let fingerprint = |text: &str| <[u8; 32]>::try_from(hex::decode(text).ok()?).ok();
    let wanted = "the SHA-256 of a certificate in DER, 64 hexadecimal digits";
    if let Some(certificate) = section.parsed(reading, "certificate_sha256", wanted, fingerprint) {
        common.certificate = Some(certificate);
    }
    if let Some(mut hours) = section.table(reading, "hours") {
        let mut text =
            |key, usual: &str| hours.text(reading, key).map_or_else(|| usual.to_owned(), |(text, _)| text);
        let (zone, start, end) = (text("time_zone", "UTC"), text("start", ""), text("end", ""));
        let (first, last) = (text("first_day", ""), text("last_day", ""));
        let schedule = Schedule::daily(&zone, &start, &end).and_then(|daily| {
            // Without the days, the hours apply every day.
            if first.is_empty() && last.is_empty() { Ok(daily) } else { daily.weekly(&first, &last) }
        });
        match schedule {
            Ok(schedule) => common.schedule = Some(schedule),
            Err(error) => reading.wrong(hours.span.clone(), error.to_string()),
        }
        hours.refuse_the_rest(reading);
    }
    if let Some(names) = section.each(reading, "dictionary", "a path", |text| Some(text.to_owned())) {
        match dictionary(&names, dictionaries, beside) {
            Ok(dictionary) => common.dictionary = Some(dictionary),
            Err(problem) => section.wrong_at(reading, "dictionary", &problem),
        }
    }
    common
}

/// Reads the dictionary from one file, or from separate files for the session and the application.
fn dictionary(
    names: &[String],
    known: &mut HashMap<PathBuf, Arc<Dictionary>>,
    beside: &Path,
) -> Result<Arc<Dictionary>, String> {
    let mut read = |name: &String| -> Result<Arc<Dictionary>, String> {
        let path = beside.join(name);
        if let Some(found) = known.get(&path) {
            return Ok(Arc::clone(found));
        }
        let file = path.display().to_string();
        let problem = |errors: Vec<ConfigError>| errors.first().map(ToString::to_string).unwrap_or_default();
        let text = read_file(&path, &file).map_err(problem)?;
        let dictionary = Dictionary::from_xml(&text).map_err(|error| format!("{file}: {error}"))?;
        let dictionary = Arc::new(dictionary);
        known.insert(path, Arc::clone(&dictionary));
        Ok(dictionary)
    };
    match names {
        [one] => read(one),
        [session, application] => {
            let (session, application) = (read(session)?, read(application)?);
            Ok(Arc::new((*session).clone().with_application((*application).clone())))
        }
        _ => Err("'dictionary' is one file, or the session's and the application's".to_owned()),
    }
}

fn read_clients(
    reading: &mut Reading<'_>,
    file: &mut Section<'_>,
    defaults: Option<Section<'_>>,
    instruments: &[Instrument],
    beside: &Path,
) -> Vec<ClientSettings> {
    let mut dictionaries = HashMap::new();
    let mut usual = Common::default();
    if let Some(mut section) = defaults {
        usual = read_common(reading, &mut section, &usual, instruments, &mut dictionaries, beside);
        section.refuse_the_rest(reading);
    }
    let declared = Arc::new(Dictionary::from_schema(&SCHEMA));
    let sections = file.tables(reading, "client");
    if sections.is_empty() && !file.has("client") {
        file.missing(reading, "client");
    }
    if sections.len() > MOST_CLIENTS {
        reading.wrong(file.span.clone(), format!("there are more than {MOST_CLIENTS} clients"));
    }
    let (mut all, mut names, mut sessions) = (Vec::<ClientSettings>::new(), Vec::new(), Vec::new());
    for mut section in sections {
        let name = section.required_text(reading, "name");
        let version = section.text(reading, "begin_string");
        let comp_id = section.required_text(reading, "comp_id");
        let ours =
            section.text(reading, "gateway_comp_id").map_or_else(|| "TAPEWORKS".to_owned(), |(id, _)| id);
        let user = section.text(reading, "user").map(|(user, _)| user);
        let secret = password(reading, &mut section, beside, LONGEST_FIX_PASSWORD);
        let is_drop_copy = section.boolean(reading, "drop_copy").unwrap_or(false);
        let common = read_common(reading, &mut section, &usual, instruments, &mut dictionaries, beside);
        if user.is_some() && secret.is_none() {
            section.missing(reading, "password");
        }
        let begin_string = match version {
            Some((text, span)) => {
                if !VERSIONS.contains(&text.as_str()) {
                    reading.unknown(span, &format!("'{text}' for 'begin_string'"), &text, &VERSIONS);
                }
                text
            }
            None => "FIX.4.4".to_owned(),
        };
        let is_text = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'=')
        };
        for (text, span) in [&name, &comp_id].into_iter().flatten() {
            if !is_text(text) {
                reading.wrong(span.clone(), "a name is printable, without spaces and '='".to_owned());
            }
        }
        let (Some((name, name_span)), Some((comp_id, span))) = (name, comp_id) else {
            section.refuse_the_rest(reading);
            continue;
        };
        if names.contains(&name) {
            reading.wrong(name_span, format!("there is a client '{name}' already"));
        }
        names.push(name.clone());
        let names_of_session = (begin_string.clone(), comp_id.clone(), ours.clone());
        if sessions.contains(&names_of_session) {
            reading.wrong(span, "another client has this BeginString and these CompIDs".to_owned());
        }
        sessions.push(names_of_session);
        section.refuse_the_rest(reading);
        let mut session = FixSettings::new(Role::Acceptor, &begin_string, &ours, &comp_id);
        session.resends_rejects = true;
        session.needs_heartbeats = true;
        let text = secret.as_ref().map(|secret| secret.get().as_ref().to_owned());
        session.credentials = text.map(|password| (user.unwrap_or_default(), password));
        let mut client = client(&name, session, &common, is_drop_copy, &declared);
        client.password = secret.as_ref().and_then(followed);
        all.push(client);
    }
    all
}

fn client(
    name: &str,
    mut session: FixSettings,
    common: &Common,
    is_drop_copy: bool,
    declared: &Arc<Dictionary>,
) -> ClientSettings {
    if let Some(heartbeat) = common.heartbeat {
        session.longest_heartbeat_s = u32::try_from(heartbeat.as_secs()).unwrap_or(u32::MAX);
    }
    session.throttle_per_second = common.messages_per_second;
    session.ignored_tags = common.ignored_tags.clone();
    session.ignores_empty_fields = common.ignores_empty_fields;
    session.resend_bound = common.resend_bound.unwrap_or(session.resend_bound);
    session.message_limit_bytes = common.message_limit.unwrap_or(session.message_limit_bytes);
    session.schedule = common.schedule.clone();
    session.tolerance_ns = common.tolerance.map_or(session.tolerance_ns, |time| Some(nanoseconds(time)));
    session.resets_on_logon = common.resets_on_logon.unwrap_or(false);
    let dictionary = common.dictionary.clone().unwrap_or_else(|| Arc::clone(declared));
    let mut client = ClientSettings::new(name, session, dictionary);
    client.translate.limits = RiskLimits { instruments: common.instruments.clone(), ..common.limits.clone() };
    client.translate.ignored_tags.clone_from(&common.ignored_tags);
    client.cancels_on_disconnect = common.cancels_on_disconnect.unwrap_or(false);
    client.is_drop_copy = is_drop_copy;
    client.addresses.clone_from(&common.addresses);
    client.certificate = common.certificate;
    client.output_bytes = common.output_bytes.unwrap_or(client.output_bytes);
    client
}
