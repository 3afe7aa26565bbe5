//! Channels that a venue starts over, on another day or within one, with and without an announcement.
//!
//! The oracle is a feed that reads each run alone: a capture of two runs gives the events of the first, empty books, and the events of
//! the second.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use tapeworks_capture::net;
use tapeworks_capture::source::ByteSource;
use tapeworks_capture::{CaptureReader, LinkType};
use tapeworks_feed::live::{Input, LiveChannelOptions, LiveFeed};
use tapeworks_feed::{Application, Feed, FeedOptions, Packet, ProblemKind};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_follow::sequence::Refusal;
use tapeworks_generator::{
    DEFAULT_MIDNIGHT_NS, LineFaults, Scenario, Unit, VenueConfig, VenueKind, write_pcap,
};
use tapeworks_market::{Event, EventKind, Line, Publisher, Symbol};
use tapeworks_random::Random;
use tapeworks_stage::Stage;
use tapeworks_time::Nanos;

const KINDS: [VenueKind; 12] = VenueKind::each([
    "nasdaq",
    "bx",
    "iex-tops",
    "iex-deep",
    "iex-deep-plus",
    "memx",
    "bzx",
    "cfe",
    "nyse",
    "lse",
    "uqdf",
    "cqs",
]);

const HOUR_NS: u64 = 3_600 * Nanos::SECOND;

/// A captured frame.
#[derive(Clone)]
struct Frame {
    received: Nanos,
    link_type: LinkType,
    bytes: Vec<u8>,
}

/// The packets of a run that begins an hour before `from`, in hours since midnight.
fn run(kind: VenueKind, seed: u64, day: u64, from: u64, line_b_skew_ns: u64) -> Vec<Frame> {
    let scenario = Scenario {
        seed,
        midnight_ns: DEFAULT_MIDNIGHT_NS + day * 24 * HOUR_NS,
        venues: vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }],
        start_ns: from * HOUR_NS,
        end_ns: (from + 3) * HOUR_NS,
        heartbeat_ns: 600 * Nanos::SECOND,
        line_b: line_b_skew_ns > 0,
        line_b_skew_ns,
        ..Scenario::full_session(1_500, 6)
    };
    frames_of(&scenario)
}

fn frames_of(scenario: &Scenario) -> Vec<Frame> {
    let mut file = Vec::new();
    write_pcap(scenario, &mut file).unwrap();
    frames_in(ByteSource::from_bytes("memory", file))
}

fn frames_in(source: ByteSource) -> Vec<Frame> {
    let mut reader = CaptureReader::new(source).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        frames.push(Frame {
            received: Nanos(packet.timestamp_ns),
            link_type: packet.link_type,
            bytes: packet.bytes.to_vec(),
        });
    }
    frames
}

fn read<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> (Vec<Event>, Feed) {
    read_with(FeedOptions::default(), frames)
}

fn read_with<'f>(options: FeedOptions, frames: impl IntoIterator<Item = &'f Frame>) -> (Vec<Event>, Feed) {
    let (mut feed, mut events) = (Feed::new(options), Vec::new());
    for (number, frame) in frames.into_iter().enumerate() {
        let datagram = net::parse(frame.link_type, &frame.bytes).unwrap();
        let number = number as u64 + 1;
        let packet = Packet { file: 0, number, offset: 0, received: frame.received, datagram };
        feed.process(&[packet], &mut |event| events.push(event));
    }
    feed.finish(&mut |event| events.push(event));
    (events, feed)
}

/// The events as the channel's messages make them, with symbols instead of numbers.
fn seen(events: &[Event], feed: &Feed) -> Vec<String> {
    let symbols = feed.instruments().symbols();
    events.iter().filter_map(|event| shown(event, symbols.get(event.instrument.index()).copied())).collect()
}

