//! Options for writing files.

use crate::format::Format;

/// The representation of prices in Parquet files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Prices {
    /// `DECIMAL(18, 9)`, stored as 64-bit integers: exact, and a decimal in SQL.
    #[default]
    Decimal,
    /// `DOUBLE`: the nearest binary fraction, for tools that calculate in floating point.
    Float,
    /// `INT64` in units of 1e-9, as in DBN, with the scale in the field's metadata.
    Fixed,
}

/// The compression of Parquet pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    /// None: the columns are bit-packed differences already.
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
    /// Whether to replace an existing file.
    pub overwrite: bool,
    /// The format; `None` chooses it by the file's extension.
    pub format: Option<Format>,
    /// Whether CSV and JSON use ISO 8601 times and decimal prices instead of integers.
    pub pretty: bool,
    /// The representation of prices in Parquet.
    pub prices: Prices,
    /// The compression of Parquet.
    pub compression: Compression,
    /// The Zstandard level, 1 to 22, wherever Zstandard is used.
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
