//! There and back between two cores, against a bare cache line: many trips by one clock, and each by its own.
//!
//! A clock around each trip gives percentiles, but reading it waits until the caches have what was stored before, so the
//! transfers of two lines, which otherwise overlap, come one after the other.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use tapeworks_ring::align::CacheAligned;
use tapeworks_ring::clock::{Ticks, TscClock};
use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::BusySpin;

use super::{Shape, on_two_cores};
use crate::rounds::Rounds;

/// Round trips of a variant and round.
const TRIPS: u64 = 200_000;

/// Slots of each ring.
const SLOTS: usize = 1024;

/// The clock of a trip.
trait Watch: Send {
    type Start;
    fn start(&self) -> Self::Start;
    fn stop(&mut self, started: Self::Start);
}

/// Nothing: the whole round is measured.
struct Whole;

impl Watch for Whole {
    type Start = ();
    fn start(&self) {}
    fn stop(&mut self, (): ()) {}
}

/// Each trip, into a histogram.
struct Each<'a>(&'a TscClock, &'a mut Histogram<u64>);

impl Watch for Each<'_> {
    type Start = Ticks;
    #[inline(always)]
    fn start(&self) -> Ticks {
        self.0.now()
    }
    #[inline(always)]
    fn stop(&mut self, started: Ticks) {
        self.1.saturating_record(self.0.nanoseconds(started, self.0.now()));
    }
}

/// A link that carries a number there and another one back.
#[derive(Clone, Copy)]
enum Carrier {
    CacheLine,
    Crossbeam,
    Rtrb,
    Spsc,
    Disruptor,
}

const CARRIERS: [(&str, Carrier); 5] = [
    (BARE, Carrier::CacheLine),
    ("crossbeam 0.8 ArrayQueue", Carrier::Crossbeam),
    ("rtrb 0.4.1", Carrier::Rtrb),
    ("tapeworks-ring, spsc", Carrier::Spsc),
    ("tapeworks-ring, disruptor", Carrier::Disruptor),
];

const BARE: &str = "a bare cache line";

pub fn run(Shape { rounds, cores, .. }: Shape) {
    println!(
        "round trips: {TRIPS} a round; the next begins when the last has ended, so none waits for another"
    );
    let mut table = Rounds::new(TRIPS);
    for (name, carrier) in CARRIERS {
        table.add(name, move || {
            travel(carrier, cores, Whole);
            0
        });
    }
    table.run(rounds);
    table.print("round trips, one clock for all", BARE);

    let clock = TscClock::new();
    println!("round trips, each by the clock, whose own {:.1} ns are in it: ns", clock.read_cost_ns());
    let mut all: [Vec<Histogram<u64>>; CARRIERS.len()] = Default::default();
    for _ in 0..rounds {
        for ((_, carrier), rounds) in CARRIERS.iter().zip(&mut all) {
            let mut times =
                Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("three digits are allowed");
            travel(*carrier, cores, Each(&clock, &mut times));
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
    for ((name, _), rounds) in CARRIERS.iter().zip(&all) {
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

fn travel(carrier: Carrier, cores: [usize; 2], watch: impl Watch) {
    match carrier {
        Carrier::CacheLine => cache_line(cores, watch),
        Carrier::Crossbeam => {
            let ring = || crossbeam::queue::ArrayQueue::new(SLOTS);
            let (there, back) = (&ring(), &ring());
            trips(
                cores,
                watch,
                |n| there.push(n).is_ok(),
                || back.pop(),
                || there.pop(),
                |n| back.push(n).is_ok(),
            );
        }
        Carrier::Rtrb => {
            let ((mut out, mut there), (mut home, mut back)) =
                (rtrb::RingBuffer::new(SLOTS), rtrb::RingBuffer::new(SLOTS));
            trips(
                cores,
                watch,
                move |n| out.push(n).is_ok(),
                move || back.pop().ok(),
                move || there.pop().ok(),
                move |n| home.push(n).is_ok(),
            );
        }
        Carrier::Spsc => {
            let ((mut out, mut there), (mut home, mut back)) = (spsc::ring(SLOTS), spsc::ring(SLOTS));
            trips(
                cores,
                watch,
                move |n| out.try_push(n).is_ok(),
                move || back.try_pop().ok(),
                move || there.try_pop().ok(),
                move |n| home.try_push(n).is_ok(),
            );
        }
        Carrier::Disruptor => disruptor(cores, watch),
    }
}

fn trips(
    cores: [usize; 2],
    mut watch: impl Watch,
    mut send: impl FnMut(u64) -> bool + Send,
    mut receive: impl FnMut() -> Option<u64> + Send,
    mut take: impl FnMut() -> Option<u64> + Send,
    mut answer: impl FnMut(u64) -> bool + Send,
) {
    on_two_cores(
        cores,
        move || {
            for number in 0..TRIPS {
                let started = watch.start();
                assert!(send(number), "the ring is empty");
                let answered = loop {
                    if let Some(answered) = receive() {
                        break answered;
                    }
                    spin_loop();
                };
                watch.stop(started);
                assert_eq!(answered, number + 1);
            }
        },
        move || {
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

fn cache_line(cores: [usize; 2], mut watch: impl Watch) {
    let (there, back) = (CacheAligned::new(AtomicU64::new(0)), CacheAligned::new(AtomicU64::new(0)));
    on_two_cores(
        cores,
        || {
            for number in 1..=TRIPS {
                let started = watch.start();
                there.store(number, Ordering::Release);
                while back.load(Ordering::Acquire) != number {
                    spin_loop();
                }
                watch.stop(started);
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

fn disruptor(cores: [usize; 2], mut watch: impl Watch) {
    let ring = || {
        let mut graph = Builder::new(SLOTS, || 0u64, || BusySpin);
        let id = graph.consumer("reads", &[]);
        let (producer, mut ends) = graph.single_producer();
        (producer, ends.take(id).expect("taken once"))
    };
    let ((mut out, mut there), (mut home, mut back)) = (ring(), ring());
    on_two_cores(
        cores,
        move || {
            for number in 0..TRIPS {
                let started = watch.start();
                out.try_publish(|event| *event = number).expect("the ring is empty");
                let mut answered = None;
                while answered.is_none() {
                    back.poll(|event, _, _| answered = Some(*event)).expect("the other side stays");
                }
                watch.stop(started);
                assert_eq!(answered, Some(number + 1));
            }
        },
        move || {
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
