//! The journal: everything that entered, in order, on disk.
//!
//! A journal is a folder of *segments*, files of a fixed size that are reserved on the disk when they begin, so that a
//! full disk is met at a segment's start and not in its middle. A segment is named after the number of its first record.
//! It has a header of 64 bytes and then records: 40 bytes of header and the payload, each with a CRC-32 over both. What
//! follows the last record is zeros.
//!
//! | offset | record's header | |
//! | --- | --- | --- |
//! | 0 | CRC-32 | u32, of all that follows it in the record |
//! | 4 | payload length | u32, bytes |
//! | 8 | number | u64, from 0, one more than the record before |
//! | 16 | time | u64, ns since 1970-01-01 00:00 UTC |
//! | 24 | extra | u64, by kind |
//! | 32 | channel | u16 |
//! | 34 | kind | u8 |
//! | 35 | line | u8 |
//! | 36 | zero | 4 bytes |
//!
//! All little-endian. What kinds mean is the writer's business, but for [`LOST`]. A [`JournalWriter`] appends, a
//! [`JournalReader`] reads and follows, [`verify`] checks a whole journal, [`repair`] mends one.
//!
//! After a crash the last record may be torn: no sound record follows it. The writer cuts it off when it opens the journal,
//! and keeps a copy. Damage elsewhere costs only the records that it hit: a reader gives a record of the kind [`LOST`] in
//! their place, which tells how many they are, and goes on with the next sound record.
//!
//! Nothing here has a clock or a thread. Cost of a record: a copy into the buffer and the CRC, some 15 ns for 100 bytes;
//! one system call for every [`BUFFER_BYTES`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

mod check;
mod chore;
mod reader;
mod repair;
mod scan;
mod writer;

pub use check::{Damage, Verified, verify};
pub use chore::{Chore, Finished};
pub use reader::JournalReader;
pub use repair::{Repaired, repair};
pub use writer::{JournalOptions, JournalWriter, Opened};

/// Bytes collected before they are written.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The longest payload of a record, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// The kind of a record that stands for others which are not there; `extra` is how many.
///
/// They could not be written, and never had numbers; or they were damaged later, and `number` is that of the last of them
/// (`line` is then [`NUMBERED`]).
pub const LOST: u8 = u8::MAX;

/// The `line` of a record of the kind [`LOST`] that stands for records which had numbers.
pub const NUMBERED: u8 = 1;

const SEGMENT_HEADER_BYTES: u64 = 64;
const RECORD_HEADER_BYTES: usize = 40;
const MAGIC: [u8; 8] = *b"TAPEJNL1";
const ENDING: &str = "journal";

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record<'a> {
    /// Its number in the journal; given by the writer.
    pub number: u64,
    /// Its time. The index by time takes it to be in order, but for a second.
    pub time: u64,
    /// What it is.
    pub kind: u8,
    /// By kind.
    pub line: u8,
    /// By kind.
    pub channel: u16,
    /// By kind.
    pub extra: u64,
    /// The rest.
    pub payload: &'a [u8],
}

/// Why a journal cannot be used.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// The system refused.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another process writes to it.
    #[error("{}: another process writes this journal", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// A payload that is too long.
    #[error("a payload of {bytes} bytes is longer than {MAX_PAYLOAD_BYTES}")]
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// Whoever asked for a long work wants it no more.
    #[error("stopped")]
    Stopped,
}

impl JournalError {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}

/// Waits until the disk has the names in a folder. A file system that cannot sync folders keeps them as it can: that is no error.
///
/// # Errors
/// What the operating system says.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

fn failed<'p>(path: &'p Path, what: &'static str) -> impl FnOnce(io::Error) -> JournalError + use<'p> {
    move |source| JournalError::Io { path: path.to_owned(), what, source }
}

/// A segment's file, by the number of its first record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Segment {
    path: PathBuf,
    first: u64,
}

fn segment_path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}.{ENDING}"))
}

/// The segments of a journal, in order.
fn segments(folder: &Path) -> Result<Vec<Segment>, JournalError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder, "cannot list the journal"))? {
        let path = entry.map_err(failed(folder, "cannot list the journal"))?.path();
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Some(first) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            all.push(Segment { path, first });
        }
    }
    all.sort_by_key(|segment| segment.first);
    Ok(all)
}

/// The numbers of the first records of a journal's segments, in order.
///
/// # Errors
/// A folder that cannot be listed.
pub fn segment_starts(folder: &Path) -> Result<Vec<u64>, JournalError> {
    Ok(segments(folder)?.into_iter().map(|segment| segment.first).collect())
}

