//! A gateway that checks prices against a plant's quotes in shared memory.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use support::process::Process;
use support::{Folder, free_port, run, stderr};
use tapeworks_gateway::client::FixClient;
use tapeworks_gateway::order_line::{OrderBook, OrderLine};
use tapeworks_market::Symbol;
use tapeworks_market::shared::{QUOTES_MEANING, QuotesWriter, SharedQuote, quotes_path};
use tapeworks_runtime::world::System;
use tapeworks_session::fix::{Role, Settings};
use tapeworks_wire::fix::field;

const PATIENCE: Duration = Duration::from_secs(20);

const NO_PRICE: &str = "No top of book to check the order against";
const OUTSIDE: &str = "The price is outside the collar around the top of book";

fn configs(folder: &Folder, [real_time, recovery, listen]: [SocketAddr; 3], memory: &str) -> [String; 2] {
    let exchange = format!(
        r#"
[[orders]]
name = "Exchange"
real_time = "{real_time}"
recovery = "{recovery}"
[[orders.user]]
name = "TW01"
password = "password"
[[orders.symbol]]
name = "AAPL"
id = 1
"#
    );
    let gateway = format!(
        r#"
listen = "{listen}"
[store]
folder = "{}"
segment_mb = 1
[venue]
protocol = "millennium"
real_time = "{real_time}"
recovery = "{recovery}"
user = "TW01"
password = "password"
[[instrument]]
symbol = "AAPL"
id = 1
[[client]]
name = "alpha"
comp_id = "ALPHA"
collar_basis_points = 100
{memory}"#,
        folder.path("gateway-store"),
    );
    [("orders.toml", exchange), ("gateway.toml", gateway)]
        .map(|(name, text)| folder.write(name, text.as_bytes()))
}

/// Sends an order; returns ExecType (150) and Text (58) of its first report.
fn order(client: &mut FixClient<System>, book: &mut OrderBook, line: &str) -> (String, String) {
    let line = OrderLine::parse(line).unwrap().unwrap();
    let (kind, fields) = book.message(&line, client.now_ns()).unwrap();
    client.send(kind, &fields).unwrap();
    let began = Instant::now();
    loop {
        client.turn(Duration::from_millis(20)).unwrap();
        if let Some(message) = client.next_message() {
            let text = |tag| String::from_utf8_lossy(field(&message, tag).unwrap_or_default()).into_owned();
            return (text(150), text(58));
        }
        assert!(began.elapsed() < PATIENCE, "no report");
    }
}

#[test]
fn a_collar_is_around_the_plants_quote_and_without_one_orders_are_refused() {
    let folder = Folder::new("gateway-collar");
    let addresses = [80, 81, 82].map(free_port);
    let memory = folder.path("memory");
    let [exchange, gateway] =
        configs(&folder, addresses, &format!("[market]\nshared_memory = \"{memory}\"\n"));
    let _exchange = Process::start(&["exchange", "serve", &exchange], &["no store"]);
    let _gateway = Process::start(&["gateway", &gateway], &["FIX clients are served"]);
    let settings = Settings::new(Role::Initiator, "FIX.4.4", "ALPHA", "TAPEWORKS");
    let mut client = FixClient::<System>::connect(addresses[2], settings, None, PATIENCE).unwrap();
    let mut book = OrderBook::new("A");
    let mut order = |line: &str| order(&mut client, &mut book, line);
    // Until the venue's session is there, orders are refused for that.
    let began = Instant::now();
    while order("new AAPL buy 100 @10").1 != NO_PRICE {
        assert!(began.elapsed() < PATIENCE, "orders do not pass");
    }
    // The plant comes later than the gateway.
    let mut plant = QuotesWriter::create(&quotes_path(Path::new(&memory)), 16, QUOTES_MEANING).unwrap();
    let place = plant.place(&Symbol::parse("AAPL").unwrap().into()).unwrap();
    let (bid, ask) = (9_990_000_000, 10_000_000_000);
    let quote = SharedQuote { bid, ask, ts_recv: 1, bid_size: 1, ask_size: 1, flags: 0, reserved: [0; 7] };
    plant.set(place, &quote);
    while order("new AAPL buy 100 @10.1").1 == NO_PRICE {
        assert!(began.elapsed() < PATIENCE, "the prices are not found");
    }
    assert_eq!(order("new AAPL buy 100 @10.1").0, "0", "one percent above the offer");
    assert_eq!(order("new AAPL buy 100 @10.11"), ("8".to_owned(), OUTSIDE.to_owned()));
    plant.set(place, &SharedQuote { ask: 10_010_000_000, ..quote });
    assert_eq!(order("new AAPL buy 100 @10.11").0, "0", "each order sees the latest quote");
    plant.set(place, &SharedQuote { flags: 0x04, ..quote });
    assert_eq!(order("new AAPL buy 100 @10"), ("8".to_owned(), NO_PRICE.to_owned()), "a stale book");
    plant.set(place, &quote);
    assert_eq!(order("new AAPL buy 100 @10").0, "0");
    drop(plant);
    while order("new AAPL buy 100 @10").1 != NO_PRICE {
        assert!(began.elapsed() < PATIENCE, "prices of a plant that is gone");
    }
}

#[test]
fn a_collar_without_prices_is_an_error_of_the_configuration() {
    let folder = Folder::new("gateway-collar-check");
    let [_, gateway] = configs(&folder, [83, 84, 85].map(free_port), "");
    let checked = run(&["gateway", "check", &gateway]);
    assert_eq!(checked.status.code(), Some(78));
    assert!(
        stderr(&checked).contains("client 'alpha' has collar_basis_points, and there is no [market]"),
        "{}",
        stderr(&checked)
    );
}
