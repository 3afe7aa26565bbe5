//! Prices as fixed-point integers, as floating-point numbers, and as decimals: how fast, and how often wrong.

use std::hint::black_box;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;

use crate::measure::{Ended, Lab, Variants};
use crate::results::Scale;
use crate::statistics::Better;
use crate::technique::{Assembly, Technique, Use};

/// Units of an integer price per unit of the currency: ten-thousandths, as sent by the venues.
const UNITS: i64 = 10_000;

/// A fill: shares at a price, in each representation.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    shares: u32,
    units: i64,
    float: f64,
    decimal: Decimal,
}

impl Fill {
    fn new(units: i64, shares: u32) -> Self {
        Self { shares, units, float: units as f64 / UNITS as f64, decimal: Decimal::new(units, 4) }
    }
}

/// Returns the total cost of all fills, in ten-thousandths.
// ANCHOR: integer
#[inline(never)]
#[must_use]
pub fn cost_by_integers(fills: &[Fill]) -> i64 {
    fills.iter().map(|fill| fill.units * i64::from(fill.shares)).sum()
}
// ANCHOR_END: integer

/// Returns the same with floats, rounded at the end.
// ANCHOR: float
#[inline(never)]
#[must_use]
pub fn cost_by_floats(fills: &[Fill]) -> i64 {
    let cost: f64 = fills.iter().map(|fill| fill.float * f64::from(fill.shares)).sum();
    (cost * UNITS as f64).round() as i64
}
// ANCHOR_END: float

/// Returns the same with 96-bit decimals.
// ANCHOR: decimal
#[inline(never)]
#[must_use]
pub fn cost_by_decimals(fills: &[Fill]) -> i64 {
    let cost: Decimal = fills.iter().map(|fill| fill.decimal * Decimal::from(fill.shares)).sum();
    (cost * Decimal::from(UNITS)).to_i64().unwrap_or(i64::MAX)
}
// ANCHOR_END: decimal

/// Sums the positions of the prices in a ladder of levels one cent apart.
#[inline(never)]
#[must_use]
pub fn places_by_integers(fills: &[Fill]) -> i64 {
    fills.iter().map(|fill| fill.units / (UNITS / 100)).sum()
}

/// Returns the same with floats, rounded to the nearest position.
#[inline(never)]
#[must_use]
pub fn places_by_floats(fills: &[Fill]) -> i64 {
    fills.iter().map(|fill| (fill.float * 100.0).round() as i64).sum()
}

/// Returns the same with decimals.
#[inline(never)]
#[must_use]
pub fn places_by_decimals(fills: &[Fill]) -> i64 {
    let hundred = Decimal::from(100);
    fills.iter().filter_map(|fill| (fill.decimal * hundred).to_i64()).sum()
}

/// Prices up to this many cents are checked for wrong results.
const CENTS: i64 = 100_000;

/// Common errors, counted for all prices from 0.01 to 1,000.00.
// ANCHOR: wrong
#[derive(Clone, Copy, Debug)]
enum Trap {
    /// The place of a price among ticks of 0.01, cut off: `(price / 0.01) as i64`.
    CutOff,
    /// A price plus a tick is the next price: `a + 0.01 == b`.
    NextTick,
    /// A running total of 0.01, compared with the price that it should be.
    RunningTotal,
    /// A third of a price, three times: what a split over three accounts adds up to.
    Thirds,
}

