//! An exchange that takes orders in the simulator: its process is killed and its machine loses power, at any moment. No report that a client
//! has seen changes, none is missing, and none comes twice.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code)]
mod traders;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapeworks_matching::orders::Instrument;
use tapeworks_order_session::native::{Channel, Client, ClientSettings, Event, User};
use tapeworks_runtime::world::{BlockingStream as _, World};
use tapeworks_sim::{
    Ended, ProcessId, RunOptions, Schedule, Simulated, add_host, below, has_ended, kill, panic_of, power_off,
    power_on, run, start,
};
use tapeworks_venues::orders::OrderVenues;
use tapeworks_venues::{Config, OrderVenue, StoreSetting};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::Side;
use tapeworks_wire::millennium::variant::{LSE, Variant};
use traders::{E8, cancel, name, order};

type W = Simulated;

const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const VARIANT: Variant =
    Variant { partitions: 2, throttle_per_second: 0, heartbeat_interval_ns: 100_000_000, ..LSE };
const USERS: [&str; 2] = ["ANN", "BOB"];

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
    venue.options.native.rejects_second_logon = false;
    venue.options.most_orders = 10_000;
    venue.options.native_users = USERS
        .map(|user| User { cancels_on_disconnect: user == "BOB", ..User::new(user, "password", &VARIANT) })
        .into();
    venue.real_time = SocketAddr::from((EXCHANGE, 7_001));
    venue.recovery = SocketAddr::from((EXCHANGE, 7_002));
    venue.store = Some(StoreSetting { folder: PathBuf::from("/store"), most_bytes: 64 << 20, syncs: true });
    venue
}

/// What the processes share.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    violations: Mutex<Vec<String>>,
    reports: Mutex<usize>,
    restored: Mutex<u64>,
}

impl Shared {
    fn violation(&self, text: String) {
        self.violations.lock().unwrap().push(text);
    }
}

fn serve(shared: &Shared) {
    let config = Config { orders: vec![exchange()], ..Config::new(Vec::new()) };
    let exchange = match OrderVenues::<W>::start_in(&config, None) {
        Ok(exchange) => exchange,
        Err(error) => return shared.violation(format!("the exchange does not start: {error}")),
    };
    *shared.restored.lock().unwrap() += exchange.addresses()[0].recovered.unwrap().inputs;
    while !exchange.has_failed() {
        W::sleep(Duration::from_millis(10));
    }
    shared.violation(format!("the exchange ended: {:?}", exchange.stop().map(|_| ())));
}

/// A user with its connections.
struct Native {
    client: Client,
    streams: [Option<<W as World>::BlockingStream>; 2],
    reports: Vec<Vec<u8>>,
}

impl Native {
    fn new(user: &str) -> Self {
        let settings = ClientSettings {
            variant: VARIANT,
            user: user.to_owned(),
            password: "password".to_owned(),
            first_reconnect_ns: 1_000_000,
            longest_reconnect_ns: 20_000_000,
            ..ClientSettings::default()
        };
        Self { client: Client::new(settings).unwrap(), streams: [None, None], reports: Vec::new() }
    }

