//! The state of a live feed as bytes, so that a restart need not read the whole day again.
//!
//! A restored feed produces the same events as the saved one, input for input. The bytes hold the sequences of the lines and
//! their waiting packets, the venues' instrument numbers, symbols and counters, in postcard's format. They do not hold the texts
//! of problems, only the counts. The options of the feed come first: other options would produce other events, so bytes with
//! other options are rejected. The file around the bytes has the checksum; inconsistent bytes are rejected.
//!
//! Cost: a few bytes per symbol and locate, and the waiting packets. A day's symbols take a few milliseconds.

use crate::feed::{Feed, FeedOptions};
use crate::live::{LiveChannelOptions, LiveFeed};
use crate::state::{Reader, StateError, Writer};

/// Returns the version of the layout, and the options that determine which events the inputs produce.
fn described(options: &FeedOptions, channels: &[LiveChannelOptions]) -> String {
    let FeedOptions { application, publisher, midnight, symbols, self_help, sip_sizes } = options;
    let symbols = symbols.as_ref().map(|symbols| {
        let mut symbols: Vec<_> = symbols.iter().collect();
        symbols.sort();
        symbols
    });
    format!(
        "13 {channels:?} {application:?} {publisher:?} {midnight:?} {symbols:?} {self_help:?} {sip_sizes:?}"
    )
}

impl LiveFeed {
    /// Returns the feed's state as bytes.
    ///
    /// # Errors
    /// [`StateError::Malformed`], which does not happen for a feed in memory.
    pub fn save(&self) -> Result<Vec<u8>, StateError> {
        let mut writer = Writer::default();
        let channels: Vec<_> = self.channels().iter().map(|channel| channel.options().clone()).collect();
        writer.put(&described(self.feed().options(), &channels))?;
        self.feed().save(&mut writer)?;
        self.save_channels(&mut writer)?;
        Ok(writer.bytes)
    }

    /// Restores a feed from `bytes`. The saved feed must have had these options.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are invalid, or come from other options.
    pub fn restore(
        options: FeedOptions,
        channels: Vec<LiveChannelOptions>,
        bytes: &[u8],
    ) -> Result<Self, StateError> {
        let mut reader = Reader { bytes };
        let mut fresh = Self::new(options, channels);
        let channels: Vec<_> = fresh.channels().iter().map(|channel| channel.options().clone()).collect();
        if reader.take::<String>()? != described(fresh.feed().options(), &channels) {
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
