//! A generated session of two venues with loss on the line, and what the feed makes of it: the counters must agree.
//!
//! `cargo run -p tapeworks-examples --bin generate_market [SEED]`

use std::error::Error;

use tapeworks_capture::LinkType;
use tapeworks_capture::net;
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_generator::{LineFaults, Packets, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_market::Event;
use tapeworks_stage::Stage;
use tapeworks_time::Nanos;

fn main() -> Result<(), Box<dyn Error>> {
    let seed = std::env::args().nth(1).map_or(Ok(7), |text| text.parse())?;
    let lossy = LineFaults { lost_per_million: 2_000, ..LineFaults::default() };
    let scenario = Scenario {
        seed,
        messages: 50_000,
        symbols: 20,
        venues: [(VenueKind::Nasdaq, 3), (VenueKind::IexDeep, 1)]
            .map(|(kind, share)| VenueConfig { kind, share, unit: Unit::WHOLE })
            .to_vec(),
        faults: [lossy, LineFaults::default()],
        ..Scenario::demo()
    };

    let mut packets = Packets::new(&scenario)?;
    let mut feed = Feed::new(FeedOptions::default());
    let (mut number, mut events) = (0, 0u64);
    // Packets are made one by one, in real protocol bytes; nothing but the feed sees what they mean.
    while let Some(sent) = packets.next_packet() {
        number += 1;
        let datagram = net::parse(LinkType::ETHERNET, sent.frame)?;
        let packet = Packet { file: 0, number, offset: 0, received: Nanos(sent.timestamp_ns), datagram };
        feed.process(&[packet], &mut |_: Event| events += 1);
    }

    println!("{number} packets, {} messages, {events} events", feed.messages());
    for (channel, venue) in feed.channels().iter().zip(&packets.report().venues) {
        let sequence = channel.sequence();
        println!(
            "{}: {} gaps, {} messages missing; {} were dropped on line A",
            channel.publisher().venue_name(),
            sequence.gaps,
            sequence.missing_messages,
            venue.injected[0].dropped_messages,
        );
    }
    Ok(())
}
