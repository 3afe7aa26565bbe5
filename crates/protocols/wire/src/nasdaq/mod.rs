//! Nasdaq: TotalView-ITCH 5.0 (also for BX and PSX) and its transports, OUCH 5.0 (orders).

pub mod glimpse50;
pub mod itch50;
pub mod moldudp64;
pub mod ouch50;
pub mod soupbintcp;
