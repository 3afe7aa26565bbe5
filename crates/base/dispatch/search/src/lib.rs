//! Finds the cheapest perfect hash of a set of message types, in milliseconds.
//!
//! A protocol has a few dozen message types, which are numbers. A perfect hash gives each type its own slot, so that its data (a
//! function, a length, a counter) is one load away. [`find`] searches several families of formulas and returns the cheapest; it
//! finds one for every set of up to [`MAX_VALUES`] values. The slot also holds the key, so one comparison shows whether a value
//! is in the set.
//!
//! ```
//! // FIX: logon, heartbeat, test request, new order, cancel, replace.
//! let hash = tapeworks_dispatch_search::find(b"A01DFG".map(u64::from).as_slice())?;
//! assert_eq!(hash.formula().to_string(), "value & 0x1f");
//! assert!(hash.index(b'D'.into()).is_some());
//! assert_eq!(hash.index(b'E'.into()), None);
//! println!("{}", hash.rust_module());
//! # Ok::<(), tapeworks_dispatch_search::SearchError>(())
//! ```
//!
//! # Families
//!
//! | family | formula | suits |
//! | --- | --- | --- |
//! | direct | `value - smallest` | dense values |
//! | shift-mask | `(value >> s) & m` | values that differ in adjacent bits: most of ASCII |
//! | mix | `((value ^ (value >> s)) >> t) & m`, also with `+` and `-` | values that differ in two places |
//! | extract | `((value >> s1) & m1) \| ((value >> s2) & m2)`, up to four parts | values that differ in a few bits |
//! | multiply-shift | `(value * factor) >> s` | a few dozen values of any kind |
//! | xor-modulo | `(value ^ key) % size` | small sets, in tables of any size |
//! | displace | a hash whose lower bits a small table corrects | every set |
//!
//! # The rule
//!
//! The cheapest formula has the least *cost*: the cycles from the value to the result of the comparison (logic, shifts and
//! additions 1, a multiplication 3, a load 5), plus one for each doubling of the tables beyond one cache line of 64 bytes. Ties
//! go to fewer instructions, then the smaller table, then the family listed first, then the formula found first. Values are
//! sorted before the search and random factors have a fixed seed, so the same set gives the same function in any order.
//!
//! The cycles are a model for comparing formulas; the benchmark measures real processors.
//!
//! # Cost of the search
//!
//! Microseconds for the types of a protocol, a millisecond for a hundred random numbers, and a few tenths of a second for the
//! largest sets. A table has at most 32 slots per value; the rule determines how many.

mod families;
mod formula;
mod hash;
mod rust;
mod set;
pub mod values;

pub use formula::{Family, Formula, Operator, Part};
pub use hash::{PerfectHash, compare, find, find_in};
pub use set::{MAX_VALUES, SearchError, Width};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
