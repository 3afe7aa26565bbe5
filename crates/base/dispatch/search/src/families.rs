//! Searches for the cheapest formula without collisions.
//!
//! The search tries each family's candidates, cheapest first, if they would cost less than the best so far, and rejects a
//! candidate at its first collision. It thus takes a few microseconds if bits of the value suffice, and is bounded by
//! [`PROBES_PER_VALUE`] otherwise. The one family that cannot fail comes last. The result depends only on the sorted values: no
//! clock, and a fixed random seed.

use crate::formula::{Family, Formula, Operator, Part, folded, mask};
use crate::set::{Set, Width};

/// The most slots computed per value in one family. Enough for multiplication to find a good factor for about forty values, which
/// takes some hundred microseconds.
const PROBES_PER_VALUE: u64 = 1 << 12;

/// The most slots computed in one family: a tenth of a second.
const MOST_PROBES: u64 = 1 << 24;

/// How much larger than the set a table may be, as a power of two. Beyond that, cache misses cost more than a cheaper formula
/// saves.
const MOST_SPARE_BITS: u32 = 4;

/// The most parts of an extraction: a fifth costs more than a multiplication.
const MOST_PARTS: usize = 4;

/// Values per bucket of the two-level formula.
const VALUES_PER_BUCKET: usize = 4;

/// Bytes in a cache line.
const LINE: usize = 64;

/// Returns the bits that distinguish `count` slots, at least one.
fn bits_for(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros().max(1)
}

/// The cost of a candidate; less is better. See the crate's documentation for the rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub(crate) cost: u32,
    pub(crate) instructions: u32,
    pub(crate) bytes: usize,
    family: Family,
}

impl Rank {
    pub(crate) fn of(formula: &Formula, count: usize, width: Width) -> Self {
        let (hash, hash_cycles) = formula.instructions(width);
        let is_direct = formula.family() == Family::Direct;
        let has_keys = !(is_direct && formula.size() == count);
        // A bound costs a comparison and a jump; a key costs a comparison with memory and a jump. The jumps are predicted.
        let instructions = hash + 2 * u32::from(is_direct) + 2 * u32::from(has_keys);
        let cycles = hash_cycles + u32::from(is_direct) + 6 * u32::from(has_keys);
        let bytes = formula.bytes() + if has_keys { formula.size() * width.bytes() } else { 0 };
        let lines = bytes.div_ceil(LINE).max(1);
        let cost = cycles + lines.next_power_of_two().trailing_zeros();
        Self { cost, instructions, bytes, family: formula.family() }
    }
}

/// Returns the cost of a family's cheapest formula with a table of one cache line.
const fn least_cost(family: Family) -> u32 {
    match family {
        Family::Direct => 1,
        Family::ShiftMask => 7,
        Family::Mix => 8,
        Family::Extract => 9,
        Family::MultiplyShift => 10,
        Family::XorModulo => 14,
        Family::Displace => 18,
    }
}

/// The state of a search, with the best formula so far.
pub(crate) struct Search<'s> {
    set: &'s Set,
    /// The last trial that used each slot.
    used_by: Vec<u32>,
    trial: u32,
    probes: u64,
    best: Option<(Rank, Formula)>,
}

impl<'s> Search<'s> {
    pub(crate) fn new(set: &'s Set) -> Self {
        Self { set, used_by: Vec::new(), trial: 0, probes: 0, best: None }
    }

    pub(crate) fn into_best(self) -> Option<Formula> {
        self.best.map(|(_, formula)| formula)
    }

    /// Searches one family.
    pub(crate) fn run(&mut self, family: Family) {
        if self.best.as_ref().is_some_and(|(best, _)| best.cost < least_cost(family)) {
            return;
        }
        self.probes = (self.count() as u64 * PROBES_PER_VALUE).min(MOST_PROBES);
        match family {
            Family::Direct => self.direct(),
            Family::ShiftMask => self.shift_mask(),
            Family::Mix => self.mix(),
            Family::Extract => self.extract(),
            Family::MultiplyShift => self.multiply_shift(),
            Family::XorModulo => self.xor_modulo(),
            Family::Displace => self.displace(),
        }
    }

    fn count(&self) -> usize {
        self.set.values.len()
    }

    fn word_bits(&self) -> u32 {
        self.set.width.word_bits()
    }

    /// Returns the range of a slot's bits, from the fewest possible.
    fn table_bits(&self) -> std::ops::RangeInclusive<u32> {
        let least = bits_for(self.count());
        least..=least + MOST_SPARE_BITS
    }

    fn is_exhausted(&self) -> bool {
        self.probes == 0
    }

