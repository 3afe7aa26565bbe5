//! Parquet whose batches are encoded apart: see [`apart`](crate::apart).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::ColumnDescPtr;
use tapeworks_market::Instruments;

use super::{ROW_GROUP, append, chunks_of, compressor};
use crate::apart::{Batch, Encoded, Encoders, Lost, Work};
use crate::chunk::{Chunk, Compressor};
use crate::encode::{Encode, Ending};
use crate::error::Failure;
use crate::options::Options;
use crate::rows::columns::{self, Scratch};
use crate::rows::{Row, Rows};
use crate::summary::Summary;
use crate::symbols::Symbols;
use crate::target::{Output, Target};

/// Writes Parquet, and has others encode it.
pub(crate) struct ParquetApart<R> {
    writer: SerializedFileWriter<Output>,
    columns: Arc<[ColumnDescPtr]>,
    options: Options,
    encoders: Box<dyn Encoders>,
    /// The row groups that are not written. The last one is being collected, unless it is closed.
    groups: VecDeque<RowGroup>,
    compressor: Compressor,
    /// The numbers of the batches that are given away and taken back next.
    next: u64,
    taken: u64,
    /// Batches that wait for an earlier one.
    back: BTreeMap<u64, Batch>,
    spare: Vec<Tools<R>>,
}

/// What a batch is made of and with.
struct Tools<R> {
    rows: Rows<R>,
    compressor: Compressor,
    scratch: Scratch,
}

/// A row group: its dictionaries are ahead of its pages.
struct RowGroup {
    chunks: Vec<Chunk>,
    given: u64,
    taken: u64,
    /// Records given, and those of the last batch.
    records: u64,
    last: u64,
    /// Of the batches taken back.
    records_taken: u64,
    out_of_range: u64,
    is_closed: bool,
}

impl<R: Row> ParquetApart<R> {
    pub(crate) fn new(
        (writer, columns): (SerializedFileWriter<Output>, Arc<[ColumnDescPtr]>),
        options: &Options,
        encoders: Box<dyn Encoders>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            writer,
            columns,
            options: *options,
            encoders,
            groups: VecDeque::new(),
            compressor: compressor(options)?,
            next: 0,
            taken: 0,
            back: BTreeMap::new(),
            spare: Vec::new(),
        })
    }

    /// The row group that is being collected, which begins if there is none.
    fn collecting(&mut self) -> &mut RowGroup {
        if self.groups.back().is_none_or(|group| group.is_closed) {
            let chunks = chunks_of(&self.columns);
            let (given, taken, records, last, records_taken) = (0, 0, 0, 0, 0);
            let (out_of_range, is_closed) = (0, false);
            self.groups.push_back(RowGroup {
                chunks,
                given,
                taken,
                records,
                last,
                records_taken,
                out_of_range,
                is_closed,
            });
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// The batch in `rows`, as work: all but its keys.
    fn work(&mut self, rows: &mut Rows<R>, instruments: &Instruments) -> Result<Work, Failure> {
        let prices = self.options.prices;
        let records = rows.len() as u64;
        let group = self.collecting();
        let keys = columns::keys(rows, Symbols::Listed(instruments.symbols()), prices, &mut group.chunks);
        group.given += 1;
        group.records += records;
        group.last = records;
        group.is_closed = group.records >= ROW_GROUP;
        let tools = match self.spare.pop() {
            Some(tools) => tools,
            None => {
                let compressor = compressor(&self.options)?;
                Tools { rows: Rows::new(), compressor, scratch: Scratch::default() }
            }
        };
        let Tools { rows: empty, mut compressor, mut scratch } = tools;
        let mut rows = rows.replace(empty);
        let columns = self.columns.clone();
        let number = self.next;
        self.next += 1;
        let encode = move || {
            let mut pages = chunks_of(&columns);
            let encoded =
                columns::encode_keyed(&rows, &keys, prices, &mut pages, &mut compressor, &mut scratch);
            rows.clear();
            Batch {
                out_of_range: encoded.as_ref().copied().unwrap_or(0),
                pages: encoded.map(|_| pages).map_err(Failure::from),
                records,
                spare: Box::new(Tools { rows, compressor, scratch }),
            }
        };
        Ok(Work { number, encode: Box::new(encode) })
    }

    /// Puts the batches that are next to their row group, and writes what is whole.
    fn take(&mut self, done: Vec<Encoded>, summary: &mut Summary) -> Result<(), Failure> {
        self.back.extend(done.into_iter().map(|encoded| (encoded.number, encoded.batch)));
        while let Some(batch) = self.back.remove(&self.taken) {
            self.taken += 1;
            let Some(group) = self.groups.front_mut() else { break };
            let absorbed = batch.pages.and_then(|pages| {
                let mut pairs = group.chunks.iter_mut().zip(pages);
                Ok(pairs.try_for_each(|(chunk, page)| chunk.absorb(page))?)
            });
            if let Err(failure) = absorbed {
                summary.records += group.records_taken;
                return Err(failure);
            }
            group.taken += 1;
            group.records_taken += batch.records;
            group.out_of_range += batch.out_of_range;
            if let Ok(tools) = batch.spare.downcast::<Tools<R>>() {
                self.spare.push(*tools);
            }
            if group.is_closed && group.taken == group.given {
                // An error counts the records before the batch that filled the row group.
                let counted = group.records - group.last;
                self.write_group(counted, summary)?;
            }
        }
        Ok(())
    }

    /// Writes the first row group. An error counts `counted` of its records as written.
    fn write_group(&mut self, counted: u64, summary: &mut Summary) -> Result<(), Failure> {
        let Some(mut group) = self.groups.pop_front() else { return Ok(()) };
        let ended = group.chunks.iter_mut().map(|chunk| chunk.take(&mut self.compressor));
        let ended: Result<Vec<_>, _> = ended.collect();
        if let Err(error) = ended.and_then(|columns| append(&mut self.writer, columns)) {
            summary.records += counted;
            return Err(error.into());
        }
        summary.records += group.records;
        summary.out_of_range += group.out_of_range;
        Ok(())
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
        let work = self.work(rows, instruments)?;
        let done = self.encoders.give(work).map_err(lost)?;
        self.take(done, summary)
    }

    fn finish(
        mut self: Box<Self>,
        _instruments: &Instruments,
        _target: &mut Target,
        summary: &mut Summary,
    ) -> Result<(), Ending> {
        let done = self.encoders.rest().map_err(lost)?;
        self.take(done, summary)?;
        if self.taken < self.next {
            let lost = self.next - self.taken;
            return Err(Failure::Encode(format!("{lost} batches were not encoded")).into());
        }
        // The last row group, which is not full.
        let counted = self.groups.front().map_or(0, |group| group.records);
        self.write_group(counted, summary)?;
        Ok(self.writer.into_inner().map_err(Failure::from)?.finish().map_err(Failure::from)?)
    }
}
