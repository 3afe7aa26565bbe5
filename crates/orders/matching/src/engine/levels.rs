//! The price levels of one side of a book, sorted, best last.
//!
//! Cost: a binary search finds a level; an insertion or removal shifts the better levels. Nearly all activity is near the best
//! price, so few levels shift.

use super::OrderSide;
use super::pool::Queue;

/// The orders at one price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) price_e8: i64,
    pub(super) displayed: Queue,
    pub(super) hidden: Queue,
}

impl Level {
    pub(super) const fn is_empty(&self) -> bool {
        self.displayed.first.is_none() && self.hidden.first.is_none()
    }
}

/// The price levels of one side.
#[derive(Debug)]
pub(super) struct Levels {
    side: OrderSide,
    levels: Vec<Level>,
}

impl Levels {
    pub(super) const fn new(side: OrderSide) -> Self {
        Self { side, levels: Vec::new() }
    }

    pub(super) fn best(&self) -> Option<&Level> {
        self.levels.last()
    }

    pub(super) fn iter_from_best(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter().rev()
    }

    fn place(&self, price_e8: i64) -> Result<usize, usize> {
        let index = self.levels.partition_point(|level| match self.side {
            OrderSide::Buy => level.price_e8 < price_e8,
            OrderSide::Sell => level.price_e8 > price_e8,
        });
        match self.levels.get(index) {
            Some(level) if level.price_e8 == price_e8 => Ok(index),
            _ => Err(index),
        }
    }

    /// Returns the level at a price, inserting it if it is missing.
    pub(super) fn level_mut(&mut self, price_e8: i64) -> &mut Level {
        let index = match self.place(price_e8) {
            Ok(index) => index,
            Err(index) => {
                let empty = Level { price_e8, displayed: Queue::default(), hidden: Queue::default() };
                self.levels.insert(index, empty);
                index
            }
        };
        &mut self.levels[index]
    }

    pub(super) fn remove(&mut self, price_e8: i64) {
        if let Ok(index) = self.place(price_e8) {
            self.levels.remove(index);
        }
    }
}
