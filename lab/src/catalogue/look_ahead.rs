//! Look-ahead over a batch: while one item is processed, the memory of later items is prefetched.
//!
//! Work on an item waits for the previous item, as in a book. Without look-ahead, cache misses happen one after another. A look-ahead of *n*
//! items keeps *n* misses in flight.

use std::cell::RefCell;
use std::hint::black_box;

use tapeworks_market::book::Outcome;
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, Price, Publisher, Side,
};
use tapeworks_ring::memory::HugeVec;
use tapeworks_ring::prefetch;
use tapeworks_stage::Stage as _;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};

/// Looks items up one after another. `zero` is 0, which the compiler does not know, so each address waits for the last value.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn one_by_one(table: &[u64], places: &[u32], zero: u64) -> u64 {
    let mut sum = 0u64;
    let mut last = 0u64;
    for place in places {
        let place = *place as usize + last.wrapping_mul(zero) as usize;
        last = table.get(place).copied().unwrap_or_default();
        sum = sum.wrapping_add(last);
    }
    sum
}
// ANCHOR_END: baseline

/// Does the same, and prefetches the line of the item `ahead` places later. The prefetch also waits for the last value: in a real program the
/// work fills the processor's window, but this short loop would otherwise issue prefetches from many iterations ahead.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn look_ahead(table: &[u64], places: &[u32], zero: u64, ahead: usize) -> u64 {
    let mut sum = 0u64;
    let mut last = 0u64;
    let mut to_come = places.iter();
    for place in to_come.by_ref().take(ahead) {
        prefetch::read(table, *place as usize);
    }
    for place in places {
        let behind_the_last = last.wrapping_mul(zero) as usize;
        if let Some(place) = to_come.next() {
            prefetch::read(table, *place as usize + behind_the_last);
        }
        last = table.get(*place as usize + behind_the_last).copied().unwrap_or_default();
        sum = sum.wrapping_add(last);
    }
    sum
}
// ANCHOR_END: variant

/// Events for the product's books: one-share executions of resting orders, in random order.
struct Market {
    stage: BookStage,
    executions: Vec<Event>,
}

/// Shares per order: more than all rounds execute, and few enough that a level's total fits into 32 bits.
const SHARES: u32 = 1 << 22;

impl Market {
    /// Creates books with this many orders and instruments, and this many different executions.
    fn with(random: &mut Random, orders: u32, instruments: u32, executions: usize) -> Self {
        let publisher = Publisher::XNAS_ITCH;
        let capacity =
            Capacity { instruments: instruments as usize, ..Capacity::for_orders(orders as usize) };
        let mut stage = BookStage::new([(publisher, capacity)]);
        let mut added = Vec::new();
        for order in 1..=orders {
            let instrument = InstrumentId(random.below(u64::from(instruments)) as u32);
            let mut event = Event::new(EventKind::Add, publisher, instrument);
            event.order_id = u64::from(order);
            event.size = SHARES;
            // Bids below 100, asks above, 32 levels each, with most orders near the best price.
            let depth = random.below(32).min(random.below(32)) as u32;
            (event.side, event.price) = if random.below(2) == 0 {
                (Side::Bid, Some(Price::from_e4(999_900 - depth * 100)))
            } else {
                (Side::Ask, Some(Price::from_e4(1_000_000 + depth * 100)))
            };
            added.push(event);
        }
        stage.process(&added, &mut |_: BookUpdate<'_>| {});
        random.shuffle(&mut added);
        let executions = added
            .iter()
            .take(executions)
            .map(|order| {
                let mut event = Event::new(EventKind::Execute, publisher, order.instrument);
                (event.order_id, event.size) = (order.order_id, 1);
                event
            })
            .collect();
        Self { stage, executions }
    }

    /// Applies all executions in batches of this size. The stage looks ahead only within a batch.
    // ANCHOR: book
    fn apply(&mut self, batch: usize) -> u64 {
        let mut answer = 0u64;
        let mut take = |update: BookUpdate<'_>| {
            answer += u64::from(update.outcome == Outcome::Applied) << 32;
            answer = answer.wrapping_add(u64::from(update.depth().unwrap_or_default()));
        };
        for events in self.executions.chunks(batch.max(1)) {
            self.stage.process(events, &mut take);
        }
        answer
    }
    // ANCHOR_END: book
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    let entries = lab.either(1usize << 26, 1 << 20);
    let lookups = lab.either(1 << 18, 1 << 11);
    let mut table = HugeVec::<u64>::zeroed(entries);
    table.iter_mut().for_each(|entry| *entry = random.number());
    let table: &[u64] = &table;
    let places = || random.below(entries as u64) as u32;
    let places: Vec<u32> = std::iter::repeat_with(places).take(lookups).collect();
    let places = places.as_slice();
    let zero = black_box(0);
    lab.experiment(
        if lab.settings().quick {
            "a table of 8 MiB, at random places"
        } else {
            "a table of 512 MiB, at random places"
        },
        "item",
    );
    lab.along("misses in flight", Scale::Logarithmic);
    for ahead in lab.either(vec![1, 2, 4, 8, 16, 32, 64], vec![1, 16]) {
        lab.point(
            ahead as f64,
            &format!("{ahead} ahead"),
            Variants::of(lookups as u64)
                .add("one by one", || one_by_one(black_box(table), places, zero))
                .add("look-ahead", || look_ahead(black_box(table), places, zero, ahead)),
        )?;
    }

