//! The rows of a timeline, each of which shows one thing over time.
//!
//! A row has bars (states with a start and an end), marks (events), and columns of numbers, one per interval of [`EVERY_NS`]. All are
//! bounded: neighbours are merged if there are too many.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::plan::MILLISECOND;

/// The interval of the columns.
pub(crate) const EVERY_NS: u64 = 20 * MILLISECOND;

/// Maximum number of numbers in a column of a page.
const MOST_NUMBERS: usize = 10_000;

/// Maximum number of bars and of marks in a row.
const MOST_BARS: usize = 2_000;
const MOST_MARKS: usize = 1_000;

/// Maximum length of the text of a bar or mark, in characters.
const LONGEST_TEXT: usize = 600;

/// Number of texts that a merged mark keeps.
const MERGED_TEXTS: u32 = 3;

/// A state with its start and end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The colour: a class of the page.
    pub(crate) kind: &'static str,
    pub(crate) label: String,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Mark {
    pub(crate) at: u64,
    pub(crate) kind: &'static str,
    pub(crate) label: String,
    /// Number of merged marks.
    pub(crate) count: u32,
}

/// One number per interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Whether the numbers are levels instead of counts per interval.
    pub(crate) is_level: bool,
    numbers: Vec<u64>,
    /// The counter at the last sample.
    last: u64,
}

/// The display of one thing over time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// A sentence that explains the row.
    pub(crate) hint: &'static str,
    pub(crate) bars: Vec<Bar>,
    pub(crate) marks: Vec<Mark>,
    /// The first column determines the shade.
    pub(crate) columns: Vec<Column>,
    /// Bars that have not ended, by kind.
    open: BTreeMap<&'static str, (u64, String)>,
}

