//! Books and the synthetic NBBO while packets come.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tapeworks_analysis::replay::{Advanced, ReplayError, Walk};
use tapeworks_capture::LinkType;
use tapeworks_capture::net::{Datagram, Transport};
use tapeworks_market::book::Books;
use tapeworks_market::venue::FEEDS;
use tapeworks_market::{Flags, InstrumentId, Price, Side, Symbol};
use tapeworks_time::Nanos;

use crate::errors::Failure;
use crate::options::Given;
use crate::reader::to_python;

/// Packets between two looks at signals: some milliseconds.
const MOST: u64 = 16_384;

/// Shares and orders at a price.
#[pyclass(frozen, get_all, module = "tapeworks")]
pub(crate) struct Level {
    /// The price.
    price: f64,
    /// The price in units of 1e-9.
    price_e9: i64,
    /// Shares.
    size: u32,
    /// Orders; 0 when the feed does not say.
    orders: u32,
}

fn float(price: Price) -> f64 {
    price.e9() as f64 / Price::ONE as f64
}

impl From<tapeworks_market::Level> for Level {
    fn from(level: tapeworks_market::Level) -> Self {
        let tapeworks_market::Level { price, size, orders } = level;
        Self { price: float(price), price_e9: price.e9(), size, orders }
    }
}

#[pymethods]
impl Level {
    fn __repr__(&self) -> String {
        format!("Level(price={}, size={}, orders={})", self.price, self.size, self.orders)
    }
}

/// The book of an instrument at a venue, as it was when it was asked for.
#[pyclass(frozen, module = "tapeworks")]
pub(crate) struct Book {
    symbol: String,
    venue: String,
    bids: Vec<Py<Level>>,
    asks: Vec<Py<Level>>,
    is_stale: bool,
}

#[pymethods]
impl Book {
    /// The symbol.
    #[getter]
    fn symbol(&self) -> &str {
        &self.symbol
    }

    /// The venue's name.
    #[getter]
    fn venue(&self) -> &str {
        &self.venue
    }

    /// The bids, the best first.
    #[getter]
    fn bids(&self, py: Python<'_>) -> Vec<Py<Level>> {
        self.bids.iter().map(|level| level.clone_ref(py)).collect()
    }

    /// The offers, the best first.
    #[getter]
    fn asks(&self, py: Python<'_>) -> Vec<Py<Level>> {
        self.asks.iter().map(|level| level.clone_ref(py)).collect()
    }

    /// Whether it may be wrong, after a gap or a contradiction.
    #[getter]
    fn is_stale(&self) -> bool {
        self.is_stale
    }

    fn __repr__(&self) -> String {
        let top = |levels: &[Py<Level>]| levels.first().map(|level| level.get().price);
        let show = |price: Option<f64>| price.map_or_else(|| "-".to_owned(), |price| price.to_string());
        let (bid, ask) = (show(top(&self.bids)), show(top(&self.asks)));
        format!("<Book {} {} {bid} / {ask}>", self.symbol, self.venue)
    }
}

/// The best bid or offer across venues.
#[pyclass(frozen, get_all, module = "tapeworks")]
pub(crate) struct BestSide {
    /// The price.
    price: f64,
    /// The price in units of 1e-9.
    price_e9: i64,
    /// Shares at it, over all venues.
    size: u32,
    /// The venue with the most shares at it.
    venue: String,
}

#[pymethods]
impl BestSide {
    fn __repr__(&self) -> String {
        format!("BestSide(price={}, size={}, venue={:?})", self.price, self.size, self.venue)
    }
}

/// The synthetic NBBO of an instrument, as it was when it was asked for.
#[pyclass(frozen, module = "tapeworks")]
pub(crate) struct Nbbo {
    bid: Option<Py<BestSide>>,
    ask: Option<Py<BestSide>>,
    state: &'static str,
    is_stale: bool,
}

#[pymethods]
impl Nbbo {
    /// The best bid; `None` when no venue has one.
    #[getter]
    fn bid(&self, py: Python<'_>) -> Option<Py<BestSide>> {
        self.bid.as_ref().map(|side| side.clone_ref(py))
    }

    /// The best offer; `None` when no venue has one.
    #[getter]
    fn ask(&self, py: Python<'_>) -> Option<Py<BestSide>> {
        self.ask.as_ref().map(|side| side.clone_ref(py))
    }

    /// `one-sided`, `normal`, `locked` or `crossed`.
    #[getter]
    fn state(&self) -> &'static str {
        self.state
    }

    /// Whether a venue among the best has a stale book.
    #[getter]
    fn is_stale(&self) -> bool {
        self.is_stale
    }

    fn __repr__(&self) -> String {
        let show = |side: &Option<Py<BestSide>>| {
            side.as_ref().map_or_else(|| "-".to_owned(), |side| side.get().price.to_string())
        };
        format!("<Nbbo {} / {} {}>", show(&self.bid), show(&self.ask), self.state)
    }
}

