//! Checks a complete snapshot against the packets received around it, before any of it reaches a book.
//!
//! A snapshot server may belong to another day or site, or lie: its messages look right, and only its end number is wrong. Then the
//! channel would skip messages that the snapshot does not include, or apply messages that it already includes. The lines know better:
//!
//! - The effect of each buffered message below the end number must be visible in the snapshot. An order that such a message added must
//!   be present with the same size, and an order that it removed must be absent.
//! - A buffered message from the end number on must fit the snapshot: it must not add an order that is present, or change an order that
//!   is absent.
//!
//! The check translates snapshot and packets in a feed of its own, so a rejected snapshot leaves no symbol and no locate behind. It is
//! lenient where the packets are inconclusive: a hole in their numbers or a cleared book ends what is known so far.
//!
//! Cost: a second translation of the snapshot, and some 32 bytes per resting order. It runs once per snapshot, never per packet.

use std::collections::HashMap;

use tapeworks_market::{Event, EventKind, InstrumentId, Nanos};
use tapeworks_session::SessionId;
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

/// The resting orders, with the shares that are left of each.
#[derive(Default)]
struct Orders(HashMap<u64, u32>);

impl Orders {
    /// Applies an event. `false`: it does not fit the orders.
    fn apply(&mut self, event: &Event) -> bool {
        match event.kind {
            EventKind::Add => self.0.insert(event.order_id, event.size).is_none(),
            EventKind::Delete => self.0.remove(&event.order_id).is_some(),
            EventKind::Execute | EventKind::Cancel => self.reduce(event),
            EventKind::Replace => {
                let was_present = self.0.remove(&event.order_id).is_some();
                let is_new = self.0.insert(event.aux, event.size).is_none();
                was_present && is_new
            }
            EventKind::Clear if event.instrument == InstrumentId::ALL => {
                self.0.clear();
                true
            }
            _ => true,
        }
    }

    fn reduce(&mut self, event: &Event) -> bool {
        let Some(left) = self.0.get_mut(&event.order_id) else { return false };
        let Some(rest) = left.checked_sub(event.size) else { return false };
        *left = rest;
        if rest == 0 {
            self.0.remove(&event.order_id);
        }
        true
    }
}

/// The effects of the messages that the snapshot must include: by order, the shares left, or `None` if the order was removed.
/// Orders of which too little is known have no entry.
#[derive(Default)]
struct Effects(HashMap<u64, Option<u32>>);

impl Effects {
    fn note(&mut self, event: &Event) {
        match event.kind {
            EventKind::Add => _ = self.0.insert(event.order_id, Some(event.size)),
            EventKind::Delete => _ = self.0.insert(event.order_id, None),
            EventKind::Replace => {
                self.0.insert(event.order_id, None);
                self.0.insert(event.aux, Some(event.size));
            }
            EventKind::Execute | EventKind::Cancel => {
                if let Some(left) = self.0.get_mut(&event.order_id) {
                    *left = left.and_then(|left| left.checked_sub(event.size)).filter(|left| *left > 0);
                }
            }
            EventKind::Clear => self.0.clear(),
            _ => {}
        }
    }

    fn are_in(&self, orders: &Orders) -> bool {
        self.0.iter().all(|(order, left)| orders.0.get(order) == left.as_ref())
    }
}

/// Checks a snapshot against `packets`, which are in the order of their numbers.
///
/// # Errors
/// A message that cannot be read, or a packet that the snapshot contradicts.
pub(super) fn check<'p>(
    candidate: &Candidate<'_>,
    packets: impl Iterator<Item = &'p [u8]>,
) -> Result<(), SnapshotFault> {
    let Candidate { channel, number, session, messages, next, now, .. } = *candidate;
    let spec = channel.application.spec();
    let mut feed = Feed::new(candidate.feed.clone());
    let place = place_of(&mut feed, number, channel, session, now);
    // Where books are of several numbers, the first number that an instrument's book does not include.
    let mut begins: HashMap<InstrumentId, u64> = HashMap::new();
    let (mut orders, mut reach) = (Orders::default(), 0);
    for message in Blocks::new(messages, BigEndian) {
        let message = message.map_err(|_| SnapshotFault::Unreadable)?;
        (spec.check)(message).map_err(|_| SnapshotFault::Unreadable)?;
        // It stands for the messages that follow, up to the next one.
        if let of_next @ 1.. = feed.reach_of(place, message) {
            reach = of_next;
        }
        feed.aside(place, message, now, next.saturating_sub(1), &mut |event: Event| {
            orders.apply(&event);
            if reach >= next {
                begins.insert(event.instrument, reach.saturating_add(1));
            }
        });
    }
    // The books are checked here, not by the normaliser.
    feed.forget_unnamed(place);
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
                // What is missing may have changed any order.
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
    if !effects.are_in(&orders) {
        return Err(SnapshotFault::Behind);
    }
    let fits = later.iter().all(|event| orders.apply(event));
    if fits { Ok(()) } else { Err(SnapshotFault::Contradicted) }
}
