//! FIX sessions, acceptor and initiator, without sockets or clocks: bytes and times in, bytes out.
//!
//! Source: *FIX session layer*, for FIX 4.2, 4.4 and FIXT 1.1 with 5.0 SP2. A [`Session`] is one connection of one
//! session. Its sequence numbers and sent messages are in a [`Store`], which outlives the connection. A [`Dictionary`]
//! defines the messages it accepts. The caller's [`Application`] receives each message once and in order.
//!
//! | file | part |
//! | --- | --- |
//! | `settings.rs` | a session's settings |
//! | `store.rs` | sequence numbers and sent messages |
//! | `dictionary.rs`, `validate.rs` | accepted messages, and the reasons of rejects |
//! | `received.rs` | the header of a message |
//! | `session.rs` | one connection: its state, its timers, and what the caller calls |
//! | `session/receiving.rs` | bytes to messages, and the checks of each message |
//! | `session/logon.rs` | logging on, and the start of a session |
//! | `session/resending.rs` | gaps, and the messages that wait for them |
//! | `session/sending.rs` | session messages, rejects, and the end of a connection |
//! | `link.rs` | sending: sequence numbers, the store, the output, resends |
//! | `schedule.rs` | the hours of a session |
//!
//! [`Settings`] bounds the memory: one message of the maximum length, the messages queued after a gap, and the output,
//! which resends fill only up to a limit.

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
