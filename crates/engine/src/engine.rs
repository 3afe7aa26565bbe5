//! The engine: inputs in, events out.
//!
//! The live plant gives it what it receives, a replay what the journal holds. The same inputs give the same events with the same
//! numbers.

use tapeworks_feed::live::{Input, LiveFeed, Request};
use tapeworks_feed::state::StateError;
use tapeworks_market::Event;
use tapeworks_time::Nanos;

use crate::EngineOptions;

/// Counters of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct EngineCounters {
    /// Inputs.
    pub inputs: u64,
    /// Events, which is the number of the next one.
    pub events: u64,
}

/// Makes events of inputs.
#[derive(Debug)]
pub struct Engine {
    feed: LiveFeed,
    counters: EngineCounters,
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(options: &EngineOptions) -> Self {
        Self { feed: options.live_feed(), counters: EngineCounters::default() }
    }

    /// The engine with these options that had seen so much, from the state of its feed.
    pub(crate) fn restore(
        options: &EngineOptions,
        counters: EngineCounters,
        feed: &[u8],
    ) -> Result<Self, StateError> {
        let (how, channels) = options.feed();
        Ok(Self { feed: LiveFeed::restore(how, channels, feed)?, counters })
    }

    /// The channels, symbols and problems.
    pub const fn feed(&self) -> &LiveFeed {
        &self.feed
    }

    /// The counters.
    pub const fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    /// One input: appends its events to `events`.
    #[inline]
    pub fn input(&mut self, input: &Input<&[u8]>, events: &mut Vec<Event>) {
        let before = events.len();
        self.feed.input(input, &mut |event| events.push(event));
        self.counters.inputs += 1;
        self.counters.events += (events.len() - before) as u64;
    }

    /// Unknown inputs are missing here: appends events that mark the books as stale.
    pub fn inputs_lost(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let before = events.len();
        self.feed.inputs_lost(now, &mut |event| events.push(event));
        self.counters.events += (events.len() - before) as u64;
    }

    /// Appends the gaps between this engine and `later`, the same engine after unknown inputs: at most as many events as are missing,
    /// with their numbers.
    pub(crate) fn put_missed(&self, later: &Self, now: Nanos, events: &mut Vec<Event>) {
        let missing = later.counters.events.saturating_sub(self.counters.events);
        let most = events.len().saturating_add(usize::try_from(missing).unwrap_or(usize::MAX));
        self.feed.put_missed(&later.feed, now, &mut |event| events.push(event));
        events.truncate(most);
    }

    /// The next request to send, if there is one.
    pub fn take_request(&mut self) -> Option<Request> {
        self.feed.take_request()
    }
}
