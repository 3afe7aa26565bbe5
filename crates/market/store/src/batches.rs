//! Records as batches of Apache Arrow, for a reader in the same process.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use dbn::{RecordRef, SymbolMappingMsg};

use crate::encode::{Batcher, schema_of};
use crate::error::{Failure, StoreError};
use crate::options::Prices;
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::shape::{self, Shape};
use crate::symbols::Symbols;
use crate::target::{Destination, Scratch};

/// Returns the columns of the batches of `schema`: names and order are those of a Parquet file.
pub fn arrow_schema(schema: Schema, prices: Prices) -> SchemaRef {
    struct Describe(Schema, Prices);
    impl shape::Use for Describe {
        type Output = SchemaRef;

        fn with<S: Shape + 'static>(self, _shape: S) -> SchemaRef {
            schema_of::<S::Row>(self.0, self.1, S::Row::HAS_ORIGIN)
        }
    }
    shape::of_schema(schema, Describe(schema, prices))
}

/// Makes batches of received records, which come from a plant or another server of the DBN live protocol. They have no columns for
/// the channel sequence and the line, which records lack.
///
/// A batch holds consecutive records of one schema, so that the order is preserved.
pub struct ReceivedBatches {
    /// By record type.
    tables: HashMap<u8, (Schema, Box<dyn Received>)>,
    symbols: HashMap<u32, String>,
    /// The record type of the batch being filled.
    open: Option<u8>,
}

impl std::fmt::Debug for ReceivedBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReceivedBatches({} schemas)", self.tables.len())
    }
}

/// A table of received records with its type erased.
trait Received: Send {
    /// Takes a record. Returns `true` when the batch is full.
    fn put(&mut self, record: RecordRef<'_>) -> bool;
    fn batch(&mut self, symbols: &HashMap<u32, String>) -> Result<Option<RecordBatch>, Failure>;
}

struct TableOf<R> {
    rows: Rows<R>,
    batcher: Batcher,
}

impl<R: Row> Received for TableOf<R> {
    fn put(&mut self, record: RecordRef<'_>) -> bool {
        if let Some(record) = record.get::<R>() {
            self.rows.push_derived(record.clone());
        }
        self.rows.is_full()
    }

    fn batch(&mut self, symbols: &HashMap<u32, String>) -> Result<Option<RecordBatch>, Failure> {
        if self.rows.len() == 0 {
            return Ok(None);
        }
        let batch = self.batcher.batch(&self.rows, Symbols::Received(symbols));
        self.rows.clear();
        batch.map(|(batch, _)| Some(batch))
    }
}

impl ReceivedBatches {
    /// Creates batches for records of these schemas; other records are left out. If two schemas have the same records, the first counts.
    #[must_use]
    pub fn new(schemas: &[Schema], prices: Prices) -> Self {
        struct Open(Schema, Prices);
        impl shape::Use for Open {
            type Output = Box<dyn Received>;

            fn with<S: Shape + 'static>(self, _shape: S) -> Self::Output {
                let batcher = Batcher::new(schema_of::<S::Row>(self.0, self.1, false), self.1);
                Box::new(TableOf::<S::Row> { rows: Rows::received(), batcher })
            }
        }
        let mut tables = HashMap::new();
        for schema in schemas {
            let rtype = schema.rtype();
            tables
                .entry(rtype)
                .or_insert_with(|| (*schema, shape::of_schema(*schema, Open(*schema, prices))));
        }
        Self { tables, symbols: HashMap::new(), open: None }
    }

    /// Takes a record. Returns a batch if the record does not belong to it, or fills it.
    ///
    /// # Errors
    /// [`StoreError::Encode`].
    pub fn put(&mut self, record: RecordRef<'_>) -> Result<Option<(Schema, RecordBatch)>, StoreError> {
        if let Some(mapping) = record.get::<SymbolMappingMsg>() {
            // Earlier records keep the earlier symbols.
            let ended = self.take();
            let symbol = mapping.stype_out_symbol().unwrap_or_default();
            self.symbols.insert(mapping.hd.instrument_id, symbol.to_owned());
            return ended;
        }
        let rtype = record.header().rtype;
        if !self.tables.contains_key(&rtype) {
            return Ok(None);
        }
        let ended = if self.open.is_some_and(|open| open != rtype) { self.take()? } else { None };
        self.open = Some(rtype);
        let is_full = self.tables.get_mut(&rtype).is_some_and(|(_, table)| table.put(record));
        // A batch that ends here is followed by the batch of this record, which is then not full.
        if ended.is_none() && is_full { self.take() } else { Ok(ended) }
    }

    /// Returns the records taken so far that are not in a batch yet.
    ///
    /// # Errors
    /// [`StoreError::Encode`].
    pub fn take(&mut self) -> Result<Option<(Schema, RecordBatch)>, StoreError> {
        let Some(table) = self.open.take().and_then(|rtype| self.tables.get_mut(&rtype)) else {
            return Ok(None);
        };
        let (schema, table) = table;
        let failed = |failure: Failure| failure.at(Path::new("received records"), 0);
        Ok(table.batch(&self.symbols).map_err(failed)?.map(|batch| (*schema, batch)))
    }
}

/// Stands for the file of a writer whose batches go to no file.
#[derive(Debug)]
pub(crate) struct InMemory;

impl Destination for InMemory {
    fn path(&self) -> &Path {
        Path::new("record batches")
    }

    fn open(&mut self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(io::sink()))
    }

    fn scratch(&mut self) -> io::Result<Scratch> {
        Ok((Box::new(io::sink()), Box::new(io::empty())))
    }

    fn complete(self: Box<Self>) -> Result<u64, StoreError> {
        Ok(0)
    }
}
