//! Whole replays of generated sessions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tapeworks_analysis::replay::{self, Options, Output, Summary};
use tapeworks_generator::{LineFaults, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_market::Publisher;
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

fn session(path: &Path, kinds: &[VenueKind], seed: u64) {
    let venues = kinds.iter().map(|kind| VenueConfig { kind: *kind, share: 1, unit: Unit::WHOLE }).collect();
    let scenario = Scenario { venues, seed, ..Scenario::full_session(20_000, 20) };
    tapeworks_generator::write_pcap(&scenario, std::fs::File::create(path).unwrap()).unwrap();
}

fn run(options: &Options) -> Summary {
    replay::replay(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

const VENUES: [VenueKind; 3] = VenueKind::each(["nasdaq", "bx", "iex-deep"]);

#[test]
fn every_schema_of_a_whole_session_has_records_and_nothing_is_left_over() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    // Only a SIP has statistics.
    let venues = VenueKind::each(["nasdaq", "bx", "iex-deep", "uqdf"]);
    session(&input, &venues, 1);
    let outputs = Schema::ALL.into_iter().map(|schema| Output {
        path: folder.path().join(format!("{schema}.csv")),
        schema,
        options: tapeworks_store::Options::default(),
    });
    let summary = run(&Options { inputs: vec![input], outputs: outputs.collect(), ..Options::default() });
    assert!(summary.is_clean(), "{:?} {:?}", summary.problems.kept(), summary.feeds);
    assert!(summary.feeds.len() >= venues.len());
    assert_eq!(summary.written.len(), Schema::ALL.len());
    for written in &summary.written {
        assert!(written.summary.records > 0, "{} is empty", written.schema);
        let lines = std::fs::read_to_string(&written.path).unwrap().lines().count() as u64;
        assert_eq!(lines, written.summary.records + 1, "{}", written.schema);
    }
}

#[test]
fn a_named_venue_that_a_known_group_contradicts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    session(&input, &VenueKind::each(["nasdaq", "bx", "psx"]), 3);
    let path = folder.path().join("out.csv");
    let outputs = vec![Output {
        path: path.clone(),
        schema: Schema::Mbo,
        options: tapeworks_store::Options::default(),
    }];
    let named = Some(Publisher::XBOS_ITCH);
    let options = Options { inputs: vec![input.clone()], outputs, publisher: named, ..Options::default() };
    let error = replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(error.contains(" is a group of Nasdaq, not of Nasdaq BX, which was named"), "{error}");
    assert!(!path.exists());
    // Of the venue alone it is no contradiction.
    session(&input, &VenueKind::each(["bx", "iex-deep"]), 3);
    assert!(run(&options).messages > 0);
}

/// A cross and an imbalance of this many shares.
fn crosses(path: &Path, shares: u64) {
    use tapeworks_capture::net::build::{FrameBuilder, MAX_HEADERS_BYTES};
    use tapeworks_capture::{Writer, WriterOptions};
    let mut payload = b"SESSION001\0\0\0\0\0\0\0\x01\0\x02".to_vec();
    let head = |kind: u8| [&[kind, 0, 7, 0, 0][..], &57_600_000_000_000_u64.to_be_bytes()[2..]].concat();
    let cross = [
        &head(b'Q')[..],
        &shares.to_be_bytes(),
        b"AAPL    ",
        &1_000_000_u32.to_be_bytes(),
        &9_u64.to_be_bytes(),
        b"C",
    ]
    .concat();
    let imbalance =
        [&head(b'I')[..], &shares.to_be_bytes(), &100_u64.to_be_bytes(), b"BAAPL    ", &[0; 12], b"CA"]
            .concat();
    for message in [cross, imbalance] {
        payload.extend((message.len() as u16).to_be_bytes());
        payload.extend(message);
    }
    let ends = ("10.0.0.1:5000".parse().unwrap(), "233.54.12.111:26477".parse().unwrap());
    let mut frame = vec![0; payload.len() + MAX_HEADERS_BYTES];
    let length =
        FrameBuilder::to_group([2, 0, 0, 0, 0, 1], ends.0, ends.1).udp(&payload, &mut frame).unwrap();
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), WriterOptions::default()).unwrap();
    // 16:00 in New York.
    writer.write_packet(1_763_154_000_000_000_000, &frame[..length]).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_size_beyond_32_bits_is_exact_in_volumes_and_counted_where_it_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("cross.pcap");
    for (shares, is_lost) in [(4_000_000_000_u64, 0), (5_000_000_000, 1)] {
        crosses(&input, shares);
        for (schema, is_narrow) in [
            (Schema::Mbo, true),
            (Schema::Trades, true),
            (Schema::Imbalance, true),
            (Schema::Ohlcv1S, false),
            (Schema::Status, false),
        ] {
            for ending in ["csv", "parquet", "dbn"] {
                let path = folder.path().join(format!("{shares}-{schema}.{ending}"));
                let options = tapeworks_store::Options::default();
                let outputs = vec![Output { path: path.clone(), schema, options }];
                let summary = run(&Options { inputs: vec![input.clone()], outputs, ..Options::default() });
                let expected = if is_narrow { is_lost } else { 0 };
                assert_eq!(
                    (summary.values_lost(), summary.problems.total),
                    (expected, 0),
                    "{schema} {ending}"
                );
                assert_eq!(summary.is_clean(), expected == 0);
                if ending == "csv" && schema != Schema::Status {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let shown = if expected == 0 { shares } else { u64::from(u32::MAX) };
                    let values: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
                    assert!(values.contains(&shown.to_string().as_str()), "{schema}: {text}");
                    assert!(expected == 0 || !text.contains(&shares.to_string()), "{schema}: {text}");
                }
            }
        }
        let bars = Some(tapeworks_analysis::bars::Options {
            interval_ns: 60_000_000_000,
            by_venue: false,
            rules: Default::default(),
        });
        let summary = run(&Options { inputs: vec![input.clone()], bars, ..Options::default() });
        let bars = summary.bars.as_ref().unwrap().bars();
        assert_eq!((bars[0].volume, summary.is_clean()), (shares, true));
        assert_eq!(bars[0].notional, i128::from(shares) * 100_000_000_000);
    }
}

