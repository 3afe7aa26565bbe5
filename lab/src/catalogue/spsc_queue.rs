//! A single-producer, single-consumer queue in three versions, and with the strictest memory order.
//!
//! The items are numbers in atomics, read and written with relaxed order. That compiles to the same moves as a plain array, without
//! code that the compiler cannot check. The product's ring is measured too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tapeworks_ring::align::CacheAligned;
use tapeworks_ring::clock::TscClock;
use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::BusySpin;

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};
use crate::threads::{Patience, together};

/// The title of the experiment with many numbers in flight. A point's position on the axis is its number of slots.
pub const THROUGHPUT: &str = "numbers from one thread to another, as many as go through";
/// The title of the experiment with one number in flight.
pub const ROUND_TRIPS: &str = "one number there and back, nothing else under way";
/// The same experiment without a clock around each trip, which delays other work.
pub const ROUND_TRIPS_TOGETHER: &str = "one number there and back, one clock around all trips";

/// Items per batch.
pub const BATCH: usize = 256;

/// Slots of the queues that carry one number at a time.
pub const TRIP_SLOTS: usize = 64;

fn slots(capacity: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(AtomicU64::default).take(capacity.next_power_of_two()).collect()
}

/// The first version: two counters next to each other in one cache line.
// ANCHOR: baseline
#[derive(Debug)]
pub struct V1 {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[AtomicU64]>,
}
// ANCHOR_END: baseline

/// The second version: each counter in a separate cache line.
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

/// The memory orders of a queue's counters.
#[derive(Clone, Copy)]
struct Orders {
    own: Ordering,
    other: Ordering,
    publish: Ordering,
}

/// Acquire and release, which the queue needs.
const ENOUGH: Orders =
    Orders { own: Ordering::Relaxed, other: Ordering::Acquire, publish: Ordering::Release };

/// A single order of all operations in all threads, which is more than the queue needs.
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

/// The third version: the second version's counters, with each side caching the last value of the other side's counter.
// ANCHOR: cached
#[derive(Debug)]
pub struct V3 {
    queue: V2,
}

/// The side of the third version that sends.
#[derive(Debug)]
pub struct V3Sender<'q> {
    queue: &'q V2,
    seen_head: usize,
}

impl V3Sender<'_> {
    /// Sends a number; whether there was room.
    #[inline(always)]
    pub fn push(&mut self, item: u64) -> bool {
        let V2 { head, tail, slots } = self.queue;
        let at = tail.load(Ordering::Relaxed);
        if at.wrapping_sub(self.seen_head) == slots.len() {
            // Full, as far as it knows: only now it looks.
            self.seen_head = head.load(Ordering::Acquire);
            if at.wrapping_sub(self.seen_head) == slots.len() {
                return false;
            }
        }
        if let Some(slot) = slots.get(at & (slots.len() - 1)) {
            slot.store(item, Ordering::Relaxed);
        }
        tail.store(at.wrapping_add(1), Ordering::Release);
        true
    }
}
// ANCHOR_END: cached

/// The receiving side of the third version.
#[derive(Debug)]
pub struct V3Receiver<'q> {
    queue: &'q V2,
    seen_tail: usize,
}

impl V3Receiver<'_> {
    /// Takes the next number, if there is one.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<u64> {
        let V2 { head, tail, slots } = self.queue;
        let at = head.load(Ordering::Relaxed);
        if at == self.seen_tail {
            self.seen_tail = tail.load(Ordering::Acquire);
            if at == self.seen_tail {
                return None;
            }
        }
        let item = slots.get(at & (slots.len() - 1))?.load(Ordering::Relaxed);
        head.store(at.wrapping_add(1), Ordering::Release);
        Some(item)
    }
}

