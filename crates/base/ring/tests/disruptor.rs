//! The ring of many readers, as a user has it.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tapeworks_ring::disruptor::{Builder, Consumer, Failed, PollError, Publication, PublishError, Single};
use tapeworks_ring::wait::{Backoff, Park, WaitStrategy, Yielding};

const EVENTS: usize = 50_000;

/// Words that belong together: torn or overtaken, and they disagree.
#[derive(Clone, Copy, Default, Debug)]
struct Checked([u64; 6]);

impl Checked {
    fn set(&mut self, number: u64) {
        self.0 = std::array::from_fn(|at| number.rotate_left(at as u32 * 7));
    }

    fn get(&self) -> u64 {
        let number = self.0[0];
        assert!(self.0.iter().enumerate().all(|(at, word)| *word == number.rotate_left(at as u32 * 7)));
        number
    }
}

fn builder<W: WaitStrategy + Default + 'static>(capacity: usize) -> Builder<Checked, W> {
    Builder::new(capacity, Checked::default, W::default)
}

/// Runs a consumer to the end; the numbers must be 0, 1, 2, …
fn reads_all_in_order<W: WaitStrategy>(mut consumer: Consumer<Checked, W, Single>) {
    let mut next = 0;
    consumer
        .run(|event, sequence, _| {
            assert_eq!((event.get(), sequence), (next, next as usize));
            next += 1;
        })
        .unwrap();
    assert_eq!(next as usize, EVENTS);
}

fn every_consumer_reads_every_event<W: WaitStrategy + Default + 'static>(capacity: usize) {
    let mut graph = builder::<W>(capacity);
    let ids = ["one", "two", "three"].map(|name| graph.consumer(name, &[]));
    let (mut producer, mut ends) = graph.single_producer();
    thread::scope(|scope| {
        for id in ids {
            let consumer = ends.take(id).unwrap();
            scope.spawn(move || reads_all_in_order(consumer));
        }
        for number in 0..EVENTS as u64 {
            assert_eq!(producer.publish(|event| event.set(number)), Ok(number as usize));
        }
        drop(producer);
    });
}

#[test]
fn every_consumer_reads_every_event_by_every_way_to_wait() {
    every_consumer_reads_every_event::<Yielding>(64);
    every_consumer_reads_every_event::<Yielding>(1);
    every_consumer_reads_every_event::<Backoff>(256);
    every_consumer_reads_every_event::<Park>(64);
}

#[test]
fn a_pipeline_of_mutators_passes_its_changes_on() {
    let mut graph = builder::<Yielding>(128);
    let first = graph.mutator("adds one", &[]);
    let second = graph.mutator("doubles", &[first]);
    let third = graph.consumer("reads", &[second]);
    let (mut producer, mut ends) = graph.single_producer();
    let (mut first, mut second, mut third) =
        (ends.take(first).unwrap(), ends.take(second).unwrap(), ends.take(third).unwrap());
    thread::scope(|scope| {
        scope.spawn(move || first.run_mut(|event, _, _| event.set(event.get() + 1)).unwrap());
        scope.spawn(move || second.run_mut(|event, _, _| event.set(event.get() * 2)).unwrap());
        let reader = scope.spawn(move || {
            let mut next = 0;
            third
                .run(|event, _, _| {
                    assert_eq!(event.get(), (next + 1) * 2);
                    next += 1;
                })
                .unwrap();
            next
        });
        let mut at = 0;
        while at < EVENTS {
            let count = (at % 50 + 1).min(EVENTS - at);
            let first = producer.publish_batch(count, |place, event| event.set((at + place) as u64)).unwrap();
            assert_eq!(first, at);
            at += count;
        }
        drop(producer);
        assert_eq!(reader.join().unwrap() as usize, EVENTS);
    });
}

