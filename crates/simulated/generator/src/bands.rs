//! Limit up, limit down: a symbol's price bands, as a simulated SIP computes them.
//!
//! The rules are those of the Plan to Address Extraordinary Market Volatility. The section numbers are from memory and not
//! verified. Only the rule that the percentage follows from the previous day's closing price is also confirmed by public
//! summaries.
//!
//! | rule | source |
//! | --- | --- |
//! | the bands are a percentage above and below the reference price, rounded to the nearest cent | V(A) |
//! | the first reference price is that of the listing market's opening auction; without one, the mean of the first five minutes | V(B) |
//! | later it is the mean of the last five minutes' trades, if that differs by 1 % or more; each reference price holds at least 30 seconds | V(A) |
//! | a trade counts if it sets a last price: at least a round lot | I, eligible reported transactions |
//! | the percentage depends on the previous day's closing price: above 3 dollars it is 5 % in tier 1 and 10 % in tier 2 | Appendix A |
//! | from 0.75 to 3 dollars it is 20 %, below 0.75 dollars the lesser of 75 % and 0.15 dollars | Appendix A |
//! | the percentage is doubled from 15:35 on, except in tier 2 above 3 dollars; not at the open | Appendix A as amended by Amendment 18 |
//! | there is no new reference price during a limit state | VI(B) |
//! | after a halt the reference price is that of the auction that ends the halt | V(C) |
//!
//! Guesses: the mean is evaluated every 30 seconds (the plan does so continuously), a symbol without an auction keeps the
//! reference price from before its halt, suspended bands and bands after the close are sent without prices, and CTA sends bands
//! as an NYSE quote.
//!
//! Cost: one addition per trade, and about 20 ns per symbol every 30 seconds. Memory: 200 bytes per symbol.

use tapeworks_market::Price;
use tapeworks_market::luld::{PriceBands, Standing};
use tapeworks_time::Nanos;

use crate::instrument::{Instrument, NO_BANDS, is_tier_1};
use crate::scenario::{CLOSE_NS, MINUTE_NS, SECOND_NS};

/// Minimum lifetime of a reference price, and the interval at which a SIP evaluates the trades.
pub(crate) const LOOK_NS: u64 = 30 * SECOND_NS;

/// How long a limit state lasts before the listing market pauses trading.
pub(crate) const LIMIT_STATE_NS: u64 = 15 * SECOND_NS;

/// Evaluations in five minutes.
const LOOKS: usize = 10;

/// When the percentages double.
const DOUBLED_FROM_NS: u64 = CLOSE_NS - 25 * MINUTE_NS;

/// Returns the lower and upper band around a reference price, in 1e-4 dollars. A lower band of 0 means none.
pub(crate) fn around(reference: u32, close: u32, index: u32, time_ns: u64) -> [u32; 2] {
    let is_first = is_tier_1(index);
    let percent = |percent: u64| u64::from(reference) * percent / 100;
    let width = match close {
        0..7_500 => percent(75).min(1_500),
        7_500..=30_000 => percent(20),
        _ => percent(if is_first { 5 } else { 10 }),
    };
    let is_doubled = time_ns >= DOUBLED_FROM_NS && (is_first || close <= 30_000);
    let width = if is_doubled { 2 * width } else { width };
    let cents = |price: u64| u32::try_from((price + 50) / 100 * 100).unwrap_or(u32::MAX);
    [cents(u64::from(reference).saturating_sub(width)), cents(u64::from(reference) + width)]
}

/// The trades of the last five minutes.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Sum of prices and number of trades between two evaluations.
    parts: [(u64, u32); LOOKS],
    looks: usize,
}

impl Window {
    fn push(&mut self, part: (u64, u32)) {
        if let Some(place) = self.parts.get_mut(self.looks % LOOKS) {
            *place = part;
        }
        self.looks += 1;
    }

    /// Returns the mean price of the trades, to the nearest 1e-4 dollars.
    fn mean(&self) -> Option<u32> {
        let (sum, count) =
            self.parts.iter().fold((0, 0), |(sum, count), part| (sum + part.0, count + u64::from(part.1)));
        u32::try_from((sum + count / 2).checked_div(count)?).ok()
    }
}

