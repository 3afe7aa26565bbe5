//! Request and snapshot protocols. Each transport declares the ones it uses.

/// How requests are written.
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

/// How snapshots are requested and framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotProtocol {
    /// Nasdaq's, over SoupBinTCP.
    Glimpse,
    /// Cboe's.
    Spin,
    /// NYSE's: requests over TCP, answers to a multicast group.
    Refresh,
    /// MITCH's recovery channel.
    Mitch,
    /// MEMX's.
    Memx,
}
