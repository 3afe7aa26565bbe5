//! IEX: the transport IEX-TP and the feeds TOPS (top of book) and DEEP (price levels).

pub mod deep10;
pub mod deep_plus10;
pub mod tops16;
pub mod tp;
