//! Ways to wait for another thread: the delay until a message is noticed, and the CPU time spent waiting.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tapeworks_ring::clock::{Ticks, TscClock};
use tapeworks_ring::spsc;
use tapeworks_ring::wait::{Backoff, BusySpin, Park, WaitStrategy, Yielding};

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};
use crate::threads::together;

/// A message: its number and the time it was sent.
pub type Sent = (u64, Ticks);

/// Creates a back-off that grows by a fraction of the last sleep, up to `most`.
// ANCHOR: backoff
fn backoff(growth: u32, most: Duration) -> Backoff {
    // A sleep is longer than the one before by this part of it: 1 for twice, 8 for an eighth.
    Backoff { growth, most, ..Backoff::default() }
}
// ANCHOR_END: backoff

/// Takes every message and records the delay until it is noticed. Ends when the producer is dropped.
#[inline(always)]
fn notice<W: WaitStrategy>(
    consumer: &mut spsc::Consumer<Sent, W>,
    clock: &TscClock,
    lateness_ns: &mut Vec<u64>,
) -> u64 {
    let mut answer = 0u64;
    while let Ok((number, sent)) = consumer.pop() {
        lateness_ns.push(clock.nanoseconds(sent, clock.now()));
        answer = answer.rotate_left(1) ^ number;
    }
    answer
}

/// Polls immediately.
// ANCHOR: baseline
#[inline(never)]
pub fn spinning(
    consumer: &mut spsc::Consumer<Sent, BusySpin>,
    clock: &TscClock,
    lateness_ns: &mut Vec<u64>,
) -> u64 {
    notice(consumer, clock, lateness_ns)
}
// ANCHOR_END: baseline

/// Sleeps in the kernel until woken.
// ANCHOR: variant
#[inline(never)]
pub fn parking(
    consumer: &mut spsc::Consumer<Sent, Park>,
    clock: &TscClock,
    lateness_ns: &mut Vec<u64>,
) -> u64 {
    notice(consumer, clock, lateness_ns)
}
// ANCHOR_END: variant

/// Returns the processor time of the calling thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Consumes all messages.
type Consume<W> = fn(&mut spsc::Consumer<Sent, W>, &TscClock, &mut Vec<u64>) -> u64;

/// One thread waits while another sends `messages`, each after a quiet period.
fn wake_ups<W: WaitStrategy>(
    reporter: &mut Reporter,
    Shape { cores, clock, quiet, messages }: Shape<'_>,
    strategy: impl Fn() -> W,
    consume: Consume<W>,
) -> u64 {
    let (mut producer, mut consumer) = spsc::with_strategies::<Sent, W>(64, strategy(), strategy());
    let found = together(
        cores,
        move || {
            for number in 1..=messages {
                thread::sleep(quiet);
                if producer.push((number, clock.now())).is_err() {
                    return;
                }
            }
        },
        move || {
            let mut lateness_ns = Vec::with_capacity(messages as usize);
            let (began, used) = (Instant::now(), thread_time());
            let answer = consume(&mut consumer, clock, &mut lateness_ns);
            let used = thread_time().saturating_sub(used).as_secs_f64();
            (answer, lateness_ns, 100.0 * used / began.elapsed().as_secs_f64().max(1e-9))
        },
    );
    let (answer, lateness_ns, used) = found.two;
    lateness_ns.iter().for_each(|ns| reporter.operation_ns(*ns));
    reporter.other("CPU used, %", used);
    answer
}

#[derive(Clone, Copy)]
struct Shape<'c> {
    cores: [usize; 2],
    clock: &'c TscClock,
    quiet: Duration,
    messages: u64,
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    curves(lab)?;
    let cores = lab.two_cores()?;
    let clock = TscClock::new();
    lab.experiment("from push to pop after a quiet time", "message");
    lab.along("quiet time, us", Scale::Logarithmic);
    for (micros, full, quick) in [(50, 200, 10), (1_000, 20, 4), (10_000, 3, 1)] {
        let quiet = Duration::from_micros(micros);
        let messages = lab.either(full, quick);
        let shape = Shape { cores, clock: &clock, quiet, messages };
        lab.point(
            micros as f64,
            &format!("{quiet:?} quiet"),
            Variants::of(messages)
                .add_reported("spin", |reporter| wake_ups(reporter, shape, || BusySpin, spinning))
                .add_reported("yield", |reporter| wake_ups(reporter, shape, Yielding::default, notice))
                .add_reported("back off, by an eighth to 100 us", |reporter| {
                    wake_ups(reporter, shape, Backoff::default, notice)
                })
                .add_reported("back off, twice to 10 ms", |reporter| {
                    wake_ups(reporter, shape, || backoff(1, Duration::from_millis(10)), notice)
                })
                .add_reported("park", |reporter| wake_ups(reporter, shape, Park::default, parking)),
        )?;
    }
    Ok(())
}

