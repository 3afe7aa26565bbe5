//! The record of an exchange's orders: what truly happened to each order, whatever faults make the users believe.

use crate::engine::OrderId;

use super::ids::base_62;

/// A user of one of the gateways, by its index in the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderUser {
    /// A user of the native gateway.
    Native(usize),
    /// A user of the OUCH gateway.
    Ouch(usize),
}

/// An event of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When, in nanoseconds since 1970 UTC.
    pub time_ns: u64,
    /// The order's user.
    pub user: OrderUser,
    /// The order.
    pub order: OrderId,
    /// The event.
    pub event: LedgerEvent,
}

impl LedgerEntry {
    /// Returns the order ID as it appears in the user's reports.
    #[must_use]
    pub fn order_id(&self) -> String {
        match self.user {
            OrderUser::Native(_) => base_62(self.order.number()).to_string(),
            OrderUser::Ouch(_) => self.order.number().to_string(),
        }
    }
}

/// The kinds of order events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerEvent {
    /// The order was accepted.
    Accepted {
        /// Its quantity.
        quantity: u32,
    },
    /// The order traded.
    Filled {
        /// The trade's number.
        match_number: u64,
        /// The price, in 1e-8.
        price_e8: i64,
        /// Traded quantity.
        quantity: u32,
        /// Open quantity; at 0 the order has ended.
        leaves: u32,
    },
    /// The order was replaced or reduced.
    Replaced {
        /// Open quantity; at 0 the order has ended.
        leaves: u32,
    },
    /// The order ended with open quantity.
    Ended {
        /// The quantity that was open.
        left: u32,
    },
    /// A trade of the order was cancelled.
    Busted {
        /// The trade's number.
        match_number: u64,
    },
}
