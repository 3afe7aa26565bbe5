//! A venue that repeats, invents, withholds, reorders and garbles its reports, and clients who trade there through a gateway: what they
//! know in the end is compared with the exchange's ledger.

use tapeworks_gateway::testing::{Happened, Ledger, Market};
use tapeworks_runtime::world::System;

use super::*;
use crate::support::orders::{Addresses, exchange_config, gateway_config};

/// Orders whose reports the venue spoils, and orders after them.
const SPOILT: usize = 1_500;
const SOUND: usize = 100;
/// How long it may take: each request that the venue leaves unanswered costs five seconds.
const LONGEST: Duration = Duration::from_secs(240);

/// The faults of the exchange.
fn faults(protocol: &str, seed: u64) -> String {
    // One costs an OUCH session a second, and a native one up to half a minute.
    let withheld = if protocol == "ouch" { 3_000 } else { 700 };
    format!(
        r#"
[orders.faults]
seed = {seed}
repeats_per_million = 20_000
inventions_per_million = 20_000
withheld_per_million = {withheld}
reorders_per_million = 20_000
garbled_per_million = 5_000
until_message = {SPOILT}
"#
    )
}

/// The entries of a ledger's file, and how many orders it has.
fn read_ledger(path: &str) -> Ledger {
    let mut ledger = Ledger::default();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        // The exchange may be writing the last one.
        let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let number = |key: &str| entry[key].as_u64().unwrap();
        let happened = match entry["event"].as_str().unwrap() {
            "accepted" => Happened::Accepted(number("quantity")),
            "filled" => Happened::Filled {
                match_id: number("match_number"),
                quantity: number("quantity"),
                price_e8: entry["price_e8"].as_i64().unwrap(),
                leaves: number("leaves"),
            },
            "replaced" => Happened::Replaced(number("leaves")),
            "ended" => Happened::Ended,
            other => panic!("{other}"),
        };
        ledger.enter(entry["order_id"].as_str().unwrap(), happened);
    }
    ledger
}

fn clients_agree_with_the_ledger(rounds: &mut Rounds, protocol: &str) {
    let seed = rounds.below(1 << 30) as u64;
    let what = format!("{protocol}, seed {seed} of TAPEWORKS_SEED={}", rounds.seed);
    let folder = Folder::new("hostile-venue");
    let (addresses, page) = (Addresses::free(600), free_port(604));
    let listen = addresses.clients;
    let exchange = exchange_config(&addresses, "", &faults(protocol, seed));
    let exchange = folder.write("orders.toml", exchange.as_bytes());
    let web = format!("[web]\naddress = \"{page}\"");
    let gateway = gateway_config(&addresses, protocol, &folder.path("gateway-store"), &web);
    let gateway = folder.write("gateway.toml", gateway.as_bytes());
    let ledger_file = folder.path("ledger");
    let exchange = start(&["exchange", "serve", &exchange, "--json", "--ledger", &ledger_file]);
    let gateway = Running::start(&["gateway", &gateway]);
    support::wait_for(|| get(page, "/ready").is_some());
    let mut random = Random::new(seed);
    let mut market = Market::<System, _>::new(move |bound| random.below(bound));
    let began = Instant::now();
    // Each order that the exchange accepts was a message to it.
    while read_ledger(&ledger_file).orders() < SPOILT + SOUND {
        assert!(began.elapsed() < LONGEST, "{what}: too few orders reach the exchange");
        for _ in 0..200 {
            market.connect(listen);
            market.act();
            market.turn(Duration::from_micros(500));
        }
        let status = status(page).unwrap();
        let is_behind = !status["behind"].as_array().unwrap().is_empty();
        assert!(!is_behind || status["is_ready"] == false, "{what}: ready without all reports: {status}");
    }
    // What was withheld is requested again until the venue sends it.
    let is_behind = || status(page)?["behind"].as_array().map(|behind| !behind.is_empty());
    while is_behind() != Some(false) {
        assert!(began.elapsed() < LONGEST, "{what}: reports stay missing");
        market.turn(Duration::from_millis(50));
    }
    market.settle(listen, PATIENCE).unwrap_or_else(|problem| panic!("{what}: {problem}"));
    let status = status(page).unwrap();
    signal(&exchange, "-INT");
    let report = ended(exchange, &what);
    is_sound(&report, &stderr(&report), &[0], &what);
    let report: serde_json::Value = serde_json::from_str(&stdout(&report)).unwrap();
    let faults = &report["exchanges"][0]["faults"];
    for fault in ["repeats", "inventions", "reorders", "garbled"] {
        assert!(faults[fault].as_u64() > Some(0), "{what}: {fault}: {faults}");
    }
    let counted = &status["translated"];
    for counter in ["repeated_executions", "doubtful", "unreadable"] {
        assert!(counted[counter].as_u64() > Some(0), "{what}: {counter}: {counted}");
    }
    let ledger = read_ledger(&ledger_file);
    let wrong = [market.faults(), ledger.faults(&market.traders)].concat();
    assert_eq!(wrong, Vec::<String>::new(), "{what}");
    println!(
        "{what}: {} orders, {} trades as the ledger has them; {faults}",
        ledger.orders(),
        market.trade_count()
    );
    gateway.stop();
}

#[test]
fn clients_of_a_venue_that_lies_learn_all_that_is_true_and_what_is_in_doubt() {
    let mut rounds = Rounds::new(13, 1);
    while rounds.next() {
        for protocol in ["native", "ouch"] {
            clients_agree_with_the_ledger(&mut rounds, protocol);
        }
    }
}
