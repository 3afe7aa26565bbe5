//! Feed, books and NBBO allocate nothing once they have seen a session's beginning.
//!
//! The tables get their size at start-up from [`Capacity`]; the first half of a generated session brings the
//! directory, the channels and the symbols. From there on, no message of the second half may take or release memory,
//! whatever the venue's protocol. The counts are of the test's own thread, since others run beside it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use tapeworks_capture::CaptureReader;
use tapeworks_capture::framed::{FramedReader, write_frame};
use tapeworks_capture::net;
use tapeworks_capture::source::ByteSource;
use tapeworks_engine::{Engine, EngineOptions};
use tapeworks_feed::live::{Input, LiveChannelOptions};
use tapeworks_feed::{Application, FEEDS, Feed, FeedOptions, FileFormat, Frame, Packet};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario, Unit, VenueConfig, VenueKind, write_pcap};
use tapeworks_market::book::BATCH;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookStage, Capacity, Event, Line, NbboStage, NbboUpdate, Publisher};
use tapeworks_ring::counting::{CountingAllocator, allocations, releases};
use tapeworks_stage::{Chain, Inline, Sink, Stage, Through};
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacketFields;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MESSAGES: u64 = 120_000;
const SYMBOLS: u32 = 200;

type Market = Through<BookStage, NbboStage>;

fn market() -> Market {
    let capacity = Capacity::for_messages(MESSAGES);
    let nbbo = NbboStage::new(NbboRules::default(), [], capacity.instruments);
    Through::new(BookStage::with_unnamed([], capacity), nbbo)
}

/// Calls to the allocator while `run` runs: taken, released.
fn counted(run: impl FnOnce()) -> (u64, u64) {
    let before = (allocations(), releases());
    run();
    (allocations() - before.0, releases() - before.1)
}

#[test]
fn the_second_half_of_a_file_of_itch_takes_and_releases_no_memory() {
    let mut generator = Generator::new(&Scenario::full_session(MESSAGES, SYMBOLS)).unwrap();
    let (mut halves, mut number) = ([Vec::new(), Vec::new()], 0);
    let mut message = [0; MAX_MESSAGE_BYTES];
    while let Some(generated) = generator.next_message(&mut message) {
        let half = usize::from(number >= MESSAGES / 2);
        write_frame(&mut halves[half], &message[..generated.length]).unwrap();
        number += 1;
    }
    let mut feed = Feed::new(FeedOptions::default());
    let mut market = market();
    let mut buffer = Vec::with_capacity(BATCH);
    let mut updates = 0u64;
    let mut run = |half: &[u8]| {
        let source = ByteSource::from_bytes("half", half.to_vec());
        let mut reader = FramedReader::new(source).with_batch_bytes(half.len() + 1);
        let batch = reader.next_batch().unwrap().unwrap();
        counted(|| {
            let mut sink = |_: NbboUpdate<'_>| updates += 1;
            let mut edge = Inline::new(&mut market, &mut buffer, &mut sink);
            let mut file = feed.file(0, FileFormat::LengthPrefixed, None);
            for frame in batch {
                file.process(&[Frame { file: 0, offset: frame.offset, bytes: frame.bytes }], &mut edge);
            }
            edge.end_of_batch();
        })
    };
    let (taken, _) = run(&halves[0]);
    assert!(taken > 0, "the allocator counts");
    assert_eq!(run(&halves[1]), (0, 0), "allocations and releases in the second half");
    assert!(updates >= number, "{updates} updates of {number} messages");
    assert_eq!(market.first.feeds()[0].growths(), 0);
    assert_eq!(market.first.feeds()[0].counters().rejected(), 0);
}

#[test]
fn the_second_half_of_a_capture_of_four_venues_takes_and_releases_no_memory() {
    let scenario = Scenario {
        symbols: SYMBOLS,
        messages: MESSAGES,
        bursts: Vec::new(),
        line_b: true,
        ..Scenario::demo()
    };
    let chain = second_half_without_allocations(&scenario);
    assert_eq!(chain.first.channels().len(), 4);
}

/// Venues of the US market and London, so that every protocol of the generator comes, IEX's three feeds beside each other.
#[test]
fn the_second_half_of_a_capture_of_every_venue_takes_and_releases_no_memory() {
    let mut scenario =
        Scenario { symbols: 60, messages: MESSAGES, bursts: Vec::new(), ..Scenario::us_market(MESSAGES) };
    let others = VenueKind::each(["lse", "iex-tops", "iex-deep", "cfe"]);
    scenario.venues.extend(others.map(|kind| VenueConfig { kind, share: 15, unit: Unit::WHOLE }));
    let chain = second_half_without_allocations(&scenario);
    let channels = chain.first.channels();
    assert_eq!(channels.len(), scenario.venues.len());
    let run: BTreeSet<&str> = channels.iter().map(|channel| channel.application().protocol()).collect();
    let all: BTreeSet<&str> = FEEDS.iter().map(|feed| feed.application.protocol()).collect();
    assert_eq!(run, all, "every feed of the table runs");
}

