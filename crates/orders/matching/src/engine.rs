//! A matching engine with one price-time book per symbol, for simulated venues that accept orders.
//!
//! An incoming order trades with the best orders on the other side, at their prices: best price first, displayed orders before
//! hidden ones at the same price, and the oldest first among those. The remainder rests unless its time in force says otherwise.
//! When an iceberg's displayed slice is used up, it is replenished from the reserve and goes to the back of the queue at its
//! price. A stop waits outside the book until a trade reaches its stop price; stops elected by the trades of one order enter in
//! the order in which they were received.
//!
//! Every call passes its [`Event`]s to a sink in the order in which they happen: events for the owners of orders, and the
//! [`BookChange`]s that a market-data line publishes. A refused call changes nothing and emits no events. The engine has no
//! clock: [`MatchingEngine::advance`] moves time forward.
//!
//! # Cost
//! Orders are in a bounded pool, linked into their price level and their owner's list, so a cancel touches only the order and its
//! neighbors. Levels are sorted vectors with the best price last. Once the vectors have grown, only stops and expiring orders
//! allocate, for the ordered sets that hold them.

mod levels;
mod pool;

use std::collections::BTreeSet;
use std::ops::Bound;

use levels::Levels;
use pool::{Links, Pool, Queue};

pub use pool::OrderId;

/// Buy or sell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderSide {
    /// Buy.
    Buy,
    /// Sell, whether short or long.
    Sell,
}

impl OrderSide {
    /// Returns the opposite side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Buy => Self::Sell,
            Self::Sell => Self::Buy,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The owner of orders: a user of the venue, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

/// A symbol, numbered from 0 by its position in [`MatchingOptions::symbols`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolIndex(pub u32);

/// The price at which an order may trade. Prices are in 1e-8 of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderKind {
    /// At any price. A remainder that cannot trade immediately is cancelled.
    Market,
    /// At this price or a better one.
    Limit {
        /// The limit.
        price_e8: i64,
    },
    /// Becomes a market order once a trade reaches the stop price or goes beyond it.
    Stop {
        /// The stop price.
        stop_e8: i64,
    },
    /// Becomes a limit order once a trade reaches the stop price or goes beyond it.
    StopLimit {
        /// The stop price.
        stop_e8: i64,
        /// The limit.
        price_e8: i64,
    },
}

impl OrderKind {
    const fn limit_e8(self) -> Option<i64> {
        match self {
            Self::Limit { price_e8 } | Self::StopLimit { price_e8, .. } => Some(price_e8),
            Self::Market | Self::Stop { .. } => None,
        }
    }

    const fn stop_e8(self) -> Option<i64> {
        match self {
            Self::Stop { stop_e8 } | Self::StopLimit { stop_e8, .. } => Some(stop_e8),
            Self::Market | Self::Limit { .. } => None,
        }
    }
}

/// How long an order works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until [`MatchingEngine::end_day`].
    Day,
    /// A remainder that cannot trade immediately is cancelled.
    ImmediateOrCancel,
    /// Trades immediately and completely, or not at all.
    FillOrKill,
    /// Until this time, in nanoseconds since 1970-01-01 00:00 UTC.
    GoodTill {
        /// The first nanosecond at which the order no longer works.
        expire_ns: u64,
    },
}

impl Lifetime {
    const fn is_immediate(self) -> bool {
        matches!(self, Self::ImmediateOrCancel | Self::FillOrKill)
    }
}

/// Self-trade prevention: what happens when an order would trade with another of the same owner. The incoming order's rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SelfTrade {
    /// The orders trade.
    #[default]
    Allow,
    /// The resting order is cancelled.
    CancelResting,
    /// The remainder of the incoming order is cancelled.
    CancelIncoming,
    /// Both orders are cancelled.
    CancelBoth,
    /// Both orders lose the smaller quantity without a trade; an iceberg counts with its displayed slice.
    DecrementBoth,
}

/// How much of an order is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Display {
    /// All of it.
    Full,
    /// Slices of at most this quantity: an iceberg.
    Slice(u32),
    /// None of it: the order trades after the displayed orders at its price.
    Hidden,
}

/// An incoming order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewOrder {
    /// Its owner.
    pub owner: Owner,
    /// Its symbol.
    pub symbol: SymbolIndex,
    /// Its side.
    pub side: OrderSide,
    /// The price at which it may trade.
    pub kind: OrderKind,
    /// Order quantity.
    pub quantity: u32,
    /// How much of it is displayed once it rests.
    pub display: Display,
    /// Minimum quantity that must trade immediately, or the order is cancelled; only with [`Lifetime::ImmediateOrCancel`]. 0
    /// means no minimum. Counting stops at an order of the same owner with which it would not trade, unless self-trade prevention
    /// cancels that order.
    pub minimum: u32,
    /// How long it works.
    pub lifetime: Lifetime,
    /// Whether it is cancelled instead of trading immediately.
    pub is_passive_only: bool,
    /// Self-trade prevention.
    pub self_trade: SelfTrade,
}

/// A change to a working order. Side and symbol stay the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement {
    /// The new quantity, including the executed part.
    pub quantity: u32,
    /// The new prices, of the same kind. An elected stop has the kind that it became.
    pub kind: OrderKind,
    /// How much of it is displayed.
    pub display: Display,
    /// The new lifetime, which cannot be immediate.
    pub lifetime: Lifetime,
    /// Whether it is cancelled instead of trading immediately at its new price.
    pub is_passive_only: bool,
}

