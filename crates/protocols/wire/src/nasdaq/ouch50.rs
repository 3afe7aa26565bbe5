//! Nasdaq OUCH 5.0: order entry and the venue's responses.
//!
//! Source: the public definitions of Nasdaq's *OUCH 5.0*. Offsets count from the message type at 0. The definitions count from the
//! byte after the type, so their offsets are one less. Big-endian; prices have four implied decimals, times are nanoseconds since
//! midnight in New York, text is left-justified and padded with spaces.
//!
//! The types of both directions overlap (`U` is both a replace and its response), so there are two protocols over
//! [SoupBinTCP](super::soupbintcp): [`inbound`], which clients send as unsequenced messages, and [`outbound`], which Nasdaq sends
//! as sequenced messages. Some messages end in [optional fields](appendage).
//!
//! Verified on real packets: Enter Order, Cancel Order, Order Accepted, Canceled, and the optional fields Firm and BBO weight
//! indicator.

pub mod appendage;
pub mod inbound;
pub mod outbound;
