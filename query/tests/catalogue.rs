//! Folders as `tapeworks batch` makes them, and what is read of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{Decimal128Type, Int64Type, TimestampNanosecondType};
use datafusion::parquet::arrow::ArrowWriter;
use tapeworks_query::arguments::Format;
use tapeworks_query::output;
use tapeworks_query::{Catalogue, Options, QueryError};

/// A record of a test: time, symbol, a number.
type Record = (i64, &'static str, i64);

fn times(records: &[Record]) -> ArrayRef {
    let times = TimestampNanosecondArray::from_iter_values(records.iter().map(|(time, ..)| *time));
    Arc::new(times.with_timezone("UTC"))
}

fn symbols(records: &[Record]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(records.iter().map(|(_, symbol, _)| *symbol)))
}

/// Writes records as a file of a batch, in row groups of four.
fn write(
    folder: &Path,
    schema: &str,
    date: &str,
    bucket: &str,
    name: &str,
    column: &str,
    records: &[Record],
) {
    let folder = folder.join(format!("schema={schema}/date={date}/bucket={bucket}"));
    fs::create_dir_all(&folder).unwrap();
    let prices = Decimal128Array::from_iter_values(
        records.iter().map(|(.., value)| i128::from(*value) * 1_000_000_000),
    );
    let prices: ArrayRef = Arc::new(prices.with_precision_and_scale(18, 9).unwrap());
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(records.iter().map(|(.., value)| *value)));
    let batch = RecordBatch::try_from_iter([
        ("ts_recv", times(records)),
        ("symbol", symbols(records)),
        (column, prices),
        ("number", numbers),
    ])
    .unwrap();
    let file = File::create(folder.join(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    for start in (0..records.len()).step_by(4) {
        writer.write(&batch.slice(start, 4.min(records.len() - start))).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

/// Two days, two buckets, quotes of which several have one time.
fn days(folder: &Path) {
    write(
        folder,
        "trades",
        "2025-11-14",
        "00",
        "venue.parquet",
        "price",
        &[(5, "A", 1), (10, "A", 2), (10, "C", 3), (20, "A", 4), (20, "A", 5), (35, "C", 6)],
    );
    write(
        folder,
        "cmbp-1",
        "2025-11-14",
        "00",
        "nbbo.parquet",
        "bid_px_00",
        &[
            (10, "A", 100),
            (10, "A", 101),
            (10, "A", 102),
            (15, "C", 103),
            (20, "A", 104),
            (21, "A", 105),
            (30, "C", 106),
        ],
    );
    write(folder, "trades", "2025-11-14", "01", "venue.parquet", "price", &[(50, "B", 7)]);
    write(folder, "trades", "2025-11-17", "00", "venue.parquet", "price", &[(90, "A", 8), (91, "A", 9)]);
    write(folder, "cmbp-1", "2025-11-17", "00", "nbbo.parquet", "bid_px_00", &[(91, "A", 107)]);
    fs::write(folder.join("manifest.json"), r#"{"tasks":[{"missing_messages":0}]}"#).unwrap();
}

async fn open(folder: &Path) -> Catalogue {
    let options = Options { threads: NonZeroUsize::new(3), memory_bytes: None };
    Catalogue::open(folder.to_str().unwrap(), &options).await.unwrap()
}

async fn numbers(catalogue: &Catalogue, statement: &str) -> Vec<Vec<Option<i64>>> {
    let batches = catalogue.sql(statement).await.unwrap().collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let of_column = |column: &ArrayRef| {
                let column =
                    datafusion::arrow::compute::cast(column, &datafusion::arrow::datatypes::DataType::Int64)
                        .unwrap();
                let column = column.as_primitive::<Int64Type>();
                column.is_valid(row).then(|| column.value(row))
            };
            rows.push(batch.columns().iter().map(of_column).collect());
        }
    }
    rows
}

#[tokio::test]
async fn catalogue_names_a_table_for_each_schema_with_its_folders_as_columns() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let catalogue = open(folder.path()).await;
    let tables: Vec<_> =
        catalogue.tables().map(|(name, schema)| (name.to_owned(), schema.fields().len())).collect();
    assert_eq!(tables, [("cmbp_1".to_owned(), 6), ("trades".to_owned(), 6)]);
    assert_eq!((catalogue.files("trades"), catalogue.files("cmbp_1"), catalogue.files("mbo")), (3, 2, 0));
    assert_eq!(catalogue.warnings(), &[] as &[String]);
    let count = "SELECT count(*) FROM trades WHERE date = '2025-11-14' AND bucket = '00'";
    assert_eq!(numbers(&catalogue, count).await, [[Some(6)]]);
    let sum = "SELECT sum(number) FROM trades WHERE date > '2025-11-14'";
    assert_eq!(numbers(&catalogue, sum).await, [[Some(17)]]);
}

#[tokio::test]
async fn as_of_gives_the_last_record_at_the_time_or_none() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let catalogue = open(folder.path()).await;
    let joined = "SELECT number, last_number FROM as_of('trades', 'cmbp_1') ORDER BY number";
    let expected = [
        [Some(1), None],
        [Some(2), Some(102)],
        [Some(3), None],
        [Some(4), Some(104)],
        [Some(5), Some(104)],
        [Some(6), Some(106)],
        [Some(7), None],
        [Some(8), None],
        [Some(9), Some(107)],
    ];
    assert_eq!(numbers(&catalogue, joined).await, expected);
    let filtered = "SELECT number, last_number FROM as_of('trades', 'cmbp_1') AS t \
                    WHERE t.date = '2025-11-14' AND bucket = '00' AND last_number > 102 ORDER BY number";
    assert_eq!(numbers(&catalogue, filtered).await, expected[3..6]);
    let limited = numbers(&catalogue, "SELECT number FROM as_of('trades', 'cmbp_1') LIMIT 4").await;
    assert_eq!(limited.len(), 4);
    let all = catalogue.sql("SELECT * FROM as_of('trades', 'cmbp_1') WHERE number = 6").await.unwrap();
    let all = datafusion::arrow::compute::concat_batches(
        &Arc::new(all.schema().as_arrow().clone()),
        &all.collect().await.unwrap(),
    )
    .unwrap();
    let names: Vec<_> = all.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(
        names,
        [
            "ts_recv",
            "symbol",
            "price",
            "number",
            "date",
            "bucket",
            "last_ts_recv",
            "bid_px_00",
            "last_number",
        ]
    );
    assert_eq!(all.column(6).as_primitive::<TimestampNanosecondType>().value(0), 30);
    assert_eq!(all.column(7).as_primitive::<Decimal128Type>().value(0), 106_000_000_000);
}

