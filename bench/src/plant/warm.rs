//! The effect of warming rarely used paths: the time of an overtaken packet, and of a record to a client, after a while without such
//! packets.

use std::hint::black_box;
use std::time::Instant;

use tapeworks_engine::{Engine, EngineOptions};
use tapeworks_feed::Application;
use tapeworks_feed::live::{Input, LiveChannelOptions};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_market::{Line, Publisher};
use tapeworks_outputs::clients::warm::ClientWarmer;
use tapeworks_plant::Warmer;
use tapeworks_time::Nanos;

use super::engine::{PER_PACKET, packets};
use super::histogram;

/// Packets in order between two that are not.
const BETWEEN: usize = 500;

/// Bytes of other work between them: as much as pushes a path that was not used out of a core's own caches.
const OTHER_BYTES: usize = 4 << 20;

/// Records to a client, each after other work.
const RECORDS: usize = 3_000;

pub fn run() {
    overtaken();
    first_record();
}

fn overtaken() {
    println!(
        "warm: a packet that was overtaken by the next one, after {BETWEEN} in order and {} MB of other work; ns for both packets",
        OTHER_BYTES >> 20
    );
    let packets = packets(1_500_000, 8_000, PER_PACKET);
    let other = vec![1u8; OTHER_BYTES];
    for (name, is_warm) in [
        ("cold", false),
        ("warmed just before", true),
        ("cold, once more", false),
        ("warmed, once more", true),
    ] {
        let channel = LiveChannelOptions {
            name: "Nasdaq".to_owned(),
            application: Application::TotalViewItch50,
            publisher: Publisher::XNAS_ITCH,
            arbiter: ArbiterOptions::default(),
            snapshot: None,
        };
        let mut engine = Engine::new(&EngineOptions { channels: vec![channel], ..EngineOptions::default() });
        let mut warmer = <Warmer>::default();
        let mut events = Vec::with_capacity(4_096);
        let mut times = histogram();
        let mut in_order = histogram();
        let mut at = 0;
        let mut now = 1_763_130_600_000_000_000;
        let mut put = |engine: &mut Engine, index: usize| {
            now += 1_000;
            let input = Input::Packet {
                channel: 0,
                line: Line::A,
                received: Nanos(now),
                payload: packets[index].as_slice(),
            };
            engine.input(&input, &mut events);
            events.clear();
        };
        while at + BETWEEN + 4 < packets.len() {
            for _ in 0..BETWEEN {
                put(&mut engine, at);
                at += 1;
            }
            black_box(other.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
            if is_warm {
                warmer.go();
            }
            let started = Instant::now();
            put(&mut engine, at + 1);
            put(&mut engine, at);
            times.saturating_record(started.elapsed().as_nanos() as u64);
            at += 2;
            let started = Instant::now();
            put(&mut engine, at);
            put(&mut engine, at + 1);
            in_order.saturating_record(started.elapsed().as_nanos() as u64);
            at += 2;
        }
        println!(
            "  {name:<22} p50 {:>6}  p90 {:>6}  p99 {:>6}   (two in order, right after: p50 {})",
            times.value_at_quantile(0.5),
            times.value_at_quantile(0.9),
            times.value_at_quantile(0.99),
            in_order.value_at_quantile(0.5)
        );
    }
    println!();
}

/// How long it takes to give a record to two clients, from the event to the sockets, when nothing of the kind happened for a while.
fn first_record() {
    println!(
        "warm: a record to two clients, from the event to the sockets, after {} MB of other work; ns",
        OTHER_BYTES >> 20
    );
    let other = vec![1u8; OTHER_BYTES];
    let mut clients = ClientWarmer::new().expect("loopback has sockets");
    let mut warmer = ClientWarmer::new().expect("loopback has sockets");
    for (name, is_warm) in [
        ("cold", false),
        ("warmed just before", true),
        ("cold, once more", false),
        ("warmed, once more", true),
    ] {
        let mut times = histogram();
        for _ in 0..RECORDS {
            black_box(other.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
            if is_warm {
                warmer.publish().expect("its connections are there");
            }
            let started = Instant::now();
            clients.publish().expect("its connections are there");
            times.saturating_record(started.elapsed().as_nanos() as u64);
            let _bytes = warmer.drain().and_then(|_| clients.drain()).expect("the connections are there");
        }
        println!(
            "  {name:<22} p50 {:>6}  p90 {:>6}  p99 {:>6}",
            times.value_at_quantile(0.5),
            times.value_at_quantile(0.9),
            times.value_at_quantile(0.99)
        );
    }
    println!();
}