#[test]
fn the_end_of_a_diamond_comes_after_both_sides() {
    let mut graph = builder::<Yielding>(64);
    let left = graph.consumer("left", &[]);
    let right = graph.consumer("right", &[]);
    let end = graph.consumer("end", &[left, right]);
    let (mut producer, mut ends) = graph.single_producer();
    let done = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for (id, done) in [left, right].into_iter().zip(&done) {
            let mut consumer = ends.take(id).unwrap();
            scope.spawn(move || {
                consumer.run(|_, sequence, _| done.store(sequence + 1, Ordering::Release)).unwrap();
            });
        }
        let mut consumer = ends.take(end).unwrap();
        let done = &done;
        scope.spawn(move || {
            consumer
                .run(|_, sequence, _| {
                    assert!(done.iter().all(|done| done.load(Ordering::Acquire) > sequence));
                })
                .unwrap();
        });
        for number in 0..EVENTS as u64 {
            producer.publish(|event| event.set(number)).unwrap();
        }
        drop(producer);
    });
}

fn many_producers<W: WaitStrategy + Default + 'static>(batch: usize) {
    let mut graph = builder::<W>(64);
    let id = graph.consumer("sums", &[]);
    let (producer, mut ends) = graph.multi_producer();
    let mut consumer = ends.take(id).unwrap();
    thread::scope(|scope| {
        for base in 1..=3u64 {
            let mut producer = producer.clone();
            scope.spawn(move || {
                for at in (0..EVENTS as u64 / 4).step_by(batch) {
                    producer
                        .publish_batch(batch, |place, event| event.set(base << 32 | (at + place as u64)))
                        .unwrap();
                }
            });
        }
        drop(producer);
        let mut next = [0u64; 3];
        consumer
            .run(|event, _, _| {
                let (producer, number) = ((event.get() >> 32) as usize - 1, event.get() & 0xFFFF_FFFF);
                assert_eq!(number, next[producer], "each producer's events stay in order");
                next[producer] += 1;
            })
            .unwrap();
        assert_eq!(next, [EVENTS as u64 / 4; 3]);
    });
}

#[test]
fn the_events_of_many_producers_all_arrive_in_the_order_of_each() {
    many_producers::<Yielding>(1);
    many_producers::<Yielding>(10);
    many_producers::<Park>(1);
}

