//! Sequence numbers: duplicate, missing and late messages.
//!
//! A channel numbers its messages from 1. A packet carries the number of its first message and how many it has. The first packet
//! sets the start, because a capture may begin mid-day; from then on each number is expected once.
//!
//! A damaged number must not make everything after it late or duplicate. So a packet more than [`MOST_AHEAD`] ahead is skipped.
//! If the next packet is out there too, the sequence continues from that one. A channel's first number is discarded if the next
//! two packets are more than [`MOST_AHEAD`] before it and near each other.

use tapeworks_market::event::Gap;

/// A packet further ahead than this is treated as stray: at a million messages a second it would be minutes ahead.
pub const MOST_AHEAD: u64 = 1 << 28;

/// How many gaps are remembered, so that a late message does not count as a duplicate.
pub const REMEMBERED_GAPS: usize = 16;

/// A packet's position in its channel's sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Messages at the start of the packet that came before, or come too late; all of them if the packet is refused.
    pub skip: u64,
    /// Messages missing before the packet.
    pub gap: Option<Gap>,
    /// Why none of the packet's messages is used. The sequence does not move.
    pub refusal: Option<Refusal>,
}

/// Why a packet whose number does not fit its channel is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its number is more than [`MOST_AHEAD`] from the channel's next number, given here.
    Far(u64),
    /// Its number had other content before, or is old without being a copy, and nothing confirms a restart. The value is the
    /// channel's next number.
    Contradicts(u64),
    /// It belongs to a session other than the channel's.
    OtherSession,
}

impl Arrival {
    /// A packet that is next in its channel.
    pub const IN_ORDER: Self = Self { skip: 0, gap: None, refusal: None };

    /// Returns the arrival of a skipped packet of `count` messages.
    pub const fn refused(count: u64, refusal: Refusal) -> Self {
        Self { skip: count, gap: None, refusal: Some(refusal) }
    }

    /// Returns whether the packet is skipped because its number does not fit.
    pub const fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }
}

/// Returns how many messages at the end of a packet of `count` remain unread, if `skip` came before and `read` could be read.
pub const fn unread(count: u64, skip: u64, read: u64) -> u64 {
    count.saturating_sub(if read > skip { read } else { skip })
}

/// Counters of a channel's sequence.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SequenceCounters {
    /// Duplicate messages.
    pub duplicate_messages: u64,
    /// Messages of a gap that arrived after it was reported: the books continued without them.
    pub late_messages: u64,
    /// Gaps reported.
    pub gaps: u64,
    /// Messages in those gaps.
    pub missing_messages: u64,
    /// Packets of a capture, including heartbeats, that were [refused](Arrival::is_refused). A live line [counts its
    /// own](crate::arbitration::LineCounters::implausible).
    #[cfg_attr(feature = "serde", serde(skip))]
    pub implausible_packets: u64,
}

/// An implausible packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Implausible {
    /// The number that was expected.
    next: u64,
    /// The number of its first message.
    first: u64,
}

/// Follows the sequence of one channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    next: Option<u64>,
    gaps: [Option<Gap>; REMEMBERED_GAPS],
    newest_gap: usize,
    /// The last implausible packet; always `None` for a live channel, whose [arbiter](crate::arbitration) has already judged its
    /// packets.
    #[cfg_attr(feature = "serde", serde(skip))]
    implausible: Option<Implausible>,
    /// The number after the first packet, until another packet agrees with it: the first packet's number may be the damaged one.
    #[cfg_attr(feature = "serde", serde(skip))]
    start: Option<u64>,
    counters: SequenceCounters,
}

impl SequenceTracker {
    /// Returns the next expected number; `None` before the first packet.
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Returns whether a packet has messages of a remembered gap.
    pub fn is_missing(&self, first: u64, count: u64) -> bool {
        let end = first.saturating_add(count);
        let overlaps = |gap: &Gap| first < gap.first.saturating_add(gap.count) && end > gap.first;
        self.gaps.iter().flatten().any(overlaps)
    }

    /// Returns whether no second packet has confirmed the first packet's number yet.
    pub fn is_unconfirmed(&self) -> bool {
        self.start.is_some() && self.start == self.next
    }

    /// Returns whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub const fn is_sound(&self) -> bool {
        self.newest_gap < REMEMBERED_GAPS
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &SequenceCounters {
        &self.counters
    }

    /// Advances past a packet of `count` messages if it starts at the expected number. Returns whether it did.
    #[inline]
    pub fn advance(&mut self, first: u64, count: u64) -> bool {
        let is_next = self.next == Some(first) && count > 0;
        if is_next {
            self.next = Some(first.saturating_add(count));
        }
        is_next
    }

