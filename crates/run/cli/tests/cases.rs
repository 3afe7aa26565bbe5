//! Captures that were read wrong once, with the right answers: `testdata/cases`.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use serde_json::Value;
use support::{Folder, run, stderr, stdout};

fn path(name: &str) -> String {
    format!("testdata/cases/{name}")
}

/// What `stats` counts: all messages, and per channel those that were repeated, refused and missing.
fn stats(arguments: &[&str]) -> (u64, Vec<[u64; 3]>, Option<i32>) {
    let output = run(&[&["stats", "--json"][..], arguments].concat());
    let stats: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let count = |channel: &Value, name: &str| channel[name].as_u64().unwrap();
    let channels = stats["channels"].as_array().unwrap();
    let messages = channels.iter().map(|channel| count(channel, "messages")).sum();
    let names = ["repeated_messages", "implausible_packets", "missing_messages"];
    let counts = channels.iter().map(|channel| names.map(|name| count(channel, name))).collect();
    (messages, counts, output.status.code())
}

/// The CSV that a replay writes.
fn replay(arguments: &[&str]) -> (String, Option<i32>) {
    let output = run(&[&["replay", "--format", "csv", "--out", "-"][..], arguments].concat());
    (stdout(&output), output.status.code())
}

#[test]
fn both_days_of_a_channel_are_read() {
    let (bzx, nasdaq) = (["--protocol", "pitch", "--venue", "bzx"], [] as [&str; 0]);
    let days = |venue: &str| ["13", "14"].map(|day| path(&format!("two-days-{venue}-2025-11-{day}.pcap")));
    let one = [path("one-file-bzx.pcap")];
    for (files, of, messages) in
        [(&days("bzx")[..], &bzx[..], 1_002), (&one, &bzx, 1_002), (&days("nasdaq"), &nasdaq, 1_000)]
    {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let protocol = &of[..of.len().min(2)];
        let counted = stats(&[&files[..], protocol].concat());
        assert_eq!((counted.0, counted.2), (messages, Some(0)), "{files:?}");
        assert!(counted.1.iter().all(|counts| *counts == [0; 3]), "{files:?}: {counted:?}");
        // The second day in the books of an empty market: as alone.
        let [last] = &files[files.len() - 1..] else { unreachable!() };
        if files.len() == 2 {
            let schema = ["--schema", "mbp-10", "--pretty"];
            let both = replay(&[&files[..], of, &schema].concat());
            let alone = replay(&[&[*last], of, &schema[..]].concat());
            let rows = |csv: &str| csv.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
            let (both_rows, alone_rows) = (rows(&both.0), rows(&alone.0));
            // The first row after the restart may be the one that empties the books.
            let books = |rows: &[String]| rows[rows.len() - 300..].to_vec();
            assert_eq!((both.1, alone.1), (Some(0), Some(0)));
            assert_eq!(books(&both_rows), books(&alone_rows));
        }
    }
}

#[test]
fn the_symbols_and_books_of_a_longer_second_day_are_its_own() {
    let days = [path("longer-nyse-day1.pcap"), path("longer-nyse-day2.pcap")];
    let of = ["--protocol", "integrated", "--venue", "nyse", "--interval", "24h", "--pretty"];
    let bars = |files: &[&str]| stdout(&run(&[&["bars"][..], files, &of].concat()));
    let (both, second) = (bars(&[&days[0], &days[1]]), bars(&[&days[1]]));
    let of_second = |bars: &str| {
        bars.lines().filter(|row| row.starts_with("2025-11-14")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_second(&both), of_second(&second));
    let opened = of_second(&both);
    let bar = opened.iter().find(|row| row.ends_with("VGSA")).unwrap();
    assert!(bar.contains("5.080000000") && bar.contains(",571,"), "{bar}");
}

#[test]
fn a_heartbeat_numbered_0_announces_no_message_0() {
    let output = run(&["replay", &path("seq0hb.pcap")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("nothing is missing"), "{}", stdout(&output));
    assert_eq!(stats(&[&path("seq0hb.pcap")]), (6, vec![[0; 3]], Some(0)));
}

#[test]
fn a_session_that_crosses_midnight_is_dated_by_its_receive_times() {
    let (csv, code) = replay(&[&path("itch_mid.pcap"), "--schema", "mbo", "--pretty"]);
    assert_eq!(code, Some(0));
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|one| *one == name).unwrap();
    let rows = csv.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let late = rows.clone().filter(|row| row[column("ts_recv")].starts_with("2025-11-14T05:00:00"));
    let late: Vec<_> = late.collect();
    assert!(!late.is_empty());
    for row in late {
        assert!(row[column("ts_event")].starts_with("2025-11-14T05:00:00"), "{row:?}");
        assert_eq!(row[column("ts_in_delta")], "5000", "{row:?}");
    }
}

#[test]
fn a_volume_above_32_bits_is_exact_and_a_size_that_does_not_fit_is_reported() {
    let bars = stdout(&run(&["bars", &path("bigcross.pcap"), "--interval", "24h"]));
    assert!(bars.contains(",5000000000,"), "{bars}");
    let (_, code) = replay(&[&path("bigcross.pcap"), "--schema", "mbo"]);
    assert_eq!(code, Some(3));
    let folder = Folder::new("cases-bigcross");
    for (name, threads) in [("size.dbn", "1"), ("size.parquet", "1"), ("apart.parquet", "2")] {
        let out = folder.path(name);
        let output = run(&[
            "replay",
            &path("bigcross.pcap"),
            "--schema",
            "mbo",
            "--threads",
            threads,
            "--json",
            "--out",
            &out,
        ]);
        let summary: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(summary["written"][0]["values_out_of_range"], 1, "{name}");
        assert_eq!(output.status.code(), Some(3), "{name}");
    }
}

#[test]
fn a_datagram_in_fragments_is_read_as_the_whole_one() {
    let of = |name: &str| replay(&[&path(name), "--schema", "mbo"]);
    let (parts, whole) = (of("fr_in.pcap"), of("fr_whole.pcap"));
    assert_eq!((&parts.0, parts.1), (&whole.0, Some(0)));
    assert_eq!(stats(&[&path("fr_in.pcap")]), (68, vec![[0; 3]], Some(0)));
}
