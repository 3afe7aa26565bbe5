//! The record of an exchange's orders: what truly happened to each, whatever faults make the users believe.

use crate::matching::OrderId;

use super::ids::base_62;

/// A user of one of the gateways, by its place in the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderUser {
    /// Of the native gateway.
    Native(usize),
    /// Of the OUCH gateway.
    Ouch(usize),
}

/// Something that happened to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When, in nanoseconds since 1970 UTC.
    pub time_ns: u64,
    /// Whose order it is.
    pub user: OrderUser,
    /// The order.
    pub order: OrderId,
    /// The event.
    pub event: LedgerEvent,
}

impl LedgerEntry {
    /// The order's id as the user's reports have it.
    #[must_use]
    pub fn order_id(&self) -> String {
        match self.user {
            OrderUser::Native(_) => base_62(self.order.number()).to_string(),
            OrderUser::Ouch(_) => self.order.number().to_string(),
        }
    }
}

/// The events of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerEvent {
    /// It was accepted.
    Accepted {
        /// Its quantity.
        quantity: u32,
    },
    /// It traded.
    Filled {
        /// The number of the trade.
        match_number: u64,
        /// The price, in 1e-8.
        price_e8: i64,
        /// How many.
        quantity: u32,
        /// How many are left; 0: it has ended.
        leaves: u32,
    },
    /// It was replaced or reduced.
    Replaced {
        /// How many are left; 0: it has ended.
        leaves: u32,
    },
    /// It ended with something left.
    Ended {
        /// How many were left.
        left: u32,
    },
    /// A trade of it was cancelled.
    Busted {
        /// The number of the trade.
        match_number: u64,
    },
}
