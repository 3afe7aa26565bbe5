//! The live plant: delays from the intended send time to the client, beside a bare echo; the engine alone; bursts; many clients; outages.
//!
//! # What is measured
//! A simulated venue sends at a stated rate from a fixed anchor (open loop: what is late is caught up, not left out), and writes into
//! each message when it was meant to be sent. A client's delay is the time at which it has the record less that time, so it has the
//! lateness of the sender in it; the floor has it too. All runs on one machine: sender, plant and client share its cores, and with
//! fewer cores than busy threads they wait for each other; ratios within a run say more than the figures.

mod clients;
mod cpu;
mod engine;
mod outage;
mod rates;
mod warm;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use tapeworks_feed::Application;
use tapeworks_feed::live::SnapshotOptions;
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_generator::VenueKind;
use tapeworks_market::Publisher;
use tapeworks_outputs::clients::distributor::Dataset;
use tapeworks_outputs::subscriber::{Subscriber, SubscriberOptions};
use tapeworks_plant::{PlantOptions, VenueOptions};
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_service::config::{ClientsSetting, Config};
use tapeworks_venues::{self as venues, Venue, Wait};

use crate::Options;

const KEY: &str = "db-TapeworksDemoKey0000000000000";
const DATASET: &str = "TAPEWORKS.DEMO";

pub fn run(options: &Options) {
    let part = options.part.as_deref();
    let wants = |name| part.is_none_or(|part| part == name);
    if wants("engine") {
        engine::run(options);
    }
    if wants("cpu") {
        cpu::run();
    }
    if wants("warm") {
        warm::run();
    }
    if wants("rates") {
        rates::run(options);
    }
    if wants("burst") {
        rates::burst();
    }
    if wants("clients") {
        clients::run();
    }
    if wants("outage") {
        outage::run();
    }
    // Twenty minutes: only on request.
    if part == Some("soak") {
        clients::soak();
    }
}

/// A folder that goes with its value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// In memory where the system has such folders: the benchmark does not measure a disk.
    fn in_memory() -> Self {
        let memory = PathBuf::from("/dev/shm");
        Self::within(if memory.is_dir() { memory } else { std::env::temp_dir() })
    }

    pub(crate) fn on_disk() -> Self {
        Self::within(std::env::temp_dir())
    }

    fn within(parent: PathBuf) -> Self {
        let path = parent.join(format!("tapeworks-bench-{}", std::process::id()));
        let _not_there = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid")
}

/// An address of this machine that is free, below the ports that the system gives out.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)) + 97 * std::process::id();
        let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + (number % 20_000) as u16));
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// The destination of a line: another group and port for each run.
fn line() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(239, 197, 1, 1), free_address().port())
}

/// One Nasdaq venue of 1,000 symbols on line A, without faults.
fn venue(line: SocketAddrV4, rate: u64, messages: u64) -> venues::Config {
    let mut config = venues::Config::new(vec![Venue::new("Nasdaq", VenueKind::Nasdaq, vec![line])]);
    config.rate = rate;
    config.messages = Some(messages);
    config.symbols = 1_000;
    config.wait = Wait::Spin;
    config.linger_ns = 100_000_000;
    config
}

/// A plant for it, with a server of clients.
fn plant(line: SocketAddrV4) -> Config {
    let venue = VenueOptions {
        orders: 1 << 20,
        name: "Nasdaq".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        lines: vec![SocketAddr::V4(line)],
        retransmission: None,
        snapshot: None,
        login: Default::default(),
        arbiter: ArbiterOptions::default(),
        snapshots: SnapshotOptions::default(),
    };
    let mut options = PlantOptions { venues: vec![venue], ..PlantOptions::default() };
    options.receive.interface = Some(Ipv4Addr::LOCALHOST);
    let mut key = Key::new("bench", KEY).expect("a key");
    key.max_connections = 1_000;
    let clients = ClientsSetting {
        address: free_address(),
        keys: Keys::new(vec![key]),
        datasets: vec![Dataset { name: DATASET.to_owned(), publishers: Vec::new() }],
        queue_bytes: 64 << 20,
        max_connections: 1_000,
        idle_sleep: std::time::Duration::from_micros(20),
        tls: None,
    };
    Config { plant: options, clients: Some(clients), ..Config::default() }
}

fn subscribe(address: SocketAddr, schema: &str) -> Subscriber {
    Subscriber::connect(&SubscriberOptions {
        address,
        key: KEY.to_owned(),
        dataset: DATASET.to_owned(),
        schemas: vec![schema.to_owned()],
        symbols: Vec::new(),
        snapshot: false,
        start: None,
        slow_reader: None,
        ts_out: false,
        timeout: Some(std::time::Duration::from_millis(500)),
        patience: std::time::Duration::from_secs(5),
    })
    .expect("the plant takes clients")
}

/// One line of a table of delays, in us; `floor` is the median that it is compared with.
fn row(name: &str, delays: &Histogram<u64>, floor: Option<f64>, note: &str) {
    let us = |quantile| delays.value_at_quantile(quantile) as f64 / 1e3;
    let ratio = floor.map_or_else(String::new, |floor| format!("{:.2}x", us(0.5) / floor));
    println!(
        "  {name:<44} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>10.1}  {ratio:>7}  {note}",
        us(0.5),
        us(0.9),
        us(0.99),
        us(0.999),
        delays.max() as f64 / 1e3,
    );
}

fn heading(title: &str) {
    println!("{title}");
    println!(
        "  {:<44} {:>9} {:>9} {:>9} {:>9} {:>10}  {:>7}",
        "us", "p50", "p90", "p99", "p99.9", "max", "p50 to floor"
    );
}
