//! Parts of every process with threads: [what they ask of the system](world), [workers](worker), [waiting and wake-ups](waiting), [configuration](config) with line and
//! column, [keys], [secrets], files that are [followed], [TLS](transport), a [pump] between sockets and sessions, [samples for traces](traces), and [reports of refused clients](refusals).

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

/// The time of day of the system.
pub fn now() -> Nanos {
    <world::System as world::World>::time_of_day()
}

/// Asks the kernel for as many open files as the process may have: a shell's usual 1,024 are fewer than the clients that
/// a plant can be configured for. Returns how many there may be.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, connections are refused later, and counted.
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok();
    (if is_raised { limit.maximum } else { limit.current }).unwrap_or(u64::MAX)
}

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
