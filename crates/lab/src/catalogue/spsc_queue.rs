//! A queue from one thread to one other in three versions, and with the strictest memory order.
//!
//! The items are numbers and lie in atomics, which are read and written relaxed: the same moves as those of a plain array, without code that
//! the compiler cannot check. The third version is the product's ring.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tapeworks_ring::align::CacheAligned;
use tapeworks_ring::clock::TscClock;
use tapeworks_ring::spsc;

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::technique::{Assembly, Published, Technique, Use};
use crate::threads::{Patience, together};

/// Items of a batch.
const BATCH: usize = 256;

fn slots(capacity: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(AtomicU64::default).take(capacity.next_power_of_two()).collect()
}

/// The first version: two counters side by side, in one cache line.
// ANCHOR: baseline
#[derive(Debug)]
pub struct V1 {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[AtomicU64]>,
}
// ANCHOR_END: baseline

/// The second version: each counter in lines of its own.
// ANCHOR: padded
#[derive(Debug)]
pub struct V2 {
    head: CacheAligned<AtomicUsize>,
    tail: CacheAligned<AtomicUsize>,
    slots: Box<[AtomicU64]>,
}
// ANCHOR_END: padded

impl V1 {
    /// A queue of `capacity` items, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), slots: slots(capacity) }
    }
}

impl V2 {
    /// A queue of `capacity` items, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let counter = || CacheAligned::new(AtomicUsize::new(0));
        Self { head: counter(), tail: counter(), slots: slots(capacity) }
    }
}

/// The orders of a queue's counters.
#[derive(Clone, Copy)]
struct Orders {
    own: Ordering,
    other: Ordering,
    publish: Ordering,
}

/// Acquire and release: as much as the queue needs.
const ENOUGH: Orders =
    Orders { own: Ordering::Relaxed, other: Ordering::Acquire, publish: Ordering::Release };

/// One order of all operations of all threads: more than it needs.
const STRICTEST: Orders =
    Orders { own: Ordering::SeqCst, other: Ordering::SeqCst, publish: Ordering::SeqCst };

// ANCHOR: push
#[inline(always)]
fn push(head: &AtomicUsize, tail: &AtomicUsize, slots: &[AtomicU64], item: u64, orders: Orders) -> bool {
    let at = tail.load(orders.own);
    if at.wrapping_sub(head.load(orders.other)) == slots.len() {
        return false;
    }
    if let Some(slot) = slots.get(at & (slots.len() - 1)) {
        slot.store(item, Ordering::Relaxed);
    }
    tail.store(at.wrapping_add(1), orders.publish);
    true
}
// ANCHOR_END: push

#[inline(always)]
fn pop(head: &AtomicUsize, tail: &AtomicUsize, slots: &[AtomicU64], orders: Orders) -> Option<u64> {
    let at = head.load(orders.own);
    if at == tail.load(orders.other) {
        return None;
    }
    let item = slots.get(at & (slots.len() - 1))?.load(Ordering::Relaxed);
    head.store(at.wrapping_add(1), orders.publish);
    Some(item)
}

/// Sends the numbers below `items`, each as soon as there is room.
#[inline(always)]
fn send(items: u64, mut push: impl FnMut(u64) -> bool) {
    for item in 0..items {
        let mut patience = Patience::new();
        while !push(item) {
            patience.pause();
        }
    }
}

/// Receives `items` numbers. The answer depends on each and on their order.
#[inline(always)]
fn receive(items: u64, mut pop: impl FnMut() -> Option<u64>) -> u64 {
    let mut answer = 0;
    for _ in 0..items {
        let mut patience = Patience::new();
        let item = loop {
            if let Some(item) = pop() {
                break item;
            }
            patience.pause();
        };
        answer = mix(answer, item);
    }
    answer
}

#[inline(always)]
const fn mix(answer: u64, item: u64) -> u64 {
    answer.rotate_left(1) ^ item
}

/// Sends through the first version.
#[inline(never)]
pub fn send_v1(queue: &V1, items: u64) {
    send(items, |item| push(&queue.head, &queue.tail, &queue.slots, item, ENOUGH));
}

/// Receives from the first version.
#[inline(never)]
pub fn receive_v1(queue: &V1, items: u64) -> u64 {
    receive(items, || pop(&queue.head, &queue.tail, &queue.slots, ENOUGH))
}

