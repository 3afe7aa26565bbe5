//! The engine: inputs in, events out.
//!
//! The live plant feeds it received inputs, a replay feeds it journaled ones. Equal inputs produce equal events with
//! equal numbers.

use tapeworks_feed::live::{Input, LiveFeed, Request};
use tapeworks_feed::state::StateError;
use tapeworks_market::Event;
use tapeworks_time::Nanos;

use crate::EngineOptions;

/// Counters of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct EngineCounters {
    /// Inputs processed.
    pub inputs: u64,
    /// Events produced, and so the number of the next event.
    pub events: u64,
}

/// Turns inputs into events.
#[derive(Debug)]
pub struct Engine {
    feed: LiveFeed,
    counters: EngineCounters,
}

impl Engine {
    /// Creates an engine that has processed nothing.
    pub fn new(options: &EngineOptions) -> Self {
        Self { feed: options.live_feed(), counters: EngineCounters::default() }
    }

    /// Restores an engine with these options and counters from the saved state of its feed.
    pub(crate) fn restore(
        options: &EngineOptions,
        counters: EngineCounters,
        feed: &[u8],
    ) -> Result<Self, StateError> {
        let (how, channels) = options.feed();
        Ok(Self { feed: LiveFeed::restore(how, channels, feed)?, counters })
    }

    /// Returns the feed: channels, symbols and problems.
    pub const fn feed(&self) -> &LiveFeed {
        &self.feed
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    /// Processes one input and appends its events to `events`.
    #[inline]
    pub fn input(&mut self, input: &Input<&[u8]>, events: &mut Vec<Event>) {
        let before = events.len();
        self.feed.input(input, &mut |event| events.push(event));
        self.counters.inputs += 1;
        self.counters.events += (events.len() - before) as u64;
    }

    /// Handles the loss of an unknown number of inputs: appends events that mark the books as stale.
    pub fn inputs_lost(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let before = events.len();
        self.feed.inputs_lost(now, &mut |event| events.push(event));
        self.counters.events += (events.len() - before) as u64;
    }

    /// Appends the gaps between this engine and `later`, the same engine after inputs that were lost.
    ///
    /// Appends at most as many events as are missing, because the gaps take their numbers.
    pub(crate) fn put_missed(&self, later: &Self, now: Nanos, events: &mut Vec<Event>) {
        let missing = later.counters.events.saturating_sub(self.counters.events);
        let most = events.len().saturating_add(usize::try_from(missing).unwrap_or(usize::MAX));
        self.feed.put_missed(&later.feed, now, &mut |event| events.push(event));
        events.truncate(most);
    }

    /// Returns the next request to send, if any.
    pub fn take_request(&mut self) -> Option<Request> {
        self.feed.take_request()
    }
}
