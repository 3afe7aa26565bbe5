//! The state that the records of a snapshot show.

use tapeworks_market::{BookStage, InstrumentId, Instruments, Nanos, NbboStage};

/// The state of books and NBBO that a [`snapshot`](crate::live::snapshot) shows.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The books of every feed.
    pub books: &'a BookStage,
    /// The NBBO.
    pub nbbo: &'a NbboStage,
    /// The instruments.
    pub instruments: &'a Instruments,
    /// The receive time of the last event.
    pub now: Nanos,
}

impl State<'_> {
    /// Every instrument.
    pub(crate) fn all_instruments(&self) -> impl Iterator<Item = InstrumentId> + use<> {
        (0..self.instruments.len() as u32).map(InstrumentId)
    }
}
