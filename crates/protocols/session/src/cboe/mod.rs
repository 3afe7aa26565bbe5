//! Cboe: sequenced units, the Gap Request Proxy for missed messages, and the Spin server for snapshots.
//!
//! | | Gap Request Proxy | Spin server |
//! | --- | --- | --- |
//! | packets | sequenced units, unit 0, number 0 | the same |
//! | login | sub-id, user and password | the same |
//! | heartbeats | both sides, after 1 s without a packet; dead after 5 s | the same |
//! | request | up to 100 messages, answered to a group; 320/s, 1,500/min, 100,000/day | the spin that is offered each second |
//!
//! The layouts and statuses agree with two other implementations. Times and limits are those of public documents as others
//! quote them; none has been verified on real packets.

mod connection;
mod gap_proxy;
mod spin;
mod unit;

pub(crate) use gap_proxy::REQUESTS;
pub(crate) use spin::SNAPSHOTS;
pub use unit::CboeUnit;

#[cfg(test)]
pub(crate) use gap_proxy::STATUSES;
