//! Books, NBBO and instruments together: the path from events to updates.

use tapeworks_stage::{Sink, Stage as _, Through};

use crate::book::BookStage;
use crate::event::Event;
use crate::instrument::Instruments;
use crate::nbbo::{NbboStage, NbboUpdate};
use crate::options::BookOptions;

/// Books, NBBO, and the instruments that the events have named.
#[derive(Debug)]
pub struct Market {
    /// Books and NBBO.
    pub stages: Through<BookStage, NbboStage>,
    /// The instruments.
    pub instruments: Instruments,
}

impl Market {
    /// Creates empty books and an empty NBBO.
    pub fn new(options: &BookOptions) -> Self {
        Self { stages: options.stages(), instruments: options.instruments() }
    }

    /// Returns the books.
    pub const fn books(&self) -> &BookStage {
        &self.stages.first
    }

    /// Returns the NBBO.
    pub const fn nbbo(&self) -> &NbboStage {
        &self.stages.second
    }

    /// Applies events in order and passes each update to `each`. An instrument is known from the update of its mapping on.
    ///
    /// Cost: that of books and NBBO, which look ahead among `events`, and one compare per event.
    #[inline]
    pub fn apply(&mut self, events: &[Event], each: impl FnMut(&NbboUpdate<'_>, &Instruments)) {
        let Self { stages, instruments } = self;
        stages.process(events, &mut Naming { instruments, each });
    }
}

/// Adds the instruments of mappings.
struct Naming<'a, F> {
    instruments: &'a mut Instruments,
    each: F,
}

impl<F: FnMut(&NbboUpdate<'_>, &Instruments)> Sink<NbboUpdate<'_>> for Naming<'_, F> {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        if let Some(symbol) = update.book.event.symbol() {
            self.instruments.intern(symbol);
        }
        (self.each)(&update, self.instruments);
    }
}
