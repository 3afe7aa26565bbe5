//! A short session at three feeds, written by hand so that every expected record can be too.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use tapeworks_market::event::{Definition, Gap, Imbalance, Session, Status, StatusAction};
use tapeworks_market::luld::PriceBands;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, Flags, InstrumentId, Instruments, Line, NbboStage,
    NbboUpdate, Price, Publisher, Side, Symbol,
};
use tapeworks_stage::Stage;
use tapeworks_store::{Options, Schema, StoreError, Summary, Writer};
use tapeworks_time::Nanos;

/// 2026-06-01 13:30:00 UTC.
pub(crate) const START: u64 = 1_780_320_600_000_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const AAA: InstrumentId = InstrumentId(0);
pub(crate) const BBB: InstrumentId = InstrumentId(1);
pub(crate) const XNAS: Publisher = Publisher::XNAS_ITCH;
pub(crate) const TOPS: Publisher = Publisher::IEXG_TOPS;
pub(crate) const DEEP: Publisher = Publisher::IEXG_DEEP;

pub(crate) fn instruments() -> Instruments {
    let mut instruments = Instruments::default();
    instruments.intern(Symbol::from_bytes(b"AAA").unwrap());
    instruments.intern(Symbol::from_bytes(b"BBB").unwrap());
    instruments
}

pub(crate) fn dollars(text: &str) -> Option<Price> {
    let value: f64 = text.parse().unwrap();
    Price::from_e9((value * 1e4).round() as i64 * 100_000)
}

/// The n-th event: `n` is its sequence number, milliseconds after the start and microseconds on the way.
pub(crate) fn event(n: u64, kind: EventKind, publisher: Publisher, instrument: InstrumentId) -> Event {
    let mut event = Event::new(kind, publisher, instrument);
    event.ts_event = Nanos(START + n * 1_000_000);
    event.ts_recv = Nanos(START + n * 1_000_000 + n * 1_000);
    event.channel_sequence = n;
    event
}

pub(crate) fn add(n: u64, id: u64, side: Side, price: &str, size: u32) -> Event {
    Event { order_id: id, side, price: dollars(price), size, ..event(n, EventKind::Add, XNAS, AAA) }
}

pub(crate) fn of_order(n: u64, kind: EventKind, id: u64, size: u32) -> Event {
    Event { order_id: id, size, ..event(n, kind, XNAS, AAA) }
}

pub(crate) fn quote(n: u64, side: Side, price: &str, size: u32, is_last: bool) -> Event {
    let flags = if is_last { Flags::LAST.with(Flags::TOP_OF_BOOK) } else { Flags::TOP_OF_BOOK };
    Event { side, price: dollars(price), size, ..event(n, EventKind::Quote, TOPS, AAA) }.with_flags(flags)
}

pub(crate) fn level(n: u64, side: Side, price: &str, size: u32, is_last: bool) -> Event {
    let flags = if is_last { Flags::LAST.with(Flags::MARKET_BY_PRICE) } else { Flags::MARKET_BY_PRICE };
    Event { side, price: dollars(price), size, ..event(n, EventKind::Level, DEEP, BBB) }.with_flags(flags)
}

pub(crate) const THE_STATUS: Status = Status {
    action: StatusAction::Trading,
    reason: 0,
    is_trading: Some(true),
    is_quoting: None,
    is_short_sell_restricted: Some(false),
};

pub(crate) fn the_imbalance() -> Imbalance {
    Imbalance {
        paired: 5_000,
        imbalance: 700,
        market_imbalance: Some(300),
        side: Side::Bid,
        auction_type: b'C',
        variation: b'L',
        extensions: 2,
        auction_time: Some(Nanos(START + 3_600 * SECOND)),
        reference_price: dollars("10.02"),
        continuous_clearing_price: dollars("10.03"),
        auction_clearing_price: None,
        indicative_price: dollars("10.04"),
        upper_collar: dollars("11"),
        lower_collar: dollars("9"),
    }
}

/// They hold, but there is no lower one.
pub(crate) fn the_bands() -> PriceBands {
    let effective = Nanos(START + 27_500_000);
    PriceBands { lower: None, upper: dollars("11.03"), indicator: b'B', effective }
}

