//! Simulated venues: a deterministic market in real protocol bytes.
//!
//! A [`Scenario`] has the venues, symbols, volume, bursts, faults of the lines and a seed. It determines, byte for
//! byte:
//!
//! | | |
//! | --- | --- |
//! | [`Generator`] | messages, one after the other, in order of time |
//! | [`Packets`] | packets on the venues' lines A and B, with heartbeats and, on request, faults |
//! | [`write_pcap`] | those packets as a capture |
//! | [`write_itch`] | a raw ITCH file of one venue |
//! | [`live::Live`] | packets as they are due, for venues that serve live |
//!
//! [`orders::OrderExchange`] is a venue that takes orders, by native messages and OUCH, over [`matching::MatchingEngine`]. Its market
//! data go out by an [`itch_line::ItchLine`].
//!
//! [`tapeworks_session`] keeps the packets for retransmission, and serves the snapshots that [`live::Live::image`] makes.
//!
//! A generated session is valid: orders are added before they change, no more is executed than rests, a venue's book is never
//! crossed, executions hit the first in line, the directory comes first. It is like a real day in the mix of messages, the life
//! of orders (young ones die young, near the top), the shape of the day and its bursts; it is not a model to trade on.
//!
//! Cost: mostly cache misses, one core; memory as the live orders need it, 16 bytes each. `tapeworks exchange generate`
//! prints the time that it took.

mod bands;
mod book;
mod consolidated;
mod dialect;
mod dialects;
mod files;
mod generator;
mod iex;
mod instrument;
mod integrated;
pub mod itch_line;
mod kinds;
mod lines;
pub mod live;
pub mod matching;
mod memoir;
mod mitch;
mod nasdaq;
mod nonsense;
pub mod orders;
mod outbox;
mod packets;
mod pitch;
mod popularity;
pub mod random;
mod report;
mod scenario;
mod schedule;
mod script;

pub use files::{FileForm, write_itch, write_pcap};
pub use generator::{Generated, Generator, MAX_MESSAGE_BYTES, Messages};
pub use instrument::symbol_name;
pub use packets::{Packet, Packets};
pub use report::{Injected, Report, VenueReport};
pub use scenario::{
    Burst, DEFAULT_MIDNIGHT_NS, FEWEST_ORDERS, LineFaults, MAX_MARKETS, MAX_VENUES, MOST_ORDERS, Popularity,
    Scenario, ScenarioError, ScenarioKind, USUAL_MOST_ORDERS, Unit, VenueConfig, VenueKind, WrongVenue,
};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
