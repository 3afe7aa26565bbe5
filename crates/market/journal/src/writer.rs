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

/// Options of a journal writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// Size of a segment in bytes, reserved when it begins.
    pub segment_bytes: u64,
    /// Maximum total size of all segments in bytes; when a segment begins, the oldest are removed. `None` keeps all of
    /// them.
    pub keep_bytes: Option<u64>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { segment_bytes: 256 << 20, keep_bytes: None }
    }
}

/// What a journal contained when it was opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Number of the first available record.
    pub first: u64,
    /// Number of the next record.
    pub next: u64,
    /// Bytes of a torn record that were cut off the end. A copy is kept beside the segment.
    pub torn_bytes: u64,
    /// Damaged records of the last segment that sound ones follow. They stay unchanged.
    pub damaged: u64,
    /// Records from `next` on that were once on disk: the last segment was truncated, emptied or removed. Their numbers
    /// are reused unless [`JournalWriter::lose_until`] is called.
    pub missing: u64,
}

/// Appends records. Only one process can write a journal at a time.
#[derive(Debug)]
pub struct JournalWriter<D: Disk = System> {
    folder: PathBuf,
    options: JournalOptions,
    /// Locked for the lifetime of the writer.
    lock: D::File,
    mark: Arc<Mark<D>>,
    segment: Option<Current<D>>,
    upcoming: Upcoming<D>,
    buffer: Vec<u8>,
    /// Number of the next record.
    next: u64,
    lost: Lost,
    on_disk: OnDisk,
    surplus: Surplus,
    written_bytes: u64,
    refused: Option<Refused>,
    trouble: Option<JournalError>,
    sync_file: fn(&D::File) -> io::Result<()>,
    /// Whether another thread waits for the disk.
    leaves_waiting: bool,
}

/// The segment that records are appended to.
#[derive(Debug)]
struct Current<D: Disk> {
    path: PathBuf,
    file: Arc<D::File>,
    /// Number of its first record.
    first: u64,
    /// Offset of the writer's buffer.
    offset: u64,
    /// Reserved size in bytes.
    reserved_bytes: u64,
    /// Whether its name may not be on disk.
    is_name_unsynced: bool,
    /// Whether no more records go into it, because it is damaged or a sync of it failed.
    is_over: bool,
}

impl<D: Disk> Current<D> {
    const fn has_room(&self, bytes: u64) -> bool {
        !self.is_over && self.offset + bytes <= self.reserved_bytes
    }
}

/// The segment after the current one, which another thread prepares.
#[derive(Debug, Default)]
enum Upcoming<D: Disk> {
    /// Nothing to do until a segment begins.
    #[default]
    NotDue,
    /// A segment has begun, and its successor has to be prepared.
    Due,
    /// A task is creating it. Only one may, because all tasks create the same file.
    Making {
        /// Whether a segment has begun meanwhile.
        is_due_again: bool,
    },
    Ready(Prepared<D>),
}

impl<D: Disk> Upcoming<D> {
    /// Makes the successor of a segment that has just begun due.
    fn becomes_due(&mut self) {
        match self {
            Self::NotDue | Self::Due => *self = Self::Due,
            Self::Making { is_due_again } => *is_due_again = true,
            Self::Ready(_) => {}
        }
    }

