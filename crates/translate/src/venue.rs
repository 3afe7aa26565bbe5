//! A venue's mapping table: requests to its bytes, its bytes to reports. Nothing else of the crate knows a venue.

use thiserror::Error;

use crate::ids::{ClOrdId, VenueName, VenueOrderId};
use crate::reference::Instrument;
use crate::report::{Execution, Report};
use crate::request::{Request, Requested};

/// Bytes of the longest message to a venue.
pub const MOST_MESSAGE_BYTES: usize = 256;

/// A field of a request that the venue's table does not map. It becomes a reject that names the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unmapped {
    /// The venue has the field, but not this value: session reject with reason 5.
    #[error("the venue has no counterpart for the value of tag {tag}")]
    Value {
        /// The field's tag.
        tag: u32,
    },
    /// The venue has no such field: BusinessMessageReject with reason 0.
    #[error("the venue has no counterpart for tag {tag}")]
    Field {
        /// The field's tag.
        tag: u32,
    },
    /// The venue has no such request: BusinessMessageReject with reason 3.
    #[error("the venue has no counterpart for the message")]
    Request,
}

/// A message of the venue that is no report of its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the venue's message of {length} bytes is no report")]
pub struct Unreadable {
    /// Its length.
    pub length: usize,
    /// The request that it names, where its kind shows the place of the name.
    pub name: Option<VenueName>,
    /// The order that it names likewise; blank: none.
    pub order_id: VenueOrderId,
}

/// A reject code of a venue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectReason {
    /// The venue's code.
    pub code: i32,
    /// OrdRejReason (103) of an order that is rejected with it.
    pub order_reason: u16,
    /// CxlRejReason (102) of a cancel or replace that is rejected with it.
    pub cancel_reason: u16,
    /// The reason in words.
    pub text: String,
}

/// The mapping table of a venue.
pub trait Venue {
    /// The name of a client's request at the venue. `number` is another for every request of the day, from 1.
    fn name(&self, number: u32, id: &ClOrdId) -> VenueName;

    /// Whether [`Self::name`] is the ClOrdID: then one index finds both, and ids that are too long for a name are refused.
    fn names_are_ids(&self) -> bool;

    /// Its times count from this midnight, in UTC nanoseconds. One whose times have a date ignores it.
    fn set_midnight(&mut self, _midnight_ns: u64) {}

    /// Whether it takes mass cancels of an instrument. If not, the translator cancels each order.
    fn takes_mass_cancels(&self) -> bool;

    /// Whether reports of cancels name the cancel, and each cancel is answered. If not, a report names the order, and cancels
    /// of orders that ended are answered by the translator.
    fn answers_cancels(&self) -> bool;

    /// Writes a request of the time `now_ns`, whose order is of `instrument`, as the venue's message. Returns its length.
    ///
    /// # Errors
    /// The venue has no counterpart for a field.
    fn write(
        &self,
        request: &Request,
        instrument: &Instrument,
        now_ns: u64,
        target: &mut [u8; MOST_MESSAGE_BYTES],
    ) -> Result<usize, Unmapped>;

    /// Reads a message of the venue.
    ///
    /// # Errors
    /// It is no report.
    fn read(&self, message: &[u8]) -> Result<Report, Unreadable>;

    /// The number of an instrument in requests and reports, or its symbol as one.
    fn instrument_number(&self, instrument: &Instrument) -> u64;

    /// Whether a fill is named by the number of its match, and not by the id of its execution.
    fn names_fills_by_match(&self) -> bool {
        false
    }

    /// Makes the id of an execution another than those of the `others` executions that the venue has reported at the same time before, if there
    /// are any. A venue whose reports have ids of their own does nothing.
    fn distinguish(&self, _execution: &mut Execution, _others: u32) {}

    /// What this message to the venue asks for; `None`: it is no request.
    fn requested(&self, message: &[u8]) -> Option<Requested>;

    /// The venue's reason of a reject; `None`: its table does not have the code.
    fn reason(&self, reject_code: i32) -> Option<&RejectReason>;
}
