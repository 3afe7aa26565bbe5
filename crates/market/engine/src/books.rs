//! The market stage: books and NBBO.

use std::sync::Arc;

use tapeworks_market::{BookStage, Event, Instruments, Market, NbboStage, NbboUpdate, Publisher};
use tapeworks_store::live::Carried;
use tapeworks_time::Nanos;

use crate::{Contradicted, EngineOptions, MarketImage, Start};

/// Receives every update of books and NBBO. `()` drops them.
pub trait Publish {
    /// Handles an update. `instruments` contains its symbol.
    fn publish(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments);
}

impl Publish for () {
    #[inline]
    fn publish(&mut self, _update: &NbboUpdate<'_>, _instruments: &Instruments) {}
}

impl<P: Publish> Publish for Option<P> {
    #[inline]
    fn publish(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) {
        if let Some(publisher) = self {
            publisher.publish(update, instruments);
        }
    }
}

/// Books and NBBO with their part of a checkpoint. `P` receives every update.
pub struct MarketStage<P = ()> {
    market: Market,
    publisher: P,
    carried: Option<Carried>,
    contradicted: Arc<Contradicted>,
    /// Latest receive time of the events.
    now: Nanos,
    /// The feeds of each channel.
    feeds: Vec<Vec<Publisher>>,
}

impl<P> std::fmt::Debug for MarketStage<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MarketStage({} symbols)", self.market.instruments.len())
    }
}

impl<P: Publish> MarketStage<P> {
    /// Creates empty books.
    pub fn new(options: &EngineOptions, publisher: P) -> Self {
        Self {
            market: Market::new(&options.books),
            publisher,
            carried: options.keeps_last_trades.then(Carried::default),
            contradicted: Arc::new(Contradicted::new(options.channels.len())),
            now: Nanos(0),
            feeds: options.channels.iter().map(|channel| channel.publishers().collect()).collect(),
        }
    }

    /// Continues from a restored state.
    pub fn restore(&mut self, start: Start) {
        (self.market, self.now) = (start.market, start.now);
        if let Some(carried) = &mut self.carried {
            *carried = start.carried;
        }
        // The books do not record which of the feed's channels was contradicted, so mark all of them.
        for (channel, feeds) in self.feeds.iter().enumerate() {
            let mut books = feeds.iter().filter_map(|feed| self.market.books().feed(*feed));
            if books.any(|books| books.contradicted_count() > 0) {
                self.contradicted.set(channel);
            }
        }
    }

    /// Applies a batch of events and publishes each update.
    #[inline]
    pub fn apply(&mut self, events: &[Event]) {
        let Self { market, publisher, carried, contradicted, now, .. } = self;
        *now = events.iter().fold(*now, |now, event| now.max(event.ts_recv));
        market.apply(events, |update, instruments| {
            publisher.publish(update, instruments);
            if let Some(carried) = carried {
                carried.note(update);
            }
            contradicted.note(&update.book);
        });
    }

    /// Returns books, NBBO, symbols and last trades as plain values.
    pub fn image(&self) -> MarketImage {
        self.image_in(MarketImage::default())
    }

    /// Like [`MarketStage::image`], but reuses the memory of an earlier image.
    #[must_use]
    pub fn image_in(&self, mut image: MarketImage) -> MarketImage {
        let MarketImage { books, nbbo, symbols, carried, now } = &mut image;
        self.market.books().image_into(books);
        self.market.nbbo().image_into(nbbo);
        symbols.clear();
        symbols.extend(self.market.instruments.symbols().iter().map(|symbol| *symbol.as_bytes()));
        *carried = self.carried.as_ref().map(Carried::image).unwrap_or_default();
        *now = self.now.0;
        image
    }

    /// Returns the channels whose books are contradicted.
    pub fn contradicted(&self) -> Arc<Contradicted> {
        Arc::clone(&self.contradicted)
    }

    /// Returns the books.
    pub const fn books(&self) -> &BookStage {
        self.market.books()
    }

    /// Returns the NBBO.
    pub const fn nbbo(&self) -> &NbboStage {
        self.market.nbbo()
    }

    /// Returns the symbols.
    pub const fn instruments(&self) -> &Instruments {
        &self.market.instruments
    }

    /// Returns the receiver of the updates.
    pub const fn publisher(&self) -> &P {
        &self.publisher
    }

    /// Returns the receiver of the updates, with the symbols and the NBBO that it may display.
    pub const fn publisher_mut(&mut self) -> (&mut P, &Instruments, &NbboStage) {
        (&mut self.publisher, &self.market.instruments, self.market.nbbo())
    }
}
