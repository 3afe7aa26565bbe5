//! What the page's server counts of itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(super) fn add(&self) {
        self.add_many(1);
    }

    /// So many more.
    pub(super) fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($counters:ident: $($(#[doc = $what:literal])* $name:ident,)*) => {
        /// Every drop and refusal has its own.
        #[derive(Debug, Default)]
        pub(super) struct $counters {
            $($(#[doc = $what])* pub(super) $name: Counter,)*
        }

        impl $counters {
            /// All of them: name, meaning, number.
            pub(super) fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($what,)*).trim_ascii(), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    Counters:
    /// Connections taken
    connections,
    /// Connections that found no place and were taken on the reserve
    connections_refused,
    /// Connections that the system could not give
    accept_errors,
    /// Requests answered
    requests,
    /// Requests refused for their Host header
    refused_host,
    /// Requests refused for their Origin header
    refused_origin,
    /// Requests refused for want of the token
    refused_token,
    /// Requests refused as too many wrong tokens came from their address
    refused_guesses,
    /// Connections of the reserve closed as they said nothing in time, or gave way to newer ones
    connections_evicted,
    /// Pages that came to look
    viewers,
    /// Pages refused as there were too many
    viewers_refused,
    /// Pages dropped as they took nothing
    viewers_stuck,
    /// Pages dropped for what they said
    viewers_garbled,
}

counters! {
    StreamCounters:
    /// Stream clients that came
    stream_clients,
    /// Stream clients refused as there were too many
    stream_refused,
    /// Requests for the stream refused for their parameters
    stream_refused_parameters,
    /// Stream clients dropped as they took nothing
    stream_stuck,
    /// Stream clients dropped for what they said
    stream_garbled,
    /// Records that stream clients' queues took
    stream_records,
    /// Times that a stream client fell behind its queue
    stream_lagged,
    /// NBBO changes that gave way to later ones for stream clients that had fallen behind
    stream_conflated,
    /// Trades that stream clients were not told as they had fallen behind
    stream_dropped_trades,
    /// Gaps that stream clients were not told as they had fallen behind
    stream_dropped_gaps,
}
