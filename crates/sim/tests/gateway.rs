//! A gateway, its exchange and FIX clients in the simulator: processes are killed and machines lose power at any moment, connections break
//! and stall, clocks are set, disks are full and fail. No order is lost or doubled, and each client gets each fill once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code)]
mod fix_traders;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fix_traders::{Market, NAMES};
use tapeworks_exchange::orders::Instrument;
use tapeworks_gateway::config::{AnyParts, Config as GatewayConfig};
use tapeworks_gateway::{Gateway, Opened, open};
use tapeworks_runtime::world::World;
use tapeworks_session::native::User;
use tapeworks_sim::{
    DiskFaults, Ended, RunOptions, Schedule, Simulated, TcpFaults, add_host, below, has_ended, kill, now_ns,
    panic_of, power_off, power_on, run, set_clock, set_disk_faults, set_tcp, start,
};
use tapeworks_venues::orders::OrderVenues;
use tapeworks_venues::{Config, OrderVenue, StoreSetting};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::{LSE, Variant};

type W = Simulated;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const VARIANT: Variant =
    Variant { partitions: 2, throttle_per_second: 0, heartbeat_interval_ns: 100_000_000, ..LSE };
const E8: i64 = 100_000_000;

fn exchange() -> OrderVenue {
    let mut venue = OrderVenue::new("simulated");
    let instrument = |id, symbol: &str, partition| Instrument {
        id,
        symbol: Ascii::new(symbol).unwrap(),
        partition,
        tick_e8: E8,
        lowest_price_e8: E8,
        highest_price_e8: 1_000 * E8,
        most_quantity: 1_000,
    };
    venue.options.instruments = vec![instrument(1, "AAPL", 1), instrument(2, "MSFT", 2)];
    venue.round_lots = vec![1, 1];
    venue.options.native.variant = VARIANT;
    venue.options.most_orders = 10_000;
    venue.options.native_users =
        vec![User { cancels_on_disconnect: false, ..User::new("TW01", "password", &VARIANT) }];
    venue.real_time = SocketAddr::from((EXCHANGE, 7_001));
    venue.recovery = SocketAddr::from((EXCHANGE, 7_002));
    venue.store = Some(StoreSetting { folder: PathBuf::from("/store"), most_bytes: 64 << 20, syncs: true });
    venue
}

fn gateway_config() -> GatewayConfig {
    let clients = NAMES.map(|name| format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\n")).concat();
    let text = format!(
        r#"
listen = "{GATEWAY}:9878"
[store]
folder = "/gateway"
segment_mb = 1
sync = "always"
[venue]
protocol = "millennium"
real_time = "{EXCHANGE}:7001"
recovery = "{EXCHANGE}:7002"
user = "TW01"
password = "password"
partitions = 2
throttle_per_second = 0
heartbeat = "100ms"
first_reconnect = "10ms"
longest_reconnect = "100ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[instrument]]
symbol = "MSFT"
id = 2
partition = 2
[capacity]
orders = 20_000
[client_defaults]
may_sell_short = true
sending_time_tolerance = "24h"
{clients}"#
    );
    GatewayConfig::parse("gateway.toml", &text, Path::new(".")).expect("it is sound")
}

/// What the processes share.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    violations: Mutex<Vec<String>>,
    executions: Mutex<usize>,
    trades: Mutex<usize>,
    /// Sessions with the exchange that ended, of the gateway that runs.
    venue_ends: Mutex<u64>,
    /// Requests that starts of the gateway found in the store.
    restored: Mutex<usize>,
}

impl Shared {
    fn violation(&self, text: String) {
        self.violations.lock().unwrap().push(text);
    }
}

fn serve(shared: &Shared) {
    let config = Config { orders: vec![exchange()], ..Config::new(Vec::new()) };
    match OrderVenues::<W>::start_in(&config, None) {
        Ok(exchange) => {
            while !exchange.has_failed() {
                W::sleep(Duration::from_millis(10));
            }
            shared.violation(format!("the exchange ended: {:?}", exchange.stop().map(|_| ())));
        }
        Err(error) => shared.violation(format!("the exchange does not start: {error}")),
    }
}

fn translate(shared: &Shared) {
    let (config, now_ns) = (gateway_config(), W::time_of_day().0);
    let Ok(AnyParts::Millennium(parts)) = config.parts(now_ns) else {
        return shared.violation("the configuration is of another venue".to_owned());
    };
    let opened = open::<_, W>(&config.store, config.journal, config.sync, parts, now_ns);
    let Opened { core, ledger, restored } = match opened {
        Ok(opened) => opened,
        Err(error) => return shared.violation(format!("the store cannot be used: {error}")),
    };
    *shared.restored.lock().unwrap() += restored.requests as usize;
    match Gateway::<W>::start(config.host, core, ledger, Arc::new(|_| {}), None) {
        Ok(gateway) => {
            while !gateway.is_finished() {
                *shared.venue_ends.lock().unwrap() = gateway.status().counters.venue_ends;
                W::sleep(Duration::from_millis(10));
            }
            shared.violation(format!("the gateway ended: {:?}", gateway.stop()));
        }
        Err(error) => shared.violation(format!("the gateway does not start: {error}")),
    }
}

