//! An order of FIX to native bytes, its reports to FIX bytes, and the whole path of an order.

#[path = "../../../crates/orders/translate/benches/path/mod.rs"]
mod path;
#[path = "../../../crates/orders/translate/tests/reports/mod.rs"]
mod reports;

use path::{OrderPath, translator};
use reports::{Bytes, execution, numbered};
use tapeworks_fix_wire::order_entry::{
    HandlInst, NewOrderSingleFields, OrdType, OrderCapacity, Side, TimeInForce,
};
use tapeworks_fix_wire::{Parsed, Parts};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_wire::millennium::native::ExecType;
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

/// Orders whose messages are counted, behind as many that warm up.
const ORDERS: usize = 4_096;
const E8: i64 = 100_000_000;
const TIME: NanosecondsSinceEpoch = NanosecondsSinceEpoch(1_709_197_200_000_000_000);
const SYMBOLS: [&str; 3] = ["AAPL", "MSFT", "VOD.L"];

/// Runs `counted` over the orders (or their reports: accepted and filled). Returns the messages in it.
pub(crate) fn run(is_of_reports: bool, counted: fn(&mut dyn FnMut())) -> u64 {
    let (mut translator, mut out) = (translator(&SYMBOLS, 2 * ORDERS), Bytes::default());
    for part in 0..2 {
        let names: Vec<String> = (0..ORDERS).map(|order| format!("ORD-{part}-{order:08X}")).collect();
        let orders: Vec<Vec<u8>> =
            names.iter().enumerate().map(|(order, name)| new_order(name, order, 2, time_of(order))).collect();
        let mut buffers: Vec<Parts> = names.iter().map(|_| Parts::default()).collect();
        let parsed: Vec<Parsed<'_>> =
            orders.iter().zip(&mut buffers).filter_map(|(order, buffer)| buffer.parse(order)).collect();
        let mut reports = Vec::new();
        for (kind, last, leaves) in [(ExecType::New, 0, 100), (ExecType::Trade, 100, 0)] {
            for (order, name) in names.iter().enumerate() {
                let number = part * 2 * ORDERS as i32 + reports.len() as i32 + 1;
                let venue_order = (part as usize * ORDERS + order) as u64;
                reports.push(execution(number, kind, name, venue_order, price_e8(order), last, leaves));
            }
        }
        let mut send = || {
            for message in &parsed {
                translator.client_message(ClientIndex(0), message, TIME.0, &mut out);
            }
        };
        if part == 1 && !is_of_reports {
            counted(&mut send)
        } else {
            send()
        }
        let mut report = || {
            for message in &reports {
                translator.venue_report(message, &mut out);
            }
        };
        if part == 1 && is_of_reports { counted(&mut report) } else { report() }
    }
    // Each order went out, and each report came in: otherwise there is nothing to count.
    let is_whole = translator.counters().fills == 2 * ORDERS as u64;
    let per_order = if is_of_reports { 2 } else { 1 };
    u64::from(is_whole) * ORDERS as u64 * per_order
}

/// Runs `counted` over orders that go through a client's session to the translator. Returns the messages in it.
pub(crate) fn run_with_session(counted: fn(&mut dyn FnMut())) -> u64 {
    let mut path = OrderPath::new(translator(&SYMBOLS, 2 * ORDERS), Bytes::default(), TIME.0);
    let order = |number| new_order(&format!("ORD-0-{number:08X}"), number, 2 + number as u64, TIME.0);
    let orders: Vec<Vec<u8>> = (0..2 * ORDERS).map(order).collect();
    let (warm_up, rest) = orders.split_at(ORDERS);
    let mut receive = |orders: &[Vec<u8>]| orders.iter().for_each(|order| path.receive(order, TIME.0));
    receive(warm_up);
    counted(&mut || receive(rest));
    u64::from(path.requests() == 2 * ORDERS as u64) * ORDERS as u64
}

/// The limit of an order, at which it is filled.
fn price_e8(order: usize) -> i64 {
    (1 + order as i64 * 7 % 50_000) * E8 / 100
}

/// When the order `number` was made.
fn time_of(number: usize) -> u64 {
    TIME.0 + number as u64 * 1_000_000
}

/// Writes a new order with this MsgSeqNum and TransactTime.
fn new_order(name: &str, number: usize, sequence: u64, time_ns: u64) -> Vec<u8> {
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
            NanosecondsSinceEpoch(time_ns),
            OrdType::Limit,
        )
    };
    numbered(b"D", sequence, |writer| fields.write(writer))
}
