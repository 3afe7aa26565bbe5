//! The broadcast between processes, as a user has it.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Barrier, Mutex};
use std::thread;

use tapeworks_ring::broadcast::{AttachError, CreateError, Read, Reader, Start, Writer};
use tempfile::TempDir;

const MEANING: u64 = 77;

/// The file of a broadcast in a test's folder.
fn items_in(folder: &TempDir) -> PathBuf {
    folder.path().join("items")
}

/// A child process has the descriptors of all tests, and so their locks, until it runs its own program.
static FORKING: Mutex<()> = Mutex::new(());

/// Words that belong together.
fn item(number: u64) -> [u64; 5] {
    std::array::from_fn(|at| number.rotate_left(at as u32 * 9))
}

#[test]
fn a_reader_gets_every_item_in_order_and_then_the_end() {
    let _alone = FORKING.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&items_in(&folder), 10, MEANING).unwrap();
    assert_eq!(writer.capacity(), 16);
    let mut reader = Reader::attach(&items_in(&folder), MEANING, Start::Newest).unwrap();
    assert_eq!(reader.read(), Read::Empty);
    for number in 0..100 {
        writer.publish(&item(number));
        assert_eq!(reader.lag(), 1);
        assert_eq!(reader.read(), Read::Item(item(number)));
    }
    writer.publish(&item(100));
    assert_eq!(writer.published(), 101);
    drop(writer);
    assert!(!reader.is_writer_alive());
    assert_eq!(reader.read(), Read::Item(item(100)));
    assert_eq!(reader.read(), Read::Closed);
}

#[test]
fn a_slow_reader_gets_the_number_of_lost_items_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&items_in(&folder), 16, MEANING).unwrap();
    let mut reader = Reader::attach(&items_in(&folder), MEANING, Start::Oldest).unwrap();
    for number in 0..50 {
        writer.publish(&item(number));
    }
    // Three quarters of the ring are safe: items 38 to 49.
    assert_eq!(reader.read(), Read::Lost(38));
    for number in 38..50 {
        assert_eq!(reader.read(), Read::Item(item(number)));
    }
    assert_eq!((reader.read(), reader.lost()), (Read::Empty, 38));
}

#[test]
fn events_read_and_events_lost_add_up_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&items_in(&folder), 64, MEANING).unwrap();
    let items = 300_000;
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = Reader::<[u64; 5]>::attach(&items_in(&folder), MEANING, Start::Oldest).unwrap();
            thread::spawn(move || {
                let (mut next, mut read) = (0, 0);
                loop {
                    match reader.read() {
                        Read::Item(words) => {
                            assert_eq!(words, item(next));
                            next += 1;
                            read += 1;
                        }
                        Read::Lost(count) => next += count,
                        Read::Empty => thread::yield_now(),
                        Read::Closed => return (read, reader.lost(), next),
                    }
                }
            })
        })
        .collect();
    for number in 0..items {
        writer.publish(&item(number));
        if number % 1000 == 0 {
            thread::yield_now();
        }
    }
    drop(writer);
    for reader in readers {
        let (read, lost, next) = reader.join().unwrap();
        assert_eq!((read + lost, next), (items, items));
        assert!(read > 0);
    }
}