/// Sends through the second version.
#[inline(never)]
pub fn send_v2(queue: &V2, items: u64) {
    send(items, |item| push(&queue.head, &queue.tail, &queue.slots, item, ENOUGH));
}

/// Receives from the second version.
#[inline(never)]
pub fn receive_v2(queue: &V2, items: u64) -> u64 {
    receive(items, || pop(&queue.head, &queue.tail, &queue.slots, ENOUGH))
}

/// Sends through the second version with the strictest order.
#[inline(never)]
pub fn send_sequential(queue: &V2, items: u64) {
    send(items, |item| push(&queue.head, &queue.tail, &queue.slots, item, STRICTEST));
}

/// Receives from the second version with the strictest order.
#[inline(never)]
pub fn receive_sequential(queue: &V2, items: u64) -> u64 {
    receive(items, || pop(&queue.head, &queue.tail, &queue.slots, STRICTEST))
}

/// Sends through the product's ring, which keeps the other side's counter as it saw it last.
// ANCHOR: cached
#[inline(never)]
pub fn send_v3(producer: &mut spsc::Producer<u64>, items: u64) {
    send(items, |item| producer.try_push(item).is_ok());
}

/// Receives from the product's ring.
#[inline(never)]
pub fn receive_v3(consumer: &mut spsc::Consumer<u64>, items: u64) -> u64 {
    receive(items, || consumer.try_pop().ok())
}
// ANCHOR_END: cached

/// Sends through the product's ring, many items published at once.
#[inline(never)]
pub fn send_batches(producer: &mut spsc::Producer<u64>, items: u64) {
    let (mut next, mut patience) = (0, Patience::new());
    while next < items {
        let pushed = producer.push_batch(&mut (next..items.min(next + BATCH as u64))) as u64;
        if pushed == 0 {
            patience.pause();
        }
        next += pushed;
    }
}

/// Receives from the product's ring as many as are there.
#[inline(never)]
pub fn receive_batches(consumer: &mut spsc::Consumer<u64>, items: u64) -> u64 {
    let (mut answer, mut taken, mut patience) = (0, 0, Patience::new());
    while taken < items {
        let popped = consumer.pop_batch(BATCH, |item| answer = mix(answer, item)) as u64;
        if popped == 0 {
            patience.pause();
        }
        taken += popped;
    }
    answer
}

/// A list of items behind a lock.
#[derive(Debug)]
pub struct Locked {
    items: Mutex<VecDeque<u64>>,
    capacity: usize,
}

impl Locked {
    /// A queue of `capacity` items.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { items: Mutex::new(VecDeque::with_capacity(capacity)), capacity }
    }

    fn push(&self, item: u64) -> bool {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = items.len() < self.capacity;
        if has_room {
            items.push_back(item);
        }
        has_room
    }

    fn pop(&self) -> Option<u64> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let cores = lab.two_cores()?;
    throughput(lab, cores)?;
    round_trips(lab, cores)
}

fn throughput(lab: &mut Lab<'_>, cores: [usize; 2]) -> Result<(), Ended> {
    let items = lab.either(100_000, 5_000);
    let capacity = 1_024;
    lab.experiment("numbers from one thread to another, as many as go through", "number");
    lab.point(
        0.0,
        "",
        Variants::of(items)
            .add_reported("V1, counters side by side", |reporter| {
                let queue = CacheAligned::new(V1::new(capacity));
                let found = together(cores, || receive_v1(&queue, items), || send_v1(&queue, items));
                reporter.figure(found.ns_for_each(items));
                found.one
            })
            .add_reported("V2, padded", |reporter| {
                let queue = V2::new(capacity);
                let found = together(cores, || receive_v2(&queue, items), || send_v2(&queue, items));
                reporter.figure(found.ns_for_each(items));
                found.one
            })
            .add_reported("V2, sequentially consistent", |reporter| {
                let queue = V2::new(capacity);
                let found =
                    together(cores, || receive_sequential(&queue, items), || send_sequential(&queue, items));
                reporter.figure(found.ns_for_each(items));
                found.one
            })
            .add_reported("V3, padded, counters cached", |reporter| {
                let (mut producer, mut consumer) = spsc::ring(capacity);
                let found = together(
                    cores,
                    move || receive_v3(&mut consumer, items),
                    move || send_v3(&mut producer, items),
                );
                reporter.figure(found.ns_for_each(items));
                found.one
            })
            .add_reported("V3 in batches", |reporter| {
                let (mut producer, mut consumer) = spsc::ring(capacity);
                let found = together(
                    cores,
                    move || receive_batches(&mut consumer, items),
                    move || send_batches(&mut producer, items),
                );
                reporter.figure(found.ns_for_each(items));
                found.one
            })
            .add_reported("a lock and a list", |reporter| {
                let queue = Locked::new(capacity);
                let found = together(
                    cores,
                    || receive(items, || queue.pop()),
                    || send(items, |item| queue.push(item)),
                );
                reporter.figure(found.ns_for_each(items));
                found.one
            }),
    )
}

