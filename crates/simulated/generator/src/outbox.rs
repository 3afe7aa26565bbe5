//! Messages that are made but not yet taken. The buffer is cleared when all are taken, so it stays as small as the largest event.

use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::itch50::{ReasonCode, TradingState};

use crate::book::{Order, Side};
use crate::instrument::Instrument;
use crate::scenario::{CLOSE_NS, OPEN_NS};

/// A change of a book, in a form independent of the protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Add { side: Side, order: Order, mpid: Option<usize> },
    Execute { side: Side, order: Order, shares: u32, match_number: u64 },
    ExecuteAt { side: Side, order: Order, shares: u32, match_number: u64, price: u32, printable: bool },
    Cancel { side: Side, order: Order, shares: u32 },
    Delete { side: Side, order: Order },
    Replace { side: Side, old: Order, new: Order },
    Hidden { price: u32, shares: u32, match_number: u64 },
}

pub(crate) fn in_market_hours(stamp: &Stamp) -> bool {
    (OPEN_NS..CLOSE_NS).contains(&stamp.time_ns)
}

/// A trade, with the fields that a trade break needs later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Print {
    pub(crate) symbol: Ascii<8>,
    /// The venue's number for the symbol.
    pub(crate) locate: u16,
    pub(crate) shares: u32,
    pub(crate) price: u32,
    pub(crate) trade_id: u64,
    pub(crate) conditions: u8,
}

impl Print {
    pub(crate) fn new(
        stamp: &Stamp,
        instrument: &Instrument,
        shares: u32,
        price: u32,
        trade_id: u64,
    ) -> Self {
        let odd_lot = u8::from(shares < instrument.round_lot) << 5;
        let extended_hours = u8::from(!in_market_hours(stamp)) << 6;
        Self {
            symbol: instrument.symbol,
            locate: stamp.locate,
            shares,
            price,
            trade_id,
            conditions: odd_lot | extended_hours,
        }
    }
}

/// The state of a symbol that a venue has sent, apart from its book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether the directory was sent.
    pub(crate) is_published: bool,
    pub(crate) new_issue: bool,
    pub(crate) state: TradingState,
    pub(crate) reason: ReasonCode,
    pub(crate) operational_halt: bool,
    /// Whether a short sale price test has been in effect since the previous day.
    pub(crate) was_restricted: bool,
    /// Whether a short sale price test started during the day.
    pub(crate) short_sale_test: bool,
}

impl Standing {
    /// The state before the directory.
    pub(crate) const UNPUBLISHED: Self = Self {
        is_published: false,
        new_issue: false,
        state: TradingState::Trading,
        reason: ReasonCode::ReasonNotAvailable,
        operational_halt: false,
        was_restricted: false,
        short_sale_test: false,
    };

    /// Returns the state of a symbol at the start of the day.
    pub(crate) const fn at_start(index: u32) -> Self {
        Self { is_published: true, was_restricted: index % 50 == 11, ..Self::UNPUBLISHED }
    }

    /// Returns whether a short sale price test is in effect.
    pub(crate) const fn is_restricted(&self) -> bool {
        self.was_restricted || self.short_sale_test
    }
}

/// The venue and the time of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) venue: usize,
    /// In nanoseconds since midnight in New York.
    pub(crate) time_ns: u64,
    /// In nanoseconds since the epoch.
    pub(crate) utc_ns: u64,
    /// ITCH's number for the symbol; 0 if the message is about none.
    pub(crate) locate: u16,
    pub(crate) tracking: u16,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    venue: usize,
    utc_ns: u64,
    start: usize,
    length: usize,
}

/// Messages in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    pending: Vec<Pending>,
    next: usize,
    made: u64,
    /// The second of each venue's last message, in protocols that send seconds separately.
    seconds: Vec<Option<u64>>,
}

impl Outbox {
    #[inline]
    pub(crate) fn push(&mut self, stamp: &Stamp, message: &[u8]) {
        let (start, length) = (self.bytes.len(), message.len());
        self.bytes.extend_from_slice(message);
        self.pending.push(Pending { venue: stamp.venue, utc_ns: stamp.utc_ns, start, length });
        self.made += 1;
    }

    /// Returns whether the venue's next message is its first in this second, and records the second.
    pub(crate) fn begins_second(&mut self, venue: usize, second: u64) -> bool {
        if venue >= self.seconds.len() {
            self.seconds.resize(venue + 1, None);
        }
        self.seconds.get_mut(venue).is_some_and(|last| last.replace(second) != Some(second))
    }

    /// Returns the number of messages made so far, taken or not.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Returns how many messages of a venue are not yet taken.
    pub(crate) fn pending_of(&self, venue: usize) -> u64 {
        let pending = self.pending.get(self.next..).unwrap_or_default();
        pending.iter().filter(|pending| pending.venue == venue).count() as u64
    }

    /// Iterates over those messages, in order.
    pub(crate) fn messages_of(&self, venue: usize) -> impl Iterator<Item = &[u8]> {
        let pending = self.pending.get(self.next..).unwrap_or_default();
        let of_venue = pending.iter().filter(move |pending| pending.venue == venue);
        of_venue.filter_map(|pending| self.bytes.get(pending.start..pending.start + pending.length))
    }

    /// Takes all messages, in order.
    pub(crate) fn drain(&mut self, mut put: impl FnMut(&[u8])) {
        while let Some((_, _, message)) = self.take() {
            put(message);
        }
        self.clear_if_taken();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next >= self.pending.len()
    }

    /// Takes the next message: its venue, UTC time, and bytes.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(usize, u64, &[u8])> {
        let pending = *self.pending.get(self.next)?;
        self.next += 1;
        let message = self.bytes.get(pending.start..pending.start + pending.length)?;
        Some((pending.venue, pending.utc_ns, message))
    }

    /// Clears the buffer once all messages are taken.
    #[inline]
    pub(crate) fn clear_if_taken(&mut self) {
        if self.is_empty() {
            self.bytes.clear();
            self.pending.clear();
            self.next = 0;
        }
    }
}