#[test]
fn another_process_reads_the_events_of_this_one() {
    let _alone = FORKING.lock().unwrap();
    // This test's own program, started again as the reader.
    if let Ok(path) = std::env::var("TAPEWORKS_BROADCAST_FILE") {
        let mut reader = Reader::<[u64; 5]>::attach(path.as_ref(), MEANING, Start::Oldest).unwrap();
        let mut next = 0;
        loop {
            match reader.read() {
                Read::Item(words) => {
                    assert_eq!(words, item(next));
                    next += 1;
                }
                Read::Empty => thread::yield_now(),
                Read::Closed => break,
                Read::Lost(lost) => panic!("{lost} lost of a ring that holds all"),
            }
        }
        assert_eq!(next, 1000);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&items_in(&folder), 2048, MEANING).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["another_process_reads_the_events_of_this_one", "--exact"])
        .env("TAPEWORKS_BROADCAST_FILE", items_in(&folder))
        .spawn();
    let mut child = child.unwrap();
    for number in 0..1000 {
        writer.publish(&item(number));
    }
    // The reader must find a living writer; it is closed when the reader is surely there, which only the reader can signal: it reads
    // from the oldest on, so closing late loses nothing.
    while child.try_wait().unwrap().is_none() {
        thread::sleep(std::time::Duration::from_millis(20));
        if fs::read_to_string(format!("/proc/{}/maps", child.id()))
            .is_ok_and(|maps| maps.contains("broadcast"))
        {
            break;
        }
    }
    thread::sleep(std::time::Duration::from_millis(50));
    drop(writer);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_invalid_file_is_refused_with_the_reason() {
    let _alone = FORKING.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = items_in(&folder);
    let attach = || Reader::<[u64; 5]>::attach(&path, MEANING, Start::Newest).unwrap_err();
    assert!(matches!(attach(), AttachError::Io { .. }), "missing");
    for junk in [&b""[..], b"short", &[7; 5000]] {
        fs::write(&path, junk).unwrap();
        assert!(matches!(attach(), AttachError::AnotherKind { .. }), "{} bytes", junk.len());
    }

    let writer = Writer::<[u64; 5]>::create(&path, 16, MEANING).unwrap();
    let other = Reader::<[u64; 4]>::attach(&path, MEANING, Start::Newest).unwrap_err();
    assert!(other.to_string().ends_with("its items have 40 bytes, not 32"), "{other}");
    let other = Reader::<[u64; 5]>::attach(&path, 78, Start::Newest).unwrap_err();
    assert!(other.to_string().ends_with("its items are of meaning 77, not 78"), "{other}");
    assert!(matches!(Writer::<[u64; 5]>::create(&path, 16, MEANING), Err(CreateError::InUse { .. })));

    let whole = fs::read(&path).unwrap();
    drop(writer);
    let stale = attach();
    let pid = std::process::id();
    assert!(
        stale.to_string().ends_with(&format!("left behind by process {pid}, which no longer writes to it")),
        "{stale}"
    );
    for length in [8, 100, 4096, 4100, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(attach(), AttachError::Damaged { .. }), "cut to {length} bytes");
    }
    // A header that lies about its capacity.
    for capacity in [0u64, 3, 32, u64::MAX] {
        let mut lies = whole.clone();
        lies[16..24].copy_from_slice(&capacity.to_ne_bytes());
        fs::write(&path, &lies).unwrap();
        assert!(matches!(attach(), AttachError::Damaged { .. }), "capacity {capacity}");
    }
}

#[test]
fn a_new_writer_replaces_a_dead_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Writer::create(&items_in(&folder), 16, MEANING).unwrap();
    first.publish(&item(1));
    let mut reader = Reader::attach(&items_in(&folder), MEANING, Start::Oldest).unwrap();
    drop(first);
    let mut second = Writer::create(&items_in(&folder), 16, MEANING).unwrap();
    second.publish(&item(2));
    assert_eq!(reader.read(), Read::Item(item(1)), "the old file stays readable");
    assert_eq!(reader.read(), Read::Closed);
    let mut again = Reader::attach(&items_in(&folder), MEANING, Start::Oldest).unwrap();
    assert!(again.session() >= reader.session());
    assert_eq!(again.read(), Read::Item(item(2)));
}

