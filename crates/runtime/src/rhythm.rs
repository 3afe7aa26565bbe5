//! When rarely used code is run to keep it in the caches.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::world::{System, World};

/// Says when it is time to run it again.
#[derive(Default, Debug)]
pub struct Rhythm<W: World = System> {
    last: Option<Instant>,
    _world: PhantomData<W>,
}

impl<W: World> Rhythm<W> {
    /// How often at most.
    pub const EVERY: Duration = Duration::from_micros(500);

    /// Whether the interval is over; then the next one begins.
    pub fn is_due(&mut self) -> bool {
        let now = W::instant();
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= Self::EVERY);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}
