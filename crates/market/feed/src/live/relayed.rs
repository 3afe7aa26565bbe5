//! Events that another plant produced: a downstream plant takes them instead of packets of lines.
//!
//! They arrive in pieces. Each piece is a separate input and states which part of the other plant's journal it covers, so the
//! state knows the next event and a restart can continue after it. Events are passed on unchanged. If a piece begins after the
//! end of the previous one, events are missing: from there on every book that the other plant has shown is stale.
//!
//! ```text
//! first (8) | next (8) | shard (2) | shards (2) | 0 (4) | items: number (8), event (64)
//! ```
//!
//! All numbers are little-endian. A piece may have fewer items than the numbers it covers, because events of other shards are
//! left out.
//!
//! Cost: each event is read once from the piece, and written once.

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher, Shard};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;

use super::LiveFeed;

const HEAD_BYTES: usize = 24;
const ITEM_BYTES: usize = 8 + Event::BYTES;

/// A channel of the other plant, as seen in its events.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, PartialEq, Eq, Debug)]
struct Source {
    publisher: Publisher,
    channel: u16,
    sequence: u64,
    is_stale: bool,
}

/// The state of the other plant's events.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relayed {
    /// The shard of symbols that the events cover.
    pub shard: Shard,
    /// The number of the other plant's next event.
    pub next: u64,
    /// The receive time of the event before it.
    pub time: Nanos,
    /// Events received.
    pub events: u64,
    /// Events that are messages of a venue.
    pub messages: u64,
    /// Numbers of events that never arrived, because the other plant's journal, or this one's, had lost them.
    pub missing: u64,
    /// Times that events were missing.
    pub gaps: u64,
    /// Pieces and items that cannot be read.
    pub malformed: u64,
    sources: Vec<Source>,
    last: usize,
}

impl Relayed {
    const fn new(shard: Shard) -> Self {
        Self {
            shard,
            next: 0,
            time: Nanos(0),
            events: 0,
            messages: 0,
            missing: 0,
            gaps: 0,
            malformed: 0,
            sources: Vec::new(),
            last: 0,
        }
    }

    /// Returns whether books of any channel may be wrong.
    pub fn is_stale(&self) -> bool {
        self.sources.iter().any(|source| source.is_stale)
    }

    /// Emits gaps of all channels, before the next event.
    fn put_gaps<S: Sink<Event>>(&mut self, sink: &mut S) {
        for source in &mut self.sources {
            source.is_stale = true;
            let gap = Gap { first: source.sequence.saturating_add(1), count: 0 };
            let mut event = Event::new(EventKind::Gap, source.publisher, InstrumentId::ALL).with_gap(gap);
            (event.ts_event, event.ts_recv, event.channel) = (self.time, self.time, source.channel);
            event.channel_sequence = gap.first;
            sink.put(event);
        }
    }

    /// Records the channel of an event, and whether the event makes its books stale or sound.
    #[inline]
    fn note(&mut self, event: &Event) {
        // These use the channel field for something else, or have no channel.
        if matches!(event.kind, EventKind::ImbalancePrices | EventKind::SymbolMapping | EventKind::Other) {
            return;
        }
        let is_it = |source: &Source| (source.publisher, source.channel) == (event.publisher, event.channel);
        if !self.sources.get(self.last).is_some_and(is_it) {
            self.last = self.sources.iter().position(is_it).unwrap_or_else(|| {
                let Event { publisher, channel, channel_sequence: sequence, .. } = *event;
                self.sources.push(Source { publisher, channel, sequence, is_stale: false });
                self.sources.len() - 1
            });
        }
        let Some(source) = self.sources.get_mut(self.last) else { return };
        source.sequence = source.sequence.max(event.channel_sequence);
        if event.instrument == InstrumentId::ALL {
            match event.kind {
                EventKind::Gap => source.is_stale = true,
                EventKind::Recovered | EventKind::Clear => source.is_stale = false,
                _ => {}
            }
        }
    }
}

