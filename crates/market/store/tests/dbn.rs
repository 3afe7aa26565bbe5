//! What the `dbn` crate's decoder reads back, record by record.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod session;

use dbn::decode::{DbnDecoder, DbnMetadata, DecodeRecord};
use dbn::{
    BboMsg, BidAskPair, CbboMsg, Cmbp1Msg, FlagSet, HasRType, ImbalanceMsg, InstrumentDefMsg, MboMsg,
    Mbp1Msg, Mbp10Msg, OhlcvMsg, Record, StatMsg, StatusMsg, SymbolIndex, TradeMsg, UNDEF_PRICE,
    UNDEF_TIMESTAMP,
};
use session::*;
use tapeworks_market::{Event, EventKind, Side};
use tapeworks_store::{Options, Schema, Skip, Summary};

const LAST: u8 = 0x80;
const TOB: u8 = 0x40;
const MBP: u8 = 0x10;
const BAD: u8 = 0x04;

fn round_trip<R: HasRType<Header = dbn::RecordHeader> + Clone>(
    schema: Schema,
) -> (Vec<R>, dbn::Metadata, Summary) {
    // Several tests read the same schema, at the same time.
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let directory = directory(&format!("dbn-{schema}-{count}"));
    let path = directory.join("session.dbn");
    let summary = write(&path, schema, &Options::default(), &session());
    assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
    let decoder = DbnDecoder::from_file(&path).unwrap();
    let metadata = decoder.metadata().clone();
    let records: Vec<R> = decoder.decode_records().unwrap();
    assert_eq!(records.len() as u64, summary.records);
    assert_eq!(metadata.schema.unwrap().as_str(), schema.as_str());
    assert_eq!(metadata.version, 3);
    let left: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["session.dbn"], "no part is left behind");
    (records, metadata, summary)
}

fn e9(text: &str) -> i64 {
    dollars(text).unwrap().e9()
}

/// Sequence, action, side, price, size, order, flags.
fn fields(record: &MboMsg) -> (u32, char, char, i64, u32, u64, u8) {
    let (action, side) = (record.action as u8 as char, record.side as u8 as char);
    (record.sequence, action, side, record.price, record.size, record.order_id, record.flags.raw())
}

#[test]
fn mbo_has_every_order_and_trade_and_only_the_last_record_of_an_event_is_marked() {
    let (records, metadata, summary) = round_trip::<MboMsg>(Schema::Mbo);
    let expected = [
        (4, 'A', 'B', e9("10.00"), 300, 1, LAST),
        (5, 'A', 'A', e9("10.05"), 200, 2, LAST),
        (6, 'A', 'B', e9("9.99"), 100, 3, LAST),
        (7, 'A', 'A', e9("10.06"), 100, 4, LAST),
        (8, 'C', 'B', e9("10.00"), 150, 1, LAST),
        (10, 'T', 'A', e9("10.00"), 100, 0, BAD),
        (10, 'F', 'B', e9("10.00"), 100, 1, BAD),
        (10, 'C', 'B', e9("10.00"), 100, 1, LAST | BAD),
        (11, 'T', 'A', e9("10.005"), 50, 0, BAD),
        (11, 'F', 'B', e9("10.005"), 50, 1, BAD),
        (11, 'C', 'B', e9("10.00"), 50, 1, LAST | BAD),
        (12, 'T', 'N', e9("10.01"), 30, 0, LAST | BAD),
        (13, 'F', 'A', e9("10.06"), 10, 4, BAD),
        (13, 'C', 'A', e9("10.06"), 10, 4, LAST | BAD),
        (16, 'C', 'A', e9("10.05"), 200, 2, BAD),
        (16, 'A', 'A', e9("10.04"), 400, 5, LAST | BAD),
        (17, 'C', 'B', e9("9.99"), 100, 3, LAST | BAD),
        (26, 'T', 'A', e9("10.02"), 40, 0, LAST),
        // Nasdaq's books alone: it does not list BBB.
        (27, 'R', 'N', UNDEF_PRICE, 0, 0, LAST),
    ];
    assert_eq!(records.iter().map(fields).collect::<Vec<_>>(), expected);

    let first = &records[0];
    assert_eq!((first.hd.publisher_id, first.hd.instrument_id), (2, 1));
    assert_eq!(first.hd.ts_event, START + 4_000_000);
    assert_eq!((first.ts_recv, first.ts_in_delta), (START + 4_004_000, 4_000));
    assert_eq!(records.last().unwrap().hd.instrument_id, 1);

    assert_eq!(summary.skipped(Skip::UnknownOrder), 1);
    assert_eq!(summary.skipped(Skip::EmptyTrade), 1);
    assert_eq!(summary.skipped(Skip::NotOrderByOrder), 7);
    // Definition, status, session, trade break, both halves of the imbalance, and gap with its NBBO changes.
    assert!(summary.skipped(Skip::NotInSchema) >= 7);
    assert_eq!(metadata.dataset, "TAPEWORKS.MULTI");
}

