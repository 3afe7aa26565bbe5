//! Counters that other threads read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// So many more.
    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a struct of counters with their names and help texts.
#[macro_export]
macro_rules! counters {
    ($counters:ident: $($(#[doc = $what:literal])* $name:ident,)*) => {
        /// Every drop and refusal has its own.
        #[derive(Debug, Default)]
        pub struct $counters {
            $($(#[doc = $what])* pub $name: $crate::counters::Counter,)*
        }

        impl $counters {
            /// All of them: name, meaning, number.
            pub fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($what,)*).trim_ascii(), self.$name.get()),)*]
            }
        }
    };
}
