//! The normalized event: 64 bytes, one cache line.
//!
//! A field that DBN also has keeps DBN's meaning: times in nanoseconds UTC, prices in units of 1e-9, the same letters
//! for action and side, the same flag bits. The event adds what DBN lacks: a 16-bit channel number, the channel's
//! sequence number, the line (A or B) that delivered the message, and gaps. A few kinds reuse fields for other values;
//! read and write those through the constructors and the typed views ([`Event::status`], [`Event::definition`],
//! [`Event::imbalance`], [`Event::gap`]).
//!
//! There is no spare byte: DBN's flags need six bits, and the line takes the other two bits of that byte
//! ([`FlagsAndLine`]).
//!
//! Cost: writing an event touches one cache line. All kinds have the same size, so events fit arrays and rings.

mod bytes;

use tapeworks_time::Nanos;

use crate::instrument::{InstrumentId, Symbol};
use crate::luld::{PriceBands, Standing};
use crate::price::Price;
use crate::venue::Publisher;

/// What happened. The numeric values are stable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum EventKind {
    /// An order joined the book: `order_id`, `side`, `price`, `size`.
    Add = 1,
    /// A resting order was executed, in part or in full: `order_id`, `size`; `price` if it differs from the order's
    /// price; `aux` is the match number.
    Execute = 2,
    /// A resting order was reduced by `size`.
    Cancel = 3,
    /// A resting order was deleted from the book.
    Delete = 4,
    /// A resting order was replaced: `order_id` is the old order, `aux` the new one, with `price` and `size`. The two
    /// are equal where the venue modifies an order under its old number; `detail` may then contain
    /// [`Event::KEEPS_PRIORITY`].
    Replace = 5,
    /// The book of one instrument, or of all instruments, was emptied.
    Clear = 6,
    /// The total size of a price level on one side is now `size`; 0 removes the level.
    Level = 7,
    /// The best price of one side is now `price` for `size`. Without a price or a size, that side is empty.
    Quote = 8,
    /// A trade that changes no displayed order: `price`, `size`; `aux` is the trade number.
    Trade = 9,
    /// Trade number `aux` is void.
    TradeBreak = 10,
    /// The trading state of an instrument changed: [`Event::status`].
    Status = 11,
    /// First half of an auction's imbalance and prices: [`Event::imbalance`].
    Imbalance = 12,
    /// Second half of an auction's imbalance and prices. Follows the first half and has no channel or sequence number.
    ImbalancePrices = 13,
    /// The definition of an instrument: [`Event::definition`].
    Definition = 14,
    /// Messages are missing on the channel: [`Event::gap`].
    Gap = 15,
    /// The venue's session changed: [`Event::session`].
    Session = 16,
    /// A message without a normalized meaning (indications, participants, collars). It keeps its sequence number and
    /// changes no book.
    Other = 17,
    /// From now on the instrument's number denotes a symbol: [`Event::symbol`]. Precedes every other event of the
    /// instrument.
    SymbolMapping = 18,
    /// The gap is closed: the books of one instrument, or of all instruments of the feed, are no longer stale.
    Recovered = 19,
    /// A SIP published limit up, limit down price bands for an instrument: [`Event::price_bands`].
    PriceBands = 20,
    /// A SIP reported how its national best bid and offer relates to the price bands: [`Event::standing`].
    LimitState = 21,
}

impl EventKind {
    /// Returns whether events of this kind always name a single instrument, never [all instruments](InstrumentId::ALL).
    pub(crate) const fn is_of_one_instrument(self) -> bool {
        !matches!(
            self,
            Self::Clear | Self::Status | Self::Gap | Self::Session | Self::Other | Self::Recovered
        )
    }

    /// Returns whether events of this kind concern a single order in a book.
    #[must_use]
    pub const fn is_of_order(self) -> bool {
        matches!(self, Self::Add | Self::Execute | Self::Cancel | Self::Delete | Self::Replace)
    }

    /// Every kind, indexed by its number minus one.
    pub const ALL: [Self; 21] = [
        Self::Add,
        Self::Execute,
        Self::Cancel,
        Self::Delete,
        Self::Replace,
        Self::Clear,
        Self::Level,
        Self::Quote,
        Self::Trade,
        Self::TradeBreak,
        Self::Status,
        Self::Imbalance,
        Self::ImbalancePrices,
        Self::Definition,
        Self::Gap,
        Self::Session,
        Self::Other,
        Self::SymbolMapping,
        Self::Recovered,
        Self::PriceBands,
        Self::LimitState,
    ];

    /// Returns the kind with this number, if any.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number.checked_sub(1)?)).copied()
    }
}

