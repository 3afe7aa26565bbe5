//! Nasdaq OUCH 5.0: orders in, what becomes of them out.
//!
//! Source: the public definitions of Nasdaq's *OUCH 5.0*. Offsets count from the message type at 0, so those of the
//! definitions, which start behind it, are one less. Big-endian; prices have four implied decimals, times are nanoseconds since
//! midnight in New York, text is left-justified and padded with spaces.
//!
//! The types of both directions overlap (`U` is a replace and the answer to it), so there are two protocols: [`inbound`], which
//! clients send as unsequenced messages, and [`outbound`], which Nasdaq sends as sequenced messages of
//! [SoupBinTCP](super::soupbintcp). Some messages end in [optional fields](appendage).
//!
//! Verified on real packets: Enter Order, Cancel Order, Order Accepted, Canceled, and the optional fields Firm and BBO weight
//! indicator.

pub mod appendage;
pub mod inbound;
pub mod outbound;
