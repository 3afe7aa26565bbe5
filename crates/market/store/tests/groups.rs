//! Groups of events whose end comes late or never: a file has the records that a stream has, to the last flag.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod session;

use std::path::Path;

use dbn::decode::{DbnDecoder, DecodeRecordRef as _};
use proptest::prelude::*;
use session::*;
use tapeworks_market::event::{Flags, Gap};
use tapeworks_market::{
    BookStage, Capacity, Event, EventKind, InstrumentId, Instruments, NbboStage, NbboUpdate, Price,
    Publisher, Side,
};
use tapeworks_stage::{Stage as _, Through};
use tapeworks_store::live::{Batch, RecordBuilder};
use tapeworks_store::{Options, Schema, Writer};
use tapeworks_time::Nanos;
use tempfile::{TempDir, tempdir, tempdir_in};

const FEEDS: [Publisher; 2] = [Publisher::IEXG_DEEP, Publisher::XNAS_ITCH];

/// What a stream of all feeds hands out.
fn streamed(schema: Schema, events: &[Event]) -> Vec<Vec<u8>> {
    let mut builder = RecordBuilder::new(schema);
    let (mut batch, mut number) = (Batch::default(), 0);
    each_update(events, |update, instruments| {
        builder.put(number, update, instruments, &mut batch);
        number += 1;
    });
    builder.release(&mut batch);
    batch.items().iter().map(|item| batch.record(item).to_vec()).collect()
}

/// A folder in memory where the system offers it: a sync of each file would take most of the time.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempdir_in(memory).unwrap() } else { tempdir().unwrap() }
}

fn each_update(events: &[Event], mut each: impl FnMut(&NbboUpdate<'_>, &Instruments)) {
    let instruments = instruments();
    // Books of the usual size would take most of the time to make.
    let capacity = Capacity { instruments: 2, orders: 8, levels: 16 };
    let books = BookStage::new(FEEDS.map(|feed| (feed, capacity)));
    let mut market = Through::new(books, NbboStage::new(Default::default(), FEEDS, 2));
    for event in events {
        market.process(&[*event], &mut |update: NbboUpdate<'_>| each(&update, &instruments));
    }
}

/// What a file of one feed holds, or of all.
fn filed(schema: Schema, events: &[Event], feed: Option<Publisher>, path: &Path) -> Vec<Vec<u8>> {
    let options = Options { overwrite: true, ..Options::default() };
    let mut writer = Writer::create(path, schema, &options).unwrap();
    each_update(events, |update, instruments| {
        if feed.is_some_and(|feed| feed != update.book.event.publisher) {
            writer.pass(update.book.event);
        } else {
            writer.put(update, instruments).unwrap();
        }
    });
    writer.finish(&instruments()).unwrap();
    let mut decoder = DbnDecoder::from_file(path).unwrap();
    let mut records = Vec::new();
    while let Some(record) = decoder.decode_record_ref().unwrap() {
        records.push(record.as_ref().to_vec());
    }
    records
}

fn event() -> impl Strategy<Value = (Event, u64)> {
    let flags = prop_oneof![3 => Just(Flags(0)), 2 => Just(Flags::LAST), 1 => Just(Flags::SNAPSHOT)];
    // From one packet to a pause that outlasts any group.
    let pause =
        prop_oneof![5 => 0..1_000_000u64, 2 => 1_000_000..8_000_000u64, 1 => 8_000_000..30_000_000u64];
    (0..2usize, 0..2u32, 1..12u32, 0..3u32, flags, 0..40u8, pause).prop_map(
        |(feed, instrument, price, size, flags, kind, pause)| {
            let kind = if kind == 0 { EventKind::Gap } else { EventKind::Level };
            let instrument =
                if kind == EventKind::Gap { InstrumentId::ALL } else { InstrumentId(instrument) };
            let mut event = Event::new(kind, FEEDS[feed], instrument);
            if kind == EventKind::Gap {
                return (event.with_gap(Gap { first: 5, count: 1 }), pause);
            }
            (event.side, event.price, event.size) = (Side::Bid, Some(Price::from_e4(price)), size * 100);
            event.set_flags(flags);
            (event, pause)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_file_has_the_flags_of_the_stream(steps in prop::collection::vec(event(), 1..200)) {
        let directory = scratch();
        let mut now = 1_780_320_600_000_000_000;
        let mut events = Vec::new();
        for (number, (mut event, pause)) in steps.into_iter().enumerate() {
            now += pause;
            (event.ts_event, event.ts_recv, event.channel_sequence) = (Nanos(now), Nanos(now), number as u64);
            events.push(event);
        }
        for schema in [Schema::Mbp1, Schema::Mbp10, Schema::Cmbp1] {
            let stream = streamed(schema, &events);
            let path = directory.path().join(format!("{schema}.dbn"));
            prop_assert_eq!(&filed(schema, &events, None, &path), &stream);
            if schema == Schema::Cmbp1 {
                continue;
            }
            for feed in FEEDS {
                // Bytes 2 and 3 are the publisher.
                let of_feed: Vec<_> =
                    stream.iter().filter(|record| record[2..4] == feed.0.to_le_bytes()).cloned().collect();
                prop_assert_eq!(filed(schema, &events, Some(feed), &path), of_feed);
            }
        }
    }
}