/// DBN's action codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Action {
    /// An order is added.
    Add = b'A',
    /// An order is reduced or removed.
    Cancel = b'C',
    /// An order or level changes.
    Modify = b'M',
    /// A book is emptied.
    Clear = b'R',
    /// An aggressing order traded; the book does not change.
    Trade = b'T',
    /// A resting order was filled; the book does not change.
    Fill = b'F',
    /// No effect on the book.
    None = b'N',
}

/// DBN's side codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Side {
    /// A sell order, a sell aggressor.
    Ask = b'A',
    /// A buy order, a buy aggressor.
    Bid = b'B',
    /// No side, or an unknown side.
    None = b'N',
}

impl Side {
    /// Returns the opposite side; `None` stays `None`.
    #[inline]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Ask => Self::Bid,
            Self::Bid => Self::Ask,
            Self::None => Self::None,
        }
    }
}

/// The line of a channel that delivered an event first.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Line {
    /// The first, or only, line.
    #[default]
    A = 0,
    /// The second line.
    B = 1,
    /// A retransmission.
    Recovery = 2,
    /// A snapshot.
    Snapshot = 3,
}

impl Line {
    /// Decodes the line from its two bits.
    #[inline]
    const fn from_bits(bits: u8) -> Self {
        match bits & FlagsAndLine::LINE {
            0 => Self::A,
            1 => Self::B,
            2 => Self::Recovery,
            _ => Self::Snapshot,
        }
    }
}

/// DBN's flags.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// Last record of the venue's event.
    pub const LAST: Self = Self(0x80);
    /// Top-of-book record, not an order.
    pub const TOP_OF_BOOK: Self = Self(0x40);
    /// Comes from a snapshot.
    pub const SNAPSHOT: Self = Self(0x20);
    /// Aggregated price level, not an order.
    pub const MARKET_BY_PRICE: Self = Self(0x10);
    /// The receive time is unreliable.
    pub const BAD_TS_RECV: Self = Self(0x08);
    /// A gap was not recovered, so the book may be wrong.
    pub const MAYBE_BAD_BOOK: Self = Self(0x04);

    /// Returns whether all of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the union of both sets of flags.
    #[inline]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// DBN's flags in the upper six bits, the [`Line`] in the lower two.
///
/// DBN reserves one of those two bits and leaves the other to the publisher; no feed here uses it. Read the value
/// through [`Event::flags`] and [`Event::line`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct FlagsAndLine(u8);

impl FlagsAndLine {
    /// Bits that hold the line.
    const LINE: u8 = 0b11;

    /// Packs both into one byte. Drops the bits of `flags` that belong to the line.
    #[inline]
    #[must_use]
    pub const fn new(flags: Flags, line: Line) -> Self {
        Self(flags.0 & !Self::LINE | line as u8)
    }

    /// Returns the flags.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> Flags {
        Flags(self.0 & !Self::LINE)
    }

    /// Returns the line.
    #[inline]
    #[must_use]
    pub const fn line(self) -> Line {
        Line::from_bits(self.0)
    }
}

impl std::fmt::Debug for FlagsAndLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FlagsAndLine").field(&self.flags()).field(&self.line()).finish()
    }
}

/// A normalized event. The module documentation lists the meaning of the fields by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Event {
    /// The venue's event time.
    pub ts_event: Nanos,
    /// Receive time of the packet; the venue's time if there is no receive time.
    pub ts_recv: Nanos,
    /// Order reference, unique within its venue and day; 0 for none.
    pub order_id: u64,
    /// The price.
    pub price: Option<Price>,
    /// Sequence number of the message on its channel; 0 if the transport has none.
    pub channel_sequence: u64,
    /// Depends on the kind: match or trade number, new order of a replace, and others.
    pub aux: u64,
    /// The instrument, or [`InstrumentId::ALL`].
    pub instrument: InstrumentId,
    /// Size in shares.
    pub size: u32,
    /// The feed.
    pub publisher: Publisher,
    /// What happened.
    pub kind: EventKind,
    /// Side of the order, or of a trade's aggressor.
    pub side: Side,
    /// DBN's flags and the line that delivered the event: [`Event::flags`], [`Event::line`].
    pub flags_and_line: FlagsAndLine,
    /// Depends on the kind: see [`Event::NOT_PRINTABLE`] and the typed views.
    pub detail: u8,
    /// Channel number.
    pub channel: u16,
}

/// An instrument's trading state, in DBN's terms (`StatusAction`, `StatusReason`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// DBN's status action: 7 trading, 8 halt, 9 pause, 3 quoting, 1 pre-open, 2 pre-cross, 14 short-sale restriction
    /// change, 15 not available (an operational halt of the venue).
    pub action: StatusAction,
    /// DBN's status reason; 0 if none is given.
    pub reason: u16,
    /// Whether the instrument trades; `None` if the message does not state it.
    pub is_trading: Option<bool>,
    /// Whether the instrument is quoted; `None` if the message does not state it.
    pub is_quoting: Option<bool>,
    /// Whether a short-sale price test restricts the instrument; `None` if the message does not state it.
    pub is_short_sell_restricted: Option<bool>,
}

