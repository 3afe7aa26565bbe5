//! The plant's configuration file.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tapeworks_feed::live::SnapshotOptions;
use tapeworks_feed::{Application, FeedSpec};
use tapeworks_follow::arbitration::{ArbiterOptions, RetransmissionOptions};
use tapeworks_journal::JournalOptions;
use tapeworks_market::nbbo::{NbboRules, SelfHelp, StaleBooks};
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::venue::{FEEDS, mics};
use tapeworks_market::{Publisher, Symbol};
#[cfg(feature = "dpdk")]
use tapeworks_nic::DpdkOptions;
#[cfg(feature = "af-xdp")]
use tapeworks_nic::{MAX_XDP_FRAMES, XdpOptions};
use tapeworks_ring::wait::Wait;
use tapeworks_time::clock;

use tapeworks_session::Credentials;
use tapeworks_session::requests::{LoginFields, RequestLogin, RequestProtocol};
use tapeworks_session::snapshot::{SnapshotLogin, SnapshotProtocol};
use toml::Spanned;
use toml::de::DeTable;

#[cfg(feature = "dpdk")]
use crate::dpdk::read_dpdk;
use crate::nats::{self, NatsSetting};
use crate::{aeron, kafka, tls};
use tapeworks_engine::export::is_ending;
use tapeworks_market::BookOptions;
use tapeworks_outputs::aeron::{AeronSetting, AeronSourceSetting};
use tapeworks_outputs::clients::distributor::Dataset;
use tapeworks_outputs::kafka::KafkaSetting;
use tapeworks_outputs::multicast::server::MulticastSetting;
use tapeworks_outputs::questdb::{QuestDbLogin, QuestDbSetting};
use tapeworks_plant::roll::RollSetting;
use tapeworks_plant::{JournalSetting, PairSetting, SyncPolicy, WhenFailing};
use tapeworks_plant::{
    ORDERS, PlantOptions, RetransmissionServer, SnapshotServer, Source, Topology, VenueOptions,
};
use tapeworks_runtime::config::ConfigError;
use tapeworks_runtime::config::{Reading, Section, host_and_port, read_file, read_text, time};
use tapeworks_runtime::followed::FileWatch;
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_runtime::secrets::{Secret, check_token};
use tapeworks_runtime::traces::setting::{self as traces, Sampled, TraceSetting};
use tapeworks_runtime::transport::{NoTls, TlsFiles};

/// The port of the DBN live protocol.
pub const CLIENTS_PORT: u16 = 13_000;

/// The port of the web page.
pub const WEB_PORT: u16 = 8_080;

/// Settings of the server for live clients.
#[derive(Clone, Debug)]
pub struct ClientsSetting {
    /// Address to listen on.
    pub address: SocketAddr,
    /// The keys.
    pub keys: Keys,
    /// The datasets.
    pub datasets: Vec<Dataset>,
    /// Maximum number of bytes queued for one client.
    pub queue_bytes: usize,
    /// Maximum number of simultaneous connections.
    pub max_connections: usize,
    /// How long an idle thread sleeps.
    pub idle_sleep: Duration,
    /// TLS files. If present, clients must use TLS.
    pub tls: Option<TlsFiles>,
}

/// Settings of the web page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebSetting {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Token that viewers must present. Required unless the page listens on loopback only.
    pub token: Option<Secret>,
    /// Whether the page serves market data to programs: see `tapeworks_outputs::stream`.
    pub stream: bool,
    /// TLS files. If present, browsers and programs must use TLS.
    pub tls: Option<TlsFiles>,
}

/// All settings of a plant.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The plant itself.
    pub plant: PlantOptions,
    /// The server for live clients, if configured.
    pub clients: Option<ClientsSetting>,
    /// The web page, if configured.
    pub web: Option<WebSetting>,
    /// The multicast of records, if configured.
    pub multicast: Option<MulticastSetting>,
    /// The daily roll, if configured.
    pub roll: Option<RollSetting>,
    /// The output to QuestDB, if configured.
    pub questdb: Option<QuestDbSetting>,
    /// The output to NATS, if configured.
    pub nats: Option<NatsSetting>,
    /// The output to Kafka, if configured.
    pub kafka: Option<KafkaSetting>,
    /// The output to Aeron, if configured.
    pub aeron: Option<AeronSetting>,
    /// The export of traces, if configured.
    pub traces: Option<TraceSetting>,
    /// The streams of another plant, if this plant reads its events instead of lines.
    pub source: Option<AeronSourceSetting>,
    /// File of prices that determine round lots where no venue states them. [`load`](crate::service::load) reads it into the NBBO rules.
    pub round_lot_prices: Option<PathBuf>,
}

impl Config {
    /// Parses the configuration `text` of a file named `file`. Relative paths start in the folder of that file.
    ///
    /// # Errors
    /// Every error, in the order of the file; at least one.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<ConfigError>> {
        let beside = Path::new(file).parent().unwrap_or_else(|| Path::new(""));
        read_text(Reading::new(file, text, true), |reading, document| {
            read_document(reading, document, beside)
        })
    }

    /// Reads the certificates that this plant presents, named after their sections.
    ///
    /// # Errors
    /// The first certificate that cannot be used.
    pub fn certificates(&self) -> Result<FileWatch, NoTls> {
        let mut watch = FileWatch::default();
        let servers = [
            ("clients", self.clients.as_ref().and_then(|clients| clients.tls.as_ref())),
            ("web", self.web.as_ref().and_then(|web| web.tls.as_ref())),
            ("multicast", self.multicast.as_ref().and_then(|multicast| multicast.tls.as_ref())),
            ("aeron", self.aeron.as_ref().and_then(|aeron| aeron.tls.as_ref())),
            ("pair", self.plant.pair.as_ref().and_then(|pair| pair.tls.as_ref())),
        ];
        for (section, files) in servers {
            let acceptor = files.map(TlsFiles::acceptor).transpose()?.unwrap_or_default();
            watch.add(format!("{section}.certificate"), acceptor.files());
        }
        let source = self.source.as_ref().and_then(|source| source.tls.as_ref());
        // The name belongs to the peer and is not checked here.
        let connector = source.map(|files| files.connector("localhost")).transpose()?.unwrap_or_default();
        watch.add("source.aeron.certificate", connector.files());
        Ok(watch)
    }

    /// Reads the configuration file at `path`.
    ///
    /// # Errors
    /// The same as for [`Config::parse`]. An unreadable file is reported without a line.
    pub fn load(path: &Path) -> Result<Self, Vec<ConfigError>> {
        let file = path.display().to_string();
        Self::parse(&file, &read_file(path, &file)?)
    }

    /// Returns the options of the plant's books, which every output that builds records shares.
    pub fn books(&self) -> BookOptions {
        self.plant.books()
    }
}