    let (orders, instruments) = lab.either((1 << 21, 8_192), (1 << 13, 256));
    let executions = lab.either(1 << 18, 1 << 10);
    let market = RefCell::new(Market::with(&mut random, orders, instruments, executions));
    lab.experiment("the product's books: executions of resting orders, in batches", "event");
    lab.along("events in a batch", Scale::Logarithmic);
    for batch in lab.either(vec![2usize, 4, 8, 16, 32, 64, 256], vec![8, 256]) {
        lab.point(
            batch as f64,
            &format!("batches of {batch}"),
            Variants::of(executions as u64)
                .add("one event a batch", || market.borrow_mut().apply(1))
                .add("batches", || market.borrow_mut().apply(batch)),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 25,
    name: "look-ahead",
    title: "Look-ahead over a batch",
    question: "How much faster is a batch whose cache misses overlap, and how many misses can be in flight?",
    published: &[Published {
        source: "notes.elimelt.com, Memory-Level Parallelism (chains of pointers through 256 MB)",
        figure: "92.6 ns an access with one chain, 15.6 ns with 8 chains (5.9 times), 8.9 ns with 16 (10.4 times)",
    }],
    used: &[
        Use {
            path: "crates/market/market/src/book.rs",
            what: "prefetches orders 16 events ahead and levels 8 events ahead",
        },
        Use { path: "crates/base/ring/src/spsc.rs", what: "prefetches the next slots of a ring" },
        Use {
            path: "crates/packets/flow/src/edge.rs",
            what: "prefetches the head of a packet that is to be released",
        },
    ],
    assembly: &[
        Assembly {
            variant: "one by one",
            symbol: "tapeworks_lab::catalogue::look_ahead::one_by_one",
            marks: &["imul", "mov"],
        },
        Assembly {
            variant: "look-ahead",
            symbol: "tapeworks_lab::catalogue::look_ahead::look_ahead",
            marks: &["prefetch"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_distance_gives_the_same_sum(
            table in prop::collection::vec(any::<u64>(), 0..40),
            places in prop::collection::vec(0u32..50, 0..40),
            ahead in 0usize..50,
        ) {
            let expected = places
                .iter()
                .filter_map(|place| table.get(*place as usize))
                .fold(0u64, |sum, value| sum.wrapping_add(*value));
            prop_assert_eq!(one_by_one(&table, &places, 0), expected);
            prop_assert_eq!(look_ahead(&table, &places, 0, ahead), expected);
        }
    }

    #[test]
    fn batches_of_every_size_give_the_same_updates() {
        let mut market = Market::with(&mut Random::new(3), 2_000, 20, 500);
        let expected = market.apply(1);
        assert_eq!(expected >> 32, 500, "every execution is applied");
        for batch in [2, 7, 16, 64, 500, 1_000] {
            assert_eq!(market.apply(batch), expected, "batches of {batch}");
        }
    }
}
