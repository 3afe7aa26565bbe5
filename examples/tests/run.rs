//! Every example runs, and says what it should.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use tapeworks_analysis::replay;
use tapeworks_capture::CaptureReader;
use tapeworks_capture::net;
use tapeworks_market::nbbo::Nbbo;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher, Symbol};
use tapeworks_plant::{Published, SHARED_MEANING};
use tapeworks_ring::broadcast::Writer;

/// What the program printed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn one_message_is_decoded() {
    let printed = run(env!("CARGO_BIN_EXE_decode_one_message"), &[]);
    assert!(printed.contains(" becomes "), "{printed}");
}

#[test]
fn a_declared_protocol_reads_both_of_its_versions() {
    let printed = run(env!("CARGO_BIN_EXE_declare_protocol"), &[]);
    for expected in
        ["34 bytes: TAPE 300 at 123.4500, orders Some(2)", "30 bytes: TAPE 300 at 123.4500, orders None"]
    {
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn a_declared_machine_takes_messages_and_draws_itself() {
    let printed = run(env!("CARGO_BIN_EXE_declare_machine"), &[]);
    for expected in [
        "1 early\n  > reject: TestRequest while LoggedOut\n",
        "A TAPE\n  > logon of TAPE accepted\n",
        "? \n  ! no event has the code 0x3f\n",
        "5 \n  > logout\n",
        "    Active --> Probing: Silence / probe\n",
    ] {
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn books_come_of_a_capture() {
    let printed = run(env!("CARGO_BIN_EXE_books_from_capture"), &[]);
    assert!(printed.contains("Nasdaq"), "{printed}");
}

#[test]
fn feed_books_and_file_are_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("quotes.csv");
    let printed = run(env!("CARGO_BIN_EXE_books_to_file"), &[made.to_str().unwrap()]);
    let text = std::fs::read_to_string(&made).unwrap();
    let records = text.lines().count() - 1;
    assert!(records > 0 && printed.ends_with(&format!("{records} records\n")), "{printed}");
    // The same as the replay's, which knows the instruments from its feed.
    let theirs = folder.path().join("replayed.csv");
    let input =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures/nasdaq-itch50/Multiple.Packets.pcap");
    let schema = tapeworks_store::Schema::Mbp1;
    let output = replay::Output { path: theirs.clone(), schema, options: Default::default() };
    let options = replay::Options { inputs: vec![input.into()], outputs: vec![output], ..Default::default() };
    replay::replay(&options, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(text, std::fs::read_to_string(&theirs).unwrap());
}

#[test]
fn a_flow_that_is_built_in_code_rewrites_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("out.pcap");
    let printed = run(env!("CARGO_BIN_EXE_packet_flow"), &[made.to_str().unwrap()]);
    let mut reader = CaptureReader::open(&made).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        assert!(datagram.destination.ip().is_loopback());
        packets += 1;
    }
    assert!(packets > 0 && printed.contains(&format!("out: {packets} packets in, 0 dropped\n")), "{printed}");
}

#[test]
fn a_custom_stage_prints_each_change_of_a_spread() {
    let capture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures/nasdaq-itch50/Multiple.Packets.pcap");
    let printed = run(env!("CARGO_BIN_EXE_own_stage"), &[capture]);
    assert_eq!(printed, "1692711038952561782 ns  META  spread 276.8100\n1 changes of spreads\n");
}

#[test]
fn an_nbbo_becomes_a_parquet_file() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("example-nbbo.parquet");
    let printed = run(env!("CARGO_BIN_EXE_nbbo_to_parquet"), &[path.to_str().unwrap()]);
    assert!(printed.contains("changes of the NBBO"), "{printed}");
    assert_eq!(std::fs::read(path).unwrap()[..4], *b"PAR1");
}

#[test]
fn the_feed_misses_the_messages_that_a_generated_line_loses() {
    let printed = run(env!("CARGO_BIN_EXE_generate_market"), &[]);
    let numbers = |line: &str| -> Vec<u64> { line.split(' ').filter_map(|word| word.parse().ok()).collect() };
    let lines: Vec<_> = printed.lines().skip(1).map(numbers).collect();
    assert_eq!(lines.len(), 2, "{printed}");
    for line in lines {
        assert!(line[0] > 0 && line[1] == line[2], "{printed}");
    }
}

#[test]
fn the_shared_memory_of_a_plant_has_symbols_for_late_readers() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("example-shared-memory");
    let mut writer = Writer::create(&path, 64, SHARED_MEANING).unwrap();
    let event = Event::new(EventKind::Other, Publisher(2), InstrumentId(0));
    for (symbol, changed) in [("TWAA", true), ("TWAB", false), ("TWAC", true)] {
        writer.publish(&Published::new(&event, Symbol::parse(symbol), &Nbbo::default(), changed));
    }
    let mut reader = Command::new(env!("CARGO_BIN_EXE_read_shared_memory"));
    let mut reader = reader.arg(&path).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(reader.stdout.take().unwrap());
    let mut printed = String::new();
    output.read_line(&mut printed).unwrap();
    // It ends when the plant does, and has read what was there.
    drop(writer);
    output.read_to_string(&mut printed).unwrap();
    assert!(reader.wait().unwrap().success());
    assert_eq!(printed, "TWAA - x 0 / - x 0\nTWAC - x 0 / - x 0\n");
}

#[test]
fn a_journal_and_a_counter_read_the_same_ring() {
    let printed = run(env!("CARGO_BIN_EXE_two_cores"), &[]);
    assert_eq!(
        printed,
        "1000 orders, 500500 shares; the journal has 1000 lines, flushed at each end of batch\n"
    );
}