/// Books and the synthetic NBBO while packets come: see `tapeworks.Feed`.
#[pyclass(subclass, module = "tapeworks._native")]
pub(crate) struct Feed {
    /// None once it is finished. The lock only says that one thread at a time has it, which `&mut self` makes sure of.
    walk: Mutex<Option<Walk>>,
}

impl Feed {
    fn walk(&mut self) -> Result<&mut Walk, Failure> {
        let walk = self.walk.get_mut().unwrap_or_else(PoisonError::into_inner);
        walk.as_mut().ok_or_else(|| Failure::usage("the feed is finished"))
    }
}

fn instrument(walk: &Walk, symbol: &str) -> Option<InstrumentId> {
    walk.instruments().find(Symbol::from_bytes(symbol.as_bytes()).ok()?)
}

/// Refuses a market identifier code that no feed has: it would look like a venue without orders.
fn refuse_unknown_venue(mic: &str) -> Result<(), Failure> {
    let mut mics: Vec<&str> = FEEDS.iter().map(|feed| feed.venue.mic).collect();
    if mics.iter().any(|known| known.eq_ignore_ascii_case(mic)) {
        return Ok(());
    }
    mics.sort_unstable();
    mics.dedup();
    Err(Failure::usage(format!("unknown venue '{mic}': expected one of {}", mics.join(", "))))
}

/// The books of the feeds of the venue with this market identifier code, in any case.
fn books_of<'w>(walk: &'w Walk, mic: &str) -> impl Iterator<Item = &'w Books> {
    walk.books().feeds().iter().filter(move |books| {
        books.publisher().feed().is_some_and(|feed| feed.venue.mic.eq_ignore_ascii_case(mic))
    })
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let address = text.parse();
    address.map_err(|_| {
        Failure::usage(format!("'{text}' is no address with a port, such as 233.54.12.111:26477"))
    })
}

/// An error if packets went to another venue's group than the one that was named.
fn refuse_other_venue(walk: &Walk) -> PyResult<()> {
    match walk.venue_conflict() {
        Some(conflict) => Err(Failure::from(ReplayError::from(conflict)).into()),
        None => Ok(()),
    }
}

