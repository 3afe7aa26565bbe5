//! Sets of sequence numbers, stored as ranges.

use std::ops::Range;

/// Maximum number of ranges in one set; beyond it the lowest is forgotten.
pub(crate) const MOST_RANGES: usize = 1024;

/// Returns the overlap of two ranges, or an empty range.
pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// A set of sequence numbers as separate ranges, lowest first. It holds the sequence gaps of a line or a channel, which are few
/// and short.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ranges {
    ranges: Vec<Range<u64>>,
}

impl Ranges {
    /// Returns the ranges, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// Returns whether the ranges are separate, in order, and within the limit.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self) -> bool {
        self.ranges.len() <= MOST_RANGES && self.is_ordered()
    }

    /// Returns a set of one range, in the memory of another set.
    pub(crate) fn of(range: Range<u64>, mut spare: Self) -> Self {
        spare.ranges.clear();
        spare.ranges.extend(Some(range).filter(|range| !range.is_empty()));
        spare
    }

    /// Returns the first number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.ranges.first().map(|first| first.start)
    }

    /// Returns the range from the first number to the last.
    pub(crate) fn span(&self) -> Range<u64> {
        let end = self.ranges.last().map(|last| last.end).unwrap_or_default();
        self.first().unwrap_or(end)..end
    }

    /// Returns how many numbers the set holds.
    pub(crate) fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the first range within these bounds, cut at them.
    pub(crate) fn first_in(&self, bounds: &Range<u64>) -> Option<Range<u64>> {
        self.within(bounds).next()
    }

    /// Returns the ranges within these bounds, cut at them.
    pub(crate) fn within(&self, bounds: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let at = self.ranges.partition_point(|range| range.end <= bounds.start);
        let cut = self.ranges.iter().skip(at).map(move |range| overlap(range, bounds));
        cut.take_while(|range| !range.is_empty())
    }

    /// Returns the last range within these bounds, cut at them.
    pub(crate) fn last_in(&self, bounds: &Range<u64>) -> Option<Range<u64>> {
        let at = self.ranges.partition_point(|range| range.start < bounds.end).checked_sub(1)?;
        self.ranges.get(at).map(|range| overlap(range, bounds)).filter(|range| !range.is_empty())
    }

    /// Returns the range from the first number within these bounds to the last.
    pub(crate) fn span_in(&self, bounds: &Range<u64>) -> Option<Range<u64>> {
        Some(self.first_in(bounds)?.start..self.last_in(bounds)?.end)
    }

    /// Removes the numbers from `at` on, and returns them.
    pub(crate) fn split_off(&mut self, at: u64) -> Self {
        let from = self.ranges.partition_point(|range| range.end <= at);
        let mut behind = self.ranges.split_off(from);
        if let Some(first) = behind.first_mut().filter(|first| first.start < at) {
            self.ranges.push(first.start..at);
            first.start = at;
        }
        Self { ranges: behind }
    }

    /// Returns whether the ranges are separate and in order.
    #[cfg(feature = "serde")]
    pub(crate) fn is_ordered(&self) -> bool {
        self.ranges.iter().all(|range| range.start < range.end)
            && self.ranges.windows(2).all(|pair| matches!(pair, [one, other] if one.end < other.start))
    }

    /// Returns whether the set is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns whether all numbers are before `first`.
    pub(crate) fn end_by(&self, first: u64) -> bool {
        self.ranges.last().is_none_or(|last| last.end <= first)
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Adds the numbers of `added`. Returns how many were new, and how many of the lowest were forgotten to make room.
    pub(crate) fn insert(&mut self, added: Range<u64>) -> (u64, u64) {
        if added.start >= added.end {
            return (0, 0);
        }
        // Ranges that touch or overlap the added one merge with it.
        let from = self.ranges.partition_point(|range| range.end < added.start);
        let to = from + self.ranges[from..].partition_point(|range| range.start <= added.end);
        let known: u64 = self.ranges[from..to]
            .iter()
            .map(|range| range.end.min(added.end).saturating_sub(range.start.max(added.start)))
            .sum();
        let start = self.ranges[from..to].first().map_or(added.start, |first| first.start.min(added.start));
        let end = self.ranges[from..to].last().map_or(added.end, |last| last.end.max(added.end));
        self.ranges.splice(from..to, std::iter::once(start..end));
        (added.end - added.start - known, self.forget())
    }

    /// Like [`Ranges::remove`], but within the limit: if cutting a range in two makes one too many, the lowest is forgotten. Also
    /// returns how many numbers that was.
    pub(crate) fn remove_within_limit(&mut self, removed: Range<u64>) -> (u64, u64) {
        (self.remove(removed), self.forget())
    }

    /// Forgets the lowest range if the limit is exceeded. Returns how many numbers it held.
    fn forget(&mut self) -> u64 {
        if self.ranges.len() <= MOST_RANGES {
            return 0;
        }
        let lowest = self.ranges.remove(0);
        lowest.end - lowest.start
    }

    /// Removes the numbers of `removed`. Returns how many were present. If a range is cut in two, the set may exceed the limit.
    pub(crate) fn remove(&mut self, removed: Range<u64>) -> u64 {
        if removed.start >= removed.end || self.end_by(removed.start) {
            return 0;
        }
        let from = self.ranges.partition_point(|range| range.end <= removed.start);
        let to = from + self.ranges[from..].partition_point(|range| range.start < removed.end);
        if from == to {
            return 0;
        }
        let overlapping = &self.ranges[from..to];
        let taken =
            overlapping.iter().map(|range| range.end.min(removed.end) - range.start.max(removed.start)).sum();
        let before = overlapping.first().map(|first| first.start..removed.start);
        let behind = overlapping.last().map(|last| removed.end..last.end);
        let left = [before, behind].into_iter().flatten().filter(|range| range.start < range.end);
        self.ranges.splice(from..to, left);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn adjacent_ranges_merge_and_a_cut_range_becomes_two() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.insert(5..7), (2, 0));
        assert_eq!(ranges.insert(7..9), (2, 0));
        assert_eq!(ranges.insert(3..4), (1, 0));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [3..4, 5..9]);
        assert_eq!(ranges.remove(6..8), 2);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [3..4, 5..6, 8..9]);
    }

    #[test]
    fn beyond_the_bound_the_lowest_range_is_forgotten_and_returned() {
        let mut ranges = Ranges::default();
        for number in 0..MOST_RANGES as u64 {
            assert_eq!(ranges.insert(3 * number..3 * number + 2), (2, 0));
        }
        assert_eq!(ranges.insert(1_000_000..1_000_005), (5, 2));
        assert_eq!(ranges.iter().next(), Some(3..5));
        // The last range becomes two.
        assert_eq!(ranges.remove_within_limit(1_000_002..1_000_003), (1, 2));
        assert_eq!((ranges.iter().next(), ranges.iter().count()), (Some(6..8), MOST_RANGES));
    }

    proptest! {
        #[test]
        fn the_ranges_equal_a_set_of_numbers(steps in prop::collection::vec((any::<bool>(), 0u64..200, 0u64..20), 1..80)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (is_insert, start, length) in steps {
                let numbers = start..start + length;
                if is_insert {
                    let new = numbers.clone().filter(|number| set.insert(*number)).count() as u64;
                    prop_assert_eq!(ranges.insert(numbers), (new, 0));
                } else {
                    let taken = numbers.clone().filter(|number| set.remove(number)).count() as u64;
                    prop_assert_eq!(ranges.remove(numbers), taken);
                }
                prop_assert_eq!(ranges.iter().flatten().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!((ranges.count(), ranges.first()), (set.len() as u64, set.first().copied()));
                let bounds = start + 3..start + 3 + 2 * length;
                let within = || set.range(bounds.clone());
                let span = within().next().map(|first| *first..within().next_back().unwrap() + 1);
                prop_assert_eq!(ranges.span_in(&bounds), span);
                let mut before = ranges.clone();
                let behind = before.split_off(start);
                prop_assert!(before.iter().flatten().eq(set.range(..start).copied()));
                prop_assert!(behind.iter().flatten().eq(set.range(start..).copied()));
                prop_assert!(ranges.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