const TOPOLOGIES: [(Topology, &str); 2] = [(Topology::Inline, "inline"), (Topology::Pipeline, "pipeline")];
const FAILING: [(WhenFailing, &str); 2] = [(WhenFailing::GoOn, "go-on"), (WhenFailing::Stop, "stop")];
/// The units that the size fields of the SIPs may have.
const SIP_SIZES: [(SipSizes, &str); 3] =
    [(SipSizes::ByDate, "by-date"), (SipSizes::Lots, "lots"), (SipSizes::Shares, "shares")];

const STALE: [(StaleBooks, &str); 2] = [(StaleBooks::Flag, "flag"), (StaleBooks::Exclude, "exclude")];

fn one_of<T: Copy + PartialEq>(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    key: &'static str,
    all: &[(T, &'static str)],
) -> Option<T> {
    let values: Vec<T> = all.iter().map(|(value, _)| *value).collect();
    section.choice(reading, key, &values, |wanted| {
        all.iter().find(|(value, _)| *value == wanted).map_or("", |(_, name)| name)
    })
}

fn address(reading: &mut Reading<'_>, section: &mut Section<'_>, key: &'static str) -> Option<SocketAddr> {
    section.parsed(reading, key, "an address with a port such as 127.0.0.1:31001", |text| text.parse().ok())
}

/// Addresses that the plant listens on. Two listeners of one transport cannot share a port.
#[derive(Default)]
struct Taken(Vec<(&'static str, SocketAddr, String)>);

impl Taken {
    /// Claims `address` for `what`. Returns the earlier owner if it is taken.
    fn take(&mut self, transport: &'static str, address: SocketAddr, what: &str) -> Option<String> {
        let clashes = |other: &SocketAddr| {
            let is_one = address.ip() == other.ip()
                || address.ip().is_unspecified() && !other.ip().is_multicast()
                || other.ip().is_unspecified() && !address.ip().is_multicast();
            address.port() != 0 && address.port() == other.port() && is_one
        };
        let other = self.0.iter().find(|(kind, other, _)| *kind == transport && clashes(other));
        let whose = other.map(|(_, _, whose)| whose.clone());
        self.0.push((transport, address, what.to_owned()));
        whose
    }

    /// Claims an address, and reports an error if it is taken.
    fn check(
        &mut self,
        reading: &mut Reading<'_>,
        (section, key): (&Section<'_>, &str),
        (transport, address): (&'static str, SocketAddr),
        what: &str,
    ) {
        if let Some(other) = self.take(transport, address, what) {
            section.wrong_at(reading, key, &format!("{other} has the address {address} already"));
        }
    }
}

fn publisher(text: &str) -> Option<Publisher> {
    let named = FEEDS.iter().find(|feed| feed.dataset.eq_ignore_ascii_case(text));
    named.map(|feed| feed.publisher).or_else(|| text.parse().ok().filter(|number| *number > 0).map(Publisher))
}

/// Reads a period of self-help against a venue.
fn self_help(reading: &mut Reading<'_>, mut one: Section<'_>) -> Option<SelfHelp> {
    let form = format!("a venue: {}", mics().collect::<Vec<_>>().join(", "));
    let venue = one.parsed(reading, "venue", &form, Publisher::of_venue);
    if !one.has("venue") {
        one.missing(reading, "venue");
    }
    if !one.has("from") {
        one.missing(reading, "from");
    }
    let from = one.parsed(reading, "from", clock::INSTANT_FORM, clock::instant);
    let until = one.parsed(reading, "until", clock::INSTANT_FORM, clock::instant);
    if from.zip(until).is_some_and(|(from, until)| until <= from) {
        one.wrong_at(reading, "until", "'until' must be later than 'from'");
    }
    one.refuse_the_rest(reading);
    Some(SelfHelp { venue: venue?, from: from?, until })
}

fn read_document(reading: &mut Reading<'_>, document: &Spanned<DeTable<'_>>, beside: &Path) -> Config {
    let mut top = Section::new("the file", document.get_ref(), 0..0);
    let mut plant = PlantOptions::default();
    plant.topology = one_of(reading, &mut top, "topology", &TOPOLOGIES).unwrap_or_default();
    plant.wait = top.choice(reading, "wait", &Wait::ALL, Wait::name).unwrap_or(plant.wait);
    plant.warm = top.boolean(reading, "warm").unwrap_or_default();
    plant.receive.interface =
        top.parsed(reading, "interface", "the IPv4 address of an interface", |text| text.parse().ok());
    plant.symbols = top
        .each(reading, "symbols", &format!("a symbol of {}", Symbol::FORM), Symbol::parse)
        .map(|symbols| symbols.into_iter().collect());
    plant.shared_memory = top.text(reading, "shared_memory").map(|(path, _)| beside.join(path));
    let ring = top.integer(reading, "ring_events", 1_024..=1 << 26);
    plant.ring_events = ring.map_or(plant.ring_events, |(events, _)| events);
    if let Some(mut cores) = top.table(reading, "cores") {
        plant.cores =
            ["ingest", "market"].map(|key| cores.integer(reading, key, 0..=4_095).map(|(core, _)| core));
        cores.refuse_the_rest(reading);
    }
    if let Some(mut receive) = top.table(reading, "receive") {
        let buffer = receive.number(reading, "buffer_mb", 0.1..=2_047.0);
        plant.receive.buffer_bytes =
            buffer.map(|(megabytes, _)| (megabytes * 1_048_576.0) as usize).or(plant.receive.buffer_bytes);
        let poll = receive.time(reading, "busy_poll", Duration::ZERO..=Duration::from_secs(1));
        if poll.is_some_and(|time| time.subsec_nanos() % 1_000 != 0) {
            receive.wrong_at(reading, "busy_poll", "'busy_poll' must be whole microseconds");
        }
        plant.receive.busy_poll_us = poll.map_or(0, |time| time.as_micros() as u32);
        let bytes = receive.integer(reading, "datagram_bytes", 512..=65_536);
        plant.receive.datagram_bytes = bytes.map_or(plant.receive.datagram_bytes, |(bytes, _)| bytes);
        plant.receive.source = read_source(reading, &mut receive);
        let buffers = receive.integer(reading, "buffers", 256..=1 << 22);
        plant.receive.buffers = buffers.map_or(plant.receive.buffers, |(buffers, _)| buffers);
        receive.refuse_the_rest(reading);
    }
    let mut round_lot_prices = None;
    if let Some(mut nbbo) = top.table(reading, "nbbo") {
        plant.rules = NbboRules {
            stale_books: one_of(reading, &mut nbbo, "stale_books", &STALE).unwrap_or_default(),
            odd_lots_count: nbbo.boolean(reading, "odd_lots").unwrap_or_default(),
            ignores_price_bands: nbbo.boolean(reading, "ignore_price_bands").unwrap_or_default(),
            ..NbboRules::default()
        };
        plant.sip_sizes = one_of(reading, &mut nbbo, "sip_sizes", &SIP_SIZES).unwrap_or_default();
        round_lot_prices = nbbo.text(reading, "round_lot_prices").map(|(path, _)| beside.join(path));
        plant.self_help =
            nbbo.tables(reading, "self_help").into_iter().filter_map(|one| self_help(reading, one)).collect();
        nbbo.refuse_the_rest(reading);
    }
    plant.journal = top.table(reading, "journal").map(|journal| read_journal(reading, journal, beside));
    let has_source = top.has("source");
    let (source, relay) = aeron::read_source(reading, &mut top, beside, publisher).unzip();
    plant.relay = relay;
    let venues = top.tables(reading, "venue");
    if venues.is_empty() && !has_source {
        reading.wrong_at_end(
            "there are no venues; each is a [[venue]] with name, protocol and lines".to_owned(),
        );
    }
    if has_source {
        let theirs = "events of another plant have passed its lines, its self-help and its choice of symbols";
        for key in ["venue", "pair", "receive", "symbols"].into_iter().filter(|key| top.has(key)) {
            top.wrong_at(reading, key, &format!("'{key}' does not go with [source]: {theirs}"));
        }
        if !plant.self_help.is_empty() {
            top.wrong_at(reading, "nbbo", &format!("'self_help' does not go with [source]: {theirs}"));
        }
    }
    if let Some(first_too_many) = venues.get(usize::from(u16::MAX) + 1) {
        reading.wrong(first_too_many.span.clone(), "at most 65,536 venues are possible".to_owned());
    }
    let (mut names, mut taken) = (Vec::new(), Taken::default());
    plant.venues =
        venues.into_iter().filter_map(|venue| read_venue(reading, venue, &mut names, &mut taken)).collect();
    if let Some(journal) = &mut plant.journal {
        // Each packet that waits for the journal holds a buffer, and the sockets need buffers too.
        journal.queue = journal.queue.min(plant.receive.buffers / 2).max(64);
    }
    if let Some(section) = top.table(reading, "pair") {
        plant.pair = read_pair(reading, section, plant.journal.is_some(), &mut taken, beside);
    }
    let clients =
        top.table(reading, "clients").and_then(|clients| read_clients(reading, clients, &mut taken, beside));
    let web = top.table(reading, "web").map(|web| read_web(reading, web, &mut taken, beside));
    let interface = plant.receive.interface;
    let multicast = top
        .table(reading, "multicast")
        .and_then(|section| read_multicast(reading, section, interface, &mut taken, beside));
    let roll =
        top.table(reading, "roll").and_then(|roll| read_roll(reading, roll, plant.journal.as_ref(), beside));
    let questdb = read_questdb(reading, &mut top, beside);
    let nats = nats::read(reading, &mut top, beside);
    let kafka = kafka::read(reading, &mut top, beside, plant.journal.is_some());
    let aeron = aeron::read(reading, &mut top, beside, plant.journal.is_some());
    if let Some(replay) = aeron.as_ref().and_then(|aeron| aeron.replay) {
        taken.check(reading, (&top, "aeron"), ("tcp", replay), "'replay' of [aeron]");
    }
    let traces = traces::read(reading, &mut top, beside, Sampled::Packets);
    top.refuse_the_rest(reading);
    Config {
        plant,
        clients,
        web,
        multicast,
        roll,
        questdb,
        nats,
        kafka,
        aeron,
        traces,
        source,
        round_lot_prices,
    }
}

/// The names of the ways to receive packets.
const SOURCES: [&str; 4] = ["sockets", "packet", "xdp", "dpdk"];

fn read_source(reading: &mut Reading<'_>, receive: &mut Section<'_>) -> Source {
    let way = receive.choice(reading, "from", &SOURCES, |name| name).unwrap_or("sockets");
    let device = receive.text(reading, "device").map(|(device, _)| device);
    match (way, device) {
        ("sockets", None) => Source::Sockets,
        ("sockets", Some(_)) => {
            receive.wrong_at(
                reading,
                "device",
                "sockets have no device: the key is for 'from' other than \"sockets\"",
            );
            Source::Sockets
        }
        (_, None) => {
            receive.missing(reading, "device");
            Source::Sockets
        }
        ("packet", Some(device)) => Source::Packet { device },
        #[cfg(feature = "dpdk")]
        ("dpdk", Some(device)) => {
            let mut options = DpdkOptions::new(device);
            read_dpdk(reading, receive, &mut options);
            Source::Dpdk(options)
        }
        #[cfg(not(feature = "dpdk"))]
        ("dpdk", Some(_)) => {
            receive.wrong_at(reading, "from", "this program was built without the feature 'dpdk'");
            Source::Sockets
        }
        #[cfg(feature = "af-xdp")]
        (_, Some(device)) => {
            let mut options = XdpOptions::new(device);
            let queue = receive.integer(reading, "queue", 0..=65_535);
            options.queue = queue.map_or(options.queue, |(queue, _)| queue as u32);
            let frames = receive.integer(reading, "frames", 64..=MAX_XDP_FRAMES as usize);
            options.frames = frames.map_or(options.frames, |(frames, _)| frames as u32);
            if !options.frames.is_power_of_two() {
                receive.wrong_at(reading, "frames", "'frames' must be a power of two");
            }
            Source::Xdp(options)
        }
        #[cfg(not(feature = "af-xdp"))]
        (_, Some(_)) => {
            receive.wrong_at(reading, "from", "this program was built without the feature 'af-xdp'");
            Source::Sockets
        }
    }
}

fn read_journal(reading: &mut Reading<'_>, mut journal: Section<'_>, beside: &Path) -> JournalSetting {
    let folder = journal.required_text(reading, "folder").map_or_else(String::new, |(folder, _)| folder);
    let mut setting = JournalSetting::new(beside.join(folder));
    let segment = journal.integer(reading, "segment_mb", 1..=65_536);
    let keep = journal.number(reading, "keep_gb", 0.001..=1e6);
    setting.options = JournalOptions {
        segment_bytes: segment
            .map_or(setting.options.segment_bytes, |(megabytes, _)| (megabytes as u64) << 20),
        keep_bytes: keep.map(|(gigabytes, _)| (gigabytes * 1e9) as u64),
    };
    setting.sync = journal
        .parsed(reading, "sync", "\"never\", \"always\" or a time such as \"250ms\" or \"2s\"", |text| {
            match text {
                "never" => Some(SyncPolicy::Never),
                "always" => Some(SyncPolicy::Always),
                text => time(text).map(SyncPolicy::Every),
            }
        })
        .unwrap_or(setting.sync);
    setting.when_failing = one_of(reading, &mut journal, "when_failing", &FAILING).unwrap_or_default();
    let queue = journal.integer(reading, "queue", 64..=1 << 22);
    setting.queue = queue.map_or(setting.queue, |(queue, _)| queue);
    journal.renamed(reading, "snapshot_every", "checkpoint_every");
    setting.checkpoint_every = journal.time(reading, "checkpoint_every", AN_INSTANT..=A_DAY);
    journal.refuse_the_rest(reading);
    setting
}

/// The roles of a paired plant at its first start; `true` for the primary.
const ROLES: [(bool, &str); 2] = [(true, "primary"), (false, "standby")];

fn read_pair(
    reading: &mut Reading<'_>,
    mut section: Section<'_>,
    has_journal: bool,
    taken: &mut Taken,
    beside: &Path,
) -> Option<PairSetting> {
    for key in ["listen", "peer", "role"].into_iter().filter(|key| !section.has(key)) {
        section.missing(reading, key);
    }
    let listen = address(reading, &mut section, "listen");
    let peer = address(reading, &mut section, "peer");
    let role = one_of(reading, &mut section, "role", &ROLES);
    if let Some(listen) = listen {
        taken.check(reading, (&section, "listen"), ("tcp", listen), "[pair]");
    }
    if listen.is_some() && listen == peer {
        section.wrong_at(reading, "peer", "'peer' is where the other plant listens, and not this one");
    }
    if !has_journal {
        section.wrong_at(reading, "listen", "a pair needs a [journal]: it is what the two have in common");
    }
    let tls = tls::read(reading, &mut section, beside);
    if tls.as_ref().is_some_and(|files| files.client_authorities.is_none()) {
        section.missing(reading, "client_authorities");
    }
    let is_local = [listen, peer].iter().flatten().all(|address| address.ip().is_loopback());
    if !is_local && !section.has("certificate") {
        let problem = "a pair over a network needs 'certificate', 'private_key' and 'client_authorities': otherwise anybody there could be the other plant";
        section.wrong_at(reading, "peer", problem);
    }
    let waits = section.boolean(reading, "wait_for_standby");
    let longest = Duration::from_millis(1)..=Duration::from_secs(60);
    let standby_timeout = section.time(reading, "standby_timeout", longest);
    let takeover = Duration::from_millis(500)..=Duration::from_secs(3_600);
    let takeover_after = section.time(reading, "takeover_after", takeover);
    let buffer = section.time(reading, "buffer", Duration::from_secs(3)..=Duration::from_secs(3_600));
    let buffer_mb = section.integer(reading, "buffer_mb", 2..=1 << 20);
    section.refuse_the_rest(reading);
    let defaults = PairSetting::new(listen?, peer?, role?);
    Some(PairSetting {
        tls,
        waits: waits.unwrap_or(defaults.waits),
        standby_timeout: standby_timeout.unwrap_or(defaults.standby_timeout),
        takeover_after: takeover_after.unwrap_or(defaults.takeover_after),
        buffer: buffer.unwrap_or(defaults.buffer),
        buffer_bytes: buffer_mb.map_or(defaults.buffer_bytes, |(megabytes, _)| megabytes << 20),
        ..defaults
    })
}

/// The shortest and the longest time that a setting accepts.
const AN_INSTANT: Duration = Duration::from_nanos(1);
const A_DAY: Duration = Duration::from_secs(86_400);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns whether datagrams can be received at an address.
fn is_line(line: &SocketAddr) -> bool {
    let ip = line.ip();
    line.port() != 0 && (ip.is_multicast() || ip.is_loopback() || ip.is_unspecified())
}

fn read_venue(
    reading: &mut Reading<'_>,
    mut venue: Section<'_>,
    names: &mut Vec<String>,
    taken: &mut Taken,
) -> Option<VenueOptions> {
    let name = venue.required_text(reading, "name");
    if let Some((name, span)) = &name {
        if names.contains(name) {
            reading.wrong(span.clone(), format!("there is a venue '{name}' already"));
        }
        names.push(name.clone());
    }
    let protocol = venue.required_text(reading, "protocol");
    let application = protocol.as_ref().and_then(|(name, span)| {
        let found = Application::by_name(name);
        if found.is_none() {
            let known: Vec<&str> = tapeworks_feed::FEEDS.iter().map(|feed| feed.name).collect();
            reading.unknown(span.clone(), &format!("'{name}' for 'protocol'"), name, &known);
        }
        found
    });
    let feed =
        venue.parsed(reading, "publisher", "a feed such as \"XNAS.ITCH\", or DBN's number of one", publisher);
    let spec = application.map(Application::spec);
    // A feed with only one publisher uses it, whichever of its publishers is named. Channels shared by all publishers belong to the first.
    let only = spec.and_then(FeedSpec::only_publisher);
    let is_of_feed = |named: Publisher| spec.is_some_and(|spec| spec.has(named));
    let publisher = only.filter(|_| feed.is_none_or(is_of_feed)).or(feed);
    if publisher.is_none() && !venue.has("publisher") {
        venue.missing(reading, "publisher");
    }
    if let (Some(named), Some(application)) = (feed, application) {
        let spec = application.spec();
        // Custom publisher numbers belong to feeds that the market does not know.
        if named.feed().is_some() && !spec.publishers.iter().any(|one| one.publisher == named) {
            let name =
                |one: Publisher| one.feed().map_or_else(|| one.0.to_string(), |feed| feed.dataset.to_owned());
            let known: Vec<String> = spec.publishers.iter().map(|one| name(one.publisher)).collect();
            let problem =
                format!("'{}' is not published by {}, but by {}", spec.name, name(named), known.join(", "));
            venue.wrong_at(reading, "publisher", &problem);
        }
    }
    let what = "a multicast group with a port (unicast is received at 0.0.0.0 or loopback)";
    let lines =
        venue.each(reading, "lines", what, |text| text.parse().ok().filter(is_line)).unwrap_or_default();
    let named = name.as_ref().map_or("", |(name, _)| name.as_str()).to_owned();
    for line in &lines {
        taken.check(reading, (&venue, "lines"), ("udp", *line), &format!("a line of venue '{named}'"));
    }
    if !venue.has("lines") {
        venue.missing(reading, "lines");
    }
    if lines.len() > 2 {
        venue.wrong_at(reading, "lines", "'lines' are line A and, perhaps, line B: no more");
    }
    let retransmission = read_retransmission(reading, &mut venue, application, &named, taken);
    let snapshot = read_snapshot(reading, &mut venue, application, &named, taken);
    let mut arbiter = ArbiterOptions::default();
    let window = venue.time(reading, "reorder_window", Duration::ZERO..=Duration::from_secs(10));
    arbiter.reorder_window_ns = window.map_or(arbiter.reorder_window_ns, nanoseconds);
    let silence = venue.time(reading, "silence", Duration::ZERO..=A_DAY);
    arbiter.silence_ns = silence.map_or(arbiter.silence_ns, nanoseconds);
    let held = venue.integer(reading, "held_mb", 1..=65_536);
    arbiter.held_bytes = held.map_or(arbiter.held_bytes, |(megabytes, _)| megabytes << 20);
    let mut again = RetransmissionOptions::default();
    if let Some(mut section) = venue.table(reading, "requests") {
        let attempts = section.integer(reading, "attempts", 1..=1_000);
        again.attempts = attempts.map_or(again.attempts, |(attempts, _)| attempts as u32);
        let timeout = section.time(reading, "timeout", Duration::ZERO..=Duration::from_secs(60));
        again.timeout_ns = timeout.map_or(again.timeout_ns, nanoseconds);
        let limit = section.time(reading, "limit", Duration::ZERO..=Duration::from_secs(600));
        again.limit_ns = limit.map_or(again.limit_ns, nanoseconds);
        let most = section.integer(reading, "limit_messages", 1..=1 << 28);
        again.limit_messages = most.map_or(again.limit_messages, |(most, _)| most as u64);
        let count = section.integer(reading, "messages", 1..=65_534);
        again.messages_per_request = count.map_or(again.messages_per_request, |(count, _)| count as u16);
        let in_flight = section.integer(reading, "in_flight", 1..=1_024);
        again.requests_in_flight = in_flight.map_or(again.requests_in_flight, |(count, _)| count as u16);
        section.refuse_the_rest(reading);
    }
    // Without a server no request is sent.
    arbiter.retransmission = retransmission.map(|_| again);
    let mut snapshots = SnapshotOptions::default();
    let mut login = SnapshotLogin::default();
    if let Some(mut section) = venue.table(reading, "snapshots") {
        let attempts = section.integer(reading, "attempts", 1..=1_000);
        snapshots.attempts = attempts.map_or(snapshots.attempts, |(attempts, _)| attempts as u32);
        let timeout = section.time(reading, "timeout", Duration::ZERO..=Duration::from_secs(3_600));
        snapshots.timeout_ns = timeout.map_or(snapshots.timeout_ns, nanoseconds);
        let again = section.time(reading, "contradicted_every", Duration::ZERO..=A_DAY);
        snapshots.contradicted_every_ns = again.map_or(snapshots.contradicted_every_ns, nanoseconds);
        let mut word = |key, longest| login_text(reading, &mut section, key, longest);
        let protocol = application.map(|application| SnapshotProtocol::of(application.transport()));
        let limits = protocol.unwrap_or(SnapshotProtocol::Glimpse).login_limits();
        login = SnapshotLogin {
            sub_id: word("sub_id", limits.sub_id),
            user: word("user", limits.user),
            password: word("password", limits.password),
        };
        section.refuse_the_rest(reading);
    }
    let orders = venue.integer(reading, "orders", 1_024..=1 << 26);
    let orders = orders.map_or(ORDERS, |(orders, _)| orders);
    venue.refuse_the_rest(reading);
    Some(VenueOptions {
        name: name?.0,
        application: application?,
        publisher: publisher?,
        lines,
        retransmission,
        snapshot,
        login,
        arbiter,
        snapshots,
        orders,
    })
}

/// Reads an address, for requests by datagram, or a table, for requests over TCP whose answers arrive on a group.
fn read_retransmission(
    reading: &mut Reading<'_>,
    venue: &mut Section<'_>,
    application: Option<Application>,
    named: &str,
    taken: &mut Taken,
) -> Option<RetransmissionServer> {
    const KEY: &str = "retransmission";
    if !venue.is_table(KEY) {
        return address(reading, venue, KEY).map(RetransmissionServer::Udp);
    }
    let protocol = application.and_then(|application| RequestProtocol::of(application.transport()));
    if application.is_some() && protocol.is_none() {
        let problem = "only feeds of Cboe, NYSE, London and MEMX request over TCP: give an address";
        venue.wrong_at(reading, KEY, problem);
    }
    let what = format!("the answers to requests of venue '{named}'");
    let (address, group, login) = read_by_tcp(reading, (venue, KEY), protocol, &what, taken)?;
    Some(RetransmissionServer::Tcp { address, group, login })
}

/// Reads an address, for snapshots over the connection, or a table, for snapshots that arrive on a group.
fn read_snapshot(
    reading: &mut Reading<'_>,
    venue: &mut Section<'_>,
    application: Option<Application>,
    named: &str,
    taken: &mut Taken,
) -> Option<SnapshotServer> {
    const KEY: &str = "snapshot";
    if !venue.is_table(KEY) {
        return address(reading, venue, KEY).map(SnapshotServer::Tcp);
    }
    let transport = application.map(Application::transport);
    let by_group = transport.filter(|transport| SnapshotProtocol::by_group(*transport).is_some());
    if application.is_some() && by_group.is_none() {
        venue.wrong_at(
            reading,
            KEY,
            "only feeds of NYSE have snapshots that come to a group: give an address",
        );
    }
    let what = format!("the snapshots of venue '{named}'");
    let protocol = by_group.and_then(RequestProtocol::of);
    let (address, group, login) = read_by_tcp(reading, (venue, KEY), protocol, &what, taken)?;
    Some(SnapshotServer::Group { address, group: group?, login })
}

/// Reads a text of a login of at most `longest` characters. Keys that the venue's login does not have, with `longest` 0, stay unread, so
/// that they are reported as unknown.
fn login_text(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    key: &'static str,
    longest: usize,
) -> String {
    let text = if longest > 0 { section.text(reading, key) } else { None };
    let Some((text, span)) = text else { return String::new() };
    if text.len() > longest || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        reading.wrong(span, format!("'{key}' must have at most {longest} letters or digits"));
        return String::new();
    }
    text
}

/// Reads the table of a request server: its address, the group of its answers unless they use the connection, and the login.
fn read_by_tcp(
    reading: &mut Reading<'_>,
    (venue, key): (&mut Section<'_>, &'static str),
    protocol: Option<RequestProtocol>,
    what_comes: &str,
    taken: &mut Taken,
) -> Option<(SocketAddr, Option<SocketAddr>, RequestLogin)> {
    let mut section = venue.table(reading, key)?;
    let to_group = protocol.is_none_or(RequestProtocol::answers_to_group);
    for key in ["tcp", "group"].into_iter().take(1 + usize::from(to_group)) {
        if !section.has(key) {
            section.missing(reading, key);
        }
    }
    let tcp = address(reading, &mut section, "tcp");
    let what = "a multicast group with a port (unicast is received at 0.0.0.0 or loopback)";
    let group = match to_group {
        true => section.parsed(reading, "group", what, |text| text.parse().ok().filter(is_line)),
        false => None,
    };
    if let Some(group) = group {
        taken.check(reading, (&section, "group"), ("udp", group), what_comes);
    }
    let mut word = |key, longest| login_text(reading, &mut section, key, longest);
    let protocol = protocol?;
    let limits = protocol.login_limits();
    let [sub_id, user, password, source] = [
        ("sub_id", limits.sub_id),
        ("user", limits.user),
        ("password", limits.password),
        ("source", limits.source),
    ]
    .map(|(key, longest)| word(key, longest));
    let [product, channel] = ["product", "channel"].map(|key| {
        let number = limits.has_channel.then(|| section.integer(reading, key, 0..=255)).flatten();
        number.map_or(0, |(number, _)| number as u8)
    });
    let fields =
        LoginFields { sub_id: &sub_id, user: &user, password: &password, source: &source, product, channel };
    let login = RequestLogin::new(protocol, &fields);
    section.refuse_the_rest(reading);
    if to_group && group.is_none() {
        return None;
    }
    Some((tcp?, group, login?))
}

fn read_clients(
    reading: &mut Reading<'_>,
    mut clients: Section<'_>,
    taken: &mut Taken,
    beside: &Path,
) -> Option<ClientsSetting> {
    let listen = address(reading, &mut clients, "listen")
        .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], CLIENTS_PORT)));
    taken.check(reading, (&clients, "listen"), ("tcp", listen), "[clients]");
    let queue_bytes =
        clients.integer(reading, "queue_mb", 1..=65_536).map_or(16 << 20, |(megabytes, _)| megabytes << 20);
    let max_connections =
        clients.integer(reading, "max_connections", 1..=1_000_000).map_or(1_024, |(most, _)| most);
    clients.renamed(reading, "nap", "idle_sleep");
    let idle_sleep =
        clients.time(reading, "idle_sleep", Duration::ZERO..=A_DAY).unwrap_or(Duration::from_micros(50));
    let datasets: Vec<Dataset> = clients
        .tables(reading, "dataset")
        .into_iter()
        .filter_map(|mut dataset| {
            let name = dataset.required_text(reading, "name");
            if let Some((name, span)) = &name
                && (name.is_empty() || name.len() > 15)
            {
                reading.wrong(span.clone(), "'name' must have 1 to 15 letters".to_owned());
            }
            let publishers = dataset
                .each(
                    reading,
                    "publishers",
                    "a feed such as \"XNAS.ITCH\", or DBN's number of one",
                    publisher,
                )
                .unwrap_or_default();
            dataset.refuse_the_rest(reading);
            Some(Dataset { name: name?.0, publishers: publishers.iter().map(|feed| feed.0).collect() })
        })
        .collect();
    if datasets.is_empty() {
        clients.missing(reading, "dataset");
    }
    let keys: Vec<Key> = clients
        .tables(reading, "key")
        .into_iter()
        .filter_map(|mut section| {
            let name = section.required_text(reading, "name").map_or_else(String::new, |(name, _)| name);
            if !Secret::is_in(&section, Secret::KEY) {
                section.missing(reading, "key");
            }
            let check = |text: &str| Key::check(text).map_err(|error| error.to_string());
            let key = Secret::read(reading, &mut section, Secret::KEY, beside, check)
                .map(|secret| Key::of(&name, secret));
            let seen = section.each_checked(reading, "datasets", |text| {
                if datasets.iter().any(|dataset| dataset.name == text) {
                    Ok(text.to_owned())
                } else {
                    Err(format!("there is no dataset '{text}'"))
                }
            });
            let most = section.integer(reading, "max_connections", 1..=1_000_000);
            section.refuse_the_rest(reading);
            let mut key = key?;
            key.datasets = seen.unwrap_or_default();
            key.max_connections = most.map_or(Key::MAX_CONNECTIONS, |(most, _)| most);
            Some(key)
        })
        .collect();
    if keys.is_empty() && !clients.has("key") {
        clients.missing(reading, "key");
    }
    let tls = tls::read(reading, &mut clients, beside);
    clients.refuse_the_rest(reading);
    Some(ClientsSetting {
        tls,
        address: listen,
        keys: Keys::new(keys),
        datasets,
        queue_bytes,
        max_connections,
        idle_sleep,
    })
}

fn read_multicast(
    reading: &mut Reading<'_>,
    mut section: Section<'_>,
    interface: Option<Ipv4Addr>,
    taken: &mut Taken,
    beside: &Path,
) -> Option<MulticastSetting> {
    let group =
        section.parsed(reading, "group", "an IPv4 address with a port such as 239.192.100.1:34000", |text| {
            text.parse::<SocketAddrV4>().ok().filter(|group| group.port() != 0)
        });
    if !section.has("group") {
        section.missing(reading, "group");
    }
    let mut setting = MulticastSetting::new(group.unwrap_or(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1)));
    let out_of =
        section.parsed(reading, "interface", "the IPv4 address of an interface", |text| text.parse().ok());
    setting.interface = out_of.or(interface).unwrap_or(setting.interface);
    setting.hops = section.integer(reading, "hops", 0..=255).map_or(setting.hops, |(hops, _)| hops as u32);
    setting.retransmission = address(reading, &mut section, "retransmission");
    setting.soupbintcp = address(reading, &mut section, "soupbintcp");
    for (key, transport, wanted) in
        [("retransmission", "udp", setting.retransmission), ("soupbintcp", "tcp", setting.soupbintcp)]
    {
        if let Some(wanted) = wanted {
            let what = format!("'{key}' of [multicast]");
            taken.check(reading, (&section, key), (transport, wanted), &what);
        }
    }
    if let Some(group) = group
        && let Some(other) = taken.take("udp", SocketAddr::V4(group), "[multicast]")
    {
        section.wrong_at(
            reading,
            "group",
            &format!("{other} is received at {group}: the plant would receive its own packets"),
        );
    }
    setting.login = section.table(reading, "login").map(|mut login| {
        let mut word = |key: &'static str, longest: usize| {
            let Some((text, span)) = login.required_text(reading, key) else { return String::new() };
            if text.is_empty() || text.len() > longest || !text.is_ascii() {
                reading.wrong(span, format!("'{key}' must have 1 to {longest} letters or digits"));
            }
            text
        };
        let credentials = Credentials { user: word("user", 6), password: word("password", 10) };
        login.refuse_the_rest(reading);
        credentials
    });
    setting.tls = tls::read(reading, &mut section, beside);
    let schemas =
        section.each(reading, "schemas", "a schema such as \"mbo\" or \"cmbp-1\"", |text| text.parse().ok());
    setting.schemas = schemas.unwrap_or(setting.schemas);
    let time = section.time(reading, "symbols_every", AN_INSTANT..=A_DAY);
    setting.mappings_every = time.unwrap_or(setting.mappings_every);
    let store = section.integer(reading, "store_mb", 1..=65_536);
    setting.store_bytes = store.map_or(setting.store_bytes, |(megabytes, _)| megabytes << 20);
    let most = section.integer(reading, "max_connections", 1..=4_096);
    setting.max_connections = most.map_or(setting.max_connections, |(most, _)| most);
    section.refuse_the_rest(reading);
    group.map(|_| setting)
}

