//! Files of ready-made records from a plant or another server of the DBN live protocol.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dbn::encode::{
    CsvEncoder, DbnEncoder, EncodeRecord as _, EncodeRecordRef as _, EncodeRecordTextExt as _, JsonEncoder,
};
use dbn::{
    BboMsg, CbboMsg, Cmbp1Msg, ErrorMsg, FlagSet, MboMsg, Mbp1Msg, Mbp10Msg, Metadata, RecordRef,
    SymbolMappingMsg, SystemMsg, TradeMsg,
};

use crate::encode::Parquet;
use crate::error::{Failure, StoreError};
use crate::format::Format;
use crate::options::Options;
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::shape::{self, Shape};
use crate::symbols::Symbols;
use crate::target::{Output, Target};

/// Writes received records to one file, in the format of its extension, as [`Writer`](crate::Writer) does with records made
/// here. Parquet lacks the columns for the channel sequence and the line, because received records do not carry them.
///
/// DBN and JSON hold records of any schemas; CSV and Parquet hold one. DBN also holds the server's own messages: symbol
/// mappings, system messages, errors.
///
/// Cost: for Parquet, a copy of the record, with 8,192 encoded at a time; other formats encode each record immediately.
pub struct RecordWriter {
    target: Target,
    form: Form,
    /// If set, the only record type that is accepted.
    rtype: Option<u8>,
    symbols: HashMap<u32, String>,
    records: u64,
    /// A batch could not be written.
    has_failed: bool,
}

enum Form {
    Dbn(Box<DbnEncoder<Output>>),
    Csv(Box<CsvEncoder<Output>>),
    Json(Box<JsonEncoder<Output>>),
    Parquet(Box<dyn Table>),
}

impl std::fmt::Debug for RecordWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordWriter({}, {} records)", self.target.path().display(), self.records)
    }
}

/// Returns whether a record carries market data instead of belonging to the session.
pub fn is_market(record: &RecordRef<'_>) -> bool {
    !record.has::<SystemMsg>() && !record.has::<ErrorMsg>() && !record.has::<SymbolMappingMsg>()
}

/// Returns whether a record is part of a snapshot: whether it carries the flag SNAPSHOT.
pub fn is_snapshot(record: &RecordRef<'_>) -> bool {
    let flags = None
        .or_else(|| record.get::<MboMsg>().map(|record| record.flags))
        .or_else(|| record.get::<TradeMsg>().map(|record| record.flags))
        .or_else(|| record.get::<Mbp1Msg>().map(|record| record.flags))
        .or_else(|| record.get::<Mbp10Msg>().map(|record| record.flags))
        .or_else(|| record.get::<BboMsg>().map(|record| record.flags))
        .or_else(|| record.get::<Cmbp1Msg>().map(|record| record.flags))
        .or_else(|| record.get::<CbboMsg>().map(|record| record.flags));
    flags.is_some_and(|flags: FlagSet| flags.is_snapshot())
}

/// A Parquet file with its record type erased.
trait Table: Send {
    fn put(&mut self, record: RecordRef<'_>, symbols: &HashMap<u32, String>) -> Result<(), Failure>;
    fn finish(self: Box<Self>, symbols: &HashMap<u32, String>) -> Result<(), Failure>;
}

struct TableOf<R> {
    rows: Rows<R>,
    parquet: Parquet,
}

impl<R: Row> Table for TableOf<R> {
    fn put(&mut self, record: RecordRef<'_>, symbols: &HashMap<u32, String>) -> Result<(), Failure> {
        let Some(record) = record.get::<R>() else { return Ok(()) };
        self.rows.push_derived(record.clone());
        if self.rows.is_full() {
            self.parquet.put(&self.rows, Symbols::Received(symbols))?;
            self.rows.clear();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, symbols: &HashMap<u32, String>) -> Result<(), Failure> {
        self.parquet.put(&self.rows, Symbols::Received(symbols))?;
        self.parquet.end()
    }
}

/// Opens a Parquet file for the record type of its schema.
struct Open<'a> {
    output: Output,
    schema: Schema,
    options: &'a Options,
}

impl shape::Use for Open<'_> {
    type Output = Result<Box<dyn Table>, Failure>;

    fn with<S: Shape + 'static>(self, _shape: S) -> Self::Output {
        let parquet = Parquet::new::<S::Row>(self.output, self.schema, self.options, false)?;
        Ok(Box::new(TableOf::<S::Row> { rows: Rows::received(), parquet }))
    }
}

impl RecordWriter {
    /// Opens a file for records of `schema`, or of all schemas. `metadata` is the head of the stream that supplies them.
    ///
    /// # Errors
    /// As [`Writer::create`](crate::Writer::create), and [`StoreError::NeedsSchema`].
    pub fn create(
        path: &Path,
        schema: Option<Schema>,
        metadata: &Metadata,
        options: &Options,
    ) -> Result<Self, StoreError> {
        let format = options.format.map_or_else(|| Format::from_path(path), Ok)?;
        let needs_schema = || StoreError::NeedsSchema { path: path.to_owned(), format: format.name() };
        let one = match format {
            Format::Csv | Format::CsvZstd | Format::Parquet => Some(schema.ok_or_else(needs_schema)?),
            _ => schema,
        };
        let mut target = Target::new(path, format, options.overwrite)?;
        let output = target.open(format.is_zstd().then_some(options.zstd_level))?;
        let form = Self::open(output, format, one, metadata, options)
            .map_err(|failure| error(target.path().to_owned(), 0, failure))?;
        let rtype = schema.map(|schema| schema.rtype());
        Ok(Self { target, form, rtype, symbols: HashMap::new(), records: 0, has_failed: false })
    }

