//! Venues with several feeds, held against a rule that is written down naively: which feed counts is looked up again for each
//! instrument after each event.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tapeworks_market::book::BestMoved;
use tapeworks_market::event::Gap;
use tapeworks_market::nbbo::{BestSide, NbboRules, StaleBooks};
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, Nbbo, NbboStage, NbboUpdate, Price,
    Publisher, Side,
};
use tapeworks_stage::Stage;

/// By their order in the table of venues; IEX's feeds share it.
const FEEDS: [Publisher; 3] = [Publisher::IEXG_TOPS, Publisher::XNAS_ITCH, Publisher::IEXG_DEEP];
const INSTRUMENTS: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Step {
    feed: usize,
    kind: u8,
    instrument: Option<u32>,
    is_bid: bool,
    price: u32,
    size: u32,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0..3usize, 0..16u8, prop::option::weighted(0.8, 0..INSTRUMENTS), any::<bool>(), 1..5u32, 0..4u32);
    let step = step.prop_map(|(feed, kind, instrument, is_bid, price, size)| Step {
        feed,
        kind,
        instrument,
        is_bid,
        price,
        size,
    });
    prop::collection::vec(step, 1..150)
}

/// The event of a step: the kinds that the feed has, gaps, ends of gaps and clears of an instrument or of all.
fn event(number: usize, step: &Step) -> Event {
    let publisher = FEEDS[step.feed];
    let instrument = InstrumentId(step.instrument.unwrap_or_default());
    let of_some = step.instrument.map_or(InstrumentId::ALL, InstrumentId);
    let gap = Gap { first: 1, count: 1 };
    let mut event = match (step.kind, publisher) {
        (0 | 1, _) => Event::new(EventKind::Gap, publisher, of_some).with_gap(gap),
        (2 | 3, _) => Event::new(EventKind::Recovered, publisher, of_some),
        (4, _) => Event::new(EventKind::Clear, publisher, of_some),
        (5, _) => Event::new(EventKind::Gap, publisher, instrument).with_gap(gap).with_contradiction(),
        (_, Publisher::IEXG_TOPS) => Event::new(EventKind::Quote, publisher, instrument),
        (_, Publisher::IEXG_DEEP) => Event::new(EventKind::Level, publisher, instrument),
        // Some deletions meet an order, others contradict the book.
        (6, _) => Event::new(EventKind::Delete, publisher, instrument),
        _ => Event::new(EventKind::Add, publisher, instrument),
    };
    event.order_id = if event.kind == EventKind::Delete { u64::from(step.price) } else { number as u64 };
    event.side = if step.is_bid { Side::Bid } else { Side::Ask };
    event.price = Price::from_e9(i64::from(step.price) * 1_000_000_000);
    event.size = step.size * 100;
    event
}

/// The NBBO of an instrument by the rule.
fn expected(
    rules: &NbboRules,
    order: &[Publisher],
    books: &BookStage,
    heard: &BTreeSet<(Publisher, InstrumentId)>,
    instrument: InstrumentId,
) -> Vec<(Option<Price>, u32, Publisher)> {
    let book = |publisher: Publisher| books.feed(publisher).map(|books| books.book(instrument));
    let is_stale = |publisher: Publisher| book(publisher).is_some_and(|book| book.is_stale());
    let iex = [Publisher::IEXG_DEEP, Publisher::IEXG_TOPS]
        .map(|feed| Some(feed).filter(|feed| heard.contains(&(*feed, instrument))));
    let of_iex = iex.iter().flatten().find(|feed| !is_stale(**feed)).or(iex.iter().flatten().next()).copied();
    let counting =
        order.iter().copied().filter(|feed| Some(*feed) == of_iex || *feed == Publisher::XNAS_ITCH);
    let counting = counting.filter(|feed| rules.stale_books == StaleBooks::Flag || !is_stale(*feed));
    let counting: Vec<_> = counting.filter_map(book).collect();
    [Side::Bid, Side::Ask]
        .map(|side| {
            let bests: Vec<_> =
                counting.iter().filter_map(|book| Some((book.best(side)?, book.publisher()))).collect();
            let prices = bests.iter().map(|(level, _)| level.price);
            let Some(price) = (if side == Side::Bid { prices.max() } else { prices.min() }) else {
                return (None, 0, Publisher(0));
            };
            let at: Vec<_> = bests.iter().filter(|(level, _)| level.price == price).collect();
            let most = at.iter().map(|(level, _)| level.size).max().unwrap_or_default();
            let first = at
                .iter()
                .find(|(level, _)| level.size == most)
                .map_or(Publisher(0), |(_, publisher)| *publisher);
            (Some(price), at.iter().map(|(level, _)| level.size).sum(), first)
        })
        .to_vec()
}

fn shown(nbbo: &Nbbo) -> Vec<(Option<Price>, u32, Publisher)> {
    [nbbo.bid, nbbo.ask].map(|BestSide { price, size, publisher, .. }| (price, size, publisher)).to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_feed_that_counts_follows_from_the_rule_alone(
        steps in steps(),
        is_named in any::<bool>(),
        excludes in any::<bool>(),
    ) {
        let stale_books = if excludes { StaleBooks::Exclude } else { StaleBooks::Flag };
        let rules = NbboRules { stale_books, ..NbboRules::default() };
        // The feeds are named, or join as they are heard; tables start too small.
        let named = if is_named { &FEEDS[..] } else { &[] };
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let mut books = BookStage::with_unnamed([], capacity);
        let mut nbbo = NbboStage::new(rules.clone(), named.iter().copied(), 1);
        let mut heard = BTreeSet::new();
        for (number, step) in steps.iter().enumerate() {
            let event = event(number, step);
            books.process(&[event], &mut |update: BookUpdate<'_>| {
                let (publisher, instrument) = (update.book.publisher(), update.event.instrument);
                match event.kind {
                    EventKind::Clear => heard.retain(|(feed, of)| {
                        *feed != publisher || instrument != InstrumentId::ALL && *of != instrument
                    }),
                    EventKind::Gap | EventKind::Recovered => {}
                    _ if update.best_moved() != BestMoved::No => {
                        heard.insert((publisher, instrument));
                    }
                    _ => {}
                }
                nbbo.process(&[update], &mut |_: NbboUpdate<'_>| {});
            });
            // A checkpoint in between changes nothing.
            if number % 7 == 0 {
                nbbo = NbboStage::from_image(rules.clone(), nbbo.image()).unwrap();
            }
            for instrument in (0..INSTRUMENTS).map(InstrumentId) {
                let expected = expected(&rules, nbbo.venues(), &books, &heard, instrument);
                prop_assert_eq!(shown(nbbo.nbbo(instrument)), expected, "{:?} after {:?}", instrument, step);
            }
        }
        prop_assert_eq!(nbbo.ignored(), 0);
    }
}
