//! A gateway and its exchange, killed at any moment under load: no order is lost or doubled, each client gets each fill once, the numbers
//! of both sides agree, and what the clients know is what the gateway knows.
//!
//! `TAPEWORKS_KILLS=100` kills as often; the default is 6. `TAPEWORKS_SEED` gives the seed of the moments and of the orders; it is printed.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use support::process::Process;
use support::{Folder, free_port, run, stderr, stdout};
use tapeworks_exchange::random::Random;
use tapeworks_gateway::client::FixClient;
use tapeworks_gateway::order_line::{OrderBook, OrderLine};
use tapeworks_runtime::world::System;
use tapeworks_session::fix::{Role, Settings};
use tapeworks_wire::fix::{field, message_type, read_unsigned};

const CLIENTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn text(message: &[u8], tag: u32) -> String {
    field(message, tag).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

fn number(message: &[u8], tag: u32) -> u64 {
    field(message, tag).and_then(|value| read_unsigned(value).ok()).unwrap_or(0)
}

/// A client, and what it knows of its orders.
struct Trader {
    name: &'static str,
    client: Option<FixClient<System>>,
    book: OrderBook,
    sent: HashSet<String>,
    executions: HashSet<String>,
    /// TrdMatchID, quantity.
    fills: Vec<(u64, u64)>,
    /// LeavesQty and CumQty by OrderID (37).
    orders: BTreeMap<String, (u64, u64)>,
    /// ClOrdIDs of new orders that any message named.
    answered: HashSet<String>,
}

impl Trader {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            client: None,
            book: OrderBook::new(&format!("{name}-")),
            sent: HashSet::new(),
            executions: HashSet::new(),
            fills: Vec::new(),
            orders: BTreeMap::new(),
            answered: HashSet::new(),
        }
    }

    /// Connects, or connects again. Returns whether it is logged on.
    fn connect(&mut self, address: SocketAddr) -> bool {
        let longest = Duration::from_millis(200);
        match &mut self.client {
            Some(client) if client.is_logged_on() => true,
            Some(client) => client.connect_again(longest).is_ok(),
            None => {
                let settings = Settings::new(Role::Initiator, "FIX.4.4", self.name, "TAPEWORKS");
                self.client = FixClient::connect(address, settings, None, longest).ok();
                self.client.is_some()
            }
        }
    }

    fn send(&mut self, line: &str) {
        let Some(client) = self.client.as_mut().filter(|client| client.is_logged_on()) else { return };
        let line = OrderLine::parse(line).unwrap().unwrap();
        // A cancel of an order that was never sent.
        let Ok((kind, fields)) = self.book.message(&line, client.now_ns()) else { return };
        if client.send(kind, &fields).is_ok() && kind == "D" {
            self.sent.insert(fields[0].1.clone());
        }
    }

    fn turn(&mut self, longest: Duration) {
        let Some(client) = &mut self.client else { return };
        let _ended = client.turn(longest);
        while let Some(message) = client.next_message() {
            self.answered.insert(text(&message, 11));
            self.answered.insert(text(&message, 379));
            if message_type(&message) != b"8" {
                continue;
            }
            let id = text(&message, 17);
            assert!(self.executions.insert(id.clone()), "{}: ExecID {id} twice", self.name);
            if text(&message, 150) == "F" {
                self.fills.push((number(&message, 880), number(&message, 32)));
            }
            if text(&message, 37) != "NONE" {
                self.orders.insert(text(&message, 37), (number(&message, 151), number(&message, 14)));
            }
        }
    }
}

struct Market {
    random: Random,
    traders: Vec<Trader>,
    made: u64,
}

impl Market {
    /// A random trader sends an order, a cancel or a replace.
    fn act(&mut self) {
        let random = &mut self.random;
        let index = random.below(CLIENTS as u32) as usize;
        let (symbol, side) =
            (["AAPL", "MSFT"][random.below(2) as usize], ["buy", "sell"][random.below(2) as usize]);
        let (quantity, price) = (1 + random.below(90), 100 + random.below(5));
        let trader = &mut self.traders[index];
        self.made += 1;
        let earlier = format!("{}-o{}", trader.name, 1 + u64::from(random.below(self.made as u32)));
        let line = match random.below(6) {
            0 => format!("cancel {earlier}"),
            1 => format!("replace {earlier} {quantity} @{price}"),
            _ => format!("new {symbol} {side} {quantity} @{price} id={}-o{}", trader.name, self.made),
        };
        trader.send(&line);
    }

    fn turn(&mut self, longest: Duration) {
        self.traders.iter_mut().for_each(|trader| trader.turn(longest));
    }
}

