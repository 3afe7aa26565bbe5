//! The status of the output to Aeron.

use std::fmt;
use std::sync::Arc;

/// The counters of the output to Aeron.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AeronStatus {
    /// Whether the media driver takes messages.
    pub is_connected: bool,
    /// Streams that somebody reads now.
    pub read_streams: u64,
    /// Streams that were published on.
    pub streams: u64,
    /// Events and records in published messages.
    pub items: u64,
    /// Messages published.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Events and records of streams that nobody read.
    pub unread: u64,
    /// Events and records that were dropped as readers did not keep up.
    pub dropped_slow: u64,
    /// Events and records that were dropped as the queue for the driver was full.
    pub dropped_full: u64,
    /// Events and records of messages that the driver's client refused.
    pub refused: u64,
    /// Events and records that wait for the driver.
    pub waiting: u64,
    /// Connections to a driver that were made.
    pub connects: u64,
    /// Drivers that were not there, that died, or that refused a stream.
    pub failures: u64,
    /// Replays that were begun.
    pub replays: u64,
    /// Events and records in them.
    pub replayed: u64,
    /// Replays that run now.
    pub running_replays: u64,
    /// Requests for replays that were refused.
    pub refused_replays: u64,
    /// Of them, connections that did not agree on TLS.
    pub tls_refused: u64,
    /// Replays that ended before they were complete.
    pub failed_replays: u64,
    /// Events in the ring that are not taken yet.
    pub ring_lag: u64,
    /// The last error, until the driver takes messages again.
    pub error: Option<String>,
}

impl AeronStatus {
    /// Events and records that no reader got from the streams although there were readers, or might have been.
    pub const fn dropped(&self) -> u64 {
        self.dropped_slow.saturating_add(self.dropped_full).saturating_add(self.refused)
    }
}

/// Reads the status of a running output.
#[derive(Clone)]
pub struct AeronHandle(Arc<dyn Fn() -> AeronStatus + Send + Sync>);

impl AeronHandle {
    /// A handle whose status `read` gives.
    pub fn new(read: impl Fn() -> AeronStatus + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The status now.
    pub fn status(&self) -> AeronStatus {
        (self.0)()
    }
}

impl fmt::Debug for AeronHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}