/// An event of a message, as text.
fn shown(event: &Event, symbol: Option<Symbol>) -> Option<String> {
    let is_own = !matches!(event.kind, EventKind::SymbolMapping | EventKind::Clear | EventKind::Gap);
    let (kind, side, aux) = (event.kind, event.side, event.aux);
    // The cross of an auction and the like have other fields in these.
    let (price, size, order) = (event.price, event.size, event.order_id);
    is_own
        .then(|| format!("{kind:?} {symbol:?} {order} {side:?} {price:?} {size} {aux} {}", event.ts_event.0))
}

/// The events of a live channel that receives these frames, as [`seen`] gives them, and the number of missing messages. Line A is the
/// first destination; frames to any other are from line B.
fn seen_live(publisher: Publisher, frames: &[Frame]) -> (Vec<String>, u64) {
    let options = LiveChannelOptions {
        name: "live".to_owned(),
        application: Application::of_publisher(publisher).unwrap(),
        publisher,
        arbiter: ArbiterOptions::default(),
        snapshot: None,
    };
    let mut live = LiveFeed::new(FeedOptions::default(), vec![options]);
    let (mut all, mut symbols, mut destination) = (Vec::new(), BTreeMap::new(), None);
    let mut take = |event: Event| {
        if let Some(symbol) = event.symbol().filter(|_| event.kind == EventKind::SymbolMapping) {
            symbols.insert(event.instrument, symbol);
        }
        // That time goes on, and that a channel is silent or heard again, is of no message.
        let is_of_message = event.kind != EventKind::Other || event.channel_sequence > 0;
        let is_of_message = is_of_message && event.kind != EventKind::Recovered;
        all.extend(shown(&event, symbols.get(&event.instrument).copied()).filter(|_| is_of_message));
    };
    let mut before = Nanos(0);
    for frame in frames {
        let datagram = net::parse(frame.link_type, &frame.bytes).unwrap();
        // The clock goes on between packets, as the host's timer does.
        if frame.received.since(before) > TICK_NS && before.0 > 0 {
            for tick in 1..=(frame.received.since(before) / TICK_NS).min(10) {
                live.input(&Input::Tick { now: Nanos(before.0 + tick * TICK_NS) }, &mut take);
            }
        }
        before = frame.received;
        let line = match *destination.get_or_insert(datagram.destination) == datagram.destination {
            true => Line::A,
            false => Line::B,
        };
        let input = Input::Packet { channel: 0, line, received: frame.received, payload: datagram.payload };
        live.input(&input, &mut take);
    }
    live.input(&Input::Tick { now: Nanos(before.0 + 60 * Nanos::SECOND) }, &mut take);
    let missing = live.channels()[0].arbiter().counters().missing;
    (all, missing)
}

/// How often the clock of a live channel goes on, in ns.
const TICK_NS: u64 = Nanos::SECOND;

/// The events of each run alone.
fn alone(runs: [&[Frame]; 2]) -> Vec<String> {
    let of_run = |run: &[Frame]| {
        let (events, feed) = read(run);
        seen(&events, &feed)
    };
    runs.into_iter().flat_map(of_run).collect()
}

/// Compares events, and shows the first that differs.
#[track_caller]
fn assert_same(found: &[String], expected: &[String], what: impl std::fmt::Debug) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let at = differs.unwrap_or(found.len().min(expected.len()));
    assert!(
        found == expected,
        "{what:?}: {} and {} events, the {at}th: {:?} and {:?}",
        found.len(),
        expected.len(),
        found.get(at),
        expected.get(at)
    );
}

#[test]
fn the_next_day_of_a_channel_is_read_whole_whichever_day_is_longer() {
    for kind in KINDS {
        for line_b_skew_ns in [0, 5_000_000_000] {
            let (first, second) = (run(kind, 1, 0, 10, line_b_skew_ns), run(kind, 2, 1, 10, line_b_skew_ns));
            for (first, second) in [(&first[..400], &second[..]), (&first[..], &second[..400])] {
                let (events, feed) = read(first.iter().chain(second));
                assert_eq!(feed.problems().total, 0, "{kind:?}: {:?}", feed.problems().kept());
                assert_eq!(feed.channels().len(), 2, "{kind:?}");
                assert_same(&seen(&events, &feed), &alone([first, second]), format_args!("{kind:?}"));
                assert!(events.iter().any(|event| event.kind == EventKind::Clear), "{kind:?}");
            }
        }
    }
}