    fn turn(&mut self) {
        // Without a connection nothing else takes time.
        W::sleep(Duration::from_millis(1));
        let Self { client, streams, reports } = self;
        let now_ns = W::time_of_day().0;
        let mut note = |event: Event<'_>| {
            if let Event::Report { message, .. } = event {
                reports.push(message.to_vec());
            }
        };
        client.tick(now_ns, &mut note);
        for (place, (channel, port)) in Channel::ALL.into_iter().zip([7_001, 7_002]).enumerate() {
            if client.wants(channel, now_ns) {
                let address = SocketAddr::from((EXCHANGE, port));
                match <W as World>::BlockingStream::connect(address, Duration::from_millis(100)) {
                    Ok(stream) => {
                        let limits = (Duration::from_millis(1), Duration::from_millis(100));
                        stream.set_time_limits(Some(limits.0), Some(limits.1)).unwrap();
                        streams[place] = Some(stream);
                        client.connected(channel, now_ns);
                    }
                    Err(_) => client.refused(channel, now_ns),
                }
            }
            let Some(stream) = &mut streams[place] else { continue };
            let output = client.output(channel).to_vec();
            let mut is_there = stream.write_all(&output).is_ok();
            if is_there {
                client.sent(channel, output.len(), now_ns, &mut note);
                let mut buffer = [0; 16 << 10];
                match stream.read(&mut buffer) {
                    Ok(0) => is_there = false,
                    Ok(length) => client.receive(channel, &buffer[..length], W::time_of_day().0, &mut note),
                    Err(error) => {
                        is_there = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    }
                }
            }
            if !is_there || client.over(channel).is_some() {
                streams[place] = None;
                client.closed(channel, W::time_of_day().0, &mut note);
            }
        }
    }

    fn for_a_time(&mut self, time: Duration) {
        let began = W::instant();
        while W::since(began) < time {
            self.turn();
        }
    }

    fn act(&mut self, number: u32) {
        let side = if below(2) == 0 { Side::Buy } else { Side::Sell };
        let message = if below(4) == 0 {
            cancel(&format!("C{number}"), &format!("N{}", 1 + below(number)), name(""), side).to_vec()
        } else {
            let (instrument, quantity) = (1 + below(2) as i32, 1 + below(200) as i32);
            let price_e8 = i64::from(100 + below(4)) * E8;
            order(&format!("N{number}"), instrument, side, quantity, price_e8).encode().to_vec()
        };
        // Not logged on: this order is not sent.
        let _unsent = self.client.send(&message, W::time_of_day().0);
    }

    /// In order per App ID; between two of them the order is not said.
    fn by_app_id(&self) -> Vec<Vec<u8>> {
        let mut all = self.reports.clone();
        all.sort_by_key(|report| (report[4], u32::from_le_bytes(*report[5..].first_chunk().unwrap())));
        all
    }
}

fn trade(shared: &Shared) {
    let mut natives = USERS.map(Native::new);
    let mut number = 0;
    while !shared.is_over.load(Ordering::Acquire) {
        for native in &mut natives {
            number += 1;
            native.act(number);
            native.turn();
        }
    }
    for (native, user) in natives.iter_mut().zip(USERS) {
        native.for_a_time(Duration::from_secs(3));
        let mut fresh = Native::new(user);
        // Its logon ends that of the other.
        fresh.for_a_time(Duration::from_secs(3));
        if native.by_app_id() != fresh.by_app_id() {
            let counts = (native.reports.len(), fresh.reports.len());
            shared.violation(format!("{user}: the reports changed: {counts:?}"));
        }
        *shared.reports.lock().unwrap() += native.reports.len();
    }
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
        let (machine, clients) =
            (add_host("exchange", EXCHANGE), add_host("clients", Ipv4Addr::new(10, 0, 0, 3)));
        let serving = || -> ProcessId {
            let shared = Arc::clone(&all);
            start(machine, "exchange", move || serve(&shared))
        };
        let trading = Arc::clone(&all);
        let mut exchange = serving();
        let clients = start(clients, "clients", move || trade(&trading));
        for _ in 0..6 {
            W::sleep(Duration::from_micros(20_000 + u64::from(below(300_000))));
            if below(2) == 0 {
                kill(exchange);
            } else {
                power_off(machine);
            }
            W::sleep(Duration::from_millis(1 + u64::from(below(50))));
            power_on(machine);
            exchange = serving();
        }
        W::sleep(Duration::from_millis(300));
        all.is_over.store(true, Ordering::Release);
        while !has_ended(clients) {
            W::sleep(Duration::from_millis(10));
        }
        for process in [exchange, clients] {
            if let Some(panic) = panic_of(process) {
                all.violation(panic);
            }
        }
    });
    (ended, shared)
}

#[test]
fn an_exchange_keeps_every_report_through_kills_and_losses_of_power() {
    let first = std::env::var("TAPEWORKS_SEED").ok().and_then(|seed| seed.parse().ok());
    let (first, count) = first.map_or((1, 10), |seed| (seed, 1));
    let mut restored = 0;
    for seed in first..first + count {
        let (ended, shared) = simulate(seed);
        let violations = shared.violations.lock().unwrap();
        assert!(violations.is_empty() && !ended.is_stuck, "TAPEWORKS_SEED={seed}: {violations:?}");
        assert!(*shared.reports.lock().unwrap() > 100, "TAPEWORKS_SEED={seed}: nothing happened");
        restored += *shared.restored.lock().unwrap();
    }
    assert!(restored > 1_000, "{restored} inputs were restored");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(simulate(77).0, simulate(77).0);
}
