//! Damage at the end of a store that a power loss explains.
//!
//! What is not synced may be lost when the machine loses power, and the disk may have a later part of it and not an earlier one. Such a
//! hole is distinguished from damage to what the disk had promised by what the store says itself:
//!
//! - It is in the last segment: one is synced before the next begins.
//! - No sound record behind it says that it was synced. Each record has how many before it were not, when it was written
//!   ([`NO_CLAIM`](crate::entry::NO_CLAIM)); with a sync before each send that is none, so nothing is ever cut there.
//!
//! Then all that is behind the hole was written after the last sync that the store knows of, and `sync` has not promised it. A damaged
//! record of the last moments before a stop without a sync looks the same: it is as young, and was promised no more.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tapeworks_disk::Disk;
use tapeworks_journal::{JournalError, JournalReader, LOST, segment_starts_in};

use crate::entry::{NO_CLAIM, PART, TURN};

/// What a start has cut off at the end of its store, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// The number of the first record that is gone.
    pub from: u64,
    /// Records that the disk did not have.
    pub lost: u64,
    /// Sound records behind them, which are of no use without them.
    pub discarded: u64,
    /// The times of the first and the last of these, in UTC nanoseconds.
    pub times_ns: (u64, u64),
    /// The file that has the bytes from there on.
    pub set_aside: Option<PathBuf>,
}

/// Whether the hole that `reader` has just come to is one that a power loss explains: `lost` records from `from` on. Reads the rest of the
/// journal.
pub(crate) fn unsynced<D: Disk>(
    folder: &Path,
    reader: &mut JournalReader<D>,
    (from, lost): (u64, u64),
) -> Result<Option<Cut>, JournalError> {
    if segment_starts_in::<D>(folder)?.last().is_none_or(|first| *first > from) {
        return Ok(None);
    }
    let mut cut = Cut { from, lost, ..Cut::default() };
    while let Some(record) = reader.next()? {
        if record.kind == LOST {
            cut.lost = cut.lost.saturating_add(record.extra);
            continue;
        }
        let is_synced =
            record.channel != NO_CLAIM && record.number - u64::from(record.channel).min(record.number) > from;
        if is_synced || !matches!(record.kind, TURN | PART) {
            return Ok(None);
        }
        cut.discarded += 1;
        let first_ns = if cut.discarded == 1 { record.time } else { cut.times_ns.0 };
        cut.times_ns = (first_ns, record.time);
    }
    Ok((cut.discarded > 0).then_some(cut))
}
