//! The folder of a journal: its segments and the bytes set aside from them.

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_disk::{Disk, System};

use crate::error::{JournalError, failed};
use crate::mark;
use crate::scan;

const ENDING: &str = "journal";

/// The file of a segment and the number of its first record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) first: u64,
}

pub(crate) fn segment_path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}.{ENDING}"))
}

/// Lists the segments of a journal, in order.
pub(crate) fn segments<D: Disk>(folder: &Path) -> Result<Vec<Segment>, JournalError> {
    let mut all = Vec::new();
    for path in D::entries(folder).map_err(failed(folder, "cannot list the journal"))? {
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Some(first) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            all.push(Segment { path, first });
        }
    }
    all.sort_by_key(|segment| segment.first);
    Ok(all)
}

/// Returns the first record numbers of a journal's segments, in order.
///
/// # Errors
/// A folder that cannot be listed.
pub fn segment_starts(folder: &Path) -> Result<Vec<u64>, JournalError> {
    segment_starts_in::<System>(folder)
}

/// [`segment_starts`] on the disk `D`.
///
/// # Errors
/// A folder that cannot be listed.
pub fn segment_starts_in<D: Disk>(folder: &Path) -> Result<Vec<u64>, JournalError> {
    Ok(segments::<D>(folder)?.into_iter().map(|segment| segment.first).collect())
}

/// Returns whether a file belongs to a journal: a segment, bytes set aside from one, or the sync mark.
#[must_use]
pub fn is_journal_file(path: &Path) -> bool {
    segment_of(path).is_some() || path.file_name().is_some_and(|name| name == mark::NAME)
}

/// Parses the number in the name of a segment, or of bytes set aside from one.
pub(crate) fn segment_of(path: &Path) -> Option<u64> {
    let (number, rest) = path.file_name()?.to_str()?.split_once('.')?;
    let is_ours = rest == ENDING || rest.starts_with(TORN) || rest.starts_with(DAMAGED);
    number.parse().ok().filter(|_| is_ours && number.len() == 20)
}

/// Prefixes of the extensions of files with bytes set aside from a segment; the offset in the segment follows.
pub(crate) const TORN: &str = "torn-";
pub(crate) const DAMAGED: &str = "damaged-";

/// Lists the files with bytes set aside from the segment `first`.
pub(crate) fn set_aside_of<D: Disk>(folder: &Path, first: u64) -> Result<Vec<PathBuf>, JournalError> {
    let mut all = Vec::new();
    for path in D::entries(folder).map_err(failed(folder, "cannot list the journal"))? {
        if segment_of(&path) == Some(first) && path.extension().is_none_or(|ending| ending != ENDING) {
            all.push(path);
        }
    }
    Ok(all)
}

/// Copies `bytes` of the segment at `path` into a file beside it and syncs it. Returns its path.
pub(crate) fn set_aside<D: Disk>(
    file: &D::File,
    path: &Path,
    ending: &str,
    bytes: std::ops::Range<u64>,
) -> Result<PathBuf, JournalError> {
    let mut tries = 0u32;
    loop {
        // The same offset may be torn more than once.
        let again = if tries == 0 { String::new() } else { format!(".{tries}") };
        let to = path.with_extension(format!("{ending}{}{again}", bytes.start));
        match scan::copy_aside::<D>(file, bytes.clone(), &to) {
            Ok(()) => return Ok(to),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 1_000 => tries += 1,
            Err(error) => return Err(failed(&to, "cannot be written")(error)),
        }
    }
}
