//! Books as plain values: see [`image`](crate::image).

use super::{BookCounters, Capacity};
use crate::price::Price;
use crate::venue::Publisher;

/// A resting order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct OrderImage {
    pub(crate) id: u64,
    pub(crate) price: Price,
    pub(crate) size: u32,
    pub(crate) is_ask: bool,
    pub(crate) instrument: u32,
    pub(crate) priority: u64,
}

/// A price level: price, shares, orders.
pub(crate) type LevelImage = (Price, u32, u32);

/// The book of one instrument, without its orders.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct BookImage {
    pub(crate) instrument: u32,
    /// Bids, then asks, best first.
    pub(crate) levels: [Vec<LevelImage>; 2],
    pub(crate) epoch: u32,
    pub(crate) state: u8,
    pub(crate) quoted: u8,
    pub(crate) reach: [u8; 2],
    pub(crate) round_lot: u32,
}

/// The books of one feed: see [`Books::image`](crate::Books::image).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BooksImage {
    pub(crate) publisher: Publisher,
    /// Books that differ from an empty one.
    pub(crate) books: Vec<BookImage>,
    /// Number of entries for instruments.
    pub(crate) places: u32,
    pub(crate) orders: Vec<OrderImage>,
    pub(crate) next_priority: u64,
    pub(crate) epoch: u32,
    pub(crate) newborn: u32,
    pub(crate) is_open: bool,
    pub(crate) counters: BookCounters,
}

impl BooksImage {
    /// Returns the feed.
    pub const fn publisher(&self) -> Publisher {
        self.publisher
    }

    /// Returns the number of orders.
    pub const fn order_count(&self) -> usize {
        self.orders.len()
    }

    /// Sorts the orders by priority, so that equal books have equal images.
    pub fn sort(&mut self) {
        self.orders.sort_unstable_by_key(|order| order.priority);
    }

    /// Returns table sizes that hold the image and are at least `least`.
    pub(crate) fn capacity(&self, least: Capacity) -> Capacity {
        Capacity {
            instruments: least.instruments.max(self.places as usize),
            orders: least.orders.max(self.orders.len()),
            ..least
        }
    }
}
