//! Reading a journal, and following one that is still being written.

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_disk::{Access, Disk, DiskFile as _, System};

use crate::error::{JournalError, failed};
use crate::folder::{Segment, segment_path, segments};
use crate::format::{
    Found, Head, LOST, NUMBERED, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES, SegmentHeader, find,
};
use crate::place::Place;
use crate::scan::{Sound, next_sound};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// How far the times of records may be out of order, for the index by time.
const SLACK: u64 = 1_000_000_000;

#[derive(Debug)]
struct Open<F> {
    path: PathBuf,
    /// Number of the segment's first record.
    first: u64,
    file: F,
    /// Offset of the next record.
    offset: u64,
    /// Whether the reader has already searched past the end of this segment: bytes written later are not damage.
    is_searched: bool,
}

/// The result of [`JournalReader::step`].
enum Step {
    /// A record, and its range in the buffer.
    Record { start: usize, end: usize },
    /// This many records are missing; `number` is that of the last one.
    Lost { number: u64, records: u64 },
    /// Nothing more yet.
    End,
}

/// Reads the records of a journal in order. At the end of a journal that is still being written, call again later.
///
/// Returns a [`LOST`] record in place of records that are damaged or missing and followed by sound ones.
#[derive(Debug)]
pub struct JournalReader<D: Disk = System> {
    folder: PathBuf,
    open: Option<Open<D::File>>,
    next: u64,
    /// Records in `next..lost_until` are damaged or missing.
    lost_until: u64,
    /// Time of the last record; after damage, of the first record that follows it.
    time: u64,
    damaged: u64,
    /// Bytes of the segment, starting at `open.offset - used`.
    buffer: Vec<u8>,
    filled: usize,
    used: usize,
}

impl JournalReader {
    /// Starts at the beginning of the journal in `folder`.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        Self::open_in(folder)
    }

    /// Starts at the record `number`, or at the first available one if that is later.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn from_number(folder: &Path, number: u64) -> Result<Self, JournalError> {
        Self::from_number_in(folder, number)
    }

    /// Starts at the record `number`; `None` if it was removed to make room or has not been written yet.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn at_number(folder: &Path, number: u64) -> Result<Option<Self>, JournalError> {
        Self::at_number_in(folder, number)
    }

    /// Starts at the first record of a segment such that all records from `time` on follow.
    ///
    /// That is the segment that contains `time` or the one before it. Segments serve as the index, except those with a
    /// damaged header.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn from_time(folder: &Path, time: u64) -> Result<Self, JournalError> {
        Self::from_time_in(folder, time)
    }
}

