//! The best prices of the market, from a plant's shared memory on this machine.
//!
//! A look costs a copy of 64 bytes. Prices of books that are stale, and those of a plant that is gone, are none: then orders that need them are
//! refused.

use std::path::PathBuf;

use tapeworks_market::shared::{QUOTES_MEANING, QuotesReader};
use tapeworks_market::{Price, Symbol};
use tapeworks_translate::ids::InstrumentIndex;
use tapeworks_translate::{TopOfBook, TopsOfBook};

/// Where a symbol is in the shared memory.
#[derive(Debug)]
struct Place {
    /// `None`: the market has no such symbol.
    symbol: Option<Symbol>,
    place: Option<tapeworks_market::shared::QuotePlace>,
}

/// The prices of a plant's shared memory.
#[derive(Debug)]
pub struct SharedPrices {
    path: PathBuf,
    places: Vec<Place>,
    reader: Option<QuotesReader>,
    /// Why there is no reader, as it was last reported; `None`: it was not.
    reported: Option<String>,
}

impl SharedPrices {
    /// The prices of the file at `path`, for instruments of these symbols.
    pub fn new<'a>(path: PathBuf, symbols: impl Iterator<Item = &'a str>) -> Self {
        let place = |symbol| Place { symbol: Symbol::parse(symbol), place: None };
        Self { path, places: symbols.map(place).collect(), reader: None, reported: None }
    }

    fn leave(&mut self) {
        self.reader = None;
        // Another writer has other places.
        self.places.iter_mut().for_each(|place| place.place = None);
    }
}

impl TopsOfBook for SharedPrices {
    fn top(&mut self, instrument: InstrumentIndex) -> TopOfBook {
        let (Some(reader), Some(place)) = (&self.reader, self.places.get_mut(instrument.0 as usize)) else {
            return TopOfBook::default();
        };
        if place.place.is_none() {
            place.place = place.symbol.and_then(|symbol| reader.find(&symbol.into()));
        }
        let quote = place.place.and_then(|place| reader.get(place)).filter(|quote| quote.is_good());
        let price_e8 = |price_e9| Price::from_e9(price_e9).map(|_| price_e9 / 10);
        quote.map_or_else(TopOfBook::default, |quote| TopOfBook {
            bid_e8: price_e8(quote.bid),
            offer_e8: price_e8(quote.ask),
        })
    }

    fn look_after(&mut self) -> Option<Result<String, String>> {
        if self.reader.as_ref().is_some_and(QuotesReader::is_writer_alive) {
            return None;
        }
        let was_there = self.reader.is_some();
        self.leave();
        match QuotesReader::attach(&self.path, QUOTES_MEANING) {
            Ok(reader) => {
                self.reader = Some(reader);
                let is_news = !was_there || self.reported.is_some();
                self.reported = None;
                is_news.then(|| Ok(self.path.display().to_string()))
            }
            Err(error) => {
                let why = error.to_string();
                let is_news = self.reported.as_ref() != Some(&why);
                self.reported = Some(why.clone());
                is_news.then_some(Err(why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::shared::{QuotesWriter, SharedQuote};

    use super::*;

    const QUOTE: SharedQuote = SharedQuote {
        bid: 9_990_000_000,
        ask: 10_010_000_000,
        ts_recv: 1,
        bid_size: 100,
        ask_size: 100,
        flags: 0,
        reserved: [0; 7],
    };

    #[test]
    fn prices_are_there_while_their_plant_is_and_its_book_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.nbbo");
        let mut prices = SharedPrices::new(path.clone(), ["AAPL", "MSFT"].into_iter());
        let aapl = |prices: &mut SharedPrices| {
            let top = prices.top(InstrumentIndex(0));
            (top.bid_e8, top.offer_e8)
        };
        assert!(prices.look_after().unwrap().unwrap_err().contains("memory.nbbo"));
        assert!(prices.look_after().is_none(), "reported once");
        assert_eq!(aapl(&mut prices), (None, None));

        let start = || QuotesWriter::create(&path, 16, QUOTES_MEANING).unwrap();
        let mut plant = start();
        assert_eq!(prices.look_after(), Some(Ok(path.display().to_string())));
        assert_eq!(aapl(&mut prices), (None, None), "no quote yet");
        let place = plant.place(&Symbol::parse("AAPL").unwrap().into()).unwrap();
        plant.set(place, &QUOTE);
        assert_eq!(aapl(&mut prices), (Some(999_000_000), Some(1_001_000_000)));
        plant.set(place, &SharedQuote { ask: i64::MAX, ..QUOTE });
        assert_eq!(aapl(&mut prices), (Some(999_000_000), None));
        plant.set(place, &SharedQuote { flags: 0x04, ..QUOTE });
        assert_eq!(aapl(&mut prices), (None, None), "a stale book");
        assert_eq!(prices.top(InstrumentIndex(1)).bid_e8, None);
        assert_eq!(prices.top(InstrumentIndex(9)).bid_e8, None);

        plant.set(place, &QUOTE);
        drop(plant);
        assert!(prices.look_after().unwrap().unwrap_err().contains("left behind"));
        assert_eq!(aapl(&mut prices), (None, None), "a plant that is gone");
        // The next one has its symbols elsewhere.
        let mut plant = start();
        for symbol in ["ZZZ", "MSFT", "AAPL"] {
            let place = plant.place(&Symbol::parse(symbol).unwrap().into()).unwrap();
            plant.set(place, &SharedQuote { bid: 20_000_000_000, ..QUOTE });
        }
        assert!(prices.look_after().unwrap().is_ok());
        assert_eq!(aapl(&mut prices).0, Some(2_000_000_000));
    }
}
