//! The order book of one symbol at one simulated venue.
//!
//! Each side is one vector of orders sorted by priority, best last. Nearly all activity is near the top, so an insertion or
//! removal moves a few 16-byte orders within one or two cache lines. There is no index by reference, because the generator picks
//! orders by rank.

/// Buy or sell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Buy,
    Sell,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Buy => Self::Sell,
            Self::Sell => Self::Buy,
        }
    }
}

/// A resting order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) reference: u64,
    /// In 1e-4 dollars.
    pub(crate) price: u32,
    pub(crate) shares: u32,
}

/// Both sides of a symbol's book at one venue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    bids: Vec<Order>,
    asks: Vec<Order>,
    /// While halted there are no orders or trades.
    pub(crate) halted: bool,
}

impl Book {
    pub(crate) fn side(&self, side: Side) -> &[Order] {
        match side {
            Side::Buy => &self.bids,
            Side::Sell => &self.asks,
        }
    }

    fn side_mut(&mut self, side: Side) -> &mut Vec<Order> {
        match side {
            Side::Buy => &mut self.bids,
            Side::Sell => &mut self.asks,
        }
    }

    /// Returns the order with the highest priority.
    #[inline]
    pub(crate) fn best(&self, side: Side) -> Option<Order> {
        self.side(side).last().copied()
    }

    /// Inserts an order at the back of the queue at its price.
    pub(crate) fn insert(&mut self, side: Side, order: Order) {
        let orders = self.side_mut(side);
        let place = match side {
            Side::Buy => orders.partition_point(|resting| resting.price < order.price),
            Side::Sell => orders.partition_point(|resting| resting.price > order.price),
        };
        orders.insert(place, order);
    }

    /// Returns the order `rank` places after the best, or the last one if there are fewer.
    #[inline]
    pub(crate) fn at_rank(&self, side: Side, rank: usize) -> Option<Order> {
        let orders = self.side(side);
        let index = orders.len().checked_sub(1)?.saturating_sub(rank);
        orders.get(index).copied()
    }

    /// Removes and returns the order that [`Book::at_rank`] returns.
    pub(crate) fn remove_at_rank(&mut self, side: Side, rank: usize) -> Option<Order> {
        let orders = self.side_mut(side);
        let index = orders.len().checked_sub(1)?.saturating_sub(rank);
        Some(orders.remove(index))
    }

    /// Reduces the order at this rank by `shares`, and removes it when none are left.
    pub(crate) fn reduce_at_rank(&mut self, side: Side, rank: usize, shares: u32) {
        let orders = self.side_mut(side);
        let Some(index) = orders.len().checked_sub(1).map(|last| last.saturating_sub(rank)) else { return };
        if let Some(order) = orders.get_mut(index) {
            order.shares = order.shares.saturating_sub(shares);
            if order.shares == 0 {
                orders.remove(index);
            }
        }
    }

    /// Returns the total shares at a price.
    pub(crate) fn level(&self, side: Side, price: u32) -> u32 {
        let orders = self.side(side);
        let start = match side {
            Side::Buy => orders.partition_point(|order| order.price < price),
            Side::Sell => orders.partition_point(|order| order.price > price),
        };
        orders
            .get(start..)
            .unwrap_or_default()
            .iter()
            .take_while(|order| order.price == price)
            .fold(0, |sum, order| sum.saturating_add(order.shares))
    }

    /// Returns price and shares of the best level, or zeros if there is none.
    pub(crate) fn top(&self, side: Side) -> (u32, u32) {
        let orders = self.side(side);
        let Some(best) = orders.last() else { return (0, 0) };
        let shares = orders
            .iter()
            .rev()
            .take_while(|order| order.price == best.price)
            .fold(0u32, |sum, order| sum.saturating_add(order.shares));
        (best.price, shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(reference: u64, price: u32, shares: u32) -> Order {
        Order { reference, price, shares }
    }

    #[test]
    fn the_first_in_line_is_the_oldest_at_the_best_price() {
        let mut book = Book::default();
        for (side, better, worse) in [(Side::Buy, 101, 100), (Side::Sell, 102, 103)] {
            book.insert(side, order(1, worse, 10));
            book.insert(side, order(2, better, 20));
            book.insert(side, order(3, better, 30));
            assert_eq!(book.best(side), Some(order(2, better, 20)));
            assert_eq!(book.at_rank(side, 2), Some(order(1, worse, 10)));
            assert_eq!(book.at_rank(side, 9), Some(order(1, worse, 10)));
            assert_eq!(book.top(side), (better, 50));
            assert_eq!(book.level(side, worse), 10);
            assert_eq!(book.level(side, 99), 0);
            book.reduce_at_rank(side, 0, 20);
            assert_eq!(book.best(side), Some(order(3, better, 30)));
            book.reduce_at_rank(side, 0, 1);
            assert_eq!(book.remove_at_rank(side, 0), Some(order(3, better, 29)));
        }
    }
}
