//! Replays the day for a client, from its beginning or from a checkpoint, in a separate thread, and then hands over to the
//! distributor.
//!
//! A checkpoint is early enough if every wanted record depends only on later events: records of an interval need the whole
//! interval. Values that records carry over from earlier events are in the checkpoint.
//!
//! The replay makes records of the history with a private replica. Near the present it sends a request to join, and the distributor
//! answers with an event number. From that event on, the distributor makes the client's records itself and keeps them. The replay
//! makes the records of earlier events and ends; then the client gets the kept records. Both use the same event numbers, so no
//! record is missing or duplicated.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::TrySendError;
use std::time::{Duration, Instant};

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, InstrumentId, Symbol};
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

use super::control::Wanted;
use crate::begin::LONGEST_REACH;
use tapeworks_engine::Start;
use tapeworks_engine::history::{History, HistoryError, Read};
use tapeworks_engine::replica::{Mode, Replica, Special, place_of};
use tapeworks_market::BookOptions;
use tapeworks_planted::planted;
use tapeworks_runtime::world::{Receive as _, TrySend as _, World};

/// How long before its time a record's events may begin, in ns. For one-minute intervals it is two intervals, so that the first one
/// is whole; otherwise it is longer than a group of events stays open.
const fn reach(schema: Schema) -> u64 {
    match schema {
        Schema::Bbo1M | Schema::Cbbo1M => LONGEST_REACH,
        _ => 2 * Nanos::SECOND,
    }
}

/// The distributor has not chosen an event yet.
const NOT_YET: u64 = u64::MAX;

/// A replay within this many events of the present requests to join.
const NEAR: u64 = 20_000;

/// Maximum number of chunks queued for the distributor.
const CHUNKS: usize = 16;

/// Size of a chunk in bytes; the last record may exceed it.
const CHUNK_BYTES: usize = 1 << 17;

/// The pause after reading all available events.
const REST: Duration = Duration::from_millis(1);

/// How long the history may take to reach the event that the distributor has chosen.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a group of events that began before that event may stay open.
const GROUP_PATIENCE: Duration = Duration::from_millis(100);

/// The records of one schema in a replay.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) schema: Schema,
    pub(super) start: Nanos,
    pub(super) wanted: Vec<Wanted>,
}

/// A message from a replay to the distributor.
pub(super) enum Message {
    /// Records, one after the other.
    Records { bytes: Vec<u8>, count: u64 },
    /// An instrument that appears, before its records.
    Symbol(Nanos, InstrumentId, Symbol),
    /// A gap of a channel, after the records before it.
    Gap(Event, Gap),
    /// A request to join: the replay is near the present, and this is the number of its next event.
    Join(u64),
    /// Every record of the events before the chosen one was sent.
    Done,
    /// The replay failed.
    Failed(HistoryError),
}

#[derive(Debug)]
struct Shared {
    is_cancelled: AtomicBool,
    /// The event that the distributor has chosen, from which on it makes the records.
    join: AtomicU64,
}

/// The distributor's end of a replay. Dropping it ends the replay.
#[derive(Debug)]
pub(super) struct Replay<W: World> {
    shared: Arc<Shared>,
    messages: W::Receiver<Message>,
}

impl<W: World> Drop for Replay<W> {
    fn drop(&mut self) {
        self.shared.is_cancelled.store(true, Ordering::Release);
    }
}

/// The parameters of a replay.
pub(super) struct Begin {
    pub(super) history: Arc<dyn History>,
    pub(super) books: BookOptions,
    pub(super) selections: Vec<Selection>,
    /// The wanted feeds; empty for all.
    pub(super) publishers: Vec<u16>,
    /// The client already has the symbols of instruments with lower numbers.
    pub(super) named: usize,
    /// The number of the distributor's next event.
    pub(super) live: Arc<AtomicU64>,
}

impl<W: World> Replay<W> {
    /// Starts the thread of a replay.
    pub(super) fn begin(begin: Begin) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { is_cancelled: AtomicBool::new(false), join: AtomicU64::new(NOT_YET) });
        let (sender, messages) = W::sync_channel(CHUNKS);
        let other = Arc::clone(&shared);
        W::spawn("replay", move || {
            let mut run = Run::<W>::new(&begin, other, sender);
            let message = match run.run(&begin) {
                Ok(true) => Message::Done,
                Ok(false) => return,
                Err(error) => Message::Failed(error),
            };
            run.send(message);
        })?;
        Ok(Self { shared, messages })
    }

    /// Returns the next message, if there is one.
    pub(super) fn next(&self) -> Option<Message> {
        self.messages.try_recv().ok()
    }

    /// Sets the event from which on the distributor makes the records.
    pub(super) fn join(&self, event: u64) {
        self.shared.join.store(event, Ordering::Release);
    }
}

/// The instruments of one selection.
struct Chosen {
    selection: Selection,
    is_all: bool,
    symbols: HashSet<Symbol>,
    instruments: HashSet<InstrumentId>,
}

