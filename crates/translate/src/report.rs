//! Reports of a venue: plain values between the two sides, as [`Venue::read`](crate::Venue::read) gives them.

use tapeworks_wire::fix::order_entry::Side;

use crate::ids::{ExecutionId, VenueName, VenueOrderId};

/// The number of a report: per App ID (the partition), from 1 each day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    /// The App ID.
    pub app_id: u8,
    /// The number; 0: the venue's reports have none.
    pub number: u32,
}

/// The kind of an execution report. Its number is the code of the event of [`ExchangeToClient`](crate::ExchangeToClient).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExecutionKind {
    /// The order is accepted.
    Accepted = 1,
    /// The order traded.
    Trade = 2,
    /// The order is cancelled, by request or not.
    Cancelled = 3,
    /// The order is replaced.
    Replaced = 4,
    /// The order is rejected.
    Rejected = 5,
    /// The order is over by itself.
    Expired = 6,
    /// The venue changed the order.
    Restated = 7,
    /// A trade of the order is cancelled (busted).
    TradeCancelled = 8,
    /// A trade of the order is corrected.
    TradeCorrected = 9,
    /// The order is suspended.
    Suspended = 10,
    /// A cancel of the order waits until it may be carried out.
    PendingCancel = 11,
}

/// Whether a trade added liquidity: LastLiquidityInd (851).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liquidity {
    /// Added.
    Added,
    /// Removed.
    Removed,
    /// Neither: an auction.
    Auction,
}

/// What happened to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// What.
    pub kind: ExecutionKind,
    /// The report's number.
    pub numbered: Numbered,
    /// The request that it answers, or the order's name.
    pub name: VenueName,
    /// The venue's id of the order; blank: none.
    pub order_id: VenueOrderId,
    /// The venue's id of this execution.
    pub execution_id: ExecutionId,
    /// Of a cancelled or corrected trade: the execution that is meant.
    pub reference: ExecutionId,
    /// The quantity of the trade, of the cancelled trade (0: the translator knows it by `match_id`), or of the trade as corrected.
    /// Of a cancelled order whose `leaves` are `None`: how much is cancelled.
    pub last_quantity: u32,
    /// Its price in 1e-8.
    pub last_price_e8: i64,
    /// The quantity of the corrected trade before.
    pub corrected_quantity: u32,
    /// The price of the corrected trade before, in 1e-8.
    pub corrected_price_e8: i64,
    /// What is left of the order; `None`: the venue does not say, and it is what was left less `last_quantity`.
    pub leaves: Option<u32>,
    /// Of a cancelled order: a cancel that the report does not name requested it.
    pub is_requested: bool,
    /// The number of the trade; 0: none.
    pub match_id: u64,
    /// Whether the trade added liquidity.
    pub liquidity: Option<Liquidity>,
    /// The venue's reason of a reject; 0: none.
    pub reject_code: i32,
    /// ExecRestatementReason (378) of a restatement.
    pub restatement: i64,
    /// Of a restatement: the new price in 1e-8, if it changed.
    pub restated_price_e8: Option<i64>,
    /// The venue's number of the instrument, or its symbol as one; `None`: the venue does not say.
    pub instrument: Option<u64>,
    /// The side: the two orders of a quote have one name. `None`: the venue does not say, or it means both.
    pub side: Option<Side>,
    /// Why the venue did it, in words; empty: it does not say.
    pub why: &'static str,
    /// When, in UTC nanoseconds.
    pub time_ns: u64,
}

impl Execution {
    /// A reject of a new order that the gateway makes itself.
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

/// What is wrong with a report of an order. It is applied where the order is certain, and the client gets the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A fill of nothing.
    NoQuantity,
    /// More is filled than the order had left.
    TooMuch,
    /// A fill beyond the order's limit.
    BeyondLimit,
    /// A fill at 0 or below, of an instrument that is not traded there.
    NotPositive,
    /// The report is of the other side.
    Side,
    /// The report is of another instrument.
    Instrument,
    /// The report has another OrderID than the order: its end is not taken for the order's.
    OrderId,
    /// A bust of other figures than those of the fill that it names, which is undone.
    OtherFigures,
    /// A bust of a fill that is not known, by the report's figures.
    UnknownFill,
    /// The report cannot be read.
    Unreadable,
}

impl Doubt {
    /// Whether the report may be of another order.
    pub(crate) const fn is_of_identity(self) -> bool {
        matches!(self, Self::OrderId | Self::Side | Self::Instrument)
    }

    /// The text that the client gets.
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

/// A cancel or replace was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRejected {
    /// The report's number.
    pub numbered: Numbered,
    /// The request.
    pub name: VenueName,
    /// The venue's reason; 0: none.
    pub reject_code: i32,
    /// When, in UTC nanoseconds.
    pub time_ns: u64,
}

/// A mass cancel was accepted or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassCancelled {
    /// The report's number.
    pub numbered: Numbered,
    /// The request.
    pub name: VenueName,
    /// Whether it was accepted.
    pub is_accepted: bool,
    /// The venue's reason of a reject; 0: none.
    pub reject_code: i32,
    /// When, in UTC nanoseconds.
    pub time_ns: u64,
}

/// The venue could not take a message at all: Reject and Business Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The report's number; a Reject has none.
    pub numbered: Numbered,
    /// The request.
    pub name: VenueName,
    /// The venue's reason; 0: none.
    pub reject_code: i32,
}

/// A report of the venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "reports live on the stack for one call")]
pub enum Report {
    /// Of an order.
    Execution(Execution),
    /// Of a cancel or replace.
    CancelRejected(CancelRejected),
    /// Of a mass cancel.
    MassCancelled(MassCancelled),
    /// Of any request.
    Refused(Refused),
}

impl Report {
    /// The name of the request that it names.
    pub(crate) const fn name(&self) -> VenueName {
        match self {
            Self::Execution(report) => report.name,
            Self::CancelRejected(report) => report.name,
            Self::MassCancelled(report) => report.name,
            Self::Refused(report) => report.name,
        }
    }

    /// The report's number.
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
