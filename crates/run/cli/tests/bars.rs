//! `tapeworks bars`.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::BTreeSet;

use support::{Folder, assert_one_error, run, stdout};

/// The only real capture with an execution. It begins in mid-day: the order, and so the price, are not known.
const EXECUTION: [&str; 5] = [
    "bars",
    "testdata/captures/nyse-pillar-integrated/OrderExecutionMessage.pcap",
    "--protocol",
    "integrated",
    "--json",
];

#[test]
fn a_capture_without_a_known_venue_is_named_as_such() {
    let capture = "testdata/captures/nyse-pillar-integrated/OrderExecutionMessage.pcap";
    let presumed = "1 channel whose venue is presumed, since nothing says it: --venue names it";
    for (venue, is_presumed) in [(&[][..], true), (&["--venue", "arca"], false)] {
        let output = run(&[&["replay", capture, "--protocol", "integrated"][..], venue].concat());
        assert_eq!(stdout(&output).contains(presumed), is_presumed, "{output:?}");
    }
    // Only what was sent says the protocol.
    let inferred = "The protocol of 239.253.72.27:28019 is inferred from its packets: integrated";
    for command in ["replay", "stats"] {
        let output = run(&[command, capture]);
        assert!(stdout(&output).contains(inferred), "{output:?}");
    }
    let output = run(&["dump", capture]);
    assert!(support::stderr(&output).contains(inferred), "{output:?}");
}

#[test]
fn an_execution_of_an_unknown_order_is_in_no_bar_and_counted() {
    let output = run(&EXECUTION);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(3)));
    assert!(support::stderr(&output).contains("trades that count in no volume: 1"), "{output:?}");
}

/// The bars of a generated session have the shares of its records of trades but those that are broken, and the prices of those that count.
#[test]
fn bars_have_the_volume_of_the_records_of_trades() {
    let folder = Folder::new("bars");
    let path = folder.path("session.pcap");
    let arguments =
        ["exchange", "generate", "--venues", "nasdaq,memx", "--messages", "40000", "--symbols", "8"];
    let made = run(&[&arguments[..], &["--force", "--out", &path]].concat());
    assert!(made.status.success(), "{made:?}");
    let trades = folder.path("trades.csv");
    assert!(run(&["replay", &path, "--schema", "trades", "--out", &trades]).status.success());
    let columns = |text: &str, names: &[&str]| -> Vec<Vec<String>> {
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let places: Vec<usize> =
            names.iter().map(|name| header.iter().position(|one| one == name).unwrap()).collect();
        lines.map(|line| places.iter().map(|place| line[*place].clone()).collect()).collect()
    };
    let trades = columns(&std::fs::read_to_string(&trades).unwrap(), &["symbol", "size"]);
    let output = run(&["bars", &path, "-i", "5m"]);
    // Each of the two venues breaks a trade at noon.
    assert!(support::stderr(&output).contains("broken trades, taken back: 2"), "{output:?}");
    let bars = columns(&stdout(&output), &["symbol", "volume", "trades"]);
    assert!(bars.len() > 50, "{}", bars.len());
    let sum = |rows: &[Vec<String>], symbol: &str, place: usize| -> u64 {
        rows.iter().filter(|row| row[0] == symbol).map(|row| row[place].parse::<u64>().unwrap()).sum()
    };
    let symbols: BTreeSet<&String> = trades.iter().map(|row| &row[0]).collect();
    assert_eq!(symbols.len(), 8);
    let mut broken = 0;
    for symbol in symbols {
        let (shares, count) = (sum(&bars, symbol, 1), sum(&bars, symbol, 2));
        let all = trades.iter().filter(|row| row[0] == *symbol).count() as u64;
        let gone = all - count;
        assert_eq!(shares == sum(&trades, symbol, 1), gone == 0, "{symbol}");
        broken += gone;
    }
    assert_eq!(broken, 2);
    // By venue there are more bars, and two runs give the same file in every form.
    let by_venue = stdout(&run(&["bars", &path, "-i", "5m", "--by-venue"]));
    assert!(by_venue.lines().count() > bars.len() + 1);
    for ending in ["csv", "jsonl", "csv.zst", "parquet"] {
        let [one, two] = ["one", "two"].map(|name| folder.path(&format!("{name}.{ending}")));
        for out in [&one, &two] {
            assert!(run(&["bars", &path, "-i", "5m", "--out", out]).status.success());
        }
        let file = std::fs::read(&one).unwrap();
        assert!(!file.is_empty() && file == std::fs::read(&two).unwrap(), "{ending}");
    }
}

/// Cboe's feed states no lot. By the rule a stock at 5,000 dollars has one of 10 shares on the day of the session.
#[test]
fn bars_take_the_round_lots_of_a_venue_without_a_directory_from_prices() {
    let folder = Folder::new("bars-round-lots");
    let path = folder.path("session.pcap");
    let made = ["exchange", "generate", "--venues", "bzx", "--messages", "20000", "--symbols", "8"];
    assert!(run(&[&made[..], &["--force", "--out", &path]].concat()).status.success());
    let bars = |more: &[&str]| -> Vec<serde_json::Value> {
        let text = stdout(&run(&[&["bars", &path, "-i", "1m", "--pretty", "--json"], more].concat()));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let without = bars(&[]);
    let prices: String = without
        .iter()
        .map(|bar| bar["symbol"].as_str().unwrap())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .fold(String::new(), |text, symbol| text + symbol + ",5000\n");
    std::fs::write(folder.path("prices.csv"), prices).unwrap();
    let with = bars(&["--round-lot-prices", &folder.path("prices.csv")]);
    let volumes =
        |bars: &[serde_json::Value]| bars.iter().map(|bar| bar["volume"].clone()).collect::<Vec<_>>();
    let priced = |bars: &[serde_json::Value]| bars.iter().filter(|bar| !bar["open"].is_null()).count();
    assert_eq!(volumes(&with), volumes(&without));
    assert!(priced(&with) > priced(&without), "{} {}", priced(&with), priced(&without));
}

/// `TAPEWORKS_BLESS=1` writes the file anew; read the difference before you commit it.
#[test]
fn the_bars_of_a_session_are_as_they_were_when_a_person_checked_them() {
    let folder = Folder::new("bars-golden");
    let path = folder.path("session.pcap");
    let arguments =
        ["exchange", "generate", "--venues", "nasdaq,memx,iex-deep", "--messages", "40000", "--symbols", "6"];
    assert!(run(&[&arguments[..], &["--force", "--out", &path]].concat()).status.success());
    let text = stdout(&run(&["bars", &path, "--interval", "1h", "--pretty"]));
    support::compare_with("testdata/golden/bars/session.1h.csv", &text);
}

#[test]
fn a_wrong_ending_or_width_is_refused() {
    let capture = EXECUTION[1];
    assert_one_error(&run(&["bars", capture, "--out", "bars.dbn"]), 2, "expected one ending in .csv");
    assert_one_error(&run(&["bars", capture, "-i", "0"]), 2, "a bar needs a width above 0");
}
