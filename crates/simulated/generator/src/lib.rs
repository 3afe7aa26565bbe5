//! A deterministic market in the venues' own protocol bytes.
//!
//! A [`Scenario`] describes the venues, symbols, volume, bursts, line faults, and a seed. It determines, byte for byte:
//!
//! | | |
//! | --- | --- |
//! | [`Generator`] | messages in time order |
//! | [`Packets`] | packets on the venues' lines A and B, with heartbeats and, optionally, faults |
//! | [`write_pcap`] | those packets as a capture |
//! | [`write_itch`] | a raw ITCH file of one venue |
//! | [`live::Live`] | packets as they come due, for venues that run live |
//! | [`itch_line::ItchLine`] | the market data of an exchange that accepts orders ([`tapeworks_matching::orders::OrderExchange`]) |
//!
//! [`tapeworks_session`] keeps the packets for retransmission, and serves the snapshots that [`live::Live::image`] builds.
//!
//! A generated session is valid: orders are added before they change, executions never exceed the resting quantity, a venue's
//! book is never crossed, executions hit the first order in line, and the directory comes first. It resembles a real day in its
//! message mix, the lifetimes of orders (young orders die young, near the top of book), the shape of the day, and its bursts. It
//! is not a model to trade on.
//!
//! Cost: one core, mostly cache misses; memory grows with the number of live orders, 16 bytes each. `tapeworks exchange generate`
//! prints how long it took.

mod bands;
mod book;
mod consolidated;
mod dialect;
mod dialects;
mod files;
mod futures;
mod generator;
mod iex;
mod instrument;
mod integrated;
pub mod itch_line;
mod kinds;
mod lines;
pub mod live;
mod memoir;
mod mitch;
mod nasdaq;
mod nonsense;
mod outbox;
mod packets;
mod pitch;
mod popularity;
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

/// The README's examples, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
