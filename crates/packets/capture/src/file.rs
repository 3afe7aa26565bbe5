//! Capture files: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), read and written.
//!
//! [`CaptureReader`] hands out one packet at a time, as a slice of the mapped file or of the stream's buffer. The
//! first bytes determine the format and the compression. [`Writer`] writes either format.
//!
//! Cost per packet of a mapped file: one read of its record header (16 bytes; 28 in pcapng), with no copy and no allocation.
//! The packet's own bytes are not touched. Most of the time goes into page faults, as with any mapped file.

mod pcap;
mod pcapng;
mod reader;
mod writer;

use std::path::Path;

pub use reader::{CaptureReader, CapturedDatagram, CapturedPacket, Tally};
pub use writer::{Format, Resolution, Writer, WriterOptions};

pub use crate::link_type::LinkType;

use crate::error::CaptureError;
use crate::source::ByteSource;

/// Maximum captured length of a packet: tcpdump's `MAXIMUM_SNAPLEN`. A file that claims more is damaged.
pub const MAX_CAPTURED_BYTES: usize = 256 << 10;

/// Longest pcapng block held in memory; a longer block is accepted only if it is skipped anyway.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

/// A file's format, detected from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A pcap file, of either byte order and either resolution.
    Pcap,
    /// A pcapng file.
    PcapNg,
    /// Neither: perhaps a framed file, see [`crate::framed`].
    Unknown,
}

impl FileKind {
    /// Recognizes the magic number at the start of `first_bytes` (four are enough), which must not be compressed.
    pub fn detect(first_bytes: &[u8]) -> Self {
        match first_bytes.first_chunk() {
            Some(magic) if pcap::Header::magic(*magic).is_some() => Self::Pcap,
            Some(magic) if *magic == pcapng::SECTION_HEADER.to_be_bytes() => Self::PcapNg,
            _ => Self::Unknown,
        }
    }
}

/// Detects the format of the file at `path`, looking inside gzip and zstd.
///
/// # Errors
/// As [`ByteSource::open`], and [`CaptureError::Decompress`] if not even the first bytes can be decompressed.
pub fn detect(path: &Path) -> Result<FileKind, CaptureError> {
    let mut source = ByteSource::open(path)?;
    let kind = FileKind::detect(source.fill(4));
    match source.take_failure() {
        Some(failure) => Err(failure),
        None => Ok(kind),
    }
}

/// What lies ahead in the window. It depends only on the bytes and the file's state, so mapped files, streams and tests share
/// the code that finds it.
enum Step {
    /// A whole packet.
    Packet(Record),
    /// This many bytes hold no packet; they may reach beyond the window.
    Skip(u64),
    /// At least this many bytes, more than were given, are needed to decide.
    More(usize),
}

/// Where a packet lies in the window.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// Index of the packet's first byte.
    start: usize,
    /// The packet's captured length in bytes.
    captured: usize,
    /// Index of the first byte after the record.
    end: usize,
    timestamp_ns: u64,
    original_length: u32,
    link_type: LinkType,
}

/// Why the bytes ahead cannot be a record. The reader adds the file, the packet's number and the offset.
#[derive(Debug)]
enum Fault {
    AbsurdLength { length: u64 },
    BadBlock { length: u32, problem: &'static str },
    UnknownInterface { interface: u32, described: usize },
}

/// The byte order of a file or section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    #[inline]
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }
}

/// Returns the four bytes at `at`. `N` and the index are known at compile time, so no bounds check remains.
#[inline(always)]
fn four<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}
