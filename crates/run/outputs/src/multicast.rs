//! The plant's records by multicast: MoldUDP64 with retransmission, and the same messages over SoupBinTCP.
//!
//! ```text
//! ring of events ──▶ replica ──records──▶ sequence ──packets──▶ multicast group
//!                                            │ └──▶ UDP: answers to requests
//!                                            └────▶ TCP: SoupBinTCP, from any number that is kept
//! ```
//!
//! A message is one DBN record, byte for byte as a live client gets it, so every message has its own length and kind. The records
//! are those of the configured schemas, in the order of their events, with symbol mappings in between: one when its instrument
//! appears, and all of them periodically for receivers that join late. A session has one sequence, numbered from 1. The messages
//! kept for retransmission are bounded in bytes; the oldest are discarded first.
//!
//! | module | what |
//! | --- | --- |
//! | [`tapeworks_session::sequence`] | messages into packets, and the packets kept |
//! | [`tapeworks_session::soupbintcp`] | one TCP client, bytes in and bytes out |
//! | [`server`] | the thread and the sockets |
//! | [`receiver`] | the receiving side, for `tapeworks subscribe --multicast` |
//!
//! Sources: *MoldUDP64 Protocol Specification* 1.00, *SoupBinTCP* 3.00, and the `dbn` crate for the records.

pub mod receiver;
pub mod server;