/// Why a call was refused. A refusal leaves the book unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The symbol is not traded here.
    #[error("the symbol is not traded here")]
    UnknownSymbol,
    /// The symbol is halted.
    #[error("the symbol is halted")]
    Halted,
    /// The quantity is 0 or above the symbol's limit.
    #[error("the quantity is 0 or too high")]
    Quantity,
    /// A price is not a multiple of the tick, or is outside the symbol's limits.
    #[error("the price is no multiple of the tick, or outside the symbol's limits")]
    Price,
    /// The slice is 0 or exceeds the quantity.
    #[error("the displayed quantity is 0 or above the quantity")]
    Display,
    /// The minimum exceeds the quantity, or the order is not immediate-or-cancel.
    #[error("the minimum quantity is above the quantity, or the order is not immediate or cancel")]
    Minimum,
    /// The expiry time has passed, a passive-only order is immediate, a market order, or a stop, or a replacement is immediate.
    #[error("the expiry or the time in force does not fit the order")]
    Lifetime,
    /// There is no room for another order.
    #[error("no room for another order")]
    Full,
    /// No such order is working, or it belongs to another owner.
    #[error("no such order")]
    UnknownOrder,
    /// The replacement is of another order kind.
    #[error("a replacement cannot change the type of the order")]
    Kind,
}

/// Why an order ended before it was filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// Its owner cancelled it.
    Requested,
    /// Its owner's mass cancel included it.
    MassCancel,
    /// Its owner disconnected.
    Disconnected,
    /// It was an immediate-or-cancel or market order, and the remainder found no counterparty.
    Unfilled,
    /// It was fill-or-kill and could not trade completely, or it could not trade its minimum.
    NotFillable,
    /// It was passive only and would have traded.
    WouldTrade,
    /// It expired.
    Expired,
    /// The trading day ended.
    DayOver,
    /// It would have traded with its owner's order.
    SelfTrade,
    /// A replacement left no open quantity.
    ReplacedBelowExecuted,
    /// The venue cancelled it.
    Venue,
}

/// One side of a trade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// The order.
    pub order: OrderId,
    /// Its owner.
    pub owner: Owner,
    /// Its side.
    pub side: OrderSide,
    /// The open quantity. At 0 the order no longer works.
    pub leaves: u32,
    /// The executed quantity, including this trade.
    pub executed: u32,
}

/// An event of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An order was accepted; its trades follow.
    Accepted {
        /// Its identifier.
        order: OrderId,
        /// Its owner.
        owner: Owner,
    },
    /// A stop was elected and enters the book.
    Elected {
        /// The order.
        order: OrderId,
        /// Its owner.
        owner: Owner,
    },
    /// Two orders traded.
    Trade {
        /// The symbol.
        symbol: SymbolIndex,
        /// The trade's number, counted from 1 across all symbols.
        match_number: u64,
        /// The resting order's price.
        price_e8: i64,
        /// Traded quantity.
        quantity: u32,
        /// The order that rested.
        resting: Fill,
        /// The incoming order.
        incoming: Fill,
    },
    /// An order was replaced; its trades follow.
    Replaced {
        /// The order.
        order: OrderId,
        /// Its owner.
        owner: Owner,
        /// Its open quantity before those trades.
        leaves: u32,
    },
    /// An order lost quantity without a trade, through [`SelfTrade::DecrementBoth`].
    Decremented {
        /// The order.
        order: OrderId,
        /// Its owner.
        owner: Owner,
        /// The quantity that it lost.
        by: u32,
        /// Its open quantity.
        leaves: u32,
    },
    /// An order ended with open quantity.
    Ended {
        /// The order.
        order: OrderId,
        /// Its owner.
        owner: Owner,
        /// Why.
        reason: EndReason,
        /// The quantity that was open.
        leaves: u32,
        /// The executed quantity.
        executed: u32,
    },
    /// The displayed book changed.
    Book {
        /// The symbol.
        symbol: SymbolIndex,
        /// The change.
        change: BookChange,
    },
}

/// A change to the displayed book, as market data publish it. A reference is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookChange {
    /// An order is displayed at the back of the queue at its price.
    Add {
        /// Its public order reference.
        reference: u64,
        /// Its side.
        side: OrderSide,
        /// Its price.
        price_e8: i64,
        /// Displayed quantity.
        quantity: u32,
    },
    /// A displayed order traded at its price; if all of it traded, it is removed.
    Execute {
        /// Its public order reference.
        reference: u64,
        /// Traded quantity.
        quantity: u32,
        /// The trade's number.
        match_number: u64,
    },
    /// A displayed order lost quantity and keeps its place.
    Reduce {
        /// Its public order reference.
        reference: u64,
        /// The quantity that it lost.
        by: u32,
    },
    /// A displayed order was removed.
    Delete {
        /// Its public order reference.
        reference: u64,
    },
    /// A displayed order was replaced by another at the back of the queue at its new price.
    Replace {
        /// Its old public order reference.
        old: u64,
        /// Its new public order reference.
        new: u64,
        /// Its price.
        price_e8: i64,
        /// Displayed quantity.
        quantity: u32,
    },
    /// A hidden order traded.
    HiddenTrade {
        /// The price.
        price_e8: i64,
        /// Traded quantity.
        quantity: u32,
        /// The trade's number.
        match_number: u64,
    },
}

