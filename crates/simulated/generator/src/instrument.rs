//! The traded symbols: names, starting prices, and the reference price that all venues follow.

use tapeworks_wire::Ascii;

use crate::book::Side;
use tapeworks_random::Random;

/// One cent in 1e-4 dollars: the tick for prices of at least one dollar (Rule 612 of Regulation NMS).
const CENT: u32 = 100;

/// A symbol with its hidden reference price.
#[derive(Debug, Clone)]
pub(crate) struct Instrument {
    pub(crate) symbol: Ascii<8>,
    /// In 1e-4 dollars.
    pub(crate) tick: u32,
    /// The price that the venues' quotes surround: the natural bid, in ticks.
    reference: u32,
    /// Ticks from the natural bid to the natural offer.
    pub(crate) spread: u32,
    /// Size of one move, in ticks.
    step: u32,
    /// Bounds of the walk, in ticks.
    low: u32,
    high: u32,
    pub(crate) round_lot: u32,
    pub(crate) etp: bool,
    /// The letter of its listing market.
    pub(crate) listing: u8,
    /// Whether a correction of a crossed market is scheduled.
    pub(crate) correction_due: bool,
    /// The previous day's price, in 1e-4 dollars.
    pub(crate) close: u32,
    /// The price bands, in 1e-4 dollars: no sell order is priced below the first, no buy order above the second, and no trade is
    /// outside them.
    pub(crate) bands: [u32; 2],
    /// Sum of prices and number of the trades since the SIPs last evaluated them.
    pub(crate) traded: (u64, u32),
    /// Price of the last auction that ended a halt, in 1e-4 dollars; the next halt resets it to 0.
    pub(crate) reopened: u32,
}

/// Price bands that restrict nothing.
pub(crate) const NO_BANDS: [u32; 2] = [0, u32::MAX];

/// Returns whether a symbol is in tier 1 of the Plan to Address Extraordinary Market Volatility.
pub(crate) const fn is_tier_1(index: u32) -> bool {
    index < 1_000
}

impl Instrument {
    /// Creates symbol number `index`, listed by the market with this letter.
    pub(crate) fn new(index: u32, listing: u8, random: &mut Random) -> Self {
        let (tick, price) = starting_price(index, random);
        let reference = price / tick;
        Self {
            symbol: symbol(index),
            tick,
            reference,
            spread: 1 + reference / 8_000 + random.below(1 + (reference / 1_500).min(6)),
            step: 1 + reference / 25_000,
            low: (reference * 3 / 4).max(1),
            high: reference / 4 * 5 + 1,
            round_lot: round_lot(price),
            etp: random.below(4) == 0,
            listing,
            correction_due: false,
            close: price,
            bands: NO_BANDS,
            traded: (0, 0),
            reopened: 0,
        }
    }

    /// Creates a symbol of a venue that accepts orders, without a reference price.
    pub(crate) fn listed(symbol: Ascii<8>, tick: u32, round_lot: u32) -> Self {
        Self {
            symbol,
            tick,
            reference: 0,
            spread: 0,
            step: 0,
            low: 0,
            high: 0,
            round_lot,
            etp: false,
            listing: b'Q',
            correction_due: false,
            close: 0,
            bands: NO_BANDS,
            traded: (0, 0),
            reopened: 0,
        }
    }

    /// Returns whether a trade at this price is within the price bands.
    #[inline]
    pub(crate) const fn may_trade_at(&self, price: u32) -> bool {
        let [lower, upper] = self.bands;
        lower <= price && price <= upper
    }

    /// Records a trade that sets a last price: the SIPs count trades of at least a round lot.
    #[inline]
    pub(crate) const fn note_trade(&mut self, price: u32, shares: u32) {
        if shares >= self.round_lot {
            self.traded = (self.traded.0 + price as u64, self.traded.1 + 1);
        }
    }