fn exchange_config(folder: &Folder, addresses: &[SocketAddr]) -> String {
    let config = format!(
        r#"
[[orders]]
name = "Exchange"
real_time = "{}"
recovery = "{}"
partitions = 2
throttle_per_second = 0
store = "{}"
[[orders.user]]
name = "TW01"
password = "password"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
[[orders.symbol]]
name = "MSFT"
id = 2
partition = 2
"#,
        addresses[0],
        addresses[1],
        folder.path("exchange-store")
    );
    folder.write("orders.toml", config.as_bytes())
}

fn gateway_config(folder: &Folder, addresses: &[SocketAddr]) -> String {
    let clients: String =
        ["A", "B", "C"].map(|name| format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\n")).concat();
    let config = format!(
        r#"
listen = "{}"
[store]
folder = "{}"
segment_mb = 1
[venue]
protocol = "millennium"
real_time = "{}"
recovery = "{}"
user = "TW01"
password = "password"
partitions = 2
throttle_per_second = 0
first_reconnect = "50ms"
longest_reconnect = "200ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[instrument]]
symbol = "MSFT"
id = 2
partition = 2
[client_defaults]
may_sell_short = true
{clients}"#,
        addresses[2],
        folder.path("gateway-store"),
        addresses[0],
        addresses[1],
    );
    folder.write("gateway.toml", config.as_bytes())
}

#[test]
fn killed_gateways_and_exchanges_lose_and_double_nothing() {
    let kills = number_from("TAPEWORKS_KILLS").unwrap_or(6);
    let seed = number_from("TAPEWORKS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("TAPEWORKS_SEED={seed} TAPEWORKS_KILLS={kills}");
    let folder = Folder::new("gateway-crash");
    let addresses = [50, 51, 52].map(free_port);
    let (exchange_toml, gateway_toml) =
        (exchange_config(&folder, &addresses), gateway_config(&folder, &addresses));
    let exchange =
        || Process::start(&["exchange", "serve", &exchange_toml], &["restored from", "the store is empty"]);
    let gateway = || Process::start(&["gateway", &gateway_toml], &["FIX clients are served"]);
    let traders = ["A", "B", "C"].map(Trader::new).into();
    let mut market = Market { random: Random::new(seed), traders, made: 0 };
    let (mut venue, mut ours) = (Some(exchange()), Some(gateway()));
    for kill in 0..kills {
        let life = Duration::from_micros(100_000 + u64::from(market.random.below(400_000)));
        let began = Instant::now();
        while began.elapsed() < life {
            for trader in &mut market.traders {
                trader.connect(addresses[2]);
            }
            (0..4).for_each(|_| market.act());
            market.turn(Duration::ZERO);
        }
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
    settle(&mut market, addresses[2]);
    check(&market);
    drop(ours);
    drop(venue);
    stored(&market, &gateway_toml, &folder);
}

/// Waits until every order has an answer, and nothing more comes.
fn settle(market: &mut Market, address: SocketAddr) {
    let began = Instant::now();
    let mut last = (0, Instant::now());
    loop {
        let mut are_back = true;
        for trader in &mut market.traders {
            are_back &= trader.connect(address);
        }
        market.turn(Duration::from_millis(5));
        let count: usize = market.traders.iter().map(|trader| trader.executions.len()).sum();
        let is_answered = market.traders.iter().all(|trader| trader.sent.is_subset(&trader.answered));
        if count != last.0 || !are_back {
            last = (count, Instant::now());
        }
        if is_answered && last.1.elapsed() > Duration::from_secs(1) {
            return;
        }
        let open = market.traders.iter().flat_map(|trader| trader.sent.difference(&trader.answered));
        assert!(began.elapsed() < PATIENCE, "without an answer: {:?}", open.take(5).collect::<Vec<_>>());
    }
}

fn check(market: &Market) {
    let mut sides: HashMap<u64, Vec<u64>> = HashMap::new();
    for (number, quantity) in market.traders.iter().flat_map(|trader| &trader.fills) {
        sides.entry(*number).or_default().push(*quantity);
    }
    assert!(sides.len() > 10, "only {} trades", sides.len());
    for (number, quantities) in &sides {
        assert!(matches!(quantities[..], [one, other] if one == other), "trade {number}: {quantities:?}");
    }
}

/// The gateway's store has the same, and puts out the same bytes once more.
fn stored(market: &Market, config: &str, folder: &Folder) {
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
    let open =
        market.traders.iter().flat_map(|trader| trader.orders.values()).filter(|(leaves, _)| *leaves > 0);
    assert_eq!(found["open_orders"], open.count(), "working orders");
    assert!(found["to_clients"].as_u64() > Some(100) && found["to_venue"].as_u64() > Some(100), "{found}");
}
