//! Seeded pseudo-random numbers, the same on every platform.
//!
//! The generator is xoshiro256++ seeded through SplitMix64 (Blackman and Vigna, *Scrambled linear pseudorandom number generators*,
//! 2021). It uses integers only and never calls the math library. Simulated markets, their faults and the simulator draw from it, so
//! that a seed reproduces a run.
//!
//! ```
//! use tapeworks_random::Random;
//!
//! let (mut first, mut second) = (Random::new(7), Random::new(7));
//! assert_eq!(first.bits(), second.bits());
//! assert!(first.below(6) < 6);
//! ```
//!
//! Guaranteed: the numbers of a seed do not change between platforms or releases. Not guaranteed: secrecy. The state follows from a few
//! numbers, so do not use them for keys.

/// A seeded generator of pseudo-random numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates the generator for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut counter)) }
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a number from 0 to `limit - 1`, or 0 if `limit` is 0. The bias is below `limit / 2^32`.
    #[inline]
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// Returns true with a probability of `per_million` in a million.
    #[inline]
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million
    }

    /// Returns an exponentially distributed number with this mean, such as the gaps of a Poisson process.
    ///
    /// The logarithm is approximated by a parabola between powers of two, within 1 %.
    #[inline]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let bits = self.bits() | 1;
        let zeros = bits.leading_zeros();
        // bits / 2^64 = (1 + fraction / 2^16) / 2^(zeros + 1)
        let fraction = ((bits << zeros) << 1) >> 48;
        let bow = (fraction * (65_536 - fraction)) >> 16;
        let binary_logarithm = fraction + ((bow * 22_487) >> 16);
        let negative = (u64::from(zeros + 1) << 16) - binary_logarithm;
        let natural = (negative * 45_426) >> 16;
        ((u128::from(mean) * u128::from(natural)) >> 16) as u64
    }
}

/// SplitMix64: advances the counter and returns the next number.
fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *counter;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeding_gives_the_published_numbers_of_split_mix() {
        // The first outputs for the seed 1234567, from the reference implementation's test vectors.
        let mut counter = 1_234_567;
        assert_eq!(split_mix(&mut counter), 6_457_827_717_110_365_317);
        assert_eq!(split_mix(&mut counter), 3_203_168_211_198_807_973);
    }

    #[test]
    fn the_mean_of_exponential_gaps_is_the_requested_one() {
        let mut random = Random::new(7);
        let sum: u64 = (0..200_000).map(|_| random.exponential(10_000)).sum();
        let mean = sum / 200_000;
        assert!((9_800..10_200).contains(&mean), "{mean}");
    }

    #[test]
    fn a_number_below_a_limit_reaches_every_value_and_never_the_limit() {
        let mut random = Random::new(3);
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[random.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
