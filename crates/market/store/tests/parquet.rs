//! What the `parquet` crate's reader makes of the files, compared with the DBN file of the same input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod session;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use dbn::decode::{DbnDecoder, DecodeRecord};
use dbn::{ImbalanceMsg, InstrumentDefMsg, MboMsg, Mbp1Msg, UNDEF_PRICE};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use proptest::prelude::*;
use session::*;
use tapeworks_market::{Event, EventKind, Line, Price, Side};
use tapeworks_store::{Compression, Options, Prices, Schema};
use tapeworks_time::Nanos;

type Row = BTreeMap<String, Field>;

fn read(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        row.unwrap().get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
    })
    .collect()
}

/// A number, whatever its type; None for null.
fn number(field: &Field) -> Option<i128> {
    Some(match field {
        Field::Null => return None,
        Field::Int(value) => i128::from(*value),
        Field::Long(value) => i128::from(*value),
        Field::UByte(value) => i128::from(*value),
        Field::UShort(value) => i128::from(*value),
        Field::UInt(value) => i128::from(*value),
        Field::ULong(value) => i128::from(*value),
        Field::Decimal(decimal) => {
            assert_eq!((decimal.precision(), decimal.scale()), (18, 9));
            i128::from(i64::from_be_bytes(decimal.data().try_into().unwrap()))
        }
        other => panic!("{other:?} is no number"),
    })
}

fn text(field: &Field) -> Option<&str> {
    match field {
        Field::Null => None,
        Field::Str(text) => Some(text),
        other => panic!("{other:?} is no text"),
    }
}

fn optional_price(price: i64) -> Option<i128> {
    (price != UNDEF_PRICE).then_some(i128::from(price))
}

fn assert_same(row: &Row, record: &MboMsg, event: &Event) {
    let letter = |letter: std::ffi::c_char| (letter as u8 as char).to_string();
    assert_eq!(number(&row["ts_recv"]), Some(i128::from(record.ts_recv)));
    assert_eq!(number(&row["ts_event"]), Some(i128::from(record.hd.ts_event)));
    assert_eq!(number(&row["rtype"]), Some(160));
    assert_eq!(number(&row["publisher_id"]), Some(i128::from(record.hd.publisher_id)));
    assert_eq!(number(&row["instrument_id"]), Some(i128::from(record.hd.instrument_id)));
    assert_eq!(text(&row["action"]), Some(&*letter(record.action)));
    assert_eq!(text(&row["side"]), Some(&*letter(record.side)));
    assert_eq!(number(&row["price"]), optional_price(record.price));
    assert_eq!(number(&row["size"]), Some(i128::from(record.size)));
    assert_eq!(number(&row["channel_id"]), Some(i128::from(record.channel_id)));
    assert_eq!(u16::from(record.channel_id), event.channel.min(255), "DBN has one byte");
    assert_eq!(number(&row["order_id"]), Some(i128::from(record.order_id)));
    assert_eq!(number(&row["flags"]), Some(i128::from(record.flags.raw())));
    assert_eq!(number(&row["ts_in_delta"]), Some(i128::from(record.ts_in_delta)));
    assert_eq!(number(&row["sequence"]), Some(i128::from(record.sequence)));
    let symbol = if record.hd.instrument_id == 1 { "AAA" } else { "BBB" };
    assert_eq!(text(&row["symbol"]), Some(symbol));
    assert_eq!(number(&row["channel_sequence"]), Some(i128::from(event.channel_sequence)));
    let line = ["A", "B", "recovery", "snapshot"][event.line() as usize];
    assert_eq!(text(&row["line"]), Some(line));
    assert_eq!(row.len(), 17);
}

/// Additions as wild as their types allow, each with a reference of its own.
fn additions(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let addition = (
        (any::<u64>(), 0..1u64 << 63, 0..1u64 << 63, any::<u64>(), 1..=u32::MAX),
        (prop_oneof![Just(0), any::<i64>(), -5..5i64], any::<u16>(), any::<bool>(), any::<bool>(), 0..4u8),
    );
    prop::collection::vec(addition, 1..most).prop_map(|additions| {
        let event = |(n, (wide, other)): (usize, _)| {
            let (id, ts_event, ts_recv, sequence, size) = wide;
            let (price, channel, is_bid, is_first, line): (i64, u16, bool, bool, u8) = other;
            let mut event = add(1, id ^ n as u64, if is_bid { Side::Bid } else { Side::Ask }, "1", size);
            event.instrument = if is_first { AAA } else { BBB };
            (event.ts_event, event.ts_recv) = (Nanos(ts_event), Nanos(ts_recv));
            (event.channel_sequence, event.channel) = (sequence, channel);
            event.price = Price::from_e9(price % 1_000_000_000_000_000_000);
            event.set_line([Line::A, Line::B, Line::Recovery, Line::Snapshot][usize::from(line)]);
            event
        };
        let mut events: Vec<Event> = additions.into_iter().enumerate().map(event).collect();
        events.sort_by_key(|event| event.order_id);
        events.dedup_by_key(|event| event.order_id);
        events
    })
}

