//! The journal: what was appended is read, whatever happened to the end of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tapeworks_journal::{
    JournalError, JournalOptions, JournalReader, JournalWriter, LOST, NUMBERED, Record, repair,
    segment_starts, verify,
};

const SMALL: JournalOptions = JournalOptions { segment_bytes: 4_096, keep_bytes: None };

fn payload(number: u64) -> Vec<u8> {
    (0..number % 300).map(|at| (at ^ number) as u8).collect()
}

fn append(writer: &mut JournalWriter, number: u64) {
    let payload = payload(number);
    let record = Record {
        time: 1_000_000 * number,
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
            assert_eq!((record.time, record.line), (1_000_000 * record.number, 1));
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
fn appended_records_are_read_over_many_segments_and_a_new_writer_appends_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3u64 {
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.next, opened.torn_bytes), (round * 100, 0));
        for number in round * 100..round * 100 + 100 {
            append(&mut writer, number);
        }
        writer.sync().unwrap();
    }
    assert!(segments(folder.path()).len() > 10);
    assert_eq!(read(&mut JournalReader::open(folder.path()).unwrap()), (0..300).collect::<Vec<_>>());
    assert_eq!(
        read(&mut JournalReader::from_number(folder.path(), 123).unwrap()),
        (123..300).collect::<Vec<_>>()
    );
    let verified = verify(folder.path(), || true).unwrap();
    assert_eq!((verified.records, verified.numbers, verified.damage.len()), (300, Some((0, 300)), 0));
    assert_eq!(verified.times, Some((0, 299_000_000)));
}

#[test]
fn a_reader_follows_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    let mut reader = JournalReader::open(folder.path()).unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    let error = JournalWriter::open(folder.path(), SMALL).unwrap_err();
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    drop(writer);
    JournalWriter::open(folder.path(), SMALL).unwrap();
}

#[test]
fn the_oldest_segments_go_when_there_are_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: Some(20_000) };
    let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
    (0..400).for_each(|number| append(&mut writer, number));
    assert!(writer.removed_segments() > 0);
    drop(writer);
    let bytes: u64 = segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 20_000 + 4_096);
    let kept = read(&mut JournalReader::open(folder.path()).unwrap());
    assert_eq!(kept.last(), Some(&399));
    assert_eq!(kept.len() as u64, 400 - kept[0]);
    let (_, opened) = JournalWriter::open(folder.path(), options).unwrap();
    assert_eq!((opened.first, opened.next), (kept[0], 400));
}

#[test]
fn segments_that_are_needed_stay_until_they_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: Some(20_000) };
    let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
    writer.need_from(0);
    (0..400).for_each(|number| append(&mut writer, number));
    assert_eq!(writer.removed_segments(), 0);
    writer.need_from(150);
    (400..600).for_each(|number| append(&mut writer, number));
    let starts = segment_starts(folder.path()).unwrap();
    assert!(starts[0] <= 150 && starts[1] > 150, "what holds record 150 is the first: {starts:?}");
    writer.need_from(590);
    (600..700).for_each(|number| append(&mut writer, number));
    let bytes: u64 = segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 20_000 + 4_096);
}

#[test]
fn a_time_is_found_by_the_segments() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    for number in 0..10_000 {
        append(&mut writer, number);
    }
    drop(writer);
    for wanted in [0u64, 1, 4_000, 9_999, 20_000] {
        let mut reader = JournalReader::from_time(folder.path(), wanted * 1_000_000).unwrap();
        let numbers = read(&mut reader);
        assert!(numbers[0] <= wanted && numbers.last() == Some(&9_999), "{wanted}: from {}", numbers[0]);
        assert!(wanted < 2_000 || numbers[0] > 0, "{wanted}: the index helps");
    }
}

