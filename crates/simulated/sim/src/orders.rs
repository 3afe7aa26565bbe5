//! A gateway, its exchange and FIX clients under faults: processes are killed and machines lose power at any moment, connections
//! break and stall, clocks are set, disks fill up and fail, and the exchange rejects, delays and omits reports, breaks off, and sends
//! nonsense. No order is lost or duplicated, and each client gets each fill once.

mod plan;
mod shrink;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapeworks_gateway::config::Config as GatewayConfig;
use tapeworks_gateway::status::Status;
use tapeworks_gateway::testing::{Happened, Ledger, Market, NAMES, Trader};
use tapeworks_matching::orders::{Instrument, LedgerEntry, LedgerEvent, OuchUser};
use tapeworks_order_session::native::User;
use tapeworks_runtime::world::World;
use tapeworks_session::Credentials;
use tapeworks_venues::orders::{Ledger as OrderLedger, OrderVenues};
use tapeworks_venues::{Config, OrderVenue, StoreSetting};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::{LSE, Variant};

use crate::kernel::disk::{DiskFaults, set_disk_faults};
use crate::kernel::network::{TcpFaults, set_tcp};
use crate::kernel::{
    Ended, HostId, ProcessId, RunOptions, Schedule, Simulated, add_host, below, has_ended, kill, note,
    now_ns, panic_of, power_off, power_on, run, set_clock, start,
};

pub use plan::{OrderCrash, OrderFault, OrderPlan, OrderWhat, Power, VenueProtocol};
pub use shrink::shrink_orders;

type W = Simulated;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const VARIANT: Variant =
    Variant { partitions: 2, throttle_per_second: 0, heartbeat_interval_ns: 100_000_000, ..LSE };
const E8: i64 = 100_000_000;
/// 2025-11-14, 14:30 UTC.
const EPOCH_NS: u64 = 1_763_130_600_000_000_000;

/// Slack for a store that is synced by interval. It may lose the writes of the interval and those made during a sync: the sync under
/// way at the end of the interval, and the next one. The wait of a thread for either, and the age of a status, come on top.
const SLACK_NS: u64 = 250_000_000;

/// A gateway that has been ready for this long, while a partition has had a gap for as long, has not noticed the gap. Longer than any
/// TCP stall that the plans draw.
const GAP_NS: u64 = 2_000_000_000;

/// Three unanswered requests, and the waits between them.
const LONGEST_RECOVERY: Duration = Duration::from_secs(300);

/// About twenty such recoveries in a row, during which no orders pass.
const LONGEST_MISREPORTS: Duration = Duration::from_secs(1_200);

fn exchange(plan: &OrderPlan) -> OrderVenue {
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
    venue.options.native.reports_per_request = plan.reports_per_request;
    venue.options.native.requests_per_day = u32::MAX;
    venue.options.most_orders = 10_000;
    venue.options.native_users =
        vec![User { cancels_on_disconnect: false, ..User::new("TW01", "password", &VARIANT) }];
    let credentials = Credentials { user: "TW01".to_owned(), password: "password".to_owned() };
    venue.options.ouch_users = vec![OuchUser { credentials, cancels_on_disconnect: false }];
    venue.options.faults = plan.exchange_faults();
    venue.options.keeps_ledger = true;
    venue.real_time = SocketAddr::from((EXCHANGE, 7_001));
    venue.recovery = SocketAddr::from((EXCHANGE, 7_002));
    venue.ouch = vec![SocketAddr::from((EXCHANGE, 7_003))];
    let syncs = plan.exchange_syncs;
    venue.store = Some(StoreSetting { folder: PathBuf::from("/store"), most_bytes: 64 << 20, syncs });
    venue
}