#[test]
fn a_replay_that_leaves_out_what_is_unused_writes_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    // Orders that keep their numbers and places are among them.
    use VenueKind::{Bx, Bzx, IexDeep, Nasdaq, Nyse, Uqdf};
    let venues = [Nasdaq, Bx, IexDeep, Uqdf, Bzx, Nyse];
    let venues = venues.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).into();
    let mut scenario = Scenario { venues, seed: 5, ..Scenario::full_session(20_000, 20) };
    // Whole venues lose messages, and their books become stale.
    scenario.line_b = false;
    scenario.faults[0].lost_per_million = 2_000;
    tapeworks_generator::write_pcap(&scenario, std::fs::File::create(&input).unwrap()).unwrap();
    let written = |schema: Schema, skips_unused: bool| {
        let path = folder.path().join(format!("{schema}-{skips_unused}.csv"));
        let output = Output { path: path.clone(), schema, options: tapeworks_store::Options::default() };
        let inputs = vec![input.clone()];
        let summary = run(&Options { inputs, outputs: vec![output], skips_unused, ..Options::default() });
        (summary, std::fs::read(path).unwrap())
    };
    for schema in Schema::ALL {
        let ((with, expected), (without, bytes)) = (written(schema, false), written(schema, true));
        assert!(bytes == expected, "{schema}");
        assert!(with.missing_messages() > 0 && with.nbbo.is_some_and(|nbbo| nbbo.changes > 0));
        // What has records of it does not leave it out.
        assert_eq!(without.nbbo, with.nbbo.filter(|_| schema.is_consolidated()), "{schema}");
        assert_eq!(without.busiest.iter().all(|busy| busy.nbbo.is_none()), !schema.is_consolidated());
        let has_levels = without
            .busiest
            .iter()
            .any(|busy| busy.tops.iter().any(|top| top.publisher == Publisher::XNAS_ITCH));
        assert_eq!(has_levels, schema.needs_levels(), "{schema}");
        assert_eq!(without.messages, with.messages);
    }
}

