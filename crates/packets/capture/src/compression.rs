//! Detects how a file is compressed.

use std::fmt;

/// The compression of a file, recognized by its first bytes and not by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip (RFC 1952), of one or several members.
    Gzip,
    /// Zstandard (RFC 8878), of one or several frames.
    Zstd,
}

/// Returns the name of a compression that is not supported and the command that decompresses it.
pub(crate) fn unsupported(first_bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    match first_bytes {
        [0xfd, b'7', b'z', b'X', ..] => Some(("xz", "xz -d")),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(("bzip2", "bzip2 -d")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(("lz4", "lz4 -d")),
        [b'P', b'K', 3, 4, ..] => Some(("zip", "unzip")),
        _ => None,
    }
}

impl Compression {
    /// Recognizes the magic number at the start of `first_bytes`.
    pub fn detect(first_bytes: &[u8]) -> Self {
        match first_bytes {
            // RFC 1952, section 2.3.1: ID1, ID2, and the only compression method in use.
            [0x1f, 0x8b, 0x08, ..] => Self::Gzip,
            // RFC 8878, section 3.1.1: a Zstandard frame; 3.1.2: a skippable frame, which pzstd puts first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}
