//! Prices: integers with a unit. An absent price takes no extra space.

use std::fmt;
use std::num::NonZeroI64;

/// DBN's undefined price: `i64::MAX`.
pub const UNDEFINED_PRICE: i64 = i64::MAX;

/// A price in units of 1e-9 of the currency.
///
/// `Option<Price>` takes eight bytes: [`UNDEFINED_PRICE`] is not a price, and the stored bits reserve exactly that
/// pattern for `None`.
/// ```
/// use tapeworks_market::Price;
/// let price = Price::from_e9(101_500_000_000).unwrap();
/// assert_eq!(price.to_string(), "101.50");
/// assert_eq!(size_of::<Option<Price>>(), 8);
/// assert_eq!(Price::from_e9(i64::MAX), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Price(NonZeroI64);

impl Price {
    /// One unit of currency.
    pub const ONE: i64 = 1_000_000_000;

    /// Creates a price from units of 1e-9; `None` for [`UNDEFINED_PRICE`].
    #[inline]
    pub const fn from_e9(units: i64) -> Option<Self> {
        // XOR with the undefined pattern maps it, and nothing else, to zero.
        match NonZeroI64::new(units ^ UNDEFINED_PRICE) {
            Some(stored) => Some(Self(stored)),
            None => None,
        }
    }

    /// Creates a price from ten-thousandths (Nasdaq's and IEX's price(4)).
    ///
    /// The result is never undefined: a 32-bit number times 100,000 is far from the end of the range.
    #[inline]
    pub const fn from_e4(units: u32) -> Self {
        // units * 100_000 < 2^49 < i64::MAX, so the XOR is never zero; the fallback is never taken.
        match NonZeroI64::new((units as i64 * 100_000) ^ UNDEFINED_PRICE) {
            Some(stored) => Self(stored),
            None => Self(NonZeroI64::MIN),
        }
    }

    /// Returns the price in units of 1e-9.
    #[inline]
    pub const fn e9(self) -> i64 {
        self.0.get() ^ UNDEFINED_PRICE
    }

    /// Returns the price in units of the currency, for display and statistics only.
    pub fn as_f64(self) -> f64 {
        self.e9() as f64 / Self::ONE as f64
    }
}

/// Returns the price in units of 1e-9, or [`UNDEFINED_PRICE`] for none: the form used in files.
#[inline]
pub const fn price_e9(price: Option<Price>) -> i64 {
    match price {
        Some(price) => price.e9(),
        None => UNDEFINED_PRICE,
    }
}

impl PartialOrd for Price {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Price {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.e9().cmp(&other.e9())
    }
}

impl fmt::Display for Price {
    /// Formats a decimal number with at least two places and no more than needed: `0.0001`, `12.50`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.e9();
        let whole = (units / Self::ONE).unsigned_abs();
        let mut fraction = (units % Self::ONE).unsigned_abs();
        let mut places = 9;
        while places > 2 && fraction.is_multiple_of(10) {
            fraction /= 10;
            places -= 1;
        }
        let sign = if units < 0 { "-" } else { "" };
        f.pad(&format!("{sign}{whole}.{fraction:0places$}"))
    }
}

impl fmt::Debug for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Price {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.e9())
    }
}

#[cfg(feature = "serde")]
impl<'d> serde::Deserialize<'d> for Price {
    fn deserialize<D: serde::Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let units = <i64 as serde::Deserialize>::deserialize(deserializer)?;
        Self::from_e9(units).ok_or_else(|| serde::de::Error::custom("not a price"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_price_takes_no_space_and_is_the_undefined_price() {
        assert_eq!(size_of::<Option<Price>>(), 8);
        assert_eq!(price_e9(None), UNDEFINED_PRICE);
        for units in [0, 1, -1, i64::MIN, i64::MAX - 1, 123_456_789] {
            assert_eq!(Price::from_e9(units).unwrap().e9(), units);
        }
    }

    #[test]
    fn prices_order_as_their_numbers_do() {
        let sorted =
            [i64::MIN, -5, 0, 1, 7_000_000_000, i64::MAX - 1].map(|units| Price::from_e9(units).unwrap());
        assert!(sorted.is_sorted());
        assert_eq!(Price::from_e4(u32::MAX).e9(), i64::from(u32::MAX) * 100_000);
    }

    #[test]
    fn display_keeps_every_place_that_counts() {
        let show = |units| Price::from_e9(units).unwrap().to_string();
        assert_eq!(show(12_500_000_000), "12.50");
        assert_eq!(show(100_000), "0.0001");
        assert_eq!(show(-1_000_000_001), "-1.000000001");
        assert_eq!(show(i64::MIN), "-9223372036.854775808");
    }
}
