//! What the feeds of numbered units share (PITCH, MITCH): times that are split into seconds and nanoseconds, and orders that are in no book
//! here, which later messages name by their numbers alone.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Publisher};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;

use crate::clock::{self, HALF_A_DAY_NS, Zone};
use crate::continuity::Continuity;
use crate::normaliser::{Context, Start, Target};

/// The times of a unit's messages: a message has nanoseconds, and the time message before it the second since midnight.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct SplitTimes {
    midnight: Nanos,
    /// The user set the day.
    is_midnight_fixed: bool,
    /// The second that messages are of, in ns since the epoch; `None` before the first time message.
    second: Option<Nanos>,
    continuity: Continuity,
}

impl SplitTimes {
    /// A unit before its first message, of a venue whose midnight is `zone`'s.
    pub(crate) fn new(start: &Start, zone: Zone) -> Self {
        // That of the same date: midnight in New York is before midnight in Chicago, and behind London's. 0: no day is known.
        let noon = start.midnight.0.saturating_add(HALF_A_DAY_NS);
        let midnight = zone.midnight_before(Nanos(noon)).filter(|_| start.midnight != Nanos(0));
        Self {
            midnight: midnight.unwrap_or(start.midnight),
            is_midnight_fixed: start.is_midnight_fixed,
            second: None,
            continuity: Continuity::default(),
        }
    }

    /// Follows the next message of a unit.
    #[inline]
    pub(crate) fn follow<S: Sink<Event>>(&mut self, publisher: Publisher, to: &mut Target<'_, S>) {
        let is_first = self.continuity.is_new();
        if self.continuity.breaks_at(to.context) {
            self.note_break(is_first, publisher, to);
        }
    }

    /// The time of the next message of a unit. `None`: messages before it are missing, or its second is not known.
    #[inline(always)]
    pub(crate) fn next(&self, offset_ns: u64, context: &Context) -> Option<Nanos> {
        let second = self.second.filter(|_| self.continuity.goes_on_at(context))?;
        Some(Nanos(second.0.wrapping_add(offset_ns)))
    }

    /// Follows a message that has a time by [`next`](Self::next).
    #[inline(always)]
    pub(crate) const fn go_on(&mut self, context: &Context) {
        self.continuity.go_on(context);
    }

    /// Messages are missing, or a snapshot begins or ends: the second may be another. The books of a unit that begins with a later message
    /// lack orders that no later message names by its symbol.
    #[cold]
    #[inline(never)]
    fn note_break<S: Sink<Event>>(&mut self, is_first: bool, publisher: Publisher, to: &mut Target<'_, S>) {
        let Context { sequence, line, .. } = *to.context;
        self.second = None;
        if is_first && sequence > 1 && line != Line::Snapshot {
            let time = self.at(0, to.context);
            let event = to.context.event(EventKind::Gap, publisher, InstrumentId::ALL, time);
            to.sink.put(event.with_gap(Gap { first: sequence, count: 0 }));
        }
    }

    /// The time of a message. Where the second is not known, it is the one that brings the message nearest to its receive time.
    #[inline]
    pub(crate) fn at(&self, offset_ns: u64, context: &Context) -> Nanos {
        match self.second {
            Some(second) => Nanos(second.0.wrapping_add(offset_ns)),
            None => clock::nearest(offset_ns, context.received),
        }
    }

    /// A new second begins, so many after midnight in `zone`.
    pub(crate) fn begin_second(&mut self, seconds: u32, zone: Zone, context: &Context) {
        let since_midnight = u64::from(seconds) * Nanos::SECOND;
        if let (Some(received), false) = (context.received, self.is_midnight_fixed) {
            self.midnight = zone.nearest_midnight(since_midnight, received).unwrap_or(self.midnight);
        }
        self.second = Some(Nanos(self.midnight.0.saturating_add(since_midnight)));
    }
}

/// So many orders are kept aside; a message about another one is about an unknown order.
const MOST_ASIDE: usize = 1 << 22;

/// The shares that are left of orders that are in no book here.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Default, Debug)]
pub(crate) struct Aside(BTreeMap<u64, u32>);

impl Aside {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts an order aside.
    pub(crate) fn put(&mut self, order_id: u64, size: u32) {
        if self.0.len() < MOST_ASIDE {
            self.0.insert(order_id, size);
        }
    }

    /// An order is in a book, or gone.
    pub(crate) fn forget(&mut self, order_id: u64) {
        self.0.remove(&order_id);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether an event is about an order that is aside. Such an order is forgotten when nothing is left of it.
    #[cold]
    #[inline(never)]
    pub(crate) fn takes(&mut self, event: &Event) -> bool {
        let Entry::Occupied(mut order) = self.0.entry(event.order_id) else { return false };
        let left = match event.kind {
            EventKind::Execute | EventKind::Cancel => order.get().saturating_sub(event.size),
            EventKind::Replace => event.size,
            _ => 0,
        };
        if left == 0 {
            order.remove();
        } else {
            order.insert(left);
        }
        true
    }

    #[cfg(test)]
    pub(crate) fn has(&self, order_id: u64) -> bool {
        self.0.contains_key(&order_id)
    }
}