#[test]
fn a_full_disk_loses_only_the_records_without_room_and_the_journal_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    (0..5).for_each(|number| append(&mut writer, number));
    drop(writer);
    // A segment that no disk has room for; the one that was begun is taken up first.
    let options = JournalOptions { segment_bytes: 1 << 60, keep_bytes: None };
    let (mut writer, opened) = JournalWriter::open(folder.path(), options).unwrap();
    assert_eq!(opened.next, 5);
    let long = vec![0; 4_096];
    let error = writer.append(&Record { payload: &long, ..Record::default() }).unwrap_err();
    assert!(matches!(error, JournalError::Io { what: "cannot reserve its room", .. }), "{error}");
    assert_eq!(writer.lost(), 1);
    assert_eq!(segments(folder.path()).len(), 1, "nothing is left of what was tried");
    // A record that fits is appended, behind a record that counts the loss.
    assert_eq!(writer.append(&Record { kind: 9, ..Record::default() }).unwrap(), 6);
    drop(writer);
    let mut reader = JournalReader::from_number(folder.path(), 5).unwrap();
    let lost = reader.next().unwrap().unwrap();
    assert_eq!((lost.kind, lost.extra), (LOST, 1));
    assert_eq!(reader.next().unwrap().unwrap().kind, 9);
    assert_eq!(verify(folder.path(), || true).unwrap().lost, 1);
}

/// What a reader finds: the numbers of sound records, and the ranges of those that are lost.
fn found(folder: &Path) -> (Vec<u64>, Vec<std::ops::Range<u64>>) {
    let (mut numbers, mut lost) = (Vec::new(), Vec::new());
    let mut reader = JournalReader::open(folder).unwrap();
    while let Some(record) = reader.next().unwrap() {
        match (record.kind, record.line) {
            (LOST, NUMBERED) => lost.push(record.number + 1 - record.extra..record.number + 1),
            _ => numbers.push(record.number),
        }
    }
    assert_eq!(reader.damaged(), lost.iter().map(|range| range.end - range.start).sum::<u64>());
    (numbers, lost)
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// The number that a segment is named by.
fn first_of(segment: &Path) -> u64 {
    segment.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn one_damaged_byte_loses_one_record_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    let mut count = 0;
    while count < 200 || first_of(segments(folder.path()).last().unwrap()) + 4 > count {
        append(&mut writer, count);
        count += 1;
    }
    drop(writer);
    let all = segments(folder.path());
    // The first record of a segment in the middle, and one in the last.
    let (second, last) = (&all[1], all.last().unwrap());
    let in_last = first_of(last) + 2;
    overwrite(second, 64 + 20, b"??");
    let bytes = fs::read(last).unwrap();
    let at = bytes.windows(8).position(|window| window == in_last.to_le_bytes()).unwrap() as u64 - 8;
    overwrite(last, at + 30, b"?");

    let lost = [first_of(second), in_last];
    let verified = verify(folder.path(), || true).unwrap();
    assert_eq!((verified.records, verified.damaged, verified.damage.len()), (count - 2, 2, 2));
    assert_eq!((&verified.damage[0].path, verified.damage[0].offset), (second, 64));
    assert_eq!(verified.damage[1].offset, at);
    assert!(verified.damage[1].what.starts_with(&format!("record {in_last} is damaged: ")));
    let sound: Vec<u64> = (0..count).filter(|number| !lost.contains(number)).collect();
    let (numbers, ranges) = found(folder.path());
    assert_eq!((numbers, ranges), (sound.clone(), lost.map(|number| number..number + 1).to_vec()));

    // A writer goes on behind it, and cuts nothing off.
    let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
    assert_eq!((opened.next, opened.torn_bytes, opened.damaged), (count, 0, 1));
    append(&mut writer, count);
    drop(writer);
    assert_eq!(*segments(folder.path()).last().unwrap(), folder.path().join(format!("{count:020}.journal")));
    assert_eq!(found(folder.path()).0.len() as u64, count - 1);
    // A reader that starts at a lost record first returns the loss.
    let mut reader = JournalReader::at_number(folder.path(), in_last).unwrap().unwrap();
    let first = reader.next().unwrap().unwrap();
    assert_eq!((first.kind, first.extra, first.time), (LOST, 1, (in_last + 1) * 1_000_000));
    assert_eq!(reader.next().unwrap().unwrap().number, in_last + 1);

    let repaired = repair(folder.path(), || true).unwrap();
    assert_eq!((repaired.places, repaired.records, repaired.torn_bytes, repaired.left), (2, 2, 0, 0));
    assert_eq!(repaired.set_aside.len(), 2);
    let verified = verify(folder.path(), || true).unwrap();
    assert_eq!((verified.records, verified.lost, verified.damage), (count + 1, 2, vec![]));
    assert_eq!(found(folder.path()).1, lost.map(|number| number..number + 1));
    assert_eq!(repair(folder.path(), || true).unwrap(), Default::default());
}

#[test]
fn a_missing_segment_or_header_loses_only_the_records_of_that_segment() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    (0..300).for_each(|number| append(&mut writer, number));
    drop(writer);
    let all = segments(folder.path());
    fs::remove_file(&all[3]).unwrap();
    overwrite(&all[5], 0, &[0; 64]);
    overwrite(&all[7], 10, b"??");
    // Cut in its middle, as a file system check may leave it.
    let length = fs::metadata(&all[9]).unwrap().len();
    OpenOptions::new().write(true).open(&all[9]).unwrap().set_len(length / 2).unwrap();
    let (numbers, lost) = found(folder.path());
    assert_eq!(lost.len(), 2);
    assert_eq!(lost[0], first_of(&all[3])..first_of(&all[4]));
    assert!(lost[1].start > first_of(&all[9]) && lost[1].end == first_of(&all[10]));
    let missing: u64 = lost.iter().map(|range| range.end - range.start).sum();
    assert_eq!(numbers.len() as u64, 300 - missing);
    let verified = verify(folder.path(), || true).unwrap();
    assert_eq!((verified.records, verified.damaged), (300 - missing, missing));
    // A time is found all the same.
    for wanted in [first_of(&all[5]), first_of(&all[8])] {
        let mut reader = JournalReader::from_time(folder.path(), wanted * 1_000_000).unwrap();
        assert!(reader.next().unwrap().unwrap().number <= wanted);
    }
    let repaired = repair(folder.path(), || true).unwrap();
    assert_eq!((repaired.records, repaired.headers), (missing, 2));
    let verified = verify(folder.path(), || true).unwrap();
    assert_eq!((verified.lost, verified.damage), (missing, vec![]));
    assert_eq!(found(folder.path()), (numbers, lost));
}

