//! The ring of events.

use std::sync::Arc;

use tapeworks_market::{Event, EventKind, InstrumentId, Publisher};
use tapeworks_ring::disruptor::{Consumer, Single};
use tapeworks_runtime::waiting::{Waiting, WakeUp};
use tapeworks_runtime::world::{System, World};

/// A consumer of the events, with the ring's wait strategy.
pub type EventConsumer<W = System> = Consumer<Event, Waiting<W>, Single>;

/// A reader's end of the ring.
#[derive(Debug)]
pub struct Reader<W: World = System> {
    /// Its events.
    pub consumer: EventConsumer<W>,
    /// Its wake-up; set only with the wait strategy `park`.
    pub wake_up: Option<Arc<WakeUp<W>>>,
}

/// The readers' ends of the ring, by name.
#[derive(Debug)]
pub struct Readers<W: World = System>(pub(crate) Vec<(String, Reader<W>)>);

impl<W: World> Readers<W> {
    /// Takes the end of the reader with this name; returns `None` if there is none, or it was already taken.
    pub fn take(&mut self, name: &str) -> Option<Reader<W>> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// Returns the initial contents of a slot of the ring.
pub(crate) fn empty_event() -> Event {
    Event::new(EventKind::Other, Publisher(0), InstrumentId::UNKNOWN)
}
