//! Sequence numbers: duplicate, missing and late messages.
//!
//! A channel numbers its messages from 1. A packet names the number of its first message and how many it has. The
//! first packet sets the start (a capture may begin in mid-day); from then on each number is expected once.

use tapeworks_market::event::Gap;

/// How many gaps are remembered, so that a late message is not taken for a duplicate.
pub const REMEMBERED_GAPS: usize = 16;

/// The place of a packet in its channel's sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Messages at the start of the packet that came before, or come too late.
    pub skip: u64,
    /// Messages missing before the packet.
    pub gap: Option<Gap>,
}

/// Counters of a channel's sequence.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SequenceCounters {
    /// Duplicate messages.
    pub duplicate_messages: u64,
    /// Messages of a gap that came after it was reported: the books continued without them.
    pub late_messages: u64,
    /// Gaps reported.
    pub gaps: u64,
    /// Messages in them.
    pub missing_messages: u64,
}

/// Follows one channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    next: Option<u64>,
    gaps: [Option<Gap>; REMEMBERED_GAPS],
    newest_gap: usize,
    counters: SequenceCounters,
}

impl SequenceTracker {
    /// The number expected next; `None` before the first packet.
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub(crate) const fn is_sound(&self) -> bool {
        self.newest_gap < REMEMBERED_GAPS
    }

    /// The counters.
    pub const fn counters(&self) -> &SequenceCounters {
        &self.counters
    }

