//! The books and the NBBO against a model made of maps, on random events, valid and not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use tapeworks_market::book::DEFAULT_ROUND_LOT;
use tapeworks_market::book::Outcome;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{
    BookRef, BookStage, BookUpdate, Capacity, Event, EventKind, Flags, InstrumentId, Level, NbboStage,
    NbboUpdate, Price, Publisher, Side,
};
use tapeworks_stage::{Chain, Stage};

const VENUES: [Publisher; 3] = [Publisher::XNAS_ITCH, Publisher::XBOS_ITCH, Publisher::XPSX_ITCH];
const INSTRUMENTS: u32 = 3;

/// What a test throws at a book.
#[derive(Clone, Debug)]
struct Throw {
    venue: usize,
    instrument: u32,
    kind: EventKind,
    id: u64,
    new_id: u64,
    side: Side,
    ticks: u32,
    size: u32,
    /// A replacement keeps its priority.
    keeps: bool,
}

impl Throw {
    /// The event of a replacement that keeps its priority has no price.
    fn keeps_price(&self) -> bool {
        self.keeps && self.ticks < 4
    }
}

fn throws(length: usize) -> impl Strategy<Value = Vec<Throw>> {
    let kind = prop_oneof![
        6 => Just(EventKind::Add),
        2 => Just(EventKind::Execute),
        2 => Just(EventKind::Cancel),
        2 => Just(EventKind::Delete),
        2 => Just(EventKind::Replace),
    ];
    let one = (
        0..VENUES.len(),
        0..INSTRUMENTS,
        kind,
        0u64..40,
        0u64..40,
        any::<(bool, bool, bool)>(),
        1u32..12,
        0u32..400,
    );
    let one =
        one.prop_map(|(venue, instrument, kind, id, new_id, (ask, keeps, is_same), ticks, size)| Throw {
            venue,
            instrument,
            kind,
            id,
            // Half of the replacements change an order that keeps its number.
            new_id: if is_same { id } else { new_id },
            side: if ask { Side::Ask } else { Side::Bid },
            ticks,
            size,
            keeps,
        });
    prop::collection::vec(one, 1..length)
}

