//! A client that reads more slowly than its records come, and the quotes conflated for it.

use std::collections::HashMap;

use tapeworks_engine::replica::place_of;
use tapeworks_market::InstrumentId;
use tapeworks_planted::planted;
use tapeworks_store::Schema;

/// The key of a conflated quote: schema, feed and instrument.
type QuoteKey = (usize, u16, InstrumentId);

/// The last quotes for a client that is behind, in the order in which each key first came.
#[derive(Debug, Default)]
pub(super) struct Conflated {
    places: HashMap<QuoteKey, usize>,
    records: Vec<Vec<u8>>,
}

impl Conflated {
    /// Stores a quote. Returns whether it replaced an earlier one.
    pub(super) fn put(&mut self, key: QuoteKey, record: &[u8]) -> bool {
        if let Some(known) = self.places.get(&key).and_then(|place| self.records.get_mut(*place)) {
            if !planted!("conflation-keeps-the-first") {
                known.clear();
                known.extend_from_slice(record);
            }
            return true;
        }
        self.places.insert(key, self.records.len());
        self.records.push(record.to_vec());
        false
    }

    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        self.places.clear();
        std::mem::take(&mut self.records)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Returns whether an instrument's last record of this schema supersedes the earlier ones.
pub(super) fn is_of_quotes(of_schema: usize) -> bool {
    let quotes = [Schema::Mbp1, Schema::Bbo1S, Schema::Bbo1M, Schema::Cmbp1, Schema::Cbbo1S, Schema::Cbbo1M];
    quotes.map(place_of).contains(&of_schema)
}

/// How far a client is behind, and what its slow-reader policy has done about it.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// Bytes of the queue that came in bulk, from a snapshot or the end of a replay, and do not mean that the client is slow.
    pub(super) allowance: usize,
    pub(super) is_warned: bool,
    /// Records skipped since the client fell behind; `None` if none are skipped.
    pub(super) skipping: Option<u64>,
    pub(super) conflated: Conflated,
}

impl Lag {
    /// Returns whether records are skipped or conflated.
    pub(super) const fn is_behind(&self) -> bool {
        self.skipping.is_some() || !self.conflated.is_empty()
    }

    pub(super) const fn is_slow(&self) -> bool {
        self.is_warned || self.is_behind()
    }
}
