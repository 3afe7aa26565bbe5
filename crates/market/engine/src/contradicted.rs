//! The channels whose messages contradict the books. The market stage sets them, and ingest requests snapshots for
//! them.
//!
//! The two may run on different threads. Ingest reads the set from time to time and creates an
//! [`Input::Contradicted`](tapeworks_feed::live::Input::Contradicted) for each channel. That input is journaled like
//! any other, so a replay of the journal makes the same request at the same point.
//!
//! Cost: one compare per update; one locked instruction per event that the books reject.

use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_market::book::Outcome;
use tapeworks_market::{BookUpdate, EventKind, Flags, InstrumentId};

/// A bit per channel, set while its books are contradicted.
#[derive(Debug)]
pub struct Contradicted(Box<[AtomicU64]>);

impl Contradicted {
    /// Creates an empty set for this many channels.
    pub(crate) fn new(channels: usize) -> Self {
        Self((0..channels.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns a channel's word and bit; `None` for a channel that the plant does not have.
    fn place(&self, channel: usize) -> Option<(&AtomicU64, u64)> {
        Some((self.0.get(channel / 64)?, 1 << (channel % 64)))
    }

    /// Records an event that contradicts its channel's books, or that rebuilds them.
    #[inline]
    pub(crate) fn note(&self, update: &BookUpdate<'_>) {
        if update.outcome != Outcome::Applied
            || matches!(update.event.kind, EventKind::Clear | EventKind::Gap)
        {
            self.change(update);
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&self, update: &BookUpdate<'_>) {
        let event = update.event;
        if update.outcome != Outcome::Applied || event.is_contradiction() {
            self.set(event.channel.into());
        } else if event.kind == EventKind::Clear
            && (event.instrument == InstrumentId::ALL || event.flags().contains(Flags::SNAPSHOT))
        {
            // All books of the channel are being rebuilt.
            if let Some((word, bit)) = self.place(event.channel.into()) {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// Marks a channel's books as contradicted.
    pub(crate) fn set(&self, channel: usize) {
        if let Some((word, bit)) = self.place(channel) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Clears the marks of all channels.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns whether no channel is marked.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Returns whether a channel is marked.
    pub fn has(&self, channel: usize) -> bool {
        self.place(channel).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_above_255_are_distinguished() {
        let contradicted = Contradicted::new(300);
        contradicted.set(299);
        contradicted.set(usize::from(u16::MAX));
        assert!(contradicted.has(299) && !contradicted.has(299 - 256) && !contradicted.has(u16::MAX.into()));
        contradicted.clear();
        assert!(contradicted.is_empty());
    }
}
