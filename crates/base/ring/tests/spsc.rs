//! The queue between two threads, as a user has it.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tapeworks_ring::spsc::{self, PopError, PushError};
use tapeworks_ring::wait::{Backoff, BusySpin, Park, WaitStrategy, Yielding};

/// Several words that belong together: one of them torn or mixed up and the sum is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Checked([u64; 7], u64);

impl Checked {
    fn new(number: u64) -> Self {
        let words =
            std::array::from_fn(|at| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(at as u32));
        Self(words, words.iter().fold(number, |sum, word| sum.wrapping_add(*word)))
    }
}

fn every_item_arrives_whole_and_in_order<W: WaitStrategy + Default>(capacity: usize, items: u64) {
    let (mut producer, mut consumer) = spsc::with_wait::<Checked, W>(capacity);
    std::thread::scope(|scope| {
        scope.spawn(move || (0..items).for_each(|number| producer.push(Checked::new(number)).unwrap()));
        for number in 0..items {
            assert_eq!(consumer.pop().unwrap(), Checked::new(number));
        }
        assert_eq!(consumer.pop(), Err(PopError::Closed));
    });
}

#[test]
fn items_arrive_whole_and_in_order_by_every_way_to_wait() {
    // Two threads that spin on one core give each other a turn per time slice: few items there.
    every_item_arrives_whole_and_in_order::<Yielding>(64, 200_000);
    every_item_arrives_whole_and_in_order::<Yielding>(1, 20_000);
    every_item_arrives_whole_and_in_order::<Backoff>(64, 200_000);
    every_item_arrives_whole_and_in_order::<Park>(64, 200_000);
    every_item_arrives_whole_and_in_order::<Park>(1, 20_000);
    every_item_arrives_whole_and_in_order::<BusySpin>(1024, 200_000);
}

#[test]
fn batches_arrive_whole_and_in_order() {
    let items = 300_000u64;
    let (mut producer, mut consumer) = spsc::ring::<Checked>(100);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut numbers = (0..items).map(Checked::new).peekable();
            let mut turn = 0;
            while numbers.peek().is_some() {
                turn += 1;
                // An item that finds no room must not be taken from the iterator; `by_ref().take` would lose none either.
                if producer.push_batch(&mut numbers.by_ref().take(turn % 70)) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < items {
            let popped = consumer.pop_batch(1 + next as usize % 90, |item| {
                assert_eq!(item, Checked::new(next));
                next += 1;
            });
            if popped == 0 {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn slices_arrive_whole_and_in_order() {
    let items: Vec<u64> = (0..200_000).collect();
    let (mut producer, mut consumer) = spsc::ring::<u64>(128);
    let sent = items.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let pushed = producer.push_slice(&rest[..rest.len().min(77)]);
                rest = &rest[pushed..];
                if pushed == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let (mut received, mut part) = (Vec::new(), [0; 50]);
        while received.len() < items.len() {
            let popped = consumer.pop_slice(&mut part);
            received.extend_from_slice(&part[..popped]);
            if popped == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(received, items);
    });
}

/// Counts how many of it are alive.
#[derive(Debug)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn items_that_were_not_popped_are_dropped_once() {
    let count = Arc::new(AtomicUsize::new(0));
    for popped in 0..7 {
        let (mut producer, mut consumer) = spsc::ring(4);
        for _ in 0..3 {
            producer.try_push(Alive::new(&count)).unwrap();
            drop(consumer.try_pop().unwrap());
        }
        for _ in 0..4 {
            producer.try_push(Alive::new(&count)).unwrap();
        }
        assert!(matches!(producer.try_push(Alive::new(&count)), Err(PushError::Full(_))));
        assert_eq!(consumer.pop_batch(popped, drop), popped.min(4));
        assert_eq!(count.load(Ordering::Relaxed), 4 - popped.min(4));
        drop(producer);
        drop(consumer);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_consumer_that_panics_inside_a_batch_loses_the_item_at_hand_alone() {
    let count = Arc::new(AtomicUsize::new(0));
    let (mut producer, mut consumer) = spsc::ring(8);
    producer.push_batch(&mut (0..5).map(|_| Alive::new(&count)));
    let mut seen = 0;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        consumer.pop_batch(8, |_item| {
            seen += 1;
            assert!(seen < 3, "the third is one too many");
        })
    }));
    assert!(caught.is_err());
    assert_eq!((consumer.len(), count.load(Ordering::Relaxed)), (2, 2));
    assert_eq!(consumer.pop_batch(8, drop), 2);
}

#[test]
fn a_producer_that_panics_inside_a_batch_publishes_the_items_before_the_panic() {
    let (mut producer, mut consumer) = spsc::ring::<u32>(8);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        producer.push_batch(&mut (0..8).inspect(|number| assert!(*number < 3, "the fourth is one too many")))
    }));
    assert!(caught.is_err());
    let mut popped = Vec::new();
    consumer.pop_batch(8, |number| popped.push(number));
    assert_eq!(popped, [0, 1, 2]);
    assert!(producer.try_push_with(|| 9));
    assert_eq!(consumer.try_pop(), Ok(9));
}

