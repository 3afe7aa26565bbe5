//! Nasdaq: MoldUDP64 with datagram requests.

mod moldudp64;

pub use moldudp64::MoldUdp64;
