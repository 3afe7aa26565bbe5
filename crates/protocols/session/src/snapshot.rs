//! Snapshots: a client that joins during the day gets a venue's state over TCP or, from NYSE, by multicast.
//!
//! | | GLIMPSE | spin | refresh |
//! | --- | --- | --- | --- |
//! | venues | Nasdaq; also the simulated IEX, NYSE and SIPs | Cboe | NYSE |
//! | packets | SoupBinTCP | [sequenced units](tapeworks_wire::cboe::unit), unit 0, number 0 | Pillar: requests over TCP, answers to a group |
//! | login | user, password, and the session, which may be blank | sub-id, user and password | none; each request names its source |
//! | which snapshot | as of the login | the client requests one of those offered | the directory, then each symbol separately |
//! | end | [End of Snapshot](tapeworks_wire::nasdaq::glimpse50): next live number | [`SpinFinished`](tapeworks_wire::cboe::grp::SpinFinished): last included | per symbol: last included |
//! | silence | 15 seconds | 5 seconds | 125 seconds |
//!
//! | | MITCH recovery channel | MEMX snapshot |
//! | --- | --- | --- |
//! | venues | London | MEMX |
//! | packets | units without a group, number 0 | MEMX-TCP |
//! | login | user and password | a token of user and password |
//! | which snapshot | the client requests the whole group | the client requests all messages of the session |
//! | end | [`SnapshotComplete`](tapeworks_wire::millennium::recovery::SnapshotComplete): last included | [`memx::SnapshotComplete`](tapeworks_wire::memx::depth13::SnapshotComplete): last included |
//! | silence | 5 seconds | 5 seconds |
//!
//! The end connects the snapshot to the live messages: it has the number of the first live message that the snapshot
//! does not include (GLIMPSE), or of the last that it does (the others). Each packet of a refresh also contains the
//! packet count of its symbol. MEMX's end is followed by the end of the replay.
//!
//! Between the start and the end are messages of the venue's own protocol. An [`Image`] has them ready to send.
//!
//! [`SnapshotServer`] is the server's end of one client's connection, [`SnapshotClient`] the client's end: bytes and times in, bytes out.
//!
//! Cost: an image is built once. It adds 2 or 3 bytes to each message (GLIMPSE), or 8 bytes per block of about 1,400
//! (spin). Connections share the image and copy nothing. A client keeps one incomplete packet.

mod client;
mod server;

pub use crate::dialect::connection::LoginLimits;
pub use crate::dialect::snapshots::{Fetched, Image, SnapshotFailure, SnapshotLogin};
pub use crate::protocols::SnapshotProtocol;
pub use client::SnapshotClient;
pub use server::{SnapshotEnd, SnapshotServer};

impl SnapshotProtocol {
    /// Returns what the venue's login consists of.
    #[must_use]
    pub const fn login_limits(self) -> LoginLimits {
        self.rules().connection.limits
    }

    /// Returns the silence after which a side is considered dead, in ns.
    #[must_use]
    pub const fn silence_ns(self) -> u64 {
        self.rules().silence_ns
    }
}

impl Image {
    /// Returns the protocol that frames it.
    #[must_use]
    pub const fn protocol(&self) -> SnapshotProtocol {
        SnapshotProtocol::of(self.session.transport())
    }

    /// Appends a message and applies `change` to the copy.
    pub fn put(&mut self, message: &[u8], change: impl FnOnce(&mut [u8])) {
        self.protocol().rules().dialect.frame(self, message);
        let start = self.packets.len() - message.len();
        change(&mut self.packets[start..]);
        self.messages += 1;
    }

    /// Appends the end of the snapshot and of its session or replay, unless the snapshot is endless.
    pub fn finish(&mut self) {
        if !self.is_endless {
            self.protocol().rules().dialect.finish(self);
        }
    }
}

#[cfg(test)]
mod tests;
