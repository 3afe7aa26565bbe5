//! Batches of records, between the code that makes them and the code that encodes them.
//!
//! Records are collected in an array of the `dbn` crate's structs (56 bytes for `mbo`), with two extra columns for values
//! that DBN lacks. The encoder receives [`BATCH`] records at a time, so that a record costs one store and the encoder runs
//! one tight loop per field.

use std::ops::Range;

use dbn::FlagSet;
use tapeworks_market::event::{Event, EventKind, Flags, Line};
use tapeworks_market::{InstrumentId, Publisher};
use tapeworks_time::Nanos;

use crate::summary::Skip;

pub(crate) mod columns;

use columns::Columns;

/// Records in a batch: half a megabyte of `mbo` records, which stay in the second-level cache between the loops.
pub(crate) const BATCH: usize = 8192;

/// A record type of a file.
pub(crate) trait Row:
    dbn::encode::DbnEncodable + dbn::HasRType<Header = dbn::RecordHeader> + Clone + Send + 'static
{
    /// Whether each record originates from one message, so that its channel sequence and line are meaningful.
    const HAS_ORIGIN: bool = true;
    /// Whether the record has 32-bit sizes of trades and quotes.
    const HAS_NARROW_SIZES: bool = true;
    /// Whether the record has the 32-bit share counts of an imbalance.
    const IS_IMBALANCE: bool = false;

    /// Lists the columns of a Parquet file, with the names and order of the `dbn` crate.
    fn columns(columns: &mut Columns<'_, Self>);

    /// Returns the record's flags, if it has any.
    fn flags_mut(&mut self) -> Option<&mut FlagSet> {
        None
    }
}

/// Longest time that the records of a group of events wait for the group's end, in nanoseconds of receive time. A group whose
/// end arrives later is given up, in files as in streams: its records keep their flags.
pub(crate) const HELD_NS: u64 = 10_000_000;

/// Maximum number of records of its feed that a group waits for.
const HELD_RECORDS: usize = 4096;

/// Number of records at which a batch is encoded even with an open group.
const MOST_ROWS: usize = 64 * BATCH;

/// A group of events whose last event has not arrived yet, and its latest record.
#[derive(Clone, Copy, Debug)]
struct OpenGroup {
    publisher: Publisher,
    instrument: InstrumentId,
    /// Rows of the group's first and latest record.
    first: usize,
    row: usize,
    /// Receive time of the group's first record.
    since: Nanos,
    /// Records of the feed since then.
    records: usize,
}

pub(crate) struct Rows<R> {
    pub(crate) records: Vec<R>,
    pub(crate) sequences: Vec<u64>,
    pub(crate) lines: Vec<Line>,
    pub(crate) skipped: [u64; Skip::ALL.len()],
    /// Whether sequences and lines are known: for every record, or for none.
    pub(crate) has_origin: bool,
    open: Vec<OpenGroup>,
}

impl<R: Row> Rows<R> {
    pub(crate) fn new() -> Self {
        // One update produces a handful of records, except the clearing of a venue, which grows the arrays.
        Self::with_capacity(BATCH + 64)
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            records: Vec::with_capacity(capacity),
            sequences: Vec::with_capacity(capacity),
            lines: Vec::with_capacity(capacity),
            skipped: [0; Skip::ALL.len()],
            has_origin: R::HAS_ORIGIN,
            open: Vec::new(),
        }
    }

    /// Always inlined, so that the fields of a record go directly to their destination. Building a record of `mbo` on the
    /// stack and copying it costs four times as much, because the processor cannot forward narrow stores to wide loads.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: R, event: &Event) {
        self.records.push(record);
        self.sequences.push(event.channel_sequence);
        self.lines.push(event.line());
    }

    /// Creates an empty batch for received records, whose channel sequence and line are unknown.
    pub(crate) fn received() -> Self {
        Self { has_origin: false, ..Self::new() }
    }

    /// Pushes a record that originates from no single message, or from an unknown one.
    pub(crate) fn push_derived(&mut self, record: R) {
        self.records.push(record);
    }

    #[inline]
    pub(crate) const fn skip(&mut self, reason: Skip) {
        self.skipped[reason as usize] += 1;
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether to encode now: the batch is full and no group is open, or it is so full that open groups no longer count.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= BATCH && (self.open.is_empty() || self.records.len() >= MOST_ROWS)
    }

    /// Returns whether a group of events is open, so that its latest record may still become its last.
    #[inline]
    pub(crate) const fn has_open_group(&self) -> bool {
        !self.open.is_empty()
    }

    /// Gives up the open groups.
    pub(crate) fn forget_open(&mut self) {
        self.open.clear();
    }

    /// Returns the number of leading records whose flags are final.
    pub(crate) fn final_len(&self) -> usize {
        self.open.iter().map(|group| group.first).min().unwrap_or(self.records.len())
    }

    /// Removes the first `count` records, which [are final](Self::final_len).
    pub(crate) fn remove_front(&mut self, count: usize) {
        self.records.drain(..count);
        // Derived records have neither sequences nor lines.
        self.sequences.drain(..count.min(self.sequences.len()));
        self.lines.drain(..count.min(self.lines.len()));
        for group in &mut self.open {
            (group.first, group.row) = (group.first.saturating_sub(count), group.row.saturating_sub(count));
        }
    }

    /// Notes an event without records in these rows, so that they give up the same groups as rows that have them.
    #[inline]
    pub(crate) fn pass(&mut self, event: &Event) {
        if !self.open.is_empty() {
            self.give_up(event, 0);
        }
    }

    /// Gives up groups that will not end, or not soon, after an event that produced this many records. The decision depends
    /// only on the events, so that every builder of these records gives up the same groups.
    fn give_up(&mut self, event: &Event, records: usize) {
        let is_cut = matches!(event.kind, EventKind::Gap | EventKind::Session);
        self.open.retain_mut(|group| {
            let is_of_feed = group.publisher == event.publisher;
            group.records += if is_of_feed { records } else { 0 };
            !(is_cut && is_of_feed)
                && event.ts_recv.since(group.since) <= HELD_NS
                && group.records < HELD_RECORDS
        });
    }

    /// Takes the records out and replaces them with those of `empty`. The skip counts stay.
    pub(crate) fn replace(&mut self, empty: Self) -> Self {
        let skipped = self.skipped;
        std::mem::replace(self, Self { skipped, ..empty })
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.sequences.clear();
        self.lines.clear();
        self.open.clear();
    }

    /// Sets the flag LAST on the last record of a group of events, even if the group's last event produced no record. Call it
    /// with the rows that `event` produced.
    #[inline]
    pub(crate) fn close_group(&mut self, event: &Event, rows: Range<usize>) {
        let is_last = event.flags().contains(Flags::LAST);
        if !is_last || !self.open.is_empty() {
            self.track(event, rows, is_last);
        }
    }

    #[cold]
    #[inline(never)]
    fn track(&mut self, event: &Event, rows: Range<usize>, is_last: bool) {
        let key = (event.publisher, event.instrument);
        let known = self.open.iter().position(|group| (group.publisher, group.instrument) == key);
        match (is_last, known) {
            (true, Some(known)) => {
                let group = self.open.swap_remove(known);
                if rows.is_empty()
                    && let Some(flags) = self.records.get_mut(group.row).and_then(Row::flags_mut)
                {
                    *flags = FlagSet::from(flags.raw() | Flags::LAST.0);
                }
            }
            (false, Some(known)) if !rows.is_empty() => self.open[known].row = rows.end - 1,
            (false, None) if !rows.is_empty() => self.open.push(OpenGroup {
                publisher: key.0,
                instrument: key.1,
                first: rows.start,
                row: rows.end - 1,
                since: event.ts_recv,
                records: 0,
            }),
            _ => {}
        }
        self.give_up(event, rows.len());
    }
}
