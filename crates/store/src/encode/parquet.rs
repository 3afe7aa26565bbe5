//! Parquet: see the [crate's documentation](crate#parquet) for what the columns are.
//!
//! The `parquet` crate writes page headers, row groups and the footer; the pages themselves are encoded here, a batch
//! of records at a time, straight from the records. Its own column writers take values one by one through a hash table
//! for every text, which alone costs more than the whole of this.
//!
//! # Cost
//! Each batch gives one page per column. Numbers are bit-packed differences, texts keys of a dictionary; both leave
//! little for a compressor to do. Least and greatest values are kept for times only, per row group. A row group of
//! [`ROW_GROUP`] records is kept in memory, encoded (15 to 20 bytes for an `mbo` record), until it is full.

mod apart;

use std::sync::Arc;

use ::parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{ColumnDescPtr, Type};
use bytes::Bytes;
use tapeworks_market::{Instruments, Price};

use super::{Encode, Ending};
use crate::chunk::{Chunk, Compressor};
use crate::error::Failure;
use crate::options::{Compression, Options, Prices};
use crate::rows::columns::{self, Description, Kind, Scratch};
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::summary::Summary;
use crate::symbols::Symbols;
use crate::target::{Output, Target};

pub(crate) use apart::ParquetApart;

/// Records in a row group, to the batch.
const ROW_GROUP: u64 = 1 << 18;

/// Writes Parquet.
pub(crate) struct Parquet {
    writer: SerializedFileWriter<Output>,
    encoder: Encoder,
}

/// Encodes one row group after the other.
struct Encoder {
    chunks: Vec<Chunk>,
    compressor: Compressor,
    scratch: Scratch,
    prices: Prices,
    /// In the row group that is being written.
    rows: u64,
}

/// The columns of a row group: their bytes, and what the file's footer says of each.
type Encoded = Vec<(Bytes, ColumnCloseResult)>;

fn field(column: &Description) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Unsigned(64) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Unsigned(bits) => (Physical::INT32, Some(LogicalType::integer(bits, false))),
        Kind::Signed => (Physical::INT32, Some(LogicalType::integer(32, true))),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        Kind::Price(Prices::Decimal) => (Physical::INT64, Some(LogicalType::decimal(9, 18))),
        Kind::Price(Prices::Fixed) => (Physical::INT64, None),
        Kind::Price(Prices::Float) => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(&column.name, physical).with_repetition(repetition);
    match column.kind {
        Kind::Price(Prices::Decimal) => {
            builder.with_logical_type(logical).with_precision(18).with_scale(9).build()
        }
        _ if logical.is_none() => builder.with_converted_type(ConvertedType::NONE).build(),
        _ => builder.with_logical_type(logical).build(),
    }
}

/// Begins a file. `has_origin`: whether the batches have sequences and lines.
pub(crate) fn begin<R: Row>(
    output: Output,
    schema: Schema,
    options: &Options,
    has_origin: bool,
) -> Result<(SerializedFileWriter<Output>, Arc<[ColumnDescPtr]>), Failure> {
    let description = columns::describe::<R>(options.prices, has_origin);
    let fields: Result<Vec<_>, _> = description.iter().map(|column| field(column).map(Arc::new)).collect();
    let record = Type::group_type_builder("schema").with_fields(fields?).build()?;
    let key = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let properties = WriterProperties::builder()
        // Nothing of the build is written, so that the same input gives the same bytes.
        .set_created_by("tapeworks".to_owned())
        .set_key_value_metadata(Some(vec![
            key("tapeworks:schema", schema.to_string()),
            // The key under which DBN's own Parquet files have it.
            key("databento:fixed_price_scale", Price::ONE.to_string()),
        ]))
        .build();
    let writer = SerializedFileWriter::new(output, Arc::new(record), Arc::new(properties))?;
    let columns = writer.schema_descr().columns().into();
    Ok((writer, columns))
}

/// Writes a row group.
fn append(writer: &mut SerializedFileWriter<Output>, columns: Encoded) -> Result<(), ParquetError> {
    let mut row_group = writer.next_row_group()?;
    for (bytes, close) in columns {
        row_group.append_column(&bytes, close)?;
    }
    row_group.close().map(|_| ())
}

fn compressor(options: &Options) -> Result<Compressor, Failure> {
    Ok(match options.compression {
        Compression::None => Compressor::None,
        Compression::Snappy => Compressor::Snappy(Box::new(snap::raw::Encoder::new())),
        Compression::Zstd => Compressor::Zstd(Box::new(zstd::bulk::Compressor::new(options.zstd_level)?)),
    })
}

/// An empty chunk of each column.
fn chunks_of(columns: &[ColumnDescPtr]) -> Vec<Chunk> {
    columns.iter().map(|column| Chunk::new(column.clone())).collect()
}

impl Encoder {
    fn new(columns: &[ColumnDescPtr], options: &Options) -> Result<Self, Failure> {
        let (chunks, compressor) = (chunks_of(columns), compressor(options)?);
        Ok(Self { chunks, compressor, scratch: Scratch::default(), prices: options.prices, rows: 0 })
    }

    /// Encodes a batch. Returns how many values had to be written as null.
    fn put<R: Row>(&mut self, rows: &Rows<R>, symbols: Symbols<'_>) -> Result<u64, ParquetError> {
        let Self { chunks, compressor, scratch, prices, .. } = self;
        self.rows += rows.len() as u64;
        columns::encode(rows, symbols, *prices, chunks, compressor, scratch)
    }

    /// Ends the row group; the next one begins.
    fn end(&mut self) -> Result<Encoded, ParquetError> {
        self.rows = 0;
        self.chunks.iter_mut().map(|chunk| chunk.take(&mut self.compressor)).collect()
    }
}

impl Parquet {
    /// `has_origin`: whether the batches have sequences and lines.
    pub(crate) fn new<R: Row>(
        output: Output,
        schema: Schema,
        options: &Options,
        has_origin: bool,
    ) -> Result<Self, Failure> {
        let (writer, columns) = begin::<R>(output, schema, options, has_origin)?;
        Ok(Self { writer, encoder: Encoder::new(&columns, options)? })
    }

    /// Writes a batch. Returns how many values had to be written as null.
    pub(crate) fn put<R: Row>(&mut self, rows: &Rows<R>, symbols: Symbols<'_>) -> Result<u64, Failure> {
        if rows.len() == 0 {
            return Ok(0);
        }
        let out_of_range = self.encoder.put(rows, symbols)?;
        if self.encoder.rows >= ROW_GROUP {
            append(&mut self.writer, self.encoder.end()?)?;
        }
        Ok(out_of_range)
    }

    /// Writes the footer.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        if self.encoder.rows > 0 {
            append(&mut self.writer, self.encoder.end()?)?;
        }
        Ok(self.writer.into_inner()?.finish()?)
    }
}

impl<R: Row> Encode<R> for Parquet {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        summary.out_of_range += self.put(rows, Symbols::Listed(instruments.symbols()))?;
        summary.records += rows.len() as u64;
        Ok(())
    }

    fn finish(
        self: Box<Self>,
        _instruments: &Instruments,
        _target: &mut Target,
        _summary: &mut Summary,
    ) -> Result<(), Ending> {
        Ok(self.end()?)
    }
}
