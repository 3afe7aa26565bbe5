#![allow(clippy::unwrap_used)]

use std::fs;

use tapeworks_capture::CaptureReader;
use tapeworks_capture::pool::{Description, Pool};

use super::*;
use crate::packets::Outbox;

/// Returns the names of the files in a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Passes `count` packets with these times and bytes to the writer. Returns their outcomes.
fn write(writer: &mut CaptureWriter, packets: &[(u64, &[u8])]) -> Vec<To> {
    let mut pool = Pool::new(packets.len(), 2048);
    let batch: Vec<Passing> = packets
        .iter()
        .map(|(timestamp_ns, bytes)| {
            let description = Description {
                timestamp_ns: *timestamp_ns,
                entered_ns: 0,
                original_length: bytes.len() as u32,
                link_type: LinkType::ETHERNET,
            };
            Passing::new(pool.packet(bytes, description).unwrap())
        })
        .collect();
    let mut outbox = Outbox::with_capacity(packets.len());
    writer.process(&batch, &mut outbox);
    outbox.drain().map(|routed| routed.to).collect()
}

fn times(path: &Path) -> Vec<u64> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut times = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        times.push(packet.timestamp_ns);
    }
    times
}

#[test]
fn a_second_run_is_refused_while_the_first_writes_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let mut first = CaptureWriter::create(&path, true).unwrap();
    assert_eq!(write(&mut first, &[(1, b"one"), (2, b"two")]), [To::Consumed; 2]);
    let refused = CaptureWriter::create(&path, true).unwrap_err();
    let name = path.display();
    assert_eq!(refused.text, format!("{name}: another run writes it, into {name}.partial"));
    assert_eq!(write(&mut first, &[(3, b"three")]), [To::Consumed]);
    first.finish().unwrap();
    assert_eq!(times(&path), [1, 2, 3]);
    assert_eq!(files(folder.path()), ["out.pcap"]);

    // Once the file is complete, another run may replace it.
    let mut second = CaptureWriter::create(&path, true).unwrap();
    assert_eq!(write(&mut second, &[(4, b"four")]), [To::Consumed]);
    assert_eq!(times(&path), [1, 2, 3], "it is kept until the new one is whole");
    second.finish().unwrap();
    assert_eq!(times(&path), [4]);
}

#[test]
fn many_concurrent_runs_leave_one_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let run = |number: u64| {
        let mut writer = CaptureWriter::create(&path, false).ok()?;
        let all: Vec<(u64, &[u8])> = vec![(number, b"packet"); 100];
        assert_eq!(write(&mut writer, &all), [To::Consumed; 100]);
        writer.finish().ok().map(|()| number)
    };
    let finished: Vec<u64> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..16).map(|number| scope.spawn(move || run(number))).collect();
        runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(finished.len(), 1, "who says that it has written the file has");
    assert_eq!(times(&path), vec![finished[0]; 100]);
    assert_eq!(files(folder.path()), ["out.pcap"]);
}

#[test]
fn a_partial_file_of_a_killed_run_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    fs::write(folder.path().join("out.pcap.partial"), [7; 100_000]).unwrap();
    let mut writer = CaptureWriter::create(&path, false).unwrap();
    assert_eq!(write(&mut writer, &[(1, b"one")]), [To::Consumed]);
    writer.finish().unwrap();
    assert_eq!(times(&path), [1]);
    assert_eq!(files(folder.path()), ["out.pcap", "out.pcap.partial.1"]);
    assert_eq!(fs::read(folder.path().join("out.pcap.partial.1")).unwrap(), [7; 100_000]);
}

#[cfg(unix)]
#[test]
fn a_whole_file_that_still_has_its_partial_name_is_not_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    fs::write(&path, b"whole").unwrap();
    fs::hard_link(&path, folder.path().join("out.pcap.partial")).unwrap();
    let mut writer = CaptureWriter::create(&path, true).unwrap();
    assert_eq!(write(&mut writer, &[(1, b"one")]), [To::Consumed]);
    assert_eq!(fs::read(&path).unwrap(), b"whole", "until the new one is whole");
    writer.finish().unwrap();
    assert_eq!(times(&path), [1]);
    assert_eq!(files(folder.path()), ["out.pcap"]);
}

#[test]
fn a_file_that_another_run_made_meanwhile_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let mut writer = CaptureWriter::create(&path, false).unwrap();
    assert_eq!(write(&mut writer, &[(1, b"one")]), [To::Consumed]);
    fs::write(&path, b"mine").unwrap();
    let error = writer.finish().unwrap_err().text;
    assert!(
        error.contains("was made by another program meanwhile and is kept; the written data are in"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    drop(writer);
    let partial = folder.path().join("out.pcap.partial");
    fs::rename(partial, folder.path().join("kept.pcap")).unwrap();
    assert_eq!(times(&folder.path().join("kept.pcap")), [1]);
}

#[test]
fn a_time_that_pcap_cannot_hold_drops_only_that_packet() {
    let folder = tempfile::tempdir().unwrap();
    let late = (1 << 32) * 1_000_000_000;
    for (name, kept, became) in [
        ("out.pcap", vec![1, late - 1, 2], To::Dropped(Reason::TimeRange)),
        ("out.pcapng", vec![1, late, late - 1, 2], To::Consumed),
    ] {
        let path = folder.path().join(name);
        let mut writer = CaptureWriter::create(&path, false).unwrap();
        let all = [(1, &b"one"[..]), (late, b"late"), (late - 1, b"last"), (2, b"two")];
        assert_eq!(write(&mut writer, &all), [To::Consumed, became, To::Consumed, To::Consumed]);
        assert_eq!(writer.take_failure(), None);
        writer.finish().unwrap();
        assert_eq!(times(&path), kept);
    }
}

#[test]
fn a_writer_without_packets_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    drop(CaptureWriter::create(&path, false).unwrap());
    assert_eq!(files(folder.path()), Vec::<String>::new());
}