#[test]
fn a_channel_that_starts_over_within_a_day_is_read_whole() {
    for kind in KINDS {
        for line_b_skew_ns in [0, 5_000_000_000] {
            let (first, second) = (run(kind, 1, 0, 5, line_b_skew_ns), run(kind, 2, 0, 12, line_b_skew_ns));
            let (events, feed) = read(first.iter().chain(&second));
            assert_eq!(feed.problems().total, 0, "{kind:?}: {:?}", feed.problems().kept());
            assert_eq!(feed.channels().len(), 2, "{kind:?}");
            assert_same(&seen(&events, &feed), &alone([&first, &second]), format_args!("{kind:?}"));
        }
    }
}

/// The frames of each run, which begins with message 1.
fn runs_of(kind: VenueKind, frames: &[Frame]) -> Vec<Vec<Frame>> {
    let mut runs: Vec<Vec<Frame>> = Vec::new();
    for frame in frames {
        let datagram = net::parse(frame.link_type, &frame.bytes).unwrap();
        let header = kind.transport().header(datagram.payload).unwrap();
        if header.first == 1 && header.count > 0 {
            runs.push(Vec::new());
        }
        runs.last_mut().unwrap().push(frame.clone());
    }
    runs
}

#[test]
fn captures_that_earlier_versions_misread_are_the_same_on_live_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let cases: [(&[&str], Publisher); 9] = [
        (&["two-days-bzx-2025-11-13", "two-days-bzx-2025-11-14"], Publisher::BATS_PITCH),
        (&["one-file-bzx"], Publisher::BATS_PITCH),
        (&["two-days-nasdaq-2025-11-13", "two-days-nasdaq-2025-11-14"], Publisher::XNAS_ITCH),
        (&["longer-nyse-day1", "longer-nyse-day2"], Publisher::XNYS_PILLAR),
        (&["seq0hb"], Publisher::XNAS_ITCH),
        (&["itch_mid"], Publisher::XNAS_ITCH),
        (&["pitch_mid_ny"], Publisher::BATS_PITCH),
        (&["bigcross"], Publisher::XNAS_ITCH),
        (&["fr_whole"], Publisher::XNAS_ITCH),
    ];
    for (files, publisher) in cases {
        let path = |name: &&str| folder.join(format!("{name}.pcap"));
        let frames: Vec<Frame> =
            files.iter().flat_map(|name| frames_in(ByteSource::open(&path(name)).unwrap())).collect();
        let application = Application::of_publisher(publisher);
        let options = FeedOptions { application, publisher: Some(publisher), ..FeedOptions::default() };
        let (events, feed) = read_with(options, &frames);
        let (live, missing) = seen_live(publisher, &frames);
        assert_same(&live, &seen(&events, &feed), files);
        assert!(!live.is_empty() && missing == 0, "{files:?}: {missing}");
    }
}

