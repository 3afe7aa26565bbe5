//! Writing a journal.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tapeworks_market::Nanos;

use super::{
    BUFFER_BYTES, Found, JournalError, LOST, MAX_PAYLOAD_BYTES, RECORD_HEADER_BYTES, Record,
    SEGMENT_HEADER_BYTES, Segment, SegmentHeader, failed, find, read_at, segment_path, segments,
};

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

/// What was found when a journal was opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// The number of the first record that there is.
    pub first: u64,
    /// The number of the next record.
    pub next: u64,
    /// Bytes of a torn record that were cut off at the end.
    pub torn_bytes: u64,
}

/// Appends records. One process writes a journal at a time.
#[derive(Debug)]
pub struct JournalWriter {
    folder: PathBuf,
    options: JournalOptions,
    /// Held as long as the writer lives.
    _lock: File,
    segment: Option<(PathBuf, File)>,
    /// Where the buffer goes in the segment.
    offset: u64,
    /// Bytes of the segment.
    reserved_bytes: u64,
    buffer: Vec<u8>,
    next: u64,
    /// Records that could not be written since the last that could.
    lost_since: u64,
    lost: u64,
    written_bytes: u64,
    removed_segments: u64,
    /// Records from this one on are not removed.
    needed_from: u64,
    is_synced: bool,
}

