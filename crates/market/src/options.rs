//! Options of books and NBBO.

use tapeworks_stage::Through;

use crate::book::{BookStage, Capacity};
use crate::instrument::{Instruments, Shard};
use crate::nbbo::{NbboRules, NbboStage};
use crate::venue::Publisher;

/// Options of books and NBBO. Equal options and equal events give equal updates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookOptions {
    /// The feeds, in the order in which ties of the NBBO are broken, and the size of each one's tables at the start.
    pub feeds: Vec<(Publisher, Capacity)>,
    /// The size of the tables of any other feed.
    pub capacity: Capacity,
    /// The rules of the NBBO.
    pub rules: NbboRules,
    /// The only symbols of which events come, where another plant gives only them.
    pub shard: Option<Shard>,
}

impl Default for BookOptions {
    /// Feeds join as they appear, in tables of [`Capacity::default`].
    fn default() -> Self {
        Self { feeds: Vec::new(), capacity: Capacity::default(), rules: NbboRules::default(), shard: None }
    }
}

impl BookOptions {
    /// The size of a feed's tables at the start.
    pub fn capacity_of(&self, publisher: Publisher) -> Capacity {
        self.feeds
            .iter()
            .find(|(known, _)| *known == publisher)
            .map_or(self.capacity, |(_, capacity)| *capacity)
    }

    /// An empty table of symbols.
    pub fn instruments(&self) -> Instruments {
        Instruments::of_shard(self.shard)
    }

    /// Empty books and NBBO.
    pub fn stages(&self) -> Through<BookStage, NbboStage> {
        let books = BookStage::with_unnamed(self.feeds.iter().copied(), self.capacity);
        let publishers = self.feeds.iter().map(|(publisher, _)| *publisher).filter(|feed| !feed.is_of_sip());
        let nbbo = NbboStage::new(self.rules.clone(), publishers, self.capacity.instruments);
        Through::new(books, nbbo)
    }
}
