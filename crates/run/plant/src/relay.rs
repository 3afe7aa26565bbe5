//! A plant that takes another plant's events instead of lines.
//!
//! ```text
//! source: pieces of events ─▶ queue ─▶ ingest ─▶ as the packets of lines: journal, ring, books
//!    ▲                                    │
//!    └── the number of the next event ◀───┘  after the journal's replay
//! ```
//!
//! Receiving the events is the source's job; its thread belongs to a crate above this one. The source begins after the last event
//! in the journal, and waits while the queue is full, so nothing is dropped here.
//!
//! Cost: a piece of several hundred events is moved, not copied.

use std::sync::{Arc, Mutex, PoisonError};

use tapeworks_engine::Engine;
pub use tapeworks_feed::live::relayed::PieceWriter;
use tapeworks_follow::arbitration::ArbiterCounters;
use tapeworks_market::{Publisher, Shard, Symbol};
use tapeworks_runtime::world::{Receive as _, System, TrySend as _, Wake as _, World};
use tapeworks_time::Nanos;

use crate::error::PlantError;
use crate::status::{ChannelStatus, RelayStatus};

/// Pieces that may wait for ingest.
const PIECES: usize = 64;

/// Maximum number of pieces that ingest takes per turn.
pub(crate) const PIECES_IN_TURN: usize = 16;

/// The plant whose events are taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayOptions {
    /// The display name.
    pub name: String,
    /// The symbols to take.
    pub shard: Shard,
    /// The first plant's feeds, in the order of its venues, which breaks ties of the NBBO.
    pub feeds: Vec<Publisher>,
}

/// Where the source continues.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RelayPlace {
    /// The number of the first plant's next event.
    pub next: u64,
    /// The receive time of the event before it.
    pub time: Nanos,
    /// The symbols known from earlier events, by instrument.
    pub symbols: Vec<Symbol>,
}

#[derive(Debug, Default)]
struct Shared {
    status: Mutex<RelayStatus>,
    place: Mutex<Option<RelayPlace>>,
}

/// A piece of events to pass to ingest.
#[derive(Debug)]
struct Piece {
    received: Nanos,
    payload: Vec<u8>,
}

/// The source's end of the queue.
#[derive(Debug)]
pub struct RelaySender<W: World = System> {
    pieces: W::SyncSender<Piece>,
    waker: W::Waker,
    shared: Arc<Shared>,
}

/// Why a piece was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// The queue is full: the piece is returned, to be pushed again a little later.
    Full(Nanos, Vec<u8>),
    /// The plant has ended.
    Ended,
}

