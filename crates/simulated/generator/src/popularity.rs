//! Weighted choice in constant time: Walker's alias table, built by Vose's method.

use crate::scenario::Popularity;
use tapeworks_random::Random;

/// Chooses an index in proportion to its weight, with one random number and one load.
#[derive(Debug, Clone)]
pub(crate) struct Chooser {
    /// The part of an index's share, of 2^32, that it keeps, and the index that gets the rest.
    slots: Vec<(u32, u32)>,
}

impl Chooser {
    /// Creates a chooser for these weights, at least one of which must be positive.
    ///
    /// An index of weight 0 is practically never chosen. Only the four basic operations are used, which every platform rounds alike.
    pub(crate) fn weighted(weights: impl Iterator<Item = f64>) -> Self {
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight * weights.len() as f64 / sum).collect();
        let mut slots: Vec<(u32, u32)> = (0..weights.len() as u32).map(|index| (u32::MAX, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..scaled.len()).partition(|index| scaled[*index] < 1.0);
        while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
            slots[less] = ((scaled[less] * f64::from(u32::MAX)) as u32, more as u32);
            scaled[more] -= 1.0 - scaled[less];
            if scaled[more] < 1.0 { small.push(more) } else { large.push(more) }
        }
        Self { slots }
    }

    /// Creates a chooser for the symbols' popularity, or returns `None` if a plain random number suffices.
    pub(crate) fn of(popularity: Popularity, symbols: u32) -> Option<Self> {
        match popularity {
            Popularity::Zipf => Some(Self::weighted((0..symbols).map(|rank| 1.0 / f64::from(rank + 2)))),
            Popularity::Uniform => None,
        }
    }

    #[inline]
    pub(crate) fn choose(&self, random: &mut Random) -> usize {
        let bits = random.bits();
        let index = (((bits >> 32) * self.slots.len() as u64) >> 32) as usize;
        let (keeps, other) = self.slots[index];
        if bits as u32 <= keeps { index } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_come_in_proportion_to_their_weights() {
        let mut random = Random::new(1);
        let chooser = Chooser::weighted([1.0, 2.0, 5.0].into_iter());
        let mut counts = [0u32; 3];
        for _ in 0..80_000 {
            counts[chooser.choose(&mut random)] += 1;
        }
        for (count, expected) in counts.iter().zip([10_000, 20_000, 50_000]) {
            assert!(count.abs_diff(expected) < 600, "{counts:?}");
        }
    }
}
