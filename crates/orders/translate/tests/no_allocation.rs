//! After start-up a translator takes no memory: orders out, reports in, cancels, refusals, forgotten orders.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

mod reports;

use reports::{Bytes, execution, written};
use tapeworks_fix_wire::order_entry::{NewOrderSingleFields, OrdType, OrderCancelRequestFields, Side};
use tapeworks_ring::counting::{CountingAllocator, allocations};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{
    ClientSettings, Instrument, Millennium, MillenniumSettings, Reference, RiskLimits, Settings, Translator,
};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::ExecType;
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const E8: i64 = 100_000_000;
const TIME: NanosecondsSinceEpoch = NanosecondsSinceEpoch(1_709_197_200_000_000_000);

#[test]
fn a_translator_takes_no_memory_after_start_up() {
    let instrument = Instrument {
        symbol: Ascii::new("AAPL").unwrap(),
        security_id: Ascii::default(),
        venue_id: 11,
        tick_e8: 1,
        has_negative_prices: false,
        partition: 1,
        segment: Ascii::default(),
    };
    let limits = RiskLimits { most_quantity: 1_000, orders_per_second: 1_000, ..RiskLimits::default() };
    let client = ClientSettings { limits, ..ClientSettings::default() };
    let reference = Reference::new(&[instrument], &[]).unwrap();
    let settings = Settings { most_orders: 64, most_requests: 256, ..Settings::default() };
    let venue = Millennium::new(MillenniumSettings::default());
    let mut translator = Translator::new(venue, reference, &[client], &settings);
    translator.venue_connected();
    translator.venue_recovered();
    translator.prepare_to_warm();
    let mut out = Bytes::default();
    let mut number = 0;
    let mut taken = 0;
    for turn in 0..1_000u64 {
        let (name, cancel_name) = (format!("ORDER-{turn}"), format!("CANCEL-{turn}"));
        let new = |quantity: i64| {
            let fields = NewOrderSingleFields {
                symbol: Some(b"AAPL"),
                order_qty: Some(Decimal(quantity * E8)),
                price: Some(Decimal(10 * E8)),
                ..NewOrderSingleFields::new(name.as_bytes(), Side::Buy, TIME, OrdType::Limit)
            };
            written(b"D", |writer| fields.write(writer))
        };
        let fields = OrderCancelRequestFields::new(name.as_bytes(), cancel_name.as_bytes(), Side::Buy, TIME);
        let cancel = written(b"F", |writer| fields.write(writer));
        let mut report = |kind, name: &str, last, leaves| {
            number += 1;
            execution(number, kind, name, turn, 10 * E8, last, leaves)
        };
        let reports = [
            report(ExecType::New, &name, 0, 100),
            report(ExecType::Trade, &name, 40, 60),
            report(ExecType::Cancelled, &cancel_name, 0, 0),
        ];
        let (order, too_much) = (new(100), new(2_000));
        let now_ns = TIME.0 + turn * 10_000_000;
        let before = allocations();
        translator.warm(now_ns);
        translator.client_bytes(ClientIndex(0), &too_much, now_ns, &mut out);
        translator.client_bytes(ClientIndex(0), &order, now_ns, &mut out);
        translator.venue_report(&reports[0], &mut out);
        translator.client_bytes(ClientIndex(0), &cancel, now_ns, &mut out);
        translator.venue_report(&reports[1], &mut out);
        translator.venue_report(&reports[2], &mut out);
        translator.venue_report(&reports[2], &mut out);
        taken += allocations() - before;
    }
    assert_eq!(taken, 0);
    let counters = translator.counters();
    assert_eq!((counters.requests, counters.fills, counters.refused), (2_000, 1_000, 1_000));
    assert_eq!((counters.repeated_reports, counters.forgotten, counters.unknown_orders), (1_000, 936, 0));
    assert_eq!((out.to_venue, out.to_clients), (2_000, 4_000));
}
