//! The gateways' state of each working order.

use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::{Capacity, OwnerType, Side};
use tapeworks_wire::nasdaq::ouch50::inbound::{self, CrossType, TimeInForce};

/// The native gateway's state of a working order.
#[derive(Debug, Clone, Copy)]
pub(super) struct NativeOrder {
    pub(super) user: usize,
    pub(super) partition: u8,
    pub(super) instrument_id: i32,
    pub(super) side: Side,
    pub(super) client_order_id: Ascii<20>,
    /// The client order ID of the cancel or amendment in progress, which the resulting report carries.
    pub(super) request_id: Option<Ascii<20>>,
    /// Includes the executed quantity.
    pub(super) quantity: u32,
    pub(super) executed: u32,
    pub(super) display_qty: i32,
    pub(super) minimum_quantity: i32,
    pub(super) owner_type: OwnerType,
    pub(super) capacity: Capacity,
    pub(super) cancels_on_disconnect: bool,
    pub(super) is_suspended: bool,
    /// A side of a quote: its client order ID names the quote, not the order.
    pub(super) is_quote: bool,
}

/// A change in progress that is not a client's replace, although the engine performs a replace.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    /// A cancel that reduces the order by this quantity.
    Reduced(u32),
    Modified,
}

/// The OUCH gateway's state of a working order.
#[derive(Debug, Clone, Copy)]
pub(super) struct OuchOrder {
    pub(super) user: usize,
    /// The user reference number.
    pub(super) reference: u32,
    pub(super) side: inbound::Side,
    /// Includes the executed quantity.
    pub(super) quantity: u32,
    pub(super) executed: u32,
    pub(super) symbol: Ascii<8>,
    pub(super) price: u64,
    pub(super) time_in_force: TimeInForce,
    pub(super) display: inbound::Display,
    pub(super) capacity: inbound::Capacity,
    pub(super) sweep: inbound::InterMarketSweepEligibility,
    pub(super) cross_type: CrossType,
    pub(super) cl_ord_id: Ascii<14>,
    /// The previous reference number, while the order is being replaced.
    pub(super) replaces: Option<u32>,
    pub(super) change: Option<Change>,
}
