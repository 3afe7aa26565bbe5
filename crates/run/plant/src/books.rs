//! The books' stage of a plant: on ingest's thread, or on a separate thread behind the ring (topology "pipeline").

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapeworks_engine::{EngineOptions, MarketStage};
use tapeworks_market::book::BATCH;
use tapeworks_market::conflate::QuoteConflation;
use tapeworks_market::{Books, Event};
use tapeworks_planted::planted;
use tapeworks_ring::disruptor::{PollError, PublishError};
use tapeworks_ring::wait::Wait;
use tapeworks_runtime::waiting::{Idle, WakeUp};
use tapeworks_runtime::world::World;
use tapeworks_time::Nanos;

use crate::checkpoint::BooksPart;
use crate::error::PlantFailure;
use crate::events::EventConsumer;
use crate::shared::SharedMemory;
use crate::status::{BooksStatus, REPORT_INTERVAL, Status};
use crate::view::Watch;
use crate::warm::Warmer;

/// Books and NBBO, and their outputs.
pub(super) struct BooksStage<W: World> {
    pub(super) market: MarketStage<Option<SharedMemory>>,
    watch: Watch<W>,
    /// Quotes superseded by later ones while the stage lagged.
    conflated: u64,
    warm: Option<Warmer<W>>,
}

impl<W: World> BooksStage<W> {
    pub(super) fn new(
        options: &EngineOptions,
        shared: Option<SharedMemory>,
        watch: Watch<W>,
        is_warm: bool,
    ) -> Self {
        let market = MarketStage::new(options, shared);
        Self { market, watch, conflated: 0, warm: is_warm.then(Warmer::default) }
    }

    /// Runs rarely used code on private data while idle, so that it is in the caches when needed.
    pub(super) fn warm_up(&mut self) {
        if let Some(warmer) = &mut self.warm {
            warmer.turn();
        }
    }

    /// Updates the viewers' data.
    pub(super) fn show(&self) {
        self.watch.fill(self.market.books(), self.market.nbbo(), self.market.instruments(), W::time_of_day());
    }

    /// Creates removed files of the shared memory again. Unless the books lag, also sets its heartbeat to the time when ingest last
    /// reported, so that the heartbeat stops if ingest hangs.
    pub(super) fn look_after_shared_memory(&mut self, is_lagging: bool, reported: Nanos) {
        if let (Some(shared), instruments, nbbo) = self.market.publisher_mut() {
            shared.look_after_files(instruments, nbbo);
            if !is_lagging {
                shared.beat(reported);
            }
        }
    }

    pub(super) fn report(&self, status: &mut Status) {
        if let Some(shared) = self.market.publisher() {
            status.shared = shared.status();
        }
        let feeds = self.market.books().feeds();
        let mut books = BooksStatus {
            nbbo: *self.market.nbbo().counts(),
            conflated: self.conflated,
            ..BooksStatus::default()
        };
        for feed in feeds {
            books.orders += feed.order_count();
            books.bytes += feed.bytes();
            books.rejected += feed.counters().rejected();
        }
        let contradicted = self.market.contradicted();
        if !contradicted.is_empty() {
            books.contradicted = feeds.iter().map(Books::contradicted_count).sum();
            if books.contradicted == 0 {
                contradicted.clear();
            }
        }
        status.books = books;
    }
}

/// Number of pending events above which the market's own thread lags.
const LAGGING: usize = 8 * BATCH;

/// The stage behind the ring: applies events in batches, and hands over its books between two events on request.
pub(super) struct Piped<W: World> {
    stage: BooksStage<W>,
    /// The number of the first event in `batch`.
    next: u64,
    batch: Vec<Event>,
    conflation: QuoteConflation,
    kept: Vec<Event>,
    part: Option<BooksPart<W>>,
}

impl<W: World> Piped<W> {
    /// Creates a stage whose next event has the number `next`.
    pub(super) fn new(stage: BooksStage<W>, next: u64, part: Option<BooksPart<W>>) -> Self {
        let batch = Vec::with_capacity(LAGGING);
        Self { stage, next, batch, conflation: QuoteConflation::default(), kept: Vec::new(), part }
    }

    /// Adds an event to the batch, and applies the batch when it is complete.
    #[inline]
    fn put(&mut self, event: &Event, is_last: bool, is_lagging: bool) {
        self.hand_over(is_lagging);
        self.batch.push(*event);
        if is_last || self.batch.len() == if is_lagging { LAGGING } else { BATCH } {
            self.apply(is_lagging);
        }
    }

    fn apply(&mut self, is_lagging: bool) {
        if is_lagging {
            let Self { conflation, kept, .. } = self;
            conflation.batch(&self.batch, |event| kept.push(event));
            self.stage.market.apply(&self.kept);
            self.kept.clear();
        } else {
            self.stage.market.apply(&self.batch);
        }
        self.next += self.batch.len() as u64;
        self.batch.clear();
    }