/// No record has the last number, so that each has a next.
#[test]
fn a_stray_file_with_the_last_number_takes_no_record_and_is_named() {
    for name in [u64::MAX, u64::MAX - 1] {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..10).for_each(|number| append(&mut writer, number));
        drop(writer);
        fs::write(folder.path().join(format!("{name:020}.journal")), []).unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        let record = Record { kind: 3, ..Record::default() };
        let mut appended = 0;
        let error = loop {
            match writer.append(&record) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, JournalError::NoNumber { .. }), "{error}");
        assert_eq!(appended, u64::MAX - name);
        drop(writer);
        // What was there before is read.
        let mut reader = JournalReader::open(folder.path()).unwrap();
        for number in 0..10 {
            assert_eq!(reader.next().unwrap().unwrap().number, number);
        }
        while reader.next().unwrap().is_some() {}
        verify(folder.path(), || true).unwrap();
        repair(folder.path(), || true).unwrap();
        verify(folder.path(), || true).unwrap();
    }
}

#[test]
fn zeros_before_sound_records_are_damage_and_not_the_end_of_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions { segment_bytes: 4 << 20, keep_bytes: None };
    let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
    (0..20_000).for_each(|number| append(&mut writer, number));
    drop(writer);
    let path = segments(folder.path()).pop().unwrap();
    // A page that the disk forgot, and more than one record that says so has room for.
    overwrite(&path, 64 + 40_960, &[0; 4_096]);
    let (_, before) = found(folder.path());
    assert_eq!(before.len(), 1);
    // A second page ends the reading no more than the first.
    overwrite(&path, 64 + 614_400, &[0; 8_192]);
    let (numbers, before) = found(folder.path());
    assert_eq!((before.len(), numbers.last()), (2, Some(&19_999)));
    let (mut writer, opened) = JournalWriter::open(folder.path(), options).unwrap();
    assert_eq!((opened.next, opened.torn_bytes), (20_000, 0));
    assert_eq!(opened.damaged, before.iter().map(|range| range.end - range.start).sum::<u64>());
    append(&mut writer, 20_000);
    drop(writer);
    overwrite(&path, 64 + 81_920, &vec![7; 1_200_000]);
    let (numbers, lost) = found(folder.path());
    assert!(lost.len() == 2 && *numbers.last().unwrap() == 20_000, "the third place lies over the second");
    let repaired = repair(folder.path(), || true).unwrap();
    assert_eq!((repaired.places, repaired.left), (2, 0));
    let (after, _) = found(folder.path());
    assert_eq!(after, numbers);
    assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
}

