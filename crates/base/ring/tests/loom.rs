//! The orders in which two threads can run through the queues, as the memory model allows, for a few items and with up to two
//! preemptions of each run:
//! `RUSTFLAGS="--cfg loom" cargo test --release --package tapeworks-ring --test loom`.
//!
//! Loom also checks that no slot is read while it is written.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use loom::thread;
use tapeworks_ring::disruptor::{Builder, Consumer, Multi, MultiProducer, Producer, Single};
use tapeworks_ring::spsc;
use tapeworks_ring::wait::{BusySpin, Park, WaitStrategy};

/// Bounded, as every loop that waits has endless orders.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 50_000;
    builder.check(model);
}

fn items_pass<W: WaitStrategy + Default + 'static>(items: u32) {
    explore(move || {
        let (mut producer, mut consumer) = spsc::with_wait::<Box<u32>, W>(2);
        let sender = thread::spawn(move || {
            for number in 0..items {
                producer.push(Box::new(number)).unwrap();
            }
        });
        for number in 0..items {
            assert_eq!(*consumer.pop().unwrap(), number);
        }
        assert!(consumer.pop().is_err());
        sender.join().unwrap();
    });
}

#[test]
fn an_spsc_ring_that_wraps_passes_every_item_once() {
    items_pass::<BusySpin>(3);
}

#[test]
fn a_parked_side_of_an_spsc_ring_is_woken() {
    items_pass::<Park>(3);
}

