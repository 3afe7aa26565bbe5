//! A gateway behind a stall in the simulator: all clients have orders waiting at once, and each order makes two reports. The venue's
//! session lives through it: the gateway reads reports before it takes more orders.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapeworks_fix_wire::{field, message_type};
use tapeworks_gateway::client::FixClient;
use tapeworks_gateway::config::{AnyParts, Config as GatewayConfig};
use tapeworks_gateway::order_line::{OrderBook, OrderLine};
use tapeworks_gateway::{Gateway, Notice, Opened, open};
use tapeworks_matching::orders::Instrument;
use tapeworks_order_session::fix::{Role, Settings};
use tapeworks_order_session::native::User;
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::world::World;
use tapeworks_sim::{
    RunOptions, Schedule, Simulated, TcpFaults, add_host, has_ended, now_ns, panic_of, run, set_tcp, start,
};
use tapeworks_venues::orders::OrderVenues;
use tapeworks_venues::{Config, OrderVenue};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::{LSE, Variant};

type W = Simulated;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const VARIANT: Variant = Variant { partitions: 1, throttle_per_second: 0, ..LSE };
const E8: i64 = 100_000_000;

const CLIENTS: usize = 20;

/// Orders of each client. Their reports are several times what the exchange keeps for a client that does not read.
const ORDERS: usize = 600;

/// What may wait for the gateway before the exchange ends its session.
const OUTPUT_BYTES: usize = 1 << 20;

fn exchange() -> OrderVenue {
    let mut venue = OrderVenue::new("simulated");
    venue.options.instruments = vec![Instrument {
        id: 1,
        symbol: Ascii::new("AAPL").unwrap(),
        partition: 1,
        tick_e8: E8,
        lowest_price_e8: E8,
        highest_price_e8: 1_000 * E8,
        most_quantity: 1_000,
    }];
    venue.round_lots = vec![1];
    venue.options.native.variant = VARIANT;
    venue.options.native.output_bytes = OUTPUT_BYTES;
    venue.options.most_orders = 65_536;
    venue.options.native_users = vec![User::new("TW01", "password", &VARIANT)];
    venue.real_time = SocketAddr::from((EXCHANGE, 7_001));
    venue.recovery = SocketAddr::from((EXCHANGE, 7_002));
    venue
}

fn gateway_config() -> GatewayConfig {
    let mut text = format!(
        "listen = \"{GATEWAY}:9878\"\n[store]\nfolder = \"/gateway\"\nsync = \"100ms\"\n\
         [capacity]\norders = 65_536\n\
         [venue]\nprotocol = \"millennium\"\nreal_time = \"{EXCHANGE}:7001\"\nrecovery = \"{EXCHANGE}:7002\"\nuser = \"TW01\"\n\
         password = \"password\"\npartitions = 1\nthrottle_per_second = 0\n\
         [[instrument]]\nsymbol = \"AAPL\"\nid = 1\n\
         [client_defaults]\norders_per_second = 1_000_000\n"
    );
    for client in 0..CLIENTS {
        write!(text, "[[client]]\nname = \"C{client}\"\ncomp_id = \"C{client}\"\n").unwrap();
    }
    GatewayConfig::parse("gateway.toml", &text, Path::new(".")).unwrap()
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// The gateway takes orders.
    is_open: AtomicBool,
    venue_ends: AtomicU64,
    accepted: AtomicU64,
    filled: AtomicU64,
    others: Mutex<Vec<String>>,
    /// How sessions ended, as the gateway and the exchange say.
    said: Arc<Mutex<Vec<String>>>,
}

fn serve(shared: &Shared) {
    let config = Config { orders: vec![exchange()], ..Config::new(Vec::new()) };
    let said = Arc::clone(&shared.said);
    let on_refusal: OnRefusal = Arc::new(move |refused| said.lock().unwrap().push(refused.reason.clone()));
    let _exchange = OrderVenues::<W>::start_in(&config, Some(on_refusal)).unwrap();
    while !shared.is_over.load(Ordering::Acquire) {
        W::sleep(Duration::from_millis(10));
    }
}

