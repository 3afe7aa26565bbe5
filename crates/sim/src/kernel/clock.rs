//! The time of day of a machine, against the simulation's.

/// How far a clock is ahead: it may be set, go too fast or too slowly, or stand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HostClock {
    /// What it was ahead of the simulation's time when it was set, in ns.
    ahead_ns: i64,
    /// What it gains in a million ns; -1,000,000: it stands.
    gains_ppm: i64,
    /// When it was set, in ns since the start.
    since_ns: u64,
}

impl HostClock {
    /// Sets it.
    pub(crate) const fn set(&mut self, now_ns: u64, ahead_ns: i64, gains_ppm: i64) {
        (self.ahead_ns, self.gains_ppm, self.since_ns) = (ahead_ns, gains_ppm, now_ns);
    }

    /// What it is ahead now, in ns.
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
