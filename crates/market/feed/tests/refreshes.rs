//! A channel of NYSE that joins by refreshes, whose symbols have numbers of their own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tapeworks_feed::live::{Input, LiveChannelOptions, LiveFeed, Request, SnapshotOptions};
use tapeworks_feed::{Application, FeedOptions};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_market::{Event, EventKind, Line, Publisher};
use tapeworks_session::{Content, Outgoing, Pillar, SessionId, Transport as _, TransportKind};
use tapeworks_time::Nanos;
use tapeworks_wire::nyse::integrated::{
    AddOrder, AddOrderFields, AddOrderRefresh, AddOrderRefreshFields, ListingMarket, Market, RefreshHeader,
    RefreshHeaderFields, RoundLot, SecurityType, Side, SymbolIndexMapping, SymbolIndexMappingFields,
};
use tapeworks_wire::{Ascii, Nanoseconds, SecondsSinceEpoch};

const START: u64 = 1_763_130_600_000_000_000;
const MS: u64 = 1_000_000;

fn header(last_sequence: u32) -> Vec<u8> {
    let fields = RefreshHeaderFields {
        length: RefreshHeader::LENGTH as u16,
        current_refresh_packet: 1,
        total_refresh_packets: 1,
        last_sequence,
        last_symbol_sequence: 0,
    };
    fields.encode().to_vec()
}

fn mapping(symbol_index: u32, symbol: &[u8; 4]) -> Vec<u8> {
    let mut name = [0; 11];
    name[..4].copy_from_slice(symbol);
    let fields = SymbolIndexMappingFields {
        length: SymbolIndexMapping::LENGTH as u16,
        symbol_index,
        symbol: Ascii(name),
        reserved_1: 0,
        market_id: Market::NyseEquities,
        system_id: 1,
        exchange_code: ListingMarket::Nyse,
        price_scale_code: 4,
        security_type: SecurityType::CommonStock,
        lot_size: 100,
        previous_close_price: 0,
        previous_close_volume: 0,
        price_resolution: 0,
        round_lot: RoundLot::Yes,
        minimum_price_variation: 1,
        unit_of_trade: 1,
        reserved_2: 0,
    };
    fields.encode().to_vec()
}

fn add(symbol_index: u32, order_id: u64) -> Vec<u8> {
    let fields = AddOrderFields {
        length: AddOrder::LENGTH as u16,
        source_time_ns: Nanoseconds(5),
        symbol_index,
        symbol_sequence: 0,
        order_id,
        price: 10_000,
        volume: 100,
        side: Side::Buy,
        firm_id: Ascii([0; 5]),
        reserved_1: 0,
    };
    fields.encode().to_vec()
}

/// An order of symbol 2 as a refresh has it.
fn refreshed(order_id: u64) -> Vec<u8> {
    let fields = AddOrderRefreshFields {
        length: AddOrderRefresh::LENGTH as u16,
        source_time: SecondsSinceEpoch((START / 1_000_000_000) as u32),
        source_time_ns: Nanoseconds(5),
        symbol_index: 2,
        symbol_sequence: 0,
        order_id,
        price: 10_000,
        volume: 100,
        side: Side::Buy,
        firm_id: Ascii([0; 5]),
        reserved_1: 0,
    };
    fields.encode().to_vec()
}

/// A packet of the line with orders of symbol 2 that have these numbers.
fn packet(numbers: std::ops::Range<u64>) -> Vec<u8> {
    let mut packet = vec![0; TransportKind::Pillar.header_bytes()];
    numbers.clone().for_each(|number| packet.extend_from_slice(&add(2, number)));
    let header = Outgoing {
        session: SessionId::Pillar,
        sequence: numbers.start,
        messages: (numbers.end - numbers.start) as u16,
        content: Content::Messages,
        stream_offset: 0,
        payload_bytes: packet.len() - TransportKind::Pillar.header_bytes(),
        send_time_ns: 0,
    };
    Pillar::write_header(&header, &mut packet);
    packet
}

fn feed(live: &mut LiveFeed, input: Input<&[u8]>) -> Vec<Event> {
    let mut events = Vec::new();
    live.input(&input, &mut |event: Event| events.push(event));
    events
}

fn line(live: &mut LiveFeed, at_ms: u64, numbers: std::ops::Range<u64>) -> Vec<Event> {
    let received = Nanos(START + at_ms * MS);
    feed(live, Input::Packet { channel: 0, line: Line::A, received, payload: &packet(numbers) })
}

/// A channel that joins with the messages 61 and 62 held, and has a snapshot that goes on with 63: one symbol as of 62, the other as of `last`.
fn joining(last: u32) -> (LiveFeed, Vec<Event>) {
    let channel = LiveChannelOptions {
        name: "NYSE".to_owned(),
        application: Application::NyseIntegrated25,
        publisher: Publisher::XNYS_PILLAR,
        arbiter: ArbiterOptions::default(),
        snapshot: Some(SnapshotOptions { attempts: 1, timeout_ns: 1_000 * MS, ..Default::default() }),
    };
    let mut live = LiveFeed::new(FeedOptions::default(), vec![channel]);
    line(&mut live, 0, 61..63);
    let Some(Request::Snapshot { channel, attempt, .. }) = live.take_request() else { panic!("{live:?}") };
    let mut messages = Vec::new();
    let books = [header(62), mapping(1, b"AAAA"), header(last), mapping(2, b"BBBB")];
    // One that claims an impossible number has the orders of its true one.
    let included = 61..=u64::from(if last == u32::MAX { 62 } else { last });
    for message in books.into_iter().chain(included.map(refreshed)) {
        messages.extend_from_slice(&(message.len() as u16).to_be_bytes());
        messages.extend_from_slice(&message);
    }
    let (received, bytes) = (Nanos(START + MS), messages.len() as u64);
    feed(&mut live, Input::Snapshot { channel, attempt, received, messages: &messages });
    let events = feed(&mut live, Input::SnapshotEnd { channel, attempt, received, next: 63, bytes });
    (live, events)
}

/// Everything of the symbol that followed was taken for known: its book stood still and was shown as good.
#[test]
fn a_refresh_of_a_number_that_no_line_confirms_joins_no_channel() {
    let (mut live, _) = joining(u32::MAX);
    let (mut events, mut at_ms) = (Vec::new(), 1);
    for number in 63..2_000 {
        at_ms += 1;
        events.extend(line(&mut live, at_ms, number..number + 1));
        events.extend(feed(&mut live, Input::Tick { now: Nanos(START + at_ms * MS) }));
    }
    let snapshots = live.channels()[0].snapshots();
    assert_eq!((snapshots.applied, snapshots.failed, snapshots.given_up), (0, 1, 1));
    assert!(events.iter().any(|event| event.kind == EventKind::Gap), "the books are stale");
    assert!(live.channels()[0].is_stale());
}

#[test]
fn a_channel_joins_when_its_lines_reach_the_highest_number_of_a_refresh() {
    let (mut live, mut events) = joining(70);
    events.extend(line(&mut live, 2, 63..70));
    assert_eq!(live.channels()[0].snapshots().applied, 0);
    events.extend(line(&mut live, 3, 70..75));
    assert_eq!(live.channels()[0].snapshots().applied, 1);
    // Those up to 70 are in the book.
    let added = events.iter().filter(|event| event.kind == EventKind::Add && event.channel_sequence > 62);
    let added = added.map(|event| event.channel_sequence);
    assert!(added.eq(71..75));
    assert!(!live.channels()[0].is_stale());
    // Where all are as of one number, it may be ahead of the lines.
    assert_eq!(joining(62).0.channels()[0].snapshots().applied, 1);
}
