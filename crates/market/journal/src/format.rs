//! The encoding of segments and records, as in the table in the [crate's documentation](crate).

use std::path::Path;

use tapeworks_disk::DiskFile;
use tapeworks_planted::planted;

use crate::error::{JournalError, failed};

/// Number of buffered bytes from which the buffer is written.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Maximum payload of a record in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// The kind of a record that counts lost records; `extra` is how many.
///
/// Either they could not be written and never had numbers, or they were damaged later: then `line` is [`NUMBERED`], and
/// `number` is that of the last of them.
pub const LOST: u8 = u8::MAX;

/// The `line` of a [`LOST`] record whose lost records had numbers.
pub const NUMBERED: u8 = 1;

pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
pub(crate) const MAGIC: [u8; 8] = *b"TAPEJNL1";

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record<'a> {
    /// Number in the journal; assigned by the writer.
    pub number: u64,
    /// The record's time. The index by time assumes that times are in order, give or take a second.
    pub time: u64,
    /// Kind, defined by the application except for [`LOST`].
    pub kind: u8,
    /// Depends on the kind.
    pub line: u8,
    /// Depends on the kind.
    pub channel: u16,
    /// Depends on the kind.
    pub extra: u64,
    /// Payload.
    pub payload: &'a [u8],
}

/// The fields of a segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) first: u64,
    /// Time of the first record.
    pub(crate) time: u64,
}

/// What the start of a segment contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Head {
    /// The header that matches the segment's name.
    Sound(SegmentHeader),
    /// Zeros or too few bytes: not written yet.
    Unwritten,
    /// Other bytes, with a description of the error.
    Damaged(&'static str),
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of the segment `first`.
    pub(crate) fn read(file: &impl DiskFile, path: &Path, first: u64) -> Result<Head, JournalError> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let got = file.read_full_at(&mut bytes, 0).map_err(failed(path, "cannot be read"))?;
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

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The result of `Record::decode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'b> {
    /// A sound record, and its encoded length including the header.
    Record(Record<'b>, usize),
    /// More bytes are needed.
    Cut,
    /// Not the bytes of a record.
    Bad,
}

impl<'b> Record<'b> {
    /// Decodes the record at the start of `bytes`, without knowing its number in advance.
    pub fn decode(bytes: &'b [u8]) -> Decoded<'b> {
        let Some(number) = bytes.get(..RECORD_HEADER_BYTES).map(first_number) else { return Decoded::Cut };
        match number.map(|number| find(bytes, number)) {
            Some(Found::Record(record, length)) => Decoded::Record(record, length),
            Some(Found::Cut { .. }) => Decoded::Cut,
            Some(Found::Nothing | Found::Bad) | None => Decoded::Bad,
        }
    }
}

impl Record<'_> {
    /// Appends the record's encoding as in a segment. The payload must be at most [`MAX_PAYLOAD_BYTES`] long.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        // The writer checks that it is at most 2^20.
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

/// What a position in a segment contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found<'b> {
    /// The record with the expected number, and its encoded length including the header.
    Record(Record<'b>, usize),
    /// More bytes are needed to decide.
    Cut { needed: usize },
    /// Zeros: nothing has been written here.
    Nothing,
    /// Anything else.
    Bad,
}

/// Returns the record's number, or for a count of lost records the number of the first of them.
pub(crate) fn first_number(header: &[u8]) -> Option<u64> {
    let number = u64_at(header, 8);
    match header.get(34..36) {
        Some([LOST, NUMBERED]) => number.checked_sub(u64_at(header, 24).checked_sub(1)?),
        _ => Some(number),
    }
}

/// Decodes the record `number`, or a record that counts it as lost, at the start of `bytes`.
pub(crate) fn find(bytes: &[u8], number: u64) -> Found<'_> {
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
    if crc32fast::hash(&whole[4..]) != u32_at(header, 0) && !planted!("record-not-checked") {
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
