//! Counters of a channel and its lines, and the report of a recovery.

use tapeworks_time::Nanos;

use crate::recovery::GapReason;

/// Recoveries of at least this many messages or ns are reported.
const LONG_MESSAGES: u64 = 1_000;
const LONG_NS: u64 = 1_000_000_000;

/// How useful an answer to a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usefulness {
    /// It brings missing messages, or reports that the server does not have them.
    Needed,
    /// None of its messages is both missing and requested.
    Unneeded,
    /// It belongs to another session.
    OtherSession,
    /// It is damaged, or contains a message that cannot be read.
    Malformed,
}

/// Counters of one line.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LineCounters {
    /// Packets, heartbeats included.
    pub packets: u64,
    /// Messages in them, duplicates included.
    pub messages: u64,
    /// Messages that this line brought first.
    pub won: u64,
    /// Duplicates: messages that another packet brought first.
    pub duplicate: u64,
    /// Messages that came after their gap was given up.
    pub late: u64,
    /// Messages that this line skipped and has not brought since.
    pub lost: u64,
    /// Messages that this line brought after later ones. They do not count as lost.
    pub reordered: u64,
    /// Messages that this line brought more than once.
    pub repeated: u64,
    /// Times that this line fell silent.
    pub silences: u64,
    /// Damaged packets: the header cannot be read, or the messages do not match it.
    pub malformed: u64,
    /// Packets of earlier sessions, and answers of another session.
    pub of_past_sessions: u64,
    /// Packets of a session of another feed on the same transport.
    pub of_other_feeds: u64,
    /// Stray packets: their number is implausibly far ahead ([`MOST_AHEAD`](crate::sequence::MOST_AHEAD)) or contradicts content
    /// already delivered, they belong to another session while the current one continued, or they followed a supposed sequence
    /// gap whose messages a line still brought afterwards.
    pub implausible: u64,
    /// Answers without any message that was both requested and missing.
    pub unrequested: u64,
}

/// Counters of a channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ArbiterCounters {
    /// Messages delivered, each once.
    pub messages: u64,
    /// Sequence gaps that both lines together left open.
    pub gaps_opened: u64,
    /// Gaps that the lines filled without a request.
    pub filled_by_lines: u64,
    /// Gaps that were filled after a request.
    pub filled_by_retransmission: u64,
    /// Requests for messages.
    pub requests: u64,
    /// Requests repeated after a timeout.
    pub repeated_requests: u64,
    /// Missing messages that answers brought.
    pub recovered: u64,
    /// Recoveries of at least 1,000 messages or at least a second: see [`Arbiter::last_recovery`](super::Arbiter::last_recovery).
    pub long_recoveries: u64,
    /// Sequence gaps not requested because they are longer than
    /// [`RetransmissionOptions::limit_messages`](super::RetransmissionOptions::limit_messages).
    pub too_long: u64,
    /// Sequence gaps given up.
    pub gaps: u64,
    /// Gaps given up, by [`GapReason`]: see [`ArbiterCounters::gaps_of`].
    pub gaps_by: [u64; GapReason::ALL.len()],
    /// Messages in the gaps given up.
    pub missing: u64,
    /// Messages of given-up sequence gaps that arrived late.
    pub late: u64,
    /// Times that the arbiter held too many bytes or had too many open gaps, and gave up a gap, a snapshot, or a waiting session.
    pub overflows: u64,
    /// Changes from one session to another.
    pub session_changes: u64,
    /// Times that the numbers restarted, or jumped, without a new session.
    pub sequence_resets: u64,
    /// Announced ends of session.
    pub ends_of_session: u64,
    /// Times that the channel fell silent.
    pub silences: u64,
}

impl LineCounters {
    /// Counts an answer that was discarded before it reached the arbiter.
    pub const fn count_discarded(&mut self, usefulness: Usefulness) {
        match usefulness {
            Usefulness::Needed => {}
            Usefulness::Unneeded => self.unrequested += 1,
            Usefulness::OtherSession => self.of_past_sessions += 1,
            Usefulness::Malformed => self.malformed += 1,
        }
    }

    /// Adds answers that another instance counted with [`LineCounters::count_discarded`].
    pub const fn add_discarded(&mut self, discarded: &Self) {
        self.unrequested += discarded.unrequested;
        self.of_past_sessions += discarded.of_past_sessions;
        self.malformed += discarded.malformed;
    }
}

impl ArbiterCounters {
    /// Returns how many sequence gaps were given up for `reason`. Over all reasons they add up to [`ArbiterCounters::gaps`].
    pub fn gaps_of(&self, reason: GapReason) -> u64 {
        self.gaps_by.get(reason as usize).copied().unwrap_or_default()
    }
}

/// How the recovery of a sequence gap ended.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryReport {
    /// The first number that was missing.
    pub first: u64,
    /// The number after the last one that was missing.
    pub end: u64,
    /// When the gap was first requested.
    pub began: Nanos,
    /// When the gap was filled or given up.
    pub ended: Nanos,
    /// Missing messages that answers brought.
    pub recovered: u64,
    /// Requests sent.
    pub requests: u64,
    /// Whether the gap was filled.
    pub is_complete: bool,
}

impl RecoveryReport {
    /// Returns how long the recovery took, in ns.
    pub const fn duration_ns(&self) -> u64 {
        self.ended.since(self.began)
    }

    pub(super) const fn is_long(&self) -> bool {
        self.end.saturating_sub(self.first) >= LONG_MESSAGES || self.duration_ns() >= LONG_NS
    }
}
