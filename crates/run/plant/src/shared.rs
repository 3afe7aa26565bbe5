//! The shared memory from which local clients read every event with the NBBO after it.

#![expect(clippy::disallowed_methods, reason = "memory that processes share is the system's in every world")]

use std::path::{Path, PathBuf};

use tapeworks_engine::Publish;
use tapeworks_market::nbbo::{Nbbo, NbboStage};
use tapeworks_market::shared::{MOST_QUOTES, QUOTES_MEANING, QuotesWriter, SharedQuote, quotes_path};
use tapeworks_market::{Event, InstrumentId, Instruments, NbboUpdate, Symbol};
use tapeworks_ring::broadcast::{CreateError, Writer};
use tapeworks_ring::latest::Place;
use tapeworks_time::Nanos;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::PlantError;
use crate::status::SharedStatus;

/// The layout of the shared memory: version 4 of [`Published`], whose channel has 16 bits.
pub const SHARED_MEANING: u64 = 0x5441_5045_0000_0004;

/// Capacity of the shared memory in items; a reader that falls further behind loses items.
const SHARED_ITEMS: usize = 1 << 18;

/// An item of the shared memory: an event, completed by its book, and its instrument's NBBO after it. 128 bytes. Prices are in 1e-9
/// of the currency, [`i64::MAX`] if there is none; times are ns since the epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Published {
    /// The venue's time.
    pub ts_event: u64,
    /// When its packet was received.
    pub ts_recv: u64,
    /// The order.
    pub order_id: u64,
    /// The price.
    pub price: i64,
    /// The sequence number of the message on its channel.
    pub channel_sequence: u64,
    /// Meaning depends on the kind: see [`Event::aux`].
    pub aux: u64,
    /// The instrument.
    pub instrument: u32,
    /// Shares.
    pub size: u32,
    /// The feed.
    pub publisher: u16,
    /// [`tapeworks_market::EventKind`] as a number.
    pub kind: u8,
    /// DBN's letter of the side.
    pub side: u8,
    /// DBN's flags.
    pub flags: u8,
    /// The line that delivered it.
    pub line: u8,
    /// The channel.
    pub channel: u16,
    /// The best bid of all venues.
    pub bid: i64,
    /// The best offer of all venues.
    pub ask: i64,
    /// Shares at the best bid.
    pub bid_size: u32,
    /// Shares at the best offer.
    pub ask_size: u32,
    /// The first venue's feed at the best bid.
    pub bid_publisher: u16,
    /// The first venue's feed at the best offer.
    pub ask_publisher: u16,
    /// Whether this event changed the NBBO: 0 or 1.
    pub nbbo_changed: u8,
    /// DBN's flags of the NBBO: `MAYBE_BAD_BOOK` while a venue among the best is stale.
    pub nbbo_flags: u8,
    /// The instrument's symbol, padded with spaces; zeros if it has none.
    pub symbol: [u8; Symbol::MOST],
    /// Meaning depends on the kind: see [`Event::detail`].
    pub detail: u8,
    /// Zeros.
    pub reserved: [u8; 12],
}

impl Published {
    /// Builds the item for an update.
    #[inline]
    pub fn new(event: &Event, symbol: Option<Symbol>, nbbo: &Nbbo, changed: bool) -> Self {
        let price = tapeworks_market::price::price_e9;
        Self {
            ts_event: event.ts_event.0,
            ts_recv: event.ts_recv.0,
            order_id: event.order_id,
            price: price(event.price),
            channel_sequence: event.channel_sequence,
            aux: event.aux,
            instrument: event.instrument.0,
            size: event.size,
            publisher: event.publisher.0,
            kind: event.kind as u8,
            side: event.side as u8,
            flags: event.flags().0,
            line: event.line() as u8,
            channel: event.channel,
            bid: price(nbbo.bid.price),
            ask: price(nbbo.ask.price),
            bid_size: nbbo.bid.size,
            ask_size: nbbo.ask.size,
            bid_publisher: nbbo.bid.publisher.0,
            ask_publisher: nbbo.ask.publisher.0,
            nbbo_changed: u8::from(changed),
            nbbo_flags: nbbo.flags.0,
            symbol: symbol.map_or([0; Symbol::MOST], |symbol| *symbol.as_bytes()),
            detail: event.detail,
            reserved: [0; 12],
        }
    }

