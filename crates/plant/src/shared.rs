//! The shared memory in which local clients read every event, with the NBBO after it.

#![expect(clippy::disallowed_methods, reason = "memory that processes share is the system's in every world")]

use std::path::{Path, PathBuf};

use tapeworks_engine::Publish;
use tapeworks_market::nbbo::Nbbo;
use tapeworks_market::{Event, Instruments, NbboUpdate, Symbol};
use tapeworks_ring::broadcast::Writer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::PlantError;
use crate::status::Status;

/// The layout of the shared memory: version 4 of [`Published`], whose channel has 16 bits.
pub const SHARED_MEANING: u64 = 0x5441_5045_0000_0004;

/// Items that the shared memory holds: a reader further behind has lost some.
const SHARED_ITEMS: usize = 1 << 18;

/// An item of the shared memory: an event, completed by its book, and the NBBO of its instrument after it. 128 bytes. Prices
/// are in 1e-9 of the currency, [`i64::MAX`] where there is none; times are ns since the epoch, UTC.
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
    /// By kind: see [`Event::aux`].
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
    /// The instrument's symbol, filled with spaces; zeros where there is none.
    pub symbol: [u8; Symbol::MOST],
    /// By kind: see [`Event::detail`].
    pub detail: u8,
    /// Zeros.
    pub reserved: [u8; 12],
}

impl Published {
    /// An update as the shared memory has it.
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

    /// The instrument's symbol, if it has one: every item has it, so that a late reader needs no earlier item.
    pub fn symbol(&self) -> Option<Symbol> {
        Symbol::from_bytes(&self.symbol).ok()
    }
}

fn create(path: &Path) -> Result<Writer<Published>, PlantError> {
    Writer::create(path, SHARED_ITEMS, SHARED_MEANING)
        .map_err(|source| PlantError::SharedMemory { path: path.to_owned(), source })
}

/// The shared memory and its file.
#[derive(Debug)]
pub(super) struct SharedMemory {
    writer: Writer<Published>,
    /// Items published.
    count: u64,
    path: PathBuf,
    /// The file system and the number of the file in it.
    identity: Option<(u64, u64)>,
    /// Times that it was made again after it was removed.
    made_again: u64,
    /// Another file is in its place, or it cannot be made again.
    trouble: Option<String>,
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl SharedMemory {
    /// Makes the file.
    pub(super) fn create(path: &Path) -> Result<Self, PlantError> {
        let writer = create(path)?;
        let identity = identity_of(path);
        Ok(Self { writer, count: 0, path: path.to_owned(), identity, made_again: 0, trouble: None })
    }

    /// Looks whether readers that come now find the file. One that was removed is made again; its readers learn that the writer
    /// of theirs has ended.
    pub(super) fn look_after_file(&mut self) {
        match identity_of(&self.path) {
            Some(identity) if Some(identity) == self.identity => {}
            Some(_) => {
                let text = format!("another file is in the place of {}", self.path.display());
                self.trouble = Some(text);
            }
            None => match create(&self.path) {
                Ok(made) => {
                    self.writer = made;
                    (self.identity, self.trouble) = (identity_of(&self.path), None);
                    self.made_again += 1;
                }
                Err(error) => self.trouble = Some(error.to_string()),
            },
        }
    }

    pub(super) fn report(&self, status: &mut Status) {
        status.shared = self.count;
        (status.shared_made_again, status.shared_trouble) = (self.made_again, self.trouble.clone());
    }
}

impl Publish for SharedMemory {
    #[inline]
    fn publish(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) {
        let event = update.book.event;
        let symbol = instruments.symbol(event.instrument);
        self.writer.publish(&Published::new(event, symbol, update.nbbo, update.changed));
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::{EventKind, InstrumentId};

    use super::*;

    #[test]
    fn a_removed_file_is_made_again_and_a_replaced_one_is_reported() {
        let path = std::env::temp_dir().join(format!("tapeworks-removed-{}", std::process::id()));
        let _not_there = std::fs::remove_file(&path);
        let mut shared = SharedMemory::create(&path).unwrap();
        let state = |shared: &mut SharedMemory| {
            shared.look_after_file();
            let mut status = Status::default();
            shared.report(&mut status);
            (status.shared_made_again, status.shared_trouble)
        };
        assert_eq!(state(&mut shared), (0, None));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(state(&mut shared), (1, None));
        assert!(path.exists());
        std::fs::rename(&path, path.with_extension("moved")).unwrap();
        std::fs::write(&path, b"another's").unwrap();
        let (made_again, trouble) = state(&mut shared);
        assert!(made_again == 1 && trouble.unwrap().starts_with("another file is in the place of"));
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        for path in [path.with_extension("moved"), path] {
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