/// The trading rules of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolRules {
    /// Price increment in 1e-8, at least 1.
    pub tick_e8: i64,
    /// Lowest order price in 1e-8, at least 1.
    pub lowest_price_e8: i64,
    /// Highest order price in 1e-8.
    pub highest_price_e8: i64,
    /// Largest order quantity.
    pub most_quantity: u32,
}

/// The symbols and limits of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchingOptions {
    /// The rules of each symbol.
    pub symbols: Vec<SymbolRules>,
    /// Maximum number of working orders, across all symbols and owners.
    pub most_orders: u32,
}

/// A working order, as callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkingOrder {
    /// Its owner.
    pub owner: Owner,
    /// Its symbol.
    pub symbol: SymbolIndex,
    /// Its side.
    pub side: OrderSide,
    /// Its prices. An elected stop is a market or a limit order.
    pub kind: OrderKind,
    /// Its quantity, including the executed part.
    pub quantity: u32,
    /// The executed quantity.
    pub executed: u32,
    /// The open quantity.
    pub leaves: u32,
    /// The quantity displayed now.
    pub displayed: u32,
    /// How much of it may be displayed.
    pub display: Display,
    /// How long it works.
    pub lifetime: Lifetime,
}

/// An order in the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    owner: Owner,
    symbol: SymbolIndex,
    side: OrderSide,
    kind: OrderKind,
    lifetime: Lifetime,
    display: Display,
    self_trade: SelfTrade,
    quantity: u32,
    executed: u32,
    leaves: u32,
    /// Displayed quantity; 0 for a hidden order.
    shown: u32,
    /// The public reference of the displayed quantity.
    reference: u64,
    /// Order of entry; stops elected together enter the book in this order.
    entered: u64,
    place: Place,
    /// Neighbors in the queue of its price level.
    level: Links,
    /// Neighbors in its owner's list.
    own: Links,
}

/// Where an order is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In no queue: it is being processed.
    Incoming,
    /// In the queue at its price.
    Resting,
    /// Among the stops.
    Waiting,
}

/// The book of one symbol.
#[derive(Debug)]
struct Book {
    rules: SymbolRules,
    is_halted: bool,
    sides: [Levels; 2],
    /// Stops by price and order of entry; first buys, then sells.
    stops: [BTreeSet<(i64, u64, OrderId)>; 2],
    last_e8: Option<i64>,
}

/// Price-time matching of a set of symbols. See the [crate](crate).
#[derive(Debug)]
pub struct MatchingEngine {
    books: Vec<Book>,
    pool: Pool,
    /// The first order in each owner's list.
    owners: Vec<Option<OrderId>>,
    expiries: BTreeSet<(u64, OrderId)>,
    now_ns: u64,
    entered: u64,
    references: u64,
    matches: u64,
    /// Elected stops with their order of entry.
    elected: Vec<(u64, OrderId)>,
    /// Orders that one call works through; kept so that the vector is not reallocated.
    round: Vec<OrderId>,
}

impl MatchingEngine {
    /// Creates an engine without orders.
    #[must_use]
    pub fn new(options: &MatchingOptions) -> Self {
        let book = |rules: &SymbolRules| Book {
            rules: SymbolRules { tick_e8: rules.tick_e8.max(1), ..*rules },
            is_halted: false,
            sides: [Levels::new(OrderSide::Buy), Levels::new(OrderSide::Sell)],
            stops: [BTreeSet::new(), BTreeSet::new()],
            last_e8: None,
        };
        Self {
            books: options.symbols.iter().map(book).collect(),
            pool: Pool::new(options.most_orders),
            owners: Vec::new(),
            expiries: BTreeSet::new(),
            now_ns: 0,
            entered: 0,
            references: 0,
            matches: 0,
            elected: Vec::new(),
            round: Vec::new(),
        }
    }

    /// Accepts an order, trades it, and rests or cancels the remainder.
    ///
    /// # Errors
    /// The order violates the symbol's rules, the symbol is halted or unknown, or there is no room.
    pub fn submit(&mut self, new: &NewOrder, sink: &mut impl FnMut(Event)) -> Result<OrderId, Refusal> {
        self.check(new)?;
        self.entered += 1;
        let order = Order {
            owner: new.owner,
            symbol: new.symbol,
            side: new.side,
            kind: new.kind,
            lifetime: new.lifetime,
            display: new.display,
            self_trade: new.self_trade,
            quantity: new.quantity,
            executed: 0,
            leaves: new.quantity,
            shown: 0,
            reference: 0,
            entered: self.entered,
            place: Place::Incoming,
            level: Links::default(),
            own: Links::default(),
        };
        let id = self.pool.insert(order).ok_or(Refusal::Full)?;
        self.link_to_owner(id, new.owner);
        if let Lifetime::GoodTill { expire_ns } = new.lifetime {
            self.expiries.insert((expire_ns, id));
        }
        sink(Event::Accepted { order: id, owner: new.owner });
        if new.is_passive_only && self.would_trade(&order) {
            self.end(id, EndReason::WouldTrade, sink);
        } else if self.is_waiting_stop(&order) {
            self.wait_for_stop(id);
        } else {
            if new.kind.stop_e8().is_some() {
                self.elect(id, sink);
            }
            self.enter(id, new.minimum, sink);
        }
        self.settle(sink);
        Ok(id)
    }

