//! MEMX: MEMOIR UDP, gap fills for missed messages, and snapshots, both over MEMX-TCP.
//!
//! | | gap fill | snapshot |
//! | --- | --- | --- |
//! | packets | messages after type and length | the same |
//! | login | a token of user and password; the server's mode is replay | the same; the mode is snapshot |
//! | heartbeats | both sides, after 1 s without a packet; dead after 5 s | the same |
//! | request | up to 1,000 messages, between the begin and the end of a replay; 100/s | all messages of the session that the server starts |
//!
//! The layouts agree with the public definitions of MEMX's order entry. The limits and times are ours.

mod connection;
mod gap_fill;
mod memoir;
mod snapshots;

#[cfg(test)]
pub(crate) use connection::{append_sequenced, begin as begin_by_memx, complete as complete_by_memx};
pub(crate) use gap_fill::REQUESTS;
#[cfg(test)]
pub(crate) use gap_fill::STATUSES;
pub use memoir::Memoir;
pub(crate) use snapshots::SNAPSHOTS;
