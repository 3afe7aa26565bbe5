//! Queues from one thread to one other.

use std::hint::spin_loop;
use std::sync::LazyLock;

use tapeworks_lab::catalogue::spsc_queue::{
    BATCH, ROUND_TRIPS, ROUND_TRIPS_TOGETHER, THROUGHPUT, TRIP_SLOTS, Trips, between, mix, pass,
};
use tapeworks_lab::measure::{Peers, Reporter, Setup, Variants};
use tapeworks_ring::clock::TscClock;

use crate::foreign::Cpp;

pub const THROUGHPUT_PEERS: Peers =
    Peers { technique: "spsc-queue", experiment: THROUGHPUT, add: throughput };

pub const ROUND_TRIP_PEERS: Peers = Peers {
    technique: "spsc-queue",
    experiment: ROUND_TRIPS,
    add: |setup, variants| round_trips(setup, Some(&CLOCK), variants),
};

pub const ROUND_TRIP_PEERS_TOGETHER: Peers = Peers {
    technique: "spsc-queue",
    experiment: ROUND_TRIPS_TOGETHER,
    add: |setup, variants| round_trips(setup, None, variants),
};

static CLOCK: LazyLock<TscClock> = LazyLock::new(TscClock::new);

static CPP: LazyLock<Result<Cpp, String>> = LazyLock::new(|| Cpp::build("spsc"));

fn throughput<'v>(setup: Setup, variants: Variants<'v>) -> Variants<'v> {
    let Setup { items, x, cores } = setup;
    let capacity = x as usize;
    let mut variants = variants
        .add_reported("std::sync::mpsc::sync_channel", move |reporter| {
            let (sender, receiver) = std::sync::mpsc::sync_channel(capacity);
            let push = move |item| sender.try_send(item).is_ok();
            pass(cores, items, reporter, push, move || receiver.try_recv().ok())
        })
        .add_reported("crossbeam 0.8 ArrayQueue", move |reporter| {
            let queue = crossbeam::queue::ArrayQueue::new(capacity);
            pass(cores, items, reporter, |item| queue.push(item).is_ok(), || queue.pop())
        })
        .add_reported("rtrb 0.4.1", move |reporter| {
            let (mut producer, mut consumer) = rtrb::RingBuffer::new(capacity);
            let push = move |item| producer.push(item).is_ok();
            pass(cores, items, reporter, push, move || consumer.pop().ok())
        })
        .add_reported("rtrb 0.4.1, chunks", move |reporter| rtrb_chunks(setup, reporter));
    match &*CPP {
        Ok(program) => {
            for (queue, name) in [
                ("boost", "C++ boost::lockfree::spsc_queue"),
                ("moodycamel", "C++ moodycamel::ReaderWriterQueue"),
            ] {
                let [one, two] = cores.map(|core| core.to_string());
                let words = [queue.into(), items.to_string(), capacity.to_string(), one, two];
                variants = variants.add_foreign(name, move |reporter| reporter.figure(program.run(&words)));
            }
            variants
        }
        Err(why) => variants.skip(format!("the C++ peers: {why}")),
    }
}

fn rtrb_chunks(Setup { items, x, cores }: Setup, reporter: &mut Reporter) -> u64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(x as usize);
    let receive = move || {
        let (mut answer, mut taken) = (0, 0);
        while taken < items {
            let there = consumer.slots().min(BATCH);
            if there == 0 {
                spin_loop();
            } else if let Ok(chunk) = consumer.read_chunk(there) {
                answer = chunk.into_iter().fold(answer, mix);
                taken += there as u64;
            }
        }
        answer
    };
    between(cores, items, reporter, receive, move || {
        let mut next = 0;
        while next < items {
            let room = producer.slots().min(BATCH).min((items - next) as usize);
            if room == 0 {
                spin_loop();
            } else if let Ok(chunk) = producer.write_chunk_uninit(room) {
                next += chunk.fill_from_iter(next..) as u64;
            }
        }
    })
}

fn round_trips<'v>(
    Setup { items, cores, .. }: Setup,
    clock: Option<&'static TscClock>,
    variants: Variants<'v>,
) -> Variants<'v> {
    let trips = Trips { cores, clock, count: items };
    variants
        .add_reported("crossbeam 0.8 ArrayQueue", move |reporter| {
            let ring = || crossbeam::queue::ArrayQueue::new(TRIP_SLOTS);
            let (there, back) = (&ring(), &ring());
            trips.travel(
                reporter,
                (|item| there.push(item).is_ok(), || there.pop()),
                (|item| back.push(item).is_ok(), || back.pop()),
            )
        })
        .add_reported("rtrb 0.4.1", move |reporter| {
            let ((mut out, mut there), (mut home, mut back)) =
                (rtrb::RingBuffer::new(TRIP_SLOTS), rtrb::RingBuffer::new(TRIP_SLOTS));
            trips.travel(
                reporter,
                (move |item| out.push(item).is_ok(), move || there.pop().ok()),
                (move |item| home.push(item).is_ok(), move || back.pop().ok()),
            )
        })
}
