//! The trait that each feed implements: it turns one message into events.
//!
//! A [`Normaliser`] follows the messages of one channel. The [table](crate::table) names its type. The table generates a single
//! `match` that dispatches to it, so a call costs a compare, and is inlined where the trait requests that.
//!
//! A normaliser gets its feed's publisher, and may set another on an event: the SIPs carry one publisher per participant on one
//! channel.

use tapeworks_market::event::Gap;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Price, Publisher, Side};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;
use tapeworks_wire::orders::{OrderAction, OrderFields};

use crate::locates::Contradiction;
use crate::symbols::{SymbolTable, UNWANTED};

/// DBN's status reason for a regulatory concern.
pub(crate) const REGULATORY: u16 = 10;

/// DBN's status reason for an operational halt.
pub(crate) const OPERATIONAL: u16 = 60;

/// Returns DBN's status reason for a primary market's code, as used by IEX and the SIPs.
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

/// Facts about a message that its transport provides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The receive time; `None` if the source has none.
    pub(crate) received: Option<Nanos>,
    /// The sequence number on the channel.
    pub(crate) sequence: u64,
    pub(crate) channel: u16,
    pub(crate) line: Line,
}

impl Context {
    /// Creates an event for a message that the venue timestamped `ts_event`.
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

/// Event kinds by [`OrderAction`].
static KINDS: [EventKind; 6] = {
    let mut kinds = [EventKind::Other; 6];
    kinds[OrderAction::Add as usize] = EventKind::Add;
    kinds[OrderAction::Execute as usize] = EventKind::Execute;
    kinds[OrderAction::Cancel as usize] = EventKind::Cancel;
    kinds[OrderAction::Delete as usize] = EventKind::Delete;
    kinds[OrderAction::Replace as usize] = EventKind::Replace;
    kinds[OrderAction::Modify as usize] = EventKind::Replace;
    kinds
};

/// Returns an action's event kind with a load. The compiler might turn a `match` into a jump that no predictor can predict.
#[inline(always)]
pub(crate) fn kind_of(action: OrderAction) -> EventKind {
    KINDS[action as usize]
}

/// Returns the table of sides by a message's byte.
pub(crate) const fn sides(bid: u8, ask: u8) -> [Side; 256] {
    let mut sides = [Side::None; 256];
    sides[bid as usize] = Side::Bid;
    sides[ask as usize] = Side::Ask;
    sides
}

/// Returns the event with the fields of a message about an order, or `None` if an event cannot hold the price.
#[inline(always)]
pub(crate) fn with_order(mut event: Event, order: &OrderFields, sides: &[Side; 256]) -> Option<Event> {
    event.order_id = order.order_id;
    event.size = order.shares;
    event.aux = order.other_number;
    event.side = sides[usize::from(order.side)];
    let price = Price::from_e9((order.price as i64).checked_mul(i64::from(order.price_unit))?)?;
    event.price = if order.price_unit == 0 { None } else { Some(price) };
    Some(event)
}

/// The instrument that a venue's instrument number stood for, and the one it stands for now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renumbered {
    pub(crate) before: InstrumentId,
    pub(crate) now: InstrumentId,
    /// Whether orders came before the number was defined.
    pub(crate) is_missed: bool,
}

impl Context {
    /// Emits the effect of a number's definition on books. If the number stood for another instrument, that instrument's book is
    /// emptied and both books are stale, because orders of one were attributed to the other. Returns `false` if the current
    /// instrument has no events.
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

/// The context of a message, and the sink for its events.
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
    /// Whether the user set the day, so that a new session does not change it.
    pub(crate) is_midnight_fixed: bool,
    /// How to interpret a SIP's sizes.
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
    /// Creates the normaliser of a channel before its first message.
    fn new(start: &Start) -> Self;

    /// Translates a message of the most frequent kinds. Returns `false` to leave it to [`message`](Self::message): it is of
    /// another kind or length, its instrument is unknown or unwanted, or it follows a gap. In that case at most its symbol has
    /// been announced. A feed without a fast path keeps the default.
    #[inline(always)]
    fn frequent<S: Sink<Event>>(&mut self, _message: &[u8], _to: &mut Target<'_, S>) -> bool {
        false
    }

    /// Translates any message. Returns the contradiction if the message contradicts an earlier one.
    ///
    /// # Errors
    /// Fails if the message cannot be read.
    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError>;

    /// Returns the venue's time of a message of any type and length, for a gap without a receive time.
    fn time_of(&self, _message: &[u8]) -> Nanos {
        Nanos(0)
    }

    /// Returns whether every instrument of a restored state is one of `symbols`.
    #[cfg(feature = "serde")]
    fn is_sound(&self, _symbols: &SymbolTable) -> bool {
        true
    }

    /// Forgets orders without a named instrument, because the books were rebuilt and lack none.
    fn forget_unnamed(&mut self) {}

    /// Returns the number of the last message that any book of the last snapshot includes, if books have different numbers;
    /// otherwise 0.
    fn snapshot_reaches(&self) -> u64 {
        0
    }

    /// Returns the number of the last message that a book includes, if a snapshot message names it; otherwise 0.
    fn reach_of(&self, _message: &[u8]) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use tapeworks_market::Symbol;
    use tapeworks_wire::schema::{Endian, Kind, Schema, SplitMix64, Structure, arbitrary};

    use super::*;
    use crate::table::Application;

