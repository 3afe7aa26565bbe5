//! The numbers of a channel whose messages have the nanoseconds of a second that an earlier message has: behind a break the second is unknown.

use tapeworks_market::Line;

use crate::normaliser::Context;

/// The message before.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Default, Debug)]
pub(crate) struct Continuity {
    /// Its number; 0 before the first.
    last: u64,
    /// It was one of a snapshot, which is outside of the sequence.
    was_of_snapshot: bool,
}

impl Continuity {
    /// No message has come.
    pub(crate) const fn is_new(&self) -> bool {
        self.last == 0
    }

    /// Whether a message is the next one, and neither is of a snapshot.
    #[inline(always)]
    pub(crate) fn goes_on_at(&self, context: &Context) -> bool {
        context.sequence == self.last.saturating_add(1)
            && !self.was_of_snapshot
            && context.line != Line::Snapshot
    }

    /// Follows a message with which it [goes on](Self::goes_on_at).
    #[inline(always)]
    pub(crate) const fn go_on(&mut self, context: &Context) {
        self.last = context.sequence;
    }

    /// Follows the next message. `true`: messages before it are missing, or a snapshot begins or ends.
    #[inline]
    pub(crate) fn breaks_at(&mut self, context: &Context) -> bool {
        let is_of_snapshot = context.line == Line::Snapshot;
        let is_next = context.sequence == self.last.saturating_add(1);
        // All messages of a snapshot have one number.
        let breaks = is_of_snapshot != self.was_of_snapshot || !(is_next || is_of_snapshot);
        (self.last, self.was_of_snapshot) = (context.sequence, is_of_snapshot);
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
            assert_eq!(continuity.breaks_at(&context), breaks, "{line:?} {sequence}");
        }
        assert!(!continuity.is_new());
    }
}