fn read_roll(
    reading: &mut Reading<'_>,
    mut roll: Section<'_>,
    journal: Option<&JournalSetting>,
    beside: &Path,
) -> Option<RollSetting> {
    let folder = roll.required_text(reading, "folder").map(|(folder, span)| (beside.join(folder), span));
    match (&folder, journal) {
        (Some((_, span)), None) => {
            let problem = "the daily roll makes files of journals: it needs a [journal]";
            reading.wrong(span.clone(), problem.to_owned());
        }
        (Some((folder, span)), Some(journal)) if *folder == journal.folder => {
            let problem =
                "the folder of the [journal], whose days have the same names: the roll needs one of its own";
            reading.wrong(span.clone(), problem.to_owned());
        }
        _ => {}
    }
    let schemas =
        roll.each(reading, "schemas", "a schema such as \"mbo\" or \"cmbp-1\"", |text| text.parse().ok());
    if !roll.has("schemas") {
        roll.missing(reading, "schemas");
    }
    let ending =
        roll.parsed(reading, "format", "\"dbn.zst\", \"parquet\" or another ending of files", |text| {
            is_ending(text).then(|| text.to_owned())
        });
    roll.refuse_the_rest(reading);
    let ending = ending.unwrap_or_else(|| "dbn.zst".to_owned());
    Some(RollSetting { folder: folder?.0, schemas: schemas?, ending })
}