/// A small generator of numbers, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test]
async fn as_of_agrees_with_a_slow_model_on_random_days() {
    for seed in 1..=20 {
        let mut random = Numbers(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        for (date, bucket) in [("2025-01-02", "0"), ("2025-01-02", "1"), ("2025-01-03", "0")] {
            let symbol = |random: &mut Numbers| ["A", "B", "C"][random.below(3) as usize];
            // Times step back now and then, as those of what waited behind a gap do.
            let mut records = |first: i64, count: u64| -> Vec<Record> {
                (0..count)
                    .map(|index| (random.below(40) as i64, symbol(&mut random), first + index as i64))
                    .collect()
            };
            let base = expected.len() as i64 * 1_000;
            let quotes = records(base, 30);
            let trades = records(base + 500, 30);
            write(folder.path(), "trades", date, bucket, "x.parquet", "price", &trades);
            write(folder.path(), "cmbp-1", date, bucket, "nbbo.parquet", "bid_px_00", &quotes);
            for (time, symbol, number) in trades {
                let at = quotes.iter().filter(|(received, of, _)| *of == symbol && *received <= time);
                // The last of the greatest time.
                let last = at.max_by_key(|(received, ..)| *received).map(|(.., number)| *number);
                expected.insert(number, last);
            }
        }
        let catalogue = open(folder.path()).await;
        let joined = numbers(&catalogue, "SELECT number, last_number FROM as_of('trades', 'cmbp_1')").await;
        let joined: BTreeMap<i64, Option<i64>> =
            joined.into_iter().map(|row| (row[0].unwrap(), row[1])).collect();
        assert_eq!(joined, expected, "seed {seed}");
    }
}

#[tokio::test]
async fn catalogue_refuses_wrong_statements_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let catalogue = open(folder.path()).await;
    for (statement, expected) in [
        ("SELECT * FROM quotes", "quotes"),
        ("SELECT nothing FROM trades", "nothing"),
        ("SELECT", "found: EOF"),
        ("", "No SQL statements"),
        ("SELECT 1; SELECT 2", "a single SQL statement"),
        ("SELECT * FROM as_of('trades')", "takes two names, not 1"),
        ("SELECT * FROM as_of('trades', 'mbo')", "there is no table 'mbo'; there are cmbp_1, trades"),
        ("SELECT * FROM as_of(1, 2)", "takes names of tables in quotes"),
        ("DROP TABLE trades", "DDL"),
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't'", "DDL"),
        ("COPY trades TO 't.parquet'", "DML"),
        ("SET datafusion.execution.batch_size = 1", "Statement"),
    ] {
        let error = match catalogue.sql(statement).await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{statement} is planned"),
        };
        assert!(error.contains(expected), "{statement}: {error}");
        assert_eq!(error.lines().count(), 1, "{statement}: {error}");
    }
}

