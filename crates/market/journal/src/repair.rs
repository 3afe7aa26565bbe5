//! Repairing a damaged journal.

use std::path::{Path, PathBuf};

use tapeworks_disk::{Access, Disk, DiskFile as _, System};

use crate::error::{JournalError, failed};
use crate::folder::{DAMAGED, Segment, segment_path, segments, set_aside, set_aside_of};
use crate::format::{
    Head, LOST, MAX_PAYLOAD_BYTES, NUMBERED, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES, SegmentHeader,
};
use crate::reader::last_time_in;
use crate::scan::{DamagedPlace, scan, zero};
use crate::writer::{JournalOptions, JournalWriter};

/// The result of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// Bytes of a torn record that were cut off the end.
    pub torn_bytes: u64,
    /// Damaged or missing ranges that were replaced by records that count the loss.
    pub places: u64,
    /// Records lost in them.
    pub records: u64,
    /// Segment headers that were rewritten.
    pub headers: u64,
    /// Damaged ranges too small for such a record. They stay unchanged; readers skip them.
    pub left: u64,
    /// Files with copies of the replaced bytes.
    pub set_aside: Vec<PathBuf>,
}

/// Repairs the journal in `folder`.
///
/// Cuts off a torn record at the end, and replaces records damaged or missing elsewhere with a [`LOST`] record. The old
/// bytes are first copied into files beside the segments, so nothing is destroyed. A sound journal does not change.
///
/// # Errors
/// As [`JournalWriter::open`]; a disk that is full or fails. [`JournalError::Stopped`] if `goes_on`, which is called
/// before each segment, returns `false`; the segments before it are repaired.
pub fn repair(folder: &Path, goes_on: impl FnMut() -> bool) -> Result<Repaired, JournalError> {
    repair_in::<System>(folder, goes_on)
}

/// [`repair`] on the disk `D`.
///
/// # Errors
/// As [`repair`].
pub fn repair_in<D: Disk>(
    folder: &Path,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Repaired, JournalError> {
    let last = segments::<D>(folder)?.last().map_or(0, |segment| segment.first);
    let before = set_aside_of::<D>(folder, last)?;
    // Cuts off torn bytes, and locks out other writers.
    let (mut writer, opened) = JournalWriter::<D>::open_in(folder, JournalOptions::default())?;
    let mut repaired = Repaired { torn_bytes: opened.torn_bytes, ..Repaired::default() };
    repaired
        .set_aside
        .extend(set_aside_of::<D>(folder, last)?.into_iter().filter(|path| !before.contains(path)));
    let mut next: Option<u64> = None;
    for Segment { path, first } in segments::<D>(folder)? {
        if !goes_on() {
            return Err(JournalError::Stopped);
        }
        let file = D::open(&path, Access::Write).map_err(failed(&path, "cannot be opened"))?;
        let (mut places, mut begin) = (Vec::new(), None);
        let tail = scan(
            &file,
            &path,
            first,
            |record| begin = begin.or(Some(record.time)),
            |place| places.push(place),
        )?;
        let head = SegmentHeader::read(&file, &path, first)?;
        let of_header = match head {
            Head::Sound(header) => Some(header.time),
            Head::Unwritten | Head::Damaged(_) => None,
        };
        let time = begin.or(places.first().map(|place| place.time)).or(of_header).unwrap_or(0);
        for place in places {
            mend::<D>(&file, &path, &place, &mut repaired)?;
        }
        if tail.torn_bytes > 0 {
            // Not the last segment, so the bytes after the last sound record belong to the missing records.
            let bytes = tail.offset..tail.offset + tail.torn_bytes;
            repaired.set_aside.push(set_aside::<D>(&file, &path, DAMAGED, bytes.clone())?);
            zero(&file, &path, bytes)?;
        }
        if let Head::Damaged(_) = head {
            repaired.set_aside.push(set_aside::<D>(&file, &path, DAMAGED, 0..SEGMENT_HEADER_BYTES)?);
        }
        if tail.next > first && !matches!(head, Head::Sound(_)) {
            let header = SegmentHeader { first, time }.encode();
            file.write_all_at(&header, 0).map_err(failed(&path, "cannot be written"))?;
            repaired.headers += 1;
        }
        file.sync_all().map_err(failed(&path, "cannot be synced"))?;
        if let Some(next) = next.filter(|next| *next < first) {
            stand_for::<D>(folder, next, first, time)?;
            repaired.places += 1;
            repaired.records += first - next;
        }
        next = Some(tail.next.max(next.unwrap_or_default()));
    }
    if opened.missing > 0 {
        // The end of the journal was truncated.
        let time = last_time_in::<D>(folder)?.unwrap_or_default();
        writer.lose_until(opened.next + opened.missing, time)?;
        writer.sync()?;
        repaired.places += 1;
        repaired.records += opened.missing;
    }
    D::sync_folder(folder).map_err(failed(folder, "cannot be synced"))?;
    Ok(repaired)
}

/// Overwrites a damaged range with records that count the loss and fill it, so that the next record follows.
fn mend<D: Disk>(
    file: &D::File,
    path: &Path,
    place: &DamagedPlace,
    repaired: &mut Repaired,
) -> Result<(), JournalError> {
    let DamagedPlace { bytes, records, time } = place;
    let (length, lost) = (bytes.end - bytes.start, records.end - records.start);
    let (header, most) = (RECORD_HEADER_BYTES as u64, (RECORD_HEADER_BYTES + MAX_PAYLOAD_BYTES) as u64);
    let pieces = length.div_ceil(most);
    // Each piece must count at least one record and have room for its header.
    if lost < pieces || length < header * pieces {
        repaired.left += 1;
        return Ok(());
    }
    repaired.set_aside.push(set_aside::<D>(file, path, DAMAGED, bytes.clone())?);
    let (mut at, mut number, mut to_fill) = (bytes.start, records.start, length);
    for piece in (0..pieces).rev() {
        // The last piece counts all remaining records; each piece leaves room for the headers of the pieces after it.
        let stands_for = if piece == 0 { records.end - number } else { 1 };
        let size = to_fill.min(most).min(to_fill - header * piece);
        let payload = vec![0; usize::try_from(size - header).unwrap_or_default()];
        number += stands_for;
        let mut encoded = Vec::new();
        lost_record(number, stands_for, *time, &payload).encode(&mut encoded);
        file.write_all_at(&encoded, at).map_err(failed(path, "cannot be written"))?;
        at += size;
        to_fill -= size;
    }
    repaired.places += 1;
    repaired.records += lost;
    Ok(())
}

/// Returns the record that counts the `stands_for` lost records before the record `next`.
fn lost_record(next: u64, stands_for: u64, time: u64, payload: &[u8]) -> Record<'_> {
    let number = next.saturating_sub(1);
    Record { number, time, kind: LOST, line: NUMBERED, extra: stands_for, payload, ..Record::default() }
}

/// Creates a segment that counts the records in `next..first` as lost, because no file has them.
fn stand_for<D: Disk>(folder: &Path, next: u64, first: u64, time: u64) -> Result<(), JournalError> {
    let path = segment_path(folder, next);
    let mut bytes = SegmentHeader { first: next, time }.encode().to_vec();
    lost_record(first, first - next, time, &[]).encode(&mut bytes);
    let file = D::open(&path, Access::Replace).map_err(failed(&path, "cannot be created"))?;
    file.write_all_at(&bytes, 0).map_err(failed(&path, "cannot be written"))?;
    file.sync_all().map_err(failed(&path, "cannot be synced"))
}
