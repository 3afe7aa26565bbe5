//! The server of live clients: DBN over TCP, compatible with Databento's public clients.
//!
//! ```text
//! engine ── ring of events ──▶ distributor ──▶ one queue a client ──▶ sockets
//!                                  ▲
//!                    history ──▶ replay, a thread for each session with `start=`
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`control`] | lines in, requests out: authentication, subscriptions, limits |
//! | [`distributor`] | events in, records out, to every client that subscribed to them |
//! | [`server`] | the listener and the thread |
//! | [`warm`] | keeps the code that sends to a client in the caches |
//!
//! A slow client costs only its own queue: sockets never block. If the queue is full, records are skipped or conflated, or the
//! session ends, as the client has chosen; all of this is counted.

pub mod control;
pub mod distributor;
mod outbox;
pub(crate) mod replay;
pub mod server;
pub mod warm;