    /// Returns the instrument's symbol, if it has one. Every item includes it, so that a late reader needs no earlier item.
    pub fn symbol(&self) -> Option<Symbol> {
        Symbol::from_bytes(&self.symbol).ok()
    }
}

/// A file of the shared memory; new readers find it by its path.
#[derive(Debug)]
struct SharedFile<T> {
    writer: T,
    path: PathBuf,
    /// The device and inode numbers.
    identity: Option<(u64, u64)>,
    /// Why new readers do not find the file: another one has its path, or it cannot be created again.
    trouble: Option<String>,
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl<T> SharedFile<T> {
    fn create(path: PathBuf, make: fn(&Path) -> Result<T, CreateError>) -> Result<Self, PlantError> {
        let writer = match make(&path) {
            Ok(writer) => writer,
            Err(source) => return Err(PlantError::SharedMemory { path, source }),
        };
        let identity = identity_of(&path);
        Ok(Self { writer, path, identity, trouble: None })
    }

    /// Checks that new readers find the file. A removed file is created again, and the function returns true; readers of the old
    /// file see that its writer has ended.
    fn look_after(&mut self, make: fn(&Path) -> Result<T, CreateError>) -> bool {
        match identity_of(&self.path) {
            Some(identity) if Some(identity) == self.identity => {}
            Some(_) => {
                self.trouble = Some(format!("another file is in the place of {}", self.path.display()))
            }
            None => match make(&self.path) {
                Ok(made) => {
                    self.writer = made;
                    (self.identity, self.trouble) = (identity_of(&self.path), None);
                    return true;
                }
                Err(error) => self.trouble = Some(error.to_string()),
            },
        }
        false
    }
}

fn make_events(path: &Path) -> Result<Writer<Published>, CreateError> {
    Writer::create(path, SHARED_ITEMS, SHARED_MEANING)
}

fn make_quotes(path: &Path) -> Result<QuotesWriter, CreateError> {
    QuotesWriter::create(path, MOST_QUOTES, QUOTES_MEANING)
}

/// Each instrument's slot among the quotes.
#[derive(Debug, Default)]
struct Places {
    /// By instrument. `None`: not looked up yet; `Some(None)`: no room.
    places: Vec<Option<Option<Place>>>,
    /// Number of instruments without room.
    without: u64,
}

impl Places {
    /// Returns whether an instrument was looked up.
    fn has(&self, instrument: InstrumentId) -> bool {
        self.places.get(instrument.index()).is_some_and(Option::is_some)
    }

    /// Returns an instrument's slot, which is looked up the first time.
    #[inline]
    fn of(&mut self, writer: &mut QuotesWriter, instrument: InstrumentId, symbol: Symbol) -> Option<Place> {
        match self.places.get(instrument.index()) {
            Some(Some(place)) => *place,
            _ => self.find(writer, instrument, symbol),
        }
    }

    #[cold]
    fn find(&mut self, writer: &mut QuotesWriter, instrument: InstrumentId, symbol: Symbol) -> Option<Place> {
        let place = writer.place(&symbol.into());
        self.without += u64::from(place.is_none());
        if self.places.len() <= instrument.index() {
            self.places.resize(instrument.index() + 1, None);
        }
        if let Some(known) = self.places.get_mut(instrument.index()) {
            *known = Some(place);
        }
        place
    }
}

/// The shared memory and its files: every event, and the NBBO of each symbol.
#[derive(Debug)]
pub(super) struct SharedMemory {
    events: SharedFile<Writer<Published>>,
    quotes: SharedFile<QuotesWriter>,
    places: Places,
    /// Whether the quotes include the state from before the start.
    is_filled: bool,
    /// Number of items published.
    count: u64,
    /// How many times a removed file was created again.
    made_again: u64,
}

impl SharedMemory {
    /// Creates the files.
    pub(super) fn create(path: &Path) -> Result<Self, PlantError> {
        Ok(Self {
            events: SharedFile::create(path.to_owned(), make_events)?,
            quotes: SharedFile::create(quotes_path(path), make_quotes)?,
            places: Places::default(),
            is_filled: false,
            count: 0,
            made_again: 0,
        })
    }

