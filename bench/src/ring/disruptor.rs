//! The Disruptor's shapes: one to one, batches, three in a row, a diamond, one and three of many producers.
//!
//! With more threads than cores everybody yields; one to one spins on two cores.

use std::rc::Rc;

use disruptor::{ProcessorSettings, Producer as _, Sequence};
use tapeworks_ring::cpu;
use tapeworks_ring::disruptor::{Builder, Consumer, Publication};
use tapeworks_ring::wait::{BusySpin, WaitStrategy, Yielding};

use super::{Shape, on_two_cores};
use crate::foreign::Java;
use crate::rounds::Rounds;

/// Events claimed at once by the variants in batches: LMAX's number.
const BATCH: u64 = 10;
/// Slots of the rings here: LMAX's number for its tests.
const CAPACITY: usize = 65_536;

pub fn run(Shape { items, rounds, cores, .. }: Shape) {
    // Divisible by batches and by producers.
    let events = items / 2 / 30 * 30;
    println!("Disruptor: {events} events of 8 bytes through {CAPACITY} slots; batches of {BATCH}");
    let java = Java::build();
    if let Err(why) = &java {
        println!("SKIPPED, LMAX: {why}");
    }
    let shapes: [(&str, &str, Vec<Ours<'_>>); 6] = [
        (
            "unicast",
            "busy",
            vec![
                ("tapeworks-ring", Rc::new(move || unicast(events, cores, 1))),
                ("disruptor 4.4.0 (crate)", Rc::new(move || crate_unicast(events, cores, 1))),
            ],
        ),
        (
            "batch",
            "busy",
            vec![
                ("tapeworks-ring", Rc::new(move || unicast(events, cores, BATCH))),
                ("disruptor 4.4.0 (crate)", Rc::new(move || crate_unicast(events, cores, BATCH))),
            ],
        ),
        ("pipeline", "yield", vec![("tapeworks-ring", Rc::new(move || pipeline(events)))]),
        ("diamond", "yield", vec![("tapeworks-ring", Rc::new(move || diamond(events)))]),
        ("one-of-many", "yield", vec![("tapeworks-ring", Rc::new(move || several_to_one(events, 1)))]),
        ("three-to-one", "yield", vec![("tapeworks-ring", Rc::new(move || several_to_one(events, 3)))]),
    ];
    for (shape, wait, ours) in shapes {
        let mut table = Rounds::new(events);
        for (name, run) in ours {
            table.add(name, move || run());
        }
        if let Ok(java) = &java {
            let waits = if wait == "busy" { &["busy", "yield"][..] } else { &["yield"] };
            for wait in waits {
                let java = java.clone();
                let words =
                    [shape.into(), (*wait).into(), events.to_string(), CAPACITY.to_string(), "1".into()];
                table.add_reported(&format!("LMAX Disruptor 4.0.0, {wait}"), move || {
                    java.run("Shapes", &words)
                });
            }
        }
        table.run(rounds);
        table.print(&format!("Disruptor, {shape}"), "tapeworks-ring");
    }
}

type Ours<'a> = (&'a str, Rc<dyn Fn() -> u64 + 'a>);

fn sum_of(events: u64) -> u64 {
    events * (events - 1) / 2
}

fn sum<W: WaitStrategy, P: Publication>(mut consumer: Consumer<u64, W, P>) -> u64 {
    let mut sum = 0;
    consumer.run(|event, _, _| sum += event).expect("nobody panics");
    sum
}

fn unicast(events: u64, cores: [usize; 2], batch: u64) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, || BusySpin);
    let id = graph.consumer("sums", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let consumer = ends.take(id).expect("taken once");
    let found = on_two_cores(
        cores,
        || sum(consumer),
        move || {
            if batch == 1 {
                for number in 0..events {
                    producer.publish(|event| *event = number).expect("the consumer stays");
                }
            } else {
                for next in (0..events).step_by(batch as usize) {
                    producer
                        .publish_batch(batch as usize, |at, event| *event = next + at as u64)
                        .expect("the consumer stays");
                }
            }
        },
    );
    assert_eq!(found, sum_of(events));
    found
}

fn crate_unicast(events: u64, cores: [usize; 2], batch: u64) -> u64 {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    let found = Arc::new(AtomicU64::new(0));
    let result = Arc::clone(&found);
    let mut sum = 0;
    // Its consumer runs on a thread of its own; the producer's is pinned here.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut producer = disruptor::build_single_producer(CAPACITY, || 0u64, disruptor::BusySpin)
                .pin_at_core(cores[1])
                .handle_events_with(move |event: &u64, sequence: Sequence, _end: bool| {
                    sum += *event;
                    if sequence as u64 == events - 1 {
                        result.store(sum, Ordering::Release);
                    }
                })
                .build();
            // Not before: the crate lets its consumer have none but the cores of this thread.
            cpu::pin(cores[0]).expect("the core is allowed");
            if batch == 1 {
                for number in 0..events {
                    producer.publish(|event| *event = number);
                }
            } else {
                for next in (0..events).step_by(batch as usize) {
                    producer.batch_publish(batch as usize, |slots| {
                        for (number, event) in (next..).zip(slots) {
                            *event = number;
                        }
                    });
                }
            }
        });
    });
    let found = found.load(Ordering::Acquire);
    assert_eq!(found, sum_of(events));
    found
}

fn pipeline(events: u64) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let one = graph.mutator("adds one", &[]);
    let two = graph.mutator("adds one more", &[one]);
    let three = graph.consumer("sums", &[two]);
    let (mut producer, mut ends) = graph.single_producer();
    let [mut one, mut two, three] = [one, two, three].map(|id| ends.take(id).expect("taken once"));
    let found = std::thread::scope(|scope| {
        scope.spawn(move || one.run_mut(|event, _, _| *event += 1).expect("nobody panics"));
        scope.spawn(move || two.run_mut(|event, _, _| *event += 1).expect("nobody panics"));
        let reader = scope.spawn(move || sum(three));
        for number in 0..events {
            producer.publish(|event| *event = number).expect("the consumers stay");
        }
        drop(producer);
        reader.join().expect("nobody panics")
    });
    assert_eq!(found, sum_of(events) + 2 * events);
    found
}

fn diamond(events: u64) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let left = graph.consumer("left", &[]);
    let right = graph.consumer("right", &[]);
    let end = graph.consumer("end", &[left, right]);
    let (mut producer, mut ends) = graph.single_producer();
    let consumers = [left, right, end].map(|id| ends.take(id).expect("taken once"));
    let sums = std::thread::scope(|scope| {
        let readers = consumers.map(|consumer| scope.spawn(move || sum(consumer)));
        for number in 0..events {
            producer.publish(|event| *event = number).expect("the consumers stay");
        }
        drop(producer);
        readers.map(|reader| reader.join().expect("nobody panics"))
    });
    assert_eq!(sums, [sum_of(events); 3]);
    sums[2]
}

/// A ring for many producers, of which `producers` publish.
fn several_to_one(events: u64, producers: u64) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let id = graph.consumer("sums", &[]);
    let (producer, mut ends) = graph.multi_producer();
    let consumer = ends.take(id).expect("taken once");
    let share = events / producers;
    let found = std::thread::scope(|scope| {
        for _ in 0..producers {
            let mut producer = producer.clone();
            scope.spawn(move || {
                for number in 0..share {
                    producer.publish(|event| *event = number).expect("the consumer stays");
                }
            });
        }
        // The ring closes with its last producer, which is one of those.
        drop(producer);
        sum(consumer)
    });
    assert_eq!(found, producers * sum_of(share));
    found
}