fn gateway_config(plan: &OrderPlan) -> Result<GatewayConfig, String> {
    let clients = NAMES
        .map(|name| {
            format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\nbegin_string = \"FIXT.1.1\"\n")
        })
        .concat();
    let sync = plan.sync_every_ms.map_or_else(|| "always".to_owned(), |ms| format!("{ms}ms"));
    let OrderPlan { throttle, queue, .. } = plan;
    let venue = match plan.venue {
        VenueProtocol::Native => format!(
            r#"
protocol = "millennium"
real_time = "{EXCHANGE}:7001"
recovery = "{EXCHANGE}:7002"
partitions = 2
throttle_per_second = {throttle}
queue = {queue}
heartbeat = "100ms""#
        ),
        VenueProtocol::Ouch => format!(
            r#"
protocol = "ouch"
address = "{EXCHANGE}:7003""#
        ),
    };
    let text = format!(
        r#"
listen = "{GATEWAY}:9878"
[store]
folder = "/gateway"
segment_mb = 1
sync = "{sync}"
[venue]
{venue}
user = "TW01"
password = "password"
first_reconnect = "10ms"
longest_reconnect = "100ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[instrument]]
symbol = "MSFT"
id = 2
partition = 2
[[instrument]]
symbol = "GONE"
id = 3
[capacity]
orders = 20_000
[client_defaults]
may_sell_short = true
sending_time_tolerance = "24h"
{clients}"#
    );
    GatewayConfig::parse("gateway.toml", &text, Path::new(".")).map_err(|error| format!("{error:?}"))
}

/// The result of a run with orders.
#[derive(Clone, Default, Debug)]
pub struct OrderOutcome {
    /// How the run ended.
    pub ended: Ended,
    /// Violations found.
    pub violations: Vec<String>,
    /// Reports that clients received.
    pub executions: usize,
    /// Trades that clients know.
    pub trades: usize,
    /// Requests that starts of the gateway restored from its store.
    pub restored: usize,
    /// Faults injected by the exchange that runs at the end.
    pub exchange_faults: u64,
}