/// Shortens a text that is too long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, hint: &'static str) -> Self {
        Self { name: name.into(), hint, ..Self::default() }
    }

    /// Adds columns of counts.
    pub(crate) fn counting(mut self, names: &[&'static str]) -> Self {
        let column = |name: &&'static str| Column { name, is_level: false, numbers: Vec::new(), last: 0 };
        self.columns.extend(names.iter().map(column));
        self
    }

    /// Adds a column of levels.
    pub(crate) fn level(mut self, name: &'static str) -> Self {
        self.columns.push(Column { name, is_level: true, numbers: Vec::new(), last: 0 });
        self
    }

    /// Adds a bar whose end is known.
    pub(crate) fn bar(&mut self, from: u64, to: u64, kind: &'static str, label: impl Into<String>) {
        self.bars.push(Bar { from, to, kind, label: shortened(&label.into()) });
    }

    /// Sets the state of this kind to `label`, or ends it if `label` is `None`.
    pub(crate) fn state(&mut self, now_ns: u64, kind: &'static str, label: Option<String>) {
        let is_same = match (self.open.get(kind), &label) {
            (Some((_, open)), Some(label)) => open == label,
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        if let Some((from, open)) = self.open.remove(kind) {
            self.bar(from, now_ns, kind, open);
        }
        if let Some(label) = label {
            self.open.insert(kind, (now_ns, label));
        }
    }

    /// Ends all states.
    pub(crate) fn close(&mut self, now_ns: u64) {
        for (kind, (from, label)) in std::mem::take(&mut self.open) {
            self.bar(from, now_ns, kind, label);
        }
    }

    /// Adds a mark, or adds to the last one of its kind in the same interval.
    pub(crate) fn mark(&mut self, at: u64, kind: &'static str, label: impl Into<String>) {
        let mark = Mark { at, kind, label: label.into(), count: 1 };
        match self.marks.iter_mut().rev().take(8).find(|last| last.kind == kind) {
            Some(last) if last.at / EVERY_NS == at / EVERY_NS => last.add(&mark),
            _ => self.marks.push(Mark { label: shortened(&mark.label), ..mark }),
        }
    }

    /// Sets a counter; the interval gets the difference.
    pub(crate) fn counter(&mut self, place: usize, counter: u64) {
        if let Some(column) = self.columns.get_mut(place) {
            let moved = counter.saturating_sub(std::mem::replace(&mut column.last, counter));
            column.numbers.push(moved);
        }
    }

    /// Like [`Row::counter`], for a counter that is sampled less often: the intervals since it last moved share the difference, at
    /// most this many of them.
    pub(crate) fn rare_counter(&mut self, place: usize, counter: u64, most_intervals: usize) {
        self.counter(place, counter);
        let Some(column) = self.columns.get_mut(place) else { return };
        let Some((moved, before)) = column.numbers.split_last_mut() else { return };
        let quiet = before.iter_mut().rev().take(most_intervals - 1).take_while(|number| **number == 0);
        let mut left = *moved;
        // The latest interval gets the remainder.
        let shares: Vec<&mut u64> = std::iter::once(moved).chain(quiet).collect();
        let count = shares.len() as u64;
        for (share, sharers) in shares.into_iter().zip((1..=count).rev()) {
            *share = left.div_ceil(sharers);
            left -= *share;
        }
    }

    /// Adds a number for the interval.
    pub(crate) fn number(&mut self, place: usize, number: u64) {
        if let Some(column) = self.columns.get_mut(place) {
            column.numbers.push(number);
        }
    }

    /// Sets the initial values of counters, whose earlier movements are not shown.
    pub(crate) fn rebase(&mut self, counters: &[u64]) {
        self.columns.iter_mut().zip(counters).for_each(|(column, counter)| column.last = *counter);
    }

    /// Adds an interval without data: no counts, and unchanged levels.
    pub(crate) fn columns_stay(&mut self) {
        for column in &mut self.columns {
            let level = column.numbers.last().copied().filter(|_| column.is_level);
            column.numbers.push(level.unwrap_or_default());
        }
    }

    /// Ends open bars, and merges entries that are too many. Each number of a column then covers `together` intervals.
    pub(crate) fn finish(&mut self, end_ns: u64, together: usize) {
        self.close(end_ns);
        self.bars.sort_by_key(|bar| bar.from);
        merge_bars(&mut self.bars);
        self.marks.sort_by_key(|mark| mark.at);
        merge_marks(&mut self.marks);
        self.columns.iter_mut().for_each(|column| column.merge(together));
    }
}

impl Mark {
    fn add(&mut self, other: &Self) {
        if self.count < MERGED_TEXTS && self.label != other.label {
            self.label = shortened(&format!("{}; {}", self.label, other.label));
        }
        self.count = self.count.saturating_add(other.count);
    }
}

impl Column {
    /// Merges groups of `together` neighbours.
    fn merge(&mut self, together: usize) {
        if together > 1 {
            let merged = |numbers: &[u64]| match self.is_level {
                true => numbers.iter().copied().max().unwrap_or_default(),
                false => numbers.iter().sum(),
            };
            self.numbers = self.numbers.chunks(together).map(merged).collect();
        }
    }

    /// Returns whether all numbers are 0.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.iter().all(|number| *number == 0)
    }

    /// Returns the numbers, run-length encoded: a negative number -n stands for n repetitions of the number before it, or of 0 at the
    /// beginning.
    pub(crate) fn runs(&self) -> Vec<i64> {
        let mut runs: Vec<i64> = Vec::new();
        let mut before = 0;
        let mut repeated = 0;
        for number in &self.numbers {
            let number = i64::try_from(*number).unwrap_or(i64::MAX);
            if number == before {
                repeated += 1;
                continue;
            }
            runs.extend((repeated > 0).then_some(-repeated));
            runs.push(number);
            (before, repeated) = (number, 0);
        }
        runs.extend((repeated > 0).then_some(-repeated));
        runs
    }
}

/// Returns how many intervals to merge in a run of this length.
pub(crate) fn together(end_ns: u64) -> usize {
    let numbers = usize::try_from(end_ns / EVERY_NS).unwrap_or(usize::MAX);
    numbers.div_ceil(MOST_NUMBERS).max(1)
}

