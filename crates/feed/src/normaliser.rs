//! The trait of a feed's file: it turns one message into events.
//!
//! A [`Normaliser`] follows the messages of one channel. The [table](crate::table) names its type; dispatch to it is one
//! `match` that the table generates, so a call costs a compare and is inlined where the trait says so.
//!
//! A normaliser gets its feed's publisher, and may set another on an event: the SIPs carry one publisher per participant on one
//! channel.

use tapeworks_market::event::Gap;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Nanos, Publisher};
use tapeworks_stage::Sink;
use tapeworks_wire::DecodeError;

use crate::locates::Contradiction;
use crate::symbols::{SymbolTable, UNWANTED};

/// DBN's status reason of a regulatory concern.
pub(crate) const REGULATORY: u16 = 10;

/// DBN's status reason of an operational halt.
pub(crate) const OPERATIONAL: u16 = 60;

/// DBN's status reason of a primary market's code, as IEX and the SIPs have it.
pub(crate) fn reason(code: &[u8]) -> u16 {
    match code {
        b"T1" => 30,
        b"T2" => 31,
        b"T3" => 32,
        b"LUDP" | b"T5" => 50,
        b"IPO1" | b"IPOD" | b"IPOQ" | b"IPOE" | b"IPO2" | b"IPO3" => 110,
        b"MCB1" | b"MWC1" => 120,
        b"MCB2" | b"MWC2" => 121,
        b"MCB3" | b"MWC3" => 122,
        _ => 0,
    }
}

/// The facts of a message that its transport has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The receive time; `None` when the source has none.
    pub(crate) received: Option<Nanos>,
    /// The sequence number on the channel.
    pub(crate) sequence: u64,
    pub(crate) channel: u16,
    pub(crate) line: Line,
}

impl Context {
    /// An event of a message that the venue dates `ts_event`.
    #[inline(always)]
    pub(crate) fn event(
        &self,
        kind: EventKind,
        publisher: Publisher,
        instrument: InstrumentId,
        ts_event: Nanos,
    ) -> Event {
        let mut event = Event::new(kind, publisher, instrument);
        (event.ts_event, event.ts_recv) = (ts_event, self.received.unwrap_or(ts_event));
        (event.channel, event.channel_sequence) = (self.channel, self.sequence);
        event.set_line(self.line);
        event
    }
}

/// What a venue's number of an instrument stood for, and stands for now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renumbered {
    pub(crate) before: InstrumentId,
    pub(crate) now: InstrumentId,
    /// Orders came before the number was defined.
    pub(crate) is_missed: bool,
}

impl Context {
    /// Puts what a definition of a number says of books. If the number stood for another instrument, the book of that one is emptied and both
    /// books are stale: orders of one were taken for the other's. `false`: the instrument of now has no events.
    pub(crate) fn renumber<S: Sink<Event>>(
        &self,
        publisher: Publisher,
        time: Nanos,
        numbered: Renumbered,
        sink: &mut S,
    ) -> bool {
        let Renumbered { before, now, is_missed } = numbered;
        let gap = Gap { first: self.sequence, count: 0 };
        let doubt = |instrument| {
            self.event(EventKind::Gap, publisher, instrument, time).with_gap(gap).with_contradiction()
        };
        let is_other = before != InstrumentId::UNKNOWN && before != now;
        if is_other && before < UNWANTED {
            sink.put(self.event(EventKind::Clear, publisher, before, time));
            sink.put(doubt(before));
        }
        if now >= UNWANTED {
            return false;
        }
        if is_other || is_missed {
            sink.put(doubt(now));
        }
        true
    }
}

/// Where a message came from and where its events go.
pub(crate) struct Target<'t, S> {
    pub(crate) context: &'t Context,
    pub(crate) symbols: &'t mut SymbolTable,
    pub(crate) sink: &'t mut S,
}

/// The start of a channel, at its first packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) publisher: Publisher,
    /// Midnight of the session's day in New York.
    pub(crate) midnight: Nanos,
    /// The user set the day; a new session does not change it.
    pub(crate) is_midnight_fixed: bool,
    /// What sizes of a SIP count.
    pub(crate) sip_sizes: SipSizes,
}

/// State that a checkpoint can hold.
#[cfg(feature = "serde")]
pub(crate) trait Kept: serde::Serialize + serde::de::DeserializeOwned {}

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Kept for T {}

/// Without the feature `serde` there are no checkpoints.
#[cfg(not(feature = "serde"))]
pub(crate) trait Kept {}

#[cfg(not(feature = "serde"))]
impl<T> Kept for T {}

/// Translates the messages of one channel. Checkpoints keep it.
pub(crate) trait Normaliser: Kept + std::fmt::Debug {
    /// A channel before its first message.
    fn new(start: &Start) -> Self;

    /// Translates a message of the most frequent kinds. `false`: it is of another kind, or its length is wrong, and nothing
    /// changed. A feed that has no faster path for them keeps the default.
    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, _message: &[u8], _to: &mut Target<'_, S>) -> bool {
        false
    }

    /// Translates any message. A message that contradicts an earlier one is returned.
    ///
    /// # Errors
    /// A message that cannot be read.
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError>;

    /// The venue's time of a message of whatever type and length, for a gap where no packet has a receive time.
    fn time_of(&self, _message: &[u8]) -> Nanos {
        Nanos(0)
    }

    /// Whether every instrument of a restored state is one of `symbols`.
    #[cfg(feature = "serde")]
    fn is_sound(&self, _symbols: &SymbolTable) -> bool {
        true
    }

    /// The books were rebuilt: no order of an unnamed instrument is missing.
    fn forget_unnamed(&mut self) {}

    /// The venue begins its session anew under the same name. What the messages of before said of numbers may not hold any more.
    fn begin_anew(&mut self) {}

    /// The number of the last message that any book of the last snapshot has, where books are of several numbers; else 0.
    fn snapshot_reaches(&self) -> u64 {
        0
    }

    /// The number of the last message that a book has, if a message of a snapshot names it; else 0.
    fn reach_of(&self, _message: &[u8]) -> u64 {
        0
    }
}