#[test]
fn days_restarts_and_late_copies_by_seed_are_read_whole() {
    let mut random = Random::new(40);
    for seed in 1..=12 {
        for kind in KINDS {
            let mut draw = |most: u32| u64::from(random.below(most + 1));
            let (days, restarts) = (draw(2), draw(2) as u32);
            let midnights = (1..=days).map(|day| DEFAULT_MIDNIGHT_NS + day * 24 * HOUR_NS).collect();
            let sound = Scenario {
                seed,
                venues: vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }],
                later_midnights_ns: midnights,
                restarts,
                // Without an announcement, the first packets of NYSE, whose directory says the same in each run, count as copies and
                // are then missing; and a SIP alone sends too little to confirm a run.
                announces: draw(1) == 0 || matches!(kind, VenueKind::Nyse | VenueKind::Cqs),
                start_ns: 10 * HOUR_NS,
                end_ns: 10 * HOUR_NS + (1 + draw(3)) * HOUR_NS / 4,
                heartbeat_ns: 60 * Nanos::SECOND,
                ..Scenario::full_session(1_500, 6)
            };
            let late_copy_ns = [1_000_000, Nanos::SECOND, 10 * Nanos::SECOND][draw(2) as usize];
            let copies =
                LineFaults { late_copies_per_million: 100_000, late_copy_ns, ..LineFaults::default() };
            let lossy = LineFaults { lost_per_million: 50_000, duplicated_per_million: 20_000, ..copies };
            let line_b_skew_ns = [1_000, 5_000_000_000][draw(1) as usize];
            let faulty = Scenario { line_b: true, line_b_skew_ns, faults: [copies, lossy], ..sound.clone() };
            let what =
                format_args!("seed {seed}, {kind:?}, {days} days more, {restarts} restarts").to_string();

            let runs = runs_of(kind, &frames_of(&sound));
            let is_complete = runs.len() as u64 == (1 + days) * (1 + u64::from(restarts));
            // Without other venues a SIP has little to say.
            assert!(is_complete || kind == VenueKind::Cqs, "{what}: {} runs", runs.len());
            let expected: Vec<String> = runs
                .iter()
                .flat_map(|run| {
                    let (events, feed) = read(run);
                    seen(&events, &feed)
                })
                .collect();
            let (events, feed) = read(&frames_of(&faulty));
            assert_eq!(feed.problems().total, 0, "{what}: {:?}", feed.problems().kept());
            assert_same(&seen(&events, &feed), &expected, &what);
            assert_eq!(feed.channels().len(), runs.len(), "{what}");

            let (live, missing) = seen_live(kind.publisher(), &frames_of(&faulty));
            assert_same(&live, &expected, format_args!("live: {what}"));
            assert_eq!(missing, 0, "live: {what}");
        }
    }
}

#[test]
fn a_restart_whose_first_packets_are_lost_is_found_and_what_is_lost_is_missing() {
    for kind in KINDS {
        let (first, second) = (run(kind, 1, 0, 5, 0), run(kind, 2, 0, 12, 0));
        // The announcement is among the lost packets.
        let second = &second[12..];
        let (events, feed) = read(first.iter().chain(second));
        assert_eq!(feed.channels().len(), 2, "{kind:?}: {:?}", feed.problems().kept());
        let gaps = events.iter().filter(|event| event.kind == EventKind::Gap).count();
        assert!(gaps > 0, "{kind:?}");
        let missing = feed.channels()[1].sequence().missing_messages;
        assert!(missing > 0, "{kind:?}: {missing}");
        let all = feed.problems().kept().iter().all(|problem| matches!(problem.kind, ProblemKind::Gap(_)));
        assert!(all || kind == VenueKind::Memx, "{kind:?}: {:?}", feed.problems().kept());
        let (of_first, of_second) = (read(&first).1.messages(), read(second).1.messages());
        assert_eq!(feed.messages(), of_first + of_second, "{kind:?}");
    }
}

#[test]
fn late_copies_of_the_old_run_are_copies_after_the_restart_too() {
    for kind in KINDS {
        let (first, second) = (run(kind, 1, 0, 5, 0), run(kind, 2, 0, 12, 0));
        let expected = alone([&first, &second]);
        for at in [3, 10, 100, 400] {
            let (begin, rest) = second.split_at(at);
            // The last packets, and the first one with its announcement.
            let late = first[first.len() - 8..].iter().chain(&first[..2]).cloned();
            let late: Vec<Frame> =
                late.map(|frame| Frame { received: begin[at - 1].received, ..frame }).collect();
            let (events, feed) = read(first.iter().chain(begin).chain(&late).chain(rest));
            assert_same(&seen(&events, &feed), &expected, format_args!("{kind:?} at {at}"));
            assert_eq!(feed.channels().len(), 2, "{kind:?} at {at}");
        }
    }
}

