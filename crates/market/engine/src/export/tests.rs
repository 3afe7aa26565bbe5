//! Tests of exporting journals as files per day.

use std::collections::BTreeMap;
use std::fs;

use tapeworks_feed::live::Input;
use tapeworks_journal::{JournalOptions, JournalWriter};
use tapeworks_market::Line;
use tapeworks_time::Nanos;
use tempfile::tempdir;

use super::*;
use crate::checkpoint::Checkpoint;
use crate::days::{days_before, days_of};
use crate::records::record_of;
use crate::tests::{options as engine_options, records, session};

/// Journals a session like a plant. Returns its events.
fn keep(journal: &Path) -> Vec<Event> {
    let (mut writer, _) = JournalWriter::open(journal, JournalOptions::default()).unwrap();
    let (mut engine, mut events) = (Engine::new(&engine_options()), Vec::new());
    for (channel, received, payload) in &session() {
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        writer.append(&record_of(&input.borrowed(), &mut [0; 16])).unwrap();
        engine.input(&input.borrowed(), &mut events);
    }
    writer.sync().unwrap();
    events
}

/// Returns the records of a single file over all venues.
fn whole(events: &[Event], schema: Schema, path: &Path) -> BTreeMap<u16, Vec<Vec<u8>>> {
    let mut writer = Writer::create(path, schema, &Options::default()).unwrap();
    let mut market = Market::new(&engine_options().books);
    market.apply(events, |update, instruments| writer.put(update, instruments).unwrap());
    writer.finish(&market.instruments).unwrap();
    records(path)
}

fn options(folder: &Path) -> ExportOptions {
    ExportOptions {
        folder: folder.to_owned(),
        schemas: vec![Schema::Mbo, Schema::Trades, Schema::Imbalance, Schema::Cmbp1],
        ending: "dbn".to_owned(),
        overwrite: false,
        date: None,
    }
}

#[test]
fn a_journal_becomes_the_files_of_each_venue_and_of_the_nbbo() {
    let (journal, out) = (tempdir().unwrap(), tempdir().unwrap());
    let events = keep(journal.path());
    let exported = export(&engine_options(), journal.path(), &options(out.path()), |_| true).unwrap();
    assert_eq!(exported.events, events.len() as u64);
    let day = out.path().join(exported.date.to_string());
    assert_eq!((&exported.folder, exported.lost), (&day, 0));
    let mut expected = BTreeMap::new();
    for schema in options(out.path()).schemas {
        let all = whole(&events, schema, &out.path().join(format!("{schema}.dbn")));
        if schema.is_consolidated() {
            assert_eq!(all.len(), 2, "of both venues");
            expected.insert(format!("nbbo/{schema}.dbn"), all);
            continue;
        }
        for (feed, of_feed) in all {
            let venue = folder_of(Publisher(feed));
            expected.insert(format!("{venue}/{schema}.dbn"), BTreeMap::from([(feed, of_feed)]));
        }
    }
    assert!(expected.contains_key("IEXG.DEEP/trades.dbn") && expected["XNAS.ITCH/mbo.dbn"][&2].len() > 1_000);
    // A schema without records gets no file.
    assert!(!day.join("XBOS.ITCH").exists());
    let name = |file: &ExportedFile| file.path.strip_prefix(&day).unwrap().to_str().unwrap().to_owned();
    let files: BTreeMap<_, _> = exported.files.iter().map(|file| (name(file), records(&file.path))).collect();
    assert!(files == expected, "{:?} and {:?}", files.keys(), expected.keys());
}

#[test]
fn feeds_of_one_dataset_share_its_folder() {
    let (journal, out) = (tempdir().unwrap(), tempdir().unwrap());
    keep(journal.path());
    let mut engine = engine_options();
    let capacity = engine.books.feeds[0].1;
    // The quotes of both SIPs belong to one dataset.
    engine.books.feeds.extend([(Publisher::SIP_UTP, capacity), (Publisher::SIP_CTA, capacity)]);
    let exported = export(&engine, journal.path(), &options(out.path()), |_| true).unwrap();
    let plain = export(&engine_options(), journal.path(), &options(&out.path().join("plain")), |_| true);
    let names = |exported: &Exported| {
        let name = |file: &ExportedFile| file.path.strip_prefix(&exported.folder).unwrap().to_owned();
        exported.files.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&exported), names(&plain.unwrap()));
}

#[test]
fn a_day_folder_is_complete_or_absent() {
    let (journal, out) = (tempdir().unwrap(), tempdir().unwrap());
    keep(journal.path());
    let mut wanted = options(out.path());
    let mut looks = 0;
    let stopped = export(&engine_options(), journal.path(), &wanted, |_| {
        looks += 1;
        false
    });
    assert!(matches!(stopped, Err(ExportError::Stopped)) && looks == 1);
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing is left of it");
    let first = export(&engine_options(), journal.path(), &wanted, |_| true).unwrap();
    let again = export(&engine_options(), journal.path(), &wanted, |_| true);
    assert!(matches!(&again, Err(ExportError::Exists { path }) if *path == first.folder), "{again:?}");
    (wanted.overwrite, wanted.schemas) = (true, vec![Schema::Status]);
    let replaced = export(&engine_options(), journal.path(), &wanted, |_| true).unwrap();
    assert!(!replaced.folder.join("XNAS.ITCH/mbo.dbn").exists());
    let nothing = export(&engine_options(), out.path(), &wanted, |_| true);
    assert!(matches!(nothing, Err(ExportError::Empty { .. })), "{nothing:?}");
    let endings = ["dbn.zst", "parquet", "xlsx", ".dbn", ""];
    assert_eq!(endings.map(is_ending), [true, true, false, false, false]);
}

