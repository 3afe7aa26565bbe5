//! Price levels: sorted arrays in one table.
//!
//! Each side of each book is a [`Ladder`]: a block of cells in a [`LevelStore`], sorted so that the best price is last.
//! Nearly all activity is near the top, so a search walks from the end, and an insertion there moves few cells. Blocks
//! have capacities of 4, 8, 16, … cells and share one table in huge pages; a block that has become too small returns to
//! the free list of its size. Nothing is allocated after startup unless the table itself must grow, which is counted.
//!
//! Cost: a cell is 16 bytes, four to a cache line, and blocks start on a line. An operation touches the line of its
//! level and the lines above it: two or three lines within 8 levels of the best price, two more for each 8 levels
//! deeper up to 64, then a binary search over the rest. An insertion or removal writes `n` / 4 + 1 lines if it is `n`
//! levels from the top.

use tapeworks_ring::memory::HugeVec;
use tapeworks_ring::prefetch;
use zerocopy::FromZeros;

use crate::event::Side;
use crate::price::Price;

/// A price level, as callers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// The price.
    pub price: Price,
    /// Shares at the price.
    pub size: u32,
    /// Orders at the price; 0 if the feed does not publish them.
    pub orders: u32,
}

/// A level in the table. On both sides, a higher `key` is a better price.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(C)]
struct Cell {
    key: i64,
    size: u32,
    orders: u32,
}

/// One side of one book: the location of its cells, in eight bytes.
#[derive(Clone, Copy, Default, FromZeros, Debug)]
#[repr(C)]
pub struct Ladder {
    start: u32,
    /// The low 27 bits hold the number of levels. The bits above hold the block's class: 0 for no block, otherwise 1
    /// plus its index in [`LevelStore::free`].
    length_and_class: u32,
}

/// Number of bits of a ladder that hold its length.
const LENGTH_BITS: u32 = 27;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;

impl Ladder {
    /// Returns the number of levels.
    #[inline]
    pub const fn len(self) -> usize {
        self.length() as usize
    }

    /// Returns whether there are no levels.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.length() == 0
    }

    #[inline]
    const fn length(self) -> u32 {
        self.length_and_class & LENGTH_MASK
    }

    /// Returns the number of cells in the block, and so the most levels that it can hold; 0 without a block.
    #[inline]
    const fn capacity(self) -> u32 {
        // Class 1 has four cells. For class 0 the shift yields two, which the mask turns into none.
        (SMALLEST / 2) << (self.length_and_class >> LENGTH_BITS) & !(SMALLEST - 1)
    }
}

/// Why a level could not change: book and feed disagree after a loss, or the table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelError {
    /// There is no level at the price.
    Missing,
    /// The level has fewer shares or orders than would be removed.
    Underflow,
    /// The level would exceed 2^32 - 1 shares.
    Overflow,
    /// The table has reached its maximum size of 2^32 - 1 cells.
    Full,
}

/// Number of cells compared together.
const TOP: usize = 8;
/// Number of cells from the top that are walked before a binary search covers the rest.
const WALKED: usize = 64;
/// The smallest block: one cache line.
const SMALLEST: u32 = 4;
/// Start of the first block, so that eight cells can be read backwards from the end of any block.
const FIRST: u32 = TOP as u32;
/// Block sizes are 4 << 0 to 4 << 24, so that a length fits its bits.
const CLASSES: usize = 25;
/// Ends a list of free blocks; no block starts at the last cell.
const NO_BLOCK: u32 = u32::MAX;

/// The levels of all books of a venue.
#[derive(Debug)]
pub struct LevelStore {
    cells: HugeVec<Cell>,
    used: u32,
    free: [u32; CLASSES],
    growths: u64,
}

