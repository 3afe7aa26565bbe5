//! A venue that repeats, invents, withholds, reorders and garbles its reports, and clients who trade there through a gateway: what they
//! know in the end is compared with the exchange's ledger.

use tapeworks_gateway::testing::{Happened, Ledger, Market, NAMES};
use tapeworks_runtime::world::System;

use super::*;

/// Orders whose reports the venue spoils, and orders after them.
const SPOILT: usize = 1_500;
const SOUND: usize = 100;
/// How long it may take: each request that the venue leaves unanswered costs five seconds.
const LONGEST: Duration = Duration::from_secs(240);

fn exchange_config(folder: &Folder, addresses: [SocketAddr; 3], protocol: &str, seed: u64) -> String {
    // One costs an OUCH session a second, and a native one up to half a minute.
    let withheld = if protocol == "ouch" { 3_000 } else { 700 };
    let [real_time, recovery, ouch] = addresses;
    let text = format!(
        r#"
[[orders]]
name = "Exchange"
real_time = "{real_time}"
recovery = "{recovery}"
partitions = 2
throttle_per_second = 0
heartbeat = "500ms"
[[orders.user]]
name = "TW01"
password = "password"
cancels_on_disconnect = false
[[orders.ouch_user]]
name = "TW01"
password = "password"
listen = "{ouch}"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
reference_price = "102"
[[orders.symbol]]
name = "MSFT"
id = 2
partition = 2
reference_price = "102"
[orders.faults]
seed = {seed}
repeats_per_million = 20_000
inventions_per_million = 20_000
withheld_per_million = {withheld}
reorders_per_million = 20_000
garbled_per_million = 5_000
until_message = {SPOILT}
"#
    );
    folder.write("orders.toml", text.as_bytes())
}

fn gateway_config(folder: &Folder, venue: &str, [listen, page]: [SocketAddr; 2]) -> String {
    let clients: String = NAMES
        .map(|name| {
            format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\nbegin_string = \"FIXT.1.1\"\n")
        })
        .concat();
    let store = folder.path("gateway-store");
    let text = format!(
        r#"
listen = "{listen}"
[store]
folder = "{store}"
[venue]
{venue}
user = "TW01"
password = "password"
first_reconnect = "50ms"
longest_reconnect = "200ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[instrument]]
symbol = "MSFT"
id = 2
partition = 2
[web]
address = "{page}"
[client_defaults]
may_sell_short = true
{clients}"#
    );
    folder.write("gateway.toml", text.as_bytes())
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
    let [real_time, recovery, ouch, listen, page] = [600, 601, 602, 603, 604].map(free_port);
    let venue = match protocol {
        "native" => format!(
            "protocol = \"millennium\"\nreal_time = \"{real_time}\"\nrecovery = \"{recovery}\"\npartitions = 2\n\
             throttle_per_second = 0\nheartbeat = \"500ms\""
        ),
        _ => format!("protocol = \"ouch\"\naddress = \"{ouch}\""),
    };
    let ledger_file = folder.path("ledger");
    let exchange = exchange_config(&folder, [real_time, recovery, ouch], protocol, seed);
    let exchange = start(&["exchange", "serve", &exchange, "--json", "--ledger", &ledger_file]);
    let gateway = Running::start(&["gateway", &gateway_config(&folder, &venue, [listen, page])]);
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
