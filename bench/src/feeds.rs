//! The feeds beside each other: packets to events, and to books, of the same market in each venue's protocol; and a decoder beside a peer.

use tapeworks_capture::LinkType;
use tapeworks_capture::net;
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_generator::{Packets, Popularity, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_market::book::BATCH;
use tapeworks_market::{BookStage, Capacity, Event};
use tapeworks_stage::{Inline, Sink, Stage as _};
use tapeworks_time::Nanos;

use crate::Options;
use crate::itch::Tops;
use crate::memoir;
use crate::rounds::Rounds;

/// A packet in memory: its frame, and when it was sent.
pub type Frame = (Vec<u8>, u64);

/// Each protocol once. The first is what the others are compared with.
const KINDS: [VenueKind; 10] = VenueKind::each([
    "nasdaq",
    "memx",
    "iex-deep-plus",
    "bzx",
    "nyse",
    "lse",
    "uqdf",
    "cqs",
    "iex-deep",
    "iex-tops",
]);

/// One minute of a venue from the open on: some thirty messages in a packet.
fn frames(kind: VenueKind, options: &Options) -> (Vec<Frame>, u64) {
    let open = 34_200_000_000_000;
    let scenario = Scenario {
        venues: vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }],
        start_ns: open,
        end_ns: open + 60_000_000_000,
        packet_hold_ns: 1_000_000,
        micro_bursts: 0,
        halts: 0,
        popularity: Popularity::Uniform,
        ..Scenario::full_session(options.messages / 10, options.symbols.min(2_000))
    };
    let mut packets = Packets::new(&scenario).expect("the scenario is valid");
    let mut frames = Vec::new();
    while let Some(packet) = packets.next_packet() {
        frames.push((packet.frame.to_vec(), packet.timestamp_ns));
    }
    (frames, packets.report().messages)
}

/// The packets of a venue through a feed of their own, into `sink`.
fn feed<S: Sink<Event>>(frames: &[Frame], sink: &mut S) {
    let mut feed = Feed::new(FeedOptions::default());
    for (number, (frame, sent)) in frames.iter().enumerate() {
        let Ok(datagram) = net::parse(LinkType::ETHERNET, frame) else { continue };
        let number = number as u64 + 1;
        feed.process(&[Packet { file: 0, number, offset: 0, received: Nanos(*sent), datagram }], sink);
    }
    assert_eq!(feed.problems().total, 0, "{:?}", feed.problems().kept());
}

#[inline(never)]
fn events(frames: &[Frame]) -> u64 {
    let mut sum = 0u64;
    feed(frames, &mut |event: Event| sum = sum.wrapping_add(std::hint::black_box(&event).order_id));
    sum
}

#[inline(never)]
fn books(frames: &[Frame], mut books: BookStage) -> u64 {
    let mut buffer = Vec::with_capacity(BATCH);
    let mut tops = Tops(0);
    {
        let mut edge = Inline::new(&mut books, &mut buffer, &mut tops);
        feed(frames, &mut edge);
        edge.end_of_batch();
    }
    assert_eq!(books.feeds()[0].counters().rejected(), 0, "the packets are sound");
    tops.0
}

pub fn run(options: &Options) {
    let venues: Vec<(VenueKind, Vec<Frame>)> = KINDS
        .into_iter()
        .map(|kind| {
            let (frames, messages) = frames(kind, options);
            println!("{:<10} {messages:>10} messages in {} packets", kind.name(), frames.len());
            (kind, frames)
        })
        .collect();
    println!(
        "in memory; each variant reads its packets from the start; books begin empty, tables are allocated before\n"
    );
    let messages = options.messages / 10;
    let capacity = Capacity::for_messages(messages);
    let (mut to_events, mut to_books) = (Rounds::new(messages), Rounds::new(messages));
    for (kind, frames) in &venues {
        to_events.add(kind.name(), move || events(frames));
        to_books.add_prepared(kind.name(), move || {
            let stage = BookStage::new([(kind.publisher(), capacity)]);
            move || books(frames, stage)
        });
    }
    to_events.run("packets to normalised events", options.rounds);
    to_books.run("packets to books", options.rounds);
    if let Some((_, frames)) = venues.iter().find(|(kind, _)| *kind == VenueKind::Memx) {
        memoir::run(frames, messages, options.rounds);
    }
}
