//! Cboe: sequenced units.

mod unit;

pub use unit::CboeUnit;
