//! DBN, version 3.
//!
//! The head of a DBN file contains the time range and the symbols, which are known only at the end. The records therefore go
//! to a scratch file, and the file is assembled at the end: the head, then the scratch file unchanged. In a compressed file,
//! both are Zstandard frames. Several frames form one stream (RFC 8878, section 3.1), and Databento's own readers accept it.

use std::num::NonZeroU64;

use dbn::encode::{DbnMetadataEncoder, DbnRecordEncoder, EncodeRecord};
use dbn::{MappingInterval, Metadata, SType, SymbolMapping};
use tapeworks_market::{Instruments, Publisher};
use time::{Date, OffsetDateTime};

use super::{Encode, Ending, symbol};
use crate::error::Failure;
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::summary::Summary;
use crate::target::{Output, Target};

/// The dataset name of a file whose records come from several feeds, or from a feed that DBN has no name for. At most 15 bytes.
const MANY_FEEDS: &str = "TAPEWORKS.MULTI";

/// Writes DBN.
pub(crate) struct Binary {
    records: DbnRecordEncoder<Output>,
    schema: Schema,
    zstd_level: Option<i32>,
    /// The earliest and latest time, by the time that orders the records.
    first: u64,
    last: u64,
    publishers: Vec<u16>,
    /// Whether the instrument with this number has a record.
    seen: Vec<bool>,
}

impl Binary {
    /// Creates an encoder. `output` is the scratch file for the records.
    pub(crate) fn new(output: Output, schema: Schema, zstd_level: Option<i32>) -> Self {
        Self {
            records: DbnRecordEncoder::new(output),
            schema,
            zstd_level,
            first: u64::MAX,
            last: 0,
            publishers: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn metadata(&self, instruments: &Instruments) -> Metadata {
        let dataset = match self.publishers[..] {
            [publisher] => Publisher(publisher).feed().map_or(MANY_FEEDS, |feed| feed.dataset),
            _ => MANY_FEEDS,
        };
        let start = self.first.min(self.last);
        // The end is exclusive.
        let end = self.last.saturating_add(1);
        let (from, until) = (date(start), date(end.saturating_sub(1)).next_day().unwrap_or(Date::MAX));
        let mappings = self.seen.iter().enumerate().filter(|(_, seen)| **seen).filter_map(|(number, _)| {
            let symbol = symbol(instruments, number as u64)?;
            (!symbol.as_str().is_empty()).then(|| SymbolMapping {
                raw_symbol: symbol.as_str().to_owned(),
                intervals: vec![MappingInterval {
                    start_date: from,
                    end_date: until,
                    symbol: number.to_string(),
                }],
            })
        });
        let mappings: Vec<_> = mappings.collect();
        Metadata::builder()
            .version(dbn::DBN_VERSION)
            .dataset(dataset)
            .schema(Some(self.schema.to_dbn()))
            .start(start)
            .end(NonZeroU64::new(end))
            .stype_in(Some(SType::RawSymbol))
            .stype_out(SType::InstrumentId)
            .symbols(mappings.iter().map(|mapping| mapping.raw_symbol.clone()).collect())
            .mappings(mappings)
            .build()
    }
}

/// Returns the UTC day of a time; every `u64` of nanoseconds is before the year 2600.
fn date(nanos: u64) -> Date {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(nanos)).map_or(Date::MIN, OffsetDateTime::date)
}

impl<R: Row> Encode<R> for Binary {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        _instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        for record in &rows.records {
            let time = record.raw_index_ts();
            if time != dbn::UNDEF_TIMESTAMP {
                self.first = self.first.min(time);
                self.last = self.last.max(time);
            }
            let number = record.instrument_id() as usize;
            match self.seen.get_mut(number) {
                Some(seen) => *seen = true,
                None => {
                    self.seen.resize((number + 1).next_power_of_two(), false);
                    self.seen[number] = true;
                }
            }
            let publisher = record.publisher_id();
            if !self.publishers.contains(&publisher) {
                self.publishers.push(publisher);
            }
        }
        self.records.encode_records(&rows.records)?;
        summary.records += rows.len() as u64;
        Ok(())
    }

    fn finish(
        mut self: Box<Self>,
        instruments: &Instruments,
        target: &mut Target,
        _summary: &mut Summary,
    ) -> Result<(), Ending> {
        self.records.get_mut().finish()?;
        let mut head = Vec::new();
        DbnMetadataEncoder::new(&mut head).encode(&self.metadata(instruments))?;
        if let Some(level) = self.zstd_level {
            head = zstd::bulk::compress(&head, level)?;
        }
        let mut whole = target.open(None)?;
        std::io::Write::write_all(&mut whole, &head)?;
        target.append_scratch(&mut whole)?;
        Ok(whole.finish()?)
    }
}