/// State shared by the processes.
#[derive(Default)]
struct Shared {
    plan: OrderPlan,
    is_over: AtomicBool,
    /// The clients continue to trade.
    goes_on: AtomicBool,
    /// The clients have received all answers.
    is_settled: AtomicBool,
    /// Working orders at the exchange.
    working: AtomicU64,
    /// Messages received by the exchange.
    messages: AtomicU64,
    /// What the exchange's matching has done to its orders, independent of the gateway and its store.
    ledger: Mutex<Ledger>,
    /// Since when the exchange has held back a report although the gateway has a later one, by App ID, in ns.
    gaps: Mutex<BTreeMap<u8, u64>>,
    /// The gateway has lost unsynced data of its store, so its next start may truncate the store.
    has_lost_power: AtomicBool,
    /// The sequence numbers of the gateway's sessions by simulation time, in ns.
    numbers: Mutex<Vec<(u64, [[u64; 2]; 3])>>,
    outcome: Mutex<OrderOutcome>,
    /// Ended sessions with the exchange, for the running gateway.
    venue_ends: AtomicU64,
    /// The gateway accepts orders of all partitions, and none of its own requests waits for the throttle.
    is_idle: AtomicBool,
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut OrderOutcome) -> T) -> T {
        // If a thread has panicked, a violation follows.
        work(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn violation(&self, text: String) {
        note(|| format!("VIOLATION {text}"));
        self.with(|outcome| outcome.violations.push(text));
    }
}

impl Shared {
    fn set_ledger(&self, ledger: Ledger) {
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = ledger;
        self.set_gaps(&[]);
    }

    fn enter(&self, entry: &LedgerEntry) {
        let happened = match entry.event {
            LedgerEvent::Accepted { quantity } => Happened::Accepted(quantity.into()),
            LedgerEvent::Filled { match_number, price_e8, quantity, leaves } => Happened::Filled {
                match_id: match_number,
                quantity: quantity.into(),
                price_e8,
                leaves: leaves.into(),
            },
            LedgerEvent::Replaced { leaves } => Happened::Replaced(leaves.into()),
            LedgerEvent::Ended { .. } => Happened::Ended,
            // The simulated exchange cancels no trades.
            LedgerEvent::Busted { .. } => return,
        };
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.enter(&entry.order_id(), happened);
    }

    fn set_gaps(&self, open: &[u8]) {
        let mut gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
        gaps.retain(|app_id, _| open.contains(app_id));
        for app_id in open {
            gaps.entry(*app_id).or_insert_with(now_ns);
        }
    }

    /// Returns the partitions with a gap so old that a gateway must have noticed it.
    fn old_gaps(&self) -> Vec<u8> {
        let gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |since_ns: u64| now_ns().saturating_sub(since_ns) >= GAP_NS;
        gaps.iter().filter(|(_, since_ns)| is_old(**since_ns)).map(|(app_id, _)| *app_id).collect()
    }
}

fn serve(shared: &Shared) {
    let config = Config { orders: vec![exchange(&shared.plan)], ..Config::new(Vec::new()) };
    match OrderVenues::<W>::start_in(&config, None) {
        Ok(exchange) => {
            // A start from the store replays the whole day.
            shared.set_ledger(Ledger::default());
            while !exchange.has_failed() {
                for entry in exchange.ledgers().iter().flat_map(OrderLedger::take) {
                    shared.enter(&entry);
                }
                if let Some(report) = exchange.report().first() {
                    shared.working.store(report.working, Ordering::Relaxed);
                    shared.messages.store(report.messages(), Ordering::Relaxed);
                    shared.set_gaps(&report.open_gaps);
                    shared.with(|outcome| outcome.exchange_faults = report.faults.sum());
                }
                W::sleep(Duration::from_millis(10));
            }
            shared.violation(format!("the exchange ended: {:?}", exchange.stop().map(|_| ())));
        }
        Err(error) => shared.violation(format!("the exchange does not start: {error}")),
    }
}

/// Returns the next incoming and outgoing number of each client's session.
fn numbers(status: &Status) -> [[u64; 2]; 3] {
    let of = |client: &str| {
        let found = status.clients.iter().find(|status| status.name == client);
        found.map_or([0, 0], |status| [status.next_incoming, status.next_outgoing])
    };
    NAMES.map(of)
}

fn translate(shared: &Shared) {
    let config = match gateway_config(&shared.plan) {
        Ok(config) => config,
        Err(error) => return shared.violation(error),
    };
    let started = config.start_in::<W>(Box::new(|notice| note(|| format!("gateway: {}", notice.text))), None);
    match started {
        Ok((gateway, restored)) => {
            if let Some(cut) = &restored.cut {
                note(|| format!("the gateway has cut its store: {cut:?}"));
                if !shared.has_lost_power.swap(false, Ordering::AcqRel) {
                    shared.violation(format!("the gateway has cut a store that lost nothing: {cut:?}"));
                }
            }
            note(|| format!("the gateway has started with {} requests of its store", restored.requests));
            shared.with(|outcome| outcome.restored += restored.requests as usize);
            let mut ready_since_ns = None;
            while !gateway.is_finished() {
                let status = gateway.status();
                check_ready(&status, &mut ready_since_ns, shared);
                shared.venue_ends.store(status.counters.venue_ends, Ordering::Relaxed);
                let is_idle = status.takes_orders && status.behind.is_empty() && status.queued == 0;
                shared.is_idle.store(is_idle, Ordering::Relaxed);
                if let Ok(mut all) = shared.numbers.lock() {
                    all.push((crate::kernel::now_ns(), numbers(&status)));
                }
                W::sleep(Duration::from_millis(10));
            }
            shared.violation(format!("the gateway ended: {:?}", gateway.stop()));
        }
        Err(error) => shared.violation(format!("the gateway does not start: {error}")),
    }
}

/// Checks that no gateway claims to be ready while it lacks reports of a partition.
fn check_ready(status: &Status, ready_since_ns: &mut Option<u64>, shared: &Shared) {
    let is_ready = status.is_venue_logged_on && status.takes_orders && status.behind.is_empty();
    if !is_ready {
        *ready_since_ns = None;
        return;
    }
    let since_ns = *ready_since_ns.get_or_insert_with(now_ns);
    let gaps = shared.old_gaps();
    if now_ns().saturating_sub(since_ns) >= GAP_NS && !gaps.is_empty() {
        *ready_since_ns = None;
        shared.violation(format!("the gateway is ready, and lacks reports of the partitions {gaps:?}"));
    }
}

/// Lets the clients trade until the exchange has injected its last fault.
fn await_last_fault<R: FnMut(u32) -> u32>(shared: &Shared, market: &mut Market<W, R>, address: SocketAddr) {
    let began = W::instant();
    while shared.messages.load(Ordering::Relaxed) < shared.plan.script.until_message.into() {
        if W::since(began) > LONGEST_MISREPORTS {
            return shared.violation("the exchange gets no messages".to_owned());
        }
        market.connect(address);
        market.act();
        market.turn(Duration::from_millis(1));
    }
}

/// Waits until the gateway has recovered all missing reports. Until then it refuses orders, which therefore reveal no gap.
fn await_recovery<R: FnMut(u32) -> u32>(shared: &Shared, market: &mut Market<W, R>, address: SocketAddr) {
    let began = W::instant();
    let mut idle = W::instant();
    while W::since(idle) < Duration::from_secs(1) {
        if W::since(began) > LONGEST_RECOVERY {
            return shared.violation("the gateway does not recover the reports that it lacks".to_owned());
        }
        market.connect(address);
        market.turn(Duration::from_millis(5));
        if !shared.is_idle.load(Ordering::Relaxed) {
            idle = W::instant();
        }
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
    let script = shared.plan.script;
    await_last_fault(shared, &mut market, address);
    // Reports that an exchange omitted at the end are revealed by the number of the next report.
    for may_be_left_out in [false, true] {
        if may_be_left_out && script.gaps_per_million == 0 && !script.ends() {
            break;
        }
        if may_be_left_out {
            await_recovery(shared, &mut market, address);
            market.probe();
        }
        let patience = if script.ends() { LONGEST_RECOVERY } else { Duration::from_secs(60) };
        if let Err(problem) = market.settle(address, patience) {
            shared.violation(problem);
            break;
        }
    }
    for fault in market.faults() {
        shared.violation(fault);
    }
    // The exchange's figure is at most 10 ms old.
    market.turn(Duration::from_millis(50));
    let (open, working) = (
        market.traders.iter().map(Trader::open).sum::<usize>() as u64,
        shared.working.load(Ordering::Relaxed),
    );
    let has_doubts = market.traders.iter().any(Trader::has_doubts);
    if has_doubts && !script.raises_doubts() {
        shared.violation("a report is in doubt, and the exchange sent none that is".to_owned());
    }
    for fault in shared.ledger.lock().unwrap_or_else(PoisonError::into_inner).faults(&market.traders) {
        shared.violation(fault);
    }
    if open != working && !has_doubts {
        shared.violation(format!("{open} orders work as their clients know, and {working} at the exchange"));
    }
    shared.with(|outcome| {
        outcome.executions = market.traders.iter().map(|trader| trader.executions.len()).sum();
        outcome.trades = market.trade_count();
    });
    shared.is_settled.store(true, Ordering::Release);
    if !shared.goes_on.load(Ordering::Acquire) {
        return;
    }
    while shared.goes_on.load(Ordering::Acquire) {
        market.connect(address);
        market.act();
        market.turn(Duration::from_micros(500));
        W::sleep(Duration::from_micros(200));
    }
    // Lost requests are lost, but new ones must be answered.
    market.begin_anew();
    for _ in 0..100 {
        market.connect(address);
        market.act();
        market.turn(Duration::from_millis(1));
    }
    if let Err(problem) = market.settle(address, Duration::from_secs(60)) {
        shared.violation(format!("behind a loss of power: {problem}"));
    }
}

/// Starts the exchange (0) or the gateway (1).
fn begin(shared: &Arc<Shared>, machines: [HostId; 2], which: usize) -> ProcessId {
    let shared = Arc::clone(shared);
    let work = if which == 0 { serve } else { translate };
    start(machines[which], ["exchange", "gateway"][which], move || work(&shared))
}

/// The running exchange and gateway.
struct Running {
    shared: Arc<Shared>,
    machines: [HostId; 2],
    processes: [ProcessId; 2],
}

impl Running {
    /// Injects a fault.
    fn fail(&mut self, what: &OrderWhat) {
        note(|| format!("{what:?}"));
        match *what {
            OrderWhat::Crash(crash) => self.crash(crash),
            OrderWhat::Tcp { piece, reset_per_million, length_ms } => {
                set_tcp(TcpFaults { piece, reset_per_million, ..TcpFaults::default() });
                W::sleep(Duration::from_millis(length_ms.into()));
                set_tcp(TcpFaults::default());
            }
            OrderWhat::Stand { length_ms } => {
                let out_until_ns = now_ns() + u64::from(length_ms) * 1_000_000;
                set_tcp(TcpFaults { out_until_ns, ..TcpFaults::default() });
            }
            OrderWhat::Clock { ahead_s } => {
                set_clock(self.machines[1], i64::from(ahead_s) * 1_000_000_000, 0);
            }
            OrderWhat::Disk { is_full, length_ms } => {
                let faults = if is_full {
                    DiskFaults { capacity: 0, ..DiskFaults::default() }
                } else {
                    DiskFaults { failed_writes_per_million: 500_000, ..DiskFaults::default() }
                };
                set_disk_faults(self.machines[1], faults);
                W::sleep(Duration::from_millis(length_ms.into()));
                set_disk_faults(self.machines[1], DiskFaults::default());
            }
        }
    }

    /// Ends and restarts the exchange, the gateway or both.
    fn crash(&mut self, crash: OrderCrash) {
        let places = [crash.exchange, crash.gateway];
        for (place, power) in places.iter().enumerate() {
            match power {
                Some(Power::Kept) => kill(self.processes[place]),
                Some(Power::Lost) => power_off(self.machines[place]),
                None => {}
            }
        }
        W::sleep(Duration::from_millis(crash.back_after_ms.into()));
        for (place, power) in places.iter().enumerate() {
            if power.is_some() {
                power_on(self.machines[place]);
                self.processes[place] = begin(&self.shared, self.machines, place);
            }
        }
    }

    /// Cuts the power of the gateway's machine while clients trade and its store is synced by interval. Older data must survive. Of the
    /// younger data, the disk may have a later part without an earlier one, which the start truncates. A later kill must lose nothing more.
    fn lose_the_interval(&mut self, every_ms: u32) {
        W::sleep(Duration::from_millis(300 + u64::from(below(500))));
        let lost_ns = now_ns();
        let crash = OrderCrash { exchange: None, gateway: Some(Power::Lost), back_after_ms: 10 };
        note(|| "the gateway loses power, and what it had not synced".to_owned());
        self.shared.has_lost_power.store(true, Ordering::Release);
        let all = self.shared.numbers.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
        self.crash(crash);
        W::sleep(Duration::from_millis(100));
        self.shared.has_lost_power.store(false, Ordering::Release);
        let safe_ns = lost_ns.saturating_sub(u64::from(every_ms) * 1_000_000 + SLACK_NS);
        let safe = all.iter().rev().find(|(at_ns, _)| *at_ns <= safe_ns).map(|(_, numbers)| *numbers);
        let found = self.shared.numbers.lock().ok().and_then(|all| all.last().map(|(_, numbers)| *numbers));
        let (Some(safe), Some(found)) = (safe, found) else {
            return self.shared.violation("the gateway is not back after a loss of power".to_owned());
        };
        for ((name, safe), found) in NAMES.iter().zip(safe).zip(found) {
            if found[0] < safe[0] || found[1] < safe[1] {
                self.shared.violation(format!(
                    "{name}: with a sync each {every_ms} ms the numbers {found:?} are left of {safe:?}, which were old enough"
                ));
            }
        }
        W::sleep(Duration::from_millis(below(300).into()));
        self.crash(OrderCrash { exchange: None, gateway: Some(Power::Kept), back_after_ms: 10 });
        W::sleep(Duration::from_millis(100));
        let is_back = self
            .shared
            .numbers
            .lock()
            .is_ok_and(|all| all.last().is_some_and(|(at_ns, _)| *at_ns > now_ns() - 50_000_000));
        if !is_back {
            self.shared.violation("the gateway is not back after a kill behind a loss of power".to_owned());
        }
    }
}

/// Checks that heartbeats keep the idle session with the exchange alive. The session is idle once the throttle has sent all queued
/// requests; until then, an exchange that drops connections at every n-th message may do so.
fn stays_up(shared: &Shared) {
    let mut idle_ms = 0;
    for _ in 0..6_000 {
        W::sleep(Duration::from_millis(10));
        idle_ms = if shared.is_idle.load(Ordering::Relaxed) { idle_ms + 10 } else { 0 };
        if idle_ms >= 1_000 {
            break;
        }
    }
    if idle_ms < 1_000 {
        return shared.violation("the gateway has requests that wait, or takes none, after 60 s".to_owned());
    }
    let before = shared.venue_ends.load(Ordering::Relaxed);
    W::sleep(Duration::from_secs(3));
    let ends = shared.venue_ends.load(Ordering::Relaxed).saturating_sub(before);
    if ends > 0 {
        shared.violation(format!("{ends} idle sessions with the exchange ended within 3 s"));
    }
}

/// Simulates a gateway, its exchange and its clients according to a plan. `keeps_trace` keeps the lines of the trace.
#[must_use]
pub fn simulate_orders(plan: &OrderPlan, keeps_trace: bool) -> OrderOutcome {
    let shared = Arc::new(Shared { plan: plan.clone(), ..Shared::default() });
    let all = Arc::clone(&shared);
    let schedule = Schedule::default();
    let options = RunOptions { seed: plan.seed, epoch_ns: EPOCH_NS, schedule, keeps_trace };
    let ended = run(&options, move || {
        let machines = [add_host("exchange", EXCHANGE), add_host("gateway", GATEWAY)];
        let clients = add_host("clients", Ipv4Addr::new(10, 0, 0, 4));
        let processes = [0, 1].map(|which| begin(&all, machines, which));
        all.goes_on.store(all.plan.sync_every_ms.is_some(), Ordering::Release);
        let trading = Arc::clone(&all);
        let clients = start(clients, "clients", move || trade(&trading));
        let mut running = Running { shared: Arc::clone(&all), machines, processes };
        for fault in &all.plan.faults {
            W::sleep(Duration::from_micros(fault.after_us.into()));
            running.fail(&fault.what);
        }
        set_tcp(TcpFaults::default());
        W::sleep(Duration::from_millis(300));
        all.is_over.store(true, Ordering::Release);
        while !has_ended(clients) && !all.is_settled.load(Ordering::Acquire) {
            W::sleep(Duration::from_millis(10));
        }
        if let Some(every_ms) = all.plan.sync_every_ms {
            running.lose_the_interval(every_ms);
            all.goes_on.store(false, Ordering::Release);
            while !has_ended(clients) {
                W::sleep(Duration::from_millis(10));
            }
        }
        stays_up(&all);
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
