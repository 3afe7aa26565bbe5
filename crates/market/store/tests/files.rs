//! Files as a whole: every schema in every format, the same bytes each time, and what happens when they cannot be
//! written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod session;

use std::path::Path;

use session::*;
use tapeworks_capture::new_file::NewFileError;
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Side};
use tapeworks_store::apart::{Encoders, Lost as LostUnit, Work};
use tapeworks_store::{Compression, Format, Options, Prices, Schema, Skip, StoreError, Summary, Writer};

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_same_input_gives_the_same_bytes_in_every_schema_and_format() {
    let directory = directory("files-same");
    for schema in Schema::ALL {
        for (ending, _) in Format::ENDINGS {
            let files = ["first", "second"].map(|name| directory.join(format!("{name}-{schema}{ending}")));
            let summaries = files.each_ref().map(|file| write(file, schema, &Options::default(), &session()));
            assert_eq!(summaries[0], summaries[1]);
            assert!(summaries[0].records > 0);
            let [first, second] = files.map(|file| std::fs::read(file).unwrap());
            assert!(first == second, "{schema}{ending}");
        }
    }
}

#[test]
fn a_file_without_records_is_whole_in_every_schema_and_format() {
    let directory = directory("files-empty");
    for schema in Schema::ALL {
        for (ending, _) in Format::ENDINGS {
            let summary =
                write(&directory.join(format!("{schema}{ending}")), schema, &Options::default(), &[]);
            assert_eq!((summary.records, summary.updates), (0, 0));
        }
    }
    assert_eq!(names(&directory).len(), Schema::ALL.len() * Format::ENDINGS.len());
    let csv = std::fs::read_to_string(directory.join("trades.csv")).unwrap();
    assert!(csv.starts_with("ts_recv,ts_event,") && csv.ends_with(",symbol\n"), "{csv}");
}

#[test]
fn events_of_no_instrument_are_skipped_and_counted_in_every_schema() {
    let directory = directory("files-no-instrument");
    let mut events = session();
    let whole = |name: &str, schema: Schema, events: &[Event]| {
        let path = directory.join(format!("{name}-{schema}.dbn"));
        (write(&path, schema, &Options::default(), events), std::fs::read(path).unwrap())
    };
    let of_session: Vec<_> = Schema::ALL.map(|schema| whole("session", schema, &events)).into();
    let middle = events.len() / 2;
    let before = events[middle - 1];
    for kind in [EventKind::Trade, EventKind::Quote, EventKind::Level, EventKind::Add, EventKind::Status] {
        let of_none = Event { kind, instrument: InstrumentId::UNKNOWN, order_id: 900, size: 100, ..before };
        events.insert(
            middle,
            Event { side: Side::Bid, price: dollars("10.00"), ..of_none }.with_flags(Flags::LAST),
        );
    }
    for (schema, (summary, bytes)) in Schema::ALL.into_iter().zip(of_session) {
        let (with, bytes_with) = whole("more", schema, &events);
        assert_eq!((with.skipped(Skip::NoInstrument), with.records), (5, summary.records), "{schema}");
        assert!(bytes == bytes_with, "{schema}");
    }
}

