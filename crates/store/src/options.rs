//! How files are written.

use crate::format::Format;

/// How prices stand in Parquet files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Prices {
    /// `DECIMAL(18, 9)`, stored as 64-bit integers: exact, and a decimal in SQL.
    #[default]
    Decimal,
    /// `DOUBLE`: the nearest binary fraction, for tools that calculate in them.
    Float,
    /// `INT64` in units of 1e-9, as in DBN, with the scale in the field's metadata.
    Fixed,
}

/// How Parquet pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    /// Not at all: the columns are bit-packed differences already.
    None,
    /// Snappy.
    #[default]
    Snappy,
    /// Zstandard at [`Options::zstd_level`].
    Zstd,
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Whether a file that exists is replaced.
    pub overwrite: bool,
    /// The format; `None`: chosen by the ending of the file's name.
    pub format: Option<Format>,
    /// Whether CSV and JSON have times in ISO 8601 and prices as decimals, not as integers.
    pub pretty: bool,
    /// How Parquet holds prices.
    pub prices: Prices,
    /// How Parquet is compressed.
    pub compression: Compression,
    /// The level of Zstandard, 1 to 22, wherever it is used.
    pub zstd_level: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            overwrite: false,
            format: None,
            pretty: false,
            prices: Prices::default(),
            compression: Compression::default(),
            zstd_level: 1,
        }
    }
}
