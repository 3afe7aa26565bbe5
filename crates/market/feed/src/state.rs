//! The codec of a feed's state: consecutive postcard values, and the errors of invalid bytes.
//!
//! The parts of a feed write and read themselves with it; [`LiveFeed::save`](crate::live::LiveFeed::save) combines them.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a feed cannot be restored.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes are truncated or invalid.
    #[error("not the state of a feed: {reason}")]
    Malformed {
        /// The error of the decoder.
        reason: String,
    },
    /// The saved feed had other channels, symbols or options.
    #[error("the state of a feed with other channels or options")]
    Foreign,
    /// The parts contradict each other.
    #[error("the state is inconsistent: {what}")]
    Inconsistent {
        /// The inconsistent part.
        what: &'static str,
    },
}

/// Writes consecutive values.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn put(&mut self, value: &impl Serialize) -> Result<(), StateError> {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(value, bytes).map_err(malformed)?;
        Ok(())
    }
}

/// Reads values in the order in which they were written.
#[derive(Debug)]
pub(crate) struct Reader<'b> {
    pub(crate) bytes: &'b [u8],
}

impl Reader<'_> {
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, StateError> {
        // The value owns its contents, so the bytes may have any lifetime.
        let (value, rest) = take(self.bytes)?;
        self.bytes = rest;
        Ok(value)
    }
}

fn take<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), StateError> {
    let (value, rest) = postcard::take_from_bytes::<T>(bytes).map_err(malformed)?;
    Ok((value, rest))
}

fn malformed(error: postcard::Error) -> StateError {
    StateError::Malformed { reason: error.to_string() }
}

/// Rejects inconsistent state.
pub(crate) const fn ensure(is_so: bool, what: &'static str) -> Result<(), StateError> {
    if is_so { Ok(()) } else { Err(StateError::Inconsistent { what }) }
}