    /// Returns a random message of `structure`. Most have instruments, orders, prices and flags from a small set.
    fn message_of(schema: &Schema, structure: &Structure, random: &mut SplitMix64) -> Vec<u8> {
        let mut message = Vec::new();
        arbitrary(schema, structure, random, &mut message);
        for field in structure.fields {
            if random.below(10) == 0 && field.name != "last_sequence" {
                continue;
            }
            let Some(bytes) = message.get_mut(field.offset..field.offset + field.length) else { continue };
            let some = random.below(3) as u8;
            match (field.kind, bytes.len()) {
                // NYSE's, as in most trades.
                (_, 1) if field.name == "trade_condition_1" => bytes.fill(b'@'),
                (_, 1) if field.name.starts_with("trade_condition") => bytes.fill(b' '),
                // An ISIN and its currency.
                (Kind::Ascii, 12) => {
                    bytes.copy_from_slice(&[b"GB000000000".as_slice(), &[b'0' + some]].concat())
                }
                (Kind::Ascii, 3) => bytes.copy_from_slice(b"GBX"),
                (Kind::Ascii, 6..) if field.name.ends_with("sfx") => bytes.fill(b' '),
                (Kind::Ascii, 6..) => {
                    bytes.fill(b' ');
                    bytes[0] = b'A' + some;
                }
                (Kind::Unsigned | Kind::Signed | Kind::Decimal { .. }, length) => {
                    bytes.fill(0);
                    let low = if field.endian == Endian::Big { length - 1 } else { 0 };
                    bytes[low] = random.below(4) as u8;
                }
                _ => {}
            }
        }
        message
    }

    /// What both normalisers of a run have seen.
    #[derive(Default)]
    struct Seen {
        /// The types of messages that took the fast path.
        frequent: BTreeSet<&'static str>,
        symbols: Vec<Symbol>,
    }

    /// Sends messages of a feed through two normalisers, one of which does not use the fast path.
    fn both_ways<N: Normaliser>(application: Application, wanted: Option<Symbol>, seed: u64) -> Seen {
        let schema = application.spec().schema;
        let start = Start {
            publisher: application.spec().publishers[0].publisher,
            midnight: Nanos(0),
            is_midnight_fixed: true,
            sip_sizes: SipSizes::default(),
        };
        let mut random = SplitMix64::new(seed);
        let (mut one, mut other) = (N::new(&start), N::new(&start));
        let mut tables = [(); 2].map(|()| SymbolTable::new(wanted.map(|symbol| HashSet::from([symbol]))));
        // Some runs join midway.
        let (mut seen, mut sequence, mut line) = (Seen::default(), 5 * random.below(2), Line::A);
        for _ in 0..20_000 {
            let structure = &schema.messages[random.below(schema.messages.len() as u64) as usize];
            // Messages that make a feed forget, or reach far back, are rare.
            let is_rare = ["SequenceNumberReset", "RefreshHeader"].contains(&structure.name);
            if is_rare && random.below(100) > 0 {
                continue;
            }
            let mut message = message_of(schema, structure, &mut random);
            if random.below(50) == 0 {
                message.push(0);
            }
            // Now and then messages are missing, or a snapshot comes.
            match random.below(300) {
                0 => sequence += 2,
                1 => line = if line == Line::Snapshot { Line::B } else { Line::Snapshot },
                _ if line == Line::Snapshot => {}
                _ => sequence += 1,
            }
            let received = (random.below(20) > 0).then_some(Nanos(1_700_000_000_000_000_000 + sequence));
            let context = Context { received, sequence, channel: 3, line };
            let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
            let [of_this, of_that] = &mut tables;
            let mut sink = |event: Event| of_one.push(event);
            let mut to = Target { context: &context, symbols: of_this, sink: &mut sink };
            let is_frequent = one.frequent(&message, &mut to);
            let answer = if is_frequent { Ok(None) } else { one.message(&message, &mut to) };
            let mut sink = |event: Event| of_other.push(event);
            let mut to = Target { context: &context, symbols: of_that, sink: &mut sink };
            let expected = other.message(&message, &mut to);
            assert_eq!(format!("{answer:?}"), format!("{expected:?}"), "{} {message:x?}", structure.name);
            assert_eq!(of_one, of_other, "{} {message:x?}", structure.name);
            seen.frequent.extend(is_frequent.then_some(structure.name));
        }
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        let [of_this, of_that] = &tables;
        assert_eq!(of_this.unreadable(), of_that.unreadable());
        assert_eq!(of_this.instruments().symbols(), of_that.instruments().symbols());
        seen.symbols = of_this.instruments().symbols().to_vec();
        seen
    }

    /// Checks with all symbols wanted, and with each of a few alone. `types` is the number of message types that can take the
    /// fast path.
    fn check_both_ways<N: Normaliser>(application: Application, types: usize) {
        for seed in 1..4 {
            let seen = both_ways::<N>(application, None, seed);
            assert_eq!(seen.frequent.len(), types, "{application:?}, seed {seed}: {:?}", seen.frequent);
            let mut is_any = false;
            for symbol in seen.symbols.into_iter().take(4) {
                let of_one = both_ways::<N>(application, Some(symbol), seed);
                assert_eq!(of_one.symbols, [symbol], "{application:?}, seed {seed}");
                is_any |= !of_one.frequent.is_empty();
            }
            assert!(is_any, "{application:?}, seed {seed}");
        }
    }

    #[test]
    fn the_path_of_frequent_messages_gives_the_events_and_the_state_of_the_path_of_all() {
        check_both_ways::<crate::memoir::MemoirNormaliser>(Application::MemoirDepth13, 4);
        check_both_ways::<crate::iex::DeepPlus>(Application::IexDeepPlus10, 4);
        check_both_ways::<crate::pitch::PitchNormaliser>(Application::CboePitch241, 8);
        check_both_ways::<crate::integrated::IntegratedNormaliser>(Application::NyseIntegrated25, 5);
        check_both_ways::<crate::mitch::MitchNormaliser>(Application::LseMitch119, 4);
    }
}
