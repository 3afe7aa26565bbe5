//! Parquet: the [crate's documentation](crate#parquet) describes the columns.
//!
//! The `parquet` crate writes page headers, row groups and the footer. The pages are encoded here, a batch at a time,
//! directly from the records. The crate's own column writers pass each value through a hash table for every text, which alone
//! costs more than all of the encoding here.
//!
//! # Cost
//! Each batch produces one page per column. Numbers are bit-packed differences and texts are dictionary keys, so a compressor
//! gains little. Minimum and maximum are kept for times only, per row group. A row group of [`ROW_GROUP`] records stays in
//! memory, encoded (15 to 20 bytes per `mbo` record), until it is full.

mod apart;

use std::sync::Arc;

use ::parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{ColumnDescPtr, Type};
use tapeworks_market::{Instruments, Price};

use super::{Encode, Ending};
use crate::chunk::{ColumnChunk, Compressor, Dictionary, Pages, Press};
use crate::column::{Description, Kind};
use crate::error::Failure;
use crate::options::{Compression, Options, Prices};
use crate::rows::columns::{self, Scratch};
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::summary::Summary;
use crate::symbols::Symbols;
use crate::target::{Output, Target};

pub(crate) use apart::ParquetApart;

/// Records in a row group, rounded up to whole batches.
const ROW_GROUP: u64 = 1 << 18;

/// Writes Parquet.
pub(crate) struct Parquet {
    prices: Prices,
    dictionaries: Vec<Dictionary>,
    keys: Vec<Vec<u32>>,
    tools: Tools,
    /// Records in the current row group.
    records: u64,
    groups: RowGroups,
}

/// The tools for encoding a batch, reused for the next one.
struct Tools {
    press: Press,
    scratch: Scratch,
}

/// Writes encoded batches to a file as row groups.
struct RowGroups {
    writer: SerializedFileWriter<Output>,
    columns: Arc<[ColumnDescPtr]>,
    press: Press,
    /// The batches of the current row group.
    batches: Vec<Pages>,
    /// Reused memory.
    spare: Vec<Pages>,
}

fn field(column: &Description) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Unsigned(64) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Unsigned(bits) => (Physical::INT32, Some(LogicalType::integer(bits, false))),
        Kind::Signed => (Physical::INT32, Some(LogicalType::integer(32, true))),
        Kind::Long => (Physical::INT64, Some(LogicalType::integer(64, true))),
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

/// Starts a file. `has_origin`: whether the batches have sequences and lines.
fn begin<R: Row>(
    output: Output,
    schema: Schema,
    options: &Options,
    has_origin: bool,
) -> Result<RowGroups, Failure> {
    let description = columns::describe::<R>(options.prices, has_origin);
    let fields: Result<Vec<_>, _> = description.iter().map(|column| field(column).map(Arc::new)).collect();
    let record = Type::group_type_builder("schema").with_fields(fields?).build()?;
    let key = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let properties = WriterProperties::builder()
        // The build is not recorded, so that the same input gives the same bytes.
        .set_created_by("tapeworks".to_owned())
        .set_key_value_metadata(Some(vec![
            key("tapeworks:schema", schema.to_string()),
            // The key that DBN's own Parquet files use.
            key("databento:fixed_price_scale", Price::ONE.to_string()),
        ]))
        .build();
    let writer = SerializedFileWriter::new(output, Arc::new(record), Arc::new(properties))?;
    let columns = writer.schema_descr().columns().into();
    let press = press(options)?;
    Ok(RowGroups { writer, columns, press, batches: Vec::new(), spare: Vec::new() })
}

fn press(options: &Options) -> Result<Press, Failure> {
    Ok(Press::new(match options.compression {
        Compression::None => Compressor::None,
        Compression::Snappy => Compressor::Snappy(Box::new(snap::raw::Encoder::new())),
        Compression::Zstd => Compressor::Zstd(Box::new(zstd::bulk::Compressor::new(options.zstd_level)?)),
    }))
}

/// Returns an empty dictionary for each column.
fn dictionaries_of(columns: &[ColumnDescPtr]) -> Vec<Dictionary> {
    columns.iter().map(|_| Dictionary::default()).collect()
}

impl Tools {
    fn new(options: &Options) -> Result<Self, Failure> {
        Ok(Self { press: press(options)?, scratch: Scratch::default() })
    }
}

impl RowGroups {
    /// Writes the batches, if any, as a row group with these dictionaries.
    fn write(&mut self, dictionaries: Vec<Dictionary>) -> Result<(), Failure> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let mut row_group = self.writer.next_row_group()?;
        for (place, (column, dictionary)) in self.columns.iter().zip(dictionaries).enumerate() {
            let (chunk, close) =
                ColumnChunk::gather(column, place, &self.batches, dictionary, &mut self.press)?;
            row_group.append_column(&chunk, close)?;
        }
        row_group.close()?;
        self.spare.append(&mut self.batches);
        Ok(())
    }

    /// Writes the footer.
    fn end(self) -> Result<(), Failure> {
        Ok(self.writer.into_inner()?.finish()?)
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
        let groups = begin::<R>(output, schema, options, has_origin)?;
        let dictionaries = dictionaries_of(&groups.columns);
        let (prices, keys, tools) = (options.prices, Vec::new(), Tools::new(options)?);
        Ok(Self { prices, dictionaries, keys, tools, records: 0, groups })
    }

    /// Writes a batch. Returns the number of values written as null.
    pub(crate) fn put<R: Row>(&mut self, rows: &Rows<R>, symbols: Symbols<'_>) -> Result<u64, Failure> {
        if rows.len() == 0 {
            return Ok(0);
        }
        let Self { dictionaries, keys, tools, groups, .. } = self;
        let prices = self.prices;
        columns::keys(rows, symbols, prices, dictionaries, keys);
        let mut pages = groups.spare.pop().unwrap_or_default();
        pages.clear();
        let Tools { press, scratch } = tools;
        let out_of_range =
            columns::encode(rows, keys, prices, &groups.columns, &mut pages, (press, scratch))?;
        groups.batches.push(pages);
        self.records += rows.len() as u64;
        if self.records >= ROW_GROUP {
            self.write_group()?;
        }
        Ok(out_of_range)
    }

    fn write_group(&mut self) -> Result<(), Failure> {
        self.records = 0;
        let empty = dictionaries_of(&self.groups.columns);
        self.groups.write(std::mem::replace(&mut self.dictionaries, empty))
    }

    /// Writes the last row group and the footer.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.write_group()?;
        self.groups.end()
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
