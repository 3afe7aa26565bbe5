//! Data for viewers: the NBBO of all symbols, and the books of watched symbols.
//!
//! The thread that has the books fills a [`View`] several times a second with what the [`Watch`] requests. Unwatched symbols cost
//! nothing.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_market::book::BookRef;
use tapeworks_market::levels::Level;
use tapeworks_market::nbbo::Nbbo;
use tapeworks_market::{BookStage, Instruments, NbboStage, Publisher, Side, Symbol};
use tapeworks_runtime::world::{System, World};
use tapeworks_time::Nanos;

/// Number of book levels that a view shows.
pub const DEPTH: usize = 10;

/// How long a symbol is shown after it was last requested.
const FORGET: Duration = Duration::from_secs(10);

/// Maximum number of symbols whose books are shown.
pub const MOST_WATCHED: usize = 64;

/// A venue's book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VenueBook {
    /// The feed.
    pub publisher: Publisher,
    /// The best bids, best first.
    pub bids: Vec<Level>,
    /// The best offers, best first.
    pub asks: Vec<Level>,
    /// Whether the book may be wrong.
    pub is_stale: bool,
    /// Whether the venue trades the instrument.
    pub is_trading: bool,
    /// Whether self-help is declared against the venue, which excludes it from the NBBO.
    pub is_under_self_help: bool,
}

/// An instrument's NBBO and books.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolView {
    /// The NBBO.
    pub nbbo: Nbbo,
    /// Whether a short-sale price test restricts the instrument, according to one of the venues.
    pub is_short_sale_restricted: bool,
    /// The venues' books, without empty ones.
    pub venues: Vec<VenueBook>,
}

/// The data for viewers.
#[derive(Clone, Default, Debug)]
pub struct View {
    /// When the view was made.
    pub time: Nanos,
    /// The NBBO of every symbol that has one, if a viewer watches the list.
    pub nbbos: Vec<(Symbol, Nbbo)>,
    /// The books of the watched symbols.
    pub symbols: BTreeMap<Symbol, SymbolView>,
    /// The feeds, in the order of the bits of [`tapeworks_market::nbbo::BestSide::venues`].
    pub venues: Vec<Publisher>,
}

#[derive(Default, Debug)]
struct Wanted {
    symbols: BTreeMap<Symbol, Instant>,
    list: Option<Instant>,
    view: Arc<View>,
}

/// Sets what a viewer watches, and provides the data. Clones share the same watch.
#[derive(Clone, Default, Debug)]
pub struct Watch<W: World = System> {
    wanted: Arc<Mutex<Wanted>>,
    _world: PhantomData<W>,
}

impl<W: World> Watch<W> {
    /// Watches a symbol's books for some seconds. Returns `false` if too many are watched.
    pub fn look_at(&self, symbol: Symbol) -> bool {
        let mut wanted = self.lock();
        if wanted.symbols.len() >= MOST_WATCHED && !wanted.symbols.contains_key(&symbol) {
            return false;
        }
        wanted.symbols.insert(symbol, W::instant());
        true
    }

    /// Watches the list of all symbols for some seconds.
    pub fn look_at_list(&self) {
        self.lock().list = Some(W::instant());
    }

    /// Returns the data for viewers.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.lock().view)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the view with current data.
    pub(crate) fn fill(&self, books: &BookStage, nbbo: &NbboStage, instruments: &Instruments, now: Nanos) {
        let (symbols, list) = {
            let mut wanted = self.lock();
            wanted.symbols.retain(|_, since| W::since(*since) < FORGET);
            wanted.list = wanted.list.filter(|since| W::since(*since) < FORGET);
            (wanted.symbols.keys().copied().collect::<Vec<_>>(), wanted.list.is_some())
        };
        let mut view = View { time: now, venues: nbbo.venues().to_vec(), ..View::default() };
        if list {
            let all = instruments.symbols().iter();
            view.nbbos = all
                .filter_map(|symbol| {
                    let best = nbbo.nbbo(instruments.find(*symbol)?);
                    (best.bid.price.is_some() || best.ask.price.is_some()).then_some((*symbol, *best))
                })
                .collect();
        }
        for symbol in symbols {
            let Some(instrument) = instruments.find(symbol) else { continue };
            let venues = books.feeds().iter().map(|feed| venue_book(feed.book(instrument), nbbo));
            let venues = venues.filter(|book| !book.bids.is_empty() || !book.asks.is_empty()).collect();
            let is_short_sale_restricted = books.is_short_sale_restricted(instrument);
            let nbbo = *nbbo.nbbo(instrument);
            view.symbols.insert(symbol, SymbolView { nbbo, is_short_sale_restricted, venues });
        }
        self.lock().view = Arc::new(view);
    }
}

fn venue_book(book: BookRef<'_>, nbbo: &NbboStage) -> VenueBook {
    VenueBook {
        publisher: book.publisher(),
        bids: book.levels(Side::Bid).take(DEPTH).collect(),
        asks: book.levels(Side::Ask).take(DEPTH).collect(),
        is_stale: book.is_stale(),
        is_trading: !book.is_closed() && book.state().is_trading(),
        is_under_self_help: nbbo.is_under_self_help(book.publisher()),
    }
}
