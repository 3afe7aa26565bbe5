//! The engine alone: the cost of a message from its datagram to the NBBO, without sockets.

use std::time::Instant;

use hdrhistogram::Histogram;
use tapeworks_engine::{Engine, EngineOptions};
use tapeworks_feed::Application;
use tapeworks_feed::live::{Input, LiveChannelOptions};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario};
use tapeworks_market::book::BATCH;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookStage, Capacity, Event, Line, NbboStage, NbboUpdate, Publisher};
use tapeworks_stage::{Inline, Sink, Through};
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacketFields;

use crate::Options;

/// Messages in a datagram: as of a venue with a million messages a second that holds packets for 5 us.
pub const PER_PACKET: usize = 5;

struct Nothing(u64);

impl Sink<NbboUpdate<'_>> for Nothing {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        self.0 = self.0.wrapping_add(u64::from(update.changed));
    }
}

pub fn packets(messages: u64, symbols: u32, per_packet: usize) -> Vec<Vec<u8>> {
    let mut generator =
        Generator::new(&Scenario::benchmark(messages, symbols)).expect("the scenario is sound");
    let mut bytes = [0; MAX_MESSAGE_BYTES];
    let mut packets = Vec::new();
    let (mut sequence, mut count, mut blocks) = (1u64, 0u16, Vec::new());
    let mut close = |sequence: &mut u64, count: &mut u16, blocks: &mut Vec<u8>| {
        let fields = DownstreamPacketFields {
            session: Ascii(*b"BENCHMARK1"),
            sequence_number: *sequence,
            message_count: *count,
            messages: blocks,
        };
        let mut packet = vec![0; 20 + blocks.len()];
        fields.encode_into(&mut packet).expect("it fits");
        packets.push(packet);
        *sequence += u64::from(*count);
        *count = 0;
        blocks.clear();
    };
    while let Some(made) = generator.next_message(&mut bytes) {
        blocks.extend_from_slice(&(made.length as u16).to_be_bytes());
        blocks.extend_from_slice(&bytes[..made.length]);
        count += 1;
        if usize::from(count) == per_packet {
            close(&mut sequence, &mut count, &mut blocks);
        }
    }
    if count > 0 {
        close(&mut sequence, &mut count, &mut blocks);
    }
    packets
}

pub fn run(options: &Options) {
    // With one message to a datagram the time includes the header's part. Datagrams received by one call are applied to the books
    // together, as the plant does.
    for (per_packet, together) in [(PER_PACKET, 1), (1, 1), (1, 4), (1, 16)] {
        in_packets_of(options, per_packet, together);
    }
}

fn in_packets_of(options: &Options, per_packet: usize, together: usize) {
    let messages = options.messages.min(5_000_000);
    println!(
        "engine: {messages} messages of {} random symbols, {per_packet} to a datagram, lines A and B in turns, {} datagrams received together",
        options.symbols,
        2 * together
    );
    let packets = packets(messages, options.symbols, per_packet);
    let capacity = Capacity::for_messages(messages);
    let mut best = f64::MAX;
    let mut times = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3).expect("the bounds are valid");
    let mut record_ns = 0.0;
    for _ in 0..options.rounds.min(5) {
        let channel = LiveChannelOptions {
            name: "Nasdaq".to_owned(),
            application: Application::TotalViewItch50,
            publisher: Publisher::XNAS_ITCH,
            arbiter: ArbiterOptions::default(),
            snapshot: None,
        };
        let mut engine = Engine::new(&EngineOptions { channels: vec![channel], ..EngineOptions::default() });
        let mut market = Through::new(
            BookStage::new([(Publisher::XNAS_ITCH, capacity)]),
            NbboStage::new(NbboRules::default(), [Publisher::XNAS_ITCH], capacity.instruments),
        );
        let mut buffer: Vec<Event> = Vec::with_capacity(BATCH);
        let mut events = Vec::with_capacity(4_096);
        let mut nothing = Nothing(0);
        let clock = quanta::Clock::new();
        let started = Instant::now();
        let mut at = 0u64;
        for packets in packets.chunks(together) {
            let before = clock.raw();
            for packet in packets {
                let received = Nanos(1_763_130_600_000_000_000 + at * 5_000);
                at += 1;
                for line in [Line::A, Line::B] {
                    engine.input(
                        &Input::Packet { channel: 0, line, received, payload: packet.as_slice() },
                        &mut events,
                    );
                }
            }
            let mut edge = Inline::new(&mut market, &mut buffer, &mut nothing);
            events.iter().for_each(|event| edge.put(*event));
            edge.end_of_batch();
            events.clear();
            let took = clock.delta_as_nanos(before, clock.raw());
            let messages = (packets.len() * per_packet) as u64;
            times.saturating_record_n(took / messages, messages);
        }
        let ns = started.elapsed().as_nanos() as f64 / messages as f64;
        best = best.min(ns);
        assert_eq!(engine.feed().feed().messages(), messages, "every message once");
        // The cost of recording a delay.
        let mut delays =
            Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid");
        let started = Instant::now();
        for value in 0..10_000_000u64 {
            delays.saturating_record(1_000 + (value & 0xFFFF));
        }
        record_ns = started.elapsed().as_nanos() as f64 / 1e7;
        assert_eq!(delays.len(), 10_000_000);
    }
    println!("  arbitration, decode, book, NBBO: least {best:.0} ns a message = {:.1} M/s", 1e3 / best);
    println!(
        "  service time of what came together, by its messages: p50 {} ns, p90 {}, p99 {}, p99.9 {}, max {} (target: p99.9 under 750)",
        times.value_at_quantile(0.5),
        times.value_at_quantile(0.9),
        times.value_at_quantile(0.99),
        times.value_at_quantile(0.999),
        times.max()
    );
    println!("  recording a delay in a histogram: {record_ns:.1} ns (target: under 5)\n");
}
