//! A rare path that must be fast: the order path of a trading loop, kept warm by dry runs that send nothing.

use std::hint::black_box;

use tapeworks_ring::clock::TscClock;

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::random::Random;
use crate::technique::{Assembly, Published, Technique, Use};

/// Instruments with limits and positions.
const INSTRUMENTS: usize = 4_096;

/// Instruments whose positions contribute to the risk of one instrument.
const RELATED: usize = 24;

/// Bytes of market data that ticks read: several times the second-level cache.
const MARKET_BYTES: usize = 4 << 20;

/// Positions in the market data that a tick reads.
const READS: usize = 256;

/// Bytes per order in text form.
const ORDER_BYTES: usize = 256;

/// Order buffers: one for dry runs, and one for sent orders.
const BUFFERS: usize = 2;

/// The data of the order path.
#[derive(Debug)]
pub struct Orders {
    limits: Vec<u64>,
    positions: Vec<u64>,
    related: Vec<[u16; RELATED]>,
    buffers: [[u8; ORDER_BYTES]; BUFFERS],
    /// Orders sent.
    sequence: u64,
    /// Depends on all bytes sent.
    answer: u64,
}

impl Orders {
    /// Creates tables with random content.
    #[must_use]
    pub fn new(random: &mut Random) -> Self {
        let mut related = || std::array::from_fn(|_| random.below(INSTRUMENTS as u64) as u16);
        let related = std::iter::repeat_with(&mut related).take(INSTRUMENTS).collect();
        let mut numbers = || std::iter::repeat_with(|| random.below(1_000)).take(INSTRUMENTS).collect();
        Self {
            limits: numbers(),
            positions: numbers(),
            related,
            buffers: [[b' '; ORDER_BYTES]; BUFFERS],
            sequence: 0,
            answer: 0,
        }
    }

    /// Checks the risk, writes the order as text with its checksum, and sends it; a dry run does everything except the sending. There is no
    /// branch on `is_dry`: a dry run writes to another buffer and adds 0 to the sequence.
    // ANCHOR: order
    #[inline(never)]
    pub fn send(&mut self, instrument: usize, price: u64, quantity: u64, is_dry: bool) -> bool {
        let sent = u64::from(!is_dry);
        let place = instrument % INSTRUMENTS;
        let related = self.related.get(place).copied().unwrap_or([0; RELATED]);
        let exposure = related.iter().fold(0u64, |sum, other| {
            let other = usize::from(*other);
            let position = self.positions.get(other).copied().unwrap_or_default();
            let limit = self.limits.get(other).copied().unwrap_or_default();
            sum.wrapping_add(position.wrapping_mul(limit) & 0xff)
        });
        let is_allowed = exposure < RELATED as u64 * 0xff;
        let Some(buffer) = self.buffers.get_mut(usize::from(!is_dry)) else { return false };
        let sequence = self.sequence + 1;
        let mut at = 0;
        for (tag, value) in
            [(34, sequence), (48, place as u64), (44, price), (38, quantity), (9001, exposure)]
        {
            at = number(buffer, at, tag, b'=');
            at = number(buffer, at, value, 1);
        }
        let text = buffer.get(..at).unwrap_or_default();
        let checksum = text.iter().fold(0u64, |sum, byte| sum + u64::from(*byte)) % 256;
        number(buffer, at, checksum, 1);
        if let Some(position) = self.positions.get_mut(place) {
            *position = position.wrapping_add(quantity * sent);
        }
        self.sequence += sent;
        self.answer = self.answer.rotate_left(sent as u32) ^ (checksum ^ exposure << 8).wrapping_mul(sent);
        is_allowed
    }
    // ANCHOR_END: order
}

/// Writes a number and the byte after it; returns the end position.
#[inline]
fn number(buffer: &mut [u8; ORDER_BYTES], at: usize, value: u64, end: u8) -> usize {
    let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
    let Some(place) = buffer.get_mut(at..at + digits + 1) else { return at };
    let mut left = value;
    if let Some((last, digits)) = place.split_last_mut() {
        *last = end;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
    }
    at + digits + 1
}

/// Processes a tick: reads the market data at many positions, which evicts the order path's lines from the near caches.
#[inline(never)]
#[must_use]
pub fn tick(market: &[u64], random: &mut Random) -> u64 {
    let mut answer = 0u64;
    for _ in 0..READS {
        let place = random.below(market.len() as u64) as usize;
        answer = answer.wrapping_add(market.get(place).copied().unwrap_or_default());
    }
    answer
}

/// Ticks, with an order after every `every`-th. An order's time is measured from decision to sending.
#[derive(Clone, Copy, Debug)]
struct Shape {
    orders: u64,
    every: u64,
}

// ANCHOR: baseline
/// The loop without dry runs.
#[inline(never)]
fn cold(orders: &mut Orders, market: &[u64], shape: Shape, times: &mut Times<'_>) {
    trade(orders, market, shape, times, |_, _| {});
}
// ANCHOR_END: baseline

// ANCHOR: variant
/// The loop with a dry run after each `every` ticks: for some other instrument, since nobody knows which comes next.
#[inline(never)]
fn warmed(orders: &mut Orders, market: &[u64], shape: Shape, times: &mut Times<'_>, every: u64) {
    trade(orders, market, shape, times, |orders, number| {
        if number.is_multiple_of(every) {
            let any = (number / every).wrapping_mul(97) as usize;
            black_box(orders.send(any, 12_345, 100, true));
        }
    });
}
// ANCHOR_END: variant

