//! The best market prices, from a plant's shared memory on this machine.
//!
//! Reading a price copies 64 bytes. A stale book has no prices, nor does a plant that has ended or hangs; orders that need prices
//! are then refused. A hung plant keeps its lock, and its last prices stay in the memory, so only its heartbeat shows whether they
//! are current.

use std::path::PathBuf;
use std::time::Duration;

use tapeworks_market::shared::{QUOTES_MEANING, QuotesReader};
use tapeworks_market::{Price, Symbol};
use tapeworks_translate::ids::InstrumentIndex;
use tapeworks_translate::{TopOfBook, TopsOfBook};

/// A symbol's place in the shared memory.
#[derive(Debug)]
struct Place {
    /// `None`: the market has no such symbol.
    symbol: Option<Symbol>,
    place: Option<tapeworks_market::shared::QuotePlace>,
}

/// The shared memory of a running plant.
#[derive(Debug)]
struct Attached {
    reader: QuotesReader,
    /// The last heartbeat, and when it was first seen, in ns of the gateway's steady clock.
    heartbeat: (u64, u64),
    /// Whether no new heartbeat has arrived for longer than the maximum age, or since the file was found.
    is_hung: bool,
}

/// Market prices from a plant's shared memory.
#[derive(Debug)]
pub struct SharedPrices {
    path: PathBuf,
    /// Maximum age of the last heartbeat, in ns. Beyond it there are no prices.
    age_ns: u64,
    places: Vec<Place>,
    attached: Option<Attached>,
    /// The last reported state: why there are no prices, or that there are some.
    reported: Option<Result<(), String>>,
}

impl SharedPrices {
    /// Creates a source of prices for these symbols, read from the file at `path`. Prices are valid for `age` after the plant's
    /// last heartbeat.
    pub fn new<'a>(path: PathBuf, age: Duration, symbols: impl Iterator<Item = &'a str>) -> Self {
        let place = |symbol| Place { symbol: Symbol::parse(symbol), place: None };
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Self { path, age_ns, places: symbols.map(place).collect(), attached: None, reported: None }
    }

    /// Checks whether there are prices now, and if not, why. Returns `None` if a plant was found whose first heartbeat may still
    /// come.
    fn look(&mut self, now_ns: u64) -> Option<Result<(), String>> {
        if self.attached.as_ref().is_none_or(|attached| !attached.reader.is_writer_alive()) {
            // Another writer uses other places.
            self.attached = None;
            self.places.iter_mut().for_each(|place| place.place = None);
            let reader = match QuotesReader::attach(&self.path, QUOTES_MEANING) {
                Ok(reader) => reader,
                Err(error) => return Some(Err(error.to_string())),
            };
            let heartbeat = (reader.heartbeat(), now_ns);
            self.attached = Some(Attached { reader, heartbeat, is_hung: true });
        }
        let Attached { reader, heartbeat, is_hung } = self.attached.as_mut()?;
        let (last, since_ns) = heartbeat;
        let latest = reader.heartbeat();
        if latest != *last {
            (*last, *since_ns, *is_hung) = (latest, now_ns, false);
        }
        if now_ns.saturating_sub(*since_ns) > self.age_ns {
            *is_hung = true;
            let age = Duration::from_nanos(self.age_ns);
            let path = self.path.display();
            return Some(Err(format!("{path}: the plant hangs: no heartbeat for more than {age:?}")));
        }
        (!*is_hung).then_some(Ok(()))
    }
}

impl TopsOfBook for SharedPrices {
    fn top(&mut self, instrument: InstrumentIndex) -> TopOfBook {
        let attached = self.attached.as_ref().filter(|attached| !attached.is_hung);
        let (Some(Attached { reader, .. }), Some(place)) =
            (attached, self.places.get_mut(instrument.0 as usize))
        else {
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

    fn look_after(&mut self, now_ns: u64) -> Option<Result<String, String>> {
        let now = self.look(now_ns)?;
        if self.reported.as_ref() == Some(&now) {
            return None;
        }
        self.reported = Some(now.clone());
        Some(now.map(|()| self.path.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::shared::{QuotesWriter, SharedQuote};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

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
        let age = Duration::from_secs(1);
        let mut prices = SharedPrices::new(path.clone(), age, ["AAPL", "MSFT"].into_iter());
        let aapl = |prices: &mut SharedPrices| {
            let top = prices.top(InstrumentIndex(0));
            (top.bid_e8, top.offer_e8)
        };
        assert!(prices.look_after(0).unwrap().unwrap_err().contains("memory.nbbo"));
        assert!(prices.look_after(1).is_none(), "reported once");
        assert_eq!(aapl(&mut prices), (None, None));

        let start = || QuotesWriter::create(&path, 16, QUOTES_MEANING).unwrap();
        let mut plant = start();
        let there = Some(Ok(path.display().to_string()));
        assert_eq!(prices.look_after(SECOND), None, "the plant may have hung before it was found");
        plant.beat(1);
        assert_eq!(prices.look_after(SECOND), there);
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
        assert!(prices.look_after(SECOND).unwrap().unwrap_err().contains("left behind"));
        assert_eq!(aapl(&mut prices), (None, None), "a plant that is gone");
        // The next plant has its symbols in other places.
        let mut plant = start();
        for symbol in ["ZZZ", "MSFT", "AAPL"] {
            let place = plant.place(&Symbol::parse(symbol).unwrap().into()).unwrap();
            plant.set(place, &SharedQuote { bid: 20_000_000_000, ..QUOTE });
        }
        assert_eq!(prices.look_after(SECOND), None);
        plant.beat(1);
        assert_eq!(prices.look_after(SECOND), there);
        assert_eq!(aapl(&mut prices).0, Some(2_000_000_000));
    }

    #[test]
    fn a_plant_that_hangs_has_no_prices_until_its_heart_beats_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.nbbo");
        let mut plant = QuotesWriter::create(&path, 16, QUOTES_MEANING).unwrap();
        let place = plant.place(&Symbol::parse("AAPL").unwrap().into()).unwrap();
        plant.set(place, &QUOTE);
        let mut prices = SharedPrices::new(path, Duration::from_secs(1), ["AAPL"].into_iter());
        let mut look = |now_ns| {
            let news = prices.look_after(now_ns);
            (news.map(|news| news.is_ok()), prices.top(InstrumentIndex(0)).bid_e8.is_some())
        };
        // It hangs from the start.
        assert_eq!((look(0), look(SECOND)), ((None, false), (None, false)));
        assert_eq!(look(SECOND + 1), (Some(false), false));
        plant.beat(7);
        assert_eq!(look(2 * SECOND), (Some(true), true));
        assert_eq!(look(3 * SECOND), (None, true), "as old as they may be");
        assert_eq!(look(3 * SECOND + 1), (Some(false), false));
        assert_eq!(look(9 * SECOND), (None, false), "reported once");
        plant.beat(8);
        assert_eq!(look(9 * SECOND), (Some(true), true));
        // The gateway itself hung, the plant did not.
        plant.beat(9);
        assert_eq!(look(99 * SECOND), (None, true));
    }
}
