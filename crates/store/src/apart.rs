//! Encoding apart from the writer: units of work that other threads can take.
//!
//! A [`Writer`](crate::Writer) with [`Encoders`] gives each batch of records in a Parquet file away as [`Work`], and goes on
//! with the next. The thread that takes the unit finds its keys, encodes it, and writes what is complete to the file. The bytes
//! of the file do not depend on which thread does it, or on what is done first.
//!
//! Memory: one unencoded batch (550 KB for `mbo`) for each unit that is not done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A unit of work will not be done: the thread that encoded it has ended.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("a thread that encodes has ended without its batch")]
pub struct Lost;

/// Encodes batches: a pool of threads, or the caller of [`Work::encode`].
pub trait Encoders: Send {
    /// Takes a unit of work. It may wait for earlier ones, so that not all of a file is in memory.
    ///
    /// # Errors
    /// [`Lost`]: a unit will not be done.
    fn give(&mut self, work: Work) -> Result<(), Lost>;

    /// Returns when all units of this writer are done.
    ///
    /// # Errors
    /// [`Lost`]: a unit will not be done.
    fn rest(&mut self) -> Result<(), Lost>;
}

/// A batch of records that is to be encoded and written.
pub struct Work {
    pub(crate) encode: Box<dyn FnOnce() + Send>,
}

impl Work {
    /// Encodes the batch. That takes about 0.6 ms for `mbo`, and some milliseconds more for the batch that completes a row group, which
    /// is then written.
    /// An error goes to the writer, which returns it with its next batch or at its end.
    pub fn encode(self) {
        (self.encode)();
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// No lock of this crate is held where a panic is not also the loss of a batch, which the writer reports.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
