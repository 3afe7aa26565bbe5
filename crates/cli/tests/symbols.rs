//! `tapeworks symbols`: the directory of a day, and spellings.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{Folder, run, stdout};

/// The symbols of a generated session of these venues, as JSON.
fn symbols(folder: &Folder, venues: &str) -> Vec<serde_json::Value> {
    let path = folder.path("session.pcap");
    let generated = run(&[
        "exchange",
        "generate",
        "--venues",
        venues,
        "--messages",
        "20000",
        "--symbols",
        "40",
        "--force",
        "--out",
        &path,
    ]);
    assert!(generated.status.success(), "{generated:?}");
    let output = run(&["symbols", "--json", &path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    listed["symbols"].as_array().unwrap().clone()
}

#[test]
fn symbols_lists_each_symbol_once_with_what_every_venue_says_of_it() {
    let folder = Folder::new("symbols");
    let listed = symbols(&folder, "nasdaq,memx,arca,iex-deep");
    assert_eq!(listed.len(), 40);
    let names: Vec<&str> = listed.iter().map(|one| one["symbol"].as_str().unwrap()).collect();
    assert!(names.is_sorted(), "{names:?}");
    for one in &listed {
        let venues = one["venues"].as_array().unwrap();
        let of = |name: &str| venues.iter().find(|venue| venue["venue"] == name).unwrap();
        assert_eq!(venues.len(), 4, "{one}");
        for venue in venues {
            assert_eq!(venue["round_lot"], of("Nasdaq")["round_lot"], "{one}");
            assert!(!venue["status"].is_null(), "{one}");
        }
        assert_eq!(of("Nasdaq")["listing_market"], of("NYSE Arca")["listing_market"]);
        assert!(of("Nasdaq")["listing_market"].is_string(), "{one}");
        assert!(of("MEMX")["tick_e9"].as_i64().unwrap() > 0, "{one}");
        assert!(of("IEX")["tick_e9"].is_null() && of("IEX")["listing_market"].is_null(), "{one}");
    }
}

#[test]
fn symbols_spells_a_symbol_of_any_convention_in_all_three() {
    let output = run(&[
        "symbols", "--json", "--spell", "BAC PRL", "--spell", "XYZpAw", "--spell", "BRK.B", "--spell",
        "XYZ/WS",
    ]);
    let spelled: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let row = |place: usize| {
        let one = &spelled["symbols"][place];
        ["convention", "integrated", "cqs", "cms", "issue"].map(|name| one[name].as_str().unwrap())
    };
    assert_eq!(row(0), ["CMS", "BAC-L", "BACpL", "BAC PRL", "preferred L"]);
    assert_eq!(row(1), ["CQS", "XYZ-A#", "XYZpAw", "XYZ PRAWI", "preferred A, when issued"]);
    assert_eq!(row(2), ["integrated", "BRK.B", "BRK.B", "BRK B", "class B"]);
    assert_eq!(row(3), ["CQS", "XYZ+", "XYZ.WS", "XYZ WS", "warrants"]);
    let output = run(&["symbols", "--spell", "BRK.B", "--spell", "x?"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("BRK B"), "what has a spelling is shown: {output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no convention has x?"), "{output:?}");
}
