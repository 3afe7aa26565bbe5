//! The cost of a message for a book with many resting orders: additions, and removals.
//!
//! In a market most orders are removed soon and some rest all day: here an order's age at its removal is as likely between 1,000 and
//! 2,000 additions as between a million and two. Removals of orders of any age, each as likely as any other, are the worst for caches.

use tapeworks_market::book::BATCH;
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, Price, Publisher, Side,
};
use tapeworks_stage::{Sink, Stage};

use crate::Options;
use crate::itch::Tops;

/// Messages made at a time, before the clock starts.
const CHUNK: usize = 1 << 16;
/// Messages measured of each kind of ages.
const MEASURED: usize = 4 << 20;

/// Which orders are removed.
#[derive(Clone, Copy)]
enum Ages {
    /// Each doubling of the age is as likely.
    AsInAMarket,
    /// Each order is as likely.
    Any,
}

/// What is measured one after the other in a book, and its name.
const AGES: [(Ages, &str); 2] = [(Ages::AsInAMarket, "as in a market"), (Ages::Any, "any age")];

/// Numbers at random (xorshift), the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Orders that rest, and the events that change them.
struct Orders {
    numbers: Numbers,
    symbols: u32,
    resting: Vec<(u64, InstrumentId)>,
    next: u64,
}

impl Orders {
    /// An order near the best price: twice as deep is half as likely.
    fn addition(&mut self) -> (Event, (u64, InstrumentId)) {
        let random = self.numbers.next();
        let instrument = InstrumentId((random >> 32) as u32 % self.symbols);
        let depth = i64::from((random & 0xfffff).trailing_zeros()) * 3 + (random >> 24 & 3) as i64;
        let is_ask = random >> 63 == 1;
        let mut event = Event::new(EventKind::Add, Publisher::XNAS_ITCH, instrument);
        event.order_id = self.next;
        event.side = if is_ask { Side::Ask } else { Side::Bid };
        event.price = Price::from_e9((if is_ask { 10_001 + depth } else { 10_000 - depth }) * 10_000_000);
        event.size = 100;
        self.next += 1;
        (event, (event.order_id, instrument))
    }

    /// The place of the order that is removed. The new order takes its place: an order at place `n` from the end is replaced, of
    /// [`Ages::AsInAMarket`], once in about `n` additions.
    fn removed(&mut self, ages: Ages) -> usize {
        let random = self.numbers.next() as usize;
        let count = self.resting.len();
        match ages {
            Ages::Any => random % count,
            Ages::AsInAMarket => {
                let doublings = count.ilog2() as usize;
                let least = 1 << ((random >> 40) % doublings);
                count - (least + random % least)
            }
        }
    }

    /// Half of them additions, half removals.
    fn fill(&mut self, events: &mut Vec<Event>, ages: Ages) {
        events.clear();
        while events.len() < CHUNK {
            let (event, order) = self.addition();
            events.push(event);
            let at = self.removed(ages);
            let (id, instrument) = std::mem::replace(&mut self.resting[at], order);
            let mut event = Event::new(EventKind::Delete, Publisher::XNAS_ITCH, instrument);
            event.order_id = id;
            events.push(event);
        }
    }
}

fn apply<S: for<'a> Sink<BookUpdate<'a>>>(books: &mut BookStage, events: &[Event], sink: &mut S) {
    events.chunks(BATCH).for_each(|batch| books.process(batch, sink));
}

/// Nanoseconds of the median chunk, by messages, with so many orders at rest, of each kind of ages.
fn measure(orders: usize, symbols: u32) -> [f64; AGES.len()] {
    let capacity = Capacity { orders: orders + CHUNK, levels: 1 << 22, instruments: symbols as usize };
    let mut books = BookStage::new([(Publisher::XNAS_ITCH, capacity)]);
    let mut made = Orders {
        numbers: Numbers(88_172_645_463_325_252),
        symbols,
        resting: Vec::with_capacity(orders),
        next: 1,
    };
    let mut events = Vec::with_capacity(CHUNK);
    let mut tops = Tops::default();
    while made.resting.len() < orders {
        events.clear();
        for _ in 0..CHUNK.min(orders - made.resting.len()) {
            let (event, order) = made.addition();
            events.push(event);
            made.resting.push(order);
        }
        apply(&mut books, &events, &mut tops);
    }
    let medians = AGES.map(|(ages, _)| {
        let mut chunks = Vec::new();
        for _ in 0..MEASURED / CHUNK {
            made.fill(&mut events, ages);
            let started = std::time::Instant::now();
            apply(&mut books, &events, &mut tops);
            chunks.push(started.elapsed().as_nanos() as f64 / CHUNK as f64);
        }
        chunks.sort_by(f64::total_cmp);
        chunks[chunks.len() / 2]
    });
    let feed = &books.feeds()[0];
    assert_eq!((feed.order_count(), feed.counters().rejected()), (orders, 0), "the events are sound");
    assert!(tops.0 > 0, "the best prices move");
    medians
}

pub fn run(options: &Options) {
    let counts: Vec<usize> = [1_000_000, 10_000_000, 100_000_000]
        .into_iter()
        .filter(|count| *count as u64 <= options.messages.max(1_000_000))
        .collect();
    println!(
        "{} symbols; an addition, then a removal; medians of {} rounds",
        options.symbols, options.rounds
    );
    let rounds: Vec<Vec<_>> = (0..options.rounds)
        .map(|_| counts.iter().map(|count| measure(*count, options.symbols)).collect())
        .collect();
    println!("{:>16} {:>16} {:>12} {:>8}", "removals", "resting orders", "ns/message", "ratio");
    for (kind, (_, name)) in AGES.iter().enumerate() {
        for (at, count) in counts.iter().enumerate() {
            let median = |of: &dyn Fn(&Vec<[f64; AGES.len()]>) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            println!(
                "{name:>16} {count:>16} {:>12.1} {:>7.2}x",
                median(&|round| round[at][kind]),
                median(&|round| round[at][kind] / round[0][kind])
            );
        }
    }
}
