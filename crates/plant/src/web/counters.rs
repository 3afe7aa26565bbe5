//! What the page's server counts of itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $what:literal])* $name:ident,)*) => {
        /// Every drop and refusal has its own.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $($(#[doc = $what])* pub(super) $name: Counter,)*
        }

        impl Counters {
            /// All of them: name, meaning, number.
            pub(super) fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($what,)*).trim_ascii(), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    /// Connections taken
    connections,
    /// Connections closed at once as there were too many
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
    /// Pages that came to look
    viewers,
    /// Pages refused as there were too many
    viewers_refused,
    /// Pages dropped as they took nothing
    viewers_stuck,
    /// Pages dropped for what they said
    viewers_garbled,
}
