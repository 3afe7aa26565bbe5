//! Reports from a venue: plain values between the two sides, as decoded by [`Venue::read`](crate::Venue::read).

use tapeworks_fix_wire::order_entry::Side;

use crate::ids::{ExecutionId, VenueName, VenueOrderId};

/// The number of a report: counted per App ID (the partition), from 1 each day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    /// The App ID.
    pub app_id: u8,
    /// The number; 0: the venue does not number its reports.
    pub number: u32,
}

/// The kind of an execution report. Its value is the code of the corresponding event of
/// [`ExchangeToClient`](crate::ExchangeToClient).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExecutionKind {
    /// The order was accepted.
    Accepted = 1,
    /// The order traded.
    Trade = 2,
    /// The order was cancelled, whether requested or not.
    Cancelled = 3,
    /// The order was replaced.
    Replaced = 4,
    /// The order was rejected.
    Rejected = 5,
    /// The order expired.
    Expired = 6,
    /// The venue changed the order.
    Restated = 7,
    /// A trade of the order was cancelled (busted).
    TradeCancelled = 8,
    /// A trade of the order was corrected.
    TradeCorrected = 9,
    /// The order was suspended.
    Suspended = 10,
    /// A cancel of the order is pending until it can be carried out.
    PendingCancel = 11,
}

/// Whether a trade added liquidity: LastLiquidityInd (851).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liquidity {
    /// The trade added liquidity.
    Added,
    /// The trade removed liquidity.
    Removed,
    /// Neither: the trade was in an auction.
    Auction,
}

/// An event of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The kind of event.
    pub kind: ExecutionKind,
    /// The number of the report.
    pub numbered: Numbered,
    /// The name of the request that it answers, or of the order.
    pub name: VenueName,
    /// The venue's id of the order; blank: none.
    pub order_id: VenueOrderId,
    /// The venue's id of this execution.
    pub execution_id: ExecutionId,
    /// For a cancelled or corrected trade: the execution that it refers to.
    pub reference: ExecutionId,
    /// The quantity of the trade, of the cancelled trade (0: the translator finds it by `match_id`), or of the trade after its
    /// correction. For a cancelled order whose `leaves` is `None`: the cancelled quantity.
    pub last_quantity: u32,
    /// The price of that quantity, in 1e-8.
    pub last_price_e8: i64,
    /// The quantity of the trade before its correction.
    pub corrected_quantity: u32,
    /// The price of the trade before its correction, in 1e-8.
    pub corrected_price_e8: i64,
    /// The order's open quantity; `None`: the venue does not state it, and it is the previous open quantity less `last_quantity`.
    pub leaves: Option<u32>,
    /// For a cancelled order: whether it was requested by a cancel that the report does not name.
    pub is_requested: bool,
    /// The trade's number; 0: none.
    pub match_id: u64,
    /// Whether the trade added liquidity.
    pub liquidity: Option<Liquidity>,
    /// The venue's reject reason; 0: none.
    pub reject_code: i32,
    /// ExecRestatementReason (378) of a restatement.
    pub restatement: i64,
    /// For a restatement: the new price in 1e-8, if it changed.
    pub restated_price_e8: Option<i64>,
    /// The venue's number of the instrument, or its symbol as a number; `None`: the venue does not state it.
    pub instrument: Option<u64>,
    /// The side, because the two orders of a quote share a name. `None`: the venue does not state it, or the report is about both.
    pub side: Option<Side>,
    /// The venue's reason in words; empty: none given.
    pub why: &'static str,
    /// The time of the event, in UTC nanoseconds.
    pub time_ns: u64,
}

impl Execution {
    /// Builds a reject of a new order on behalf of the gateway.
    pub(crate) fn rejected(name: VenueName, execution_id: ExecutionId, time_ns: u64) -> Self {
        Self {
            kind: ExecutionKind::Rejected,
            numbered: Numbered::default(),
            name,
            order_id: VenueOrderId::default(),
            execution_id,
            reference: ExecutionId::default(),
            last_quantity: 0,
            last_price_e8: 0,
            corrected_quantity: 0,
            corrected_price_e8: 0,
            leaves: Some(0),
            is_requested: false,
            match_id: 0,
            liquidity: None,
            reject_code: 0,
            restatement: 0,
            restated_price_e8: None,
            instrument: None,
            side: None,
            why: "",
            time_ns,
        }
    }
}

