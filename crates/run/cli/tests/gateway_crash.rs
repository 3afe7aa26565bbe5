//! A gateway and its exchange, killed at any moment under load: no order is lost or doubled, each client gets each fill once, the numbers
//! of both sides agree, and what the clients know is what the gateway knows.
//!
//! `TAPEWORKS_KILLS=100` kills as often; the default is 6. `TAPEWORKS_SEED` gives the seed of the moments and of the orders; it is printed.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use support::orders::{Addresses, exchange_config, gateway_config};
use support::{Folder, command, run, stderr, stdout};
use tapeworks_gateway::testing::{Market, Trader};
use tapeworks_random::Random;
use tapeworks_runtime::world::System;

const PATIENCE: Duration = Duration::from_secs(60);

/// What the processes have logged, in the order in which it came; it is printed if the test fails.
#[derive(Clone)]
struct Logs {
    began: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

/// The newest lines that are printed.
const MOST_LINES: usize = 2_000;

impl Logs {
    fn new() -> Self {
        Self { began: Instant::now(), lines: Arc::default() }
    }

    fn push(&self, who: &str, line: &str) {
        let line = format!("{:10.3} s {who}: {}", self.began.elapsed().as_secs_f64(), line.trim_end());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// Prints the logs, and what the gateway's store says of the last order without an answer, when a test panics.
struct OnFailure {
    logs: Logs,
    store: String,
}

impl Drop for OnFailure {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let lines = self.logs.lines.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("---- logs of exchange and gateway, the newest {MOST_LINES} lines ----");
        lines.iter().skip(lines.len().saturating_sub(MOST_LINES)).for_each(|line| eprintln!("{line}"));
        let id = lines.iter().rev().find_map(|line| line.split_once(UNANSWERED)?.1.split('"').nth(1));
        if let Some(id) = id {
            eprintln!("---- entries of the gateway's store with {id} ----");
            let inspected = run(&["gateway", "store", "inspect", &self.store, "--entries"]);
            stdout(&inspected).lines().filter(|line| line.contains(id)).for_each(|line| eprintln!("{line}"));
        }
    }
}

/// In the error of [`Market::settle`], before the order's ClOrdID.
const UNANSWERED: &str = "an order without an answer: ";

/// A running process; killed when it is dropped.
struct Process(Child);

impl Process {
    /// Starts it, and waits until its log has one of these texts.
    fn start(arguments: &[&str], texts: &[&str], logs: &Logs) -> Self {
        let logs = logs.clone();
        let mut child = command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !texts.iter().any(|text| said.contains(text)) {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "{arguments:?} ended: {said}");
            logs.push(arguments[0], &line);
            said.push_str(&line);
        }
        let who = arguments[0].to_owned();
        // A pipe that is not read blocks its writer.
        std::thread::spawn(move || {
            log.lines().map_while(Result::ok).for_each(|line| logs.push(&who, &line));
            logs.push(&who, "(ended)");
        });
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn killed_gateways_and_native_exchanges_lose_and_double_nothing() {
    kill_and_compare("native", 50);
}

#[test]
fn killed_gateways_and_ouch_exchanges_lose_and_double_nothing() {
    kill_and_compare("ouch", 54);
}

fn kill_and_compare(protocol: &str, first_port: u32) {
    let kills = number_from("TAPEWORKS_KILLS").unwrap_or(6);
    let seed = number_from("TAPEWORKS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{protocol}: TAPEWORKS_SEED={seed} TAPEWORKS_KILLS={kills}");
    let folder = Folder::new(&format!("gateway-crash-{protocol}"));
    let addresses = Addresses::free(first_port);
    let clients = addresses.clients;
    let store = format!("store = \"{}\"", folder.path("exchange-store"));
    let exchange_toml = folder.write("orders.toml", exchange_config(&addresses, &store, "").as_bytes());
    let gateway_toml = gateway_config(&addresses, protocol, &folder.path("gateway-store"), "");
    let gateway_toml = folder.write("gateway.toml", gateway_toml.as_bytes());
    let logs = Logs::new();
    let _printed = OnFailure { logs: logs.clone(), store: folder.path("gateway-store") };
    let exchange = || {
        let texts = ["restored from", "the store is empty"];
        Process::start(&["exchange", "serve", &exchange_toml], &texts, &logs)
    };
    let gateway = || Process::start(&["gateway", &gateway_toml], &["FIX clients are served"], &logs);
    let mut random = Random::new(seed);
    let mut market = Market::<System, _>::new(move |bound| random.below(bound));
    let (mut venue, mut ours) = (Some(exchange()), Some(gateway()));
    for kill in 0..kills {
        let life = Duration::from_micros(100_000 + u64::from((market.random)(400_000)));
        let began = Instant::now();
        while began.elapsed() < life {
            market.connect(clients);
            (0..4).for_each(|_| market.act());
            market.turn(Duration::ZERO);
        }
        logs.push("test", &format!("kill {kill}"));
        // The gateway, the exchange, both.
        if kill % 3 != 1 {
            ours = None;
        }
        if kill % 3 != 0 {
            venue = None;
        }
        // What was sent before is read.
        market.turn(Duration::from_millis(5));
        venue = venue.or_else(|| Some(exchange()));
        ours = ours.or_else(|| Some(gateway()));
    }
    if let Err(problem) = market.settle(clients, PATIENCE) {
        logs.push("test", &problem);
        panic!("{problem}");
    }
    assert_eq!(market.faults(), Vec::<String>::new());
    assert!(market.trade_count() > 10, "only {} trades", market.trade_count());
    drop(ours);
    drop(venue);
    stored(&market, &gateway_toml, &folder);
}

/// The gateway's store has the same, and puts out the same bytes once more.
fn stored<R: FnMut(u32) -> u32>(market: &Market<System, R>, config: &str, folder: &Folder) {
    let inspected = run(&["gateway", "store", "inspect", &folder.path("gateway-store"), "--json"]);
    let found: serde_json::Value = serde_json::from_str(&stdout(&inspected)).unwrap();
    for (trader, client) in market.traders.iter().zip(found["clients"].as_array().unwrap()) {
        let (incoming, outgoing) = trader.client.as_ref().unwrap().numbers();
        assert_eq!(client["next_outgoing"], incoming, "{}: to it", trader.name);
        assert_eq!(client["next_incoming"], outgoing, "{}: from it", trader.name);
    }
    let replayed = run(&["gateway", "store", "replay", config, "--json"]);
    let found: serde_json::Value = serde_json::from_str(&stdout(&replayed)).unwrap();
    assert_eq!(replayed.status.code(), Some(0), "{}{}", stdout(&replayed), stderr(&replayed));
    let open: usize = market.traders.iter().map(Trader::open).sum();
    assert_eq!(found["open_orders"], open, "working orders");
    assert!(found["to_clients"].as_u64() > Some(100) && found["to_venue"].as_u64() > Some(100), "{found}");
}