/// Maps a price to a key that is higher for a better price.
///
/// The key is the price for bids and its complement for asks; unlike the negation, every number has a complement.
#[inline]
const fn key_of(side: Side, price: Price) -> i64 {
    match side {
        Side::Ask => !price.e9(),
        Side::Bid | Side::None => price.e9(),
    }
}

impl LevelStore {
    /// Creates a table with room for `capacity` levels (at least 4).
    pub fn with_capacity(capacity: u32) -> Self {
        let cells = HugeVec::zeroed(capacity.max(SMALLEST).saturating_add(FIRST) as usize);
        Self { cells, used: FIRST, free: [NO_BLOCK; CLASSES], growths: 0 }
    }

    /// Returns how often the table grew after startup. Each growth copied the whole table: configure more capacity.
    pub const fn growths(&self) -> u64 {
        self.growths
    }

    /// Returns the size of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>()
    }

    #[inline]
    fn cells(&self, ladder: Ladder) -> &[Cell] {
        let start = ladder.start as usize;
        self.cells.get(start..start + ladder.len()).unwrap_or_default()
    }

    /// Returns the level `depth` steps below the best, in the terms of `side`.
    #[inline]
    pub fn level(&self, ladder: Ladder, side: Side, depth: usize) -> Option<Level> {
        let cells = self.cells(ladder);
        let cell = cells.get(cells.len().checked_sub(depth + 1)?)?;
        Self::to_level(cell, side)
    }

    #[inline]
    fn to_level(cell: &Cell, side: Side) -> Option<Level> {
        let price = if side == Side::Ask { !cell.key } else { cell.key };
        Some(Level { price: Price::from_e9(price)?, size: cell.size, orders: cell.orders })
    }

    /// Returns the levels, best first.
    #[inline]
    pub fn iter(&self, ladder: Ladder, side: Side) -> impl Iterator<Item = Level> + '_ {
        self.cells(ladder).iter().rev().filter_map(move |cell| Self::to_level(cell, side))
    }

    /// Returns whether `ladder` has the same levels as a ladder in `other`.
    pub fn are_equal(&self, ladder: Ladder, other: &Self, of_other: Ladder) -> bool {
        self.cells(ladder) == other.cells(of_other)
    }

    /// Returns how many of the best levels it takes to hold `shares`; all of them if they hold less.
    #[inline]
    pub fn reach(&self, ladder: Ladder, shares: u32) -> usize {
        let mut held = 0u32;
        for (above, cell) in self.cells(ladder).iter().rev().enumerate() {
            held = held.saturating_add(cell.size);
            if held >= shares {
                return above + 1;
            }
        }
        ladder.len()
    }

    /// Prefetches the last `LINES` cache lines of `ladder`, which hold its best levels: at least 29 with eight lines,
    /// 13 with four.
    #[inline]
    pub fn prefetch<const LINES: usize>(&self, ladder: Ladder) {
        let last = (ladder.start + ladder.length().saturating_sub(1)) as usize;
        prefetch::read_back::<LINES, _>(&self.cells, last);
    }

    /// Finds the position of `key` in `ladder`, or its insertion position.
    ///
    /// Walks from the best level, eight cells at a time. A branch predictor cannot predict the position among eight, so
    /// all eight are compared and counted. If fewer than eight are left, the cells before them in the table are
    /// compared too, but not counted.
    #[inline]
    fn search(&self, ladder: Ladder, key: i64) -> Result<usize, usize> {
        let start = ladder.start as usize;
        let mut end = ladder.len();
        while end > 0 {
            let cells = self.cells.get(..start + end).and_then(<[Cell]>::last_chunk::<TOP>);
            let Some(top) = cells else { break };
            let before = TOP.saturating_sub(end);
            let better = (0..TOP).map(|at| usize::from((top[at].key > key) & (at >= before))).sum::<usize>();
            end -= better;
            if better < TOP {
                break;
            }
            if ladder.len() - end >= WALKED {
                return self.cells(ladder)[..end].binary_search_by_key(&key, |cell| cell.key);
            }
        }
        match end.checked_sub(1) {
            Some(at) if self.cells.get(start + at).is_some_and(|cell| cell.key == key) => Ok(at),
            _ => Err(end),
        }
    }

    /// Adds an order of `size` shares at `price`. Returns how many levels are better than its level.
    #[inline]
    pub fn add(
        &mut self,
        ladder: &mut Ladder,
        side: Side,
        price: Price,
        size: u32,
    ) -> Result<u32, LevelError> {
        let key = key_of(side, price);
        match self.search(*ladder, key) {
            Ok(position) => {
                let cell = &mut self.cells[ladder.start as usize + position];
                cell.size = cell.size.checked_add(size).ok_or(LevelError::Overflow)?;
                cell.orders = cell.orders.saturating_add(1);
                Ok(ladder.length() - 1 - position as u32)
            }
            Err(position) => {
                self.insert(ladder, position, Cell { key, size, orders: 1 })?;
                Ok(ladder.length() - 1 - position as u32)
            }
        }
    }

    /// Removes `size` shares from the level at `price`, and one order from its count if `whole_order`.
    ///
    /// A level without shares is removed. Returns how many levels are better than it.
    #[inline]
    pub fn take(
        &mut self,
        ladder: &mut Ladder,
        side: Side,
        price: Price,
        size: u32,
        whole_order: bool,
    ) -> Result<u32, LevelError> {
        let position = self.search(*ladder, key_of(side, price)).map_err(|_| LevelError::Missing)?;
        let depth = ladder.length() - 1 - position as u32;
        let cell = &mut self.cells[ladder.start as usize + position];
        let (Some(left), Some(orders)) =
            (cell.size.checked_sub(size), cell.orders.checked_sub(u32::from(whole_order)))
        else {
            return Err(LevelError::Underflow);
        };
        (cell.size, cell.orders) = (left, orders);
        if left == 0 {
            self.remove(ladder, position);
        }
        Ok(depth)
    }

    /// Sets the level at `price` to `size` shares; 0 removes it.
    ///
    /// Returns how many levels are better than it, or [`LevelError::Missing`] for the removal of a level that does not
    /// exist.
    #[inline]
    pub fn set(
        &mut self,
        ladder: &mut Ladder,
        side: Side,
        price: Price,
        size: u32,
    ) -> Result<u32, LevelError> {
        let key = key_of(side, price);
        match self.search(*ladder, key) {
            Ok(position) => {
                let depth = ladder.length() - 1 - position as u32;
                if size == 0 {
                    self.remove(ladder, position);
                } else {
                    self.cells[ladder.start as usize + position].size = size;
                }
                Ok(depth)
            }
            Err(_) if size == 0 => Err(LevelError::Missing),
            Err(position) => {
                self.insert(ladder, position, Cell { key, size, orders: 0 })?;
                Ok(ladder.length() - 1 - position as u32)
            }
        }
    }

    /// Replaces the side with one level or none: a quote.
    #[inline]
    pub fn quote(
        &mut self,
        ladder: &mut Ladder,
        side: Side,
        quote: Option<(Price, u32)>,
    ) -> Result<(), LevelError> {
        ladder.length_and_class &= !LENGTH_MASK;
        if let Some((price, size)) = quote {
            self.insert(ladder, 0, Cell { key: key_of(side, price), size, orders: 0 })?;
        }
        Ok(())
    }

    /// Appends a level restored from an image, which must be worse than all others.
    pub(crate) fn put_worst(
        &mut self,
        ladder: &mut Ladder,
        side: Side,
        level: Level,
    ) -> Result<(), LevelError> {
        let key = key_of(side, level.price);
        if self.cells(*ladder).first().is_some_and(|worst| worst.key <= key) {
            return Err(LevelError::Missing);
        }
        self.insert(ladder, 0, Cell { key, size: level.size, orders: level.orders })
    }

    /// Empties the side and frees its block.
    pub fn clear(&mut self, ladder: &mut Ladder) {
        self.release(*ladder);
        *ladder = Ladder::default();
    }

    #[inline]
    fn insert(&mut self, ladder: &mut Ladder, position: usize, cell: Cell) -> Result<(), LevelError> {
        if ladder.length() == ladder.capacity() {
            self.grow(ladder)?;
        }
        let start = ladder.start as usize;
        let cells = &mut self.cells[start..=start + ladder.len()];
        // Near the top only a few cells move: a loop is faster than a call to a general copy.
        let mut index = cells.len() - 1;
        while index > position {
            cells[index] = cells[index - 1];
            index -= 1;
        }
        cells[position] = cell;
        debug_assert!(
            cells[position.saturating_sub(1)..]
                .iter()
                .take(3)
                .is_sorted_by(|worse, better| worse.key < better.key),
            "a level is out of order"
        );
        ladder.length_and_class += 1;
        Ok(())
    }

    #[inline]
    fn remove(&mut self, ladder: &mut Ladder, position: usize) {
        let start = ladder.start as usize;
        let cells = &mut self.cells[start..start + ladder.len()];
        for index in position + 1..cells.len() {
            cells[index - 1] = cells[index];
        }
        ladder.length_and_class -= 1;
    }

    /// Moves a full ladder to a block of twice the size.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, ladder: &mut Ladder) -> Result<(), LevelError> {
        let class = ladder.length_and_class >> LENGTH_BITS;
        let start = self.allocate(class as usize)?;
        let old = ladder.start as usize;
        self.cells.copy_within(old..old + ladder.len(), start as usize);
        self.release(*ladder);
        *ladder = Ladder { start, length_and_class: ladder.length() | (class + 1) << LENGTH_BITS };
        Ok(())
    }

    /// Allocates a block of the class at `place` in `free`.
    fn allocate(&mut self, place: usize) -> Result<u32, LevelError> {
        let head = self.free.get_mut(place).ok_or(LevelError::Full)?;
        if *head != NO_BLOCK {
            let start = *head;
            // The first cell of a free block holds the start of the next one.
            *head = self.cells[start as usize].key as u32;
            return Ok(start);
        }
        let end = self.used.checked_add(SMALLEST << place).ok_or(LevelError::Full)?;
        if end as usize > self.cells.len() {
            let doubled = (self.cells.len() * 2).clamp(end as usize, u32::MAX as usize);
            let mut larger = HugeVec::zeroed(doubled);
            larger[..self.used as usize].copy_from_slice(&self.cells[..self.used as usize]);
            self.cells = larger;
            self.growths += 1;
        }
        Ok(std::mem::replace(&mut self.used, end))
    }

    /// Returns a ladder's block, if it has one, to the free list of its size.
    fn release(&mut self, ladder: Ladder) {
        let Some(place) = (ladder.length_and_class >> LENGTH_BITS).checked_sub(1) else { return };
        let head = &mut self.free[place as usize];
        self.cells[ladder.start as usize].key = i64::from(*head);
        *head = ladder.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(units: i64) -> Price {
        Price::from_e9(units).unwrap()
    }

    fn prices(store: &LevelStore, ladder: Ladder, side: Side) -> Vec<i64> {
        store.iter(ladder, side).map(|level| level.price.e9()).collect()
    }

    #[test]
    fn the_best_price_comes_first_on_either_side() {
        let mut store = LevelStore::with_capacity(4);
        for (side, expected) in [(Side::Bid, [9, 5, 3, 1]), (Side::Ask, [1, 3, 5, 9])] {
            let mut ladder = Ladder::default();
            for units in [5, 1, 9, 3] {
                store.add(&mut ladder, side, price(units), 10).unwrap();
            }
            assert_eq!(prices(&store, ladder, side), expected);
            assert_eq!(store.level(ladder, side, 0).unwrap().price.e9(), expected[0]);
            assert_eq!(store.level(ladder, side, 4), None);
        }
    }

    #[test]
    fn the_returned_depth_is_the_number_of_better_levels() {
        let mut store = LevelStore::with_capacity(64);
        let mut asks = Ladder::default();
        assert_eq!(store.add(&mut asks, Side::Ask, price(10), 1), Ok(0));
        assert_eq!(store.add(&mut asks, Side::Ask, price(12), 1), Ok(1));
        assert_eq!(store.add(&mut asks, Side::Ask, price(11), 1), Ok(1));
        assert_eq!(store.add(&mut asks, Side::Ask, price(11), 4), Ok(1));
        assert_eq!(store.level(asks, Side::Ask, 1), Some(Level { price: price(11), size: 5, orders: 2 }));
        assert_eq!(store.take(&mut asks, Side::Ask, price(12), 1, true), Ok(2));
        assert_eq!(store.take(&mut asks, Side::Ask, price(11), 2, false), Ok(1));
        assert_eq!(store.take(&mut asks, Side::Ask, price(11), 3, true), Ok(1));
        assert_eq!(prices(&store, asks, Side::Ask), [10]);
    }

    #[test]
    fn an_impossible_change_is_an_error_and_changes_nothing() {
        let mut store = LevelStore::with_capacity(64);
        let mut bids = Ladder::default();
        store.add(&mut bids, Side::Bid, price(10), u32::MAX).unwrap();
        assert_eq!(store.add(&mut bids, Side::Bid, price(10), 1), Err(LevelError::Overflow));
        assert_eq!(store.take(&mut bids, Side::Bid, price(11), 1, true), Err(LevelError::Missing));
        assert_eq!(store.set(&mut bids, Side::Bid, price(9), 0), Err(LevelError::Missing));
        store.set(&mut bids, Side::Bid, price(10), 5).unwrap();
        assert_eq!(store.take(&mut bids, Side::Bid, price(10), 6, false), Err(LevelError::Underflow));
        assert_eq!(store.level(bids, Side::Bid, 0), Some(Level { price: price(10), size: 5, orders: 1 }));
    }

    #[test]
    fn deep_ladders_are_searched_and_the_table_grows_when_it_must() {
        let mut store = LevelStore::with_capacity(4);
        let mut bids = Ladder::default();
        for units in (0..500).map(|n| (n * 7919) % 500) {
            store.add(&mut bids, Side::Bid, price(units), 1).unwrap();
        }
        assert_eq!(prices(&store, bids, Side::Bid), (0..500).rev().collect::<Vec<_>>());
        assert!(store.growths() > 0);
        for units in (0..500).map(|n| (n * 7) % 500) {
            store.take(&mut bids, Side::Bid, price(units), 1, true).unwrap();
        }
        assert!(bids.is_empty());
    }

    #[test]
    fn blocks_are_used_again() {
        let mut store = LevelStore::with_capacity(64);
        for _ in 0..1_000 {
            let mut ladder = Ladder::default();
            for units in 0..9 {
                store.add(&mut ladder, Side::Bid, price(units), 1).unwrap();
            }
            store.clear(&mut ladder);
        }
        assert_eq!(store.growths(), 0);
    }

    #[test]
    fn the_most_extreme_prices_are_levels_like_others() {
        let mut store = LevelStore::with_capacity(64);
        for side in [Side::Bid, Side::Ask] {
            let mut ladder = Ladder::default();
            for units in [i64::MIN, 0, i64::MAX - 1] {
                store.add(&mut ladder, side, price(units), 1).unwrap();
            }
            assert_eq!(ladder.len(), 3);
            let best = if side == Side::Bid { i64::MAX - 1 } else { i64::MIN };
            assert_eq!(store.level(ladder, side, 0).unwrap().price.e9(), best);
        }
    }
}