fn event(throw: &Throw) -> Event {
    let mut event = Event::new(throw.kind, VENUES[throw.venue], InstrumentId(throw.instrument));
    event.order_id = throw.id;
    event.size = throw.size;
    match throw.kind {
        EventKind::Add => {
            event.side = throw.side;
            event.price = Some(Price::from_e4(throw.ticks * 100));
        }
        EventKind::Replace => {
            event.aux = throw.new_id;
            event.detail = if throw.keeps { Event::KEEPS_PRIORITY } else { 0 };
            event.price = Some(Price::from_e4(throw.ticks * 100)).filter(|_| !throw.keeps_price());
        }
        _ => {}
    }
    event
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ModelOrder {
    instrument: u32,
    side: Side,
    price: Price,
    size: u32,
    /// Of two at a price, the one with the lower number executes first.
    arrival: u64,
}

/// The simplest book there is: a map of orders. It adds up levels on request.
#[derive(Default, Debug)]
struct Model {
    orders: HashMap<u64, ModelOrder>,
    arrivals: u64,
}

impl Model {
    fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// The orders of a side of an instrument as they would execute.
    fn queue(&self, instrument: u32, side: Side) -> Vec<u64> {
        let of_side =
            self.orders.iter().filter(|(_, order)| (order.instrument, order.side) == (instrument, side));
        let place = |order: &ModelOrder| match side {
            Side::Bid => (-order.price.e9(), order.arrival),
            _ => (order.price.e9(), order.arrival),
        };
        let mut queue: Vec<_> = of_side.map(|(id, order)| (place(order), *id)).collect();
        queue.sort_unstable();
        queue.into_iter().map(|(_, id)| id).collect()
    }

    fn apply(&mut self, throw: &Throw) -> Outcome {
        let price = Price::from_e4(throw.ticks * 100);
        match throw.kind {
            EventKind::Add if throw.size == 0 => Outcome::Incomplete,
            EventKind::Add if self.orders.contains_key(&throw.id) => Outcome::DuplicateOrder,
            EventKind::Add => {
                let (instrument, arrival) = (throw.instrument, self.next_arrival());
                let order = ModelOrder { instrument, side: throw.side, price, size: throw.size, arrival };
                self.orders.insert(throw.id, order);
                Outcome::Applied
            }
            EventKind::Execute | EventKind::Cancel => {
                let Some(order) = self.orders.get_mut(&throw.id) else { return Outcome::UnknownOrder };
                let overfill = throw.size > order.size;
                order.size = order.size.saturating_sub(throw.size);
                if order.size == 0 {
                    self.orders.remove(&throw.id);
                }
                if overfill { Outcome::Overfill } else { Outcome::Applied }
            }
            EventKind::Delete => {
                if self.orders.remove(&throw.id).is_some() {
                    Outcome::Applied
                } else {
                    Outcome::UnknownOrder
                }
            }
            _ => {
                let Some(old) = self.orders.remove(&throw.id) else { return Outcome::UnknownOrder };
                if throw.size == 0 {
                    return Outcome::Incomplete;
                }
                if self.orders.contains_key(&throw.new_id) {
                    return Outcome::DuplicateOrder;
                }
                let arrival = if throw.keeps { old.arrival } else { self.next_arrival() };
                let price = if throw.keeps_price() { old.price } else { price };
                self.orders.insert(throw.new_id, ModelOrder { price, size: throw.size, arrival, ..old });
                Outcome::Applied
            }
        }
    }

    /// Best first.
    fn levels(&self, instrument: u32, side: Side) -> Vec<Level> {
        let mut levels = BTreeMap::<Price, (u32, u32)>::new();
        for order in self.orders.values().filter(|order| order.instrument == instrument && order.side == side)
        {
            let level = levels.entry(order.price).or_default();
            (level.0, level.1) = (level.0 + order.size, level.1 + 1);
        }
        let mut levels: Vec<_> =
            levels.into_iter().map(|(price, (size, orders))| Level { price, size, orders }).collect();
        if side == Side::Bid {
            levels.reverse();
        }
        levels
    }

    fn round_lot_best(&self, instrument: u32, side: Side) -> Option<(Price, u32)> {
        let mut shares = 0;
        self.levels(instrument, side).into_iter().find_map(|level| {
            shares += level.size;
            (shares >= DEFAULT_ROUND_LOT)
                .then_some((level.price, shares / DEFAULT_ROUND_LOT * DEFAULT_ROUND_LOT))
        })
    }
}

/// What makes books stale, and what mends them.
#[derive(Clone, Debug)]
enum Step {
    Throw(Throw),
    /// A gap, its end, or a clear, of one instrument or of all.
    Of(EventKind, Option<u32>),
}

impl Step {
    /// Of which venue it is, and the event.
    fn event(&self) -> (usize, Event) {
        match self {
            Self::Throw(throw) => (throw.venue, event(throw)),
            Self::Of(kind, one) => {
                (0, Event::new(*kind, VENUES[0], one.map_or(InstrumentId::ALL, InstrumentId)))
            }
        }
    }
}

fn steps(length: usize) -> impl Strategy<Value = Vec<Step>> {
    let kind =
        prop_oneof![1 => Just(EventKind::Gap), 2 => Just(EventKind::Recovered), 1 => Just(EventKind::Clear)];
    let of = (kind, prop::option::weighted(0.7, 0..INSTRUMENTS)).prop_map(|(kind, one)| Step::Of(kind, one));
    let throw = throws(2).prop_map(|mut throws| Step::Throw(throws.remove(0)));
    prop::collection::vec(prop_oneof![8 => throw, 1 => of], 1..length)
}

/// A venue's orders, and the instruments that are in doubt: after a gap, and by contradiction.
#[derive(Default)]
struct Doubts {
    model: Model,
    gapped: BTreeSet<u32>,
    contradicted: BTreeSet<u32>,
    contradictions: u64,
}

impl Doubts {
    fn throw(&mut self, throw: &Throw) {
        let orders = &self.model.orders;
        let of = |id: u64| orders.get(&id).map(|order| order.instrument);
        let is_add = throw.kind == EventKind::Add;
        let named = of(throw.id).filter(|_| !is_add).unwrap_or(throw.instrument);
        let taken = of(if is_add { throw.id } else { throw.new_id });
        let outcome = self.model.apply(throw);
        if outcome != Outcome::Applied {
            let also = taken.filter(|_| outcome == Outcome::DuplicateOrder);
            for instrument in [Some(named), also].into_iter().flatten() {
                self.contradictions += u64::from(self.contradicted.insert(instrument));
            }
        }
    }

    fn of(&mut self, kind: EventKind, one: Option<u32>) {
        let touched: Vec<u32> = one.map_or_else(|| (0..INSTRUMENTS).collect(), |one| vec![one]);
        for instrument in touched {
            match kind {
                EventKind::Gap => {
                    self.gapped.insert(instrument);
                }
                EventKind::Recovered => {
                    self.gapped.remove(&instrument);
                }
                _ => {
                    self.gapped.remove(&instrument);
                    self.contradicted.remove(&instrument);
                    self.model.orders.retain(|_, order| order.instrument != instrument);
                }
            }
        }
    }
}

fn levels_of(book: BookRef<'_>, side: Side) -> Vec<Level> {
    book.levels(side).collect()
}

proptest! {
    #[test]
    fn books_equal_the_model_and_return_the_depth_of_each_change(throws in throws(300)) {
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let mut stage = BookStage::new(VENUES.map(|venue| (venue, capacity)));
        let mut models: [Model; 3] = Default::default();
        for throw in &throws {
            let instrument = throw.instrument;
            // What an execution, cancellation or replacement changes is the book of the order it refers to.
            let named = models[throw.venue].orders.get(&throw.id).map_or(instrument, |order| order.instrument);
            let touched = if throw.kind == EventKind::Add { instrument } else { named };
            let before = [Side::Bid, Side::Ask].map(|side| models[throw.venue].levels(touched, side));
            let expected = models[throw.venue].apply(throw);
            let model = &models[throw.venue];
            let after = [Side::Bid, Side::Ask].map(|side| model.levels(touched, side));
            let first_change = (0..2)
                .filter_map(|side| {
                    let longest = before[side].len().max(after[side].len());
                    (0..longest).find(|at| before[side].get(*at) != after[side].get(*at))
                })
                .min();
            let mut checked = Ok(());
            stage.process(&[event(throw)], &mut |update: BookUpdate<'_>| {
                checked = (|| {
                    prop_assert_eq!(update.outcome, expected);
                    prop_assert_eq!(update.book.instrument().0, if expected == Outcome::UnknownOrder { instrument } else { touched });
                    let book = update.book.of(InstrumentId(touched));
                    prop_assert_eq!(levels_of(book, Side::Bid), after[0].clone());
                    prop_assert_eq!(levels_of(book, Side::Ask), after[1].clone());
                    if let Some(first_change) = first_change {
                        prop_assert!(update.changed_within(first_change as u32 + 1), "{:?} {}", update.depth(), first_change);
                    }
                    Ok(())
                })();
            });
            checked?;
        }
        for (model, venue) in models.iter().zip(VENUES) {
            let books = stage.feed(venue).unwrap();
            prop_assert_eq!(books.order_count(), model.orders.len());
            for instrument in 0..INSTRUMENTS {
                let queue = books.book(InstrumentId(instrument)).queue();
                let ids: Vec<u64> = queue.iter().map(|order| order.id).collect();
                prop_assert_eq!(ids, [model.queue(instrument, Side::Bid), model.queue(instrument, Side::Ask)].concat());
                for order in queue {
                    let resting = model.orders.get(&order.id).map(|one| (one.instrument, one.side, one.price, one.size));
                    prop_assert_eq!(resting, Some((instrument, order.side, order.price, order.size)));
                }
            }
        }
    }

    #[test]
    fn a_book_that_an_event_contradicts_is_stale_until_it_is_cleared(steps in steps(300)) {
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let mut stage = BookStage::new(VENUES.map(|venue| (venue, capacity)));
        let mut venues: [Doubts; 3] = Default::default();
        for step in &steps {
            let (venue, event) = step.event();
            match step {
                Step::Throw(throw) => venues[venue].throw(throw),
                Step::Of(kind, one) => venues[venue].of(*kind, *one),
            }
            let mut flagged = None;
            stage.process(&[event], &mut |update: BookUpdate<'_>| {
                let is_flagged = update.event.flags().contains(Flags::MAYBE_BAD_BOOK);
                flagged = Some((update.event.instrument, is_flagged));
            });
            let doubts = &venues[venue];
            let is_stale = |instrument: u32| {
                doubts.gapped.contains(&instrument) || doubts.contradicted.contains(&instrument)
            };
            let (instrument, is_flagged) = flagged.unwrap();
            if instrument != InstrumentId::ALL {
                prop_assert_eq!(is_flagged, is_stale(instrument.0), "{:?}", step);
            }
            let books = stage.feed(VENUES[venue]).unwrap();
            for instrument in 0..INSTRUMENTS {
                let book = books.book(InstrumentId(instrument));
                prop_assert_eq!(book.is_stale(), is_stale(instrument), "{:?}", step);
                prop_assert_eq!(book.is_contradicted(), doubts.contradicted.contains(&instrument));
            }
            prop_assert_eq!(books.contradicted_count(), doubts.contradicted.len());
            prop_assert_eq!(books.counters().contradictions, doubts.contradictions);
        }
    }

    #[test]
    fn books_without_levels_complete_events_as_books_with_them(steps in steps(300)) {
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let (mut stage, mut without) = (BookStage::with_unnamed([], capacity), BookStage::without_levels(capacity));
        for step in &steps {
            let (venue, event) = step.event();
            let (mut expected, mut completed) = (None, None);
            let complete = |update: BookUpdate<'_>| (*update.event, update.before, update.outcome);
            stage.process(&[event], &mut |update: BookUpdate<'_>| expected = Some(complete(update)));
            without.process(&[event], &mut |update: BookUpdate<'_>| completed = Some(complete(update)));
            prop_assert_eq!(completed, expected, "{:?}", step);
            let (books, without) = (stage.feed(VENUES[venue]).unwrap(), without.feed(VENUES[venue]).unwrap());
            prop_assert_eq!(without.counters(), books.counters());
            for instrument in (0..INSTRUMENTS).map(InstrumentId) {
                let (book, without) = (books.book(instrument), without.book(instrument));
                prop_assert_eq!(without.queue(), book.queue(), "{:?}", step);
                prop_assert_eq!(without.is_contradicted(), book.is_contradicted());
                prop_assert_eq!(without.depth(Side::Bid) + without.depth(Side::Ask), 0);
            }
        }
    }

    #[test]
    fn the_nbbo_is_the_best_round_lot_of_all_venues(throws in throws(300)) {
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let books = BookStage::new(VENUES.map(|venue| (venue, capacity)));
        // One venue is named, the others join; tables start too small.
        let nbbo = NbboStage::new(NbboRules::default(), [VENUES[0]], 1);
        let mut chain = tapeworks_stage::Through::new(books, nbbo);
        let mut models: [Model; 3] = Default::default();
        for throw in &throws {
            models[throw.venue].apply(throw);
            chain.process(&[event(throw)], &mut |_: NbboUpdate<'_>| {});
            for instrument in 0..INSTRUMENTS {
                let nbbo = chain.second.nbbo(InstrumentId(instrument));
                for (side, best) in [(Side::Bid, nbbo.bid), (Side::Ask, nbbo.ask)] {
                    let quotes = models.iter().filter_map(|model| model.round_lot_best(instrument, side));
                    let price = quotes.clone().map(|quote| quote.0);
                    let price = if side == Side::Bid { price.max() } else { price.min() };
                    prop_assert_eq!(best.price, price);
                    let size: u32 = quotes.clone().filter(|quote| Some(quote.0) == price).map(|quote| quote.1).sum();
                    prop_assert_eq!(best.size, size);
                    let largest = quotes.filter(|quote| Some(quote.0) == price).map(|quote| quote.1).max();
                    prop_assert_eq!(best.venue_size, largest.unwrap_or(0));
                }
            }
        }
    }

    #[test]
    fn batches_of_any_length_give_the_same_updates(throws in throws(200), cut in 1usize..100) {
        let run = |batch: usize| {
            let mut stage = BookStage::new([]);
            let events: Vec<_> = throws.iter().map(event).collect();
            let mut seen = Vec::new();
            for batch in events.chunks(batch) {
                stage.process(batch, &mut |update: BookUpdate<'_>| {
                    seen.push((*update.event, update.before, update.outcome, update.depth(), update.book.best(Side::Bid)));
                });
            }
            seen
        };
        prop_assert_eq!(run(1), run(cut));
    }
}

#[test]
fn a_chain_over_a_buffer_carries_events_to_the_books() {
    /// Doubles nothing, passes all: stands for a decoder.
    struct Pass;
    impl<S: tapeworks_stage::Sink<Event>> Stage<Event, S> for Pass {
        fn process(&mut self, batch: &[Event], sink: &mut S) {
            batch.iter().for_each(|event| sink.put(*event));
        }
    }
    let mut chain = Chain::new(Pass, BookStage::new([]), 8);
    let throw = Throw {
        venue: 0,
        instrument: 0,
        kind: EventKind::Add,
        id: 1,
        new_id: 0,
        side: Side::Bid,
        ticks: 5,
        size: 100,
        keeps: false,
    };
    let mut best = None;
    chain.process(&[event(&throw)], &mut |update: BookUpdate<'_>| best = update.book.best(Side::Bid));
    assert_eq!(best, Some(Level { price: Price::from_e4(500), size: 100, orders: 1 }));
}
