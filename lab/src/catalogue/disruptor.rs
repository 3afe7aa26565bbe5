//! Stages that share one ring and read in place, compared with stages connected by queues, in five shapes.
//!
//! Two threads spin on two cores. The other shapes have three or four threads, so a waiting thread yields.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tapeworks_ring::disruptor::{Builder, Consumer, Publication};
use tapeworks_ring::spsc;
use tapeworks_ring::wait::{BusySpin, WaitStrategy, Yielding};

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::technique::{Assembly, Published, Technique, Use};
use crate::threads::keep_on;

/// The title of the experiment with two threads.
pub const ONE_TO_ONE: &str = "one to one: two threads that spin";
/// The title of the experiment with threads in a row.
pub const PIPELINE: &str = "a pipeline: three threads in a row";
/// The title of the experiment with several consumers.
pub const ONE_TO_MANY: &str = "one to many: two consumers want every event";
/// The title of the experiment with a consumer after two others.
pub const DIAMOND: &str = "a diamond: the last consumer follows two others";
/// The title of the experiment with several producers.
pub const MANY_TO_ONE: &str = "many to one: two producers";

/// Slots of every ring and queue.
pub const CAPACITY: usize = 1_024;

/// Events claimed at a time by the batch variants.
pub const BATCH: u64 = 64;

/// A bounded queue behind a lock, with a condition for each side, like an `ArrayBlockingQueue`.
// ANCHOR: locked
#[derive(Debug)]
pub struct Locked {
    state: Mutex<LockedState>,
    has_items: Condvar,
    has_room: Condvar,
}

#[derive(Debug)]
struct LockedState {
    items: VecDeque<u64>,
    is_closed: bool,
}

impl Locked {
    /// Adds an item, and waits for room before.
    pub fn push(&self, item: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.items.len() == CAPACITY {
            state = self.has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.items.push_back(item);
        drop(state);
        self.has_items.notify_one();
    }

    /// The next item; `None` when the queue is closed and empty.
    pub fn pop(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.items.is_empty() && !state.is_closed {
            state = self.has_items.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let item = state.items.pop_front();
        drop(state);
        self.has_room.notify_one();
        item
    }
}
// ANCHOR_END: locked

impl Locked {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let state = LockedState { items: VecDeque::with_capacity(CAPACITY), is_closed: false };
        Self { state: Mutex::new(state), has_items: Condvar::new(), has_room: Condvar::new() }
    }

    /// No more items come.
    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.has_items.notify_all();
    }
}

impl Default for Locked {
    fn default() -> Self {
        Self::new()
    }
}

/// The first stage of a pipeline.
const fn first(event: u64) -> u64 {
    event.wrapping_mul(3).wrapping_add(1)
}

/// The last stage of every shape. The answer depends on each event and, with one producer, on their order.
#[must_use]
pub const fn mix(answer: u64, event: u64) -> u64 {
    answer.rotate_left(1) ^ event
}

/// Several producers interleave at random, so this sum depends on each event but not on the order.
const fn add(answer: u64, event: u64) -> u64 {
    answer.wrapping_add(first(event))
}

/// One producer and one consumer, connected by a queue.
#[inline(never)]
#[must_use]
pub fn one_to_one_by_queue(events: u64, cores: [usize; 2]) -> u64 {
    let (mut producer, mut consumer) = spsc::with_wait::<u64, BusySpin>(CAPACITY);
    on_two(
        cores,
        move || (0..events).all(|event| producer.push(event).is_ok()),
        move || std::iter::from_fn(|| consumer.pop().ok()).fold(0, mix),
    )
}

/// One producer and one consumer, connected by a queue; events are published and taken in batches.
#[inline(never)]
#[must_use]
pub fn one_to_one_by_queue_in_batches(events: u64, cores: [usize; 2]) -> u64 {
    let (mut producer, mut consumer) = spsc::with_wait::<u64, BusySpin>(CAPACITY);
    let send = move || {
        let mut next = 0;
        while next < events {
            let pushed = producer.push_batch(&mut (next..events.min(next + BATCH))) as u64;
            if pushed == 0 {
                spin_loop();
            }
            next += pushed;
        }
        true
    };
    on_two(cores, send, move || {
        let (mut answer, mut taken) = (0, 0);
        while taken < events {
            let popped = consumer.pop_batch(CAPACITY, |event| answer = mix(answer, event)) as u64;
            if popped == 0 {
                spin_loop();
            }
            taken += popped;
        }
        answer
    })
}

/// One producer and one consumer, connected by a ring.
#[inline(never)]
#[must_use]
pub fn one_to_one_by_ring(events: u64, cores: [usize; 2]) -> u64 {
    one_to_one(events, cores, 1)
}

