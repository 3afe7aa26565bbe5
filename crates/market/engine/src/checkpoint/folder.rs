//! The checkpoints in a journal's folder.
//!
//! A file is written under another name, synced, and renamed. These checkpoints are kept: the newest two, the first one
//! in each segment of the journal, and those up to the one from which the plant started. If a record before the latter
//! is damaged, a replay continues from them, and clients have already received what follows them. Regardless of its
//! size limit, the journal keeps the segments from the older of the newest two on
//! ([`JournalOptions::keep_bytes`](tapeworks_journal::JournalOptions::keep_bytes)). A checkpoint that is damaged, of
//! another configuration, or of records that the journal does not have is not used, and reported at startup.

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_disk::{Access, Disk, DiskFile as _, System};
use tapeworks_journal::{Opened, segment_starts_in};
use tapeworks_time::Nanos;

use super::{HEADER_BYTES, Header, Restored, body_of, restore, seal};
use crate::EngineOptions;

const ENDING: &str = "snapshot";

/// Number of newest checkpoints to keep; the journal keeps their records.
const KEPT: usize = 2;

/// Writes the bytes from [`encode`](super::encode) as the state after `record` records. Returns the file size in bytes.
///
/// # Errors
/// An I/O error.
pub fn write(folder: &Path, record: u64, bytes: &mut [u8]) -> io::Result<u64> {
    write_in::<System>(folder, record, bytes)
}

/// [`write()`] on the disk `D`.
///
/// # Errors
/// As [`write()`].
pub fn write_in<D: Disk>(folder: &Path, record: u64, bytes: &mut [u8]) -> io::Result<u64> {
    seal(bytes, record);
    let path = folder.join(format!("{record:020}.{ENDING}"));
    let partial = folder.join(format!("{record:020}.{ENDING}.partial"));
    let written = D::open(&partial, Access::Replace).and_then(|file| {
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        D::rename(&partial, &path)?;
        D::sync_folder(folder)
    });
    if let Err(error) = written {
        // No later run would complete it.
        let _gone = D::remove_file(&partial);
        return Err(error);
    }
    Ok(bytes.len() as u64)
}

/// Removes checkpoints that are no longer needed. Returns the first record of the journal that is still needed.
///
/// Keeps the newest two, the first one in each segment of the journal, and, as long as the journal has their segment,
/// those up to the record `start` from which this run started.
///
/// # Errors
/// A folder that cannot be listed, or a file that cannot be removed.
pub fn prune(folder: &Path, start: u64) -> Result<u64, String> {
    prune_in::<System>(folder, start)
}

/// [`prune`] on the disk `D`.
///
/// # Errors
/// As [`prune`].
pub fn prune_in<D: Disk>(folder: &Path, start: u64) -> Result<u64, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let all = list::<D>(folder).map_err(failed)?;
    let starts = segment_starts_in::<D>(folder).map_err(|error| error.to_string())?;
    let (old, newest) = all.split_at(all.len().saturating_sub(KEPT));
    let mut last_segment = 0;
    for (record, path) in old {
        // 0 means before the first segment.
        let segment = starts.partition_point(|start| start <= record);
        let is_first = segment > last_segment;
        if segment == 0 || *record > start && !is_first {
            D::remove_file(path).map_err(failed)?;
        }
        last_segment = segment;
    }
    Ok(newest.first().map_or(0, |(record, _)| *record))
}

/// Lists the checkpoints in `folder`, oldest first.
pub(super) fn list<D: Disk>(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut all = Vec::new();
    for path in D::entries(folder)? {
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Some(record) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            all.push((record, path));
        }
    }
    all.sort();
    Ok(all)
}

/// Takes the checkpoints out of the folder of a journal that moves to `to`, and whose first record is `first`.
///
/// Checkpoints of records that the journal contains move with it, because an export starts from them if the journal has
/// lost its beginning or inputs in the middle, or begins on an earlier day. The others are removed.
///
/// # Errors
/// An I/O error.
pub(crate) fn move_away<D: Disk>(folder: &Path, first: u64, to: &Path) -> io::Result<()> {
    for (record, path) in list::<D>(folder)? {
        match path.file_name() {
            Some(name) if record >= first => D::rename(&path, &to.join(name))?,
            _ => D::remove_file(&path)?,
        }
    }
    Ok(())
}

/// Finds the newest checkpoint that matches these options and the opened journal, with the reasons against newer ones.
///
/// It may include more records than a damaged journal has.
pub fn newest(folder: &Path, opened: &Opened, options: &EngineOptions) -> (Option<Restored>, Vec<String>) {
    newest_in::<System>(folder, opened, options)
}

