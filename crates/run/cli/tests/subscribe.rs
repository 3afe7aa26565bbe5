//! `tapeworks subscribe` against a server that says what a test wants.

#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(unix)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::thread::JoinHandle;

use dbn::decode::{DbnDecoder, DecodeRecordRef as _};
use dbn::encode::{DbnMetadataEncoder, DbnRecordEncoder, EncodeRecord as _};
use dbn::enums::ErrorCode;
use dbn::{
    ErrorMsg, FlagSet, MboMsg, RecordHeader, SType, SymbolMappingMsg, SystemCode, SystemMsg, TradeMsg,
};
use support::{Folder, assert_one_error, command, run, signal, stderr, stdout, wait_for};

/// What the server does when the session has begun.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Sends records and ends the session.
    Sends,
    /// The same, with the first half as a replay.
    Replays,
    /// Sends records that are later than all others, and ends the session.
    SendsLater,
    /// Refuses the subscription and ends the session.
    Refuses,
    /// Refuses to replay, with the code of a refusal.
    RefusesReplay,
    /// Sends nothing.
    Waits,
    /// Says nothing from the beginning.
    IsMute,
}

const RECORDS: u32 = 100;

fn order(number: u32) -> MboMsg {
    MboMsg {
        hd: RecordHeader::new::<MboMsg>(dbn::rtype::MBO, 2, 7, 1_000 + u64::from(number)),
        order_id: u64::from(number),
        price: 10_000_000_000,
        size: 100,
        // The first ten are a snapshot.
        flags: FlagSet::from(if number < 10 {
            dbn::flags::LAST | dbn::flags::SNAPSHOT
        } else {
            dbn::flags::LAST
        }),
        channel_id: 0,
        action: b'A' as _,
        side: b'B' as _,
        ts_recv: 1_500 + u64::from(number),
        ts_in_delta: 0,
        sequence: number,
    }
}

fn server(does: Does) -> (SocketAddr, JoinHandle<()>) {
    server_of(vec![does])
}

/// A server that serves these connections one after the other.
fn server_of(connections: Vec<Does>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || connections.into_iter().for_each(|does| serve(&listener, does)));
    (address, thread)
}

fn serve(listener: &TcpListener, does: Does) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    let mut next = |reader: &mut BufReader<_>| {
        line.clear();
        let _ended_at_worst = reader.read_line(&mut line);
        line.clone()
    };
    if does == Does::IsMute {
        // Until the client goes.
        while !next(&mut reader).is_empty() {}
        return;
    }
    stream.write_all(b"lsg_version=0.1\ncram=abcdef\n").unwrap();
    assert!(next(&mut reader).starts_with("auth="));
    stream.write_all(b"success=1|session_id=1\n").unwrap();
    loop {
        let line = next(&mut reader);
        if line.starts_with("start_session") {
            break;
        }
        // The client reads a list from the file; the server gets the symbols only.
        assert!(
            !line.contains('@') && (!line.contains("OPTION") || line.contains("symbols=AN OPTION,B|")),
            "{line}"
        );
    }
    let metadata = dbn::Metadata::builder()
        .dataset("TAPEWORKS.DEMO")
        .schema(None)
        .start(0)
        .stype_in(None)
        .stype_out(SType::InstrumentId)
        .build();
    DbnMetadataEncoder::new(&mut stream).encode(&metadata).unwrap();
    let mut records = DbnRecordEncoder::new(&mut stream);
    match does {
        Does::Refuses => {
            records.encode_record(&ErrorMsg::new(0, None, "schema mbo is not served here", true)).unwrap();
        }
        Does::Sends | Does::Replays => {
            let mapping =
                SymbolMappingMsg::new(7, 0, SType::RawSymbol, "ABC", SType::RawSymbol, "ABC", 0, 0).unwrap();
            records.encode_record(&mapping).unwrap();
            for number in 0..RECORDS {
                if does == Does::Replays && number == RECORDS / 2 {
                    let text = "Finished mbo replay";
                    let done = SystemMsg::new(0, Some(SystemCode::ReplayCompleted), text).unwrap();
                    records.encode_record(&done).unwrap();
                }
                records.encode_record(&order(number)).unwrap();
            }
            // Without a receive time.
            let hd = RecordHeader::new::<TradeMsg>(dbn::rtype::MBP_0, 2, 7, 1);
            let trade = TradeMsg { hd, ..TradeMsg::default() };
            records.encode_record(&trade).unwrap();
        }
        Does::Waits => {
            records.encode_record(&order(RECORDS)).unwrap();
            // Until the client goes.
            next(&mut reader);
        }
        Does::SendsLater => {
            for number in 2 * RECORDS..3 * RECORDS {
                records.encode_record(&order(number)).unwrap();
            }
        }
        Does::RefusesReplay => {
            let error = ErrorMsg::new(0, Some(ErrorCode::InvalidSubscription), NO_HISTORY, true);
            records.encode_record(&error).unwrap();
        }
        Does::IsMute => {}
    }
}

