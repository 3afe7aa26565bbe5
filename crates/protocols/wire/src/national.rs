//! The national best bid and offer, as a quote of a securities information processor reports it.

use crate::Decimal;

/// One side of the national best bid and offer, as a quote reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NationalSide {
    /// Unchanged by this quote.
    Unchanged,
    /// The side has no national best.
    Absent,
    /// The quote itself is the national best.
    OfQuote,
    /// An appendage contains the national best.
    Appended(NationalBest),
}

/// One side of the national best bid and offer, from an appendage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NationalBest {
    /// The letter of the market centre.
    pub center: u8,
    /// The price.
    pub price: Decimal<u64, 6>,
    /// The size, in the feed's unit.
    pub size: u32,
    /// The letter of the quote condition; a space if the appendage has none.
    pub condition: u8,
}

/// Converts a short-form price, which counts cents.
#[must_use]
pub fn of_cents(price: Decimal<u16, 2>) -> Decimal<u64, 6> {
    Decimal(u64::from(price.0) * 10_000)
}