    /// Takes a packet whose first message is `first` and which has `count` messages; 0 is a heartbeat, whose `first`
    /// is the number expected next.
    #[inline]
    pub fn arrive(&mut self, first: u64, count: u64) -> Arrival {
        match self.next {
            Some(next) if next == first => {
                self.next = Some(first.saturating_add(count));
                Arrival { skip: 0, gap: None }
            }
            Some(next) => self.out_of_order(next, first, count),
            None => {
                self.next = Some(first.saturating_add(count));
                Arrival { skip: 0, gap: None }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn out_of_order(&mut self, next: u64, first: u64, count: u64) -> Arrival {
        let end = first.saturating_add(count);
        if first > next {
            self.next = Some(end);
            let gap = Gap { first: next, count: first - next };
            self.remember(gap);
            return Arrival { skip: 0, gap: Some(gap) };
        }
        let skip = count.min(next - first);
        let late = self.take_late(first, skip);
        self.counters.late_messages += late;
        self.counters.duplicate_messages += skip - late;
        self.next = Some(next.max(end));
        Arrival { skip, gap: None }
    }

    /// Gives the messages of `gap` up: the next expected message is behind them.
    #[cold]
    pub fn give_up(&mut self, gap: Gap) {
        self.remember(gap);
        let end = gap.first.saturating_add(gap.count);
        self.next = Some(self.next.map_or(end, |next| next.max(end)));
    }

    /// The next expected message is `next`: a snapshot holds all before it.
    pub fn restart(&mut self, next: u64) {
        self.next = Some(next);
        self.gaps = [None; REMEMBERED_GAPS];
    }

    /// The last `unread` messages of the packet that came last cannot be read: they are expected again.
    #[cold]
    pub fn cannot_read(&mut self, unread: u64) {
        self.next = self.next.map(|next| next.saturating_sub(unread));
    }

    /// Reports messages that a packet announced and does not hold, or that cannot be decoded, as missing.
    #[cold]
    pub fn lose(&mut self, gap: Gap) {
        self.remember(gap);
    }

    fn remember(&mut self, gap: Gap) {
        self.counters.gaps += 1;
        self.counters.missing_messages = self.counters.missing_messages.saturating_add(gap.count);
        self.newest_gap = (self.newest_gap + 1) % REMEMBERED_GAPS;
        self.gaps[self.newest_gap] = Some(gap);
    }

    /// How many of the `count` messages from `first` on are in a remembered gap; they are no longer missing in it.
    fn take_late(&mut self, first: u64, count: u64) -> u64 {
        let end = first.saturating_add(count);
        let mut late = 0u64;
        for slot in &mut self.gaps {
            let Some(gap) = *slot else { continue };
            let gap_end = gap.first.saturating_add(gap.count);
            let (from, to) = (first.max(gap.first), end.min(gap_end));
            if from >= to {
                continue;
            }
            late = late.saturating_add(to - from);
            // The numbers before the late messages stay remembered, or else those behind them.
            *slot = if from > gap.first {
                Some(Gap { first: gap.first, count: from - gap.first })
            } else if to < gap_end {
                Some(Gap { first: to, count: gap_end - to })
            } else {
                None
            };
        }
        // Two remembered gaps may have a message in common: one was given up, and a damaged packet announced it again.
        late.min(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_late_joiner_starts_where_it_joins() {
        let mut tracker = SequenceTracker::default();
        assert_eq!(tracker.arrive(500, 3), Arrival { skip: 0, gap: None });
        assert_eq!(tracker.arrive(503, 1), Arrival { skip: 0, gap: None });
        assert_eq!(tracker.next(), Some(504));
    }

    #[test]
    fn a_heartbeat_reveals_a_gap_and_takes_no_number() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 1);
        assert_eq!(tracker.arrive(2, 0), Arrival { skip: 0, gap: None });
        assert_eq!(tracker.arrive(5, 0), Arrival { skip: 0, gap: Some(Gap { first: 2, count: 3 }) });
        assert_eq!(tracker.arrive(5, 1), Arrival { skip: 0, gap: None });
    }

    #[test]
    fn overlapping_messages_are_skipped_and_late_ones_distinguished_from_duplicates() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 4);
        assert_eq!(tracker.arrive(3, 4), Arrival { skip: 2, gap: None });
        assert_eq!(tracker.counters().duplicate_messages, 2);
        tracker.arrive(10, 1);
        assert_eq!(tracker.arrive(8, 2), Arrival { skip: 2, gap: None });
        assert_eq!(tracker.arrive(8, 2), Arrival { skip: 2, gap: None });
        let expected =
            SequenceCounters { duplicate_messages: 4, late_messages: 2, gaps: 1, missing_messages: 3 };
        assert_eq!(*tracker.counters(), expected);
    }

    #[test]
    fn a_message_of_two_remembered_gaps_is_late_once() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 1);
        let gap = Gap { first: 2, count: 3 };
        tracker.give_up(gap);
        tracker.lose(gap);
        assert_eq!(tracker.arrive(2, 3), Arrival { skip: 3, gap: None });
        let counters = tracker.counters();
        assert_eq!((counters.late_messages, counters.duplicate_messages), (3, 0));
    }

    #[test]
    fn the_greatest_numbers_do_no_harm() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(u64::MAX, 5);
        tracker.arrive(0, u64::MAX);
        tracker.arrive(u64::MAX, u64::MAX);
        assert_eq!(tracker.next(), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn every_number_is_delivered_at_most_once_and_accounted_for(packets in prop::collection::vec((0u64..60, 0u64..6), 1..60)) {
            let mut tracker = SequenceTracker::default();
            let mut delivered = std::collections::BTreeSet::new();
            let (mut arrived, mut missing) = (0, 0);
            for (first, count) in packets {
                let arrival = tracker.arrive(first, count);
                arrived += count;
                missing += arrival.gap.map_or(0, |gap| gap.count);
                for number in first + arrival.skip..first + count {
                    prop_assert!(delivered.insert(number), "{} came twice", number);
                }
            }
            let counters = tracker.counters();
            prop_assert_eq!(arrived, delivered.len() as u64 + counters.duplicate_messages + counters.late_messages);
            prop_assert_eq!(missing, counters.missing_messages);
            prop_assert!(counters.late_messages <= counters.missing_messages);
        }
    }
}