fn trade(shared: &Shared) {
    let address = SocketAddr::from((GATEWAY, 9_878));
    let mut market = Market::<W, _>::new(below);
    while !shared.is_over.load(Ordering::Acquire) {
        market.connect(address);
        market.act();
        market.turn(Duration::from_micros(500));
        W::sleep(Duration::from_micros(200));
    }
    if let Err(problem) = market.settle(address, Duration::from_secs(60)) {
        shared.violation(problem);
    }
    for fault in market.faults() {
        shared.violation(fault);
    }
    *shared.executions.lock().unwrap() = market.traders.iter().map(|trader| trader.executions.len()).sum();
    *shared.trades.lock().unwrap() = market.trade_count();
}

fn simulate(seed: u64) -> (Ended, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let all = Arc::clone(&shared);
    let options = RunOptions {
        seed,
        epoch_ns: 1_763_130_600_000_000_000,
        schedule: Schedule::default(),
        keeps_trace: false,
    };
    let ended = run(&options, move || {
        let machines = [add_host("exchange", EXCHANGE), add_host("gateway", GATEWAY)];
        let clients = add_host("clients", Ipv4Addr::new(10, 0, 0, 4));
        let begin = |which: usize| {
            let shared = Arc::clone(&all);
            let work = if which == 0 { serve } else { translate };
            start(machines[which], ["exchange", "gateway"][which], move || work(&shared))
        };
        let trading = Arc::clone(&all);
        let mut processes = [begin(0), begin(1)];
        let clients = start(clients, "clients", move || trade(&trading));
        for _ in 0..10 {
            W::sleep(Duration::from_micros(20_000 + u64::from(below(300_000))));
            let fault = below(8);
            match fault {
                0..4 => {
                    // The exchange, the gateway, both.
                    let places = [&[0][..], &[1], &[0, 1]][below(3) as usize];
                    for place in places {
                        if below(2) == 0 {
                            kill(processes[*place]);
                        } else {
                            power_off(machines[*place]);
                        }
                    }
                    W::sleep(Duration::from_millis(1 + u64::from(below(50))));
                    for place in places {
                        power_on(machines[*place]);
                        processes[*place] = begin(*place);
                    }
                }
                4 => {
                    // Pieces of a few bytes, and connections that break.
                    let reset_per_million = [0, 5_000][below(2) as usize];
                    let piece = 1 + below(100);
                    set_tcp(TcpFaults { piece, reset_per_million, ..TcpFaults::default() });
                    W::sleep(Duration::from_millis(1 + u64::from(below(200))));
                    set_tcp(TcpFaults::default());
                }
                5 => {
                    let out_until_ns = now_ns() + u64::from(below(800)) * 1_000_000;
                    set_tcp(TcpFaults { out_until_ns, ..TcpFaults::default() });
                }
                6 => {
                    let ahead_ns = i64::from(below(7_200)) - 3_600;
                    set_clock(machines[1], ahead_ns * 1_000_000_000, 0);
                }
                _ => {
                    // A disk that is full, or fails at times.
                    let failed_writes_per_million = [0, 500_000][below(2) as usize];
                    let capacity = if failed_writes_per_million == 0 { 0 } else { u64::MAX };
                    set_disk_faults(
                        machines[1],
                        DiskFaults { capacity, failed_writes_per_million, ..DiskFaults::default() },
                    );
                    W::sleep(Duration::from_millis(1 + u64::from(below(500))));
                    set_disk_faults(machines[1], DiskFaults::default());
                }
            }
        }
        set_tcp(TcpFaults::default());
        W::sleep(Duration::from_millis(300));
        all.is_over.store(true, Ordering::Release);
        while !has_ended(clients) {
            W::sleep(Duration::from_millis(10));
        }
        // Without orders the session with the exchange lives by heartbeats.
        W::sleep(Duration::from_secs(1));
        let before = *all.venue_ends.lock().unwrap();
        W::sleep(Duration::from_secs(3));
        let ends = *all.venue_ends.lock().unwrap() - before;
        if ends > 0 {
            all.violation(format!("{ends} idle sessions with the exchange ended within 3 s"));
        }
        for process in processes.into_iter().chain([clients]) {
            if let Some(panic) = panic_of(process) {
                all.violation(panic);
            }
        }
    });
    (ended, shared)
}

#[test]
fn a_gateway_loses_and_doubles_nothing_through_any_fault() {
    let first = std::env::var("TAPEWORKS_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("TAPEWORKS_SEEDS").ok().and_then(|count| count.parse().ok());
    let (first, count): (u64, usize) =
        (first.unwrap_or(1), count.unwrap_or(if first.is_some() { 1 } else { 6 }));
    let (mut executions, mut trades, mut restored) = (0, 0, 0);
    for seed in first..first + count as u64 {
        let (ended, shared) = simulate(seed);
        let violations = shared.violations.lock().unwrap();
        assert!(violations.is_empty() && !ended.is_stuck, "TAPEWORKS_SEED={seed}: {violations:?} {ended:?}");
        executions += *shared.executions.lock().unwrap();
        trades += *shared.trades.lock().unwrap();
        restored += *shared.restored.lock().unwrap();
    }
    println!("{count} seeds: {executions} reports, {trades} trades, {restored} requests restored");
    assert!(executions > 100 * count && trades > 20 * count && restored > 20 * count, "too little happened");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(simulate(77).0, simulate(77).0);
}