/// One producer and one consumer on a ring; the producer claims many events at a time.
#[inline(never)]
#[must_use]
pub fn one_to_one_by_ring_in_batches(events: u64, cores: [usize; 2]) -> u64 {
    one_to_one(events, cores, BATCH)
}

/// One producer and one consumer on a ring that supports several producers.
#[inline(never)]
#[must_use]
pub fn one_to_one_by_shared_ring(events: u64, cores: [usize; 2]) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, || BusySpin);
    let sink = graph.consumer("sink", &[]);
    let (mut producer, mut ends) = graph.multi_producer();
    let sink = ends.take(sink);
    drop(ends);
    let send = move || (0..events).all(|number| producer.publish(|event| *event = number).is_ok());
    on_two(cores, send, move || sink.map_or(0, |sink| folded(sink, mix)))
}

fn one_to_one(events: u64, cores: [usize; 2], batch: u64) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, || BusySpin);
    let sink = graph.consumer("sink", &[]);
    let (mut producer, mut ends) = graph.single_producer();
    let sink = ends.take(sink);
    drop(ends);
    let send = move || {
        let mut next = 0;
        while next < events {
            let count = batch.min(events - next);
            let published = if batch == 1 {
                producer.publish(|event| *event = next).is_ok()
            } else {
                producer.publish_batch(count as usize, |at, event| *event = next + at as u64).is_ok()
            };
            if !published {
                return false;
            }
            next += count;
        }
        true
    };
    on_two(cores, send, move || sink.map_or(0, |sink| folded(sink, mix)))
}

/// Runs a producer and a consumer, each on its core. The consumer ends after the producer ends.
fn on_two(
    cores: [usize; 2],
    send: impl FnOnce() -> bool + Send,
    receive: impl FnOnce() -> u64 + Send,
) -> u64 {
    // A new thread starts on its creator's core. On the receiver's core it would wait until the spinning receiver's time slice ends.
    keep_on(cores[1]);
    thread::scope(|scope| {
        scope.spawn(send);
        keep_on(cores[0]);
        receive()
    })
}

/// A pipeline of three threads, connected by two queues behind locks.
#[inline(never)]
#[must_use]
pub fn pipeline_by_locks(events: u64, cores: [usize; 2]) -> u64 {
    let (one, two) = (Locked::new(), Locked::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            keep_on(cores[0]);
            while let Some(event) = one.pop() {
                two.push(first(event));
            }
            two.close();
        });
        scope.spawn(|| {
            keep_on(cores[1]);
            (0..events).for_each(|event| one.push(event));
            one.close();
        });
        keep_on(cores[1]);
        std::iter::from_fn(|| two.pop()).fold(0, mix)
    })
}

/// A pipeline of three threads, connected by two queues of one producer and one consumer.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn pipeline_by_queues(events: u64, cores: [usize; 2]) -> u64 {
    let (mut producer, mut source) = spsc::with_wait::<u64, Yielding>(CAPACITY);
    let (mut sink, mut consumer) = spsc::with_wait::<u64, Yielding>(CAPACITY);
    thread::scope(|scope| {
        scope.spawn(move || {
            keep_on(cores[0]);
            while let Ok(event) = source.pop() {
                if sink.push(first(event)).is_err() {
                    return;
                }
            }
        });
        scope.spawn(move || {
            keep_on(cores[1]);
            (0..events).all(|event| producer.push(event).is_ok())
        });
        keep_on(cores[1]);
        std::iter::from_fn(|| consumer.pop().ok()).fold(0, mix)
    })
}
// ANCHOR_END: baseline

/// A pipeline of three threads on one ring: the first stage changes the event in place.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn pipeline_by_ring(events: u64, cores: [usize; 2]) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let stage = graph.mutator("first", &[]);
    let sink = graph.consumer("sink", &[stage]);
    let (mut producer, mut ends) = graph.single_producer();
    let (stage, sink) = (ends.take(stage), ends.take(sink));
    drop(ends);
    thread::scope(|scope| {
        scope.spawn(move || {
            keep_on(cores[0]);
            // Nobody panics here; a ring that failed ends the sink too, with another answer.
            stage.map(|mut stage| stage.run_mut(|event, _, _| *event = first(*event)).is_ok())
        });
        scope.spawn(move || {
            keep_on(cores[1]);
            (0..events).all(|number| producer.publish(|event| *event = number).is_ok())
        });
        keep_on(cores[1]);
        sink.map_or(0, |sink| folded(sink, mix))
    })
}
// ANCHOR_END: variant

