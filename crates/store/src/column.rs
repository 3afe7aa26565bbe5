//! A column of a table, as Parquet and Arrow describe it.

use crate::options::Prices;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An unsigned number of so many bits.
    Unsigned(i8),
    /// A signed number of 32 bits.
    Signed,
    /// A signed number of 64 bits.
    Long,
    /// Nanoseconds UTC.
    Time,
    /// A price.
    Price(Prices),
    /// Text, by dictionary.
    Text,
}

/// A column before there are rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) is_optional: bool,
}
