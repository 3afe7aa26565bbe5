//! A plant's events for another plant: each once, in the order of the journal, without a gap.
//!
//! Nothing is given up: missing events are fetched however long the server is away. Only another journal ends the reading.

use tapeworks_market::Event;

use super::streams::{AeronReaderCounters, AeronReaderOptions, AeronStanding, Item, Streams};

/// Reads the events of a plant.
pub struct AeronEvents(Streams);

impl std::fmt::Debug for AeronEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AeronEvents").field("counters", self.counters()).finish_non_exhaustive()
    }
}

impl AeronEvents {
    /// Reads from the position in [`AeronReaderOptions::resume`], or from the day's first event. The driver may become available
    /// later.
    pub fn new(options: AeronReaderOptions) -> Self {
        let resume = options.resume.or(Some((0, 0)));
        Self(Streams::new(AeronReaderOptions { events: true, is_patient: true, resume, ..options }))
    }

    /// Processes the available messages, and passes each event to `each` with its number in the journal. Returns `false` if there
    /// were none.
    pub fn turn(&mut self, mut each: impl FnMut(u64, &Event)) -> bool {
        if self.0.standing_still() {
            return false;
        }
        self.0.turn(&mut |item| {
            if let Item::Event(number, event) = item {
                each(number, event);
            }
        })
    }

    /// Pauses briefly when nothing arrived.
    pub fn rest(&mut self, is_busy: bool) {
        self.0.rest(is_busy);
    }

    /// Sets the token, which may have changed since the last request.
    pub fn set_token(&mut self, token: &str) {
        if self.0.options.token != token {
            token.clone_into(&mut self.0.options.token);
        }
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &AeronReaderCounters {
        &self.0.counters
    }

    /// Returns the reader's state.
    pub fn standing(&self) -> AeronStanding<'_> {
        self.0.standing()
    }
}
