//! The journal: what was appended is read, whatever happened to the end of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tapeworks_market::Nanos;
use tapeworks_store::journal::{
    JournalError, JournalOptions, JournalReader, JournalWriter, LOST, Record, segment_starts, verify,
};

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tapeworks-journal-{}-{name}", std::process::id()));
        let _not_there = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

const SMALL: JournalOptions = JournalOptions { segment_bytes: 4_096, keep_bytes: None };

fn payload(number: u64) -> Vec<u8> {
    (0..number % 300).map(|at| (at ^ number) as u8).collect()
}

fn append(writer: &mut JournalWriter, number: u64) {
    let payload = payload(number);
    let record = Record {
        time: Nanos(1_000_000 * number),
        kind: 3,
        line: 1,
        channel: number as u16,
        extra: number * 7,
        payload: &payload,
        ..Record::default()
    };
    assert_eq!(writer.append(&record).unwrap(), number);
}

fn read(reader: &mut JournalReader) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if record.kind != LOST {
            assert_eq!(record.payload, payload(record.number));
            assert_eq!((record.extra, record.channel), (record.number * 7, record.number as u16));
            assert_eq!((record.time, record.line), (Nanos(1_000_000 * record.number), 1));
        }
        numbers.push(record.number);
    }
    numbers
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "journal"))
        .collect();
    all.sort();
    all
}

#[test]
fn what_was_appended_is_read_over_many_segments_and_writing_goes_on_where_it_ended() {
    let folder = Folder::new("segments");
    for round in 0..3u64 {
        let (mut writer, opened) = JournalWriter::open(&folder.0, SMALL).unwrap();
        assert_eq!((opened.next, opened.torn_bytes), (round * 100, 0));
        for number in round * 100..round * 100 + 100 {
            append(&mut writer, number);
        }
        writer.sync().unwrap();
    }
    assert!(segments(&folder.0).len() > 10);
    assert_eq!(read(&mut JournalReader::open(&folder.0).unwrap()), (0..300).collect::<Vec<_>>());
    assert_eq!(
        read(&mut JournalReader::from_number(&folder.0, 123).unwrap()),
        (123..300).collect::<Vec<_>>()
    );
    let verified = verify(&folder.0).unwrap();
    assert_eq!((verified.records, verified.numbers, verified.damage.len()), (300, Some((0, 300)), 0));
    assert_eq!(verified.times, Some((Nanos(0), Nanos(299_000_000))));
}

#[test]
fn a_reader_follows_a_writer() {
    let folder = Folder::new("follow");
    let (mut writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
    let mut reader = JournalReader::open(&folder.0).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    let mut expected = 0;
    for number in 0..500 {
        append(&mut writer, number);
        if number % 7 == 0 {
            writer.flush().unwrap();
            let got = read(&mut reader);
            assert_eq!(got, (expected..=number).collect::<Vec<_>>());
            expected = number + 1;
        }
    }
    drop(writer);
    assert_eq!(read(&mut reader).last(), Some(&499));
}

#[test]
fn one_process_writes_at_a_time() {
    let folder = Folder::new("lock");
    let (writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
    let error = JournalWriter::open(&folder.0, SMALL).unwrap_err();
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    drop(writer);
    JournalWriter::open(&folder.0, SMALL).unwrap();
}

#[test]
fn the_oldest_segments_go_when_there_are_too_many() {
    let folder = Folder::new("retention");
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: Some(20_000) };
    let (mut writer, _) = JournalWriter::open(&folder.0, options).unwrap();
    (0..400).for_each(|number| append(&mut writer, number));
    assert!(writer.removed_segments() > 0);
    drop(writer);
    let bytes: u64 = segments(&folder.0).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 20_000 + 4_096);
    let kept = read(&mut JournalReader::open(&folder.0).unwrap());
    assert_eq!(kept.last(), Some(&399));
    assert_eq!(kept.len() as u64, 400 - kept[0]);
    let (_, opened) = JournalWriter::open(&folder.0, options).unwrap();
    assert_eq!((opened.first, opened.next), (kept[0], 400));
}

#[test]
fn segments_that_are_needed_stay_until_they_are_not() {
    let folder = Folder::new("needed");
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: Some(20_000) };
    let (mut writer, _) = JournalWriter::open(&folder.0, options).unwrap();
    writer.need_from(0);
    (0..400).for_each(|number| append(&mut writer, number));
    assert_eq!(writer.removed_segments(), 0);
    writer.need_from(150);
    (400..600).for_each(|number| append(&mut writer, number));
    let starts = segment_starts(&folder.0).unwrap();
    assert!(starts[0] <= 150 && starts[1] > 150, "what holds record 150 is the first: {starts:?}");
    writer.need_from(590);
    (600..700).for_each(|number| append(&mut writer, number));
    let bytes: u64 = segments(&folder.0).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 20_000 + 4_096);
}

