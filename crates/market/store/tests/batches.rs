//! Batches for a reader in the same process: their columns hold what the file of the same input holds, whichever thread makes them.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod session;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use dbn::MboMsg;
use dbn::decode::{DbnDecoder, DecodeRecord as _};
use session::*;
use tapeworks_market::{Event, Price, Side};
use tapeworks_store::{
    BatchMaker, BatchSink, Closed, Options, Prices, RowBatch, Schema, StoreError, Summary, Writer,
    arrow_schema,
};
use tapeworks_time::Nanos;

struct ToTest(Sender<RowBatch>);

impl BatchSink for ToTest {
    fn put(&mut self, batch: RowBatch) -> Result<(), Closed> {
        self.0.send(batch).map_err(|_| Closed)
    }
}

/// What the writer of `schema` hands out of `events`.
fn batches(schema: Schema, events: &[Event]) -> (Vec<RowBatch>, Summary) {
    let (sender, receiver) = channel();
    let mut writer = Writer::create_batches(schema, Box::new(ToTest(sender)));
    put_all(&mut writer, events).unwrap();
    let summary = writer.finish(&instruments()).unwrap();
    (receiver.into_iter().collect(), summary)
}

/// More than two batches of orders, of one symbol and then of both.
fn many() -> Vec<Event> {
    let of = |n: u64| {
        let mut event = add(n, n, Side::Bid, "1", 1 + n as u32 % 1000);
        event.instrument = if n > 10_000 && n.is_multiple_of(3) { BBB } else { AAA };
        event
    };
    (1..=20_000).map(of).collect()
}

fn symbols(batch: &RecordBatch) -> Vec<String> {
    let column = batch.column_by_name("symbol").unwrap().as_dictionary::<Int32Type>();
    let texts = column.downcast_dict::<arrow_array::StringArray>().unwrap();
    texts.into_iter().map(|text| text.unwrap().to_owned()).collect()
}

#[test]
fn columns_made_on_another_thread_hold_what_the_file_holds() {
    let events = many();
    let (rows, summary) = batches(Schema::Mbo, &events);
    assert!(rows.len() > 2, "{}", rows.len());
    let made: Vec<RecordBatch> = std::thread::spawn(move || {
        let mut maker = BatchMaker::new(Schema::Mbo, Prices::Fixed);
        rows.into_iter().map(|rows| maker.make(rows).unwrap()).collect()
    })
    .join()
    .unwrap();
    let path = directory("batches").join("a.dbn");
    write(&path, Schema::Mbo, &Options::default(), &events);
    let records: Vec<MboMsg> = DbnDecoder::from_file(&path).unwrap().decode_records().unwrap();
    assert_eq!(summary.records, records.len() as u64);
    let of_all = |get: &dyn Fn(&RecordBatch) -> Vec<String>| made.iter().flat_map(get).collect::<Vec<_>>();
    let expected = |event: &Event| if event.instrument == BBB { "BBB" } else { "AAA" }.to_owned();
    assert_eq!(of_all(&symbols), events.iter().map(expected).collect::<Vec<_>>());
    let orders = |batch: &RecordBatch| {
        let column = batch.column_by_name("order_id").unwrap().as_primitive::<UInt64Type>();
        column.values().iter().map(u64::to_string).collect()
    };
    assert_eq!(of_all(&orders), records.iter().map(|record| record.order_id.to_string()).collect::<Vec<_>>());
    assert!(made.iter().all(|batch| batch.schema() == arrow_schema(Schema::Mbo, Prices::Fixed)));
}

#[test]
fn the_maker_counts_the_values_that_a_column_cannot_hold() {
    let mut vast = add(1, 1, Side::Bid, "1", 100);
    vast.price = Price::from_e9(1_000_000_000_000_000_000);
    vast.ts_event = Nanos(1 << 63);
    let (rows, _) = batches(Schema::Mbo, &[vast]);
    let mut maker = BatchMaker::new(Schema::Mbo, Prices::Decimal);
    let made: Vec<_> = rows.into_iter().map(|rows| maker.make(rows).unwrap()).collect();
    assert_eq!(maker.out_of_range(), 2);
    assert_eq!(made[0].column_by_name("price").unwrap().null_count(), 1);
}

#[test]
fn a_batch_of_another_schema_is_an_error() {
    let (rows, _) = batches(Schema::Trades, &session());
    let mut maker = BatchMaker::new(Schema::Mbp10, Prices::Float);
    let error = maker.make(rows.into_iter().next().unwrap()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Encode { path, .. } if path == Path::new("record batches")),
        "{error}"
    );
}

#[test]
fn a_writer_whose_reader_is_gone_says_so() {
    let (sender, receiver) = channel();
    drop(receiver);
    let mut writer = Writer::create_batches(Schema::Mbo, Box::new(ToTest(sender)));
    let error = put_all(&mut writer, &many()).unwrap_err();
    assert!(error.to_string().contains("the reader is gone"), "{error}");
}