#[test]
fn a_capture_from_mid_day_says_that_its_books_are_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, rest) = (folder.path().join("whole.pcap"), folder.path().join("rest.pcap"));
    session(&whole, &VenueKind::each(["nasdaq"]), 11);
    let mut reader = tapeworks_capture::CaptureReader::open(&whole).unwrap();
    let mut writer = tapeworks_capture::Writer::create(&rest).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        packets += 1;
        if packets > 20_000 {
            writer.write_packet(packet.timestamp_ns, packet.bytes).unwrap();
        }
    }
    writer.close().unwrap();
    // The flags of the levels' records, in order.
    let flags = |input: PathBuf| {
        let path = folder.path().join("levels.csv");
        let options = tapeworks_store::Options { overwrite: true, ..Default::default() };
        let output = Output { path: path.clone(), schema: Schema::Mbp1, options };
        let summary = run(&Options { inputs: vec![input], outputs: vec![output], ..Options::default() });
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let column = lines.next().unwrap().split(',').position(|name| name == "flags").unwrap();
        let flags: Vec<u8> =
            lines.map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect();
        (summary, flags)
    };
    let is_bad =
        |flags: &&u8| tapeworks_market::Flags(**flags).contains(tapeworks_market::Flags::MAYBE_BAD_BOOK);
    let (summary, all) = flags(whole);
    assert_eq!((summary.feeds[0].contradicted, all.iter().filter(is_bad).count()), (0, 0));
    let (summary, all) = flags(rest);
    let books = &summary.feeds[0];
    assert!(books.counters.unknown_orders > 0 && !summary.is_clean());
    assert_eq!((summary.missing_messages(), books.counters.gaps), (0, 0), "no gap says it");
    // The books of the other four had no orders when it began.
    assert_eq!(books.contradicted, 16);
    let bad = all.iter().filter(is_bad).count();
    assert!(bad * 2 > all.len(), "{bad} of {}", all.len());
}

#[test]
fn files_of_one_venue_each_merge_to_the_result_of_one_file_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let both = VenueKind::each(["nasdaq", "bx"]);
    let whole = folder.path().join("whole.pcap");
    session(&whole, &both, 7);
    // The same packets, distinguished by their destination.
    let mut parts = Vec::new();
    for (index, kind) in both.into_iter().enumerate() {
        let path = folder.path().join(format!("part-{index}.pcap"));
        let mut reader = tapeworks_capture::CaptureReader::open(&whole).unwrap();
        let mut writer = tapeworks_capture::Writer::create(&path).unwrap();
        while let Some(packet) = reader.next_packet().unwrap() {
            let datagram = tapeworks_capture::net::parse(packet.link_type, packet.bytes).unwrap();
            if kind.groups().iter().any(|group| datagram.destination == (*group).into()) {
                writer.write_packet(packet.timestamp_ns, packet.bytes).unwrap();
            }
        }
        writer.close().unwrap();
        parts.push(path);
    }
    let out = |name: &str, inputs: Vec<PathBuf>| {
        let path = folder.path().join(name);
        let options = tapeworks_store::Options::default();
        let output = Output { path: path.clone(), schema: Schema::Cmbp1, options };
        run(&Options { inputs, outputs: vec![output], ..Options::default() });
        std::fs::read(path).unwrap()
    };
    let expected = out("whole.csv", vec![whole]);
    assert!(expected.len() > 1_000);
    assert_eq!(out("parts.csv", parts), expected);
}

