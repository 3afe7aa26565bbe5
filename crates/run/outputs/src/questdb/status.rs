//! The status of the QuestDB output.

use std::ops::Range;

/// The counters of the QuestDB output.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QuestDbStatus {
    /// Whether the server accepted the last request.
    pub is_connected: bool,
    /// Rows acknowledged by the server, including rows sent again.
    pub rows: u64,
    /// How many of them came from the journal.
    pub rows_again: u64,
    /// Queued rows of the ring.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Rows without room in the queue. If there is a journal, they are sent from it later.
    pub overflowed: u64,
    /// Rows that the server rejected, and records that cannot become rows.
    pub refused: u64,
    /// Rows lost: without room and without a journal, or unsent at the end.
    pub lost: u64,
    /// Requests acknowledged.
    pub requests: u64,
    /// Failed requests, each of which was retried or rejected.
    pub failures: u64,
    /// How many times the server accepted records again after a failure.
    pub reconnects: u64,
    /// The last error.
    pub error: Option<String>,
    /// Events whose records must still be sent from the journal.
    pub to_send_again: Option<Range<u64>>,
    /// The next event to send from the journal, and the end of the range.
    pub sending_again: Option<(u64, u64)>,
    /// How many times sending from the journal was completed.
    pub sent_again: u64,
    /// Events whose records could not be sent again because the journal was unreadable.
    pub unreadable: u64,
    /// Events in the ring that are not processed yet.
    pub ring_lag: usize,
}
