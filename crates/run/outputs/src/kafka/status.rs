//! The status of the Kafka output.

/// The counters of the Kafka output.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KafkaStatus {
    /// Whether the brokers accepted the last transaction.
    pub is_connected: bool,
    /// Records in committed transactions, since the plant's start.
    pub records: u64,
    /// Their bytes, before compression.
    pub bytes: u64,
    /// Transactions committed, including those with only a position.
    pub transactions: u64,
    /// Aborted transactions with records; their records are sent again from the position.
    pub aborted: u64,
    /// Records in the open transaction.
    pub waiting: u64,
    /// How many times the output restarted from the position in Kafka after a failure.
    pub failures: u64,
    /// Connections made.
    pub connects: u64,
    /// Events without records in Kafka because the journal does not have them: removed to make room, or lost by the journal.
    pub lost_events: u64,
    /// The number of the first event whose records are not in Kafka yet, once known.
    pub position: Option<u64>,
    /// The latest receive time of the events before it, in ns.
    pub position_ns: u64,
    /// The next event to read from the journal.
    pub read: u64,
    /// Events that the plant has published but whose records are not in Kafka.
    pub lag_events: u64,
    /// How far Kafka lags behind the plant, in ns.
    pub lag_ns: u64,
    /// The last error, until a transaction is committed.
    pub error: Option<String>,
}

impl KafkaStatus {
    /// Returns the status with the lag behind a plant that has published this many events, at this time.
    #[must_use]
    pub fn behind(mut self, events: u64, now_ns: u64) -> Self {
        self.lag_events = events.saturating_sub(self.position.unwrap_or_default());
        self.lag_ns = match self.lag_events {
            0 => 0,
            _ if self.position_ns == 0 => 0,
            _ => now_ns.saturating_sub(self.position_ns),
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_lags_by_the_events_that_are_not_in_kafka() {
        let status = KafkaStatus { position: Some(7), position_ns: 100, ..KafkaStatus::default() };
        let lag = |events| {
            let status = status.clone().behind(events, 150);
            (status.lag_events, status.lag_ns)
        };
        assert_eq!((lag(9), lag(7), lag(5)), ((2, 50), (0, 0), (0, 0)));
        let unknown = KafkaStatus::default().behind(9, 150);
        assert_eq!((unknown.lag_events, unknown.lag_ns), (9, 0), "a time that is not known is none");
    }
}
