//! Capture files: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), read and written.
//!
//! [`CaptureReader`] hands out one packet at a time, as a slice of the mapped file or of the stream's buffer. The
//! first bytes determine the format and the compression. [`Writer`] writes either format.
//!
//! Cost of a packet from a mapped file: its record's header is read once (16 bytes, in pcapng 28), with no copy and
//! no allocation; the packet's own bytes are not touched. Most of the time
//! goes into the page faults that any map has.

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

/// The most captured bytes that a packet may have: tcpdump's `MAXIMUM_SNAPLEN`. A file that claims more is damaged.
pub const MAX_CAPTURED_BYTES: usize = 256 << 10;

/// The longest pcapng block held in memory: more is accepted only for a block that is skipped anyway.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

/// The kind of a file, from its first bytes.
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
    /// Recognises the magic number at the start of `first_bytes` (four are enough), which are not compressed.
    pub fn detect(first_bytes: &[u8]) -> Self {
        match first_bytes.first_chunk() {
            Some(magic) if pcap::Header::magic(*magic).is_some() => Self::Pcap,
            Some(magic) if *magic == pcapng::SECTION_HEADER.to_be_bytes() => Self::PcapNg,
            _ => Self::Unknown,
        }
    }
}

/// Finds the kind of the file at `path`, also inside gzip and zstd.
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

/// The next item of the bytes ahead. A pure function of the bytes and the file's state finds it, so that mapped files, streams
/// and tests share it.
enum Step {
    /// A whole packet.
    Packet(Record),
    /// So many bytes that hold no packet; they may reach beyond the window.
    Skip(u64),
    /// At least so many bytes, more than were given, are needed to decide.
    More(usize),
}

/// Where a packet lies in the window shown.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// First of the packet's bytes.
    start: usize,
    /// The number of captured bytes of the packet.
    captured: usize,
    /// First byte after the record.
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

/// The four bytes at `at` of an array that is longer than that: an index known at compile time, so no check remains.
#[inline(always)]
fn four<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}
