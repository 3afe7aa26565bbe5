//! The best bid and offer of each symbol as a plant has them in shared memory, for programs that look at a price now and then: a gateway's
//! price collar, for one.

use std::path::{Path, PathBuf};

use tapeworks_ring::latest;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::instrument::Symbol;
use crate::nbbo::Nbbo;
use crate::price::price_e9;

/// The layout of a [`SharedQuote`] and its key, and its writer's [heartbeat](HEARTBEAT_NS): version 2.
pub const QUOTES_MEANING: u64 = 0x5441_5045_0001_0002;

/// A plant whose quotes are those of the lines sets another heartbeat at least this often, in ns, give or take a turn of its threads.
pub const HEARTBEAT_NS: u64 = 200_000_000;

/// The symbols that fit.
pub const MOST_QUOTES: usize = 1 << 16;

/// The end that a plant has.
pub type QuotesWriter = latest::Writer<QuoteKey, SharedQuote>;

/// The end of a program that looks.
pub type QuotesReader = latest::Reader<QuoteKey, SharedQuote>;

/// Where a symbol is in the file.
pub type QuotePlace = latest::Place;

/// The file of the quotes, beside that of a plant's `shared_memory`: the same name, and `.nbbo`.
pub fn quotes_path(shared_memory: &Path) -> PathBuf {
    let mut name = shared_memory.as_os_str().to_owned();
    name.push(".nbbo");
    PathBuf::from(name)
}

/// A symbol, filled with spaces to 21 bytes, and 3 zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QuoteKey([u8; 24]);

impl From<Symbol> for QuoteKey {
    fn from(symbol: Symbol) -> Self {
        let mut key = [0; 24];
        for (byte, letter) in key.iter_mut().zip(symbol.as_bytes()) {
            *byte = *letter;
        }
        Self(key)
    }
}

/// The synthetic NBBO of a symbol. Prices are in 1e-9 of the currency, [`i64::MAX`] where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SharedQuote {
    /// The best bid of all venues.
    pub bid: i64,
    /// The best offer of all venues.
    pub ask: i64,
    /// When the packet that changed it was received, in ns since 1970, UTC; 0: before the plant's start.
    pub ts_recv: u64,
    /// Shares at the best bid.
    pub bid_size: u32,
    /// Shares at the best offer.
    pub ask_size: u32,
    /// DBN's flags: `MAYBE_BAD_BOOK` while a venue among the best is stale.
    pub flags: u8,
    /// Zeros.
    pub reserved: [u8; 7],
}

impl SharedQuote {
    /// An NBBO since a time.
    #[inline]
    pub fn new(nbbo: &Nbbo, ts_recv: u64) -> Self {
        Self {
            bid: price_e9(nbbo.bid.price),
            ask: price_e9(nbbo.ask.price),
            ts_recv,
            bid_size: nbbo.bid.size,
            ask_size: nbbo.ask.size,
            flags: nbbo.flags.0,
            reserved: [0; 7],
        }
    }

    /// Whether each venue among the best has a book that can be trusted.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.flags & crate::event::Flags::MAYBE_BAD_BOOK.0 == 0
    }
}