impl V3 {
    /// A queue of `capacity` items, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { queue: V2::new(capacity) }
    }

    /// Returns the two sides.
    pub fn sides(&mut self) -> (V3Sender<'_>, V3Receiver<'_>) {
        let (head, tail) = (self.queue.head.load(Ordering::Acquire), self.queue.tail.load(Ordering::Acquire));
        (V3Sender { queue: &self.queue, seen_head: head }, V3Receiver { queue: &self.queue, seen_tail: tail })
    }
}

/// Sends the numbers below `items`, each as soon as there is room.
#[inline(always)]
pub fn send(items: u64, mut push: impl FnMut(u64) -> bool) {
    for item in 0..items {
        let mut patience = Patience::new();
        while !push(item) {
            patience.pause();
        }
    }
}

/// Receives `items` numbers. The answer depends on each and on their order.
#[inline(always)]
pub fn receive(items: u64, mut pop: impl FnMut() -> Option<u64>) -> u64 {
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

/// Returns the answer after one more number.
#[inline(always)]
#[must_use]
pub const fn mix(answer: u64, item: u64) -> u64 {
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

/// Sends through the third version.
#[inline(never)]
pub fn send_v3(sender: &mut V3Sender<'_>, items: u64) {
    send(items, |item| sender.push(item));
}

/// Receives from the third version.
#[inline(never)]
pub fn receive_v3(receiver: &mut V3Receiver<'_>, items: u64) -> u64 {
    receive(items, || receiver.pop())
}

/// Sends through the product's ring.
// ANCHOR: ring
#[inline(never)]
pub fn send_ring(producer: &mut spsc::Producer<u64>, items: u64) {
    send(items, |item| producer.try_push(item).is_ok());
}

/// Receives from the product's ring.
#[inline(never)]
pub fn receive_ring(consumer: &mut spsc::Consumer<u64>, items: u64) -> u64 {
    receive(items, || consumer.try_pop().ok())
}
// ANCHOR_END: ring

/// Sends through the product's ring, which waits for room internally.
#[inline(never)]
pub fn send_waiting(producer: &mut spsc::Producer<u64>, items: u64) {
    // If the receiver has been dropped, the answer differs.
    let _is_whole = (0..items).all(|item| producer.push(item).is_ok());
}

/// Receives from the product's ring, which waits for items internally.
#[inline(never)]
pub fn receive_waiting(consumer: &mut spsc::Consumer<u64>, items: u64) -> u64 {
    (0..items).map_while(|_| consumer.pop().ok()).fold(0, mix)
}

/// Sends through the product's ring, publishing many items at a time.
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

/// Receives all available items from the product's ring at a time.
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

/// Sends through the product's ring, copying a slice at a time.
#[inline(never)]
pub fn send_slices(producer: &mut spsc::Producer<u64>, items: u64) {
    let (mut next, mut part, mut patience) = (0, [0; BATCH], Patience::new());
    while next < items {
        let count = BATCH.min((items - next) as usize);
        part.iter_mut().zip(next..).for_each(|(place, number)| *place = number);
        let mut rest = part.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            let pushed = producer.push_slice(rest);
            if pushed == 0 {
                patience.pause();
            }
            rest = rest.get(pushed..).unwrap_or_default();
        }
        next += count as u64;
    }
}

/// Receives from the product's ring, copying a slice at a time.
#[inline(never)]
pub fn receive_slices(consumer: &mut spsc::Consumer<u64>, items: u64) -> u64 {
    let (mut answer, mut taken, mut part, mut patience) = (0, 0, [0; BATCH], Patience::new());
    while taken < items {
        let popped = consumer.pop_slice(&mut part);
        if popped == 0 {
            patience.pause();
        }
        answer = part.iter().take(popped).fold(answer, |answer, item| mix(answer, *item));
        taken += popped as u64;
    }
    answer
}

/// A locked list of items.
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

/// One thread sends numbers with `push`, the other receives them with `pop`. Each side's state moves to its thread, because here the two
/// would share cache lines.
pub fn pass(
    cores: [usize; 2],
    items: u64,
    reporter: &mut Reporter,
    push: impl FnMut(u64) -> bool + Send,
    pop: impl FnMut() -> Option<u64> + Send,
) -> u64 {
    between(cores, items, reporter, move || receive(items, pop), move || send(items, push))
}

/// Runs two threads and returns the first one's answer.
pub fn between(
    cores: [usize; 2],
    items: u64,
    reporter: &mut Reporter,
    receive: impl FnOnce() -> u64 + Send,
    send: impl FnOnce() + Send,
) -> u64 {
    let found = together(cores, receive, send);
    reporter.figure(found.ns_for_each(items));
    found.one
}

/// Runs the two sides of the product's ring on `items` numbers.
fn through_ring(
    (cores, items, capacity): ([usize; 2], u64, usize),
    reporter: &mut Reporter,
    receive: fn(&mut spsc::Consumer<u64>, u64) -> u64,
    send: fn(&mut spsc::Producer<u64>, u64),
) -> u64 {
    let (mut producer, mut consumer) = spsc::ring(capacity);
    between(cores, items, reporter, move || receive(&mut consumer, items), move || send(&mut producer, items))
}

fn throughput(lab: &mut Lab<'_>, cores: [usize; 2]) -> Result<(), Ended> {
    lab.experiment(THROUGHPUT, "number");
    lab.along("slots", Scale::Names);
    for (capacity, items) in lab.either(vec![(1_024, 100_000), (131_072, 1_000_000)], vec![(1_024, 5_000)]) {
        let shape = (cores, items, capacity);
        lab.point(
            capacity as f64,
            &format!("{capacity} slots"),
            Variants::of(items)
                .add_reported("V1, counters side by side", |reporter| {
                    let queue = CacheAligned::new(V1::new(capacity));
                    between(cores, items, reporter, || receive_v1(&queue, items), || send_v1(&queue, items))
                })
                .add_reported("V2, padded", |reporter| {
                    let queue = V2::new(capacity);
                    between(cores, items, reporter, || receive_v2(&queue, items), || send_v2(&queue, items))
                })
                .add_reported("V2, sequentially consistent", |reporter| {
                    let queue = V2::new(capacity);
                    let receive = || receive_sequential(&queue, items);
                    between(cores, items, reporter, receive, || send_sequential(&queue, items))
                })
                .add_reported("V3, padded, counters cached", |reporter| {
                    let mut queue = V3::new(capacity);
                    let (mut sender, mut receiver) = queue.sides();
                    let receive = move || receive_v3(&mut receiver, items);
                    between(cores, items, reporter, receive, move || send_v3(&mut sender, items))
                })
                .add_reported("the product's ring", |reporter| {
                    through_ring(shape, reporter, receive_ring, send_ring)
                })
                .add_reported("the product's ring, which waits", |reporter| {
                    through_ring(shape, reporter, receive_waiting, send_waiting)
                })
                .add_reported("the product's ring in batches", |reporter| {
                    through_ring(shape, reporter, receive_batches, send_batches)
                })
                .add_reported("the product's ring in slices", |reporter| {
                    through_ring(shape, reporter, receive_slices, send_slices)
                })
                .add_reported("a lock and a list", |reporter| {
                    let queue = Locked::new(capacity);
                    pass(cores, items, reporter, |item| queue.push(item), || queue.pop())
                }),
        )?;
    }
    Ok(())
}

/// How trips are timed.
#[derive(Clone, Copy, Debug)]
pub struct Trips<'c> {
    /// The cores of the two threads.
    pub cores: [usize; 2],
    /// The clock around each trip; without one, the figure covers all trips together.
    pub clock: Option<&'c TscClock>,
    /// The number of trips.
    pub count: u64,
}

