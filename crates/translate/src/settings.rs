//! What a translator is set to.

use tapeworks_wire::fix::IgnoredTags;

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
    pub ignored_tags: IgnoredTags,
}

/// A translator's capacities, and what it does about reports in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Orders that are known at a time, ended ones included. The oldest ended ones are forgotten first.
    pub most_orders: usize,
    /// Requests of known orders, and mass cancels, that are known at a time; at least two per order.
    pub most_requests: usize,
    /// Fills, and changes of working orders, that are kept: to know one that comes again, and the fill that a bust or a correction means.
    pub most_fills: usize,
    /// Whether an instrument with a report in doubt gets no new orders, replaces and quotes until
    /// [`Translator::resume`](crate::Translator::resume). Cancels pass.
    pub halts_doubtful: bool,
}

impl Default for Settings {
    /// 65,536 orders, four requests each, and 65,536 fills.
    fn default() -> Self {
        Self { most_orders: 65_536, most_requests: 262_144, most_fills: 65_536, halts_doubtful: false }
    }
}
