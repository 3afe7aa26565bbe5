//! Venue sessions and their translation to normalised market events.
//!
//! [`Feed`] is a stage: it turns captured datagrams (or the messages of a file) into [`tapeworks_market::Event`]s. On the way it
//!
//! 1. recognises the feed of each channel from its bytes ([`recognise`]),
//! 2. follows the channel's sequence numbers: drops duplicates, reports gaps ([`tapeworks_follow::sequence`]),
//! 3. translates each message in the feed's own file. Only that file knows the venue's peculiarities.
//!
//! [`FEEDS`] is the table of feeds: one row each, from which recognition, dispatch, command line and configuration are derived.
//!
//! An unknown message, a truncated packet or an unknown protocol is counted, kept as a [`Problem`] with its packet and offset,
//! and skipped by its length. The good messages around it are still processed.
//!
//! [`live::LiveFeed`] does the same for live lines: it arbitrates between lines A and B, waits for overtaken packets, requests
//! missing messages, joins mid-session from a snapshot, and marks books stale ([`tapeworks_follow`]).
//!
//! The feature `serde` adds the state of a live feed as bytes, for checkpoints.
//!
//! # Cost
//! Per packet: the transport header (one cache line) and one compare of the sequence number. Per message: its own cache lines,
//! one line of the table that maps the venue's instrument number (ITCH, MEMX) or the symbol (IEX) to ours, and the 64-byte event.

pub mod calendar;
mod captured;
mod cboe;
mod cfe;
mod channel;
pub mod channels;
mod continuity;
mod cqs;
mod feed;
mod iex;
mod integrated;
mod itch;
pub mod live;
mod locates;
mod memoir;
mod mitch;
mod naming;
mod normaliser;
mod pitch;
mod probe;
mod problem;
mod publisher;
pub mod recognise;
pub mod router;
#[cfg(feature = "serde")]
mod saved;
pub mod sessions;
#[cfg(test)]
mod several_publishers;
mod sip;
#[cfg(feature = "serde")]
pub mod state;
mod symbols;
mod table;
mod units;
mod uqdf;
pub mod walk;

pub use captured::{ChannelIdentity, Frame, Packet, Place};
pub use channel::{Channel, ChannelCounters};
pub use feed::{Feed, FeedCounters, FeedOptions, FileFeed};
pub use locates::Contradiction;
pub use naming::{Naming, Suffixes};
pub use problem::{KEPT_PROBLEMS, Problem, ProblemKind, Problems};
pub use publisher::PublisherSpec;
pub use recognise::Framing as FileFormat;
pub use table::{Application, FEEDS, FeedSpec, VenueConflict, shared_publisher, shared_publishers};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
