//! What a quote of a securities information processor says of the national best bid and offer.

use crate::Decimal;

/// What a quote says of one side of the national best bid and offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NationalSide {
    /// It is as before.
    Unchanged,
    /// There is none.
    Absent,
    /// It is that of the quote itself.
    OfQuote,
    /// It is that of an appendage.
    Appended(NationalBest),
}

/// One side of a national best bid and offer, from an appendage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NationalBest {
    /// The letter of the market centre.
    pub center: u8,
    /// The price.
    pub price: Decimal<u64, 6>,
    /// The size, as the feed counts it.
    pub size: u32,
    /// The letter of its quote condition; a space where the appendage has none.
    pub condition: u8,
}

/// A price of the short form, which counts cents.
#[must_use]
pub fn of_cents(price: Decimal<u16, 2>) -> Decimal<u64, 6> {
    Decimal(u64::from(price.0) * 10_000)
}
