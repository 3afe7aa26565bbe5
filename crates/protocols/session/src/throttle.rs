//! Limits the number of messages in any second.
//!
//! Cost: one comparison and one store per message, and 8 bytes of memory for each message allowed per second.

const SECOND_NS: u64 = 1_000_000_000;

/// A sliding window of one second.
#[derive(Debug, Clone)]
pub struct Throttle {
    /// When the last messages were accepted; the oldest is at index `oldest`.
    times_ns: Vec<u64>,
    oldest: usize,
    limit: usize,
}

impl Throttle {
    /// Creates a throttle for `per_second` messages in any second; 0 is unlimited.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        let limit = per_second as usize;
        Self { times_ns: Vec::with_capacity(limit), oldest: 0, limit }
    }

    /// Returns when the next message is allowed, in nanoseconds of the caller's clock. A past time means now.
    #[inline]
    #[must_use]
    pub fn free_at_ns(&self) -> u64 {
        if self.times_ns.len() < self.limit || self.limit == 0 {
            return 0;
        }
        self.times_ns.get(self.oldest).map_or(0, |oldest_ns| oldest_ns.saturating_add(SECOND_NS))
    }

    /// Counts a message if it is allowed, and returns whether it is.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> bool {
        // The clock was set back, so the recorded times are meaningless.
        if self.times_ns.get(self.oldest).is_some_and(|oldest_ns| *oldest_ns > now_ns) {
            self.times_ns.clear();
            self.oldest = 0;
        }
        if self.free_at_ns() > now_ns {
            return false;
        }
        if self.times_ns.len() < self.limit {
            self.times_ns.push(now_ns);
        } else if let Some(oldest_ns) = self.times_ns.get_mut(self.oldest) {
            *oldest_ns = now_ns;
            self.oldest = if self.oldest + 1 == self.limit { 0 } else { self.oldest + 1 };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_limit_takes_everything() {
        let mut throttle = Throttle::new(0);
        assert!((0..10_000).all(|_| throttle.take(5)));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_close_the_throttle_until_it_has_caught_up() {
        let mut throttle = Throttle::new(2);
        assert!(throttle.take(5_000 * SECOND_NS) && throttle.take(5_000 * SECOND_NS));
        assert!(throttle.take(SECOND_NS) && throttle.take(SECOND_NS) && !throttle.take(SECOND_NS + 5));
        assert!(throttle.take(2 * SECOND_NS));
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_the_limit_and_none_is_refused_needlessly(
            limit in 1u32..6,
            steps in prop::collection::vec(0u64..400_000_000, 1..200),
        ) {
            let mut throttle = Throttle::new(limit);
            let (mut now_ns, mut taken) = (0, Vec::new());
            for step in steps {
                now_ns += step;
                let recent = taken.iter().filter(|time_ns| now_ns - **time_ns < SECOND_NS).count();
                let is_free = throttle.free_at_ns() <= now_ns;
                prop_assert_eq!(is_free, recent < limit as usize);
                prop_assert_eq!(throttle.take(now_ns), is_free);
                if is_free {
                    taken.push(now_ns);
                }
            }
        }
    }
}
