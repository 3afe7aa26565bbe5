//! Request and snapshot protocols. Each transport declares the protocols that it uses.

/// The protocol for requesting messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestProtocol {
    /// Cboe's Gap Request Proxy.
    Grp,
    /// NYSE's request server.
    Pillar,
    /// MITCH's replay channel.
    Mitch,
    /// MEMX's gap fill.
    Memx,
}

impl RequestProtocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Grp, Self::Pillar, Self::Mitch, Self::Memx];
}

/// The protocol for requesting and framing snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotProtocol {
    /// Nasdaq's GLIMPSE, over SoupBinTCP.
    Glimpse,
    /// Cboe's Spin server.
    Spin,
    /// NYSE's refresh: requests over TCP, answers to a multicast group.
    Refresh,
    /// MITCH's recovery channel.
    Mitch,
    /// MEMX's snapshots.
    Memx,
}

impl SnapshotProtocol {
    /// All protocols.
    pub const ALL: [Self; 5] = [Self::Glimpse, Self::Spin, Self::Refresh, Self::Mitch, Self::Memx];
}