const NO_HISTORY: &str = "this server keeps no history: start= cannot be served";

/// Subscribes to both servers of a pair, both at one address.
fn subscribe_to_pair(connections: Vec<Does>, arguments: &[&str]) -> std::process::Output {
    let (address, thread) = server_of(connections);
    let pair = format!("{address},{address}");
    let output = run(&[&["subscribe", &pair, "--schema", "mbo"][..], arguments].concat());
    thread.join().unwrap();
    output
}

#[test]
fn a_replay_that_all_servers_refuse_ends_the_subscription_with_their_reason() {
    let connections = vec![Does::Sends, Does::RefusesReplay, Does::RefusesReplay];
    let output = subscribe_to_pair(connections, &["--seconds", "60"]);
    assert_error_contains(&output, 1, NO_HISTORY);
}

#[test]
fn a_subscription_may_continue_without_the_refused_replay_and_reports_the_hole() {
    let connections = vec![Does::Sends, Does::RefusesReplay, Does::RefusesReplay, Does::SendsLater];
    let output = subscribe_to_pair(connections, &["--when-refused", "continue", "--limit", "150"]);
    assert_error_contains(
        &output,
        3,
        "records of type 160 may be missing from 1970-01-01T00:00:00.000001599",
    );
    assert_eq!(stdout(&output).lines().count(), 150);
}

#[test]
fn a_server_with_less_history_costs_no_new_record() {
    let output = subscribe_to_pair(vec![Does::Sends, Does::SendsLater], &["--limit", "201"]);
    assert_error_contains(&output, 3, "may be missing");
    assert_eq!(stdout(&output).lines().count(), 201);
}

fn subscribe(does: Does, arguments: &[&str]) -> std::process::Output {
    let (address, thread) = server(does);
    let address = address.to_string();
    let output = run(&[&["subscribe", &address][..], arguments].concat());
    thread.join().unwrap();
    output
}

#[test]
fn the_ending_of_out_chooses_the_format() {
    let folder = Folder::new("subscribe-formats");
    for ending in ["csv", "json", "parquet", "dbn", "csv.zst", "json.zst", "dbn.zst"] {
        let path = folder.path(&format!("live.{ending}"));
        let output = subscribe(Does::Sends, &["--schema", "mbo", "--out", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains(&format!("{path}: 100 records")), "{}", stdout(&output));
        let bytes = fs::read(&path).unwrap();
        let bytes = if ending.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
        match ending.trim_end_matches(".zst") {
            "csv" => {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.starts_with("ts_recv,ts_event,rtype,"), "{text:.300}");
                assert_eq!(text.lines().count(), 101);
                assert!(text.lines().skip(1).all(|line| line.ends_with(",ABC")), "{text:.300}");
            }
            "json" => assert_eq!(bytes.split(|byte| *byte == b'\n').count(), 101),
            "parquet" => assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")),
            _ => {
                let mut decoder = DbnDecoder::new(&bytes[..]).unwrap();
                let mut records = 0;
                while decoder.decode_record_ref().unwrap().is_some() {
                    records += 1;
                }
                assert_eq!(records, 101, "the symbol mapping too");
            }
        }
        // Nothing is replaced without --force.
        let again = run(&["subscribe", "127.0.0.1:1", "--out", &path]);
        assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
        let refused = subscribe(Does::Sends, &["--schema", "mbo", "--out", &path]);
        assert_error_contains(&refused, 1, "the file exists; --force replaces it");
        assert_eq!(
            subscribe(Does::Sends, &["--schema", "mbo", "--force", "--out", &path]).status.code(),
            Some(0)
        );
        let piped = subscribe(Does::Sends, &["--schema", "mbo", "--out", "-", "--format", ending]).stdout;
        // What is flushed on the way makes other blocks.
        let same = |bytes: Vec<u8>| match ending.ends_with(".zst") {
            true => zstd::decode_all(&bytes[..]).unwrap(),
            false => bytes,
        };
        assert!(same(piped) == same(fs::read(&path).unwrap()), "{ending}");
    }
    assert!(folder.files().iter().all(|name| !name.contains("partial")), "{:?}", folder.files());
}

