//! Conflation of quotes: of several waiting quotes of one side, only the last is kept.
//!
//! When the next stage lags, old quotes only make it lag more. A quote replaces a whole side of a venue's book, so a
//! late reader needs only the last one ([`EventKind::Quote`]). Orders and levels are incremental changes, each of which
//! builds on the previous one: they pass unchanged, and so do all other events. Events about a whole feed or about the
//! instrument keep their position among its quotes.
//!
//! Cost: an event of a feed without waiting quotes costs one compare for each feed with waiting quotes; a quote costs
//! one table lookup.

use std::collections::HashMap;

use crate::event::{Event, EventKind, Side};
use crate::instrument::InstrumentId;
use crate::venue::Publisher;

/// Key of a waiting quote: feed, instrument, side.
type Key = (Publisher, InstrumentId, u8);

/// Conflates quotes within batches.
#[derive(Debug, Default)]
pub struct QuoteConflation {
    /// The waiting quotes in order of arrival; `None` for a replaced one.
    waiting: Vec<Option<Event>>,
    places: HashMap<Key, usize>,
    /// The feeds with waiting quotes.
    feeds: Vec<Publisher>,
    conflated: u64,
}

const fn side_of(side: Side) -> u8 {
    side as u8
}

impl QuoteConflation {
    /// Returns the number of quotes that later ones replaced.
    pub const fn conflated(&self) -> u64 {
        self.conflated
    }

    /// Passes the events of a batch to `put` in order, without quotes that a later quote of the batch replaces.
    pub fn batch(&mut self, events: &[Event], mut put: impl FnMut(Event)) {
        for event in events {
            if event.kind == EventKind::Quote {
                let key = (event.publisher, event.instrument, side_of(event.side));
                let place = self.waiting.len();
                if let Some(before) = self.places.insert(key, place)
                    && let Some(replaced) = self.waiting.get_mut(before)
                {
                    *replaced = None;
                    self.conflated += 1;
                }
                self.waiting.push(Some(*event));
                if !self.feeds.contains(&event.publisher) {
                    self.feeds.push(event.publisher);
                }
                continue;
            }
            if self.feeds.contains(&event.publisher) && self.concerns_waiting(event) {
                self.flush(&mut put);
            }
            put(*event);
        }
        self.flush(&mut put);
    }

    /// Returns whether an event other than a quote must follow the waiting quotes.
    fn concerns_waiting(&self, event: &Event) -> bool {
        self.waiting.iter().flatten().any(|quote| {
            quote.publisher == event.publisher
                && (event.instrument == InstrumentId::ALL || event.instrument == quote.instrument)
        })
    }

    fn flush(&mut self, put: &mut impl FnMut(Event)) {
        self.places.clear();
        self.feeds.clear();
        self.waiting.drain(..).flatten().for_each(put);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::book::{BookStage, BookUpdate, Capacity};
    use crate::event::Gap;
    use crate::price::Price;

    fn quote(instrument: u32, side: Side, price: i64, size: u32) -> Event {
        let mut event = Event::new(EventKind::Quote, Publisher::IEXG_TOPS, InstrumentId(instrument));
        (event.side, event.price, event.size) = (side, Price::from_e9(price), size);
        event
    }

    fn batch(events: &[Event]) -> (Vec<Event>, u64) {
        let mut conflation = QuoteConflation::default();
        let mut out = Vec::new();
        conflation.batch(events, |event| out.push(event));
        (out, conflation.conflated())
    }

    #[test]
    fn of_several_quotes_of_a_side_only_the_last_stays() {
        let gap = Event::new(EventKind::Gap, Publisher::IEXG_TOPS, InstrumentId::ALL)
            .with_gap(Gap { first: 1, count: 1 });
        let order = Event::new(EventKind::Add, Publisher::XNAS_ITCH, InstrumentId(1));
        let events = [
            quote(1, Side::Bid, 5, 1),
            quote(1, Side::Ask, 6, 1),
            order,
            quote(1, Side::Bid, 7, 1),
            order,
            gap,
            quote(1, Side::Bid, 8, 1),
        ];
        let (out, conflated) = batch(&events);
        assert_eq!(out, [order, order, events[1], events[3], gap, events[6]]);
        assert_eq!(conflated, 1);
    }

    proptest! {
        #[test]
        fn conflated_events_give_the_same_final_books(
            steps in prop::collection::vec((0u8..10, 0u32..3, any::<bool>(), 1i64..20, 0u32..5), 0..200),
            cut in 0usize..200,
        ) {
            let events: Vec<Event> = steps
                .iter()
                .map(|(kind, instrument, is_bid, price, size)| match kind {
                    0 => Event::new(EventKind::Clear, Publisher::IEXG_TOPS, InstrumentId(*instrument)),
                    1 => Event::new(EventKind::Gap, Publisher::IEXG_TOPS, InstrumentId::ALL)
                        .with_gap(Gap { first: 1, count: 1 }),
                    _ => quote(*instrument, if *is_bid { Side::Bid } else { Side::Ask }, *price, *size),
                })
                .collect();
            let (one, two) = events.split_at(cut.min(events.len()));
            let mut conflated = batch(one).0;
            conflated.extend(batch(two).0);
            let state = |events: &[Event]| {
                let capacity = Capacity { instruments: 4, orders: 16, levels: 64 };
                let mut stage = BookStage::new([(Publisher::IEXG_TOPS, capacity)]);
                for event in events {
                    tapeworks_stage::Stage::process(&mut stage, std::slice::from_ref(event), &mut |_: BookUpdate<'_>| {});
                }
                (0..3)
                    .map(|instrument| {
                        let book = stage.feeds()[0].book(InstrumentId(instrument));
                        (book.best(Side::Bid), book.best(Side::Ask), book.is_stale())
                    })
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(state(&events), state(&conflated));
        }
    }
}