/// A symbol's bands at its SIP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bands {
    /// The reference price in 1e-4 dollars; 0 before the first.
    pub(crate) reference: u32,
    /// The current bands: [`NO_BANDS`] before the first, during halts, and after the close.
    pub(crate) prices: [u32; 2],
    set_ns: u64,
    /// The letter of the national indicator sent last.
    pub(crate) standing: u8,
    window: Window,
}

impl Default for Bands {
    fn default() -> Self {
        Self { reference: 0, prices: NO_BANDS, set_ns: 0, standing: b'A', window: Window::default() }
    }
}

impl Bands {
    /// Returns whether bands are in effect.
    #[inline]
    pub(crate) const fn hold(&self) -> bool {
        self.prices[1] != NO_BANDS[1]
    }

    /// Returns whether the national best is at a band.
    const fn are_reached(&self) -> bool {
        matches!(self.standing, b'E'..=b'I')
    }

    /// Returns whether a bid (`side` 0) or offer (1) at this price counts toward the national best.
    #[inline]
    pub(crate) const fn admit(&self, side: usize, price: u32) -> bool {
        if side == 0 { price <= self.prices[1] } else { price >= self.prices[0] }
    }

    /// Returns the letter of the national indicator for a best bid and offer; 0 means that there is none.
    #[inline]
    pub(crate) fn standing_of(&self, bid: u32, ask: u32) -> u8 {
        let [lower, upper] = self.prices;
        if !self.hold() || lower < bid && bid < upper && lower < ask && ask < upper {
            return b'A';
        }
        let price = |price: u32| Price::from_e9(i64::from(price) * 100_000).filter(|_| price > 0);
        let bands =
            PriceBands { lower: price(lower), upper: price(upper), indicator: b'B', effective: Nanos(0) };
        Standing::of(&bands, price(bid), price(ask)).letter().unwrap_or(b'A')
    }

    /// Returns the letter for the sides of a quote that are beyond the bands.
    #[inline]
    pub(crate) const fn beyond(&self, bid: u32, ask: u32) -> u8 {
        match (self.admit(0, bid), ask == 0 || self.admit(1, ask)) {
            (true, true) => b' ',
            (false, true) => b'A',
            (true, false) => b'B',
            (false, false) => b'C',
        }
    }

    /// Restarts counting trades.
    pub(crate) const fn begin(&mut self) {
        self.window = Window { parts: [(0, 0); LOOKS], looks: 0 };
    }

    /// Looks for a new reference price while the symbol trades. Returns the reference price with the indicator's letter if the
    /// bands change.
    pub(crate) fn look(
        &mut self,
        instrument: &Instrument,
        traded: (u64, u32),
        (index, time_ns, is_trading): (u32, u64, bool),
    ) -> Option<(u32, u8)> {
        self.window.push(traded);
        if !is_trading || self.are_reached() {
            return None;
        }
        let mean = self.window.mean();
        if self.reference == 0 {
            return mean.filter(|_| self.window.looks >= LOOKS).map(|mean| (mean, b'A'));
        }
        let known = self.reference;
        let moved = |mean: &u32| u64::from(mean.abs_diff(known)) * 100 >= u64::from(known);
        let is_due = time_ns.saturating_sub(self.set_ns) >= LOOK_NS;
        let next = mean.filter(|mean| is_due && moved(mean)).unwrap_or(known);
        let prices = around(next, instrument.close, index, time_ns);
        (self.hold() && prices != self.prices).then_some((next, b'B'))
    }

    /// Sets the bands around a reference price.
    pub(crate) fn set(&mut self, reference: u32, instrument: &mut Instrument, index: u32, time_ns: u64) {
        (self.reference, self.set_ns) = (reference, time_ns);
        self.prices = around(reference, instrument.close, index, time_ns);
        instrument.bands = self.prices;
    }

