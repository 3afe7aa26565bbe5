//! FIX sessions, acceptor and initiator, without sockets and clocks: bytes and times in, bytes out.
//!
//! Source: *FIX session layer*, for FIX 4.2, 4.4 and FIXT 1.1 with 5.0 SP2. A [`Session`] is one connection of one session. Its
//! numbers and sent messages are in a [`Store`], which outlives the connection. A [`Dictionary`] says which messages are taken.
//! The caller's [`Application`] gets each message once and in order.
//!
//! | file | part |
//! | --- | --- |
//! | `settings.rs` | what a session is set to |
//! | `store.rs` | numbers and sent messages |
//! | `dictionary.rs`, `validate.rs` | which messages are taken, and the reasons of rejects |
//! | `received.rs` | what the session needs of a message |
//! | `session.rs` | logon, sequence numbers, gaps, heartbeats, logout |
//! | `link.rs` | sending: numbers, the store, the output, resends |
//! | `schedule.rs` | when a session runs |
//!
//! Memory is bounded by [`Settings`]: one message of the longest length, the messages kept behind a gap, and the output, which
//! resends fill only up to a bound.

mod dictionary;
mod link;
mod received;
mod schedule;
mod session;
mod settings;
mod store;
mod validate;

#[cfg(test)]
mod tests;

pub use dictionary::{Dictionary, DictionaryError};
pub use link::{Link, ROUTING, SendError};
pub use received::{HIGHEST_SEQUENCE, Received};
pub use schedule::{Schedule, ScheduleError};
pub use session::{Application, Counters, End, Session, Verdict, shown};
pub use settings::{Role, Settings};
pub use store::{MemoryStore, Store, StoreError};
pub use validate::Rejection;