/// A number goes there and another comes back before the next goes: nothing waits in a queue. Each trip is timed.
fn trips(
    cores: [usize; 2],
    clock: &TscClock,
    trips: u64,
    reporter: &mut Reporter,
    mut there: (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send),
    mut back: (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send),
) -> u64 {
    let found = together(
        cores,
        move || {
            let (mut answer, mut times) = (0, Vec::with_capacity(trips as usize));
            for number in 0..trips {
                let began = clock.now();
                there.0(number);
                let mut patience = Patience::new();
                let home = loop {
                    if let Some(home) = back.1() {
                        break home;
                    }
                    patience.pause();
                };
                times.push(clock.nanoseconds(began, clock.now()));
                answer = mix(answer, home);
            }
            (answer, times)
        },
        move || {
            let mut answered = 0;
            let mut patience = Patience::new();
            while answered < trips {
                if let Some(number) = there.1() {
                    back.0(number + 1);
                    answered += 1;
                    patience = Patience::new();
                } else {
                    patience.pause();
                }
            }
        },
    );
    found.one.1.iter().for_each(|ns| reporter.operation_ns(*ns));
    found.one.0
}

fn round_trips(lab: &mut Lab<'_>, cores: [usize; 2]) -> Result<(), Ended> {
    let count = lab.either(5_000, 500);
    let clock = TscClock::new();
    lab.experiment("one number there and back, nothing else under way", "round trip");
    lab.point(
        0.0,
        "",
        Variants::of(count)
            .add_reported("V1, counters side by side", |reporter| {
                let (there, back) = (CacheAligned::new(V1::new(64)), CacheAligned::new(V1::new(64)));
                let queue = |queue: &V1, item| push(&queue.head, &queue.tail, &queue.slots, item, ENOUGH);
                let next = |queue: &V1| pop(&queue.head, &queue.tail, &queue.slots, ENOUGH);
                trips(
                    cores,
                    &clock,
                    count,
                    reporter,
                    (|item| queue(&there, item), || next(&there)),
                    (|item| queue(&back, item), || next(&back)),
                )
            })
            .add_reported("V2, padded", |reporter| {
                let (there, back) = (V2::new(64), V2::new(64));
                let queue = |queue: &V2, item| push(&queue.head, &queue.tail, &queue.slots, item, ENOUGH);
                let next = |queue: &V2| pop(&queue.head, &queue.tail, &queue.slots, ENOUGH);
                trips(
                    cores,
                    &clock,
                    count,
                    reporter,
                    (|item| queue(&there, item), || next(&there)),
                    (|item| queue(&back, item), || next(&back)),
                )
            })
            .add_reported("V2, sequentially consistent", |reporter| {
                let (there, back) = (V2::new(64), V2::new(64));
                let queue = |queue: &V2, item| push(&queue.head, &queue.tail, &queue.slots, item, STRICTEST);
                let next = |queue: &V2| pop(&queue.head, &queue.tail, &queue.slots, STRICTEST);
                trips(
                    cores,
                    &clock,
                    count,
                    reporter,
                    (|item| queue(&there, item), || next(&there)),
                    (|item| queue(&back, item), || next(&back)),
                )
            })
            .add_reported("V3, padded, counters cached", |reporter| {
                let ((mut out, mut there), (mut home, mut back)) =
                    (spsc::ring::<u64>(64), spsc::ring::<u64>(64));
                trips(
                    cores,
                    &clock,
                    count,
                    reporter,
                    (move |item| out.try_push(item).is_ok(), move || there.try_pop().ok()),
                    (move |item| home.try_push(item).is_ok(), move || back.try_pop().ok()),
                )
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 10,
    name: "spsc-queue",
    title: "A queue from one thread to one other",
    question: "What do padding and cached counters save a queue, and what does the strictest memory order cost it?",
    published: &[Published {
        source: "Erik Rigtorp, Optimizing a ring buffer for throughput",
        figure: "from 5.5 to 112 million items a second by caching the other side's counter",
    }],
    used: &[
        Use { path: "crates/ring/src/spsc.rs", what: "is the third version" },
        Use { path: "crates/flow/src/edge.rs", what: "passes packets between the threads of a flow" },
    ],
    assembly: &[
        Assembly {
            variant: "V2, padded",
            symbol: "tapeworks_lab::catalogue::spsc_queue::send_v2",
            marks: &["mov", "xchg", "pause"],
        },
        Assembly {
            variant: "V2, sequentially consistent",
            symbol: "tapeworks_lab::catalogue::spsc_queue::send_sequential",
            marks: &["mov", "xchg", "pause"],
        },
        Assembly {
            variant: "V3, padded, counters cached",
            symbol: "tapeworks_lab::catalogue::spsc_queue::send_v3",
            marks: &["mov", "prefetch", "pause"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_ring::cpu;

    use super::*;

    fn cores() -> [usize; 2] {
        let cores = cpu::allowed_cores().unwrap();
        [cores[0], *cores.last().unwrap()]
    }

    fn expected(items: u64) -> u64 {
        (0..items).fold(0, mix)
    }

    /// What all queues do when the steps come in this order: a push where `true`.
    fn steps(steps: &[bool], mut push: impl FnMut(u64) -> bool, mut pop: impl FnMut() -> Option<u64>) {
        let mut model = VecDeque::new();
        for (number, is_push) in (0u64..).zip(steps) {
            if *is_push {
                let has_room = model.len() < 8;
                assert_eq!(push(number), has_room);
                if has_room {
                    model.push_back(number);
                }
            } else {
                assert_eq!(pop(), model.pop_front());
            }
        }
    }

    proptest! {
        #[test]
        fn every_version_is_a_bounded_queue(order in prop::collection::vec(any::<bool>(), 0..200)) {
            for orders in [ENOUGH, STRICTEST] {
                let (one, two) = (V1::new(8), V2::new(8));
                steps(
                    &order,
                    |item| push(&one.head, &one.tail, &one.slots, item, orders),
                    || pop(&one.head, &one.tail, &one.slots, orders),
                );
                steps(
                    &order,
                    |item| push(&two.head, &two.tail, &two.slots, item, orders),
                    || pop(&two.head, &two.tail, &two.slots, orders),
                );
            }
            let (mut producer, mut consumer) = spsc::ring::<u64>(8);
            steps(&order, |item| producer.try_push(item).is_ok(), || consumer.try_pop().ok());
            let locked = Locked::new(8);
            steps(&order, |item| locked.push(item), || locked.pop());
        }
    }

    #[test]
    fn nothing_is_lost_between_two_threads() {
        for items in [0, 1, 255, 256, 257, 5_000] {
            let (one, two, strict) = (V1::new(64), V2::new(64), V2::new(64));
            assert_eq!(
                together(cores(), || receive_v1(&one, items), || send_v1(&one, items)).one,
                expected(items)
            );
            assert_eq!(
                together(cores(), || receive_v2(&two, items), || send_v2(&two, items)).one,
                expected(items)
            );
            let found =
                together(cores(), || receive_sequential(&strict, items), || send_sequential(&strict, items));
            assert_eq!(found.one, expected(items));
            let (mut producer, mut consumer) = spsc::ring(64);
            let found =
                together(cores(), || receive_v3(&mut consumer, items), || send_v3(&mut producer, items));
            assert_eq!(found.one, expected(items));
            let found = together(
                cores(),
                || receive_batches(&mut consumer, items),
                || send_batches(&mut producer, items),
            );
            assert_eq!(found.one, expected(items));
        }
    }
}
