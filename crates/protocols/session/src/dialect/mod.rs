//! How a venue's folder describes its connections, in types that know no venue.
//!
//! | row | has | behaves as | used by |
//! | --- | --- | --- | --- |
//! | [`Connection`] | framing, login, heartbeat | functions | both below |
//! | [`RequestRules`] | limits and times | [`RequestDialect`] | [`requests`](crate::requests) |
//! | [`SnapshotRules`] | flow and times | [`SnapshotDialect`] | [`snapshot`](crate::snapshot) |
//!
//! A dialect knows bytes. Timers, queues, quotas and retries belong to the machines that use it. The table in `table.rs`
//! selects the row of a [`RequestProtocol`](crate::protocols::RequestProtocol) or a
//! [`SnapshotProtocol`](crate::protocols::SnapshotProtocol).
//!
//! Cost: a virtual call per message. Requests and snapshots are not on the hot path.

mod connection;
mod requests;
mod snapshots;

pub use connection::SnapshotLogin;
pub(crate) use connection::{Asked, Connection, LoginLimits, Malformed, PacketReader, each_block, padded};
pub use requests::{DayTime, RequestLogin, RequestStatus, ServerLimits};
pub(crate) use requests::{Heard, RequestAsked, RequestDialect, RequestRules, Statuses, Taken};
pub(crate) use snapshots::{
    Answer, BLOCK_BYTES, Conversation, Flow, Input, SnapshotDialect, SnapshotRules, State, Step,
};
pub use snapshots::{Fetched, Image, SnapshotFailure};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