#[tokio::test]
async fn catalogue_refuses_places_without_files_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let of = async |place: &Path| match Catalogue::open(place.to_str().unwrap(), &Options::default()).await {
        Err(error) => error,
        Ok(_) => panic!("{} is opened", place.display()),
    };
    assert!(matches!(of(folder.path()).await, QueryError::NoTables { .. }));
    assert!(of(&folder.path().join("gone")).await.to_string().contains("gone: No such file"));
    fs::write(folder.path().join("file"), "x").unwrap();
    assert!(of(&folder.path().join("file")).await.to_string().contains("this is not a folder"));
    assert!(of(Path::new("ftp://host/days")).await.to_string().starts_with("ftp://host/days: "));
}

#[tokio::test]
async fn catalogue_opens_folders_with_odd_names() {
    let outer = tempfile::tempdir().unwrap();
    for name in ["a b", "100%", "%41", "x*", "[y]", "ü?#"] {
        let folder = outer.path().join(name);
        days(&folder);
        let catalogue = open(&folder).await;
        assert_eq!(numbers(&catalogue, "SELECT count(*) FROM trades").await, [[Some(9)]], "{name}");
        let joined = "SELECT count(last_number) FROM as_of('trades', 'cmbp_1')";
        assert_eq!(numbers(&catalogue, joined).await, [[Some(5)]], "{name}");
    }
}

#[tokio::test]
async fn catalogue_warns_of_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let manifest = folder.path().join("manifest.json");
    fs::write(&manifest, r#"{"tasks":[{"missing_messages":5},{"missing_messages":2}],"failed_inputs":[{}]}"#)
        .unwrap();
    fs::write(folder.path().join("schema=trades/date=2025-11-14/bucket=00/notes.txt"), "x").unwrap();
    let warnings = open(folder.path()).await.warnings().join("; ");
    for expected in ["7 messages are missing", "1 files could not be used", "1 files are no Parquet files"] {
        assert!(warnings.contains(expected), "{warnings}");
    }
    let many = format!(r#"{{"tasks":[{{"missing_messages":{}}},{{"missing_messages":2}}]}}"#, u64::MAX);
    fs::write(&manifest, many).unwrap();
    let warnings = open(folder.path()).await.warnings().join("; ");
    assert!(warnings.contains(&format!("{} messages are missing", u64::MAX)), "{warnings}");
    fs::write(&manifest, "{").unwrap();
    assert!(open(folder.path()).await.warnings().join("; ").contains("manifest.json: "));
    fs::remove_file(&manifest).unwrap();
    assert!(open(folder.path()).await.warnings().join("; ").contains("there is no manifest.json"));
}

#[tokio::test]
async fn query_names_a_damaged_file_and_leaves_no_result() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let damaged = folder.path().join("schema=trades/date=2025-11-17/bucket=00/venue.parquet");
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, "").unwrap();
    let warning = open(folder.path()).await.warnings().join("; ");
    assert!(warning.contains("date=2025-11-17/bucket=00/venue.parquet: the file is empty"), "{warning}");
    for kept in [4, 60, bytes.len() - 5, bytes.len() - 1] {
        fs::write(&damaged, &bytes[..kept]).unwrap();
        let opened = Catalogue::open(folder.path().to_str().unwrap(), &Options::default()).await;
        let Err(error) = opened.map(drop) else { panic!("a file cut at {kept} cannot be read") };
        let error = error.to_string();
        assert!(error.lines().count() == 1 && error.contains("bucket=00/venue.parquet: "), "{error}");
    }
    fs::write(&damaged, &bytes).unwrap();
    let catalogue = open(folder.path()).await;
    fs::remove_file(&damaged).unwrap();
    let out = folder.path().join("out.csv");
    for statement in ["SELECT * FROM trades", "SELECT * FROM as_of('trades', 'cmbp_1')"] {
        let answer = catalogue.sql(statement).await.unwrap();
        let written = output::write_file(answer, &out, Format::Csv, None, false).await;
        let error = written.expect_err("the file is gone").to_string();
        assert!(error.lines().count() == 1 && error.contains("venue.parquet"), "{error}");
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("out.csv")), "{names:?}");
    }
}

