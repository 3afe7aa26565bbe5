//! Latest values between processes, as a user has them.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::thread;

use tapeworks_ring::broadcast;
use tapeworks_ring::latest::{AttachError, CreateError, Reader, Writer};

const MEANING: u64 = 78;

/// Words that belong together.
fn value(number: u64) -> [u64; 4] {
    std::array::from_fn(|at| number.rotate_left(at as u32 * 9))
}

#[test]
fn a_late_reader_has_the_latest_value_of_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values");
    let mut writer = Writer::<u64, [u64; 4]>::create(&path, 1_000, MEANING).unwrap();
    let places: Vec<_> = (0..1_000).map(|key| writer.place(&(key * 977)).unwrap()).collect();
    for round in 0..3 {
        for (key, place) in (0..).zip(&places) {
            writer.set(*place, &value(key + round));
        }
    }
    assert_eq!(writer.place(&977), Some(places[1]), "a key keeps its place");
    let reader = Reader::<u64, [u64; 4]>::attach(&path, MEANING).unwrap();
    assert_eq!((reader.keys(), writer.keys()), (1_000, 1_000));
    for (key, place) in (0..).zip(&places) {
        assert_eq!(reader.find(&(key * 977)), Some(*place));
        assert_eq!(reader.get(*place), Some(value(key + 2)));
    }
    assert_eq!(reader.find(&5), None);
    let new = writer.place(&5).unwrap();
    writer.set(new, &value(9));
    assert_eq!(reader.find(&5).and_then(|place| reader.get(place)), Some(value(9)));
    assert!(reader.is_writer_alive());
    drop(writer);
    assert!(!reader.is_writer_alive());
    assert_eq!(reader.get(new), Some(value(9)), "what was written stays readable");
}

#[test]
fn a_full_file_takes_no_further_key_and_keeps_those_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values");
    let mut writer = Writer::<[u64; 2], u64>::create(&path, 4, MEANING).unwrap();
    let taken = (0..100).filter(|key| writer.place(&[*key, 1]).is_some()).count();
    assert_eq!(taken, 4);
    let place = writer.place(&[3, 1]).unwrap();
    writer.set(place, &33);
    let reader = Reader::<[u64; 2], u64>::attach(&path, MEANING).unwrap();
    assert_eq!(reader.find(&[3, 1]).and_then(|place| reader.get(place)), Some(33));
    assert_eq!(reader.find(&[99, 1]), None);
}

#[test]
fn a_value_is_never_a_mixture_of_two_and_never_older_than_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values");
    let mut writer = Writer::<u64, [u64; 4]>::create(&path, 2, MEANING).unwrap();
    let place = writer.place(&1).unwrap();
    writer.set(place, &value(1));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let reader = Reader::<u64, [u64; 4]>::attach(&path, MEANING).unwrap();
            thread::spawn(move || {
                let mut newest = 0;
                while newest < 300_000 {
                    let Some(words) = reader.get(place) else { continue };
                    assert_eq!(words, value(words[0]));
                    assert!(words[0] >= newest);
                    newest = words[0];
                }
            })
        })
        .collect();
    for number in 1..=300_000 {
        writer.set(place, &value(number));
        if number % 1_000 == 0 {
            thread::yield_now();
        }
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn another_file_another_size_and_one_left_behind_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values");
    let attach = || Reader::<u64, [u64; 4]>::attach(&path, MEANING);
    assert!(matches!(attach(), Err(AttachError::Io { .. })));
    let other = broadcast::Writer::<[u64; 5]>::create(&path, 16, MEANING).unwrap();
    let error = attach().unwrap_err();
    assert!(error.to_string().ends_with("not a latest-value file of this version"), "{error}");
    let taken = Writer::<u64, [u64; 4]>::create(&path, 16, MEANING);
    assert!(matches!(taken, Err(CreateError::InUse { .. })));
    drop(other);

    let writer = Writer::<u64, [u64; 4]>::create(&path, 16, MEANING).unwrap();
    assert!(matches!(Reader::<u64, [u64; 3]>::attach(&path, MEANING), Err(AttachError::ItemSize { .. })));
    assert!(matches!(
        Reader::<u64, [u64; 4]>::attach(&path, 79),
        Err(AttachError::Meaning { found: MEANING, expected: 79, .. })
    ));
    let odd = Writer::<[u8; 7], [u8; 9]>::create(&folder.path().join("odd"), 16, MEANING);
    assert!(matches!(odd, Err(CreateError::ItemSize { .. })));
    drop(writer);
    assert!(matches!(attach(), Err(AttachError::Stale { .. })));
}
