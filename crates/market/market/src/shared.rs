//! Best bid and offer of each symbol in shared memory.
//!
//! A plant writes it for programs that occasionally look up a price, such as a gateway's price collar.

use std::path::{Path, PathBuf};

use tapeworks_ring::latest;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::instrument::Symbol;
use crate::nbbo::Nbbo;
use crate::price::price_e9;

/// Identifies version 2 of the layout of [`SharedQuote`], its key, and the writer's [heartbeat](HEARTBEAT_NS).
pub const QUOTES_MEANING: u64 = 0x5441_5045_0001_0002;

/// Maximum interval, in ns, between heartbeats of a plant whose quotes are current, give or take one turn of its
/// threads.
pub const HEARTBEAT_NS: u64 = 200_000_000;

/// Maximum number of symbols.
pub const MOST_QUOTES: usize = 1 << 16;

/// The plant's end.
pub type QuotesWriter = latest::Writer<QuoteKey, SharedQuote>;

/// The reading program's end.
pub type QuotesReader = latest::Reader<QuoteKey, SharedQuote>;

/// Position of a symbol in the file.
pub type QuotePlace = latest::Place;

/// Returns the path of the quotes file: the plant's `shared_memory` path plus `.nbbo`.
pub fn quotes_path(shared_memory: &Path) -> PathBuf {
    let mut name = shared_memory.as_os_str().to_owned();
    name.push(".nbbo");
    PathBuf::from(name)
}

/// A symbol padded with spaces to 21 bytes, then three zero bytes.
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

/// The synthetic NBBO of a symbol. Prices are in 1e-9 of the currency; [`i64::MAX`] means none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SharedQuote {
    /// Best bid over all venues.
    pub bid: i64,
    /// Best offer over all venues.
    pub ask: i64,
    /// Receive time of the packet that changed it, in ns since 1970 UTC; 0 if that was before the plant started.
    pub ts_recv: u64,
    /// Shares at the best bid.
    pub bid_size: u32,
    /// Shares at the best offer.
    pub ask_size: u32,
    /// DBN's flags: `MAYBE_BAD_BOOK` while one of the best venues has a stale book.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

impl SharedQuote {
    /// Creates a quote from an NBBO that changed at `ts_recv`.
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

    /// Returns whether all of the best venues have sound books.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.flags & crate::event::Flags::MAYBE_BAD_BOOK.0 == 0
    }
}