#[test]
fn a_window_writes_its_own_records_over_books_that_began_before() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    session(&input, &VENUES, 3);
    let all = run(&Options { inputs: vec![input.clone()], ..Options::default() });
    let (first, last) = all.times.unwrap();
    // On a boundary of the intervals, so that none is cut in two.
    let middle = Nanos((first.0 + (last.0 - first.0) / 2).next_multiple_of(3_600_000_000_000));
    assert!(middle < last);
    // A day is one interval, and only SIPs have statistics.
    let without = [Schema::Ohlcv1D, Schema::Statistics];
    let schemas: Vec<Schema> = Schema::ALL.into_iter().filter(|schema| !without.contains(schema)).collect();
    let write = |name: &str, from, to| {
        let path = |schema: Schema| folder.path().join(format!("{name}-{schema}.csv"));
        let output = |schema: Schema| Output {
            path: path(schema),
            schema,
            options: tapeworks_store::Options::default(),
        };
        let summary = run(&Options {
            inputs: vec![input.clone()],
            outputs: schemas.iter().copied().map(output).collect(),
            from,
            to,
            ..Options::default()
        });
        assert_eq!(summary.feeds[0].counters.rejected(), 0, "books are built from the beginning");
        let lines = |schema: Schema| {
            let text = std::fs::read_to_string(path(schema)).unwrap();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        schemas.iter().copied().map(lines).collect::<Vec<_>>()
    };
    let whole = write("whole", None, None);
    let first = write("first", None, Some(middle));
    let second = write("second", Some(middle), None);
    for (((schema, whole), mut halves), second) in schemas.iter().copied().zip(whole).zip(first).zip(second) {
        assert!(!halves.is_empty(), "{schema}");
        // The directory comes before the open.
        assert!(!second.is_empty() || schema == Schema::Definition, "{schema}");
        halves.extend(second);
        let differing = halves.iter().zip(&whole).find(|(half, whole)| half != whole);
        assert_eq!(differing, None, "{schema}");
        assert_eq!(halves.len(), whole.len(), "{schema}");
    }
}

