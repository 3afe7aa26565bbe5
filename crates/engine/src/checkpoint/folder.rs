//! The checkpoints in a journal's folder.
//!
//! A file is written under another name, synced, and renamed. The newest two are kept, the first in each segment of the journal, and
//! those up to the one that the plant started from: where a record before them is damaged, a replay goes on from them, and clients
//! have had what lies behind them. The journal keeps the segments from the older of the newest two on, whatever its size
//! ([`JournalOptions::keep_bytes`](tapeworks_journal::JournalOptions::keep_bytes)). A checkpoint that is damaged, of another
//! configuration, or of records that the journal does not have is not used, and the start reports it.

use std::io;
use std::path::{Path, PathBuf};

use tapeworks_disk::{Access, Disk, DiskFile as _, System};
use tapeworks_journal::{Opened, segment_starts_in};
use tapeworks_time::Nanos;

use super::{HEADER_BYTES, Header, Restored, body_of, restore, seal};
use crate::EngineOptions;

const ENDING: &str = "snapshot";

/// So many of the newest checkpoints are kept; the journal keeps their records.
const KEPT: usize = 2;

/// Writes the bytes of [`encode`](super::encode) as the state after `record` records. Returns its size in bytes.
///
/// # Errors
/// What the system says.
pub fn write(folder: &Path, record: u64, bytes: &mut [u8]) -> io::Result<u64> {
    write_in::<System>(folder, record, bytes)
}

/// As [`write()`], on the disk `D`.
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
        // No run finishes it.
        let _gone = D::remove_file(&partial);
        return Err(error);
    }
    Ok(bytes.len() as u64)
}

/// Removes the checkpoints that are no longer needed: all but the newest two, the first in each segment of the journal, and those
/// up to the record `start`, with which this run began, as long as the journal has their segment. Returns the first record of the
/// journal that is needed.
///
/// # Errors
/// A folder that cannot be listed, or a file that cannot be removed.
pub fn prune(folder: &Path, start: u64) -> Result<u64, String> {
    prune_in::<System>(folder, start)
}

/// As [`prune`], on the disk `D`.
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
        // 0 is the place before the first segment.
        let segment = starts.partition_point(|start| start <= record);
        let is_first = segment > last_segment;
        if segment == 0 || *record > start && !is_first {
            D::remove_file(path).map_err(failed)?;
        }
        last_segment = segment;
    }
    Ok(newest.first().map_or(0, |(record, _)| *record))
}

/// The checkpoints in `folder`, oldest first.
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

/// Clears the folder of checkpoints after their journal, whose first record is `first`, was moved into the folder `to`. Checkpoints
/// of records that it has go with it: an export begins with them where the journal has lost its beginning or inputs in its middle,
/// or begins on an earlier day.
///
/// # Errors
/// What the system says.
pub(crate) fn move_away<D: Disk>(folder: &Path, first: u64, to: &Path) -> io::Result<()> {
    for (record, path) in list::<D>(folder)? {
        match path.file_name() {
            Some(name) if record >= first => D::rename(&path, &to.join(name))?,
            _ => D::remove_file(&path)?,
        }
    }
    Ok(())
}

/// The newest checkpoint that fits these options and the open journal, and the reasons against newer ones. It may include more
/// records than a damaged journal has.
pub fn newest(folder: &Path, opened: &Opened, options: &EngineOptions) -> (Option<Restored>, Vec<String>) {
    newest_in::<System>(folder, opened, options)
}

/// As [`newest`], on the disk `D`.
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
            // Its number will be that of another record: under its new name it is not taken for that record's state.
            let _not_used = D::rename(&path, &path.with_extension(format!("{ENDING}.unused")));
        }
    }
    (None, refused)
}

/// The newest checkpoint without an event at or after `from`, of a journal whose first record is `first`.
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

/// The oldest checkpoint that a replay of a journal whose first record is `first` can begin with.
pub(crate) fn oldest<D: Disk>(folder: &Path, first: u64, options: &EngineOptions) -> Option<Restored> {
    let mut all = list::<D>(folder).ok()?.into_iter().filter(|(record, _)| *record >= first);
    all.find_map(|(record, path)| restore(&D::read(&path).ok()?, record, options).ok())
}

/// The oldest checkpoint behind the record `record`, which records lost inputs.
pub(crate) fn behind<D: Disk>(folder: &Path, record: u64, options: &EngineOptions) -> Option<Restored> {
    oldest::<D>(folder, record.saturating_add(1), options)
}

/// A checkpoint beside a journal, as [`check`] found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedCheckpoint {
    /// The file.
    pub path: PathBuf,
    /// The record of the journal that comes next.
    pub record: u64,
    /// Why it cannot be used; `None` when it is sound.
    pub damage: Option<String>,
}

/// Checks the checkpoints in a journal's folder: header, length and CRC. It does not check whether their state fits a
/// configuration.
///
/// # Errors
/// A folder that cannot be listed.
pub fn check(folder: &Path) -> io::Result<Vec<CheckedCheckpoint>> {
    check_in::<System>(folder)
}

/// As [`check`], on the disk `D`.
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

/// Renames the checkpoints in a journal's folder that [`check`] calls damaged, so that they are not read again: `.damaged` is added
/// to their names. Answers the new names.
///
/// # Errors
/// A folder that cannot be listed or written.
pub fn set_damaged_aside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    set_damaged_aside_in::<System>(folder)
}

/// As [`set_damaged_aside`], on the disk `D`.
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

/// The time in a file's header.
fn time_of<D: Disk>(path: &Path) -> Option<Nanos> {
    let mut header = [0; HEADER_BYTES];
    let read = D::open(path, Access::Read).and_then(|file| file.read_full_at(&mut header, 0)).ok()?;
    Some(Header::read(header.get(..read)?)?.time)
}
