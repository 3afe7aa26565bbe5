//! The naive book: made of maps, as a first version would be.

use std::collections::{BTreeMap, HashMap};

use tapeworks_wire::nasdaq::itch50::{BuySellIndicator, Message};

#[derive(Default)]
struct Sides {
    bids: BTreeMap<u32, (u64, u32)>,
    asks: BTreeMap<u32, (u64, u32)>,
}

struct Order {
    locate: u16,
    is_bid: bool,
    price: u32,
    shares: u32,
}

/// Orders in a `HashMap`, price levels in a `BTreeMap` per side.
#[derive(Default)]
pub struct NaiveBook {
    orders: HashMap<u64, Order>,
    books: HashMap<u16, Sides>,
    /// Changes of a best price.
    pub tops: u64,
}

impl NaiveBook {
    fn add(&mut self, reference: u64, order: Order) {
        let book = self.books.entry(order.locate).or_default();
        let side = if order.is_bid { &mut book.bids } else { &mut book.asks };
        let level = side.entry(order.price).or_default();
        (level.0, level.1) = (level.0 + u64::from(order.shares), level.1 + 1);
        let best = if order.is_bid { side.last_key_value() } else { side.first_key_value() };
        self.tops += u64::from(best.is_some_and(|(price, _)| *price == order.price));
        self.orders.insert(reference, order);
    }

    fn take(&mut self, reference: u64, shares: Option<u32>) -> Option<Order> {
        let order = self.orders.get_mut(&reference)?;
        let taken = shares.unwrap_or(order.shares).min(order.shares);
        order.shares -= taken;
        let book = self.books.get_mut(&order.locate)?;
        let side = if order.is_bid { &mut book.bids } else { &mut book.asks };
        let best = if order.is_bid { side.last_key_value() } else { side.first_key_value() };
        self.tops += u64::from(best.is_some_and(|(price, _)| *price == order.price));
        let level = side.get_mut(&order.price)?;
        level.0 -= u64::from(taken);
        if order.shares == 0 {
            level.1 -= 1;
            if level.1 == 0 {
                side.remove(&order.price);
            }
            return self.orders.remove(&reference);
        }
        None
    }

    pub fn apply(&mut self, message: Message<'_>) {
        let is_bid = |side| side == BuySellIndicator::Buy;
        match message {
            Message::AddOrder(add) => self.add(
                add.order_reference_number(),
                Order {
                    locate: add.stock_locate(),
                    is_bid: is_bid(add.buy_sell_indicator()),
                    price: add.price().0,
                    shares: add.shares(),
                },
            ),
            Message::AddOrderWithMpid(add) => self.add(
                add.order_reference_number(),
                Order {
                    locate: add.stock_locate(),
                    is_bid: is_bid(add.buy_sell_indicator()),
                    price: add.price().0,
                    shares: add.shares(),
                },
            ),
            Message::OrderExecuted(executed) => {
                self.take(executed.order_reference_number(), Some(executed.executed_shares()));
            }
            Message::OrderExecutedWithPrice(executed) => {
                self.take(executed.order_reference_number(), Some(executed.executed_shares()));
            }
            Message::OrderCancel(cancel) => {
                self.take(cancel.order_reference_number(), Some(cancel.cancelled_shares()));
            }
            Message::OrderDelete(delete) => {
                self.take(delete.order_reference_number(), None);
            }
            Message::OrderReplace(replace) => {
                if let Some(old) = self.take(replace.original_order_reference_number(), None) {
                    let new = Order { price: replace.price().0, shares: replace.shares(), ..old };
                    self.add(replace.new_order_reference_number(), new);
                }
            }
            _ => {}
        }
    }
}
