//! `tapeworks symbols`: the directory of a day, and spellings.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{Folder, run, stderr, stdout};

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
        let restricted = venues.iter().any(|venue| venue["is_short_sell_restricted"] == true);
        assert_eq!(one["is_short_sell_restricted"], restricted, "{one}");
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

#[test]
fn symbols_has_the_names_of_a_sip_and_the_isins_of_london() {
    let folder = Folder::new("names");
    let listed = symbols(&folder, "nasdaq,lse,uqdf,cqs");
    let of_london = |one: &serde_json::Value| one["symbol"].as_str().unwrap().len() == 16;
    let (london, others): (Vec<_>, Vec<_>) = listed.iter().partition(|one| of_london(one));
    assert_eq!((london.len(), others.len()), (40, 40));
    for one in london {
        let symbol = one["symbol"].as_str().unwrap();
        assert_eq!([&one["isin"], &one["currency"]], [&symbol[..12], &symbol[13..]], "{one}");
        assert!(one["cusip"].is_null() && one["name"].is_null(), "{one}");
    }
    for one in &others {
        let of_venue = |venue: &&serde_json::Value| !venue["name"].is_null();
        let venue = one["venues"].as_array().unwrap().iter().find(of_venue);
        assert!(
            venue.is_none_or(|venue| venue["venue"] == "UTP SIP" && venue["name"] == one["name"]),
            "{one}"
        );
        assert_eq!(one["name"].is_null(), venue.is_none(), "{one}");
        assert!(one["isin"].is_null(), "{one}");
    }
    let named = others.iter().filter(|one| one["name"] == "SIMULATED").count();
    assert!((1..40).contains(&named), "UQDF has names, CQS has none: {named}");
    let output = run(&["symbols", &folder.path("session.pcap")]);
    let text = stdout(&output);
    let heading = text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(heading[..5], ["symbol", "CQS", "CMS", "ISIN", "name"]);
    assert!(text.contains("SIMULATED"), "{text}");
}

#[test]
fn symbols_checks_isins_and_cusips_and_gives_one_from_the_other() {
    let spell = |texts: &[&str]| {
        let arguments: Vec<&str> = texts.iter().flat_map(|text| ["--spell", text]).collect();
        run(&[&["symbols", "--json"], &arguments[..]].concat())
    };
    let output = spell(&["GB00BH4HKS39.GBX", "US0378331005", "037833100", "CA7800871021", "BRK.B"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let spelled: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let row = |place: usize| {
        let one = &spelled["symbols"][place];
        ["convention", "isin", "country", "currency", "cusip"].map(|name| one[name].as_str().unwrap_or("-"))
    };
    assert_eq!(row(0), ["ISIN.currency", "GB00BH4HKS39", "GB", "GBX", "-"]);
    assert_eq!(row(1), ["ISIN", "US0378331005", "US", "-", "037833100"]);
    assert_eq!(row(2), ["CUSIP", "US0378331005", "US", "-", "037833100"]);
    assert_eq!(row(3), ["ISIN", "CA7800871021", "CA", "-", "780087102"]);
    assert_eq!(row(4), ["integrated", "-", "-", "-", "-"]);
    for (wrong, right) in
        [("GB00BH4HKS38.GBX", "9"), ("US0378331006", "5"), ("037833101", "0"), ("CA7800871022", "1")]
    {
        let output = spell(&[wrong]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let expected = format!("{wrong}: the check digit is wrong: {right} would be right");
        assert!(stderr(&output).contains(&expected), "{output:?}");
    }
}

#[test]
fn replay_takes_the_round_lots_of_a_venue_without_a_directory_from_prices() {
    let folder = Folder::new("round-lots");
    let session = folder.path("session.pcap");
    let generated = symbols(&folder, "bzx");
    let prices: String =
        generated.iter().map(|one| format!("{},5000.00\n", one["symbol"].as_str().unwrap())).collect();
    std::fs::write(folder.path("prices.csv"), prices).unwrap();
    let sizes = |more: &[&str]| -> Vec<u32> {
        let csv = folder.path("nbbo.csv");
        let replay = ["replay", &session, "--schema", "cmbp-1", "--out", &csv, "--force"];
        let output = run(&[&replay[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        let rows = std::fs::read_to_string(&csv).unwrap();
        let column = rows.lines().next().unwrap().split(',').position(|name| name == "bid_sz_00").unwrap();
        rows.lines().skip(1).map(|row| row.split(',').nth(column).unwrap().parse().unwrap()).collect()
    };
    let without = sizes(&[]);
    assert!(without.iter().all(|size| size % 100 == 0) && without.iter().any(|size| *size > 0));
    let with = sizes(&["--round-lot-prices", &folder.path("prices.csv")]);
    assert!(with.iter().all(|size| size % 10 == 0) && with.iter().any(|size| size % 100 != 0));
    std::fs::write(folder.path("prices.csv"), "A,1\nA,2\n").unwrap();
    let refused = run(&["replay", &session, "--round-lot-prices", &folder.path("prices.csv")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("line 2: the symbol is there twice"), "{refused:?}");
}