/// The rows of a CSV file.
fn rows(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn windows_that_meet_have_the_quotes_of_intervals_of_the_whole() {
    const SCHEMAS: [Schema; 4] = [Schema::Bbo1S, Schema::Bbo1M, Schema::Cbbo1S, Schema::Cbbo1M];
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    session(&input, &VENUES, 5);
    let of = |name: &str, from, to| {
        let path = |schema: Schema| folder.path().join(format!("{name}-{schema}.csv"));
        let output = |schema| Output { path: path(schema), schema, options: Default::default() };
        let outputs = SCHEMAS.map(output).to_vec();
        let summary = run(&Options { inputs: vec![input.clone()], outputs, from, to, ..Options::default() });
        (SCHEMAS.map(|schema| rows(&path(schema))), summary.times.unwrap())
    };
    let (whole, (first, last)) = of("whole", None, None);
    assert!(whole.iter().all(|rows| rows.len() > 100));
    let minute = 60 * Nanos::SECOND;
    let middle = first.0 + (last.0 - first.0) / 2;
    // Within an interval, at the end of one of a minute and a nanosecond around it.
    let boundary = middle / minute * minute;
    for cut in [middle, boundary - 1, boundary, boundary + 1].map(Nanos) {
        let (before, _) = of(&format!("before-{}", cut.0), None, Some(cut));
        let (after, _) = of(&format!("after-{}", cut.0), Some(cut), None);
        for ((schema, whole), (before, after)) in SCHEMAS.iter().zip(&whole).zip(before.iter().zip(&after)) {
            assert!(!before.is_empty() && !after.is_empty());
            let both = [&before[..], after].concat();
            let differing = both.iter().zip(whole).find(|(both, whole)| both != whole);
            assert_eq!(differing, None, "{schema} cut at {}", cut.0);
            assert_eq!(both.len(), whole.len(), "{schema} cut at {}", cut.0);
        }
    }
}

#[test]
fn trades_of_a_generated_market_are_inside_the_nbbo_but_for_sweeps_and_auctions() {
    let folder = tempfile::tempdir().unwrap();
    let (input, path) = (folder.path().join("session.pcap"), folder.path().join("cmbp-1.csv"));
    session(&input, &VENUES, 7);
    let output = Output { path: path.clone(), schema: Schema::Cmbp1, options: Default::default() };
    run(&Options { inputs: vec![input], outputs: vec![output], ..Options::default() });
    let text = std::fs::read_to_string(&path).unwrap();
    let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let place = |name: &str| names.iter().position(|one| *one == name).unwrap();
    let [action, side, price, bid, ask] = ["action", "side", "price", "bid_px_00", "ask_px_00"].map(place);
    let (mut trades, mut outside, mut quotes, mut locked) = (0, 0, 0, 0);
    for row in text.lines().skip(1) {
        let row: Vec<&str> = row.split(',').collect();
        let number = |place: usize| row[place].parse::<i64>().ok().filter(|price| *price != i64::MAX);
        let (Some(bid), Some(ask)) = (number(bid), number(ask)) else { continue };
        // An auction has no side.
        if row[action] == "T" && row[side] != "N" {
            trades += 1;
            let price = number(price).unwrap();
            outside += u32::from(price < bid.min(ask) || price > bid.max(ask));
        } else if row[action] != "T" {
            quotes += 1;
            locked += u32::from(bid >= ask);
        }
    }
    assert!(trades > 500 && quotes > 2_000, "{trades} trades, {quotes} quotes");
    assert!(outside * 100 < trades * 2, "{outside} of {trades} trades are outside");
    assert!(locked * 100 < quotes, "{locked} of {quotes} quotes are locked or crossed");
}

#[test]
fn a_limit_and_an_observer_end_a_replay_early_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.itch");
    let scenario = Scenario::full_session(20_000, 20);
    tapeworks_generator::write_itch(&scenario, std::fs::File::create(&input).unwrap()).unwrap();
    let limited = run(&Options { inputs: vec![input.clone()], limit: Some(1_234), ..Options::default() });
    assert_eq!((limited.messages, limited.is_interrupted), (1_234, false));
    let stopped = replay::replay(&Options { inputs: vec![input], ..Options::default() }, &mut |_| {
        ControlFlow::Break(())
    });
    let stopped = stopped.unwrap();
    assert!(stopped.is_interrupted && stopped.messages > 0);
}

#[test]
fn message_files_that_are_merged_or_looked_ahead_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut inputs = Vec::new();
    let mut messages = 0;
    for seed in [1, 2] {
        // The date in the name is the day's.
        let path = folder.path().join(format!("day-{seed}-2025-11-14.itch"));
        let scenario = Scenario { seed, ..Scenario::full_session(5_000, 10) };
        let report =
            tapeworks_generator::write_itch(&scenario, std::fs::File::create(&path).unwrap()).unwrap();
        messages += report.messages;
        inputs.push(path);
    }
    let merged = run(&Options { inputs: inputs.clone(), ..Options::default() });
    assert_eq!(merged.messages, messages);
    let alone = run(&Options { inputs: vec![inputs[0].clone()], ..Options::default() });
    let far = Some(Nanos(u64::MAX - 1));
    let windowed = run(&Options { inputs: vec![inputs[0].clone()], to: far, ..Options::default() });
    assert_eq!((windowed.messages, windowed.events), (alone.messages, alone.events));
    assert!(alone.is_clean());
}

