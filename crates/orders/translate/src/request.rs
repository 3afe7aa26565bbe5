//! Requests from a client to the venue, in FIX terms and the venue's units: plain values between the two sides.
//!
//! Prices are in 1e-8, quantities are whole numbers. A venue's table maps them, and refuses fields that it has no counterpart for.

use tapeworks_fix_wire::order_entry::{OrdType, OrderCapacity, Side, TimeInForce};
use tapeworks_wire::Ascii;

use crate::ids::{VenueName, VenueOrderId};

/// The short codes of an order's parties: PartyRole (452) 3, 122 and 12. 0: not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parties {
    /// The client, role 3.
    pub client: u32,
    /// The investment decision maker, role 122.
    pub decision_maker: u32,
    /// The executing trader, role 12.
    pub trader: u32,
}

/// NewOrderSingle (D).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The request's name at the venue.
    pub name: VenueName,
    /// Side (54).
    pub side: Side,
    /// OrdType (40).
    pub kind: OrdType,
    /// TimeInForce (59); absent means day.
    pub time_in_force: TimeInForce,
    /// ExpireTime (126), or the last second of ExpireDate (432), in seconds since 1970 UTC; 0: none.
    pub expire_s: u32,
    /// OrderQty (38).
    pub quantity: u32,
    /// DisplayQty (1138), MaxShow (210) or MaxFloor (111); the quantity if all are absent.
    pub display: u32,
    /// MinQty (110); 0: none.
    pub minimum: u32,
    /// Price (44) in 1e-8; 0: none.
    pub price_e8: i64,
    /// StopPx (99) in 1e-8; 0: none.
    pub stop_e8: i64,
    /// OrderCapacity (528).
    pub capacity: Option<OrderCapacity>,
    /// Account (1), blank if absent.
    pub account: Ascii<20>,
    /// Parties (453).
    pub parties: Parties,
    /// Whether ExecInst (18) is 6, participate don't initiate.
    pub is_passive_only: bool,
}

/// OrderCancelRequest (F).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The request's name at the venue.
    pub name: VenueName,
    /// The name of the request to which OrigClOrdID (41) refers.
    pub original: VenueName,
    /// The venue's id of the order, if known.
    pub order_id: VenueOrderId,
    /// The side of the order.
    pub side: Side,
}

/// OrderCancelReplaceRequest (G).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replace {
    /// The order's name after the replace.
    pub name: VenueName,
    /// The name of the request to which OrigClOrdID (41) refers.
    pub original: VenueName,
    /// The venue's id of the order, if known.
    pub order_id: VenueOrderId,
    /// The order after the replace. Its `name` is the name of the replace.
    pub order: NewOrder,
    /// The order before the replace.
    pub before: NewOrder,
}

/// OrderMassCancelRequest (q) for the orders of one instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassCancel {
    /// The request's name at the venue.
    pub name: VenueName,
    /// Whether it cancels quotes instead of orders.
    pub is_of_quotes: bool,
}

/// One side of a quote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuoteSide {
    /// BidSize (134) or OfferSize (135); 0: the quote does not have this side.
    pub quantity: u32,
    /// BidPx (132) or OfferPx (133) in 1e-8.
    pub price_e8: i64,
}

/// Quote (S), or an entry of a MassQuote (i).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The name of the request at the venue, which both sides share.
    pub name: VenueName,
    /// The bid.
    pub bid: QuoteSide,
    /// The offer.
    pub offer: QuoteSide,
    /// OrderCapacity (528).
    pub capacity: Option<OrderCapacity>,
    /// Parties (453).
    pub parties: Parties,
}

impl Quote {
    /// Returns a side as an order: a limit order for the day.
    #[must_use]
    pub fn order(&self, side: Side) -> NewOrder {
        let QuoteSide { quantity, price_e8 } = if side == Side::Buy { self.bid } else { self.offer };
        NewOrder {
            name: self.name,
            side,
            kind: OrdType::Limit,
            time_in_force: TimeInForce::Day,
            expire_s: 0,
            quantity,
            display: quantity,
            minimum: 0,
            price_e8,
            stop_e8: 0,
            capacity: self.capacity,
            account: Ascii::default(),
            parties: self.parties,
            is_passive_only: false,
        }
    }
}

/// A request to the venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "requests live on the stack for one call")]
pub enum Request {
    /// A new order.
    New(NewOrder),
    /// A cancel.
    Cancel(Cancel),
    /// A replace.
    Replace(Replace),
    /// A mass cancel.
    MassCancel(MassCancel),
    /// A quote.
    Quote(Quote),
}

/// What a message to the venue requests, as far as the message itself states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The name by which the venue's reports refer to the request.
    pub name: Option<VenueName>,
    /// For a cancel without its own name: the name of the request whose order it cancels.
    pub cancelled: Option<VenueName>,
    /// The venue's number of the instrument, or its symbol as a number; `None` if the message states none.
    pub instrument: Option<u64>,
}

impl Requested {
    /// Returns whether both have the same names.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.name, self.cancelled) == (other.name, other.cancelled)
    }

    /// Returns whether both are for the same instrument, if both state one.
    #[must_use]
    pub fn is_of_same_instrument(&self, other: &Self) -> bool {
        self.instrument.zip(other.instrument).is_none_or(|(one, other)| one == other)
    }
}
