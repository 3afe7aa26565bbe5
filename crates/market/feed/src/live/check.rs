//! Checks a complete snapshot against the packets received around it, before any of it reaches a book.
//!
//! A snapshot server may belong to another day or site, or be wrong: its messages look right, and only its end number is wrong.
//! The channel would then skip messages that the snapshot does not include, or apply messages that it already includes. The lines
//! reveal this:
//!
//! - The effect of each buffered message below the end number must be visible in the snapshot. An order that such a message added
//!   must be present with the same size, and an order that it removed must be absent. A price level or quote must be as its last
//!   message set it.
//! - A buffered message from the end number on must fit the snapshot: it must not add an order that is present, or change an
//!   order that is absent. A message that sets a price level or quote always fits.
//!
//! The check translates the snapshot and the packets in a separate feed, so a rejected snapshot leaves no symbols or locates in
//! the real one. It is lenient where the packets are inconclusive: a gap in their numbers or a cleared book discards the effects
//! noted so far.
//!
//! Cost: a second translation of the snapshot, and about 64 bytes per resting order. It runs once per snapshot, never per packet.

use std::collections::HashMap;

use tapeworks_market::{Event, EventKind, InstrumentId, Price, Side};
use tapeworks_session::SessionId;
use tapeworks_time::Nanos;
use tapeworks_wire::framing::{BigEndian, Blocks};

use super::LiveChannelOptions;
use super::delivery::place_of;
use super::fault::SnapshotFault;
use crate::feed::{Feed, FeedOptions};

/// A snapshot to check, and the channel that requested it.
pub(super) struct Candidate<'c> {
    pub(super) feed: &'c FeedOptions,
    pub(super) channel: &'c LiveChannelOptions,
    pub(super) number: u16,
    pub(super) session: SessionId,
    pub(super) messages: &'c [u8],
    /// The number of the first message that the snapshot does not include.
    pub(super) next: u64,
    pub(super) now: Nanos,
}

/// A part of the books that messages change.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Order(u64),
    Level(InstrumentId, Side, Option<Price>),
    Quote(InstrumentId, Side),
}

/// The state of a part: its shares, and for a quote or price level also its price.
type State = (u32, Option<Price>);

/// Returns what an event sets a price level or quote to; the inner `None` empties the level or side. Other events set neither.
fn setting(event: &Event) -> Option<(Part, Option<State>)> {
    let state = Some((event.size, event.price)).filter(|_| event.size > 0 && event.price.is_some());
    match event.kind {
        EventKind::Level => Some((Part::Level(event.instrument, event.side, event.price), state)),
        EventKind::Quote => Some((Part::Quote(event.instrument, event.side), state)),
        _ => None,
    }
}

/// The resting orders, price levels and quotes.
#[derive(Default)]
struct Books(HashMap<Part, State>);

impl Books {
    /// Applies an event. Returns `false` if it does not fit the orders.
    fn apply(&mut self, event: &Event) -> bool {
        let order = Part::Order(event.order_id);
        match event.kind {
            EventKind::Add => self.0.insert(order, (event.size, None)).is_none(),
            EventKind::Delete => self.0.remove(&order).is_some(),
            EventKind::Execute | EventKind::Cancel => self.reduce(event),
            EventKind::Replace => {
                let was_present = self.0.remove(&order).is_some();
                let is_new = self.0.insert(Part::Order(event.aux), (event.size, None)).is_none();
                was_present && is_new
            }
            EventKind::Clear if event.instrument == InstrumentId::ALL => {
                self.0.clear();
                true
            }
            _ => {
                match setting(event) {
                    Some((part, Some(state))) => _ = self.0.insert(part, state),
                    Some((part, None)) => _ = self.0.remove(&part),
                    None => {}
                }
                true
            }
        }
    }

    fn reduce(&mut self, event: &Event) -> bool {
        let order = Part::Order(event.order_id);
        let Some((left, _)) = self.0.get_mut(&order) else { return false };
        let Some(rest) = left.checked_sub(event.size) else { return false };
        *left = rest;
        if rest == 0 {
            self.0.remove(&order);
        }
        true
    }
}

