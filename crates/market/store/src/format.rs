//! File formats, chosen by the file's extension.

use std::path::Path;
use std::str::FromStr;

use tapeworks_capture::new_file;

use crate::error::{StoreError, list};

/// The encoding of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// Databento Binary Encoding, version 3.
    Dbn,
    /// The same, compressed with Zstandard.
    DbnZstd,
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header line.
    Csv,
    /// The same, compressed with Zstandard.
    CsvZstd,
    /// One JSON object per line.
    Json,
    /// The same, compressed with Zstandard.
    JsonZstd,
}

impl Format {
    /// Every known extension with its format. A longer extension precedes a shorter one that it ends with.
    pub const ENDINGS: [(&'static str, Self); 9] = [
        (".dbn.zst", Self::DbnZstd),
        (".dbn", Self::Dbn),
        (".parquet", Self::Parquet),
        (".csv.zst", Self::CsvZstd),
        (".csv", Self::Csv),
        (".json.zst", Self::JsonZstd),
        (".json", Self::Json),
        (".jsonl.zst", Self::JsonZstd),
        (".jsonl", Self::Json),
    ];

    /// Returns the format for the extension of `path`, ignoring case.
    ///
    /// # Errors
    /// [`StoreError::UnknownEnding`] for an unknown extension, [`StoreError::NoFormat`] for standard output.
    pub fn from_path(path: &Path) -> Result<Self, StoreError> {
        if new_file::is_stdout(path) {
            return Err(StoreError::NoFormat { expected: list(Self::names()) });
        }
        let name =
            path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        Self::ENDINGS
            .iter()
            .find(|(ending, _)| name.len() > ending.len() && name.ends_with(ending))
            .map(|(_, format)| *format)
            .ok_or_else(|| StoreError::UnknownEnding {
                path: path.to_owned(),
                expected: list(Self::ENDINGS.iter().map(|(ending, _)| *ending)),
            })
    }

    /// Returns the name of every format, for users to choose one.
    pub fn names() -> impl Iterator<Item = &'static str> {
        [Self::Csv, Self::CsvZstd, Self::Json, Self::JsonZstd, Self::Dbn, Self::DbnZstd, Self::Parquet]
            .into_iter()
            .map(Self::name)
    }

    /// Returns the format's name: its extension without the dot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dbn => "dbn",
            Self::DbnZstd => "dbn.zst",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::CsvZstd => "csv.zst",
            Self::Json => "json",
            Self::JsonZstd => "json.zst",
        }
    }

    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Json)
    }

    pub(crate) const fn is_zstd(self) -> bool {
        matches!(self, Self::DbnZstd | Self::CsvZstd | Self::JsonZstd)
    }
}

impl FromStr for Format {
    type Err = StoreError;

    fn from_str(name: &str) -> Result<Self, StoreError> {
        let known = |(ending, _): &&(&str, Self)| ending.strip_prefix('.') == Some(name);
        let found = Self::ENDINGS.iter().find(known).map(|(_, format)| *format);
        found
            .ok_or_else(|| StoreError::UnknownFormat { name: name.to_owned(), expected: list(Self::names()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_ending_selects_the_format() {
        for (ending, format) in Format::ENDINGS {
            assert_eq!(Format::from_path(Path::new(&format!("/a.b/day{ending}"))).unwrap(), format);
        }
        assert_eq!(Format::from_path(Path::new("DAY.CSV")).unwrap(), Format::Csv);
    }

    #[test]
    fn the_error_of_an_unknown_ending_lists_the_known_ones() {
        for path in ["day.txt", "day", ".dbn", "", "day.zst", "/dev/full"] {
            let message = Format::from_path(Path::new(path)).unwrap_err().to_string();
            assert!(message.contains(".dbn.zst") && message.contains(".jsonl"), "{message}");
        }
    }
}
