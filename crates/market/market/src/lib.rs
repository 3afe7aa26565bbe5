//! Normalized market events, order books, best bid and offer, synthetic NBBO.
//!
//! [`Event`] is the only type that flows through this crate: 64 bytes, one cache line, with DBN's meanings (prices
//! `i64` in 1e-9, nanoseconds UTC, the same action, side and flag values) plus what DBN lacks: the channel's sequence
//! number, the line that delivered it, and gaps.
//!
//! [`BookStage`] applies events to the books of every venue and passes on one [`BookUpdate`] per event; [`NbboStage`]
//! turns those into the best bid and offer across venues. Both are [`tapeworks_stage::Stage`]s, so they compose inline
//! or over a ring.
//!
//! | module | what | cache lines touched per event |
//! | --- | --- | --- |
//! | [`event`] | the event | 1 |
//! | [`book`] | one venue's books: order by order, price levels or quotes | see the module: usually 3 |
//! | [`orders`] | order reference to order | 1, rarely 2 |
//! | [`levels`] | price levels of both sides of every book | 1 or 2 |
//! | [`nbbo`] | best across venues | 1 per venue that quotes the instrument |
//! | [`identifiers`] | ISIN and CUSIP: check digits, conversion between them | none |
//! | [`luld`] | limit up, limit down price bands, and how quotes relate to them | 1 per recomputed NBBO, where a SIP sends bands |
//! | [`quote_conditions`] | which quotes of a SIP's participants are eligible for a national best | none |
//! | [`round_lots`] | round lots by price and date, and for venues that state none | none |
//! | [`sale_conditions`] | statistics that a trade updates: volume, high and low, last | none |

pub mod book;
pub mod conflate;
pub mod event;
pub mod identifiers;
pub mod image;
pub mod instrument;
pub mod levels;
pub mod luld;
mod market;
pub mod nbbo;
mod options;
pub mod orders;
pub mod price;
pub mod quote_conditions;
pub mod round_lots;
pub mod sale_conditions;
pub mod shared;
pub mod state;
pub mod symbology;
pub mod venue;

pub use book::{BookRef, BookStage, BookUpdate, Books, Capacity};
pub use event::{Action, Event, EventKind, Flags, FlagsAndLine, Line, Side};
pub use instrument::{InstrumentId, Instruments, Shard, Symbol};
pub use levels::Level;
pub use market::Market;
pub use nbbo::{Nbbo, NbboStage, NbboUpdate};
pub use options::BookOptions;
pub use price::Price;
pub use venue::{Publisher, Venue};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