#[test]
fn batches_of_an_spsc_ring_pass_every_item_once() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring::<Box<u32>>(2);
        let sender = thread::spawn(move || {
            let mut numbers = (0..3).map(Box::new).peekable();
            while numbers.peek().is_some() {
                if producer.push_batch(&mut numbers) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < 3 {
            let popped = consumer.pop_batch(2, |number| {
                assert_eq!(*number, next);
                next += 1;
            });
            if popped == 0 {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn items_left_in_a_closed_spsc_ring_are_dropped_once() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring::<Box<u32>>(2);
        let receiver = thread::spawn(move || consumer.try_pop().ok());
        let _first = producer.try_push(Box::new(1));
        let _second = producer.try_push(Box::new(2));
        drop(producer);
        receiver.join().unwrap();
    });
}

type Reader<W> = Consumer<u32, W, Single>;

/// A ring of two events with a mutator, and a consumer that follows it.
fn one_behind_the_other<W: WaitStrategy + Default + 'static>() -> (Producer<u32, W>, Reader<W>, Reader<W>) {
    let mut graph = Builder::new(2, || 0u32, W::default);
    let first = graph.mutator("first", &[]);
    let second = graph.consumer("second", &[first]);
    let (producer, mut ends) = graph.single_producer();
    (producer, ends.take(first).unwrap(), ends.take(second).unwrap())
}

#[test]
fn a_consumer_sees_the_changes_of_the_consumer_before_it() {
    explore(|| {
        let (mut producer, mut first, mut second) = one_behind_the_other::<Park>();
        let changes = thread::spawn(move || first.run_mut(|event, _, _| *event += 10).unwrap());
        producer.publish(|event| *event = 1).unwrap();
        drop(producer);
        let mut seen = Vec::new();
        second.run(|event, _, _| seen.push(*event)).unwrap();
        assert_eq!(seen, [11]);
        changes.join().unwrap();
    });
}

#[test]
fn a_disruptor_that_wraps_shows_every_event_once() {
    explore(|| {
        let mut graph = Builder::new(1, || 0u32, BusySpin::default);
        let id = graph.mutator("changes", &[]);
        let (mut producer, mut ends) = graph.single_producer();
        let mut consumer = ends.take(id).unwrap();
        let reader = thread::spawn(move || {
            let mut next = 0;
            consumer
                .run_mut(|event, _, _| {
                    assert_eq!(std::mem::replace(event, 99), next);
                    next += 1;
                })
                .unwrap();
            assert_eq!(next, 3);
        });
        for number in 0..3 {
            producer.publish(|event| *event = number).unwrap();
        }
        drop(producer);
        reader.join().unwrap();
    });
}

/// A ring of two events that two fill and one reads.
fn two_producers()
-> (MultiProducer<u32, BusySpin>, MultiProducer<u32, BusySpin>, Consumer<u32, BusySpin, Multi>) {
    let mut graph = Builder::new(2, || 0u32, BusySpin::default);
    let id = graph.consumer("sums", &[]);
    let (producer, mut ends) = graph.multi_producer();
    (producer.clone(), producer, ends.take(id).unwrap())
}

#[test]
fn two_producers_of_a_disruptor_lose_nothing() {
    explore(|| {
        let (mut one, mut two, mut consumer) = two_producers();
        let other = thread::spawn(move || {
            two.publish(|event| *event = 1).unwrap();
        });
        one.publish(|event| *event = 2).unwrap();
        drop(one);
        let mut sum = 0;
        consumer.run(|event, _, _| sum += event).unwrap();
        assert_eq!(sum, 3);
        other.join().unwrap();
    });
}

#[test]
fn a_parked_consumer_of_a_disruptor_is_woken() {
    explore(|| {
        let mut graph = Builder::new(1, || 0u32, || Park::new(0));
        let id = graph.consumer("reads", &[]);
        let (mut producer, mut ends) = graph.single_producer();
        let mut consumer = ends.take(id).unwrap();
        let reader = thread::spawn(move || {
            let mut seen = 0;
            consumer.run(|_, _, _| seen += 1).unwrap();
            assert_eq!(seen, 2);
        });
        producer.publish(|event| *event = 1).unwrap();
        producer.publish(|event| *event = 2).unwrap();
        drop(producer);
        reader.join().unwrap();
    });
}

#[test]
fn consumers_behind_one_that_left_continue_with_its_changes() {
    explore(|| {
        let (mut producer, mut first, mut second) = one_behind_the_other::<BusySpin>();
        producer.publish(|event| *event = 1).unwrap();
        let leaver = thread::spawn(move || {
            assert_eq!(first.poll_mut(|event, _, _| *event += 10), Ok(1));
        });
        producer.publish(|event| *event = 2).unwrap();
        drop(producer);
        let mut seen = Vec::new();
        second.run(|event, _, _| seen.push(*event)).unwrap();
        // A poll takes one event of a ring of two.
        assert_eq!(seen, [11, 2]);
        leaver.join().unwrap();
    });
}

#[test]
fn consumers_behind_one_that_panicked_get_an_error_and_read_none_of_its_events() {
    explore(|| {
        let (mut producer, mut first, mut second) = one_behind_the_other::<BusySpin>();
        producer.publish(|event| *event = 1).unwrap();
        let failing = thread::spawn(move || {
            // Without the hook's message, which would be printed in every order.
            let polled = catch_unwind(AssertUnwindSafe(|| {
                first.poll_mut(|event, _, _| {
                    *event = 99;
                    resume_unwind(Box::new(()));
                })
            }));
            assert!(polled.is_err());
        });
        let failed = second.run(|_, _, _| unreachable!("the event is unfinished")).unwrap_err();
        assert_eq!(failed.name, "first");
        failing.join().unwrap();
    });
}

#[test]
fn two_producers_that_do_not_wait_lose_nothing() {
    explore(|| {
        let (mut one, mut two, mut consumer) = two_producers();
        let other = thread::spawn(move || two.try_publish(|event| *event = 1).is_ok());
        let published = one.try_publish(|event| *event = 2).is_ok();
        drop(one);
        let mut sum = 0;
        consumer.run(|event, _, _| sum += event).unwrap();
        let others = other.join().unwrap();
        // A ring of two has room for both.
        assert!(published && others);
        assert_eq!(sum, 3);
    });
}
