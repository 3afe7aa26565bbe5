//! A gateway, its exchange and FIX clients: processes are killed and machines lose power at any moment, connections break and stall,
//! clocks are set, disks are full and fail. No order is lost or doubled, and each client gets each fill once.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapeworks_exchange::orders::Instrument;
use tapeworks_exchange::random::Random;
use tapeworks_gateway::config::{AnyParts, Config as GatewayConfig};
use tapeworks_gateway::testing::{Market, NAMES};
use tapeworks_gateway::{Gateway, Opened, open};
use tapeworks_runtime::world::World;
use tapeworks_session::native::User;
use tapeworks_venues::orders::OrderVenues;
use tapeworks_venues::{Config, OrderVenue, StoreSetting};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::{LSE, Variant};

use crate::kernel::disk::{DiskFaults, set_disk_faults};
use crate::kernel::network::{TcpFaults, set_tcp};
use crate::kernel::{
    Ended, HostId, ProcessId, RunOptions, Schedule, Simulated, add_host, below, has_ended, kill, note,
    now_ns, panic_of, power_off, power_on, run, set_clock, start,
};

type W = Simulated;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const VARIANT: Variant =
    Variant { partitions: 2, throttle_per_second: 0, heartbeat_interval_ns: 100_000_000, ..LSE };
const E8: i64 = 100_000_000;

/// What differs from seed to seed but for the faults.
#[derive(Clone, Copy, Default, Debug)]
struct Drawn {
    /// The gateway sends so many requests per second; 0: as fast as it can.
    throttle: u64,
    /// Requests that wait for the throttle.
    queue: u64,
    /// Missed reports that the exchange sends for each request.
    reports_per_request: u32,
}

impl Drawn {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            throttle: [0, 100, 1_000][random.below(3) as usize],
            queue: [1, 20, 1_000][random.below(3) as usize],
            reports_per_request: [1, 10, 1_000][random.below(3) as usize],
        }
    }
}

fn exchange(drawn: Drawn) -> OrderVenue {
    let mut venue = OrderVenue::new("simulated");
    let instrument = |(id, symbol, partition)| Instrument {
        id,
        symbol: Ascii(symbol),
        partition,
        tick_e8: E8,
        lowest_price_e8: E8,
        highest_price_e8: 1_000 * E8,
        most_quantity: 1_000,
    };
    venue.options.instruments = [(1, *b"AAPL    ", 1), (2, *b"MSFT    ", 2)].map(instrument).into();
    venue.round_lots = vec![1, 1];
    venue.options.native.variant = VARIANT;
    venue.options.native.reports_per_request = drawn.reports_per_request;
    venue.options.native.requests_per_day = u32::MAX;
    venue.options.most_orders = 10_000;
    venue.options.native_users =
        vec![User { cancels_on_disconnect: false, ..User::new("TW01", "password", &VARIANT) }];
    venue.real_time = SocketAddr::from((EXCHANGE, 7_001));
    venue.recovery = SocketAddr::from((EXCHANGE, 7_002));
    venue.store = Some(StoreSetting { folder: PathBuf::from("/store"), most_bytes: 64 << 20, syncs: true });
    venue
}

fn gateway_config(Drawn { throttle, queue, .. }: Drawn) -> Result<GatewayConfig, String> {
    let clients = NAMES
        .map(|name| {
            format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\nbegin_string = \"FIXT.1.1\"\n")
        })
        .concat();
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
throttle_per_second = {throttle}
queue = {queue}
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
    GatewayConfig::parse("gateway.toml", &text, Path::new(".")).map_err(|error| format!("{error:?}"))
}

/// What a run has done, and what was wrong in it.
#[derive(Clone, Default, Debug)]
pub struct OrderOutcome {
    /// How it ended.
    pub ended: Ended,
    /// What was wrong.
    pub violations: Vec<String>,
    /// Reports that clients got.
    pub executions: usize,
    /// Trades that clients know.
    pub trades: usize,
    /// Requests that starts of the gateway found in its store.
    pub restored: usize,
}