impl Trips<'_> {
    /// Sends a number there and another one back before the next trip: nothing queues up. Each direction is a pair of push and pop.
    pub fn travel(
        self,
        reporter: &mut Reporter,
        mut there: (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send),
        mut back: (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send),
    ) -> u64 {
        let Self { cores, clock, count } = self;
        let found = together(
            cores,
            move || {
                let (mut answer, mut times) = (0, Vec::with_capacity(count as usize));
                for number in 0..count {
                    let began = clock.map(TscClock::now);
                    there.0(number);
                    let mut patience = Patience::new();
                    let home = loop {
                        if let Some(home) = back.1() {
                            break home;
                        }
                        patience.pause();
                    };
                    if let Some((clock, began)) = clock.zip(began) {
                        times.push(clock.nanoseconds(began, clock.now()));
                    }
                    answer = mix(answer, home);
                }
                (answer, times)
            },
            move || {
                let mut answered = 0;
                let mut patience = Patience::new();
                while answered < count {
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
        if clock.is_none() {
            reporter.figure(found.ns_for_each(count));
        }
        found.one.1.iter().for_each(|ns| reporter.operation_ns(*ns));
        found.one.0
    }
}

/// Carries numbers there and back.
type Carrier = fn(Trips<'_>, &mut Reporter) -> u64;

/// The carriers, by name.
const CARRIERS: [(&str, Carrier); 7] = [
    ("V1, counters side by side", |trips, reporter| {
        let (there, back) = (CacheAligned::new(V1::new(TRIP_SLOTS)), CacheAligned::new(V1::new(TRIP_SLOTS)));
        let queue = |queue: &V1, item| push(&queue.head, &queue.tail, &queue.slots, item, ENOUGH);
        let next = |queue: &V1| pop(&queue.head, &queue.tail, &queue.slots, ENOUGH);
        trips.travel(
            reporter,
            (|item| queue(&there, item), || next(&there)),
            (|item| queue(&back, item), || next(&back)),
        )
    }),
    ("V2, padded", |trips, reporter| padded(trips, reporter, ENOUGH)),
    ("V2, sequentially consistent", |trips, reporter| padded(trips, reporter, STRICTEST)),
    ("V3, padded, counters cached", |trips, reporter| {
        let (mut there, mut back) = (V3::new(TRIP_SLOTS), V3::new(TRIP_SLOTS));
        let ((mut out, mut there), (mut home, mut back)) = (there.sides(), back.sides());
        trips.travel(
            reporter,
            (move |item| out.push(item), move || there.pop()),
            (move |item| home.push(item), move || back.pop()),
        )
    }),
    ("the product's ring", |trips, reporter| {
        let ((mut out, mut there), (mut home, mut back)) =
            (spsc::ring::<u64>(TRIP_SLOTS), spsc::ring::<u64>(TRIP_SLOTS));
        trips.travel(
            reporter,
            (move |item| out.try_push(item).is_ok(), move || there.try_pop().ok()),
            (move |item| home.try_push(item).is_ok(), move || back.try_pop().ok()),
        )
    }),
    ("the product's Disruptor", by_disruptor),
    ("a bare cache line", |trips, reporter| {
        let lines = [(); 2].map(|()| CacheAligned::new(AtomicU64::new(0)));
        let [there, back] = &lines;
        // A number in the line is stored as its successor, because 0 means "none".
        let take = |line: &AtomicU64, seen: &mut u64| {
            let found = line.load(Ordering::Acquire);
            (found != *seen).then(|| {
                *seen = found;
                found - 1
            })
        };
        let (mut seen_there, mut seen_back) = (0, 0);
        let put = |line: &AtomicU64, number: u64| {
            line.store(number + 1, Ordering::Release);
            true
        };
        trips.travel(
            reporter,
            (|number| put(there, number), move || take(there, &mut seen_there)),
            (|number| put(back, number), move || take(back, &mut seen_back)),
        )
    }),
];

fn padded(trips: Trips<'_>, reporter: &mut Reporter, orders: Orders) -> u64 {
    let (there, back) = (V2::new(TRIP_SLOTS), V2::new(TRIP_SLOTS));
    let queue = |queue: &V2, item| push(&queue.head, &queue.tail, &queue.slots, item, orders);
    let next = |queue: &V2| pop(&queue.head, &queue.tail, &queue.slots, orders);
    trips.travel(
        reporter,
        (|item| queue(&there, item), || next(&there)),
        (|item| queue(&back, item), || next(&back)),
    )
}

fn by_disruptor(trips: Trips<'_>, reporter: &mut Reporter) -> u64 {
    let ring = || {
        let mut graph = Builder::new(TRIP_SLOTS, || 0u64, || BusySpin);
        let id = graph.consumer("reads", &[]);
        let (producer, mut ends) = graph.single_producer();
        Some((producer, ends.take(id)?))
    };
    // A consumer can be taken only once, which happens here.
    let Some(((mut out, mut there), (mut home, mut back))) = ring().zip(ring()) else { return 0 };
    trips.travel(
        reporter,
        (
            move |item| out.try_publish(|event| *event = item).is_ok(),
            move || {
                let mut number = None;
                there.poll(|event, _, _| number = Some(*event)).ok()?;
                number
            },
        ),
        (
            move |item| home.try_publish(|event| *event = item).is_ok(),
            move || {
                let mut number = None;
                back.poll(|event, _, _| number = Some(*event)).ok()?;
                number
            },
        ),
    )
}

fn round_trips(lab: &mut Lab<'_>, cores: [usize; 2]) -> Result<(), Ended> {
    let count = lab.either(5_000, 500);
    let clock = TscClock::new();
    for (title, clock) in [(ROUND_TRIPS, Some(&clock)), (ROUND_TRIPS_TOGETHER, None)] {
        lab.experiment(title, "round trip");
        let trips = Trips { cores, clock, count };
        let variants = CARRIERS.iter().fold(Variants::of(count), |variants, (name, carry)| {
            variants.add_reported(name, move |reporter| carry(trips, reporter))
        });
        lab.point(0.0, "", variants)?;
    }
    Ok(())
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
        Use { path: "crates/base/ring/src/spsc.rs", what: "is the third version, and prefetches" },
        Use { path: "crates/packets/flow/src/edge.rs", what: "passes packets between the threads of a flow" },
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
            marks: &["mov", "pause"],
        },
        Assembly {
            variant: "the product's ring",
            symbol: "tapeworks_lab::catalogue::spsc_queue::send_ring",
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

    /// Runs pushes (where `true`) and pops in this order; every queue must behave identically.
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
            let mut three = V3::new(8);
            let (mut sender, mut receiver) = three.sides();
            steps(&order, |item| sender.push(item), || receiver.pop());
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
            let mut three = V3::new(64);
            let (mut sender, mut receiver) = three.sides();
            let found =
                together(cores(), || receive_v3(&mut receiver, items), || send_v3(&mut sender, items));
            assert_eq!(found.one, expected(items));
            type Ways = [(fn(&mut spsc::Consumer<u64>, u64) -> u64, fn(&mut spsc::Producer<u64>, u64)); 4];
            let ways: Ways = [
                (receive_ring, send_ring),
                (receive_waiting, send_waiting),
                (receive_batches, send_batches),
                (receive_slices, send_slices),
            ];
            let (mut producer, mut consumer) = spsc::ring(64);
            for (receive, send) in ways {
                let found =
                    together(cores(), || receive(&mut consumer, items), || send(&mut producer, items));
                assert_eq!(found.one, expected(items));
            }
        }
    }

    #[test]
    fn every_carrier_brings_every_number_back() {
        let mut quiet = |_: &str| {};
        let settings = crate::measure::Settings { rounds: 1, ..crate::measure::Settings::QUICK };
        let mut lab = Lab::new(settings, &cores(), 0.0, &mut quiet, &|| false);
        // Different answers are an error.
        round_trips(&mut lab, cores()).unwrap();
        let (experiments, _) = lab.into_results();
        assert_eq!(experiments.len(), 2);
    }
}
