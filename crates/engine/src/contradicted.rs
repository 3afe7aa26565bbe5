//! The channels whose messages contradict the books. The stage of the books sets them, and ingest requests snapshots for them.
//!
//! The two may be on different threads. Ingest reads the set from time to time, and makes an
//! [`Input::Contradicted`](tapeworks_feed::live::Input::Contradicted) of each channel. That input is journaled like any other, so a
//! replay of the journal makes the same request at the same place.
//!
//! Cost: a compare for each update; a locked instruction for each event that the books refuse.

use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_market::book::Outcome;
use tapeworks_market::{BookUpdate, EventKind, Flags, InstrumentId};

/// A bit for each channel whose books are contradicted.
#[derive(Debug)]
pub struct Contradicted(Box<[AtomicU64]>);

impl Contradicted {
    /// No channel of so many is contradicted.
    pub(crate) fn new(channels: usize) -> Self {
        Self((0..channels.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The word of a channel, and its bit in it; `None` for a channel that the plant does not have.
    fn place(&self, channel: usize) -> Option<(&AtomicU64, u64)> {
        Some((self.0.get(channel / 64)?, 1 << (channel % 64)))
    }

    /// Notes whether an event contradicted its channel's books.
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
            // All books of the channel are made anew.
            if let Some((word, bit)) = self.place(event.channel.into()) {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// A channel's books are contradicted.
    pub(crate) fn set(&self, channel: usize) {
        if let Some((word, bit)) = self.place(channel) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// No book is contradicted any more.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Whether no channel's books are.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Whether a channel's books are.
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
