//! How a file is encoded: told by its ending.

use std::path::Path;

use crate::error::StoreError;

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
    /// Every known ending with its format. A longer ending comes before a shorter one it contains.
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

    /// The format that the ending of `path` tells, in upper or lower case.
    ///
    /// # Errors
    /// [`StoreError::UnknownEnding`] for any other.
    pub fn from_path(path: &Path) -> Result<Self, StoreError> {
        let name =
            path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        Self::ENDINGS
            .iter()
            .find(|(ending, _)| name.len() > ending.len() && name.ends_with(ending))
            .map(|(_, format)| *format)
            .ok_or_else(|| StoreError::UnknownEnding { path: path.to_owned() })
    }

    pub(crate) const fn is_zstd(self) -> bool {
        matches!(self, Self::DbnZstd | Self::CsvZstd | Self::JsonZstd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_tells_the_format() {
        for (ending, format) in Format::ENDINGS {
            assert_eq!(Format::from_path(Path::new(&format!("/a.b/day{ending}"))).unwrap(), format);
        }
        assert_eq!(Format::from_path(Path::new("DAY.CSV")).unwrap(), Format::Csv);
    }

    #[test]
    fn an_unknown_ending_is_told_with_those_there_are() {
        for path in ["day.txt", "day", ".dbn", "", "day.zst", "/dev/full"] {
            let message = Format::from_path(Path::new(path)).unwrap_err().to_string();
            assert!(message.contains(".dbn.zst") && message.contains(".jsonl"), "{message}");
        }
    }
}
