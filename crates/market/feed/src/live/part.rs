//! The instruments of one channel of a feed that has several.
//!
//! Books are kept by feed and instrument, not by channel. So an event about all instruments of such a channel becomes one event
//! per instrument of that channel, and other channels' books do not change.
//!
//! Cost: a load for each event of a channel that is one of several; nothing for any other.

use tapeworks_market::event::{Gap, Session};
use tapeworks_market::orders::MAX_INSTRUMENTS;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher};
use tapeworks_stage::Sink;

/// The instruments of a channel, if the feed has several channels.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(super) struct Part {
    /// The publishers whose messages the channel carries.
    publishers: Vec<Publisher>,
    /// Whether the channel carries an instrument, by instrument number.
    pub(super) has: Vec<bool>,
    /// Whether the first messages about a new instrument may be missing, so that its books are stale from the start.
    may_be_stale: bool,
}

/// A sink that splits events of a whole channel by instrument, if the channel is one of several of its feed. Otherwise it passes
/// everything on.
pub(super) struct OfPart<'s, S> {
    pub(super) part: &'s mut Option<Part>,
    pub(super) sink: &'s mut S,
}

impl Part {
    /// Creates the part of a channel before its first message.
    pub(super) fn of(publishers: impl Iterator<Item = Publisher>) -> Self {
        Self { publishers: publishers.collect(), has: Vec::new(), may_be_stale: false }
    }

    /// Returns the publishers whose messages the channel carries.
    #[cfg(feature = "serde")]
    pub(super) fn publishers(&self) -> &[Publisher] {
        &self.publishers
    }

    /// Emits `event` for each instrument of the channel.
    fn each<S: Sink<Event>>(&self, event: &Event, sink: &mut S) {
        let last = self.has.iter().rposition(|has| *has);
        for (index, _) in self.has.iter().enumerate().filter(|(_, has)| **has) {
            let mut event = Event { instrument: InstrumentId(index as u32), ..*event };
            if event.kind == EventKind::Clear && Some(index) != last {
                event = event.with_more_clears();
            }
            sink.put(event);
        }
    }

    /// Returns the event that makes a book stale. It counts no missing messages, because the channel's gap has already counted
    /// them.
    fn stale(event: &Event) -> Event {
        event.with_gap(Gap { first: event.channel_sequence, count: 0 })
    }

    #[cold]
    #[inline(never)]
    fn of_all<S: Sink<Event>>(&mut self, event: Event, sink: &mut S) {
        let of_nobody = Event { instrument: InstrumentId::UNKNOWN, ..event };
        match event.kind {
            EventKind::Gap => {
                self.may_be_stale = true;
                sink.put(of_nobody);
                self.each(&Self::stale(&event), sink);
            }
            EventKind::Recovered | EventKind::Clear => {
                self.may_be_stale = false;
                self.each(&event, sink);
            }
            EventKind::Session if event.session() == Some(Session::StartOfMessages) => {
                self.may_be_stale = false;
                let mut clear = Event::new(EventKind::Clear, event.publisher, InstrumentId::ALL);
                (clear.ts_event, clear.ts_recv) = (event.ts_event, event.ts_recv);
                (clear.channel, clear.channel_sequence) = (event.channel, event.channel_sequence);
                clear.flags_and_line = event.flags_and_line;
                self.each(&clear, sink);
                sink.put(of_nobody);
            }
            _ => sink.put(event),
        }
    }

    /// Adds an instrument. Returns whether the channel did not have it before.
    #[inline]
    fn is_new(&mut self, instrument: InstrumentId) -> bool {
        let index = instrument.index();
        if instrument.0 >= MAX_INSTRUMENTS || self.has.get(index).copied().unwrap_or_default() {
            return false;
        }
        if index >= self.has.len() {
            self.has.resize(index + 1, false);
        }
        self.has[index] = true;
        true
    }

    fn put<S: Sink<Event>>(&mut self, event: Event, sink: &mut S) {
        if event.instrument == InstrumentId::ALL {
            return self.of_all(event, sink);
        }
        let is_new = self.is_new(event.instrument);
        sink.put(event);
        if is_new && self.may_be_stale {
            for publisher in &self.publishers {
                sink.put(Self::stale(&Event { publisher: *publisher, ..event }));
            }
        }
    }
}

impl<S: Sink<Event>> Sink<Event> for OfPart<'_, S> {
    #[inline]
    fn put(&mut self, event: Event) {
        match self.part {
            None => self.sink.put(event),
            Some(part) => part.put(event, self.sink),
        }
    }
}
