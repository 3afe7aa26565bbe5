//! Medians with confidence intervals, and the verdicts based on them.
//!
//! Times on a shared machine are not normally distributed: they have a hard lower bound and a long tail. Nothing here assumes a
//! distribution. A median's interval comes from order statistics: the true median lies between the k-th least and the k-th greatest of n
//! values with a probability that depends only on n and k.

use serde::{Deserialize, Serialize};

/// The probability that an interval misses the true median.
const OUTSIDE: f64 = 0.05;

/// A median, the spread of the values, and the interval of the true median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the values.
    pub median: f64,
    /// The lower end of the median's 95 % confidence interval. With fewer than six values, the least value.
    pub low: f64,
    /// The upper end. With fewer than six values, the greatest value.
    pub high: f64,
    /// The median of the distances from the median (MAD), not scaled.
    pub mad: f64,
    /// The number of values.
    pub count: usize,
}

impl Estimate {
    /// Estimates the median of values in any order; `None` without values. NaNs are ignored.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = middle(&sorted)?;
        let rank = interval_rank(sorted.len());
        let mut distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Some(Self {
            median,
            low: sorted.get(rank).copied()?,
            high: sorted.get(sorted.len() - 1 - rank).copied()?,
            mad: middle(&distances)?,
            count: sorted.len(),
        })
    }

    /// Returns half of the interval's width relative to the median.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median.abs() }
    }
}

/// Formats a figure with three significant digits.
#[must_use]
pub fn show(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "none".into(),
        0.0 => "0".into(),
        _ if size >= 1e9 => format!("{:.3} G", value / 1e9),
        _ if size >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if size >= 1e4 => format!("{:.1} k", value / 1e3),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns the median of sorted values; for an even number, the mean of the two middle ones.
fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = sorted.get(half).copied()?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(half.checked_sub(1)?).map(|lower| f64::midpoint(*lower, upper))
}

/// Returns how many values to leave out on each side: the most for which the interval misses the true median with at most 5 %.
fn interval_rank(count: usize) -> usize {
    // The true median is below the k-th least value with the probability of fewer than k heads in `count` tosses.
    let mut chance = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = chance;
    let mut rank = 0;
    while rank + 1 < count.div_ceil(2) {
        if 2.0 * below > OUTSIDE {
            break;
        }
        rank += 1;
        chance *= (count - rank + 1) as f64 / rank as f64;
        below += chance;
    }
    // The loop ends at the first rank whose probability is too high.
    if 2.0 * below > OUTSIDE { rank.saturating_sub(1) } else { rank }
}

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less, as for nanoseconds.
    Less,
    /// More, as for messages per second.
    More,
    /// Neither: the figure only counts events.
    Neither,
}

/// The largest difference from 1 that "no difference" may hide. If noise or the interval can hide more, the result is too noisy.
const MOST_HIDDEN: f64 = 0.1;

/// The conclusion from a variant's ratio to the baseline, on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is on the good side, beyond the noise.
    Helps,
    /// The interval includes 1, or reaches into the noise around it.
    NoDifference,
    /// As [`Verdict::NoDifference`], but a difference of more than 10 % may be hidden.
    TooNoisy,
    /// The whole interval is on the bad side, beyond the noise.
    Hurts,
}

impl Verdict {
    /// Judges a ratio (variant to baseline). The noise is a fraction of 1: 0.01 is one percent.
    #[must_use]
    pub fn of(ratio: &Estimate, noise: f64, better: Better) -> Option<Self> {
        let is_less = ratio.high < 1.0 - noise;
        let is_more = ratio.low > 1.0 + noise;
        let hides_much =
            noise > MOST_HIDDEN || ratio.low < 1.0 - MOST_HIDDEN || ratio.high > 1.0 + MOST_HIDDEN;
        match better {
            Better::Neither => None,
            Better::Less if is_less => Some(Self::Helps),
            Better::Less if is_more => Some(Self::Hurts),
            Better::More if is_more => Some(Self::Helps),
            Better::More if is_less => Some(Self::Hurts),
            Better::Less | Better::More if hides_much => Some(Self::TooNoisy),
            Better::Less | Better::More => Some(Self::NoDifference),
        }
    }