/// What the processes share.
#[derive(Default)]
struct Shared {
    drawn: Drawn,
    is_over: AtomicBool,
    outcome: Mutex<OrderOutcome>,
    /// Sessions with the exchange that ended, of the gateway that runs.
    venue_ends: AtomicU64,
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut OrderOutcome) -> T) -> T {
        // A violation follows where a thread has panicked.
        work(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn violation(&self, text: String) {
        note(|| format!("VIOLATION {text}"));
        self.with(|outcome| outcome.violations.push(text));
    }
}

fn serve(shared: &Shared) {
    let config = Config { orders: vec![exchange(shared.drawn)], ..Config::new(Vec::new()) };
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
    let now_ns = W::time_of_day().0;
    let config = match gateway_config(shared.drawn) {
        Ok(config) => config,
        Err(error) => return shared.violation(error),
    };
    let Ok(AnyParts::Millennium(parts)) = config.parts(now_ns) else {
        return shared.violation("the configuration is of another venue".to_owned());
    };
    let opened = open::<_, W>(&config.store, config.journal, config.sync, parts, now_ns);
    let Opened { core, ledger, restored } = match opened {
        Ok(opened) => opened,
        Err(error) => return shared.violation(format!("the store cannot be used: {error}")),
    };
    note(|| format!("the gateway starts with {} requests of its store", restored.requests));
    shared.with(|outcome| outcome.restored += restored.requests as usize);
    match Gateway::<W>::start(
        config.host,
        core,
        ledger,
        Box::new(|notice| note(|| format!("gateway: {}", notice.text))),
        None,
    ) {
        Ok(gateway) => {
            while !gateway.is_finished() {
                shared.venue_ends.store(gateway.status().counters.venue_ends, Ordering::Relaxed);
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
    shared.with(|outcome| {
        outcome.executions = market.traders.iter().map(|trader| trader.executions.len()).sum();
        outcome.trades = market.trade_count();
    });
}

/// Starts the exchange (0) or the gateway (1).
fn begin(shared: &Arc<Shared>, machines: [HostId; 2], which: usize) -> ProcessId {
    let shared = Arc::clone(shared);
    let work = if which == 0 { serve } else { translate };
    start(machines[which], ["exchange", "gateway"][which], move || work(&shared))
}

/// The exchange and the gateway.
struct Running {
    shared: Arc<Shared>,
    machines: [HostId; 2],
    processes: [ProcessId; 2],
}

impl Running {
    /// Lets something fail, at random.
    fn fail(&mut self) {
        match below(8) {
            0..4 => self.crash(),
            4 => {
                // Pieces of a few bytes, and connections that break.
                let reset_per_million = [0, 5_000, 50_000][below(3) as usize];
                let piece = 1 + below(100);
                note(|| format!("TCP in pieces of {piece} bytes, {reset_per_million} resets per million"));
                set_tcp(TcpFaults { piece, reset_per_million, ..TcpFaults::default() });
                W::sleep(Duration::from_millis(1 + u64::from(below(200))));
                set_tcp(TcpFaults::default());
            }
            5 => {
                let out_until_ns = now_ns() + u64::from(below(800)) * 1_000_000;
                note(|| format!("TCP stands until {out_until_ns} ns"));
                set_tcp(TcpFaults { out_until_ns, ..TcpFaults::default() });
            }
            6 => {
                let ahead_s = i64::from(below(7_200)) - 3_600;
                note(|| format!("the gateway's clock is {ahead_s} s ahead"));
                set_clock(self.machines[1], ahead_s * 1_000_000_000, 0);
            }
            _ => {
                // A disk that is full, or fails at times.
                let failed_writes_per_million = [0, 500_000][below(2) as usize];
                let capacity = if failed_writes_per_million == 0 { 0 } else { u64::MAX };
                note(|| {
                    format!(
                        "the gateway's disk takes {capacity} bytes, {failed_writes_per_million} writes per million fail"
                    )
                });
                let faults = DiskFaults { capacity, failed_writes_per_million, ..DiskFaults::default() };
                set_disk_faults(self.machines[1], faults);
                W::sleep(Duration::from_millis(1 + u64::from(below(500))));
                set_disk_faults(self.machines[1], DiskFaults::default());
            }
        }
    }

    /// The exchange, the gateway or both are killed or lose power, and start again.
    fn crash(&mut self) {
        let places = [&[0][..], &[1], &[0, 1]][below(3) as usize];
        for place in places {
            let is_killed = below(2) == 0;
            note(|| {
                format!(
                    "{} {}",
                    ["the exchange", "the gateway"][*place],
                    ["loses power", "is killed"][usize::from(is_killed)]
                )
            });
            if is_killed {
                kill(self.processes[*place]);
            } else {
                power_off(self.machines[*place]);
            }
        }
        W::sleep(Duration::from_millis(1 + u64::from(below(50))));
        for place in places {
            power_on(self.machines[*place]);
            self.processes[*place] = begin(&self.shared, self.machines, *place);
        }
    }
}

/// Simulates a gateway, its exchange and its clients. The seed decides everything; `keeps_trace` keeps the lines of the trace.
#[must_use]
pub fn simulate_orders(seed: u64, keeps_trace: bool) -> OrderOutcome {
    let shared = Arc::new(Shared { drawn: Drawn::of(seed), ..Shared::default() });
    let all = Arc::clone(&shared);
    let options =
        RunOptions { seed, epoch_ns: 1_763_130_600_000_000_000, schedule: Schedule::default(), keeps_trace };
    let ended = run(&options, move || {
        note(|| format!("{:?}", all.drawn));
        let machines = [add_host("exchange", EXCHANGE), add_host("gateway", GATEWAY)];
        let clients = add_host("clients", Ipv4Addr::new(10, 0, 0, 4));
        let processes = [0, 1].map(|which| begin(&all, machines, which));
        let trading = Arc::clone(&all);
        let clients = start(clients, "clients", move || trade(&trading));
        let mut running = Running { shared: Arc::clone(&all), machines, processes };
        for _ in 0..10 {
            W::sleep(Duration::from_micros(20_000 + u64::from(below(300_000))));
            running.fail();
        }
        set_tcp(TcpFaults::default());
        W::sleep(Duration::from_millis(300));
        all.is_over.store(true, Ordering::Release);
        while !has_ended(clients) {
            W::sleep(Duration::from_millis(10));
        }
        // Without orders the session with the exchange lives by heartbeats.
        W::sleep(Duration::from_secs(1));
        let before = all.venue_ends.load(Ordering::Relaxed);
        W::sleep(Duration::from_secs(3));
        let ends = all.venue_ends.load(Ordering::Relaxed).saturating_sub(before);
        if ends > 0 {
            all.violation(format!("{ends} idle sessions with the exchange ended within 3 s"));
        }
        for process in running.processes.into_iter().chain([clients]) {
            if let Some(panic) = panic_of(process) {
                all.violation(panic);
            }
        }
    });
    if ended.is_stuck {
        shared.with(|outcome| outcome.violations.push("the run stands still".to_owned()));
    }
    let mut outcome = shared.with(std::mem::take);
    outcome.ended = ended;
    outcome
}
