//! What a client has read.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use dbn::{MboMsg, Mbp1Msg, RecordRef, flags, rtype};

use crate::plan::ClientPlan;
use crate::states::{Book, States, hash_of, levels_of};

/// A record of the market.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Of its bytes.
    pub(crate) hash: u64,
    /// As `hash`, as if it were the last of its group.
    pub(crate) closed: u64,
    pub(crate) instrument: u32,
    pub(crate) publisher: u16,
    pub(crate) rtype: u8,
    /// The hash of its levels, if it has some.
    pub(crate) levels: Option<u64>,
}

impl Taken {
    pub(crate) fn new(record: RecordRef<'_>) -> Self {
        let header = record.header();
        Self {
            hash: hash_of(record.as_ref()),
            closed: closed(header.rtype, record.as_ref()),
            instrument: header.instrument_id,
            publisher: header.publisher_id,
            rtype: header.rtype,
            levels: levels_of(record).map(|(_, levels)| levels),
        }
    }
}

/// The hash of a record with the flag LAST.
pub(crate) fn closed(rtype: u8, record: &[u8]) -> u64 {
    let at = match rtype {
        rtype::MBO => offset_of!(MboMsg, flags),
        rtype::MBP_0 | rtype::MBP_1 | rtype::MBP_10 | rtype::CMBP_1 => offset_of!(Mbp1Msg, flags),
        _ => return hash_of(record),
    };
    if record.get(at).is_none_or(|flags| flags & flags::LAST != 0) {
        return hash_of(record);
    }
    let mut record = record.to_vec();
    record[at] |= flags::LAST;
    hash_of(&record)
}

/// What a client read in one session, or in several of which each goes on behind the one before.
#[derive(Debug)]
pub(crate) struct Session {
    /// The client's place in the plan.
    pub(crate) number: usize,
    pub(crate) client: ClientPlan,
    /// The plant's start that it was served by last.
    pub(crate) began: u64,
    /// The records of the market, without those of a snapshot.
    pub(crate) records: Vec<Taken>,
    /// The levels of its snapshot, by their books.
    pub(crate) snapshot: BTreeMap<Book, u64>,
    /// Before the record at this place the server said that it left out so many.
    pub(crate) skipped: Vec<(usize, u64)>,
    /// Records before which the server reported a gap.
    pub(crate) gaps: BTreeSet<usize>,
    /// What the snapshot and the records make of books. Of clients with a snapshot, and of those that they are compared with.
    pub(crate) states: Option<States>,
    /// The symbols of instruments, as the server named them.
    pub(crate) symbols: BTreeMap<u32, String>,
    /// The client stopped by itself, when no more came.
    pub(crate) is_whole: bool,
    /// The time of the last record, and how many of the last records have it.
    pub(crate) last: (u64, usize),
    /// Records that come once more.
    pub(crate) repeated: usize,
    /// Replays that have ended.
    pub(crate) replays: usize,
    /// The server had as many replays under way as it may.
    pub(crate) is_put_off: bool,
    /// The earliest `start` of a server that no longer has what was asked for.
    pub(crate) earliest: Option<u64>,
}

impl Session {
    pub(crate) fn new(number: usize, client: &ClientPlan, began: u64) -> Self {
        Self {
            number,
            client: client.clone(),
            began,
            records: Vec::new(),
            snapshot: BTreeMap::new(),
            skipped: Vec::new(),
            gaps: BTreeSet::new(),
            states: client.has_snapshot.then(States::default),
            symbols: BTreeMap::new(),
            is_whole: false,
            last: (0, 0),
            repeated: 0,
            replays: 0,
            is_put_off: false,
            earliest: None,
        }
    }
}
