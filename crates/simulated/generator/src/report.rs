//! Counters of a generated session.

use crate::generator::Generated;
use crate::scenario::{Scenario, VenueKind};

/// One millisecond in nanoseconds.
const MILLISECOND_NS: u64 = 1_000_000;

/// The report of a generated session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Total messages of all venues.
    pub messages: u64,
    /// Packets written, including heartbeats and duplicates; 0 for a raw file.
    pub packets: u64,
    /// Heartbeats among the packets.
    pub heartbeats: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Time of the first message, in nanoseconds since 1970-01-01 00:00 UTC.
    pub first_ns: u64,
    /// Time of the last message, in the same unit.
    pub last_ns: u64,
    /// Maximum number of messages that all venues together made in one clock millisecond.
    pub peak_per_ms: u64,
    /// The venues, in the scenario's order.
    pub venues: Vec<VenueReport>,
}

/// Counters of one venue and of the faults of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueReport {
    /// The market.
    pub kind: VenueKind,
    /// Number of messages that it made.
    pub messages: u64,
    /// Number of messages by type.
    by_type: Box<[u64; 256]>,
    /// The faults injected on lines A and B.
    pub injected: [Injected; 2],
    /// Messages that arrived on no line.
    pub lost_messages: u64,
}

/// The faults of one line of one venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Injected {
    /// Packets that were dropped.
    pub dropped_packets: u64,
    /// Number of messages in them.
    pub dropped_messages: u64,
    /// Packets that were sent twice.
    pub duplicated_packets: u64,
    /// Number of messages in them, counted once.
    pub duplicated_messages: u64,
    /// Packets that were sent after their successor.
    pub reordered_packets: u64,
    /// Packets with a second copy that was sent late.
    pub late_copies: u64,
}

impl VenueReport {
    pub(crate) fn new(kind: VenueKind) -> Self {
        Self {
            kind,
            messages: 0,
            by_type: Box::new([0; 256]),
            injected: [Injected::default(); 2],
            lost_messages: 0,
        }
    }

    /// Iterates over the message types that occurred, by letter, with their counts.
    pub fn types(&self) -> impl Iterator<Item = (u8, u64)> {
        (0..=u8::MAX).zip(self.by_type.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Returns how often a message type occurred.
    #[must_use]
    pub fn count_of(&self, message_type: u8) -> u64 {
        self.by_type[usize::from(message_type)]
    }
}

/// Counts messages as they are made.
#[derive(Debug, Clone)]
pub(crate) struct Counter {
    pub(crate) report: Report,
    millisecond: u64,
    in_millisecond: u64,
}

impl Counter {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let venues = scenario.venues.iter().map(|venue| VenueReport::new(venue.kind)).collect();
        let report = Report {
            messages: 0,
            packets: 0,
            heartbeats: 0,
            bytes: 0,
            first_ns: 0,
            last_ns: 0,
            peak_per_ms: 0,
            venues,
        };
        Self { report, millisecond: 0, in_millisecond: 0 }
    }

    #[inline]
    pub(crate) fn count(&mut self, generated: &Generated) {
        let report = &mut self.report;
        if report.messages == 0 {
            report.first_ns = generated.timestamp_ns;
        }
        report.messages += 1;
        report.last_ns = generated.timestamp_ns;
        if let Some(venue) = report.venues.get_mut(generated.venue) {
            venue.messages += 1;
            venue.by_type[usize::from(generated.message_type)] += 1;
        }
        let millisecond = generated.timestamp_ns / MILLISECOND_NS;
        if millisecond != self.millisecond {
            self.millisecond = millisecond;
            self.in_millisecond = 0;
        }
        self.in_millisecond += 1;
        report.peak_per_ms = report.peak_per_ms.max(self.in_millisecond);
    }
}
