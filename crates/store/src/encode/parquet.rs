//! Parquet: see the [crate's documentation](crate#parquet) for what the columns are.
//!
//! # Cost
//! A column of a batch is one loop into a vector that Arrow takes over, then one loop of the Parquet encoder. Numbers
//! are stored as bit-packed differences, which is faster than a dictionary and leaves little for a compressor to do;
//! only letters and symbols have dictionaries; least and greatest values are kept for times only. A row group holds
//! [`ROW_GROUP`] records and is kept in memory, encoded, until it is full.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression as Codec, Encoding as PageEncoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tapeworks_market::Instruments;

use super::{Encode, Ending};
use crate::columns::{Columns, Encoding};
use crate::error::Failure;
use crate::options::{Compression, Options, Prices};
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::target::{Output, Target};

/// Records in a row group: some 40 MiB of `mbo`, encoded 20 MiB.
const ROW_GROUP: usize = 1 << 20;

/// Writes Parquet.
pub(crate) struct Parquet {
    writer: ArrowWriter<Output>,
    schema: SchemaRef,
    prices: Prices,
    /// The symbols by instrument number, and how many instruments there were when they were listed.
    symbols: (ArrayRef, usize),
}

fn listed(instruments: &Instruments) -> ArrayRef {
    // The number 0 is that of no instrument.
    let symbols = instruments.symbols().iter().map(|symbol| symbol.as_str());
    Arc::new(StringArray::from_iter_values(std::iter::once("").chain(symbols)))
}

impl Parquet {
    pub(crate) fn new<R: Row>(output: Output, schema: Schema, options: &Options) -> Result<Self, Failure> {
        let symbols = listed(&Instruments::default());
        let mut columns = Columns::<R>::describe(options.prices);
        R::columns(&mut columns);
        columns.beside(R::HAS_ORIGIN, &symbols, || (Vec::new(), None), &[], &[]);

        let codec = match options.compression {
            Compression::None => Codec::UNCOMPRESSED,
            Compression::Snappy => Codec::SNAPPY,
            Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(options.zstd_level)?),
        };
        let key = |key: &str, value: &str| KeyValue::new(key.to_owned(), value.to_owned());
        let mut properties = WriterProperties::builder()
            .set_created_by("tapeworks".to_owned())
            .set_compression(codec)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(false)
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .set_key_value_metadata(Some(vec![
                key("tapeworks:schema", schema.as_str()),
                key("databento:fixed_price_scale", &tapeworks_market::Price::ONE.to_string()),
            ]));
        for (field, encoding) in columns.fields.iter().zip(&columns.encodings) {
            let path = ColumnPath::from(field.name().as_str());
            properties = match encoding {
                Encoding::Delta => properties.set_column_encoding(path, PageEncoding::DELTA_BINARY_PACKED),
                Encoding::Plain => properties.set_column_encoding(path, PageEncoding::PLAIN),
                Encoding::Dictionary => properties.set_column_dictionary_enabled(path, true),
                Encoding::DeltaWithStatistics => properties
                    .set_column_encoding(path.clone(), PageEncoding::DELTA_BINARY_PACKED)
                    .set_column_statistics_enabled(path, EnabledStatistics::Page),
            };
        }
        let schema = Arc::new(arrow_schema::Schema::new(columns.fields));
        // Arrow's own schema is left out: older Arrow readers stumble over its 64-bit decimals, and Parquet's says
        // all there is.
        let options_ =
            ArrowWriterOptions::new().with_properties(properties.build()).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(output, Arc::clone(&schema), options_)?;
        Ok(Self { writer, schema, prices: options.prices, symbols: (symbols, 0) })
    }
}

impl<R: Row> Encode<R> for Parquet {
    fn encode(&mut self, rows: &Rows<R>, instruments: &Instruments) -> Result<u64, Failure> {
        if instruments.len() != self.symbols.1 {
            self.symbols = (listed(instruments), instruments.len());
        }
        let mut columns = Columns::build(&rows.records, self.prices);
        R::columns(&mut columns);
        let count = self.symbols.1 as u64;
        let keys = || {
            let number = |record: &R| record.instrument_id();
            let is_known = |number: u64| number != 0 && number <= count;
            let keys: Vec<u32> = rows.records.iter().map(|record| number(record) as u32).collect();
            if keys.iter().all(|key| is_known(u64::from(*key))) {
                return (keys, None);
            }
            let nulls: NullBuffer = keys.iter().map(|key| is_known(u64::from(*key))).collect();
            (keys.iter().map(|key| if is_known(u64::from(*key)) { *key } else { 0 }).collect(), Some(nulls))
        };
        columns.beside(R::HAS_ORIGIN, &self.symbols.0, keys, &rows.sequences, &rows.lines);
        let out_of_range = columns.out_of_range;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns.arrays)?;
        self.writer.write(&batch)?;
        Ok(out_of_range)
    }

    fn finish(self: Box<Self>, _instruments: &Instruments, _target: &mut Target) -> Result<(), Ending> {
        Ok(self.writer.into_inner()?.finish()?)
    }
}
