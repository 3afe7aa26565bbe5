//! CSV and JSON from the `dbn` crate's encoders, with the symbol as the last column or field.

use dbn::encode::{CsvEncoder, EncodeRecordTextExt, JsonEncoder};
use tapeworks_market::Instruments;

use super::{Encode, Ending, symbol};
use crate::error::Failure;
use crate::options::Options;
use crate::rows::{Row, Rows};
use crate::schema::Schema;
use crate::summary::Summary;
use crate::target::{Output, Target};

/// Writes CSV with a header line.
pub(crate) struct Csv(CsvEncoder<Output>);

impl Csv {
    pub(crate) fn new(output: Output, schema: Schema, options: &Options) -> Result<Self, Failure> {
        let encoder = CsvEncoder::builder(output)
            .use_pretty_px(options.pretty)
            .use_pretty_ts(options.pretty)
            .schema(Some(schema.to_dbn()))
            .with_symbol(true)
            .build()?;
        Ok(Self(encoder))
    }
}

/// Writes one JSON object per line.
pub(crate) struct Json(JsonEncoder<Output>);

impl Json {
    pub(crate) fn new(output: Output, options: &Options) -> Self {
        Self(JsonEncoder::new(output, false, options.pretty, options.pretty))
    }
}

fn encode_all<R: Row>(
    encoder: &mut impl EncodeRecordTextExt,
    rows: &Rows<R>,
    instruments: &Instruments,
    summary: &mut Summary,
) -> Result<(), Failure> {
    for record in &rows.records {
        let symbol = symbol(instruments, record.instrument_id());
        encoder.encode_record_with_sym(record, symbol.as_ref().map(|symbol| symbol.as_str()))?;
    }
    summary.records += rows.len() as u64;
    Ok(())
}

impl<R: Row> Encode<R> for Csv {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        encode_all(&mut self.0, rows, instruments, summary)
    }

    fn finish(
        self: Box<Self>,
        _instruments: &Instruments,
        _target: &mut Target,
        _summary: &mut Summary,
    ) -> Result<(), Ending> {
        Ok(self.0.into_inner()?.finish()?)
    }
}

impl<R: Row> Encode<R> for Json {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        encode_all(&mut self.0, rows, instruments, summary)
    }

    fn finish(
        mut self: Box<Self>,
        _instruments: &Instruments,
        _target: &mut Target,
        _summary: &mut Summary,
    ) -> Result<(), Ending> {
        Ok(self.0.get_mut().finish()?)
    }
}