/// Computes the possible delay of a message from the steps of a back-off alone.
fn curves(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lab.experiment("the most that a back-off notices late: its steps alone, up to 1 s", "message");
    lab.along("quiet time, us", Scale::Logarithmic);
    for micros in [10u64, 100, 1_000, 10_000, 100_000, 1_000_000] {
        let quiet = Duration::from_micros(micros);
        let mut variants = Variants::of(1).answers_differ();
        for (name, growth) in [("twice", 1), ("by a half", 2), ("by an eighth", 8)] {
            let late = backoff(growth, Duration::from_secs(1)).lateness(quiet).as_nanos() as f64;
            variants = variants.add_reported(name, move |reporter| {
                reporter.figure(late);
                late as u64
            });
        }
        let bounded = Backoff::default().lateness(quiet).as_nanos() as f64;
        variants = variants.add_reported("by an eighth, to 100 us", move |reporter| {
            reporter.figure(bounded);
            bounded as u64
        });
        lab.point(micros as f64, &format!("{quiet:?} quiet"), variants)?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 17,
    name: "waiting",
    title: "Waiting",
    question: "How late is a message noticed by each way of waiting, and how much of a core does that way take?",
    published: &[],
    used: &[
        Use { path: "crates/base/ring/src/wait.rs", what: "has the strategies" },
        Use { path: "crates/run/plant/src/plant.rs", what: "waits by the strategy of its configuration" },
    ],
    assembly: &[
        Assembly {
            variant: "spin",
            symbol: "tapeworks_lab::catalogue::waiting::spinning",
            marks: &["pause", "syscall"],
        },
        Assembly {
            variant: "park",
            symbol: "tapeworks_lab::catalogue::waiting::parking",
            marks: &["pause", "syscall", "mfence", "lock"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use tapeworks_ring::cpu;

    use super::*;

    fn noticed<W: WaitStrategy>(
        strategy: impl Fn() -> W,
        consume: Consume<W>,
        messages: u64,
    ) -> (u64, usize) {
        let clock = TscClock::new();
        let (mut producer, mut consumer) = spsc::with_strategies::<Sent, W>(4, strategy(), strategy());
        let cores = cpu::allowed_cores().unwrap();
        let mut lateness_ns = Vec::new();
        let found = together(
            [cores[0], *cores.last().unwrap()],
            || consume(&mut consumer, &clock, &mut lateness_ns),
            move || (1..=messages).for_each(|number| producer.push((number, clock.now())).unwrap()),
        );
        (found.one, lateness_ns.len())
    }

    #[test]
    fn every_way_to_wait_notices_every_message() {
        for messages in [0, 1, 4, 100] {
            let answer = (1..=messages).fold(0u64, |answer, number| answer.rotate_left(1) ^ number);
            let expected = (answer, messages as usize);
            assert_eq!(noticed(|| BusySpin, spinning, messages), expected);
            assert_eq!(noticed(Yielding::default, notice, messages), expected);
            assert_eq!(noticed(Backoff::default, notice, messages), expected);
            assert_eq!(noticed(|| backoff(1, Duration::from_millis(1)), notice, messages), expected);
            assert_eq!(noticed(Park::default, parking, messages), expected);
        }
    }

    #[test]
    fn a_back_off_that_grows_less_is_never_later_and_the_bound_holds() {
        for micros in [1, 50, 1_000, 100_000] {
            let quiet = Duration::from_micros(micros);
            let late = |growth| backoff(growth, Duration::from_secs(1)).lateness(quiet);
            assert!(late(8) <= late(2) && late(2) <= late(1), "{quiet:?}");
            assert!(Backoff::default().lateness(quiet) <= Backoff::default().most);
        }
    }
}