/// Every kind of event there is.
pub(crate) fn session() -> Vec<Event> {
    let definition = Definition {
        round_lot: 100,
        reference_price: None,
        tick: dollars("0.01"),
        class: b'Q',
        listing: b'Q',
        is_test: false,
        is_etp: true,
    };
    let execution = of_order(10, EventKind::Execute, 1, 100);
    let priced = Event { price: dollars("10.005"), ..of_order(11, EventKind::Execute, 1, 50) };
    let mut hidden =
        Event { price: dollars("10.01"), size: 30, aux: 77, ..event(12, EventKind::Trade, XNAS, AAA) };
    hidden.set_line(Line::B);
    let not_printable = Event { detail: Event::NOT_PRINTABLE, ..of_order(13, EventKind::Execute, 4, 10) };
    let empty_cross = Event { detail: Event::CROSS, ..event(14, EventKind::Trade, XNAS, AAA) };
    let replace = Event { aux: 5, price: dollars("10.04"), ..of_order(16, EventKind::Replace, 2, 400) };
    let [imbalance, prices] = event(18, EventKind::Other, XNAS, AAA).with_imbalance(the_imbalance());
    let mut later = quote(25, Side::Bid, "10.01", 100, true);
    later.ts_recv = Nanos(START + 61 * SECOND);
    let mut trade_later = Event {
        price: dollars("10.02"),
        size: 40,
        side: Side::Ask,
        ..event(26, EventKind::Trade, TOPS, AAA)
    };
    trade_later.ts_recv = Nanos(START + 61 * SECOND + 5);
    let mut clear = event(27, EventKind::Clear, XNAS, InstrumentId::ALL);
    clear.ts_recv = Nanos(START + 62 * SECOND);
    let mut bands = event(28, EventKind::Other, Publisher::SIP_UTP, AAA).with_price_bands(the_bands());
    bands.ts_recv = Nanos(START + 62 * SECOND);
    vec![
        event(1, EventKind::Definition, XNAS, AAA).with_definition(definition),
        event(2, EventKind::Status, XNAS, AAA).with_status(THE_STATUS),
        event(3, EventKind::Session, XNAS, InstrumentId::ALL).with_session(Session::StartOfMarketHours),
        add(4, 1, Side::Bid, "10.00", 300),
        add(5, 2, Side::Ask, "10.05", 200),
        add(6, 3, Side::Bid, "9.99", 100),
        add(7, 4, Side::Ask, "10.06", 100),
        of_order(8, EventKind::Cancel, 1, 150),
        of_order(9, EventKind::Delete, 99, 0),
        execution,
        priced,
        hidden,
        not_printable,
        empty_cross,
        event(15, EventKind::TradeBreak, XNAS, AAA),
        replace,
        of_order(17, EventKind::Delete, 3, 0),
        imbalance,
        prices,
        quote(19, Side::Bid, "10.01", 500, false),
        quote(19, Side::Ask, "10.03", 600, true),
        level(20, Side::Bid, "20.00", 100, false),
        level(20, Side::Bid, "19.00", 300, true),
        level(21, Side::Ask, "20.10", 200, true),
        level(22, Side::Ask, "20.10", 0, true),
        event(23, EventKind::Gap, XNAS, InstrumentId::ALL).with_gap(Gap { first: 23, count: 2 }),
        later,
        trade_later,
        clear,
        bands,
    ]
}

/// A place of a test's own, emptied.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store").join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Puts `events` through books and NBBO into `writer`.
pub(crate) fn put_all(writer: &mut Writer, events: &[Event]) -> Result<(), StoreError> {
    let instruments = instruments();
    let small = Capacity { instruments: 4, orders: 64, levels: 64 };
    let mut books = BookStage::new([(XNAS, small), (TOPS, small), (DEEP, small)]);
    let mut nbbo = NbboStage::new(NbboRules::default(), [XNAS, TOPS, DEEP], 4);
    let mut result = Ok(());
    books.process(events, &mut |update: BookUpdate<'_>| {
        nbbo.process(&[update], &mut |update: NbboUpdate<'_>| {
            if result.is_ok() {
                result = writer.put(&update, &instruments);
            }
        });
    });
    result
}

/// Writes `events` to `path`.
pub(crate) fn write(path: &Path, schema: Schema, options: &Options, events: &[Event]) -> Summary {
    let mut writer = Writer::create(path, schema, options).unwrap();
    put_all(&mut writer, events).unwrap();
    writer.finish(&instruments()).unwrap()
}