    /// Moves the reference price beyond a price band, so that all quotes are on one side of it.
    pub(crate) fn jump_beyond(&mut self, band: u32, up: bool) {
        let (at, more) = (band / self.tick.max(1), 2 * self.spread + 2);
        self.reference = if up { at + more } else { at.saturating_sub(self.spread + more).max(1) };
    }

    /// Returns the price, in ticks, at which this side quotes when it is up to date.
    #[inline]
    pub(crate) fn natural(&self, side: Side) -> u32 {
        match side {
            Side::Buy => self.reference,
            Side::Sell => self.reference + self.spread,
        }
    }

    /// Returns the reference price in 1e-4 dollars.
    pub(crate) fn reference_price(&self) -> u32 {
        self.reference * self.tick
    }

    /// Moves the reference price one step up or down.
    #[inline]
    pub(crate) fn walk(&mut self, up: bool) {
        self.reference = if (up || self.reference < self.low + self.step) && self.reference < self.high {
            self.reference + self.step
        } else {
            self.reference.saturating_sub(self.step).max(1)
        };
    }
}

/// Returns the name of the symbol with this number, counted from 0.
#[must_use]
pub fn symbol_name(index: u32) -> String {
    symbol(index).0.iter().map(|letter| char::from(*letter)).collect::<String>().trim_end().to_owned()
}

/// Returns four letters, distinct for each of the first 456,976 numbers.
pub(crate) fn symbol(index: u32) -> Ascii<8> {
    const NAMES: u64 = 26 * 26 * 26 * 26;
    // 7,919 has no factor in common with 26, so no name repeats.
    let mut name = (u64::from(index) * 7_919 + 12_345) % NAMES;
    let mut text = *b"        ";
    for letter in text.iter_mut().take(4) {
        *letter = b'A' + (name % 26) as u8;
        name /= 26;
    }
    Ascii(text)
}

/// Returns tick and price in 1e-4 dollars.
///
/// Most symbols cost between 2 and 450 dollars; some cost cents, some thousands. The numbers 3 to 6 have one of each, so that
/// small sessions have every round lot too.
fn starting_price(index: u32, random: &mut Random) -> (u32, u32) {
    let tier = match index {
        3 => 999,
        4 => 985,
        5 => 970,
        6 => 0,
        _ => random.below(1_000),
    };
    let (low, high) = match tier {
        0..30 => (2_000, 7_500),
        30..430 => (20_000, 200_000),
        430..830 => (200_000, 1_200_000),
        830..960 => (1_200_000, 2_400_000),
        960..980 => (2_600_000, 9_000_000),
        980..998 => (10_100_000, 60_000_000),
        _ => (101_000_000, 150_000_000),
    };
    let tick = if high < 10_000 { 1 } else { CENT };
    let price = low + random.below(high - low);
    (tick, price / tick * tick)
}

/// Returns the shares of a round lot by price in 1e-4 dollars (Rule 600(b)(93) of Regulation NMS, in force since November 2025).
fn round_lot(price: u32) -> u32 {
    match price {
        0..=2_500_000 => 100,
        2_500_001..=10_000_000 => 40,
        10_000_001..=100_000_000 => 10,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_thousand_symbols_have_different_names_and_prices_that_stay_positive() {
        let mut random = Random::new(1);
        let mut names = std::collections::HashSet::new();
        for index in 0..8_000 {
            let mut instrument = Instrument::new(index, b'Q', &mut random);
            assert!(names.insert(instrument.symbol));
            for _ in 0..100 {
                instrument.walk(false);
            }
            assert!(instrument.natural(Side::Buy) >= instrument.low - 1, "{instrument:?}");
            assert!(instrument.natural(Side::Sell) > instrument.natural(Side::Buy));
        }
    }

    #[test]
    fn the_first_symbols_have_every_round_lot() {
        let mut random = Random::new(5);
        let lots: Vec<u32> =
            (0..7).map(|index| Instrument::new(index, b'Q', &mut random).round_lot).collect();
        assert_eq!(&lots[3..], [1, 10, 40, 100]);
    }
}
