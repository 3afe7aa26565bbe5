//! Parquet with batches encoded on other threads: see [`apart`](crate::apart).
//!
//! The thread that takes a batch runs three stages: it finds the keys, in batch order, because they depend on the
//! dictionaries; it encodes the pages, in any order; and it appends them to the file, in batch order. No thread waits for
//! another thread's batch. If earlier batches have no keys yet, the thread finds those too. If an earlier batch has no pages
//! yet, it leaves its own pages to the thread that has the earlier batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use ::parquet::schema::types::ColumnDescPtr;
use tapeworks_market::{Instruments, Symbol};

use super::{ROW_GROUP, RowGroups, Tools, begin, dictionaries_of};
use crate::apart::{Encoders, Lost, Work, lock};
use crate::chunk::{Dictionary, Pages};
use crate::encode::{Encode, Ending};
use crate::error::Failure;
use crate::options::Options;
use crate::rows::columns;
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::summary::Summary;
use crate::symbols::{Named, Symbols};
use crate::target::{Output, Target};

/// Writes Parquet; other threads encode the batches.
pub(crate) struct ParquetApart<R> {
    shared: Arc<Shared<R>>,
    encoders: Box<dyn Encoders>,
    /// Batches submitted.
    given: u64,
    /// Records submitted for the current row group.
    records: u64,
    named: Named,
}

/// State shared by the threads that encode a file.
struct Shared<R> {
    columns: Arc<[ColumnDescPtr]>,
    options: Options,
    /// Batches without keys, in order.
    given: Mutex<VecDeque<Given<R>>>,
    keying: Mutex<Keying<R>>,
    order: Mutex<Order>,
    /// Taken at the end. Before that, only the thread that sets [`Order::is_writing`] uses it.
    groups: Mutex<Option<RowGroups>>,
    spare: Mutex<Spare<R>>,
}

/// Reused memory.
struct Spare<R> {
    batches: Vec<Batch<R>>,
    tools: Vec<Tools>,
    pages: Vec<Pages>,
}

/// Records and the keys of their texts.
struct Batch<R> {
    rows: Rows<R>,
    keys: Vec<Vec<u32>>,
}

/// A batch without keys.
struct Given<R> {
    batch: Batch<R>,
    /// The symbols that this batch can name and earlier ones cannot.
    symbols: Vec<Symbol>,
    /// Whether this batch is the last of its row group.
    ends_group: bool,
}

/// A batch with its keys. The last batch of a row group also carries the group's dictionaries.
type Keyed<R> = (Batch<R>, Option<Vec<Dictionary>>);

/// The dictionaries that give the next batch its keys.
struct Keying<R> {
    dictionaries: Vec<Dictionary>,
    symbols: Vec<Symbol>,
    next: u64,
    /// Batches with keys whose threads have not collected them yet.
    keyed: BTreeMap<u64, Keyed<R>>,
}

/// An encoded batch.
struct Encoded {
    pages: Result<Pages, Failure>,
    dictionaries: Option<Vec<Dictionary>>,
    records: u64,
    /// Values written as null.
    out_of_range: u64,
}

/// The next position in the file, and the batches waiting for theirs.
#[derive(Default)]
struct Order {
    next: u64,
    /// Batches that wait for an earlier one.
    encoded: BTreeMap<u64, Encoded>,
    /// Whether a thread is appending batches to the file.
    is_writing: bool,
    /// Totals of the batches in the file or its next row group.
    records: u64,
    out_of_range: u64,
    failure: Option<Failure>,
    has_failed: bool,
}

impl<R: Row> Shared<R> {
    /// Runs all stages for batch `number`.
    fn encode(&self, number: u64) {
        if lock(&self.order).has_failed {
            return;
        }
        let Some((batch, dictionaries)) = self.keyed(number) else { return };
        let encoded = self.pages(batch, dictionaries);
        self.write(number, encoded);
    }

    /// Returns batch `number` with its keys, after finding the keys of all earlier batches.
    fn keyed(&self, number: u64) -> Option<Keyed<R>> {
        let mut keying = lock(&self.keying);
        while keying.next <= number {
            let Given { mut batch, symbols, ends_group } = lock(&self.given).pop_front()?;
            let Keying { dictionaries, symbols: known, .. } = &mut *keying;
            known.extend(symbols);
            let symbols = Symbols::Listed(known);
            columns::keys(&batch.rows, symbols, self.options.prices, dictionaries, &mut batch.keys);
            let empty = || dictionaries_of(&self.columns);
            let ended = ends_group.then(|| std::mem::replace(dictionaries, empty()));
            let next = keying.next;
            keying.next += 1;
            if next == number {
                return Some((batch, ended));
            }
            keying.keyed.insert(next, (batch, ended));
        }
        keying.keyed.remove(&number)
    }

    fn pages(&self, batch: Batch<R>, dictionaries: Option<Vec<Dictionary>>) -> Encoded {
        let mut spare = lock(&self.spare);
        let (mut pages, tools) = (spare.pages.pop().unwrap_or_default(), spare.tools.pop());
        drop(spare);
        let records = batch.rows.len() as u64;
        pages.clear();
        let encoded = tools.map_or_else(|| Tools::new(&self.options), Ok).and_then(|mut tools| {
            let Tools { press, scratch } = &mut tools;
            let (Batch { rows, keys }, prices) = (&batch, self.options.prices);
            let out_of_range =
                columns::encode(rows, keys, prices, &self.columns, &mut pages, (press, scratch))?;
            Ok((out_of_range, tools))
        });
        let mut spare = lock(&self.spare);
        spare.batches.push(batch);
        match encoded {
            Ok((out_of_range, tools)) => {
                spare.tools.push(tools);
                Encoded { pages: Ok(pages), dictionaries, records, out_of_range }
            }
            Err(failure) => Encoded { pages: Err(failure), dictionaries, records, out_of_range: 0 },
        }
    }