#[test]
fn batches_follow_one_another() {
    let directory = directory("files-batches");
    let events: Vec<_> =
        (1..=20_000).map(|n| add(n, n, Side::Bid, &format!("{}", 1 + n % 50), 100 + n as u32)).collect();
    let bytes = ["orders.dbn", "orders.dbn.zst"].map(|name| {
        let summary = write(&directory.join(name), Schema::Mbo, &Options::default(), &events);
        assert_eq!((summary.records, summary.updates), (20_000, 20_000));
        let bytes = std::fs::read(directory.join(name)).unwrap();
        if name.ends_with("zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes }
    });
    assert!(bytes[0] == bytes[1], "compressed or not, it is the same stream");
    write(&directory.join("orders.csv"), Schema::Mbo, &Options::default(), &events);
    let csv = std::fs::read_to_string(directory.join("orders.csv")).unwrap();
    assert_eq!(csv.lines().count(), 20_001);
}

#[test]
fn csv_has_raw_numbers_or_readable_ones() {
    let directory = directory("files-csv");
    let events = session();
    let text = |name: &str, pretty| {
        let options = Options { pretty, ..Options::default() };
        write(&directory.join(name), Schema::Mbo, &options, &events);
        let bytes = std::fs::read(directory.join(name)).unwrap();
        String::from_utf8(if name.ends_with("zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes })
            .unwrap()
    };
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let plain = lines(&text("plain.csv", false));
    assert_eq!(
        plain[0],
        "ts_recv,ts_event,rtype,publisher_id,instrument_id,action,side,price,size,channel_id,order_id,flags,\
         ts_in_delta,sequence,symbol"
    );
    assert_eq!(
        plain[1],
        "1780320600004004000,1780320600004000000,160,2,1,A,B,10000000000,300,0,1,128,4000,4,AAA"
    );
    let pretty = lines(&text("pretty.csv", true));
    assert_eq!(
        pretty[1],
        "2026-06-01T13:30:00.004004000Z,2026-06-01T13:30:00.004000000Z,160,2,1,A,B,10.000000000,300,0,1,128,\
         4000,4,AAA"
    );
    assert_eq!(
        pretty.last().unwrap(),
        "2026-06-01T13:31:02.000000000Z,2026-06-01T13:30:00.027000000Z,160,2,1,R,N,,0,0,0,128,2147483647,27,AAA"
    );
    assert_eq!(lines(&text("plain.csv.zst", false)), plain);
}

#[test]
fn json_is_an_object_per_line() {
    let directory = directory("files-json");
    for (name, pretty, expected) in [
        (
            "plain.jsonl",
            false,
            r#"{"ts_recv":"1780320600012012000","hd":{"ts_event":"1780320600012000000","rtype":0,"publisher_id":2,"instrument_id":1},"action":"T","side":"N","depth":0,"price":"10010000000","size":30,"flags":132,"ts_in_delta":12000,"sequence":12,"symbol":"AAA"}"#,
        ),
        (
            "pretty.json",
            true,
            r#"{"ts_recv":"2026-06-01T13:30:00.012012000Z","hd":{"ts_event":"2026-06-01T13:30:00.012000000Z","rtype":0,"publisher_id":2,"instrument_id":1},"action":"T","side":"N","depth":0,"price":"10.010000000","size":30,"flags":132,"ts_in_delta":12000,"sequence":12,"symbol":"AAA"}"#,
        ),
    ] {
        let options = Options { pretty, ..Options::default() };
        write(&directory.join(name), Schema::Trades, &options, &session());
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(text.lines().nth(2).unwrap(), expected);
        assert_eq!(text.lines().count(), 4);
    }
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let directory = directory("files-exists");
    let path = directory.join("a.csv");
    std::fs::write(&path, "precious").unwrap();
    let refused = Writer::create(&path, Schema::Mbo, &Options::default());
    assert!(matches!(refused, Err(StoreError::File(NewFileError::Exists { .. }))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let options = Options { overwrite: true, ..Options::default() };
    let writer = Writer::create(&path, Schema::Mbo, &options).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious", "until the new one is whole");
    writer.finish(&instruments()).unwrap();
    assert_ne!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_file_that_another_writer_makes_is_refused_in_every_format() {
    let directory = directory("files-two");
    for (ending, _) in Format::ENDINGS {
        let path = directory.join(format!("two{ending}"));
        let options = Options { overwrite: true, ..Options::default() };
        let mut first = Writer::create(&path, Schema::Mbo, &options).unwrap();
        put_all(&mut first, &session()).unwrap();
        let second = Writer::create(&path, Schema::Mbo, &options);
        assert!(matches!(second, Err(StoreError::File(NewFileError::Busy { .. }))), "{ending}: {second:?}");
        first.finish(&instruments()).unwrap();
        let alone = directory.join(format!("alone{ending}"));
        write(&alone, Schema::Mbo, &options, &session());
        assert!(std::fs::read(path).unwrap() == std::fs::read(alone).unwrap(), "{ending}");
    }
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let directory = directory("files-meanwhile");
    let path = directory.join("a.dbn");
    let writer = Writer::create(&path, Schema::Mbo, &Options::default()).unwrap();
    std::fs::write(&path, "precious").unwrap();
    let kept = writer.finish(&instruments()).unwrap_err();
    assert!(matches!(kept, StoreError::File(NewFileError::Name { .. })), "{kept}");
    assert_eq!(names(&directory), ["a.dbn", "a.dbn.partial"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_path_that_cannot_hold_a_file_is_an_error() {
    let directory = directory("files-nowhere");
    let create = |path: &Path| Writer::create(path, Schema::Mbo, &Options::default()).unwrap_err();
    assert!(matches!(create(&directory.join("a.txt")), StoreError::UnknownEnding { .. }));
    std::fs::create_dir(directory.join("b.dbn")).unwrap();
    assert!(matches!(create(&directory.join("b.dbn")), StoreError::File(NewFileError::IsFolder { .. })));
    let message = create(&directory.join("missing/c.parquet"));
    assert!(matches!(message, StoreError::File(NewFileError::Create { .. })));
    assert!(message.to_string().contains("missing/c.parquet"), "{message}");
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let directory = directory("files-dropped");
    for (ending, _) in Format::ENDINGS {
        let path = directory.join(format!("a{ending}"));
        let mut writer = Writer::create(&path, Schema::Mbo, &Options::default()).unwrap();
        put_all(&mut writer, &session()).unwrap();
        assert!(!names(&directory).is_empty());
        drop(writer);
        assert_eq!(names(&directory), [""; 0]);
    }
}

#[test]
fn every_choice_for_parquet_gives_a_file() {
    let directory = directory("files-parquet");
    for prices in [Prices::Decimal, Prices::Float, Prices::Fixed] {
        for compression in [Compression::None, Compression::Snappy, Compression::Zstd] {
            let options = Options { prices, compression, ..Options::default() };
            let path = directory.join(format!("{prices:?}-{compression:?}.parquet"));
            let summary = write(&path, Schema::Mbo, &options, &session());
            assert_eq!(summary.records, 19);
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        }
    }
}

/// Encodes nothing before it must, and the latest first.
#[derive(Default)]
struct Latest(Vec<Work>);

impl Encoders for Latest {
    fn give(&mut self, work: Work) -> Result<(), LostUnit> {
        self.0.push(work);
        Ok(())
    }

    fn rest(&mut self) -> Result<(), LostUnit> {
        self.0.drain(..).rev().for_each(Work::encode);
        Ok(())
    }
}

/// Encodes at once.
struct AtOnce;

impl Encoders for AtOnce {
    fn give(&mut self, work: Work) -> Result<(), LostUnit> {
        work.encode();
        Ok(())
    }

    fn rest(&mut self) -> Result<(), LostUnit> {
        Ok(())
    }
}

/// Loses what it is given.
struct Lost;

impl Encoders for Lost {
    fn give(&mut self, _work: Work) -> Result<(), LostUnit> {
        Ok(())
    }

    fn rest(&mut self) -> Result<(), LostUnit> {
        Ok(())
    }
}

fn feed(mut writer: Writer, events: &[Event]) -> Result<Summary, StoreError> {
    put_all(&mut writer, events)?;
    writer.finish(&instruments())
}

#[test]
fn batches_that_others_encode_give_the_same_file_in_whatever_order_they_come_back() {
    let folder = tempfile::tempdir().unwrap();
    // Two row groups, the second of them not full.
    let events: Vec<_> = (1..=300_000)
        .map(|n| add(n, n, Side::Bid, &format!("{}", 1 + n * 7_919 % 50), 100 + (n % 7) as u32))
        .collect();
    let options = Options { overwrite: true, ..Options::default() };
    let by = |name: &str, events: &[Event], encoders: Option<Box<dyn Encoders>>| {
        let path = folder.path().join(name);
        let writer = match encoders {
            None => Writer::create(&path, Schema::Mbo, &options),
            Some(encoders) => Writer::create_apart(&path, Schema::Mbo, &options, encoders),
        };
        (feed(writer.unwrap(), events).unwrap(), std::fs::read(&path).unwrap())
    };
    let plain = by("plain.parquet", &events, None);
    assert_eq!(plain.0.records, 300_000);
    for encoders in [Box::new(AtOnce) as Box<dyn Encoders>, Box::new(Latest::default())] {
        assert!(plain == by("apart.parquet", &events, Some(encoders)));
    }
    // Other formats have nothing to give away.
    assert!(by("a.csv", &events[..100], None) == by("b.csv", &events[..100], Some(Box::new(Lost))));
}

#[test]
fn a_batch_that_does_not_come_back_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lost.parquet");
    let writer = Writer::create_apart(&path, Schema::Mbo, &Options::default(), Box::new(Lost)).unwrap();
    let error = feed(writer, &[add(1, 1, Side::Bid, "1", 100)]).unwrap_err();
    assert!(error.to_string().ends_with("1 batches were not encoded"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
