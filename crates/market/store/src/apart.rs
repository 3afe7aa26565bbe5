//! Encoding on other threads: units of work that are separate from the writer.
//!
//! A [`Writer`](crate::Writer) with [`Encoders`] submits each batch of records of a Parquet file as [`Work`] and continues with the
//! next batch. The thread that takes the unit finds its keys, encodes it, and writes what is complete to the file. The bytes of the
//! file do not depend on which thread does the work, or in which order.
//!
//! Memory: one unencoded batch (550 KB for `mbo`) per unfinished unit.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A unit of work will never finish: the thread that encoded it has ended.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("a thread that encodes has ended without its batch")]
pub struct Lost;

/// Encodes batches: a pool of threads, or the caller of [`Work::encode`].
pub trait Encoders: Send {
    /// Takes a unit of work. The call may wait for earlier units, which bounds the memory of a file in progress.
    ///
    /// # Errors
    /// [`Lost`]: a unit will not finish.
    fn give(&mut self, work: Work) -> Result<(), Lost>;

    /// Waits until all units of this writer are finished.
    ///
    /// # Errors
    /// [`Lost`]: a unit will not finish.
    fn rest(&mut self) -> Result<(), Lost>;
}

/// A batch of records to be encoded and written.
pub struct Work {
    pub(crate) encode: Box<dyn FnOnce() + Send>,
}

impl Work {
    /// Encodes the batch. This takes about 0.6 ms for `mbo`, and some milliseconds more for the batch that completes a row group, which
    /// is then written. The writer returns an error with its next batch or at its end.
    pub fn encode(self) {
        (self.encode)();
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// Locks a mutex. A panic while a lock of this crate is held always loses the batch too, which the writer reports.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