#[test]
fn an_impossible_ring_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        Writer::<[u8; 9]>::create(&items_in(&folder), 1, 0),
        Err(CreateError::ItemSize { bytes: 9 })
    ));
    assert!(matches!(
        Writer::<[u64; 0]>::create(&items_in(&folder), 1, 0),
        Err(CreateError::ItemSize { bytes: 0 })
    ));
    let huge = Writer::<[u64; 5]>::create(&items_in(&folder), usize::MAX, 0);
    assert!(matches!(huge, Err(CreateError::TooLarge { .. })));
    let nowhere = folder.path().join("no/such/folder");
    assert!(matches!(Writer::<[u64; 5]>::create(&nowhere, 1, 0), Err(CreateError::Io { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn large_items_and_items_of_bytes_pass_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&items_in(&folder), 4, 0).unwrap();
    let mut reader = Reader::attach(&items_in(&folder), 0, Start::Newest).unwrap();
    let large: [u8; 4096] = std::array::from_fn(|at| at as u8);
    writer.publish(&large);
    assert_eq!(reader.read(), Read::Item(large));
}

#[test]
fn of_concurrent_writers_one_makes_the_file() {
    let _alone = FORKING.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = items_in(&folder);
    for _ in 0..100 {
        let barrier = Barrier::new(4);
        let made: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        Writer::<[u64; 5]>::create(&path, 16, MEANING)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let refused = made.iter().filter(|made| matches!(made, Err(CreateError::InUse { .. }))).count();
        let mut writers: Vec<_> = made.into_iter().filter_map(Result::ok).collect();
        assert_eq!((writers.len(), refused), (1, 3));
        let mut reader = Reader::<[u64; 5]>::attach(&path, MEANING, Start::Newest).unwrap();
        writers[0].publish(&item(7));
        assert!(matches!(reader.read(), Read::Item(read) if read == item(7)));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
}

#[test]
fn a_reader_that_locks_the_file_or_its_folder_keeps_no_writer_from_starting() {
    let _alone = FORKING.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let first = Writer::<[u64; 5]>::create(&items_in(&folder), 16, MEANING).unwrap();
    let held = fs::File::open(items_in(&folder)).unwrap();
    held.lock().unwrap();
    let folder_held = fs::File::open(folder.path()).unwrap();
    folder_held.lock().unwrap();
    // It keeps neither the writer's file from being known as in use, nor as left behind.
    let in_use = Writer::<[u64; 5]>::create(&items_in(&folder), 16, MEANING);
    assert!(matches!(in_use, Err(CreateError::InUse { .. })), "{in_use:?}");
    let reader = Reader::<[u64; 5]>::attach(&items_in(&folder), MEANING, Start::Newest).unwrap();
    assert!(reader.is_writer_alive());
    drop(first);
    assert!(!reader.is_writer_alive());
    let mut second = Writer::<[u64; 5]>::create(&items_in(&folder), 16, MEANING).unwrap();
    let mut reader = Reader::attach(&items_in(&folder), MEANING, Start::Newest).unwrap();
    second.publish(&item(1));
    assert_eq!(reader.read(), Read::Item(item(1)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
}

#[test]
fn a_path_that_is_no_regular_file_is_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    {
        let _alone = FORKING.lock().unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    for path in [&path, folder.path()] {
        let made = Writer::<[u64; 5]>::create(path, 16, MEANING);
        assert!(matches!(made, Err(CreateError::Io { .. })), "{made:?}");
        let attached = Reader::<[u64; 5]>::attach(path, MEANING, Start::Newest);
        assert!(matches!(attached, Err(AttachError::Io { .. })), "{attached:?}");
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    let made = Writer::<[u64; 5]>::create(&link, 16, MEANING);
    assert!(matches!(made, Err(CreateError::Io { .. })), "{made:?}");
}

#[test]
fn damaged_counters_cause_no_panic() {
    use std::os::unix::fs::FileExt;

    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::<[u64; 5]>::create(&items_in(&folder), 16, MEANING).unwrap();
    writer.publish(&item(0));
    let file = fs::OpenOptions::new().write(true).open(items_in(&folder)).unwrap();
    let words_of_a_slot = 6;
    for value in [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 62, 0, 1, 15, 17] {
        // The writer's cursor, and the sequence of each slot.
        file.write_all_at(&value.to_ne_bytes(), 16 * 8).unwrap();
        for start in [Start::Newest, Start::Oldest] {
            let mut reader = Reader::<[u64; 5]>::attach(&items_in(&folder), MEANING, start).unwrap();
            for sequence in [u64::MAX, u64::MAX - 1, 0, 2, 1 << 63] {
                for slot in 0..16 {
                    let at = (512 + slot * words_of_a_slot) * 8;
                    file.write_all_at(&sequence.to_ne_bytes(), at).unwrap();
                }
                for _ in 0..5 {
                    let _anything = (reader.read(), reader.lag(), reader.lost());
                }
            }
        }
    }
}
