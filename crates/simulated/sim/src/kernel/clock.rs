//! The time of day of a machine, relative to the simulation's.

/// The offset of a clock, which may be set, run fast or slow, or stop.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HostClock {
    /// Offset from the simulation's time when the clock was set, in ns.
    ahead_ns: i64,
    /// Gain in ns per million; at -1,000,000 the clock stops.
    gains_ppm: i64,
    /// Time at which the clock was set, in ns since the start.
    since_ns: u64,
}

impl HostClock {
    /// Sets the clock.
    pub(crate) const fn set(&mut self, now_ns: u64, ahead_ns: i64, gains_ppm: i64) {
        (self.ahead_ns, self.gains_ppm, self.since_ns) = (ahead_ns, gains_ppm, now_ns);
    }

    /// Returns the current offset, in ns.
    pub(crate) fn ahead_ns(&self, now_ns: u64) -> i64 {
        if self.gains_ppm == 0 {
            return self.ahead_ns;
        }
        let passed = i128::from(now_ns.saturating_sub(self.since_ns));
        let gained = i64::try_from(passed * i128::from(self.gains_ppm) / 1_000_000).unwrap_or_default();
        self.ahead_ns.saturating_add(gained)
    }
}

#[cfg(test)]
mod tests {
    use super::HostClock;

    #[test]
    fn a_clock_jumps_drifts_and_stands() {
        let mut clock = HostClock::default();
        assert_eq!(clock.ahead_ns(1_000), 0);
        clock.set(1_000, -500, 0);
        assert_eq!(clock.ahead_ns(9_000_000), -500);
        clock.set(1_000, 5, 100);
        assert_eq!(clock.ahead_ns(10_001_000), 5 + 1_000);
        clock.set(1_000, 0, -1_000_000);
        for now_ns in [1_000, 5_000, 8_000_000_000] {
            assert_eq!(now_ns as i64 + clock.ahead_ns(now_ns), 1_000);
        }
    }
}
