//! Encodes batches to bytes: one encoder per format.

#[cfg(feature = "arrow")]
mod arrow;
mod binary;
mod parquet;
mod text;

use tapeworks_market::Instruments;

use crate::error::{Failure, StoreError};
use crate::rows::{Row, Rows};
use crate::summary::Summary;
use crate::target::Target;

#[cfg(feature = "arrow")]
pub(crate) use arrow::{Batcher, schema_of};
pub(crate) use binary::Binary;
pub(crate) use parquet::{Parquet, ParquetApart};
pub(crate) use text::{Csv, Json};

/// Writes batches of records to a file.
pub(crate) trait Encode<R: Row>: Send {
    /// Writes a batch, or takes the records out of `rows` for a thread that writes them later. `summary` counts written
    /// records.
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure>;

    /// Writes the remaining records and the end of the file.
    fn finish(
        self: Box<Self>,
        instruments: &Instruments,
        target: &mut Target,
        summary: &mut Summary,
    ) -> Result<(), Ending>;
}

/// Why a file could not be completed.
pub(crate) enum Ending {
    /// The encoder failed.
    Failure(Failure),
    /// A part could not be created.
    Store(StoreError),
}

impl<F: Into<Failure>> From<F> for Ending {
    fn from(failure: F) -> Self {
        Self::Failure(failure.into())
    }
}

impl From<StoreError> for Ending {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Returns the symbol of an instrument number, if it has one.
pub(crate) fn symbol(instruments: &Instruments, instrument_number: u64) -> Option<tapeworks_market::Symbol> {
    let index = u32::try_from(instrument_number).ok()?.checked_sub(1)?;
    instruments.symbol(tapeworks_market::InstrumentId(index))
}