/// Returns whether an event is a message of a venue.
pub const fn is_message(event: &Event) -> bool {
    !matches!(
        event.kind,
        EventKind::SymbolMapping | EventKind::Gap | EventKind::Recovered | EventKind::ImbalancePrices
    )
}

/// Collects the other plant's events into a piece.
#[derive(Clone, Debug)]
pub struct PieceWriter {
    bytes: Vec<u8>,
    next: u64,
    time: Nanos,
    items: usize,
}

impl PieceWriter {
    /// Creates an empty piece that begins with event `first`.
    pub fn new(first: u64, shard: Shard) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 64 * ITEM_BYTES);
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&shard.number.to_le_bytes());
        bytes.extend_from_slice(&shard.of.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes, next: first, time: Nanos(0), items: 0 }
    }

    /// Appends an event of the shard.
    pub fn put(&mut self, number: u64, event: &Event) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&event.to_bytes());
        self.items += 1;
    }

    /// Extends the piece to cover all events up to and including `number`, which was received at `time`.
    pub const fn cover(&mut self, number: u64, time: Nanos) {
        (self.next, self.time) = (number.saturating_add(1), time);
    }

    /// Returns the number of events in the piece.
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Returns the receive time of the last event that the piece covers, and the bytes of the piece.
    pub fn finish(mut self) -> (Nanos, Vec<u8>) {
        if let Some(next) = self.bytes.get_mut(8..16) {
            next.copy_from_slice(&self.next.to_le_bytes());
        }
        (self.time, self.bytes)
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Parses the head of a piece: the numbers that it covers, and its shard.
fn head(payload: &[u8]) -> Option<(u64, u64, Shard)> {
    let shard = Shard { number: half(payload, 16)?, of: half(payload, 18)? };
    let (first, next) = (number(payload, 0)?, number(payload, 8)?);
    let is_whole = payload.len() >= HEAD_BYTES && (payload.len() - HEAD_BYTES).is_multiple_of(ITEM_BYTES);
    (is_whole && first < next && shard.number < shard.of).then_some((first, next, shard))
}

impl LiveFeed {
    /// Returns the state of the other plant's events; `None` before the first piece.
    pub const fn relayed(&self) -> Option<&Relayed> {
        self.relayed.as_ref()
    }

    /// Processes a piece of another plant's events.
    pub(super) fn take_piece<S: Sink<Event>>(&mut self, received: Nanos, payload: &[u8], sink: &mut S) {
        let head = head(payload);
        let shard = head.map_or(Shard { number: 0, of: 1 }, |(.., shard)| shard);
        let relayed = self.relayed.get_or_insert_with(|| Relayed::new(shard));
        let Some((first, next, _)) = head else {
            relayed.malformed += 1;
            return;
        };
        if first > relayed.next {
            relayed.missing = relayed.missing.saturating_add(first - relayed.next);
            relayed.gaps += 1;
            relayed.put_gaps(sink);
        }
        for item in payload.get(HEAD_BYTES..).unwrap_or_default().chunks_exact(ITEM_BYTES) {
            let (place, bytes) = (number(item, 0), item.last_chunk());
            let (Some(place), Some(event)) = (place, bytes.and_then(Event::from_bytes)) else {
                relayed.malformed += 1;
                continue;
            };
            if place < relayed.next {
                continue;
            }
            if let Some(symbol) = event.symbol() {
                self.feed.learn(symbol);
            }
            relayed.note(&event);
            relayed.events += 1;
            relayed.messages += u64::from(is_message(&event));
            sink.put(event);
        }
        if next > relayed.next {
            (relayed.next, relayed.time) = (next, received);
        }
    }

    /// Emits the gaps between this state and `later` if events of another plant are missing.
    pub(super) fn put_missed_pieces<S: Sink<Event>>(&self, later: &Self, sink: &mut S) {
        let (Some(old), Some(new)) = (&self.relayed, &later.relayed) else { return };
        if old.next != new.next {
            let mut known = Relayed { sources: new.sources.clone(), ..old.clone() };
            known.put_gaps(sink);
        }
    }
}
