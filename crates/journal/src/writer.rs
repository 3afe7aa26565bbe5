//! Writing a journal.

use std::cmp;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapeworks_disk::{Access, Disk, DiskFile, System};
use tapeworks_planted::planted;

use crate::error::{JournalError, failed};
use crate::folder::{DAMAGED, Segment, TORN, segment_path, segments, set_aside};
use crate::format::{
    BUFFER_BYTES, Head, LOST, MAX_PAYLOAD_BYTES, NUMBERED, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES,
    SegmentHeader,
};
use crate::io_task::{Finished, IoTask, Outcome, Prepared, Unsynced, Work, reserve};
use crate::mark::Mark;
use crate::place::Place;
use crate::scan::{scan, torn_bytes, zero};

/// The file that a writer locks.
const LOCK: &str = "lock";

/// How a journal is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// Bytes of a segment, reserved when it begins.
    pub segment_bytes: u64,
    /// Bytes that all segments may have together; the oldest are removed when a new one begins. `None`: all are kept.
    pub keep_bytes: Option<u64>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { segment_bytes: 256 << 20, keep_bytes: None }
    }
}

/// The contents of a journal that was opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// The number of the first record that there is.
    pub first: u64,
    /// The number of the next record.
    pub next: u64,
    /// Bytes of a torn record that were cut off at the end. A copy lies beside the segment.
    pub torn_bytes: u64,
    /// Records of the last segment that are damaged, and are followed by sound ones. They stay as they are.
    pub damaged: u64,
    /// Records from `next` on that the disk has had, and that are gone: the last segment was cut, or emptied, or removed. Their numbers are given
    /// again unless [`JournalWriter::lose_until`] is called.
    pub missing: u64,
}

/// Appends records. One process writes a journal at a time.
#[derive(Debug)]
pub struct JournalWriter<D: Disk = System> {
    folder: PathBuf,
    options: JournalOptions,
    /// The writer holds it for its whole life.
    lock: D::File,
    mark: Arc<Mark<D>>,
    segment: Option<(PathBuf, Arc<D::File>)>,
    /// The number of the segment's first record.
    segment_first: u64,
    /// The buffer's offset in the segment.
    offset: u64,
    /// Whether the disk may not have the name of the segment.
    is_name_unsynced: bool,
    /// Bytes of the segment.
    reserved_bytes: u64,
    buffer: Vec<u8>,
    next: u64,
    /// Records that could not be written since the last that could.
    lost_since: u64,
    lost: u64,
    /// Records of the kind [`LOST`] that were appended.
    losses: u64,
    written_bytes: u64,
    removed_segments: u64,
    /// Records from this one on are not removed.
    needed_from: u64,
    /// The disk has the records before this one, or they are counted as unconfirmed.
    synced: u64,
    unconfirmed: u64,
    /// Unconfirmed records before this one are counted already.
    counted_to: u64,
    /// A sync of the segment failed: no more records go into it.
    is_over: bool,
    refused: Option<Refused>,
    trouble: Option<JournalError>,
    failed_removals: u64,
    sync_file: fn(&D::File) -> io::Result<()>,
    /// Whether another thread waits for the disk.
    leaves_waiting: bool,
    /// Whether a segment has begun since [`JournalWriter::begin_removal`] was called last.
    has_begun: bool,
    /// Whether a segment has begun since [`JournalWriter::begin_next_segment`] was called last.
    wants_next: bool,
    /// Whether the next segment is being made: by one task at a time, as all make the same file.
    is_making_next: bool,
    next_segment: Option<Prepared<D>>,
}

/// The system's last error when reserving room.
#[derive(Debug)]
struct Refused {
    /// The time of the record.
    at: u64,
    path: PathBuf,
    what: &'static str,
    kind: io::ErrorKind,
    code: Option<i32>,
}

impl Refused {
    fn error(&self) -> JournalError {
        let source = self.code.map_or_else(|| self.kind.into(), io::Error::from_raw_os_error);
        JournalError::Io { path: self.path.clone(), what: self.what, source }
    }
}

/// How long the writer reserves no room after an error, in ns of the records' time.
const REFUSED_FOR: u64 = 1_000_000_000;

impl JournalWriter {
    /// Opens the journal in `folder`, which is made if it is not there. A torn record at the end, which no sound one follows, is
    /// cut off; a copy stays beside the segment. The writer appends nothing to a last segment that is damaged elsewhere. A killed process
    /// may have left records that it had not synced: the first [`JournalWriter::sync`] covers all of the last segment.
    ///
    /// # Errors
    /// [`JournalError::Locked`] when another process writes to it; a folder or file that cannot be used.
    pub fn open(folder: &Path, options: JournalOptions) -> Result<(Self, Opened), JournalError> {
        Self::open_in(folder, options)
    }
}

