//! A log line: formatted immediately, or pushed as numbers to a thread that formats it.

use std::fs::File;
use std::io::Write;

use tapeworks_ring::clock::TscClock;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::Backoff;

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::random::Random;
use crate::technique::{Assembly, Published, Technique, Use};
use crate::threads::together;

/// Bytes of text per write, where lines are collected.
const BLOCK_BYTES: usize = 8 << 10;

/// The contents of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time of the event.
    pub time_ns: u64,
    /// The order's number.
    pub order: u64,
    /// The price in units of 1e-9.
    pub price_e9: i64,
    /// The number of shares.
    pub quantity: u32,
    /// Whether the order buys; otherwise it sells.
    pub buys: bool,
}

/// Formats a line. Writing to a buffer cannot fail.
fn format(record: &Record, line: &mut Vec<u8>) {
    let Record { time_ns, order, price_e9, quantity, buys } = *record;
    let side = if buys { "buy" } else { "sell" };
    let price = price_e9 as f64 * 1e-9;
    let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let _cannot_fail =
        writeln!(line, "{seconds}.{ns:09} INFO order {order} sent: {side} {quantity} at {price:.4}");
}

/// The destination of lines, and a number that depends on all of them.
#[derive(Debug)]
pub struct Lines<W> {
    to: W,
    text: Vec<u8>,
    answer: u64,
}

impl<W: Write> Lines<W> {
    /// Creates a log that writes to `to`.
    pub fn new(to: W) -> Self {
        Self { to, text: Vec::with_capacity(2 * BLOCK_BYTES), answer: 0 }
    }

    #[inline]
    fn append(&mut self, record: &Record) {
        let before = self.text.len();
        format(record, &mut self.text);
        let line = self.text.get(before..).unwrap_or_default();
        let end = line.last_chunk().map_or(0, |end: &[u8; 8]| u64::from_le_bytes(*end));
        self.answer = self.answer.rotate_left(5) ^ end ^ line.len() as u64;
    }

    fn flush(&mut self) {
        // A log that cannot be written must not stop the program.
        let _lost_at_worst = self.to.write_all(&self.text);
        self.text.clear();
    }
}

/// Formats a line and writes it, with one system call per line.
// ANCHOR: baseline
#[inline(never)]
pub fn on_the_spot(lines: &mut Lines<File>, record: &Record) {
    lines.append(record);
    lines.flush();
}
// ANCHOR_END: baseline

/// Formats a line, and writes when a block is full.
// ANCHOR: collected
#[inline(never)]
pub fn collected(lines: &mut Lines<File>, record: &Record) {
    lines.append(record);
    if lines.text.len() >= BLOCK_BYTES {
        lines.flush();
    }
}
// ANCHOR_END: collected

/// Pushes the numbers to a thread that formats them. If the queue is full, the line is dropped and counted: logging never blocks.
// ANCHOR: variant
#[inline(never)]
pub fn pushed(producer: &mut spsc::Producer<Record, Backoff>, record: &Record, dropped: &mut u64) {
    *dropped += u64::from(producer.try_push(*record).is_err());
}

/// The other end: formats and writes, in blocks, until the producer is gone.
pub fn write_all<W: Write>(consumer: &mut spsc::Consumer<Record, Backoff>, lines: &mut Lines<W>) -> u64 {
    while consumer.wait() > 0 {
        consumer.pop_batch(usize::MAX, |record| {
            lines.append(&record);
            if lines.text.len() >= BLOCK_BYTES {
                lines.flush();
            }
        });
    }
    lines.flush();
    lines.answer
}
// ANCHOR_END: variant

fn records(count: usize, random: &mut Random) -> Vec<Record> {
    (0..count as u64)
        .map(|number| Record {
            time_ns: 1_700_000_000_000_000_000 + number * 1_234,
            order: random.number() >> 20,
            price_e9: 100_000_000_000 + (random.below(1_000_000) as i64) * 100_000,
            quantity: 1 + random.below(10_000) as u32,
            buys: random.number() & 1 == 0,
        })
        .collect()
}

/// Logs all records and times each call.
fn timed(clock: &TscClock, records: &[Record], mut log: impl FnMut(&Record)) -> Vec<u64> {
    records
        .iter()
        .map(|record| {
            let began = clock.now();
            log(record);
            clock.nanoseconds(began, clock.now())
        })
        .collect()
}

fn report(reporter: &mut Reporter, times: &[u64]) {
    times.iter().for_each(|ns| reporter.operation_ns(*ns));
    reporter.other("mean, ns", times.iter().sum::<u64>() as f64 / times.len().max(1) as f64);
}