/// The code, and a line that says so.
#[track_caller]
fn assert_error_contains(output: &std::process::Output, code: i32, text: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert!(stderr(output).contains(text), "{}", stderr(output));
}

#[test]
fn each_schema_has_a_file_of_its_own_or_the_form_must_hold_many() {
    let folder = Folder::new("subscribe-schemas");
    let pattern = folder.path("live.{schema}.csv");
    let output = subscribe(Does::Sends, &["--schema", "mbo,trades", "--out", &pattern]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = |name: &str| fs::read_to_string(folder.path(name)).unwrap().lines().count();
    assert_eq!((lines("live.mbo.csv"), lines("live.trades.csv")), (101, 2));
    let one = folder.path("one.csv");
    let refused = subscribe(Does::Waits, &["--schema", "mbo,trades", "--out", &one]);
    assert_error_contains(&refused, 2, "csv holds records of one schema");
    let json = folder.path("one.json");
    subscribe(Does::Sends, &["--schema", "mbo,trades", "--out", &json]);
    assert_eq!(lines("one.json"), 101);
}

#[test]
fn a_file_that_another_run_writes_is_left_alone() {
    let folder = Folder::new("subscribe-locked");
    let path = folder.path("live.dbn");
    let partial = folder.write("live.dbn.partial", b"another run's");
    let other = fs::File::open(&partial).unwrap();
    other.try_lock().unwrap();
    let refused = subscribe(Does::Waits, &["--schema", "mbo", "--out", &path]);
    assert_one_error(&refused, 1, "another run writes it");
    assert_eq!(fs::read(&partial).unwrap(), b"another run's");
}

#[test]
fn symbols_come_from_a_list_or_a_file() {
    let folder = Folder::new("subscribe-symbols");
    let file = folder.write("symbols.txt", b"AN OPTION, B\r\n\nAN OPTION\n");
    for symbols in [format!("@{file}"), "AN OPTION,B,B".to_owned()] {
        let output = subscribe(Does::Sends, &["--schema", "mbo", "--quiet", "--symbols", &symbols]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn a_refused_subscription_is_a_failure() {
    let output = subscribe(Does::Refuses, &["--schema", "mbo"]);
    assert_error_contains(&output, 1, "schema mbo is not served here");
}

#[test]
fn delays_are_those_of_live_records() {
    for (does, more, expected) in
        [(Does::Sends, &[][..], RECORDS - 10), (Does::Replays, &["--start", "0"], RECORDS / 2)]
    {
        let output = subscribe(does, &[&["--schema", "mbo", "--quiet", "--json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let figures = stderr(&output);
        let figures = figures.lines().find(|line| line.starts_with('{')).unwrap();
        let figures: serde_json::Value = serde_json::from_str(figures).unwrap();
        assert_eq!(figures["records"], u64::from(RECORDS) + 1);
        assert_eq!(figures["delay_ns"]["count"], expected, "{figures}");
    }
}

#[test]
fn a_server_that_ends_before_the_requested_limit_is_reported() {
    for (arguments, code) in [
        (&["--schema", "mbo", "--quiet"][..], 0),
        (&["--schema", "mbo", "--quiet", "--limit", "100"], 0),
        (&["--schema", "mbo", "--quiet", "--limit", "1000"], 3),
        (&["--schema", "mbo", "--quiet", "--seconds", "60"], 3),
    ] {
        let output = subscribe(Does::Sends, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        let is_reported = stderr(&output).contains("the server ended it before the requested limit or time");
        assert_eq!(is_reported, code == 3, "{}", stderr(&output));
    }
}

#[test]
fn a_port_that_is_no_plant_times_out() {
    let output = subscribe(Does::IsMute, &["--seconds", "500ms"]);
    assert_one_error(&output, 1, "no answer within 0.5 s");
}

#[test]
fn ctrl_c_ends_a_subscription_wherever_it_is() {
    for (program, does, code) in
        [("subscribe", Does::IsMute, 130), ("subscribe", Does::Waits, 0), ("top", Does::IsMute, 130)]
    {
        let (address, thread) = server(does);
        let mut child = command(&[program, &address.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if does == Does::Waits {
            // It has printed the only record, so it waits for another.
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert!(line.starts_with('{'), "{line}");
        } else {
            // Its connection is there, so it waits for an answer.
            wait_for(|| {
                let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
                open.flatten().any(|entry| {
                    fs::read_link(entry.path())
                        .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
                })
            });
        }
        signal(&child, "-INT");
        wait_for(|| child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(!stderr(&output).to_lowercase().contains("interrupted"), "{}", stderr(&output));
        thread.join().unwrap();
    }
}
