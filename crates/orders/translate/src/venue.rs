//! A venue's mapping table: converts requests to the venue's bytes, and its bytes to reports. The rest of the crate knows no venue.

use thiserror::Error;

use crate::ids::{ClOrdId, VenueName, VenueOrderId};
use crate::reference::Instrument;
use crate::report::{Execution, Report};
use crate::request::{Request, Requested};

/// Maximum length in bytes of a message to a venue.
pub const MOST_MESSAGE_BYTES: usize = 256;

/// A field of a request that the venue's table does not map. The reject names its tag.
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

/// A message from the venue that cannot be decoded as a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the venue's message of {length} bytes is no report")]
pub struct Unreadable {
    /// The message's length in bytes.
    pub length: usize,
    /// The request that it names, if the message's kind shows where the name is.
    pub name: Option<VenueName>,
    /// The order that it names, likewise; blank: none.
    pub order_id: VenueOrderId,
}

/// The meaning of a venue's reject code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectReason {
    /// The venue's code.
    pub code: i32,
    /// OrdRejReason (103) for an order rejected with this code.
    pub order_reason: u16,
    /// CxlRejReason (102) for a cancel or replace rejected with this code.
    pub cancel_reason: u16,
    /// The reason in words.
    pub text: String,
}

/// The mapping table of a venue.
pub trait Venue {
    /// Returns the name of a client's request at the venue. `number` is unique for every request of the day, from 1.
    fn name(&self, number: u32, id: &ClOrdId) -> VenueName;

    /// Returns whether [`Self::name`] is the ClOrdID. If so, one index finds both, and ids too long for a name are refused.
    fn names_are_ids(&self) -> bool;

    /// Sets the midnight from which the venue's times count, in UTC nanoseconds. A venue whose times include a date ignores it.
    fn set_midnight(&mut self, _midnight_ns: u64) {}

    /// Returns whether the venue accepts mass cancels of an instrument. If not, the translator cancels each order.
    fn takes_mass_cancels(&self) -> bool;

    /// Returns whether reports of cancels name the cancel, and every cancel is answered. If not, a report names the order, and the
    /// translator answers cancels of orders that have ended.
    fn answers_cancels(&self) -> bool;

    /// Encodes a request made at `now_ns`, for an order of `instrument`, as the venue's message. Returns its length.
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

    /// Decodes a message from the venue.
    ///
    /// # Errors
    /// The message is not a report.
    fn read(&self, message: &[u8]) -> Result<Report, Unreadable>;

    /// Returns the number that identifies an instrument in requests and reports, or its symbol as a number.
    fn instrument_number(&self, instrument: &Instrument) -> u64;

    /// Returns whether a fill is identified by its match number and not by its execution id.
    fn names_fills_by_match(&self) -> bool {
        false
    }

    /// Makes an execution's id unique, given the number of other executions that the venue has reported before with the same time.
    /// Does nothing for a venue whose reports have unique ids.
    fn distinguish(&self, _execution: &mut Execution, _others: u32) {}

    /// Returns what a message to the venue requests; `None`: it is not a request.
    fn requested(&self, message: &[u8]) -> Option<Requested>;

    /// Returns the meaning of a reject code; `None`: the table does not have it.
    fn reason(&self, reject_code: i32) -> Option<&RejectReason>;
}
