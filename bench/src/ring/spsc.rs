//! From one thread to one other: numbers pushed, popped and summed.

use std::hint::spin_loop;

use tapeworks_ring::spsc;

use super::blog::{CachedCounters, PaddedCounters, Plain, Queue};
use super::{Shape, on_two_cores};
use crate::foreign::Cpp;
use crate::rounds::Rounds;

/// Items handed over at once by the variants in batches.
const BATCH: usize = 256;

pub fn run(shape: Shape) {
    let Shape { items, capacity, rounds, cores } = shape;
    let expected = items * (items - 1) / 2;
    println!(
        "SPSC: {items} numbers of 8 bytes through {capacity} slots; full or empty: a pause, and again; batches of {BATCH}"
    );
    let mut table = Rounds::new(items);
    table.add("blog V1, plain", || blog::<Plain>(shape));
    table.add("blog V2, padded", || blog::<PaddedCounters>(shape));
    table.add("blog V3, padded, cached counters", || blog::<CachedCounters>(shape));
    table.add("std::sync::mpsc::sync_channel", || {
        let (sender, receiver) = std::sync::mpsc::sync_channel(capacity);
        pass(shape, move |item| sender.try_send(item).is_ok(), move || receiver.try_recv().ok())
    });
    table.add("crossbeam 0.8 ArrayQueue", || {
        let queue = crossbeam::queue::ArrayQueue::new(capacity);
        pass(shape, |item| queue.push(item).is_ok(), || queue.pop())
    });
    table.add("rtrb 0.4.1, one at a time", || {
        let (mut producer, mut consumer) = rtrb::RingBuffer::new(capacity);
        pass(shape, move |item| producer.push(item).is_ok(), move || consumer.pop().ok())
    });
    match Cpp::build("spsc") {
        Ok(program) => {
            for queue in ["boost", "moodycamel"] {
                let program = program.clone();
                let words = [
                    queue.into(),
                    items.to_string(),
                    capacity.to_string(),
                    cores[0].to_string(),
                    cores[1].to_string(),
                ];
                table.add_reported(&format!("C++ {}", full_name(queue)), move || program.run(&words));
            }
        }
        Err(why) => println!("SKIPPED, the C++ peers: {why}"),
    }
    table.add("tapeworks-ring, one at a time", || {
        let (mut producer, mut consumer) = spsc::ring(capacity);
        pass(shape, move |item| producer.try_push(item).is_ok(), move || consumer.try_pop().ok())
    });
    table.add("tapeworks-ring, one at a time, blocking", || {
        let (mut producer, mut consumer) = spsc::ring(capacity);
        on_two_cores(
            cores,
            move || std::iter::from_fn(|| consumer.pop().ok()).sum(),
            // Its end closes the ring and ends the consumer.
            move || (0..items).for_each(|item| producer.push(item).expect("the consumer stays")),
        )
    });
    table.add("rtrb 0.4.1, chunks", || rtrb_chunks(shape));
    table.add("tapeworks-ring, batches", || batches(shape));
    table.add("tapeworks-ring, slices", || slices(shape));
    table.run(rounds);
    for (name, answer) in table.answers() {
        assert_eq!(answer, expected, "{name}: the sum is wrong");
    }
    table.print("SPSC", "tapeworks-ring, one at a time");
}

fn full_name(queue: &str) -> &str {
    match queue {
        "boost" => "boost::lockfree::spsc_queue",
        _ => "moodycamel::ReaderWriterQueue",
    }
}

/// The shape that all variants of one item at a time have. Each side's state moves to its thread: left here, the two would
/// share cache lines.
fn pass(
    Shape { items, cores, .. }: Shape,
    mut push: impl FnMut(u64) -> bool + Send,
    mut pop: impl FnMut() -> Option<u64> + Send,
) -> u64 {
    on_two_cores(
        cores,
        move || {
            let mut sum = 0;
            for _ in 0..items {
                sum += loop {
                    if let Some(item) = pop() {
                        break item;
                    }
                    spin_loop();
                };
            }
            sum
        },
        move || {
            for item in 0..items {
                while !push(item) {
                    spin_loop();
                }
            }
        },
    )
}

fn blog<Q: Queue>(shape: Shape) -> u64 {
    let queue = Q::new(shape.capacity);
    pass(shape, |item| queue.push(item), || queue.pop())
}

fn rtrb_chunks(Shape { items, capacity, cores, .. }: Shape) -> u64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(capacity);
    on_two_cores(
        cores,
        move || {
            let (mut sum, mut taken) = (0, 0);
            while taken < items {
                let there = consumer.slots().min(BATCH);
                if there == 0 {
                    spin_loop();
                } else if let Ok(chunk) = consumer.read_chunk(there) {
                    sum += chunk.into_iter().sum::<u64>();
                    taken += there as u64;
                }
            }
            sum
        },
        move || {
            let mut next = 0;
            while next < items {
                let room = producer.slots().min(BATCH).min((items - next) as usize);
                if room == 0 {
                    spin_loop();
                } else if let Ok(chunk) = producer.write_chunk_uninit(room) {
                    next += chunk.fill_from_iter(next..) as u64;
                }
            }
        },
    )
}

fn batches(Shape { items, capacity, cores, .. }: Shape) -> u64 {
    let (mut producer, mut consumer) = spsc::ring::<u64>(capacity);
    on_two_cores(
        cores,
        move || {
            let (mut sum, mut taken) = (0, 0);
            while taken < items {
                let popped = consumer.pop_batch(BATCH, |item| sum += item);
                if popped == 0 {
                    spin_loop();
                }
                taken += popped as u64;
            }
            sum
        },
        move || {
            let mut next = 0;
            while next < items {
                let pushed = producer.push_batch(&mut (next..items.min(next + BATCH as u64)));
                if pushed == 0 {
                    spin_loop();
                }
                next += pushed as u64;
            }
        },
    )
}

fn slices(Shape { items, capacity, cores, .. }: Shape) -> u64 {
    let (mut producer, mut consumer) = spsc::ring::<u64>(capacity);
    on_two_cores(
        cores,
        move || {
            let (mut sum, mut taken, mut part) = (0, 0, [0; BATCH]);
            while taken < items {
                let popped = consumer.pop_slice(&mut part);
                if popped == 0 {
                    spin_loop();
                }
                sum += part.iter().take(popped).sum::<u64>();
                taken += popped as u64;
            }
            sum
        },
        move || {
            let (mut next, mut part) = (0, [0; BATCH]);
            while next < items {
                let count = BATCH.min((items - next) as usize);
                part.iter_mut().zip(next..).for_each(|(place, number)| *place = number);
                let mut done = 0;
                while done < count {
                    let pushed = producer.push_slice(&part[done..count]);
                    if pushed == 0 {
                        spin_loop();
                    }
                    done += pushed;
                }
                next += count as u64;
            }
        },
    )
}
