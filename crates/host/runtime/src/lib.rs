//! Parts shared by all processes: [system services](world), [workers](worker), [waiting and wake-ups](waiting),
//! [configuration](config) with line and column, [keys], [secrets], [followed] files, [TLS](transport), a [pump] between sockets
//! and sessions, [samples for traces](traces), and [reports of refused clients](refusals).

pub mod config;
pub mod counters;
pub mod followed;
pub mod keys;
pub mod pump;
pub mod refusals;
pub mod rhythm;
pub mod secrets;
#[cfg(feature = "tls")]
pub mod tls;
pub mod traces;
pub mod transport;
pub mod validity;
pub mod waiting;
pub mod worker;
pub mod world;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tapeworks_time::Nanos;

/// Returns the system's time of day.
pub fn now() -> Nanos {
    <world::System as world::World>::time_of_day()
}

/// Raises the limit of open files to the maximum that the process may have. A shell's usual 1,024 are fewer than the clients a
/// plant can be configured for. Returns the resulting limit.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, connections are refused later, and counted.
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok();
    (if is_raised { limit.maximum } else { limit.current }).unwrap_or(u64::MAX)
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
