//! The codec of a feed's state: values behind each other as postcard, and what is wrong with bytes that are none.
//!
//! The parts of a feed write and read themselves with it; [`LiveFeed::save`](crate::live::LiveFeed::save) puts them together.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a feed is not restored.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes end too early, or are no state.
    #[error("not the state of a feed: {reason}")]
    Malformed {
        /// What was found.
        reason: String,
    },
    /// The feed that was kept had other channels, symbols or ways to follow them.
    #[error("the state of a feed with other channels or options")]
    Foreign,
    /// The parts contradict each other.
    #[error("the state contradicts itself: {what}")]
    Inconsistent {
        /// Which part.
        what: &'static str,
    },
}

/// Puts values behind each other.
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

/// Takes them from each other.
#[derive(Debug)]
pub(crate) struct Reader<'b> {
    pub(crate) bytes: &'b [u8],
}

impl Reader<'_> {
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, StateError> {
        // The value owns what it holds, so the bytes may be of any lifetime.
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

/// Refuses what contradicts itself.
pub(crate) const fn ensure(is_so: bool, what: &'static str) -> Result<(), StateError> {
    if is_so { Ok(()) } else { Err(StateError::Inconsistent { what }) }
}