#[test]
fn late_copies_from_further_back_than_is_remembered_are_copies_after_the_restart_too() {
    // Messages of these have times, but their packets do not.
    for kind in VenueKind::each(["nasdaq", "uqdf"]) {
        let (first, second) = (run(kind, 1, 0, 5, 0), run(kind, 2, 0, 12, 0));
        let expected = alone([&first, &second]);
        for at in [12, 100] {
            let (begin, rest) = second.split_at(at);
            let middle = first.len() / 2;
            let late = first[middle..middle + 8].iter().cloned();
            let late: Vec<Frame> =
                late.map(|frame| Frame { received: begin[at - 1].received, ..frame }).collect();
            let (events, feed) = read(first.iter().chain(begin).chain(&late).chain(rest));
            assert_same(&seen(&events, &feed), &expected, format_args!("{kind:?} at {at}"));
            assert_eq!(feed.problems().total, 0, "{kind:?} at {at}: {:?}", feed.problems().kept());
        }
    }
}

#[test]
fn a_late_copy_after_hours_of_silence_restarts_nothing() {
    for kind in KINDS {
        let frames = run(kind, 1, 0, 5, 0);
        let expected = alone([&frames, &[]]);
        for at in [0, 5, 500, frames.len() - 2] {
            let received = Nanos(frames.last().unwrap().received.0 + 2 * HOUR_NS);
            let late = Frame { received, ..frames[at].clone() };
            let (events, feed) = read(frames.iter().chain([&late]));
            assert_same(&seen(&events, &feed), &expected, format_args!("{kind:?} at {at}"));
            assert_eq!(
                (feed.channels().len(), feed.channels()[0].sequence().gaps),
                (1, 0),
                "{kind:?} at {at}"
            );
        }
    }
}

#[test]
fn a_single_packet_with_an_old_number_and_other_content_is_damage() {
    for kind in KINDS {
        let (frames, others) = (run(kind, 1, 0, 5, 0), run(kind, 2, 0, 9, 0));
        let expected = alone([&frames, &[]]);
        let (begin, rest) = frames.split_at(frames.len() / 2);
        // From the middle of another run: it announces nothing.
        let stray = Frame { received: begin[begin.len() - 1].received, ..others[20].clone() };
        let (events, feed) = read(begin.iter().chain([&stray]).chain(rest));
        if kind == VenueKind::Memx {
            // Another session.
            assert_eq!(feed.channels().len(), 1);
        }
        assert_same(&seen(&events, &feed), &expected, format_args!("{kind:?}"));
        let kinds: Vec<_> = feed.problems().kept().iter().map(|problem| &problem.kind).collect();
        let is_refused = |kind: &&ProblemKind| {
            matches!(
                kind,
                ProblemKind::Refused { refusal: Refusal::Contradicts(_) | Refusal::OtherSession, .. }
            )
        };
        assert!(kinds.len() == 1 && kinds.iter().all(is_refused), "{kind:?}: {kinds:?}");
    }
}

#[test]
fn a_damaged_session_is_refused_as_another_session_and_takes_no_channel_over_after_a_pause() {
    let frames = run(VenueKind::Nasdaq, 1, 0, 5, 0);
    let expected = alone([&frames, &[]]);
    let (begin, rest) = frames.split_at(frames.len() / 2);
    // Minutes later, after a pause of the channel, comes a copy of the next packet with one damaged byte in its session name. The payload
    // begins after the Ethernet, IP and UDP headers.
    let mut stray = rest[0].clone();
    stray.bytes[14 + 20 + 8 + 3] ^= 0xff;
    assert!(stray.received.since(begin[begin.len() - 1].received) > 3 * Nanos::SECOND);
    let (events, feed) = read(begin.iter().chain([&stray]).chain(rest));
    assert_same(&seen(&events, &feed), &expected, "one packet");
    let kinds: Vec<_> = feed.problems().kept().iter().map(|problem| &problem.kind).collect();
    let [ProblemKind::Refused { refusal: Refusal::OtherSession, .. }] = kinds[..] else {
        panic!("{kinds:?}");
    };
    let sequence = feed.channels()[0].sequence();
    assert_eq!((feed.channels().len(), sequence.implausible_packets), (1, 1));
}
