//! Shared parts of the feeds of numbered units (PITCH, MITCH): times that are split into seconds and nanoseconds, and orders that
//! are in no book here, which later messages identify only by number.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tapeworks_market::event::Gap;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Publisher};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;

use crate::continuity::Continuity;
use crate::normaliser::{Context, Start, Target};
use tapeworks_time::clock::{self, HALF_A_DAY_NS, Zone};

/// The times of a unit's messages: a message carries nanoseconds, and the preceding time message the second since midnight.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct SplitTimes {
    midnight: Nanos,
    /// Whether the user set the day.
    is_midnight_fixed: bool,
    /// The second of the current messages, in ns since the epoch; `None` before the first time message.
    second: Option<Nanos>,
    continuity: Continuity,
}

impl SplitTimes {
    /// Creates the times of a unit before its first message. The venue counts its day from midnight in `zone`.
    pub(crate) fn new(start: &Start, zone: Zone) -> Self {
        // Midnight of the same date: New York's is before Chicago's and after London's. 0 means that no day is known.
        let noon = start.midnight.0.saturating_add(HALF_A_DAY_NS);
        let midnight = zone.midnight_before(Nanos(noon)).filter(|_| start.midnight != Nanos(0));
        Self {
            midnight: midnight.unwrap_or(start.midnight),
            is_midnight_fixed: start.is_midnight_fixed,
            second: None,
            continuity: Continuity::default(),
        }
    }

    /// Advances past the next message of a unit.
    #[inline]
    pub(crate) fn follow<S: Sink<Event>>(&mut self, publisher: Publisher, to: &mut Target<'_, S>) {
        let is_first = self.continuity.is_new();
        if self.continuity.breaks_at(to.context) {
            self.note_break(is_first, publisher, to);
        }
    }

    /// Returns the time of the next message of a unit. Returns `None` if messages before it are missing, or its second is
    /// unknown.
    #[inline(always)]
    pub(crate) fn next(&self, offset_ns: u64, context: &Context) -> Option<Nanos> {
        let second = self.second.filter(|_| self.continuity.goes_on_at(context))?;
        Some(Nanos(second.0.wrapping_add(offset_ns)))
    }

    /// Advances past a message whose time came from [`next`](Self::next).
    #[inline(always)]
    pub(crate) const fn go_on(&mut self, context: &Context) {
        self.continuity.go_on(context);
    }

    /// Handles missing messages, or the begin or end of a snapshot: the second may have changed. If a unit begins with a later
    /// message, its books lack orders that no later message names by symbol.
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

    /// Returns the time of a message. If the second is unknown, it is the one that places the message nearest to its receive
    /// time.
    #[inline]
    pub(crate) fn at(&self, offset_ns: u64, context: &Context) -> Nanos {
        match self.second {
            Some(second) => Nanos(second.0.wrapping_add(offset_ns)),
            None => clock::nearest(offset_ns, context.received),
        }
    }

    /// Begins a new second, given as seconds after midnight in `zone`.
    pub(crate) fn begin_second(&mut self, seconds: u32, zone: Zone, context: &Context) {
        let since_midnight = u64::from(seconds) * Nanos::SECOND;
        if let (Some(received), false) = (context.received, self.is_midnight_fixed) {
            self.midnight = zone.nearest_midnight(since_midnight, received).unwrap_or(self.midnight);
        }
        self.second = Some(Nanos(self.midnight.0.saturating_add(since_midnight)));
    }
}

/// Maximum number of orders set aside. A message about any further order is about an unknown order.
const MOST_ASIDE: usize = 1 << 22;

/// The remaining shares of orders that are in no book here.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Default, Debug)]
pub(crate) struct Aside(BTreeMap<u64, u32>);

impl Aside {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets an order aside.
    pub(crate) fn put(&mut self, order_id: u64, size: u32) {
        if self.0.len() < MOST_ASIDE {
            self.0.insert(order_id, size);
        }
    }

    /// Forgets an order that is in a book now, or was removed.
    pub(crate) fn forget(&mut self, order_id: u64) {
        self.0.remove(&order_id);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether an event is about an order that is set aside. Such an order is forgotten when nothing is left of it.
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
