//! When rarely used code is run to keep it in the caches.

use std::time::{Duration, Instant};

/// Says when it is time to run it again.
#[derive(Default, Debug)]
pub struct Rhythm {
    last: Option<Instant>,
}

impl Rhythm {
    /// How often at most.
    pub const EVERY: Duration = Duration::from_micros(500);

    /// Whether the interval is over; then the next one begins.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= Self::EVERY);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}
