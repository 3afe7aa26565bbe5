//! Nasdaq: TotalView-ITCH 5.0 (Nasdaq, BX and PSX alike) and what carries it.

pub mod glimpse50;
pub mod itch50;
pub mod moldudp64;
pub mod soupbintcp;
