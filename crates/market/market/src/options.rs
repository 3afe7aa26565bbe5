//! Options of books and NBBO.

use tapeworks_stage::Through;

use crate::book::{BookStage, Capacity};
use crate::instrument::{Instruments, Shard};
use crate::nbbo::{NbboRules, NbboStage};
use crate::venue::Publisher;

/// Options of books and NBBO. Equal options and equal events produce equal updates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookOptions {
    /// The feeds, in the NBBO's tie-breaking order, each with the initial size of its tables.
    pub feeds: Vec<(Publisher, Capacity)>,
    /// Initial table size of any other feed.
    pub capacity: Capacity,
    /// The rules of the NBBO.
    pub rules: NbboRules,
    /// The shard to which events are restricted, if another plant sends only that shard.
    pub shard: Option<Shard>,
}

impl Default for BookOptions {
    /// Feeds join as they appear, with tables of [`Capacity::default`].
    fn default() -> Self {
        Self { feeds: Vec::new(), capacity: Capacity::default(), rules: NbboRules::default(), shard: None }
    }
}

impl BookOptions {
    /// Returns the initial table size of a feed.
    pub fn capacity_of(&self, publisher: Publisher) -> Capacity {
        self.feeds
            .iter()
            .find(|(known, _)| *known == publisher)
            .map_or(self.capacity, |(_, capacity)| *capacity)
    }

    /// Creates an empty symbol table.
    pub fn instruments(&self) -> Instruments {
        Instruments::of_shard(self.shard)
    }

    /// Creates empty books and an empty NBBO.
    pub fn stages(&self) -> Through<BookStage, NbboStage> {
        let books = BookStage::with_unnamed(self.feeds.iter().copied(), self.capacity);
        let publishers = self.feeds.iter().map(|(publisher, _)| *publisher).filter(|feed| !feed.is_of_sip());
        let nbbo = NbboStage::new(self.rules.clone(), publishers, self.capacity.instruments);
        Through::new(books, nbbo)
    }
}
