//! Reads one segment from end to end, past damage.
//!
//! A position where the expected record is not sound is *damage* if a sound record follows it in the segment, and
//! otherwise the *tail*: zeros, or a record torn by a crash. Records are numbered consecutively, so the next sound
//! record shows how many were lost.
//!
//! Cost: one pass. The search for the next sound record compares the number at every byte, and computes a CRC only
//! where a header is plausible; it skips sparse parts of the file.

use std::ops::Range;
use std::path::Path;
use std::{fmt, io};

use tapeworks_disk::{Access, Disk, DiskFile};

use crate::error::{JournalError, failed};
use crate::format::{
    BUFFER_BYTES, Found, MAX_PAYLOAD_BYTES, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES, find,
    first_number, u32_at, u64_at,
};

/// Bytes per read during a search.
const SEARCH_BYTES: usize = 1 << 20;

/// A sound record after damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sound {
    /// Its offset.
    pub(crate) offset: u64,
    pub(crate) number: u64,
    pub(crate) time: u64,
}

/// A range of a segment without a sound record, followed by one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DamagedPlace {
    pub(crate) bytes: Range<u64>,
    /// Numbers of the lost records.
    pub(crate) records: Range<u64>,
    /// Time of the record that follows.
    pub(crate) time: u64,
}

impl fmt::Display for DamagedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, records, .. } = self;
        let length = bytes.end - bytes.start;
        match records.end - records.start {
            0 => write!(f, "{length} bytes between two records are damaged; no record is lost"),
            1 => write!(f, "record {} is damaged: {length} bytes", records.start),
            _ => write!(f, "records {} to {} are damaged: {length} bytes", records.start, records.end - 1),
        }
    }
}

/// The end of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    /// End of the last sound record.
    pub(crate) offset: u64,
    /// The next record number.
    pub(crate) next: u64,
    /// Bytes from `offset` to the last nonzero one: a partly written record.
    pub(crate) torn_bytes: u64,
}

/// Reads the segment in `file` whose first record should be `first`. Reports its records and damage, and returns its
/// tail.
pub(crate) fn scan(
    file: &impl DiskFile,
    path: &Path,
    first: u64,
    mut record: impl FnMut(&Record<'_>),
    mut damage: impl FnMut(DamagedPlace),
) -> Result<Tail, JournalError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut offset, mut next) = (SEGMENT_HEADER_BYTES, first);
    loop {
        let filled = file.read_full_at(&mut buffer, offset).map_err(failed(path, "cannot be read"))?;
        let mut used = 0;
        let is_sound = loop {
            match find(&buffer[used..filled], next) {
                Found::Record(found, length) => {
                    used += length;
                    next = found.number.saturating_add(1);
                    record(&found);
                }
                Found::Cut { needed } if used == 0 && filled == buffer.len() => {
                    buffer.resize(needed.max(RECORD_HEADER_BYTES), 0);
                    break true;
                }
                Found::Cut { .. } if used > 0 => break true,
                Found::Cut { .. } | Found::Nothing | Found::Bad => break false,
            }
        };
        offset += used as u64;
        if is_sound {
            continue;
        }
        match next_sound(file, path, offset, next)? {
            // A writer appended meanwhile.
            Some(Sound { offset: behind, number, .. }) if (behind, number) == (offset, next) => {}
            Some(Sound { offset: behind, number, time }) => {
                damage(DamagedPlace { bytes: offset..behind, records: next..number, time });
                (offset, next) = (behind, number);
            }
            None => return Ok(Tail { offset, next, torn_bytes: torn_bytes(file, path, offset)? }),
        }
    }
}

