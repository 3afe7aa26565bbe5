//! How a venue's folder describes its connections, in types that know no venue.
//!
//! | row | has | used by |
//! | --- | --- | --- |
//! | [`Connection`](connection::Connection) | framing, login and heartbeat | both below |
//! | [`RequestRules`](requests::RequestRules) | limits, times, and a [`RequestDialect`](requests::RequestDialect) | [`requests`](crate::requests) |
//! | [`SnapshotRules`](snapshots::SnapshotRules) | order, times, and a [`SnapshotDialect`](snapshots::SnapshotDialect) | [`snapshot`](crate::snapshot) |
//!
//! A dialect knows bytes. Timers, queues, quotas and retries belong to the machines that use it, and `table.rs` selects the
//! row of a protocol.
//!
//! Cost: a virtual call per message. Requests and snapshots are not on the hot path.

pub(crate) mod connection;
pub(crate) mod requests;
pub(crate) mod snapshots;