/// A problem with a report of an order. The report is applied if its order is certain, and the client gets the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A fill of quantity 0.
    NoQuantity,
    /// A fill of more than the order had left.
    TooMuch,
    /// A fill beyond the order's limit.
    BeyondLimit,
    /// A fill at a price of 0 or below, in an instrument that has no such prices.
    NotPositive,
    /// The report's side is not the order's.
    Side,
    /// The report's instrument is not the order's.
    Instrument,
    /// The report's OrderID is not the order's, so a report that ends an order does not end this one.
    OrderId,
    /// A bust or a correction whose figures differ from those of the fill that it names. The fill's own figures are reversed.
    OtherFigures,
    /// A bust or a correction of an unknown fill, applied with the report's figures.
    UnknownFill,
    /// The report cannot be read.
    Unreadable,
}

impl Doubt {
    /// Returns whether the report may be about another order.
    pub(crate) const fn is_of_identity(self) -> bool {
        matches!(self, Self::OrderId | Self::Side | Self::Instrument)
    }

    /// Returns the text for the client.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoQuantity => "In doubt: the venue reports a fill of 0",
            Self::TooMuch => "In doubt: the venue reports a fill of more than the order had left",
            Self::BeyondLimit => "In doubt: the venue reports a fill beyond the limit",
            Self::NotPositive => "In doubt: the venue reports a fill at a price of 0 or below",
            Self::Side => "In doubt: the venue's report is of the other side",
            Self::Instrument => "In doubt: the venue's report is of another instrument",
            Self::OrderId => "In doubt: the venue's report has the OrderID of another order",
            Self::OtherFigures => "In doubt: the venue cancels a fill with other figures than it reported",
            Self::UnknownFill => "In doubt: the venue cancels a fill that it did not report",
            Self::Unreadable => "In doubt: a report of the venue cannot be read",
        }
    }
}

/// A rejected cancel or replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRejected {
    /// The number of the report.
    pub numbered: Numbered,
    /// The name of the request.
    pub name: VenueName,
    /// The venue's reason; 0: none.
    pub reject_code: i32,
    /// The time of the event, in UTC nanoseconds.
    pub time_ns: u64,
}

/// An accepted or rejected mass cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassCancelled {
    /// The number of the report.
    pub numbered: Numbered,
    /// The name of the request.
    pub name: VenueName,
    /// Whether it was accepted.
    pub is_accepted: bool,
    /// The venue's reject reason; 0: none.
    pub reject_code: i32,
    /// The time of the event, in UTC nanoseconds.
    pub time_ns: u64,
}

/// A message that the venue could not process at all: Reject and Business Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The number of the report; a Reject has none.
    pub numbered: Numbered,
    /// The name of the request.
    pub name: VenueName,
    /// The venue's reason; 0: none.
    pub reject_code: i32,
}

/// A report from the venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "reports live on the stack for one call")]
pub enum Report {
    /// An event of an order.
    Execution(Execution),
    /// A rejected cancel or replace.
    CancelRejected(CancelRejected),
    /// The answer to a mass cancel.
    MassCancelled(MassCancelled),
    /// A request of any kind that the venue could not process.
    Refused(Refused),
}

impl Report {
    /// Returns the name of the request that the report names.
    pub(crate) const fn name(&self) -> VenueName {
        match self {
            Self::Execution(report) => report.name,
            Self::CancelRejected(report) => report.name,
            Self::MassCancelled(report) => report.name,
            Self::Refused(report) => report.name,
        }
    }

    /// Returns the number of the report.
    #[must_use]
    pub const fn numbered(&self) -> Numbered {
        match self {
            Self::Execution(report) => report.numbered,
            Self::CancelRejected(report) => report.numbered,
            Self::MassCancelled(report) => report.numbered,
            Self::Refused(report) => report.numbered,
        }
    }
}