#[test]
fn the_header_has_the_time_range_and_the_symbols_that_occur() {
    let (records, metadata, _) = round_trip::<Mbp1Msg>(Schema::Mbp1);
    assert_eq!(metadata.start, START + 4_004_000);
    assert_eq!(metadata.end.unwrap().get(), START + 62 * SECOND + 1);
    assert_eq!(metadata.symbols, ["AAA", "BBB"]);
    let map = metadata.symbol_map().unwrap();
    assert_eq!(map.get_for_rec(&records[0]).unwrap(), "AAA");
    let of_deep = records.iter().find(|record| record.hd.publisher_id == DEEP.0).unwrap();
    assert_eq!(map.get_for_rec(of_deep).unwrap(), "BBB");

    let path = directory("dbn-one-feed").join("orders.dbn");
    write(&path, Schema::Mbo, &Options::default(), &session()[..8]);
    let metadata = DbnDecoder::from_file(&path).unwrap().metadata().clone();
    assert_eq!(metadata.dataset, "XNAS.ITCH");
    assert_eq!(metadata.symbols, ["AAA"]);
}

fn pair(bid: (&str, u32, u32), ask: (&str, u32, u32)) -> BidAskPair {
    let price = |text: &str| if text.is_empty() { UNDEF_PRICE } else { e9(text) };
    BidAskPair {
        bid_px: price(bid.0),
        ask_px: price(ask.0),
        bid_sz: bid.1,
        ask_sz: ask.1,
        bid_ct: bid.2,
        ask_ct: ask.2,
    }
}

const NOTHING: (&str, u32, u32) = ("", 0, 0);

#[test]
fn mbp_1_has_a_trade_with_the_quote_before_it_and_a_change_with_the_quote_after_it() {
    let (records, _, summary) = round_trip::<Mbp1Msg>(Schema::Mbp1);
    let found: Vec<_> = records
        .iter()
        .map(|record| {
            let (action, side) = (record.action as u8 as char, record.side as u8 as char);
            (
                record.sequence,
                action,
                side,
                record.price,
                record.size,
                record.flags.raw(),
                record.levels[0].clone(),
            )
        })
        .collect();
    let after_20 = ("20.00", 100, 0);
    let expected = [
        (4, 'A', 'B', e9("10.00"), 300, LAST, pair(("10.00", 300, 1), NOTHING)),
        (5, 'A', 'A', e9("10.05"), 200, LAST, pair(("10.00", 300, 1), ("10.05", 200, 1))),
        (8, 'C', 'B', e9("10.00"), 150, LAST, pair(("10.00", 150, 1), ("10.05", 200, 1))),
        (10, 'T', 'A', e9("10.00"), 100, BAD, pair(("10.00", 150, 1), ("10.05", 200, 1))),
        (10, 'C', 'B', e9("10.00"), 100, LAST | BAD, pair(("10.00", 50, 1), ("10.05", 200, 1))),
        (11, 'T', 'A', e9("10.005"), 50, BAD, pair(("10.00", 50, 1), ("10.05", 200, 1))),
        (11, 'C', 'B', e9("10.00"), 50, LAST | BAD, pair(("9.99", 100, 1), ("10.05", 200, 1))),
        (12, 'T', 'N', e9("10.01"), 30, LAST | BAD, pair(("9.99", 100, 1), ("10.05", 200, 1))),
        (16, 'M', 'A', e9("10.04"), 400, LAST | BAD, pair(("9.99", 100, 1), ("10.04", 400, 1))),
        (17, 'C', 'B', e9("9.99"), 100, LAST | BAD, pair(NOTHING, ("10.04", 400, 1))),
        (19, 'M', 'B', e9("10.01"), 500, TOB, pair(("10.01", 500, 0), NOTHING)),
        (19, 'M', 'A', e9("10.03"), 600, TOB | LAST, pair(("10.01", 500, 0), ("10.03", 600, 0))),
        // The group's last event was below the top: its LAST is on the record before.
        (20, 'M', 'B', e9("20.00"), 100, MBP | LAST, pair(after_20, NOTHING)),
        (21, 'M', 'A', e9("20.10"), 200, MBP | LAST, pair(after_20, ("20.10", 200, 0))),
        (22, 'C', 'A', e9("20.10"), 0, MBP | LAST, pair(after_20, NOTHING)),
        (25, 'M', 'B', e9("10.01"), 100, TOB | LAST, pair(("10.01", 100, 0), ("10.03", 600, 0))),
        (26, 'T', 'A', e9("10.02"), 40, LAST, pair(("10.01", 100, 0), ("10.03", 600, 0))),
        (27, 'R', 'N', UNDEF_PRICE, 0, LAST, pair(NOTHING, NOTHING)),
    ];
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(summary.skipped(Skip::NotPrintable), 1);
    assert_eq!(summary.skipped(Skip::NothingShownChanged), 3, "two orders and a level below the top");
}

