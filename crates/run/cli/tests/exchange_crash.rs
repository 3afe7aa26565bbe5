//! An exchange that is killed at any moment goes on from its store: every report that a client has seen stays as it was, none is missing, and
//! none is there twice.
//!
//! `TAPEWORKS_KILLS=100` kills as often; the default is 5. `TAPEWORKS_SEED` gives the seed of the moments and of the orders; it is printed.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)]
mod order_clients;
mod support;
#[allow(dead_code)]
mod traders;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use order_clients::{Native, Ouch, now_ns, wait_until};
use support::{Folder, command, free_port};
use tapeworks_random::Random;
use tapeworks_wire::millennium::native::{ExecType, ExecutionReportFields, Side};
use tapeworks_wire::nasdaq::ouch50::inbound;
use traders::{E8, bytes, cancel, enter, name, order};

/// A running exchange; killed when it is dropped.
struct Exchange(Child);

impl Exchange {
    /// Starts it and waits until clients can connect.
    fn start(config: &str) -> Self {
        let mut child = command(&["exchange", "serve", config])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("restored from") && !said.contains("the store is empty") {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "the exchange ended: {said}");
            said.push_str(&line);
        }
        // A pipe that is not read blocks its writer.
        std::thread::spawn(move || log.lines().for_each(drop));
        Self(child)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The users, and the orders that they send.
struct Market {
    random: Random,
    natives: [Native; 2],
    ouch: Ouch,
    sent: u32,
}

impl Market {
    fn new(seed: u64, addresses: [SocketAddr; 3]) -> Self {
        let native = |user| Native::new(user, 2, [addresses[0], addresses[1]]);
        Self {
            random: Random::new(seed),
            natives: [native("ANN"), native("BOB")],
            ouch: Ouch::new("CAT", addresses[2]),
            sent: 0,
        }
    }

    fn turn(&mut self) {
        self.natives.iter_mut().for_each(Native::turn);
        self.ouch.turn();
    }

    /// A random user sends an order, or cancels one.
    fn act(&mut self) {
        self.sent += 1;
        let (number, price) = (self.sent, 100 + self.random.below(5));
        let (is_buy, quantity) = (self.random.below(2) == 0, 1 + self.random.below(200));
        let user = self.random.below(3) as usize;
        if let Some(native) = self.natives.get_mut(user) {
            let side = if is_buy { Side::Buy } else { Side::Sell };
            let message = match self.random.below(4) {
                0 => {
                    let earlier = format!("N{}", 1 + self.random.below(number));
                    cancel(&format!("C{number}"), &earlier, name(""), side).to_vec()
                }
                choice => {
                    let instrument = 1 + i32::from(choice == 1);
                    let price_e8 = i64::from(price) * E8;
                    order(&format!("N{number}"), instrument, side, quantity as i32, price_e8)
                        .encode()
                        .to_vec()
                }
            };
            // Not logged on: this order is not sent.
            let _unsent = native.client.send(&message, now_ns());
        } else {
            let side = if is_buy { inbound::Side::Buy } else { inbound::Side::Sell };
            let message = bytes(&enter(number, side, quantity, u64::from(price) * 10_000));
            let _unsent = self.ouch.client.send(&message, now_ns());
        }
    }

    fn cut(&mut self) {
        self.natives.iter_mut().for_each(Native::cut);
        self.ouch.cut();
    }
}

/// A count that grows until a client has everything.
struct Settled {
    count: usize,
    since: Instant,
}

impl Settled {
    fn new() -> Self {
        Self { count: 0, since: Instant::now() }
    }

