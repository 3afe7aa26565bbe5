//! The packets that a channel keeps while it waits for a snapshot, and how it catches up once the snapshot arrives.

use std::collections::VecDeque;

use tapeworks_market::{Event, EventKind, Flags, Line};
use tapeworks_session::Header;
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;

/// A packet that arrived while a snapshot was outstanding.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(super) struct Since {
    pub(super) header: Header,
    pub(super) received: Nanos,
    #[cfg_attr(feature = "serde", serde(with = "serde_bytes"))]
    pub(super) payload: Vec<u8>,
}

/// An outstanding snapshot.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) attempt: u32,
    pub(super) due: Nanos,
    #[cfg_attr(feature = "serde", serde(with = "serde_bytes"))]
    pub(super) messages: Vec<u8>,
    /// Set once the snapshot is complete: it holds all messages before this number.
    pub(super) next: Option<u64>,
    /// When it became complete.
    pub(super) ended: Nanos,
    /// Computed once the snapshot is complete: some of its books hold messages up to this number.
    pub(super) reaches: Option<u64>,
    /// Packets since the request.
    pub(super) since: VecDeque<Since>,
    pub(super) since_bytes: usize,
}

impl Awaited {
    /// Returns whether more packets arrived than may be kept.
    pub(super) fn is_overrun(&self) -> bool {
        self.since.is_empty() && self.since_bytes > 0
    }
}

/// Returns whether an event does not affect books. Such events are not emitted again after a snapshot.
const fn is_left_out(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Trade
            | EventKind::TradeBreak
            | EventKind::Imbalance
            | EventKind::ImbalancePrices
            | EventKind::Other
    )
}

/// Marks the events of a snapshot, and of messages that are applied again after it: books change, but trades are not emitted
/// twice.
pub(super) struct AsSnapshot<'s>(pub(super) &'s mut dyn Sink<Event>);

impl Sink<Event> for AsSnapshot<'_> {
    fn put(&mut self, mut event: Event) {
        event.add_flags(Flags::SNAPSHOT);
        event.set_line(Line::Snapshot);
        match event.kind {
            EventKind::Execute => {
                event.kind = EventKind::Cancel;
                event.price = None;
                event.aux = 0;
                event.detail = 0;
            }
            kind if is_left_out(kind) => return,
            _ => {}
        }
        self.0.put(event);
    }
}

/// Applies [`AsSnapshot`] to events of messages before a number, and passes on the others unchanged.
pub(super) struct CatchUp<'s> {
    pub(super) before: u64,
    pub(super) sink: &'s mut dyn Sink<Event>,
}

impl Sink<Event> for CatchUp<'_> {
    fn put(&mut self, mut event: Event) {
        if event.channel_sequence < self.before {
            let is_last = event.channel_sequence.saturating_add(1) == self.before;
            if is_last && is_left_out(event.kind) {
                // The last number of a snapshot marks where the lines continue.
                (event.kind, event.price, event.size) = (EventKind::Other, None, 0);
                (event.aux, event.detail) = (0, 0);
                event.add_flags(Flags::SNAPSHOT);
                event.set_line(Line::Snapshot);
                return self.sink.put(event);
            }
            AsSnapshot(self.sink).put(event);
        } else {
            self.sink.put(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::{InstrumentId, Publisher};

    use super::*;

    #[test]
    fn the_last_event_that_a_snapshot_has_keeps_its_number_whatever_it_is() {
        for kind in [
            EventKind::Other,
            EventKind::Trade,
            EventKind::TradeBreak,
            EventKind::Imbalance,
            EventKind::ImbalancePrices,
            EventKind::Execute,
        ] {
            let mut put = Vec::new();
            let mut sink = CatchUp { before: 10, sink: &mut |event: Event| put.push(event) };
            let mut event = Event::new(kind, Publisher::XNYS_PILLAR, InstrumentId::ALL);
            event.channel_sequence = 9;
            sink.put(event);
            let numbers: Vec<_> = put.iter().map(|event| event.channel_sequence).collect();
            assert_eq!(numbers, [9], "{kind:?}");
            assert!(put[0].flags().contains(Flags::SNAPSHOT));
            assert!(kind == EventKind::Other || put[0].kind != kind, "{kind:?}");
        }
    }
}
