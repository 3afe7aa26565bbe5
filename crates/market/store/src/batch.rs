//! Batches of records for a reader in the same process.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use tapeworks_market::{Instruments, Symbol};

use crate::apart::lock;
use crate::batches::arrow_schema;
use crate::encode::{Batcher, Encode, Ending};
use crate::error::{Failure, StoreError};
use crate::options::Prices;
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::summary::Summary;
use crate::symbols::{Named, Symbols};
use crate::target::Target;

/// Receives batches in order.
pub trait BatchSink: Send {
    /// Takes a batch, and may wait until there is room.
    ///
    /// # Errors
    /// [`Closed`] if nothing receives batches any more.
    fn put(&mut self, batch: RowBatch) -> Result<(), Closed>;
}

/// Nothing receives batches any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

/// A batch of records in rows, as the writer has them. A [`BatchMaker`] converts it to columns, on its own thread.
pub struct RowBatch(Box<dyn Pending>);

impl RowBatch {
    /// Returns the number of records.
    pub fn records(&self) -> usize {
        self.0.records()
    }
}

impl std::fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowBatch({} records)", self.records())
    }
}

/// A batch with its record type erased.
trait Pending: Send {
    fn records(&self) -> usize;
    fn make(
        self: Box<Self>,
        batcher: &mut Batcher,
        symbols: &mut Vec<Symbol>,
    ) -> Result<(RecordBatch, u64), Failure>;
}

struct PendingOf<R> {
    rows: Rows<R>,
    /// The symbols that this batch can name and earlier ones cannot.
    symbols: Vec<Symbol>,
    spare: Spare<R>,
}

/// Rows to be reused, because fresh memory costs more than what is written to it.
type Spare<R> = Arc<Mutex<Vec<Rows<R>>>>;

impl<R: Row> Pending for PendingOf<R> {
    fn records(&self) -> usize {
        self.rows.len()
    }

    fn make(
        self: Box<Self>,
        batcher: &mut Batcher,
        symbols: &mut Vec<Symbol>,
    ) -> Result<(RecordBatch, u64), Failure> {
        let Self { mut rows, symbols: more, spare } = *self;
        symbols.extend(more);
        let made = batcher.batch(&rows, Symbols::Listed(symbols));
        rows.clear();
        lock(&spare).push(rows);
        made
    }
}

/// Passes batches of rows to a sink, whose receiver makes the columns.
pub(crate) struct Batches<R> {
    sink: Box<dyn BatchSink>,
    named: Named,
    spare: Spare<R>,
}

impl<R: Row> Batches<R> {
    pub(crate) fn new(sink: Box<dyn BatchSink>) -> Self {
        Self { sink, named: Named::default(), spare: Arc::default() }
    }

    /// Takes the records out of `rows`, leaving them empty.
    fn cut(&mut self, rows: &mut Rows<R>, instruments: &Instruments) -> RowBatch {
        let empty = lock(&self.spare).pop();
        let rows = rows.replace(empty.unwrap_or_else(Rows::new));
        let (symbols, spare) = (self.named.more(instruments), Arc::clone(&self.spare));
        RowBatch(Box::new(PendingOf { rows, symbols, spare }))
    }
}

impl<R: Row> Encode<R> for Batches<R> {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        if rows.len() == 0 {
            return Ok(());
        }
        summary.records += rows.len() as u64;
        let batch = self.cut(rows, instruments);
        let took = self.sink.put(batch);
        took.map_err(|Closed| Failure::Io(io::Error::new(io::ErrorKind::BrokenPipe, "the reader is gone")))
    }

    fn finish(
        self: Box<Self>,
        _instruments: &Instruments,
        _target: &mut Target,
        _summary: &mut Summary,
    ) -> Result<(), Ending> {
        Ok(())
    }
}

/// Converts the [row batches](RowBatch) of one writer to Arrow record batches, in the order in which they were written: a text gets
/// the number of its first appearance.
///
/// Cost: for `mbo`, a third of the single-threaded cost of reading an ITCH file into record batches. Another thread can do it in
/// parallel.
pub struct BatchMaker {
    batcher: Batcher,
    symbols: Vec<Symbol>,
    records: u64,
    out_of_range: u64,
}

impl std::fmt::Debug for BatchMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BatchMaker({} records)", self.records)
    }
}

impl BatchMaker {
    /// Creates a maker for a writer of this schema. The columns are those of [`arrow_schema`](crate::arrow_schema).
    #[must_use]
    pub fn new(schema: Schema, prices: Prices) -> Self {
        let batcher = Batcher::new(arrow_schema(schema, prices), prices);
        Self { batcher, symbols: Vec::new(), records: 0, out_of_range: 0 }
    }

    /// Makes the columns of a batch.
    ///
    /// # Errors
    /// [`StoreError::Encode`]: the batch is of another schema.
    pub fn make(&mut self, batch: RowBatch) -> Result<RecordBatch, StoreError> {
        let records = batch.records() as u64;
        let made = batch.0.make(&mut self.batcher, &mut self.symbols);
        let (made, out_of_range) =
            made.map_err(|failure| failure.at(Path::new("record batches"), self.records))?;
        self.records += records;
        self.out_of_range += out_of_range;
        Ok(made)
    }

    /// Returns the number of values so far that became null because their columns cannot hold them.
    pub const fn out_of_range(&self) -> u64 {
        self.out_of_range
    }
}
