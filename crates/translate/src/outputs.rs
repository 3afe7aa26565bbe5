//! What a translator puts out.

use crate::fix_side::Reply;
use crate::ids::ClientIndex;
use crate::orders::Order;
use crate::report::{Doubt, Execution, Report};

/// Takes what a translator puts out. Each call is in order.
pub trait Outputs {
    /// A message to the venue.
    fn to_venue(&mut self, message: &[u8]);

    /// A message to a client.
    fn to_client(&mut self, client: ClientIndex, reply: &Reply<'_>);

    /// A report of the venue that belongs to no order or request that is known, or does not fit the order's state.
    fn unmatched(&mut self, report: &Report);

    /// A report of a known order is in doubt. It is applied, and the client gets the reason, unless the order is uncertain.
    fn doubtful(&mut self, _order: &Order, _report: &Execution, _doubt: Doubt) {}

    /// A fill, or a change of an order, came a second time under another number, and was left out.
    fn repeated(&mut self, _report: &Execution) {}

    /// A message of the venue cannot be read. If it names an order, its client gets the order's status and the reason.
    fn unreadable(&mut self, _message: &[u8], _order: Option<&Order>) {}

    /// The venue rejected a cancel of the gateway's own, and the order works still.
    fn own_cancel_failed(&mut self, _order: &Order) {}

    /// The venue reports for the first time of an order that was requested at this time, in UTC nanoseconds.
    fn first_report(&mut self, _requested_ns: u64) {}
}