#[test]
fn mbp_10_has_every_level_down_to_the_tenth() {
    let mut events: Vec<Event> =
        (0..12).map(|n| add(n + 1, n + 1, Side::Bid, &format!("{}", 20 - n), 100 + n as u32)).collect();
    events.push(of_order(13, EventKind::Execute, 1, 100));
    let path = directory("dbn-ten").join("ten.dbn.zst");
    let summary = write(&path, Schema::Mbp10, &Options::default(), &events);
    let bytes = zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap();
    let records: Vec<Mbp10Msg> = DbnDecoder::new(&bytes[..]).unwrap().decode_records().unwrap();
    assert_eq!(summary.skipped(Skip::NothingShownChanged), 2, "the eleventh and twelfth level");
    let [.., trade, change] = &records[..] else { panic!("no records") };
    let bids =
        |record: &Mbp10Msg| record.levels.clone().map(|level| (level.bid_px, level.bid_sz, level.bid_ct));
    let level = |n: u32| (e9(&format!("{}", 20 - n)), 100 + n, 1);
    assert_eq!(trade.action as u8, b'T');
    assert_eq!(bids(trade), std::array::from_fn(|n| level(n as u32)));
    assert_eq!(change.action as u8, b'C');
    assert_eq!(bids(change), std::array::from_fn(|n| level(n as u32 + 1)));
    assert_eq!(records[3].depth, 3);
}

#[test]
fn trades_are_those_that_count_in_volume() {
    let (records, _, _) = round_trip::<TradeMsg>(Schema::Trades);
    let found: Vec<_> = records
        .iter()
        .map(|record| {
            (record.sequence, record.side as u8 as char, record.price, record.size, record.flags.raw())
        })
        .collect();
    let expected = [
        (10, 'A', e9("10.00"), 100, LAST | BAD),
        (11, 'A', e9("10.005"), 50, LAST | BAD),
        (12, 'N', e9("10.01"), 30, LAST | BAD),
        (26, 'A', e9("10.02"), 40, LAST),
    ];
    assert_eq!(found, expected);
}