#[pymethods]
impl Feed {
    #[new]
    #[pyo3(signature = (
        paths=Vec::new(), *, symbols=None, protocol=None, venue=None, date=None, stale="flag", odd_lots=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        symbols: Option<Vec<String>>,
        protocol: Option<String>,
        venue: Option<String>,
        date: Option<String>,
        stale: &str,
        odd_lots: bool,
    ) -> PyResult<Self> {
        let (stale, start, end, limit, threads) = (stale.to_owned(), None, None, None, Some(1));
        let given =
            Given { paths, symbols, start, end, protocol, venue, date, stale, odd_lots, limit, threads };
        let options = given.options()?;
        let walk = py.detach(|| Walk::open(options)).map_err(Failure::from)?;
        Ok(Self { walk: Mutex::new(Some(walk)) })
    }

    /// Takes the packets of the files that were received before `until` (ns since 1970 UTC), or all. `False` when they have ended.
    #[pyo3(signature = (until=None))]
    fn advance(&mut self, py: Python<'_>, until: Option<u64>) -> PyResult<bool> {
        let until = Nanos(until.unwrap_or(u64::MAX));
        let walk = self.walk()?;
        if let Some(time) = walk.time().filter(|time| until < *time) {
            let text = format!("the feed is at {} ns, after {} ns: it does not go back", time.0, until.0);
            return Err(Failure::usage(text).into());
        }
        loop {
            let advanced = py.detach(|| walk.advance(until, MOST));
            refuse_other_venue(walk)?;
            match advanced {
                Advanced::Most => py.check_signals()?,
                Advanced::Until => return Ok(true),
                Advanced::Ended => return Ok(false),
            }
        }
    }

    /// Takes the payload of a UDP datagram. Returns how many messages of it were taken.
    #[pyo3(signature = (payload, received, destination, source="0.0.0.0:0"))]
    fn packet(&mut self, payload: &[u8], received: u64, destination: &str, source: &str) -> PyResult<u64> {
        let (source, destination) = (address(source)?, address(destination)?);
        let walk = self.walk()?;
        let before = walk.messages();
        walk.packet(
            Nanos(received),
            Datagram {
                source,
                destination,
                vlan: None,
                transport: Transport::Udp,
                payload,
                payload_offset: 0,
                truncated: false,
            },
        );
        refuse_other_venue(walk)?;
        Ok(walk.messages() - before)
    }

    /// Takes an Ethernet frame. Returns how many messages of it were taken. Frames that are not UDP or TCP over IP have none; those
    /// whose headers are damaged are counted in the summary.
    fn frame(&mut self, frame: &[u8], received: u64) -> PyResult<u64> {
        let walk = self.walk()?;
        let before = walk.messages();
        walk.frame(LinkType::ETHERNET, frame, Nanos(received));
        refuse_other_venue(walk)?;
        Ok(walk.messages() - before)
    }

    /// The book of `symbol` at the venue with this market identifier code. `None` when there is none. `depth`: at most so many levels.
    #[pyo3(signature = (symbol, venue, depth=None))]
    fn book(
        &mut self,
        py: Python<'_>,
        symbol: &str,
        venue: &str,
        depth: Option<usize>,
    ) -> PyResult<Option<Book>> {
        refuse_unknown_venue(venue)?;
        let walk = self.walk()?;
        let Some(instrument) = instrument(walk, symbol) else { return Ok(None) };
        // A venue may have several feeds: the first that has the symbol.
        let is_empty = |books: &&Books| {
            let book = books.book(instrument);
            book.depth(Side::Bid) + book.depth(Side::Ask) == 0
        };
        let Some(books) = books_of(walk, venue).min_by_key(is_empty) else { return Ok(None) };
        let book = books.book(instrument);
        let levels = |side| {
            let levels = book.levels(side).take(depth.unwrap_or(usize::MAX));
            levels.map(|level| Py::new(py, Level::from(level))).collect::<PyResult<Vec<_>>>()
        };
        Ok(Some(Book {
            symbol: symbol.to_owned(),
            venue: books.publisher().venue_name(),
            bids: levels(Side::Bid)?,
            asks: levels(Side::Ask)?,
            is_stale: book.is_stale(),
        }))
    }

    /// The orders of `symbol` at the venue: `(order_id, side, price, size)`, bids then offers, each best price first and in the order
    /// of their execution. Reads the whole order table.
    fn orders(&mut self, symbol: &str, venue: &str) -> PyResult<Vec<(u64, char, f64, u32)>> {
        refuse_unknown_venue(venue)?;
        let walk = self.walk()?;
        let Some(instrument) = instrument(walk, symbol) else { return Ok(Vec::new()) };
        let side = |side| match side {
            Side::Bid => 'B',
            Side::Ask => 'A',
            Side::None => 'N',
        };
        let orders = books_of(walk, venue).flat_map(|books| books.book(instrument).queue());
        Ok(orders.map(|order| (order.id, side(order.side), float(order.price), order.size)).collect())
    }

    /// The synthetic NBBO of `symbol`: of the venues' own feeds, not the SIPs'. `None` for an unknown symbol.
    fn nbbo(&mut self, py: Python<'_>, symbol: &str) -> PyResult<Option<Nbbo>> {
        let walk = self.walk()?;
        let Some(instrument) = instrument(walk, symbol) else { return Ok(None) };
        let Some(nbbo) = walk.nbbo().map(|stage| stage.nbbo(instrument)) else { return Ok(None) };
        let side = |side: &tapeworks_market::nbbo::BestSide| {
            let made = side.price.map(|price| {
                let venue = side.publisher.venue_name();
                Py::new(py, BestSide { price: float(price), price_e9: price.e9(), size: side.size, venue })
            });
            made.transpose()
        };
        Ok(Some(Nbbo {
            bid: side(&nbbo.bid)?,
            ask: side(&nbbo.ask)?,
            state: nbbo.state().as_str(),
            is_stale: nbbo.flags.contains(Flags::MAYBE_BAD_BOOK),
        }))
    }

    /// The symbols so far, in the order in which they came.
    #[getter]
    fn symbols(&mut self) -> PyResult<Vec<String>> {
        let symbols = self.walk()?.instruments().symbols().iter();
        Ok(symbols
            .filter(|symbol| !symbol.as_str().is_empty())
            .map(|symbol| symbol.as_str().to_owned())
            .collect())
    }

    /// The market identifier codes of the venues so far.
    #[getter]
    fn venues(&mut self) -> PyResult<Vec<&'static str>> {
        let feeds = self.walk()?.books().feeds().iter();
        Ok(feeds.filter_map(|books| books.publisher().feed()).map(|feed| feed.venue.mic).collect())
    }

    /// When the last packet was received, in ns since 1970 UTC.
    #[getter]
    fn time(&mut self) -> PyResult<Option<u64>> {
        Ok(self.walk()?.time().map(|time| time.0))
    }

    /// Messages taken.
    #[getter]
    fn messages(&mut self) -> PyResult<u64> {
        Ok(self.walk()?.messages())
    }

    /// Ends it. Returns what was read and what was not: the object of `tapeworks replay --json`.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let walk = self.walk.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let walk = walk.ok_or_else(|| Failure::usage("the feed is finished"))?;
        let summary = py.detach(|| walk.finish().to_json());
        to_python(py, &summary)
    }

    fn __repr__(&mut self) -> String {
        self.walk().map_or_else(
            |_| "<Feed, finished>".to_owned(),
            |walk| format!("<Feed {} messages>", walk.messages()),
        )
    }
}