    /// Keeps the candidate if it is better than the best so far and has no collisions. Returns whether it was kept.
    fn consider(&mut self, formula: Formula) -> bool {
        let rank = Rank::of(&formula, self.count(), self.set.width);
        if self.best.as_ref().is_some_and(|(best, _)| rank >= *best) || !self.keeps_apart(&formula) {
            return false;
        }
        self.best = Some((rank, formula));
        true
    }

    fn keeps_apart(&mut self, formula: &Formula) -> bool {
        if self.used_by.len() < formula.size() {
            self.used_by.resize(formula.size(), 0);
        }
        // The probe limit allows fewer than 2^32 trials.
        self.trial += 1;
        for &value in &self.set.values {
            if self.is_exhausted() {
                return false;
            }
            self.probes -= 1;
            let slot = formula.slot(value, self.set.width);
            if self.used_by[slot] == self.trial {
                return false;
            }
            self.used_by[slot] = self.trial;
        }
        true
    }

    fn direct(&mut self) {
        let smallest = self.set.values[0];
        let span = self.set.values[self.count() - 1] - smallest;
        let most = 1u64 << (bits_for(self.count()) + MOST_SPARE_BITS);
        // If the table is large enough to start at zero, no subtraction is needed.
        for smallest in [0, smallest] {
            let span = span + (self.set.values[0] - smallest);
            if span < most {
                self.consider(Formula::Direct { smallest, size: span as usize + 1 });
            }
        }
    }

    fn shift_mask(&mut self) {
        for bits in self.table_bits() {
            for shift in 0..self.set.width.bits() {
                self.consider(Formula::ShiftMask { shift, bits });
            }
        }
    }

    fn mix(&mut self) {
        for bits in self.table_bits() {
            for then in 0..self.set.width.bits() {
                for shift in 1..self.set.width.bits() {
                    for operator in Operator::ALL {
                        if self.is_exhausted() {
                            return;
                        }
                        self.consider(Formula::Mix { operator, shift, then, bits });
                    }
                }
            }
        }
    }

    /// Returns bits that distinguish the values. Each added bit splits as many classes of still equal values as possible.
    /// Finally, redundant bits are removed.
    fn distinguishing_bits(&self) -> u64 {
        let values = &self.set.values;
        let mut chosen = 0u64;
        let mut sorted = values.clone();
        while chosen.count_ones() < u64::BITS {
            sorted.sort_unstable_by_key(|value| value & chosen);
            let mut divided = [0usize; u64::BITS as usize];
            for class in sorted.chunk_by(|a, b| a & chosen == b & chosen) {
                let (ones, zeros) =
                    class.iter().fold((0, 0), |(ones, zeros), value| (ones | value, zeros | !value));
                let mut differing: u64 = ones & zeros;
                while differing != 0 {
                    divided[differing.trailing_zeros() as usize] += 1;
                    differing &= differing - 1;
                }
            }
            // Of equally good bits, the lowest.
            let Some(best) = (0..divided.len()).rev().max_by_key(|bit| divided[*bit]) else { break };
            if divided[best] == 0 {
                break;
            }
            chosen |= 1u64 << best;
        }
        for bit in (0..u64::BITS).map(|bit| 1 << bit).filter(|bit| chosen & bit != 0).collect::<Vec<u64>>() {
            let without = chosen & !bit;
            sorted.sort_unstable_by_key(|value| value & without);
            if sorted.windows(2).all(|pair| pair[0] & without != pair[1] & without) {
                chosen = without;
            }
        }
        chosen
    }

    fn extract(&mut self) {
        let most_bits = *self.table_bits().end();
        let mut gathered = self.distinguishing_bits();
        // Fewer parts need a larger table: keep adding the bits between the two nearest parts.
        while gathered != 0 && gathered.count_ones() <= most_bits {
            let parts = parts_of(gathered);
            // A single part belongs to the shift-mask family.
            if (2..=MOST_PARTS).contains(&parts.len()) {
                self.consider(Formula::Extract { parts: parts.clone(), bits: gathered.count_ones() });
            }
            match nearest_gap(gathered) {
                Some(gap) => gathered |= gap,
                None => break,
            }
        }
    }

    fn multiply_shift(&mut self) {
        let all = self.probes;
        for bits in self.table_bits() {
            // Each table size gets the same share.
            self.probes = all / u64::from(MOST_SPARE_BITS + 1);
            let mut random = Random::new(u64::from(bits));
            while !self.is_exhausted() {
                let factor = random.odd_factor(self.word_bits());
                let formula = Formula::MultiplyShift { factor, bits };
                let rank = Rank::of(&formula, self.count(), self.set.width);
                if self.best.as_ref().is_some_and(|(best, _)| rank >= *best) || self.consider(formula) {
                    break;
                }
            }
        }
    }