    fn take_ready(&mut self) -> Option<Prepared<D>> {
        match std::mem::take(self) {
            Self::Ready(made) => Some(made),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Records that could not be written.
#[derive(Debug, Default)]
struct Lost {
    /// Those since the last record that was written.
    since: u64,
    total: u64,
    /// [`LOST`] records appended.
    records: u64,
}

/// How far the journal is on disk.
#[derive(Debug, Default)]
struct OnDisk {
    /// Records before this one are on disk, or counted as unconfirmed.
    synced: u64,
    unconfirmed: u64,
    /// Unconfirmed records before this one have already been counted.
    counted_to: u64,
}

/// The removal of surplus segments.
#[derive(Debug)]
struct Surplus {
    /// Records from this one on must not be removed.
    needed_from: u64,
    /// Whether a segment has begun since the last removal.
    is_due: bool,
    removed: u64,
    failed_removals: u64,
}

/// The latest I/O error when making room.
#[derive(Debug)]
struct Refused {
    /// Time of the record.
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

/// How long the writer does not retry after an error, in ns of the records' time.
const REFUSED_FOR: u64 = 1_000_000_000;

impl JournalWriter {
    /// Opens the journal in `folder`, which is created if necessary.
    ///
    /// Cuts off a torn record at the end, which no sound record follows, and keeps a copy beside the segment. If the
    /// last segment is damaged elsewhere, the writer appends nothing to it. A killed process may have left unsynced
    /// records, so the first [`JournalWriter::sync`] covers all of the last segment.
    ///
    /// # Errors
    /// [`JournalError::Locked`] if another process is writing the journal; a folder or file that cannot be used.
    pub fn open(folder: &Path, options: JournalOptions) -> Result<(Self, Opened), JournalError> {
        Self::open_in(folder, options)
    }
}

impl<D: Disk> JournalWriter<D> {
    /// [`JournalWriter::open`] on the disk `D`.
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
            upcoming: Upcoming::NotDue,
            buffer: Vec::with_capacity(BUFFER_BYTES + MAX_PAYLOAD_BYTES),
            next: 0,
            lost: Lost::default(),
            on_disk: OnDisk::default(),
            surplus: Surplus { needed_from: u64::MAX, is_due: false, removed: 0, failed_removals: 0 },
            written_bytes: 0,
            refused: None,
            trouble: None,
            sync_file: D::File::sync_all,
            leaves_waiting: false,
        };
        // A segment prepared by a process that was killed.
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

    /// Finds the end of the last segment and continues there.
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
        (self.next, self.on_disk.synced) = (tail.next, tail.next);
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
            // Cut off and reserved again, and so filled with zeros.
            file.set_length(tail.offset).map_err(failed(path, "cannot be cut"))?;
            reserve(&file, path, bytes)?;
            file.sync_all().map_err(failed(path, "cannot be synced"))?;
        }
        // A killed process may have synced neither its last records nor their segment's name; the first sync covers
        // both.
        self.on_disk.synced = *first;
        self.segment = Some(Current {
            path: path.clone(),
            file: Arc::new(file),
            first: *first,
            offset: tail.offset,
            reserved_bytes: bytes,
            is_name_unsynced: true,
            is_over: is_damaged || !matches!(head, Head::Sound(_)),
        });
        Ok(opened)
    }

    /// Handles a last segment that has no record and cannot be continued as it is.
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
            // The segment begins again with the next record.
            Before::Whole => D::remove_file(path).map_err(failed(path, "cannot be removed"))?,
            Before::More => {
                D::remove_file(path).map_err(failed(path, "cannot be removed"))?;
                let opened = self.resume()?;
                return Ok(Opened { torn_bytes: opened.torn_bytes + torn_bytes, ..opened });
            }
            // The segment begins again immediately: nothing else shows that the missing records existed, and a reader
            // that opens the journal before the next record is written would take the records before them for the end
            // of the journal.
            Before::Missing { time } => {
                zero(&file, path, 0..torn_bytes)?;
                self.begin_again(path, file, SegmentHeader { first, time })?;
            }
        }
        Ok(Opened { torn_bytes, ..opened })
    }

    /// Starts the last segment again; its contents are zeros.
    fn begin_again(&mut self, path: &Path, file: D::File, header: SegmentHeader) -> Result<(), JournalError> {
        let bytes = file.length().map_err(failed(path, "cannot be read"))?.max(self.options.segment_bytes);
        reserve(&file, path, bytes)?;
        file.write_all_at(&header.encode(), 0).map_err(failed(path, "cannot be written"))?;
        file.sync_all().map_err(failed(path, "cannot be synced"))?;
        D::sync_folder(&self.folder).map_err(failed(&self.folder, "cannot be synced"))?;
        self.segment = Some(Current {
            path: path.to_owned(),
            file: Arc::new(file),
            first: header.first,
            offset: SEGMENT_HEADER_BYTES,
            reserved_bytes: bytes,
            is_name_unsynced: false,
            is_over: false,
        });
        Ok(())
    }

    /// Counts the missing records before `number` as lost, so that later records do not reuse their numbers.
    ///
    /// A checkpoint may already include the missing records. Does nothing if the journal has records up to `number`.
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

    /// Checks that the journal's files are still in place. Cost: a lookup of two names.
    ///
    /// # Errors
    /// [`JournalError::Gone`]: records appended from now on are lost when the writer closes the file.
    pub fn look_after_files(&self) -> Result<(), JournalError> {
        let lock_path = self.folder.join(LOCK);
        if !D::is_named(&self.lock, &lock_path) {
            return Err(JournalError::Gone { path: lock_path });
        }
        match &self.segment {
            Some(Current { path, file, .. }) if !D::is_named(file, path) => {
                Err(JournalError::Gone { path: path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of the next record.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns where the next record goes if the segment has room for it.
    ///
    /// Right after [`JournalWriter::append`], this is the end of the appended record.
    #[must_use]
    pub const fn place(&self) -> Place {
        match &self.segment {
            Some(segment) => {
                Place { segment: segment.first, offset: segment.offset + self.buffer.len() as u64 }
            }
            None => Place { segment: 0, offset: 0 },
        }
    }

    /// Returns how many records may not be on disk, as far as the writer knows.
    ///
    /// Records of a failed sync are excluded; see [`JournalWriter::unconfirmed`].
    #[must_use]
    pub const fn unsynced_records(&self) -> u64 {
        // The next append first writes a count of lost records.
        self.next.saturating_add((self.lost.since > 0) as u64).saturating_sub(self.on_disk.synced)
    }

    /// Cuts the journal off before the record `number`, which must be damaged or missing, and in the last segment.
    ///
    /// A power loss may have destroyed unsynced records but spared later ones. Copies the bytes from `number` on into a
    /// file beside the segment and returns its path, or `None` if there were none. The next record gets the number
    /// `number`.
    ///
    /// # Errors
    /// [`JournalError::NoHole`] if the journal has the record, or the record is not in the last segment. A disk that is
    /// full or fails; the call can then be repeated.
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
        // The copy's name is on disk before the bytes are removed.
        D::sync_folder(&self.folder).map_err(failed(&self.folder, "cannot be synced"))?;
        file.set_length(offset).map_err(failed(path, "cannot be cut"))?;
        reserve(&file, path, bytes)?;
        file.sync_all().map_err(failed(path, "cannot be synced"))?;
        drop(file);
        self.buffer.clear();
        (self.segment, self.next, self.on_disk.synced) = (None, number, number);
        self.resume()?;
        Ok(aside)
    }

    /// Returns the total number of records that could not be written.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost.total
    }

    /// Returns how many times records were lost and later ones appended, which is the number of [`LOST`] records by
    /// this writer.
    #[must_use]
    pub const fn losses(&self) -> u64 {
        self.lost.records
    }

    /// Returns the bytes that this writer wrote to segments.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns how many segments were removed because the journal was too large.
    #[must_use]
    pub const fn removed_segments(&self) -> u64 {
        self.surplus.removed
    }

    /// Returns how many written records the disk failed to sync. They may be missing after a machine crash.
    #[must_use]
    pub const fn unconfirmed(&self) -> u64 {
        self.on_disk.unconfirmed
    }

    /// Returns how many removals of surplus segments failed.
    #[must_use]
    pub const fn failed_removals(&self) -> u64 {
        self.surplus.failed_removals
    }

    /// Returns an error since the last call that lost no record.
    ///
    /// For example, a segment that could not be synced before its successor began, or one that could not be removed.
    pub const fn take_trouble(&mut self) -> Option<JournalError> {
        self.trouble.take()
    }

    /// Keeps the records from `number` on, because a checkpoint continues from there.
    ///
    /// Segments with any of them are not removed, regardless of `keep_bytes`. Without a call, no record is kept.
    pub const fn need_from(&mut self, number: u64) {
        self.surplus.needed_from = number;
    }

    /// Appends a record and returns its number.
    ///
    /// [`JournalWriter::flush`] passes it to the system; after [`JournalWriter::sync`] it survives a machine crash.
    ///
    /// # Errors
    /// A payload that is too long, a disk that is full or fails. The record is then counted as lost, and as soon as
    /// writing works again, a [`LOST`] record counts the missing ones. After an I/O error the disk is not retried for
    /// one second of the records' time: the same error is returned without a system call.
    pub fn append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        let result = self.try_append(record);
        if result.is_err() {
            self.lost.since += 1;
            self.lost.total += 1;
        }
        result
    }

    /// Writes a count of the records lost since the last appended one, if any.
    ///
    /// Call it at the end, where no later record would write the count.
    ///
    /// # Errors
    /// A disk that is still full or failing.
    pub fn record_loss(&mut self, time: u64) -> Result<(), JournalError> {
        if self.lost.since > 0 {
            self.put(&Record { kind: LOST, extra: self.lost.since, time, ..Record::default() })?;
            self.lost.since = 0;
            self.lost.records += 1;
        }
        Ok(())
    }

    fn try_append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        if record.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(JournalError::TooLong { bytes: record.payload.len(), limit: MAX_PAYLOAD_BYTES });
        }
        if self.lost.since > 0 {
            // Make room for both or neither, so that one loss is recorded once.
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
        debug_assert!(
            self.segment.as_ref().is_some_and(|segment| segment.has_room(self.buffer.len() as u64)),
            "record {number} lies beyond its segment"
        );
        debug_assert!(self.on_disk.synced <= number, "record {number} is on disk before it is written");
        self.next = next;
        Ok(number)
    }

    /// Makes room for `length` bytes.
    #[inline]
    fn fit(&mut self, time: u64, length: u64) -> Result<(), JournalError> {
        let bytes = self.buffer.len() as u64 + length;
        let needs_segment = self.segment.as_ref().is_none_or(|segment| !segment.has_room(bytes));
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

    /// Writes the buffer. After an error, the next call retries.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        let Some(Current { path, file, offset, .. }) = &mut self.segment else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        file.write_all_at(&self.buffer, *offset).map_err(failed(path, "cannot be written"))?;
        *offset += self.buffer.len() as u64;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the buffer and waits until it is on disk.
    ///
    /// # Errors
    /// A disk that fails. If it fails to sync, the records since the last sync may or may not be on disk, and no later
    /// sync reports it: they are counted ([`JournalWriter::unconfirmed`]), and the next record begins a new segment.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        match self.begin_sync()? {
            Some(io_task) => self.finish(io_task.run()),
            None => Ok(()),
        }
    }

    /// Writes the buffer and returns the task that syncs it; `None` if everything is on disk.
    ///
    /// The writer can continue meanwhile. Pass the result to [`JournalWriter::finish`].
    ///
    /// # Errors
    /// A disk that fails.
    pub fn begin_sync(&mut self) -> Result<Option<IoTask<D>>, JournalError> {
        self.flush()?;
        let segment = self.segment.as_ref().filter(|_| self.on_disk.synced < self.next);
        Ok(segment.map(|segment| {
            IoTask(Work::Sync(Unsynced {
                file: Arc::clone(&segment.file),
                path: segment.path.clone(),
                records: self.on_disk.synced..self.next,
                folder: segment.is_name_unsynced.then(|| self.folder.clone()),
                sync_file: self.sync_file,
                mark: Arc::clone(&self.mark),
            }))
        }))
    }

    /// Leaves waiting for the disk to another thread.
    ///
    /// From now on, surplus segments are removed only through [`JournalWriter::begin_removal`], and the next segment is
    /// prepared through [`JournalWriter::begin_next_segment`]. Reserving a file's space, syncing it and freeing a large
    /// file take time, for which the appending thread would otherwise wait.
    pub fn leave_waiting(&mut self) {
        self.leaves_waiting = true;
        self.upcoming.becomes_due();
    }

    /// Returns the task that prepares the next segment; `None` if that is done, in progress, or not due.
    pub fn begin_next_segment(&mut self) -> Option<IoTask<D>> {
        let is_due = match self.upcoming {
            Upcoming::Due => true,
            Upcoming::Making { is_due_again } => is_due_again && planted!("partial-shared"),
            Upcoming::NotDue | Upcoming::Ready(_) => false,
        };
        if !is_due || self.segment.is_none() {
            return None;
        }
        self.upcoming = Upcoming::Making { is_due_again: false };
        Some(IoTask(Work::Prepare { path: self.next_path(), bytes: self.options.segment_bytes }))
    }

    /// Returns the path of the next segment during preparation. Readers do not take it for a segment.
    fn next_path(&self) -> PathBuf {
        self.folder.join("next-segment")
    }

    /// Returns the task that removes surplus segments, if a segment has begun since the last call.
    pub fn begin_removal(&mut self) -> Option<IoTask<D>> {
        let is_due = std::mem::take(&mut self.surplus.is_due);
        let keep_bytes = self.options.keep_bytes.filter(|_| is_due)?;
        let (folder, needed_from) = (self.folder.clone(), self.surplus.needed_from);
        Some(IoTask(Work::Remove { folder, keep_bytes, needed_from }))
    }

    /// Applies the result of an [`IoTask`] of this writer.
    ///
    /// # Errors
    /// A failed sync, as for [`JournalWriter::sync`]. A segment that could not be removed is only counted, and
    /// [`JournalWriter::take_trouble`] returns the error.
    pub fn finish(&mut self, finished: Finished<D>) -> Result<(), JournalError> {
        match finished.0 {
            Outcome::Synced { unsynced: Unsynced { path, records, folder, .. }, result, unmarked } => {
                let first = self.segment.as_ref().map_or(0, |segment| segment.first);
                let current = self.segment.as_mut().filter(|segment| segment.path == path);
                // A failed sync may lose everything written to the file before it failed, not only what it was meant to
                // sync, and no later sync reports that.
                let end = match (&result, &current) {
                    (Ok(()), _) => records.end,
                    (Err(_), Some(_)) => self.next,
                    (Err(_), None) => records.end.max(first),
                };
                let on_disk = &mut self.on_disk;
                on_disk.synced = on_disk.synced.max(end);
                if result.is_err() {
                    on_disk.unconfirmed += end.saturating_sub(records.start.max(on_disk.counted_to));
                    on_disk.counted_to = on_disk.counted_to.max(end);
                }
                match (&result, current) {
                    (Err(_), Some(current)) => current.is_over = true,
                    (Ok(()), Some(current)) if folder.is_some() => current.is_name_unsynced = false,
                    _ => {}
                }
                if result.is_ok() {
                    // Without a mark, a truncated tail would pass for a torn one, but no record is lost by that.
                    self.trouble = unmarked.or(self.trouble.take());
                }
                result
            }
            Outcome::Removed { segments, result } => {
                self.surplus.removed += segments;
                if let Err(error) = result {
                    self.surplus.failed_removals += 1;
                    self.trouble = Some(error);
                }
                Ok(())
            }
            Outcome::Prepared(result) => {
                self.upcoming = match (result, std::mem::take(&mut self.upcoming)) {
                    (Ok(made), _) => Upcoming::Ready(made),
                    // The segment is created when it is needed, and that reports an error if it fails too.
                    (Err(error), before) => {
                        self.trouble = Some(error);
                        match before {
                            Upcoming::Making { is_due_again: true } => Upcoming::Due,
                            _ => Upcoming::NotDue,
                        }
                    }
                };
                Ok(())
            }
        }
    }

    #[cold]
    fn begin_segment(&mut self, time: u64, room: u64) -> Result<(), JournalError> {
        // The segment must be complete and on disk before its successor exists, because readers take a successor for
        // its end.
        self.flush()?;
        if !planted!("missing-sync-before-rename")
            && let Err(error) = self.sync()
        {
            // The unconfirmed records are counted; without a successor there would be no fewer.
            self.trouble = Some(error);
        }
        let path = segment_path(&self.folder, self.next);
        let taken = self.take_next_segment(&path, time, room);
        // A prepared segment's name is synced with its first record.
        let is_name_unsynced = taken.is_some();
        let (file, reserved_bytes) = match taken {
            Some(made) => made,
            None => {
                let bytes = self.options.segment_bytes.max(SEGMENT_HEADER_BYTES + room);
                match self.make_segment(&path, bytes, time) {
                    Ok(file) => (file, bytes),
                    Err(error) => {
                        // Remove the incomplete file: a reader would take it for a segment.
                        let _gone_anyway = D::remove_file(&path);
                        return Err(error);
                    }
                }
            }
        };
        self.segment = Some(Current {
            path,
            file: Arc::new(file),
            first: self.next,
            offset: SEGMENT_HEADER_BYTES,
            reserved_bytes,
            is_name_unsynced,
            is_over: false,
        });
        self.surplus.is_due = true;
        if self.leaves_waiting {
            self.upcoming.becomes_due();
        } else if let Some(removal) = self.begin_removal() {
            self.finish(removal.run())?;
        }
        Ok(())
    }

    /// Turns the prepared file into the segment at `path`, if there is one and it is large enough.
    fn take_next_segment(&mut self, path: &Path, time: u64, room: u64) -> Option<(D::File, u64)> {
        let Prepared { path: from, file, bytes } = self.upcoming.take_ready()?;
        let header = SegmentHeader { first: self.next, time }.encode();
        let is_taken = bytes >= SEGMENT_HEADER_BYTES + room
            && !D::exists(path)
            && file.write_all_at(&header, 0).is_ok()
            && D::rename(&from, path).is_ok();
        if !is_taken {
            // The segment is then created as usual, and that reports an error if it fails too.
            let _gone_anyway = D::remove_file(&from);
        }
        is_taken.then_some((file, bytes))
    }

    /// Creates the segment of the next record, with reserved space and a synced name.
    fn make_segment(&self, path: &Path, bytes: u64, time: u64) -> Result<D::File, JournalError> {
        let file = Prepared::<D>::make(path.to_owned(), bytes)?.file;
        let header = SegmentHeader { first: self.next, time }.encode();
        file.write_all_at(&header, 0).map_err(failed(path, "cannot be written"))?;
        (self.sync_file)(&file).map_err(failed(path, "cannot be synced"))?;
        D::sync_folder(&self.folder).map_err(failed(&self.folder, "cannot be synced"))?;
        Ok(file)
    }
}