/// The time of a journal's last record; `None` when it has none. Cost: a read of the last segment.
///
/// # Errors
/// As [`JournalReader::next`].
pub fn last_time(folder: &Path) -> Result<Option<u64>, JournalError> {
    for segment in segments(folder)?.iter().rev() {
        let mut reader = JournalReader::at_segment(folder, segment.first);
        let mut last = None;
        while let Some(record) = reader.next()? {
            last = Some(record.time);
        }
        // A segment may have begun without a record.
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}

/// Whether the journal has this file: a segment, or bytes of one that were set aside.
#[must_use]
pub fn is_journal_file(path: &Path) -> bool {
    segment_of(path).is_some()
}

/// The number that a segment, or what was set aside of it, is named by.
fn segment_of(path: &Path) -> Option<u64> {
    let (number, rest) = path.file_name()?.to_str()?.split_once('.')?;
    let is_ours = rest == ENDING || rest.starts_with(TORN) || rest.starts_with(DAMAGED);
    number.parse().ok().filter(|_| is_ours && number.len() == 20)
}

/// The beginnings of the endings of files in which bytes of a segment are set aside; their offset in it follows.
const TORN: &str = "torn-";
const DAMAGED: &str = "damaged-";

/// The files in which bytes of the segment that is named by `first` are set aside.
fn set_aside_of(folder: &Path, first: u64) -> Result<Vec<PathBuf>, JournalError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder, "cannot list the journal"))? {
        let path = entry.map_err(failed(folder, "cannot list the journal"))?.path();
        if segment_of(&path) == Some(first) && path.extension().is_none_or(|ending| ending != ENDING) {
            all.push(path);
        }
    }
    Ok(all)
}

/// Copies `bytes` of the segment at `path` into a file beside it, and waits until the disk has it. Returns its path.
fn set_aside(
    file: &File,
    path: &Path,
    ending: &str,
    bytes: std::ops::Range<u64>,
) -> Result<PathBuf, JournalError> {
    let mut tries = 0u32;
    loop {
        // The same place may be torn more than once.
        let again = if tries == 0 { String::new() } else { format!(".{tries}") };
        let to = path.with_extension(format!("{ending}{}{again}", bytes.start));
        match scan::copy_aside(file, bytes.clone(), &to) {
            Ok(()) => return Ok(to),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 1_000 => tries += 1,
            Err(error) => return Err(failed(&to, "cannot be written")(error)),
        }
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SegmentHeader {
    first: u64,
    /// The time of its first record.
    time: u64,
}

/// What lies at the beginning of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Head {
    /// The header of the segment that its name says.
    Sound(SegmentHeader),
    /// Zeros, or too few bytes: not written yet.
    Unwritten,
    /// Something else, and what is wrong with it.
    Damaged(&'static str),
}

impl SegmentHeader {
    fn encode(self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of the segment that is named by `first`.
    fn read(file: &File, path: &Path, first: u64) -> Result<Head, JournalError> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let got = read_at(file, &mut bytes, 0).map_err(failed(path, "cannot be read"))?;
        if got < bytes.len() || bytes == [0; SEGMENT_HEADER_BYTES as usize] {
            return Ok(Head::Unwritten);
        }
        Ok(if bytes[..8] != MAGIC {
            Head::Damaged("not the header of a segment")
        } else if crc32fast::hash(&bytes[..24]) != u32_at(&bytes, 24) {
            Head::Damaged("its header is damaged")
        } else if u64_at(&bytes, 8) != first {
            Head::Damaged("its header has another number than its name")
        } else {
            Head::Sound(Self { first, time: u64_at(&bytes, 16) })
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Record<'_> {
    /// Appends the record's bytes.
    fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        // Checked by the writer to be below 2^20.
        to.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        to.extend_from_slice(&self.number.to_le_bytes());
        to.extend_from_slice(&self.time.to_le_bytes());
        to.extend_from_slice(&self.extra.to_le_bytes());
        to.extend_from_slice(&self.channel.to_le_bytes());
        to.extend_from_slice(&[self.kind, self.line, 0, 0, 0, 0]);
        to.extend_from_slice(self.payload);
        let crc = crc32fast::hash(&to[start + 4..]);
        to[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// What lies at a place of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found<'b> {
    /// The record numbered as expected, and its bytes with the header.
    Record(Record<'b>, usize),
    /// More bytes are needed to tell.
    Cut { needed: usize },
    /// Zeros: nothing was written here.
    Nothing,
    /// Something else.
    Bad,
}

/// The number that the record with this header has, or the first of those that it stands for.
fn first_number(header: &[u8]) -> Option<u64> {
    let number = u64_at(header, 8);
    match header.get(34..36) {
        Some([LOST, NUMBERED]) => number.checked_sub(u64_at(header, 24).checked_sub(1)?),
        _ => Some(number),
    }
}

/// Looks at the bytes where the record `number` should begin, or one that stands for it and those behind it.
fn find(bytes: &[u8], number: u64) -> Found<'_> {
    let Some(header) = bytes.get(..RECORD_HEADER_BYTES) else {
        return Found::Cut { needed: RECORD_HEADER_BYTES };
    };
    if header.iter().all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    let length = u32_at(header, 4) as usize;
    if length > MAX_PAYLOAD_BYTES || first_number(header) != Some(number) {
        return Found::Bad;
    }
    let needed = RECORD_HEADER_BYTES + length;
    let Some(whole) = bytes.get(..needed) else { return Found::Cut { needed } };
    if crc32fast::hash(&whole[4..]) != u32_at(header, 0) {
        return Found::Bad;
    }
    let record = Record {
        number: u64_at(header, 8),
        time: u64_at(header, 16),
        extra: u64_at(header, 24),
        channel: u16::from_le_bytes([header[32], header[33]]),
        kind: header[34],
        line: header[35],
        payload: &whole[RECORD_HEADER_BYTES..],
    };
    Found::Record(record, needed)
}
