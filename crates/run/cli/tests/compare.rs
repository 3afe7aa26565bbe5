//! `tapeworks compare`: the synthetic NBBO beside the SIPs'.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{Folder, assert_one_error, run, stdout};

/// A generated session of these venues.
fn generated(folder: &Folder, venues: &str) -> String {
    let path = folder.path("session.pcap");
    let arguments = ["exchange", "generate", "--venues", venues, "--messages", "40000", "--symbols", "20"];
    let made = run(&[&arguments[..], &["--force", "--out", &path]].concat());
    assert!(made.status.success(), "{made:?}");
    path
}

fn compared(path: &str) -> serde_json::Value {
    let output = run(&["compare", "sip", "--json", path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The SIPs of a market of direct feeds alone show their NBBO, some 200 microseconds later. All of these feeds say the round lot.
#[test]
fn the_nbbo_of_direct_feeds_is_that_of_the_sips_but_for_their_latency() {
    let folder = Folder::new("compare");
    let found = compared(&generated(&folder, "nasdaq=3,memx=2,iex-deep,uqdf=0,cqs=0"));
    let symbols = found["symbols"].as_array().unwrap();
    assert_eq!(symbols.len(), 20);
    for one in symbols {
        let number = |name: &str| one[name].as_f64().unwrap();
        assert!(number("equal_prices_percent") > 99.9, "{one}");
        assert!(number("equal_percent") > 99.9, "{one}");
        assert_eq!(one["lag"]["pairs"].as_u64().unwrap() > 0, number("sip_changes") > 1.0, "{one}");
    }
    let sips: std::collections::BTreeSet<&str> =
        symbols.iter().filter_map(|one| one["sip"].as_str()).collect();
    assert_eq!(sips.into_iter().collect::<Vec<_>>(), ["CTA SIP", "UTP SIP"]);
    let lag = &found["lag"];
    // The latencies of the three venues are 200, 207 and 214 microseconds.
    assert!((200_000..=214_000).contains(&lag["p50_ns"].as_i64().unwrap()), "{lag}");
    assert!(lag["pairs"].as_u64().unwrap() > 500, "{lag}");
    let differences = found["differences"].as_array().unwrap();
    let of = |name: &str| differences.iter().find(|one| one["difference"] == name);
    for name in ["bid: better price here", "bid: better price at the SIP", "offer: other size"] {
        let one = of(name).unwrap();
        assert!(one["times"].as_u64().unwrap() > 0 && one["first"]["symbol"].is_string(), "{one}");
    }
}

/// A market without a direct feed has better prices for long.
#[test]
fn a_venue_without_a_direct_feed_shows_as_better_prices_at_the_sip() {
    let folder = Folder::new("compare-without");
    let path = generated(&folder, "nasdaq,uqdf");
    let found = compared(&path);
    let ns = |name: &str| {
        let differences = found["differences"].as_array().unwrap();
        differences.iter().find(|one| one["difference"] == name).map_or(0, |one| one["ns"].as_u64().unwrap())
    };
    assert!(ns("bid: better price at the SIP") > 1_000 * ns("bid: better price here"), "{found}");
    // Only half of the symbols are of tape C.
    assert!(found["symbols"].as_array().unwrap().len() < 20);
    let output = run(&["compare", "sip", &path]);
    let text = stdout(&output);
    assert!(text.contains("The first of each") && text.contains("Over all symbols"), "{text}");
}

#[test]
fn a_cut_file_is_named_without_a_sip_too_and_what_it_lacks_is_in_the_output() {
    let folder = Folder::new("compare-damaged");
    let path = generated(&folder, "nasdaq,uqdf");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let output = run(&["compare", "sip", "--json", &path]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let found: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(found["replay"]["damaged_files"].as_array().unwrap().len(), 1, "{found}");
    // Of so little nothing is a SIP's.
    std::fs::write(&path, &whole[..1_000]).unwrap();
    let output = run(&["compare", "sip", &path]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = support::stderr(&output);
    assert!(said.contains("session.pcap") && said.contains("no SIP has quoted a symbol"), "{said}");
}

#[test]
fn a_capture_without_a_sip_is_wrong_usage() {
    let capture = "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap";
    assert_one_error(&run(&["compare", "sip", capture]), 2, "no SIP has quoted a symbol");
}