    fn xor_modulo(&mut self) {
        /// Keys tried with each size.
        const KEYS: u64 = 64;
        let count = self.count();
        let mut random = Random::new(0);
        for size in (count.max(2)..=4 * count).filter(|size| !size.is_power_of_two()) {
            for key in 0..KEYS {
                if self.is_exhausted() {
                    return;
                }
                // The first few keys move values within a run; the rest change every bit.
                let key = if key < KEYS / 2 { key } else { random.next() >> (64 - self.set.width.bits()) };
                self.consider(Formula::XorModulo { key: key & self.set.width.greatest(), size });
            }
        }
    }

    /// Hash and displace: distributes the values over buckets. Each bucket, fullest first, gets the first displacement that moves
    /// its values into free slots.
    ///
    /// A factor fails if two values of a bucket share all slot bits before displacement. That happens to about seven in eight
    /// factors for the largest sets, and hardly ever for small ones. Factors are independent, and buckets shrink after every
    /// eighth factor, so no set makes all of them fail.
    fn displace(&mut self) {
        let bits = bits_for(self.count());
        let mut bucket_bits = bits_for(self.count().div_ceil(VALUES_PER_BUCKET));
        let mut random = Random::new(1);
        for attempt in 1u64.. {
            let factor = random.odd_factor(64);
            if let Some(displacements) = displaced(&self.set.values, factor, bucket_bits, bits) {
                let formula = Formula::Displace { factor, bucket_bits, bits, displacements };
                // Known to have no collisions; checked once more, without a limit.
                self.probes = u64::MAX;
                self.consider(formula);
                return;
            }
            if attempt % 8 == 0 && bucket_bits < bits + 2 {
                bucket_bits += 1;
            }
        }
    }
}

/// Returns runs of adjacent bits, each shifted down to the end of the previous run.
fn parts_of(gathered: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut rest, mut at) = (gathered, 0);
    while rest != 0 {
        let start = rest.trailing_zeros();
        let length = (rest >> start).trailing_ones();
        parts.push(Part { shift: start - at, mask: mask(length) << at });
        at += length;
        rest &= !(mask(length) << start);
    }
    parts
}

/// Returns the bits of the smallest gap between set bits; of equal gaps, the lowest.
fn nearest_gap(gathered: u64) -> Option<u64> {
    let (mut smallest, mut rest) = (None::<u64>, gathered);
    while rest != 0 {
        let start = rest.trailing_zeros();
        rest &= !(mask((rest >> start).trailing_ones()) << start);
        if rest == 0 {
            break;
        }
        let end = u64::BITS - (gathered & !rest).leading_zeros();
        let gap = mask(rest.trailing_zeros()) & !mask(end);
        if smallest.is_none_or(|smallest| gap.count_ones() < smallest.count_ones()) {
            smallest = Some(gap);
        }
    }
    smallest
}

/// Returns displacements for each bucket under this factor, if they exist.
fn displaced(values: &[u64], factor: u64, bucket_bits: u32, bits: u32) -> Option<Vec<u16>> {
    let mut hashes: Vec<u64> = values.iter().map(|value| folded(*value, factor)).collect();
    hashes.sort_unstable();
    let bucket_of = |hash: u64| (hash >> (64 - bucket_bits)) as usize;
    let mut buckets: Vec<&[u64]> = hashes.chunk_by(|a, b| bucket_of(*a) == bucket_of(*b)).collect();
    // The sort is stable, so buckets of the same size keep their order.
    buckets.sort_by_key(|bucket| std::cmp::Reverse(bucket.len()));
    let slots = 1usize << bits;
    let mut is_taken = vec![false; slots];
    let mut displacements = vec![0u16; 1 << bucket_bits];
    let mut first_free = 0;
    for bucket in buckets {
        let base = |hash: u64| (hash & mask(bits)) as usize;
        let chosen = if let [only] = bucket {
            // Any free slot will do, so no search is needed.
            while is_taken[first_free] {
                first_free += 1;
            }
            first_free ^ base(*only)
        } else {
            let mut bases: Vec<usize> = bucket.iter().map(|hash| base(*hash)).collect();
            bases.sort_unstable();
            if bases.windows(2).any(|pair| pair[0] == pair[1]) {
                return None;
            }
            (0..slots).find(|displacement| bases.iter().all(|base| !is_taken[base ^ displacement]))?
        };
        for hash in bucket {
            is_taken[base(*hash) ^ chosen] = true;
        }
        // There are at most 2^16 slots, and a displacement is less than that.
        displacements[bucket_of(bucket[0])] = chosen as u16;
    }
    Some(displacements)
}

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns an odd number with the word's highest bit set.
    fn odd_factor(&mut self, word_bits: u32) -> u64 {
        (self.next() >> (64 - word_bits)) | 1 | (1 << (word_bits - 1))
    }
}
