//! Parts of every process with threads: [workers](worker), [waiting and wake-ups](waiting), [configuration](config) with line and
//! column, [keys], TLS, a [pump] between sockets and sessions, and [reports of refused clients](refusals).

pub mod config;
pub mod counters;
pub mod keys;
pub mod pump;
pub mod refusals;
pub mod rhythm;
#[cfg(feature = "tls")]
pub mod tls;
pub mod waiting;
pub mod worker;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tapeworks_market::Nanos;

/// The time of day.
pub fn now() -> Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
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