#[test]
fn torn_bytes_are_kept_beside_the_segment() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
    (0..3).for_each(|number| append(&mut writer, number));
    drop(writer);
    let path = segments(folder.path()).pop().unwrap();
    let end = verify(folder.path(), || true).unwrap();
    let at = 64 + 3 * 40 + end.payload_bytes;
    for round in 0..2u8 {
        overwrite(&path, at, &[b'a' + round; 50]);
        assert_eq!(verify(folder.path(), || true).unwrap().damage.len(), 1);
        let (_, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.next, opened.torn_bytes), (3, 50));
        let again = if round == 0 { "" } else { ".1" };
        let aside = path.with_extension(format!("torn-{at}{again}"));
        assert_eq!(fs::read(aside).unwrap(), [b'a' + round; 50]);
    }
    assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn after_a_crash_at_any_byte_the_records_before_are_whole_and_writing_continues(
        count in 1u64..60,
        cut in 0usize..2_000,
        garbage in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..count).for_each(|number| append(&mut writer, number));
        drop(writer);
        // From some place on the last segment is not what was written.
        let last = segments(folder.path()).pop().unwrap();
        let mut bytes = fs::read(&last).unwrap();
        let from = (64 + cut).min(bytes.len());
        bytes[from..].fill(0);
        let until = (from + garbage.len()).min(bytes.len());
        bytes[from..until].copy_from_slice(&garbage[..until - from]);
        fs::write(&last, &bytes).unwrap();

        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        prop_assert!(opened.next <= count);
        let first_of_last: u64 = last.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        prop_assert!(opened.next >= first_of_last, "what lies in whole segments stays");
        (opened.next..opened.next + 50).for_each(|number| append(&mut writer, number));
        drop(writer);
        prop_assert_eq!(read(&mut JournalReader::open(folder.path()).unwrap()), (0..opened.next + 50).collect::<Vec<_>>());
        prop_assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
    }

    #[test]
    fn damage_anywhere_loses_no_sound_record(
        count in 20u64..120,
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1usize..300, any::<u8>()), 1..5),
        reopened in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..count).for_each(|number| append(&mut writer, number));
        drop(writer);
        let all = segments(folder.path());
        // Where each record lies, before anything is damaged.
        let mut sound = std::collections::BTreeMap::new();
        for path in &all {
            let bytes = fs::read(path).unwrap();
            let mut at = 64;
            let mut number = first_of(path);
            while bytes.get(at + 8..at + 16) == Some(&number.to_le_bytes()[..])
                && bytes[at..at + 40].iter().any(|byte| *byte != 0)
            {
                let length = 40 + u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
                sound.insert(number, (path.clone(), at..at + length));
                (at, number) = (at + length, number + 1);
            }
        }
        prop_assert_eq!(sound.len() as u64, count);
        for (segment, at, length, byte) in &places {
            let path = segment.get(&all);
            let mut bytes = fs::read(path).unwrap();
            let from = at.index(bytes.len());
            let until = (from + length).min(bytes.len());
            let before = bytes.clone();
            bytes[from..until].fill(*byte);
            fs::write(path, &bytes).unwrap();
            sound.retain(|_, (of, range)| of != path || bytes[range.clone()] == before[range.clone()]);
        }
        let sound: Vec<u64> = sound.into_keys().collect();
        prop_assert_eq!(&found(folder.path()).0, &sound);
        let verified = verify(folder.path(), || true).unwrap();
        prop_assert_eq!(verified.records, sound.len() as u64);
        if reopened {
            let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
            prop_assert!(sound.last().is_none_or(|last| opened.next > *last));
            append(&mut writer, opened.next);
            drop(writer);
            let mut expected = sound.clone();
            expected.push(opened.next);
            prop_assert_eq!(&found(folder.path()).0, &expected);
        }
        let before = found(folder.path()).0;
        let repaired = repair(folder.path(), || true).unwrap();
        prop_assert_eq!(&found(folder.path()).0, &before);
        prop_assert!(repaired.left > 0 || verify(folder.path(), || true).unwrap().damage.is_empty());
    }

    #[test]
    fn no_file_makes_a_reader_or_a_check_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), has_header in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, 0);
        drop(writer);
        let path = segments(folder.path()).pop().unwrap();
        let mut whole = fs::read(&path).unwrap();
        whole.truncate(if has_header { 64 } else { 0 });
        whole.extend(bytes);
        fs::write(&path, whole).unwrap();
        let mut reader = JournalReader::open(folder.path()).unwrap();
        while let Ok(Some(_)) = reader.next() {}
        let _checked = verify(folder.path(), || true);
        let _opened = JournalWriter::open(folder.path(), SMALL);
    }
}