impl<W: World> RelaySender<W> {
    /// Returns where to begin; `None` while the journal is replayed.
    pub fn place(&self) -> Option<RelayPlace> {
        self.shared.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands a piece to ingest.
    /// Passes a piece to ingest.
    /// # Errors
    /// [`NotTaken`].
    pub fn push(&self, received: Nanos, payload: Vec<u8>) -> Result<(), NotTaken> {
        match self.pieces.try_send(Piece { received, payload }) {
            Ok(()) => {
                // Ingest looks by itself some times a second.
                let _soon = self.waker.wake();
                Ok(())
            }
            Err(std::sync::mpsc::TrySendError::Full(Piece { received, payload })) => {
                Err(NotTaken::Full(received, payload))
            }
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => Err(NotTaken::Ended),
        }
    }

    /// Changes the status.
    pub fn update(&self, change: impl FnOnce(&mut RelayStatus)) {
        change(&mut self.shared.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Ingest's end of the queue.
pub(crate) struct Relay<W: World> {
    options: RelayOptions,
    pieces: W::Receiver<Piece>,
    shared: Arc<Shared>,
}

/// Creates the queue, and returns the source's end and ingest's end.
pub(crate) fn open<W: World>(options: RelayOptions, waker: W::Waker) -> (RelaySender<W>, Relay<W>) {
    let shared = Arc::new(Shared::default());
    let (sender, pieces) = W::sync_channel(PIECES);
    let relay = Relay { options, pieces, shared: Arc::clone(&shared) };
    (RelaySender { pieces: sender, waker, shared }, relay)
}

impl<W: World> Relay<W> {
    /// Takes the next piece: its receive time and its bytes.
    pub(crate) fn take(&self) -> Option<(Nanos, Vec<u8>)> {
        self.pieces.try_recv().ok().map(|Piece { received, payload }| (received, payload))
    }

    /// Lets the source begin after the last event of the replayed journal.
    pub(crate) fn begin(&self, engine: &Engine) -> Result<(), PlantError> {
        let feed = engine.feed();
        let place = match feed.relayed() {
            None => RelayPlace::default(),
            Some(relayed) if relayed.shard == self.options.shard => RelayPlace {
                next: relayed.next,
                time: relayed.time,
                symbols: feed.instruments().symbols().to_vec(),
            },
            Some(relayed) => {
                return Err(PlantError::OtherShard { journal: relayed.shard, wanted: self.options.shard });
            }
        };
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).next = place.next;
        *self.shared.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
        Ok(())
    }

    pub(crate) fn status(&self) -> RelayStatus {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the first plant's status as a channel: what readiness, the page and `top` show for a venue.
    pub(crate) fn channel(&self, engine: &Engine, status: &RelayStatus) -> ChannelStatus {
        let relayed = engine.feed().relayed();
        let count = |of: fn(&tapeworks_feed::live::relayed::Relayed) -> u64| relayed.map_or(0, of);
        let shard = self.options.shard;
        let session = if shard.of > 1 { shard.to_string() } else { String::new() };
        ChannelStatus {
            session,
            next: relayed.map(|relayed| relayed.next),
            counters: ArbiterCounters {
                messages: count(|relayed| relayed.events),
                gaps_opened: status.gaps,
                filled_by_retransmission: status.filled,
                recovered: status.fetched,
                gaps: count(|relayed| relayed.gaps),
                missing: count(|relayed| relayed.missing),
                silences: status.silences,
                ..ArbiterCounters::default()
            },
            is_recovering: status.fetching_since.is_some(),
            recovering_since: status.fetching_since,
            is_joining: !status.has_caught_up,
            is_silent: !status.is_heard,
            is_stale: relayed.is_some_and(tapeworks_feed::live::relayed::Relayed::is_stale),
            ..ChannelStatus::new(&self.options.name, Publisher(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tapeworks_market::{Event, EventKind, InstrumentId};

    use super::*;
    use crate::{JournalSetting, Plant, PlantOptions};

    const PUBLISHER: Publisher = Publisher(2);

    /// Returns an event of today, because a journal of another day would be moved away.
    fn event(number: u64) -> Event {
        static BEGAN: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let time = Nanos(*BEGAN.get_or_init(|| System::time_of_day().0) + number);
        let event = Event::new(EventKind::Add, PUBLISHER, InstrumentId(0));
        let event = if number == 0 { event.with_symbol(Symbol::parse("AAPL").unwrap()) } else { event };
        Event { ts_recv: time, ..event }
    }

    fn push(to: &RelaySender, numbers: std::ops::Range<u64>, shard: Shard) {
        let mut piece = PieceWriter::new(numbers.start, shard);
        for number in numbers {
            piece.put(number, &event(number));
            piece.cover(number, event(number).ts_recv);
        }
        let (received, payload) = piece.finish();
        to.push(received, payload).unwrap();
    }

    fn wait_for(plant: &Plant, events: u64) {
        while plant.status().engine.events != events {
            assert!(!plant.has_ended());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_plant_downstream_goes_on_behind_the_last_event_of_its_journal() {
        let folder = tempfile::tempdir().unwrap();
        let shard = Shard { number: 0, of: 2 };
        let options = |shard| PlantOptions {
            relay: Some(RelayOptions { name: "first".to_owned(), shard, feeds: vec![PUBLISHER] }),
            journal: Some(JournalSetting::new(folder.path().to_owned())),
            ring_events: 1_024,
            ..PlantOptions::default()
        };
        let start = |shard| {
            let (mut plant, _readers) = Plant::start(options(shard), &[]).unwrap();
            let replayed = plant.replayed();
            let to = plant.relay().unwrap();
            (plant, replayed, to)
        };
        let (plant, replayed, to) = start(shard);
        assert_eq!((replayed.unwrap().inputs, to.place()), (0, Some(RelayPlace::default())));
        push(&to, 0..50, shard);
        push(&to, 50..90, shard);
        wait_for(&plant, 90);
        plant.stop().unwrap();
        let (plant, replayed, to) = start(shard);
        assert_eq!(replayed.unwrap().events, 90);
        let symbols = vec![Symbol::parse("AAPL").unwrap()];
        assert_eq!(to.place(), Some(RelayPlace { next: 90, time: event(89).ts_recv, symbols }));
        // What it has already does not count again.
        push(&to, 80..100, shard);
        wait_for(&plant, 100);
        to.update(|status| (status.is_heard, status.has_caught_up) = (true, true));
        while plant.status().relay.is_none_or(|relay| !relay.is_heard) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let unmet = |plant: &Plant| {
            let status = plant.status();
            let conditions = status.conditions(true, status.time);
            conditions.into_iter().filter(|one| !one.is_met()).map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(unmet(&plant), [""; 0]);
        to.update(|status| status.is_heard = false);
        while unmet(&plant) != ["venues_heard"] {
            std::thread::sleep(Duration::from_millis(5));
        }
        plant.stop().unwrap();
        let (_plant, replayed, to) = start(Shard { number: 0, of: 3 });
        let refused = replayed.unwrap_err();
        assert!(matches!(refused, PlantError::OtherShard { .. }), "{refused}");
        assert_eq!(to.place(), None);
    }
}
