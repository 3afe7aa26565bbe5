//! Measuring itself: the cost of a clock, a misleading and an honest load test, and an input that the processor memorizes.

use std::hint::{black_box, spin_loop};
use std::time::{Instant, SystemTime};

use tapeworks_ring::clock::TscClock;

use crate::measure::{Ended, Lab, Variants};
use crate::statistics::Better;
use crate::technique::{Assembly, Published, Technique, Use};

/// The interval between a client's requests, in nanoseconds.
const INTERVAL_NS: u64 = 20_000;

/// The time a server needs for a request, in nanoseconds.
const SERVICE_NS: u64 = 2_000;

/// One request in this many meets a stall.
const STALL_EVERY: u64 = 500;

/// The duration of a stall, in nanoseconds.
const STALL_NS: u64 = 2_000_000;

/// The clock of a load test: the real clock or a test clock.
pub trait Clock {
    /// Returns nanoseconds since an arbitrary start.
    fn now_ns(&self) -> u64;
    /// Waits until this time.
    fn wait_until_ns(&mut self, ns: u64);
}

/// The real clock. It spins, because a client that sleeps is late.
#[derive(Debug)]
pub struct RealClock(Instant);

impl Clock for RealClock {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wait_until_ns(&mut self, ns: u64) {
        while self.now_ns() < ns {
            spin_loop();
        }
    }
}

/// Serves a request: quickly, except for an occasional stall.
fn serve(clock: &mut impl Clock, request: u64) {
    let needs = if request % STALL_EVERY == STALL_EVERY - 1 { STALL_NS } else { SERVICE_NS };
    let until = clock.now_ns() + needs;
    clock.wait_until_ns(until);
}

/// A load test that sends, waits for the answer, and measures from the sending. During a stall it sends nothing, so nothing seems slow.
// ANCHOR: baseline
pub fn from_sending(clock: &mut impl Clock, requests: u64, mut latency_ns: impl FnMut(u64)) {
    let began = clock.now_ns();
    for request in 0..requests {
        clock.wait_until_ns(began + request * INTERVAL_NS);
        let sent = clock.now_ns();
        serve(clock, request);
        latency_ns(clock.now_ns() - sent);
    }
}
// ANCHOR_END: baseline

/// The same test, measured from the time each request was due.
// ANCHOR: variant
pub fn from_due_time(clock: &mut impl Clock, requests: u64, mut latency_ns: impl FnMut(u64)) {
    let began = clock.now_ns();
    for request in 0..requests {
        let due = began + request * INTERVAL_NS;
        clock.wait_until_ns(due);
        serve(clock, request);
        latency_ns(clock.now_ns() - due);
    }
}
// ANCHOR_END: variant

/// Counts odd numbers with a branch that the compiler may not replace.
// ANCHOR: branch
#[inline(never)]
#[must_use]
pub fn odd_by_branch(numbers: &[u64]) -> u64 {
    let mut odd = 0;
    for number in numbers {
        if number & 1 == 1 {
            odd = black_box(odd + 1);
        }
    }
    odd
}
// ANCHOR_END: branch

/// Work too short to time individually.
#[inline(never)]
#[must_use]
pub fn short_work(value: u64) -> u64 {
    (0..4).fold(value, |value, _| value.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(7))
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let clock = TscClock::new();
    clocks(lab, &clock)?;
    short(lab, &clock)?;
    omission(lab)?;
    by_heart(lab)
}

fn clocks(lab: &mut Lab<'_>, clock: &TscClock) -> Result<(), Ended> {
    const READS: u64 = 100;
    let began = Instant::now();
    lab.experiment("a clock read", "reading");
    lab.point(
        0.0,
        "",
        Variants::of(READS)
            .answers_differ()
            .add("the kernel's monotonic clock (Instant)", || {
                (0..READS).fold(0, |sum, _| sum ^ u64::from(black_box(began.elapsed()).subsec_nanos()))
            })
            .add("the kernel's time of day (SystemTime)", || {
                (0..READS).fold(0, |sum, _| {
                    let time = black_box(SystemTime::now()).duration_since(SystemTime::UNIX_EPOCH);
                    sum ^ time.map_or(0, |time| u64::from(time.subsec_nanos()))
                })
            })
            .add("the processor's counter (TscClock)", || {
                (0..READS).fold(0, |sum, _| sum ^ black_box(clock.now()).0)
            }),
    )
}

fn short(lab: &mut Lab<'_>, clock: &TscClock) -> Result<(), Ended> {
    let count = lab.either(20_000, 1_000);
    lab.experiment("a piece of work of a few nanoseconds", "piece");
    lab.point(
        0.0,
        "",
        Variants::of(count)
            .add_reported("one clock around all", |reporter| {
                let began = clock.now();
                let answer = (0..count).fold(0, |value, number| short_work(value ^ number));
                reporter.figure(clock.nanoseconds(began, clock.now()) as f64 / count as f64);
                answer
            })
            .add_reported("a clock around each", |reporter| {
                (0..count).fold(0, |value, number| {
                    let began = clock.now();
                    let value = short_work(value ^ number);
                    reporter.operation_ns(clock.nanoseconds(began, clock.now()));
                    value
                })
            }),
    )
}

