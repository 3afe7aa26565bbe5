//! Counters of a channel and its lines, and the report of a recovery.

use tapeworks_time::Nanos;

use crate::recovery::GapReason;

/// A recovery of so many messages or ns is reported.
const LONG_MESSAGES: u64 = 1_000;
const LONG_NS: u64 = 1_000_000_000;

/// How useful an answer to a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usefulness {
    /// It brings messages that are missing, or reports that the server does not have them.
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
    /// Messages that it brought after later ones: they are not lost.
    pub reordered: u64,
    /// Messages that it brought more than once.
    pub repeated: u64,
    /// Times that it fell silent.
    pub silences: u64,
    /// Damaged packets: the header cannot be read, or the messages are not what it says.
    pub malformed: u64,
    /// Packets of the session before, or answers of another.
    pub of_past_sessions: u64,
    /// Packets of a session of another feed on the same transport.
    pub of_other_feeds: u64,
    /// Packets whose number lies implausibly far ahead ([`MOST_AHEAD`](crate::sequence::MOST_AHEAD)), and those of another session while the one
    /// that is followed went on; and those behind a sequence gap whose messages a line still brought afterwards.
    pub implausible: u64,
    /// Answers of whose messages none was requested, or of which all had come.
    pub unrequested: u64,
}

/// Counters of a channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ArbiterCounters {
    /// Messages handed on, each once.
    pub messages: u64,
    /// Sequence gaps seen in the sequence of both lines.
    pub gaps_opened: u64,
    /// Of them, those that lines filled without a request.
    pub filled_by_lines: u64,
    /// Of them, those that retransmissions filled.
    pub filled_by_retransmission: u64,
    /// Requests for messages.
    pub requests: u64,
    /// Of them, those that timed out and were repeated.
    pub repeated_requests: u64,
    /// Messages that answers brought.
    pub recovered: u64,
    /// Recoveries of a thousand messages or a second, and more: [`Arbiter::last_recovery`](super::Arbiter::last_recovery).
    pub long_recoveries: u64,
    /// Sequence gaps that were not requested because they are longer than [`RetransmissionOptions::limit_messages`](super::RetransmissionOptions::limit_messages).
    pub too_long: u64,
    /// Sequence gaps given up.
    pub gaps: u64,
    /// Of them, by [`GapReason`]: see [`ArbiterCounters::gaps_of`].
    pub gaps_by: [u64; GapReason::ALL.len()],
    /// Messages in them.
    pub missing: u64,
    /// Messages of given-up sequence gaps that came after all.
    pub late: u64,
    /// Sequence gaps given up because too much was held behind them.
    pub overflows: u64,
    /// Sessions that began after another.
    pub session_changes: u64,
    /// Times that the numbers were reset without a new session.
    pub sequence_resets: u64,
    /// Ends of session.
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

    /// Adds the answers that [`LineCounters::count_discarded`] has counted elsewhere.
    pub const fn add_discarded(&mut self, discarded: &Self) {
        self.unrequested += discarded.unrequested;
        self.of_past_sessions += discarded.of_past_sessions;
        self.malformed += discarded.malformed;
    }
}

impl ArbiterCounters {
    /// Sequence gaps given up for `reason`. All reasons together are [`ArbiterCounters::gaps`].
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
    /// The first number behind the gap.
    pub end: u64,
    /// When it was first requested.
    pub began: Nanos,
    /// When it was filled or given up.
    pub ended: Nanos,
    /// Messages that answers brought.
    pub recovered: u64,
    /// Requests sent.
    pub requests: u64,
    /// Whether it was filled.
    pub is_complete: bool,
}

impl RecoveryReport {
    /// How long it took, in ns.
    pub const fn duration_ns(&self) -> u64 {
        self.ended.since(self.began)
    }

    pub(super) const fn is_long(&self) -> bool {
        self.end.saturating_sub(self.first) >= LONG_MESSAGES || self.duration_ns() >= LONG_NS
    }
}
