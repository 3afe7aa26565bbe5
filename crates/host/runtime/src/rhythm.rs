//! Decides when to run rarely used code to keep it in the caches.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::world::{System, World};

/// A timer for keeping code warm.
#[derive(Default, Debug)]
pub struct Rhythm<W: World = System> {
    last: Option<Instant>,
    _world: PhantomData<W>,
}

impl<W: World> Rhythm<W> {
    /// The shortest interval between two runs.
    pub const EVERY: Duration = Duration::from_micros(500);

    /// Returns whether the interval has elapsed, and starts the next one if so.
    pub fn is_due(&mut self) -> bool {
        let now = W::instant();
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= Self::EVERY);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}