/// The DBN status actions that our venues use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum StatusAction {
    /// No change.
    None = 0,
    /// Orders are accepted for the opening.
    PreOpen = 1,
    /// Orders are accepted for an auction.
    PreCross = 2,
    /// Quoted, not trading.
    Quoting = 3,
    /// Trading.
    Trading = 7,
    /// Halted.
    Halt = 8,
    /// Paused.
    Pause = 9,
    /// The venue has closed.
    Close = 12,
    /// The short-sale restriction changed.
    ShortSaleRestrictionChange = 14,
    /// Not available for trading at this venue (operational halt).
    NotAvailableForTrading = 15,
}

impl StatusAction {
    const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::PreOpen,
            2 => Self::PreCross,
            3 => Self::Quoting,
            7 => Self::Trading,
            8 => Self::Halt,
            9 => Self::Pause,
            12 => Self::Close,
            14 => Self::ShortSaleRestrictionChange,
            15 => Self::NotAvailableForTrading,
            _ => Self::None,
        }
    }
}

/// A venue's definition of an instrument. The preceding [`EventKind::SymbolMapping`] carries the symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Shares in a round lot; 0 if the venue does not state it.
    pub round_lot: u32,
    /// Adjusted closing price of the previous day, if the venue publishes it (IEX).
    pub reference_price: Option<Price>,
    /// Minimum price increment, if the venue publishes it (MEMX).
    pub tick: Option<Price>,
    /// The venue's one-letter class of the issue (Nasdaq's issue classification); a space for none.
    pub class: u8,
    /// Listing market, as the SIPs' letter (`Q` Nasdaq, `N` NYSE, `A` NYSE American, `P` Arca, `Z` Cboe BZX, `V` IEX,
    /// ...); a space if the venue does not state it.
    pub listing: u8,
    /// Whether this is a test security.
    pub is_test: bool,
    /// Whether this is an exchange-traded product.
    pub is_etp: bool,
}

/// The state of an auction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imbalance {
    /// Shares paired at the reference price.
    pub paired: u32,
    /// Unpaired shares.
    pub imbalance: u32,
    /// Unpaired shares of market orders; `None` if the venue does not publish them.
    pub market_imbalance: Option<u32>,
    /// Side of the imbalance.
    pub side: Side,
    /// The venue's letter for the auction.
    pub auction_type: u8,
    /// The venue's letter for the price variation; `~` for none.
    pub variation: u8,
    /// How many times the halt was extended.
    pub extensions: u8,
    /// Scheduled time of the auction, in whole seconds.
    pub auction_time: Option<Nanos>,
    /// Price at which the shares were counted.
    pub reference_price: Option<Price>,
    /// Clearing price of auction and continuous orders (Nasdaq: near; IEX: auction book clearing price).
    pub continuous_clearing_price: Option<Price>,
    /// Clearing price of auction orders alone (Nasdaq: far).
    pub auction_clearing_price: Option<Price>,
    /// Indicative clearing price within the collars (IEX).
    pub indicative_price: Option<Price>,
    /// Upper collar price.
    pub upper_collar: Option<Price>,
    /// Lower collar price.
    pub lower_collar: Option<Price>,
}

/// A sequence gap.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Sequence number of the first missing message.
    pub first: u64,
    /// Number of missing messages.
    pub count: u64,
}

/// The phases of a venue's trading day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Session {
    /// The first message of the day.
    StartOfMessages = 1,
    /// Orders are accepted.
    StartOfSystemHours = 2,
    /// Regular hours begin.
    StartOfMarketHours = 3,
    /// Regular hours end.
    EndOfMarketHours = 4,
    /// Orders are no longer accepted.
    EndOfSystemHours = 5,
    /// The last message of the day.
    EndOfMessages = 6,
    /// Not a phase: the user declares self-help against the venue, whose quotes no longer count in the NBBO.
    SelfHelpDeclared = 7,
    /// The user revokes self-help.
    SelfHelpRevoked = 8,
}

const OPTION_NO: u8 = 0;
const OPTION_FALSE: u8 = 1;
const OPTION_TRUE: u8 = 2;

const fn pack(value: Option<bool>) -> u8 {
    match value {
        None => OPTION_NO,
        Some(false) => OPTION_FALSE,
        Some(true) => OPTION_TRUE,
    }
}

const fn unpack(value: u8) -> Option<bool> {
    match value {
        OPTION_FALSE => Some(false),
        OPTION_TRUE => Some(true),
        _ => None,
    }
}

