//! London's MITCH: units with a market data group.

mod unit;

pub use unit::MitchUnit;
