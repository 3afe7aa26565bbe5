//! Errors of capture files. Each is one line that names the file and, if known, the packet and its offset.

use std::{fmt, io};

use crate::compression::Compression;
use crate::stop;

/// Why a capture or framed file cannot be opened or read further.
///
/// Offsets count bytes from the start of the file; in a compressed file, from the start of its decompressed content. A reader
/// ends at its first error, after it has delivered all packets before the error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// There is no such file.
    #[error("{file}: no such file")]
    Missing {
        /// The file as the caller named it.
        file: Box<str>,
    },
    /// The path names a directory.
    #[error("{file}: is a directory, not a capture file")]
    Directory {
        /// The path as the caller named it.
        file: Box<str>,
    },
    /// This user has no permission to read the file.
    #[error("{file}: permission denied")]
    Permission {
        /// The file as the caller named it.
        file: Box<str>,
    },
    /// The file, or its decompressed content, is empty.
    #[error("{file}: is empty")]
    Empty {
        /// The file as the caller named it.
        file: Box<str>,
    },
    /// The operating system failed to open, map or read the file.
    #[error("{file}: cannot read at offset {offset}: {cause}")]
    Io {
        /// The file as the caller named it.
        file: Box<str>,
        /// Bytes read before the failure.
        offset: u64,
        /// The operating system's error.
        cause: io::Error,
    },
    /// A [stop of the process was requested](crate::stop) while the reader waited for the other end of a pipe.
    #[error("{file}: stopped waiting for it")]
    Stopped {
        /// The file as the caller named it.
        file: Box<str>,
    },
    /// The compressed bytes are damaged or end too early.
    #[error("{file}: {compression} data is damaged or cut after {offset} decompressed bytes: {cause}")]
    Decompress {
        /// The file as the caller named it.
        file: Box<str>,
        /// The compression that the file's first bytes announced.
        compression: Compression,
        /// Decompressed bytes delivered before the failure.
        offset: u64,
        /// The decompressor's error.
        cause: io::Error,
    },
    /// The file's compression is not supported.
    #[error(
        "{file}: is compressed with {compression}; only gzip and zstd are read, so decompress it first with {command}"
    )]
    UnsupportedCompression {
        /// The file as the caller named it.
        file: Box<str>,
        /// The compression that the first bytes announce.
        compression: &'static str,
        /// A command that decompresses it.
        command: &'static str,
    },
    /// The first bytes are neither pcap nor pcapng.
    #[error("{file}: neither pcap nor pcapng: starts with {first_bytes}")]
    UnknownFormat {
        /// The file as the caller named it.
        file: Box<str>,
        /// The bytes found where the magic number should be.
        first_bytes: FirstBytes,
    },
    /// The file ends inside the header at its start.
    #[error("{file}: the file header needs {need} bytes, the file has {got}")]
    TruncatedHeader {
        /// The file as the caller named it.
        file: Box<str>,
        /// Bytes the header needs.
        need: u64,
        /// Bytes in the file.
        got: u64,
    },
    /// The file ends inside a packet's record. The packets before it have been delivered.
    #[error("{file}: packet {number} at offset {offset}: record needs {need} bytes, {got} left")]
    TruncatedPacket {
        /// The file as the caller named it.
        file: Box<str>,
        /// The packet's number, from 1.
        number: u64,
        /// Offset of its record, at the record's header.
        offset: u64,
        /// Bytes that the record needs, as far as known.
        need: u64,
        /// Bytes left in the file.
        got: u64,
    },
    /// The file ends inside a message of a framed file. The messages before it have been delivered.
    #[error("{file}: message {number} at offset {offset}: frame needs {need} bytes, {got} left")]
    TruncatedFrame {
        /// The file as the caller named it.
        file: Box<str>,
        /// The message's number, from 1.
        number: u64,
        /// Offset of its length prefix.
        offset: u64,
        /// Bytes that the frame needs, including its length prefix.
        need: u64,
        /// Bytes left in the file.
        got: u64,
    },
    /// A packet claims more bytes than any capture tool writes: the file is damaged here.
    #[error(
        "{file}: packet {number} at offset {offset}: captured length {length} is over the limit of {limit}"
    )]
    AbsurdLength {
        /// The file as the caller named it.
        file: Box<str>,
        /// The packet's number, from 1.
        number: u64,
        /// Offset of its record.
        offset: u64,
        /// The claimed length in bytes.
        length: u64,
        /// The longest length accepted, in bytes.
        limit: u64,
    },
    /// A pcapng block is inconsistent.
    #[error("{file}: block at offset {offset} (before or at packet {number}), length {length}: {problem}")]
    BadBlock {
        /// The file as the caller named it.
        file: Box<str>,
        /// The number that the next packet would have had.
        number: u64,
        /// Offset of the block.
        offset: u64,
        /// The total length that the block claims, in bytes.
        length: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// A pcapng packet names an interface that its section has not described.
    #[error(
        "{file}: packet {number} at offset {offset}: interface {interface}, but the section describes {described}"
    )]
    UnknownInterface {
        /// The file as the caller named it.
        file: Box<str>,
        /// The packet's number, from 1.
        number: u64,
        /// Offset of its block.
        offset: u64,
        /// The interface that the packet names.
        interface: u32,
        /// How many interfaces the section has described so far.
        described: usize,
    },
}

