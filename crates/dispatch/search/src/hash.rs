//! A formula and its table of keys.

use crate::families::{Rank, Search};
use crate::formula::{Family, Formula};
use crate::set::{SearchError, Set, Width};

/// A perfect hash of a set of values: each has its own slot, and one comparison with the key in the slot shows whether a value is
/// of the set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfectHash {
    formula: Formula,
    width: Width,
    /// Ascending.
    values: Vec<u64>,
    /// One for each slot. An empty slot holds a value of another slot: no value looked up there equals it.
    keys: Vec<u64>,
}

/// The cheapest perfect hash of the values, in the narrowest width that holds them.
///
/// The same set gives the same hash, in whatever order it comes.
///
/// # Errors
/// No values, more than [`MAX_VALUES`](crate::MAX_VALUES), or one of them twice. There is no set without a hash.
pub fn find(values: &[u64]) -> Result<PerfectHash, SearchError> {
    find_in(values, None)
}

/// As [`find`], of values of a given width; `None` is the narrowest.
///
/// # Errors
/// As [`find`]; and a value that the width cannot hold.
pub fn find_in(values: &[u64], width: Option<Width>) -> Result<PerfectHash, SearchError> {
    let set = Set::new(values, width)?;
    let mut search = Search::new(&set);
    for family in Family::ALL {
        search.run(family);
    }
    // The last family leaves a best behind if those before it have not.
    let formula = search.into_best().ok_or(SearchError::Empty)?;
    Ok(PerfectHash::new(formula, set))
}

/// The cheapest of each family, in the order of [`Family::ALL`]; `None` where a family has none within its limits.
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

    /// The formula.
    #[must_use]
    pub const fn formula(&self) -> &Formula {
        &self.formula
    }

    /// The width of the values.
    #[must_use]
    pub const fn width(&self) -> Width {
        self.width
    }

    /// The values, ascending.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The keys by slot. Where [`is_checked_by_bound`](Self::is_checked_by_bound) nothing reads them.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// How many slots there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.keys.len()
    }

    /// Values to a slot, 1 at most.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.values.len() as f64 / self.size() as f64
    }

    /// Whether the values are a range, so that a bound excludes the others and there is no table.
    #[must_use]
    pub fn is_checked_by_bound(&self) -> bool {
        self.formula.family() == Family::Direct && self.size() == self.values.len()
    }

    fn rank(&self) -> Rank {
        Rank::of(&self.formula, self.values.len(), self.width)
    }

    /// Bytes of the tables: keys, and displacements where there are.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.rank().bytes
    }

    /// Instructions of the formula and the comparison.
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.rank().instructions
    }

    /// What the search minimises, in cycles: see [the rule](crate#the-rule).
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.rank().cost
    }

    /// The slot of `value`, below [`size`](Self::size); `None` if it is not of the set.
    #[must_use]
    pub fn index(&self, value: u64) -> Option<usize> {
        if value > self.width.greatest() {
            return None;
        }
        let slot = self.formula.slot(value, self.width);
        (self.keys.get(slot) == Some(&value)).then_some(slot)
    }
}
