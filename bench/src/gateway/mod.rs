//! The order gateway: round trips beside a bare echo through one hop, load, idle sessions, the FIX codec, the dispatchers
//! of its machines.
//!
//! ```text
//! FIX client ─▶ gateway ─▶ simulated exchange          client ─▶ forwarder ─▶ echo
//!            ◀─         ◀─                                    ◀─           ◀─
//! ```
//!
//! All of them are threads of one process on one machine, joined by TCP over loopback. The gateway has the checks and the store that it
//! ships with; the exchange has no store. Clients read and write sockets themselves, so that no client of ours is measured.

mod codec;
mod echo;
mod fix;
mod idle;
mod load;
mod machines;
mod round_trip;
mod threads;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_gateway::config::{AnyParts, Config};
use tapeworks_gateway::{Gateway, Notice, Opened, Parts, VenueSession, open};
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::world::{System, World as _};
use tapeworks_venues::Config as Venues;
use tapeworks_venues::orders::OrderVenues;

use crate::Options;
use crate::plant::Folder;

/// What the clients trade.
const SYMBOLS: [&str; 4] = ["AAPL", "MSFT", "VOD", "TSLA"];

/// Returns whether all went as it must.
pub fn run(options: &Options) -> bool {
    let mut is_sound = true;
    let part = options.part.as_deref();
    let wants = |name| part.is_none_or(|part| part == name);
    if wants("round-trip") {
        round_trip::run(options);
    }
    // The minute alone is a part of the load.
    if wants("load") || part == Some("minute") {
        is_sound &= load::run(options, part == Some("minute"));
    }
    if wants("idle") {
        idle::run();
    }
    if wants("codec") {
        codec::run(options.rounds);
    }
    if wants("machines") {
        machines::run(options);
    }
    is_sound
}

/// How a gateway of a run is set.
#[derive(Clone, Copy)]
struct Setting {
    clients: usize,
    /// `wait` of the configuration.
    wait: &'static str,
    /// `sync` of the store.
    sync: &'static str,
    /// Orders and requests that it knows at a time.
    orders: u32,
}

impl Setting {
    const fn new(clients: usize) -> Self {
        Self { clients, wait: "sleep", sync: "100ms", orders: 65_536 }
    }
}

/// What the gateway and the exchange would write to their logs, each line with the seconds since the start.
#[derive(Clone)]
struct Log {
    start: Instant,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Log {
    fn new() -> Self {
        Self { start: Instant::now(), lines: Arc::default() }
    }

    fn add(&self, who: &str, text: &str) {
        let line = (self.start.elapsed(), format!("{who}: {text}"));
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// A log line of each session that `who` ends or refuses.
    fn of_refusals(&self, who: &'static str) -> OnRefusal {
        let log = self.clone();
        Arc::new(move |refused| {
            log.add(who, &format!("{} {}: {}", refused.what, refused.address, refused.reason))
        })
    }

    /// The lines since `from`.
    fn since(&self, from: Instant) -> Vec<String> {
        let after = from.saturating_duration_since(self.start);
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.iter().filter(|(time, _)| *time >= after);
        lines.map(|(time, text)| format!("{:.3} s: {text}", (*time - after).as_secs_f64())).collect()
    }
}

/// An exchange, and a gateway to it. Dropping ends both.
struct Market {
    log: Log,
    gateway: Gateway,
    _exchange: OrderVenues,
    _folder: Folder,
}

impl Market {
    fn start(setting: Setting) -> Self {
        let folder = Folder::on_disk();
        let log = Log::new();
        let exchange = exchange(&log);
        let addresses = &exchange.addresses()[0];
        let text = gateway_config(setting, addresses.real_time, addresses.recovery, &folder.0);
        let config = Config::parse("bench", &text, Path::new(".")).expect("the configuration is sound");
        let parts = config.parts(System::time_of_day().0).expect("the configuration is sound");
        let gateway = match parts {
            AnyParts::Millennium(parts) => start(&config, parts, &log),
            AnyParts::Ouch(parts) => start(&config, parts, &log),
        };
        while !gateway.status().takes_orders {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { log, gateway, _exchange: exchange, _folder: folder }
    }
}

/// The CompID of a client.
fn comp_id(index: usize) -> String {
    format!("CLIENT{index:04}")
}

fn start<S: VenueSession + Send + 'static>(config: &Config, parts: Parts<S>, log: &Log) -> Gateway {
    let now_ns = System::time_of_day().0;
    let Opened { core, ledger, .. } =
        open::<S, System>(&config.store, config.journal, config.sync, parts, now_ns).expect("a new store");
    let notices = log.clone();
    let on_notice = Box::new(move |notice: Notice| notices.add("gateway", &notice.text));
    let refusals = Some(log.of_refusals("gateway"));
    Gateway::start(config.host.clone(), core, ledger, on_notice, refusals).expect("the gateway starts")
}

fn exchange(log: &Log) -> OrderVenues {
    let mut text = String::from(
        "[[orders]]\nname = \"Exchange\"\nreal_time = \"127.0.0.1:0\"\nrecovery = \"127.0.0.1:0\"\npartitions = 2\n\
         throttle_per_second = 0\n[[orders.user]]\nname = \"TW01\"\npassword = \"password\"\n",
    );
    for (index, symbol) in SYMBOLS.iter().enumerate() {
        let (id, partition) = (index + 1, index % 2 + 1);
        let _infallible =
            write!(text, "[[orders.symbol]]\nname = \"{symbol}\"\nid = {id}\npartition = {partition}\n");
    }
    let config = Venues::parse("bench", &text).expect("the configuration is sound");
    OrderVenues::start(&config, Some(log.of_refusals("exchange"))).expect("the exchange starts")
}

fn gateway_config(setting: Setting, real_time: SocketAddr, recovery: SocketAddr, folder: &Path) -> String {
    let Setting { clients, wait, sync, orders } = setting;
    let mut text = format!(
        "listen = \"127.0.0.1:0\"\nwait = \"{wait}\"\n[store]\nfolder = \"{}\"\nsync = \"{sync}\"\n\
         [capacity]\norders = {orders}\n\
         [venue]\nprotocol = \"millennium\"\nreal_time = \"{real_time}\"\nrecovery = \"{recovery}\"\nuser = \"TW01\"\n\
         password = \"password\"\npartitions = 2\nthrottle_per_second = 0\nfirst_reconnect = \"50ms\"\n",
        folder.join("store").display(),
    );
    for (index, symbol) in SYMBOLS.iter().enumerate() {
        let (id, partition) = (index + 1, index % 2 + 1);
        let _infallible =
            write!(text, "[[instrument]]\nsymbol = \"{symbol}\"\nid = {id}\npartition = {partition}\n");
    }
    text.push_str("[client_defaults]\nmost_quantity = 1_000_000\norders_per_second = 1_000_000\n");
    for index in 0..clients {
        let name = comp_id(index);
        let _infallible = write!(text, "[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\n");
    }
    text
}
