//! The plant's events and NBBO on Aeron streams, for processes on this machine and on others.
//!
//! ```text
//! ring ─▶ reader: events ──────────────▶ a stream for each channel ─┐
//!              └ replica: NBBO ─shard──▶ N streams by symbol ───────┤ queue ─▶ thread "aeron" ─▶ media driver
//!                                        a stream of the status ────┘
//! journal ─▶ replay server (TCP) ─▶ a reader that came late, or that lost something
//! ```
//!
//! Every event and every record carries the number of its event in the journal. A message also has a sequence number in its stream,
//! so a reader detects missing messages and gets them from the replay server, which makes the same messages again from the journal.
//! The output never waits for the driver: messages without room are counted, and a reader sees a gap.
//!
//! | module | what |
//! | --- | --- |
//! | `message` | the bytes of a message |
//! | `client` | the client of the media driver |
//! | `sender` | the queue and the thread that publishes |
//! | `output` | events to messages |
//! | `replay` | the server that sends the past again |
//! | `fetch` | its client |
//! | `streams` | the other side: messages to items, each once |
//! | `plants` | which plant is followed, where several publish on the same streams |
//! | `reader` | items to records |
//! | `events` | events for another plant |
//!
//! Cost: an event takes 72 bytes of a message and is copied twice. The NBBO requires a replica with books. The thread sleeps when
//! there is nothing to send; the Aeron client has a thread of its own that wakes up about sixty times a second.

#![cfg_attr(
    feature = "aeron",
    expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "its transport is a library that uses the system's memory and clocks"
    )
)]

#[cfg(feature = "aeron")]
mod client;
#[cfg(feature = "aeron")]
pub mod events;
#[cfg(feature = "aeron")]
mod fetch;
#[cfg(feature = "aeron")]
pub mod message;
#[cfg(feature = "aeron")]
mod output;
#[cfg(feature = "aeron")]
mod plants;
#[cfg(feature = "aeron")]
pub mod reader;
#[cfg(feature = "aeron")]
mod replay;
#[cfg(feature = "aeron")]
mod sender;
mod setting;
mod status;
#[cfg(feature = "aeron")]
mod streams;
#[cfg(test)]
#[cfg(all(feature = "aeron", feature = "tls"))]
mod tls_tests;

#[cfg(feature = "aeron")]
pub use output::{Aeron, AeronFailure, AeronStartError, bind, start};
#[cfg(feature = "aeron")]
pub use replay::Listening;
pub use setting::{AeronSetting, AeronSourceSetting};
pub use status::{AeronHandle, AeronStatus};
