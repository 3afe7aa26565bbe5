//! The same work at high and at low rates: the cost of a pause before a message.

use std::hint::{black_box, spin_loop};
use std::thread;
use std::time::{Duration, Instant};

use tapeworks_ring::clock::TscClock;

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Entries of the lookup table: half a megabyte, which fits a second-level cache.
const ENTRIES: usize = 1 << 16;

/// Lookups per message.
const LOOKUPS: usize = 100;

/// Bytes that other work touches: more than a second-level cache.
const OTHER_BYTES: usize = 4 << 20;

/// The tables of one process.
#[derive(Debug)]
pub struct Tables {
    entries: Vec<u32>,
    other: Vec<u64>,
}

impl Tables {
    fn new(random: &mut Random) -> Self {
        Self {
            entries: std::iter::repeat_with(|| random.number() as u32).take(ENTRIES).collect(),
            other: std::iter::repeat_with(|| random.number()).take(OTHER_BYTES / 8).collect(),
        }
    }
}

/// Handles a message: lookups at positions that depend on the message and the last lookup, and a branch on each.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn handle(tables: &Tables, message: u64) -> u64 {
    let mut answer = message;
    for _ in 0..LOOKUPS {
        let place = (answer.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
        let entry = u64::from(tables.entries.get(place % ENTRIES).copied().unwrap_or_default());
        answer = if entry & 3 == 0 { black_box(answer ^ entry) } else { answer.wrapping_add(entry) };
    }
    answer
}
// ANCHOR_END: baseline

/// A thread's activity until the next message is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// The next message is already there, directly after others.
    Nothing,
    /// Polls the clock.
    Spins,
    /// Sleeps in the kernel.
    Sleeps,
    /// Works on other data.
    OtherWork,
    /// Handles messages and discards the results.
    KeepsWarm,
}

/// Waits for `gap`.
// ANCHOR: variant
#[inline(never)]
pub fn wait(meanwhile: Meanwhile, gap: Duration, tables: &Tables, number: u64) {
    let began = Instant::now();
    let mut turn = number;
    match meanwhile {
        Meanwhile::Nothing => {
            for _ in 0..20 {
                turn = turn.wrapping_add(0x5851_f42d_4c95_7f2d);
                black_box(handle(tables, turn));
            }
        }
        Meanwhile::Sleeps => thread::sleep(gap),
        Meanwhile::Spins => {
            while began.elapsed() < gap {
                spin_loop();
            }
        }
        Meanwhile::OtherWork => {
            while began.elapsed() < gap {
                turn = turn.wrapping_add(1);
                let from = (turn.wrapping_mul(4_099) % 1_000) as usize * (tables.other.len() / 1_000);
                let sum = tables.other.iter().skip(from).step_by(8).take(500).fold(0, |sum, next| sum ^ next);
                black_box(sum);
            }
        }
        Meanwhile::KeepsWarm => {
            while began.elapsed() < gap {
                turn = turn.wrapping_add(0x5851_f42d_4c95_7f2d);
                black_box(handle(tables, turn));
            }
        }
    }
}
// ANCHOR_END: variant

/// Handles `count` messages, with the gap before each. Only the handling is timed.
fn timed(
    reporter: &mut Reporter,
    clock: &TscClock,
    tables: &Tables,
    (meanwhile, gap, count): (Meanwhile, Duration, u64),
) -> u64 {
    let mut answer = 0u64;
    for number in 0..count {
        wait(meanwhile, gap, tables, number);
        let began = clock.now();
        let own = handle(tables, black_box(number.wrapping_mul(0x1234_5677)));
        reporter.operation_ns(clock.nanoseconds(began, clock.now()));
        answer = answer.rotate_left(1) ^ own;
    }
    answer
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let tables = Tables::new(&mut lab.random());
    let clock = TscClock::new();
    lab.experiment("a message handled after a quiet time", "message");
    lab.along("quiet time, us", Scale::Logarithmic);
    for (micros, full, quick) in [(10, 500, 10), (100, 100, 4), (1_000, 10, 2), (10_000, 2, 1)] {
        let (gap, count) = (Duration::from_micros(micros), lab.either(full, quick));
        let mut variants = Variants::of(count);
        for (name, meanwhile) in [
            ("no quiet time", Meanwhile::Nothing),
            ("spins", Meanwhile::Spins),
            ("sleeps", Meanwhile::Sleeps),
            ("works on other data", Meanwhile::OtherWork),
            ("keeps warm", Meanwhile::KeepsWarm),
        ] {
            let (clock, tables) = (&clock, &tables);
            variants = variants
                .add_reported(name, move |reporter| timed(reporter, clock, tables, (meanwhile, gap, count)));
        }
        lab.point(micros as f64, &format!("{gap:?} quiet"), variants)?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 23,
    name: "cold-hardware",
    title: "The cold-hardware tax",
    question: "How much longer does the same work take when messages are rare?",
    published: &[],
    used: &[
        Use { path: "crates/base/ring/src/wait.rs", what: "lets a thread spin rather than sleep" },
        Use { path: "crates/base/ring/src/cpu.rs", what: "keeps a thread on a core where nothing else runs" },
    ],
    assembly: &[Assembly {
        variant: "the work",
        symbol: "tapeworks_lab::catalogue::cold_hardware::handle",
        marks: &["mov", "j"],
    }],
    run,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_the_same_whatever_is_done_meanwhile() {
        let tables = Tables::new(&mut Random::new(4));
        let expected: Vec<u64> = (0..20).map(|number| handle(&tables, number)).collect();
        let all = [
            Meanwhile::Nothing,
            Meanwhile::Spins,
            Meanwhile::Sleeps,
            Meanwhile::OtherWork,
            Meanwhile::KeepsWarm,
        ];
        for meanwhile in all {
            let found: Vec<u64> = (0..20)
                .map(|number| {
                    wait(meanwhile, Duration::from_micros(20), &tables, number);
                    handle(&tables, number)
                })
                .collect();
            assert_eq!(found, expected, "{meanwhile:?}");
        }
        assert_ne!(expected[0], expected[1]);
    }

    #[test]
    fn a_quiet_time_goes_by() {
        let tables = Tables::new(&mut Random::new(4));
        let gap = Duration::from_millis(2);
        for meanwhile in [Meanwhile::Spins, Meanwhile::Sleeps, Meanwhile::OtherWork, Meanwhile::KeepsWarm] {
            let began = Instant::now();
            wait(meanwhile, gap, &tables, 1);
            assert!(began.elapsed() >= gap, "{meanwhile:?}");
        }
    }
}