#[test]
fn bbo_has_each_interval_with_a_change_once_and_carries_the_last_trade_forward() {
    let (records, _, _) = round_trip::<BboMsg>(Schema::Bbo1S);
    let found: Vec<_> = records
        .iter()
        .map(|record| {
            let hd = &record.hd;
            let trade = (hd.ts_event, record.price, record.size, record.side as u8 as char);
            ((hd.publisher_id, hd.instrument_id, record.ts_recv), trade, record.levels[0].clone())
        })
        .collect();
    let no_trade = (UNDEF_TIMESTAMP, UNDEF_PRICE, 0, 'N');
    let hidden = (START + 12_000_000, e9("10.01"), 30, 'N');
    let (second, minute) = (START + SECOND, START + 62 * SECOND);
    let expected = [
        ((2, 1, second), hidden, pair(NOTHING, ("10.04", 400, 1))),
        ((38, 1, second), no_trade, pair(("10.01", 500, 0), ("10.03", 600, 0))),
        ((9001, 2, second), no_trade, pair(("20.00", 100, 0), NOTHING)),
        (
            (38, 1, minute),
            (START + 26_000_000, e9("10.02"), 40, 'A'),
            pair(("10.01", 100, 0), ("10.03", 600, 0)),
        ),
        ((2, 1, minute + SECOND), hidden, pair(NOTHING, NOTHING)),
    ];
    assert_eq!(found, expected);
    assert!(records.iter().all(|record| record.hd.rtype == 0xC3));

    let (records, _, _) = round_trip::<BboMsg>(Schema::Bbo1M);
    let ends: Vec<_> = records.iter().map(|record| record.ts_recv).collect();
    assert_eq!(ends, [60, 60, 60, 120, 120].map(|seconds| START + seconds * SECOND));
    assert!(records.iter().all(|record| record.hd.rtype == 0xC4));
}

#[test]
fn cmbp_1_has_every_change_of_the_nbbo_with_the_venue_of_each_side() {
    let (records, _, _) = round_trip::<Cmbp1Msg>(Schema::Cmbp1);
    let found: Vec<_> = records
        .iter()
        .filter(|record| record.hd.instrument_id == 1)
        .map(|record| {
            let best = &record.levels[0];
            let bid = (best.bid_px, best.bid_sz, best.bid_pb);
            let ask = (best.ask_px, best.ask_sz, best.ask_pb);
            let milliseconds = (record.hd.ts_event - START) / 1_000_000;
            (milliseconds, record.action as u8 as char, record.flags.raw(), bid, ask)
        })
        .collect();
    let (none, at_10, at_10_05) = ((UNDEF_PRICE, 0, 0), e9("10.00"), (e9("10.05"), 200, 2));
    let iex_ask = (e9("10.03"), 600, 38);
    let expected = [
        (4, 'A', LAST, (at_10, 300, 2), none),
        (5, 'A', LAST, (at_10, 300, 2), at_10_05),
        (8, 'C', LAST, (at_10, 100, 2), at_10_05),
        // The deletion of an unknown order makes the book stale.
        (9, 'C', LAST | BAD, (at_10, 100, 2), at_10_05),
        (10, 'T', BAD, (at_10, 100, 2), at_10_05),
        // 50 at 10.00 and 100 at 9.99: a round lot stands behind 9.99.
        (10, 'C', LAST | BAD, (e9("9.99"), 100, 2), at_10_05),
        (11, 'T', LAST | BAD, (e9("9.99"), 100, 2), at_10_05),
        (12, 'T', LAST | BAD, (e9("9.99"), 100, 2), at_10_05),
        (16, 'M', LAST | BAD, (e9("9.99"), 100, 2), (e9("10.04"), 400, 2)),
        (17, 'C', LAST | BAD, none, (e9("10.04"), 400, 2)),
        (19, 'M', TOB | LAST, (e9("10.01"), 500, 38), iex_ask),
        (25, 'M', TOB | LAST, (e9("10.01"), 100, 38), iex_ask),
        (26, 'T', LAST, (e9("10.01"), 100, 38), iex_ask),
    ];
    assert_eq!(found, expected);
}

#[test]
fn tbbo_has_the_trades_of_mbp_1_and_nothing_else() {
    let (trades, _, summary) = round_trip::<Mbp1Msg>(Schema::Tbbo);
    let (all, _, _) = round_trip::<Mbp1Msg>(Schema::Mbp1);
    let expected: Vec<_> = all
        .into_iter()
        .filter(|record| record.action as u8 == b'T')
        .map(|record| Mbp1Msg { flags: (record.flags.raw() | LAST).into(), ..record })
        .collect();
    assert_eq!(trades, expected);
    assert!(trades.len() >= 4, "{}", trades.len());
    assert_eq!(summary.records, trades.len() as u64);
}

