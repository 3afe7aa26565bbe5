//! Reading a journal, and following one that grows.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tapeworks_market::Nanos;

use super::{
    Found, JournalError, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, failed,
    find, read_at, segment_path, segments,
};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// How far the times of records may be out of order, for the index by time.
const SLACK: u64 = Nanos::SECOND;

#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    /// Where the next record begins.
    offset: u64,
}

/// Reads the records of a journal in order. At the end of one that is still written, ask again later.
#[derive(Debug)]
pub struct JournalReader {
    folder: PathBuf,
    open: Option<Open>,
    next: u64,
    /// Bytes of the segment from `open.offset` on.
    buffer: Vec<u8>,
    filled: usize,
    used: usize,
}

impl JournalReader {
    /// At the beginning of the journal in `folder`.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let first = segments(folder)?.first().map_or(0, |segment| segment.first);
        Ok(Self::at_segment(folder, first))
    }

    pub(super) fn at_segment(folder: &Path, first: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            open: None,
            next: first,
            buffer: vec![0; READ_BYTES],
            filled: 0,
            used: 0,
        }
    }

    /// At the record `number`, or the first one there is if that is later.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn from_number(folder: &Path, number: u64) -> Result<Self, JournalError> {
        let all = segments(folder)?;
        let at = all.partition_point(|segment| segment.first <= number).saturating_sub(1);
        let mut reader = Self::at_segment(folder, all.get(at).map_or(number, |segment| segment.first));
        while reader.next < number && reader.next()?.is_some() {}
        Ok(reader)
    }

    /// At the record `number`; `None` when it is not there, because it was removed to make room or is still to come behind others.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn at_number(folder: &Path, number: u64) -> Result<Option<Self>, JournalError> {
        let reader = Self::from_number(folder, number)?;
        Ok((reader.next == number).then_some(reader))
    }

    /// At the first record of the segment in which `time` lies, or of the one before it: all records from `time` on
    /// follow. Segments are the index.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn from_time(folder: &Path, time: Nanos) -> Result<Self, JournalError> {
        let mut at = None;
        for Segment { path, first } in segments(folder)? {
            let file = File::open(&path).map_err(failed(&path, "cannot be opened"))?;
            let Some(header) = SegmentHeader::read(&file, &path)? else { break };
            if at.is_some() && header.time.0 > time.0.saturating_sub(SLACK) {
                break;
            }
            at = Some(first);
        }
        Ok(Self::at_segment(folder, at.unwrap_or(0)))
    }

    /// The number of the record that comes next.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// The next record; `None` when there is no more yet.
    ///
    /// # Errors
    /// A file that cannot be read; a record that is damaged though others follow it in a later segment.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        loop {
            let Some(open) = &mut self.open else {
                if !self.open_segment()? {
                    return Ok(None);
                }
                continue;
            };
            let (needed, is_whole) = match find(&self.buffer[self.used..self.filled], self.next) {
                Found::Record(_, length) => (length, true),
                Found::Cut { needed } => (needed, false),
                Found::Nothing | Found::Bad => (0, false),
            };
            if is_whole {
                let start = self.used;
                self.used += needed;
                open.offset += needed as u64;
                self.next += 1;
                return match find(&self.buffer[start..start + needed], self.next - 1) {
                    Found::Record(record, _) => Ok(Some(record)),
                    // The same bytes were a record a moment ago.
                    _ => Ok(None),
                };
            }
            // What the buffer holds may be older than what the file holds now.
            if self.refill(needed.max(RECORD_HEADER_BYTES))? {
                continue;
            }
            if !self.next_segment()? {
                return Ok(None);
            }
        }
    }

    /// Reads anew from where the next record begins. Whether it is there now.
    fn refill(&mut self, needed: usize) -> Result<bool, JournalError> {
        let Some(open) = &self.open else { return Ok(false) };
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.used = 0;
        self.filled = read_at(&open.file, &mut self.buffer, open.offset)
            .map_err(failed(&open.path, "cannot be read"))?;
        match find(&self.buffer[..self.filled], self.next) {
            Found::Record(..) => Ok(true),
            Found::Cut { needed } if needed > self.buffer.len() => self.refill(needed),
            _ => Ok(false),
        }
    }

    /// Whether the segment that begins with the next record is there.
    fn open_segment(&mut self) -> Result<bool, JournalError> {
        let path = segment_path(&self.folder, self.next);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(&path, "cannot be opened")(error)),
        };
        match SegmentHeader::read(&file, &path)? {
            None => Ok(false),
            Some(header) if header.first != self.next => {
                Err(JournalError::NotASegment { path, what: "its header has another number than its name" })
            }
            Some(_) => {
                self.open = Some(Open { path, file, offset: SEGMENT_HEADER_BYTES });
                (self.used, self.filled) = (0, 0);
                Ok(true)
            }
        }
    }

    /// At the end of what this segment holds: goes to the next one, if it is there.
    fn next_segment(&mut self) -> Result<bool, JournalError> {
        let Some(open) = &self.open else { return Ok(false) };
        if segment_path(&self.folder, self.next) != open.path
            && segment_path(&self.folder, self.next).exists()
        {
            // The segment may have grown between the look into it and the look for its successor.
            if self.refill(RECORD_HEADER_BYTES)? {
                return Ok(true);
            }
            self.open = None;
            return Ok(true);
        }
        // A later segment that does not continue this one shows that something is missing here.
        if segments(&self.folder)?.iter().any(|segment| segment.first > self.next) {
            if self.refill(RECORD_HEADER_BYTES)? {
                return Ok(true);
            }
            let Some(Open { path, offset, .. }) = self.open.take() else { return Ok(false) };
            return Err(JournalError::Damaged { path, offset, number: self.next });
        }
        Ok(false)
    }
}