    /// Cancels an owner's order.
    ///
    /// # Errors
    /// No such order is working, or it belongs to another owner.
    pub fn cancel(&mut self, owner: Owner, id: OrderId, sink: &mut impl FnMut(Event)) -> Result<(), Refusal> {
        self.owned(owner, id)?;
        self.end(id, EndReason::Requested, sink);
        Ok(())
    }

    /// Replaces the quantity, prices, display, or lifetime of an owner's order.
    ///
    /// The order keeps its place if its price and display stay the same and its quantity does not grow. Otherwise it first trades
    /// if it can, and rests at the back of the queue at its new price.
    ///
    /// # Errors
    /// No such order is working, it belongs to another owner, the symbol is halted, or the new values violate the rules.
    pub fn replace(
        &mut self,
        owner: Owner,
        id: OrderId,
        new: &Replacement,
        sink: &mut impl FnMut(Event),
    ) -> Result<(), Refusal> {
        let order = self.owned(owner, id)?;
        let book = self.book(order.symbol)?;
        if book.is_halted {
            return Err(Refusal::Halted);
        }
        if std::mem::discriminant(&new.kind) != std::mem::discriminant(&order.kind) {
            return Err(Refusal::Kind);
        }
        if new.lifetime.is_immediate() {
            return Err(Refusal::Lifetime);
        }
        self.check_values(book, new.quantity, new.kind, new.display, new.lifetime)?;
        if new.quantity <= order.executed {
            self.end(id, EndReason::ReplacedBelowExecuted, sink);
            return Ok(());
        }
        let leaves = new.quantity - order.executed;
        let keeps_place = new.kind == order.kind && new.display == order.display && leaves <= order.leaves;
        let changed = Order {
            kind: new.kind,
            lifetime: new.lifetime,
            display: new.display,
            quantity: new.quantity,
            leaves,
            ..order
        };
        self.forget_expiry(id, &order);
        if let Lifetime::GoodTill { expire_ns } = new.lifetime {
            self.expiries.insert((expire_ns, id));
        }
        sink(Event::Replaced { order: id, owner, leaves });
        if order.place == Place::Waiting {
            self.remove_stop(id, &order);
            self.entered += 1;
            let entered = if keeps_place { order.entered } else { self.entered };
            self.pool.set(id, Order { entered, ..changed });
            if self.is_waiting_stop(&changed) {
                self.wait_for_stop(id);
            } else {
                self.elect(id, sink);
                self.enter(id, 0, sink);
            }
        } else if keeps_place {
            self.reduce_in_place(id, &order, changed, sink);
        } else {
            self.move_to_new_place(id, &order, changed, new.is_passive_only, sink);
        }
        self.settle(sink);
        Ok(())
    }

    /// Cancels an owner's orders that `is_meant` selects. Returns how many.
    pub fn mass_cancel(
        &mut self,
        owner: Owner,
        reason: EndReason,
        mut is_meant: impl FnMut(OrderId, &WorkingOrder) -> bool,
        sink: &mut impl FnMut(Event),
    ) -> u32 {
        let mut ending = std::mem::take(&mut self.round);
        let mut next = self.owners.get(owner.0 as usize).copied().flatten();
        while let Some((id, order)) = next.and_then(|id| Some((id, self.pool.get(id)?))) {
            if is_meant(id, &view(order)) {
                ending.push(id);
            }
            next = order.own.next;
        }
        // The list starts with the newest order, but the oldest is cancelled first.
        let cancelled = ending.len() as u32;
        for id in ending.drain(..).rev() {
            self.end(id, reason, sink);
        }
        self.round = ending;
        cancelled
    }

