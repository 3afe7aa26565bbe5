//! Encoding apart from the writer: units of work that other threads can take.
//!
//! Of a batch of records in a Parquet file only the keys of texts depend on the batches before. A [`Writer`](crate::Writer)
//! with [`Encoders`] finds those keys itself and gives the rest of each batch away as [`Work`]; what comes back as
//! [`Encoded`] it puts together in the order of the records. The bytes of the file do not depend on who encodes, or on what
//! comes back first.
//!
//! Memory: one unencoded batch (550 KB for `mbo`) for each unit that is out.

use std::any::Any;

use crate::chunk::Chunk;
use crate::error::Failure;

/// A unit of work will not come back: the thread that encoded it has ended.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("a thread that encodes has ended without its batch")]
pub struct Lost;

/// Who encodes batches: a pool of threads, or the caller of [`Work::encode`].
pub trait Encoders: Send {
    /// Takes a unit of work, and returns units of this writer that are done, in any order. It may wait for some, so that
    /// not all of a file is in memory.
    ///
    /// # Errors
    /// [`Lost`]: a unit will not come back.
    fn give(&mut self, work: Work) -> Result<Vec<Encoded>, Lost>;

    /// Waits for all units of this writer that are not done, and returns them.
    ///
    /// # Errors
    /// [`Lost`]: a unit will not come back.
    fn rest(&mut self) -> Result<Vec<Encoded>, Lost>;
}

/// A batch of records that is to be encoded.
pub struct Work {
    pub(crate) number: u64,
    pub(crate) encode: Box<dyn FnOnce() -> Batch + Send>,
}

impl Work {
    /// Encodes it. Takes some 1 ms for `mbo`.
    #[must_use = "the writer waits for it"]
    pub fn encode(self) -> Encoded {
        Encoded { number: self.number, batch: (self.encode)() }
    }
}

/// A batch that is encoded.
pub struct Encoded {
    pub(crate) number: u64,
    pub(crate) batch: Batch,
}

/// The encoded records of a batch.
pub(crate) struct Batch {
    /// A page of each column.
    pub(crate) pages: Result<Vec<Chunk>, Failure>,
    pub(crate) records: u64,
    /// Values that had to be written as null.
    pub(crate) out_of_range: u64,
    /// What it was made with, to be used again.
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