impl Chosen {
    fn new(selection: &Selection) -> Self {
        let mut chosen = Self {
            selection: selection.clone(),
            is_all: false,
            symbols: HashSet::new(),
            instruments: HashSet::new(),
        };
        for wanted in &selection.wanted {
            match wanted {
                Wanted::All => chosen.is_all = true,
                Wanted::Symbols(symbols) => chosen.symbols.extend(symbols),
                Wanted::Instruments(instruments) => chosen.instruments.extend(instruments),
            }
        }
        chosen
    }

    /// Returns whether an instrument that has just appeared is chosen.
    fn appears(&mut self, instrument: InstrumentId, symbol: Symbol) -> bool {
        if self.symbols.contains(&symbol) {
            self.instruments.insert(instrument);
        }
        self.is_all || self.instruments.contains(&instrument)
    }
}

struct Run<W: World> {
    replica: Replica,
    chosen: Vec<Chosen>,
    /// The index in `chosen` of each schema.
    by_schema: Vec<Option<usize>>,
    shared: Arc<Shared>,
    sender: W::SyncSender<Message>,
    chunk: Vec<u8>,
    count: u64,
}

impl<W: World> Run<W> {
    fn new(begin: &Begin, shared: Arc<Shared>, sender: W::SyncSender<Message>) -> Self {
        let mut replica = Replica::new(&begin.books);
        let mut by_schema = vec![None; replica.by_schema.len()];
        for (place, selection) in begin.selections.iter().enumerate() {
            replica.set_mode(selection.schema, Mode::On);
            if let Some(of_schema) = by_schema.get_mut(place_of(selection.schema)) {
                *of_schema = Some(place);
            }
        }
        let chosen = begin.selections.iter().map(Chosen::new).collect();
        Self { replica, chosen, by_schema, shared, sender, chunk: Vec::new(), count: 0 }
    }

    fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Acquire)
    }

    /// Sends a message, waiting for room. Returns `false` if the distributor has dropped the replay.
    fn send(&self, message: Message) -> bool {
        let mut message = message;
        while !self.is_cancelled() {
            match self.sender.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) => message = back,
                Err(TrySendError::Disconnected(_)) => return false,
            }
            W::sleep(REST);
        }
        false
    }

    fn flush(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.chunk);
        let count = std::mem::take(&mut self.count);
        bytes.is_empty() || self.send(Message::Records { bytes, count })
    }

    /// Runs the replay. Returns `false` if the distributor has dropped it before its end.
    fn run(&mut self, begin: &Begin) -> Result<bool, HistoryError> {
        let reach =
            begin.selections.iter().map(|selection| reach(selection.schema)).max().unwrap_or_default();
        let from = begin.selections.iter().map(|selection| selection.start).min().unwrap_or_default();
        let opened = begin.history.open(Nanos(from.0.saturating_sub(reach)));
        let mut reader = opened.map_err(|error| match error {
            HistoryError::NotKept { earliest } => {
                HistoryError::NotKept { earliest: Nanos(earliest.0.saturating_add(reach)) }
            }
            other => other,
        })?;
        let mut join = NOT_YET;
        let mut progressed = W::instant();
        let mut met: Option<Instant> = None;
        loop {
            if self.is_cancelled() {
                return Ok(false);
            }
            let mut is_caught_up = false;
            match reader.read()? {
                Read::Start { missed, start } => {
                    if !self.take(missed, begin, join) || !self.go_on_from(*start, begin, join) {
                        return Ok(false);
                    }
                    progressed = W::instant();
                }
                Read::Events(events) => {
                    if !self.take(events, begin, join) {
                        return Ok(false);
                    }
                    if !events.is_empty() {
                        progressed = W::instant();
                    }
                }
                Read::CaughtUp => is_caught_up = true,
            }
            let is_near = self.replica.market.next.saturating_add(NEAR) >= begin.live.load(Ordering::Acquire);
            if join == NOT_YET && (is_caught_up || is_near) {
                if !self.flush() || !self.send(Message::Join(self.replica.market.next)) {
                    return Ok(false);
                }
                let Some(named) = self.wait_for_join() else { return Ok(false) };
                join = named;
                progressed = W::instant();
            }
            if join != NOT_YET && self.replica.market.next >= join {
                let since = *met.get_or_insert_with(W::instant);
                if self.is_all_sent(join) {
                    if !self.chunk.is_empty() && planted!("replay-without-its-end") {
                        return Ok(true);
                    }
                    return Ok(self.flush());
                }
                if W::since(since) >= GROUP_PATIENCE {
                    self.replica.release();
                    return Ok(self.collect(begin, join) && self.flush());
                }
            } else if join != NOT_YET && W::since(progressed) >= PATIENCE {
                let reason = format!(
                    "the history ends at event {}, and {join} are published",
                    self.replica.market.next
                );
                return Err(HistoryError::unreadable(reason));
            }
            if is_caught_up {
                W::sleep(REST);
            }
        }
    }

    fn wait_for_join(&self) -> Option<u64> {
        while !self.is_cancelled() {
            match self.shared.join.load(Ordering::Acquire) {
                NOT_YET => W::sleep(REST),
                named => return Some(named),
            }
        }
        None
    }

    /// Returns whether no record of an event before `join` is held.
    fn is_all_sent(&self, join: u64) -> bool {
        let mut held = self.chosen.iter().filter_map(|one| self.replica.held(one.selection.schema));
        held.all(|event| event >= join)
    }

    /// Processes events. Returns `false` if the distributor has dropped the replay.
    fn take(&mut self, events: &[Event], begin: &Begin, join: u64) -> bool {
        let mut rest = events;
        while !rest.is_empty() {
            let event = self.replica.market.next;
            let (taken, special) = self.replica.advance(rest);
            if taken == 0 {
                break;
            }
            rest = rest.get(taken..).unwrap_or_default();
            if !self.collect(begin, join) {
                return false;
            }
            match special {
                Some(Special::Mapping(instrument, symbol)) => {
                    self.appears(begin, instrument, symbol, event < join);
                }
                Some(Special::Gap(gap_event, gap)) if event < join && self.is_started(gap_event.ts_recv) => {
                    self.flush();
                    self.send(Message::Gap(gap_event, gap));
                }
                _ => {}
            }
        }
        true
    }

    /// Returns whether the client has requested some schema from this time or an earlier one.
    fn is_started(&self, time: Nanos) -> bool {
        self.chosen.iter().any(|one| time >= one.selection.start)
    }

    /// Continues from a checkpoint: the first one of the history, or one after missing events. Returns `false` like [`Run::take`].
    fn go_on_from(&mut self, start: Start, begin: &Begin, join: u64) -> bool {
        self.replica.release();
        if !self.collect(begin, join) {
            return false;
        }
        let known = self.replica.market.instruments().len();
        let new: Vec<_> = start.symbols().skip(known).collect();
        self.replica.restore(start);
        for (instrument, symbol) in new {
            self.appears(begin, instrument, symbol, true);
        }
        true
    }

    /// A new instrument. The replay sends its symbol if `is_ours`, else the distributor does.
    fn appears(&mut self, begin: &Begin, instrument: InstrumentId, symbol: Symbol, is_ours: bool) {
        let now = self.replica.market.now;
        let mut is_chosen = false;
        for one in &mut self.chosen {
            is_chosen |= one.appears(instrument, symbol);
        }
        // Instruments are numbered in the order in which they appear.
        if is_chosen && instrument.index() >= begin.named && is_ours {
            self.flush();
            self.send(Message::Symbol(now, instrument, symbol));
        }
    }

    /// Moves the wanted ones of the records that were made into the chunk, and sends it when it is large enough. `false` as [`Run::take`].
    fn collect(&mut self, begin: &Begin, join: u64) -> bool {
        if !self.replica.has_records() {
            return true;
        }
        let Self { replica, chosen, by_schema, chunk, count, .. } = self;
        replica.in_order(|of_schema, place| {
            let Some(made) = replica.by_schema.get(of_schema) else { return };
            let Some(item) = made.batch.items().get(place) else { return };
            let Some(one) = by_schema.get(of_schema).copied().flatten().and_then(|place| chosen.get(place))
            else {
                return;
            };
            let is_wanted = (item.event < join || item.event == join && planted!("replay-repeats-a-record"))
                && (item.time > one.selection.start.0
                    || item.time == one.selection.start.0 && !planted!("start-is-exclusive"))
                && (one.is_all || one.instruments.contains(&item.instrument))
                && (begin.publishers.is_empty() || begin.publishers.contains(&item.publisher));
            if is_wanted {
                if chunk.is_empty() && planted!("replay-repeats-behind-a-chunk") {
                    chunk.extend_from_slice(made.batch.record(item));
                }
                chunk.extend_from_slice(made.batch.record(item));
                *count += 1;
            }
        });
        replica.clear();
        self.chunk.len() < CHUNK_BYTES || self.flush()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tapeworks_runtime::world::System;

    use super::*;

    /// Symbols of instruments, and records.
    pub(crate) type Received = (Vec<(InstrumentId, Symbol)>, Vec<u8>);

    fn all_of(schema: Schema, start: Nanos) -> Selection {
        Selection { schema, start, wanted: vec![Wanted::All] }
    }

    /// Returns everything that a client receives that subscribes to all of these schemas from `start` on.
    pub(crate) fn replayed(
        history: Arc<dyn History>,
        books: &BookOptions,
        schemas: &[Schema],
        start: Nanos,
    ) -> Result<Received, HistoryError> {
        let replay = Replay::<System>::begin(Begin {
            history,
            books: books.clone(),
            selections: schemas.iter().map(|schema| all_of(*schema, start)).collect(),
            publishers: Vec::new(),
            named: 0,
            live: Arc::new(AtomicU64::new(u64::MAX)),
        })
        .unwrap();
        let (mut symbols, mut records) = (Vec::new(), Vec::new());
        loop {
            match replay.messages.recv().unwrap() {
                Message::Records { bytes, .. } => records.extend(bytes),
                Message::Symbol(_, instrument, symbol) => symbols.push((instrument, symbol)),
                Message::Gap(..) => {}
                Message::Join(event) => replay.join(event),
                Message::Done => return Ok((symbols, records)),
                Message::Failed(error) => return Err(error),
            }
        }
    }
}