    /// Ends the bands. Returns whether any were in effect.
    pub(crate) fn end(&mut self, instrument: &mut Instrument) -> bool {
        instrument.bands = NO_BANDS;
        std::mem::replace(&mut self.prices, NO_BANDS) != NO_BANDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_the_percentage_of_tier_and_price_around_the_reference_price() {
        const NOON: u64 = 12 * 60 * MINUTE_NS;
        let late = DOUBLED_FROM_NS;
        for (reference, close, index, time_ns, bands) in [
            (1_000_000, 1_000_000, 0, NOON, [950_000, 1_050_000]),
            (1_000_000, 1_000_000, 999, late, [900_000, 1_100_000]),
            (1_000_000, 1_000_000, 1_000, NOON, [900_000, 1_100_000]),
            (1_000_000, 1_000_000, 1_000, late, [900_000, 1_100_000]),
            // The percentage follows from the previous day's price.
            (40_000, 30_000, 0, NOON, [32_000, 48_000]),
            (20_000, 20_000, 1_000, late, [12_000, 28_000]),
            (7_000, 7_000, 0, NOON, [5_500, 8_500]),
            (1_000, 1_000, 0, NOON, [300, 1_800]),
            (1_000, 1_000, 0, late, [0, 2_500]),
            // Rounded to the nearest cent.
            (101_050, 101_000, 0, NOON, [96_000, 106_100]),
        ] {
            assert_eq!(around(reference, close, index, time_ns), bands, "{reference} {close} {index}");
        }
    }

    #[test]
    fn a_reference_price_changes_with_the_mean_of_five_minutes_and_not_in_a_limit_state() {
        let mut instrument = Instrument::listed(tapeworks_wire::Ascii(*b"A       "), 100, 100);
        instrument.close = 1_000_000;
        let mut bands = Bands::default();
        let mut time_ns = 10 * 60 * MINUTE_NS;
        let mut look = |bands: &mut Bands, instrument: &Instrument, price: u64, trades: u32| {
            time_ns += LOOK_NS;
            (bands.look(instrument, (price * u64::from(trades), trades), (0, time_ns, true)), time_ns)
        };
        // Without an opening price, the first five minutes set the reference price.
        for _ in 1..LOOKS {
            assert_eq!(look(&mut bands, &instrument, 1_000_000, 1).0, None);
        }
        let (found, at) = look(&mut bands, &instrument, 1_000_000, 1);
        assert_eq!(found, Some((1_000_000, b'A')));
        bands.set(1_000_000, &mut instrument, 0, at);
        assert_eq!((bands.prices, instrument.bands), ([950_000, 1_050_000], [950_000, 1_050_000]));
        // Nine trades at 100 dollars and one at 109 have a mean of 100.90; with two at 109 it is 101.80.
        assert_eq!(look(&mut bands, &instrument, 1_090_000, 1).0, None);
        bands.standing = b'E';
        assert_eq!(look(&mut bands, &instrument, 1_090_000, 1).0, None, "in a limit state");
        bands.standing = b'A';
        assert_eq!(look(&mut bands, &instrument, 1_000_000, 0).0, Some((1_020_000, b'B')));
        assert!(bands.end(&mut instrument) && !bands.end(&mut instrument));
        assert_eq!(look(&mut bands, &instrument, 1_090_000, 9).0, None, "no bands hold");
    }

    #[test]
    fn quotes_beyond_the_bands_and_at_them_have_their_letters() {
        let bands = Bands { reference: 100, prices: [90, 110], ..Bands::default() };
        assert_eq!(bands.beyond(110, 90), b' ');
        assert_eq!([bands.beyond(111, 112), bands.beyond(80, 89), bands.beyond(111, 89)], *b"ABC");
        assert_eq!(bands.beyond(0, 0), b' ');
        for (bid, ask, letter) in
            [(99, 101, b'A'), (89, 101, b'B'), (99, 111, b'C'), (110, 111, b'G'), (0, 90, b'F'), (0, 0, b'A')]
        {
            assert_eq!(bands.standing_of(bid, ask), letter, "{bid} {ask}");
        }
        assert_eq!(Bands::default().standing_of(110, 111), b'A');
    }
}
