//! A plant's events as another plant takes them: each once, in the order of the journal, without a gap.
//!
//! Nothing is given up: what is missing is fetched however long the server is away. Only another journal ends it.

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
    /// Reads from where [`AeronReaderOptions::resume`] says, or from the day's first event. The driver may come later.
    pub fn new(options: AeronReaderOptions) -> Self {
        let resume = options.resume.or(Some((0, 0)));
        Self(Streams::new(AeronReaderOptions { events: true, is_patient: true, resume, ..options }))
    }

    /// Takes what is there, and hands each event to `each` with its number in the journal. `false`: there was nothing.
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

    /// Waits a little when nothing came.
    pub fn rest(&mut self, is_busy: bool) {
        self.0.rest(is_busy);
    }

    /// The token may be another one since the last request.
    pub fn set_token(&mut self, token: &str) {
        if self.0.options.token != token {
            token.clone_into(&mut self.0.options.token);
        }
    }

    /// Its counters.
    pub const fn counters(&self) -> &AeronReaderCounters {
        &self.0.counters
    }

    /// How it stands.
    pub fn standing(&self) -> AeronStanding<'_> {
        self.0.standing()
    }
}
