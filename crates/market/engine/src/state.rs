//! A market's state between two events.

use serde::{Deserialize, Serialize};
use tapeworks_market::book::BooksImage;
use tapeworks_market::nbbo::NbboImage;
use tapeworks_market::{BookOptions, InstrumentId, Market, Symbol};
use tapeworks_store::live::{Carried, CarriedImage};
use tapeworks_time::Nanos;

/// Books, NBBO, instruments and last trades before a reader's first event.
#[derive(Debug)]
pub struct Start {
    /// Number of that event.
    pub(crate) next: u64,
    pub(crate) market: Market,
    pub(crate) carried: Carried,
    /// Latest receive time of the events before it.
    pub(crate) now: Nanos,
}

impl Start {
    /// Creates empty books before the event `next`, with the symbols known by then.
    pub fn new(
        options: &BookOptions,
        next: u64,
        now: Nanos,
        symbols: impl IntoIterator<Item = Symbol>,
    ) -> Self {
        let mut market = Market::new(options);
        for symbol in symbols {
            market.instruments.intern(symbol);
        }
        Self { next, market, carried: Carried::default(), now }
    }

    /// Returns the number of the reader's first event.
    pub const fn first_event(&self) -> u64 {
        self.next
    }

    /// Returns the latest receive time of the events before it.
    pub const fn time(&self) -> Nanos {
        self.now
    }

    /// Returns the instruments known before it.
    pub fn symbols(&self) -> impl Iterator<Item = (InstrumentId, Symbol)> {
        // Instrument numbers have 32 bits.
        self.market
            .instruments
            .symbols()
            .iter()
            .zip(0..)
            .map(|(symbol, index)| (InstrumentId(index), *symbol))
    }
}

/// Books, NBBO, symbols and last trades as plain values.
#[derive(PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct MarketImage {
    pub(crate) books: Vec<BooksImage>,
    pub(crate) nbbo: NbboImage,
    pub(crate) symbols: Vec<[u8; Symbol::MOST]>,
    pub(crate) carried: CarriedImage,
    /// Latest receive time of the events, in ns.
    pub(crate) now: u64,
}

impl MarketImage {
    /// Returns the latest receive time of the events.
    pub const fn time(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Sorts the image, so that equal states have equal bytes. Too slow to run while the books wait.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.books.iter_mut().for_each(BooksImage::sort);
        self
    }
}