#[tokio::test]
async fn query_writes_every_format() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let catalogue = open(folder.path()).await;
    let statement =
        "SELECT number, symbol, price FROM trades WHERE date = '2025-11-14' ORDER BY number LIMIT 2";
    for (format, expected) in [
        (Format::Csv, "number,symbol,price\n1,A,1.000000000\n2,A,2.000000000\n"),
        (
            Format::Json,
            "{\"number\":1,\"symbol\":\"A\",\"price\":1.000000000}\n{\"number\":2,\"symbol\":\"A\",\"price\":2.000000000}\n",
        ),
    ] {
        let mut text = Vec::new();
        let answer = catalogue.sql(statement).await.unwrap();
        assert_eq!(output::write_text(answer, &mut text, format, None).await.unwrap(), 2);
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
    let mut text = Vec::new();
    let answer = catalogue.sql("SELECT number FROM trades ORDER BY number").await.unwrap();
    output::write_text(answer, &mut text, Format::Table, Some(3)).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("3 rows, and there are more: --rows 0 shows all\n"), "{text}");
    assert!(text.contains("| 3      |") && !text.contains("| 4      |"), "{text}");
    let nothing = catalogue.sql("SELECT number FROM trades WHERE number < 0").await.unwrap();
    let mut text = Vec::new();
    output::write_text(nothing, &mut text, Format::Csv, None).await.unwrap();
    assert_eq!(text, b"number\n");
    let path = folder.path().join("out.parquet");
    let answer = catalogue.sql(statement).await.unwrap();
    assert_eq!(output::write_file(answer, &path, Format::Parquet, None, false).await.unwrap(), 2);
    let read = datafusion::prelude::SessionContext::new();
    let read = read.read_parquet(path.to_str().unwrap(), Default::default()).await.unwrap();
    assert_eq!(read.count().await.unwrap(), 2);
}

#[tokio::test]
async fn query_keeps_to_its_memory_or_says_that_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let quotes: Vec<Record> = (0..200_000).map(|index| (index, "A", index)).collect();
    write(folder.path(), "cmbp-1", "2025-11-14", "00", "nbbo.parquet", "bid_px_00", &quotes[..1_000]);
    write(folder.path(), "trades", "2025-11-14", "00", "x.parquet", "price", &quotes[..1_000]);
    let options = Options { threads: NonZeroUsize::new(1), memory_bytes: Some(10_000) };
    let catalogue = Catalogue::open(folder.path().to_str().unwrap(), &options).await.unwrap();
    let answer = catalogue.sql("SELECT number, last_number FROM as_of('trades', 'cmbp_1')").await.unwrap();
    let error = answer.collect().await.expect_err("it needs more").to_string();
    assert!(error.contains("as_of"), "{error}");
}