#[test]
fn every_file_is_counted_wherever_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut inputs = Vec::new();
    for (seed, messages) in [(1, 500), (2, 2_000)] {
        let path = folder.path().join(format!("{seed}-2025-11-1{seed}.itch"));
        let scenario = Scenario { seed, ..Scenario::full_session(messages, 10) };
        let mut bytes = Vec::new();
        tapeworks_generator::write_itch(&scenario, &mut bytes).unwrap();
        bytes.extend_from_slice(&[0, 0]);
        std::fs::write(&path, bytes).unwrap();
        inputs.push(path);
    }
    let summary = run(&Options { inputs: inputs.clone(), ..Options::default() });
    assert_eq!(summary.file_counters.end_marks, 2);
    // Of two days: to a replay one after the other, to what compares times of day nothing.
    assert!(summary.times.unwrap().1.0 - summary.times.unwrap().0.0 > 86_400_000_000_000);
    let opened = tapeworks_analysis::input::open_all(&inputs, None).unwrap();
    let refused = tapeworks_analysis::input::check_one_day(&opened).unwrap_err();
    assert!(refused.to_string().contains("is of another day than"), "{refused}");
}

#[test]
fn times_without_a_day_are_not_compared_with_others() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.itch");
    let scenario = Scenario::full_session(1_000, 10);
    tapeworks_generator::write_itch(&scenario, std::fs::File::create(&input).unwrap()).unwrap();
    let alone = Options { inputs: vec![input.clone()], ..Options::default() };
    let summary = run(&alone);
    assert_eq!(summary.without_day, [input.display().to_string()]);
    // Both ends of the day: from the start of messages to their end.
    let (first, last) = summary.times.unwrap();
    assert!(first < Nanos(34_200_000_000_000) && last > Nanos(57_600_000_000_000), "{first:?} {last:?}");
    assert!(last < Nanos(86_400_000_000_000));

    let fails = |options: &Options| replay::replay(options, &mut |_| ControlFlow::Continue(())).unwrap_err();
    let windowed = Options { from: Some(Nanos(1)), ..alone.clone() };
    assert!(fails(&windowed).to_string().contains("--date"), "{}", fails(&windowed));
    let dated = folder.path().join("2025-11-14.itch");
    std::fs::copy(&input, &dated).unwrap();
    let beside = Options { inputs: vec![dated, input.clone()], ..Options::default() };
    assert!(fails(&beside).to_string().contains("merging"), "{}", fails(&beside));
    let with_midnight = run(&Options { midnight: Some(Nanos(1_763_096_400_000_000_000)), ..windowed });
    assert_eq!((with_midnight.messages, with_midnight.without_day.len()), (summary.messages, 0));
}

#[test]
fn the_replay_counts_the_losses_and_duplicates_of_the_generator() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("faulty.pcap");
    let faults =
        LineFaults { lost_per_million: 20_000, duplicated_per_million: 20_000, ..LineFaults::default() };
    let venues = vec![
        VenueConfig { kind: VenueKind::Nasdaq, share: 1, unit: Unit::WHOLE },
        VenueConfig { kind: VenueKind::IexDeep, share: 1, unit: Unit::WHOLE },
    ];
    let scenario =
        Scenario { venues, faults: [faults; 2], line_b: false, ..Scenario::full_session(20_000, 20) };
    let report = tapeworks_generator::write_pcap(&scenario, std::fs::File::create(&input).unwrap()).unwrap();
    let summary = run(&Options { inputs: vec![input], ..Options::default() });
    let lost: u64 = report.venues.iter().map(|venue| venue.lost_messages).sum();
    let doubled: u64 = report.venues.iter().map(|venue| venue.injected[0].duplicated_messages).sum();
    assert!(lost > 0 && doubled > 0);
    assert_eq!(summary.missing_messages(), lost);
    let duplicates: u64 = summary.channels.iter().map(|channel| channel.sequence.duplicate_messages).sum();
    assert_eq!(duplicates, doubled);
    assert!(!summary.is_clean());
    assert!(summary.feeds.iter().all(|feed| feed.counters.gaps > 0));
}

