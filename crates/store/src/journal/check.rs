//! Checking a whole journal.

use std::fs::File;
use std::path::{Path, PathBuf};

use tapeworks_market::Nanos;

use super::{
    BUFFER_BYTES, Found, JournalError, LOST, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
    failed, find, read_at, segments,
};

/// Something in a journal that does not hold together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The segment.
    pub path: PathBuf,
    /// Where, in bytes from its start.
    pub offset: u64,
    /// What.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// What a journal holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Its segments.
    pub segments: u64,
    /// Records that hold together.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// The numbers of the first record and of the one after the last.
    pub numbers: Option<(u64, u64)>,
    /// The times of the first and the last record.
    pub times: Option<(Nanos, Nanos)>,
    /// Records that could not be written at their time, as the journal itself says.
    pub lost: u64,
    /// What does not hold together. A torn record at the very end is mended when the journal is next written to.
    pub damage: Vec<Damage>,
}

/// Reads every record of the journal in `folder` and checks it. Behind a damaged record the rest of its segment is passed
/// over.
///
/// # Errors
/// A folder or file that cannot be read.
pub fn verify(folder: &Path) -> Result<Verified, JournalError> {
    let mut verified = Verified::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    for segment in segments(folder)? {
        verified.segments += 1;
        let path = segment.path;
        let mut damaged = |offset: u64, what: String| {
            verified.damage.push(Damage { path: path.clone(), offset, what });
        };
        if let Some((_, next)) = verified.numbers
            && next != segment.first
        {
            damaged(0, format!("begins with record {}, where {next} should come", segment.first));
        }
        let file = File::open(&path).map_err(failed(&path, "cannot be opened"))?;
        match SegmentHeader::read(&file, &path) {
            Ok(Some(header)) if header.first == segment.first => {}
            Ok(Some(_)) => damaged(0, "its header has another number than its name".to_owned()),
            // Begun, and nothing written.
            Ok(None) => continue,
            Err(JournalError::NotASegment { what, .. }) => {
                damaged(0, what.to_owned());
                continue;
            }
            Err(error) => return Err(error),
        }
        let mut offset = SEGMENT_HEADER_BYTES;
        let mut next = segment.first;
        'segment: loop {
            let filled = read_at(&file, &mut buffer, offset).map_err(failed(&path, "cannot be read"))?;
            let mut used = 0;
            loop {
                match find(&buffer[used..filled], next) {
                    Found::Record(record, length) => {
                        used += length;
                        next += 1;
                        verified.records += 1;
                        verified.payload_bytes += record.payload.len() as u64;
                        let first = verified.times.map_or(record.time, |(first, _)| first);
                        verified.times = Some((first, record.time));
                        if record.kind == LOST {
                            verified.lost += record.extra;
                        }
                    }
                    Found::Cut { needed } if used == 0 && filled == buffer.len() => {
                        buffer.resize(needed.max(RECORD_HEADER_BYTES), 0);
                        break;
                    }
                    Found::Cut { .. } if used > 0 => break,
                    // No record fits into what is left of the segment.
                    Found::Cut { .. } if buffer[used..filled].iter().all(|byte| *byte == 0) => break 'segment,
                    Found::Nothing => break 'segment,
                    Found::Cut { .. } | Found::Bad => {
                        let at = offset + used as u64;
                        let what = format!("record {next} does not hold together");
                        verified.damage.push(Damage { path: path.clone(), offset: at, what });
                        break 'segment;
                    }
                }
            }
            offset += used as u64;
        }
        let first = verified.numbers.map_or(segment.first, |(first, _)| first);
        verified.numbers = Some((first, next));
    }
    Ok(verified)
}
