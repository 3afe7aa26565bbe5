//! When events happen: the U-shaped day with clusters, and bursts at given rates.
//!
//! Merges two streams of arrivals, each in time order. The day is divided into bins with a fixed number of arrivals each, so a
//! session has the requested number of messages. Memory: 24 bytes per second.

use crate::scenario::{Burst, CLOSE_NS, MINUTE_NS, OPEN_NS, SECOND_NS, Scenario};
use tapeworks_random::Random;

/// Of 8 arrivals in the day's profile, this many follow the previous one within about a microsecond.
const CLUSTERED_OF_8: u64 = 5;
/// Mean gap within a cluster, in nanoseconds.
const CLUSTER_GAP_NS: u64 = 700;

/// A number of arrivals between two times.
#[derive(Debug, Clone, Copy)]
struct Bin {
    start_ns: u64,
    end_ns: u64,
    arrivals: u64,
}

/// A stream of arrivals, bin by bin.
#[derive(Debug, Clone)]
struct Stream {
    bins: Vec<Bin>,
    next_bin: usize,
    bin: Bin,
    time_ns: u64,
    clustered: bool,
}

impl Stream {
    fn new(bins: Vec<Bin>, clustered: bool) -> Self {
        Self { bins, next_bin: 0, bin: Bin { start_ns: 0, end_ns: 0, arrivals: 0 }, time_ns: 0, clustered }
    }

    /// Returns the next arrival, or `u64::MAX` after the last.
    fn next(&mut self, random: &mut Random) -> u64 {
        while self.bin.arrivals == 0 {
            let Some(bin) = self.bins.get(self.next_bin) else { return u64::MAX };
            self.bin = *bin;
            self.next_bin += 1;
            // A burst that starts during another follows it, at its full length.
            if !self.clustered {
                self.bin.end_ns += self.time_ns.saturating_sub(bin.start_ns);
            }
            self.time_ns = self.time_ns.max(bin.start_ns);
        }
        let left_ns = self.bin.end_ns.saturating_sub(self.time_ns);
        let gap = if !self.clustered {
            random.exponential(left_ns / self.bin.arrivals)
        } else if random.bits() & 7 < CLUSTERED_OF_8 {
            random.exponential(CLUSTER_GAP_NS.min(left_ns / self.bin.arrivals))
        } else {
            random.exponential(left_ns / (self.bin.arrivals * (8 - CLUSTERED_OF_8) / 8 + 1))
        };
        self.bin.arrivals -= 1;
        self.time_ns += gap;
        self.time_ns
    }
}

/// All arrivals of a scenario, in nanoseconds since midnight in New York, never decreasing.
#[derive(Debug, Clone)]
pub(crate) struct Arrivals {
    day: Stream,
    bursts: Stream,
    next_day: u64,
    next_burst: u64,
    /// Mean gap of an endless market; 0 if the market ends.
    endless_gap_ns: u64,
    random: Random,
}

impl Arrivals {
    /// Distributes `total` arrivals over the scenario.
    pub(crate) fn new(scenario: &Scenario, total: u64) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x7469_6D65_7300_0000);
        if scenario.endless_gap_ns > 0 {
            let nothing = || Stream::new(Vec::new(), false);
            let (next_day, next_burst) = (scenario.start_ns, u64::MAX);
            let endless_gap_ns = scenario.endless_gap_ns;
            return Self { day: nothing(), bursts: nothing(), next_day, next_burst, endless_gap_ns, random };
        }
        let bursts = burst_bins(scenario, total, &mut random);
        let in_bursts: u64 = bursts.iter().map(|bin| bin.arrivals).sum();
        let mut day = Stream::new(day_bins(scenario, total.saturating_sub(in_bursts)), true);
        let mut bursts = Stream::new(bursts, false);
        let (next_day, next_burst) = (day.next(&mut random), bursts.next(&mut random));
        Self { day, bursts, next_day, next_burst, endless_gap_ns: 0, random }
    }

    /// Returns the time of the next arrival, or `u64::MAX` if there are no more.
    #[inline]
    pub(crate) fn peek(&self) -> u64 {
        self.next_day.min(self.next_burst)
    }

    /// Moves past the next arrival.
    #[inline]
    pub(crate) fn advance(&mut self) {
        if self.endless_gap_ns > 0 {
            self.next_day += self.random.exponential(self.endless_gap_ns);
        } else if self.next_day <= self.next_burst {
            self.next_day = self.day.next(&mut self.random);
        } else {
            self.next_burst = self.bursts.next(&mut self.random);
        }
    }
}

