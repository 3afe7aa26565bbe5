//! Counters that other threads read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// Adds `count`.
    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a struct of counters with their names and help texts.
#[macro_export]
macro_rules! counters {
    ($counters:ident: $($(#[doc = $what:literal])* $name:ident,)*) => {
        /// Counters, one for each kind of event.
        #[derive(Debug, Default)]
        pub struct $counters {
            $($(#[doc = $what])* pub $name: $crate::counters::Counter,)*
        }

        impl $counters {
            /// Returns the name, meaning and value of each counter.
            pub fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($what,)*).trim_ascii(), self.$name.get()),)*]
            }
        }
    };
}
