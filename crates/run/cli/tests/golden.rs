//! What the program says of every real capture, compared with what it said when a person checked it.
//!
//! `TAPEWORKS_BLESS=1 cargo test -p tapeworks --test golden` writes the files anew; read the difference before you
//! commit it.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{captures, run, stdout};

/// Compares `text` with the golden file, or writes it when blessing.
fn compare(name: &str, text: &str) {
    support::compare_with(&format!("testdata/golden/{name}"), text);
}

fn golden_name(kind: &str, capture: &str, ending: &str) -> String {
    format!("{kind}/{}.{ending}", capture.trim_start_matches("testdata/captures/"))
}

/// What a capture must be read as, where its bytes do not say so.
fn named(capture: &str) -> &'static [&'static str] {
    let of = [
        ("cboe-pitch-futures", &["--protocol", "cfe"]),
        ("cboe-pitch", &["--protocol", "pitch"]),
        ("nyse-pillar", &["--protocol", "integrated"]),
    ];
    of.into_iter().find(|(folder, _)| capture.contains(folder)).map_or(&[], |(_, named)| named)
}

#[test]
fn every_real_capture_is_dumped_as_it_was() {
    let captures = captures();
    assert!(captures.len() > 25, "the captures are there");
    for capture in captures {
        let output = run(&[&["dump", "--json", &capture][..], named(&capture)].concat());
        compare(&golden_name("dump", &capture, "jsonl"), &stdout(&output));
        // What carries orders is in a protocol that is not known yet; everything else is read to the last byte.
        let is_unread = stdout(&output).contains("\"error\":");
        assert_eq!(output.status.code(), Some(if is_unread { 3 } else { 0 }), "{capture}");
        assert!(capture.contains("ouch") || !is_unread, "{capture}");
    }
}

#[test]
fn every_real_capture_is_counted_as_it_was() {
    for capture in captures() {
        let output = run(&[&["stats", "--json", &capture][..], named(&capture)].concat());
        compare(&golden_name("stats", &capture, "json"), &stdout(&output));
    }
}

#[test]
fn a_dump_for_people_looks_as_it_did() {
    let capture = "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap";
    compare("dump/Multiple.Packets.txt", &stdout(&run(&["dump", capture])));
    compare(
        "dump/Multiple.Packets.detail.txt",
        &stdout(&run(&["dump", "--detail", "--limit", "2", capture])),
    );
    compare("stats/Multiple.Packets.txt", &stdout(&run(&["stats", capture])));
}

#[test]
fn every_line_of_a_dump_is_an_object_with_its_place() {
    for capture in captures() {
        for line in stdout(&run(&["dump", "--json", &capture])).lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in ["file", "packet", "offset", "time", "message"] {
                assert!(object.get(key).is_some(), "{key} is not in {line}");
            }
            let said = ["fields", "error", "passed_over"];
            assert!(said.iter().any(|key| object.get(key).is_some()), "{line}");
        }
    }
}

#[test]
fn the_container_of_a_capture_does_not_change_the_result() {
    let of = |file: &str| -> Vec<serde_json::Value> {
        stdout(&run(&["dump", "--json", file]))
            .lines()
            .map(|line| {
                let mut object: serde_json::Value = serde_json::from_str(line).unwrap();
                for key in ["file", "offset", "time"] {
                    object.as_object_mut().unwrap().remove(key);
                }
                object
            })
            .collect()
    };
    let plain = of("testdata/captures/nasdaq-itch50/Multiple.Packets.pcap");
    assert_eq!(plain.len(), 39);
    for ending in ["pcap.gz", "pcap.zst", "pcapng", "pcapng.zst", "us.pcap"] {
        assert_eq!(of(&format!("testdata/captures/derived/Multiple.Packets.{ending}")), plain, "{ending}");
    }
}

#[test]
fn two_runs_give_the_same_bytes() {
    let folder = support::Folder::new("two-runs");
    let generate = |name: &str| {
        let path = folder.path(name);
        let output = run(&["exchange", "generate", "--messages", "20000", "--symbols", "50", "--out", &path]);
        assert_eq!(output.status.code(), Some(0));
        std::fs::read(path).unwrap()
    };
    assert!(generate("a.pcap") == generate("b.pcap"), "the same seed gives the same session");
    let replay = |name: &str| {
        let path = folder.path(name);
        let session = folder.path("a.pcap");
        let output = run(&["replay", &session, "--schema", "cmbp-1", "--out", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        std::fs::read(path).unwrap()
    };
    for (first, second) in [("a.dbn", "b.dbn"), ("a.parquet", "b.parquet"), ("a.csv", "b.csv")] {
        assert!(replay(first) == replay(second), "{first} and {second} differ");
    }
}

/// The names of the US market's venues and London's.
const EVERY_MARKET: &str =
    "nasdaq,bx,psx,iex-deep-plus,memx,bzx,byx,edga,edgx,nyse,arca,american,national,texas,lse,uqdf,cqs";

#[test]
fn two_runs_of_the_us_market_and_london_give_the_same_bytes() {
    let folder = support::Folder::new("two-runs-us");
    let generate = |name: &str| {
        let path = folder.path(name);
        let sizes = ["--messages", "20000", "--symbols", "20", "--scenario", "us"];
        let venues = ["--venues", EVERY_MARKET, "--out", &path];
        let output = run(&[&["exchange", "generate"][..], &sizes, &venues].concat());
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        std::fs::read(path).unwrap()
    };
    assert!(generate("a.pcap") == generate("b.pcap"), "the same seed gives the same session");
    let replay = |session: &str, name: &str, schema: &str| {
        let path = folder.path(name);
        let output = run(&["replay", &folder.path(session), "--schema", schema, "--out", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        std::fs::read(path).unwrap()
    };
    for (schema, ending) in [("cmbp-1", "dbn"), ("mbo", "parquet")] {
        let of = |session: &str| {
            replay(&format!("{session}.pcap"), &format!("{session}-{schema}.{ending}"), schema)
        };
        let (first, second) = (of("a"), of("b"));
        assert!(first.len() > 1_000 && first == second, "{schema} as {ending}");
    }
}
