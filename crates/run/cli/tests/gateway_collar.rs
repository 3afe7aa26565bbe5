//! A gateway that checks prices against a plant's quotes in shared memory.

#![allow(clippy::unwrap_used, missing_docs)]

mod collar;
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use collar::{NO_PRICE, configs};
use support::process::Process;
use support::trader::Trader;
use support::{Folder, free_port, run, stderr};
use tapeworks_market::Symbol;
use tapeworks_market::shared::{QUOTES_MEANING, QuotePlace, QuotesWriter, SharedQuote, quotes_path};

const OUTSIDE: &str = "The price is outside the collar around the top of book";

/// The shared quotes of a plant. A thread renews their heartbeat.
struct Plant {
    quotes: Arc<Mutex<QuotesWriter>>,
    place: QuotePlace,
    hangs: Arc<AtomicBool>,
}

impl Plant {
    fn start(path: &Path) -> Self {
        let mut quotes = QuotesWriter::create(path, 16, QUOTES_MEANING).unwrap();
        let place = quotes.place(&Symbol::parse("AAPL").unwrap().into()).unwrap();
        let plant = Self { quotes: Arc::new(Mutex::new(quotes)), place, hangs: Arc::default() };
        let (quotes, hangs) = (Arc::downgrade(&plant.quotes), Arc::clone(&plant.hangs));
        std::thread::spawn(move || {
            let mut beats = 0;
            while let Some(quotes) = quotes.upgrade() {
                if !hangs.load(Ordering::Relaxed) {
                    beats += 1;
                    quotes.lock().unwrap().beat(beats);
                }
                drop(quotes);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        plant
    }

    fn set(&self, quote: &SharedQuote) {
        self.quotes.lock().unwrap().set(self.place, quote);
    }

    fn hangs(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }
}

#[test]
fn a_collar_is_around_the_plants_quote_and_without_one_orders_are_refused() {
    let folder = Folder::new("gateway-collar");
    let addresses = [80, 81, 82].map(free_port);
    let memory = folder.path("memory");
    let market = format!("[market]\nshared_memory = \"{memory}\"\n");
    let [exchange, gateway] = configs(&folder, "AAPL", addresses, &market);
    let _exchange = Process::start(&["exchange", "serve", &exchange], &["no store"]);
    let _gateway = Process::start(&["gateway", &gateway], &["FIX clients are served"]);
    let mut trader = Trader::connect(addresses[2], "ALPHA");
    // Until the venue's session is there, orders are refused for that.
    trader.order_until("new AAPL buy 100 @10", "orders do not pass", |_, text| text == NO_PRICE);
    // The plant comes later than the gateway.
    let plant = Plant::start(&quotes_path(Path::new(&memory)));
    let (bid, ask) = (9_990_000_000, 10_000_000_000);
    let quote = SharedQuote { bid, ask, ts_recv: 1, bid_size: 1, ask_size: 1, flags: 0, reserved: [0; 7] };
    plant.set(&quote);
    trader.order_until("new AAPL buy 100 @10.1", "the prices are not found", |_, text| text != NO_PRICE);
    assert_eq!(trader.order("new AAPL buy 100 @10.1").0, "0", "one percent above the offer");
    assert_eq!(trader.order("new AAPL buy 100 @10.11"), ("8".to_owned(), OUTSIDE.to_owned()));
    plant.set(&SharedQuote { ask: 10_010_000_000, ..quote });
    assert_eq!(trader.order("new AAPL buy 100 @10.11").0, "0", "each order sees the latest quote");
    plant.set(&SharedQuote { flags: 0x04, ..quote });
    assert_eq!(trader.order("new AAPL buy 100 @10"), ("8".to_owned(), NO_PRICE.to_owned()), "a stale book");
    plant.set(&quote);
    assert_eq!(trader.order("new AAPL buy 100 @10").0, "0");
    // It hangs, and holds the file with its last prices.
    plant.hangs(true);
    trader.order_until("new AAPL buy 100 @10", "prices of a plant that hangs", |_, text| text == NO_PRICE);
    plant.hangs(false);
    trader.order_until("new AAPL buy 100 @10", "the prices do not come back", |kind, _| kind == "0");
    drop(plant);
    trader.order_until("new AAPL buy 100 @10", "the plant has ended and still has prices", |_, text| {
        text == NO_PRICE
    });
}

#[test]
fn a_collar_without_prices_is_an_error_of_the_configuration() {
    let folder = Folder::new("gateway-collar-check");
    let [_, gateway] = configs(&folder, "AAPL", [83, 84, 85].map(free_port), "");
    let checked = run(&["gateway", "check", &gateway]);
    assert_eq!(checked.status.code(), Some(78));
    assert!(
        stderr(&checked).contains("client 'alpha' has collar_basis_points, and there is no [market]"),
        "{}",
        stderr(&checked)
    );
}

#[test]
fn a_limit_of_open_orders_above_the_room_for_orders_is_an_error_of_the_configuration() {
    let folder = Folder::new("gateway-room-check");
    let more = "most_open_orders = 2_000_000\n[market]\nshared_memory = \"memory\"\n";
    let [_, gateway] = configs(&folder, "AAPL", [86, 87, 88].map(free_port), more);
    let checked = run(&["gateway", "check", &gateway]);
    assert_eq!(checked.status.code(), Some(78));
    let expected = "client 'alpha' has most_open_orders = 2000000, and there is room for 65536 orders";
    assert!(stderr(&checked).contains(expected), "{}", stderr(&checked));
}
