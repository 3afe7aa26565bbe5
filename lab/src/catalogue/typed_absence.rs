//! A price that may be absent: a bit pattern that no price has (a niche), a separate flag, or a nullable pointer.

use std::hint::black_box;

use tapeworks_market::Price;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Combines the sum and the count of the present prices into one number.
#[inline(always)]
fn sum<'p, P: 'p>(prices: impl Iterator<Item = &'p P>, price_e9: impl Fn(&P) -> Option<i64>) -> u64 {
    let (mut sum, mut count) = (0i64, 0u64);
    for price in prices {
        if let Some(price_e9) = price_e9(price) {
            sum = sum.wrapping_add(price_e9);
            count += 1;
        }
    }
    sum.cast_unsigned() ^ count.rotate_right(8)
}

/// Boxed prices: 8 bytes each here, plus a heap block for each present price.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn sum_of_boxed(prices: &[Option<Box<i64>>]) -> u64 {
    sum(prices.iter(), |price| price.as_deref().copied())
}
// ANCHOR_END: baseline

/// Prices with a flag: 16 bytes each, including seven of padding.
// ANCHOR: flag
#[inline(never)]
#[must_use]
pub fn sum_of_flagged(prices: &[Option<i64>]) -> u64 {
    sum(prices.iter(), |price| *price)
}
// ANCHOR_END: flag

/// The product's prices: 8 bytes each, with one bit pattern for "none".
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn sum_of_niche(prices: &[Option<Price>]) -> u64 {
    sum(prices.iter(), |price| price.map(Price::e9))
}
// ANCHOR_END: variant

/// A sentinel unknown to the type: equally small, but every user has to remember it.
// ANCHOR: sentinel
#[inline(never)]
#[must_use]
pub fn sum_of_sentinels(prices: &[i64]) -> u64 {
    sum(prices.iter(), |price| (*price != i64::MAX).then_some(*price))
}
// ANCHOR_END: sentinel

fn random_prices(random: &mut Random, count: usize, absent_percent: u64) -> Vec<Option<i64>> {
    let price = || {
        let price_e9 = random.below(1 << 50) as i64;
        (random.below(100) >= absent_percent).then_some(price_e9)
    };
    std::iter::repeat_with(price).take(count).collect()
}

/// Boxes the prices in a memory order unlike the array's, as in a program that has been running for a while.
fn boxed(random: &mut Random, prices: &[Option<i64>]) -> Vec<Option<Box<i64>>> {
    let mut order: Vec<usize> = (0..prices.len()).collect();
    random.shuffle(&mut order);
    let mut all: Vec<Option<Box<i64>>> = vec![None; prices.len()];
    for place in order {
        if let (Some(target), Some(Some(price))) = (all.get_mut(place), prices.get(place)) {
            *target = Some(Box::new(*price));
        }
    }
    all
}

fn niche(prices: &[Option<i64>]) -> Vec<Option<Price>> {
    prices.iter().map(|price| price.and_then(Price::from_e9)).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    for (title, absent_percent) in
        [("all prices are there", 0), ("a random half of the prices is absent", 50)]
    {
        lab.experiment(title, "price");
        lab.along("prices", Scale::Logarithmic);
        for count in lab.either(vec![256, 8_192, 1 << 20], vec![256, 8_192]) {
            let flagged = random_prices(&mut random, count, absent_percent);
            let boxed = boxed(&mut random, &flagged);
            let niche = niche(&flagged);
            let sentinels: Vec<i64> = flagged.iter().map(|price| price.unwrap_or(i64::MAX)).collect();
            lab.point(
                count as f64,
                &format!("{count} prices"),
                Variants::of(count as u64)
                    .add("boxes", || sum_of_boxed(black_box(&boxed)))
                    .add("a flag beside", || sum_of_flagged(black_box(&flagged)))
                    .add("a niche", || sum_of_niche(black_box(&niche)))
                    .add("a bare sentinel", || sum_of_sentinels(black_box(&sentinels))),
            )?;
        }
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 19,
    name: "typed-absence",
    title: "Typed absence",
    question: "What does it cost to say in the type that a value may be absent?",
    published: &[],
    used: &[
        Use { path: "crates/market/market/src/price.rs", what: "`Option<Price>` takes eight bytes" },
        Use { path: "crates/market/market/src/event.rs", what: "an event of 64 bytes has such a price" },
        Use {
            path: "crates/protocols/wire/src/lib.rs",
            what: "`optional<TYPE, SENTINEL>` reads a protocol's sentinel as `None`",
        },
    ],
    assembly: &[
        Assembly {
            variant: "boxes",
            symbol: "tapeworks_lab::catalogue::typed_absence::sum_of_boxed",
            marks: &["test", "j"],
        },
        Assembly {
            variant: "a niche",
            symbol: "tapeworks_lab::catalogue::typed_absence::sum_of_niche",
            marks: &["xor", "pxor", "cmov", "cmp"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_forms_give_the_same_sum(
            prices in prop::collection::vec(prop::option::of(i64::MIN..i64::MAX), 0..60),
            seed in any::<u64>(),
        ) {
            let expected = sum_of_flagged(&prices);
            let sentinels: Vec<i64> = prices.iter().map(|price| price.unwrap_or(i64::MAX)).collect();
            prop_assert_eq!(sum_of_boxed(&boxed(&mut Random::new(seed), &prices)), expected);
            prop_assert_eq!(sum_of_niche(&niche(&prices)), expected);
            prop_assert_eq!(sum_of_sentinels(&sentinels), expected);
        }
    }

    #[test]
    fn sizes_are_as_the_page_says() {
        assert_eq!(size_of::<Option<Box<i64>>>(), 8);
        assert_eq!(size_of::<Option<i64>>(), 16);
        assert_eq!(size_of::<Option<Price>>(), 8);
        assert_eq!(size_of::<Option<Option<Price>>>(), 16);
        assert_eq!(size_of::<Option<(u32, u8)>>(), 12);
    }

    #[test]
    fn a_sum_knows_how_many_are_there() {
        assert_ne!(sum_of_flagged(&[Some(0)]), sum_of_flagged(&[None]));
    }
}