impl<D: Disk> JournalWriter<D> {
    /// As [`JournalWriter::open`], on the disk `D`.
    ///
    /// # Errors
    /// As [`JournalWriter::open`].
    pub fn open_in(folder: &Path, options: JournalOptions) -> Result<(Self, Opened), JournalError> {
        D::create_dir_all(folder).map_err(failed(folder, "cannot be created"))?;
        let lock_path = folder.join(LOCK);
        let lock = D::open(&lock_path, Access::Create).map_err(failed(&lock_path, "cannot be opened"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if planted!("folder-not-locked") => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked { folder: folder.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path, "cannot be locked")(error)),
        }
        let mark = Arc::new(Mark::open(folder)?);
        let mut writer = Self {
            folder: folder.to_owned(),
            options,
            lock,
            mark,
            segment: None,
            segment_first: 0,
            offset: 0,
            is_name_unsynced: false,
            reserved_bytes: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES + MAX_PAYLOAD_BYTES),
            next: 0,
            lost_since: 0,
            lost: 0,
            losses: 0,
            written_bytes: 0,
            removed_segments: 0,
            needed_from: u64::MAX,
            synced: 0,
            unconfirmed: 0,
            counted_to: 0,
            is_over: false,
            refused: None,
            trouble: None,
            failed_removals: 0,
            sync_file: D::File::sync_all,
            leaves_waiting: false,
            has_begun: false,
            wants_next: false,
            is_making_next: false,
            next_segment: None,
        };
        // The segment that a killed process had made ahead.
        match D::remove_file(&writer.next_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&writer.next_path(), "cannot be removed")(error));
            }
            _ => {}
        }
        let opened = writer.resume()?;
        let missing = writer.mark.next().saturating_sub(opened.next);
        Ok((writer, Opened { missing, ..opened }))
    }

    /// Finds the end of the last segment.
    fn resume(&mut self) -> Result<Opened, JournalError> {
        let all = segments::<D>(&self.folder)?;
        let Some(Segment { path, first }) = all.last() else { return Ok(Opened::default()) };
        let file = D::open(path, Access::Write).map_err(failed(path, "cannot be opened"))?;
        let head = SegmentHeader::read(&file, path, *first)?;
        let (mut records, mut damaged, mut is_damaged) = (0u64, 0, false);
        let tail = scan(
            &file,
            path,
            *first,
            |_| records += 1,
            |place| {
                is_damaged = true;
                damaged += place.records.end - place.records.start;
            },
        )?;
        let mut opened = Opened {
            first: all.first().map_or(*first, |segment| segment.first),
            next: tail.next,
            torn_bytes: 0,
            damaged,
            missing: 0,
        };
        (self.next, self.synced) = (tail.next, tail.next);
        if records == 0 {
            let before = Before::last_of::<D>(&all)?;
            if before == Before::More || !matches!(head, Head::Sound(_)) {
                return self.resume_without_records((path, file, *first), before, opened);
            }
        }
        let bytes = file.length().map_err(failed(path, "cannot be read"))?;
        if tail.torn_bytes > 0 {
            opened.torn_bytes = tail.torn_bytes;
            set_aside::<D>(&file, path, TORN, tail.offset..tail.offset + tail.torn_bytes)?;
            // Cut off and reserved again: zeros.
            file.set_length(tail.offset).map_err(failed(path, "cannot be cut"))?;
            reserve(&file, path, bytes)?;
            file.sync_all().map_err(failed(path, "cannot be synced"))?;
        }
        (self.segment_first, self.offset, self.reserved_bytes) = (*first, tail.offset, bytes);
        self.is_over = is_damaged || !matches!(head, Head::Sound(_));
        // A killed process may have synced neither its last records nor their segment's name: the first sync does.
        (self.synced, self.is_name_unsynced) = (*first, true);
        self.segment = Some((path.clone(), Arc::new(file)));
        Ok(opened)
    }

    /// The last segment has no record, and cannot be written on as it is.
    fn resume_without_records(
        &mut self,
        (path, file, first): (&Path, D::File, u64),
        before: Before,
        opened: Opened,
    ) -> Result<Opened, JournalError> {
        let torn_bytes = torn_bytes(&file, path, 0)?;
        if torn_bytes > 0 {
            set_aside::<D>(&file, path, DAMAGED, 0..torn_bytes)?;
        }
        match before {
            // It begins again with the next record.
            Before::Whole => D::remove_file(path).map_err(failed(path, "cannot be removed"))?,
            Before::More => {
                D::remove_file(path).map_err(failed(path, "cannot be removed"))?;
                let opened = self.resume()?;
                return Ok(Opened { torn_bytes: opened.torn_bytes + torn_bytes, ..opened });
            }
            // It begins again at once: nothing else shows that the missing records existed, and a reader that comes before the next
            // record would take the end of those before them for the journal's.
            Before::Missing { time } => {
                zero(&file, path, 0..torn_bytes)?;
                self.begin_again(path, file, SegmentHeader { first, time })?;
            }
        }
        Ok(Opened { torn_bytes, ..opened })
    }

    /// Begins the last segment, which has zeros.
    fn begin_again(&mut self, path: &Path, file: D::File, header: SegmentHeader) -> Result<(), JournalError> {
        let bytes = file.length().map_err(failed(path, "cannot be read"))?.max(self.options.segment_bytes);
        reserve(&file, path, bytes)?;
        file.write_all_at(&header.encode(), 0).map_err(failed(path, "cannot be written"))?;
        file.sync_all().map_err(failed(path, "cannot be synced"))?;
        D::sync_folder(&self.folder).map_err(failed(&self.folder, "cannot be synced"))?;
        (self.segment_first, self.offset, self.reserved_bytes) = (header.first, SEGMENT_HEADER_BYTES, bytes);
        self.segment = Some((path.to_owned(), Arc::new(file)));
        Ok(())
    }

    /// Counts the missing records before `number` as lost in the journal, so that later records do not get their numbers: a
    /// checkpoint may already include them. Does nothing if the journal has them.
    ///
    /// # Errors
    /// A disk that is full or fails.
    pub fn lose_until(&mut self, number: u64, time: u64) -> Result<(), JournalError> {
        let Some(lost) = number.checked_sub(self.next).filter(|lost| *lost > 0) else { return Ok(()) };
        if planted!("numbers-used-again") {
            return Ok(());
        }
        self.fit(time, RECORD_HEADER_BYTES as u64)?;
        let stands_for = Record { kind: LOST, line: NUMBERED, extra: lost, time, ..Record::default() };
        Record { number: number - 1, ..stands_for }.encode(&mut self.buffer);
        self.next = number;
        self.flush()
    }

    /// Looks whether the files of the journal are where they were. Cost: a look at two names.
    ///
    /// # Errors
    /// [`JournalError::Gone`]: records appended from now on are lost when the writer closes the file.
    pub fn look_after_files(&self) -> Result<(), JournalError> {
        let lock_path = self.folder.join(LOCK);
        if !D::is_named(&self.lock, &lock_path) {
            return Err(JournalError::Gone { path: lock_path });
        }
        match &self.segment {
            Some((path, file)) if !D::is_named(file, path) => Err(JournalError::Gone { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// The number that the next record gets.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// Where the next record goes, if the segment has room for it: right after [`JournalWriter::append`], the end of that record.
    #[must_use]
    pub const fn place(&self) -> Place {
        Place { segment: self.segment_first, offset: self.offset + self.buffer.len() as u64 }
    }

    /// How many records before the next one the disk may not have, as far as the writer knows. A sync that failed counts as one that did not.
    #[must_use]
    pub const fn unsynced_records(&self) -> u64 {
        // The next append puts the count of lost records first.
        self.next.saturating_add((self.lost_since > 0) as u64).saturating_sub(self.synced)
    }

    /// Cuts the journal off before the record `number`, which is damaged or missing, and is one of the last segment: a power loss may have
    /// taken what was not synced, and left something later. The bytes from there on are copied into a file beside the segment, whose path
    /// is returned; `None`: there were none. The next record is `number`.
    ///
    /// # Errors
    /// [`JournalError::NoHole`]: the journal has the record, or it is not of the last segment. A disk that is full or fails; then the call
    /// can be made again.
    pub fn cut_from(&mut self, number: u64) -> Result<Option<PathBuf>, JournalError> {
        let no_hole = || JournalError::NoHole { folder: self.folder.clone(), number };
        let all = segments::<D>(&self.folder)?;
        let Segment { path, first } = all.last().filter(|last| last.first <= number).ok_or_else(no_hole)?;
        let file = D::open(path, Access::Write).map_err(failed(path, "cannot be opened"))?;
        let mut offset = None;
        let tail = scan(
            &file,
            path,
            *first,
            |_| {},
            |place| {
                if place.records.start == number {
                    offset = Some(place.bytes.start);
                }
            },
        )?;
        let offset = offset.or((tail.next == number).then_some(tail.offset)).ok_or_else(no_hole)?;
        let length = torn_bytes(&file, path, offset)?;
        let aside = match length {
            0 => None,
            _ => Some(set_aside::<D>(&file, path, DAMAGED, offset..offset + length)?),
        };
        let bytes = file.length().map_err(failed(path, "cannot be read"))?;
        self.mark.lower(number)?;
        // The copy has its name before the bytes are gone.
        D::sync_folder(&self.folder).map_err(failed(&self.folder, "cannot be synced"))?;
        file.set_length(offset).map_err(failed(path, "cannot be cut"))?;
        reserve(&file, path, bytes)?;
        file.sync_all().map_err(failed(path, "cannot be synced"))?;
        drop(file);
        self.buffer.clear();
        (self.segment, self.next, self.synced) = (None, number, number);
        self.resume()?;
        Ok(aside)
    }

    /// Records that could not be written, in all.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Times that records were lost and later ones could be appended: how many records of the kind [`LOST`] there are of this
    /// writer.
    #[must_use]
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Bytes written to segments by this writer.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Segments removed because the journal had become too large.
    #[must_use]
    pub const fn removed_segments(&self) -> u64 {
        self.removed_segments
    }

    /// Records that were written and that the disk failed to sync: after a machine crash they may be missing.
    #[must_use]
    pub const fn unconfirmed(&self) -> u64 {
        self.unconfirmed
    }

    /// Segments that were too many and could not be removed.
    #[must_use]
    pub const fn failed_removals(&self) -> u64 {
        self.failed_removals
    }

    /// An error since the last call that lost no record: a segment that could not be synced before its successor began, or one
    /// that could not be removed.
    pub const fn take_trouble(&mut self) -> Option<JournalError> {
        self.trouble.take()
    }

    /// Keeps the records from `number` on, because a checkpoint continues from there: segments with one of them are not
    /// removed, whatever `keep_bytes` says. Without a call none is kept.
    pub const fn need_from(&mut self, number: u64) {
        self.needed_from = number;
    }

    /// Appends a record and returns its number. [`JournalWriter::flush`] gives it to the system, and after
    /// [`JournalWriter::sync`] it survives a machine crash.
    ///
    /// # Errors
    /// A payload that is too long, a disk that is full or fails. The record is then counted as lost; when writing works
    /// again, a record of the kind [`LOST`] counts the missing ones. After a refusal the disk is not tried again before a second
    /// is over, by the records' times: the same error is returned without a system call.
    pub fn append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        let result = self.try_append(record);
        if result.is_err() {
            self.lost_since += 1;
            self.lost += 1;
        }
        result
    }

    /// Says in the journal how many records were lost since the last that was appended, if any were: to be called before the end,
    /// when no record follows that would say so.
    ///
    /// # Errors
    /// A disk that is full or fails still.
    pub fn record_loss(&mut self, time: u64) -> Result<(), JournalError> {
        if self.lost_since > 0 {
            self.put(&Record { kind: LOST, extra: self.lost_since, time, ..Record::default() })?;
            self.lost_since = 0;
            self.losses += 1;
        }
        Ok(())
    }

    fn try_append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        if record.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(JournalError::TooLong { bytes: record.payload.len(), limit: MAX_PAYLOAD_BYTES });
        }
        if self.lost_since > 0 {
            // Either both have room or neither, so that one loss is recorded once.
            self.fit(record.time, (2 * RECORD_HEADER_BYTES + record.payload.len()) as u64)?;
            self.record_loss(record.time)?;
        }
        self.put(record)
    }

    fn put(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        self.fit(record.time, (RECORD_HEADER_BYTES + record.payload.len()) as u64)?;
        let number = self.next;
        let Some(next) = number.checked_add(1) else {
            return Err(JournalError::NoNumber { folder: self.folder.clone() });
        };
        Record { number, ..*record }.encode(&mut self.buffer);
        self.next = next;
        Ok(number)
    }

    /// Makes room for so many bytes.
    #[inline]
    fn fit(&mut self, time: u64, length: u64) -> Result<(), JournalError> {
        let end = self.offset + self.buffer.len() as u64 + length;
        let needs_segment = self.segment.is_none() || self.is_over || end > self.reserved_bytes;
        if needs_segment || self.buffer.len() >= BUFFER_BYTES {
            self.make_room(needs_segment, time, length)?;
        }
        Ok(())
    }

    /// Begins a segment, or writes the buffer.
    #[inline(never)]
    fn make_room(&mut self, needs_segment: bool, time: u64, length: u64) -> Result<(), JournalError> {
        if let Some(refused) = &self.refused
            && refused.at.abs_diff(time) < REFUSED_FOR
        {
            return Err(refused.error());
        }
        let made = if needs_segment { self.begin_segment(time, length) } else { self.flush() };
        self.refused = match &made {
            Err(JournalError::Io { path, what, source }) => {
                let (kind, code) = (source.kind(), source.raw_os_error());
                Some(Refused { at: time, path: path.clone(), what, kind, code })
            }
            _ => None,
        };
        made
    }

    /// Writes the buffer. The next call tries a failed write again.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        let Some((path, file)) = &self.segment else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        file.write_all_at(&self.buffer, self.offset).map_err(failed(path, "cannot be written"))?;
        self.offset += self.buffer.len() as u64;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the buffer and waits until the disk has it.
    ///
    /// # Errors
    /// A disk that fails. When it fails to sync, it may or may not have the records since the last sync, and no later sync
    /// reports it: they are counted ([`JournalWriter::unconfirmed`]), and the next record begins a segment.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        match self.begin_sync()? {
            Some(io_task) => self.finish(io_task.run()),
            None => Ok(()),
        }
    }

    /// Writes the buffer, and returns the task that syncs it; `None` when the disk has it. Meanwhile the writer can continue.
    /// [`JournalWriter::finish`] takes the result.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn begin_sync(&mut self) -> Result<Option<IoTask<D>>, JournalError> {
        self.flush()?;
        let segment = self.segment.as_ref().filter(|_| self.synced < self.next);
        Ok(segment.map(|(path, file)| {
            IoTask(Work::Sync(Unsynced {
                file: Arc::clone(file),
                path: path.clone(),
                records: self.synced..self.next,
                folder: self.is_name_unsynced.then(|| self.folder.clone()),
                sync_file: self.sync_file,
                mark: Arc::clone(&self.mark),
            }))
        }))
    }

    /// From now on another thread waits for the disk: segments that are too many are removed only by [`JournalWriter::begin_removal`], and
    /// the next segment is made by [`JournalWriter::begin_next_segment`]. Reserving a file's room, syncing it and freeing a large file take
    /// time; otherwise the appending thread would wait for them.
    pub const fn leave_waiting(&mut self) {
        (self.leaves_waiting, self.wants_next) = (true, true);
    }

    /// The task that makes the next segment ahead; `None` when it is made, or is being made.
    pub fn begin_next_segment(&mut self) -> Option<IoTask<D>> {
        let is_due = self.wants_next && self.segment.is_some();
        let is_making = self.is_making_next && !planted!("partial-shared");
        if !is_due || is_making || self.next_segment.is_some() {
            return None;
        }
        (self.wants_next, self.is_making_next) = (false, true);
        Some(IoTask(Work::Prepare { path: self.next_path(), bytes: self.options.segment_bytes }))
    }

    /// The path of the next segment while it is made. No reader takes it for a segment.
    fn next_path(&self) -> PathBuf {
        self.folder.join("next-segment")
    }

    /// The task that removes surplus segments, if a segment has begun since the last call.
    pub fn begin_removal(&mut self) -> Option<IoTask<D>> {
        let has_begun = std::mem::take(&mut self.has_begun);
        let keep_bytes = self.options.keep_bytes.filter(|_| has_begun)?;
        let (folder, needed_from) = (self.folder.clone(), self.needed_from);
        Some(IoTask(Work::Remove { folder, keep_bytes, needed_from }))
    }

    /// Takes the result of an [`IoTask`] of this writer.
    ///
    /// # Errors
    /// A sync that failed, as [`JournalWriter::sync`] says. A segment that could not be removed is counted, and
    /// [`JournalWriter::take_trouble`] returns the error.
    pub fn finish(&mut self, finished: Finished<D>) -> Result<(), JournalError> {
        match finished.0 {
            Outcome::Synced { unsynced: Unsynced { path, records, folder, .. }, result, unmarked } => {
                let is_current = self.segment.as_ref().is_some_and(|(current, _)| *current == path);
                // A failed sync loses everything written to the file before it failed, not only what it was to sync, and no later sync reports that.
                let end = match (&result, is_current) {
                    (Ok(()), _) => records.end,
                    (Err(_), true) => self.next,
                    (Err(_), false) => records.end.max(self.segment_first),
                };
                self.synced = self.synced.max(end);
                if result.is_err() {
                    self.unconfirmed += end.saturating_sub(records.start.max(self.counted_to));
                    self.counted_to = self.counted_to.max(end);
                    self.is_over |= is_current;
                } else {
                    self.is_name_unsynced &= !(is_current && folder.is_some());
                    // Without a mark a cut tail would pass for a torn one: no record is lost by that.
                    self.trouble = unmarked.or(self.trouble.take());
                }
                result
            }
            Outcome::Removed { segments, result } => {
                self.removed_segments += segments;
                if let Err(error) = result {
                    self.failed_removals += 1;
                    self.trouble = Some(error);
                }
                Ok(())
            }
            Outcome::Prepared(result) => {
                self.is_making_next = false;
                match result {
                    Ok(made) => self.next_segment = Some(made),
                    // It is made when it is needed, and fails then if it must.
                    Err(error) => self.trouble = Some(error),
                }
                Ok(())
            }
        }
    }

    #[cold]
    fn begin_segment(&mut self, time: u64, room: u64) -> Result<(), JournalError> {
        // The segment is complete and on the disk before its successor exists: readers take a successor for its end.
        self.flush()?;
        if !planted!("missing-sync-before-rename")
            && let Err(error) = self.sync()
        {
            // The unconfirmed records are counted; they would be no fewer without a successor.
            self.trouble = Some(error);
        }
        let path = segment_path(&self.folder, self.next);
        let (file, bytes) = match self.take_next_segment(&path, time, room) {
            Some(made) => made,
            None => {
                let bytes = self.options.segment_bytes.max(SEGMENT_HEADER_BYTES + room);
                match self.make_segment(&path, bytes, time) {
                    Ok(file) => (file, bytes),
                    Err(error) => {
                        // An incomplete file is removed: a reader would take it for a segment.
                        let _gone_anyway = D::remove_file(&path);
                        return Err(error);
                    }
                }
            }
        };
        self.segment = Some((path, Arc::new(file)));
        (self.segment_first, self.offset, self.reserved_bytes) = (self.next, SEGMENT_HEADER_BYTES, bytes);
        (self.is_over, self.has_begun, self.wants_next) = (false, true, self.leaves_waiting);
        if !self.leaves_waiting
            && let Some(removal) = self.begin_removal()
        {
            self.finish(removal.run())?;
        }
        Ok(())
    }

    /// The file that was made ahead, as the segment at `path`, when there is one and it has the room.
    fn take_next_segment(&mut self, path: &Path, time: u64, room: u64) -> Option<(D::File, u64)> {
        self.is_name_unsynced = false;
        let Prepared { path: from, file, bytes } = self.next_segment.take()?;
        let header = SegmentHeader { first: self.next, time }.encode();
        let is_taken = bytes >= SEGMENT_HEADER_BYTES + room
            && !D::exists(path)
            && file.write_all_at(&header, 0).is_ok()
            && D::rename(&from, path).is_ok();
        if !is_taken {
            // The segment is made as if none had been: that reports why, if it fails too.
            let _gone_anyway = D::remove_file(&from);
        }
        // The first sync of a record also syncs the header and the name.
        self.is_name_unsynced = is_taken;
        is_taken.then_some((file, bytes))
    }

    /// A file for the records from the next on, with reserved room and a name in the folder.
    fn make_segment(&self, path: &Path, bytes: u64, time: u64) -> Result<D::File, JournalError> {
        let file = Prepared::<D>::make(path.to_owned(), bytes)?.file;
        let header = SegmentHeader { first: self.next, time }.encode();
        file.write_all_at(&header, 0).map_err(failed(path, "cannot be written"))?;
        (self.sync_file)(&file).map_err(failed(path, "cannot be synced"))?;
        D::sync_folder(&self.folder).map_err(failed(&self.folder, "cannot be synced"))?;
        Ok(file)
    }
}

