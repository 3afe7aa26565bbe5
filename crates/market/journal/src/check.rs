//! Verifying a whole journal.

use std::path::{Path, PathBuf};

use tapeworks_disk::{Access, Disk, System};

use crate::error::{JournalError, failed};
use crate::folder::{Segment, segments};
use crate::format::{Head, LOST, SegmentHeader};
use crate::mark;
use crate::scan::scan;

/// An inconsistency in a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The segment.
    pub path: PathBuf,
    /// Byte offset in the segment.
    pub offset: u64,
    /// Description.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// The result of verifying a journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Number of segments.
    pub segments: u64,
    /// Sound records.
    pub records: u64,
    /// Payload bytes of the sound records.
    pub payload_bytes: u64,
    /// Number of the first record, and the number after the last.
    pub numbers: Option<(u64, u64)>,
    /// Times of the first and the last record.
    pub times: Option<(u64, u64)>,
    /// Lost records that the journal itself counts: they could not be written, or [`repair`](crate::repair) replaced
    /// damaged records by the count.
    pub lost: u64,
    /// Damaged records.
    pub damaged: u64,
    /// Records missing at the end that were once on disk.
    pub missing: u64,
    /// Damaged, torn and missing parts.
    pub damage: Vec<Damage>,
}

/// Reads and checks every record of the journal in `folder`.
///
/// `goes_on` is called before each segment and returns whether to continue.
///
/// # Errors
/// A folder or file that cannot be read. [`JournalError::Stopped`] if `goes_on` returns `false`.
pub fn verify(folder: &Path, goes_on: impl FnMut() -> bool) -> Result<Verified, JournalError> {
    verify_in::<System>(folder, goes_on)
}

/// [`verify`] on the disk `D`.
///
/// # Errors
/// As [`verify`].
pub fn verify_in<D: Disk>(
    folder: &Path,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Verified, JournalError> {
    let mut verified = Verified::default();
    // Read the mark before the segments, because a writer may be running.
    let synced = mark::of::<D>(folder)?;
    let all = segments::<D>(folder)?;
    for (at, Segment { path, first }) in all.iter().enumerate() {
        if !goes_on() {
            return Err(JournalError::Stopped);
        }
        verified.segments += 1;
        let mut damage = Vec::new();
        let mut note = |offset: u64, what: String| damage.push(Damage { path: path.clone(), offset, what });
        if let Some((_, next)) = verified.numbers
            && next != *first
        {
            verified.damaged += first.saturating_sub(next);
            note(0, missing_segment(next, *first));
        }
        let file = D::open(path, Access::Read).map_err(failed(path, "cannot be opened"))?;
        let head = SegmentHeader::read(&file, path, *first)?;
        if let Head::Damaged(what) = head {
            note(0, what.to_owned());
        }
        let (mut records, mut payload_bytes, mut lost, mut damaged) = (0, 0, 0, 0);
        let mut times = verified.times;
        let tail = scan(
            &file,
            path,
            *first,
            |record| {
                records += 1;
                payload_bytes += record.payload.len() as u64;
                times = Some((times.map_or(record.time, |(begin, _)| begin), record.time));
                lost = if record.kind == LOST { record.extra.saturating_add(lost) } else { lost };
            },
            |place| {
                damaged += place.records.end - place.records.start;
                note(place.bytes.start, place.to_string());
            },
        )?;
        if head == Head::Unwritten && (records > 0 || tail.torn_bytes > 0) {
            note(0, "its header is damaged".to_owned());
        }
        if tail.torn_bytes > 0 {
            let bytes = tail.torn_bytes;
            let is_last = at + 1 == all.len();
            let what =
                if is_last { "no sound record follows" } else { "no sound record follows in this segment" };
            note(tail.offset, format!("record {} is torn or damaged: {bytes} bytes; {what}", tail.next));
        }
        verified.records += records;
        verified.payload_bytes += payload_bytes;
        verified.lost = verified.lost.saturating_add(lost);
        verified.damaged += damaged;
        verified.times = times;
        verified.damage.extend(damage);
        let begin = verified.numbers.map_or(*first, |(begin, _)| begin);
        verified.numbers = Some((begin, tail.next));
    }
    let next = verified.numbers.map_or(0, |(_, next)| next);
    verified.missing = synced.saturating_sub(next);
    if verified.missing > 0 {
        let what = format!(
            "the disk has had the records before {synced}: {} from {next} on are gone",
            verified.missing
        );
        verified.damage.push(Damage { path: folder.join(mark::NAME), offset: 0, what });
    }
    Ok(verified)
}

fn missing_segment(next: u64, first: u64) -> String {
    if first > next {
        format!("begins with record {first}: {} records before it are missing", first - next)
    } else {
        format!("begins with record {first}, where {next} should come")
    }
}