impl JournalWriter {
    /// Opens the journal in `folder`, which is made if it is not there. A torn record at the end is cut off.
    ///
    /// # Errors
    /// [`JournalError::Locked`] when another process writes to it; a folder or file that cannot be used; a segment whose
    /// records do not hold together though others follow.
    pub fn open(folder: &Path, options: JournalOptions) -> Result<(Self, Opened), JournalError> {
        fs::create_dir_all(folder).map_err(failed(folder, "cannot be created"))?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(failed(&lock_path, "cannot be opened"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked { folder: folder.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path, "cannot be locked")(error)),
        }
        let mut writer = Self {
            folder: folder.to_owned(),
            options,
            _lock: lock,
            segment: None,
            offset: 0,
            reserved_bytes: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES + MAX_PAYLOAD_BYTES),
            next: 0,
            lost_since: 0,
            lost: 0,
            written_bytes: 0,
            removed_segments: 0,
            needed_from: u64::MAX,
            is_synced: true,
        };
        let opened = writer.resume()?;
        Ok((writer, opened))
    }

    /// Finds the end of the last segment.
    fn resume(&mut self) -> Result<Opened, JournalError> {
        let mut all = segments(&self.folder)?;
        let first = all.first().map_or(0, |segment| segment.first);
        let Some(Segment { path, first: mut next }) = all.pop() else { return Ok(Opened::default()) };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed(&path, "cannot be opened"))?;
        match SegmentHeader::read(&file, &path)? {
            // It was made and nothing was written: it begins anew with the next record.
            None => {
                fs::remove_file(&path).map_err(failed(&path, "cannot be removed"))?;
                self.next = next;
                return Ok(Opened { first: first.min(next), next, torn_bytes: 0 });
            }
            Some(header) if header.first != next => {
                return Err(JournalError::NotASegment {
                    path,
                    what: "its header has another number than its name",
                });
            }
            Some(_) => {}
        }
        let bytes = file.metadata().map_err(failed(&path, "cannot be read"))?.len();
        let mut offset = SEGMENT_HEADER_BYTES;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut torn_bytes = 0;
        'reading: loop {
            let filled = read_at(&file, &mut buffer, offset).map_err(failed(&path, "cannot be read"))?;
            let mut used = 0;
            loop {
                match find(&buffer[used..filled], next) {
                    Found::Record(_, length) => {
                        used += length;
                        next += 1;
                    }
                    Found::Cut { needed } if used == 0 && filled == buffer.len() => {
                        buffer.resize(needed.max(RECORD_HEADER_BYTES), 0);
                        break;
                    }
                    Found::Cut { .. } if used > 0 => break,
                    Found::Cut { .. } | Found::Bad => {
                        // What is not zero behind here was not wholly written.
                        offset += used as u64;
                        torn_bytes = torn(&file, &path, offset, bytes)?;
                        break 'reading;
                    }
                    Found::Nothing => {
                        offset += used as u64;
                        break 'reading;
                    }
                }
            }
            offset += used as u64;
            if offset >= bytes {
                break;
            }
        }
        if torn_bytes > 0 {
            // Cut off and reserved again: zeros.
            file.set_len(offset).map_err(failed(&path, "cannot be cut"))?;
            reserve(&file, &path, bytes)?;
            file.sync_data().map_err(failed(&path, "cannot be synced"))?;
        }
        (self.next, self.offset, self.reserved_bytes) = (next, offset, bytes);
        self.segment = Some((path, file));
        Ok(Opened { first, next, torn_bytes })
    }

    /// The number that the next record gets.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// Records that could not be written, in all.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
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

    /// Says that the records from `number` on are needed, because a state snapshot goes on from there: segments that hold one of
    /// them are not removed, whatever `keep_bytes` says. Without it none is needed.
    pub const fn need_from(&mut self, number: u64) {
        self.needed_from = number;
    }

    /// Appends a record, whose number is given here. It is on its way to the disk when [`JournalWriter::flush`] has been
    /// called, and safe when [`JournalWriter::sync`] has.
    ///
    /// # Errors
    /// A payload that is too long, a disk that is full or fails. The record is then counted as lost; when writing works
    /// again, a record of the kind [`LOST`] tells how many are missing.
    pub fn append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        let result = self.try_append(record);
        if result.is_err() {
            self.lost_since += 1;
            self.lost += 1;
        }
        result
    }

    fn try_append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        if record.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(JournalError::TooLong { bytes: record.payload.len() });
        }
        if self.lost_since > 0 {
            let missing =
                Record { kind: LOST, extra: self.lost_since, time: record.time, ..Record::default() };
            self.put(&missing)?;
            self.lost_since = 0;
        }
        self.put(record)
    }

    fn put(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        let length = (RECORD_HEADER_BYTES + record.payload.len()) as u64;
        let end = self.offset + self.buffer.len() as u64 + length;
        if self.segment.is_none() || end > self.reserved_bytes {
            self.begin_segment(record.time, length)?;
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        let number = self.next;
        Record { number, ..*record }.encode(&mut self.buffer);
        self.next += 1;
        Ok(number)
    }

    /// Writes what is buffered. Whatever fails is tried again at the next call.
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
        self.is_synced = false;
        Ok(())
    }

    /// Writes what is buffered and waits until the disk has it.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.flush()?;
        if let (Some((path, file)), false) = (&self.segment, self.is_synced) {
            file.sync_data().map_err(failed(path, "cannot be synced"))?;
            self.is_synced = true;
        }
        Ok(())
    }

    #[cold]
    fn begin_segment(&mut self, time: Nanos, room: u64) -> Result<(), JournalError> {
        // Whole before its successor is there: a reader takes a successor for the end.
        self.sync()?;
        let path = segment_path(&self.folder, self.next);
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed(&path, "cannot be created"))?;
        let bytes = self.options.segment_bytes.max(SEGMENT_HEADER_BYTES + room);
        if let Err(error) = reserve(&file, &path, bytes) {
            drop(file);
            // What cannot be reserved is not left behind half reserved.
            let _gone_anyway = fs::remove_file(&path);
            return Err(error);
        }
        let header = SegmentHeader { first: self.next, time }.encode();
        file.write_all_at(&header, 0).map_err(failed(&path, "cannot be written"))?;
        file.sync_all().map_err(failed(&path, "cannot be synced"))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed(&self.folder, "cannot be synced"))?;
        self.segment = Some((path, file));
        self.offset = SEGMENT_HEADER_BYTES;
        self.reserved_bytes = bytes;
        self.is_synced = false;
        self.remove_oldest()
    }

    /// Removes the oldest segments, as many as are too much; never the one that is written, nor any that is needed.
    fn remove_oldest(&mut self) -> Result<(), JournalError> {
        let Some(keep) = self.options.keep_bytes else { return Ok(()) };
        let all = segments(&self.folder)?;
        let mut sizes = Vec::with_capacity(all.len());
        for segment in &all {
            let size = fs::metadata(&segment.path).map_err(failed(&segment.path, "cannot be read"))?.len();
            sizes.push(size);
        }
        let mut total: u64 = sizes.iter().sum();
        let successors = all.iter().skip(1);
        for ((segment, successor), size) in all.iter().zip(successors).zip(sizes) {
            if total <= keep || successor.first > self.needed_from {
                break;
            }
            fs::remove_file(&segment.path).map_err(failed(&segment.path, "cannot be removed"))?;
            total -= size;
            self.removed_segments += 1;
        }
        Ok(())
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        // An error would have been told by a flush before; there is nobody left to tell.
        let _unheard = self.flush();
    }
}

/// Reserves the file's blocks, so that writing into it later does not meet a full disk.
fn reserve(file: &File, path: &Path, bytes: u64) -> Result<(), JournalError> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // A file system that cannot reserve: the length is all there is.
        Err(rustix::io::Errno::OPNOTSUPP) => {
            file.set_len(bytes).map_err(failed(path, "cannot be lengthened"))
        }
        Err(error) => Err(failed(path, "cannot reserve its room")(error.into())),
    }
}

/// Bytes from `offset` to the last one that is not zero.
fn torn(file: &File, path: &Path, offset: u64, end: u64) -> Result<u64, JournalError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut at, mut last) = (offset, offset);
    while at < end {
        let read = read_at(file, &mut buffer, at).map_err(failed(path, "cannot be read"))?;
        if read == 0 {
            break;
        }
        if let Some(position) = buffer[..read].iter().rposition(|byte| *byte != 0) {
            last = at + position as u64 + 1;
        }
        at += read as u64;
    }
    Ok(last - offset)
}
