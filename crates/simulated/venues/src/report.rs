//! Counters of the venues: for people, and for tests that compare injected faults with detected ones.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tapeworks_generator::live::LiveVenueReport;
use tapeworks_session::Refusal;
use tapeworks_session::snapshot::SnapshotEnd;

/// Retransmission counters of one venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetransmissionReport {
    /// Requests received.
    pub requests: u64,
    /// Answers sent.
    pub answers: u64,
    /// Number of messages in them.
    pub messages: u64,
    /// Answers that were lost, as configured.
    pub lost: u64,
    /// Answers that were late or otherwise wrong, as configured.
    pub wrong: u64,
    /// Malformed requests.
    pub malformed: u64,
    /// Requests for an unknown session.
    pub unknown_session: u64,
    /// Requests for messages that had not been sent yet.
    pub not_sent: u64,
    /// Requests for messages that are no longer kept.
    pub not_kept: u64,
    /// Answers that the kernel refused.
    pub refused_by_kernel: u64,
}

/// Snapshot counters of one venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotReport {
    /// Connections accepted.
    pub connections: u64,
    /// Complete snapshots sent.
    pub served: u64,
    /// Number of messages in them, not counting the ends.
    pub messages: u64,
    /// Deliberately wrong snapshots: see [`SnapshotFaults`](crate::SnapshotFaults).
    pub wrong: u64,
    /// Logins rejected.
    pub rejected: u64,
    /// Clients that disconnected or failed before receiving the complete snapshot.
    pub left: u64,
    /// Clients that sent an invalid packet.
    pub malformed: u64,
    /// Clients that were too slow.
    pub timed_out: u64,
    /// Connections closed because there were too many.
    pub refused: u64,
    /// Refreshes that were not answered because they need more packets than can be numbered.
    pub unanswered: u64,
}

/// Counters of one venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueReport {
    /// Its name.
    pub name: String,
    /// Its messages, sessions and lines.
    pub live: LiveVenueReport,
    /// Packets that the kernel refused, by line. They are counted as sent too.
    pub refused_by_kernel: Vec<u64>,
    /// Retransmission.
    pub retransmission: RetransmissionReport,
    /// Snapshots.
    pub snapshot: SnapshotReport,
}

/// Counters of the venues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The start, in nanoseconds since 1970-01-01 00:00 UTC.
    pub start_utc_ns: u64,
    /// Time from the start to the last message, in nanoseconds.
    pub elapsed_ns: u64,
    /// Total messages of all venues.
    pub messages: u64,
    /// The longest time between a message's due time and its creation, in nanoseconds.
    pub worst_late_ns: u64,
    /// The venues, in the order of the configuration.
    pub venues: Vec<VenueReport>,
}

impl Report {
    /// Returns messages per second, from the start to the last message.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.messages as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    /// Returns the report as JSON, the contents of the file `injected`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "start_utc_ns": self.start_utc_ns,
            "elapsed_ns": self.elapsed_ns,
            "messages": self.messages,
            "messages_per_second": self.rate().round(),
            "worst_late_ns": self.worst_late_ns,
            "venues": self.venues.iter().map(VenueReport::to_json).collect::<Vec<_>>(),
        })
    }
}

impl VenueReport {
    pub(crate) fn to_json(&self) -> Value {
        let lines = self.live.lines.iter().zip(&self.refused_by_kernel).zip(["A", "B"]);
        let (answered, served) = (&self.retransmission, &self.snapshot);
        json!({
            "name": self.name,
            "kind": self.live.kind.name(),
            "messages": self.live.messages,
            "packets": self.live.packets,
            "lost_messages": self.live.lost_messages,
            "silences": self.live.silences,
            "resets": self.live.resets,
            "nonsense": self.live.nonsense.messages,
            "sessions": self.live.sessions.iter().map(|session| json!({
                "session": session.session.login_name().as_str().unwrap_or_default(),
                "number": session.number,
                "messages": session.messages,
            })).collect::<Vec<_>>(),
            "lines": lines.map(|((line, refused), name)| json!({
                "line": name,
                "sent_packets": line.packets,
                "sent_messages": line.messages,
                "heartbeats": line.heartbeats,
                "ends_of_session": line.ends_of_session,
                "dropped_packets": line.injected.dropped_packets,
                "dropped_messages": line.injected.dropped_messages,
                "duplicated_packets": line.injected.duplicated_packets,
                "duplicated_messages": line.injected.duplicated_messages,
                "reordered_packets": line.injected.reordered_packets,
                "late_copies": line.injected.late_copies,
                "refused_by_kernel": refused,
            })).collect::<Vec<_>>(),
            "retransmission": {
                "requests": answered.requests,
                "answers": answered.answers,
                "messages": answered.messages,
                "lost": answered.lost,
                "wrong": answered.wrong,
                "malformed": answered.malformed,
                "unknown_session": answered.unknown_session,
                "not_sent": answered.not_sent,
                "not_kept": answered.not_kept,
                "refused_by_kernel": answered.refused_by_kernel,
            },
            "snapshot": {
                "connections": served.connections,
                "served": served.served,
                "messages": served.messages,
                "wrong": served.wrong,
                "rejected": served.rejected,
                "left": served.left,
                "malformed": served.malformed,
                "timed_out": served.timed_out,
                "refused": served.refused,
                "unanswered": served.unanswered,
            },
        })
    }
}

/// The server counters of one venue, while the servers run.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) answered_messages: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) wrong: AtomicU64,
    pub(crate) refused_by_kernel: AtomicU64,
    malformed_requests: AtomicU64,
    unknown_session: AtomicU64,
    not_sent: AtomicU64,
    not_kept: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) snapshot_messages: AtomicU64,
    pub(crate) snapshot_unanswered: AtomicU64,
    pub(crate) wrong_snapshots: AtomicU64,
    served: AtomicU64,
    rejected: AtomicU64,
    left: AtomicU64,
    malformed_clients: AtomicU64,
    timed_out: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(crate) fn refuse(&self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::UnknownSession => &self.unknown_session,
            Refusal::NotSent => &self.not_sent,
            Refusal::NotKept => &self.not_kept,
            _ => &self.malformed_requests,
        };
        add(counter, 1);
    }

    pub(crate) fn end(&self, end: SnapshotEnd) {
        let counter = match end {
            SnapshotEnd::Served => &self.served,
            SnapshotEnd::Rejected => &self.rejected,
            SnapshotEnd::Malformed => &self.malformed_clients,
            SnapshotEnd::TimedOut => &self.timed_out,
            _ => &self.left,
        };
        add(counter, 1);
    }

    pub(crate) fn retransmission(&self) -> RetransmissionReport {
        RetransmissionReport {
            requests: get(&self.requests),
            answers: get(&self.answers),
            messages: get(&self.answered_messages),
            lost: get(&self.lost),
            wrong: get(&self.wrong),
            malformed: get(&self.malformed_requests),
            unknown_session: get(&self.unknown_session),
            not_sent: get(&self.not_sent),
            not_kept: get(&self.not_kept),
            refused_by_kernel: get(&self.refused_by_kernel),
        }
    }

    pub(crate) fn snapshot(&self) -> SnapshotReport {
        SnapshotReport {
            connections: get(&self.connections),
            served: get(&self.served),
            messages: get(&self.snapshot_messages),
            wrong: get(&self.wrong_snapshots),
            rejected: get(&self.rejected),
            left: get(&self.left),
            malformed: get(&self.malformed_clients),
            timed_out: get(&self.timed_out),
            refused: get(&self.refused),
            unanswered: get(&self.snapshot_unanswered),
        }
    }
}