    /// Places a packet of `count` messages whose first message is `first`. A count of 0 is a heartbeat, whose `first` is the next
    /// expected number.
    #[inline]
    pub fn arrive(&mut self, first: u64, count: u64) -> Arrival {
        if self.advance(first, count) { Arrival::IN_ORDER } else { self.place(first, count, true) }
    }

    /// Places a packet like [`Self::arrive`]. Returns `None` for a packet with messages that is next in sequence.
    #[inline]
    pub fn judge(&mut self, first: u64, count: u64) -> Option<Arrival> {
        if self.advance(first, count) { None } else { Some(self.place(first, count, true)) }
    }

    /// Places a message whose number the caller has counted from a login. No number is implausible, because the next message
    /// would confirm any.
    #[inline]
    pub fn arrive_counted(&mut self, number: u64) -> Arrival {
        if self.advance(number, 1) { Arrival::IN_ORDER } else { self.place(number, 1, false) }
    }

    /// Returns whether a packet begins before the expected number and, by its count, ends after it. If it ends before that
    /// number, its count is trusted, because its messages are not read.
    #[inline]
    pub fn overlaps(&self, first: u64, count: u64) -> bool {
        self.next.is_some_and(|next| first < next && first.saturating_add(count) > next)
    }

    #[cold]
    #[inline(never)]
    fn place(&mut self, first: u64, count: u64, is_judged: bool) -> Arrival {
        if first == 0 && count == 0 {
            // No message has the number 0, so such a heartbeat carries no number.
            return Arrival::IN_ORDER;
        }
        let end = first.saturating_add(count);
        let Some(next) = self.next else {
            (self.start, self.next) = (Some(end), Some(end));
            return Arrival::IN_ORDER;
        };
        let is_far_behind = self.start == Some(next) && end.saturating_add(MOST_AHEAD) < next;
        if is_judged && (is_far_behind || first > next.saturating_add(MOST_AHEAD)) {
            let before = self.implausible.replace(Implausible { next, first });
            let confirms =
                |before: &Implausible| before.next == next && before.first.abs_diff(first) <= MOST_AHEAD;
            let Some(before) = before.filter(confirms) else {
                self.counters.implausible_packets += 1;
                return Arrival::refused(count, Refusal::Far(next));
            };
            self.implausible = None;
            if is_far_behind {
                // The channel begins with the packet that this one confirms.
                self.restart(before.first.min(first));
                return self.arrive(first, count);
            }
        } else {
            // The packet agrees with the sequence, and with its first packet.
            (self.implausible, self.start) = (None, None);
        }
        if first > next {
            self.next = Some(end);
            let gap = Gap { first: next, count: first - next };
            self.remember(gap);
            return Arrival { skip: 0, gap: Some(gap), refusal: None };
        }
        let skip = count.min(next - first);
        let late = self.take_late(first, skip);
        self.counters.late_messages += late;
        self.counters.duplicate_messages += skip - late;
        self.next = Some(next.max(end));
        Arrival { skip, gap: None, refusal: None }
    }

    /// Gives up the messages of `gap`: the next expected message is after them.
    #[cold]
    pub fn give_up(&mut self, gap: Gap) {
        self.remember(gap);
        let end = gap.first.saturating_add(gap.count);
        self.next = Some(self.next.map_or(end, |next| next.max(end)));
    }

    /// Continues from `next`, because a snapshot holds all messages before it.
    pub fn restart(&mut self, next: u64) {
        self.next = Some(next);
        self.start = None;
        self.gaps = [None; REMEMBERED_GAPS];
    }

    /// Expects the last `unread` messages of the last packet again, because they cannot be read.
    #[cold]
    pub fn cannot_read(&mut self, unread: u64) {
        if unread == 0 {
            return;
        }
        let next = self.next.map(|next| next.saturating_sub(unread));
        // The first packet's start moves with it. Any other packet confirms that start, and clears a stray packet.
        self.start = if self.start == self.next { next } else { None };
        self.implausible = None;
        self.next = next;
    }

    /// Skips a packet of `count` messages.
    #[cold]
    pub fn refuse(&mut self, count: u64, refusal: Refusal) -> Arrival {
        self.counters.implausible_packets += 1;
        Arrival::refused(count, refusal)
    }

    /// Counts the messages of a packet as duplicates.
    #[cold]
    pub fn repeat(&mut self, count: u64) -> Arrival {
        self.counters.duplicate_messages += count;
        Arrival { skip: count, gap: None, refusal: None }
    }