/// What a journal contains before its last segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// All records up to that segment's first, or nothing because its first number is 0.
    Whole,
    /// The records right before it are missing. `time` is that of the newest remaining record before them; 0 if none is
    /// left.
    Missing { time: u64 },
    /// Records with that segment's number and higher. The segment could not begin because the disk failed, so the
    /// records went into the segment before it. Its file was removed, and a power loss brought the name back.
    More,
}

impl Before {
    /// Cost: a read of the second-to-last segment, or of more segments as long as they have no records.
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
        // An earlier flush would have returned the error; no caller is left to receive it now.
        let _unheard = self.flush();
        if let Some(made) = self.upcoming.take_ready() {
            let _gone_at_the_next_opening = D::remove_file(&made.path);
        }
        // A child process that has not yet executed its program still shares the descriptor, and with it the lock.
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

    /// A record of 100 encoded bytes at this time in ms.
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
        // Nine records of 100 bytes fit into a segment. The last segment has 9 to 13; 11 is damaged.
        let path = segment_path(folder.path(), 9);
        let mut bytes = fs::read(&path).unwrap();
        let at = SEGMENT_HEADER_BYTES as usize + 2 * 100 + 50;
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (mut writer, opened) = JournalWriter::open(folder.path(), SMALL).unwrap();
        assert_eq!((opened.damaged, opened.next), (1, 14));
        for sound in [3, 9, 10, 12, 13, 14] {
            let cut = writer.cut_from(sound);
            // There is nothing to cut after the last record.
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

    /// Returns the numbers of the records that a reader finds, and how many records the journal counts as lost.
    fn found(folder: &Path) -> (Vec<u64>, u64) {
        let (mut numbers, mut lost) = (Vec::new(), 0);
        let mut reader = JournalReader::open(folder).unwrap();
        while let Some(record) = reader.next().unwrap() {
            numbers.push(record.number);
            lost += if record.kind == LOST { record.extra } else { 0 };
        }
        (numbers, lost)
    }

    fn is_over(writer: &JournalWriter) -> bool {
        writer.segment.as_ref().is_some_and(|segment| segment.is_over)
    }

    fn is_name_unsynced(writer: &JournalWriter) -> bool {
        writer.segment.as_ref().is_some_and(|segment| segment.is_name_unsynced)
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
        // There would be room now, but the writer does not retry yet.
        writer.options.segment_bytes = 1_024;
        for later in [1, 2, 500, 1_000] {
            let error = writer.append(&record(later)).unwrap_err();
            assert_eq!(error.to_string(), first.to_string());
        }
        assert_eq!(writer.lost(), 5);
        assert_eq!(writer.append(&record(1_001)).unwrap(), 10);
        assert_eq!(writer.losses(), 1);
        // The writer ends before the disk has room.
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
        // A failed sync of a full segment loses no record either, and is reported.
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
        // Two are left to sync; meanwhile a segment begins, for which its predecessor is synced too.
        writer.sync_file = refuse;
        let io_task = writer.begin_sync().unwrap().unwrap();
        writer.sync_file = File::sync_all;
        append(&mut writer, 5, 0);
        assert!(segment_path(folder.path(), 9).exists());
        writer.finish(io_task.run()).unwrap_err();
        // Everything in the segment may be lost, although it was synced for its successor: some of it may have been
        // written later.
        assert_eq!((writer.unconfirmed(), is_over(&writer)), (6, false), "the segment is another's by now");
        // Two failed syncs cover the same unconfirmed records.
        writer.sync_file = refuse;
        let io_task = writer.begin_sync().unwrap().unwrap();
        append(&mut writer, 2, 0);
        writer.sync().unwrap_err();
        assert_eq!((writer.unconfirmed(), is_over(&writer)), (6 + 3, true));
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
        assert!(
            is_name_unsynced(&writer) && writer.on_disk.synced == 9,
            "its predecessor is whole on the disk"
        );
        // The name must be on disk too: a task that did not cover it leaves that to the next one.
        let first = writer.begin_sync().unwrap().unwrap();
        let second = writer.begin_sync().unwrap().unwrap();
        writer.finish(first.run()).unwrap();
        assert!(!is_name_unsynced(&writer));
        writer.finish(second.run()).unwrap();
        writer.sync_file = refuse;
        append(&mut writer, 1, 0);
        writer.sync().unwrap_err();
        assert_eq!((writer.unconfirmed(), is_over(&writer)), (1, true));
        // If it is not prepared in time, the segment is created when needed, and synced. Only one task creates the
        // file.
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
        // Left behind by a process that was killed.
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
        // The prepared file was taken away, or another file is in the segment's place.
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
        // The segment was reserved and has its header, but cannot be synced.
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
            // The count of the lost record fits into the segment before.
            writer.record_loss(2_000_000_000).unwrap();
            drop(writer);
            // The machine lost power before the removal was on disk.
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
