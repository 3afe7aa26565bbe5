#![doc = include_str!("../README.md")]

mod bugs;

pub use bugs::{BUGS, Bug, Market};

/// The place of a bug in [`BUGS`]. The macro [`planted!`] calls it at compile time: a name that is not there does not compile.
///
/// # Panics
/// A name that is not in the table.
#[must_use]
pub const fn number(name: &str) -> usize {
    let mut place = 0;
    while place < BUGS.len() {
        if is_equal(BUGS[place].name.as_bytes(), name.as_bytes()) {
            return place;
        }
        place += 1;
    }
    panic!("no bug of this name is in the table")
}

/// The operator cannot be used at compile time.
const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut place = 0;
    while place < one.len() {
        if one[place] != other[place] {
            return false;
        }
        place += 1;
    }
    true
}

/// Whether the bug of this name is switched on: in an ordinary build the constant `false`.
///
/// Ask last, where the bug makes a difference: `is_due && planted!("...")`. Then a run that does not come there is known not to
/// depend on the bug.
#[cfg(not(tapeworks_bug))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {{
        const _IS_IN_THE_TABLE: usize = $crate::number($name);
        false
    }};
}

/// Whether the bug of this name is switched on: in an ordinary build the constant `false`.
///
/// Ask last, where the bug makes a difference: `is_due && planted!("...")`. Then a run that does not come there is known not to
/// depend on the bug.
#[cfg(tapeworks_bug)]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {{
        const PLACE: usize = $crate::number($name);
        $crate::is_chosen(PLACE)
    }};
}

#[cfg(tapeworks_bug)]
mod choice {
    use std::cell::Cell;

    use crate::BUGS;

    const _: () = assert!(BUGS.len() <= u128::BITS as usize, "one bit for each bug");

    thread_local! {
        static CHOSEN: Cell<usize> = const { Cell::new(usize::MAX) };
        static REACHED: Cell<u128> = const { Cell::new(0) };
    }

    /// Switches on the bug at this place of [`BUGS`], and no other, for what runs on this thread of the system; `None`: no bug.
    /// Forgets which places were reached.
    pub fn choose(place: Option<usize>) {
        CHOSEN.set(place.unwrap_or(usize::MAX));
        REACHED.set(0);
    }

    /// Whether this thread has come to where the bug would make a difference, since the last choice.
    #[must_use]
    pub fn is_reached(place: usize) -> bool {
        REACHED.get() & 1 << place != 0
    }

    /// Whether the bug at this place of [`BUGS`] is switched on.
    #[inline]
    #[must_use]
    pub fn is_chosen(place: usize) -> bool {
        REACHED.set(REACHED.get() | 1 << place);
        CHOSEN.get() == place
    }
}

#[cfg(tapeworks_bug)]
pub use choice::{choose, is_chosen, is_reached};