/// What a journal has before its last segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// All records up to that segment's first, or none because there is nothing before the number 0.
    Whole,
    /// Records right before it are missing. The newest record before them has this time; 0 when none is left.
    Missing { time: u64 },
    /// Records of that segment's number and higher ones. It could not begin when the disk failed, so they went on in the segment before it.
    /// It was removed, and a power loss brought its name back.
    More,
}

impl Before {
    /// Cost: a read of the segment before the last, or of more while they have no records.
    fn last_of<D: Disk>(all: &[Segment]) -> Result<Self, JournalError> {
        let Some((last, earlier)) = all.split_last() else { return Ok(Self::Whole) };
        let mut end = None;
        for Segment { path, first } in earlier.iter().rev() {
            let file = D::open(path, Access::Read).map_err(failed(path, "cannot be opened"))?;
            let mut time = None;
            let tail = scan(&file, path, *first, |record| time = Some(record.time), |_| {})?;
            let end = *end.get_or_insert(tail.next);
            match end.cmp(&last.first) {
                cmp::Ordering::Equal => return Ok(Self::Whole),
                cmp::Ordering::Greater => return Ok(Self::More),
                cmp::Ordering::Less => {}
            }
            let of_header = match SegmentHeader::read(&file, path, *first)? {
                Head::Sound(header) => Some(header.time),
                Head::Unwritten | Head::Damaged(_) => None,
            };
            if let Some(time) = time.or(of_header) {
                return Ok(Self::Missing { time });
            }
        }
        Ok(if last.first > 0 { Self::Missing { time: 0 } } else { Self::Whole })
    }
}