/// Folds all events received.
fn folded<W: WaitStrategy, P: Publication>(
    mut consumer: Consumer<u64, W, P>,
    fold: impl Fn(u64, u64) -> u64,
) -> u64 {
    let mut answer = 0;
    match consumer.run(|event, _, _| answer = fold(answer, *event)) {
        Ok(()) => answer,
        Err(_) => !answer,
    }
}

/// One producer and two consumers that both want every event: one queue behind a lock for each.
#[inline(never)]
#[must_use]
pub fn one_to_many_by_locks(events: u64, cores: [usize; 2]) -> u64 {
    let queues = [Locked::new(), Locked::new()];
    thread::scope(|scope| {
        let [one, two] = &queues;
        let other = scope.spawn(|| {
            keep_on(cores[0]);
            std::iter::from_fn(|| two.pop()).fold(0, mix)
        });
        scope.spawn(|| {
            keep_on(cores[1]);
            for event in 0..events {
                queues.iter().for_each(|queue| queue.push(event));
            }
            queues.iter().for_each(Locked::close);
        });
        keep_on(cores[1]);
        let own = std::iter::from_fn(|| one.pop()).fold(0, mix);
        own.wrapping_mul(3) ^ joined(other)
    })
}

/// One producer and two consumers, with a queue of one producer and one consumer for each.
#[inline(never)]
#[must_use]
pub fn one_to_many_by_queues(events: u64, cores: [usize; 2]) -> u64 {
    let (mut first_producer, mut one) = spsc::with_wait::<u64, Yielding>(CAPACITY);
    let (mut second_producer, mut two) = spsc::with_wait::<u64, Yielding>(CAPACITY);
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            keep_on(cores[0]);
            std::iter::from_fn(|| two.pop().ok()).fold(0, mix)
        });
        scope.spawn(move || {
            keep_on(cores[1]);
            (0..events).all(|event| first_producer.push(event).is_ok() && second_producer.push(event).is_ok())
        });
        keep_on(cores[1]);
        let own = std::iter::from_fn(|| one.pop().ok()).fold(0, mix);
        own.wrapping_mul(3) ^ joined(other)
    })
}

/// One producer and two consumers that both read one ring.
#[inline(never)]
#[must_use]
pub fn one_to_many_by_ring(events: u64, cores: [usize; 2]) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let (one, two) = (graph.consumer("one", &[]), graph.consumer("two", &[]));
    let (mut producer, mut ends) = graph.single_producer();
    let (one, two) = (ends.take(one), ends.take(two));
    drop(ends);
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            keep_on(cores[0]);
            two.map_or(0, |two| folded(two, mix))
        });
        scope.spawn(move || {
            keep_on(cores[1]);
            (0..events).all(|number| producer.publish(|event| *event = number).is_ok())
        });
        keep_on(cores[1]);
        let own = one.map_or(0, |one| folded(one, mix));
        own.wrapping_mul(3) ^ joined(other)
    })
}

/// One producer, two consumers of every event, and a third after both: four queues of one producer and one consumer.
#[inline(never)]
#[must_use]
pub fn diamond_by_queues(events: u64, cores: [usize; 2]) -> u64 {
    let queue = || spsc::with_wait::<u64, Yielding>(CAPACITY);
    let ((mut to_left, left_in), (mut to_right, right_in)) = (queue(), queue());
    let ((left_out, mut from_left), (right_out, mut from_right)) = (queue(), queue());
    thread::scope(|scope| {
        for (core, mut source, mut sink) in [(0, left_in, left_out), (1, right_in, right_out)] {
            let core = cores.get(core).copied().unwrap_or_default();
            scope.spawn(move || {
                keep_on(core);
                let mut answer = 0u64;
                while let Ok(event) = source.pop() {
                    answer = mix(answer, event);
                    if sink.push(event).is_err() {
                        break;
                    }
                }
                answer
            });
        }
        scope.spawn(move || {
            keep_on(cores[1]);
            (0..events).all(|event| to_left.push(event).is_ok() && to_right.push(event).is_ok())
        });
        keep_on(cores[0]);
        let both = || {
            let event = from_left.pop().ok()?;
            from_right.pop().ok().filter(|other| *other == event)
        };
        std::iter::from_fn(both).fold(0, mix)
    })
}

