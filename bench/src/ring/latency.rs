//! There and back between two cores, against a bare cache line.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use tapeworks_ring::align::CacheAligned;
use tapeworks_ring::clock::TscClock;
use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::BusySpin;

use super::{Shape, on_two_cores};

/// Round trips of a variant and round.
const TRIPS: u64 = 200_000;

pub fn run(Shape { rounds, cores, .. }: Shape) {
    let clock = TscClock::new();
    println!(
        "round trips: {TRIPS} a round; the next begins when the last has ended, so none waits for another; ns, with the \
         clock's own {:.1}",
        clock.read_cost_ns()
    );
    type Variant<'a> = (&'a str, Box<dyn Fn(&mut Histogram<u64>) + 'a>);
    let clock = &clock;
    let variants: [Variant<'_>; 5] = [
        ("a bare cache line", Box::new(|times| cache_line(clock, cores, times))),
        (
            "crossbeam 0.8 ArrayQueue",
            Box::new(|times| {
                let (there, back) =
                    (crossbeam::queue::ArrayQueue::new(64), crossbeam::queue::ArrayQueue::new(64));
                let (there, back) = (&there, &back);
                trips(
                    clock,
                    cores,
                    times,
                    |n| there.push(n).is_ok(),
                    || back.pop(),
                    || there.pop(),
                    |n| back.push(n).is_ok(),
                );
            }),
        ),
        (
            "rtrb 0.4.1",
            Box::new(|times| {
                let ((mut out, mut there), (mut home, mut back)) =
                    (rtrb::RingBuffer::new(64), rtrb::RingBuffer::new(64));
                trips(
                    clock,
                    cores,
                    times,
                    |n| out.push(n).is_ok(),
                    || back.pop().ok(),
                    || there.pop().ok(),
                    |n| home.push(n).is_ok(),
                );
            }),
        ),
        (
            "tapeworks-ring, spsc",
            Box::new(|times| {
                let ((mut out, mut there), (mut home, mut back)) = (spsc::ring(64), spsc::ring(64));
                trips(
                    clock,
                    cores,
                    times,
                    |n| out.try_push(n).is_ok(),
                    || back.try_pop().ok(),
                    || there.try_pop().ok(),
                    |n| home.try_push(n).is_ok(),
                );
            }),
        ),
        ("tapeworks-ring, disruptor", Box::new(|times| disruptor(clock, cores, times))),
    ];
    let mut all: Vec<Vec<Histogram<u64>>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, run), rounds) in variants.iter().zip(&mut all) {
            let mut times =
                Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("three digits are allowed");
            run(&mut times);
            rounds.push(times);
        }
    }
    let median = |rounds: &[Histogram<u64>], value: &dyn Fn(&Histogram<u64>) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("{:<44} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}", "", "mean", "p50", "p99", "p99.9", "max", "ratio");
    let base = median(&all[0], &|times| times.value_at_quantile(0.5) as f64);
    for ((name, _), rounds) in variants.iter().zip(&all) {
        let quantile = |q: f64| median(rounds, &|times| times.value_at_quantile(q) as f64);
        let (mean, max) = (median(rounds, &Histogram::mean), median(rounds, &|times| times.max() as f64));
        let p50 = quantile(0.5);
        println!(
            "{name:<44} {mean:>8.1} {p50:>8.0} {:>8.0} {:>8.0} {max:>8.0} {:>6.2}x",
            quantile(0.99),
            quantile(0.999),
            p50 / base
        );
    }
    println!();
}

#[expect(clippy::too_many_arguments, reason = "four ends of two queues")]
fn trips(
    clock: &TscClock,
    cores: [usize; 2],
    times: &mut Histogram<u64>,
    mut send: impl FnMut(u64) -> bool + Send,
    mut receive: impl FnMut() -> Option<u64> + Send,
    mut take: impl FnMut() -> Option<u64> + Send,
    mut answer: impl FnMut(u64) -> bool + Send,
) {
    on_two_cores(
        cores,
        || {
            for number in 0..TRIPS {
                let started = clock.now();
                assert!(send(number), "the ring is empty");
                let answered = loop {
                    if let Some(answered) = receive() {
                        break answered;
                    }
                    spin_loop();
                };
                times.saturating_record(clock.nanoseconds(started, clock.now()));
                assert_eq!(answered, number + 1);
            }
        },
        || {
            for _ in 0..TRIPS {
                let number = loop {
                    if let Some(number) = take() {
                        break number;
                    }
                    spin_loop();
                };
                assert!(answer(number + 1), "the ring is empty");
            }
        },
    );
}

fn cache_line(clock: &TscClock, cores: [usize; 2], times: &mut Histogram<u64>) {
    let (there, back) = (CacheAligned::new(AtomicU64::new(0)), CacheAligned::new(AtomicU64::new(0)));
    on_two_cores(
        cores,
        || {
            for number in 1..=TRIPS {
                let started = clock.now();
                there.store(number, Ordering::Release);
                while back.load(Ordering::Acquire) != number {
                    spin_loop();
                }
                times.saturating_record(clock.nanoseconds(started, clock.now()));
            }
        },
        || {
            for number in 1..=TRIPS {
                while there.load(Ordering::Acquire) != number {
                    spin_loop();
                }
                back.store(number, Ordering::Release);
            }
        },
    );
}

fn disruptor(clock: &TscClock, cores: [usize; 2], times: &mut Histogram<u64>) {
    let ring = || {
        let mut graph = Builder::new(64, || 0u64, || BusySpin);
        let id = graph.consumer("reads", &[]);
        let (producer, mut ends) = graph.single_producer();
        (producer, ends.take(id).expect("taken once"))
    };
    let ((mut out, mut there), (mut home, mut back)) = (ring(), ring());
    on_two_cores(
        cores,
        || {
            for number in 0..TRIPS {
                let started = clock.now();
                out.try_publish(|event| *event = number).expect("the ring is empty");
                let mut answered = None;
                while answered.is_none() {
                    back.poll(|event, _, _| answered = Some(*event)).expect("the other side stays");
                }
                times.saturating_record(clock.nanoseconds(started, clock.now()));
                assert_eq!(answered, Some(number + 1));
            }
        },
        || {
            for _ in 0..TRIPS {
                let mut number = None;
                while number.is_none() {
                    there.poll(|event, _, _| number = Some(*event)).expect("the other side stays");
                }
                home.try_publish(|event| *event = number.unwrap_or_default() + 1).expect("the ring is empty");
            }
        },
    );
}
