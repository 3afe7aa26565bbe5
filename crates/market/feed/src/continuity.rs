//! Detects breaks in a channel whose messages carry only nanoseconds, within a second that an earlier message sent. After a break
//! the second is unknown.

use tapeworks_market::Line;

use crate::normaliser::Context;

/// The position after the last message.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct Continuity {
    /// The sequence's next number; [`NONE`] after a snapshot message, which is outside the sequence.
    next: u64,
    state: State,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    OfSequence,
    OfSnapshot,
}

/// The greatest number, which is never expected.
const NONE: u64 = u64::MAX;

impl Default for Continuity {
    fn default() -> Self {
        Self { next: 1, state: State::New }
    }
}

impl Continuity {
    /// Returns whether no message has come yet.
    pub(crate) const fn is_new(&self) -> bool {
        matches!(self.state, State::New)
    }

    /// Returns whether a message is next in sequence, and neither it nor the last one belongs to a snapshot.
    #[inline(always)]
    pub(crate) fn goes_on_at(&self, context: &Context) -> bool {
        context.sequence == self.next && context.line != Line::Snapshot
    }

    /// Advances past a message that [continues](Self::goes_on_at) the sequence.
    #[inline(always)]
    pub(crate) const fn go_on(&mut self, context: &Context) {
        (self.next, self.state) = (context.sequence.wrapping_add(1), State::OfSequence);
    }

    /// Advances past any message. Returns `true` if messages before it are missing, or a snapshot begins or ends.
    #[inline]
    pub(crate) fn breaks_at(&mut self, context: &Context) -> bool {
        if context.line == Line::Snapshot {
            // All messages of a snapshot have the same number.
            let begins = self.state != State::OfSnapshot;
            *self = Self { next: NONE, state: State::OfSnapshot };
            return begins;
        }
        let breaks = context.sequence != self.next || self.state == State::OfSnapshot;
        *self = Self { next: context.sequence.wrapping_add(1), state: State::OfSequence };
        breaks
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Line::{A, B, Snapshot};

    use super::*;

    #[test]
    fn a_gap_and_both_ends_of_a_snapshot_are_breaks() {
        let mut continuity = Continuity::default();
        assert!(continuity.is_new());
        let follows = [(A, 1, false), (B, 2, false), (A, 4, true), (A, 5, false), (A, 5, true)];
        let snapshot = [
            (Snapshot, 90, true),
            (Snapshot, 90, false),
            (Snapshot, 90, false),
            (A, 91, true),
            (B, 92, false),
        ];
        for (line, sequence, breaks) in follows.into_iter().chain(snapshot) {
            let context = Context { received: None, sequence, channel: 0, line };
            // A message of a snapshot, the one after it, and one after a gap do not continue the sequence.
            assert_eq!(continuity.goes_on_at(&context), !breaks && line != Snapshot, "{line:?} {sequence}");
            assert_eq!(continuity.breaks_at(&context), breaks, "{line:?} {sequence}");
        }
        assert!(!continuity.is_new());
    }

    #[test]
    fn a_message_that_goes_on_is_followed_as_any_other() {
        let mut continuity = Continuity::default();
        let context = |sequence| Context { received: None, sequence, channel: 0, line: A };
        for sequence in [1, 2] {
            assert!(continuity.goes_on_at(&context(sequence)));
            continuity.go_on(&context(sequence));
        }
        assert!(!continuity.is_new() && !continuity.goes_on_at(&context(2)));
        assert!(!continuity.breaks_at(&context(3)) && continuity.breaks_at(&context(5)));
        // The greatest number is the last.
        assert!(continuity.breaks_at(&context(u64::MAX)) && !continuity.goes_on_at(&context(u64::MAX)));
    }
}