#[test]
fn an_exact_ring_holds_no_more_than_its_capacity() {
    let (mut producer, mut consumer) = spsc::exact::<u8, BusySpin>(5);
    assert_eq!(producer.push_slice(&[0; 9]), 5);
    assert_eq!((producer.capacity(), producer.free_slots(), consumer.len()), (5, 0, 5));
    assert_eq!(consumer.try_pop(), Ok(0));
    assert_eq!(producer.push_batch(&mut [1, 2].into_iter()), 1);
}

#[test]
fn the_other_side_sees_a_close() {
    let (mut producer, consumer) = spsc::ring(2);
    assert!(!producer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());
    // It had room, so it did not look.
    assert_eq!(producer.push(1), Ok(()));
    assert_eq!(producer.push(2), Ok(()));
    assert_eq!(producer.push(3), Err(PushError::Closed(3)));

    let (mut producer, mut consumer) = spsc::ring(2);
    producer.push(1).unwrap();
    drop(producer);
    assert!(!consumer.is_closed());
    assert_eq!(consumer.wait(), 1);
    assert_eq!(consumer.pop(), Ok(1));
    assert_eq!(consumer.wait(), 0);
    assert_eq!(consumer.try_pop(), Err(PopError::Closed));
    assert!(consumer.is_closed());
}

#[derive(Clone, Debug)]
enum Operation {
    Push,
    PushBatch(usize),
    PushSlice(usize),
    Pop,
    Peek,
    PopBatch(usize),
    PopSlice(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        Just(Operation::Push),
        (0usize..12).prop_map(Operation::PushBatch),
        (0usize..12).prop_map(Operation::PushSlice),
        Just(Operation::Pop),
        Just(Operation::Peek),
        (0usize..12).prop_map(Operation::PopBatch),
        (0usize..12).prop_map(Operation::PopSlice),
    ]
}

proptest! {
    #[test]
    fn the_ring_is_a_queue_with_a_bound(capacity in 1usize..12, operations in prop::collection::vec(operation(), 0..200)) {
        let (mut producer, mut consumer) = spsc::exact::<u32, BusySpin>(capacity);
        let mut model = VecDeque::new();
        let mut numbers = 0u32..;
        for operation in operations {
            match operation {
                Operation::Push => {
                    let number = numbers.next().unwrap();
                    let pushed = producer.try_push(number);
                    prop_assert_eq!(pushed.is_ok(), model.len() < capacity);
                    if pushed.is_ok() { model.push_back(number) }
                }
                Operation::PushBatch(count) => {
                    let mut items: Vec<_> = numbers.by_ref().take(count).collect();
                    let pushed = producer.push_batch(&mut items.iter().copied());
                    prop_assert_eq!(pushed, count.min(capacity - model.len()));
                    items.truncate(pushed);
                    model.extend(items);
                }
                Operation::PushSlice(count) => {
                    let items: Vec<_> = numbers.by_ref().take(count).collect();
                    let pushed = producer.push_slice(&items);
                    prop_assert_eq!(pushed, count.min(capacity - model.len()));
                    model.extend(&items[..pushed]);
                }
                Operation::Pop => prop_assert_eq!(consumer.try_pop().ok(), model.pop_front()),
                Operation::Peek => prop_assert_eq!(consumer.peek(), model.front()),
                Operation::PopBatch(most) => {
                    let mut popped = Vec::new();
                    consumer.pop_batch(most, |number| popped.push(number));
                    let expected: Vec<_> = model.drain(..most.min(model.len())).collect();
                    prop_assert_eq!(popped, expected);
                }
                Operation::PopSlice(most) => {
                    let mut into = vec![0; most];
                    let popped = consumer.pop_slice(&mut into);
                    let expected: Vec<_> = model.drain(..most.min(model.len())).collect();
                    prop_assert_eq!(&into[..popped], expected);
                }
            }
            prop_assert_eq!((producer.len(), consumer.len()), (model.len(), model.len()));
        }
    }
}

#[test]
#[should_panic(expected = "slots cannot be numbered")]
fn more_slots_than_can_be_numbered_are_refused() {
    drop(spsc::ring::<u64>(usize::MAX));
}

#[test]
fn a_ring_of_items_without_a_size_is_made_at_once_however_many_they_are() {
    let (mut producer, mut consumer) = spsc::ring::<()>(1 << 40);
    assert_eq!(producer.free_slots(), 1 << 40);
    producer.try_push(()).unwrap();
    assert_eq!(consumer.try_pop(), Ok(()));
}