    /// Describes the verdict in a sentence, with the interval.
    #[must_use]
    pub fn sentence(self, ratio: &Estimate) -> String {
        let Estimate { low, high, .. } = ratio;
        match self {
            Self::Helps => format!("helps here: {low:.2} to {high:.2} of the baseline"),
            Self::Hurts => format!("hurts here: {low:.2} to {high:.2} of the baseline"),
            Self::NoDifference => format!("no difference seen: {low:.2} to {high:.2} of the baseline"),
            Self::TooNoisy => format!("too noisy to judge: {low:.2} to {high:.2} of the baseline"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ranks_are_those_of_the_sign_test() {
        // Tables of the two-sided sign test at 5 %: the values left out on each side.
        for (count, rank) in
            [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5), (25, 7), (50, 17), (100, 39)]
        {
            assert_eq!(interval_rank(count), rank, "of {count} values");
        }
    }

    #[test]
    fn an_estimate_has_median_interval_and_distance() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let estimate = Estimate::of(&values).unwrap();
        assert_eq!((estimate.median, estimate.low, estimate.high, estimate.mad), (5.0, 2.0, 8.0, 2.0));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[f64::NAN]), None);
        assert_eq!(Estimate::of(&[4.0, f64::NAN, 2.0]).unwrap().median, 3.0);
    }

    #[test]
    fn a_verdict_is_that_of_the_interval() {
        let ratio = |low: f64, high: f64| Estimate {
            median: f64::midpoint(low, high),
            low,
            high,
            mad: 0.0,
            count: 20,
        };
        let verdicts = [
            (0.90, 0.95, Better::Less, Some(Verdict::Helps)),
            (1.05, 1.10, Better::Less, Some(Verdict::Hurts)),
            (1.05, 1.10, Better::More, Some(Verdict::Helps)),
            (0.90, 0.95, Better::More, Some(Verdict::Hurts)),
            (0.95, 1.05, Better::Less, Some(Verdict::NoDifference)),
            (0.95, 0.995, Better::Less, Some(Verdict::NoDifference)),
            (0.5, 0.6, Better::Neither, None),
        ];
        for (low, high, better, verdict) in verdicts {
            assert_eq!(Verdict::of(&ratio(low, high), 0.01, better), verdict, "{low} to {high}");
        }
        // Noise of 125 %, or an interval that could hide anything.
        assert_eq!(Verdict::of(&ratio(0.95, 1.05), 1.25, Better::Less), Some(Verdict::TooNoisy));
        assert_eq!(Verdict::of(&ratio(0.80, 1.05), 0.01, Better::Less), Some(Verdict::TooNoisy));
        assert_eq!(Verdict::of(&ratio(2.5, 3.5), 1.25, Better::Less), Some(Verdict::Hurts));
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median_and_lies_within_the_values(
            values in prop::collection::vec(0.0f64..1e6, 1..300),
        ) {
            let estimate = Estimate::of(&values).unwrap();
            prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
            prop_assert!(values.contains(&estimate.low) && values.contains(&estimate.high));
            prop_assert!(estimate.mad >= 0.0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        // Coverage by counting: of 2,000 samples from a skewed distribution with a known median, 95 % contain it. The bound leaves
        // room for chance (a deviation of 4 sigma).
        #[test]
        fn the_interval_holds_the_true_median_as_often_as_it_says(seed in any::<u64>(), count in 6usize..60) {
            let mut state = seed | 1;
            let mut random = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            let mut held = 0;
            for _ in 0..2_000 {
                let values: Vec<f64> = (0..count).map(|_| 1.0 / random().max(1e-12)).collect();
                let estimate = Estimate::of(&values).unwrap();
                held += u32::from(estimate.low <= 2.0 && 2.0 <= estimate.high);
            }
            prop_assert!(held >= 1_861, "{held} of 2,000 with {count} values");
        }
    }
}
