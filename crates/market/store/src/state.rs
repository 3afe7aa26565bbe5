//! The state that a snapshot's records show, and the instruments that it covers.

use std::ops::Range;

use tapeworks_market::{BookStage, InstrumentId, Instruments, NbboStage};
use tapeworks_time::Nanos;

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
    /// Returns every instrument.
    pub(crate) fn all_instruments(&self) -> impl Iterator<Item = InstrumentId> + use<> {
        (0..self.instruments.len() as u32).map(InstrumentId)
    }
}

/// The instruments of a snapshot or part of one: a range of numbers, filtered by a predicate.
#[derive(Clone)]
pub struct Part<'a> {
    numbers: Range<u32>,
    is_wanted: &'a dyn Fn(InstrumentId) -> bool,
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({:?})", self.numbers)
    }
}

impl<'a> Part<'a> {
    /// Selects the wanted instruments in a range of numbers.
    pub const fn new(numbers: Range<u32>, is_wanted: &'a dyn Fn(InstrumentId) -> bool) -> Self {
        Self { numbers, is_wanted }
    }

    /// Selects all wanted instruments.
    pub const fn whole(is_wanted: &'a dyn Fn(InstrumentId) -> bool) -> Self {
        Self::new(0..u32::MAX, is_wanted)
    }

    /// Returns whether an instrument belongs to the part.
    pub fn contains(&self, instrument: InstrumentId) -> bool {
        self.numbers.contains(&instrument.0) && (self.is_wanted)(instrument)
    }

    /// Returns the part's instruments among the first `count`.
    pub(crate) fn among(&self, count: usize) -> impl Iterator<Item = InstrumentId> + '_ {
        let end = self.numbers.end.min(u32::try_from(count).unwrap_or(u32::MAX));
        (self.numbers.start..end).map(InstrumentId).filter(|instrument| (self.is_wanted)(*instrument))
    }
}
