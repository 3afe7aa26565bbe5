//! The records that a client has read.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use dbn::{MboMsg, Mbp1Msg, RecordRef, flags, rtype};

use crate::plan::ClientPlan;
use crate::states::{Book, States, hash_of, levels_of};

/// A market record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Hash of the record's bytes.
    pub(crate) hash: u64,
    /// The hash that the record would have as the last of its group.
    pub(crate) closed: u64,
    pub(crate) instrument: u32,
    pub(crate) publisher: u16,
    pub(crate) rtype: u8,
    /// Hash of the levels, if the record has any.
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

/// Returns the hash of a record with the flag LAST set.
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

/// What a client read in one session, or in several sessions that each continue the previous one.
#[derive(Debug)]
pub(crate) struct Session {
    /// Index of the client in the plan.
    pub(crate) number: usize,
    pub(crate) client: ClientPlan,
    /// The start of the plant that served it last.
    pub(crate) began: u64,
    /// The market records, without those of a snapshot.
    pub(crate) records: Vec<Taken>,
    /// The levels of the snapshot, by book.
    pub(crate) snapshot: BTreeMap<Book, u64>,
    /// Numbers of records that the server said it skipped, with the index of the next record.
    pub(crate) skipped: Vec<(usize, u64)>,
    /// Records before which the server reported a gap.
    pub(crate) gaps: BTreeSet<usize>,
    /// The books that result from the snapshot and the records. Only for clients with a snapshot, and those that they are compared with.
    pub(crate) states: Option<States>,
    /// The symbols of instruments, as named by the server.
    pub(crate) symbols: BTreeMap<u32, String>,
    /// The client stopped by itself, after the last record had arrived.
    pub(crate) is_whole: bool,
    /// The time of the last record, and the number of trailing records with this time.
    pub(crate) last: (u64, usize),
    /// Number of records that will be repeated.
    pub(crate) repeated: usize,
    /// Number of finished replays.
    pub(crate) replays: usize,
    /// The server was already running its maximum number of replays.
    pub(crate) is_put_off: bool,
    /// The earliest possible `start`, if the server no longer has the requested one.
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