    /// Hands over the books if the next event is the requested one.
    #[inline]
    fn hand_over(&mut self, is_lagging: bool) {
        let next = self.next + self.batch.len() as u64;
        if self.part.as_ref().is_some_and(|part| part.is_wanted_at(next)) {
            if self.batch.is_empty() || !planted!("books-copied-before-their-events") {
                self.apply(is_lagging);
            }
            let stage = &self.stage;
            self.part.iter().for_each(|part| part.hand_over(next, |image| stage.market.image_in(image)));
        }
    }

    fn report(&mut self, status: &Mutex<Status>, is_lagging: bool) {
        self.stage.conflated = self.conflation.conflated();
        let reported = status.lock().unwrap_or_else(PoisonError::into_inner).time;
        self.stage.look_after_shared_memory(is_lagging, reported);
        self.stage.report(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Runs the market's own thread, in the topology "pipeline".
pub(super) fn run<W: World>(
    mut piped: Piped<W>,
    mut events: EventConsumer<W>,
    core: Option<usize>,
    (wait, wake_up): (Wait, &WakeUp<W>),
    status: &Arc<Mutex<Status>>,
) -> Result<(), PlantFailure> {
    if let Some(core) = core {
        // An unpinned thread is slower, but that is no reason to end.
        let _not_pinned = W::pin(core);
    }
    wake_up.is_for_this_thread();
    let mut reported = W::instant();
    let mut idle = Idle::<W>::new(wait);
    loop {
        // When the stage lags, applying superseded quotes would only make it lag more.
        let is_lagging = events.lag() > LAGGING;
        let polled = events.poll(|event, _, is_last| piped.put(event, is_last, is_lagging));
        piped.hand_over(false);
        match polled {
            Ok(0) => {
                piped.stage.warm_up();
                if wait == Wait::Park {
                    wake_up.arm();
                    // If the ring has more events, do not sleep.
                    if events.lag() == 0 {
                        W::park(Duration::from_millis(100));
                    }
                    wake_up.disarm();
                } else {
                    idle.rest();
                }
            }
            Ok(_) => idle.worked(),
            Err(PollError::Closed) => break,
            Err(PollError::Failed(failed)) => return Err(PlantFailure::Ring(PublishError::Failed(failed))),
        }
        if W::since(reported) > REPORT_INTERVAL {
            reported = W::instant();
            piped.stage.show();
            piped.report(status, events.lag() > LAGGING);
        }
    }
    piped.report(status, false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_engine::Engine;
    use tapeworks_runtime::world::System;

    use super::*;
    use crate::checkpoint::Coordinator;
    use crate::tests::plant;
    use crate::tests::support::session;

    fn events() -> Vec<Event> {
        let (mut engine, mut events) = (Engine::new(&plant().engine()), Vec::new());
        for (channel, received, payload) in &session() {
            let line = tapeworks_market::Line::A;
            let input =
                tapeworks_feed::live::Input::Packet { channel: *channel, line, received: *received, payload };
            engine.input(&input.borrowed(), &mut events);
        }
        events
    }

    fn stage() -> BooksStage<System> {
        BooksStage::new(&plant().engine(), None, Watch::default(), false)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

        #[test]
        fn books_are_handed_over_as_they_are_before_the_event_that_was_named(
            at in any::<prop::sample::Index>(),
            // The number of events in the ring at each poll, and whether the stage lags.
            polls in prop::collection::vec((1usize..3_000, any::<bool>()), 1..20),
            first in 0u64..1_000,
            // Where the earlier image was taken, whose memory the copy reuses.
            earlier in any::<prop::sample::Index>(),
        ) {
            let events = events();
            let at = at.index(events.len() + 1);
            let coordinator = Arc::new(Coordinator::default());
            let mut other = stage();
            other.market.apply(&events[..earlier.index(events.len() + 1)]);
            coordinator.give_back(other.market.image().sorted());
            let (to, books) = std::sync::mpsc::channel();
            let part = BooksPart::new(Arc::clone(&coordinator), to, Arc::default());
            let mut piped = Piped::new(stage(), first, Some(part));
            coordinator.request_books(first + at as u64);
            let (mut rest, mut looks) = (&events[..], polls.iter().cycle());
            while !rest.is_empty() {
                let (available, is_lagging) = *looks.next().unwrap();
                let (polled, later) = rest.split_at(available.min(rest.len()));
                for (place, event) in polled.iter().enumerate() {
                    piped.put(event, place + 1 == polled.len(), is_lagging);
                }
                piped.hand_over(false);
                rest = later;
            }
            let mut straight = stage();
            straight.market.apply(&events[..at]);
            let (number, image) = books.try_recv().unwrap();
            prop_assert_eq!(number, first + at as u64);
            let (expected, image) = (straight.market.image().sorted(), image.sorted());
            prop_assert!(image == expected);
            // The stage continues as if there had been no request.
            straight.market.apply(&events[at..]);
            prop_assert!(piped.stage.market.image().sorted() == straight.market.image().sorted());
            prop_assert!(books.try_recv().is_err(), "once");
        }
    }
}
