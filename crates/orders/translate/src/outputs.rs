//! The outputs of a translator.

use crate::fix_side::Reply;
use crate::ids::ClientIndex;
use crate::orders::Order;
use crate::report::{Doubt, Execution, Report};

/// Receives the outputs of a translator, in order.
pub trait Outputs {
    /// Sends a message to the venue.
    fn to_venue(&mut self, message: &[u8]);

    /// Sends a message to a client.
    fn to_client(&mut self, client: ClientIndex, reply: &Reply<'_>);

    /// Called for a report that matches no known order or request, or does not fit the order's state.
    fn unmatched(&mut self, report: &Report);

    /// Called for a report of a known order that is in doubt. It is applied unless the order itself is uncertain; the client gets
    /// the reason.
    fn doubtful(&mut self, _order: &Order, _report: &Execution, _doubt: Doubt) {}

    /// Called for a fill, or a change of an order, that arrived again under another number and was ignored.
    fn repeated(&mut self, _report: &Execution) {}

    /// Called for an unreadable message from the venue. If it names an order, the order's client gets its status and the reason.
    fn unreadable(&mut self, _message: &[u8], _order: Option<&Order>) {}

    /// Called when the venue rejects one of the gateway's own cancels, and the order is still working.
    fn own_cancel_failed(&mut self, _order: &Order) {}

    /// Called for the venue's first report of an order, with the time of the request in UTC nanoseconds.
    fn first_report(&mut self, _requested_ns: u64) {}
}
