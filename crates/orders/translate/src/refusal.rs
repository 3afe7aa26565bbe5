//! Why a client's message is not sent to the venue, and the reject for the client.

use tapeworks_fix_wire::ReadError;

use crate::risk::Breach;
use crate::venue::Unmapped;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It violates its declaration: session reject.
    Unread(ReadError),
    /// A value that the gateway or the venue does not accept: session reject with reason 5.
    Value { tag: u32 },
    /// An id that is longer than 64 characters or not printable: session reject with reason 5.
    Id { tag: u32 },
    /// A routing tag whose value is longer than 64 characters or not printable: session reject with reason 5.
    Routing { tag: u32 },
    /// The client has used too many combinations of routing tags: see [`Route`](crate::Route).
    Routes,
    /// A field that the venue does not have: BusinessMessageReject with reason 0.
    NoCounterpart { tag: u32 },
    /// A missing field that the others require: BusinessMessageReject with reason 5.
    Missing { tag: u32 },
    /// An unknown instrument: BusinessMessageReject with reason 2.
    UnknownInstrument,
    /// An unsupported message type: BusinessMessageReject with reason 3.
    UnsupportedType,
    /// No connection to the venue: BusinessMessageReject with reason 4.
    NotAvailable,
    /// A limit of the client is exceeded.
    Breach(Breach),
    /// The ClOrdID is already in use.
    Duplicate,
    /// The price is not a multiple of the tick.
    Tick,
    /// All room is taken by working orders.
    NoRoom,
    /// The gateway's kill switch is on.
    Halted,
    /// Reports of the instrument's partition are missing, so the client's position is not known.
    Behind,
    /// An in-doubt report has halted the instrument.
    Doubtful,
    /// The order to cancel or replace does not exist.
    UnknownOrder,
    /// The order to cancel or replace has ended.
    TooLate,
    /// The quote to cancel does not exist.
    UnknownQuote,
}

impl From<Unmapped> for Refusal {
    fn from(unmapped: Unmapped) -> Self {
        match unmapped {
            Unmapped::Value { tag } => Self::Value { tag },
            Unmapped::Field { tag } => Self::NoCounterpart { tag },
            Unmapped::Request => Self::UnsupportedType,
        }
    }
}

impl Refusal {
    /// Returns the text of the reject, which a tag may follow.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Unread(ReadError::Rejected { reason, .. }) => reason.text(),
            Self::Unread(_) => "The message cannot be read",
            Self::Value { .. } => "The venue does not take the value of tag",
            Self::Id { .. } => "An id needs 1 to 64 printable characters and no trailing space: tag",
            Self::Routing { .. } => "A routing tag may have 64 printable characters: tag",
            Self::Routes => {
                "Too many combinations of SenderSubID, OnBehalfOfCompID and other routing tags today"
            }
            Self::NoCounterpart { .. } => "The venue has no counterpart for tag",
            Self::Missing { .. } => "The values of the other fields require tag",
            Self::UnknownInstrument => "Unknown instrument",
            Self::UnsupportedType => "Unsupported message type",
            Self::NotAvailable => "The venue is not available",
            Self::Breach(breach) => breach.text(),
            Self::Duplicate => "The ClOrdID is in use",
            Self::Tick => "The price is not a multiple of the tick",
            Self::NoRoom => "As many orders work as may",
            Self::Halted => "Trading is halted",
            Self::Behind => "Reports of the instrument's partition are missing",
            Self::Doubtful => "Trading in the instrument is halted: a report of the venue is in doubt",
            Self::UnknownOrder => "Unknown order",
            Self::TooLate => "The order has ended",
            Self::UnknownQuote => "Unknown quote",
        }
    }

    /// Returns the offending tag; 0: none.
    pub(crate) const fn tag(self) -> u32 {
        match self {
            Self::Unread(ReadError::Rejected { tag, .. })
            | Self::Value { tag }
            | Self::Id { tag }
            | Self::Routing { tag }
            | Self::NoCounterpart { tag }
            | Self::Missing { tag } => tag,
            _ => 0,
        }
    }

    /// Returns SessionRejectReason (373); `None`: not a session reject.
    pub(crate) const fn session_reason(self) -> Option<i64> {
        match self {
            Self::Unread(ReadError::Rejected { reason, .. }) => Some(reason.number() as i64),
            Self::Unread(ReadError::OtherType) => Some(11),
            Self::Unread(ReadError::Garbled(_)) => Some(6),
            Self::Value { .. } | Self::Id { .. } | Self::Routing { .. } => Some(5),
            _ => None,
        }
    }

    /// Returns BusinessRejectReason (380); `None`: not a business reject.
    pub(crate) const fn business_reason(self) -> Option<i64> {
        match self {
            Self::NoCounterpart { .. } => Some(0),
            Self::UnknownInstrument => Some(2),
            Self::UnsupportedType => Some(3),
            Self::NotAvailable => Some(4),
            Self::Missing { .. } => Some(5),
            _ => None,
        }
    }

    /// Returns OrdRejReason (103) for a new order.
    pub(crate) const fn order_reason(self) -> i64 {
        match self {
            Self::Breach(breach) => breach.order_reason(),
            Self::Duplicate => 6,
            Self::Halted => 0,
            _ => 99,
        }
    }

    /// Returns QuoteStatus (297) for a quote, a mass quote, or a quote cancel.
    pub(crate) const fn quote_status(self) -> i64 {
        match self {
            Self::UnknownQuote => 9,
            _ => 5,
        }
    }

    /// Returns QuoteRejectReason (300).
    pub(crate) const fn quote_reason(self) -> i64 {
        match self {
            Self::Duplicate => 6,
            Self::Tick => 8,
            Self::Breach(Breach::Quantity | Breach::Notional | Breach::OpenOrders | Breach::Rate) => 3,
            Self::UnknownQuote => 5,
            _ => 99,
        }
    }

    /// Returns CxlRejReason (102) for a cancel or replace.
    pub(crate) const fn cancel_reason(self) -> i64 {
        match self {
            Self::Breach(breach) => breach.cancel_reason(),
            Self::Duplicate => 6,
            Self::Halted => 2,
            Self::UnknownOrder => 1,
            Self::TooLate => 0,
            Self::Tick => 18,
            _ => 99,
        }
    }
}
