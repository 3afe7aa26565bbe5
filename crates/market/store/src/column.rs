//! A column of a table, as Parquet and Arrow describe it.

use crate::options::Prices;

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An unsigned number with this many bits.
    Unsigned(i8),
    /// A signed 32-bit number.
    Signed,
    /// A signed 64-bit number.
    Long,
    /// Nanoseconds UTC.
    Time,
    /// A price.
    Price(Prices),
    /// Dictionary-encoded text.
    Text,
}

/// A column without its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) is_optional: bool,
}