/// Merges close bars of one kind until there are few enough.
fn merge_bars(bars: &mut Vec<Bar>) {
    let mut apart_ns = EVERY_NS;
    while bars.len() > MOST_BARS {
        let mut merged: Vec<Bar> = Vec::new();
        let mut last_of: BTreeMap<&str, usize> = BTreeMap::new();
        for bar in bars.drain(..) {
            let last = last_of.get(bar.kind).and_then(|place| merged.get_mut(*place));
            match last.filter(|last| bar.from <= last.to.saturating_add(apart_ns)) {
                Some(last) => last.to = last.to.max(bar.to),
                None => {
                    last_of.insert(bar.kind, merged.len());
                    merged.push(bar);
                }
            }
        }
        *bars = merged;
        apart_ns = apart_ns.saturating_mul(2);
    }
}

/// Merges close marks of one kind until there are few enough.
fn merge_marks(marks: &mut Vec<Mark>) {
    let mut apart_ns = EVERY_NS;
    while marks.len() > MOST_MARKS {
        let mut merged: Vec<Mark> = Vec::new();
        let mut last_of: BTreeMap<&str, usize> = BTreeMap::new();
        for mark in marks.drain(..) {
            let last = last_of.get(mark.kind).and_then(|place| merged.get_mut(*place));
            match last.filter(|last| mark.at <= last.at.saturating_add(apart_ns)) {
                Some(last) => last.add(&mark),
                None => {
                    last_of.insert(mark.kind, merged.len());
                    merged.push(mark);
                }
            }
        }
        *marks = merged;
        apart_ns = apart_ns.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_become_bars_and_marks_of_one_interval_one_mark() {
        let mut row = Row::new("row", "");
        row.state(10, "silent", Some("silent".to_owned()));
        row.state(20, "silent", Some("silent".to_owned()));
        row.state(30, "silent", None);
        row.state(40, "stale", Some("stale".to_owned()));
        for at in [1, 2, 3, 4, EVERY_NS] {
            row.mark(at, "gap", format!("gap {at}"));
        }
        row.finish(50, 1);
        let bars: Vec<_> = row.bars.iter().map(|bar| (bar.from, bar.to, bar.kind)).collect();
        assert_eq!(bars, [(10, 30, "silent"), (40, 50, "stale")]);
        let marks: Vec<_> = row.marks.iter().map(|mark| (mark.label.as_str(), mark.count)).collect();
        assert_eq!(marks, [("gap 1; gap 2; gap 3", 4), (format!("gap {EVERY_NS}").as_str(), 1)]);
    }

    #[test]
    fn columns_are_written_as_runs_and_counters_may_begin_anew() {
        let mut row = Row::new("row", "").counting(&["packets"]);
        [0, 0, 5, 10, 15, 15, 2].into_iter().for_each(|counter| row.counter(0, counter));
        assert_eq!(row.columns[0].runs(), [-2, 5, -2, 0, -1]);
        row.finish(7 * EVERY_NS, 2);
        assert_eq!(row.columns[0].runs(), [-1, 10, 5, 0]);
        assert_eq!(
            (together(10), together(200_000 * MILLISECOND), together(200_020 * MILLISECOND)),
            (1, 1, 2)
        );
    }

    #[test]
    fn a_rare_counter_is_spread_over_the_intervals_since_it_moved_last() {
        let mut row = Row::new("row", "").counting(&["records"]);
        [0, 7, 7, 7, 15, 15, 16].into_iter().for_each(|counter| row.rare_counter(0, counter, 3));
        assert_eq!(row.columns[0].numbers, [3, 4, 2, 3, 3, 0, 1]);
    }

    #[test]
    fn rows_are_bounded() {
        let mut row = Row::new("row", "");
        for at in 0..50_000 {
            row.bar(at * 100 * MILLISECOND, (at * 100 + 50) * MILLISECOND, "silent", "silent");
            row.mark(at * 100 * MILLISECOND, "gap", "x".repeat(10_000));
        }
        row.finish(5_000_000 * MILLISECOND, 25);
        assert!(row.bars.len() <= MOST_BARS && row.marks.len() <= MOST_MARKS);
        assert!(row.marks.iter().all(|mark| mark.label.len() <= LONGEST_TEXT + 3));
        assert_eq!(row.marks.iter().map(|mark| u64::from(mark.count)).sum::<u64>(), 50_000);
    }
}
