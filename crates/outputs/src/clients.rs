//! The server of live clients: DBN over TCP, as Databento's public clients speak it.
//!
//! ```text
//! engine ── ring of events ──▶ distributor ──▶ one queue a client ──▶ sockets
//!                                  ▲
//!                    history ──▶ replay, a thread for each session that asks for `start=`
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`control`] | lines in, requests out: authentication, subscriptions, limits |
//! | [`distributor`] | events in, records out, to every client that wants them |
//! | [`server`] | the listener and the thread |
//! | [`warm`] | keeping the way to a client in the caches |
//!
//! A client that is slow costs its own queue and nothing else: sockets never block, and what does not fit is dropped,
//! conflated or ends the session, as the client has asked, and is counted.

pub mod control;
pub mod distributor;
mod outbox;
pub(crate) mod replay;
pub mod server;
mod transport;
pub mod warm;
