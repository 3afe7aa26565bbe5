//! The status of the output to Aeron.

use std::fmt;
use std::sync::Arc;

/// The counters of the output to Aeron.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AeronStatus {
    /// Whether the media driver takes messages.
    pub is_connected: bool,
    /// Streams that currently have readers.
    pub read_streams: u64,
    /// Streams that have been published on.
    pub streams: u64,
    /// Events and records in published messages.
    pub items: u64,
    /// Messages published.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Events and records of streams without readers.
    pub unread: u64,
    /// Events and records dropped because readers did not keep up.
    pub dropped_slow: u64,
    /// Events and records dropped because the queue for the driver was full.
    pub dropped_full: u64,
    /// Events and records of messages that the driver's client refused.
    pub refused: u64,
    /// Events and records queued for the driver.
    pub waiting: u64,
    /// Connections made to a driver.
    pub connects: u64,
    /// Drivers that were missing, died, or refused a stream.
    pub failures: u64,
    /// Replays started.
    pub replays: u64,
    /// Events and records in them.
    pub replayed: u64,
    /// Replays running now.
    pub running_replays: u64,
    /// Replay requests refused.
    pub refused_replays: u64,
    /// How many of them were connections whose TLS handshake failed.
    pub tls_refused: u64,
    /// Replays that ended incomplete.
    pub failed_replays: u64,
    /// Events in the ring that are not processed yet.
    pub ring_lag: u64,
    /// The last error, until the driver accepts messages again.
    pub error: Option<String>,
}

impl AeronStatus {
    /// Returns how many events and records did not reach the streams although they had, or may have had, readers.
    pub const fn dropped(&self) -> u64 {
        self.dropped_slow.saturating_add(self.dropped_full).saturating_add(self.refused)
    }
}

/// Reads the status of a running output.
#[derive(Clone)]
pub struct AeronHandle(Arc<dyn Fn() -> AeronStatus + Send + Sync>);

impl AeronHandle {
    /// Creates a handle whose status comes from `read`.
    pub fn new(read: impl Fn() -> AeronStatus + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the current status.
    pub fn status(&self) -> AeronStatus {
        (self.0)()
    }
}

impl fmt::Debug for AeronHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}
