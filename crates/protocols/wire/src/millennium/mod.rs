//! Millennium Exchange's protocols: the London Stock Exchange and venues that run the same system.

pub mod mitch;
pub mod native;
pub mod recovery;
pub mod stream;
pub mod unit;
pub mod variant;
