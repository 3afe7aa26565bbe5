//! The ring of events.

use tapeworks_market::{Event, EventKind, InstrumentId, Publisher};
use tapeworks_ring::disruptor::{Consumer, Single};
use tapeworks_runtime::waiting::Waiting;

/// Who reads the events, by the ring's waiting.
pub type EventConsumer = Consumer<Event, Waiting, Single>;

/// What a slot of the ring holds before its first event.
pub(crate) fn empty_event() -> Event {
    Event::new(EventKind::Other, Publisher(0), InstrumentId::UNKNOWN)
}