#[test]
fn a_time_is_found_by_the_segments() {
    let folder = Folder::new("time");
    let (mut writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
    for number in 0..10_000 {
        append(&mut writer, number);
    }
    drop(writer);
    for wanted in [0u64, 1, 4_000, 9_999, 20_000] {
        let mut reader = JournalReader::from_time(&folder.0, Nanos(wanted * 1_000_000)).unwrap();
        let numbers = read(&mut reader);
        assert!(numbers[0] <= wanted && numbers.last() == Some(&9_999), "{wanted}: from {}", numbers[0]);
        assert!(wanted < 2_000 || numbers[0] > 0, "{wanted}: the index helps");
    }
}

#[test]
fn a_disk_that_is_full_costs_the_records_that_it_cannot_take_and_says_so() {
    let folder = Folder::new("full");
    let (mut writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
    (0..5).for_each(|number| append(&mut writer, number));
    drop(writer);
    // A segment that no disk has room for; the one that was begun is taken up first.
    let options = JournalOptions { segment_bytes: 1 << 60, keep_bytes: None };
    let (mut writer, opened) = JournalWriter::open(&folder.0, options).unwrap();
    assert_eq!(opened.next, 5);
    let long = vec![0; 4_096];
    let error = writer.append(&Record { payload: &long, ..Record::default() }).unwrap_err();
    assert!(matches!(error, JournalError::Io { what: "cannot reserve its room", .. }), "{error}");
    assert_eq!(writer.lost(), 1);
    assert_eq!(segments(&folder.0).len(), 1, "nothing is left of what was tried");
    // What fits is taken, behind a record that tells of the loss.
    assert_eq!(writer.append(&Record { kind: 9, ..Record::default() }).unwrap(), 6);
    drop(writer);
    let mut reader = JournalReader::from_number(&folder.0, 5).unwrap();
    let lost = reader.next().unwrap().unwrap();
    assert_eq!((lost.kind, lost.extra), (LOST, 1));
    assert_eq!(reader.next().unwrap().unwrap().kind, 9);
    assert_eq!(verify(&folder.0).unwrap().lost, 1);
}

#[test]
fn damage_in_the_middle_is_found_and_named() {
    let folder = Folder::new("damage");
    let (mut writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
    (0..200).for_each(|number| append(&mut writer, number));
    drop(writer);
    let second = &segments(&folder.0)[1];
    let first_of_second: u64 = second.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    OpenOptions::new().write(true).open(second).unwrap().write_all_at(b"??", 64 + 20).unwrap();
    let verified = verify(&folder.0).unwrap();
    assert_eq!(verified.damage[0].path, *second);
    assert_eq!(verified.damage[0].offset, 64);
    let mut reader = JournalReader::open(&folder.0).unwrap();
    let error = loop {
        match reader.next() {
            Ok(Some(record)) => assert!(record.number < first_of_second),
            Ok(None) => panic!("the damage went unseen"),
            Err(error) => break error,
        }
    };
    let expected = format!("{} at byte 64: record {first_of_second} is damaged", second.display());
    assert_eq!(error.to_string(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_crash_left_of_the_end_the_rest_is_whole_and_writing_goes_on(
        count in 1u64..60,
        cut in 0usize..2_000,
        garbage in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let folder = Folder::new(&format!("crash-{count}-{cut}-{}", garbage.len()));
        let (mut writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
        (0..count).for_each(|number| append(&mut writer, number));
        drop(writer);
        // From some place on the last segment is not what was written.
        let last = segments(&folder.0).pop().unwrap();
        let mut bytes = fs::read(&last).unwrap();
        let from = (64 + cut).min(bytes.len());
        bytes[from..].fill(0);
        let until = (from + garbage.len()).min(bytes.len());
        bytes[from..until].copy_from_slice(&garbage[..until - from]);
        fs::write(&last, &bytes).unwrap();

        let (mut writer, opened) = JournalWriter::open(&folder.0, SMALL).unwrap();
        prop_assert!(opened.next <= count);
        let first_of_last: u64 = last.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        prop_assert!(opened.next >= first_of_last, "what lies in whole segments stays");
        (opened.next..opened.next + 50).for_each(|number| append(&mut writer, number));
        drop(writer);
        prop_assert_eq!(read(&mut JournalReader::open(&folder.0).unwrap()), (0..opened.next + 50).collect::<Vec<_>>());
        prop_assert_eq!(verify(&folder.0).unwrap().damage, []);
    }

    #[test]
    fn no_file_makes_a_reader_or_a_check_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), has_header in any::<bool>()) {
        let folder = Folder::new(&format!("junk-{}-{has_header}", bytes.len()));
        let (mut writer, _) = JournalWriter::open(&folder.0, SMALL).unwrap();
        append(&mut writer, 0);
        drop(writer);
        let path = segments(&folder.0).pop().unwrap();
        let mut whole = fs::read(&path).unwrap();
        whole.truncate(if has_header { 64 } else { 0 });
        whole.extend(bytes);
        fs::write(&path, whole).unwrap();
        let mut reader = JournalReader::open(&folder.0).unwrap();
        while let Ok(Some(_)) = reader.next() {}
        let _checked = verify(&folder.0);
        let _opened = JournalWriter::open(&folder.0, SMALL);
    }
}