const DAY: u64 = 86_400 * Nanos::SECOND;

/// Journals a session whose second half is received at the times from `later`, with a checkpoint after the first half
/// if `has_state`. Returns the events.
fn keep_over_days(journal: &Path, has_state: bool, later: impl Fn(Nanos) -> Nanos) -> Vec<Event> {
    let (mut writer, _) = JournalWriter::open(journal, JournalOptions::default()).unwrap();
    let (mut state, mut events) = (Checkpoint::new(&engine_options()), Vec::new());
    let mut packets = session();
    packets.retain(|(_, _, payload)| payload.len() > 40);
    let half = packets.len() / 2;
    for (at, (channel, received, payload)) in packets.iter().enumerate() {
        if has_state && at == half - 20 {
            let path = journal.join(format!("{at:020}.snapshot"));
            fs::write(path, state.write().unwrap()).unwrap();
        }
        let received = if at < half { *received } else { later(*received) };
        let input = Input::Packet { channel: *channel, line: Line::A, received, payload };
        writer.append(&record_of(&input.borrowed(), &mut [0; 16])).unwrap();
        state.input(&input.borrowed(), &mut events);
    }
    writer.sync().unwrap();
    events
}

#[test]
fn a_journal_over_days_becomes_the_files_of_each() {
    for has_state in [false, true] {
        let (journal, out) = (tempdir().unwrap(), tempdir().unwrap());
        let events = keep_over_days(journal.path(), has_state, |received| Nanos(received.0 + 2 * DAY));
        let days = days_of(journal.path()).unwrap();
        let [first, last] = days[..] else { panic!("the day between has no records: {days:?}") };
        let mut wanted = options(out.path());
        let export_of = |date, wanted: &ExportOptions| {
            let wanted = ExportOptions { date, ..wanted.clone() };
            export(&engine_options(), journal.path(), &wanted, |_| true).unwrap()
        };
        let (one, other) = (export_of(None, &wanted), export_of(Some(last), &wanted));
        assert_eq!((one.date, other.date, one.from, other.from), (first, last, None, None));
        // The second day starts from the checkpoint in the first.
        assert_eq!(other.inputs < one.inputs + 100, has_state, "{} {}", one.inputs, other.inputs);
        for schema in &wanted.schemas {
            let mut all = whole(&events, *schema, &out.path().join(format!("{schema}.dbn")));
            let mut parts: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
            for exported in [&one, &other] {
                for file in exported
                    .files
                    .iter()
                    .filter(|file| file.path.file_stem().is_some_and(|stem| *stem == *schema.to_string()))
                {
                    for (feed, records) in records(&file.path) {
                        assert!(!records.is_empty());
                        parts.entry(feed).or_default().extend(records);
                    }
                }
            }
            all.retain(|_, records| !records.is_empty());
            assert!(parts == all && !all.is_empty(), "{schema}");
        }
        // A day without inputs is exported, and is empty.
        wanted.overwrite = true;
        let between = export_of(clock::day_after(first), &wanted);
        assert_eq!(between.files.len(), 0);
    }
}

#[test]
fn the_days_that_are_over_are_those_before_today_of_every_journal() {
    let folder = tempdir().unwrap();
    keep_over_days(&folder.path().join("2024-03-01.2"), false, |received| Nanos(received.0 + DAY));
    keep_over_days(folder.path(), false, |received| Nanos(received.0 + DAY));
    let [first, second] = days_of(folder.path()).unwrap()[..] else { panic!("two days") };
    let names = |today| -> Vec<String> {
        let (due, unreadable) = days_before(today, folder.path());
        assert_eq!(unreadable, []);
        due.into_iter().map(|(.., name)| name).collect()
    };
    assert!(names(first).is_empty());
    assert_eq!(names(second), [first.to_string(), format!("{first}.2")]);
    assert_eq!(names(clock::day_after(second).unwrap()).len(), 4);
    // An unreadable journal is reported, and the others are still listed.
    let segment = folder.path().join("2024-03-01.2").join(format!("{:020}.journal", 0));
    fs::remove_file(&segment).unwrap();
    fs::create_dir(&segment).unwrap();
    let (due, unreadable) = days_before(second, folder.path());
    assert_eq!(due.len(), 1);
    assert!(unreadable[0].0 == "2024-03-01".parse().unwrap(), "{unreadable:?}");
    assert!(unreadable[0].1.contains("cannot be read"), "{unreadable:?}");
}
