//! London's MITCH: units with a market data group, the replay channel for missed messages, and the recovery channel for snapshots.
//!
//! | | replay channel | recovery channel |
//! | --- | --- | --- |
//! | packets | units without a group, number 0; replayed units have their own | units without a group, number 0 |
//! | login | user and password | the same |
//! | heartbeats | both sides, after 1 s without a packet; dead after 5 s | the same |
//! | request | up to 1,000 messages, answered over the connection; 100/s | a snapshot of the whole group |
//!
//! The layouts and statuses agree with two other implementations. The limits and times are ours.

mod connection;
mod recovery;
mod replay;
mod unit;

pub(crate) use recovery::SNAPSHOTS;
pub(crate) use replay::REQUESTS;
pub use unit::MitchUnit;

#[cfg(test)]
pub(crate) use replay::STATUSES;