/// Returns the bursts in time order, with at most half of all arrivals.
fn burst_bins(scenario: &Scenario, total: u64, random: &mut Random) -> Vec<Bin> {
    let mut bursts = scenario.bursts.clone();
    let start = scenario.start_ns.max(OPEN_NS);
    let end = scenario.end_ns.min(CLOSE_NS);
    // A window outside market hours may have them at any time.
    let (start, end) = if start < end { (start, end) } else { (scenario.start_ns, scenario.end_ns) };
    for _ in 0..scenario.micro_bursts {
        let length_ns = (1_000_000 + u64::from(random.below(4_000_000))).min(end - start);
        let seconds = (end - start - length_ns) / SECOND_NS;
        let start_ns = start
            + u64::from(random.below(seconds as u32 + 1)) * SECOND_NS
            + u64::from(random.below(((end - start - length_ns) % SECOND_NS) as u32));
        let messages_per_second = 200_000 + u64::from(random.below(800_000));
        bursts.push(Burst { start_ns, length_ns, messages_per_second });
    }
    bursts.sort_by_key(|burst| burst.start_ns);
    let wanted: u128 = bursts.iter().map(|burst| u128::from(messages_of(burst))).sum();
    let allowed = u128::from(total / 2);
    bursts
        .iter()
        .map(|burst| {
            let (mut length_ns, mut arrivals) = (burst.length_ns, messages_of(burst));
            if wanted > allowed {
                // Shortened, at the same rate. Both products are below 2^47 * 2^64.
                length_ns = (u128::from(length_ns) * allowed / wanted) as u64;
                arrivals = (u128::from(arrivals) * allowed / wanted) as u64;
            }
            Bin { start_ns: burst.start_ns, end_ns: burst.start_ns + length_ns, arrivals }
        })
        .filter(|bin| bin.arrivals > 0)
        .collect()
}

fn messages_of(burst: &Burst) -> u64 {
    (u128::from(burst.length_ns) * u128::from(burst.messages_per_second) / u128::from(SECOND_NS)) as u64
}

/// Returns the bins of the day's profile: a second each (less in a short window), with `total` arrivals in all.
fn day_bins(scenario: &Scenario, total: u64) -> Vec<Bin> {
    let window = scenario.end_ns - scenario.start_ns;
    let width = (window / 64).clamp(1, SECOND_NS);
    let starts = || (scenario.start_ns..scenario.end_ns).step_by(width as usize);
    let all: f64 = starts().map(intensity).sum();
    let (mut reached, mut given) = (0.0, 0);
    starts()
        .map(|start_ns| {
            let end_ns = (start_ns + width).min(scenario.end_ns);
            reached += intensity(start_ns);
            // The same sum in the same order: the last quotient is 1, so every arrival is assigned.
            let due = (reached / all * total as f64) as u64;
            let arrivals = due.min(total).saturating_sub(given);
            given += arrivals;
            Bin { start_ns, end_ns, arrivals }
        })
        .filter(|bin| bin.arrivals > 0)
        .collect()
}

/// Returns the relative rate at a time of day: quiet outside market hours, high after the open, rising toward the close.
///
/// It uses only additions, multiplications, and divisions, which every platform rounds alike.
fn intensity(time_ns: u64) -> f64 {
    let minutes = |ns: u64| ns as f64 / MINUTE_NS as f64;
    if time_ns < OPEN_NS {
        let before = 1.0 + minutes(OPEN_NS - time_ns) / 20.0;
        0.02 + 0.15 / (before * before)
    } else if time_ns < CLOSE_NS {
        let after_open = 1.0 + minutes(time_ns - OPEN_NS) / 8.0;
        let before_close = 1.0 + minutes(CLOSE_NS - time_ns) / 5.0;
        1.0 + 4.0 / (after_open * after_open) + 3.0 / (before_close * before_close)
    } else {
        let after = 1.0 + minutes(time_ns - CLOSE_NS) / 3.0;
        0.02 + 0.5 / (after * after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_makes_the_requested_number_of_arrivals_in_order_of_time() {
        for scenario in [Scenario::demo(), Scenario::close_burst(), Scenario::benchmark(1, 1)] {
            for total in [0, 1, 999, 100_000] {
                let mut arrivals = Arrivals::new(&scenario, total);
                let (mut count, mut last) = (0, scenario.start_ns);
                while arrivals.peek() != u64::MAX {
                    assert!(arrivals.peek() >= last);
                    last = arrivals.peek();
                    arrivals.advance();
                    count += 1;
                }
                assert_eq!(count, total);
            }
        }
    }

    #[test]
    fn a_burst_has_its_rate() {
        let scenario = Scenario::close_burst();
        let mut arrivals = Arrivals::new(&scenario, scenario.messages);
        let (from, to) = (CLOSE_NS + 10_000_000, CLOSE_NS + 30_000_000);
        let mut within = 0;
        while arrivals.peek() < to {
            within += u64::from(arrivals.peek() >= from);
            arrivals.advance();
        }
        // 20 ms at 4 million per second, plus the day's profile.
        assert!((76_000..90_000).contains(&within), "{within}");
    }
}
