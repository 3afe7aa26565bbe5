//! Nanoseconds for a message through the translator, each direction.
//!
//! `cargo bench -p tapeworks-translate --bench translate`. A new order of some 170 bytes is framed, split, read and checked; risk
//! limits, the pools and the native bytes follow. A report of 155 bytes is read, changes the order's state, and becomes a FIX message
//! with its header, length and checksum. Sessions and sockets are excluded, and so is the forgetting of ended orders, which a host does
//! when it is idle (`keep_room`). A round has 256 different orders, then as many reports that accept them, then as many trades; 1,024 or
//! 65,536 orders are known. The figures are the fastest and the median of the rounds, per message.
//!
//! The last row is the whole path of an order, from the bytes that a client's session receives to the venue's bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench that cannot write its messages has no figures"
)]

mod path;
#[path = "../tests/reports/mod.rs"]
mod reports;

use std::hint::black_box;
use std::time::{Duration, Instant};

use path::{OrderPath, translator};
use reports::{Bytes, execution, numbered};
use tapeworks_fix_wire::order_entry::{
    HandlInst, NewOrderSingleFields, OrdType, OrderCapacity, Side, TimeInForce,
};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_wire::millennium::native::ExecType;
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

const ORDERS: usize = 256;
const ROUNDS: usize = 2_000;
/// Orders that are known at a time: the ended ones stay until their room is needed. The more there are, the more of the tables is outside the
/// caches.
const KNOWN: [usize; 2] = [1_024, 65_536];
const E8: i64 = 100_000_000;
const START_NS: u64 = 1_709_197_200_000_000_000;
const SYMBOLS: [&str; 3] = ["AAPL", "MSFT", "VOD.L"];

/// The limit of an order, at which it is filled.
fn price_e8(order: usize) -> i64 {
    (1 + order as i64 * 7 % 50_000) * E8 / 100
}

fn order(name: &str, number: usize, sequence: u64) -> Vec<u8> {
    let time = NanosecondsSinceEpoch(START_NS + number as u64 * 1_000_000);
    let fields = NewOrderSingleFields {
        account: Some(b"ACCT1"),
        handl_inst: Some(HandlInst::AutomatedPrivate),
        symbol: Some(SYMBOLS[number % 3].as_bytes()),
        order_qty: Some(Decimal((100 + number as i64 % 900) * E8)),
        price: Some(Decimal(price_e8(number))),
        time_in_force: Some(TimeInForce::Day),
        order_capacity: Some(OrderCapacity::Agency),
        ..NewOrderSingleFields::new(
            name.as_bytes(),
            if number.is_multiple_of(2) { Side::Buy } else { Side::Sell },
            time,
            OrdType::Limit,
        )
    };
    numbered(b"D", sequence, |writer| fields.write(writer))
}

fn print(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    println!("{name:<32} {:>7.1} ns  median {:>7.1} ns", times[0], times[times.len() / 2]);
}

fn main() {
    KNOWN.into_iter().for_each(measure);
    measure_rare();
    measure_path();
}

/// Rounds of the whole path: its orders stay open, so all of them need room.
const ROUNDS_OF_PATH: usize = 200;

/// The path of an order with its session.
fn measure_path() {
    let most_orders = ORDERS * ROUNDS_OF_PATH;
    let mut path = OrderPath::new(translator(&SYMBOLS, most_orders), Bytes::default(), START_NS);
    let mut times = Vec::new();
    for round in 0..ROUNDS_OF_PATH {
        let order =
            |each| order(&format!("ORD-{round}-{each:08X}"), each, (2 + round * ORDERS + each) as u64);
        let orders: Vec<Vec<u8>> = (0..ORDERS).map(order).collect();
        let start = Instant::now();
        for message in &orders {
            path.receive(message, START_NS);
        }
        times.push(start.elapsed().as_nanos() as f64 / ORDERS as f64);
    }
    assert_eq!(path.requests() as usize, most_orders, "every order goes out");
    print("new order, session to native", times);
}

/// Orders that come one by one, with the path warmed before each other one.
const RARE_ORDERS: usize = 400;
const PAUSE: Duration = Duration::from_millis(10);
/// More than the caches have.
const EVICTING_BYTES: usize = 128 << 20;

/// The first order after ten milliseconds in which other work has had the caches, as it comes and after [`Translator::warm`].
fn measure_rare() {
    let mut translator = translator(&SYMBOLS, 65_536);
    translator.prepare_to_warm();
    let mut out = Bytes::default();
    let mut others = vec![1u8; EVICTING_BYTES];
    let (mut cold_ns, mut warm_ns) = (Vec::new(), Vec::new());
    for number in 0..RARE_ORDERS {
        let message = order(&format!("RARE-{number:08X}"), number, 2);
        std::thread::sleep(PAUSE);
        others.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        // The message has just come from the network.
        black_box(message.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        let is_warmed = number % 2 == 1;
        if is_warmed {
            translator.warm(START_NS);
        }
        let start = Instant::now();
        translator.client_bytes(ClientIndex(0), &message, START_NS, &mut out);
        let times = if is_warmed { &mut warm_ns } else { &mut cold_ns };
        times.push(start.elapsed().as_nanos() as f64);
    }
    black_box(&others);
    assert_eq!(translator.counters().requests as usize, RARE_ORDERS, "every order goes out, and no other");
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (cold, warm) = (median(&mut cold_ns), median(&mut warm_ns));
    println!("a new order each 10 ms, the caches evicted between: median of {}", RARE_ORDERS / 2);
    println!("{:<32} {cold:>7.0} ns", "cold");
    println!("{:<32} {warm:>7.0} ns  {:.2} of cold", "warmed", warm / cold);
}

fn measure(known: usize) {
    let (mut orders_ns, mut accepted_ns, mut trades_ns) = (Vec::new(), Vec::new(), Vec::new());
    let mut translator = translator(&SYMBOLS, known);
    let mut out = Bytes::default();
    let mut number = 0;
    for round in 0..ROUNDS {
        let names: Vec<String> = (0..ORDERS).map(|each| format!("ORD-{round}-{each:08X}")).collect();
        let orders: Vec<Vec<u8>> =
            names.iter().enumerate().map(|(each, name)| order(name, each, 2)).collect();
        let mut reports = |kind, last, leaves| -> Vec<_> {
            let each = names.iter().enumerate().map(|(each, name)| {
                number += 1;
                execution(number, kind, name, (round * ORDERS + each) as u64, price_e8(each), last, leaves)
            });
            each.collect()
        };
        let (accepted, trades) = (reports(ExecType::New, 0, 100), reports(ExecType::Trade, 100, 0));
        translator.keep_room(ORDERS);
        let start = Instant::now();
        for message in &orders {
            translator.client_bytes(ClientIndex(0), message, START_NS, &mut out);
        }
        orders_ns.push(start.elapsed().as_nanos() as f64 / ORDERS as f64);
        for (messages, times) in [(&accepted, &mut accepted_ns), (&trades, &mut trades_ns)] {
            let start = Instant::now();
            for message in messages {
                translator.venue_report(message, &mut out);
            }
            times.push(start.elapsed().as_nanos() as f64 / ORDERS as f64);
        }
    }
    let counters = translator.counters();
    assert_eq!(counters.fills as usize, ORDERS * ROUNDS, "every order trades");
    assert_eq!(counters.refused, 0);
    println!("{known} orders known");
    print("new order, FIX to native", orders_ns);
    print("accepted, native to FIX", accepted_ns);
    print("trade, native to FIX", trades_ns);
}
