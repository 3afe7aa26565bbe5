//! Apache Arrow record batches.
//!
//! The columns are those of a Parquet file: names, order, types, nulls. Texts are growing dictionaries: a batch shares its
//! texts with the previous batch unless it adds a new one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use tapeworks_market::Price;

use crate::arrays::{self, Arrays};
use crate::chunk::Dictionary;
use crate::error::Failure;
use crate::options::Prices;
use crate::rows::columns::{self, Scratch};
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::symbols::Symbols;

/// Returns the columns of a record type. `has_origin`: whether the batches have sequences and lines.
pub(crate) fn schema_of<R: Row>(schema: Schema, prices: Prices, has_origin: bool) -> SchemaRef {
    let columns = columns::describe::<R>(prices, has_origin);
    let fields: Vec<Field> = columns.iter().map(arrays::field).collect();
    let metadata = HashMap::from([
        ("tapeworks:schema".to_owned(), schema.to_string()),
        ("databento:fixed_price_scale".to_owned(), Price::ONE.to_string()),
    ]);
    Arc::new(ArrowSchema::new_with_metadata(fields, metadata))
}

/// Converts rows to record batches.
pub(crate) struct Batcher {
    schema: SchemaRef,
    prices: Prices,
    dictionaries: Vec<Dictionary>,
    keys: Vec<Vec<u32>>,
    arrays: Arrays,
    scratch: Scratch,
}

impl Batcher {
    pub(crate) fn new(schema: SchemaRef, prices: Prices) -> Self {
        let dictionaries = schema.fields().iter().map(|_| Dictionary::default()).collect();
        let (keys, arrays, scratch) = (Vec::new(), Arrays::default(), Scratch::default());
        Self { schema, prices, dictionaries, keys, arrays, scratch }
    }

    /// Converts all rows to a batch. Also returns the number of values that became null.
    pub(crate) fn batch<R: Row>(
        &mut self,
        rows: &Rows<R>,
        symbols: Symbols<'_>,
    ) -> Result<(RecordBatch, u64), Failure> {
        columns::keys(rows, symbols, self.prices, &mut self.dictionaries, &mut self.keys);
        self.arrays.learn(&self.dictionaries);
        let out_of_range =
            columns::arrays(rows, &self.keys, self.prices, &mut self.arrays, &mut self.scratch);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), self.arrays.take());
        Ok((batch.map_err(|error| Failure::Encode(error.to_string()))?, out_of_range))
    }
}
