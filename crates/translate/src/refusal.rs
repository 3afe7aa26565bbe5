//! Why a client's message is not sent to the venue, and the reject that the client gets.

use tapeworks_wire::fix::ReadError;

use crate::risk::Breach;
use crate::venue::Unmapped;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It breaks a rule of its declaration: session reject.
    Unread(ReadError),
    /// A value that the gateway or the venue does not take: session reject with reason 5.
    Value { tag: u32 },
    /// An id that is longer than 64 characters, or has others than printable ones: session reject with reason 5.
    Id { tag: u32 },
    /// A routing tag whose value is longer than 64 characters, or has others than printable ones: session reject with reason 5.
    Routing { tag: u32 },
    /// The client has used too many combinations of routing tags: see [`Route`](crate::Route).
    Routes,
    /// A field without a counterpart: BusinessMessageReject with reason 0.
    NoCounterpart { tag: u32 },
    /// A field that the others require: BusinessMessageReject with reason 5.
    Missing { tag: u32 },
    /// BusinessMessageReject with reason 2.
    UnknownInstrument,
    /// BusinessMessageReject with reason 3.
    UnsupportedType,
    /// No connection to the venue: BusinessMessageReject with reason 4.
    NotAvailable,
    /// A limit of the client.
    Breach(Breach),
    /// The ClOrdID is known already.
    Duplicate,
    /// The price is no multiple of the tick.
    Tick,
    /// Everything that may be known is working.
    NoRoom,
    /// The kill switch of the gateway.
    Halted,
    /// Reports of the partition are missing, in which the instrument is: what the client has is not known.
    Behind,
    /// A report of the instrument is in doubt, and has halted it.
    Doubtful,
    /// Of a cancel or replace: no such order.
    UnknownOrder,
    /// Of a cancel or replace: the order ended.
    TooLate,
    /// Of a QuoteCancel: no such quote.
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
    /// The text of the reject; a tag goes behind it.
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

    /// The tag that is wrong; 0: none.
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

    /// SessionRejectReason (373); `None`: another reject.
    pub(crate) const fn session_reason(self) -> Option<i64> {
        match self {
            Self::Unread(ReadError::Rejected { reason, .. }) => Some(reason.number() as i64),
            Self::Unread(ReadError::OtherType) => Some(11),
            Self::Unread(ReadError::Garbled(_)) => Some(6),
            Self::Value { .. } | Self::Id { .. } | Self::Routing { .. } => Some(5),
            _ => None,
        }
    }

    /// BusinessRejectReason (380); `None`: another reject.
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

    /// OrdRejReason (103) of a new order.
    pub(crate) const fn order_reason(self) -> i64 {
        match self {
            Self::Breach(breach) => breach.order_reason(),
            Self::Duplicate => 6,
            Self::Halted => 0,
            _ => 99,
        }
    }

    /// QuoteStatus (297) of a quote, mass quote or cancel of a quote.
    pub(crate) const fn quote_status(self) -> i64 {
        match self {
            Self::UnknownQuote => 9,
            _ => 5,
        }
    }

    /// QuoteRejectReason (300).
    pub(crate) const fn quote_reason(self) -> i64 {
        match self {
            Self::Duplicate => 6,
            Self::Tick => 8,
            Self::Breach(Breach::Quantity | Breach::Notional | Breach::OpenOrders | Breach::Rate) => 3,
            Self::UnknownQuote => 5,
            _ => 99,
        }
    }

    /// CxlRejReason (102) of a cancel or replace.
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
