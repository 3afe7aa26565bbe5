//! The writer: one schema to one file.

use std::path::Path;

use tapeworks_market::{Instruments, NbboUpdate};

use crate::encode::{Binary, Csv, Encode, Ending, Json, Parquet};
use crate::error::{Failure, StoreError};
use crate::format::Format;
use crate::options::Options;
use crate::rows::Rows;
use crate::schema::Schema;
use crate::shape::{Bars, Consolidated, Definitions, Imbalances, Orders, Prices, Quotes, Shape, Statuses};
use crate::summary::Summary;
use crate::target::{Opener, Target, on_disk};

const SECOND_NS: u64 = tapeworks_market::Nanos::SECOND;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Writes the records of one schema to one file.
///
/// The file appears under its name only when [`Writer::finish`] has returned; before, it is a partial file beside
/// it, which dropping the writer removes. To end early (on Ctrl-C), call `finish`: the file holds what came so far.
pub struct Writer {
    table: Box<dyn Table>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("summary", self.summary()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Opens a file for `schema`; the ending of `path` tells the format.
    ///
    /// # Errors
    /// [`StoreError::UnknownEnding`], [`StoreError::IsDirectory`], [`StoreError::Exists`] unless
    /// [`Options::overwrite`] is set, [`StoreError::Create`], and [`StoreError::Write`] for a head that cannot be
    /// written.
    pub fn create(path: &Path, schema: Schema, options: &Options) -> Result<Self, StoreError> {
        Self::create_with(path, schema, options, on_disk)
    }

    pub(crate) fn create_with(
        path: &Path,
        schema: Schema,
        options: &Options,
        opener: Opener,
    ) -> Result<Self, StoreError> {
        let format = Format::from_path(path)?;
        let target = Target::new(path, options.overwrite, opener)?;
        let rtype = dbn::RType::from(schema.to_dbn()) as u8;
        let table: Box<dyn Table> = match schema {
            Schema::Mbo => open(Orders::default(), target, format, schema, options)?,
            Schema::Mbp1 => open(Prices::<dbn::Mbp1Msg, 1>::default(), target, format, schema, options)?,
            Schema::Mbp10 => open(Prices::<dbn::Mbp10Msg, 10>::default(), target, format, schema, options)?,
            Schema::Trades => open(Prices::<dbn::TradeMsg, 0>::default(), target, format, schema, options)?,
            Schema::Bbo1S => open(Quotes::new(rtype, SECOND_NS), target, format, schema, options)?,
            Schema::Bbo1M => open(Quotes::new(rtype, MINUTE_NS), target, format, schema, options)?,
            Schema::Cmbp1 => open(Consolidated::default(), target, format, schema, options)?,
            Schema::Status => open(Statuses, target, format, schema, options)?,
            Schema::Imbalance => open(Imbalances::default(), target, format, schema, options)?,
            Schema::Definition => open(Definitions, target, format, schema, options)?,
            Schema::Ohlcv1S => open(Bars::new(rtype, SECOND_NS), target, format, schema, options)?,
        };
        Ok(Self { table })
    }

    /// Takes one update. `instruments` names its instrument; it may grow between calls.
    ///
    /// Cost: see the [crate's documentation](crate#cost). Nothing is allocated here; each batch of records allocates
    /// when it is encoded.
    ///
    /// # Errors
    /// [`StoreError::Write`] or [`StoreError::Encode`] when the batch that this update filled cannot be written;
    /// [`StoreError::Failed`] from then on.
    #[inline]
    pub fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) -> Result<(), StoreError> {
        self.table.put(update, instruments)
    }

    /// What went into the file so far. Records in a batch that is not written yet are not counted.
    pub fn summary(&self) -> &Summary {
        self.table.summary()
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// As [`Writer::put`], and [`StoreError::Create`] or [`StoreError::Exists`] when it cannot have its name.
    pub fn finish(self, instruments: &Instruments) -> Result<Summary, StoreError> {
        self.table.finish(instruments)
    }
}

/// A writer whose record type is forgotten.
trait Table: Send {
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) -> Result<(), StoreError>;
    fn summary(&self) -> &Summary;
    fn finish(self: Box<Self>, instruments: &Instruments) -> Result<Summary, StoreError>;
}