fn compare(name: &str, events: &[Event], compression: Compression) {
    let directory = directory(name);
    let (columns, records) = (directory.join("a.parquet"), directory.join("a.dbn"));
    let options = Options { compression, ..Options::default() };
    let summary = write(&columns, Schema::Mbo, &options, events);
    assert_eq!(summary.out_of_range, 0);
    write(&records, Schema::Mbo, &options, events);
    let rows = read(&columns);
    let records: Vec<MboMsg> = DbnDecoder::from_file(&records).unwrap().decode_records().unwrap();
    assert_eq!((rows.len(), records.len() as u64), (records.len(), summary.records));
    // Levels that are full refuse an order: what is written are those that were applied.
    let mut events = events.iter();
    for (row, record) in rows.iter().zip(&records) {
        let event = events.find(|event| event.order_id == record.order_id).unwrap();
        assert_same(row, record, event);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_columns_hold_the_numbers_of_the_records(
        events in additions(300),
        compression in prop_oneof![Just(Compression::None), Just(Compression::Snappy), Just(Compression::Zstd)],
    ) {
        compare("parquet-any", &events, compression);
    }
}

#[test]
fn many_row_groups_read_as_one_table() {
    let events: Vec<_> = (1..=270_000u64)
        .map(|n| {
            let mut event = add(n, n, Side::Bid, "1", 1 + n as u32 % 1000);
            event.price = Price::from_e9(1_000_000_000 + (n % 997) as i64 * 10_000_000);
            event.instrument = if n % 3 == 0 { BBB } else { AAA };
            event
        })
        .collect();
    compare("parquet-large", &events, Compression::Snappy);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store/parquet-large/a.parquet");
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let metadata = reader.metadata();
    assert_eq!(metadata.num_row_groups(), 2);
    let times = metadata.row_group(0).column(0).statistics().unwrap();
    assert_eq!(times.min_bytes_opt().unwrap(), (START + 1_001_000).to_le_bytes());
}

#[test]
fn prices_stand_as_chosen_and_undefined_ones_are_null() {
    let directory = directory("parquet-prices");
    for (prices, expected) in
        [(Prices::Float, Field::Double(10.005)), (Prices::Fixed, Field::Long(10_005_000_000))]
    {
        let path = directory.join(format!("{prices:?}.parquet"));
        write(&path, Schema::Mbo, &Options { prices, ..Options::default() }, &session());
        let rows = read(&path);
        assert_eq!(rows[8]["price"], expected);
        assert_eq!(rows[18]["price"], Field::Null, "a clearing has no price");
    }
    let mut vast = add(1, 1, Side::Bid, "1", 100);
    vast.price = Price::from_e9(1_000_000_000_000_000_000);
    vast.ts_event = Nanos(1 << 63);
    let path = directory.join("vast.parquet");
    let summary = write(&path, Schema::Mbo, &Options::default(), &[vast]);
    assert_eq!(summary.out_of_range, 2);
    let row = &read(&path)[0];
    assert_eq!((&row["price"], &row["ts_event"]), (&Field::Null, &Field::Null));
}

#[test]
fn levels_lie_in_columns_of_their_own() {
    let directory = directory("parquet-levels");
    let (columns, records) = (directory.join("a.parquet"), directory.join("a.dbn"));
    write(&columns, Schema::Mbp1, &Options::default(), &session());
    write(&records, Schema::Mbp1, &Options::default(), &session());
    let records: Vec<Mbp1Msg> = DbnDecoder::from_file(&records).unwrap().decode_records().unwrap();
    for (row, record) in read(&columns).iter().zip(&records) {
        let level = &record.levels[0];
        assert_eq!(number(&row["bid_px_00"]), optional_price(level.bid_px));
        assert_eq!(number(&row["ask_px_00"]), optional_price(level.ask_px));
        assert_eq!(number(&row["bid_sz_00"]), Some(i128::from(level.bid_sz)));
        assert_eq!(number(&row["ask_sz_00"]), Some(i128::from(level.ask_sz)));
        assert_eq!(number(&row["bid_ct_00"]), Some(i128::from(level.bid_ct)));
        assert_eq!(number(&row["ask_ct_00"]), Some(i128::from(level.ask_ct)));
        assert_eq!(number(&row["depth"]), Some(i128::from(record.depth)));
    }
}

#[test]
fn undefined_fields_of_a_record_are_null() {
    let directory = directory("parquet-open");
    let path = directory.join("imbalance.parquet");
    write(&path, Schema::Imbalance, &Options::default(), &session());
    let row = &read(&path)[0];
    let default = ImbalanceMsg::default();
    assert_eq!(default.unpaired_qty, u32::MAX);
    assert_eq!(row["unpaired_qty"], Field::Null);
    assert_eq!(row["paired_qty"], Field::UInt(5_000));
    assert_eq!(row["auct_interest_clr_price"], Field::Null);
    assert_eq!(text(&row["auction_type"]), Some("C"));

    let path = directory.join("definition.parquet");
    write(&path, Schema::Definition, &Options::default(), &session());
    let row = &read(&path)[0];
    assert_eq!(text(&row["raw_symbol"]), Some("AAA"));
    assert_eq!(row["group"], Field::Null);
    assert_eq!(InstrumentDefMsg::default().min_lot_size_round_lot, i32::MAX);
    assert_eq!(number(&row["min_lot_size_round_lot"]), Some(100));

    let no_lot = Event { size: 0, ..session()[0] };
    assert_eq!(no_lot.kind, EventKind::Definition);
    let path = directory.join("no-lot.parquet");
    write(&path, Schema::Definition, &Options::default(), &[no_lot]);
    assert_eq!(read(&path)[0]["min_lot_size_round_lot"], Field::Null);
}

/// The records of a DBN file, handed to a writer of received records.
fn received(from: &Path, to: &Path, schema: Schema) -> u64 {
    use dbn::decode::{DbnMetadata as _, DecodeRecordRef as _};

    let mut decoder = DbnDecoder::from_file(from).unwrap();
    let metadata = decoder.metadata().clone();
    let mut writer =
        tapeworks_store::RecordWriter::create(to, Some(schema), &metadata, &Options::default()).unwrap();
    for mapping in &metadata.mappings {
        let number = mapping.intervals[0].symbol.parse().unwrap();
        let mapping = dbn::SymbolMappingMsg::new(
            number,
            0,
            dbn::SType::RawSymbol,
            "",
            dbn::SType::RawSymbol,
            &mapping.raw_symbol,
            0,
            0,
        );
        writer.put(dbn::RecordRef::from(&mapping.unwrap())).unwrap();
    }
    while let Some(record) = decoder.decode_record_ref().unwrap() {
        writer.put(record).unwrap();
    }
    let records = writer.records();
    writer.finish().unwrap();
    records
}

#[test]
fn received_records_give_the_files_that_updates_give() {
    let directory = directory("parquet-received");
    for schema in Schema::ALL {
        let dbn = directory.join(format!("{schema}.dbn"));
        let records = write(&dbn, schema, &Options::default(), &session()).records;
        for ending in ["parquet", "csv", "json"] {
            let made = directory.join(format!("made-{schema}.{ending}"));
            let got = directory.join(format!("got-{schema}.{ending}"));
            write(&made, schema, &Options::default(), &session());
            assert_eq!(received(&dbn, &got, schema), records, "{schema}.{ending}");
            if ending != "parquet" {
                assert_eq!(std::fs::read_to_string(got).unwrap(), std::fs::read_to_string(made).unwrap());
                continue;
            }
            let mut rows = read(&made);
            for row in &mut rows {
                // No record has it.
                row.remove("channel_sequence");
                row.remove("line");
            }
            assert_eq!(read(&got), rows, "{schema}");
        }
    }
}

#[test]
fn every_column_of_dbn_is_there_in_its_order() {
    let directory = directory("parquet-columns");
    for schema in Schema::ALL {
        let csv = directory.join(format!("{schema}.csv"));
        let parquet = directory.join(format!("{schema}.parquet"));
        write(&csv, schema, &Options::default(), &session());
        write(&parquet, schema, &Options::default(), &session());
        let text = std::fs::read_to_string(csv).unwrap();
        let expected: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let reader = SerializedFileReader::new(File::open(parquet).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
        // Behind DBN's and the symbol stands what no record of DBN has.
        assert_eq!(&names[..expected.len()], &expected[..], "{schema}");
    }
}