#[test]
fn parquet_has_the_same_bytes_with_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    let venues = VENUES.iter().map(|kind| VenueConfig { kind: *kind, share: 1, unit: Unit::WHOLE }).collect();
    let scenario = Scenario { venues, seed: 9, ..Scenario::full_session(600_000, 20) };
    tapeworks_generator::write_pcap(&scenario, std::fs::File::create(&input).unwrap()).unwrap();
    let made = |threads: usize| {
        let schemas = [Schema::Mbo, Schema::Cmbp1];
        let paths = schemas.map(|schema| folder.path().join(format!("{schema}-{threads}.parquet")));
        let outputs = paths.iter().zip(schemas).map(|(path, schema)| {
            let options = tapeworks_store::Options::default();
            Output { path: path.clone(), schema, options }
        });
        let outputs = outputs.collect();
        let summary = run(&Options { inputs: vec![input.clone()], outputs, threads, ..Options::default() });
        let records: Vec<u64> = summary.written.iter().map(|file| file.summary.records).collect();
        (records, paths.map(|path| std::fs::read(path).unwrap()))
    };
    let alone = made(1);
    assert!(alone.0[0] > 1 << 18, "several row groups: {:?}", alone.0);
    for threads in [2, 3, 8] {
        assert!(made(threads) == alone, "{threads} threads");
    }
}

/// Writes the packets of a capture anew, compressed as the name says.
fn compress(plain: &Path, name: &str) -> PathBuf {
    let path = plain.with_file_name(name);
    let mut reader = tapeworks_capture::CaptureReader::open(plain).unwrap();
    let mut writer = tapeworks_capture::Writer::create(&path).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        writer.write_packet(packet.timestamp_ns, packet.bytes).unwrap();
    }
    writer.close().unwrap();
    path
}

#[test]
fn inputs_that_other_threads_decompress_give_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let plain = [("one.pcap", VenueKind::Nasdaq, 3), ("two.pcap", VenueKind::IexDeep, 4)].map(
        |(name, kind, seed)| {
            let path = folder.path().join(name);
            session(&path, &[kind], seed);
            path
        },
    );
    let compressed = [compress(&plain[0], "one.pcap.gz"), compress(&plain[1], "two.pcap.zst")];
    let made = |name: &str, inputs: &[PathBuf], threads: usize| {
        let path = folder.path().join(format!("{name}-{threads}.parquet"));
        let options = tapeworks_store::Options::default();
        let outputs = vec![Output { path: path.clone(), schema: Schema::Mbo, options }];
        let summary = run(&Options { inputs: inputs.to_vec(), outputs, threads, ..Options::default() });
        assert!(summary.is_clean(), "{threads} threads: {:?}", summary.file_errors);
        (summary.messages, std::fs::read(path).unwrap())
    };
    let expected = made("plain", &plain, 1);
    assert!(expected.0 > 30_000, "{} messages", expected.0);
    for threads in [1, 2, 3, 8] {
        assert!(made("compressed", &compressed, threads) == expected, "{threads} threads");
    }
}

#[test]
fn a_damaged_input_is_the_same_error_whichever_thread_decompresses_it() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("whole.pcap");
    session(&plain, &VenueKind::each(["nasdaq"]), 5);
    for name in ["cut.pcap.gz", "cut.pcap.zst", "flipped.pcap.gz", "flipped.pcap.zst"] {
        let path = compress(&plain, name);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() * 2 / 3;
        if name.starts_with("cut") {
            bytes.truncate(middle);
        } else {
            bytes[middle..middle + 40].iter_mut().for_each(|byte| *byte ^= 0x5A);
        }
        std::fs::write(&path, bytes).unwrap();
        let read = |threads: usize| {
            let summary = run(&Options { inputs: vec![path.clone()], threads, ..Options::default() });
            let errors: Vec<_> = summary.file_errors.iter().map(ToString::to_string).collect();
            (summary.messages, errors)
        };
        let alone = read(1);
        assert!(alone.0 > 1_000, "{name}: {} messages", alone.0);
        assert!(alone.1.len() == 1 && alone.1[0].contains(name), "{:?}", alone.1);
        for threads in [2, 3] {
            assert_eq!(read(threads), alone, "{name}, {threads} threads");
        }
    }
}