#[test]
fn cbbo_has_the_nbbo_at_the_end_of_each_interval_with_a_change_and_carries_the_last_trade_forward() {
    for (schema, seconds, rtype) in [(Schema::Cbbo1S, 1, 0xC0), (Schema::Cbbo1M, 60, 0xC1)] {
        let (records, _, _) = round_trip::<CbboMsg>(schema);
        let (changes, _, _) = round_trip::<Cmbp1Msg>(Schema::Cmbp1);
        // By end of the interval and instrument: the NBBO of its last record; by instrument: the last trade.
        let mut expected = std::collections::BTreeMap::new();
        let mut last_trades = std::collections::BTreeMap::new();
        for change in changes {
            let width = seconds * SECOND;
            let end = (change.ts_recv / width + 1) * width;
            let number = change.hd.instrument_id;
            if change.action as u8 == b'T' {
                last_trades.insert(number, (change.hd.ts_event, change.price, change.size, change.side));
            }
            let trade = last_trades.get(&number).copied();
            let trade = trade.unwrap_or((UNDEF_TIMESTAMP, UNDEF_PRICE, 0, b'N' as std::ffi::c_char));
            expected.insert((end, number), (change.hd.publisher_id, change.levels, trade));
        }
        let found: Vec<_> = records
            .into_iter()
            .map(|record| {
                assert_eq!((record.hd.rtype, record.flags.raw() & LAST), (rtype, LAST));
                let trade = (record.hd.ts_event, record.price, record.size, record.side);
                ((record.ts_recv, record.hd.instrument_id), (record.hd.publisher_id, record.levels, trade))
            })
            .collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{schema}");
    }
}

#[test]
fn a_gap_marks_the_records_after_it() {
    let events = [
        add(1, 1, Side::Bid, "10", 100),
        event(2, EventKind::Gap, XNAS, tapeworks_market::InstrumentId::ALL),
        add(3, 2, Side::Bid, "11", 100),
    ];
    let path = directory("dbn-gap").join("gap.dbn");
    write(&path, Schema::Cmbp1, &Options::default(), &events);
    let records: Vec<Cmbp1Msg> = DbnDecoder::from_file(&path).unwrap().decode_records().unwrap();
    let flags: Vec<_> = records.iter().map(|record| record.flags).collect();
    assert_eq!(flags, [LAST, LAST | BAD, LAST | BAD].map(FlagSet::from));
}