/// Encodes a price for a `u64` field of an event.
const fn price_to_bits(price: Option<Price>) -> u64 {
    crate::price::price_e9(price) as u64
}

const fn price_from_bits(bits: u64) -> Option<Price> {
    Price::from_e9(bits as i64)
}

impl Event {
    /// In `detail` of an execution or trade: exclude it from the day's volume (Nasdaq's printable `N`).
    pub const NOT_PRINTABLE: u8 = 1;

    /// In `detail` of a trade: it comes from an auction (a cross).
    pub const CROSS: u8 = 2;

    /// In `detail` of a replacement: the order keeps its time priority, and keeps its price if the event has none.
    /// Without this bit it queues after all other orders at its price.
    pub const KEEPS_PRIORITY: u8 = 4;

    /// In `detail` of a SIP participant's quote: it is not eligible for the national best
    /// ([`quote_conditions`](crate::quote_conditions), price bands).
    pub const NOT_ELIGIBLE: u8 = 8;

    /// In `detail` of an execution or trade: its sale condition excludes it from the last price
    /// ([`sale_conditions`](crate::sale_conditions)).
    pub const NOT_LAST: u8 = 16;

    /// In `detail` of an execution or trade: its sale condition excludes it from the high and the low.
    pub const NOT_HIGH_LOW: u8 = 32;

    /// In `detail` of an execution or trade: the venue marks it as within regular hours. If neither this bit nor
    /// [`EXTENDED_HOURS`](Self::EXTENDED_HOURS) is set, the message does not state it.
    pub const REGULAR_HOURS: u8 = 8;

    /// In `detail` of an execution or trade: the venue marks it as outside regular hours (Form T).
    pub const EXTENDED_HOURS: u8 = 128;

    /// In `detail` of a trade: its size does not fit 32 bits. `size` is then `u32::MAX`, and `order_id` holds all
    /// [shares](Self::shares).
    pub const WIDE: u8 = 64;

    /// Sets the size of a trade that names no order.
    #[must_use]
    pub const fn with_trade_shares(mut self, shares: u64) -> Self {
        if shares > u32::MAX as u64 {
            (self.size, self.order_id) = (u32::MAX, shares);
            self.detail |= Self::WIDE;
        } else {
            self.size = shares as u32;
        }
        self
    }