    /// Advances time to `now_ns`, which never goes back, and expires the orders that are due, the earliest first.
    pub fn advance(&mut self, now_ns: u64, sink: &mut impl FnMut(Event)) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some((expire_ns, id)) = self.expiries.first().copied()
            && expire_ns <= self.now_ns
        {
            self.end(id, EndReason::Expired, sink);
        }
    }

    /// Returns when the next order expires, if any will.
    #[must_use]
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.expiries.first().map(|(expire_ns, _)| *expire_ns)
    }

    /// Ends the trading day: cancels all day orders, in the order of their pool slots.
    pub fn end_day(&mut self, sink: &mut impl FnMut(Event)) {
        let mut ending = std::mem::take(&mut self.round);
        ending
            .extend(self.pool.iter().filter(|(_, order)| order.lifetime == Lifetime::Day).map(|(id, _)| id));
        for id in ending.drain(..) {
            self.end(id, EndReason::DayOver, sink);
        }
        self.round = ending;
    }

    /// Cancels an order on behalf of the venue.
    ///
    /// # Errors
    /// No such order is working.
    pub fn cancel_by_venue(&mut self, id: OrderId, sink: &mut impl FnMut(Event)) -> Result<(), Refusal> {
        self.pool.get(id).ok_or(Refusal::UnknownOrder)?;
        self.end(id, EndReason::Venue, sink);
        Ok(())
    }

    /// Halts or resumes a symbol. A halted symbol accepts only cancels.
    ///
    /// # Errors
    /// The symbol is not traded here.
    pub fn set_halted(&mut self, symbol: SymbolIndex, is_halted: bool) -> Result<(), Refusal> {
        self.books.get_mut(symbol.0 as usize).ok_or(Refusal::UnknownSymbol)?.is_halted = is_halted;
        Ok(())
    }

    /// Returns a working order.
    #[must_use]
    pub fn order(&self, id: OrderId) -> Option<WorkingOrder> {
        self.pool.get(id).map(view)
    }

    /// Number of working orders.
    #[must_use]
    pub fn orders(&self) -> usize {
        self.pool.len()
    }

    /// Returns the best displayed price and the quantity displayed there.
    #[must_use]
    pub fn top(&self, symbol: SymbolIndex, side: OrderSide) -> Option<(i64, u64)> {
        let levels = &self.books.get(symbol.0 as usize)?.sides[side.index()];
        levels.iter_from_best().find_map(|level| {
            let quantity: u64 = self.queue(level.displayed).map(|(_, order)| u64::from(order.shown)).sum();
            (quantity > 0).then_some((level.price_e8, quantity))
        })
    }

    /// Iterates over the displayed orders of a side by priority: reference, price, displayed quantity.
    pub fn displayed(
        &self,
        symbol: SymbolIndex,
        side: OrderSide,
    ) -> impl Iterator<Item = (u64, i64, u32)> + '_ {
        let levels = self.books.get(symbol.0 as usize).map(|book| &book.sides[side.index()]);
        levels.into_iter().flat_map(|levels| levels.iter_from_best()).flat_map(|level| {
            self.queue(level.displayed).map(|(_, order)| (order.reference, level.price_e8, order.shown))
        })
    }

    /// Returns the price of a symbol's last trade.
    #[must_use]
    pub fn last_e8(&self, symbol: SymbolIndex) -> Option<i64> {
        self.books.get(symbol.0 as usize)?.last_e8
    }

    // Checks

    fn book(&self, symbol: SymbolIndex) -> Result<&Book, Refusal> {
        self.books.get(symbol.0 as usize).ok_or(Refusal::UnknownSymbol)
    }

    fn owned(&self, owner: Owner, id: OrderId) -> Result<Order, Refusal> {
        self.pool.get(id).filter(|order| order.owner == owner).copied().ok_or(Refusal::UnknownOrder)
    }

    fn check(&self, new: &NewOrder) -> Result<(), Refusal> {
        let book = self.book(new.symbol)?;
        if book.is_halted {
            return Err(Refusal::Halted);
        }
        self.check_values(book, new.quantity, new.kind, new.display, new.lifetime)?;
        if new.minimum > new.quantity || (new.minimum > 0 && new.lifetime != Lifetime::ImmediateOrCancel) {
            return Err(Refusal::Minimum);
        }
        let may_rest = !new.lifetime.is_immediate() && new.kind.limit_e8().is_some();
        if new.is_passive_only && !(may_rest && new.kind.stop_e8().is_none()) {
            return Err(Refusal::Lifetime);
        }
        Ok(())
    }

    fn check_values(
        &self,
        book: &Book,
        quantity: u32,
        kind: OrderKind,
        display: Display,
        lifetime: Lifetime,
    ) -> Result<(), Refusal> {
        if quantity == 0 || quantity > book.rules.most_quantity {
            return Err(Refusal::Quantity);
        }
        let rules = &book.rules;
        let limits = rules.lowest_price_e8.max(1)..=rules.highest_price_e8;
        let is_price = |price_e8: i64| limits.contains(&price_e8) && price_e8 % rules.tick_e8 == 0;
        if !kind.limit_e8().is_none_or(is_price) || !kind.stop_e8().is_none_or(is_price) {
            return Err(Refusal::Price);
        }
        if matches!(display, Display::Slice(slice) if slice == 0 || slice > quantity) {
            return Err(Refusal::Display);
        }
        if matches!(lifetime, Lifetime::GoodTill { expire_ns } if expire_ns <= self.now_ns) {
            return Err(Refusal::Lifetime);
        }
        Ok(())
    }

    /// Returns whether an incoming order would trade immediately, or meet an order of its owner.
    fn would_trade(&self, order: &Order) -> bool {
        let Ok(book) = self.book(order.symbol) else { return false };
        let best = book.sides[order.side.other().index()].best();
        best.is_some_and(|best| reaches(order.side, order.kind.limit_e8(), best.price_e8))
    }

    /// Returns the quantity that could trade immediately. Counting stops once it reaches `wanted`.
    fn fillable(&self, order: &Order, wanted: u32) -> u64 {
        let Ok(book) = self.book(order.symbol) else { return 0 };
        let mut sum = 0u64;
        for level in book.sides[order.side.other().index()].iter_from_best() {
            if sum >= u64::from(wanted) || !reaches(order.side, order.kind.limit_e8(), level.price_e8) {
                break;
            }
            let is_blocked =
                |other: &Order| other.owner == order.owner && blocks_what_is_behind(order.self_trade);
            let counts = |other: &Order| other.owner != order.owner || order.self_trade == SelfTrade::Allow;
            let (mut shown, mut reserve) = (0u64, 0u64);
            for (_, other) in self.queue(level.displayed) {
                if is_blocked(other) {
                    // The reserves of orders ahead of it trade after it.
                    return sum + shown;
                }
                if counts(other) {
                    shown += u64::from(other.shown);
                    reserve += u64::from(other.leaves - other.shown);
                }
            }
            sum += shown + reserve;
            for (_, other) in self.queue(level.hidden) {
                if is_blocked(other) {
                    return sum;
                }
                if counts(other) {
                    sum += u64::from(other.leaves);
                }
            }
        }
        sum
    }

    // Entry, matching, rest

    /// Enters an order into the book: trades it, then rests or cancels the remainder.
    fn enter(&mut self, id: OrderId, minimum: u32, sink: &mut impl FnMut(Event)) {
        let Some(order) = self.pool.get(id).copied() else { return };
        let needed = if order.lifetime == Lifetime::FillOrKill { order.leaves } else { minimum };
        if needed > 0 && self.fillable(&order, needed) < u64::from(needed) {
            self.end(id, EndReason::NotFillable, sink);
            return;
        }
        self.trade(id, sink);
        let Some(order) = self.pool.get(id).copied() else { return };
        match order.kind.limit_e8() {
            Some(price_e8) if !order.lifetime.is_immediate() => self.rest(id, price_e8, None, sink),
            _ => self.end(id, EndReason::Unfilled, sink),
        }
    }

    /// Trades an order with the other side until it is filled or no price is acceptable. A filled order is released.
    fn trade(&mut self, id: OrderId, sink: &mut impl FnMut(Event)) {
        while let Some(order) = self.pool.get(id).copied() {
            let Some((price_e8, resting_id)) = self.first_of(order.symbol, order.side.other()) else {
                return;
            };
            if !reaches(order.side, order.kind.limit_e8(), price_e8) {
                return;
            }
            let Some(resting) = self.pool.get(resting_id).copied() else { return };
            let is_hidden = resting.display == Display::Hidden;
            let available = if is_hidden { resting.leaves } else { resting.shown };
            let quantity = order.leaves.min(available);
            if resting.owner == order.owner && order.self_trade != SelfTrade::Allow {
                if self.prevent(id, resting_id, order.self_trade, quantity, sink) {
                    continue;
                }
                return;
            }
            self.matches += 1;
            let match_number = self.matches;
            let resting_fill = self.fill(resting_id, quantity);
            let incoming_fill = self.fill(id, quantity);
            let (Some(resting_fill), Some(incoming_fill)) = (resting_fill, incoming_fill) else { return };
            self.note_trade(order.symbol, price_e8);
            sink(Event::Trade {
                symbol: order.symbol,
                match_number,
                price_e8,
                quantity,
                resting: resting_fill,
                incoming: incoming_fill,
            });
            let change = if is_hidden {
                BookChange::HiddenTrade { price_e8, quantity, match_number }
            } else {
                BookChange::Execute { reference: resting.reference, quantity, match_number }
            };
            sink(Event::Book { symbol: order.symbol, change });
            self.after_fill(resting_id, sink);
            if incoming_fill.leaves == 0 {
                self.release(id);
            }
        }
    }

    /// Applies self-trade prevention to two orders of one owner. Returns whether the incoming order continues.
    fn prevent(
        &mut self,
        id: OrderId,
        resting_id: OrderId,
        rule: SelfTrade,
        quantity: u32,
        sink: &mut impl FnMut(Event),
    ) -> bool {
        match rule {
            SelfTrade::Allow => true,
            SelfTrade::CancelResting => {
                self.end(resting_id, EndReason::SelfTrade, sink);
                true
            }
            SelfTrade::CancelIncoming => {
                self.end(id, EndReason::SelfTrade, sink);
                false
            }
            SelfTrade::CancelBoth => {
                self.end(resting_id, EndReason::SelfTrade, sink);
                self.end(id, EndReason::SelfTrade, sink);
                false
            }
            SelfTrade::DecrementBoth => {
                self.decrement(resting_id, quantity, sink);
                self.decrement(id, quantity, sink);
                self.pool.get(id).is_some()
            }
        }
    }

    /// Reduces an order without a trade.
    fn decrement(&mut self, id: OrderId, by: u32, sink: &mut impl FnMut(Event)) {
        let Some(order) = self.pool.get_mut(id) else { return };
        order.leaves -= by;
        order.quantity -= by;
        let order = *order;
        sink(Event::Decremented { order: id, owner: order.owner, by, leaves: order.leaves });
        if order.place == Place::Resting && order.shown > 0 {
            let shown = order.shown - by.min(order.shown);
            if let Some(order) = self.pool.get_mut(id) {
                order.shown = shown;
            }
            let reference = order.reference;
            let change = if shown == 0 {
                BookChange::Delete { reference }
            } else {
                BookChange::Reduce { reference, by }
            };
            sink(Event::Book { symbol: order.symbol, change });
        }
        if order.place == Place::Resting {
            self.after_fill(id, sink);
        } else if order.leaves == 0 {
            self.release(id);
        }
    }

    /// Reduces an order by a trade's quantity.
    fn fill(&mut self, id: OrderId, quantity: u32) -> Option<Fill> {
        let order = self.pool.get_mut(id)?;
        order.leaves -= quantity;
        order.executed += quantity;
        order.shown -= quantity.min(order.shown);
        Some(Fill {
            order: id,
            owner: order.owner,
            side: order.side,
            leaves: order.leaves,
            executed: order.executed,
        })
    }

    /// Follows up on a reduced resting order: removes it if nothing is left, and replenishes a slice that is used up.
    fn after_fill(&mut self, id: OrderId, sink: &mut impl FnMut(Event)) {
        let Some(order) = self.pool.get(id).copied() else { return };
        if order.leaves == 0 {
            self.unlink_from_level(id, &order);
            self.release(id);
        } else if order.shown == 0 && order.display != Display::Hidden {
            let Some(price_e8) = order.kind.limit_e8() else { return };
            self.unlink_from_level(id, &order);
            self.rest(id, price_e8, None, sink);
        }
    }

    /// Puts an order at the back of the queue at its price. `replaced` is its old public reference, if it was displayed.
    fn rest(&mut self, id: OrderId, price_e8: i64, replaced: Option<u64>, sink: &mut impl FnMut(Event)) {
        let Some(order) = self.pool.get(id).copied() else { return };
        let Some(book) = self.books.get_mut(order.symbol.0 as usize) else { return };
        let level = book.sides[order.side.index()].level_mut(price_e8);
        let shown = match order.display {
            Display::Full => order.leaves,
            Display::Slice(slice) => slice.min(order.leaves),
            Display::Hidden => 0,
        };
        let queue = if shown == 0 { &mut level.hidden } else { &mut level.displayed };
        self.pool.push_back(queue, id);
        if shown > 0 {
            self.references += 1;
        }
        let reference = if shown > 0 { self.references } else { 0 };
        if let Some(order) = self.pool.get_mut(id) {
            (order.shown, order.reference, order.place) = (shown, reference, Place::Resting);
        }
        let (symbol, side) = (order.symbol, order.side);
        let change = match (replaced, shown > 0) {
            (Some(old), true) => BookChange::Replace { old, new: reference, price_e8, quantity: shown },
            (Some(old), false) => BookChange::Delete { reference: old },
            (None, true) => BookChange::Add { reference, side, price_e8, quantity: shown },
            (None, false) => return,
        };
        sink(Event::Book { symbol, change });
    }

    fn reduce_in_place(&mut self, id: OrderId, old: &Order, changed: Order, sink: &mut impl FnMut(Event)) {
        let shown = old.shown.min(changed.leaves);
        self.pool.set(id, Order { shown, ..changed });
        if shown < old.shown {
            let change = BookChange::Reduce { reference: old.reference, by: old.shown - shown };
            sink(Event::Book { symbol: old.symbol, change });
        }
    }

    fn move_to_new_place(
        &mut self,
        id: OrderId,
        old: &Order,
        changed: Order,
        is_passive_only: bool,
        sink: &mut impl FnMut(Event),
    ) {
        self.unlink_from_level(id, old);
        self.entered += 1;
        let changed = Order {
            shown: 0,
            reference: 0,
            place: Place::Incoming,
            level: Links::default(),
            entered: self.entered,
            ..changed
        };
        self.pool.set(id, changed);
        let was_displayed = (old.shown > 0).then_some(old.reference);
        match (changed.kind.limit_e8(), self.would_trade(&changed)) {
            (Some(price_e8), false) => self.rest(id, price_e8, was_displayed, sink),
            _ => {
                if let Some(reference) = was_displayed {
                    sink(Event::Book { symbol: old.symbol, change: BookChange::Delete { reference } });
                }
                if is_passive_only {
                    self.end(id, EndReason::WouldTrade, sink);
                } else {
                    self.enter(id, 0, sink);
                }
            }
        }
    }

    // Ends

    /// Ends an order that has open quantity.
    fn end(&mut self, id: OrderId, reason: EndReason, sink: &mut impl FnMut(Event)) {
        let Some(order) = self.pool.get(id).copied() else { return };
        match order.place {
            Place::Incoming => {}
            Place::Waiting => self.remove_stop(id, &order),
            Place::Resting => {
                self.unlink_from_level(id, &order);
                if order.shown > 0 {
                    let change = BookChange::Delete { reference: order.reference };
                    sink(Event::Book { symbol: order.symbol, change });
                }
            }
        }
        let (owner, leaves, executed) = (order.owner, order.leaves, order.executed);
        self.release(id);
        sink(Event::Ended { order: id, owner, reason, leaves, executed });
    }

    /// Frees the slot of an order that is in no price level.
    fn release(&mut self, id: OrderId) {
        let Some(order) = self.pool.get(id).copied() else { return };
        self.forget_expiry(id, &order);
        if let Some(previous) = order.own.previous.and_then(|previous| self.pool.get_mut(previous)) {
            previous.own.next = order.own.next;
        } else if let Some(first) = self.owners.get_mut(order.owner.0 as usize) {
            *first = order.own.next;
        }
        if let Some(next) = order.own.next.and_then(|next| self.pool.get_mut(next)) {
            next.own.previous = order.own.previous;
        }
        self.pool.remove(id);
    }

    fn forget_expiry(&mut self, id: OrderId, order: &Order) {
        if let Lifetime::GoodTill { expire_ns } = order.lifetime {
            self.expiries.remove(&(expire_ns, id));
        }
    }

    fn link_to_owner(&mut self, id: OrderId, owner: Owner) {
        let index = owner.0 as usize;
        if self.owners.len() <= index {
            self.owners.resize(index + 1, None);
        }
        let Some(first) = self.owners.get_mut(index) else { return };
        let next = first.replace(id);
        if let Some(order) = self.pool.get_mut(id) {
            order.own.next = next;
        }
        if let Some(next) = next.and_then(|next| self.pool.get_mut(next)) {
            next.own.previous = Some(id);
        }
    }

    fn unlink_from_level(&mut self, id: OrderId, order: &Order) {
        let Some(price_e8) = order.kind.limit_e8() else { return };
        let Some(book) = self.books.get_mut(order.symbol.0 as usize) else { return };
        let side = &mut book.sides[order.side.index()];
        let level = side.level_mut(price_e8);
        let queue = if order.display == Display::Hidden { &mut level.hidden } else { &mut level.displayed };
        self.pool.unlink(queue, id);
        if level.is_empty() {
            side.remove(price_e8);
        }
    }

    /// Returns the first order in line on a side, with its price.
    fn first_of(&self, symbol: SymbolIndex, side: OrderSide) -> Option<(i64, OrderId)> {
        let level = self.books.get(symbol.0 as usize)?.sides[side.index()].best()?;
        Some((level.price_e8, level.displayed.first().or(level.hidden.first())?))
    }

    fn queue(&self, queue: Queue) -> impl Iterator<Item = (OrderId, &Order)> + '_ {
        std::iter::successors(queue.first().and_then(|id| Some((id, self.pool.get(id)?))), |(_, order)| {
            let id = order.level.next?;
            Some((id, self.pool.get(id)?))
        })
    }

    // Stops

    /// Returns whether an order is a stop whose price no trade has reached.
    fn is_waiting_stop(&self, order: &Order) -> bool {
        let last_e8 = self.books.get(order.symbol.0 as usize).and_then(|book| book.last_e8);
        match (order.kind.stop_e8(), last_e8) {
            (Some(stop_e8), Some(last_e8)) => match order.side {
                OrderSide::Buy => last_e8 < stop_e8,
                OrderSide::Sell => last_e8 > stop_e8,
            },
            (stop, _) => stop.is_some(),
        }
    }

    fn wait_for_stop(&mut self, id: OrderId) {
        let Some(order) = self.pool.get_mut(id) else { return };
        order.place = Place::Waiting;
        let order = *order;
        if let Some(book) = self.books.get_mut(order.symbol.0 as usize)
            && let Some(stop_e8) = order.kind.stop_e8()
        {
            book.stops[order.side.index()].insert((stop_e8, order.entered, id));
        }
    }

    fn remove_stop(&mut self, id: OrderId, order: &Order) {
        if let Some(book) = self.books.get_mut(order.symbol.0 as usize)
            && let Some(stop_e8) = order.kind.stop_e8()
        {
            book.stops[order.side.index()].remove(&(stop_e8, order.entered, id));
        }
    }

    /// Turns a stop into a market or limit order.
    fn elect(&mut self, id: OrderId, sink: &mut impl FnMut(Event)) {
        let Some(order) = self.pool.get_mut(id) else { return };
        order.place = Place::Incoming;
        order.kind = match order.kind {
            OrderKind::StopLimit { price_e8, .. } => OrderKind::Limit { price_e8 },
            _ => OrderKind::Market,
        };
        sink(Event::Elected { order: id, owner: order.owner });
    }

    fn note_trade(&mut self, symbol: SymbolIndex, price_e8: i64) {
        if let Some(book) = self.books.get_mut(symbol.0 as usize) {
            book.last_e8 = Some(price_e8);
            // The stops that this trade elects enter only after the order that is trading is finished.
            let reached = [
                (Bound::Unbounded, Bound::Included((price_e8, u64::MAX, OrderId::LAST))),
                (Bound::Included((price_e8, 0, OrderId::FIRST)), Bound::Unbounded),
            ];
            for (stops, range) in book.stops.iter_mut().zip(reached) {
                while let Some(first) = stops.range(range).next().copied() {
                    stops.remove(&first);
                    self.elected.push((first.1, first.2));
                }
            }
        }
    }

    /// Enters the stops that trades elected, until no more are elected.
    fn settle(&mut self, sink: &mut impl FnMut(Event)) {
        let mut round = std::mem::take(&mut self.round);
        loop {
            if self.elected.is_empty() {
                break;
            }
            self.elected.sort_unstable();
            round.clear();
            round.extend(self.elected.drain(..).map(|(_, id)| id));
            for id in round.iter().copied() {
                self.elect(id, sink);
            }
            for id in round.iter().copied() {
                self.enter(id, 0, sink);
            }
        }
        round.clear();
        self.round = round;
    }
}

/// Returns whether an order with this side and limit may trade at a price.
fn reaches(side: OrderSide, limit_e8: Option<i64>, price_e8: i64) -> bool {
    limit_e8.is_none_or(|limit_e8| match side {
        OrderSide::Buy => limit_e8 >= price_e8,
        OrderSide::Sell => limit_e8 <= price_e8,
    })
}

/// Returns whether an incoming order stops at an order of its owner.
const fn blocks_what_is_behind(rule: SelfTrade) -> bool {
    matches!(rule, SelfTrade::CancelIncoming | SelfTrade::CancelBoth | SelfTrade::DecrementBoth)
}

fn view(order: &Order) -> WorkingOrder {
    WorkingOrder {
        owner: order.owner,
        symbol: order.symbol,
        side: order.side,
        kind: order.kind,
        quantity: order.quantity,
        executed: order.executed,
        leaves: order.leaves,
        displayed: order.shown,
        display: order.display,
        lifetime: order.lifetime,
    }
}
