//! What takes record batches of Apache Arrow.

use arrow_array::RecordBatch;

/// Takes record batches in their order.
pub trait BatchSink: Send {
    /// Takes a batch, and may wait until there is room.
    ///
    /// # Errors
    /// [`Closed`] when nothing takes batches any more.
    fn put(&mut self, batch: RecordBatch) -> Result<(), Closed>;
}

/// Nothing takes batches any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;
