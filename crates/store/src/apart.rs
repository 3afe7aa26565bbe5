//! Encoding apart from the writer: units of work that other threads can take.
//!
//! A Parquet file is made of row groups, and each can be encoded without the others. A [`Writer`](crate::Writer) with
//! [`Encoders`] collects the records of a row group and gives them away as [`Work`]; what comes back as [`Encoded`] it
//! writes in the order of the records. The bytes of the file do not depend on who encodes, or on what comes back first.
//!
//! Cost: the records of a row group wait unencoded (262,144 of 65 bytes for `mbo`, 17 MB), once for each unit that is
//! given away and not written.

use std::any::Any;

use bytes::Bytes;
use parquet::column::writer::ColumnCloseResult;

use crate::error::Failure;

/// Who encodes row groups: a pool of threads, or whoever calls [`Work::encode`].
pub trait Encoders: Send {
    /// Takes a unit of work, and returns units of this writer that are done, in any order. It may wait for some, so that
    /// not all of a file is in memory.
    fn give(&mut self, work: Work) -> Vec<Encoded>;

    /// Waits for all units of this writer that are not done, and returns them.
    fn rest(&mut self) -> Vec<Encoded>;
}

/// The records of a row group that is to be encoded.
pub struct Work {
    pub(crate) number: u64,
    pub(crate) encode: Box<dyn FnOnce() -> RowGroup + Send>,
}

impl Work {
    /// Encodes it. Takes some 30 ms for `mbo`.
    #[must_use = "the writer waits for it"]
    pub fn encode(self) -> Encoded {
        Encoded { number: self.number, group: (self.encode)() }
    }
}

/// A row group that is encoded.
pub struct Encoded {
    pub(crate) number: u64,
    pub(crate) group: RowGroup,
}

/// What came of the records of a row group.
pub(crate) struct RowGroup {
    pub(crate) columns: Result<Vec<(Bytes, ColumnCloseResult)>, Failure>,
    pub(crate) records: u64,
    /// Values that had to be written as null.
    pub(crate) out_of_range: u64,
    /// How many of the records an error tells as written, if this row group cannot be: those before its last batch.
    pub(crate) told: u64,
    /// The batches, to be used again.
    pub(crate) spare: Box<dyn Any + Send>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("number", &self.number).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoded").field("number", &self.number).finish_non_exhaustive()
    }
}