/// The diamond on one ring.
#[inline(never)]
#[must_use]
pub fn diamond_by_ring(events: u64, cores: [usize; 2]) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let (left, right) = (graph.consumer("left", &[]), graph.consumer("right", &[]));
    let sink = graph.consumer("sink", &[left, right]);
    let (mut producer, mut ends) = graph.single_producer();
    let (left, right, sink) = (ends.take(left), ends.take(right), ends.take(sink));
    drop(ends);
    thread::scope(|scope| {
        for (core, consumer) in [(cores[0], left), (cores[1], right)] {
            scope.spawn(move || {
                keep_on(core);
                consumer.map_or(0, |consumer| folded(consumer, mix))
            });
        }
        scope.spawn(move || {
            keep_on(cores[1]);
            (0..events).all(|number| producer.publish(|event| *event = number).is_ok())
        });
        keep_on(cores[0]);
        sink.map_or(0, |sink| folded(sink, mix))
    })
}

/// Two producers and one consumer, connected by one queue behind a lock.
#[inline(never)]
#[must_use]
pub fn many_to_one_by_locks(events: u64, cores: [usize; 2]) -> u64 {
    let queue = Locked::new();
    thread::scope(|scope| {
        let producers = cores.map(|core| {
            let queue = &queue;
            scope.spawn(move || {
                keep_on(core);
                (0..events / 2).for_each(|event| queue.push(event));
            })
        });
        scope.spawn(|| {
            producers.into_iter().for_each(joined);
            queue.close();
        });
        keep_on(cores[1]);
        std::iter::from_fn(|| queue.pop()).fold(0, add)
    })
}

/// Two producers and one consumer, with a queue for each producer: the consumer polls them in turn.
#[inline(never)]
#[must_use]
pub fn many_to_one_by_queues(events: u64, cores: [usize; 2]) -> u64 {
    let queues = cores.map(|core| (core, spsc::with_wait::<u64, Yielding>(CAPACITY)));
    thread::scope(|scope| {
        let mut consumers = queues.map(|(core, (mut producer, consumer))| {
            scope.spawn(move || {
                keep_on(core);
                (0..events / 2).all(|event| producer.push(event).is_ok())
            });
            consumer
        });
        keep_on(cores[1]);
        let (mut answer, mut open) = (0, consumers.len());
        while open > 0 {
            let mut taken = 0;
            for consumer in &mut consumers {
                taken += consumer.pop_batch(CAPACITY, |event| answer = add(answer, event));
            }
            if taken == 0 {
                open = consumers.iter().filter(|consumer| !consumer.is_closed()).count();
                thread::yield_now();
            }
        }
        answer
    })
}

/// Two producers and one consumer on one ring for several producers.
#[inline(never)]
#[must_use]
pub fn many_to_one_by_ring(events: u64, cores: [usize; 2]) -> u64 {
    many_to_one(events, cores, 1)
}

/// Two producers and one consumer on one ring; each producer claims many events at a time.
#[inline(never)]
#[must_use]
pub fn many_to_one_by_ring_in_batches(events: u64, cores: [usize; 2]) -> u64 {
    many_to_one(events, cores, BATCH)
}