    /// Reports messages as missing that a packet announced but does not hold, or that cannot be decoded.
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

    /// Returns how many of the `count` messages from `first` are in a remembered gap, and removes them from it.
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
            // The numbers before the late messages stay remembered; if there are none, the numbers after them.
            *slot = if from > gap.first {
                Some(Gap { first: gap.first, count: from - gap.first })
            } else if to < gap_end {
                Some(Gap { first: to, count: gap_end - to })
            } else {
                None
            };
        }
        // Two remembered gaps may share a message: one was given up, and a damaged packet announced it again.
        late.min(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn far_from(next: u64) -> Arrival {
        Arrival::refused(5, Refusal::Far(next))
    }

    const FAR: u64 = 1 << 40;

    fn gap(first: u64, count: u64) -> Arrival {
        Arrival { skip: 0, gap: Some(Gap { first, count }), refusal: None }
    }

    #[test]
    fn a_late_joiner_starts_where_it_joins() {
        let mut tracker = SequenceTracker::default();
        assert_eq!(tracker.arrive(500, 3), Arrival::IN_ORDER);
        assert_eq!(tracker.arrive(503, 1), Arrival::IN_ORDER);
        assert_eq!(tracker.next(), Some(504));
    }

    #[test]
    fn a_heartbeat_reveals_a_gap_and_takes_no_number() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 1);
        assert_eq!(tracker.arrive(2, 0), Arrival::IN_ORDER);
        assert_eq!(tracker.arrive(5, 0), gap(2, 3));
        assert_eq!(tracker.arrive(5, 1), Arrival::IN_ORDER);
    }

    #[test]
    fn overlapping_messages_are_skipped_and_late_ones_distinguished_from_duplicates() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 4);
        assert_eq!(tracker.arrive(3, 4), Arrival { skip: 2, gap: None, refusal: None });
        assert_eq!(tracker.counters().duplicate_messages, 2);
        tracker.arrive(10, 1);
        assert_eq!(tracker.arrive(8, 2), Arrival { skip: 2, gap: None, refusal: None });
        assert_eq!(tracker.arrive(8, 2), Arrival { skip: 2, gap: None, refusal: None });
        let expected = SequenceCounters {
            duplicate_messages: 4,
            late_messages: 2,
            gaps: 1,
            missing_messages: 3,
            implausible_packets: 0,
        };
        assert_eq!(*tracker.counters(), expected);
    }

    #[test]
    fn a_message_of_two_remembered_gaps_is_late_once() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 1);
        let gap = Gap { first: 2, count: 3 };
        tracker.give_up(gap);
        tracker.lose(gap);
        assert_eq!(tracker.arrive(2, 3), Arrival { skip: 3, gap: None, refusal: None });
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

    #[test]
    fn a_number_far_ahead_moves_the_sequence_once_the_next_packet_confirms_it() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 5);
        assert_eq!(tracker.arrive(6 + FAR, 5), far_from(6));
        assert_eq!(tracker.arrive(11, 5), gap(6, 5), "the damaged packet had these");
        assert_eq!(tracker.arrive(16, 5), Arrival::IN_ORDER);
        // Two distant packets do not confirm each other if a heartbeat or a copy comes between them, or if they are far apart.
        assert!(tracker.arrive(21 + FAR, 0).is_refused());
        assert_eq!(tracker.arrive(21, 0), Arrival::IN_ORDER);
        assert_eq!(tracker.arrive(21 + FAR, 5), far_from(21));
        assert_eq!(tracker.arrive(16, 5).skip, 5);
        assert_eq!(tracker.arrive(21 + FAR, 5), far_from(21));
        assert_eq!(tracker.arrive(21, 5), Arrival::IN_ORDER);
        assert_eq!(tracker.arrive(26 + FAR, 5), far_from(26));
        assert_eq!(tracker.arrive(26 + 2 * FAR, 5), far_from(26));
        // The copy on the other line or the next packet confirms it, even one that is behind it.
        assert_eq!(tracker.arrive(25 + 2 * FAR, 5), gap(26, 2 * FAR - 1));
        assert_eq!(tracker.arrive(30 + 2 * FAR, 5), Arrival::IN_ORDER);
        assert_eq!(tracker.counters().implausible_packets, 6);
        let (gaps, missing) = (tracker.counters().gaps, tracker.counters().missing_messages);
        assert_eq!((gaps, missing), (2, 5 + 2 * FAR - 1));
    }

    #[test]
    fn a_gap_that_is_plausible_is_one_at_once() {
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 5);
        assert_eq!(tracker.arrive(6 + MOST_AHEAD, 5), gap(6, MOST_AHEAD));
        assert_eq!(tracker.arrive(11 + 2 * MOST_AHEAD + 1, 5), far_from(11 + MOST_AHEAD));
    }

    #[test]
    fn a_first_number_far_ahead_is_forgotten_once_two_packets_contradict_it() {
        let mut tracker = SequenceTracker::default();
        assert_eq!(tracker.arrive(FAR, 5), Arrival::IN_ORDER);
        assert_eq!(tracker.arrive(6, 5), far_from(FAR + 5));
        assert_eq!(tracker.arrive(11, 5), gap(6, 5));
        assert_eq!(tracker.arrive(16, 5), Arrival::IN_ORDER);
        // The damaged packet's own copy contradicts it.
        let mut tracker = SequenceTracker::default();
        tracker.arrive(FAR, 5);
        assert_eq!(tracker.arrive(6, 5), far_from(FAR + 5));
        assert_eq!(tracker.arrive(6, 5), Arrival::IN_ORDER);
        // Its count is damaged too.
        let mut tracker = SequenceTracker::default();
        tracker.arrive(FAR, 40_000);
        tracker.cannot_read(39_997);
        assert_eq!(tracker.arrive(6, 5), far_from(FAR + 3));
        assert_eq!(tracker.arrive(11, 5), gap(6, 5));
        // A heartbeat with a damaged count clears a stray packet too.
        let mut tracker = SequenceTracker::default();
        tracker.arrive(1, 5);
        assert_eq!(tracker.arrive(6 + FAR, 5), far_from(6));
        tracker.arrive(6, 16_384);
        tracker.cannot_read(16_384);
        assert_eq!(tracker.arrive(11 + FAR, 5), far_from(6));
        // A heartbeat or a copy confirms the first packet.
        for (first, count) in [(FAR + 5, 0), (FAR, 5)] {
            let mut tracker = SequenceTracker::default();
            tracker.arrive(FAR, 5);
            tracker.arrive(first, count);
            for _ in 0..3 {
                assert_eq!(tracker.arrive(6, 5).skip, 5, "they came before");
            }
            assert_eq!(tracker.counters().implausible_packets, 0);
        }
        // The second packet is damaged, not the first.
        let mut tracker = SequenceTracker::default();
        tracker.arrive(FAR, 5);
        assert_eq!(tracker.arrive(0, 5), far_from(FAR + 5));
        assert_eq!(tracker.arrive(FAR + 10, 5), gap(FAR + 5, 5));
        assert_eq!(tracker.arrive(0, 5), Arrival { skip: 5, gap: None, refusal: None }, "a copy");
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

        /// On a single line one damaged number costs the messages of its packet; with two complete lines it costs none. A damaged
        /// first number costs the first packet, and on a single line also the second, which contradicts it.
        #[test]
        fn a_damaged_number_costs_one_packet_at_most(
            counts in prop::collection::vec(1u64..6, 3..20),
            damaged in 0usize..40,
            number in any::<u64>(),
            lines in 1usize..3,
        ) {
            const FIRST: u64 = 1_000;
            prop_assume!(number > FIRST + 2 * MOST_AHEAD);
            let ends = counts.iter().scan(FIRST, |next, count| { *next += count; Some(*next) });
            let packets = ends.zip(&counts).flat_map(|(end, count)| vec![(end - count, *count); lines]);
            let mut packets: Vec<(u64, u64)> = packets.collect();
            let place = damaged % packets.len();
            packets[place].0 = number;
            let mut tracker = SequenceTracker::default();
            let mut delivered = std::collections::BTreeSet::new();
            for (at, (first, count)) in packets.iter().enumerate() {
                let arrival = tracker.arrive(*first, *count);
                let new = first.saturating_add(arrival.skip)..first.saturating_add(*count);
                if at != place {
                    for number in new {
                        prop_assert!(delivered.insert(number), "{} came twice", number);
                    }
                }
            }
            let all = counts.iter().sum::<u64>();
            let lost = all - delivered.len() as u64;
            let most = match (lines, place) {
                (1, 0) => counts[0] + counts[1],
                (_, 0) => counts[0],
                (1, _) => counts[place],
                _ => 0,
            };
            prop_assert!(lost <= most, "{} lost, at most {}", lost, most);
            if lines == 1 && place + 1 < packets.len() && place > 0 {
                prop_assert_eq!(tracker.counters().missing_messages, lost);
            }
            prop_assert_eq!(tracker.counters().implausible_packets, 1);
        }
    }
}