fn read_questdb(reading: &mut Reading<'_>, top: &mut Section<'_>, beside: &Path) -> Option<QuestDbSetting> {
    let mut section = top.table(reading, "questdb")?;
    if cfg!(not(feature = "questdb")) {
        top.wrong_at(reading, "questdb", "this program was built without the feature 'questdb'");
    }
    let address = section.parsed(
        reading,
        "address",
        "a server's name or address with its port of HTTP such as 127.0.0.1:9000",
        host_and_port,
    );
    if !section.has("address") {
        section.missing(reading, "address");
    }
    let (host, port) = address.clone().unwrap_or_default();
    let mut setting = QuestDbSetting::new(host, port);
    let schemas = section
        .each(reading, "schemas", "a schema such as \"trades\" or \"cmbp-1\"", |text| text.parse().ok());
    let mut seen = Vec::new();
    // Each schema has a table; a duplicate would name the same table.
    setting.schemas = schemas.unwrap_or(setting.schemas);
    setting.schemas.retain(|schema| {
        !seen.contains(schema) && {
            seen.push(*schema);
            true
        }
    });
    let what = "at most 64 letters, digits and underscores";
    let prefix = section.parsed(reading, "table_prefix", what, |text| {
        let is_word = text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        (is_word && text.len() <= 64).then(|| text.to_owned())
    });
    setting.table_prefix = prefix.unwrap_or(setting.table_prefix);
    setting.authorities = section.text(reading, "authorities").map(|(path, _)| beside.join(path));
    let queue = section.integer(reading, "queue_mb", 1..=65_536);
    setting.queue_bytes = queue.map_or(setting.queue_bytes, |(megabytes, _)| megabytes << 20);
    let every = section.time(reading, "flush_every", AN_INSTANT..=A_DAY);
    setting.flush_every = every.unwrap_or(setting.flush_every);
    setting.send_again = section.boolean(reading, "send_again").unwrap_or(setting.send_again);
    let token = section.text(reading, "token").map(|(token, _)| QuestDbLogin::Token(token));
    let user = section.table(reading, "login").map(|mut login| {
        let mut word = |key| login.required_text(reading, key).map_or_else(String::new, |(word, _)| word);
        let user = QuestDbLogin::User { name: word("user"), password: word("password") };
        login.refuse_the_rest(reading);
        user
    });
    if token.is_some() && user.is_some() {
        section.wrong_at(reading, "token", "there is a 'login' already: one of both is enough");
    }
    setting.login = user.or(token);
    section.refuse_the_rest(reading);
    address.map(|_| setting)
}

fn read_web(reading: &mut Reading<'_>, mut web: Section<'_>, taken: &mut Taken, beside: &Path) -> WebSetting {
    let listen =
        address(reading, &mut web, "listen").unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], WEB_PORT)));
    taken.check(reading, (&web, "listen"), ("tcp", listen), "[web]");
    let is_local = listen.ip().is_loopback();
    if !is_local && !Secret::is_in(&web, Secret::TOKEN) {
        web.wrong_at(reading, "listen", "an address beyond this machine needs a 'token'");
    }
    let token =
        Secret::read(reading, &mut web, Secret::TOKEN, beside, move |text| check_token(text, is_local));
    let stream = web.boolean(reading, "stream").unwrap_or_default();
    let tls = tls::read(reading, &mut web, beside);
    web.refuse_the_rest(reading);
    WebSetting { address: listen, token, stream, tls }
}

#[cfg(test)]
mod tests;