/// Collects times.
struct Times<'t> {
    clock: &'t TscClock,
    reporter: &'t mut Reporter,
}

#[inline(always)]
fn trade(
    orders: &mut Orders,
    market: &[u64],
    Shape { orders: count, every }: Shape,
    times: &mut Times<'_>,
    mut between: impl FnMut(&mut Orders, u64),
) {
    let mut random = Random::new(11);
    let mut seen = 0u64;
    let began = times.clock.now();
    for number in 1..=count * every {
        seen = seen.wrapping_add(tick(market, &mut random));
        between(orders, number);
        if number.is_multiple_of(every) {
            let (instrument, price) = (random.number() as usize, 10_000 + seen % 1_000);
            let decided = times.clock.now();
            black_box(orders.send(instrument, price, 1 + number % 100, false));
            times.reporter.operation_ns(times.clock.nanoseconds(decided, times.clock.now()));
        }
    }
    let all_ns = times.clock.nanoseconds(began, times.clock.now());
    times.reporter.other("a tick, ns", all_ns as f64 / (count * every).max(1) as f64);
    orders.answer ^= seen;
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let shape = lab.either(Shape { orders: 40, every: 200 }, Shape { orders: 4, every: 50 });
    let mut random = lab.random();
    let market: Vec<u64> = std::iter::repeat_with(|| random.number()).take(MARKET_BYTES / 8).collect();
    let market = market.as_slice();
    let clock = TscClock::new();
    let seed = random;
    let fresh = || Orders::new(&mut seed.clone());
    lab.experiment("a rare order: from the decision to the sending", "order");
    lab.point(
        0.0,
        "",
        Variants::of(shape.orders)
            .add_reported("never warmed", |reporter| {
                let mut orders = fresh();
                cold(&mut orders, market, shape, &mut Times { clock: &clock, reporter });
                orders.answer
            })
            .add_reported("a dry run every 10 ticks", |reporter| {
                let mut orders = fresh();
                warmed(&mut orders, market, shape, &mut Times { clock: &clock, reporter }, 10);
                orders.answer
            })
            .add_reported("a dry run every tick", |reporter| {
                let mut orders = fresh();
                warmed(&mut orders, market, shape, &mut Times { clock: &clock, reporter }, 1);
                orders.answer
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 9,
    name: "cache-warming",
    title: "Cache warming",
    question: "Is a path that is rarely taken faster when it is run for nothing now and then, and what does that cost the rest?",
    published: &[
        Published {
            source: "Bilokon and Gunduz, arXiv:2309.04259, section 3",
            figure: "90 % less time; their cold variant reads ten million numbers at random, the warm one in order",
        },
        Published {
            source: "Pavel Guzenfeld, C++ low-latency patterns, benchmarked, 2026",
            figure: "warming is 7 times slower than cold in his repetition",
        },
    ],
    used: &[
        Use {
            path: "crates/orders/translate/src/translator.rs",
            what: "runs an order through its path while the gateway is idle",
        },
        Use { path: "crates/run/plant/src/warm.rs", what: "keeps the code of sequence gaps warm" },
        Use {
            path: "crates/run/outputs/src/clients/warm.rs",
            what: "keeps the way of a record to a client warm",
        },
    ],
    assembly: &[Assembly {
        variant: "the order path",
        symbol: "tapeworks_lab::catalogue::cache_warming::Orders::send",
        marks: &["mov", "mul", "div"],
    }],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_dry_run_changes_nothing_that_is_sent(
            steps in prop::collection::vec((any::<usize>(), 0u64..1_000_000, 1u64..1_000, any::<bool>()), 0..40),
        ) {
            let (mut all, mut sent) = (Orders::new(&mut Random::new(1)), Orders::new(&mut Random::new(1)));
            for (instrument, price, quantity, is_dry) in steps {
                let allowed = all.send(instrument, price, quantity, is_dry);
                if !is_dry {
                    prop_assert_eq!(allowed, sent.send(instrument, price, quantity, false));
                }
                prop_assert_eq!((all.sequence, all.answer), (sent.sequence, sent.answer));
                prop_assert_eq!(&all.positions, &sent.positions);
                prop_assert_eq!(all.buffers[1], sent.buffers[1]);
            }
        }
    }

    #[test]
    fn an_order_is_written_with_its_fields() {
        let mut orders = Orders::new(&mut Random::new(1));
        orders.positions.fill(0);
        orders.send(7, 12_050, 300, false);
        let text = String::from_utf8_lossy(&orders.buffers[1]).replace('\u{1}', "|");
        let body = "34=1|48=7|44=12050|38=300|9001=0|";
        let sum = body.replace('|', "\u{1}").bytes().map(u64::from).sum::<u64>() % 256;
        assert!(text.starts_with(&format!("{body}{sum}|")), "{text}");
    }

    #[test]
    fn numbers_of_any_length_are_written() {
        for value in [0, 9, 10, 99, 100, u64::MAX] {
            let mut buffer = [0; ORDER_BYTES];
            let end = number(&mut buffer, 3, value, b'|');
            assert_eq!(std::str::from_utf8(&buffer[3..end]).unwrap(), format!("{value}|"));
        }
        let mut buffer = [0; ORDER_BYTES];
        assert_eq!(number(&mut buffer, ORDER_BYTES - 1, 10, b'|'), ORDER_BYTES - 1, "no room");
    }
}