/// The effects of the messages that the snapshot must include: the resulting state, or `None` if the part was removed. An order
/// about which too little is known has no entry.
#[derive(Default)]
struct Effects(HashMap<Part, Option<State>>);

impl Effects {
    fn note(&mut self, event: &Event) {
        let order = Part::Order(event.order_id);
        match event.kind {
            EventKind::Add => _ = self.0.insert(order, Some((event.size, None))),
            EventKind::Delete => _ = self.0.insert(order, None),
            EventKind::Replace => {
                self.0.insert(order, None);
                self.0.insert(Part::Order(event.aux), Some((event.size, None)));
            }
            EventKind::Execute | EventKind::Cancel => {
                if let Some(state) = self.0.get_mut(&order) {
                    let left = state.and_then(|(left, _)| left.checked_sub(event.size));
                    *state = left.filter(|left| *left > 0).map(|left| (left, None));
                }
            }
            EventKind::Clear => self.0.clear(),
            _ => self.0.extend(setting(event)),
        }
    }

    fn are_in(&self, books: &Books) -> bool {
        self.0.iter().all(|(part, state)| books.0.get(part) == state.as_ref())
    }
}

/// Checks a snapshot against `packets`, which must be ordered by number.
///
/// # Errors
/// Fails if a message of the snapshot cannot be read, or if the snapshot contradicts a packet.
pub(super) fn check(
    candidate: &Candidate<'_>,
    packets: &mut dyn Iterator<Item = &[u8]>,
) -> Result<(), SnapshotFault> {
    let Candidate { channel, number, session, messages, next, now, .. } = *candidate;
    let spec = channel.application.spec();
    let mut feed = Feed::new(candidate.feed.clone());
    let place = place_of(&mut feed, number, channel, session, now);
    // If books have different numbers: the first number that each instrument's book does not include.
    let mut begins: HashMap<InstrumentId, u64> = HashMap::new();
    let (mut books, mut reach) = (Books::default(), 0);
    for message in Blocks::new(messages, BigEndian) {
        let message = message.map_err(|_| SnapshotFault::Unreadable)?;
        (spec.check)(message).map_err(|_| SnapshotFault::Unreadable)?;
        // It applies to the following messages, up to the next such message.
        if let of_next @ 1.. = feed.channel(place).normaliser.reach_of(message) {
            reach = of_next;
        }
        feed.aside(place, message, now, next.saturating_sub(1), &mut |event: Event| {
            books.apply(&event);
            if reach >= next {
                begins.insert(event.instrument, reach.saturating_add(1));
            }
        });
    }
    // The books are checked here, not by the normaliser.
    feed.channel_mut(place).normaliser.forget_unnamed();
    let begin_of = |event: &Event| begins.get(&event.instrument).copied().unwrap_or(next);
    let transport = channel.application.transport();
    let (mut effects, mut later) = (Effects::default(), Vec::new());
    let (mut expected, mut is_blind) = (None, false);
    for payload in packets {
        transport.each_message(payload, |sequence, message| {
            if expected.is_some_and(|expected| sequence < expected) {
                return;
            }
            if expected.is_some_and(|expected| sequence > expected) {
                // The missing messages may have changed any order.
                effects.0.clear();
                is_blind |= sequence > next;
            }
            expected = Some(sequence.saturating_add(1));
            feed.aside(place, message, now, sequence, &mut |event: Event| {
                if sequence < begin_of(&event) {
                    effects.note(&event);
                } else {
                    is_blind |= event.kind == EventKind::Clear;
                    later.extend(Some(event).filter(|event| !is_blind && event.kind.is_of_order()));
                }
            });
        });
    }
    if !effects.are_in(&books) {
        return Err(SnapshotFault::Behind);
    }
    let fits = later.iter().all(|event| books.apply(event));
    if fits { Ok(()) } else { Err(SnapshotFault::Contradicted) }
}