/// Runs a capture of a scenario, and counts in its second half.
fn second_half_without_allocations(scenario: &Scenario) -> Chain<Feed, Market, Event> {
    let mut file = Vec::new();
    write_pcap(scenario, &mut file).unwrap();
    let all = {
        let mut reader = CaptureReader::new(ByteSource::from_bytes("capture", file.clone())).unwrap();
        while reader.next_packet().unwrap().is_some() {}
        reader.tally().packets
    };
    let mut reader = CaptureReader::new(ByteSource::from_bytes("capture", file)).unwrap();
    let mut chain = Chain::new(Feed::new(FeedOptions::default()), market(), BATCH);
    let mut run = |packets: u64| {
        counted(|| {
            for _ in 0..packets {
                let captured = reader.next_packet().unwrap().unwrap();
                let datagram = net::parse(captured.link_type, captured.bytes).unwrap();
                let (number, offset) = (captured.number, captured.offset);
                let received = Nanos(captured.timestamp_ns);
                chain.process(
                    &[Packet { file: 0, number, offset, received, datagram }],
                    &mut |_: NbboUpdate<'_>| {},
                );
            }
        })
    };
    let (taken, _) = run(all / 2);
    assert!(taken > 0, "the allocator counts");
    assert_eq!(run(all - all / 2), (0, 0), "allocations and releases in the second half");
    assert_eq!(chain.first.problems().total, 0, "{:?}", chain.first.problems().kept());
    assert!(chain.first.messages() > MESSAGES * 9 / 10);
    assert!(chain.second.first.feeds().iter().all(|books| books.growths() == 0));
    chain
}

#[test]
fn a_live_engine_allocates_nothing_even_on_faulty_lines() {
    let mut generator = Generator::new(&Scenario::full_session(MESSAGES, SYMBOLS)).unwrap();
    let mut message = [0; MAX_MESSAGE_BYTES];
    let mut packets = Vec::new();
    while let Some(generated) = generator.next_message(&mut message) {
        let mut block = (generated.length as u16).to_be_bytes().to_vec();
        block.extend_from_slice(&message[..generated.length]);
        let fields = DownstreamPacketFields {
            session: Ascii(*b"SESSION001"),
            sequence_number: packets.len() as u64 + 1,
            message_count: 1,
            messages: &block,
        };
        let mut packet = vec![0; 20 + block.len()];
        fields.encode_into(&mut packet).unwrap();
        packets.push(packet);
    }
    let channel = LiveChannelOptions {
        name: "Nasdaq".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        arbiter: ArbiterOptions::default(),
        snapshot: None,
    };
    let mut engine = Engine::new(&EngineOptions { channels: vec![channel], ..EngineOptions::default() });
    let mut market = market();
    let mut buffer = Vec::with_capacity(BATCH);
    let mut events = Vec::with_capacity(4_096);
    let mut updates = 0u64;
    let mut run = |range: std::ops::Range<usize>| {
        counted(|| {
            for at in range {
                // Line A swaps every hundredth packet with the next one; line B is a packet behind.
                let first = match at % 100 {
                    50 => at + 1,
                    51 => at - 1,
                    _ => at,
                };
                for (line, packet) in [(Line::A, first), (Line::B, at.saturating_sub(1))] {
                    let Some(payload) = packets.get(packet) else { continue };
                    let received = Nanos(1_763_130_600_000_000_000 + at as u64 * 1_000);
                    engine.input(&Input::Packet { channel: 0, line, received, payload }, &mut events);
                    let mut sink = |_: NbboUpdate<'_>| updates += 1;
                    let mut edge = Inline::new(&mut market, &mut buffer, &mut sink);
                    events.drain(..).for_each(|event| edge.put(event));
                    edge.end_of_batch();
                }
            }
        })
    };
    let half = packets.len() / 2;
    run(0..half);
    assert_eq!(run(half..packets.len()), (0, 0));
    assert!(updates > MESSAGES);
    let counters = engine.feed().channels()[0].arbiter().counters();
    assert!(counters.filled_by_lines > 1_000 && counters.gaps == 0, "{counters:?}");
}