impl<D: Disk> Drop for JournalWriter<D> {
    fn drop(&mut self) {
        // A flush before would have returned the error; now no caller is left.
        let _unheard = self.flush();
        if let Some(made) = self.next_segment.take() {
            let _gone_at_the_next_opening = D::remove_file(&made.path);
        }
        // A child process that has not begun its program yet still has the descriptor, and with it the lock.
        let _closed_soon = self.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{JournalReader, segment_starts, verify};

    const SMALL: JournalOptions = JournalOptions { segment_bytes: 1_024, keep_bytes: None };

    /// A record of a hundred bytes, so many ms after the beginning.
    fn record(milliseconds: u64) -> Record<'static> {
        Record { kind: 7, time: 1_000_000 * milliseconds, payload: &[5; 60], ..Record::default() }
    }

    fn append(writer: &mut JournalWriter, count: usize, milliseconds: u64) {
        for _ in 0..count {
            writer.append(&record(milliseconds)).unwrap();
        }
    }

    #[test]
    fn a_journal_is_cut_at_a_hole_of_its_last_segment_and_goes_on_there() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, 14, 1);
        writer.flush().unwrap();
        drop(writer);
        // Nine records of a hundred bytes fit into a segment. The last has 9 to 13; 11 is damaged.
        let path = segment_path(folder.path(), 9);
        let mut bytes = fs::read(&path).unwrap();
        let at = SEGMENT_HEADER_BYTES as usize + 2 * 100 + 50;
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.damaged, opened.next), (1, 14));
        for sound in [3, 9, 10, 12, 13, 14] {
            let cut = writer.cut_from(sound);
            // Behind the last record there is nothing to cut.
            assert_eq!(cut.is_err(), sound != 14, "{sound}: {cut:?}");
        }
        let aside = writer.cut_from(11).unwrap().unwrap();
        assert_eq!(fs::read(&aside).unwrap(), bytes[at - 50..at - 50 + 300]);
        assert_eq!((writer.next_number(), writer.cut_from(11).unwrap()), (11, None));
        append(&mut writer, 2, 2);
        writer.sync().unwrap();
        assert_eq!(writer.unsynced_records(), 0);
        append(&mut writer, 1, 2);
        assert_eq!(writer.unsynced_records(), 1);
        drop(writer);
        assert_eq!(found(folder.path()), ((0..14).collect(), 0));
        assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
    }

    /// The numbers of the records that a reader finds, and how many the journal counts as lost.
    fn found(folder: &Path) -> (Vec<u64>, u64) {
        let (mut numbers, mut lost) = (Vec::new(), 0);
        let mut reader = JournalReader::open(folder).unwrap();
        while let Some(record) = reader.next().unwrap() {
            numbers.push(record.number);
            lost += if record.kind == LOST { record.extra } else { 0 };
        }
        (numbers, lost)
    }

    fn refuse(_file: &File) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }

    #[test]
    fn a_full_disk_is_tried_again_after_one_second() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, 9, 0);
        writer.options.segment_bytes = 1 << 60;
        let first = writer.append(&record(1)).unwrap_err();
        // There would be room now, but the writer does not try.
        writer.options.segment_bytes = 1_024;
        for later in [1, 2, 500, 1_000] {
            let error = writer.append(&record(later)).unwrap_err();
            assert_eq!(error.to_string(), first.to_string());
        }
        assert_eq!(writer.lost(), 5);
        assert_eq!(writer.append(&record(1_001)).unwrap(), 10);
        assert_eq!(writer.losses(), 1);
        // The end comes before the disk has room.
        writer.options.segment_bytes = 1 << 60;
        append(&mut writer, 8, 1_001);
        writer.append(&record(1_002)).unwrap_err();
        writer.record_loss(5_000_000_000).unwrap_err();
        writer.options.segment_bytes = 1_024;
        writer.record_loss(7_000_000_000).unwrap();
        writer.record_loss(8_000_000_000).unwrap();
        assert_eq!((writer.lost(), writer.losses()), (6, 2));
        drop(writer);
        assert_eq!(found(folder.path()), ((0..20).collect(), 6));
    }

    #[test]
    fn records_of_a_failed_sync_are_counted_and_the_segment_takes_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, 2, 0);
        writer.sync().unwrap();
        append(&mut writer, 3, 0);
        writer.sync_file = refuse;
        let error = writer.sync().unwrap_err();
        assert!(matches!(error, JournalError::Io { what: "cannot be synced", .. }), "{error}");
        writer.sync_file = File::sync_all;
        writer.sync().unwrap();
        assert_eq!(writer.unconfirmed(), 3, "a later sync says nothing of them");
        assert_eq!(writer.append(&record(1)).unwrap(), 5);
        writer.sync().unwrap();
        assert_eq!((writer.unconfirmed(), writer.lost()), (3, 0));
        assert!(segment_path(folder.path(), 5).exists());
        // One that fails when a segment is full costs no record either, and is reported.
        append(&mut writer, 8, 1);
        fn at_first(file: &File) -> io::Result<()> {
            static FAILED: AtomicU64 = AtomicU64::new(0);
            if FAILED.fetch_add(1, Ordering::Relaxed) == 0 { refuse(file) } else { file.sync_all() }
        }
        writer.sync_file = at_first;
        assert!(writer.take_trouble().is_none());
        assert_eq!(writer.append(&record(1)).unwrap(), 14);
        assert!(writer.take_trouble().unwrap().to_string().contains("cannot be synced"));
        assert_eq!((writer.unconfirmed(), writer.lost()), (3 + 8, 0));
        drop(writer);
        assert_eq!(found(folder.path()), ((0..15).collect(), 0));
        assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
    }

    #[test]
    fn the_first_sync_covers_the_records_of_the_process_before() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, 3, 0);
        drop(writer);
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        let io_task = writer.begin_sync().unwrap().unwrap();
        let IoTask(Work::Sync(Unsynced { records, folder: of_name, .. })) = &io_task else {
            panic!("{io_task:?}");
        };
        assert_eq!((records.clone(), opened.next), (0..3, 3));
        assert_eq!(of_name.as_deref(), Some(folder.path()));
        writer.finish(io_task.run()).unwrap();
        assert!(writer.begin_sync().unwrap().is_none(), "the disk has them");
    }

    #[test]
    fn io_tasks_on_another_thread_are_counted_like_those_of_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let options = JournalOptions { keep_bytes: Some(2_048), ..SMALL };
        let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
        writer.leave_waiting();
        assert!(writer.begin_sync().unwrap().is_none(), "there is nothing");
        append(&mut writer, 3, 0);
        let io_task = writer.begin_sync().unwrap().unwrap();
        append(&mut writer, 2, 0);
        let finished = std::thread::spawn(|| io_task.run()).join().unwrap();
        assert!(finished.error().is_none());
        writer.finish(finished).unwrap();
        // Two are left; meanwhile a segment begins, for which its predecessor is synced too.
        writer.sync_file = refuse;
        let io_task = writer.begin_sync().unwrap().unwrap();
        writer.sync_file = File::sync_all;
        append(&mut writer, 5, 0);
        assert!(segment_path(folder.path(), 9).exists());
        writer.finish(io_task.run()).unwrap_err();
        // All that the segment has may be forgotten, though it was synced for its successor: that may have come later.
        assert_eq!((writer.unconfirmed(), writer.is_over), (6, false), "the segment is another's by now");
        // The same records are unconfirmed by two syncs, each of which failed.
        writer.sync_file = refuse;
        let io_task = writer.begin_sync().unwrap().unwrap();
        append(&mut writer, 2, 0);
        writer.sync().unwrap_err();
        assert_eq!((writer.unconfirmed(), writer.is_over), (6 + 3, true));
        writer.finish(io_task.run()).unwrap_err();
        assert_eq!(writer.unconfirmed(), 6 + 3);
        writer.sync_file = File::sync_all;
        append(&mut writer, 30, 0);
        // Only the task removes segments, each at most once.
        assert!(segment_path(folder.path(), 0).exists());
        let removal = writer.begin_removal().unwrap();
        assert!(writer.begin_removal().is_none());
        writer.finish(removal.run()).unwrap();
        assert_eq!((writer.removed_segments(), writer.failed_removals()), (4, 0));
        drop(writer);
        assert_eq!(found(folder.path()).0.last(), Some(&41));
        assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
    }

    #[test]
    fn a_segment_that_was_made_ahead_takes_the_place_of_one_that_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        let next_path = writer.next_path();
        writer.leave_waiting();
        assert!(writer.begin_next_segment().is_none(), "the first is not there");
        append(&mut writer, 3, 0);
        let making = writer.begin_next_segment().unwrap();
        assert!(writer.begin_next_segment().is_none(), "it is being made");
        writer.finish(std::thread::spawn(|| making.run()).join().unwrap()).unwrap();
        assert_eq!((segment_starts(folder.path()).unwrap(), next_path.exists()), (vec![0], true));
        append(&mut writer, 8, 0);
        assert_eq!((segment_starts(folder.path()).unwrap(), next_path.exists()), (vec![0, 9], false));
        assert!(writer.is_name_unsynced && writer.synced == 9, "its predecessor is whole on the disk");
        // The disk must have the name too: a task that did not get it leaves that to the next.
        let first = writer.begin_sync().unwrap().unwrap();
        let second = writer.begin_sync().unwrap().unwrap();
        writer.finish(first.run()).unwrap();
        assert!(!writer.is_name_unsynced);
        writer.finish(second.run()).unwrap();
        writer.sync_file = refuse;
        append(&mut writer, 1, 0);
        writer.sync().unwrap_err();
        assert_eq!((writer.unconfirmed(), writer.is_over), (1, true));
        // Not made ahead in time: it is made when it is needed, and synced. Only one task makes the file.
        writer.sync_file = File::sync_all;
        let making = writer.begin_next_segment().unwrap();
        append(&mut writer, 2, 0);
        assert_eq!(segment_starts(folder.path()).unwrap(), [0, 9, 12]);
        assert!(writer.begin_next_segment().is_none());
        writer.finish(making.run()).unwrap();
        assert!(writer.begin_next_segment().is_none(), "it is there");
        append(&mut writer, 9, 0);
        assert_eq!(segment_starts(folder.path()).unwrap(), [0, 9, 12, 21]);
        let made = writer_task(&mut writer);
        writer.finish(made).unwrap();
        append(&mut writer, 12, 0);
        writer.sync().unwrap();
        assert_eq!((writer.unconfirmed(), writer.next_number()), (1, 35));
        drop(writer);
        assert!(!next_path.exists());
        assert_eq!(verify(folder.path(), || true).unwrap().damage, []);
        // Left by a process that was killed.
        fs::write(&next_path, [1; 100]).unwrap();
        let (_writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.next, next_path.exists()), (35, false));
    }

    fn writer_task(writer: &mut JournalWriter) -> Finished {
        writer.begin_next_segment().unwrap().run()
    }

    #[test]
    fn a_segment_that_cannot_be_made_ahead_is_reported_and_made_when_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        writer.leave_waiting();
        append(&mut writer, 1, 0);
        fs::create_dir(writer.next_path()).unwrap();
        let finished = writer_task(&mut writer);
        assert!(finished.error().is_some());
        writer.finish(finished).unwrap();
        assert!(writer.take_trouble().unwrap().to_string().contains("next-segment"));
        append(&mut writer, 20, 0);
        assert_eq!(segment_starts(folder.path()).unwrap(), [0, 9, 18]);
        // Taken away, or another file in the segment's place.
        fs::remove_dir(writer.next_path()).unwrap();
        let made = writer_task(&mut writer);
        writer.finish(made).unwrap();
        fs::remove_file(writer.next_path()).unwrap();
        append(&mut writer, 9, 0);
        assert_eq!(segment_starts(folder.path()).unwrap(), [0, 9, 18, 27]);
        assert_eq!(found(folder.path()), ((0..27).collect(), 0));
        assert_eq!((writer.lost(), writer.unconfirmed()), (0, 0));
    }

    #[test]
    fn a_segment_that_could_not_begin_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
        append(&mut writer, 9, 0);
        writer.sync().unwrap();
        // Reserved, with its header, and not synced.
        writer.sync_file = refuse;
        writer.append(&record(1)).unwrap_err();
        assert!(!segment_path(folder.path(), 9).exists());
        drop(writer);
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!(opened.next, 9);
        assert_eq!(writer.append(&record(2)).unwrap(), 9);
    }

    #[test]
    fn a_segment_that_could_not_begin_and_comes_back_is_not_the_end_of_the_journal() {
        let header = SegmentHeader { first: 9, time: 1_000_000 }.encode();
        for left in [&header[..], &[0; 64], &[7; 500], &[]] {
            let folder = tempfile::tempdir().unwrap();
            let (mut writer, _) = JournalWriter::open(folder.path(), SMALL).unwrap();
            append(&mut writer, 9, 0);
            writer.sync().unwrap();
            writer.sync_file = refuse;
            writer.append(&record(1)).unwrap_err();
            // The count of the lost record has room in the segment before.
            writer.record_loss(2_000_000_000).unwrap();
            drop(writer);
            // The machine lost its power before the disk had the removal.
            let path = segment_path(folder.path(), 9);
            assert!(!path.exists());
            fs::write(&path, left).unwrap();
            let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
            assert_eq!((opened.first, opened.next, path.exists()), (0, 10, false), "{left:?}");
            append(&mut writer, 2, 3);
            drop(writer);
            assert_eq!(found(folder.path()), ((0..12).collect(), 1), "{left:?}");
            assert_eq!(verify(folder.path(), || true).unwrap().damage, [], "{left:?}");
        }
    }

    #[test]
    fn a_segment_that_cannot_be_removed_is_reported_and_no_record_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let options = JournalOptions { keep_bytes: Some(3_000), ..SMALL };
        let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
        append(&mut writer, 18, 0);
        let oldest = segment_path(folder.path(), 0);
        fs::remove_file(&oldest).unwrap();
        fs::create_dir(&oldest).unwrap();
        for number in 18..60 {
            assert_eq!(writer.append(&record(0)).unwrap(), number);
        }
        assert!(writer.failed_removals() > 0 && writer.removed_segments() == 0 && writer.lost() == 0);
        assert!(writer.take_trouble().unwrap().to_string().contains("cannot be removed"));
        assert!(writer.take_trouble().is_none());
        fs::remove_dir(&oldest).unwrap();
        append(&mut writer, 10, 0);
        assert!(writer.removed_segments() > 0);
    }
}