fn many_to_one(events: u64, cores: [usize; 2], batch: u64) -> u64 {
    let mut graph = Builder::new(CAPACITY, || 0u64, Yielding::default);
    let sink = graph.consumer("sink", &[]);
    let (producer, mut ends) = graph.multi_producer();
    let sink = ends.take(sink);
    drop(ends);
    thread::scope(|scope| {
        for core in cores {
            let mut producer = producer.clone();
            scope.spawn(move || {
                keep_on(core);
                let (mut next, end) = (0, events / 2);
                while next < end {
                    let count = batch.min(end - next);
                    let published = if count == 1 {
                        producer.publish(|event| *event = next).is_ok()
                    } else {
                        producer.publish_batch(count as usize, |at, event| *event = next + at as u64).is_ok()
                    };
                    if !published {
                        return;
                    }
                    next += count;
                }
            });
        }
        // The ring closes with its last producer, which must be one of the threads' producers.
        drop(producer);
        keep_on(cores[1]);
        sink.map_or(0, |sink| folded(sink, add))
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

type Shape = fn(u64, [usize; 2]) -> u64;

/// The variants of a shape, by name.
type Ways<'w> = &'w [(&'w str, Shape)];

/// Runs a shape on a separate thread, because the shape pins its threads to other cores.
fn timed(reporter: &mut Reporter, shape: Shape, events: u64, cores: [usize; 2]) -> u64 {
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let began = Instant::now();
            let answer = shape(events, cores);
            (answer, began.elapsed())
        });
        let (answer, took) = joined(thread);
        reporter.figure(took.as_nanos() as f64 / events as f64);
        answer
    })
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let cores = lab.two_cores()?;
    let (many, events) = lab.either((1_000_000, 50_000), (4_000, 4_000));
    let shapes: [(&str, u64, Ways<'_>); 5] = [
        (
            ONE_TO_ONE,
            many,
            &[
                ("SPSC queue", one_to_one_by_queue),
                ("Disruptor", one_to_one_by_ring),
                ("SPSC queue in batches", one_to_one_by_queue_in_batches),
                ("Disruptor in batches", one_to_one_by_ring_in_batches),
                ("Disruptor for several producers", one_to_one_by_shared_ring),
            ],
        ),
        (
            PIPELINE,
            events,
            &[
                ("queues with locks", pipeline_by_locks),
                ("SPSC queues", pipeline_by_queues),
                ("Disruptor", pipeline_by_ring),
            ],
        ),
        (
            ONE_TO_MANY,
            events,
            &[
                ("queues with locks", one_to_many_by_locks),
                ("SPSC queues", one_to_many_by_queues),
                ("Disruptor", one_to_many_by_ring),
            ],
        ),
        (DIAMOND, events, &[("SPSC queues", diamond_by_queues), ("Disruptor", diamond_by_ring)]),
        (
            MANY_TO_ONE,
            events,
            &[
                ("queues with locks", many_to_one_by_locks),
                ("SPSC queues", many_to_one_by_queues),
                ("Disruptor", many_to_one_by_ring),
                ("Disruptor in batches", many_to_one_by_ring_in_batches),
            ],
        ),
    ];
    for (title, events, ways) in shapes {
        lab.experiment(title, "event");
        let mut variants = Variants::of(events);
        for (name, shape) in ways {
            variants = variants.add_reported(name, |reporter| timed(reporter, *shape, events, cores));
        }
        lab.point(0.0, "", variants)?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 11,
    name: "disruptor",
    title: "The Disruptor against queues",
    question: "Is one ring that all stages read in place faster than queues between the stages?",
    published: &[
        Published {
            source: "Thompson et al., LMAX Disruptor, 2011, abstract",
            figure: "three-stage pipeline: mean latency 3 orders of magnitude lower and some 8 times the throughput of \
                     queues (Java's ArrayBlockingQueue)",
        },
        Published {
            source: "Bilokon and Gunduz, 0burak/imperial_hft, distuptor/disruptor_benchmark",
            figure: "their Disruptor beats a std::queue behind a mutex; 1,000 strings an iteration, and only the publishing \
                     is timed for the Disruptor",
        },
    ],
    used: &[
        Use { path: "crates/base/ring/src/disruptor.rs", what: "is the ring" },
        Use { path: "crates/packets/flow/src/edge.rs", what: "joins stages of a flow by either" },
    ],
    assembly: &[Assembly {
        variant: "Disruptor",
        symbol: "tapeworks_lab::catalogue::disruptor::pipeline_by_ring",
        marks: &["lock", "xadd", "xchg"],
    }],
    run,
};

#[cfg(test)]
mod tests {
    use tapeworks_ring::cpu;

    use super::*;

    /// Runs each shape on a separate thread, because it pins its own thread to a core.
    fn found(shape: Shape, events: u64) -> u64 {
        let cores = cpu::allowed_cores().unwrap();
        let cores = [cores[0], *cores.last().unwrap()];
        thread::spawn(move || shape(events, cores)).join().unwrap()
    }

    #[test]
    fn all_ways_give_the_same_answer() {
        for events in [0, 1, 2, CAPACITY as u64, CAPACITY as u64 + 1, 5_000] {
            let pipeline = (0..events).map(first).fold(0, mix);
            for shape in [pipeline_by_locks, pipeline_by_queues, pipeline_by_ring] {
                assert_eq!(found(shape, events), pipeline, "{events}");
            }
            let each = (0..events).fold(0, mix);
            for shape in [one_to_many_by_locks, one_to_many_by_queues, one_to_many_by_ring] {
                assert_eq!(found(shape, events), each.wrapping_mul(3) ^ each, "{events}");
            }
            for shape in [
                one_to_one_by_queue,
                one_to_one_by_queue_in_batches,
                one_to_one_by_ring,
                one_to_one_by_ring_in_batches,
                one_to_one_by_shared_ring,
                diamond_by_queues,
                diamond_by_ring,
            ] {
                assert_eq!(found(shape, events), each, "{events}");
            }
            let sum = (0..events / 2).fold(0, add).wrapping_mul(2);
            for shape in [
                many_to_one_by_locks,
                many_to_one_by_queues,
                many_to_one_by_ring,
                many_to_one_by_ring_in_batches,
            ] {
                assert_eq!(found(shape, events), sum, "{events}");
            }
        }
    }
}