/// Finds the first sound record at or after `from` whose number is at least `least`.
pub(crate) fn next_sound(
    file: &impl DiskFile,
    path: &Path,
    from: u64,
    least: u64,
) -> Result<Option<Sound>, JournalError> {
    let cannot_be_read = || failed(path, "cannot be read");
    let length = file.length().map_err(cannot_be_read())?;
    // Each record before it occupies at least a header.
    let most = least.saturating_add(length.saturating_sub(from) / RECORD_HEADER_BYTES as u64);
    let (mut window, mut whole) = (vec![0; SEARCH_BYTES], Vec::new());
    let mut at = from;
    while let Some(begin) = file.data_from(at) {
        let filled = file.read_full_at(&mut window, begin).map_err(cannot_be_read())?;
        let headers = filled.saturating_sub(RECORD_HEADER_BYTES - 1);
        for block in (0..headers).step_by(BLOCK_BYTES) {
            let until = (block + BLOCK_BYTES).min(headers);
            // Unwritten space.
            if is_zero(&window[block..until + RECORD_HEADER_BYTES - 1]) {
                continue;
            }
            for place in block..until {
                let header = &window[place..place + RECORD_HEADER_BYTES];
                let number = u64_at(header, 8);
                let length = u32_at(header, 4) as usize;
                if number < least || number > most || length > MAX_PAYLOAD_BYTES || header[36..] != [0; 4] {
                    continue;
                }
                let Some(number) = first_number(header).filter(|first| *first >= least) else { continue };
                let (offset, end) = (begin + place as u64, place + RECORD_HEADER_BYTES + length);
                let bytes = if end <= filled {
                    &window[place..end]
                } else {
                    whole.resize(end - place, 0);
                    let read = file.read_full_at(&mut whole, offset).map_err(cannot_be_read())?;
                    &whole[..read]
                };
                if let Found::Record(record, _) = find(bytes, number) {
                    return Ok(Some(Sound { offset, number, time: record.time }));
                }
            }
        }
        if filled < window.len() {
            return Ok(None);
        }
        // A header may begin in the last bytes of the window.
        at = begin + headers as u64;
    }
    Ok(None)
}

/// Block size in which zeros are skipped.
const BLOCK_BYTES: usize = 4_096;

/// Returns whether all bytes are zero. Returns `false` if there are more than a block and a header.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES + RECORD_HEADER_BYTES] = [0; BLOCK_BYTES + RECORD_HEADER_BYTES];
    // Comparing slices is as fast without optimization as with it.
    ZEROS.get(..bytes.len()).is_some_and(|zeros| zeros == bytes)
}

/// Returns the number of bytes from `from` to the last nonzero one.
pub(crate) fn torn_bytes(file: &impl DiskFile, path: &Path, from: u64) -> Result<u64, JournalError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut at, mut last) = (from, from);
    while let Some(begin) = file.data_from(at) {
        let read = file.read_full_at(&mut buffer, begin).map_err(failed(path, "cannot be read"))?;
        if read == 0 {
            break;
        }
        let mut blocks = buffer[..read].chunks(BLOCK_BYTES).enumerate();
        if let Some((block, bytes)) = blocks.rfind(|(_, bytes)| !is_zero(bytes)) {
            let position = bytes.iter().rposition(|byte| *byte != 0).unwrap_or_default();
            last = begin + (block * BLOCK_BYTES + position) as u64 + 1;
        }
        at = begin + read as u64;
    }
    Ok(last - from)
}

/// Copies `bytes` of a segment into the new file `to` and syncs it. Fails if `to` exists.
pub(crate) fn copy_aside<D: Disk>(file: &D::File, bytes: Range<u64>, to: &Path) -> io::Result<()> {
    let copy = D::open(to, Access::CreateNew)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = bytes.start;
    while at < bytes.end {
        let most = usize::try_from(bytes.end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = file.read_full_at(&mut buffer[..most], at)?;
        if read == 0 {
            break;
        }
        copy.write_all_at(&buffer[..read], at - bytes.start)?;
        at += read as u64;
    }
    copy.sync_all()
}

/// Overwrites `bytes` of a segment with zeros.
pub(crate) fn zero(file: &impl DiskFile, path: &Path, bytes: Range<u64>) -> Result<(), JournalError> {
    let zeros = vec![0; 64 << 10];
    let mut at = bytes.start;
    while at < bytes.end {
        let length = usize::try_from(bytes.end - at).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all_at(&zeros[..length], at).map_err(failed(path, "cannot be written"))?;
        at += length as u64;
    }
    Ok(())
}