/// Returns the value that this fraction of all values does not exceed.
fn percentile(mut values: Vec<u64>, part: f64) -> f64 {
    values.sort_unstable();
    let place = (part * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).map_or(0.0, |value| *value as f64)
}

fn omission(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let requests = lab.either(1_500, 1_000);
    lab.experiment("one server that stalls, measured twice: 99 % of requests take at most", "request");
    lab.in_unit("ns", Better::Neither);
    lab.point(
        0.0,
        "",
        Variants::of(requests)
            .add_reported("from sending (lies)", |reporter| {
                let mut all = Vec::with_capacity(requests as usize);
                from_sending(&mut RealClock(Instant::now()), requests, |ns| all.push(ns));
                all.iter().for_each(|ns| reporter.operation_ns(*ns));
                let answer = all.len() as u64;
                reporter.figure(percentile(all, 0.99));
                answer
            })
            .add_reported("from the time at which it was due", |reporter| {
                let mut all = Vec::with_capacity(requests as usize);
                from_due_time(&mut RealClock(Instant::now()), requests, |ns| all.push(ns));
                all.iter().for_each(|ns| reporter.operation_ns(*ns));
                let answer = all.len() as u64;
                reporter.figure(percentile(all, 0.99));
                answer
            }),
    )
}

fn by_heart(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let (short, times) = (500usize, lab.either(400, 40));
    let mut random = lab.random();
    let long: Vec<u64> = std::iter::repeat_with(|| random.number()).take(short * times).collect();
    let start = long.get(..short).unwrap_or_default();
    lab.experiment("odd numbers counted by a branch, half of them odd", "number");
    lab.in_unit("ns", Better::Neither);
    lab.point(
        0.0,
        "",
        Variants::of(long.len() as u64)
            .answers_differ()
            .add("500 numbers, over and over (lies)", || {
                (0..times).map(|_| odd_by_branch(black_box(start))).sum()
            })
            .add("as many, each once", || odd_by_branch(black_box(&long))),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 24,
    name: "measuring",
    title: "Measuring itself",
    question: "What does a clock cost, and how does a measurement lie without a wrong figure in it?",
    published: &[Published {
        source: "0x3f.blog, First things first: coordinated omission (2026)",
        figure: "the same service with the same pauses: 99 % within 1 ms from sending, within 195 ms from the due time",
    }],
    used: &[
        Use { path: "crates/base/ring/src/clock.rs", what: "is the processor's counter as a clock" },
        Use {
            path: "docs/src/decisions/service-time.md",
            what: "says what the product's service time counts from",
        },
        Use { path: "lab/src/measure.rs", what: "lets variants take turns, and refuses work that is gone" },
    ],
    assembly: &[
        Assembly {
            variant: "odd numbers by a branch",
            symbol: "tapeworks_lab::catalogue::measuring::odd_by_branch",
            marks: &["j", "test"],
        },
        Assembly {
            variant: "short work",
            symbol: "tapeworks_lab::catalogue::measuring::short_work",
            marks: &["mul", "rol"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that advances only while a caller waits.
    struct TestClock(u64);

    impl Clock for TestClock {
        fn now_ns(&self) -> u64 {
            self.0
        }
        fn wait_until_ns(&mut self, ns: u64) {
            self.0 = self.0.max(ns);
        }
    }

    fn latencies(test: fn(&mut TestClock, u64, &mut dyn FnMut(u64))) -> Vec<u64> {
        let mut all = Vec::new();
        test(&mut TestClock(7), 10 * STALL_EVERY, &mut |ns| all.push(ns));
        all
    }

    #[test]
    fn a_test_from_sending_omits_those_who_wait() {
        let lies = latencies(|clock, requests, each| from_sending(clock, requests, each));
        let honest = latencies(|clock, requests, each| from_due_time(clock, requests, each));
        assert_eq!((lies.len(), honest.len()), (5_000, 5_000));
        // Ten stalls delay ten of 5,000 requests.
        assert_eq!(lies.iter().filter(|ns| **ns > SERVICE_NS).count(), 10);
        assert_eq!(percentile(lies.clone(), 0.99), SERVICE_NS as f64);
        // A 2 ms stall is worked off by 18 us per request, so the 110 requests after it wait. No requests follow the last stall.
        let waiting = honest.iter().filter(|ns| **ns > SERVICE_NS).count();
        assert_eq!(waiting, 10 + 9 * 110);
        assert!(percentile(honest.clone(), 0.99) > 1_500_000.0);
        assert_eq!((lies.iter().max(), honest.iter().max()), (Some(&STALL_NS), Some(&STALL_NS)));
    }

    #[test]
    fn a_percentile_is_the_value_of_its_rank() {
        let values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(
            [0.01, 0.5, 0.99, 1.0].map(|part| percentile(values.clone(), part)),
            [1.0, 50.0, 99.0, 100.0]
        );
        assert_eq!(percentile(Vec::new(), 0.5), 0.0);
    }

    #[test]
    fn odd_numbers_are_counted() {
        for numbers in [vec![], vec![1], vec![2], (0..101).collect()] {
            let odd = numbers.iter().filter(|number| **number % 2 == 1).count() as u64;
            assert_eq!(odd_by_branch(&numbers), odd);
        }
        assert_ne!(short_work(1), short_work(2));
    }
}