impl CaptureError {
    /// Returns the file as the caller named it.
    pub fn file(&self) -> &str {
        match self {
            Self::Missing { file }
            | Self::Directory { file }
            | Self::Permission { file }
            | Self::Empty { file }
            | Self::Io { file, .. }
            | Self::Stopped { file }
            | Self::Decompress { file, .. }
            | Self::UnsupportedCompression { file, .. }
            | Self::UnknownFormat { file, .. }
            | Self::TruncatedHeader { file, .. }
            | Self::TruncatedPacket { file, .. }
            | Self::TruncatedFrame { file, .. }
            | Self::AbsurdLength { file, .. }
            | Self::BadBlock { file, .. }
            | Self::UnknownInterface { file, .. } => file,
        }
    }

    /// Returns the number of the faulty packet or message, from 1.
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::TruncatedPacket { number, .. }
            | Self::TruncatedFrame { number, .. }
            | Self::AbsurdLength { number, .. }
            | Self::BadBlock { number, .. }
            | Self::UnknownInterface { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Returns the offset of the error in the file, in bytes; for a compressed file, in decompressed bytes.
    pub const fn offset(&self) -> Option<u64> {
        match self {
            Self::Io { offset, .. }
            | Self::Decompress { offset, .. }
            | Self::TruncatedPacket { offset, .. }
            | Self::TruncatedFrame { offset, .. }
            | Self::AbsurdLength { offset, .. }
            | Self::BadBlock { offset, .. }
            | Self::UnknownInterface { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// Translates an error of opening a file, naming the usual reasons.
    pub(crate) fn from_open(file: &str, cause: io::Error) -> Self {
        let file = file.into();
        match cause.kind() {
            _ if stop::is_stopped(&cause) => Self::Stopped { file },
            io::ErrorKind::NotFound => Self::Missing { file },
            io::ErrorKind::PermissionDenied => Self::Permission { file },
            io::ErrorKind::IsADirectory => Self::Directory { file },
            _ => Self::Io { file, offset: 0, cause },
        }
    }
}

/// Up to the first eight bytes of a file, shown as hexadecimal pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstBytes {
    bytes: [u8; 8],
    length: usize,
}

impl FirstBytes {
    /// Keeps the first eight bytes of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let length = bytes.len().min(8);
        let mut kept = [0; 8];
        kept[..length].copy_from_slice(&bytes[..length]);
        Self { bytes: kept, length }
    }

    /// Returns the bytes kept.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Display for FirstBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.as_bytes().iter().enumerate() {
            if index > 0 {
                formatter.write_str(" ")?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}
