//! Venue sessions and their translation to normalised market events.
//!
//! [`Feed`] is a stage: captured datagrams (or the messages of a file) in, [`tapeworks_market::Event`]s out. On the way it
//!
//! 1. recognises the protocol of each channel by its bytes ([`recognise`]),
//! 2. follows the channel's sequence numbers: drops what came twice, tells what is missing ([`sequence`]),
//! 3. translates each message ([`itch`], [`iex`]). Only here is a venue's peculiarity known.
//!
//! Whatever does not fit (an unknown message, a cut packet, a protocol nobody speaks) is counted, kept as a
//! [`Problem`] with its packet and offset, and passed over by its length; the good messages around it go on.
//!
//! [`live::LiveFeed`] does the same for live lines: it arbitrates between lines A and B, waits out packets that overtake
//! each other, asks for what is missing again, joins in mid-session by a snapshot, and says which books are in doubt
//! ([`arbitration`]).
//!
//! # Cost
//! Per packet: the transport header (one line) and one compare of the sequence number. Per message: its own lines,
//! one line of the table from the venue's instrument number (ITCH) or the symbol (IEX) to ours, and the 64-byte event.

pub mod arbitration;
pub mod clock;
mod feed;
pub mod iex;
pub mod itch;
pub mod live;
mod locates;
mod problem;
mod ranges;
pub mod recognise;
mod recovery;
pub mod sequence;
pub mod state;
mod symbols;

pub use feed::{
    Channel, ChannelCounters, ChannelIdentity, Feed, FeedCounters, FeedOptions, FileFeed, FileFormat, Frame,
    Packet, itch_publisher,
};
pub use locates::Contradiction;
pub use problem::{KEPT_PROBLEMS, Problem, ProblemKind, Problems};
pub use recognise::Application;
