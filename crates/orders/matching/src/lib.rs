//! A price-time matching engine, and an exchange's order gateways, without sockets, clocks or threads.
//!
//! | | |
//! | --- | --- |
//! | [`MatchingEngine`] | matches orders of many symbols and passes each [`Event`] to a sink |
//! | [`orders::OrderExchange`] | a venue around it that accepts orders as Millennium's native messages or as OUCH |
//! | [`orders::OrderFaults`] | makes that venue misbehave, by seed |
//!
//! None of them has a clock, a socket or a thread: the caller passes in bytes and times. `tapeworks-generator` publishes the market data of
//! such a venue, and `tapeworks-venues` runs it on sockets.
//!
//! ```
//! use tapeworks_matching::{
//!     Display, Event, Lifetime, MatchingEngine, MatchingOptions, NewOrder, OrderKind, OrderSide, Owner, Refusal, SelfTrade, SymbolIndex,
//!     SymbolRules,
//! };
//!
//! # fn main() -> Result<(), Refusal> {
//! let rules = SymbolRules {
//!     tick_e8: 1_000_000,
//!     lowest_price_e8: 1_000_000,
//!     highest_price_e8: 100_000_000_000,
//!     most_quantity: 1_000_000,
//! };
//! let mut engine = MatchingEngine::new(&MatchingOptions { symbols: vec![rules], most_orders: 1_000 });
//! let order = |owner, side| NewOrder {
//!     owner: Owner(owner),
//!     symbol: SymbolIndex(0),
//!     side,
//!     kind: OrderKind::Limit { price_e8: 10_050_000_000 },
//!     quantity: 100,
//!     display: Display::Full,
//!     minimum: 0,
//!     lifetime: Lifetime::Day,
//!     is_passive_only: false,
//!     self_trade: SelfTrade::Allow,
//! };
//! let mut traded = 0;
//! let mut sink = |event| {
//!     if let Event::Trade { quantity, .. } = event {
//!         traded += quantity;
//!     }
//! };
//! engine.submit(&order(1, OrderSide::Sell), &mut sink)?;
//! engine.submit(&order(2, OrderSide::Buy), &mut sink)?;
//! assert_eq!((traded, engine.orders()), (100, 0));
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - The same calls produce the same events and the same bytes.
//! - A refused call changes nothing and emits no events.
//! - The number of orders is bounded by [`MatchingOptions::most_orders`]; an order beyond it is refused.
//!
//! # Not guaranteed
//!
//! - Any real exchange's rules beyond price and time priority: there are no auctions, pegged orders or requests for quotes, and the
//!   reject codes are its own.

mod engine;
pub mod orders;

pub use engine::{
    BookChange, Display, EndReason, Event, Fill, Lifetime, MatchingEngine, MatchingOptions, NewOrder,
    OrderId, OrderKind, OrderSide, Owner, Refusal, Replacement, SelfTrade, SymbolIndex, SymbolRules,
    WorkingOrder,
};

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