struct TableOf<S: Shape> {
    shape: S,
    rows: Rows<S::Row>,
    /// None once a batch could not be written.
    encoder: Option<Box<dyn Encode<S::Row>>>,
    summary: Summary,
    target: Target,
}

fn open<S: Shape + 'static>(
    shape: S,
    mut target: Target,
    format: Format,
    schema: Schema,
    options: &Options,
) -> Result<Box<dyn Table>, StoreError> {
    let zstd_level = format.is_zstd().then_some(options.zstd_level);
    let part = if matches!(format, Format::Dbn | Format::DbnZstd) { ".records" } else { "" };
    let output = target.open(part, zstd_level)?;
    let encoder: Result<Box<dyn Encode<S::Row>>, Failure> = match format {
        Format::Dbn | Format::DbnZstd => Ok(Box::new(Binary::new(output, schema, zstd_level))),
        Format::Parquet => {
            Parquet::new::<S::Row>(output, schema, options).map(|encoder| Box::new(encoder) as _)
        }
        Format::Csv | Format::CsvZstd => {
            Csv::new(output, schema, options).map(|encoder| Box::new(encoder) as _)
        }
        Format::Json | Format::JsonZstd => Ok(Box::new(Json::new(output, options))),
    };
    let encoder = encoder.map_err(|failure| error(&target, 0, failure))?;
    Ok(Box::new(TableOf {
        shape,
        rows: Rows::new(),
        encoder: Some(encoder),
        summary: Summary::default(),
        target,
    }))
}

fn error(target: &Target, records: u64, failure: Failure) -> StoreError {
    let path = target.path().to_owned();
    match failure {
        Failure::Io(source) => StoreError::Write { path, records, source },
        Failure::Encode(reason) => StoreError::Encode { path, records, reason },
    }
}

impl<S: Shape> TableOf<S> {
    #[cold]
    #[inline(never)]
    fn encode(&mut self, instruments: &Instruments) -> Result<(), StoreError> {
        let Some(encoder) = &mut self.encoder else {
            return Err(StoreError::Failed { path: self.target.path().to_owned() });
        };
        let count = self.rows.len() as u64;
        match encoder.encode(&self.rows, instruments) {
            Ok(out_of_range) => {
                self.summary.records += count;
                self.summary.prices_out_of_range += out_of_range;
                self.summary.skipped = self.rows.skipped;
                self.rows.clear();
                Ok(())
            }
            Err(failure) => {
                // An encoder that failed amid a batch cannot go on.
                self.encoder = None;
                self.rows.clear();
                Err(error(&self.target, self.summary.records, failure))
            }
        }
    }
}

impl<S: Shape> Table for TableOf<S> {
    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) -> Result<(), StoreError> {
        self.summary.updates += 1;
        let before = self.rows.len();
        self.shape.put(update, instruments, &mut self.rows);
        self.rows.close_group(update.book.event, before..self.rows.len());
        if self.rows.is_full() { self.encode(instruments) } else { Ok(()) }
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn finish(mut self: Box<Self>, instruments: &Instruments) -> Result<Summary, StoreError> {
        self.shape.finish(&mut self.rows);
        self.encode(instruments)?;
        let Some(encoder) = self.encoder.take() else {
            return Err(StoreError::Failed { path: self.target.path().to_owned() });
        };
        match encoder.finish(instruments, &mut self.target) {
            Ok(()) => {}
            Err(Ending::Failure(failure)) => {
                return Err(error(&self.target, self.summary.records, failure));
            }
            Err(Ending::Store(error)) => return Err(error),
        }
        self.summary.bytes = self.target.complete()?;
        Ok(self.summary)
    }
}
