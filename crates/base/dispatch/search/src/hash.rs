//! A formula and its table of keys.

use crate::families::{Rank, Search};
use crate::formula::{Family, Formula};
use crate::set::{SearchError, Set, Width};

/// A perfect hash of a set of values. Each value has its own slot, and one comparison with the slot's key shows whether a value
/// is in the set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfectHash {
    formula: Formula,
    width: Width,
    /// Ascending.
    values: Vec<u64>,
    /// One per slot. An empty slot holds a value of another slot, which no value looked up there can equal.
    keys: Vec<u64>,
}

/// Finds the cheapest perfect hash of the values, in the narrowest width that holds them.
///
/// The same set gives the same hash, in any order.
///
/// # Errors
/// No values, more than [`MAX_VALUES`](crate::MAX_VALUES), or a duplicate. Every other set has a hash.
pub fn find(values: &[u64]) -> Result<PerfectHash, SearchError> {
    find_in(values, None)
}

/// Like [`find`], for values of a given width; `None` is the narrowest.
///
/// # Errors
/// As [`find`], or a value that the width cannot hold.
pub fn find_in(values: &[u64], width: Option<Width>) -> Result<PerfectHash, SearchError> {
    let set = Set::new(values, width)?;
    let mut search = Search::new(&set);
    for family in Family::ALL {
        search.run(family);
    }
    // The last family always finds a formula, if no earlier family did.
    let formula = search.into_best().ok_or(SearchError::Empty)?;
    Ok(PerfectHash::new(formula, set))
}

/// Returns the cheapest hash of each family, in the order of [`Family::ALL`], or `None` if a family has none within its limits.
///
/// # Errors
/// As [`find_in`].
pub fn compare(
    values: &[u64],
    width: Option<Width>,
) -> Result<Vec<(Family, Option<PerfectHash>)>, SearchError> {
    let set = Set::new(values, width)?;
    Ok(Family::ALL
        .into_iter()
        .map(|family| {
            let mut search = Search::new(&set);
            search.run(family);
            (family, search.into_best().map(|formula| PerfectHash::new(formula, set.clone())))
        })
        .collect())
}

impl PerfectHash {
    fn new(formula: Formula, set: Set) -> Self {
        let Set { values, width } = set;
        let mut keys = vec![values[0]; formula.size()];
        let home = formula.slot(values[0], width);
        if let (Some(home), Some(other)) = (keys.get_mut(home), values.get(1)) {
            // Overwritten below; until then the first value's own slot is as empty as the others.
            *home = *other;
        }
        for &value in &values {
            keys[formula.slot(value, width)] = value;
        }
        Self { formula, width, values, keys }
    }

    /// Returns the formula.
    #[must_use]
    pub const fn formula(&self) -> &Formula {
        &self.formula
    }

    /// Returns the width of the values.
    #[must_use]
    pub const fn width(&self) -> Width {
        self.width
    }

    /// Returns the values, ascending.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns the keys by slot, which nothing reads if [`is_checked_by_bound`](Self::is_checked_by_bound).
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn size(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of values per slot, at most 1.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.values.len() as f64 / self.size() as f64
    }

    /// Returns whether the values form a range, so that a bound check replaces the table.
    #[must_use]
    pub fn is_checked_by_bound(&self) -> bool {
        self.formula.family() == Family::Direct && self.size() == self.values.len()
    }

    fn rank(&self) -> Rank {
        Rank::of(&self.formula, self.values.len(), self.width)
    }

    /// Returns the bytes of the tables: keys, and displacements if any.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.rank().bytes
    }

    /// Returns the number of instructions of the formula and the comparison.
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.rank().instructions
    }

    /// Returns the cost that the search minimizes, in cycles: see [the rule](crate#the-rule).
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.rank().cost
    }

    /// Returns the slot of `value`, below [`size`](Self::size), or `None` if it is not in the set.
    #[must_use]
    pub fn index(&self, value: u64) -> Option<usize> {
        if value > self.width.greatest() {
            return None;
        }
        let slot = self.formula.slot(value, self.width);
        (self.keys.get(slot) == Some(&value)).then_some(slot)
    }
}
