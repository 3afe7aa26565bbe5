//! NYSE: Pillar packets, the request server for missed messages, and refreshes for snapshots, which answer on a group.
//!
//! | | request server |
//! | --- | --- |
//! | packets | Pillar packets |
//! | login | none; each request names its source, product and channel |
//! | heartbeats | server each minute; the client answers within 5 s |
//! | silence | 125 s: two server heartbeats and the time for one answer |
//! | request | up to 1,000 messages, answered to a group; 5,000/day |
//!
//! The times and limits are those of public documents as others quote them; none has been verified on real packets. The limit
//! of 100 requests a second and the silence limit are ours.

mod packets;
mod pillar;
mod refresh;
mod requests;

pub use pillar::Pillar;
pub(crate) use refresh::{RefreshClient, RefreshServer, SNAPSHOTS};
pub(crate) use requests::REQUESTS;

#[cfg(test)]
pub(crate) use requests::STATUSES;