impl<D: Disk> JournalReader<D> {
    /// [`JournalReader::open`] on the disk `D`.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn open_in(folder: &Path) -> Result<Self, JournalError> {
        let first = segments::<D>(folder)?.first().map_or(0, |segment| segment.first);
        Ok(Self::at_segment(folder, first))
    }

    pub(crate) fn at_segment(folder: &Path, first: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            open: None,
            next: first,
            lost_until: 0,
            time: 0,
            damaged: 0,
            buffer: vec![0; READ_BYTES],
            filled: 0,
            used: 0,
        }
    }

    /// [`JournalReader::from_number`] on the disk `D`.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn from_number_in(folder: &Path, number: u64) -> Result<Self, JournalError> {
        let all = segments::<D>(folder)?;
        let at = all.partition_point(|segment| segment.first <= number).saturating_sub(1);
        let mut reader = Self::at_segment(folder, all.get(at).map_or(number, |segment| segment.first));
        while reader.next < number {
            match reader.step()? {
                Step::Record { .. } => {}
                Step::Lost { .. } => {
                    // Report damage that extends past `number` from there on.
                    reader.lost_until = reader.next;
                    reader.next = reader.next.min(number);
                }
                Step::End => break,
            }
        }
        reader.damaged = 0;
        Ok(reader)
    }

    /// [`JournalReader::at_number`] on the disk `D`.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn at_number_in(folder: &Path, number: u64) -> Result<Option<Self>, JournalError> {
        let reader = Self::from_number_in(folder, number)?;
        Ok((reader.next == number).then_some(reader))
    }

    /// [`JournalReader::from_time`] on the disk `D`.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn from_time_in(folder: &Path, time: u64) -> Result<Self, JournalError> {
        let mut at = None;
        for Segment { path, first } in segments::<D>(folder)? {
            let file = D::open(&path, Access::Read).map_err(failed(&path, "cannot be opened"))?;
            let Head::Sound(header) = SegmentHeader::read(&file, &path, first)? else { continue };
            if at.is_some() && header.time > time.saturating_sub(SLACK) {
                break;
            }
            at = Some(first);
        }
        match at {
            Some(first) => Ok(Self::at_segment(folder, first)),
            None => Self::open_in(folder),
        }
    }

    /// Sets the number of bytes per read.
    ///
    /// Choose a small number for a reader that follows a journal closely, because it reads again after every record.
    #[must_use]
    pub fn reading_at_once(mut self, bytes: usize) -> Self {
        // The contents of the buffer are read again.
        (self.buffer, self.used, self.filled) = (vec![0; bytes.max(RECORD_HEADER_BYTES)], 0, 0);
        self
    }

    /// Returns the number of the next record.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns the position of the next record in the open segment. Right after [`JournalReader::next`], it is the end
    /// of that record.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let open = self.open.as_ref()?;
        Some(Place { segment: open.first, offset: open.offset })
    }

    /// Returns how many records were damaged or missing so far.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Returns the next record, or `None` if there is none yet.
    ///
    /// # Errors
    /// A file that cannot be read.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        Ok(match self.step()? {
            Step::End => None,
            Step::Lost { number, records } => Some(Record {
                number,
                time: self.time,
                kind: LOST,
                line: NUMBERED,
                extra: records,
                ..Record::default()
            }),
            Step::Record { start, end } => match find(&self.buffer[start..end], self.next - 1) {
                Found::Record(record, _) => Some(record),
                // Unreachable: `step` has just decoded the same bytes.
                _ => None,
            },
        })
    }

    /// Advances by one record or past a damaged range.
    fn step(&mut self) -> Result<Step, JournalError> {
        loop {
            if self.lost_until > self.next {
                let records = self.lost_until - self.next;
                (self.next, self.damaged) = (self.lost_until, self.damaged.saturating_add(records));
                return Ok(Step::Lost { number: self.next - 1, records });
            }
            let Some(open) = &mut self.open else {
                if self.open_segment()? || self.pass_missing_segments(None)? {
                    continue;
                }
                return Ok(Step::End);
            };
            let needed = match find(&self.buffer[self.used..self.filled], self.next) {
                Found::Record(record, length) => {
                    let start = self.used;
                    self.used += length;
                    open.offset += length as u64;
                    self.time = record.time;
                    if [record.kind, record.line] == [LOST, NUMBERED] {
                        self.lost_until = record.number.saturating_add(1);
                        continue;
                    }
                    self.next = record.number.saturating_add(1);
                    return Ok(Step::Record { start, end: self.used });
                }
                Found::Cut { needed } => needed,
                Found::Nothing | Found::Bad => 0,
            };
            // The buffer may be older than the file.
            if self.refill(needed.max(RECORD_HEADER_BYTES))? || self.next_segment() || self.pass_damage()? {
                continue;
            }
            return Ok(Step::End);
        }
    }

    /// Reads again from the position of the next record. Returns whether it is there now.
    fn refill(&mut self, needed: usize) -> Result<bool, JournalError> {
        let Some(open) = &self.open else { return Ok(false) };
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.used = 0;
        self.filled = open
            .file
            .read_full_at(&mut self.buffer, open.offset)
            .map_err(failed(&open.path, "cannot be read"))?;
        match find(&self.buffer[..self.filled], self.next) {
            Found::Record(..) => Ok(true),
            Found::Cut { needed } if needed > self.buffer.len() => self.refill(needed),
            _ => Ok(false),
        }
    }

    /// Opens the segment that begins with the next record. Returns whether it exists and has begun.
    fn open_segment(&mut self) -> Result<bool, JournalError> {
        let path = segment_path(&self.folder, self.next);
        let file = match D::open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(&path, "cannot be opened")(error)),
        };
        let is_begun = match SegmentHeader::read(&file, &path, self.next)? {
            Head::Sound(_) => true,
            // The records may be sound although their segment's header is damaged.
            Head::Damaged(_) => true,
            Head::Unwritten => next_sound(&file, &path, SEGMENT_HEADER_BYTES, self.next)?.is_some(),
        };
        if is_begun {
            self.open =
                Some(Open { path, first: self.next, file, offset: SEGMENT_HEADER_BYTES, is_searched: false });
            (self.used, self.filled) = (0, 0);
        }
        Ok(is_begun)
    }

    /// At the end of this segment: moves to the one that begins with the next record, if it exists.
    fn next_segment(&mut self) -> bool {
        let Some(open) = &self.open else { return false };
        let path = segment_path(&self.folder, self.next);
        if path == open.path || !D::exists(&path) {
            return false;
        }
        // Its name is the number of its first record, so this segment has no record of that number.
        self.open = None;
        true
    }

    /// At the end of this segment's sound records: continues after the damage, if a sound record follows.
    fn pass_damage(&mut self) -> Result<bool, JournalError> {
        let successor = self.successor()?;
        let (has_successor, next) = (successor.is_some(), self.next);
        let Some(open) = &mut self.open else { return Ok(false) };
        // Search only once past the end of a segment that is still being written: bytes written later are not damage.
        let is_end = matches!(find(&self.buffer[self.used..self.filled], next), Found::Nothing);
        if is_end && std::mem::replace(&mut open.is_searched, true) && !has_successor {
            return Ok(false);
        }
        // Records of a later segment belong there: copies of them here do not replace the records in between.
        let is_of_this = |sound: &Sound| successor.as_ref().is_none_or(|after| sound.number < after.first);
        let sound = next_sound(&open.file, &open.path, open.offset, next)?.filter(is_of_this);
        if sound.is_none() && !has_successor {
            return Ok(false);
        }
        // A record that was half written a moment ago is complete before another one follows it.
        if self.refill(RECORD_HEADER_BYTES)? {
            return Ok(true);
        }
        let (Some(Sound { offset, number, time }), Some(open)) = (sound, &mut self.open) else {
            let exhausted = self.open.take().map(|open| open.path);
            return self.pass_missing_segments(exhausted);
        };
        (open.offset, open.is_searched, self.lost_until, self.time) = (offset, false, number, time);
        (self.used, self.filled) = (0, 0);
        Ok(true)
    }

    /// Continues with a later segment, if any.
    ///
    /// Called if no segment begins with the next record, or if `exhausted` does but has no sound record.
    fn pass_missing_segments(&mut self, exhausted: Option<PathBuf>) -> Result<bool, JournalError> {
        let Some(Segment { path, first }) = self.successor()? else { return Ok(false) };
        // The segment may have appeared meanwhile.
        let begins = segment_path(&self.folder, self.next);
        if exhausted.as_ref() != Some(&begins) && D::exists(&begins) && self.open_segment()? {
            return Ok(true);
        }
        let file = D::open(&path, Access::Read).map_err(failed(&path, "cannot be opened"))?;
        if let Head::Sound(header) = SegmentHeader::read(&file, &path, first)? {
            self.time = header.time;
        }
        self.lost_until = first;
        Ok(true)
    }

    /// Returns the segment with the lowest number above the next record's.
    fn successor(&self) -> Result<Option<Segment>, JournalError> {
        Ok(segments::<D>(&self.folder)?.into_iter().find(|segment| segment.first > self.next))
    }
}

/// Returns the time of a journal's last record; `None` if it has none. Cost: a read of the last segment.
///
/// # Errors
/// As [`JournalReader::next`].
pub fn last_time(folder: &Path) -> Result<Option<u64>, JournalError> {
    last_time_in::<System>(folder)
}

/// [`last_time`] on the disk `D`.
///
/// # Errors
/// As [`JournalReader::next`].
pub fn last_time_in<D: Disk>(folder: &Path) -> Result<Option<u64>, JournalError> {
    for segment in segments::<D>(folder)?.iter().rev() {
        let mut reader = JournalReader::<D>::at_segment(folder, segment.first);
        let mut last = None;
        while let Some(record) = reader.next()? {
            // Lost records have the time 0 if nothing shows when they were lost.
            if record.kind != LOST || record.time > 0 {
                last = Some(record.time);
            }
        }
        // A segment may have begun without a record.
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}
