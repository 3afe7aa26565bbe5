//! The instruments of one channel of a feed that has several.
//!
//! Those who keep books know feeds, not channels. What concerns all instruments of a channel is put out once for each of
//! them, so that the other channels' books stay as they are.
//!
//! Cost: a load for each event of a channel that is one of several; nothing for any other.

use serde::{Deserialize, Serialize};
use tapeworks_market::event::{Gap, Session};
use tapeworks_market::orders::MAX_INSTRUMENTS;
use tapeworks_market::{Event, EventKind, InstrumentId};
use tapeworks_stage::Sink;

/// The instruments of a channel that is one of several of a feed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Part {
    /// Whether an instrument is one of them, by its number.
    pub(super) has: Vec<bool>,
    /// What is heard of for the first time may have been in a gap.
    is_in_doubt: bool,
}

/// Whoever keeps books knows feeds, not their channels: what concerns all instruments of a channel that is one of several is told of
/// each. Of a channel that is all of its feed everything goes on as it is.
pub(super) struct OfPart<'s, S> {
    pub(super) part: &'s mut Option<Part>,
    pub(super) sink: &'s mut S,
}

impl Part {
    /// Tells `event` of each instrument of the channel.
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

    /// In doubt, without messages that are missing: those were told.
    fn doubt(event: &Event) -> Event {
        event.with_gap(Gap { first: event.channel_sequence, count: 0 })
    }

    #[cold]
    #[inline(never)]
    fn of_all<S: Sink<Event>>(&mut self, event: Event, sink: &mut S) {
        let of_nobody = Event { instrument: InstrumentId::UNKNOWN, ..event };
        match event.kind {
            EventKind::Gap => {
                self.is_in_doubt = true;
                sink.put(of_nobody);
                self.each(&Self::doubt(&event), sink);
            }
            EventKind::Recovered | EventKind::Clear => {
                self.is_in_doubt = false;
                self.each(&event, sink);
            }
            EventKind::Session if event.session() == Some(Session::StartOfMessages) => {
                self.is_in_doubt = false;
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

    /// Whether an instrument is heard of for the first time; then it is one of the channel's.
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
        if is_new && self.is_in_doubt {
            sink.put(Self::doubt(&event));
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
