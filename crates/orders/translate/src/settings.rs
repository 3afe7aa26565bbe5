//! The settings of a translator.

use tapeworks_fix_wire::IgnoredTags;

use crate::risk::RiskLimits;

/// The FIX version that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FixVersion {
    /// FIX 4.2: fills are ExecType 1 and 2, and ExecTransType (20) exists.
    Fix42,
    /// FIX 4.4.
    #[default]
    Fix44,
    /// FIX 5.0 SP2.
    Fix50Sp2,
}

/// The settings of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// Its FIX version.
    pub version: FixVersion,
    /// The limits of its orders.
    pub limits: RiskLimits,
    /// Unmapped tags that it may send. They are ignored and counted; other unmapped tags are refused.
    pub ignored_tags: IgnoredTags,
}

/// A translator's capacities, and its treatment of in-doubt reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of known orders, including ended ones. The oldest ended orders are forgotten first.
    pub most_orders: usize,
    /// Maximum number of known requests of orders, and of mass cancels; at least two per order.
    pub most_requests: usize,
    /// Maximum number of remembered fills and changes of working orders, which serve to detect repeated reports, and to find the
    /// fill that a bust or a correction refers to.
    pub most_fills: usize,
    /// Whether an instrument with an in-doubt report accepts no new orders, replaces or quotes until
    /// [`Translator::resume`](crate::Translator::resume). Cancels pass.
    pub halts_doubtful: bool,
}

impl Default for Settings {
    /// The defaults: 65,536 orders, four requests each, and 65,536 fills.
    fn default() -> Self {
        Self { most_orders: 65_536, most_requests: 262_144, most_fills: 65_536, halts_doubtful: false }
    }
}