#[test]
fn a_replay_that_is_interrupted_ends_its_threads_and_keeps_what_came_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("whole.pcap");
    session(&plain, &VenueKind::each(["nasdaq"]), 6);
    let path = folder.path().join("orders.parquet");
    let options = tapeworks_store::Options::default();
    let options = Options {
        inputs: vec![compress(&plain, "whole.pcap.gz")],
        outputs: vec![Output { path: path.clone(), schema: Schema::Mbo, options }],
        threads: 3,
        ..Options::default()
    };
    let summary = replay::replay(&options, &mut |_| ControlFlow::Break(())).unwrap();
    assert!(summary.is_interrupted);
    assert!(std::fs::read(&path).unwrap().ends_with(b"PAR1"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_the_same_error_with_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("session.pcap");
    session(&input, &VenueKind::each(["nasdaq"]), 7);
    let fails = |threads: usize| {
        let format = Some(tapeworks_store::Format::Parquet);
        let options = tapeworks_store::Options { format, ..Default::default() };
        let outputs = vec![Output { path: "/dev/full".into(), schema: Schema::Mbo, options }];
        let options = Options { inputs: vec![input.clone()], outputs, threads, ..Options::default() };
        let error = replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap_err();
        error.to_string()
    };
    let alone = fails(1);
    assert!(alone.starts_with("/dev/full: writing failed after ") && !alone.contains('\n'), "{alone}");
    for threads in [2, 3, 8] {
        assert_eq!(fails(threads), alone, "{threads} threads");
    }
}

#[test]
fn a_venue_under_self_help_is_in_no_nbbo_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (input, path) = (folder.path().join("session.pcap"), folder.path().join("nbbo.csv"));
    session(&input, &VenueKind::each(["nasdaq", "bx"]), 3);
    let (first, last) = run(&Options { inputs: vec![input.clone()], ..Options::default() }).times.unwrap();
    let from = Nanos(first.0 + (last.0 - first.0) / 3);
    let until = Nanos(first.0 + (last.0 - first.0) / 2);
    let options = tapeworks_store::Options { overwrite: true, ..Default::default() };
    let times = |self_help: Vec<SelfHelp>| {
        let output = Output { path: path.clone(), schema: Schema::Cmbp1, options };
        let (inputs, outputs) = (vec![input.clone()], vec![output]);
        let summary = run(&Options { inputs, outputs, self_help, ..Options::default() });
        assert!(summary.is_clean());
        let text = std::fs::read_to_string(&path).unwrap();
        let mut rows = text.lines().map(|row| row.split(',').collect::<Vec<_>>());
        let heads = rows.next().unwrap();
        let column = |name: &str| heads.iter().position(|head| *head == name).unwrap();
        let (time, bid, ask) = (column("ts_recv"), column("bid_pb_00"), column("ask_pb_00"));
        let bx = Publisher::XBOS_ITCH.0.to_string();
        let of_bx = rows.filter(|row| row[bid] == bx || row[ask] == bx);
        of_bx.map(|row| Nanos(row[time].parse().unwrap())).collect::<Vec<_>>()
    };
    let is_within = |time: &Nanos| (from..until).contains(time);
    let time = |venue, until| SelfHelp { venue, from, until };
    let without = times(Vec::new());
    assert!(without.iter().filter(|time| is_within(time)).count() > 100);
    let with = times(vec![time(Publisher::XBOS_ITCH, Some(until))]);
    assert!(!with.iter().any(is_within));
    assert!(with.iter().any(|time| *time < from) && with.iter().any(|time| *time >= until));
    let to_the_end = times(vec![time(Publisher::XBOS_ITCH, None)]);
    assert!(to_the_end.iter().all(|time| *time < from) && !to_the_end.is_empty());
    // A venue that is not there changes nothing.
    assert_eq!(times(vec![time(Publisher::IEXG_TOPS, Some(until))]), without);
}