#[test]
fn a_full_ring_refuses_and_reports_its_fill() {
    let mut graph = builder::<Yielding>(4);
    let id = graph.consumer("slow", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let mut consumer = ends.take(id).unwrap();
    assert!(ends.take(id).is_none());
    for number in 0..4 {
        assert_eq!(producer.fill(), number);
        producer.try_publish(|event| event.set(number as u64)).unwrap();
    }
    assert_eq!(producer.try_publish(|_| unreachable!()), Err(PublishError::Full));
    assert_eq!((producer.fill(), producer.capacity(), consumer.lag()), (4, 4, 4));
    let mut seen = Vec::new();
    while consumer.poll(|event, _, last| seen.push((event.get(), last))).unwrap() > 0 {}
    assert_eq!(seen.iter().map(|seen| seen.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(seen.last().unwrap().1, "the last of a batch says so");
    assert_eq!(producer.try_publish(|event| event.set(4)), Ok(4));
}

#[test]
fn several_producers_on_a_full_ring_are_refused_without_a_claim() {
    let mut graph = builder::<Yielding>(2);
    let id = graph.consumer("slow", &[]);
    let (mut producer, mut ends) = graph.multi_producer();
    let mut consumer = ends.take(id).unwrap();
    assert_eq!(producer.try_publish(|event| event.set(7)), Ok(0));
    assert_eq!(producer.try_publish(|event| event.set(8)), Ok(1));
    assert_eq!(producer.try_publish(|_| unreachable!()), Err(PublishError::Full));
    assert_eq!(producer.fill(), 2);
    drop(producer);
    let mut seen = Vec::new();
    consumer.run(|event, _, _| seen.push(event.get())).unwrap();
    assert_eq!(seen, [7, 8]);
}

#[test]
fn a_consumer_that_panics_stops_the_ring_and_is_named() {
    let mut graph = builder::<Yielding>(8);
    let weak = graph.consumer("weak", &[]);
    let behind = graph.consumer("behind", &[weak]);
    let beside = graph.consumer("beside", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let (mut weak, mut behind, mut beside) =
        (ends.take(weak).unwrap(), ends.take(behind).unwrap(), ends.take(beside).unwrap());
    let failed = Failed { name: "weak".into() };
    thread::scope(|scope| {
        let weak = scope.spawn(move || weak.run(|event, _, _| assert!(event.get() < 5, "five is too much")));
        let behind = scope.spawn(move || {
            let mut seen = 0;
            (behind.run(|_, _, _| seen += 1), seen)
        });
        let beside = scope.spawn(move || beside.run(|_, _, _| {}));
        let mut published = 0;
        let error = loop {
            match producer.publish(|event| event.set(published)) {
                Ok(_) => published += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, PublishError::Failed(failed.clone()));
        assert!(published <= 5 + 8);
        assert!(weak.join().is_err());
        let (result, seen) = behind.join().unwrap();
        assert_eq!(result, Err(failed.clone()));
        assert!(seen <= 5, "no consumer sees what the one before did not finish");
        assert_eq!(beside.join().unwrap(), Err(failed.clone()));
    });
}

#[test]
fn a_producer_that_panics_shows_nothing_half_written() {
    let mut graph = builder::<Yielding>(8);
    let id = graph.consumer("reads", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let mut consumer = ends.take(id).unwrap();
    producer.publish(|event| event.set(1)).unwrap();
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| producer.publish(|_| panic!("no"))));
    assert!(panicked.is_err());
    assert_eq!(producer.publish(|event| event.set(2)), Ok(1));
    drop(producer);
    let mut seen = Vec::new();
    consumer.run(|event, _, _| seen.push(event.get())).unwrap();
    assert_eq!(seen, [1, 2]);

    let mut graph = builder::<Yielding>(8);
    let id = graph.consumer("reads", &[]);
    let (mut producer, mut ends) = graph.multi_producer();
    let mut consumer = ends.take(id).unwrap();
    producer.publish(|event| event.set(1)).unwrap();
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| producer.publish(|_| panic!("no"))));
    assert!(panicked.is_err());
    let mut seen = Vec::new();
    let result = consumer.run(|event, _, _| seen.push(event.get()));
    assert_eq!((seen, result), (vec![1], Err(Failed { name: "a producer".into() })));
}

#[test]
fn the_others_go_on_without_a_consumer_that_is_dropped() {
    let mut graph = builder::<Yielding>(4);
    let first = graph.mutator("first", &[]);
    let second = graph.mutator("second", &[first]);
    let third = graph.mutator("third", &[second]);
    let (mut producer, mut ends) = graph.single_producer();
    let (mut first, second, mut third) =
        (ends.take(first).unwrap(), ends.take(second).unwrap(), ends.take(third).unwrap());
    drop(second);
    for number in 0..4 {
        producer.try_publish(|event| event.set(number)).unwrap();
    }
    assert_eq!(third.poll_mut(|_, _, _| ()), Ok(0), "it follows the first now");
    assert_eq!(first.poll_mut(|event, _, _| event.set(event.get() + 10)), Ok(1));
    assert_eq!(third.poll_mut(|event, _, _| assert_eq!(event.get(), 10)), Ok(1));
    drop((first, third));
    assert_eq!(producer.try_publish(|_| ()), Err(PublishError::Closed));
}

#[test]
fn a_closed_ring_is_read_to_its_end() {
    let mut graph = builder::<Yielding>(8);
    let id = graph.consumer("reads", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let mut consumer = ends.take(id).unwrap();
    assert_eq!(consumer.poll(|_, _, _| ()), Ok(0));
    producer.publish(|event| event.set(1)).unwrap();
    drop(producer);
    assert_eq!(consumer.poll(|_, _, _| ()), Ok(1));
    assert_eq!(consumer.poll(|_, _, _| ()), Err(PollError::Closed));
}

#[test]
#[should_panic(expected = "left mutates events while right may read them")]
fn a_mutator_beside_another_consumer_is_refused() {
    let mut graph = builder::<Yielding>(8);
    graph.mutator("left", &[]);
    graph.consumer("right", &[]);
    drop(graph.single_producer());
}

#[test]
#[should_panic(expected = "cannot change events")]
fn a_reader_cannot_change_events() {
    let mut graph = builder::<Yielding>(8);
    let id = graph.consumer("reads", &[]);
    let (_producer, mut ends) = graph.single_producer();
    let _never = ends.take(id).unwrap().poll_mut(|_, _, _| ());
}

/// Random graphs: each event passes each consumer once, after all that it follows.
#[test]
fn random_graphs_keep_their_order() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    fn check<P: Publication>(
        mut consumers: Vec<Consumer<Checked, Yielding, P>>,
        follows: &[Vec<usize>],
        polls: &[usize],
    ) {
        let mut done = vec![0; consumers.len()];
        for at in polls {
            let at = at % consumers.len();
            let before: usize = follows[at].iter().map(|before| done[*before]).min().unwrap_or(usize::MAX);
            let mut now = done[at];
            let _read = consumers[at].poll(|_, sequence, _| {
                assert_eq!(sequence, now);
                assert!(sequence < before, "not before those it follows");
                now += 1;
            });
            done[at] = now;
        }
    }

    let graphs = (1usize..6).prop_flat_map(|count| {
        let follows =
            (0..count).map(|at| prop::collection::vec(0..at.max(1), 0..=at.min(2))).collect::<Vec<_>>();
        (follows, prop::collection::vec(0usize..6, 0..300), 1usize..5)
    });
    TestRunner::new(Config::with_cases(200))
        .run(&graphs, |(follows, polls, capacity)| {
            let mut graph = builder::<Yielding>(1 << capacity);
            let mut ids = Vec::new();
            for before in &follows {
                let before: Vec<_> = before.iter().map(|at| ids[*at]).collect();
                let id = graph.consumer("any", &before);
                ids.push(id);
            }
            let (mut producer, mut ends) = graph.single_producer();
            for number in 0..1u64 << capacity {
                producer.try_publish(|event| event.set(number)).unwrap();
            }
            check(ids.iter().map(|id| ends.take(*id).unwrap()).collect(), &follows, &polls);
            Ok(())
        })
        .unwrap();
}

/// Lets a panic happen without the hook's message.
fn quietly(panics: impl FnOnce()) {
    let caught = catch_unwind(AssertUnwindSafe(panics));
    assert!(caught.is_err());
}

#[test]
fn a_second_consumer_that_panics_keeps_its_place_too() {
    let mut graph = Builder::new(8, || 0u64, Yielding::default);
    let one = graph.consumer("one", &[]);
    let two = graph.consumer("two", &[]);
    let last = graph.consumer("last", &[one, two]);
    let (mut producer, mut ends) = graph.single_producer();
    let [mut one, mut two, mut last] = [one, two, last].map(|id| ends.take(id).unwrap());
    for number in 0..4 {
        producer.publish(|event| *event = number).unwrap();
    }
    quietly(|| drop(one.poll(|_, _, _| resume_unwind(Box::new(())))));
    drop(one);
    quietly(|| drop(two.poll(|_, _, _| resume_unwind(Box::new(())))));
    drop(two);
    drop(producer);
    let failed = last.run(|_, _, _| unreachable!("no consumer has finished an event")).unwrap_err();
    assert_eq!(failed.name, "one");
}

#[test]
fn a_consumer_whose_thread_panics_between_polls_has_failed() {
    let mut graph = Builder::new(8, || 0u64, Yielding::default);
    let writes = graph.consumer("writes", &[]);
    let follows = graph.consumer("follows", &[writes]);
    let (mut producer, mut ends) = graph.single_producer();
    let (writes, mut follows) = (ends.take(writes).unwrap(), ends.take(follows).unwrap());
    for number in 0..4 {
        producer.publish(|event| *event = number).unwrap();
    }
    drop(producer);
    quietly(move || {
        let mut writes = writes;
        writes.poll(|_, _, _| {}).unwrap();
        resume_unwind(Box::new("the flush fails"));
    });
    let mut seen = 0;
    let failed = follows.run(|_, _, _| seen += 1).unwrap_err();
    assert_eq!((failed.name.as_str(), seen), ("writes", 1));
}

#[test]
fn a_consumer_of_another_ring_is_not_taken_for_one_of_this() {
    let mut one = Builder::new(8, || 0u64, Yielding::default);
    let mut other = Builder::new(8, || 0u64, Yielding::default);
    let of_one = one.consumer("reads", &[]);
    let of_other = other.consumer("reads", &[]);
    let (_producer, mut ends) = one.single_producer();
    assert!(ends.take(of_other).is_none());
    assert!(ends.take(of_one).is_some());
    quietly(|| {
        other.consumer("follows", &[of_one]);
    });
}

#[test]
#[should_panic(expected = "slots cannot be numbered")]
fn more_slots_than_can_be_numbered_are_refused() {
    drop(Builder::new(usize::MAX, || 0u64, Yielding::default));
}

#[test]
fn a_consumer_that_passes_events_over_releases_exactly_those() {
    let mut graph = builder::<Yielding>(64);
    let gate = graph.consumer("gate", &[]);
    let reader = graph.consumer("reader", &[gate]);
    let (mut producer, mut ends) = graph.single_producer();
    let (mut gate, mut reader) = (ends.take(gate).unwrap(), ends.take(reader).unwrap());
    for number in 0..10 {
        producer.publish(|event| event.set(number)).unwrap();
    }
    let read = |reader: &mut Consumer<Checked, Yielding, Single>| {
        let mut numbers = Vec::new();
        while reader.poll(|event, _, _| numbers.push(event.get())).unwrap() > 0 {}
        numbers
    };
    assert_eq!(read(&mut reader), []);
    assert_eq!(gate.pass_over(3), 3);
    assert_eq!(read(&mut reader), [0, 1, 2]);
    assert_eq!(gate.pass_over(100), 7, "there are no more");
    assert_eq!(read(&mut reader), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(gate.pass_over(1), 0);
    // A failed consumer stops the consumers behind it: they never see the events that it held back.
    producer.publish(|event| event.set(10)).unwrap();
    gate.fail();
    let failed = Failed { name: "gate".to_owned() };
    assert_eq!(reader.poll(|_, _, _| panic!("it was held back")), Err(PollError::Failed(failed)));
}

#[test]
fn the_end_of_a_batch_is_the_last_event_that_was_there_and_not_an_eighth_of_the_ring() {
    let mut graph = Builder::new(64, || 0u64, Yielding::default);
    let id = graph.consumer("reader", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let mut consumer = ends.take(id).unwrap();
    for number in 0..20 {
        producer.publish(|event| *event = number).unwrap();
    }
    let mut seen = Vec::new();
    let mut parts = Vec::new();
    loop {
        match consumer.poll(|event, _, is_last| seen.push((*event, is_last))).unwrap() {
            0 => break,
            count => parts.push(count),
        }
        // What comes meanwhile is another batch.
        if parts.len() == 1 {
            producer.publish(|event| *event = 20).unwrap();
        }
    }
    assert_eq!(parts, [8, 8, 4, 1]);
    let ends: Vec<u64> = seen.iter().filter(|(_, is_last)| *is_last).map(|(event, _)| *event).collect();
    assert_eq!(ends, [19, 20]);
    assert!(seen.iter().map(|(event, _)| *event).eq(0..21));
}