fn translate(shared: &Shared) {
    let now_ns = W::time_of_day().0;
    let config = GatewayConfig { store: PathBuf::from("/gateway"), ..gateway_config() };
    let AnyParts::Millennium(parts) = config.parts(now_ns).unwrap() else { panic!("another venue") };
    let Opened { core, ledger, .. } =
        open::<_, W>(&config.store, config.journal, config.sync, parts, now_ns).unwrap();
    let said = Arc::clone(&shared.said);
    let on_notice = Box::new(move |notice: Notice| said.lock().unwrap().push(notice.text));
    let gateway = Gateway::<W>::start(config.host, core, ledger, on_notice, None).unwrap();
    while !shared.is_over.load(Ordering::Acquire) {
        let status = gateway.status();
        shared.is_open.store(status.takes_orders, Ordering::Release);
        shared.venue_ends.store(status.counters.venue_ends, Ordering::Release);
        W::sleep(Duration::from_millis(10));
    }
}

fn trade(shared: &Shared) {
    while !shared.is_open.load(Ordering::Acquire) {
        W::sleep(Duration::from_millis(10));
    }
    let address = SocketAddr::from((GATEWAY, 9_878));
    let connect = |client| {
        let settings = Settings::new(Role::Initiator, "FIX.4.4", &format!("C{client}"), "TAPEWORKS");
        FixClient::<W>::connect(address, settings, None, Duration::from_secs(5)).unwrap()
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    // Nothing is delivered until every order is on its way: what a gateway finds that has stood for a while.
    set_tcp(TcpFaults { out_until_ns: now_ns() + 50_000_000, ..TcpFaults::default() });
    for (number, client) in clients.iter_mut().enumerate() {
        let mut book = OrderBook::new("");
        let side = if number % 2 == 0 { "buy" } else { "sell" };
        for order in 0..ORDERS {
            let line = OrderLine::parse(&format!("new AAPL {side} 10 @100 id=O{order}")).unwrap().unwrap();
            let (kind, fields) = book.message(&line, client.now_ns()).unwrap();
            client.send(kind, &fields).unwrap();
        }
    }
    let began = W::instant();
    let mut seen = BTreeSet::new();
    while seen.len() < 2 * CLIENTS * ORDERS && W::since(began) < Duration::from_secs(20) {
        for (number, client) in clients.iter_mut().enumerate() {
            client.turn(Duration::from_micros(100)).unwrap();
            while let Some(message) = client.next_message() {
                let kind = field(&message, 150).unwrap_or_default().to_vec();
                let is_new = message_type(&message) == b"8"
                    && seen.insert((number, field(&message, 11).unwrap().to_vec(), kind.clone()));
                match kind.as_slice() {
                    b"0" if is_new => _ = shared.accepted.fetch_add(1, Ordering::Relaxed),
                    b"F" if is_new => _ = shared.filled.fetch_add(1, Ordering::Relaxed),
                    _ => {
                        let text = String::from_utf8_lossy(&message).replace('\x01', "|");
                        shared.others.lock().unwrap().push(text);
                    }
                }
            }
        }
    }
    // The gateway's status is a tenth of a second old at most.
    W::sleep(Duration::from_millis(300));
}

#[test]
fn a_gateway_that_is_behind_reads_the_venues_reports_before_it_takes_more_orders() {
    for seed in 1..=3 {
        let shared = Arc::new(Shared::default());
        let all = Arc::clone(&shared);
        let options = RunOptions {
            seed,
            epoch_ns: 1_763_130_600_000_000_000,
            schedule: Schedule::default(),
            keeps_trace: false,
        };
        let ended = run(&options, move || {
            let hosts = [
                ("exchange", EXCHANGE, serve as fn(&Shared)),
                ("gateway", GATEWAY, translate),
                ("clients", Ipv4Addr::new(10, 0, 0, 4), trade),
            ];
            let processes = hosts.map(|(name, address, work)| {
                let shared = Arc::clone(&all);
                start(add_host(name, address), name, move || work(&shared))
            });
            while !has_ended(processes[2]) {
                W::sleep(Duration::from_millis(10));
            }
            all.is_over.store(true, Ordering::Release);
            while !processes.iter().all(|process| has_ended(*process)) {
                W::sleep(Duration::from_millis(10));
            }
            for process in processes {
                all.others.lock().unwrap().extend(panic_of(process));
            }
        });
        let (others, mut said) = (shared.others.lock().unwrap(), shared.said.lock().unwrap());
        said.retain(|line| !line.ends_with("is logged on"));
        let count = |number: &AtomicU64| number.load(Ordering::Acquire);
        assert_eq!(count(&shared.venue_ends), 0, "seed {seed}: {said:?}");
        assert!(others.is_empty() && !ended.is_stuck, "seed {seed}: {:?}", others.first());
        let orders = (CLIENTS * ORDERS) as u64;
        assert_eq!((count(&shared.accepted), count(&shared.filled)), (orders, orders), "seed {seed}");
    }
}