#[test]
fn long_tasks_end_at_the_segment_where_they_are_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: None };
    let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
    for number in 0..100 {
        writer.append(&Record { time: number, payload: &[1; 100], ..Record::default() }).unwrap();
    }
    drop(writer);
    for is_repair in [false, true] {
        let mut looks = 0;
        let twice = || {
            looks += 1;
            looks <= 2
        };
        let ended = if is_repair {
            repair(folder.path(), twice).map(drop)
        } else {
            verify(folder.path(), twice).map(drop)
        };
        assert!(matches!(ended, Err(JournalError::Stopped)));
        assert_eq!(looks, 3);
    }
}

#[test]
fn a_segment_without_a_sound_record_loses_only_its_own_records() {
    let random: Vec<u8> = (0..4_096u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    type Damage<'d> = &'d dyn Fn(&[PathBuf]);
    let damages: [(&str, Damage<'_>); 6] = [
        ("header-only", &|all| OpenOptions::new().write(true).open(&all[2]).unwrap().set_len(64).unwrap()),
        ("empty", &|all| OpenOptions::new().write(true).open(&all[2]).unwrap().set_len(0).unwrap()),
        ("zeros", &|all| overwrite(&all[2], 64, &[0; 4_032])),
        ("random", &|all| overwrite(&all[2], 0, &random)),
        ("copy-of-an-earlier", &|all| fs::copy(&all[1], &all[2]).map(|_| ()).unwrap()),
        ("copy-of-a-later", &|all| fs::copy(&all[4], &all[2]).map(|_| ()).unwrap()),
    ];
    for (name, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..200).for_each(|number| append(&mut writer, number));
        drop(writer);
        let all = segments(folder.path());
        damage(&all);
        let lost = first_of(&all[2])..first_of(&all[3]);
        let expected = ((0..200).filter(|number| !lost.contains(number)).collect(), vec![lost.clone()]);
        assert_eq!(found(folder.path()), expected, "{name}");
        // As who is put behind it finds it.
        let mut reader = JournalReader::from_number(folder.path(), lost.end).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().number, lost.end, "{name}");
    }
}

