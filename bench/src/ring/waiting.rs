//! The cost of waiting: the lateness of a back-off, and the time of reading the clock.

use std::time::Duration;

use hdrhistogram::Histogram;
use tapeworks_ring::clock::TscClock;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::{Backoff, BusySpin, Park, WaitStrategy, Yielding};

use super::Shape;

pub fn run(_: Shape) {
    curve();
    wake_ups();
}

/// How late a message may be noticed, by how long the queue was quiet before it: the steps alone, without the kernel.
fn curve() {
    let growths = [("twice", 1), ("by a half", 2), ("by an eighth", 8)];
    println!(
        "back-off: the longest a message is noticed late after a quiet time (the steps alone), bound 1 s / 100 us"
    );
    print!("{:>12}", "quiet for");
    for (name, _) in growths {
        print!(" {name:>14}");
    }
    println!(" {:>22}", "by an eighth to 100 us");
    for quiet in [10u64, 100, 1_000, 10_000, 100_000, 400_000, 1_000_000] {
        let quiet = Duration::from_micros(quiet);
        print!("{:>12}", format!("{quiet:?}"));
        for (_, growth) in growths {
            let backoff = Backoff { growth, most: Duration::from_secs(1), ..Backoff::default() };
            print!(" {:>14}", format!("{:.1?}", backoff.lateness(quiet)));
        }
        println!(" {:>22}", format!("{:.1?}", Backoff::default().lateness(quiet)));
    }
    println!();
}

/// A message after a quiet time, from the push to its arrival.
fn wake_ups() {
    const QUIET: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];
    println!(
        "from push to pop after a quiet time, ns, medians and worst of 200 (not pinned: the scheduler's choice counts)"
    );
    println!("{:<44} {:>10} {:>10} {:>10} {:>10}", "", "50 us p50", "max", "10 ms p50", "max");
    wake_up("BusySpin", QUIET, || BusySpin);
    wake_up("Yielding", QUIET, Yielding::default);
    wake_up("Backoff, by an eighth to 100 us", QUIET, Backoff::default);
    wake_up("Backoff, twice to 1 s", QUIET, || Backoff {
        growth: 1,
        most: Duration::from_secs(1),
        ..Backoff::default()
    });
    wake_up("Park", QUIET, Park::default);
    println!();
}

fn wake_up<W: WaitStrategy>(name: &str, quiet: [Duration; 2], strategy: impl Fn() -> W) {
    print!("{name:<44}");
    for quiet in quiet {
        let clock = TscClock::new();
        let (mut producer, mut consumer) = spsc::with_strategies(64, strategy(), strategy());
        let times = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut times = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3)
                    .expect("three digits are allowed");
                while let Ok(sent) = consumer.pop() {
                    times.saturating_record(clock.nanoseconds(sent, clock.now()));
                }
                times
            });
            for _ in 0..200 {
                std::thread::sleep(quiet);
                producer.push(clock.now()).expect("the consumer stays");
            }
            drop(producer);
            reader.join().expect("nobody panics")
        });
        print!(" {:>10} {:>10}", times.value_at_quantile(0.5), times.max());
    }
    println!();
}