#[test]
fn an_order_that_the_book_loses_by_what_it_refuses_is_cancelled() {
    let mut too_much = event(2, EventKind::Execute, XNAS, tapeworks_market::InstrumentId(0));
    (too_much.order_id, too_much.size) = (1, 101);
    let mut taken = event(5, EventKind::Replace, XNAS, tapeworks_market::InstrumentId(0));
    (taken.order_id, taken.aux, taken.size, taken.price) = (2, 3, 50, dollars("9"));
    let events = [
        add(1, 1, Side::Bid, "10", 100),
        too_much,
        add(3, 2, Side::Ask, "11", 70),
        add(4, 3, Side::Ask, "12", 80),
        taken,
    ];
    let path = directory("dbn-refused").join("refused.dbn");
    write(&path, Schema::Mbo, &Options::default(), &events);
    let records: Vec<MboMsg> = DbnDecoder::from_file(&path).unwrap().decode_records().unwrap();
    let found: Vec<_> = records.iter().map(fields).collect();
    let expected = [
        (1, 'A', 'B', e9("10"), 100, 1, LAST),
        (2, 'C', 'B', e9("10"), 100, 1, LAST | BAD),
        (3, 'A', 'A', e9("11"), 70, 2, LAST | BAD),
        (4, 'A', 'A', e9("12"), 80, 3, LAST | BAD),
        (5, 'C', 'A', e9("11"), 70, 2, LAST | BAD),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_changed_order_is_a_modification_where_readers_of_dbn_leave_it_the_same_priority() {
    let change = |step: u64, price: &str, size: u32, keeps: bool| {
        let mut event = event(step, EventKind::Replace, XNAS, tapeworks_market::InstrumentId(0));
        (event.order_id, event.aux, event.size, event.price) = (1, 1, size, dollars(price));
        event.detail = if keeps { Event::KEEPS_PRIORITY } else { 0 };
        event
    };
    let events = [
        add(1, 1, Side::Bid, "10", 100),
        change(2, "10", 80, true),
        change(2, "10", 80, true),
        change(3, "10", 90, false),
        change(4, "9", 90, false),
        // Another than DBN's rule would give it.
        change(5, "9", 70, false),
        change(6, "8", 70, true),
    ];
    let path = directory("dbn-modified").join("modified.dbn");
    write(&path, Schema::Mbo, &Options::default(), &events);
    let records: Vec<MboMsg> = DbnDecoder::from_file(&path).unwrap().decode_records().unwrap();
    let found: Vec<_> = records.iter().map(fields).collect();
    let expected = [
        (1, 'A', 'B', e9("10"), 100, 1, LAST),
        (2, 'M', 'B', e9("10"), 80, 1, LAST),
        (3, 'M', 'B', e9("10"), 90, 1, LAST),
        (4, 'M', 'B', e9("9"), 90, 1, LAST),
        (5, 'C', 'B', e9("9"), 90, 1, 0),
        (5, 'A', 'B', e9("9"), 70, 1, LAST),
        (6, 'C', 'B', e9("9"), 70, 1, 0),
        (6, 'A', 'B', e9("8"), 70, 1, LAST),
    ];
    assert_eq!(found, expected);
}

#[test]
fn status_imbalance_statistics_and_definition_have_the_values_of_the_venue() {
    let (records, _, _) = round_trip::<StatusMsg>(Schema::Status);
    let [status] = &records[..] else { panic!("{records:?}") };
    assert_eq!((status.action, status.reason, status.trading_event), (7, 0, 0));
    let states = [status.is_trading, status.is_quoting, status.is_short_sell_restricted];
    assert_eq!(states.map(|state| state as u8), *b"Y~N");
    assert_eq!((status.hd.ts_event, status.ts_recv), (START + 2_000_000, START + 2_002_000));

    let (records, _, summary) = round_trip::<ImbalanceMsg>(Schema::Imbalance);
    let expected = ImbalanceMsg {
        hd: dbn::RecordHeader::new::<ImbalanceMsg>(0x14, 2, 1, START + 18_000_000),
        ts_recv: START + 18_018_000,
        ref_price: e9("10.02"),
        auction_time: START + 3_600 * SECOND,
        cont_book_clr_price: e9("10.03"),
        auct_interest_clr_price: UNDEF_PRICE,
        ind_match_price: e9("10.04"),
        upper_collar: e9("11"),
        lower_collar: e9("9"),
        paired_qty: 5_000,
        total_imbalance_qty: 700,
        market_imbalance_qty: 300,
        auction_type: b'C' as _,
        side: b'B' as _,
        num_extensions: 2,
        significant_imbalance: b'L' as _,
        ..ImbalanceMsg::default()
    };
    assert_eq!(records, [expected]);
    assert_eq!(summary.skipped(Skip::HalfImbalance), 0);

    let (records, _, _) = round_trip::<StatMsg>(Schema::Statistics);
    let upper = StatMsg {
        hd: dbn::RecordHeader::new::<StatMsg>(0x18, 135, 1, START + 28_000_000),
        ts_recv: START + 62 * SECOND,
        ts_ref: START + 27_500_000,
        price: e9("11.03"),
        sequence: 28,
        ts_in_delta: i32::MAX,
        stat_type: dbn::StatType::UpperPriceLimit as u16,
        channel_id: 0,
        update_action: dbn::StatUpdateAction::New as u8,
        stat_flags: b'B',
        ..StatMsg::default()
    };
    let lower = StatMsg {
        price: UNDEF_PRICE,
        stat_type: dbn::StatType::LowerPriceLimit as u16,
        update_action: dbn::StatUpdateAction::Delete as u8,
        ..upper.clone()
    };
    assert_eq!((records, upper.quantity), (vec![upper, lower], dbn::UNDEF_STAT_QUANTITY));

    let (records, _, _) = round_trip::<InstrumentDefMsg>(Schema::Definition);
    let [definition] = &records[..] else { panic!("{records:?}") };
    assert_eq!(definition.raw_symbol().unwrap(), "AAA");
    assert_eq!(definition.exchange().unwrap(), "XNAS");
    assert_eq!(definition.currency().unwrap(), "USD");
    assert_eq!(definition.security_type().unwrap(), "ETF");
    assert_eq!(definition.secsubtype().unwrap(), "Q");
    assert_eq!(definition.min_lot_size_round_lot, 100);
    assert_eq!(definition.instrument_class as u8, b'K');
}

#[test]
fn half_an_imbalance_is_counted() {
    let [first, second] = event(1, EventKind::Other, XNAS, AAA).with_imbalance(the_imbalance());
    let path = directory("dbn-half").join("half.dbn");
    let other = add(2, 1, Side::Bid, "10", 100);
    let summary = write(&path, Schema::Imbalance, &Options::default(), &[second, first, other, first]);
    assert_eq!((summary.records, summary.skipped(Skip::HalfImbalance)), (0, 3));
}

#[test]
fn longer_bars_are_those_of_seconds_together() {
    const SECOND: u64 = 1_000_000_000;
    let (seconds, _, _) = round_trip::<OhlcvMsg>(Schema::Ohlcv1S);
    for (schema, width) in [
        (Schema::Ohlcv1M, 60 * SECOND),
        (Schema::Ohlcv1H, 3_600 * SECOND),
        (Schema::Ohlcv1D, 86_400 * SECOND),
    ] {
        let (bars, _, _) = round_trip::<OhlcvMsg>(schema);
        assert!(!bars.is_empty());
        for bar in &bars {
            assert_eq!(bar.hd.rtype, dbn::RType::from(schema.as_str().parse::<dbn::Schema>().unwrap()) as u8);
            assert_eq!(bar.hd.ts_event % width, 0);
            let of_bar: Vec<_> = seconds
                .iter()
                .filter(|second| {
                    (second.hd.publisher_id, second.hd.instrument_id)
                        == (bar.hd.publisher_id, bar.hd.instrument_id)
                        && second.hd.ts_event / width == bar.hd.ts_event / width
                })
                .collect();
            let (first, last) = (of_bar.first().unwrap(), of_bar.last().unwrap());
            assert_eq!((bar.open, bar.close), (first.open, last.close));
            assert_eq!(bar.high, of_bar.iter().map(|second| second.high).max().unwrap());
            assert_eq!(bar.low, of_bar.iter().map(|second| second.low).min().unwrap());
            assert_eq!(bar.volume, of_bar.iter().map(|second| second.volume).sum::<u64>());
        }
        let volume = |bars: &[OhlcvMsg]| bars.iter().map(|bar| bar.volume).sum::<u64>();
        assert_eq!(volume(&bars), volume(&seconds));
    }
}

#[test]
fn bars_hold_the_printable_trades_of_a_second() {
    let (records, _, _) = round_trip::<OhlcvMsg>(Schema::Ohlcv1S);
    let found: Vec<_> = records
        .iter()
        .map(|bar| {
            (bar.hd.publisher_id, bar.hd.ts_event, [bar.open, bar.high, bar.low, bar.close], bar.volume)
        })
        .collect();
    let expected = [
        (2, START, ["10.00", "10.01", "10.00", "10.01"].map(e9), 180),
        (38, START + 61 * SECOND, ["10.02"; 4].map(e9), 40),
    ];
    assert_eq!(found, expected);
    assert!(records.iter().all(|record| record.raw_rtype() == 0x20));
}

#[test]
fn our_publishers_and_venues_have_dbns_numbers() {
    for feed in tapeworks_market::venue::FEEDS {
        let Ok(venue) = dbn::Venue::try_from(feed.venue.id) else {
            assert!(feed.venue.id >= tapeworks_market::venue::Venue::FIRST_OWN, "{feed:?}");
            assert!(feed.venue.mic.parse::<dbn::Venue>().is_err(), "DBN has a number for {feed:?}");
            assert!(dbn::Publisher::try_from(feed.publisher.0).is_err(), "{feed:?}");
            continue;
        };
        assert_eq!(venue.as_str(), feed.venue.mic);
        match dbn::Publisher::try_from(feed.publisher.0) {
            Ok(publisher) => {
                assert_eq!(publisher.dataset().as_str(), feed.dataset);
                assert_eq!(publisher.venue(), venue);
            }
            Err(_) => assert!(feed.publisher.0 >= tapeworks_market::Publisher::FIRST_OWN, "{feed:?}"),
        }
    }
}