#[test]
fn records_missing_before_a_segment_that_has_not_begun_are_missing_from_the_opening_on() {
    type Damage<'d> = &'d dyn Fn(&Path);
    let resize =
        |path: &Path, length| OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
    let half = |path: &Path| overwrite(path, 2_000, &[0; 2_096]);
    let whole = |path: &Path| overwrite(path, 0, &[0; 4_096]);
    let gone = |path: &Path| fs::remove_file(path).unwrap();
    let empty = |path: &Path| resize(path, 0);
    let random = |path: &Path| {
        resize(path, 4_096);
        overwrite(path, 0, &[7; 500]);
    };
    // All but the last segment begin with a sound record.
    let befores: [(&str, Damage<'_>); 3] = [("half", &half), ("whole", &whole), ("gone", &gone)];
    let lasts: [(&str, Damage<'_>); 3] = [("empty", &empty), ("zeros", &whole), ("random", &random)];
    for ((of_before, damage_before), (of_last, damage_last)) in
        befores.into_iter().flat_map(|before| lasts.map(|last| (before, last)))
    {
        let case = format!("before: {of_before}, last: {of_last}");
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..200).for_each(|number| append(&mut writer, number));
        drop(writer);
        let all = segments(folder.path());
        let [.., earlier, before, last] = &all[..] else { panic!("{all:?}") };
        damage_before(before);
        damage_last(last);
        let next = first_of(last);
        let missing = found(folder.path()).1.pop().unwrap();
        assert!(missing.start >= first_of(before) && missing.end == next, "{missing:?}, {case}");
        let whole = ((0..missing.start).collect::<Vec<_>>(), vec![missing.clone()]);
        // A process that is killed before it appends anything leaves it so.
        for _ in 0..2 {
            let (writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
            assert_eq!((opened.next, writer.next_number()), (next, next), "{case}");
            assert_eq!(found(folder.path()), whole, "{case}");
            // A checkpoint may be of any of these records.
            for number in [missing.start, missing.start + 1, next] {
                let mut reader = JournalReader::at_number(folder.path(), number).unwrap().expect(&case);
                let lost = reader.next().unwrap().map(|record| (record.kind, record.extra, record.time));
                let before_ns = (missing.start - 1) * 1_000_000;
                assert_eq!(lost, (number < next).then_some((LOST, next - number, before_ns)), "{case}");
            }
        }
        let verified = verify(folder.path(), || true).unwrap();
        assert_eq!(verified.damaged, next - missing.start, "{case}");
        // The time of its header is the index.
        let reader = JournalReader::from_time(folder.path(), first_of(earlier) * 1_000_000).unwrap();
        assert!(reader.next_number() <= first_of(earlier), "{case}");
        if of_last == "zeros" {
            // The count in the place of the missing records has their time, though none follows.
            assert_eq!(repair(folder.path(), || true).unwrap().records, next - missing.start, "{case}");
            let mut reader = JournalReader::at_number(folder.path(), missing.start).unwrap().expect(&case);
            let lost = reader.next().unwrap().unwrap();
            assert_eq!((lost.kind, lost.time), (LOST, (missing.start - 1) * 1_000_000), "{case}");
        }
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, next);
        drop(writer);
        let (mut numbers, lost) = whole;
        numbers.push(next);
        assert_eq!(found(folder.path()), (numbers.clone(), lost.clone()), "{case}");
        repair(folder.path(), || true).unwrap();
        let verified = verify(folder.path(), || true).unwrap();
        assert_eq!((verified.lost, verified.damage), (next - missing.start, vec![]), "{case}");
        assert_eq!(found(folder.path()), (numbers, lost), "{case}");
    }
}

#[test]
fn an_end_that_the_disk_has_had_is_missed_however_it_was_cut() {
    type Cut = fn(&[PathBuf]);
    let cuts: [Cut; 4] = [
        |all| cut(all, |bytes| bytes / 2),
        |all| cut(all, |_| 0),
        |all| fs::remove_file(all.last().unwrap()).unwrap(),
        |all| all.iter().for_each(|path| fs::remove_file(path).unwrap()),
    ];
    for (place, harm) in cuts.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..100).for_each(|number| append(&mut writer, number));
        writer.sync().unwrap();
        // The disk may not have these: nobody was promised that they stay.
        (100..103).for_each(|number| append(&mut writer, number));
        writer.flush().unwrap();
        drop(writer);
        assert_eq!(verify(folder.path(), || true).unwrap().missing, 0);
        harm(&segments(folder.path()));
        let verified = verify(folder.path(), || true).unwrap();
        let next = verified.numbers.map_or(0, |(_, next)| next);
        assert!(next < 100 && verified.missing == 100 - next, "{place}: {verified:?}");
        assert!(verified.damage.iter().any(|damage| damage.to_string().contains("the records before 100")));
        let (writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.next, opened.missing), (next, 100 - next), "{place}");
        drop(writer);
        // Mended, it says itself that they are gone, and gives their numbers to no others.
        let repaired = repair(folder.path(), || true).unwrap();
        assert!(repaired.records >= 100 - next, "{place}: {repaired:?}");
        let verified = verify(folder.path(), || true).unwrap();
        assert_eq!((verified.missing, verified.numbers.map(|(_, next)| next)), (0, Some(100)), "{place}");
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.next, opened.missing), (100, 0), "{place}");
        append(&mut writer, 100);
    }
}

/// Cuts the last segment to so many of its bytes with records.
fn cut(segments: &[PathBuf], to: fn(u64) -> u64) {
    let path = segments.last().unwrap();
    let bytes = fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    OpenOptions::new().write(true).open(path).unwrap().set_len(to(used)).unwrap();
}

#[test]
fn a_mark_that_is_torn_damaged_or_gone_promises_nothing() {
    let harms: [fn(&Path); 3] = [
        |path| fs::write(path, [7; 16]).unwrap(),
        |path| fs::write(path, b"").unwrap(),
        |path| fs::remove_file(path).unwrap(),
    ];
    for harm in harms {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        (0..100).for_each(|number| append(&mut writer, number));
        writer.sync().unwrap();
        drop(writer);
        harm(&folder.path().join("synced"));
        cut(&segments(folder.path()), |bytes| bytes / 2);
        assert_eq!(verify(folder.path(), || true).unwrap().missing, 0);
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!(opened.missing, 0);
        (opened.next..opened.next + 5).for_each(|number| append(&mut writer, number));
        writer.sync().unwrap();
        assert_eq!(verify(folder.path(), || true).unwrap().missing, 0);
    }
}
