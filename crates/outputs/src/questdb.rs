//! The plant's records as rows of QuestDB, a database of time series.
//!
//! ```text
//! ring ─▶ reader: replica ──records──▶ queue ─▶ sender: rows ─▶ HTTP (InfluxDB line protocol)
//! journal ─▶ again: replica ──records─▶ queue ─┘
//! ```
//!
//! Each schema has a table, each record a row. The output stands behind the journal in the ring and never waits for the server:
//! it makes the records of a live client and puts them into a queue that is bounded in bytes. The sender makes rows of them and
//! sends them in requests that the server acknowledges; it repeats unacknowledged rows, with pauses that grow to a bound.
//! Records without room in the queue are counted and, where there is a journal, sent from it when the server keeps up again; so
//! is the whole day after a restart. A row's time, its event's number and its place among the event's records are its key: a row
//! that is sent twice is stored once.
//!
//! | module | what |
//! | --- | --- |
//! | `rows` | the tables, and records as rows |
//!
//! Cost: a record costs as much as in the clients' server. Sending from the journal needs a second replica, with books.

#![cfg_attr(
    feature = "questdb",
    expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "its transport is a library that uses the system's sockets and clocks"
    )
)]

#[cfg(feature = "questdb")]
mod database;
#[cfg(feature = "questdb")]
mod failure;
#[cfg(feature = "questdb")]
mod output;
#[cfg(feature = "questdb")]
mod queue;
#[cfg(feature = "questdb")]
mod reader;
#[cfg(feature = "questdb")]
pub mod rows;
#[cfg(feature = "questdb")]
mod sender;
mod setting;
mod status;

#[cfg(feature = "questdb")]
pub use failure::{QuestDbError, QuestDbFailure};
#[cfg(feature = "questdb")]
pub use output::{QuestDb, start};
pub use setting::{QuestDbLogin, QuestDbSetting};
pub use status::QuestDbStatus;