    /// Whether the count has been the same for half a second.
    fn is_at(&mut self, count: usize) -> bool {
        if count != self.count {
            *self = Self { count, since: Instant::now() };
        }
        self.since.elapsed() > Duration::from_millis(500)
    }
}

/// What a user's reports say of each order: its client order id, what was executed, and whether it is gone.
fn check_reports(reports: &[ExecutionReportFields]) -> u64 {
    let mut executions = BTreeSet::new();
    let mut executed: BTreeMap<String, u64> = BTreeMap::new();
    let mut quantity = 0;
    for report in reports {
        assert!(executions.insert(report.execution_id), "reported twice: {report:?}");
        let sum = executed.entry(report.order_id.to_string()).or_default();
        match report.exec_type {
            ExecType::New => assert_eq!(*sum, 0, "{report:?}"),
            ExecType::Trade => {
                *sum += report.executed_qty as u64;
                quantity += report.executed_qty as u64;
            }
            _ => {}
        }
    }
    quantity
}

/// Says where a recovered day differs from what the user has seen.
fn assert_same(recovered: &[Vec<u8>], seen: &[Vec<u8>], user: &str) {
    let same = recovered.iter().zip(seen).take_while(|(recovered, seen)| recovered == seen).count();
    assert!(
        recovered == seen,
        "{user} recovers {} messages and has seen {}; after {same} of them {:x?} instead of {:x?}",
        recovered.len(),
        seen.len(),
        recovered.get(same),
        seen.get(same)
    );
}

#[test]
fn a_killed_exchange_goes_on_with_every_order_and_report() {
    let kills = number_from("TAPEWORKS_KILLS").unwrap_or(5);
    let seed = number_from("TAPEWORKS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("TAPEWORKS_SEED={seed} TAPEWORKS_KILLS={kills}");
    let folder = Folder::new("exchange-crash");
    let addresses = [40, 41, 42].map(free_port);
    let [real_time, recovery, ouch] = addresses;
    let config = format!(
        r#"
[[orders]]
name = "killed"
real_time = "{real_time}"
recovery = "{recovery}"
partitions = 2
throttle_per_second = 0
rejects_second_logon = false
store = "{}"
[[orders.user]]
name = "ANN"
password = "password"
cancels_on_disconnect = false
[[orders.user]]
name = "BOB"
password = "password"
[[orders.ouch_user]]
name = "CAT"
password = "password"
listen = "{ouch}"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
[[orders.symbol]]
name = "MSFT"
id = 2
partition = 2
"#,
        folder.path("store")
    );
    let config = folder.write("orders.toml", config.as_bytes());
    let mut market = Market::new(seed, addresses);
    for _ in 0..kills {
        let exchange = Exchange::start(&config);
        let life = Duration::from_micros(20_000 + u64::from(market.random.below(200_000)));
        let began = Instant::now();
        while began.elapsed() < life {
            market.act();
            market.turn();
        }
        drop(exchange);
        // What the exchange had sent is read, then the connections break.
        (0..100).for_each(|_| market.turn());
        market.cut();
    }
    // The last one is quiet until everybody has everything: a fresh client of each user recovers the whole day.
    let exchange = Exchange::start(&config);
    let mut quantity = 0;
    let natives = market.natives.iter_mut().zip(["ANN", "BOB"]);
    for (native, user) in natives {
        native.log_on();
        let mut fresh = Native::new(user, 2, [real_time, recovery]);
        let mut settled = Settled::new();
        wait_until("the user has all reports", || {
            native.turn();
            settled.is_at(native.reports.len())
        });
        native.cut();
        fresh.until("the fresh client recovers the day", |fresh| fresh.reports.len() >= settled.count);
        (0..100).for_each(|_| fresh.turn());
        // In order per App ID; between two of them the order is not said.
        let by_app_id = |reports: &[Vec<u8>]| {
            let mut all = reports.to_vec();
            all.sort_by_key(|report| (report[4], u32::from_le_bytes(*report[5..].first_chunk().unwrap())));
            all
        };
        assert!(!native.reports.is_empty(), "{user} did nothing");
        assert_same(&by_app_id(&fresh.reports), &by_app_id(&native.reports), user);
        quantity += check_reports(&native.executions());
    }
    market.ouch.until("CAT logs in", |ouch| ouch.client.is_logged_in());
    let mut settled = Settled::new();
    wait_until("CAT has all messages", || {
        market.ouch.turn();
        settled.is_at(market.ouch.messages.len())
    });
    market.ouch.cut();
    let mut fresh = Ouch::new("CAT", ouch);
    fresh.until("the fresh client recovers the day", |fresh| fresh.messages.len() >= settled.count);
    (0..100).for_each(|_| fresh.turn());
    assert_same(&fresh.messages, &market.ouch.messages, "CAT");
    assert!(quantity > 0, "nothing traded");
    drop(exchange);
}
