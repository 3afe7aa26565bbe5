//! What a translator is set to.

use crate::risk::RiskLimits;

/// The FIX version that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FixVersion {
    /// FIX 4.2: fills are ExecType 1 and 2, and ExecTransType (20) is there.
    Fix42,
    /// FIX 4.4.
    #[default]
    Fix44,
    /// FIX 5.0 SP2.
    Fix50Sp2,
}

/// A client.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// Its version.
    pub version: FixVersion,
    /// The limits of its orders.
    pub limits: RiskLimits,
    /// Tags that it may send though nothing maps them. They are ignored and counted; any other such tag is refused.
    pub ignored_tags: Vec<u32>,
}

/// A translator's capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Orders that are known at a time, ended ones included. The oldest ended ones are forgotten first.
    pub most_orders: usize,
    /// Requests of known orders, and mass cancels, that are known at a time; at least two per order.
    pub most_requests: usize,
    /// Fills that are kept for venues that cancel and correct trades by their number alone.
    pub most_fills: usize,
}

impl Default for Settings {
    /// 65,536 orders, four requests each, and 65,536 fills.
    fn default() -> Self {
        Self { most_orders: 65_536, most_requests: 262_144, most_fills: 65_536 }
    }
}