    /// Returns whether the venue marks an execution or trade as within regular hours; `None` if it does not state it.
    #[inline]
    #[must_use]
    pub const fn stated_hours(&self) -> Option<bool> {
        if !matches!(self.kind, EventKind::Execute | EventKind::Trade) {
            return None;
        }
        match (self.detail & Self::EXTENDED_HOURS != 0, self.detail & Self::REGULAR_HOURS != 0) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        }
    }

    /// Returns the full size of an execution or trade in shares.
    #[inline]
    #[must_use]
    pub const fn shares(&self) -> u64 {
        if self.is_wide() { self.order_id } else { self.size as u64 }
    }

    /// Returns whether this is a trade of more shares than `size` can hold.
    #[inline]
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        matches!(self.kind, EventKind::Trade) && self.detail & Self::WIDE != 0
    }

    /// Creates an empty event of `kind`; the caller fills in the fields that the kind uses.
    #[inline]
    pub const fn new(kind: EventKind, publisher: Publisher, instrument: InstrumentId) -> Self {
        Self {
            ts_event: Nanos(0),
            ts_recv: Nanos(0),
            order_id: 0,
            price: None,
            channel_sequence: 0,
            aux: 0,
            instrument,
            size: 0,
            publisher,
            kind,
            side: Side::None,
            flags_and_line: FlagsAndLine::new(Flags::LAST, Line::A),
            detail: 0,
            channel: 0,
        }
    }

    /// Returns DBN's flags.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.flags_and_line.flags()
    }

    /// Replaces the flags and keeps the line.
    #[inline]
    pub const fn set_flags(&mut self, flags: Flags) {
        self.flags_and_line = FlagsAndLine::new(flags, self.line());
    }

    /// Sets these flags in addition to the current ones.
    #[inline]
    pub const fn add_flags(&mut self, flags: Flags) {
        self.set_flags(self.flags().with(flags));
    }

    /// Returns the event with its flags replaced.
    #[inline]
    #[must_use]
    pub const fn with_flags(mut self, flags: Flags) -> Self {
        self.set_flags(flags);
        self
    }

    /// Returns the line that delivered the event.
    #[inline]
    #[must_use]
    pub const fn line(&self) -> Line {
        self.flags_and_line.line()
    }

    /// Replaces the line and keeps the flags.
    #[inline]
    pub const fn set_line(&mut self, line: Line) {
        self.flags_and_line = FlagsAndLine::new(self.flags(), line);
    }

    /// Turns the event into an [`EventKind::Status`] with `status`.
    #[must_use]
    pub const fn with_status(mut self, status: Status) -> Self {
        self.kind = EventKind::Status;
        self.detail = status.action as u8;
        self.size = status.reason as u32;
        self.aux = pack(status.is_trading) as u64
            | (pack(status.is_quoting) as u64) << 8
            | (pack(status.is_short_sell_restricted) as u64) << 16;
        self
    }

    /// Returns the status of an [`EventKind::Status`].
    pub const fn status(&self) -> Option<Status> {
        if !matches!(self.kind, EventKind::Status) {
            return None;
        }
        Some(Status {
            action: StatusAction::from_u8(self.detail),
            reason: self.size as u16,
            is_trading: unpack(self.aux as u8),
            is_quoting: unpack((self.aux >> 8) as u8),
            is_short_sell_restricted: unpack((self.aux >> 16) as u8),
        })
    }

    /// Turns the event into an [`EventKind::SymbolMapping`] to `symbol`.
    #[must_use]
    pub fn with_symbol(mut self, symbol: Symbol) -> Self {
        let mut letters = symbol.as_bytes().chunks(8).map(|letters| {
            letters.iter().rev().fold(0u64, |number, letter| number << 8 | u64::from(*letter))
        });
        let mut next = || letters.next().unwrap_or_default();
        self.kind = EventKind::SymbolMapping;
        (self.order_id, self.aux) = (next(), next());
        // The last five characters.
        let rest = next();
        (self.size, self.detail) = (rest as u32, (rest >> 32) as u8);
        self
    }

    /// Returns the symbol of an [`EventKind::SymbolMapping`].
    pub fn symbol(&self) -> Option<Symbol> {
        if self.kind != EventKind::SymbolMapping {
            return None;
        }
        let mut letters = [0; 24];
        let rest = u64::from(self.size) | u64::from(self.detail) << 32;
        for (place, number) in letters.chunks_exact_mut(8).zip([self.order_id, self.aux, rest]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        Symbol::from_bytes(&letters).ok()
    }

    /// Turns the event into an [`EventKind::Definition`] with `definition`.
    #[must_use]
    pub const fn with_definition(mut self, definition: Definition) -> Self {
        self.kind = EventKind::Definition;
        self.size = definition.round_lot;
        self.price = definition.reference_price;
        self.detail = definition.class & 0x7F;
        // 0 encodes the absence of a tick, so that events of venues without ticks do not change.
        self.order_id = match definition.tick {
            Some(tick) => price_to_bits(Some(tick)),
            None => 0,
        };
        let listing = if definition.listing == b' ' { 0 } else { definition.listing };
        self.aux = definition.is_test as u64 | (definition.is_etp as u64) << 1 | (listing as u64) << 8;
        self
    }

    /// Returns the definition of an [`EventKind::Definition`].
    pub const fn definition(&self) -> Option<Definition> {
        if !matches!(self.kind, EventKind::Definition) {
            return None;
        }
        Some(Definition {
            round_lot: self.size,
            reference_price: self.price,
            tick: if self.order_id == 0 { None } else { price_from_bits(self.order_id) },
            class: self.detail,
            listing: match (self.aux >> 8) as u8 {
                0 => b' ',
                letter => letter,
            },
            is_test: self.aux & 1 != 0,
            is_etp: self.aux & 2 != 0,
        })
    }

    /// Returns the two events that carry `imbalance`, with the times, sequence number and instrument of `self`.
    pub const fn with_imbalance(self, imbalance: Imbalance) -> [Self; 2] {
        let mut first = self;
        first.kind = EventKind::Imbalance;
        first.set_flags(Flags(0));
        first.side = imbalance.side;
        first.size = imbalance.paired;
        first.price = imbalance.reference_price;
        first.order_id = price_to_bits(imbalance.continuous_clearing_price);
        first.aux = price_to_bits(imbalance.auction_clearing_price);
        first.detail = imbalance.auction_type;
        let mut second = self;
        second.kind = EventKind::ImbalancePrices;
        second.side = imbalance.side;
        second.size = imbalance.imbalance;
        second.price = imbalance.indicative_price;
        second.order_id = price_to_bits(imbalance.upper_collar);
        second.aux = price_to_bits(imbalance.lower_collar);
        second.detail = imbalance.extensions;
        // The first half carries the channel and the sequence number, so these fields are free here: `channel` holds
        // the variation; `channel_sequence` holds the market-order imbalance in its upper 32 bits and the auction time
        // in seconds in its lower 32. All bits set means none.
        second.channel = imbalance.variation as u16;
        let seconds = match imbalance.auction_time {
            Some(time) if time.0 / Nanos::SECOND < u32::MAX as u64 => time.0 / Nanos::SECOND,
            _ => u32::MAX as u64,
        };
        let market = match imbalance.market_imbalance {
            Some(shares) => shares,
            None => u32::MAX,
        };
        second.channel_sequence = (market as u64) << 32 | seconds;
        [first, second]
    }

    /// Returns the imbalance of an [`EventKind::Imbalance`] and the [`EventKind::ImbalancePrices`] that followed it.
    pub fn imbalance(&self, second: &Self) -> Option<Imbalance> {
        if self.kind != EventKind::Imbalance
            || second.kind != EventKind::ImbalancePrices
            || (self.publisher, self.instrument, self.ts_event)
                != (second.publisher, second.instrument, second.ts_event)
        {
            return None;
        }
        let (market, seconds) = ((second.channel_sequence >> 32) as u32, second.channel_sequence as u32);
        Some(Imbalance {
            paired: self.size,
            imbalance: second.size,
            market_imbalance: (market != u32::MAX).then_some(market),
            side: self.side,
            auction_type: self.detail,
            variation: second.channel as u8,
            extensions: second.detail,
            auction_time: (seconds != u32::MAX).then_some(Nanos(u64::from(seconds) * Nanos::SECOND)),
            reference_price: self.price,
            continuous_clearing_price: price_from_bits(self.order_id),
            auction_clearing_price: price_from_bits(self.aux),
            indicative_price: second.price,
            upper_collar: price_from_bits(second.order_id),
            lower_collar: price_from_bits(second.aux),
        })
    }

    /// Turns the event into an [`EventKind::Gap`] with `gap`.
    #[must_use]
    pub const fn with_gap(mut self, gap: Gap) -> Self {
        self.kind = EventKind::Gap;
        self.order_id = gap.first;
        self.aux = gap.count;
        self.detail = 0;
        self
    }

    /// Returns the gap of an [`EventKind::Gap`].
    pub const fn gap(&self) -> Option<Gap> {
        match self.kind {
            EventKind::Gap => Some(Gap { first: self.order_id, count: self.aux }),
            _ => None,
        }
    }

    /// Marks an [`EventKind::Gap`] of one instrument as a contradiction of its book.
    ///
    /// The end of a gap does not clear a contradiction.
    #[must_use]
    pub const fn with_contradiction(mut self) -> Self {
        self.detail = 1;
        self
    }

    /// Returns whether this is an [`EventKind::Gap`] that reports a contradiction.
    pub const fn is_contradiction(&self) -> bool {
        matches!(self.kind, EventKind::Gap) && self.detail == 1
    }

    /// Marks an [`EventKind::Clear`] of one instrument as part of a run of clears of the same feed.
    ///
    /// The books may then drop the orders of the whole run in one pass.
    #[must_use]
    pub const fn with_more_clears(mut self) -> Self {
        self.detail = 1;
        self
    }

    /// Returns whether this is an [`EventKind::Clear`] that another one of its feed follows immediately.
    pub const fn has_more_clears(&self) -> bool {
        matches!(self.kind, EventKind::Clear) && self.detail == 1
    }

    /// Turns the event into an [`EventKind::PriceBands`] with `bands`.
    #[must_use]
    pub const fn with_price_bands(mut self, bands: PriceBands) -> Self {
        self.kind = EventKind::PriceBands;
        self.price = bands.lower;
        self.order_id = price_to_bits(bands.upper);
        self.detail = bands.indicator;
        self.aux = bands.effective.0;
        self
    }

    /// Returns the price bands of an [`EventKind::PriceBands`].
    pub const fn price_bands(&self) -> Option<PriceBands> {
        match self.kind {
            EventKind::PriceBands => Some(PriceBands {
                lower: self.price,
                upper: price_from_bits(self.order_id),
                indicator: self.detail,
                effective: Nanos(self.aux),
            }),
            _ => None,
        }
    }

    /// Turns the event into an [`EventKind::LimitState`] with `standing`.
    #[must_use]
    pub const fn with_standing(mut self, standing: Standing) -> Self {
        self.kind = EventKind::LimitState;
        self.detail = standing.bits();
        self
    }

    /// Returns how the SIP's national best relates to the bands, for an [`EventKind::LimitState`].
    pub const fn standing(&self) -> Option<Standing> {
        match self.kind {
            EventKind::LimitState => Some(Standing::from_bits(self.detail)),
            _ => None,
        }
    }

    /// Turns the event into an [`EventKind::Session`] with `session`.
    #[must_use]
    pub const fn with_session(mut self, session: Session) -> Self {
        self.kind = EventKind::Session;
        self.detail = session as u8;
        self
    }

    /// Returns the session phase of an [`EventKind::Session`].
    pub const fn session(&self) -> Option<Session> {
        match (self.kind, self.detail) {
            (EventKind::Session, 1) => Some(Session::StartOfMessages),
            (EventKind::Session, 2) => Some(Session::StartOfSystemHours),
            (EventKind::Session, 3) => Some(Session::StartOfMarketHours),
            (EventKind::Session, 4) => Some(Session::EndOfMarketHours),
            (EventKind::Session, 5) => Some(Session::EndOfSystemHours),
            (EventKind::Session, 6) => Some(Session::EndOfMessages),
            (EventKind::Session, 7) => Some(Session::SelfHelpDeclared),
            (EventKind::Session, 8) => Some(Session::SelfHelpRevoked),
            _ => None,
        }
    }

    /// Creates the event with which the user declares or revokes self-help against a feed's venue.
    #[must_use]
    pub const fn of_self_help(venue: Publisher, is_declared: bool) -> Self {
        let session = if is_declared { Session::SelfHelpDeclared } else { Session::SelfHelpRevoked };
        Self::new(EventKind::Session, venue, InstrumentId::ALL).with_session(session)
    }

    /// Returns `true` if the event declares self-help, `false` if it revokes it, and `None` for other events.
    pub const fn self_help(&self) -> Option<bool> {
        match self.session() {
            Some(Session::SelfHelpDeclared) => Some(true),
            Some(Session::SelfHelpRevoked) => Some(false),
            _ => None,
        }
    }

    /// Returns the nanoseconds from event time to receive time, like DBN's `ts_in_delta` (clamped to an `i32`).
    #[inline]
    pub const fn ts_in_delta(&self) -> i32 {
        let (received, event) = (self.ts_recv.0, self.ts_event.0);
        let distance = received.abs_diff(event);
        match (distance <= i32::MAX as u64, received >= event) {
            (true, true) => distance as i32,
            (true, false) => -(distance as i32),
            (false, true) => i32::MAX,
            (false, false) => i32::MIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank(kind: EventKind) -> Event {
        let mut event = Event::new(kind, Publisher::XNAS_ITCH, InstrumentId(7));
        event.ts_event = Nanos(11);
        event.ts_recv = Nanos(12);
        event
    }

    #[test]
    fn a_kind_is_found_by_its_number() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_number(kind as u8), Some(kind));
        }
        assert_eq!([0, 22, 255].map(EventKind::from_number), [None; 3]);
    }

    #[test]
    fn flags_and_line_do_not_disturb_each_other_and_the_channel_has_16_bits() {
        let mut event = blank(EventKind::Add);
        event.channel = u16::MAX;
        for line in [Line::A, Line::B, Line::Recovery, Line::Snapshot] {
            for bits in 0..=u8::MAX {
                event.set_flags(Flags(bits));
                event.set_line(line);
                let flags = Flags(bits & 0xFC);
                assert_eq!((event.flags(), event.line(), event.channel), (flags, line, u16::MAX));
                event.add_flags(Flags::LAST);
                assert_eq!((event.flags(), event.line()), (flags.with(Flags::LAST), line));
            }
        }
    }

    #[test]
    fn definitions_and_imbalances_keep_their_channel() {
        let mut event = blank(EventKind::Other);
        (event.channel, event.channel_sequence) = (40_000, 5);
        event.set_line(Line::B);
        let definition = Definition {
            round_lot: 1,
            reference_price: None,
            tick: None,
            class: b'C',
            listing: b' ',
            is_test: true,
            is_etp: true,
        };
        let defined = event.with_definition(definition);
        assert_eq!((defined.channel, defined.definition()), (40_000, Some(definition)));
        let imbalance = Imbalance {
            paired: 1,
            imbalance: 2,
            market_imbalance: None,
            side: Side::Bid,
            auction_type: b'O',
            variation: b'~',
            extensions: 255,
            auction_time: None,
            reference_price: None,
            continuous_clearing_price: None,
            auction_clearing_price: None,
            indicative_price: None,
            upper_collar: None,
            lower_collar: None,
        };
        let [first, second] = event.with_imbalance(imbalance);
        assert_eq!((first.channel, first.channel_sequence, first.line()), (40_000, 5, Line::B));
        assert_eq!(first.imbalance(&second), Some(imbalance));
    }

    #[test]
    fn an_event_is_one_cache_line() {
        assert_eq!(size_of::<Event>(), 64);
        assert_eq!(align_of::<Event>(), 64);
        assert_eq!(size_of::<Option<Event>>(), 64, "absence of an event costs nothing");
    }

    #[test]
    fn a_status_survives_a_round_trip() {
        for is_trading in [None, Some(false), Some(true)] {
            let status = Status {
                action: StatusAction::Halt,
                reason: 30,
                is_trading,
                is_quoting: Some(true),
                is_short_sell_restricted: None,
            };
            assert_eq!(blank(EventKind::Status).with_status(status).status(), Some(status));
        }
        assert_eq!(blank(EventKind::Add).status(), None);
    }

    #[test]
    fn a_definition_survives_a_round_trip() {
        let definition = Definition {
            round_lot: 1,
            reference_price: Price::from_e9(5),
            tick: Price::from_e9(10_000_000),
            class: b'C',
            listing: b'Q',
            is_test: true,
            is_etp: false,
        };
        assert_eq!(blank(EventKind::Definition).with_definition(definition).definition(), Some(definition));
        assert_eq!(blank(EventKind::Add).definition(), None);
    }

    #[test]
    fn price_bands_and_standings_survive_a_round_trip() {
        for (lower, upper) in
            [(None, None), (Price::from_e9(5), None), (Price::from_e9(5), Price::from_e9(7))]
        {
            let bands = PriceBands { lower, upper, indicator: b'B', effective: Nanos(9) };
            assert_eq!(blank(EventKind::Other).with_price_bands(bands).price_bands(), Some(bands));
        }
        for letter in b"ABCDEFGHI" {
            let standing = Standing::of_letter(*letter).unwrap();
            assert_eq!(blank(EventKind::Other).with_standing(standing).standing(), Some(standing));
        }
        assert_eq!((blank(EventKind::Add).price_bands(), blank(EventKind::Add).standing()), (None, None));
    }

    #[test]
    fn a_symbol_of_any_length_survives_a_round_trip() {
        for length in 1..=Symbol::MOST {
            let symbol = Symbol::from_bytes(b"SPX   260117C05000000".get(..length).unwrap()).unwrap();
            let mapping = blank(EventKind::Other).with_symbol(symbol);
            assert_eq!((mapping.kind, mapping.symbol()), (EventKind::SymbolMapping, Some(symbol)));
            assert_eq!(Event { kind: EventKind::Definition, ..mapping }.symbol(), None);
        }
    }

    #[test]
    fn an_imbalance_is_read_from_its_two_events_and_from_no_others() {
        let imbalance = Imbalance {
            paired: 100,
            imbalance: 20,
            market_imbalance: Some(5),
            side: Side::Ask,
            auction_type: b'C',
            variation: b'L',
            extensions: 2,
            auction_time: Some(Nanos(99 * Nanos::SECOND)),
            reference_price: Price::from_e9(1),
            continuous_clearing_price: None,
            auction_clearing_price: Price::from_e9(3),
            indicative_price: Price::from_e9(4),
            upper_collar: Price::from_e9(5),
            lower_collar: None,
        };
        for (market_imbalance, auction_time) in [
            (None, None),
            (Some(0), None),
            (None, Some(Nanos(0))),
            (Some(u32::MAX - 1), imbalance.auction_time),
        ] {
            let imbalance = Imbalance { market_imbalance, auction_time, ..imbalance };
            let [first, second] = blank(EventKind::Imbalance).with_imbalance(imbalance);
            assert_eq!(first.imbalance(&second), Some(imbalance));
        }
        let [first, second] = blank(EventKind::Imbalance).with_imbalance(imbalance);
        assert_eq!(first.imbalance(&second), Some(imbalance));
        assert_eq!(
            (first.ts_recv, second.ts_recv),
            (Nanos(12), Nanos(12)),
            "clocks may be set by either half"
        );
        assert_eq!(first.imbalance(&first), None);
        let mut other = second;
        other.instrument = InstrumentId(8);
        assert_eq!(first.imbalance(&other), None);
    }

    #[test]
    fn gaps_and_sessions_survive_a_round_trip() {
        let gap = Gap { first: 10, count: 3 };
        assert_eq!(blank(EventKind::Gap).with_gap(gap).gap(), Some(gap));
        for session in [Session::StartOfMessages, Session::StartOfMarketHours, Session::EndOfMessages] {
            assert_eq!(blank(EventKind::Session).with_session(session).session(), Some(session));
        }
    }

    #[test]
    fn the_delay_is_clamped_to_the_range_of_dbn_for_any_two_times() {
        let delay = |from, to| {
            let mut event = blank(EventKind::Add);
            (event.ts_event, event.ts_recv) = (Nanos(from), Nanos(to));
            event.ts_in_delta()
        };
        assert_eq!([delay(5, 5), delay(5, 7), delay(7, 5)], [0, 2, -2]);
        assert_eq!([delay(0, 1 << 31), delay(0, (1 << 31) - 1)], [i32::MAX; 2]);
        assert_eq!([delay(1 << 31, 0), delay((1 << 31) + 1, 0)], [i32::MIN; 2]);
        assert_eq!([delay(0, u64::MAX), delay(u64::MAX, 0)], [i32::MAX, i32::MIN]);
    }
}