    /// Appends a batch to the file when its turn comes, and the batches after it that are ready. Meanwhile other threads
    /// leave their batches to this thread.
    fn write(&self, number: u64, encoded: Encoded) {
        let mut order = lock(&self.order);
        order.encoded.insert(number, encoded);
        if order.is_writing || order.has_failed {
            return;
        }
        order.is_writing = true;
        loop {
            let next = order.next;
            let Some(batch) = order.encoded.remove(&next) else { break };
            drop(order);
            let (records, out_of_range) = (batch.records, batch.out_of_range);
            let put = self.put(batch);
            order = lock(&self.order);
            if let Err(failure) = put {
                // A failed row group loses its batches. Its records before this batch count as written, as in the
                // single-threaded writer.
                (order.failure, order.has_failed) = (Some(failure), true);
                order.encoded.clear();
                break;
            }
            order.next += 1;
            order.records += records;
            order.out_of_range += out_of_range;
        }
        order.is_writing = false;
    }

    fn put(&self, batch: Encoded) -> Result<(), Failure> {
        // `None`: the writer was dropped.
        let mut groups = lock(&self.groups);
        let Some(groups) = groups.as_mut() else { return Ok(()) };
        groups.batches.push(batch.pages?);
        if let Some(dictionaries) = batch.dictionaries {
            groups.write(dictionaries)?;
            lock(&self.spare).pages.append(&mut groups.spare);
        }
        Ok(())
    }
}

impl<R: Row> ParquetApart<R> {
    pub(crate) fn new(
        output: Output,
        schema: Schema,
        options: &Options,
        encoders: Box<dyn Encoders>,
    ) -> Result<Self, Failure> {
        let groups = begin::<R>(output, schema, options, R::HAS_ORIGIN)?;
        let columns = groups.columns.clone();
        let dictionaries = dictionaries_of(&columns);
        let keying = Keying { dictionaries, symbols: Vec::new(), next: 0, keyed: BTreeMap::new() };
        let spare = Spare { batches: Vec::new(), tools: Vec::new(), pages: Vec::new() };
        let shared = Shared {
            columns,
            options: *options,
            given: Mutex::default(),
            keying: Mutex::new(keying),
            order: Mutex::default(),
            groups: Mutex::new(Some(groups)),
            spare: Mutex::new(spare),
        };
        Ok(Self { shared: Arc::new(shared), encoders, given: 0, records: 0, named: Named::default() })
    }

    /// Turns the batch in `rows` into work.
    fn work(&mut self, rows: &mut Rows<R>, instruments: &Instruments) -> Work {
        let Shared { given, spare, .. } = &*self.shared;
        self.records += rows.len() as u64;
        let ends_group = self.records >= ROW_GROUP;
        if ends_group {
            self.records = 0;
        }
        let symbols = self.named.more(instruments);
        let spare = lock(spare).batches.pop();
        let mut batch = spare.unwrap_or_else(|| Batch { rows: Rows::new(), keys: Vec::new() });
        batch.rows.clear();
        batch.rows = rows.replace(batch.rows);
        lock(given).push_back(Given { batch, symbols, ends_group });
        let (number, shared) = (self.given, self.shared.clone());
        self.given += 1;
        Work { encode: Box::new(move || shared.encode(number)) }
    }

    /// Updates the summary, or returns the error that stopped the file.
    fn check(&self, summary: &mut Summary) -> Result<(), Failure> {
        let mut order = lock(&self.shared.order);
        summary.records = order.records;
        // The writer adds to this count too: event sizes beyond 32 bits.
        summary.out_of_range += std::mem::take(&mut order.out_of_range);
        order.failure.take().map_or(Ok(()), Err)
    }
}

impl<R> Drop for ParquetApart<R> {
    /// Closes the file even though unfinished units still share it.
    fn drop(&mut self) {
        lock(&self.shared.order).has_failed = true;
        drop(lock(&self.shared.groups).take());
    }
}

fn lost(lost: Lost) -> Failure {
    Failure::Encode(lost.to_string())
}

impl<R: Row> Encode<R> for ParquetApart<R> {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        if rows.len() == 0 {
            return Ok(());
        }
        let work = self.work(rows, instruments);
        self.encoders.give(work).map_err(lost)?;
        self.check(summary)
    }

    fn finish(
        mut self: Box<Self>,
        _instruments: &Instruments,
        _target: &mut Target,
        summary: &mut Summary,
    ) -> Result<(), Ending> {
        self.encoders.rest().map_err(lost)?;
        self.check(summary)?;
        let written = lock(&self.shared.order).next;
        let groups = lock(&self.shared.groups).take();
        let Some(mut groups) = groups.filter(|_| written == self.given) else {
            let lost = self.given - written;
            return Err(Failure::Encode(format!("{lost} batches were not encoded")).into());
        };
        // The last, incomplete row group.
        let dictionaries = std::mem::take(&mut lock(&self.shared.keying).dictionaries);
        groups.write(dictionaries)?;
        Ok(groups.end()?)
    }
}