/// [`newest`] on the disk `D`.
pub fn newest_in<D: Disk>(
    folder: &Path,
    opened: &Opened,
    options: &EngineOptions,
) -> (Option<Restored>, Vec<String>) {
    let mut refused = Vec::new();
    let all = match list::<D>(folder) {
        Ok(all) => all,
        Err(error) => return (None, vec![format!("{}: {error}", folder.display())]),
    };
    for (record, path) in all.into_iter().rev() {
        let restored = if record < opened.first || opened.next == 0 && record > 0 {
            Err(format!("the journal has the records from {} to {}", opened.first, opened.next))
        } else {
            D::read(&path)
                .map_err(|error| error.to_string())
                .and_then(|bytes| restore(&bytes, record, options))
        };
        match restored {
            Ok(restored) => return (Some(restored), refused),
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
        if record > opened.next {
            // Another record will get this number; under a new name the file is not mistaken for that record's state.
            let _not_used = D::rename(&path, &path.with_extension(format!("{ENDING}.unused")));
        }
    }
    (None, refused)
}

/// Finds the newest checkpoint without an event at or after `from`, for a journal whose first record is `first`.
pub(crate) fn before<D: Disk>(
    folder: &Path,
    first: u64,
    from: Nanos,
    options: &EngineOptions,
) -> Option<Restored> {
    let all = list::<D>(folder).ok()?.into_iter().rev();
    let mut early =
        all.filter(|(record, path)| *record >= first && time_of::<D>(path).is_some_and(|time| time < from));
    early.find_map(|(record, path)| restore(&D::read(&path).ok()?, record, options).ok())
}

/// Finds the oldest checkpoint from which a replay of a journal whose first record is `first` can start.
pub(crate) fn oldest<D: Disk>(folder: &Path, first: u64, options: &EngineOptions) -> Option<Restored> {
    let mut all = list::<D>(folder).ok()?.into_iter().filter(|(record, _)| *record >= first);
    all.find_map(|(record, path)| restore(&D::read(&path).ok()?, record, options).ok())
}

/// Finds the oldest checkpoint after `record`, a record of lost inputs.
pub(crate) fn behind<D: Disk>(folder: &Path, record: u64, options: &EngineOptions) -> Option<Restored> {
    oldest::<D>(folder, record.saturating_add(1), options)
}

/// The result of [`check`] for one checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedCheckpoint {
    /// The file.
    pub path: PathBuf,
    /// The next record of the journal.
    pub record: u64,
    /// Why it cannot be used; `None` if it is sound.
    pub damage: Option<String>,
}

/// Checks the checkpoints in a journal's folder: header, length and CRC.
///
/// Does not check whether their state matches a configuration.
///
/// # Errors
/// A folder that cannot be listed.
pub fn check(folder: &Path) -> io::Result<Vec<CheckedCheckpoint>> {
    check_in::<System>(folder)
}

/// [`check`] on the disk `D`.
///
/// # Errors
/// As [`check`].
pub fn check_in<D: Disk>(folder: &Path) -> io::Result<Vec<CheckedCheckpoint>> {
    let check = |(record, path): (u64, PathBuf)| {
        let bytes = D::read(&path).map_err(|error| error.to_string());
        let damage = bytes.and_then(|bytes| body_of(&bytes, record).map(|_| ())).err();
        CheckedCheckpoint { path, record, damage }
    };
    Ok(list::<D>(folder)?.into_iter().map(check).collect())
}

/// Renames the checkpoints that [`check`] finds damaged, so that they are not read again. Returns the new names.
///
/// The suffix `.damaged` is added to their names.
///
/// # Errors
/// A folder that cannot be listed or written.
pub fn set_damaged_aside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    set_damaged_aside_in::<System>(folder)
}

/// [`set_damaged_aside`] on the disk `D`.
///
/// # Errors
/// As [`set_damaged_aside`].
pub fn set_damaged_aside_in<D: Disk>(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut aside = Vec::new();
    for damaged in check_in::<D>(folder)?.into_iter().filter(|checkpoint| checkpoint.damage.is_some()) {
        let mut name = damaged.path.clone().into_os_string();
        name.push(".damaged");
        let name = PathBuf::from(name);
        D::rename(&damaged.path, &name)?;
        aside.push(name);
    }
    Ok(aside)
}

/// Reads the time from a file's header.
fn time_of<D: Disk>(path: &Path) -> Option<Nanos> {
    let mut header = [0; HEADER_BYTES];
    let read = D::open(path, Access::Read).and_then(|file| file.read_full_at(&mut header, 0)).ok()?;
    Some(Header::read(header.get(..read)?)?.time)
}
