//! Nasdaq: MoldUDP64 with datagram requests, and GLIMPSE over SoupBinTCP for snapshots.

mod glimpse;
mod moldudp64;

pub(crate) use glimpse::{Glimpse, SNAPSHOTS};
pub use moldudp64::MoldUdp64;