impl Trap {
    const ALL: [(Self, &'static str); 4] = [
        (Self::CutOff, "place of a price, cut off"),
        (Self::NextTick, "a price and a tick"),
        (Self::RunningTotal, "a running total of cents"),
        (Self::Thirds, "three thirds"),
    ];

    fn wrong_by_integers(self) -> u64 {
        let tick = UNITS / 100;
        let mut total = 0;
        let is_wrong = |cents: i64| {
            let price = cents * tick;
            total += tick;
            match self {
                Self::CutOff => price / tick != cents,
                Self::NextTick => price + tick != (cents + 1) * tick,
                Self::RunningTotal => total != price,
                Self::Thirds => {
                    // What does not divide goes to the last account.
                    let third = price / 3;
                    third + third + (price - 2 * third) != price
                }
            }
        };
        (1..=CENTS).map(is_wrong).filter(|is_wrong| *is_wrong).count() as u64
    }

    fn wrong_by_floats(self) -> u64 {
        let tick = 0.01f64;
        let price_of = |cents: i64| cents as f64 / 100.0;
        let mut total = 0.0;
        let is_wrong = |cents: i64| {
            let price = price_of(cents);
            total += tick;
            match self {
                Self::CutOff => (price / tick) as i64 != cents,
                Self::NextTick => price + tick != price_of(cents + 1),
                Self::RunningTotal => total != price,
                Self::Thirds => price / 3.0 + price / 3.0 + price / 3.0 != price,
            }
        };
        (1..=CENTS).map(is_wrong).filter(|is_wrong| *is_wrong).count() as u64
    }

    fn wrong_by_decimals(self) -> u64 {
        let tick = Decimal::new(1, 2);
        let mut total = Decimal::ZERO;
        let is_wrong = |cents: i64| {
            let price = Decimal::new(cents, 2);
            total += tick;
            match self {
                Self::CutOff => (price / tick).to_i64() != Some(cents),
                Self::NextTick => price + tick != Decimal::new(cents + 1, 2),
                Self::RunningTotal => total != price,
                Self::Thirds => {
                    let third = price / Decimal::from(3);
                    third + third + third != price
                }
            }
        };
        (1..=CENTS).map(is_wrong).filter(|is_wrong| *is_wrong).count() as u64
    }
}
// ANCHOR_END: wrong

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    let fill = || Fill::new(random.below(100_000) as i64 * 100 + 100, random.below(1_000) as u32 + 1);
    let fills: Vec<Fill> = std::iter::repeat_with(fill).take(lab.either(4_096, 512)).collect();
    let fills = fills.as_slice();
    let count = fills.len() as u64;
    lab.experiment("the cost of fills: a product each, and the sum", "fill");
    lab.point(
        0.0,
        "",
        Variants::of(count)
            .add("integers", || cost_by_integers(black_box(fills)).cast_unsigned())
            .add("floating point", || cost_by_floats(black_box(fills)).cast_unsigned())
            .add("decimals", || cost_by_decimals(black_box(fills)).cast_unsigned()),
    )?;
    lab.experiment("the place of a price in a ladder of ticks", "price");
    lab.point(
        0.0,
        "",
        Variants::of(count)
            .add("integers", || places_by_integers(black_box(fills)).cast_unsigned())
            .add("floating point", || places_by_floats(black_box(fills)).cast_unsigned())
            .add("decimals", || places_by_decimals(black_box(fills)).cast_unsigned()),
    )?;
    lab.experiment("wrong results for all prices from 0.01 to 1,000.00", "100,000 prices");
    lab.in_unit("wrong", Better::Neither);
    lab.along("what is computed", Scale::Names);
    for (place, (trap, name)) in Trap::ALL.into_iter().enumerate() {
        // The count never changes, so it is computed once.
        let wrong = [trap.wrong_by_integers(), trap.wrong_by_floats(), trap.wrong_by_decimals()];
        let mut variants = Variants::of(CENTS.cast_unsigned()).answers_differ();
        for (name, wrong) in ["integers", "floating point", "decimals"].into_iter().zip(wrong) {
            variants = variants.add_reported(name, move |reporter| {
                reporter.figure(wrong as f64);
                wrong
            });
        }
        lab.point(place as f64, name, variants)?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 30,
    name: "integer-prices",
    title: "Integer prices",
    question: "What do integers with a fixed unit cost beside floating point and decimals, and what goes wrong with those?",
    published: &[],
    used: &[
        Use { path: "crates/market/market/src/price.rs", what: "a price is a 64-bit integer of 1e-9" },
        Use {
            path: "crates/protocols/wire/src/value.rs",
            what: "decimals of the wire become such integers exactly, or not at all",
        },
        Use { path: "docs/src/decisions/parquet-prices.md", what: "prices in files" },
    ],
    assembly: &[
        Assembly {
            variant: "integers",
            symbol: "tapeworks_lab::catalogue::integer_prices::cost_by_integers",
            marks: &["imul", "add"],
        },
        Assembly {
            variant: "floating point",
            symbol: "tapeworks_lab::catalogue::integer_prices::cost_by_floats",
            marks: &["cvt", "mulsd", "addsd"],
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
        fn all_forms_give_the_same_cost_and_places(
            fills in prop::collection::vec((1i64..1_000_000, 1u32..10_000), 0..200),
        ) {
            // Whole cents: ten-thousandths of a price would be truncated by one variant and rounded by another.
            let fills: Vec<Fill> = fills.into_iter().map(|(cents, shares)| Fill::new(cents * 100, shares)).collect();
            let cost = cost_by_integers(&fills);
            prop_assert_eq!(cost_by_floats(&fills), cost);
            prop_assert_eq!(cost_by_decimals(&fills), cost);
            let places = places_by_integers(&fills);
            prop_assert_eq!(places_by_floats(&fills), places);
            prop_assert_eq!(places_by_decimals(&fills), places);
        }
    }

    #[test]
    fn integers_are_never_wrong_and_floats_are_in_every_trap() {
        for (trap, name) in Trap::ALL {
            assert_eq!(trap.wrong_by_integers(), 0, "{name}");
        }
        for trap in [Trap::CutOff, Trap::NextTick, Trap::RunningTotal] {
            assert!(trap.wrong_by_floats() > 0, "{trap:?}");
            assert_eq!(trap.wrong_by_decimals(), 0, "{trap:?}");
        }
        // A third is not finite in decimals either.
        assert!(Trap::Thirds.wrong_by_decimals() > 0);
    }

    #[test]
    fn the_classic_example() {
        assert_ne!(0.1 + 0.2, 0.3);
        assert_eq!((0.29f64 / 0.01) as i64, 28);
    }
}
