//! Parquet whose row groups are encoded apart: see [`apart`](crate::apart).

use std::collections::BTreeMap;
use std::sync::Arc;

use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::ColumnDescPtr;
use tapeworks_market::{Instruments, Symbol};

use super::{Encoder, ROW_GROUP, append};
use crate::apart::{Encoded, Encoders, RowGroup, Work};
use crate::encode::{Encode, Ending};
use crate::error::Failure;
use crate::options::Options;
use crate::rows::{Row, Rows};
use crate::summary::Summary;
use crate::symbols::Symbols;
use crate::target::{Output, Target};

/// A batch, and how many symbols were known when it was full.
type Batch<R> = (Rows<R>, usize);

/// Writes Parquet, and has others encode it.
pub(crate) struct ParquetApart<R> {
    writer: SerializedFileWriter<Output>,
    columns: Arc<[ColumnDescPtr]>,
    options: Options,
    encoders: Box<dyn Encoders>,
    /// The batches of the row group that is being collected, and their records.
    batches: Vec<Batch<R>>,
    rows: u64,
    /// The symbols, as they were when a row group was last given away.
    symbols: Arc<[Symbol]>,
    /// The numbers of the row groups that are given away and written next.
    next: u64,
    written: u64,
    /// Row groups that wait for an earlier one.
    back: BTreeMap<u64, RowGroup>,
    /// Empty batches, to be used again.
    spare: Vec<Batch<R>>,
}

impl<R: Row> ParquetApart<R> {
    pub(crate) fn new(
        (writer, columns): (SerializedFileWriter<Output>, Arc<[ColumnDescPtr]>),
        options: &Options,
        encoders: Box<dyn Encoders>,
    ) -> Self {
        Self {
            writer,
            columns,
            options: *options,
            encoders,
            batches: Vec::new(),
            rows: 0,
            symbols: Arc::new([]),
            next: 0,
            written: 0,
            back: BTreeMap::new(),
            spare: Vec::new(),
        }
    }

    /// The row group that was collected, as work. An error tells `told` of its records as written.
    fn work(&mut self, told: u64, instruments: &Instruments) -> Work {
        if self.symbols.len() != instruments.symbols().len() {
            self.symbols = instruments.symbols().into();
        }
        let (symbols, columns, options) = (self.symbols.clone(), self.columns.clone(), self.options);
        let mut batches = std::mem::take(&mut self.batches);
        let records = std::mem::take(&mut self.rows);
        let number = self.next;
        self.next += 1;
        let encode = move || {
            let mut out_of_range = 0;
            let columns = Encoder::new(&columns, &options).and_then(|mut encoder| {
                for (rows, known) in &batches {
                    let symbols = Symbols::Listed(symbols.get(..*known).unwrap_or(&symbols));
                    out_of_range += encoder.put(rows, symbols)?;
                }
                Ok(encoder.end()?)
            });
            batches.iter_mut().for_each(|(rows, _)| rows.clear());
            RowGroup { columns, records, out_of_range, told, spare: Box::new(batches) }
        };
        Work { number, encode: Box::new(encode) }
    }

    /// Writes the row groups that are next.
    fn take(&mut self, done: Vec<Encoded>, summary: &mut Summary) -> Result<(), Failure> {
        self.back.extend(done.into_iter().map(|encoded| (encoded.number, encoded.group)));
        while let Some(group) = self.back.remove(&self.written) {
            self.written += 1;
            let appended = group.columns.and_then(|columns| Ok(append(&mut self.writer, columns)?));
            if let Err(failure) = appended {
                summary.records += group.told;
                return Err(failure);
            }
            summary.records += group.records;
            summary.out_of_range += group.out_of_range;
            if let Ok(spare) = group.spare.downcast::<Vec<Batch<R>>>() {
                self.spare.extend(*spare);
            }
        }
        Ok(())
    }
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
        let last = rows.len() as u64;
        let empty = self.spare.pop().map_or_else(Rows::new, |(rows, _)| rows);
        self.batches.push((rows.replace(empty), instruments.symbols().len()));
        self.rows += last;
        if self.rows < ROW_GROUP {
            return Ok(());
        }
        let work = self.work(self.rows - last, instruments);
        let done = self.encoders.give(work);
        self.take(done, summary)
    }

    fn finish(
        mut self: Box<Self>,
        instruments: &Instruments,
        _target: &mut Target,
        summary: &mut Summary,
    ) -> Result<(), Ending> {
        let mut done = Vec::new();
        if self.rows > 0 {
            let work = self.work(self.rows, instruments);
            done = self.encoders.give(work);
        }
        done.extend(self.encoders.rest());
        self.take(done, summary)?;
        if self.written < self.next {
            let lost = self.next - self.written;
            return Err(Failure::Encode(format!("{lost} row groups were not encoded")).into());
        }
        Ok(self.writer.into_inner().map_err(Failure::from)?.finish().map_err(Failure::from)?)
    }
}
