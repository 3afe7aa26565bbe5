//! The state of a live feed as bytes, so that one that starts again need not hear the whole day.
//!
//! A feed that is restored gives the same events as the one that was kept, input for input. What is kept is what events
//! follow from: the lines' sequences and what waits in them, the venues' numbers of instruments, symbols, counters. Not kept are
//! the texts of problems (their counts are). The bytes are postcard's, behind what the feed was told to do: options that
//! differ would give other events, so such bytes are foreign. Whoever writes them down checks them; bytes that do not hold
//! together are refused, not believed.
//!
//! Cost: some bytes for each symbol and locate, and the packets that wait. A million of neither takes some milliseconds.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::feed::{Feed, FeedOptions};
use crate::live::{LiveChannelOptions, LiveFeed};

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
    bytes: Vec<u8>,
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
    bytes: &'b [u8],
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

/// The version of the layout, and whatever changes the events that inputs give.
fn told(options: &FeedOptions, channels: &[LiveChannelOptions]) -> String {
    let FeedOptions { application, publisher, midnight, symbols } = options;
    let symbols = symbols.as_ref().map(|symbols| {
        let mut symbols: Vec<_> = symbols.iter().collect();
        symbols.sort();
        symbols
    });
    format!("3 {channels:?} {application:?} {publisher:?} {midnight:?} {symbols:?}")
}

impl LiveFeed {
    /// The feed's state as bytes.
    ///
    /// # Errors
    /// [`StateError::Malformed`], which a feed in memory does not give.
    pub fn save(&self) -> Result<Vec<u8>, StateError> {
        let mut writer = Writer::default();
        let channels: Vec<_> = self.channels().iter().map(|channel| channel.options().clone()).collect();
        writer.put(&told(self.feed().options(), &channels))?;
        self.feed().save(&mut writer)?;
        self.save_channels(&mut writer)?;
        Ok(writer.bytes)
    }

    /// The feed whose state `bytes` is, which must have been one with these options.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn restore(
        options: FeedOptions,
        channels: Vec<LiveChannelOptions>,
        bytes: &[u8],
    ) -> Result<Self, StateError> {
        let mut reader = Reader { bytes };
        let mut fresh = Self::new(options, channels);
        let channels: Vec<_> = fresh.channels().iter().map(|channel| channel.options().clone()).collect();
        if reader.take::<String>()? != told(fresh.feed().options(), &channels) {
            return Err(StateError::Foreign);
        }
        let feed = Feed::restore(fresh.feed().options().clone(), &mut reader)?;
        let kept = feed.channels().len();
        fresh.restore_channels(feed, &mut reader)?;
        for channel in fresh.channels() {
            channel.check(kept)?;
        }
        if !reader.bytes.is_empty() {
            return Err(StateError::Malformed { reason: "bytes follow it".to_owned() });
        }
        Ok(fresh)
    }
}

/// Refuses what contradicts itself.
pub(crate) const fn ensure(is_so: bool, what: &'static str) -> Result<(), StateError> {
    if is_so { Ok(()) } else { Err(StateError::Inconsistent { what }) }
}