/// Writes a file of a batch whose columns these are.
fn write_columns(folder: &Path, part: &str, columns: Vec<(&str, ArrayRef)>) {
    let folder = folder.join(part);
    fs::create_dir_all(&folder).unwrap();
    // Without nulls a column is declared to have none.
    let columns = columns.into_iter().map(|(name, column)| {
        let is_optional = column.null_count() != 0;
        (name, column, is_optional)
    });
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(folder.join("x.parquet")).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn as_of_gives_nulls_for_the_columns_that_an_older_file_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let records: &[Record] = &[(5, "A", 1), (10, "A", 2)];
    let number = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
    for (date, is_old) in [("2025-11-14", true), ("2025-11-17", false)] {
        for (schema, own) in [("trades", "size"), ("cmbp-1", "bid")] {
            let mut columns =
                vec![("ts_recv", times(records)), ("symbol", symbols(records)), ("number", number())];
            if !is_old {
                columns.push((own, number()));
            }
            write_columns(folder.path(), &format!("schema={schema}/date={date}/bucket=00"), columns);
        }
    }
    let catalogue = open(folder.path()).await;
    let expected = [
        [Some(1), None, None],
        [Some(2), None, None],
        [Some(1), Some(1), Some(1)],
        [Some(2), Some(2), Some(2)],
    ];
    let joined = "SELECT last_number, size, bid FROM as_of('trades', 'cmbp_1') ORDER BY date, number";
    assert_eq!(numbers(&catalogue, joined).await, expected);
    let alone = numbers(&catalogue, "SELECT number, size FROM trades ORDER BY date, number").await;
    assert_eq!(alone, expected.map(|[number, size, _]| vec![number, size]));
}

#[tokio::test]
async fn catalogue_names_the_file_or_folder_that_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let refused = async || {
        let opened = Catalogue::open(folder.path().to_str().unwrap(), &Options::default()).await;
        let error = opened.map(drop).expect_err("one file does not fit").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    days(folder.path());
    for date in ["2025-02-30", "x"] {
        let bad = folder.path().join(format!("schema=trades/date={date}"));
        fs::create_dir_all(bad.join("bucket=00")).unwrap();
        fs::write(bad.join("bucket=00/x.parquet"), "x").unwrap();
        let error = refused().await;
        assert!(error.contains(&format!("date={date}/bucket=00/x.parquet: '{date}' is no date")), "{error}");
        fs::remove_dir_all(bad).unwrap();
    }
    let text = Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
    write_columns(folder.path(), "schema=trades/date=2025-11-17/bucket=01", vec![("price", text)]);
    let error = refused().await;
    assert!(error.contains("schema=trades/date=2025-11-17/bucket=01/x.parquet: "), "{error}");
    fs::remove_dir_all(folder.path().join("schema=trades/date=2025-11-17/bucket=01")).unwrap();
    days(folder.path());
    let number = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    write_columns(folder.path(), "schema=a.b/date=2025-11-17/bucket=01", vec![("price", number())]);
    assert_eq!(numbers(&open(folder.path()).await, "SELECT price FROM \"a.b\"").await, [[Some(1)]]);
    write_columns(folder.path(), "schema=cmbp_1/date=2025-11-17/bucket=01", vec![("price", number())]);
    let error = refused().await;
    assert!(error.contains("schema=cmbp_1: there is another folder whose table is cmbp_1"), "{error}");
}

#[tokio::test]
async fn as_of_reads_nothing_of_a_table_whose_columns_are_not_named() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let catalogue = open(folder.path()).await;
    fs::remove_dir_all(folder.path().join("schema=cmbp-1")).unwrap();
    let count = "SELECT count(*), sum(number) FROM as_of('trades', 'cmbp_1')";
    assert_eq!(numbers(&catalogue, count).await, [[Some(9), Some(45)]]);
}

#[tokio::test]
async fn query_replaces_a_file_only_if_it_is_to_and_leaves_links_and_devices_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    days(folder.path());
    let catalogue = open(folder.path()).await;
    let (file, link) = (folder.path().join("out.csv"), folder.path().join("link.csv"));
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink("out.csv", &link).unwrap();
    let write = async |path: &Path, overwrite: bool| {
        let answer = catalogue.sql("SELECT 1 AS one").await.unwrap();
        output::write_file(answer, path, Format::Csv, None, overwrite).await
    };
    for path in [&file, &link] {
        assert!(write(path, false).await.expect_err("it exists").to_string().contains("the file exists"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }
    write(&link, true).await.unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n1\n");
    write(Path::new("/dev/null"), false).await.unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