    /// Creates removed files again. A new quotes file gets all quotes.
    pub(super) fn look_after_files(&mut self, instruments: &Instruments, nbbo: &NbboStage) {
        self.made_again += u64::from(self.events.look_after(make_events));
        if self.quotes.look_after(make_quotes) {
            self.made_again += 1;
            (self.places, self.is_filled) = (Places::default(), false);
        }
        if !self.is_filled {
            self.is_filled = true;
            for (number, symbol) in (0..).map(InstrumentId).zip(instruments.symbols()) {
                let best = nbbo.nbbo(number);
                if *best != Nbbo::default()
                    && !self.places.has(number)
                    && let Some(place) = self.places.of(&mut self.quotes.writer, number, *symbol)
                {
                    self.quotes.writer.set(place, &SharedQuote::new(best, 0));
                }
            }
        }
    }

    /// Updates the heartbeat of the quotes to the time of ingest's last report, when they were known to be current.
    pub(super) fn beat(&mut self, reported: Nanos) {
        self.quotes.writer.beat(reported.0);
    }

    pub(super) fn status(&self) -> SharedStatus {
        let full = || {
            let path = self.quotes.path.display();
            (self.places.without > 0)
                .then(|| format!("{path}: {} symbols more than have room", self.places.without))
        };
        let trouble = self.events.trouble.clone().or_else(|| self.quotes.trouble.clone());
        SharedStatus { published: self.count, made_again: self.made_again, trouble: trouble.or_else(full) }
    }
}

impl Publish for SharedMemory {
    #[inline]
    fn publish(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) {
        let event = update.book.event;
        let symbol = instruments.symbol(event.instrument);
        self.events.writer.publish(&Published::new(event, symbol, update.nbbo, update.changed));
        if update.changed
            && let Some(symbol) = symbol
            && let Some(place) = self.places.of(&mut self.quotes.writer, event.instrument, symbol)
        {
            self.quotes.writer.set(place, &SharedQuote::new(update.nbbo, event.ts_recv.0));
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::nbbo::NbboRules;
    use tapeworks_market::{EventKind, InstrumentId};

    use super::*;

    #[test]
    fn a_removed_file_is_made_again_and_a_replaced_one_is_reported() {
        let path = std::env::temp_dir().join(format!("tapeworks-removed-{}", std::process::id()));
        let _not_there = std::fs::remove_file(&path);
        let mut shared = SharedMemory::create(&path).unwrap();
        let (instruments, nbbo) = (Instruments::default(), NbboStage::new(NbboRules::default(), [], 0));
        let state = |shared: &mut SharedMemory| {
            shared.look_after_files(&instruments, &nbbo);
            let status = shared.status();
            (status.made_again, status.trouble)
        };
        assert_eq!(state(&mut shared), (0, None));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(state(&mut shared), (1, None));
        assert!(path.exists());
        std::fs::remove_file(quotes_path(&path)).unwrap();
        assert_eq!(state(&mut shared), (2, None));
        std::fs::rename(&path, path.with_extension("moved")).unwrap();
        std::fs::write(&path, b"another's").unwrap();
        let (made_again, trouble) = state(&mut shared);
        assert!(made_again == 2 && trouble.unwrap().starts_with("another file is in the place of"));
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        drop(shared);
        for path in [path.with_extension("moved"), quotes_path(&path), path] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_published_item_is_two_cache_lines_without_padding() {
        assert_eq!(size_of::<Published>(), 128);
        let event = Event::new(EventKind::Other, tapeworks_market::Publisher(1), InstrumentId(2));
        let symbol = Symbol::parse("TWAA");
        let item = Published::new(&event, symbol, &Nbbo::default(), true);
        assert_eq!(Published::read_from_bytes(item.as_bytes()).unwrap(), item);
        assert_eq!((item.bid, item.instrument, item.nbbo_changed), (i64::MAX, 2, 1));
        assert_eq!(
            (item.symbol(), Published::new(&event, None, &Nbbo::default(), true).symbol()),
            (symbol, None)
        );
    }
}
