//! What every process with threads needs once: [workers](worker), [waiting and wake-ups](waiting), [configuration](config) with line and
//! column, [keys], TLS, and [who was turned away](refusals).

pub mod config;
pub mod keys;
pub mod refusals;
#[cfg(feature = "tls")]
pub mod tls;
pub mod waiting;
pub mod worker;

use tapeworks_market::Nanos;

/// The time of day.
pub fn now() -> Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