    fn open(
        output: Output,
        format: Format,
        schema: Option<Schema>,
        metadata: &Metadata,
        options: &Options,
    ) -> Result<Form, Failure> {
        Ok(match (format, schema) {
            (Format::Dbn | Format::DbnZstd, _) => Form::Dbn(Box::new(DbnEncoder::new(output, metadata)?)),
            (Format::Parquet, Some(schema)) => {
                Form::Parquet(shape::of_schema(schema, Open { output, schema, options })?)
            }
            (Format::Csv | Format::CsvZstd, Some(schema)) => Form::Csv(Box::new(
                CsvEncoder::builder(output)
                    .use_pretty_px(options.pretty)
                    .use_pretty_ts(options.pretty)
                    .schema(Some(schema.to_dbn()))
                    .with_symbol(true)
                    .build()?,
            )),
            _ => Form::Json(Box::new(JsonEncoder::new(output, false, options.pretty, options.pretty))),
        })
    }

    /// Takes a record. Skips records of another schema and, in most formats, records that are not market data.
    ///
    /// # Errors
    /// [`StoreError::Write`] or [`StoreError::Encode`] if the record, or the batch that it filled, cannot be written;
    /// [`StoreError::Failed`] from then on.
    pub fn put(&mut self, record: RecordRef<'_>) -> Result<(), StoreError> {
        if self.has_failed {
            return Err(StoreError::Failed { path: self.target.path().to_owned() });
        }
        if let Some(mapping) = record.get::<SymbolMappingMsg>() {
            let symbol = mapping.stype_out_symbol().unwrap_or_default();
            self.symbols.insert(mapping.hd.instrument_id, symbol.to_owned());
        }
        let is_market = is_market(&record);
        if is_market && self.rtype.is_some_and(|rtype| rtype != record.header().rtype) {
            return Ok(());
        }
        let symbol = self.symbols.get(&record.header().instrument_id).map(String::as_str);
        let put = match &mut self.form {
            Form::Dbn(encoder) => encoder.encode_record_ref(record).map_err(Failure::from),
            _ if !is_market => return Ok(()),
            Form::Csv(encoder) => encoder.encode_ref_with_sym(record, symbol).map_err(Failure::from),
            Form::Json(encoder) => encoder.encode_ref_with_sym(record, symbol).map_err(Failure::from),
            Form::Parquet(table) => table.put(record, &self.symbols),
        };
        match put {
            Ok(()) => {
                self.records += u64::from(is_market);
                Ok(())
            }
            Err(failure) => {
                self.has_failed = true;
                Err(error(self.target.path().to_owned(), self.records, failure))
            }
        }
    }

    /// Flushes buffered records to a pipe whose reader may be waiting. Parquet has nothing to flush before its batch is full.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn flush(&mut self) -> Result<(), StoreError> {
        use std::io::Write as _;

        if !self.target.is_in_place() {
            return Ok(());
        }
        let flushed = match &mut self.form {
            Form::Dbn(encoder) => encoder.get_mut().flush().map_err(Failure::from),
            Form::Csv(encoder) => encoder.flush().map_err(Failure::from),
            Form::Json(encoder) => encoder.get_mut().flush().map_err(Failure::from),
            Form::Parquet(_) => Ok(()),
        };
        flushed.map_err(|failure| error(self.target.path().to_owned(), self.records, failure))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.target.path()
    }

    /// Returns the number of market records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Completes the file and gives it its name. Returns its length in bytes.
    ///
    /// # Errors
    /// As [`RecordWriter::put`], and [`StoreError::File`] if the file cannot get its name.
    pub fn finish(self) -> Result<u64, StoreError> {
        let path = self.target.path().to_owned();
        if self.has_failed {
            return Err(StoreError::Failed { path });
        }
        let ended = match self.form {
            Form::Dbn(mut encoder) => encoder.get_mut().finish().map_err(Failure::from),
            Form::Csv(encoder) => encoder
                .into_inner()
                .map_err(Failure::from)
                .and_then(|mut output| output.finish().map_err(Failure::from)),
            Form::Json(mut encoder) => encoder.get_mut().finish().map_err(Failure::from),
            Form::Parquet(table) => table.finish(&self.symbols),
        };
        ended.map_err(|failure| error(path, self.records, failure))?;
        self.target.complete()
    }
}

fn error(path: PathBuf, records: u64, failure: Failure) -> StoreError {
    match failure {
        Failure::Io(source) => StoreError::Write { path, records, source },
        Failure::Encode(reason) => StoreError::Encode { path, records, reason },
    }
}