fn open() -> Result<File, Ended> {
    File::options()
        .write(true)
        .open("/dev/null")
        .map_err(|error| Ended::Skipped(format!("/dev/null cannot be written: {error}")))
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let count = lab.either(10_000, 500);
    let records = records(count, &mut lab.random());
    let records = records.as_slice();
    let clock = TscClock::new();
    let (spot, block, elsewhere) = (open()?, open()?, open()?);
    let (mut spot, mut block) = (Lines::new(spot), Lines::new(block));
    let cores = lab.two_cores()?;
    lab.experiment("one line logged, as the hot thread sees it", "line");
    lab.point(
        0.0,
        "",
        Variants::of(count as u64)
            .add_reported("formatted and written on the spot", |reporter| {
                spot.answer = 0;
                report(reporter, &timed(&clock, records, |record| on_the_spot(&mut spot, record)));
                spot.answer
            })
            .add_reported("formatted on the spot, written in blocks", |reporter| {
                block.answer = 0;
                report(reporter, &timed(&clock, records, |record| collected(&mut block, record)));
                block.answer
            })
            .add_reported("pushed as numbers, formatted elsewhere", |reporter| {
                let (mut producer, mut consumer) =
                    spsc::with_wait::<Record, Backoff>(count.next_power_of_two());
                let clock = &clock;
                let found = together(
                    cores,
                    move || {
                        let mut dropped = 0;
                        let times =
                            timed(clock, records, |record| pushed(&mut producer, record, &mut dropped));
                        (times, dropped)
                    },
                    || write_all(&mut consumer, &mut Lines::new(&elsewhere)),
                );
                report(reporter, &found.one.0);
                reporter.other("dropped", found.one.1 as f64);
                found.two
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 22,
    name: "logging",
    title: "Logging through a queue against formatting on the spot",
    question: "What does a line of a log cost the thread that writes it?",
    published: &[Published {
        source: "NanoLog (github.com/PlatformLab/NanoLog), README, runtime latency of two integers",
        figure: "median and 99.9 %: NanoLog 8 and 62 ns, spdlog 437 and 1,416 ns, glog 1,399 and 6,100 ns",
    }],
    used: &[
        Use { path: "crates/base/ring/src/spsc.rs", what: "is the queue" },
        Use { path: "crates/run/plant/src/journal.rs", what: "hands events to a thread that writes them" },
    ],
    assembly: &[
        Assembly {
            variant: "formatted and written on the spot",
            symbol: "tapeworks_lab::catalogue::logging::on_the_spot",
            marks: &["call"],
        },
        Assembly {
            variant: "pushed as numbers, formatted elsewhere",
            symbol: "tapeworks_lab::catalogue::logging::pushed",
            marks: &["call", "mov"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn all_ways_write_the_same_lines() {
        for count in [0, 1, 2_000] {
            let records = records(count, &mut Random::new(9));
            let file = || tempfile::NamedTempFile::new().unwrap();
            let (one, two) = (file(), file());
            let (mut spot, mut block) =
                (Lines::new(one.reopen().unwrap()), Lines::new(two.reopen().unwrap()));
            records.iter().for_each(|record| on_the_spot(&mut spot, record));
            records.iter().for_each(|record| collected(&mut block, record));
            block.flush();
            let (mut producer, mut consumer) = spsc::with_wait::<Record, Backoff>(2_048);
            let mut dropped = 0;
            records.iter().for_each(|record| pushed(&mut producer, record, &mut dropped));
            drop(producer);
            let mut three = Lines::new(Vec::new());
            let answer = write_all(&mut consumer, &mut three);
            assert_eq!((spot.answer, block.answer, dropped), (answer, answer, 0));
            let text = String::from_utf8(three.to).unwrap();
            for mut file in [one, two] {
                let mut found = String::new();
                file.read_to_string(&mut found).unwrap();
                assert_eq!(found, text);
            }
            assert_eq!(text.lines().count(), count);
        }
    }

    #[test]
    fn a_line_says_all_of_its_record() {
        let record = Record {
            time_ns: 1_700_000_000_000_000_042,
            order: 7,
            price_e9: 101_250_000_000,
            quantity: 300,
            buys: true,
        };
        let mut line = Vec::new();
        format(&record, &mut line);
        assert_eq!(line, b"1700000000.000000042 INFO order 7 sent: buy 300 at 101.2500\n");
    }

    #[test]
    fn a_full_queue_drops_lines_and_counts_them() {
        let (mut producer, _consumer) = spsc::with_wait::<Record, Backoff>(4);
        let mut dropped = 0;
        records(10, &mut Random::new(1))
            .iter()
            .for_each(|record| pushed(&mut producer, record, &mut dropped));
        assert_eq!(dropped, 6);
    }
}
