#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
//!
//! The live plant: market data lines in, events out.
//!
//! ```text
//! lines, answers ─▶ ingest ──events──▶ ring ─▶ journal ─▶ clients' servers
//!                     │ └──inputs──▶ queue ─▶ ┘
//!                     └─ books, NBBO ─▶ shared memory            (topology "inline": on ingest's core;
//!                                                                 "pipeline": behind the ring, on one of their own)
//! ```
//!
//! One thread, *ingest*, receives, arbitrates, translates ([`tapeworks_feed::live::LiveFeed`]) and publishes events. Every input is
//! written to the journal before its events reach the clients' servers, which follow the journal in the ring. So the journal holds
//! the input of every event that a client has seen, even if the process dies. At start-up the plant replays the journal through the
//! same stages, continues from there, and requests the messages it missed from the venues' servers.
//!
//! Events are numbered from 0 in publication order. Replaying the journal produces the same events with the same numbers
//! ([`tapeworks_engine::JournalHistory`]).

mod books;
mod checkpoint;
mod clock;
mod error;
mod events;
mod ingest;
mod journal;
mod options;
pub mod pair;
mod plant;
mod queued;
mod readiness;
mod receive;
pub mod relay;
mod requests;
pub mod roll;
mod shared;
mod snapshots;
mod status;
#[cfg(test)]
mod tests;
mod traces;
pub mod view;
mod warm;

pub use error::{PlantError, PlantFailure};
pub use events::{EventConsumer, Reader, Readers};
pub use journal::{JournalSetting, SyncPolicy, WhenFailing};
pub use options::{
    ORDERS, PlantOptions, ReceiveOptions, RetransmissionServer, SnapshotServer, Source, Topology,
    VenueOptions,
};
pub use pair::{PairSetting, PairStatus};
pub use plant::Plant;
pub use readiness::Condition;
pub use relay::RelayOptions;
pub use shared::{Published, SHARED_MEANING};
pub use status::{
    BooksStatus, ChannelStatus, CheckpointStatus, DELAY_BOUNDS, DelayBuckets, DelayPoint, DelayStatus,
    EngineStatus, InterfaceStatus, JournalStatus, LineStatus, RelayStatus, RequesterStatus, RingStatus,
    RollStatus, RolledDay, SharedStatus, Status,
};
pub use warm::Warmer;
