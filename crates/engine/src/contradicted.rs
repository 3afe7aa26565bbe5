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
#[derive(Debug, Default)]
pub struct Contradicted([AtomicU64; 4]);

const fn place(channel: u8) -> (usize, u64) {
    (channel as usize / 64, 1 << (channel % 64))
}

impl Contradicted {
    /// Notes what an event meant for its channel's books.
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
            self.set(event.channel);
        } else if event.kind == EventKind::Clear
            && (event.instrument == InstrumentId::ALL || event.flags.contains(Flags::SNAPSHOT))
        {
            // All books of the channel are made anew.
            let (word, bit) = place(event.channel);
            self.0[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// A channel's books are contradicted.
    pub(crate) fn set(&self, channel: u8) {
        let (word, bit) = place(channel);
        self.0[word].fetch_or(bit, Ordering::Relaxed);
    }

    /// No book is contradicted any more, whatever mended it.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Whether no channel's books are.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Whether a channel's books are.
    pub fn has(&self, channel: usize) -> bool {
        u8::try_from(channel).is_ok_and(|channel| {
            let (word, bit) = place(channel);
            self.0[word].load(Ordering::Relaxed) & bit != 0
        })
    }
}
