//! The plant's records as rows of QuestDB, a time-series database.
//!
//! ```text
//! ring ─▶ reader: replica ──records──▶ queue ─▶ sender: rows ─▶ HTTP (InfluxDB line protocol)
//! journal ─▶ again: replica ──records─▶ queue ─┘
//! ```
//!
//! Each schema has a table, and each record is a row. The output follows the journal in the ring and never waits for the server: it
//! makes the records that a live client would get, and puts them into a queue bounded in bytes. The sender turns them into rows and
//! sends them in requests that the server acknowledges; it repeats unacknowledged rows, with pauses that grow up to a limit.
//! Records without room in the queue are counted and, if there is a journal, sent from it once the server keeps up again; after a
//! restart the whole day is sent this way. A row's key consists of its time, the number of its event and its position among the
//! event's records, so a row that is sent twice is stored once.
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
