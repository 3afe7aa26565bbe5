//! The status of the output into QuestDB.

use std::ops::Range;

/// The counters of the output into QuestDB.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QuestDbStatus {
    /// Whether the server took the last request.
    pub is_connected: bool,
    /// Rows that the server has acknowledged, those sent again included.
    pub rows: u64,
    /// Of them, rows that came from the journal.
    pub rows_again: u64,
    /// Rows of the ring that wait.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Rows without room in the queue. With a journal they are sent from it later.
    pub overflowed: u64,
    /// Rows that the server refused, and records that no row can be made of.
    pub refused: u64,
    /// Rows that are lost: without room and without a journal, or unsent at the end.
    pub lost: u64,
    /// Requests that were acknowledged.
    pub requests: u64,
    /// Requests that failed, each tried again or refused.
    pub failures: u64,
    /// Times that the server took records again after a failure.
    pub reconnects: u64,
    /// The last error.
    pub error: Option<String>,
    /// Events of which records are still to be sent from the journal, from the first to before the last.
    pub to_send_again: Option<Range<u64>>,
    /// The event at which the sending from the journal is, and where it ends.
    pub sending_again: Option<(u64, u64)>,
    /// Times that records were sent from the journal to the end.
    pub sent_again: u64,
    /// Events of which records were to be sent from the journal, and it could not be read.
    pub unreadable: u64,
    /// Events in the ring that are not taken yet.
    pub ring_lag: usize,
}
