//! Damage at the end of a store that a power loss explains.
//!
//! When the machine loses power, data that was not synced may be lost, and the disk may have a later part and lack an earlier one.
//! The store itself shows whether a hole is of this kind, or whether data is damaged that the disk had promised to keep:
//!
//! - The hole is in the last segment, because a segment is synced before the next one begins.
//! - No intact record after it shows that the hole was synced. Each record states how many records before it were not yet synced
//!   when it was written ([`NO_CLAIM`](crate::entry::NO_CLAIM)). With a sync before each send there are none, so nothing is ever
//!   cut off.
//!
//! If both hold, everything after the hole was written after the last sync that the store knows of, so no sync has promised it. A
//! damaged record from the last moments before a stop without a sync looks the same: it is as recent, and no sync had promised it
//! either.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tapeworks_disk::Disk;
use tapeworks_journal::{JournalError, JournalReader, LOST, segment_starts_in};

use crate::entry::{NO_CLAIM, PART, TURN};

/// The part that a start has cut off at the end of its store, or would cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// The number of the first record cut off.
    pub from: u64,
    /// The number of records lost from the disk.
    pub lost: u64,
    /// The number of intact records after them, which are useless without the lost records.
    pub discarded: u64,
    /// The times of the first and the last discarded record, in UTC nanoseconds.
    pub times_ns: (u64, u64),
    /// The file that holds the bytes that were cut off.
    pub set_aside: Option<PathBuf>,
}

/// Checks whether a power loss explains the hole of `lost` records from `from` on, which `reader` has just reached. Reads the rest
/// of the journal.
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
